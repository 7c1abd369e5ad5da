//! The words in which a circuit tells what its client asks.

use fodo_data::{EventMask, Value};

use crate::dbr::DbrType;
use crate::{Cid, Ioid, Sid, SubscriptionId};

/// How a server treats a circuit.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest payload that is accepted, in bytes.
    pub payload_bytes_max: usize,
}

/// What the client asks. Every `sid` was checked to be a channel of this circuit.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants and the types of their fields say it")]
pub enum Event {
    /// Who the client says it is; either part may come again before the first channel.
    Identity { user: String, host: String },
    /// A name is asked for, as of a name server: answer with [`Circuit::searched`].
    Search { asked: Asked, name: String },
    /// A channel is asked for: answer with [`Circuit::created`] or [`Circuit::create_failed`].
    Create { cid: Cid, name: String },
    /// A value is asked for: answer with [`Circuit::read_done`].
    Read { sid: Sid, dbr: DbrType, count: u32, reply: ReadReply },
    /// A put: answer with [`Circuit::write_done`], at once or later; without an `ioid` only failures are told.
    Write { sid: Sid, dbr: DbrType, value: Value, ioid: Option<Ioid> },
    /// A subscription: answer with a first [`Circuit::update`].
    Subscribe { sid: Sid, dbr: DbrType, count: u32, mask: EventMask, subscription: SubscriptionId },
    /// A subscription ends, by itself or with its channel; the circuit has already confirmed it.
    Cancel { sid: Sid, subscription: SubscriptionId },
    /// A channel is given up, its subscriptions before it; the circuit has already confirmed it.
    Clear { sid: Sid },
    /// Answers of the circuit itself to requests behind those above: for [`super::Circuit::reply`] in their turn.
    Reply(Vec<u8>),
    /// A put was refused before its value arrived; the circuit has told the client, and drops the payload.
    Drained(Drained),
    /// The circuit is to be closed once what is ready has been sent; nothing follows.
    Closed(Closed),
}

/// A search as its answer refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub(super) reply: u16,
    pub(super) minor: u32,
    pub(super) cid: Cid,
    pub(super) again: u32,
}

/// To which message a value is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadReply {
    /// READ_NOTIFY, with its number.
    Notify(Ioid),
    /// The old READ, with its number.
    Plain(Ioid),
}

/// Why the payload of a put is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// The client may not write to the channel.
    NoAccess,
    /// The value needs more memory than [`super::Circuit::set_arriving_bytes_max`] leaves.
    NoRoom,
}

/// Why a circuit is closed from our side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The client's bytes cannot be read on.
    Malformed(&'static str),
    /// The client broke a rule of the protocol.
    Misbehaved(&'static str),
    /// The client holds more than it may.
    Exceeded(&'static str),
}
