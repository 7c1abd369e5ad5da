//! Monitor groups: the updates of many PVs as rows in one buffer.
//!
//! The thread that reads a circuit stages the rows of each received piece (`circuit/row_stages`) and then adds them to the
//! group under one lock, so an update takes no lock of its own. [`rows`] holds the buffer and its rules.

mod rows;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use fodo_data::{EventMask, Kind};
use fodo_lock::Mutex;

use self::rows::WaitingRows;
pub(super) use self::rows::single_number;
pub use self::rows::{GroupChange, GroupCounts, GroupRow, GroupRows};
use super::monitor::{Monitor, MonitorEvent, MonitorOptions};
use super::operation::{Waiter, deadline_after};
use super::{Channel, Context, Error, Request};
use crate::limit;

/// Which updates a [`MonitorGroup`] receives, and how many it keeps.
///
/// # Examples
///
/// ```
/// use fodo_net::{EventMask, GroupOptions};
///
/// // Changes of alarms only, and at most a thousand rows.
/// let options = GroupOptions { mask: EventMask::ALARM, rows_max: 1000, ..GroupOptions::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// Which changes cause an update. Default: [`EventMask::VALUE`] and [`EventMask::ALARM`].
    pub mask: EventMask,
    /// With this many rows waiting, an update replaces the last row of its PV, which counts it as
    /// [`merged`](GroupRow::merged). A PV without a row adds one: so each PV always keeps its newest update, and the group
    /// at most this many rows and one more for each PV. Default: 1 Mi (1048576) rows, which take 32 MiB; 0 keeps only the
    /// newest update of each PV.
    pub rows_max: usize,
    /// With pvAccess: the same as [`MonitorOptions::window`]. Default: `None`.
    pub window: Option<u32>,
}

impl Default for GroupOptions {
    fn default() -> Self {
        GroupOptions { mask: EventMask::VALUE | EventMask::ALARM, rows_max: limit::GROUP_ROWS, window: None }
    }
}

impl GroupOptions {
    /// Only the newest update of each PV is kept, as a display needs it.
    /// See the example of [`MonitorGroup`].
    pub fn newest() -> GroupOptions {
        GroupOptions { rows_max: 0, ..GroupOptions::default() }
    }

    /// The options of each PV's subscription. The server of Channel Access converts to F64, the client what it receives with
    /// pvAccess.
    pub(super) fn of_monitor(self) -> MonitorOptions {
        let request = Request { kind: Some(Kind::F64), ..Request::default() };
        MonitorOptions { request, mask: self.mask, window: self.window, ..MonitorOptions::default() }
    }
}

/// The part of a group that its PVs and its owner share.
#[derive(Debug)]
pub(crate) struct GroupCore {
    state: Mutex<GroupBuffer>,
}

#[derive(Debug)]
struct GroupBuffer {
    waiting: WaitingRows,
    waiters: Vec<Waiter>,
}

impl GroupCore {
    /// Adds updates, in order. Returns the waiter to wake after releasing all locks.
    pub(super) fn receive(&self, rows: &[GroupRow], n_overrun: u64) -> Waiter {
        let mut state = self.state.lock();
        state.waiting.receive(rows, n_overrun);
        Waiter::all(std::mem::take(&mut state.waiters))
    }

    /// The context was closed. Returns the waiter to wake: without PVs, no change would wake it.
    pub(super) fn end_with_context(&self) -> Waiter {
        let mut state = self.state.lock();
        state.waiting.context_closed();
        Waiter::all(std::mem::take(&mut state.waiters))
    }

    /// Adds a change of a PV's connection; updates and merged counts are not changes. Returns the waiter to wake after
    /// releasing all locks.
    pub(super) fn changed(&self, index: u32, event: MonitorEvent) -> Waiter {
        let Some(event) = event.without_update() else { return Waiter::None };
        let mut state = self.state.lock();
        state.waiting.change(index, event);
        Waiter::all(std::mem::take(&mut state.waiters))
    }
}

/// Subscriptions to many PVs whose updates become rows in one buffer: for programs that process updates together, such as
/// archivers, displays of many PVs, and bindings for other languages.
///
/// An update costs a fraction of one of a [`Monitor`], because the buffer is locked once for each piece of data received
/// from a server, and because a [`GroupRow`] is a plain structure. [`MonitorGroup::take`] takes all rows at once, in
/// constant time.
///
/// The PVs are numbers: scalars and enums, over Channel Access and pvAccess. A PV that is an array, a string or a structure
/// is refused when it connects, with a [`MonitorEvent::WrongReply`] that says so; use a [`Monitor`] for it.
///
/// Each PV has an index, the lowest one first. Connections and disconnections are [`GroupChange`]s, of which each PV keeps
/// the newest. Nothing is lost silently: each row and each change contains how many earlier ones it has replaced because the
/// program did not take them in time, and [`MonitorGroup::counts`] accounts for every update.
///
/// One thread or task should take the rows; with several, each receives a part of them. The subscriptions end when the group
/// is dropped. A group is `Send` and `Sync`, so that PVs can be added and removed meanwhile.
///
/// # Examples
///
/// ```
/// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
/// use std::time::Duration;
///
/// use fodo_net::{GroupOptions, GroupRows, MonitorEvent};
///
/// let names = ["demo:temperature", "demo:gap"];
/// let group = context.monitor_group(GroupOptions::default());
/// let added = group.add(&names);
/// assert_eq!(added, [Ok(0), Ok(1)]);
///
/// let mut taken = GroupRows::default();
/// let mut values = [f64::NAN; 2];
/// while values.iter().any(|value| value.is_nan()) {
///     assert!(group.take(&mut taken, Duration::from_secs(5)), "no update within 5 s");
///     for change in &taken.changes {
///         match &change.event {
///             MonitorEvent::Connected(facts) => println!("{} is connected to {}", change.index, facts.server),
///             MonitorEvent::Disconnected => println!("{} is disconnected", change.index),
///             event => println!("{}: {event:?}", change.index),
///         }
///     }
///     for row in &taken.rows {
///         values[row.index as usize] = row.value;
///     }
/// }
/// assert_eq!(values, [21.5, 12.5]);
///
/// let counts = group.counts();
/// assert_eq!(counts.received, counts.delivered + counts.merged + counts.removed + counts.waiting);
/// # Ok::<(), fodo_net::Error>(())
/// ```
///
/// A display draws the newest values every 100 ms:
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use fodo_net::{Context, GroupOptions, GroupRows};
///
/// let group = Context::from_env()?.monitor_group(GroupOptions::newest());
/// group.add(&["machine:current", "machine:lifetime"]);
/// let mut taken = GroupRows::default();
/// loop {
///     std::thread::sleep(Duration::from_millis(100));
///     if group.take(&mut taken, Duration::ZERO) {
///         println!("{:?}", taken.rows);
///     }
/// }
/// # }
/// ```
pub struct MonitorGroup {
    core: Arc<GroupCore>,
    context: Context,
    options: MonitorOptions,
    /// By index.
    monitors: Mutex<Vec<Option<Monitor>>>,
}

impl fmt::Debug for MonitorGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MonitorGroup").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Context {
    /// Creates a group without PVs. See the example of [`MonitorGroup`].
    pub fn monitor_group(&self, options: GroupOptions) -> MonitorGroup {
        let state = GroupBuffer { waiting: WaitingRows::new(options.rows_max), waiters: Vec::new() };
        let core = Arc::new(GroupCore { state: Mutex::new(state) });
        self.core.add_group(&core);
        MonitorGroup { core, context: self.clone(), options: options.of_monitor(), monitors: Mutex::default() }
    }
}

impl MonitorGroup {
    #[cfg(test)]
    pub(super) fn core(&self) -> &Arc<GroupCore> {
        &self.core
    }
}

/// PVs.
impl MonitorGroup {
    /// Adds PVs by their names, each with a channel of its own; returns their indexes in the order of the names. A name fails
    /// as in [`Context::channel`], the others are added. Costs no round trip: the PVs connect in the background, and again
    /// after a failure.
    ///
    /// Rows of a PV can be taken before the call returns its index. See the example of [`MonitorGroup`].
    pub fn add<N: AsRef<str>>(&self, names: &[N]) -> Vec<Result<u32, Error>> {
        let add = |name: &N| self.add_channel(&self.context.channel(name.as_ref())?);
        names.iter().map(add).collect()
    }

    /// Adds the PV of a channel, which may have other subscriptions as well, also in this group. Fails if the channel belongs
    /// to another context.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use fodo_net::GroupOptions;
    ///
    /// let gap = context.channel_at("demo:gap", 50)?;
    /// let group = context.monitor_group(GroupOptions::default());
    /// let index = group.add_channel(&gap)?;
    ///
    /// assert_eq!(group.channel(index).unwrap().name(), "demo:gap");
    /// assert!(group.remove(index) && group.is_empty());
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn add_channel(&self, channel: &Channel) -> Result<u32, Error> {
        if !channel.core().is_of(&self.context.core) {
            return Err(Error::misuse(
                channel.name(),
                "the channel belongs to another context than the group",
                "open it with the context of the group",
            ));
        }
        let index = self.core.state.lock().waiting.add();
        let monitor = channel.monitor_rows(self.options, &self.core, index);
        let mut monitors = self.monitors.lock();
        let place = index as usize;
        if monitors.len() <= place {
            monitors.resize_with(place + 1, || None);
        }
        monitors[place] = Some(monitor);
        Ok(index)
    }

    /// Ends the subscription of a PV; its rows and changes that were not taken are dropped, and the rows counted as
    /// [`removed`](GroupCounts::removed). The next call of [`MonitorGroup::take`] makes the index available to other PVs.
    /// Returns false if the group has no PV with this index. See the example of [`MonitorGroup::add_channel`].
    pub fn remove(&self, index: u32) -> bool {
        let removed = self.monitors.lock().get_mut(index as usize).and_then(Option::take);
        let Some(monitor) = removed else { return false };
        // No row is received after this.
        drop(monitor);
        let mut state = self.core.state.lock();
        state.waiting.remove(index);
        // The context may have been closed, and this PV the only one without its change.
        let is_closed = state.waiting.is_closed();
        let waiters = if is_closed { std::mem::take(&mut state.waiters) } else { Vec::new() };
        drop(state);
        Waiter::all(waiters).wake();
        true
    }

    /// The channel of a PV, for instance to ask why it is not connected ([`Channel::why_inactive`]). `None` if the group has
    /// no PV with this index. See the example of [`MonitorGroup::add_channel`].
    pub fn channel(&self, index: u32) -> Option<Channel> {
        self.monitors.lock().get(index as usize)?.as_ref().map(|monitor| monitor.channel().clone())
    }

    /// The number of PVs. See the example of [`MonitorGroup::add_channel`].
    pub fn len(&self) -> usize {
        self.monitors.lock().iter().flatten().count()
    }

    /// Whether the group has no PV. See the example of [`MonitorGroup::add_channel`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Rows.
impl MonitorGroup {
    /// Waits until there are rows or changes, and takes all of them; `taken` contains nothing else afterwards. Returns false
    /// if there are none within `timeout`, or no more because the context was closed.
    ///
    /// Costs no round trip. The buffers are exchanged, so the memory of `taken` is used for later rows: keep it for the next
    /// call. See the example of [`MonitorGroup`].
    pub fn take(&self, taken: &mut GroupRows, timeout: Duration) -> bool {
        // Computed only when needed: a busy group has rows already.
        let mut deadline = None;
        loop {
            if let Poll::Ready(has_any) = self.take_or_wait(taken, || Waiter::Thread(std::thread::current())) {
                return has_any;
            }
            let deadline = *deadline.get_or_insert_with(|| deadline_after(timeout));
            let now = Instant::now();
            if now >= deadline {
                return false;
            }
            self.context.core.flush_searches();
            std::thread::park_timeout(deadline - now);
        }
    }

    /// The same as a future, without a timeout; the client's reactor wakes it. Dropping the future loses nothing, so that it
    /// can be used in `select!`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use fodo_net::{GroupOptions, GroupRows};
    ///
    /// # pollster::block_on(async {
    /// let group = context.monitor_group(GroupOptions::default());
    /// group.add(&["demo:gap"]);
    /// let mut taken = GroupRows::default();
    /// while group.next_rows(&mut taken).await {
    ///     if let [row, ..] = taken.rows[..] {
    ///         println!("{}", row.value);
    ///         break;
    ///     }
    /// }
    /// # });
    /// ```
    pub fn next_rows(&self, taken: &mut GroupRows) -> impl Future<Output = bool> {
        std::future::poll_fn(move |context| self.poll_take(context, taken))
    }

    /// The same for programs with an event loop of their own: if nothing waits, the waker is woken once, when there are rows
    /// or changes. A waker can write to a file descriptor that the loop watches; it is called on a thread of the client and
    /// must not block.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use std::io::{Read, Write, pipe};
    /// use std::sync::Arc;
    /// use std::task::{Context, Poll, Wake, Waker};
    ///
    /// use fodo_net::{GroupOptions, GroupRows};
    ///
    /// /// Makes a descriptor readable.
    /// struct Doorbell(std::io::PipeWriter);
    ///
    /// impl Wake for Doorbell {
    ///     fn wake(self: Arc<Self>) {
    ///         // Fails when the loop has ended; then no one needs the rows.
    ///         let _ = (&self.0).write(&[0]);
    ///     }
    /// }
    ///
    /// let (mut readable, writer) = pipe().unwrap();
    /// let waker = Waker::from(Arc::new(Doorbell(writer)));
    /// let group = context.monitor_group(GroupOptions::default());
    /// group.add(&["demo:gap"]);
    ///
    /// let mut taken = GroupRows::default();
    /// while taken.rows.is_empty() {
    ///     if let Poll::Pending = group.poll_take(&mut Context::from_waker(&waker), &mut taken) {
    ///         // The loop would wait for several descriptors here.
    ///         readable.read_exact(&mut [0]).unwrap();
    ///     }
    /// }
    /// assert_eq!(taken.rows[0].value, 12.5);
    /// ```
    pub fn poll_take(&self, context: &mut task::Context<'_>, taken: &mut GroupRows) -> Poll<bool> {
        self.take_or_wait(taken, || Waiter::Future(context.waker().clone()))
    }

    /// The counters so far. See the example of [`MonitorGroup`].
    pub fn counts(&self) -> GroupCounts {
        self.core.state.lock().waiting.counts()
    }

    /// Takes what there is, or registers the waiter if something can follow.
    fn take_or_wait(&self, taken: &mut GroupRows, waiter: impl FnOnce() -> Waiter) -> Poll<bool> {
        taken.clear();
        let mut state = self.core.state.lock();
        if state.waiting.take(taken) {
            return Poll::Ready(true);
        }
        if state.waiting.is_closed() {
            return Poll::Ready(false);
        }
        waiter().join(&mut state.waiters);
        Poll::Pending
    }
}
