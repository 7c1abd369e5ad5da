//! Random types and values survive encoding and decoding in both byte orders, and damaged ones do no harm. A failure
//! names its seed.
#![expect(clippy::unwrap_used, reason = "a panic reports the failure")]

use std::sync::Arc;

use fodo_data::{
    ArraySize, BitSet, Kind, NodeKind, NodeValue, Scalar, Structure, StructureBuilder, StructureType, Text,
    UnionMember, UnionType, UnionValue, Value,
};
use fodo_pva::cursor::{ByteOrder, ByteReader, ByteWriter};
use fodo_pva::request::PvRequest;
use fodo_pva::types::{self, TypeCache, TypeIds};
use fodo_pva::value;

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

const KINDS: [Kind; 12] = [
    Kind::Bool,
    Kind::I8,
    Kind::U8,
    Kind::I16,
    Kind::U16,
    Kind::I32,
    Kind::U32,
    Kind::I64,
    Kind::U64,
    Kind::F32,
    Kind::F64,
    Kind::Text,
];

/// Random choices that a seed repeats (SplitMix64).
struct Choices(u64);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn kind(&mut self) -> Kind {
        KINDS[self.below(KINDS.len())]
    }

    fn text(&mut self) -> Text {
        let letters: String = (0..self.below(12)).map(|_| char::from(b'a' + self.below(26) as u8)).collect();
        letters.into()
    }

    fn structure_type(&mut self, depth: u32) -> Arc<StructureType> {
        let mut build = StructureBuilder::new(self.text());
        self.members(&mut build, depth);
        Arc::new(build.finish())
    }

    fn members(&mut self, build: &mut StructureBuilder, depth: u32) {
        for index in 0..self.below(6) {
            let name = format!("m{index}");
            match self.below(if depth == 0 { 6 } else { 11 }) {
                0 | 1 => {
                    build.scalar(&name, self.kind());
                }
                2 | 3 => {
                    build.array(&name, self.kind());
                }
                4 => {
                    build.leaf(name, NodeKind::BoundedText(12));
                }
                5 => {
                    let size = [ArraySize::Max(3), ArraySize::Fixed(3)][self.below(2)];
                    build.leaf(name, NodeKind::Array { kind: self.kind(), size });
                }
                6 => {
                    build.leaf(name, NodeKind::StructureArray(self.structure_type(depth - 1)));
                }
                7 => {
                    build.leaf(name, NodeKind::Union(self.union_type(depth - 1)));
                }
                8 => {
                    build.leaf(name, NodeKind::UnionArray(self.union_type(depth - 1)));
                }
                9 => {
                    build.leaf(name, [NodeKind::Any, NodeKind::AnyArray][self.below(2)].clone());
                }
                _ => {
                    build.open(name, self.text());
                    self.members(build, depth - 1);
                    build.close();
                }
            }
        }
    }

    fn union_type(&mut self, depth: u32) -> Arc<UnionType> {
        let members = (0..1 + self.below(3)).map(|index| UnionMember {
            name: format!("u{index}").into(),
            kind: match self.below(2) {
                0 => self.structure_type(depth),
                _ => Arc::new(StructureType::single(NodeKind::Scalar(self.kind()))),
            },
        });
        let members = members.collect();
        Arc::new(UnionType { id: self.text(), members })
    }

    fn scalar(&mut self, kind: Kind) -> Scalar {
        match kind {
            Kind::Text => Scalar::Text(self.text()),
            // NaN is not equal to itself.
            Kind::F64 => Scalar::F64(self.next() as i64 as f64 / 1000.0),
            Kind::F32 => Scalar::F32(self.next() as i16 as f32 / 8.0),
            kind => Scalar::I64(self.next() as i64).to_kind(kind, None).unwrap(),
        }
    }

    fn array(&mut self, kind: Kind, n: usize) -> Value {
        let elements: Vec<Scalar> = (0..n).map(|_| self.scalar(kind)).collect();
        let texts: Vec<Text> = elements.iter().map(|element| element.to_text(None)).collect();
        let doubles: Vec<f64> = elements.iter().map(|element| element.to_f64().unwrap_or(0.0)).collect();
        let array = if kind == Kind::Text { Value::from(texts) } else { Value::from(doubles) };
        array.to_kind(kind, None).unwrap()
    }

    fn structure(&mut self, kind: &Arc<StructureType>, depth: u32) -> Structure {
        let mut structure = Structure::new(kind.clone());
        for (bit, node) in kind.nodes().iter().enumerate() {
            if let Some(value) = self.node_value(&node.kind, depth) {
                structure.set_node(bit, value).unwrap();
            }
        }
        structure.unmark_all();
        structure
    }

    fn node_value(&mut self, kind: &NodeKind, depth: u32) -> Option<NodeValue> {
        let depth = depth.saturating_sub(1);
        let n = self.below(4);
        Some(match kind {
            NodeKind::Structure { .. } => return None,
            NodeKind::Scalar(kind) => NodeValue::Value(Value::Scalar(self.scalar(*kind))),
            NodeKind::BoundedText(_) => NodeValue::Value(Value::Scalar(Scalar::Text(self.text()))),
            NodeKind::Array { kind, size: ArraySize::Fixed(n) } => NodeValue::Value(self.array(*kind, *n as usize)),
            NodeKind::Array { kind, .. } => NodeValue::Value(self.array(*kind, n)),
            NodeKind::StructureArray(kind) => {
                let element = |choices: &mut Choices| choices.perhaps(|choices| choices.structure(kind, depth));
                NodeValue::Structures(Arc::new((0..n).map(|_| element(self)).collect()))
            }
            NodeKind::Union(kind) => {
                NodeValue::Union(self.perhaps(|choices| Box::new(choices.union_value(kind, depth))))
            }
            NodeKind::UnionArray(kind) => {
                let element = |choices: &mut Choices| choices.perhaps(|choices| choices.union_value(kind, depth));
                NodeValue::Unions(Arc::new((0..n).map(|_| element(self)).collect()))
            }
            NodeKind::Any => NodeValue::Any(self.perhaps(|choices| Box::new(choices.any(depth)))),
            NodeKind::AnyArray => {
                let element = |choices: &mut Choices| choices.perhaps(|choices| choices.any(depth));
                NodeValue::Anys(Arc::new((0..n).map(|_| element(self)).collect()))
            }
        })
    }

    fn perhaps<T>(&mut self, make: impl FnOnce(&mut Choices) -> T) -> Option<T> {
        (self.below(4) > 0).then(|| make(self))
    }

    fn union_value(&mut self, kind: &UnionType, depth: u32) -> UnionValue {
        let selector = self.below(kind.members.len()) as u32;
        UnionValue { selector, value: self.structure(kind.member(selector).unwrap(), depth) }
    }

    fn any(&mut self, depth: u32) -> Structure {
        match self.below(if depth == 0 { 1 } else { 2 }) {
            0 => {
                let kind = self.kind();
                Structure::single(Value::Scalar(self.scalar(kind)))
            }
            _ => {
                let kind = self.structure_type(depth - 1);
                self.structure(&kind, depth - 1)
            }
        }
    }

    fn bits(&mut self, n: usize) -> BitSet {
        (0..n).filter(|_| self.below(3) == 0).collect()
    }
}

fn encoded(order: ByteOrder, write: impl FnOnce(&mut ByteWriter)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut ByteWriter::new(&mut out, order));
    out
}

#[test]
fn random_types_and_values_survive_the_round_trip_in_both_orders() {
    for seed in 0..300 {
        let mut choices = Choices(seed);
        let kind = choices.structure_type(4);
        let original = choices.structure(&kind, 4);
        let bits = choices.bits(kind.nodes().len());
        for order in ORDERS {
            let bytes = encoded(order, |to| value::encode_any(Some(&original), None, to));
            let mut reader = ByteReader::new(&bytes, order);
            assert_eq!(value::decode_any(&mut reader, &mut TypeCache::new()), Some(original.clone()), "{seed}");
            assert_eq!((reader.n_left(), reader.finish()), (0, Ok(())), "{seed}");

            let bytes = encoded(order, |to| value::encode_bits(&original, &bits, to));
            let mut delta = Structure::new(kind.clone());
            let mut reader = ByteReader::new(&bytes, order);
            value::decode_changed(&mut delta, &mut reader, &mut TypeCache::new());
            assert_eq!((reader.n_left(), reader.finish()), (0, Ok(())), "{seed}");
            assert_eq!(delta.changed(), &bits, "{seed}");
            for bit in kind.leaves(&bits).iter() {
                assert_eq!(delta.node(bit), original.node(bit), "{seed} {}", kind.path(bit));
            }
            assert_eq!(encoded(order, |to| value::encode_bits(&delta, delta.changed(), to)), bytes, "{seed}");
        }
    }
}

#[test]
fn types_sent_with_ids_arrive_as_they_were_sent() {
    let mut choices = Choices(1);
    let kinds: Vec<_> = (0..30).map(|_| choices.structure_type(3)).collect();
    for order in ORDERS {
        let (mut ids, mut cache) = (TypeIds::new(20), TypeCache::new());
        for _ in 0..300 {
            let kind = &kinds[choices.below(kinds.len())];
            let bytes = encoded(order, |to| ids.encode(kind, to));
            let mut reader = ByteReader::new(&bytes, order);

            assert_eq!(types::decode(&mut reader, &mut cache).as_ref(), Some(kind));
            assert_eq!((reader.n_left(), reader.finish()), (0, Ok(())));
        }
        assert!(cache.len() <= 20);
    }
}

#[test]
fn cut_and_damaged_bytes_are_rejected_or_decode_to_something_that_can_be_encoded() {
    let mut n_rejected = 0;
    for seed in 0..100 {
        let mut choices = Choices(seed);
        let kind = choices.structure_type(3);
        let original = choices.structure(&kind, 3);
        for order in ORDERS {
            let whole = encoded(order, |to| value::encode_any(Some(&original), None, to));
            for n_bytes in 0..whole.len() {
                let mut reader = ByteReader::new(&whole[..n_bytes], order);
                assert_eq!(value::decode_any(&mut reader, &mut TypeCache::new()), None, "{seed} {n_bytes}");
                assert!(reader.has_failed(), "{seed} {n_bytes}");
            }
            for _ in 0..100 {
                let mut damaged = whole.clone();
                let at = choices.below(damaged.len());
                damaged[at] = choices.next() as u8;
                let mut reader = ByteReader::new(&damaged, order);
                match value::decode_any(&mut reader, &mut TypeCache::new()) {
                    Some(found) => drop(encoded(order, |to| value::encode_any(Some(&found), None, to))),
                    None => n_rejected += 1,
                }
            }
        }
    }
    assert!(n_rejected > 100, "{n_rejected}");
}

#[test]
fn random_requests_survive_text_and_structure() {
    for seed in 0..300 {
        let mut choices = Choices(seed);
        let signs = b"ab,.=()[]{} f";
        let noise: String = (0..choices.below(20)).map(|_| char::from(signs[choices.below(signs.len())])).collect();
        let Ok(request) = PvRequest::parse(&noise) else { continue };

        assert_eq!(PvRequest::parse(&request.to_string()).as_ref(), Ok(&request), "{noise}");
        if !request.groups.is_empty() {
            assert_eq!(PvRequest::from_structure(&request.to_structure()), request, "{noise}");
        }
    }
}
