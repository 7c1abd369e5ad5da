//! The steps of connecting to a PV of pvAccess, for a [diagnosis](crate::client::diagnosis).

use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_data::{Kind, StructureType};
use fodo_engine::search::{NameSearcher as _, Transport};
use fodo_pva::client::{Decoding, DisconnectReason, Event, PreparedRequest, Received, RequestError, Task};
use fodo_pva::cursor::ByteOrder;
use fodo_pva::message::Request;
use fodo_pva::request::PvRequest;
use fodo_pva::search::{SearchFlags, SearchRequest, SearchedChannel};
use fodo_pva::searcher::Searcher;
use fodo_pva::{Cid, Sid};
use rustix::event::{PollFd, PollFlags};

use super::client::value_kind;
use super::direct::{DirectCircuit, DirectFailure, wait};
use super::search::{self, reach, transports};
use crate::client::diagnosis::{
    AwaitedReply, ClaimResult, ConnectionSteps, DiagnosedValue, FoundServer, SearchResult, SearchedAddress, connected,
};
use crate::client::{ChannelFacts, Refusal};
use crate::clock::now;
use crate::config::{ClientConfig, Host};
use crate::search_udp::SearchUdp;
use crate::tls::{self, TlsStream};
use crate::{interfaces, limit, socket};

/// The number of the only channel.
const CID: Cid = Cid(1);

/// The steps of pvAccess.
pub(crate) struct PvaSteps;

impl ConnectionSteps for PvaSteps {
    fn search_addresses(config: &ClientConfig) -> Vec<SocketAddr> {
        let mut addresses = config.pva.search_addresses.clone();
        addresses.extend(config.pva.search_hosts.iter().filter_map(Host::resolved));
        addresses.extend(config.pva.interface_search_port.map(interfaces::search_addresses).unwrap_or_default());
        addresses
    }

    fn probe(address: SocketAddr, config: &ClientConfig) -> io::Result<UdpSocket> {
        let socket = match address {
            SocketAddr::V4(_) => socket::search_udp(config.multicast_ttl)?,
            SocketAddr::V6(_) => socket::search_udp_ipv6(0, config.multicast_ttl)?,
        };
        // A search without a name that requests no reply.
        let search = SearchRequest {
            sequence: 0,
            flags: SearchFlags::default(),
            address: Ipv6Addr::UNSPECIFIED,
            port: socket.local_addr()?.port(),
            protocols: Vec::new(),
            channels: Vec::new(),
        };
        let mut bytes = Vec::new();
        Request::Search {}.encode(ByteOrder::Little, &mut bytes, |to| search.encode(to));
        if interfaces::is_group(address.ip()) {
            socket::send_to(&socket, &bytes, address)?;
        } else {
            socket.connect(address)?;
            socket.send(&bytes)?;
        }
        Ok(socket)
    }

    fn name_servers(config: &ClientConfig) -> impl Iterator<Item = (&Host, Transport)> {
        let by = |over| search::name_servers(config, over).iter().map(move |host| (host, over));
        by(Transport::Tcp).chain(by(Transport::Tls))
    }

    fn query_name_server(
        pv: &str,
        address: SocketAddr,
        over: Transport,
        config: &ClientConfig,
        timeout: Duration,
    ) -> io::Result<Option<FoundServer>> {
        let start = Instant::now();
        let stream = TcpStream::connect_timeout(&address, timeout.max(Duration::from_millis(1)))?;
        let mut direct = circuit_over(stream, address, over, config)?;
        direct.circuit().set_transports(transports(&config.pva.tls));
        direct.circuit().search(&[SearchedChannel { cid: CID, name: pv.as_bytes() }]);
        let claimed = direct.until(start + timeout, |_, event| match event {
            Event::Claimed { server, .. } => Some(server),
            _ => None,
        });
        match claimed {
            Ok(server) => {
                let (server, transport) = (server.address(address, over), server.transport);
                Ok(Some(FoundServer { server, transport, after: start.elapsed() }))
            }
            Err(DirectFailure::Timeout) => Ok(None),
            Err(DirectFailure::Lost(error)) => Err(error),
            Err(DirectFailure::Closed(reason)) => Err(io::Error::other(reason.to_string())),
        }
    }

    fn search(
        pv: &str,
        config: &ClientConfig,
        searched: &mut [SearchedAddress],
        mut found: Vec<FoundServer>,
        timeout: Duration,
    ) -> io::Result<Vec<FoundServer>> {
        let sockets = SearchUdp::bind(config.multicast_ttl)?;
        let start = Instant::now();
        let mut end = start + if found.is_empty() { timeout } else { limit::SECOND_CLAIM };
        let mut searcher = Searcher::new(u64::from(std::process::id()), sockets.port());
        searcher.set_transports(transports(&config.pva.tls));
        searcher.add(CID, pv, now());
        let (mut datagrams, mut claims) = (Vec::new(), Vec::new());
        let mut buffer = vec![0; limit::DATAGRAM_BYTES];
        while Instant::now() < end {
            searcher.tick(now(), &mut datagrams);
            for mut datagram in datagrams.drain(..) {
                for one in searched.iter_mut() {
                    let bytes = datagram.bytes_to(reach(one.address));
                    if let Err(error) = sockets.send_to(bytes, one.address, |_| Ok(())) {
                        one.result = SearchResult::NotSent { reason: error.to_string() };
                    }
                }
            }
            let wake_at = searcher.deadline().map_or(end, |due| due.min(end));
            let mut descriptors: Vec<_> = sockets.all().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
            wait(&mut descriptors, wake_at)?;
            while let Some((n, from)) = sockets.receive(&mut buffer)? {
                searcher.handle(from, &buffer[..n], now(), &mut claims);
            }
            for claim in claims.drain(..) {
                if found.is_empty() {
                    end = end.min(Instant::now() + limit::SECOND_CLAIM);
                }
                // A server replies from each of its addresses that was searched.
                let is_known = found.iter().any(|known| searcher.is_one_server(known.server, claim.server));
                if found.len() < limit::CLAIMS && !is_known {
                    let after = start.elapsed();
                    found.push(FoundServer { server: claim.server, transport: claim.transport, after });
                }
            }
        }
        Ok(found)
    }

    fn connect_and_read(pv: &str, found: &FoundServer, config: &ClientConfig, timeout: Duration) -> ClaimResult {
        let (start, server) = (Instant::now(), found.server);
        let end = start + timeout;
        let stream = match connected(server, timeout) {
            Ok(stream) => stream,
            Err(result) => return result,
        };
        let mut direct = match circuit_over(stream, server, found.transport, config) {
            Ok(direct) => direct,
            Err(error) => return lost(&error),
        };
        direct.circuit().create(CID, pv, now());
        let created = direct.until(end, |_, event| match event {
            Event::Created { sid, .. } => Some(Ok(sid)),
            Event::CreateFailed { status, .. } => Some(Err(status.message.to_string())),
            Event::ChannelGone { .. } => Some(Err(String::new())),
            _ => None,
        });
        let sid = match created {
            Ok(Ok(sid)) => sid,
            Ok(Err(reason)) => return ClaimResult::Refused { reason },
            Err(failure) => return ended(&mut direct, failure, start.elapsed()),
        };
        let after = start.elapsed();
        let (kind, value) = read(&mut direct, sid, end);
        // A structure without a value of its own is reported as a text of unknown length.
        let (kind, count_max) = kind.and_then(|kind| value_kind(&kind)).unwrap_or((Kind::Text, 0));
        let tls = direct.tls_peer().map(Arc::new);
        let facts = ChannelFacts { server, kind, count_max, may_read: true, may_write: true, tls };
        ClaimResult::Channel { facts, after, value }
    }
}

/// A circuit with or without TLS on a new connection to a server.
fn circuit_over(
    stream: TcpStream,
    server: SocketAddr,
    over: Transport,
    config: &ClientConfig,
) -> io::Result<DirectCircuit> {
    let tls = match (over, config.pva.tls.keychain()) {
        (Transport::Tcp, _) => None,
        (Transport::Tls, Some(keychain)) => Some(TlsStream::client(keychain, server)?),
        (Transport::Tls, None) => return Err(io::Error::other("TLS is not configured")),
    };
    DirectCircuit::new(stream, tls, config)
}

/// The type and the value of a channel; without the value if it was not received in time.
fn read(
    direct: &mut DirectCircuit,
    sid: Sid,
    end: Instant,
) -> (Option<Arc<StructureType>>, Option<Result<DiagnosedValue, Refusal>>) {
    let request = PreparedRequest::new(&PvRequest::default());
    let opened = direct.circuit().open(sid, Task::Get, Decoding::Flat, &request);
    if let Err(error) = opened.and_then(|ioid| direct.circuit().get(ioid)) {
        return (None, Some(Err(refusal(error))));
    }
    let mut known = None;
    let value = direct.until(end, |_, event| match event {
        Event::Opened { kind, .. } => {
            known = kind;
            None
        }
        Event::OpenFailed { reason, .. } => Some(Err(refusal(reason))),
        Event::Done { result: Ok(Received::Reading(reading)), .. } => Some(Ok(DiagnosedValue::Reading(reading.into()))),
        Event::Done { result: Ok(Received::Structure(structure)), .. } => {
            Some(Ok(DiagnosedValue::Structure(structure.into())))
        }
        Event::Done { result: Err(reason), .. } => Some(Err(refusal(reason))),
        Event::ChannelGone { .. } => Some(Err(Refusal::Channel { text: String::new() })),
        _ => None,
    });
    (known, value.ok())
}

/// Why a circuit has ended before the server has confirmed the channel.
fn ended(direct: &mut DirectCircuit, failure: DirectFailure, after: Duration) -> ClaimResult {
    match failure {
        DirectFailure::Lost(error) => lost(&error),
        DirectFailure::Closed(DisconnectReason::Rejected(status)) => {
            ClaimResult::Rejected { reason: status.message.to_string() }
        }
        DirectFailure::Closed(reason) => ClaimResult::Invalid { reason: reason.to_string() },
        DirectFailure::Timeout => {
            let awaited = match direct {
                _ if !direct.is_secured() => AwaitedReply::Handshake,
                _ if !direct.has_greeting() => AwaitedReply::Greeting,
                _ if !direct.circuit().is_accepted() => AwaitedReply::Validation,
                _ => AwaitedReply::Channel,
            };
            ClaimResult::Silent { after, awaited }
        }
    }
}

fn lost(error: &io::Error) -> ClaimResult {
    match tls::failure(error) {
        Some(reason) => ClaimResult::Handshake { reason },
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            ClaimResult::Lost { reason: "the server closed the connection".into() }
        }
        None => ClaimResult::Lost { reason: error.to_string() },
    }
}

fn refusal(error: RequestError) -> Refusal {
    match error {
        RequestError::Refused(status) => Refusal::Reported { text: status.message.to_string() },
        error => Refusal::Reported { text: error.to_string() },
    }
}
