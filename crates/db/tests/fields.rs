//! Compares every field of 32 record types with softIoc: type, count, initial value, units, limits.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;

use fodo_data::{Kind, Limits, Meta, Value};
use fodo_db::{Database, FieldFacts, Input, Loader};

/// The fields that the record named `full_...` sets, as far as its type has them.
const FULL: [(&str, &str); 22] = [
    ("EGU", "mm"),
    ("PREC", "3"),
    ("HOPR", "100"),
    ("LOPR", "-100"),
    ("HIHI", "90"),
    ("HIGH", "80"),
    ("LOW", "-80"),
    ("LOLO", "-90"),
    ("HHSV", "MAJOR"),
    ("HSV", "MINOR"),
    ("LSV", "MINOR"),
    ("LLSV", "MAJOR"),
    ("DRVH", "50"),
    ("DRVL", "-50"),
    ("ZNAM", "off"),
    ("ONAM", "on"),
    ("ZRST", "zero"),
    ("TWST", "two"),
    ("INPA", "full_ai"),
    ("INPB", "2"),
    ("INPM", "full_ai"),
    ("NELM", "7"),
];

/// Whether Fodo differs on purpose.
fn is_intended(record_type: &str, field: &str, what: &str) -> bool {
    match (record_type, field, what) {
        // softIoc offers three more device supports, of QSRV.
        ("longin" | "waveform", "DTYP", "labels") => true,
        // A state without a name reads as its number; softIoc returns an empty text.
        ("mbbi", "VAL", "text") => true,
        _ => false,
    }
}

#[test]
fn every_field_is_the_same_as_in_softioc() {
    let text = include_str!("fields/softioc.txt");
    let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let database = load(&rows);
    database.handle(Input::Start, fodo_data::Now::for_test(), &mut Vec::new()).unwrap();

    let mut differences = String::new();
    for row in &rows {
        let (head, rest) = row.split_once(" \"").unwrap();
        let (empty_text, control) = rest.split_once("\" ").unwrap();
        let [record_type, field, full_type, count, empty_type]: [&str; 5] =
            head.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let mut compare = |what: &str, theirs: String, ours: String| {
            if theirs != ours && !is_intended(record_type, field, what) {
                writeln!(differences, "{record_type}.{field} {what}: softIoc {theirs:?}, here {ours:?}").unwrap();
            }
        };
        let find = |prefix: &str| database.field(&format!("{prefix}_{record_type}.{field}"));
        let (Some(empty), Some(full)) = (find("empty"), find("full")) else {
            compare("field", "is there".into(), "is not".into());
            continue;
        };
        compare("type when empty", empty_type.into(), native(&database.facts(empty)).into());
        compare("type", full_type.into(), native(&database.facts(full)).into());
        compare("count", count.into(), database.facts(full).count_max.to_string());
        if !matches!(database.read(empty).value, Value::Array(_)) {
            let value = database.read(empty).value.first().unwrap();
            compare("text", empty_text.into(), value.to_text(Some(&database.meta(empty))).to_string());
        }
        let meta = database.meta(full);
        match control.strip_prefix("labels|") {
            _ if control.is_empty() => {}
            Some(labels) => compare("labels", labels.into(), joined(&meta)),
            None => compare("control", control.into(), shown(&meta)),
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
}

fn load(rows: &[&str]) -> Database {
    let mut db = String::new();
    let mut types: Vec<&str> = rows.iter().filter_map(|row| row.split(' ').next()).collect();
    types.dedup();
    for record_type in types {
        writeln!(db, "record({record_type}, empty_{record_type}) {{}}\nrecord({record_type}, full_{record_type}) {{")
            .unwrap();
        for (field, value) in FULL {
            let is_there = rows.iter().any(|row| row.starts_with(&format!("{record_type} {field} ")));
            if is_there && (record_type, field) != ("bo", "HIGH") {
                writeln!(db, "    field({field}, \"{value}\")").unwrap();
            }
        }
        if record_type == "waveform" {
            db.push_str("    field(FTVL, LONG)\n");
        }
        db.push_str("}\n");
    }
    let mut loader = Loader::default();
    loader.load("fields.db", "", &mut |_| Ok(db.clone().into_bytes())).unwrap();
    loader.finish().unwrap()
}

/// The Channel Access type of a kind.
fn native(facts: &FieldFacts) -> &'static str {
    match facts.kind {
        Kind::Text => "STRING",
        Kind::Bool | Kind::I8 | Kind::U8 => "CHAR",
        Kind::I16 => "SHORT",
        Kind::U16 | Kind::I32 => "LONG",
        Kind::Enum => "ENUM",
        Kind::F32 => "FLOAT",
        Kind::U32 | Kind::I64 | Kind::U64 | Kind::F64 => "DOUBLE",
    }
}

fn joined(meta: &Meta) -> String {
    // Channel Access transmits only the first sixteen.
    meta.labels.iter().take(16).map(ToString::to_string).collect::<Vec<_>>().join("|")
}

fn shown(meta: &Meta) -> String {
    let (Limits { low: lolo, high: hihi }, Limits { low, high }) = (meta.alarm, meta.warning);
    let limits = [meta.display.low, meta.display.high, meta.control.low, meta.control.high, lolo, low, high, hihi];
    let limits: Vec<String> = limits.iter().map(|limit| python(*limit)).collect();
    format!("{}|{}|{}", meta.units, meta.precision, limits.join(" "))
}

/// A number in the format of the capture.
fn python(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.abs() >= 1e16 {
        return format!("{number:e}").replace('e', "e+");
    }
    format!("{number:?}")
}
