//! The host's time zone, for time stamps that are read as texts.

use std::sync::OnceLock;

use jiff::{Timestamp, tz::TimeZone};

/// How many seconds the local time is ahead of UTC at a moment, given in seconds since 1970.
pub fn offset_s(unix_s: i64) -> i32 {
    static ZONE: OnceLock<TimeZone> = OnceLock::new();
    let zone = ZONE.get_or_init(TimeZone::system);
    // What no calendar holds has no offset.
    Timestamp::from_second(unix_s).map_or(0, |moment| zone.to_offset(moment).seconds())
}
