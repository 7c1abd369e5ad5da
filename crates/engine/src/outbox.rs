//! The send queue of a circuit: messages in order. Large arrays are queued as shared snapshots and encoded in pieces
//! while the socket drains.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use crate::limit;

/// An array in the outbox; its protocol encodes the elements.
pub trait QueuedArray {
    /// Appends the elements with these indices.
    fn encode(&self, range: Range<usize>, out: &mut Vec<u8>);
}

/// Bytes and arrays in sending order.
pub struct Outbox<A> {
    /// Encoded bytes; those before `n_sent` are sent.
    bytes: Vec<u8>,
    n_sent: usize,
    /// What follows `bytes`.
    waiting: VecDeque<Segment<A>>,
    waiting_bytes: usize,
}

enum Segment<A> {
    Bytes(Vec<u8>),
    Array { array: A, element_bytes: usize, next: usize, end: usize, zeros: usize },
}

impl<A> Default for Outbox<A> {
    fn default() -> Outbox<A> {
        Outbox { bytes: Vec::new(), n_sent: 0, waiting: VecDeque::new(), waiting_bytes: 0 }
    }
}

impl<A: QueuedArray> fmt::Debug for Outbox<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("pending_bytes", &self.pending_bytes()).finish_non_exhaustive()
    }
}

impl<A: QueuedArray> Outbox<A> {
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

    /// The bytes to send next, to append to; `None` if more is queued behind them.
    #[inline]
    pub fn next_bytes(&mut self) -> Option<&mut Vec<u8>> {
        self.waiting.is_empty().then_some(&mut self.bytes)
    }

    /// Appends an array as it is.
    ///
    /// `n_elements`: how many elements of `array` are sent, each as `element_bytes`. `n_zeros`: zero bytes after them.
    pub fn push_array(&mut self, array: A, n_elements: usize, element_bytes: usize, n_zeros: usize) {
        self.waiting_bytes += n_elements * element_bytes + n_zeros;
        self.waiting.push_back(Segment::Array { array, element_bytes, next: 0, end: n_elements, zeros: n_zeros });
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
                    array.encode(*next..*next + n_elements, &mut self.bytes);
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

    /// Four bytes for each element.
    impl QueuedArray for Arc<Vec<u32>> {
        fn encode(&self, range: Range<usize>, out: &mut Vec<u8>) {
            out.extend(self[range].iter().flat_map(|element| element.to_be_bytes()));
        }
    }

    /// All bytes, sent in parts of 10 kB, and the size of the longest piece that was ready at once.
    fn drained(outbox: &mut Outbox<Arc<Vec<u32>>>) -> (Vec<u8>, usize) {
        let (mut sent, mut longest) = (Vec::new(), 0);
        loop {
            let ready = outbox.ready();
            if ready.is_empty() {
                return (sent, longest);
            }
            longest = longest.max(ready.len());
            let n = ready.len().min(10_000);
            sent.extend_from_slice(&ready[..n]);
            outbox.sent(n);
        }
    }

    #[test]
    fn bytes_and_arrays_are_sent_in_order_and_arrays_are_encoded_in_pieces() {
        let array = Arc::new((0..100_003).collect::<Vec<u32>>());
        let mut outbox = Outbox::default();
        outbox.push(|bytes| bytes.extend_from_slice(b"first"));
        outbox.push_array(array.clone(), 100_000, 4, 6);
        outbox.push(|bytes| bytes.extend_from_slice(b"second"));
        outbox.push(|bytes| bytes.extend_from_slice(b"third"));
        outbox.push_array(array.clone(), 0, 4, 300_000);
        outbox.push(|bytes| bytes.extend_from_slice(b"last"));
        let (n_pending, n_owners) = (outbox.pending_bytes(), Arc::strong_count(&array));

        let (sent, longest) = drained(&mut outbox);

        let mut expected = b"first".to_vec();
        array.encode(0..100_000, &mut expected);
        expected.extend_from_slice(b"\0\0\0\0\0\0secondthird");
        expected.resize(expected.len() + 300_000, 0);
        expected.extend_from_slice(b"last");
        assert!(sent == expected);
        assert_eq!((n_pending, outbox.pending_bytes(), longest), (expected.len(), 0, limit::PIECE_BYTES));
        assert_eq!((n_owners, Arc::strong_count(&array)), (3, 1));
    }

    #[test]
    fn a_long_queue_of_small_messages_is_sent_in_parts() {
        let mut outbox = Outbox::default();
        let numbers = Arc::new((0..100_000).collect::<Vec<u32>>());
        (0..100_000).for_each(|index| outbox.push(|bytes| numbers.encode(index..index + 1, bytes)));

        let (sent, _) = drained(&mut outbox);

        let mut expected = Vec::new();
        numbers.encode(0..100_000, &mut expected);
        assert!(sent == expected);
    }

    #[test]
    fn the_next_bytes_are_accessible_only_while_nothing_is_queued_behind_them() {
        let mut outbox = Outbox::default();
        outbox.next_bytes().unwrap().extend_from_slice(b"first");
        outbox.push_array(Arc::new(vec![7]), 1, 4, 0);

        assert!(outbox.next_bytes().is_none());
        outbox.push(|bytes| bytes.extend_from_slice(b"last"));
        assert!(outbox.next_bytes().is_none());

        assert_eq!(drained(&mut outbox).0, b"first\0\0\0\x07last");
        assert!(outbox.next_bytes().is_some());
    }

    fn bytes_of(n_bytes: usize) -> Outbox<Arc<Vec<u32>>> {
        let mut outbox = Outbox::default();
        outbox.push(|bytes| bytes.resize(n_bytes, 7));
        outbox
    }

    #[test]
    fn sent_bytes_are_freed_once_they_are_more_than_a_piece_and_more_than_half_of_the_queue() {
        const PIECE: usize = limit::PIECE_BYTES;
        for (n_bytes, n_kept) in [(PIECE + 10, PIECE), (3 * PIECE, 3 * PIECE / 2)] {
            let mut outbox = bytes_of(n_bytes);

            outbox.sent(n_kept);
            assert_eq!((outbox.bytes.len(), outbox.pending_bytes()), (n_bytes, n_bytes - n_kept));
            outbox.sent(1);
            assert_eq!((outbox.bytes.len(), outbox.pending_bytes()), (n_bytes - n_kept - 1, n_bytes - n_kept - 1));

            assert_eq!(outbox.ready().len(), n_bytes - n_kept - 1);
        }
    }

    #[test]
    fn pending_bytes_count_everything_that_is_not_sent_and_are_shown_as_debug_output() {
        let mut outbox = bytes_of(5);
        outbox.push_array(Arc::new(vec![1, 2, 3]), 2, 4, 6);
        outbox.push(|bytes| bytes.extend_from_slice(b"abc"));
        assert_eq!(format!("{outbox:?}"), "Outbox { pending_bytes: 22, .. }");

        outbox.sent(2);
        assert_eq!((outbox.pending_bytes(), outbox.ready().len()), (20, 3));
        outbox.sent(3);
        assert_eq!((outbox.ready().to_vec(), outbox.pending_bytes()), ([0, 0, 0, 1, 0, 0, 0, 2].to_vec(), 17));
        outbox.sent(8);
        assert_eq!((outbox.ready().to_vec(), outbox.pending_bytes()), ([0; 6].to_vec(), 9));
        outbox.sent(6);
        assert_eq!((outbox.ready().to_vec(), outbox.pending_bytes()), (b"abc".to_vec(), 3));
        outbox.sent(3);
        assert_eq!((outbox.ready().to_vec(), outbox.pending_bytes()), (b"".to_vec(), 0));
    }

    #[test]
    fn an_array_of_one_piece_is_encoded_at_once_and_a_longer_one_in_two_pieces() {
        const N: usize = limit::PIECE_BYTES / 4;
        for (n_elements, pieces) in [(N - 1, vec![N - 1]), (N, vec![N]), (N + 1, vec![N, 1])] {
            let mut outbox = Outbox::default();
            outbox.push_array(Arc::new(vec![7; n_elements]), n_elements, 4, 0);

            let sent = std::iter::from_fn(|| {
                let n_bytes = outbox.ready().len();
                outbox.sent(n_bytes);
                (n_bytes > 0).then_some(n_bytes / 4)
            });
            assert_eq!(sent.collect::<Vec<usize>>(), pieces);
        }
    }

    #[test]
    fn an_empty_array_sends_nothing() {
        let mut outbox = Outbox::default();
        outbox.push_array(Arc::new(Vec::new()), 0, 4, 0);
        outbox.push(|bytes| bytes.extend_from_slice(b"next"));

        assert_eq!(drained(&mut outbox).0, b"next");
    }
}
