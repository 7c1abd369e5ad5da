//! Links over pvAccess: every pair of `fodo ioc` and the IOC of pvxs as the near and the far one, and both with p4p's
//! server.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use fodo_conformance::place::database;
use fodo_conformance::server::{ServerProgram, TestServer};
use fodo_net::{
    ClientConfig, Context, Detail, NodeValue, PvRequest, PvaClientConfig, Request, Scalar, Structure, TimeStamp, Value,
};

/// Maximum time of any step.
const PATIENCE: Duration = Duration::from_secs(60);

/// One server with a client of both protocols.
struct Side {
    server: TestServer,
    client: Context,
}

impl Side {
    fn new(server: TestServer) -> Side {
        let pva = PvaClientConfig::with_addresses(server.pva_search_addresses());
        let client = Context::new(ClientConfig { pva, ..ClientConfig::with_addresses(vec![server.address()]) });
        Side { server, client }
    }

    fn put(&self, name: &str, value: impl Into<Value>) {
        let channel = self.client.channel(&format!("ca://{}", self.server.pv(name))).unwrap();
        channel.put_timeout(value, PATIENCE).unwrap();
    }

    fn time(&self, name: &str) -> TimeStamp {
        self.client.channel(&format!("ca://{}", self.server.pv(name))).unwrap().get_timeout(PATIENCE).unwrap().time
    }

    fn text(&self, name: &str) -> String {
        let channel = self.client.channel(&format!("ca://{}", self.server.pv(name))).unwrap();
        let value = channel.get_timeout(PATIENCE).unwrap().value;
        let texts = (0..value.len()).filter_map(|index| match &value {
            Value::Scalar(scalar) => Some(scalar.clone()),
            Value::Array(array) => array.scalar(index),
        });
        texts.map(|scalar| shown(&scalar)).collect::<Vec<_>>().join(" ")
    }

    /// Value, SEVR, STAT and AMSG as text.
    fn state(&self, name: &str) -> String {
        let [severity, status, message] = ["SEVR", "STAT", "AMSG"].map(|field| self.text(&format!("{name}.{field}")));
        // softIoc keeps the message of an alarm that was raised twice and has cleared.
        let message = if severity == "#0" { String::new() } else { message };
        format!("{} | {severity} {status} {message}", self.text(name)).trim_end().to_owned()
    }

    /// Waits until each record has the expected state.
    #[track_caller]
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

    fn structure(&self, name: &str) -> Structure {
        let channel = self.client.channel(&format!("pva://{}", self.server.pv(name))).unwrap();
        channel.get_structure_timeout(&PvRequest::default(), PATIENCE).unwrap()
    }

    fn put_structure(&self, name: &str, fields: &[(&str, Value)]) {
        let channel = self.client.channel(&format!("pva://{}", self.server.pv(name))).unwrap();
        let fields = fields.iter().map(|(path, value)| ((*path).to_owned(), NodeValue::Value(value.clone())));
        channel.put_structure_timeout(&PvRequest::default(), fields.collect(), PATIENCE).unwrap();
    }
}

fn shown(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Text(text) => text.to_string(),
        Scalar::Enum(index) => format!("#{index}"),
        number => number.to_f64().unwrap_or(f64::NAN).to_string(),
    }
}

/// Tests a pair of IOCs; the expected behaviour was observed with the IOC of pvxs at both ends.
fn links_do_what_pvxs_does(near: ServerProgram, far: ServerProgram) {
    let far = TestServer::start_pva_on(far, &database("pva_far.db")).unwrap();
    let near = TestServer::start_pva_linked(near, &database("pva_near.db"), &far).unwrap();
    let (near, mut far) = (Side::new(near), Side::new(far));
    inputs_follow(&near, &far);
    fields_units_and_times_are_read(&near, &far);
    unconnected_links_raise_alarms(&near);
    outputs_write(&near, &far);
    a_restart_is_survived(&near, &mut far);
}

fn inputs_follow(near: &Side, far: &Side) {
    near.becomes(&[
        ("cp", "1.5 | #0 #0"),
        ("cpp", "1.5 | #0 #0"),
        ("queued", "1.5 | #0 #0"),
        ("state", "off | #0 #0"),
        ("index", "0 | #0 #0"),
        ("number", "42.5 | #0 #0"),
        ("local", "3 | #0 #0"),
        ("late", "1 | #0 #0"),
        ("msi_broken", "0 | #3 #14 UDF"),
    ]);
    for name in ["plain", "npp", "pp", "cpp_active"] {
        assert_eq!(near.text(name), "0", "{name} processes only when something else processes it");
    }

    far.put("ao", 12.0);
    far.put("switch", "on");
    far.put("string", "-3");
    far.put("array", vec![1.75, 2.5]);
    far.put("texts", vec![fodo_net::Text::from("one"), "two".into()]);
    near.becomes(&[
        ("cp", "12 | #0 #0"),
        ("cpp", "12 | #0 #0"),
        ("nms", "12 | #0 #0"),
        ("ms", "12 | #1 #14 HIGH"),
        ("true", "12 | #1 #14 HIGH"),
        ("mss", "12 | #1 #14 HIGH"),
        ("msi", "12 | #0 #0"),
        ("false", "12 | #0 #0"),
        ("queued", "12 | #0 #0"),
        ("late", "1 | #0 #0"),
        ("state", "on | #0 #0"),
        ("index", "1 | #0 #0"),
        ("number", "-3 | #0 #0"),
        ("array", "1 2 | #0 #0"),
        ("texts", "one two | #0 #0"),
        ("first", "1.75 | #0 #0"),
        ("both", "13 | #0 #0"),
        ("calculated", "13 | #0 #0"),
        ("highest", "12 | #0 #0"),
    ]);
    for name in ["plain", "npp", "pp", "cpp_active"] {
        near.put(&format!("{name}.PROC"), 1);
        near.becomes(&[(name, "12 | #0 #0")]);
    }

    far.put("ao", 25.0);
    far.put("broken.PROC", 1);
    near.becomes(&[
        ("ms", "25 | #2 #14 HIHI"),
        ("mss", "25 | #2 #14 HIHI"),
        ("msi", "25 | #0 #0"),
        ("late", "1 | #0 #0"),
        ("msi_broken", "0 | #3 #14 field INP"),
    ]);
}

fn fields_units_and_times_are_read(near: &Side, far: &Side) {
    near.becomes(&[("precision", "3 | #0 #0"), ("units", "mm | #0 #0"), ("severity", "2 | #0 #0")]);
    let control = Request { detail: Detail::Control, ..Request::default() };
    let channel = near.client.channel(&format!("ca://{}", near.server.pv("meta.A"))).unwrap();
    let meta = channel.get_with_timeout(control, PATIENCE).unwrap().meta.unwrap();
    assert_eq!((meta.units.to_str().as_ref(), meta.precision, meta.display.high), ("mm", 3, 20.0));
    near.becomes(&[("timed", "25 | #0 #0")]);
    assert_eq!(near.time("timed"), far.time("ao"));

    let link = format!("{{\"pva\":{{\"pv\":\"{}\",\"proc\":\"CP\"}}}}\0", far.server.pv("forwarded"));
    near.put("moved.INP$", link.into_bytes());
    near.becomes(&[("moved", "0 | #0 #0")]);
}

fn unconnected_links_raise_alarms(near: &Side) {
    near.put("absent.PROC", 1);
    near.becomes(&[("absent", "7 | #3 #14 INP Disconn")]);
    near.put("unwritten", 3.0);
    near.becomes(&[("unwritten", "3 | #3 #14 field OUT")]);
}

fn outputs_write(near: &Side, far: &Side) {
    for name in ["default", "never", "always", "active"] {
        near.put(name, 5.0);
    }
    far.becomes(&[("default:n", "1 | #0 #0"), ("always:n", "1 | #0 #0")]);
    let values = ["default", "never", "always", "active"].map(|name| {
        let start = Instant::now();
        while far.text(name) != "5" {
            assert!(start.elapsed() < PATIENCE, "{name} is not written");
        }
        far.text(&format!("{name}:n"))
    });
    assert_eq!(values, ["1", "0", "1", "0"], "how often the record of default, never, always, active has processed");

    near.put("forward.PROC", 1);
    near.put("whole", 17.0);
    near.put("name", 43);
    near.put("chosen", 1);
    far.becomes(&[
        ("forwarded", "1 | #0 #0"),
        ("whole", "17 | #0 #0"),
        ("name", "43 | #0 #0"),
        ("chosen", "#1 | #0 #0"),
    ]);
    near.becomes(&[("moved", "1 | #0 #0")]);
    near.put("array_out", vec![4.0, 5.0, 6.0]);
    near.becomes(&[("array", "4 5 6 | #0 #0")]);
    near.put("waits", 2.0);
    assert_eq!(far.text("done"), "2", "a put through an asynchronous output ends after all that it starts");
}

fn a_restart_is_survived(near: &Side, far: &mut Side) {
    let updated = far.time("ao");
    assert_eq!(near.time("timed"), updated);
    far.server.kill();
    // CP processes at the loss, without anything else.
    near.becomes(&[("cp", "25 | #3 #14 INP Disconn"), ("nms", "25 | #3 #14 INP Disconn")]);
    near.becomes(&[("timed", "25 | #3 #14 INPA Disconn")]);
    assert!(near.time("timed") > updated, "the time of the loss");
    near.put("kept", 9.0);
    near.put("default", 6.0);
    near.becomes(&[("kept", "9 | #0 #0"), ("default", "6 | #3 #14 field OUT")]);
    far.server.restart().unwrap();

    near.becomes(&[("cp", "1.5 | #0 #0"), ("ms", "1.5 | #0 #0"), ("state", "off | #0 #0"), ("moved", "0 | #0 #0")]);
    let start = Instant::now();
    while far.text("kept") != "9" {
        assert!(start.elapsed() < PATIENCE, "the put is not retried");
    }
    assert_eq!(far.text("default"), "0", "a put without retry is lost");
}

#[test]
fn pvxs_links_to_pvxs_behave_as_expected() {
    links_do_what_pvxs_does(ServerProgram::Qsrv2, ServerProgram::Qsrv2);
}

#[test]
fn fodo_links_to_pvxs_behave_as_pvxs_links() {
    links_do_what_pvxs_does(ServerProgram::Fodo, ServerProgram::Qsrv2);
}

#[test]
fn pvxs_links_to_fodo_behave_as_links_to_pvxs() {
    links_do_what_pvxs_does(ServerProgram::Qsrv2, ServerProgram::Fodo);
}

#[test]
fn fodo_links_to_fodo_behave_as_pvxs_links() {
    links_do_what_pvxs_does(ServerProgram::Fodo, ServerProgram::Fodo);
}

/// Links to structures that Python serves.
fn links_work_with_p4p(near: ServerProgram) {
    let far = TestServer::start_pva(ServerProgram::P4p).unwrap();
    let near = TestServer::start_pva_linked(near, &database("pva_pair.db"), &far).unwrap();
    let (near, far) = (Side::new(near), Side::new(far));
    near.becomes(&[("ms", "1.5 | #0 #0"), ("union", "1.5 | #0 #0"), ("sum", "0 | #0 #0")]);

    let alarm = [("value", 4.5.into()), ("alarm.severity", 2.into()), ("alarm.message", "the pump is dry".into())];
    far.put_structure("raw", &alarm);
    near.becomes(&[("ms", "4.5 | #2 #14 the pump is dry"), ("timed", "4.5 | #0 #0")]);
    let stamp = far.structure("raw");
    let number = |path: &str| stamp.get(path).and_then(|value| value.to_f64().ok()).unwrap();
    let expected = (number("timeStamp.secondsPastEpoch") as i64, number("timeStamp.nanoseconds") as u32);
    let time = near.time("timed");
    assert_eq!((time.unix_s, time.nanos), expected);

    // Deferred: the value waits for the next put.
    near.put("out_a", 1.0);
    near.put("out_b", 2.0);
    near.becomes(&[("sum", "3 | #0 #0"), ("a", "1 | #0 #0")]);
    let puts = |fields: &[&str]| -> Vec<String> {
        let pair = far.structure("pair");
        fields.iter().map(|field| shown(&pair.get(field).and_then(Value::first).unwrap())).collect()
    };
    assert_eq!(puts(&["n_puts", "fields", "process"]), ["1", "a b", "false"], "one put with both fields");
    near.put("out_a", 10.0);
    near.put("forward.PROC", 1);
    near.becomes(&[("sum", "12 | #0 #0")]);
    assert_eq!(puts(&["n_puts", "process"]), ["2", "true"], "a forward link sends what is deferred");
    near.put("forward.PROC", 1);
    let start = Instant::now();
    while puts(&["n_puts", "process"]) != ["3", "true"] {
        assert!(start.elapsed() < PATIENCE, "a forward link processes");
    }
    if near.server.kind == ServerProgram::Fodo {
        // pvxs sends the fields of earlier puts again.
        assert_eq!(puts(&["fields"]), [""], "without a value");
    }
}

#[test]
fn pvxs_links_to_p4p_behave_as_expected() {
    links_work_with_p4p(ServerProgram::Qsrv2);
}

#[test]
fn fodo_links_to_p4p_behave_as_pvxs_links() {
    links_work_with_p4p(ServerProgram::Fodo);
}

/// Links to the members of a group, which are read and written together.
fn links_to_a_group(near: ServerProgram, far: ServerProgram) {
    let far = TestServer::start_pva_on(far, &database("pva_group_far.db")).unwrap();
    let near = TestServer::start_pva_linked(near, &database("pva_group_near.db"), &far).unwrap();
    let (near, far) = (Side::new(near), Side::new(far));
    near.becomes(&[("first", "1 | #0 #0"), ("same", "1 | #0 #0")]);

    for value in [7.0, 8.0, 30.0] {
        near.put("out_a", value);
        near.put("out_b", value);
        let state = if value > 20.0 { "30 | #2 #14 HIHI".to_owned() } else { format!("{value} | #0 #0") };
        near.becomes(&[("first", state.as_str()), ("same", "1 | #0 #0")]);
        assert_eq!([far.text("a"), far.text("b")], [value.to_string(), value.to_string()]);
    }
}

#[test]
fn pvxs_links_to_a_group_behave_as_expected() {
    links_to_a_group(ServerProgram::Qsrv2, ServerProgram::Qsrv2);
}

#[test]
fn fodo_links_to_a_group_behave_as_pvxs_links() {
    links_to_a_group(ServerProgram::Fodo, ServerProgram::Qsrv2);
}

#[test]
fn pvxs_links_to_a_group_of_fodo_behave_as_expected() {
    links_to_a_group(ServerProgram::Qsrv2, ServerProgram::Fodo);
}

#[test]
fn fodo_links_to_a_group_of_fodo_behave_as_expected() {
    links_to_a_group(ServerProgram::Fodo, ServerProgram::Fodo);
}
