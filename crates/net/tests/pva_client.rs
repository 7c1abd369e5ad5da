//! The client with pvAccess, against a server of this crate.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fodo_net::{
    Alarm, Array, Channel, ChannelState, ClientConfig, Context, DeferredPut, Detail, ErrorKind, EventMask, Kind, Meta,
    Monitor, MonitorEvent, MonitorOptions, Notice, Protocol, PutRefusal, Pv, PvTable, PvaServerConfig, Reading,
    Refusal, Request, Scalar, Server, ServerConfig, Severity, SharedPv, Status, Value, many,
};

use fodo_testing::{eventually, free_port};

const PATIENCE: Duration = Duration::from_secs(10);

fn serve(pvs: impl Into<PvTable>) -> (Server, Context) {
    let server = Server::start(ServerConfig::isolated(), Arc::new(pvs.into())).unwrap();
    let context = Context::new(server.client_config());
    (server, context)
}

/// A PV whose value is the last one put.
fn cell(value: impl Into<Value>) -> SharedPv {
    let value = value.into();
    let count_max = if matches!(value, Value::Array(_)) { 1_000_000 } else { 1 };
    SharedPv::builder(value).count_max(count_max).on_put(|value, _| Ok(value)).build()
}

fn gate() -> SharedPv {
    let meta = Meta { labels: vec!["closed".into(), "open".into()], ..Meta::default() };
    SharedPv::builder(Value::Scalar(Scalar::Enum(1))).meta(meta).on_put(|value, _| Ok(value)).build()
}

fn channel(context: &Context, name: &str) -> Channel {
    context.channel(&format!("pva://{name}")).unwrap()
}

/// The next update; other events are skipped.
fn next_reading(monitor: &Monitor) -> Reading {
    loop {
        match monitor.next_timeout(PATIENCE) {
            Some(MonitorEvent::Update(reading)) => return reading,
            Some(_) => {}
            None => panic!("no update"),
        }
    }
}

fn next_value(monitor: &Monitor) -> Value {
    next_reading(monitor).value
}

#[test]
fn a_value_is_read_and_written_in_its_own_kind() {
    let values: [Value; 8] = [
        1.5.into(),
        7.into(),
        8_i64.into(),
        true.into(),
        "text".into(),
        vec![1.0, 2.0].into(),
        vec![1_u8, 2].into(),
        Vec::<f64>::new().into(),
    ];
    for value in values {
        let pv = cell(value.clone());
        let (_server, context) = serve([("x", pv.clone())]);
        let x = channel(&context, "x");

        let facts = x.connect_timeout(PATIENCE).unwrap();
        assert_eq!((facts.kind, facts.may_read, facts.may_write), (value.kind(), true, true));
        assert_eq!(facts.count_max, if matches!(value, Value::Scalar(_)) { 1 } else { 0 });
        let reading = x.get().unwrap();
        assert_eq!((reading.value, reading.time), (value.clone(), pv.reading().time));
        x.put(value.clone()).unwrap();
        assert_eq!(pv.reading().value, value);
    }
}

#[test]
fn a_large_array_is_read_into_the_memory_of_the_caller_with_both_protocols() {
    let (_server, context) = serve([("x", cell((0..100_000).collect::<Vec<i32>>()))]);
    for name in ["pva://x", "ca://x"] {
        let x = context.channel(name).unwrap();
        let mut reading = x.get_timeout(PATIENCE).unwrap();
        let place = |reading: &Reading| match &reading.value {
            Value::Array(Array::I32(elements)) => (elements.as_ptr(), elements[99_999]),
            other => panic!("{other:?}"),
        };
        let first = place(&reading);

        for _ in 0..2 {
            x.get_into_timeout(&mut reading, Request::default(), PATIENCE).unwrap();
            assert_eq!(place(&reading), first, "{name}");
        }

        let shared = reading.value.clone();
        x.get_into_timeout(&mut reading, Request::default(), PATIENCE).unwrap();
        assert!(place(&reading).0 != first.0 && reading.value == shared, "{name}");
    }
}

#[test]
fn a_scheme_selects_the_protocol_and_is_no_part_of_the_name() {
    let (server, context) = serve([("x", cell(1.5))]);
    let pva = Context::new(ClientConfig { default_protocol: Protocol::Pva, ..server.client_config() });

    let by_ca = [context.channel("ca://x").unwrap(), context.channel("x").unwrap(), pva.channel("ca://x").unwrap()];
    let by_pva = [context.channel("pva://x").unwrap(), pva.channel("x").unwrap()];

    for channel in by_ca.iter().chain(&by_pva) {
        assert_eq!((channel.name(), channel.get().unwrap().value), ("x", 1.5.into()));
    }
    let port = |channel: &Channel| channel.facts().unwrap().server.port();
    assert!(by_ca.iter().all(|channel| port(channel) == server.tcp_port()));
    assert!(by_pva.iter().all(|channel| Some(port(channel)) == server.pva_tcp_port()));
}

#[test]
fn a_name_may_be_as_long_as_its_protocol_allows() {
    let context = Context::new(ClientConfig::with_addresses(Vec::new()));
    let name = "x".repeat(1024);

    assert!(context.channel(&format!("pva://{name}")).is_ok());
    for (name, part) in [(format!("pva://{name}x"), "at most 1024"), (format!("ca://{name}"), "at most 511")] {
        let error = context.channel(&name).unwrap_err();
        assert!(error.to_string().contains(part) && !error.pv().contains("://"), "{error}");
    }
    assert!(context.channel("pva://").is_err());
}

#[test]
fn a_request_determines_kind_length_and_attributes() {
    let alarm = Alarm { severity: Severity::Minor, status: Status::HIGH };
    let array = SharedPv::builder(vec![1.5, 2.5, 3.5]).meta(Meta { units: "mm".into(), ..Meta::default() }).build();
    array.post_reading(Reading { alarm, ..Reading::bare(vec![1.5, 2.5, 3.5].into()) });
    let (_server, context) = serve([("a", array), ("gate", gate()), ("t", cell("open"))]);
    let (a, gate) = (channel(&context, "a"), channel(&context, "gate"));
    let request = |kind, count| Request { kind, count, ..Request::default() };

    assert_eq!(a.get_with(request(None, 2)).unwrap().value, vec![1.5, 2.5].into());
    assert_eq!(a.get_with(request(Some(Kind::I32), 0)).unwrap().value, vec![1, 2, 3].into());
    let full = a.get_with(Request { detail: Detail::Full, ..Request::default() }).unwrap();
    assert_eq!((full.alarm, full.meta.unwrap().units.clone()), (alarm, "mm".into()));
    assert_eq!(a.get().unwrap().alarm, alarm);
    assert_eq!(gate.get_with(request(Some(Kind::Text), 0)).unwrap().value, "open".into());
    let full = gate.get_with(Request { detail: Detail::Full, ..Request::default() }).unwrap();
    assert_eq!(full.value, Value::Scalar(Scalar::Enum(1)));
    assert_eq!(full.meta.unwrap().labels, ["closed".into(), "open".into()]);
    let error = channel(&context, "t").get_with(request(Some(Kind::F64), 0)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WrongReply { .. }), "{error}");
    let error = a.get_with(Request { detail: Detail::ClassName, ..Request::default() }).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Misuse { .. }) && error.to_string().contains("Channel Access"),
        "{error}"
    );
}

#[test]
fn an_enum_is_written_by_index_and_by_name() {
    let pv = gate();
    let (_server, context) = serve([("gate", pv.clone())]);
    let gate = channel(&context, "gate");

    gate.put("closed").unwrap();
    assert_eq!(pv.reading().value, Value::Scalar(Scalar::Enum(0)));
    gate.put(1).unwrap();
    assert_eq!(pv.reading().value, Value::Scalar(Scalar::Enum(1)));
    let error = gate.put("ajar").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Misuse { .. }) && error.to_string().contains("ajar"), "{error}");
}

#[test]
fn a_refused_put_returns_the_text_of_the_server() {
    let refuse = |_, _: &_| Err(PutRefusal::Rejected("the gap must be below 50 mm".into()));
    let (_server, context) = serve([("x", SharedPv::builder(1.5).on_put(refuse).build())]);
    let x = channel(&context, "x");
    let has_text = |refusal: &Refusal| matches!(refusal, Refusal::Reported { text } if text.contains("below 50 mm"));

    let error = x.put(51.0).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Refused { refusal, .. } if has_text(refusal)), "{error}");
    assert!(error.to_string().contains("below 50 mm"), "{error}");

    x.put_unconfirmed(51.0).unwrap();
    match context.next_notice(PATIENCE) {
        Some(Notice::PutRefused { pv, refusal, .. }) => assert!(pv == "x" && has_text(&refusal), "{refusal}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_put_waits_for_the_end_of_processing_and_one_without_completion_does_not() {
    let puts: Arc<Mutex<Vec<DeferredPut>>> = Arc::default();
    let waiting = puts.clone();
    let start = move |put: DeferredPut| {
        put.pv.post(put.value.clone());
        waiting.lock().unwrap().push(put);
    };
    let pv = SharedPv::builder(0.0).on_put_deferred(start).build();
    let (_server, context) = serve([("x", pv.clone())]);
    let x = channel(&context, "x");
    x.connect_timeout(PATIENCE).unwrap();

    let moving = x.start_put(1.0);
    eventually("the put starts", || puts.lock().unwrap().len() == 1);
    x.put_unconfirmed(2.0).unwrap();
    eventually("the other put starts", || pv.reading().value == 2.0.into());
    assert_eq!(x.get().unwrap().value, 2.0.into());
    puts.lock().unwrap().drain(..).for_each(DeferredPut::complete);

    moving.wait_timeout(PATIENCE).unwrap();
}

#[test]
fn puts_without_completion_arrive_in_order_and_before_the_next_get() {
    let seen: Arc<Mutex<Vec<f64>>> = Arc::default();
    let values = seen.clone();
    let store = move |value: Value, _: &_| {
        values.lock().unwrap().push(value.to_f64().unwrap());
        Ok(value)
    };
    let (_server, context) = serve([("x", SharedPv::builder(0.0).on_put(store).build())]);
    let x = channel(&context, "x");

    for number in 1..=100 {
        x.put_unconfirmed(f64::from(number)).unwrap();
    }

    assert_eq!(x.get().unwrap().value, 100.0.into());
    x.put_unconfirmed(101.0).unwrap();
    x.put_unconfirmed(102.0).unwrap();
    x.put(103.0).unwrap();
    assert_eq!(*seen.lock().unwrap(), (1..=103).map(f64::from).collect::<Vec<_>>());
}

#[test]
fn a_put_without_completion_is_sent_although_its_channel_is_dropped_at_once() {
    let pv = cell(0.0);
    let (_server, context) = serve([("x", pv.clone())]);

    channel(&context, "x").put_unconfirmed(1.0).unwrap();

    eventually("the put arrives", || pv.reading().value == 1.0.into());
}

#[test]
fn a_monitor_receives_every_change_in_order() {
    let pv = cell(0);
    let (_server, context) = serve([("x", pv.clone())]);
    let monitor = channel(&context, "x").monitor(MonitorOptions::default());
    assert_eq!(next_value(&monitor), 0.into());

    for number in 1..1000 {
        pv.post(number);
        assert_eq!(next_value(&monitor), number.into());
    }

    let counts = monitor.counts();
    assert_eq!((counts.received, counts.delivered, counts.merged, counts.overrun), (1000, 1000, 0, 0));
}

#[test]
fn a_fast_sequence_ends_with_the_newest_value_and_its_gaps_are_counted() {
    let pv = cell(0);
    let (_server, context) = serve([("x", pv.clone())]);
    let monitor = channel(&context, "x").monitor(MonitorOptions::default());
    assert_eq!(next_value(&monitor), 0.into());

    (1..=10_000).for_each(|number| pv.post(number));

    let mut n_updates = 0;
    let mut last = 0;
    while last < 10_000 {
        let Value::Scalar(Scalar::I32(number)) = next_value(&monitor) else { panic!("another kind") };
        assert!(number > last, "{number} after {last}");
        (last, n_updates) = (number, n_updates + 1);
    }
    assert_eq!(monitor.counts().overrun > 0, n_updates < 10_000);
}

#[test]
fn a_monitor_with_everything_has_alarm_and_units_in_each_update() {
    let alarm = Alarm { severity: Severity::Major, status: Status::HIHI };
    let meta = Meta { units: "mm".into(), ..Meta::default() };
    let pv = SharedPv::builder(1.5).meta(meta.clone()).build();
    let (_server, context) = serve([("x", pv.clone())]);
    let request = Request { detail: Detail::Full, ..Request::default() };
    let monitor = channel(&context, "x").monitor(MonitorOptions { request, ..MonitorOptions::default() });

    let first = next_reading(&monitor);
    assert_eq!((first.value, first.meta.unwrap().units.clone()), (1.5.into(), "mm".into()));
    pv.post_reading(Reading { alarm, ..Reading::bare(2.5.into()) });
    let second = next_reading(&monitor);

    assert_eq!((second.value, second.alarm, second.meta.unwrap().units.clone()), (2.5.into(), alarm, "mm".into()));
}

#[test]
fn a_monitor_of_alarms_receives_no_other_change() {
    let pv = cell(1.0);
    let (_server, context) = serve([("x", pv.clone())]);
    let options = MonitorOptions { mask: EventMask::ALARM, ..MonitorOptions::default() };
    let monitor = channel(&context, "x").monitor(options);
    assert_eq!(next_value(&monitor), 1.0.into());

    pv.post(2.0);
    let alarm = Alarm { severity: Severity::Major, status: Status::HIHI };
    pv.post_reading(Reading { alarm, ..Reading::bare(3.0.into()) });

    assert_eq!(next_reading(&monitor).alarm, alarm);
    assert_eq!(monitor.counts().received, 2);
}

#[test]
fn many_channels_are_connected_read_and_written_together() {
    let names: Vec<String> = (0..1000).map(|number| format!("x{number}")).collect();
    let table = PvTable::new();
    for (number, name) in names.iter().enumerate() {
        table.insert(name, cell(number as f64));
    }
    let (_server, context) = serve(table);
    let schemes: Vec<String> = names.iter().map(|name| format!("pva://{name}")).collect();

    let connected = many::connect_timeout(&context, &schemes, PATIENCE);
    let channels: Vec<Channel> = connected.into_iter().map(Result::unwrap).collect();
    for offset in [0.0, 0.5, 1.5] {
        let readings = many::get(&channels, Request::default());
        let values: Vec<Value> = readings.into_iter().map(|reading| reading.unwrap().value).collect();
        let expected: Vec<Value> = (0..1000).map(|number| (f64::from(number) + offset).into()).collect();
        assert!(values == expected, "{offset}: {:?}", values.first());
        let next = |number: usize| Value::from(number as f64 + if offset == 0.0 { 0.5 } else { 1.5 });
        let puts = channels.iter().enumerate().map(|(number, channel)| (channel.clone(), next(number)));
        assert!(many::put(puts).iter().all(Result::is_ok));
    }
}

#[test]
fn callers_on_many_threads_share_a_channel() {
    let (_server, context) = serve([("x", cell(0.0))]);
    let x = channel(&context, "x");

    std::thread::scope(|scope| {
        for thread in 0..8 {
            let x = &x;
            scope.spawn(move || {
                for number in 0..200 {
                    match (thread + number) % 4 {
                        0 => x.put(f64::from(number)).unwrap(),
                        1 => x.put_unconfirmed(f64::from(number)).unwrap(),
                        _ => drop(x.get().unwrap()),
                    }
                }
            });
        }
    });
}

#[test]
fn an_absent_name_ends_with_not_found() {
    let (_server, context) = serve([("x", cell(1.0))]);

    let error = channel(&context, "absent").get_timeout(Duration::from_millis(50)).unwrap_err();

    assert!(matches!(error.kind(), ErrorKind::NotFound { .. }), "{error}");
    assert_eq!(error.pv(), "absent");
}

/// A server at these ports.
fn serve_at(port: u16, search_port: u16, pv: &SharedPv) -> Server {
    let pva = PvaServerConfig { port, search_port, ..PvaServerConfig::isolated() };
    let config = ServerConfig { pva: Some(pva), ..ServerConfig::isolated() };
    Server::start(config, Arc::new(PvTable::from([("x", pv.clone())]))).unwrap()
}

#[test]
fn a_channel_reconnects_after_its_server_restarts() {
    let pv = cell(1.0);
    let (port, search_port) = (free_port(), free_port());
    let server = serve_at(port, search_port, &pv);
    let context = Context::new(server.client_config());
    let x = channel(&context, "x");
    let monitor = x.monitor(MonitorOptions::default());
    assert_eq!((next_value(&monitor), x.get().unwrap().value), (1.0.into(), 1.0.into()));

    drop(server);
    loop {
        match monitor.next_timeout(PATIENCE) {
            Some(MonitorEvent::Disconnected) => break,
            Some(_) => {}
            None => panic!("the client does not notice"),
        }
    }
    pv.post(2.0);
    let _server = serve_at(port, search_port, &pv);

    assert_eq!(next_value(&monitor), 2.0.into());
    assert_eq!(x.get_timeout(PATIENCE).unwrap().value, 2.0.into());
    x.put_timeout(3.0, PATIENCE).unwrap();
    assert_eq!((next_value(&monitor), x.state()), (3.0.into(), ChannelState::Active));
}

#[test]
fn nothing_is_left_on_the_server_after_the_last_channel() {
    let pv = cell(1.0);
    let (server, context) = serve([("x", pv.clone())]);
    let x = channel(&context, "x");
    let monitor = x.monitor(MonitorOptions::default());
    next_value(&monitor);
    x.put(2.0).unwrap();
    x.put_unconfirmed(3.0).unwrap();
    x.get().unwrap();
    assert_eq!(server.observer().clients().len(), 1);

    drop((x, monitor));

    eventually("the circuit closes", || server.observer().clients().is_empty());
    let pv: Arc<dyn Pv> = pv.into();
    eventually("nothing listens to the PV", || !pv.posts().has_listeners());
}
