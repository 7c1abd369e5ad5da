//! Peers that misbehave, stall and vanish, with real sockets on loopback. The row numbers are those of
//! `docs/reference/faults.md`.
#![expect(clippy::unwrap_used, reason = "a panic reports a failed test")]

mod cell;
mod client;
mod flow;
mod log;
#[cfg(target_os = "linux")]
mod network;
mod panics;
#[path = "../ports/mod.rs"]
mod ports;
mod quota;
mod raw;
mod rights;
mod server;

use std::time::{Duration, Instant};

/// Timeout of everything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until a condition holds that is not signalled.
fn eventually(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "the condition is not met in time");
        std::thread::yield_now();
    }
}
