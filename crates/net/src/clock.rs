//! The only place that reads clocks.

use std::time::{Instant, SystemTime};

use fodo_data::Now;

/// The current time on both clocks.
pub fn now() -> Now {
    Now { monotonic: Instant::now(), wall: SystemTime::now().into() }
}
