//! What names cost that nobody serves: the laboratory is the only one asked, counts, and stays silent.

use std::collections::HashSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use super::cast;
use super::tally::Numbers;
use super::unavailable;
use super::worker::Ask;
use crate::driver::{Client, Failure};
use crate::floor;
use crate::placement::{Placement, Seats};
use crate::process::Ports;

/// What came of searches in one of the times that were counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Absent {
    /// Datagrams in a second, those included that came faster than they were read.
    pub datagrams_hz: f64,
}

/// When searches are counted.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// From when on.
    pub after: Duration,
    /// For how long.
    pub counted: Duration,
    /// How often, one after the other.
    pub n_counts: usize,
}

/// Has `client` look for `n_names` names; fails when not every one has been asked for in the end.
pub fn run(
    client: Client,
    n_names: u32,
    times: Times,
    placement: Placement,
    seats: &Seats,
) -> Result<Vec<Absent>, Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|why| unavailable("a socket", &why))?;
    let server = socket.local_addr().map_err(|why| unavailable("a socket", &why))?.port();
    let ports = Ports { server, ..Ports::free().map_err(|why| unavailable("ports", &why))? };
    let mut process = cast::watcher_of(client, Numbers::Checked, placement, seats, ports)?;
    let watch = Ask::Watch { n_pvs: n_names, n_subscriptions: 1 };
    let line = serde_json::to_string(&watch).map_err(|why| Failure::Protocol { line: why.to_string() })?;
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
        found.push(Absent { datagrams_hz: n_datagrams as f64 / times.counted.as_secs_f64() });
    }
    match names.len() as u64 {
        n_searched if n_searched >= u64::from(n_names) => Ok(found),
        n_searched => Err(Failure::WrongCount { n: n_searched as usize, expected: n_names as usize }),
    }
}

/// Datagrams that come until then.
fn count(socket: &UdpSocket, until: Instant, names: &mut HashSet<Vec<u8>>) -> Result<u64, Failure> {
    let mut n_datagrams = 0;
    let mut buffer = [0; 65_536];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(n_datagrams);
        }
        socket.set_read_timeout(Some(left)).map_err(|why| unavailable("a socket", &why))?;
        // What does not come in time is the end of it.
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

/// How many datagrams to this port the kernel had no room for.
fn dropped(port: u16) -> u64 {
    let text = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
    let own = format!(":{port:04X}");
    let line = text.lines().find(|line| line.split_whitespace().nth(1).is_some_and(|address| address.ends_with(&own)));
    line.and_then(|line| line.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}
