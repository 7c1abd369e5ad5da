//! Printing a large array needs little memory besides the array itself.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers as well")]

#[expect(dead_code, reason = "the other tests use the rest")]
mod support;

use std::io::Read as _;
use std::process::Stdio;
use std::sync::Arc;

use fodo_net::{PvTable, Server, ServerConfig, SharedPv};

use support::fodo;

/// The elements of the array, and their size on the wire in bytes.
const ELEMENTS: usize = 4_000_000;
const MIB: usize = (ELEMENTS * 8) >> 20;

/// The peak memory of a process so far, in MiB.
fn peak_mib(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() >> 10
}

#[test]
fn printing_a_large_array_uses_little_more_memory_than_its_values() {
    let config = ServerConfig { payload_bytes_max: 256 << 20, ..ServerConfig::isolated() };
    let table = PvTable::from([("large", SharedPv::new(vec![0.5; ELEMENTS]))]);
    let server = Server::start(config, Arc::new(table)).unwrap();

    for arguments in [
        &["get", "large"][..],
        &["get", "--json", "large"],
        &["monitor", "large"],
        &["monitor", "--json", "large"],
        &["caget", "-c", "large"],
        &["caget", "-ca", "large"],
        &["camonitor", "large"],
    ] {
        let mut child = fodo(server.udp_port()).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        // The buffers between the two are full, so the process blocks in the middle of the output.
        let mut out = child.stdout.take().unwrap();
        assert!(out.read_exact(&mut [0; 4096]).is_ok(), "{arguments:?} prints nothing");
        let peak = peak_mib(child.id());
        child.kill().unwrap();
        child.wait().unwrap();

        assert!(peak < 2 * MIB + 48, "{arguments:?} takes {peak} MiB for an array of {MIB}");
    }
}
