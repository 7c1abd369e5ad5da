//! Warnings about statements that load but are probably mistakes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use fodo_db::{LoadError, Loader};

/// Records that others link to.
const TARGETS: &str = r#"
record(ai, passive) {}
record(ai, periodic) { field(SCAN, "1 second") }
"#;

fn loader(text: &str) -> Loader {
    let mut loader = Loader::with_places();
    let text = format!("{TARGETS}{text}").into_bytes();
    loader.load("a.db", "", &mut |_| Ok(text.clone())).unwrap();
    loader
}

fn warnings_of(loader: &Loader) -> Vec<String> {
    loader.warnings().into_iter().map(|LoadError { message, .. }| message).collect()
}

/// The warnings about the fields of one record.
fn warnings(record_type: &str, fields: &str) -> Vec<String> {
    warnings_of(&loader(&format!("record({record_type}, x) {{ {fields} }}\n")))
}

#[track_caller]
fn assert_warned(record_type: &str, fields: &str, expected: &str) {
    let found = warnings(record_type, fields);
    assert!(matches!(found.as_slice(), [one] if one.contains(expected)), "{fields}: {found:?}");
}

#[track_caller]
fn assert_silent(record_type: &str, fields: &str) {
    assert_eq!(warnings(record_type, fields), Vec::<String>::new(), "{fields}");
}

#[test]
fn an_alarm_limit_without_a_severity_is_reported() {
    for (limit, severity) in [("HIHI", "HHSV"), ("HIGH", "HSV"), ("LOW", "LSV"), ("LOLO", "LLSV")] {
        let message = format!("{limit} is set but {severity} is NO_ALARM");
        assert_warned("ai", &format!("field({limit}, 5)"), &message);
        assert_silent("ai", &format!("field({limit}, 5) field({severity}, MINOR)"));
    }
}

#[test]
fn limits_in_the_wrong_order_are_reported() {
    assert_warned("ao", "field(DRVL, 9) field(DRVH, 3)", "DRVL (9) is above DRVH (3)");
    assert_warned("longout", "field(DRVL, 9) field(DRVH, 3)", "DRVL (9) is above DRVH (3)");
    assert_silent("ao", "field(DRVL, 3) field(DRVH, 3)");
    assert_silent("ao", "field(DRVL, -3) field(DRVH, 3)");
    assert_warned("ai", "field(LOPR, 1) field(HOPR, 0.5)", "LOPR (1) is above HOPR (0.5)");
    let both = "field(HSV, MINOR) field(HHSV, MAJOR)";
    assert_warned("ai", &format!("field(HIGH, 8) field(HIHI, 7) {both}"), "HIGH (8) is above HIHI (7)");
    assert_silent("ai", &format!("field(HIGH, 7) field(HIHI, 8) {both}"));
    let low = "field(LSV, MINOR) field(LLSV, MAJOR)";
    assert_warned("ai", &format!("field(LOLO, 8) field(LOW, 7) {low}"), "LOLO (8) is above LOW (7)");
    // A limit whose severity is NO_ALARM has no order.
    assert_warned("ai", "field(HIGH, 8) field(HIHI, 7) field(HHSV, MAJOR)", "HSV is NO_ALARM");
}

#[test]
fn a_closed_loop_without_a_source_is_reported() {
    assert_warned("ao", "field(OMSL, closed_loop)", "OMSL is closed_loop but DOL is empty");
    assert_silent("ao", "field(OMSL, closed_loop) field(DOL, 3)");
    assert_silent("ao", "field(OMSL, supervisory)");
}

#[test]
fn a_scan_that_never_processes_its_record_is_reported() {
    assert_warned("ai", "field(SCAN, \"I/O Intr\")", "a soft record has no interrupts");
    assert_warned("ai", "field(SCAN, Event)", "EVNT is empty");
    assert_silent("ai", "field(SCAN, Event) field(EVNT, go)");
    assert_silent("ai", "field(SCAN, \"1 second\")");

    let mut simulated = Loader::with_places();
    simulated.enable_simulation();
    let text = b"record(ai, x) { field(DTYP, hardware) field(INP, \"@asyn\") field(SCAN, \"I/O Intr\") }\n\
        record(motor, m) { field(SCAN, \"I/O Intr\") }";
    simulated.load("a.db", "", &mut |_| Ok(text.to_vec())).unwrap();
    assert_eq!(warnings_of(&simulated), Vec::<String>::new());
}

#[test]
fn a_routine_that_is_not_registered_is_reported() {
    let routines = "record(sub, s) { field(SNAM, mine) }\nrecord(sub, e) { field(SNAM, \"\") }\n\
        record(aSub, a) { field(SNAM, ours) }\n";
    let message = |name: &str| format!("no routine \"{name}\" is registered, so the record only goes into alarm");

    let mut known = Loader::with_places();
    known.routine("mine", |_| Ok(()));
    known.load("a.db", "", &mut |_| Ok(routines.as_bytes().to_vec())).unwrap();

    assert_eq!(warnings_of(&loader(routines)), [message("mine"), message("ours")]);
    assert_eq!(warnings_of(&known), [message("ours")]);
}

#[test]
fn a_link_to_nothing_is_reported_with_the_closest_name() {
    assert_warned(
        "ai",
        "field(INP, \"pasive\")",
        "INP is a link to \"pasive\", which is not in these files; did you mean",
    );
    assert_warned("ai", "field(INP, \"passive.VALL\")", "has no field \"VALL\"; did you mean \"VAL\"?");
    assert_warned("ai", "field(FLNK, \"elsewhere\")", "has no effect unless its target is PROC");
    let found = warnings("ai", "field(FLNK, \"elsewhere.PROC\")");
    assert!(found.len() == 1 && !found[0].contains("has no effect"), "{found:?}");
    let found = warnings("ai", "field(INP, \"elsewhere\")");
    assert!(found.len() == 1 && !found[0].contains("has no effect"), "{found:?}");
    for silent in ["passive", "passive.VAL", "passive.RTYP", "passive.TIME", "passive.DESC$", "3", ""] {
        assert_silent("ai", &format!("field(INP, \"{silent}\")"));
    }
}

#[test]
fn a_link_to_an_omitted_record_is_not_reported() {
    let mut loader = Loader::with_places();
    let text = b"record(nonsense, gone) {}\nrecord(ai, x) { field(INP, gone) }\n";

    let errors = loader.load("a.db", "", &mut |_| Ok(text.to_vec())).unwrap_err();

    assert_eq!(errors.len(), 1);
    assert_eq!(warnings_of(&loader), Vec::<String>::new());
    assert!(loader.omitted_records().contains("gone") && loader.omitted_records().len() == 1);
    assert_eq!(loader.omitted().total(), 1);
}

#[test]
fn link_modifiers_without_effect_are_reported() {
    assert_warned("ai", "field(INP, \"passive NP\")", "\"NP\" is not a link modifier");
    assert_warned("ao", "field(OUT, \"passive CP\")", "CP has no effect in OUT");
    assert_warned("ao", "field(OUT, \"passive CPP\")", "CPP has no effect in OUT");
    assert_silent("ai", "field(INP, \"passive CP MS\")");
    assert_silent("ao", "field(OUT, \"passive PP MS\")");
    assert!(!warnings("ai", "field(INP, \"passive PP NPP\")").is_empty());
    assert!(!warnings("ai", "field(INP, \"passive MS NMS\")").is_empty());
}

#[test]
fn a_link_that_cannot_do_what_it_says_is_reported() {
    assert_warned("ao", "field(OUT, \"passive.SEVR\")", "SEVR is read-only");
    assert_silent("ai", "field(INP, \"passive.SEVR\")");
    assert_warned("ai", "field(FLNK, x)", "the forward link is to its own record");
    assert_silent("ai", "field(INP, \"x.DESC\")");
    assert_warned("ai", "field(FLNK, \"passive CA\")", "a forward link through a channel (CA) has no effect");
    assert_silent("ai", "field(FLNK, \"passive.PROC CA\")");
    assert_silent("ai", "field(FLNK, passive)");
}

#[test]
fn a_link_that_processes_a_scanned_record_is_reported() {
    assert_warned("ai", "field(FLNK, periodic)", "SCAN \"1 second\"; a forward link processes only passive records");
    assert_warned("ai", "field(INP, \"periodic PP\")", "SCAN \"1 second\"; PP processes only passive records");
    assert_silent("ai", "field(INP, \"periodic\")");
    assert_silent("ai", "field(FLNK, \"periodic.PROC\")");
    assert_silent("ao", "field(OUT, \"periodic.PROC PP\")");
}

#[test]
fn a_loader_without_places_reports_no_warnings() {
    let mut loader = Loader::default();
    loader.load("a.db", "", &mut |_| Ok(b"record(ai, x) { field(HIGH, 5) }".to_vec())).unwrap();

    assert_eq!(warnings_of(&loader), Vec::<String>::new());
}

#[test]
fn only_the_last_value_of_a_field_and_only_records_that_remain_are_reported() {
    let load = |text: &str| warnings_of(&loader(text));

    assert_eq!(load("record(ai, x) { field(INP, pasive) }\n").len(), 1);
    assert_eq!(load("record(ai, x) { field(INP, pasive) }\nrecord(\"*\", x) { field(INP, passive) }\n").len(), 0);
    assert_eq!(load("record(ai, x) { field(INP, passive) }\nrecord(\"*\", x) { field(INP, pasive) }\n").len(), 1);
    assert_eq!(load("record(ai, x) { field(INP, pasive) }\nrecord(\"#\", x) {}\n").len(), 0);
}

#[test]
fn pva_links_to_unknown_pvs_and_options_without_effect_are_reported() {
    assert_silent("ai", "field(INP, {pva:{pv:\"passive\", proc:\"CP\", local:true}})");
    assert_warned(
        "ai",
        "field(INP, {pva:\"passiv\"})",
        "INP is a link to \"passiv\", which is not in these files; did",
    );
    assert_warned("ai", "field(INP, {pva:{pv:\"far\",local:true}})", ", and local demands that it is in this IOC");
    assert_silent("ai", "info(Q:group, {\"x:group\":{a:{+channel:\"VAL\"}}}) field(INP, {pva:\"x:group\"})");
    assert_warned(
        "ai",
        "field(INP, {pva:{pv:\"passive\",retry:true}})",
        "retry has no effect in INP: it is an option of outputs",
    );
    assert_warned(
        "ao",
        "field(OUT, {pva:{pv:\"passive\",proc:\"CP\"}})",
        "CP has no effect in OUT: it is an option of inputs",
    );
    assert_warned(
        "ao",
        "field(FLNK, {pva:{pv:\"passive\",sevr:\"MS\"}})",
        "sevr has no effect in FLNK: it is an option of inputs",
    );
}

#[test]
fn a_file_that_loads_nothing_is_reported() {
    let open = |name: &str| {
        Ok(match name {
            "included.db" => "include \"empty.db\"\nrecord(ai, a) {}\n",
            "t.subs" => "file t.db {}\nfile t.db { pattern {N} }\nfile empty.db { {N=1} }\nfile full.db { {N=1} }\n",
            "full.db" => "record(ai, b) {}\n",
            _ => "# only a comment\n",
        }
        .into())
    };
    let mut loader = Loader::with_places();

    loader.load("included.db", "", &mut { open }).unwrap();
    loader.load_template("t.subs", "", &mut { open }).unwrap();
    loader.load_template("empty.subs", "", &mut { open }).unwrap();

    let found: Vec<String> =
        loader.warnings().iter().map(|warning| format!("{}: {}", warning.place(), warning.message)).collect();
    assert_eq!(
        found,
        [
            "empty.db: the file is empty, so nothing is loaded",
            "t.subs:1:6: \"t.db\" has no row here, so it is not loaded",
            "t.subs:2:6: \"t.db\" has no row here, so it is not loaded",
            "empty.db: the file is empty, so nothing is loaded",
            "empty.subs: the file is empty, so nothing is loaded",
        ]
    );
}
