//! Unicast searches from other hosts, handed to the other servers of this host.
//!
//! Of several servers that share a UDP port the system gives a unicast datagram to one. That one asks the others over
//! the broadcast address of loopback, under a sequence number of its own by which it knows their answers again, and
//! hands these to who asked. They say "at the sender's address", which is then this host's, so any server can answer.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use fodo_ca::search;

use crate::{interfaces, limit, socket};

/// What was handed on and may be answered.
#[derive(Debug)]
pub(super) struct Relay {
    socket: UdpSocket,
    /// Where it is heard by the others, and by ourselves.
    own: SocketAddr,
    others: SocketAddr,
    next: u32,
    asked: Vec<Asked>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    /// By us, and by the client.
    number: u32,
    sequence: u32,
    client: SocketAddr,
    /// The index of the socket that it asked.
    heard_by: usize,
}

impl Relay {
    /// For servers that hear searches at this port.
    pub(super) fn new(port: u16) -> io::Result<Relay> {
        let socket = socket::answering(Ipv4Addr::LOCALHOST, 0)?;
        let own = socket.local_addr()?;
        let others = SocketAddr::from((interfaces::LOOPBACK_BROADCAST, port));
        Ok(Relay { socket, own, others, next: 0, asked: Vec::new() })
    }

    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Whether a datagram is one that this has handed on.
    pub(super) fn is_own(&self, from: SocketAddr) -> bool {
        from == self.own
    }

    /// Hands a unicast search on. What comes from loopback is not: it may have been handed on already.
    pub(super) fn hand_on(&mut self, bytes: &mut [u8], client: SocketAddr, heard_by: usize) {
        if client.ip().is_loopback() {
            return;
        }
        let Some(sequence) = search::renumber(bytes, self.next) else { return };
        let asked = Asked { number: self.next, sequence, client, heard_by };
        match self.asked.get_mut(self.next as usize % limit::RELAYED_SEARCHES) {
            Some(place) => *place = asked,
            None => self.asked.push(asked),
        }
        self.next = self.next.wrapping_add(1);
        // As one that is lost: the client asks again.
        let _ = self.socket.send_to(bytes, self.others);
    }

    /// The next answer of another server: how many bytes, to whom, and by which socket. `None`: there is no more.
    pub(super) fn answer(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr, usize)> {
        loop {
            let (n, _) = self.socket.recv_from(buffer).ok()?;
            let number = search::sequence(&buffer[..n]);
            let place = number.and_then(|number| self.asked.get(number as usize % limit::RELAYED_SEARCHES));
            if let Some(asked) = place.filter(|asked| Some(asked.number) == number) {
                search::renumber(&mut buffer[..n], asked.sequence);
                return Some((n, asked.client, asked.heard_by));
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
            |size| Request::Search { reply: 5, minor: 13, cid: fodo_ca::Cid(1), again: 1 }.header(size),
            b"x",
        );
        bytes
    }

    /// What another server of this host hears next, and who sent it.
    fn heard(other: &UdpSocket) -> (Vec<u8>, SocketAddr) {
        other.set_nonblocking(false).unwrap();
        other.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut buffer = [0; 2048];
        let (n, from) = other.recv_from(&mut buffer).unwrap();
        (buffer[..n].to_vec(), from)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_search_of_another_host_is_asked_of_the_other_servers_and_their_answer_is_the_clients() {
        let other = socket::answering(Ipv4Addr::UNSPECIFIED, 0).unwrap();
        let mut relay = Relay::new(other.local_addr().unwrap().port()).unwrap();
        relay.socket().set_nonblocking(false).unwrap();
        relay.socket().set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let client = |number: u8| SocketAddr::from(([192, 0, 2, number], 4000));

        relay.hand_on(&mut search(71), SocketAddr::from((Ipv4Addr::LOCALHOST, 4000)), 0);
        relay.hand_on(&mut search(72), client(1), 3);
        relay.hand_on(&mut search(73), client(2), 4);
        let (first, from) = heard(&other);
        let (second, _) = heard(&other);
        let mut answer = Vec::new();
        Answer::Version { valid: 1, minor: 13, sequence: 999 }.encode(&mut answer);
        other.send_to(&answer, from).unwrap();
        for asked in [&second, &first] {
            search::renumber(&mut answer, search::sequence(asked).unwrap());
            other.send_to(&answer, from).unwrap();
        }

        let mut buffer = [0; 2048];
        let mut next = || {
            let (n, to, heard_by) = relay.answer(&mut buffer).unwrap();
            (search::sequence(&buffer[..n]), to, heard_by)
        };
        assert_eq!(next(), (Some(73), client(2), 4));
        assert_eq!(next(), (Some(72), client(1), 3));
        assert!(relay.is_own(from) && !relay.is_own(client(1)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_answer_that_comes_after_many_other_searches_is_nobodys() {
        let other = socket::answering(Ipv4Addr::UNSPECIFIED, 0).unwrap();
        let mut relay = Relay::new(other.local_addr().unwrap().port()).unwrap();
        let client = SocketAddr::from(([192, 0, 2, 1], 4000));

        (0..=limit::RELAYED_SEARCHES as u32).for_each(|sequence| relay.hand_on(&mut search(sequence), client, 0));
        let (first, from) = heard(&other);
        assert_eq!(search::sequence(&first), Some(0));
        other.send_to(&first, from).unwrap();

        assert_eq!(relay.asked.len(), limit::RELAYED_SEARCHES);
        assert!(relay.answer(&mut [0; 2048]).is_none());
    }
}
