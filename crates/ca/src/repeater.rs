//! The repeater: one program per host listens on the beacon port and forwards beacons to all clients on the host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use fodo_data::Now;

use crate::limit;
use crate::message::{Answer, Request};
use crate::search::{Datagram, each_message};

/// The request to register a client with the repeater on its host.
pub fn registration() -> Vec<u8> {
    let mut bytes = Vec::new();
    Request::RepeaterRegister { address: Ipv4Addr::LOCALHOST.to_bits() }.encode(&mut bytes);
    bytes
}

/// Whether a datagram is a repeater's confirmation.
pub fn is_confirmation(bytes: &[u8]) -> bool {
    let mut is_one = false;
    each_message(bytes, |header, _| {
        is_one |= matches!(Answer::from_header(header), Answer::RepeaterConfirm { .. });
    });
    is_one
}

/// The clients of a host, and the beacons forwarded to them.
#[derive(Debug)]
pub struct Repeater {
    port: u16,
    clients: Vec<SocketAddr>,
    checked_at: Option<Instant>,
}

impl Repeater {
    /// Creates a repeater for this port, without clients.
    pub fn new(port: u16) -> Repeater {
        Repeater { port, clients: Vec::new(), checked_at: None }
    }

    /// The number of clients.
    pub fn n_clients(&self) -> usize {
        self.clients.len()
    }

    /// Processes a datagram and appends the datagrams to send.
    ///
    /// `is_local`: whether the sender is on this host; only local clients can register. `is_alive` returns whether a
    /// client's port is still in use; clients that have exited are removed from time to time.
    pub fn handle(
        &mut self,
        from: SocketAddr,
        is_local: bool,
        bytes: &[u8],
        now: Now,
        is_alive: &mut dyn FnMut(SocketAddr) -> bool,
        out: &mut Vec<Datagram>,
    ) {
        // Old clients register with an empty datagram.
        let mut is_registration = bytes.is_empty();
        each_message(bytes, |header, _| match Request::from_header(header) {
            Request::RepeaterRegister { .. } => is_registration = true,
            _ => self.forward(from, Answer::from_header(header), out),
        });
        // A client at the repeater's own port would be the repeater itself.
        if is_registration && is_local && from.port() != self.port && from.port() != 0 {
            self.register(from, now, is_alive, out);
        }
        if self.checked_at.is_none_or(|at| at + limit::REPEATER_CHECK_PERIOD <= now.monotonic) {
            self.remove_exited(now, is_alive);
        }
    }

    fn register(
        &mut self,
        client: SocketAddr,
        now: Now,
        is_alive: &mut dyn FnMut(SocketAddr) -> bool,
        out: &mut Vec<Datagram>,
    ) {
        if !self.clients.contains(&client) {
            let may_look = self.checked_at.is_none_or(|at| at + limit::REPEATER_CHECK_PERIOD_FULL <= now.monotonic);
            if self.clients.len() >= limit::REPEATER_CLIENTS && may_look {
                self.remove_exited(now, is_alive);
            }
            if self.clients.len() >= limit::REPEATER_CLIENTS {
                return;
            }
            self.clients.push(client);
        }
        let address = match client.ip() {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(_) => 0,
        };
        let mut bytes = Vec::new();
        Answer::RepeaterConfirm { address }.encode(&mut bytes);
        out.push(Datagram { to: Some(client), bytes });
    }

    /// Forwards beacons to every client except the sender. Nothing else is forwarded, so that the repeater cannot be
    /// abused as an amplifier.
    fn forward(&self, from: SocketAddr, message: Answer, out: &mut Vec<Datagram>) {
        let Answer::RsrvIsUp { minor, port, beacon, address } = message else { return };
        // At port 0 there is no server, and from 0xffff on the header is extended, which no client parses here.
        if !(1..0xffff).contains(&port) {
            return;
        }
        let sender = match from.ip() {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(_) => 0,
        };
        let address = if address == 0 { sender } else { address };
        let mut bytes = Vec::new();
        Answer::RsrvIsUp { minor, port, beacon, address }.encode(&mut bytes);
        let to = self.clients.iter().filter(|client| **client != from);
        out.extend(to.map(|&client| Datagram { to: Some(client), bytes: bytes.clone() }));
    }

    fn remove_exited(&mut self, now: Now, is_alive: &mut dyn FnMut(SocketAddr) -> bool) {
        self.checked_at = Some(now.monotonic);
        self.clients.retain(|&client| is_alive(client));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn local(port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
    }

    fn beacon(address: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        Answer::RsrvIsUp { minor: 13, port: 5064, beacon: 7, address }.encode(&mut bytes);
        bytes
    }

    /// The datagrams that the repeater sends for this datagram from a live client.
    fn receive(repeater: &mut Repeater, from: SocketAddr, bytes: &[u8]) -> Vec<Datagram> {
        let mut out = Vec::new();
        repeater.handle(from, true, bytes, Now::for_test(), &mut |_| true, &mut out);
        out
    }

    #[test]
    fn a_registered_client_receives_beacons_with_the_server_address() {
        let mut repeater = Repeater::new(5065);
        let server = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)), 40_000);

        let confirmed = receive(&mut repeater, local(3000), &registration());
        receive(&mut repeater, local(3001), &[]);
        let forwarded = receive(&mut repeater, server, &beacon(0));

        assert_eq!(confirmed[0].to, Some(local(3000)));
        assert!(is_confirmation(&confirmed[0].bytes));
        let to: Vec<_> = forwarded.iter().map(|datagram| datagram.to).collect();
        assert_eq!(to, [Some(local(3000)), Some(local(3001))]);
        assert_eq!(forwarded[0].bytes, beacon(0x0a00_0009));
    }

    #[test]
    fn forwarded_beacons_keep_their_address_and_are_not_sent_back_to_the_sender() {
        let mut repeater = Repeater::new(5065);
        receive(&mut repeater, local(3000), &registration());

        assert_eq!(receive(&mut repeater, local(3000), &beacon(0)), []);
        assert_eq!(receive(&mut repeater, local(9), &beacon(0x0a00_0001))[0].bytes, beacon(0x0a00_0001));
    }

    // Row 10 of docs/reference/faults.md.
    #[test]
    fn the_repeater_rejects_remote_hosts_its_own_port_and_surplus_clients() {
        let mut repeater = Repeater::new(5065);
        let (remote, now) = (SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)), 3000), Now::for_test());
        let mut out = Vec::new();

        repeater.handle(remote, false, &registration(), now, &mut |_| true, &mut out);
        repeater.handle(local(5065), true, &registration(), now, &mut |_| true, &mut out);
        assert_eq!((repeater.n_clients(), out.len()), (0, 0));
        let mut n_looks = 0;
        for port in 10_000..40_000 {
            let mut is_alive = |_| {
                n_looks += 1;
                true
            };
            repeater.handle(local(port), true, &registration(), now, &mut is_alive, &mut out);
        }

        assert_eq!(repeater.n_clients(), limit::REPEATER_CLIENTS);
        assert!(n_looks <= limit::REPEATER_CLIENTS, "{n_looks}");
    }

    // Row 10 of docs/reference/faults.md.
    #[test]
    fn the_repeater_removes_clients_that_have_disconnected() {
        let mut repeater = Repeater::new(5065);
        let start = Now::for_test();
        let mut is_alive = |client: SocketAddr| client.port() != 3000;
        let mut out = Vec::new();
        for port in [3000, 3001] {
            repeater.handle(local(port), true, &registration(), start, &mut |_| true, &mut out);
        }

        let later = start + limit::REPEATER_CHECK_PERIOD;
        repeater.handle(local(9), true, &beacon(1), later, &mut is_alive, &mut out);
        out.clear();
        repeater.handle(local(9), true, &beacon(1), later + Duration::from_secs(1), &mut is_alive, &mut out);

        assert_eq!(out.iter().map(|datagram| datagram.to).collect::<Vec<_>>(), [Some(local(3001))]);
    }

    #[test]
    fn the_repeater_forwards_only_beacons() {
        let mut repeater = Repeater::new(5065);
        receive(&mut repeater, local(3000), &registration());
        let mut search = Vec::new();
        Request::Search { reply: 10, minor: 13, cid: fodo_engine::Cid(1), again: 1 }.encode(&mut search);

        assert_eq!(receive(&mut repeater, local(9), &search), []);
        assert_eq!(receive(&mut repeater, local(9), b"GET / HTTP/1.1\r\n\r\n"), []);
    }
}
