//! What operations ask of a server.

use std::sync::Arc;
use std::time::Instant;

use fodo_ca::Ioid;
use fodo_data::Value;

use super::super::Error;
use super::super::batch::{Member, Part};
use super::super::channel::ChannelCore;
use super::super::operation::{OperationCore, Outcome, Task};
use super::{Asker, Circuit, InProgress, Phase, Place, State};
use crate::limit;
use crate::sync::lock;

impl Circuit {
    /// Issues an operation on an active channel. `is_driven`: the caller will drive the circuit
    /// itself at once, so the reactor need not be told. False when the circuit is closed.
    pub(in crate::client) fn issue(
        self: &Arc<Self>,
        operation: &Arc<OperationCore>,
        task: &Task,
        place: Place,
        is_driven: bool,
    ) -> bool {
        let mut state = lock(&self.state);
        if state.phase == Phase::Closed || operation.channel().place_on(self) != Some(place) {
            return false;
        }
        self.issue_locked(&mut state, operation, task, place);
        if !is_driven {
            self.tell_flush(&mut state);
        }
        self.release(state);
        true
    }

    pub(super) fn issue_locked(
        self: &Arc<Self>,
        state: &mut State,
        operation: &Arc<OperationCore>,
        task: &Task,
        place: Place,
    ) {
        let ioid = state.next_ioid();
        if !operation.issued(self, ioid) {
            return;
        }
        if let Some(room) = operation.take_room() {
            state.machine.reuse(ioid, room);
        }
        state.ask(Asker::Alone(operation.clone()), ioid, task, place);
    }

    /// Issues the operations of a batch whose channels are active here; gives the places in the batch of the others.
    pub(in crate::client) fn ask_all(self: &Arc<Self>, part: &Arc<Part>) -> Vec<usize> {
        let mut elsewhere = Vec::new();
        let mut state = lock(&self.state);
        for (number, Member { index, channel, task }) in part.members().iter().enumerate() {
            // Refusals are the affair of operations that stand alone, as is waiting for a server.
            let place = channel.place_for(task, self).filter(|_| state.phase == Phase::Open);
            let Some(place) = place else {
                elsewhere.push(*index);
                continue;
            };
            let ioid = state.next_ioid();
            part.issued(number, ioid);
            state.ask(Asker::Member(part.clone(), number), ioid, task, place);
            if state.machine.pending_bytes() >= limit::BURST_BYTES {
                self.flush(&mut state);
            }
        }
        self.flush(&mut state);
        self.tell_unsent(&mut state);
        self.release(state);
        elsewhere
    }

    /// Writes without an answer on an active channel; `None` when it is not here any more, else why it cannot be written.
    ///
    /// A first put goes out at once. Those that follow within [`limit::BURST`] go out together: when there are
    /// [`limit::BURST_BYTES`] of them, with what is sent next for another reason, or by the reactor. Whoever writes
    /// faster than the server reads waits here, not in memory.
    pub(in crate::client) fn write(
        self: &Arc<Self>,
        channel: &ChannelCore,
        place: Place,
        value: &Value,
        deadline: Instant,
    ) -> Option<Result<(), String>> {
        let mut state = lock(&self.state);
        if state.phase != Phase::Open || channel.place_on(self) != Some(place) {
            return None;
        }
        if let Err(reason) = state.write(place, value, None) {
            return Some(Err(reason));
        }
        let now = Instant::now();
        let is_burst = state.burst_since.is_some_and(|since| now < since + limit::BURST);
        if is_burst && state.machine.pending_bytes() < limit::BURST_BYTES {
            self.time_flush(&mut state, now + limit::BURST);
            return Some(Ok(()));
        }
        state.burst_since = Some(now);
        loop {
            self.flush(&mut state);
            let is_over = state.phase != Phase::Open || Instant::now() >= deadline;
            if is_over || state.machine.pending_bytes() < limit::REQUEST_BYTES {
                self.tell_unsent(&mut state);
                self.release(state);
                return Some(Ok(()));
            }
            self.release(state);
            self.wait_writable(deadline.saturating_duration_since(Instant::now()));
            state = lock(&self.state);
        }
    }

    /// Has the reactor send at that moment what nobody has sent before.
    fn time_flush(&self, state: &mut State, at: Instant) {
        if state.flush_is_told || std::mem::replace(&mut state.flush_is_timed, true) {
            return;
        }
        if let Some(token) = state.token {
            self.reactor.call_at(token, at);
        }
    }
}

impl State {
    /// Queues the request of an operation, which ends here if it cannot be asked.
    fn ask(&mut self, asker: Asker, ioid: Ioid, task: &Task, place: Place) {
        let asked = match task {
            Task::Connect => return,
            Task::Get(request) => {
                if let Some(dbr) = place.description(request) {
                    // The answers come in the order of the requests.
                    let description = self.next_ioid();
                    self.descriptions.insert(description, ioid);
                    self.machine.read(place.sid, dbr, 1, description);
                }
                let (dbr, count) = place.asked(request);
                self.machine.read(place.sid, dbr, count, ioid);
                Ok(())
            }
            Task::Put(value) => self.write(place, value, Some(ioid)),
            Task::PutUnconfirmed(value) => self.write(place, value, None),
        };
        let ended = match asked {
            Ok(()) if matches!(task, Task::PutUnconfirmed(_)) => Ok(Outcome::Written),
            Ok(()) => {
                let (is_get, is_array) = (matches!(task, Task::Get(_)), place.is_array());
                self.operations.insert(ioid, InProgress { asker, is_get, is_array, meta: None });
                return;
            }
            Err(reason) => Err(Error::Misuse { pv: asker.channel().name().to_owned(), reason }),
        };
        self.afterwards.woken.push(asker.end(ended));
    }

    /// Writes, with completion when there is a number for it; fails with the reason.
    fn write(&mut self, place: Place, value: &Value, ioid: Option<Ioid>) -> Result<(), String> {
        let dbr = place.put_type(value)?;
        self.machine.write(place.sid, dbr, value, ioid).map_err(|error| error.to_string())
    }

    /// A number that no operation in progress has.
    fn next_ioid(&mut self) -> Ioid {
        loop {
            let ioid = Ioid(self.ioid_next);
            self.ioid_next = self.ioid_next.wrapping_add(1);
            if !self.operations.contains_key(&ioid) && !self.descriptions.contains_key(&ioid) {
                return ioid;
            }
        }
    }
}
