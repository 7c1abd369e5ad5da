//! The events by which a circuit reports its client's requests.

use fodo_data::{EventMask, Value};
use fodo_engine::{Cid, Ioid, Sid, SubscriptionId};

use crate::dbr::DbrType;

/// Configuration of a circuit.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest accepted payload, in bytes.
    pub payload_bytes_max: usize,
}

/// A client's request. Every `sid` is valid: it is a channel of this circuit.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants and the types of their fields document it")]
pub enum Event {
    /// The client's user and host names; may be sent again before the first channel.
    Identity { user: String, host: String },
    /// A search for a name, as sent to a name server: reply with [`super::Circuit::searched`].
    Search { search: PendingSearch, name: String },
    /// A request for a channel: reply with [`super::Circuit::created`] or [`super::Circuit::create_failed`].
    Create { cid: Cid, name: String },
    /// A request for a value: reply with [`super::Circuit::read_done`].
    Read { sid: Sid, dbr: DbrType, count: u32, reply: ReadReply },
    /// A put: reply with [`super::Circuit::write_done`], now or later; without an `ioid` only failures are sent.
    Write { sid: Sid, dbr: DbrType, value: Value, ioid: Option<Ioid> },
    /// A new subscription: reply with a first [`super::Circuit::update`].
    Subscribe { sid: Sid, dbr: DbrType, count: u32, mask: EventMask, subscription: SubscriptionId },
    /// A subscription ended, by request or with its channel; the circuit has already confirmed it.
    Cancel { sid: Sid, subscription: SubscriptionId },
    /// A channel was cleared, after its subscriptions; the circuit has already confirmed it.
    Clear { sid: Sid },
    /// Replies of the circuit itself to requests after those above: pass to [`super::Circuit::reply`] in order.
    Reply(Vec<u8>),
    /// A put was rejected before its value arrived. The circuit has notified the client and drops the payload.
    Drained(DroppedPut),
    /// The circuit must be closed once the ready bytes are sent; no further events follow.
    Closed(CloseReason),
}

/// The fields of a search that its reply repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingSearch {
    pub(super) reply: u16,
    pub(super) minor: u32,
    pub(super) cid: Cid,
    pub(super) again: u32,
}

/// The message to which a value is the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadReply {
    /// READ_NOTIFY, with its number.
    Notify(Ioid),
    /// The old READ, with its number.
    Plain(Ioid),
}

/// Why the payload of a put is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DroppedPut {
    /// The client has no write access to the channel.
    NoAccess,
    /// The value needs more memory than [`super::Circuit::set_arriving_bytes_max`] allows.
    NoRoom,
}

/// Why a circuit is closed from this side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client's bytes cannot be parsed any further.
    Malformed(&'static str),
    /// The client violated the protocol.
    Misbehaved(&'static str),
    /// The client exceeded its memory limit.
    Exceeded(&'static str),
}
