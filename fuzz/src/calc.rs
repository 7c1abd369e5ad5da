//! Expressions of every record type that has some: compiled, and evaluated with arbitrary arguments.
//!
//! The first line is the expression; the following bytes are arguments, eight for each number, and texts.

use fodo_data::{Now, Value};
use fodo_db::{Database, Event, Input, Loader};

const RECORDS: &str = r#"
record(calc, "calc") {}
record(calcout, "calcout") { field(OOPT, "On Change") field(DOPT, "Use OCAL") }
record(scalcout, "scalcout") { field(DOPT, "Use OCAL") }
record(swait, "swait") {}
record(transform, "transform") {}
"#;

/// All expression fields of these records.
const EXPRESSIONS: [&str; 7] =
    ["calc.CALC", "calcout.CALC", "calcout.OCAL", "scalcout.CALC", "scalcout.OCAL", "swait.CALC", "transform.CLCB"];

/// How often an expression is evaluated: assignments and VAL carry over.
const RUNS: usize = 3;

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let mut halves = bytes.splitn(2, |byte| *byte == b'\n');
    let expression = String::from_utf8_lossy(halves.next().unwrap_or_default());
    let rest = halves.next().unwrap_or_default();
    let mut loader = Loader::default();
    let loaded = loader.load("calc.db", "", &mut |_| Ok(RECORDS.as_bytes().to_vec()));
    assert_eq!(loaded, Ok(()));
    let Ok(database) = loader.finish() else { unreachable!("these records load") };
    let mut events = Vec::new();
    for (letter, bytes) in ('A'..='L').zip(rest.chunks(8)) {
        let mut eight = [0; 8];
        eight.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        for record in ["calc", "calcout", "scalcout", "swait", "transform"] {
            put(&database, &format!("{record}.{letter}"), Value::from(f64::from_le_bytes(eight)), &mut events);
        }
        let text = String::from_utf8_lossy(bytes);
        put(&database, &format!("scalcout.{letter}{letter}"), Value::from(&*text), &mut events);
    }
    for field in EXPRESSIONS {
        put(&database, field, Value::from(&*expression), &mut events);
    }
    for _ in 0..RUNS {
        for record in ["calc", "calcout", "scalcout", "swait", "transform"] {
            put(&database, &format!("{record}.PROC"), Value::from(1_i32), &mut events);
        }
    }
    for field in ["scalcout.SVAL", "scalcout.OSV", "scalcout.AA"] {
        let value = database.field(field).map(|field| database.read(field).value);
        assert!(value.is_some_and(|value| value.n_bytes() <= 40), "{field} is longer than a string");
    }
}

fn put(database: &Database, field: &str, value: Value, events: &mut Vec<Event>) {
    let Some(field) = database.field(field) else { unreachable!("there is a field {field}") };
    // An invalid expression is rejected, or kept in its field, the same as in Base.
    let _ = database.handle(Input::Put { field, value, put: None }, Now::for_test(), events);
    events.clear();
}
