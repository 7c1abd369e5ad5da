//! Finding names over UDP: the client's machine that asks, the server's that answers, beacons.

use std::net::SocketAddr;
use std::time::Instant;

use fodo_data::Now;

use crate::Cid;

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where to; `None` for every address of the search list.
    pub to: Option<SocketAddr>,
    /// At most 1024 bytes of searches, or one answer datagram.
    pub bytes: Vec<u8>,
}

/// A server said that it has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The client's number for the name.
    pub cid: Cid,
    /// The server's TCP address.
    pub server: SocketAddr,
}

/// The client's side: names that are looked for.
#[derive(Debug)]
pub struct Searcher {}

impl Searcher {
    /// A searcher of nothing yet. `seed` varies the jitter between processes.
    pub fn new(seed: u64) -> Searcher {
        let _ = seed;
        todo!()
    }

    /// Starts to look for a name; the first datagram is due at once ([`Searcher::tick`]).
    pub fn add(&mut self, cid: Cid, name: &str, now: Now) {
        let _ = (cid, name, now);
        todo!()
    }

    /// Stops looking; unknown numbers are ignored.
    pub fn remove(&mut self, cid: Cid) {
        let _ = cid;
        todo!()
    }

    /// How many names are looked for.
    pub fn n_names(&self) -> usize {
        todo!()
    }

    /// Takes a datagram in; claimed names are removed.
    pub fn handle(&mut self, from: SocketAddr, bytes: &[u8], now: Now, claims: &mut Vec<Claim>) {
        let _ = (from, bytes, now, claims);
        todo!()
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Now, out: &mut Vec<Datagram>) {
        let _ = (now, out);
        todo!()
    }

    /// The latest moment to call [`Searcher::tick`].
    pub fn deadline(&self) -> Option<Instant> {
        todo!()
    }
}

/// The server's side. Stateless but for the beacons.
#[derive(Debug)]
pub struct Responder {}

impl Responder {
    /// Answers for a server whose circuits are at `tcp_port`.
    pub fn new(tcp_port: u16, now: Now) -> Responder {
        let _ = (tcp_port, now);
        todo!()
    }

    /// Takes a datagram in, asks `serves` of every name in it and appends the answers.
    pub fn handle(
        &mut self,
        from: SocketAddr,
        bytes: &[u8],
        serves: &mut dyn FnMut(&str) -> bool,
        out: &mut Vec<Datagram>,
    ) {
        let _ = (from, bytes, serves, out);
        todo!()
    }

    /// Emits a beacon (to `None`: every beacon address) when one is due.
    pub fn tick(&mut self, now: Now, out: &mut Vec<Datagram>) {
        let _ = (now, out);
        todo!()
    }

    /// When the next beacon is due.
    pub fn deadline(&self) -> Option<Instant> {
        todo!()
    }
}
