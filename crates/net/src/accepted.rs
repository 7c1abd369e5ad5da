//! Which values a PV or a field accepts: those that its kind holds without becoming another value.

use std::sync::Arc;

use fodo_data::{Array, Kind, NodeKind, NodeValue, Scalar, Structure, Value};

use crate::pva::client;
use crate::{ChannelFacts, Protocol};

/// The values that a PV or a field holds without changing them.
///
/// The conversions of EPICS accept more: they wrap integers, make the smallest integer of NaN, and take the first element of an
/// array. In a program that is a mistake, which nothing would report. What they do in C is allowed where it is usual: an integer
/// keeps the whole part of a fraction, and a text is parsed.
///
/// ```
/// use fodo_data::{Kind, NodeKind};
/// use fodo_net::AcceptedValues;
///
/// let field = AcceptedValues::of_field(&NodeKind::Scalar(Kind::I16)).expect("the field is a scalar");
/// assert_eq!(field.accept(1.5.into()), Ok(1.5.into()));
/// assert_eq!(field.accept(f64::NAN.into()), Err("expected an integer between -32768 and 32767, not nan".into()));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AcceptedValues {
    kind: Kind,
    /// The maximum number of elements: 1 for a scalar, 0 for an array of any length.
    count_max: u32,
    /// Channel Access has one kind for characters with and without a sign, and for long texts.
    protocol: Protocol,
}

impl AcceptedValues {
    /// Those of a PV. [`AcceptedValues`] has an example.
    pub fn of(facts: &ChannelFacts, protocol: Protocol) -> AcceptedValues {
        AcceptedValues::of_channel(facts.kind, facts.count_max, protocol)
    }

    pub(crate) fn of_channel(kind: Kind, count_max: u32, protocol: Protocol) -> AcceptedValues {
        AcceptedValues { kind, count_max, protocol }
    }

    /// Those of a field of a structure; `None` if it is neither a scalar nor an array of scalars. [`AcceptedValues`] has an
    /// example.
    pub fn of_field(field: &NodeKind) -> Option<AcceptedValues> {
        let (kind, count_max) = match field {
            NodeKind::Scalar(kind) => (*kind, 1),
            NodeKind::BoundedText(_) => (Kind::Text, 1),
            // The structure itself checks sizes.
            NodeKind::Array { kind, .. } => (*kind, 0),
            _ => return None,
        };
        Some(AcceptedValues { kind, count_max, protocol: Protocol::Pva })
    }

    /// Checks that a put can set the field at `path`, by setting it in a structure of the PV's type. One structure serves for
    /// all fields of a put. Fails with the reason for which
    /// [`Channel::start_put_structure`](crate::Channel::start_put_structure) would send nothing.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use fodo_data::{Kind, NodeValue, Structure, StructureBuilder};
    /// use fodo_net::AcceptedValues;
    ///
    /// let kind = StructureBuilder::new("").scalar("steps", Kind::I32).finish();
    /// let mut trial = Structure::new(Arc::new(kind));
    /// assert!(AcceptedValues::check_field(&mut trial, "steps", &NodeValue::Value("many".into())).is_err());
    /// assert_eq!(AcceptedValues::check_field(&mut trial, "steps", &NodeValue::Value(200.into())), Ok(()));
    /// ```
    pub fn check_field(structure: &mut Structure, path: &str, value: &NodeValue) -> Result<(), String> {
        client::check_field(structure, path, value)
    }

    /// The value to send: a number for a text is its shortest text, since servers round it. Fails with what was expected and
    /// what was given. [`AcceptedValues`] has an example.
    pub fn accept(&self, value: Value) -> Result<Value, String> {
        self.check(&value)?;
        Ok(match value {
            Value::Scalar(scalar) if self.kind == Kind::Text => Value::Scalar(shortest(scalar)),
            Value::Array(array) if self.kind == Kind::Text && matches!(array.kind(), Kind::F64 | Kind::F32) => {
                let elements = (0..array.len()).filter_map(|index| array.scalar(index)).map(shortest);
                let texts = elements.filter_map(|element| match element {
                    Scalar::Text(text) => Some(text),
                    _ => None,
                });
                Value::Array(Array::Text(Arc::new(texts.collect())))
            }
            value => value,
        })
    }

    fn check(&self, value: &Value) -> Result<(), String> {
        match value {
            Value::Scalar(Scalar::Text(text)) if self.is_of_characters() => {
                let max = self.count_max as usize;
                let is_short = self.count_max == 0 || text.len() <= max;
                is_short
                    .then_some(())
                    .ok_or_else(|| format!("expected a text of at most {max} bytes, not {}", text.len()))
            }
            Value::Scalar(scalar) => self.check_scalar(scalar),
            Value::Array(array) => self.check_array(array),
        }
    }

    fn is_of_characters(&self) -> bool {
        self.protocol == Protocol::Ca && self.kind == Kind::U8 && self.count_max != 1
    }

    fn check_array(&self, array: &Array) -> Result<(), String> {
        let (n, max) = (array.len(), self.count_max as usize);
        if max == 1 && n != 1 {
            return Err(format!("expected one value, not an array with {n} elements"));
        }
        if max > 1 && n > max {
            return Err(format!("expected at most {max} elements, not {n}"));
        }
        // All numbers are numbers of 64 bits, and have a text.
        if array.kind() == self.kind || matches!(self.kind, Kind::Text | Kind::F64) && array.kind() != Kind::Text {
            return Ok(());
        }
        let elements = (0..n).filter_map(|index| Some((index, array.scalar(index)?)));
        for (index, element) in elements {
            self.check_scalar(&element).map_err(|reason| format!("element {index}: {reason}"))?;
        }
        Ok(())
    }

    fn check_scalar(&self, scalar: &Scalar) -> Result<(), String> {
        let is_accepted = match scalar {
            _ if scalar.kind() == self.kind || self.kind == Kind::Text => true,
            // The labels of an enum are those of the server.
            Scalar::Text(_) => self.kind == Kind::Enum || scalar.to_kind(self.kind, None).is_ok(),
            Scalar::F64(number) => self.accepts_real(*number),
            Scalar::F32(number) => self.accepts_real(f64::from(*number)),
            integer => integer.as_integer().is_none_or(|integer| self.accepts_integer(integer)),
        };
        is_accepted.then_some(()).ok_or_else(|| format!("expected {}, not {}", self.expected(), shown(scalar)))
    }

    fn accepts_real(&self, number: f64) -> bool {
        match self.kind {
            Kind::F32 => !number.is_finite() || number.abs() <= f64::from(f32::MAX),
            Kind::F64 | Kind::Text => true,
            Kind::Bool => !number.is_nan(),
            Kind::Enum if number.fract() != 0.0 => false,
            // NaN and infinite numbers are outside of all ranges.
            _ => self.range().is_none_or(|(low, high)| {
                let whole = number.trunc();
                (-(2.0_f64.powi(64))..=2.0_f64.powi(64)).contains(&whole) && (low..=high).contains(&(whole as i128))
            }),
        }
    }

    fn accepts_integer(&self, number: i128) -> bool {
        self.range().is_none_or(|(low, high)| (low..=high).contains(&number))
    }

    /// The smallest and the largest integer; `None` for other kinds.
    fn range(&self) -> Option<(i128, i128)> {
        match self.kind {
            Kind::U8 if self.protocol == Protocol::Ca => Some((i8::MIN.into(), u8::MAX.into())),
            kind => kind.integer_range(),
        }
    }

    fn expected(&self) -> String {
        match (self.kind, self.range()) {
            (Kind::Enum, Some((low, high))) => format!("the label of a state, or its index, {low} to {high}"),
            (_, Some((low, high))) => format!("an integer between {low} and {high}"),
            (Kind::F32, None) => format!("a number between {:e} and {:e}", f32::MIN, f32::MAX),
            (Kind::Bool, None) => "true or false".to_owned(),
            (_, None) => "a number".to_owned(),
        }
    }
}

/// A floating point number as the text that Python shows.
fn shortest(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::F64(number) => Scalar::Text(format!("{number:?}").into()),
        Scalar::F32(number) => Scalar::Text(format!("{number:?}").into()),
        other => other,
    }
}

fn shown(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Text(text) => format!("the text \"{text}\""),
        Scalar::F64(number) if number.is_nan() => "nan".to_owned(),
        Scalar::F64(number) => number.to_string(),
        Scalar::F32(number) if number.is_nan() => "nan".to_owned(),
        Scalar::F32(number) => number.to_string(),
        integer => integer.as_integer().map_or_else(String::new, |integer| integer.to_string()),
    }
}
