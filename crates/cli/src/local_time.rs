//! Formats time stamps, in local time or UTC.

use fodo_data::TimeStamp;
use jiff::{Timestamp, Zoned, tz::TimeZone};

/// The system's time zone (`TZ`, otherwise that of the host), looked up once when needed.
#[derive(Clone, Debug)]
pub struct Clock(TimeZone);

impl Clock {
    /// A clock in the system's time zone; UTC if it has none.
    pub fn local() -> Clock {
        Clock(host_zone().unwrap_or_else(TimeZone::system))
    }

    /// A clock in UTC, for tests.
    pub const fn utc() -> Clock {
        Clock(TimeZone::UTC)
    }

    /// RFC 3339 in UTC with nanoseconds: `2026-11-21T02:28:24.451042225Z`; `None` for never.
    pub fn rfc3339(time: TimeStamp) -> Option<String> {
        let moment = moment(time)?;
        Some(format!("{moment:.9}"))
    }

    /// `2026-11-21 03:28:24.451042 +01:00`; `never` for a record that was never processed.
    pub fn for_people(&self, time: TimeStamp) -> String {
        match moment(time) {
            Some(moment) => self.zoned(moment).strftime("%Y-%m-%d %H:%M:%S.%6f %:z").to_string(),
            None => "never".to_owned(),
        }
    }

    /// The format of the EPICS tools: `2026-11-21 03:28:24.451042`, or `<undefined>`.
    ///
    /// Microseconds are rounded and limited to 999999 instead of carried, as observed with libCom 7.0.10.
    pub fn for_epics(&self, time: TimeStamp) -> String {
        match moment(time) {
            Some(moment) => {
                let micros = (time.nanos.saturating_add(500) / 1000).min(999_999);
                format!("{}.{micros:06}", self.zoned(moment).strftime("%Y-%m-%d %H:%M:%S"))
            }
            None => "<undefined>".to_owned(),
        }
    }

    /// The format of pvget: `2026-11-21 03:28:24.451`, or `<undefined>`. Milliseconds are rounded in the same way.
    pub fn for_pvget(&self, time: TimeStamp) -> String {
        match moment(time) {
            Some(moment) => {
                let millis = (time.nanos.saturating_add(500_000) / 1_000_000).min(999);
                format!("{}.{millis:03}", self.zoned(moment).strftime("%Y-%m-%d %H:%M:%S"))
            }
            None => "<undefined>".to_owned(),
        }
    }

    /// The current time in a `strftime` format; the format itself if it is invalid.
    pub fn formatted(&self, format: &str) -> String {
        let now = self.zoned(Timestamp::now());
        jiff::fmt::strtime::format(format, &now).unwrap_or_else(|_| format.to_owned())
    }

    fn zoned(&self, moment: Timestamp) -> Zoned {
        moment.to_zoned(self.0.clone())
    }
}

/// The time zone in `/etc/localtime`, unless `TZ` selects another one. [`TimeZone::system`] gives the same, but reads the
/// whole directory of time zones first, which takes as long as a get.
fn host_zone() -> Option<TimeZone> {
    const FILE: &str = "/etc/localtime";
    if std::env::var_os("TZ").is_some() {
        return None;
    }
    TimeZone::tzif(FILE, &std::fs::read(FILE).ok()?).ok()
}

/// `None` for a record that was never processed and for out-of-range times.
fn moment(time: TimeStamp) -> Option<Timestamp> {
    let nanos = i32::try_from(time.nanos).ok()?;
    if time.nanos != 0 || time.unix_s != TimeStamp::NEVER.unix_s {
        return Timestamp::new(time.unix_s, nanos).ok();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stamps_are_formatted_like_epics_base() {
        let utc = Clock::utc();

        assert_eq!(utc.for_epics(TimeStamp::NEVER), "<undefined>");
        assert_eq!(utc.for_epics(TimeStamp::from_epics(0, 600)), "1990-01-01 00:00:00.000001");
        assert_eq!(utc.for_epics(TimeStamp::from_epics(1000, 123_456_500)), "1990-01-01 00:16:40.123457");
        assert_eq!(utc.for_epics(TimeStamp::from_epics(1000, 999_999_600)), "1990-01-01 00:16:40.999999");
        assert_eq!(utc.for_epics(TimeStamp::from_epics(4_000_000_000, 1)), "2116-10-03 07:06:40.000000");
    }

    #[test]
    fn the_zone_of_the_host_is_the_one_of_the_time_zone_library() {
        let (ours, theirs) = (host_zone().unwrap_or_else(TimeZone::system), TimeZone::system());

        for unix_s in [0, 500_000_000, 1_000_000_000, 1_750_000_000, 1_800_000_000] {
            let moment = Timestamp::from_second(unix_s).unwrap();
            assert_eq!(ours.to_offset(moment), theirs.to_offset(moment));
        }
    }

    #[test]
    fn milliseconds_are_rounded_and_never_carried() {
        let utc = Clock::utc();

        assert_eq!(utc.for_pvget(TimeStamp::NEVER), "<undefined>");
        assert_eq!(utc.for_pvget(TimeStamp::from_epics(1000, 123_500_000)), "1990-01-01 00:16:40.124");
        assert_eq!(utc.for_pvget(TimeStamp::from_epics(1000, 999_999_600)), "1990-01-01 00:16:40.999");
    }

    #[test]
    fn text_output_shows_the_utc_offset_and_json_shows_nanoseconds_in_utc() {
        let time = TimeStamp { unix_s: 1_800_000_000, nanos: 5 };
        let warsaw = Clock(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap());

        assert_eq!(warsaw.for_people(time), "2027-01-15 09:00:00.000000 +01:00");
        assert_eq!(Clock::rfc3339(time).as_deref(), Some("2027-01-15T08:00:00.000000005Z"));
        assert_eq!(Clock::rfc3339(TimeStamp::NEVER), None);
        assert_eq!(warsaw.for_people(TimeStamp::NEVER), "never");
    }
}
