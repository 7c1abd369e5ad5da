//! The cost of absent names: the laboratory is the only search destination, counts the datagrams, and never replies.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use super::cast;
use super::unavailable;
use super::worker::LoadRequest;
use crate::driver::external::WatchTask;
use crate::driver::{ClientUnderTest, DriverFailure};
use crate::floor;
use crate::placement::{CpuChoice, Placement};
use crate::process::Ports;
use crate::protocol::LabProtocol;

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
    (client, protocol): (ClientUnderTest, LabProtocol),
    n_names: u32,
    times: CountingIntervals,
    placement: Placement,
    cpus: &CpuChoice,
) -> Result<Vec<AbsentCount>, DriverFailure> {
    let socket = shared_socket().map_err(|why| unavailable("a socket", &why))?;
    let server = socket.local_addr().map_err(|why| unavailable("a socket", &why))?.port();
    let ports = Ports { server, pva: server, ..Ports::free().map_err(|why| unavailable("ports", &why))? };
    let mut process = cast::watcher_of(client, WatchTask::every(protocol), placement, cpus, ports)?;
    let watch = LoadRequest::Watch { n_pvs: n_names, n_subscriptions: 1 };
    let line = serde_json::to_string(&watch).map_err(|why| DriverFailure::Protocol { line: why.to_string() })?;
    process.write_line(&line)?;

    let mut names = HashSet::new();
    let mut until = Instant::now() + times.after;
    count(&socket, protocol, until, &mut names)?;
    let mut found = Vec::new();
    for _ in 0..times.n_counts {
        until += times.counted;
        let n_dropped = dropped(server);
        let n_read = count(&socket, protocol, until, &mut names)?;
        let n_datagrams = n_read + dropped(server).saturating_sub(n_dropped);
        found.push(AbsentCount { datagrams_hz: n_datagrams as f64 / times.counted.as_secs_f64() });
    }
    match names.len() as u64 {
        n_searched if n_searched >= u64::from(n_names) => Ok(found),
        n_searched => Err(DriverFailure::WrongCount { n: n_searched as usize, expected: n_names as usize }),
    }
}

/// A UDP socket on a free port of loopback; a client may listen for beacons on the same port, as pvxs does.
fn shared_socket() -> io::Result<UdpSocket> {
    let socket = net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    net::sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    Ok(UdpSocket::from(socket))
}

/// Counts datagrams until `until`, and adds the names they search for to `names`.
fn count(
    socket: &UdpSocket,
    protocol: LabProtocol,
    until: Instant,
    names: &mut HashSet<Vec<u8>>,
) -> Result<u64, DriverFailure> {
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
            let datagram = buffer.get(..n).unwrap_or_default();
            let mut note = |name: &[u8]| {
                if name.starts_with(NAME_PREFIX) && !names.contains(name) {
                    names.insert(name.to_vec());
                }
            };
            match protocol {
                LabProtocol::Ca => floor::searched(datagram).for_each(&mut note),
                LabProtocol::Pva => datagram.windows(NAME_BYTES).for_each(&mut note),
            }
        }
    }
}

/// How the names of a load begin, and their length: one that starts so in a datagram of pvAccess is a name.
const NAME_PREFIX: &[u8] = b"load:";
const NAME_BYTES: usize = 11;

/// How many datagrams to this port the kernel dropped for lack of buffer space.
fn dropped(port: u16) -> u64 {
    let text = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
    let own = format!(":{port:04X}");
    let line = text.lines().find(|line| line.split_whitespace().nth(1).is_some_and(|address| address.ends_with(&own)));
    line.and_then(|line| line.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}
