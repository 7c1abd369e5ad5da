//! Conversions between numbers and text, and from one kind to another, with the same results as EPICS Base.

use std::fmt;
use std::sync::Arc;

use crate::{Array, Kind, Meta, Scalar, Text, Value};

/// Why a value cannot be converted to another kind.
///
/// ```
/// use fodo_data::{ConvertError, Kind, Value};
///
/// let error = Value::from("wide").to_kind(Kind::F64, None).unwrap_err();
/// assert_eq!(error, ConvertError::NotANumber("wide".into()));
/// assert_eq!(error.to_string(), "\"wide\" is not a number");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConvertError {
    /// The text is not a number, or does not start with an integer where one is required.
    NotANumber(Text),
    /// The number is out of range for the kind.
    OutOfRange(Text),
    /// The text is neither a state name nor a valid state index.
    NoSuchState(Text),
    /// The array has no element to convert.
    Empty,
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConvertError::NotANumber(text) => write!(f, "\"{text}\" is not a number"),
            ConvertError::OutOfRange(text) => write!(f, "{text} is out of range"),
            ConvertError::NoSuchState(text) => write!(f, "\"{text}\" is not a valid state"),
            ConvertError::Empty => write!(f, "the array is empty"),
        }
    }
}

impl std::error::Error for ConvertError {}

/// Formats a number with `precision` digits after the point, the same as EPICS servers.
///
/// Fixed notation up to 1e7 in magnitude, and up to 1e16 with at most three decimals; scientific notation beyond, and
/// always for a precision above 8. Scientific notation and infinite numbers are right-aligned to a width of seven
/// more than `precision`. Halves round away from zero. A negative precision, or one above 17, counts as 17.
/// Source: EPICS Base 7.0, cvtDoubleToString; compared with softIoc 7.0.10.
///
/// ```
/// use fodo_data::format_f64;
///
/// assert_eq!(format_f64(0.125, 2), "0.13");
/// assert_eq!(format_f64(2e20, 2), " 2.00e+20");
/// ```
pub fn format_f64(number: f64, precision: i16) -> String {
    format_real(number, precision, 7, 1e16)
}

/// The same as [`format_f64`], but scientific from 1e8 on, with a width of six more than `precision`, the same as Base.
///
/// ```
/// use fodo_data::format_f32;
///
/// assert_eq!(format_f32(0.125, 2), "0.13");
/// assert_eq!(format_f32(2e20, 2), "2.00e+20");
/// ```
pub fn format_f32(number: f32, precision: i16) -> String {
    let number = f64::from(number);
    format_real(number, precision, 6, 1e8_f64.next_down())
}

/// `n_columns`: width of right-aligned output beyond the number of digits. `fixed_max`: the largest magnitude in fixed
/// notation.
fn format_real(number: f64, precision: i16, n_columns: usize, fixed_max: f64) -> String {
    const DIGITS_MAX: u16 = 17;
    let digits = usize::from(u16::try_from(precision).map_or(DIGITS_MAX, |digits| digits.min(DIGITS_MAX)));
    if !number.is_finite() {
        let sign = if number.is_sign_negative() { "-" } else { "" };
        let text = format!("{sign}{}", if number.is_nan() { "nan" } else { "inf" });
        if number.is_nan() && digits <= 8 {
            return text;
        }
        return format!("{text:>0$}", digits + n_columns);
    }
    let size = number.abs();
    if digits > 8 || size > fixed_max {
        return format!("{:>1$}", format_exponent(number, digits), digits + n_columns);
    }
    if size > 1e7 {
        return format!("{number:.*}", digits.min(3));
    }
    format_fixed(number, digits)
}

/// Formats a number up to 1e7 with at most eight digits; halves round away from zero.
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

/// The same as C's `%.*e`: a signed exponent of at least two digits.
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

/// Parses the number at the start of a text: decimal, hexadecimal (`0x`), `nan` or `inf`. Anything after the number,
/// such as units, is ignored. Empty text is 0.
///
/// Source: EPICS Base 7.0, epicsParseDouble as called by dbConvert; compared with softIoc 7.0.10.
///
/// ```
/// use fodo_data::parse_f64;
///
/// assert_eq!(parse_f64(&"12.5 mm".into()), Ok(12.5));
/// assert_eq!(parse_f64(&"0x10".into()), Ok(16.0));
/// assert!(parse_f64(&"wide".into()).is_err());
/// ```
pub fn parse_f64(text: &Text) -> Result<f64, ConvertError> {
    let string = text.to_str();
    if string.is_empty() {
        return Ok(0.0);
    }
    number_at_start(&string).map(|(number, _)| number)
}

/// Parses the number at the start of a text by the rules of [`parse_f64`]. Also returns its length in bytes, including
/// leading white space. A decimal number that overflows, or is smaller than the smallest normal number, is out of
/// range.
///
/// ```
/// use fodo_data::number_at_start;
///
/// let text = " 12.5 mm";
/// assert_eq!(number_at_start(text).map(|(number, n_bytes)| (number, &text[n_bytes..])), Ok((12.5, " mm")));
/// ```
pub fn number_at_start(text: &str) -> Result<(f64, usize), ConvertError> {
    let trimmed = text.trim_start();
    let unsigned = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    let (size, n_bytes) = match special_number_at_start(unsigned) {
        Some(word) => word,
        None => digits_at_start(unsigned, text)?,
    };
    let sign = if trimmed.starts_with('-') { -1.0 } else { 1.0 };
    Ok((size.copysign(sign), text.len() - unsigned.len() + n_bytes))
}

/// Parses `inf`, `infinity`, `nan` and `nan(...)`, ignoring case.
fn special_number_at_start(text: &str) -> Option<(f64, usize)> {
    let starts = |word: &str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let words = [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)];
    let (word, number) = words.into_iter().find(|(word, _)| starts(word))?;
    let inside = text.get(word.len()..).and_then(|rest| rest.strip_prefix('(')).filter(|_| number.is_nan());
    let n_inside = inside.and_then(|inside| {
        let end = inside.find(|character: char| !character.is_ascii_alphanumeric() && character != '_')?;
        inside.get(end..)?.starts_with(')').then_some(end + 2)
    });
    Some((number, word.len() + n_inside.unwrap_or(0)))
}

fn digits_at_start(unsigned: &str, text: &str) -> Result<(f64, usize), ConvertError> {
    let prefixed = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"));
    let is_hexadecimal =
        |rest: &&str| rest.trim_start_matches('.').starts_with(|digit: char| digit.is_ascii_hexdigit());
    if let Some(digits) = prefixed.filter(is_hexadecimal) {
        let (size, rest) = hexadecimal(digits);
        return Ok((size, unsigned.len() - rest.len()));
    }
    let digits = decimal(unsigned);
    let size: f64 = digits.parse().map_err(|_| ConvertError::NotANumber(text.into()))?;
    let is_zero =
        digits.bytes().take_while(|byte| !matches!(byte, b'e' | b'E')).all(|byte| matches!(byte, b'0' | b'.'));
    if size.is_infinite() || !(is_zero || size.is_normal()) {
        return Err(ConvertError::OutOfRange(text.into()));
    }
    Ok((size, digits.len()))
}

/// The same as [`parse_f64`]; as in Base, a number too large or too small for the kind is out of range.
fn parse_f32(text: &Text) -> Result<f32, ConvertError> {
    let number = parse_f64(text)?;
    let is_too_small = number > 0.0 && number <= f32::MIN_POSITIVE.into();
    let is_too_large = number.is_finite() && number.abs() >= f32::MAX.into();
    if is_too_small || is_too_large { Err(ConvertError::OutOfRange(text.clone())) } else { Ok(number as f32) }
}

/// The leading part of a text that is a decimal number with an optional point and exponent.
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

/// Parses the digits after `0x`, with a point and a binary exponent, the same as C's `strtod`. Also returns the rest of
/// the text.
fn hexadecimal(text: &str) -> (f64, &str) {
    let (mut number, mut exponent, mut has_point) = (0.0, 0, false);
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        match (character.to_digit(16), character) {
            (Some(digit), _) => {
                number = number * 16.0 + f64::from(digit);
                exponent -= if has_point { 4 } else { 0 };
            }
            (None, '.') if !has_point => has_point = true,
            (None, 'p' | 'P') => {
                let digits = rest.get(1..).unwrap_or_default();
                let unsigned = digits.strip_prefix(['-', '+']).unwrap_or(digits);
                let end = unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len());
                if let Some(size) = unsigned.get(..end).filter(|size| !size.is_empty()) {
                    let size = size.parse().unwrap_or(5000).min(5000);
                    exponent += if digits.starts_with('-') { -size } else { size };
                    rest = unsigned.get(end..).unwrap_or_default();
                }
                break;
            }
            _ => break,
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    (number * f64::from(exponent).exp2(), rest)
}

/// Parses the integer at the start of a text: decimal, hexadecimal (`0x`) or octal (`0`). Anything after it is ignored,
/// including decimals. Empty text is 0.
///
/// ```
/// use fodo_data::parse_i64;
///
/// assert_eq!(parse_i64(&"-12.9".into()), Ok(-12));
/// assert_eq!(parse_i64(&"010".into()), Ok(8));
/// ```
pub fn parse_i64(text: &Text) -> Result<i64, ConvertError> {
    let whole = parse_whole(text)?;
    i64::try_from(whole).map_err(|_| ConvertError::OutOfRange(text.clone()))
}

/// The same as [`parse_i64`], unsigned; negative values wrap, the same as in C's `strtoul`.
///
/// ```
/// use fodo_data::parse_u64;
///
/// assert_eq!(parse_u64(&"0xff".into()), Ok(255));
/// assert_eq!(parse_u64(&"-1".into()), Ok(u64::MAX));
/// ```
pub fn parse_u64(text: &Text) -> Result<u64, ConvertError> {
    wrapped(parse_whole(text)?, u64::MAX).ok_or_else(|| ConvertError::OutOfRange(text.clone()))
}

/// Converts to an unsigned kind with maximum `max`; negative values down to `-max` wrap.
fn wrapped(number: i128, max: u64) -> Option<u64> {
    let size = u64::try_from(number.unsigned_abs()).ok().filter(|size| *size <= max)?;
    Some(if number < 0 { size.wrapping_neg() & max } else { size })
}

/// Parses the integer at the start of a text by the rules of [`integer_at_start`]. Empty text is 0.
fn parse_whole(text: &Text) -> Result<i128, ConvertError> {
    let string = text.to_str();
    if string.is_empty() {
        return Ok(0);
    }
    integer_at_start(&string).map(|(number, _)| number)
}

/// Parses the integer at the start of a text, the same as C's `strtol` and `strtoul` with base 0: decimal, `0x`
/// hexadecimal or `0` octal, with a sign. Returns the number, which has at most 64 bits and a sign, and its length in
/// bytes, including leading white space.
///
/// ```
/// use fodo_data::integer_at_start;
///
/// assert_eq!(integer_at_start("-0x1f mm"), Ok((-31, 5)));
/// assert_eq!(integer_at_start("017"), Ok((15, 3)));
/// assert!(integer_at_start("mm").is_err());
/// ```
pub fn integer_at_start(text: &str) -> Result<(i128, usize), ConvertError> {
    let trimmed = text.trim_start();
    let unsigned = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    let is_hexadecimal = |digits: &&str| digits.starts_with(|digit: char| digit.is_ascii_hexdigit());
    let prefixed = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")).filter(is_hexadecimal);
    let (base, digits) = match prefixed {
        Some(digits) => (16, digits),
        // In `0x` without digits, the 0 is the number.
        None if unsigned.starts_with('0') => (8, unsigned),
        None => (10, unsigned),
    };
    let end = digits.find(|character: char| !character.is_digit(base)).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at_checked(end).unwrap_or_default();
    if digits.is_empty() {
        return Err(ConvertError::NotANumber(text.into()));
    }
    let size = u64::from_str_radix(digits, base).map_err(|_| ConvertError::OutOfRange(text.into()))?;
    let size = i128::from(size);
    Ok((if trimmed.starts_with('-') { -size } else { size }, text.len() - rest.len()))
}

macro_rules! number_to {
    ($scalar:expr, $target:ty) => {
        match $scalar {
            Scalar::Bool(n) => u8::from(*n) as $target,
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
    /// Converts to a floating point number; texts are parsed.
    pub fn to_f64(&self) -> Result<f64, ConvertError> {
        match self {
            Scalar::Text(text) => parse_f64(text),
            number => Ok(number_to!(number, f64)),
        }
    }

    /// Converts to text: numbers with `meta`'s precision, enums with its labels.
    pub fn to_text(&self, meta: Option<&Meta>) -> Text {
        match self {
            Scalar::Text(text) => text.clone(),
            Scalar::F64(n) => format_f64(*n, digits(meta)).into(),
            Scalar::F32(n) => format_f32(*n, digits(meta)).into(),
            Scalar::Enum(index) => meta
                .and_then(|meta| meta.labels.get(usize::from(*index)).or(meta.label_for_unlabelled.as_ref()).cloned())
                .unwrap_or_else(|| index.to_string().into()),
            Scalar::U64(n) => n.to_string().into(),
            Scalar::Bool(n) => if *n { "true" } else { "false" }.into(),
            number => number_to!(number, i64).to_string().into(),
        }
    }

    /// Converts to another kind. Floating point numbers are truncated towards zero; out-of-range ones become the same
    /// as in softIoc on x86-64. Integers wrap, as in C casts. Texts are parsed; for enums they may be state names of
    /// `meta`, and for booleans `true` or `false`. A boolean is 0 or 1 as a number; every other number is true.
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
        Scalar::F64(number) => truncate(*number, kind),
        Scalar::F32(number) if kind != Kind::F64 => truncate(f64::from(*number), kind),
        number => wrap(number, kind),
    }
}

/// Truncates a floating point number towards zero, through 32 bits for short kinds, so that -1 becomes all ones.
///
/// Where C leaves the result undefined, this does what x86-64 instructions do, so that results equal those of softIoc
/// there on every processor: out-of-range numbers and NaN become the most negative number of the intermediate kind.
///
/// Source: EPICS Base 7.0, dbConvert and epicsConvertDoubleToFloat; compared with softIoc 7.0.10.
fn truncate(number: f64, kind: Kind) -> Scalar {
    const SIGN: u64 = 1 << 63;
    match kind {
        Kind::I8 | Kind::U8 | Kind::I16 | Kind::U16 | Kind::Enum | Kind::I32 => {
            // The cast itself gives the minimum for smaller numbers, but 0 for NaN, which is not less than the limit.
            let is_in_range = number < -f64::from(i32::MIN);
            wrap(&Scalar::I32(if is_in_range { number as i32 } else { i32::MIN }), kind)
        }
        Kind::U32 | Kind::I64 => wrap(&Scalar::I64(truncate_to_i64(number)), kind),
        Kind::Bool => Scalar::Bool(number != 0.0),
        Kind::U64 if number >= SIGN as f64 => Scalar::U64(truncate_to_i64(number - SIGN as f64).cast_unsigned() ^ SIGN),
        Kind::U64 => Scalar::U64(truncate_to_i64(number).cast_unsigned()),
        Kind::F32 if number.is_finite() && number != 0.0 => {
            let size = number.abs().clamp(f32::MIN_POSITIVE.into(), f32::MAX.into());
            Scalar::F32(size.copysign(number) as f32)
        }
        kind => wrap(&Scalar::F64(number), kind),
    }
}

fn truncate_to_i64(number: f64) -> i64 {
    if number < -(i64::MIN as f64) { number as i64 } else { i64::MIN }
}

fn wrap(number: &Scalar, kind: Kind) -> Scalar {
    match kind {
        Kind::Bool => Scalar::Bool(number_to!(number, i64) != 0),
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

/// The number of digits after the point when converting to text.
fn digits(meta: Option<&Meta>) -> i16 {
    meta.map_or(0, |meta| meta.text_digits.unwrap_or(meta.precision))
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
        Kind::F32 => Scalar::F32(parse_f32(text)?),
        Kind::I8 => signed!(I8, i8),
        Kind::I16 => signed!(I16, i16),
        Kind::I32 => signed!(I32, i32),
        Kind::I64 => signed!(I64, i64),
        Kind::U8 => unsigned!(U8, u8),
        Kind::U16 => unsigned!(U16, u16),
        // Base accepts decimals and exponents for this kind only.
        Kind::U32 if is_decimal(text) => truncate(parse_f64(text)?, kind),
        Kind::U32 => unsigned!(U32, u32),
        Kind::U64 => unsigned!(U64, u64),
        Kind::Bool => Scalar::Bool(truth(text)?),
        Kind::Enum => Scalar::Enum(state(text, meta)?),
        Kind::Text => Scalar::Text(text.clone()),
    })
}

/// Parses `true`, `false` or a number, which is true unless it is 0.
fn truth(text: &Text) -> Result<bool, ConvertError> {
    match text.as_bytes() {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Ok(parse_f64(text)? != 0.0),
    }
}

/// Whether a text is a number with decimals or an exponent, or is not an integer at all.
fn is_decimal(text: &Text) -> bool {
    let string = text.to_str();
    let trimmed = string.trim_start();
    let unsigned = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    let after = unsigned.trim_start_matches(|character: char| character.is_ascii_digit());
    after.starts_with(['.', 'e', 'E']) || (after.len() == unsigned.len() && !after.is_empty())
}

/// The index of a state from its name or number. A number is decimal, hexadecimal (`0x`) or octal (`0`), without
/// trailing text.
///
/// Source: EPICS Base 7.0, putStringEnum and putStringMenu; compared with softIoc 7.0.10.
fn state(text: &Text, meta: Option<&Meta>) -> Result<u16, ConvertError> {
    let labels = meta.map_or(&[][..], |meta| &meta.labels);
    if let Some(index) = labels.iter().position(|label| label == text) {
        return Ok(index as u16);
    }
    let string = text.to_str();
    let number = integer_at_start(&string).ok().filter(|(_, end)| string[*end..].trim().is_empty());
    let index = number.and_then(|(number, _)| wrapped(number, u16::MAX.into())).map(|index| index as u16);
    let index = index.filter(|index| labels.is_empty() || usize::from(*index) < labels.len());
    index.ok_or_else(|| ConvertError::NoSuchState(text.clone()))
}

impl Array {
    /// Converts every element by the rules of [`Scalar::to_kind`]; does not copy if the kind is the same.
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
                        _ => unreachable!("to_kind returns the requested kind"),
                    }
                }
                Array::$variant(Arc::new(elements))
            }};
        }
        Ok(match kind {
            Kind::Bool => collect!(Bool),
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
    /// Converts the first element to a floating point number; texts are parsed. Fails for an empty array.
    pub fn to_f64(&self) -> Result<f64, ConvertError> {
        self.first().ok_or(ConvertError::Empty)?.to_f64()
    }

    /// Converts every element by the rules of [`Scalar::to_kind`].
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
    fn numbers_print_in_the_epics_format() {
        assert_eq!(format_f64(1.5, 3), "1.500");
        assert_eq!(format_f64(12_345_678.25, 6), "12345678.250");
        assert_eq!(format_f64(1e17, 2), " 1.00e+17");
        assert_eq!(format_f64(f64::NAN, 2), "nan");
    }

    #[test]
    fn a_text_converts_to_an_enum_by_label_or_index_only() {
        let meta = Meta { labels: vec!["OFF".into(), "ON".into()], ..Meta::default() };
        let to_enum = |text: &str| Scalar::Text(text.into()).to_kind(Kind::Enum, Some(&meta));

        assert_eq!(to_enum("ON"), Ok(Scalar::Enum(1)));
        assert_eq!(to_enum("1"), Ok(Scalar::Enum(1)));
        assert_eq!(to_enum("2"), Err(ConvertError::NoSuchState("2".into())));
        assert_eq!(to_enum("MAYBE"), Err(ConvertError::NoSuchState("MAYBE".into())));
    }

    #[test]
    fn parsing_a_leading_number_returns_its_value_and_length() {
        for (text, number, n_bytes) in [
            ("1.5mm", 1.5, 3),
            (" -2e3e", -2000.0, 5),
            ("1e+", 1.0, 1),
            ("+0x02", 2.0, 5),
            ("0xCA.8p1x", 405.0, 8),
            ("0x1p", 1.0, 3),
            ("0xg", 0.0, 1),
            ("-INFINITY", f64::NEG_INFINITY, 9),
            ("infinit", f64::INFINITY, 3),
            ("0e9", 0.0, 3),
        ] {
            assert_eq!(number_at_start(text), Ok((number, n_bytes)), "{text}");
        }
        for (text, n_bytes) in [("nan", 3), ("NAN(0x7)+1", 8), ("nan(", 3), ("nan()", 5), ("nan(+)", 3)] {
            let (number, length) = number_at_start(text).unwrap_or_default();
            assert!(number.is_nan() && length == n_bytes, "{text}");
        }
        for text in ["", ".", "e5", "-", "x"] {
            assert_eq!(number_at_start(text), Err(ConvertError::NotANumber(text.into())), "{text}");
        }
        for text in ["1e999", "1e-999", "1e-310", "5e-324"] {
            assert_eq!(number_at_start(text), Err(ConvertError::OutOfRange(text.into())), "{text}");
        }
    }

    #[test]
    fn an_enum_index_may_be_octal_hexadecimal_signed_or_padded() {
        let labels = (0..10).map(|index| format!("state {index}").into()).collect();
        let meta = Meta { labels, ..Meta::default() };
        let to_enum = |text: &str| Scalar::Text(text.into()).to_kind(Kind::Enum, Some(&meta)).ok();

        for (text, index) in [("010", 8), ("0x9", 9), ("0X01", 1), ("-0", 0), ("+1", 1), (" 1 ", 1), ("-65535", 1)] {
            assert_eq!(to_enum(text), Some(Scalar::Enum(index)), "{text}");
        }
        for text in ["08", "1.0", "5.", "1abc", "1 abc", "-1", "10", "0x", "0xg", "65537", "", "-", "0x1F", "--1"] {
            assert_eq!(to_enum(text), None, "{text}");
        }
    }

    #[test]
    fn an_integer_text_must_be_in_range_of_its_type() {
        let to_i16 = |text: &str| Scalar::Text(text.into()).to_kind(Kind::I16, None);

        assert_eq!(to_i16("0x7f"), Ok(Scalar::I16(127)));
        assert_eq!(to_i16("40000"), Err(ConvertError::OutOfRange("40000".into())));
        assert_eq!(to_i16("abc"), Err(ConvertError::NotANumber("abc".into())));
    }

    #[test]
    fn formatting_rounds_halves_away_from_zero_and_omits_the_sign_of_zero() {
        assert_eq!(format_f64(2.5, 0), "3");
        assert_eq!(format_f64(0.125, 2), "0.13");
        assert_eq!(format_f64(-2.25, 0), "-2");
        assert_eq!(format_f64(-0.0, 1), "0.0");
        assert_eq!(format_f64(0.999, 2), "1.00");
        assert_eq!(format_f64(1.5, -1), " 1.50000000000000000e+00");
        assert_eq!(format_f64(12345.678, 9), " 1.234567800e+04");
    }

    /// Rows captured from softIoc 7.0.10: a text written to a field of each kind, and the result.
    #[test]
    fn texts_convert_to_numbers_as_in_softioc() {
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
        for (text, expected) in rows {
            let kinds = [Kind::U8, Kind::I16, Kind::U16, Kind::I32, Kind::U32, Kind::F64];
            assert_eq!(kinds.map(|kind| put(text, kind)), expected, "{text:?}");
        }
    }

    #[test]
    fn out_of_range_numbers_truncate_and_wrap_as_c_casts() {
        let cut = |number: f64, kind| Scalar::F64(number).to_kind(kind, None);

        assert_eq!(cut(-5.7, Kind::U8), Ok(Scalar::U8(251)));
        assert_eq!(cut(300.0, Kind::U8), Ok(Scalar::U8(44)));
        assert_eq!(cut(70000.0, Kind::Enum), Ok(Scalar::Enum(4464)));
        assert_eq!(cut(3e9, Kind::U32), Ok(Scalar::U32(3_000_000_000)));
        assert_eq!(cut(-1.0, Kind::U32), Ok(Scalar::U32(u32::MAX)));
        assert_eq!(cut(3e9, Kind::I32), Ok(Scalar::I32(i32::MIN)));
        assert_eq!(cut(2147483647.9, Kind::I32), Ok(Scalar::I32(i32::MAX)));
        assert_eq!(cut(2147483648.0, Kind::I32), Ok(Scalar::I32(i32::MIN)));
        assert_eq!(cut(-2147483648.9, Kind::I32), Ok(Scalar::I32(i32::MIN)));
        assert_eq!(cut(-3e9, Kind::I32), Ok(Scalar::I32(i32::MIN)));
        assert_eq!(cut(f64::NEG_INFINITY, Kind::I16), Ok(Scalar::I16(0)));
        assert_eq!(cut(f64::NAN, Kind::I32), Ok(Scalar::I32(i32::MIN)));
        assert_eq!(cut(3e9, Kind::I16), Ok(Scalar::I16(0)));
        assert_eq!(cut(1e10, Kind::U32), Ok(Scalar::U32(1_410_065_408)));
        assert_eq!(cut(9_223_372_036_854_774_784.0, Kind::I64), Ok(Scalar::I64(9_223_372_036_854_774_784)));
        assert_eq!(cut(9_223_372_036_854_775_808.0, Kind::I64), Ok(Scalar::I64(i64::MIN)));
        assert_eq!(cut(1e19, Kind::I64), Ok(Scalar::I64(i64::MIN)));
        assert_eq!(cut(-1e19, Kind::I64), Ok(Scalar::I64(i64::MIN)));
        assert_eq!(cut(f64::NAN, Kind::I64), Ok(Scalar::I64(i64::MIN)));
        assert_eq!(cut(1e19, Kind::U64), Ok(Scalar::U64(10_000_000_000_000_000_000)));
        assert_eq!(cut(1e30, Kind::U64), Ok(Scalar::U64(0)));
        assert_eq!(cut(f64::NAN, Kind::U64), Ok(Scalar::U64(1 << 63)));
    }

    #[test]
    fn a_double_outside_the_float_range_is_clamped() {
        let float = |number: f64| Scalar::F64(number).to_kind(Kind::F32, None);

        assert_eq!(float(1e300), Ok(Scalar::F32(f32::MAX)));
        assert_eq!(float(-1e300), Ok(Scalar::F32(f32::MIN)));
        assert_eq!(float(-1e-50), Ok(Scalar::F32(-f32::MIN_POSITIVE)));
        assert_eq!(float(f64::INFINITY), Ok(Scalar::F32(f32::INFINITY)));
        assert_eq!(float(0.0), Ok(Scalar::F32(0.0)));
    }

    #[test]
    fn a_text_outside_the_float_range_is_an_error_but_zero_is_not() {
        let float = |text: &str| Scalar::Text(text.into()).to_kind(Kind::F32, None);

        for text in ["1e39", "-1e39", "1e-50"] {
            assert_eq!(float(text), Err(ConvertError::OutOfRange(text.into())));
        }
        assert_eq!([float("0"), float("-0"), float("1e-30")], [0.0, -0.0, 1e-30].map(|number| Ok(Scalar::F32(number))));
        assert_eq!(float("inf"), Ok(Scalar::F32(f32::INFINITY)));
    }

    #[test]
    fn a_float_prints_in_fixed_notation_below_1e8_and_in_scientific_above() {
        assert_eq!(format_f32(99_999_992.0, 3), "99999992.000");
        assert_eq!(format_f32(1e8, 0), " 1e+08");
        assert_eq!(format_f32(-1e9, 3), "-1.000e+09");
        assert_eq!(format_f32(-f32::NAN, 3), "-nan");
    }
}
