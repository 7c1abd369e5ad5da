//! Payloads with large arrays, decoded into their destination as they arrive.

use std::sync::Arc;

use fodo_data::{Array, Kind, Reading, STRING_BYTES, Scalar, Text, Value};

use crate::dbr::{self, DbrType, MalformedPayload};
use crate::limit;

/// Elements being decoded from bytes to an array.
#[derive(Debug)]
pub enum DecodedElements {
    /// CHAR
    U8(Vec<u8>),
    /// SHORT
    I16(Vec<i16>),
    /// ENUM
    Enum(Vec<u16>),
    /// LONG
    I32(Vec<i32>),
    /// FLOAT
    F32(Vec<f32>),
    /// DOUBLE
    F64(Vec<f64>),
    /// STRING
    Text(Vec<Text>),
}

impl DecodedElements {
    /// Creates an empty list; kinds that CA does not have are stored as doubles.
    pub fn new(kind: Kind) -> DecodedElements {
        match kind {
            Kind::U8 => DecodedElements::U8(Vec::new()),
            Kind::I16 => DecodedElements::I16(Vec::new()),
            Kind::Enum => DecodedElements::Enum(Vec::new()),
            Kind::I32 => DecodedElements::I32(Vec::new()),
            Kind::F32 => DecodedElements::F32(Vec::new()),
            Kind::Text => DecodedElements::Text(Vec::new()),
            _ => DecodedElements::F64(Vec::new()),
        }
    }

    /// Creates an empty list in the memory of an array, if the array has no other owner and has this kind.
    pub fn reusing(kind: Kind, room: Option<Array>) -> DecodedElements {
        macro_rules! cleared {
            ($variant:ident, $shared:expr) => {
                if let Ok(mut elements) = Arc::try_unwrap($shared) {
                    elements.clear();
                    return DecodedElements::$variant(elements);
                }
            };
        }
        match (kind, room) {
            (Kind::U8, Some(Array::U8(shared))) => cleared!(U8, shared),
            (Kind::I16, Some(Array::I16(shared))) => cleared!(I16, shared),
            (Kind::Enum, Some(Array::Enum(shared))) => cleared!(Enum, shared),
            (Kind::I32, Some(Array::I32(shared))) => cleared!(I32, shared),
            (Kind::F32, Some(Array::F32(shared))) => cleared!(F32, shared),
            (Kind::F64, Some(Array::F64(shared))) => cleared!(F64, shared),
            (Kind::Text, Some(Array::Text(shared))) => cleared!(Text, shared),
            _ => {}
        }
        DecodedElements::new(kind)
    }

    /// Reserves memory for more elements, at most `n_left`.
    fn reserve(&mut self, n_left: usize) {
        macro_rules! reserve {
            ($elements:expr) => {
                if $elements.len() == $elements.capacity() {
                    $elements.reserve_exact(n_left.min($elements.len().max(limit::RESERVED_ELEMENTS_MAX)));
                }
            };
        }
        match self {
            DecodedElements::U8(elements) => reserve!(elements),
            DecodedElements::I16(elements) => reserve!(elements),
            DecodedElements::Enum(elements) => reserve!(elements),
            DecodedElements::I32(elements) => reserve!(elements),
            DecodedElements::F32(elements) => reserve!(elements),
            DecodedElements::F64(elements) => reserve!(elements),
            DecodedElements::Text(elements) => reserve!(elements),
        }
    }

    /// Appends whole elements; bytes of an incomplete element at the end are ignored.
    pub fn append(&mut self, bytes: &[u8]) {
        match self {
            DecodedElements::U8(elements) => elements.extend_from_slice(bytes),
            DecodedElements::I16(elements) => {
                elements.extend(bytes.as_chunks().0.iter().map(|&n| i16::from_be_bytes(n)))
            }
            DecodedElements::Enum(elements) => {
                elements.extend(bytes.as_chunks().0.iter().map(|&n| u16::from_be_bytes(n)))
            }
            DecodedElements::I32(elements) => {
                elements.extend(bytes.as_chunks().0.iter().map(|&n| i32::from_be_bytes(n)))
            }
            DecodedElements::F32(elements) => {
                elements.extend(bytes.as_chunks().0.iter().map(|&n| f32::from_be_bytes(n)))
            }
            DecodedElements::F64(elements) => {
                elements.extend(bytes.as_chunks().0.iter().map(|&n| f64::from_be_bytes(n)))
            }
            DecodedElements::Text(elements) => {
                elements.extend(bytes.as_chunks::<STRING_BYTES>().0.iter().map(|text| Text::from_bytes(text)));
            }
        }
    }

    /// The memory of the elements, including allocations of texts, excluding unused capacity.
    fn n_bytes(&self) -> usize {
        match self {
            DecodedElements::U8(elements) => elements.len(),
            DecodedElements::I16(elements) => size_of_val(&elements[..]),
            DecodedElements::Enum(elements) => size_of_val(&elements[..]),
            DecodedElements::I32(elements) => size_of_val(&elements[..]),
            DecodedElements::F32(elements) => size_of_val(&elements[..]),
            DecodedElements::F64(elements) => size_of_val(&elements[..]),
            DecodedElements::Text(elements) => elements.len() * (size_of::<Text>() + limit::TEXT_BYTES),
        }
    }

    /// Converts the elements to a value.
    pub fn into_value(self) -> Value {
        Value::Array(match self {
            DecodedElements::U8(elements) => Array::U8(Arc::new(elements)),
            DecodedElements::I16(elements) => Array::I16(Arc::new(elements)),
            DecodedElements::Enum(elements) => Array::Enum(Arc::new(elements)),
            DecodedElements::I32(elements) => Array::I32(Arc::new(elements)),
            DecodedElements::F32(elements) => Array::F32(Arc::new(elements)),
            DecodedElements::F64(elements) => Array::F64(Arc::new(elements)),
            DecodedElements::Text(elements) => Array::Text(Arc::new(elements)),
        })
    }
}

/// Decodes one scalar directly.
#[inline(always)]
pub fn scalar(kind: Kind, bytes: &[u8]) -> Option<Scalar> {
    Some(match kind {
        Kind::U8 => Scalar::U8(*bytes.first()?),
        Kind::I16 => Scalar::I16(i16::from_be_bytes(*bytes.first_chunk()?)),
        Kind::Enum => Scalar::Enum(u16::from_be_bytes(*bytes.first_chunk()?)),
        Kind::I32 => Scalar::I32(i32::from_be_bytes(*bytes.first_chunk()?)),
        Kind::F32 => Scalar::F32(f32::from_be_bytes(*bytes.first_chunk()?)),
        Kind::F64 => Scalar::F64(f64::from_be_bytes(*bytes.first_chunk()?)),
        _ => return None,
    })
}

/// A payload that is arriving.
#[derive(Debug)]
pub struct Incoming {
    dbr: DbrType,
    element_bytes: usize,
    head: Vec<u8>,
    head_bytes: usize,
    elements: DecodedElements,
    /// The first bytes of an incomplete element.
    part: Vec<u8>,
    /// Bytes of elements that have not arrived yet.
    elements_left: usize,
    padding_left: usize,
}

impl Incoming {
    /// Expects a payload of `payload_bytes`, in the memory of `room` if suitable. Fails if type and count need more
    /// bytes.
    pub fn new(
        dbr: DbrType,
        count: u32,
        payload_bytes: usize,
        room: Option<Array>,
    ) -> Result<Incoming, MalformedPayload> {
        let (head_bytes, element_bytes) = dbr.layout().ok_or(MalformedPayload::UnknownType(dbr))?;
        let kind = dbr.kind().ok_or(MalformedPayload::UnknownType(dbr))?;
        let needed = dbr.payload_bytes(count).ok_or(MalformedPayload::Short)?;
        let padding_left = payload_bytes.checked_sub(needed).ok_or(MalformedPayload::Short)?;
        Ok(Incoming {
            dbr,
            element_bytes,
            head: Vec::new(),
            head_bytes,
            elements: DecodedElements::reusing(kind, room),
            part: Vec::new(),
            elements_left: needed - head_bytes,
            padding_left,
        })
    }

    /// Takes the bytes of this payload from the front of `bytes`; returns whether the payload is complete.
    pub fn take(&mut self, bytes: &mut &[u8]) -> bool {
        if self.head.len() < self.head_bytes {
            self.head.extend_from_slice(split_off(bytes, self.head_bytes - self.head.len()));
        }
        if self.head.len() == self.head_bytes && self.elements_left > 0 {
            self.take_elements(split_off(bytes, self.elements_left));
        }
        if self.elements_left == 0 {
            self.padding_left -= split_off(bytes, self.padding_left).len();
        }
        self.elements_left == 0 && self.padding_left == 0 && self.head.len() == self.head_bytes
    }

    fn take_elements(&mut self, mut bytes: &[u8]) {
        self.elements_left -= bytes.len();
        if !self.part.is_empty() {
            self.part.extend_from_slice(split_off(&mut bytes, self.element_bytes - self.part.len()));
            if self.part.len() < self.element_bytes {
                return;
            }
            self.elements.reserve(self.elements_left / self.element_bytes + 1);
            self.elements.append(&self.part);
            self.part.clear();
        }
        let whole = bytes.len() / self.element_bytes * self.element_bytes;
        self.elements.reserve((self.elements_left + bytes.len()) / self.element_bytes);
        self.elements.append(&bytes[..whole]);
        self.part.extend_from_slice(&bytes[whole..]);
    }

    /// The memory of the bytes received so far.
    pub fn held_bytes(&self) -> usize {
        self.head.len() + self.elements.n_bytes() + self.part.len()
    }

    /// The number of payload bytes that have not arrived yet.
    pub fn bytes_left(&self) -> usize {
        self.head_bytes - self.head.len() + self.elements_left + self.padding_left
    }

    /// The reading; call it when the payload is complete.
    pub fn finish(self) -> Result<Reading, MalformedPayload> {
        dbr::decode_head(self.dbr, &self.head, self.elements.into_value())
    }
}

fn split_off<'a>(bytes: &mut &'a [u8], n_max: usize) -> &'a [u8] {
    let (head, rest) = bytes.split_at(bytes.len().min(n_max));
    *bytes = rest;
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_decoded_from_pieces_of_any_size() {
        let elements: Vec<i32> = (0..1000).map(|n: i32| n.wrapping_mul(77_777_777)).collect();
        let sent = Reading::bare(Value::from(elements));
        let dbr = DbrType(19);
        let mut payload = Vec::new();
        dbr::encode(dbr, 0, &sent, &mut payload).unwrap();

        for piece in [1, 3, 7, 64, 1000, 5000] {
            let mut incoming = Incoming::new(dbr, 1000, payload.len(), None).unwrap();
            let (mut is_complete, mut n_left) = (false, payload.len());
            for mut bytes in payload.chunks(piece) {
                n_left -= bytes.len();
                is_complete = incoming.take(&mut bytes);
                assert_eq!((bytes.len(), incoming.bytes_left()), (0, n_left));
            }

            assert!(is_complete, "pieces of {piece}");
            assert_eq!(incoming.finish().unwrap().value, sent.value, "pieces of {piece}");
        }
    }

    #[test]
    fn decoding_reuses_an_unshared_array_and_leaves_a_shared_one_unchanged() {
        let mut payload = Vec::new();
        dbr::encode(DbrType(6), 0, &Reading::bare(Value::from(vec![1.0, 2.0])), &mut payload).unwrap();
        let filled = |room: Array| {
            let mut incoming = Incoming::new(DbrType(6), 2, payload.len(), Some(room)).unwrap();
            assert!(incoming.take(&mut &payload[..]));
            match incoming.finish().unwrap().value {
                Value::Array(Array::F64(elements)) => elements,
                other => panic!("{other:?}"),
            }
        };
        let own = Arc::new(vec![9.0; 1000]);
        let place = own.as_ptr();
        let shared = Arc::new(vec![9.0; 1000]);

        let in_own = filled(Array::F64(own));
        let copy = filled(Array::F64(shared.clone()));

        assert_eq!((in_own.as_ptr(), in_own.as_slice()), (place, [1.0, 2.0].as_slice()));
        assert_eq!((copy.as_slice(), shared[0]), ([1.0, 2.0].as_slice(), 9.0));
    }

    #[test]
    fn the_memory_of_an_incomplete_array_is_that_of_its_elements() {
        let texts = size_of::<Text>() + limit::TEXT_BYTES;
        for (dbr, element_bytes, held_bytes) in [(0, 40, texts), (1, 2, 2), (2, 4, 4), (3, 2, 2), (4, 1, 1), (6, 8, 8)]
        {
            let padding_bytes = 6;
            let mut incoming = Incoming::new(DbrType(dbr), 10, 10 * element_bytes + padding_bytes, None).unwrap();

            assert!(!incoming.take(&mut &vec![b'x'; 3 * element_bytes][..]));

            assert_eq!(incoming.held_bytes(), 3 * held_bytes, "type {dbr}");
            assert_eq!(incoming.bytes_left(), 7 * element_bytes + padding_bytes, "type {dbr}");
        }
    }

    #[test]
    fn a_count_larger_than_the_payload_is_rejected_before_allocation() {
        assert_eq!(Incoming::new(DbrType(5), 1000, 3999, None).unwrap_err(), MalformedPayload::Short);
        assert_eq!(Incoming::new(DbrType(5), u32::MAX, 4000, None).unwrap_err(), MalformedPayload::Short);
    }
}
