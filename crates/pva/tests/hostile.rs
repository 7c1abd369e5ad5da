//! Messages that claim more than they contain: they are rejected before memory is allocated for the claim. Values that
//! exceed their type are not sent.

use std::sync::Arc;

use fodo_data::{
    ArraySize, EventMask, Kind, NodeKind, NormativeLayout, Reading, Structure, StructureBuilder, StructureType, Value,
};
use fodo_pva::cursor::{ByteOrder, ByteReader, ByteWriter, Malformed};
use fodo_pva::limit;
use fodo_pva::types::TypeCache;
use fodo_pva::value;

fn decoded(kind: NodeKind, bytes: &[u8]) -> Result<Option<Structure>, Malformed> {
    let mut reader = ByteReader::new(bytes, ByteOrder::Little);
    let kind = Arc::new(StructureType::single(kind));
    let found = value::decode(&kind, &mut reader, &mut TypeCache::new());
    reader.finish().map(|()| found)
}

const TWO_BILLION: [u8; 5] = [254, 0xff, 0xff, 0xff, 0x7f];

#[test]
fn an_array_of_two_billion_elements_without_bytes_is_rejected() {
    for kind in [Kind::U8, Kind::F64, Kind::Text] {
        let array = NodeKind::Array { kind, size: ArraySize::Variable };
        let expected = "a count that is covered by bytes";
        assert_eq!(decoded(array, &TWO_BILLION), Err(Malformed { offset: 0, expected }));
    }
    let empty = Arc::new(StructureType::single(NodeKind::Structure { id: "".into() }));
    assert!(decoded(NodeKind::StructureArray(empty), &TWO_BILLION).is_err());
    assert!(decoded(NodeKind::AnyArray, &TWO_BILLION).is_err());
    assert!(decoded(NodeKind::Scalar(Kind::Text), &TWO_BILLION).is_err());
}

#[test]
fn an_array_with_more_elements_than_its_type_permits_is_rejected() {
    let bounded = |bytes: &[u8]| decoded(NodeKind::Array { kind: Kind::U8, size: ArraySize::Max(2) }, bytes);

    assert!(bounded(&[2, 1, 1]).is_ok());
    assert!(bounded(&[3, 1, 1, 1]).is_err());
    assert!(decoded(NodeKind::BoundedText(2), b"\x03abc").is_err());
}

#[test]
fn a_value_that_needs_too_much_memory_is_rejected_before_it_is_allocated() {
    let n_elements: i32 = 70_000_000;
    let bytes = [&[0xfe][..], &n_elements.to_le_bytes(), &vec![0; n_elements as usize]].concat();
    for kind in [NodeKind::AnyArray, NodeKind::Array { kind: Kind::Text, size: ArraySize::Variable }] {
        let fault = decoded(kind, &bytes).unwrap_err();

        assert_eq!(fault, Malformed { offset: 5, expected: "a value that takes less memory" });
    }
}

#[test]
fn structures_without_bytes_are_limited_in_number() {
    let mut build = StructureBuilder::new("");
    for _ in 0..1000 {
        build.open("a", "").close();
    }
    let wide = NodeKind::StructureArray(Arc::new(build.finish()));

    let mut bytes = [254, 0, 1, 0, 0].to_vec();
    bytes.extend([1; 256]);
    assert_eq!(limit::VALUE_NODES_SPARE / 1001, 65);
    assert!(decoded(wide.clone(), &bytes).is_err(), "256 structures of 1000 members each");
    let mut few = [60].to_vec();
    few.extend([1; 60]);
    assert!(decoded(wide, &few).is_ok());
}

#[test]
fn variant_unions_within_variant_unions_are_limited_in_depth() {
    // Each is an `any` that contains an `any`.
    let nested = |depth: usize| [vec![0x82; depth], vec![0xff]].concat();

    assert!(decoded(NodeKind::Any, &nested(19)).is_ok());
    assert!(decoded(NodeKind::Any, &nested(100)).is_err());
    assert!(decoded(NodeKind::Any, &nested(1_000_000)).is_err());
}

#[test]
fn a_union_selects_only_its_members() {
    let mut reader = ByteReader::new(b"\x81\x00\x01\x01a\x43\x01", ByteOrder::Little);

    assert_eq!(value::decode_any(&mut reader, &mut TypeCache::new()), None);
    assert_eq!(reader.finish(), Err(Malformed { offset: 6, expected: "the index of a member of the union" }));
}

#[test]
fn bits_beyond_the_type_are_dropped() {
    let mut bytes = [254, 0, 0, 16, 0].to_vec();
    bytes.extend(vec![0xff; 1 << 20]);
    let mut reader = ByteReader::new(&bytes, ByteOrder::Little);

    assert_eq!(reader.bit_set(3).n_words(), 1);
    assert_eq!(reader.n_left(), 0);
}

#[test]
fn a_reading_that_exceeds_its_type_is_cut() {
    let encoded = |kind: NodeKind, value: Value| {
        let mut build = StructureBuilder::new("");
        build.leaf("value", kind);
        let layout = NormativeLayout::of(Arc::new(build.finish())).unwrap();
        let mut out = Vec::new();
        let mut to = ByteWriter::new(&mut out, ByteOrder::Little);
        value::encode_reading(&layout, layout.marks(EventMask::VALUE), &Reading::bare(value), &mut to);
        out
    };
    let array = |size| NodeKind::Array { kind: Kind::U8, size };

    assert_eq!(encoded(array(ArraySize::Max(2)), vec![1_u8, 2, 3].into()), [1, 2, 2, 1, 2]);
    assert_eq!(encoded(array(ArraySize::Fixed(2)), vec![1_u8, 2, 3].into()), [1, 2, 1, 2]);
    assert_eq!(encoded(array(ArraySize::Fixed(2)), Value::from(7.0)), [1, 2, 7, 0]);
    assert_eq!(encoded(array(ArraySize::Variable), "x".into()), [1, 2, 0]);
    assert_eq!(encoded(NodeKind::BoundedText(2), "abc".into()), b"\x01\x02\x02ab");
    assert_eq!(encoded(NodeKind::Scalar(Kind::I16), "x".into()), [1, 2, 0, 0]);
    assert_eq!(encoded(NodeKind::Scalar(Kind::Bool), 2.into()), [1, 2, 1]);
}
