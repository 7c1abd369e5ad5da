//! The server end of a circuit.
//!
//! The server sends in little-endian byte order, and accepts both from its client.
//!
//! ```
//! use std::sync::Arc;
//!
//! use fodo_data::{Kind, NormativeLayout, Now, Reading, normative_type};
//! use fodo_pva::cursor::ByteOrder;
//! use fodo_pva::guid::Guid;
//! use fodo_pva::message::{NewChannel, Request, Subcommand};
//! use fodo_pva::server::{ChannelType, Circuit, Config, Contents, Event};
//! use fodo_pva::{Cid, Ioid, Sid, value};
//!
//! let now = Now::for_test();
//! let mut circuit = Circuit::new(&Config { payload_bytes_max: 1 << 24, guid: Guid::default() });
//! let layout = Arc::new(NormativeLayout::of(Arc::new(normative_type(Kind::F64, false))).expect("it has a value"));
//!
//! // What a client sends for a get of a new channel.
//! let mut received = Vec::new();
//! let channels = vec![NewChannel { cid: Cid(7), name: "pump:speed".into() }];
//! Request::CreateChannel { channels }.encode(ByteOrder::Little, &mut received, |_| {});
//! let get = |sub| Request::Get { sid: Sid(0), ioid: Ioid(1), sub };
//! get(Subcommand::INIT).encode(ByteOrder::Little, &mut received, |to| value::encode_any(None, None, to));
//! get(Subcommand::EXECUTE).encode(ByteOrder::Little, &mut received, |_| {});
//!
//! let mut events = Vec::new();
//! for message in [&received[..25], &received[25..]] {
//!     circuit.received(message, now, &mut events);
//!     for event in events.drain(..) {
//!         match event {
//!             Event::Create { cid, .. } => {
//!                 circuit.created(cid, ChannelType::Flat(layout.clone()));
//!             }
//!             Event::Read { request, .. } => {
//!                 let reading = Reading::bare(1.5.into());
//!                 circuit.read_done(request, Ok(Contents::Reading(&reading)));
//!             }
//!             Event::Reply(reply) => circuit.reply(reply),
//!             other => panic!("{other:?}"),
//!         }
//!     }
//! }
//! let n_ready = circuit.ready().len();
//! assert!(n_ready > 600, "the type and the value");
//! circuit.sent(n_ready);
//! ```

mod channels;
mod event;
mod execution;
mod init;
mod monitor;
mod operations;
mod options;
mod put;
mod selection;

use std::net::Ipv4Addr;
use std::time::Instant;

use fodo_data::{BitSet, EventMask, Now, Structure};
use slab::Slab;

use self::event::PendingReply;
pub use self::event::{
    AtomicOption, ChannelType, CloseReason, Config, Contents, Event, PendingSearch, ProcessOption, PutOptions,
    PutValue, Reply, RequestKey, SubscriptionOptions, TunnelState, WriteReply,
};
pub use self::execution::NO_WRITE_ACCESS;
use self::operations::{Method, Operations};
pub use self::selection::FieldSelection;
use crate::cursor::{ByteOrder, ByteReader, ByteWriter};
use crate::frame::{Control, Frame, FrameError, Framer, Header, Sender};
use crate::guid::Guid;
use crate::message::{self, Answer, Request, Subcommand};
use crate::outbox::Outbox;
use crate::search::{self, SearchResponse};
use crate::status::{RequestStatus, StatusLevel};
use crate::types::{TypeCache, TypeIds};
use crate::validation;
use crate::{Cid, Ioid, Sid, limit, types, value};

/// The byte order of everything that the server sends: that of nearly all computers, so that arrays are copied as they
/// are.
const ORDER: ByteOrder = ByteOrder::Little;

/// Every kind of change: what a get contains.
const EVERYTHING: EventMask = EventMask(15);

/// The server end of a circuit.
#[derive(Debug)]
pub struct Circuit {
    framer: Framer,
    /// When an incomplete message started, or a large one last made progress.
    waits_since: Option<Instant>,
    /// How much of the message had arrived then.
    n_arrived: usize,
    inner: ServerState,
}

/// Everything but the framer, whose messages refer to its memory.
#[derive(Debug)]
struct ServerState {
    outbox: Outbox,
    events: Vec<Event>,
    channels: Slab<OpenChannel>,
    /// Channels that were destroyed by one of the latest events. Their numbers are not reused before the caller has
    /// processed these events; otherwise they would end a channel created in the meantime.
    cleared: Vec<Sid>,
    operations: Operations,
    /// The types that the client has sent with ids.
    types: TypeCache,
    /// The types that were sent to the client with ids.
    type_ids: TypeIds,
    /// The number of ids that the client stores, as it declares.
    registry_size: u16,
    guid: Guid,
    tls: TunnelState,
    /// The port of circuits within TLS; `None` if they are not offered here.
    tls_port: Option<u16>,
    is_validated: bool,
    is_closed: bool,
    held_bytes_max: usize,
    /// How many bytes of values may arrive with the next [`Circuit::received`].
    arriving_bytes_max: usize,
    /// How many of them were not used by the values decoded so far.
    value_bytes_left: usize,
}

#[derive(Debug)]
struct OpenChannel {
    cid: Cid,
    kind: ChannelType,
    may_write: bool,
    is_cleared: bool,
}

impl Circuit {
    /// Creates a circuit with the server's first messages ready to be sent: its byte order, and the methods of
    /// authentication.
    pub fn new(config: &Config) -> Circuit {
        Circuit::within(TunnelState::Plain, config)
    }

    /// The same as [`Circuit::new`], for a circuit that may be within TLS.
    pub fn within(tls: TunnelState, config: &Config) -> Circuit {
        let mut outbox = Outbox::default();
        outbox.push(|bytes| greet(tls, bytes));
        let inner = ServerState {
            outbox,
            events: Vec::new(),
            channels: Slab::new(),
            cleared: Vec::new(),
            operations: Operations::default(),
            types: TypeCache::new(),
            // See `ServerState::refer_as_the_client_does`.
            type_ids: TypeIds::new(0),
            registry_size: 0,
            guid: config.guid,
            tls,
            tls_port: None,
            is_validated: false,
            is_closed: false,
            held_bytes_max: limit::HELD_BYTES,
            arriving_bytes_max: limit::HELD_BYTES,
            value_bytes_left: 0,
        };
        let framer = Framer::new(Sender::Client, config.payload_bytes_max);
        Circuit { framer, waits_since: None, n_arrived: 0, inner }
    }

    /// Replies to searches of clients that can use TLS with this port of the same host. For a circuit that is not within TLS.
    pub fn offer_tls(&mut self, port: u16) {
        self.inner.tls_port = Some(port);
    }

    /// Confirms a channel and returns its server-side number. Numbers of destroyed channels are reused, so that they can
    /// index a slab.
    pub fn created(&mut self, cid: Cid, kind: ChannelType) -> Sid {
        let sid = Sid(self.inner.channels.insert(OpenChannel { cid, kind, may_write: true, is_cleared: false }) as u32);
        let answer = Answer::CreateChannel { cid, sid, status: RequestStatus::OK };
        self.inner.outbox.push(|bytes| answer.encode(ORDER, bytes, |_| {}));
        sid
    }

    /// Reports that the channel does not exist, or that this client may not use it. `reason`: the text for the client.
    pub fn create_failed(&mut self, cid: Cid, reason: &str) {
        self.inner.refuse_channel(cid, reason);
    }

    /// Destroys a channel of which the PV exists no longer, and reports that to the client. `events`: receives what this ends.
    pub fn close_channel(&mut self, sid: Sid, events: &mut Vec<Event>) {
        let channel = self.inner.channels.get_mut(sid.0 as usize).filter(|channel| !channel.is_cleared);
        let Some(channel) = channel else { return };
        channel.is_cleared = true;
        let cid = channel.cid;
        self.inner.cleared.push(sid);
        self.inner.operations.remove_channel(sid, |request| events.push(Event::Cancel { sid, request }));
        self.inner.outbox.push(|bytes| Answer::DestroyChannel { sid, cid }.encode(ORDER, bytes, |_| {}));
        events.push(Event::Clear { sid });
    }

    /// Replies to a search: circuits for the channels `found`, with the transport of this one, are at `port` of this host.
    /// Without any, the reply is only sent if the client requested it.
    pub fn searched(&mut self, search: PendingSearch, port: u16, found: &[Cid]) {
        let PendingSearch { sequence, must_reply, tls_port } = search;
        if found.is_empty() && !must_reply {
            return;
        }
        let (protocol, port) = tls_port.map_or((self.inner.tls.transport(), port), |port| (search::TLS, port));
        let response = SearchResponse {
            guid: self.inner.guid,
            sequence,
            address: Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(),
            port,
            protocol: protocol.into(),
            is_found: !found.is_empty(),
            cids: found.to_vec(),
        };
        let answer = Answer::SearchResponse {};
        self.inner.outbox.push(|bytes| answer.encode(ORDER, bytes, |to| response.encode(to)));
    }

    /// Sends the contents of an [`Event::Reply`].
    pub fn reply(&mut self, reply: Reply) {
        match reply.0 {
            PendingReply::Init(ioid) => self.inner.send_init(ioid),
            PendingReply::Field { ioid, kind, bit } => {
                let ServerState { outbox, type_ids, .. } = &mut self.inner;
                let answer = Answer::GetField { ioid, status: RequestStatus::OK };
                outbox.push(|bytes| {
                    answer.encode(ORDER, bytes, |to| match bit {
                        0 => type_ids.encode(&kind, to),
                        bit => types::encode(&kind.subtree(bit), to),
                    });
                });
            }
        }
    }

    /// Replies to a read, or to the write of a put-get. A reading is sent with everything that the client selected, a
    /// structure with the nodes that are marked as changed. `Err`: the status for the client.
    #[inline]
    pub fn read_done(&mut self, request: RequestKey, result: Result<Contents<'_>, &RequestStatus>) {
        self.inner.read_done(request, result);
    }

    /// Replies to a write or to processing; `Err` contains the status for the client.
    pub fn write_done(&mut self, request: RequestKey, result: Result<(), &RequestStatus>) {
        self.inner.status_done(request, result.err());
    }

    /// Replies to the call of a procedure with its result, if it has one; `Err` contains the status for the client.
    pub fn rpc_done(&mut self, request: RequestKey, result: Result<Option<&Structure>, &RequestStatus>) {
        self.inner.rpc_done(request, result);
    }

    /// Whether an update of a subscription can be sent: it is started, and its window is open.
    #[inline]
    pub fn may_update(&self, request: RequestKey) -> bool {
        self.inner.subscription(request).is_some()
    }

    /// Sends an update of a subscription, and returns whether it was sent: the subscription must be started, its window
    /// open, and one of its selected nodes marked.
    ///
    /// `marks`: the nodes that changed. `overrun`: those that changed more than once since the previous update.
    #[inline]
    pub fn update(&mut self, request: RequestKey, contents: Contents<'_>, marks: &BitSet, overrun: &BitSet) -> bool {
        self.inner.update(request, contents, marks, overrun)
    }

    /// Appends to `out` what an update of a subscription contains, for [`Circuit::update_encoded`] with all subscriptions
    /// to the same PV that have the same [`FieldSelection`]. Returns false if there is nothing to send. The arguments are
    /// those of [`Circuit::update`].
    pub fn encode_update(
        &self,
        request: RequestKey,
        contents: Contents<'_>,
        marks: &BitSet,
        overrun: &BitSet,
        out: &mut Vec<u8>,
    ) -> bool {
        self.inner.encode_update(request, contents, marks, overrun, out)
    }

    /// Sends an update whose contents are encoded already, and returns whether it was sent.
    #[inline]
    pub fn update_encoded(&mut self, request: RequestKey, contents: &[u8]) -> bool {
        self.inner.update_encoded(request, contents)
    }

    /// Ends a subscription from this side. `status`: the reason, for the client.
    pub fn end_monitor(&mut self, request: RequestKey, status: &RequestStatus) {
        self.inner.end_monitor(request, status);
    }

    /// Memory of the client's channels, operations, types and incomplete message, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.inner.held_bytes() + self.framer.held_bytes()
    }

    /// Sets the limit for [`Circuit::held_bytes`]; a client that exceeds it receives an error and is disconnected.
    pub fn set_held_bytes_max(&mut self, bytes: usize) {
        self.inner.held_bytes_max = bytes;
    }

    /// Sets by how much the value of an incomplete message may grow with the next [`Circuit::received`], and how many
    /// bytes the values in its events may have. A message that needs more is rejected, and its payload is dropped as it
    /// arrives.
    pub fn set_arriving_bytes_max(&mut self, bytes: usize) {
        self.inner.arriving_bytes_max = bytes;
    }

    /// Restarts the timeout of an incomplete message, because the caller did not read for a while.
    pub fn resume(&mut self, now: Now) {
        self.waits_since = self.waits_since.map(|_| now.monotonic);
    }

    /// Processes received bytes. The caller must have processed the events of the previous call.
    pub fn received(&mut self, bytes: &[u8], now: Now, events: &mut Vec<Event>) {
        for sid in self.inner.cleared.drain(..) {
            self.inner.channels.remove(sid.0 as usize);
        }
        std::mem::swap(&mut self.inner.events, events);
        let held_bytes_max = self.framer.held_bytes().saturating_add(self.inner.arriving_bytes_max);
        self.inner.value_bytes_left = self.inner.arriving_bytes_max;
        let mut input = bytes;
        while !self.inner.is_closed {
            match self.framer.next(&mut input) {
                Ok(Some(Frame::Message(header, payload))) => {
                    self.waits_since = None;
                    self.inner.message(&header, payload);
                }
                // No control message of a client has a meaning, and nothing is passed on.
                Ok(Some(Frame::Control(..) | Frame::Piece(_))) => {}
                Ok(None) => break,
                Err(error) => self.inner.close(CloseReason::Malformed(reason(error))),
            }
        }
        self.check_incomplete(held_bytes_max);
        self.note_progress(now);
        std::mem::swap(&mut self.inner.events, events);
    }

    /// Drops the value of an incomplete message if the client may not write the channel, or if there is no memory for it.
    /// Its operation receives an error.
    fn check_incomplete(&mut self, held_bytes_max: usize) {
        let Some(incomplete) = self.framer.incomplete() else { return };
        let Header { command, order, .. } = incomplete.header;
        let mut reader = ByteReader::new(incomplete.arrived, order);
        let request = Request::decode(command, &mut reader);
        if !has_value(&request) {
            if incomplete.declared_bytes > limit::REQUEST_BYTES {
                self.inner.close(TOO_LARGE);
            }
            return;
        }
        let is_too_large = incomplete.declared_bytes.max(self.framer.held_bytes()) > held_bytes_max;
        let is_denied = self.inner.is_denied(&request);
        // The fields at the start of the message may not have arrived yet.
        if (is_too_large || is_denied) && !reader.has_failed() {
            self.inner.drain(&request, is_denied);
            self.framer.skip();
        }
    }

    fn note_progress(&mut self, now: Now) {
        let n_arrived = self.framer.n_arrived();
        let is_next_message = n_arrived < self.n_arrived;
        if !self.framer.is_within_message() {
            (self.waits_since, self.n_arrived) = (None, 0);
        } else if self.waits_since.is_none()
            || is_next_message
            || n_arrived - self.n_arrived >= limit::MESSAGE_PROGRESS_BYTES
        {
            // The timeout starts at the first byte, so that a client cannot trickle a message.
            (self.waits_since, self.n_arrived) = (Some(now.monotonic), n_arrived);
        }
    }

    /// Performs actions that are due at `now`: closes the circuit if an incomplete message has timed out.
    pub fn tick(&mut self, now: Now, events: &mut Vec<Event>) {
        if self.deadline().is_some_and(|at| at <= now.monotonic) {
            std::mem::swap(&mut self.inner.events, events);
            self.inner.close(CloseReason::Misbehaved("incomplete message timed out"));
            std::mem::swap(&mut self.inner.events, events);
        }
    }

    /// The latest time to call [`Circuit::tick`].
    pub fn deadline(&self) -> Option<Instant> {
        self.waits_since.map(|since| since + limit::MESSAGE_TIMEOUT).filter(|_| !self.inner.is_closed)
    }

    /// The next bytes to write; empty if nothing is queued. Encodes at most one piece of a large array.
    pub fn ready(&mut self) -> &[u8] {
        self.inner.outbox.ready()
    }

    /// Reports that the first `n` ready bytes were written.
    pub fn sent(&mut self, n: usize) {
        self.inner.outbox.sent(n);
    }

    /// The number of bytes waiting to be sent.
    #[inline]
    pub fn pending_bytes(&self) -> usize {
        self.inner.outbox.pending_bytes()
    }
}

/// Appends the messages sent to a client whose circuit is rejected: the result of its authentication, which the client
/// need not have sent.
pub fn refusal(text: &str, out: &mut Vec<u8>) {
    greet(TunnelState::Plain, out);
    let status = RequestStatus { level: StatusLevel::Fatal, ..RequestStatus::error(text) };
    Answer::ConnectionValidated { status }.encode(ORDER, out, |_| {});
}

/// Appends the first messages of a server.
fn greet(tls: TunnelState, out: &mut Vec<u8>) {
    out.extend_from_slice(&Control::SetByteOrder(0).header(Sender::Server, ORDER).encode());
    let mut names = vec![validation::ANONYMOUS.into(), validation::CA.into()];
    if tls == (TunnelState::Encrypted { has_certificate: true }) {
        names.push(validation::X509.into());
    }
    let methods = Answer::ConnectionValidation {
        buffer_bytes: limit::ANNOUNCED_BUFFER_BYTES,
        registry_size: limit::ANNOUNCED_TYPE_IDS,
        methods: names,
    };
    methods.encode(ORDER, out, |_| {});
}

/// Whether the body of a request is a value, and may therefore be large. When an operation starts it is a pvRequest.
fn has_value(request: &Request) -> bool {
    match request {
        Request::Put { sub, .. } | Request::PutGet { sub, .. } | Request::Rpc { sub, .. } => {
            !sub.contains(Subcommand::INIT)
        }
        _ => false,
    }
}

const TOO_LARGE: CloseReason = CloseReason::Misbehaved("the message is too large for its command");

fn reason(error: FrameError) -> &'static str {
    match error {
        FrameError::NotPvAccess(_) => "the frame does not start with 0xca",
        FrameError::Obsolete => "the client has protocol version 0",
        FrameError::WrongDirection => "the message has the direction of the server",
        FrameError::Segment => "a segment is out of place",
        FrameError::TooLarge { .. } => "the message is larger than this server accepts",
        FrameError::CutShort => "the message is incomplete",
    }
}

impl ServerState {
    #[inline]
    fn message(&mut self, header: &Header, payload: &[u8]) {
        // The most frequent request.
        if let (message::GET, &[s0, s1, s2, s3, i0, i1, i2, i3, 0]) = (header.command, payload) {
            let [sid, ioid] = [[s0, s1, s2, s3], [i0, i1, i2, i3]].map(|number| header.order.u32_from(number));
            return self.execute_get(Sid(sid), Ioid(ioid));
        }
        self.any_message(header, payload);
    }

    fn any_message(&mut self, header: &Header, payload: &[u8]) {
        let mut reader = ByteReader::new(payload, header.order);
        let request = Request::decode(header.command, &mut reader);
        if payload.len() > limit::REQUEST_BYTES && !has_value(&request) {
            return self.close(TOO_LARGE);
        }
        if reader.has_failed() {
            return self.close(CloseReason::Malformed("the message ends within its fields"));
        }
        let reader = &mut reader;
        match request {
            Request::Get { sid, ioid, sub } => self.request(Method::Get, sid, ioid, sub, reader),
            Request::Put { sid, ioid, sub } => self.request(Method::Put, sid, ioid, sub, reader),
            Request::PutGet { sid, ioid, sub } => self.request(Method::PutGet, sid, ioid, sub, reader),
            Request::Monitor { sid, ioid, sub } => self.request(Method::Monitor, sid, ioid, sub, reader),
            Request::Array { sid, ioid, sub } => self.request(Method::Array, sid, ioid, sub, reader),
            Request::Process { sid, ioid, sub } => self.request(Method::Process, sid, ioid, sub, reader),
            Request::Rpc { sid, ioid, sub } => self.request(Method::Rpc, sid, ioid, sub, reader),
            Request::CancelRequest { sid, ioid } => self.cancel(sid, ioid),
            Request::DestroyRequest { sid, ioid } => self.destroy(sid, ioid),
            Request::CreateChannel { channels } => self.create(channels),
            Request::DestroyChannel { sid, cid } => self.clear(sid, cid),
            Request::GetField { sid, ioid, sub_field } => self.describe(sid, ioid, &sub_field),
            Request::Search {} => self.search(reader),
            Request::Echo {} => {
                let body = reader.rest();
                self.outbox.push(|bytes| Answer::Echo {}.encode(ORDER, bytes, |to| to.bytes(body)));
            }
            Request::ConnectionValidation { registry_size, method, .. } => {
                self.validate(registry_size, &method, reader);
            }
            // No method of authentication has further steps, and a forwarded search is a datagram.
            Request::Authentication {} | Request::OriginTag {} | Request::Unknown(_) => {}
        }
    }

    fn close(&mut self, reason: CloseReason) {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.events.push(Event::Closed(reason));
        }
    }

    fn held_bytes(&self) -> usize {
        self.channels.len() * limit::CHANNEL_BYTES
            + self.operations.len() * limit::OPERATION_BYTES
            + self.operations.request_bytes()
            + self.types.held_bytes()
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.held_bytes() + bytes <= self.held_bytes_max
    }

    fn exceed(&mut self) {
        self.close(CloseReason::Exceeded("too many channels and operations for the client or its host"));
    }

    #[inline]
    fn channel(&self, sid: Sid) -> Option<&ChannelType> {
        let channel = self.channels.get(sid.0 as usize).filter(|channel| !channel.is_cleared);
        channel.map(|channel| &channel.kind)
    }

    /// Sends a status in reply to a request of an operation.
    fn send_status(&mut self, method: Method, ioid: Ioid, sub: Subcommand, status: RequestStatus) {
        self.outbox.push(|bytes| match method {
            Method::Monitor => Answer::Monitor { ioid, sub }.encode(ORDER, bytes, |to| status.encode(to)),
            method => method.answer(ioid, sub, status).encode(ORDER, bytes, |_| {}),
        });
    }

    /// Interrupts the execution of an operation, which remains. Like pvxs, sends no reply, even without an operation.
    fn cancel(&mut self, sid: Sid, ioid: Ioid) {
        if let Some(index) = self.owned(sid, ioid)
            && let Some(request) = self.operations.interrupt(index)
        {
            self.events.push(Event::Cancel { sid, request });
        }
    }

    /// Ends an operation. Like pvxs, sends no reply, even without an operation.
    fn destroy(&mut self, sid: Sid, ioid: Ioid) {
        if let Some(index) = self.owned(sid, ioid)
            && let Some(request) = self.operations.remove(index)
        {
            self.events.push(Event::Cancel { sid, request });
        }
    }

    /// The position of an operation of this channel.
    #[inline]
    fn owned(&self, sid: Sid, ioid: Ioid) -> Option<u32> {
        let index = self.operations.find(ioid)?;
        self.operations.at(index).is_some_and(|operation| operation.sid == sid).then_some(index)
    }
}

const NO_SUCH_CHANNEL: &str = "the channel does not exist";
const NO_SUCH_OPERATION: &str = "the channel has no such operation";

/// Appends the nodes `bits` of a value, which must have the channel's type.
fn encode_contents(kind: &ChannelType, contents: Contents, bits: &BitSet, to: &mut ByteWriter) {
    match (kind, contents) {
        (ChannelType::Flat(layout), Contents::Reading(reading)) => value::encode_reading(layout, bits, reading, to),
        (_, Contents::Structure(structure)) => value::encode_bits(structure, bits, to),
        (ChannelType::Structured(_), Contents::Reading(_)) => {}
    }
}

impl ChannelType {
    /// Whether a value has this type.
    #[inline]
    fn accepts(&self, contents: Contents) -> bool {
        match (self, contents) {
            (ChannelType::Flat(_), Contents::Reading(_)) => true,
            (ChannelType::Structured(_), Contents::Reading(_)) => false,
            (kind, Contents::Structure(structure)) => {
                std::sync::Arc::ptr_eq(kind.kind(), structure.kind()) || kind.kind() == structure.kind()
            }
        }
    }
}
