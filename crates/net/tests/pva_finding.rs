//! How names are found over pvAccess, with real sockets on loopback: searches, claims, name servers, beacons.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use fodo_net::{Channel, ChannelState, ClientConfig, Context, Host, Notice, PvaClientConfig};
use fodo_pva::Cid;
use fodo_pva::beacon::Beacon;
use fodo_pva::cursor::{ByteOrder, ByteReader};
use fodo_pva::frame::{self, Frame, Framer, Sender};
use fodo_pva::guid::Guid;
use fodo_pva::message::{Answer, Request};
use fodo_pva::search::{self, SearchFlags, SearchRequest, SearchResponse};
use fodo_pva::status::RequestStatus;

const PATIENCE: Duration = Duration::from_secs(10);

/// Searches over pvAccess with this configuration, and not over Channel Access.
fn context(pva: PvaClientConfig) -> Context {
    Context::new(ClientConfig { pva, ..ClientConfig::with_addresses(Vec::new()) })
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().unwrap().port()
}

fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

/// The next connection.
fn accept(listener: &TcpListener) -> TcpStream {
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(start.elapsed() < PATIENCE, "no connection");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn has_no_connection(listener: &TcpListener) -> bool {
    listener.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// A search as it was received.
#[derive(Debug)]
struct ReceivedSearch {
    from: SocketAddr,
    version: u8,
    sequence: u32,
    flags: SearchFlags,
    reply_to: SocketAddr,
    names: Vec<(Cid, String)>,
}

impl ReceivedSearch {
    /// A response that all names are served at this port of the host that responds.
    fn response(&self, port: u16) -> SearchResponse {
        SearchResponse {
            guid: Guid::from_bits(1, 1),
            sequence: self.sequence,
            address: Ipv6Addr::UNSPECIFIED,
            port,
            protocol: search::TCP.into(),
            is_found: true,
            cids: self.names.iter().map(|(cid, _)| *cid).collect(),
        }
    }
}

fn encoded(response: &SearchResponse) -> Vec<u8> {
    let mut bytes = Vec::new();
    (Answer::SearchResponse {}).encode(ByteOrder::Little, &mut bytes, |to| response.encode(to));
    bytes
}

/// The socket of a scripted server, which receives searches and replies to them.
struct Responder {
    socket: UdpSocket,
}

impl Responder {
    fn new() -> Responder {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Responder { socket }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// A context that searches here only.
    fn context(&self) -> Context {
        context(PvaClientConfig::with_addresses(vec![self.address()]))
    }

    fn next(&self) -> ReceivedSearch {
        let mut buffer = [0; 2048];
        let (n, from) = self.socket.recv_from(&mut buffer).unwrap();
        let (header, payload) = frame::datagram(&buffer[..n]).next().unwrap().unwrap();
        assert_eq!((header.from, header.command), (Sender::Client, (Request::Search {}).command()));
        let request = SearchRequest::decode(&mut ByteReader::new(payload, header.order));
        assert!(request.accepts(search::TCP));
        ReceivedSearch {
            from,
            version: header.version,
            sequence: request.sequence,
            flags: request.flags,
            reply_to: request.reply_to(from, false),
            names: request
                .channels
                .iter()
                .map(|channel| (channel.cid, String::from_utf8_lossy(channel.name).into_owned()))
                .collect(),
        }
    }

    /// The next search that contains this name.
    fn next_for(&self, name: &str) -> ReceivedSearch {
        loop {
            let search = self.next();
            if search.names.iter().any(|(_, searched)| searched == name) {
                return search;
            }
        }
    }

    fn send(&self, search: &ReceivedSearch, bytes: &[u8]) {
        self.socket.send_to(bytes, search.reply_to).unwrap();
    }
}

#[test]
fn a_search_is_sent_as_by_pvxs_and_a_claim_opens_a_connection_to_the_claimed_port() {
    let (responder, server) = (Responder::new(), listener());
    let context = responder.context();

    let x = context.channel("pva://x:1").unwrap();
    let search = responder.next();
    responder.send(&search, &encoded(&search.response(port_of(&server))));
    let connection = accept(&server);

    assert_eq!((search.version, search.flags, search.reply_to), (2, SearchFlags::UNICAST, search.from));
    assert_eq!((search.names[0].1.as_str(), search.names.len()), ("x:1", 1));
    assert_eq!(connection.local_addr().unwrap(), local(port_of(&server)));
    let start = Instant::now();
    while x.state() != ChannelState::Connecting {
        assert!(start.elapsed() < PATIENCE, "{:?}", x.state());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_explicit_address_in_a_response_is_that_of_the_server() {
    let responder = Responder::new();
    let server = TcpListener::bind("127.0.0.2:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let context = responder.context();

    let _x = context.channel("pva://x:1").unwrap();
    let search = responder.next();
    let address = Ipv4Addr::new(127, 0, 0, 2).to_ipv6_mapped();
    responder.send(&search, &encoded(&SearchResponse { address, ..search.response(port_of(&server)) }));

    accept(&server);
}

#[cfg(target_os = "linux")]
#[test]
fn a_search_to_a_broadcast_address_requests_no_forwarding() {
    let responder = Responder { socket: UdpSocket::bind("0.0.0.0:0").unwrap() };
    responder.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let all = SocketAddr::from(([127, 255, 255, 255], responder.address().port()));
    let context = context(PvaClientConfig::with_addresses(vec![all]));

    let _x = context.channel("pva://x:1").unwrap();

    assert_eq!(responder.next().flags, SearchFlags(0));
}

#[test]
fn foreign_late_and_repeated_responses_open_no_connection() {
    let (responder, server, trap) = (Responder::new(), listener(), listener());
    let context = responder.context();
    let x = context.channel("pva://x:1").unwrap();
    let search = responder.next();
    let response = search.response(port_of(&server));
    let foreign = search.response(port_of(&trap));

    for ignored in [
        SearchResponse { is_found: false, ..foreign.clone() },
        SearchResponse { protocol: search::TLS.into(), ..foreign.clone() },
        SearchResponse { sequence: search.sequence.wrapping_sub(1), ..foreign.clone() },
        SearchResponse { sequence: search.sequence.wrapping_add(1000), ..foreign.clone() },
        SearchResponse { cids: vec![Cid(u32::MAX)], ..foreign.clone() },
        SearchResponse { cids: Vec::new(), ..foreign.clone() },
        SearchResponse { address: Ipv4Addr::BROADCAST.to_ipv6_mapped(), ..foreign.clone() },
    ] {
        responder.send(&search, &encoded(&ignored));
    }
    let whole = encoded(&foreign);
    (0..whole.len()).for_each(|n_bytes| responder.send(&search, &whole[..n_bytes]));
    responder.send(&search, b"GET / HTTP/1.1");
    for _ in 0..3 {
        responder.send(&search, &encoded(&response));
    }
    let _connection = accept(&server);
    responder.send(&search, &encoded(&foreign));
    // Each response is processed after those that were sent before.
    let find = |name: &str| {
        let channel = context.channel(&format!("pva://{name}")).unwrap();
        let search = responder.next_for(name);
        responder.send(&search, &encoded(&search.response(port_of(&server))));
        wait_until_found(&channel);
        channel
    };
    let _y = find("y:1");
    drop(x);
    responder.send(&search, &encoded(&foreign));
    let _z = find("z:1");

    assert!(has_no_connection(&trap), "claimed by a foreign response");
    assert!(has_no_connection(&server), "all channels share the first connection");
}

fn wait_until_found(channel: &Channel) {
    let start = Instant::now();
    while channel.state() == ChannelState::Searching {
        assert!(start.elapsed() < PATIENCE, "the claim is not used");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn two_servers_of_a_name_are_reported_and_two_addresses_of_one_server_are_not() {
    let (responder, server, other) = (Responder::new(), listener(), listener());
    let context = responder.context();
    let _x = context.channel("pva://x:1").unwrap();
    let search = responder.next();

    responder.send(&search, &encoded(&search.response(port_of(&server))));
    let _connection = accept(&server);
    // The same identity at another port.
    responder.send(&search, &encoded(&search.response(1)));
    let of_other = SearchResponse { guid: Guid::from_bits(2, 2), ..search.response(port_of(&other)) };
    responder.send(&search, &encoded(&of_other));
    let notice = context.next_notice(PATIENCE);

    let (used, ignored) = (local(port_of(&server)), local(port_of(&other)));
    assert_eq!(notice, Some(Notice::TwoServers { pv: "x:1".into(), used, ignored }));
}

// Row 34 of docs/reference/faults.md.
#[test]
fn an_address_of_ipv6_without_its_interface_is_reported_and_the_others_are_searched() {
    let responder = Responder::new();
    let search_hosts = vec![Host { name: "fe80::1%nowhere".into(), port: 5076 }];
    let context =
        context(PvaClientConfig { search_hosts, ..PvaClientConfig::with_addresses(vec![responder.address()]) });

    let _x = context.channel("pva://x:1").unwrap();

    assert_eq!(responder.next().names[0].1, "x:1");
    let notice = context.next_notice(PATIENCE).unwrap();
    assert_eq!(notice, Notice::UnresolvedHost { host: "fe80::1%nowhere".into() });
    assert!(notice.to_string().contains("IPv6 is for pvAccess only"), "{notice}");
}

#[test]
fn channels_of_both_protocols_end_with_their_context() {
    let responder = Responder::new();
    let pva = PvaClientConfig::with_addresses(vec![responder.address()]);
    let context = Context::new(ClientConfig { pva, ..ClientConfig::with_addresses(vec![responder.address()]) });
    let channels = ["ca://x:1", "pva://x:1"].map(|name| context.channel(name).unwrap());

    context.close();

    assert!(channels.iter().all(|channel| channel.state() == ChannelState::Closed));
    assert!(context.channel("pva://x:1").is_err());
}

/// A name server on one connection: greets, accepts the client, and returns the names of the first search.
fn serve_names(mut stream: TcpStream, reply: impl Fn(Vec<Cid>) -> SearchResponse) -> Vec<String> {
    let order = ByteOrder::Little;
    let mut bytes = frame::Control::SetByteOrder(0).header(Sender::Server, order).encode().to_vec();
    let methods = vec!["anonymous".into(), "ca".into()];
    Answer::ConnectionValidation { buffer_bytes: 65536, registry_size: 100, methods }.encode(order, &mut bytes, |_| {});
    stream.write_all(&bytes).unwrap();
    let (mut framer, mut buffer) = (Framer::new(Sender::Client, 1 << 20), [0; 2048]);
    loop {
        let n = stream.read(&mut buffer).unwrap();
        assert!(n > 0, "the client closed the connection");
        let mut input = &buffer[..n];
        while let Some(frame) = framer.next(&mut input).unwrap() {
            let Frame::Message(header, payload) = frame else { continue };
            let mut reader = ByteReader::new(payload, header.order);
            let mut bytes = Vec::new();
            match Request::decode(header.command, &mut reader) {
                Request::ConnectionValidation { .. } => {
                    let status = RequestStatus::OK;
                    Answer::ConnectionValidated { status }.encode(order, &mut bytes, |_| {});
                    stream.write_all(&bytes).unwrap();
                }
                Request::Search {} => {
                    let request = SearchRequest::decode(&mut reader);
                    let response = reply(request.channels.iter().map(|channel| channel.cid).collect());
                    stream.write_all(&encoded(&response)).unwrap();
                    let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
                    return request.channels.iter().map(|channel| name(channel.name)).collect();
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_name_is_found_through_a_name_server_alone() {
    let (name_server, server) = (listener(), listener());
    let at = Host { name: "127.0.0.1".into(), port: port_of(&name_server) };
    let context = context(PvaClientConfig { name_servers: vec![at], ..PvaClientConfig::with_addresses(Vec::new()) });
    let _x = context.channel("pva://x:1").unwrap();

    let connection = accept(&name_server);
    let names = serve_names(connection.try_clone().unwrap(), |cids| SearchResponse {
        guid: Guid::from_bits(3, 3),
        sequence: 0,
        address: Ipv4Addr::LOCALHOST.to_ipv6_mapped(),
        port: port_of(&server),
        protocol: search::TCP.into(),
        is_found: true,
        cids,
    });

    assert_eq!(names, ["x:1"]);
    accept(&server);
    assert_eq!(context.next_notice(Duration::ZERO), None);
}

#[test]
fn a_name_server_that_closes_its_connections_is_reported_once_and_tried_again() {
    let name_server = listener();
    let port = port_of(&name_server);
    let at = Host { name: "127.0.0.1".into(), port };
    let context = context(PvaClientConfig { name_servers: vec![at], ..PvaClientConfig::with_addresses(Vec::new()) });
    let _x = context.channel("pva://x:1").unwrap();

    drop(accept(&name_server));
    assert_eq!(context.next_notice(PATIENCE), Some(Notice::NameServerLost { server: local(port) }));
    drop(accept(&name_server));
    // The next attempt follows only after the failure was handled.
    let _connection = accept(&name_server);

    assert_eq!(context.next_notice(Duration::ZERO), None);
}

#[cfg(target_os = "linux")]
#[test]
fn a_beacon_of_a_starting_server_triggers_a_search_for_absent_names() {
    let responder = Responder::new();
    let port = fodo_testing::free_port();
    let context = context(PvaClientConfig {
        beacon_port: Some(port),
        ..PvaClientConfig::with_addresses(vec![responder.address()])
    });
    let _absent = context.channel("pva://absent").unwrap();
    let mut pause = Duration::ZERO;
    while pause < Duration::from_secs(1) {
        let start = Instant::now();
        responder.next();
        pause = start.elapsed();
    }
    let mut beacon = Vec::new();
    (Answer::Beacon {}).encode(ByteOrder::Big, &mut beacon, |to| {
        let guid = Guid::from_bits(4, 4);
        let (address, protocol) = (Ipv6Addr::UNSPECIFIED, search::TCP.into());
        Beacon { guid, flags: 0, sequence: 0, change_count: 0, address, port: 6075, protocol, status: None }.encode(to);
    });
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_broadcast(true).unwrap();

    server.send_to(&beacon, ("127.255.255.255", port)).unwrap();
    let start = Instant::now();
    responder.next();

    assert!(start.elapsed() < pause / 2, "{:?}", start.elapsed());
    assert_eq!(context.next_notice(PATIENCE), Some(Notice::ServerStarted { server: local(6075) }));
}

#[cfg(target_os = "linux")]
#[test]
fn a_client_that_receives_beacons_takes_no_search_from_a_server_that_shares_the_port() {
    let server = fodo_net::reactor::shared_udp(Ipv4Addr::UNSPECIFIED, 0).unwrap();
    server.set_nonblocking(false).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let port = server.local_addr().unwrap().port();
    let responder = Responder::new();
    let context = context(PvaClientConfig {
        beacon_port: Some(port),
        ..PvaClientConfig::with_addresses(vec![responder.address(), local(port)])
    });

    let _absent = context.channel("pva://absent").unwrap();
    // The client binds its sockets after its first search, and long before the third one.
    let mut buffer = [0; 2048];
    for _ in 0..4 {
        responder.next();
        server.recv_from(&mut buffer).unwrap();
    }
}
