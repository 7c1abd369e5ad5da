//! How names are found, with real sockets on loopback: name servers, beacons, the repeater, duplicates.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fodo_net::traffic_monitor::{SearchMonitor, TrafficMonitor};
use fodo_net::{
    ClientConfig, Context, ErrorKind, Host, Notice, Pv, Refusal, Repeater, Server, ServerConfig, SharedPv, Source,
    Value,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// Serves every name that begins with its letter as 1.5, after having refused it several times.
struct Names {
    first: char,
    n_refusals: AtomicUsize,
}

impl Source for Names {
    fn serves(&self, name: &str) -> bool {
        name.starts_with(self.first)
    }

    fn open(&self, name: &str) -> Option<Arc<dyn Pv>> {
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

/// A UDP port that is currently free.
fn free_udp() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn free_tcp() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn listening() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
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
fn a_name_is_found_by_way_of_a_name_server_alone() {
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
fn a_name_server_that_is_not_there_is_told_of_once_and_asked_as_soon_as_it_is() {
    let port = free_tcp();
    let config = ClientConfig { name_servers: vec![named(port)], ..ClientConfig::with_addresses(Vec::new()) };
    let context = Context::new(config);
    let x = context.channel("x:1").unwrap();
    assert_eq!(context.next_notice(PATIENCE), Some(Notice::NameServerLost { server: local(port) }));
    // By then its next search is three seconds away, and the next attempt of the name server one second.
    assert!(x.get_timeout(Duration::from_millis(5200)).is_err());

    let server = serve('x', 0, ServerConfig { port, ..ServerConfig::isolated() });
    let start = Instant::now();

    assert_eq!(server.tcp_port(), port);
    assert_eq!(x.get_timeout(PATIENCE).unwrap().value, Value::from(1.5));
    assert!(start.elapsed() < Duration::from_millis(2500), "{:?}", start.elapsed());
    assert_eq!(context.next_notice(Duration::ZERO), None);
}

#[test]
fn row_8_two_servers_with_the_same_name_are_told_once_and_the_first_is_used() {
    let servers = [(); 3].map(|()| serve('x', 0, ServerConfig::isolated()));
    let context =
        Context::new(ClientConfig::with_addresses(servers.iter().map(|server| local(server.udp_port())).collect()));
    let x = context.channel("x:1").unwrap();

    let facts = x.connect_timeout(PATIENCE).unwrap();
    let notice = context.next_notice(PATIENCE);

    let servers = servers.iter().map(|server| local(server.tcp_port())).collect::<Vec<_>>();
    let Some(Notice::TwoServers { pv, used, ignored }) = notice else { panic!("{notice:?}") };
    assert_eq!((pv.as_str(), used), ("x:1", facts.server));
    assert!(used != ignored && servers.contains(&used) && servers.contains(&ignored));
    assert_eq!(context.next_notice(Duration::from_millis(200)), None);
}

#[test]
fn one_server_that_answers_twice_is_no_second_server() {
    let server = serve('x', 0, ServerConfig::isolated());
    let by_name_too = ClientConfig { name_servers: vec![named(server.tcp_port())], ..server.client_config() };
    let context = Context::new(by_name_too);

    for index in 0..20 {
        context.channel(&format!("x:{index}")).unwrap().get_timeout(PATIENCE).unwrap();
    }

    assert_eq!(context.next_notice(Duration::from_millis(200)), None);
}

#[test]
fn row_59_a_host_that_cannot_be_resolved_is_told_of_and_the_others_are_asked() {
    let server = serve('x', 0, ServerConfig::isolated());
    let unknown = Host { name: "no-such-host.invalid".into(), port: 5064 };
    let config = ClientConfig { search_hosts: vec![unknown], ..server.client_config() };
    let context = Context::new(config);

    let x = context.channel("x:1").unwrap().get_timeout(PATIENCE).unwrap();

    assert_eq!(x.value, Value::from(1.5));
    let told = context.next_notice(Duration::from_secs(60));
    assert_eq!(told, Some(Notice::UnresolvedHost { host: "no-such-host.invalid".into() }));
}

#[test]
fn row_59_a_host_is_found_by_its_name() {
    let server = serve('x', 0, ServerConfig::isolated());
    let host = Host { name: "localhost".into(), port: server.udp_port() };
    let context = Context::new(ClientConfig { search_hosts: vec![host], ..ClientConfig::with_addresses(Vec::new()) });

    assert_eq!(context.channel("x:1").unwrap().get_timeout(PATIENCE).unwrap().value, Value::from(1.5));
}

#[test]
fn row_11_a_server_that_refuses_a_channel_at_first_is_asked_again_with_pauses() {
    let server = serve('x', 3, ServerConfig::isolated());
    let context = Context::new(server.client_config());
    // The first refusal may be received before the first get.
    let start = Instant::now();
    let x = context.channel("x:1").unwrap();

    let refused = x.get_timeout(PATIENCE).unwrap_err();
    while x.get_timeout(PATIENCE).is_err() {
        assert!(start.elapsed() < PATIENCE, "it does not reconnect");
    }

    assert!(matches!(refused.kind(), ErrorKind::Refused { refusal: Refusal::Channel, .. }), "{refused:?}");
    assert!(start.elapsed() >= Duration::from_millis(32 + 64), "{:?} for three refusals", start.elapsed());
}

#[test]
fn a_host_that_is_ignored_gets_no_answer_and_others_do() {
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
fn servers_that_share_a_port_of_one_host_are_all_found_by_its_address() {
    let one = serve('x', 0, ServerConfig::isolated());
    let port = one.udp_port();
    let _others = ['y', 'z'].map(|first| serve(first, 0, ServerConfig { port, ..ServerConfig::isolated() }));
    let context = Context::new(ClientConfig::with_addresses(vec![local(port)]));

    for name in ["x:1", "y:1", "z:1"] {
        assert_eq!(context.channel(name).unwrap().get_timeout(PATIENCE).unwrap().value, Value::from(1.5), "{name}");
    }
}

#[test]
fn a_beacon_of_a_server_that_starts_has_absent_names_asked_for_at_once() {
    let repeater = Repeater::start(0).unwrap();
    let (answering, address) = listening();
    let config = ClientConfig { repeater_port: Some(repeater.port()), ..ClientConfig::with_addresses(vec![address]) };
    let context = Context::new(config);
    let _absent = context.channel("absent").unwrap();
    let mut buffer = [0; 2048];
    let mut pause = Duration::ZERO;
    while pause < Duration::from_secs(1) {
        let start = Instant::now();
        answering.recv_from(&mut buffer).unwrap();
        pause = start.elapsed();
    }
    let (server, _) = listening();

    server.send_to(&beacon(6064, 0), local(repeater.port())).unwrap();
    let start = Instant::now();
    answering.recv_from(&mut buffer).unwrap();

    assert!(start.elapsed() < pause / 2, "{:?}", start.elapsed());
    assert_eq!(context.next_notice(PATIENCE), Some(Notice::ServerStarted { server: local(6064) }));
}

#[test]
fn a_server_says_that_it_is_up_and_a_client_that_has_waited_finds_it_within_a_moment() {
    let (port, repeater_port) = (free_udp(), free_udp());
    let config = ClientConfig { repeater_port: Some(repeater_port), ..ClientConfig::with_addresses(vec![local(port)]) };
    let context = Context::new(config);
    let x = context.channel("x:1").unwrap();
    // By then its next search is almost three seconds away, and this process is the repeater.
    assert!(x.get_timeout(Duration::from_millis(5200)).is_err());

    let beacon_addresses = vec![local(repeater_port)];
    let _server = serve('x', 0, ServerConfig { port, beacon_addresses, ..ServerConfig::isolated() });
    let start = Instant::now();
    x.connect_timeout(PATIENCE).unwrap();

    assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
}

#[test]
fn a_client_becomes_the_repeater_when_there_is_none_and_others_hear_beacons_from_it() {
    let port = free_udp();
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

#[test]
fn row_10_a_repeater_is_the_only_one_of_its_port_and_lets_go_of_clients_that_have_gone() {
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
fn a_traffic_monitor_hears_who_asks_for_a_name_and_finds_every_server_that_has_it() {
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
    assert_eq!((name.name.as_str(), name.n_asked, name.clients[0].address), ("x:1", 1, address));
    assert_eq!(servers, expected);
}

#[test]
fn a_traffic_monitor_takes_no_search_away_from_a_server_of_this_host() {
    let server = serve('x', 0, ServerConfig::isolated());
    let monitor = TrafficMonitor::listening(&server.client_config()).unwrap();
    let (client, _) = listening();

    client.send_to(&SEARCH_FOR_X1, local(server.udp_port())).unwrap();

    assert!(client.recv(&mut [0; 64]).is_ok());
    assert!(monitor.listening_on().iter().all(|address| !address.ip().is_unspecified()), "{monitor:?}");
}

#[test]
fn a_traffic_monitor_hears_beacons_by_way_of_the_repeater() {
    let repeater = Repeater::start(0).unwrap();
    let config =
        ClientConfig { repeater_port: Some(repeater.port()), ..ClientConfig::with_addresses(vec![local(free_udp())]) };
    let mut monitor = TrafficMonitor::listening(&config).unwrap();
    monitor.run(PATIENCE, |_| repeater.n_clients() == 1).unwrap();
    let (server, _) = listening();

    server.send_to(&beacon(6064, 5), local(repeater.port())).unwrap();
    monitor.run(PATIENCE, |traffic| !traffic.servers().is_empty()).unwrap();

    assert_eq!(monitor.traffic().servers()[0].address, local(6064));
}
