//! printf and sscanf for one value, and C escapes, for the language with texts.

use super::text::TextValue;
use crate::limit;

/// One conversion, `%-8.3lf`.
#[derive(Debug, Default)]
struct Conversion {
    flags: Vec<u8>,
    width: usize,
    digits: Option<usize>,
    /// `%*d`: read and ignored.
    is_skipped: bool,
    kind: u8,
    /// The characters of `%[...]`; `is_negated`: the set is of all other characters.
    set: Vec<u8>,
    is_negated: bool,
}

impl Conversion {
    /// Parses a conversion after `%`. Also returns the rest of the format. `None`: the conversion is invalid.
    fn read(format: &[u8]) -> Option<(Conversion, &[u8])> {
        let mut conversion = Conversion::default();
        let mut rest = format;
        while let [flag @ (b'-' | b'+' | b' ' | b'#' | b'0' | b'*'), tail @ ..] = rest {
            conversion.is_skipped |= *flag == b'*';
            conversion.flags.push(*flag);
            rest = tail;
        }
        (conversion.width, rest) = digits(rest);
        if let [b'.', tail @ ..] = rest {
            let (n_digits, tail) = digits(tail);
            conversion.digits = Some(n_digits);
            rest = tail;
        }
        while let [b'h' | b'l', tail @ ..] = rest {
            rest = tail;
        }
        let (&kind, tail) = rest.split_first()?;
        conversion.kind = kind;
        if kind != b'[' {
            return Some((conversion, tail));
        }
        let inside = tail.strip_prefix(b"^");
        conversion.is_negated = inside.is_some();
        let inside = inside.unwrap_or(tail);
        // A ']' in the first position is one of the characters.
        let end = inside.iter().skip(1).position(|byte| *byte == b']')? + 1;
        conversion.set = inside.get(..end)?.to_vec();
        Some((conversion, inside.get(end + 1..)?))
    }

    fn has(&self, flag: u8) -> bool {
        self.flags.contains(&flag)
    }

    /// Whether a character is in the set of `%[...]`; `a-z` is a range.
    fn takes(&self, byte: u8) -> bool {
        let ranges = self.set.windows(3).filter(|part| part.get(1) == Some(&b'-'));
        let is_in_range = ranges.into_iter().any(|part| part.first() <= Some(&byte) && Some(&byte) <= part.last());
        (self.set.contains(&byte) || is_in_range) != self.is_negated
    }

    /// Pads to the width.
    fn padded(&self, sign: &str, body: &str) -> Vec<u8> {
        let n_missing = self.width.saturating_sub(sign.len() + body.len());
        if self.has(b'-') {
            format!("{sign}{body}{}", " ".repeat(n_missing)).into_bytes()
        } else if self.has(b'0') && !matches!(self.kind, b's' | b'c') {
            format!("{sign}{}{body}", "0".repeat(n_missing)).into_bytes()
        } else {
            format!("{}{sign}{body}", " ".repeat(n_missing)).into_bytes()
        }
    }

    fn sign(&self, is_negative: bool) -> &'static str {
        match (is_negative, self.has(b'+'), self.has(b' ')) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            (false, false, false) => "",
        }
    }
}

fn digits(text: &[u8]) -> (usize, &[u8]) {
    let n = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = text
        .iter()
        .take(n)
        .fold(0, |number: usize, digit| number.saturating_mul(10).saturating_add(usize::from(digit - b'0')));
    (number.min(limit::CALC_WIDTH_MAX), text.get(n..).unwrap_or_default())
}

/// printf for a format with at most one conversion. `None`: there are more conversions, or an unknown one.
pub(super) fn print(format: &[u8], value: TextValue) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut value = Some(value);
    let mut rest = format;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            out.push(byte);
        } else if let Some(tail) = rest.strip_prefix(b"%") {
            out.push(b'%');
            rest = tail;
        } else {
            let (conversion, tail) = Conversion::read(rest)?;
            out.extend(converted(&conversion, value.take()?)?);
            rest = tail;
        }
    }
    Some(out)
}

fn converted(conversion: &Conversion, value: TextValue) -> Option<Vec<u8>> {
    if conversion.is_skipped {
        return None;
    }
    let number = value.number();
    let whole = number.round() as i64;
    // Wraps like C's unsigned int.
    let bits = whole as u32;
    let padded = |body: String| Some(conversion.padded("", &body));
    match conversion.kind {
        b'd' | b'i' => {
            let body = format!("{:0>1$}", whole.unsigned_abs(), conversion.digits.unwrap_or(1));
            Some(conversion.padded(conversion.sign(whole < 0), &body))
        }
        b'u' => padded(bits.to_string()),
        b'o' => padded(format!("{}{bits:o}", if conversion.has(b'#') { "0" } else { "" })),
        b'x' => padded(format!("{}{bits:x}", if conversion.has(b'#') { "0x" } else { "" })),
        b'X' => padded(format!("{}{bits:X}", if conversion.has(b'#') { "0X" } else { "" })),
        b'c' => Some(conversion.padded("", &char::from(whole as u8).to_string())),
        b's' => {
            let text = value.text(8);
            let text = text.get(..conversion.digits.unwrap_or(text.len()).min(text.len()))?;
            let text = String::from_utf8_lossy(text);
            Some(conversion.padded("", &text))
        }
        b'f' | b'e' | b'E' | b'g' | b'G' => {
            let body = real(conversion, number.abs());
            Some(conversion.padded(conversion.sign(number.is_sign_negative()), &body))
        }
        _ => None,
    }
}

/// Formats a number that is not negative.
fn real(conversion: &Conversion, number: f64) -> String {
    let digits = conversion.digits.unwrap_or(6);
    let text = match conversion.kind {
        _ if number.is_nan() => "nan".into(),
        _ if number.is_infinite() => "inf".into(),
        b'f' => format!("{number:.digits$}"),
        b'e' | b'E' => exponential(number, digits),
        _ => general(number, digits.max(1), conversion.has(b'#')),
    };
    if conversion.kind.is_ascii_uppercase() { text.to_uppercase() } else { text }
}

/// C's `%.*e`: the exponent has a sign and at least two digits.
fn exponential(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.strip_prefix('-') {
        Some(exponent) => format!("{mantissa}e-{exponent:0>2}"),
        None => format!("{mantissa}e+{exponent:0>2}"),
    }
}

/// C's `%.*g`: fixed or exponential, depending on the exponent, without trailing zeros.
fn general(number: f64, digits: usize, keeps_zeros: bool) -> String {
    let rounded = format!("{number:.*e}", digits - 1);
    let exponent: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let is_fixed = exponent >= -4 && exponent < digits as i32;
    let n_decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
    let text = if is_fixed { format!("{number:.n_decimals$}") } else { exponential(number, digits - 1) };
    let (mantissa, exponent) = text
        .split_once('e')
        .map_or((text.as_str(), ""), |(mantissa, _)| (mantissa, text.get(mantissa.len()..).unwrap_or_default()));
    if keeps_zeros || !mantissa.contains('.') {
        return text;
    }
    format!("{}{exponent}", mantissa.trim_end_matches('0').trim_end_matches('.'))
}

/// sscanf for a format of one value. `None`: the text does not match.
pub(super) fn scan(text: &[u8], format: &[u8]) -> Option<TextValue> {
    let mut found = None;
    let (mut text, mut rest) = (text, format);
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte.is_ascii_whitespace() {
            text = text.trim_ascii_start();
        } else if byte == b'%' && !rest.starts_with(b"%") {
            let (conversion, tail) = Conversion::read(rest)?;
            rest = tail;
            if !matches!(conversion.kind, b'c' | b'[') {
                text = text.trim_ascii_start();
            }
            let (value, n_bytes) = scanned(&conversion, text)?;
            text = text.get(n_bytes..)?;
            if !conversion.is_skipped && found.replace(value).is_some() {
                return None;
            }
        } else {
            rest = if byte == b'%' { rest.get(1..)? } else { rest };
            // As in C, the value is kept even if the rest of the format does not match.
            match text.split_first() {
                Some((&other, tail)) if other == byte => text = tail,
                _ => break,
            }
        }
    }
    found
}

/// Parses the value at the start of a text. Also returns its number of bytes.
fn scanned(conversion: &Conversion, text: &[u8]) -> Option<(TextValue, usize)> {
    let limit = if conversion.width == 0 { text.len() } else { conversion.width.min(text.len()) };
    let text = text.get(..limit)?;
    let while_true = |is_accepted: &dyn Fn(u8) -> bool| text.iter().take_while(|byte| is_accepted(**byte)).count();
    let of_text = |n: usize| (n > 0).then(|| (TextValue::Text(text.get(..n).unwrap_or_default().to_vec()), n));
    match conversion.kind {
        b's' => of_text(while_true(&|byte| !byte.is_ascii_whitespace())),
        b'[' => of_text(while_true(&|byte| conversion.takes(byte))),
        b'c' => of_text(conversion.width.max(1).min(text.len())),
        b'd' | b'u' => whole(text, 10),
        b'i' => match text.strip_prefix(b"-").unwrap_or(text) {
            [b'0', b'x' | b'X', ..] => whole(text, 16),
            [b'0', b'0'..=b'7', ..] => whole(text, 8),
            _ => whole(text, 10),
        },
        b'o' => whole(text, 8),
        b'x' | b'X' => whole(text, 16),
        b'e' | b'E' | b'f' | b'g' | b'G' => {
            let words = std::str::from_utf8(text).ok()?;
            let n = (1..=words.len()).rev().find(|n| {
                let start = words.get(..*n);
                start.is_some_and(|start| !start.ends_with(char::is_whitespace) && start.parse::<f64>().is_ok())
            })?;
            Some((TextValue::Number(words.get(..n)?.parse().ok()?), n))
        }
        _ => None,
    }
}

fn whole(text: &[u8], base: u32) -> Option<(TextValue, usize)> {
    let n_sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let body = text.get(n_sign..)?;
    let n_prefix = if base == 16 && matches!(body, [b'0', b'x' | b'X', ..]) { 2 } else { 0 };
    let digits = body.get(n_prefix..)?.iter().map_while(|byte| char::from(*byte).to_digit(base));
    let (number, n_digits) =
        digits.fold((0.0, 0), |(number, n), digit| (number * f64::from(base) + f64::from(digit), n + 1));
    let number = if text.first() == Some(&b'-') { -number } else { number };
    (n_digits > 0).then_some((TextValue::Number(number), n_sign + n_prefix + n_digits))
}

const ESCAPES: [(u8, u8); 9] = [
    (b'a', 7),
    (b'b', 8),
    (b't', b'\t'),
    (b'n', b'\n'),
    (b'v', 11),
    (b'f', 12),
    (b'r', b'\r'),
    (b'\\', b'\\'),
    (b'"', b'"'),
];

/// Replaces non-printable characters by C escapes.
pub(crate) fn escaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in text {
        match ESCAPES.iter().find(|(_, raw)| raw == byte) {
            Some((letter, _)) => out.extend([b'\\', *letter]),
            None if (0x20..0x7f).contains(byte) => out.push(*byte),
            None => out.extend(format!("\\x{byte:02x}").into_bytes()),
        }
    }
    out
}

/// Replaces C escapes (`\n`, `\x41`, `\101`) by their characters.
pub(crate) fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let (base, digits) = match rest.strip_prefix(b"x") {
            Some(digits) => (16, digits),
            None => (8, rest),
        };
        let n_max = if base == 16 { 2 } else { 3 };
        let numbers = digits.iter().take(n_max).map_while(|digit| char::from(*digit).to_digit(base));
        let (number, n) = numbers.fold((0, 0), |(number, n), digit| (number * base + digit, n + 1));
        if n > 0 {
            out.push(number as u8);
            rest = digits.get(n..).unwrap_or_default();
        } else if let Some((letter, tail)) = rest.split_first() {
            out.push(ESCAPES.iter().find(|(name, _)| name == letter).map_or(*letter, |(_, raw)| *raw));
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(format: &str, number: f64) -> String {
        let text = print(format.as_bytes(), TextValue::Number(number));
        text.map_or("none".into(), |text| String::from_utf8_lossy(&text).into_owned())
    }

    #[test]
    fn numbers_are_printed_as_c_prints_them() {
        assert_eq!(printed("%d", -2.5), "-3");
        assert_eq!(printed("%05d|", 42.0), "00042|");
        assert_eq!(printed("%-5d|", 42.0), "42   |");
        assert_eq!(printed("%+.3d", 7.0), "+007");
        assert_eq!(printed("%#x %%", 255.0), "0xff %");
        assert_eq!(printed("%8.3f", -1.0), "  -1.000");
        assert_eq!(printed("%.2e", 12345.0), "1.23e+04");
        assert_eq!(printed("%g", 0.0001), "0.0001");
        assert_eq!(printed("%g", 1e-5), "1e-05");
        assert_eq!(printed("%g", 1_234_567.0), "1.23457e+06");
        assert_eq!(printed("%G", 100_000.0), "100000");
        assert_eq!(printed("%c", 65.0), "A");
        assert_eq!(printed("no value", 1.0), "no value");
        assert_eq!(printed("%d %d", 1.0), "none");
        assert_eq!(printed("%*d", 1.0), "none");
        assert_eq!(printed("%n", 1.0), "none");
    }

    #[test]
    fn sscanf_formats_parse_values_like_c() {
        let number = |text: &str, format: &str| scan(text.as_bytes(), format.as_bytes());
        assert_eq!(number("pos 12.5mm", "pos %lf"), Some(TextValue::Number(12.5)));
        assert_eq!(number("a=1 b=2", "a=%*d b=%d"), Some(TextValue::Number(2.0)));
        assert_eq!(number("0x1F", "%i"), Some(TextValue::Number(31.0)));
        assert_eq!(number("12345", "%3d"), Some(TextValue::Number(123.0)));
        assert_eq!(number("ab-cd!", "%[a-z-]"), Some(TextValue::Text(b"ab-cd".to_vec())));
        assert_eq!(number("key: value", "%[^:]"), Some(TextValue::Text(b"key".to_vec())));
        assert_eq!(number("nothing", "%d"), None);
        assert_eq!(number("1 2", "%d %d"), None);
    }

    #[test]
    fn escaping_and_unescaping_round_trip() {
        assert_eq!(escaped(b"a\r\n\x01\""), b"a\\r\\n\\x01\\\"");
        assert_eq!(unescaped(b"a\\r\\n\\x01\\101\\q"), b"a\r\n\x01Aq");
    }

    #[test]
    fn unsigned_octal_and_hexadecimal_numbers_are_printed_and_parsed_as_in_c() {
        assert_eq!(printed("%u", 42.0), "42");
        assert_eq!(printed("%u", -1.0), "4294967295");
        assert_eq!([printed("%o", 8.0), printed("%#o", 8.0)], ["10", "010"]);
        assert_eq!([printed("%X", 255.0), printed("%#X", 255.0), printed("%x", 255.0)], ["FF", "0XFF", "ff"]);
        let found = |text: &str, format: &str| scan(text.as_bytes(), format.as_bytes());
        let number = |number| Some(TextValue::Number(number));
        assert_eq!(
            [found("17", "%o"), found("1F", "%x"), found("0x1f", "%X")],
            [number(15.0), number(31.0), number(31.0)]
        );
        assert_eq!(
            [found("017", "%i"), found("17", "%i"), found("-017", "%i")],
            [number(15.0), number(17.0), number(-15.0)]
        );
        assert_eq!(found(" ab", "%2c"), Some(TextValue::Text(b" a".to_vec())));
    }
}
