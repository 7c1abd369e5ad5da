//! What the tests of several crates need: free ports, and waiting for a condition that nothing signals.
#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// How long a test waits for what must happen: a busy host may not run a thread for seconds.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The time between two looks at a condition. A test that waits leaves the processor to what it waits for.
const PAUSE: Duration = Duration::from_millis(1);

/// The first port for tests.
const PORT_MIN: u16 = 12_000;

/// How many ports there are: all of them are below those that the system gives to sockets without a port.
const N_PORTS: u16 = 20_000;

/// Distance between the first ports of two processes with consecutive numbers.
const PORT_STEP: u32 = 397;

/// How many ports are tried.
const PORT_ATTEMPTS: usize = 1000;

/// A port that is free for UDP and TCP, and that no other test of this process gets. Sockets that other tests bind to
/// port 0 never get it, neither before its use nor while a server restarts.
///
/// # Panics
///
/// If none of a thousand ports is free.
pub fn free_port() -> u16 {
    static N_TAKEN: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id().wrapping_mul(PORT_STEP) % u32::from(N_PORTS)) as u16;
    let next = || PORT_MIN + (first + N_TAKEN.fetch_add(1, Ordering::Relaxed) % N_PORTS) % N_PORTS;
    let is_free = |port: &u16| {
        let address = (Ipv4Addr::UNSPECIFIED, *port);
        UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok()
    };
    (0..PORT_ATTEMPTS).map(|_| next()).find(is_free).expect("one of a thousand ports is free")
}

/// Waits until a condition holds; `what` describes it.
///
/// # Panics
///
/// If it does not hold within [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "timeout while waiting until {what}");
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_distinct_and_below_those_of_the_system() {
        let ports = [(); 100].map(|()| free_port());

        assert!(ports.iter().all(|port| (PORT_MIN..PORT_MIN + N_PORTS).contains(port)), "{ports:?}");
        assert!((1..ports.len()).all(|index| !ports[..index].contains(&ports[index])), "{ports:?}");
    }

    #[test]
    fn a_condition_is_looked_at_until_it_holds() {
        let mut n_looks = 0;

        eventually("it was looked at three times", || {
            n_looks += 1;
            n_looks == 3
        });

        assert_eq!(n_looks, 3);
    }
}
