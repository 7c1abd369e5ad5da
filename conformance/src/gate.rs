//! The gate: softIoc and `fodo ioc` serve the same database, receive the same requests, and must report the same.
//!
//! No expected values are written down; softIoc provides them. A [`scenario`] is a file with a database and steps. A
//! [`random`] one is generated from a seed. After every step every field of every record is compared, and every event
//! of the watched fields. Intended differences are listed in `docs/reference/differences.md`, which [`differences`]
//! reads.

mod busy;
pub mod differences;
pub mod domain;
pub mod pair;
pub mod random;
pub mod raw;
pub mod scenario;
pub mod side;
pub mod step;

/// One record of a database under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordName {
    /// Its name, without the prefix.
    pub name: String,
    /// Its type.
    pub record_type: String,
}

/// A database and the steps to do with it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name in reports.
    pub name: String,
    /// The text of a `.db` file in which names begin with `$(P)`.
    pub database: String,
    /// The records in it.
    pub records: Vec<RecordName>,
    /// The steps, in order.
    pub steps: Vec<step::GateStep>,
}

/// The first step after which the two servers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateFinding {
    /// Number of steps done, including the one that shows the difference.
    pub n_steps: usize,
    /// The differences.
    pub differences: Vec<Difference>,
    /// Whether steps before a `wait idle` took so long that delays of records may have ended on one server only.
    pub is_late: bool,
}

/// One difference between the two servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `TYPE.FIELD` of a record; `TYPE.FIELD events` if the events differ; `answer` if the results of the step differ.
    pub what: String,
    /// The record, and what each server reports.
    pub detail: String,
}

/// The names of a type's fields that are channels, including the common ones.
pub fn fields_of(record_type: &str) -> Vec<String> {
    let list = std::fs::read_to_string(crate::place::database("fields.txt")).unwrap_or_default();
    let lines = list.lines().filter_map(|line| line.split_once(' '));
    let lines = lines.filter(|(group, _)| *group == "common" || *group == record_type);
    lines.flat_map(|(_, names)| names.split(' ').map(str::to_string)).collect()
}
