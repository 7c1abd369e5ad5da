//! What is kept of a name that is looked for.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// What has the name of a PV.
pub trait Named {
    /// The name.
    fn name(&self) -> &str;
}

impl Named for str {
    fn name(&self) -> &str {
        self
    }
}

impl<T: Named + ?Sized> Named for Arc<T> {
    fn name(&self) -> &str {
        (**self).name()
    }
}

/// A name that is looked for.
#[derive(Debug)]
pub(super) struct Name<N> {
    pub(super) of: N,
    /// The moment of the next search.
    pub(super) at: Instant,
    period_ms: u32,
    /// Its server was lost: it is searched for more often than a name that no server has had.
    pub(super) is_lost: bool,
}

impl<N> Name<N> {
    pub(super) fn new(of: N, at: Instant, period: Duration) -> Name<N> {
        let mut name = Name { of, at, period_ms: 0, is_lost: false };
        name.set_period(period);
        name
    }

    /// What passes until the one behind it.
    pub(super) fn period(&self) -> Duration {
        Duration::from_millis(u64::from(self.period_ms))
    }

    /// To the millisecond: there may be a million of these.
    pub(super) fn set_period(&mut self, period: Duration) {
        self.period_ms = u32::try_from(period.as_millis()).unwrap_or(u32::MAX);
    }
}
