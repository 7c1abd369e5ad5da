//! Limits per client and host, and that other clients are not affected by them.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use fodo_ca::eca::Eca;
use fodo_ca::limit;
use fodo_ca::message::{Answer, Request};
use fodo_engine::{Cid, Ioid, Sid};
use fodo_net::log::{Level, Log, LogLine};
use fodo_net::{MonitorEvent, MonitorOptions, Quotas, Rights, Server, ServerConfig, Source};

use socket2::{Domain, Socket, Type};

use crate::PATIENCE;
use crate::cell::{Cell, Table, client, local, number, quiet};
use crate::raw::{self, Raw, bare, create, echo, read, subscribe, with};
use crate::server::searches;

/// A server with these quotas and a status, and its log.
fn serve_within(quotas: Quotas, source: Arc<dyn Source>) -> (Server, Receiver<LogLine>) {
    let (sender, lines) = mpsc::channel();
    let log = Log::new(Level::Warning, move |line| drop(sender.send(line.clone())));
    let config = ServerConfig { quotas, status_prefix: Some("s".to_owned()), ..quiet() };
    (Server::start_with_log(config, source, log).unwrap(), lines)
}

/// A table of one PV.
fn x() -> Arc<Table> {
    Table::of([("x", Cell::new(1.5))])
}

/// Waits for a status PV to reach a value.
fn eventually_status(server: &Server, name: &str, mut is_expected: impl FnMut(f64) -> bool) {
    let monitor = client(server).channel(name).unwrap().monitor(MonitorOptions::default());
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match monitor.next_timeout(PATIENCE) {
            Some(MonitorEvent::Update(reading)) if is_expected(number(&reading)) => return,
            _ => {}
        }
    }
    unreachable!("{name} does not reach the expected value");
}

/// A connection from another address of this host, which servers treat as another host.
fn connected_from(own: [u8; 4], port: u16) -> Raw {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((own, 0)).into()).unwrap();
    socket.connect(&local(port).into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Raw { stream }
}

fn is_served(raw: &mut Raw) -> bool {
    raw.send(&[read(1)]);
    matches!(raw.until(|answer| matches!(answer, Answer::ReadNotify { .. })).0, Answer::ReadNotify { status, .. } if status == Eca::NORMAL)
}

// Row 17 of docs/reference/faults.md.
#[test]
fn a_client_with_too_many_channels_gets_an_error_and_is_closed_and_logged() {
    let quotas = Quotas { host_bytes: 2_000_000, ..Quotas::default() };
    let (server, lines) = serve_within(quotas, x());
    let mut neighbour = Raw::with_channel(server.tcp_port(), "x");
    let mut greedy = Raw::connected(server.tcp_port());
    let its_address = greedy.stream.local_addr().unwrap();

    let n_created = (0..20_000)
        .take_while(|&cid| {
            greedy.send(&[create(cid, "x")]);
            let answered = |answer: &Answer| matches!(answer, Answer::CreateChan { .. } | Answer::Error { .. });
            match greedy.until(answered).0 {
                Answer::Error { status, .. } => {
                    assert_eq!(status, Eca::ALLOCMEM);
                    false
                }
                _ => true,
            }
        })
        .count();

    assert_eq!(n_created, 1_000_000 / limit::CHANNEL_BYTES, "half of what its host may have");
    greedy.ended_after();
    let line = lines.recv_timeout(PATIENCE).unwrap();
    assert_eq!(line.peer, Some(its_address));
    assert!(line.what.contains("too many channels"), "{}", line.what);
    assert!(is_served(&mut neighbour), "of the same host");
    eventually_status(&server, "s:REFUSED", |n| n == 1.0);
}

// Row 18 of docs/reference/faults.md.
#[test]
fn memory_of_all_clients_of_a_host_is_limited_together_and_released() {
    let n_each = 400;
    // Enough for two and a half.
    let quotas = Quotas { host_bytes: 5 * n_each as usize / 2 * limit::SUBSCRIPTION_BYTES, ..Quotas::default() };
    let (server, lines) = serve_within(quotas, x());
    let fill = |raw: &mut Raw| {
        // Sent together, so that nothing is unread when the server closes, and its message arrives.
        raw.send(&(0..n_each).map(subscribe).chain([echo()]).collect::<Vec<_>>());
        let end = |answer: &Answer| matches!(answer, Answer::Echo {} | Answer::Error { .. });
        matches!(raw.until(end).0, Answer::Echo {})
    };
    let mut first = Raw::with_channel(server.tcp_port(), "x");
    let mut others: Vec<Raw> = (0..2).map(|_| Raw::with_channel(server.tcp_port(), "x")).collect();

    let filled: Vec<bool> = [&mut first].into_iter().chain(&mut others).map(fill).collect();
    assert_eq!(filled, [true, true, false], "the third finds too little left");
    drop((first, others));
    let (start, mut n_refused) = (Instant::now(), 1);
    while !fill(&mut Raw::with_channel(server.tcp_port(), "x")) {
        assert!(start.elapsed() < PATIENCE, "released memory must become available");
        n_refused += 1;
    }

    assert_eq!(lines.try_iter().count(), n_refused);
}

// Row 26 of docs/reference/faults.md.
#[test]
fn circuits_beyond_the_host_limit_are_rejected_and_other_hosts_are_served() {
    let quotas = Quotas { host_circuits: 4, ..Quotas::default() };
    let (server, lines) = serve_within(quotas, x());
    let mut within: Vec<Raw> = (0..4).map(|_| Raw::with_channel(server.tcp_port(), "x")).collect();

    let mut beyond = Raw::connected(server.tcp_port());
    let reply = beyond.hear().unwrap().0;
    let ended_after = beyond.ended_after();
    let mut of_other_host = connected_from([127, 0, 0, 2], server.tcp_port());
    of_other_host.send(&[create(0, "x")]);
    of_other_host.until(|answer| matches!(answer, Answer::CreateChan { .. }));

    assert!(matches!(reply, Answer::Error { status: Eca::ALLOCMEM, .. }), "{reply:?}");
    assert!(ended_after < PATIENCE / 2, "{ended_after:?}");
    assert!(within.iter_mut().chain([&mut of_other_host]).all(is_served));
    let line = lines.recv_timeout(PATIENCE).unwrap();
    assert_eq!((line.level, line.peer.map(|peer| peer.ip())), (Level::Warning, Some(local(0).ip())));
    assert!(line.what.contains("too many circuits"), "{}", line.what);
    within.clear();
    eventually_status(&server, "s:REFUSED", |n| n >= 1.0);
}

// Row 20 of docs/reference/faults.md.
#[test]
fn queued_replies_of_a_host_are_limited_and_its_reading_clients_are_served() {
    const HOST_BYTES: usize = 4 << 20;
    const ANSWER_BYTES: usize = 100_000;
    // As doubles, which is not the native type: each reply is a converted copy.
    let table = Table::of([("a", Cell::new(vec![7_i32; ANSWER_BYTES / 8])), ("x", Cell::new(1.5))]);
    let (server, _lines) = serve_within(Quotas { host_bytes: HOST_BYTES, ..Quotas::default() }, table);
    let mut good = Raw::with_channel(server.tcp_port(), "x");
    let mut deaf: Vec<Raw> = (0..16).map(|_| Raw::with_channel(server.tcp_port(), "a")).collect();

    // More than the socket buffers can hold.
    deaf.iter_mut().for_each(|deaf| deaf.send(&[read(1).repeat(400)]));
    eventually_status(&server, "s:QUEUED_BYTES", |bytes| bytes > 0.0);
    let (mut queued, mut n_same, mut n_echoes) = (0.0, 0, 0);
    eventually_status(&server, "s:QUEUED_BYTES", |bytes| {
        // Every message from a client makes the server check its pending requests.
        deaf.iter_mut().for_each(|deaf| deaf.send(&[echo()]));
        n_echoes += deaf.len();
        n_same = if bytes == queued { n_same + 1 } else { 0 };
        queued = bytes;
        n_same == 3
    });

    assert!((0..100).all(|_| is_served(&mut good)));
    // One more for each than fits, since a reply is never truncated; and echoes, which are always answered.
    assert!(queued <= (HOST_BYTES + deaf.len() * (ANSWER_BYTES + 24) + n_echoes * 16) as f64, "{queued}");
    for deaf in &mut deaf {
        (0..20).for_each(|_| assert_eq!(deaf.hear().unwrap().1.len(), ANSWER_BYTES));
    }
}

// Row 5 of docs/reference/faults.md.
#[test]
fn a_flooding_host_gets_its_share_of_replies_and_delays_no_other_host() {
    let quotas = Quotas { source_search_bytes: 20_000, ..Quotas::default() };
    let (server, _lines) = serve_within(quotas, Table::of([("y", Cell::new(2.5))]));
    let to = local(server.udp_port());
    let flooding = UdpSocket::bind("127.0.0.2:0").unwrap();
    flooding.set_nonblocking(true).unwrap();
    let other = UdpSocket::bind("127.0.0.3:0").unwrap();
    other.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let (datagram, mut buffer, start) = (searches(), [0; 2048], Instant::now());

    let (mut n_answered, mut n_found, mut n_searched) = (0, 0, 0);
    while start.elapsed() < PATIENCE {
        (0..20).for_each(|_| drop(flooding.send_to(&datagram, to)));
        other.send_to(&datagram, to).unwrap();
        n_searched += 1;
        n_found += usize::from(other.recv_from(&mut buffer).is_ok());
        while flooding.recv_from(&mut buffer).is_ok() {
            n_answered += 1;
        }
        if n_found >= 15 {
            break;
        }
    }

    // 20 000 bytes are 19 datagrams, and the flood spans at least two periods.
    assert!(n_found >= 15, "{n_found} of {n_searched}");
    let n_spans = 2 + start.elapsed().as_millis() as usize / 250;
    assert!(n_answered <= n_spans * 20_000 / datagram.len(), "{n_answered} in {n_spans} spans");
}

/// The header of a put of this many doubles to channel 0, with a reply.
fn put_header(n_elements: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let put = Request::WriteNotify { dbr: raw::DOUBLE, count: n_elements, sid: Sid(0), ioid: Ioid(7) };
    put.header(n_elements as usize * 8).encode(&mut bytes);
    bytes
}

/// The server's reply to the put.
fn put_status(raw: &mut Raw) -> Eca {
    match raw.until(|answer| matches!(answer, Answer::WriteNotify { .. })).0 {
        Answer::WriteNotify { status, .. } => status,
        other => panic!("{other:?}"),
    }
}

// Row 80 of docs/reference/faults.md.
#[test]
fn partial_puts_beyond_half_of_the_host_quota_are_rejected() {
    const N_ELEMENTS: u32 = 100_000;
    const SENT_BYTES: usize = N_ELEMENTS as usize * 8 - 1000;
    let quotas = Quotas { host_bytes: 4_000_000, ..Quotas::default() };
    let (server, lines) = serve_within(quotas, Table::of([("a", Cell::new(vec![0.0; 10])), ("x", Cell::new(1.5))]));
    let mut neighbour = Raw::with_channel(server.tcp_port(), "x");
    let half_sent = || {
        let mut half_sent = Raw::with_channel(server.tcp_port(), "a");
        half_sent.send(&[put_header(N_ELEMENTS), vec![0; SENT_BYTES]]);
        half_sent
    };

    let mut three: Vec<Raw> = (0..3).map(|_| half_sent()).collect();
    // The clients whose bytes are read last; the threads of the server decide how many, at least one.
    let line = lines.recv_timeout(PATIENCE).unwrap();
    let refused = three.iter_mut().find(|raw| raw.stream.local_addr().ok() == line.peer).unwrap();

    assert!(line.what.contains("too much memory"), "{line:?}");
    assert_eq!(put_status(refused), Eca::ALLOCMEM);
    refused.send(&[vec![0; 1000], echo()]);
    refused.until(|answer| matches!(answer, Answer::Echo {}));
    assert!(is_served(&mut neighbour), "of the same host");
    neighbour.send(&[create(1, "x")]);
    neighbour.until(|answer| matches!(answer, Answer::CreateChan { .. }));
    eventually_status(&server, "s:REFUSED", |n| (1.0..=3.0).contains(&n));
}

// Row 21 of docs/reference/faults.md.
#[test]
fn memory_of_puts_in_progress_is_limited_and_released_when_they_end() {
    const N_ELEMENTS: u32 = 1000;
    let table = Table::of([("small", Cell::that_holds(0.0)), ("large", Cell::that_holds(vec![0.0]))]);
    let (server, _lines) = serve_within(Quotas { host_bytes: 400_000, ..Quotas::default() }, table.clone());
    let large = [put_header(N_ELEMENTS), vec![0; N_ELEMENTS as usize * 8]].concat();
    // How many of many puts are in progress before the others are refused; then all of these end.
    let n_accepted = |raw: &mut Raw, message: &[u8], cell: &Cell| {
        (0..30).for_each(|_| raw.send(&[message.repeat(100)]));
        raw.send(&[echo()]);
        raw.until(|answer| matches!(answer, Answer::Echo {}));
        let n_held = cell.n_held();
        cell.complete(n_held);
        n_held
    };

    // Both are connected first: while the puts of one end, the host has no memory for another channel.
    let [small, big] = ["small", "large"].map(|name| Raw::with_channel(server.tcp_port(), name));
    for (name, mut raw, message, expected) in [("small", small, raw::put(7), 500..2000), ("large", big, large, 10..50)]
    {
        for _ in 0..3 {
            let n = n_accepted(&mut raw, &message, &table.0[name]);
            assert!(expected.contains(&n), "{n} puts of {name}");
        }
    }
}

// Row 80 of docs/reference/faults.md.
#[test]
fn a_put_without_write_access_is_rejected_before_its_value_arrives() {
    let table = Table::of([("a", Cell::new(vec![0.0; 10]))]);
    table.0["a"].allow(|_| Rights { read: true, write: false });
    let (server, _lines) = serve_within(Quotas::default(), table.clone());
    let mut raw = Raw::with_channel(server.tcp_port(), "a");

    raw.send(&[put_header(100_000), vec![0; 700_000]]);

    assert_eq!(put_status(&mut raw), Eca::NOWTACCESS);
    raw.send(&[vec![0; 100_000], echo()]);
    raw.until(|answer| matches!(answer, Answer::Echo {}));
}

// Row 81 of docs/reference/faults.md.
#[test]
fn silent_clients_are_evicted_for_new_ones_and_the_status_names_their_host() {
    let quotas = Quotas { host_circuits: 10, ..Quotas::default() };
    let (server, lines) = serve_within(quotas, x());
    let mut good = Raw::with_channel(server.tcp_port(), "x");
    let mut silent: Vec<Raw> = (0..30).map(|_| Raw::connected(server.tcp_port())).collect();

    let mut late = Raw::with_channel(server.tcp_port(), "x");

    assert!(is_served(&mut good) && is_served(&mut late), "of the same host");
    let line = lines.recv_timeout(PATIENCE).unwrap();
    assert!(line.what.contains("without a channel"), "{line:?}");
    // One more client reads the status.
    eventually_status(&server, "s:EVICTED", |n| n >= 22.0);
    silent.drain(..20).for_each(|mut evicted| assert!(evicted.ended_after() < PATIENCE));
    let status = client(&server).channel("s:UNUSED_HOST").unwrap();
    let start = Instant::now();
    while !format!("{:?}", status.get_timeout(PATIENCE).unwrap().value).contains("127.0.0.1 (") {
        assert!(start.elapsed() < PATIENCE);
    }
}

/// A circuit with a channel; another one if the server closes it before its first request arrives.
fn opened_in_time(port: u16) -> Raw {
    let is_created = |raw: &mut Raw| {
        std::iter::from_fn(|| raw.hear()).any(|(answer, _)| matches!(answer, Answer::CreateChan { .. }))
    };
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let mut raw = Raw::connected(port);
        raw.send(&[bare(Request::Version { priority: 0, minor: 13, sequence: 0 }), create(0, "x")]);
        if is_created(&mut raw) {
            return raw;
        }
    }
    unreachable!("no request arrives in time");
}

// Row 81 of docs/reference/faults.md.
#[test]
fn a_client_without_requests_is_closed_sooner_than_one_with_requests() {
    let quotas = Quotas {
        silent_client: Duration::from_millis(300),
        unused_client: Duration::from_millis(1200),
        ..Quotas::default()
    };
    let (server, lines) = serve_within(quotas, x());
    let start = Instant::now();
    let mut used = opened_in_time(server.tcp_port());
    let mut silent = Raw::connected(server.tcp_port());
    silent.send(&[bare(Request::Version { priority: 0, minor: 13, sequence: 0 }), echo()]);
    let mut searching = Raw::connected(server.tcp_port());
    let search = Request::Search { reply: 5, minor: 13, cid: Cid(1), again: 1 };
    searching.send(&[bare(Request::Version { priority: 0, minor: 13, sequence: 0 }), with(search, b"absent\0\0")]);
    let mut cleared = opened_in_time(server.tcp_port());
    cleared.send(&[bare(Request::ClearChannel { sid: Sid(0), cid: Cid(0) })]);

    silent.ended_after();
    let silent_after = start.elapsed();
    searching.ended_after();
    cleared.ended_after();
    let others_after = start.elapsed();

    assert!(silent_after >= Duration::from_millis(300) && others_after >= Duration::from_millis(1200));
    assert!(is_served(&mut used));
    let line = lines.recv_timeout(PATIENCE).unwrap();
    assert!(line.what.contains("no request") && line.peer.is_some(), "{line:?}");
    // More if a channel was requested too late on a busy machine.
    eventually_status(&server, "s:EVICTED", |n| n >= 3.0);
}

// Row 77 of docs/reference/faults.md.
#[test]
fn a_peer_with_another_protocol_is_logged_once_with_its_address() {
    let (server, lines) = serve_within(Quotas::default(), x());

    for word in ["G", "GET / HTTP/1.1\r\n\r\n", "SSH-2.0-x\r\n"] {
        let mut stranger = Raw::connected(server.tcp_port());
        let address = stranger.stream.local_addr().unwrap();
        stranger.send(&[word.as_bytes().to_vec()]);
        let after = stranger.ended_after();

        assert!(after < PATIENCE / 2, "{word:?} after {after:?}");
        if word == "G" {
            let line = lines.recv_timeout(PATIENCE).unwrap();
            assert_eq!((line.level, line.peer), (Level::Warning, Some(address)));
        }
    }

    let later: Vec<LogLine> = lines.try_iter().collect();
    assert!(later.len() <= 1, "one per cause, not one per client: {later:?}");
}

// Rows 1 and 4 of docs/reference/faults.md.
#[test]
fn flawed_datagrams_are_counted_and_logged_with_their_sender() {
    let (server, lines) = serve_within(Quotas::default(), x());
    let stranger = UdpSocket::bind("127.0.0.2:0").unwrap();
    let whole = searches();

    stranger.send_to(&whole[..7], local(server.udp_port())).unwrap();
    let cut = lines.recv_timeout(PATIENCE).unwrap();
    let mut nameless = whole[..40].to_vec();
    nameless[32..].copy_from_slice(b"a\x1b[2J\xff\xfe\xfd");
    stranger.send_to(&nameless, local(server.udp_port())).unwrap();
    let no_name = lines.recv_timeout(PATIENCE).unwrap();

    let sender = Some(stranger.local_addr().unwrap());
    assert_eq!((cut.peer, no_name.peer), (sender, sender));
    assert!(cut.what.contains("ends within") && no_name.what.contains("invalid name"), "{cut:?} {no_name:?}");
    assert_eq!(no_name.pv.as_deref(), Some("a\u{1b}[2J\u{fffd}\u{fffd}\u{fffd}"));
    eventually_status(&server, "s:FLAWED", |n| n == 2.0);
}

// Row 49 of docs/reference/faults.md.
#[test]
fn the_status_lists_the_slowest_subscriber_first() {
    let table = Table::of([("image", Cell::new(vec![0.0; 20_000]))]);
    let (server, _lines) = serve_within(Quotas::default(), table.clone());
    let image = client(&server).channel("image").unwrap();
    let good: Vec<_> = (0..20).map(|_| image.monitor(MonitorOptions::default())).collect();
    let mut slow = Raw::with_channel(server.tcp_port(), "image");
    slow.send(&[subscribe(1)]);
    let its_address = slow.stream.local_addr().unwrap().to_string();
    let status = client(&server).channel("s:STATUS").unwrap();
    let start = Instant::now();

    let first = loop {
        for _ in 0..20 {
            let present = start.elapsed().as_secs_f64();
            table.0["image"].set(vec![present; 20_000]);
            let is_newest = |event| matches!(event, Some(MonitorEvent::Update(reading)) if number(&reading) == present);
            good.iter().for_each(|monitor| while !is_newest(monitor.next_timeout(PATIENCE)) {});
        }
        let text = status.get_timeout(PATIENCE).unwrap().value.long_text().unwrap_or_default().to_str().into_owned();
        let list = text.split_once("\"list\":[").map(|(_, list)| list.to_owned()).unwrap_or_default();
        let first = list.split('}').next().unwrap_or_default().to_owned();
        if first.contains(&its_address) && !first.contains("\"waiting_s\":null") {
            break first;
        }
        assert!(start.elapsed() < PATIENCE, "{text}");
    };

    assert!(!first.contains("\"queued_bytes\":0,"), "{first}");
}
