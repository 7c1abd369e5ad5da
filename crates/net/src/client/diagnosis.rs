//! Diagnoses why a PV cannot be reached: performs each step of connecting separately and reports its result.
//!
//! A working client hides these steps, and a failing one cannot report which of them failed. Therefore this module does
//! not use a running client: it opens its own sockets, blocks the calling thread, and ends.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use fodo_data::{Reading, Structure};
use fodo_engine::search::Transport;

use super::{ChannelFacts, Refusal};
use crate::ca::diagnosis::CaSteps;
use crate::config::{ClientConfig, Host};
use crate::limit;
use crate::protocol::Protocol;
use crate::pva::diagnosis::PvaSteps;

/// The result of each step of connecting to a PV.
///
/// See the example of [`Diagnosis::run`].
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// The name that was searched for, without a scheme.
    pub pv: String,
    /// The protocol of the name.
    pub protocol: Protocol,
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
    /// The handshake of TLS failed.
    Handshake {
        /// Why.
        reason: String,
    },
    /// Connected, but no reply.
    Silent {
        /// How long the client waited.
        after: Duration,
        /// For what it waited.
        awaited: AwaitedReply,
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
    /// The server does not accept this client.
    Rejected {
        /// The server's text.
        reason: String,
    },
    /// The server claimed the name but has no such channel.
    Refused {
        /// The server's text; servers of Channel Access send none.
        reason: String,
    },
    /// The channel exists.
    Channel {
        /// What the server has reported about it.
        facts: ChannelFacts,
        /// How long connecting and creating the channel took.
        after: Duration,
        /// Its value. [`Refusal::ReadAccess`], without a request, if reading is not allowed; `None` if no reply was
        /// received.
        value: Option<Result<DiagnosedValue, Refusal>>,
    },
}

/// What a server did not send.
///
/// See the example of [`Diagnosis::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedReply {
    /// The end of the handshake of TLS.
    Handshake,
    /// The first message of a server of pvAccess.
    Greeting,
    /// The reply to the identity of this client; only with pvAccess.
    Validation,
    /// The reply about the channel.
    Channel,
}

/// The value of a PV.
///
/// See the example of [`Diagnosis::run`].
#[derive(Clone, Debug, PartialEq)]
pub enum DiagnosedValue {
    /// A scalar, an array or an enum.
    Reading(Box<Reading>),
    /// Any other type of pvAccess.
    Structure(Box<Structure>),
}

impl Diagnosis {
    /// Searches for `pv` as a client with this configuration would, then connects to every server that claims it. Reads
    /// the value once; writes nothing. A scheme before the name selects the protocol, as in
    /// [`Context::channel`](crate::Context::channel).
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
        let (protocol, name) = Protocol::split(pv);
        let protocol = protocol.unwrap_or(config.default_protocol);
        match protocol {
            Protocol::Ca => diagnose::<CaSteps>(name, protocol, config, timeout),
            Protocol::Pva => diagnose::<PvaSteps>(name, protocol, config, timeout),
        }
    }
}

/// A server that claimed the name.
#[derive(Clone, Debug)]
pub(crate) struct FoundServer {
    pub(crate) server: SocketAddr,
    pub(crate) transport: Transport,
    /// How long its claim took.
    pub(crate) after: Duration,
}

/// The steps of connecting to a PV over one protocol; each blocks.
pub(crate) trait ConnectionSteps {
    /// The search list, with host names resolved.
    fn search_addresses(config: &ClientConfig) -> Vec<SocketAddr>;

    /// Sends a datagram that no server answers, so that a host without a server may report a closed port to the socket.
    fn probe(address: SocketAddr, config: &ClientConfig) -> io::Result<UdpSocket>;

    /// The name servers of a client, and the transport to each.
    fn name_servers(config: &ClientConfig) -> impl Iterator<Item = (&Host, Transport)>;

    /// Returns `None` if the name server does not know the name or does not reply.
    fn query_name_server(
        pv: &str,
        address: SocketAddr,
        over: Transport,
        config: &ClientConfig,
        timeout: Duration,
    ) -> io::Result<Option<FoundServer>>;

    /// The servers that claim the name, each once; `found` are already known.
    fn search(
        pv: &str,
        config: &ClientConfig,
        searched: &mut [SearchedAddress],
        found: Vec<FoundServer>,
        timeout: Duration,
    ) -> io::Result<Vec<FoundServer>>;

    fn connect_and_read(pv: &str, found: &FoundServer, config: &ClientConfig, timeout: Duration) -> ClaimResult;
}

fn diagnose<S: ConnectionSteps>(
    pv: &str,
    protocol: Protocol,
    config: &ClientConfig,
    timeout: Duration,
) -> io::Result<Diagnosis> {
    let start = Instant::now();
    let mut searched = probe_ports::<S>(config);
    let (queried, known) = query_name_servers::<S>(pv, config, timeout);
    let found = S::search(pv, config, &mut searched, known, timeout)?;
    searched.extend(queried);
    let waited = start.elapsed();
    let claim = |found: FoundServer| {
        let result = S::connect_and_read(pv, &found, config, timeout);
        ClaimingServer { server: found.server, after: found.after, result }
    };
    Ok(Diagnosis { pv: pv.to_owned(), protocol, searched, claims: found.into_iter().map(claim).collect(), waited })
}

/// Tests whether a program listens at each address: sends a datagram without a search and checks for an ICMP error.
/// Hosts do not answer broadcasts that way.
fn probe_ports<S: ConnectionSteps>(config: &ClientConfig) -> Vec<SearchedAddress> {
    let mut addresses = S::search_addresses(config);
    let mut is_new = HashSet::new();
    addresses.retain(|address| is_new.insert(*address));
    let probes: Vec<_> = addresses.iter().map(|&address| (address, S::probe(address, config))).collect();
    std::thread::sleep(limit::PROBE_WAIT);
    let outcome = |socket: io::Result<UdpSocket>| match socket.and_then(|socket| socket.recv(&mut [0; 64])) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => SearchResult::PortClosed,
        Err(error) if error.kind() != ErrorKind::WouldBlock => SearchResult::NotSent { reason: error.to_string() },
        _ => SearchResult::Sent,
    };
    probes
        .into_iter()
        .map(|(address, socket)| SearchedAddress { address, method: SearchMethod::Datagram, result: outcome(socket) })
        .collect()
}

/// Asks each name server; returns the servers that they report for the name.
fn query_name_servers<S: ConnectionSteps>(
    pv: &str,
    config: &ClientConfig,
    timeout: Duration,
) -> (Vec<SearchedAddress>, Vec<FoundServer>) {
    let (mut searched, mut found) = (Vec::new(), Vec::new());
    for (host, over) in S::name_servers(config) {
        // Two names can have the same address.
        let is_new = |address: &SocketAddr| searched.iter().all(|known: &SearchedAddress| known.address != *address);
        let Some(address) = host.resolved().filter(is_new) else { continue };
        let result = match S::query_name_server(pv, address, over, config, timeout) {
            Ok(server) => {
                // Several name servers know the same servers.
                let is_new = |new: &FoundServer| found.iter().all(|known: &FoundServer| known.server != new.server);
                found.extend(server.filter(is_new));
                SearchResult::Sent
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => SearchResult::PortClosed,
            Err(error) => SearchResult::NotSent { reason: error.to_string() },
        };
        searched.push(SearchedAddress { address, method: SearchMethod::NameServer, result });
    }
    (searched, found)
}

/// A connection to a server, or why there is none.
pub(crate) fn connected(server: SocketAddr, timeout: Duration) -> Result<TcpStream, ClaimResult> {
    TcpStream::connect_timeout(&server, timeout.max(Duration::from_millis(1))).map_err(|error| {
        let is_refused = error.kind() == ErrorKind::ConnectionRefused;
        ClaimResult::NotConnected { reason: error.to_string(), is_refused }
    })
}
