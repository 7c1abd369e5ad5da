//! Circuits without a channel: a connection costs its client nothing, and the server a descriptor.

use std::time::Instant;

use fodo_data::Now;

use super::Circuit;
use crate::log::Level;

/// Until when a circuit may have no channel.
#[derive(Clone, Copy)]
pub(super) enum Unused {
    /// Its client has asked for nothing so far, nor said who it is.
    Silent(Instant),
    /// It has.
    Known(Instant),
}

impl Circuit {
    /// Gives a circuit without a channel its full time again.
    pub(super) fn asked_for_something(&mut self, now: Now) {
        self.unused_until = Unused::Known(now.monotonic + self.share.quotas().unused_client);
    }

    /// Until when the circuit may go on as it is; `None` while it has a channel.
    pub(super) fn unused_until(&self) -> Option<Instant> {
        let (Unused::Silent(at) | Unused::Known(at)) = self.unused_until;
        (self.n_channels == 0).then_some(at)
    }

    /// Whether the circuit is to be closed because it has no channel, which is counted and logged.
    pub(super) fn is_unused_for_too_long(&self, now: Now) -> bool {
        if self.unused_until().is_none_or(|until| now.monotonic < until) {
            return false;
        }
        let (level, what) = match self.unused_until {
            Unused::Silent(_) => {
                (Level::Warning, "a client is closed, because it has asked for nothing since it connected")
            }
            Unused::Known(_) => (Level::Info, "a client is closed, because it has had no channel for a long time"),
        };
        self.log.tell(level, what, Some(self.peer.address), None, now);
        self.share.evicted();
        true
    }
}
