//! The client's end of one circuit.

use std::time::{Duration, Instant};

use fodo_data::{ConvertError, EventMask, Now, Reading, Value};

use crate::dbr::DbrType;
use crate::eca::Eca;
use crate::{Cid, Ioid, Rights, Sid, SubscriptionId};

/// What a client tells the server about itself, and how it watches the circuit.
#[derive(Clone, Debug)]
pub struct Config {
    /// 0 to 99.
    pub priority: u8,
    /// Login name, sent as CLIENT_NAME.
    pub user: String,
    /// Host name, sent as HOST_NAME.
    pub host: String,
    /// Silence after which the server is asked for an echo (EPICS_CA_CONN_TMO).
    pub echo_after: Duration,
    /// Largest payload that is accepted, in bytes.
    pub payload_bytes_max: usize,
}

/// What happened on a circuit.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The server confirmed a channel.
    Created { cid: Cid, sid: Sid, native: DbrType, count: u32 },
    /// The server has no such channel (any more).
    CreateFailed { cid: Cid },
    /// What may be done with the channel; comes before `Created` and at every change.
    Rights { cid: Cid, rights: Rights },
    /// A get ended: a reading, or the status that says why not.
    ReadDone { ioid: Ioid, result: Result<Reading, Eca> },
    /// A put with completion ended.
    WriteDone { ioid: Ioid, result: Result<(), Eca> },
    /// An update of a subscription, or the status that says why there is none.
    Update { subscription: SubscriptionId, result: Result<Reading, Eca> },
    /// The server took a channel away (SERVER_DISCONN).
    ChannelGone { cid: Cid },
    /// The server complains about a message (ERROR), with its own words.
    Complaint { cid: Option<Cid>, status: Eca, text: String },
    /// Nothing was heard for so long that the circuit counts as unresponsive; it stays open.
    Unresponsive,
    /// It is heard again after [`Event::Unresponsive`].
    Responsive,
    /// The circuit is of no more use; nothing follows.
    Closed(Closed),
}

/// Why a circuit came to its end from inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The server's bytes cannot be read on.
    Malformed(&'static str),
}

/// The client's end of one circuit.
#[derive(Debug)]
pub struct Circuit {}

impl Circuit {
    /// A fresh circuit; VERSION, CLIENT_NAME and HOST_NAME are ready to be sent.
    pub fn new(config: &Config, now: Now) -> Circuit {
        let _ = (config, now);
        todo!()
    }

    /// Asks for a channel.
    pub fn create(&mut self, cid: Cid, name: &str) {
        let _ = (cid, name);
        todo!()
    }

    /// Gives a channel up.
    pub fn clear(&mut self, cid: Cid, sid: Sid) {
        let _ = (cid, sid);
        todo!()
    }

    /// Asks for the value (READ_NOTIFY). `count` 0: as many elements as there are.
    pub fn read(&mut self, sid: Sid, dbr: DbrType, count: u32, ioid: Ioid) {
        let _ = (sid, dbr, count, ioid);
        todo!()
    }

    /// Writes, with completion when an `ioid` is given (WRITE_NOTIFY), else without any answer.
    pub fn write(&mut self, sid: Sid, dbr: DbrType, value: &Value, ioid: Option<Ioid>) -> Result<(), ConvertError> {
        let _ = (sid, dbr, value, ioid);
        todo!()
    }

    /// Starts a subscription.
    pub fn subscribe(&mut self, sid: Sid, dbr: DbrType, count: u32, mask: EventMask, subscription: SubscriptionId) {
        let _ = (sid, dbr, count, mask, subscription);
        todo!()
    }

    /// Ends a subscription; updates already under way are dropped by the circuit.
    pub fn cancel(&mut self, sid: Sid, subscription: SubscriptionId) {
        let _ = (sid, subscription);
        todo!()
    }

    /// Takes bytes in.
    pub fn received(&mut self, bytes: &[u8], now: Now, events: &mut Vec<Event>) {
        let _ = (bytes, now, events);
        todo!()
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Now, events: &mut Vec<Event>) {
        let _ = (now, events);
        todo!()
    }

    /// The latest moment to call [`Circuit::tick`].
    pub fn deadline(&self) -> Option<Instant> {
        todo!()
    }

    /// The next bytes to write; see [`crate::outbox::Outbox::ready`].
    pub fn ready(&mut self) -> &[u8] {
        todo!()
    }

    /// The first `n` of the ready bytes were written.
    pub fn sent(&mut self, n: usize) {
        let _ = n;
        todo!()
    }

    /// Bytes that wait to be sent.
    pub fn pending_bytes(&self) -> usize {
        todo!()
    }
}
