//! Requests of operations to a server.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use fodo_data::{Array, Kind, Scalar, Text, Value};
use fodo_engine::Ioid;
use fodo_engine::role::Reader;

use super::super::Error;
use super::super::batch::{Batch, BatchEnd, Failure, PieceEnd};
use super::super::channel::{ChannelCore, Elsewhere};
use super::super::operation::{AlreadyEnded, OperationCore, OperationOutcome, OperationTask, Waiter};
use super::{Circuit, CircuitPhase, Expected, InProgress, ServerChannel, State, Unsent};
use crate::limit;

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
        match operation.issued(self, ioid) {
            Ok(Some(buffer)) => state.machine.reuse(ioid, buffer),
            Ok(None) => {}
            Err(AlreadyEnded) => {
                state.operations.remove(ioid);
                return;
            }
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
    /// Adds the indices of issued operations to `issued`, and calls `elsewhere` for the others.
    pub(in crate::client) fn issue_more<'a>(
        self: &Arc<Self>,
        first: Ioid,
        operations: &mut impl Iterator<Item = usize>,
        operation_at: &impl Fn(usize) -> (&'a ChannelCore, &'a OperationTask),
        issued: &mut Vec<usize>,
        elsewhere: &mut impl FnMut(usize, Elsewhere),
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
                    elsewhere(index, other);
                    continue;
                }
            };
            let expected = task.expected(server_channel);
            if state.phase == CircuitPhase::Open && state.request(batch.next(), task, server_channel, expected).is_ok()
            {
                batch.issued(channel.cid(), expected);
                issued.push(index);
            } else {
                elsewhere(index, Elsewhere::Individually);
            }
        }
        if end != PieceEnd::More
            && let Some(thread) = batch.all_issued()
        {
            state.afterwards.woken.push(Waiter::Thread(thread));
        }
        state.batches.push(batch);
        self.flush(&mut state);
        if end != PieceEnd::More {
            self.request_retry(&mut state);
        }
        self.release(state);
        end
    }

    /// The results of a batch; later replies are ignored.
    pub(in crate::client) fn take_batch(
        &self,
        first: Ioid,
    ) -> impl Iterator<Item = Option<Result<OperationOutcome, Failure>>> + use<> {
        let mut state = self.state.lock();
        let at = state.batches.iter().position(|batch| batch.numbers().start == first.0);
        let batch = at.map(|at| state.batches.swap_remove(at));
        drop(state);
        Batch::ended(batch)
    }

    /// Writes without a reply on an active channel. Returns `None` if the channel is no longer on this circuit or the
    /// queue is full. Fails if the value cannot be written, and if the circuit closes meanwhile.
    ///
    /// The first put is sent at once. Puts that follow within [`limit::BURST`] are sent together: when they reach
    /// [`limit::BURST_BYTES`], with the next request that is sent for another reason, or by the reactor.
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
        if let Err(reason) = state.write(server_channel, value, None) {
            return Some(Err(Error::misuse(channel.name(), reason)));
        }
        // If the reactor is already scheduled, the time is not needed.
        if state.flush_is_timed || state.is_burst() {
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
            _ if state.is_burst() => self.flush_soon(state),
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
        if state.flush_is_requested || std::mem::replace(&mut state.flush_is_timed, true) {
            return;
        }
        self.registration.call_at(Instant::now() + limit::BURST);
    }

    /// A caller waits for an operation without driving the circuit, so the reactor must drive it.
    pub(in crate::client) fn attend(&self) {
        let mut state = self.state.lock();
        if matches!(state.role.reader(), Reader::Resting(_)) || !state.machine.ready().is_empty() {
            self.request_flush(&mut state);
        }
    }
}

impl State {
    /// Whether so much waits to be sent that operations wait for space.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.machine.pending_bytes() >= limit::REQUEST_BYTES
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
            Ok(()) if matches!(task, OperationTask::PutUnconfirmed(_)) => Ok(OperationOutcome::Written),
            Ok(()) => return,
            Err(reason) => Err(Error::misuse(operation.channel().name(), reason)),
        };
        self.operations.remove(ioid);
        self.afterwards.woken.push(operation.end(ended));
    }

    /// Whether a request without a waiting caller was sent just before; requests that follow closely are sent together.
    fn is_burst(&mut self) -> bool {
        let now = Instant::now();
        let is_burst = self.burst_since.is_some_and(|since| now < since + limit::BURST);
        if !is_burst {
            self.burst_since = Some(now);
        }
        is_burst
    }

    /// Queues a request; fails with the reason. `expected`: the expected reply to a get.
    #[inline(always)]
    fn request(
        &mut self,
        ioid: Ioid,
        task: &OperationTask,
        server_channel: ServerChannel,
        expected: Option<Expected>,
    ) -> Result<(), String> {
        match task {
            OperationTask::Connect => Ok(()),
            OperationTask::Get(request) => {
                if let Some(dbr) = server_channel.description(request) {
                    // Requested before the value: replies are in the order of the requests.
                    self.machine.read(server_channel.sid, dbr, 1, Ioid(ioid.0 | META_BIT));
                }
                if let Some(Expected { dbr, count_max, .. }) = expected {
                    self.machine.read(server_channel.sid, dbr, count_max, ioid);
                }
                Ok(())
            }
            OperationTask::Put(value) => self.write(server_channel, value, Some(ioid)),
            OperationTask::PutUnconfirmed(value) => self.write(server_channel, value, None),
        }
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

    /// Writes a value; with completion if `ioid` is given. Fails with the reason.
    fn write(&mut self, server_channel: ServerChannel, value: &Value, ioid: Option<Ioid>) -> Result<(), String> {
        let dbr = server_channel.put_type(value)?;
        let characters = match value {
            Value::Scalar(Scalar::Text(text)) if dbr.kind() == Some(Kind::U8) => Some(long_string(text)),
            _ => None,
        };
        let before = self.machine.pending_bytes();
        self.machine
            .write(server_channel.sid, dbr, characters.as_ref().unwrap_or(value), ioid)
            .map_err(|error| error.to_string())?;
        self.request_bytes_max = self.request_bytes_max.max(self.machine.pending_bytes() - before);
        Ok(())
    }
}

/// The bytes of a text as characters, with the terminating NUL of a long string.
fn long_string(text: &Text) -> Value {
    Value::Array(Array::U8(Arc::new(text.as_bytes().iter().copied().chain([0]).collect())))
}
