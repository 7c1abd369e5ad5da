//! Numbers to text and back, and one kind to another, as the field's programs do it.

use std::fmt;
use std::sync::Arc;

use crate::{Array, Kind, Meta, Scalar, Text, Value};

/// Why a value cannot become another kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConvertError {
    /// The text is not a number, or not a whole number where one is needed.
    NotANumber(Text),
    /// The number does not fit the kind.
    OutOfRange(Text),
    /// The text names no state, and is no index of one.
    NoSuchState(Text),
    /// There is no element to convert.
    Empty,
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConvertError::NotANumber(text) => write!(f, "\"{text}\" is not a number"),
            ConvertError::OutOfRange(text) => write!(f, "{text} does not fit"),
            ConvertError::NoSuchState(text) => write!(f, "\"{text}\" names no state"),
            ConvertError::Empty => write!(f, "there is no element"),
        }
    }
}

impl std::error::Error for ConvertError {}

/// A number with `precision` digits after the point, as servers of the field print it.
///
/// Fixed notation up to 1e7 in magnitude, with at most three decimals up to 1e16, else scientific; so
/// are all numbers with more than eight digits, right-aligned in seven columns more than these, and infinite ones.
/// Halves round away from zero. A precision that makes no sense counts as 17.
/// Source: EPICS Base 7.0, cvtDoubleToString; compared with softIoc 7.0.10.
pub fn format_f64(number: f64, precision: i16) -> String {
    format_real(number, precision, 7)
}

/// As [`format_f64`], in one column less, as Base has it for this kind.
pub fn format_f32(number: f32, precision: i16) -> String {
    format_real(f64::from(number), precision, 6)
}

/// `n_columns`: how many more than digits what is aligned has.
fn format_real(number: f64, precision: i16, n_columns: usize) -> String {
    const DIGITS_MAX: u16 = 17;
    let digits = usize::from(u16::try_from(precision).map_or(DIGITS_MAX, |digits| digits.min(DIGITS_MAX)));
    if number.is_nan() && digits <= 8 {
        return "nan".into();
    }
    if !number.is_finite() {
        let text = number.to_string().to_lowercase();
        return format!("{text:>0$}", digits + n_columns);
    }
    let size = number.abs();
    if digits > 8 || size > 1e16 {
        return format!("{:>1$}", format_exponent(number, digits), digits + n_columns);
    }
    if size > 1e7 {
        return format!("{number:.*}", digits.min(3));
    }
    format_fixed(number, digits)
}

/// At most eight digits of a number up to 1e7, halves away from zero.
fn format_fixed(number: f64, digits: usize) -> String {
    let places = 10_u64.pow(digits.min(8) as u32);
    let size = number.abs();
    let mut whole = size.trunc() as u64;
    let scaled = size.fract() * places as f64;
    let mut fraction = scaled.trunc() as u64;
    if scaled - scaled.trunc() >= 0.5 {
        fraction += 1;
    }
    if fraction >= places {
        fraction -= places;
        whole += 1;
    }
    let sign = if number < 0.0 { "-" } else { "" };
    if digits == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction:0digits$}") }
}

/// C's `%.*e`: at least two digits of exponent, with its sign.
fn format_exponent(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, size) = match exponent.strip_prefix('-') {
                Some(size) => ('-', size),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{size:0>2}")
        }
        None => text,
    }
}

/// The number that a text starts with: decimal, hexadecimal (`0x`), `nan`, `inf`. What follows it,
/// such as units, does not count. Empty text is 0.
///
/// Source: EPICS Base 7.0, epicsParseDouble as dbConvert calls it; compared with softIoc 7.0.10.
pub fn parse_f64(text: &Text) -> Result<f64, ConvertError> {
    let string = text.to_str();
    if string.is_empty() {
        return Ok(0.0);
    }
    let trimmed = string.trim_start();
    let unsigned = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    let sign = if trimmed.starts_with('-') { -1.0 } else { 1.0 };
    let starts = |word: &str| unsigned.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    if starts("nan") {
        return Ok(f64::NAN);
    }
    if starts("inf") {
        return Ok(sign * f64::INFINITY);
    }
    if starts("0x") {
        return Ok(sign * parse_hexadecimal(unsigned.get(2..).unwrap_or_default()));
    }
    let number: f64 = decimal(unsigned).parse().map_err(|_| ConvertError::NotANumber(text.clone()))?;
    if number.is_infinite() {
        return Err(ConvertError::OutOfRange(text.clone()));
    }
    Ok(sign * number)
}

/// The part of a text that is a decimal number with a point and an exponent.
fn decimal(text: &str) -> &str {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    let mut length = digits(0);
    if bytes.get(length) == Some(&b'.') {
        length += 1 + digits(length + 1);
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'-' | b'+')));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    text.get(..length).unwrap_or_default()
}

/// The digits after `0x`, with a point and a binary exponent, as C's `strtod` takes them.
fn parse_hexadecimal(text: &str) -> f64 {
    let mut number = 0.0;
    let mut exponent = 0;
    let mut has_point = false;
    let mut rest = text.chars();
    for character in rest.by_ref() {
        match (character.to_digit(16), character) {
            (Some(digit), _) => {
                number = number * 16.0 + f64::from(digit);
                exponent -= if has_point { 4 } else { 0 };
            }
            (None, '.') if !has_point => has_point = true,
            (None, 'p' | 'P') => {
                let digits = rest.as_str();
                let unsigned = digits.strip_prefix(['-', '+']).unwrap_or(digits);
                let end = unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len());
                let size = unsigned.get(..end).and_then(|size| size.parse::<i32>().ok()).unwrap_or(0).min(5000);
                exponent += if digits.starts_with('-') { -size } else { size };
                break;
            }
            _ => break,
        }
    }
    number * f64::from(exponent).exp2()
}

/// The whole number that a text starts with: decimal, hexadecimal (`0x`) or octal (`0`). What follows
/// it does not count, not even decimals. Empty text is 0.
pub fn parse_i64(text: &Text) -> Result<i64, ConvertError> {
    let whole = parse_whole(text)?;
    i64::try_from(whole).map_err(|_| ConvertError::OutOfRange(text.clone()))
}

/// The whole number that a text starts with; a negative one wraps, as C's `strtoul` lets it.
pub fn parse_u64(text: &Text) -> Result<u64, ConvertError> {
    wrapped(parse_whole(text)?, u64::MAX).ok_or_else(|| ConvertError::OutOfRange(text.clone()))
}

/// A number for an unsigned kind whose greatest is `max`: as great a negative one wraps.
fn wrapped(number: i128, max: u64) -> Option<u64> {
    let size = u64::try_from(number.unsigned_abs()).ok().filter(|size| *size <= max)?;
    Some(if number < 0 { size.wrapping_neg() & max } else { size })
}

/// C's `strtol` and `strtoul` with base 0, but for what they do not find.
fn parse_whole(text: &Text) -> Result<i128, ConvertError> {
    let string = text.to_str();
    if string.is_empty() {
        return Ok(0);
    }
    let trimmed = string.trim_start();
    let unsigned = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    let (base, digits) = match unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if unsigned.starts_with('0') => (8, unsigned),
        None => (10, unsigned),
    };
    let end = digits.find(|character: char| !character.is_digit(base)).unwrap_or(digits.len());
    let digits = digits.get(..end).unwrap_or_default();
    if digits.is_empty() && base != 16 {
        return Err(ConvertError::NotANumber(text.clone()));
    }
    let size = match digits {
        // `0x` alone is the 0 that it starts with.
        "" => 0,
        digits => u64::from_str_radix(digits, base).map_err(|_| ConvertError::OutOfRange(text.clone()))?,
    };
    let size = i128::from(size);
    Ok(if trimmed.starts_with('-') { -size } else { size })
}

macro_rules! number_to {
    ($scalar:expr, $target:ty) => {
        match $scalar {
            Scalar::I8(n) => *n as $target,
            Scalar::U8(n) => *n as $target,
            Scalar::I16(n) => *n as $target,
            Scalar::U16(n) | Scalar::Enum(n) => *n as $target,
            Scalar::I32(n) => *n as $target,
            Scalar::U32(n) => *n as $target,
            Scalar::I64(n) => *n as $target,
            Scalar::U64(n) => *n as $target,
            Scalar::F32(n) => *n as $target,
            Scalar::F64(n) => *n as $target,
            Scalar::Text(_) => unreachable!("texts are parsed, not cast"),
        }
    };
}

impl Scalar {
    /// As a floating point number; a text is parsed.
    pub fn to_f64(&self) -> Result<f64, ConvertError> {
        match self {
            Scalar::Text(text) => parse_f64(text),
            number => Ok(number_to!(number, f64)),
        }
    }

    /// As text: numbers by `meta`'s precision, enums by its labels.
    pub fn to_text(&self, meta: Option<&Meta>) -> Text {
        match self {
            Scalar::Text(text) => text.clone(),
            Scalar::F64(n) => format_f64(*n, meta.map_or(0, |meta| meta.precision)).into(),
            Scalar::F32(n) => format_f32(*n, meta.map_or(0, |meta| meta.precision)).into(),
            Scalar::Enum(index) => meta
                .and_then(|meta| meta.labels.get(usize::from(*index)).or(meta.unlabelled.as_ref()).cloned())
                .unwrap_or_else(|| index.to_string().into()),
            Scalar::U64(n) => n.to_string().into(),
            number => number_to!(number, i64).to_string().into(),
        }
    }

    /// As another kind. Floating point numbers are cut towards zero and held to the kind's range;
    /// whole numbers wrap, as C's casts do; texts are parsed, and name states of `meta` for enums.
    pub fn to_kind(&self, kind: Kind, meta: Option<&Meta>) -> Result<Scalar, ConvertError> {
        if self.kind() == kind {
            return Ok(self.clone());
        }
        if kind == Kind::Text {
            return Ok(Scalar::Text(self.to_text(meta)));
        }
        match self {
            Scalar::Text(text) => text_to_kind(text, kind, meta),
            number => Ok(cast(number, kind)),
        }
    }
}

fn cast(number: &Scalar, kind: Kind) -> Scalar {
    match number {
        Scalar::F64(number) => cut(*number, kind),
        Scalar::F32(number) if kind != Kind::F64 => cut(f64::from(*number), kind),
        number => wrap(number, kind),
    }
}

/// A floating point number as another kind, cut towards zero: through 32 bits for short kinds, so
/// that -1 becomes all bits, as C's casts do on most machines. What they leave open is held to range.
fn cut(number: f64, kind: Kind) -> Scalar {
    match kind {
        Kind::I8 | Kind::U8 | Kind::I16 | Kind::U16 | Kind::Enum => wrap(&Scalar::I32(number as i32), kind),
        Kind::U32 if number < 0.0 => wrap(&Scalar::I64(number as i64), kind),
        Kind::U64 if number < 0.0 => Scalar::U64(number as i64 as u64),
        kind => wrap(&Scalar::F64(number), kind),
    }
}

fn wrap(number: &Scalar, kind: Kind) -> Scalar {
    match kind {
        Kind::I8 => Scalar::I8(number_to!(number, i8)),
        Kind::U8 => Scalar::U8(number_to!(number, u8)),
        Kind::I16 => Scalar::I16(number_to!(number, i16)),
        Kind::U16 => Scalar::U16(number_to!(number, u16)),
        Kind::I32 => Scalar::I32(number_to!(number, i32)),
        Kind::U32 => Scalar::U32(number_to!(number, u32)),
        Kind::I64 => Scalar::I64(number_to!(number, i64)),
        Kind::U64 => Scalar::U64(number_to!(number, u64)),
        Kind::F32 => Scalar::F32(number_to!(number, f32)),
        Kind::F64 => Scalar::F64(number_to!(number, f64)),
        Kind::Enum => Scalar::Enum(number_to!(number, u16)),
        Kind::Text => unreachable!("handled by the caller"),
    }
}

fn text_to_kind(text: &Text, kind: Kind, meta: Option<&Meta>) -> Result<Scalar, ConvertError> {
    let out_of_range = || ConvertError::OutOfRange(text.clone());
    macro_rules! signed {
        ($variant:ident, $rust:ty) => {
            Scalar::$variant(<$rust>::try_from(parse_whole(text)?).map_err(|_| out_of_range())?)
        };
    }
    macro_rules! unsigned {
        ($variant:ident, $rust:ty) => {
            Scalar::$variant(wrapped(parse_whole(text)?, <$rust>::MAX.into()).ok_or_else(out_of_range)? as $rust)
        };
    }
    Ok(match kind {
        Kind::F64 => Scalar::F64(parse_f64(text)?),
        Kind::F32 => Scalar::F32(parse_f64(text)? as f32),
        Kind::I8 => signed!(I8, i8),
        Kind::I16 => signed!(I16, i16),
        Kind::I32 => signed!(I32, i32),
        Kind::I64 => signed!(I64, i64),
        Kind::U8 => unsigned!(U8, u8),
        Kind::U16 => unsigned!(U16, u16),
        // For these two, and no others, Base takes decimals and exponents.
        Kind::U32 | Kind::U64 if is_decimal(text) => cut(parse_f64(text)?, kind),
        Kind::U32 => unsigned!(U32, u32),
        Kind::U64 => unsigned!(U64, u64),
        Kind::Enum => Scalar::Enum(state(text, meta)?),
        Kind::Text => Scalar::Text(text.clone()),
    })
}

/// Whether a text is a number with decimals or an exponent, or one that is not whole at all.
fn is_decimal(text: &Text) -> bool {
    let string = text.to_str();
    let trimmed = string.trim_start();
    let unsigned = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    let after = unsigned.trim_start_matches(|character: char| character.is_ascii_digit());
    after.starts_with(['.', 'e', 'E']) || (after.len() == unsigned.len() && !after.is_empty())
}

/// The state that a text names, or whose number it is.
fn state(text: &Text, meta: Option<&Meta>) -> Result<u16, ConvertError> {
    let labels = meta.map_or(&[][..], |meta| &meta.labels);
    if let Some(index) = labels.iter().position(|label| label == text) {
        return Ok(index as u16);
    }
    let string = text.to_str();
    let index: Option<u16> = string.trim().parse().ok();
    let index = index.filter(|index| labels.is_empty() || usize::from(*index) < labels.len());
    index.ok_or_else(|| ConvertError::NoSuchState(text.clone()))
}

impl Array {
    /// Every element as another kind, under the rules of [`Scalar::to_kind`]; no copy for the same.
    pub fn to_kind(&self, kind: Kind, meta: Option<&Meta>) -> Result<Array, ConvertError> {
        if self.kind() == kind {
            return Ok(self.clone());
        }
        macro_rules! collect {
            ($variant:ident) => {{
                let mut elements = Vec::with_capacity(self.len());
                for index in 0..self.len() {
                    match self.scalar(index).map(|scalar| scalar.to_kind(kind, meta)) {
                        Some(Ok(Scalar::$variant(element))) => elements.push(element),
                        Some(Err(error)) => return Err(error),
                        _ => unreachable!("to_kind gives the kind it was asked for"),
                    }
                }
                Array::$variant(Arc::new(elements))
            }};
        }
        Ok(match kind {
            Kind::I8 => collect!(I8),
            Kind::U8 => collect!(U8),
            Kind::I16 => collect!(I16),
            Kind::U16 => collect!(U16),
            Kind::I32 => collect!(I32),
            Kind::U32 => collect!(U32),
            Kind::I64 => collect!(I64),
            Kind::U64 => collect!(U64),
            Kind::F32 => collect!(F32),
            Kind::F64 => collect!(F64),
            Kind::Enum => collect!(Enum),
            Kind::Text => collect!(Text),
        })
    }
}

impl Value {
    /// The first element as a floating point number; a text is parsed. Fails for an empty array.
    pub fn to_f64(&self) -> Result<f64, ConvertError> {
        self.first().ok_or(ConvertError::Empty)?.to_f64()
    }

    /// Every element as another kind, under the rules of [`Scalar::to_kind`].
    pub fn to_kind(&self, kind: Kind, meta: Option<&Meta>) -> Result<Value, ConvertError> {
        Ok(match self {
            Value::Scalar(scalar) => Value::Scalar(scalar.to_kind(kind, meta)?),
            Value::Array(array) => Value::Array(array.to_kind(kind, meta)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_the_field_prints_them() {
        assert_eq!(format_f64(1.5, 3), "1.500");
        assert_eq!(format_f64(12_345_678.25, 6), "12345678.250");
        assert_eq!(format_f64(1e17, 2), " 1.00e+17");
        assert_eq!(format_f64(f64::NAN, 2), "nan");
    }

    #[test]
    fn a_text_names_a_state_or_its_index_and_nothing_else() {
        let meta = Meta { labels: vec!["OFF".into(), "ON".into()], ..Meta::default() };
        let to_enum = |text: &str| Scalar::Text(text.into()).to_kind(Kind::Enum, Some(&meta));

        assert_eq!(to_enum("ON"), Ok(Scalar::Enum(1)));
        assert_eq!(to_enum("1"), Ok(Scalar::Enum(1)));
        assert_eq!(to_enum("2"), Err(ConvertError::NoSuchState("2".into())));
        assert_eq!(to_enum("MAYBE"), Err(ConvertError::NoSuchState("MAYBE".into())));
    }

    #[test]
    fn a_whole_number_must_fit_its_kind() {
        let to_i16 = |text: &str| Scalar::Text(text.into()).to_kind(Kind::I16, None);

        assert_eq!(to_i16("0x7f"), Ok(Scalar::I16(127)));
        assert_eq!(to_i16("40000"), Err(ConvertError::OutOfRange("40000".into())));
        assert_eq!(to_i16("abc"), Err(ConvertError::NotANumber("abc".into())));
    }

    #[test]
    fn halves_round_away_from_zero_and_zero_has_no_sign() {
        assert_eq!(format_f64(2.5, 0), "3");
        assert_eq!(format_f64(0.125, 2), "0.13");
        assert_eq!(format_f64(-2.25, 0), "-2");
        assert_eq!(format_f64(-0.0, 1), "0.0");
        assert_eq!(format_f64(0.999, 2), "1.00");
        assert_eq!(format_f64(1.5, -1), " 1.50000000000000000e+00");
        assert_eq!(format_f64(12345.678, 9), " 1.234567800e+04");
    }

    /// Rows captured from softIoc 7.0.10: a text put to a field of each kind, and what it became.
    #[test]
    fn texts_become_numbers_as_in_softioc() {
        let put =
            |text: &str, kind| Scalar::Text(text.into()).to_kind(kind, None).and_then(|scalar| scalar.to_f64()).ok();
        let rows: [(&str, [Option<f64>; 6]); 17] = [
            // U8, I16, U16, I32, U32, F64
            ("5.7", [Some(5.0), Some(5.0), Some(5.0), Some(5.0), Some(5.0), Some(5.7)]),
            ("-5.7", [Some(251.0), Some(-5.0), Some(65531.0), Some(-5.0), Some(4294967291.0), Some(-5.7)]),
            ("12abc", [Some(12.0); 6]),
            ("", [Some(0.0); 6]),
            ("  7 mm", [Some(7.0); 6]),
            ("0x10", [Some(16.0); 6]),
            ("010", [Some(8.0), Some(8.0), Some(8.0), Some(8.0), Some(8.0), Some(10.0)]),
            ("1e3", [Some(1.0), Some(1.0), Some(1.0), Some(1.0), Some(1000.0), Some(1000.0)]),
            ("1e400", [Some(1.0), Some(1.0), Some(1.0), Some(1.0), None, None]),
            ("99999999999", [None, None, None, None, None, Some(99999999999.0)]),
            ("-1", [Some(255.0), Some(-1.0), Some(65535.0), Some(-1.0), Some(4294967295.0), Some(-1.0)]),
            ("-2147483649", [None, None, None, None, Some(2147483647.0), Some(-2147483649.0)]),
            ("0x", [Some(0.0); 6]),
            (".5", [None, None, None, None, Some(0.0), Some(0.5)]),
            ("-129", [Some(127.0), Some(-129.0), Some(65407.0), Some(-129.0), Some(4294967167.0), Some(-129.0)]),
            ("0x1p3", [Some(1.0), Some(1.0), Some(1.0), Some(1.0), Some(1.0), Some(8.0)]),
            ("abc", [None; 6]),
        ];
        for (text, wanted) in rows {
            let kinds = [Kind::U8, Kind::I16, Kind::U16, Kind::I32, Kind::U32, Kind::F64];
            assert_eq!(kinds.map(|kind| put(text, kind)), wanted, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_cut_and_wrap_as_casts_do() {
        let cut = |number: f64, kind| Scalar::F64(number).to_kind(kind, None);

        assert_eq!(cut(-5.7, Kind::U8), Ok(Scalar::U8(251)));
        assert_eq!(cut(300.0, Kind::U8), Ok(Scalar::U8(44)));
        assert_eq!(cut(70000.0, Kind::Enum), Ok(Scalar::Enum(4464)));
        assert_eq!(cut(3e9, Kind::U32), Ok(Scalar::U32(3_000_000_000)));
        assert_eq!(cut(-1.0, Kind::U32), Ok(Scalar::U32(u32::MAX)));
        assert_eq!(cut(3e9, Kind::I32), Ok(Scalar::I32(i32::MAX)));
        assert_eq!(cut(f64::NAN, Kind::I32), Ok(Scalar::I32(0)));
    }
}
