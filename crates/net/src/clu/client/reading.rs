//! Reading the socket: by a blocking caller, or by the reactor.
//!
//! If no other caller reads, a blocking caller becomes the reader until its own request has ended. It ends the requests of
//! others whose replies it reads. When it leaves, the next blocked caller takes over. Without one, no thread reads for a
//! moment ([`limit::CLU_READER_LEASE`]), because another request often follows; then the reactor does. If a future awaits a
//! reply, the reactor reads at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_clu::client::{RequestId, RequestOutcome};
use fodo_data::Now;
use fodo_engine::role::{Reader, Taken};
use fodo_lock::MutexGuard;

use super::core::{ConnectionCore, ConnectionState};
use super::operation::OperationWaiter;
use crate::reactor::{EventHandler, NextCall, Readiness};
use crate::{clock, limit};

impl ConnectionCore {
    /// Blocks until the request has ended; reads the socket if no other caller does.
    pub(super) fn wait(&self, request: RequestId) -> RequestOutcome {
        let mut state = self.state.lock();
        // With many requests in flight, most have ended when they are waited for.
        if let Some(outcome) = state.take_outcome(request) {
            return outcome;
        }
        while !state.has_ended(request) {
            state = match state.role.take() {
                Taken::Not => self.wait_for_the_reader(state, request, None),
                taken => {
                    self.take_from_reactor(taken);
                    self.read_until_ended(state, request)
                }
            };
        }
        let outcome = state.take_outcome(request).unwrap_or(RequestOutcome::Cancelled);
        self.leave(&mut state);
        self.release(state);
        outcome
    }

    /// Blocks until the request has ended or until this time; reads the socket if no other caller does. Returns whether the
    /// request has ended.
    pub(super) fn wait_until(&self, request: RequestId, until: Instant) -> bool {
        let mut state = self.state.lock();
        if state.has_ended(request) {
            return true;
        }
        loop {
            state = match state.role.take() {
                Taken::Not => self.wait_for_the_reader(state, request, Some(until)),
                taken => {
                    self.take_from_reactor(taken);
                    self.read_until(state, request, until)
                }
            };
            if state.has_ended(request) || Instant::now() >= until {
                break;
            }
        }
        let has_ended = state.has_ended(request);
        self.leave(&mut state);
        self.release(state);
        has_ended
    }

    fn take_from_reactor(&self, taken: Taken) {
        if taken == Taken::FromReactor {
            self.registration.remove_socket(&self.socket);
        }
    }

    /// Parks until the reader has ended this request or passes the role on, at most until this time.
    fn wait_for_the_reader<'a>(
        &'a self,
        mut state: MutexGuard<'a, ConnectionState>,
        request: RequestId,
        until: Option<Instant>,
    ) -> MutexGuard<'a, ConnectionState> {
        let me = std::thread::current();
        let id = me.id();
        let earlier = state.await_outcome(request, OperationWaiter::Thread(me.clone()));
        state.role.block(id, me);
        self.release(state);
        drop(earlier);
        match until {
            Some(until) => std::thread::park_timeout(until.saturating_duration_since(Instant::now())),
            None => std::thread::park(),
        }
        let mut state = self.state.lock();
        state.role.unblock(&id);
        state
    }

    /// Reads as the only reader until the request has ended.
    fn read_until_ended<'a>(
        &'a self,
        mut state: MutexGuard<'a, ConnectionState>,
        request: RequestId,
    ) -> MutexGuard<'a, ConnectionState> {
        let mut buffer = std::mem::take(&mut state.received);
        while !state.has_ended(request) {
            self.limit_blocking(&mut state);
            self.release(state);
            let received = self.socket.receive_blocking(&mut buffer);
            state = self.state.lock();
            let now = clock::now();
            if let Some((n_bytes, from)) = received {
                state.received(from, &buffer[..n_bytes], now);
                self.send_and_deliver(&mut state);
                // The replies that others wait for have often been received together with this one.
                if state.n_waiting > 0 {
                    self.receive_available(&mut state, &mut buffer, now);
                }
            }
            state.client_do(|client, out| client.tick(now, out));
            self.settle(&mut state);
        }
        state.received = buffer;
        state.role.rest(Instant::now());
        state
    }

    /// Reads as the only reader until the request has ended or until this time, but at least what has been received.
    fn read_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, ConnectionState>,
        request: RequestId,
        until: Instant,
    ) -> MutexGuard<'a, ConnectionState> {
        let mut buffer = std::mem::take(&mut state.received);
        loop {
            let now = clock::now();
            self.receive_available(&mut state, &mut buffer, now);
            state.client_do(|client, out| client.tick(now, out));
            self.settle(&mut state);
            if state.has_ended(request) || now.monotonic >= until {
                break;
            }
            let next = state.client.deadline().map_or(until, |deadline| deadline.min(until));
            self.release(state);
            self.socket.wait(next.saturating_duration_since(Instant::now()));
            state = self.state.lock();
        }
        state.received = buffer;
        state.role.rest(Instant::now());
        state
    }

    /// Limits the time for which a read blocks, so that the machine is called in time.
    fn limit_blocking(&self, state: &mut ConnectionState) {
        let remaining = state.client.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let remaining = remaining.unwrap_or(limit::CLU_RECEIVE_TIMEOUT_MAX);
        let timeout = receive_timeout(state.receive_timeout, remaining);
        if timeout != state.receive_timeout {
            self.socket.set_timeout(timeout);
            state.receive_timeout = timeout;
        }
    }

    /// Passes datagrams that were already received to the machine. Returns whether there may be more.
    fn receive_available(&self, state: &mut ConnectionState, buffer: &mut [u8], now: Now) -> bool {
        for _ in 0..limit::TURN_DATAGRAMS {
            let Some((n_bytes, from)) = self.socket.receive_now(buffer) else { return false };
            state.received(from, &buffer[..n_bytes], now);
        }
        true
    }

    /// The last step of a caller that has read or waited for the reader: passes the role on.
    fn leave(&self, state: &mut ConnectionState) {
        if let Some(successor) = state.role.successor() {
            let successor = OperationWaiter::Thread(successor.clone());
            state.woken.push(successor);
        } else if let Reader::Resting(since) = state.role.reader()
            && !state.is_closed
        {
            if state.n_futures > 0 {
                self.attach(state);
            } else {
                state.has_rested = true;
                self.call_by(state, since + limit::CLU_READER_LEASE);
            }
        }
    }

    /// Makes the reactor the reader. It is called at once for datagrams that are already there.
    pub(super) fn attach(&self, state: &mut ConnectionState) {
        match self.registration.add_socket(&self.socket, Readiness::Readable) {
            Ok(()) => state.role.attached(),
            // Tried again after another lease.
            Err(_) => state.role.rest(Instant::now()),
        }
    }

    fn serve(&self, state: &mut ConnectionState, now: Now) -> NextCall {
        let mut is_more = false;
        let mut lease_end = None;
        match state.role.reader() {
            // Requests follow one another. To look again later costs less than a message to the reactor after each of them,
            // and the reactor looks at many connections together.
            Reader::Caller | Reader::Loop if std::mem::take(&mut state.has_rested) => {
                lease_end = Some(now.monotonic + limit::CLU_READER_LEASE);
            }
            Reader::Caller | Reader::Loop => {}
            Reader::Resting(since) if now.monotonic < since + limit::CLU_READER_LEASE => {
                lease_end = Some(now.monotonic + limit::CLU_READER_LEASE);
            }
            Reader::Resting(_) | Reader::Reactor => {
                if state.role.reader() != Reader::Reactor {
                    self.attach(state);
                    let is_attached = state.role.reader() == Reader::Reactor;
                    lease_end = (!is_attached).then(|| now.monotonic + limit::CLU_READER_LEASE);
                }
                let mut buffer = std::mem::take(&mut state.received);
                is_more = self.receive_available(state, &mut buffer, now);
                state.received = buffer;
            }
        }
        state.client_do(|client, out| client.tick(now, out));
        self.send_and_deliver(state);
        state.called_at = [lease_end, state.client.deadline()].into_iter().flatten().min();
        match (is_more, state.called_at) {
            (true, _) => {
                state.called_at = None;
                NextCall::Soon
            }
            (false, Some(at)) => NextCall::At(at),
            (false, None) => NextCall::OnReady,
        }
    }
}

impl EventHandler for ConnectionCore {
    fn on_event(self: Arc<Self>, now: Now) -> NextCall {
        let mut state = self.state.lock();
        if state.is_closed {
            return NextCall::OnReady;
        }
        let next = self.serve(&mut state, now);
        self.release(state);
        next
    }
}

/// The timeout of the socket for a read that may block for `remaining`. The current one is kept if it is similar, because
/// each change is a system call; requests that follow one another rarely need one.
fn receive_timeout(current: Duration, remaining: Duration) -> Duration {
    let remaining = remaining.clamp(limit::CLU_RECEIVE_TIMEOUT_MIN, limit::CLU_RECEIVE_TIMEOUT_MAX);
    if (remaining / 8..=remaining).contains(&current) {
        return current;
    }
    if remaining < limit::CLU_RECEIVE_TIMEOUT_EXACT { remaining } else { remaining / 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_succession_keep_the_timeout_and_the_last_moment_is_exact() {
        let ms = Duration::from_millis;
        let first = receive_timeout(Duration::ZERO, ms(5000));

        assert_eq!(first, ms(2500));
        assert_eq!(receive_timeout(first, ms(4999)), first);
        assert_eq!(receive_timeout(first, ms(2500)), first);
        assert_eq!(receive_timeout(first, ms(2499)), ms(2499) / 2);
        assert_eq!(receive_timeout(first, ms(15)), ms(15));
        assert_eq!(receive_timeout(ms(15), ms(4000)), ms(2000), "not many times in succession");
        assert_eq!(receive_timeout(first, Duration::ZERO), limit::CLU_RECEIVE_TIMEOUT_MIN);
        assert!(receive_timeout(first, Duration::MAX) <= limit::CLU_RECEIVE_TIMEOUT_MAX);
    }
}
