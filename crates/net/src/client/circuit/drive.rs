//! Driving a circuit, by a blocking caller or by the reactor's turn; see the module comment of `circuit`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_data::Now;
use fodo_engine::role::{Reader, Taken};
use fodo_lock::MutexGuard;
use rustix::event::{PollFd, PollFlags};

use super::{Circuit, CircuitPhase, State};
use crate::reactor::{EventHandler, NextCall, Readiness};
use crate::{clock, limit, socket};

impl Circuit {
    /// Blocks until `is_done` or the deadline; reads the circuit if no other caller does.
    pub(in crate::client) fn drive(self: &Arc<Self>, deadline: Instant, is_done: &dyn Fn() -> bool) {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            if is_done() || now >= deadline || state.phase != CircuitPhase::Open {
                break;
            }
            match state.role.take() {
                Taken::Not => {
                    state = self.wait_for_the_reader(state, deadline - now);
                    continue;
                }
                Taken::FromReactor => self.registration.remove_socket(&self.stream),
                Taken::FromLoop => self.pause_loop(&state),
                Taken::FromNone => {}
            }
            state = self.read_until(state, deadline, is_done);
            state.role.rest(Instant::now());
        }
        self.leave(&mut state);
        self.release(state);
    }

    /// Parks until the reader has ended this caller's operation or passes the role on.
    fn wait_for_the_reader<'a>(&'a self, mut state: MutexGuard<'a, State>, timeout: Duration) -> MutexGuard<'a, State> {
        let me = std::thread::current();
        let id = me.id();
        state.role.block(id, me);
        self.flush(&mut state);
        self.request_retry(&mut state);
        self.release(state);
        std::thread::park_timeout(timeout);
        let mut state = self.state.lock();
        state.role.unblock(&id);
        state
    }

    /// Reads as the circuit's only reader until `is_done`, the deadline, or the end of the circuit.
    fn read_until<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        deadline: Instant,
        is_done: &dyn Fn() -> bool,
    ) -> MutexGuard<'a, State> {
        loop {
            self.flush(&mut state);
            if is_done() || state.phase != CircuitPhase::Open {
                return state;
            }
            let now = Instant::now();
            let until = state.machine.deadline().map_or(deadline, |due| due.min(deadline));
            let wants_to_write = state.awaits_socket();
            let has_received = state.has_received();
            self.release(state);
            let is_readable = has_received || self.poll(wants_to_write, until.saturating_duration_since(now));
            state = self.state.lock();
            if is_readable {
                self.receive(&mut state, limit::RECEIVE_BYTES, false);
            }
            let now = Instant::now();
            self.tick_if_due(&mut state, now);
            if now >= deadline {
                return state;
            }
        }
    }

    /// Has the reactor send what the socket does not accept now, in case no reader here does.
    pub(super) fn request_retry(&self, state: &mut State) {
        if state.phase == CircuitPhase::Open && state.awaits_socket() {
            self.request_flush(state);
        }
    }

    /// Waits for the socket; returns true if there may be something to read.
    fn poll(&self, wants_to_write: bool, timeout: Duration) -> bool {
        let mut flags = PollFlags::IN;
        if wants_to_write {
            flags |= PollFlags::OUT;
        }
        let mut descriptors = [PollFd::new(&self.stream, flags)];
        if !self.spin.is_zero() {
            let start = Instant::now();
            while start.elapsed() < self.spin.min(timeout) {
                if let Ok(1..) = socket::wait(&mut descriptors, Duration::ZERO) {
                    return descriptors[0].revents() != PollFlags::OUT;
                }
            }
        }
        match socket::wait(&mut descriptors, timeout) {
            Ok(n_ready) => n_ready > 0 && descriptors[0].revents() != PollFlags::OUT,
            Err(_) => false,
        }
    }

    /// The last step of every blocking call: passes the role on, or lets the circuit rest.
    fn leave(self: &Arc<Self>, state: &mut State) {
        if let Some(successor) = state.role.successor() {
            successor.unpark();
        }
        self.request_retry(state);
        if state.phase != CircuitPhase::Open {
            return;
        }
        if state.role.lease().is_some() {
            self.resume_loop(state);
        }
        if state.lease_is_timed {
            return;
        }
        if state.has_received() {
            // The reactor reads at once: the socket does not report bytes that were taken from it.
            return self.request_flush(state);
        }
        if let Reader::Resting(since) = state.role.reader() {
            state.lease_is_timed = true;
            self.registration.call_at(since + limit::READER_LEASE);
        }
    }

    /// Registers the socket with the reactor, which is notified at once of data that is already there.
    pub(super) fn attach(&self, state: &mut State) {
        match self.registration.add_socket(&self.stream, Readiness::ReadableOrWritable) {
            Ok(()) => state.role.attached(),
            Err(_) => self.close(state, None),
        }
    }
}

impl State {
    /// Whether bytes wait to be decoded that are no longer in the socket; only with TLS.
    #[inline]
    pub(super) fn has_received(&mut self) -> bool {
        self.tls.as_mut().is_some_and(|tls| tls.has_received())
    }
}

impl EventHandler for Circuit {
    fn on_event(self: Arc<Self>, now: Now) -> NextCall {
        let mut state = self.state.lock();
        if let CircuitPhase::Opening(until) = state.phase {
            self.opened(&mut state, until, now);
        }
        if let CircuitPhase::Securing(until) = state.phase {
            self.secure(&mut state, until, now);
        }
        let turn = match state.phase {
            CircuitPhase::Opening(until) | CircuitPhase::Securing(until) => NextCall::At(until),
            CircuitPhase::Closed => NextCall::OnReady,
            CircuitPhase::Open => {
                let turn = self.serve_open(&mut state, now);
                state.flush_delay.deadline().map_or(turn, |until| turn.or_at(until))
            }
        };
        let turn = state.spare_arrays.release_unused(now.monotonic).map_or(turn, |until| turn.or_at(until));
        self.release(state);
        turn
    }
}

impl Circuit {
    fn serve_open(self: &Arc<Self>, state: &mut State, now: Now) -> NextCall {
        let is_requested = std::mem::take(&mut state.flush_is_requested);
        state.flush_is_timed = false;
        self.flush(state);
        match state.role.reader() {
            Reader::Caller => {
                state.lease_is_timed = false;
                return self.assist_caller(state, now);
            }
            Reader::Loop => {
                if let Some(until) = self.assist_loop(state, now) {
                    return NextCall::At(until);
                }
            }
            Reader::Resting(since) if !is_requested && now.monotonic < since + limit::READER_LEASE => {
                state.lease_is_timed = true;
                return NextCall::At(since + limit::READER_LEASE);
            }
            Reader::Resting(_) => {
                state.lease_is_timed = false;
                self.attach(state);
            }
            Reader::Reactor => {}
        }
        let is_more = self.receive(state, limit::TURN_BYTES, true);
        self.tick_if_due(state, now.monotonic);
        self.flush(state);
        match (is_more, state.machine.deadline()) {
            (true, _) => NextCall::Soon,
            (false, Some(due)) => NextCall::At(due),
            (false, None) => NextCall::OnReady,
        }
    }

    /// Does what the caller that reads cannot do while it waits for the socket: it does not know of deadlines and bytes
    /// that other threads have added since. Sending is tried again, ever less often while nothing changes.
    fn assist_caller(self: &Arc<Self>, state: &mut State, now: Now) -> NextCall {
        self.tick_if_due(state, now.monotonic);
        self.flush(state);
        let pending_bytes = state.machine.pending_bytes();
        let (bytes_before, pause) = state.retried;
        let is_stuck = pending_bytes == bytes_before;
        let pause = if is_stuck { (pause * 2).min(limit::RETRY_PAUSE_MAX) } else { limit::READER_LEASE };
        state.retried = (pending_bytes, pause);
        let retry = state.awaits_socket().then(|| now.monotonic + pause);
        [retry, state.machine.deadline()].into_iter().flatten().min().map_or(NextCall::OnReady, NextCall::At)
    }

    pub(super) fn tick_if_due(self: &Arc<Self>, state: &mut State, now: Instant) {
        if state.machine.deadline().is_some_and(|due| due <= now) {
            self.tick(state, clock::now());
        }
    }
}
