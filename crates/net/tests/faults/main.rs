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
mod quota;
mod raw;
mod rights;
mod server;

use std::time::Duration;

/// Timeout of everything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(30);
