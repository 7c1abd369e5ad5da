//! The cost of absent names: the laboratory is the only search destination, counts the datagrams, and never replies.

use std::collections::HashSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use super::cast;
use super::tally::NumberEncoding;
use super::unavailable;
use super::worker::LoadRequest;
use crate::driver::{ClientUnderTest, DriverFailure};
use crate::floor;
use crate::placement::{CpuChoice, Placement};
use crate::process::Ports;

/// Result of one counting interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AbsentCount {
    /// Datagrams per second, including those that the kernel dropped because they arrived faster than they were read.
    pub datagrams_hz: f64,
}

/// The counting intervals.
#[derive(Clone, Copy, Debug)]
pub struct CountingIntervals {
    /// Delay before the first interval.
    pub after: Duration,
    /// Length of an interval.
    pub counted: Duration,
    /// Number of consecutive intervals.
    pub n_counts: usize,
}

/// Lets `client` search for `n_names` names; fails unless each name was searched for at least once.
pub fn run(
    client: ClientUnderTest,
    n_names: u32,
    times: CountingIntervals,
    placement: Placement,
    cpus: &CpuChoice,
) -> Result<Vec<AbsentCount>, DriverFailure> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|why| unavailable("a socket", &why))?;
    let server = socket.local_addr().map_err(|why| unavailable("a socket", &why))?.port();
    let ports = Ports { server, ..Ports::free().map_err(|why| unavailable("ports", &why))? };
    let mut process = cast::watcher_of(client, NumberEncoding::Checked, placement, cpus, ports)?;
    let watch = LoadRequest::Watch { n_pvs: n_names, n_subscriptions: 1 };
    let line = serde_json::to_string(&watch).map_err(|why| DriverFailure::Protocol { line: why.to_string() })?;
    process.write_line(&line)?;

    let mut names = HashSet::new();
    let mut until = Instant::now() + times.after;
    count(&socket, until, &mut names)?;
    let mut found = Vec::new();
    for _ in 0..times.n_counts {
        until += times.counted;
        let n_dropped = dropped(server);
        let n_read = count(&socket, until, &mut names)?;
        let n_datagrams = n_read + dropped(server).saturating_sub(n_dropped);
        found.push(AbsentCount { datagrams_hz: n_datagrams as f64 / times.counted.as_secs_f64() });
    }
    match names.len() as u64 {
        n_searched if n_searched >= u64::from(n_names) => Ok(found),
        n_searched => Err(DriverFailure::WrongCount { n: n_searched as usize, expected: n_names as usize }),
    }
}

/// Counts datagrams until `until`, and adds the names they search for to `names`.
fn count(socket: &UdpSocket, until: Instant, names: &mut HashSet<Vec<u8>>) -> Result<u64, DriverFailure> {
    let mut n_datagrams = 0;
    let mut buffer = [0; 65_536];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(n_datagrams);
        }
        socket.set_read_timeout(Some(left)).map_err(|why| unavailable("a socket", &why))?;
        // A timeout ends the interval.
        if let Ok(n) = socket.recv(&mut buffer) {
            n_datagrams += 1;
            let searched = floor::searched(buffer.get(..n).unwrap_or_default());
            for name in searched.filter(|name| name.starts_with(b"load:")) {
                if !names.contains(name) {
                    names.insert(name.to_vec());
                }
            }
        }
    }
}

/// How many datagrams to this port the kernel dropped for lack of buffer space.
fn dropped(port: u16) -> u64 {
    let text = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
    let own = format!(":{port:04X}");
    let line = text.lines().find(|line| line.split_whitespace().nth(1).is_some_and(|address| address.ends_with(&own)));
    line.and_then(|line| line.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}
