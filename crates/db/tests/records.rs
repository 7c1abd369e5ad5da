//! Replays `tests/records/*.txt`: a database, steps, and the expected result of each step.
//!
//! A file is a `.db` text, a line `---`, and steps with their expected trace indented below:
//!
//!     watch rec.VAL            from now on, records posts of this field
//!     start                    starts scans and processes PINI records
//!     put rec.VAL 1.5          puts a text, as a client does (`[1, 2]`: an array of numbers)
//!     tick 1s                  advances the time and handles everything due meanwhile
//!     get rec.VAL              prints value and alarm
//!
//! A post reads `rec.VAL VALUE|LOG 1.5 HIGH/MINOR`. `UPDATE=1` writes the actual trace instead of comparing it, and
//! `TRACES=folder` replays other files. The traces were compared with softIoc 7.0.10 when the files were written, with
//! `softioc_trace.py` beside this file.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fodo_data::{Alarm, Array, EventMask, Now, Scalar, Value};
use fodo_db::{Database, Event, FieldRef, Input, Loader, PutId};

struct TraceReplay {
    database: Database,
    now: Now,
    watched: HashMap<FieldRef, String>,
    n_puts: u64,
}

#[test]
fn every_record_trace_is_the_same_as_recorded() {
    let folder = match std::env::var_os("TRACES") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records"),
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut failures = String::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "txt")) {
        let expected = std::fs::read_to_string(path).unwrap();
        let actual = replay(&expected);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &actual).unwrap();
        } else if let Some((line, (theirs, ours))) =
            expected.lines().zip(actual.lines()).enumerate().find(|(_, (theirs, ours))| theirs != ours)
        {
            let name = path.file_name().unwrap().to_string_lossy();
            writeln!(failures, "{name}:{}\n  expected {theirs}\n  actual   {ours}", line + 1).unwrap();
        } else if expected.lines().count() != actual.lines().count() {
            writeln!(failures, "{}: the traces differ in length", path.display()).unwrap();
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

/// The same file, with the actual trace.
fn replay(text: &str) -> String {
    let (db, steps) = text.split_once("---\n").expect("a database, then ---, then steps");
    let mut loader = Loader::default();
    let loaded = loader.load("test.db", "", &mut |_| Ok(db.as_bytes().to_vec()));
    if let Err(errors) = loaded {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        panic!("{}", errors.join("\n"));
    }
    let database = loader.finish().unwrap();
    let mut replay = TraceReplay { database, now: Now::for_test(), watched: HashMap::new(), n_puts: 0 };
    let mut out = format!("{db}---\n");
    for step in steps.lines().filter(|line| !line.starts_with("  ")) {
        writeln!(out, "{step}").unwrap();
        if !step.is_empty() && !step.starts_with('#') {
            replay.step(step, &mut out);
        }
    }
    out
}

impl TraceReplay {
    fn step(&mut self, step: &str, out: &mut String) {
        let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
        let mut events = Vec::new();
        match verb {
            "start" => self.database.handle(Input::Start, self.now, &mut events).unwrap(),
            "watch" => {
                let field = self.field(rest);
                self.database.watch(field);
                self.watched.insert(field, rest.to_owned());
            }
            "get" => {
                let reading = self.database.read(self.field(rest));
                writeln!(out, "  {} {}", shown(&reading.value), alarm(reading.alarm)).unwrap();
            }
            "put" => {
                let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
                self.n_puts += 1;
                // The traces of softIoc come from puts without completion; with it, a put to an active record would
                // wait.
                let record = name.split('.').next().unwrap_or(name);
                let is_active = self.database.read(self.field(&format!("{record}.PACT"))).value != Value::from(0_u8);
                let put = (!is_active).then_some(PutId(self.n_puts));
                let input = Input::Put { field: self.field(name), value: parsed(value), put };
                if let Err(error) = self.database.handle(input, self.now, &mut events) {
                    writeln!(out, "  refused: {error}").unwrap();
                }
            }
            "tick" => {
                let seconds: f64 = rest.trim_end_matches('s').parse().unwrap();
                self.tick(Duration::from_secs_f64(seconds), &mut events);
            }
            _ => panic!("unknown step {verb}"),
        }
        self.trace(&events, out);
    }

    fn tick(&mut self, by: Duration, events: &mut Vec<Event>) {
        let end = self.now + by;
        while let Some(due) = self.database.deadline().filter(|due| *due <= end.monotonic) {
            self.now = self.now + due.saturating_duration_since(self.now.monotonic);
            self.database.handle(Input::Tick, self.now, events).unwrap();
        }
        self.now = end;
    }

    fn trace(&self, events: &[Event], out: &mut String) {
        for event in events {
            match event {
                Event::Posted { field, mask, reading } => {
                    let (name, value) = (&self.watched[field], shown(&reading.value));
                    writeln!(out, "  {name} {} {value} {}", masks(*mask), alarm(reading.alarm)).unwrap();
                }
                Event::Printed { stream, line } => writeln!(out, "  {stream:?} {line}").unwrap(),
                // Most puts complete at once; only a later completion gets a line.
                Event::PutDone { put } if put.0 == self.n_puts => {}
                Event::PutDone { put } => writeln!(out, "  put {} done", put.0).unwrap(),
                Event::ExternalLinkAdded { .. } | Event::ExternalLinkRemoved { .. } => {}
                Event::ExternalPut { .. } | Event::ExternalProcess { .. } => {}
                Event::OutputReady { .. } => {}
                Event::AccessGroupChanged => writeln!(out, "  regrouped").unwrap(),
                Event::PutRefused { put, error } => writeln!(out, "  put {} refused: {error}", put.0).unwrap(),
            }
        }
    }

    fn field(&self, name: &str) -> FieldRef {
        self.database.field(name).unwrap_or_else(|| panic!("unknown field {name}"))
    }
}

fn parsed(text: &str) -> Value {
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inside) => {
            let numbers = inside.split(',').filter(|number| !number.trim().is_empty());
            Value::from(numbers.map(|number| number.trim().parse().unwrap()).collect::<Vec<f64>>())
        }
        None => Value::from(text),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Scalar(scalar) => element(scalar),
        Value::Array(array) => {
            let elements = (0..array.len()).filter_map(|index| array.scalar(index));
            format!("[{}]", elements.map(|scalar| element(&scalar)).collect::<Vec<_>>().join(", "))
        }
    }
}

fn element(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Text(text) => format!("{:?}", text.to_str()),
        Scalar::Enum(index) => index.to_string(),
        Scalar::F64(number) => number.to_string(),
        other => {
            let meta = fodo_data::Meta { precision: 6, ..Default::default() };
            match Array::from(other.clone()).to_kind(fodo_data::Kind::Text, Some(&meta)).unwrap().scalar(0) {
                Some(Scalar::Text(text)) => text.to_string(),
                _ => String::new(),
            }
        }
    }
}

fn alarm(alarm: Alarm) -> String {
    format!("{}/{}", alarm.status, alarm.severity)
}

fn masks(mask: EventMask) -> String {
    let names = [
        (EventMask::VALUE, "VALUE"),
        (EventMask::LOG, "LOG"),
        (EventMask::ALARM, "ALARM"),
        (EventMask::PROPERTY, "PROPERTY"),
    ];
    let names: Vec<&str> = names.iter().filter(|(one, _)| mask.meets(*one)).map(|(_, name)| *name).collect();
    names.join("|")
}
