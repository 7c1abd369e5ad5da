//! Reading a circuit in an event loop of the program; see the module comment of `circuit`.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

use fodo_data::Now;
use fodo_engine::role::{Reader, Taken};

use super::super::loop_reader::{LoopHolder, LoopReader, LoopShared};
use super::{Circuit, CircuitPhase, State};
use crate::limit;

impl Circuit {
    /// An event loop waits for an operation: sends the requests, and gives the loop the reading for a while, unless a caller
    /// or another loop reads.
    pub(in crate::client) fn attend_in(self: &Arc<Self>, reader: &LoopReader) {
        let mut state = self.state.lock();
        self.flush(&mut state);
        if state.phase == CircuitPhase::Open && !state.awaits_socket() {
            let until = Instant::now() + limit::LOOP_LEASE;
            match state.role.lend(&reader.holder(), until) {
                Taken::FromReactor => {
                    self.registration.remove_socket(&self.stream);
                    self.enter_loop(&mut state);
                }
                Taken::FromLoop | Taken::FromNone => self.enter_loop(&mut state),
                Taken::Not => {}
            }
        }
        self.request_retry(&mut state);
        self.release(state);
    }

    /// The event loop reads again after a caller, if its lease has not ended.
    #[cold]
    pub(super) fn resume_loop(self: &Arc<Self>, state: &mut State) {
        if state.role.resume_loop(Instant::now()) {
            self.enter_loop(state);
        }
    }

    /// The event loop has become the reader. Its lease is timed by the reactor.
    fn enter_loop(self: &Arc<Self>, state: &mut State) {
        let Some((holder, until)) = state.role.lease() else { return };
        if holder.add(self, self.stream.as_raw_fd()).is_err() {
            state.role.end_lease(Instant::now());
            // The reactor reads.
            return self.request_flush(state);
        }
        if !std::mem::replace(&mut state.lease_is_timed, true) {
            self.registration.call_at(until);
        }
    }

    /// A caller reads instead of the event loop.
    #[cold]
    pub(super) fn pause_loop(&self, state: &State) {
        if let Some((holder, _)) = state.role.lease() {
            holder.remove(self, self.stream.as_raw_fd());
        }
    }

    /// Ends the lease of an event loop, if there is one.
    pub(super) fn leave_loop(&self, state: &mut State, now: Instant) {
        if let Some(holder) = state.role.end_lease(now) {
            holder.remove(self, self.stream.as_raw_fd());
        }
    }

    /// The turn of the reactor while an event loop reads. Returns when the next one must be, or `None` if the reactor reads
    /// from now on: the lease has ended, or the socket accepts no more bytes, which the loop does not watch.
    pub(super) fn assist_loop(self: &Arc<Self>, state: &mut State, now: Now) -> Option<Instant> {
        self.tick_if_due(state, now.monotonic);
        self.flush(state);
        if state.phase != CircuitPhase::Open {
            return Some(now.monotonic);
        }
        let until = state.role.lease().map(|(_, until)| until);
        match until {
            Some(until) if now.monotonic < until && !state.awaits_socket() => {
                state.lease_is_timed = true;
                Some(state.machine.deadline().map_or(until, |due| due.min(until)))
            }
            _ => {
                state.lease_is_timed = false;
                self.leave_loop(state, now.monotonic);
                self.attach(state);
                None
            }
        }
    }

    /// Reads in the event loop, if that is still the reader. Returns whether there may be more than one turn allows.
    /// `is_closing`: the server has closed its side.
    pub(in crate::client) fn serve_in_loop(self: &Arc<Self>, reader: &Arc<LoopShared>, is_closing: bool) -> bool {
        let mut state = self.state.lock();
        let is_reader = state.role.use_lease(|holder| holder.is(reader));
        let is_more = is_reader && self.receive(&mut state, limit::RECEIVE_BYTES, is_closing);
        if is_reader {
            self.flush(&mut state);
            self.request_retry(&mut state);
        }
        self.release(state);
        is_more
    }
}

impl State {
    /// Whether the event loop of this thread reads.
    pub(super) fn is_read_here(&self) -> bool {
        let is_here = |(holder, _): (&LoopHolder, Instant)| holder.thread == std::thread::current().id();
        self.role.reader() == Reader::Loop && self.role.lease().is_some_and(is_here)
    }
}
