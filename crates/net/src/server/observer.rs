//! Status of a running server and its clients, available on any thread.
//!
//! Serving values costs only one or two counters for this: a message asks each reactor, which then inspects its
//! circuits.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fodo_engine::shares::counted_address;

use super::quota::ClientHosts;
use super::reactor::{Inbox, ReactorMessage};
use super::{UpdateCounts, UpdateTally};
use crate::limit;
use crate::protocol::Protocol;

/// One client, as seen by the server; see [`Observer::clients`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientStatus {
    /// Its end of the connection.
    pub address: SocketAddr,
    /// The protocol of the connection.
    pub protocol: Protocol,
    /// The user name that the client sent.
    pub user: String,
    /// The host name that the client sent.
    pub host: String,
    /// Whether the connection uses TLS.
    pub is_encrypted: bool,
    /// Number of open channels.
    pub n_channels: usize,
    /// Number of running subscriptions.
    pub n_subscriptions: usize,
    /// Bytes queued for it and not yet sent.
    pub queued_bytes: usize,
    /// PVs with posts that are not yet among these bytes.
    pub n_pvs_waiting: usize,
    /// Its update counters.
    pub updates: UpdateCounts,
    /// How long data has been waiting for the client without a break; `None` if nothing waits.
    pub waiting: Option<Duration>,
}

/// Counters of a server since its start; see [`Observer::counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Updates sent and merged.
    pub updates: UpdateCounts,
    /// Updates posted, counted once for each subscription whose mask they match.
    pub posted: u64,
    /// Posted updates that were still waiting when their subscription ended.
    pub dropped: u64,
    /// Names searched for.
    pub searches: u64,
    /// Requests refused because a client or its host exceeded a limit.
    pub refused: u64,
    /// Datagrams that are truncated or otherwise invalid, or search for an invalid name.
    pub flawed: u64,
    /// Clients closed because they had no channel: for too long, or because others needed the resources.
    pub evicted: u64,
}

/// The host with the most clients without a channel. As in the limits of clients, all addresses of a network of IPv6 (`/64`)
/// count as one host, which has the first address of the network.
///
/// `clients`: the clients of a server, see [`Observer::clients`]. Returns the host and the number of its clients
/// without a channel; `None` if every client has one. [`Observer`] has an example.
pub fn host_with_most_unused_clients(clients: &[ClientStatus]) -> Option<(IpAddr, usize)> {
    let mut n_of_host: HashMap<IpAddr, usize> = HashMap::new();
    for client in clients.iter().filter(|client| client.n_channels == 0) {
        *n_of_host.entry(counted_address(client.address.ip())).or_default() += 1;
    }
    n_of_host.into_iter().max_by_key(|&(host, n)| (n, host))
}

/// A handle to observe a server. After the server has stopped, no clients are reported and the counters keep their
/// values.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_net::{PvTable, Server, ServerConfig, host_with_most_unused_clients};
///
/// # fn main() -> Result<(), fodo_net::ServerError> {
/// let server = Server::start(ServerConfig::isolated(), Arc::new(PvTable::new()))?;
/// let observer = server.observer();
/// let counts = observer.counts();
/// println!("{} searches, {} updates sent", counts.searches, counts.updates.sent);
///
/// let clients = observer.clients();
/// for client in &clients {
///     println!("{}@{} ({:?}): {} bytes queued", client.user, client.address, client.protocol, client.queued_bytes);
/// }
/// if let Some((host, n_clients)) = host_with_most_unused_clients(&clients) {
///     println!("{host} has {n_clients} clients without a channel");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Observer {
    inboxes: Vec<Arc<Inbox>>,
    tally: Arc<UpdateTally>,
    hosts: Arc<ClientHosts>,
}

impl Observer {
    pub(super) fn new(inboxes: Vec<Arc<Inbox>>, tally: Arc<UpdateTally>, hosts: Arc<ClientHosts>) -> Observer {
        Observer { inboxes, tally, hosts }
    }

    /// The counters so far. Never blocks.
    pub fn counts(&self) -> ServerCounts {
        let sum =
            |of: fn(&Inbox) -> &AtomicU64| self.inboxes.iter().map(|inbox| of(inbox).load(Ordering::Relaxed)).sum();
        ServerCounts {
            updates: self.tally.counts(),
            posted: sum(|inbox| &inbox.updates.posted),
            dropped: sum(|inbox| &inbox.updates.dropped),
            searches: self.hosts.n_searches(),
            refused: self.hosts.n_refused(),
            flawed: self.hosts.n_flawed(),
            evicted: self.hosts.n_evicted(),
        }
    }

    /// All current clients, those that have kept data waiting longest first. Blocks until the threads of the server
    /// reply, at most half a second each.
    pub fn clients(&self) -> Vec<ClientStatus> {
        let mut clients = Vec::new();
        let replies: Vec<_> = self
            .inboxes
            .iter()
            .map(|inbox| {
                let (sender, answer) = mpsc::channel();
                inbox.push(ReactorMessage::Status(sender));
                answer
            })
            .collect();
        for reply in replies {
            // A reactor that is busy for longer is omitted this time; its late reply is dropped.
            clients.extend(reply.recv_timeout(limit::STATUS_ANSWER).unwrap_or_default());
        }
        clients.sort_by_key(|client| std::cmp::Reverse((client.waiting, client.queued_bytes, client.updates.merged)));
        clients
    }
}
