//! Scenario files: a `.db` text, a line `---`, and steps, one per line; `#` starts a comment.
//!
//! ```text
//! record(ai, "$(P)level") {
//!     field(HIGH, "5")
//!     field(HSV, "MINOR")
//! }
//! ---
//! watch level
//! put level 6
//! put level.HYST as double 2.5
//! get level as short
//! ```
//!
//! After the start and after every step both servers must report the same value for every field of every record, and
//! the same events for every watched PV.

use std::path::Path;

use super::step::GateStep;
use super::{Case, RecordName};
use crate::{TestFailure, place};

/// All scenarios, in the order of their names.
pub fn all() -> Result<Vec<Case>, TestFailure> {
    let folder = place::own_folder().join("gate");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<Case, TestFailure> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    parse(&name, &text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Parses a case from a scenario's text.
pub fn parse(name: &str, text: &str) -> Result<Case, TestFailure> {
    let (database, steps) = text.split_once("---\n").ok_or("missing line `---`")?;
    let lines = steps.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let steps = lines.map(GateStep::parse).collect::<Result<_, _>>()?;
    let records = database.lines().filter_map(record).collect();
    Ok(Case { name: name.to_string(), database: database.to_string(), records, steps })
}

/// The record declared by the line `record(TYPE, "$(P)NAME")`.
fn record(line: &str) -> Option<RecordName> {
    let (record_type, rest) = line.strip_prefix("record(")?.split_once(", \"$(P)")?;
    let name = rest.split('"').next()?;
    Some(RecordName { name: name.to_string(), record_type: record_type.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_contains_a_database_and_steps() {
        let case = parse("levels", "record(ai, \"$(P)a\") {}\n---\n# up\n\nput a 6\n").unwrap();

        assert_eq!(case.records, [RecordName { name: "a".into(), record_type: "ai".into() }]);
        assert_eq!(case.steps, [GateStep::parse("put a 6").unwrap()]);
        assert!(parse("levels", "record(ai, \"$(P)a\") {}\n").is_err());
    }
}
