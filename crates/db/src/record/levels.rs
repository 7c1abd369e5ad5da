//! What records with HIHI, HIGH, LOW and LOLO share: alarms, limits, deadbands.

use fodo_data::{Limits, Meta, Status, Text};

use crate::field::{Dbf, FieldInfo};
use crate::meta::{precision, ranges};
use crate::record::Record;

/// The number type of a record's alarm limits: a double cannot hold all 64-bit integers.
pub(crate) trait Number: Copy + PartialOrd {
    fn plus(self, other: Self) -> Self;

    fn minus(self, other: Self) -> Self;

    fn to_f64(self) -> f64;
}

impl Number for f64 {
    fn plus(self, other: f64) -> f64 {
        self + other
    }

    fn minus(self, other: f64) -> f64 {
        self - other
    }

    fn to_f64(self) -> f64 {
        self
    }
}

macro_rules! whole_number {
    ($($number:ty),*) => {$(
        impl Number for $number {
            fn plus(self, other: $number) -> $number {
                self.saturating_add(other)
            }

            fn minus(self, other: $number) -> $number {
                self.saturating_sub(other)
            }

            fn to_f64(self) -> f64 {
                self as f64
            }
        }
    )*};
}

whole_number!(i32, i64);

/// The fields that determine alarms and limits.
#[derive(Clone, Debug)]
pub(crate) struct Levels<N> {
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

/// A record with alarm limits; [`leveled!`] implements it.
pub(crate) trait Leveled: Record {
    type Number: Number;

    fn levels(&self) -> Levels<Self::Number>;

    fn set_last_alarmed(&mut self, level: Self::Number);
}

macro_rules! leveled {
    ($record:ident, $number:ty) => {
        impl $crate::record::levels::Leveled for $record {
            type Number = $number;

            fn levels(&self) -> $crate::record::levels::Levels<$number> {
                use $crate::record::levels::Number as _;
                $crate::record::levels::Levels {
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
        }
    };
}

pub(crate) use leveled;

/// The position of a value between its alarm limits; AFTC filters these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Lolo = 1,
    Low = 2,
    Normal = 3,
    High = 4,
    Hihi = 5,
}

/// AFTC and AFVL, and the seconds since the record was last processed.
pub(crate) struct Filter<'a> {
    pub(crate) time_s: f64,
    pub(crate) state: &'a mut f64,
    pub(crate) elapsed_s: f64,
}

impl<N: Number> Levels<N> {
    fn range(&self) -> Range {
        let is_last = |level: N| self.last_alarmed == level;
        let above = |(severity, level): (u16, N)| {
            severity != 0 && (self.value >= level || is_last(level) && self.value >= level.minus(self.hysteresis))
        };
        let below = |(severity, level): (u16, N)| {
            severity != 0 && (self.value <= level || is_last(level) && self.value <= level.plus(self.hysteresis))
        };
        if above(self.hihi) {
            Range::Hihi
        } else if below(self.lolo) {
            Range::Lolo
        } else if above(self.high) {
            Range::High
        } else if below(self.low) {
            Range::Low
        } else {
            Range::Normal
        }
    }

    /// Severity, level and status of a range.
    fn alarm(&self, range: Range) -> (u16, N, Status) {
        let ((severity, level), status) = match range {
            Range::Hihi => (self.hihi, Status::HIHI),
            Range::High => (self.high, Status::HIGH),
            Range::Normal => ((0, self.value), Status::NO_ALARM),
            Range::Low => (self.low, Status::LOW),
            Range::Lolo => (self.lolo, Status::LOLO),
        };
        (severity, level, status)
    }
}

/// Raises the alarm of the value's range.
///
/// Source: EPICS Base 7.0, checkAlarms of aiRecord.
pub(crate) fn check<R: Leveled>(record: &mut R, filter: Option<Filter>) {
    let common = record.common();
    if common.undefined != 0 {
        let severity = common.undefined_severity;
        common.raise(Status::UDF, severity);
        if let Some(filter) = filter {
            *filter.state = 0.0;
        }
        return;
    }
    let levels = record.levels();
    let mut range = levels.range();
    if let Some(filter) = filter {
        range = filtered(range as u8, filter).and_then(range_of).unwrap_or(range);
    }
    let (severity, level, status) = levels.alarm(range);
    if severity == 0 {
        record.set_last_alarmed(levels.value);
    } else if record.common().raise(status, severity) {
        record.set_last_alarmed(level);
    }
}

fn range_of(number: u8) -> Option<Range> {
    [Range::Lolo, Range::Low, Range::Normal, Range::High, Range::Hihi].into_iter().find(|range| *range as u8 == number)
}

/// The range after a first-order low-pass filter with hysteresis; `None` when AFTC is off.
///
/// The sign of the state is the direction of rounding. Source: EPICS Base 7.0, checkAlarms.
pub(crate) fn filtered(range: u8, filter: Filter) -> Option<u8> {
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
const SPANNED: [&str; 9] = ["VAL", "HIHI", "HIGH", "LOW", "LOLO", "LALM", "ALST", "MLST", "SVAL"];

/// Sets units, precision and limits of a field of a record with alarm limits.
pub(crate) fn meta<R: Leveled>(record: &R, row: &FieldInfo, dbf: Dbf, digits: Option<i16>, meta: &mut Meta) {
    let levels = record.levels();
    ranges(row, meta);
    if row.dbf == dbf {
        meta.units = levels.units;
    }
    if let Some(digits) = digits {
        meta.precision = if row.name == "VAL" { digits } else { precision(row, digits) };
    }
    if is_spanned(row) {
        meta.display = levels.display;
        meta.control = levels.display;
    }
    if row.name == "VAL" {
        // int64in and int64out report their alarm limits whatever the severities are, as in Base.
        let is_told = |severity| severity != 0 || row.dbf == Dbf::Int64;
        let level = |(severity, level): (u16, R::Number)| if is_told(severity) { level.to_f64() } else { f64::NAN };
        meta.alarm = Limits { low: level(levels.lolo), high: level(levels.hihi) };
        meta.warning = Limits { low: level(levels.low), high: level(levels.high) };
    }
}

/// Whether the field's limits are the display range of the record.
pub(crate) fn is_spanned(row: &FieldInfo) -> bool {
    SPANNED.contains(&row.name)
}

/// Whether a value left the deadband around `last`, the last posted value; if so, sets `last` to it.
///
/// Source: EPICS Base 7.0, recGblCheckDeadband.
pub(crate) fn moved(last: &mut f64, value: f64, deadband: f64) -> bool {
    let distance = if value.is_finite() && last.is_finite() {
        (*last - value).abs()
    } else if value == *last || (value.is_nan() && last.is_nan()) {
        0.0
    } else {
        f64::INFINITY
    };
    let is_out = distance > deadband;
    if is_out {
        *last = value;
    }
    is_out
}

/// Like [`moved`], for integers: a negative deadband always posts.
pub(crate) fn moved_whole<N: Copy + Into<i64>>(last: &mut N, value: N, deadband: N) -> bool {
    let is_out = match u64::try_from(deadband.into()) {
        Ok(deadband) => Into::<i64>::into(*last).abs_diff(value.into()) > deadband,
        Err(_) => true,
    };
    if is_out {
        *last = value;
    }
    is_out
}
