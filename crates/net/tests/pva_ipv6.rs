//! Client and server of pvAccess over IPv6, on loopback.
#![expect(clippy::unwrap_used, reason = "a panic reports a failed test")]

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_net::discovery::{ServerSearch, names};
use fodo_net::{
    ClientConfig, Context, Host, InterfaceAddress, MonitorEvent, MonitorOptions, PvTable, PvaClientConfig,
    PvaServerConfig, Server, ServerConfig, SharedPv, Value,
};

use fodo_testing::free_port;

const PATIENCE: Duration = Duration::from_secs(20);

const LOOPBACK: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Whether the host has IPv6 on loopback; otherwise reports that the test is skipped.
fn has_ipv6() -> bool {
    let has_ipv6 = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    if !has_ipv6 {
        eprintln!("skipped: this host has no IPv6 on loopback");
    }
    has_ipv6
}

/// A server of `x` at these addresses.
fn serve(interfaces: &[IpAddr], pva: PvaServerConfig) -> Server {
    let interfaces = interfaces.iter().map(|&ip| InterfaceAddress::from(ip)).collect();
    let x = SharedPv::builder(1.5).on_put(|value, _| Ok(value)).build();
    let config = ServerConfig { pva: Some(PvaServerConfig { interfaces, ..pva }), ..ServerConfig::isolated() };
    Server::start(config, Arc::new(PvTable::from([("x", x)]))).unwrap()
}

fn context(pva: PvaClientConfig) -> Context {
    Context::new(ClientConfig { pva, ..ClientConfig::with_addresses(Vec::new()) })
}

/// Puts, gets and monitors `x`; returns the address of its server.
fn use_pv(context: &Context) -> SocketAddr {
    let x = context.channel("pva://x").unwrap();
    x.put_timeout(2.5, PATIENCE).unwrap();
    assert_eq!(x.get_timeout(PATIENCE).unwrap().value, Value::from(2.5));
    let monitor = x.monitor(MonitorOptions::default());
    loop {
        match monitor.next_timeout(PATIENCE).expect("no update arrives") {
            MonitorEvent::Update(reading) => assert_eq!(reading.value, Value::from(2.5)),
            _ => continue,
        }
        return x.facts().unwrap().server;
    }
}

#[test]
fn a_server_at_an_address_of_ipv6_is_found_by_a_search_to_it_and_used() {
    if !has_ipv6() {
        return;
    }
    let server = serve(&[LOOPBACK], PvaServerConfig::isolated());

    let used = use_pv(&Context::new(server.client_config()));

    assert_eq!(used, SocketAddr::new(LOOPBACK, server.pva_tcp_port().unwrap()));
}

#[test]
fn a_name_server_at_an_address_of_ipv6_is_used_without_a_search_over_udp() {
    if !has_ipv6() {
        return;
    }
    let server = serve(&[LOOPBACK], PvaServerConfig::isolated());
    let name_servers = vec![Host { name: "::1".into(), port: server.pva_tcp_port().unwrap() }];

    let used = use_pv(&context(PvaClientConfig { name_servers, ..PvaClientConfig::with_addresses(Vec::new()) }));

    assert_eq!(used, SocketAddr::new(LOOPBACK, server.pva_tcp_port().unwrap()));
}

#[test]
fn a_server_of_both_families_has_the_same_ports_and_is_one_server_for_its_clients() {
    if !has_ipv6() {
        return;
    }
    let server = serve(&[IpAddr::V4(Ipv4Addr::LOCALHOST), LOOPBACK], PvaServerConfig::isolated());
    let (udp, tcp) = (server.pva_udp_port().unwrap(), server.pva_tcp_port().unwrap());
    let families = [IpAddr::V4(Ipv4Addr::LOCALHOST), LOOPBACK];

    for ip in families {
        let used = use_pv(&context(PvaClientConfig::with_addresses(vec![SocketAddr::new(ip, udp)])));
        assert_eq!(used, SocketAddr::new(ip, tcp));
    }
    let both = context(PvaClientConfig::with_addresses(families.map(|ip| SocketAddr::new(ip, udp)).to_vec()));
    use_pv(&both);

    assert_eq!(both.next_notice(Duration::from_millis(200)), None, "no second server of the name is reported");
}

#[test]
fn the_search_for_all_servers_and_direct_calls_use_ipv6() {
    if !has_ipv6() {
        return;
    }
    let server = serve(&[LOOPBACK], PvaServerConfig::isolated());
    let config = server.client_config();

    let reply = ServerSearch::start(&config).unwrap().next(Instant::now() + PATIENCE).unwrap().unwrap();

    assert_eq!(reply.address, SocketAddr::new(LOOPBACK, server.pva_tcp_port().unwrap()));
    let served: Vec<String> =
        names(&config, reply.address, PATIENCE).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(served, ["x"]);
}

#[test]
fn searches_from_ignored_addresses_of_ipv6_are_not_answered() {
    if !has_ipv6() {
        return;
    }
    let server = serve(&[LOOPBACK], PvaServerConfig { ignored: vec![LOOPBACK], ..PvaServerConfig::isolated() });

    let ignored = ServerSearch::start(&server.client_config()).unwrap().next(Instant::now() + Duration::from_secs(1));

    assert_eq!(ignored.unwrap(), None);
}

#[test]
fn a_search_to_one_address_of_ipv6_reaches_every_server_of_the_host() {
    if !has_ipv6() {
        return;
    }
    // All of them share the port, so that only one receives the search and forwards it.
    let first = serve(&[LOOPBACK], PvaServerConfig { search_port: free_port(), ..PvaServerConfig::isolated() });
    let search_port = first.pva_udp_port().unwrap();
    let second = serve(&[LOOPBACK], PvaServerConfig { search_port, ..PvaServerConfig::isolated() });
    let expected = HashSet::from([&first, &second].map(|server| server.pva_tcp_port().unwrap()));

    let mut search = ServerSearch::start(&first.client_config()).unwrap();
    let (mut found, until) = (HashSet::new(), Instant::now() + PATIENCE);
    while found != expected {
        let reply = search.next(until).unwrap().expect("a server is missing");
        assert_eq!(reply.source.ip(), LOOPBACK);
        found.insert(reply.address.port());
    }
}

#[test]
fn beacons_are_sent_to_addresses_of_ipv6() {
    if !has_ipv6() {
        return;
    }
    let receiver = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let beacon_addresses = vec![receiver.local_addr().unwrap()];

    let server = serve(&[LOOPBACK], PvaServerConfig { beacon_addresses, ..PvaServerConfig::isolated() });

    let (n, from) = receiver.recv_from(&mut [0; 256]).unwrap();
    assert!(n > 8);
    assert_eq!(from, SocketAddr::new(LOOPBACK, server.pva_udp_port().unwrap()));
}
