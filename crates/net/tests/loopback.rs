//! Client and server connected by the loopback network, with a source of values made for the test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fodo_engine::limit::SEARCH_GRID;
use fodo_net::{
    ChannelState, ClientConfig, Context, DeferredPut, Error, ErrorKind, Kind, MonitorEvent, MonitorOptions, PutRefusal,
    Reading, Refusal, Scalar, SharedPv, Value,
};

#[allow(dead_code, reason = "each test program uses a part of it")]
mod served;

use fodo_testing::free_port;
use served::{cell, context, serve, slow_cell, start, start_at};

const PATIENCE: Duration = Duration::from_secs(30);

/// VERSION, then SEARCH: this host, a port, the client's number of the name.
fn claim(port: u16, cid: &[u8]) -> Vec<u8> {
    let mut answer = vec![0, 0, 0, 0, 0, 1, 0, 13, 0, 0, 0, 1, 0, 0, 0, 0, 0, 6, 0, 8];
    answer.extend_from_slice(&port.to_be_bytes());
    answer.extend_from_slice(&[0, 0, 255, 255, 255, 255]);
    answer.extend_from_slice(cid);
    answer.extend_from_slice(&[0, 13, 0, 0, 0, 0, 0, 0]);
    answer
}

/// Waits until so many puts have reached the source.
fn until_started(puts: &Mutex<Vec<DeferredPut>>, n_puts: usize) {
    let start = Instant::now();
    while puts.lock().unwrap().len() < n_puts {
        assert!(start.elapsed() < PATIENCE, "a put does not reach the source");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn number(reading: &Reading) -> f64 {
    reading.value.first().unwrap().to_f64().unwrap()
}

#[test]
fn a_get_returns_the_value_and_array_length_last_put() {
    let (_server, context) = serve([("x", cell(1.5)), ("a", cell(vec![1i32, 2, 3]))]);
    let x = context.channel("x").unwrap();
    let a = context.channel("a").unwrap();

    assert_eq!(x.get().unwrap().value, Value::from(1.5));
    x.put("2.25").unwrap();
    assert_eq!(x.get().unwrap().value, Value::from(2.25));

    assert_eq!(a.get().unwrap().value, Value::from(vec![1, 2, 3]));
    a.put(vec![7]).unwrap();
    assert_eq!(a.get().unwrap().value, Value::from(vec![7]));
}

#[test]
fn an_array_of_40_megabytes_arrives_unchanged() {
    let (_server, context) = serve([("a", cell(vec![0i32]))]);
    let a = context.channel("a").unwrap();
    let elements: Vec<i32> = (0..10_000_000).map(|n: i32| n.wrapping_mul(2_654_435)).collect();

    a.put_timeout(elements.clone(), PATIENCE).unwrap();
    let reading = a.get().unwrap();

    assert!(reading.value == Value::from(elements));
}

#[test]
fn a_monitor_delivers_the_current_value_and_then_every_change_in_order() {
    let served = cell(0i32);
    let (_server, context) = serve([("n", served.clone())]);
    let n = context.channel("n").unwrap();
    let monitor = n.monitor(MonitorOptions::default());
    assert!(matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Connected(_))));
    let Some(MonitorEvent::Update(first)) = monitor.next_timeout(PATIENCE) else { panic!("no first update") };

    let mut seen = vec![number(&first)];
    for value in 1..=100 {
        served.post(value);
        let Some(MonitorEvent::Update(update)) = monitor.next_timeout(PATIENCE) else { panic!("no update {value}") };
        seen.push(number(&update));
    }

    assert_eq!(seen, (0..=100).map(f64::from).collect::<Vec<_>>());
    assert_eq!(monitor.counts().delivered, 101);
}

#[test]
fn many_threads_share_one_circuit_and_each_receives_its_own_reply() {
    let (_server, context) = serve([("a", cell(1.0)), ("b", cell(2.0)), ("c", cell(3.0))]);
    let n_done = AtomicUsize::new(0);

    std::thread::scope(|scope| {
        for (name, value) in [("a", 1.0), ("b", 2.0), ("c", 3.0), ("a", 1.0), ("b", 2.0), ("c", 3.0)] {
            let (context, n_done) = (context.clone(), &n_done);
            scope.spawn(move || {
                let channel = context.channel(name).unwrap();
                for _ in 0..500 {
                    assert_eq!(number(&channel.get().unwrap()), value);
                    n_done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });

    assert_eq!(n_done.load(Ordering::Relaxed), 3000);
}

#[test]
fn a_callback_receives_updates_while_another_thread_blocks_in_a_call() {
    let served = cell(0i32);
    let (_server, context) = serve([("n", served.clone()), ("x", cell(1.0))]);
    let (n, x) = (context.channel("n").unwrap(), context.channel("x").unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (sender, first) = std::sync::mpsc::channel();
    let kept = seen.clone();
    let monitor = n
        .monitor_with(MonitorOptions::default(), move |event| {
            if let MonitorEvent::Update(reading) = event {
                kept.lock().unwrap().push(number(&reading));
                let _ = sender.send(number(&reading));
            }
        })
        .unwrap();
    first.recv_timeout(PATIENCE).unwrap();

    for value in 1..=50 {
        served.post(value);
        x.get().unwrap();
    }
    while first.recv_timeout(PATIENCE).unwrap() < 50.0 {}

    let seen = seen.lock().unwrap();
    assert!(seen.is_sorted(), "out of order: {seen:?}");
    assert_eq!(seen.last(), Some(&50.0));
    assert_eq!(monitor.counts().merged, 0);
}

#[test]
fn an_operation_is_a_future_for_any_executor() {
    let (_server, context) = serve([("x", cell(4.0))]);
    let x = context.channel("x").unwrap();

    let readings = pollster::block_on(async {
        let mut readings = Vec::new();
        let started: Vec<_> = (0..100).map(|_| x.start_get(Default::default())).collect();
        for operation in started {
            readings.push(number(&operation.await.unwrap()));
        }
        readings
    });

    assert_eq!(readings, vec![4.0; 100]);
}

#[test]
fn errors_distinguish_name_not_found_from_request_rejected() {
    let fixed = SharedPv::builder(1.0).on_put(|_, _| Err(PutRefusal::Rejected("it is fixed".into()))).build();
    let (_server, context) = serve([("fixed", fixed)]);
    let absent = context.channel("absent").unwrap();
    let fixed = context.channel("fixed").unwrap();

    let not_found = absent.get_timeout(Duration::from_millis(200)).unwrap_err();
    let refused = fixed.put(2.0).unwrap_err();

    assert!(matches!(not_found.kind(), ErrorKind::NotFound { .. }), "{not_found:?}");
    assert!(matches!(refused.kind(), ErrorKind::Refused { refusal: Refusal::Status { .. }, .. }), "{refused:?}");
    assert!(not_found.to_string().contains("absent"));
}

#[test]
fn a_put_completes_only_when_the_source_completes_it() {
    let (slow, puts) = slow_cell(1.0);
    let (_server, context) = serve([("slow", slow)]);
    let slow = context.channel("slow").unwrap();
    slow.connect().unwrap();

    let put = slow.start_put(5.0);
    let early = slow.start_put(6.0).wait_timeout(Duration::from_millis(100));
    until_started(&puts, 2);
    puts.lock().unwrap().drain(..).for_each(DeferredPut::complete);
    let in_time = put.wait_timeout(PATIENCE);

    assert!(matches!(early.unwrap_err().kind(), ErrorKind::NoReply { .. }));
    assert_eq!(in_time, Ok(()));
}

#[test]
fn a_put_whose_completion_is_dropped_is_rejected() {
    let (slow, puts) = slow_cell(1.0);
    let (_server, context) = serve([("slow", slow)]);
    let slow = context.channel("slow").unwrap();
    slow.connect().unwrap();

    let put = slow.start_put(5.0);
    until_started(&puts, 1);
    let held = std::mem::take(&mut *puts.lock().unwrap());
    let panicked = std::thread::spawn(move || -> () { panic!("a source fails with {} puts", held.len()) }).join();

    assert!(panicked.is_err());
    let refused = put.wait_timeout(PATIENCE).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Refused { refusal: Refusal::Status { .. }, .. }), "{refused:?}");
}

#[test]
fn a_monitor_and_a_get_reconnect_to_a_restarted_server() {
    let (served, port) = (cell(1.0), free_port());
    let server = start_at(port, [("x", served.clone())]);
    let context = context(port);
    let x = context.channel("x").unwrap();
    let monitor = x.monitor(MonitorOptions::default());
    assert!(matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Connected(_))));
    assert!(matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Update(_))));

    drop(server);
    assert_eq!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Disconnected));
    let _server = start_at(port, [("x", served)]);

    assert!(matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Connected(_))));
    assert!(matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Update(_))));
    assert_eq!(x.get().unwrap().value, Value::Scalar(Scalar::F64(1.0)));
    assert_eq!(x.facts().unwrap().kind, Kind::F64);
}

#[test]
fn searches_pause_for_a_server_that_claims_names_but_refuses_connections() {
    let closed_port = free_port();
    let liar = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    liar.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let x = context(liar.local_addr().unwrap().port()).channel("x").unwrap();
    let start = Instant::now();
    let refused = std::thread::spawn(move || {
        loop {
            let error = x.get_timeout(Duration::from_millis(500)).unwrap_err();
            let is_refused = matches!(error.kind(), ErrorKind::Refused { refusal: Refusal::Connection, .. });
            if is_refused || start.elapsed() > PATIENCE {
                return (is_refused, error);
            }
        }
    });
    let (mut n_searches, mut buffer) = (0, [0; 2048]);

    while !refused.is_finished() {
        let Ok((_, from)) = liar.recv_from(&mut buffer) else { continue };
        n_searches += 1;
        liar.send_to(&claim(closed_port, &buffer[24..28]), from).unwrap();
    }

    let (is_refused, error) = refused.join().unwrap();
    assert!(is_refused, "{error:?}");
    // Without pauses, each reply would cause a search at once.
    let n_max = 2 + start.elapsed().as_millis() / SEARCH_GRID.as_millis();
    assert!(n_searches <= n_max, "{n_searches} searches, more than {n_max}");
}

#[test]
fn a_server_resumes_reading_when_its_queued_replies_are_sent() {
    let (server, context) = serve([("a", cell(vec![7i32; 1_000_000])), ("x", cell(1.5))]);
    let observer = server.observer();
    let (a, x) = (context.channel("a").unwrap(), context.channel("x").unwrap());
    a.connect().unwrap();
    x.connect().unwrap();

    let large: Vec<_> = (0..20).map(|_| a.start_get(Default::default())).collect();
    // If the client has read all replies before this thread runs again, none is queued any more.
    let deadline = Instant::now() + Duration::from_secs(1);
    while observer.clients().iter().all(|client| client.queued_bytes == 0) && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let small: Vec<_> = (0..5000).map(|_| x.start_get(Default::default())).collect();

    for operation in large {
        assert_eq!(operation.wait_timeout(PATIENCE).unwrap().value.len(), 1_000_000);
    }
    for operation in small {
        assert_eq!(number(&operation.wait_timeout(PATIENCE).unwrap()), 1.5);
    }
}

#[test]
fn an_unconfirmed_put_arrives_even_if_its_channel_is_dropped() {
    let (x, a) = (cell(0.0), cell(vec![0.0]));
    let (_server, context) = serve([("x", x.clone()), ("a", a.clone())]);

    context.channel("a").unwrap().put_unconfirmed(vec![8.0; 500_000]).unwrap();
    context.channel("x").unwrap().put_unconfirmed(3.5).unwrap();

    let deadline = Instant::now() + PATIENCE;
    while x.value() != Value::from(3.5) || a.value().len() != 500_000 {
        assert!(Instant::now() < deadline, "a put was lost");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_burst_of_unconfirmed_puts_arrives_without_a_later_request() {
    let x = cell(-1);
    let (_server, context) = serve([("x", x.clone())]);
    let channel = context.channel("x").unwrap();
    channel.connect().unwrap();

    for number in 0..3000 {
        channel.put_unconfirmed(number).unwrap();
    }

    let deadline = Instant::now() + PATIENCE;
    while x.value() != Value::from(2999) {
        assert!(Instant::now() < deadline, "the last put was lost");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_operation_keeps_its_channel_alive() {
    let (_server, context) = serve([("x", cell(4.0))]);

    let operation = context.channel("x").unwrap().start_get(Default::default());

    assert_eq!(number(&operation.wait_timeout(PATIENCE).unwrap()), 4.0);
}

#[test]
fn an_unresponsive_server_and_its_recovery_are_reported() {
    use std::io::{Read, Write};
    let server = start([("x", cell(1.0))]);
    // A proxy between client and server that can be stopped: the client searches on a port of its own.
    let wire = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let wire_port = wire.local_addr().unwrap().port();
    let (is_held, server_port) = (Arc::new(AtomicUsize::new(0)), server.tcp_port());
    let held = is_held.clone();
    std::thread::spawn(move || {
        let (client, _) = wire.accept().unwrap();
        let upstream = std::net::TcpStream::connect(("127.0.0.1", server_port)).unwrap();
        for (mut from, mut to) in [
            (client.try_clone().unwrap(), upstream.try_clone().unwrap()),
            (upstream.try_clone().unwrap(), client.try_clone().unwrap()),
        ] {
            let held = held.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = from.read(&mut buffer) {
                    while held.load(Ordering::Relaxed) != 0 {
                        std::thread::yield_now();
                    }
                    to.write_all(&buffer[..n]).unwrap();
                }
            });
        }
    });
    let answering = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let config = ClientConfig {
        echo_after: Duration::from_millis(200),
        ..ClientConfig::with_addresses(vec![answering.local_addr().unwrap()])
    };
    let x = Context::new(config).channel("x").unwrap();
    let mut buffer = [0; 2048];
    let (_, from) = answering.recv_from(&mut buffer).unwrap();
    answering.send_to(&claim(wire_port, &buffer[24..28]), from).unwrap();
    let monitor = x.monitor(MonitorOptions::default());
    while !matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Update(_))) {}

    is_held.store(1, Ordering::Relaxed);
    assert_eq!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Unresponsive));
    is_held.store(0, Ordering::Relaxed);

    assert_eq!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Responsive));
    assert_eq!(number(&x.get().unwrap()), 1.0);
}

#[test]
fn a_panic_in_a_callback_does_not_stop_later_updates() {
    let served = cell(0i32);
    let (_server, context) = serve([("n", served.clone())]);
    let n = context.channel("n").unwrap();
    let (sender, updates) = std::sync::mpsc::channel();
    let monitor = n.monitor_with(MonitorOptions::default(), move |event| {
        if let MonitorEvent::Update(reading) = event {
            sender.send(number(&reading)).unwrap();
            assert_ne!(number(&reading), 1.0, "this panic is part of the test");
        }
    });
    let _monitor = monitor.unwrap();
    assert_eq!(updates.recv_timeout(PATIENCE), Ok(0.0));

    served.post(1);
    assert_eq!(updates.recv_timeout(PATIENCE), Ok(1.0));
    served.post(2);

    assert_eq!(updates.recv_timeout(PATIENCE), Ok(2.0));
}

#[test]
fn a_circuit_closes_at_once_when_its_client_sends_and_disconnects() {
    use std::io::{Read, Write};
    let server = start([("x", cell(1.0))]);
    // VERSION, then ECHO: sent together with the end of the stream.
    let last_words = [[0, 0, 0, 0, 0, 0, 0, 13], [0; 8], [0, 23, 0, 0, 0, 0, 0, 0], [0; 8]].concat();

    for _ in 0..300 {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.tcp_port())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&last_words).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut heard = Vec::new();

        // Ends with the server's own end of the stream; a circuit that is not closed makes it time out.
        if let Err(error) = stream.read_to_end(&mut heard) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        }
    }
}

#[test]
fn every_posted_update_is_sent_or_merged_and_counted() {
    let served = cell(0i32);
    let (server, context) = serve([("n", served.clone())]);
    let n = context.channel("n").unwrap();
    let monitor = n.monitor(MonitorOptions { queue_max: 100_000, ..MonitorOptions::default() });
    while !matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Update(_))) {}

    for value in 1..=50_000 {
        served.post(value);
    }
    let mut last = 0.0;
    while last < 50_000.0 {
        let Some(MonitorEvent::Update(update)) = monitor.next_timeout(PATIENCE) else { panic!("nothing after {last}") };
        assert!(number(&update) > last);
        last = number(&update);
    }

    let (server, client) = (server.update_counts(), monitor.counts());
    assert_eq!(server.sent + server.merged, 50_000);
    // The first update is not a post.
    assert_eq!(client.received, server.sent + 1);
    assert_eq!(client.delivered + client.merged, client.received);
}

#[test]
fn closing_a_context_ends_its_pending_operations_with_an_error() {
    let (slow, _puts) = slow_cell(1.0);
    let (server, context) = serve([("slow", slow), ("x", cell(1.0))]);
    let (slow, absent) = (context.channel("slow").unwrap(), context.channel("absent").unwrap());
    slow.connect().unwrap();
    let (issued, waiting) = (slow.start_put(5.0), absent.start_get(Default::default()));
    let blocked = {
        let slow = slow.clone();
        std::thread::spawn(move || slow.put(6.0))
    };

    while slow.get().unwrap().value != Value::from(6.0) {}
    context.close();
    context.close();

    let closed = |pv: &str| Err(Error::new(pv, ErrorKind::ContextClosed));
    assert_eq!(issued.wait_timeout(PATIENCE), closed("slow"));
    assert_eq!(blocked.join().unwrap(), closed("slow"));
    assert!(matches!(waiting.wait_timeout(PATIENCE).unwrap_err().kind(), ErrorKind::ContextClosed));
    assert_eq!(slow.put_unconfirmed(1.0), closed("slow"));
    assert!(matches!(slow.get().unwrap_err().kind(), ErrorKind::ContextClosed));
    assert_eq!((slow.state(), absent.state()), (ChannelState::Closed, ChannelState::Closed));
    assert!(matches!(context.channel("x").unwrap_err().kind(), ErrorKind::ContextClosed));
    drop(server);
}

#[test]
fn closing_a_context_ends_its_monitors_and_no_others() {
    let served = cell(0i32);
    let (server, context) = serve([("n", served.clone())]);
    let other = Context::new(server.client_config());
    let (n, same) = (context.channel("n").unwrap(), other.channel("n").unwrap());
    let (sender, events) = std::sync::mpsc::channel();
    let called = n.monitor_with(MonitorOptions::default(), move |event| sender.send(event).unwrap()).unwrap();
    let (monitor, living) = (n.monitor(MonitorOptions::default()), same.monitor(MonitorOptions::default()));
    for monitor in [&monitor, &living] {
        while !matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Update(_))) {}
    }
    while !matches!(events.recv_timeout(PATIENCE).unwrap(), MonitorEvent::Update(_)) {}

    context.close();
    served.post(1);

    assert!(matches!(living.next_timeout(PATIENCE), Some(MonitorEvent::Update(reading)) if number(&reading) == 1.0));
    assert_eq!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Closed));
    assert_eq!(monitor.next_timeout(Duration::ZERO), None);
    assert_eq!(events.recv_timeout(PATIENCE), Ok(MonitorEvent::Closed));
    assert_eq!(n.monitor(MonitorOptions::default()).next_timeout(PATIENCE), Some(MonitorEvent::Closed));
    drop((called, n, monitor, context));
    assert!(events.recv_timeout(PATIENCE).is_err(), "the callback outlives its monitor");
}

#[test]
fn ending_100000_subscriptions_of_one_pv_takes_no_quadratic_time() {
    const N: usize = 100_000;
    let (_server, context) = serve([("x", cell(1.5))]);
    let x = context.channel("x").unwrap();
    let channels: Vec<_> = (0..N).map(|_| context.channel("x").unwrap()).collect();
    let monitors: Vec<_> = channels.iter().map(|channel| channel.monitor(MonitorOptions::default())).collect();
    for monitor in &monitors {
        assert!(matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Connected(_))));
        assert!(matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Update(_))));
    }

    drop(monitors);
    let reading = x.get();

    assert_eq!(number(&reading.unwrap()), 1.5);
}
