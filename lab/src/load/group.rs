//! The watching end of a load with a monitor group: one buffer for all subscriptions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use fodo_lock::Mutex;
use fodo_net::{Context, GroupOptions, GroupRow, GroupRows, MonitorGroup};

use super::double::{Misbehavior, Update, UpdateFault};
use super::tally::{DeliveryTally, Latencies, NumberEncoding, Sums};
use super::usage::Usage;
use super::worker::{LoadReply, LoadRequest, converse, name_of};

/// Maximum time for all first updates.
const FIRST_UPDATES_MAX: Duration = Duration::from_secs(60);
/// Interval at which the thread that takes rows looks whether it should end.
const TAKE_MAX: Duration = Duration::from_millis(50);

/// Subscribes and counts until the end of its input. A double falsifies what is counted.
pub fn watch(numbers: NumberEncoding, double: Option<Misbehavior>) -> std::io::Result<()> {
    let context = Context::from_env().map_err(std::io::Error::other)?;
    let mut watcher: Option<GroupWatcher> = None;
    converse(|request| {
        let reply = match (request, &watcher) {
            (LoadRequest::Watch { n_pvs, n_subscriptions }, _) => {
                let started = GroupWatcher::start(&context, (n_pvs, n_subscriptions), numbers, double);
                started.map(|started| {
                    watcher = Some(started);
                    LoadReply::Watching { n_subscriptions: u64::from(n_pvs) * u64::from(n_subscriptions) }
                })
            }
            (LoadRequest::Restart {}, Some(watcher)) => Ok(watcher.restart()),
            (LoadRequest::Count {}, Some(watcher)) => Ok(watcher.tallied()),
            (other, _) => Err(format!("this client does not support {other:?} now")),
        };
        reply.unwrap_or_else(|why| LoadReply::Failed { why })
    })
}

/// A group, and the thread that takes its rows.
struct GroupWatcher {
    counted: Arc<Mutex<GroupTally>>,
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The tallies of all subscriptions; locked once for all rows that were taken together.
struct GroupTally {
    numbers: NumberEncoding,
    n_subscriptions: u32,
    subscriptions: Vec<(UpdateFault, DeliveryTally)>,
    latencies: Latencies,
    n_begun: usize,
    merged: u64,
}

impl GroupTally {
    fn add(&mut self, rows: &[GroupRow], at: Duration, now_unix_ns: i128) {
        let GroupTally { numbers, n_subscriptions, subscriptions, latencies, n_begun, merged } = self;
        for row in rows {
            let Some((fault, tally)) = subscriptions.get_mut(row.index as usize) else { continue };
            *merged += u64::from(row.merged);
            let pv = row.index / (*n_subscriptions).max(1);
            let stamp_unix_ns = i128::from(row.unix_s) * 1_000_000_000 + i128::from(row.nanos);
            let late_ns = u64::try_from(now_unix_ns - stamp_unix_ns).unwrap_or(0);
            fault.pass(Update { value: row.value, latency: Duration::from_nanos(late_ns) }, &mut |update| {
                if tally.has_begun() {
                    latencies.add(update.latency);
                } else {
                    *n_begun += 1;
                }
                tally.add(numbers.decode(pv, update.value), at);
            });
        }
    }
}

impl GroupWatcher {
    fn start(
        context: &Context,
        (n_pvs, n_subscriptions): (u32, u32),
        numbers: NumberEncoding,
        double: Option<Misbehavior>,
    ) -> Result<GroupWatcher, String> {
        let n = u64::from(n_pvs) * u64::from(n_subscriptions);
        let subscriptions: Vec<(UpdateFault, DeliveryTally)> =
            (0..n).map(|index| (UpdateFault::new(double, index), DeliveryTally::default())).collect();
        let n = subscriptions.len();
        let tally = GroupTally {
            numbers,
            n_subscriptions,
            subscriptions,
            latencies: Latencies::default(),
            n_begun: 0,
            merged: 0,
        };
        let group = context.monitor_group(GroupOptions::default());
        for pv in 0..n_pvs {
            let channel = context.channel(&name_of(pv)).map_err(|error| error.to_string())?;
            for _ in 0..n_subscriptions {
                group.add_channel(&channel).map_err(|error| error.to_string())?;
            }
        }
        let (counted, is_ended) = (Arc::new(Mutex::new(tally)), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (counted, is_ended) = (counted.clone(), is_ended.clone());
            std::thread::spawn(move || take_rows(&group, &counted, &is_ended))
        };
        let watcher = GroupWatcher { counted, is_ended, thread: Some(thread) };
        let deadline = Instant::now() + FIRST_UPDATES_MAX;
        loop {
            let n_begun = watcher.counted.lock().n_begun;
            if n_begun >= n {
                return Ok(watcher);
            }
            if Instant::now() > deadline {
                return Err(format!("only {n_begun} of {n} first updates were received"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn restart(&self) -> LoadReply {
        let mut counted = self.counted.lock();
        counted.subscriptions.iter_mut().for_each(|(_, tally)| tally.restart());
        counted.latencies = Latencies::default();
        counted.merged = 0;
        LoadReply::Restarted {}
    }

    fn tallied(&self) -> LoadReply {
        let counted = self.counted.lock();
        let mut sums = Sums::default();
        counted.subscriptions.iter().for_each(|(_, tally)| sums.add(tally.sums()));
        let (merged, latencies) = (counted.merged, counted.latencies.counts());
        let received = sums.received + merged;
        LoadReply::Tallied { sums, merged, received, latencies, usage: Usage::of_this_process() }
    }
}

impl Drop for GroupWatcher {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has printed its message.
            let _ = thread.join();
        }
    }
}

fn take_rows(group: &MonitorGroup, counted: &Mutex<GroupTally>, is_ended: &AtomicBool) {
    let start = Instant::now();
    let mut taken = GroupRows::default();
    while !is_ended.load(Ordering::Acquire) {
        if group.take(&mut taken, TAKE_MAX) && !taken.rows.is_empty() {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            counted.lock().add(&taken.rows, start.elapsed(), now.as_nanos() as i128);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(n: usize) -> GroupTally {
        let subscriptions = (0..n).map(|_| (UpdateFault::new(None, 0), DeliveryTally::default())).collect();
        let numbers = NumberEncoding::Plain;
        GroupTally {
            numbers,
            n_subscriptions: 1,
            subscriptions,
            latencies: Latencies::default(),
            n_begun: 0,
            merged: 0,
        }
    }

    fn row(index: u32, value: f64, merged: u32) -> GroupRow {
        GroupRow { value, unix_s: 100, nanos: 0, index, merged, severity: 0, status: 0 }
    }

    #[test]
    fn rows_are_counted_by_subscription_with_merges_and_latency() {
        let mut tally = tally(2);

        tally.add(&[row(0, 0.0, 0), row(1, 0.0, 0), row(0, 1.0, 0), row(0, 3.0, 1)], Duration::ZERO, 100_000_002_000);

        let sums = |index: usize| tally.subscriptions[index].1.sums().clone();
        assert_eq!((tally.n_begun, tally.merged), (2, 1));
        assert_eq!((sums(0).received, sums(0).missing, sums(1).received), (2, 1, 0));
        assert_eq!(tally.latencies.median(), Some(2000.0));
    }

    #[test]
    fn a_dropped_a_repeated_and_a_swapped_row_are_distinguished() {
        let mut tally = tally(3);
        let rows = |index: u32, numbers: [f64; 4]| numbers.map(|number| row(index, number, 0));

        tally.add(&rows(0, [1.0, 2.0, 4.0, 5.0]), Duration::ZERO, 0);
        tally.add(&rows(1, [1.0, 2.0, 2.0, 3.0]), Duration::ZERO, 0);
        tally.add(&rows(2, [1.0, 3.0, 2.0, 4.0]), Duration::ZERO, 0);

        let sums = |index: usize| tally.subscriptions[index].1.sums().clone();
        assert_eq!(sums(0), Sums { received: 3, missing: 1, ..Sums::default() });
        assert_eq!(sums(1), Sums { received: 3, duplicates: 1, ..Sums::default() });
        assert_eq!(sums(2), Sums { received: 3, missing: 1, out_of_order: 1, ..Sums::default() });
    }
}
