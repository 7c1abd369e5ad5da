//! Messages with a value in the outbox: small values as bytes, large arrays as shared snapshots.

use std::ops::Range;

use fodo_data::{Array, ConvertError, Reading, Value};
use fodo_engine::outbox::{Outbox, QueuedArray};

use crate::dbr::{self, DbrType, WireValue};
use crate::limit;
use crate::message::{HEADER_BYTES, Header, padded};

/// An array whose elements are encoded as in a DBR payload.
pub struct DbrArray(Array);

impl QueuedArray for DbrArray {
    fn encode(&self, range: Range<usize>, out: &mut Vec<u8>) {
        dbr::put_elements(&self.0, range, out);
    }
}

/// Appends a message with a value: as bytes, or from 64 KiB on as the array itself.
///
/// `header`: creates the header from the payload size and the number of elements sent.
#[inline(always)]
pub fn push_value(
    outbox: &mut Outbox<DbrArray>,
    dbr: DbrType,
    count: u32,
    reading: &Reading,
    header: impl FnOnce(usize, u32) -> Header,
) -> Result<(), ConvertError> {
    const MESSAGE_BYTES: usize = HEADER_BYTES + dbr::SHORT_BYTES;
    let mut payload = [0; dbr::SHORT_BYTES];
    if let Some(next) = outbox.next_bytes()
        && let Some(n_bytes) = dbr::encode_short(dbr, count, reading, &mut payload)
    {
        let mut message = [0; MESSAGE_BYTES];
        message[..HEADER_BYTES].copy_from_slice(&header(n_bytes, 1).short());
        message[HEADER_BYTES..].copy_from_slice(&payload);
        // An array of constant size is copied without a function call, and truncating the surplus is free.
        next.extend_from_slice(&message);
        next.truncate(next.len() - (dbr::SHORT_BYTES - n_bytes));
        return Ok(());
    }
    push_any_value(outbox, dbr, count, reading, header)
}

#[inline(never)]
fn push_any_value(
    outbox: &mut Outbox<DbrArray>,
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
    if payload < limit::BULK_BYTES {
        outbox.push(|bytes| {
            header.encode(bytes);
            dbr::encode_wire(dbr, count, reading, &wire, bytes);
        });
        return Ok(());
    }
    let array = match wire {
        WireValue::Array(array) => array,
        // Fewer elements than requested: a short request must not allocate much memory.
        WireValue::Scalar(scalar) => Value::Scalar(scalar).into_array(),
    };
    let (offset, element_bytes) = dbr.layout().ok_or(ConvertError::Empty)?;
    outbox.push(|bytes| {
        header.encode(bytes);
        dbr::encode_head(dbr, reading, bytes);
    });
    let end = array.len().min(n_sent as usize);
    let zeros = bytes - offset - end * element_bytes;
    outbox.push_array(DbrArray(array), end, element_bytes, zeros);
    Ok(())
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
            push_value(&mut outbox, DbrType(5), count, reading, header).unwrap();
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
            assert!(ready.len() <= fodo_engine::limit::PIECE_BYTES + 100);
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
            push_value(&mut outbox, DbrType(6), 1_000_000, &Reading::bare(Value::from(1.5)), header).unwrap();
        }

        let mut expected = Vec::new();
        header(8_000_000, 1_000_000).encode(&mut expected);
        expected.extend_from_slice(&1.5f64.to_be_bytes());
        assert_eq!(outbox.pending_bytes(), 1000 * (24 + 8_000_000));
        assert!(outbox.ready().len() < 100);
        let mut sent = Vec::new();
        while sent.len() < 24 + 8_000_000 {
            let ready = outbox.ready().to_vec();
            outbox.sent(ready.len());
            sent.extend(ready);
        }
        expected.resize(24 + 8_000_000, 0);
        assert!(sent.starts_with(&expected));
    }

    #[test]
    fn a_padded_number_is_queued_as_bytes_below_the_limit_and_as_an_array_from_it_on() {
        for (count, is_array) in [(limit::BULK_BYTES as u32 / 4 - 1, false), (limit::BULK_BYTES as u32 / 4, true)] {
            let (mut outbox, mut expected) = (Outbox::default(), Vec::new());

            push_value(&mut outbox, DbrType(5), count, &Reading::bare(Value::from(7)), header).unwrap();

            let payload_bytes = padded(4 * count as usize);
            header(payload_bytes, count).encode(&mut expected);
            let n_head = expected.len();
            expected.extend([0, 0, 0, 7]);
            expected.resize(n_head + payload_bytes, 0);
            assert_eq!((outbox.next_bytes().is_none(), outbox.pending_bytes()), (is_array, expected.len()), "{count}");
            let mut sent = Vec::new();
            while outbox.pending_bytes() > 0 {
                let ready = outbox.ready().to_vec();
                outbox.sent(ready.len());
                sent.extend(ready);
            }
            assert!(sent == expected, "{count}");
        }
    }

    #[test]
    fn a_value_of_an_unknown_type_is_not_queued() {
        let mut outbox = Outbox::default();

        let result = push_value(&mut outbox, DbrType(39), 1, &Reading::bare(Value::from(7)), header);

        assert_eq!((result, outbox.pending_bytes()), (Err(ConvertError::Empty), 0));
    }
}
