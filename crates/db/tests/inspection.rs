//! What a database reports about itself: names, fields, links, metadata, counters.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use fodo_data::{AcknowledgePut, Limits, Now, Scalar, Severity, Value};
use fodo_db::{Database, Event, FieldRef, Input, LinkTarget, Loader, PutError, PutId};

fn database(text: &str) -> Database {
    let mut loader = Loader::default();
    loader.load("a.db", "", &mut |_| Ok(text.as_bytes().to_vec())).unwrap();
    loader.finish().unwrap()
}

fn field(database: &Database, name: &str) -> FieldRef {
    database.field(name).unwrap()
}

fn handle(database: &Database, input: Input) -> (Result<(), PutError>, Vec<Event>) {
    let mut events = Vec::new();
    (database.handle(input, Now::for_test(), &mut events), events)
}

fn put(database: &Database, name: &str, value: impl Into<Value>) -> Result<(), PutError> {
    handle(database, Input::Put { field: field(database, name), value: value.into(), put: None }).0
}

fn value(database: &Database, name: &str) -> Scalar {
    database.read(field(database, name)).value.first().unwrap()
}

#[test]
fn records_aliases_and_fields_are_listed() {
    let database = database("record(ai, b) { alias(y) alias(x) }\nrecord(bo, a) { alias(z) }\n");

    let aliases: Vec<String> = database.aliases().iter().map(|(alias, record)| format!("{alias}={record}")).collect();
    assert_eq!(aliases, ["x=b", "y=b", "z=a"]);
    assert_eq!(
        (database.record_name(0), database.record_name(1), database.record_name(2)),
        (Some("b"), Some("a"), None)
    );
    let fields: Vec<&str> = database.field_names("x").collect();
    assert_eq!((fields[0], fields.contains(&"EGU"), fields.contains(&"ZNAM")), ("NAME", true, false));
    assert_eq!(database.field_names("none").count(), 0);
    let [least, most] = [0, 4].map(|level| database.fields_of_interest("y", level));
    assert!(least.contains(&"VAL") && !least.contains(&"EGU") && most.contains(&"EGU") && most.is_sorted());
    assert!(database.has_channel("x.EGU") && database.has_channel("z") && !database.has_channel("x.ZNAM"));
}

#[test]
fn a_field_is_of_interest_from_the_level_in_its_row_on() {
    let types = ["ao", "calc", "aSub", "lsi", "lso", "bi", "acalcout"];
    let records: String = types.iter().map(|name| format!("record({name}, {name}) {{}}\n")).collect();
    let database = database(&records);
    let level = |record: &str, field: &str| {
        (0..=4).find(|level| database.fields_of_interest(record, *level).contains(&field)).unwrap()
    };

    assert_eq!(["VAL", "EGU", "ACKS", "PROC", "OLDSIMM"].map(|field| level("ao", field)), [0, 1, 2, 3, 4]);
    assert_eq!([level("calc", "A"), level("calc", "LA"), level("calc", "LOW")], [0, 3, 1]);
    assert_eq!(["A", "VALA", "NEA", "NEVA", "ONVA", "FTA"].map(|field| level("aSub", field)), [2, 2, 3, 3, 4, 1]);
    assert_eq!([level("lsi", "OLEN"), level("lso", "OLEN")], [0, 3]);
    assert_eq!([level("aSub", "ONAM"), level("bi", "ONAM")], [3, 1]);
    assert_eq!(["NUSE", "DLYA", "AA", "PA"].map(|field| level("acalcout", field)), [1, 0, 0, 3]);
}

#[test]
fn the_name_of_a_field_is_complete() {
    let database = database("record(ai, a) { alias(b) }\n");
    let name = |of: &str| database.name(field(&database, of));

    assert_eq!([name("a"), name("b.DESC"), name("a.DESC$"), name("a.RTYP")], ["a.VAL", "a.DESC", "a.DESC$", "a.RTYP"]);
}

#[test]
fn the_links_of_a_record_are_listed_with_their_targets() {
    let text = "record(ai, a) { field(INP, \"b.DESC PP\") field(FLNK, far) field(SDIS, 1) field(TSEL, \"b.NOPE\") }\n\
        record(ai, b) {}\n";
    let database = database(text);
    handle(&database, Input::Start).0.unwrap();

    let links = database.links("a");

    let of = |name: &str| links.iter().find(|link| link.field == name).map(|link| &link.target);
    assert_eq!(of("INP"), Some(&LinkTarget::Record("b".into())));
    assert!(matches!(of("FLNK"), Some(LinkTarget::External(_))), "{links:?}");
    assert_eq!((of("SDIS"), database.links("b"), database.links("none")), (None, Vec::new(), Vec::new()));
}

#[test]
fn the_number_of_processed_records_counts_every_cause() {
    let database = database("record(ai, a) { field(FLNK, b) }\nrecord(ai, b) {}\n");
    handle(&database, Input::Start).0.unwrap();
    let before = database.n_processed();

    put(&database, "a.PROC", 1).unwrap();
    put(&database, "b.PROC", 1).unwrap();

    assert_eq!(database.n_processed() - before, 3);
}

#[test]
fn a_put_waits_for_an_active_record_and_can_be_queried() {
    let text = "record(calcout, a) { field(CALC, \"A\") field(ODLY, 5) field(OUT, \"b PP\") }\nrecord(ao, b) {}\n";
    let database = database(text);
    handle(&database, Input::Start).0.unwrap();
    let a = field(&database, "a.A");
    let numbered = |number| Input::Put { field: a, value: 1.0.into(), put: Some(PutId(number)) };

    handle(&database, numbered(1)).0.unwrap();
    handle(&database, numbered(2)).0.unwrap();

    let is_queued = |number| database.is_put_queued(a, PutId(number));
    assert_eq!([is_queued(1), is_queued(2), is_queued(3)], [false, true, false]);
    handle(&database, Input::CancelPut { field: a, put: PutId(2) }).0.unwrap();
    assert!(!is_queued(2));
}

#[test]
fn a_watched_field_posts_until_it_is_no_longer_watched() {
    let database = database("record(ao, a) {}\n");
    handle(&database, Input::Start).0.unwrap();
    let [value, units] = ["a", "a.EGU"].map(|name| field(&database, name));
    let posts = |number: f64| {
        let events = handle(&database, Input::Put { field: value, value: number.into(), put: None }).1;
        events.iter().filter(|event| matches!(event, Event::Posted { field, .. } if *field == value)).count()
    };
    assert_eq!(posts(1.0), 0);

    database.watch(value);
    database.watch(value);
    database.watch(units);
    assert_eq!(posts(2.0), 1);
    database.unwatch(units);
    assert_eq!(posts(3.0), 1);
    database.unwatch(value);
    assert_eq!(posts(4.0), 0);
}

#[test]
fn fields_are_restored_only_before_the_start_and_links_never() {
    let database = database("record(ao, a) { field(SCAN, \"1 second\") }\nrecord(ai, b) {}\n");
    let restore =
        |name: &str, value: Value| handle(&database, Input::Restore { field: field(&database, name), value }).0;

    restore("a", 2.5.into()).unwrap();
    restore("a.DESC$", Value::characters("text")).unwrap();
    restore("b.SCAN", Value::from("2 second")).unwrap();
    assert!(restore("a.FLNK", "b".into()).is_err() && restore("a.OUT$", "b".into()).is_err());
    assert_eq!((value(&database, "a"), value(&database, "a.DESC")), (Scalar::F64(2.5), Scalar::Text("text".into())));

    handle(&database, Input::Start).0.unwrap();
    assert!(restore("a", 3.5.into()).is_err());
    let scanned: Vec<usize> = database.scan_counts().iter().map(|scan| scan.skipped as usize).collect();
    assert!(!scanned.is_empty() && value(&database, "a") == Scalar::F64(2.5));
}

#[test]
fn alarms_are_acknowledged_by_severity_and_transient_alarms_need_none() {
    let database = database("record(ao, a) { field(HIGH, 5) field(HSV, MAJOR) field(HIHI, 9) field(HHSV, MAJOR) }\n");
    handle(&database, Input::Start).0.unwrap();
    let a = field(&database, "a");
    let severity = |name: &str| value(&database, name);
    let acknowledge = |put| handle(&database, Input::Acknowledge { field: a, put }).0.unwrap();
    let transient = |is_required| acknowledge(AcknowledgePut::Transient { is_required });
    put(&database, "a", 6.0).unwrap();
    put(&database, "a", 1.0).unwrap();
    assert_eq!((severity("a.SEVR"), severity("a.ACKS")), (Scalar::Enum(0), Scalar::Enum(2)));

    acknowledge(AcknowledgePut::Severity(Severity::Minor));
    assert_eq!(severity("a.ACKS"), Scalar::Enum(2));
    acknowledge(AcknowledgePut::Severity(Severity::Major));
    assert_eq!(severity("a.ACKS"), Scalar::Enum(0));

    put(&database, "a", 6.0).unwrap();
    acknowledge(AcknowledgePut::Severity(Severity::Major));
    transient(false);
    assert_eq!((severity("a.ACKT"), severity("a.ACKS")), (Scalar::Enum(0), Scalar::Enum(0)), "it is acknowledged");
    put(&database, "a", 1.0).unwrap();
    transient(true);
    put(&database, "a", 6.0).unwrap();
    transient(false);
    assert_eq!((severity("a.ACKT"), severity("a.ACKS")), (Scalar::Enum(0), Scalar::Enum(2)));
    transient(true);
    put(&database, "a", 1.0).unwrap();
    assert_eq!(severity("a.ACKS"), Scalar::Enum(2));
    transient(false);
    assert_eq!((severity("a.ACKT"), severity("a.ACKS")), (Scalar::Enum(0), Scalar::Enum(0)));
}

#[test]
fn an_empty_array_put_to_a_scalar_raises_an_alarm_and_clears_udf() {
    let database = database("record(ao, a) {}\n");
    handle(&database, Input::Start).0.unwrap();
    assert_eq!(value(&database, "a.UDF"), Scalar::U8(1));

    put(&database, "a.EGU", Value::from(Vec::<f64>::new())).unwrap();
    assert_eq!(value(&database, "a.UDF"), Scalar::U8(1));
    put(&database, "a", Value::from(Vec::<f64>::new())).unwrap();

    assert_eq!(value(&database, "a.UDF"), Scalar::U8(0));
}

#[test]
fn array_records_have_units_precision_and_limits() {
    let text = r#"
record(subArray, s) { field(FTVL, DOUBLE) field(MALM, 10) field(NELM, 4) field(EGU, mm) field(PREC, 3) field(HOPR, 7) field(LOPR, -7) }
record(aai, i) { field(FTVL, DOUBLE) field(NELM, 10) field(EGU, s) field(PREC, 2) field(HOPR, 6) field(LOPR, -6) }
record(aao, o) { field(FTVL, LONG) field(NELM, 10) field(EGU, A) field(HOPR, 5) field(LOPR, -5) }
record(transform, t) { field(EGU, V) field(PREC, 4) }
record(acalcout, c) { field(EGU, T) field(PREC, 5) field(HOPR, 3) field(LOPR, -3) field(NELM, 6) }
"#;
    let database = database(text);
    let meta = |name: &str| database.meta(field(&database, name));
    let display = |name: &str| (meta(name).display.low, meta(name).display.high);

    assert_eq!((meta("s").units.to_string(), meta("s").precision, display("s")), ("mm".into(), 3, (-7.0, 7.0)));
    assert_eq!((display("s.INDX"), display("s.NELM")), ((0.0, 9.0), (0.0, 10.0)));
    assert_eq!(
        (meta("s.NELM").control, meta("s.INDX").control),
        (Limits { low: 1.0, high: 10.0 }, Limits { low: 0.0, high: 9.0 })
    );
    assert_eq!((display("s.NORD"), display("s.BUSY")), ((0.0, 10.0), (0.0, 1.0)));
    assert_eq!((meta("i").units.to_string(), meta("i").precision, display("i")), ("s".into(), 2, (-6.0, 6.0)));
    assert_eq!((meta("o").units.to_string(), display("o")), ("A".into(), (-5.0, 5.0)));
    assert_eq!(meta("t.A").precision, 4);
    assert_eq!((meta("c").precision, display("c")), (5, (-3.0, 3.0)));
    // The range of a field's own type, if the record type sets none.
    assert_eq!((display("i.TSE"), display("i.LCNT")), ((-32768.0, 32767.0), (0.0, 255.0)));
}

#[test]
fn a_sub_array_is_cut_from_what_is_put_and_read() {
    let text = "record(waveform, w) { field(FTVL, DOUBLE) field(NELM, 6) }\n\
        record(subArray, s) { field(FTVL, DOUBLE) field(MALM, 6) field(NELM, 2) field(INDX, 1) field(INP, w) }\n";
    let database = database(text);
    handle(&database, Input::Start).0.unwrap();
    let read = |name: &str| database.read(field(&database, name)).value;

    put(&database, "w", vec![1.0, 2.0, 3.0, 4.0]).unwrap();
    put(&database, "s.PROC", 1).unwrap();
    assert_eq!((read("s"), read("s.NORD")), (vec![2.0, 3.0].into(), 2.into()));

    put(&database, "s.INDX", 3).unwrap();
    assert_eq!((read("s"), read("s.NORD")), (vec![4.0].into(), 1.into()));
}

#[test]
fn a_put_to_simm_swaps_scan_and_sscn_in_every_record_that_can_be_simulated() {
    for record_type in [
        "aai",
        "aao",
        "ai",
        "ao",
        "bi",
        "bo",
        "event",
        "histogram",
        "int64in",
        "int64out",
        "longin",
        "longout",
        "lsi",
        "lso",
        "mbbi",
        "mbbiDirect",
        "mbbo",
        "mbboDirect",
        "stringin",
        "stringout",
        "waveform",
    ] {
        let database = database(&format!("record({record_type}, r) {{ field(SSCN, \"1 second\") }}\n"));
        handle(&database, Input::Start).0.unwrap();
        let scans = || ["r.SCAN", "r.SSCN"].map(|name| value(&database, name));
        let (passive, second) = (Scalar::Enum(0), Scalar::Enum(6));
        assert_eq!(scans(), [passive.clone(), second.clone()], "{record_type}");

        put(&database, "r.SIMM", "YES").unwrap();
        assert_eq!(scans(), [second.clone(), passive.clone()], "{record_type}");
        put(&database, "r.SIMM", "YES").unwrap();
        assert_eq!(scans(), [second.clone(), passive.clone()], "{record_type}: it was YES before");
        put(&database, "r.SIMM", "NO").unwrap();
        assert_eq!(scans(), [passive, second], "{record_type}");
    }
}

#[test]
fn a_put_to_a_disabled_record_is_refused_whatever_its_value_is() {
    let database = database("record(ai, a) { field(DISP, 1) }\nrecord(bo, b) { field(DISP, 1) field(ONAM, on) }\n");

    for (name, value) in [("a", "text"), ("a", "1"), ("a.PREC", "x"), ("a.FLNK", "b"), ("b", "off"), ("b", "on")] {
        assert_eq!(put(&database, name, value), Err(PutError::Disabled), "{name} {value}");
    }
    assert_eq!(put(&database, "a.DISP", 0), Ok(()));
    assert!(put(&database, "a", "text").is_err_and(|error| error != PutError::Disabled));
}

#[test]
fn the_records_of_synapps_have_units_precision_and_limits() {
    let set = "field(EGU, mm) field(PREC, 3) field(HOPR, 9) field(LOPR, -9) field(HIHI, 8) field(HIGH, 7) field(LOW, -7) \
               field(LOLO, -8) field(HHSV, MAJOR) field(HSV, MINOR) field(LSV, MINOR) field(LLSV, MAJOR)";
    let database = database(&format!(
        "record(scalcout, s) {{ {set} field(INPA, src) }}\nrecord(acalcout, a) {{ {set} field(NELM, 6) field(NUSE, 4) }}\n\
         record(acalcout, n) {{ field(NELM, 6) field(NUSE, 4) field(SIZE, NUSE) }}\n\
         record(swait, w) {{ field(PREC, 3) field(HOPR, 9) field(LOPR, -9) }}\nrecord(sseq, q) {{ field(PREC, 3) }}\n\
         record(ai, src) {{ field(EGU, V) field(PREC, 5) }}\n"
    ));
    let meta = |name: &str| database.meta(field(&database, name));
    let limits = |low: f64, high: f64| Limits { low, high };

    for name in ["s", "a"] {
        let meta = meta(name);
        assert_eq!((meta.units.to_string(), meta.precision), ("mm".into(), 3), "{name}");
        assert_eq!((meta.display, meta.alarm, meta.warning), (limits(-9.0, 9.0), limits(-8.0, 8.0), limits(-7.0, 7.0)));
    }
    assert_eq!((meta("w").precision, meta("w").display), (3, limits(-9.0, 9.0)));
    assert_eq!((meta("q.DLY1").precision, meta("q.DO1").precision), (3, 3));
    assert_eq!(
        (meta("a.AVAL").units.to_string(), meta("a.AVAL").precision, meta("a.AA").precision),
        ("mm".into(), 3, 3)
    );
    let count_max = |name: &str| database.facts(field(&database, name)).count_max;
    assert_eq!(["a.AVAL", "a.AA", "a.LL", "a.OAV", "a.VAL", "a.A"].map(count_max), [6, 6, 6, 6, 1, 1]);
    assert_eq!(["n.AVAL", "n.AA", "n.LL", "n.OAV", "n.VAL", "n.A"].map(count_max), [4, 4, 4, 4, 1, 1]);
}

/// The fields that post because of a put to the first of them.
fn posted(database: &Database, names: &[&str], put_value: Value) -> Vec<String> {
    let fields: Vec<FieldRef> = names.iter().map(|name| field(database, name)).collect();
    fields.iter().for_each(|field| database.watch(*field));
    let events = handle(database, Input::Put { field: fields[0], value: put_value, put: None }).1;
    let of = |field: &FieldRef| fields.iter().position(|other| other == field).map(|index| names[index].to_owned());
    let posts =
        events.iter().filter_map(|event| if let Event::Posted { field, .. } = event { of(field) } else { None });
    let mut posts: Vec<String> = posts.collect();
    posts.sort();
    posts.dedup();
    posts
}

#[test]
fn a_put_to_a_link_posts_the_state_of_that_link() {
    let records = "record(transform, t) { field(INPC, b) field(OUTC, b) field(INPA, b) field(OUTA, b) }\n\
                   record(sseq, q) { field(DOL3, b) field(LNK3, b) field(LNK1, b) field(WAIT3, Wait) }\nrecord(ai, b) {}\n";
    for (link, others, expected) in [
        ("t.INPC", ["t.IAV", "t.ICV", "t.IDV", "t.OCV"], vec!["t.ICV", "t.INPC"]),
        ("t.OUTC", ["t.OAV", "t.OCV", "t.ODV", "t.ICV"], vec!["t.OCV", "t.OUTC"]),
        ("q.DOL3", ["q.DOL1V", "q.DOL3V", "q.DOL4V", "q.LNK3V"], vec!["q.DOL3", "q.DOL3V"]),
        ("q.LNK3", ["q.LNK1V", "q.LNK3V", "q.LNK4V", "q.DOL3V"], vec!["q.LNK3", "q.LNK3V"]),
    ] {
        let database = database(records);
        handle(&database, Input::Start).0.unwrap();
        let names = [&[link][..], &others[..]].concat();

        assert_eq!(posted(&database, &names, Value::from("far:away CA")), expected, "{link}");
    }
}

#[test]
fn an_expression_of_a_transform_record_is_valid_if_it_is_empty_or_compiles() {
    let database = database("record(transform, t) { field(CLCB, \"A+1\") field(CLCC, \"B+1\") }\n");
    handle(&database, Input::Start).0.unwrap();
    let states = || ["t.CAV", "t.CBV", "t.CCV"].map(|name| value(&database, name).to_f64().unwrap());

    assert_eq!(states(), [0.0, 0.0, 0.0]);
    assert!(put(&database, "t.CLCC", "B+").is_ok());
    assert_eq!(states(), [0.0, 0.0, -1.0]);
    // A value that was put is not calculated in the same processing.
    put(&database, "t.B", 7.0).unwrap();
    assert_eq!(value(&database, "t.B"), Scalar::F64(7.0));
    put(&database, "t.A", 1.0).unwrap();
    assert_eq!(value(&database, "t.B"), Scalar::F64(2.0));
}

#[test]
fn a_longout_writes_at_its_first_processing_also_if_it_writes_only_changes() {
    for record_type in ["longout", "int64out"] {
        let on_change = "field(OOPT, \"On Change\") field(OUT, dst)";
        let oopt = if record_type == "longout" { on_change } else { "field(OUT, dst)" };
        let database =
            database(&format!("record({record_type}, l) {{ {oopt} }}\nrecord(longin, dst) {{ field(VAL, 5) }}\n"));
        handle(&database, Input::Start).0.unwrap();

        put(&database, "l.PROC", 1).unwrap();

        assert_eq!(value(&database, "dst"), Scalar::I32(0), "{record_type}");
    }
}

#[test]
fn an_input_with_tse_minus_two_has_the_time_of_the_record_that_it_reads() {
    let start = Now::for_test();
    for record_type in ["ai", "bi", "longin", "int64in", "stringin", "lsi", "mbbi", "mbbiDirect", "waveform", "aai"] {
        let database = database(&format!(
            "record({record_type}, r) {{ field(INP, src) field(TSE, -2) }}\n\
             record({record_type}, now) {{ field(INP, src) }}\nrecord(longin, src) {{}}\n"
        ));
        let process = |name: &str, s: u64| {
            let put = Input::Put { field: field(&database, name), value: Value::from(1), put: None };
            let now = start + std::time::Duration::from_secs(s);
            database.handle(put, now, &mut Vec::new()).unwrap();
            database.read(field(&database, name)).time
        };
        database.handle(Input::Start, start, &mut Vec::new()).unwrap();

        let of_source = process("src.PROC", 10);

        assert_eq!(process("r.PROC", 20), of_source, "{record_type}");
        assert!(process("now.PROC", 20) > of_source, "{record_type}");
    }
}

#[test]
fn a_soft_timestamp_is_the_seconds_since_1990_with_their_fraction() {
    let database = database("record(ai, t) { field(DTYP, \"Soft Timestamp\") field(INP, \"@\") }\n");
    let now = Now::for_test() + std::time::Duration::from_millis(250);
    database.handle(Input::Start, now, &mut Vec::new()).unwrap();

    let process = Input::Put { field: field(&database, "t.PROC"), value: Value::from(1), put: None };
    database.handle(process, now, &mut Vec::new()).unwrap();

    let time = database.read(field(&database, "t")).time;
    let expected = (time.unix_s - 631_152_000) as f64 + f64::from(time.nanos) / 1e9;
    assert!((value(&database, "t").to_f64().unwrap() - expected).abs() < 1e-6, "{expected}");
    assert!(time.nanos > 0);
}

#[test]
fn a_printf_record_reads_characters_as_numbers_or_as_a_long_text_and_can_be_read_by_links() {
    let database = database(
        "record(printf, p) { field(FMT, \"%d %ls\") field(INP0, w) field(INP1, w) field(FLNK, s) }\n\
         record(waveform, w) { field(FTVL, CHAR) field(NELM, 10) }\nrecord(stringin, s) { field(INP, p) }\n\
         record(printf, q) { field(FMT, \"%s|%ls\") field(INP0, t) field(INP1, t) }\nrecord(stringin, t) { field(VAL, ab) }\n",
    );
    handle(&database, Input::Start).0.unwrap();
    put(&database, "w", b"AB".to_vec()).unwrap();

    put(&database, "p.PROC", 1).unwrap();
    put(&database, "q.PROC", 1).unwrap();

    assert_eq!(value(&database, "s"), Scalar::Text("65 AB".into()));
    assert_eq!(value(&database, "q"), Scalar::Text("ab|ab".into()));
}
