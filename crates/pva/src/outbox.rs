//! Messages in the outbox: small values as bytes, large arrays as shared snapshots.

use std::ops::Range;

use fodo_data::Array;
use fodo_engine::outbox::QueuedArray;

use crate::cursor::{ByteOrder, ByteWriter, LeftOutArray};
use crate::frame::{HEADER_BYTES, Header};
use crate::limit;

/// The send queue of a circuit.
pub(crate) type Outbox = fodo_engine::outbox::Outbox<OrderedArray>;

/// An array whose elements are encoded in the byte order of its message.
pub(crate) struct OrderedArray {
    array: Array,
    order: ByteOrder,
}

impl QueuedArray for OrderedArray {
    fn encode(&self, range: Range<usize>, out: &mut Vec<u8>) {
        ByteWriter::new(out, self.order).some_elements(&self.array, range);
    }
}

/// A message is larger than [`limit::SENT_MESSAGE_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageTooLarge;

/// Appends the message that `encode` encodes. The large arrays that it leaves out ([`ByteWriter::leaving_out`]) are
/// queued themselves. Nothing is appended if the message is too large.
#[inline]
pub(crate) fn push_values(
    outbox: &mut Outbox,
    encode: impl FnOnce(&mut Vec<u8>, &mut Vec<LeftOutArray>),
) -> Result<(), MessageTooLarge> {
    push_at_most(outbox, limit::SENT_MESSAGE_BYTES_MAX, encode)
}

/// The same as [`push_values`], with the maximum size of the message.
#[inline]
fn push_at_most(
    outbox: &mut Outbox,
    bytes_max: usize,
    encode: impl FnOnce(&mut Vec<u8>, &mut Vec<LeftOutArray>),
) -> Result<(), MessageTooLarge> {
    let (mut start, mut message, mut left_out) = (0, Vec::new(), Vec::new());
    outbox.push(|bytes| {
        start = bytes.len();
        encode(bytes, &mut left_out);
        if !left_out.is_empty() || bytes.len() - start > bytes_max {
            message = bytes.split_off(start);
        }
    });
    if message.is_empty() { Ok(()) } else { push_parts(outbox, bytes_max, start, message, left_out) }
}

/// Appends a message that was encoded at `start`, and between its bytes the arrays that were left out.
#[cold]
fn push_parts(
    outbox: &mut Outbox,
    bytes_max: usize,
    start: usize,
    mut message: Vec<u8>,
    left_out: Vec<LeftOutArray>,
) -> Result<(), MessageTooLarge> {
    let n_left_out: usize = left_out.iter().map(|left_out| left_out.array.len() * left_out.element_bytes).sum();
    let n_bytes = message.len() + n_left_out;
    let header = message.first_chunk().and_then(|header| Header::decode(header).ok());
    let Some(header) = header.filter(|_| n_bytes <= bytes_max) else { return Err(MessageTooLarge) };
    let header = Header { word: (n_bytes - HEADER_BYTES) as u32, ..header };
    message[..HEADER_BYTES].copy_from_slice(&header.encode());
    let mut n_pushed = 0;
    for LeftOutArray { offset, array, element_bytes } in left_out {
        let end = offset - start;
        outbox.push(|bytes| bytes.extend_from_slice(&message[n_pushed..end]));
        let n_elements = array.len();
        outbox.push_array(OrderedArray { array, order: header.order }, n_elements, element_bytes, 0);
        n_pushed = end;
    }
    outbox.push(|bytes| bytes.extend_from_slice(&message[n_pushed..]));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::frame::{self, Sender};

    /// Appends a message with these arrays and bytes between them.
    fn message(order: ByteOrder, arrays: &[Array], out: &mut Vec<u8>, left_out: Option<&mut Vec<LeftOutArray>>) {
        let body = |to: &mut ByteWriter| {
            for array in arrays {
                to.size(array.len());
                to.elements(array);
            }
            to.u16(7);
        };
        frame::encode(out, Sender::Server, order, 10, |to| match left_out {
            Some(left_out) => to.leaving_out(left_out, body),
            None => body(to),
        });
    }

    #[test]
    fn large_arrays_are_sent_in_order_without_a_full_copy() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let elements = Arc::new((0..100_003).collect::<Vec<i32>>());
            let large = Array::I32(elements.clone());
            let small = Array::F64(Arc::new(vec![1.5, -2.5]));
            let bytes = Array::U8(Arc::new((0..200_000_u32).map(|number| number as u8).collect()));
            let (mut outbox, mut expected) = (Outbox::default(), Vec::new());
            let messages: [&[Array]; 4] =
                [&[], &[large.clone(), small.clone(), bytes.clone()], &[small], &[bytes, large]];
            for arrays in messages {
                let queued = push_values(&mut outbox, |out, left_out| message(order, arrays, out, Some(left_out)));
                assert_eq!(queued, Ok(()));
                message(order, arrays, &mut expected, None);
            }
            assert_eq!(outbox.pending_bytes(), expected.len());
            assert_eq!(Arc::strong_count(&elements), 5, "here, in two messages, and twice in the outbox");

            let mut sent = Vec::new();
            loop {
                let ready = outbox.ready();
                if ready.is_empty() {
                    break;
                }
                assert!(ready.len() <= fodo_engine::limit::PIECE_BYTES);
                let n = ready.len().min(10_000);
                sent.extend_from_slice(&ready[..n]);
                outbox.sent(n);
                assert_eq!(outbox.pending_bytes(), expected.len() - sent.len());
            }

            assert!(sent == expected);
        }
    }

    #[test]
    fn a_message_that_is_too_large_is_not_queued() {
        let half = Array::F64(Arc::new(vec![0.0; 1 << 20]));
        let mut outbox = Outbox::default();
        outbox.push(|bytes| bytes.extend_from_slice(b"before"));

        let arrays = vec![half; 256];
        let queued = push_values(&mut outbox, |out, left_out| message(ByteOrder::Little, &arrays, out, Some(left_out)));

        assert_eq!((queued, outbox.ready()), (Err(MessageTooLarge), b"before".as_slice()));
        outbox.sent(6);
        assert_eq!(outbox.pending_bytes(), 0);
    }

    #[test]
    fn a_message_of_the_maximum_size_is_queued_whether_its_arrays_are_in_it_or_left_out() {
        let small = Array::F64(Arc::new(vec![0.0; 10]));
        let large = Array::F64(Arc::new(vec![0.0; 10_000]));
        for (what, arrays, n_expected) in [("in it", [small], 0), ("left out", [large], 1)] {
            let mut expected = Vec::new();
            message(ByteOrder::Little, &arrays, &mut expected, None);
            for (bytes_max, is_queued) in [(expected.len(), true), (expected.len() - 1, false)] {
                let mut outbox = Outbox::default();
                outbox.push(|bytes| bytes.extend_from_slice(b"a message before it"));
                let mut n_left_out = 0;

                let queued = push_at_most(&mut outbox, bytes_max, |out, left_out| {
                    message(ByteOrder::Little, &arrays, out, Some(left_out));
                    n_left_out = left_out.len();
                });

                assert_eq!((queued.is_ok(), n_left_out), (is_queued, n_expected), "{what}");
                let n_bytes = if is_queued { expected.len() } else { 0 };
                assert_eq!(outbox.pending_bytes(), b"a message before it".len() + n_bytes, "{what}");
            }
        }
    }
}
