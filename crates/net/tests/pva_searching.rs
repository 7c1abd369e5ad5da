//! Searches and beacons of pvAccess, with real sockets on loopback.

use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use fodo_net::{
    ClientConfig, Context, PvaClientConfig, PvaServerConfig, Quotas, ServedPv, Server, ServerConfig, SharedPv, Source,
};
use fodo_pva::beacon::Beacon;
use fodo_pva::cursor::{ByteOrder, ByteReader};
use fodo_pva::frame;
use fodo_pva::guid::Guid;
use fodo_pva::message::{Answer, Request};
use fodo_pva::search::{
    LOCAL_GROUP, OriginTag, SearchFlags, SearchRequest, SearchResponse, SearchedChannel, wire_address,
};

use fodo_testing::free_port;

const PATIENCE: Duration = Duration::from_secs(10);

/// Serves every name that begins with its letter.
struct Names(char);

impl Source for Names {
    fn serves(&self, name: &str) -> bool {
        name.starts_with(self.0)
    }

    fn open(&self, name: &str) -> Option<ServedPv> {
        self.serves(name).then(|| SharedPv::new(1.5).into())
    }
}

fn serve(first: char, pva: PvaServerConfig) -> Server {
    Server::start(ServerConfig { pva: Some(pva), ..ServerConfig::isolated() }, Arc::new(Names(first))).unwrap()
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A client that sends searches from one socket, and receives their replies there.
struct Searcher(UdpSocket);

impl Searcher {
    fn at(ip: Ipv4Addr) -> Searcher {
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Searcher(socket)
    }

    fn new() -> Searcher {
        Searcher::at(Ipv4Addr::LOCALHOST)
    }

    fn request<'a>(&self, sequence: u32, flags: SearchFlags, names: &[&'a str]) -> SearchRequest<'a> {
        let channels =
            names.iter().zip(1..).map(|(name, cid)| SearchedChannel { cid: number(cid), name: name.as_bytes() });
        SearchRequest {
            sequence,
            flags,
            address: Ipv6Addr::UNSPECIFIED,
            port: self.0.local_addr().unwrap().port(),
            protocols: vec!["tcp".into()],
            channels: channels.collect(),
        }
    }

    fn search(&self, to: SocketAddr, order: ByteOrder, request: &SearchRequest<'_>) {
        self.0.send_to(&encoded(order, request), to).unwrap();
    }

    /// The next reply, and the server's address and byte order.
    fn reply(&self) -> (SearchResponse, SocketAddr, ByteOrder) {
        let mut buffer = [0; 2048];
        let (n, from) = self.0.recv_from(&mut buffer).expect("a reply arrives");
        let (header, payload) = frame::datagram(&buffer[..n]).next().unwrap().unwrap();
        let mut reader = ByteReader::new(payload, header.order);
        assert_eq!(Answer::decode(header.command, &mut reader), Answer::SearchResponse {});
        let response = SearchResponse::decode(&mut reader);
        reader.finish().unwrap();
        let server = response.server(from);
        (response, server, header.order)
    }

    fn has_more(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        self.0.recv(&mut [0; 2048]).is_ok()
    }
}

fn number(cid: u32) -> fodo_pva::Cid {
    fodo_pva::Cid(cid)
}

fn encoded(order: ByteOrder, request: &SearchRequest<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Request::Search {}.encode(order, &mut bytes, |to| request.encode(to));
    bytes
}

fn udp(server: &Server) -> SocketAddr {
    local(server.pva_udp_port().unwrap())
}

#[test]
fn a_served_name_is_found_in_both_byte_orders_and_an_unserved_one_is_not() {
    let server = serve('x', PvaServerConfig::isolated());
    let client = Searcher::new();

    for (sequence, order) in [(7, ByteOrder::Little), (8, ByteOrder::Big)] {
        client.search(udp(&server), order, &client.request(99, SearchFlags(0), &["y:1"]));
        client.search(udp(&server), order, &client.request(sequence, SearchFlags(0), &["y:1", "x:1"]));

        // The searches are answered in order, so the first one had its chance.
        let (response, at, reply_order) = client.reply();
        assert_eq!((response.sequence, response.is_found, response.cids), (sequence, true, vec![number(2)]));
        assert_eq!((at, reply_order), (local(server.pva_tcp_port().unwrap()), order));
        assert_eq!(response.protocol, "tcp".into());
    }
    assert!(!client.has_more());
    assert_eq!(server.observer().counts().searches, 6);
}

#[test]
fn a_search_that_demands_a_reply_gets_one_even_if_nothing_is_found() {
    let server = serve('x', PvaServerConfig::isolated());
    let client = Searcher::new();

    for names in [&["y:1"][..], &[]] {
        client.search(udp(&server), ByteOrder::Big, &client.request(5, SearchFlags::MUST_REPLY, names));

        let (response, _, _) = client.reply();
        assert_eq!((response.sequence, response.is_found, response.cids), (5, false, vec![]));
        assert_ne!(response.guid, Guid::default());
    }
}

#[test]
fn a_server_keeps_its_identity_and_two_servers_differ() {
    let servers = ['x', 'y'].map(|first| serve(first, PvaServerConfig::isolated()));
    let client = Searcher::new();

    let [x, y] = servers.each_ref().map(|server| {
        let guids = [1, 2].map(|sequence| {
            let request = client.request(sequence, SearchFlags::MUST_REPLY, &[]);
            client.search(udp(server), ByteOrder::Little, &request);
            client.reply().0.guid
        });
        assert_eq!(guids[0], guids[1]);
        guids[0]
    });

    assert_ne!(x, y);
}

#[test]
fn invalid_datagrams_are_counted_and_later_searches_are_answered() {
    let server = serve('x', PvaServerConfig::isolated());
    let client = Searcher::new();
    let good = encoded(ByteOrder::Big, &client.request(1, SearchFlags(0), &["x:1"]));

    let cut = &good[..good.len() - 1];
    let mut many_names = good.clone();
    many_names[8 + 31..][..2].copy_from_slice(&[0xff; 2]);
    for datagram in [cut, &many_names, b"GET / HTTP/1.1\r\n", &good] {
        client.0.send_to(datagram, udp(&server)).unwrap();
    }

    assert_eq!(client.reply().0.cids, [number(1)]);
    assert_eq!(server.observer().counts().flawed, 3);
}

#[test]
fn an_ignored_host_gets_no_reply_and_other_hosts_do() {
    let ignored = Ipv4Addr::new(127, 0, 0, 2);
    let server = serve('x', PvaServerConfig { ignored: vec![ignored.into()], ..PvaServerConfig::isolated() });
    let clients = [Searcher::at(ignored), Searcher::new()];

    for client in &clients {
        client.search(udp(&server), ByteOrder::Big, &client.request(1, SearchFlags(0), &["x:1"]));
    }

    assert!(clients[1].reply().0.is_found);
    assert!(!clients[0].has_more());
}

#[test]
fn searches_of_both_protocols_use_the_same_share_of_their_source() {
    let quotas = Quotas { source_search_bytes: 0, ..Quotas::default() };
    let server = Server::start(ServerConfig { quotas, ..ServerConfig::isolated() }, Arc::new(Names('x'))).unwrap();
    let client = Searcher::new();

    client.search(udp(&server), ByteOrder::Big, &client.request(1, SearchFlags(0), &["x:1"]));
    client.0.send_to(&[0; 16], local(server.udp_port())).unwrap();

    let start = std::time::Instant::now();
    while server.observer().counts().refused < 2 {
        assert!(start.elapsed() < PATIENCE, "{:?}", server.observer().counts());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!client.has_more());
}

#[test]
fn beacons_arrive_at_the_configured_address() {
    let receiver = Searcher::new();
    let beacon_addresses = vec![receiver.0.local_addr().unwrap()];

    let server = serve('x', PvaServerConfig { beacon_addresses, ..PvaServerConfig::isolated() });

    let mut buffer = [0; 256];
    let (n, from) = receiver.0.recv_from(&mut buffer).expect("a beacon arrives");
    let (header, payload) = frame::datagram(&buffer[..n]).next().unwrap().unwrap();
    let mut reader = ByteReader::new(payload, header.order);
    assert_eq!(Answer::decode(header.command, &mut reader), Answer::Beacon {});
    let beacon = Beacon::decode(&mut reader);
    assert_eq!(reader.finish(), Ok(()));
    assert_eq!(beacon.server(from), local(server.pva_tcp_port().unwrap()));
    assert_eq!((beacon.sequence, beacon.protocol), (0, "tcp".into()));
    let client = Searcher::new();
    client.search(udp(&server), ByteOrder::Big, &client.request(1, SearchFlags::MUST_REPLY, &[]));
    assert_eq!(client.reply().0.guid, beacon.guid);
}

/// Whether datagrams to a multicast group that are sent on loopback are received there; some sandboxes have no
/// multicasts.
fn has_loopback_multicasts() -> bool {
    let receiver = UdpSocket::bind("0.0.0.0:0").unwrap();
    let sender = socket2::Socket::from(UdpSocket::bind("127.0.0.1:0").unwrap());
    receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let to = SocketAddr::from((LOCAL_GROUP, receiver.local_addr().unwrap().port()));
    let is_sent = receiver.join_multicast_v4(&LOCAL_GROUP, &Ipv4Addr::LOCALHOST).is_ok()
        && sender.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).is_ok()
        && sender.send_to(b"?", &to.into()).is_ok();
    is_sent && receiver.recv(&mut [0; 8]).is_ok()
}

#[test]
fn a_search_to_one_address_reaches_all_servers_that_share_the_port() {
    let shared = PvaServerConfig { search_port: free_port(), ..PvaServerConfig::isolated() };
    let servers = ['x', 'y', 'z'].map(|first| serve(first, shared.clone()));
    let client = Searcher::new();

    let names = ["x:1", "y:1", "z:1"];
    client.search(local(shared.search_port), ByteOrder::Little, &client.request(3, SearchFlags::UNICAST, &names));

    if !has_loopback_multicasts() {
        let (response, _, _) = client.reply();
        assert!(response.is_found, "without multicasts on loopback one server receives the search, and answers it");
        return;
    }
    let mut found: Vec<(Vec<_>, SocketAddr)> =
        (0..3).map(|_| client.reply()).map(|(response, server, _)| (response.cids, server)).collect();
    found.sort_by_key(|(cids, _)| cids[0].0);
    let expected = servers.each_ref().map(|server| local(server.pva_tcp_port().unwrap()));
    assert_eq!(found, [1, 2, 3].map(number).map(|cid| vec![cid]).into_iter().zip(expected).collect::<Vec<_>>());
    assert!(!client.has_more(), "no server answers twice");
    let n_searches: u64 = servers.iter().map(|server| server.observer().counts().searches).sum();
    assert_eq!(n_searches, 9);
}

#[test]
fn a_forwarded_search_is_answered_by_every_server_and_forwarded_by_none() {
    let shared = PvaServerConfig { search_port: free_port(), ..PvaServerConfig::isolated() };
    let _servers = ['x', 'x'].map(|first| serve(first, shared.clone()));
    let client = Searcher::new();
    let spy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to_client = SearchRequest {
        address: wire_address(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ..client.request(4, SearchFlags(0), &["x:1"])
    };
    let mut bytes = Vec::new();
    let tag = OriginTag { destination: wire_address(IpAddr::V4(Ipv4Addr::LOCALHOST)) };
    Request::OriginTag {}.encode(ByteOrder::Big, &mut bytes, |to| tag.encode(to));
    bytes.extend(encoded(ByteOrder::Big, &to_client));

    // Sent to one address, a tag is not accepted.
    spy.send_to(&bytes, local(shared.search_port)).unwrap();
    let demand = client.request(5, SearchFlags::MUST_REPLY, &[]);
    client.search(local(shared.search_port), ByteOrder::Big, &demand);
    assert_eq!(client.reply().0.sequence, 5);

    if has_loopback_multicasts() {
        let sender = socket2::Socket::from(spy);
        sender.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
        sender.send_to(&bytes, &SocketAddr::from((LOCAL_GROUP, shared.search_port)).into()).unwrap();
        let guids = [(), ()].map(|()| client.reply().0).map(|response| (response.sequence, response.guid));
        assert!(guids[0].0 == 4 && guids[1].0 == 4 && guids[0].1 != guids[1].1, "{guids:?}");
    }
    assert!(!client.has_more());
}

/// A server at several addresses of this host.
fn serve_at(addresses: &[Ipv4Addr]) -> Server {
    serve(
        'x',
        PvaServerConfig { interfaces: addresses.iter().map(|&ip| ip.into()).collect(), ..PvaServerConfig::isolated() },
    )
}

// Row 34 of docs/reference/faults.md.
#[test]
fn a_server_with_several_addresses_replies_from_the_searched_one_and_serves_at_each() {
    let addresses = [1, 2, 3].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let server = serve_at(&addresses);
    let (udp, tcp) = (server.pva_udp_port().unwrap(), server.pva_tcp_port().unwrap());
    let client = Searcher::new();
    let mut guids = Vec::new();

    for address in addresses {
        client.search(SocketAddr::from((address, udp)), ByteOrder::Big, &client.request(1, SearchFlags(0), &["x:1"]));

        let (response, at, _) = client.reply();
        assert_eq!(at, SocketAddr::from((address, tcp)), "the client takes the source of the reply for the server");
        assert!(TcpStream::connect(at).is_ok(), "{at}");
        guids.push(response.guid);
    }

    assert!(guids.iter().all(|guid| *guid == guids[0]));
    assert!(!client.has_more());
}

// Row 34 of docs/reference/faults.md.
#[test]
fn a_client_that_searches_several_addresses_of_a_server_connects_once() {
    let addresses = [1, 2, 3].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let server = serve_at(&addresses);
    let searched = addresses.map(|address| SocketAddr::from((address, server.pva_udp_port().unwrap())));
    let pva = PvaClientConfig::with_addresses(searched.to_vec());
    let context = Context::new(ClientConfig { pva, ..ClientConfig::with_addresses(Vec::new()) });

    let x = context.channel("pva://x:1").unwrap();
    assert_eq!(x.get_timeout(PATIENCE).unwrap().value, 1.5.into());

    assert_eq!(server.observer().clients().len(), 1);
    // The replies of the other addresses precede those to this search.
    let other = context.channel("pva://x:2").unwrap();
    assert_eq!(other.get_timeout(PATIENCE).unwrap().value, 1.5.into());
    assert_eq!(context.next_notice(Duration::ZERO), None, "it is one server");
}

#[test]
fn a_client_configuration_of_the_server_searches_both_protocols_of_it() {
    let server = serve('x', PvaServerConfig::isolated());
    let without = Server::start(ServerConfig { pva: None, ..ServerConfig::isolated() }, Arc::new(Names('x'))).unwrap();

    let config = server.client_config();

    assert_eq!(config.search_addresses, [local(server.udp_port())]);
    assert_eq!(config.pva.search_addresses, [udp(&server)]);
    assert_eq!((config.interface_search_port, config.pva.interface_search_port), (None, None));
    assert_eq!((without.pva_tcp_port(), without.pva_udp_port()), (None, None));
    assert_eq!(without.client_config().pva.search_addresses, []);
}

#[test]
fn circuits_are_accepted_at_the_port_in_the_reply() {
    let server = serve('x', PvaServerConfig::isolated());
    let client = Searcher::new();
    client.search(udp(&server), ByteOrder::Big, &client.request(1, SearchFlags(0), &["x:1"]));

    let mut stream = TcpStream::connect(client.reply().1).unwrap();

    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let read = stream.read(&mut [0; 64]).map_err(|error| error.kind());
    assert_ne!(read, Err(ErrorKind::WouldBlock), "the server greets its client, or closes the circuit");
}
