//! Links to other IOCs, through the IOC's own Channel Access client.
//!
//! Processing queues requests here and continues. One thread executes them, and updates arrive on the callback thread
//! of the client. Only the newest value that a link writes or reads is queued, so the queues are bounded.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context as TaskContext, Wake, Waker};

use fodo_data::{EventMask, Value};
use fodo_db::{ExternalLinkId, ExternalPvEvent, ExternalPvFacts, LinkUsage};
use fodo_net::client::ChannelFacts;
use fodo_net::{Channel, ChannelState, Context, Detail, Monitor, MonitorEvent, MonitorOptions, Operation, Request};

use crate::limit;
use crate::turn::DatabaseDriver;

/// The user of a PV of another IOC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestTarget {
    /// A link of a record.
    Link(ExternalLinkId),
    /// The input of access rules with this PV name.
    Input(Arc<str>),
}

/// How many values of a link were replaced by later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergedCounts {
    /// Updates that arrived faster than records process.
    pub updates: u64,
    /// Puts that were made faster than the server accepts them, or after the server had disconnected.
    pub puts: u64,
}

/// The queued network requests of links and access rules.
#[derive(Debug, Default)]
pub struct LinkRequests {
    state: Mutex<LinkRequestQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LinkRequestQueue {
    wishes: HashMap<RequestTarget, PendingRequest>,
    /// The queue; contains each wish at most once.
    ready: VecDeque<RequestTarget>,
    is_stopped: bool,
}

/// The pending requests of one wish.
#[derive(Debug, Default)]
struct PendingRequest {
    /// The name of the channel to open, and its use.
    open: Option<(String, LinkUsage)>,
    is_over: bool,
    /// The newest value, and the number of the put if its completion is awaited.
    put: Option<(Value, Option<u64>)>,
    is_ready: bool,
    merged: MergedCounts,
    /// The server of the last connection.
    server: Option<SocketAddr>,
}

impl LinkRequests {
    fn lock(&self) -> MutexGuard<'_, LinkRequestQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a connection.
    pub fn open(&self, wish: RequestTarget, name: &str, usage: LinkUsage) {
        let mut state = self.lock();
        let errand = state.wishes.entry(wish.clone()).or_default();
        (errand.open, errand.is_over) = (Some((name.to_owned(), usage)), false);
        self.tell(state, wish);
    }

    /// Requests that the channel is closed.
    pub fn close(&self, wish: RequestTarget) {
        let mut state = self.lock();
        let Some(errand) = state.wishes.get_mut(&wish) else { return };
        if errand.open.is_some() {
            // The thread has not seen the request and may be busy for long. Removing both keeps memory bounded when a
            // link changes repeatedly.
            state.wishes.remove(&wish);
            state.ready.retain(|other| *other != wish);
            return;
        }
        errand.is_over = true;
        self.tell(state, wish);
    }

    /// Requests a put; a later put replaces it if it has not been sent yet.
    pub fn put(&self, link: ExternalLinkId, value: Value, number: Option<u64>) {
        let mut state = self.lock();
        let wish = RequestTarget::Link(link);
        let Some(errand) = state.wishes.get_mut(&wish) else { return };
        let before = errand.put.take();
        errand.merged.puts += u64::from(before.is_some());
        // A put that waits for the replaced value now waits for this one.
        let number = number.or(before.and_then(|(_, number)| number));
        errand.put = Some((value, number));
        self.tell(state, wish);
    }

    /// How many values of a link were merged.
    pub fn merged(&self, link: ExternalLinkId) -> MergedCounts {
        self.lock().wishes.get(&RequestTarget::Link(link)).map(|errand| errand.merged).unwrap_or_default()
    }

    /// The current or last server of a link.
    pub fn server(&self, link: ExternalLinkId) -> Option<SocketAddr> {
        self.lock().wishes.get(&RequestTarget::Link(link)).and_then(|errand| errand.server)
    }

    fn set_server(&self, wish: &RequestTarget, server: SocketAddr) {
        if let Some(errand) = self.lock().wishes.get_mut(wish) {
            errand.server = Some(server);
        }
    }

    /// Stops the thread; pending requests are dropped.
    fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }

    fn count(&self, wish: &RequestTarget, n_updates: u64, n_puts: u64) {
        if let Some(errand) = self.lock().wishes.get_mut(wish) {
            errand.merged.updates += n_updates;
            errand.merged.puts += n_puts;
        }
    }

    /// Queues a wish for the thread.
    fn call(&self, wish: &RequestTarget) {
        self.tell(self.lock(), wish.clone());
    }

    fn tell(&self, mut state: MutexGuard<'_, LinkRequestQueue>, wish: RequestTarget) {
        let Some(errand) = state.wishes.get_mut(&wish) else { return };
        if !std::mem::replace(&mut errand.is_ready, true) {
            state.ready.push_back(wish);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Waits for the next wish with pending requests. Returns `None` when stopped, or, with `has_waiting`, when it is
    /// time to retry the waiting links.
    fn next(&self, has_waiting: bool) -> Option<(RequestTarget, PendingRequest)> {
        let mut state = self.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            if let Some(wish) = state.ready.pop_front() {
                let Some(errand) = state.wishes.get_mut(&wish) else { continue };
                errand.is_ready = false;
                let (open, put, is_over) = (errand.open.take(), errand.put.take(), errand.is_over);
                if is_over {
                    state.wishes.remove(&wish);
                }
                return Some((wish, PendingRequest { open, put, is_over, ..PendingRequest::default() }));
            }
            if has_waiting {
                let (waited, timeout) =
                    self.changed.wait_timeout(state, limit::RETRY).unwrap_or_else(PoisonError::into_inner);
                state = waited;
                if timeout.timed_out() {
                    return None;
                }
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }

    /// Returns a value that could not be sent, unless there is already a later one.
    fn restore_unsent(&self, wish: &RequestTarget, value: Value, number: Option<u64>) {
        let mut state = self.lock();
        let Some(errand) = state.wishes.get_mut(wish) else { return };
        match &mut errand.put {
            Some((_, later)) => {
                *later = later.or(number);
                errand.merged.puts += 1;
            }
            none => *none = Some((value, number)),
        }
    }
}

/// A waker that queues one wish.
struct LinkWaker {
    errands: Weak<LinkRequests>,
    wish: RequestTarget,
}

impl Wake for LinkWaker {
    fn wake(self: Arc<Self>) {
        if let Some(errands) = self.errands.upgrade() {
            errands.call(&self.wish);
        }
    }
}

/// The Channel Access client of an IOC. Dropping it closes everything without waiting for a server.
#[derive(Debug)]
pub struct LinkClient {
    errands: Arc<LinkRequests>,
    context: Context,
}

impl LinkClient {
    /// Starts the thread.
    pub fn start(crank: &Arc<DatabaseDriver>, context: Context) -> io::Result<LinkClient> {
        let errands = crank.errands().clone();
        let mut runner = LinkThread { crank: crank.clone(), context: context.clone(), doors: HashMap::new() };
        let started = errands.clone();
        std::thread::Builder::new().name("fodo-links".into()).spawn(move || runner.run(&started))?;
        Ok(LinkClient { errands, context })
    }
}

impl Drop for LinkClient {
    fn drop(&mut self) {
        self.errands.stop();
        self.context.close();
    }
}

/// The state of the thread.
struct LinkThread {
    crank: Arc<DatabaseDriver>,
    context: Context,
    doors: HashMap<RequestTarget, OpenLink>,
}

/// The open channel of a wish.
struct OpenLink {
    channel: Channel,
    /// Keeps the subscription alive.
    _monitor: Monitor,
    /// A put whose completion is awaited, and its number.
    writing: Option<(u64, Operation<()>)>,
}

impl LinkThread {
    fn run(&mut self, errands: &Arc<LinkRequests>) {
        // Links whose circuits are full.
        let mut waiting: Vec<RequestTarget> = Vec::new();
        while !errands.is_stopped() {
            let Some((wish, errand)) = errands.next(!waiting.is_empty()) else {
                waiting.drain(..).for_each(|wish| errands.call(&wish));
                continue;
            };
            if errand.is_over {
                self.doors.remove(&wish);
                continue;
            }
            if let Some((name, usage)) = errand.open
                && let Some(door) = self.open(errands, &wish, &name, usage)
            {
                self.doors.insert(wish.clone(), door);
            }
            if let Some((value, number)) = errand.put
                && !self.put(errands, &wish, value, number)
            {
                waiting.push(wish.clone());
            }
            self.poll_put(errands, &wish);
        }
    }

    /// Opens a channel; `None` if the name is invalid, so that it can never connect.
    fn open(
        &self,
        errands: &Arc<LinkRequests>,
        wish: &RequestTarget,
        name: &str,
        usage: LinkUsage,
    ) -> Option<OpenLink> {
        let channel = self.context.channel_at(name, limit::LINK_PRIORITY).ok()?;
        let (crank, callback_wish, callback_errands) = (self.crank.clone(), wish.clone(), Arc::downgrade(errands));
        let tell = move |event| tell(&crank, &callback_errands, &callback_wish, event);
        let monitor = channel.monitor_with(options(usage), tell).ok()?;
        Some(OpenLink { channel, _monitor: monitor, writing: None })
    }

    /// Sends a value; returns false if it must wait.
    fn put(&mut self, errands: &LinkRequests, wish: &RequestTarget, value: Value, number: Option<u64>) -> bool {
        let Some(door) = self.doors.get_mut(wish) else { return true };
        if door.channel.state() != ChannelState::Active {
            errands.count(wish, 0, 1);
            self.written(wish, number);
            return true;
        }
        if door.channel.unsent_bytes() > limit::UNSENT_BYTES_MAX {
            errands.restore_unsent(wish, value, number);
            return false;
        }
        match number {
            Some(number) => door.writing = Some((number, door.channel.start_put(value))),
            // Unconfirmed: the result only reports whether the channel was lost at this moment.
            None => drop(door.channel.start_put_unconfirmed(value)),
        }
        true
    }

    /// Reports the end of a put; if it has not ended, registers a waker for it.
    fn poll_put(&mut self, errands: &Arc<LinkRequests>, wish: &RequestTarget) {
        let Some(door) = self.doors.get_mut(wish) else { return };
        let Some((number, operation)) = &mut door.writing else { return };
        let number = *number;
        let waker = Waker::from(Arc::new(LinkWaker { errands: Arc::downgrade(errands), wish: wish.clone() }));
        let has_ended = Pin::new(operation).poll(&mut TaskContext::from_waker(&waker)).is_ready();
        // A put that was not sent before the channel was lost must not be sent after a reconnect.
        let is_lost = !matches!(door.channel.state(), ChannelState::Active | ChannelState::Unresponsive);
        if has_ended || is_lost {
            // The result of the put is ignored, as in Base.
            door.writing = None;
            self.written(wish, Some(number));
        }
    }

    fn written(&self, wish: &RequestTarget, number: Option<u64>) {
        if let (RequestTarget::Link(link), Some(put)) = (wish, number) {
            self.crank.handle_link_event(*link, ExternalPvEvent::PutDone { put });
        }
    }
}

/// The monitor options of a link; only the newest update is queued. A link that writes subscribes only to follow the
/// connection, so it requests one element, and updates only when labels or limits change.
fn options(usage: LinkUsage) -> MonitorOptions {
    match usage {
        LinkUsage::Reads => MonitorOptions {
            request: Request { detail: Detail::Full, ..Request::default() },
            ..MonitorOptions::newest()
        },
        LinkUsage::Writes => MonitorOptions {
            request: Request { detail: Detail::Value, count: 1, kind: None },
            mask: EventMask::PROPERTY,
            ..MonitorOptions::newest()
        },
    }
}

/// Handles an event of a subscription, on the callback thread.
fn tell(crank: &DatabaseDriver, errands: &Weak<LinkRequests>, wish: &RequestTarget, event: MonitorEvent) {
    if let Some(errands) = errands.upgrade() {
        match &event {
            MonitorEvent::Connected(facts) => errands.set_server(wish, facts.server),
            MonitorEvent::Merged(n) => errands.count(wish, *n, 0),
            MonitorEvent::Disconnected => errands.call(wish),
            _ => {}
        }
    }
    match wish {
        RequestTarget::Link(link) => {
            if let Some(news) = to_link_event(event) {
                crank.handle_link_event(*link, news);
            }
        }
        RequestTarget::Input(name) => match event {
            MonitorEvent::Update(reading) => crank.set_remote_input(name, Some(reading)),
            MonitorEvent::Disconnected
            | MonitorEvent::Unresponsive
            | MonitorEvent::Refused(_)
            | MonitorEvent::WrongReply(_) => {
                crank.set_remote_input(name, None);
            }
            _ => {}
        },
    }
}

fn to_link_event(event: MonitorEvent) -> Option<ExternalPvEvent> {
    Some(match event {
        MonitorEvent::Connected(facts) => ExternalPvEvent::Connected(outside(&facts)),
        MonitorEvent::Rights(facts) => {
            ExternalPvEvent::AccessRights { may_read: facts.may_read, may_write: facts.may_write }
        }
        MonitorEvent::Update(reading) => ExternalPvEvent::Updated(reading),
        MonitorEvent::Unresponsive => ExternalPvEvent::Unresponsive,
        MonitorEvent::Responsive => ExternalPvEvent::Responsive,
        MonitorEvent::Disconnected => ExternalPvEvent::Disconnected,
        _ => return None,
    })
}

fn outside(facts: &ChannelFacts) -> ExternalPvFacts {
    let ChannelFacts { kind, count_max, may_read, may_write, .. } = *facts;
    ExternalPvFacts { kind, count_max, may_read, may_write }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use fodo_data::Now;
    use fodo_db::{Event, Input, Loader};

    use super::*;

    /// A link identifier from a database.
    fn link() -> ExternalLinkId {
        let mut loader = Loader::default();
        let db = br#"record(ao, "a") { field(OUT, "far") }"#;
        loader.load("test.db", "", &mut |_| Ok(db.to_vec())).unwrap();
        let mut events = Vec::new();
        let now = Now { monotonic: Instant::now(), wall: std::time::SystemTime::now().into() };
        loader.finish().unwrap().handle(Input::Start, now, &mut events).unwrap();
        let wanted = events
            .iter()
            .find_map(|event| if let Event::ExternalLinkAdded { link, .. } = event { Some(*link) } else { None });
        wanted.unwrap()
    }

    #[test]
    fn of_what_a_link_writes_the_newest_waits_with_whoever_waits_and_the_others_are_counted() {
        let (errands, link) = (LinkRequests::default(), link());
        errands.open(RequestTarget::Link(link), "far", LinkUsage::Writes);

        errands.put(link, 1.0.into(), None);
        errands.put(link, 2.0.into(), Some(2));
        errands.put(link, 3.0.into(), None);

        let (_, errand) = errands.next(false).unwrap();
        assert_eq!((errand.open.is_some(), errand.put), (true, Some((3.0.into(), Some(2)))));
        assert_eq!(errands.merged(link), MergedCounts { updates: 0, puts: 2 });
        errands.put(link, 5.0.into(), None);
        errands.restore_unsent(&RequestTarget::Link(link), 4.0.into(), Some(4));
        let (_, errand) = errands.next(false).unwrap();
        assert_eq!(errand.put, Some((5.0.into(), Some(4))));
        assert_eq!(errands.merged(link).puts, 3);
    }

    #[test]
    fn links_that_change_before_the_thread_has_come_to_them_leave_nothing_behind() {
        let errands = LinkRequests::default();
        let wish = |name: &str| RequestTarget::Input(name.into());

        for _ in 0..100 {
            errands.open(wish("a"), "a", LinkUsage::Reads);
            errands.close(wish("a"));
        }
        errands.open(wish("b"), "b", LinkUsage::Reads);

        let held = |state: MutexGuard<'_, LinkRequestQueue>| (state.wishes.len(), state.ready.len());
        assert_eq!(held(errands.lock()), (1, 1));
        assert_eq!(errands.next(false).unwrap().0, wish("b"));
    }

    #[test]
    fn a_link_that_reads_gets_values_with_limits_and_one_that_writes_only_changes_of_these() {
        let (reads, writes) = (options(LinkUsage::Reads), options(LinkUsage::Writes));

        assert_eq!((reads.request.detail, reads.request.count), (Detail::Full, 0));
        assert_eq!(reads.mask, MonitorOptions::default().mask);
        assert_eq!((writes.request.detail, writes.request.count), (Detail::Value, 1));
        assert_eq!(writes.mask, EventMask::PROPERTY);
    }
}
