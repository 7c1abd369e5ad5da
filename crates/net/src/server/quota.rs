//! What the clients of one host may have together, so that none takes the memory or the descriptors of all.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::config::Quotas;
use crate::sync::lock;

/// The hosts that have clients here.
#[derive(Debug)]
pub(super) struct Hosts {
    quotas: Quotas,
    uses: Mutex<HashMap<IpAddr, Host>>,
    n_refused: AtomicU64,
    n_flawed: AtomicU64,
}

#[derive(Debug, Default)]
struct Host {
    n_circuits: usize,
    use_: Arc<Use>,
}

/// What the circuits of one host cost.
#[derive(Debug, Default)]
struct Use {
    /// For what they hold: their sockets, channels, subscriptions, puts.
    held_bytes: AtomicUsize,
    /// For what they have not taken: answers, updates.
    queued_bytes: AtomicUsize,
}

/// One circuit's part of what its host has; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    hosts: Arc<Hosts>,
    peer: SocketAddr,
    use_: Arc<Use>,
    held_bytes: usize,
    queued_bytes: usize,
}

impl Hosts {
    pub(super) fn new(quotas: Quotas) -> Hosts {
        Hosts { quotas, uses: Mutex::default(), n_refused: AtomicU64::new(0), n_flawed: AtomicU64::new(0) }
    }

    /// Has a client in; `None` when its host has too many circuits.
    pub(super) fn enter(self: &Arc<Hosts>, peer: SocketAddr) -> Option<Share> {
        let mut uses = lock(&self.uses);
        let known = uses.entry(peer.ip()).or_default();
        if known.n_circuits >= self.quotas.host_circuits {
            self.refused();
            return None;
        }
        known.n_circuits += 1;
        let use_ = known.use_.clone();
        Some(Share { hosts: self.clone(), peer, use_, held_bytes: 0, queued_bytes: 0 })
    }

    /// Counts something that was refused since it would have been too much.
    pub(super) fn refused(&self) {
        self.n_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was so.
    pub(super) fn n_refused(&self) -> u64 {
        self.n_refused.load(Ordering::Relaxed)
    }

    /// Counts a datagram with something wrong in it.
    pub(super) fn flawed(&self) {
        self.n_flawed.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were.
    pub(super) fn n_flawed(&self) -> u64 {
        self.n_flawed.load(Ordering::Relaxed)
    }
}

impl Share {
    /// Whose it is.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Tells what the circuit costs now.
    pub(super) fn set(&mut self, held_bytes: usize, queued_bytes: usize) {
        replace(&self.use_.held_bytes, &mut self.held_bytes, held_bytes);
        replace(&self.use_.queued_bytes, &mut self.queued_bytes, queued_bytes);
    }

    /// What the circuit may hold: what its host has left, and never more than half of all, so that one client that
    /// takes whatever it gets leaves something to the others of its host.
    pub(super) fn held_bytes_max(&self) -> usize {
        let others = self.use_.held_bytes.load(Ordering::Relaxed).saturating_sub(self.held_bytes);
        let host_bytes = self.hosts.quotas.host_bytes;
        host_bytes.saturating_sub(others).min(host_bytes / 2)
    }

    /// Whether more may wait for clients of this host. While it may not, those of them that read what they are sent are
    /// served as before.
    pub(super) fn has_room(&self) -> bool {
        let Use { held_bytes, queued_bytes } = &*self.use_;
        let both = held_bytes.load(Ordering::Relaxed).saturating_add(queued_bytes.load(Ordering::Relaxed));
        both < self.hosts.quotas.host_bytes
    }

    /// Counts that the circuit was refused something.
    pub(super) fn refused(&self) {
        self.hosts.refused();
    }
}

/// Moves a sum by as much as a part of it has changed.
fn replace(sum: &AtomicUsize, part: &mut usize, now: usize) {
    match std::mem::replace(part, now) {
        before if now > before => drop(sum.fetch_add(now - before, Ordering::Relaxed)),
        before if now < before => drop(sum.fetch_sub(before - now, Ordering::Relaxed)),
        _ => {}
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0, 0);
        let mut uses = lock(&self.hosts.uses);
        if let Some(known) = uses.get_mut(&self.peer.ip()) {
            known.n_circuits -= 1;
            if known.n_circuits == 0 {
                uses.remove(&self.peer.ip());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4000);

    fn hosts() -> Arc<Hosts> {
        Arc::new(Hosts::new(Quotas { host_bytes: 1000, host_circuits: 3, ..Quotas::default() }))
    }

    #[test]
    fn row_26_a_host_has_so_many_circuits_and_others_have_theirs() {
        let hosts = hosts();
        let mut shares: Vec<_> = (0..3).map(|_| hosts.enter(HERE).unwrap()).collect();

        assert!(hosts.enter(HERE).is_none());
        assert!(hosts.enter(SocketAddr::from(([10, 0, 0, 1], 4000))).is_some());
        shares.pop();
        assert!(hosts.enter(HERE).is_some(), "what was given back can be had again");
        shares.clear();

        assert_eq!((hosts.n_refused(), lock(&hosts.uses).len()), (1, 0), "hosts that have gone are forgotten");
    }

    #[test]
    fn row_17_and_18_a_circuit_may_hold_half_of_its_host_and_what_others_have_left() {
        let hosts = hosts();
        let mut shares: Vec<_> = (0..3).map(|_| hosts.enter(HERE).unwrap()).collect();
        assert_eq!(shares[0].held_bytes_max(), 500);

        shares[0].set(400, 0);
        shares[1].set(450, 0);

        let may_hold: Vec<usize> = shares.iter().map(Share::held_bytes_max).collect();
        assert_eq!(may_hold, [500, 500, 150]);
    }

    #[test]
    fn what_waits_for_one_circuit_of_a_host_is_counted_for_all_of_them() {
        let hosts = hosts();
        let (mut deaf, other) = (hosts.enter(HERE).unwrap(), hosts.enter(HERE).unwrap());

        deaf.set(100, 900);
        let while_it_waits = other.has_room();
        deaf.set(100, 0);

        assert_eq!((while_it_waits, other.has_room()), (false, true));
    }
}
