//! What the searchers of the protocols have in common.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use fodo_data::Now;

use super::{Claim, SearchSchedule, Transport};
use crate::Cid;

/// The names being searched for over one protocol, and the datagrams of their searches.
///
/// Names that are due are packed into full datagrams, at the pace of the [`SearchSchedule`]. `N`: the owner of a name.
pub trait NameSearcher<N> {
    /// A datagram of searches.
    type Datagram;

    /// When to search for which name.
    fn schedule(&self) -> &SearchSchedule<N>;

    /// The same as [`NameSearcher::schedule`], to change it.
    fn schedule_mut(&mut self) -> &mut SearchSchedule<N>;

    /// Whether a server can have this name; another one is never searched for.
    fn is_possible(_name: &N) -> bool {
        true
    }

    /// Searches for names that are due, as far as the limit on datagrams in transit allows. There may be unprocessed
    /// replies, so this does not interpret silence.
    fn send_due_searches(&mut self, now: Now, out: &mut Vec<Self::Datagram>);

    /// Performs actions that are due at `now`. Call it after processing all received datagrams.
    fn tick(&mut self, now: Now, out: &mut Vec<Self::Datagram>) {
        self.schedule_mut().tick(now.monotonic);
        self.send_due_searches(now, out);
    }

    /// The latest time to call [`NameSearcher::tick`].
    fn deadline(&self) -> Option<Instant> {
        self.schedule().deadline()
    }

    /// Sets the maximum time between two searches for a name.
    fn set_period_max(&mut self, period_max: Duration) {
        self.schedule_mut().set_period_max(period_max);
    }

    /// Starts searching for a name after a pause; see [`SearchSchedule::add_after`].
    fn add_after(&mut self, cid: Cid, name: N, pause: Duration, now: Instant) {
        if Self::is_possible(&name) {
            self.schedule_mut().add_after(cid, name, pause, now);
        }
    }

    /// Starts searching for a name whose server was lost; see [`SearchSchedule::add_lost`].
    fn add_lost(&mut self, cid: Cid, name: N, now: Now) {
        if Self::is_possible(&name) {
            self.schedule_mut().add_lost(cid, name, now.monotonic);
        }
    }

    /// Requests a search for all names; see [`SearchSchedule::boost`].
    fn boost(&mut self, now: Now) {
        self.schedule_mut().boost(now.monotonic);
    }

    /// Stops searching for a name; unknown numbers are ignored.
    fn remove(&mut self, cid: Cid) {
        self.schedule_mut().remove(cid);
    }

    /// The number of names being searched for.
    fn n_names(&self) -> usize {
        self.schedule().n_names()
    }

    /// Records that a server claims a name, for plain TCP; returns whether the name was being searched for.
    fn claimed(&mut self, cid: Cid, server: SocketAddr, claims: &mut Vec<Claim>) -> bool {
        if !is_endpoint(server) {
            return false;
        }
        let is_first = self.schedule_mut().remove(cid);
        claims.push(Claim { cid, server, transport: Transport::Tcp, plain: None, is_first });
        is_first
    }
}

/// Whether this can be the address of a single server.
pub fn is_endpoint(address: SocketAddr) -> bool {
    let ip = address.ip();
    let is_unicast = !ip.is_multicast() && !ip.is_unspecified() && ip != IpAddr::V4(Ipv4Addr::BROADCAST);
    is_unicast && address.port() != 0
}
