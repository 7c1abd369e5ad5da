//! What waits to be sent on a circuit: messages in order, large arrays as shared snapshots that
//! are encoded in pieces while the socket drains.

/// Bytes and arrays in the order in which they go out.
#[derive(Debug, Default)]
pub struct Outbox {}

impl Outbox {
    /// The next bytes to write; empty when nothing waits. Encodes at most one piece.
    pub fn ready(&mut self) -> &[u8] {
        todo!()
    }

    /// The first `n` of the ready bytes were written.
    pub fn sent(&mut self, n: usize) {
        let _ = n;
        todo!()
    }

    /// Bytes that wait, arrays counted at their size on the wire.
    pub fn pending_bytes(&self) -> usize {
        todo!()
    }
}
