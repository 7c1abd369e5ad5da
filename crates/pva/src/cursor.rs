//! Reading and writing the primitive encodings in either byte order.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use fodo_data::{Array, BitSet, Kind, Text};

use crate::incoming_array::{ApartArray, ArrayPlace, append_elements};
use crate::limit;

/// The byte order of a message. Each message has its own, which its header declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The least significant byte first.
    Little,
    /// The most significant byte first.
    Big,
}

impl ByteOrder {
    pub(crate) fn u32_from(self, bytes: [u8; 4]) -> u32 {
        match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }

    pub(crate) fn u32_bytes(self, number: u32) -> [u8; 4] {
        match self {
            ByteOrder::Little => number.to_le_bytes(),
            ByteOrder::Big => number.to_be_bytes(),
        }
    }
}

/// Where the bytes of a message cannot be decoded, and what was expected there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The offset in the payload.
    pub offset: usize,
    /// What was expected.
    pub expected: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} at offset {}", self.expected, self.offset)
    }
}

impl std::error::Error for Malformed {}

/// The first byte of a size that is followed by 32 bits.
const LONG_SIZE: u8 = 254;
/// The size of something that is missing.
const NULL_SIZE: u8 = 255;

/// Reads a payload from front to back.
///
/// It keeps the first fault. After a fault every read returns 0 or nothing, so that a decoder can check once, at its
/// end, with [`ByteReader::finish`].
#[derive(Debug)]
pub struct ByteReader<'a> {
    bytes: &'a [u8],
    offset: usize,
    order: ByteOrder,
    fault: Option<Malformed>,
    pub(crate) depth: u32,
    pub(crate) type_nodes_left: usize,
    value_nodes_left: usize,
    memory_left: usize,
    is_short_of_memory: bool,
    /// A large array that is not among the bytes.
    apart: Option<&'a mut ApartArray>,
}

macro_rules! read {
    ($($(#[$doc:meta])* $name:ident $rust:ty;)*) => {$(
        $(#[$doc])*
        #[inline]
        pub fn $name(&mut self) -> $rust {
            let Some(bytes) = self.chunk() else { return <$rust>::default() };
            match self.order {
                ByteOrder::Little => <$rust>::from_le_bytes(bytes),
                ByteOrder::Big => <$rust>::from_be_bytes(bytes),
            }
        }
    )*};
}

impl<'a> ByteReader<'a> {
    /// Starts at the front of a payload.
    pub fn new(bytes: &'a [u8], order: ByteOrder) -> ByteReader<'a> {
        ByteReader {
            bytes,
            offset: 0,
            order,
            fault: None,
            depth: 0,
            type_nodes_left: limit::TYPE_NODES_MAX,
            value_nodes_left: bytes.len() + limit::VALUE_NODES_SPARE,
            memory_left: limit::DECODED_BYTES_MAX,
            is_short_of_memory: false,
            apart: None,
        }
    }

    /// Starts at the front of a payload without the elements of a large array.
    pub(crate) fn with_apart(bytes: &'a [u8], order: ByteOrder, apart: &'a mut ApartArray) -> ByteReader<'a> {
        let mut reader = ByteReader::new(bytes, order);
        reader.value_nodes_left = reader.value_nodes_left.saturating_add(apart.n_bytes);
        reader.apart = Some(apart);
        reader
    }

    /// The byte order of the payload.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// The position of the next byte.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of bytes that were not read; 0 after a fault.
    pub fn n_left(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// The bytes that were not read, which remain; none after a fault.
    #[inline]
    pub(crate) fn remaining(&self) -> &'a [u8] {
        self.bytes.get(self.offset..).unwrap_or_default()
    }

    /// All bytes that were not read; none after a fault.
    pub fn rest(&mut self) -> &'a [u8] {
        self.take(self.n_left())
    }

    /// Whether everything until now could be decoded. Bytes after the last value are not a fault: later versions of the
    /// protocol may append fields.
    pub fn finish(&self) -> Result<(), Malformed> {
        self.fault.map_or(Ok(()), Err)
    }

    /// Whether something could not be decoded.
    pub fn has_failed(&self) -> bool {
        self.fault.is_some()
    }

    /// Records a fault at the current position, unless there is one already.
    #[cold]
    pub fn fail(&mut self, expected: &'static str) {
        self.fail_at(self.offset, expected);
    }

    #[cold]
    pub(crate) fn fail_at(&mut self, offset: usize, expected: &'static str) {
        let n_apart = self.apart.as_ref().map_or(0, |apart| apart.n_bytes_before(offset));
        self.fault.get_or_insert(Malformed { offset: offset + n_apart, expected });
        self.offset = self.bytes.len();
    }

    /// The next `n` bytes; none if there are fewer.
    #[inline]
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        match self.bytes.get(self.offset..).and_then(|rest| rest.get(..n)) {
            Some(taken) => {
                self.offset += n;
                taken
            }
            None => {
                self.fail("more bytes");
                &[]
            }
        }
    }

    #[inline]
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let chunk = self.bytes.get(self.offset..).and_then(|rest| rest.first_chunk::<N>());
        match chunk {
            Some(bytes) => {
                self.offset += N;
                Some(*bytes)
            }
            None => {
                self.fail("more bytes");
                None
            }
        }
    }

    read! {
        /// An unsigned integer of 8 bits.
        u8 u8;
        /// A signed integer of 8 bits.
        i8 i8;
        /// An unsigned integer of 16 bits.
        u16 u16;
        /// A signed integer of 16 bits.
        i16 i16;
        /// An unsigned integer of 32 bits.
        u32 u32;
        /// A signed integer of 32 bits.
        i32 i32;
        /// An unsigned integer of 64 bits.
        u64 u64;
        /// A signed integer of 64 bits.
        i64 i64;
        /// A floating point number of 32 bits.
        f32 f32;
        /// A floating point number of 64 bits.
        f64 f64;
    }

    /// A boolean: any byte but 0 is true.
    pub fn bool(&mut self) -> bool {
        self.u8() != 0
    }

    /// Bytes of a known number, for example an address.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        self.chunk().unwrap_or([0; N])
    }

    /// A size; `None` for the size of something that is missing.
    #[inline]
    pub fn size(&mut self) -> Option<usize> {
        match self.u8() {
            NULL_SIZE => None,
            LONG_SIZE => match usize::try_from(self.i32()) {
                Ok(size) => Some(size),
                Err(_) => {
                    self.fail("a size that is not negative");
                    Some(0)
                }
            },
            size => Some(size.into()),
        }
    }

    /// The number of elements that follow, each of which takes at least `element_bytes`; a fault if there are not
    /// enough bytes for them.
    #[inline]
    pub fn count(&mut self, element_bytes: usize) -> usize {
        let offset = self.offset;
        let count = self.size().unwrap_or(0);
        match count.checked_mul(element_bytes) {
            Some(bytes) if bytes <= self.n_left() => count,
            Some(bytes) if bytes <= self.n_left() + self.n_left_apart() => count,
            _ => {
                self.fail_at(offset, "a count that is covered by bytes");
                0
            }
        }
    }

    /// The number of bytes of the payload that are not here and were not read.
    #[cold]
    fn n_left_apart(&self) -> usize {
        self.apart.as_ref().map_or(0, |apart| apart.n_bytes - apart.n_bytes_before(self.offset))
    }

    /// The bytes of a text; a missing text, as sent by Java programs, is empty.
    #[inline]
    pub fn text_bytes(&mut self) -> &'a [u8] {
        let n = self.count(1);
        self.take(n)
    }

    /// A text, up to its first NUL.
    pub fn text(&mut self) -> Text {
        Text::from_bytes(self.text_bytes())
    }

    /// A set of bits below `n_bits`; higher bits are ignored.
    #[inline]
    pub fn bit_set(&mut self, n_bits: usize) -> BitSet {
        let mut set = BitSet::new();
        let n_bytes = self.count(1);
        for index in 0..n_bytes / 8 {
            set.set_word(index, self.u64());
        }
        let mut last = [0; 8];
        let tail = self.take(n_bytes % 8);
        last[..tail.len()].copy_from_slice(tail);
        set.set_word(n_bytes / 8, u64::from_le_bytes(last));
        set.truncate(n_bits);
        set
    }

    /// Counts nodes and elements of values against the limit of a message; `false` and a fault if there are too many.
    pub(crate) fn allow_value_nodes(&mut self, n_nodes: usize) -> bool {
        match self.value_nodes_left.checked_sub(n_nodes) {
            Some(left) => {
                self.value_nodes_left = left;
                true
            }
            None => {
                self.fail("fewer structures without bytes");
                false
            }
        }
    }

    /// Sets how much memory structures, unions and arrays of texts may take. Numbers are not counted: they take at most
    /// eight bytes for each of theirs, and those of an array as many as they have.
    pub(crate) fn limit_memory(&mut self, n_bytes: usize) {
        self.memory_left = n_bytes.min(self.memory_left);
    }

    /// Whether decoding failed because a value needs more memory than it may take.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.is_short_of_memory
    }

    /// Counts memory before it is allocated; `false` and a fault if there is not enough.
    pub(crate) fn allow_memory(&mut self, n: usize, each: usize) -> bool {
        match n.checked_mul(each).and_then(|n_bytes| self.memory_left.checked_sub(n_bytes)) {
            Some(left) => {
                self.memory_left = left;
                true
            }
            None => {
                self.is_short_of_memory |= !self.has_failed();
                self.fail("a value that takes less memory");
                false
            }
        }
    }

    /// `n` elements of one kind, without their count.
    pub fn elements(&mut self, kind: Kind, n: usize) -> Array {
        let bytes = match kind.n_bytes() {
            Some(each) => {
                let Some(n_bytes) = n.checked_mul(each) else {
                    self.fail("a count that is covered by bytes");
                    return Array::empty(kind);
                };
                let place = ArrayPlace { offset: self.offset, kind, element_bytes: each, n_elements: n };
                let n_left = self.n_left();
                if let Some(array) = self.apart.as_mut().and_then(|apart| apart.take(place, n_left)) {
                    return array;
                }
                self.take(n_bytes)
            }
            None => return self.texts(n),
        };
        let mut elements = Array::empty(kind);
        append_elements(&mut elements, bytes, self.order, n);
        elements
    }

    fn texts(&mut self, n: usize) -> Array {
        if !self.allow_memory(n, size_of::<Text>()) {
            return Array::empty(Kind::Text);
        }
        let mut texts = Vec::with_capacity(n.min(limit::RESERVED_ELEMENTS_MAX));
        for _ in 0..n {
            let text = self.text();
            let is_allowed = text.is_empty() || self.allow_memory(1, limit::TEXT_HEADER_BYTES + text.len());
            texts.push(text);
            if !is_allowed || self.has_failed() {
                return Array::empty(Kind::Text);
            }
        }
        Array::Text(Arc::new(texts))
    }
}

/// A large array that was left out of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeftOutArray {
    /// Where in the buffer its elements belong.
    pub(crate) offset: usize,
    pub(crate) array: Array,
    /// The size of one element on the wire.
    pub(crate) element_bytes: usize,
}

/// Appends encodings to a buffer of the caller.
#[derive(Debug)]
pub struct ByteWriter<'a> {
    out: &'a mut Vec<u8>,
    order: ByteOrder,
    /// Receives large arrays instead of `out`.
    left_out: Option<&'a mut Vec<LeftOutArray>>,
}

macro_rules! write_numbers {
    ($($(#[$doc:meta])* $name:ident $rust:ty;)*) => {$(
        $(#[$doc])*
        #[inline]
        pub fn $name(&mut self, number: $rust) {
            match self.order {
                ByteOrder::Little => self.out.extend_from_slice(&number.to_le_bytes()),
                ByteOrder::Big => self.out.extend_from_slice(&number.to_be_bytes()),
            }
        }
    )*};
}

impl<'a> ByteWriter<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>, order: ByteOrder) -> ByteWriter<'a> {
        ByteWriter { out, order, left_out: None }
    }

    /// Writes without the elements of large arrays, which are added to `left_out` in order.
    #[inline]
    pub(crate) fn leaving_out(&mut self, left_out: &mut Vec<LeftOutArray>, write: impl FnOnce(&mut ByteWriter)) {
        write(&mut ByteWriter { out: self.out, order: self.order, left_out: Some(left_out) });
    }

    /// The byte order.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    write_numbers! {
        /// An unsigned integer of 8 bits.
        u8 u8;
        /// A signed integer of 8 bits.
        i8 i8;
        /// An unsigned integer of 16 bits.
        u16 u16;
        /// A signed integer of 16 bits.
        i16 i16;
        /// An unsigned integer of 32 bits.
        u32 u32;
        /// A signed integer of 32 bits.
        i32 i32;
        /// An unsigned integer of 64 bits.
        u64 u64;
        /// A signed integer of 64 bits.
        i64 i64;
        /// A floating point number of 32 bits.
        f32 f32;
        /// A floating point number of 64 bits.
        f64 f64;
    }

    /// A boolean.
    pub fn bool(&mut self, is_true: bool) {
        self.u8(is_true.into());
    }

    /// The first `n` of some bytes. All are copied, because a copy of a known size takes fewer instructions.
    #[inline(always)]
    pub(crate) fn first_bytes<const N: usize>(&mut self, bytes: &[u8; N], n: usize) {
        let end = self.out.len() + n.min(N);
        self.out.extend_from_slice(bytes);
        self.out.truncate(end);
    }

    /// Bytes as they are.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// A size, which must be below 2^31.
    #[inline]
    pub fn size(&mut self, size: usize) {
        match u8::try_from(size) {
            Ok(size) if size < LONG_SIZE => self.u8(size),
            _ => {
                debug_assert!(i32::try_from(size).is_ok(), "a size of more than 31 bits has no encoding");
                self.u8(LONG_SIZE);
                self.i32(size as i32);
            }
        }
    }

    /// The size of something that is missing.
    pub fn null_size(&mut self) {
        self.u8(NULL_SIZE);
    }

    /// A text.
    #[inline]
    pub fn text(&mut self, text: &[u8]) {
        self.size(text.len());
        self.bytes(text);
    }

    /// A set of bits.
    #[inline]
    pub fn bit_set(&mut self, set: &BitSet) {
        let n_words = set.n_words();
        let Some(whole) = n_words.checked_sub(1) else { return self.size(0) };
        let last = set.word(whole);
        let tail = 8 - last.leading_zeros() as usize / 8;
        self.size(whole * 8 + tail);
        (0..whole).for_each(|index| self.u64(set.word(index)));
        match tail {
            8 => self.u64(last),
            tail => self.bytes(&last.to_le_bytes()[..tail]),
        }
    }

    /// The elements of an array, without their count.
    pub fn elements(&mut self, array: &Array) {
        if let (Some(left_out), Some(each)) = (&mut self.left_out, array.kind().n_bytes())
            && array.len() * each >= limit::BULK_BYTES
        {
            let (offset, array) = (self.out.len(), array.clone());
            return left_out.push(LeftOutArray { offset, array, element_bytes: each });
        }
        self.some_elements(array, 0..array.len());
    }

    /// Some of the elements of an array, without their count.
    pub(crate) fn some_elements(&mut self, array: &Array, range: Range<usize>) {
        macro_rules! elements {
            ($elements:expr, $bytes:literal) => {{
                let start = self.out.len();
                self.out.resize(start + range.len() * $bytes, 0);
                let places = self.out[start..].as_chunks_mut::<$bytes>().0.iter_mut();
                let elements = $elements[range].iter();
                match self.order {
                    ByteOrder::Little => places.zip(elements).for_each(|(to, from)| *to = from.to_le_bytes()),
                    ByteOrder::Big => places.zip(elements).for_each(|(to, from)| *to = from.to_be_bytes()),
                }
            }};
        }
        match array {
            Array::Bool(elements) => self.out.extend(elements[range].iter().map(|&is_true| u8::from(is_true))),
            Array::U8(elements) => self.bytes(&elements[range]),
            Array::I8(elements) => self.out.extend(elements[range].iter().map(|number| number.cast_unsigned())),
            Array::I16(elements) => elements!(elements, 2),
            Array::U16(elements) | Array::Enum(elements) => elements!(elements, 2),
            Array::I32(elements) => elements!(elements, 4),
            Array::U32(elements) => elements!(elements, 4),
            Array::I64(elements) => elements!(elements, 8),
            Array::U64(elements) => elements!(elements, 8),
            Array::F32(elements) => elements!(elements, 4),
            Array::F64(elements) => elements!(elements, 8),
            Array::Text(elements) => elements[range].iter().for_each(|text| self.text(text.as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(order: ByteOrder, write: impl FnOnce(&mut ByteWriter)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut ByteWriter::new(&mut out, order));
        out
    }

    #[test]
    fn a_size_takes_one_byte_below_254_and_five_from_there() {
        assert_eq!(written(ByteOrder::Little, |to| to.size(253)), [253]);
        assert_eq!(written(ByteOrder::Little, |to| to.size(254)), [254, 254, 0, 0, 0]);
        assert_eq!(written(ByteOrder::Big, |to| to.size(1_000_000)), [254, 0, 15, 66, 64]);
        let bytes = [253, 254, 0, 1, 0, 0, 255];
        let mut reader = ByteReader::new(&bytes, ByteOrder::Little);
        assert_eq!([reader.size(), reader.size(), reader.size()], [Some(253), Some(256), None]);
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn whole_words_of_a_bit_set_have_the_byte_order_of_the_message_and_the_rest_has_not() {
        let set: BitSet = [1, 8, 65].into_iter().collect();

        let little = written(ByteOrder::Little, |to| to.bit_set(&set));
        let big = written(ByteOrder::Big, |to| to.bit_set(&set));

        assert_eq!(little, [9, 2, 1, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(big, [9, 0, 0, 0, 0, 0, 0, 1, 2, 2]);
        for (bytes, order) in [(little, ByteOrder::Little), (big, ByteOrder::Big)] {
            assert_eq!(ByteReader::new(&bytes, order).bit_set(100), set);
            assert!(ByteReader::new(&bytes, order).bit_set(9).iter().eq([1, 8]), "bits without a node are ignored");
        }
        assert_eq!(written(ByteOrder::Big, |to| to.bit_set(&BitSet::new())), [0]);
        let last: BitSet = [63].into_iter().collect();
        assert_eq!(written(ByteOrder::Big, |to| to.bit_set(&last)), [8, 0x80, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn only_arrays_of_at_least_64_kb_are_left_out() {
        for (array, is_left_out) in [
            (Array::F64(Arc::new(vec![0.0; 8192])), true),
            (Array::F64(Arc::new(vec![0.0; 8191])), false),
            (Array::U8(Arc::new(vec![0; 65536])), true),
            (Array::U8(Arc::new(vec![0; 65535])), false),
            (Array::Text(Arc::new(vec![Text::EMPTY; 70_000])), false),
        ] {
            let (mut out, mut left_out) = (b"before".to_vec(), Vec::new());

            let mut to = ByteWriter::new(&mut out, ByteOrder::Little);
            to.leaving_out(&mut left_out, |to| to.elements(&array));

            assert_eq!((left_out.len() == 1, out.len() == 6), (is_left_out, is_left_out), "{}", array.len());
            assert!(left_out.iter().all(|one| one.offset == 6 && one.array == array));
        }
    }

    #[test]
    fn a_reader_keeps_its_first_fault_and_then_returns_zeros() {
        let mut reader = ByteReader::new(&[1, 0, 0, 0, 5, b'a'], ByteOrder::Little);

        assert_eq!(reader.u32(), 1);
        assert_eq!(reader.text_bytes(), b"");
        assert_eq!((reader.u8(), reader.f64(), reader.n_left()), (0, 0.0, 0));
        let fault = Malformed { offset: 4, expected: "a count that is covered by bytes" };
        assert_eq!(reader.finish(), Err(fault));
        assert_eq!(fault.to_string(), "expected a count that is covered by bytes at offset 4");
    }

    #[test]
    fn a_negative_size_is_a_fault() {
        let mut reader = ByteReader::new(&[254, 255, 255, 255, 255], ByteOrder::Little);

        assert_eq!(reader.size(), Some(0));
        assert!(reader.has_failed());
    }

    #[test]
    fn arrays_of_every_kind_round_trip_in_both_orders() {
        let arrays = [
            fodo_data::Value::from(vec![true, false]),
            vec![-1_i8, 2].into(),
            vec![200_u8, 2].into(),
            vec![-300_i16, 2].into(),
            vec![60000_u16, 2].into(),
            vec![-70000_i32, 2].into(),
            vec![4_000_000_000_u32, 2].into(),
            vec![i64::MIN, 2].into(),
            vec![u64::MAX, 2].into(),
            vec![1.5_f32, -2.0].into(),
            vec![1.5_f64, -2.0].into(),
            vec![Text::from("a"), Text::EMPTY].into(),
        ];
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for array in arrays.clone().map(fodo_data::Value::into_array) {
                let bytes = written(order, |to| to.elements(&array));

                let mut reader = ByteReader::new(&bytes, order);

                assert_eq!(reader.elements(array.kind(), 2), array);
                assert_eq!((reader.n_left(), reader.finish()), (0, Ok(())));
            }
        }
    }
}
