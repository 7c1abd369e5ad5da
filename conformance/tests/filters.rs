//! Checks that our IOC reports channels with filters, and links with filters or JSON, as softIoc does.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is a sufficient failure message in a test")]

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use fodo_conformance::client::{Client, ClientKind, NameSearch, Sample, ValueForm, start};
use fodo_conformance::ours::FodoClient;
use fodo_conformance::place::{self, database, free_port, program, python, script};
use fodo_conformance::process::{Process, restrict_to_loopback};
use fodo_conformance::server::{ServerProgram, TestServer};
use fodo_net::{ClientConfig, Context, Error, ErrorKind, EventMask, Refusal};
use serde_json::{Value as Json, json};

const PATIENCE: Duration = Duration::from_secs(30);

/// One of the two servers, with our client.
struct Side {
    /// Ends with this value.
    _process: Process,
    server: SocketAddr,
    prefix: String,
    client: FodoClient,
}

impl Side {
    fn start(file: &str, is_ours: bool) -> Side {
        let (port, prefix) = (free_port(), place::prefix());
        let mut command = Command::new(if is_ours { program() } else { python() });
        let macros = format!("P={prefix}");
        if is_ours {
            command.args(["ioc", "-m", &macros, "-d"]).arg(database(file));
            command.args(["--interface", "127.0.0.1", "--port", &port.to_string()]);
        } else {
            command.arg(script("softioc_server.py")).arg(database(file)).arg(macros);
        }
        restrict_to_loopback(&mut command, port);
        let mut process = Process::start(if is_ours { "fodo ioc" } else { "softIoc" }, &mut command).unwrap();
        process.wait_for_line_starting(if is_ours { "fodo ioc: serving" } else { "ready" }, PATIENCE).unwrap();
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Side { _process: process, server, prefix, client: FodoClient::new(server, NameSearch::Unicast) }
    }

    fn pair(file: &str) -> [Side; 2] {
        [Side::start(file, false), Side::start(file, true)]
    }

    fn pv(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn put(&mut self, name: &str, value: &Json) {
        let value = match value {
            Json::String(text) => json!(text.replace("P:", &self.prefix)),
            value => value.clone(),
        };
        self.client.put(&self.pv(name), &value, true).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Waits until a monitor reports this value. The updates of earlier posts have arrived then.
    fn until_update(&mut self, monitor: usize, value: &Json) {
        let next = |client: &mut FodoClient| client.take(monitor, 1, PATIENCE).unwrap().pop();
        while next(&mut self.client).unwrap_or_else(|| panic!("no update {value}")).value.as_f64() != value.as_f64() {}
    }

    /// Waits until the records of `links.db` have been scanned. A scan that has begun already does not count.
    fn until_scanned(&mut self) {
        let (third, start) = (self.pv("third"), Instant::now());
        let mut time = || self.client.get(&third, ValueForm::Value).unwrap().time_ns;
        for _ in 0..2 {
            let before = time();
            while time() == before {
                assert!(start.elapsed() < PATIENCE, "{third} is not scanned");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// All properties of a channel that a client sees, except the time, without the prefix.
    fn properties(&mut self, name: &str, shapes: &[ValueForm]) -> String {
        let pv = self.pv(name);
        let mut text = match self.client.connect(&pv) {
            Ok(about) => format!("{about:?}"),
            Err(error) => return error,
        };
        for shape in shapes {
            let sample = self.client.get(&pv, *shape).map(|sample| Sample { time_ns: None, ..sample });
            text.push_str(&format!("\n{sample:?}"));
        }
        text.replace(&self.prefix, "")
    }
}

fn assert_same(what: &str, [theirs, ours]: [String; 2]) {
    assert!(theirs == ours, "{what}:\nsoftIoc {theirs}\nfodo    {ours}");
}

/// Names whose properties and readings are compared. The records keep the values of the database file.
const READ: &[&str] = &[
    "ao.{}",
    "ao.[0]",
    "ao.{dbnd:{abs:1}}",
    "ao.{dbnd:{d:1,m:'rel'}}",
    "ao.{\"dbnd\":{\"a\":\"1\"}}",
    "ao.{dec:{n:3}}",
    "ao.{utag:{M:1,V:1}}",
    "ao.{ts:{num:'dbl'}}",
    "ao.{ts:{num:'sec'}}",
    "ao.{ts:{num:'nsec',epoch:'unix'}}",
    "ao.{ts:{str:'epics'}}",
    "ao.{ts:{str:'iso'}}",
    "ao.EGU{dec:{n:1}}",
    "ao.STAT{dec:{n:1}}",
    "mode.{dec:{n:1}}",
    "mode.{ts:{num:'sec'}}",
    "bit.{dec:{n:1}}",
    "text.{dbnd:{abs:1}}",
    "text.[0:2]",
    "wave.[2]",
    "wave.VAL[2:4]",
    "wave.[-3:-1]",
    "wave.[:]",
    "wave.[3:]",
    "wave.[1:3:7]",
    "wave.[0x2:010]",
    "wave.[0:-5:3]",
    "wave.{\"arr\":{\"s\":1,\"i\":2,\"e\":-1}}",
    "wave.{arr:{s:'2',i:0}}",
    "wave.{arr:{s:1.7,e:3}}",
    "wave.[1:6]{arr:{s:2,e:3}}",
    "wave.[2:4]{dec:{n:2},ts:{}}",
    "wave.{ts:{num:'ts'}}",
    "wave.NELM[0:1]",
    "texts.[1:2]",
    "texts.[-2]",
];

#[test]
fn channels_with_filters_are_reported_as_by_softioc() {
    let mut sides = Side::pair("filters.db");

    for name in READ {
        assert_same(
            name,
            sides
                .each_mut()
                .map(|side| side.properties(name, &[ValueForm::Value, ValueForm::Text, ValueForm::Control])),
        );
    }
}

#[test]
fn other_clients_receive_the_same_filtered_values_as_the_fodo_client() {
    let server = TestServer::start(ServerProgram::Fodo).unwrap();
    let wave = (server.pv("wf_LONG"), json!([5, 6, 7, 8]));
    FodoClient::new(server.address(), NameSearch::Unicast).put(&wave.0, &wave.1, true).unwrap();

    for kind in [ClientKind::Aioca, ClientKind::Pyepics, ClientKind::Caproto] {
        let mut client = start(kind, &server, NameSearch::Unicast).unwrap();
        // New channels each time, because filters have state.
        let mut ours = FodoClient::new(server.address(), NameSearch::Unicast);
        // caproto parses these names itself, and supports neither JSON5 nor all filters.
        for name in [r#"ao.{"dbnd":{"abs":1}}"#, "wf_LONG.[1:2]", r#"wf_LONG.{"arr":{"s":-2}}"#] {
            let pv = server.pv(name);
            let value_and_update = |client: &mut dyn Client| {
                let monitor = client.monitor(&pv).unwrap();
                let mut first = client.take(monitor, 1, PATIENCE).unwrap();
                (client.get(&pv, ValueForm::Value).unwrap().value, first.remove(0).value)
            };
            assert_eq!(value_and_update(&mut *client), value_and_update(&mut ours), "{kind:?} {name}");
        }
    }
}

/// Names that are found and then rejected.
const REFUSED: &[&str] = &[
    "ao.{",
    "ao.{dbnd",
    "ao.{dbnd:{abs:1}}x",
    "ao.{dbnd:{abs:1}}}",
    "ao.{dbnd:{abs:1}}[1]",
    "ao.{dbnd:1}",
    "ao.{dbnd:[1]}",
    "ao.{dbnd:{nope:1}}",
    "ao.{nope:{}}",
    "ao.{dec:{}}",
    "ao.{dec:{n:0}}",
    "ao.{dec:{n:'3'}}",
    "ao.{ts:{num:2}}",
    "ao.{sync:{while:'nobody'}}",
    "ao.{sync:{m:'while'}}",
    "ao.$",
    "ao.1",
    "wave.[",
    "wave.[]",
    "wave.[a]",
    "wave.[1:2:3:4]",
];

fn is_refused(error: Option<&Error>) -> bool {
    matches!(error.map(Error::kind), Some(ErrorKind::Refused { refusal: Refusal::Channel { .. }, .. }))
}

#[test]
fn names_with_invalid_filters_are_rejected_as_by_softioc() {
    let sides = Side::pair("filters.db");

    for side in &sides {
        let context = Context::new(ClientConfig::with_addresses(vec![side.server]));
        let channels: Vec<_> = REFUSED.iter().map(|name| context.channel(&side.pv(name)).unwrap()).collect();
        let start = Instant::now();
        for (name, channel) in REFUSED.iter().zip(&channels) {
            // A rejected channel is searched again, and keeps its last error.
            while !is_refused(channel.why_inactive(Duration::ZERO).as_ref()) {
                let error = || channel.why_inactive(Duration::ZERO);
                assert!(start.elapsed() < PATIENCE, "{} {name}: {:?}", side.prefix, error());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Names whose updates are compared.
const MONITORED: &[&str] = &[
    "ao",
    "ao.{dbnd:{abs:1}}",
    "ao.{dbnd:{rel:10}}",
    "ao.{dbnd:{abs:1000}}",
    "ao.{dec:{n:1}}",
    "ao.{dec:{n:3}}",
    "ao.{utag:{M:1,V:1}}",
    "ao.{ts:{}}",
    "ao.{dbnd:{abs:1},dec:{n:2}}",
    "ao.{dec:{n:2},dbnd:{abs:1}}",
    "long.{dbnd:{abs:1}}",
    "bit.{dbnd:{abs:1}}",
    "text.{dbnd:{abs:1}}",
    "ao.PREC{dbnd:{abs:1}}",
    "ao.SEVR{dec:{n:2}}",
    "wave.[1:3]",
    "wave.[-2:-1]",
    "wave.{dec:{n:2}}",
    "wave.{dbnd:{abs:100}}",
    "wave.[2:4]{dec:{n:2}}",
];

/// The puts during monitoring.
fn puts() -> Vec<(&'static str, Json)> {
    let mut puts = Vec::new();
    let mut all = |name, values: &[f64]| puts.extend(values.iter().map(|value| (name, json!(value))));
    all("ao", &[3.5, 5.0, 5.2, -4.0, 150.0, 151.0, 90.0, 90.0, 91.0]);
    all("ao.HIHI", &[80.0]);
    all("ao", &[92.0, 1.0, 1.0, 2.0, 3.0, 4.0]);
    all("long", &[8.0, 9.0, 10.0, -11.0, -12.0]);
    all("bit", &[1.0, 0.0, 1.0]);
    all("ao.PREC", &[4.0, 5.0, 7.0]);
    puts.extend(["13", "abc", ""].map(|text| ("text", json!(text))));
    puts.extend([json!([1, 2, 3, 4]), json!([5, 6, 7, 8, 9, 10]), json!([4, 4, 4, 4, 4])].map(|list| ("wave", list)));
    puts
}

#[test]
fn filters_pass_the_same_updates_as_softioc() {
    for mask in [EventMask::VALUE | EventMask::ALARM, EventMask::LOG, EventMask::ALARM] {
        let sides = Side::pair("filters.db").map(|mut side| {
            // Connected first, so that each monitor is requested before its PV is read: filters have state.
            MONITORED.iter().for_each(|name| drop(side.client.connect(&side.pv(name)).unwrap()));
            let monitors: Vec<usize> =
                MONITORED.iter().map(|name| side.client.monitor_masked(&side.pv(name), mask).unwrap()).collect();
            // After it has connected and was read, each monitor exists before the first put.
            MONITORED.iter().for_each(|name| drop(side.client.get(&side.pv(name), ValueForm::Value).unwrap()));
            let fence = side.client.monitor(&side.pv("fence")).unwrap();
            for ((name, value), number) in puts().iter().zip(1..) {
                side.put(name, value);
                // Its update follows those of the put. After each put, because softIoc merges updates that wait.
                side.put("fence", &json!(number));
                side.until_update(fence, &json!(number));
            }
            let take = |monitor: &usize| side.client.take(*monitor, usize::MAX, Duration::ZERO).unwrap();
            monitors.iter().map(take).collect::<Vec<Vec<Sample>>>()
        });

        for (index, name) in MONITORED.iter().enumerate() {
            let passed = |side: &Vec<Vec<Sample>>| {
                let passed = side[index].iter().map(|sample| format!("{} {:?}", sample.value, sample.severity));
                passed.collect::<Vec<_>>().join(", ")
            };
            assert_same(&format!("{name} {mask:?}"), sides.each_ref().map(passed));
        }
    }
}

#[test]
fn the_sync_filter_passes_the_same_updates_as_softioc() {
    const MODES: [&str; 8] = [
        "{sync:{m:'before',s:'s'}}",
        "{sync:{m:'first',s:'s'}}",
        "{sync:{m:'last',s:'s'}}",
        "{sync:{m:'after',s:'s'}}",
        "{sync:{m:'while',s:'s'}}",
        "{sync:{m:'unless',s:'s'}}",
        "{sync:{while:'s'},dec:{n:2}}",
        "{dec:{n:2},sync:{unless:'s'}}",
    ];

    let passed = Side::pair("links.db").map(|mut side| {
        let names = MODES.map(|mode| side.pv(&format!("watched.{mode}")));
        let monitors = names.each_ref().map(|name| {
            side.client.connect(name).unwrap();
            let monitor = side.client.monitor(name).unwrap();
            side.client.get(name, ValueForm::Value).unwrap();
            monitor
        });
        // The last of the monitors of this record, so its updates follow theirs.
        let all = side.client.monitor(&side.pv("watched")).unwrap();
        // A link of the record `sets` has created the state.
        for (is_on, values) in [(0, [2, 3]), (1, [4, 5]), (0, [6, 7]), (1, [8, 9]), (0, [10, 11])] {
            side.put("sets", &json!(is_on));
            for value in values.map(|value| json!(value)) {
                side.put("watched", &value);
                side.until_update(all, &value);
            }
        }
        monitors.map(|monitor| {
            let updates = side.client.take(monitor, usize::MAX, Duration::ZERO).unwrap();
            updates.iter().map(|update| format!("{} ", update.value)).collect::<String>()
        })
    });

    for (index, mode) in MODES.iter().enumerate() {
        assert_same(mode, passed.each_ref().map(|passed| passed[index].clone()));
        assert!(!passed[0][index].is_empty(), "{mode}");
    }
}

/// The records of `links.db`; each name is declared once in the file.
fn linked() -> Vec<String> {
    let text = std::fs::read_to_string(database("links.db")).unwrap();
    let names = text.lines().filter_map(|line| line.split("$(P)").nth(1)?.split('"').next());
    names.map(str::to_owned).collect()
}

#[test]
fn json_links_and_filtered_links_behave_as_in_softioc() {
    let mut sides = Side::pair("links.db");
    let names = linked();
    let puts = [
        ("sets", json!(1)),
        ("sets_above", json!(3)),
        ("sets_above", json!(6)),
        ("sets_by_text", json!("yes")),
        ("sets_by_text", json!("")),
        ("longs", json!([9, 8, 7, 6])),
        ("from_const.PROC", json!(1)),
        ("computed.PROC", json!(1)),
        ("third.INP", json!("[5]")),
        ("last.INP", json!("{calc:{expr:\"4\"}}")),
        ("bad_filter.INP", json!("{state:\"s\"}")),
        ("two.INPC", json!("{const:9}")),
        ("two.INPA", json!("P:longs.[1] NPP NMS")),
        ("watched", json!(2)),
        ("watched", json!(4)),
        ("watched", json!(5)),
        ("watched", json!(8)),
    ];
    assert!(names.len() > 25, "{names:?}");

    for (name, value) in [("sets", json!(0))].iter().chain(&puts) {
        // With another link, a scanned record may keep its value, which must be that of the put before.
        if name.contains(".INP") {
            sides.iter_mut().for_each(Side::until_scanned);
        }
        sides.iter_mut().for_each(|side| side.put(name, value));
        for record in &names {
            let link = match record.as_str() {
                "sets" | "sets_above" | "sets_by_text" => "OUT",
                "desired_from_const" | "watched" => "DOL",
                "two" => "INPC",
                "follows" | "follows_some" => "INPA",
                _ => "INP",
            };
            for field in ["VAL", "SEVR", "STAT", link] {
                agree(&mut sides, &format!("{record}.{field}"), &format!("after {name} = {value}"));
            }
        }
    }
}

/// Waits until both servers report the same for a field, because scanned records need time.
fn agree(sides: &mut [Side; 2], field: &str, when: &str) {
    let start = Instant::now();
    loop {
        let properties = sides.each_mut().map(|side| side.properties(field, &[ValueForm::Value]));
        if properties[0] == properties[1] || start.elapsed() > PATIENCE {
            return assert_same(&format!("{field} {when}"), properties);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
