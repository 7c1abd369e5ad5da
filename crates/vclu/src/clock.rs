//! The clocks of a CLU: the caller's, and the local time that scripts see.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fodo_data::Now;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// The clock of a CLU, given by its caller, so that a test can advance it.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_data::Now;
/// use fodo_vclu::ClockFn;
///
/// let noon = Now::for_test();
/// let stopped: ClockFn = Arc::new(move || noon);
/// assert_eq!(stopped(), stopped());
/// ```
pub type ClockFn = Arc<dyn Fn() -> Now + Send + Sync>;

/// The clocks of the computer.
pub fn system_clock() -> ClockFn {
    Arc::new(|| Now { monotonic: Instant::now(), wall: SystemTime::now().into() })
}

/// The time zones of the feature `TimeZone`, by its value.
pub(crate) const ZONES: [&str; 23] = [
    "Europe/Warsaw",
    "Europe/London",
    "Europe/Moscow",
    "Europe/Istanbul",
    "Europe/Athens",
    "Asia/Dubai",
    "Asia/Jakarta",
    "Asia/Hong_Kong",
    "Australia/Sydney",
    "Australia/Perth",
    "Australia/Brisbane",
    "Pacific/Auckland",
    "Pacific/Honolulu",
    "America/Anchorage",
    "America/Chicago",
    "America/New_York",
    "America/Halifax",
    "America/Sao_Paulo",
    "America/Bogota",
    "America/Argentina/Buenos_Aires",
    "America/Guatemala",
    "America/Los_Angeles",
    "UTC",
];

/// The wall clock as the scripts see it: in a zone, and shifted to the time that `SetDateTime` has set. The clock of the computer is
/// never changed.
#[derive(Clone, Debug)]
pub(crate) struct LocalClock {
    zone: TimeZone,
    /// Seconds to add to the computer's clock.
    shift_s: i64,
}

impl LocalClock {
    /// `zone`: an IANA name. Returns `None` if it is unknown. The database of the computer is preferred; a computer without
    /// one uses that of this program.
    pub fn new(zone: &str) -> Option<LocalClock> {
        Some(LocalClock { zone: TimeZone::get(zone).ok()?, shift_s: 0 })
    }

    pub fn utc(&self, now: Now) -> Timestamp {
        let seconds = now.wall.unix_s.saturating_add(self.shift_s);
        Timestamp::new(seconds, now.wall.nanos.min(999_999_999) as i32).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    pub fn local(&self, now: Now) -> Zoned {
        self.utc(now).to_zoned(self.zone.clone())
    }

    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The local wall time as seconds since 1970-01-01 00:00 local time, as devices count.
    pub fn local_seconds(&self, now: Now) -> i64 {
        let local = self.local(now);
        local.timestamp().as_second() + i64::from(local.offset().seconds())
    }

    /// Sets the local time. `seconds`: as [`LocalClock::local_seconds`]. Returns whether the time is valid.
    pub fn set_local_seconds(&mut self, seconds: i64, now: Now) -> bool {
        let Ok(as_utc) = Timestamp::from_second(seconds) else { return false };
        let civil = as_utc.to_zoned(TimeZone::UTC).datetime();
        let Ok(zoned) = civil.to_zoned(self.zone.clone()) else { return false };
        self.shift_s = zoned.timestamp().as_second() - now.wall.unix_s;
        true
    }

    /// Selects a zone by the value of the feature `TimeZone`. Returns whether it is known.
    pub fn set_zone(&mut self, index: usize) -> bool {
        match ZONES.get(index).map(|name| TimeZone::get(name)) {
            Some(Ok(zone)) => {
                self.zone = zone;
                true
            }
            _ => false,
        }
    }

    /// The value of the feature `TimeZone`.
    pub fn zone_index(&self) -> Option<usize> {
        let name = self.zone.iana_name()?;
        ZONES.iter().position(|zone| *zone == name)
    }

    /// When the next minute of the local clock starts.
    pub fn next_minute(&self, now: Now) -> Instant {
        let utc = self.utc(now);
        let into_s = utc.as_second().rem_euclid(60) as u64;
        let into = Duration::new(into_s, utc.subsec_nanosecond().max(0) as u32);
        now.monotonic + (Duration::from_secs(60) - into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_time_follows_the_zone_and_what_was_set() {
        let now = Now::for_test();
        let mut clock = LocalClock::new("Europe/Warsaw").unwrap();
        // 2027-01-15 08:00 UTC is 09:00 in Warsaw.
        assert_eq!(clock.local_seconds(now) - now.wall.unix_s, 3600);
        assert_eq!(clock.zone_index(), Some(0));

        assert!(clock.set_local_seconds(1_701_735_652, now));
        assert_eq!(clock.local(now).strftime("%F %T").to_string(), "2023-12-05 00:20:52");
        assert_eq!(clock.local_seconds(now + Duration::from_secs(5)), 1_701_735_657);

        assert!(clock.set_zone(22));
        assert_eq!(clock.local(now).strftime("%F %T").to_string(), "2023-12-04 23:20:52");
        assert!(!clock.set_zone(23));
    }

    #[test]
    fn the_next_minute_is_at_most_a_minute_away() {
        let now = Now::for_test() + Duration::from_millis(59_500);
        let clock = LocalClock::new("UTC").unwrap();

        assert_eq!(clock.next_minute(now) - now.monotonic, Duration::from_millis(500));
        let whole = now + Duration::from_millis(500);
        assert_eq!(clock.next_minute(whole) - whole.monotonic, Duration::from_secs(60));
    }

    #[test]
    fn a_computer_without_time_zones_knows_every_zone_of_the_feature() {
        let own = jiff::tz::TimeZoneDatabase::bundled();

        for name in ZONES {
            assert!(own.get(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn every_zone_of_the_feature_is_known() {
        let mut clock = LocalClock::new("UTC").unwrap();

        for (index, name) in ZONES.iter().enumerate() {
            assert!(clock.set_zone(index), "{name}");
        }
    }
}
