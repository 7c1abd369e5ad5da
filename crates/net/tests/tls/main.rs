//! pvAccess by TLS: our client on our server, with certificates of the tests.

mod authority;
mod handshakes;
mod name_servers;

use std::io::{ErrorKind as IoErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fodo_data::Now;
use fodo_net::client::diagnosis::{ClaimResult, Diagnosis};
use fodo_net::log::{Level, Log};
use fodo_net::{
    Channel, ClientCertificates, Context, ErrorKind, Keychain, MonitorEvent, MonitorOptions, Notice, Peer, PvTable,
    Rights, Server, ServerConfig, SharedPv, TlsPolicy, Value,
};
use fodo_pva::guid::Guid;
use fodo_pva::responder::{Arrival, Responder};
use rcgen::ExtendedKeyUsagePurpose;

use authority::{Authority, self_signed};

const PATIENCE: Duration = Duration::from_secs(20);

/// How a server uses TLS.
struct Use {
    tls: TlsPolicy,
    clients: ClientCertificates,
}

impl Use {
    fn preferred(keychain: &Keychain) -> Use {
        Use { tls: TlsPolicy::Preferred(keychain.clone()), clients: ClientCertificates::Optional }
    }

    fn required(keychain: &Keychain) -> Use {
        Use { clients: ClientCertificates::Required, ..Use::preferred(keychain) }
    }
}

/// A running server, and the lines of its log.
struct Served {
    server: Server,
    log: Arc<Mutex<Vec<String>>>,
}

impl Served {
    fn start(tls: Use, pvs: impl Into<PvTable>) -> Served {
        Served::start_with(ServerConfig::isolated(), tls, pvs)
    }

    fn start_with(mut config: ServerConfig, tls: Use, pvs: impl Into<PvTable>) -> Served {
        let pva = config.pva.as_mut().unwrap();
        (pva.tls, pva.client_certificates) = (tls.tls, tls.clients);
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = log.clone();
        let log_to = Log::new(Level::Info, move |line| lines.lock().unwrap().push(line.to_string()));
        Served { server: Server::start_with_log(config, Arc::new(pvs.into()), log_to).unwrap(), log }
    }

    fn client(&self, tls: TlsPolicy) -> Context {
        let mut config = self.server.client_config();
        config.pva.tls = tls;
        Context::new(config)
    }

    /// A client that uses TLS only.
    fn secure_client(&self, keychain: &Keychain) -> Context {
        self.client(TlsPolicy::Only(keychain.clone()))
    }

    /// Waits until the log contains a text.
    fn await_log(&self, text: &str) -> String {
        let start = Instant::now();
        loop {
            if let Some(line) = self.log.lock().unwrap().iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            assert!(start.elapsed() < PATIENCE, "no {text:?} in {:?}", self.log.lock().unwrap());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn cell(value: impl Into<Value>) -> SharedPv {
    let value = value.into();
    let count_max = if matches!(value, Value::Array(_)) { 1_000_000 } else { 1 };
    SharedPv::builder(value).count_max(count_max).on_put(|value, _| Ok(value)).build()
}

fn channel(context: &Context, name: &str) -> Channel {
    context.channel(&format!("pva://{name}")).unwrap()
}

/// The reason of the handshake's failure, as the operation reports it.
fn rejection(context: &Context) -> String {
    let error = channel(context, "x").get_timeout(Duration::from_secs(3)).unwrap_err();
    match error.kind() {
        ErrorKind::Handshake { reason, .. } => reason.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_are_read_written_and_monitored_by_tls() {
    let root = Authority::new("Lab Root");
    let served = Served::start(Use::preferred(&root.keychain("ioc")), [("x", cell(1.5))]);
    let context = served.secure_client(&root.trust());
    let x = channel(&context, "x");

    assert_eq!(x.get_timeout(PATIENCE).unwrap().value, 1.5.into());
    x.put_timeout(2.5, PATIENCE).unwrap();
    let monitor = x.monitor(MonitorOptions::default());
    let mut values = Vec::new();
    while values.last() != Some(&Value::from(3.5)) {
        if let MonitorEvent::Update(reading) = monitor.next_timeout(PATIENCE).expect("an update") {
            values.push(reading.value);
            x.put_unconfirmed(3.5).unwrap();
        }
    }

    assert_eq!(values[0], 2.5.into());
    let facts = x.facts().unwrap();
    assert_eq!(facts.server.port(), served.server.pva_tls_port().unwrap());
    let peer = facts.tls.unwrap();
    assert_eq!((peer.name.as_str(), peer.authority.as_str()), ("ioc", "Lab Root"));
    assert!(served.server.observer().clients().iter().all(|client| client.is_encrypted));
}

#[test]
fn a_diagnosis_connects_by_tls_and_reports_why_the_handshake_fails() {
    let (root, other) = (Authority::new("Lab Root"), Authority::new("Other Root"));
    let served = Served::start(Use::preferred(&root.keychain("ioc")), [("x", cell(1.5))]);
    let plain = Served::start(Use { tls: TlsPolicy::Off, clients: ClientCertificates::Optional }, [("x", cell(1))]);
    let diagnosed = |served: &Served, tls| {
        let mut config = served.server.client_config();
        config.pva.tls = tls;
        let diagnosis = Diagnosis::run("pva://x", &config, Duration::from_secs(2)).unwrap();
        diagnosis.claims.into_iter().map(|claim| claim.result).collect::<Vec<_>>()
    };

    let connected = diagnosed(&served, TlsPolicy::Only(root.trust()));
    let foreign = diagnosed(&served, TlsPolicy::Only(other.trust()));

    let [ClaimResult::Channel { facts, value: Some(Ok(_)), .. }] = &connected[..] else { panic!("{connected:?}") };
    assert_eq!(facts.tls.as_ref().unwrap().name, "ioc");
    assert_eq!(facts.server.port(), served.server.pva_tls_port().unwrap());
    assert!(matches!(&foreign[..], [ClaimResult::Handshake { .. }]), "{foreign:?}");
    assert_eq!(diagnosed(&plain, TlsPolicy::Only(root.trust())), []);
}

#[test]
fn large_arrays_pass_in_both_directions() {
    let root = Authority::new("Lab Root");
    let numbers: Vec<f64> = (0..1_000_000).map(f64::from).collect();
    let served = Served::start(Use::preferred(&root.keychain("ioc")), [("x", cell(numbers.clone()))]);
    let context = served.secure_client(&root.trust());
    let x = channel(&context, "x");
    let doubled: Vec<f64> = numbers.iter().map(|number| number * 2.0).collect();

    assert_eq!(x.get_timeout(PATIENCE).unwrap().value, numbers.into());
    x.put_timeout(doubled.clone(), PATIENCE).unwrap();
    let reading = pollster::block_on(x.start_get(Default::default())).unwrap();

    assert_eq!(reading.value, doubled.into());
}

#[test]
fn callers_of_many_threads_share_a_circuit_by_tls() {
    let root = Authority::new("Lab Root");
    let served =
        Served::start(Use::preferred(&root.keychain("ioc")), [("x", cell(0)), ("wide", cell(vec![1.0; 100_000]))]);
    let context = served.secure_client(&root.trust());
    let (x, wide) = (channel(&context, "x"), channel(&context, "wide"));

    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| assert_eq!(x.get_timeout(PATIENCE).unwrap().value, 0.into())));
            scope.spawn(|| (0..10).for_each(|_| drop(wide.get_timeout(PATIENCE).unwrap())));
        }
    });

    assert_eq!(served.server.observer().clients().len(), 1);
}

#[test]
fn a_client_prefers_tls_and_uses_plain_tcp_where_there_is_none() {
    let root = Authority::new("Lab Root");
    let plain = Served::start(Use { tls: TlsPolicy::Off, clients: ClientCertificates::Optional }, [("x", cell(1))]);
    let both = Served::start(Use::preferred(&root.keychain("ioc")), [("x", cell(2))]);
    let preferred = || TlsPolicy::Preferred(root.trust());

    let [on_plain, on_both] = [&plain, &both].map(|served| {
        let context = served.client(preferred());
        let x = channel(&context, "x");
        let value = x.get_timeout(PATIENCE).unwrap().value;
        (value, x.facts().unwrap().tls.is_some())
    });
    let context = both.client(TlsPolicy::Off);
    let without = channel(&context, "x");

    assert_eq!((on_plain, on_both), ((1.into(), false), (2.into(), true)));
    assert_eq!(without.get_timeout(PATIENCE).unwrap().value, 2.into());
    assert_eq!(without.facts().unwrap().tls, None);
}

#[test]
fn a_certificate_identifies_a_client_to_the_rights_of_pvs() {
    let root = Authority::new("Lab Root");
    let operations = root.below("Ops CA");
    let peers = Arc::new(Mutex::new(Vec::new()));
    let seen = peers.clone();
    let rights = move |peer: &Peer| {
        seen.lock().unwrap().push(peer.clone());
        let is_operator =
            (peer.method, peer.user.as_str(), peer.authority.as_str()) == ("x509", "ann", "Lab Root\nOps CA");
        Rights { read: true, write: is_operator }
    };
    let x = SharedPv::builder(1).on_put(|value, _| Ok(value)).rights(rights).build();
    let served = Served::start(Use::preferred(&root.keychain("ioc")), [("x", x)]);

    let [ann, bob, foreign_ann, nameless] =
        [operations.keychain("ann"), operations.keychain("bob"), root.keychain("ann"), root.trust()].map(|keychain| {
            let context = served.secure_client(&keychain);
            channel(&context, "x").put_timeout(2, PATIENCE).map(drop).map_err(|error| error.kind().clone())
        });

    assert_eq!(ann, Ok(()));
    for refused in [bob, foreign_ann, nameless] {
        assert!(matches!(refused, Err(ErrorKind::Refused { .. })), "{refused:?}");
    }
    let peers = peers.lock().unwrap();
    assert!(peers.iter().all(|peer| peer.is_encrypted), "{peers:?}");
    assert!(peers.iter().any(|peer| peer.method == "ca" && peer.authority.is_empty()), "{peers:?}");
}

#[test]
fn an_authority_is_named_only_by_certificates_that_it_has_issued() {
    let (guests, stranger) = (Authority::new("Guest Root"), Authority::new("Lab Root"));
    let (issuer, of_the_same_name) = (guests.below("Ops CA"), stranger.below("Ops CA"));
    let own = issuer.pem_of("guest", |_| {});
    let others_first = format!("{}{}", of_the_same_name.pem(), issuer.pem());

    let keychain = authority::parsed(&own.replace(issuer.pem(), &others_first));

    assert_eq!(keychain.identity().unwrap().authority, "Guest Root\nOps CA");
}

#[test]
fn a_client_without_a_certificate_is_refused_where_one_is_required() {
    let root = Authority::new("Lab Root");
    let served = Served::start(Use::required(&root.keychain("ioc")), [("x", cell(1))]);

    let nameless = served.secure_client(&root.trust());
    let named = served.secure_client(&root.keychain("ann"));

    assert!(rejection(&nameless).starts_with("it requires a certificate of this program"));
    assert_eq!(channel(&named, "x").get_timeout(PATIENCE).unwrap().value, 1.into());
    let line = served.await_log("its TLS handshake failed");
    assert!(line.contains("it has no certificate, which is required"), "{line}");
}

#[test]
fn certificates_of_servers_are_rejected_with_the_reason() {
    let (root, other) = (Authority::new("Lab Root"), Authority::new("Other Root"));
    let (own_signed, own_certificate) = self_signed("ioc");
    for (keychain, reason) in [
        (root.expired("ioc"), "its certificate has expired"),
        (other.keychain("ioc"), "its certificate is not signed by an authority in the keychain"),
        (own_signed.clone(), "its certificate is not signed by an authority in the keychain"),
        (root.only_for("ioc", ExtendedKeyUsagePurpose::ClientAuth), "its certificate is not meant for this side"),
    ] {
        let served = Served::start(Use::preferred(&keychain), [("x", cell(1))]);
        let context = served.secure_client(&root.trust());

        let found = rejection(&context);

        assert!(found.starts_with(reason), "{found}");
        let notice = context.next_notice(PATIENCE);
        assert!(matches!(&notice, Some(Notice::HandshakeFailed { reason, .. }) if *reason == found), "{notice:?}");
        assert_eq!(context.next_notice(Duration::ZERO), None, "it is reported once");
        served.await_log("its TLS handshake failed");
    }
    let served = Served::start(Use::preferred(&own_signed), [("x", cell(1))]);
    let context = served.secure_client(&authority::parsed(&own_certificate));
    assert_eq!(channel(&context, "x").get_timeout(PATIENCE).unwrap().value, 1.into(), "it is in the keychain");
}

#[test]
fn certificates_of_clients_are_rejected_with_the_reason() {
    let (root, other) = (Authority::new("Lab Root"), Authority::new("Other Root"));
    // It trusts the server, which does not trust it.
    let foreign = authority::parsed(&(other.pem_of("ann", |_| {}) + root.pem()));
    let served = Served::start(Use::preferred(&root.keychain("ioc")), [("x", cell(1))]);
    for (keychain, reason) in [
        (foreign, "its certificate is not signed by an authority in the keychain"),
        (root.expired("ann"), "its certificate has expired"),
        (root.only_for("ann", ExtendedKeyUsagePurpose::ServerAuth), "its certificate is not meant for this side"),
    ] {
        let context = served.secure_client(&keychain);

        let found = rejection(&context);

        assert!(found.contains("this program's certificate"), "{found}");
        served.await_log(reason);
    }
}

#[test]
fn with_tls_only_a_plain_server_is_not_used_and_a_server_has_no_plain_port() {
    let root = Authority::new("Lab Root");
    let only = |keychain: &Keychain| Use { tls: TlsPolicy::Only(keychain.clone()), ..Use::preferred(keychain) };
    let plain = Served::start(Use { tls: TlsPolicy::Off, clients: ClientCertificates::Optional }, [("x", cell(1))]);
    let secure = Served::start(only(&root.keychain("ioc")), [("x", cell(2))]);

    let refused = channel(&plain.secure_client(&root.trust()), "x").get_timeout(Duration::from_secs(1)).unwrap_err();
    let unfound = channel(&secure.client(TlsPolicy::Off), "x").get_timeout(Duration::from_secs(1)).unwrap_err();

    assert!(matches!(refused.kind(), ErrorKind::NotFound { .. }), "{refused}");
    assert!(matches!(unfound.kind(), ErrorKind::NotFound { .. }), "{unfound}");
    assert_eq!(plain.server.observer().clients(), []);
    assert_eq!((secure.server.pva_tcp_port(), secure.server.pva_tls_port().is_some()), (None, true));
    assert_eq!(channel(&secure.secure_client(&root.trust()), "x").get_timeout(PATIENCE).unwrap().value, 2.into());
}

/// Answers searches of pvAccess for any name, with these ports, until it is dropped.
struct Directory {
    address: SocketAddr,
    _stop: std::sync::mpsc::Sender<()>,
}

impl Directory {
    fn start(tcp: Option<u16>, tls: Option<u16>, claims_anything: bool) -> Directory {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let address = socket.local_addr().unwrap();
        let (stop, stopped) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let now = Now { monotonic: Instant::now(), wall: Default::default() };
            let mut responder = Responder::new(Guid::from_bits(1, 2), 1, now);
            responder.set_ports(tcp, tls);
            let mut buffer = [0; 2048];
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                let Ok((n, from)) = socket.recv_from(&mut buffer) else { continue };
                if claims_anything {
                    // The reply to a client that offers TLS only: as if it offered plain TCP.
                    let end = n;
                    let at = buffer[..end].windows(3).position(|bytes| bytes == b"tls");
                    if let Some(at) = at {
                        buffer[at..at + 3].copy_from_slice(b"tcp");
                    }
                }
                let mut replies = Vec::new();
                responder.handle(from, Arrival::Shared, &buffer[..n], &mut |_| true, &mut replies);
                for reply in replies {
                    socket.send_to(&reply.bytes, from).unwrap();
                }
            }
        });
        Directory { address, _stop: stop }
    }
}

fn client_of(directory: &Directory, keychain: &Keychain) -> Context {
    let mut config = fodo_net::ClientConfig::with_addresses(Vec::new());
    config.pva = fodo_net::PvaClientConfig::with_addresses(vec![directory.address]);
    config.pva.tls = TlsPolicy::Only(keychain.clone());
    Context::new(config)
}

#[test]
fn a_reply_that_offers_plain_tcp_to_a_client_with_tls_only_is_ignored() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let directory = Directory::start(Some(listener.local_addr().unwrap().port()), None, true);
    let context = client_of(&directory, &Authority::new("Lab Root").trust());

    let error = channel(&context, "x").get_timeout(Duration::from_secs(1)).unwrap_err();

    assert!(matches!(error.kind(), ErrorKind::NotFound { .. }), "{error}");
    assert_eq!(listener.accept().unwrap_err().kind(), IoErrorKind::WouldBlock);
}

/// Forwards one connection to a server, and records every byte in both directions.
fn recording_proxy(server: SocketAddr) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let trace = Arc::new(Mutex::new(Vec::new()));
    let recorded = trace.clone();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(server).unwrap();
        let pump = |mut from: TcpStream, mut to: TcpStream, trace: Arc<Mutex<Vec<u8>>>| {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = from.read(&mut buffer) {
                    trace.lock().unwrap().extend_from_slice(&buffer[..n]);
                    if to.write_all(&buffer[..n]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Both);
            })
        };
        pump(client.try_clone().unwrap(), server.try_clone().unwrap(), recorded.clone());
        pump(server, client, recorded);
    });
    (port, trace)
}

#[test]
fn no_byte_of_names_and_values_is_readable_on_the_way() {
    let root = Authority::new("Lab Root");
    let secret = "the beam current is 42 mA";
    let served = Served::start(Use::preferred(&root.keychain("ioc")), [("vault:secret", cell(secret))]);
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, served.server.pva_tls_port().unwrap()));
    let (port, trace) = recording_proxy(to);
    let directory = Directory::start(None, Some(port), false);
    let context = client_of(&directory, &root.keychain("ann"));
    let pv = channel(&context, "vault:secret");

    assert_eq!(pv.get_timeout(PATIENCE).unwrap().value, secret.into());
    pv.put_timeout("the beam current is 43 mA", PATIENCE).unwrap();

    let trace = trace.lock().unwrap();
    assert!(trace.len() > 1000 && trace[0] == 0x16, "a record of a handshake is first");
    for plain in [&b"vault"[..], b"beam current", b"epics:nt", b"anonymous", b"ann", b"Lab Root"] {
        assert!(!trace.windows(plain.len()).any(|bytes| bytes == plain), "{}", String::from_utf8_lossy(plain));
    }
    // The start of each message of pvAccess is the byte 0xca and a version.
    assert!(!trace.windows(3).any(|bytes| bytes == [0xca, 2, 0]), "a header of pvAccess");
}

/// Row 78: slow handshakes, and connections that are not TLS.
#[test]
fn a_handshake_that_stalls_is_closed_and_delays_no_other_client() {
    let root = Authority::new("Lab Root");
    let served = Served::start(Use::preferred(&root.keychain("ioc")), [("x", cell(1))]);
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, served.server.pva_tls_port().unwrap()));
    let start = Instant::now();
    let mut silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(to).unwrap()).collect();
    // The start of a ClientHello, without the rest.
    let mut half = TcpStream::connect(to).unwrap();
    half.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();

    let context = served.secure_client(&root.trust());
    assert_eq!(channel(&context, "x").get_timeout(PATIENCE).unwrap().value, 1.into());
    assert!(start.elapsed() < Duration::from_secs(4), "the others still wait");

    silent.push(half);
    for stream in &mut silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0, "it is closed");
    }
    assert!(start.elapsed() >= Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(served.await_log("its TLS handshake failed").contains("it takes longer than 5 s"));
}

#[test]
fn a_client_that_does_not_speak_tls_is_closed_at_once() {
    let root = Authority::new("Lab Root");
    let served = Served::start(Use::preferred(&root.keychain("ioc")), [("x", cell(1))]);
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, served.server.pva_tls_port().unwrap()));
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\xca\x02\0\x01\0\0\0\0", b"SSH-2.0-OpenSSH\r\n", &[0; 64]] {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();

        let mut reply = Vec::new();
        // The system may report a reset instead of the end.
        let _ = stream.read_to_end(&mut reply);

        assert!(!reply.windows(1).any(|byte| byte == [0xca]), "{reply:?}");
    }
    assert!(served.await_log("its TLS handshake failed").contains("something other than TLS"));
}

/// Row 78: a server that stops in the middle.
#[test]
fn a_server_that_does_not_answer_the_handshake_is_reported() {
    let root = Authority::new("Lab Root");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let directory = Directory::start(None, Some(listener.local_addr().unwrap().port()), false);
    let context = client_of(&directory, &root.trust());
    let x = channel(&context, "x");

    let get = x.start_get(Default::default());
    let (_kept, _) = listener.accept().unwrap();
    let notice = context.next_notice(PATIENCE);

    assert!(
        matches!(&notice, Some(Notice::HandshakeFailed { reason, .. }) if reason == "it does not reply within 5 s"),
        "{notice:?}"
    );
    drop(get);
}

#[test]
fn a_server_needs_a_private_key() {
    let mut config = ServerConfig::isolated();
    config.pva.as_mut().unwrap().tls = TlsPolicy::Preferred(Authority::new("Lab Root").trust());

    let error = Server::start(config, Arc::new(PvTable::new())).unwrap_err();

    assert_eq!(error.to_string(), "the keychain \"test.pem\" contains no private key, which a server needs");
}

#[test]
fn a_keychain_in_debug_output_contains_no_key() {
    let root = Authority::new("Lab Root");
    let pem = root.pem_of("ann", |_| {});
    let keychain = authority::parsed(&pem);

    let shown = format!("{:?} {:?}", keychain, TlsPolicy::Only(keychain.clone()));

    assert!(shown.contains("ann") && shown.contains("test.pem") && shown.len() < 400, "{shown}");
    assert_eq!(keychain, authority::parsed(&pem));
    assert_ne!(keychain, root.keychain("ann"), "another key");
}

#[test]
fn a_keychain_that_cannot_be_used_is_rejected_with_the_reason() {
    let root = Authority::new("Lab Root");
    let key_of_another = {
        let (one, other) = (root.pem_of("one", |_| {}), root.pem_of("other", |_| {}));
        let certificate = one.split("-----BEGIN PRIVATE").next().unwrap().to_owned();
        let key = other.split("-----BEGIN PRIVATE").nth(1).unwrap().split("-----BEGIN CERT").next().unwrap();
        format!("{certificate}-----BEGIN PRIVATE{key}")
    };
    for (bytes, reason) in [
        (key_of_another.as_bytes(), "none of its certificates belongs to it"),
        (b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n", "contains an encrypted private key"),
        (b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", "contains a certificate that is not PEM"),
        (b"", "is neither PEM nor PKCS#12 with this password"),
        (b"\x30\x82\x01\x00", "is neither PEM nor PKCS#12 with this password"),
    ] {
        let error = Keychain::parse("bad.p12", bytes, "secret").unwrap_err().to_string();

        assert!(error.contains(reason) && !error.contains("secret"), "{error}");
    }
}

/// A keychain that openssl has made, and the same with 2147483647 rounds.
const KEYCHAIN: &[u8] = include_bytes!("../../../../fuzz/corpus/keychains/p12");
const SLOW_CHECKSUM: &[u8] = include_bytes!("../../../../fuzz/corpus/keychains/p12-rounds-of-the-checksum");
const SLOW_KEYS: &[u8] = include_bytes!("../../../../fuzz/corpus/keychains/p12-rounds-of-the-keys");
/// The same with fourteen derivations of a million rounds, of which each is permitted.
const MANY_DERIVATIONS: &[u8] = include_bytes!("../../../../fuzz/corpus/keychains/p12-many-derivations");

#[test]
fn a_keychain_that_states_too_many_rounds_is_rejected_before_a_key_is_derived() {
    let of = |bytes| Keychain::parse("slow.p12", bytes, "secret");
    let many: u64 = 0x7fff_ffff;
    let rejected = |n_rounds: u64| {
        format!("the keychain \"slow.p12\" states {n_rounds} rounds of key derivation; at most 2000000 are accepted")
    };

    let [checksum, keys, derivations] =
        [SLOW_CHECKSUM, SLOW_KEYS, MANY_DERIVATIONS].map(|bytes| of(bytes).unwrap_err().to_string());

    // openssl derives the key of the certificates, the one of the private key, and the one of the checksum, with 2048 rounds each.
    assert!(checksum.starts_with(&rejected(many + 2 * 2048)), "{checksum}");
    assert!(keys.starts_with(&rejected(2 * many + 2048)), "{keys}");
    assert!(derivations.starts_with(&rejected(14_000_000)), "{derivations}");
    assert!(of(KEYCHAIN).unwrap().identity().is_some());
}

#[test]
fn the_chain_of_a_server_has_the_authority_that_signed_it_and_not_another_of_the_same_name() {
    let root = Authority::new("Lab Root");
    let (issuing, renewed) = (root.below("Controls"), root.below("Controls"));
    let keychain = issuing.keychain_with(&renewed, "ioc");
    let served = Served::start(Use::preferred(&keychain), [("x", cell(1.5))]);

    let x = channel(&served.secure_client(&root.trust()), "x").get_timeout(PATIENCE);

    assert_eq!(x.unwrap().value, 1.5.into());
}
