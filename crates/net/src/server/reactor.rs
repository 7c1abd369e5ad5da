//! A thread that serves some of the circuits: its loop, and the messages to it.

mod arrival;

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
use fodo_data::{Now, Structure};
use slab::Slab;

use super::bound_sockets::{BoundSockets, SearchSocket};
use super::circuit::{Circuit, CircuitConfig};
use super::first_bytes::{PortProtocol, UndecidedClient};
use super::observer::ClientStatus;
use super::panics::catch_panic;
use super::quota::{Admission, AdmissionError, CircuitQuota, ClientHosts};
use super::search_intake::SearchIntake;
use super::tls_acceptor::{ClientHandshake, TlsAcceptor};
use super::{PutRefusal, Source, UpdateTally};
use crate::ca::circuit::ChannelAccess;
use crate::event_loop::{EventLoop, LoopHandle, LoopHandler, NextCall, Readiness, Schedule};
use crate::log::{Level, Log};
use crate::protocol::{CircuitKind, Protocol};
use crate::pva::circuit::PvAccess;
use crate::pva::responder::PvaSearchSockets;
use crate::{clock, limit, socket};

/// Identifies a circuit of a reactor; a reused index has a new generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CircuitKey {
    index: usize,
    generation: u64,
}

/// Messages from other threads to a reactor.
#[derive(Debug)]
pub(crate) enum ReactorMessage {
    /// A client has connected. Boxed, since posts are frequent and every message has the size of the largest variant.
    Accepted(Box<AcceptedClient>),
    /// A PV that this circuit watches has changed.
    Posted { circuit: CircuitKey, watch: usize },
    /// The processing of a put has ended.
    PutDone { circuit: CircuitKey, put: u64, result: Result<(), PutRefusal> },
    /// The call of a procedure has ended with a result, or with the reason why it failed.
    CallDone { circuit: CircuitKey, call: u64, result: Result<Option<Box<Structure>>, String> },
    /// Access rights may have changed.
    CheckRights,
    /// A request for the status of every client here.
    Status(Sender<Vec<ClientStatus>>),
    /// The server stops.
    Stop,
}

/// A client that has connected.
#[derive(Debug)]
pub(crate) struct AcceptedClient {
    stream: Arc<TcpStream>,
    port: PortProtocol,
    /// Whether only its silence shows its protocol.
    is_assumed: bool,
    quota: CircuitQuota,
}

/// The inbox for messages from other threads, and the counters that they maintain.
///
/// Bounded by its senders: one message per watch, per put or call in progress, per accepted client, per client that sends its
/// identity after its channels, one about access rights, and one for each thread that waits for the status of the
/// clients.
#[derive(Debug)]
pub(crate) struct Inbox {
    handle: LoopHandle<ReactorMessage>,
    checks_rights: AtomicBool,
    pub(super) updates: PostedUpdates,
}

/// Update counters of the circuits here that the posting side maintains; the circuits count the others.
#[derive(Debug, Default)]
pub(crate) struct PostedUpdates {
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
    config: CircuitConfig,
    /// `None` if the server does not use TLS.
    tls: Option<TlsAcceptor>,
    tally: Arc<UpdateTally>,
    log: Arc<Log>,
    circuits: Slab<(u64, ServedCircuit)>,
    generation_next: u64,
    buffer: Vec<u8>,
    sockets: Option<ServerSockets>,
    /// How many handshakes may continue in this pass of the loop.
    n_handshakes_left: usize,
}

/// A circuit of one of the protocols.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a box would cost every turn of the larger one a cache line")]
enum ServedCircuit {
    ChannelAccess(Circuit<ChannelAccess>),
    PvAccess(Circuit<PvAccess>),
    /// The protocol is not known yet.
    Undecided(UndecidedClient),
    /// A client whose handshake of TLS is in progress.
    Handshake(Box<ClientHandshake>),
}

/// Does the same with a circuit of any protocol, and something else, by default nothing, with a client that has none yet.
macro_rules! of_any_protocol {
    ($served:expr, $circuit:ident => $work:expr) => {
        of_any_protocol!($served, $circuit => $work, else {})
    };
    ($served:expr, $circuit:ident => $work:expr, else $otherwise:expr) => {
        match $served {
            ServedCircuit::ChannelAccess($circuit) => $work,
            ServedCircuit::PvAccess($circuit) => $work,
            ServedCircuit::Undecided(_) | ServedCircuit::Handshake(_) => $otherwise,
        }
    };
}

/// What only the first reactor has: the sockets of the server as a whole.
struct ServerSockets {
    bound: BoundSockets,
    responder: Responder,
    intake: SearchIntake,
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
        config: CircuitConfig,
        tls: Option<TlsAcceptor>,
        spin: Duration,
        tally: Arc<UpdateTally>,
        log: Arc<Log>,
    ) -> io::Result<Reactor> {
        let (event_loop, handle) = EventLoop::new(spin)?;
        let inbox = Inbox { handle, checks_rights: AtomicBool::new(false), updates: PostedUpdates::default() };
        let part = ServerPart {
            inbox: Arc::new(inbox),
            source,
            config,
            tls,
            tally,
            log,
            circuits: Slab::new(),
            generation_next: 0,
            buffer: vec![0; limit::RECEIVE_BYTES],
            sockets: None,
            n_handshakes_left: 0,
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
        let listeners = bound.listeners.iter().map(|(_, listener)| listener.as_raw_fd());
        let search_sockets = bound.search_sockets.iter().map(|search_sockets| search_sockets.socket.as_raw_fd());
        let relay = bound.relay.iter().map(|relay| relay.socket().as_raw_fd());
        let pva = bound.pva.iter().flat_map(|pva| pva.descriptors());
        for descriptor in listeners.chain(search_sockets).chain(relay).chain(pva) {
            self.part.inbox.handle.add_socket(SOCKETS, &descriptor, Readiness::Readable)?;
        }
        let mut responder = Responder::new(bound.ports.tcp, clock::now());
        responder.set_beacon_period_max(bound.beacon_period_max);
        let intake = SearchIntake::new(&bound.quotas, hosts.clone(), self.part.log.clone());
        self.part.sockets = Some(ServerSockets {
            bound,
            responder,
            intake,
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
        part.circuits.drain().for_each(|(_, circuit)| of_any_protocol!(circuit, circuit => circuit.close()));
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
        self.n_handshakes_left = limit::PASS_HANDSHAKES;
        for message in messages {
            match message {
                ReactorMessage::Accepted(accepted) => {
                    if let Some(index) = self.adopt(*accepted, now) {
                        schedule.call_soon(index);
                    }
                }
                ReactorMessage::Posted { circuit, watch } => {
                    if let Some(found) = self.circuit(circuit) {
                        of_any_protocol!(found, found => found.posted(watch));
                        schedule.call_soon(circuit.index + FIRST_CIRCUIT);
                    }
                }
                ReactorMessage::PutDone { circuit, put, result } => {
                    if let Some(found) = self.circuit(circuit) {
                        of_any_protocol!(found, found => found.put_done(put, &result, now));
                        schedule.call_soon(circuit.index + FIRST_CIRCUIT);
                    }
                }
                ReactorMessage::CallDone { circuit, call, result } => {
                    if let Some(ServedCircuit::PvAccess(found)) = self.circuit(circuit) {
                        found.call_done(call, result.map(|result| result.map(|result| *result)), now);
                        schedule.call_soon(circuit.index + FIRST_CIRCUIT);
                    }
                }
                ReactorMessage::CheckRights => {
                    // From now on another signal is another message.
                    self.inbox.checks_rights.store(false, Ordering::Release);
                    for (index, (_, circuit)) in &mut self.circuits {
                        of_any_protocol!(circuit, circuit => circuit.check_rights());
                        schedule.call_soon(index + FIRST_CIRCUIT);
                    }
                }
                ReactorMessage::Status(answer) => {
                    let status = self.circuits.iter().filter_map(
                        |(_, (_, circuit))| of_any_protocol!(circuit, circuit => Some(circuit.status(now)), else None),
                    );
                    // The caller may have given up by now.
                    let _ = answer.send(status.collect());
                }
                ReactorMessage::Stop => return ControlFlow::Break(()),
            }
        }
        ControlFlow::Continue(())
    }

    fn read_closed(&mut self, index: usize) {
        let index = index.checked_sub(FIRST_CIRCUIT);
        if let Some((_, circuit)) = index.and_then(|index| self.circuits.get_mut(index)) {
            match circuit {
                ServedCircuit::Handshake(handshake) => handshake.peer_has_ended = true,
                circuit => of_any_protocol!(circuit, circuit => circuit.peer_has_ended()),
            }
        }
    }

    fn turn(&mut self, index: usize, now: Now) -> NextCall {
        let Some(index) = index.checked_sub(FIRST_CIRCUIT) else {
            let Some(sockets) = &mut self.sockets else { return NextCall::OnReady };
            return sockets.turn(&*self.source, &mut self.buffer, now);
        };
        let Some((_, circuit)) = self.circuits.get_mut(index) else { return NextCall::OnReady };
        if let ServedCircuit::Handshake(handshake) = circuit {
            let Some(n_left) = self.n_handshakes_left.checked_sub(1) else { return NextCall::Soon };
            self.n_handshakes_left = n_left;
            let turn = handshake.turn(now);
            return self.after_handshake(index, turn, now);
        }
        of_any_protocol!(circuit, circuit => {
            // After a panic the circuit may have handled a request in part, so it is closed.
            match catch_panic(|| circuit.turn(&*self.source, &mut self.buffer, &self.tally, now)) {
                Ok(Some(next)) => return next,
                Ok(None) => {}
                Err(panic) => circuit.log_panic(&panic, now),
            }
        }, else return self.decide(index, now));
        let (_, circuit) = self.circuits.remove(index);
        of_any_protocol!(circuit, circuit => {
            circuit.log_end(now);
            circuit.close();
        });
        NextCall::OnReady
    }
}

impl ServerPart {
    fn circuit(&mut self, key: CircuitKey) -> Option<&mut ServedCircuit> {
        let (generation, circuit) = self.circuits.get_mut(key.index)?;
        (*generation == key.generation).then_some(circuit)
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
        if let Some(pva) = &mut self.bound.pva {
            self.has_more |= pva.turn(source, &mut self.intake, buffer, now);
        }
        if self.has_more {
            return NextCall::Soon;
        }
        let pva = self.bound.pva.as_ref().and_then(PvaSearchSockets::deadline);
        let deadlines = [self.responder.deadline(), self.accepts_again_at, pva];
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
                let (kind, listener) = &self.bound.listeners[index];
                match listener.accept() {
                    Ok((stream, peer)) => self.admit(stream, *kind, peer, now),
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
    fn admit(&mut self, stream: TcpStream, port: PortProtocol, peer: SocketAddr, now: Now) {
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
                let accepted = AcceptedClient { stream, port, is_assumed: false, quota };
                self.inboxes[self.inbox_next].push(ReactorMessage::Accepted(Box::new(accepted)));
                self.inbox_next = (self.inbox_next + 1) % self.inboxes.len();
            }
            Err(AdmissionError::Host) => {
                warn("a client is closed, because its host has too many circuits", peer);
                turn_away(&stream, port, "too many circuits of one host");
            }
            Err(AdmissionError::Descriptors) => {
                warn("a client is closed, because too few descriptors are left", peer);
                turn_away(&stream, port, "the server has too few descriptors left");
            }
        }
    }

    /// Answers waiting searches.
    fn answer(&mut self, source: &dyn Source, buffer: &mut [u8], now: Now) {
        for (index, SearchSocket { socket, replies_from, unicast }) in self.bound.search_sockets.iter().enumerate() {
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
                if !self.intake.admits(from, n + message::HEADER_BYTES, now) {
                    continue;
                }
                let mut serves = |name: &str| self.intake.serves(source, name, Protocol::Ca, from, now);
                let flaw = self.responder.handle(from, &buffer[..n], &mut serves, &mut self.datagrams);
                if let (Some(_), Some(relay)) = (unicast, &mut self.bound.relay) {
                    relay.forward(&mut buffer[..n], from, index);
                }
                if let Some(flaw) = flaw {
                    let (what, name) = match &flaw {
                        DatagramFlaw::Cut => ("a datagram that ends within a message", None),
                        DatagramFlaw::Misaligned => {
                            ("a datagram with a payload that is not a multiple of 8 bytes", None)
                        }
                        DatagramFlaw::NoName(name) => ("a search for an invalid name", Some(name.as_str())),
                    };
                    self.intake.report_flaw(what, name, from, now);
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
fn turn_away(mut stream: &TcpStream, port: PortProtocol, why: &str) {
    let mut bytes = Vec::new();
    match port {
        PortProtocol::Only(CircuitKind::Ca) => server::refusal(Eca::ALLOCMEM, why, &mut bytes),
        PortProtocol::Only(CircuitKind::Pva) => fodo_pva::server::refusal(why, &mut bytes),
        PortProtocol::Only(CircuitKind::PvaTls) | PortProtocol::FirstByte | PortProtocol::FirstByteOfPva => return,
    }
    let _ = stream.write(&bytes);
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::OwnedFd;

    use fodo_ca::dbr::DbrType;
    use fodo_ca::message::Request;
    use fodo_engine::{Cid, Ioid, Sid};
    use fodo_pva::guid::Guid;

    use super::super::quota::Descriptors;
    use super::*;
    use crate::config::{Quotas, ServerConfig};
    use crate::server::{PvTable, SharedPv};

    fn bound() -> BoundSockets {
        BoundSockets::bind(&ServerConfig { pva: None, ..ServerConfig::isolated() }, &Log::silent()).unwrap()
    }

    fn hosts(descriptors: Descriptors) -> Arc<ClientHosts> {
        Arc::new(ClientHosts::new(Quotas::default(), descriptors))
    }

    /// A reactor with these sockets that only the test drives.
    fn reactor(table: PvTable, bound: BoundSockets, hosts: &Arc<ClientHosts>) -> Reactor {
        reactor_with(Duration::ZERO, table, bound, hosts)
    }

    fn reactor_with(flush_delay: Duration, table: PvTable, bound: BoundSockets, hosts: &Arc<ClientHosts>) -> Reactor {
        let (tally, log) = (Arc::new(UpdateTally::default()), Arc::new(Log::silent()));
        let config = CircuitConfig { payload_bytes_max: 1 << 20, flush_delay, guid: Guid::default(), tls_port: None };
        let mut reactor = Reactor::new(Arc::new(table), config, None, Duration::ZERO, tally, log).unwrap();
        let inboxes = vec![reactor.inbox().clone()];
        reactor.take_sockets(bound, inboxes, hosts.clone()).unwrap();
        reactor
    }

    /// Sends bytes to a circuit, and gives it a turn when they have arrived.
    fn turn_with(
        bytes: &[u8],
        mut client: &TcpStream,
        served: &TcpStream,
        part: &mut ServerPart,
        now: Now,
    ) -> NextCall {
        client.write_all(bytes).unwrap();
        let start = Instant::now();
        while served.peek(&mut [0; 4096]).unwrap_or(0) < bytes.len() {
            assert!(start.elapsed() < Duration::from_secs(10), "the bytes do not arrive");
            std::thread::yield_now();
        }
        part.turn(FIRST_CIRCUIT, now)
    }

    /// A client's stream, the server's end of it, and the address of the client.
    fn connection() -> (TcpStream, Arc<TcpStream>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, peer) = listener.accept().unwrap();
        (client, Arc::new(socket::accepted(stream, limit::CLIENT_GONE).unwrap()), peer)
    }

    /// A client of this protocol, as a listener accepts it.
    fn accepted(served: &Arc<TcpStream>, kind: CircuitKind, quota: CircuitQuota) -> AcceptedClient {
        let (stream, port) = (served.clone(), PortProtocol::Only(kind));
        AcceptedClient { stream, port, is_assumed: false, quota }
    }

    /// The first messages of a client: its version, and a request for the channel with number 0.
    fn creating(name: &str) -> Vec<u8> {
        let mut bytes = encoded(&[Request::Version { priority: 0, minor: 13, sequence: 0 }]);
        let header = |size| Request::CreateChan { cid: Cid(0), minor: 13 }.header(size);
        message::encode_text(&mut bytes, header, name.as_bytes());
        bytes
    }

    fn encoded(requests: &[Request]) -> Vec<u8> {
        let mut bytes = Vec::new();
        requests.iter().for_each(|request| request.encode(&mut bytes));
        bytes
    }

    #[test]
    fn no_client_is_accepted_for_a_while_after_the_system_has_failed_to_accept_one() {
        // Not a listener, so each attempt fails.
        let broken = TcpListener::from(OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap()));
        let bound = BoundSockets { listeners: vec![(PortProtocol::Only(CircuitKind::Ca), broken)], ..bound() };
        let mut reactor = reactor(PvTable::new(), bound, &hosts(Descriptors::of(1 << 20, 20)));
        let sockets = reactor.part.sockets.as_mut().unwrap();
        let now = clock::now();

        let again_at = [Duration::ZERO, limit::ACCEPT_PAUSE / 2, limit::ACCEPT_PAUSE].map(|passed| {
            sockets.accept(now + passed);
            sockets.accepts_again_at.map(|at| at - now.monotonic)
        });

        assert_eq!(again_at, [1, 1, 2].map(|n| Some(limit::ACCEPT_PAUSE * n)));
    }

    // Row 81 of docs/reference/faults.md.
    #[test]
    fn no_client_is_accepted_while_many_evicted_circuits_have_not_ended() {
        let hosts = hosts(Descriptors::of(24, 14));
        let mut reactor = reactor(PvTable::new(), bound(), &hosts);
        let sockets = reactor.part.sockets.as_mut().unwrap();
        let address = sockets.bound.listeners[0].1.local_addr().unwrap();
        let stream = Arc::new(TcpStream::connect(address).unwrap());
        // Each of them but the first evicts the one before it.
        let evicting: Vec<Admission> = (0..3).map(|_| hosts.admit(address, &stream, 0)).collect();
        let now = clock::now();

        sockets.accept(now);
        let while_they_end = sockets.accepts_again_at;
        drop(evicting);
        sockets.accept(now + limit::EVICTION_PAUSE);

        assert_eq!(while_they_end, Some(now.monotonic + limit::EVICTION_PAUSE));
        assert_eq!(sockets.accepts_again_at, None);
    }

    #[test]
    fn clients_beyond_those_of_one_turn_are_accepted_in_the_next() {
        let mut reactor = reactor(PvTable::new(), bound(), &hosts(Descriptors::of(1 << 20, 20)));
        let sockets = reactor.part.sockets.as_mut().unwrap();
        let address = sockets.bound.listeners[0].1.local_addr().unwrap();
        let _clients: Vec<TcpStream> =
            (0..limit::TURN_ACCEPTS * 3 / 2).map(|_| TcpStream::connect(address).unwrap()).collect();
        let now = clock::now();
        let mut turn = || sockets.turn(&PvTable::new(), &mut [0; 2048], now);

        let turns = [turn(), turn()];

        assert_eq!(turns[0], NextCall::Soon);
        assert_ne!(turns[1], NextCall::Soon);
    }

    #[test]
    fn a_client_that_is_closed_may_read_what_is_queued_until_its_time_is_over() {
        let table = PvTable::from([("a", SharedPv::new(vec![0.5; 100_000]))]);
        let hosts = hosts(Descriptors::of(1 << 20, 20));
        let mut reactor = reactor(table, bound(), &hosts);
        let (client, served, peer) = connection();
        // Together they hold a part of the array.
        socket2::SockRef::from(&client).set_recv_buffer_size(16 * 1024).unwrap();
        socket2::SockRef::from(&*served).set_send_buffer_size(16 * 1024).unwrap();
        let quota = hosts.admit(peer, &served, 0).quota.unwrap();
        let (part, now) = (&mut reactor.part, clock::now());
        assert_eq!(part.adopt(accepted(&served, CircuitKind::Ca, quota), now), Some(FIRST_CIRCUIT));

        turn_with(&creating("a"), &client, &served, part, now);
        let read = Request::ReadNotify { dbr: DbrType(6), count: 0, sid: Sid(0), ioid: Ioid(1) };
        turn_with(&encoded(&[read]), &client, &served, part, now);
        let closing = turn_with(&[0xff; 64], &client, &served, part, now);
        let (n_while_closing, shown) = (part.circuits.len(), format!("{:?}", part.circuits[0].1));
        part.turn(FIRST_CIRCUIT, now + limit::CLOSING);

        assert_eq!((closing, n_while_closing), (NextCall::At(now.monotonic + limit::CLOSING), 1));
        assert!(part.circuits.is_empty());
        assert!(shown.contains(&peer.to_string()), "{shown}");
    }

    /// The number of bytes that a client has received and not read.
    fn n_received(client: &TcpStream) -> usize {
        client.set_nonblocking(true).unwrap();
        let n = client.peek(&mut [0; 1 << 16]).unwrap_or(0);
        client.set_nonblocking(false).unwrap();
        n
    }

    #[test]
    fn replies_wait_for_the_flush_delay_unless_there_are_many() {
        let delay = Duration::from_millis(5);
        let table = PvTable::from([("a", SharedPv::new(vec![0.5; 1000]))]);
        let hosts = hosts(Descriptors::of(1 << 20, 20));
        let mut reactor = reactor_with(delay, table, bound(), &hosts);
        let (client, served, peer) = connection();
        let quota = hosts.admit(peer, &served, 0).quota.unwrap();
        let (part, now) = (&mut reactor.part, clock::now());
        assert_eq!(part.adopt(accepted(&served, CircuitKind::Ca, quota), now), Some(FIRST_CIRCUIT));
        let read = |count| encoded(&[Request::ReadNotify { dbr: DbrType(6), count, sid: Sid(0), ioid: Ioid(1) }]);

        let first = turn_with(&creating("a"), &client, &served, part, now);
        let nearly = now + (delay - Duration::from_nanos(1));
        let second = turn_with(&read(10), &client, &served, part, nearly);
        let n_before = n_received(&client);
        part.turn(FIRST_CIRCUIT, now + delay);
        let n_after = n_received(&client);
        // Two of them have less than 16 KiB, three of them more.
        turn_with(&read(1000).repeat(2), &client, &served, part, now + delay);
        let n_of_two = n_received(&client);
        turn_with(&read(1000), &client, &served, part, now + delay);

        assert_eq!([first, second], [NextCall::At((now + delay).monotonic); 2]);
        assert!(n_before == 0 && n_after > 100, "{n_before} {n_after}");
        assert_eq!(n_of_two, n_after);
        assert_eq!(n_received(&client), n_after + 3 * (16 + 8000));
    }

    #[test]
    fn a_server_of_pvaccess_greets_a_client_after_the_flush_delay() {
        let delay = Duration::from_millis(5);
        let hosts = hosts(Descriptors::of(1 << 20, 20));
        let mut reactor = reactor_with(delay, PvTable::new(), bound(), &hosts);
        let (client, served, peer) = connection();
        let quota = hosts.admit(peer, &served, 0).quota.unwrap();
        let (part, now) = (&mut reactor.part, clock::now());
        assert_eq!(part.adopt(accepted(&served, CircuitKind::Pva, quota), now), Some(FIRST_CIRCUIT));

        let turn = part.turn(FIRST_CIRCUIT, now);
        let n_before = n_received(&client);
        part.turn(FIRST_CIRCUIT, now + delay);

        assert_eq!((turn, n_before), (NextCall::At((now + delay).monotonic), 0));
        assert!(n_received(&client) > 8);
    }

    #[test]
    fn a_client_whose_message_stays_incomplete_is_closed_at_the_timeout_and_not_before() {
        let hosts = hosts(Descriptors::of(1 << 20, 20));
        let mut reactor = reactor(PvTable::from([("a", SharedPv::new(0.5))]), bound(), &hosts);
        let (client, served, peer) = connection();
        let quota = hosts.admit(peer, &served, 0).quota.unwrap();
        let (part, now) = (&mut reactor.part, clock::now());
        assert_eq!(part.adopt(accepted(&served, CircuitKind::Ca, quota), now), Some(FIRST_CIRCUIT));
        // A client with a channel may be silent.
        turn_with(&creating("a"), &client, &served, part, now);
        let due = now + fodo_ca::limit::MESSAGE_TIMEOUT;

        let half = turn_with(&[0; 8], &client, &served, part, now);
        let early = part.turn(FIRST_CIRCUIT, now + (fodo_ca::limit::MESSAGE_TIMEOUT - Duration::from_nanos(1)));
        let n_before = part.circuits.len();
        part.turn(FIRST_CIRCUIT, due);

        assert_eq!([half, early], [NextCall::At(due.monotonic); 2]);
        assert_eq!((n_before, part.circuits.len()), (1, 0));
    }
}
