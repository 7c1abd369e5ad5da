//! Rate limiter: the only place that decides when requests may be sent to a plant.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_lock::Mutex;

/// Limits the rate of operations; clones share the rate.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    per_second: u32,
    free_at: Arc<Mutex<Instant>>,
}

impl RateLimiter {
    /// On average at most `per_second` operations per second.
    pub fn new(per_second: u32) -> RateLimiter {
        RateLimiter { per_second, free_at: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Maximum number of concurrent operations: those of one second.
    pub fn at_once(&self) -> usize {
        self.per_second as usize
    }

    /// Waits as long as `n` operations must take; after that they may start together. Idle time is not credited: the
    /// wait precedes each call's operations.
    pub fn spend(&self, n: usize) {
        let until = {
            let mut free_at = self.free_at.lock();
            let wait = Duration::from_secs_f64(n as f64 / f64::from(self.per_second));
            *free_at = (*free_at).max(Instant::now()) + wait;
            *free_at
        };
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_rate_limiter_share_its_rate() {
        let limiter = RateLimiter::new(100);
        let other = limiter.clone();
        let start = Instant::now();

        limiter.spend(5);
        other.spend(5);

        assert!(start.elapsed() >= Duration::from_millis(100));
    }
}
