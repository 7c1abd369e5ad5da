//! Performance laboratory: compares Fodo and its peers doing the same work.
//!
//! A run starts every server and every client under test as a separate process, pinned to a CPU, on loopback. A client
//! is a [`driver`]: it speaks a protocol of JSON lines and makes the timed calls itself, so no measurement includes the
//! laboratory. [`floor`] is the driver without a protocol: it measures what this machine's sockets cost for the same
//! message sizes. Every measurement is paired with a check that the work was done.
#![deny(unsafe_code)]

// Lets `tests/synthetic` compile both here and as an integration test.
#[cfg(test)]
extern crate self as fodo_lab;

mod agent;
mod clu;
mod command;
mod compare;
mod diamond;
mod driver;
mod floor;
mod gate;
mod histogram;
mod hosts;
mod journal;
mod limit;
mod lines;
mod load;
mod machine;
mod nsls2;
mod pair;
mod peers;
mod placement;
mod plant;
mod process;
mod program;
mod protocol;
mod report;
pub mod result;
mod runner;
mod scenario;
mod server;
mod significance;
mod statistics;
mod tables;
mod warm_up;
mod worker;

pub use command::run;
pub use program::set_program;
