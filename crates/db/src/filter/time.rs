//! The filter `ts`: time stamps as values.

use fodo_data::{TimeStamp, Value};

use super::TimeFormat;
use crate::site::Site;
use crate::strftime::strftime;

/// Converts a time stamp to the format of a `ts` filter.
pub(super) fn value(form: TimeFormat, is_unix: bool, time: TimeStamp, site: &dyn Site) -> Value {
    // 32 bits, as in Base; seconds since 1970 overflow in 2106.
    let seconds = if is_unix { time.unix_s as u32 } else { time.epics_seconds() };
    match form {
        TimeFormat::Double => Value::from(f64::from(seconds) + f64::from(time.nanos) * 1e-9),
        TimeFormat::Seconds => Value::from(seconds),
        TimeFormat::Nanos => Value::from(time.nanos),
        TimeFormat::Both => Value::from(vec![seconds, time.nanos]),
        TimeFormat::EpicsText | TimeFormat::IsoText => Value::from(text(form, time, site).as_str()),
    }
}

/// Formats local time with microseconds.
fn text(form: TimeFormat, time: TimeStamp, site: &dyn Site) -> String {
    let format = if form == TimeFormat::IsoText { "%Y-%m-%dT%H:%M:%S.%06f%z" } else { "%Y-%m-%d %H:%M:%S.%06f" };
    strftime(format, time, &site.zone(time))
}

#[cfg(test)]
mod tests {
    use fodo_data::Text;

    use super::*;
    use crate::site::Zone;

    #[derive(Debug)]
    struct Ahead(i32);

    impl Site for Ahead {
        fn variable(&self, _name: &str) -> Option<Text> {
            None
        }

        fn zone(&self, _at: TimeStamp) -> Zone {
            Zone { offset_s: self.0, name: "HERE".into() }
        }
    }

    #[test]
    fn a_time_stamp_is_converted_to_each_output_format() {
        let time = TimeStamp { unix_s: 1_800_000_000, nanos: 123_456_500 };
        let read = |form, is_unix| value(form, is_unix, time, &Ahead(3_600));
        let west = &Ahead(-12_600);

        assert_eq!(read(TimeFormat::Double, true), Value::from(1_800_000_000.123_456_5));
        assert_eq!(read(TimeFormat::Seconds, false), Value::from(1_168_848_000_u32));
        assert_eq!(read(TimeFormat::Nanos, false), Value::from(123_456_500_u32));
        assert_eq!(read(TimeFormat::Both, true), Value::from(vec![1_800_000_000_u32, 123_456_500]));
        assert_eq!(read(TimeFormat::EpicsText, false), Value::from("2027-01-15 09:00:00.123457"));
        assert_eq!(value(TimeFormat::IsoText, false, time, west), Value::from("2027-01-15T04:30:00.123457-0330"));
        assert_eq!(value(TimeFormat::IsoText, false, TimeStamp::NEVER, west), Value::from("<undefined>"));
    }
}
