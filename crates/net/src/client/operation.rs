use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use fodo_data::{Array, Reading, Value};
use fodo_engine::Ioid;
use fodo_lock::Mutex;

use super::channel::{Channel, ChannelCore};
use super::circuit::{Circuit, Expected, ServerChannel};
use super::monitor::MonitorCore;
use super::{ChannelFacts, Error, Request};

/// What an operation does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum OperationTask {
    /// Only connects the channel.
    Connect,
    /// Reads a value.
    Get(Request),
    /// A put with completion.
    Put(Value),
    /// A put without a reply.
    PutUnconfirmed(Value),
}

impl OperationTask {
    /// The expected reply to a get; `None` for the other tasks.
    #[inline]
    pub(super) fn expected(&self, server_channel: ServerChannel) -> Option<Expected> {
        match self {
            OperationTask::Get(request) => Some(server_channel.expected(request)),
            OperationTask::Connect | OperationTask::Put(_) | OperationTask::PutUnconfirmed(_) => None,
        }
    }
}

/// The result of a successful operation.
#[derive(Clone, Debug, PartialEq)]
pub enum OperationOutcome {
    /// For [`OperationTask::Connect`].
    Connected(ChannelFacts),
    /// For [`OperationTask::Get`].
    Reading(Reading),
    /// For both puts.
    Written,
}

/// What to wake when an event occurs.
#[derive(Debug, Default)]
pub(super) enum Waiter {
    /// Nothing yet.
    #[default]
    None,
    /// A thread that is parked or about to park.
    Thread(Thread),
    /// A future.
    Future(Waker),
    /// The callback of a monitor.
    Callback(Arc<MonitorCore>),
    /// All of the contained waiters.
    Several(Vec<Waiter>),
}

impl Waiter {
    pub(super) fn wake(self) {
        match self {
            Waiter::None => {}
            Waiter::Thread(thread) => thread.unpark(),
            // A future's executor may panic; the reactor that wakes it must continue to serve others.
            Waiter::Future(waker) => {
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
            }
            Waiter::Callback(monitor) => MonitorCore::call(&mut vec![monitor]),
            Waiter::Several(waiters) => waiters.into_iter().for_each(Waiter::wake),
        }
    }

    /// `None` for [`Waiter::None`].
    pub(super) fn into_option(self) -> Option<Waiter> {
        (!matches!(self, Waiter::None)).then_some(self)
    }

    /// Adds this waiter to the others, unless it is already among them.
    pub(super) fn join(self, others: &mut Vec<Waiter>) {
        let is_same = |other: &Waiter| match (other, &self) {
            (Waiter::Thread(other), Waiter::Thread(this)) => other.id() == this.id(),
            (Waiter::Future(other), Waiter::Future(this)) => other.will_wake(this),
            _ => false,
        };
        if !others.iter().any(is_same) {
            others.push(self);
        }
    }

    /// One waiter that wakes all of them.
    pub(super) fn all(mut waiters: Vec<Waiter>) -> Waiter {
        match waiters.len() {
            0 | 1 => waiters.pop().unwrap_or_default(),
            _ => Waiter::Several(waiters),
        }
    }
}

/// The part of an operation that its circuit, its channel and its caller share.
#[derive(Debug)]
pub(super) struct OperationCore {
    channel: Arc<ChannelCore>,
    slot: Mutex<OperationSlot>,
}

#[derive(Debug)]
struct OperationSlot {
    state: State,
    waiter: Waiter,
    /// Memory for a large reply, until the request is issued.
    buffer: Option<Array>,
}

/// The state of an operation; the comment of each says what it waits for.
#[derive(Debug)]
enum State {
    /// For its channel to be active.
    Waiting,
    /// For the server's reply on this circuit.
    Issued(Arc<Circuit>, Ioid),
    /// For its caller to take the result.
    Ended(Result<OperationOutcome, Error>),
    /// For nothing: the result was taken.
    Taken,
}

/// The operation ended before its request was sent.
pub(super) struct AlreadyEnded;

impl OperationCore {
    /// `buffer`: an array whose memory a large reply may reuse.
    pub(super) fn new(channel: Arc<ChannelCore>, buffer: Option<Array>) -> Arc<OperationCore> {
        let slot = OperationSlot { state: State::Waiting, waiter: Waiter::None, buffer };
        Arc::new(OperationCore { channel, slot: Mutex::new(slot) })
    }

    pub(super) fn channel(&self) -> &Arc<ChannelCore> {
        &self.channel
    }

    /// The request is being sent; returns the memory for its reply. `Err`: the operation has ended meanwhile.
    pub(super) fn issued(&self, circuit: &Arc<Circuit>, ioid: Ioid) -> Result<Option<Array>, AlreadyEnded> {
        let mut slot = self.slot.lock();
        if !matches!(slot.state, State::Waiting) {
            return Err(AlreadyEnded);
        }
        slot.state = State::Issued(circuit.clone(), ioid);
        Ok(slot.buffer.take())
    }

    /// Ends the operation unless it has already ended; returns the waiter to wake after releasing all locks.
    pub(super) fn end(&self, result: Result<OperationOutcome, Error>) -> Waiter {
        let mut slot = self.slot.lock();
        match slot.state {
            State::Waiting | State::Issued(..) => {
                slot.state = State::Ended(result);
                std::mem::take(&mut slot.waiter)
            }
            State::Ended(_) | State::Taken => Waiter::None,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.slot.lock().state, State::Ended(_) | State::Taken)
    }

    fn take(&self) -> Option<Result<OperationOutcome, Error>> {
        let mut slot = self.slot.lock();
        if !matches!(slot.state, State::Ended(_)) {
            return None;
        }
        match std::mem::replace(&mut slot.state, State::Taken) {
            State::Ended(result) => Some(result),
            _ => None,
        }
    }

    /// Takes the result, or registers a waiter to be woken by it.
    fn take_or_wait(&self, waiter: impl FnOnce() -> Waiter) -> Option<Result<OperationOutcome, Error>> {
        if let Some(result) = self.take() {
            return Some(result);
        }
        let mut slot = self.slot.lock();
        if matches!(slot.state, State::Waiting | State::Issued(..)) {
            slot.waiter = waiter();
            return None;
        }
        drop(slot);
        self.take()
    }

    fn circuit(&self) -> Option<Arc<Circuit>> {
        match &self.slot.lock().state {
            State::Issued(circuit, _) => Some(circuit.clone()),
            _ => None,
        }
    }

    /// Ends the operation for the caller; a later reply is ignored.
    fn cancel(&self) {
        let (state, _waiter) = {
            let mut slot = self.slot.lock();
            (std::mem::replace(&mut slot.state, State::Taken), std::mem::take(&mut slot.waiter))
        };
        self.forget(state);
    }

    /// Ends the operation unless it has ended, because it timed out after `after`.
    pub(super) fn expire(&self, after: Duration) {
        let error = self.channel.timed_out(after);
        let mut slot = self.slot.lock();
        if !matches!(slot.state, State::Waiting | State::Issued(..)) {
            return;
        }
        let state = std::mem::replace(&mut slot.state, State::Ended(Err(error)));
        let waiter = std::mem::take(&mut slot.waiter);
        drop(slot);
        self.forget(state);
        waiter.wake();
    }

    /// Removes the operation from where it waited.
    fn forget(&self, state: State) {
        match state {
            State::Waiting => self.channel.forget_operation(self),
            State::Issued(circuit, ioid) => circuit.forget_operation(ioid),
            State::Ended(_) | State::Taken => {}
        }
    }

    /// Blocks until the operation ends or the deadline has passed. Drives the circuit once the request is issued.
    fn wait_until(&self, deadline: Instant) -> Option<Result<OperationOutcome, Error>> {
        loop {
            // The thread that reads the circuit wakes this one through the waiter, also while it waits for the reader's
            // role.
            if let Some(result) = self.take_or_wait(|| Waiter::Thread(std::thread::current())) {
                return Some(result);
            }
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            match self.circuit() {
                Some(circuit) => circuit.drive(deadline, &|| self.has_ended()),
                None => {
                    self.channel.flush_searches();
                    std::thread::park_timeout(deadline - now);
                }
            }
        }
    }
}

/// When a wait that begins now ends. A timeout that overflows ends in thirty years.
pub(super) fn deadline_after(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or_else(|| now + Duration::from_secs(30 * 365 * 24 * 3600))
}

/// What a successful operation returns: [`ChannelFacts`], a [`Reading`] or `()`. No other type can implement it.
///
/// See the example of [`Operation`].
pub trait Output: sealed::FromOutcome {}

impl Output for ChannelFacts {}
impl Output for Reading {}
impl Output for () {}

mod sealed {
    use fodo_data::Reading;

    use super::super::ChannelFacts;
    use super::OperationOutcome;

    /// Conversion from an outcome; `None` for the outcome of another task.
    pub trait FromOutcome: Sized {
        fn from_outcome(outcome: OperationOutcome) -> Option<Self>;
    }

    impl FromOutcome for ChannelFacts {
        #[inline]
        fn from_outcome(outcome: OperationOutcome) -> Option<Self> {
            match outcome {
                OperationOutcome::Connected(facts) => Some(facts),
                _ => None,
            }
        }
    }

    impl FromOutcome for Reading {
        #[inline]
        fn from_outcome(outcome: OperationOutcome) -> Option<Self> {
            match outcome {
                OperationOutcome::Reading(reading) => Some(reading),
                _ => None,
            }
        }
    }

    impl FromOutcome for () {
        #[inline]
        fn from_outcome(outcome: OperationOutcome) -> Option<Self> {
            matches!(outcome, OperationOutcome::Written).then_some(())
        }
    }
}

/// An operation in progress. Block on it with [`Operation::wait`], or await it.
///
/// It starts when it is created: on a connected channel its request is queued at once, otherwise when the channel
/// connects. So create it before a `select!` loop; a put that is created inside writes again in each turn.
///
/// Dropping it, and a timeout, end the wait. A request that is already queued is carried out nevertheless, and its
/// result is ignored; one whose channel has not connected is never sent.
///
/// It needs no async runtime: any executor can poll it, and the client's reactor wakes it. A future that has not ended
/// within [`ClientConfig::operation_timeout`](crate::ClientConfig::operation_timeout) of its first poll ends with the
/// same error that [`Operation::wait`] returns after that time. A longer timeout around it does not extend that: for
/// puts that take longer, use a context with a longer `operation_timeout`, or [`Duration::MAX`].
///
/// # Examples
///
/// ```
/// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
/// use std::time::Duration;
///
/// use fodo_net::Request;
///
/// let gap = context.channel("demo:gap")?;
/// // Both are in progress before the first is waited for.
/// let (connecting, getting) = (gap.start_connect(), gap.start_get(Request::default()));
/// println!("connected to {}", connecting.wait()?.server);
/// println!("{:?}", getting.wait_timeout(Duration::from_secs(1))?.value);
///
/// # pollster::block_on(async {
/// // In an async function.
/// gap.start_put(13.0).await?;
/// # Ok::<(), fodo_net::Error>(())
/// # }).unwrap();
/// # Ok::<(), fodo_net::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the result of an operation that is dropped is ignored"]
pub struct Operation<T> {
    core: Arc<OperationCore>,
    /// Nothing is left to cancel.
    is_over: bool,
    /// The context ends it at a deadline.
    has_deadline: bool,
    /// Keeps the channel open.
    _channel: Channel,
    output: std::marker::PhantomData<fn() -> T>,
}

impl<T: Output> Operation<T> {
    pub(super) fn new(core: Arc<OperationCore>, channel: Channel) -> Operation<T> {
        Operation { core, is_over: false, has_deadline: false, _channel: channel, output: std::marker::PhantomData }
    }

    /// Blocks until the operation ends or
    /// [`ClientConfig::operation_timeout`](crate::ClientConfig::operation_timeout) has passed; meanwhile the calling
    /// thread reads the circuit. See the example of [`Operation`].
    ///
    /// The error of a timeout names the step that was not reached. A put that was sent by then is carried out
    /// nevertheless.
    pub fn wait(self) -> Result<T, Error> {
        let timeout = self.default_timeout();
        self.wait_timeout(timeout)
    }

    /// Like [`Operation::wait`], with its own timeout. See the example of [`Operation`].
    pub fn wait_timeout(mut self, timeout: Duration) -> Result<T, Error> {
        // With many operations in flight, most have ended when they are waited for: do not read the clock.
        if let Some(result) = self.core.take() {
            self.is_over = true;
            return converted(result);
        }
        self.wait_until(deadline_after(timeout), timeout)
    }

    /// The timeout of an operation that is waited for without one.
    pub(super) fn default_timeout(&self) -> Duration {
        self.core.channel.operation_timeout()
    }

    /// Like [`Operation::wait`], until a deadline; `timeout` is the total time the caller has waited by then.
    pub(super) fn wait_until(mut self, deadline: Instant, timeout: Duration) -> Result<T, Error> {
        match self.core.wait_until(deadline) {
            Some(result) => {
                self.is_over = true;
                converted(result)
            }
            None => Err(self.core.channel.timed_out(timeout)),
        }
    }
}

/// Converts an outcome to the type that the caller requested.
#[inline]
pub(super) fn converted<T: Output>(result: Result<OperationOutcome, Error>) -> Result<T, Error> {
    match T::from_outcome(result?) {
        Some(output) => Ok(output),
        None => unreachable!("an operation ends with the outcome of its own task"),
    }
}

impl<T: Output> Future for Operation<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        match self.core.take_or_wait(|| Waiter::Future(cx.waker().clone())) {
            Some(result) => {
                self.is_over = true;
                Poll::Ready(converted(result))
            }
            None => {
                match self.core.circuit() {
                    Some(circuit) => circuit.attend(),
                    None => self.core.channel.flush_searches(),
                }
                if !std::mem::replace(&mut self.has_deadline, true) {
                    self.core.channel.add_deadline(&self.core);
                }
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Operation<T> {
    fn drop(&mut self) {
        if !self.is_over {
            self.core.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excessive_timeout_is_clamped_to_thirty_years() {
        let now = Instant::now();
        let years = |n: u64| Duration::from_secs(n * 365 * 24 * 3600);

        let ends_in = deadline_after(Duration::MAX) - now;

        assert!(ends_in >= years(30) && ends_in < years(31), "{ends_in:?}");
        assert!(
            (Duration::from_secs(5)..Duration::from_secs(60)).contains(&(deadline_after(Duration::from_secs(5)) - now))
        );
    }

    #[test]
    fn a_thread_or_future_registered_twice_is_woken_once() {
        let mut waiters = Vec::new();
        let other = std::thread::spawn(std::thread::current).join().unwrap();

        for waiter in [
            Waiter::Thread(std::thread::current()),
            Waiter::Thread(other),
            Waiter::Future(Waker::noop().clone()),
            Waiter::Thread(std::thread::current()),
            Waiter::Future(Waker::noop().clone()),
        ] {
            waiter.join(&mut waiters);
        }

        assert_eq!(waiters.len(), 3);
        assert!(matches!(Waiter::all(waiters), Waiter::Several(waiters) if waiters.len() == 3));
        assert!(matches!(Waiter::all(vec![Waiter::Thread(std::thread::current())]), Waiter::Thread(_)));
        assert!(Waiter::all(Vec::new()).into_option().is_none());
        assert!(Waiter::Thread(std::thread::current()).into_option().is_some());
    }

    #[test]
    fn every_waiter_is_woken_even_if_one_panics() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        struct Counting(AtomicUsize);
        impl std::task::Wake for Counting {
            fn wake(self: Arc<Self>) {
                let n_before = self.0.fetch_add(1, Ordering::Relaxed);
                assert!(n_before > 0, "the first one panics");
            }
        }
        let counting = Arc::new(Counting(AtomicUsize::new(0)));
        let future = || Waiter::Future(Waker::from(counting.clone()));

        Waiter::Several(vec![future(), Waiter::None, Waiter::Thread(std::thread::current()), future()]).wake();

        assert_eq!(counting.0.load(Ordering::Relaxed), 2);
        // Returns at once, since this thread was woken before it parks.
        std::thread::park();
    }
}
