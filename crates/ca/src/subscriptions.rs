//! The subscriptions of one circuit, by number, which the peer chooses, and by channel.

use std::collections::{BTreeSet, HashMap};

use fodo_engine::{Sid, SubscriptionId};

use crate::dbr::DbrType;

/// The parameters of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The channel.
    pub sid: Sid,
    /// The requested type.
    pub dbr: DbrType,
    /// The requested element count.
    pub count: u32,
}

/// Subscriptions by number. Removing those of a channel does not visit the others.
#[derive(Debug, Default)]
pub struct Subscriptions {
    by_id: HashMap<SubscriptionId, Subscription>,
    by_channel: BTreeSet<(Sid, SubscriptionId)>,
}

impl Subscriptions {
    /// Inserts a subscription; replaces one with the same number.
    pub fn insert(&mut self, id: SubscriptionId, subscription: Subscription) {
        if let Some(before) = self.by_id.insert(id, subscription) {
            self.by_channel.remove(&(before.sid, id));
        }
        self.by_channel.insert((subscription.sid, id));
    }

    /// Finds a subscription by number.
    pub fn find(&self, id: SubscriptionId) -> Option<Subscription> {
        self.by_id.get(&id).copied()
    }

    /// Removes a subscription and returns it.
    pub fn remove(&mut self, id: SubscriptionId) -> Option<Subscription> {
        let subscription = self.by_id.remove(&id)?;
        self.by_channel.remove(&(subscription.sid, id));
        Some(subscription)
    }

    /// Removes all subscriptions of a channel and reports each.
    pub fn remove_channel(&mut self, sid: Sid, mut removed: impl FnMut(SubscriptionId)) {
        let first = (sid, SubscriptionId(0));
        while let Some(&(channel, id)) = self.by_channel.range(first..).next().filter(|(channel, _)| *channel == sid) {
            self.by_channel.remove(&(channel, id));
            self.by_id.remove(&id);
            removed(id);
        }
    }

    /// The number of subscriptions.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_a_channel_removes_its_subscriptions_only() {
        let mut subscriptions = Subscriptions::default();
        for (id, sid) in [(0, 1), (7, 1), (u32::MAX, 1), (3, 2), (4, 0)] {
            subscriptions.insert(SubscriptionId(id), Subscription { sid: Sid(sid), dbr: DbrType(6), count: 1 });
        }

        let mut ended = Vec::new();
        subscriptions.remove_channel(Sid(1), |id| ended.push(id.0));

        assert_eq!((ended, subscriptions.len()), (vec![0, 7, u32::MAX], 2));
        assert!(subscriptions.find(SubscriptionId(7)).is_none());
        assert!(subscriptions.remove(SubscriptionId(3)).is_some());
    }

    #[test]
    fn a_subscription_with_the_number_of_another_one_replaces_it() {
        let mut subscriptions = Subscriptions::default();
        let of = |sid| Subscription { sid: Sid(sid), dbr: DbrType(6), count: 1 };
        subscriptions.insert(SubscriptionId(3), of(1));

        subscriptions.insert(SubscriptionId(3), of(2));

        assert_eq!((subscriptions.len(), subscriptions.find(SubscriptionId(3))), (1, Some(of(2))));
        subscriptions.remove_channel(Sid(1), |id| panic!("{id} is of another channel"));
        assert_eq!(subscriptions.remove(SubscriptionId(3)), Some(of(2)));
        assert_eq!((subscriptions.remove(SubscriptionId(3)), subscriptions.len()), (None, 0));
        subscriptions.remove_channel(Sid(2), |id| panic!("{id} was removed"));
    }
}
