//! What a running server knows of itself and its clients, for whoever asks, on any thread.
//!
//! Nothing is counted for it where values are served but a number or two: each reactor is asked by a message, and looks at
//! its circuits then.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::quota::Hosts;
use super::reactor::{Inbox, Message};
use super::status::StatusSource;
use super::{UpdateCounts, UpdateTally};
use crate::limit;

/// One client as the server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientStatus {
    /// Its end of the circuit.
    pub address: SocketAddr,
    /// As it says itself.
    pub user: String,
    /// Likewise.
    pub host: String,
    /// PVs it has a channel to, counted by channel.
    pub n_channels: usize,
    /// Running monitors.
    pub n_subscriptions: usize,
    /// Bytes that it has not taken yet.
    pub queued_bytes: usize,
    /// PVs with posts that are not among these bytes yet.
    pub n_pvs_waiting: usize,
    /// What became of its updates.
    pub updates: UpdateCounts,
    /// For how long there has always been something that it had not taken.
    pub waiting: Option<Duration>,
}

/// What a server has counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// What became of updates.
    pub updates: UpdateCounts,
    /// Updates that were posted, counted once for each subscription whose mask they meet.
    pub posted: u64,
    /// Those of them that waited for a subscription when it ended.
    pub dropped: u64,
    /// Names that were asked for.
    pub searches: u64,
    /// What went beyond the bounds of a client or its host.
    pub refused: u64,
    /// Datagrams that are cut, or ask for what is no name.
    pub flawed: u64,
    /// Clients that were closed because they had no channel: for too long, or while others needed the room.
    pub evicted: u64,
}

/// The host with most clients that have no channel.
///
/// `clients`: those of a server, see [`Observer::clients`]. Returns the host and the number of its clients without a
/// channel; `None` if every client has one.
pub fn host_of_most_unused(clients: &[ClientStatus]) -> Option<(IpAddr, usize)> {
    let mut n_of_host: HashMap<IpAddr, usize> = HashMap::new();
    for client in clients.iter().filter(|client| client.n_channels == 0) {
        *n_of_host.entry(client.address.ip()).or_default() += 1;
    }
    n_of_host.into_iter().max_by_key(|&(host, n)| (n, host))
}

/// Looks at a server from outside; where the server has ended, nothing is found any more and what was counted stays.
#[derive(Clone, Debug)]
pub struct Observer {
    inboxes: Vec<Arc<Inbox>>,
    tally: Arc<UpdateTally>,
    hosts: Arc<Hosts>,
    source: Arc<StatusSource>,
}

impl Observer {
    pub(super) fn new(
        inboxes: Vec<Arc<Inbox>>,
        tally: Arc<UpdateTally>,
        hosts: Arc<Hosts>,
        source: Arc<StatusSource>,
    ) -> Observer {
        Observer { inboxes, tally, hosts, source }
    }

    pub(super) fn source(&self) -> &StatusSource {
        &self.source
    }

    /// What was counted so far. Never waits.
    pub fn counts(&self) -> ServerCounts {
        let sum =
            |of: fn(&Inbox) -> &AtomicU64| self.inboxes.iter().map(|inbox| of(inbox).load(Ordering::Relaxed)).sum();
        ServerCounts {
            updates: self.tally.counts(),
            posted: sum(|inbox| &inbox.updates.posted),
            dropped: sum(|inbox| &inbox.updates.dropped),
            searches: self.source.n_searches(),
            refused: self.hosts.n_refused(),
            flawed: self.hosts.n_flawed(),
            evicted: self.hosts.n_evicted(),
        }
    }

    /// Every client there is now, those that keep something waiting for longest first. Waits for the threads of the
    /// server, at most half a second each.
    pub fn clients(&self) -> Vec<ClientStatus> {
        let mut clients = Vec::new();
        let asked: Vec<_> = self
            .inboxes
            .iter()
            .map(|inbox| {
                let (sender, answer) = mpsc::channel();
                inbox.push(Message::Status(sender));
                answer
            })
            .collect();
        for answer in asked {
            // A reactor that is busy for longer is left out this time; what it says late goes nowhere.
            clients.extend(answer.recv_timeout(limit::STATUS_ANSWER).unwrap_or_default());
        }
        clients.sort_by_key(|client| std::cmp::Reverse((client.waiting, client.queued_bytes, client.updates.merged)));
        clients
    }
}
