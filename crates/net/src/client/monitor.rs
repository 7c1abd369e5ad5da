mod queue;

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::{Duration, Instant};

use fodo_data::{EventMask, Meta, Reading};

use self::queue::Queue;
use super::callbacks::Callbacks;
use super::channel::{Channel, ChannelCore};
use super::circuit::{Circuit, Seat};
use super::operation::{Waiter, deadline_after};
use super::{Facts, Refusal, Request, WrongReply};
use crate::sync::lock;

/// What a subscription is to deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorOptions {
    /// What each update holds.
    pub request: Request,
    /// Which changes count.
    pub mask: EventMask,
    /// How many updates wait at most; besides, at most 64 MiB of values do, or one value that is larger. Events of the
    /// connection wait beside them.
    pub queue_max: usize,
    /// What becomes of updates that find it full.
    pub when_full: WhenFull,
}

/// What becomes of updates that nobody takes in time. Whatever does is counted as merged, and a
/// [`MonitorEvent::Merged`] marks where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The newest replaces the last one that waits: the first ones of a jam stay, and the newest. With a queue of one
    /// this is the newest alone.
    #[default]
    ReplaceLast,
    /// The oldest that waits goes: the latest ones stay.
    DropOldest,
}

impl Default for MonitorOptions {
    fn default() -> Self {
        MonitorOptions {
            request: Request::default(),
            mask: EventMask::VALUE | EventMask::ALARM,
            queue_max: 1024,
            when_full: WhenFull::ReplaceLast,
        }
    }
}

impl MonitorOptions {
    /// Only the newest update waits, as a display or a control loop wants it.
    pub fn newest() -> MonitorOptions {
        MonitorOptions { queue_max: 1, ..MonitorOptions::default() }
    }
}

/// What a subscription tells.
#[derive(Clone, Debug, PartialEq)]
pub enum MonitorEvent {
    /// The channel is active; an update follows.
    Connected(Facts),
    /// The server has changed what this client may do with the active channel.
    Rights(Facts),
    /// So many updates were merged into the one that comes next, because nobody took them in time.
    Merged(u64),
    /// An update.
    Update(Reading),
    /// The server has been silent for too long (EPICS_CA_CONN_TMO and the time for an echo). Its
    /// circuit is still open: what came last may be stale.
    Unresponsive,
    /// It is heard again after that; updates go on.
    Responsive,
    /// The circuit was lost; a new one is looked for.
    Disconnected,
    /// The server gives no updates, and why.
    Refused(Refusal),
    /// The server sent an update of another type or length than requested, which was dropped.
    WrongReply(WrongReply),
    /// The context was closed; no event follows.
    Closed,
}

/// How many updates went where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Came from the server.
    pub received: u64,
    /// Were replaced by later ones in the full queue.
    pub merged: u64,
    /// Were handed to the user's code.
    pub delivered: u64,
    /// The longest time between two that came one after the other on one circuit.
    pub longest_gap: Duration,
    /// How often the channel was lost.
    pub n_disconnected: u64,
}

/// The user's code of a monitor.
pub(super) type Callback = Box<dyn FnMut(MonitorEvent) + Send>;

/// The part of a monitor that its circuit, its channel and its owner share.
///
/// With very many monitors an update costs mostly the cache lines that it touches, so what it needs stands together.
#[repr(C)]
pub(super) struct MonitorCore {
    /// Where its callback runs, if it has one.
    callbacks: Option<Arc<Callbacks>>,
    is_ended: AtomicBool,
    state: Mutex<State>,
    options: MonitorOptions,
    channel: Arc<ChannelCore>,
}

#[repr(C)]
struct State {
    /// Whether the callback thread has been told that there are events.
    is_called: bool,
    /// Whether the last event was queued: what was on its way then is not an event any more.
    is_closed: bool,
    n_received: u64,
    n_delivered: u64,
    /// When the last update came on this circuit, in nanoseconds since that began.
    updated_ns: Option<u64>,
    longest_gap_ns: u64,
    /// Units, limits and labels, where they are wanted with every update.
    meta: Option<Arc<Meta>>,
    /// Not here while it runs.
    callback: Option<Callback>,
    queue: Queue,
    n_merged: u64,
    n_disconnected: u64,
    waiters: Vec<Waiter>,
    place: Option<(Arc<Circuit>, Seat)>,
}

impl std::fmt::Debug for MonitorCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MonitorCore").field("options", &self.options).finish_non_exhaustive()
    }
}

impl MonitorCore {
    pub(super) fn new(
        channel: Arc<ChannelCore>,
        options: MonitorOptions,
        callback: Option<(Callback, Arc<Callbacks>)>,
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
            n_disconnected: 0,
            waiters: Vec::new(),
            place: None,
        };
        let (is_ended, state) = (AtomicBool::new(false), Mutex::new(state));
        Arc::new(MonitorCore { callbacks, is_ended, state, options, channel })
    }

    pub(super) fn channel(&self) -> &Arc<ChannelCore> {
        &self.channel
    }

    pub(super) fn options(&self) -> &MonitorOptions {
        &self.options
    }

    /// Whether its owner has dropped it.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Where the subscription now runs.
    pub(super) fn placed(&self, circuit: &Arc<Circuit>, seat: Seat) {
        lock(&self.state).place = Some((circuit.clone(), seat));
    }

    /// Where it runs.
    pub(super) fn seat(&self) -> Option<Seat> {
        lock(&self.state).place.as_ref().map(|(_, seat)| *seat)
    }

    /// What updates have with them from now on.
    pub(super) fn described(&self, meta: Arc<Meta>) {
        lock(&self.state).meta = Some(meta);
    }

    pub(super) fn connected(self: &Arc<Self>, facts: Facts) -> Waiter {
        self.push(MonitorEvent::Connected(facts))
    }

    pub(super) fn allowed(self: &Arc<Self>, facts: Facts) -> Waiter {
        self.push(MonitorEvent::Rights(facts))
    }

    pub(super) fn heard(self: &Arc<Self>, is_heard: bool) -> Waiter {
        self.push(if is_heard { MonitorEvent::Responsive } else { MonitorEvent::Unresponsive })
    }

    pub(super) fn disconnected(self: &Arc<Self>) -> Waiter {
        let mut state = lock(&self.state);
        (state.place, state.updated_ns) = (None, None);
        state.n_disconnected += 1;
        drop(state);
        self.push(MonitorEvent::Disconnected)
    }

    /// The context is closed.
    pub(super) fn closed(self: &Arc<Self>) -> Waiter {
        lock(&self.state).place = None;
        self.push(MonitorEvent::Closed)
    }

    /// `at_ns`: when the circuit brought it, in nanoseconds since that began.
    #[inline]
    pub(super) fn updated(self: &Arc<Self>, mut reading: Reading, at_ns: u64) -> Waiter {
        let mut state = lock(&self.state);
        let State { n_received, updated_ns, longest_gap_ns, meta, .. } = &mut *state;
        *n_received += 1;
        if let Some(before_ns) = updated_ns.replace(at_ns) {
            *longest_gap_ns = (*longest_gap_ns).max(at_ns.saturating_sub(before_ns));
        }
        if let Some(meta) = meta {
            reading.meta = Some(meta.clone());
        }
        self.queue(state, MonitorEvent::Update(reading))
    }

    /// The server gives no update, and why.
    pub(super) fn refused(self: &Arc<Self>, refusal: Refusal) -> Waiter {
        self.push(MonitorEvent::Refused(refusal))
    }

    /// The server has sent an update that was not requested like this.
    pub(super) fn misled(self: &Arc<Self>, reply: WrongReply) -> Waiter {
        self.push(MonitorEvent::WrongReply(reply))
    }

    fn push(self: &Arc<Self>, event: MonitorEvent) -> Waiter {
        self.queue(lock(&self.state), event)
    }

    /// Queues an event; gives whom to wake once no lock is held.
    #[inline]
    fn queue(self: &Arc<Self>, mut state: MutexGuard<'_, State>, event: MonitorEvent) -> Waiter {
        if state.is_closed {
            return Waiter::Nobody;
        }
        state.is_closed = matches!(event, MonitorEvent::Closed);
        state.n_merged += state.queue.enter(event, &self.options);
        if self.callbacks.is_some() {
            let is_called = std::mem::replace(&mut state.is_called, true);
            return if is_called { Waiter::Nobody } else { Waiter::Callback(self.clone()) };
        }
        match state.waiters.is_empty() {
            true => Waiter::Nobody,
            false => Waiter::all(std::mem::take(&mut state.waiters)),
        }
    }

    fn pop(&self) -> Option<MonitorEvent> {
        let mut state = lock(&self.state);
        let event = state.queue.leave()?;
        state.n_delivered += u64::from(matches!(event, MonitorEvent::Update(_)));
        Some(event)
    }

    /// Has the callback thread call back all of these, which belong to one context.
    pub(super) fn call(monitors: &mut Vec<Arc<MonitorCore>>) {
        if let Some(callbacks) = monitors.first().and_then(|first| first.callbacks.clone()) {
            callbacks.call(monitors);
        }
    }

    /// Hands the waiting events to the callback, on the callback thread; at most those that wait now.
    pub(super) fn deliver(self: Arc<Self>) {
        let mut state = lock(&self.state);
        let Some(mut callback) = state.callback.take() else { return };
        let mut n_left = state.queue.len();
        while n_left > 0 && !self.is_ended() {
            let Some(event) = state.queue.leave() else { break };
            n_left -= usize::from(!matches!(event, MonitorEvent::Merged(_)));
            drop(state);
            let is_update = matches!(event, MonitorEvent::Update(_));
            // The panic has been reported where it happened; the other monitors go on, and so does this.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| callback(event)));
            state = lock(&self.state);
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

/// A running subscription; ends when dropped.
#[derive(Debug)]
pub struct Monitor {
    core: Arc<MonitorCore>,
    /// Keeps the channel.
    _channel: Channel,
}

impl Monitor {
    pub(super) fn new(core: Arc<MonitorCore>, channel: Channel) -> Monitor {
        Monitor { core, _channel: channel }
    }

    /// The next event; `None` when none comes within `timeout`, and at once when there will be none: after
    /// [`MonitorEvent::Closed`], and for a monitor with a callback, which gets all of them.
    pub fn next(&self, timeout: Duration) -> Option<MonitorEvent> {
        // Not known before it is needed: mostly one waits already.
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
            self.core.channel.hurry();
            std::thread::park_timeout(deadline - now);
        }
    }

    /// The next event as a future, which is woken from the client's reactor. `None` when there will be none: after
    /// [`MonitorEvent::Closed`], and for a monitor with a callback, which gets all of them.
    pub fn next_event(&self) -> impl Future<Output = Option<MonitorEvent>> + '_ {
        std::future::poll_fn(|cx| self.pop_or_wait(|| Waiter::Future(cx.waker().clone())))
    }

    /// How many updates went where so far.
    pub fn counts(&self) -> Counts {
        let state = lock(&self.core.state);
        Counts {
            received: state.n_received,
            merged: state.n_merged,
            delivered: state.n_delivered,
            longest_gap: Duration::from_nanos(state.longest_gap_ns),
            n_disconnected: state.n_disconnected,
        }
    }

    /// The next event, or `None` when there will be none; registers the waiter when one may come.
    fn pop_or_wait(&self, waiter: impl FnOnce() -> Waiter) -> Poll<Option<MonitorEvent>> {
        if self.core.callbacks.is_some() {
            return Poll::Ready(None);
        }
        if let Some(event) = self.core.pop() {
            return Poll::Ready(Some(event));
        }
        let mut state = lock(&self.core.state);
        if !state.queue.is_empty() {
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

impl Drop for Monitor {
    fn drop(&mut self) {
        self.core.is_ended.store(true, Ordering::Release);
        self.core.channel.forget_monitor(&self.core);
        let place = lock(&self.core.state).place.take();
        if let Some((circuit, seat)) = place {
            circuit.cancel(seat);
        }
    }
}
