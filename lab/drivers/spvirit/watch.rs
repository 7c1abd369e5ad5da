//! The watcher of a load.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use spvirit_client::{MonitorHandle, MonitorOptions, MonitorUpdate};
use spvirit_codec::spvd_decode::DecodedValue;

use crate::circuit::{client, field, number};
use crate::subscribe::subscribe;

/// The maximum time for all first updates.
const FIRST_UPDATES_MAX: Duration = Duration::from_secs(30);

const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// The updates that a subscription requests before the server merges; spvirit can request them with flow control only.
const QUEUE_SIZE: u32 = 100;

/// Counts the updates of one subscription, as `DeliveryTally` of `lab/src/load/tally.rs`.
#[derive(Default)]
struct Tally {
    pv: u32,
    last: Option<u64>,
    last_at: Option<Instant>,
    /// An update has only the fields that have changed.
    value: f64,
    seconds: f64,
    nanoseconds: f64,
    sums: Sums,
}

#[derive(Default)]
struct Sums {
    received: u64,
    missing: u64,
    duplicates: u64,
    out_of_order: u64,
    wrong: u64,
    gap: Duration,
}

/// All subscriptions.
#[derive(Default)]
struct Counts {
    tallies: Vec<Tally>,
    latencies: BTreeMap<u64, u64>,
}

pub struct Watcher {
    is_checked: bool,
    counts: Arc<Mutex<Counts>>,
    monitors: Vec<MonitorHandle>,
}

impl Watcher {
    pub fn new(is_checked: bool) -> Watcher {
        Watcher { is_checked, counts: Arc::default(), monitors: Vec::new() }
    }

    pub async fn reply(&mut self, line: &str) -> Value {
        let parsed: Value = serde_json::from_str(line).unwrap_or_default();
        let size = |name: &str| parsed["watch"][name].as_u64().unwrap_or_default() as u32;
        match parsed.as_object().and_then(|members| members.keys().next()).map(String::as_str) {
            Some("watch") => self.watch(size("n_pvs"), size("n_subscriptions")).await,
            Some("restart") => {
                locked(&self.counts).restart();
                json!({"restarted": {}})
            }
            Some("count") => locked(&self.counts).tallied(),
            _ => json!({"failed": {"why": "this watcher does not support the request"}}),
        }
    }

    async fn watch(&mut self, n_pvs: u32, n_subscriptions: u32) -> Value {
        let pvs: Vec<u32> = (0..n_pvs).flat_map(|pv| std::iter::repeat_n(pv, n_subscriptions as usize)).collect();
        let names: Vec<String> = pvs.iter().map(|pv| format!("load:{pv:06}")).collect();
        locked(&self.counts).tallies = pvs.iter().map(|&pv| Tally { pv, ..Tally::default() }).collect();
        let (counts, is_checked) = (self.counts.clone(), self.is_checked);
        let update = move |index: usize, update: &MonitorUpdate| locked(&counts).add(index, update, is_checked);
        let request = (&["value", "timeStamp"][..], MonitorOptions::pipelined(QUEUE_SIZE));
        let deadline = tokio::time::Instant::now() + FIRST_UPDATES_MAX;
        match subscribe(&client(), &names, request, deadline, update).await {
            Ok(monitors) => {
                self.monitors = monitors;
                json!({"watching": {"n_subscriptions": names.len()}})
            }
            Err(n) => json!({"failed": {"why": format!("{n} of {} first updates were received", names.len())}}),
        }
    }
}

fn locked(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counts {
    fn add(&mut self, index: usize, update: &MonitorUpdate, is_checked: bool) {
        let tally = &mut self.tallies[index];
        let latency_ns = tally.latency_ns(update);
        if tally.add(is_checked) {
            // The upper bound of a bucket, of which each power of two has 128.
            let shift = 56_u32.saturating_sub(latency_ns.leading_zeros());
            *self.latencies.entry((((latency_ns >> shift) + 1) << shift) - 1).or_default() += 1;
        }
    }

    fn restart(&mut self) {
        self.latencies.clear();
        for tally in &mut self.tallies {
            (tally.sums, tally.last_at) = (Sums::default(), None);
        }
    }

    fn tallied(&self) -> Value {
        let sum = |of: fn(&Sums) -> u64| self.tallies.iter().map(|tally| of(&tally.sums)).sum::<u64>();
        let received = sum(|sums| sums.received);
        let gap = self.tallies.iter().map(|tally| tally.sums.gap).max().unwrap_or_default();
        let sums = json!({
            "received": received,
            "missing": sum(|sums| sums.missing),
            "duplicates": sum(|sums| sums.duplicates),
            "out_of_order": sum(|sums| sums.out_of_order),
            "wrong": sum(|sums| sums.wrong),
            "longest_gap_ms": gap.as_secs_f64() * 1e3,
        });
        let latencies: Vec<(u64, u64)> = self.latencies.iter().map(|(bound, n)| (*bound, *n)).collect();
        json!({"tallied": {"sums": sums, "merged": 0, "received": received, "latencies": latencies}})
    }
}

impl Tally {
    /// Takes the fields of an update; returns the time since its time stamp.
    fn latency_ns(&mut self, update: &MonitorUpdate) -> u64 {
        if let Some(value) = field(&update.value, &["value"]) {
            self.value = encoded(value);
        }
        let take = |kept: &mut f64, name: &str| {
            let received = number(&update.value, &["timeStamp", name]);
            if received.is_finite() {
                *kept = received;
            }
        };
        take(&mut self.seconds, "secondsPastEpoch");
        take(&mut self.nanoseconds, "nanoseconds");
        let stamp = Duration::from_secs(self.seconds as u64) + Duration::from_nanos(self.nanoseconds as u64);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(stamp);
        (since.as_nanos() as u64).clamp(1, LATENCY_NS_MAX)
    }

    /// Counts the update; returns whether it belongs to the load.
    fn add(&mut self, is_checked: bool) -> bool {
        let now = Instant::now();
        if let Some(before) = self.last_at.replace(now) {
            self.sums.gap = self.sums.gap.max(now - before);
        }
        let number = decoded(self.pv, self.value, is_checked);
        let Some(last) = self.last else {
            // The first update is the value before the load; it only sets where counting starts.
            self.sums.wrong += u64::from(number.is_none());
            self.last = number;
            return false;
        };
        self.sums.received += 1;
        match number {
            None => self.sums.wrong += 1,
            Some(number) if number == last => self.sums.duplicates += 1,
            Some(number) if number < last => self.sums.out_of_order += 1,
            Some(number) => {
                self.sums.missing += number - last - 1;
                self.last = Some(number);
            }
        }
        true
    }
}

/// The value that encodes a number; an array encodes it by its ends, see `value_of_ends` of `lab/src/load/tally.rs`.
fn encoded(value: &DecodedValue) -> f64 {
    let DecodedValue::Array(elements) = value else { return number(value, &[]) };
    match &elements[..] {
        [first, .., last] if number(last, &[]) == number(first, &[]) + elements.len() as f64 => number(first, &[]),
        _ => f64::NAN,
    }
}

/// The number of an update; `None` when this PV never had the value.
fn decoded(pv: u32, value: f64, is_checked: bool) -> Option<u64> {
    let whole = ((0.0..9e15).contains(&value) && value.fract() == 0.0).then_some(value as u64)?;
    if !is_checked {
        return Some(whole);
    }
    let mixed = (u64::from(pv) << 32 ^ (whole / 256)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56 == whole % 256).then_some(whole / 256)
}
