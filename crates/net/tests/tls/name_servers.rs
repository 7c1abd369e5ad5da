//! Searches over TCP by TLS: name servers, and the servers that they name.

use std::io::{ErrorKind as IoErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use fodo_data::Now;
use fodo_net::client::diagnosis::{ClaimResult, Diagnosis, SearchResult};
use fodo_net::discovery::{self, FoundServers, ServerSearch};
use fodo_net::{ClientConfig, Context, ErrorKind, Host, Notice, PvaClientConfig, TlsPolicy};
use fodo_pva::guid::Guid;
use fodo_pva::server::{Circuit, Config, Event, TunnelState};

use super::authority::Authority;
use super::{PATIENCE, Served, Use, cell, channel};

/// A client that searches only at these ports of this host, by plain TCP and by TLS.
fn client(tls: TlsPolicy, plain: Option<u16>, encrypted: Option<u16>) -> Context {
    Context::new(config(tls, plain, encrypted))
}

fn config(tls: TlsPolicy, plain: Option<u16>, encrypted: Option<u16>) -> ClientConfig {
    let hosts = |port: Option<u16>| port.into_iter().map(|port| Host { name: "127.0.0.1".into(), port }).collect();
    let (name_servers, tls_name_servers) = (hosts(plain), hosts(encrypted));
    let pva = PvaClientConfig { name_servers, tls_name_servers, tls, ..PvaClientConfig::with_addresses(Vec::new()) };
    ClientConfig { pva, ..ClientConfig::with_addresses(Vec::new()) }
}

fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn a_pv_is_found_and_used_by_tls_alone_with_the_certificate_on_each_connection() {
    let root = Authority::new("Lab Root");
    let keychain = root.keychain("ioc");
    let served =
        Served::start(Use { tls: TlsPolicy::Only(keychain.clone()), ..Use::required(&keychain) }, [("x", cell(1.5))]);
    let context = client(TlsPolicy::Only(root.keychain("ann")), None, served.server.pva_tls_port());
    let x = channel(&context, "x");

    assert_eq!(x.get_timeout(PATIENCE).unwrap().value, 1.5.into());

    assert_eq!(x.facts().unwrap().tls.unwrap().name, "ioc");
    // The search, and the channel.
    let clients = served.server.observer().clients();
    let users: Vec<_> = clients.iter().map(|client| (client.user.as_str(), client.is_encrypted)).collect();
    assert_eq!(users, [("ann", true); 2]);
    assert_eq!(context.next_notice(Duration::ZERO), None);
}

#[test]
fn a_diagnosis_queries_name_servers_by_tls_and_uses_tls_to_the_servers_they_name() {
    let root = Authority::new("Lab Root");
    let keychain = root.keychain("ioc");
    let served =
        Served::start(Use { tls: TlsPolicy::Only(keychain.clone()), ..Use::required(&keychain) }, [("x", cell(1.5))]);
    let config = config(TlsPolicy::Only(root.keychain("ann")), None, served.server.pva_tls_port());

    let diagnosis = Diagnosis::run("pva://x", &config, PATIENCE).unwrap();

    assert!(matches!(diagnosis.searched[..], [ref one] if one.result == SearchResult::Sent), "{diagnosis:?}");
    let [ref claim] = diagnosis.claims[..] else { panic!("{diagnosis:?}") };
    let ClaimResult::Channel { ref facts, .. } = claim.result else { panic!("{claim:?}") };
    assert_eq!(facts.tls.as_ref().unwrap().name, "ioc");
}

#[test]
fn with_tls_only_a_plain_name_server_is_never_connected() {
    let (listener, port) = listener();
    listener.set_nonblocking(true).unwrap();
    let context = client(TlsPolicy::Only(Authority::new("Lab Root").trust()), Some(port), None);

    let error = channel(&context, "x").get_timeout(Duration::from_secs(1)).unwrap_err();

    assert!(matches!(error.kind(), ErrorKind::NotFound { .. }), "{error}");
    assert_eq!(listener.accept().unwrap_err().kind(), IoErrorKind::WouldBlock);
}

/// Replies to searches on a plain connection: each name is at this port of this host, by TLS.
fn name_by_tls(mut stream: TcpStream, port: u16) {
    // A machine names its own transport in replies, and it does not see that this one is plain.
    let state = TunnelState::Encrypted { has_certificate: false };
    let mut circuit = Circuit::within(state, &Config { payload_bytes_max: 1 << 20, guid: Guid::from_bits(1, 1) });
    let (mut buffer, mut events) = ([0; 4096], Vec::new());
    loop {
        while !circuit.ready().is_empty() {
            let n_ready = circuit.ready().len();
            if stream.write_all(circuit.ready()).is_err() {
                return;
            }
            circuit.sent(n_ready);
        }
        let Ok(n @ 1..) = stream.read(&mut buffer) else { return };
        let now = Now { monotonic: Instant::now(), wall: Default::default() };
        circuit.received(&buffer[..n], now, &mut events);
        for event in events.drain(..) {
            if let Event::Search { search, names } = event {
                let found: Vec<_> = names.iter().map(|(cid, _)| *cid).collect();
                circuit.searched(search, port, &found);
            }
        }
    }
}

#[test]
fn the_transport_in_the_reply_of_a_name_server_decides_how_the_server_is_connected() {
    let root = Authority::new("Lab Root");
    let served = Served::start(Use::preferred(&root.keychain("ioc")), [("x", cell(1))]);
    let (listener, port) = listener();
    let tls_port = served.server.pva_tls_port().unwrap();
    std::thread::spawn(move || name_by_tls(listener.accept().unwrap().0, tls_port));
    let tcp_port = served.server.pva_tcp_port();

    let used = [
        (TlsPolicy::Preferred(root.trust()), Some(port)),
        (TlsPolicy::Preferred(root.trust()), tcp_port),
        (TlsPolicy::Off, tcp_port),
    ]
    .map(|(tls, name_server)| {
        let context = client(tls, name_server, None);
        let x = channel(&context, "x");
        assert_eq!(x.get_timeout(PATIENCE).unwrap().value, 1.into());
        let facts = x.facts().unwrap();
        (facts.server.port(), facts.tls.is_some())
    });

    assert_eq!(used, [(tls_port, true), (tls_port, true), (tcp_port.unwrap(), false)]);
}

/// Passes on what arrives at a port of another address of this host, as a forwarded or mapped port does.
fn forwarded(to: u16) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).unwrap();
            let ways = [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)];
            for (mut from, mut to) in ways {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    address
}

#[test]
fn a_server_behind_a_forwarded_port_is_used_by_plain_tcp_where_its_port_for_tls_is_not_reached() {
    let root = Authority::new("Lab Root");
    let served = Served::start(Use::preferred(&root.keychain("ioc")), [("x", cell(1))]);
    let address = forwarded(served.server.pva_tcp_port().unwrap());
    let mut config = config(TlsPolicy::Preferred(root.trust()), Some(address.port()), None);
    config.pva.name_servers[0].name = address.ip().to_string();
    let context = Context::new(config);
    let x = channel(&context, "x");

    assert_eq!(x.get_timeout(PATIENCE).unwrap().value, 1.into());

    let facts = x.facts().unwrap();
    assert_eq!((facts.server, facts.tls), (address, None));
    assert_eq!(context.next_notice(Duration::ZERO), None);
}

#[test]
fn a_name_server_that_fails_the_handshake_is_reported_with_the_reason() {
    let (root, other) = (Authority::new("Lab Root"), Authority::new("Other Root"));
    let served = Served::start(Use::preferred(&other.keychain("ioc")), [("x", cell(1))]);
    for (port, expected) in [
        (served.server.pva_tls_port().unwrap(), "its certificate is not signed by an authority in the keychain"),
        (served.server.pva_tcp_port().unwrap(), "it sends something other than TLS"),
    ] {
        let context = client(TlsPolicy::Only(root.trust()), None, Some(port));
        let _x = channel(&context, "x");
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));

        match context.next_notice(PATIENCE) {
            Some(Notice::HandshakeFailed { server: failed, reason }) => {
                assert!(failed == server && reason.starts_with(expected), "{failed}: {reason}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(context.next_notice(PATIENCE), Some(Notice::NameServerLost { server }));
    }
}

#[test]
fn a_name_server_that_does_not_answer_the_handshake_is_reported_and_connected_again() {
    let (listener, port) = listener();
    let context = client(TlsPolicy::Only(Authority::new("Lab Root").trust()), None, Some(port));
    let _x = channel(&context, "x");

    let (_silent, _) = listener.accept().unwrap();
    let notice = context.next_notice(PATIENCE);
    let (_again, _) = listener.accept().unwrap();

    assert!(
        matches!(&notice, Some(Notice::HandshakeFailed { reason, .. }) if reason == "it does not reply within 5 s"),
        "{notice:?}"
    );
}

#[test]
fn a_search_for_servers_finds_the_port_of_the_transport_that_the_client_uses() {
    let root = Authority::new("Lab Root");
    let keychain = root.keychain("ioc");
    let [both, only] = [TlsPolicy::Preferred(keychain.clone()), TlsPolicy::Only(keychain.clone())]
        .map(|tls| Served::start(Use { tls, ..Use::preferred(&keychain) }, [("x", cell(1))]));
    let names = |served: &Served, tls: TlsPolicy| {
        let mut config = served.server.client_config();
        config.pva.tls = tls;
        let reply = ServerSearch::start(&config).unwrap().next(Instant::now() + PATIENCE).unwrap().unwrap();
        let mut servers = FoundServers::default();
        servers.add(&reply);
        let found = &servers.as_slice()[0];
        let names = discovery::names(&found.client_config(&config), found.addresses[0], PATIENCE);
        (found.transport.to_string(), names.unwrap(), reply.address.port())
    };

    let found = |transport: &str, port: Option<u16>| (transport.to_owned(), vec!["x".into()], port.unwrap());
    let (plain, tls) = (both.server.pva_tcp_port(), both.server.pva_tls_port());
    assert_eq!(names(&both, TlsPolicy::Off), found("tcp", plain));
    assert_eq!(names(&both, TlsPolicy::Preferred(root.trust())), found("tls", tls));
    assert_eq!(names(&both, TlsPolicy::Only(root.trust())), found("tls", tls));
    assert_eq!(names(&only, TlsPolicy::Preferred(root.trust())), found("tls", only.server.pva_tls_port()));
}
