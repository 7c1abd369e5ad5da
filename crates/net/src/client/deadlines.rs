//! Deadlines of awaited operations: unlike a blocking call, a future has no timeout of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fodo_data::Now;
use fodo_lock::{Mutex, Rank};

use super::operation::OperationCore;
use crate::limit;
use crate::reactor::{EventHandler, NextCall, Reactor, Registration};

/// The deadlines of the awaited operations of one context.
pub(super) struct Deadlines {
    timeout: Duration,
    registration: Registration,
    state: Mutex<State>,
}

struct State {
    /// In the order of their deadlines, since all have the same timeout.
    awaited: VecDeque<(Instant, Weak<OperationCore>)>,
    /// The number of operations at which ended ones are removed.
    sweep_at: usize,
    /// When the reactor is scheduled to call, if it is.
    called_at: Option<Instant>,
}

impl std::fmt::Debug for Deadlines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deadlines").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Deadlines {
    pub(super) fn new(timeout: Duration, reactor: &Reactor) -> Arc<Deadlines> {
        let state = State { awaited: VecDeque::new(), sweep_at: limit::AWAITED_SWEEP, called_at: None };
        Arc::new_cyclic(|deadlines: &Weak<Deadlines>| {
            let registration = reactor.add(deadlines.clone());
            Deadlines { timeout, registration, state: Mutex::ranked(Rank::Deadlines, state) }
        })
    }

    /// Ends an operation after the timeout, unless it has ended by then.
    pub(super) fn add(&self, operation: &Arc<OperationCore>) {
        let Some(at) = Instant::now().checked_add(self.timeout) else { return };
        let mut state = self.state.lock();
        state.sweep();
        state.awaited.push_back((at, Arc::downgrade(operation)));
        // One call at the first deadline is enough; the later deadlines are handled from there.
        if state.called_at.is_none() {
            state.called_at = Some(at);
            self.registration.call_at(at);
        }
    }
}

impl State {
    /// Removes ended operations: at once if they ended in order, otherwise when the number of operations has doubled.
    fn sweep(&mut self) {
        let has_ended = |operation: &Weak<OperationCore>| operation.upgrade().is_none_or(|core| core.has_ended());
        while self.awaited.pop_front_if(|(_, operation)| has_ended(operation)).is_some() {}
        if self.awaited.len() >= self.sweep_at {
            self.awaited.retain(|(_, operation)| !has_ended(operation));
            self.sweep_at = (self.awaited.len() * 2).max(limit::AWAITED_SWEEP);
        }
    }
}

impl EventHandler for Deadlines {
    fn on_event(self: Arc<Self>, now: Now) -> NextCall {
        let mut due = Vec::new();
        let mut state = self.state.lock();
        while let Some((_, operation)) = state.awaited.pop_front_if(|(at, _)| *at <= now.monotonic) {
            due.extend(operation.upgrade());
        }
        state.sweep();
        state.called_at = state.awaited.front().map(|(at, _)| *at);
        let turn = state.called_at.map_or(NextCall::OnReady, NextCall::At);
        drop(state);
        due.iter().for_each(|operation| operation.expire(self.timeout));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Channel, Context};
    use super::*;
    use crate::clock;
    use crate::config::ClientConfig;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Deadlines that only the test drives, and a channel.
    fn deadlines() -> (Arc<Deadlines>, Channel) {
        let x = Context::new(ClientConfig::with_addresses(Vec::new())).channel("x").unwrap();
        (Deadlines::new(TIMEOUT, &Reactor::start("ends at once").unwrap()), x)
    }

    fn n_awaited(deadlines: &Deadlines) -> usize {
        deadlines.state.lock().awaited.len()
    }

    #[test]
    fn an_awaited_operation_ends_at_its_deadline_and_not_before() {
        let (deadlines, x) = deadlines();
        let operation = OperationCore::new(x.core().clone(), None);
        let before = clock::now();
        deadlines.add(&operation);
        let after = clock::now();

        let turn = deadlines.clone().on_event(after);
        let has_ended_early = operation.has_ended();
        let last_turn = deadlines.clone().on_event(after + TIMEOUT);

        let NextCall::At(at) = turn else { panic!("{turn:?}") };
        assert!((before.monotonic + TIMEOUT..=after.monotonic + TIMEOUT).contains(&at));
        assert_eq!((has_ended_early, operation.has_ended(), last_turn), (false, true, NextCall::OnReady));
        assert_eq!(n_awaited(&deadlines), 0);
    }

    #[test]
    fn operations_that_have_ended_are_removed_before_many_of_them_are_kept() {
        let (deadlines, x) = deadlines();
        let operation = || OperationCore::new(x.core().clone(), None);
        let waiting = operation();
        deadlines.add(&waiting);

        // Each of these is dropped, and so has ended, but the first one still waits.
        (1..limit::AWAITED_SWEEP).for_each(|_| deadlines.add(&operation()));
        let n_before = n_awaited(&deadlines);
        deadlines.add(&operation());
        let n_after = n_awaited(&deadlines);
        drop(waiting);
        deadlines.add(&operation());

        assert_eq!((n_before, n_after, n_awaited(&deadlines)), (limit::AWAITED_SWEEP, 2, 1));
    }
}
