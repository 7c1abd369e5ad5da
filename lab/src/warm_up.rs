//! Warm-up: a client is warm when doubling the number of rounds no longer changes its latency.
//!
//! The same rule applies to every client, whatever its language, and to the floor.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::statistics::median;

/// Limits of a warm-up; the numbers and their reasons are in [`crate::limit`].
#[derive(Clone, Copy, Debug)]
pub struct WarmUpBounds {
    /// Rounds before the first check.
    pub n_rounds_min: usize,
    /// Maximum difference between the medians of the first and the second half of all rounds, as a share of the first.
    pub change_max: f64,
    /// No round starts after this time.
    pub time_max: Duration,
}

/// Outcome of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmUp {
    /// Number of rounds.
    pub n_rounds: usize,
    /// Whether latency was steady at the end; if not, the time limit was reached.
    pub is_steady: bool,
}

impl WarmUp {
    /// A note for readers; `None` when latency was steady at the end.
    pub fn note(self) -> Option<String> {
        (!self.is_steady).then(|| format!("not steady after {} rounds of warm-up", self.n_rounds))
    }

    /// Combines the warm-ups of several client processes for one row.
    pub fn join(self, other: WarmUp) -> WarmUp {
        WarmUp { n_rounds: self.n_rounds.max(other.n_rounds), is_steady: self.is_steady && other.is_steady }
    }
}

/// Repeats `round`, which returns its latency, until the latency is steady or the time limit is reached.
///
/// It is checked after `n_rounds_min` rounds and whenever their number has doubled. So an intermediate plateau, such as
/// between two compilers of a virtual machine, must last as long as all rounds before it.
pub fn warm_up<E>(bounds: WarmUpBounds, mut round: impl FnMut() -> Result<f64, E>) -> Result<WarmUp, E> {
    let start = Instant::now();
    let mut latencies = Vec::new();
    let mut n_next = bounds.n_rounds_min.max(2);
    loop {
        latencies.push(round()?);
        let n_rounds = latencies.len();
        if n_rounds == n_next {
            if is_steady(&latencies, bounds.change_max) {
                return Ok(WarmUp { n_rounds, is_steady: true });
            }
            n_next *= 2;
        }
        if start.elapsed() >= bounds.time_max {
            return Ok(WarmUp { n_rounds, is_steady: false });
        }
    }
}

fn is_steady(latencies: &[f64], change_max: f64) -> bool {
    let (first, second) = latencies.split_at(latencies.len() / 2);
    match (median(first), median(second)) {
        (Some(first), Some(second)) => (second - first).abs() <= change_max * first,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: WarmUpBounds = WarmUpBounds { n_rounds_min: 10, change_max: 0.1, time_max: Duration::from_secs(600) };

    /// A client whose round `n` takes `latency(n)`.
    fn warmed(bounds: WarmUpBounds, latency: impl Fn(usize) -> f64) -> WarmUp {
        let mut n = 0;
        let round = || {
            n += 1;
            Ok::<f64, ()>(latency(n))
        };
        warm_up(bounds, round).unwrap()
    }

    #[test]
    fn a_client_that_is_steady_from_the_second_round_is_warm_at_the_first_check() {
        let warm_up = warmed(BOUNDS, |n| if n == 1 { 900.0 } else { 10.0 });

        assert_eq!(warm_up, WarmUp { n_rounds: 10, is_steady: true });
    }

    #[test]
    fn a_client_that_speeds_up_in_steps_is_warm_only_after_the_last_step() {
        let compiled = |n| match n {
            ..8 => 100.0,
            8..30 => 40.0,
            _ => 9.0,
        };

        let warm_up = warmed(BOUNDS, compiled);

        assert_eq!(warm_up, WarmUp { n_rounds: 160, is_steady: true });
    }

    #[test]
    fn warm_up_of_a_steadily_slowing_client_ends_at_the_time_limit() {
        let bounds = WarmUpBounds { time_max: Duration::from_millis(5), ..BOUNDS };

        assert!(!warmed(bounds, |n| n as f64).is_steady);
    }

    #[test]
    fn a_warm_up_has_at_least_one_round_and_ends_after_a_failed_round() {
        let bounds = WarmUpBounds { time_max: Duration::ZERO, ..BOUNDS };
        let mut n_rounds = 0;
        let failed = warm_up(BOUNDS, || {
            n_rounds += 1;
            if n_rounds < 3 { Ok(1.0) } else { Err("lost") }
        });

        assert_eq!(warmed(bounds, |_| 1.0), WarmUp { n_rounds: 1, is_steady: false });
        assert_eq!((failed, n_rounds), (Err("lost"), 3));
    }

    #[test]
    fn rows_contain_the_longest_warm_up_and_whether_all_were_steady() {
        let (short, long) = (WarmUp { n_rounds: 10, is_steady: false }, WarmUp { n_rounds: 80, is_steady: true });

        assert_eq!(short.join(long), WarmUp { n_rounds: 80, is_steady: false });
    }
}
