//! A thread that serves some of the circuits: its loop, and the messages to it.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use std::vec::Drain;

use fodo_ca::eca::Eca;
use fodo_ca::search::{Datagram, DatagramFlaw, Responder};
use fodo_ca::{message, server};
use fodo_data::Now;
use fodo_engine::shares::SearchShares;
use slab::Slab;

use super::circuit::Circuit;
use super::observer::ClientStatus;
use super::panics::{self, catch_panic};
use super::quota::{Admission, AdmissionError, CircuitQuota, ClientHosts};
use super::{BoundSockets, PutRefusal, SearchSocket, Source, UpdateTally};
use crate::event_loop::{EventLoop, LoopHandle, LoopHandler, NextCall, Readiness, Schedule};
use crate::log::{Level, Log};
use crate::{clock, limit, socket};

/// Identifies a circuit of a reactor; a reused index has a new generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CircuitKey {
    index: usize,
    generation: u64,
}

/// Messages from other threads to a reactor.
#[derive(Debug)]
pub(super) enum ReactorMessage {
    /// A client has connected. Boxed, since posts are frequent and every message has the size of the largest variant.
    Accepted(Box<(Arc<TcpStream>, CircuitQuota)>),
    /// A PV that this circuit watches has changed.
    Posted { circuit: CircuitKey, watch: usize },
    /// The processing of a put has ended.
    PutDone { circuit: CircuitKey, put: u64, result: Result<(), PutRefusal> },
    /// Access rights may have changed.
    CheckRights,
    /// A request for the status of every client here.
    Status(Sender<Vec<ClientStatus>>),
    /// The server stops.
    Stop,
}

/// The inbox for messages from other threads, and the counters that they maintain.
///
/// Bounded by its senders: one message per watch, per put in progress, per accepted client, one about access rights, and
/// one for each thread that waits for the status of the clients.
#[derive(Debug)]
pub(super) struct Inbox {
    handle: LoopHandle<ReactorMessage>,
    checks_rights: AtomicBool,
    pub(super) updates: PostedUpdates,
}

/// Update counters of the circuits here that the posting side maintains; the circuits count the others.
#[derive(Debug, Default)]
pub(super) struct PostedUpdates {
    /// Posts multiplied by the subscriptions that they were for.
    pub(super) posted: AtomicU64,
    /// Posted updates that were still waiting when their subscription ended.
    pub(super) dropped: AtomicU64,
}

impl Inbox {
    #[inline]
    pub(super) fn push(&self, message: ReactorMessage) {
        self.handle.push(message);
    }

    pub(super) fn check_rights(&self) {
        if !self.checks_rights.swap(true, Ordering::AcqRel) {
            self.push(ReactorMessage::CheckRights);
        }
    }

    /// Removes the socket of a circuit from the loop.
    pub(super) fn remove_socket(&self, stream: &TcpStream) {
        self.handle.remove_socket(stream);
    }
}

/// The index of the server's sockets in the loop of the first reactor.
const SOCKETS: usize = 0;
/// The index of a circuit in the loop is its [`CircuitKey::index`] plus this.
const FIRST_CIRCUIT: usize = 1;

/// One thread of a server, before it starts.
pub(super) struct Reactor {
    event_loop: EventLoop,
    part: ServerPart,
}

/// The part of a server that one thread serves.
struct ServerPart {
    inbox: Arc<Inbox>,
    source: Arc<dyn Source>,
    payload_bytes_max: usize,
    tally: Arc<UpdateTally>,
    log: Arc<Log>,
    circuits: Slab<(u64, Circuit)>,
    generation_next: u64,
    buffer: Vec<u8>,
    sockets: Option<ServerSockets>,
}

/// What only the first reactor has: the sockets of the server as a whole.
struct ServerSockets {
    bound: BoundSockets,
    responder: Responder,
    shares: SearchShares,
    hosts: Arc<ClientHosts>,
    inboxes: Vec<Arc<Inbox>>,
    log: Arc<Log>,
    inbox_next: usize,
    datagrams: Vec<Datagram>,
    accepts_again_at: Option<Instant>,
    /// Searches or clients were left in a socket for the next turn.
    has_more: bool,
}

impl Reactor {
    /// `spin`: how long to poll for events before sleeping.
    pub(super) fn new(
        source: Arc<dyn Source>,
        payload_bytes_max: usize,
        spin: Duration,
        tally: Arc<UpdateTally>,
        log: Arc<Log>,
    ) -> io::Result<Reactor> {
        let (event_loop, handle) = EventLoop::new(spin)?;
        let inbox = Inbox { handle, checks_rights: AtomicBool::new(false), updates: PostedUpdates::default() };
        let part = ServerPart {
            inbox: Arc::new(inbox),
            source,
            payload_bytes_max,
            tally,
            log,
            circuits: Slab::new(),
            generation_next: 0,
            buffer: vec![0; limit::RECEIVE_BYTES],
            sockets: None,
        };
        Ok(Reactor { event_loop, part })
    }

    pub(super) fn inbox(&self) -> &Arc<Inbox> {
        &self.part.inbox
    }

    /// Makes this the reactor that accepts clients and answers searches.
    pub(super) fn take_sockets(
        &mut self,
        bound: BoundSockets,
        inboxes: Vec<Arc<Inbox>>,
        hosts: Arc<ClientHosts>,
    ) -> io::Result<()> {
        let listeners = bound.listeners.iter().map(AsRawFd::as_raw_fd);
        let search_sockets = bound.search_sockets.iter().map(|search_sockets| search_sockets.socket.as_raw_fd());
        let relay = bound.relay.iter().map(|relay| relay.socket().as_raw_fd());
        for descriptor in listeners.chain(search_sockets).chain(relay) {
            self.part.inbox.handle.add_socket(SOCKETS, &descriptor, Readiness::Readable)?;
        }
        let mut responder = Responder::new(bound.tcp_port, clock::now());
        responder.set_beacon_period_max(bound.beacon_period_max);
        let shares = SearchShares::new(bound.quotas.source_search_bytes, bound.quotas.all_search_bytes);
        self.part.sockets = Some(ServerSockets {
            bound,
            responder,
            shares,
            hosts,
            inboxes,
            log: self.part.log.clone(),
            inbox_next: 0,
            datagrams: Vec::new(),
            accepts_again_at: None,
            has_more: false,
        });
        self.event_loop.schedule().call_soon(SOCKETS);
        Ok(())
    }

    /// Serves until [`ReactorMessage::Stop`], then closes every circuit, so that the PVs know that no client listens
    /// any more.
    pub(super) fn run(self) {
        let Reactor { event_loop, mut part } = self;
        event_loop.run(&mut part);
        part.circuits.drain().for_each(|(_, circuit)| circuit.close());
    }
}

impl LoopHandler for ServerPart {
    type Message = ReactorMessage;

    fn handle(&self) -> &LoopHandle<ReactorMessage> {
        &self.inbox.handle
    }

    fn take_messages(
        &mut self,
        messages: Drain<'_, ReactorMessage>,
        schedule: &mut Schedule,
        now: Now,
    ) -> ControlFlow<()> {
        for message in messages {
            match message {
                ReactorMessage::Accepted(accepted) => {
                    let (stream, quota) = *accepted;
                    if let Some(index) = self.adopt(stream, quota, now) {
                        schedule.call_soon(index);
                    }
                }
                ReactorMessage::Posted { circuit, watch } => {
                    if let Some(found) = self.circuit(circuit) {
                        found.posted(watch);
                        schedule.call_soon(circuit.index + FIRST_CIRCUIT);
                    }
                }
                ReactorMessage::PutDone { circuit, put, result } => {
                    if let Some(found) = self.circuit(circuit) {
                        found.put_done(put, &result, now);
                        schedule.call_soon(circuit.index + FIRST_CIRCUIT);
                    }
                }
                ReactorMessage::CheckRights => {
                    // From now on another signal is another message.
                    self.inbox.checks_rights.store(false, Ordering::Release);
                    for (index, (_, circuit)) in &mut self.circuits {
                        circuit.check_rights();
                        schedule.call_soon(index + FIRST_CIRCUIT);
                    }
                }
                ReactorMessage::Status(answer) => {
                    // The caller may have given up by now.
                    let _ = answer.send(self.circuits.iter().map(|(_, (_, circuit))| circuit.status(now)).collect());
                }
                ReactorMessage::Stop => return ControlFlow::Break(()),
            }
        }
        ControlFlow::Continue(())
    }

    fn read_closed(&mut self, index: usize) {
        let index = index.checked_sub(FIRST_CIRCUIT);
        if let Some((_, circuit)) = index.and_then(|index| self.circuits.get_mut(index)) {
            circuit.peer_has_ended();
        }
    }

    fn turn(&mut self, index: usize, now: Now) -> NextCall {
        let Some(index) = index.checked_sub(FIRST_CIRCUIT) else {
            let Some(sockets) = &mut self.sockets else { return NextCall::OnReady };
            return sockets.turn(&*self.source, &mut self.buffer, now);
        };
        let Some((_, circuit)) = self.circuits.get_mut(index) else { return NextCall::OnReady };
        // After a panic the circuit may have handled a request in part, so it is closed.
        match catch_panic(|| circuit.turn(&*self.source, &mut self.buffer, &self.tally, now)) {
            Ok(Some(next)) => return next,
            Ok(None) => {}
            Err(panic) => circuit.log_panic(&panic, now),
        }
        let (_, circuit) = self.circuits.remove(index);
        circuit.log_end(now);
        circuit.close();
        NextCall::OnReady
    }
}

impl ServerPart {
    fn circuit(&mut self, key: CircuitKey) -> Option<&mut Circuit> {
        let (generation, circuit) = self.circuits.get_mut(key.index)?;
        (*generation == key.generation).then_some(circuit)
    }

    /// Adds a new client; returns its index in the loop.
    fn adopt(&mut self, stream: Arc<TcpStream>, quota: CircuitQuota, now: Now) -> Option<usize> {
        let entry = self.circuits.vacant_entry();
        let key = CircuitKey { index: entry.key(), generation: self.generation_next };
        self.generation_next += 1;
        let index = key.index + FIRST_CIRCUIT;
        if let Err(error) = self.inbox.handle.add_socket(index, &stream, Readiness::ReadableOrWritable) {
            let what = format!("a client is closed, because its socket cannot be watched: {error}");
            self.log.write(Level::Error, &what, stream.peer_addr().ok(), None, now);
            return None;
        }
        let inbox = self.inbox.clone();
        let circuit = Circuit::new(stream, key, inbox, self.payload_bytes_max, quota, self.log.clone(), now);
        entry.insert((key.generation, circuit));
        Some(index)
    }
}

impl ServerSockets {
    /// Accepts clients, answers searches and sends beacons, as many per turn as allowed.
    fn turn(&mut self, source: &dyn Source, buffer: &mut [u8], now: Now) -> NextCall {
        self.has_more = false;
        self.accept(now);
        self.answer(source, buffer, now);
        self.responder.tick(now, &mut self.datagrams);
        self.send_beacons(now);
        if self.has_more {
            return NextCall::Soon;
        }
        let deadlines = [self.responder.deadline(), self.accepts_again_at];
        deadlines.into_iter().flatten().min().map_or(NextCall::OnReady, NextCall::At)
    }

    /// Accepts waiting clients, as many per turn as allowed, and distributes them over the reactors.
    fn accept(&mut self, now: Now) {
        if self.accepts_again_at.is_some_and(|at| now.monotonic < at) {
            return;
        }
        self.accepts_again_at = None;
        for index in 0..self.bound.listeners.len() {
            let mut n_left = limit::TURN_ACCEPTS;
            while n_left > 0 {
                n_left -= 1;
                if !self.hosts.can_admit() {
                    self.accepts_again_at = Some(now.monotonic + limit::EVICTION_PAUSE);
                    break;
                }
                match self.bound.listeners[index].accept() {
                    Ok((stream, peer)) => self.admit(stream, peer, now),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    // Out of descriptors or memory: existing clients keep theirs, new ones wait.
                    Err(error) => {
                        self.log.write(Level::Error, &format!("cannot accept clients: {error}"), None, None, now);
                        self.accepts_again_at = Some(now.monotonic + limit::ACCEPT_PAUSE);
                        break;
                    }
                }
            }
            self.has_more |= n_left == 0;
        }
    }

    /// Gives a client a circuit, or reports to it why not.
    fn admit(&mut self, stream: TcpStream, peer: SocketAddr, now: Now) {
        // The client has already disconnected.
        let Ok(stream) = socket::accepted(stream, self.bound.quotas.silence) else { return };
        let stream = Arc::new(stream);
        let descriptor = usize::try_from(stream.as_raw_fd()).unwrap_or_default();
        let Admission { quota, evicted } = self.hosts.admit(peer, &stream, descriptor);
        let warn = |what: &str, peer| self.log.write(Level::Warning, what, Some(peer), None, now);
        if let Some(evicted) = evicted {
            warn(
                "a client without a channel is closed, because its host has many of them and a new client needs room",
                evicted,
            );
        }
        match quota {
            Ok(quota) => {
                self.inboxes[self.inbox_next].push(ReactorMessage::Accepted(Box::new((stream, quota))));
                self.inbox_next = (self.inbox_next + 1) % self.inboxes.len();
            }
            Err(AdmissionError::Host) => {
                warn("a client is closed, because its host has too many circuits", peer);
                turn_away(&stream, "too many circuits of one host");
            }
            Err(AdmissionError::Descriptors) => {
                warn("a client is closed, because too few descriptors are left", peer);
                turn_away(&stream, "the server has too few descriptors left");
            }
        }
    }

    /// Answers waiting searches.
    fn answer(&mut self, source: &dyn Source, buffer: &mut [u8], now: Now) {
        for (index, SearchSocket { socket, replies_from, is_unicast }) in self.bound.search_sockets.iter().enumerate() {
            let reply_socket = self.bound.search_sockets.get(*replies_from).map_or(socket, |other| &other.socket);
            let mut n_left = limit::TURN_SEARCH_BYTES;
            while n_left > 0 {
                let Ok((n, from)) = socket.recv_from(buffer) else { break };
                // Even an empty datagram has a cost.
                n_left = n_left.saturating_sub(n + message::HEADER_BYTES);
                let is_own = self.bound.relay.as_ref().is_some_and(|relay| relay.is_own(from));
                let is_ignored = is_own || matches!(from.ip(), IpAddr::V4(ip) if self.bound.ignored.contains(&ip));
                if is_ignored {
                    continue;
                }
                if !self.shares.admits(from.ip(), n + message::HEADER_BYTES, now) {
                    self.hosts.count_refused();
                    let what = "searches are ignored, because their host has exceeded its share";
                    self.log.write(Level::Warning, what, Some(from), None, now);
                    continue;
                }
                let mut serves = |name: &str| {
                    self.hosts.count_search();
                    panics::serves(source, name, &self.log, from, now)
                };
                let flaw = self.responder.handle(from, &buffer[..n], &mut serves, &mut self.datagrams);
                if let (true, Some(relay)) = (is_unicast, &mut self.bound.relay) {
                    relay.forward(&mut buffer[..n], from, index);
                }
                if let Some(flaw) = flaw {
                    self.hosts.count_flawed();
                    let (what, name) = match &flaw {
                        DatagramFlaw::Cut => ("a datagram that ends within a message", None),
                        DatagramFlaw::Misaligned => {
                            ("a datagram with a payload that is not a multiple of 8 bytes", None)
                        }
                        DatagramFlaw::NoName(name) => ("a search for an invalid name", Some(name.as_str())),
                    };
                    self.log.write(Level::Warning, what, Some(from), name, now);
                }
                for datagram in self.datagrams.drain(..) {
                    if let Some(to) = datagram.to {
                        // A failure is like a lost datagram: the client searches again.
                        let _ = reply_socket.send_to(&datagram.bytes, to);
                    }
                }
            }
            // The poller does not report again what is left in the socket.
            self.has_more |= n_left == 0;
        }
        self.relay_answers(buffer);
    }

    /// Forwards the replies of this host's other servers to the clients.
    fn relay_answers(&mut self, buffer: &mut [u8]) {
        let Some(relay) = &self.bound.relay else { return };
        let mut n_left = limit::TURN_SEARCH_BYTES;
        while n_left > 0 {
            let Some((n, client, socket_index)) = relay.answer(buffer) else { return };
            n_left = n_left.saturating_sub(n + message::HEADER_BYTES);
            if let Some(search_sockets) = self.bound.search_sockets.get(socket_index) {
                // A failure is like a lost datagram: the client searches again.
                let _ = search_sockets.socket.send_to(&buffer[..n], client);
            }
        }
        self.has_more = true;
    }

    fn send_beacons(&mut self, now: Now) {
        if self.datagrams.is_empty() {
            return;
        }
        // Names that are being resolved are used for the next beacon.
        self.bound.beacon_addresses.refresh(now.monotonic, || {});
        for datagram in self.datagrams.drain(..) {
            for to in self.bound.beacon_addresses.all() {
                // The system knows which interface leads there: use the first socket that accepts the datagram.
                let mut sockets =
                    self.bound.search_sockets.iter().enumerate().filter(|(index, from)| *index == from.replies_from);
                sockets.any(|(_, from)| from.socket.send_to(&datagram.bytes, to).is_ok());
            }
        }
    }
}

/// Sends a client the reason why it is not served. Bytes that cannot be sent at once are lost, as no thread waits for
/// it.
fn turn_away(mut stream: &TcpStream, why: &str) {
    let mut bytes = Vec::new();
    server::refusal(Eca::ALLOCMEM, why, &mut bytes);
    let _ = stream.write(&bytes);
}
