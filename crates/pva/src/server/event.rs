//! The events by which a circuit reports its client's requests, and what the caller passes in to reply to them.

use std::sync::Arc;

use fodo_data::{EventMask, NormativeLayout, Reading, Structure, StructureType, Value};

use super::selection::FieldSelection;
use crate::guid::Guid;
use crate::{Cid, Ioid, Sid, limit, search};

/// Configuration of a circuit.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest accepted payload, in bytes.
    pub payload_bytes_max: usize,
    /// The identity of the server, for replies to searches.
    pub guid: Guid,
}

/// Whether a circuit is within TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelState {
    /// It is plain TCP.
    Plain,
    /// It is within TLS.
    Encrypted {
        /// Whether the client has a verified certificate, so that the method `x509` is offered.
        has_certificate: bool,
    },
}

impl TunnelState {
    pub(super) fn transport(self) -> &'static str {
        match self {
            TunnelState::Plain => search::TCP,
            TunnelState::Encrypted { .. } => search::TLS,
        }
    }
}

/// What a channel serves.
#[derive(Clone, Debug)]
pub enum ChannelType {
    /// A scalar, array or enum, whose value is a [`Reading`].
    Flat(Arc<NormativeLayout>),
    /// Any other type, whose value is a [`Structure`].
    Structured(Arc<StructureType>),
}

impl ChannelType {
    /// The type.
    pub fn kind(&self) -> &Arc<StructureType> {
        match self {
            ChannelType::Flat(layout) => layout.kind(),
            ChannelType::Structured(kind) => kind,
        }
    }
}

/// Identifies a request to which the caller replies: one execution of an operation, or a subscription until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// The position of the operation in the circuit.
    pub(super) index: u32,
    /// Distinguishes the request from earlier and later ones at the same position.
    pub(super) number: u32,
}

/// A client's request. Every `sid` is valid: it is a channel of this circuit. The caller replies to each `request` once;
/// replies to requests that have ended in the meantime are ignored.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants and the types of their fields document it")]
pub enum Event {
    /// The client's identity by a method of authentication; at most once. Both names are empty for `anonymous`,
    /// and for `x509`, whose names are in the client's certificate.
    Identity { user: String, host: String, method: &'static str },
    /// A search for names, as sent to a name server: reply with [`super::Circuit::searched`], once or in several parts.
    Search { search: PendingSearch, names: Vec<(Cid, String)> },
    /// A request for a channel: reply with [`super::Circuit::created`] or [`super::Circuit::create_failed`].
    Create { cid: Cid, name: String },
    /// A request for a value: reply with [`super::Circuit::read_done`]. `needs_meta`: the client requested metadata.
    Read { sid: Sid, request: RequestKey, needs_meta: bool, atomic: AtomicOption },
    /// A put, or a get that processes the record first, which puts nothing: reply according to `reply`, now or later.
    Write { sid: Sid, request: RequestKey, value: PutValue, options: PutOptions, reply: WriteReply },
    /// A request to process the record: reply with [`super::Circuit::write_done`], now or later.
    Process { sid: Sid, request: RequestKey },
    /// A call of a procedure: reply with [`super::Circuit::rpc_done`], now or later.
    Rpc { sid: Sid, request: RequestKey, argument: Option<Structure> },
    /// A new subscription, which sends nothing before [`Event::Start`]. `needs_meta`: the client requested metadata.
    Subscribe {
        sid: Sid,
        request: RequestKey,
        options: SubscriptionOptions,
        selection: FieldSelection,
        needs_meta: bool,
    },
    /// Updates of a subscription can be sent from now on; the first one contains everything.
    Start { request: RequestKey },
    /// The client suspended a subscription.
    Stop { request: RequestKey },
    /// A subscription that had used up its window can be sent updates again.
    Ack { request: RequestKey },
    /// A request was interrupted, or ended with its operation or channel: no reply is sent to it any more.
    Cancel { sid: Sid, request: RequestKey },
    /// A channel was destroyed, after its requests; the circuit has already confirmed it.
    Clear { sid: Sid },
    /// A reply of the circuit itself that may be large: pass to [`super::Circuit::reply`] in order.
    Reply(Reply),
    /// A value was dropped, because it needs more memory than [`super::Circuit::set_arriving_bytes_max`] allows. The
    /// circuit has notified the client.
    Drained,
    /// The value of a put was dropped before it arrived, because the client may not write the channel
    /// ([`super::Circuit::set_may_write`]). The circuit has notified the client.
    Denied,
    /// The circuit must be closed once the ready bytes are sent; no further events follow.
    Closed(CloseReason),
}

impl Event {
    /// Memory of the value or of the names in the event, in bytes.
    pub fn value_bytes(&self) -> usize {
        match self {
            Event::Write { value, .. } => value.n_bytes(),
            Event::Rpc { argument: Some(argument), .. } => argument.n_bytes(),
            Event::Search { names, .. } => names.len() * limit::SEARCHED_NAME_BYTES,
            _ => 0,
        }
    }
}

/// The fields of a search that its reply repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingSearch {
    pub(super) sequence: u32,
    pub(super) must_reply: bool,
    /// The port for circuits within TLS, if the client can use them and this circuit is not.
    pub(super) tls_port: Option<u16>,
}

impl PendingSearch {
    /// For the reply to a part of the names: it is only sent if some of these are found.
    pub fn without_demand(self) -> PendingSearch {
        PendingSearch { must_reply: false, ..self }
    }
}

/// A reply of the circuit itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply(pub(super) PendingReply);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum PendingReply {
    /// To the INIT of this operation.
    Init(Ioid),
    /// To GET_FIELD: the type of a node.
    Field { ioid: Ioid, kind: Arc<StructureType>, bit: usize },
}

/// The value of a put.
#[derive(Clone, Debug, PartialEq)]
pub enum PutValue {
    /// For a flat PV; an enum is put as its index. `None`: the put has no value, only options.
    Flat(Option<Value>),
    /// For a structured PV; the nodes to put are marked as changed.
    Structured(Structure),
}

impl PutValue {
    /// Memory of the value in bytes.
    pub fn n_bytes(&self) -> usize {
        match self {
            PutValue::Flat(value) => value.as_ref().map_or(0, Value::n_bytes),
            PutValue::Structured(value) => value.n_bytes(),
        }
    }
}

/// How the client wants a put, or a get, to be executed (`record[process=,block=,atomic=]`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PutOptions {
    /// Whether the put or get processes the record.
    pub process: ProcessOption,
    /// Whether the reply waits for the end of the processing.
    pub is_blocking: bool,
    /// Whether the members of a group are read or written in one step.
    pub atomic: AtomicOption,
    /// The whole pvRequest of a put, as the client has sent it; `None` for a get, and if the client sent none.
    pub request: Option<Arc<Structure>>,
}

/// Whether the members of a group are read or written in one step.
///
/// ```
/// use fodo_pva::server::AtomicOption;
///
/// assert!(AtomicOption::default().or(true) && !AtomicOption::No.or(true) && AtomicOption::Yes.or(false));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtomicOption {
    /// As the group is defined.
    #[default]
    Unset,
    /// In one step (`true`).
    Yes,
    /// One after another (`false`).
    No,
}

impl AtomicOption {
    /// What the client requests, or else what the group is defined to be.
    pub fn or(self, is_atomic: bool) -> bool {
        match self {
            AtomicOption::Unset => is_atomic,
            AtomicOption::Yes => true,
            AtomicOption::No => false,
        }
    }
}

/// Whether a put processes the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessOption {
    /// If its fields and SCAN say so, the same as in Channel Access.
    #[default]
    Passive,
    /// Always (`true`).
    Always,
    /// Never (`false`).
    Never,
}

/// How to reply to a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteReply {
    /// With [`super::Circuit::write_done`].
    Status,
    /// A put-get or a get: after a success with [`super::Circuit::read_done`]. `needs_meta`: the client requested metadata.
    Value {
        /// The same as in [`Event::Read`].
        needs_meta: bool,
    },
}

/// The options of a subscription, within their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionOptions {
    /// The kinds of change of a record that cause an update; metadata causes one in any case.
    pub events: EventMask,
    /// How many updates the client wants to be queued, 2 to [`crate::limit::QUEUE_SIZE_MAX`].
    pub queue_size: usize,
    /// Whether the client acknowledges updates; the circuit counts how many may be sent.
    pub has_flow_control: bool,
}

/// A value to send, of the channel's type.
#[derive(Clone, Copy, Debug)]
pub enum Contents<'a> {
    /// Of a flat PV; with `meta` if the request needs it.
    Reading(&'a Reading),
    /// Of a structured PV.
    Structure(&'a Structure),
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
