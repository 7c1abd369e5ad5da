//! Circuits without a channel: such a connection costs its client nothing, but the server a descriptor.

use std::time::Instant;

use fodo_data::Now;

use super::Circuit;
use crate::log::Level;

/// Until when a circuit may stay without a channel.
#[derive(Clone, Copy)]
pub(super) enum Unused {
    /// Its client has sent no request so far, and no identity.
    Silent(Instant),
    /// Its client has sent a request or its identity.
    Known(Instant),
}

impl Circuit {
    /// Restarts the full time that a circuit may stay without a channel.
    pub(super) fn asked_for_something(&mut self, now: Now) {
        self.unused_until = Unused::Known(now.monotonic + self.share.quotas().unused_client);
    }

    /// Until when the circuit may stay open in its current state; `None` while it has a channel.
    pub(super) fn unused_until(&self) -> Option<Instant> {
        let (Unused::Silent(at) | Unused::Known(at)) = self.unused_until;
        (self.n_channels == 0).then_some(at)
    }

    /// Whether to close the circuit because it has no channel; if so, counts and logs it.
    pub(super) fn is_unused_for_too_long(&self, now: Now) -> bool {
        if self.unused_until().is_none_or(|until| now.monotonic < until) {
            return false;
        }
        let (level, what) = match self.unused_until {
            Unused::Silent(_) => {
                (Level::Warning, "a client is closed, because it has sent no request since it connected")
            }
            Unused::Known(_) => (Level::Info, "a client is closed, because it has had no channel for a long time"),
        };
        self.log.tell(level, what, Some(self.peer.address), None, now);
        self.share.evicted();
        true
    }
}
