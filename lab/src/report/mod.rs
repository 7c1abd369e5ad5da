//! Reports of a run: tables in the terminal, and pages to keep.

pub mod case_tables;
pub mod clu_tables;
mod comparison;
mod csv;
mod environment;
mod html;
mod java_tables;
mod markdown;
mod model;
pub mod number;
pub mod overview;
mod plot;
pub mod published;
pub mod study_tables;
mod svg;
#[cfg(test)]
#[path = "../../tests/synthetic/mod.rs"]
pub mod synthetic;
pub mod table;
pub mod verb;

fn print(text: &str) {
    use std::io::Write;
    // A closed standard output is no error; the exit status is still valid.
    let _ = std::io::stdout().write_all(text.as_bytes());
}
