//! Diagnoses why a PV cannot be reached: performs each step of connecting separately and reports its result.
//!
//! A working client hides these steps, and a failing one cannot report which of them failed. Therefore this module does
//! not use a running client: it opens its own sockets, blocks the calling thread, and ends.

use std::collections::HashSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use fodo_ca::client::{Circuit, Config, DisconnectReason, Event, RejectedRequest};
use fodo_ca::dbr::{AttributeLevel, DbrType};
use fodo_ca::message::{MINOR_VERSION, Request};
use fodo_ca::search::{Claim, Searcher};
use fodo_engine::{Cid, Ioid, Rights, Sid};

use super::{ChannelFacts, Refusal};
use crate::config::{ClientConfig, Host};
use crate::{Reading, clock, interfaces, limit, socket};

/// The number of the only channel.
const CID: Cid = Cid(1);
/// The number of the only get.
const IOID: Ioid = Ioid(1);

/// The result of each step of connecting to a PV.
///
/// See the example of [`Diagnosis::run`].
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// The name that was searched for.
    pub pv: String,
    /// The addresses that were searched.
    pub searched: Vec<SearchedAddress>,
    /// The servers that claimed it, in the order of their replies. More than one is a configuration error of the plant.
    pub claims: Vec<ClaimingServer>,
    /// How long the search waited for claims.
    pub waited: Duration,
}

/// One address that was searched.
///
/// See the example of [`Diagnosis::run`].
#[derive(Clone, Debug, PartialEq)]
pub struct SearchedAddress {
    /// The address.
    pub address: SocketAddr,
    /// How it was searched.
    pub method: SearchMethod,
    /// The result.
    pub result: SearchResult,
}

/// How a name is searched for.
///
/// See the example of [`Diagnosis::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchMethod {
    /// By a datagram, to all servers that it reaches.
    Datagram,
    /// On a circuit to a name server.
    NameServer,
}

/// The result of a search request.
///
/// See the example of [`Diagnosis::run`].
#[derive(Clone, Debug, PartialEq)]
pub enum SearchResult {
    /// It was sent; whether it was received is unknown.
    Sent,
    /// The host reported that no program listens on this port.
    PortClosed,
    /// This host could not send it.
    NotSent {
        /// The system's error text.
        reason: String,
    },
}

/// A server that claimed the name.
///
/// See the example of [`Diagnosis::run`].
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimingServer {
    /// The address at which it accepts circuits.
    pub server: SocketAddr,
    /// How long its reply took.
    pub after: Duration,
    /// Which step it reached.
    pub result: ClaimResult,
}

/// Which step was reached with a server that claimed the name.
///
/// See the example of [`Diagnosis::run`].
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimResult {
    /// No TCP connection.
    NotConnected {
        /// The system's error text; a timeout if there was no reply at all.
        reason: String,
        /// Whether the host actively refused; a firewall that drops packets does not.
        is_refused: bool,
    },
    /// Connected, but no reply about the channel.
    Silent {
        /// How long the client waited.
        after: Duration,
    },
    /// The server closed the connection, or the network failed.
    Lost {
        /// What happened.
        reason: String,
    },
    /// The server sent an invalid message.
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// The server claimed the name but has no such channel.
    Refused,
    /// The channel exists.
    Channel {
        /// What the server has reported about it.
        facts: ChannelFacts,
        /// How long connecting and creating the channel took.
        after: Duration,
        /// Its value. [`Refusal::ReadAccess`], without a request, if reading is not allowed; `None` if no reply was
        /// received.
        value: Option<Result<Box<Reading>, Refusal>>,
    },
}

impl Diagnosis {
    /// Searches for `pv` as a client with this configuration would, then connects to every server that claims it. Reads
    /// the value once; writes nothing.
    ///
    /// Blocks for `timeout` for each silent name server. The search blocks for `timeout` if no server claims the
    /// name; otherwise it waits another third of a second after the first claim, so that a second server can claim it
    /// too. Then it blocks for at most `timeout` for each server. Fails if the system provides no socket.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (server, _context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// # let config = server.client_config();
    /// use std::time::Duration;
    ///
    /// use fodo_net::client::diagnosis::{ClaimResult, Diagnosis};
    ///
    /// let diagnosis = Diagnosis::run("demo:gap", &config, Duration::from_secs(5))?;
    /// for searched in &diagnosis.searched {
    ///     println!("searched at {}: {:?}", searched.address, searched.result);
    /// }
    /// for claim in &diagnosis.claims {
    ///     match &claim.result {
    ///         ClaimResult::Channel { facts, .. } => println!("{} serves {:?}", claim.server, facts.kind),
    ///         failed => println!("{} claims the name, but: {failed:?}", claim.server),
    ///     }
    /// }
    /// # assert!(matches!(diagnosis.claims[..], [ref claim] if matches!(claim.result, ClaimResult::Channel { .. })));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn run(pv: &str, config: &ClientConfig, timeout: Duration) -> io::Result<Diagnosis> {
        let start = Instant::now();
        let mut searched = probe_ports(config);
        let (queried, known) = query_name_servers(pv, config, timeout);
        let found = search(pv, config, &mut searched, known, timeout)?;
        searched.extend(queried);
        let waited = start.elapsed();
        let claims = found
            .into_iter()
            .map(|(server, after)| ClaimingServer {
                server,
                after,
                result: connect_and_read(pv, server, config, timeout),
            })
            .collect();
        Ok(Diagnosis { pv: pv.to_owned(), searched, claims, waited })
    }
}

/// Tests whether a program listens at each address: sends a datagram without a search and checks for an ICMP error.
/// Hosts do not answer broadcasts that way.
fn probe_ports(config: &ClientConfig) -> Vec<SearchedAddress> {
    let mut addresses = config.search_addresses.clone();
    addresses.extend(config.search_hosts.iter().filter_map(Host::resolved));
    addresses.extend(config.interface_search_port.map(interfaces::search_addresses).unwrap_or_default());
    let mut is_new = HashSet::new();
    addresses.retain(|address| is_new.insert(*address));
    let knocks: Vec<_> = addresses.iter().map(|&address| (address, probe_port(address, config))).collect();
    std::thread::sleep(limit::PROBE_WAIT);
    let outcome = |socket: io::Result<UdpSocket>| match socket.and_then(|socket| socket.recv(&mut [0; 64])) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => SearchResult::PortClosed,
        Err(error) if error.kind() != ErrorKind::WouldBlock => SearchResult::NotSent { reason: error.to_string() },
        _ => SearchResult::Sent,
    };
    knocks
        .into_iter()
        .map(|(address, socket)| SearchedAddress { address, method: SearchMethod::Datagram, result: outcome(socket) })
        .collect()
}

fn probe_port(address: SocketAddr, config: &ClientConfig) -> io::Result<UdpSocket> {
    let mut bytes = Vec::new();
    Request::Version { priority: 0, minor: u32::from(MINOR_VERSION), sequence: 0 }.encode(&mut bytes);
    let socket = socket::search_udp(config.multicast_ttl)?;
    socket.connect(address)?;
    socket.send(&bytes)?;
    Ok(socket)
}

/// A server and how long its claim took.
type FoundServer = (SocketAddr, Duration);

/// Asks each name server; returns the servers that they report for the name.
fn query_name_servers(pv: &str, config: &ClientConfig, timeout: Duration) -> (Vec<SearchedAddress>, Vec<FoundServer>) {
    let (mut searched, mut found) = (Vec::new(), Vec::new());
    for address in config.name_servers.iter().filter_map(Host::resolved) {
        let start = Instant::now();
        let outcome = match query_name_server(pv, address, config, timeout) {
            Ok(server) => {
                found.extend(server.map(|server| (server, start.elapsed())));
                SearchResult::Sent
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => SearchResult::PortClosed,
            Err(error) => SearchResult::NotSent { reason: error.to_string() },
        };
        searched.push(SearchedAddress { address, method: SearchMethod::NameServer, result: outcome });
    }
    (searched, found)
}

/// Returns `None` if it does not know the name or does not reply.
fn query_name_server(
    pv: &str,
    address: SocketAddr,
    config: &ClientConfig,
    timeout: Duration,
) -> io::Result<Option<SocketAddr>> {
    let end = Instant::now() + timeout;
    let stream = TcpStream::connect_timeout(&address, timeout.max(Duration::from_millis(1)))?;
    let mut call = BlockingCircuit { stream, circuit: Circuit::new(&identity(config), clock::now()), end };
    let (mut searcher, mut datagrams) = (Searcher::new(1), Vec::new());
    searcher.add(CID, pv, clock::now());
    searcher.tick(clock::now(), &mut datagrams);
    datagrams.iter().for_each(|datagram| call.circuit.search(datagram.searches()));
    let claimed = call.until(|event| match event {
        // A claim without an address means the name server itself.
        Event::Claimed { server, .. } => Some(server.unwrap_or(address)),
        _ => None,
    });
    match claimed {
        Ok(server) => Ok(Some(server)),
        Err(CallError::Silent) => Ok(None),
        Err(CallError::Lost(reason) | CallError::Invalid(reason)) => Err(io::Error::other(reason)),
    }
}

/// The servers that claim the name, each once, with the time that took; `found` are already known.
fn search(
    pv: &str,
    config: &ClientConfig,
    searched: &mut [SearchedAddress],
    mut found: Vec<FoundServer>,
    timeout: Duration,
) -> io::Result<Vec<FoundServer>> {
    let socket = socket::search_udp(config.multicast_ttl)?;
    socket.set_nonblocking(false)?;
    let start = Instant::now();
    let mut end = start + if found.is_empty() { timeout } else { limit::SECOND_CLAIM };
    let mut searcher = Searcher::new(u64::from(std::process::id()));
    searcher.add(CID, pv, clock::now());
    let mut datagrams = Vec::new();
    let mut buffer = [0; 8192];
    while Instant::now() < end {
        searcher.tick(clock::now(), &mut datagrams);
        for datagram in datagrams.drain(..) {
            for one in searched.iter_mut() {
                for address in interfaces::with_loopback_broadcast(&[one.address]) {
                    if let Err(error) = socket.send_to(&datagram.bytes, address) {
                        one.result = SearchResult::NotSent { reason: error.to_string() };
                    }
                }
            }
        }
        let next = searcher.deadline().map_or(end, |due| due.min(end));
        let wait = next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(wait))?;
        let Ok((n, from)) = socket.recv_from(&mut buffer) else { continue };
        for claim in claims(pv, from, buffer.get(..n).unwrap_or_default()) {
            if found.is_empty() {
                end = end.min(Instant::now() + limit::SECOND_CLAIM);
            }
            if found.len() < limit::CLAIMS && !found.iter().any(|(server, _)| *server == claim.server) {
                found.push((claim.server, start.elapsed()));
            }
        }
    }
    Ok(found)
}

/// The claims in one datagram. The searcher that sends would take the first claim and not report a second one.
fn claims(pv: &str, from: SocketAddr, bytes: &[u8]) -> Vec<Claim> {
    let mut searcher = Searcher::new(1);
    searcher.add(CID, pv, clock::now());
    let mut claims = Vec::new();
    searcher.handle(from, bytes, clock::now(), &mut claims);
    claims
}

fn connect_and_read(pv: &str, server: SocketAddr, config: &ClientConfig, timeout: Duration) -> ClaimResult {
    let start = Instant::now();
    let connected = TcpStream::connect_timeout(&server, timeout.max(Duration::from_millis(1)));
    let stream = match connected {
        Ok(stream) => stream,
        Err(error) => {
            let is_refused = error.kind() == ErrorKind::ConnectionRefused;
            return ClaimResult::NotConnected { reason: error.to_string(), is_refused };
        }
    };
    let mut call =
        BlockingCircuit { stream, circuit: Circuit::new(&identity(config), clock::now()), end: start + timeout };
    call.circuit.create(CID, pv, clock::now());
    let mut rights = Rights { read: false, write: false };
    let created = call.until(|event| match event {
        Event::Rights { rights: given, .. } => {
            rights = given;
            None
        }
        Event::Created { sid, native, count, .. } => Some(Ok((sid, native, count))),
        Event::CreateFailed { .. } | Event::ChannelGone { .. } => Some(Err(ClaimResult::Refused)),
        _ => None,
    });
    let (sid, native, count) = match created {
        Ok(Ok(created)) => created,
        Ok(Err(found)) => return found,
        Err(CallError::Silent) => return ClaimResult::Silent { after: start.elapsed() },
        Err(CallError::Lost(reason)) => return ClaimResult::Lost { reason },
        Err(CallError::Invalid(reason)) => return ClaimResult::Invalid { reason },
    };
    let after = start.elapsed();
    let Some(kind) = native.kind() else {
        return ClaimResult::Invalid { reason: format!("the channel has type {native}, which is not a value type") };
    };
    let facts = ChannelFacts { server, kind, count_max: count, may_read: rights.read, may_write: rights.write };
    let value = if rights.read {
        call.read(sid, DbrType::of(kind, AttributeLevel::Time))
    } else {
        Some(Err(Refusal::ReadAccess))
    };
    ClaimResult::Channel { facts, after, value }
}

fn identity(config: &ClientConfig) -> Config {
    Config {
        priority: 0,
        user: super::user(config),
        host: super::host(),
        echo_after: config.echo_after,
        payload_bytes_max: config.payload_bytes_max,
    }
}

/// A circuit that one thread drives, blocking, until a deadline.
struct BlockingCircuit {
    stream: TcpStream,
    circuit: Circuit,
    end: Instant,
}

/// Why a call returned no result.
enum CallError {
    /// Timed out.
    Silent,
    /// The connection is lost.
    Lost(String),
    /// The server has sent an invalid message.
    Invalid(String),
}

impl BlockingCircuit {
    fn read(&mut self, sid: Sid, dbr: DbrType) -> Option<Result<Box<Reading>, Refusal>> {
        self.circuit.read(sid, dbr, 0, IOID);
        let answer = self.until(|event| match event {
            Event::ReadDone { ioid: IOID, result, .. } => Some(result.map(Box::new).map_err(Refusal::from)),
            Event::Complaint { about: RejectedRequest::Operation(IOID), status, text } => {
                Some(Err(Refusal::of(status, text)))
            }
            _ => None,
        });
        answer.ok()
    }

    /// Sends pending messages and handles events until one of them yields a result.
    fn until<T>(&mut self, mut give: impl FnMut(Event) -> Option<T>) -> Result<T, CallError> {
        let mut buffer = vec![0; limit::RECEIVE_BYTES];
        let mut events = Vec::new();
        loop {
            self.send()?;
            let left = self.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(CallError::Silent);
            }
            self.stream.set_read_timeout(Some(left)).map_err(lost)?;
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(CallError::Lost("the server closed the connection".into())),
                Ok(n) => self.circuit.received(buffer.get(..n).unwrap_or_default(), clock::now(), &mut events),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(lost(error)),
            }
            for event in events.drain(..) {
                if let Event::Closed(DisconnectReason::Malformed(what)) = event {
                    return Err(CallError::Invalid(what.to_owned()));
                }
                if let Some(given) = give(event) {
                    return Ok(given);
                }
            }
        }
    }

    fn send(&mut self) -> Result<(), CallError> {
        loop {
            let ready = self.circuit.ready();
            let n = ready.len();
            if n == 0 {
                return Ok(());
            }
            self.stream.write_all(ready).map_err(lost)?;
            self.circuit.sent(n);
        }
    }
}

fn lost(error: io::Error) -> CallError {
    CallError::Lost(error.to_string())
}
