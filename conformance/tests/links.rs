//! Links between IOCs: every pair of softIoc and `fodo ioc` as the near and the far one, then guarantees of `fodo ioc`
//! only.
#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use fodo_conformance::place::{database, free_port, program};
use fodo_conformance::process::{Process, restrict_to_loopback};
use fodo_conformance::server::{ServerProgram, TestServer};
use fodo_net::{ClientConfig, Context, Detail, Request, Scalar, Value};
use rustix::process::Signal;

/// Maximum time of any step.
const PATIENCE: Duration = Duration::from_secs(60);

/// One server with a client.
struct End {
    server: TestServer,
    client: Context,
}

impl End {
    fn new(server: TestServer) -> End {
        let client = Context::new(ClientConfig::with_addresses(vec![server.address()]));
        End { server, client }
    }

    fn put(&self, name: &str, value: impl Into<Value>) {
        let channel = self.client.channel(&self.server.pv(name)).unwrap();
        channel.put_timeout(value, PATIENCE).unwrap();
    }

    fn text(&self, name: &str) -> String {
        let channel = self.client.channel(&self.server.pv(name)).unwrap();
        let value = channel.get_timeout(PATIENCE).unwrap().value;
        let texts = (0..value.len()).filter_map(|index| match &value {
            Value::Scalar(scalar) => Some(scalar.clone()),
            Value::Array(array) => array.scalar(index),
        });
        texts.map(|scalar| format!("{}", Shown(scalar))).collect::<Vec<_>>().join(" ")
    }

    /// Value, SEVR, STAT and AMSG as text.
    fn state(&self, name: &str) -> String {
        let record = name.split('.').next().unwrap_or(name);
        let [severity, status, message] = ["SEVR", "STAT", "AMSG"].map(|field| self.text(&format!("{record}.{field}")));
        // softIoc 7.0.10 shows "(null)" for a message that Channel Access does not transfer, and keeps the message of
        // an alarm that was raised twice and has cleared.
        let message = if severity == "#0" { String::new() } else { message.replace("(null)", "") };
        format!("{} | {severity} {status} {message}", self.text(name)).trim_end().to_owned()
    }

    /// Waits until each record has the expected state.
    fn becomes(&self, expected: &[(&str, &str)]) {
        for (name, expected) in expected {
            let start = Instant::now();
            loop {
                let state = self.state(name);
                if state == *expected {
                    break;
                }
                let kind = self.server.kind;
                assert!(start.elapsed() < PATIENCE, "{kind:?}: {name} is \"{state}\", and not \"{expected}\"");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

struct Shown(Scalar);

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Scalar::Text(text) => write!(f, "{text}"),
            Scalar::Enum(index) => write!(f, "#{index}"),
            number => write!(f, "{}", number.to_f64().unwrap_or(f64::NAN)),
        }
    }
}

fn pair(near: ServerProgram, far: ServerProgram) -> (End, End) {
    let far = TestServer::start_on(far, &database("far.db")).unwrap();
    let near = TestServer::start_linked(near, &database("near.db"), &far).unwrap();
    (End::new(near), End::new(far))
}

/// Tests a pair of IOCs; the expected behaviour was observed with softIoc at both ends.
fn links_do_what_base_does(near: ServerProgram, far: ServerProgram) {
    let (near, mut far) = pair(near, far);
    inputs_follow(&near, &far);
    outputs_write(&near, &far);
    units_times_and_new_links(&near, &far);
    a_restart_is_survived(&near, &mut far);
}

fn inputs_follow(near: &End, far: &End) {
    near.becomes(&[
        ("ms", "1.5 | #0 #0"),
        ("whole", "1 | #0 #0"),
        ("text", "1.500000 | #0 #0"),
        ("state", "off | #0 #0"),
        ("index", "0 | #0 #0"),
        ("number", "42.5 | #0 #0"),
        ("units", "1.5 | #0 #0"),
        ("disabled", "1 | #0 #0"),
    ]);
    // softIoc checks these links for the first time when the record processes.
    near.put("joined.PROC", 1);
    near.becomes(&[
        ("joined.INAV", "#1 | #3 #14 field INPB"),
        ("joined.OUTV", "#1 | #3 #14 field INPB"),
        ("joined.INBV", "#0 | #3 #14 field INPB"),
    ]);

    far.put("ao", 12.25);
    far.put("bi", "on");
    far.put("string", "-3");
    far.put("array", vec![1.75, 2.5]);
    near.becomes(&[
        ("nms", "12.25 | #0 #0"),
        ("ms", "12.25 | #2 #14"),
        ("mss", "12.25 | #2 #3"),
        ("msi", "12.25 | #0 #0"),
        ("state", "on | #0 #0"),
        ("index", "1 | #0 #0"),
        ("number", "-3 | #0 #0"),
        ("array", "1 2 | #0 #0"),
        ("first", "1.75 | #0 #0"),
        ("disabled", "1 | #0 #18"),
    ]);

    near.put("absent.PROC", 1);
    near.becomes(&[("absent", "7 | #3 #14 field INP")]);
}

fn outputs_write(near: &End, far: &End) {
    near.put("unwritten", 3.0);
    near.becomes(&[("unwritten", "3 | #3 #14 field OUT")]);

    near.put("out", 5.5);
    near.put("whole_out", 17);
    near.put("switch_out", "on");
    far.becomes(&[("target", "5.5 | #0 #0"), ("chain", "1 | #0 #0"), ("count", "1 | #0 #0")]);
    far.becomes(&[("name", "17 | #0 #0"), ("switch", "#1 | #0 #0")]);
    near.put("array_out", vec![4.0, 5.0, 6.0]);
    near.becomes(&[("array", "4 5 6 | #0 #0")]);
    near.put("waits", 2.0);
    assert_eq!(far.text("done"), "2", "a put through an asynchronous output ends after all that it starts");
}

fn units_times_and_new_links(near: &End, far: &End) {
    let control = Request { detail: Detail::Control, ..Request::default() };
    let units = near.client.channel(&near.server.pv("units.A")).unwrap().get_with_timeout(control, PATIENCE).unwrap();
    let meta = units.meta.unwrap();
    assert_eq!((meta.units.to_str().as_ref(), meta.precision, meta.display.high), ("mm", 3, 20.0));
    near.put("timed.PROC", 1);
    let time = |end: &End, name| end.client.channel(&end.server.pv(name)).unwrap().get_timeout(PATIENCE).unwrap().time;
    assert_eq!(time(near, "timed"), time(far, "ao"));

    near.put("moved.INP", format!("{} CP", far.server.pv("target")).as_str());
    near.becomes(&[("moved", "5.5 | #0 #0")]);
}

fn a_restart_is_survived(near: &End, far: &mut End) {
    far.server.kill();
    let looks_lost = |name: &str, expected: &str| {
        // softIoc 7.0.10 does not process a record when its link disconnects.
        near.put(&format!("{name}.PROC"), 1);
        near.state(name) == expected
    };
    let start = Instant::now();
    while !looks_lost("ms", "12.25 | #3 #14 field INP") {
        assert!(start.elapsed() < PATIENCE, "the disconnect is not noticed");
    }
    near.becomes(&[("ms", "12.25 | #3 #14 field INP"), ("joined.INAV", "#0 | #3 #14 field INPB")]);
    far.server.restart().unwrap();
    near.becomes(&[("ms", "1.5 | #0 #0"), ("moved", "0 | #0 #0"), ("state", "off | #0 #0")]);
}

#[test]
fn softioc_links_to_softioc_behave_as_expected() {
    links_do_what_base_does(ServerProgram::SoftIoc, ServerProgram::SoftIoc);
}

#[test]
fn fodo_links_to_softioc_behave_as_softioc_links() {
    links_do_what_base_does(ServerProgram::Fodo, ServerProgram::SoftIoc);
}

#[test]
fn softioc_links_to_fodo_behave_as_links_to_softioc() {
    links_do_what_base_does(ServerProgram::SoftIoc, ServerProgram::Fodo);
}

#[test]
fn fodo_links_to_fodo_behave_as_softioc_links() {
    links_do_what_base_does(ServerProgram::Fodo, ServerProgram::Fodo);
}

/// A temporary database file; removed when dropped.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("fodo-conformance-{name}-{}.db", std::process::id()));
        std::fs::write(&path, text).unwrap();
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A file that remains in the temporary directory does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The totals in the last line of `dbcar`.
fn totals(near: &mut TestServer) -> Vec<u64> {
    near.process().write_line("dbcar").unwrap();
    loop {
        let line = near.process().line(PATIENCE).unwrap();
        if line.contains("lead to other IOCs") {
            return line
                .split(|character: char| !character.is_ascii_digit())
                .filter_map(|word| word.parse().ok())
                .collect();
        }
    }
}

#[test]
fn link_updates_to_a_suspended_server_are_merged_and_counted() {
    let file = File::new(
        "slow",
        r#"record(calc, "$(P)n") { field(CALC, "VAL+1") field(SCAN, ".1 second") field(FLNK, "$(P)big") }
           record(aao, "$(P)big") { field(FTVL, "DOUBLE") field(NELM, "500000") field(OUT, "$(FAR)array") }
           record(ao, "$(P)small") { field(OUT, "$(FAR)target PP") }"#,
    );
    let far_file = File::new(
        "slow-far",
        r#"record(waveform, "$(P)array") { field(FTVL, "DOUBLE") field(NELM, "500000") } record(ao, "$(P)target") {}"#,
    );
    let mut far = End::new(TestServer::start_on(ServerProgram::SoftIoc, &far_file.0).unwrap());
    let mut near = End::new(TestServer::start_linked(ServerProgram::Fodo, &file.0, &far.server).unwrap());
    near.put("big", vec![0.5; 500_000]);
    let until = |what: &str, near: &mut End, is_reached: &dyn Fn(&[u64]) -> bool| {
        let start = Instant::now();
        while !is_reached(&totals(&mut near.server)) {
            assert!(start.elapsed() < PATIENCE, "timeout while waiting until {what}");
        }
    };
    until("connected", &mut near, &|totals| totals[1] == 2);

    far.server.process().signal(Signal::STOP).unwrap();
    until("merged", &mut near, &|totals| totals[4] > 3);
    near.put("small", 1.0);
    near.put("small", 2.0);
    far.server.process().signal(Signal::CONT).unwrap();

    far.becomes(&[("target", "2 | #0 #0")]);
}

// Row 58 of docs/reference/faults.md.
#[test]
fn ctrl_c_and_exit_end_an_ioc_with_pending_links_at_once() {
    let file = File::new(
        "ends",
        r#"record(calc, "$(P)n") { field(CALC, "VAL+1") field(INPA, "$(FAR)n CP") }
           record(ai, "$(P)absent") { field(INP, "$(FAR)absent CP") }
           record(ao, "$(P)waits") { field(DTYP, "Async Soft Channel") field(OUT, "$(FAR)slow.A CA") }"#,
    );
    let far_file = File::new(
        "ends-far",
        r#"record(calc, "$(P)n") { field(CALC, "VAL+1") field(SCAN, ".1 second") }
           record(calcout, "$(P)slow") { field(CALC, "A") field(ODLY, "1000") }"#,
    );
    for ending in ["signal", "exit"] {
        let mut far = End::new(TestServer::start_on(ServerProgram::SoftIoc, &far_file.0).unwrap());
        let mut near = End::new(TestServer::start_linked(ServerProgram::Fodo, &file.0, &far.server).unwrap());
        let start = Instant::now();
        while totals(&mut near.server)[1] < 2 || near.text("n") == "0" {
            assert!(start.elapsed() < PATIENCE, "the links never connect");
        }
        let put = format!("dbpf {} 1", near.server.pv("waits"));
        near.server.process().write_line(&put).unwrap();
        far.server.process().signal(Signal::STOP).unwrap();

        if ending == "exit" {
            near.server.process().write_line("exit").unwrap();
        }
        // A signal after `exit` has no effect. A peer that is stopped, and a put that takes longer, would never end.
        let status = near.server.stop(Signal::INT).unwrap();

        assert!(status.success(), "{ending}: {status}");
    }
}

#[test]
fn an_ioc_with_unresolvable_links_still_serves_its_records() {
    let port = free_port();
    let mut command = Command::new(program());
    command.args(["ioc", "-m", "P=n:,FAR=nobody:", "-d"]).arg(database("near.db"));
    command.args(["--interface", "127.0.0.1", "--port", &port.to_string()]);
    restrict_to_loopback(&mut command, port);
    command.env("EPICS_CA_ADDR_LIST", "no-such-host.invalid");
    let mut near = Process::start("fodo ioc", &mut command).unwrap();
    near.wait_for_line_starting("fodo ioc: serving", PATIENCE).unwrap();

    let client = Context::new(ClientConfig::with_addresses(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))]));
    client.channel("n:ms.PROC").unwrap().put_timeout(1, PATIENCE).unwrap();

    let alarm = client.channel("n:ms").unwrap().get_timeout(PATIENCE).unwrap().alarm;
    assert_eq!((alarm.severity.code(), alarm.status.0), (3, 14));
    near.stop(Signal::INT, PATIENCE).unwrap();
}
