use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use fodo_ca::eca::Eca;
use fodo_data::{EventMask, Meta, Reading};

use super::callbacks::Callbacks;
use super::channel::{Channel, ChannelCore};
use super::circuit::{Circuit, Seat};
use super::operation::{Waiter, deadline_after};
use super::{Facts, Refusal, Request};
use crate::limit;
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
pub(super) struct MonitorCore {
    channel: Arc<ChannelCore>,
    options: MonitorOptions,
    state: Mutex<State>,
    callback: Option<(Mutex<Callback>, Arc<Callbacks>)>,
    is_ended: AtomicBool,
}

struct State {
    events: VecDeque<Queued>,
    /// Updates among them.
    n_updates: usize,
    /// Bytes of their values.
    queued_bytes: usize,
    counts: Counts,
    /// When the last update came on this circuit.
    updated_at: Option<Instant>,
    waiters: Vec<Waiter>,
    /// Whether the last event was queued: what was on its way then is not an event any more.
    is_closed: bool,
    /// Whether the callback thread has been told that there are events.
    is_called: bool,
    place: Option<(Arc<Circuit>, Seat)>,
    /// Units, limits and labels, where they are wanted with every update.
    meta: Option<Arc<Meta>>,
}

/// An event that waits.
struct Queued {
    event: MonitorEvent,
    /// Updates that it has replaced, and that are to be told before it.
    n_merged: u64,
}

impl Queued {
    fn is_update(&self) -> bool {
        matches!(self.event, MonitorEvent::Update(_))
    }

    fn bytes(&self) -> usize {
        match &self.event {
            MonitorEvent::Update(reading) => reading.value.n_bytes(),
            _ => 0,
        }
    }
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
        Arc::new(MonitorCore {
            channel,
            options,
            state: Mutex::new(State {
                events: VecDeque::new(),
                n_updates: 0,
                queued_bytes: 0,
                updated_at: None,
                counts: Counts::default(),
                waiters: Vec::new(),
                is_closed: false,
                is_called: false,
                place: None,
                meta: None,
            }),
            callback: callback.map(|(callback, thread)| (Mutex::new(callback), thread)),
            is_ended: AtomicBool::new(false),
        })
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
        (state.place, state.updated_at) = (None, None);
        state.counts.n_disconnected += 1;
        drop(state);
        self.push(MonitorEvent::Disconnected)
    }

    /// The context is closed.
    pub(super) fn closed(self: &Arc<Self>) -> Waiter {
        lock(&self.state).place = None;
        self.push(MonitorEvent::Closed)
    }

    /// `at`: when the circuit brought it.
    pub(super) fn updated(self: &Arc<Self>, result: Result<Reading, Eca>, at: Instant) -> Waiter {
        let mut reading = match result {
            Ok(reading) => reading,
            Err(status) => return self.push(MonitorEvent::Refused(Refusal::Status(status))),
        };
        let mut state = lock(&self.state);
        let State { counts, updated_at, meta, .. } = &mut *state;
        counts.received += 1;
        if let Some(before) = updated_at.replace(at) {
            counts.longest_gap = counts.longest_gap.max(at.saturating_duration_since(before));
        }
        if let Some(meta) = meta {
            reading.meta = Some(meta.clone());
        }
        self.queue(state, MonitorEvent::Update(reading))
    }

    fn push(self: &Arc<Self>, event: MonitorEvent) -> Waiter {
        self.queue(lock(&self.state), event)
    }

    /// Queues an event; gives whom to wake once no lock is held.
    fn queue(self: &Arc<Self>, mut state: MutexGuard<'_, State>, event: MonitorEvent) -> Waiter {
        if state.is_closed {
            return Waiter::Nobody;
        }
        state.is_closed = event == MonitorEvent::Closed;
        state.enter(Queued { event, n_merged: 0 }, &self.options);
        if self.callback.is_some() {
            let is_called = std::mem::replace(&mut state.is_called, true);
            return if is_called { Waiter::Nobody } else { Waiter::Callback(Arc::downgrade(self)) };
        }
        Waiter::all(std::mem::take(&mut state.waiters))
    }

    fn pop(&self) -> Option<MonitorEvent> {
        let mut state = lock(&self.state);
        let event = state.leave()?;
        state.counts.delivered += u64::from(matches!(event, MonitorEvent::Update(_)));
        Some(event)
    }

    /// Has the callback thread call back all of these, which belong to one context.
    pub(super) fn call(monitors: &mut Vec<Weak<MonitorCore>>) {
        let Some(first) = monitors.iter().find_map(Weak::upgrade) else { return monitors.clear() };
        if let Some((_, callbacks)) = &first.callback {
            callbacks.call(monitors.drain(..));
        }
    }

    /// Hands the waiting events to the callback, on the callback thread; at most those that wait now.
    pub(super) fn deliver(self: &Arc<Self>) {
        let Some((callback, callbacks)) = &self.callback else { return };
        let mut callback = lock(callback);
        let mut state = lock(&self.state);
        let mut n_left = state.events.len();
        while n_left > 0 {
            if self.is_ended() {
                return;
            }
            let Some(event) = state.leave() else { break };
            n_left -= usize::from(!matches!(event, MonitorEvent::Merged(_)));
            drop(state);
            let is_update = matches!(event, MonitorEvent::Update(_));
            // The panic has been reported where it happened; the other monitors go on, and so does this.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| callback(event)));
            state = lock(&self.state);
            state.counts.delivered += u64::from(is_update);
        }
        state.is_called = !state.events.is_empty();
        if state.is_called {
            callbacks.call(std::iter::once(Arc::downgrade(self)));
        }
    }
}

impl State {
    /// Takes an event into the queue.
    fn enter(&mut self, mut new: Queued, options: &MonitorOptions) {
        if new.is_update() {
            while self.is_full(&new, options) && self.give_up(&mut new, options.when_full) {}
            self.n_updates += 1;
            self.queued_bytes += new.bytes();
        } else if self.events.len() - self.n_updates >= limit::CONNECTION_EVENTS
            && let Some(oldest) = self.events.iter().position(|queued| !queued.is_update())
        {
            // The newest says how things stand.
            self.events.remove(oldest);
        }
        self.events.push_back(new);
    }

    fn is_full(&self, new: &Queued, options: &MonitorOptions) -> bool {
        let holds_values = self.queued_bytes > 0;
        self.n_updates >= options.queue_max.max(1)
            || (holds_values && self.queued_bytes + new.bytes() > limit::MONITOR_QUEUE_BYTES)
    }

    /// Gives up one update for `new`; false when there is none.
    fn give_up(&mut self, new: &mut Queued, when_full: WhenFull) -> bool {
        let index = match when_full {
            WhenFull::ReplaceLast => self.events.iter().rposition(Queued::is_update),
            WhenFull::DropOldest => self.events.iter().position(Queued::is_update),
        };
        let Some(given_up) = index.and_then(|index| self.events.remove(index)) else { return false };
        self.n_updates -= 1;
        self.queued_bytes -= given_up.bytes();
        self.counts.merged += 1;
        let n_merged = given_up.n_merged + 1;
        // The next update tells of it.
        match self.events.iter_mut().skip(index.unwrap_or(0)).find(|queued| queued.is_update()) {
            Some(next) => next.n_merged += n_merged,
            None => new.n_merged += n_merged,
        }
        true
    }

    /// The next event for the user: of an update that has replaced others, first that it has.
    fn leave(&mut self) -> Option<MonitorEvent> {
        let first = self.events.front_mut()?;
        if first.n_merged > 0 {
            return Some(MonitorEvent::Merged(std::mem::take(&mut first.n_merged)));
        }
        self.n_updates -= usize::from(first.is_update());
        self.queued_bytes -= first.bytes();
        self.events.pop_front().map(|queued| queued.event)
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

    /// The next event; `None` when none comes within `timeout`. With a callback there is never one here.
    pub fn next(&self, timeout: Duration) -> Option<MonitorEvent> {
        let deadline = deadline_after(timeout);
        loop {
            if let Some(event) = self.pop_or_wait(|| Waiter::Thread(std::thread::current())) {
                return Some(event);
            }
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            self.core.channel.hurry();
            std::thread::park_timeout(deadline - now);
        }
    }

    /// The next event as a future; it is woken from the client's reactor.
    pub fn next_event(&self) -> impl Future<Output = MonitorEvent> + '_ {
        std::future::poll_fn(|cx| match self.pop_or_wait(|| Waiter::Future(cx.waker().clone())) {
            Some(event) => Poll::Ready(event),
            None => Poll::Pending,
        })
    }

    /// How many updates went where so far.
    pub fn counts(&self) -> Counts {
        lock(&self.core.state).counts
    }

    fn pop_or_wait(&self, waiter: impl FnOnce() -> Waiter) -> Option<MonitorEvent> {
        if self.core.callback.is_some() {
            return None;
        }
        if let Some(event) = self.core.pop() {
            return Some(event);
        }
        let mut state = lock(&self.core.state);
        if state.events.is_empty() {
            waiter().join(&mut state.waiters);
            return None;
        }
        drop(state);
        self.core.pop()
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
