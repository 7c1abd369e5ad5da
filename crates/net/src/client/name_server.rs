//! A circuit to a name server: used only for searches, kept open, and reopened when it is lost.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use fodo_ca::Cid;
use fodo_ca::client::{Circuit as Machine, Config, Event};
use fodo_data::Now;
use mio::unix::SourceFd;
use mio::{Interest, Token};

use super::reactor::{EventHandler, NextCall, Reactor};
use super::search::Search;
use crate::sync::lock;
use crate::{limit, socket};

/// A circuit to a name server.
pub(super) struct NameServer {
    address: SocketAddr,
    config: Config,
    reactor: Arc<Reactor>,
    search: Weak<Search>,
    state: Mutex<State>,
}

struct State {
    phase: NameServerPhase,
    token: Option<Token>,
    /// The pause after the next failure.
    pause: Duration,
}

/// The state of the circuit; the comment of each says what it waits for.
enum NameServerPhase {
    /// For the time of the next attempt.
    Resting(Instant),
    /// For the TCP connection, until this deadline.
    Opening(TcpStream, Instant),
    /// For nothing: searches can be sent.
    Open(TcpStream, Box<Machine>),
}

/// The results of a turn, reported after the lock is released.
#[derive(Default)]
struct TurnResult {
    claims: Vec<(Cid, SocketAddr)>,
    is_reached: bool,
    is_lost: bool,
    /// There may be more to read than one turn allows.
    has_more: bool,
}

impl std::fmt::Debug for NameServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NameServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl NameServer {
    /// Creates a circuit; it connects with its first turn, which follows soon.
    pub(super) fn start(
        address: SocketAddr,
        config: Config,
        reactor: &Arc<Reactor>,
        search: Weak<Search>,
        now: Now,
    ) -> Arc<NameServer> {
        let (pause, _) = limit::NAME_SERVER_PAUSES;
        let state = State { phase: NameServerPhase::Resting(now.monotonic), token: None, pause };
        let reactor = reactor.clone();
        let server = Arc::new(NameServer { address, config, reactor, search, state: Mutex::new(state) });
        let driven: Weak<dyn EventHandler> = Arc::downgrade(&server) as Weak<dyn EventHandler>;
        let token = server.reactor.add(driven);
        lock(&server.state).token = Some(token);
        server.reactor.call_soon(token);
        server
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends the searches of a datagram if the circuit is open and its buffer has space.
    pub(super) fn send_searches(&self, searches: &[u8]) {
        let mut state = lock(&self.state);
        let NameServerPhase::Open(stream, machine) = &mut state.phase else { return };
        if machine.pending_bytes() < limit::NAME_SERVER_BYTES {
            machine.search(searches);
            if flush(stream, machine).is_err()
                && let Some(token) = state.token
            {
                // Its own turn closes it.
                self.reactor.call_soon(token);
            }
        }
    }

    /// Starts to connect.
    fn open(&self, state: &mut State, now: Now) {
        let opened = socket::connect(self.address).and_then(|stream| {
            let Some(token) = state.token else { return Err(io::ErrorKind::NotConnected.into()) };
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.reactor.registry().register(&mut SourceFd(&stream.as_raw_fd()), token, interest)?;
            Ok(stream)
        });
        match opened {
            Ok(stream) => state.phase = NameServerPhase::Opening(stream, now.monotonic + limit::CONNECT),
            Err(_) => self.rest(state, now),
        }
    }

    /// Closes the connection and retries after a pause that grows with every failure.
    fn rest(&self, state: &mut State, now: Now) {
        if let NameServerPhase::Opening(stream, _) | NameServerPhase::Open(stream, _) = &state.phase {
            // Closing the socket also deregisters it, so an error does not matter.
            let _ = self.reactor.registry().deregister(&mut SourceFd(&stream.as_raw_fd()));
        }
        state.phase = NameServerPhase::Resting(now.monotonic + state.pause);
        state.pause = (state.pause * 2).min(limit::NAME_SERVER_PAUSES.1);
    }

    fn advance(&self, state: &mut State, now: Now) -> TurnResult {
        let mut result = TurnResult::default();
        if matches!(state.phase, NameServerPhase::Resting(until) if until <= now.monotonic) {
            self.open(state, now);
            result.is_lost = matches!(state.phase, NameServerPhase::Resting(_));
        }
        if let NameServerPhase::Opening(stream, until) = &state.phase {
            let has_failed = stream.take_error().ok().flatten().is_some() || *until <= now.monotonic;
            let is_open = stream.peer_addr().is_ok();
            if has_failed {
                self.rest(state, now);
                result.is_lost = true;
            } else if is_open
                && let NameServerPhase::Opening(stream, _) =
                    std::mem::replace(&mut state.phase, NameServerPhase::Resting(now.monotonic))
            {
                state.phase = NameServerPhase::Open(stream, Box::new(Machine::new(&self.config, now)));
                state.pause = limit::NAME_SERVER_PAUSES.0;
                result.is_reached = true;
            }
        }
        if let NameServerPhase::Open(stream, machine) = &mut state.phase
            && exchange(stream, machine, self.address, now, &mut result).is_err()
        {
            self.rest(state, now);
            result.is_lost = true;
        }
        result
    }
}

/// Reads, handles and writes as far as possible without blocking.
fn exchange(
    stream: &mut TcpStream,
    machine: &mut Machine,
    server: SocketAddr,
    now: Now,
    result: &mut TurnResult,
) -> io::Result<()> {
    let (mut buffer, mut events) = ([0; 8192], Vec::new());
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => machine.received(&buffer[..n], now, &mut events),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        result.has_more = events.len() >= limit::TURN_DATAGRAMS;
        if result.has_more {
            break;
        }
    }
    machine.tick(now, &mut events);
    for event in events {
        match event {
            Event::Claimed { cid, server: claimed } => result.claims.push((cid, claimed.unwrap_or(server))),
            // A new connection may work better.
            Event::Unresponsive | Event::Closed(_) => return Err(io::ErrorKind::TimedOut.into()),
            // This circuit has no channels.
            _ => {}
        }
    }
    flush(stream, machine)
}

/// Writes pending bytes until the socket accepts no more.
fn flush(stream: &mut TcpStream, machine: &mut Machine) -> io::Result<()> {
    loop {
        let ready = machine.ready();
        if ready.is_empty() {
            return Ok(());
        }
        match stream.write(ready) {
            Ok(n) => machine.sent(n),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl EventHandler for NameServer {
    fn on_event(self: Arc<Self>, now: Now) -> NextCall {
        let mut state = lock(&self.state);
        let result = self.advance(&mut state, now);
        let turn = match &state.phase {
            NameServerPhase::Resting(until) | NameServerPhase::Opening(_, until) => NextCall::At(*until),
            NameServerPhase::Open(..) if result.has_more => NextCall::Soon,
            NameServerPhase::Open(_, machine) => machine.deadline().map_or(NextCall::OnReady, NextCall::At),
        };
        drop(state);
        if let Some(search) = self.search.upgrade() {
            search.name_server_report(self.address, &result.claims, result.is_reached, result.is_lost);
        }
        turn
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(token) = state.token.take() {
            self.reactor.remove(token);
        }
    }
}
