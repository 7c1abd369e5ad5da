//! Circuits without a channel: such a connection costs its client nothing, but the server a descriptor.

use std::time::Instant;

use fodo_data::Now;

use super::{Circuit, CircuitProtocol};
use crate::log::Level;

/// Until when a circuit may stay without a channel.
#[derive(Clone, Copy)]
pub(super) enum IdleDeadline {
    /// Its client has sent no request so far, and no identity.
    Silent(Instant),
    /// Its client has sent a request or its identity.
    Known(Instant),
}

impl<P: CircuitProtocol> Circuit<P> {
    /// Restarts the full time that a circuit may stay without a channel.
    pub(crate) fn restart_idle_time(&mut self, now: Now) {
        self.idle_deadline = IdleDeadline::Known(now.monotonic + self.quota.limits().unused_client);
    }

    /// Until when the circuit may stay open in its current state; `None` while it has a channel.
    pub(super) fn idle_deadline(&self) -> Option<Instant> {
        let (IdleDeadline::Silent(at) | IdleDeadline::Known(at)) = self.idle_deadline;
        (self.n_channels == 0).then_some(at)
    }

    /// Whether to close the circuit because it has no channel; if so, counts and logs it.
    pub(super) fn is_idle_for_too_long(&self, now: Now) -> bool {
        if self.idle_deadline().is_none_or(|until| now.monotonic < until) {
            return false;
        }
        let (level, what) = match self.idle_deadline {
            IdleDeadline::Silent(_) => {
                (Level::Warning, "a client is closed, because it has sent no request since it connected")
            }
            IdleDeadline::Known(_) => {
                (Level::Info, "a client is closed, because it has had no channel for a long time")
            }
        };
        self.log.write(level, what, Some(self.peer.address), None, now);
        self.quota.count_evicted();
        true
    }
}
