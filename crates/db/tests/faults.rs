//! The effects of faulty files, links and clocks on a database, by the rows of `docs/reference/faults.md`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::ErrorKind;
use std::time::Duration;

use fodo_data::{Alarm, Now, Severity, Status, TimeStamp, Value};
use fodo_db::{Database, Event, FieldRef, Input, LoadError, Loader, Macros, PutId, RoutineFailed, UndefinedMacros};

/// The number of ticks that a test gives the engine.
const N_TICKS: usize = 20;

/// The errors that the loader of `fodo check` reports for a file after another file was loaded. It verifies that the
/// valid parts of the file are loaded.
fn load_errors(files: &[(&str, &str)], macros: &str) -> Vec<LoadError> {
    let mut open = |requested: &str| {
        let found = files.iter().find(|(name, _)| *name == requested);
        found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| ErrorKind::NotFound.into())
    };
    let mut loader = Loader::with_places();
    let before = "record(ai, before) { field(DESC, as_it_was) } record(ai, gone) {}";
    loader.load("before.db", "", &mut |_| Ok(before.as_bytes().to_vec())).unwrap();

    let errors = loader.load(files[0].0, macros, &mut open).unwrap_err();

    let database = loader.finish().unwrap();
    let is_changed = files[0].1.starts_with(CHANGES);
    assert_eq!(database.field("gone").is_none() && database.field("new").is_some(), is_changed);
    let description = database.read(database.field("before.DESC").unwrap()).value.first().unwrap();
    assert_eq!(description.to_text(None).to_string(), if is_changed { "changed" } else { "as_it_was" });
    errors
}

/// Valid statements at the start of every bad file below.
const CHANGES: &str =
    "record(\"*\", before) { field(DESC, changed) alias(other) info(a, b) }\nrecord(\"#\", gone)\nrecord(ao, new) {}\n";

fn places(errors: &[LoadError]) -> Vec<String> {
    errors.iter().map(LoadError::place).collect()
}

// Row 62 of docs/reference/faults.md.
#[test]
fn circular_includes_are_reported_with_their_position_and_only_they_are_dropped() {
    let top = format!("{CHANGES}include \"b\"\n");
    let errors =
        load_errors(&[("a", &top), ("b", "record(ao, more) {}\n include \"c\"\n"), ("c", "include \"a\"\n")], "");

    assert_eq!(places(&errors), ["c:1:9"]);
    assert!(errors[0].message.ends_with("a -> b -> c -> a"), "{}", errors[0]);

    let deep: Vec<(String, String)> =
        (0..1000).map(|n| (format!("f{n}"), format!("{CHANGES}include \"f{}\"\n", n + 1))).collect();
    let deep: Vec<(&str, &str)> = deep.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let errors = load_errors(&deep, "");
    assert!(errors.iter().any(|error| error.message.contains("circular")), "{}", errors[0]);
}

// Row 62 of docs/reference/faults.md.
#[test]
fn exponentially_growing_includes_are_reported_and_only_they_are_dropped() {
    let level = |n: usize| format!("include \"f{0}\"\ninclude \"f{0}\"\n", n + 1);
    let levels: Vec<(String, String)> = (0..19).map(|n| (format!("f{n}"), level(n))).collect();
    let mut files: Vec<(&str, &str)> = levels.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    files.push(("f19", "record(ao, new) {}\n"));

    let errors = load_errors(&files, "");

    assert!(errors.len() <= 100 && errors.iter().all(|error| error.message.contains("files are included")));
    let mut open = |requested: &str| {
        let found = files.iter().find(|(name, _)| *name == requested);
        found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| ErrorKind::NotFound.into())
    };
    assert!(!fodo_db::instances("f0", &Macros::default(), &mut open).1.is_empty());
    assert!(fodo_db::expand("f0", &mut Macros::default(), UndefinedMacros::Keep, &mut open).is_err());
}

// Row 62 of docs/reference/faults.md.
#[test]
fn circular_or_exponentially_growing_macros_are_reported_with_their_position() {
    let doubling: Vec<String> = (0..60).map(|n| format!("M{n}=$(M{0})$(M{0})", n + 1)).collect();
    for (macros, expected) in [
        ("A=$(B),B=$(A)", "contains itself"),
        ("A=x$(A)", "contains itself"),
        (&format!("{},M60=x,A=$(M0)", doubling.join(",")), "macros"),
    ] {
        let text = format!("{CHANGES}record(ai, \"$(A)\") {{}}\n");
        let errors = load_errors(&[("a", &text)], macros);

        assert_eq!(places(&errors), ["a:4:13"], "{macros}");
        assert!(errors[0].message.contains(expected), "{}", errors[0]);
    }
}

// Row 62 of docs/reference/faults.md.
#[test]
fn duplicate_record_names_append_to_the_record_or_are_reported_with_their_position() {
    let text = format!("{CHANGES}record(bo, before) {{}}\nalias(new, before)\nrecord(ai, x) {{ alias(new) }}\n");

    let errors = load_errors(&[("a", &text)], "");

    assert_eq!(places(&errors), ["a:4:12", "a:5:12", "a:6:23"]);
    assert!(errors[0].message.contains("already exists with type ai"), "{}", errors[0]);

    let mut loader = Loader::default();
    let twice = "record(ai, a) { field(DESC, one) field(EGU, mm) } record(ai, a) { field(DESC, two) }";
    loader.load("twice.db", "", &mut |_| Ok(twice.as_bytes().to_vec())).unwrap();
    loader.set_records_once_only(true);
    let errors = loader.load("thrice.db", "", &mut |_| Ok(b"\nrecord(ai, a) {}".to_vec())).unwrap_err();
    assert_eq!(places(&errors), ["thrice.db:2:12"]);
    assert_eq!(loader.finish().unwrap().record_names().count(), 1);
}

// Row 62 of docs/reference/faults.md.
#[test]
fn nothing_of_a_record_that_records_once_only_rejects_is_applied() {
    let group = |member: &str| format!("info(Q:group, {{ \"g\": {{ \"{member}\": {{ \"+channel\": \"VAL\" }} }} }})");
    let first = format!("record(ai, a) {{ field(DESC, one) {} }}", group("x"));
    let again = format!(
        "record(ai, a) {{ field(DESC, two) info(i, v) alias(b) {} }} record(\"*\", a) {{ field(EGU, mm) }} record(ai, c) {{}}",
        group("y")
    );
    let mut loader = Loader::default();
    loader.load("first.db", "", &mut |_| Ok(first.clone().into_bytes())).unwrap();
    loader.set_records_once_only(true);

    loader.load("again.db", "", &mut |_| Ok(again.clone().into_bytes())).unwrap_err();
    let rows = "file t.db { {} }";
    let template = |file: &str| Ok(if file == "t.db" { again.clone().into_bytes() } else { rows.into() });
    loader.load_template("t.subs", "", &mut { template }).unwrap_err();

    let groups = loader.take_groups();
    assert_eq!(groups.groups.iter().map(|group| group.members.len()).collect::<Vec<_>>(), [1]);
    let database = loader.finish().unwrap();
    let read = |name: &str| database.field(name).map(|field| database.read(field).value);
    assert_eq!((read("a.DESC"), read("a.EGU")), (Some("one".into()), Some("mm".into())));
    assert_eq!((read("b"), database.record_names().count()), (None, 2));
}

#[test]
fn the_body_of_a_deleted_record_is_ignored() {
    let text = "record(ai, a) {} record(\"#\", a) { field(DESC, gone) alias(b) info(i, v) } record(ai, c) {}";
    let mut loader = Loader::default();

    loader.load("a.db", "", &mut |_| Ok(text.into())).unwrap();

    assert_eq!(loader.finish().unwrap().record_names().collect::<Vec<_>>(), ["c"]);
}

// Row 62 of docs/reference/faults.md.
#[test]
fn byte_order_marks_and_carriage_returns_are_ignored() {
    let text = "\u{feff}record(ai, a) {\r\n  field(DESC, \"x\")\r\n}\r\n# end\r\n";
    let mut loader = Loader::default();
    loader.load("a", "", &mut |_| Ok(text.as_bytes().to_vec())).unwrap();
    let database = loader.finish().unwrap();
    assert_eq!(database.read(database.field("a.DESC").unwrap()).value, Value::from("x"));

    let wrong = "\u{feff}recrod(ai, a) {\r\n}\r\nrecord(ai, a) {\r\n  field(DESK, \"x\")\r\n}\r\n";
    let errors = load_errors(&[("a", wrong)], "");
    assert_eq!(places(&errors), ["a:1:1", "a:4:9"]);
    assert!(errors.iter().all(|error| !error.source.contains('\r')), "{errors:?}");
}

// Row 62 of docs/reference/faults.md.
#[test]
fn unclosed_quotes_and_brackets_are_reported_at_their_opening_position() {
    for (text, place) in [
        ("record(ai, \"x) {}\nrecord(ai, y) {}\n", "a:4:12"),
        ("record(ai, x) {\n field(DESC, \"open)\n}\nrecord(ai, \"y\") {}\n", "a:5:14"),
        ("record(ai, x) { field(INP, {calc: {expr: \"A", "a:4:28"),
        ("record(ai, x) { field(INP, {const: [1, 2}) }\n", "a:4:28"),
    ] {
        let errors = load_errors(&[("a", &format!("{CHANGES}{text}"))], "");

        assert_eq!(places(&errors)[0], place, "{text}");
    }
}

// Row 62 of docs/reference/faults.md.
#[test]
fn too_deeply_nested_json_links_are_reported_with_their_position() {
    let nested = "{calc:{expr:\"A\",args:[".repeat(20_000);
    for json in ["[".repeat(1_000_000), nested.clone(), format!("{nested}1{}", "]}}".repeat(20_000))] {
        let errors = load_errors(&[("a", &format!("{CHANGES}record(ai, x) {{ field(INP, {json}) }}\n"))], "");

        assert_eq!(places(&errors)[0], "a:4:28");
        assert!(errors[0].to_string().len() < 2_000, "the message is short");
    }
}

// Row 62 of docs/reference/faults.md.
#[test]
fn many_warnings_on_one_long_line_use_little_memory() {
    let text = "record(ai, a) { field(HIGH, 1) field(INP, nobody) } ".repeat(20_000);
    let mut loader = Loader::with_places();

    loader.load("a", "", &mut |_| Ok(text.as_bytes().to_vec())).unwrap();

    let remarks = loader.warnings();
    assert!(remarks.len() >= 19_999);
    let n_bytes: usize = remarks.iter().map(|remark| remark.source.len()).sum();
    assert!(n_bytes < 50_000_000, "{n_bytes}");
}

struct TestIoc {
    database: Database,
    now: Now,
    events: Vec<Event>,
}

impl TestIoc {
    fn new(db: &str) -> TestIoc {
        TestIoc::loaded(Loader::default(), db)
    }

    fn loaded(loader: Loader, db: &str) -> TestIoc {
        TestIoc::at(Now::for_test(), loader, db)
    }

    fn at(now: Now, mut loader: Loader, db: &str) -> TestIoc {
        loader.load("test.db", "", &mut |_| Ok(db.as_bytes().to_vec())).unwrap();
        let mut ioc = TestIoc { database: loader.finish().unwrap(), now, events: Vec::new() };
        ioc.give(Input::Start);
        ioc
    }

    fn give(&mut self, input: Input) {
        self.database.handle(input, self.now, &mut self.events).unwrap();
    }

    fn field(&self, name: &str) -> FieldRef {
        self.database.field(name).unwrap()
    }

    fn put(&mut self, name: &str, value: impl Into<Value>) {
        let field = self.field(name);
        self.give(Input::Put { field, value: value.into(), put: None });
    }

    /// Processes a record; returns whether that completes within a few turns of the engine.
    fn completes(&mut self, record: &str) -> bool {
        let field = self.field(&format!("{record}.PROC"));
        self.give(Input::Put { field, value: Value::from(1_i32), put: Some(PutId(1)) });
        for _ in 0..N_TICKS {
            if self.events.drain(..).any(|event| event == Event::PutDone { put: PutId(1) }) {
                return true;
            }
            self.give(Input::Tick);
        }
        false
    }

    fn number(&self, name: &str) -> f64 {
        self.database.read(self.field(name)).value.first().unwrap().to_f64().unwrap()
    }

    fn alarm(&self, name: &str) -> Alarm {
        self.database.read(self.field(name)).alarm
    }

    fn time(&self, name: &str) -> TimeStamp {
        self.database.read(self.field(name)).time
    }
}

// Row 63 of docs/reference/faults.md.
#[test]
fn circular_forward_links_process_each_record_once() {
    let mut ioc = TestIoc::new(
        "record(calc, self) { field(CALC, \"VAL+1\") field(FLNK, self) }
         record(calc, a) { field(CALC, \"VAL+1\") field(FLNK, b) }
         record(calc, b) { field(CALC, \"VAL+1\") field(FLNK, c) }
         record(calc, c) { field(CALC, \"VAL+1\") field(FLNK, a) }
         record(fanout, f) { field(LNK1, f) field(LNK2, a) field(FLNK, f) }",
    );

    for round in 1..=3 {
        assert!(ioc.completes("self") && ioc.completes("a"));
        let counts = ["self", "a", "b", "c"].map(|record| ioc.number(record));
        assert_eq!(counts, [f64::from(round); 4]);
    }
    assert!(ioc.completes("f"));
    assert_eq!([ioc.number("a.PACT"), ioc.number("f.PACT"), ioc.number("self.PACT")], [0.0; 3]);
}

// Row 63 of docs/reference/faults.md.
#[test]
fn circular_input_and_output_links_terminate_and_leave_records_usable() {
    let mut ioc = TestIoc::new(
        "record(calc, own) { field(CALC, \"A+1\") field(INPA, \"own PP MS\") }
         record(calc, a) { field(CALC, \"A+1\") field(INPA, \"b PP MS\") }
         record(calc, b) { field(CALC, \"A+1\") field(INPA, \"a PP MS\") }
         record(ao, out) { field(OMSL, closed_loop) field(DOL, back) field(OUT, \"back PP\") }
         record(ao, back) { field(OUT, \"out PP\") }",
    );

    for _ in 0..3 {
        let before = ["own", "a", "b"].map(|record| ioc.number(record));
        for record in ["own", "a", "b", "out", "back"] {
            assert!(ioc.completes(record), "{record}");
            assert_eq!(ioc.number(&format!("{record}.PACT")), 0.0, "{record}");
        }
        let after = ["own", "a", "b"].map(|record| ioc.number(record));
        assert!(before.iter().zip(&after).all(|(before, after)| after > before), "{before:?} {after:?}");
    }
    ioc.put("a.INPA", "");
    ioc.put("a.A", 7.0);
    assert!(ioc.completes("a"));
    assert_eq!(ioc.number("a"), 8.0);
}

// Row 63 of docs/reference/faults.md.
#[test]
fn cp_link_loops_do_not_starve_other_records() {
    let mut ioc = TestIoc::new(
        "record(calc, own) { field(CALC, \"A+1\") field(INPA, \"own CP\") }
         record(calc, a) { field(CALC, \"A+1\") field(INPA, \"b CP\") }
         record(calc, b) { field(CALC, \"A+1\") field(INPA, \"a CP\") }
         record(calc, bystander) { field(SCAN, \".1 second\") field(CALC, \"VAL+1\") }",
    );
    let before = ioc.number("bystander");

    for _ in 0..N_TICKS {
        ioc.now = ioc.now + Duration::from_millis(100);
        ioc.give(Input::Tick);
    }

    assert_eq!(ioc.number("bystander"), before + N_TICKS as f64);
    assert!(ioc.number("a") > 100.0 && ioc.number("own") > 100.0);
    ioc.put("a.INPA", "b");
    ioc.put("own.INPA", "own");
    for _ in 0..N_TICKS {
        ioc.give(Input::Tick);
    }
    let rest = [ioc.number("a"), ioc.number("own")];
    ioc.give(Input::Tick);
    assert_eq!([ioc.number("a"), ioc.number("own")], rest, "the loops are broken");
}

// Row 63 of docs/reference/faults.md.
#[test]
fn division_by_zero_raises_an_alarm_that_clears_with_its_cause() {
    let invalid = Severity::Invalid;
    for (record, expression, status) in
        [("calc", "A/B-A/B", Status::UDF), ("calc", "A%B", Status::UDF), ("scalcout", "A/B", Status::CALC)]
    {
        let mut ioc = TestIoc::new(&format!(
            "record({record}, c) {{ field(CALC, \"{expression}\") field(INPA, 6) field(INPB, divisor) field(FLNK, next) }}
             record(ao, divisor) {{ field(VAL, 4) field(UDF, 0) }} record(calc, next) {{ field(CALC, \"VAL+1\") }}",
        ));
        assert!(ioc.completes("c"));
        assert_eq!(ioc.alarm("c").severity, Severity::None, "{record} {expression}");

        ioc.put("divisor", 0.0);
        assert!(ioc.completes("c"));
        assert_eq!(ioc.alarm("c"), Alarm { severity: invalid, status }, "{record} {expression}");

        ioc.put("divisor", 4.0);
        assert!(ioc.completes("c"));
        assert_eq!(ioc.alarm("c").severity, Severity::None, "{record} {expression}");
        assert_eq!(ioc.number("next"), 3.0, "the chain continued each time");
    }
}

// Row 63 of docs/reference/faults.md.
#[test]
fn a_failing_or_panicking_routine_raises_an_alarm_and_leaves_the_record_usable() {
    let mut loader = Loader::default();
    let routine = |call: fodo_db::SubCall<'_>| {
        assert!(call.args[0] != 2.0, "this routine panics");
        *call.value = call.args[0] * 10.0;
        if call.args[0] == 1.0 { Err(RoutineFailed) } else { Ok(()) }
    };
    loader.routine("faulty", routine);
    let mut ioc = TestIoc::loaded(
        loader,
        "record(sub, s) { field(SNAM, faulty) field(BRSV, MAJOR) field(UDF, 0) field(FLNK, next) }
         record(calc, next) { field(CALC, \"VAL+1\") }",
    );

    for input in [1.0, 2.0] {
        ioc.put("s.A", input);
        assert!(ioc.completes("s"));
        assert_eq!(ioc.alarm("s"), Alarm { severity: Severity::Major, status: Status::SOFT }, "{input}");
        assert_eq!(ioc.number("s.PACT"), 0.0);

        ioc.put("s.A", 3.0);
        assert!(ioc.completes("s"));
        assert_eq!((ioc.number("s"), ioc.alarm("s").severity), (30.0, Severity::None));
    }
    assert_eq!(ioc.number("next"), 8.0);
}

/// Records that wait: scans, delays and alarm filters.
const WAITING: &str = "record(calc, scanned) { field(SCAN, \".5 second\") field(CALC, \"VAL+1\") }
    record(calcout, delayed) { field(CALC, \"VAL+1\") field(ODLY, 2) field(SCAN, \"5 second\") field(FLNK, after) }
    record(calc, after) { field(CALC, \"VAL+1\") }
    record(bo, pulse) { field(HIGH, 1) field(SCAN, \"2 second\") field(DOL, 1) field(OMSL, closed_loop) field(FLNK, edges) }
    record(calc, edges) { field(CALC, \"VAL+1\") }
    record(ai, simulated) { field(SIMM, YES) field(SIOL, after) field(SDLY, 0.2) field(SCAN, \"1 second\") }";

// Row 65 of docs/reference/faults.md.
#[test]
fn wall_clock_steps_do_not_shift_scans_or_delays_but_change_value_time_stamps() {
    for steps_s in [[0, -3600, -3600, 0], [0, 3600, 3600, 0], [3600, 0, -3600, 0]] {
        let now = Now::for_test();
        let [mut steady, mut stepping] = [WAITING; 2].map(|db| TestIoc::at(now, Loader::default(), db));
        let watched = ["scanned", "delayed", "after", "edges", "simulated"];

        for turn in 0..200 {
            for ioc in [&mut steady, &mut stepping] {
                ioc.now = ioc.now + Duration::from_millis(100);
            }
            stepping.now.wall.unix_s = steady.now.wall.unix_s + steps_s[turn / 50];
            for ioc in [&mut steady, &mut stepping] {
                ioc.give(Input::Tick);
            }

            for record in watched {
                assert_eq!(stepping.number(record), steady.number(record), "{record} in turn {turn}");
                if steady.time(record) == steady.now.wall {
                    assert_eq!(stepping.time(record), stepping.now.wall, "{record} in turn {turn}");
                }
            }
        }
        let counts = watched.map(|record| steady.number(record));
        assert_eq!(counts, [40.0, 4.0, 3.0, 11.0, 3.0]);
    }
}

// Row 65 of docs/reference/faults.md.
#[test]
fn the_alarm_filter_treats_a_backward_clock_step_as_zero_elapsed_time() {
    let mut ioc = TestIoc::new("record(ai, a) { field(HIGH, 5) field(HSV, MINOR) field(AFTC, 2) field(UDF, 0) }");
    ioc.put("a", 1.0);

    for step_s in [-2, -1, -3600] {
        ioc.now.wall.unix_s += step_s;
        ioc.put("a", 9.0);
        assert_eq!(ioc.alarm("a").severity, Severity::None, "after a step of {step_s} s no time has passed");

        for _ in 0..10 {
            ioc.now = ioc.now + Duration::from_secs(1);
            ioc.put("a", 9.0);
        }
        assert_eq!(ioc.alarm("a").severity, Severity::Minor, "ten seconds above the limit");

        for _ in 0..20 {
            ioc.now = ioc.now + Duration::from_secs(1);
            ioc.put("a", 1.0);
        }
        assert_eq!(ioc.alarm("a").severity, Severity::None);
    }
}
