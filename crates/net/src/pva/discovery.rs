//! Servers of pvAccess: those that answer a search without names, and calls to a server at a known address.
//!
//! Every server has a channel called `server`, which answers no search. [`names`] calls it for the names of the PVs, and
//! [`call`] for anything else.
//!
//! ```
//! # let (server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
//! # context.close();
//! # let config = server.client_config();
//! use std::time::{Duration, Instant};
//!
//! use fodo_net::discovery::{FoundServers, ServerSearch, names};
//!
//! let mut search = ServerSearch::start(&config)?;
//! let mut servers = FoundServers::default();
//! let until = Instant::now() + Duration::from_secs(5);
//! while servers.as_slice().is_empty() {
//!     let Some(reply) = search.next(until)? else { break };
//!     servers.add(&reply);
//! }
//! for server in servers.as_slice() {
//!     println!("{} version {} at {:?}", server.guid, server.version, server.addresses);
//!     for name in names(&config, server.addresses[0], Duration::from_secs(5))? {
//!         println!("    {name}");
//!     }
//! }
//! # assert_eq!(servers.as_slice().len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fodo_data::{Array, Kind, Scalar, Structure, StructureBuilder, Text, Value};
use fodo_pva::Cid;
use fodo_pva::client::{Circuit, Decoding, Event, PreparedRequest, Received, Task};
use fodo_pva::cursor::{ByteOrder, ByteReader};
use fodo_pva::frame;
pub use fodo_pva::guid::Guid;
use fodo_pva::message::{Answer, Request};
use fodo_pva::request::PvRequest;
use fodo_pva::search::{SearchFlags, SearchRequest, SearchResponse, transport, transport_names};
use fodo_pva::searcher::Transport;
use rustix::event::{PollFd, PollFlags};

use super::client::failure;
use super::direct::{DirectCircuit, DirectFailure, wait};
use super::search::transports;
use crate::address_list::{AddressFamilies, AddressList, InterfaceSelection};
use crate::client::{Error, ErrorKind, Failure, Notice, Refusal, WrongReply};
use crate::clock::now;
use crate::config::{ClientConfig, PvaClientConfig};
use crate::search_udp::SearchUdp;
use crate::tls::{self, TlsPolicy, TlsStream};
use crate::{interfaces, limit};

/// The name of the channel of every server.
const SERVER_CHANNEL: &str = "server";

/// The reply of a server. See the example of the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReply {
    /// The server.
    pub guid: Guid,
    /// The version of the protocol in its messages.
    pub version: u8,
    /// The transport: `tcp`, or `tls`.
    pub transport: Text,
    /// Where it accepts connections.
    pub address: SocketAddr,
    /// Where the datagram came from.
    pub source: SocketAddr,
}

/// A server with all of its addresses. See the example of the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredServer {
    /// The server.
    pub guid: Guid,
    /// The version of the protocol in its messages.
    pub version: u8,
    /// The transport of its first reply.
    pub transport: Text,
    /// Where it accepts connections, in the order of its replies.
    pub addresses: Vec<SocketAddr>,
}

impl DiscoveredServer {
    /// The configuration for calls to this server, which uses the transport of its reply. TLS is used in any case if it is
    /// the only transport.
    ///
    /// ```
    /// # let (server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// # context.close();
    /// # let config = server.client_config();
    /// use std::time::{Duration, Instant};
    ///
    /// use fodo_net::discovery::{FoundServers, ServerSearch, about};
    ///
    /// let mut servers = FoundServers::default();
    /// let reply = ServerSearch::start(&config)?.next(Instant::now() + Duration::from_secs(5))?.expect("a server");
    /// servers.add(&reply);
    /// let found = &servers.as_slice()[0];
    /// about(&found.client_config(&config), found.addresses[0], Duration::from_secs(5))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn client_config(&self, config: &ClientConfig) -> ClientConfig {
        let mut config = config.clone();
        if let TlsPolicy::Preferred(keychain) = config.pva.tls {
            config.pva.tls = match transport(&self.transport) {
                Some(Transport::Tls) => TlsPolicy::Only(keychain),
                _ => TlsPolicy::Off,
            };
        }
        config
    }
}

/// The servers in the order of their first replies. See the example of the [module](self).
#[derive(Clone, Debug, Default)]
pub struct FoundServers {
    servers: Vec<DiscoveredServer>,
    /// The index of each server.
    indices: HashMap<Guid, usize>,
}

impl FoundServers {
    /// Adds a reply; returns whether it is the first of its server. Servers beyond a limit are ignored.
    pub fn add(&mut self, reply: &ServerReply) -> bool {
        match self.indices.entry(reply.guid) {
            Entry::Occupied(index) => {
                let known = &mut self.servers[*index.get()].addresses;
                if !known.contains(&reply.address) && known.len() < limit::SERVER_ADDRESSES {
                    known.push(reply.address);
                }
                return false;
            }
            Entry::Vacant(_) if self.servers.len() >= limit::FOUND_SERVERS => return false,
            Entry::Vacant(index) => index.insert(self.servers.len()),
        };
        let ServerReply { guid, version, transport, address, .. } = reply.clone();
        self.servers.push(DiscoveredServer { guid, version, transport, addresses: vec![address] });
        true
    }

    /// The servers.
    pub fn as_slice(&self) -> &[DiscoveredServer] {
        &self.servers
    }
}

/// A search for all servers. See the example of the [module](self).
#[derive(Debug)]
pub struct ServerSearch {
    sockets: SearchUdp,
    addresses: AddressList,
    transports: &'static [Transport],
    /// When the search is sent again.
    send_at: Instant,
    n_left: u32,
}

impl ServerSearch {
    /// Sends the search to the addresses that the configuration has for searches of pvAccess.
    pub fn start(config: &ClientConfig) -> io::Result<ServerSearch> {
        let sockets = SearchUdp::bind(config.multicast_ttl)?;
        let automatic = config.pva.interface_search_port.map_or(InterfaceSelection::No, InterfaceSelection::All);
        let send_at = Instant::now();
        let PvaClientConfig { search_addresses, search_hosts, .. } = &config.pva;
        let addresses = AddressList::new(AddressFamilies::Both, search_addresses, search_hosts, automatic, send_at);
        let transports = transports(&config.pva.tls);
        Ok(ServerSearch { sockets, addresses, transports, send_at, n_left: limit::DISCOVERY_SEARCHES })
    }

    /// The next reply; `None` after `until`. Invalid datagrams are ignored.
    pub fn next(&mut self, until: Instant) -> io::Result<Option<ServerReply>> {
        let mut buffer = [0; limit::DATAGRAM_BYTES];
        loop {
            let now = Instant::now();
            if self.n_left > 0 && now >= self.send_at {
                self.send(now);
            }
            if let Some((n, from)) = self.sockets.receive(&mut buffer)? {
                if let Some(reply) = reply(&buffer[..n], from) {
                    return Ok(Some(reply));
                }
                continue;
            }
            if now >= until {
                return Ok(None);
            }
            let wake_at = if self.n_left > 0 { until.min(self.send_at) } else { until };
            let mut descriptors: Vec<PollFd<'_>> =
                self.sockets.all().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
            wait(&mut descriptors, wake_at)?;
        }
    }

    /// Why the search is not sent to addresses of IPv6, if it cannot be; the others are searched. The [module](self) has an
    /// example of a search.
    pub fn ipv6_failure(&self) -> Option<Notice> {
        self.sockets.ipv6_failure().map(|reason| Notice::NoSearchOverIpv6 { reason: reason.to_owned() })
    }

    fn send(&mut self, now: Instant) {
        self.n_left -= 1;
        self.send_at = now + limit::DISCOVERY_PERIOD;
        // The next search goes to the names that are resolved until then.
        self.addresses.refresh(now, || {});
        for &address in self.addresses.all() {
            let reach = if interfaces::is_group(address.ip()) { SearchFlags::default() } else { SearchFlags::UNICAST };
            let search = SearchRequest {
                sequence: 0,
                flags: SearchFlags::MUST_REPLY.with(SearchFlags::REPLY_TO_SOURCE).with(reach),
                address: Ipv6Addr::UNSPECIFIED,
                port: self.sockets.port(),
                protocols: transport_names(self.transports),
                channels: Vec::new(),
            };
            let mut bytes = Vec::new();
            Request::Search {}.encode(ByteOrder::Little, &mut bytes, |to| search.encode(to));
            // An address that cannot be reached now may be reached by the next search.
            let _ = self.sockets.send_to(&bytes, address, |_| Ok(()));
        }
    }
}

/// The reply in a datagram.
fn reply(bytes: &[u8], source: SocketAddr) -> Option<ServerReply> {
    frame::datagram(bytes).map_while(Result::ok).find_map(|(header, payload)| {
        let mut reader = ByteReader::new(payload, header.order);
        if Answer::decode(header.command, &mut reader) != (Answer::SearchResponse {}) {
            return None;
        }
        let response = SearchResponse::decode(&mut reader);
        reader.finish().ok()?;
        let (guid, address) = (response.guid, response.server(source));
        Some(ServerReply { guid, version: header.version, transport: response.protocol, address, source })
    })
}

/// The names of a server's PVs. `server`: its TCP address. A server may have PVs that it does not name. The [module](self)
/// has an example.
///
/// Blocks the thread until the server has replied, at most for `timeout`.
pub fn names(config: &ClientConfig, server: SocketAddr, timeout: Duration) -> Result<Vec<Text>, Error> {
    let result = call(config, server, SERVER_CHANNEL, query(SERVER_CHANNEL, &[("op", "channels")]), timeout)?;
    let names = result.as_ref().and_then(|result| result.get("value")).cloned();
    match names.map(Value::into_array) {
        Some(Array::Text(names)) => Ok(names.to_vec()),
        _ => Err(Error::new(
            SERVER_CHANNEL,
            ErrorKind::WrongReply { server, reply: WrongReply::Structure { id: Text::EMPTY } },
        )),
    }
}

/// What a server reports about itself, such as `implLang` and `version`. `server`: its TCP address. The [module](self) has
/// an example.
///
/// Blocks the thread until the server has replied, at most for `timeout`.
pub fn about(config: &ClientConfig, server: SocketAddr, timeout: Duration) -> Result<Structure, Error> {
    let result = call(config, server, SERVER_CHANNEL, query(SERVER_CHANNEL, &[("op", "info")]), timeout)?;
    result.ok_or_else(|| {
        Error::new(SERVER_CHANNEL, ErrorKind::WrongReply { server, reply: WrongReply::Structure { id: Text::EMPTY } })
    })
}

/// The argument of a call: an NTURI with these texts in its query.
///
/// ```
/// let argument = fodo_net::discovery::query("demo:add", &[("lhs", "1"), ("rhs", "2")]);
/// assert_eq!(argument.kind().id().to_str(), "epics:nt/NTURI:1.0");
/// assert_eq!(argument.get("query.rhs"), Some(&"2".into()));
/// ```
pub fn query(path: &str, arguments: &[(&str, &str)]) -> Structure {
    let mut build = StructureBuilder::new("epics:nt/NTURI:1.0");
    build.scalar("scheme", Kind::Text).scalar("authority", Kind::Text).scalar("path", Kind::Text).open("query", "");
    arguments.iter().for_each(|(name, _)| {
        build.scalar(name, Kind::Text);
    });
    let mut structure = Structure::new(build.finish().into());
    let texts = [("scheme", "pva"), ("path", path)].map(|(name, text)| (name.to_owned(), text));
    let of_query = arguments.iter().map(|&(name, text)| (format!("query.{name}"), text));
    for (name, text) in texts.into_iter().chain(of_query) {
        // The node was created as a text; a name with a point has no node of its own.
        let _ = structure.set(&name, Value::Scalar(Scalar::Text(text.into())));
    }
    structure
}

/// Calls a channel of a server at this TCP address; `None` if the procedure returns nothing. The
/// [module](self) has an example.
///
/// Blocks the thread until the server has replied, at most for `timeout`. It opens a connection for this call.
pub fn call(
    config: &ClientConfig,
    server: SocketAddr,
    channel: &str,
    argument: Structure,
    timeout: Duration,
) -> Result<Option<Structure>, Error> {
    let failed = |kind| Error::new(channel, kind);
    let no_reply = || failed(ErrorKind::NoReply { server, after: timeout });
    let until = Instant::now() + timeout.min(limit::DIRECT_CALL_MAX);
    let stream =
        match TcpStream::connect_timeout(&server, timeout.clamp(Duration::from_millis(1), limit::DIRECT_CALL_MAX)) {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
                return Err(no_reply());
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(failed(ErrorKind::Refused { server, refusal: Refusal::Connection }));
            }
            Err(error) => return Err(Error::system(channel, error)),
        };
    // Plain TCP is used unless it is forbidden: the address alone does not say which transport the server expects, and
    // `DiscoveredServer::client_config` forbids it for a server that has replied with TLS.
    let tls = match &config.pva.tls {
        TlsPolicy::Only(keychain) => Some(TlsStream::client(keychain, server)),
        TlsPolicy::Off | TlsPolicy::Preferred(_) => None,
    };
    let tls = tls.transpose().map_err(|error| Error::system(channel, error))?;
    let mut direct = DirectCircuit::new(stream, tls, config).map_err(|error| Error::system(channel, error))?;
    direct.circuit().create(Cid(1), channel, now());
    let mut argument = Some(argument);
    match direct.until(until, |circuit, event| result_of(circuit, event, &mut argument)) {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(Failure::Refused(refusal))) => Err(failed(ErrorKind::Refused { server, refusal })),
        Ok(Err(Failure::WrongReply(reply))) => Err(failed(ErrorKind::WrongReply { server, reply })),
        Ok(Err(Failure::Misuse(misuse))) => Err(failed(ErrorKind::Misuse { reason: misuse.0, advice: misuse.1 })),
        Ok(Err(Failure::Disconnected | Failure::Closed)) | Err(DirectFailure::Closed(_)) => {
            Err(failed(ErrorKind::ConnectionClosed { server }))
        }
        Err(DirectFailure::Timeout) => Err(no_reply()),
        Err(DirectFailure::Lost(error)) => Err(failed(match tls::failure(&error) {
            Some(reason) => ErrorKind::Handshake { server, reason },
            None => ErrorKind::ConnectionClosed { server },
        })),
    }
}

/// The result of a call, if an event ends it; `None` if the procedure returns nothing. Sends the `argument` once the channel
/// exists.
fn result_of(
    circuit: &mut Circuit,
    event: Event,
    argument: &mut Option<Structure>,
) -> Option<Result<Option<Structure>, Failure>> {
    let failed = |error| Some(Err(failure(error)));
    match event {
        Event::Created { sid, .. } => {
            let argument = argument.take()?;
            let request = PreparedRequest::new(&PvRequest::default());
            let opened = circuit.open(sid, Task::Rpc, Decoding::Structured, &request);
            let called = opened.and_then(|ioid| circuit.rpc(ioid, argument));
            called.err().and_then(failed)
        }
        Event::CreateFailed { status, .. } => {
            Some(Err(Failure::Refused(Refusal::Channel { text: status.message.to_string() })))
        }
        Event::OpenFailed { reason, .. } => failed(reason),
        Event::Done { result: Ok(Received::Structure(structure)), .. } => Some(Ok(Some(structure))),
        Event::Done { result: Ok(_), .. } => Some(Ok(None)),
        Event::Done { result: Err(error), .. } => failed(error),
        Event::ChannelGone { .. } => Some(Err(Failure::Disconnected)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply_of(guid: u8, port: u16) -> ServerReply {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        ServerReply { guid: Guid([guid; 12]), version: 2, transport: "tcp".into(), address, source: address }
    }

    #[test]
    fn a_server_that_replies_from_several_addresses_is_one_server() {
        let mut servers = FoundServers::default();

        let first: Vec<bool> =
            [(1, 1), (2, 1), (1, 2), (1, 1)].map(|(guid, port)| servers.add(&reply_of(guid, port))).to_vec();

        assert_eq!(first, [true, true, false, false]);
        assert_eq!(servers.as_slice()[0].addresses.len(), 2);
        assert_eq!(servers.as_slice()[1].guid.to_string(), "02".repeat(12));
    }

    #[test]
    fn the_number_of_servers_and_of_their_addresses_is_limited() {
        let mut servers = FoundServers::default();

        for port in 0..u16::try_from(limit::SERVER_ADDRESSES).unwrap() + 5 {
            servers.add(&reply_of(1, port));
        }

        assert_eq!(servers.as_slice()[0].addresses.len(), limit::SERVER_ADDRESSES);
    }

    #[test]
    fn datagrams_that_are_not_replies_are_ignored() {
        let source = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut search = Vec::new();
        Request::Search {}.encode(ByteOrder::Little, &mut search, |_| {});

        assert_eq!(reply(b"", source), None);
        assert_eq!(reply(b"not a datagram of pvAccess", source), None);
        assert_eq!(reply(&search, source), None);
        // The start of a reply.
        assert_eq!(reply(&[0xca, 2, 0x40, 4, 4, 0, 0, 0, 1, 2, 3, 4], source), None);
    }

    #[test]
    fn a_call_to_a_port_without_a_server_is_refused() {
        // Bound, so that no other test gets its port, but not listening.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let server = socket.local_addr().unwrap().as_socket().unwrap();
        let config = ClientConfig::with_addresses(Vec::new());

        let error = names(&config, server, Duration::from_secs(5)).unwrap_err();

        assert_eq!(*error.kind(), ErrorKind::Refused { server, refusal: Refusal::Connection });
    }

    #[test]
    fn a_server_that_does_not_reply_ends_a_call_with_a_timeout() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = silent.local_addr().unwrap();
        let config = ClientConfig::with_addresses(Vec::new());
        let after = Duration::from_millis(20);

        let error = names(&config, server, after).unwrap_err();

        assert_eq!(*error.kind(), ErrorKind::NoReply { server, after });
    }
}
