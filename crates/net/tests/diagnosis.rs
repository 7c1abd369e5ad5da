//! Each step of connecting to a PV fails in turn, with loopback sockets that really answer searches.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers as well")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod scripted;
#[allow(dead_code, reason = "each test program uses a part of it")]
mod served;

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_ca::message::{Answer, Request};
use fodo_ca::search::Responder;
use fodo_data::Now;
use fodo_engine::Sid;
use fodo_net::client::diagnosis::{AwaitedReply, ClaimResult, Diagnosis, SearchMethod, SearchResult};
use fodo_net::{ClientConfig, Host, Refusal, Rights, ServedPv, Server, ServerConfig, SharedPv, Source};

use fodo_testing::free_port;
use scripted::{Scripted, created, error, message};
use served::cell;

/// Timeout of a diagnosis that ends by an event.
const PATIENCE: Duration = Duration::from_secs(30);

/// Timeout of a diagnosis of a peer that is silent by plan, which it waits for to the end.
const SHORT: Duration = Duration::from_secs(2);

/// Diagnoses "x:y". If the timeout was too short for a busy machine to get so far, it tries once more with a longer one.
fn diagnose(config: &ClientConfig, timeout: Duration, is_complete: impl Fn(&Diagnosis) -> bool) -> Diagnosis {
    let diagnosis = Diagnosis::run("x:y", config, timeout).unwrap();
    match is_complete(&diagnosis) {
        true => diagnosis,
        false => Diagnosis::run("x:y", config, PATIENCE / 2).unwrap(),
    }
}

/// Claims every name for the TCP ports it was created with, until dropped.
struct Claimer {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Claimer {
    fn of(tcp_ports: &[u16]) -> Claimer {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let claimer = Claimer { address: socket.local_addr().unwrap(), is_over: Arc::default() };
        let now = Now { monotonic: Instant::now(), wall: SystemTime::now().into() };
        let mut responders: Vec<Responder> = tcp_ports.iter().map(|port| Responder::new(*port, now)).collect();
        let is_over = claimer.is_over.clone();
        std::thread::spawn(move || {
            let (mut buffer, mut answers) = ([0; 2048], Vec::new());
            while !is_over.load(Ordering::Relaxed) {
                let Ok((n, from)) = socket.recv_from(&mut buffer) else { continue };
                for responder in &mut responders {
                    responder.handle(from, &buffer[..n], &mut |_| true, &mut answers);
                }
                for answer in answers.drain(..) {
                    // The client may have ended already.
                    let _ = socket.send_to(&answer.bytes, from);
                }
            }
        });
        claimer
    }

    fn diagnosis(&self) -> Diagnosis {
        self.diagnosis_within(PATIENCE, |_| true)
    }

    fn diagnosis_within(&self, timeout: Duration, is_complete: impl Fn(&Diagnosis) -> bool) -> Diagnosis {
        diagnose(&ClientConfig::with_addresses(vec![self.address]), timeout, is_complete)
    }
}

impl Drop for Claimer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn diagnosis_distinguishes_a_closed_port_from_a_silent_one() {
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let gone = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let search_addresses = vec![silent.local_addr().unwrap(), gone];
    let config = ClientConfig::with_addresses(search_addresses);

    let diagnosis = Diagnosis::run("x:y", &config, SHORT).unwrap();

    assert_eq!(
        diagnosis.searched.iter().map(|one| &one.result).collect::<Vec<_>>(),
        [&SearchResult::Sent, &SearchResult::PortClosed]
    );
    assert_eq!(diagnosis.claims, []);
    assert!(diagnosis.waited >= SHORT);
}

#[test]
fn diagnosis_reports_a_server_that_refuses_the_connection() {
    let diagnosis = Claimer::of(&[free_port()]).diagnosis();

    let found = &diagnosis.claims.first().unwrap().result;
    assert!(matches!(found, ClaimResult::NotConnected { is_refused: true, .. }), "{found:?}");
}

#[test]
fn diagnosis_reports_a_server_that_accepts_and_stays_silent() {
    let (_listener, port) = listener();

    let diagnosis = Claimer::of(&[port]).diagnosis_within(SHORT, |diagnosis| !diagnosis.claims.is_empty());

    let found = &diagnosis.claims.first().unwrap().result;
    assert!(
        matches!(found, ClaimResult::Silent { after, awaited: AwaitedReply::Channel } if *after >= SHORT),
        "{found:?}"
    );
}

#[test]
fn diagnosis_reports_a_server_that_closes_the_connection() {
    let (listener, port) = listener();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The received bytes are read first, since closing with unread bytes would reset the connection.
        let _ = stream.read(&mut [0; 4096]);
    });

    let diagnosis = Claimer::of(&[port]).diagnosis();

    let found = &diagnosis.claims.first().unwrap().result;
    assert!(matches!(found, ClaimResult::Lost { .. }), "{found:?}");
}

#[test]
fn diagnosis_reports_what_is_wrong_with_an_invalid_message() {
    let server = Scripted::start(|request| match request {
        Request::CreateChan { cid, .. } => {
            let reply = Answer::CreateChan { dbr: DbrType(99), count: 1, cid: *cid, sid: Sid(1) };
            Some(message(reply, &[]))
        }
        _ => None,
    });

    let diagnosis = Diagnosis::run("x:y", &ClientConfig::with_addresses(vec![server.address()]), PATIENCE).unwrap();

    let reason = "channel confirmed with an invalid type".to_owned();
    assert_eq!(diagnosis.claims.first().unwrap().result, ClaimResult::Invalid { reason });
}

#[test]
fn diagnosis_connects_to_all_servers_that_claim_a_name() {
    let ((_one, one_port), (_other, other_port)) = (listener(), listener());

    let diagnosis =
        Claimer::of(&[one_port, other_port]).diagnosis_within(SHORT, |diagnosis| diagnosis.claims.len() == 2);

    let ports: Vec<u16> = diagnosis.claims.iter().map(|claimed| claimed.server.port()).collect();
    assert_eq!(ports, [one_port, other_port]);
}

#[test]
fn diagnosis_connects_to_a_limited_number_of_servers_and_to_each_once() {
    let mut ports: Vec<u16> = (0..10).map(|_| free_port()).collect();
    ports.insert(1, ports[0]);

    let diagnosis = Claimer::of(&ports).diagnosis();

    ports.remove(1);
    let claimed: Vec<u16> = diagnosis.claims.iter().map(|claimed| claimed.server.port()).collect();
    assert_eq!(claimed, ports[..8]);
}

#[test]
fn diagnosis_reports_why_a_server_refuses_its_value_or_that_it_sends_none() {
    let value_of = |server: Scripted, timeout: Duration| {
        let config = ClientConfig::with_addresses(vec![server.address()]);
        let is_connected = |diagnosis: &Diagnosis| matches!(diagnosis.claims.first(), Some(claimed) if matches!(claimed.result, ClaimResult::Channel { .. }));
        match diagnose(&config, timeout, is_connected).claims.remove(0).result {
            ClaimResult::Channel { value, .. } => value,
            other => panic!("{other:?}"),
        }
    };
    let refusing = Scripted::start(|request| match request {
        Request::CreateChan { cid, .. } => Some(created(*cid, 1)),
        Request::ReadNotify { .. } => Some(error(request, Eca::GETFAIL, "no beam")),
        _ => None,
    });
    let silent = Scripted::start(|request| match request {
        Request::CreateChan { cid, .. } => Some(created(*cid, 1)),
        _ => None,
    });

    let refusal = Refusal::Status { status: Eca::GETFAIL, text: "no beam".into() };
    assert_eq!(value_of(refusing, PATIENCE), Some(Err(refusal)));
    assert_eq!(value_of(silent, SHORT), None);
}

#[test]
fn diagnosis_queries_name_servers_and_connects_to_the_servers_they_report() {
    let server = served::start([("x:y", cell(1.5))]);
    let closed_port = free_port();
    let name_server = |port| Host { name: "127.0.0.1".into(), port };
    let name_servers = vec![name_server(closed_port), name_server(server.tcp_port())];
    let config = ClientConfig { name_servers, ..ClientConfig::with_addresses(Vec::new()) };

    let diagnosis = Diagnosis::run("x:y", &config, PATIENCE).unwrap();

    let searched: Vec<_> = diagnosis.searched.iter().map(|one| (one.method, one.result.clone())).collect();
    assert_eq!(
        searched,
        [(SearchMethod::NameServer, SearchResult::PortClosed), (SearchMethod::NameServer, SearchResult::Sent)]
    );
    assert_eq!(diagnosis.claims.len(), 1);
    assert!(
        matches!(diagnosis.claims[0].result, ClaimResult::Channel { value: Some(Ok(_)), .. }),
        "{:?}",
        diagnosis.claims
    );
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
fn diagnosis_reports_a_server_that_claims_a_name_but_refuses_its_channel() {
    let server = Server::start(ServerConfig::isolated(), Arc::new(Empty)).unwrap();

    let diagnosis = Diagnosis::run("x:y", &server.client_config(), PATIENCE).unwrap();

    assert_eq!(diagnosis.claims.first().unwrap().result, ClaimResult::Refused { reason: String::new() });
}

#[test]
fn diagnosis_reports_a_value_that_the_client_must_not_read() {
    let pv = SharedPv::builder(1.5).rights(|_| Rights { read: false, write: false }).build();
    let server = served::start([("x:y", pv)]);

    let diagnosis = Diagnosis::run("x:y", &server.client_config(), PATIENCE).unwrap();

    let ClaimResult::Channel { facts, value, .. } = &diagnosis.claims.first().unwrap().result else {
        panic!("{diagnosis:?}")
    };
    assert_eq!((facts.may_read, facts.may_write, value), (false, false, &Some(Err(Refusal::ReadAccess))));
}
