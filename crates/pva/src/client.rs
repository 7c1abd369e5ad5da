//! The client end of a circuit: its handshake, its channels, and operations that are opened once and used often.
//!
//! The caller opens an operation of a channel with a pvRequest ([`Circuit::open`]), and keeps it: each use of an open
//! operation costs one round trip ([`Circuit::get`], [`Circuit::put`], [`Circuit::process`], [`Circuit::rpc`]). The first
//! use need not wait until the operation is open.
//!
//! An operation executes one request at a time, because servers close the circuit of a client that sends another one
//! before the reply. The machine therefore queues requests, and each ends with exactly one [`Event::Done`], in the order
//! of the calls. Gets that wait together share one request and its reply, so that any number of gets that are started at
//! once end after two round trips; those that process a record each time do not share. The requests of an operation end without events of their own when the operation
//! ends: with [`Event::OpenFailed`], [`Event::Ended`], [`Event::ChannelGone`] or [`Event::Closed`], and when the caller
//! ends it.
//!
//! ```
//! use std::time::Duration;
//!
//! use fodo_data::{Kind, Now, Reading, normative_type};
//! use fodo_pva::client::{Circuit, Config, Decoding, Event, PreparedRequest, Received, Task, operation_index};
//! use fodo_pva::cursor::ByteOrder::Little;
//! use fodo_pva::message::{Answer, Subcommand};
//! use fodo_pva::request::PvRequest;
//! use fodo_pva::status::RequestStatus;
//! use fodo_pva::{Cid, Sid, types};
//!
//! let now = Now::for_test();
//! let config = Config {
//!     priority: 0,
//!     user: "operator".into(),
//!     host: "desk".into(),
//!     echo_after: Duration::from_secs(15),
//!     payload_bytes_max: 1 << 24,
//! };
//! let mut circuit = Circuit::new(&config, now);
//! circuit.create(Cid(1), "pump:speed", now);
//!
//! // What a server sends: its greeting, and the replies to the identity of the client and to the request.
//! let (mut bytes, mut events) = (Vec::new(), Vec::new());
//! let (buffer_bytes, registry_size, methods) = (65536, 100, vec!["ca".into()]);
//! Answer::ConnectionValidation { buffer_bytes, registry_size, methods }.encode(Little, &mut bytes, |_| {});
//! let status = RequestStatus::OK;
//! Answer::ConnectionValidated { status: status.clone() }.encode(Little, &mut bytes, |_| {});
//! Answer::CreateChannel { cid: Cid(1), sid: Sid(5), status: status.clone() }.encode(Little, &mut bytes, |_| {});
//! circuit.received(&bytes, now, &mut events);
//! assert_eq!(events, [Event::Created { cid: Cid(1), sid: Sid(5) }]);
//!
//! let request = PreparedRequest::new(&PvRequest::parse("value,alarm,timeStamp")?);
//! let ioid = circuit.open(Sid(5), Task::Get, Decoding::Flat, &request)?;
//! assert_eq!(operation_index(ioid), 0);
//! circuit.get(ioid)?;
//!
//! // The replies to both.
//! bytes.clear();
//! let init = Answer::Get { ioid, sub: Subcommand::INIT, status: status.clone() };
//! init.encode(Little, &mut bytes, |to| types::encode(&normative_type(Kind::F64, false), to));
//! Answer::Get { ioid, sub: Subcommand::EXECUTE, status }.encode(Little, &mut bytes, |to| {
//!     to.bit_set(&[1].into_iter().collect());
//!     to.f64(1.5);
//! });
//! circuit.received(&bytes, now, &mut events);
//! let result = Ok(Received::Reading(Reading::bare(1.5.into())));
//! assert_eq!(events.pop(), Some(Event::Done { ioid, result }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod event;
mod layout;
mod operation;
mod operation_table;
mod outbox;
mod partial_message;
mod prepared_request;
mod reply;

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use fodo_data::{Now, Structure, Text};
use fodo_engine::search::Transport;

pub use self::event::{
    AccessRights, Decoding, DisconnectReason, Event, Listener, PutContent, Received, RequestError, Task,
};
pub use self::operation_table::operation_index;
pub use self::prepared_request::PreparedRequest;

use self::layout::Layouts;
use self::operation::{Execution, OpenOperation, OperationStage};
use self::operation_table::OperationTable;
use self::outbox::Outbox;
use self::partial_message::PartialMessage;
use self::reply::Dispatcher;
use crate::frame::{Control, Frame, Framer, Sender};
use crate::message::{NewChannel, Request};
use crate::search::{self, SearchFlags, SearchRequest, SearchedChannel};
use crate::types::TypeCache;
use crate::{Cid, Ioid, Sid, limit};

/// What a client sends to the server about itself, and how it monitors the circuit.
#[derive(Clone, Debug)]
pub struct Config {
    /// Priority, 0 to 99.
    pub priority: u8,
    /// Login name, sent with the method `ca`.
    pub user: String,
    /// Host name, sent with the method `ca`. Phoebus resolves it and never confirms the circuit if that fails.
    pub host: String,
    /// Time between two echo requests. Servers close the circuit of a client that sends nothing for 4/3 of
    /// EPICS_PVA_CONN_TMO, 40 s by default; pvxs sends an echo request after 3/8 of this time, 15 s.
    pub echo_after: Duration,
    /// Largest accepted payload, in bytes.
    pub payload_bytes_max: usize,
}

/// Whether the server sends data; the comment says what is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Liveness {
    /// The time of the next echo request. Received bytes do not postpone it: servers also expect bytes from clients that
    /// only receive updates.
    Active(Instant),
    /// Any byte, until this time.
    Probed(Instant),
    /// Any byte, for as long as TCP keeps the connection.
    Silent,
}

/// The state of the handshake; the comment of each says what the circuit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    /// For CONNECTION_VALIDATION: the server sends first.
    Greeting,
    /// For CONNECTION_VALIDATED.
    Validation,
    /// For nothing: requests are sent at once.
    Complete,
}

/// A request that waits for the end of the handshake.
#[derive(Debug)]
enum EarlyRequest {
    Create(Cid, Text),
    Search(Vec<(Cid, Text)>),
}

/// The client end of a circuit.
#[derive(Debug)]
pub struct Circuit {
    framer: Framer,
    partial: PartialMessage,
    inner: ClientState,
    liveness: Liveness,
    /// The latest time for a sign of life while channels wait for their confirmation.
    create_until: Option<Instant>,
    echo_after: Duration,
}

/// Everything but the framer, whose messages it handles.
#[derive(Debug)]
struct ClientState {
    operations: OperationTable,
    outbox: Outbox,
    types: TypeCache,
    layouts: Layouts,
    /// Number of CREATE_CHANNEL requests without a reply.
    n_creating: usize,
    handshake: Handshake,
    is_closed: bool,
    /// The circuit uses TLS, and this client has presented a certificate.
    has_certificate: bool,
    /// The transports by which the client can use the servers that a name server names.
    transports: &'static [Transport],
    early_requests: Vec<EarlyRequest>,
    identity: Config,
}

impl Circuit {
    /// Creates a circuit. It sends nothing until the server has sent its greeting; requests made before are queued.
    pub fn new(config: &Config, now: Now) -> Circuit {
        let inner = ClientState {
            operations: OperationTable::default(),
            outbox: Outbox::new(),
            types: TypeCache::new(),
            layouts: Layouts::new(),
            n_creating: 0,
            handshake: Handshake::Greeting,
            is_closed: false,
            has_certificate: false,
            transports: &[Transport::Tcp],
            early_requests: Vec::new(),
            identity: config.clone(),
        };
        Circuit {
            framer: Framer::new(Sender::Server, config.payload_bytes_max),
            partial: PartialMessage::Unexamined,
            inner,
            liveness: Liveness::Active(now.monotonic + config.echo_after),
            create_until: None,
            echo_after: config.echo_after,
        }
    }

    /// The circuit uses TLS, and this client has presented a certificate: it identifies itself with the method `x509` if the
    /// server offers it. Call it before the first [`Circuit::received`].
    pub fn use_certificate(&mut self) {
        self.inner.has_certificate = true;
    }

    /// Sets the transports that the client can use, in the order of preference; plain TCP by default. They are named in
    /// searches, and responses for others are ignored.
    pub fn set_transports(&mut self, transports: &'static [Transport]) {
        self.inner.transports = transports;
    }

    /// Searches for names over TCP, at a name server.
    pub fn search(&mut self, channels: &[SearchedChannel]) {
        let channels = channels.iter().map(|channel| (channel.cid, Text::from_bytes(channel.name))).collect();
        self.inner.request(EarlyRequest::Search(channels));
    }

    /// Requests a channel.
    pub fn create(&mut self, cid: Cid, name: &str, now: Now) {
        self.inner.n_creating += 1;
        self.create_until.get_or_insert(now.monotonic + limit::CREATE_TIMEOUT);
        self.inner.request(EarlyRequest::Create(cid, name.into()));
    }

    /// Ends a channel and its operations.
    pub fn clear(&mut self, cid: Cid, sid: Sid) {
        // pvxs closes the circuit of a client that uses a channel which has ended.
        if let Some(sid) = self.inner.operations.remove_channel(cid, sid) {
            self.inner.outbox.push(&Request::DestroyChannel { sid, cid }, |_, _| {});
        }
    }

    /// Requests the type of a channel, or of the field at a path; ends with [`Event::Described`]. pvxs ignores the path.
    pub fn describe(&mut self, sid: Sid, path: &str) -> Result<Ioid, RequestError> {
        let ClientState { operations, outbox, .. } = &mut self.inner;
        let operation = operations.insert(sid, |ioid, sid| {
            OpenOperation::new(ioid, sid, Task::Get, Decoding::Structured, OperationStage::Describing)
        })?;
        let OpenOperation { ioid, sid, .. } = *operation;
        outbox.push(&Request::GetField { sid, ioid, sub_field: path.into() }, |_, _| {});
        Ok(ioid)
    }

    /// Opens an operation; ends with [`Event::Opened`] or [`Event::OpenFailed`]. The number is not used again before the
    /// operation has ended, and rarely afterwards; its [`operation_index`] is dense.
    pub fn open(
        &mut self,
        sid: Sid,
        task: Task,
        decoding: Decoding,
        request: &PreparedRequest,
    ) -> Result<Ioid, RequestError> {
        let ClientState { operations, outbox, .. } = &mut self.inner;
        let operation = operations
            .insert(sid, |ioid, sid| OpenOperation::new(ioid, sid, task, decoding, OperationStage::Opening))?;
        operation.initialise(request, outbox);
        Ok(operation.ioid)
    }

    /// Reads; ends with [`Event::Done`]. For [`Task::Get`], [`Task::Put`] and [`Task::PutGet`]; the latter two return the
    /// present value of what they write and read.
    #[inline]
    pub fn get(&mut self, ioid: Ioid) -> Result<(), RequestError> {
        let (operation, outbox) = self.inner.operation(ioid)?;
        match operation.task {
            Task::Get | Task::Put | Task::PutGet => operation.accept_get(outbox),
            Task::Rpc | Task::Process | Task::Monitor => Err(RequestError::OtherTask),
        }
    }

    /// Writes; ends with [`Event::Done`]. For [`Task::Put`] and [`Task::PutGet`]; the latter returns what it has read
    /// afterwards. Fails at once if the type is known and the value cannot be converted to it.
    pub fn put(&mut self, ioid: Ioid, value: impl Into<PutContent>) -> Result<(), RequestError> {
        let is_it = |task| matches!(task, Task::Put | Task::PutGet);
        self.inner.accept(ioid, is_it, Execution::Put(value.into()))
    }

    /// Processes a record; ends with [`Event::Done`]. For [`Task::Process`].
    pub fn process(&mut self, ioid: Ioid) -> Result<(), RequestError> {
        self.inner.accept(ioid, |task| task == Task::Process, Execution::Process)
    }

    /// Calls a procedure; ends with [`Event::Done`]. For [`Task::Rpc`].
    pub fn rpc(&mut self, ioid: Ioid, argument: Structure) -> Result<(), RequestError> {
        self.inner.accept(ioid, |task| task == Task::Rpc, Execution::Rpc(Box::new(argument)))
    }

    /// Starts the updates of a monitor, now or as soon as it is open. The first one contains everything; after a
    /// [`Circuit::stop`], QSRV2 continues with what has changed. With flow control, the server sends as many updates as
    /// the [window](PreparedRequest::window) allows.
    pub fn start(&mut self, ioid: Ioid) -> Result<(), RequestError> {
        let (operation, outbox) = self.inner.operation(ioid)?;
        operation.start(outbox)
    }

    /// Stops the updates of a monitor; those in transit still arrive.
    pub fn stop(&mut self, ioid: Ioid) -> Result<(), RequestError> {
        let (operation, outbox) = self.inner.operation(ioid)?;
        operation.stop(outbox)
    }

    /// Permits the server to send more updates of a monitor with flow control; does nothing for other monitors.
    ///
    /// QSRV1 has at most 2 unacknowledged updates, whatever the window is: acknowledge not only when half of the window
    /// was received, but also whenever no update waits on this side.
    pub fn acknowledge(&mut self, ioid: Ioid, n_updates: u32) -> Result<(), RequestError> {
        let (operation, outbox) = self.inner.operation(ioid)?;
        operation.acknowledge(n_updates, outbox)
    }

    /// Ends an operation, and interrupts what it executes. No event of it follows. An operation whose reply is no longer
    /// of interest can also be kept.
    pub fn destroy(&mut self, ioid: Ioid) {
        let ClientState { operations, outbox, .. } = &mut self.inner;
        let Some(operation) = operations.remove(ioid) else { return };
        let sid = operation.sid;
        if operation.is_interruptible() {
            // pvAccessCPP does not interrupt an operation that is destroyed.
            outbox.push(&Request::CancelRequest { sid, ioid }, |_, _| {});
        }
        if operation.stage != OperationStage::Describing {
            outbox.push(&Request::DestroyRequest { sid, ioid }, |_, _| {});
        }
    }

    /// Processes received bytes and reports the events in them.
    pub fn received(&mut self, bytes: &[u8], now: Now, listener: &mut impl Listener) {
        if self.inner.is_closed {
            return;
        }
        match self.liveness {
            Liveness::Active(_) => {}
            Liveness::Probed(_) => self.liveness = Liveness::Active(now.monotonic + self.echo_after),
            Liveness::Silent => {
                self.liveness = Liveness::Active(now.monotonic + self.echo_after);
                listener.event(Event::Responsive);
            }
        }
        let mut input = bytes;
        let mut dispatcher = Dispatcher { inner: &mut self.inner, listener };
        while !dispatcher.inner.is_closed {
            match self.framer.next(&mut input) {
                Ok(Some(Frame::Message(header, payload))) if matches!(self.partial, PartialMessage::Unexamined) => {
                    dispatcher.message(&header, payload);
                }
                Ok(Some(Frame::Message(header, payload))) => {
                    dispatcher.large_message(&header, payload, self.partial.take_array());
                }
                Ok(Some(Frame::Piece(bytes))) => self.partial.append(bytes),
                Ok(Some(Frame::Control(Control::SetByteOrder(_), order))) => dispatcher.inner.outbox.order = order,
                Ok(Some(Frame::Control(..))) => {}
                Ok(None) => break,
                Err(error) => dispatcher.close(DisconnectReason::Unframed(error)),
            }
        }
        if self.framer.is_within_message() && !self.inner.is_closed {
            self.seek_array(listener);
        }
        self.create_until = (self.inner.n_creating > 0).then(|| now.monotonic + limit::CREATE_TIMEOUT);
    }

    /// Performs actions that are due at `now`.
    pub fn tick(&mut self, now: Now, events: &mut Vec<Event>) {
        if self.inner.is_closed {
            return;
        }
        match self.liveness {
            Liveness::Active(until) if now.monotonic >= until && self.inner.handshake == Handshake::Complete => {
                // Without a payload, which servers of version 1 do not return.
                self.inner.outbox.push(&Request::Echo {}, |_, _| {});
                self.liveness = Liveness::Probed(now.monotonic + limit::ECHO_TIMEOUT);
            }
            Liveness::Active(until) | Liveness::Probed(until) if now.monotonic >= until => {
                self.liveness = Liveness::Silent;
                events.push(Event::Unresponsive);
            }
            _ => {}
        }
        if self.create_until.is_some_and(|until| now.monotonic >= until) {
            self.create_until = None;
            events.push(Event::CreateUnanswered);
        }
    }

    /// The latest time to call [`Circuit::tick`].
    pub fn deadline(&self) -> Option<Instant> {
        let liveness = match self.liveness {
            _ if self.inner.is_closed => return None,
            Liveness::Active(until) | Liveness::Probed(until) => Some(until),
            Liveness::Silent => None,
        };
        match (liveness, self.create_until) {
            (Some(liveness), Some(create)) => Some(liveness.min(create)),
            (liveness, create) => liveness.or(create),
        }
    }

    /// Whether the server has accepted this client: requests are sent at once, and no longer queued.
    pub fn is_accepted(&self) -> bool {
        self.inner.handshake == Handshake::Complete
    }

    /// Whether nothing is left over: no channel, no operation, no request that waits, no partly received message, nothing
    /// to send. True after everything was cleared and every reply has arrived. Types that the server may refer to by
    /// their ids are kept until the circuit ends.
    pub fn holds_nothing(&self) -> bool {
        let ClientState { operations, outbox, n_creating, early_requests, .. } = &self.inner;
        let is_waiting = *n_creating > 0 || !early_requests.is_empty() || self.framer.is_within_message();
        !is_waiting && operations.is_empty() && outbox.pending_bytes() == 0
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
    pub fn pending_bytes(&self) -> usize {
        self.inner.outbox.pending_bytes()
    }
}

impl ClientState {
    /// An operation, and where its requests are queued.
    #[inline]
    fn operation(&mut self, ioid: Ioid) -> Result<(&mut OpenOperation, &mut Outbox), RequestError> {
        let operation = self.operations.get_mut(ioid).filter(|operation| operation.stage != OperationStage::Describing);
        Ok((operation.ok_or(RequestError::NoSuchOperation)?, &mut self.outbox))
    }

    fn accept(
        &mut self,
        ioid: Ioid,
        is_it: impl FnOnce(Task) -> bool,
        execution: Execution,
    ) -> Result<(), RequestError> {
        let (operation, outbox) = self.operation(ioid)?;
        if !is_it(operation.task) {
            return Err(RequestError::OtherTask);
        }
        operation.accept(execution, outbox)
    }

    /// Sends a request, or queues it until the end of the handshake: before, the byte order is not known.
    fn request(&mut self, request: EarlyRequest) {
        match self.handshake {
            Handshake::Complete => self.send(request),
            Handshake::Greeting | Handshake::Validation => self.early_requests.push(request),
        }
    }

    fn send(&mut self, request: EarlyRequest) {
        match request {
            // pvAccessCPP closes the circuit of a client that requests several channels with one message.
            EarlyRequest::Create(cid, name) => {
                self.outbox.push(&Request::CreateChannel { channels: vec![NewChannel { cid, name }] }, |_, _| {});
            }
            EarlyRequest::Search(names) => {
                let channels = names.iter().map(|(cid, name)| SearchedChannel { cid: *cid, name: name.as_bytes() });
                let search = SearchRequest {
                    sequence: 0,
                    flags: SearchFlags::default(),
                    address: Ipv6Addr::UNSPECIFIED,
                    port: 0,
                    protocols: search::transport_names(self.transports),
                    channels: channels.collect(),
                };
                self.outbox.push(&Request::Search {}, |to, _| search.encode(to));
            }
        }
    }
}
