//! The state of a name being searched for.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// An object with a PV name.
pub trait HasName {
    /// The name.
    fn name(&self) -> &str;
}

impl HasName for str {
    fn name(&self) -> &str {
        self
    }
}

impl<T: HasName + ?Sized> HasName for Arc<T> {
    fn name(&self) -> &str {
        (**self).name()
    }
}

/// A name being searched for.
#[derive(Debug)]
pub(super) struct SearchedName<N> {
    pub(super) owner: N,
    /// The time of the next search.
    pub(super) at: Instant,
    period_ms: u32,
    /// The server was lost: the name is searched for more often than a name that no server has had.
    pub(super) is_lost: bool,
}

impl<N> SearchedName<N> {
    pub(super) fn new(owner: N, at: Instant, period: Duration) -> SearchedName<N> {
        let mut name = SearchedName { owner, at, period_ms: 0, is_lost: false };
        name.set_period(period);
        name
    }

    /// The time from the next search to the one after it.
    pub(super) fn period(&self) -> Duration {
        Duration::from_millis(u64::from(self.period_ms))
    }

    /// Stored in milliseconds to save memory: there may be a million names.
    pub(super) fn set_period(&mut self, period: Duration) {
        self.period_ms = u32::try_from(period.as_millis()).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_owner_has_the_name_of_the_owner() {
        let shared: Arc<str> = "a:b".into();

        assert_eq!((shared.name(), "a:b".name(), Arc::new(shared.clone()).name()), ("a:b", "a:b", "a:b"));
    }

    #[test]
    fn a_period_has_whole_milliseconds_and_at_most_49_days() {
        let period = |period| SearchedName::new((), Instant::now(), period).period();

        assert_eq!(period(Duration::from_micros(1999)), Duration::from_millis(1));
        let longest = Duration::from_millis(u32::MAX.into());
        assert_eq!(period(longest), longest);
        assert_eq!(period(longest + Duration::from_millis(1)), longest);
    }
}
