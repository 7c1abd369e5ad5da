//! Values by their types: whole, or the nodes of a set of bits.

mod number;

use std::ops::Range;
use std::sync::Arc;

use fodo_data::{
    Array, ArraySize, BitSet, Kind, NodeKind, NodeValue, NormativeLayout, Part, Reading, Scalar, Structure,
    StructureType, Text, UnionType, UnionValue, Value,
};

use self::number::{DecodedNumber, decode_number, encode_number};
pub(crate) use self::number::{NUMBER_BYTES, number_into};
use crate::cursor::{ByteOrder, ByteReader, ByteWriter};
use crate::limit;
use crate::types::{self, TypeCache, TypeIds};

/// Decodes a complete value of a type. Nothing is marked as changed.
pub fn decode(kind: &Arc<StructureType>, reader: &mut ByteReader, cache: &mut TypeCache) -> Option<Structure> {
    let n_nodes = kind.nodes().len();
    if !reader.allow_value_nodes(n_nodes) || !reader.allow_memory(n_nodes, size_of::<NodeValue>()) {
        return None;
    }
    let mut structure = Structure::new(kind.clone());
    structure.reserve(n_nodes);
    decode_nodes(&mut structure, kind, 0..n_nodes, reader, cache);
    structure.unmark_all();
    (!reader.has_failed()).then_some(structure)
}

/// Decodes a set of bits and the values of these nodes into an existing structure, and marks exactly these nodes as
/// changed. After a fault the structure contains the nodes before it.
pub fn decode_changed(into: &mut Structure, reader: &mut ByteReader, cache: &mut TypeCache) {
    let kind = into.kind().clone();
    let bits = reader.bit_set(kind.nodes().len());
    if let Some(last) = kind.covered(&bits).last() {
        into.reserve(last.end);
    }
    for nodes in kind.covered(&bits) {
        decode_nodes(into, &kind, nodes, reader, cache);
    }
    into.mark_only(bits);
}

/// Decodes a set of bits and the values of these nodes into a reading, without a structure in between, and returns the
/// bits. Nodes that a reading does not contain are skipped. After a fault the reading contains the nodes before it.
#[inline]
pub fn decode_reading(
    layout: &NormativeLayout,
    into: &mut Reading,
    reader: &mut ByteReader,
    cache: &mut TypeCache,
) -> BitSet {
    if let Some(number) = decode_number(layout, reader.remaining(), reader.order()) {
        reader.take(number.n_bytes);
        let mut set = BitSet::new();
        set.set_word(0, number.bits);
        number.store(into);
        return set;
    }
    decode_parts(layout, into, reader, cache)
}

/// The reading that consists of a set of bits and the values of these nodes, if it is a number without an alarm;
/// otherwise `None`, and [`decode_reading`] decodes it. Bytes that follow are ignored.
#[inline(always)]
pub(crate) fn decode_number_reading(layout: &NormativeLayout, bytes: &[u8], order: ByteOrder) -> Option<Reading> {
    decode_number(layout, bytes, order).map(DecodedNumber::into_reading)
}

#[inline(never)]
fn decode_parts(
    layout: &NormativeLayout,
    into: &mut Reading,
    reader: &mut ByteReader,
    cache: &mut TypeCache,
) -> BitSet {
    let nodes = layout.kind().nodes();
    let bits = reader.bit_set(nodes.len());
    for bit in layout.kind().covered(&bits).flatten() {
        let value = decode_node(&nodes[bit].kind, reader, cache);
        if reader.has_failed() {
            break;
        }
        if let Some(NodeValue::Value(value)) = value {
            layout.store(bit, value, into);
        }
    }
    bits
}

/// Decodes a type and a value of this type; `None` if there is none (null), or after a fault.
pub fn decode_any(reader: &mut ByteReader, cache: &mut TypeCache) -> Option<Structure> {
    let kind = types::decode(reader, cache)?;
    decode(&kind, reader, cache)
}

/// `kind`: the type of the structure.
fn decode_nodes(
    into: &mut Structure,
    kind: &StructureType,
    nodes: Range<usize>,
    reader: &mut ByteReader,
    cache: &mut TypeCache,
) {
    for bit in nodes {
        let offset = reader.offset();
        let value = decode_node(&kind.nodes()[bit].kind, reader, cache);
        if reader.has_failed() {
            return;
        }
        if let Some(value) = value
            && into.set_node(bit, value).is_err()
        {
            return reader.fail_at(offset, "a value within the bounds of its type");
        }
    }
}

/// The value of a node; `None` for a structure, whose members follow, or after a fault.
fn decode_node(kind: &NodeKind, reader: &mut ByteReader, cache: &mut TypeCache) -> Option<NodeValue> {
    Some(match kind {
        NodeKind::Structure { .. } => return None,
        NodeKind::Scalar(kind) => NodeValue::Value(Value::Scalar(decode_scalar(*kind, reader))),
        NodeKind::BoundedText(_) => NodeValue::Value(Value::Scalar(Scalar::Text(reader.text()))),
        NodeKind::Array { kind, size } => {
            let n = match size {
                ArraySize::Fixed(n) => *n as usize,
                _ => reader.count(kind.n_bytes().unwrap_or(1)),
            };
            NodeValue::Value(Value::Array(reader.elements(*kind, n)))
        }
        NodeKind::StructureArray(kind) => {
            let element = |reader: &mut ByteReader| decode(kind, reader, cache);
            NodeValue::Structures(elements(reader, present(element)))
        }
        NodeKind::Union(kind) => NodeValue::Union(decode_union(kind, reader, cache)?.map(Box::new)),
        NodeKind::UnionArray(kind) => {
            let element = |reader: &mut ByteReader| decode_union(kind, reader, cache)?;
            NodeValue::Unions(elements(reader, present(element)))
        }
        NodeKind::Any => NodeValue::Any(nested(reader, |reader| decode_any(reader, cache)).map(Box::new)),
        NodeKind::AnyArray => {
            let element = |reader: &mut ByteReader| nested(reader, |reader| decode_any(reader, cache));
            NodeValue::Anys(elements(reader, present(element)))
        }
    })
}

/// Decodes within a value whose type came with it, so that such values are not nested without limit.
fn nested<T>(reader: &mut ByteReader, decode: impl FnOnce(&mut ByteReader) -> Option<T>) -> Option<T> {
    if reader.depth >= limit::DEPTH_MAX {
        reader.fail("values that are nested less deeply");
        return None;
    }
    reader.depth += 1;
    let value = decode(reader);
    reader.depth -= 1;
    value
}

/// Decodes an element that a byte before it declares as present or missing.
fn present<T>(mut element: impl FnMut(&mut ByteReader) -> Option<T>) -> impl FnMut(&mut ByteReader) -> Option<T> {
    move |reader| if reader.bool() { element(reader) } else { None }
}

/// Decodes a count and as many elements, each of which takes at least one byte.
fn elements<T>(reader: &mut ByteReader, mut element: impl FnMut(&mut ByteReader) -> Option<T>) -> Arc<Vec<Option<T>>> {
    let n = reader.count(1);
    if !reader.allow_memory(n, size_of::<Option<T>>()) {
        return Arc::default();
    }
    let mut elements = Vec::with_capacity(n.min(limit::RESERVED_ELEMENTS_MAX));
    for _ in 0..n {
        if !reader.allow_value_nodes(1) {
            break;
        }
        elements.push(element(reader));
        if reader.has_failed() {
            break;
        }
    }
    Arc::new(elements)
}

/// The selected member of a union; the outer `None` is a fault, the inner one no selection.
fn decode_union(kind: &UnionType, reader: &mut ByteReader, cache: &mut TypeCache) -> Option<Option<UnionValue>> {
    let offset = reader.offset();
    let Some(selector) = reader.size() else { return Some(None) };
    let selected = u32::try_from(selector).ok().and_then(|selector| Some((selector, kind.member(selector)?)));
    let Some((selector, kind)) = selected else {
        reader.fail_at(offset, "the index of a member of the union");
        return None;
    };
    nested(reader, |reader| decode(kind, reader, cache)).map(|value| Some(UnionValue { selector, value }))
}

#[inline]
fn decode_scalar(kind: Kind, reader: &mut ByteReader) -> Scalar {
    match kind {
        Kind::Bool => Scalar::Bool(reader.bool()),
        Kind::I8 => Scalar::I8(reader.i8()),
        Kind::U8 => Scalar::U8(reader.u8()),
        Kind::I16 => Scalar::I16(reader.i16()),
        Kind::U16 => Scalar::U16(reader.u16()),
        Kind::I32 => Scalar::I32(reader.i32()),
        Kind::U32 => Scalar::U32(reader.u32()),
        Kind::I64 => Scalar::I64(reader.i64()),
        Kind::U64 => Scalar::U64(reader.u64()),
        Kind::F32 => Scalar::F32(reader.f32()),
        Kind::F64 => Scalar::F64(reader.f64()),
        Kind::Enum => Scalar::Enum(reader.u16()),
        Kind::Text => Scalar::Text(reader.text()),
    }
}

/// Appends a complete value.
pub fn encode(structure: &Structure, to: &mut ByteWriter) {
    (0..structure.kind().nodes().len()).for_each(|bit| encode_node(structure, bit, to));
}

/// Appends a set of bits and the values of these nodes; the bit of a structure stands for all of its members.
pub fn encode_bits(structure: &Structure, bits: &BitSet, to: &mut ByteWriter) {
    to.bit_set(bits);
    structure.kind().covered(bits).flatten().for_each(|bit| encode_node(structure, bit, to));
}

/// Appends the type and the value; null without a value. With `ids`, known types are replaced by their ids.
pub fn encode_any(structure: Option<&Structure>, ids: Option<&mut TypeIds>, to: &mut ByteWriter) {
    let Some(structure) = structure else { return types::encode_null(to) };
    match ids {
        Some(ids) => ids.encode(structure.kind(), to),
        None => types::encode(structure.kind(), to),
    }
    encode(structure, to);
}

fn encode_node(structure: &Structure, bit: usize, to: &mut ByteWriter) {
    let kind = &structure.kind().nodes()[bit].kind;
    match (kind, structure.node(bit)) {
        (NodeKind::Array { size, .. }, Some(NodeValue::Value(Value::Array(array)))) => encode_array(array, *size, to),
        (_, Some(NodeValue::Value(value))) => encode_value(value, to),
        (_, Some(NodeValue::Structures(elements))) => encode_elements(elements, to, encode),
        (_, Some(NodeValue::Union(value))) => encode_union(value.as_deref(), to),
        (_, Some(NodeValue::Unions(elements))) => {
            encode_elements(elements, to, |value, to| encode_union(Some(value), to));
        }
        (_, Some(NodeValue::Any(value))) => encode_any(value.as_deref(), None, to),
        (_, Some(NodeValue::Anys(elements))) => {
            encode_elements(elements, to, |value, to| encode_any(Some(value), None, to));
        }
        (_, Some(NodeValue::Structure) | None) => {}
    }
}

fn encode_elements<T>(elements: &[Option<T>], to: &mut ByteWriter, encode: impl Fn(&T, &mut ByteWriter)) {
    to.size(elements.len());
    for element in elements {
        to.bool(element.is_some());
        if let Some(element) = element {
            encode(element, to);
        }
    }
}

fn encode_union(value: Option<&UnionValue>, to: &mut ByteWriter) {
    match value {
        Some(value) => {
            to.size(value.selector as usize);
            encode(&value.value, to);
        }
        None => to.null_size(),
    }
}

fn encode_value(value: &Value, to: &mut ByteWriter) {
    match value {
        Value::Scalar(scalar) => encode_scalar(scalar, to),
        Value::Array(array) => encode_array(array, ArraySize::Variable, to),
    }
}

/// Appends an array, cut to the maximum of its type. A fixed array has no count; it is filled up with zeros if it was
/// never set.
fn encode_array(array: &Array, size: ArraySize, to: &mut ByteWriter) {
    match size {
        ArraySize::Max(max) => encode_array(&array.truncated(max as usize), ArraySize::Variable, to),
        ArraySize::Variable => {
            to.size(array.len());
            to.elements(array);
        }
        ArraySize::Fixed(n) => {
            to.elements(&array.truncated(n as usize));
            let zero = Scalar::initial(array.kind());
            (array.len()..n as usize).for_each(|_| encode_scalar(&zero, to));
        }
    }
}

#[inline]
fn encode_scalar(scalar: &Scalar, to: &mut ByteWriter) {
    match scalar {
        Scalar::Bool(is_true) => to.bool(*is_true),
        Scalar::I8(number) => to.i8(*number),
        Scalar::U8(number) => to.u8(*number),
        Scalar::I16(number) => to.i16(*number),
        Scalar::U16(number) | Scalar::Enum(number) => to.u16(*number),
        Scalar::I32(number) => to.i32(*number),
        Scalar::U32(number) => to.u32(*number),
        Scalar::I64(number) => to.i64(*number),
        Scalar::U64(number) => to.u64(*number),
        Scalar::F32(number) => to.f32(*number),
        Scalar::F64(number) => to.f64(*number),
        Scalar::Text(text) => to.text(text.as_bytes()),
    }
}

/// Appends a set of bits and the values of these nodes, taken from a reading without a structure in between: the update
/// of a scalar causes no allocation. `bits` usually are [`NormativeLayout::marks`]; nodes that a reading does not
/// contain are 0 or empty, and so is a value that cannot be converted to the type; one that is too long is cut.
#[inline]
pub fn encode_reading(layout: &NormativeLayout, bits: &BitSet, reading: &Reading, to: &mut ByteWriter) {
    if encode_number(layout, bits, reading, to).is_none() {
        encode_parts(layout, bits, reading, to);
    }
}

#[inline(never)]
fn encode_parts(layout: &NormativeLayout, bits: &BitSet, reading: &Reading, to: &mut ByteWriter) {
    to.bit_set(bits);
    for bit in layout.kind().covered(bits).flatten() {
        let kind = &layout.kind().nodes()[bit].kind;
        match layout.part(layout.role(bit), reading) {
            Some(part) => encode_part(kind, part, to),
            None => encode_initial(kind, to),
        }
    }
}

fn encode_part(kind: &NodeKind, part: Part, to: &mut ByteWriter) {
    if let NodeKind::Scalar(kind) = kind
        && let Some(number) = part.number(*kind)
    {
        return encode_scalar(&number, to);
    }
    match (kind, part) {
        (NodeKind::Scalar(kind), Part::Value(Value::Scalar(scalar))) if scalar.kind() == *kind => {
            encode_scalar(scalar, to);
        }
        (NodeKind::Array { kind, size }, Part::Value(Value::Array(array))) if array.kind() == *kind => {
            encode_array(array, *size, to);
        }
        (kind, Part::Value(value)) => encode_converted(kind, value, to),
        (_, Part::Text(text)) => to.text(text),
        (_, Part::Texts(texts)) => {
            to.size(texts.len());
            texts.iter().for_each(|text| to.text(text.as_bytes()));
        }
        (_, Part::Forms(names)) => {
            to.size(names.len());
            names.iter().for_each(|name| to.text(name.as_bytes()));
        }
        (kind, _) => encode_initial(kind, to),
    }
}

/// Appends the value of a reading in the kind of its node.
#[cold]
fn encode_converted(kind: &NodeKind, value: &Value, to: &mut ByteWriter) {
    let single = match kind {
        NodeKind::Array { kind, size } => {
            let elements = value.clone().into_array().to_kind(*kind, None);
            return encode_array(&elements.unwrap_or(Array::empty(*kind)), *size, to);
        }
        NodeKind::BoundedText(max) => value.first().map(|first| {
            let text = first.to_text(None);
            Scalar::Text(Text::from_bytes(&text.as_bytes()[..text.len().min(*max as usize)]))
        }),
        // A long string.
        NodeKind::Scalar(Kind::Text) if matches!(value, Value::Array(Array::I8(_) | Array::U8(_))) => {
            value.long_text().map(Scalar::Text)
        }
        NodeKind::Scalar(kind) => value.first().and_then(|first| first.to_kind(*kind, None).ok()),
        _ => None,
    };
    match single {
        Some(scalar) => encode_scalar(&scalar, to),
        None => encode_initial(kind, to),
    }
}

/// Appends 0 or nothing in the kind of a node.
#[cold]
fn encode_initial(kind: &NodeKind, to: &mut ByteWriter) {
    match kind {
        NodeKind::Structure { .. } => {}
        NodeKind::Scalar(kind) => encode_scalar(&Scalar::initial(*kind), to),
        NodeKind::BoundedText(_) => encode_scalar(&Scalar::Text(Text::EMPTY), to),
        NodeKind::Array { kind, size } => encode_array(&Array::empty(*kind), *size, to),
        NodeKind::StructureArray(_) | NodeKind::UnionArray(_) | NodeKind::AnyArray => to.size(0),
        NodeKind::Union(_) => to.null_size(),
        NodeKind::Any => types::encode_null(to),
    }
}
