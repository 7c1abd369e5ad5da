use std::ops::Add;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Seconds from the POSIX epoch (1970-01-01) to the EPICS epoch (1990-01-01), both UTC.
pub const EPICS_EPOCH_UNIX_S: i64 = 631_152_000;

/// A time in UTC with nanosecond resolution. Received time stamps are delivered unchanged, even implausible ones.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
///
/// use fodo_data::TimeStamp;
///
/// let stamp = TimeStamp::from_epics(1_000_000_000, 5);
/// assert_eq!((stamp.unix_s, stamp.nanos), (1_631_152_000, 5));
/// assert_eq!(stamp.epics_seconds(), 1_000_000_000);
///
/// let later = stamp + Duration::from_millis(1);
/// assert!(later > stamp && stamp > TimeStamp::NEVER);
/// assert_eq!(TimeStamp::from(UNIX_EPOCH).unix_s, 0);
/// assert_eq!(TimeStamp::from(UNIX_EPOCH).to_system_time(), Some(UNIX_EPOCH));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeStamp {
    /// Seconds since 1970-01-01 UTC; may be negative.
    pub unix_s: i64,
    /// Nanoseconds within that second.
    pub nanos: u32,
}

impl TimeStamp {
    /// The start of the EPICS epoch, which EPICS programs interpret as "never": 1990-01-01 00:00 UTC.
    pub const NEVER: TimeStamp = TimeStamp { unix_s: EPICS_EPOCH_UNIX_S, nanos: 0 };

    /// Converts from seconds and nanoseconds past the EPICS epoch.
    pub const fn from_epics(seconds: u32, nanos: u32) -> TimeStamp {
        TimeStamp { unix_s: EPICS_EPOCH_UNIX_S + seconds as i64, nanos }
    }

    /// Seconds past the EPICS epoch. Times outside its 136 years wrap, as 32-bit seconds do in EPICS.
    pub const fn epics_seconds(self) -> u32 {
        (self.unix_s - EPICS_EPOCH_UNIX_S) as u32
    }

    /// The same time for the standard library; `None` if the system cannot represent it.
    pub fn to_system_time(self) -> Option<SystemTime> {
        let seconds = Duration::from_secs(self.unix_s.unsigned_abs());
        let second = match self.unix_s {
            0.. => UNIX_EPOCH.checked_add(seconds),
            ..0 => UNIX_EPOCH.checked_sub(seconds),
        };
        second?.checked_add(Duration::from_nanos(self.nanos.into()))
    }
}

impl Default for TimeStamp {
    fn default() -> Self {
        TimeStamp::NEVER
    }
}

impl From<SystemTime> for TimeStamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(past) => TimeStamp { unix_s: past.as_secs() as i64, nanos: past.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let borrow = i64::from(before.subsec_nanos() > 0);
                TimeStamp {
                    unix_s: -(before.as_secs() as i64) - borrow,
                    nanos: (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000,
                }
            }
        }
    }
}

impl Add<Duration> for TimeStamp {
    type Output = TimeStamp;

    fn add(self, by: Duration) -> TimeStamp {
        let nanos = self.nanos + by.subsec_nanos();
        TimeStamp {
            unix_s: self.unix_s + by.as_secs() as i64 + i64::from(nanos / 1_000_000_000),
            nanos: nanos % 1_000_000_000,
        }
    }
}

/// The current time as passed to the state machines. Deadlines use the monotonic clock, records the wall clock.
///
/// ```
/// use std::time::Duration;
///
/// use fodo_data::Now;
///
/// let start = Now::for_test();
/// let later = start + Duration::from_secs(30);
/// assert_eq!(later.monotonic - start.monotonic, Duration::from_secs(30));
/// assert_eq!(later.wall.unix_s - start.wall.unix_s, 30);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock; never steps.
    pub monotonic: Instant,
    /// The wall clock in UTC; may step.
    pub wall: TimeStamp,
}

impl Now {
    /// A start time for tests and simulations, which advance it by adding durations.
    pub fn for_test() -> Now {
        Now { monotonic: Instant::now(), wall: TimeStamp { unix_s: 1_800_000_000, nanos: 0 } }
    }
}

impl Add<Duration> for Now {
    type Output = Now;

    fn add(self, by: Duration) -> Now {
        Now { monotonic: self.monotonic + by, wall: self.wall + by }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epics_seconds_count_from_1990_and_round_trip() {
        let stamp = TimeStamp::from_epics(1_000_000_000, 5);

        assert_eq!(stamp.unix_s, 1_631_152_000);
        assert_eq!(stamp.epics_seconds(), 1_000_000_000);
    }

    #[test]
    fn timestamps_before_1970_keep_positive_nanoseconds() {
        let stamp = TimeStamp::from(UNIX_EPOCH - Duration::from_millis(1500));

        assert_eq!(stamp, TimeStamp { unix_s: -2, nanos: 500_000_000 });
    }

    #[test]
    fn a_timestamp_converts_to_the_time_of_the_system_and_back() {
        for unix_s in [-2, 0, 1_800_000_000] {
            let stamp = TimeStamp { unix_s, nanos: 500_000_000 };
            assert_eq!(stamp.to_system_time().map(TimeStamp::from), Some(stamp));
        }
        assert_eq!(TimeStamp { unix_s: i64::MAX, nanos: u32::MAX }.to_system_time(), None);
    }
}
