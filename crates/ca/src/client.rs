//! The client end of a circuit.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fodo_data::{Array, ConvertError, EventMask, Kind, Now, Reading, Value};
use fodo_engine::outbox::Outbox;
use fodo_engine::{Cid, Ioid, Rights, Sid, SubscriptionId};

use crate::dbr::{self, AttributeLevel, DbrType, MalformedPayload};
use crate::eca::Eca;
use crate::frame::{Framer, MessageHandler, Plan};
use crate::limit;
use crate::message::{self, Answer, Header, MINOR_VERSION, Request};
use crate::search::explicit_ip;
use crate::value_message::{DbrArray, push_value};

/// What a client sends to the server about itself, and how it monitors the circuit.
#[derive(Clone, Debug)]
pub struct Config {
    /// Priority, 0 to 99.
    pub priority: u8,
    /// Login name, sent as CLIENT_NAME.
    pub user: String,
    /// Host name, sent as HOST_NAME.
    pub host: String,
    /// Silence after which the client sends an echo request (EPICS_CA_CONN_TMO).
    pub echo_after: Duration,
    /// Largest accepted payload, in bytes.
    pub payload_bytes_max: usize,
}

/// An event on a circuit.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants and the types of their fields document it")]
pub enum Event {
    /// The server confirmed a channel.
    Created { cid: Cid, sid: Sid, native: DbrType, count: u32 },
    /// The server does not have the channel, or no longer.
    CreateFailed { cid: Cid },
    /// The access rights to the channel; reported before `Created` and on every change.
    Rights { cid: Cid, rights: Rights },
    /// A get ended: a reading of the requested type, or the status that explains the failure.
    ReadDone { ioid: Ioid, dbr: DbrType, result: Result<Reading, Eca> },
    /// A put with completion ended.
    WriteDone { ioid: Ioid, result: Result<(), Eca> },
    /// An update of a subscription in the requested type, or the status that explains why there is no value.
    Update { subscription: SubscriptionId, dbr: DbrType, result: Result<Reading, Eca> },
    /// The server removed a channel (SERVER_DISCONN).
    ChannelGone { cid: Cid },
    /// The server rejected a request (ERROR); `text` is the server's explanation, which may be empty.
    Complaint { about: RejectedRequest, status: Eca, text: String },
    /// The server knows where a name is served: at `server`, or `None` for itself.
    Claimed { cid: Cid, server: Option<SocketAddr> },
    /// The server has sent nothing for [`limit::CREATE_TIMEOUT`] although a channel waits for its confirmation.
    CreateUnanswered,
    /// The server did not reply to the echo in time: the circuit counts as unresponsive but stays open.
    Unresponsive,
    /// The server sends again after [`Event::Unresponsive`].
    Responsive,
    /// The circuit is no longer usable; no further events follow.
    Closed(DisconnectReason),
}

/// Which request a server rejected with ERROR, as far as its message identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectedRequest {
    /// A get or a put with completion, which ends with the message.
    Operation(Ioid),
    /// A subscription, which delivers no update for now.
    Subscription(SubscriptionId),
    /// A put without completion to this channel.
    Put(Cid),
    /// Another request for this channel.
    Channel(Cid),
    /// The message names no channel.
    Circuit,
}

/// Receives the events of a circuit.
pub trait Listener {
    /// Called in the order of the messages. Replies and updates are the most frequent events; handle them immediately.
    fn event(&mut self, event: Event);

    /// Whether updates of this subscription are wanted. Others, such as updates in transit when it ended, are neither
    /// decoded nor reported.
    fn wants(&self, subscription: SubscriptionId) -> bool;

    /// An array whose memory a large array of this kind and size may reuse, in the reply to a request or, `None`, in an update.
    /// It is reused if nothing else refers to it.
    fn room(&mut self, _: Option<Ioid>, _: Kind, _n_elements: usize) -> Option<Array> {
        None
    }

    /// A large array has arrived, before the event that contains it. [`Listener::room`] may offer its memory later.
    fn large_array(&mut self, _: &Array) {}
}

/// Stores all events.
impl Listener for Vec<Event> {
    #[inline(always)]
    fn event(&mut self, event: Event) {
        self.push(event);
    }

    fn wants(&self, _: SubscriptionId) -> bool {
        true
    }
}

/// Why a circuit was closed from this side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisconnectReason {
    /// The bytes from the server cannot be parsed any further.
    Malformed(&'static str),
}

/// Whether the server sends data; the comment says what is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Liveness {
    /// Any byte, until this time; then an echo request is sent.
    Active(Instant),
    /// The reply to the echo request, until this time.
    Probed(Instant),
    /// Any byte, for as long as TCP keeps the connection.
    Silent,
}

/// The client end of a circuit.
#[derive(Debug)]
pub struct Circuit {
    framer: Framer,
    inner: ClientState,
    liveness: Liveness,
    /// The latest time for a sign of life while channels wait for their confirmation.
    create_until: Option<Instant>,
    echo_after: Duration,
}

/// Everything but the framer, so that the framer can call it.
#[derive(Debug)]
struct ClientState {
    outbox: Outbox<DbrArray>,
    server_minor: u32,
    /// The element count of each channel, for servers that do not support a count of 0.
    counts: HashMap<Sid, u32>,
    /// Number of CREATE_CHAN requests without a reply.
    n_creating: usize,
    payload_bytes_max: usize,
    is_closed: bool,
}

/// The first minor version that supports a count of 0, "as many elements as available".
const MINOR_COUNT_ZERO: u32 = 13;

impl Circuit {
    /// Creates a circuit with VERSION, CLIENT_NAME and HOST_NAME ready to be sent.
    pub fn new(config: &Config, now: Now) -> Circuit {
        let mut outbox = Outbox::default();
        outbox.push(|bytes| {
            let version =
                Request::Version { priority: u16::from(config.priority), minor: u32::from(MINOR_VERSION), sequence: 0 };
            version.encode(bytes);
            message::encode_text(bytes, |size| Request::ClientName {}.header(size), config.user.as_bytes());
            message::encode_text(bytes, |size| Request::HostName {}.header(size), config.host.as_bytes());
        });
        let inner = ClientState {
            outbox,
            server_minor: 0,
            counts: HashMap::new(),
            n_creating: 0,
            payload_bytes_max: config.payload_bytes_max,
            is_closed: false,
        };
        let liveness = Liveness::Active(now.monotonic + config.echo_after);
        Circuit { framer: Framer::default(), inner, liveness, create_until: None, echo_after: config.echo_after }
    }

    /// Searches for names over TCP, at a name server; `searches` are those of a datagram
    /// ([`crate::search::Datagram::searches`]).
    pub fn search(&mut self, searches: &[u8]) {
        self.inner.outbox.push(|bytes| bytes.extend_from_slice(searches));
    }

    /// Requests a channel.
    pub fn create(&mut self, cid: Cid, name: &str, now: Now) {
        self.inner.n_creating += 1;
        self.create_until.get_or_insert(now.monotonic + limit::CREATE_TIMEOUT);
        let request = Request::CreateChan { cid, minor: u32::from(MINOR_VERSION) };
        self.inner.outbox.push(|bytes| message::encode_text(bytes, |size| request.header(size), name.as_bytes()));
    }

    /// Clears a channel; the server ends its subscriptions with it.
    pub fn clear(&mut self, cid: Cid, sid: Sid) {
        if !self.inner.counts.is_empty() {
            self.inner.counts.remove(&sid);
        }
        self.inner.outbox.push(|bytes| Request::ClearChannel { sid, cid }.encode(bytes));
    }

    /// Requests the value (READ_NOTIFY). `count` 0: as many elements as available.
    #[inline]
    pub fn read(&mut self, sid: Sid, dbr: DbrType, count: u32, ioid: Ioid) {
        let count = self.inner.count(sid, count);
        self.inner.outbox.push(|bytes| Request::ReadNotify { dbr, count, sid, ioid }.encode(bytes));
    }

    /// Writes a value: with completion if `ioid` is given (WRITE_NOTIFY), otherwise without a reply.
    pub fn write(&mut self, sid: Sid, dbr: DbrType, value: &Value, ioid: Option<Ioid>) -> Result<(), ConvertError> {
        let reading = Reading::bare(value.clone());
        let header = |bytes, count| match ioid {
            Some(ioid) => Request::WriteNotify { dbr, count, sid, ioid }.header(bytes),
            None => Request::Write { dbr, count, sid, ioid: Ioid(0) }.header(bytes),
        };
        push_value(&mut self.inner.outbox, dbr, 0, &reading, header)
    }

    /// Starts a subscription.
    pub fn subscribe(&mut self, sid: Sid, dbr: DbrType, count: u32, mask: EventMask, subscription: SubscriptionId) {
        let count = self.inner.count(sid, count);
        self.inner.outbox.push(|bytes| {
            Request::EventAdd { dbr, count, sid, subscription }.header(message::MASK_BYTES).encode(bytes);
            message::encode_mask(bytes, u16::from(mask.0));
        });
    }

    /// Ends a subscription that was started with the same arguments. Updates in transit still arrive; see
    /// [`Listener::wants`].
    pub fn cancel(&mut self, sid: Sid, dbr: DbrType, count: u32, subscription: SubscriptionId) {
        let count = self.inner.count(sid, count);
        self.inner.outbox.push(|bytes| Request::EventCancel { dbr, count, sid, subscription }.encode(bytes));
    }

    /// Processes received bytes and reports the events in them.
    pub fn received(&mut self, bytes: &[u8], now: Now, listener: &mut impl Listener) {
        if self.inner.is_closed {
            return;
        }
        if self.liveness == Liveness::Silent {
            listener.event(Event::Responsive);
        }
        self.liveness = Liveness::Active(now.monotonic + self.echo_after);
        let mut dispatcher = Dispatcher { inner: &mut self.inner, listener };
        if let Err(reason) = self.framer.feed(bytes, now, &mut dispatcher) {
            dispatcher.close(reason);
        }
        if self.create_until.is_some() || self.inner.n_creating > 0 {
            self.create_until = (self.inner.n_creating > 0).then(|| now.monotonic + limit::CREATE_TIMEOUT);
        }
    }

    /// Performs actions that are due at `now`.
    pub fn tick(&mut self, now: Now, events: &mut Vec<Event>) {
        if self.inner.is_closed {
            return;
        }
        match self.liveness {
            Liveness::Active(until) if now.monotonic >= until => {
                self.inner.outbox.push(|bytes| Request::Echo {}.encode(bytes));
                self.liveness = Liveness::Probed(now.monotonic + limit::ECHO_TIMEOUT);
            }
            Liveness::Probed(until) if now.monotonic >= until => {
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

    /// Whether nothing is left over: no channel that waits for its confirmation, no partly received message, nothing to
    /// send. True after everything was cleared and every reply has arrived.
    pub fn holds_nothing(&self) -> bool {
        let ClientState { outbox, counts, n_creating, .. } = &self.inner;
        let is_waiting = *n_creating > 0 || self.create_until.is_some() || !self.framer.is_between_messages();
        !is_waiting && counts.is_empty() && outbox.pending_bytes() == 0
    }

    /// The next bytes to write; see [`Outbox::ready`].
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
    /// The count to send: old servers get the channel's own count instead of 0.
    #[inline]
    fn count(&self, sid: Sid, count: u32) -> u32 {
        match count {
            0 if self.server_minor < MINOR_COUNT_ZERO => self.counts.get(&sid).copied().unwrap_or(1),
            count => count,
        }
    }
}

/// The state machine while it processes bytes, with its listener.
struct Dispatcher<'a, L> {
    inner: &'a mut ClientState,
    listener: &'a mut L,
}

impl<L: Listener> Dispatcher<'_, L> {
    fn close(&mut self, reason: &'static str) {
        if !std::mem::replace(&mut self.inner.is_closed, true) {
            self.listener.event(Event::Closed(DisconnectReason::Malformed(reason)));
        }
    }

    /// The memory for the array in a reply.
    fn room(&mut self, header: &Header, kind: Kind, count: u32) -> Option<Array> {
        let ioid = match Answer::from_header(header) {
            Answer::ReadNotify { ioid, .. } => Some(ioid),
            _ => None,
        };
        self.listener.room(ioid, kind, count as usize)
    }

    /// Reports a large value, or why it was rejected.
    fn give(&mut self, header: &Header, result: Result<Reading, Eca>) {
        let checked = |status: Eca| if status.is_success() { result } else { Err(status) };
        match Answer::from_header(header) {
            Answer::ReadNotify { dbr, status, ioid, .. } => {
                self.listener.event(Event::ReadDone { ioid, dbr, result: checked(status) });
            }
            // The subscription may have ended while the value arrived.
            Answer::EventAdd { dbr, status, subscription, .. } if self.listener.wants(subscription) => {
                self.listener.event(Event::Update { subscription, dbr, result: checked(status) });
            }
            _ => {}
        }
    }

    /// Handles a value other than a single number, or the status of a failure.
    #[inline(never)]
    fn any_value(&mut self, header: &Header, payload: &[u8]) {
        match Answer::from_header(header) {
            Answer::EventAdd { dbr, count, status, subscription } => {
                let result = decode(status, dbr, count, payload);
                self.listener.event(Event::Update { subscription, dbr, result });
            }
            Answer::ReadNotify { dbr, count, status, ioid } => {
                let result = decode(status, dbr, count, payload);
                self.listener.event(Event::ReadDone { ioid, dbr, result });
            }
            _ => {}
        }
    }

    /// Handles infrequent messages.
    fn rare(&mut self, header: &Header, payload: &[u8]) {
        match Answer::from_header(header) {
            Answer::WriteNotify { status, ioid, .. } => {
                let result = if status.is_success() { Ok(()) } else { Err(status) };
                self.listener.event(Event::WriteDone { ioid, result });
            }
            Answer::CreateChan { dbr, count, cid, sid } => {
                self.inner.n_creating = self.inner.n_creating.saturating_sub(1);
                if dbr.level() != Some(AttributeLevel::Plain) {
                    return self.close("channel confirmed with an invalid type");
                }
                if self.inner.server_minor < MINOR_COUNT_ZERO {
                    self.inner.counts.insert(sid, count);
                }
                self.listener.event(Event::Created { cid, sid, native: dbr, count });
            }
            Answer::AccessRights { cid, rights } => self.listener.event(Event::Rights { cid, rights }),
            Answer::CreateChFail { cid } => {
                self.inner.n_creating = self.inner.n_creating.saturating_sub(1);
                self.listener.event(Event::CreateFailed { cid });
            }
            Answer::ServerDisconn { cid } => self.listener.event(Event::ChannelGone { cid }),
            Answer::Error { cid, status } => self.complaint(cid, status, payload),
            Answer::Version { minor, .. } => self.inner.server_minor = minor,
            Answer::Search { port, address, cid, .. } => {
                // Without an address, libca ignores the port as well and uses the name server's address.
                let server = explicit_ip(address).map(|ip| SocketAddr::new(ip, port));
                self.listener.event(Event::Claimed { cid, server });
            }
            // Nothing to do, or the reply to a request that this client does not send.
            Answer::Echo {}
            | Answer::ClearChannel { .. }
            | Answer::EventAdd { .. }
            | Answer::Read { .. }
            | Answer::ReadNotify { .. }
            | Answer::ReadSync {}
            | Answer::NotFound { .. }
            | Answer::RsrvIsUp { .. }
            | Answer::RepeaterConfirm { .. } => {}
            // A newer server may send unknown messages; they are framed correctly and ignored.
            Answer::Unknown(_) => {}
        }
    }

    fn complaint(&mut self, cid: Cid, status: Eca, payload: &[u8]) {
        let request = Header::decode(payload);
        let n_header = request.map_or(payload.len(), |(_, n_header)| n_header);
        let text = message::text(&payload[n_header..]).unwrap_or_default();
        let about = match request.map(|(request, _)| Request::from_header(&request)) {
            Some(Request::ReadNotify { ioid, .. } | Request::WriteNotify { ioid, .. }) => {
                RejectedRequest::Operation(ioid)
            }
            Some(Request::EventAdd { subscription, .. }) => RejectedRequest::Subscription(subscription),
            _ if cid == Cid(u32::MAX) => RejectedRequest::Circuit,
            Some(Request::Write { .. }) => RejectedRequest::Put(cid),
            _ => RejectedRequest::Channel(cid),
        };
        let text = String::from_utf8_lossy(text).into_owned();
        self.listener.event(Event::Complaint { about, status, text });
    }
}

/// The reading in a payload, or the failure status.
fn decode(status: Eca, dbr: DbrType, count: u32, payload: &[u8]) -> Result<Reading, Eca> {
    if !status.is_success() {
        return Err(status);
    }
    match dbr::decode(dbr, count, payload) {
        Ok(reading) => Ok(reading),
        Err(MalformedPayload::UnknownType(_)) => Err(Eca::BADTYPE),
        Err(MalformedPayload::Short) => Err(Eca::BADCOUNT),
    }
}

impl<L: Listener> MessageHandler for Dispatcher<'_, L> {
    fn knows(&self, _: u16) -> bool {
        // A newer server may send unknown commands.
        true
    }

    fn plan(&mut self, header: &Header) -> Plan {
        match Answer::from_header(header) {
            Answer::EventAdd { subscription, .. } if !self.listener.wants(subscription) => Plan::Skip,
            Answer::ReadNotify { dbr, count, .. } | Answer::EventAdd { dbr, count, .. } => {
                let payload_bytes = header.payload_bytes as usize;
                let refusal = match dbr.payload_bytes(count) {
                    _ if payload_bytes > self.inner.payload_bytes_max => Eca::TOLARGE,
                    None => Eca::BADTYPE,
                    Some(needed) if needed > payload_bytes => Eca::BADCOUNT,
                    Some(_) => {
                        let room = dbr.kind().and_then(|kind| self.room(header, kind, count));
                        return Plan::Value(dbr, count, room);
                    }
                };
                self.give(header, Err(refusal));
                Plan::Skip
            }
            Answer::Read { .. } => Plan::Skip,
            _ => Plan::Close("payload is too large for this command"),
        }
    }

    #[inline(always)]
    fn message(&mut self, header: &Header, payload: &[u8]) {
        match Answer::from_header(header) {
            // An empty payload confirms the end of a subscription.
            Answer::EventAdd { .. } if payload.is_empty() => {}
            Answer::EventAdd { dbr, count, status, subscription } => {
                if !self.listener.wants(subscription) {
                    return;
                }
                if status.is_success()
                    && let Some(reading) = dbr::decode_short(dbr, count, payload)
                {
                    self.listener.event(Event::Update { subscription, dbr, result: Ok(reading) });
                } else {
                    self.any_value(header, payload);
                }
            }
            Answer::ReadNotify { dbr, count, status, ioid } => {
                if status.is_success()
                    && let Some(reading) = dbr::decode_short(dbr, count, payload)
                {
                    self.listener.event(Event::ReadDone { ioid, dbr, result: Ok(reading) });
                } else {
                    self.any_value(header, payload);
                }
            }
            _ => self.rare(header, payload),
        }
    }

    fn misaligned(&mut self, _: &Header) {}

    fn value(&mut self, header: &Header, reading: Reading) {
        if let Value::Array(array) = &reading.value {
            self.listener.large_array(array);
        }
        self.give(header, Ok(reading));
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.inner.is_closed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn config() -> Config {
        Config {
            priority: 0,
            user: "ann".into(),
            host: "desk".into(),
            echo_after: Duration::from_secs(30),
            payload_bytes_max: 1 << 20,
        }
    }

    fn drain(circuit: &mut Circuit) -> Vec<u8> {
        let bytes = circuit.ready().to_vec();
        circuit.sent(bytes.len());
        bytes
    }

    #[test]
    fn a_silent_server_receives_one_echo_and_is_then_reported_unresponsive() {
        let start = Now::for_test();
        let mut circuit = Circuit::new(&config(), start);
        let mut events = Vec::new();
        drain(&mut circuit);

        circuit.tick(start + Duration::from_secs(30), &mut events);
        assert_eq!(drain(&mut circuit)[..2], [0, 23]);
        circuit.tick(start + Duration::from_secs(35), &mut events);
        assert_eq!(events, [Event::Unresponsive]);
        assert_eq!(circuit.deadline(), None);

        circuit.received(&[0; 16], start + Duration::from_secs(90), &mut events);
        assert_eq!(events, [Event::Unresponsive, Event::Responsive]);
    }

    #[test]
    fn a_missing_reply_to_a_channel_request_is_reported_once() {
        let start = Now::for_test();
        let mut circuit = Circuit::new(&config(), start);
        let mut events = Vec::new();

        circuit.create(Cid(1), "x", start);
        let due = circuit.deadline().unwrap();
        circuit.tick(start + limit::CREATE_TIMEOUT, &mut events);
        circuit.tick(start + limit::CREATE_TIMEOUT * 2, &mut events);
        assert_eq!((due, &events[..]), (start.monotonic + limit::CREATE_TIMEOUT, &[Event::CreateUnanswered][..]));

        // ECHO is a sign of life; CREATE_CH_FAIL is the reply.
        let received_at = start + Duration::from_secs(10);
        circuit.received(&[0, 23, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], received_at, &mut events);
        assert_eq!(circuit.deadline(), Some(received_at.monotonic + limit::CREATE_TIMEOUT));
        circuit.received(&[0, 26, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], received_at, &mut events);
        assert_eq!(circuit.deadline(), Some(received_at.monotonic + Duration::from_secs(30)));
        assert_eq!(events, [Event::CreateUnanswered, Event::CreateFailed { cid: Cid(1) }]);
    }

    /// Has memory for the reply to request 3.
    struct WithRoom(Vec<Event>, Option<Array>);

    impl Listener for WithRoom {
        fn event(&mut self, event: Event) {
            self.0.push(event);
        }

        fn wants(&self, _: SubscriptionId) -> bool {
            true
        }

        fn room(&mut self, ioid: Option<Ioid>, _: Kind, _: usize) -> Option<Array> {
            self.1.take_if(|_| ioid == Some(Ioid(3)))
        }
    }

    #[test]
    fn the_reply_to_a_get_is_decoded_into_the_memory_that_its_caller_provided() {
        let start = Now::for_test();
        let mut circuit = Circuit::new(&config(), start);
        drain(&mut circuit);
        let (dbr, count, status) = (DbrType(6), 10_000, Eca::NORMAL);
        let update = Answer::EventAdd { dbr, count, status, subscription: SubscriptionId(3) };
        let other = Answer::ReadNotify { dbr, count, status, ioid: Ioid(4) };
        let reply = Answer::ReadNotify { dbr, count, status, ioid: Ioid(3) };
        let memory = Arc::new(vec![9.0; 10_000]);
        let place = memory.as_ptr();
        let mut listener = WithRoom(Vec::new(), Some(Array::F64(memory)));

        let is_decoded_there = [update, other, reply].map(|answer| {
            let mut bytes = Vec::new();
            answer.header(80_000).encode(&mut bytes);
            bytes.resize(bytes.len() + 80_000, 0);
            circuit.received(&bytes, start, &mut listener);
            match listener.0.pop() {
                Some(Event::Update { result: Ok(reading), .. } | Event::ReadDone { result: Ok(reading), .. }) => {
                    matches!(&reading.value, Value::Array(Array::F64(elements)) if elements.as_ptr() == place)
                }
                other => panic!("{other:?}"),
            }
        });

        assert_eq!(is_decoded_there, [false, false, true]);
        assert!(circuit.holds_nothing());
    }

    #[test]
    fn servers_before_4_13_get_the_element_count_of_the_channel_instead_of_0() {
        let encoded = |requests: &[Request]| {
            let mut bytes = Vec::new();
            requests.iter().for_each(|request| request.encode(&mut bytes));
            bytes
        };
        let (dbr, sid, ioid, subscription) = (DbrType(6), Sid(2), Ioid(3), SubscriptionId(4));
        for (minor, of_channel, of_cleared) in [(12, 100, 1), (13, 0, 0)] {
            let start = Now::for_test();
            let mut circuit = Circuit::new(&config(), start);
            let (mut bytes, mut events) = (Vec::new(), Vec::new());
            Answer::Version { valid: 0, minor, sequence: 0 }.encode(&mut bytes);
            Answer::CreateChan { dbr, count: 100, cid: Cid(1), sid }.encode(&mut bytes);
            circuit.received(&bytes, start, &mut events);
            drain(&mut circuit);

            circuit.read(sid, dbr, 0, ioid);
            circuit.read(sid, dbr, 7, ioid);
            circuit.cancel(sid, dbr, 0, subscription);
            circuit.clear(Cid(1), sid);
            circuit.read(sid, dbr, 0, ioid);

            let expected = encoded(&[
                Request::ReadNotify { dbr, count: of_channel, sid, ioid },
                Request::ReadNotify { dbr, count: 7, sid, ioid },
                Request::EventCancel { dbr, count: of_channel, sid, subscription },
                Request::ClearChannel { sid, cid: Cid(1) },
                Request::ReadNotify { dbr, count: of_cleared, sid, ioid },
            ]);
            assert_eq!(drain(&mut circuit), expected, "minor version {minor}");
        }
    }

    #[test]
    fn an_error_reply_names_the_rejected_request() {
        let start = Now::for_test();
        let mut circuit = Circuit::new(&config(), start);
        let requests = [
            (
                Request::ReadNotify { dbr: DbrType(6), count: 1, sid: Sid(2), ioid: Ioid(3) },
                RejectedRequest::Operation(Ioid(3)),
            ),
            (
                Request::EventAdd { dbr: DbrType(6), count: 1, sid: Sid(2), subscription: SubscriptionId(4) },
                RejectedRequest::Subscription(SubscriptionId(4)),
            ),
            (Request::Write { dbr: DbrType(6), count: 1, sid: Sid(2), ioid: Ioid(0) }, RejectedRequest::Put(Cid(1))),
            (Request::ClearChannel { sid: Sid(2), cid: Cid(1) }, RejectedRequest::Channel(Cid(1))),
        ];

        for (request, about) in requests {
            let (mut payload, mut bytes, mut events) = (Vec::new(), Vec::new(), Vec::new());
            request.encode(&mut payload);
            payload.extend_from_slice(b"not now\0");
            Answer::Error { cid: Cid(1), status: Eca::PUTFAIL }.header(payload.len()).encode(&mut bytes);
            bytes.extend_from_slice(&payload);

            circuit.received(&bytes, start, &mut events);

            assert_eq!(events, [Event::Complaint { about, status: Eca::PUTFAIL, text: "not now".into() }]);
        }
    }

    #[test]
    fn a_closed_circuit_has_no_deadline_and_sends_no_echo() {
        let start = Now::for_test();
        let mut circuit = Circuit::new(&config(), start);
        let mut events = Vec::new();
        circuit.create(Cid(1), "x", start);
        drain(&mut circuit);

        // The confirmation of a channel of type 99.
        let invalid = [0, 18, 0, 0, 0, 99, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2];
        circuit.received(&invalid, start, &mut events);
        let reason = DisconnectReason::Malformed("channel confirmed with an invalid type");
        assert_eq!((&events[..], circuit.deadline()), (&[Event::Closed(reason)][..], None));

        circuit.tick(start + Duration::from_secs(3600), &mut events);
        assert_eq!((events.len(), circuit.pending_bytes()), (1, 0));
    }

    #[test]
    fn an_echo_is_sent_at_its_deadline_and_not_before() {
        let start = Now::for_test();
        let mut circuit = Circuit::new(&config(), start);
        let mut events = Vec::new();
        drain(&mut circuit);
        let nanosecond = Duration::from_nanos(1);
        let due = Duration::from_secs(30);

        circuit.tick(start + (due - nanosecond), &mut events);
        assert_eq!((circuit.pending_bytes(), circuit.deadline()), (0, Some(start.monotonic + due)));
        circuit.tick(start + due, &mut events);
        assert_eq!(circuit.pending_bytes(), 16);

        let silent = due + limit::ECHO_TIMEOUT;
        assert_eq!(circuit.deadline(), Some(start.monotonic + silent));
        circuit.tick(start + (silent - nanosecond), &mut events);
        assert_eq!(events, []);
        circuit.tick(start + silent, &mut events);
        assert_eq!(events, [Event::Unresponsive]);
    }

    #[test]
    fn a_channel_request_is_reported_as_unanswered_at_its_deadline_and_not_before() {
        let start = Now::for_test();
        let mut circuit = Circuit::new(&config(), start);
        let mut events = Vec::new();
        circuit.create(Cid(1), "x", start);

        circuit.tick(start + (limit::CREATE_TIMEOUT - Duration::from_nanos(1)), &mut events);
        assert_eq!(events, []);
        circuit.tick(start + limit::CREATE_TIMEOUT, &mut events);
        assert_eq!(events, [Event::CreateUnanswered]);
    }
}
