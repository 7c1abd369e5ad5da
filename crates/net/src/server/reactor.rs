//! A thread that serves some circuits: its own poller, its own slab, and an inbox for the others.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fodo_ca::eca::Eca;
use fodo_ca::search::{Datagram, Flaw, Responder};
use fodo_ca::shares::Shares;
use fodo_ca::{message, server};
use fodo_data::Now;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;

use super::circuit::{Circuit, Turn};
use super::observer::ClientStatus;
use super::quota::{Entry, Hosts, Refusal, Share};
use super::{Answering, Edge, PutRefusal, Source, UpdateTally};
use crate::log::{Level, Log};
use crate::sync::lock;
use crate::timers::Timers;
use crate::{clock, limit, socket};

/// A circuit of a reactor; a number that is used again has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CircuitKey {
    index: usize,
    generation: u64,
}

/// What other threads tell a reactor.
#[derive(Debug)]
pub(super) enum Message {
    /// A client has connected. In a box, since posts are many and as large as the largest message.
    Accepted(Box<(Arc<TcpStream>, Share)>),
    /// A PV that this circuit watches has changed.
    Posted { circuit: CircuitKey, watch: usize },
    /// The processing of a put has ended.
    PutDone { circuit: CircuitKey, put: u64, result: Result<(), PutRefusal> },
    /// What clients may do may have changed.
    CheckRights,
    /// What is known of every client here is wanted.
    Status(Sender<Vec<ClientStatus>>),
    /// The server stops.
    Stop,
}

/// Where other threads leave messages.
///
/// Bounded by what sends them: one message per watch, per put in progress, per accepted client, per second, and one on rights.
#[derive(Debug)]
pub(super) struct Inbox {
    messages: Mutex<Vec<Message>>,
    is_awake: AtomicBool,
    checks_rights: AtomicBool,
    pub(super) updates: PostedUpdates,
    waker: Waker,
}

/// Updates of the circuits here as those know them who post; the rest is known to the circuits.
#[derive(Debug, Default)]
pub(super) struct PostedUpdates {
    /// Posts times the subscriptions that they were for.
    pub(super) posted: AtomicU64,
    /// Those among them that waited for a subscription when it ended.
    pub(super) dropped: AtomicU64,
}

impl Inbox {
    pub(super) fn push(&self, message: Message) {
        lock(&self.messages).push(message);
        if !self.is_awake.swap(true, Ordering::AcqRel) {
            // A wake-up that fails leaves the message for the next turn; there is no one to tell.
            let _ = self.waker.wake();
        }
    }

    pub(super) fn check_rights(&self) {
        if !self.checks_rights.swap(true, Ordering::AcqRel) {
            self.push(Message::CheckRights);
        }
    }
}

const WAKE: Token = Token(usize::MAX);
/// Tokens of listeners and UDP sockets count down from here.
const EDGE: usize = usize::MAX / 2;

/// One thread's share of a server.
pub(super) struct Reactor {
    poll: Poll,
    inbox: Arc<Inbox>,
    source: Arc<dyn Source>,
    payload_bytes_max: usize,
    /// How long to look for events before sleeping.
    spin: Duration,
    tally: Arc<UpdateTally>,
    log: Arc<Log>,
    circuits: Slab<(u64, Circuit)>,
    generation_next: u64,
    timers: Timers,
    buffer: Vec<u8>,
    door: Option<Door>,
}

/// What only the first reactor has: the sockets of the server as a whole.
struct Door {
    edge: Edge,
    responder: Responder,
    shares: Shares,
    hosts: Arc<Hosts>,
    inboxes: Vec<Arc<Inbox>>,
    log: Arc<Log>,
    inbox_next: usize,
    datagrams: Vec<Datagram>,
    accepts_again_at: Option<Instant>,
    /// Searches, or clients, were left in a socket for the next turn.
    has_more: bool,
}

impl Reactor {
    pub(super) fn new(
        source: Arc<dyn Source>,
        payload_bytes_max: usize,
        spin: Duration,
        tally: Arc<UpdateTally>,
        log: Arc<Log>,
    ) -> io::Result<Reactor> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let inbox = Inbox {
            messages: Mutex::default(),
            is_awake: AtomicBool::new(false),
            checks_rights: AtomicBool::new(false),
            updates: PostedUpdates::default(),
            waker,
        };
        Ok(Reactor {
            poll,
            inbox: Arc::new(inbox),
            source,
            payload_bytes_max,
            spin,
            tally,
            log,
            circuits: Slab::new(),
            generation_next: 0,
            timers: Timers::default(),
            buffer: vec![0; limit::RECEIVE_BYTES],
            door: None,
        })
    }

    pub(super) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Makes this the reactor that accepts clients and answers searches.
    pub(super) fn take_edge(&mut self, edge: Edge, inboxes: Vec<Arc<Inbox>>, hosts: Arc<Hosts>) -> io::Result<()> {
        let listeners = edge.listeners.iter().map(AsRawFd::as_raw_fd);
        let answering = edge.answering.iter().map(|answering| answering.socket.as_raw_fd());
        let relay = edge.relay.iter().map(|relay| relay.socket().as_raw_fd());
        for (index, descriptor) in listeners.chain(answering).chain(relay).enumerate() {
            let token = Token(EDGE + index);
            self.poll.registry().register(&mut SourceFd(&descriptor), token, Interest::READABLE)?;
        }
        let mut responder = Responder::new(edge.tcp_port, clock::now());
        responder.set_beacon_period_max(edge.beacon_period_max);
        let shares = Shares::new(edge.quotas.source_search_bytes, edge.quotas.all_search_bytes);
        self.door = Some(Door {
            edge,
            responder,
            shares,
            hosts,
            inboxes,
            log: self.log.clone(),
            inbox_next: 0,
            datagrams: Vec::new(),
            accepts_again_at: None,
            has_more: false,
        });
        Ok(())
    }

    /// Serves until [`Message::Stop`].
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        let mut messages = Vec::new();
        let mut due: Vec<usize> = Vec::new();
        loop {
            self.wait(&mut events, !due.is_empty());
            self.inbox.is_awake.store(true, Ordering::Release);
            let now = clock::now();
            let is_edge = events.iter().any(|event| event.token().0 >= EDGE && event.token() != WAKE);
            for event in events.iter().filter(|event| event.token().0 < EDGE) {
                let index = event.token().0;
                if let (Some((_, circuit)), true) = (self.circuits.get_mut(index), event.is_read_closed()) {
                    circuit.peer_has_ended();
                }
                due.push(index);
            }
            self.door_turn(is_edge, now);
            if !self.take_messages(&mut messages, &mut due, now) {
                return self.stop();
            }
            self.timers.take_due(now.monotonic, &mut due);
            due.sort_unstable();
            due.dedup();
            let mut again = self.turn_all(&due, now);
            // What the turns have caused here and now needs no wake-up: puts that are complete, posts.
            let is_running = self.take_messages(&mut messages, &mut again, now);
            due = again;
            self.inbox.is_awake.store(false, Ordering::Release);
            if !lock(&self.inbox.messages).is_empty() {
                let _ = self.inbox.waker.wake();
            }
            if !is_running {
                return self.stop();
            }
        }
    }

    /// Waits for events or the next moment that matters; looks for events for a while before it sleeps, where that is wanted.
    fn wait(&mut self, events: &mut Events, has_work: bool) {
        if !self.spin.is_zero() && !has_work {
            let start = Instant::now();
            while start.elapsed() < self.spin && self.timeout(false) != Some(Duration::ZERO) {
                if self.poll.poll(events, Some(Duration::ZERO)).is_ok() && !events.is_empty() {
                    return;
                }
            }
        }
        let timeout = self.timeout(has_work);
        // Interrupted or not, what is due is done by the caller.
        let _ = self.poll.poll(events, timeout);
    }

    /// Lets go of every circuit, so that the PVs know that nobody listens any more.
    fn stop(mut self) {
        for (_, circuit) in self.circuits.drain() {
            circuit.close(&self.poll);
        }
    }

    /// How long to wait: not at all when there is work, else until the next moment that matters.
    fn timeout(&self, has_work: bool) -> Option<Duration> {
        if has_work || self.door.as_ref().is_some_and(|door| door.has_more) {
            return Some(Duration::ZERO);
        }
        let door = self.door.as_ref().and_then(Door::deadline);
        let next = [door, self.timers.next()].into_iter().flatten().min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Does what others have left here; false when the server stops.
    fn take_messages(&mut self, messages: &mut Vec<Message>, due: &mut Vec<usize>, now: Now) -> bool {
        std::mem::swap(messages, &mut lock(&self.inbox.messages));
        for message in messages.drain(..) {
            match message {
                Message::Accepted(accepted) => {
                    let (stream, share) = *accepted;
                    due.extend(self.adopt(stream, share, now));
                }
                Message::Posted { circuit, watch } => {
                    if let Some(found) = self.circuit(circuit) {
                        found.posted(watch);
                        // Posts of many PVs come together, and each circuit has one turn.
                        if due.last() != Some(&circuit.index) {
                            due.push(circuit.index);
                        }
                    }
                }
                Message::PutDone { circuit, put, result } => {
                    if let Some(found) = self.circuit(circuit) {
                        found.put_done(put, &result);
                        due.push(circuit.index);
                    }
                }
                Message::CheckRights => {
                    // From now on another signal is another message.
                    self.inbox.checks_rights.store(false, Ordering::Release);
                    for (index, (_, circuit)) in &mut self.circuits {
                        circuit.check_rights();
                        due.push(index);
                    }
                }
                Message::Status(answer) => {
                    // Who has asked may have given up by now.
                    let _ = answer.send(self.circuits.iter().map(|(_, (_, circuit))| circuit.status(now)).collect());
                }
                Message::Stop => return false,
            }
        }
        true
    }

    fn circuit(&mut self, key: CircuitKey) -> Option<&mut Circuit> {
        let (generation, circuit) = self.circuits.get_mut(key.index)?;
        (*generation == key.generation).then_some(circuit)
    }

    /// Takes a new client in; gives its index.
    fn adopt(&mut self, stream: Arc<TcpStream>, share: Share, now: Now) -> Option<usize> {
        let entry = self.circuits.vacant_entry();
        let key = CircuitKey { index: entry.key(), generation: self.generation_next };
        self.generation_next += 1;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self.poll.registry().register(&mut SourceFd(&stream.as_raw_fd()), Token(key.index), interest);
        // A client that cannot be registered sees its connection close.
        registered.ok()?;
        let inbox = self.inbox.clone();
        let circuit = Circuit::new(stream, key, inbox, self.payload_bytes_max, share, self.log.clone(), now);
        entry.insert((key.generation, circuit));
        Some(key.index)
    }

    /// Gives every due circuit its turn; tells which want another one at once.
    fn turn_all(&mut self, due: &[usize], now: Now) -> Vec<usize> {
        let mut again = Vec::new();
        for &index in due {
            let Some((_, circuit)) = self.circuits.get_mut(index) else { continue };
            match circuit.turn(&*self.source, &mut self.buffer, &self.tally, now) {
                Turn::Ready => self.timers.clear(index),
                Turn::By(at) => self.timers.set(index, at),
                Turn::Again => again.push(index),
                Turn::Closed => {
                    self.timers.clear(index);
                    let (_, circuit) = self.circuits.remove(index);
                    circuit.tell_end(now);
                    circuit.close(&self.poll);
                }
            }
        }
        again
    }

    fn door_turn(&mut self, is_readable: bool, now: Now) {
        let Some(door) = &mut self.door else { return };
        if is_readable || door.has_more || door.accepts_again_at.is_some_and(|at| at <= now.monotonic) {
            door.has_more = false;
            door.accept(now);
            door.answer(&*self.source, &mut self.buffer, now);
        }
        door.responder.tick(now, &mut door.datagrams);
        door.send_beacons(now);
    }
}

impl Door {
    fn deadline(&self) -> Option<Instant> {
        [self.responder.deadline(), self.accepts_again_at].into_iter().flatten().min()
    }

    /// Accepts clients that wait, as many as a turn may, and deals them out over the reactors.
    fn accept(&mut self, now: Now) {
        self.accepts_again_at = None;
        for index in 0..self.edge.listeners.len() {
            let mut n_left = limit::TURN_ACCEPTS;
            while n_left > 0 {
                n_left -= 1;
                if !self.hosts.may_enter() {
                    self.accepts_again_at = Some(now.monotonic + limit::EVICTION_PAUSE);
                    break;
                }
                match self.edge.listeners[index].accept() {
                    Ok((stream, peer)) => self.admit(stream, peer, now),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    // Out of descriptors or memory: others keep what they have, this one waits.
                    Err(error) => {
                        self.log.tell(Level::Error, &format!("no client can be accepted: {error}"), None, None, now);
                        self.accepts_again_at = Some(now.monotonic + limit::ACCEPT_PAUSE);
                        break;
                    }
                }
            }
            self.has_more |= n_left == 0;
        }
    }

    /// Gives a client a circuit, or tells it why not.
    fn admit(&mut self, stream: TcpStream, peer: SocketAddr, now: Now) {
        // The client has already disconnected.
        let Ok(stream) = socket::accepted(stream, self.edge.quotas.silence) else { return };
        let stream = Arc::new(stream);
        let descriptor = usize::try_from(stream.as_raw_fd()).unwrap_or_default();
        let Entry { share, evicted } = self.hosts.enter(peer, &stream, descriptor);
        let warn = |what: &str, peer| self.log.tell(Level::Warning, what, Some(peer), None, now);
        if let Some(evicted) = evicted {
            warn(
                "a client without a channel is closed, because its host has many of them and a new client needs room",
                evicted,
            );
        }
        match share {
            Ok(share) => {
                self.inboxes[self.inbox_next].push(Message::Accepted(Box::new((stream, share))));
                self.inbox_next = (self.inbox_next + 1) % self.inboxes.len();
            }
            Err(Refusal::Host) => {
                warn("a client is closed, since its host has too many circuits", peer);
                turn_away(&stream, "too many circuits of one host");
            }
            Err(Refusal::Descriptors) => {
                warn("a client is closed, because too few descriptors are left", peer);
                turn_away(&stream, "the server has too few descriptors left");
            }
        }
    }

    /// Answers the searches that wait.
    fn answer(&mut self, source: &dyn Source, buffer: &mut [u8], now: Now) {
        for (index, Answering { socket, replies_from, is_unicast }) in self.edge.answering.iter().enumerate() {
            let reply_socket = self.edge.answering.get(*replies_from).map_or(socket, |other| &other.socket);
            let mut n_left = limit::TURN_SEARCH_BYTES;
            while n_left > 0 {
                let Ok((n, from)) = socket.recv_from(buffer) else { break };
                // An empty one costs something as well.
                n_left = n_left.saturating_sub(n + message::HEADER_BYTES);
                let is_own = self.edge.relay.as_ref().is_some_and(|relay| relay.is_own(from));
                let is_ignored = is_own || matches!(from.ip(), IpAddr::V4(ip) if self.edge.ignored.contains(&ip));
                if is_ignored {
                    continue;
                }
                if !self.shares.admits(from.ip(), n + message::HEADER_BYTES, now) {
                    self.hosts.refused();
                    let what = "searches are not answered, since there are more than their host's share";
                    self.log.tell(Level::Warning, what, Some(from), None, now);
                    continue;
                }
                let mut serves = |name: &str| source.serves(name);
                let flaw = self.responder.handle(from, &buffer[..n], &mut serves, &mut self.datagrams);
                if let (true, Some(relay)) = (is_unicast, &mut self.edge.relay) {
                    relay.hand_on(&mut buffer[..n], from, index);
                }
                if let Some(flaw) = flaw {
                    self.hosts.flawed();
                    let (what, name) = match &flaw {
                        Flaw::Cut => ("a datagram that is cut within a message", None),
                        Flaw::Misaligned => ("a datagram with a payload that is not a multiple of 8 bytes", None),
                        Flaw::NoName(name) => ("a search for what is no name", Some(name.as_str())),
                    };
                    self.log.tell(Level::Warning, what, Some(from), name, now);
                }
                for datagram in self.datagrams.drain(..) {
                    if let Some(to) = datagram.to {
                        // As one that is lost: the client asks again.
                        let _ = reply_socket.send_to(&datagram.bytes, to);
                    }
                }
            }
            // The poller would not tell again of what is left in the socket.
            self.has_more |= n_left == 0;
        }
        self.relay_answers(buffer);
    }

    /// Hands the answers of this host's other servers to who asked.
    fn relay_answers(&mut self, buffer: &mut [u8]) {
        let Some(relay) = &self.edge.relay else { return };
        let mut n_left = limit::TURN_SEARCH_BYTES;
        while n_left > 0 {
            let Some((n, client, heard_by)) = relay.answer(buffer) else { return };
            n_left = n_left.saturating_sub(n + message::HEADER_BYTES);
            if let Some(answering) = self.edge.answering.get(heard_by) {
                // As one that is lost: the client asks again.
                let _ = answering.socket.send_to(&buffer[..n], client);
            }
        }
        self.has_more = true;
    }

    fn send_beacons(&mut self, now: Now) {
        if self.datagrams.is_empty() {
            return;
        }
        // What is looked up meanwhile is heard of at the next beacon.
        self.edge.beacon_places.look(now.monotonic, || {});
        for datagram in self.datagrams.drain(..) {
            for to in self.edge.beacon_places.all() {
                // Which interface leads there is the system's to know: the first that it accepts.
                let mut sockets =
                    self.edge.answering.iter().enumerate().filter(|(index, from)| *index == from.replies_from);
                sockets.any(|(_, from)| from.socket.send_to(&datagram.bytes, to).is_ok());
            }
        }
    }
}

/// Says to a client why it is not served. What does not go out at once is lost, as nobody waits for it.
fn turn_away(mut stream: &TcpStream, why: &str) {
    let mut bytes = Vec::new();
    server::refusal(Eca::ALLOCMEM, why, &mut bytes);
    let _ = stream.write(&bytes);
}
