//! Looking for names: one UDP socket and one searcher for all contexts with the same addresses.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use fodo_ca::Cid;
use fodo_ca::search::{Claim, Datagram, Searcher};
use fodo_data::Now;
use mio::unix::SourceFd;
use mio::{Interest, Token};

use super::channel::ChannelCore;
use super::reactor::{Driven, Reactor, Turn};
use crate::sync::lock;
use crate::{clock, limit, socket};

/// Looks for names at one list of addresses.
pub(super) struct Search {
    addresses: Vec<SocketAddr>,
    socket: UdpSocket,
    reactor: Arc<Reactor>,
    state: Mutex<State>,
}

struct State {
    searcher: Searcher,
    token: Option<Token>,
    channels: HashMap<Cid, Weak<ChannelCore>>,
    cid_next: u32,
    datagrams: Vec<Datagram>,
    called_at: Option<Instant>,
}

/// The searches of the process, by their addresses.
static SEARCHES: Mutex<Vec<(Vec<SocketAddr>, Weak<Search>)>> = Mutex::new(Vec::new());

impl std::fmt::Debug for Search {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Search").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Search {
    /// The process's search at these addresses; its socket opens with the first call.
    pub(super) fn shared(addresses: &[SocketAddr], reactor: &Arc<Reactor>) -> io::Result<Arc<Search>> {
        let mut searches = lock(&SEARCHES);
        searches.retain(|(_, search)| search.strong_count() > 0);
        let known = searches.iter().find(|(of, _)| of == addresses).and_then(|(_, search)| search.upgrade());
        if let Some(search) = known {
            return Ok(search);
        }
        let search = Search::open(addresses, reactor)?;
        searches.push((addresses.to_vec(), Arc::downgrade(&search)));
        Ok(search)
    }

    fn open(addresses: &[SocketAddr], reactor: &Arc<Reactor>) -> io::Result<Arc<Search>> {
        let socket = socket::searching()?;
        let seed = clock::now().wall.nanos as u64 ^ u64::from(std::process::id()) << 32;
        let search = Arc::new(Search {
            addresses: addresses.to_vec(),
            socket,
            reactor: reactor.clone(),
            state: Mutex::new(State {
                searcher: Searcher::new(seed),
                token: None,
                channels: HashMap::new(),
                cid_next: 0,
                datagrams: Vec::new(),
                called_at: None,
            }),
        });
        let driven: Weak<dyn Driven> = Arc::downgrade(&search) as Weak<dyn Driven>;
        let token = reactor.add(driven);
        lock(&search.state).token = Some(token);
        reactor.registry().register(&mut SourceFd(&search.socket.as_raw_fd()), token, Interest::READABLE)?;
        Ok(search)
    }

    /// A number for a channel. It is not used again soon, so that what comes late for one channel
    /// does not meet another.
    pub(super) fn enter(&self, make: impl FnOnce(Cid) -> Arc<ChannelCore>) -> Arc<ChannelCore> {
        let mut state = lock(&self.state);
        while state.channels.contains_key(&Cid(state.cid_next)) {
            state.cid_next = state.cid_next.wrapping_add(1);
        }
        let cid = Cid(state.cid_next);
        state.cid_next = state.cid_next.wrapping_add(1);
        let channel = make(cid);
        state.channels.insert(cid, Arc::downgrade(&channel));
        channel
    }

    /// The channel is gone.
    pub(super) fn leave(&self, cid: Cid) {
        let mut state = lock(&self.state);
        state.searcher.remove(cid);
        state.channels.remove(&cid);
    }

    /// Looks for a name; without a `pause` the first datagram goes out at once, from this thread.
    pub(super) fn start(&self, cid: Cid, name: &str, pause: Duration) {
        let now = clock::now();
        let mut state = lock(&self.state);
        state.searcher.add_after(cid, name, pause, now);
        self.send_due(&mut state, now);
        let due = state.searcher.deadline();
        let is_earlier = match (due, state.called_at) {
            (Some(due), Some(called)) => due < called,
            (due, None) => due.is_some(),
            (None, Some(_)) => false,
        };
        if let (true, Some(due), Some(token)) = (is_earlier, due, state.token) {
            state.called_at = Some(due);
            self.reactor.call_at(token, due);
        }
    }

    fn send_due(&self, state: &mut State, now: Now) {
        let mut datagrams = std::mem::take(&mut state.datagrams);
        state.searcher.tick(now, &mut datagrams);
        for datagram in datagrams.drain(..) {
            let one = datagram.to.as_slice();
            let to = if one.is_empty() { &self.addresses } else { one };
            for address in to {
                // A datagram that cannot be sent now is as one that is lost: it is sent again.
                let _ = self.socket.send_to(&datagram.bytes, address);
            }
        }
        state.datagrams = datagrams;
    }

    /// Takes the waiting answers in; true when there may be more.
    fn receive(&self, state: &mut State, claims: &mut Vec<Claim>, now: Now) -> bool {
        let mut buffer = [0; 8192];
        for _ in 0..limit::TURN_DATAGRAMS {
            match self.socket.recv_from(&mut buffer) {
                Ok((n, from)) => state.searcher.handle(from, &buffer[..n], now, claims),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // An ICMP error of an earlier datagram; others may have answered.
                Err(_) => {}
            }
        }
        true
    }
}

impl Driven for Search {
    fn turn(self: Arc<Self>, now: Now) -> Turn {
        let mut claims = Vec::new();
        let mut state = lock(&self.state);
        let is_more = self.receive(&mut state, &mut claims, now);
        self.send_due(&mut state, now);
        let claimed: Vec<_> = claims
            .iter()
            .filter(|claim| claim.is_first)
            .filter_map(|claim| {
                let channel = state.channels.get(&claim.cid)?.upgrade()?;
                Some((channel, claim.server))
            })
            .collect();
        state.called_at = state.searcher.deadline();
        let turn = match (is_more, state.called_at) {
            (true, _) => Turn::Again,
            (false, Some(due)) => Turn::By(due),
            (false, None) => Turn::Ready,
        };
        drop(state);
        for (channel, server) in claimed {
            channel.claimed(server);
        }
        turn
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(token) = state.token.take() {
            self.reactor.remove(token);
        }
    }
}
