//! The types of open operations. Those of the same type share one description.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use fodo_data::{
    Array, ArraySize, BitSet, ConvertError, Kind, Node, NodeKind, NormativeLayout, Reading, Role, Scalar, Structure,
    StructureError, StructureType, Text, Value,
};

use super::{Decoding, PutContent, Received};
use crate::cursor::{ByteOrder, ByteReader, ByteWriter};
use crate::limit;
use crate::types::{self, TypeCache};
use crate::value;

/// The type of an operation, and how its values are decoded.
#[derive(Debug)]
pub(super) struct Layout {
    kind: Arc<StructureType>,
    /// For the type of a scalar, an array or an enum.
    flat: Option<Flat>,
    /// About how much memory the type takes.
    n_bytes: usize,
}

/// The types of one operation, as far as its task has them.
#[derive(Debug, Default)]
pub(super) struct OperationTypes {
    /// Of what it reads.
    pub(super) read: Option<Arc<Layout>>,
    /// Of what it writes.
    pub(super) written: Option<Arc<Layout>>,
}

/// Where the parts of a reading are.
#[derive(Debug)]
struct Flat {
    normative: NormativeLayout,
    /// The node that a put of a value sets.
    value_bits: BitSet,
    /// The value before any was received.
    initial: Value,
}

impl Layout {
    fn new(kind: Arc<StructureType>, n_bytes: usize) -> Layout {
        let flat = NormativeLayout::of(kind.clone()).map(|normative| Flat {
            value_bits: [normative.value_bit()].into_iter().collect(),
            initial: initial(&normative),
            normative,
        });
        Layout { kind, flat, n_bytes }
    }

    pub(super) fn kind(&self) -> &Arc<StructureType> {
        &self.kind
    }

    /// What an operation of this type has received before its first value.
    #[inline]
    pub(super) fn initial(&self, decoding: Decoding) -> Received {
        match (&self.flat, decoding) {
            (Some(flat), Decoding::Flat) => Received::Reading(Reading::bare(flat.initial.clone())),
            _ => Received::Structure(Structure::new(self.kind.clone())),
        }
    }

    /// The reading in the reply to a get of a number, if it can be decoded in one step; `None` for everything else.
    #[inline(always)]
    pub(super) fn number(&self, decoding: Decoding, bytes: &[u8], order: ByteOrder) -> Option<Reading> {
        let flat = self.flat.as_ref().filter(|_| decoding == Decoding::Flat)?;
        value::decode_number_reading(&flat.normative, bytes, order)
    }

    /// Decodes a set of bits and the values of these nodes into what was received before; returns the bits.
    #[inline]
    pub(super) fn decode_into(
        &self,
        received: &mut Received,
        reader: &mut ByteReader,
        cache: &mut TypeCache,
    ) -> BitSet {
        match (received, &self.flat) {
            (Received::Reading(reading), Some(flat)) => value::decode_reading(&flat.normative, reading, reader, cache),
            (Received::Structure(structure), _) => {
                value::decode_changed(structure, reader, cache);
                structure.changed().clone()
            }
            _ => BitSet::new(),
        }
    }

    /// A put in a form that can be encoded: a value in the kind of its node, and a structure of this type. The name of a
    /// state remains a text, until its index is known.
    pub(super) fn checked(&self, put: PutContent) -> Result<PutContent, StructureError> {
        match put {
            PutContent::Structure(structure)
                if Arc::ptr_eq(structure.kind(), &self.kind) || *structure.kind() == self.kind =>
            {
                Ok(PutContent::Structure(structure))
            }
            PutContent::Structure(_) => Err(StructureError::OtherType),
            PutContent::Value(value) => self.checked_value(value),
        }
    }

    fn checked_value(&self, value: Value) -> Result<PutContent, StructureError> {
        let Some(Flat { normative, .. }) = &self.flat else {
            return Err(StructureError::OtherKind("value".into()));
        };
        let bit = normative.value_bit();
        let first = |value: Value| value.first().ok_or(StructureError::Convert(ConvertError::Empty));
        Ok(PutContent::Value(match (normative.role(bit), &self.kind.nodes()[bit].kind) {
            (Role::Index, _) => match first(value)? {
                name @ Scalar::Text(_) => Value::Scalar(name),
                number => Value::Scalar(number.to_kind(Kind::Enum, None)?),
            },
            (_, NodeKind::Scalar(kind)) => Value::Scalar(first(value)?.to_kind(*kind, None)?),
            (_, NodeKind::Array { kind, size: ArraySize::Variable }) => {
                Value::Array(value.into_array().to_kind(*kind, None)?)
            }
            // A structure rejects what exceeds the bounds of its type.
            _ => {
                let mut structure = Structure::new(self.kind.clone());
                structure.set_value(bit, value)?;
                return Ok(PutContent::Structure(structure));
            }
        }))
    }

    /// Whether a value of this type is one of several states, which have names.
    pub(super) fn has_states(&self) -> bool {
        self.flat.as_ref().is_some_and(|flat| flat.normative.role(flat.normative.value_bit()) == Role::Index)
    }

    /// Appends the node that a put of a checked value sets, and the value.
    pub(super) fn encode_value(&self, value: Value, to: &mut ByteWriter) {
        if let Some(Flat { normative, value_bits, .. }) = &self.flat {
            value::encode_reading(normative, value_bits, &Reading::bare(value), to);
        }
    }

    /// The names of the states of an enum in a value of this type; none if it is not an enum.
    pub(super) fn choices(&self, from: &Structure) -> Vec<Text> {
        let choices = self.kind.node("value.choices").and_then(|bit| from.value(bit));
        match choices {
            Some(Value::Array(Array::Text(choices))) => choices.to_vec(),
            _ => Vec::new(),
        }
    }
}

/// The value before any was received: 0 or empty in its kind.
fn initial(normative: &NormativeLayout) -> Value {
    let bit = normative.value_bit();
    match (normative.role(bit), &normative.kind().nodes()[bit].kind) {
        (Role::Index, _) => Value::Scalar(Scalar::Enum(0)),
        (_, NodeKind::Scalar(kind)) => Value::Scalar(Scalar::initial(*kind)),
        (_, NodeKind::Array { kind, .. }) => Value::Array(Array::empty(*kind)),
        _ => Value::Scalar(Scalar::Text(Text::EMPTY)),
    }
}

/// The layouts of all open operations of a circuit.
#[derive(Debug)]
pub(super) struct Layouts {
    by_type: HashMap<Arc<StructureType>, Arc<Layout>>,
    /// The layout that was found last: the hash of a type visits all of its nodes.
    last: Weak<Layout>,
    /// By the bytes of the description, in either byte order. pvxs describes the type for every operation; equal
    /// descriptions are decoded once.
    by_bytes: [HashMap<Box<[u8]>, Weak<Layout>>; 2],
    n_bytes: usize,
    n_bytes_max: usize,
    /// The number of types at which unused ones are dropped.
    sweep_at: usize,
}

impl Layouts {
    pub(super) fn new() -> Layouts {
        Layouts {
            by_type: HashMap::new(),
            last: Weak::new(),
            by_bytes: [HashMap::new(), HashMap::new()],
            n_bytes: 0,
            n_bytes_max: limit::OPEN_TYPE_BYTES_MAX,
            sweep_at: limit::KEPT_LAYOUTS,
        }
    }

    /// Decodes the type at the end of a payload. `None` after a fault, or if the types of the open operations are too
    /// large together.
    pub(super) fn decode_last(
        &mut self,
        payload: &[u8],
        reader: &mut ByteReader,
        cache: &mut TypeCache,
    ) -> Option<Arc<Layout>> {
        let order = reader.order() as usize;
        let description = payload.get(reader.offset()..)?;
        if let Some(layout) = self.by_bytes[order].get(description).and_then(Weak::upgrade) {
            reader.rest();
            return Some(layout);
        }
        let layout = self.decode(reader, cache)?;
        if reader.n_left() == 0 && is_without_ids(description, &layout.kind, reader) {
            self.by_bytes[order].insert(description.into(), Arc::downgrade(&layout));
        }
        Some(layout)
    }

    /// Decodes a type. `None` after a fault, or if the types of the open operations are too large together.
    pub(super) fn decode(&mut self, reader: &mut ByteReader, cache: &mut TypeCache) -> Option<Arc<Layout>> {
        let offset = reader.offset();
        match types::decode(reader, cache) {
            Some(kind) => self.layout_of(kind),
            None => {
                reader.fail_at(offset, "a type");
                None
            }
        }
    }

    fn layout_of(&mut self, kind: Arc<StructureType>) -> Option<Arc<Layout>> {
        if let Some(last) = self.last.upgrade().filter(|last| Arc::ptr_eq(&last.kind, &kind)) {
            return Some(last);
        }
        if let Some(layout) = self.by_type.get(&kind) {
            self.last = Arc::downgrade(layout);
            return Some(layout.clone());
        }
        let (n_nodes, name_bytes) = types::size_of_type(&kind);
        let n_bytes = n_nodes * size_of::<Node>() + name_bytes;
        let has_room = |layouts: &Layouts| layouts.n_bytes + n_bytes <= layouts.n_bytes_max;
        if self.by_type.len() >= self.sweep_at || !has_room(self) {
            self.sweep();
        }
        if !has_room(self) {
            return None;
        }
        let layout = Arc::new(Layout::new(kind.clone(), n_bytes));
        self.n_bytes += n_bytes;
        self.by_type.insert(kind, layout.clone());
        Some(layout)
    }

    /// Drops the layouts without an operation.
    fn sweep(&mut self) {
        self.by_type.retain(|_, layout| Arc::strong_count(layout) > 1);
        self.by_bytes.iter_mut().for_each(|by_bytes| by_bytes.retain(|_, layout| layout.strong_count() > 0));
        self.n_bytes = self.by_type.values().map(|layout| layout.n_bytes).sum();
        self.sweep_at = (2 * self.by_type.len()).max(limit::KEPT_LAYOUTS);
    }
}

/// Whether a description contains the whole type, so that the same bytes always mean the same type.
fn is_without_ids(description: &[u8], kind: &StructureType, reader: &ByteReader) -> bool {
    if description.len() < kind.nodes().len() {
        return false;
    }
    let mut whole = Vec::with_capacity(description.len());
    types::encode(kind, &mut ByteWriter::new(&mut whole, reader.order()));
    whole == description
}

#[cfg(test)]
mod tests {
    use fodo_data::{StructureBuilder, normative_type};

    use super::*;
    use crate::types::TypeIds;

    const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

    fn decoded(layouts: &mut Layouts, bytes: &[u8], order: ByteOrder, cache: &mut TypeCache) -> Option<Arc<Layout>> {
        let mut reader = ByteReader::new(bytes, order);
        let layout = layouts.decode_last(bytes, &mut reader, cache);
        assert_eq!((reader.n_left(), reader.finish()), (0, Ok(())));
        layout
    }

    fn described(kind: &StructureType, order: ByteOrder) -> Vec<u8> {
        let mut bytes = Vec::new();
        types::encode(kind, &mut ByteWriter::new(&mut bytes, order));
        bytes
    }

    #[test]
    fn equal_types_share_a_layout_whether_they_are_described_in_full_or_by_id() {
        let kind = Arc::new(normative_type(Kind::F64, false));
        let (mut layouts, mut cache, mut ids) = (Layouts::new(), TypeCache::new(), TypeIds::new(10));
        let mut found = Vec::new();

        for order in ORDERS {
            for _ in 0..2 {
                found.push(decoded(&mut layouts, &described(&kind, order), order, &mut cache).unwrap());
                let mut bytes = Vec::new();
                ids.encode(&kind, &mut ByteWriter::new(&mut bytes, order));
                found.push(decoded(&mut layouts, &bytes, order, &mut cache).unwrap());
            }
        }

        assert!(found.iter().all(|layout| Arc::ptr_eq(layout, &found[0]) && *layout.kind() == kind));
        assert!(layouts.by_bytes.iter().all(|by_bytes| by_bytes.len() == 1), "descriptions with ids are not kept");
    }

    #[test]
    fn a_type_whose_id_was_given_to_another_type_is_decoded_anew() {
        let (mut layouts, mut cache) = (Layouts::new(), TypeCache::new());
        let mut of =
            |bytes: &[u8]| decoded(&mut layouts, bytes, ByteOrder::Little, &mut cache).unwrap().kind().to_string();

        assert_eq!(of(b"\xfd\x01\x00\x80\x00\x01\x05value\x43"), "{F64 value}");
        assert_eq!(of(b"\xfe\x01\x00"), "{F64 value}");
        assert_eq!(of(b"\xfd\x01\x00\x80\x00\x01\x05value\x22"), "{I32 value}");
        assert_eq!(of(b"\xfe\x01\x00"), "{I32 value}");
    }

    #[test]
    fn types_in_use_are_limited_in_memory_and_unused_ones_are_dropped() {
        let (mut layouts, mut cache) = (Layouts::new(), TypeCache::new());
        let different = |n: usize| {
            let mut build = StructureBuilder::new(format!("type {n:3}"));
            build.scalar("value", Kind::I8).scalar("rest", Kind::I8);
            described(&build.finish(), ByteOrder::Little)
        };
        let mut open = |layouts: &mut Layouts, n| decoded(layouts, &different(n), ByteOrder::Little, &mut cache);
        // The type's name and those of its members.
        layouts.n_bytes_max = 10 * (3 * size_of::<Node>() + "type 100valuerest".len());

        let used: Vec<_> = (0..10).map(|n| open(&mut layouts, n)).collect();
        assert!(used.iter().all(Option::is_some) && open(&mut layouts, 3).is_some());
        assert!(open(&mut layouts, 10).is_none());
        drop(used);
        assert!(open(&mut layouts, 10).is_some());

        assert_eq!((layouts.by_type.len(), layouts.by_bytes[0].len()), (1, 1));
    }

    #[test]
    fn unused_types_are_dropped_before_they_are_many() {
        let (mut layouts, mut cache) = (Layouts::new(), TypeCache::new());
        let mut open = |layouts: &mut Layouts, name: String| {
            let kind = StructureBuilder::new(name).finish();
            decoded(layouts, &described(&kind, ByteOrder::Little), ByteOrder::Little, &mut cache).unwrap()
        };

        let mut n_most = 0;
        for n in 0..2 * limit::KEPT_LAYOUTS {
            open(&mut layouts, format!("type {n}"));
            n_most = n_most.max(layouts.by_type.len()).max(layouts.by_bytes[0].len());
        }
        let used: Vec<_> = (0..200).map(|n| open(&mut layouts, format!("used {n}"))).collect();
        layouts.sweep();

        assert_eq!(n_most, limit::KEPT_LAYOUTS);
        assert_eq!((layouts.by_type.len(), layouts.sweep_at), (used.len(), 400));
    }

    #[test]
    fn a_value_that_was_never_received_is_zero_or_empty_in_its_kind() {
        for (node, expected) in [
            (NodeKind::Scalar(Kind::I32), Value::from(0)),
            (NodeKind::Scalar(Kind::Text), "".into()),
            (NodeKind::Array { kind: Kind::F64, size: ArraySize::Variable }, Vec::<f64>::new().into()),
            (NodeKind::BoundedText(8), "".into()),
        ] {
            let mut build = StructureBuilder::new("");
            build.leaf("value", node);
            let layout = Layout::new(Arc::new(build.finish()), 0);

            assert_eq!(layout.initial(Decoding::Flat), Received::Reading(Reading::bare(expected)));
        }
    }

    #[test]
    fn a_missing_type_is_a_fault() {
        let mut reader = ByteReader::new(b"\xff", ByteOrder::Little);

        assert!(Layouts::new().decode_last(b"\xff", &mut reader, &mut TypeCache::new()).is_none());
        assert!(reader.has_failed());
    }
}
