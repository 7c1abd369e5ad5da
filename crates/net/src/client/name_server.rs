//! A circuit to a name server: used only for searches, kept open, and reopened when it is lost.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fodo_ca::client::{Circuit as Machine, Config, Event};
use fodo_data::Now;
use fodo_engine::Cid;
use fodo_lock::{Mutex, Rank};

use super::search::Search;
use crate::reactor::{EventHandler, NextCall, Reactor, Readiness, Registration};
use crate::stream::{ConnectProgress, connect_progress};
use crate::{limit, socket, stream};

/// A circuit to a name server.
pub(super) struct NameServer {
    address: SocketAddr,
    config: Config,
    registration: Registration,
    search: Weak<Search>,
    state: Mutex<State>,
}

struct State {
    phase: NameServerPhase,
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
        reactor: &Reactor,
        search: Weak<Search>,
        now: Now,
    ) -> Arc<NameServer> {
        let (pause, _) = limit::NAME_SERVER_PAUSES;
        let state = State { phase: NameServerPhase::Resting(now.monotonic), pause };
        let server = Arc::new_cyclic(|server: &Weak<NameServer>| {
            let registration = reactor.add(server.clone());
            NameServer { address, config, registration, search, state: Mutex::ranked(Rank::NameServer, state) }
        });
        server.registration.call_soon();
        server
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends the searches of a datagram if the circuit is open and its buffer has space.
    pub(super) fn send_searches(&self, searches: &[u8]) {
        let mut state = self.state.lock();
        let NameServerPhase::Open(stream, machine) = &mut state.phase else { return };
        if machine.pending_bytes() < limit::NAME_SERVER_BYTES {
            machine.search(searches);
            if stream::flush(stream, &mut **machine).is_err() {
                // Its own turn closes it.
                self.registration.call_soon();
            }
        }
    }

    /// Starts to connect.
    fn open(&self, state: &mut State, now: Now) {
        let opened = socket::connect(self.address).and_then(|stream| {
            self.registration.add_socket(&stream, Readiness::ReadableOrWritable)?;
            Ok(stream)
        });
        match opened {
            Ok(stream) => state.phase = NameServerPhase::Opening(stream, now.monotonic + limit::CONNECT),
            Err(_) => self.rest(state, now),
        }
    }

    /// Closes the connection and retries after a pause that grows with every failure.
    fn rest(&self, state: &mut State, now: Now) {
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
            match connect_progress(stream) {
                Ok(ConnectProgress::Established) => {
                    if let NameServerPhase::Opening(stream, _) =
                        std::mem::replace(&mut state.phase, NameServerPhase::Resting(now.monotonic))
                    {
                        state.phase = NameServerPhase::Open(stream, Box::new(Machine::new(&self.config, now)));
                        state.pause = limit::NAME_SERVER_PAUSES.0;
                        result.is_reached = true;
                    }
                }
                Ok(ConnectProgress::Pending) if now.monotonic < *until => {}
                Ok(ConnectProgress::Pending) | Err(_) => {
                    self.rest(state, now);
                    result.is_lost = true;
                }
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
    stream: &TcpStream,
    machine: &mut Machine,
    server: SocketAddr,
    now: Now,
    result: &mut TurnResult,
) -> io::Result<()> {
    let (mut buffer, mut events) = ([0; 8192], Vec::new());
    while let Some(n) = stream::read(stream, &mut buffer)? {
        machine.received(&buffer[..n], now, &mut events);
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
    stream::flush(stream, machine).map(drop)
}

impl EventHandler for NameServer {
    fn on_event(self: Arc<Self>, now: Now) -> NextCall {
        let mut state = self.state.lock();
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
