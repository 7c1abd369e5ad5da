//! The server's end of one circuit.

use std::time::Instant;

use fodo_data::{ConvertError, EventMask, Now, Reading, Value};

use crate::dbr::DbrType;
use crate::eca::Eca;
use crate::{Cid, Ioid, Rights, Sid, SubscriptionId};

/// How a server treats a circuit.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest payload that is accepted, in bytes.
    pub payload_bytes_max: usize,
}

/// What the client asks. Every `sid` was checked to be a channel of this circuit.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Who the client says it is; either part may come again before the first channel.
    Identity { user: String, host: String },
    /// A channel is asked for: answer with [`Circuit::created`] or [`Circuit::create_failed`].
    Create { cid: Cid, name: String },
    /// A value is asked for: answer with [`Circuit::read_done`].
    Read { sid: Sid, dbr: DbrType, count: u32, reply: ReadReply },
    /// A put: answer with [`Circuit::write_done`], at once or later; without an `ioid` only failures are told.
    Write { sid: Sid, dbr: DbrType, value: Value, ioid: Option<Ioid> },
    /// A subscription: answer with a first [`Circuit::update`].
    Subscribe { sid: Sid, dbr: DbrType, count: u32, mask: EventMask, subscription: SubscriptionId },
    /// A subscription ends; the circuit has already confirmed it.
    Cancel { sid: Sid, subscription: SubscriptionId },
    /// A channel is given up with all its subscriptions; the circuit has already confirmed it.
    Clear { sid: Sid },
    /// The circuit is to be closed once what is ready has been sent; nothing follows.
    Closed(Closed),
}

/// To which message a value is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadReply {
    /// READ_NOTIFY, with its number.
    Notify(Ioid),
    /// The old READ, with the client's word to give back.
    Plain(u32),
}

/// Why a circuit is closed from our side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The client's bytes cannot be read on.
    Malformed(&'static str),
    /// The client broke a rule of the protocol.
    Misbehaved(&'static str),
}

/// The server's end of one circuit.
#[derive(Debug)]
pub struct Circuit {}

impl Circuit {
    /// A fresh circuit; VERSION is ready to be sent.
    pub fn new(config: &Config, now: Now) -> Circuit {
        let _ = (config, now);
        todo!()
    }

    /// Confirms a channel (ACCESS_RIGHTS, then CREATE_CHAN) and gives the number it now has here.
    /// Numbers of cleared channels are used again, so they can index a slab.
    pub fn created(&mut self, cid: Cid, native: DbrType, count: u32, rights: Rights) -> Sid {
        let _ = (cid, native, count, rights);
        todo!()
    }

    /// Says that there is no such channel.
    pub fn create_failed(&mut self, cid: Cid) {
        let _ = cid;
        todo!()
    }

    /// Answers a read; a value that cannot become `dbr` is told to the client.
    pub fn read_done(&mut self, sid: Sid, dbr: DbrType, count: u32, reply: ReadReply, result: Result<&Reading, Eca>) {
        let _ = (sid, dbr, count, reply, result);
        todo!()
    }

    /// Answers a write; `Err` carries the status for the client. Channels cleared meanwhile are ignored.
    pub fn write_done(&mut self, sid: Sid, dbr: DbrType, count: u32, ioid: Option<Ioid>, result: Result<(), Eca>) {
        let _ = (sid, dbr, count, ioid, result);
        todo!()
    }

    /// Sends an update of a subscription.
    pub fn update(
        &mut self,
        sid: Sid,
        dbr: DbrType,
        count: u32,
        subscription: SubscriptionId,
        result: Result<&Reading, Eca>,
    ) -> Result<(), ConvertError> {
        let _ = (sid, dbr, count, subscription, result);
        todo!()
    }

    /// Whether the client asked for no more than the newest updates (EVENTS_OFF).
    pub fn events_off(&self) -> bool {
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
