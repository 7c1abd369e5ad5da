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
/// Fixed notation up to 1e7 in magnitude, with at most three decimals up to 1e16, else scientific.
/// Source: EPICS Base 7.0, cvtDoubleToString.
pub fn format_f64(number: f64, precision: i16) -> String {
    let digits = usize::from(precision.clamp(0, 17).unsigned_abs());
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let size = number.abs();
    if digits > 8 || size > 1e16 {
        return format_exponent(number, digits);
    }
    if size > 1e7 {
        return format!("{number:.*}", digits.min(3));
    }
    format!("{number:.digits$}")
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

/// The number a text stands for: decimal, hexadecimal (`0x`), `nan`, `inf`. Empty text is 0.
pub fn parse_f64(text: &Text) -> Result<f64, ConvertError> {
    let string = text.to_str();
    let trimmed = string.trim();
    if trimmed.is_empty() {
        return Ok(0.0);
    }
    if let Some(number) = parse_hex(trimmed) {
        return Ok(number as f64);
    }
    trimmed.parse().map_err(|_| ConvertError::NotANumber(text.clone()))
}

/// The whole number a text stands for: decimal or hexadecimal (`0x`). Empty text is 0.
pub fn parse_i64(text: &Text) -> Result<i64, ConvertError> {
    let whole = parse_whole(text)?;
    i64::try_from(whole).map_err(|_| ConvertError::OutOfRange(text.clone()))
}

/// The whole number a text stands for; a negative one wraps, as C's `strtoul` lets it.
pub fn parse_u64(text: &Text) -> Result<u64, ConvertError> {
    let whole = parse_whole(text)?;
    u64::try_from(whole)
        .or_else(|_| i64::try_from(whole).map(|negative| negative as u64))
        .map_err(|_| ConvertError::OutOfRange(text.clone()))
}

fn parse_whole(text: &Text) -> Result<i128, ConvertError> {
    let string = text.to_str();
    let trimmed = string.trim();
    if trimmed.is_empty() {
        return Ok(0);
    }
    parse_hex(trimmed)
        .map(Ok)
        .unwrap_or_else(|| trimmed.strip_prefix('+').unwrap_or(trimmed).parse())
        .map_err(|_| ConvertError::NotANumber(text.clone()))
}

fn parse_hex(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))?;
    if digits.len() > 16 {
        return None;
    }
    let size = i128::from(u64::from_str_radix(digits, 16).ok()?);
    Some(if negative { -size } else { size })
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

    /// As text: numbers by `meta`'s precision, enums by its labels (by number past them).
    pub fn to_text(&self, meta: Option<&Meta>) -> Text {
        match self {
            Scalar::Text(text) => text.clone(),
            Scalar::F64(n) => format_f64(*n, meta.map_or(0, |meta| meta.precision)).into(),
            Scalar::F32(n) => format_f64(f64::from(*n), meta.map_or(0, |meta| meta.precision)).into(),
            Scalar::Enum(index) => meta
                .and_then(|meta| meta.labels.get(usize::from(*index)).cloned())
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
    let range = |fits: bool| if fits { Ok(()) } else { Err(ConvertError::OutOfRange(text.clone())) };
    Ok(match kind {
        Kind::F64 => Scalar::F64(parse_f64(text)?),
        Kind::F32 => Scalar::F32(parse_f64(text)? as f32),
        Kind::I64 => Scalar::I64(parse_i64(text)?),
        Kind::U64 => Scalar::U64(parse_u64(text)?),
        Kind::Enum => {
            let labels = meta.map_or(&[][..], |meta| &meta.labels);
            if let Some(index) = labels.iter().position(|label| label == text) {
                return Ok(Scalar::Enum(index as u16));
            }
            let no_such = |_| ConvertError::NoSuchState(text.clone());
            let index = u16::try_from(parse_i64(text).map_err(no_such)?)
                .map_err(|_| ConvertError::NoSuchState(text.clone()))?;
            if !labels.is_empty() && usize::from(index) >= labels.len() {
                return Err(ConvertError::NoSuchState(text.clone()));
            }
            Scalar::Enum(index)
        }
        whole => {
            let number = parse_i64(text)?;
            let scalar = cast(&Scalar::I64(number), whole);
            // A negative number given for an unsigned kind wraps, as C's strtoul lets it.
            let back = number_to!(&scalar, i64);
            range(back == number || (number < 0 && matches!(whole, Kind::U8 | Kind::U16 | Kind::U32)))?;
            scalar
        }
    })
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
        assert_eq!(format_f64(1e17, 2), "1.00e+17");
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
}
