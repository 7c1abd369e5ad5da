//! Python objects as values to be sent.

use std::sync::Arc;

use fodo_net::{Array, ArraySize, Kind, NodeKind, NodeValue, Scalar, Structure, StructureBuilder, Text, Value};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::array::PyArray;
use crate::structure::PyStructure;

/// What can be sent, for messages.
const EXPECTED: &str = "expected a number, a bool, a text, or a one-dimensional array of these";

/// Why an object cannot be sent.
type WhyNotSent = String;

/// The value of an object.
pub fn value(source: &Bound<'_, PyAny>) -> Result<Value, WhyNotSent> {
    if let Ok(array) = source.cast::<PyArray>() {
        return Ok(Value::Array(array.get().array().clone()));
    }
    if let Some(scalar) = scalar(source)? {
        return Ok(Value::Scalar(scalar));
    }
    if source.is_instance_of::<PyBytes>() || source.is_instance_of::<PyByteArray>() {
        return source.extract::<Vec<u8>>().map(Value::from).map_err(|error| error.to_string());
    }
    if source.is_instance_of::<PyList>() || source.is_instance_of::<PyTuple>() {
        let elements = source.try_iter().map_err(|error| error.to_string())?;
        return list(elements.collect::<PyResult<_>>().map_err(|error| error.to_string())?);
    }
    if let Some(value) = buffer(source)? {
        return Ok(value);
    }
    // Numbers of other libraries.
    if let Ok(number) = source.call_method0("__index__") {
        return integer(&number).map(Value::Scalar);
    }
    match source.call_method0("__float__").and_then(|number| number.extract()) {
        Ok(number) => Ok(Value::Scalar(Scalar::F64(number))),
        Err(_) => Err(format!("{} cannot be sent: {EXPECTED}", type_name(source))),
    }
}

/// One element; `None` for other objects.
fn scalar(source: &Bound<'_, PyAny>) -> Result<Option<Scalar>, WhyNotSent> {
    // A bool is also an int.
    if let Ok(flag) = source.extract::<bool>() {
        return Ok(Some(Scalar::Bool(flag)));
    }
    if source.is_instance_of::<PyInt>() {
        return integer(source).map(Some);
    }
    if let Ok(number) = source.cast::<PyFloat>() {
        return Ok(Some(Scalar::F64(number.value())));
    }
    if let Ok(string) = source.cast::<PyString>() {
        return text(string).map(Scalar::Text).map(Some);
    }
    Ok(None)
}

fn integer(source: &Bound<'_, PyAny>) -> Result<Scalar, WhyNotSent> {
    if let Ok(number) = source.extract::<i64>() {
        return Ok(i32::try_from(number).map_or(Scalar::I64(number), Scalar::I32));
    }
    source.extract().map(Scalar::U64).map_err(|_| format!("{source} is out of the range of 64 bits"))
}

fn text(source: &Bound<'_, PyString>) -> Result<Text, WhyNotSent> {
    match source.to_cow() {
        Ok(text) if text.contains('\0') => Err("a text cannot contain NUL".into()),
        Ok(text) => Ok(Text::from(&*text)),
        Err(_) => Err("the text has characters that UTF-8 cannot encode".into()),
    }
}

/// An array of an object with the buffer protocol, such as one of numpy or of the module `array`; `None` for other objects.
fn buffer(source: &Bound<'_, PyAny>) -> Result<Option<Value>, WhyNotSent> {
    macro_rules! of_kinds {
        ($($kind:ident $rust:ty),*) => {
            $(if let Some(elements) = elements::<$rust>(source)? {
                return Ok(Some(Value::Array(Array::$kind(Arc::new(elements)))));
            })*
        };
    }
    of_kinds!(F64 f64, I32 i32, U8 u8, I16 i16, U16 u16, F32 f32, I64 i64, U64 u64, U32 u32, I8 i8);
    // Bools, texts and numbers in another byte order: as a list.
    match source.getattr("ndim").and_then(|n| n.extract::<usize>()) {
        Ok(1) => match source.call_method0("tolist") {
            Ok(elements) => value(&elements).map(Some),
            Err(_) => Ok(None),
        },
        Ok(n) if n > 1 => Err(wrong_shape(n)),
        _ => Ok(None),
    }
}

/// The elements of a buffer with elements of this type; `None` for another type or without a buffer.
fn elements<T: Element>(source: &Bound<'_, PyAny>) -> Result<Option<Vec<T>>, WhyNotSent> {
    let Ok(buffer) = PyBuffer::<T>::get(source) else { return Ok(None) };
    let other_order: &[u8] = if cfg!(target_endian = "little") { b">!" } else { b"<" };
    if buffer.format().to_bytes().first().is_some_and(|order| other_order.contains(order)) {
        return Ok(None);
    }
    match buffer.dimensions() {
        1 => buffer.to_vec(source.py()).map(Some).map_err(|error| error.to_string()),
        // A number of numpy.
        0 => Ok(None),
        n => Err(wrong_shape(n)),
    }
}

fn wrong_shape(n_dimensions: usize) -> WhyNotSent {
    format!("the array has {n_dimensions} dimensions: expected one; use ravel()")
}

/// A list of which all elements are texts, or all are numbers.
fn list(objects: Vec<Bound<'_, PyAny>>) -> Result<Value, WhyNotSent> {
    let mut scalars = Vec::with_capacity(objects.len());
    for (index, object) in objects.iter().enumerate() {
        let scalar = match scalar(object)? {
            Some(scalar) => scalar,
            // Numbers of other libraries.
            None => match value(object) {
                Ok(Value::Scalar(scalar)) => scalar,
                _ => return Err(format!("element {index} is {}: {EXPECTED}", type_name(object))),
            },
        };
        scalars.push(scalar);
    }
    let kind =
        scalars.iter().map(Scalar::kind).fold(None, |kind, next| Some(kind.map_or(next, |kind| wider(kind, next))));
    let kind = kind.unwrap_or(Kind::F64);
    if kind == Kind::U64
        && let Some(index) = scalars.iter().position(is_negative)
    {
        let reason = "a list with integers above 9223372036854775807 cannot have negative ones";
        return Err(format!("element {index} is {}: {reason}", objects[index]));
    }
    let n_texts = scalars.iter().filter(|scalar| scalar.kind() == Kind::Text).count();
    if n_texts > 0 && n_texts < scalars.len() {
        return Err("the list has both texts and numbers".into());
    }
    // Each is converted to the kind that holds all of them.
    let empty = Array::empty(kind);
    let arrays = scalars.iter().map(|scalar| scalar.to_kind(kind, None)).collect::<Result<Vec<_>, _>>();
    arrays.map(|scalars| Value::Array(collected(empty, scalars))).map_err(|error| error.to_string())
}

fn is_negative(scalar: &Scalar) -> bool {
    matches!(scalar, Scalar::I32(..0) | Scalar::I64(..0))
}

/// The kind that holds the numbers of both kinds; that of unsigned integers holds no negative ones.
fn wider(one: Kind, other: Kind) -> Kind {
    match (one, other) {
        _ if one == other => one,
        (Kind::Text, _) | (_, Kind::Text) => Kind::Text,
        (Kind::F64, _) | (_, Kind::F64) => Kind::F64,
        (Kind::U64, _) | (_, Kind::U64) => Kind::U64,
        (Kind::I64, _) | (_, Kind::I64) => Kind::I64,
        _ => Kind::I32,
    }
}

/// An array of elements of the kind of `empty`.
fn collected(empty: Array, scalars: Vec<Scalar>) -> Array {
    macro_rules! of_kinds {
        ($($kind:ident),*) => {
            match empty {
                $(Array::$kind(_) => Array::$kind(Arc::new(scalars.into_iter().filter_map(|scalar| match scalar {
                    Scalar::$kind(element) => Some(element),
                    _ => None,
                }).collect())),)*
                other => other,
            }
        };
    }
    of_kinds!(Bool, I32, I64, U64, F64, Text)
}

/// The fields of a structure to be written, each with its path: `{"alarm": {"severity": 1}}` and `{"alarm.severity": 1}` are
/// the same.
pub fn fields(source: &Bound<'_, PyDict>) -> Result<Vec<(String, NodeValue)>, WhyNotSent> {
    let mut found = Vec::new();
    for (name, object) in source.iter() {
        let name: String = name.extract().map_err(|_| "the names of fields are texts".to_owned())?;
        match object.cast::<PyDict>() {
            Ok(members) => {
                found.extend(fields(members)?.into_iter().map(|(path, value)| (format!("{name}.{path}"), value)));
            }
            Err(_) => {
                let value = node(&object).map_err(|reason| format!("the field \"{name}\": {reason}"))?;
                found.push((name, value));
            }
        }
    }
    Ok(found)
}

/// The value of a field. A list whose elements are not of one kind becomes one of variants, which the client converts to what
/// the PV has: structures, or members of unions. `None` selects no member of a union.
fn node(source: &Bound<'_, PyAny>) -> Result<NodeValue, WhyNotSent> {
    if source.is_none() {
        return Ok(NodeValue::Any(None));
    }
    let reason = match value(source) {
        Ok(value) => return Ok(NodeValue::Value(value)),
        Err(reason) => reason,
    };
    if !source.is_instance_of::<PyList>() && !source.is_instance_of::<PyTuple>() {
        return Err(reason);
    }
    let mut elements = Vec::new();
    for (index, object) in source.try_iter().map_err(|error| error.to_string())?.enumerate() {
        let object = object.map_err(|error| error.to_string())?;
        let element = if object.is_none() { Ok(None) } else { part(&object).map(Some) };
        elements.push(element.map_err(|reason| format!("element {index}: {reason}"))?);
    }
    Ok(NodeValue::Anys(Arc::new(elements)))
}

/// An element of an array: a structure for a dict, otherwise a single value.
fn part(source: &Bound<'_, PyAny>) -> Result<Structure, WhyNotSent> {
    if let Ok(members) = source.cast::<PyDict>() {
        // The path of a field is its name here.
        let fields = fields(members)?;
        let mut kind = StructureBuilder::new("");
        for (path, value) in &fields {
            kind.leaf(&**path, node_kind(value));
        }
        let mut structure = Structure::new(Arc::new(kind.finish()));
        for (index, (_, value)) in fields.into_iter().enumerate() {
            structure.set_node(index + 1, value).map_err(|error| error.to_string())?;
        }
        return Ok(structure);
    }
    if source.is_instance_of::<PyStructure>() {
        return part(&source.call_method0("to_dict").map_err(|error| error.to_string())?);
    }
    value(source).map(Structure::single)
}

/// The type of a value that [`node`] has made.
fn node_kind(value: &NodeValue) -> NodeKind {
    match value {
        NodeValue::Value(Value::Scalar(scalar)) => NodeKind::Scalar(scalar.kind()),
        NodeValue::Value(Value::Array(array)) => NodeKind::Array { kind: array.kind(), size: ArraySize::Variable },
        NodeValue::Anys(_) => NodeKind::AnyArray,
        _ => NodeKind::Any,
    }
}

/// The argument of a procedure: an NTURI whose query contains these values.
pub fn call_argument(path: &str, source: &Bound<'_, PyDict>) -> Result<Structure, WhyNotSent> {
    let mut kind = StructureBuilder::new("epics:nt/NTURI:1.0");
    kind.scalar("scheme", Kind::Text).scalar("path", Kind::Text).open("query", "");
    let mut query = Vec::new();
    for (name, object) in source.iter() {
        let name: String = name.extract().map_err(|_| "the names of arguments are texts".to_owned())?;
        let value = value(&object).map_err(|reason| format!("{name}: {reason}"))?;
        match &value {
            Value::Scalar(scalar) => kind.scalar(&name, scalar.kind()),
            Value::Array(array) => kind.array(&name, array.kind()),
        };
        query.push((name, value));
    }
    let mut argument = Structure::new(Arc::new(kind.close().finish()));
    let parts = [("scheme".to_owned(), "pva".into()), ("path".to_owned(), path.into())];
    let query = query.into_iter().map(|(name, value)| (format!("query.{name}"), value));
    for (path, value) in parts.into_iter().chain(query) {
        argument.set(&path, value).map_err(|error| error.to_string())?;
    }
    Ok(argument)
}

fn type_name(source: &Bound<'_, PyAny>) -> String {
    source.get_type().name().map_or_else(|_| "an object".to_owned(), |name| format!("an object of type {name}"))
}
