//! Many subscriptions to features that change on schedule: each change must reach each of them.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_clu::client::{CluRequest, RequestOutcome};
use fodo_clu::script::CluItem;
use fodo_lock::{Condvar, Mutex};
use fodo_net::clu::{CluConnection, CluMonitor, CluUpdate};
use serde::{Deserialize, Serialize};

use super::connection::refused;
use crate::limit::{CLU_FIRST_UPDATE_MAX, CLU_LAST_UPDATE_MAX};
use crate::load::tally::{DeliveryTally, Latencies, Sums};
use crate::load::usage::Usage;

/// The size of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionLoad {
    /// Number of subscriptions.
    pub n_subscriptions: usize,
    /// How often all features change.
    pub n_changes: u64,
    /// Time between two changes.
    pub period: Duration,
}

/// What the subscriptions received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionSums {
    /// Updates that should have been received: changes times subscriptions.
    pub produced: u64,
    /// Sums over all subscriptions. `duplicates` are reports without a change, which a CLU sends so that its clients see that
    /// it is alive; `wrong` are reports whose features have different values.
    pub sums: Sums,
    /// Updates that the client replaced by later ones before its listeners took them.
    pub merged: u64,
    /// Duration of the changes, in seconds.
    pub seconds: f64,
    /// From the scheduled time of each change: pairs of nanoseconds and count.
    pub latencies: Vec<(u64, u64)>,
    /// What this process used during the changes.
    pub usage: Usage,
}

/// What all subscriptions have received.
#[derive(Debug, Default)]
struct ReceivedUpdates {
    tallies: Vec<DeliveryTally>,
    /// The scheduled time of the first change, once it is known.
    start: Option<Instant>,
    latencies: Latencies,
    /// Subscriptions that have their first update.
    n_begun: usize,
    /// Subscriptions that have the last change.
    n_complete: usize,
}

#[derive(Debug, Default)]
struct SubscriptionBook {
    updates: Mutex<ReceivedUpdates>,
    is_progress: Condvar,
}

/// The number of the change that a report contains; `None` if its features differ.
fn number_of(values: &[Option<f64>]) -> Option<u64> {
    let first = values.first().copied().flatten()?;
    let is_same = values.iter().all(|value| *value == Some(first));
    (is_same && first >= 0.0 && first.fract() == 0.0).then_some(first as u64)
}

impl ReceivedUpdates {
    fn add(&mut self, subscription: usize, number: Option<u64>, load: &SubscriptionLoad) {
        let Some(tally) = self.tallies.get_mut(subscription) else { return };
        let before = tally.last();
        let since = self.start.map_or(Duration::ZERO, |start| start.elapsed());
        tally.add(number, since);
        self.n_begun += usize::from(before.is_none() && tally.has_begun());
        let Some(number) = tally.last().filter(|number| *number > 0 && before.is_some_and(|before| before < *number))
        else {
            return;
        };
        let due = load.period * u32::try_from(number - 1).unwrap_or(u32::MAX);
        self.latencies.add(since.saturating_sub(due));
        self.n_complete += usize::from(number == load.n_changes);
    }
}

impl SubscriptionBook {
    /// Waits until `is_done`, at most until `deadline`; returns whether it is.
    fn wait(&self, deadline: Instant, is_done: impl Fn(&ReceivedUpdates) -> bool) -> bool {
        let mut updates = self.updates.lock();
        while !is_done(&updates) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // It may also return early: the loop checks both again.
            let _ = self.is_progress.wait_for(&mut updates, left);
        }
        true
    }
}

impl SubscriptionLoad {
    /// Subscribes to the first features of `objects`, changes all of them on schedule by the expression that `change`
    /// returns for a number, and counts. Numbers start at 0, the value before.
    pub fn run(
        &self,
        connection: &CluConnection,
        objects: &[String],
        change: impl Fn(u64) -> String,
    ) -> io::Result<SubscriptionSums> {
        let book = Arc::new(SubscriptionBook::default());
        book.updates.lock().tallies = vec![DeliveryTally::default(); self.n_subscriptions];
        execute(connection, &change(0))?;
        let monitors = self.subscribe(connection, objects, &book)?;
        if !book.wait(Instant::now() + CLU_FIRST_UPDATE_MAX, |updates| updates.n_begun == self.n_subscriptions) {
            let n = book.updates.lock().n_begun;
            return Err(io::Error::other(format!("{n} of {} first updates were received", self.n_subscriptions)));
        }
        let before = Usage::of_this_process();
        let start = Instant::now() + self.period;
        book.updates.lock().start = Some(start);
        for number in 1..=self.n_changes {
            let due = start + self.period * u32::try_from(number - 1).unwrap_or(u32::MAX);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            execute(connection, &change(number))?;
        }
        book.wait(Instant::now() + CLU_LAST_UPDATE_MAX, |updates| updates.n_complete == self.n_subscriptions);
        let seconds = (start.elapsed() + self.period).as_secs_f64();
        let usage = Usage::of_this_process().since(before);
        let updates = book.updates.lock();
        let mut sums = Sums::default();
        updates.tallies.iter().for_each(|tally| sums.add(tally.sums()));
        let produced = self.n_changes * self.n_subscriptions as u64;
        let latencies = updates.latencies.counts();
        drop(updates);
        drop(monitors);
        let merged = connection.delivery_counts().merged;
        Ok(SubscriptionSums { produced, sums, merged, seconds, latencies, usage })
    }

    fn subscribe(
        self,
        connection: &CluConnection,
        objects: &[String],
        book: &Arc<SubscriptionBook>,
    ) -> io::Result<Vec<CluMonitor>> {
        let items: Vec<CluItem> = objects.iter().filter_map(|object| CluItem::feature(object, 0)).collect();
        let monitor = |subscription: usize| {
            let book = Arc::clone(book);
            let listener = move |update: CluUpdate| {
                let number = match update {
                    CluUpdate::Values { first: 0, values } => {
                        let values = values.iter().map(|value| value.as_ref().and_then(|value| value.to_f64().ok()));
                        number_of(&values.collect::<Vec<_>>())
                    }
                    _ => None,
                };
                book.updates.lock().add(subscription, number, &self);
                book.is_progress.notify_one();
            };
            connection.subscribe(items.clone(), listener).map_err(refused)
        };
        (0..self.n_subscriptions).map(monitor).collect()
    }
}

/// Evaluates an expression that returns `true`.
fn execute(connection: &CluConnection, script: &str) -> io::Result<()> {
    match connection.request(CluRequest::ExecuteRepeatedly(script)).map_err(refused)? {
        RequestOutcome::Answered(_) => Ok(()),
        other => Err(io::Error::other(format!("{script}: {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> SubscriptionLoad {
        SubscriptionLoad { n_subscriptions: 2, n_changes: 3, period: Duration::from_secs(1) }
    }

    fn received(reports: &[(usize, Option<u64>)]) -> ReceivedUpdates {
        let mut updates = ReceivedUpdates { tallies: vec![DeliveryTally::default(); 2], ..ReceivedUpdates::default() };
        for (subscription, number) in reports {
            updates.start = updates.start.or((updates.n_begun == 2).then(Instant::now));
            updates.add(*subscription, *number, &load());
        }
        updates
    }

    #[test]
    fn a_report_with_different_values_has_no_number() {
        assert_eq!(number_of(&[Some(3.0), Some(3.0)]), Some(3));
        assert_eq!(number_of(&[Some(3.0), Some(2.0)]), None);
        assert_eq!(number_of(&[Some(3.0), None]), None);
        assert_eq!(number_of(&[]), None);
    }

    #[test]
    fn each_change_of_each_subscription_is_counted_once() {
        let begun = [(0, Some(0)), (1, Some(0))];
        let all =
            received(&[&begun[..], &[(0, Some(1)), (1, Some(1)), (0, Some(2)), (0, Some(2)), (0, Some(3))]].concat());
        let torn = received(&[&begun[..], &[(1, Some(1)), (1, None), (1, Some(3))]].concat());

        let sums = all.tallies[0].sums();
        assert_eq!((all.n_begun, all.n_complete), (2, 1));
        assert_eq!((sums.received, sums.duplicates, sums.missing), (4, 1, 0));
        assert_eq!(all.latencies.counts().iter().map(|(_, n)| n).sum::<u64>(), 4);
        let sums = torn.tallies[1].sums();
        assert_eq!((sums.received, sums.wrong, sums.missing, torn.n_complete), (3, 1, 1, 1));
    }
}
