//! The send queue of a circuit: messages in order. Large arrays are queued as shared snapshots and encoded in pieces
//! while the socket drains.

use std::collections::VecDeque;
use std::fmt;

use fodo_data::{Array, ConvertError, Reading, Value};

use crate::dbr::{self, DbrType, WireValue};
use crate::limit;
use crate::message::{HEADER_BYTES, Header, padded};

/// Bytes and arrays in sending order.
#[derive(Default)]
pub struct Outbox {
    /// Encoded bytes; those before `n_sent` are sent.
    bytes: Vec<u8>,
    n_sent: usize,
    /// What follows `bytes`.
    waiting: VecDeque<Segment>,
    waiting_bytes: usize,
}

enum Segment {
    Bytes(Vec<u8>),
    Array { array: Array, element_bytes: usize, next: usize, end: usize, zeros: usize },
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("pending_bytes", &self.pending_bytes()).finish_non_exhaustive()
    }
}

impl Outbox {
    /// Appends the small messages that `write` encodes.
    #[inline]
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.waiting.is_empty() {
            return write(&mut self.bytes);
        }
        if !matches!(self.waiting.back(), Some(Segment::Bytes(_))) {
            self.waiting.push_back(Segment::Bytes(Vec::new()));
        }
        if let Some(Segment::Bytes(bytes)) = self.waiting.back_mut() {
            let before = bytes.len();
            write(bytes);
            self.waiting_bytes += bytes.len() - before;
        }
    }

    /// Appends a message with a value: as bytes, or from 64 KiB on as the array itself.
    ///
    /// `header`: creates the header from the payload size and the number of elements sent.
    #[inline(always)]
    pub fn push_value(
        &mut self,
        dbr: DbrType,
        count: u32,
        reading: &Reading,
        header: impl FnOnce(usize, u32) -> Header,
    ) -> Result<(), ConvertError> {
        const MESSAGE_BYTES: usize = HEADER_BYTES + dbr::SHORT_BYTES;
        let mut payload = [0; dbr::SHORT_BYTES];
        let is_next = self.waiting.is_empty();
        let n_bytes = if is_next { dbr::encode_short(dbr, count, reading, &mut payload) } else { None };
        let Some(n_bytes) = n_bytes else { return self.push_any_value(dbr, count, reading, header) };
        let mut message = [0; MESSAGE_BYTES];
        message[..HEADER_BYTES].copy_from_slice(&header(n_bytes, 1).short());
        message[HEADER_BYTES..].copy_from_slice(&payload);
        // An array of constant size is copied without a function call, and truncating the surplus is free.
        self.bytes.extend_from_slice(&message);
        self.bytes.truncate(self.bytes.len() - (dbr::SHORT_BYTES - n_bytes));
        Ok(())
    }

    #[inline(never)]
    fn push_any_value(
        &mut self,
        dbr: DbrType,
        count: u32,
        reading: &Reading,
        header: impl FnOnce(usize, u32) -> Header,
    ) -> Result<(), ConvertError> {
        let wire = dbr::wire(dbr, reading)?;
        let n_sent = if count == 0 { wire.n_elements() as u32 } else { count };
        let payload = dbr.payload_bytes(n_sent).ok_or(ConvertError::Empty)?;
        let bytes = padded(payload);
        let header = header(bytes, n_sent);
        // A value with fewer elements than requested: a short request must not allocate much memory.
        let wire = match wire {
            WireValue::Scalar(scalar) if payload >= limit::BULK_BYTES => {
                WireValue::Array(Value::Scalar(scalar).into_array())
            }
            wire => wire,
        };
        match wire {
            WireValue::Array(array) if payload >= limit::BULK_BYTES => {
                let (offset, element_bytes) = dbr.layout().ok_or(ConvertError::Empty)?;
                self.push(|bytes| {
                    header.encode(bytes);
                    dbr::encode_head(dbr, reading, bytes);
                });
                let end = array.len().min(n_sent as usize);
                let zeros = bytes - offset - end * element_bytes;
                self.waiting_bytes += bytes - offset;
                self.waiting.push_back(Segment::Array { array, element_bytes, next: 0, end, zeros });
            }
            wire => self.push(|bytes| {
                header.encode(bytes);
                dbr::encode_wire(dbr, count, reading, &wire, bytes);
            }),
        }
        Ok(())
    }

    /// The next bytes to write; empty if nothing is queued. Encodes at most one piece.
    pub fn ready(&mut self) -> &[u8] {
        if self.n_sent == self.bytes.len() {
            self.bytes.clear();
            self.n_sent = 0;
            self.refill();
        }
        &self.bytes[self.n_sent..]
    }

    fn refill(&mut self) {
        while self.bytes.is_empty() {
            match self.waiting.front_mut() {
                None => return,
                Some(Segment::Bytes(bytes)) => {
                    self.bytes.append(bytes);
                    self.waiting.pop_front();
                }
                Some(Segment::Array { array, element_bytes, next, end, zeros }) => {
                    let n_elements = (limit::PIECE_BYTES / *element_bytes).min(*end - *next);
                    dbr::put_elements(array, *next..*next + n_elements, &mut self.bytes);
                    *next += n_elements;
                    if n_elements == 0 {
                        let n_zeros = limit::PIECE_BYTES.min(*zeros);
                        self.bytes.resize(n_zeros, 0);
                        *zeros -= n_zeros;
                    }
                    if *next == *end && *zeros == 0 {
                        self.waiting.pop_front();
                    }
                }
            }
            self.waiting_bytes -= self.bytes.len();
        }
    }

    /// Reports that the first `n` ready bytes were written.
    pub fn sent(&mut self, n: usize) {
        self.n_sent += n;
        debug_assert!(self.n_sent <= self.bytes.len());
        // A long queue of small messages is not moved after every write, only once more than half of it is sent.
        if self.n_sent > limit::PIECE_BYTES && self.n_sent * 2 > self.bytes.len() {
            self.bytes.drain(..self.n_sent);
            self.n_sent = 0;
        }
    }

    /// The number of bytes queued; arrays count with their size on the wire.
    #[inline]
    pub fn pending_bytes(&self) -> usize {
        self.bytes.len() - self.n_sent + self.waiting_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn header(payload_bytes: usize, count: u32) -> Header {
        Header { command: 15, payload_bytes: payload_bytes as u32, data_type: 5, count, p1: 1, p2: 2 }
    }

    #[test]
    fn a_large_array_is_sent_in_order_without_a_full_copy() {
        let elements = Arc::new((0..100_003).collect::<Vec<i32>>());
        let reading = Reading::bare(Value::Array(Array::I32(elements.clone())));
        let small = Reading::bare(Value::from(7));
        let (mut outbox, mut expected) = (Outbox::default(), Vec::new());
        for (count, reading) in [(1, &small), (0, &reading), (1, &small), (100_010, &reading)] {
            outbox.push_value(DbrType(5), count, reading, header).unwrap();
            let mut payload = Vec::new();
            let n_sent = dbr::encode(DbrType(5), count, reading, &mut payload).unwrap();
            header(payload.len(), n_sent).encode(&mut expected);
            expected.append(&mut payload);
        }
        assert!(outbox.pending_bytes() > 800_000);
        assert_eq!(Arc::strong_count(&elements), 4);

        let mut sent = Vec::new();
        loop {
            let ready = outbox.ready();
            if ready.is_empty() {
                break;
            }
            assert!(ready.len() <= limit::PIECE_BYTES + 100);
            let n = ready.len().min(10_000);
            sent.extend_from_slice(&ready[..n]);
            outbox.sent(n);
        }

        assert!(sent == expected);
        assert_eq!(outbox.pending_bytes(), 0);
    }

    #[test]
    fn padding_to_a_million_elements_takes_no_memory_before_it_is_sent() {
        let mut outbox = Outbox::default();
        for _ in 0..1000 {
            outbox.push_value(DbrType(6), 1_000_000, &Reading::bare(Value::from(1.5)), header).unwrap();
        }

        let mut expected = Vec::new();
        header(8_000_000, 1_000_000).encode(&mut expected);
        expected.extend_from_slice(&1.5f64.to_be_bytes());
        assert_eq!(outbox.pending_bytes(), 1000 * (24 + 8_000_000));
        assert!(outbox.bytes.len() < 100);
        let mut sent = Vec::new();
        while sent.len() < 24 + 8_000_000 {
            let ready = outbox.ready().to_vec();
            outbox.sent(ready.len());
            sent.extend(ready);
        }
        expected.resize(24 + 8_000_000, 0);
        assert!(sent.starts_with(&expected));
    }
}
