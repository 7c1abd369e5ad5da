//! Links to other IOCs over Channel Access, and links over pvAccess, through the IOC's own client.
//!
//! Processing queues requests here and continues. One thread executes them, and updates arrive on the callback thread
//! of the client. Only the newest value that a link writes or reads is queued, so the queues are bounded.

mod field_view;
mod log;
mod pva;
mod shared;
pub mod state;

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Instant;

use fodo_data::{EventMask, Value};
use fodo_db::{ExternalLinkId, ExternalPvEvent, ExternalPvFacts, LinkUsage, PvaLink};
use fodo_lock::{Condvar, Mutex, MutexGuard};
use fodo_net::client::ChannelFacts;
use fodo_net::log::{Level, Log};
use fodo_net::{
    Channel, ChannelState, Context, Detail, Error, ErrorKind, Monitor, MonitorEvent, MonitorOptions, Operation,
    Refusal, Request,
};

pub use self::pva::OwnServer;
use self::pva::SharedChannels;
pub use self::shared::SharedLinkKey;
use self::shared::{SharedLink, SharedPut, SharedRequests};
use self::state::{LinkStates, LinkTrouble};
use crate::driver::DatabaseDriver;
use crate::limit;

/// The user of a PV of another IOC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestTarget {
    /// A link of a record.
    Link(ExternalLinkId),
    /// The input of access rules with this PV name.
    Input(Arc<str>),
    /// The channel that links over pvAccess share.
    Shared(Arc<SharedLinkKey>),
}

/// How many values of a link were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkLosses {
    /// Updates that later ones replaced, because they arrived faster than records process.
    pub merged_updates: u64,
    /// Puts that were made faster than the server accepts them, or after the server had disconnected.
    pub merged_puts: u64,
    /// Puts over pvAccess that the PV cannot hold, or that the server refused.
    pub refused_puts: u64,
}

/// The queued network requests of links and access rules.
#[derive(Debug, Default)]
pub struct LinkRequests {
    state: Mutex<LinkRequestQueue>,
    changed: Condvar,
    /// What is known about the connections.
    states: LinkStates,
}

#[derive(Debug, Default)]
struct LinkRequestQueue {
    targets: HashMap<RequestTarget, PendingRequest>,
    /// The queue; contains each target at most once.
    ready: VecDeque<RequestTarget>,
    /// The links over pvAccess: the target of their channel, and whether their puts are deferred.
    shared: HashMap<ExternalLinkId, (RequestTarget, bool)>,
    is_stopped: bool,
}

/// The pending requests of one target.
#[derive(Debug, Default)]
struct PendingRequest {
    /// The name of the channel to open, and its use.
    open: Option<(String, LinkUsage)>,
    is_over: bool,
    /// The newest value, and the number of the put if its completion is awaited.
    put: Option<(Value, Option<u64>)>,
    /// The requests of the links of a shared channel; `None` for other targets.
    shared: Option<Box<SharedRequests>>,
    is_ready: bool,
    losses: LinkLosses,
}

impl LinkRequests {
    /// Requests a connection.
    pub fn open(&self, target: RequestTarget, name: &str, usage: LinkUsage) {
        self.states.add(target.clone(), name, Instant::now());
        let mut state = self.state.lock();
        let pending = state.targets.entry(target.clone()).or_default();
        (pending.open, pending.is_over) = (Some((name.to_owned(), usage)), false);
        self.enqueue(state, target);
    }

    /// Requests the connection of a link over pvAccess, on the channel of all links to the PV.
    pub fn open_shared(&self, id: ExternalLinkId, options: Arc<PvaLink>, usage: LinkUsage) {
        let link = RequestTarget::Link(id);
        self.states.add(link.clone(), &options.pv.to_str(), Instant::now());
        let target = RequestTarget::Shared(Arc::new(SharedLinkKey::of(&options)));
        let mut state = self.state.lock();
        state.shared.insert(id, (target.clone(), options.defers));
        // Only counts.
        state.targets.entry(link).or_default();
        let pending = state.targets.entry(target.clone()).or_default();
        pending.shared.get_or_insert_default().added.push(SharedLink { id, options, usage });
        self.enqueue(state, target);
    }

    /// Requests that the channel is closed.
    pub fn close(&self, target: RequestTarget) {
        self.states.remove(&target);
        let mut state = self.state.lock();
        if let RequestTarget::Link(link) = &target
            && let Some((shared, _)) = state.shared.remove(link)
        {
            state.targets.remove(&target);
            if let Some(requests) = state.targets.get_mut(&shared).and_then(|pending| pending.shared.as_mut()) {
                requests.remove(*link);
            }
            return self.enqueue(state, shared);
        }
        let Some(pending) = state.targets.get_mut(&target) else { return };
        if pending.open.is_some() {
            // The thread has not seen the request and may be busy for long. Removing both keeps memory bounded when a
            // link changes repeatedly.
            state.targets.remove(&target);
            state.ready.retain(|other| *other != target);
            return;
        }
        pending.is_over = true;
        self.enqueue(state, target);
    }

    /// Requests a put; a later put replaces it if it has not been sent yet.
    pub fn put(&self, link: ExternalLinkId, value: Value, number: u64, is_awaited: bool) {
        let state = self.state.lock();
        if state.shared.contains_key(&link) {
            return self.put_shared(state, link, SharedPut::of(link, value, number, is_awaited));
        }
        let mut state = state;
        let target = RequestTarget::Link(link);
        let Some(pending) = state.targets.get_mut(&target) else { return };
        let before = pending.put.take();
        pending.losses.merged_puts += u64::from(before.is_some());
        // A put that waits for the replaced value now waits for this one.
        let number = is_awaited.then_some(number).or(before.and_then(|(_, number)| number));
        pending.put = Some((value, number));
        self.enqueue(state, target);
    }

    /// Requests that a forward link over pvAccess processes the record of its PV.
    pub fn process(&self, link: ExternalLinkId) {
        self.put_shared(self.state.lock(), link, SharedPut::forward(link));
    }

    fn put_shared(&self, mut state: MutexGuard<'_, LinkRequestQueue>, link: ExternalLinkId, put: SharedPut) {
        let Some((target, is_deferred)) = state.shared.get(&link).cloned() else { return };
        let is_awaited = !put.awaited.is_empty();
        let requests = state.targets.get_mut(&target).and_then(|pending| pending.shared.as_mut());
        let replaced = requests.map(|requests| requests.put(put, is_deferred)).unwrap_or_default();
        for link in replaced {
            if let Some(pending) = state.targets.get_mut(&RequestTarget::Link(link)) {
                pending.losses.merged_puts += 1;
            }
        }
        if !is_deferred || is_awaited {
            self.enqueue(state, target);
        }
    }

    /// Forgets a shared channel without links, unless another link was added meanwhile.
    fn end_shared(&self, key: &Arc<SharedLinkKey>) {
        let target = RequestTarget::Shared(key.clone());
        let mut state = self.state.lock();
        let is_used = state.shared.values().any(|(used, _)| *used == target);
        if !is_used {
            state.targets.remove(&target);
        }
    }

    /// How many values of a link were lost.
    pub fn losses(&self, link: ExternalLinkId) -> LinkLosses {
        self.state.lock().targets.get(&RequestTarget::Link(link)).map(|pending| pending.losses).unwrap_or_default()
    }

    /// What is known about the connections.
    pub fn states(&self) -> &LinkStates {
        &self.states
    }

    /// Stops the thread; pending requests are dropped.
    fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
        // Its channels would keep the client alive.
        self.states.clear();
    }

    fn count(&self, target: &RequestTarget, n_updates: u64, n_puts: u64) {
        if let Some(pending) = self.state.lock().targets.get_mut(target) {
            pending.losses.merged_updates += n_updates;
            pending.losses.merged_puts += n_puts;
        }
    }

    fn count_refused(&self, target: &RequestTarget) {
        if let Some(pending) = self.state.lock().targets.get_mut(target) {
            pending.losses.refused_puts += 1;
        }
    }

    /// Queues a target for the thread.
    fn call(&self, target: &RequestTarget) {
        self.enqueue(self.state.lock(), target.clone());
    }

    fn enqueue(&self, mut state: MutexGuard<'_, LinkRequestQueue>, target: RequestTarget) {
        let Some(pending) = state.targets.get_mut(&target) else { return };
        if !std::mem::replace(&mut pending.is_ready, true) {
            state.ready.push_back(target);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Waits for the next target with pending requests. Returns `None` when stopped, or, with `has_waiting`, when it is
    /// time to retry the waiting links.
    fn next(&self, has_waiting: bool) -> Option<(RequestTarget, PendingRequest)> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            if let Some(target) = state.ready.pop_front() {
                let Some(pending) = state.targets.get_mut(&target) else { continue };
                pending.is_ready = false;
                let (open, put, is_over) = (pending.open.take(), pending.put.take(), pending.is_over);
                let shared = pending.shared.as_mut().map(|shared| Box::new(shared.take()));
                if is_over {
                    state.targets.remove(&target);
                }
                return Some((target, PendingRequest { open, put, is_over, shared, ..PendingRequest::default() }));
            }
            if !has_waiting {
                self.changed.wait(&mut state);
            } else if self.changed.wait_for(&mut state, limit::RETRY).timed_out() {
                return None;
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    /// Returns a value that could not be sent, unless there is already a later one.
    fn restore_unsent(&self, target: &RequestTarget, value: Value, number: Option<u64>) {
        let mut state = self.state.lock();
        let Some(pending) = state.targets.get_mut(target) else { return };
        match &mut pending.put {
            Some((_, later)) => {
                *later = later.or(number);
                pending.losses.merged_puts += 1;
            }
            none => *none = Some((value, number)),
        }
    }
}

/// A waker that queues one target.
struct LinkWaker {
    link_requests: Weak<LinkRequests>,
    target: RequestTarget,
}

impl Wake for LinkWaker {
    fn wake(self: Arc<Self>) {
        if let Some(link_requests) = self.link_requests.upgrade() {
            link_requests.call(&self.target);
        }
    }
}

/// The client of an IOC. Dropping it closes everything without waiting for a server.
#[derive(Debug)]
pub struct LinkClient {
    link_requests: Arc<LinkRequests>,
    context: Context,
    own_context: Option<Context>,
}

impl LinkClient {
    /// Starts the thread. Troubles of links are reported to `log`. `own`: for the links over pvAccess to PVs of this IOC.
    pub fn start(
        driver: &Arc<DatabaseDriver>,
        context: Context,
        own: Option<OwnServer>,
        log: Log,
    ) -> io::Result<LinkClient> {
        let link_requests = driver.link_requests().clone();
        let own_context = own.as_ref().map(|own| own.context.clone());
        let mut runner = LinkThread {
            driver: driver.clone(),
            context: context.clone(),
            own,
            log,
            has_reporter: false,
            open_links: HashMap::new(),
            shared: HashMap::new(),
        };
        let started = link_requests.clone();
        std::thread::Builder::new().name("fodo-links".into()).spawn(move || runner.run(&started))?;
        Ok(LinkClient { link_requests, context, own_context })
    }
}

impl Drop for LinkClient {
    fn drop(&mut self) {
        self.link_requests.stop();
        self.context.close();
        self.own_context.iter().for_each(Context::close);
    }
}

/// The state of the thread.
struct LinkThread {
    driver: Arc<DatabaseDriver>,
    context: Context,
    own: Option<OwnServer>,
    log: Log,
    /// Whether the thread that reports troubles has started; an IOC without links needs none.
    has_reporter: bool,
    open_links: HashMap<RequestTarget, OpenLink>,
    shared: SharedChannels,
}

/// The open channel of a target.
struct OpenLink {
    channel: Channel,
    /// Keeps the subscription alive.
    _monitor: Monitor,
    /// A put whose completion is awaited, and its number.
    writing: Option<(u64, Operation<()>)>,
    /// Whether the server refused the last put whose completion was awaited.
    is_put_refused: bool,
}

impl LinkThread {
    fn run(&mut self, link_requests: &Arc<LinkRequests>) {
        // Links whose circuits are full.
        let mut waiting: Vec<RequestTarget> = Vec::new();
        while !link_requests.is_stopped() {
            let Some((target, pending)) = link_requests.next(!waiting.is_empty()) else {
                waiting.drain(..).for_each(|target| link_requests.call(&target));
                continue;
            };
            if pending.is_over {
                self.open_links.remove(&target);
                continue;
            }
            if let RequestTarget::Shared(key) = &target {
                self.run_shared(link_requests, key, *pending.shared.unwrap_or_default());
                continue;
            }
            if let Some((name, usage)) = pending.open {
                self.report_troubles();
                match self.open(link_requests, &target, &name, usage) {
                    Ok(open_link) => drop(self.open_links.insert(target.clone(), open_link)),
                    Err(error) => {
                        let trouble = LinkTrouble::Unopened(error.kind().clone());
                        link_requests.states.set(&target, Some(trouble), Instant::now());
                    }
                }
            }
            if let Some((value, number)) = pending.put
                && !self.put(link_requests, &target, value, number)
            {
                waiting.push(target.clone());
            }
            self.poll_put(link_requests, &target);
        }
    }

    /// Starts the thread that reports troubles, before the first link is opened.
    fn report_troubles(&mut self) {
        if std::mem::replace(&mut self.has_reporter, true) {
            return;
        }
        let (driver, context, log) = (self.driver.clone(), self.context.clone(), self.log.clone());
        let reporter = std::thread::Builder::new().name("fodo-link-log".into());
        if let Err(error) = reporter.spawn(move || log::run(&driver, &context, &log)) {
            self.log.note(Level::Error, &format!("troubles of links are not reported: {error}"));
        }
    }

    /// Opens a channel. Fails if the name is invalid, so that it can never connect, or if the system provides no socket
    /// or thread.
    fn open(
        &self,
        link_requests: &Arc<LinkRequests>,
        target: &RequestTarget,
        name: &str,
        usage: LinkUsage,
    ) -> Result<OpenLink, Error> {
        let channel = self.context.channel_at(name, limit::LINK_PRIORITY)?;
        let (driver, requests, of_callback) = (self.driver.clone(), Arc::downgrade(link_requests), target.clone());
        let mut is_failing = false;
        let callback = move |event| {
            if let Some(link_requests) = requests.upgrade() {
                note_event(&link_requests, &of_callback, usage, &event, &mut is_failing);
            }
            pass_on(&driver, &of_callback, event);
        };
        let monitor = channel.monitor_with(options(usage), callback)?;
        link_requests.states.set_channel(target, channel.clone());
        Ok(OpenLink { channel, _monitor: monitor, writing: None, is_put_refused: false })
    }

    /// Sends a value; returns false if it must wait.
    fn put(&mut self, link_requests: &LinkRequests, target: &RequestTarget, value: Value, number: Option<u64>) -> bool {
        let Some(open_link) = self.open_links.get_mut(target) else { return true };
        if open_link.channel.state() != ChannelState::Active {
            link_requests.count(target, 0, 1);
            self.written(target, number);
            return true;
        }
        if open_link.channel.unsent_bytes() > limit::UNSENT_BYTES_MAX {
            link_requests.restore_unsent(target, value, number);
            return false;
        }
        match number {
            Some(number) => open_link.writing = Some((number, open_link.channel.start_put(value))),
            // Unconfirmed: the result only reports whether the channel was lost at this moment.
            None => drop(open_link.channel.start_put_unconfirmed(value)),
        }
        true
    }

    /// Reports the end of a put; if it has not ended, registers a waker for it.
    fn poll_put(&mut self, link_requests: &Arc<LinkRequests>, target: &RequestTarget) {
        let Some(open_link) = self.open_links.get_mut(target) else { return };
        let Some((number, operation)) = &mut open_link.writing else { return };
        let number = *number;
        let waker =
            Waker::from(Arc::new(LinkWaker { link_requests: Arc::downgrade(link_requests), target: target.clone() }));
        let polled = Pin::new(operation).poll(&mut TaskContext::from_waker(&waker));
        // A put that was not sent before the channel was lost must not be sent after a reconnect.
        let is_lost = !matches!(open_link.channel.state(), ChannelState::Active | ChannelState::Unresponsive);
        if polled.is_ready() || is_lost {
            open_link.writing = None;
            // The record ignores the result of the put, as in Base.
            if let Poll::Ready(result) = polled {
                open_link.note_put(&link_requests.states, target, &result);
            }
            self.written(target, Some(number));
        }
    }

    fn written(&self, target: &RequestTarget, number: Option<u64>) {
        if let (RequestTarget::Link(link), Some(put)) = (target, number) {
            self.driver.handle_link_event(*link, ExternalPvEvent::PutDone { put });
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

impl OpenLink {
    /// Notes whether the server refuses what the link writes.
    fn note_put(&mut self, states: &LinkStates, target: &RequestTarget, result: &Result<(), Error>) {
        match result.as_ref().map_err(Error::kind) {
            Err(ErrorKind::Refused { refusal, .. }) => {
                self.is_put_refused = true;
                states.set(target, Some(LinkTrouble::Refused(refusal.clone())), Instant::now());
            }
            Ok(()) if std::mem::take(&mut self.is_put_refused) => states.set(target, None, Instant::now()),
            // A loss is noted as an event of the subscription.
            Ok(()) | Err(_) => {}
        }
    }
}

/// Notes what an event means for the state of a link, on the callback thread.
///
/// `is_failing`: whether the last subscription or update of the link has failed.
fn note_event(
    link_requests: &LinkRequests,
    target: &RequestTarget,
    usage: LinkUsage,
    event: &MonitorEvent,
    is_failing: &mut bool,
) {
    let set = |trouble| link_requests.states.set(target, trouble, Instant::now());
    match event {
        MonitorEvent::Connected(facts) => {
            link_requests.states.set_server(target, facts.server);
            set(denied_access(facts, usage));
        }
        MonitorEvent::Rights(facts) => set(denied_access(facts, usage)),
        MonitorEvent::Merged(n) => link_requests.count(target, *n, 0),
        MonitorEvent::Update(_) if *is_failing => {
            *is_failing = false;
            set(None);
        }
        MonitorEvent::Unresponsive => set(Some(LinkTrouble::Silent)),
        MonitorEvent::Responsive => set(None),
        // An output subscribes only to follow the connection, so it works without updates.
        MonitorEvent::Refused(refusal) if usage == LinkUsage::Reads => {
            *is_failing = true;
            set(Some(LinkTrouble::Refused(refusal.clone())));
        }
        MonitorEvent::WrongReply(reply) if usage == LinkUsage::Reads => {
            *is_failing = true;
            set(Some(LinkTrouble::WrongReply(reply.clone())));
        }
        MonitorEvent::Disconnected => {
            *is_failing = false;
            set(Some(LinkTrouble::Lost));
            link_requests.call(target);
        }
        _ => {}
    }
}

/// The trouble of a link whose client lacks the access that the link needs.
fn denied_access(facts: &ChannelFacts, usage: LinkUsage) -> Option<LinkTrouble> {
    match usage {
        LinkUsage::Reads if !facts.may_read => Some(LinkTrouble::Refused(Refusal::ReadAccess)),
        LinkUsage::Writes if !facts.may_write => Some(LinkTrouble::Refused(Refusal::WriteAccess)),
        _ => None,
    }
}

/// Passes an event to the database or the access rules, on the callback thread.
fn pass_on(driver: &DatabaseDriver, target: &RequestTarget, event: MonitorEvent) {
    match target {
        RequestTarget::Link(link) => {
            if let Some(news) = to_link_event(event) {
                driver.handle_link_event(*link, news);
            }
        }
        RequestTarget::Input(name) => match event {
            MonitorEvent::Update(reading) => driver.set_remote_input(name, Some(reading)),
            MonitorEvent::Disconnected
            | MonitorEvent::Unresponsive
            | MonitorEvent::Refused(_)
            | MonitorEvent::WrongReply(_) => {
                driver.set_remote_input(name, None);
            }
            _ => {}
        },
        RequestTarget::Shared(_) => {}
    }
}

/// The event of a link; `None` for events that change only its [`LinkStates`].
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
pub(crate) mod tests {
    use fodo_data::{Kind, Now, Reading};
    use fodo_db::{Event, Input, Loader};
    use fodo_net::WrongReply;

    use super::*;

    /// A link identifier from a database.
    fn link() -> ExternalLinkId {
        links()[0]
    }

    /// Three link identifiers from a database.
    pub(crate) fn links() -> [ExternalLinkId; 3] {
        let mut loader = Loader::default();
        let db =
            r#"record(ao, a) { field(OUT, far) } record(ao, b) { field(OUT, far) } record(ao, c) { field(OUT, far) }"#;
        loader.load("test.db", "", &mut |_| Ok(db.into())).unwrap();
        let mut events = Vec::new();
        let now = Now { monotonic: Instant::now(), wall: std::time::SystemTime::now().into() };
        loader.finish().unwrap().handle(Input::Start, now, &mut events).unwrap();
        let added = |event: &Event| if let Event::ExternalLinkAdded { link, .. } = event { Some(*link) } else { None };
        let added: Vec<ExternalLinkId> = events.iter().filter_map(added).collect();
        added.try_into().unwrap()
    }

    /// The options of a link to this PV.
    pub(crate) fn pva_link(pv: &str) -> PvaLink {
        PvaLink {
            pv: pv.into(),
            is_forward: false,
            field: "".into(),
            is_local: false,
            queue_size: 4,
            is_pipelined: false,
            processing: fodo_db::PvaProcessing::ByServer,
            order: 0,
            is_atomic: false,
            retries: false,
            defers: false,
            copies_time: false,
        }
    }

    #[test]
    fn links_over_pvaccess_to_one_pv_share_a_channel_and_their_merged_puts_are_counted() {
        let (link_requests, [a, b, c]) = (LinkRequests::default(), links());
        for (link, pv, defers) in [(a, "x", true), (b, "x", false), (c, "y", false)] {
            let options = Arc::new(PvaLink { defers, ..pva_link(pv) });
            link_requests.open_shared(link, options, LinkUsage::Writes);
        }
        let of_x = RequestTarget::Shared(Arc::new(SharedLinkKey::of(&pva_link("x"))));
        let (target, pending) = link_requests.next(false).unwrap();
        assert_eq!((target, pending.shared.unwrap().added.len()), (of_x.clone(), 2));
        assert_eq!(link_requests.next(false).unwrap().1.shared.unwrap().added.len(), 1);

        link_requests.put(a, 1.0.into(), 1, false);
        link_requests.put(b, 2.0.into(), 7, true);
        link_requests.put(a, 3.0.into(), 2, false);
        link_requests.put(b, 4.0.into(), 8, false);

        let (target, pending) = link_requests.next(false).unwrap();
        let put = pending.shared.unwrap().put;
        assert_eq!((target, put.values), (of_x, vec![(a, 3.0.into(), 2), (b, 4.0.into(), 8)]));
        assert_eq!(put.awaited, [(b, 7)]);
        assert_eq!([a, b, c].map(|link| link_requests.losses(link).merged_puts), [1, 1, 0]);
    }

    #[test]
    fn a_deferred_put_that_is_awaited_is_complete_at_once_and_its_value_waits() {
        let (link_requests, [a, b, _]) = (LinkRequests::default(), links());
        for (link, defers) in [(a, true), (b, false)] {
            link_requests.open_shared(link, Arc::new(PvaLink { defers, ..pva_link("x") }), LinkUsage::Writes);
        }
        link_requests.next(false).unwrap();

        link_requests.put(a, 1.0.into(), 7, true);
        let completing = link_requests.next(false).unwrap().1.shared.unwrap();
        link_requests.put(b, 2.0.into(), 1, false);
        let sending = link_requests.next(false).unwrap().1.shared.unwrap();

        assert_eq!((completing.completed, completing.put), (vec![(a, 7)], SharedPut::default()));
        assert_eq!(sending.put.values, [(a, 1.0.into(), 7), (b, 2.0.into(), 1)]);
        assert_eq!((sending.put.awaited, sending.completed), (vec![], vec![]));
    }

    #[test]
    fn closed_links_over_pvaccess_leave_nothing_queued() {
        let (link_requests, [a, ..]) = (LinkRequests::default(), links());
        let key = Arc::new(SharedLinkKey::of(&pva_link("x")));

        for _ in 0..100 {
            link_requests.open_shared(a, Arc::new(pva_link("x")), LinkUsage::Reads);
            link_requests.close(RequestTarget::Link(a));
        }
        let (target, pending) = link_requests.next(false).unwrap();
        assert_eq!((target, pending.shared.unwrap().added.len()), (RequestTarget::Shared(key.clone()), 0));
        link_requests.end_shared(&key);

        let state = link_requests.state.lock();
        assert_eq!((state.targets.len(), state.ready.len(), state.shared.len()), (0, 0, 0));
    }

    #[test]
    fn pending_link_puts_are_merged_to_the_newest_value_and_counted() {
        let (link_requests, link) = (LinkRequests::default(), link());
        link_requests.open(RequestTarget::Link(link), "far", LinkUsage::Writes);

        link_requests.put(link, 1.0.into(), 1, false);
        link_requests.put(link, 2.0.into(), 2, true);
        link_requests.put(link, 3.0.into(), 3, false);

        let (_, pending) = link_requests.next(false).unwrap();
        assert_eq!((pending.open.is_some(), pending.put), (true, Some((3.0.into(), Some(2)))));
        assert_eq!(link_requests.losses(link), LinkLosses { merged_updates: 0, merged_puts: 2, refused_puts: 0 });
        link_requests.put(link, 5.0.into(), 5, false);
        link_requests.restore_unsent(&RequestTarget::Link(link), 4.0.into(), Some(4));
        let (_, pending) = link_requests.next(false).unwrap();
        assert_eq!(pending.put, Some((5.0.into(), Some(4))));
        assert_eq!(link_requests.losses(link).merged_puts, 3);
    }

    #[test]
    fn merged_updates_of_a_link_are_counted_apart_from_its_puts() {
        let (link_requests, link) = (LinkRequests::default(), link());
        let target = RequestTarget::Link(link);
        link_requests.open(target.clone(), "far", LinkUsage::Reads);

        link_requests.count(&target, 3, 1);
        link_requests.count(&target, 4, 1);

        assert_eq!(link_requests.losses(link), LinkLosses { merged_updates: 7, merged_puts: 2, refused_puts: 0 });
    }

    #[test]
    fn the_updates_that_a_monitor_has_merged_are_counted_for_its_link() {
        let (link_requests, link) = (LinkRequests::default(), link());
        let target = RequestTarget::Link(link);
        link_requests.open(target.clone(), "far", LinkUsage::Reads);

        note_event(&link_requests, &target, LinkUsage::Reads, &MonitorEvent::Merged(3), &mut false);

        assert_eq!(link_requests.losses(link), LinkLosses { merged_updates: 3, merged_puts: 0, refused_puts: 0 });
    }

    #[test]
    fn opening_and_closing_an_unserved_link_request_leaves_nothing_queued() {
        let link_requests = LinkRequests::default();
        let target = |name: &str| RequestTarget::Input(name.into());

        for _ in 0..100 {
            link_requests.open(target("a"), "a", LinkUsage::Reads);
            link_requests.close(target("a"));
        }
        link_requests.open(target("b"), "b", LinkUsage::Reads);

        let held = |state: MutexGuard<'_, LinkRequestQueue>| (state.targets.len(), state.ready.len());
        assert_eq!(held(link_requests.state.lock()), (1, 1));
        assert_eq!(link_requests.next(false).unwrap().0, target("b"));
    }

    #[test]
    fn stopped_requests_are_neither_executed_nor_kept() {
        let (link_requests, target) = (LinkRequests::default(), RequestTarget::Input("a".into()));
        link_requests.open(target.clone(), "a", LinkUsage::Reads);
        assert!(!link_requests.is_stopped() && link_requests.states().reason(&target).is_some());

        link_requests.stop();

        assert!(link_requests.is_stopped() && link_requests.next(false).is_none());
        assert_eq!(link_requests.states().reason(&target), None);
    }

    #[test]
    fn an_event_of_a_link_sets_or_clears_its_trouble() {
        let read_only = facts(true, false);
        let no_access = facts(false, false);
        let refused = LinkTrouble::Refused(Refusal::Channel { text: String::new() });
        let wrong = WrongReply::Count { requested: 1, received: 2 };
        for (usage, events, expected) in [
            (LinkUsage::Reads, vec![], Some(LinkTrouble::Unconnected)),
            (LinkUsage::Reads, vec![MonitorEvent::Connected(read_only.clone())], None),
            (
                LinkUsage::Writes,
                vec![MonitorEvent::Connected(read_only.clone())],
                Some(LinkTrouble::Refused(Refusal::WriteAccess)),
            ),
            (
                LinkUsage::Reads,
                vec![MonitorEvent::Connected(read_only.clone()), MonitorEvent::Rights(no_access)],
                Some(LinkTrouble::Refused(Refusal::ReadAccess)),
            ),
            (LinkUsage::Writes, vec![MonitorEvent::Rights(facts(false, true))], None),
            (LinkUsage::Reads, vec![MonitorEvent::Refused(Refusal::Channel { text: String::new() })], Some(refused)),
            (
                LinkUsage::Writes,
                vec![MonitorEvent::Rights(facts(true, true)), MonitorEvent::WrongReply(wrong.clone())],
                None,
            ),
            (
                LinkUsage::Reads,
                vec![MonitorEvent::WrongReply(wrong.clone())],
                Some(LinkTrouble::WrongReply(wrong.clone())),
            ),
            (
                LinkUsage::Reads,
                vec![MonitorEvent::WrongReply(wrong.clone()), MonitorEvent::Update(Reading::bare(1.0.into()))],
                None,
            ),
            (LinkUsage::Reads, vec![MonitorEvent::Unresponsive], Some(LinkTrouble::Silent)),
            (LinkUsage::Reads, vec![MonitorEvent::Unresponsive, MonitorEvent::Responsive], None),
            (LinkUsage::Writes, vec![MonitorEvent::Disconnected], Some(LinkTrouble::Lost)),
        ] {
            let (link_requests, target) = (LinkRequests::default(), RequestTarget::Input("x".into()));
            link_requests.open(target.clone(), "x", usage);

            let mut is_failing = false;
            events.iter().for_each(|event| note_event(&link_requests, &target, usage, event, &mut is_failing));

            let unreported = link_requests.states.take_unreported(Instant::now() + limit::LINK_GRACE);
            assert_eq!(unreported.into_iter().find_map(|link| link.trouble), expected, "{usage:?} {events:?}");
        }
    }

    fn facts(may_read: bool, may_write: bool) -> ChannelFacts {
        let server = ([127, 0, 0, 1], 5064).into();
        ChannelFacts { server, kind: Kind::F64, count_max: 1, may_read, may_write, tls: None }
    }

    #[test]
    fn input_links_request_full_values_and_output_links_only_property_updates() {
        let (reads, writes) = (options(LinkUsage::Reads), options(LinkUsage::Writes));

        assert_eq!((reads.request.detail, reads.request.count), (Detail::Full, 0));
        assert_eq!(reads.mask, MonitorOptions::default().mask);
        assert_eq!((writes.request.detail, writes.request.count), (Detail::Value, 1));
        assert_eq!(writes.mask, EventMask::PROPERTY);
    }

    #[test]
    fn only_events_that_concern_records_are_passed_to_them() {
        let rights = to_link_event(MonitorEvent::Rights(facts(true, false)));
        assert!(matches!(rights, Some(ExternalPvEvent::AccessRights { may_read: true, may_write: false })));
        assert!(matches!(to_link_event(MonitorEvent::Unresponsive), Some(ExternalPvEvent::Unresponsive)));
        assert!(matches!(to_link_event(MonitorEvent::Responsive), Some(ExternalPvEvent::Responsive)));
        assert!(matches!(to_link_event(MonitorEvent::Disconnected), Some(ExternalPvEvent::Disconnected)));
        assert!(to_link_event(MonitorEvent::Merged(1)).is_none());
    }

    #[test]
    fn a_refused_put_is_a_trouble_until_a_later_put_succeeds() {
        let context = Context::new(fodo_net::ClientConfig::with_addresses(Vec::new()));
        let channel = context.channel("x").unwrap();
        let monitor = channel.monitor_with(MonitorOptions::newest(), |_| ()).unwrap();
        let mut open_link = OpenLink { channel, _monitor: monitor, writing: None, is_put_refused: false };
        let (states, target) = (LinkStates::default(), RequestTarget::Input("x".into()));
        states.add(target.clone(), "x", Instant::now());
        let error = |kind| Err(Error::new("x", kind));
        let server = ([127, 0, 0, 1], 5064).into();
        let refused = ErrorKind::Refused { server, refusal: Refusal::WriteAccess };
        let closed = ErrorKind::ConnectionClosed { server };
        let connecting = Some("no server has claimed the name".to_owned());
        let of_refusal = Some(LinkTrouble::Refused(Refusal::WriteAccess).to_string());

        let mut note = |result| {
            open_link.note_put(&states, &target, &result);
            states.reason(&target)
        };

        assert_eq!([note(Ok(())), note(error(closed.clone()))], [connecting.clone(), connecting]);
        assert_eq!([note(error(refused)), note(error(closed))], [of_refusal.clone(), of_refusal]);
        assert_eq!(note(Ok(())), None);
    }
}
