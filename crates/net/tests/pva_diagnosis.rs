//! Each step of connecting to a PV of pvAccess fails in turn, with loopback sockets that really answer searches.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers as well")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fodo_data::{Kind, Structure, StructureBuilder};
use fodo_net::client::diagnosis::{
    AwaitedReply, ClaimResult, DiagnosedValue, Diagnosis, SearchMethod, SearchResult, SearchedAddress,
};
use fodo_net::{
    ClientConfig, Host, Protocol, PvTable, PvaClientConfig, Refusal, Rights, ServedPv, Server, ServerConfig, SharedPv,
    SharedStructure, Source,
};
use fodo_pva::cursor::{ByteOrder, ByteReader};
use fodo_pva::frame;
use fodo_pva::guid::Guid;
use fodo_pva::message::Answer;
use fodo_pva::search::{SearchRequest, SearchResponse};
use fodo_pva::status::RequestStatus;

use fodo_testing::free_port;

const PATIENCE: Duration = Duration::from_secs(2);

/// A configuration that searches only at these addresses.
fn config(addresses: Vec<SocketAddr>) -> ClientConfig {
    ClientConfig { pva: PvaClientConfig::with_addresses(addresses), ..ClientConfig::with_addresses(Vec::new()) }
}

fn diagnosed(pv: &str, config: &ClientConfig) -> Diagnosis {
    Diagnosis::run(pv, config, PATIENCE).unwrap()
}

/// Claims every name for these servers, each with its own number and TCP port, until dropped.
struct Claimer {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Claimer {
    fn of(servers: &[(u8, u16)]) -> Claimer {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let claimer = Claimer { address: socket.local_addr().unwrap(), is_over: Arc::default() };
        let (is_over, servers) = (claimer.is_over.clone(), servers.to_vec());
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !is_over.load(Ordering::Relaxed) {
                let Ok((n, from)) = socket.recv_from(&mut buffer) else { continue };
                for (header, payload) in frame::datagram(&buffer[..n]).map_while(Result::ok) {
                    let request = SearchRequest::decode(&mut ByteReader::new(payload, header.order));
                    for bytes in servers.iter().filter_map(|(guid, port)| claim(&request, *guid, *port)) {
                        // The client may have ended already.
                        let _ = socket.send_to(&bytes, from);
                    }
                }
            }
        });
        claimer
    }

    fn diagnosis(&self) -> Diagnosis {
        diagnosed("pva://x:y", &config(vec![self.address]))
    }

    /// What a diagnosis finds with one server that sends `bytes` at once, and then reads until the client has gone.
    fn result_with(bytes: Vec<u8>) -> ClaimResult {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&bytes).unwrap();
            // Ends with the connection, regularly or not.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        Claimer::of(&[(1, port)]).diagnosis().claims.remove(0).result
    }
}

impl Drop for Claimer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn claim(request: &SearchRequest<'_>, guid: u8, port: u16) -> Option<Vec<u8>> {
    let response = SearchResponse {
        guid: Guid([guid; 12]),
        sequence: request.sequence,
        address: Ipv6Addr::UNSPECIFIED,
        port,
        protocol: "tcp".into(),
        is_found: true,
        cids: request.channels.iter().map(|channel| channel.cid).collect(),
    };
    let mut bytes = Vec::new();
    Answer::SearchResponse {}.encode(ByteOrder::Little, &mut bytes, |to| response.encode(to));
    (!request.channels.is_empty()).then_some(bytes)
}

/// The greeting of a server, and the end of its validation with this status.
fn greeting(status: Option<RequestStatus>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Answer::ConnectionValidation { buffer_bytes: 65536, registry_size: 100, methods: vec!["ca".into()] }.encode(
        ByteOrder::Little,
        &mut bytes,
        |_| {},
    );
    if let Some(status) = status {
        Answer::ConnectionValidated { status }.encode(ByteOrder::Little, &mut bytes, |_| {});
    }
    bytes
}

fn serve(pvs: impl Into<PvTable>) -> Server {
    Server::start(ServerConfig::isolated(), Arc::new(pvs.into())).unwrap()
}

#[test]
fn diagnosis_reads_numbers_arrays_and_structures_with_their_types() {
    let mut build = StructureBuilder::new("scan_t");
    let structure = Structure::new(build.scalar("n", Kind::I32).finish().into());
    let pvs = PvTable::from([("number", SharedPv::new(1.5)), ("array", SharedPv::new(vec![1, 2]))]);
    pvs.insert("structure", SharedStructure::builder(structure.clone()).build());
    let server = serve(pvs);
    let of = |pv: &str| {
        let diagnosis = diagnosed(&format!("pva://{pv}"), &server.client_config());
        assert_eq!((diagnosis.pv.as_str(), diagnosis.protocol), (pv, Protocol::Pva));
        assert!(diagnosis.searched.iter().all(|searched| searched.result == SearchResult::Sent), "{diagnosis:?}");
        match &diagnosis.claims[..] {
            [claim] => claim.result.clone(),
            other => panic!("{other:?}"),
        }
    };

    let ClaimResult::Channel { facts, value: Some(Ok(DiagnosedValue::Reading(number))), .. } = of("number") else {
        panic!("a number")
    };
    assert_eq!((facts.kind, facts.count_max, number.value), (Kind::F64, 1, 1.5.into()));
    assert_eq!(facts.server.port(), server.pva_tcp_port().unwrap());
    let ClaimResult::Channel { facts, value: Some(Ok(DiagnosedValue::Reading(array))), .. } = of("array") else {
        panic!("an array")
    };
    assert_eq!((facts.kind, facts.count_max, array.value), (Kind::I32, 0, vec![1, 2].into()));
    let ClaimResult::Channel { value: Some(Ok(DiagnosedValue::Structure(found))), .. } = of("structure") else {
        panic!("a structure")
    };
    assert_eq!(found.kind(), structure.kind());
}

#[test]
fn the_configuration_selects_the_protocol_of_a_name_without_a_scheme() {
    let server = serve([("x", SharedPv::new(1.5))]);
    for protocol in [Protocol::Ca, Protocol::Pva] {
        let config = ClientConfig { default_protocol: protocol, ..server.client_config() };

        let diagnosis = diagnosed("x", &config);

        assert_eq!((diagnosis.protocol, diagnosis.claims.len()), (protocol, 1));
        assert!(matches!(diagnosis.claims[0].result, ClaimResult::Channel { value: Some(Ok(_)), .. }));
    }
}

#[test]
fn diagnosis_distinguishes_a_closed_port_from_a_silent_one() {
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let gone = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));

    let diagnosis = diagnosed("pva://x:y", &config(vec![silent.local_addr().unwrap(), gone]));

    let results: Vec<&SearchResult> = diagnosis.searched.iter().map(|one| &one.result).collect();
    assert_eq!(results, [&SearchResult::Sent, &SearchResult::PortClosed]);
    assert!(diagnosis.claims.is_empty() && diagnosis.waited >= PATIENCE);
}

#[test]
fn diagnosis_reports_a_server_that_refuses_the_connection() {
    let result = Claimer::of(&[(1, free_port())]).diagnosis().claims.remove(0).result;

    assert!(matches!(result, ClaimResult::NotConnected { is_refused: true, .. }), "{result:?}");
}

#[test]
fn diagnosis_names_the_step_at_which_a_server_is_silent() {
    for (bytes, expected) in [
        (Vec::new(), AwaitedReply::Greeting),
        (greeting(None), AwaitedReply::Validation),
        (greeting(Some(RequestStatus::OK)), AwaitedReply::Channel),
    ] {
        match Claimer::result_with(bytes) {
            ClaimResult::Silent { after, awaited } => assert!(awaited == expected && after >= PATIENCE, "{awaited:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn diagnosis_reports_a_server_that_rejects_the_client_or_sends_something_else() {
    let rejected = Claimer::result_with(greeting(Some(RequestStatus::error("no more clients"))));
    let invalid = Claimer::result_with(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());

    assert_eq!(rejected, ClaimResult::Rejected { reason: "no more clients".into() });
    assert!(matches!(invalid, ClaimResult::Invalid { .. }), "{invalid:?}");
}

#[test]
fn diagnosis_reports_a_server_that_closes_the_connection() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&greeting(None)).unwrap();
        // The received bytes are read first, since closing with unread bytes would reset the connection.
        let _ = stream.read(&mut [0; 4096]);
    });

    let result = Claimer::of(&[(1, port)]).diagnosis().claims.remove(0).result;

    assert!(matches!(result, ClaimResult::Lost { .. }), "{result:?}");
}

#[test]
fn diagnosis_connects_to_each_server_once_even_if_it_claims_from_several_addresses() {
    let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();

    let diagnosis = Claimer::of(&[(1, ports[0]), (1, ports[1]), (2, ports[2])]).diagnosis();

    let claimed: Vec<u16> = diagnosis.claims.iter().map(|claim| claim.server.port()).collect();
    assert_eq!(claimed, [ports[0], ports[2]]);
}

#[test]
fn diagnosis_queries_name_servers_and_connects_to_the_servers_they_report() {
    let server = serve([("x:y", SharedPv::new(1.5))]);
    let name_server = |port| Host { name: "127.0.0.1".into(), port };
    let mut config = config(Vec::new());
    let port = server.pva_tcp_port().unwrap();
    // One of them is listed twice.
    config.pva.name_servers = vec![name_server(free_port()), name_server(port), name_server(port)];

    let diagnosis = diagnosed("pva://x:y", &config);

    let searched = |one: &SearchedAddress| (one.method, one.result.clone());
    let expected = [SearchResult::PortClosed, SearchResult::Sent].map(|result| (SearchMethod::NameServer, result));
    assert_eq!(diagnosis.searched.iter().map(searched).collect::<Vec<_>>(), expected);
    assert!(matches!(diagnosis.claims[..], [ref claim] if matches!(claim.result, ClaimResult::Channel { .. })));
    assert_eq!(diagnosed("pva://x:absent", &config).claims, []);
}

/// Claims every name but has none of them.
struct Empty;

impl Source for Empty {
    fn serves(&self, _: &str) -> bool {
        true
    }

    fn open(&self, _: &str) -> Option<ServedPv> {
        None
    }
}

#[test]
fn diagnosis_reports_a_refused_channel_and_a_refused_value() {
    let empty = Server::start(ServerConfig::isolated(), Arc::new(Empty)).unwrap();
    let refused = diagnosed("pva://x:y", &empty.client_config()).claims.remove(0).result;
    assert!(matches!(&refused, ClaimResult::Refused { reason } if !reason.is_empty()), "{refused:?}");

    let secret = SharedPv::builder(1.5).rights(|_| Rights { read: false, write: false }).build();
    let server = serve([("x:y", secret)]);
    match diagnosed("pva://x:y", &server.client_config()).claims.remove(0).result {
        ClaimResult::Channel { value: Some(Err(Refusal::Reported { text })), .. } => {
            assert!(text.contains("no read access"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}
