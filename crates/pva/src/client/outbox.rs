//! The send queue of a client's circuit.

use crate::client::RequestError;
use crate::cursor::{ByteOrder, ByteWriter};
use crate::frame::{self, Sender};
use crate::message::{self, Request, Subcommand};
use crate::outbox::{self, MessageTooLarge, push_values};
use crate::types::TypeIds;
use crate::{Ioid, Sid, limit};

/// Encoded messages in sending order, and what their encoding depends on.
#[derive(Debug)]
pub(super) struct Outbox {
    queue: outbox::Outbox,
    /// The byte order that the server requires.
    pub(super) order: ByteOrder,
    /// The types that the server stores.
    pub(super) ids: TypeIds,
}

impl Outbox {
    pub(super) fn new() -> Outbox {
        Outbox { queue: outbox::Outbox::default(), order: ByteOrder::Little, ids: TypeIds::new(0) }
    }

    /// Appends a request; `body` writes what follows its fields.
    #[inline]
    pub(super) fn push(&mut self, request: &Request, body: impl FnOnce(&mut ByteWriter, &mut TypeIds)) {
        let Outbox { queue, order, ids } = self;
        queue.push(|bytes| request.encode(*order, bytes, |to| body(to, ids)));
    }

    /// Appends the execution of a get, as [`Request::Get`] encodes it.
    #[inline]
    pub(super) fn push_get(&mut self, sid: Sid, ioid: Ioid) {
        let order = self.order;
        match self.queue.next_bytes() {
            Some(bytes) => encode_get(order, sid, ioid, bytes),
            None => self.queue.push(|bytes| encode_get(order, sid, ioid, bytes)),
        }
    }

    /// Appends a request with a value, which may be too large to be sent.
    pub(super) fn push_value(
        &mut self,
        request: &Request,
        body: impl FnOnce(&mut ByteWriter),
    ) -> Result<(), RequestError> {
        // Without type ids: the server must not miss one in a message that is not sent.
        let pushed = push_values(&mut self.queue, |bytes, left_out| {
            request.encode(self.order, bytes, |to| to.leaving_out(left_out, body));
        });
        pushed.map_err(|MessageTooLarge| RequestError::TooLarge)
    }

    /// The next bytes to write; empty if nothing is queued. Encodes at most one piece of a large array.
    pub(super) fn ready(&mut self) -> &[u8] {
        if self.queue.ready().is_empty()
            && let Some(bytes) = self.queue.next_bytes()
        {
            bytes.shrink_to(limit::KEPT_OUTBOX_BYTES);
        }
        self.queue.ready()
    }

    /// Reports that the first `n` ready bytes were written.
    pub(super) fn sent(&mut self, n: usize) {
        self.queue.sent(n);
    }

    /// The number of bytes queued.
    #[inline]
    pub(super) fn pending_bytes(&self) -> usize {
        self.queue.pending_bytes()
    }
}

/// Appends the execution of a get.
#[inline(always)]
fn encode_get(order: ByteOrder, sid: Sid, ioid: Ioid, out: &mut Vec<u8>) {
    frame::encode(out, Sender::Client, order, message::GET, |to| {
        let ([s0, s1, s2, s3], [i0, i1, i2, i3]) = (order.u32_bytes(sid.0), order.u32_bytes(ioid.0));
        to.bytes(&[s0, s1, s2, s3, i0, i1, i2, i3, Subcommand::EXECUTE.0]);
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fodo_data::Array;

    use super::*;

    #[test]
    fn requests_are_sent_in_order_and_the_memory_of_a_large_one_is_freed() {
        let mut outbox = Outbox::new();
        let body = vec![7; 2 * limit::KEPT_OUTBOX_BYTES];
        let mut expected = Vec::new();
        for body in [b"one".as_slice(), &body, b"three"] {
            outbox.push(&Request::Echo {}, |to, _| to.bytes(body));
            Request::Echo {}.encode(ByteOrder::Little, &mut expected, |to| to.bytes(body));
        }
        assert_eq!(outbox.pending_bytes(), expected.len());

        let mut sent = Vec::new();
        while outbox.pending_bytes() > 0 {
            let n = outbox.ready().len().min(100_000);
            sent.extend_from_slice(&outbox.ready()[..n]);
            outbox.sent(n);
        }

        assert!(sent == expected);
        assert!(outbox.ready().is_empty());
        assert!(outbox.queue.next_bytes().unwrap().capacity() <= limit::KEPT_OUTBOX_BYTES);
    }

    #[test]
    fn a_large_array_is_queued_without_a_copy() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut outbox = Outbox { order, ..Outbox::new() };
            let elements = Arc::new((0..100_000).collect::<Vec<i32>>());
            let array = Array::I32(elements.clone());

            assert_eq!(outbox.push_value(&Request::Echo {}, |to| to.elements(&array)), Ok(()));
            outbox.push(&Request::Echo {}, |to, _| to.u8(7));

            assert_eq!(Arc::strong_count(&elements), 3);
            let mut expected = Vec::new();
            Request::Echo {}.encode(order, &mut expected, |to| to.elements(&array));
            Request::Echo {}.encode(order, &mut expected, |to| to.u8(7));
            let mut sent = Vec::new();
            while outbox.pending_bytes() > 0 {
                sent.extend_from_slice(outbox.ready());
                let n = outbox.ready().len();
                outbox.sent(n);
            }
            assert!(sent == expected);
        }
    }
}
