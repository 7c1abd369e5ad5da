//! Timers of records. A record has at most one timer of each kind, which bounds their number.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use crate::limit::{DELAY_MAX, DELAY_MIN};

/// A timer and its record, by what happens when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Timer {
    /// Completes the processing of a record that waits.
    Complete(u32),
    /// Resets a momentary output and processes the record.
    Release(u32),
    /// Posts the values that the record gathered, without processing.
    Post(u32),
}

/// Timers in the order of their due time; timers with the same due time are in the order of their start.
#[derive(Debug, Default)]
pub(crate) struct EngineTimers {
    queue: BTreeMap<(Instant, u64), Timer>,
    keys: HashMap<Timer, (Instant, u64)>,
    n_started: u64,
}

impl EngineTimers {
    /// Starts a timer. A timer that runs already is restarted, as in Base.
    pub(crate) fn start(&mut self, timer: Timer, due: Instant) {
        self.stop(timer);
        self.n_started += 1;
        let key = (due, self.n_started);
        self.queue.insert(key, timer);
        self.keys.insert(timer, key);
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        if let Some(key) = self.keys.remove(&timer) {
            self.queue.remove(&key);
        }
    }

    /// When the next timer is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.queue.keys().next().map(|(due, _)| *due)
    }

    /// Removes and returns the first timer that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        let first = self.queue.first_entry().filter(|first| first.key().0 <= now)?;
        let timer = first.remove();
        self.keys.remove(&timer);
        Some(timer)
    }
}

/// Converts a delay in seconds, clamped to the limits; NaN becomes the shortest delay.
pub(crate) fn delay(seconds: f64) -> Duration {
    let longest_s = DELAY_MAX.as_secs_f64();
    // NaN becomes 0.
    Duration::from_secs_f64(seconds.max(0.0).min(longest_s)).max(DELAY_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarting_a_timer_postpones_it() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut timers = EngineTimers::default();

        timers.start(Timer::Release(7), start + second);
        timers.start(Timer::Complete(7), start + second);
        timers.start(Timer::Release(7), start + 2 * second);

        assert_eq!(timers.pop_due(start + second), Some(Timer::Complete(7)));
        assert_eq!(timers.pop_due(start + second), None);
        assert_eq!(timers.next_due(), Some(start + 2 * second));
        assert_eq!(timers.pop_due(start + 2 * second), Some(Timer::Release(7)));
        assert_eq!(timers.next_due(), None);
    }

    #[test]
    fn timers_with_the_same_deadline_fire_in_start_order() {
        let start = Instant::now();
        let mut timers = EngineTimers::default();
        for record in [3, 1, 2] {
            timers.start(Timer::Complete(record), start);
        }

        let order: Vec<Timer> = std::iter::from_fn(|| timers.pop_due(start)).collect();

        assert_eq!(order, [3, 1, 2].map(Timer::Complete));
    }

    #[test]
    fn delays_are_clamped_to_the_limits() {
        for seconds in [f64::NAN, -1.0, f64::NEG_INFINITY, 0.0, 1e-12, 5e-324] {
            assert_eq!(delay(seconds), DELAY_MIN, "{seconds}");
        }
        for seconds in [f64::INFINITY, f64::MAX, 1e300, 1e9] {
            assert_eq!(delay(seconds), DELAY_MAX, "{seconds}");
        }
        assert_eq!(delay(0.25), Duration::from_millis(250));
    }
}
