//! Ports for tests that use one before or after a socket has it.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

/// The first port for tests.
const PORT_MIN: u16 = 12_000;

/// How many ports there are: all of them are below those that the system gives to sockets without a port.
const N_PORTS: u16 = 20_000;

/// Distance between the first ports of two processes with consecutive numbers.
const PORT_STEP: u32 = 397;

/// A port that is free for UDP and TCP, and that no other test of this process gets. Sockets that other tests bind to
/// port 0 never get it, neither before its use nor while a server restarts.
pub fn free_port() -> u16 {
    static N_TAKEN: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id().wrapping_mul(PORT_STEP) % u32::from(N_PORTS)) as u16;
    let next = || PORT_MIN + (first + N_TAKEN.fetch_add(1, Ordering::Relaxed) % N_PORTS) % N_PORTS;
    let is_free = |port: &u16| {
        let address = (Ipv4Addr::UNSPECIFIED, *port);
        UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok()
    };
    (0..1000).map(|_| next()).find(is_free).expect("one of a thousand ports is free")
}
