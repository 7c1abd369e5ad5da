//! The same scenario for every pair of client and server, as real processes.
//!
//! A [`server::Server`] is a process that serves the records of `db/records.db`, or as many of them
//! as its kind can; a [`client::Client`] reads, writes and monitors; a [`scenario`] is what they do
//! together, written once. Everything stays on loopback, on ports and under names of its own, and
//! every process ends with the test that started it.
//!
//! The peers come from `cargo xtask peers`; the program from `cargo build --release -p fodo-cli`,
//! or from where `FODO_BIN` says.
#![forbid(unsafe_code)]

pub mod client;
pub mod gate;
pub mod matrix;
pub mod ours;
pub mod place;
pub mod process;
pub mod scenario;
pub mod server;

/// What goes wrong, in words for the one who reads the test's report.
pub type Failure = String;

/// The Rust blocks of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
