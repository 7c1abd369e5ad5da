//! What the searches of all protocols have in common: the limits of their sources, the counters and the log.

use std::net::SocketAddr;
use std::sync::Arc;

use fodo_data::Now;
use fodo_engine::shares::SearchShares;

use super::quota::ClientHosts;
use super::{Source, panics};
use crate::config::Quotas;
use crate::log::{Level, Log};
use crate::protocol::Protocol;

/// Decides which searches are answered, and counts them.
#[derive(Debug)]
pub struct SearchIntake {
    shares: SearchShares,
    hosts: Arc<ClientHosts>,
    log: Arc<Log>,
}

impl SearchIntake {
    pub(super) fn new(quotas: &Quotas, hosts: Arc<ClientHosts>, log: Arc<Log>) -> SearchIntake {
        let shares = SearchShares::new(quotas.source_search_bytes, quotas.all_search_bytes);
        SearchIntake { shares, hosts, log }
    }

    /// Whether to process a datagram; `cost_bytes`: its size, and something for its handling. If not, this is counted.
    pub fn admits(&mut self, from: SocketAddr, cost_bytes: usize, now: Now) -> bool {
        let is_admitted = self.shares.admits(from.ip(), cost_bytes, now);
        if !is_admitted {
            self.hosts.count_refused();
            let what = "searches are ignored, because their host has exceeded its share";
            self.log.write(Level::Warning, what, Some(from), None, now);
        }
        is_admitted
    }

    /// Whether the source serves a name over a protocol; counts the search.
    pub fn serves(&self, source: &dyn Source, name: &str, over: Protocol, from: SocketAddr, now: Now) -> bool {
        self.hosts.count_search();
        panics::serves(source, name, over, &self.log, from, now)
    }

    /// Counts and logs that a datagram is invalid. `what`: one of a few texts, so that the log suppresses repetitions.
    pub fn report_flaw(&self, what: &'static str, name: Option<&str>, from: SocketAddr, now: Now) {
        self.hosts.count_flawed();
        self.log.write(Level::Warning, what, Some(from), name, now);
    }
}
