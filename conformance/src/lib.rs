//! Runs the same scenario for every pair of client and server, as real processes.
//!
//! A [`server::TestServer`] is a process that serves the records of `db/records.db`, or as many of them as its kind
//! supports. A [`client::Client`] reads, writes and monitors. A [`scenario`] is what they do together, written once.
//! Everything stays on loopback, with separate ports and names, and every process ends with the test that started it.
//!
//! `cargo xtask peers` installs the peers; `cargo build --release -p fodo-cli` builds the program, unless `FODO_BIN`
//! names another one.
#![forbid(unsafe_code)]

pub mod client;
pub mod clu;
pub mod gate;
pub mod matrix;
pub mod ours;
pub mod place;
pub mod process;
pub mod scenario;
pub mod server;

/// A failure, as text for the test's report.
pub type TestFailure = String;

/// Compiles the Rust blocks of the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// Compiles the Rust blocks of the page on records of a program, and runs them.
#[cfg(doctest)]
#[doc = include_str!("../../docs/reference/program-records.md")]
pub struct ProgramRecordsPage;
