//! Links over pvAccess: their requests to the network, what they transfer, and their alarms.

use fodo_data::{Alarm, Kind, Reading, Severity, Status, TimeStamp, Value};
use fodo_db::{Event, ExternalLinkId, ExternalPvEvent, Input, LinkTarget, LinkUsage, PvaLink, PvaProcessing};

use super::TestIoc;
use super::external::{AT, BROKEN, DOUBLE, link_to, reading};

/// The links over pvAccess, in the order in which the database opened them.
fn opened(ioc: &TestIoc) -> Vec<(ExternalLinkId, LinkUsage, PvaLink)> {
    let opened = ioc.events.iter().filter_map(|event| match event {
        Event::ExternalLinkAdded { link, usage, pva: Some(pva), .. } => Some((*link, *usage, (**pva).clone())),
        _ => None,
    });
    opened.collect()
}

fn alarming(value: f64, severity: Severity, message: &str) -> Reading {
    let alarm = Alarm { severity, status: Status::HIHI };
    Reading { alarm, message: Some(std::sync::Arc::new(message.into())), user_tag: 5, ..reading(value) }
}

#[test]
fn a_pva_link_is_opened_with_its_options_even_to_a_record_of_the_database() {
    let ioc = TestIoc::new(
        r#"record(ai, a) { field(INP, {pva:{pv:"b",field:"alarm",Q:7,monorder:2}}) field(FLNK, {pva:"f"}) }
           record(ao, b) { field(OUT, {pva:{pv:"far",proc:"PP",defer:true}}) }"#,
    );

    let opened = opened(&ioc);

    let found = |pv: &str| opened.iter().find(|(.., link)| link.pv.to_str() == pv).unwrap();
    let (_, usage, link) = found("b");
    assert_eq!((*usage, link.field.to_str().as_ref(), link.queue_size, link.order), (LinkUsage::Reads, "alarm", 7, 2));
    let (_, usage, link) = found("far");
    assert_eq!((*usage, link.processing, link.defers), (LinkUsage::Writes, PvaProcessing::Always, true));
    assert_eq!(found("f").1, LinkUsage::Writes);
    let links = ioc.database.links("a");
    let shown: Vec<(&str, String)> = links.iter().map(|link| (link.field, link.text.to_string())).collect();
    assert!(shown.contains(&("FLNK", r#"{pva:"f"}"#.into())), "{shown:?}");
    assert!(links.iter().all(|link| matches!(&link.target, LinkTarget::External(status) if status.is_pva)));
}

#[test]
fn sevr_transfers_the_severity_with_the_message_of_the_pv() {
    for (sevr, severity, expected) in [
        ("NMS", Severity::Invalid, (Status(0), Severity::None, "")),
        ("MS", Severity::Minor, (Status::LINK, Severity::Minor, "too warm")),
        ("MSI", Severity::Major, (Status(0), Severity::None, "")),
        ("MSI", Severity::Invalid, (Status::LINK, Severity::Invalid, "too warm")),
        ("MSS", Severity::Major, (Status::LINK, Severity::Major, "too warm")),
        ("MS", Severity::None, (Status(0), Severity::None, "")),
    ] {
        let mut ioc =
            TestIoc::new(&format!(r#"record(ai, a) {{ field(INP, {{pva:{{pv:"x",proc:"CP",sevr:"{sevr}"}}}}) }}"#));

        ioc.connect("x", DOUBLE, alarming(1.5, severity, "too warm"));

        let (status, severity) = ioc.alarm("a");
        assert_eq!((status, severity, ioc.text("a.AMSG").as_str()), expected, "{sevr}");
        assert_eq!(ioc.number("a"), 1.5);
    }
}

#[test]
fn an_alarm_without_its_own_message_transfers_the_name_of_its_reason() {
    let mut ioc = TestIoc::new(r#"record(ai, a) { field(INP, {pva:{pv:"x",proc:"CP",sevr:"MS"}}) }"#);

    ioc.connect("x", DOUBLE, Reading { message: None, ..alarming(1.5, Severity::Major, "") });

    assert_eq!((ioc.alarm("a"), ioc.text("a.AMSG")), ((Status::LINK, Severity::Major), "HIHI".into()));
}

#[test]
fn an_unconnected_pva_input_raises_an_alarm_and_processes_on_connect_and_disconnect() {
    let mut ioc = TestIoc::new(
        r#"record(calc, n) { field(CALC, "VAL+1") field(INPA, {pva:{pv:"x",proc:"CP"}}) }
           record(calc, scanned) { field(CALC, "VAL+1") field(SCAN, "10 second") field(INPA, {pva:{pv:"y",proc:"CPP"}}) }"#,
    );
    ioc.process("n");
    assert_eq!((ioc.alarm("n"), ioc.text("n.AMSG")), (BROKEN, "INPA Disconn".to_owned()));

    let before = ioc.number("n");
    let link = ioc.connect("x", DOUBLE, reading(1.0));
    assert_eq!((ioc.number("n"), ioc.alarm("n").0), (before + 1.0, Status(0)));
    ioc.deliver(link, ExternalPvEvent::Disconnected);
    assert_eq!((ioc.alarm("n"), ioc.number("n.A")), (BROKEN, 1.0));

    let before = ioc.number("scanned");
    ioc.connect("y", DOUBLE, reading(1.0));
    assert_eq!(ioc.number("scanned"), before, "CPP processes only passive records");
}

#[test]
fn the_option_time_copies_time_stamp_and_user_tag() {
    let mut ioc = TestIoc::new(
        r#"record(calc, with) { field(INPA, {pva:{pv:"x",time:true,proc:"CP"}}) field(CALC, "A") field(TSE, "-2") }
           record(calc, without) { field(INPA, {pva:{pv:"x",proc:"CP"}}) field(CALC, "A") field(TSE, "-2") }"#,
    );
    let links: Vec<ExternalLinkId> = opened(&ioc).into_iter().map(|(link, ..)| link).collect();
    for link in &links {
        ioc.deliver(*link, ExternalPvEvent::Connected(DOUBLE));
        ioc.deliver(*link, ExternalPvEvent::Updated(alarming(1.0, Severity::None, "")));
    }
    let time = |ioc: &TestIoc, name: &str| ioc.database.read(ioc.field(name)).time;

    assert_eq!((time(&ioc, "with"), ioc.number("with.UTAG")), (AT, 5.0));
    assert_ne!(time(&ioc, "without"), AT);

    // A field without a time stamp leaves that of the record unchanged.
    for link in &links {
        ioc.deliver(*link, ExternalPvEvent::Updated(Reading::bare(2.0.into())));
    }
    assert_eq!((time(&ioc, "with"), ioc.number("with")), (AT, 2.0));
    let lost_at: TimeStamp = ioc.now.wall;
    links.iter().for_each(|link| ioc.deliver(*link, ExternalPvEvent::Disconnected));
    assert_eq!(time(&ioc, "with"), lost_at);
}

#[test]
fn changes_of_several_links_are_visible_before_the_first_record_processes_in_the_given_order() {
    let mut ioc = TestIoc::new(
        r#"record(calc, late) { field(INPA, {pva:{pv:"x",proc:"CP"}}) field(INPB, "early NPP") field(CALC, "A=B") }
           record(calc, early) { field(INPA, {pva:{pv:"x",proc:"CP"}}) field(INPB, {pva:"z"}) field(CALC, "A") }"#,
    );
    let order = |link: &ExternalLinkId, ioc: &TestIoc| ioc.database.name(link.field()).starts_with("late");
    let mut links: Vec<ExternalLinkId> = opened(&ioc).into_iter().map(|(link, ..)| link).collect();
    links.sort_by_key(|link| order(link, &ioc));
    for value in [1.0, 2.0, 3.0] {
        let events = links.iter().flat_map(|link| {
            [(*link, ExternalPvEvent::Connected(DOUBLE)), (*link, ExternalPvEvent::Updated(reading(value)))]
        });
        let input = Input::ExternalPvs { events: events.collect() };
        ioc.database.handle(input, ioc.now, &mut ioc.events).unwrap();

        assert_eq!((ioc.number("early"), ioc.number("early.B"), ioc.number("late")), (value, value, 1.0));
    }
}

#[test]
fn a_pva_output_passes_values_on_unconverted_and_fails_while_disconnected() {
    let mut ioc = TestIoc::new(
        r#"record(ao, a) { field(OUT, {pva:"x"}) }
           record(ao, kept) { field(OUT, {pva:{pv:"y",retry:true}}) }"#,
    );
    ioc.process("a");
    assert_eq!((ioc.alarm("a"), ioc.text("a.AMSG")), (BROKEN, "field OUT".to_owned()));
    assert_eq!(ioc.driven(), []);
    ioc.put("kept", 2.5, None).unwrap();
    assert_eq!((ioc.driven(), ioc.alarm("kept").0), (vec![(2.5.into(), None)], Status(0)));

    let mut ioc = TestIoc::new(r#"record(ao, a) { field(OUT, {pva:"x"}) }"#);
    ioc.connect("x", fodo_db::ExternalPvFacts { kind: Kind::I32, ..DOUBLE }, reading(0));
    ioc.put("a", 7.5, None).unwrap();
    assert_eq!(ioc.driven(), [(Value::from(7.5), None)]);
}

#[test]
fn a_value_that_was_not_sent_raises_the_alarm_of_a_broken_link_until_the_record_writes_again() {
    let mut ioc = TestIoc::new(
        r#"record(ao, a) { field(OUT, {pva:"x"}) }
           record(ao, waits) { field(DTYP, "Async Soft Channel") field(OUT, {pva:"y"}) }"#,
    );
    let link = ioc.connect("x", DOUBLE, reading(0.0));
    ioc.put("a", 7.5, None).unwrap();
    assert_eq!(ioc.alarm("a").0, Status(0));

    let put = last_put(&ioc);
    ioc.deliver(link, ExternalPvEvent::PutRefused { put });
    assert_eq!((ioc.alarm("a"), ioc.text("a.AMSG")), (BROKEN, "field OUT".to_owned()));
    ioc.put("a", 8.5, None).unwrap();
    assert_eq!(ioc.alarm("a").0, Status(0));

    let link = ioc.connect("y", DOUBLE, reading(0.0));
    ioc.events.clear();
    ioc.put("waits", 1.0, None).unwrap();
    let put = ioc.driven().into_iter().find_map(|(_, put)| put).unwrap();
    ioc.deliver(link, ExternalPvEvent::PutRefused { put: Some(put) });
    assert_ne!(ioc.alarm("waits"), BROKEN, "the record still waits");
    ioc.deliver(link, ExternalPvEvent::PutDone { put });
    assert_eq!(ioc.alarm("waits"), BROKEN);
}

/// The number of the last value written through a link.
fn last_put(ioc: &TestIoc) -> Option<u64> {
    ioc.events.iter().rev().find_map(|event| if let Event::ExternalPut { put, .. } = event { Some(*put) } else { None })
}

#[test]
fn a_value_that_was_not_sent_raises_no_alarm_if_the_record_has_written_another_one() {
    let mut ioc = TestIoc::new(r#"record(stringout, a) { field(OUT, {pva:"x"}) }"#);
    let link = ioc.connect("x", DOUBLE, reading(0.0));
    ioc.put("a", "many", None).unwrap();
    let refused = last_put(&ioc);
    ioc.put("a", "5", None).unwrap();
    let newest = last_put(&ioc);

    ioc.deliver(link, ExternalPvEvent::PutRefused { put: refused });
    assert_eq!(ioc.alarm("a").0, Status(0));
    ioc.deliver(link, ExternalPvEvent::PutRefused { put: newest });
    assert_eq!(ioc.alarm("a"), BROKEN);
}

#[test]
fn a_pva_forward_link_processes_its_pv_or_raises_an_alarm() {
    let mut ioc = TestIoc::new(r#"record(ai, a) { field(FLNK, {pva:"x"}) }"#);
    let link = link_to(&ioc, "x");

    ioc.process("a");
    assert_eq!(ioc.alarm("a").0, Status(0), "the link is the last step of processing");
    ioc.process("a");
    assert_eq!((ioc.alarm("a"), ioc.text("a.AMSG")), (BROKEN, "Disconn".to_owned()));
    assert!(!ioc.events.contains(&Event::ExternalProcess { link }));

    ioc.deliver(link, ExternalPvEvent::Connected(DOUBLE));
    ioc.process("a");
    assert!(ioc.events.contains(&Event::ExternalProcess { link }));
}
