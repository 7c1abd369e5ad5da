//! What a circuit reports, and what its requests consist of.

use std::fmt;
use std::sync::Arc;

use fodo_data::{Array, BitSet, Kind, Reading, Structure, StructureError, StructureType, Text, Value};
use fodo_engine::search::ClaimedServer;

use crate::cursor::Malformed;
use crate::frame::FrameError;
use crate::status::RequestStatus;
use crate::{Cid, Ioid, Sid, limit};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// Reads (`Circuit::get`).
    Get,
    /// Writes (`Circuit::put`), and reads what it would write (`Circuit::get`).
    Put,
    /// Writes and then reads, with one request (`Circuit::put`); reads (`Circuit::get`). QSRV does not support it.
    PutGet,
    /// Calls a procedure (`Circuit::rpc`).
    Rpc,
    /// Processes a record (`Circuit::process`). QSRV2 does not support it and never replies.
    Process,
    /// Receives updates (`Circuit::start`).
    Monitor,
}

/// In which form an operation delivers what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decoding {
    /// As a reading if the type is that of a scalar, an array or an enum; otherwise as a structure.
    Flat,
    /// As a structure.
    Structured,
}

/// What was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Received {
    /// Nothing: the operation only writes or processes, or the procedure returns nothing.
    None,
    /// A scalar, array or enum.
    Reading(Reading),
    /// Any other type. The nodes that were received are marked as changed, except in the result of a procedure.
    Structure(Structure),
}

/// What a put writes.
#[derive(Clone, Debug, PartialEq)]
pub enum PutContent {
    /// The value of a scalar, array or enum. It is converted to the kind of the server's value. A text for an enum is
    /// the name or number of a state; it costs one more round trip.
    Value(Value),
    /// The changed nodes of a structure of the operation's type.
    Structure(Structure),
}

impl From<Value> for PutContent {
    fn from(value: Value) -> PutContent {
        PutContent::Value(value)
    }
}

impl From<Structure> for PutContent {
    fn from(structure: Structure) -> PutContent {
        PutContent::Structure(structure)
    }
}

/// The rights of a client to a channel; bits, as Phoebus sends them. Channels of other servers have all rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessRights(pub u8);

impl AccessRights {
    /// May put.
    pub const PUT: AccessRights = AccessRights(1);
    /// May put and get with one request.
    pub const PUT_GET: AccessRights = AccessRights(2);
    /// May call procedures.
    pub const RPC: AccessRights = AccessRights(4);

    /// Whether all rights of `other` are included.
    pub const fn contains(self, other: AccessRights) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Why a request is not sent, or has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The server refuses it.
    Refused(RequestStatus),
    /// The value cannot be converted to the type of the server's value.
    Value(StructureError),
    /// The value is too large for a message.
    TooLarge,
    /// Too many requests wait for their turn on this operation.
    QueueFull,
    /// Too many operations are open.
    TooManyOperations,
    /// The types of all open operations are too large together.
    TypesTooLarge,
    /// The server has not confirmed the channel, or the channel has ended.
    NoSuchChannel,
    /// The operation has ended.
    NoSuchOperation,
    /// The operation does something else.
    OtherTask,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Refused(status) => write!(f, "the server refuses the request: {status}"),
            RequestError::Value(error) => error.fmt(f),
            RequestError::TooLarge => {
                write!(f, "the value is too large; a message has at most {} bytes", limit::SENT_MESSAGE_BYTES_MAX)
            }
            RequestError::QueueFull => {
                write!(f, "the operation has {} unfinished requests, which is the maximum", limit::EXECUTIONS_MAX)
            }
            RequestError::TooManyOperations => {
                write!(f, "the circuit has {} open operations, which is the maximum", limit::OPERATIONS_MAX)
            }
            RequestError::TypesTooLarge => write!(f, "the types that this server declares take too much memory"),
            RequestError::NoSuchChannel => write!(f, "the server has not confirmed the channel, or has ended it"),
            RequestError::NoSuchOperation => write!(f, "the operation has ended"),
            RequestError::OtherTask => write!(f, "the operation was opened for another task"),
        }
    }
}

impl std::error::Error for RequestError {}

impl From<StructureError> for RequestError {
    fn from(error: StructureError) -> RequestError {
        RequestError::Value(error)
    }
}

/// An event on a circuit.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants and the types of their fields document it")]
pub enum Event {
    /// The server confirmed a channel. `sid`: the number by which the caller names it, which is not that of the messages if the
    /// server has one number for several channels.
    Created { cid: Cid, sid: Sid },
    /// The server does not have the channel.
    CreateFailed { cid: Cid, status: RequestStatus },
    /// The rights to the channel; reported before `Created`. Without this event they are complete.
    Rights { cid: Cid, rights: AccessRights },
    /// The server has ended a channel, and its operations with it. A server that confirms a channel twice can end either one.
    ChannelGone { cid: Cid, sid: Sid },
    /// An operation is open. `kind`: the type of what it writes, or else reads; `None` for the tasks without a type.
    Opened { ioid: Ioid, kind: Option<Arc<StructureType>> },
    /// An operation could not be opened and has ended.
    OpenFailed { ioid: Ioid, reason: RequestError },
    /// A get, put, call or processing ended.
    Done { ioid: Ioid, result: Result<Received, RequestError> },
    /// An update of a monitor: all that was received so far, the nodes that have changed, and those that have changed
    /// more than once since the last update.
    Update { ioid: Ioid, received: Received, changed: BitSet, overrun: BitSet },
    /// The server has ended a monitor.
    Ended { ioid: Ioid, status: RequestStatus },
    /// The type of a channel or of one of its fields; `None` if the server knows no type.
    Described { ioid: Ioid, result: Result<Option<Arc<StructureType>>, RequestStatus> },
    /// A text of the server about an operation, which may have ended, for the client's log. `level`: 0 information,
    /// 1 warning, 2 error, 3 fatal.
    Message { ioid: Ioid, level: u8, text: Text },
    /// The server knows where a name is served, by a transport that this client can use.
    Claimed { cid: Cid, server: ClaimedServer },
    /// The server has sent nothing for [`limit::CREATE_TIMEOUT`] although a channel waits for its confirmation.
    CreateUnanswered,
    /// The server has not confirmed the circuit or replied to an echo in time: the circuit counts as unresponsive but
    /// stays open.
    Unresponsive,
    /// The server sends again after [`Event::Unresponsive`].
    Responsive,
    /// The circuit is no longer usable; no further events follow.
    Closed(DisconnectReason),
}

/// Receives the events of a circuit.
pub trait Listener {
    /// Called in the order of the messages. Replies and updates are the most frequent events; handle them immediately.
    fn event(&mut self, event: Event);

    /// Called instead of [`Listener::event`] when a get of a number has succeeded, which is the most frequent event.
    #[inline]
    fn number_read(&mut self, ioid: Ioid, reading: Reading) {
        self.event(Event::Done { ioid, result: Ok(Received::Reading(reading)) });
    }

    /// An array whose memory a large array of this kind and size may reuse, in a reply to this operation or an update of it. It
    /// is reused if nothing else refers to it.
    fn room(&mut self, _: Ioid, _: Kind, _n_elements: usize) -> Option<Array> {
        None
    }

    /// A large array has arrived, before the event that contains it. [`Listener::room`] may offer its memory later.
    fn large_array(&mut self, _: &Array) {}
}

/// Stores all events.
impl Listener for Vec<Event> {
    #[inline]
    fn event(&mut self, event: Event) {
        self.push(event);
    }
}

/// Why a circuit was closed from this side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisconnectReason {
    /// The bytes from the server cannot be split into messages.
    Unframed(FrameError),
    /// A message of the server cannot be decoded.
    Malformed {
        /// The command of the message.
        command: u8,
        /// Where and why.
        fault: Malformed,
    },
    /// The server does not accept this client.
    Rejected(RequestStatus),
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DisconnectReason::Unframed(error) => error.fmt(f),
            DisconnectReason::Malformed { command, fault } => write!(f, "in a message with command {command}: {fault}"),
            DisconnectReason::Rejected(status) => write!(f, "the server rejects the client: {status}"),
        }
    }
}
