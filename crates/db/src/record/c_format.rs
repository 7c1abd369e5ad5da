//! One conversion of C's printf, such as `%-8.3f`.

/// The flags, width and precision between `%` and the conversion letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FormatSpec {
    pub(crate) is_left: bool,
    pub(crate) has_plus: bool,
    pub(crate) has_blank: bool,
    pub(crate) is_alternate: bool,
    pub(crate) has_zeros: bool,
    pub(crate) width: usize,
    pub(crate) precision: Option<usize>,
}

impl FormatSpec {
    /// `%d`
    pub(crate) fn signed(&self, number: i64) -> String {
        let digits = self.at_least(number.unsigned_abs().to_string(), number == 0);
        self.padded(self.sign(number < 0), digits, self.precision.is_none())
    }

    /// `%u`, `%o`, `%x`, `%X`
    pub(crate) fn unsigned(&self, number: u64, letter: char) -> String {
        let (digits, prefix) = match letter {
            'o' => (format!("{number:o}"), "0"),
            'x' => (format!("{number:x}"), "0x"),
            'X' => (format!("{number:X}"), "0X"),
            _ => (number.to_string(), ""),
        };
        let digits = self.at_least(digits, number == 0);
        let is_prefixed = match letter {
            'o' => !digits.starts_with('0'),
            _ => number != 0,
        };
        let is_prefixed = self.is_alternate && is_prefixed;
        self.padded(if is_prefixed { prefix } else { "" }, digits, self.precision.is_none())
    }

    /// `%f`, `%e`, `%g` and their capitals
    pub(crate) fn real(&self, number: f64, letter: char) -> String {
        let size = number.abs();
        let precision = self.precision.unwrap_or(6);
        let text = match letter.to_ascii_lowercase() {
            _ if number.is_nan() => "nan".into(),
            _ if number.is_infinite() => "inf".into(),
            'f' => self.with_point(format!("{size:.precision$}")),
            'e' => self.exponent(size, precision),
            _ => self.shortest(size, precision.max(1)),
        };
        let text = if letter.is_ascii_uppercase() { text.to_ascii_uppercase() } else { text };
        self.padded(self.sign(number.is_sign_negative() && !number.is_nan()), text, number.is_finite())
    }

    /// `%s` and `%c`. Width and precision count bytes, as in C.
    pub(crate) fn text(&self, text: &[u8]) -> Vec<u8> {
        let text = self.precision.and_then(|precision| text.get(..precision)).unwrap_or(text);
        let blanks = vec![b' '; self.width.saturating_sub(text.len())];
        if self.is_left { [text, &blanks].concat() } else { [&blanks, text].concat() }
    }

    fn sign(&self, is_negative: bool) -> &'static str {
        match (is_negative, self.has_plus, self.has_blank) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            (false, false, false) => "",
        }
    }

    /// Pads digits with zeros up to the precision; zero with precision 0 gives no digits.
    fn at_least(&self, digits: String, is_zero: bool) -> String {
        match self.precision {
            Some(0) if is_zero => String::new(),
            Some(precision) => format!("{digits:0>precision$}"),
            None => digits,
        }
    }

    fn with_point(&self, text: String) -> String {
        if self.is_alternate && !text.contains('.') { text + "." } else { text }
    }

    /// C writes the sign of the exponent, and at least two digits.
    fn exponent(&self, size: f64, precision: usize) -> String {
        let text = format!("{size:.precision$e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
        format!("{}e{sign}{digits:0>2}", self.with_point(mantissa.into()))
    }

    /// `%g`: `%f` or `%e`, depending on the exponent, without trailing zeros.
    fn shortest(&self, size: f64, precision: usize) -> String {
        let exponential = format!("{size:.*e}", precision - 1);
        let power = exponential.split_once('e').and_then(|(_, power)| power.parse::<i32>().ok()).unwrap_or(0);
        let is_fixed = power >= -4 && i64::from(power) < precision as i64;
        let text = if is_fixed {
            self.with_point(format!("{size:.*}", (precision as i32 - 1 - power).max(0) as usize))
        } else {
            self.exponent(size, precision - 1)
        };
        if self.is_alternate {
            return text;
        }
        let (mantissa, tail) = text
            .split_once('e')
            .map_or((text.as_str(), String::new()), |(mantissa, power)| (mantissa, format!("e{power}")));
        let mantissa =
            if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
        format!("{mantissa}{tail}")
    }

    fn padded(&self, prefix: &str, text: String, may_have_zeros: bool) -> String {
        let missing = self.width.saturating_sub(prefix.len() + text.len());
        if self.is_left {
            return format!("{prefix}{text}{}", " ".repeat(missing));
        }
        if self.has_zeros && may_have_zeros {
            return format!("{prefix}{}{text}", "0".repeat(missing));
        }
        format!("{}{prefix}{text}", " ".repeat(missing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_c_prints_them() {
        let plain = FormatSpec::default();
        let wide = FormatSpec { width: 8, precision: Some(2), ..plain };
        let zeros = FormatSpec { width: 6, has_zeros: true, ..plain };

        assert_eq!(wide.real(-2.71459, 'f'), "   -2.71");
        assert_eq!(plain.real(0.0001, 'g'), "0.0001");
        assert_eq!(plain.real(1e-5, 'g'), "1e-05");
        assert_eq!(plain.real(1_234_567.0, 'g'), "1.23457e+06");
        assert_eq!(plain.real(100_000.0, 'G'), "100000");
        assert_eq!(plain.real(1.5, 'E'), "1.500000E+00");
        assert_eq!(zeros.signed(-42), "-00042");
        assert_eq!(zeros.real(f64::INFINITY, 'f'), "   inf");
        assert_eq!(FormatSpec { is_alternate: true, ..plain }.unsigned(255, 'x'), "0xff");
        assert_eq!(FormatSpec { is_left: true, width: 5, ..plain }.text(b"ab"), b"ab   ");
        assert_eq!(FormatSpec { precision: Some(3), ..plain }.signed(7), "007");
    }

    // The expected texts of these tables are those of the GNU C library.

    #[test]
    fn flags_of_signed_integers_have_the_effects_they_have_in_c() {
        let plain = FormatSpec::default();
        for (spec, number, expected) in [
            (FormatSpec { has_plus: true, ..plain }, 7, "+7"),
            (FormatSpec { has_plus: true, has_blank: true, ..plain }, 0, "+0"),
            (FormatSpec { has_blank: true, ..plain }, 7, " 7"),
            (FormatSpec { has_blank: true, ..plain }, -7, "-7"),
            (FormatSpec { precision: Some(0), ..plain }, 0, ""),
            (FormatSpec { precision: Some(0), ..plain }, 5, "5"),
            (FormatSpec { precision: Some(3), has_zeros: true, width: 6, ..plain }, 5, "   005"),
            (FormatSpec { precision: Some(3), ..plain }, -5, "-005"),
            (FormatSpec { is_left: true, width: 5, ..plain }, -42, "-42  "),
            (FormatSpec { width: 2, ..plain }, 1234, "1234"),
            (FormatSpec { ..plain }, i64::MIN, "-9223372036854775808"),
        ] {
            assert_eq!(spec.signed(number), expected, "{spec:?} {number}");
        }
    }

    #[test]
    fn flags_of_unsigned_integers_have_the_effects_they_have_in_c() {
        let plain = FormatSpec::default();
        for (spec, number, letter, expected) in [
            (FormatSpec { is_alternate: true, ..plain }, 8, 'o', "010"),
            (FormatSpec { is_alternate: true, ..plain }, 0, 'o', "0"),
            (FormatSpec { is_alternate: true, ..plain }, 0, 'x', "0"),
            (FormatSpec { is_alternate: true, ..plain }, 255, 'X', "0XFF"),
            (FormatSpec { is_alternate: true, has_zeros: true, width: 8, ..plain }, 255, 'x', "0x0000ff"),
            (FormatSpec { is_alternate: true, width: 8, ..plain }, 255, 'x', "    0xff"),
            (FormatSpec { is_alternate: true, is_left: true, width: 8, ..plain }, 255, 'x', "0xff    "),
            (FormatSpec { has_plus: true, ..plain }, 7, 'u', "7"),
            (FormatSpec { precision: Some(4), ..plain }, 255, 'x', "00ff"),
            (FormatSpec { precision: Some(4), is_alternate: true, ..plain }, 43981, 'x', "0xabcd"),
            (FormatSpec { is_alternate: true, precision: Some(6), ..plain }, 255, 'x', "0x0000ff"),
            (FormatSpec { is_alternate: true, precision: Some(0), ..plain }, 0, 'x', ""),
            (FormatSpec { is_alternate: true, precision: Some(0), ..plain }, 0, 'o', "0"),
            (FormatSpec { is_alternate: true, precision: Some(6), ..plain }, 8, 'o', "000010"),
        ] {
            assert_eq!(spec.unsigned(number, letter), expected, "{spec:?} {letter} {number}");
        }
    }

    #[test]
    fn flags_of_reals_have_the_effects_they_have_in_c() {
        let plain = FormatSpec::default();
        for (spec, number, letter, expected) in [
            (FormatSpec { precision: Some(0), ..plain }, 2.5, 'f', "2"),
            (FormatSpec { precision: Some(0), is_alternate: true, ..plain }, 2.0, 'f', "2."),
            (FormatSpec { ..plain }, -0.0, 'f', "-0.000000"),
            (FormatSpec { has_plus: true, ..plain }, 12345.678, 'e', "+1.234568e+04"),
            (FormatSpec { precision: Some(0), ..plain }, 15.0, 'e', "2e+01"),
            (FormatSpec { precision: Some(2), ..plain }, 1e100, 'e', "1.00e+100"),
            (FormatSpec { precision: Some(2), ..plain }, 1e-7, 'E', "1.00E-07"),
            (FormatSpec { ..plain }, 0.0001, 'g', "0.0001"),
            (FormatSpec { ..plain }, 1e-5, 'g', "1e-05"),
            (FormatSpec { ..plain }, 999999.5, 'g', "1e+06"),
            (FormatSpec { ..plain }, 999999.0, 'g', "999999"),
            (FormatSpec { ..plain }, 100000.0, 'g', "100000"),
            (FormatSpec { precision: Some(0), ..plain }, 25.0, 'g', "2e+01"),
            (FormatSpec { precision: Some(3), ..plain }, 1234.0, 'g', "1.23e+03"),
            (FormatSpec { precision: Some(10), ..plain }, 0.1, 'g', "0.1"),
            (FormatSpec { is_alternate: true, ..plain }, 1.5, 'g', "1.50000"),
            (FormatSpec { ..plain }, 0.0, 'g', "0"),
            (FormatSpec { is_alternate: true, precision: Some(3), ..plain }, 1e10, 'g', "1.00e+10"),
            (FormatSpec { has_zeros: true, width: 9, ..plain }, -1.5, 'f', "-1.500000"),
            (FormatSpec { is_left: true, width: 12, precision: Some(1), ..plain }, 1.25, 'f', "1.2         "),
        ] {
            assert_eq!(spec.real(number, letter), expected, "{spec:?} {letter} {number}");
        }
    }

    #[test]
    fn the_precision_of_a_text_is_its_maximum_number_of_bytes() {
        let of = |precision, width| FormatSpec { precision, width, ..FormatSpec::default() }.text(b"abc");

        assert_eq!([of(Some(2), 0), of(Some(3), 0), of(Some(4), 0)], [&b"ab"[..], b"abc", b"abc"]);
        assert_eq!([of(Some(0), 2), of(None, 3), of(None, 4)], [&b"  "[..], b"abc", b" abc"]);
    }
}
