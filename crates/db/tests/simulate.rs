//! Records of types and devices that are not here, where a loader is told to simulate them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use fodo_data::{Now, Severity, Value};
use fodo_db::{Database, Input, LoadError, Loader};

const DATABASE: &str = r##"
record(motor, "m") {
    field(DTYP, "asynMotor") field(OUT, "@asyn(M,0)") field(MRES, "0.001") field(PREC, "1") field(VAL, "1.5") field(FLNK, "after")
}
record("*", "m") { field(EGU, "mm") }
record(calc, "after") { field(INPA, "m") field(INPB, "m.MRES") field(CALC, "A+B") field(PREC, "3") }
record(asyn, "port") { field(PORT, "P") field(VAL, "none") }
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
    loader.simulate();
    loader.load("file.db", "", &mut |_| Ok(DATABASE.as_bytes().to_vec()))?;
    Ok(loader)
}

/// What a client does.
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
fn a_record_of_an_unknown_type_has_the_fields_that_its_file_sets_and_forwards() {
    let database = loader().unwrap().finish().unwrap();

    put(&database, "m", "7");
    put(&database, "m.MRES", "0.5");
    put(&database, "port", "open");

    assert_eq!(shown(&database, "after"), "7.001");
    assert_eq!(
        ["m", "m.MRES", "m.EGU", "m.RTYP", "port"].map(|name| shown(&database, name)),
        ["7.0", "0.5", "mm", "motor", "open"]
    );
    assert!(database.field("m.RBV").is_none(), "no file sets it");
}

#[test]
fn a_record_of_an_unknown_device_keeps_what_is_put_and_has_its_alarms() {
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
    let counted: Vec<String> = loader().unwrap().inert().iter().map(ToString::to_string).collect();

    assert_eq!(
        counted,
        [
            "2 ai inert: there is no DTYP \"asynFloat64\"",
            "1 ao inert: there is no DTYP \"VME\"",
            "1 asyn inert: there is no such record type",
            "1 motor inert: there is no such record type",
        ]
    );
}

#[test]
fn other_mistakes_are_errors_all_the_same() {
    let mut loader = Loader::default();
    loader.simulate();
    let text = "record(ai, \"a\") { field(VLA, 1) }\nrecord(motor, \"m\") { field(vel, 1) field(SCAN, \"often\") }\n\
                record(ao, \"m\") {}\nrecord(\"two words\", \"n\") {}\n";

    let errors = loader.load("file.db", "", &mut |_| Ok(text.as_bytes().to_vec())).unwrap_err();

    let messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(messages.len(), 5, "{messages:?}");
    assert!(messages[1].starts_with("no field \"vel\" in record type motor"), "{messages:?}");
    assert_eq!(messages[3], "record \"m\" is already there, as motor; one of another type needs another name");
    assert!(messages[4].starts_with("no record type \"two words\"; there are"), "{messages:?}");
}

#[test]
fn an_address_without_a_device_is_an_error_even_where_devices_are_simulated() {
    let mut loader = Loader::default();
    loader.simulate();
    let text = "record(ai, \"a\") { field(INP, \"#C0 S0\") }\nrecord(ai, \"b\") { field(INP, \"@asyn(P)\") }\n";

    loader.load("file.db", "", &mut |_| Ok(text.as_bytes().to_vec())).unwrap();

    assert_eq!(loader.finish().unwrap_err().len(), 2);
}
