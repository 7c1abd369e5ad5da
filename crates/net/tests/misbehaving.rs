//! Servers that reply wrongly, late or not at all, and how the client handles them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers as well")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod scripted;
#[allow(dead_code, reason = "each test program uses a part of it")]
mod served;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_ca::message::{Answer, Request};
use fodo_engine::{Cid, Sid};
use fodo_net::{
    Channel, ChannelState, ClientConfig, Context, Detail, Error, ErrorKind, Monitor, MonitorEvent, MonitorOptions,
    Notice, Protocol, PvTable, Reading, Refusal, Server, ServerConfig, Value, WrongReply, many,
};
use futures_util::StreamExt;

use fodo_testing::free_port;
use scripted::{Scripted, created, error, message, update, value};
use served::cell;

const PATIENCE: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_secs(2);
const STRING: DbrType = DbrType(0);
const TIME_STRING: DbrType = DbrType(14);
const TIME_DOUBLE: DbrType = DbrType(20);

fn channel_at(servers: &[SocketAddr]) -> (Context, Channel) {
    let context = Context::new(ClientConfig::with_addresses(servers.to_vec()));
    let x = context.channel("x").unwrap();
    (context, x)
}

fn next(monitor: &Monitor) -> MonitorEvent {
    monitor.next_timeout(PATIENCE).expect("an event comes in time")
}

/// Confirms every channel as a scalar double.
fn scalar(request: &Request) -> Option<Vec<u8>> {
    match *request {
        Request::CreateChan { cid, .. } => Some(created(cid, 1)),
        _ => None,
    }
}

/// A server of "x" at a loopback address.
fn serve_at(ip: Ipv4Addr, port: u16) -> Server {
    let config = ServerConfig { interfaces: vec![ip], port, ..ServerConfig::isolated() };
    Server::start(config, Arc::new(PvTable::from([("x", cell(2.5))]))).unwrap()
}

#[test]
fn a_rejected_unconfirmed_put_is_reported_as_a_notice_only() {
    let server = Scripted::start(|request| match request {
        Request::Write { .. } => Some(error(request, Eca::PUTFAIL, "the valve is locked")),
        request => scalar(request),
    });
    let (context, x) = channel_at(&[server.address()]);
    x.connect_timeout(PATIENCE).unwrap();

    x.put_unconfirmed_timeout(1.0, PATIENCE).unwrap();
    let notice = context.next_notice(PATIENCE).unwrap();
    let later = x.get_timeout(SHORT).unwrap_err();

    let refusal = Refusal::Status { status: Eca::PUTFAIL, text: "the valve is locked".into() };
    assert_eq!(notice, Notice::PutRefused { pv: "x".into(), server: server.tcp(), refusal });
    assert!(notice.to_string().contains("the valve is locked"), "{notice}");
    assert_eq!(later, Error::new("x", ErrorKind::NoReply { server: server.tcp(), after: SHORT }));
}

#[test]
fn the_error_text_of_a_server_is_reported_to_the_caller() {
    let server = Scripted::start(|request| match request {
        Request::ReadNotify { .. } | Request::EventAdd { .. } => Some(error(request, Eca::GETFAIL, "no\x1b[2J beam")),
        request => scalar(request),
    });
    let (_context, x) = channel_at(&[server.address()]);

    let refused = x.get_timeout(PATIENCE).unwrap_err();
    let monitor = x.monitor(MonitorOptions::default());
    while !matches!(next(&monitor), MonitorEvent::Connected(_)) {}
    let event = next(&monitor);

    let refusal = Refusal::Status { status: Eca::GETFAIL, text: "no\x1b[2J beam".into() };
    assert_eq!(event, MonitorEvent::Refused(refusal.clone()));
    assert!(refused.to_string().contains("no\\u{1b}[2J beam"), "it cannot command a terminal: {refused}");
    assert_eq!(refused, Error::new("x", ErrorKind::Refused { server: server.tcp(), refusal }));
}

#[test]
fn a_get_reply_with_a_wrong_type_or_count_fails_the_get() {
    let type_of = |dbr| WrongReply::Type { requested: TIME_DOUBLE, received: dbr };
    let count_of = |received| WrongReply::Count { requested: 1, received };
    let cases = [(TIME_STRING, 1, type_of(TIME_STRING)), (TIME_DOUBLE, 0, count_of(0)), (TIME_DOUBLE, 3, count_of(3))];

    for (dbr, count, reply) in cases {
        let server = Scripted::start(move |request| match *request {
            Request::ReadNotify { ioid, .. } => Some(value(dbr, count, ioid)),
            _ => scalar(request),
        });
        let (_context, x) = channel_at(&[server.address()]);
        x.connect_timeout(PATIENCE).unwrap();
        let wrong = Error::new("x", ErrorKind::WrongReply { server: server.tcp(), reply });

        assert_eq!(x.get_timeout(PATIENCE), Err(wrong.clone()));
        let mut reading = Reading::bare(Value::from(0.0));
        assert_eq!(x.get_into_timeout(&mut reading, Default::default(), PATIENCE), Err(wrong.clone()));
        assert_eq!(
            many::get_timeout(&[x.clone(), x.clone()], Default::default(), PATIENCE),
            [(); 2].map(|()| Err(wrong.clone()))
        );
        assert_eq!(pollster::block_on(x.start_get(Default::default())), Err(wrong.clone()));
        let text = wrong.to_string();
        assert!(text.contains("\"x\"") && text.contains(&server.tcp().to_string()), "{text}");
    }
}

#[test]
fn a_get_is_refused_if_the_server_rejects_its_request_for_units() {
    let server = Scripted::start(|request| match *request {
        Request::ReadNotify { dbr: TIME_DOUBLE, ioid, .. } => Some(value(TIME_DOUBLE, 1, ioid)),
        Request::ReadNotify { .. } => Some(error(request, Eca::GETFAIL, "no units")),
        _ => scalar(request),
    });
    let (_context, x) = channel_at(&[server.address()]);
    x.connect_timeout(PATIENCE).unwrap();
    let request = fodo_net::Request { detail: Detail::Full, ..Default::default() };

    let refusal = Refusal::Status { status: Eca::GETFAIL, text: "no units".into() };
    let refused = Error::new("x", ErrorKind::Refused { server: server.tcp(), refusal });
    assert_eq!(x.get_with_timeout(request, PATIENCE), Err(refused.clone()));
    assert_eq!(many::get_timeout(&[x.clone(), x], request, PATIENCE), [Err(refused.clone()), Err(refused)]);
}

#[test]
fn memory_for_a_reply_is_freed_when_the_get_is_refused_or_its_channel_is_lost() {
    let server = Scripted::start(|request| match *request {
        Request::ReadNotify { count: 1, .. } => Some(error(request, Eca::GETFAIL, "no beam")),
        Request::ReadNotify { .. } => Some(message(Answer::ServerDisconn { cid: Cid(0) }, &[])),
        Request::CreateChan { cid, .. } => Some(created(cid, 5)),
        _ => None,
    });
    let (context, x) = channel_at(&[server.address()]);
    x.connect_timeout(PATIENCE).unwrap();
    // Keeps the circuit open.
    let y = context.channel("y").unwrap();
    y.connect_timeout(PATIENCE).unwrap();

    for count in [1, 0] {
        let array = Arc::new(vec![0.5; 5]);
        let memory = Arc::downgrade(&array);
        let mut reading = Reading::bare(Value::Array(fodo_net::Array::F64(array)));
        let request = fodo_net::Request { count, ..Default::default() };
        let error = x.get_into_timeout(&mut reading, request, PATIENCE).unwrap_err();

        assert!(matches!(error.kind(), ErrorKind::Refused { .. } | ErrorKind::Disconnected { .. }), "{error:?}");
        assert_eq!(memory.strong_count(), 0, "{error:?}");
    }
    assert_eq!(server.n_connections(), 1);
}

#[test]
fn a_channel_that_is_confirmed_twice_has_one_subscription_and_clears_the_second_number() {
    let (sender, requests) = std::sync::mpsc::channel();
    let server = Scripted::start(move |request| match *request {
        Request::CreateChan { cid, .. } => {
            let second = Answer::CreateChan { dbr: DbrType(6), count: 1, cid, sid: Sid(2) };
            Some([created(cid, 1), message(second, &[])].concat())
        }
        Request::EventAdd { dbr, sid, subscription, .. } => {
            sender.send(format!("subscribes to {sid}")).unwrap();
            Some(update(dbr, 1, subscription))
        }
        Request::ClearChannel { sid, .. } => {
            sender.send(format!("clears {sid}")).unwrap();
            None
        }
        Request::ReadNotify { dbr, ioid, .. } => Some(value(dbr, 1, ioid)),
        _ => None,
    });
    let (_context, x) = channel_at(&[server.address()]);

    let monitor = x.monitor(MonitorOptions::default());
    assert!(matches!(next(&monitor), MonitorEvent::Connected(_)));
    assert!(matches!(next(&monitor), MonitorEvent::Update(_)));
    // The replies are in the order of the requests.
    x.get_timeout(PATIENCE).unwrap();
    assert_eq!(monitor.next_timeout(Duration::ZERO), None);
    drop((monitor, x));

    let mut requests: Vec<String> = (0..3).map(|_| requests.recv_timeout(PATIENCE).unwrap()).collect();
    // The monitor may have started before or after the channel was confirmed.
    requests[..2].sort();
    assert_eq!(requests, ["clears 2", "subscribes to 1", "clears 1"]);
}

#[test]
fn a_name_is_found_elsewhere_while_a_caller_reads_the_circuit_of_its_silent_server() {
    let (sender, reads) = std::sync::mpsc::channel();
    let n_created = AtomicUsize::new(0);
    let silent = Scripted::start(move |request| match *request {
        Request::CreateChan { cid, .. } if n_created.fetch_add(1, Ordering::Relaxed) == 0 => Some(created(cid, 1)),
        Request::ReadNotify { .. } => {
            sender.send(()).unwrap();
            None
        }
        _ => None,
    });
    let port = free_port();
    let (context, x) = channel_at(&[silent.address(), SocketAddr::from((Ipv4Addr::LOCALHOST, port))]);
    x.connect_timeout(PATIENCE).unwrap();
    let reading = std::thread::spawn(move || x.get_timeout(2 * PATIENCE));
    reads.recv_timeout(PATIENCE).unwrap();
    let y = context.channel("y").unwrap();
    let start = Instant::now();
    while y.state() != ChannelState::Connecting {
        assert!(start.elapsed() < PATIENCE, "it never connects");
        std::thread::sleep(Duration::from_millis(1));
    }

    let config = ServerConfig { port, ..ServerConfig::isolated() };
    let _server = Server::start(config, Arc::new(PvTable::from([("y", cell(2.5))]))).unwrap();
    let found = y.get_timeout(PATIENCE);
    context.close();

    assert_eq!(found.unwrap().value, Value::from(2.5));
    assert!(reading.join().unwrap().is_err());
}

#[test]
fn a_units_reply_with_a_wrong_type_fails_the_get() {
    let server = Scripted::start(|request| match *request {
        Request::ReadNotify { dbr: TIME_DOUBLE, ioid, .. } => Some(value(TIME_DOUBLE, 1, ioid)),
        Request::ReadNotify { ioid, .. } => Some(value(STRING, 1, ioid)),
        _ => scalar(request),
    });
    let (_context, x) = channel_at(&[server.address()]);
    let request = fodo_net::Request { detail: Detail::Full, ..Default::default() };

    let error = x.get_with_timeout(request, PATIENCE).unwrap_err();

    assert!(
        matches!(error.kind(), ErrorKind::WrongReply { reply: WrongReply::Type { received: STRING, .. }, .. }),
        "{error:?}"
    );
}

#[test]
fn an_update_with_a_wrong_type_or_count_is_reported_and_not_delivered() {
    let server = Scripted::start(|request| match *request {
        Request::EventAdd { subscription, .. } => Some(
            [(TIME_STRING, 1), (TIME_DOUBLE, 0), (TIME_DOUBLE, 1)]
                .map(|(dbr, count)| update(dbr, count, subscription))
                .concat(),
        ),
        _ => scalar(request),
    });
    let (_context, x) = channel_at(&[server.address()]);
    let monitor = x.monitor(MonitorOptions::default());
    while !matches!(next(&monitor), MonitorEvent::Connected(_)) {}

    let events = [next(&monitor), next(&monitor), next(&monitor)];

    let of_type = WrongReply::Type { requested: TIME_DOUBLE, received: TIME_STRING };
    assert_eq!(events[0], MonitorEvent::WrongReply(of_type));
    assert_eq!(events[1], MonitorEvent::WrongReply(WrongReply::Count { requested: 1, received: 0 }));
    assert!(matches!(&events[2], MonitorEvent::Update(reading) if reading.value == Value::from(0.0)), "{events:?}");
}

#[test]
fn an_array_may_be_shorter_than_requested_or_empty_but_not_longer() {
    let server = Scripted::start(|request| match *request {
        Request::CreateChan { cid, .. } => Some(created(cid, 5)),
        // All elements: the server has none. Of four requested it sends three. Of two it sends three.
        Request::ReadNotify { dbr, count, ioid, .. } => Some(value(dbr, if count == 0 { 0 } else { 3 }, ioid)),
        _ => None,
    });
    let (_context, x) = channel_at(&[server.address()]);
    let get = |count| {
        let reading = x.get_with_timeout(fodo_net::Request { count, ..Default::default() }, PATIENCE);
        reading.map(|reading| reading.value)
    };

    assert_eq!(get(0), Ok(Value::from(Vec::<f64>::new())));
    assert_eq!(get(4), Ok(Value::from(vec![0.0; 3])));
    let reply = WrongReply::Count { requested: 2, received: 3 };
    assert_eq!(get(2), Err(Error::new("x", ErrorKind::WrongReply { server: server.tcp(), reply })));
}

#[test]
fn errors_distinguish_a_silent_a_closing_and_an_absent_server() {
    let silent = Scripted::start(|_| None);
    let closing = Scripted::closing_at_create();
    let absent = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let assert_error = |address: SocketAddr, kind: ErrorKind| {
        let (_context, x) = channel_at(&[address]);
        let (start, expected) = (Instant::now(), Error::new("x", kind));
        while x.why_inactive(SHORT).as_ref() != Some(&expected) {
            assert!(start.elapsed() < PATIENCE, "{:?} instead of {expected:?}", x.why_inactive(SHORT));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(x.get_timeout(SHORT), Err(expected));
    };

    assert_error(silent.address(), ErrorKind::NoReply { server: silent.tcp(), after: SHORT });
    assert_error(closing.address(), ErrorKind::ConnectionClosed { server: closing.tcp() });
    assert_error(absent, ErrorKind::NotFound { protocol: Protocol::Ca, after: SHORT });
}

#[test]
fn a_client_switches_from_a_silent_server_to_another_that_claims_the_name() {
    let silent = Scripted::start(|_| None);
    let port = free_port();
    let (_context, x) = channel_at(&[silent.address(), SocketAddr::from((Ipv4Addr::LOCALHOST, port))]);
    let start = Instant::now();
    while x.state() != ChannelState::Connecting {
        assert!(start.elapsed() < PATIENCE, "it never connects");
    }

    let server = serve_at(Ipv4Addr::LOCALHOST, port);
    let reading = x.get_timeout(PATIENCE).unwrap();

    assert_eq!(reading.value, Value::from(2.5));
    assert_eq!(x.facts().unwrap().server.port(), server.tcp_port());
}

#[test]
fn a_client_retries_a_silent_server_on_a_new_connection() {
    let server = Scripted::start(|_| None);
    let echo_after = Duration::from_millis(100);
    let context = Context::new(ClientConfig { echo_after, ..ClientConfig::with_addresses(vec![server.address()]) });
    let x = context.channel("x").unwrap();

    let start = Instant::now();
    // An echo may take five seconds, and the pause after it a few more.
    while server.n_connections() < 2 {
        assert!(start.elapsed() < PATIENCE, "it stays with the first connection");
        std::thread::sleep(Duration::from_millis(10));
    }
    let error = x.why_inactive(PATIENCE).unwrap();

    assert_eq!(error.kind(), &ErrorKind::NoReply { server: server.tcp(), after: PATIENCE });
}

#[test]
fn a_client_prefers_a_slow_working_server_to_a_fast_failing_one() {
    let refusing = Scripted::start(|request| match *request {
        Request::CreateChan { cid, .. } => Some(message(Answer::CreateChFail { cid }, &[])),
        _ => None,
    });
    let closing = Scripted::closing_at_create();
    for fast in [&refusing, &closing] {
        let slow = Scripted::start_with(Duration::from_millis(30), |request| match *request {
            Request::ReadNotify { dbr, ioid, .. } => Some(value(dbr, 1, ioid)),
            _ => scalar(request),
        });
        let (_context, x) = channel_at(&[fast.address(), slow.address()]);
        let start = Instant::now();

        while x.get_timeout(PATIENCE).is_err() {
            assert!(start.elapsed() < PATIENCE, "the slower one is never asked");
        }

        assert_eq!(x.facts().unwrap().server, slow.tcp());
    }
}

#[test]
fn a_monitor_follows_its_server_to_another_address_and_port() {
    let (before, after) = (Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3));
    let server = serve_at(before, 0);
    let other = free_port();
    let (_context, x) =
        channel_at(&[(before, server.udp_port()), (after, other)].map(|(ip, port)| SocketAddr::from((ip, port))));
    let monitor = x.monitor(MonitorOptions::default());
    while !matches!(next(&monitor), MonitorEvent::Update(_)) {}

    drop(server);
    assert_eq!(next(&monitor), MonitorEvent::Disconnected);
    let _server = serve_at(after, other);

    let MonitorEvent::Connected(facts) = next(&monitor) else { panic!("it is not connected") };
    assert_eq!(facts.server.ip(), after);
    assert!(matches!(next(&monitor), MonitorEvent::Update(_)));
}

#[test]
fn a_monitor_reconnects_after_its_server_vanishes_without_closing() {
    let is_gone = Arc::new(AtomicBool::new(false));
    let gone = is_gone.clone();
    let going = Scripted::start(move |request| match *request {
        _ if gone.load(Ordering::Relaxed) => None,
        Request::EventAdd { dbr, subscription, .. } => Some(update(dbr, 1, subscription)),
        Request::Echo {} => Some(message(Answer::Echo {}, &[])),
        _ => scalar(request),
    });
    let after = Ipv4Addr::new(127, 0, 0, 3);
    let port = free_port();
    let echo_after = Duration::from_millis(200);
    let config = ClientConfig {
        echo_after,
        ..ClientConfig::with_addresses(vec![going.address(), SocketAddr::from((after, port))])
    };
    let x = Context::new(config).channel("x").unwrap();
    let monitor = x.monitor(MonitorOptions::default());
    while !matches!(next(&monitor), MonitorEvent::Update(_)) {}

    is_gone.store(true, Ordering::Relaxed);
    going.claims_no_more();
    let server = serve_at(after, port);

    assert_eq!(next(&monitor), MonitorEvent::Unresponsive);
    assert_eq!(next(&monitor), MonitorEvent::Disconnected);
    let MonitorEvent::Connected(facts) = next(&monitor) else { panic!("it is not connected") };
    assert_eq!(facts.server, SocketAddr::from((after, server.tcp_port())));
    assert!(matches!(next(&monitor), MonitorEvent::Update(_)));
}

#[test]
fn an_operation_without_its_own_timeout_uses_the_context_timeout() {
    let silent = Scripted::start(scalar);
    let absent = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let result_at = |address| {
        let config = ClientConfig { operation_timeout: SHORT, ..ClientConfig::with_addresses(vec![address]) };
        let context = Context::new(config);
        let x = context.channel("x").unwrap();
        if address != absent {
            x.connect_timeout(PATIENCE).unwrap();
        }
        let awaited = pollster::block_on(x.start_get(Default::default())).unwrap_err();
        assert_eq!(x.get().unwrap_err(), awaited);
        awaited
    };

    assert_eq!(result_at(absent), Error::new("x", ErrorKind::NotFound { protocol: Protocol::Ca, after: SHORT }));
    assert_eq!(result_at(silent.address()), Error::new("x", ErrorKind::NoReply { server: silent.tcp(), after: SHORT }));
}

#[test]
fn each_of_many_awaited_operations_times_out_by_itself() {
    let n_ok_within = |operation_timeout| {
        let n_answered = AtomicUsize::new(0);
        let server = Scripted::start(move |request| match *request {
            // Every second one.
            Request::ReadNotify { dbr, ioid, .. } if n_answered.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => {
                Some(value(dbr, 1, ioid))
            }
            _ => scalar(request),
        });
        let config = ClientConfig { operation_timeout, ..ClientConfig::with_addresses(vec![server.address()]) };
        let x = Context::new(config).channel("x").unwrap();
        x.connect_timeout(PATIENCE).unwrap();

        let waiting: Vec<_> = (0..300)
            .map(|_| {
                let get = x.start_get(Default::default());
                std::thread::spawn(move || pollster::block_on(get).is_ok())
            })
            .collect();
        waiting.into_iter().map(|thread| thread.join().unwrap()).filter(|ok| *ok).count()
    };

    // Those that are answered may come too late on a busy machine, unless the others wait for longer too.
    let n_ok = match n_ok_within(SHORT) {
        n_ok @ ..150 => n_ok_within(PATIENCE).max(n_ok),
        n_ok => n_ok,
    };

    assert_eq!(n_ok, 150);
}

#[test]
fn a_finished_monitor_returns_none_without_waiting() {
    let server = serve_at(Ipv4Addr::LOCALHOST, 0);
    let (context, x) = channel_at(&[SocketAddr::from((Ipv4Addr::LOCALHOST, server.udp_port()))]);
    let (taken, called) = (x.monitor(MonitorOptions::default()), x.monitor_with(MonitorOptions::default(), |_| {}));
    while !matches!(next(&taken), MonitorEvent::Update(_)) {}

    assert_eq!(pollster::block_on(called.unwrap().next_event()), None);
    context.close();
    assert_eq!(pollster::block_on(taken.next_event()), Some(MonitorEvent::Closed));
    assert_eq!(pollster::block_on(taken.next_event()), None);
    let start = Instant::now();
    assert_eq!(taken.next_timeout(PATIENCE), None);
    assert!(start.elapsed() < PATIENCE / 2);
}

#[test]
fn the_events_of_a_monitor_end_when_its_context_is_closed() {
    let server = serve_at(Ipv4Addr::LOCALHOST, 0);
    let (context, x) = channel_at(&[SocketAddr::from((Ipv4Addr::LOCALHOST, server.udp_port()))]);
    let (mut awaited, blocking) = (x.monitor(MonitorOptions::default()), x.monitor(MonitorOptions::default()));
    assert!(blocking.iter().any(|event| matches!(event, MonitorEvent::Update(_))));
    let mut events: Vec<MonitorEvent> = pollster::block_on(awaited.by_ref().take(2).collect());

    context.close();
    events.extend(pollster::block_on(awaited.collect::<Vec<_>>()));

    assert!(matches!(events[..], [MonitorEvent::Connected(_), MonitorEvent::Update(_), MonitorEvent::Closed]));
    assert_eq!(blocking.iter().collect::<Vec<_>>(), [MonitorEvent::Closed]);
}
