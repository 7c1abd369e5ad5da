//! Compares the output of these tools with captured output of the EPICS tools for the same PVs.
//!
//! The PVs here have the readings that softIoc returned for `tests/golden/golden.db`; the captured files describe how
//! they were made. The behaviour of the originals was learned from these files and from their published source; only
//! their output is reproduced. Not compared: the text of `-h` and `-V`, which is our own, and the report that libca
//! prints to stderr when a write without completion fails.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fodo_ca::eca::Eca;
use fodo_data::{AcknowledgeState, Limits};
use fodo_net::{
    Alarm, Array, ChannelFacts, Detail, Error, ErrorKind, Kind, Meta, MonitorEvent, Reading, Request, Scalar, Severity,
    Status, Text, TimeStamp, Value,
};

use super::OutputStreams;
use super::camonitor::{self, LinePrinter, MonitorArguments};
use super::options::leading_f64;
use super::plant::ToolClient;
use crate::local_time::Clock;

#[path = "../../tests/support/captured.rs"]
pub mod captured;

const STAMP: TimeStamp = TimeStamp { unix_s: 1_795_000_000, nanos: 123_456_000 };

/// The state of a PV on the server.
#[derive(Clone)]
struct GoldenPv {
    value: Value,
    count_max: u32,
    alarm: Alarm,
    time: TimeStamp,
    meta: Meta,
    class_name: &'static str,
    may_write: bool,
    /// The value as a string, if the server formats it unusually.
    text: Option<&'static str>,
}

fn scalar(value: impl Into<Value>, class_name: &'static str) -> GoldenPv {
    let alarm_limits = Limits { low: f64::NAN, high: f64::NAN };
    let acknowledge = Some(AcknowledgeState { transient: true, severity: Severity::None });
    let meta = Meta { alarm: alarm_limits, warning: alarm_limits, acknowledge, ..Meta::default() };
    let alarm = Alarm::default();
    let value = value.into();
    GoldenPv { value, count_max: 1, alarm, time: STAMP, meta, class_name, may_write: true, text: None }
}

fn enumerated(index: u16, class_name: &'static str, labels: &[&str]) -> GoldenPv {
    let mut served = scalar(Value::Scalar(Scalar::Enum(index)), class_name);
    served.meta.labels = labels.iter().map(|&label| label.into()).collect();
    served
}

fn analogue(value: f64, precision: i16) -> GoldenPv {
    let mut served = scalar(value, "ao");
    served.meta.precision = precision;
    served
}

fn long(value: i32) -> GoldenPv {
    let mut served = scalar(value, "longout");
    (served.meta.alarm, served.meta.warning) = (Limits::default(), Limits::default());
    served
}

fn waveform(value: impl Into<Value>, count_max: u32) -> GoldenPv {
    GoldenPv { count_max, ..scalar(value, "waveform") }
}

fn alarmed(mut served: GoldenPv, severity: Severity, status: Status) -> GoldenPv {
    served.alarm = Alarm { severity, status };
    served.meta.acknowledge = Some(AcknowledgeState { transient: true, severity });
    served
}

fn chars(text: &str, count_max: u32) -> GoldenPv {
    waveform(text.as_bytes().to_vec(), count_max)
}

fn texts(texts: &[&str]) -> Value {
    Value::Array(Array::Text(Arc::new(texts.iter().map(|&text| text.into()).collect())))
}

const SCANS: &[&str] = &[
    "Passive",
    "Event",
    "I/O Intr",
    "10 second",
    "5 second",
    "2 second",
    "1 second",
    ".5 second",
    ".2 second",
    ".1 second",
];

fn analogue_output(pvs: &mut BTreeMap<String, GoldenPv>) {
    let mut ao = analogue(1.5, 3);
    ao.meta.units = "mm".into();
    ao.meta.display = Limits { low: -10.0, high: 10.0 };
    ao.meta.alarm = Limits { low: -9.0, high: 9.0 };
    ao.meta.warning = Limits { low: -8.0, high: 8.0 };
    ao.meta.control = Limits { low: -9.5, high: 9.5 };
    pvs.insert("g:ao.".into(), ao.clone());
    pvs.insert("g:ao".into(), ao);
    pvs.insert("g:ao.DESC".into(), scalar("An analogue output", "ao"));
    pvs.insert("g:ao.DESC$".into(), chars("An analogue output", 41));
    pvs.insert("g:ao.EGU".into(), scalar("mm", "ao"));
    pvs.insert("g:ao.HIHI".into(), analogue(9.0, 3));
    pvs.insert("g:ao.NAME".into(), GoldenPv { may_write: false, ..scalar("g:ao", "ao") });
    pvs.insert("g:ao.NAME$".into(), chars("g:ao", 61));
    pvs.insert("g:ao.PREC".into(), scalar(3_i16, "ao"));
    pvs.insert("g:ao.RTYP".into(), scalar("ao", "ao"));
    pvs.insert("g:ao.SCAN".into(), enumerated(0, "ao", SCANS));
    pvs.insert("g:ao.STAT".into(), enumerated(0, "ao", &Status::NAMES[..16]));
    pvs.insert("g:ao.UDF".into(), scalar(0_u8, "ao"));
}

fn scalars(pvs: &mut BTreeMap<String, GoldenPv>) {
    let udf = |served| alarmed(served, Severity::Invalid, Status::UDF);
    let mut undefined = udf(analogue(0.0, 0));
    undefined.meta.units = "V".into();
    undefined.time = TimeStamp::NEVER;
    let mut counts = long(-42);
    counts.meta.units = "counts".into();
    counts.meta.display = Limits { low: -1000.0, high: 1000.0 };
    counts.meta.control = counts.meta.display;
    let states = ["Off", "Switched on"];
    let all = [
        ("g:target", analogue(2.0, 2)),
        ("g:pi", analogue(std::f64::consts::PI, 4)),
        ("g:nan", udf(analogue(f64::NAN, 2))),
        ("g:inf", analogue(f64::NEG_INFINITY, 2)),
        ("g:large", GoldenPv { text: Some(" 1.23e+20"), ..analogue(1.234_567_89e20, 2) }),
        ("g:million", analogue(1_234_567.8, 1)),
        ("g:small", analogue(-1.5e-7, 9)),
        ("g:third", analogue(1.0 / 3.0, 0)),
        ("g:undefined", undefined),
        ("g:major", alarmed(analogue(99.0, 0), Severity::Major, Status::HIHI)),
        ("g:minor", alarmed(long(-99), Severity::Minor, Status::LOW)),
        ("g:bo", enumerated(1, "bo", &states)),
        ("g:bo:target", enumerated(0, "bo", &states)),
        ("g:mbbo", enumerated(2, "mbbo", &["Zero", "One", "Two and a half", "Three"])),
        ("g:string", scalar("two words", "stringout")),
        ("g:quotes", scalar("it's \"q\" \\ t\tu\x7f", "stringout")),
        ("g:nothing", scalar("", "stringout")),
        ("g:long", counts),
        ("g:long:target", long(7)),
        ("g:long:max", long(i32::MAX)),
        ("g:int64", scalar(1_234_567_890_123.0, "int64out")),
    ];
    pvs.extend(all.map(|(name, served)| (name.to_owned(), served)));
}

fn waveforms(pvs: &mut BTreeMap<String, GoldenPv>) {
    let mut double = waveform(vec![1.0, 2.5, -3e10], 5);
    double.meta.precision = 2;
    double.meta.units = "A".into();
    let all = [
        ("g:wf:double", double),
        ("g:wf:float", waveform(vec![1.0_f32, 0.1, 1e10], 3)),
        ("g:wf:long", waveform(vec![1, -2, 300_000, 255], 4)),
        ("g:wf:short", waveform(vec![1_i16, -2, 32_767], 3)),
        ("g:wf:uchar", waveform(vec![1_u8, 127, 128, 255], 4)),
        ("g:wf:string", waveform(texts(&["one", "two words", "say \"three\""]), 4)),
        ("g:wf:text", chars("Hello, \"cafe\"\ntab\t.", 40)),
        ("g:wf:target", waveform(vec![1.0], 4)),
        ("g:wf:text:target", chars("Old", 30)),
        ("g:wf:empty", waveform(Vec::<f64>::new(), 3)),
        ("g:wf:one", waveform(vec![6.25], 1)),
    ];
    pvs.extend(all.map(|(name, served)| (name.to_owned(), served)));
}

/// A simulation of softIoc with golden.db.
struct Golden {
    pvs: BTreeMap<String, GoldenPv>,
    connected: Vec<String>,
}

impl Golden {
    fn new() -> Golden {
        let mut pvs = BTreeMap::new();
        analogue_output(&mut pvs);
        scalars(&mut pvs);
        waveforms(&mut pvs);
        Golden { pvs, connected: Vec::new() }
    }

    fn facts(&self, name: &str) -> Option<ChannelFacts> {
        let served = self.pvs.get(name)?;
        Some(ChannelFacts {
            server: SocketAddr::from(([127, 0, 0, 1], 5064)),
            kind: served.value.kind(),
            count_max: served.count_max,
            may_read: true,
            may_write: served.may_write,
            tls: None,
        })
    }

    fn answer(&self, name: &str, request: Request) -> Reading {
        let served = &self.pvs[name];
        let kind = request.kind.unwrap_or(served.value.kind());
        let value = match (request.detail, kind, served.text) {
            (Detail::ClassName, _, _) => served.class_name.into(),
            (_, Kind::Text, Some(text)) => text.into(),
            _ => padded(converted(served, kind), kind, request.count),
        };
        let meta = Some(Arc::new(served.meta.clone()));
        Reading { alarm: served.alarm, time: served.time, meta, ..Reading::bare(value) }
    }

    /// Writes like softIoc: converts to the type, and sets the HIGH and HIHI alarms of `g:ao`.
    fn put(&mut self, name: &str, value: &Value) -> bool {
        let served = self.pvs.get_mut(name).unwrap();
        let kind = served.value.kind();
        let is_array = served.count_max > 1;
        // For a number softIoc parses the start of a text and ignores the rest.
        let numbers: Option<Vec<f64>> = match (kind, value.clone().into_array()) {
            (Kind::Text | Kind::Enum, _) => None,
            (_, Array::Text(texts)) => texts.iter().map(|text| leading_f64(&text.to_str())).collect(),
            _ => None,
        };
        let converted = match (kind, value.kind(), numbers) {
            (Kind::Text | Kind::Enum, _, _) => value.to_kind(kind, Some(&served.meta)),
            (_, Kind::Text, None) => return false,
            (_, _, Some(numbers)) => Value::from(numbers).to_kind(kind, None),
            (_, _, None) => value.to_kind(kind, None),
        };
        let Ok(converted) = converted else { return false };
        served.value = match is_array {
            true => Value::Array(converted.into_array()),
            false => Value::Scalar(converted.first().unwrap()),
        };
        if let (true, Some(Scalar::F64(number))) = (name == "g:ao", served.value.first()) {
            served.alarm = match number {
                n if n >= 9.0 => Alarm { severity: Severity::Major, status: Status::HIHI },
                n if n >= 8.0 => Alarm { severity: Severity::Minor, status: Status::HIGH },
                _ => Alarm::default(),
            };
        }
        true
    }
}

fn converted(served: &GoldenPv, kind: Kind) -> Value {
    if let (Value::Scalar(Scalar::Enum(index)), Kind::Text) = (&served.value, kind) {
        return match served.meta.labels.get(usize::from(*index)) {
            Some(label) => Value::Scalar(Scalar::Text(label.clone())),
            None => "Illegal_Value".into(),
        };
    }
    served.value.to_kind(kind, Some(&served.meta)).unwrap()
}

/// Truncates or pads to the requested number of elements.
fn padded(value: Value, kind: Kind, count: u32) -> Value {
    let count = count as usize;
    if count == 0 || (count == 1 && value.len() == 1) {
        return match (&value, value.len()) {
            (_, 1) => Value::Scalar(value.first().unwrap()),
            _ => value,
        };
    }
    let missing = count.saturating_sub(value.len());
    macro_rules! pad {
        ($variant:ident, $zero:expr) => {{
            let Array::$variant(elements) = value.into_array() else { unreachable!() };
            let padded = elements.iter().take(count).cloned().chain(vec![$zero; missing]).collect();
            Value::Array(Array::$variant(Arc::new(padded)))
        }};
    }
    match kind {
        Kind::Text => pad!(Text, Text::EMPTY),
        Kind::F64 => pad!(F64, 0.0),
        Kind::F32 => pad!(F32, 0.0),
        Kind::I32 => pad!(I32, 0),
        Kind::I16 => pad!(I16, 0),
        Kind::U8 => pad!(U8, 0),
        _ => value,
    }
}

impl ToolClient for Golden {
    fn connect(
        &mut self,
        names: &[String],
        _: fodo_net::Priority,
        timeout: Duration,
    ) -> Vec<Result<ChannelFacts, Error>> {
        self.connected = names.to_vec();
        let missing = |name: &String| {
            Error::new(name.as_str(), ErrorKind::NotFound { protocol: fodo_net::Protocol::Ca, after: timeout })
        };
        names.iter().map(|name| self.facts(name).ok_or_else(|| missing(name))).collect()
    }

    fn read(&mut self, requests: &[(usize, Request)], _: Duration) -> Vec<Result<Reading, Error>> {
        requests.iter().map(|&(pv, request)| Ok(self.answer(&self.connected[pv], request))).collect()
    }

    fn write(&mut self, pv: usize, value: Value, confirmed: bool, _: Duration) -> Result<(), Error> {
        let name = self.connected[pv].clone();
        let server = SocketAddr::from(([127, 0, 0, 1], 5064));
        // The client does not learn that a write without completion failed.
        if self.put(&name, &value) || !confirmed {
            return Ok(());
        }
        Err(Error::new(name, ErrorKind::Refused { server, refusal: Eca::PUTFAIL.into() }))
    }
}

fn compare(captured_text: &str, mut run: impl FnMut(&[String], &mut OutputStreams<'_>) -> String) {
    let mut n_compared = 0;
    for case in captured::commands(captured_text) {
        if case.command.ends_with(" -V") {
            continue;
        }
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut outlet = OutputStreams { out: &mut out, err: &mut err };

        let end = run(&case.words()[1..], &mut outlet);

        let stamp = Clock::utc().for_epics(STAMP);
        let text = |bytes| String::from_utf8(bytes).unwrap().replace(&stamp, "YYYY-MM-DD hh:mm:ss.uuuuuu");
        assert_eq!(text(out).replace("127.0.0.1:5064", "HOST:PORT"), case.out, "stdout of {}", case.command);
        assert_eq!(text(err), case.err_without_report(), "stderr of {}", case.command);
        assert_eq!(end, case.end, "exit code of {}", case.command);
        n_compared += 1;
    }
    assert!(n_compared > 10);
}

#[test]
fn caget_output_is_the_same_as_in_epics_base() {
    let mut plant = Golden::new();

    compare(include_str!("../../tests/golden/caget.txt"), |arguments, outlet| {
        super::caget::run(arguments, &mut plant, &Clock::utc(), outlet).unwrap().to_string()
    });
}

#[test]
fn caput_writes_and_output_are_the_same_as_in_epics_base() {
    let mut plant = Golden::new();

    compare(include_str!("../../tests/golden/caput.txt"), |arguments, outlet| {
        super::caput::run(arguments, &mut plant, &Clock::utc(), outlet).unwrap().to_string()
    });
}

#[test]
fn cainfo_output_is_the_same_as_in_epics_base() {
    let mut plant = Golden::new();

    compare(include_str!("../../tests/golden/cainfo.txt"), |arguments, outlet| {
        super::cainfo::run(arguments, &mut plant, outlet).unwrap().to_string()
    });
}

#[test]
fn camonitor_output_is_the_same_as_in_epics_base() {
    let plant = Golden::new();

    compare(include_str!("../../tests/golden/camonitor.txt"), |arguments, outlet| {
        let MonitorArguments { options, stamps, names } =
            match camonitor::parse_arguments(arguments, &Clock::utc(), outlet).unwrap() {
                Ok(parsed) => parsed,
                Err(code) => return code.to_string(),
            };
        let mut lines = LinePrinter::new(&names, &options.common.style, stamps);
        for (pv, name) in names.iter().enumerate() {
            let Some(facts) = plant.facts(name) else { continue };
            let reading = plant.answer(name, options.monitor_options(&facts).request);
            lines.print(pv, &MonitorEvent::Connected(facts), STAMP, outlet.out).unwrap();
            lines.print(pv, &MonitorEvent::Update(reading), STAMP, outlet.out).unwrap();
        }
        outlet.out.write_all(lines.missing().as_bytes()).unwrap();
        "runs until it is stopped".to_owned()
    });
}
