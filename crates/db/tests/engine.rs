//! The engine as a whole: chains, loops, timers, completion, scans, threads.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "engine/bounds.rs"]
mod bounds;
#[path = "engine/busy.rs"]
mod busy;
#[path = "engine/constants.rs"]
mod constants;
#[path = "engine/external.rs"]
mod external;
#[path = "engine/links.rs"]
mod links;
#[path = "engine/pva_links.rs"]
mod pva_links;
#[path = "engine/scans.rs"]
mod scans;
#[path = "engine/stamps.rs"]
mod stamps;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fodo_data::{AcknowledgePut, Alarm, Array, EventMask, Kind, Now, Scalar, Severity, Status, Text, TimeStamp, Value};
use fodo_db::{
    AccessLevel, Database, Event, FieldRef, Input, Loader, PutError, PutId, RoutineFailed, Site, Stream, Zone,
};

struct TestIoc {
    database: Database,
    now: Now,
    events: Vec<Event>,
}

impl TestIoc {
    fn new(db: &str) -> TestIoc {
        TestIoc::loaded(Loader::default(), db)
    }

    fn at(site: Arc<dyn Site>, db: &str) -> TestIoc {
        let mut loader = Loader::default();
        loader.set_site(site);
        TestIoc::loaded(loader, db)
    }

    fn loaded(mut loader: Loader, db: &str) -> TestIoc {
        loader.load("test.db", "", &mut |_| Ok(db.as_bytes().to_vec())).unwrap();
        let mut ioc = TestIoc { database: loader.finish().unwrap(), now: Now::for_test(), events: Vec::new() };
        ioc.database.handle(Input::Start, ioc.now, &mut ioc.events).unwrap();
        ioc
    }

    fn field(&self, name: &str) -> FieldRef {
        self.database.field(name).unwrap()
    }

    fn put(&mut self, name: &str, value: impl Into<Value>, put: Option<u64>) -> Result<(), PutError> {
        let input = Input::Put { field: self.field(name), value: value.into(), put: put.map(PutId) };
        self.database.handle(input, self.now, &mut self.events)
    }

    /// Advances the time to the next deadline; returns false when there is none.
    fn step(&mut self) -> bool {
        let Some(due) = self.database.deadline() else { return false };
        self.now = self.now + due.saturating_duration_since(self.now.monotonic);
        self.database.handle(Input::Tick, self.now, &mut self.events).unwrap();
        true
    }

    fn number(&self, name: &str) -> f64 {
        self.database.read(self.field(name)).value.first().unwrap().to_f64().unwrap()
    }

    fn text(&self, name: &str) -> String {
        self.database.read(self.field(name)).value.first().unwrap().to_text(None).to_string()
    }

    fn done(&mut self) -> Vec<u64> {
        let events = std::mem::take(&mut self.events);
        events.iter().filter_map(|event| if let Event::PutDone { put } = event { Some(put.0) } else { None }).collect()
    }
}

#[test]
fn a_chain_of_a_hundred_thousand_forward_links_is_processed_completely() {
    let mut db = String::new();
    for index in 0..100_000 {
        writeln!(db, "record(calc, r{index}) {{ field(CALC, \"VAL+1\") field(FLNK, r{}) }}", index + 1).unwrap();
    }
    db.push_str("record(calc, r100000) { field(CALC, \"VAL+1\") }");
    let mut ioc = TestIoc::new(&db);

    ioc.put("r0.PROC", 1_i32, Some(1)).unwrap();

    assert_eq!(ioc.number("r100000"), 1.0);
    assert_eq!(ioc.done(), [1]);
}

#[test]
fn a_put_without_completion_reports_that_record_processing_failed() {
    let mut ioc = TestIoc::new(
        r#"record(ai, in) { field(INP, "nobody CA") }
        record(ao, out) { field(OUT, "nobody CA") }
        record(ao, chain) { field(OUT, "in PP") }
        record(ai, scanned) { field(INP, "nobody CA") field(SCAN, "Event") }
        record(longout, mute) { field(OUT, "nobody CA") }"#,
    );

    for (name, result) in [
        ("in", Err(PutError::ProcessingFailed)),
        ("in.PROC", Err(PutError::ProcessingFailed)),
        ("in.DESC", Ok(())),
        ("out", Err(PutError::ProcessingFailed)),
        ("chain", Err(PutError::ProcessingFailed)),
        ("scanned.PROC", Err(PutError::ProcessingFailed)),
        ("scanned", Ok(())),
        ("mute", Ok(())),
    ] {
        assert_eq!(ioc.put(name, 5.0, None), result, "{name}");
    }
    assert_eq!(ioc.number("out"), 5.0, "it is written nevertheless");
    assert_eq!(ioc.put("in", 5.0, Some(1)), Ok(()));
    assert_eq!(ioc.done(), [1], "a put completes even if processing fails");
}

#[test]
fn links_nested_too_deep_raise_an_alarm_instead_of_a_stack_overflow() {
    let mut db = String::new();
    for index in 0..2_000 {
        writeln!(db, "record(calc, r{index}) {{ field(CALC, \"A+1\") field(INPA, \"r{} PP MS\") }}", index + 1)
            .unwrap();
    }
    db.push_str("record(calc, r2000) { field(CALC, \"1\") }");
    let mut ioc = TestIoc::new(&db);

    ioc.put("r0.PROC", 1_i32, None).unwrap();
    let reading = ioc.database.read(ioc.field("r0"));
    assert_eq!(reading.alarm, Alarm { severity: Severity::Invalid, status: Status::LINK });

    ioc.put("r1990.PROC", 1_i32, None).unwrap();
    assert_eq!(ioc.number("r1990"), 11.0);
}

#[test]
fn circular_cp_links_continue_across_calls_without_hanging() {
    let mut ioc = TestIoc::new(
        "record(calc, a) { field(CALC, \"A+1\") field(INPA, \"b CP\") }
         record(calc, b) { field(CALC, \"A+1\") field(INPA, \"a CP\") }",
    );
    let before = ioc.number("a");

    assert!(ioc.step());

    assert!(ioc.number("a") > before + 100.0);
    assert_eq!(ioc.database.deadline(), Some(ioc.now.monotonic));
}

#[test]
fn a_put_completes_when_an_asynchronous_record_completes() {
    let mut ioc = TestIoc::new(
        "record(ao, start) { field(FLNK, slow) }
         record(ai, slow) { field(SIMM, YES) field(SIOL, source) field(SDLY, 2) field(FLNK, last) }
         record(ai, source) { field(VAL, 7) }
         record(calc, last) { field(CALC, \"VAL+1\") }",
    );

    ioc.put("start", 1.0, Some(5)).unwrap();
    assert_eq!(ioc.done(), [0; 0]);
    assert_eq!(ioc.number("slow.PACT"), 1.0);
    assert_eq!(ioc.number("last"), 0.0);

    ioc.step();
    assert_eq!(ioc.done(), [5]);
    assert_eq!((ioc.number("slow"), ioc.number("last"), ioc.number("slow.PACT")), (7.0, 1.0, 0.0));
}

#[test]
fn a_put_waits_for_records_started_by_asynchronous_records() {
    let mut ioc = TestIoc::new(
        "record(seq, first) { field(DLY0, 1) field(DOL0, 1) field(LNK0, \"second PP\") }
         record(calcout, second) { field(ODLY, 2) field(CALC, 7) field(FLNK, third) }
         record(seq, third) { field(DOL0, 5) field(LNK0, sink) } record(ao, sink) {}",
    );

    ioc.put("first.PROC", 1_i32, Some(5)).unwrap();
    ioc.step();
    assert_eq!((ioc.number("first.PACT"), ioc.number("second.PACT")), (0.0, 1.0));
    assert_eq!(ioc.done(), [0; 0]);

    ioc.step();
    assert_eq!((ioc.number("second.PACT"), ioc.number("sink")), (0.0, 5.0));
    assert_eq!(ioc.done(), [5]);
}

#[test]
fn a_sub_record_calls_its_routine_by_name() {
    let mut loader = Loader::default();
    loader.routine("product", |call| {
        *call.value = call.args.iter().take(2).product();
        if call.value.is_finite() { Ok(()) } else { Err(RoutineFailed) }
    });
    let db = "record(sub, s) { field(SNAM, product) field(INPA, 6) field(B, 7) field(BRSV, MAJOR) }";
    loader.load("test.db", "", &mut |_| Ok(db.as_bytes().to_vec())).unwrap();
    let mut ioc = TestIoc { database: loader.finish().unwrap(), now: Now::for_test(), events: Vec::new() };

    ioc.put("s.PROC", 1_i32, None).unwrap();
    assert_eq!(ioc.number("s"), 42.0);

    ioc.put("s.B", f64::INFINITY, None).unwrap();
    let alarm = ioc.database.read(ioc.field("s")).alarm;
    assert_eq!(alarm, Alarm { severity: Severity::Major, status: Status::SOFT });
    assert_eq!(ioc.put("s.SNAM", "quotient", None), Err(PutError::Rejected("no routine has this name")));
}

#[test]
fn an_event_that_posts_itself_continues_across_calls_without_hanging() {
    let mut ioc = TestIoc::new(
        "record(calcout, a) { field(CALC, \"VAL+1\") field(OEVT, ring) field(SCAN, Event) field(EVNT, ring) }
         record(calcout, kick) { field(OEVT, ring) }",
    );

    ioc.put("kick.PROC", 1_i32, None).unwrap();

    assert!(ioc.number("a") > 100.0);
    assert_eq!(ioc.database.deadline(), Some(ioc.now.monotonic));
}

const BUSY: &str = "record(ao, a) { field(SIMM, YES) field(SIOL, sink) field(SDLY, 1) field(FLNK, count) }
     record(ao, sink) {} record(calc, count) { field(CALC, \"VAL+1\") }
     record(ao, front) { field(FLNK, a) }";

#[test]
fn a_put_without_completion_to_an_active_record_is_written_and_reprocesses_it() {
    let mut ioc = TestIoc::new(BUSY);

    ioc.put("a", 1.0, Some(1)).unwrap();
    ioc.put("a", 2.0, None).unwrap();
    assert_eq!((ioc.number("a"), ioc.number("a.RPRO")), (2.0, 1.0));
    assert!(ioc.step());
    assert_eq!(ioc.done(), [1]);
    assert!(ioc.step());

    assert_eq!((ioc.number("sink"), ioc.number("count")), (2.0, 2.0));
}

#[test]
fn puts_with_completion_to_an_active_record_are_queued_in_order() {
    let mut ioc = TestIoc::new(BUSY);

    ioc.put("a", 1.0, Some(1)).unwrap();
    ioc.put("a", 2.0, Some(2)).unwrap();
    ioc.put("a.DESC", "three", Some(3)).unwrap();
    ioc.put("a", 4.0, Some(4)).unwrap();

    let mut seen = vec![(ioc.number("a"), ioc.done())];
    while ioc.step() {
        seen.push((ioc.number("a"), ioc.done()));
    }
    assert_eq!(seen, [(1.0, vec![]), (2.0, vec![1]), (4.0, vec![2, 3]), (4.0, vec![4])]);
    assert_eq!((ioc.number("sink"), ioc.number("count")), (4.0, 3.0));
}

#[test]
fn a_put_waits_for_a_record_busy_with_an_internal_put() {
    let mut ioc = TestIoc::new(BUSY);

    ioc.put("a", 6.0, None).unwrap();
    ioc.put("a", 7.0, Some(1)).unwrap();
    assert_eq!(ioc.number("a"), 6.0);
    ioc.step();
    assert_eq!((ioc.number("a"), ioc.done()), (7.0, vec![]));
    ioc.step();

    assert_eq!((ioc.number("sink"), ioc.done()), (7.0, vec![1]));
}

#[test]
fn an_idle_record_accepts_the_next_put_while_its_chain_is_still_active() {
    let mut ioc = TestIoc::new(BUSY);

    ioc.put("front", 1.0, Some(1)).unwrap();
    ioc.put("front", 2.0, Some(2)).unwrap();

    assert_eq!((ioc.number("front"), ioc.done()), (2.0, vec![2]));
    ioc.step();
    assert_eq!(ioc.done(), [1]);
}

#[test]
fn canceling_drops_a_queued_put_but_not_a_started_one() {
    let mut ioc = TestIoc::new(BUSY);
    ioc.put("a", 1.0, Some(1)).unwrap();
    ioc.put("a", 2.0, Some(2)).unwrap();
    ioc.put("a", 3.0, Some(3)).unwrap();

    for put in [1, 2] {
        let input = Input::CancelPut { field: ioc.field("a"), put: PutId(put) };
        ioc.database.handle(input, ioc.now, &mut ioc.events).unwrap();
    }
    ioc.step();
    assert_eq!((ioc.number("sink"), ioc.number("a"), ioc.done()), (1.0, 3.0, vec![1]));
    while ioc.step() {}

    assert_eq!((ioc.number("sink"), ioc.number("count"), ioc.done()), (3.0, 2.0, vec![3]));
}

#[test]
fn a_queued_put_that_is_rejected_does_not_block_the_next_put() {
    let mut ioc = TestIoc::new(BUSY);
    ioc.put("a", 1.0, Some(1)).unwrap();
    ioc.put("a", "none", Some(2)).unwrap();
    ioc.put("a", 3.0, Some(3)).unwrap();

    while ioc.step() {}

    let refused = |event: &Event| matches!(event, Event::PutRefused { put: PutId(2), error: PutError::Convert(_) });
    assert_eq!(ioc.events.iter().filter(|event| refused(event)).count(), 1, "{:?}", ioc.events);
    assert_eq!((ioc.number("sink"), ioc.done()), (3.0, vec![1, 3]));
}

#[test]
fn an_active_record_that_is_scanned_repeatedly_raises_an_alarm() {
    let mut ioc = TestIoc::new(
        "record(ai, stuck) { field(SIMM, YES) field(SIOL, source) field(SDLY, 100) field(SCAN, \"1 second\") }
         record(ai, source) { field(VAL, 1) field(UDF, 0) }",
    );

    for _ in 0..12 {
        ioc.step();
    }

    let reading = ioc.database.read(ioc.field("stuck"));
    // The record is undefined, and therefore INVALID, until it is first read.
    assert_eq!(reading.alarm.severity, Severity::Invalid);
}

#[test]
fn late_scans_keep_their_phase_and_skip_missed_periods() {
    let mut ioc = TestIoc::new("record(calc, a) { field(SCAN, \"1 second\") field(CALC, \"VAL+1\") }");
    let start = ioc.now;
    for _ in 0..3 {
        ioc.step();
    }
    assert_eq!(ioc.number("a"), 3.0);

    ioc.now = start + Duration::from_millis(7_300);
    ioc.database.handle(Input::Tick, ioc.now, &mut ioc.events).unwrap();

    assert_eq!(ioc.number("a"), 4.0);
    assert_eq!(ioc.database.deadline(), Some((start + Duration::from_secs(8)).monotonic));
    ioc.put("a.SCAN", "Passive", None).unwrap();
    assert!(!ioc.step());
    ioc.put("a.SCAN", ".1 second", None).unwrap();
    assert!(ioc.step());
}

#[test]
fn a_put_array_is_stored_without_copying_and_shared_with_readers() {
    let mut ioc = TestIoc::new("record(waveform, w) { field(FTVL, DOUBLE) field(NELM, 3) }");
    let field = ioc.field("w");
    ioc.database.watch(field);
    let value = Value::from(vec![1.0, 2.0, 3.0]);
    let Value::Array(Array::F64(original)) = value.clone() else { unreachable!() };

    ioc.put("w", value, None).unwrap();

    let Value::Array(Array::F64(stored)) = ioc.database.read(field).value else { unreachable!() };
    assert!(std::sync::Arc::ptr_eq(&original, &stored));
    let Some(Event::Posted { reading, .. }) = ioc.events.last() else { unreachable!() };
    let Value::Array(Array::F64(posted)) = &reading.value else { unreachable!() };
    assert!(std::sync::Arc::ptr_eq(&original, posted));

    ioc.put("w", vec![1_i16, 2, 3, 4, 5], None).unwrap();
    assert_eq!(ioc.database.read(field).value, Value::from(vec![1.0, 2.0, 3.0]));
}

#[test]
fn field_information_depends_on_the_record_configuration() {
    let mut ioc = TestIoc::new("record(mbbo, m) {} record(waveform, w) { field(FTVL, SHORT) field(NELM, 5) }");

    assert_eq!(ioc.database.facts(ioc.field("m")).kind, Kind::U16);
    ioc.put("m.ZRST", "off", None).unwrap();
    assert_eq!(ioc.database.facts(ioc.field("m")).kind, Kind::Enum);
    assert_eq!(ioc.database.read(ioc.field("m")).value, Value::Scalar(Scalar::Enum(0)));
    let facts = ioc.database.facts(ioc.field("w"));
    assert_eq!((facts.kind, facts.count_max, facts.record_type), (Kind::I16, 5, "waveform"));
    assert!(ioc.database.facts(ioc.field("m.STAT")).is_read_only);
    assert!(ioc.database.field("m.NOPE").is_none() && ioc.database.field("nope").is_none());
}

#[test]
fn only_floating_point_fields_have_a_precision_even_as_the_target_of_an_input() {
    let ioc = TestIoc::new(
        "record(calc, c) { field(PREC, 3) field(INPA, s.HIHI) field(INPB, s.SEVR) } record(ai, s) { field(PREC, 4) }",
    );

    let precision = |name: &str| ioc.database.meta(ioc.field(name)).precision;
    assert_eq!(["c", "c.A", "c.B", "c.ACKT", "c.ASG", "c.INPA"].map(precision), [3, 4, 0, 0, 0, 0]);
}

#[test]
fn alarms_are_acknowledged() {
    let mut ioc = TestIoc::new("record(ai, a) { field(HIGH, 5) field(HSV, MINOR) }");
    ioc.put("a", 6.0, None).unwrap();
    ioc.put("a", 1.0, None).unwrap();
    let field = ioc.field("a");
    // The first processing was INVALID because VAL was undefined; no later alarm is acknowledged yet.
    assert_eq!(ioc.database.meta(field).acknowledge.unwrap().severity, Severity::Minor);

    let acknowledge = Input::Acknowledge { field, put: AcknowledgePut::Severity(Severity::Minor) };
    ioc.database.handle(acknowledge, ioc.now, &mut ioc.events).unwrap();

    assert_eq!(ioc.database.meta(field).acknowledge.unwrap().severity, Severity::None);
}

#[test]
fn readers_see_consistent_readings_while_records_process() {
    let mut ioc = TestIoc::new("record(ai, a) { field(HIGH, 5) field(HSV, MAJOR) field(VAL, 0) }");
    ioc.put("a", 0.0, None).unwrap();
    let field = ioc.field("a");
    let is_over = AtomicBool::new(false);

    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut n_reads = 0;
            while !is_over.load(Ordering::Relaxed) || n_reads < 1000 {
                assert!(matches!(ioc.database.read(field).value, Value::Scalar(Scalar::F64(_))));
                n_reads += 1;
            }
        });
        let mut events = Vec::new();
        ioc.database.watch(field);
        for index in 0..5_000 {
            let value = Value::from(f64::from(index % 2) * 10.0);
            ioc.database.handle(Input::Put { field, value, put: None }, ioc.now, &mut events).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        for event in events {
            let Event::Posted { mask, reading, .. } = event else { continue };
            if mask.meets(EventMask::VALUE) {
                let is_high = reading.value == Value::from(10.0);
                assert_eq!(reading.alarm.severity == Severity::Major, is_high);
            }
        }
    });
}

#[test]
fn a_put_to_asg_is_reported_and_applies_to_every_field_of_the_record() {
    let mut ioc = TestIoc::new("record(ao, a) { field(ASG, first) } record(stringout, b) { field(OUT, \"a.ASG\") }");
    let (value, units) = (ioc.field("a"), ioc.field("a.EGU"));

    assert_eq!(ioc.database.access_group(value), ("first".into(), AccessLevel::Asl0));
    ioc.put("a.ASG", "second", None).unwrap();
    assert_eq!(ioc.events, [Event::AccessGroupChanged]);
    assert_eq!(ioc.database.access_group(units), ("second".into(), AccessLevel::Asl1));

    ioc.events.clear();
    ioc.put("b", "third", None).unwrap();
    assert_eq!(ioc.events, [Event::AccessGroupChanged]);
    assert_eq!(ioc.database.access_group(value).0, "third".into());
}

// Row 76 of docs/reference/faults.md.
#[test]
fn wall_clock_jumps_do_not_shift_scans_but_change_record_time_stamps() {
    let db = "record(calc, n) { field(SCAN, \".1 second\") field(CALC, \"VAL+1\") }";
    let (mut steady, mut jumping) = (TestIoc::new(db), TestIoc::new(db));
    steady.now = jumping.now;

    for step in 0..100 {
        for ioc in [&mut steady, &mut jumping] {
            ioc.now = ioc.now + Duration::from_millis(100);
        }
        jumping.now.wall.unix_s = steady.now.wall.unix_s + [0, 3600, -3600, 0][step % 4];
        for ioc in [&mut steady, &mut jumping] {
            ioc.database.handle(Input::Tick, ioc.now, &mut ioc.events).unwrap();
        }

        assert_eq!(jumping.number("n"), steady.number("n"), "step {step}");
        assert_eq!(jumping.database.read(jumping.field("n")).time, jumping.now.wall, "step {step}");
    }
    assert!(steady.number("n") >= 100.0, "{}", steady.number("n"));
}

#[derive(Debug)]
struct Oslo;

impl Site for Oslo {
    fn variable(&self, name: &str) -> Option<Text> {
        (name == "HOME").then(|| "/home/of/a/very/long/name/that/no/string/of/epics/holds".into())
    }

    fn zone(&self, _at: TimeStamp) -> Zone {
        Zone { offset_s: 3_600, name: "CET".into() }
    }
}

#[test]
fn device_support_reads_the_clock_and_the_environment() {
    let mut ioc = TestIoc::at(
        Arc::new(Oslo),
        "record(ai, clock) { field(DTYP, \"General Time\") field(INP, \"@TIME\") }
         record(ai, stamp) { field(DTYP, \"Soft Timestamp\") }
         record(stringin, text) { field(DTYP, \"Soft Timestamp\") field(INP, \"@%Y-%m-%d %H:%M:%S.%03f %Z\") }
         record(stringin, home) { field(DTYP, getenv) field(INP, \"@HOME\") }
         record(lsi, longhome) { field(DTYP, getenv) field(INP, \"@HOME\") field(SIZV, 80) }",
    );
    for record in ["clock", "stamp", "text", "home", "longhome"] {
        ioc.put(&format!("{record}.PROC"), 1_i32, None).unwrap();
    }

    let epics_s = 1_800_000_000.0 - 631_152_000.0;
    assert_eq!((ioc.number("clock"), ioc.number("stamp")), (epics_s, epics_s));
    assert_eq!(ioc.text("text"), "2027-01-15 09:00:00.000 CET");
    assert_eq!(ioc.text("home"), "/home/of/a/very/long/name/that/no/strin");
    assert_eq!(ioc.text("longhome"), "/home/of/a/very/long/name/that/no/string/of/epics/holds");
}

#[test]
fn stdio_device_support_writes_a_line_for_each_processing() {
    let mut ioc = TestIoc::new(
        "record(stringout, short) { field(DTYP, stdio) field(OUT, \"@stdout\") }
         record(lso, long) { field(DTYP, stdio) field(OUT, \"@stderr\") }
         record(printf, made) { field(DTYP, stdio) field(OUT, \"@errlog\") field(FMT, \"%03d\") field(INP0, 7) }",
    );

    ioc.put("short", "one", None).unwrap();
    ioc.put("long", "two", None).unwrap();
    ioc.put("made.PROC", 1_i32, None).unwrap();

    let printed = [(Stream::Out, "one"), (Stream::Error, "two"), (Stream::Log, "007")];
    assert_eq!(ioc.events, printed.map(|(stream, line)| Event::Printed { stream, line: line.into() }));
}

#[test]
fn an_invalid_address_error_names_the_address_format_of_the_dtyp() {
    let refused = |db: &str| {
        let mut loader = Loader::default();
        loader.load("test.db", "", &mut |_| Ok(db.as_bytes().to_vec())).unwrap();
        loader.finish().unwrap_err().iter().map(ToString::to_string).collect::<String>()
    };

    let unknown = refused("record(ai, a) { field(DTYP, \"General Time\") field(INP, \"@TOMORROW\") }");
    let soft = refused("record(ai, a) { field(INP, \"@TIME\") }");
    let none = refused("record(lsi, a) { field(DTYP, getenv) }");

    assert!(unknown.contains("INP of a cannot be \"@TOMORROW\": General Time takes \"@TIME\""), "{unknown}");
    assert!(soft.contains("this DTYP requires a link or a constant"), "{soft}");
    assert!(none.contains("\"@HOME\""), "{none}");
}

#[test]
fn a_put_waits_for_the_forward_link_of_an_asynchronous_record() {
    let mut ioc = TestIoc::new(
        "record(ao, start) { field(FLNK, first) }
         record(ai, first) { field(SIMM, YES) field(SIOL, source) field(SDLY, 1) field(FLNK, second) }
         record(ai, second) { field(SIMM, YES) field(SIOL, source) field(SDLY, 1) }
         record(ai, source) { field(VAL, 7) }",
    );

    ioc.put("start", 1.0, Some(5)).unwrap();
    ioc.step();
    assert_eq!(ioc.done(), [0; 0]);
    ioc.step();

    assert_eq!(ioc.done(), [5]);
    assert_eq!(ioc.number("second"), 7.0);
}

#[test]
fn a_put_waits_for_an_async_soft_channel_output() {
    let mut ioc = TestIoc::new(
        "record(ao, out) { field(DTYP, \"Async Soft Channel\") field(OUT, \"slow.PROC CA\") field(FLNK, last) }
         record(ai, slow) { field(SIMM, YES) field(SIOL, source) field(SDLY, 1) }
         record(ai, source) { field(VAL, 7) }
         record(calc, last) { field(CALC, \"VAL+1\") }",
    );

    ioc.put("out", 1.0, Some(3)).unwrap();
    assert_eq!((ioc.done(), ioc.number("out.PACT"), ioc.number("last")), (vec![], 1.0, 0.0));
    ioc.step();

    assert_eq!((ioc.done(), ioc.number("out.PACT"), ioc.number("last")), (vec![3], 0.0, 1.0));
}
