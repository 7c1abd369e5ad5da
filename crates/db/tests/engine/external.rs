//! Links to other IOCs: the engine's requests to the network, and its reactions to the replies.

use std::sync::Arc;

use fodo_data::{Alarm, Array, Kind, Meta, Reading, Severity, Status, TimeStamp, Value};
use fodo_db::{Event, ExternalLinkId, ExternalPvEvent, ExternalPvFacts, Input, LinkTarget, LinkUsage, PutError};

use super::TestIoc;

pub(super) const DOUBLE: ExternalPvFacts =
    ExternalPvFacts { kind: Kind::F64, count_max: 1, may_read: true, may_write: true };
pub(super) const AT: TimeStamp = TimeStamp { unix_s: 1_700_000_000, nanos: 5 };

/// The most recent link that the engine requested for a PV.
pub(super) fn link_to(ioc: &TestIoc, pv: &str) -> ExternalLinkId {
    let added = |event: &Event| match event {
        Event::ExternalLinkAdded { link, name, .. } if name.to_str() == pv => Some(*link),
        _ => None,
    };
    ioc.events.iter().rev().find_map(added).unwrap()
}

pub(super) fn reading(value: impl Into<Value>) -> Reading {
    Reading { time: AT, ..Reading::bare(value.into()) }
}

fn invalid(value: impl Into<Value>) -> Reading {
    Reading { alarm: Alarm { severity: Severity::Invalid, status: Status::READ }, ..reading(value) }
}

impl TestIoc {
    pub(super) fn deliver(&mut self, link: ExternalLinkId, event: ExternalPvEvent) {
        self.database.handle(Input::ExternalPv { link, event }, self.now, &mut self.events).unwrap();
    }

    /// Simulates a server that connects a PV and sends this value.
    pub(super) fn connect(&mut self, pv: &str, facts: ExternalPvFacts, reading: Reading) -> ExternalLinkId {
        let link = link_to(self, pv);
        self.deliver(link, ExternalPvEvent::Connected(facts));
        self.deliver(link, ExternalPvEvent::Updated(reading));
        link
    }

    pub(super) fn process(&mut self, record: &str) {
        let done = self.put(&format!("{record}.PROC"), 1u8, None);
        assert!(matches!(done, Ok(()) | Err(PutError::ProcessingFailed)), "{record}: {done:?}");
    }

    /// STAT and SEVR of a record.
    pub(super) fn alarm(&self, record: &str) -> (Status, Severity) {
        let alarm = self.database.read(self.field(record)).alarm;
        (alarm.status, alarm.severity)
    }

    /// The values written through links, with the numbers of those puts that wait for completion.
    pub(super) fn driven(&mut self) -> Vec<(Value, Option<u64>)> {
        let events = std::mem::take(&mut self.events);
        let driven = events.into_iter().filter_map(|event| match event {
            Event::ExternalPut { value, put, is_awaited, .. } => Some((value, is_awaited.then_some(put))),
            _ => None,
        });
        driven.collect()
    }
}

pub(super) const BROKEN: (Status, Severity) = (Status::LINK, Severity::Invalid);

#[test]
fn a_link_to_an_unknown_record_opens_an_external_pv_with_its_usage() {
    let ioc = TestIoc::new(
        r#"record(ai, a) { field(INP, "far:x CP") field(FLNK, "far:y.PROC") }
           record(ao, b) { field(OUT, "a.NOSUCH") field(DOL, "far:z") }"#,
    );

    let added: Vec<(String, LinkUsage)> = ioc
        .events
        .iter()
        .filter_map(|event| match event {
            Event::ExternalLinkAdded { name, usage, .. } => Some((name.to_string(), *usage)),
            _ => None,
        })
        .collect();

    let pv = |name: &str, usage| (name.to_owned(), usage);
    assert_eq!(
        added,
        [pv("far:y.PROC", LinkUsage::Writes), pv("far:x", LinkUsage::Reads), pv("far:z", LinkUsage::Reads)]
    );
    assert!(ioc.database.links("b").iter().any(|link| link.target == LinkTarget::Missing));
}

#[test]
fn an_external_input_uses_the_latest_value_or_raises_a_link_alarm() {
    let mut ioc = TestIoc::new(r#"record(ai, a) { field(INP, "far:x") field(TSE, "-2") }"#);

    ioc.process("a");
    assert_eq!((ioc.alarm("a"), ioc.text("a.AMSG")), (BROKEN, "field INP".to_owned()));

    let link = ioc.connect("far:x", DOUBLE, reading(1.5));
    ioc.deliver(link, ExternalPvEvent::Updated(reading(2.5)));
    assert_eq!(ioc.number("a"), 0.0);
    ioc.process("a");
    assert_eq!((ioc.number("a"), ioc.alarm("a")), (2.5, (Status(0), Severity::None)));
    assert_eq!(ioc.database.read(ioc.field("a")).time, AT);

    ioc.deliver(link, ExternalPvEvent::Disconnected);
    ioc.process("a");
    assert_eq!((ioc.number("a"), ioc.alarm("a")), (2.5, BROKEN));
}

#[test]
fn a_cp_link_processes_on_every_update_disconnection_and_unresponsive_period() {
    let mut ioc = TestIoc::new(r#"record(calc, n) { field(CALC, "VAL+1") field(INPA, "far:x CP") }"#);
    assert_eq!(ioc.number("n"), 0.0);

    let link = ioc.connect("far:x", DOUBLE, reading(1.0));
    ioc.deliver(link, ExternalPvEvent::Updated(reading(1.0)));
    assert_eq!((ioc.number("n"), ioc.alarm("n").0), (2.0, Status(0)));
    ioc.deliver(link, ExternalPvEvent::Unresponsive);
    assert_eq!(ioc.alarm("n"), BROKEN);
    ioc.deliver(link, ExternalPvEvent::Responsive);
    assert_eq!(ioc.alarm("n").0, Status(0));
    ioc.deliver(link, ExternalPvEvent::Disconnected);

    assert_eq!(ioc.alarm("n"), BROKEN);
}

#[test]
fn a_cpp_link_processes_only_passive_records() {
    let mut ioc = TestIoc::new(
        r#"record(calc, passive) { field(CALC, "VAL+1") field(INPA, "far:x CPP") }
           record(calc, scanned) { field(CALC, "VAL+1") field(INPA, "far:y CPP") field(SCAN, "10 second") }"#,
    );

    ioc.connect("far:x", DOUBLE, reading(1.0));
    ioc.connect("far:y", DOUBLE, reading(1.0));

    assert_eq!((ioc.number("passive"), ioc.number("scanned")), (1.0, 0.0));
}

#[test]
fn external_alarms_are_propagated_according_to_the_link_modifiers() {
    let mut ioc = TestIoc::new(
        r#"record(ai, none) { field(INP, "far:a CP NMS") }
           record(ai, severity) { field(INP, "far:b CP MS") }
           record(ai, status) { field(INP, "far:c CP MSS") }
           record(ai, invalid) { field(INP, "far:d CP MSI") }"#,
    );

    for pv in ["far:a", "far:b", "far:c", "far:d"] {
        ioc.connect(pv, DOUBLE, invalid(1.0));
    }

    assert_eq!(ioc.alarm("none"), (Status(0), Severity::None));
    assert_eq!(ioc.alarm("severity"), BROKEN);
    assert_eq!(ioc.alarm("status"), (Status::READ, Severity::Invalid));
    assert_eq!(ioc.alarm("invalid"), BROKEN);
    assert_eq!(ioc.text("status.AMSG"), "");
}

#[test]
fn external_values_are_converted_and_enums_are_read_as_labels() {
    let mut ioc = TestIoc::new(
        r#"record(stringin, state) { field(INP, "far:mode CP") }
           record(longin, number) { field(INP, "far:text CP") }
           record(waveform, array) { field(INP, "far:array CP") field(NELM, "2") field(FTVL, "LONG") }"#,
    );
    let facts = |kind, count_max| ExternalPvFacts { kind, count_max, ..DOUBLE };
    let labels = Meta { labels: vec!["off".into(), "on".into()], ..Meta::default() };

    let mode = Value::Scalar(fodo_data::Scalar::Enum(1));
    ioc.connect("far:mode", facts(Kind::Enum, 1), Reading { meta: Some(Arc::new(labels)), ..reading(mode) });
    ioc.connect("far:text", facts(Kind::Text, 1), reading("42"));
    ioc.connect("far:array", facts(Kind::F64, 3), reading(vec![1.9, 2.0, 3.0]));

    assert_eq!((ioc.text("state"), ioc.number("number")), ("on".to_owned(), 42.0));
    let array = ioc.database.read(ioc.field("array")).value;
    assert_eq!(array, Value::Array(Array::I32(vec![1, 2].into())));
}

#[test]
fn an_external_output_converts_to_the_pv_type_and_raises_a_link_alarm_on_failure() {
    let mut ioc = TestIoc::new(
        r#"record(ao, a) { field(OUT, "far:whole") }
           record(stringout, s) { field(OUT, "far:mode") }"#,
    );
    assert_eq!(ioc.put("a", 3.7, None), Err(PutError::ProcessingFailed));
    assert_eq!((ioc.alarm("a"), ioc.text("a.AMSG")), (BROKEN, "field OUT".to_owned()));

    let whole = link_to(&ioc, "far:whole");
    let mode = link_to(&ioc, "far:mode");
    ioc.deliver(whole, ExternalPvEvent::Connected(ExternalPvFacts { kind: Kind::I32, ..DOUBLE }));
    ioc.deliver(mode, ExternalPvEvent::Connected(ExternalPvFacts { kind: Kind::Enum, ..DOUBLE }));
    assert_eq!(ioc.driven(), []);
    ioc.put("a", 4.7, None).unwrap();
    ioc.put("s", "on", None).unwrap();
    assert_eq!(ioc.driven(), [(4_i32.into(), None), ("on".into(), None)]);

    ioc.deliver(whole, ExternalPvEvent::AccessRights { may_read: true, may_write: false });
    assert_eq!(ioc.put("a", 5.0, None), Err(PutError::ProcessingFailed));
    assert_eq!((ioc.alarm("a"), ioc.driven()), (BROKEN, vec![]));
}

#[test]
fn async_soft_channel_completes_when_the_external_put_completes_or_disconnects() {
    let mut ioc = TestIoc::new(r#"record(ao, a) { field(DTYP, "Async Soft Channel") field(OUT, "far:x") }"#);
    let link = link_to(&ioc, "far:x");
    ioc.deliver(link, ExternalPvEvent::Connected(DOUBLE));

    ioc.put("a", 1.0, Some(7)).unwrap();
    assert_eq!(ioc.number("a.PACT"), 1.0);
    let [(_, Some(first))] = ioc.driven()[..] else { panic!("the put does not wait for completion") };
    ioc.deliver(link, ExternalPvEvent::PutDone { put: first + 1 });
    assert_eq!(ioc.done(), []);
    ioc.deliver(link, ExternalPvEvent::PutDone { put: first });
    assert_eq!((ioc.done(), ioc.number("a.PACT")), (vec![7], 0.0));

    ioc.put("a", 2.0, Some(8)).unwrap();
    ioc.deliver(link, ExternalPvEvent::PutDone { put: first });
    assert_eq!(ioc.done(), [], "the next put has another number");
    ioc.deliver(link, ExternalPvEvent::Disconnected);
    assert_eq!(ioc.done(), [8]);
}

#[test]
fn an_external_forward_link_puts_one_only_to_proc() {
    let mut ioc = TestIoc::new(
        r#"record(calc, a) { field(FLNK, "far:x.PROC") }
           record(calc, b) { field(FLNK, "far:y") }"#,
    );
    for pv in ["far:x.PROC", "far:y"] {
        let link = link_to(&ioc, pv);
        ioc.deliver(link, ExternalPvEvent::Connected(ExternalPvFacts { kind: Kind::U8, ..DOUBLE }));
    }

    ioc.process("a");
    ioc.process("b");

    assert_eq!(ioc.driven(), [(1u8.into(), None)]);
    assert_ne!(ioc.alarm("b"), BROKEN);
}

#[test]
fn tsel_uses_the_time_stamp_of_an_external_record() {
    let mut ioc = TestIoc::new(r#"record(calc, a) { field(TSEL, "far:x.TIME") }"#);
    ioc.connect("far:x", DOUBLE, reading(1.0));

    ioc.process("a");

    assert_eq!(ioc.database.read(ioc.field("a")).time, AT);
}

#[test]
fn a_put_to_a_link_field_switches_the_pv_and_ignores_late_updates() {
    let mut ioc = TestIoc::new(r#"record(ai, a) { field(INP, "far:x CP") } record(ai, here) { field(VAL, "3") }"#);
    let before = ioc.connect("far:x", DOUBLE, reading(1.0));

    ioc.put("a.INP", "far:y CP", None).unwrap();
    assert!(ioc.events.contains(&Event::ExternalLinkRemoved { link: before }));
    ioc.deliver(before, ExternalPvEvent::Updated(reading(9.0)));
    assert_eq!(ioc.number("a"), 1.0);
    let after = ioc.connect("far:y", DOUBLE, reading(2.0));
    assert_eq!(ioc.number("a"), 2.0);

    ioc.put("a.INP", "here CP", None).unwrap();
    assert!(ioc.events.contains(&Event::ExternalLinkRemoved { link: after }));
    assert_eq!(ioc.number("a"), 3.0);
}

#[test]
fn changing_an_output_link_completes_its_pending_put() {
    let mut ioc = TestIoc::new(r#"record(ao, a) { field(DTYP, "Async Soft Channel") field(OUT, "far:x") }"#);
    let link = link_to(&ioc, "far:x");
    ioc.deliver(link, ExternalPvEvent::Connected(DOUBLE));
    ioc.put("a", 1.0, Some(7)).unwrap();

    ioc.put("a.OUT", "far:y", None).unwrap();

    assert_eq!(ioc.done(), [7]);
}

#[test]
fn link_units_and_link_status_follow_the_connection() {
    let mut ioc = TestIoc::new(r#"record(calcout, c) { field(INPA, "far:x") field(OUT, "far:y") }"#);
    let units = Meta { units: "mm".into(), precision: 2, ..Meta::default() };
    let state = |ioc: &TestIoc| (ioc.text("c.INAV"), ioc.text("c.OUTV"));
    let inav = ioc.field("c.INAV");
    ioc.database.watch(inav);

    let link = ioc.connect("far:x", DOUBLE, Reading { meta: Some(Arc::new(units)), ..reading(1.0) });
    assert_eq!((ioc.number("c.INAV"), ioc.number("c.OUTV")), (1.0, 0.0), "{:?}", state(&ioc));
    assert!(ioc.events.iter().any(|event| matches!(event, Event::Posted { field, .. } if *field == inav)));
    let meta = ioc.database.meta(ioc.field("c.A"));
    assert_eq!((meta.units.to_str().as_ref(), meta.precision), ("mm", 2));

    ioc.deliver(link, ExternalPvEvent::Disconnected);
    assert_eq!(ioc.number("c.INAV"), 0.0);
}

#[test]
fn an_external_sdis_link_disables_the_record() {
    let mut ioc = TestIoc::new(r#"record(calc, a) { field(CALC, "VAL+1") field(SDIS, "far:off") }"#);
    let link = ioc.connect("far:off", DOUBLE, reading(0.0));

    ioc.process("a");
    ioc.deliver(link, ExternalPvEvent::Updated(reading(1.0)));
    ioc.process("a");

    assert_eq!((ioc.number("a"), ioc.alarm("a").0), (1.0, Status::DISABLE));
}

#[test]
fn a_value_is_converted_to_the_kind_of_the_external_pv_before_it_is_written() {
    let mut ioc = TestIoc::new(
        r#"record(stringout, t) { field(VAL, "1.5") field(OUT, "far:d CA") }
        record(stringout, n) { field(VAL, "on") field(OUT, "far:e CA") }
        record(ao, a) { field(VAL, 1) field(OUT, "far:f CA") }
        record(aao, w) { field(FTVL, DOUBLE) field(NELM, 4) field(OUT, "far:w CA") }"#,
    );
    let states = ExternalPvFacts { kind: Kind::Enum, ..DOUBLE };
    ioc.connect("far:d", DOUBLE, reading(0.0));
    ioc.connect("far:e", states, reading(Value::Scalar(fodo_data::Scalar::Enum(0))));
    ioc.connect("far:f", states, reading(Value::Scalar(fodo_data::Scalar::Enum(0))));
    ioc.connect("far:w", ExternalPvFacts { count_max: 2, ..DOUBLE }, reading(vec![0.0]));
    ioc.driven();
    let mut driven_by = |record: &str| {
        ioc.process(record);
        ioc.driven().into_iter().map(|(value, _)| value).collect::<Vec<_>>()
    };

    assert_eq!(driven_by("t"), [Value::from(1.5)]);
    assert_eq!(driven_by("n"), [Value::from("on")]);
    assert_eq!(driven_by("a"), [Value::Scalar(fodo_data::Scalar::Enum(1))]);
    assert_eq!(driven_by("w"), [], "an empty array is not written");
    ioc.put("w", vec![1.0, 2.0, 3.0], None).unwrap();
    assert_eq!(ioc.driven().into_iter().map(|(value, _)| value).collect::<Vec<_>>(), [Value::from(vec![1.0, 2.0])]);
}

#[test]
fn a_transform_record_shows_the_state_of_a_link_to_another_ioc() {
    let mut ioc = TestIoc::new(r#"record(transform, t) { field(INPB, "far:x CA") field(INPC, "t.A") field(INPD, 1) }"#);
    let states = |ioc: &TestIoc| ["t.IBV", "t.ICV", "t.IDV"].map(|name| ioc.number(name));
    assert_eq!(states(&ioc), [0.0, 2.0, 3.0], "not connected, local, constant");

    let link = ioc.connect("far:x", DOUBLE, reading(1.0));
    assert_eq!(states(&ioc), [1.0, 2.0, 3.0]);
    ioc.deliver(link, ExternalPvEvent::Disconnected);
    assert_eq!(states(&ioc), [0.0, 2.0, 3.0]);
}

#[test]
fn an_acalcout_record_shows_the_state_of_each_link_to_an_array_of_another_ioc() {
    let mut ioc = TestIoc::new(r#"record(acalcout, a) { field(INAA, "far:x CA") field(INCC, "far:y CA") }"#);
    let posted = |ioc: &mut TestIoc| {
        let events = std::mem::take(&mut ioc.events);
        let fields = events.into_iter().filter_map(|event| match event {
            Event::Posted { field, .. } => Some(field),
            _ => None,
        });
        fields.collect::<Vec<_>>()
    };
    let watched = ["a.IAAV", "a.ICCV"].map(|name| ioc.field(name));
    watched.iter().for_each(|field| ioc.database.watch(*field));

    for (pv, state) in [("far:y", 1), ("far:x", 0)].map(|(pv, state)| (link_to(&ioc, pv), state)) {
        ioc.deliver(pv, ExternalPvEvent::Connected(DOUBLE));
        ioc.deliver(pv, ExternalPvEvent::Updated(reading(1.0)));
        assert_eq!(posted(&mut ioc), [watched[state]]);
    }
    assert_eq!(["a.IAAV", "a.ICCV"].map(|name| ioc.number(name)), [1.0; 2]);
}
