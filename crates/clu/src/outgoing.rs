//! Datagrams that a machine sends.

use std::net::SocketAddr;

/// Datagrams in one buffer, which the caller reuses.
///
/// ```
/// use fodo_clu::OutgoingDatagrams;
///
/// let mut outgoing = OutgoingDatagrams::default();
/// outgoing.push(([10, 0, 0, 2], 1234).into(), |bytes| bytes.extend_from_slice(b"abc"));
/// let datagrams: Vec<_> = outgoing.iter().collect();
/// assert_eq!(datagrams, [(([10, 0, 0, 2], 1234).into(), &b"abc"[..])]);
/// outgoing.clear();
/// assert!(outgoing.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutgoingDatagrams {
    bytes: Vec<u8>,
    /// The destination of each datagram, and where it ends.
    ends: Vec<(SocketAddr, usize)>,
}

impl OutgoingDatagrams {
    /// Adds the datagram that `write` appends.
    pub fn push(&mut self, to: SocketAddr, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push((to, self.bytes.len()));
    }

    /// The datagrams in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> + Clone {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        self.ends.iter().zip(starts).map(|((to, end), start)| (*to, &self.bytes[start..*end]))
    }

    /// The number of datagrams.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no datagram.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes all datagrams and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}
