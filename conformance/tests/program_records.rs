//! Records with DTYP Program behave as those of pythonSoftIOC: the same steps in both, seen by a client.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a panic is a sufficient failure message in a test")]

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use fodo_conformance::place::{self, free_port, python, script};
use fodo_conformance::process::{Process, restrict_to_loopback};
use fodo_data::{Severity, Status, TimeStamp};
use fodo_ioc::{IocBuilder, ProgramValue, RecordDefinition, RunningIoc};
use fodo_net::{ClientConfig, Context, ServerConfig, Value};
use serde_json::{Value as Json, json};

const PATIENCE: Duration = Duration::from_secs(20);

/// pythonSoftIOC, Fodo in this process, and a client of each.
struct Pair {
    theirs: Process,
    their_client: Context,
    prefix: String,
    ours: RunningIoc,
    our_client: Context,
    /// The values of `gap` that Fodo's program has received.
    updates: Receiver<f64>,
}

impl Pair {
    fn start() -> Pair {
        let (port, prefix) = (free_port(), place::prefix());
        let mut command = Command::new(python());
        command.arg(script("pythonsoftioc_program.py")).arg(&prefix);
        restrict_to_loopback(&mut command, port);
        let mut theirs = Process::start("pythonSoftIOC", &mut command).unwrap();
        theirs.wait_for_line_starting("ready", PATIENCE).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let their_client = Context::new(ClientConfig::with_addresses(vec![address]));
        let (sender, updates) = mpsc::channel();
        let ours = ours(sender);
        let our_client = Context::new(ours.client_config());
        Pair { theirs, their_client, prefix, ours, our_client, updates }
    }

    /// The value with its alarm, and the time in seconds.
    fn read(client: &Context, name: &str) -> (Value, Severity, i64) {
        let reading = client.channel(name).unwrap().get_timeout(PATIENCE).unwrap();
        (reading.value, reading.alarm.severity, reading.time.unix_s)
    }

    /// Waits until both have the same value and alarm. Returns their times.
    fn agree(&self, name: &str) -> [i64; 2] {
        let start = Instant::now();
        loop {
            let (value, severity, time) = Pair::read(&self.our_client, name);
            let theirs = Pair::read(&self.their_client, &format!("{}{name}", self.prefix));
            if (&value, severity) == (&theirs.0, theirs.1) {
                return [time, theirs.2];
            }
            assert!(start.elapsed() < PATIENCE, "{name}: {value:?} {severity}, pythonSoftIOC {theirs:?}");
        }
    }

    fn theirs(&mut self, method: &str, name: &str, arguments: Json) {
        self.theirs.write_line(&json!([method, name, arguments]).to_string()).unwrap();
        self.theirs.wait_for_line_starting("done", PATIENCE).unwrap();
    }

    /// Writes to both, and waits for the completion.
    fn put(&self, value: f64) {
        for (client, name) in
            [(&self.our_client, "gap".to_owned()), (&self.their_client, format!("{}gap", self.prefix))]
        {
            client.channel(&name).unwrap().put_timeout(value, PATIENCE).unwrap();
        }
    }

    /// Expects an update of both programs.
    fn updated(&mut self, value: f64) {
        let line = self.theirs.wait_for_line_starting("update gap", PATIENCE).unwrap();
        assert_eq!(line, format!("update gap {value:?}"));
        assert_eq!(self.updates.recv_timeout(PATIENCE).unwrap(), value);
    }
}

/// The same records as in `pythonsoftioc_program.py`, with the fields that its builder sets.
fn ours(updates: mpsc::Sender<f64>) -> RunningIoc {
    let input = |kind: &str, name: &str| {
        let record = RecordDefinition::new(kind, name).field("DTYP", "Program").field("SCAN", "I/O Intr");
        record.field("PINI", "YES").field("DISP", 1)
    };
    let mut builder = IocBuilder::new();
    for record in [
        input("ai", "t").value(1.0).field("HIGH", 5).field("HSV", "MINOR"),
        input("ai", "stamped").value(1.0).field("TSE", -2),
        input("longin", "n").value(1).field("MDEL", -1),
        input("bi", "b").value(0).field("ZNAM", "off").field("ONAM", "on").field("OSV", "MAJOR"),
        input("mbbi", "m")
            .value(0)
            .field("ZRST", "zero")
            .field("ONST", "one")
            .field("TWST", "two")
            .field("TWSV", "MINOR"),
        input("stringin", "s").value("first"),
        input("waveform", "w").value(vec![1.0, 2.0]).field("NELM", 4).field("FTVL", "DOUBLE"),
        RecordDefinition::new("ao", "gap").field("DTYP", "Program").value(10.0),
    ] {
        builder.define(&record).unwrap();
    }
    builder.on_output("gap", move |request| {
        let value = request.value().first().unwrap().to_f64().unwrap();
        if value >= 100.0 {
            return request.restore();
        }
        updates.send(value).unwrap();
        request.complete();
    });
    builder.build().unwrap().serve(ServerConfig::isolated()).unwrap()
}

#[test]
fn inputs_have_the_values_and_alarms_of_those_of_python_soft_ioc() {
    let mut pair = Pair::start();
    for name in ["t", "stamped", "n", "b", "m", "s", "w", "gap"] {
        pair.agree(name);
    }

    let (major, minor) = (Severity::Major, Severity::Minor);
    let steps: [(&str, Value, Json, Severity); 9] = [
        ("t", 3.0.into(), json!(3.0), Severity::None),
        ("t", 9.0.into(), json!(9.0), Severity::None),
        ("t", 9.5.into(), json!(9.5), major),
        ("n", 7.into(), json!(7), minor),
        ("b", 1.into(), json!(1), Severity::None),
        ("m", 2.into(), json!(2), Severity::None),
        ("m", 1.into(), json!(1), major),
        ("s", "text".into(), json!("text"), Severity::Invalid),
        ("w", vec![4.0, 5.0, 6.0].into(), json!([4.0, 5.0, 6.0]), minor),
    ];
    for (name, value, json_value, severity) in steps {
        let status = if severity == Severity::None { Status::NO_ALARM } else { Status::COMM };
        let set = ProgramValue::new(value).with_alarm(severity, status);
        pair.ours.record(name).unwrap().set_with(set).unwrap();
        pair.theirs("set", name, json!({"value": json_value, "severity": severity.code(), "alarm": status.0}));
        pair.agree(name);
    }

    let alarm = ProgramValue::unchanged().with_alarm(major, Status::READ);
    pair.ours.record("t").unwrap().set_with(alarm).unwrap();
    pair.theirs("set_alarm", "t", json!({"severity": 2, "alarm": 1}));
    pair.agree("t");

    let time = 1_600_000_000;
    let stamped = ProgramValue::new(2.0).at(TimeStamp { unix_s: time, nanos: 0 });
    pair.ours.record("stamped").unwrap().set_with(stamped).unwrap();
    pair.theirs("set", "stamped", json!({"value": 2.0, "timestamp": time}));
    assert_eq!(pair.agree("stamped"), [time, time]);
}

#[test]
fn outputs_are_updated_validated_and_set_as_those_of_python_soft_ioc() {
    let mut pair = Pair::start();

    pair.put(20.0);
    pair.updated(20.0);
    pair.agree("gap");

    // `validate` rejects it, and both keep the value before.
    pair.put(200.0);
    pair.agree("gap");
    assert_eq!(pair.ours.record("gap").unwrap().read().value, Value::from(20.0));

    pair.ours.record("gap").unwrap().put(30.0).unwrap();
    pair.theirs.write_line(&json!(["set", "gap", {"value": 30.0}]).to_string()).unwrap();
    pair.updated(30.0);
    pair.agree("gap");

    // Without processing, the program's own value causes no update.
    pair.ours.record("gap").unwrap().set(40.0).unwrap();
    pair.theirs.write_line(&json!(["set", "gap", {"value": 40.0, "process": false}]).to_string()).unwrap();
    pair.agree("gap");
    pair.put(50.0);
    pair.updated(50.0);
    pair.agree("gap");
}
