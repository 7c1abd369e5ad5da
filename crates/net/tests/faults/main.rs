//! Peers that misbehave, stall and vanish, against real sockets on loopback. The rows are those of
//! `docs/reference/faults.md`.
#![expect(clippy::unwrap_used, reason = "a test that stops has said enough")]

mod cell;
mod client;
mod flow;
mod log;
#[cfg(target_os = "linux")]
mod network;
mod quota;
mod raw;
mod rights;
mod server;

use std::time::{Duration, Instant};

/// How long anything may take that is to happen.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until something holds that nobody tells of.
fn eventually(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "it never comes to that");
        std::thread::yield_now();
    }
}
