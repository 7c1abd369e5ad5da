//! Rights that change while their client is connected.
//!
//! rsrv tells of them, and then sends each subscription to what may not be read any more one update with ECA_NORDACCESS; when it
//! may be read again, the present value. Meanwhile such subscriptions are apart from the others, so that those cost nothing more.

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_ca::{Rights, Sid, SubscriptionId};
use fodo_data::EventMask;

use super::{Channel, Circuit};
use crate::limit;

/// How far a circuit has looked, since it was told that its rights may be others now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Checking {
    /// Nothing is awaited: the rights are known.
    Done,
    /// A turn, to look at the channels from this one on.
    Channels(usize),
    /// The answers to what was asked before.
    Answers,
    /// A turn, or room to tell these subscriptions; the last is next.
    Subscriptions(Vec<SubscriptionId>),
}

/// A subscription to what may not be read now.
pub(super) struct Denied {
    pub(super) sid: Sid,
    pub(super) dbr: DbrType,
    pub(super) count: u32,
    pub(super) mask: EventMask,
}

impl Circuit {
    /// The rights may be others now: they are looked at in this circuit's next turns, before anything is answered.
    pub(in super::super) fn check_rights(&mut self) {
        self.checking = Checking::Channels(0);
    }

    /// Whether the rights of the channels are known, as requests need it.
    pub(super) fn knows_rights(&self) -> bool {
        !matches!(self.checking, Checking::Channels(_))
    }

    /// Looks at channels and tells what changed, as many as a turn may; there is none before there is room for answers.
    pub(super) fn check_channels(&mut self) {
        let Checking::Channels(first) = self.checking else { return };
        let end = self.channels.len().min(first + limit::CHECKS);
        for index in first..end {
            let Some(Channel { pv, allowed }) = self.channels.get_mut(index).and_then(Option::as_mut) else { continue };
            let before = std::mem::replace(allowed, pv.allowed(&self.peer));
            let is_read_only = pv.facts().is_read_only;
            let (before, now) = (told(is_read_only, before), told(is_read_only, *allowed));
            if before != now {
                self.machine.rights_changed(Sid(index as u32), now);
            }
        }
        self.checking = if end == self.channels.len() { Checking::Answers } else { Checking::Channels(end) };
    }

    /// Ends and revives subscriptions, once all that was asked before is answered.
    pub(super) fn check_subscriptions(&mut self) {
        if self.checking == Checking::Answers && self.asked.is_empty() {
            self.checking = Checking::Subscriptions(self.turned());
        }
        for _ in 0..limit::CHECKS {
            if !self.may_answer() {
                return;
            }
            let Checking::Subscriptions(turned) = &mut self.checking else { return };
            let Some(id) = turned.pop() else {
                self.checking = Checking::Done;
                return;
            };
            match self.denied.remove(&id) {
                Some(Denied { sid, dbr, count, mask }) => self.subscribe(sid, dbr, count, mask, id),
                None => self.take_away(id),
            }
        }
    }

    /// The subscriptions that are not among those where they belong now; the newest first.
    fn turned(&self) -> Vec<SubscriptionId> {
        let may_read = |sid: Sid| self.channel(sid).is_some_and(|channel| channel.allowed.read);
        let denied =
            self.places.iter().filter(|&(_, &(watch, slot))| !may_read(self.watches[watch].subscriptions[slot].sid));
        let revived = self.denied.iter().filter(|(_, denied)| may_read(denied.sid));
        let mut turned: Vec<SubscriptionId> = denied.map(|(id, _)| *id).chain(revived.map(|(id, _)| *id)).collect();
        turned.sort_unstable_by_key(|id| std::cmp::Reverse(id.0));
        turned
    }

    /// A subscription that went well goes on as one that is denied. What it has not had is not sent.
    fn take_away(&mut self, id: SubscriptionId) {
        let Some(&(watch, slot)) = self.places.get(&id) else { return };
        let subscription = &self.watches[watch].subscriptions[slot];
        let (sid, dbr, count) = (subscription.sid, subscription.dbr, subscription.count);
        let mask = subscription.cursor.mask();
        self.cancel(id);
        self.deny(id, Denied { sid, dbr, count, mask });
    }

    /// Keeps a subscription apart, and says so.
    pub(super) fn deny(&mut self, id: SubscriptionId, denied: Denied) {
        // A status has nothing to convert, so this cannot fail.
        let _ = self.machine.update(denied.sid, denied.dbr, denied.count, id, Err(Eca::NORDACCESS));
        self.denied.insert(id, denied);
    }

    /// The subscription with that number is not kept apart any more.
    pub(super) fn forget_denied(&mut self, id: SubscriptionId) {
        // Mostly there is none, and a look for a number takes its time.
        if !self.denied.is_empty() {
            self.denied.remove(&id);
        }
    }
}

/// The rights that a client is told: those that it has, less what nobody may do.
pub(super) fn told(is_read_only: bool, allowed: Rights) -> Rights {
    Rights { write: allowed.write && !is_read_only, ..allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_the_rights_that_it_has_less_what_nobody_may_do() {
        for (is_read_only, read, write, expected) in [
            (false, true, true, (true, true)),
            (false, false, true, (false, true)),
            (true, true, true, (true, false)),
            (true, false, false, (false, false)),
        ] {
            let Rights { read, write } = told(is_read_only, Rights { read, write });
            assert_eq!((read, write), expected);
        }
    }
}
