//! A large array that is received apart from the rest of its message: its elements are decoded into their destination as
//! they arrive, and the payload does not contain them.
//!
//! An incomplete payload is decoded up to the first large array that is not complete, only to find its place
//! ([`ApartArray::sought`]). The complete payload is decoded with the received array at this place.

use std::sync::Arc;

use fodo_data::{Array, Kind};

use crate::cursor::ByteOrder;
use crate::limit;

/// Where the elements of an array are in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArrayPlace {
    pub(crate) offset: usize,
    pub(crate) kind: Kind,
    /// The size of one element on the wire.
    pub(crate) element_bytes: usize,
    pub(crate) n_elements: usize,
}

/// What the payload of a message lacks.
#[derive(Debug)]
pub(crate) struct ApartArray {
    /// How many bytes it lacks; the most that may follow if the payload is incomplete.
    pub(crate) n_bytes: usize,
    /// `None` while the place is sought.
    pub(crate) place: Option<ArrayPlace>,
    /// `None` if the array is not complete.
    array: Option<Array>,
}

impl ApartArray {
    /// Nothing is known of the array. At most `n_bytes` follow the payload.
    pub(crate) fn sought(n_bytes: usize) -> ApartArray {
        ApartArray { n_bytes, place: None, array: None }
    }

    /// The array at a place in the payload, of which `n_left` bytes are left. If an array is sought and this one is large
    /// and not complete, its place is found.
    pub(crate) fn take(&mut self, place: ArrayPlace, n_left: usize) -> Option<Array> {
        match self.place {
            Some(found) if found == place => return self.array.take(),
            Some(_) => {}
            None => {
                let n_bytes = place.n_elements * place.element_bytes;
                self.place = Some(place).filter(|_| n_bytes >= limit::BULK_BYTES && n_bytes > n_left);
            }
        }
        None
    }

    /// The array, if it is complete.
    pub(crate) fn arrived(&self) -> Option<&Array> {
        self.array.as_ref()
    }

    /// How many of the bytes that the payload lacks precede this offset.
    pub(crate) fn n_bytes_before(&self, offset: usize) -> usize {
        if self.place.is_some_and(|place| place.offset < offset) { self.n_bytes } else { 0 }
    }
}

/// A large array of numbers that is arriving.
#[derive(Debug)]
pub(crate) struct IncomingArray {
    place: ArrayPlace,
    order: ByteOrder,
    elements: Array,
    /// The first bytes of an incomplete element.
    part: Vec<u8>,
    n_arrived: usize,
}

impl IncomingArray {
    /// Expects the elements of the array at this place, in the memory of `room` if that has no other owner.
    pub(crate) fn new(place: ArrayPlace, order: ByteOrder, room: Option<Array>) -> IncomingArray {
        let elements = room.filter(|room| room.kind() == place.kind).map(Array::cleared);
        let elements = elements.unwrap_or(Array::empty(place.kind));
        IncomingArray { place, order, elements, part: Vec::new(), n_arrived: 0 }
    }

    /// The number of bytes that have not arrived.
    pub(crate) fn n_missing(&self) -> usize {
        self.place.n_elements * self.place.element_bytes - self.n_arrived
    }

    /// Decodes the next bytes, at most as many as are missing.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) {
        let ArrayPlace { element_bytes, n_elements, .. } = self.place;
        self.n_arrived += bytes.len();
        if !self.part.is_empty() {
            let (rest_of_part, after) = bytes.split_at(bytes.len().min(element_bytes - self.part.len()));
            self.part.extend_from_slice(rest_of_part);
            bytes = after;
            if self.part.len() < element_bytes {
                return;
            }
            append_elements(&mut self.elements, &self.part, self.order, n_elements);
            self.part.clear();
        }
        let (whole, part) = bytes.split_at(bytes.len() - bytes.len() % element_bytes);
        append_elements(&mut self.elements, whole, self.order, n_elements);
        self.part.extend_from_slice(part);
    }

    /// What has arrived, for the decoding of the payload that lacks it.
    pub(crate) fn finish(self) -> ApartArray {
        let is_complete = self.n_missing() == 0;
        ApartArray { n_bytes: self.n_arrived, place: Some(self.place), array: is_complete.then_some(self.elements) }
    }
}

/// Appends numbers to an array without another owner. Its memory at most doubles, and `n_max` elements are never exceeded.
pub(crate) fn append_elements(to: &mut Array, bytes: &[u8], order: ByteOrder, n_max: usize) {
    macro_rules! append {
        ($elements:expr, $rust:ty) => {{
            let chunks = bytes.as_chunks().0;
            let elements = reserved($elements, chunks.len(), n_max);
            match order {
                ByteOrder::Little => elements.extend(chunks.iter().map(|&bytes| <$rust>::from_le_bytes(bytes))),
                ByteOrder::Big => elements.extend(chunks.iter().map(|&bytes| <$rust>::from_be_bytes(bytes))),
            }
        }};
    }
    match to {
        Array::Bool(elements) => {
            reserved(elements, bytes.len(), n_max).extend(bytes.iter().map(|&byte| byte != 0));
        }
        Array::U8(elements) => reserved(elements, bytes.len(), n_max).extend_from_slice(bytes),
        Array::I8(elements) => {
            reserved(elements, bytes.len(), n_max).extend(bytes.iter().map(|byte| byte.cast_signed()));
        }
        Array::I16(elements) => append!(elements, i16),
        Array::U16(elements) | Array::Enum(elements) => append!(elements, u16),
        Array::I32(elements) => append!(elements, i32),
        Array::U32(elements) => append!(elements, u32),
        Array::I64(elements) => append!(elements, i64),
        Array::U64(elements) => append!(elements, u64),
        Array::F32(elements) => append!(elements, f32),
        Array::F64(elements) => append!(elements, f64),
        Array::Text(_) => {}
    }
}

/// The elements, with memory for `n_more`.
fn reserved<T: Clone>(elements: &mut Arc<Vec<T>>, n_more: usize, n_max: usize) -> &mut Vec<T> {
    let elements = Arc::make_mut(elements);
    if elements.capacity() - elements.len() < n_more {
        let n_left = n_max.saturating_sub(elements.len());
        elements.reserve_exact(n_more.max(n_left.min(elements.len())));
    }
    elements
}

#[cfg(test)]
mod tests {
    use fodo_data::Value;

    use super::*;
    use crate::cursor::{ByteReader, ByteWriter};

    const N_ELEMENTS: usize = 70_000;

    /// Arrays of all kinds of numbers, each of them large.
    fn arrays() -> Vec<Array> {
        let number = |n: usize| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        macro_rules! array {
            ($rust:ty) => {
                Value::from((0..N_ELEMENTS).map(|n| number(n) as $rust).collect::<Vec<_>>()).into_array()
            };
        }
        let Array::U16(indices) = array!(u16) else { unreachable!("an array of u16") };
        vec![
            Value::from((0..N_ELEMENTS).map(|n| number(n) & 1 == 0).collect::<Vec<_>>()).into_array(),
            Array::Enum(indices),
            array!(i8),
            array!(u8),
            array!(i16),
            array!(u16),
            array!(i32),
            array!(u32),
            array!(i64),
            array!(u64),
            array!(f32),
            array!(f64),
        ]
    }

    fn place(array: &Array) -> ArrayPlace {
        let element_bytes = array.kind().n_bytes().unwrap();
        ArrayPlace { offset: 0, kind: array.kind(), element_bytes, n_elements: array.len() }
    }

    fn encoded(array: &Array, order: ByteOrder) -> Vec<u8> {
        let mut bytes = Vec::new();
        ByteWriter::new(&mut bytes, order).elements(array);
        bytes
    }

    fn received(array: &Array, order: ByteOrder, piece: usize, room: Option<Array>) -> Array {
        let place = place(array);
        let mut incoming = IncomingArray::new(place, order, room);
        for bytes in encoded(array, order).chunks(piece) {
            assert!(incoming.n_missing() > 0);
            incoming.append(bytes);
        }
        assert_eq!(incoming.n_missing(), 0);
        incoming.finish().take(place, 0).unwrap()
    }

    #[test]
    fn an_array_of_every_kind_is_decoded_from_pieces_of_any_size_in_both_orders() {
        for array in arrays() {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                for piece in [1, 3, 7, 13, 4096, 5000, usize::MAX] {
                    assert!(received(&array, order, piece, None) == array, "{:?} {piece}", array.kind());
                }
            }
        }
    }

    #[test]
    fn an_array_without_another_owner_is_overwritten_and_a_shared_one_or_another_kind_is_not() {
        let array = Value::from((0..N_ELEMENTS as i32).collect::<Vec<_>>()).into_array();
        let own = Arc::new(vec![7; 2 * N_ELEMENTS]);
        let memory = own.as_ptr();
        let shared = Arc::new(vec![7; N_ELEMENTS]);
        let filled = |room| match received(&array, ByteOrder::Big, 5000, Some(room)) {
            Array::I32(elements) => elements,
            other => panic!("{other:?}"),
        };

        let in_own = filled(Array::I32(own));
        let copy = filled(Array::I32(shared.clone()));
        let other = filled(Array::F64(Arc::new(vec![7.0; N_ELEMENTS])));

        assert_eq!((in_own.as_ptr(), in_own.len(), shared[0]), (memory, N_ELEMENTS, 7));
        assert!([in_own, copy, other].iter().all(|elements| Array::I32(elements.clone()) == array));
    }

    #[test]
    fn memory_grows_with_the_bytes_that_arrive_and_not_beyond_the_declared_count() {
        let array = Value::from(vec![1.5; N_ELEMENTS]).into_array();
        let mut incoming = IncomingArray::new(place(&array), ByteOrder::Little, None);
        let capacity = |incoming: &IncomingArray| match &incoming.elements {
            Array::F64(elements) => elements.capacity(),
            other => panic!("{other:?}"),
        };
        assert_eq!(capacity(&incoming), 0);

        for bytes in encoded(&array, ByteOrder::Little).chunks(1000) {
            incoming.append(bytes);

            assert!(capacity(&incoming) <= N_ELEMENTS.min(2 * incoming.n_arrived / 8 + 1000));
        }
    }

    #[test]
    fn only_a_large_incomplete_array_is_found_while_one_is_sought() {
        let n_large = limit::BULK_BYTES / 8;
        for (n_elements, n_here, is_found) in
            [(n_large, 100, true), (n_large - 1, 100, false), (n_large, limit::BULK_BYTES, false)]
        {
            let mut sought = ApartArray::sought(usize::MAX / 2);
            let payload = vec![0; 3 + n_here];
            let mut reader = ByteReader::with_apart(&payload, ByteOrder::Little, &mut sought);
            reader.take(3);

            reader.elements(Kind::F64, n_elements);

            let place = ArrayPlace { offset: 3, kind: Kind::F64, element_bytes: 8, n_elements };
            assert_eq!(sought.place, is_found.then_some(place), "{n_elements} {n_here}");
        }
    }

    #[test]
    fn a_payload_is_decoded_with_the_array_that_it_lacks() {
        let array = Value::from((0..N_ELEMENTS as i32).collect::<Vec<_>>()).into_array();
        let mut payload = Vec::new();
        let mut to = ByteWriter::new(&mut payload, ByteOrder::Little);
        to.u16(7);
        to.size(N_ELEMENTS);
        let offset = 2 + 5;
        to.u32(9);
        let mut incoming = IncomingArray::new(ArrayPlace { offset, ..place(&array) }, ByteOrder::Little, None);
        let bytes = encoded(&array, ByteOrder::Little);
        incoming.append(&bytes);
        let mut apart = incoming.finish();
        let mut reader = ByteReader::with_apart(&payload, ByteOrder::Little, &mut apart);

        assert_eq!(reader.u16(), 7);
        let count = reader.count(4);
        assert_eq!(count, N_ELEMENTS);
        assert!(reader.elements(Kind::I32, count) == array);
        assert_eq!((reader.u32(), reader.n_left(), reader.finish()), (9, 0, Ok(())));

        // The offset of a fault is that in the whole payload.
        reader.u8();
        assert_eq!(reader.finish().unwrap_err().offset, payload.len() + bytes.len());
    }

    #[test]
    fn an_array_that_ends_early_is_not_covered_by_bytes() {
        let array = Value::from(vec![1.5; N_ELEMENTS]).into_array();
        let mut payload = Vec::new();
        ByteWriter::new(&mut payload, ByteOrder::Big).size(N_ELEMENTS);
        let mut incoming = IncomingArray::new(ArrayPlace { offset: 5, ..place(&array) }, ByteOrder::Big, None);
        incoming.append(&encoded(&array, ByteOrder::Big)[1..]);
        let mut apart = incoming.finish();
        let mut reader = ByteReader::with_apart(&payload, ByteOrder::Big, &mut apart);

        assert_eq!(reader.count(8), 0);

        let fault = reader.finish().unwrap_err();
        assert_eq!((fault.offset, fault.expected), (0, "a count that is covered by bytes"));
    }
}
