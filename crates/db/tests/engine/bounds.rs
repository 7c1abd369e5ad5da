//! No client can block the processing lock whatever it writes: delays, loops, and endlessly growing chains.

use std::fmt::Write as _;
use std::time::Duration;

use fodo_data::{Alarm, Severity, Status};
use fodo_db::{Event, Input};

use super::TestIoc;

/// Unusual values that a client may write to a delay field.
const ODD_DELAYS: [f64; 10] =
    [1e-12, 5e-324, -1.0, 0.0, 1e300, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-5];

impl TestIoc {
    /// Advances the time, with one call for each deadline. Returns the number of calls.
    fn pass(&mut self, by: Duration) -> usize {
        let end = self.now + by;
        let mut n_calls = 0;
        while self.database.deadline().is_some_and(|due| due <= end.monotonic) {
            assert!(self.step());
            n_calls += 1;
        }
        self.now = end;
        n_calls
    }

    fn printed(&self) -> Vec<String> {
        let lines = self.events.iter().filter_map(|event| match event {
            Event::Printed { line, .. } => Some(line.to_string()),
            _ => None,
        });
        lines.collect()
    }
}

#[test]
fn a_self_restarting_pulse_does_not_block_time_or_scans() {
    let mut ioc = TestIoc::new(
        "record(bo, x) { field(OMSL, closed_loop) field(DOL, one) field(HIGH, 1e-12) field(FLNK, count) }
         record(bo, one) { field(VAL, 1) }
         record(calc, count) { field(CALC, \"VAL+1\") }
         record(calc, scanned) { field(SCAN, \".1 second\") field(CALC, \"VAL+1\") }",
    );

    ioc.put("x.PROC", 1_i32, Some(7)).unwrap();
    assert_eq!(ioc.done(), [7]);
    let n_calls = ioc.pass(Duration::from_secs(1));

    assert_eq!(ioc.number("scanned"), 10.0);
    assert!(n_calls <= 10_010 && ioc.number("count") <= 10_001.0, "{n_calls} calls, {} rounds", ioc.number("count"));
}

#[test]
fn every_delay_value_lets_time_advance() {
    let delayed = [
        ("busy", "HIGH", "field(OMSL, closed_loop) field(DOL, one)"),
        ("bo", "HIGH", "field(OMSL, closed_loop) field(DOL, one)"),
        ("seq", "DLY0", "field(DOL0, 1) field(LNK0, \"again.PROC CA\")"),
        ("sseq", "DLY1", "field(DOL1, 1) field(LNK1, \"again.PROC CA\")"),
        ("swait", "ODLY", "field(CALC, 1) field(OUTN, \"again.PROC CA\")"),
        ("calcout", "ODLY", "field(CALC, 1) field(OUT, \"again.PROC CA\")"),
        ("scalcout", "ODLY", "field(CALC, 1) field(OUT, \"again.PROC CA\")"),
        ("ai", "SDLY", "field(SIMM, YES) field(SIOL, one) field(FLNK, \"again\")"),
        ("ao", "SDLY", "field(SIMM, YES) field(SIOL, sink) field(FLNK, \"again\")"),
        ("ai", "AFTC", "field(INP, one) field(HIGH, 1) field(HSV, MINOR) field(FLNK, again)"),
    ];
    for (record_type, field, rest) in delayed {
        for delay_s in ODD_DELAYS {
            let mut ioc = TestIoc::new(&format!(
                "record({record_type}, x) {{ {rest} }} record(bo, one) {{ field(VAL, 1) }} record(ao, sink) {{}}
                 record(calcout, again) {{ field(CALC, \"VAL+1\") field(ODLY, 0.001) field(OUT, \"x.PROC CA\") }}
                 record(calc, scanned) {{ field(SCAN, \".1 second\") field(CALC, \"VAL+1\") }}"
            ));
            ioc.put(&format!("x.{field}"), delay_s, None).unwrap();
            ioc.put("x.PROC", 1_i32, None).unwrap();

            let n_calls = ioc.pass(Duration::from_millis(250));

            assert_eq!(ioc.number("scanned"), 2.0, "{record_type}.{field} {delay_s}");
            assert!(n_calls < 6_000, "{record_type}.{field} {delay_s}: {n_calls} calls");
        }
    }
}

#[test]
fn a_put_during_a_pulse_extends_it() {
    let mut ioc = TestIoc::new("record(bo, pulse) { field(HIGH, 1) }");
    ioc.put("pulse", 1_i32, None).unwrap();
    ioc.pass(Duration::from_millis(600));
    ioc.put("pulse", 1_i32, None).unwrap();

    ioc.pass(Duration::from_millis(600));
    assert_eq!(ioc.number("pulse"), 1.0);
    ioc.pass(Duration::from_millis(600));

    assert_eq!(ioc.number("pulse"), 0.0);
    assert_eq!(ioc.database.deadline(), None);
}

#[test]
fn exponential_fanouts_are_stopped_and_reported() {
    let mut db = String::new();
    for index in 0..12 {
        let links = "0123456789ABCDEF".chars();
        let links: String = links.map(|link| format!("field(LNK{link}, f{}) ", index + 1)).collect();
        writeln!(db, "record(fanout, f{index}) {{ {links} }}").unwrap();
    }
    writeln!(db, "record(calc, f12) {{ field(CALC, \"VAL+1\") }} record(calc, other) {{ field(CALC, \"VAL+1\") }}")
        .unwrap();
    let mut ioc = TestIoc::new(&db);

    ioc.put("f0.PROC", 1_i32, Some(1)).unwrap();

    assert!(ioc.number("f12") > 100_000.0);
    let printed = ioc.printed();
    assert!(matches!(&printed[..], [line] if line.contains("more than 250000 records")), "{printed:?}");
    assert_eq!(ioc.done(), [1]);
    ioc.put("other.PROC", 1_i32, None).unwrap();
    assert_eq!(ioc.number("other"), 1.0);
}

#[test]
fn exponential_input_links_end_with_a_link_alarm() {
    let mut db = String::new();
    for index in 0..12 {
        let inputs: String = ('A'..='U').map(|input| format!("field(INP{input}, \"c{} PP\") ", index + 1)).collect();
        writeln!(db, "record(calc, c{index}) {{ {inputs} }}").unwrap();
    }
    db.push_str("record(calc, c12) { field(CALC, \"1\") }");
    let mut ioc = TestIoc::new(&db);

    ioc.put("c0.PROC", 1_i32, None).unwrap();

    assert_eq!(ioc.printed().len(), 1);
    let alarm = ioc.database.read(ioc.field("c0")).alarm;
    assert_eq!(alarm, Alarm { severity: Severity::Invalid, status: Status::LINK });
}

#[test]
fn an_event_that_doubles_itself_is_dropped_and_does_not_stop_scans() {
    let mut ioc = TestIoc::new(
        "record(calcout, a) { field(CALC, 1) field(OEVT, ring) field(SCAN, Event) field(EVNT, ring) }
         record(calcout, b) { field(CALC, 1) field(OEVT, ring) field(SCAN, Event) field(EVNT, ring) }
         record(calc, scanned) { field(SCAN, \".1 second\") field(CALC, \"VAL+1\") }",
    );
    ioc.put("a.PROC", 1_i32, None).unwrap();

    for _ in 0..100 {
        ioc.now = ioc.now + Duration::from_millis(10);
        ioc.database.handle(Input::Tick, ioc.now, &mut ioc.events).unwrap();
    }

    assert_eq!(ioc.number("scanned"), 10.0);
    assert!(ioc.printed()[0].contains("the event ring is dropped"), "{:?}", ioc.printed());
}

#[test]
fn puts_that_double_themselves_end_with_a_link_alarm() {
    let mut ioc = TestIoc::new(
        "record(dfanout, d) { field(OUTA, \"d.PROC CA\") field(OUTB, \"d.PROC CA\") }
         record(calc, scanned) { field(SCAN, \".1 second\") field(CALC, \"VAL+1\") }",
    );
    ioc.put("d", 1_i32, None).unwrap();

    for _ in 0..100 {
        ioc.now = ioc.now + Duration::from_millis(10);
        ioc.database.handle(Input::Tick, ioc.now, &mut ioc.events).unwrap();
    }

    assert_eq!(ioc.number("scanned"), 10.0);
    let alarm = ioc.database.read(ioc.field("d")).alarm;
    assert_eq!(alarm, Alarm { severity: Severity::Invalid, status: Status::LINK });
}

#[test]
fn mutually_triggering_cp_links_are_pending_at_most_once() {
    let mut ioc = TestIoc::new(
        "record(calc, x) { field(CALC, \"VAL+1\") field(INPA, \"y CP\") field(INPB, \"x CP\") }
         record(calc, y) { field(CALC, \"VAL+1\") field(INPA, \"y CP\") field(INPB, \"x CP\") }
         record(calc, other) { field(CALC, \"VAL+1\") field(INPA, \"source CP\") } record(ao, source) {}",
    );
    for _ in 0..20 {
        ioc.step();
    }
    let before = ioc.number("other");

    ioc.put("source", 1.0, None).unwrap();

    // At most three are pending, so the record is processed within the same call.
    assert_eq!(ioc.number("other"), before + 1.0);
}

#[test]
fn a_long_string_has_the_size_of_sizv_and_a_put_is_truncated_to_it() {
    for (sizv, size) in [("", 41), ("field(SIZV, 20)", 20), ("field(SIZV, 15)", 16)] {
        for record_type in ["lsi", "lso", "printf"] {
            let mut ioc = TestIoc::new(&format!("record({record_type}, x) {{ {sizv} }}"));
            let field = ioc.database.channel("x.VAL$").unwrap().field;

            let input = Input::Put { field, value: vec![b'a'; 60].into(), put: None };
            ioc.database.handle(input, ioc.now, &mut ioc.events).unwrap();

            assert_eq!(ioc.database.facts(field).count_max, size, "{record_type} {sizv}");
            // A printf keeps no value before it is processed.
            let n_elements = if record_type == "printf" { 1 } else { size };
            assert_eq!(ioc.database.read(field).value.len(), n_elements as usize, "{record_type} {sizv}");
        }
    }
}

#[test]
fn the_alarm_filter_counts_fractions_of_a_second() {
    let mut ioc = TestIoc::new("record(ai, a) { field(HIGH, 5) field(HSV, MINOR) field(AFTC, 2) field(UDF, 0) }");
    ioc.put("a", 1.0, None).unwrap();

    let severities = [(); 5].map(|()| {
        ioc.now = ioc.now + Duration::from_millis(500);
        ioc.put("a", 9.0, None).unwrap();
        ioc.database.read(ioc.field("a")).alarm.severity
    });

    // After 2.5 s the filter has covered 1 - 0.8^5 of the way, which is more than 63 %.
    let none = Severity::None;
    assert_eq!(severities, [none, none, none, none, Severity::Minor]);
}
