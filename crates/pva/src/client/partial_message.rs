//! Large values, decoded into their destination as they arrive: the value of a get or an update with a large array.

use super::reply::Dispatcher;
use super::{Circuit, Listener};
use crate::cursor::ByteReader;
use crate::frame::Incomplete;
use crate::incoming_array::{ApartArray, ArrayPlace, IncomingArray};
use crate::message::{Answer, Subcommand};
use crate::{Ioid, limit};

/// What is known of the incomplete message.
#[derive(Debug)]
pub(super) enum PartialMessage {
    /// There is none, or it is not examined.
    Unexamined,
    /// So many bytes of it contain no large array that is incomplete.
    WithoutArray(usize),
    /// Its large array is arriving.
    WithArray(Box<IncomingArray>),
}

impl PartialMessage {
    /// The array, once the message is complete.
    pub(super) fn take_array(&mut self) -> Option<IncomingArray> {
        match std::mem::replace(self, PartialMessage::Unexamined) {
            PartialMessage::WithArray(array) => Some(*array),
            PartialMessage::Unexamined | PartialMessage::WithoutArray(_) => None,
        }
    }

    /// Decodes bytes of the large array.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        if let PartialMessage::WithArray(array) = self {
            array.append(bytes);
        }
    }
}

impl Circuit {
    /// Has the framer pass on the elements of a large array that is arriving.
    pub(super) fn seek_array(&mut self, listener: &mut impl Listener) {
        let n_examined = match self.partial {
            PartialMessage::Unexamined => 0,
            PartialMessage::WithoutArray(n_bytes) => n_bytes,
            PartialMessage::WithArray(_) => return,
        };
        let Some(incomplete) = self.framer.incomplete() else { return };
        let n_bytes = incomplete.arrived.len();
        // The bytes double each time, so that small pieces are not examined again and again.
        if incomplete.bytes_max < limit::BULK_BYTES || n_examined >= limit::BULK_BYTES || n_bytes < 2 * n_examined {
            return;
        }
        let mut dispatcher = Dispatcher { inner: &mut self.inner, listener };
        let Some((ioid, place)) = dispatcher.large_array(&incomplete) else {
            self.partial = PartialMessage::WithoutArray(n_bytes);
            return;
        };
        let room = dispatcher.listener.room(ioid, place.kind, place.n_elements);
        let mut array = IncomingArray::new(place, incomplete.header.order, room);
        array.append(&incomplete.arrived[place.offset..]);
        self.framer.pass_on(place.offset, array.n_missing());
        self.partial = PartialMessage::WithArray(Box::new(array));
    }
}

impl<L: Listener> Dispatcher<'_, L> {
    /// The large array that is incomplete at the end of a value, and the operation that receives the value.
    fn large_array(&mut self, incomplete: &Incomplete) -> Option<(Ioid, ArrayPlace)> {
        let mut sought = ApartArray::sought(incomplete.bytes_max - incomplete.arrived.len());
        let mut reader = ByteReader::with_apart(incomplete.arrived, incomplete.header.order, &mut sought);
        let (ioid, sub) = match Answer::decode(incomplete.header.command, &mut reader) {
            Answer::Get { ioid, sub, status } if status.is_success() => (ioid, sub),
            Answer::Monitor { ioid, sub } => (ioid, sub),
            _ => return None,
        };
        if sub.contains(Subcommand::INIT) || sub.contains(Subcommand::DESTROY) {
            return None;
        }
        self.inner.operations.get_mut(ioid)?.decode(&mut reader, &mut self.inner.types);
        Some((ioid, sought.place?))
    }
}
