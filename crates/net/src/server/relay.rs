//! Relay of unicast searches from other hosts to the other servers of this host.
//!
//! If several servers share a UDP port, the system delivers a unicast datagram to only one of them. That server
//! forwards the search to the others over the loopback broadcast address, with its own sequence number. By that number
//! it recognizes their replies, and forwards them to the client. These replies give the server's address as "at the
//! sender's address", which is then an address of this host, so any of the servers can send them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use fodo_ca::search;

use crate::{interfaces, limit, socket};

/// Searches that were forwarded and can still be answered.
#[derive(Debug)]
pub(super) struct Relay {
    socket: UdpSocket,
    /// The address from which it sends, used to recognize its own datagrams.
    own: SocketAddr,
    others: SocketAddr,
    next: u32,
    forwarded: Vec<ForwardedSearch>,
}

#[derive(Clone, Copy, Debug)]
struct ForwardedSearch {
    /// The sequence numbers: ours, and the client's.
    number: u32,
    sequence: u32,
    client: SocketAddr,
    /// The index of the socket that received the search.
    socket_index: usize,
}

impl Relay {
    /// For servers that receive searches on this port.
    pub(super) fn new(port: u16) -> io::Result<Relay> {
        let socket = socket::shared_udp(Ipv4Addr::LOCALHOST, 0)?;
        let own = socket.local_addr()?;
        let others = SocketAddr::from((interfaces::LOOPBACK_BROADCAST, port));
        Ok(Relay { socket, own, others, next: 0, forwarded: Vec::new() })
    }

    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Whether this relay sent the datagram.
    pub(super) fn is_own(&self, from: SocketAddr) -> bool {
        from == self.own
    }

    /// Forwards a unicast search. Searches from loopback are not forwarded: they may have been forwarded already.
    pub(super) fn forward(&mut self, bytes: &mut [u8], client: SocketAddr, socket_index: usize) {
        if client.ip().is_loopback() {
            return;
        }
        let Some(sequence) = search::renumber(bytes, self.next) else { return };
        let search = ForwardedSearch { number: self.next, sequence, client, socket_index };
        match self.forwarded.get_mut(self.next as usize % limit::RELAYED_SEARCHES) {
            Some(place) => *place = search,
            None => self.forwarded.push(search),
        }
        self.next = self.next.wrapping_add(1);
        // A failure is like a lost datagram: the client searches again.
        let _ = self.socket.send_to(bytes, self.others);
    }

    /// The next reply of another server: its length, the client, and the index of the socket. `None` if there are no
    /// more.
    pub(super) fn answer(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr, usize)> {
        loop {
            let (n, _) = self.socket.recv_from(buffer).ok()?;
            let number = search::sequence(&buffer[..n]);
            let place = number.and_then(|number| self.forwarded.get(number as usize % limit::RELAYED_SEARCHES));
            if let Some(forwarded) = place.filter(|forwarded| Some(forwarded.number) == number) {
                search::renumber(&mut buffer[..n], forwarded.sequence);
                return Some((n, forwarded.client, forwarded.socket_index));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fodo_ca::message::{self, Answer, Request};

    use super::*;

    fn search(sequence: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        Request::Version { priority: 0, minor: 13, sequence }.encode(&mut bytes);
        message::encode_text(
            &mut bytes,
            |size| Request::Search { reply: 5, minor: 13, cid: fodo_engine::Cid(1), again: 1 }.header(size),
            b"x",
        );
        bytes
    }

    /// The next datagram that another server of this host receives, and its sender.
    fn received(other: &UdpSocket) -> (Vec<u8>, SocketAddr) {
        other.set_nonblocking(false).unwrap();
        other.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut buffer = [0; 2048];
        let (n, from) = other.recv_from(&mut buffer).unwrap();
        (buffer[..n].to_vec(), from)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_remote_search_is_forwarded_to_local_servers_and_replies_reach_the_client() {
        let other = socket::shared_udp(Ipv4Addr::UNSPECIFIED, 0).unwrap();
        let mut relay = Relay::new(other.local_addr().unwrap().port()).unwrap();
        relay.socket().set_nonblocking(false).unwrap();
        relay.socket().set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let client = |number: u8| SocketAddr::from(([192, 0, 2, number], 4000));

        relay.forward(&mut search(71), SocketAddr::from((Ipv4Addr::LOCALHOST, 4000)), 0);
        relay.forward(&mut search(72), client(1), 3);
        relay.forward(&mut search(73), client(2), 4);
        let (first, from) = received(&other);
        let (second, _) = received(&other);
        let mut answer = Vec::new();
        Answer::Version { valid: 1, minor: 13, sequence: 999 }.encode(&mut answer);
        other.send_to(&answer, from).unwrap();
        for request in [&second, &first] {
            search::renumber(&mut answer, search::sequence(request).unwrap());
            other.send_to(&answer, from).unwrap();
        }

        let mut buffer = [0; 2048];
        let mut next = || {
            let (n, to, socket_index) = relay.answer(&mut buffer).unwrap();
            (search::sequence(&buffer[..n]), to, socket_index)
        };
        assert_eq!(next(), (Some(73), client(2), 4));
        assert_eq!(next(), (Some(72), client(1), 3));
        assert!(relay.is_own(from) && !relay.is_own(client(1)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_relayed_reply_is_dropped_after_many_other_searches() {
        let other = socket::shared_udp(Ipv4Addr::UNSPECIFIED, 0).unwrap();
        let mut relay = Relay::new(other.local_addr().unwrap().port()).unwrap();
        let client = SocketAddr::from(([192, 0, 2, 1], 4000));

        (0..=limit::RELAYED_SEARCHES as u32).for_each(|sequence| relay.forward(&mut search(sequence), client, 0));
        let (first, from) = received(&other);
        assert_eq!(search::sequence(&first), Some(0));
        other.send_to(&first, from).unwrap();

        assert_eq!(relay.forwarded.len(), limit::RELAYED_SEARCHES);
        assert!(relay.answer(&mut [0; 2048]).is_none());
    }
}
