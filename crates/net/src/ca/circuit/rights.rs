//! Access rights that change while the client is connected.
//!
//! rsrv reports the change. It then sends one update with ECA_NORDACCESS to each subscription that may no longer be
//! read, and the current value once it may be read again. Such subscriptions are kept apart from the others, so that
//! the others incur no extra cost.

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_data::EventMask;
use fodo_engine::{Sid, SubscriptionId};

use super::{ChannelAccess, RequestedDbr};
use crate::server::circuit::Circuit;

/// A subscription that may not be read now.
pub(super) struct Denied {
    pub(super) sid: Sid,
    pub(super) dbr: DbrType,
    pub(super) count: u32,
    pub(super) mask: EventMask,
}

impl Circuit<ChannelAccess> {
    /// The subscriptions whose read access has changed; the newest first.
    pub(super) fn changed_subscriptions(&self) -> Vec<SubscriptionId> {
        let revived = self.protocol.denied.iter().filter(|(_, denied)| self.may_read_channel(denied.sid));
        let mut changed: Vec<SubscriptionId> =
            self.unreadable_subscriptions().chain(revived.map(|(id, _)| *id)).collect();
        changed.sort_unstable_by_key(|id| std::cmp::Reverse(id.0));
        changed
    }

    /// Denies a running subscription, or restores a denied one.
    pub(super) fn change_subscription(&mut self, id: SubscriptionId) {
        match self.protocol.denied.remove(&id) {
            Some(Denied { sid, dbr, count, mask }) => self.subscribe(sid, dbr, count, mask, id),
            None => self.deny_running(id),
        }
    }

    /// Turns a running subscription into a denied one. Its unsent updates are dropped.
    fn deny_running(&mut self, id: SubscriptionId) {
        let Some(subscription) = self.running_subscription(id) else { return };
        let RequestedDbr { dbr, count } = subscription.content;
        let (sid, mask) = (subscription.sid, subscription.cursor.mask());
        self.cancel(id);
        self.deny(id, Denied { sid, dbr, count, mask });
    }

    /// Stores a denied subscription and notifies the client.
    pub(super) fn deny(&mut self, id: SubscriptionId, denied: Denied) {
        // An update with a status converts no value, so it cannot fail.
        let _ = self.machine.update(denied.sid, denied.dbr, denied.count, id, Err(Eca::NORDACCESS));
        self.protocol.denied.insert(id, denied);
    }

    /// Removes a subscription from the denied ones.
    pub(super) fn forget_denied(&mut self, id: SubscriptionId) {
        // Usually empty; skip the hash lookup.
        if !self.protocol.denied.is_empty() {
            self.protocol.denied.remove(&id);
        }
    }
}
