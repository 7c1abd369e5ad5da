//! Formats a time stamp like C's `strftime`, with `%f` for fractions of a second.

use fodo_data::{STRING_BYTES_MAX, TimeStamp};

use crate::site::Zone;

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A moment in local time.
struct LocalTime {
    year: i64,
    /// From 1.
    month: usize,
    day: i64,
    /// From 0, which is the first of January.
    day_of_year: i64,
    /// From 0, which is Sunday.
    weekday: usize,
    hour: i64,
    minute: i64,
    second: i64,
}

impl LocalTime {
    /// Source: Howard Hinnant, "chrono-compatible low-level date algorithms", civil_from_days.
    fn new(local_s: i64) -> LocalTime {
        let (days, in_day) = (local_s.div_euclid(86_400), local_s.rem_euclid(86_400));
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        // The count starts in March, so January and February follow after 306 days.
        let day_of_year = if month > 2 { of_year + 59 + i64::from(is_leap) } else { of_year - 306 };
        LocalTime {
            year,
            month: month as usize,
            day: of_year - (153 * from_march + 2) / 5 + 1,
            day_of_year,
            weekday: (days + 4).rem_euclid(7) as usize,
            hour: in_day / 3_600,
            minute: in_day / 60 % 60,
            second: in_day % 60,
        }
    }
}

/// The size in EPICS Base of the part of a format between two fractions.
const PART_BYTES: usize = 256;

/// The maximum number of digits of a fraction.
const PLACES_MAX: u64 = 9;

/// Formats a time stamp as a text of at most [`STRING_BYTES_MAX`] bytes. An unknown directive is copied unchanged. The
/// part between two fractions is left out if it is too long, and a fraction that is too long becomes asterisks.
///
/// Source: EPICS Base 7.0, epicsTimeToStrftime.
pub(crate) fn strftime(format: &str, time: TimeStamp, zone: &Zone) -> String {
    if time == TimeStamp::NEVER {
        return "<undefined>".into();
    }
    let moment = LocalTime::new(time.unix_s + i64::from(zone.offset_s));
    let mut out = String::new();
    let mut rest = format;
    while !rest.is_empty() && out.len() < STRING_BYTES_MAX {
        let (part, places, after) = split_at_fraction(rest);
        if part.len() >= PART_BYTES {
            return out + "<invalid format>";
        }
        let text = expanded(part, &moment, time, zone);
        if out.len() + text.len() <= STRING_BYTES_MAX {
            out.push_str(&text);
        }
        let left = STRING_BYTES_MAX - out.len();
        match places {
            Some(places) if places as usize <= left => out.push_str(&fraction(time.nanos, places)),
            Some(_) => return out + &"*".repeat(left),
            None => {}
        }
        rest = after;
    }
    out
}

/// The part of a format before its first fraction (`%f`, `%3f`), the number of digits, and the rest of the format.
fn split_at_fraction(format: &str) -> (&str, Option<u32>, &str) {
    let mut from = 0;
    while let Some(at) = format[from..].find('%').map(|at| from + at) {
        let tail = &format[at + 1..];
        if let Some((places, after)) = places(tail) {
            return (&format[..at], Some(places), after);
        }
        from = at + 1 + usize::from(tail.starts_with('%'));
    }
    (format, None, "")
}

/// The number of digits of a fraction and the text after it. The number is parsed as by C's strtoul, so blanks and a sign
/// may precede it.
fn places(tail: &str) -> Option<(u32, &str)> {
    if let Some(after) = tail.strip_prefix('f') {
        return Some((PLACES_MAX as u32, after));
    }
    let number = tail.trim_start();
    let unsigned = number.strip_prefix(['+', '-']).unwrap_or(number);
    let after = unsigned.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let digits = &unsigned[..unsigned.len() - after.len()];
    let places = digits.parse::<u64>().ok().filter(|places| *places > 0)?;
    // A negative number wraps to a large one.
    let places = if number.starts_with('-') { PLACES_MAX } else { places.min(PLACES_MAX) };
    Some((places as u32, after.strip_prefix('f')?))
}

/// Replaces the directives, except fractions.
fn expanded(format: &str, moment: &LocalTime, time: TimeStamp, zone: &Zone) -> String {
    let mut out = String::new();
    let mut rest = format;
    while let Some((plain, tail)) = rest.split_once('%') {
        out.push_str(plain);
        let mut characters = tail.chars();
        match characters.next().and_then(|letter| directive(letter, moment, time, zone)) {
            Some(text) => {
                out.push_str(&text);
                rest = characters.as_str();
            }
            None => {
                out.push('%');
                rest = tail;
            }
        }
    }
    out + rest
}

/// Fractions of a second, rounded, but never up to a full second.
fn fraction(nanos: u32, places: u32) -> String {
    let unit = 10_u32.pow(9 - places);
    let parts = (nanos.saturating_add(unit / 2) / unit).min(10_u32.pow(places) - 1);
    format!("{parts:0width$}", width = places as usize)
}

fn directive(letter: char, moment: &LocalTime, time: TimeStamp, zone: &Zone) -> Option<String> {
    let LocalTime { year, month, day, day_of_year, weekday, hour, minute, second } = *moment;
    let again = |format: &str| expanded(format, moment, time, zone);
    let weekday_name = DAYS.get(weekday).copied().unwrap_or_default();
    let month_name = MONTHS.get(month - 1).copied().unwrap_or_default();
    let of_twelve = (hour + 11) % 12 + 1;
    Some(match letter {
        'Y' => year.to_string(),
        'C' => format!("{:02}", year / 100),
        'y' => format!("{:02}", year % 100),
        'm' => format!("{month:02}"),
        'd' => format!("{day:02}"),
        'e' => format!("{day:2}"),
        'j' => format!("{:03}", day_of_year + 1),
        'H' => format!("{hour:02}"),
        'I' => format!("{of_twelve:02}"),
        'M' => format!("{minute:02}"),
        'S' => format!("{second:02}"),
        'p' => if hour < 12 { "AM" } else { "PM" }.into(),
        'a' => weekday_name.get(..3).unwrap_or_default().into(),
        'A' => weekday_name.into(),
        'b' | 'h' => month_name.get(..3).unwrap_or_default().into(),
        'B' => month_name.into(),
        'u' => (if weekday == 0 { 7 } else { weekday }).to_string(),
        'w' => weekday.to_string(),
        'U' => format!("{:02}", (day_of_year + 7 - weekday as i64) / 7),
        'W' => format!("{:02}", (day_of_year + 7 - (weekday as i64 + 6) % 7) / 7),
        's' => time.unix_s.to_string(),
        'Z' => zone.name.clone(),
        'z' => {
            let minutes = zone.offset_s.abs() / 60;
            format!("{}{:02}{:02}", if zone.offset_s < 0 { '-' } else { '+' }, minutes / 60, minutes % 60)
        }
        'T' | 'X' => again("%H:%M:%S"),
        'R' => again("%H:%M"),
        'r' => again("%I:%M:%S %p"),
        'D' | 'x' => again("%m/%d/%y"),
        'F' => again("%Y-%m-%d"),
        'c' => again("%a %b %e %H:%M:%S %Y"),
        'n' => "\n".into(),
        't' => "\t".into(),
        '%' => "%".into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that may be longer than a field.
    fn long(format: &str, time: TimeStamp, zone: &Zone) -> String {
        expanded(format, &LocalTime::new(time.unix_s), time, zone)
    }

    #[test]
    fn times_are_formatted_in_local_time_with_fractional_seconds() {
        let time = TimeStamp { unix_s: 1_709_251_199, nanos: 123_456_789 };
        let zone = Zone { offset_s: 3_600, name: "CET".into() };
        let utc = Zone { offset_s: 0, name: "UTC".into() };

        assert_eq!(strftime("%Y-%m-%d %H:%M:%S.%03f %Z %z", time, &zone), "2024-03-01 00:59:59.123 CET +0100");
        assert_eq!(strftime("%Y", TimeStamp::NEVER, &zone), "<undefined>");
        assert_eq!(strftime("%a %b %e %j %I %p %U %W %u", time, &utc), "Thu Feb 29 060 11 PM 08 09 4");
        assert_eq!(strftime("%D %T 100%% %q %09f", time, &utc), "02/29/24 23:59:59 100% %q 123456789");
        assert_eq!(fraction(999_999_999, 3), "999");
    }

    #[test]
    fn every_date_directive_is_formatted_as_in_c() {
        let time = TimeStamp { unix_s: 1_709_251_199, nanos: 123_456_789 };
        let utc = Zone { offset_s: 0, name: "UTC".into() };
        let shown = |format: &str| long(format, time, &utc);

        assert_eq!(shown("%C %A %B %w %s %R"), "20 Thursday February 4 1709251199 23:59");
        assert_eq!(shown("%r|%F|%c"), "11:59:59 PM|2024-02-29|Thu Feb 29 23:59:59 2024");
        assert_eq!(shown("a%nb%tc"), "a\nb\tc");
    }

    #[test]
    fn hours_days_and_weeks_are_counted_as_in_c_at_the_ends_of_their_ranges() {
        let utc = Zone { offset_s: 0, name: "UTC".into() };
        // Source: strftime of the GNU C library.
        for (unix_s, expected) in [
            (1704067200, "2024-01-01 00 12 AM  1 001 00 01 1 1 24 20"),
            (1704023999, "2023-12-31 11 11 AM 31 365 53 52 7 0 23 20"),
            (1709208000, "2024-02-29 12 12 PM 29 060 08 09 4 4 24 20"),
            (1677675605, "2023-03-01 13 01 PM  1 060 09 09 3 3 23 20"),
            (-2203891200, "1900-03-01 00 12 AM  1 060 08 09 4 4 00 19"),
            (951868799, "2000-02-29 23 11 PM 29 060 09 09 2 2 00 20"),
            (-1, "1969-12-31 23 11 PM 31 365 52 52 3 3 69 19"),
            (4133939400, "2100-12-31 12 12 PM 31 365 52 52 5 5 00 21"),
            (1672534923, "2023-01-01 01 01 AM  1 001 01 00 7 0 23 20"),
            (1735430400, "2024-12-29 00 12 AM 29 364 52 52 7 0 24 20"),
        ] {
            let time = TimeStamp { unix_s, nanos: 0 };
            assert_eq!(long("%Y-%m-%d %H %I %p %e %j %U %W %u %w %y %C", time, &utc), expected, "{unix_s}");
        }
    }

    #[test]
    fn the_offset_of_a_zone_is_added_and_shown_with_its_sign() {
        for (offset_s, expected) in [
            (0, "00:00:00 +0000"),
            (1, "00:00:01 +0000"),
            (-60, "23:59:00 -0001"),
            (20_700, "05:45:00 +0545"),
            (-12_600, "20:30:00 -0330"),
        ] {
            let zone = Zone { offset_s, name: "HERE".into() };
            assert_eq!(strftime("%T %z", TimeStamp { unix_s: 0, nanos: 0 }, &zone), expected);
        }
    }

    #[test]
    fn what_does_not_fit_into_a_text_field_is_left_out_or_becomes_asterisks() {
        let utc = Zone { offset_s: 0, name: "UTC".into() };
        let shown = |format: &str| strftime(format, TimeStamp { unix_s: 0, nanos: 123_456_789 }, &utc);
        let text = |length: usize| "x".repeat(length);

        assert_eq!(shown(&(text(30) + "%f")), text(30) + "123456789");
        assert_eq!(shown(&(text(31) + "%f%Y")), text(31) + "********");
        assert_eq!(shown(&(text(40) + "%3f")), "123");
        assert_eq!(shown(&text(40)), "");
        assert_eq!(shown(&(text(255) + "%3f")), "123");
        assert_eq!(shown(&(text(256) + "%3f")), "<invalid format>");
    }

    #[test]
    fn fractions_have_one_to_nine_digits_and_round_half_up() {
        let utc = Zone { offset_s: 0, name: "UTC".into() };
        let shown = |format: &str, nanos| strftime(format, TimeStamp { unix_s: 0, nanos }, &utc);

        assert_eq!((shown("%1f", 49_999_999), shown("%1f", 50_000_000)), ("0".into(), "1".into()));
        assert_eq!(
            (shown("%8f", 14), shown("%8f", 15), shown("%9f", 15)),
            ("00000001".into(), "00000002".into(), "000000015".into())
        );
        assert_eq!(shown("%f %12f %+2f % 1f %-1f", 5), "000000005 000000005 00 0 000000005");
        assert_eq!(shown("%0f %3d %%f", 5), "%0f %3d %f", "not fractions");
    }
}
