mod options;
mod queue;
mod value;

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use fodo_data::{Meta, Reading, Structure};
use fodo_lock::{Mutex, MutexGuard};
use fodo_pva::client::PreparedRequest;
use futures_core::Stream;

pub use self::options::{MonitorOptions, WhenFull};
use self::queue::Queue;
pub use self::value::MonitorValue;
pub(super) use self::value::{node_bytes, structure_bytes};
use super::callbacks::Callbacks;
use super::channel::{Channel, ChannelCore, Responsiveness};
use super::circuit::{Circuit, MonitorSubscriptions};
use super::group::GroupCore;
use super::operation::{Waiter, deadline_after};
use super::{ChannelFacts, Refusal, WrongReply};

/// An event of a subscription, with updates of this type.
///
/// See the example of [`Monitor`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MonitorEvent<T = Reading> {
    /// The channel is active; an update follows.
    Connected(ChannelFacts),
    /// The server has changed the access rights of this client on the active channel.
    Rights(ChannelFacts),
    /// This many updates were merged into the following one, because they were not taken in time.
    Merged(u64),
    /// An update.
    Update(T),
    /// The server has sent nothing for [`ClientConfig::echo_after`](crate::ClientConfig::echo_after), by default 30 s,
    /// and has not replied to an echo request within 5 s. Its circuit is still open, but the last value may be stale.
    Unresponsive,
    /// The server responds again; updates continue.
    Responsive,
    /// The circuit was lost; the client searches for the name again.
    Disconnected,
    /// The server refuses the subscription, and why. After [`Refusal::ReadAccess`] updates continue once the client may
    /// read again; no call is needed.
    Refused(Refusal),
    /// The server sent an update of another type or length than requested; it was dropped.
    WrongReply(WrongReply),
    /// The context was closed; no event follows.
    Closed,
}

/// Update counters of a monitor.
///
/// They count what the client received. A server also merges updates, when changes are faster than the client or the
/// network: a [`SharedPv`](crate::SharedPv) keeps the last 8 posts of a scalar and the last 2 of an array for each
/// subscription. Channel Access does not report that; pvAccess does, unless the server is QSRV2. Neither reports what
/// changed while the channel was disconnected; only the newest value always arrives.
///
/// See the example of [`Monitor`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonitorCounts {
    /// Updates received from the server.
    pub received: u64,
    /// Updates replaced or dropped because the queue was full.
    pub merged: u64,
    /// Updates of which the server has reported that they contain several changes of one field. Only with pvAccess.
    pub overrun: u64,
    /// Updates delivered to the user's code.
    pub delivered: u64,
    /// The longest time between two consecutive updates on one circuit.
    pub longest_gap: Duration,
    /// How often the channel was lost.
    pub n_disconnected: u64,
}

/// The user's code of a monitor.
pub(super) type Callback = Box<dyn FnMut(MonitorEvent) + Send>;

/// The part of a monitor that its circuit, its channel and its owner share.
///
/// With very many monitors the cost of an update is mostly the cache lines it touches, so the fields it needs are
/// adjacent.
#[repr(C)]
pub(super) struct MonitorCore {
    /// Where its callback runs, if it has one.
    callbacks: Option<Arc<Callbacks>>,
    is_ended: AtomicBool,
    state: Mutex<State>,
    options: MonitorOptions,
    channel: Arc<ChannelCore>,
    delivery: Delivery,
}

/// What becomes of the updates and events of a monitor.
pub(super) enum Delivery {
    /// They wait in its queue; the updates are readings.
    Readings,
    /// The same with structures, which this selects.
    Structures(Box<PreparedRequest>),
    /// They belong to a group, where the PV has this index. The circuit passes the updates to the group itself.
    Rows(Arc<GroupCore>, u32),
}

/// The part of a monitor that changes.
#[repr(C)]
pub struct State {
    /// Whether the callback thread was notified that there are events.
    is_called: bool,
    /// Whether the last event was queued; later events are dropped.
    is_closed: bool,
    n_received: u64,
    n_delivered: u64,
    /// When the last update was received on this circuit, in nanoseconds since the circuit started to connect.
    updated_ns: Option<u64>,
    longest_gap_ns: u64,
    /// Units, limits and labels, if requested with every update.
    meta: Option<Arc<Meta>>,
    /// `None` while it runs.
    callback: Option<Callback>,
    queue: Queue<Reading>,
    n_merged: u64,
    n_overrun: u64,
    n_disconnected: u64,
    waiters: Vec<Waiter>,
    subscriptions: Option<(Arc<Circuit>, MonitorSubscriptions)>,
    /// The events of a monitor of structures; it has no others.
    structures: Option<Box<Queue<Structure>>>,
}

impl std::fmt::Debug for MonitorCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MonitorCore").field("options", &self.options).finish_non_exhaustive()
    }
}

impl MonitorCore {
    /// `callback`: only for readings.
    pub(super) fn new(
        channel: Arc<ChannelCore>,
        options: MonitorOptions,
        callback: Option<(Callback, Arc<Callbacks>)>,
        delivery: Delivery,
    ) -> Arc<MonitorCore> {
        let (callback, callbacks) = callback.unzip();
        let state = State {
            is_called: false,
            is_closed: false,
            n_received: 0,
            n_delivered: 0,
            updated_ns: None,
            longest_gap_ns: 0,
            meta: None,
            callback,
            queue: Queue::default(),
            n_merged: 0,
            n_overrun: 0,
            n_disconnected: 0,
            waiters: Vec::new(),
            subscriptions: None,
            structures: matches!(delivery, Delivery::Structures(_)).then(Box::default),
        };
        let (is_ended, state) = (AtomicBool::new(false), Mutex::new(state));
        Arc::new(MonitorCore { callbacks, is_ended, state, options, channel, delivery })
    }

    pub(super) fn channel(&self) -> &Arc<ChannelCore> {
        &self.channel
    }

    pub(super) fn options(&self) -> &MonitorOptions {
        &self.options
    }

    /// What a monitor of structures selects; `None` for other monitors.
    pub(super) fn request(&self) -> Option<&PreparedRequest> {
        match &self.delivery {
            Delivery::Structures(request) => Some(request),
            Delivery::Readings | Delivery::Rows(..) => None,
        }
    }

    /// For a monitor of a group: the group, and the index of the PV in it.
    pub(super) fn group(&self) -> Option<(&Arc<GroupCore>, u32)> {
        match &self.delivery {
            Delivery::Rows(group, index) => Some((group, *index)),
            Delivery::Readings | Delivery::Structures(_) => None,
        }
    }

    /// Whether its owner has dropped it.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Records the circuit and number of the running subscription.
    pub(super) fn set_subscriptions(&self, circuit: &Arc<Circuit>, subscriptions: MonitorSubscriptions) {
        self.state.lock().subscriptions = Some((circuit.clone(), subscriptions));
    }

    /// The number of the running subscription.
    pub(super) fn subscriptions(&self) -> Option<MonitorSubscriptions> {
        self.state.lock().subscriptions.as_ref().map(|(_, subscriptions)| *subscriptions)
    }

    /// Sets the units, limits and labels of subsequent updates.
    pub(super) fn set_meta(&self, meta: Arc<Meta>) {
        self.state.lock().meta = Some(meta);
    }

    pub(super) fn connected(self: &Arc<Self>, facts: ChannelFacts) -> Waiter {
        self.push(MonitorEvent::Connected(facts))
    }

    pub(super) fn rights_changed(self: &Arc<Self>, facts: ChannelFacts) -> Waiter {
        self.push(MonitorEvent::Rights(facts))
    }

    pub(super) fn responsiveness_changed(self: &Arc<Self>, now: Responsiveness) -> Waiter {
        self.push(match now {
            Responsiveness::Responsive => MonitorEvent::Responsive,
            Responsiveness::Silent => MonitorEvent::Unresponsive,
        })
    }

    pub(super) fn disconnected(self: &Arc<Self>) -> Waiter {
        let mut state = self.state.lock();
        (state.subscriptions, state.updated_ns) = (None, None);
        state.n_disconnected += 1;
        drop(state);
        self.push(MonitorEvent::Disconnected)
    }

    /// The context is closed.
    pub(super) fn closed(self: &Arc<Self>) -> Waiter {
        self.state.lock().subscriptions = None;
        self.push(MonitorEvent::Closed)
    }

    /// `at_ns`: when the circuit received it, in nanoseconds since the circuit started to connect.
    #[inline]
    pub(super) fn updated(self: &Arc<Self>, mut reading: Reading, at_ns: u64) -> Waiter {
        let mut state = self.state.lock();
        state.count_update(at_ns);
        if let Some(meta) = &state.meta {
            reading.meta = Some(meta.clone());
        }
        self.queue(state, MonitorEvent::Update(reading))
    }

    /// The same for a monitor of structures.
    pub(super) fn structure_updated(self: &Arc<Self>, structure: Structure, at_ns: u64) -> Waiter {
        let mut state = self.state.lock();
        state.count_update(at_ns);
        self.queue(state, MonitorEvent::Update(structure))
    }

    /// The server has merged updates into the one that follows.
    pub(super) fn count_overrun(&self) {
        self.state.lock().n_overrun += 1;
    }

    /// The server refuses the subscription, and why.
    pub(super) fn refused(self: &Arc<Self>, refusal: Refusal) -> Waiter {
        self.push(MonitorEvent::Refused(refusal))
    }

    /// The server has sent an update of another type or length than requested.
    pub(super) fn wrong_reply(self: &Arc<Self>, reply: WrongReply) -> Waiter {
        self.push(MonitorEvent::WrongReply(reply))
    }

    /// Queues an event that is not an update.
    fn push(self: &Arc<Self>, event: MonitorEvent) -> Waiter {
        match &self.delivery {
            Delivery::Readings => self.queue(self.state.lock(), event),
            Delivery::Structures(_) => match event.without_update::<Structure>() {
                Some(event) => self.queue(self.state.lock(), event),
                None => Waiter::None,
            },
            // Its index may belong to another PV soon.
            Delivery::Rows(..) if self.is_ended() => Waiter::None,
            Delivery::Rows(group, index) => group.changed(*index, event),
        }
    }

    /// Queues an event; returns the waiter to wake after releasing all locks.
    #[inline]
    fn queue<T: MonitorValue>(self: &Arc<Self>, mut state: MutexGuard<'_, State>, event: MonitorEvent<T>) -> Waiter {
        if state.is_closed {
            return Waiter::None;
        }
        state.is_closed = matches!(event, MonitorEvent::Closed);
        let Some(queue) = T::queue_of(&mut state) else { return Waiter::None };
        let n_merged = queue.push(event, &self.options);
        state.n_merged += n_merged;
        if self.callbacks.is_some() {
            let is_called = std::mem::replace(&mut state.is_called, true);
            return if is_called { Waiter::None } else { Waiter::Callback(self.clone()) };
        }
        match state.waiters.is_empty() {
            true => Waiter::None,
            false => Waiter::all(std::mem::take(&mut state.waiters)),
        }
    }

    fn pop<T: MonitorValue>(&self) -> Option<MonitorEvent<T>> {
        let mut state = self.state.lock();
        let event = T::queue_of(&mut state)?.pop()?;
        state.n_delivered += u64::from(matches!(event, MonitorEvent::Update(_)));
        Some(event)
    }

    /// The user's own executor did not take the job: the next event creates another one.
    pub(super) fn not_called(&self) {
        self.state.lock().is_called = false;
    }

    /// Schedules the callbacks of these monitors, which belong to one context, unless the user's own executor does that:
    /// its code must not run while a circuit is locked.
    pub(super) fn call_on_threads(monitors: &mut Vec<Arc<MonitorCore>>) {
        if monitors.first().and_then(|first| first.callbacks.as_ref()).is_some_and(|callbacks| callbacks.has_threads())
        {
            MonitorCore::call(monitors);
        }
    }

    /// Schedules the callbacks of these monitors, which belong to one context. No lock is held.
    pub(super) fn call(monitors: &mut Vec<Arc<MonitorCore>>) {
        if let Some(callbacks) = monitors.first().and_then(|first| first.callbacks.clone()) {
            callbacks.call(monitors);
        }
    }

    /// Passes the queued events to the callback, on the callback thread; at most as many as are queued at the start.
    pub(super) fn deliver(self: Arc<Self>) {
        let mut state = self.state.lock();
        let Some(mut callback) = state.callback.take() else { return };
        let mut n_left = state.queue.len();
        while n_left > 0 && !self.is_ended() {
            let Some(event) = state.queue.pop() else { break };
            n_left -= usize::from(!matches!(event, MonitorEvent::Merged(_)));
            drop(state);
            let is_update = matches!(event, MonitorEvent::Update(_));
            // The panic hook has already reported the panic; this monitor and the others continue.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| callback(event)));
            state = self.state.lock();
            state.n_delivered += u64::from(is_update);
        }
        state.callback = Some(callback);
        state.is_called = !state.queue.is_empty() && !self.is_ended();
        if state.is_called {
            drop(state);
            MonitorCore::call(&mut vec![self]);
        }
    }
}

impl State {
    /// Counts a received update.
    #[inline]
    fn count_update(&mut self, at_ns: u64) {
        self.n_received += 1;
        if let Some(before_ns) = self.updated_ns.replace(at_ns) {
            self.longest_gap_ns = self.longest_gap_ns.max(at_ns.saturating_sub(before_ns));
        }
    }
}

/// A running subscription; ends when dropped. Its updates are readings, or structures
/// ([`Channel::monitor_structure`]).
///
/// Its events are taken in one of four ways. A thread waits for them: [`Monitor::iter`] without a limit,
/// [`Monitor::next_timeout`] with one. A task awaits them: a monitor is a [`Stream`], and [`Monitor::next_event`] is a
/// future that needs no trait. Or a callback receives them ([`Channel::monitor_with`]).
///
/// The events end after [`MonitorEvent::Closed`], when the context is closed. Before the first connection there is no
/// event; [`Channel::why_inactive`] says why.
///
/// # Examples
///
/// ```
/// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
/// use fodo_net::{MonitorEvent, MonitorOptions};
///
/// let monitor = context.channel("demo:temperature")?.monitor(MonitorOptions::default());
/// for event in &monitor {
///     match event {
///         MonitorEvent::Connected(facts) => println!("connected to {}", facts.server),
///         MonitorEvent::Update(reading) => {
///             println!("{:?}, {}", reading.value, reading.alarm.severity);
///             // Ends the loop.
///             context.close();
///         }
///         MonitorEvent::Disconnected => println!("the value is stale"),
///         _ => {}
///     }
/// }
/// assert_eq!(monitor.counts().delivered, 1);
/// # Ok::<(), fodo_net::Error>(())
/// ```
///
/// As a stream, with the combinators of the crate `futures-util`:
///
/// ```
/// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
/// use fodo_net::{MonitorEvent, MonitorOptions};
/// use futures_util::StreamExt;
///
/// # pollster::block_on(async {
/// let monitor = context.channel("demo:temperature")?.monitor(MonitorOptions::newest());
/// let values = monitor.filter_map(|event| async move {
///     match event {
///         MonitorEvent::Update(reading) => Some(reading.value),
///         _ => None,
///     }
/// });
/// let mut values = std::pin::pin!(values);
/// println!("{:?}", values.next().await);
/// # Ok::<(), fodo_net::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Monitor<T = Reading> {
    core: Arc<MonitorCore>,
    /// Keeps the channel open.
    channel: Channel,
    updates: PhantomData<fn() -> T>,
}

impl<T: MonitorValue> Monitor<T> {
    /// `core`: with updates of this type.
    pub(super) fn new(core: Arc<MonitorCore>, channel: Channel) -> Monitor<T> {
        Monitor { core, channel, updates: PhantomData }
    }

    pub(super) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Waits for the next event. Returns `None` if none is received within `timeout`.
    ///
    /// Also returns `None`, at once, if there can be no event: after [`MonitorEvent::Closed`], and for a monitor with a
    /// callback, which receives all of them.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use std::time::Duration;
    ///
    /// use fodo_net::{MonitorEvent, MonitorOptions};
    ///
    /// let monitor = context.channel("demo:gap")?.monitor(MonitorOptions::newest());
    /// let event = monitor.next_timeout(Duration::from_secs(5));
    /// assert!(matches!(event, Some(MonitorEvent::Connected(_))));
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn next_timeout(&self, timeout: Duration) -> Option<MonitorEvent<T>> {
        // Computed only when needed: usually an event is queued already.
        let mut deadline = None;
        loop {
            if let Poll::Ready(next) = self.pop_or_wait(|| Waiter::Thread(std::thread::current())) {
                return next;
            }
            let deadline = *deadline.get_or_insert_with(|| deadline_after(timeout));
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            self.core.channel.flush_searches();
            std::thread::park_timeout(deadline - now);
        }
    }

    /// The events, in order; each step blocks until there is one. See the example of [`Monitor`].
    ///
    /// Ends after [`MonitorEvent::Closed`]; for a monitor with a callback, which receives all events, at once.
    pub fn iter(&self) -> MonitorIter<'_, T> {
        MonitorIter { monitor: self }
    }

    /// The next event as a future; the client's reactor wakes it. It resolves to `None` if there can be no event: after
    /// [`MonitorEvent::Closed`], and for a monitor with a callback, which receives all of them. Dropping the future loses no
    /// event, so that it can be used in `select!`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use fodo_net::{MonitorEvent, MonitorOptions};
    ///
    /// # pollster::block_on(async {
    /// let monitor = context.channel("demo:gap")?.monitor(MonitorOptions::newest());
    /// while let Some(event) = monitor.next_event().await {
    ///     if let MonitorEvent::Update(reading) = event {
    ///         println!("{:?}", reading.value);
    ///         break;
    ///     }
    /// }
    /// # Ok::<(), fodo_net::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn next_event(&self) -> impl Future<Output = Option<MonitorEvent<T>>> + '_ {
        std::future::poll_fn(|cx| self.poll_event(cx))
    }

    fn poll_event(&self, cx: &mut task::Context<'_>) -> Poll<Option<MonitorEvent<T>>> {
        self.pop_or_wait(|| Waiter::Future(cx.waker().clone()))
    }

    /// The update counters so far. See the example of [`Monitor`].
    pub fn counts(&self) -> MonitorCounts {
        let state = self.core.state.lock();
        MonitorCounts {
            received: state.n_received,
            merged: state.n_merged,
            overrun: state.n_overrun,
            delivered: state.n_delivered,
            longest_gap: Duration::from_nanos(state.longest_gap_ns),
            n_disconnected: state.n_disconnected,
        }
    }

    /// The next event, or `None` if there can be none; registers the waiter if one is possible.
    fn pop_or_wait(&self, waiter: impl FnOnce() -> Waiter) -> Poll<Option<MonitorEvent<T>>> {
        if self.core.callbacks.is_some() {
            return Poll::Ready(None);
        }
        if let Some(event) = self.core.pop() {
            return Poll::Ready(Some(event));
        }
        let mut state = self.core.state.lock();
        if T::queue_of(&mut state).is_some_and(|queue| !queue.is_empty()) {
            drop(state);
            return Poll::Ready(self.core.pop());
        }
        if state.is_closed {
            return Poll::Ready(None);
        }
        waiter().join(&mut state.waiters);
        Poll::Pending
    }
}

/// The events of a monitor; ends after [`MonitorEvent::Closed`]. Each poll costs no round trip.
impl<T: MonitorValue> Stream for Monitor<T> {
    type Item = MonitorEvent<T>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<MonitorEvent<T>>> {
        self.poll_event(cx)
    }
}

impl<'a, T: MonitorValue> IntoIterator for &'a Monitor<T> {
    type Item = MonitorEvent<T>;
    type IntoIter = MonitorIter<'a, T>;

    fn into_iter(self) -> MonitorIter<'a, T> {
        self.iter()
    }
}

/// Blocking iterator over the events of a monitor; see [`Monitor::iter`].
#[derive(Debug)]
pub struct MonitorIter<'a, T = Reading> {
    monitor: &'a Monitor<T>,
}

impl<T: MonitorValue> Iterator for MonitorIter<'_, T> {
    type Item = MonitorEvent<T>;

    fn next(&mut self) -> Option<MonitorEvent<T>> {
        self.monitor.next_timeout(Duration::MAX)
    }
}

impl<T: MonitorValue> std::iter::FusedIterator for MonitorIter<'_, T> {}

impl<T> Drop for Monitor<T> {
    fn drop(&mut self) {
        self.core.is_ended.store(true, Ordering::Release);
        self.core.channel.forget_monitor(&self.core);
        let server_channel = self.core.state.lock().subscriptions.take();
        if let Some((circuit, subscriptions)) = server_channel {
            circuit.cancel(subscriptions);
        }
    }
}
