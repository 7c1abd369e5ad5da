//! Handshakes that stall, ask for an older version or an abbreviation, or begin again; and those on one port with plain clients.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fodo_net::{Context, ErrorKind, Peer, Rights, ServerConfig, SharedPv, TlsPolicy};
use rcgen::SanType;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, Stream};

use super::authority::{self, Authority};
use super::{PATIENCE, Served, Use, cell};

/// The first bytes of a server of pvAccess: the byte of each message, and its version.
const GREETING: [u8; 2] = [0xca, 2];

fn one_port(tls: Use, pv: SharedPv) -> Served {
    Served::start_with(ServerConfig { one_port: Some(0), ..ServerConfig::isolated() }, tls, [("x", pv)])
}

/// Row 78: slow handshakes among clients of all protocols.
#[test]
fn handshakes_that_stall_on_one_port_are_closed_after_5_s_and_delay_no_client_of_any_protocol() {
    let root = Authority::new("Lab Root");
    let served = one_port(Use::preferred(&root.keychain("ioc")), cell(1));
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, served.server.tcp_port()));
    let start = Instant::now();
    // The first byte of a record, and the start of a ClientHello.
    let mut stalled: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(to).unwrap()).collect();
    for (number, stream) in stalled.iter_mut().enumerate() {
        stream.write_all(if number % 2 == 0 { &[0x16] } else { &[0x16, 3, 1, 2, 0, 1] }).unwrap();
    }

    for (tls, name) in
        [(TlsPolicy::Off, "ca://x"), (TlsPolicy::Off, "pva://x"), (TlsPolicy::Only(root.trust()), "pva://x")]
    {
        let x = served.client(tls).channel(name).unwrap();
        assert_eq!(x.get_timeout(PATIENCE).unwrap().value, 1.into());
        assert_eq!(x.facts().unwrap().server.port(), to.port());
    }
    assert!(start.elapsed() < Duration::from_secs(4), "the others still wait");

    for stream in &mut stalled {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0, "it is closed");
    }
    assert!(start.elapsed() >= Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(served.await_log("its TLS handshake failed").contains("it takes longer than 5 s"));
}

#[test]
fn only_a_certificate_identifies_a_client_of_one_port_whatever_name_the_others_claim() {
    let root = Authority::new("Lab Root");
    let peers = Arc::new(Mutex::new(Vec::new()));
    let seen = peers.clone();
    let rights = move |peer: &Peer| {
        seen.lock().unwrap().push((peer.method, peer.authority.clone(), peer.is_encrypted));
        Rights { read: true, write: (peer.method, peer.user.as_str()) == ("x509", "ann") }
    };
    let x = SharedPv::builder(1).on_put(|value, _| Ok(value)).rights(rights).build();
    let served = one_port(Use::preferred(&root.keychain("ioc")), x);

    let [ca, plain, nameless, ann] = [
        (TlsPolicy::Off, "ca://x"),
        (TlsPolicy::Off, "pva://x"),
        (TlsPolicy::Only(root.trust()), "pva://x"),
        (TlsPolicy::Only(root.keychain("ann")), "pva://x"),
    ]
    .map(|(tls, name)| {
        let mut config = served.server.client_config();
        (config.user, config.pva.tls) = (Some("ann".into()), tls);
        let x = Context::new(config).channel(name).unwrap();
        x.put_timeout(2, PATIENCE).map(drop).map_err(|error| error.kind().clone())
    });

    assert_eq!(ann, Ok(()));
    for refused in [ca, plain, nameless] {
        assert!(matches!(refused, Err(ErrorKind::Refused { .. })), "{refused:?}");
    }
    for (method, authority, is_encrypted) in peers.lock().unwrap().iter() {
        let is_certified = *method == "x509";
        assert!(!is_certified || *is_encrypted, "a certificate without TLS");
        assert_eq!(authority, if is_certified { "Lab Root" } else { "" });
    }
}

#[test]
fn one_port_with_tls_only_sends_no_byte_of_plain_pvaccess_and_serves_channel_access_and_tls() {
    let root = Authority::new("Lab Root");
    let keychain = root.keychain("ioc");
    let served = one_port(Use { tls: TlsPolicy::Only(keychain.clone()), ..Use::preferred(&keychain) }, cell(1));

    for (tls, name) in [(TlsPolicy::Off, "ca://x"), (TlsPolicy::Only(root.trust()), "pva://x")] {
        let x = served.client(tls).channel(name).unwrap();
        assert_eq!(x.get_timeout(PATIENCE).unwrap().value, 1.into());
    }
    // One client waits for the greeting, the other begins as no client does.
    for first in [&[][..], &[0xca, 2, 0, 1, 0, 0, 0, 0]] {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, served.server.tcp_port())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(first).unwrap();

        let mut rest = Vec::new();
        // The system may report a reset instead of the end.
        let _ = stream.read_to_end(&mut rest);

        assert_eq!(rest, [0; 0]);
    }
    served.await_log("it speaks pvAccess without TLS, which this server requires");
}

/// As with IPv6, where there is no Channel Access.
#[test]
fn one_port_serves_tls_also_at_addresses_without_channel_access() {
    let root = Authority::new("Lab Root");
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let mut config = ServerConfig { one_port: Some(0), ..ServerConfig::isolated() };
    config.pva.as_mut().unwrap().interfaces.push(IpAddr::from(other).into());
    let served = Served::start_with(config, Use::preferred(&root.keychain("ioc")), [("x", cell(1))]);
    let port = served.server.tcp_port();

    for tls in [TlsPolicy::Off, TlsPolicy::Only(root.trust())] {
        let has_tls = tls.keychain().is_some();
        let mut config = served.server.client_config();
        config.pva.search_addresses.iter_mut().for_each(|address| address.set_ip(other.into()));
        config.pva.tls = tls;
        let context = Context::new(config);
        let x = super::channel(&context, "x");

        assert_eq!(x.get_timeout(PATIENCE).unwrap().value, 1.into());
        let facts = x.facts().unwrap();
        assert_eq!((facts.server, facts.tls.is_some()), (SocketAddr::from((other, port)), has_tls));
    }
    let mut of_ca = TcpStream::connect((other, port)).unwrap();
    of_ca.write_all(&[0; 16]).unwrap();
    of_ca.set_read_timeout(Some(PATIENCE)).unwrap();
    // The system may report a reset instead of the end.
    assert_eq!(of_ca.read(&mut [0; 16]).unwrap_or(0), 0);
    served.await_log("no protocol here starts with byte 0x00");
}

#[test]
fn a_client_of_tls_that_is_silent_at_first_on_one_port_is_closed_and_the_log_names_the_reason() {
    let root = Authority::new("Lab Root");
    let served = one_port(Use::preferred(&root.keychain("ioc")), cell(1));
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, served.server.tcp_port())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting).unwrap();

    stream.write_all(&greeting_of_tls_1_2()).unwrap();
    let mut rest = Vec::new();
    // The system may report a reset instead of the end.
    let _ = stream.read_to_end(&mut rest);

    assert_eq!(greeting, GREETING);
    let line = served.await_log("a client is closed");
    assert!(line.contains("it was silent for 50 ms, so that pvAccess was assumed"), "{line}");
}

#[test]
fn one_port_with_tls_only_waits_for_clients_that_are_silent_at_first() {
    let root = Authority::new("Lab Root");
    let keychain = root.keychain("ioc");
    let served = one_port(Use { tls: TlsPolicy::Only(keychain.clone()), ..Use::preferred(&keychain) }, cell(1));
    let version_of_ca = vec![0, 0, 0, 0, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 0];

    for first in [greeting_of_tls_1_2(), version_of_ca] {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, served.server.tcp_port())).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let silence = stream.read(&mut [0]).map_err(|error| error.kind());
        stream.write_all(&first).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();

        assert_eq!(silence, Err(std::io::ErrorKind::WouldBlock));
        assert_eq!(stream.read(&mut [0]).unwrap(), 1, "a reply");
    }
}

/// A connection by the library of TLS itself. Its server's certificate names the address, which the library compares.
struct RawClient {
    connection: ClientConnection,
    stream: TcpStream,
}

impl RawClient {
    fn connect(served: &Served, config: &Arc<ClientConfig>) -> RawClient {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, served.server.pva_tls_port().unwrap())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connection = ClientConnection::new(config.clone(), name).unwrap();
        RawClient { connection, stream }
    }

    /// Completes the handshake, and reads the server's first bytes, which follow everything that belongs to it.
    fn greeting(&mut self) -> [u8; 2] {
        let mut greeting = [0; 2];
        Stream::new(&mut self.connection, &mut self.stream).read_exact(&mut greeting).unwrap();
        greeting
    }
}

fn server_named_by_its_address(root: &Authority) -> Served {
    let address = SanType::IpAddress(Ipv4Addr::LOCALHOST.into());
    let keychain = authority::parsed(&root.pem_of("ioc", |parameters| parameters.subject_alt_names = vec![address]));
    Served::start(Use::preferred(&keychain), [("x", cell(1))])
}

/// A configuration with tickets and early data.
fn configuration(root: &Authority) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    CertificateDer::pem_slice_iter(root.pem().as_bytes()).for_each(|root| roots.add(root.unwrap()).unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.enable_early_data = true;
    Arc::new(config)
}

/// Row 78: data before the end of the handshake, and handshakes without certificates.
#[test]
fn a_client_that_connects_again_verifies_the_server_again_and_may_send_no_early_data() {
    let root = Authority::new("Lab Root");
    let served = server_named_by_its_address(&root);
    let config = configuration(&root);

    for _ in 0..3 {
        let mut client = RawClient::connect(&served, &config);
        assert!(client.connection.early_data().is_none());

        assert_eq!(client.greeting(), GREETING);
        assert_eq!(client.connection.handshake_kind(), Some(HandshakeKind::Full));
    }
}

/// The greeting of a client of TLS 1.2, which names no later version.
fn greeting_of_tls_1_2() -> Vec<u8> {
    let extensions = [
        // Groups: secp256r1. Signatures: ECDSA with SHA-256.
        &[0, 10, 0, 4, 0, 2, 0, 23][..],
        &[0, 13, 0, 4, 0, 2, 4, 3],
    ]
    .concat();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    // No identifier of an earlier connection; ECDHE with ECDSA, AES-128 and SHA-256; no compression.
    body.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]);
    body.extend([0, u8::try_from(extensions.len()).unwrap()]);
    body.extend(extensions);
    let n_bytes = u8::try_from(body.len()).unwrap();
    [&[0x16, 3, 1, 0, n_bytes + 4, 1, 0, 0, n_bytes][..], &body].concat()
}

/// Row 78: a downgrade of the version.
#[test]
fn a_client_of_an_older_version_of_tls_is_rejected_with_the_alert_for_it() {
    let root = Authority::new("Lab Root");
    let served = Served::start(Use::preferred(&root.keychain("ioc")), [("x", cell(1))]);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, served.server.pva_tls_port().unwrap())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();

    stream.write_all(&greeting_of_tls_1_2()).unwrap();
    let mut alert = [0; 7];
    stream.read_exact(&mut alert).unwrap();

    // A fatal alert: the version.
    assert_eq!((alert[0], &alert[5..]), (0x15, &[2, 70][..]));
    let line = served.await_log("its TLS handshake failed");
    assert!(line.contains("it does not support TLS 1.3"), "{line}");
}

/// Row 78: renegotiation.
#[test]
fn a_client_that_begins_a_second_handshake_within_its_connection_is_closed() {
    let root = Authority::new("Lab Root");
    let served = server_named_by_its_address(&root);
    let mut client = RawClient::connect(&served, &configuration(&root));
    assert_eq!(client.greeting(), GREETING);

    client.stream.write_all(&greeting_of_tls_1_2()).unwrap();
    let mut rest = Vec::new();
    // The system may report a reset instead of the end.
    let _ = client.stream.read_to_end(&mut rest);

    let start = Instant::now();
    while !served.server.observer().clients().is_empty() {
        assert!(start.elapsed() < PATIENCE, "it is still connected");
        std::thread::sleep(Duration::from_millis(1));
    }
}
