//! Clients of both protocols on one TCP port, without UDP.
#![expect(clippy::unwrap_used, reason = "a panic reports a failed test")]

#[path = "faults/raw.rs"]
#[expect(dead_code, reason = "the rest is for the tests that are about it")]
mod raw;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use fodo_ca::message::{Answer, Request};
use fodo_net::log::{Level, Log, LogLine};
use fodo_net::{ClientConfig, Context, Host, PvTable, PvaClientConfig, Quotas, Server, ServerConfig, SharedPv, Value};

use raw::{Raw, bare, create};

const PATIENCE: Duration = Duration::from_secs(20);

/// The first byte of every message of pvAccess.
const PVA_MAGIC: u8 = 0xca;

/// A server with one port for circuits, and its log.
fn serve() -> (Server, Receiver<LogLine>) {
    serve_with(Quotas::default())
}

fn serve_with(quotas: Quotas) -> (Server, Receiver<LogLine>) {
    let (sender, lines) = mpsc::channel();
    let log = Log::new(Level::Warning, move |line| drop(sender.send(line.clone())));
    let x = SharedPv::builder(1.5).on_put(|value, _| Ok(value)).build();
    let config = ServerConfig { one_port: Some(0), quotas, ..ServerConfig::isolated() };
    let server = Server::start_with_log(config, Arc::new(PvTable::from([("x", x)])), log).unwrap();
    assert_eq!(Some(server.tcp_port()), server.pva_tcp_port());
    (server, lines)
}

/// A client that searches over TCP only.
fn context(server: &Server) -> Context {
    let name_servers = vec![Host { name: "127.0.0.1".into(), port: server.tcp_port() }];
    let pva = PvaClientConfig { name_servers: name_servers.clone(), ..PvaClientConfig::with_addresses(Vec::new()) };
    Context::new(ClientConfig { name_servers, pva, ..ClientConfig::with_addresses(Vec::new()) })
}

/// Reads to the end of the stream.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset ends it as well.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

#[test]
fn clients_of_both_protocols_find_and_use_pvs_over_one_port() {
    let (server, _lines) = serve();
    let context = context(&server);

    for (scheme, value) in [("ca", 2.5), ("pva", 3.5)] {
        let x = context.channel(&format!("{scheme}://x")).unwrap();
        let facts = x.connect_timeout(PATIENCE).unwrap();
        x.put_timeout(value, PATIENCE).unwrap();

        assert_eq!(facts.server.port(), server.tcp_port(), "{scheme}");
        assert_eq!(x.get_timeout(PATIENCE).unwrap().value, Value::from(value), "{scheme}");
    }
}

#[test]
fn a_client_of_channel_access_may_send_its_first_message_byte_by_byte() {
    let (server, lines) = serve();
    let mut client = Raw::connected(server.tcp_port());

    client.stream.set_nodelay(true).unwrap();
    let bytes = [bare(Request::Version { priority: 0, minor: 13, sequence: 0 }), create(0, "x")].concat();

    client.stream.write_all(&bytes[..1]).unwrap();
    client.until(|answer| matches!(answer, Answer::Version { .. }));
    bytes[1..].iter().for_each(|&byte| client.stream.write_all(&[byte]).unwrap());
    client.until(|answer| matches!(answer, Answer::CreateChan { .. }));

    assert!(lines.try_recv().is_err());
}

#[test]
fn a_client_of_channel_access_that_is_silent_at_first_is_closed_and_the_log_names_the_reason() {
    let (server, lines) = serve();
    let mut client = TcpStream::connect(("127.0.0.1", server.tcp_port())).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut greeting = [0; 8];
    client.read_exact(&mut greeting).unwrap();

    client.write_all(&bare(Request::Version { priority: 0, minor: 13, sequence: 0 })).unwrap();
    let address = client.local_addr().unwrap();
    rest(&mut client);

    assert_eq!(greeting[0], PVA_MAGIC);
    let line = lines.recv_timeout(PATIENCE).unwrap();
    assert_eq!((line.level, line.peer), (Level::Warning, Some(address)));
    assert!(line.what.ends_with("(it was silent for 50 ms, so that pvAccess was assumed)"), "{}", line.what);
}

#[test]
fn clients_that_start_with_tls_or_no_protocol_are_closed_and_the_log_names_them() {
    let (server, lines) = serve();
    for (first_bytes, reason) in [
        (&[0x16, 0x03, 0x01][..], "starts with TLS"),
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "no protocol here starts with byte 0x47"),
    ] {
        let mut client = TcpStream::connect(("127.0.0.1", server.tcp_port())).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(first_bytes).unwrap();

        let line = lines.recv_timeout(PATIENCE).unwrap();

        assert!(line.what.contains(reason), "{}", line.what);
        assert_eq!((line.level, line.peer), (Level::Warning, client.local_addr().ok()));
        assert!(rest(&mut client).is_empty());
    }
}

#[test]
fn a_client_that_stays_silent_is_closed_in_the_end() {
    let silent_client = Duration::from_millis(200);
    let (server, _lines) = serve_with(Quotas { silent_client, ..Quotas::default() });
    let mut client = TcpStream::connect(("127.0.0.1", server.tcp_port())).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let start = Instant::now();

    let greeting = rest(&mut client);

    assert_eq!(greeting.first(), Some(&PVA_MAGIC));
    assert!(start.elapsed() >= silent_client && start.elapsed() < PATIENCE);
}

#[test]
fn a_client_that_disconnects_before_its_first_byte_leaves_nothing_behind() {
    let (server, lines) = serve();
    for _ in 0..100 {
        drop(TcpStream::connect(("127.0.0.1", server.tcp_port())).unwrap());
    }
    let context = context(&server);

    let value = context.channel("pva://x").unwrap().get_timeout(PATIENCE).unwrap().value;
    drop(context);

    assert_eq!(value, Value::from(1.5));
    let start = Instant::now();
    while !server.observer().clients().is_empty() {
        assert!(start.elapsed() < PATIENCE, "{:?}", server.observer().clients());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(lines.try_recv().is_err());
}
