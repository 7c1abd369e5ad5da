//! What reaches a record while it is active: nothing is lost.

use std::fmt::Write as _;
use std::time::Duration;

use fodo_db::Input;

use super::TestIoc;

impl TestIoc {
    /// Advances the time until no deadline is left.
    fn run_until_idle(&mut self) {
        while self.step() {}
    }

    /// Advances the time by a duration.
    fn run_for(&mut self, duration: Duration) {
        let end = self.now.monotonic + duration;
        while self.database.deadline().is_some_and(|due| due <= end) {
            self.step();
        }
        self.now = self.now + end.saturating_duration_since(self.now.monotonic);
        self.database.handle(Input::Tick, self.now, &mut self.events).unwrap();
    }
}

#[test]
fn a_change_that_arrives_while_a_record_is_active_processes_it_once_more_when_it_is_done() {
    let counted = "record(calc, n) { field(CALC, \"VAL+1\") } record(ao, p) {} record(ao, out) {}";
    for record in [
        r#"record(calcout, r) { field(INPA, "p CP") field(CALC, A) field(ODLY, 1) field(OUT, "out PP") field(FLNK, n) }"#,
        r#"record(calcout, r) { field(INPA, "p CPP") field(CALC, A) field(ODLY, 1) field(OUT, "out PP") field(FLNK, n) }"#,
        r#"record(scalcout, r) { field(INPA, "p CP") field(CALC, A) field(ODLY, 1) field(OUT, "out PP") field(FLNK, n) }"#,
        r#"record(acalcout, r) { field(INPA, "p CP") field(CALC, A) field(ODLY, 1) field(OUT, "out PP") field(FLNK, n) }"#,
        r#"record(swait, r) { field(SCAN, "I/O Intr") field(INAN, p) field(CALC, A) field(ODLY, 1) field(OUTN, out) field(FLNK, n) }"#,
        r#"record(seq, r) { field(DOL0, "p CP") field(DLY0, 1) field(LNK0, "out PP") field(FLNK, n) }"#,
        r#"record(sseq, r) { field(DOL1, "p CP") field(DLY1, 1) field(LNK1, "out PP") field(FLNK, n) }"#,
        r#"record(ao, r) { field(SIMM, YES) field(SDLY, 1) field(DOL, "p CP") field(OMSL, closed_loop) field(SIOL, "out PP") field(FLNK, n) }"#,
        r#"record(ai, r) { field(SIMM, YES) field(SDLY, 1) field(SIOL, "p CP") field(FLNK, copy) } record(ao, copy) { field(DOL, r) field(OMSL, closed_loop) field(OUT, "out PP") field(FLNK, n) }"#,
    ] {
        let mut ioc = TestIoc::new(&format!("{counted} {record}"));
        ioc.run_until_idle();
        let before = ioc.number("n");

        for value in [1.0, 2.0, 3.0, 4.0] {
            ioc.put("p", value, None).unwrap();
            ioc.run_for(Duration::from_millis(50));
        }
        let attempts = ioc.number("r.LCNT");
        ioc.run_until_idle();

        assert_eq!((ioc.number("out"), ioc.number("n") - before, attempts), (4.0, 2.0, 0.0), "{record}");
    }
}

#[test]
fn a_chain_with_busy_records_carries_the_last_of_many_changes_to_its_end() {
    let mut db = String::from("record(ao, r0) {}");
    for index in 1..10_000 {
        let delay_s = if index % 10 == 0 { "0.01" } else { "0" };
        let before = index - 1;
        write!(
            db,
            "record(calcout, r{index}) {{ field(INPA, \"r{before} CP\") field(CALC, A) field(ODLY, {delay_s}) }}"
        )
        .unwrap();
    }
    let mut ioc = TestIoc::new(&db);
    ioc.run_until_idle();

    for value in 1..=5 {
        ioc.put("r0", f64::from(value), None).unwrap();
        ioc.run_for(Duration::from_millis(3));
    }
    ioc.run_until_idle();

    assert_eq!(ioc.number("r9999"), 5.0);
}

#[test]
fn puts_with_completion_to_a_chain_with_busy_records_all_complete() {
    let mut db = String::from("record(ao, r0) { field(FLNK, r1) }");
    for index in 1..10_000 {
        let delay_s = if index % 10 == 0 { "0.01" } else { "0" };
        let (before, after) = (index - 1, index + 1);
        let fields = format!("field(INPA, r{before}) field(CALC, A) field(ODLY, {delay_s}) field(FLNK, r{after})");
        write!(db, "record(calcout, r{index}) {{ {fields} }}").unwrap();
    }
    db.push_str("record(ao, r10000) {}");
    let mut ioc = TestIoc::new(&db);

    for value in 1..=2 {
        ioc.put("r0", value as f64, Some(value)).unwrap();
        ioc.run_until_idle();
    }

    assert_eq!((ioc.number("r9999"), ioc.done()), (2.0, vec![1, 2]));
}
