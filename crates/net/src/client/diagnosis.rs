//! Why a PV is not there: every step towards it taken by itself, and what came of each.
//!
//! A client that works hides the steps, and one that does not work cannot say which of them failed. So this takes
//! no part in a running client: it has sockets of its own, blocks the calling thread, and ends.

use std::collections::HashSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use fodo_ca::client::{About, Circuit, Config, Event};
use fodo_ca::dbr::{DbrType, Level};
use fodo_ca::message::{MINOR_VERSION, Request};
use fodo_ca::search::{Claim, Searcher};
use fodo_ca::{Cid, Ioid, Rights, Sid};

use super::{Facts, Refusal};
use crate::config::{ClientConfig, Host};
use crate::{Reading, clock, interfaces, limit, socket};

/// The number of the one channel there is.
const CID: Cid = Cid(1);
/// The number of the one get there is.
const IOID: Ioid = Ioid(1);

/// What came of every step towards a PV.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// The name that was looked for.
    pub pv: String,
    /// Where it was looked for.
    pub searched: Vec<Searched>,
    /// Who claimed it, in the order of their answers; more than one server is a fault of the plant.
    pub claims: Vec<Claimed>,
    /// How long was waited for claims.
    pub waited: Duration,
}

/// One address that was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Searched {
    /// The address.
    pub address: SocketAddr,
    /// How.
    pub way: Way,
    /// What came of it.
    pub outcome: Asked,
}

/// How a name is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a datagram, of all servers that it reaches.
    Datagram,
    /// On a circuit, of a name server.
    NameServer,
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// It was sent; more cannot be known.
    Sent,
    /// The host answered that nobody listens at this port.
    NobodyListens,
    /// This host could not send it.
    NotSent {
        /// What the system says.
        reason: String,
    },
}

/// A server that claimed the name.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// Where it takes circuits.
    pub server: SocketAddr,
    /// How long its answer took.
    pub after: Duration,
    /// How far it went there.
    pub found: Found,
}

/// How far it went with a server that claimed the name.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// No TCP connection.
    NotConnected {
        /// What the system says; a time-out when nothing came back at all.
        reason: String,
        /// Whether the host refused, which a silent firewall does not.
        is_refused: bool,
    },
    /// A connection, and then no word about the channel.
    Silent {
        /// How long was waited.
        after: Duration,
    },
    /// The server closed the connection, or sent what cannot be read.
    Lost {
        /// What was seen.
        reason: String,
    },
    /// The server does not have the channel that it claimed.
    Refused,
    /// The channel is there.
    Channel {
        /// What the server says of it.
        facts: Facts,
        /// How long connection and channel took.
        after: Duration,
        /// Its value. [`Refusal::ReadAccess`] without asking when reading is not allowed, and `None` when no answer
        /// came.
        value: Option<Result<Box<Reading>, Refusal>>,
    },
}

impl Diagnosis {
    /// Looks for `pv` as a client with this configuration would, then visits every server that claims it. Reads
    /// its value once; writes nothing.
    ///
    /// Blocks for `patience` with each name server that is silent, and once more when nobody claims the name, otherwise for a third of a second beside the answers,
    /// in which a second server may claim it as well; and for at most `patience` with each server. Fails when the
    /// system gives no socket.
    pub fn of(pv: &str, config: &ClientConfig, patience: Duration) -> io::Result<Diagnosis> {
        let start = Instant::now();
        let mut searched = knock(config);
        let (asked, known) = ask_name_servers(pv, config, patience);
        let found = search(pv, config, &mut searched, known, patience)?;
        searched.extend(asked);
        let waited = start.elapsed();
        let claims = found
            .into_iter()
            .map(|(server, after)| Claimed { server, after, found: visit(pv, server, config, patience) })
            .collect();
        Ok(Diagnosis { pv: pv.to_owned(), searched, claims, waited })
    }
}

/// Whether anybody listens at each address: a datagram without a question, and what the other hosts say to it.
/// Broadcasts are not answered that way.
fn knock(config: &ClientConfig) -> Vec<Searched> {
    let mut addresses = config.search_addresses.clone();
    addresses.extend(config.search_hosts.iter().filter_map(Host::resolved));
    addresses.extend(config.interface_search_port.map(interfaces::search_addresses).unwrap_or_default());
    let mut is_new = HashSet::new();
    addresses.retain(|address| is_new.insert(*address));
    let knocks: Vec<_> = addresses.iter().map(|&address| (address, knock_at(address, config))).collect();
    std::thread::sleep(limit::KNOCK);
    let outcome = |socket: io::Result<UdpSocket>| match socket.and_then(|socket| socket.recv(&mut [0; 64])) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Asked::NobodyListens,
        Err(error) if error.kind() != ErrorKind::WouldBlock => Asked::NotSent { reason: error.to_string() },
        _ => Asked::Sent,
    };
    knocks
        .into_iter()
        .map(|(address, socket)| Searched { address, way: Way::Datagram, outcome: outcome(socket) })
        .collect()
}

fn knock_at(address: SocketAddr, config: &ClientConfig) -> io::Result<UdpSocket> {
    let mut bytes = Vec::new();
    Request::Version { priority: 0, minor: u32::from(MINOR_VERSION), sequence: 0 }.encode(&mut bytes);
    let socket = socket::searching(config.multicast_ttl)?;
    socket.connect(address)?;
    socket.send(&bytes)?;
    Ok(socket)
}

/// A server and how long its claim took.
type Answer = (SocketAddr, Duration);

/// Asks each name server, and gives who claims the name by its word.
fn ask_name_servers(pv: &str, config: &ClientConfig, patience: Duration) -> (Vec<Searched>, Vec<Answer>) {
    let (mut searched, mut found) = (Vec::new(), Vec::new());
    for address in config.name_servers.iter().filter_map(Host::resolved) {
        let start = Instant::now();
        let outcome = match ask_name_server(pv, address, config, patience) {
            Ok(server) => {
                found.extend(server.map(|server| (server, start.elapsed())));
                Asked::Sent
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Asked::NobodyListens,
            Err(error) => Asked::NotSent { reason: error.to_string() },
        };
        searched.push(Searched { address, way: Way::NameServer, outcome });
    }
    (searched, found)
}

/// `None`: it knows nobody, or says nothing.
fn ask_name_server(
    pv: &str,
    address: SocketAddr,
    config: &ClientConfig,
    patience: Duration,
) -> io::Result<Option<SocketAddr>> {
    let end = Instant::now() + patience;
    let stream = TcpStream::connect_timeout(&address, patience.max(Duration::from_millis(1)))?;
    let mut call = Call { stream, circuit: Circuit::new(&identity(config), clock::now()), end };
    let (mut searcher, mut datagrams) = (Searcher::new(1), Vec::new());
    searcher.add(CID, pv, clock::now());
    searcher.tick(clock::now(), &mut datagrams);
    datagrams.iter().for_each(|datagram| call.circuit.search(datagram.searches()));
    let claimed = call.until(|event| match event {
        // Without an address it is the name server's own.
        Event::Claimed { server, .. } => Some(server.unwrap_or(address)),
        _ => None,
    });
    match claimed {
        Ok(server) => Ok(Some(server)),
        Err(Ended::Silent) => Ok(None),
        Err(Ended::Lost(reason)) => Err(io::Error::other(reason)),
    }
}

/// Who claims the name, each once, and after how long; `found` are known already.
fn search(
    pv: &str,
    config: &ClientConfig,
    searched: &mut [Searched],
    mut found: Vec<Answer>,
    patience: Duration,
) -> io::Result<Vec<Answer>> {
    let socket = socket::searching(config.multicast_ttl)?;
    socket.set_nonblocking(false)?;
    let start = Instant::now();
    let mut end = start + if found.is_empty() { patience } else { limit::SECOND_CLAIM };
    let mut searcher = Searcher::new(u64::from(std::process::id()));
    searcher.add(CID, pv, clock::now());
    let mut datagrams = Vec::new();
    let mut buffer = [0; 8192];
    while Instant::now() < end {
        searcher.tick(clock::now(), &mut datagrams);
        for datagram in datagrams.drain(..) {
            for one in searched.iter_mut() {
                for address in interfaces::with_all_servers_here(&[one.address]) {
                    if let Err(error) = socket.send_to(&datagram.bytes, address) {
                        one.outcome = Asked::NotSent { reason: error.to_string() };
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

/// The claims in one datagram. The searcher that asks would take the first claim and hear no second one.
fn claims(pv: &str, from: SocketAddr, bytes: &[u8]) -> Vec<Claim> {
    let mut searcher = Searcher::new(1);
    searcher.add(CID, pv, clock::now());
    let mut claims = Vec::new();
    searcher.handle(from, bytes, clock::now(), &mut claims);
    claims
}

fn visit(pv: &str, server: SocketAddr, config: &ClientConfig, patience: Duration) -> Found {
    let start = Instant::now();
    let connected = TcpStream::connect_timeout(&server, patience.max(Duration::from_millis(1)));
    let stream = match connected {
        Ok(stream) => stream,
        Err(error) => {
            let is_refused = error.kind() == ErrorKind::ConnectionRefused;
            return Found::NotConnected { reason: error.to_string(), is_refused };
        }
    };
    let mut call = Call { stream, circuit: Circuit::new(&identity(config), clock::now()), end: start + patience };
    call.circuit.create(CID, pv, clock::now());
    let mut rights = Rights { read: false, write: false };
    let created = call.until(|event| match event {
        Event::Rights { rights: given, .. } => {
            rights = given;
            None
        }
        Event::Created { sid, native, count, .. } => Some(Ok((sid, native, count))),
        Event::CreateFailed { .. } | Event::ChannelGone { .. } => Some(Err(Found::Refused)),
        _ => None,
    });
    let (sid, native, count) = match created {
        Ok(Ok(created)) => created,
        Ok(Err(found)) => return found,
        Err(Ended::Silent) => return Found::Silent { after: start.elapsed() },
        Err(Ended::Lost(reason)) => return Found::Lost { reason },
    };
    let after = start.elapsed();
    let Some(kind) = native.kind() else {
        return Found::Lost { reason: format!("a channel of {native}, which is no type of a value") };
    };
    let facts = Facts { server, kind, count_max: count, may_read: rights.read, may_write: rights.write };
    let value =
        if rights.read { call.read(sid, DbrType::of(kind, Level::Time)) } else { Some(Err(Refusal::ReadAccess)) };
    Found::Channel { facts, after, value }
}

fn identity(config: &ClientConfig) -> Config {
    Config {
        priority: 0,
        user: super::user(),
        host: super::host(),
        echo_after: config.echo_after,
        payload_bytes_max: config.payload_bytes_max,
    }
}

/// A circuit that one thread drives, blocking, until a moment.
struct Call {
    stream: TcpStream,
    circuit: Circuit,
    end: Instant,
}

/// Why a call gave nothing.
enum Ended {
    /// Its time was over.
    Silent,
    /// The connection is of no more use.
    Lost(String),
}

impl Call {
    fn read(&mut self, sid: Sid, dbr: DbrType) -> Option<Result<Box<Reading>, Refusal>> {
        self.circuit.read(sid, dbr, 0, IOID);
        let answer = self.until(|event| match event {
            Event::ReadDone { ioid: IOID, result, .. } => Some(result.map(Box::new).map_err(Refusal::from)),
            Event::Complaint { about: About::Operation(IOID), status, text } => {
                Some(Err(Refusal::Status { status, text }))
            }
            _ => None,
        });
        answer.ok()
    }

    /// Sends what is to be sent and takes events in until one of them gives something.
    fn until<T>(&mut self, mut give: impl FnMut(Event) -> Option<T>) -> Result<T, Ended> {
        let mut buffer = vec![0; limit::RECEIVE_BYTES];
        let mut events = Vec::new();
        loop {
            self.send()?;
            let left = self.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Ended::Silent);
            }
            self.stream.set_read_timeout(Some(left)).map_err(lost)?;
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(Ended::Lost("the server closed the connection".into())),
                Ok(n) => self.circuit.received(buffer.get(..n).unwrap_or_default(), clock::now(), &mut events),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(lost(error)),
            }
            for event in events.drain(..) {
                if let Event::Closed(closed) = &event {
                    return Err(Ended::Lost(format!("{closed:?}")));
                }
                if let Some(given) = give(event) {
                    return Ok(given);
                }
            }
        }
    }

    fn send(&mut self) -> Result<(), Ended> {
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

fn lost(error: io::Error) -> Ended {
    Ended::Lost(error.to_string())
}
