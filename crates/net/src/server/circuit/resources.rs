//! The resources that a circuit uses, within the limits of its host.

use super::Circuit;
use super::protocol::{CircuitMachine, CircuitProtocol};
use crate::limit;

impl<P: CircuitProtocol> Circuit<P> {
    /// How many bytes may be queued before no more is added: the usual number, or none while this host has too many
    /// queued.
    pub(super) fn queue_bytes_max(&self, usual: usize) -> usize {
        if self.quota.may_queue() { usual } else { 1 }
    }

    /// Whether the protocol may use this much more memory: at most a quarter of what the host has left, so that enough
    /// is left for channels.
    pub(crate) fn may_hold(&self, n_bytes: usize) -> bool {
        self.protocol.held_bytes() + n_bytes <= self.quota.held_bytes_max() / 4
    }

    /// Whether more data may be queued for clients of this host.
    pub(crate) fn may_queue(&self) -> bool {
        self.quota.may_queue()
    }

    /// Counts a request that was refused because of a limit.
    pub(crate) fn count_refused(&self) {
        self.quota.count_refused();
    }

    /// Reports the resources in use.
    pub(super) fn report_resources(&mut self) {
        let queued_value_bytes: usize = self.queued_requests.iter().map(P::value_bytes).sum();
        let held = self.machine.held_bytes()
            + self.protocol.held_bytes()
            + self.puts.len() * limit::PUT_BYTES
            + self.puts_bytes
            + queued_value_bytes;
        let of_tls = if self.tls.is_some() { limit::TLS_CIRCUIT_BYTES } else { 0 };
        self.quota.set(limit::CIRCUIT_BYTES + of_tls + held, self.machine.pending_bytes() + self.unread.len());
    }
}
