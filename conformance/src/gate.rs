//! The gate: softIoc and `fodo ioc` serve the same database, the same is done to both, and both must tell the same.
//!
//! Nobody writes down what is expected; softIoc says it. A [`scenario`] is a file: a database and steps. A [`random`]
//! one is made from a seed. After every step every field of every record is compared, and every event of what is
//! watched. What differs on purpose stands in `docs/reference/differences.md`, which [`differences`] reads.

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
pub struct Record {
    /// Its name, without the prefix.
    pub name: String,
    /// Its type.
    pub record_type: String,
}

/// A database and what is done to it.
#[derive(Clone, Debug)]
pub struct Case {
    /// What a report calls it.
    pub name: String,
    /// The text of a `.db` file in which names begin with `$(P)`.
    pub database: String,
    /// The records in it.
    pub records: Vec<Record>,
    /// What is done, in order.
    pub steps: Vec<step::Step>,
}

/// The first step after which both do not tell the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How many steps were done, the one that told them apart among them.
    pub n_steps: usize,
    /// What differs.
    pub differences: Vec<Difference>,
}

/// One thing that both tell differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `TYPE.FIELD` of a record; `TYPE.FIELD events` where it is the events that differ; `put` where one refuses.
    pub what: String,
    /// The record, and what each tells.
    pub detail: String,
}

/// The names of a type's fields that channels lead to, the common ones among them.
pub fn fields_of(record_type: &str) -> Vec<String> {
    let list = std::fs::read_to_string(crate::place::database("fields.txt")).unwrap_or_default();
    let lines = list.lines().filter_map(|line| line.split_once(' '));
    let lines = lines.filter(|(of, _)| *of == "common" || *of == record_type);
    lines.flat_map(|(_, names)| names.split(' ').map(str::to_string)).collect()
}
