//! Calls without a timeout of their own, and what else a caller of the Rust API relies on.

#[allow(dead_code, reason = "each test program uses a part of it")]
mod served;

use std::error::Error as _;
use std::future::Future as _;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Waker};
use std::time::{Duration, Instant};

use fodo_net::reactor::Reactor;
use fodo_net::traffic_monitor::{NameState, TrafficMonitor};
use fodo_net::{
    Alarm, Array, ChannelState, ClientConfig, Context, DeferredPut, Detail, Error, ErrorKind, EventMask, Host, Monitor,
    MonitorEvent, MonitorOptions, Protocol, PutRefusal, PvTable, Reading, Refusal, Repeater, Request, Rights, Server,
    ServerConfig, ServerError, Severity, SharedPv, SourceChain, Status, TimeStamp, Value, many,
};

use served::{cell, serve, slow_cell, start};

const PATIENCE: Duration = Duration::from_secs(10);

/// The value of the next update.
fn next_value(monitor: &Monitor) -> Value {
    loop {
        match monitor.next_timeout(PATIENCE) {
            Some(MonitorEvent::Update(reading)) => return reading.value,
            Some(_) => {}
            None => panic!("no update"),
        }
    }
}

#[test]
fn calls_without_a_timeout_return_their_results() {
    let (_server, context) = serve([("x", cell(1.5)), ("a", cell(vec![1, 2, 3]))]);
    let (x, a) = (context.channel("x").unwrap(), context.channel("a").unwrap());

    let facts = x.connect().unwrap();
    assert_eq!((x.name(), Some(facts)), ("x", x.facts()));
    assert_eq!(a.start_connect().wait().unwrap().count_max, 20_000_000);

    x.put(2.5).unwrap();
    assert_eq!(x.get().unwrap().value, Value::from(2.5));
    x.put_unconfirmed(3.5).unwrap();
    let mut reading = x.get_with(Request { detail: Detail::Control, ..Request::default() }).unwrap();
    assert_eq!((&reading.value, reading.meta.as_ref().unwrap().precision), (&Value::from(3.5), 2));
    x.put(4.5).unwrap();
    x.get_into(&mut reading, Request::default()).unwrap();
    assert_eq!(reading.value, Value::from(4.5));
    assert_eq!(a.get_with(Request { count: 2, ..Request::default() }).unwrap().value, Value::from(vec![1, 2]));
}

#[test]
fn many_calls_without_a_timeout_return_their_results_in_order() {
    let (_server, context) = serve([("x", cell(1.5)), ("y", cell(2.5))]);

    let channels: Vec<_> = many::connect(&context, &["x", "y"]).into_iter().map(Result::unwrap).collect();
    assert_eq!(channels.iter().map(|channel| channel.name()).collect::<Vec<_>>(), ["x", "y"]);
    let facts = many::wait(channels.iter().map(|channel| channel.start_connect()));
    assert!(facts.iter().all(Result::is_ok) && facts.len() == 2, "{facts:?}");

    assert_eq!(
        many::put([(channels[1].clone(), Value::from(7.0)), (channels[0].clone(), Value::from(6.0))]),
        [Ok(()), Ok(())]
    );
    let values: Vec<Value> =
        many::get(&channels, Request::default()).into_iter().map(|reading| reading.unwrap().value).collect();
    assert_eq!(values, [6.0, 7.0].map(Value::from));
    assert_eq!(many::get(&[], Request::default()), []);
}

#[test]
fn many_puts_are_started_together_and_requests_after_them_follow() {
    let cells = (0..600).map(|n| (format!("x{n}"), cell(0.0)));
    let (_server, context) = serve(cells.collect::<PvTable>());
    for scheme in ["ca", "pva"] {
        let names: Vec<String> = (0..600).map(|n| format!("{scheme}://x{n}")).collect();
        let channels: Vec<_> = many::connect(&context, &names).into_iter().map(Result::unwrap).collect();
        for round in 1..4 {
            let values: Vec<Value> = (0..600).map(|n| f64::from(1000 * round + n).into()).collect();

            let puts = many::start_put(channels.iter().cloned().zip(values.iter().cloned()));
            let readings = many::get(&channels, Request::default());

            assert_eq!(puts.wait(), vec![Ok(()); 600], "{scheme}");
            let received: Vec<Value> = readings.into_iter().map(|reading| reading.unwrap().value).collect();
            assert_eq!(received, values, "{scheme}");
        }
    }
}

#[test]
fn a_put_among_many_that_does_not_end_times_out_alone() {
    let (slow, puts) = slow_cell(1.5);
    let (_server, context) = serve([("slow", slow), ("x", cell(1.5))]);
    let channels = ["x", "slow", "absent"].map(|name| context.channel(name).unwrap());
    channels[..2].iter().for_each(|channel| drop(channel.connect().unwrap()));
    let pause = Duration::from_millis(100);

    let mut putting = many::start_put(channels.map(|channel| (channel, Value::from(2.5))));
    assert!(!putting.wait_at_most(pause));
    let [done, silent, absent] = &putting.finish(pause)[..] else { panic!() };

    assert_eq!(done, &Ok(()));
    assert!(matches!(silent.as_ref().unwrap_err().kind(), ErrorKind::NoReply { after, .. } if *after == pause));
    assert_eq!(absent.as_ref().unwrap_err().kind(), &ErrorKind::NotFound { protocol: Protocol::Ca, after: pause });
    assert_eq!(puts.lock().unwrap().len(), 1);
}

#[test]
fn calls_without_a_timeout_end_after_that_of_their_context() {
    let server = start([("x", cell(1.5))]);
    let after = Duration::from_millis(30);
    let context = Context::new(ClientConfig { operation_timeout: after, ..server.client_config() });
    let absent = context.channel("absent").unwrap();
    let not_found = |error: Error| assert_eq!(error.kind(), &ErrorKind::NotFound { protocol: Protocol::Ca, after });
    let mut reading = Reading::bare(Value::from(1.0));

    not_found(absent.connect().unwrap_err());
    not_found(absent.start_connect().wait().unwrap_err());
    not_found(absent.get().unwrap_err());
    not_found(absent.get_with(Request::default()).unwrap_err());
    not_found(absent.get_into(&mut reading, Request::default()).unwrap_err());
    not_found(absent.put(1.0).unwrap_err());
    not_found(absent.put_unconfirmed(1.0).unwrap_err());
    not_found(many::wait([absent.start_connect()]).remove(0).unwrap_err());
    not_found(many::connect(&context, &["absent"]).remove(0).unwrap_err());
    not_found(many::get(std::slice::from_ref(&absent), Request::default()).remove(0).unwrap_err());
    not_found(many::put([(absent.clone(), Value::from(1.0))]).remove(0).unwrap_err());
    assert_eq!(absent.state(), ChannelState::Searching);
}

#[test]
fn a_limited_wait_is_repeated_until_the_operation_ends_or_is_finished() {
    let (slow, puts) = slow_cell(1.5);
    let (_server, context) = serve([("slow", slow)]);
    let (slow, absent) = (context.channel("slow").unwrap(), context.channel("absent").unwrap());
    let pause = Duration::from_millis(1);

    let mut putting = slow.start_put(2.5);
    let start = Instant::now();
    let result = loop {
        assert!(start.elapsed() < PATIENCE);
        if let Some(result) = putting.wait_at_most(pause) {
            break result;
        }
        puts.lock().unwrap().drain(..).for_each(DeferredPut::complete);
    };
    assert_eq!(result, Ok(()));

    let mut connecting = absent.start_connect();
    assert_eq!(connecting.wait_at_most(pause), None);
    assert_eq!(
        connecting.finish(pause).unwrap_err().kind(),
        &ErrorKind::NotFound { protocol: Protocol::Ca, after: pause }
    );
    let (mut late, start) = (slow.start_get(Request::default()), Instant::now());
    while late.wait_at_most(Duration::ZERO).is_none() {
        assert!(start.elapsed() < PATIENCE);
    }
}

/// A server of the array "a" that reads nothing while it handles a put, which waits for the lock; and a client of it.
fn serve_slow_array(gate: &Arc<Mutex<()>>) -> (Server, Context) {
    let waits = gate.clone();
    let on_put = move |value: Value, _: &_| {
        drop(waits.lock());
        Ok(value)
    };
    serve([("a", SharedPv::builder(vec![0.0]).count_max(LARGE).on_put(on_put).build())])
}

/// Elements of an array that the buffers of the system do not take.
const LARGE: u32 = 4_000_000;

fn large(number: f64) -> Value {
    Value::from(vec![number; LARGE as usize])
}

#[test]
fn unsent_bytes_grow_while_the_server_does_not_read_and_are_sent_later() {
    let gate = Arc::default();
    let (_server, context) = serve_slow_array(&gate);
    let a = context.channel("a").unwrap();
    assert_eq!(a.unsent_bytes(), 0);
    a.connect_timeout(PATIENCE).unwrap();
    assert_eq!(a.unsent_bytes(), 0);

    let held = gate.lock().unwrap();
    a.put_unconfirmed_timeout(vec![1.0], PATIENCE).unwrap();
    a.start_put_unconfirmed(large(2.0)).wait_timeout(PATIENCE).unwrap();
    let waiting = a.start_put_unconfirmed(large(3.0));
    assert!(a.unsent_bytes() > 1_000_000, "{} bytes", a.unsent_bytes());

    drop(held);
    waiting.wait_timeout(PATIENCE).unwrap();
    let start = Instant::now();
    while a.unsent_bytes() > 0 {
        assert!(start.elapsed() < PATIENCE, "{} bytes", a.unsent_bytes());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(a.get_timeout(PATIENCE).unwrap().value, large(3.0));
}

#[test]
fn operations_on_a_server_that_does_not_read_wait_without_memory_and_end_at_their_timeout() {
    let gate = Arc::default();
    let (_server, context) = serve_slow_array(&gate);
    let a = context.channel("a").unwrap();
    a.connect_timeout(PATIENCE).unwrap();
    let array = Arc::new(vec![2.0; LARGE as usize]);
    let value = || Value::Array(Array::F64(array.clone()));

    let held = gate.lock().unwrap();
    a.put_unconfirmed_timeout(vec![1.0], PATIENCE).unwrap();
    assert_eq!(a.put_unconfirmed_timeout(value(), PATIENCE), Ok(()), "it is queued");
    for _ in 0..10 {
        for error in [
            a.put_unconfirmed_timeout(value(), Duration::ZERO).unwrap_err(),
            a.put_timeout(value(), Duration::ZERO).unwrap_err(),
            a.get_timeout(Duration::ZERO).unwrap_err(),
        ] {
            assert!(matches!(error.kind(), ErrorKind::NoReply { .. }), "{error:?}");
        }
        drop(a.start_put(value()));
    }
    let (n_arrays, n_bytes) = (Arc::strong_count(&array), a.unsent_bytes());
    drop(held);
    let reading = a.get_timeout(PATIENCE).unwrap();

    assert_eq!(n_arrays, 2, "the one that is queued, and that of the test");
    assert!(n_bytes <= 8 * array.len() + 100, "{n_bytes} bytes");
    assert_eq!(reading.value, value());
}

#[test]
fn an_unconfirmed_put_that_waits_for_space_fails_when_its_context_is_closed() {
    let gate = Arc::default();
    let (_server, context) = serve_slow_array(&gate);
    let a = context.channel("a").unwrap();
    a.connect_timeout(PATIENCE).unwrap();

    let held = gate.lock().unwrap();
    a.put_unconfirmed_timeout(vec![1.0], PATIENCE).unwrap();
    a.put_unconfirmed_timeout(large(2.0), PATIENCE).unwrap();
    let putting = a.start_put_unconfirmed(large(3.0));
    let waiting = std::thread::spawn(move || putting.wait_timeout(PATIENCE));
    context.close();

    assert_eq!(waiting.join().unwrap().unwrap_err().kind(), &ErrorKind::ContextClosed);
    drop(held);
}

#[test]
fn many_puts_beyond_the_queue_are_sent_in_their_order() {
    let gate = Arc::default();
    let (_server, context) = serve_slow_array(&gate);
    let a = context.channel("a").unwrap();
    a.connect_timeout(PATIENCE).unwrap();
    let puts: Vec<_> = (0..100).map(|number| (a.clone(), Value::from(vec![f64::from(number); 100_000]))).collect();

    let held = gate.lock().unwrap();
    let putting = std::thread::spawn(move || many::put_timeout(puts, PATIENCE));
    let start = Instant::now();
    while a.unsent_bytes() == 0 {
        assert!(start.elapsed() < PATIENCE, "the buffers of the system take everything");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(held);
    let results = putting.join().unwrap();

    assert!(results.iter().all(Result::is_ok) && results.len() == 100, "{results:?}");
    assert_eq!(a.get_timeout(PATIENCE).unwrap().value, Value::from(vec![99.0; 100_000]));
}

#[test]
fn a_monitor_continues_when_its_client_may_read_again() {
    let may_read = Arc::new(AtomicBool::new(true));
    let rule = may_read.clone();
    let rights = move |_: &fodo_net::Peer| Rights { read: rule.load(Ordering::Relaxed), write: true };
    let (server, context) = serve([("x", SharedPv::builder(1.5).rights(rights).build())]);
    let x = context.channel("x").unwrap();
    let monitor = x.monitor(MonitorOptions::default());
    assert_eq!(next_value(&monitor), Value::from(1.5));
    let next = || monitor.next_timeout(PATIENCE).unwrap();

    may_read.store(false, Ordering::Relaxed);
    server.rights_signal().notify_changed();
    assert!(matches!(next(), MonitorEvent::Rights(facts) if !facts.may_read));
    assert_eq!(next(), MonitorEvent::Refused(Refusal::ReadAccess));
    let error = x.get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Refused { refusal: Refusal::ReadAccess, .. }), "{error:?}");

    may_read.store(true, Ordering::Relaxed);
    server.rights_signal().notify_changed();
    assert!(matches!(next(), MonitorEvent::Rights(facts) if facts.may_read));
    assert!(matches!(next(), MonitorEvent::Update(_)));
}

#[test]
fn a_server_receives_the_user_name_of_the_configuration() {
    let server = start([("x", cell(1.5))]);
    let context = Context::new(ClientConfig { user: Some("ann".into()), ..server.client_config() });

    // The circuit is closed with its last channel.
    let x = context.channel("x").unwrap();
    x.connect_timeout(PATIENCE).unwrap();

    let users: Vec<String> = server.observer().clients().into_iter().map(|client| client.user).collect();
    assert_eq!(users, ["ann"]);
}

#[test]
fn a_name_that_no_server_accepts_is_refused_with_the_maximum_length() {
    let context = Context::new(ClientConfig::with_addresses(Vec::new()));

    let error = context.channel(&"x".repeat(512)).unwrap_err();

    assert_eq!(error.reason(), "the name has 512 bytes, but a server accepts at most 511");
}

#[test]
fn a_client_and_a_server_that_poll_before_they_sleep_read_write_and_time_out_as_others() {
    let spin = Duration::from_millis(2);
    let (slow, _puts) = slow_cell(0.0);
    let table = PvTable::from([("x", cell(1.5)), ("a", cell(vec![0.0])), ("slow", slow)]);
    let config = ServerConfig { spin, payload_bytes_max: 64 << 20, ..ServerConfig::isolated() };
    let server = Server::start(config, Arc::new(table)).unwrap();
    let context = Context::new(ClientConfig { spin, ..server.client_config() });
    let [x, a, slow] = ["x", "a", "slow"].map(|name| context.channel(name).unwrap());

    x.put_timeout(2.5, PATIENCE).unwrap();
    assert_eq!(x.get_timeout(PATIENCE).unwrap().value, Value::from(2.5));

    // More than the buffers of the system take at once.
    let array = Value::from(vec![7.0; 1_000_000]);
    a.put_timeout(array.clone(), PATIENCE).unwrap();
    assert!(a.get_timeout(PATIENCE).unwrap().value == array);

    slow.connect_timeout(PATIENCE).unwrap();
    let start = Instant::now();
    let error = slow.put_timeout(1.0, Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoReply { .. }), "{error:?}");
    assert!((Duration::from_millis(50)..PATIENCE / 2).contains(&start.elapsed()));
}

#[test]
fn names_and_priorities_are_checked_when_a_channel_is_opened() {
    let context = Context::new(ClientConfig::with_addresses(Vec::new()));
    let longest = "x".repeat(511);

    assert!(context.channel_at(&longest, 99).is_ok());
    for (name, priority, reason) in [
        ("", 0, "the name of the channel is empty"),
        ("a\0b", 0, "the name contains NUL"),
        ("a", 100, "the priority 100 is out of range"),
    ] {
        let error = context.channel_at(name, priority).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Misuse { .. }) && error.advice().is_some(), "{error:?}");
        assert_eq!(error.reason(), reason);
    }
}

#[test]
fn debug_output_contains_names_addresses_and_settings() {
    let (server, context) = serve([("lab:x", cell(1.5))]);
    let x = context.channel("lab:x").unwrap();
    x.connect_timeout(PATIENCE).unwrap();
    let monitor = x.monitor(MonitorOptions::default());
    // An awaited operation has a deadline.
    let absent = context.channel("absent").unwrap();
    let mut awaited = pin!(absent.start_get(Request::default()));
    assert!(awaited.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())).is_pending());
    let search_hosts = vec![Host { name: "no-such-host.invalid".into(), port: 5064 }];
    let searching = TrafficMonitor::searching(&ClientConfig { search_hosts, ..server.client_config() }).unwrap();
    let circuit = format!("Circuit {{ server: 127.0.0.1:{}", server.tcp_port());

    for (text, parts) in [
        (format!("{x:?}"), vec!["lab:x", &circuit]),
        (format!("{context:?}"), vec!["Search { config: ClientConfig", "Deadlines { timeout: 30s", &circuit]),
        (format!("{monitor:?}"), vec!["MonitorCore { options: MonitorOptions"]),
        (format!("{searching:?}"), vec!["ResolvedNames { hosts: [Host { name: \"no-such-host.invalid\""]),
        (format!("{:?}", PvTable::from([("lab:y", SharedPv::new(1.5))])), vec!["lab:y"]),
        (format!("{:?}", SourceChain::new(vec![Arc::new(PvTable::new())])), vec!["n_sources: 1"]),
        (format!("{:?}", SharedPv::new(1.5)), vec!["kind: F64", "is_read_only: true"]),
        (format!("{:?}", SharedPv::builder(2.5)), vec!["2.5"]),
        (format!("{:?}", Repeater::start(0).unwrap()), vec!["Repeater { socket: "]),
        (format!("{:?}", Reactor::start("unused").unwrap()), vec!["ReactorShared"]),
    ] {
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn the_events_of_a_monitor_are_an_iterator() {
    let (server, context) = serve([("x", cell(1.5))]);
    let monitor = context.channel("x").unwrap().monitor(MonitorOptions::default());

    let mut values = Vec::new();
    for event in &monitor {
        if let MonitorEvent::Update(reading) = event {
            values.push(reading.value);
            break;
        }
    }

    assert_eq!(values, [Value::from(1.5)]);
    let observer = server.observer();
    assert_eq!(observer.clients().iter().map(|client| client.n_subscriptions).collect::<Vec<_>>(), [1]);
    assert!(observer.counts().searches > 0);
}

#[test]
fn a_subscription_to_the_class_name_receives_it_with_every_update() {
    let pv = cell(1.5);
    let (_server, context) = serve([("x", pv.clone())]);
    let x = context.channel("x").unwrap();
    let request = Request { detail: Detail::ClassName, ..Request::default() };
    let monitor = x.monitor(MonitorOptions { request, ..MonitorOptions::default() });
    let next = || next_value(&monitor);

    assert_eq!(next(), Value::from("pv"));
    pv.post(2.5);
    assert_eq!(next(), Value::from("pv"));
    assert_eq!(x.get_with_timeout(request, PATIENCE).unwrap().value, Value::from("pv"));
}

#[test]
fn a_shared_pv_keeps_the_reading_that_was_posted() {
    let pv = SharedPv::new(1.0);
    let alarm = Alarm { severity: Severity::Minor, status: Status::HIGH };
    let time = TimeStamp { unix_s: 1_800_000_000, nanos: 5 };
    let posted = Reading { alarm, time, ..Reading::bare(Value::from(2.0)) };

    pv.post_reading(posted.clone());

    assert_eq!((pv.reading(), pv.value()), (posted, Value::from(2.0)));
}

#[test]
fn a_shared_pv_gives_each_client_the_rights_of_its_rule() {
    let rights = |by: &fodo_net::Peer| Rights { read: !by.host.is_empty(), write: false };
    let pv = SharedPv::builder(1.0).rights(rights).on_put(|value, _| Ok(value)).build();
    let (_server, context) = serve([("x", pv)]);

    let facts = context.channel("x").unwrap().connect_timeout(PATIENCE).unwrap();

    assert_eq!((facts.may_read, facts.may_write), (true, false));
}

#[test]
fn a_deferred_put_can_be_refused_later() {
    let (pv, puts) = slow_cell(1.0);
    let (_server, context) = serve([("x", pv)]);
    let x = context.channel("x").unwrap();

    let putting = x.start_put(2.0);
    let start = Instant::now();
    let put = loop {
        if let Some(put) = puts.lock().unwrap().pop() {
            break put;
        }
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    };
    put.refuse(PutRefusal::Rejected("the motor is stuck".into()));

    let error = putting.wait_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Refused { refusal: Refusal::Status { .. }, .. }), "{error:?}");
}

#[test]
fn a_subscription_to_alarms_receives_only_changes_of_the_alarm() {
    let pv = cell(1.0);
    let (_server, context) = serve([("x", pv.clone())]);
    let options = MonitorOptions { mask: EventMask::ALARM, ..MonitorOptions::default() };
    let monitor = context.channel("x").unwrap().monitor(options);
    let next = || next_value(&monitor);
    assert_eq!(next(), Value::from(1.0));

    pv.post(2.0);
    let alarm = Alarm { severity: Severity::Major, status: Status::HIHI };
    pv.post_reading(Reading { alarm, ..Reading::bare(Value::from(3.0)) });

    assert_eq!(next(), Value::from(3.0));
}

#[test]
fn a_server_that_cannot_listen_reports_the_address_and_the_cause() {
    // An address for documentation, which no host has.
    let interfaces = vec![Ipv4Addr::new(192, 0, 2, 1)];
    let config = ServerConfig { interfaces, ..ServerConfig::isolated() };

    let error = Server::start(config, Arc::new(PvTable::new())).unwrap_err();

    assert!(error.to_string().starts_with("cannot listen on 192.0.2.1:"), "{error}");
    let cause = error.source().map(ToString::to_string).unwrap();
    assert!(!cause.is_empty() && !error.to_string().contains(&cause), "{error}: {cause}");
    let error = ServerError::System(std::io::ErrorKind::OutOfMemory.into());
    assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("out of memory"));
}

#[test]
fn a_traffic_monitor_searches_for_the_names_of_its_user() {
    let server = start([("x", cell(1.5))]);
    let unresolved = "no-such-host.invalid";
    let search_hosts = vec![Host { name: unresolved.into(), port: 5064 }];
    let mut monitor = TrafficMonitor::searching(&ClientConfig { search_hosts, ..server.client_config() }).unwrap();

    monitor.search("x");
    monitor.run(PATIENCE, |traffic| traffic.names()[0].state == NameState::Claimed).unwrap();

    let names = monitor.traffic().names();
    assert_eq!((names.len(), names[0].name.as_str()), (1, "x"));
    assert_eq!(names[0].servers.iter().map(|server| server.port()).collect::<Vec<_>>(), [server.tcp_port()]);
    let mut reported = monitor.take_unresolved();
    let start = Instant::now();
    while reported.is_empty() && start.elapsed() < PATIENCE {
        monitor.run(Duration::from_millis(20), |_| false).unwrap();
        reported = monitor.take_unresolved();
    }
    assert_eq!((reported, monitor.take_unresolved()), (vec![unresolved.to_owned()], Vec::new()));
}

#[test]
fn the_configuration_is_read_from_variables() {
    let lookup = |name: &str| match name {
        "EPICS_CA_ADDR_LIST" => Some("192.0.2.7:6064".to_owned()),
        "EPICS_CAS_SERVER_PORT" => Some("7064".to_owned()),
        _ => None,
    };

    let (client, server) =
        (ClientConfig::from_variables(&lookup).unwrap(), ServerConfig::from_variables(&lookup).unwrap());

    assert_eq!(client.search_addresses, ["192.0.2.7:6064".parse().unwrap()]);
    assert_eq!(server.port, 7064);
    let wrong = |name: &str| name.starts_with("EPICS_CA").then(|| "x".to_owned());
    assert!(ClientConfig::from_variables(&wrong).is_err() && ServerConfig::from_variables(&wrong).is_err());
}

/// The name of the variable that makes the test below check its own environment.
const IS_CHILD: &str = "FODO_TEST_READS_ITS_ENVIRONMENT";

#[test]
fn the_configuration_is_read_from_the_environment_of_the_process() {
    if std::env::var_os(IS_CHILD).is_some() {
        assert_eq!(ClientConfig::from_env().unwrap().search_addresses, ["192.0.2.7:6064".parse().unwrap()]);
        assert_eq!(ServerConfig::from_env().unwrap().port, 7064);
        assert_eq!(Context::from_env().unwrap().channel("x").unwrap().name(), "x");
        return;
    }
    let name = "the_configuration_is_read_from_the_environment_of_the_process";

    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .envs([(IS_CHILD, "1"), ("EPICS_CA_ADDR_LIST", "192.0.2.7:6064"), ("EPICS_CAS_SERVER_PORT", "7064")])
        .envs([("EPICS_CA_AUTO_ADDR_LIST", "NO")])
        .output()
        .unwrap();

    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
