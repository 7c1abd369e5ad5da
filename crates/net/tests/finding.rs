//! How names are found, with real sockets on loopback: name servers, beacons, the repeater, duplicates.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fodo_net::traffic_monitor::{SearchMonitor, TrafficMonitor};
use fodo_net::{
    ClientConfig, Context, ErrorKind, Host, Notice, Refusal, Repeater, ServedPv, Server, ServerConfig, SharedPv,
    Source, Value,
};

use fodo_testing::free_port;

const PATIENCE: Duration = Duration::from_secs(30);

/// Serves every name that begins with its letter as 1.5, after having refused it several times.
struct Names {
    first: char,
    n_refusals: AtomicUsize,
}

impl Source for Names {
    fn serves(&self, name: &str) -> bool {
        name.starts_with(self.first)
    }

    fn open(&self, name: &str) -> Option<ServedPv> {
        let refuses = |n: usize| n.checked_sub(1);
        let is_refused = self.n_refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, refuses).is_ok();
        (self.serves(name) && !is_refused).then(|| SharedPv::new(1.5).into())
    }
}

fn serve(first: char, n_refusals: usize, config: ServerConfig) -> Server {
    Server::start(config, Arc::new(Names { first, n_refusals: AtomicUsize::new(n_refusals) })).unwrap()
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn named(port: u16) -> Host {
    Host { name: "127.0.0.1".into(), port }
}

fn listening() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Counts the searches for one absent name of a client, which go to its socket as well.
struct SearchProbe {
    socket: UdpSocket,
    start: Instant,
    n_searches: u32,
}

impl SearchProbe {
    /// The probe, and the address at which the client must search.
    fn new() -> (SearchProbe, SocketAddr) {
        let (socket, address) = listening();
        (SearchProbe { socket, start: Instant::now(), n_searches: 0 }, address)
    }

    /// Waits for the next search for the name. Other names may be in the same datagram.
    fn next(&mut self, name: &[u8]) {
        let mut buffer = [0; 2048];
        loop {
            let n = self.socket.recv(&mut buffer).expect("the client searches");
            if buffer[..n].windows(name.len()).any(|bytes| bytes == name) {
                self.n_searches += 1;
                return;
            }
        }
    }

    /// Waits until the pause before the next search has several seconds.
    fn until_searches_are_rare(&mut self, name: &[u8]) {
        while self.n_searches < 8 {
            self.next(name);
        }
    }

    /// Waits until there are more searches than without a reason to search sooner, since periods double from 32 ms.
    /// One more than this may have such a reason at the start.
    fn until_searches_are_ahead(&mut self, name: &[u8]) {
        while self.n_searches <= (self.start.elapsed().as_millis() / 32 + 1).ilog2() + 2 {
            self.next(name);
        }
    }
}

/// RSRV_IS_UP of a server of this host.
fn beacon(port: u16, number: u32) -> Vec<u8> {
    let mut bytes = vec![0, 13, 0, 0, 0, 13];
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

/// VERSION and SEARCH for "x:1".
const SEARCH_FOR_X1: [u8; 40] = [
    0, 0, 0, 0, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 0, //
    0, 6, 0, 8, 0, 5, 0, 13, 0, 0, 0, 1, 0, 0, 0, 1, b'x', b':', b'1', 0, 0, 0, 0, 0,
];

const REGISTER: [u8; 16] = [0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 127, 0, 0, 1];

#[test]
fn a_name_is_found_through_a_name_server_alone() {
    let server = serve('x', 0, ServerConfig::isolated());
    let config =
        ClientConfig { name_servers: vec![named(server.tcp_port())], ..ClientConfig::with_addresses(Vec::new()) };
    let context = Context::new(config);

    let x = context.channel("x:1").unwrap().get_timeout(PATIENCE).unwrap();
    let absent = context.channel("absent").unwrap().get_timeout(Duration::from_millis(300)).unwrap_err();

    assert_eq!(x.value, Value::from(1.5));
    assert!(matches!(absent.kind(), ErrorKind::NotFound { .. }), "{absent:?}");
}

#[test]
fn an_unreachable_name_server_is_reported_once_and_retried() {
    let port = free_port();
    let (mut probe, address) = SearchProbe::new();
    let config = ClientConfig { name_servers: vec![named(port)], ..ClientConfig::with_addresses(vec![address]) };
    let context = Context::new(config);
    let [x, _absent] = ["x:1", "absent"].map(|name| context.channel(name).unwrap());
    assert_eq!(context.next_notice(PATIENCE), Some(Notice::NameServerLost { server: local(port) }));
    probe.until_searches_are_rare(b"absent");

    let server = serve('x', 0, ServerConfig { port, ..ServerConfig::isolated() });

    assert_eq!(server.tcp_port(), port);
    assert_eq!(x.get_timeout(PATIENCE).unwrap().value, Value::from(1.5));
    probe.until_searches_are_ahead(b"absent");
    assert_eq!(context.next_notice(Duration::ZERO), None);
}

// Row 8 of docs/reference/faults.md.
#[test]
fn duplicate_servers_of_a_name_are_reported_once_and_the_first_is_used() {
    let servers = [(); 3].map(|()| serve('x', 0, ServerConfig::isolated()));
    let context =
        Context::new(ClientConfig::with_addresses(servers.iter().map(|server| local(server.udp_port())).collect()));
    let x = context.channel("x:1").unwrap();

    let facts = x.connect().unwrap();
    let notice = context.next_notice(PATIENCE);

    let servers = servers.iter().map(|server| local(server.tcp_port())).collect::<Vec<_>>();
    let Some(Notice::TwoServers { pv, used, ignored }) = notice else { panic!("{notice:?}") };
    assert_eq!((pv.as_str(), used), ("x:1", facts.server));
    assert!(used != ignored && servers.contains(&used) && servers.contains(&ignored));
    assert_eq!(context.next_notice(Duration::from_millis(200)), None);
}

#[test]
fn two_replies_of_one_server_are_not_reported_as_duplicates() {
    let server = serve('x', 0, ServerConfig::isolated());
    let by_name_too = ClientConfig { name_servers: vec![named(server.tcp_port())], ..server.client_config() };
    let context = Context::new(by_name_too);

    for index in 0..20 {
        context.channel(&format!("x:{index}")).unwrap().get_timeout(PATIENCE).unwrap();
    }

    assert_eq!(context.next_notice(Duration::from_millis(200)), None);
}

// Row 59 of docs/reference/faults.md.
#[test]
fn an_unresolved_host_is_reported_and_the_other_hosts_are_searched() {
    let server = serve('x', 0, ServerConfig::isolated());
    let unknown = Host { name: "no-such-host.invalid".into(), port: 5064 };
    let config = ClientConfig { search_hosts: vec![unknown], ..server.client_config() };
    let context = Context::new(config);

    let x = context.channel("x:1").unwrap().get_timeout(PATIENCE).unwrap();

    assert_eq!(x.value, Value::from(1.5));
    let notice = context.next_notice(Duration::from_secs(60));
    assert_eq!(notice, Some(Notice::UnresolvedHost { host: "no-such-host.invalid".into() }));
}

// Row 59 of docs/reference/faults.md.
#[test]
fn a_server_is_found_by_its_host_name() {
    let server = serve('x', 0, ServerConfig::isolated());
    let host = Host { name: "localhost".into(), port: server.udp_port() };
    let context = Context::new(ClientConfig { search_hosts: vec![host], ..ClientConfig::with_addresses(Vec::new()) });

    assert_eq!(context.channel("x:1").unwrap().get_timeout(PATIENCE).unwrap().value, Value::from(1.5));
}

// Row 11 of docs/reference/faults.md.
#[test]
fn a_rejected_channel_is_retried_with_pauses() {
    let server = serve('x', 3, ServerConfig::isolated());
    let context = Context::new(server.client_config());
    // The first refusal may be received before the first get.
    let start = Instant::now();
    let x = context.channel("x:1").unwrap();

    let refused = x.get_timeout(PATIENCE).unwrap_err();
    while x.get().is_err() {
        assert!(start.elapsed() < PATIENCE, "it does not reconnect");
    }

    assert!(matches!(refused.kind(), ErrorKind::Refused { refusal: Refusal::Channel { .. }, .. }), "{refused:?}");
    assert!(start.elapsed() >= Duration::from_millis(32 + 64), "{:?} for three refusals", start.elapsed());
}

#[test]
fn an_ignored_host_gets_no_search_reply_and_other_hosts_do() {
    let server = serve('x', 0, ServerConfig { ignored: vec![Ipv4Addr::new(127, 0, 0, 2)], ..ServerConfig::isolated() });
    let asking = |ip: &str| {
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(&SEARCH_FOR_X1, local(server.udp_port())).unwrap();
        socket
    };
    let mut buffer = [0; 256];

    let ignored = asking("127.0.0.2");
    let answered = asking("127.0.0.1").recv(&mut buffer);

    // The searches are answered in order, so the first one had its chance.
    ignored.set_nonblocking(true).unwrap();
    assert!(answered.is_ok(), "{answered:?}");
    assert_eq!(ignored.recv(&mut buffer).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn servers_that_share_a_port_are_all_found_by_their_host_address() {
    let one = serve('x', 0, ServerConfig::isolated());
    let port = one.udp_port();
    let _others = ['y', 'z'].map(|first| serve(first, 0, ServerConfig { port, ..ServerConfig::isolated() }));
    let context = Context::new(ClientConfig::with_addresses(vec![local(port)]));

    for name in ["x:1", "y:1", "z:1"] {
        assert_eq!(context.channel(name).unwrap().get_timeout(PATIENCE).unwrap().value, Value::from(1.5), "{name}");
    }
}

#[test]
fn a_beacon_of_a_starting_server_triggers_a_search_for_absent_names() {
    let repeater = Repeater::start(0).unwrap();
    let (mut probe, address) = SearchProbe::new();
    let config = ClientConfig { repeater_port: Some(repeater.port()), ..ClientConfig::with_addresses(vec![address]) };
    let context = Context::new(config);
    let _absent = context.channel("absent").unwrap();
    probe.until_searches_are_rare(b"absent");
    let (server, _) = listening();

    server.send_to(&beacon(6064, 0), local(repeater.port())).unwrap();
    probe.until_searches_are_ahead(b"absent");

    assert_eq!(context.next_notice(PATIENCE), Some(Notice::ServerStarted { server: local(6064) }));
}

#[test]
fn a_starting_server_sends_a_beacon_and_a_waiting_client_connects_soon() {
    let (port, repeater_port) = (free_port(), free_port());
    let (mut probe, address) = SearchProbe::new();
    let addresses = vec![local(port), address];
    let config = ClientConfig { repeater_port: Some(repeater_port), ..ClientConfig::with_addresses(addresses) };
    let context = Context::new(config);
    let [x, _absent] = ["x:1", "absent"].map(|name| context.channel(name).unwrap());
    // By then this process is the repeater.
    probe.until_searches_are_rare(b"absent");

    let beacon_addresses = vec![local(repeater_port)];
    let _server = serve('x', 0, ServerConfig { port, beacon_addresses, ..ServerConfig::isolated() });

    x.connect_timeout(PATIENCE).unwrap();
    probe.until_searches_are_ahead(b"absent");
}

#[test]
fn a_client_becomes_the_repeater_if_none_runs_and_forwards_beacons() {
    let port = free_port();
    let context = Context::new(ClientConfig { repeater_port: Some(port), ..ClientConfig::with_addresses(Vec::new()) });
    let _channel = context.channel("x:1").unwrap();
    let (other, _) = listening();
    other.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (mut buffer, start) = ([0; 64], Instant::now());

    let confirmed = loop {
        other.send_to(&REGISTER, local(port)).unwrap();
        match other.recv_from(&mut buffer) {
            Ok((n, _)) => break buffer[..n].to_vec(),
            Err(_) => assert!(start.elapsed() < PATIENCE, "no confirmation is received"),
        }
    };
    let (server, _) = listening();
    server.send_to(&beacon(6064, 5), local(port)).unwrap();
    let (n, _) = other.recv_from(&mut buffer).unwrap();

    assert_eq!(confirmed, [0, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 127, 0, 0, 1]);
    assert_eq!(buffer[..n], [&beacon(6064, 5)[..12], &[127, 0, 0, 1]].concat());
}

// Row 10 of docs/reference/faults.md.
#[test]
fn a_repeater_owns_its_port_and_removes_disconnected_clients() {
    let repeater = Repeater::start(0).unwrap();
    assert!(Repeater::start(repeater.port()).is_err());
    let mut buffer = [0; 64];
    for _ in 0..1200 {
        // Each client has ended when the next one registers; unless the repeater checks them the table would stay full.
        let (client, _) = listening();
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let start = Instant::now();
        client.send_to(&REGISTER, local(repeater.port())).unwrap();
        while client.recv_from(&mut buffer).is_err() {
            assert!(start.elapsed() < PATIENCE, "there is no room for it");
            client.send_to(&REGISTER, local(repeater.port())).unwrap();
        }
    }

    assert!(repeater.n_clients() < 1000, "{}", repeater.n_clients());
}

#[test]
fn a_traffic_monitor_lists_the_clients_and_servers_of_a_searched_name() {
    let one = serve('x', 0, ServerConfig::isolated());
    let port = one.udp_port();
    let other = serve('x', 0, ServerConfig { port, ..ServerConfig::isolated() });
    let mut monitor = TrafficMonitor::listening(&ClientConfig::with_addresses(vec![local(port)])).unwrap();
    let (client, address) = listening();
    client.set_broadcast(true).unwrap();

    client.send_to(&SEARCH_FOR_X1, ("127.255.255.255", port)).unwrap();
    let has_both = |traffic: &SearchMonitor| traffic.names().first().is_some_and(|name| name.servers.len() == 2);
    monitor.run(PATIENCE, has_both).unwrap();

    let name = &monitor.traffic().names()[0];
    let mut servers = name.servers.clone();
    servers.sort_unstable();
    let mut expected = vec![local(one.tcp_port()), local(other.tcp_port())];
    expected.sort_unstable();
    assert_eq!((name.name.as_str(), name.n_searches, name.clients[0].address), ("x:1", 1, address));
    assert_eq!(servers, expected);
}

#[test]
fn a_traffic_monitor_does_not_intercept_searches_to_a_local_server() {
    let server = serve('x', 0, ServerConfig::isolated());
    let monitor = TrafficMonitor::listening(&server.client_config()).unwrap();
    let (client, _) = listening();

    client.send_to(&SEARCH_FOR_X1, local(server.udp_port())).unwrap();

    assert!(client.recv(&mut [0; 64]).is_ok());
    assert!(monitor.listening_on().iter().all(|address| !address.ip().is_unspecified()), "{monitor:?}");
}

#[test]
fn a_traffic_monitor_receives_beacons_through_the_repeater() {
    let repeater = Repeater::start(0).unwrap();
    let config =
        ClientConfig { repeater_port: Some(repeater.port()), ..ClientConfig::with_addresses(vec![local(free_port())]) };
    let mut monitor = TrafficMonitor::listening(&config).unwrap();
    monitor.run(PATIENCE, |_| repeater.n_clients() == 1).unwrap();
    let (server, _) = listening();

    server.send_to(&beacon(6064, 5), local(repeater.port())).unwrap();
    monitor.run(PATIENCE, |traffic| !traffic.servers().is_empty()).unwrap();

    assert_eq!(monitor.traffic().servers()[0].address, local(6064));
}
