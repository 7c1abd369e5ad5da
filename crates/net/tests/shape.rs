//! Ways to request values: many at once, into memory of the caller, with all attributes.

#[allow(dead_code, reason = "each test program uses a part of it")]
mod served;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use fodo_net::{
    Array, Channel, ClientConfig, Context, Detail, ErrorKind, MonitorEvent, MonitorOptions, Protocol, Request, Value,
    many,
};

use served::{cell, serve, start};

const PATIENCE: Duration = Duration::from_secs(30);

/// Timeout of a call that waits for an absent server to the end.
const SHORT: Duration = Duration::from_secs(2);

#[test]
fn a_get_reuses_the_memory_of_the_previous_large_array() {
    let (_server, context) = serve([("a", cell(vec![0.0; 100_000]))]);
    let a = context.channel("a").unwrap();
    let place = |value: &Value| match value {
        Value::Array(Array::F64(elements)) => elements.as_ptr(),
        other => panic!("{other:?}"),
    };
    let mut reading = a.get().unwrap();
    let first = place(&reading.value);

    a.put(vec![7.5; 100_000]).unwrap();
    a.get_into(&mut reading, Request::default()).unwrap();
    let kept = reading.clone();
    let second = place(&reading.value);
    a.put(vec![8.5; 100_000]).unwrap();
    a.get_into(&mut reading, Request::default()).unwrap();

    assert_eq!(second, first);
    assert_eq!(kept.value, Value::from(vec![7.5; 100_000]));
    assert_eq!(reading.value, Value::from(vec![8.5; 100_000]));
}

#[test]
fn one_get_returns_value_and_units_together() {
    let (_server, context) = serve([("x", cell(1.5))]);
    let x = context.channel("x").unwrap();
    let full = Request { detail: Detail::Full, ..Request::default() };

    // The first one waits for its channel, the second one does not.
    for _ in 0..2 {
        let reading = x.get_with(full).unwrap();
        assert_eq!(reading.value, Value::from(1.5));
        assert_eq!(reading.meta.as_ref().unwrap().units.to_str(), "mm");
    }
}

#[test]
fn every_update_includes_the_units_if_requested() {
    let (_server, context) = serve([("x", cell(1.5))]);
    let x = context.channel("x").unwrap();
    let request = Request { detail: Detail::Full, ..Request::default() };
    let monitor = x.monitor(MonitorOptions { request, ..MonitorOptions::default() });

    assert!(matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Connected(_))));
    for value in [1.5, 2.5] {
        let Some(MonitorEvent::Update(reading)) = monitor.next_timeout(PATIENCE) else { panic!("no update") };
        assert_eq!((reading.value, reading.meta.unwrap().units.to_str().as_ref()), (Value::from(value), "mm"));
        x.put(value + 1.0).unwrap();
    }
}

#[test]
fn a_batch_has_one_deadline_and_returns_a_result_per_channel() {
    let (_server, context) = serve([("x", cell(1.5)), ("y", cell(2.5))]);
    let connect_within = |timeout| {
        let start = std::time::Instant::now();
        let connected = many::connect_timeout(&context, &["x", "absent", "y", "absent too"], timeout);
        let found: Vec<bool> = connected.iter().map(Result::is_ok).collect();
        (connected, found, start.elapsed(), timeout)
    };
    let is_so = |found: &[bool], took, timeout| found == [true, false, true, false] && took < 2 * timeout;

    let (mut connected, mut found, mut took, mut timeout) = connect_within(SHORT);
    if !is_so(&found, took, timeout) {
        // A busy machine may need longer.
        (connected, found, took, timeout) = connect_within(PATIENCE / 2);
    }
    let channels: Vec<_> = connected.iter().flatten().cloned().collect();
    let got = many::get_timeout(&channels, Request::default(), PATIENCE);
    let put = many::put_timeout(channels.iter().cloned().zip([Value::from(7.0), Value::from("no number")]), PATIENCE);

    assert!(is_so(&found, took, timeout), "{found:?} after {took:?}");
    assert!(
        matches!(&connected[3], Err(error) if error.kind() == &ErrorKind::NotFound { protocol: Protocol::Ca, after: timeout }),
        "{:?}",
        connected[3]
    );
    let values: Vec<Value> = got.into_iter().map(|reading| reading.unwrap().value).collect();
    assert_eq!(values, [Value::from(1.5), Value::from(2.5)]);
    assert_eq!(put.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_batch_over_several_servers_keeps_its_order_and_reports_lost_servers() {
    let [server, going] = [("x", 1.5), ("y", 2.5)].map(|(name, value)| start([(name, cell(value))]));
    let places = [&server, &going].map(|server| SocketAddr::from((Ipv4Addr::LOCALHOST, server.udp_port())));
    let context = Context::new(ClientConfig::with_addresses(places.to_vec()));
    let [x, y] = ["x", "y"].map(|name| context.channel(name).unwrap());
    for channel in [&x, &y] {
        channel.connect().unwrap();
    }
    let channels: Vec<Channel> = (0..20_000).map(|index| if index % 3 == 0 { &y } else { &x }).cloned().collect();

    let together = many::get(&channels, Request::default());
    drop(going);
    let expected = [false, true, true, false, true, true];
    let results_within = |timeout| {
        let results = many::get_timeout(&channels[..6], Request::default(), timeout);
        results.iter().map(Result::is_ok).collect::<Vec<_>>()
    };
    let after = match results_within(SHORT) {
        results if results == expected => results,
        // A busy machine may need longer.
        _ => results_within(PATIENCE / 2),
    };

    for (index, reading) in together.into_iter().enumerate() {
        let expected = if index % 3 == 0 { 2.5 } else { 1.5 };
        assert_eq!(reading.unwrap().value, Value::from(expected), "{index}");
    }
    assert_eq!(after, expected);
}

#[test]
fn a_long_text_put_needs_a_character_array_and_is_otherwise_rejected() {
    let (_server, context) = serve([("long", cell(vec![0u8; 2])), ("short", cell("old"))]);
    let [long, short] = ["long", "short"].map(|name| context.channel(name).unwrap());
    let text = "forty bytes and more of Grüße, as they stand in a description";

    long.put(text).unwrap();
    let refused = short.put(text).unwrap_err();

    assert_eq!(long.get().unwrap().value.long_text().unwrap().to_str(), text);
    long.put(Value::characters("65")).unwrap();
    assert_eq!(long.get().unwrap().value.long_text().unwrap().to_str(), "65");
    assert!(matches!(refused.kind(), ErrorKind::Misuse { .. }) && refused.to_string().contains('$'), "{refused}");
    assert_eq!(short.get().unwrap().value, Value::from("old"));
}

#[test]
fn each_priority_has_its_own_circuit_that_sends_the_priority() {
    use std::io::Read;
    let wire = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = wire.local_addr().unwrap().port();
    let answering = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let context = served::context(answering.local_addr().unwrap().port());
    let _channels = [("a", 0), ("b", 7), ("c", 7)].map(|(name, priority)| context.channel_at(name, priority).unwrap());
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((n, from)) = answering.recv_from(&mut buffer) {
            // Each search after the version is answered: this host, that port, the client's number.
            for search in buffer[16..n].chunks(24) {
                let mut claim = vec![0, 0, 0, 0, 0, 1, 0, 13, 0, 0, 0, 1, 0, 0, 0, 0, 0, 6, 0, 8];
                claim.extend_from_slice(&port.to_be_bytes());
                claim.extend_from_slice(&[0, 0, 255, 255, 255, 255]);
                claim.extend_from_slice(&search[8..12]);
                claim.extend_from_slice(&[0, 13, 0, 0, 0, 0, 0, 0]);
                answering.send_to(&claim, from).unwrap();
            }
        }
    });

    let mut priorities = [0, 1].map(|_| {
        let mut version = [0; 16];
        wire.accept().unwrap().0.read_exact(&mut version).unwrap();
        u16::from_be_bytes([version[4], version[5]])
    });

    priorities.sort_unstable();
    assert_eq!(priorities, [0, 7]);
    assert!(context.channel_at("a", 100).is_err());
}

#[test]
fn all_handles_are_send_and_sync() {
    fn is_shared<T: Send + Sync>() {}

    is_shared::<Context>();
    is_shared::<Channel>();
    is_shared::<fodo_net::Operation<fodo_net::Reading>>();
    is_shared::<fodo_net::Monitor>();
    is_shared::<fodo_net::Error>();
    is_shared::<fodo_net::Server>();
    is_shared::<fodo_net::SharedPv>();
}
