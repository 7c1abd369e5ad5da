//! Checks that our IOC shows every field of every record type over pvAccess as QSRV2 does: types, values, marks, and what
//! puts do.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::Duration;

use fodo_conformance::client::PeerClient;
use fodo_conformance::place::database;
use fodo_conformance::server::{ServerProgram, TestServer};
use serde_json::{Value as Json, json};

/// Records that are not called like their type, with the type.
const OTHER_RECORDS: &[(&str, &str)] = &[
    ("wf_STRING", "waveform"),
    ("wf_CHAR", "waveform"),
    ("wf_UCHAR", "waveform"),
    ("wf_SHORT", "waveform"),
    ("wf_USHORT", "waveform"),
    ("wf_LONG", "waveform"),
    ("wf_ULONG", "waveform"),
    ("wf_INT64", "waveform"),
    ("wf_UINT64", "waveform"),
    ("wf_FLOAT", "waveform"),
    ("wf_DOUBLE", "waveform"),
    ("tagged", "ai"),
    ("form", "ao"),
    ("form:unknown", "ai"),
    ("hex", "longout"),
    ("high", "ai"),
    ("invalid", "calc"),
    ("linked", "ai"),
    ("text", "waveform"),
    ("text:unsigned", "waveform"),
    ("one", "waveform"),
    ("one:text", "waveform"),
    ("one:character", "waveform"),
    ("numbers", "waveform"),
    ("texts", "waveform"),
    ("integers", "waveform"),
    ("stateless", "mbbo"),
    ("sparse", "mbbi"),
    ("unnamed", "bo"),
    ("latin", "stringout"),
    ("broken", "ai"),
    ("disabled:record", "ai"),
    ("simulated", "ai"),
    ("alias", "stringin"),
];

/// Long strings and filters.
const OTHER_NAMES: &[&str] = &[
    "lsi.VAL$",
    "lso.$",
    "ai.DESC$",
    "ai.INP$",
    "linked.INP$",
    "calc.CALC$",
    "printf.VAL$",
    "wf_STRING.VAL$",
    "texts.VAL$",
    "aSub.B$",
    "numbers.[1:2]",
    "numbers.[7:9]",
    "numbers.VAL[0]",
    "numbers.{arr:{s:1}}",
    "numbers.{dec:{n:2}}",
    "texts.[0:1]",
    "text.[0:3]",
    "ai.{dbnd:{d:1}}",
    "ai.{utag:{M:1,V:1}}",
    "ai.{ts:{}}",
    "ai.{ts:{num:\"dbl\"}}",
    "ai.{ts:{str:\"epics\"}}",
];

/// Leaves that are not compared, with the reason: the end of a name, the leaf, and a part of the value of QSRV2 to which
/// the exception is restricted.
const EXCEPTIONS: &[(&str, &str, &str, &str)] = &[
    (".DTYP", "value.choices", "QSRV2", "QSRV2 adds device supports of its own"),
    ("", "LIMIT", "9223372036854775808", "QSRV2 converts 2^63 or NaN to an integer as the processor does"),
    (".UTAG", "LIMIT", "0", "QSRV2 converts 2^64 to an integer as the processor does"),
    ("texts.VAL$", "value", "", "QSRV2 returns as many characters as the array has texts"),
    ("aSub.B$", "value", "", "QSRV2 returns as many characters as the array has texts"),
    ("printf.VAL$", "value", "[]", "QSRV2 returns no character, not even the NUL"),
    ("ai.{ts:{num:\"dbl\"}}", "value", "", "the value is the time"),
    ("ai.{ts:{str:\"epics\"}}", "value", "", "the value is the time"),
];

/// The leaves that `LIMIT` stands for.
const LIMITS: [&str; 8] = [
    "display.limitLow",
    "display.limitHigh",
    "control.limitLow",
    "control.limitHigh",
    "valueAlarm.lowAlarmLimit",
    "valueAlarm.lowWarningLimit",
    "valueAlarm.highWarningLimit",
    "valueAlarm.highAlarmLimit",
];

fn is_excepted(name: &str, leaf: &str, theirs: &str) -> bool {
    EXCEPTIONS.iter().any(|(end, excepted, value, _)| {
        let is_leaf = leaf == *excepted || *excepted == "LIMIT" && LIMITS.contains(&leaf);
        is_leaf && name.ends_with(end) && theirs.contains(value)
    })
}

/// The names of all fields of all record types, and further names.
fn names() -> Vec<String> {
    let list = std::fs::read_to_string(database("fields.txt")).expect("the list is there");
    let mut fields: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (group, names) in list.lines().filter_map(|line| line.split_once(' ')).filter(|(group, _)| *group != "#") {
        fields.entry(group).or_default().extend(names.split(' '));
    }
    let common = fields.remove("common").expect("the common fields are listed");
    let own = fields.keys().filter(|name| **name != "waveform").map(|name| (*name, *name));
    let mut found: Vec<String> = OTHER_NAMES.iter().map(|name| name.to_string()).collect();
    for (record, record_type) in own.chain(OTHER_RECORDS.iter().copied()) {
        found.push(record.to_string());
        found.extend(common.iter().chain(&fields[record_type]).map(|field| format!("{record}.{field}")));
    }
    found
}

/// A server with a client.
struct FieldServer {
    server: TestServer,
    client: PeerClient,
}

const TIMEOUT: Duration = Duration::from_secs(20);

/// Names that are read with one request.
const BATCH: usize = 400;

impl FieldServer {
    fn start(kind: ServerProgram) -> FieldServer {
        let server = TestServer::start_pva_on(kind, &database("pva_fields.db")).unwrap();
        let client = PeerClient::start("pva_fields.py", &server).unwrap();
        FieldServer { server, client }
    }

    fn both() -> [FieldServer; 2] {
        [FieldServer::start(ServerProgram::Qsrv2), FieldServer::start(ServerProgram::Fodo)]
    }

    fn exchange(&mut self, mut request: Json) -> Json {
        if request["do"] != "monitor" {
            request["timeout"] = 8.into();
        }
        let answer = self.client.exchange(request, TIMEOUT).unwrap();
        let text = answer.to_string().replace(&self.server.prefix, "");
        serde_json::from_str(&text).expect("the prefix contains nothing special")
    }

    fn structures(&mut self, request: Json) -> Vec<Json> {
        self.exchange(request)["structures"].as_array().expect("structures").clone()
    }

    fn get(&mut self, names: &[String]) -> Vec<Json> {
        let pvs: Vec<String> = names.iter().map(|name| self.server.pv(name)).collect();
        pvs.chunks(BATCH).flat_map(|pvs| self.structures(json!({ "do": "get", "pvs": pvs, "request": "" }))).collect()
    }

    /// The result of a put: whether it was done, and the value that it leaves in `read`.
    fn put(&mut self, name: &str, value: &Json, request: &str, read: &str) -> String {
        let value = match value.as_str().and_then(|text| text.strip_prefix("PV ")) {
            Some(target) => Json::from(self.server.pv(target)),
            None => value.clone(),
        };
        let puts = json!([[self.server.pv(name), value]]);
        let results = self.exchange(json!({ "do": "put", "puts": puts, "request": request }));
        let is_done = results["results"][0] == "done";
        let left = self.get(&[read.to_string()]).remove(0);
        let leaves = &left["leaves"];
        let left = leaves.get("value").or(leaves.get("value.index")).unwrap_or(&left["error"]).clone();
        format!("{} {left}", if is_done { "done," } else { "refused," })
    }
}

/// The differences, as groups: what differs, with the names where it does.
#[derive(Default)]
struct FieldDifferences(BTreeMap<[String; 3], Vec<String>>);

impl FieldDifferences {
    fn add(&mut self, name: &str, what: &str, theirs: impl ToString, ours: impl ToString) {
        let group = [what.to_string(), theirs.to_string(), ours.to_string()];
        if group[1] != group[2] {
            self.0.entry(group).or_default().push(name.to_string());
        }
    }

    /// Compares two structures, or two errors.
    fn compare(&mut self, name: &str, [theirs, ours]: [&Json; 2]) {
        if theirs.get("error").is_some() || ours.get("error").is_some() {
            return self.add(name, "error", &theirs["error"], &ours["error"]);
        }
        if theirs["type"] != ours["type"] {
            return self.add(name, "type", &theirs["type"], &ours["type"]);
        }
        for (leaf, value) in theirs["leaves"].as_object().expect("leaves") {
            let their_text = value.as_str().unwrap_or_default();
            if !leaf.starts_with("timeStamp.") && !is_excepted(name, leaf, their_text) {
                self.add(name, leaf, value, &ours["leaves"][leaf]);
            }
        }
        let only = |of: &Json, not_of: &Json| {
            let other = not_of["marked"].as_array().expect("marks").clone();
            let marks = of["marked"].as_array().expect("marks").iter();
            marks.filter(|mark| !other.contains(mark)).map(|mark| format!("{mark} ")).collect::<String>()
        };
        self.add(name, "marked only by the one", only(theirs, ours), only(ours, theirs));
    }

    fn assert_none(&self) {
        const NAMES_SHOWN: usize = 12;
        let mut lines: Vec<(usize, String)> = Vec::new();
        for ([what, theirs, ours], names) in &self.0 {
            let shown = names[..names.len().min(NAMES_SHOWN)].join(" ");
            lines.push((names.len(), format!("{} x {what}: QSRV2 {theirs}, fodo {ours}: {shown}", names.len())));
        }
        lines.sort_by_key(|(n, _)| std::cmp::Reverse(*n));
        let text: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
        assert!(text.is_empty(), "{}\n{} kinds of differences", text.join("\n"), text.len());
    }
}

#[test]
fn every_field_has_the_type_the_values_and_the_marks_of_qsrv2() {
    let [mut theirs, mut ours] = FieldServer::both();
    let names = names();
    let mut differences = FieldDifferences::default();

    let (their_structures, our_structures) = (theirs.get(&names), ours.get(&names));
    for (name, pair) in names.iter().zip(their_structures.iter().zip(&our_structures)) {
        differences.compare(name, pair.into());
    }

    assert!(names.len() > 4_000, "{} fields of all types of Base", names.len());
    let n_read = their_structures.iter().filter(|structure| structure.get("leaves").is_some()).count();
    assert_eq!(n_read, names.len(), "QSRV2 serves all of them");
    differences.assert_none();
}

/// Puts with their values as JSON, up to the update in which a leaf has a value.
type PutGroup = (&'static [(&'static str, &'static str)], &'static str, &'static str);

/// Subscriptions, each with its options and with groups of puts: the updates of each group are compared.
const SUBSCRIPTIONS: &[(&str, &str, &[PutGroup])] = &[
    (
        "ao",
        "",
        &[
            (&[("ao", "1.0")], "value", "1.0"),
            // A limit without a severity is not set.
            (&[("ao", "1.0"), ("ao.HIGH", "4.0")], "valueAlarm.highWarningLimit", "nan"),
            (&[("ao.HSV", "1")], "valueAlarm.highWarningLimit", "4.0"),
            (&[("ao", "4.5")], "alarm.message", "'HIGH'"),
            (&[("ao", "4.5"), ("ao.DESC", "\"new\""), ("ao.EGU", "\"mm\"")], "display.units", "'mm'"),
            (&[("ao", "3.0")], "alarm.severity", "0"),
        ],
    ),
    ("ao.DESC", "", &[(&[("ao.DESC", "\"newer\"")], "value", "'newer'")]),
    (
        "masked",
        "",
        &[
            (&[("masked", "0.5"), ("masked", "2.0")], "value", "2.0"),
            (&[("masked", "60.0")], "value", "60.0"),
            (&[("masked", "61.5")], "value", "61.5"),
        ],
    ),
    (
        "masked",
        "record[DBE=ARCHIVE]",
        &[(&[("masked", "2.0")], "value", "2.0"), (&[("masked", "4.0"), ("masked", "60.0")], "value", "60.0")],
    ),
    (
        "masked",
        "record[DBE=ALARM]",
        &[(&[("masked", "2.0")], "value", "2.0"), (&[("masked", "4.0"), ("masked", "60.0")], "value", "60.0")],
    ),
    (
        "masked",
        "record[DBE=VALUE]",
        &[(&[("masked", "2.0")], "value", "2.0"), (&[("masked", "2.5"), ("masked", "60.0")], "value", "60.0")],
    ),
    ("masked", "field(value)", &[(&[("masked", "2.0")], "value", "2.0")]),
    ("masked", "field(alarm,timeStamp)", &[(&[("masked", "60.0")], "alarm.severity", "1")]),
    ("masked", "field(display)", &[(&[("masked", "2.0"), ("masked.EGU", "\"mm\"")], "display.units", "'mm'")]),
    (
        "bo",
        "",
        &[
            (&[("bo", "{\"value.index\":1}")], "value.index", "1"),
            (&[("bo.ONAM", "\"new\"")], "value.choices", "['off', 'new']"),
            (&[("bo", "{\"value.index\":0}")], "value.index", "0"),
        ],
    ),
    (
        "stringout",
        "",
        &[
            (&[("stringout", "\"x\"")], "value", "'x'"),
            (&[("stringout", "\"x\""), ("stringout", "\"y\"")], "value", "'y'"),
        ],
    ),
    (
        "wf_DOUBLE",
        "",
        &[
            (&[("wf_DOUBLE", "[1.0, 2.0]")], "value", "[1.0, 2.0]"),
            (&[("wf_DOUBLE", "[]")], "value", "[]"),
            (&[("wf_DOUBLE.EGU", "\"V\"")], "display.units", "'V'"),
        ],
    ),
    ("text", "", &[(&[("text", "\"hello\"")], "value", "'hello'")]),
    ("calc.A", "", &[(&[("calc.A", "5.0")], "value", "5.0")]),
    ("ao.STAT", "", &[(&[("ao.HIGH", "2.0"), ("ao", "2.5")], "value.index", "4")]),
    ("lso", "", &[(&[("lso", "\"abc\""), ("lso", "\"abd\"")], "value", "'abd'")]),
    ("mbboDirect.B1", "", &[(&[("mbboDirect", "7")], "value", "1")]),
    ("int64out", "", &[(&[("int64out", "7")], "value", "7")]),
    (
        "ao.SCAN",
        "",
        &[
            (&[("ao.SCAN", "{\"value.index\":3}")], "value.index", "3"),
            (&[("ao.SCAN", "{\"value.index\":0}")], "value.index", "0"),
        ],
    ),
    ("numbers.[1:2]", "", &[(&[("numbers", "[5.0, 6.0, 7.0]")], "value", "[6.0, 7.0]")]),
    ("ai.{dbnd:{d:5}}", "", &[(&[("ai", "3.0"), ("ai", "20.0")], "value", "20.0")]),
];

#[test]
fn a_subscription_receives_the_updates_of_qsrv2() {
    let mut sides = FieldServer::both();
    let mut differences = FieldDifferences::default();

    for (number, (name, options, groups)) in SUBSCRIPTIONS.iter().enumerate() {
        // So that no server merges updates.
        let request = match options.strip_suffix(']') {
            Some(options) => format!("{options},queueSize=100]"),
            None => format!("{options}record[queueSize=100]"),
        };
        let mut found = sides.each_mut().map(|side| {
            let pvs = [side.server.pv(name)];
            side.exchange(json!({ "do": "monitor", "pvs": pvs, "request": request }));
            vec![side.structures(json!({ "do": "take", "monitors": [number] }))]
        });
        for (puts, leaf, text) in *groups {
            for (side, found) in sides.iter_mut().zip(&mut found) {
                for (put, value) in *puts {
                    let value: Json = serde_json::from_str(value).expect("JSON");
                    assert!(side.put(put, &value, "", put).starts_with("done"), "{put}");
                }
                let until = json!({ "do": "take_until", "monitor": number, "leaf": leaf, "text": text });
                found.push(side.structures(until));
            }
        }
        let [theirs, ours] = found;
        for (group, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
            let name = format!("{name} {options} group {group}");
            assert!(theirs.iter().all(|update| update.get("error").is_none()), "{name}: {theirs:?}");
            differences.add(&name, "number of updates", theirs.len(), ours.len());
            theirs.iter().zip(ours).for_each(|pair| differences.compare(&name, pair.into()));
        }
    }

    differences.assert_none();
}

/// Puts without options: the name and the value. A text that begins with `PV ` is the name of a record.
fn puts() -> Vec<(&'static str, Json)> {
    let index = |index: i64| json!({ "value.index": index });
    let long = |letter: &str, n| Json::from(letter.repeat(n));
    vec![
        ("longout", 3.7.into()),
        ("longout", 1e12.into()),
        ("longout", "12".into()),
        ("longout", "nonsense".into()),
        ("ao", "1.5".into()),
        ("mbbo", index(1)),
        ("mbbo", index(9)),
        ("mbbo", index(-1)),
        ("bo", index(1)),
        ("bo", index(5)),
        ("ao.SCAN", index(1)),
        ("ao.SCAN", index(0)),
        ("ao.DTYP", index(1)),
        ("ao.DTYP", index(0)),
        ("stringout", long("x", 39)),
        ("stringout", long("x", 60)),
        ("stringout", 12.into()),
        ("lso", long("y", 49)),
        ("lso", long("y", 90)),
        ("lso", "".into()),
        ("ao.DESC", long("z", 39)),
        ("ao.EGU", long("e", 30)),
        ("linked.INP", "PV ao".into()),
        ("linked.INP", format!("PV {}", "l".repeat(70)).into()),
        ("linked.INP", "".into()),
        ("linked.FLNK", "PV ao".into()),
        ("linked.INP$", "PV ao".into()),
        ("ao.DESC$", json!([65, 66, 0])),
        ("ao.DESC$", json!([65, 66])),
        ("text", long("w", 59)),
        ("text", long("w", 80)),
        ("text", "".into()),
        ("text:unsigned", json!([1, 2, 3])),
        ("one", 2.5.into()),
        ("one:text", "one".into()),
        ("one:character", 65.into()),
        ("numbers", json!([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])),
        ("numbers", json!([])),
        ("numbers", json!(["1", "2"])),
        ("texts", json!(["a", "b".repeat(50)])),
        ("texts", json!([])),
        ("integers", json!([1, 2])),
        ("wf_UCHAR", json!([1, 255])),
        ("wf_INT64", json!([1_i64 << 60])),
        ("wf_UINT64", json!([1_u64 << 63])),
        ("numbers.[1:2]", json!([7.0, 8.0])),
        ("ao.NAME", "n".into()),
        ("ao.STAT", index(1)),
        ("ao.RTYP", "x".into()),
        ("numbers.NORD", 3.into()),
        ("wf_DOUBLE.NELM", 3.into()),
        ("locked", 5.into()),
        ("locked.DESC", "x".into()),
        ("calc.CALC", "A+".into()),
        ("calc.CALC", "A+2".into()),
        ("calc.CALC", format!("A{}", "+1".repeat(36)).into()),
        ("mbbiDirect.B1", 1.into()),
        ("ao.UDF", 0.into()),
        ("ao.PREC", 300_000.into()),
        ("int64out", (1_i64 << 40).into()),
    ]
}

/// Puts that may process a record: the name, the value, and the field that shows whether it was processed.
fn processing_puts() -> Vec<(&'static str, Json, &'static str)> {
    vec![
        ("ao", 1.5.into(), "ao.OVAL"),
        ("ao", 2.5.into(), "ao.OVAL"),
        ("counting", 10.0.into(), "counting"),
        ("counting.PROC", 1.into(), "counting"),
        ("counting.PREC", 2.into(), "counting"),
        ("counting.PROC", 0.into(), "counting"),
        ("scanned", 20.0.into(), "scanned"),
        ("scanned.PROC", 1.into(), "scanned"),
        ("scanned.A", 1.0.into(), "scanned"),
        ("linked.INP", "PV ao".into(), "linked.INP"),
        ("disabled", 5.into(), "disabled"),
        ("disabled.DISP", 1.into(), "disabled.DISP"),
    ]
}

/// The options of puts. If completion is requested as well, QSRV2 ignores `process`.
const REQUESTS: [&str; 7] = [
    "",
    "record[process=true]",
    "record[process=false]",
    "record[process=passive]",
    "record[process=nonsense]",
    "record[block=true]",
    "record[block=nonsense]",
];

#[test]
fn a_put_does_what_it_does_with_qsrv2() {
    let [mut theirs, mut ours] = FieldServer::both();
    let mut differences = FieldDifferences::default();

    for (name, value) in puts() {
        let [theirs, ours] = [&mut theirs, &mut ours].map(|side| side.put(name, &value, "", name));
        differences.add(name, &format!("put of {value}"), theirs, ours);
    }
    for request in REQUESTS {
        for (name, value, read) in processing_puts() {
            let [theirs, ours] = [&mut theirs, &mut ours].map(|side| side.put(name, &value, request, read));
            differences.add(name, &format!("put of {value} with {request}"), theirs, ours);
        }
    }

    differences.assert_none();
}

// Listed in docs/reference/differences.md.
#[test]
fn a_description_of_40_characters_is_kept_whole_and_without_the_last_one_by_qsrv2() {
    let description = Json::from("z".repeat(40));
    let kept = FieldServer::both().map(|mut side| side.put("ao.DESC", &description, "", "ao.DESC"));

    assert_eq!(kept, [39, 40].map(|n| format!("done, \"'{}'\"", "z".repeat(n))));
}

#[test]
fn the_lowest_bits_of_the_time_are_the_user_tag_of_a_record_that_says_so() {
    for mut side in FieldServer::both() {
        side.put("tagged", &5.0.into(), "", "tagged");

        let pvs = [side.server.pv("tagged")];
        side.exchange(json!({ "do": "monitor", "pvs": pvs, "request": "" }));
        let update = side.structures(json!({ "do": "take", "monitors": [0] })).remove(0);

        for found in side.get(&["tagged".into(), "tagged.HIGH".into()]).iter().chain([&update]) {
            let number = |leaf: &str| found["leaves"][leaf].as_str().and_then(|text| text.parse::<u32>().ok());
            let (nanos, tag) = (number("timeStamp.nanoseconds").unwrap(), number("timeStamp.userTag").unwrap());
            assert!(nanos % (1 << 20) == 0 && 0 < tag && tag < 1 << 20, "{found}");
        }
    }
}
