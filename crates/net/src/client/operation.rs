use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use fodo_data::{Array, NodeValue, Reading, Structure, StructureType, Value};
use fodo_engine::Ioid;
use fodo_lock::Mutex;
use fodo_pva::request::PvRequest;

use super::channel::{Channel, ChannelCore, CheckedPut};
use super::circuit::{Circuit, Expected, ServerChannel};
use super::loop_reader::LoopReader;
use super::monitor::{MonitorCore, node_bytes, structure_bytes};
use super::{ChannelFacts, Error, Request};

/// What an operation does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OperationTask {
    /// Only connects the channel.
    Connect,
    /// Reads a value.
    Get(Request),
    /// A put with completion.
    Put(Value),
    /// A put without a reply.
    PutUnconfirmed(Value),
    /// A put whose value is checked when the request is queued.
    CheckedPut(CheckedPut),
    /// What only pvAccess has.
    Structured(Arc<StructuredTask>),
}

/// What an operation on structures does.
#[derive(Debug, PartialEq)]
pub(crate) enum StructuredTask {
    /// Reads the type of the channel, or of the field at this path.
    Describe(String),
    /// Reads what the request selects.
    Get(PvRequest),
    /// Writes these fields, given by their paths.
    Put(PvRequest, Vec<(String, NodeValue)>),
    /// Calls a procedure.
    Call(Structure),
    /// Processes a record.
    Process,
}

impl OperationTask {
    /// The expected reply to a get; `None` for the other tasks.
    #[inline]
    pub(super) fn expected(&self, server_channel: ServerChannel) -> Option<Expected> {
        match self {
            OperationTask::Get(request) => Some(server_channel.expected(request)),
            OperationTask::Connect
            | OperationTask::Put(_)
            | OperationTask::PutUnconfirmed(_)
            | OperationTask::CheckedPut(_)
            | OperationTask::Structured(_) => None,
        }
    }

    /// About how many bytes the values take that it sends.
    pub(super) fn sent_bytes(&self) -> usize {
        match self {
            OperationTask::Connect | OperationTask::Get(_) => 0,
            OperationTask::Put(value) | OperationTask::PutUnconfirmed(value) => value.n_bytes(),
            OperationTask::CheckedPut(put) => put.n_bytes(),
            OperationTask::Structured(task) => task.sent_bytes(),
        }
    }

    /// Whether it can be sent before the server has described the type of the channel.
    pub(super) fn is_call(&self) -> bool {
        matches!(self, OperationTask::Structured(task) if matches!(**task, StructuredTask::Call(_)))
    }
}

impl StructuredTask {
    fn sent_bytes(&self) -> usize {
        match self {
            StructuredTask::Put(_, fields) => fields.iter().map(|(_, value)| node_bytes(value)).sum(),
            StructuredTask::Call(argument) => structure_bytes(argument),
            StructuredTask::Describe(_) | StructuredTask::Get(_) | StructuredTask::Process => 0,
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
    /// For puts, and for [`StructuredTask::Process`].
    Written,
    /// For [`StructuredTask::Get`] and [`StructuredTask::Call`].
    Structure(Structure),
    /// For [`StructuredTask::Describe`].
    Type(Arc<StructureType>),
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
    /// Memory for a large reply, until it arrives.
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

    /// The request is being sent. `Err`: the operation has ended meanwhile.
    pub(super) fn issued(&self, circuit: &Arc<Circuit>, ioid: Ioid) -> Result<(), AlreadyEnded> {
        let mut slot = self.slot.lock();
        if !matches!(slot.state, State::Waiting) {
            return Err(AlreadyEnded);
        }
        slot.state = State::Issued(circuit.clone(), ioid);
        Ok(())
    }

    /// The memory for its large reply, which arrives.
    pub(super) fn take_buffer(&self) -> Option<Array> {
        self.slot.lock().buffer.take()
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

/// What a successful operation returns: [`ChannelFacts`], a [`Reading`], a [`Structure`], its type, or `()`. No other type
/// can implement it.
///
/// See the example of [`Operation`].
pub trait Output: sealed::FromOutcome {}

impl Output for ChannelFacts {}
impl Output for Reading {}
impl Output for () {}
impl Output for Structure {}
impl Output for Arc<StructureType> {}

mod sealed {
    use std::sync::Arc;

    use fodo_data::{Reading, Structure, StructureType};

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

    impl FromOutcome for Structure {
        fn from_outcome(outcome: OperationOutcome) -> Option<Self> {
            match outcome {
                OperationOutcome::Structure(structure) => Some(structure),
                _ => None,
            }
        }
    }

    impl FromOutcome for Arc<StructureType> {
        fn from_outcome(outcome: OperationOutcome) -> Option<Self> {
            match outcome {
                OperationOutcome::Type(kind) => Some(kind),
                _ => None,
            }
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

    /// Waits for at most `pause`. Returns `None` if the operation is still in progress: the caller can look after something
    /// else, such as a signal, and wait again.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use std::time::{Duration, Instant};
    ///
    /// let (start, patience) = (Instant::now(), Duration::from_secs(5));
    /// let mut connecting = context.channel("demo:gap")?.start_connect();
    /// let facts = loop {
    ///     if let Some(result) = connecting.wait_at_most(Duration::from_millis(50)) {
    ///         break result?;
    ///     }
    ///     // Other work.
    ///     if start.elapsed() > patience {
    ///         break connecting.finish(patience)?;
    ///     }
    /// };
    /// println!("connected to {}", facts.server);
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn wait_at_most(&mut self, pause: Duration) -> Option<Result<T, Error>> {
        let result = self.core.wait_until(deadline_after(pause))?;
        self.is_over = true;
        Some(converted(result))
    }

    /// Whether the result can be taken without waiting. Cheaper than a wait or a poll, for callers that wait for many
    /// operations. Does not block. See the example of [`Operation::wait_at_most`].
    pub fn has_ended(&self) -> bool {
        self.core.has_ended()
    }

    /// Ends the wait: returns the result, or without one the error of a timeout after `waited`, which names the step that
    /// was not reached. Does not block. See the example of [`Operation::wait_at_most`].
    pub fn finish(mut self, waited: Duration) -> Result<T, Error> {
        match self.core.take() {
            Some(result) => {
                self.is_over = true;
                converted(result)
            }
            None => Err(self.core.channel.timed_out(waited)),
        }
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

impl<T: Output> Operation<T> {
    /// Polls as a future does; the event loop of `reader`, on whose thread this is called, sends the request and reads the
    /// reply. See the example of [`LoopReader`].
    ///
    /// The loop need not poll again until `cx` is woken, which happens in [`LoopReader::serve`] or on another thread. Like an
    /// awaited operation it ends after [`ClientConfig::operation_timeout`](crate::ClientConfig::operation_timeout).
    pub fn poll_in(&mut self, reader: &LoopReader, cx: &mut task::Context<'_>) -> Poll<Result<T, Error>> {
        self.poll_with(cx, |circuit| circuit.attend_in(reader))
    }

    /// `attend`: has the circuit of the operation sent and read.
    #[inline]
    fn poll_with(&mut self, cx: &mut task::Context<'_>, attend: impl FnOnce(&Arc<Circuit>)) -> Poll<Result<T, Error>> {
        match self.core.take_or_wait(|| Waiter::Future(cx.waker().clone())) {
            Some(result) => {
                self.is_over = true;
                Poll::Ready(converted(result))
            }
            None => {
                match self.core.circuit() {
                    Some(circuit) => attend(&circuit),
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
        self.poll_with(cx, |circuit| circuit.attend())
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
