//! Tally of one subscription: completeness, order and latency of its updates.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Maximum latency; longer ones count as this.
const LATENCY_MAX: Duration = Duration::from_secs(60);

/// Encodes a counter's value: the number of the update, and a check byte that depends on the number and on the PV, so
/// that neither a value of another PV nor a damaged one is accepted.
pub fn encode(pv: u32, sequence: u64) -> f64 {
    (sequence * 256 + u64::from(check(pv, sequence))) as f64
}

/// How values encode their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum NumberEncoding {
    /// With a check byte, see [`encode`].
    #[default]
    Checked,
    /// The value is the number itself: that of a record that counts by itself.
    Plain,
}

/// What a watcher in Python records of an update, see `drivers/python/watch.py`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateRecording {
    /// Its number and latency, at once.
    #[default]
    Every,
    /// Its value, requested without time stamp; one subscription of a hundred has time stamps and counts latencies.
    Raw,
    /// Its value, requested with time stamp; one subscription of a hundred counts latencies.
    Time,
}

impl UpdateRecording {
    /// The name in arguments of watchers, and in tables.
    pub fn text(self) -> &'static str {
        match self {
            UpdateRecording::Every => "every",
            UpdateRecording::Raw => "raw",
            UpdateRecording::Time => "time",
        }
    }
}

impl NumberEncoding {
    /// The name in arguments of drivers.
    pub fn text(self) -> &'static str {
        match self {
            NumberEncoding::Checked => "checked",
            NumberEncoding::Plain => "plain",
        }
    }

    /// The number of an update; `None` when this PV never had the value.
    pub fn decode(self, pv: u32, value: f64) -> Option<u64> {
        match self {
            NumberEncoding::Checked => decode(pv, value),
            NumberEncoding::Plain => whole(value),
        }
    }
}

/// The number of the update; `None` when this PV never had the value.
fn decode(pv: u32, value: f64) -> Option<u64> {
    let whole = whole(value)?;
    (whole % 256 == u64::from(check(pv, whole / 256))).then_some(whole / 256)
}

fn whole(value: f64) -> Option<u64> {
    ((0.0..9e15).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

fn check(pv: u32, sequence: u64) -> u8 {
    let mixed = (u64::from(pv) << 32 ^ sequence).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// Makes an array encode a value by its ends: the first element is the value, the last one is larger by the number of
/// elements. So an array is invalid that has another length, or the end of another update.
pub fn set_ends(elements: &mut [f64], value: f64) {
    let n = elements.len() as f64;
    if let [first, .., last] = elements {
        (*first, *last) = (value, value + n);
    }
}

/// The value that an array encodes by its ends; NaN for any other array.
pub fn value_of_ends(elements: &[f64]) -> f64 {
    match elements {
        [first, .., last] if *last == first + elements.len() as f64 => *first,
        _ => f64::NAN,
    }
}

/// Counts of the updates of one subscription.
#[derive(Clone, Debug, Default)]
pub struct DeliveryTally {
    last: Option<u64>,
    sums: Sums,
    last_at: Option<Duration>,
}

/// Sums over subscriptions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// Updates received, without the first of each subscription, which is the value before the load.
    pub received: u64,
    /// Numbers skipped between an update and the next.
    pub missing: u64,
    /// Updates with the number of the previous update.
    pub duplicates: u64,
    /// Updates with a lower number than the previous update.
    pub out_of_order: u64,
    /// Values that their PV never had.
    pub wrong: u64,
    /// The longest time between two consecutive updates, in milliseconds.
    pub longest_gap_ms: f64,
}

impl DeliveryTally {
    /// Adds an update: its number, `None` for an invalid value, and its arrival by a monotonic clock.
    pub fn add(&mut self, sequence: Option<u64>, at: Duration) {
        let gap = self.last_at.replace(at).map_or(Duration::ZERO, |before| at.saturating_sub(before));
        self.sums.longest_gap_ms = self.sums.longest_gap_ms.max(gap.as_secs_f64() * 1e3);
        let Some(last) = self.last else {
            // The first update is the value before the load; it only sets where counting starts.
            self.sums.wrong += u64::from(sequence.is_none());
            self.last = sequence;
            return;
        };
        self.sums.received += 1;
        match sequence {
            None => self.sums.wrong += 1,
            Some(sequence) if sequence == last => self.sums.duplicates += 1,
            Some(sequence) if sequence < last => self.sums.out_of_order += 1,
            Some(sequence) => {
                self.sums.missing += sequence - last - 1;
                self.last = Some(sequence);
            }
        }
    }

    /// Restarts counting after the last update.
    pub fn restart(&mut self) {
        self.sums = Sums::default();
        self.last_at = None;
    }

    /// Whether an update has arrived since counting started.
    pub fn is_fresh(&self) -> bool {
        self.last_at.is_some()
    }

    /// Whether the first update has arrived.
    pub fn has_begun(&self) -> bool {
        self.last.is_some()
    }

    /// The number of the last update.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// The counts so far.
    pub fn sums(&self) -> &Sums {
        &self.sums
    }
}

impl Sums {
    /// Adds the sums of another subscription.
    pub fn add(&mut self, other: &Sums) {
        self.received += other.received;
        self.missing += other.missing;
        self.duplicates += other.duplicates;
        self.out_of_order += other.out_of_order;
        self.wrong += other.wrong;
        self.longest_gap_ms = self.longest_gap_ms.max(other.longest_gap_ms);
    }
}

/// Latencies from the moment at which an update was scheduled to be sent.
#[derive(Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        match Histogram::new_with_max(LATENCY_MAX.as_nanos() as u64, 3) {
            Ok(histogram) => Latencies(histogram),
            Err(_) => unreachable!("the bounds are valid constants"),
        }
    }
}

/// The reported percentiles, and the minimum number of latencies for each to be meaningful.
const PERCENTILES: [(f64, u64); 10] = [
    (0.0, 1),
    (10.0, 1),
    (25.0, 1),
    (50.0, 1),
    (75.0, 1),
    (90.0, 1),
    (99.0, 1),
    (99.9, 1000),
    (99.99, 100_000),
    (100.0, 1),
];

impl Latencies {
    /// Adds a latency; more than a minute counts as a minute.
    pub fn add(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_nanos() as u64);
    }

    /// Adds other latencies.
    pub fn merge(&mut self, other: &Latencies) {
        // Both have the same bounds, so every value has a place.
        let added = self.0.add(&other.0);
        debug_assert!(added.is_ok(), "{added:?}");
    }

    /// From the [`Latencies::counts`] of another process.
    pub fn of_counts(counts: &[(u64, u64)]) -> Latencies {
        let mut latencies = Latencies::default();
        for &(ns, count) in counts {
            latencies.0.saturating_record_n(ns, count);
        }
        latencies
    }

    /// Pairs of nanoseconds, to three digits, and the number of latencies with that value.
    pub fn counts(&self) -> Vec<(u64, u64)> {
        self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_since_last_iteration())).collect()
    }

    /// The median, of any number of latencies.
    pub fn median(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_percentile(50.0) as f64)
    }

    /// Pairs of per cent and nanoseconds, up to 99.99 % if there are enough latencies.
    pub fn percentiles(&self) -> Vec<(f64, f64)> {
        let reported = PERCENTILES.iter().filter(|(_, n_min)| self.0.len() >= *n_min);
        reported.map(|(per_cent, _)| (*per_cent, self.0.value_at_percentile(*per_cent) as f64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tallied(sequences: &[u64]) -> Sums {
        let mut tally = DeliveryTally::default();
        for (index, &sequence) in sequences.iter().enumerate() {
            tally.add(Some(sequence), Duration::from_millis(index as u64 * 10));
        }
        tally.sums().clone()
    }

    #[test]
    fn consecutive_numbers_are_tallied_without_errors() {
        let sums = tallied(&[7, 8, 9, 10]);

        assert_eq!(sums, Sums { received: 3, longest_gap_ms: 10.0, ..Sums::default() });
    }

    #[test]
    fn missing_duplicate_and_out_of_order_numbers_are_distinguished() {
        assert_eq!(tallied(&[1, 2, 5, 6]).missing, 2);
        assert_eq!(tallied(&[1, 2, 2, 3]).duplicates, 1);
        assert_eq!(tallied(&[1, 3, 2, 4]).out_of_order, 1);
    }

    #[test]
    fn an_array_with_another_length_or_another_end_has_no_value() {
        let mut elements = vec![0.0; 5];
        set_ends(&mut elements, 256.0);

        assert_eq!((elements[0], elements[4], value_of_ends(&elements)), (256.0, 261.0, 256.0));
        assert!(value_of_ends(&elements[..4]).is_nan());
        elements[4] += 1.0;
        assert!([&elements[..], &[1.0], &[]].into_iter().all(|elements| value_of_ends(elements).is_nan()));
    }

    #[test]
    fn a_value_of_another_pv_or_a_corrupt_value_is_rejected() {
        let n_passed = (0..10_000).filter(|&sequence| decode(2, encode(1, sequence)).is_some()).count();

        assert_eq!(decode(1, encode(1, 123_456)), Some(123_456));
        assert_eq!(decode(1, encode(1, 123_456) + 1.0), None);
        assert_eq!(decode(1, f64::NAN), None);
        assert!(n_passed < 100, "{n_passed} of 10000 values of another PV pass");
    }
}
