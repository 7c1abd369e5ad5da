//! Requests of operations to a server.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use fodo_data::{Array, Kind, Scalar, Text, Value};
use fodo_engine::Ioid;
use fodo_engine::role::Reader;

use super::super::Error;
use super::super::batch::{Batch, BatchEnd, Failure, PieceEnd};
use super::super::channel::{ChannelCore, ONLY_PVA, OtherRoute, REQUEST_WITH_PVA};
use super::super::operation::{AlreadyEnded, OperationCore, OperationOutcome, OperationTask};
use super::{Circuit, CircuitPhase, ClientMachine, Expected, InProgress, ServerChannel, State, Unsent};
use crate::{Protocol, limit};

/// The numbers of batched operations. Those of individual operations are smaller, so the two sets never overlap.
pub(super) const BATCH_NUMBERS: Range<u32> = 1 << SINGLE_NUMBER_BITS..META_BIT;

/// Number of bits in the numbers of individual operations.
pub(super) const SINGLE_NUMBER_BITS: u32 = 30;

/// Set in the number of a request for units, limits and labels; the other bits are the number of its operation. So
/// nothing is stored for the request, and nothing remains when its reply is not received.
pub(super) const META_BIT: u32 = 1 << 31;

impl Circuit {
    /// Issues an operation on an active channel. Returns false if the circuit is closed.
    ///
    /// `is_driven`: the caller drives the circuit itself at once. Otherwise the request is sent together with those
    /// that follow it, as in [`Circuit::write`], or when a caller waits for one of them.
    pub(in crate::client) fn issue(
        self: &Arc<Self>,
        operation: &Arc<OperationCore>,
        task: &OperationTask,
        server_channel: ServerChannel,
        is_driven: bool,
    ) -> bool {
        let mut state = self.state.lock();
        if state.phase == CircuitPhase::Closed || operation.channel().server_channel_on(self) != Some(server_channel) {
            return false;
        }
        self.issue_locked(&mut state, operation, task, server_channel);
        if !is_driven && state.machine.pending_bytes() >= limit::FLIGHT_BYTES {
            self.flush(&mut state);
            self.request_retry(&mut state);
        } else if !is_driven {
            self.flush_soon(&mut state);
        }
        self.release(state);
        true
    }

    /// Issues the calls of a channel that the server has confirmed and not described yet.
    pub(in crate::client) fn issue_waiting_calls(self: &Arc<Self>, channel: &ChannelCore) {
        let mut state = self.state.lock();
        if let ClientMachine::Pva(machine) = &state.machine
            && state.phase == CircuitPhase::Open
            && let Some(sid) = machine.sid(channel.cid())
        {
            self.issue_calls(&mut state, channel.cid(), sid);
            self.flush_with_others(&mut state);
        }
        self.release(state);
    }

    pub(super) fn issue_locked(
        self: &Arc<Self>,
        state: &mut State,
        operation: &Arc<OperationCore>,
        task: &OperationTask,
        server_channel: ServerChannel,
    ) {
        let (expected, is_full) = (task.expected(server_channel), state.is_full());
        let ioid = state.operations.insert(match is_full {
            false => InProgress::Issued { operation: operation.clone(), expected, meta: None },
            true => InProgress::Unsent(operation.clone(), state.unsent_next),
        });
        if let Err(AlreadyEnded) = operation.issued(self, ioid) {
            state.operations.remove(ioid);
            return;
        }
        if is_full {
            state.unsent.insert(state.unsent_next, Unsent { ioid, task: task.clone(), server_channel });
            state.unsent_next += 1;
            return;
        }
        state.request_operation(ioid, operation, task, server_channel, expected);
    }

    /// Allocates a batch of at most `n` operations; returns the number of the first.
    pub(in crate::client) fn open_batch(&self, n: usize, end: &Arc<BatchEnd>) -> Ioid {
        let mut state = self.state.lock();
        let numbers = state.next_batch_numbers(n);
        let first = Ioid(numbers.start);
        state.batches.push(Batch::new(numbers, end));
        first
    }

    /// Issues some of the `operations`, given by their indices, and sends them, so that the server can work meanwhile.
    /// Adds the indices of issued operations to `issued`, and calls `reroute` for the others.
    pub(in crate::client) fn issue_more<'a>(
        self: &Arc<Self>,
        first: Ioid,
        operations: &mut impl Iterator<Item = usize>,
        operation_at: &impl Fn(usize) -> (&'a ChannelCore, &'a OperationTask),
        issued: &mut Vec<usize>,
        reroute: &mut impl FnMut(usize, OtherRoute),
    ) -> PieceEnd {
        let mut state = self.state.lock();
        let at = state.batches.iter().position(|batch| batch.numbers().start == first.0);
        let Some(mut batch) = at.map(|at| state.batches.swap_remove(at)) else { return PieceEnd::AllIssued };
        // The previous piece has left as much in the queue as the socket did not accept.
        let mut end = if state.is_full() { PieceEnd::QueueIsFull } else { PieceEnd::More };
        let mut n_left = limit::BATCH_PIECE;
        while n_left > 0 && !state.is_full() {
            let Some(index) = operations.next() else {
                end = PieceEnd::AllIssued;
                break;
            };
            n_left -= 1;
            let (channel, task) = operation_at(index);
            let server_channel = match channel.server_channel_for(task, self) {
                Ok(server_channel) => server_channel,
                Err(other) => {
                    reroute(index, other);
                    continue;
                }
            };
            let expected = task.expected(server_channel);
            if state.phase == CircuitPhase::Open && state.request(batch.next(), task, server_channel, expected).is_ok()
            {
                batch.issued(channel.cid(), expected);
                issued.push(index);
            } else {
                reroute(index, OtherRoute::Individually);
            }
        }
        if end != PieceEnd::More
            && let Some(waiter) = batch.all_issued()
        {
            state.afterwards.woken.push(waiter);
        }
        state.batches.push(batch);
        self.flush(&mut state);
        if end != PieceEnd::More {
            self.request_retry(&mut state);
        }
        self.release(state);
        end
    }

    /// A batch with its results; later replies are ignored.
    pub(in crate::client) fn take_batch(&self, first: Ioid) -> Option<Batch> {
        let mut state = self.state.lock();
        let at = state.batches.iter().position(|batch| batch.numbers().start == first.0)?;
        Some(state.batches.swap_remove(at))
    }

    /// Writes without a reply on an active channel. Returns `None` if the channel is no longer on this circuit or the
    /// queue is full. Fails if the value cannot be written, and if the circuit closes meanwhile.
    ///
    /// A put is sent at once unless it follows another one within [`limit::BURST_GAP`]. Such puts are sent together: when
    /// they reach [`limit::BURST_BYTES`], with the next request that is sent for another reason, or by the reactor.
    pub(in crate::client) fn write(
        self: &Arc<Self>,
        channel: &ChannelCore,
        server_channel: ServerChannel,
        value: &Value,
    ) -> Option<Result<(), Error>> {
        let mut state = self.state.lock();
        let is_open = state.phase == CircuitPhase::Open && !state.is_full();
        if !is_open || channel.server_channel_on(self) != Some(server_channel) {
            return None;
        }
        if let Err(failure) = state.write(server_channel, value, None) {
            return Some(Err(failure.error(channel, self.server)));
        }
        // If the reactor is already scheduled, the time is not needed.
        if state.flush_is_timed || state.is_burst(Instant::now()) {
            self.flush_soon(&mut state);
        } else {
            self.flush(&mut state);
            self.request_retry(&mut state);
        }
        let is_open = state.phase == CircuitPhase::Open;
        self.release(state);
        Some(if is_open { Ok(()) } else { Err(channel.cut_off(self.server)) })
    }

    /// Sends the queued requests at once and has the replies read. In a burst, sends them with those that follow.
    pub(super) fn flush_with_others(&self, state: &mut State) {
        match state.role.reader() {
            Reader::Resting(_) => self.request_flush(state),
            _ if state.is_burst(Instant::now()) => self.flush_soon(state),
            _ => {
                self.flush(state);
                self.request_retry(state);
            }
        }
    }

    /// Has the reactor send the queued bytes in a moment, unless they are sent before; sends at once if there are many.
    pub(super) fn flush_soon(&self, state: &mut State) {
        if state.machine.pending_bytes() >= limit::BURST_BYTES {
            self.flush(state);
            return self.request_retry(state);
        }
        // The event loop of this thread sends them when it waits for replies; otherwise the reactor when the lease ends.
        if state.flush_is_requested || state.flush_is_timed || state.is_read_here() {
            return;
        }
        if !state.flush_delay.is_zero() {
            return self.flush(state);
        }
        state.flush_is_timed = true;
        self.registration.call_at(Instant::now() + limit::BURST);
    }

    /// A caller waits for an operation without driving the circuit, so the reactor must drive it.
    pub(in crate::client) fn attend(&self) {
        let mut state = self.state.lock();
        if matches!(state.role.reader(), Reader::Resting(_)) || state.awaits_socket() {
            self.request_flush(&mut state);
        }
    }
}

impl State {
    /// Whether bytes wait to be sent, and not for more bytes.
    #[inline]
    pub(super) fn awaits_socket(&self) -> bool {
        self.machine.has_pending_bytes() && self.flush_delay.deadline().is_none()
    }

    /// Whether so much waits to be sent that operations wait for space.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.machine.queued_bytes() >= limit::REQUEST_BYTES
    }

    /// Queues operations that wait for space, in their order, until the queue is full. Returns whether there were any.
    #[inline]
    pub(super) fn request_unsent(&mut self) -> bool {
        !self.unsent.is_empty() && self.request_some()
    }

    /// Apart, because a queue is rarely full: the code for the usual case stays small.
    #[cold]
    #[inline(never)]
    fn request_some(&mut self) -> bool {
        let mut is_any = false;
        while !self.is_full()
            && let Some((_, Unsent { ioid, task, server_channel })) = self.unsent.pop_first()
        {
            let Some(in_progress) = self.operations.get_mut(ioid) else { continue };
            let (operation, expected) = (in_progress.operation().clone(), task.expected(server_channel));
            if operation.has_ended() {
                // Its caller has given up and is about to remove it.
                continue;
            }
            *in_progress = InProgress::Issued { operation: operation.clone(), expected, meta: None };
            self.request_operation(ioid, &operation, &task, server_channel, expected);
            is_any = true;
        }
        is_any
    }

    /// Queues the request of an operation. That ends a put without a reply, and any operation with an invalid value.
    #[inline]
    fn request_operation(
        &mut self,
        ioid: Ioid,
        operation: &OperationCore,
        task: &OperationTask,
        server_channel: ServerChannel,
        expected: Option<Expected>,
    ) {
        let ended = match self.request(ioid, task, server_channel, expected) {
            Ok(()) if task.has_no_reply() => Ok(OperationOutcome::Written),
            Ok(()) => return,
            Err(failure) => Err(failure.error(operation.channel(), self.server)),
        };
        self.operations.remove(ioid);
        self.afterwards.woken.push(operation.end(ended));
    }

    /// Whether a request without a waiting caller follows another one closely; such requests are sent together.
    pub(super) fn is_burst(&mut self, now: Instant) -> bool {
        self.last_unawaited.replace(now).is_some_and(|last| now < last + limit::BURST_GAP)
    }

    /// Queues a request. `expected`: the expected reply of a server of Channel Access to a get.
    #[inline(always)]
    fn request(
        &mut self,
        ioid: Ioid,
        task: &OperationTask,
        server_channel: ServerChannel,
        expected: Option<Expected>,
    ) -> Result<(), Failure> {
        let machine = match &mut self.machine {
            ClientMachine::Ca(machine) => machine,
            ClientMachine::Pva(_) => return self.request_pva(ioid, task, server_channel),
        };
        match task {
            OperationTask::Connect => Ok(()),
            OperationTask::Get(request) => {
                if let Some(dbr) = server_channel.description(request) {
                    // Requested before the value: replies are in the order of the requests.
                    machine.read(server_channel.sid, dbr, 1, Ioid(ioid.0 | META_BIT));
                }
                if let Some(Expected { dbr, count_max, .. }) = expected {
                    machine.read(server_channel.sid, dbr, count_max, ioid);
                }
                Ok(())
            }
            OperationTask::Put(value) => self.write(server_channel, value, Some(ioid)),
            OperationTask::PutUnconfirmed(value) => self.write(server_channel, value, None),
            OperationTask::CheckedPut(put) => {
                let value = put.accepted(server_channel, Protocol::Ca)?;
                self.write(server_channel, &value, put.is_confirmed.then_some(ioid))
            }
            OperationTask::Structured(_) => Err(Failure::misuse(ONLY_PVA, REQUEST_WITH_PVA)),
        }
    }

    #[inline(never)]
    fn request_pva(&mut self, ioid: Ioid, task: &OperationTask, server_channel: ServerChannel) -> Result<(), Failure> {
        let ClientMachine::Pva(machine) = &mut self.machine else { return Err(Failure::Disconnected) };
        self.request_bytes_max = self.request_bytes_max.max(task.sent_bytes());
        machine.request(ioid, task, server_channel)
    }

    /// Returns numbers that no batch in progress uses.
    pub(super) fn next_batch_numbers(&mut self, n: usize) -> Range<u32> {
        let n = u32::try_from(n).unwrap_or(u32::MAX).min(BATCH_NUMBERS.end - BATCH_NUMBERS.start);
        loop {
            let start = match BATCH_NUMBERS.end - self.batch_number_next >= n {
                true => self.batch_number_next,
                false => BATCH_NUMBERS.start,
            };
            self.batch_number_next = start + n;
            let taken =
                self.batches.iter().map(Batch::numbers).find(|taken| taken.start < start + n && start < taken.end);
            match taken {
                None => return start..start + n,
                Some(taken) => self.batch_number_next = taken.end,
            }
        }
    }

    /// Writes a value; with completion if `ioid` is given.
    fn write(&mut self, server_channel: ServerChannel, value: &Value, ioid: Option<Ioid>) -> Result<(), Failure> {
        let machine = match &mut self.machine {
            ClientMachine::Ca(machine) => machine,
            ClientMachine::Pva(machine) => {
                self.request_bytes_max = self.request_bytes_max.max(value.n_bytes());
                return machine.put_unconfirmed(server_channel.sid, value);
            }
        };
        let dbr = server_channel.put_type(value)?;
        let characters = match value {
            Value::Scalar(Scalar::Text(text)) if dbr.kind() == Some(Kind::U8) => Some(long_string(text)),
            _ => None,
        };
        let before = machine.pending_bytes();
        machine
            .write(server_channel.sid, dbr, characters.as_ref().unwrap_or(value), ioid)
            .map_err(Failure::unsendable)?;
        self.request_bytes_max = self.request_bytes_max.max(machine.pending_bytes() - before);
        Ok(())
    }
}

/// The bytes of a text as characters, with the terminating NUL of a long string.
fn long_string(text: &Text) -> Value {
    Value::Array(Array::U8(Arc::new(text.as_bytes().iter().copied().chain([0]).collect())))
}
