//! Channels with filters, from the requested name to the received updates.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that stops has said enough")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fodo_ca::message::{self, Answer, Header, Request};
use fodo_db::States;
use fodo_engine::Cid;
use fodo_ioc::{Ioc, RunningIoc};
use fodo_net::log::{Level, Log, LogLine};
use fodo_net::{Channel, Context, ErrorKind, MonitorEvent, MonitorOptions, Refusal, ServerConfig, Value};

const PATIENCE: Duration = Duration::from_secs(30);

const RECORDS: &str = r#"
record(ao, "f:ao") { field(VAL, "3") field(PINI, "YES") }
record(waveform, "f:wave") { field(FTVL, "LONG") field(NELM, "8") field(INP, "[10,11,12,13,14,15]") }
"#;

type Lines = Arc<Mutex<Vec<LogLine>>>;

/// An IOC with the records, and its log.
fn ioc() -> (RunningIoc, States, Lines) {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("filters-{}.db", std::process::id()));
        std::fs::write(&file, RECORDS).unwrap();
        file
    });
    let ioc = Ioc::load(&[(file.clone(), String::new())]).unwrap();
    let states = ioc.states().clone();
    let config = ServerConfig::isolated();
    let lines = Lines::default();
    let kept = lines.clone();
    let log = Log::new(Level::Warning, move |line| kept.lock().unwrap().push(line.clone()));
    (ioc.serve_with_log(config, log).unwrap(), states, lines)
}

fn client(ioc: &RunningIoc) -> Context {
    Context::new(ioc.client_config())
}

fn value(channel: &Channel) -> Value {
    channel.get_timeout(PATIENCE).unwrap().value
}

#[test]
fn an_array_slice_is_read_and_monitored_and_the_channel_reports_its_size() {
    let (ioc, ..) = ioc();
    let context = client(&ioc);
    let whole = context.channel("f:wave").unwrap();
    let part = context.channel("f:wave.[-3:-1]").unwrap();

    let facts = part.connect_timeout(PATIENCE).unwrap();
    let monitor = part.monitor(MonitorOptions::default());
    let first = next_values(&monitor, 1);
    whole.put_timeout(vec![1, 2, 3, 4], PATIENCE).unwrap();

    assert_eq!(facts.count_max, 3);
    assert_eq!(first, [Value::from(vec![13, 14, 15])]);
    assert_eq!(next_values(&monitor, 1), [Value::from(vec![2, 3, 4])]);
    assert_eq!(value(&part), Value::from(vec![2, 3, 4]));
    assert_eq!(value(&whole), Value::from(vec![1, 2, 3, 4]));
}

/// The next updates of a monitor.
fn next_values(monitor: &fodo_net::Monitor, n: usize) -> Vec<Value> {
    let mut values = Vec::new();
    while values.len() < n {
        match monitor.next_timeout(PATIENCE).expect("an update") {
            MonitorEvent::Update(update) => values.push(update.value),
            MonitorEvent::Connected(_) => {}
            other => panic!("{other:?}"),
        }
    }
    values
}

#[test]
fn filter_state_is_per_channel_and_gets_always_pass() {
    let (ioc, ..) = ioc();
    let context = client(&ioc);
    let ao = context.channel("f:ao").unwrap();
    let monitors: Vec<_> = ["f:ao", "f:ao.{dbnd:{abs:1.5}}", "f:ao.{dec:{n:3}}"]
        .into_iter()
        .map(|name| {
            let channel = context.channel(name).unwrap();
            let monitor = channel.monitor(MonitorOptions::default());
            assert_eq!(next_values(&monitor, 1), [Value::from(3.0)], "{name}");
            (channel, monitor)
        })
        .collect();

    for number in [4.0, 5.0, 6.0, 7.0, 20.0] {
        ao.put_timeout(number, PATIENCE).unwrap();
        assert!(monitors.iter().all(|(channel, _)| value(channel) == Value::from(number)), "{number}");
    }

    assert_eq!(next_values(&monitors[0].1, 5), [4.0, 5.0, 6.0, 7.0, 20.0].map(Value::from));
    assert_eq!(next_values(&monitors[1].1, 3), [5.0, 7.0, 20.0].map(Value::from));
    assert_eq!(next_values(&monitors[2].1, 1), [6.0].map(Value::from));
}

#[test]
fn a_subscription_with_a_sync_filter_sends_no_initial_update_while_its_state_is_off() {
    let (ioc, states, _) = ioc();
    let beam = states.create("beam");
    let context = client(&ioc);
    let ao = context.channel("f:ao").unwrap();
    let waiting = context.channel("f:ao.{sync:{while:'beam'}}").unwrap();
    let monitor = waiting.monitor(MonitorOptions::default());
    // Responses arrive in the order of requests, so the subscription exists before the put.
    assert_eq!(value(&waiting), Value::from(3.0));

    for (is_on, number) in [(false, 1.0), (true, 2.0), (false, 4.0), (true, 5.0)] {
        beam.set(is_on);
        ao.put_timeout(number, PATIENCE).unwrap();
    }

    assert_eq!(next_values(&monitor, 2), [2.0, 5.0].map(Value::from));
    assert_eq!(monitor.counts().delivered, 2);
}

#[test]
fn a_ts_filter_channel_reads_the_time_stamp_and_writes_the_field() {
    let (ioc, ..) = ioc();
    let context = client(&ioc);
    let stamp = context.channel("f:ao.{ts:{num:'dbl',epoch:'unix'}}").unwrap();

    stamp.put_timeout(5.0, PATIENCE).unwrap();

    let at = context.channel("f:ao").unwrap().get_timeout(PATIENCE).unwrap();
    assert_eq!(at.value, Value::from(5.0));
    let expected = at.time.unix_s as f64 + f64::from(at.time.nanos) * 1e-9;
    assert_eq!(value(&stamp), Value::from(expected));
}

/// A connection that has sent its protocol version.
fn raw(ioc: &RunningIoc) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", ioc.tcp_port())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    Request::Version { priority: 0, minor: 13, sequence: 0 }.header(0).encode(&mut bytes);
    stream.write_all(&bytes).unwrap();
    stream
}

/// The response to a request to create a channel.
fn created(stream: &mut TcpStream, cid: u32, name: &str) -> Answer {
    let mut bytes = Vec::new();
    let request = Request::CreateChan { cid: Cid(cid), minor: 13 };
    message::encode_text(&mut bytes, |size| request.header(size), name.as_bytes());
    stream.write_all(&bytes).unwrap();
    loop {
        let mut bytes = [0; message::HEADER_BYTES];
        stream.read_exact(&mut bytes).unwrap();
        let (header, _) = Header::decode(&bytes).unwrap();
        std::io::copy(&mut stream.take(header.payload_bytes.into()), &mut std::io::sink()).unwrap();
        let answer = Answer::from_header(&header);
        if matches!(answer, Answer::CreateChan { .. } | Answer::CreateChFail { .. }) {
            return answer;
        }
    }
}

// Row 29 of docs/reference/faults.md.
#[test]
fn an_invalid_filter_fails_its_channel_and_is_logged_once() {
    let (ioc, _, lines) = ioc();
    let mut gateway = raw(&ioc);
    let deep = format!("f:ao.{{dbnd:{}", "[".repeat(400));
    let bad = ["f:ao.{dbnd:{abs:1}", "f:ao.{nope:{}}", "f:ao.[1", "f:ao.{sync:{while:'dark'}}", &deep];

    for cid in 0..40 {
        for name in bad {
            assert_eq!(created(&mut gateway, cid, name), Answer::CreateChFail { cid: Cid(cid) }, "{name}");
        }
    }

    let lines = lines.lock().unwrap();
    assert_eq!(lines.len(), bad.len(), "{lines:?}");
    let said: Vec<&str> = lines.iter().map(|line| line.what.as_str()).collect();
    assert!(said[0].starts_with("a channel is refused: expected ',' or '}'"), "{said:?}");
    assert!(said[1].contains("unknown filter \"nope\""), "{said:?}");
    assert!(said[4].contains("nested too deep"), "{said:?}");
    assert!(matches!(created(&mut gateway, 99, "f:ao.{dbnd:{abs:1}}"), Answer::CreateChan { .. }));
}

// Row 29 of docs/reference/faults.md.
#[test]
fn a_channel_name_with_fifteen_thousand_brackets_fails_only_its_own_channel() {
    let (ioc, ..) = ioc();
    let mut gateway = raw(&ioc);
    assert!(matches!(created(&mut gateway, 1, "f:ao"), Answer::CreateChan { .. }));

    let answer = created(&mut gateway, 2, &format!("f:ao.{}", "{".repeat(15_000)));

    assert_eq!(answer, Answer::CreateChFail { cid: Cid(2) });
    assert!(matches!(created(&mut gateway, 3, "f:wave.[1]"), Answer::CreateChan { .. }));
}

#[test]
fn a_client_receives_a_refusal_for_a_channel_with_an_invalid_filter() {
    let (ioc, ..) = ioc();

    let refused = client(&ioc).channel("f:ao.{dbnd:1}").unwrap().get_timeout(PATIENCE).unwrap_err();

    assert!(matches!(refused.kind(), ErrorKind::Refused { refusal: Refusal::Channel { .. }, .. }), "{refused:?}");
}
