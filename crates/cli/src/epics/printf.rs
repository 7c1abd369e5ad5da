//! Formats numbers like C's `printf`.

/// The notation of a floating point number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// `%.Ne`
    Exponent(usize),
    /// `%.Nf`
    Fixed(usize),
    /// `%.Ng`; plain `%g` is `General(6)`.
    General(usize),
}

/// Formats a number.
pub fn number(value: f64, notation: Notation) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan".into() } else { "nan".into() };
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf".into() } else { "inf".into() };
    }
    match notation {
        Notation::Exponent(digits) => exponent(value, digits),
        Notation::Fixed(digits) => format!("{value:.digits$}"),
        Notation::General(digits) => general(value, digits.max(1)),
    }
}

/// `%g`, the format of limits.
pub fn short(value: f64) -> String {
    number(value, Notation::General(6))
}

fn exponent(value: f64, digits: usize) -> String {
    let (mantissa, power) = split_exponent(value, digits);
    let sign = if power < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", power.unsigned_abs())
}

/// The mantissa with `digits` decimals, and the power of ten.
fn split_exponent(value: f64, digits: usize) -> (String, i32) {
    let text = format!("{value:.digits$e}");
    match text.split_once('e') {
        Some((mantissa, power)) => (mantissa.to_owned(), power.parse().unwrap_or(0)),
        None => (text, 0),
    }
}

/// C11, 7.21.6.1: with P digits and a decimal exponent X, fixed notation when P > X >= -4.
fn general(value: f64, digits: usize) -> String {
    let (mantissa, power) = split_exponent(value, digits - 1);
    let is_fixed = power >= -4 && i64::from(power) < digits as i64;
    if is_fixed {
        let decimals = usize::try_from(digits as i64 - 1 - i64::from(power)).unwrap_or(0);
        return without_trailing_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_trailing_zeros(&mantissa), power.unsigned_abs())
}

fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_notation_is_the_same_as_in_c() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (100_000.0, "100000"),
            (999_999.5, "1e+06"),
            (1_234_567.8, "1.23457e+06"),
            (0.0001, "0.0001"),
            (0.000_099_999_95, "0.0001"),
            (0.000_012_3, "1.23e-05"),
            (-1.5e-7, "-1.5e-07"),
            (1.234_567_89e120, "1.23457e+120"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
        assert_eq!(number(1.0 / 3.0, Notation::General(0)), "0.3");
    }

    #[test]
    fn fixed_and_exponent_notation_are_the_same_as_in_c() {
        assert_eq!(number(1.234_567_89e20, Notation::Fixed(2)), "123456788999999995904.00");
        assert_eq!(number(-3e10, Notation::Exponent(5)), "-3.00000e+10");
        assert_eq!(number(2.5, Notation::Fixed(0)), "2");
        assert_eq!(number(0.0, Notation::Exponent(0)), "0e+00");
    }
}
