//! Numbers formatted for readers: three digits and a unit.

/// `value` in `unit`; nanoseconds are converted to a suitable unit.
pub fn value(value: f64, unit: &str) -> String {
    if unit == "ns" { time(value) } else { format!("{} {unit}", grouped(value)) }
}

/// Nanoseconds as ns, µs, ms or s.
pub fn time(ns: f64) -> String {
    // From 999.5 on, three digits would round up to 1000, the next unit's 1.00.
    match ns {
        ns if ns < 999.5 => format!("{} ns", digits(ns)),
        ns if ns < 999.5e3 => format!("{} µs", digits(ns / 1e3)),
        ns if ns < 999.5e6 => format!("{} ms", digits(ns / 1e6)),
        ns => format!("{} s", digits(ns / 1e9)),
    }
}

/// Nanoseconds as milliseconds, the unit of the studies, with three significant digits.
pub fn milliseconds(ns: f64) -> String {
    format!("{} ms", small(ns / 1e6))
}

/// Three significant digits, however small the number is.
pub fn small(value: f64) -> String {
    if value == 0.0 || value.abs() >= 1.0 {
        return digits(value);
    }
    let n_decimals = 2 - value.abs().log10().floor() as i64;
    format!("{value:.0$}", n_decimals.clamp(0, 9) as usize)
}

/// Three significant digits, or all digits before the point.
pub fn digits(value: f64) -> String {
    match value.abs() {
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A count with thin spaces between thousands.
pub fn grouped(value: f64) -> String {
    if value.abs() < 1000.0 {
        return if value.fract() == 0.0 { format!("{value:.0}") } else { digits(value) };
    }
    let plain = format!("{value:.0}");
    let n = plain.len();
    let mut text = String::new();
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (n - index).is_multiple_of(3) && !text.ends_with('-') {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A short count for an axis: 10k, 1M.
pub fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", v / 1e3),
        v => format!("{v}"),
    }
}

/// A ratio, such as 2.10×.
pub fn times(ratio: f64) -> String {
    if ratio > 0.0 && ratio < 0.1 {
        return format!("1/{}\u{d7}", digits(ratio.recip()));
    }
    format!("{}\u{d7}", digits(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_with_three_digits_in_a_suitable_unit() {
        assert_eq!(
            [time(12.34), time(1234.0), time(999_700.0), time(2.5e9)],
            ["12.3 ns", "1.23 µs", "1.00 ms", "2.50 s"]
        );
        assert_eq!([milliseconds(12.4e6), milliseconds(812.4)], ["12.4 ms", "0.000812 ms"]);
    }

    #[test]
    fn counts_have_grouped_digits_and_axis_labels_are_short() {
        assert_eq!(
            [grouped(1_234_567.0), grouped(12.0), grouped(-1000.0)],
            ["1\u{202f}234\u{202f}567", "12", "-1\u{202f}000"]
        );
        assert_eq!([short(1.0), short(50_000.0), short(1e6)], ["1", "50k", "1M"]);
    }
}
