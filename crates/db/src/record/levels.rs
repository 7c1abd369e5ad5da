//! What records with HIHI, HIGH, LOW and LOLO share: alarms, limits, deadbands.

use fodo_data::{EventMask, Limits, Meta, Status, Text};

use crate::field::{Dbf, FieldInfo};
use crate::menu::NO_ALARM;
use crate::meta::{precision, ranges};
use crate::process::post::RecordPosts;
use crate::record::{Record, post_value, raise_undefined};

/// The number type of a record's alarm limits: a double cannot hold all 64-bit integers.
pub(crate) trait LimitNumber: Copy + PartialOrd {
    fn plus(self, other: Self) -> Self;

    fn minus(self, other: Self) -> Self;

    fn to_f64(self) -> f64;

    /// Whether a value left the deadband around `last`, the last posted value; if so, sets `last` to it.
    fn leaves_deadband(self, last: &mut Self, deadband: Self) -> bool;
}

impl LimitNumber for f64 {
    fn plus(self, other: f64) -> f64 {
        self + other
    }

    fn minus(self, other: f64) -> f64 {
        self - other
    }

    fn to_f64(self) -> f64 {
        self
    }

    /// Source: EPICS Base 7.0, recGblCheckDeadband.
    fn leaves_deadband(self, last: &mut f64, deadband: f64) -> bool {
        let distance = if self.is_finite() && last.is_finite() {
            (*last - self).abs()
        } else if self == *last || (self.is_nan() && last.is_nan()) {
            0.0
        } else {
            f64::INFINITY
        };
        let is_out = distance > deadband;
        if is_out {
            *last = self;
        }
        is_out
    }
}

macro_rules! integer {
    ($($number:ty),*) => {$(
        impl LimitNumber for $number {
            fn plus(self, other: $number) -> $number {
                self.saturating_add(other)
            }

            fn minus(self, other: $number) -> $number {
                self.saturating_sub(other)
            }

            fn to_f64(self) -> f64 {
                self as f64
            }

            /// A negative deadband always posts.
            fn leaves_deadband(self, last: &mut $number, deadband: $number) -> bool {
                let is_out = deadband < 0 || last.abs_diff(self) > deadband.unsigned_abs();
                if is_out {
                    *last = self;
                }
                is_out
            }
        }
    )*};
}

integer!(i32, i64);

/// The fields that determine alarms and limits.
#[derive(Clone, Debug)]
pub(crate) struct AlarmLimits<N> {
    pub(crate) value: N,
    pub(crate) hysteresis: N,
    pub(crate) last_alarmed: N,
    pub(crate) hihi: (u16, N),
    pub(crate) lolo: (u16, N),
    pub(crate) high: (u16, N),
    pub(crate) low: (u16, N),
    pub(crate) display: Limits,
    pub(crate) units: Text,
}

/// A record with alarm limits; [`alarm_limits!`] implements it.
pub(crate) trait HasAlarmLimits: Record {
    type Number: LimitNumber;

    fn limits(&self) -> AlarmLimits<Self::Number>;

    fn set_last_alarmed(&mut self, level: Self::Number);

    fn deadbands(&mut self) -> Deadbands<'_, Self::Number>;

    /// Makes the present value the one last posted and last alarmed.
    fn forget_changes(&mut self);
}

/// A record whose alarms are filtered; [`alarm_limits!`] implements it.
pub(crate) trait HasAlarmFilter: HasAlarmLimits {
    /// AFTC and AFVL.
    fn alarm_filter(&mut self) -> (f64, &mut f64);
}

macro_rules! alarm_limits {
    ($record:ident, $number:ty, filtered) => {
        $crate::record::levels::alarm_limits!($record, $number);

        impl $crate::record::levels::HasAlarmFilter for $record {
            fn alarm_filter(&mut self) -> (f64, &mut f64) {
                (self.alarm_filter_time, &mut self.alarm_filter_value)
            }
        }
    };
    ($record:ident, $number:ty) => {
        impl $crate::record::levels::HasAlarmLimits for $record {
            type Number = $number;

            fn limits(&self) -> $crate::record::levels::AlarmLimits<$number> {
                use $crate::record::levels::LimitNumber as _;
                $crate::record::levels::AlarmLimits {
                    value: self.value,
                    hysteresis: self.hysteresis,
                    last_alarmed: self.last_alarmed,
                    hihi: (self.hihi_severity, self.hihi),
                    lolo: (self.lolo_severity, self.lolo),
                    high: (self.high_severity, self.high),
                    low: (self.low_severity, self.low),
                    display: fodo_data::Limits { low: self.display_low.to_f64(), high: self.display_high.to_f64() },
                    units: self.units.clone(),
                }
            }

            fn set_last_alarmed(&mut self, level: $number) {
                self.last_alarmed = level;
            }

            fn deadbands(&mut self) -> $crate::record::levels::Deadbands<'_, $number> {
                $crate::record::levels::deadbands!(self)
            }

            fn forget_changes(&mut self) {
                self.last_monitored = self.value;
                self.last_archived = self.value;
                self.last_alarmed = self.value;
            }
        }
    };
}

pub(crate) use alarm_limits;

/// The position of a value between its alarm limits; AFTC filters these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AlarmRange {
    Lolo = 1,
    Low = 2,
    Normal = 3,
    High = 4,
    Hihi = 5,
}

/// AFTC and AFVL, and the seconds since the record was last processed.
pub(crate) struct AlarmFilter<'a> {
    pub(crate) time_s: f64,
    pub(crate) state: &'a mut f64,
    pub(crate) elapsed_s: f64,
}

impl<N: LimitNumber> AlarmLimits<N> {
    fn range(&self) -> AlarmRange {
        let is_last = |level: N| self.last_alarmed == level;
        let above = |(severity, level): (u16, N)| {
            severity != NO_ALARM
                && (self.value >= level || is_last(level) && self.value >= level.minus(self.hysteresis))
        };
        let below = |(severity, level): (u16, N)| {
            severity != NO_ALARM && (self.value <= level || is_last(level) && self.value <= level.plus(self.hysteresis))
        };
        if above(self.hihi) {
            AlarmRange::Hihi
        } else if below(self.lolo) {
            AlarmRange::Lolo
        } else if above(self.high) {
            AlarmRange::High
        } else if below(self.low) {
            AlarmRange::Low
        } else {
            AlarmRange::Normal
        }
    }

    /// Severity, level and status of a range.
    fn alarm(&self, range: AlarmRange) -> (u16, N, Status) {
        let ((severity, level), status) = match range {
            AlarmRange::Hihi => (self.hihi, Status::HIHI),
            AlarmRange::High => (self.high, Status::HIGH),
            AlarmRange::Normal => ((NO_ALARM, self.value), Status::NO_ALARM),
            AlarmRange::Low => (self.low, Status::LOW),
            AlarmRange::Lolo => (self.lolo, Status::LOLO),
        };
        (severity, level, status)
    }
}

/// Raises the alarm of the value's range.
///
/// Source: EPICS Base 7.0, checkAlarms of aiRecord.
pub(crate) fn check<R: HasAlarmLimits>(record: &mut R) {
    check_range(record, None);
}

/// Like [`check`], with the filter of AFTC. `elapsed_s`: the seconds since the record was last processed.
pub(crate) fn check_filtered<R: HasAlarmFilter>(record: &mut R, elapsed_s: f64) {
    let (time_s, state) = record.alarm_filter();
    let mut state = *state;
    check_range(record, Some(AlarmFilter { time_s, state: &mut state, elapsed_s }));
    *record.alarm_filter().1 = state;
}

fn check_range<R: HasAlarmLimits>(record: &mut R, filter: Option<AlarmFilter>) {
    if raise_undefined(record.common()) {
        if let Some(filter) = filter {
            *filter.state = 0.0;
        }
        return;
    }
    let limits = record.limits();
    let mut range = limits.range();
    if let Some(filter) = filter {
        range = filtered(range as u8, filter).and_then(range_of).unwrap_or(range);
    }
    let (severity, level, status) = limits.alarm(range);
    if severity == NO_ALARM {
        record.set_last_alarmed(limits.value);
    } else if record.common().raise(status, severity) {
        record.set_last_alarmed(level);
    }
}

fn range_of(number: u8) -> Option<AlarmRange> {
    let ranges = [AlarmRange::Lolo, AlarmRange::Low, AlarmRange::Normal, AlarmRange::High, AlarmRange::Hihi];
    ranges.into_iter().find(|range| *range as u8 == number)
}

/// The range after a first-order low-pass filter with hysteresis; `None` when AFTC is off.
///
/// The sign of the state is the direction of rounding. Source: EPICS Base 7.0, checkAlarms.
pub(crate) fn filtered(range: u8, filter: AlarmFilter) -> Option<u8> {
    const THRESHOLD: f64 = 0.6321;
    // NaN disables the filter, as in Base.
    if filter.time_s.is_nan() || filter.time_s <= 0.0 {
        *filter.state = 0.0;
        return None;
    }
    let range = f64::from(range);
    let mut state = *filter.state;
    if state == 0.0 {
        *filter.state = range;
        return None;
    }
    // After the clock was set back, the elapsed time counts as zero. Base uses a negative time, from which the filter
    // may never recover.
    let alpha = filter.time_s / (filter.elapsed_s.max(0.0) + filter.time_s);
    state = alpha * state + if state > 0.0 { 1.0 - alpha } else { alpha - 1.0 } * range;
    if state - state.floor() > THRESHOLD {
        state = -state;
    }
    *filter.state = state;
    Some(state.floor().abs() as u8)
}

/// Fields whose limits are the display range of the record.
const FIELDS_WITH_DISPLAY_LIMITS: [&str; 9] = ["VAL", "HIHI", "HIGH", "LOW", "LOLO", "LALM", "ALST", "MLST", "SVAL"];

/// Sets units, precision and limits of a field of a record with alarm limits.
pub(crate) fn meta<R: HasAlarmLimits>(record: &R, row: &FieldInfo, dbf: Dbf, digits: Option<i16>, meta: &mut Meta) {
    let limits = record.limits();
    ranges(row, meta);
    if row.dbf == dbf {
        meta.units = limits.units;
    }
    if let Some(digits) = digits {
        meta.precision = if row.name == "VAL" { digits } else { precision(row, digits) };
    }
    if has_display_limits(row) {
        meta.display = limits.display;
        meta.control = limits.display;
    }
    if row.name == "VAL" {
        // int64in and int64out report their alarm limits whatever the severities are, as in Base.
        let is_reported = |severity| severity != NO_ALARM || row.dbf == Dbf::Int64;
        let level = |(severity, level): (u16, R::Number)| if is_reported(severity) { level.to_f64() } else { f64::NAN };
        meta.alarm = Limits { low: level(limits.lolo), high: level(limits.hihi) };
        meta.warning = Limits { low: level(limits.low), high: level(limits.high) };
    }
}

/// Whether the field's limits are the display range of the record.
pub(crate) fn has_display_limits(row: &FieldInfo) -> bool {
    FIELDS_WITH_DISPLAY_LIMITS.contains(&row.name)
}

/// The value of a record, and its deadbands with the values that left them last.
pub(crate) struct Deadbands<'a, N> {
    pub(crate) value: N,
    /// MDEL and MLST.
    pub(crate) monitor: (N, &'a mut N),
    /// ADEL and ALST.
    pub(crate) archive: (N, &'a mut N),
}

/// The deadbands of a record that has their fields.
macro_rules! deadbands {
    ($record:expr) => {
        $crate::record::levels::Deadbands {
            value: $record.value,
            monitor: ($record.monitor_deadband, &mut $record.last_monitored),
            archive: ($record.archive_deadband, &mut $record.last_archived),
        }
    };
}

pub(crate) use deadbands;

impl<N: LimitNumber> Deadbands<'_, N> {
    /// The events to post: VALUE and LOG, for the deadbands that the value has left.
    pub(crate) fn left(self) -> EventMask {
        let mut mask = EventMask::NONE;
        if self.value.leaves_deadband(self.monitor.1, self.monitor.0) {
            mask |= EventMask::VALUE;
        }
        if self.value.leaves_deadband(self.archive.1, self.archive.0) {
            mask |= EventMask::LOG;
        }
        mask
    }
}

/// Posts VAL if the alarm has changed or the value has left a deadband. Returns the mask of that post.
pub(crate) fn monitor<R: HasAlarmLimits>(record: &mut R, posts: &mut RecordPosts) -> EventMask {
    let left = record.deadbands().left();
    post_value(record, left, posts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(value: i32, last_alarmed: i32) -> AlarmLimits<i32> {
        AlarmLimits {
            value,
            hysteresis: 2,
            last_alarmed,
            hihi: (3, 20),
            lolo: (3, -20),
            high: (1, 10),
            low: (1, -10),
            display: Limits::default(),
            units: Text::EMPTY,
        }
    }

    #[test]
    fn a_range_begins_at_its_limit_and_ends_beyond_the_hysteresis() {
        use AlarmRange::{High, Hihi, Lolo, Low, Normal};
        for (value, expected) in
            [(-20, Lolo), (-19, Low), (-10, Low), (-9, Normal), (9, Normal), (10, High), (19, High), (20, Hihi)]
        {
            assert_eq!(limits(value, 0).range(), expected, "{value}");
        }
        for (value, last, expected) in [
            (18, 20, Hihi),
            (17, 20, High),
            (8, 10, High),
            (7, 10, Normal),
            (8, 20, Normal),
            (-18, -20, Lolo),
            (-17, -20, Low),
            (-8, -10, Low),
            (-7, -10, Normal),
        ] {
            assert_eq!(limits(value, last).range(), expected, "{value} after {last}");
        }
        let mut without_severity = limits(20, 0);
        without_severity.hihi.0 = NO_ALARM;
        assert_eq!(without_severity.range(), High);
    }

    #[test]
    fn an_alarm_filter_delays_a_new_range_by_its_time() {
        let after = |time_s, mut state: f64, range, elapsed_s| {
            let filtered = filtered(range, AlarmFilter { time_s, state: &mut state, elapsed_s });
            (filtered, state)
        };

        assert_eq!(after(2.0, 0.0, 4, 0.5), (None, 4.0), "the first value passes");
        assert_eq!(after(2.0, 3.0, 4, 0.0), (Some(3), 3.0), "no time has passed");
        assert_eq!(after(2.0, 3.0, 4, -5.0), (Some(3), 3.0), "the clock was set back");
        assert_eq!(after(1.0, 3.0, 4, 1.0), (Some(3), 3.5), "half of the way");
        assert_eq!(after(1.0, 3.0, 4, 3.0), (Some(4), -3.75), "more than 63 % of the way");
        assert_eq!(after(1.0, -4.0, 3, 1.0), (Some(4), -3.5), "and back");
        assert_eq!(after(1.0, -4.0, 3, 3.0), (Some(3), 3.25), "more than 63 % of the way back");
        for off in [0.0, -1.0, f64::NAN] {
            assert_eq!(after(off, 3.0, 4, 1.0), (None, 0.0), "{off}");
        }
    }

    #[test]
    fn a_deadband_is_left_by_a_larger_change_and_a_negative_one_by_any_value() {
        let left = |value: i32, mut last: i32, deadband| (value.leaves_deadband(&mut last, deadband), last);

        assert_eq!([left(12, 10, 2), left(13, 10, 2), left(7, 10, 2)], [(false, 10), (true, 13), (true, 7)]);
        assert_eq!([left(10, 10, 0), left(10, 10, -1)], [(false, 10), (true, 10)]);
        assert_eq!(left(i32::MAX, i32::MIN, i32::MAX), (true, i32::MAX));
        let left = |value: f64, mut last: f64, deadband| (value.leaves_deadband(&mut last, deadband), last);
        assert_eq!([left(12.0, 10.0, 2.0), left(12.5, 10.0, 2.0)], [(false, 10.0), (true, 12.5)]);
    }
}
