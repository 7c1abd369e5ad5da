//! Records of unknown types and device supports, with a loader that simulates them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use fodo_data::{EventMask, Kind, Now, Severity, Value};
use fodo_db::{Database, Event, Input, LoadError, Loader};

const DATABASE: &str = r##"
record(throttle, "m") {
    field(DTYP, "asynMotor") field(OUT, "@asyn(M,0)") field(MRES, "0.001") field(PREC, "1") field(VAL, "1.5") field(FLNK, "after")
}
record("*", "m") { field(EGU, "mm") }
record(calc, "after") { field(INPA, "m") field(INPB, "m.MRES") field(CALC, "A+B") field(PREC, "3") }
record(luascript, "port") { field(PORT, "P") field(VAL, "none") }
record(ai, "t") {
    field(INP, "@asyn(P,0)T") field(DTYP, "asynFloat64") field(SCAN, "I/O Intr")
    field(VAL, "3") field(HIGH, 5) field(HSV, MINOR)
}
record(ai, "u") { field(INP, "after CP") field(DTYP, "asynFloat64") field(VAL, "3") }
record(ao, "o") { field(OUT, "#C0 S1 @x") field(DTYP, "VME") }
record(ai, "soft") { field(INP, "1") }
"##;

fn loader() -> Result<Loader, Vec<LoadError>> {
    let mut loader = Loader::default();
    loader.enable_simulation();
    loader.load("file.db", "", &mut |_| Ok(DATABASE.as_bytes().to_vec()))?;
    Ok(loader)
}

/// Puts a value, as a client would.
fn put(database: &Database, name: &str, text: &str) {
    let (field, mut events) = (database.field(name).unwrap(), Vec::new());
    let input = Input::Put { put: None, field, value: Value::from(text) };
    database.handle(input, Now::for_test(), &mut events).unwrap();
}

fn shown(database: &Database, name: &str) -> String {
    let field = database.field(name).unwrap();
    database.read(field).value.first().unwrap().to_text(Some(&database.meta(field))).to_string()
}

#[test]
fn a_simulated_record_of_an_unknown_type_has_the_fields_set_in_its_file() {
    let database = loader().unwrap().finish().unwrap();

    put(&database, "m", "7");
    put(&database, "m.MRES", "0.5");
    put(&database, "port", "open");

    assert_eq!(shown(&database, "after"), "7.001");
    assert_eq!(
        ["m", "m.MRES", "m.EGU", "m.RTYP", "port"].map(|name| shown(&database, name)),
        ["7.0", "0.5", "mm", "throttle", "open"]
    );
    assert!(database.field("m.RBV").is_none(), "no file sets it");
}

#[test]
fn a_simulated_device_record_keeps_put_values_and_raises_limit_alarms() {
    let database = loader().unwrap().finish().unwrap();

    put(&database, "t", "7");
    put(&database, "u.PROC", "1");
    put(&database, "o", "2");

    assert_eq!(database.read(database.field("t").unwrap()).alarm.severity, Severity::None, "it is not passive");
    put(&database, "t.PROC", "1");
    let reading = database.read(database.field("t").unwrap());
    assert_eq!((reading.value, reading.alarm.severity), (Value::from(7.0), Severity::Minor));
    assert_eq!(
        ["t.DTYP", "t.INP", "u", "o.OUT", "o.SEVR", "soft.DTYP"].map(|name| shown(&database, name)),
        ["asynFloat64", "@asyn(P,0)T", "3", "#C0 S1 @x", "NO_ALARM", "Soft Channel"]
    );
}

#[test]
fn inert_records_are_counted_by_type_and_device() {
    let counted: Vec<String> = loader().unwrap().inert_records().iter().map(ToString::to_string).collect();

    assert_eq!(
        counted,
        [
            "2 ai inert: unknown DTYP \"asynFloat64\"",
            "1 ao inert: unknown DTYP \"VME\"",
            "1 luascript inert: unknown record type",
            "1 throttle inert: unknown record type",
        ]
    );
}

#[test]
fn simulation_still_reports_other_load_errors() {
    let mut loader = Loader::default();
    loader.enable_simulation();
    let text = "record(ai, \"a\") { field(VLA, 1) }\nrecord(throttle, \"m\") { field(vel, 1) field(SCAN, \"often\") }\n\
                record(ao, \"m\") {}\nrecord(\"two words\", \"n\") {}\n";

    let errors = loader.load("file.db", "", &mut |_| Ok(text.as_bytes().to_vec())).unwrap_err();

    let messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(messages.len(), 5, "{messages:?}");
    assert!(messages[1].starts_with("no field \"vel\" in record type throttle"), "{messages:?}");
    assert_eq!(messages[3], "record \"m\" already exists with type throttle; a different type needs another name");
    assert!(messages[4].starts_with("no record type \"two words\"; there are"), "{messages:?}");
}

#[test]
fn an_address_without_a_dtyp_is_an_error_even_in_simulation() {
    let mut loader = Loader::default();
    loader.enable_simulation();
    let text = "record(ai, \"a\") { field(INP, \"#C0 S0\") }\nrecord(ai, \"b\") { field(INP, \"@asyn(P)\") }\n";

    loader.load("file.db", "", &mut |_| Ok(text.as_bytes().to_vec())).unwrap();

    assert_eq!(loader.finish().unwrap_err().len(), 2);
}

/// Records of types with known fields, and records linked to them.
const KNOWN: &str = r#"
record(motor, "m") { field(DTYP, "asynMotor") field(OUT, "@asyn(M,0)") field(MRES, "0.001") field(EGU, "mm") field(PREC, "3")
    field(HLM, "10") field(DIR, "Neg") field(RDBL, "nowhere CP") field(FLNK, "after") }
record(calc, "after") { field(INPA, "m.RBV") field(INPB, "m.DMOV CP") field(INPC, "m.VELO") field(CALC, "A+B+C") field(PREC, "1") }
record(ao, "speed") { field(OUT, "m.VELO PP") }
record(asyn, "port") { field(PORT, "P") field(TMOD, "Read") field(BAUD, "115200") field(OMAX, "20") }
record(scaler, "s") { field(DTYP, "Asyn Scaler") field(OUT, "@asyn(S)") field(NM64, "last") }
record(epid, "e") { field(INP, "after") field(KP, "0.5") }
record(sscan, "scan") { field(MPTS, "1000") field(P1PV, "m.VAL") field(D70PV, "s.S2") }
record(scanparm, "parm") { field(OSP, "scan.P1SP") field(SM, "FLY") }
record(mca, "mca") { field(INP, "@asyn(MCA)") field(DTYP, "asynMCA") field(NMAX, "2048") field(FTVL, "DOUBLE") field(R31NM, "Fe") }
record(table, "t") { field(M0XL, "m.VAL") field(AUNIT, "ur") }
"#;

#[test]
fn a_simulated_record_of_a_known_type_has_all_fields_with_types_and_initial_values() {
    let mut loader = Loader::default();
    loader.enable_simulation();
    loader.load("file.db", "", &mut |_| Ok(KNOWN.into())).unwrap();
    assert_eq!(loader.inert_records().len(), 8);
    let database = loader.finish().unwrap();
    database.handle(Input::Start, Now::for_test(), &mut Vec::new()).unwrap();

    let fields = [
        "m.DIR",
        "m.SPMG",
        "m.RTRY",
        "m.HLM",
        "m.RBV",
        "m.OUT",
        "m.DTYP",
        "port.TMOT",
        "port.UI32MASK",
        "s.G1",
        "s.NM64",
    ];
    assert_eq!(
        fields.map(|name| shown(&database, name)),
        ["Neg", "Go", "10", "10.000", "0.000", "@asyn(M,0)", "asynMotor", "1.000000", "4294967295", "Y", "last"]
    );
    assert_eq!(
        ["scan.D70CV", "scan.P4AR", "parm.SM", "t.AUNIT"].map(|name| shown(&database, name)),
        ["0.000000", "ABSOLUTE", "FLY", "ur"]
    );
    let size = |name: &str| {
        let facts = database.facts(database.field(name).unwrap());
        (facts.kind, facts.count_max)
    };
    assert_eq!(
        ["mca.VAL", "scan.P1PA", "scan.D01DA", "port.BOUT", "t.PP0"].map(size),
        [(Kind::F64, 2048), (Kind::F64, 1000), (Kind::F32, 1000), (Kind::I8, 20), (Kind::F64, 3)]
    );
    assert!(database.field("m.VELX").is_none());
}

#[test]
fn a_simulated_record_of_a_known_type_keeps_put_values_and_opens_no_links() {
    let mut loader = Loader::default();
    loader.enable_simulation();
    loader.load("file.db", "", &mut |_| Ok(KNOWN.into())).unwrap();
    let database = loader.finish().unwrap();
    let mut events = Vec::new();
    database.handle(Input::Start, Now::for_test(), &mut events).unwrap();
    assert!(!events.iter().any(|event| matches!(event, fodo_db::Event::ExternalLinkAdded { .. })), "{events:?}");

    put(&database, "speed", "2.5");
    put(&database, "m", "7");
    put(&database, "m.SPMG", "Pause");

    assert_eq!(
        ["m", "m.VELO", "m.SPMG", "after"].map(|name| shown(&database, name)),
        ["7.000", "2.500", "Pause", "3.5"]
    );
    let (field, mut events) = (database.field("mca.VAL").unwrap(), Vec::new());
    let input = Input::Put { put: None, field, value: Value::from(vec![1_i32, 2, 3]) };
    database.handle(input, Now::for_test(), &mut events).unwrap();
    assert_eq!(database.read(field).value, Value::from(vec![1.0, 2.0, 3.0]));
    let field = database.field("m.RBV").unwrap();
    let input = Input::Put { put: None, field, value: Value::from(1.0) };
    assert!(database.handle(input, Now::for_test(), &mut events).is_err(), "RBV is read only");
}

#[test]
fn without_simulation_a_record_of_an_unsupported_type_is_invalid_and_not_processed() {
    let mut loader = Loader::default();
    let errors = loader.load("file.db", "", &mut |_| Ok(KNOWN.into())).unwrap_err();

    let messages: Vec<String> = errors.iter().map(|error| error.message.clone()).collect();
    assert_eq!(messages.len(), 8, "{messages:?}");
    assert!(messages[0].starts_with("no record support for \"motor\", so the record does not process"), "{messages:?}");

    let mut loader = Loader::default();
    loader.load("file.db", "", &mut |_| Ok(KNOWN.into())).unwrap_err();
    let database = loader.finish().unwrap();
    database.handle(Input::Start, Now::for_test(), &mut Vec::new()).unwrap();
    put(&database, "speed", "2.5");
    put(&database, "m", "7");

    assert_eq!(
        ["m.AMSG", "m.SEVR", "m.PACT", "m.VELO"].map(|name| shown(&database, name)),
        ["no record support \"motor\"", "INVALID", "1", "2.500"]
    );
}

#[test]
fn a_simulated_record_posts_only_a_value_that_differs_from_that_of_its_file() {
    let mut loader = Loader::default();
    loader.enable_simulation();
    loader.load("file.db", "", &mut |_| Ok(b"record(motor, m) { field(VAL, 5) }".to_vec())).unwrap();
    let database = loader.finish().unwrap();
    database.handle(Input::Start, Now::for_test(), &mut Vec::new()).unwrap();
    let field = database.field("m").unwrap();
    database.watch(field);
    let posts_value = |text: &str| {
        let (input, mut events) = (Input::Put { put: None, field, value: Value::from(text) }, Vec::new());
        database.handle(input, Now::for_test(), &mut events).unwrap();
        events.iter().any(|event| matches!(event, Event::Posted { mask, .. } if mask.meets(EventMask::VALUE)))
    };

    assert_eq!(["5", "6", "6"].map(posts_value), [false, true, false]);
}
