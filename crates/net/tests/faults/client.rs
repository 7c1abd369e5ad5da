//! A client and servers that violate the protocol.

use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_ca::message::Answer;
use fodo_engine::Cid;
use fodo_net::{ChannelState, ClientConfig, Context, ErrorKind, ServedPv, Server, ServerConfig, SharedPv, Source};
use socket2::{Domain, Socket, Type};

use crate::PATIENCE;
use crate::cell::{Cell, Table, client, client_at, local, number, quiet, serve};
use crate::raw::{Raw, create};
use fodo_testing::{eventually, free_port};

/// A port that neither accepts nor refuses connections: its queue is full, and others wait for a place in it.
fn full_port() -> (TcpListener, Vec<Socket>) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&local(0).into()).unwrap();
    socket.listen(0).unwrap();
    let listener = TcpListener::from(socket);
    let port = listener.local_addr().unwrap();
    let connecting = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        // Loopback does this at once, or the queue is full and it goes on in the background.
        let _ = socket.connect(&port.into());
        socket
    };
    let waiting = std::iter::repeat_with(connecting).take(8).collect();
    (listener, waiting)
}

/// VERSION, then SEARCH: claims the names of this datagram for that port.
fn claims(searches: &[u8], port: u16) -> Vec<u8> {
    let mut answer = searches[..16].to_vec();
    for search in searches[16..].chunks(24) {
        let mut found = vec![0, 6, 0, 8];
        found.extend_from_slice(&port.to_be_bytes());
        found.extend_from_slice(&[0, 0, 255, 255, 255, 255]);
        found.extend_from_slice(&search[8..12]);
        found.extend_from_slice(&[0, 13, 0, 0, 0, 0, 0, 0]);
        answer.extend_from_slice(&found);
    }
    answer
}

// Row 11 of docs/reference/faults.md.
#[test]
fn a_hanging_connection_delays_no_other_server_and_times_out() {
    let (hanging, _waiting) = full_port();
    let liar = UdpSocket::bind("127.0.0.1:0").unwrap();
    liar.set_read_timeout(Some(PATIENCE)).unwrap();
    let server = serve(&Table::of([("y", Cell::new(2.5))]));
    let places = vec![liar.local_addr().unwrap(), local(server.udp_port())];
    let context = Context::new(ClientConfig::with_addresses(places));
    let mut buffer = [0; 2048];

    let _x = context.channel("x").unwrap();
    let (n, from) = liar.recv_from(&mut buffer).unwrap();
    liar.send_to(&claims(&buffer[..n], hanging.local_addr().unwrap().port()), from).unwrap();
    let start = Instant::now();
    let y = context.channel("y").unwrap().get_timeout(PATIENCE).unwrap();
    let took = start.elapsed();
    // Skips searches for "y", which it has not claimed, until "x" is searched for again.
    while liar.recv_from(&mut buffer).unwrap().0 != n || buffer[32] != b'x' {}
    let searched_again = start.elapsed();

    assert_eq!(number(&y), 2.5);
    assert!(took < searched_again, "{took:?} for another server");
    assert!(searched_again.as_secs() >= 4, "given up after {searched_again:?}");
}

/// Serves every name.
struct Everything(SharedPv);

impl Source for Everything {
    fn serves(&self, _: &str) -> bool {
        true
    }

    fn open(&self, _: &str) -> Option<ServedPv> {
        Some(self.0.clone().into())
    }
}

#[test]
fn names_longer_than_511_bytes_are_rejected_by_client_and_server() {
    let server = serve(&Arc::new(Everything(SharedPv::new(1.5))));
    let (longest, too_long) = ("x".repeat(511), "x".repeat(512));

    let reading = client(&server).channel(&longest).unwrap().get_timeout(PATIENCE).unwrap();
    let error = client(&server).channel(&too_long).unwrap_err();
    let mut raw = Raw::with_channel(server.tcp_port(), &longest);
    raw.send(&[create(1, &too_long)]);
    let answer = raw.until(|answer| matches!(answer, Answer::CreateChan { .. } | Answer::CreateChFail { .. })).0;

    assert_eq!(number(&reading), 1.5);
    assert!(matches!(error.kind(), ErrorKind::Misuse { .. }), "{error:?}");
    assert_eq!(answer, Answer::CreateChFail { cid: Cid(1) });
}

// Row 55 of docs/reference/faults.md.
#[test]
fn channels_of_a_restarted_server_reconnect_quickly_without_a_search_storm() {
    const N: usize = 20_000;
    let source = Arc::new(Everything(SharedPv::new(1.5)));
    let port = free_port();
    let start = || Server::start(ServerConfig { port, ..quiet() }, source.clone()).unwrap();
    let server = start();
    let context = client_at(port);
    let channels: Vec<_> = (0..N).map(|index| context.channel(&format!("pv:{index:06}")).unwrap()).collect();
    let n_active = || channels.iter().filter(|channel| channel.state() == ChannelState::Active).count();
    eventually("all channels are active", || n_active() == N);

    drop(server);
    let absent = UdpSocket::bind(local(port)).unwrap();
    absent.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    eventually("no channel is active", || n_active() == 0);
    let (mut n_datagrams, mut buffer, silent) = (0, [0; 2048], Instant::now());
    while silent.elapsed() < Duration::from_secs(1) {
        n_datagrams += usize::from(absent.recv_from(&mut buffer).is_ok());
    }
    drop(absent);
    let _server = start();
    eventually("all channels are active", || n_active() == N);

    // A name takes 32 bytes of 1024; periods double from 32 ms.
    assert!(n_datagrams < 6 * N * 32 / 1000, "{n_datagrams} datagrams in the first second");
}
