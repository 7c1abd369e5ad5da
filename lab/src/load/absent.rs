//! What names cost that nobody serves: the laboratory is the only one asked, counts, and stays silent.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use super::cast;
use super::tally::Numbers;
use super::unavailable;
use super::worker::Ask;
use crate::driver::{Client, Failure};
use crate::placement::{Placement, Seats};
use crate::process::Ports;

/// What came of searches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Absent {
    /// Datagrams in a second, of the time that was counted.
    pub datagrams_hz: f64,
    /// Bytes in a second.
    pub bytes_hz: f64,
    /// Bytes before that, in which every name was asked for at least once if there were enough.
    pub bytes_before: u64,
}

/// How large a search for a name of a load is at least: a header and ten letters.
const SEARCH_BYTES_MIN: u64 = 32;

/// Has `client` look for `n_names` names; counts from `after` on for so long.
pub fn run(
    client: Client,
    n_names: u32,
    after: Duration,
    counted: Duration,
    placement: Placement,
    seats: &Seats,
) -> Result<Absent, Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|why| unavailable("a socket", &why))?;
    let server = socket.local_addr().map_err(|why| unavailable("a socket", &why))?.port();
    let ports = Ports { server, ..Ports::free().map_err(|why| unavailable("ports", &why))? };
    let mut process = cast::watcher_of(client, Numbers::Checked, placement, seats, ports)?;
    let watch = Ask::Watch { n_pvs: n_names, n_subscriptions: 1 };
    let line = serde_json::to_string(&watch).map_err(|why| Failure::Protocol { line: why.to_string() })?;
    process.write_line(&line)?;

    let start = Instant::now();
    let (_, bytes_before) = count(&socket, start + after)?;
    let (datagrams, bytes) = count(&socket, start + after + counted)?;
    if bytes_before < u64::from(n_names) * SEARCH_BYTES_MIN {
        let what = format!("the search for {n_names} names");
        return Err(Failure::Operation { what, why: format!("only {bytes_before} bytes came of it") });
    }
    let each = |n: u64| n as f64 / counted.as_secs_f64();
    Ok(Absent { datagrams_hz: each(datagrams), bytes_hz: each(bytes), bytes_before })
}

/// Datagrams and bytes that come until then.
fn count(socket: &UdpSocket, until: Instant) -> Result<(u64, u64), Failure> {
    let (mut n_datagrams, mut n_bytes) = (0, 0);
    let mut buffer = [0; 65_536];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok((n_datagrams, n_bytes));
        }
        socket.set_read_timeout(Some(left)).map_err(|why| unavailable("a socket", &why))?;
        // What does not come in time is the end of it.
        if let Ok(n) = socket.recv(&mut buffer) {
            n_datagrams += 1;
            n_bytes += n as u64;
        }
    }
}
