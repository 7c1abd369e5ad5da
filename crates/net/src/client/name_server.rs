//! A circuit to a name server: used only for searches, kept open, and reopened when it is lost.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fodo_data::Now;
use fodo_engine::Cid;
use fodo_engine::search::Transport;
use fodo_lock::{Mutex, Rank};

use super::channel::ChannelCore;
use super::search::{NameServerCircuit, NameServerEvent, ProtocolSearch, SearchProtocol};
use crate::reactor::{EventHandler, NextCall, Reactor, Readiness, Registration};
use crate::stream::{ConnectProgress, WriteOutcome, connect_progress};
use crate::tls::{self, HandshakeProgress, Keychain, TlsStream};
use crate::{limit, socket, stream};

/// The machine of a circuit, for searches over this protocol.
type CircuitOf<P> = <P as SearchProtocol<Arc<ChannelCore>>>::NameServerCircuit;

/// What a circuit needs to begin.
pub(super) type NameServerConfig<P> = <CircuitOf<P> as NameServerCircuit>::Config;

/// Where a name server is, and how it is connected.
pub(super) type NameServerAddress = (SocketAddr, Transport);

/// A circuit to a name server.
pub(super) struct NameServer<P: SearchProtocol<Arc<ChannelCore>>> {
    address: NameServerAddress,
    /// For TLS.
    keychain: Option<Keychain>,
    config: NameServerConfig<P>,
    registration: Registration,
    search: Weak<ProtocolSearch<P>>,
    state: Mutex<State<CircuitOf<P>>>,
}

struct State<C> {
    phase: NameServerPhase<C>,
    /// The pause after the next failure.
    pause: Duration,
}

/// The state of the circuit; the comment of each says what it waits for.
enum NameServerPhase<C> {
    /// For the time of the next attempt.
    Resting(Instant),
    /// For the TCP connection, until this deadline.
    Opening(TcpStream, Instant),
    /// For the handshake of TLS, until this deadline.
    Securing(TcpStream, Box<TlsStream>, Instant),
    /// Until the name server accepts searches, then for nothing.
    Open(Box<NameServerConnection<C>>),
}

/// An open connection to a name server.
struct NameServerConnection<C> {
    stream: TcpStream,
    /// `None` with plain TCP.
    tls: Option<Box<TlsStream>>,
    machine: C,
}

/// Where a name is served, according to a name server.
#[derive(Clone, Copy)]
pub(super) struct NamedServer {
    pub(super) cid: Cid,
    pub(super) address: SocketAddr,
    pub(super) transport: Transport,
    /// The address of the name server, if it has named its own port for TLS and is connected by plain TCP. Where ports are
    /// forwarded or mapped, that port may not be reached.
    pub(super) plain: Option<SocketAddr>,
}

/// The results of a turn, reported after the lock is released.
#[derive(Default)]
pub(super) struct TurnResult {
    pub(super) claims: Vec<NamedServer>,
    pub(super) is_reached: bool,
    pub(super) is_lost: bool,
    /// Why TLS has failed.
    pub(super) tls_failure: Option<String>,
    /// There may be more to read than one turn allows.
    has_more: bool,
}

impl<P: SearchProtocol<Arc<ChannelCore>>> std::fmt::Debug for NameServer<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NameServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl<P: SearchProtocol<Arc<ChannelCore>>> NameServer<P> {
    /// Creates a circuit; it connects with its first turn, which follows soon.
    pub(super) fn start(
        address: NameServerAddress,
        keychain: Option<Keychain>,
        config: NameServerConfig<P>,
        reactor: &Reactor,
        search: Weak<ProtocolSearch<P>>,
        now: Now,
    ) -> Arc<NameServer<P>> {
        let (pause, _) = limit::NAME_SERVER_PAUSES;
        let state = State { phase: NameServerPhase::Resting(now.monotonic), pause };
        let server = Arc::new_cyclic(|server: &Weak<NameServer<P>>| {
            let registration = reactor.add(server.clone());
            let state = Mutex::ranked(Rank::NameServer, state);
            NameServer { address, keychain, config, registration, search, state }
        });
        server.registration.call_soon();
        server
    }

    pub(super) fn address(&self) -> NameServerAddress {
        self.address
    }

    /// Sends the searches of a datagram if the name server accepts them and the buffer of the circuit has space.
    pub(super) fn send_searches(&self, datagram: &P::Datagram) {
        let mut state = self.state.lock();
        let NameServerPhase::Open(connection) = &mut state.phase else { return };
        let machine = &mut connection.machine;
        if machine.is_ready() && machine.pending_bytes() < limit::NAME_SERVER_BYTES {
            machine.send_searches(datagram);
            if connection.flush().is_err() {
                // Its own turn closes it.
                self.registration.call_soon();
            }
        }
    }

    /// Starts to connect.
    fn open(&self) -> io::Result<TcpStream> {
        let stream = socket::connect(self.address.0)?;
        self.registration.add_socket(&stream, Readiness::ReadableOrWritable)?;
        Ok(stream)
    }

    /// What follows the TCP connection: the handshake of TLS, or searches.
    fn connected(&self, stream: TcpStream, now: Now) -> io::Result<NameServerPhase<CircuitOf<P>>> {
        match (self.address, &self.keychain) {
            ((_, Transport::Tcp), _) => Ok(self.secured(stream, None, now)),
            ((address, Transport::Tls), Some(keychain)) => {
                let tls = Box::new(TlsStream::client(keychain, address)?);
                Ok(NameServerPhase::Securing(stream, tls, now.monotonic + limit::TLS_HANDSHAKE))
            }
            ((_, Transport::Tls), None) => Err(io::Error::other("TLS is not configured")),
        }
    }

    fn secured(&self, stream: TcpStream, tls: Option<Box<TlsStream>>, now: Now) -> NameServerPhase<CircuitOf<P>> {
        let mut machine = CircuitOf::<P>::start(&self.config, now);
        if tls.as_ref().is_some_and(|tls| tls.has_own_certificate()) {
            machine.use_certificate();
        }
        NameServerPhase::Open(Box::new(NameServerConnection { stream, tls, machine }))
    }

    fn advance(&self, state: &mut State<CircuitOf<P>>, now: Now) -> TurnResult {
        let mut result = TurnResult::default();
        if let Err(error) = self.try_advance(state, now, &mut result) {
            result.tls_failure = tls::failure(&error).or(result.tls_failure);
            result.is_lost = true;
            // The pause grows with every failure.
            state.phase = NameServerPhase::Resting(now.monotonic + state.pause);
            state.pause = (state.pause * 2).min(limit::NAME_SERVER_PAUSES.1);
        }
        result
    }

    /// Connects, then reads and writes as far as possible without blocking. Fails if the connection cannot be used any more.
    fn try_advance(&self, state: &mut State<CircuitOf<P>>, now: Now, result: &mut TurnResult) -> io::Result<()> {
        let State { phase, pause } = state;
        let mut is_new = false;
        // The stream of the phase before is taken out.
        let taken = |phase: &mut NameServerPhase<_>| std::mem::replace(phase, NameServerPhase::Resting(now.monotonic));
        if matches!(phase, NameServerPhase::Resting(until) if *until <= now.monotonic) {
            *phase = NameServerPhase::Opening(self.open()?, now.monotonic + limit::CONNECT);
        }
        if let NameServerPhase::Opening(stream, until) = phase {
            match connect_progress(stream)? {
                ConnectProgress::Established => {
                    if let NameServerPhase::Opening(stream, _) = taken(phase) {
                        *phase = self.connected(stream, now)?;
                        is_new = true;
                    }
                }
                ConnectProgress::Pending if now.monotonic < *until => {}
                ConnectProgress::Pending => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        if let NameServerPhase::Securing(stream, tls, until) = phase {
            match tls.handshake_until(stream, *until, now.monotonic) {
                Ok(HandshakeProgress::Complete) => {
                    if let NameServerPhase::Securing(stream, tls, _) = taken(phase) {
                        *phase = self.secured(stream, Some(tls), now);
                        is_new = true;
                    }
                }
                Ok(HandshakeProgress::Pending) => {}
                Err(reason) => {
                    result.tls_failure = Some(reason);
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
        }
        if let NameServerPhase::Open(connection) = phase {
            let was_ready = !is_new && connection.machine.is_ready();
            let exchanged = connection.exchange(self.address, now, result);
            if !was_ready && connection.machine.is_ready() {
                *pause = limit::NAME_SERVER_PAUSES.0;
                result.is_reached = true;
            }
            exchanged?;
        }
        Ok(())
    }
}

impl<C: NameServerCircuit> NameServerConnection<C> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.tls {
            None => stream::read(&self.stream, buffer),
            Some(tls) => tls.read(&self.stream, buffer),
        }
    }

    fn flush(&mut self) -> io::Result<WriteOutcome> {
        match &mut self.tls {
            None => stream::flush(&self.stream, &mut self.machine),
            Some(tls) => tls.flush(&self.stream, &mut self.machine),
        }
    }

    /// Reads, handles and writes as far as possible without blocking.
    fn exchange(&mut self, name_server: NameServerAddress, now: Now, result: &mut TurnResult) -> io::Result<()> {
        let (address, over) = name_server;
        let (mut buffer, mut events) = ([0; 8192], Vec::new());
        while let Some(n) = self.read(&mut buffer)? {
            self.machine.received(&buffer[..n], now, &mut events);
            result.has_more = events.len() >= limit::TURN_DATAGRAMS;
            if result.has_more {
                break;
            }
        }
        result.has_more |= self.tls.as_mut().is_some_and(|tls| tls.has_received());
        self.machine.tick(now, &mut events);
        for event in events {
            match event {
                NameServerEvent::Claimed(cid, server) => {
                    let transport = server.transport;
                    let is_own_tls = server.ip.is_none() && (over, transport) == (Transport::Tcp, Transport::Tls);
                    let plain = is_own_tls.then_some(address);
                    let address = server.address(address, over);
                    result.claims.push(NamedServer { cid, address, transport, plain });
                }
                // A new connection may work better.
                NameServerEvent::Failed => return Err(io::ErrorKind::TimedOut.into()),
                NameServerEvent::Other => {}
            }
        }
        self.flush().map(drop)
    }
}

impl<P: SearchProtocol<Arc<ChannelCore>>> EventHandler for NameServer<P> {
    fn on_event(self: Arc<Self>, now: Now) -> NextCall {
        let mut state = self.state.lock();
        let result = self.advance(&mut state, now);
        let turn = match &state.phase {
            NameServerPhase::Resting(until)
            | NameServerPhase::Opening(_, until)
            | NameServerPhase::Securing(.., until) => NextCall::At(*until),
            NameServerPhase::Open(_) if result.has_more => NextCall::Soon,
            NameServerPhase::Open(connection) => connection.machine.deadline().map_or(NextCall::OnReady, NextCall::At),
        };
        drop(state);
        if let Some(search) = self.search.upgrade() {
            search.name_server_report(self.address.0, &result);
        }
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use socket2::{Domain, Socket, Type};

    use fodo_ca::search::Datagram;

    use super::*;
    use crate::ca::search::CaSearch;
    use crate::clock;
    use crate::config::ClientConfig;

    type CaNameServer = NameServer<CaSearch<Arc<ChannelCore>>>;

    /// A name server at this address that only the test drives.
    fn name_server(address: SocketAddr, now: Now) -> Arc<CaNameServer> {
        let reactor = Reactor::start("ends at once").unwrap();
        let config = <fodo_ca::client::Circuit as NameServerCircuit>::config(&ClientConfig::default());
        let (pause, _) = limit::NAME_SERVER_PAUSES;
        let state = State { phase: NameServerPhase::Resting(now.monotonic), pause };
        Arc::new_cyclic(|server: &Weak<CaNameServer>| {
            let registration = reactor.add(server.clone());
            let state = Mutex::ranked(Rank::NameServer, state);
            let address = (address, Transport::Tcp);
            NameServer { address, keychain: None, config, registration, search: Weak::new(), state }
        })
    }

    fn until_open(server: &Arc<CaNameServer>, now: Now) {
        let start = Instant::now();
        while !matches!(server.state.lock().phase, NameServerPhase::Open(..)) {
            assert!(start.elapsed() < Duration::from_secs(10), "it does not connect");
            server.clone().on_event(now);
        }
    }

    /// Waits until the connection has failed; returns the pause before the next attempt.
    fn pause_after_failure(server: &Arc<CaNameServer>, now: Now) -> Duration {
        let start = Instant::now();
        loop {
            match server.clone().on_event(now) {
                NextCall::At(at) if matches!(server.state.lock().phase, NameServerPhase::Resting(_)) => {
                    return at - now.monotonic;
                }
                turn => assert!(start.elapsed() < Duration::from_secs(10), "{turn:?}"),
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_pause_before_a_reconnect_doubles_up_to_its_maximum_until_the_server_is_reached() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        let mut now = clock::now();
        let server = name_server(socket.local_addr().unwrap().as_socket().unwrap(), now);

        let mut pauses = Vec::new();
        for _ in 0..12 {
            let pause = pause_after_failure(&server, now);
            pauses.push(pause);
            now = now + pause;
        }
        socket.listen(1).unwrap();
        until_open(&server, now);
        drop(TcpListener::from(socket).accept().unwrap());
        let after_a_connection = pause_after_failure(&server, now);

        let (first, longest) = limit::NAME_SERVER_PAUSES;
        assert_eq!(pauses[..8], [1, 2, 4, 8, 16, 32, 64, 128].map(|n| first * n));
        assert_eq!(pauses[8..], [longest; 4]);
        assert_eq!(after_a_connection, first);
    }

    #[test]
    fn debug_output_of_a_name_server_contains_its_address() {
        let server = name_server(SocketAddr::from((Ipv4Addr::LOCALHOST, 6064)), clock::now());

        assert!(format!("{server:?}").contains("127.0.0.1:6064"));
    }

    #[test]
    fn searches_that_a_name_server_does_not_read_are_dropped_beyond_a_limit() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let now = clock::now();
        let server = name_server(listener.local_addr().unwrap(), now);
        until_open(&server, now);
        let searches = Datagram { to: None, bytes: vec![0; 16 * 1024] };

        // More than the buffers of the system take.
        (0..2048).for_each(|_| server.send_searches(&searches));

        let state = server.state.lock();
        let NameServerPhase::Open(connection) = &state.phase else { panic!("it is closed") };
        let pending_bytes = connection.machine.pending_bytes();
        let limits = limit::NAME_SERVER_BYTES..limit::NAME_SERVER_BYTES + searches.bytes.len();
        assert!(limits.contains(&pending_bytes), "{pending_bytes}");
    }
}
