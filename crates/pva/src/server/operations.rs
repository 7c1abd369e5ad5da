//! The operations of one circuit, by number, which the client chooses, by position and by channel.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use fodo_data::{Node, Structure};
use fodo_engine::PeerNumberHashMap;
use slab::Slab;

use super::event::{PutOptions, RequestKey};
use super::selection::FieldSelection;
use crate::message::{Answer, Subcommand};
use crate::status::RequestStatus;
use crate::{Ioid, Sid, types};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Put,
    PutGet,
    Monitor,
    /// Not supported.
    Array,
    Process,
    Rpc,
}

impl Method {
    /// The reply to a request of this operation. That of a monitor has its status in the body.
    pub(super) fn answer(self, ioid: Ioid, sub: Subcommand, status: RequestStatus) -> Answer {
        match self {
            Method::Get => Answer::Get { ioid, sub, status },
            Method::Put => Answer::Put { ioid, sub, status },
            Method::PutGet => Answer::PutGet { ioid, sub, status },
            Method::Monitor => Answer::Monitor { ioid, sub },
            Method::Array => Answer::Array { ioid, sub, status },
            Method::Process => Answer::Process { ioid, sub, status },
            Method::Rpc => Answer::Rpc { ioid, sub, status },
        }
    }
}

/// An operation that the client started, until it ends.
#[derive(Debug)]
pub(super) struct ServedOperation {
    pub(super) sid: Sid,
    pub(super) ioid: Ioid,
    pub(super) method: Method,
    pub(super) state: OperationState,
    /// The number of the latest request.
    number: u32,
    /// What the replies contain.
    pub(super) selection: FieldSelection,
    /// Whether the selection contains metadata.
    pub(super) needs_meta: bool,
    pub(super) options: PutOptions,
    /// The reply to INIT waits for the caller.
    pub(super) init_is_unsent: bool,
    /// The operation ends with the current execution.
    pub(super) is_ending: bool,
}

/// The state of an operation; the comments say what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationState {
    /// For the client to execute it.
    Idle,
    /// For the caller to reply to a request with this subcommand.
    Executing(Subcommand),
    /// A subscription: for START.
    Stopped(Window),
    /// A subscription: for updates from the caller.
    Started(Window),
}

/// How many more updates may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    /// Any number: the client uses no flow control.
    Unlimited,
    /// Those that the client has acknowledged in advance.
    Updates(u32),
}

impl Window {
    pub(super) fn is_open(self) -> bool {
        self != Window::Updates(0)
    }

    pub(super) fn widened(self, n_updates: u32) -> Window {
        match self {
            Window::Unlimited => Window::Unlimited,
            Window::Updates(n) => Window::Updates(n.saturating_add(n_updates)),
        }
    }

    /// After one more update was sent.
    pub(super) fn used(self) -> Window {
        match self {
            Window::Unlimited => Window::Unlimited,
            Window::Updates(n) => Window::Updates(n.saturating_sub(1)),
        }
    }
}

/// The operations of a circuit. Removing those of a channel does not visit the others.
#[derive(Debug, Default)]
pub(super) struct Operations {
    operations: Slab<ServedOperation>,
    by_ioid: PeerNumberHashMap<Ioid, u32>,
    by_channel: BTreeSet<(Sid, u32)>,
    number_next: u32,
    /// Memory of selections and pvRequests.
    request_bytes: usize,
    /// The pvRequest of the latest put. Those of a client are usually equal, and then shared.
    latest_request: Weak<Structure>,
}

/// Memory of what an operation keeps of its pvRequest, in bytes. A shared pvRequest counts for each operation.
pub(super) fn held_bytes(selection: &FieldSelection, options: &PutOptions) -> usize {
    let of_request = |request: &Arc<Structure>| {
        let (n_nodes, name_bytes) = types::size_of_type(request.kind());
        request.n_bytes() + n_nodes * size_of::<Node>() + name_bytes
    };
    selection.held_bytes() + options.request.as_ref().map_or(0, of_request)
}

impl ServedOperation {
    pub(super) fn new(
        sid: Sid,
        ioid: Ioid,
        method: Method,
        state: OperationState,
        selection: FieldSelection,
    ) -> ServedOperation {
        ServedOperation {
            sid,
            ioid,
            method,
            state,
            number: 0,
            selection,
            needs_meta: false,
            options: PutOptions::default(),
            init_is_unsent: true,
            is_ending: false,
        }
    }

    /// Whether the caller has a request of this operation: an execution or a subscription.
    fn has_request(&self) -> bool {
        self.state != OperationState::Idle
    }

    /// Whether this is the latest request of the operation, and the caller has it.
    #[inline]
    pub(super) fn is_request(&self, request: RequestKey) -> bool {
        self.number == request.number && self.has_request()
    }
}

impl Operations {
    /// The number of operations.
    pub(super) fn len(&self) -> usize {
        self.operations.len()
    }

    /// The memory of selections and pvRequests, in bytes.
    pub(super) fn request_bytes(&self) -> usize {
        self.request_bytes
    }

    /// The pvRequest of a put, shared with the put before if both are equal.
    pub(super) fn shared(&mut self, request: Structure) -> Arc<Structure> {
        match self.latest_request.upgrade() {
            Some(latest) if *latest == request => latest,
            _ => {
                let request = Arc::new(request);
                self.latest_request = Arc::downgrade(&request);
                request
            }
        }
    }

    /// The position of the operation with this number.
    #[inline]
    pub(super) fn find(&self, ioid: Ioid) -> Option<u32> {
        self.by_ioid.get(&ioid).copied()
    }

    /// Adds an operation, whose number must be new.
    pub(super) fn insert(&mut self, operation: ServedOperation) -> RequestKey {
        let (sid, ioid) = (operation.sid, operation.ioid);
        self.request_bytes += held_bytes(&operation.selection, &operation.options);
        let index = self.operations.insert(operation) as u32;
        self.by_ioid.insert(ioid, index);
        self.by_channel.insert((sid, index));
        self.start_request(index)
    }

    /// The operation at a position; `None` if there is none.
    #[inline]
    pub(super) fn at(&self, index: u32) -> Option<&ServedOperation> {
        self.operations.get(index as usize)
    }

    /// The same as [`Operations::at`], to change it.
    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> Option<&mut ServedOperation> {
        self.operations.get_mut(index as usize)
    }

    /// The operation whose latest request this is.
    #[inline]
    pub(super) fn of(&self, request: RequestKey) -> Option<&ServedOperation> {
        self.at(request.index).filter(|operation| operation.is_request(request))
    }

    /// The latest request of the operation at a position, if the caller has it.
    pub(super) fn key(&self, index: u32) -> Option<RequestKey> {
        let operation = self.at(index).filter(|operation| operation.has_request())?;
        Some(RequestKey { index, number: operation.number })
    }

    /// Gives a request of an operation its key, which no request had before.
    pub(super) fn start_request(&mut self, index: u32) -> RequestKey {
        self.number_next = self.number_next.wrapping_add(1);
        let number = self.number_next;
        if let Some(operation) = self.at_mut(index) {
            operation.number = number;
        }
        RequestKey { index, number }
    }

    /// Ends the execution of an operation, and the operation if the client demanded that.
    pub(super) fn finish(&mut self, index: u32) {
        match self.at_mut(index) {
            Some(operation) if !operation.is_ending => operation.state = OperationState::Idle,
            _ => {
                self.remove(index);
            }
        }
    }

    /// Removes an operation. Returns its request if the caller has one.
    pub(super) fn remove(&mut self, index: u32) -> Option<RequestKey> {
        let request = self.key(index);
        let operation = self.operations.try_remove(index as usize)?;
        self.request_bytes -= held_bytes(&operation.selection, &operation.options);
        self.by_ioid.remove(&operation.ioid);
        self.by_channel.remove(&(operation.sid, index));
        request
    }

    /// Removes all operations of a channel, and reports the requests that the caller has.
    pub(super) fn remove_channel(&mut self, sid: Sid, mut ended: impl FnMut(RequestKey)) {
        while let Some(&(_, index)) = self.by_channel.range((sid, 0)..=(sid, u32::MAX)).next() {
            self.by_channel.remove(&(sid, index));
            self.remove(index).into_iter().for_each(&mut ended);
        }
    }

    /// The request of an operation, if the caller has one. It is interrupted: the operation waits for its next execution.
    pub(super) fn interrupt(&mut self, index: u32) -> Option<RequestKey> {
        let OperationState::Executing(_) = self.at(index)?.state else { return None };
        let request = self.key(index);
        self.finish(index);
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(sid: u32, ioid: u32, state: OperationState) -> ServedOperation {
        ServedOperation::new(Sid(sid), Ioid(ioid), Method::Get, state, FieldSelection::default())
    }

    #[test]
    fn removing_a_channel_removes_its_operations_only_and_reports_its_requests() {
        let mut operations = Operations::default();
        let executing = OperationState::Executing(Subcommand::EXECUTE);
        for (sid, ioid, state) in
            [(1, 0, executing), (1, u32::MAX, OperationState::Idle), (2, 3, executing), (0, 4, executing)]
        {
            operations.insert(operation(sid, ioid, state));
        }

        let mut ended = Vec::new();
        operations.remove_channel(Sid(1), |request| ended.push(request.index));

        assert_eq!((ended, operations.len()), (vec![0], 2));
        assert!(operations.find(Ioid(u32::MAX)).is_none() && operations.find(Ioid(3)).is_some());
    }

    #[test]
    fn a_request_that_has_ended_is_not_taken_for_the_next_one_at_its_position() {
        let mut operations = Operations::default();
        let executing = OperationState::Executing(Subcommand::EXECUTE);
        let first = operations.insert(operation(1, 7, executing));
        assert!(operations.of(first).is_some());

        let second = operations.start_request(first.index);
        assert!(operations.of(first).is_none() && operations.of(second).is_some());

        operations.finish(second.index);
        assert!(operations.of(second).is_none());
        assert_eq!(operations.remove(second.index), None);
        let third = operations.insert(operation(1, 7, executing));
        assert_eq!(third.index, second.index);
        assert!(operations.of(second).is_none());
    }

    #[test]
    fn a_window_neither_overflows_nor_underflows() {
        assert_eq!(Window::Updates(u32::MAX).widened(5), Window::Updates(u32::MAX));
        assert_eq!(Window::Updates(0).used(), Window::Updates(0));
        assert!(!Window::Updates(1).used().is_open() && Window::Unlimited.used().is_open());
    }
}
