//! The operations of a circuit by their numbers, and by the channels that end with them.

use std::collections::VecDeque;

use fodo_engine::PeerNumberHashMap;

use super::RequestError;
use super::operation::OpenOperation;
use crate::{Cid, Ioid, Sid, limit};

/// The low bits of an operation's number are its index. The others distinguish it from the operations that had the index
/// before, so that late replies are not taken for its own. They are never 0: no operation has the number 0.
const INDEX_BITS: u32 = limit::OPERATIONS_MAX.trailing_zeros();

/// No operation.
const NONE: Ioid = Ioid(0);

/// The index of an operation that [`Circuit::open`](super::Circuit::open) has numbered: unique among the open operations
/// of its circuit, and less than the largest number of operations that were open at once.
#[inline]
pub const fn operation_index(ioid: Ioid) -> usize {
    ioid.0 as usize & (limit::OPERATIONS_MAX - 1)
}

/// The number of the first operation with an index; `None` for an index above the limit.
fn first_number(index: usize) -> Option<Ioid> {
    (index < limit::OPERATIONS_MAX).then(|| Ioid((1 << INDEX_BITS) + index as u32))
}

/// The number of the next operation with the same index.
fn successor(ioid: Ioid) -> Ioid {
    let next = ioid.0.wrapping_add(1 << INDEX_BITS);
    Ioid(if next >> INDEX_BITS == 0 { next + (1 << INDEX_BITS) } else { next })
}

/// A channel that the server has confirmed.
#[derive(Debug)]
struct ClientChannel {
    cid: Cid,
    /// Its number in messages.
    sid: Sid,
    /// The first of its operations.
    first: Ioid,
}

/// The open channels of a circuit and their operations.
#[derive(Debug, Default)]
pub(super) struct OperationTable {
    slots: Vec<Option<OpenOperation>>,
    /// The numbers for the slots that are free, the one that was used last at the end.
    free: VecDeque<Ioid>,
    /// By the number that the caller uses: the server's, or a substitute.
    channels: PeerNumberHashMap<Sid, ClientChannel>,
    /// The substitutes of channels whose numbers other channels had before. A server of core-pva has one number for all
    /// channels to a PV.
    substitutes: PeerNumberHashMap<Cid, Sid>,
    /// The substitute that was assigned last.
    last_substitute: u32,
}

impl OperationTable {
    /// Whether there is neither a channel nor an operation.
    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.free.len() == self.slots.len()
    }

    /// Adds a channel with the number from the server. Returns the number for the caller, which is another one if a channel
    /// has that number already.
    pub(super) fn add_channel(&mut self, cid: Cid, sid: Sid) -> Sid {
        let mut number = sid;
        while self.channels.contains_key(&number) {
            // Servers count upwards.
            self.last_substitute = self.last_substitute.wrapping_sub(1);
            number = Sid(self.last_substitute);
        }
        if number != sid {
            self.substitutes.insert(cid, number);
        }
        self.channels.insert(number, ClientChannel { cid, sid, first: NONE });
        number
    }

    /// The caller's number of a channel that the server names by both of its numbers.
    pub(super) fn number_of(&self, cid: Cid, sid: Sid) -> Option<Sid> {
        let has_number =
            |number: &Sid| self.channels.get(number).is_some_and(|channel| channel.cid == cid && channel.sid == sid);
        Some(sid).filter(has_number).or_else(|| self.substitutes.get(&cid).copied().filter(has_number))
    }

    /// Removes a channel with its operations, by the caller's number. Returns its number in messages, `None` if it does not
    /// exist.
    pub(super) fn remove_channel(&mut self, cid: Cid, number: Sid) -> Option<Sid> {
        self.channels.get(&number).filter(|channel| channel.cid == cid)?;
        let channel = self.channels.remove(&number)?;
        if self.substitutes.get(&cid) == Some(&number) {
            self.substitutes.remove(&cid);
        }
        let mut next = channel.first;
        while let Some(operation) = self.take(next) {
            next = operation.next;
        }
        Some(channel.sid)
    }

    /// Adds an operation of a channel, by the caller's number; `make` gets the operation's number and the channel's number in
    /// messages.
    pub(super) fn insert(
        &mut self,
        number: Sid,
        make: impl FnOnce(Ioid, Sid) -> OpenOperation,
    ) -> Result<&mut OpenOperation, RequestError> {
        let Some(channel) = self.channels.get_mut(&number) else { return Err(RequestError::NoSuchChannel) };
        let sid = channel.sid;
        let ioid = match self.free.pop_front() {
            Some(ioid) => ioid,
            None => {
                let ioid = first_number(self.slots.len()).ok_or(RequestError::TooManyOperations)?;
                self.slots.push(None);
                ioid
            }
        };
        let next = std::mem::replace(&mut channel.first, ioid);
        if let Some(next) = self.get_mut(next) {
            next.previous = ioid;
        }
        let mut operation = make(ioid, sid);
        operation.channel = number;
        operation.next = next;
        Ok(self.slots[operation_index(ioid)].insert(operation))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, ioid: Ioid) -> Option<&mut OpenOperation> {
        match self.slots.get_mut(operation_index(ioid)) {
            Some(Some(operation)) if operation.ioid == ioid => Some(operation),
            _ => None,
        }
    }

    /// Removes an operation.
    pub(super) fn remove(&mut self, ioid: Ioid) -> Option<OpenOperation> {
        let operation = self.take(ioid)?;
        let (next, previous) = (operation.next, operation.previous);
        if let Some(next) = self.get_mut(next) {
            next.previous = previous;
        }
        match self.get_mut(previous) {
            Some(previous) => previous.next = next,
            None => {
                if let Some(channel) = self.channels.get_mut(&operation.channel) {
                    channel.first = next;
                }
            }
        }
        Some(operation)
    }

    fn take(&mut self, ioid: Ioid) -> Option<OpenOperation> {
        self.get_mut(ioid)?;
        self.free.push_back(successor(ioid));
        self.slots[operation_index(ioid)].take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::operation::OperationStage;
    use crate::client::{Decoding, Task};

    fn insert(operations: &mut OperationTable, sid: u32) -> Ioid {
        let make = |ioid, sid| OpenOperation::new(ioid, sid, Task::Get, Decoding::Flat, OperationStage::Idle);
        operations.insert(Sid(sid), make).unwrap().ioid
    }

    fn with_channels(n: u32) -> OperationTable {
        let mut operations = OperationTable::default();
        (0..n).for_each(|n| assert_eq!(operations.add_channel(Cid(100 + n), Sid(n)), Sid(n)));
        operations
    }

    #[test]
    fn an_index_is_used_again_with_another_number() {
        let mut operations = with_channels(1);
        let first = insert(&mut operations, 0);
        let mut numbers = vec![first];

        for _ in 0..2 << (u32::BITS - INDEX_BITS) {
            let ioid = *numbers.last().unwrap();
            assert!(operations.remove(ioid).is_some());
            numbers.push(insert(&mut operations, 0));
            assert!(operations.get_mut(ioid).is_none() && operations.remove(ioid).is_none());
        }

        assert!(numbers.iter().all(|ioid| operation_index(*ioid) == 0 && ioid.0 != 0));
        assert_eq!(numbers.iter().skip(1).position(|ioid| *ioid == first), Some((1 << (u32::BITS - INDEX_BITS)) - 2));
        assert_eq!([0; 2].map(|sid| operation_index(insert(&mut operations, sid))), [1, 2]);
    }

    #[test]
    fn a_channel_ends_with_exactly_its_own_operations() {
        let mut operations = with_channels(2);
        let of_first: Vec<Ioid> = (0..5).map(|_| insert(&mut operations, 0)).collect();
        let of_second = insert(&mut operations, 1);
        // The first, the last, and two between them.
        for index in [0, 4, 2, 1] {
            assert!(operations.remove(of_first[index]).is_some());
        }
        let more = insert(&mut operations, 0);

        assert_eq!(operations.remove_channel(Cid(101), Sid(0)), None, "the number of another channel");
        assert_eq!(operations.remove_channel(Cid(100), Sid(0)), Some(Sid(0)));

        assert!(of_first.iter().chain([&more]).all(|ioid| operations.get_mut(*ioid).is_none()));
        assert!(operations.get_mut(of_second).is_some() && !operations.is_empty());
        assert!(operations.remove_channel(Cid(101), Sid(1)).is_some() && operations.is_empty());
    }

    #[test]
    fn channels_for_which_a_server_has_one_number_are_independent() {
        let mut operations = with_channels(1);
        let of_first = insert(&mut operations, 0);

        let second = operations.add_channel(Cid(7), Sid(0));
        let third = operations.add_channel(Cid(8), Sid(0));
        let of_second = insert(&mut operations, second.0);

        assert!(second != Sid(0) && third != Sid(0) && second != third);
        assert_eq!(operations.get_mut(of_second).unwrap().sid, Sid(0), "messages have the number of the server");
        assert_eq!([100, 7, 9].map(|cid| operations.number_of(Cid(cid), Sid(0))), [Some(Sid(0)), Some(second), None]);
        assert_eq!(operations.remove_channel(Cid(100), Sid(0)), Some(Sid(0)));
        assert!(operations.get_mut(of_first).is_none() && operations.get_mut(of_second).is_some());
        assert_eq!(operations.remove_channel(Cid(7), second), Some(Sid(0)));
        assert_eq!(operations.remove_channel(Cid(8), third), Some(Sid(0)));
        assert!(operations.is_empty() && operations.substitutes.is_empty());
    }

    #[test]
    fn a_number_of_the_server_that_is_a_substitute_gets_another_one() {
        let mut operations = with_channels(1);
        let substitute = operations.add_channel(Cid(7), Sid(0));

        let number = operations.add_channel(Cid(8), substitute);

        assert_ne!(number, substitute);
        assert_eq!(operations.number_of(Cid(8), substitute), Some(number));
        assert_eq!(operations.number_of(Cid(7), Sid(0)), Some(substitute));
    }

    #[test]
    fn every_index_below_the_limit_has_a_number() {
        for (index, number) in [
            (0, Some(0x0040_0000)),
            (7, Some(0x0040_0007)),
            (limit::OPERATIONS_MAX - 1, Some(0x007f_ffff)),
            (limit::OPERATIONS_MAX, None),
        ] {
            assert_eq!(first_number(index), number.map(Ioid), "{index}");
            assert_eq!(first_number(index).map(operation_index), number.map(|_| index));
        }
        assert_eq!(successor(Ioid(0x0040_0007)), Ioid(0x0080_0007));
        assert_eq!(successor(Ioid(0xffff_ffff)), Ioid(0x007f_ffff), "no number is below the first one");
    }

    #[test]
    fn an_operation_needs_a_channel() {
        let make = |ioid, sid| OpenOperation::new(ioid, sid, Task::Get, Decoding::Flat, OperationStage::Idle);

        assert_eq!(with_channels(1).insert(Sid(9), make).err(), Some(RequestError::NoSuchChannel));
    }
}
