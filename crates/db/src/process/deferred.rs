//! Work that is deferred until the current chain is done, with a bound for each kind.
//!
//! Follows are bounded by the number of links, since a pending follow is not queued again. Events and puts through
//! channels have a limit. Of all other kinds, a record has one at a time.

use std::collections::{HashSet, VecDeque};

use fodo_data::{Text, Value};

use crate::limit::{EVENTS_PENDING_MAX, PUTS_PENDING_MAX};
use crate::link::{LinkError, TriggerCondition};
use crate::reference::PutId;

/// Receives the completion of all processing that it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletionWaiter {
    /// A client's put.
    Put(PutId),
    /// A record that wrote through a channel or has Async Soft Channel; the record chose the number.
    Record { record: u32, number: u8 },
}

/// Work that is deferred until the current chain is done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Deferred {
    /// The record is done: start its next queued request.
    StartNextRequest { record: u32 },
    /// RPRO: the record received a put while it was active.
    Reprocess { record: u32 },
    /// The target of a CP or CPP link changed.
    Follow { record: u32, when: TriggerCondition },
    /// An output through a channel (CA) to a record of this database; `waiter` waits for all processing that it starts.
    Put { record: u32, field: u16, value: Value, waiter: Option<CompletionWaiter> },
    /// All processing that a record started as a [`CompletionWaiter`] has ended.
    PutDone { record: u32, number: u8 },
    /// Completes at once a record that waits.
    Abort { record: u32 },
    /// Async Soft Channel processes the record that its link reads.
    Notify { from: u32, to: u32 },
    /// An event was posted: process the records whose SCAN is Event and whose EVNT names it.
    Event { name: Text },
    /// Processes this record because of a posted event.
    ByEvent { record: u32 },
    /// Completes a record that waits only for the end of the current chain.
    Complete { record: u32 },
    /// Starts the interval of [`crate::record::contract::Record::collect_interval_s`].
    DelayPosts { record: u32 },
}

/// Deferred work in the order of execution.
#[derive(Debug, Default)]
pub(crate) struct DeferredQueue {
    queue: VecDeque<Deferred>,
    follows: HashSet<(u32, TriggerCondition)>,
    n_events: usize,
    /// Whether events were dropped since the queue last had none.
    are_events_dropped: bool,
    n_puts: usize,
}

impl DeferredQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        *self = DeferredQueue::default();
    }

    /// Queues work of a kind of which a record has one at a time.
    pub(crate) fn push(&mut self, deferred: Deferred) {
        self.queue.push_back(deferred);
    }

    /// Queues the processing of a record that follows a change, unless it is pending already.
    pub(crate) fn follow(&mut self, record: u32, when: TriggerCondition) {
        if self.follows.insert((record, when)) {
            self.queue.push_back(Deferred::Follow { record, when });
        }
    }

    /// Queues a put through a channel.
    pub(crate) fn put(
        &mut self,
        record: u32,
        field: u16,
        value: Value,
        waiter: Option<CompletionWaiter>,
    ) -> Result<(), LinkError> {
        if self.n_puts >= PUTS_PENDING_MAX {
            return Err(LinkError);
        }
        self.n_puts += 1;
        self.queue.push_back(Deferred::Put { record, field, value, waiter });
        Ok(())
    }

    /// Queues an event. True: the event is dropped because too many are pending, and this is the first one to report.
    pub(crate) fn event(&mut self, name: Text) -> bool {
        if self.n_events >= EVENTS_PENDING_MAX {
            return !std::mem::replace(&mut self.are_events_dropped, true);
        }
        self.are_events_dropped &= self.n_events > 0;
        self.n_events += 1;
        self.queue.push_back(Deferred::Event { name });
        false
    }

    /// Drops the events that are pending.
    pub(crate) fn drop_events(&mut self) {
        self.queue.retain(|deferred| !matches!(deferred, Deferred::Event { .. }));
        self.n_events = 0;
    }

    /// Takes the first record that waits only for the end of the current chain.
    pub(crate) fn take_completion(&mut self) -> Option<u32> {
        let (index, record) = self.queue.iter().enumerate().find_map(|(index, deferred)| match deferred {
            Deferred::Complete { record } => Some((index, *record)),
            _ => None,
        })?;
        self.queue.remove(index);
        Some(record)
    }

    /// Queues the records of an event before all other work, in their order.
    pub(crate) fn scan_by_event(&mut self, records: Vec<u32>) {
        for record in records.into_iter().rev() {
            self.queue.push_front(Deferred::ByEvent { record });
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Deferred> {
        let deferred = self.queue.pop_front()?;
        match &deferred {
            Deferred::Follow { record, when } => {
                self.follows.remove(&(*record, *when));
            }
            Deferred::Event { .. } => self.n_events -= 1,
            Deferred::Put { .. } => self.n_puts -= 1,
            _ => {}
        }
        Some(deferred)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_is_pending_at_most_once_and_can_be_queued_again_after_it_is_popped() {
        let mut queue = DeferredQueue::default();
        let follow = Deferred::Follow { record: 1, when: TriggerCondition::Always };

        queue.follow(1, TriggerCondition::Always);
        queue.push(Deferred::StartNextRequest { record: 2 });
        queue.follow(1, TriggerCondition::Always);
        assert_eq!(queue.pop(), Some(follow.clone()));
        queue.follow(1, TriggerCondition::Always);

        let rest: Vec<Deferred> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, [Deferred::StartNextRequest { record: 2 }, follow]);
    }

    #[test]
    fn events_above_the_limit_are_dropped_and_only_the_first_drop_is_reported() {
        let mut queue = DeferredQueue::default();
        let mut n_reports = 0;
        for _ in 0..2 {
            for _ in 0..EVENTS_PENDING_MAX {
                assert!(!queue.event("ring".into()));
            }
            n_reports += usize::from(queue.event("ring".into()));
            queue.pop();
            assert!(!queue.event("ring".into()));
            n_reports += usize::from(queue.event("ring".into()));
            let n_events = std::iter::from_fn(|| queue.pop()).count();
            assert_eq!(n_events, EVENTS_PENDING_MAX);
        }

        assert_eq!(n_reports, 2);
    }

    #[test]
    fn deferred_puts_above_the_limit_fail_with_a_link_error() {
        let mut queue = DeferredQueue::default();
        for _ in 0..PUTS_PENDING_MAX {
            assert_eq!(queue.put(0, 0, Value::from(1.0), None), Ok(()));
        }

        assert_eq!(queue.put(0, 0, Value::from(1.0), None), Err(LinkError));
        queue.pop();
        assert_eq!(queue.put(0, 0, Value::from(1.0), None), Ok(()));
    }
}
