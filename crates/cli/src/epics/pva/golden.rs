//! Compares the output of these tools with captured output of the originals for the same PVs.
//!
//! The PVs here have the values that `tests/golden/pva/server.py` serves; the captured files describe how they were made.
//! Only the output of the originals is reproduced. Not compared: the text of `-h`, `-V` and `-v` of pvxs' tools, which is
//! our own. `known_difference` lists the commands whose output differs, with reasons.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fodo_net::{
    Array, BitSet, ChannelFacts, Error, ErrorKind, Kind, MonitorEvent, NodeKind, NodeValue, PvRequest, Refusal, Scalar,
    Structure, StructureBuilder, StructureType, UnionMember, UnionType, UnionValue, Value,
};

use super::client::StructureClient;
use super::options::PvOptions;
use super::pvget::UpdatePrinter;
use super::{pvcall, pvget, pvinfo, pvput, pvx};
use crate::epics::golden::captured;
use crate::epics::{OutputStreams, getopt};
use crate::local_time::Clock;

fn texts(texts: &[&str]) -> Value {
    Value::Array(Array::Text(Arc::new(texts.iter().map(|&text| text.into()).collect())))
}

fn alarm_and_time(build: &mut StructureBuilder, alarm: &str, time: &str) {
    build.open(alarm, "alarm_t").scalar("severity", Kind::I32).scalar("status", Kind::I32);
    build.scalar("message", Kind::Text).close();
    build.open(time, "time_t").scalar("secondsPastEpoch", Kind::I64).scalar("nanoseconds", Kind::I32);
    build.scalar("userTag", Kind::I32).close();
}

fn set_time(pv: &mut Structure, path: &str, tag: i32) {
    pv.set(&format!("{path}.secondsPastEpoch"), 1_795_000_000_f64).unwrap();
    pv.set(&format!("{path}.nanoseconds"), 123_456_000).unwrap();
    pv.set(&format!("{path}.userTag"), tag).unwrap();
}

fn set_alarm(pv: &mut Structure, path: &str, severity: i32, status: i32, message: &str) {
    pv.set(&format!("{path}.severity"), severity).unwrap();
    pv.set(&format!("{path}.status"), status).unwrap();
    pv.set(&format!("{path}.message"), message).unwrap();
}

fn scalar(value: impl Into<Value>) -> Structure {
    let value = value.into();
    let is_array = matches!(value, Value::Array(_));
    let id = if is_array { "epics:nt/NTScalarArray:1.0" } else { "epics:nt/NTScalar:1.0" };
    let mut build = StructureBuilder::new(id);
    match is_array {
        true => build.array("value", value.kind()),
        false => build.scalar("value", value.kind()),
    };
    alarm_and_time(&mut build, "alarm", "timeStamp");
    let mut pv = Structure::new(build.finish().into());
    pv.set("value", value).unwrap();
    set_alarm(&mut pv, "alarm", 0, 0, "");
    set_time(&mut pv, "timeStamp", 0);
    pv
}

fn alarmed(mut pv: Structure, severity: i32, status: i32, message: &str) -> Structure {
    set_alarm(&mut pv, "alarm", severity, status, message);
    pv
}

fn enumerated(index: i32) -> Structure {
    let mut build = StructureBuilder::new("epics:nt/NTEnum:1.0");
    build.open("value", "enum_t").scalar("index", Kind::I32).array("choices", Kind::Text).close();
    alarm_and_time(&mut build, "alarm", "timeStamp");
    let mut pv = Structure::new(build.finish().into());
    pv.set("value.index", index).unwrap();
    pv.set("value.choices", texts(&["Off", "Switched on", "Bro\"ken"])).unwrap();
    set_alarm(&mut pv, "alarm", 0, 0, "");
    set_time(&mut pv, "timeStamp", 0);
    pv
}

/// The display of `g:double`, of which the format is not set.
fn displayed() -> Structure {
    let plain = scalar(1.5);
    let mut build = StructureBuilder::new("epics:nt/NTScalar:1.0");
    for bit in plain.kind().members(0) {
        build.member(plain.kind().nodes()[bit].name.clone(), &plain.kind().subtree(bit));
    }
    build.open("display", "").scalar("limitLow", Kind::F64).scalar("limitHigh", Kind::F64);
    build.scalar("description", Kind::Text).scalar("format", Kind::Text).scalar("units", Kind::Text).close();
    let mut pv = Structure::new(build.finish().into());
    super::assign::copy(&mut pv, 0, &plain);
    pv.set("display.limitLow", -10.0).unwrap();
    pv.set("display.limitHigh", 10.0).unwrap();
    pv.set("display.description", "a number").unwrap();
    pv.set("display.units", "mm").unwrap();
    pv
}

fn table() -> Structure {
    let mut build = StructureBuilder::new("epics:nt/NTTable:1.0");
    build.array("labels", Kind::Text).open("value", "").array("name", Kind::Text).array("x", Kind::F64);
    build.array("n", Kind::I32).close().scalar("descriptor", Kind::Text);
    alarm_and_time(&mut build, "alarm", "timeStamp");
    let mut pv = Structure::new(build.finish().into());
    pv.set("labels", texts(&["Name", "Position in mm", "n"])).unwrap();
    pv.set("value.name", texts(&["first", "the second", "x,y"])).unwrap();
    pv.set("value.x", vec![1.5, -2.25, 1e10]).unwrap();
    pv.set("value.n", vec![1, 20, 300]).unwrap();
    pv.set("descriptor", "a table").unwrap();
    set_alarm(&mut pv, "alarm", 0, 0, "");
    set_time(&mut pv, "timeStamp", 0);
    pv
}

fn union_of(id: &str, members: &[(&str, StructureType)]) -> Arc<UnionType> {
    let member =
        |(name, kind): &(&str, StructureType)| UnionMember { name: (*name).into(), kind: Arc::new(kind.clone()) };
    Arc::new(UnionType { id: id.into(), members: members.iter().map(member).collect() })
}

fn single(kind: Kind) -> StructureType {
    StructureType::single(NodeKind::Scalar(kind))
}

fn point(x: f64, y: f64) -> Structure {
    let mut build = StructureBuilder::new("point_t");
    build.scalar("x", Kind::F64).scalar("y", Kind::F64);
    let mut point = Structure::new(build.finish().into());
    point.set("x", x).unwrap();
    point.set("y", y).unwrap();
    point
}

fn set_node(pv: &mut Structure, path: &str, value: NodeValue) {
    let bit = pv.kind().node(path).unwrap();
    pv.set_node(bit, value).unwrap();
}

fn numbers_or_texts(id: &str) -> Arc<UnionType> {
    union_of(id, &[("number", single(Kind::F64)), ("text", single(Kind::Text))])
}

fn mixed_type() -> StructureType {
    let point_type = (**point(0.0, 0.0).kind()).clone();
    let list = StructureType::single(NodeKind::Array { kind: Kind::I32, size: fodo_net::ArraySize::Variable });
    let choice = union_of(
        "choice_t",
        &[("number", single(Kind::F64)), ("text", single(Kind::Text)), ("point", point_type.clone()), ("list", list)],
    );
    let mut build = StructureBuilder::new("mixed_t");
    build.scalar("flag", Kind::Bool).scalar("small", Kind::I8).scalar("usmall", Kind::U8).scalar("big", Kind::I64);
    build.scalar("ubig", Kind::U64).scalar("single", Kind::F32).scalar("name", Kind::Text).array("flags", Kind::Bool);
    build.array("bytes", Kind::I8).array("ubytes", Kind::U8).array("names", Kind::Text).member("point", &point_type);
    build.leaf("choice", NodeKind::Union(choice)).leaf("none", NodeKind::Union(numbers_or_texts("")));
    build.leaf("any", NodeKind::Any).leaf("empty", NodeKind::Any);
    build.leaf("points", NodeKind::StructureArray(Arc::new(point_type)));
    build.leaf("choices", NodeKind::UnionArray(numbers_or_texts(""))).leaf("anys", NodeKind::AnyArray);
    build.open("mode", "enum_t").scalar("index", Kind::I32).array("choices", Kind::Text).close();
    alarm_and_time(&mut build, "state", "when");
    build.finish()
}

fn mixed() -> Structure {
    let mut pv = Structure::new(mixed_type().into());
    pv.set("flag", Value::Scalar(Scalar::Bool(true))).unwrap();
    pv.set("small", Value::Scalar(Scalar::I8(-5))).unwrap();
    pv.set("usmall", Value::Scalar(Scalar::U8(200))).unwrap();
    pv.set("big", Value::Scalar(Scalar::I64(-(1 << 40)))).unwrap();
    pv.set("ubig", Value::Scalar(Scalar::U64((1 << 63) + 1))).unwrap();
    pv.set("single", Value::Scalar(Scalar::F32(0.1))).unwrap();
    pv.set("name", "it's \"q\"\t\\ é").unwrap();
    pv.set("flags", Value::Array(Array::Bool(Arc::new(vec![true, false])))).unwrap();
    pv.set("bytes", Value::Array(Array::I8(Arc::new(vec![-1, 0, 65])))).unwrap();
    pv.set("ubytes", vec![0_u8, 65, 255]).unwrap();
    pv.set("names", texts(&["one", "two words", ""])).unwrap();
    pv.set("point.x", 1.5).unwrap();
    pv.set("point.y", -2.0).unwrap();
    let union = |selector, value| UnionValue { selector, value };
    set_node(&mut pv, "choice", NodeValue::Union(Some(Box::new(union(2, point(3.0, 4.0))))));
    let long = |number: i64| Structure::single(Value::Scalar(Scalar::I64(number)));
    set_node(&mut pv, "any", NodeValue::Any(Some(Box::new(long(42)))));
    let points = vec![Some(point(0.5, 1.0)), Some(point(1e-7, 1e20))];
    set_node(&mut pv, "points", NodeValue::Structures(Arc::new(points)));
    let choices = vec![Some(union(0, Structure::single(1.5.into()))), Some(union(1, Structure::single("a b".into())))];
    set_node(&mut pv, "choices", NodeValue::Unions(Arc::new(choices)));
    set_node(&mut pv, "anys", NodeValue::Anys(Arc::new(vec![Some(long(7)), Some(Structure::single("text".into()))])));
    pv.set("mode.index", 1).unwrap();
    pv.set("mode.choices", texts(&["Slow", "Fast"])).unwrap();
    set_alarm(&mut pv, "state", 1, 3, "LOW");
    set_time(&mut pv, "when", 42);
    pv
}

fn plain() -> Structure {
    let mut build = StructureBuilder::new("");
    build.scalar("a", Kind::I32).open("b", "").scalar("c", Kind::F64).array("d", Kind::Text).close();
    build.leaf("choice", NodeKind::Union(numbers_or_texts("")));
    let mut pv = Structure::new(build.finish().into());
    pv.set("a", 1).unwrap();
    pv.set("b.c", 2.5).unwrap();
    pv.set("b.d", texts(&["x"])).unwrap();
    let choice = UnionValue { selector: 1, value: Structure::single("hi".into()) };
    set_node(&mut pv, "choice", NodeValue::Union(Some(Box::new(choice))));
    pv
}

fn undated() -> Structure {
    let mut pv = Structure::new(scalar(0.0).kind().clone());
    pv.set("value", 1.0).unwrap();
    pv
}

/// A simulation of the server.
struct PvaGolden {
    pvs: BTreeMap<&'static str, Structure>,
}

impl PvaGolden {
    fn new() -> PvaGolden {
        let mut major = alarmed(scalar(99.0), 2, 3, "HIHI");
        set_time(&mut major, "timeStamp", 7);
        let pvs = [
            ("g:double", displayed()),
            ("g:major", major),
            ("g:pi", scalar(std::f64::consts::PI)),
            ("g:large", scalar(1.234_567_89e20)),
            ("g:nan", alarmed(scalar(f64::NAN), 3, 6, "UDF")),
            ("g:inf", scalar(f64::NEG_INFINITY)),
            ("g:float", scalar(0.1_f32)),
            ("g:long", scalar(-42)),
            ("g:int64", scalar(Value::Scalar(Scalar::I64(1_234_567_890_123)))),
            ("g:bool", scalar(Value::Scalar(Scalar::Bool(true)))),
            ("g:byte", scalar(Value::Scalar(Scalar::I8(65)))),
            ("g:string", scalar("two words")),
            ("g:quotes", scalar("it's \"q\" \\ t\tu\x7f é")),
            ("g:nothing", scalar("")),
            ("g:enum", enumerated(1)),
            ("g:enum:bad", alarmed(enumerated(7), 4, 1, "")),
            ("g:array", scalar(vec![1.0, 2.5, -3e10])),
            ("g:array:one", alarmed(scalar(vec![7]), 2, 3, "HIHI")),
            ("g:array:long", scalar((0..25).collect::<Vec<i32>>())),
            ("g:array:empty", scalar(Vec::<f64>::new())),
            ("g:bytes", scalar(vec![1_u8, 65, 255])),
            ("g:strings", scalar(texts(&["one", "two words", "say \"three\""]))),
            ("g:table", table()),
            ("g:mixed", mixed()),
            ("g:plain", plain()),
            ("g:undated", undated()),
            ("g:target", scalar(2.0)),
            ("g:target:enum", enumerated(0)),
            ("g:target:array", scalar(vec![1.0])),
            ("g:target:string", scalar("old")),
            ("g:target:plain", plain()),
            ("g:target:long", scalar(1)),
        ];
        PvaGolden { pvs: pvs.into_iter().collect() }
    }

    fn known(&self, name: &str, timeout: Duration) -> Result<&Structure, Error> {
        self.pvs
            .get(name)
            .ok_or_else(|| Error::new(name, ErrorKind::NotFound { protocol: fodo_net::Protocol::Pva, after: timeout }))
    }

    /// What the server sends for a request.
    fn selected(&self, name: &str, request: &PvRequest, timeout: Duration) -> Result<Structure, Error> {
        let pv = self.known(name, timeout)?;
        let kind = pv.kind().clone();
        let selection = request.selection("field", &kind);
        let selection = selection.map_err(|_| refused(name, "pvRequest must select at least one field"))?;
        let mut sent = Structure::new(kind.clone());
        let changed: BitSet = kind.covered(pv.changed()).flatten().collect();
        for bit in selection.iter().filter(|&bit| changed.contains(bit)) {
            match pv.node(bit) {
                Some(NodeValue::Structure) | None => {}
                Some(value) => sent.set_node(bit, value.clone()).unwrap(),
            }
        }
        Ok(sent)
    }
}

fn refused(name: &str, text: &str) -> Error {
    let refusal = Refusal::Reported { text: text.into() };
    Error::new(name, ErrorKind::Refused { server: server(), refusal })
}

fn server() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 28_985))
}

impl StructureClient for PvaGolden {
    fn get(&mut self, names: &[String], request: &PvRequest, timeout: Duration) -> Vec<Result<Structure, Error>> {
        names.iter().map(|name| self.selected(name, request, timeout)).collect()
    }

    fn describe(
        &mut self,
        names: &[String],
        timeout: Duration,
    ) -> Vec<Result<(SocketAddr, Arc<StructureType>), Error>> {
        names.iter().map(|name| Ok((server(), self.known(name, timeout)?.kind().clone()))).collect()
    }

    fn put(
        &mut self,
        name: &str,
        _: &PvRequest,
        fields: Vec<(String, NodeValue)>,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.known(name, timeout)?;
        let pv = self.pvs.get_mut(name).unwrap();
        fields.into_iter().for_each(|(path, value)| set_node(pv, &path, value));
        Ok(())
    }

    fn call(&mut self, name: &str, argument: Structure, timeout: Duration) -> Result<Structure, Error> {
        let number = |path: &str| argument.get(path).unwrap().first().unwrap().to_text(None).to_str().parse::<f64>();
        match name {
            "g:add" => Ok(scalar(number("query.lhs").unwrap() + number("query.rhs").unwrap())),
            "g:echo" => Ok(argument),
            "g:void" => Ok(Structure::new(Arc::new(StructureBuilder::new("").finish()))),
            "g:fail" => Err(refused(name, "this call always fails")),
            _ => Err(self.known(name, timeout).err().unwrap_or_else(|| refused(name, "RPC not supported"))),
        }
    }
}

/// The captured text with what the originals print wrongly corrected: pvData writes the digit 9 of a hexadecimal number
/// as `@`, and unsigned integers of 64 bits as signed ones in JSON; pvinfo prints no server if it learns of it too late.
fn corrected(text: &str) -> String {
    let text = text.replace("\nServer: \n", "\nServer: HOST:PORT\n");
    text.replace("\\xA@", "\\xA9").replace("ubig:-9223372036854775807", "ubig:9223372036854775809")
}

/// Commands whose output differs, with the reason.
fn known_difference(command: &str) -> Option<&'static str> {
    let reasons = [
        ("-w 0.3 g:missing", "the originals also print the names of PVs that they cancel, without an end of line"),
        ("-r 'field('", "the parser of pvRequest has words of its own"),
        ("pvput g:target:array '[4'", "an error without its text"),
        ("pvcall g:echo novalue", "the original prints memory that it does not own"),
        ("pvxget -r nosuch g:long", "the original logs the error and waits for its timeout"),
        ("pvxput -v g:target 6", "the configuration has other variables"),
        ("pvxput g:target:array '[4'", "the words of the JSON parser"),
        ("pvxput g:target:long 12.7", "the words for a number that is not an integer"),
        ("pvxget -r value g:target:long", "it follows a put that is refused here"),
    ];
    reasons.into_iter().find(|(part, _)| command.contains(part)).map(|(_, reason)| reason)
}

/// Puts that pvxs carries out and this program refuses: numbers out of range, which pvxs truncates, and unions.
fn is_refused_here(command: &str) -> bool {
    ["pvxput g:target:long 99999999999", "pvxput g:target:plain choice=1"].contains(&command)
}

/// Compares stdout, stderr and the exit code of every captured command.
fn compare(captured_text: &str, mut run: impl FnMut(&str, &[String], &mut OutputStreams<'_>) -> u8) {
    let (mut n_compared, mut differing) = (0, Vec::new());
    for case in captured::commands(captured_text) {
        let words = case.words();
        let is_help = case.err.contains("Usage:") || case.command.ends_with(" -h");
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut outlet = OutputStreams { out: &mut out, err: &mut err };

        let end = run(&words[0], &words[1..], &mut outlet);

        let text = |bytes| String::from_utf8(bytes).unwrap().replace(&server().to_string(), "HOST:PORT");
        let (mut out, mut err) = (text(out), text(err));
        let (mut expected_out, mut expected_err) = (corrected(&case.out), case.err_without_report());
        if let Some(open) = expected_out.strip_suffix("\\c\n") {
            expected_out = open.to_owned();
        }
        if is_help {
            // The help is our own; what follows it is compared.
            let last = |text: &str| text.lines().last().unwrap_or_default().to_owned();
            (out, expected_out) = (String::new(), String::new());
            (err, expected_err) = match expected_err.contains("Unknown argument") || expected_err.contains("xpected PV")
            {
                true => (last(&err), last(&expected_err)),
                false => (String::new(), String::new()),
            };
        }
        let (found, expected) = ((&out, &err, end.to_string()), (&expected_out, &expected_err, case.end.clone()));
        match known_difference(&case.command) {
            _ if is_refused_here(&case.command) => assert_eq!(found.2, "1", "exit code of {}", case.command),
            Some(_) => assert_eq!(found.2, expected.2, "exit code of {}", case.command),
            None if found != expected => {
                differing.push(format!("$ {}\nexpected {expected:#?}\ngot {found:#?}", case.command));
            }
            None => n_compared += 1,
        }
    }
    assert!(differing.is_empty(), "{} of {}\n{}", differing.len(), n_compared + differing.len(), differing.join("\n"));
    assert!(n_compared > 5, "{n_compared}");
}

#[test]
fn pvget_output_is_the_same_as_of_pvaccesscpp() {
    let mut client = PvaGolden::new();

    compare(include_str!("../../../tests/golden/pva/pvget.txt"), |_, arguments, outlet| {
        pvget::run(arguments, &mut client, &Clock::utc(), outlet).unwrap()
    });
}

#[test]
fn pvput_writes_and_output_are_the_same_as_of_pvaccesscpp() {
    let mut client = PvaGolden::new();

    compare(include_str!("../../../tests/golden/pva/pvput.txt"), |_, arguments, outlet| {
        pvput::run(arguments, &mut client, &Clock::utc(), outlet).unwrap()
    });
}

#[test]
fn pvinfo_output_is_the_same_as_of_pvaccesscpp() {
    let mut client = PvaGolden::new();

    compare(include_str!("../../../tests/golden/pva/pvinfo.txt"), |_, arguments, outlet| {
        pvinfo::run(arguments, &mut client, outlet).unwrap()
    });
}

#[test]
fn pvcall_output_is_the_same_as_of_pvaccesscpp() {
    let mut client = PvaGolden::new();

    compare(include_str!("../../../tests/golden/pva/pvcall.txt"), |_, arguments, outlet| {
        pvcall::run(arguments, &mut client, &Clock::utc(), outlet).unwrap()
    });
}

#[test]
fn pvxget_output_is_the_same_as_of_pvxs() {
    let mut client = PvaGolden::new();

    compare(include_str!("../../../tests/golden/pva/pvxget.txt"), |_, arguments, outlet| {
        pvx::get(arguments, &mut client, outlet).unwrap()
    });
}

#[test]
fn pvxput_writes_and_output_are_the_same_as_of_pvxs() {
    let mut client = PvaGolden::new();

    // The files also contain the value after each put.
    compare(include_str!("../../../tests/golden/pva/pvxput.txt"), |tool, arguments, outlet| match tool {
        "pvxget" => pvx::get(arguments, &mut client, outlet).unwrap(),
        _ => pvx::put(arguments, &mut client, outlet).unwrap(),
    });
}

#[test]
fn pvxinfo_output_is_the_same_as_of_pvxs() {
    let mut client = PvaGolden::new();

    compare(include_str!("../../../tests/golden/pva/pvxinfo.txt"), |_, arguments, outlet| {
        pvx::info(arguments, &mut client, outlet).unwrap()
    });
}

#[test]
fn pvxcall_output_is_the_same_as_of_pvxs() {
    let mut client = PvaGolden::new();

    compare(include_str!("../../../tests/golden/pva/pvxcall.txt"), |_, arguments, outlet| {
        pvx::call(arguments, &mut client, outlet).unwrap()
    });
}

/// The puts that were made while each command of a file ran: the lines with "+".
fn puts_of(captured_text: &str) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = Vec::new();
    for line in captured_text.lines() {
        if line.starts_with("$ ") {
            all.push(Vec::new());
        } else if let (Some(put), Some(last)) = (line.strip_prefix("+ "), all.last_mut()) {
            last.push(put.to_owned());
        }
    }
    all
}

/// Runs the commands of a file for monitors, and prints the events that the simulated server sends.
fn compare_monitors(
    captured_text: &str,
    mut print: impl FnMut(&[String], &[MonitorEvent<Structure>], &mut OutputStreams<'_>),
) {
    let (mut client, timeout) = (PvaGolden::new(), Duration::ZERO);
    let mut n_compared = 0;
    for (case, puts) in captured::commands(captured_text).into_iter().zip(puts_of(captured_text)) {
        let words = case.words();
        if case.end == "1" || case.command.ends_with(" -h") || case.command.contains("g:missing") || words.len() == 1 {
            continue;
        }
        let request = words.iter().position(|word| word == "-r").map_or("", |at| &words[at + 1]);
        let (request, name) = (PvRequest::parse(request).unwrap(), words.last().unwrap());
        let facts = ChannelFacts {
            server: server(),
            kind: Kind::F64,
            count_max: 1,
            may_read: true,
            may_write: true,
            tls: None,
        };
        let mut events = vec![MonitorEvent::Connected(facts)];
        events.push(MonitorEvent::Update(client.selected(name, &request, timeout).unwrap()));
        for put in puts {
            let put = captured::commands(&format!("$ {put}")).remove(0).words();
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut outlet = OutputStreams { out: &mut out, err: &mut err };
            assert_eq!(pvx::put(&put[1..], &mut client, &mut outlet).unwrap(), 0, "{put:?} {err:?}");
            events.push(MonitorEvent::Update(client.selected(name, &request, timeout).unwrap()));
        }
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut outlet = OutputStreams { out: &mut out, err: &mut err };

        print(&words[1..], &events, &mut outlet);

        let text = |bytes| String::from_utf8(bytes).unwrap().replace(&server().to_string(), "HOST:PORT");
        assert_eq!(text(out), case.out, "stdout of {}", case.command);
        assert_eq!(text(err), case.err, "stderr of {}", case.command);
        n_compared += 1;
    }
    assert!(n_compared > 5, "{n_compared}");
}

#[test]
fn pvmonitor_output_is_the_same_as_of_pvaccesscpp() {
    compare_monitors(include_str!("../../../tests/golden/pva/pvmonitor.txt"), |arguments, events, outlet| {
        let (flags, names) = getopt::parse(arguments, pvget::FLAGS, false);
        let mut options = PvOptions::new("pvmonitor", 5);
        for flag in &flags {
            assert!(options.take(flag, pvget::HELP, outlet).unwrap().is_ok());
        }
        options.imply_raw();
        let clock = Clock::utc();
        let mut printer = UpdatePrinter::new(&names, &options, &clock);
        for event in events {
            let text = printer.event(0, event);
            outlet.out.write_all(text.as_bytes()).unwrap();
        }
    });
}

#[test]
fn pvxmonitor_output_is_the_same_as_of_pvxs() {
    compare_monitors(include_str!("../../../tests/golden/pva/pvxmonitor.txt"), |arguments, events, outlet| {
        for event in events {
            pvx::event_text(arguments, event, outlet).unwrap();
        }
    });
}
