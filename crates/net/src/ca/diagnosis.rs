//! The steps of connecting to a PV of Channel Access, for a [diagnosis](crate::client::diagnosis).

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use fodo_ca::client::{Circuit, DisconnectReason, Event, RejectedRequest};
use fodo_ca::dbr::{AttributeLevel, DbrType};
use fodo_ca::message::{MINOR_VERSION, Request};
use fodo_ca::search::{Claim, NameSearcher, Searcher};
use fodo_engine::search::Transport;
use fodo_engine::{Cid, Ioid, Rights, Sid};

use crate::client::diagnosis::{
    AwaitedReply, ClaimResult, ConnectionSteps, DiagnosedValue, FoundServer, SearchResult, SearchedAddress, connected,
};
use crate::client::{ChannelFacts, Refusal, circuit_config};
use crate::config::{ClientConfig, Host};
use crate::{clock, interfaces, limit, socket};

/// The number of the only channel.
const CID: Cid = Cid(1);
/// The number of the only get.
const IOID: Ioid = Ioid(1);

/// The steps of Channel Access.
pub(crate) struct CaSteps;

impl ConnectionSteps for CaSteps {
    fn search_addresses(config: &ClientConfig) -> Vec<SocketAddr> {
        let mut addresses = config.search_addresses.clone();
        addresses.extend(config.search_hosts.iter().filter_map(Host::resolved));
        addresses.extend(config.interface_search_port.map(interfaces::search_addresses).unwrap_or_default());
        addresses
    }

    fn name_servers(config: &ClientConfig) -> impl Iterator<Item = (&Host, Transport)> {
        config.name_servers.iter().map(|host| (host, Transport::Tcp))
    }

    fn probe(address: SocketAddr, config: &ClientConfig) -> io::Result<UdpSocket> {
        let mut bytes = Vec::new();
        Request::Version { priority: 0, minor: u32::from(MINOR_VERSION), sequence: 0 }.encode(&mut bytes);
        let socket = socket::search_udp(config.multicast_ttl)?;
        socket.connect(address)?;
        socket.send(&bytes)?;
        Ok(socket)
    }

    fn query_name_server(
        pv: &str,
        address: SocketAddr,
        _: Transport,
        config: &ClientConfig,
        timeout: Duration,
    ) -> io::Result<Option<FoundServer>> {
        let start = Instant::now();
        let stream = TcpStream::connect_timeout(&address, timeout.max(Duration::from_millis(1)))?;
        let mut call = BlockingCircuit {
            stream,
            circuit: Circuit::new(&circuit_config(config, 0), clock::now()),
            end: start + timeout,
        };
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
            Ok(server) => Ok(Some(FoundServer { server, transport: Transport::Tcp, after: start.elapsed() })),
            Err(CallError::Silent) => Ok(None),
            Err(CallError::Lost(reason) | CallError::Invalid(reason)) => Err(io::Error::other(reason)),
        }
    }

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
                if found.len() < limit::CLAIMS && !found.iter().any(|known| known.server == claim.server) {
                    let after = start.elapsed();
                    found.push(FoundServer { server: claim.server, transport: Transport::Tcp, after });
                }
            }
        }
        Ok(found)
    }

    fn connect_and_read(pv: &str, found: &FoundServer, config: &ClientConfig, timeout: Duration) -> ClaimResult {
        let (start, server) = (Instant::now(), found.server);
        let stream = match connected(server, timeout) {
            Ok(stream) => stream,
            Err(result) => return result,
        };
        let circuit = Circuit::new(&circuit_config(config, 0), clock::now());
        let mut call = BlockingCircuit { stream, circuit, end: start + timeout };
        call.circuit.create(CID, pv, clock::now());
        let mut rights = Rights { read: false, write: false };
        let created = call.until(|event| match event {
            Event::Rights { rights: given, .. } => {
                rights = given;
                None
            }
            Event::Created { sid, native, count, .. } => Some(Ok((sid, native, count))),
            Event::CreateFailed { .. } | Event::ChannelGone { .. } => {
                Some(Err(ClaimResult::Refused { reason: String::new() }))
            }
            _ => None,
        });
        let (sid, native, count) = match created {
            Ok(Ok(created)) => created,
            Ok(Err(found)) => return found,
            Err(CallError::Silent) => {
                return ClaimResult::Silent { after: start.elapsed(), awaited: AwaitedReply::Channel };
            }
            Err(CallError::Lost(reason)) => return ClaimResult::Lost { reason },
            Err(CallError::Invalid(reason)) => return ClaimResult::Invalid { reason },
        };
        let after = start.elapsed();
        let Some(kind) = native.kind() else {
            return ClaimResult::Invalid {
                reason: format!("the channel has type {native}, which is not a value type"),
            };
        };
        let facts =
            ChannelFacts { server, kind, count_max: count, may_read: rights.read, may_write: rights.write, tls: None };
        let value = if rights.read {
            call.read(sid, DbrType::of(kind, AttributeLevel::Time))
        } else {
            Some(Err(Refusal::ReadAccess))
        };
        ClaimResult::Channel { facts, after, value }
    }
}

/// The claims in one datagram. The searcher that sends would take the first claim and not report a second one.
fn claims(pv: &str, from: SocketAddr, bytes: &[u8]) -> Vec<Claim> {
    let mut searcher = Searcher::new(1);
    searcher.add(CID, pv, clock::now());
    let mut claims = Vec::new();
    searcher.handle(from, bytes, clock::now(), &mut claims);
    claims
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
    fn read(&mut self, sid: Sid, dbr: DbrType) -> Option<Result<DiagnosedValue, Refusal>> {
        self.circuit.read(sid, dbr, 0, IOID);
        let answer = self.until(|event| match event {
            Event::ReadDone { ioid: IOID, result, .. } => {
                let value = |reading| DiagnosedValue::Reading(Box::new(reading));
                Some(result.map(value).map_err(Refusal::from))
            }
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
