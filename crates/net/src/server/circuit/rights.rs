//! Access rights that change while the client is connected.
//!
//! rsrv reports the change. It then sends one update with ECA_NORDACCESS to each subscription that may no longer be
//! read, and the current value once it may be read again. Such subscriptions are kept apart from the others, so that
//! the others incur no extra cost.

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_data::EventMask;
use fodo_engine::{Rights, Sid, SubscriptionId};

use super::{Circuit, ServedChannel};
use crate::limit;

/// Progress of checking access rights after they may have changed; the comment of each says what it waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RightsCheck {
    /// For nothing: the rights are known.
    Done,
    /// For a turn, to check the channels from this index on.
    Channels(usize),
    /// For the replies to earlier requests.
    Answers,
    /// For a turn, or free buffer space, to notify these subscriptions; the last one is next.
    Subscriptions(Vec<SubscriptionId>),
}

/// A subscription that may not be read now.
pub(super) struct Denied {
    pub(super) sid: Sid,
    pub(super) dbr: DbrType,
    pub(super) count: u32,
    pub(super) mask: EventMask,
}

impl Circuit {
    /// Access rights may have changed: the next turns of this circuit check them before any request is answered.
    pub(in super::super) fn check_rights(&mut self) {
        self.rights_check = RightsCheck::Channels(0);
    }

    /// Whether the rights of the channels are known, as requests require.
    pub(super) fn knows_rights(&self) -> bool {
        !matches!(self.rights_check, RightsCheck::Channels(_))
    }

    /// Checks channels and reports changes, as many per turn as allowed; none while the reply buffer is full.
    pub(super) fn check_channels(&mut self) {
        let RightsCheck::Channels(first) = self.rights_check else { return };
        let end = self.channels.len().min(first + limit::CHECKS);
        for index in first..end {
            let Some(ServedChannel { pv, allowed }) = self.channels.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            let before = std::mem::replace(allowed, pv.rights(&self.peer));
            let is_read_only = pv.facts().is_read_only;
            let (before, now) = (reported_rights(is_read_only, before), reported_rights(is_read_only, *allowed));
            if before != now {
                self.machine.rights_changed(Sid(index as u32), now);
            }
        }
        self.rights_check = if end == self.channels.len() { RightsCheck::Answers } else { RightsCheck::Channels(end) };
    }

    /// Denies and restores subscriptions, once all earlier requests are answered.
    pub(super) fn check_subscriptions(&mut self) {
        if self.rights_check == RightsCheck::Answers && self.queued_requests.is_empty() {
            self.rights_check = RightsCheck::Subscriptions(self.changed_subscriptions());
        }
        for _ in 0..limit::CHECKS {
            if !self.may_answer() {
                return;
            }
            let RightsCheck::Subscriptions(changed) = &mut self.rights_check else { return };
            let Some(id) = changed.pop() else {
                self.rights_check = RightsCheck::Done;
                return;
            };
            match self.denied.remove(&id) {
                Some(Denied { sid, dbr, count, mask }) => self.subscribe(sid, dbr, count, mask, id),
                None => self.deny_running(id),
            }
        }
    }

    /// The subscriptions whose read access has changed; the newest first.
    fn changed_subscriptions(&self) -> Vec<SubscriptionId> {
        let may_read = |sid: Sid| self.channel(sid).is_some_and(|channel| channel.allowed.read);
        let denied = self
            .subscription_slots
            .iter()
            .filter(|&(_, &(watch, slot))| !may_read(self.watches[watch].subscriptions[slot].sid));
        let revived = self.denied.iter().filter(|(_, denied)| may_read(denied.sid));
        let mut changed: Vec<SubscriptionId> = denied.map(|(id, _)| *id).chain(revived.map(|(id, _)| *id)).collect();
        changed.sort_unstable_by_key(|id| std::cmp::Reverse(id.0));
        changed
    }

    /// Turns a running subscription into a denied one. Its unsent updates are dropped.
    fn deny_running(&mut self, id: SubscriptionId) {
        let Some(&(watch, slot)) = self.subscription_slots.get(&id) else { return };
        let subscription = &self.watches[watch].subscriptions[slot];
        let (sid, dbr, count) = (subscription.sid, subscription.dbr, subscription.count);
        let mask = subscription.cursor.mask();
        self.cancel(id);
        self.deny(id, Denied { sid, dbr, count, mask });
    }

    /// Stores a denied subscription and notifies the client.
    pub(super) fn deny(&mut self, id: SubscriptionId, denied: Denied) {
        // An update with a status converts no value, so it cannot fail.
        let _ = self.machine.update(denied.sid, denied.dbr, denied.count, id, Err(Eca::NORDACCESS));
        self.denied.insert(id, denied);
    }

    /// Removes a subscription from the denied ones.
    pub(super) fn forget_denied(&mut self, id: SubscriptionId) {
        // Usually empty; skip the hash lookup.
        if !self.denied.is_empty() {
            self.denied.remove(&id);
        }
    }
}

/// The rights that are reported to a client: its own, without writing if no client may write the PV.
pub(super) fn reported_rights(is_read_only: bool, allowed: Rights) -> Rights {
    Rights { write: allowed.write && !is_read_only, ..allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reported_rights_exclude_writing_if_the_pv_is_read_only() {
        for (is_read_only, read, write, expected) in [
            (false, true, true, (true, true)),
            (false, false, true, (false, true)),
            (true, true, true, (true, false)),
            (true, false, false, (false, false)),
        ] {
            let Rights { read, write } = reported_rights(is_read_only, Rights { read, write });
            assert_eq!((read, write), expected);
        }
    }
}
