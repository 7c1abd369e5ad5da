//! The client's end of one circuit.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fodo_data::{Array, ConvertError, EventMask, Now, Reading, Value};

use crate::dbr::{self, DbrType, Level, Malformed};
use crate::eca::Eca;
use crate::frame::{Framer, Plan, Receiver};
use crate::message::{self, Answer, Header, MINOR_VERSION, Request};
use crate::outbox::Outbox;
use crate::search::told_ip;
use crate::{Cid, Ioid, Rights, Sid, SubscriptionId, limit};

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
#[expect(missing_docs, reason = "the variants and the types of their fields say it")]
pub enum Event {
    /// The server confirmed a channel.
    Created { cid: Cid, sid: Sid, native: DbrType, count: u32 },
    /// The server has no such channel (any more).
    CreateFailed { cid: Cid },
    /// What may be done with the channel; comes before `Created` and at every change.
    Rights { cid: Cid, rights: Rights },
    /// A get ended: a reading of that type, or the status that says why not.
    ReadDone { ioid: Ioid, dbr: DbrType, result: Result<Reading, Eca> },
    /// A put with completion ended.
    WriteDone { ioid: Ioid, result: Result<(), Eca> },
    /// An update of a subscription, of that type, or the status that says why there is none.
    Update { subscription: SubscriptionId, dbr: DbrType, result: Result<Reading, Eca> },
    /// The server took a channel away (SERVER_DISCONN).
    ChannelGone { cid: Cid },
    /// The server rejected a request (ERROR); `text` is its own explanation, which may be empty.
    Complaint { about: About, status: Eca, text: String },
    /// The server knows who serves a name: `server`, or itself.
    Claimed { cid: Cid, server: Option<SocketAddr> },
    /// The server has sent nothing for [`limit::CREATE_ANSWER`] although a channel waits for its confirmation.
    CreateUnanswered,
    /// Nothing was heard for so long that the circuit counts as unresponsive; it stays open.
    Unresponsive,
    /// It is heard again after [`Event::Unresponsive`].
    Responsive,
    /// The circuit is of no more use; nothing follows.
    Closed(Closed),
}

/// Which request a server rejected with ERROR, as far as its message identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
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

/// Who is told what happens on a circuit.
pub trait Listener {
    /// Told in the order of the messages; what comes most, answers and updates, is best dealt with at once.
    fn event(&mut self, event: Event);

    /// Whether updates of this subscription are wanted; those of others, as were under way at its end, are neither decoded
    /// nor told.
    fn wants(&self, subscription: SubscriptionId) -> bool;
}

/// Keeps all for later.
impl Listener for Vec<Event> {
    #[inline]
    fn event(&mut self, event: Event) {
        self.push(event);
    }

    fn wants(&self, _: SubscriptionId) -> bool {
        true
    }
}

/// Why a circuit came to its end from inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The server's bytes cannot be read on.
    Malformed(&'static str),
}

/// Whether the server is heard; the comment says what is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Liveness {
    /// Any byte, until that moment; then an echo is sent.
    Heard(Instant),
    /// The answer to the echo, until that moment.
    Asked(Instant),
    /// Any byte, for as long as TCP holds the circuit.
    Silent,
}

/// The client's end of one circuit.
#[derive(Debug)]
pub struct Circuit {
    framer: Framer,
    inner: Inner,
    liveness: Liveness,
    /// When silence counts as no answer to the channels that wait for their confirmation.
    create_until: Option<Instant>,
    echo_after: Duration,
}

/// All but the framer, so that the framer can call it.
#[derive(Debug)]
struct Inner {
    outbox: Outbox,
    server_minor: u32,
    /// The number of elements of each channel, for servers that do not know "as many as there are".
    counts: HashMap<Sid, u32>,
    /// Memory for the arrays of answers, by whom they are for.
    rooms: HashMap<Ioid, Array>,
    /// CREATE_CHAN requests without an answer.
    n_creating: usize,
    payload_bytes_max: usize,
    is_closed: bool,
}

/// The first minor version that knows a count of 0.
const MINOR_COUNT_ZERO: u32 = 13;

impl Circuit {
    /// A fresh circuit; VERSION, CLIENT_NAME and HOST_NAME are ready to be sent.
    pub fn new(config: &Config, now: Now) -> Circuit {
        let mut outbox = Outbox::default();
        outbox.push(|bytes| {
            let version =
                Request::Version { priority: u16::from(config.priority), minor: u32::from(MINOR_VERSION), sequence: 0 };
            version.encode(bytes);
            message::encode_text(bytes, |size| Request::ClientName {}.header(size), config.user.as_bytes());
            message::encode_text(bytes, |size| Request::HostName {}.header(size), config.host.as_bytes());
        });
        let inner = Inner {
            outbox,
            server_minor: 0,
            counts: HashMap::new(),
            rooms: HashMap::new(),
            n_creating: 0,
            payload_bytes_max: config.payload_bytes_max,
            is_closed: false,
        };
        let liveness = Liveness::Heard(now.monotonic + config.echo_after);
        Circuit { framer: Framer::default(), inner, liveness, create_until: None, echo_after: config.echo_after }
    }

    /// Asks for names, as of a name server; `searches` are those of a datagram
    /// ([`crate::search::Datagram::searches`]).
    pub fn search(&mut self, searches: &[u8]) {
        self.inner.outbox.push(|bytes| bytes.extend_from_slice(searches));
    }

    /// Asks for a channel.
    pub fn create(&mut self, cid: Cid, name: &str, now: Now) {
        self.inner.n_creating += 1;
        self.create_until.get_or_insert(now.monotonic + limit::CREATE_ANSWER);
        let request = Request::CreateChan { cid, minor: u32::from(MINOR_VERSION) };
        self.inner.outbox.push(|bytes| message::encode_text(bytes, |size| request.header(size), name.as_bytes()));
    }

    /// Gives a channel up; the server ends its subscriptions with it.
    pub fn clear(&mut self, cid: Cid, sid: Sid) {
        if !self.inner.counts.is_empty() {
            self.inner.counts.remove(&sid);
        }
        self.inner.outbox.push(|bytes| Request::ClearChannel { sid, cid }.encode(bytes));
    }

    /// Asks for the value (READ_NOTIFY). `count` 0: as many elements as there are.
    #[inline]
    pub fn read(&mut self, sid: Sid, dbr: DbrType, count: u32, ioid: Ioid) {
        let count = self.inner.count(sid, count);
        self.inner.outbox.push(|bytes| Request::ReadNotify { dbr, count, sid, ioid }.encode(bytes));
    }

    /// Has a large answer to that request put into the memory of `room`, if nobody else holds it.
    pub fn reuse(&mut self, ioid: Ioid, room: Array) {
        self.inner.rooms.insert(ioid, room);
    }

    /// Gives the memory for an answer up that nobody waits for any longer.
    pub fn forget(&mut self, ioid: Ioid) {
        self.inner.rooms.remove(&ioid);
    }

    /// Writes, with completion when an `ioid` is given (WRITE_NOTIFY), else without any answer.
    pub fn write(&mut self, sid: Sid, dbr: DbrType, value: &Value, ioid: Option<Ioid>) -> Result<(), ConvertError> {
        let reading = Reading::bare(value.clone());
        let header = |bytes, count| match ioid {
            Some(ioid) => Request::WriteNotify { dbr, count, sid, ioid }.header(bytes),
            None => Request::Write { dbr, count, sid, ioid: Ioid(0) }.header(bytes),
        };
        self.inner.outbox.push_value(dbr, 0, &reading, header)
    }

    /// Starts a subscription.
    pub fn subscribe(&mut self, sid: Sid, dbr: DbrType, count: u32, mask: EventMask, subscription: SubscriptionId) {
        let count = self.inner.count(sid, count);
        self.inner.outbox.push(|bytes| {
            Request::EventAdd { dbr, count, sid, subscription }.header(message::MASK_BYTES).encode(bytes);
            message::encode_mask(bytes, u16::from(mask.0));
        });
    }

    /// Ends a subscription that was started with these. Who asked for it knows that updates are under way
    /// ([`Listener::wants`]).
    pub fn cancel(&mut self, sid: Sid, dbr: DbrType, count: u32, subscription: SubscriptionId) {
        let count = self.inner.count(sid, count);
        self.inner.outbox.push(|bytes| Request::EventCancel { dbr, count, sid, subscription }.encode(bytes));
    }

    /// Takes bytes in, and tells what they say.
    pub fn received(&mut self, bytes: &[u8], now: Now, listener: &mut impl Listener) {
        if self.inner.is_closed {
            return;
        }
        if self.liveness == Liveness::Silent {
            listener.event(Event::Responsive);
        }
        self.liveness = Liveness::Heard(now.monotonic + self.echo_after);
        let mut telling = Telling { inner: &mut self.inner, listener };
        if let Err(reason) = self.framer.feed(bytes, now, &mut telling) {
            telling.close(reason);
        }
        if self.create_until.is_some() || self.inner.n_creating > 0 {
            self.create_until = (self.inner.n_creating > 0).then(|| now.monotonic + limit::CREATE_ANSWER);
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Now, events: &mut Vec<Event>) {
        if self.inner.is_closed {
            return;
        }
        match self.liveness {
            Liveness::Heard(until) if now.monotonic >= until => {
                self.inner.outbox.push(|bytes| Request::Echo {}.encode(bytes));
                self.liveness = Liveness::Asked(now.monotonic + limit::ECHO_ANSWER);
            }
            Liveness::Asked(until) if now.monotonic >= until => {
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

    /// The latest moment to call [`Circuit::tick`].
    pub fn deadline(&self) -> Option<Instant> {
        let liveness = match self.liveness {
            _ if self.inner.is_closed => return None,
            Liveness::Heard(until) | Liveness::Asked(until) => Some(until),
            Liveness::Silent => None,
        };
        match (liveness, self.create_until) {
            (Some(liveness), Some(create)) => Some(liveness.min(create)),
            (liveness, create) => liveness.or(create),
        }
    }

    /// The next bytes to write; see [`Outbox::ready`].
    pub fn ready(&mut self) -> &[u8] {
        self.inner.outbox.ready()
    }

    /// The first `n` of the ready bytes were written.
    pub fn sent(&mut self, n: usize) {
        self.inner.outbox.sent(n);
    }

    /// Bytes that wait to be sent.
    pub fn pending_bytes(&self) -> usize {
        self.inner.outbox.pending_bytes()
    }
}

impl Inner {
    /// The count to ask for: old servers are told the channel's own instead of 0.
    #[inline]
    fn count(&self, sid: Sid, count: u32) -> u32 {
        match count {
            0 if self.server_minor < MINOR_COUNT_ZERO => self.counts.get(&sid).copied().unwrap_or(1),
            count => count,
        }
    }

    fn room(&mut self, header: &Header) -> Option<Array> {
        match Answer::from_header(header) {
            Answer::ReadNotify { ioid, .. } => self.rooms.remove(&ioid),
            _ => None,
        }
    }
}

/// The machine while bytes come, and who is told.
struct Telling<'a, L> {
    inner: &'a mut Inner,
    listener: &'a mut L,
}

impl<L: Listener> Telling<'_, L> {
    fn close(&mut self, reason: &'static str) {
        if !std::mem::replace(&mut self.inner.is_closed, true) {
            self.listener.event(Event::Closed(Closed::Malformed(reason)));
        }
    }

    /// The get of that number ends.
    #[inline(always)]
    fn read_done(&mut self, ioid: Ioid, dbr: DbrType, result: Result<Reading, Eca>) {
        if !self.inner.rooms.is_empty() {
            self.inner.rooms.remove(&ioid);
        }
        self.listener.event(Event::ReadDone { ioid, dbr, result });
    }

    /// A large value has come, or why it is not taken.
    fn give(&mut self, header: &Header, result: Result<Reading, Eca>) {
        let of = |status: Eca| if status.is_success() { result } else { Err(status) };
        match Answer::from_header(header) {
            Answer::ReadNotify { dbr, status, ioid, .. } => self.read_done(ioid, dbr, of(status)),
            // It may have ended while the value came.
            Answer::EventAdd { dbr, status, subscription, .. } if self.listener.wants(subscription) => {
                self.listener.event(Event::Update { subscription, dbr, result: of(status) });
            }
            _ => {}
        }
    }

    /// What comes seldom.
    fn rare(&mut self, header: &Header, payload: &[u8]) {
        match Answer::from_header(header) {
            Answer::WriteNotify { status, ioid, .. } => {
                let result = if status.is_success() { Ok(()) } else { Err(status) };
                self.listener.event(Event::WriteDone { ioid, result });
            }
            Answer::CreateChan { dbr, count, cid, sid } => {
                self.inner.n_creating = self.inner.n_creating.saturating_sub(1);
                if dbr.level() != Some(Level::Plain) {
                    return self.close("a channel of a type that is none");
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
                // libca leaves the port out as well when there is no address: it is the name server's.
                let server = told_ip(address).map(|ip| SocketAddr::new(ip, port));
                self.listener.event(Event::Claimed { cid, server });
            }
            // Nothing to do, or nothing that a client of today asks for.
            Answer::Echo {}
            | Answer::ClearChannel { .. }
            | Answer::EventAdd { .. }
            | Answer::Read { .. }
            | Answer::ReadNotify { .. }
            | Answer::ReadSync {}
            | Answer::NotFound { .. }
            | Answer::RsrvIsUp { .. }
            | Answer::RepeaterConfirm { .. } => {}
            // A newer server may know more; what it says is framed all the same.
            Answer::Unknown(_) => {}
        }
    }

    fn complaint(&mut self, cid: Cid, status: Eca, payload: &[u8]) {
        let request = Header::decode(payload);
        let n_header = request.map_or(payload.len(), |(_, n_header)| n_header);
        let text = message::text(&payload[n_header..]).unwrap_or_default();
        let about = match request.map(|(request, _)| Request::from_header(&request)) {
            Some(Request::ReadNotify { ioid, .. } | Request::WriteNotify { ioid, .. }) => About::Operation(ioid),
            Some(Request::EventAdd { subscription, .. }) => About::Subscription(subscription),
            _ if cid == Cid(u32::MAX) => About::Circuit,
            Some(Request::Write { .. }) => About::Put(cid),
            _ => About::Channel(cid),
        };
        let text = String::from_utf8_lossy(text).into_owned();
        self.listener.event(Event::Complaint { about, status, text });
    }
}

/// The reading in a payload, or the status that stands in its place.
#[inline(always)]
fn decode(status: Eca, dbr: DbrType, count: u32, payload: &[u8]) -> Result<Reading, Eca> {
    if !status.is_success() {
        return Err(status);
    }
    match dbr::decode(dbr, count, payload) {
        Ok(reading) => Ok(reading),
        Err(Malformed::UnknownType(_)) => Err(Eca::BADTYPE),
        Err(Malformed::Short) => Err(Eca::BADCOUNT),
    }
}

impl<L: Listener> Receiver for Telling<'_, L> {
    fn knows(&self, _: u16) -> bool {
        // A newer server may say more.
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
                    Some(_) => return Plan::Value(dbr, count, self.inner.room(header)),
                };
                self.give(header, Err(refusal));
                Plan::Skip
            }
            Answer::Read { .. } => Plan::Skip,
            _ => Plan::Close("a message of that kind is never so large"),
        }
    }

    #[inline(always)]
    fn message(&mut self, header: &Header, payload: &[u8]) {
        match Answer::from_header(header) {
            // Without a payload it confirms the end of a subscription.
            Answer::EventAdd { .. } if payload.is_empty() => {}
            Answer::EventAdd { dbr, count, status, subscription } => {
                if self.listener.wants(subscription) {
                    let result = decode(status, dbr, count, payload);
                    self.listener.event(Event::Update { subscription, dbr, result });
                }
            }
            Answer::ReadNotify { dbr, count, status, ioid } => {
                self.read_done(ioid, dbr, decode(status, dbr, count, payload));
            }
            _ => self.rare(header, payload),
        }
    }

    fn misaligned(&mut self, _: &Header) {}

    fn value(&mut self, header: &Header, reading: Reading) {
        self.give(header, Ok(reading));
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.inner.is_closed
    }
}

#[cfg(test)]
mod tests {
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
    fn a_silent_server_is_asked_once_and_then_counts_as_unresponsive() {
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
    fn a_server_that_stays_silent_after_a_channel_was_requested_is_reported_once_per_silence() {
        let start = Now::for_test();
        let mut circuit = Circuit::new(&config(), start);
        let mut events = Vec::new();

        circuit.create(Cid(1), "x", start);
        let due = circuit.deadline().unwrap();
        circuit.tick(start + limit::CREATE_ANSWER, &mut events);
        circuit.tick(start + limit::CREATE_ANSWER * 2, &mut events);
        assert_eq!((due, &events[..]), (start.monotonic + limit::CREATE_ANSWER, &[Event::CreateUnanswered][..]));

        // ECHO is a sign of life; CREATE_CH_FAIL is the answer.
        let heard = start + Duration::from_secs(10);
        circuit.received(&[0, 23, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], heard, &mut events);
        assert_eq!(circuit.deadline(), Some(heard.monotonic + limit::CREATE_ANSWER));
        circuit.received(&[0, 26, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], heard, &mut events);
        assert_eq!(circuit.deadline(), Some(heard.monotonic + Duration::from_secs(30)));
        assert_eq!(events, [Event::CreateUnanswered, Event::CreateFailed { cid: Cid(1) }]);
    }

    #[test]
    fn a_complaint_names_the_request_that_it_is_about() {
        let start = Now::for_test();
        let mut circuit = Circuit::new(&config(), start);
        let requests = [
            (Request::ReadNotify { dbr: DbrType(6), count: 1, sid: Sid(2), ioid: Ioid(3) }, About::Operation(Ioid(3))),
            (
                Request::EventAdd { dbr: DbrType(6), count: 1, sid: Sid(2), subscription: SubscriptionId(4) },
                About::Subscription(SubscriptionId(4)),
            ),
            (Request::Write { dbr: DbrType(6), count: 1, sid: Sid(2), ioid: Ioid(0) }, About::Put(Cid(1))),
            (Request::ClearChannel { sid: Sid(2), cid: Cid(1) }, About::Channel(Cid(1))),
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
}
