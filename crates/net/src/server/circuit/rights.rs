//! Access rights that change while the client is connected.

use fodo_engine::{Rights, Sid};

use super::protocol::{ChannelPv, CircuitProtocol};
use super::{Circuit, ServedChannel};
use crate::limit;

/// Progress of checking access rights after they may have changed; the comment of each says what it waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RightsCheck<K> {
    /// For nothing: the rights are known.
    Done,
    /// For a turn, to check the channels from this index on.
    Channels(usize),
    /// For the replies to earlier requests.
    Answers,
    /// For a turn, or free buffer space, to notify these subscriptions; the last one is next.
    Subscriptions(Vec<K>),
}

impl<K> RightsCheck<K> {
    pub(super) fn is_done(&self) -> bool {
        matches!(self, RightsCheck::Done)
    }
}

impl<P: CircuitProtocol> Circuit<P> {
    /// Access rights may have changed: the next turns of this circuit check them before any request is answered.
    pub(crate) fn check_rights(&mut self) {
        self.rights_check = RightsCheck::Channels(0);
    }

    /// Whether the rights of the channels are known, as requests require.
    pub(super) fn knows_rights(&self) -> bool {
        !matches!(self.rights_check, RightsCheck::Channels(_))
    }

    /// Checks channels, closes those of closed PVs and reports changes, as many per turn as allowed; none while the reply buffer is full.
    pub(super) fn check_channels(&mut self) {
        let RightsCheck::Channels(first) = self.rights_check else { return };
        let end = self.channels.len().min(first + limit::CHECKS);
        for index in first..end {
            let Some(ServedChannel { pv, allowed, .. }) = self.channels.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            if pv.is_closed() {
                P::close_channel(&mut self.machine, Sid(index as u32), &mut self.events);
                continue;
            }
            let before = std::mem::replace(allowed, pv.rights(&self.peer));
            let is_read_only = pv.is_read_only();
            let (before, now) = (reported_rights(is_read_only, before), reported_rights(is_read_only, *allowed));
            if before != now {
                P::rights_changed(&mut self.machine, Sid(index as u32), is_read_only, *allowed);
            }
        }
        self.take_events();
        self.rights_check = if end == self.channels.len() { RightsCheck::Answers } else { RightsCheck::Channels(end) };
    }

    /// Denies and restores subscriptions, once all earlier requests are answered.
    pub(super) fn check_subscriptions(&mut self) {
        if matches!(self.rights_check, RightsCheck::Answers) && self.queued_requests.is_empty() {
            self.rights_check = RightsCheck::Subscriptions(P::changed_subscriptions(self));
        }
        for _ in 0..limit::CHECKS {
            if !self.may_answer() {
                return;
            }
            let RightsCheck::Subscriptions(changed) = &mut self.rights_check else { return };
            let Some(key) = changed.pop() else {
                self.rights_check = RightsCheck::Done;
                return;
            };
            P::change_subscription(self, key);
        }
    }

    /// Whether the client may read this channel now.
    pub(crate) fn may_read_channel(&self, sid: Sid) -> bool {
        self.channel(sid).is_some_and(|channel| channel.allowed.read)
    }

    /// The running subscriptions that the client may not read any more.
    pub(crate) fn unreadable_subscriptions(&self) -> impl Iterator<Item = P::SubscriptionKey> {
        let slots = self.subscription_slots.iter();
        slots
            .filter(|&(_, &(watch, slot))| !self.may_read_channel(self.watches[watch].subscriptions[slot].sid))
            .map(|(key, _)| *key)
    }
}

/// The rights that are reported to a client: its own, without writing if no client may write the PV.
pub(crate) fn reported_rights(is_read_only: bool, allowed: Rights) -> Rights {
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
