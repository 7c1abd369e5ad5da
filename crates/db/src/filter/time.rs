//! Time stamps as values.

use fodo_data::{TimeStamp, Value};

use super::TimeForm;

const DAY_S: i64 = 86_400;

/// `time` in the form that `ts` was asked for.
pub(super) fn value(form: TimeForm, is_unix: bool, time: TimeStamp, local_offset_s: fn(i64) -> i32) -> Value {
    // As wide as Base has them, which wrap in 2106.
    let seconds = if is_unix { time.unix_s as u32 } else { time.epics_seconds() };
    match form {
        TimeForm::Double => Value::from(f64::from(seconds) + f64::from(time.nanos) * 1e-9),
        TimeForm::Seconds => Value::from(seconds),
        TimeForm::Nanos => Value::from(time.nanos),
        TimeForm::Both => Value::from(vec![seconds, time.nanos]),
        TimeForm::EpicsText | TimeForm::IsoText => Value::from(text(form, time, local_offset_s).as_str()),
    }
}

/// Local time with microseconds: rounded, and held to 999999 rather than carried, as libCom does.
fn text(form: TimeForm, time: TimeStamp, local_offset_s: fn(i64) -> i32) -> String {
    if time == TimeStamp::NEVER {
        return "<undefined>".to_owned();
    }
    let offset_s = local_offset_s(time.unix_s);
    let local_s = time.unix_s.saturating_add(offset_s.into());
    let (year, month, day) = date(local_s.div_euclid(DAY_S));
    let second = local_s.rem_euclid(DAY_S);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let micros = (time.nanos.saturating_add(500) / 1000).min(999_999);
    let clock = format!("{hour:02}:{minute:02}:{second:02}.{micros:06}");
    match form {
        TimeForm::IsoText => {
            let sign = if offset_s < 0 { '-' } else { '+' };
            let minutes = offset_s.unsigned_abs() / 60;
            format!("{year:04}-{month:02}-{day:02}T{clock}{sign}{:02}{:02}", minutes / 60, minutes % 60)
        }
        _ => format!("{year:04}-{month:02}-{day:02} {clock}"),
    }
}

/// Year, month and day of a day counted from 1970-01-01.
///
/// Years are counted from March, so that the leap day is the last of its year, and in eras of 400 years, which are
/// equally long.
fn date(day: i64) -> (i64, i64, i64) {
    const ERA_DAYS: i64 = 146_097;
    // 1970-01-01 is this far from 0000-03-01.
    let day = day + 719_468;
    let of_era = day.rem_euclid(ERA_DAYS);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = day.div_euclid(ERA_DAYS) * 400 + year_of_era + i64::from(month <= 2);
    (year, month, of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates_of_the_calendar() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(-1), (1969, 12, 31));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(11_017), (2000, 3, 1));
        assert_eq!(date(47_540), (2100, 2, 28));
        assert_eq!(date(47_541), (2100, 3, 1));
    }

    #[test]
    fn a_time_stamp_is_read_in_each_form() {
        let time = TimeStamp { unix_s: 1_800_000_000, nanos: 123_456_500 };
        let read = |form, is_unix| value(form, is_unix, time, |_| 3600);
        let west = |_| -12_600;

        assert_eq!(read(TimeForm::Double, true), Value::from(1_800_000_000.123_456_5));
        assert_eq!(read(TimeForm::Seconds, false), Value::from(1_168_848_000_u32));
        assert_eq!(read(TimeForm::Nanos, false), Value::from(123_456_500_u32));
        assert_eq!(read(TimeForm::Both, true), Value::from(vec![1_800_000_000_u32, 123_456_500]));
        assert_eq!(read(TimeForm::EpicsText, false), Value::from("2027-01-15 09:00:00.123457"));
        assert_eq!(value(TimeForm::IsoText, false, time, west), Value::from("2027-01-15T04:30:00.123457-0330"));
        assert_eq!(value(TimeForm::IsoText, false, TimeStamp::NEVER, west), Value::from("<undefined>"));
    }
}
