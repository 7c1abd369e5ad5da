//! The performance laboratory: what Fodo and its peers take for the same work, side by side.
//!
//! A run starts every server and every client under test as a process of its own, pinned to a CPU,
//! on loopback. A client is a [`driver`]: it speaks a few JSON lines and does the timed calls itself,
//! so no number includes the laboratory. [`floor`] is the driver without a protocol: what sockets of
//! this machine cost for the same sizes. Every number has a twin that proves that the work was done.
#![deny(unsafe_code)]

// So that `tests/synthetic` compiles here and there.
#[cfg(test)]
extern crate self as fodo_lab;

mod agent;
mod command;
mod compare;
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
mod peers;
mod placement;
mod plant;
mod process;
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
