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
