//! The calls of listeners: a queue, and the thread that empties it.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fodo_clu::client::{Availability, CluSubscription};
use fodo_data::Scalar;
use fodo_lock::{Condvar, Mutex};

use crate::limit;

/// What a subscription reports. See the example of [`CluConnection::subscribe`](super::CluConnection::subscribe).
#[derive(Clone, Debug, PartialEq)]
pub enum CluUpdate {
    /// The values of consecutive items, whether or not they changed.
    Values {
        /// The index of the item of the first value.
        first: usize,
        /// The values; `None` is `nil`.
        values: Vec<Option<Scalar>>,
    },
    /// The CLU does not report an item, although it is available: it does not know the item, the value is too long for a
    /// report, or registrations fail repeatedly. The client registers it again after 5 or 45 s.
    Missing {
        /// The index of the item.
        index: usize,
    },
}

impl CluUpdate {
    /// Whether a listener that receives `newer` does not need this update.
    fn is_replaced_by(&self, newer: &CluUpdate) -> bool {
        match (self, newer) {
            (CluUpdate::Values { first, values }, CluUpdate::Values { first: newer, values: newer_values }) => {
                first == newer && values.len() == newer_values.len()
            }
            (CluUpdate::Missing { index }, CluUpdate::Missing { index: newer }) => index == newer,
            _ => false,
        }
    }
}

/// The calls of the listeners of a connection. See the example of [`CluConnection`](super::CluConnection).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CluDeliveryCounts {
    /// Calls that wait.
    pub waiting: u64,
    /// Calls that were made.
    pub delivered: u64,
    /// Updates that a later one with the same items replaced, because the listeners were too slow.
    pub merged: u64,
    /// Updates whose subscription had ended.
    pub ended: u64,
}

pub(super) type UpdateListener = Box<dyn FnMut(CluUpdate) + Send>;
pub(super) type AvailabilityListener = Box<dyn FnMut(Availability) + Send>;

#[derive(Debug)]
enum ListenerCall {
    Update(CluSubscription, CluUpdate),
    Availability(Availability),
}

/// The listeners of a connection and the calls that wait for its thread.
#[derive(Default)]
pub(super) struct Deliveries {
    line: Mutex<CallLine>,
    changed: Condvar,
}

#[derive(Default)]
struct CallLine {
    /// At most [`limit::CLU_DELIVERIES`], with those that replace no other: one for each registration and unknown item.
    waiting: VecDeque<ListenerCall>,
    /// `None` while the listener is being called.
    by_subscription: HashMap<CluSubscription, Option<UpdateListener>>,
    of_availability: Vec<AvailabilityListener>,
    has_thread: bool,
    is_ended: bool,
    counts: CluDeliveryCounts,
}

impl Deliveries {
    pub(super) fn add(&self, subscription: CluSubscription, listener: UpdateListener) {
        self.line.lock().by_subscription.insert(subscription, Some(listener));
    }

    /// Afterwards the listener is not called any more, except for a call that runs.
    pub(super) fn remove(&self, subscription: CluSubscription) {
        let removed = self.line.lock().by_subscription.remove(&subscription);
        // Code of the user, which runs without the lock.
        drop(removed);
    }

    pub(super) fn add_of_availability(&self, listener: AvailabilityListener) {
        let mut line = self.line.lock();
        if !line.is_ended {
            line.of_availability.push(listener);
        }
    }

    pub(super) fn update(self: &Arc<Self>, subscription: CluSubscription, update: CluUpdate) {
        self.push(ListenerCall::Update(subscription, update));
    }

    pub(super) fn availability(self: &Arc<Self>, availability: Availability) {
        self.push(ListenerCall::Availability(availability));
    }

    fn push(self: &Arc<Self>, delivery: ListenerCall) {
        let mut line = self.line.lock();
        if line.is_ended || (matches!(delivery, ListenerCall::Availability(_)) && line.of_availability.is_empty()) {
            return;
        }
        line.push(delivery);
        if !line.has_thread {
            let running = self.clone();
            let thread = std::thread::Builder::new().name("fodo-clu".into());
            // If the system provides no thread now, the calls wait until it does at a later one.
            line.has_thread = thread.spawn(move || running.run()).is_ok();
        }
        drop(line);
        self.changed.notify_one();
    }

    /// Ends the thread after a call that runs.
    pub(super) fn end(&self) {
        let mut line = self.line.lock();
        line.is_ended = true;
        line.counts.ended += line.waiting.len() as u64;
        line.waiting.clear();
        let removed = (std::mem::take(&mut line.by_subscription), std::mem::take(&mut line.of_availability));
        drop(line);
        self.changed.notify_all();
        drop(removed);
    }

    pub(super) fn counts(&self) -> CluDeliveryCounts {
        let line = self.line.lock();
        CluDeliveryCounts { waiting: line.waiting.len() as u64, ..line.counts }
    }

    fn run(&self) {
        let mut line = self.line.lock();
        while !line.is_ended {
            let Some(delivery) = line.waiting.pop_front() else {
                self.changed.wait(&mut line);
                continue;
            };
            match delivery {
                ListenerCall::Update(subscription, update) => {
                    let Some(mut listener) = line.by_subscription.get_mut(&subscription).and_then(Option::take) else {
                        line.counts.ended += 1;
                        continue;
                    };
                    line.counts.delivered += 1;
                    drop(line);
                    call(&mut listener, update);
                    line = self.line.lock();
                    match line.by_subscription.get_mut(&subscription) {
                        Some(place) => *place = Some(listener),
                        None => {
                            drop(line);
                            drop(listener);
                            line = self.line.lock();
                        }
                    }
                }
                ListenerCall::Availability(availability) => {
                    let mut listeners = std::mem::take(&mut line.of_availability);
                    line.counts.delivered += listeners.len() as u64;
                    drop(line);
                    listeners.iter_mut().for_each(|listener| call(listener, availability));
                    line = self.line.lock();
                    if line.is_ended {
                        drop(line);
                        drop(listeners);
                        return;
                    }
                    listeners.append(&mut line.of_availability);
                    line.of_availability = listeners;
                }
            }
        }
    }
}

fn call<T>(listener: &mut Box<dyn FnMut(T) + Send>, with: T) {
    // The panic hook has reported it. The other listeners continue.
    let _ = catch_unwind(AssertUnwindSafe(|| listener(with)));
}

impl CallLine {
    fn push(&mut self, delivery: ListenerCall) {
        if self.waiting.len() >= limit::CLU_DELIVERIES
            && let Some(index) = self.waiting.iter().position(|older| older.is_replaced_by(&delivery))
        {
            self.waiting.remove(index);
            self.counts.merged += 1;
        }
        self.waiting.push_back(delivery);
    }
}

impl ListenerCall {
    fn is_replaced_by(&self, newer: &ListenerCall) -> bool {
        match (self, newer) {
            (ListenerCall::Update(subscription, update), ListenerCall::Update(newer, newer_update)) => {
                subscription == newer && update.is_replaced_by(newer_update)
            }
            (ListenerCall::Availability(_), ListenerCall::Availability(_)) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use fodo_clu::cipher::CipherKey;
    use fodo_clu::client::{ClientOutput, CluClient, CluClientConfig};
    use fodo_data::Now;

    use super::*;

    #[test]
    fn a_full_queue_merges_calls_and_counts_them() {
        let mut line = CallLine::default();

        for _ in 0..limit::CLU_DELIVERIES {
            line.push(ListenerCall::Availability(Availability::Available));
        }
        line.push(ListenerCall::Availability(Availability::Unavailable));

        assert_eq!((line.waiting.len(), line.counts.merged), (limit::CLU_DELIVERIES, 1));
        assert!(matches!(line.waiting.back(), Some(ListenerCall::Availability(Availability::Unavailable))));
    }

    #[test]
    fn a_full_queue_delivers_the_newest_values_last() {
        let mut line = CallLine::default();
        let subscription = subscription();
        let update = |value: f64| CluUpdate::Values { first: 0, values: vec![Some(Scalar::F64(value))] };
        let n_updates = limit::CLU_DELIVERIES + 3;

        for value in 0..n_updates {
            line.push(ListenerCall::Update(subscription, update(value as f64)));
        }

        let delivered: Vec<CluUpdate> = line.waiting.into_iter().filter_map(values_of).collect();
        let expected: Vec<CluUpdate> = (3..n_updates).map(|value| update(value as f64)).collect();
        assert_eq!(delivered, expected);
        assert_eq!(line.counts.merged, 3);
    }

    fn values_of(call: ListenerCall) -> Option<CluUpdate> {
        match call {
            ListenerCall::Update(_, update) => Some(update),
            ListenerCall::Availability(_) => None,
        }
    }

    fn subscription() -> CluSubscription {
        let key = CipherKey::new([1; 16], [2; 16]);
        let config = CluClientConfig::new(key, ([127, 0, 0, 1], 1).into(), [127, 0, 0, 1].into(), 1);
        let now = Now::for_test();
        let mut client = CluClient::new(config, Box::new(|bytes| bytes.fill(7)), now);
        client.subscribe(Vec::new(), now, &mut ClientOutput::default()).expect("a new client accepts a subscription")
    }

    #[test]
    fn only_values_of_the_same_items_replace_an_update() {
        let values = |first| CluUpdate::Values { first, values: vec![None] };

        assert!(values(3).is_replaced_by(&values(3)));
        assert!(!values(3).is_replaced_by(&values(4)));
        assert!(!values(3).is_replaced_by(&CluUpdate::Values { first: 3, values: Vec::new() }), "another part");
        assert!(CluUpdate::Missing { index: 1 }.is_replaced_by(&CluUpdate::Missing { index: 1 }));
        assert!(!CluUpdate::Missing { index: 3 }.is_replaced_by(&values(3)));
    }
}
