//! One TCP connection to a server, driven by whoever needs it: the reactor, or a blocking call.
//!
//! Everything is behind one mutex. A blocking caller that finds nobody reading becomes the reader
//! until its own answer is there; what it reads for others it queues. When it leaves, the next
//! blocked caller takes over; if there is none, the circuit rests for a moment ([`limit::LEASE`])
//! and then goes back to the reactor. That part is in `drive`.

mod drive;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

use fodo_ca::client::{Circuit as Machine, Event};
use fodo_ca::dbr::{self, DbrType, Level};
use fodo_ca::{Cid, Ioid, Sid, SubscriptionId};
use fodo_data::{Kind, Now};
use mio::Token;
use slab::Slab;

use super::channel::{Activated, ChannelCore};
use super::monitor::MonitorCore;
use super::operation::{OperationCore, Outcome, Task, Waiter};
use super::reactor::{Driven, Reactor};
use super::role::{Reader, Role};
use super::{ContextCore, Detail, Error, Refusal, Request};
use crate::limit;
use crate::sync::lock;
use crate::{clock, socket};

/// One TCP connection to a server.
pub(super) struct Circuit {
    server: SocketAddr,
    reactor: Arc<Reactor>,
    context: Weak<ContextCore>,
    stream: TcpStream,
    state: Mutex<State>,
}

struct State {
    machine: Machine,
    phase: Phase,
    role: Role<ThreadId, Thread>,
    token: Option<Token>,
    lease_is_timed: bool,
    channels: HashMap<Cid, Arc<ChannelCore>>,
    operations: Slab<InProgress>,
    subscriptions: HashMap<SubscriptionId, Arc<MonitorCore>>,
    subscription_next: u32,
    flush_is_told: bool,
    events: Vec<Event>,
    woken: Vec<Waiter>,
}

struct InProgress {
    operation: Arc<OperationCore>,
    cid: Cid,
}

/// Where the connection stands; the comment says what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// For TCP, until that moment.
    Opening(Instant),
    /// For nothing.
    Open,
    /// For its channels to let go of it.
    Closed,
}

thread_local! {
    /// What a socket gave, before it is decoded.
    static RECEIVED: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; limit::RECEIVE_BYTES]);
}

impl std::fmt::Debug for Circuit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Circuit").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Circuit {
    /// Starts to connect.
    pub(super) fn open(
        server: SocketAddr,
        config: &fodo_ca::client::Config,
        reactor: Arc<Reactor>,
        context: Weak<ContextCore>,
    ) -> io::Result<Arc<Circuit>> {
        let now = clock::now();
        let stream = socket::connect(server)?;
        let state = State {
            machine: Machine::new(config, now),
            phase: Phase::Opening(now.monotonic + limit::CONNECT),
            role: Role::new(),
            token: None,
            lease_is_timed: false,
            channels: HashMap::new(),
            operations: Slab::new(),
            subscriptions: HashMap::new(),
            subscription_next: 0,
            flush_is_told: false,
            events: Vec::new(),
            woken: Vec::new(),
        };
        let circuit = Arc::new(Circuit { server, reactor, context, stream, state: Mutex::new(state) });
        let driven: Weak<dyn Driven> = Arc::downgrade(&circuit) as Weak<dyn Driven>;
        let token = circuit.reactor.add(driven);
        lock(&circuit.state).token = Some(token);
        circuit.register(token)?;
        circuit.reactor.call_at(token, now.monotonic + limit::CONNECT);
        Ok(circuit)
    }

    pub(super) fn server(&self) -> SocketAddr {
        self.server
    }

    /// Asks for a channel, now or as soon as the connection is open. False when it is closed.
    pub(super) fn create(self: &Arc<Self>, channel: &Arc<ChannelCore>) -> bool {
        let mut state = lock(&self.state);
        if state.phase == Phase::Closed {
            return false;
        }
        state.channels.insert(channel.cid(), channel.clone());
        state.machine.create(channel.cid(), channel.name());
        self.tell_flush(&mut state);
        true
    }

    /// Gives a channel up; its operations were cancelled by their owners.
    pub(super) fn clear(&self, cid: Cid, sid: Option<Sid>) {
        let mut state = lock(&self.state);
        state.channels.remove(&cid);
        if state.channels.is_empty() {
            self.close(&mut state, None);
        } else if let (Some(sid), Phase::Open) = (sid, state.phase) {
            state.subscriptions.retain(|_, monitor| monitor.channel().cid() != cid);
            state.machine.clear(cid, sid);
            self.tell_flush(&mut state);
        }
        self.release(state);
    }

    /// Issues an operation on an active channel. `is_driven`: the caller will drive the circuit
    /// itself at once, so the reactor need not be told. False when the circuit is closed.
    pub(super) fn issue(
        self: &Arc<Self>,
        operation: &Arc<OperationCore>,
        task: &Task,
        place: Place,
        is_driven: bool,
    ) -> bool {
        let mut state = lock(&self.state);
        if state.phase == Phase::Closed || !state.channels.contains_key(&operation.channel().cid()) {
            return false;
        }
        self.issue_locked(&mut state, operation, task, place);
        if !is_driven {
            self.tell_flush(&mut state);
        }
        self.release(state);
        true
    }

    fn issue_locked(self: &Arc<Self>, state: &mut State, operation: &Arc<OperationCore>, task: &Task, place: Place) {
        let cid = operation.channel().cid();
        let entry = state.operations.vacant_entry();
        let ioid = Ioid(entry.key() as u32);
        let result = match task {
            Task::Connect => return,
            Task::Get(request) => {
                let (dbr, count) = place.asked(request);
                state.machine.read(place.sid, dbr, count, ioid);
                Ok(true)
            }
            Task::Put(value) => state.machine.write(place.sid, dbr::put_type(value), value, Some(ioid)).map(|()| true),
            Task::PutUnconfirmed(value) => {
                state.machine.write(place.sid, dbr::put_type(value), value, None).map(|()| false)
            }
        };
        match result {
            Ok(true) => {
                if operation.issued(self) {
                    state.operations.insert(InProgress { operation: operation.clone(), cid });
                }
            }
            Ok(false) => state.woken.push(operation.end(Ok(Outcome::Written))),
            Err(error) => {
                let pv = operation.channel().name().to_owned();
                let reason = error.to_string();
                state.woken.push(operation.end(Err(Error::Misuse { pv, reason })));
            }
        }
    }

    /// Starts a monitor on an active channel.
    pub(super) fn subscribe(self: &Arc<Self>, monitor: &Arc<MonitorCore>, place: Place) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Closed || !state.channels.contains_key(&monitor.channel().cid()) {
            return;
        }
        self.subscribe_locked(&mut state, monitor, place);
        self.tell_flush(&mut state);
    }

    fn subscribe_locked(self: &Arc<Self>, state: &mut State, monitor: &Arc<MonitorCore>, place: Place) {
        if monitor.is_ended() {
            return;
        }
        let options = monitor.options();
        let subscription = SubscriptionId(state.subscription_next);
        state.subscription_next = state.subscription_next.wrapping_add(1);
        let (dbr, count) = place.asked(&options.request);
        state.machine.subscribe(place.sid, dbr, count, options.mask, subscription);
        state.subscriptions.insert(subscription, monitor.clone());
        monitor.placed(self, place.sid, subscription);
    }

    /// Ends a subscription.
    pub(super) fn cancel(&self, sid: Sid, subscription: SubscriptionId) {
        let mut state = lock(&self.state);
        if state.subscriptions.remove(&subscription).is_some() && state.phase == Phase::Open {
            state.machine.cancel(sid, subscription);
            self.tell_flush(&mut state);
        }
    }

    /// Makes sure that somebody sends what was queued.
    fn tell_flush(&self, state: &mut State) {
        if state.flush_is_told || state.phase != Phase::Open {
            return;
        }
        state.flush_is_told = true;
        if let Some(token) = state.token {
            self.reactor.call_soon(token);
        }
    }

    /// Writes what is ready until the socket takes no more.
    fn flush(&self, state: &mut State) {
        if state.phase != Phase::Open {
            return;
        }
        loop {
            let ready = state.machine.ready();
            if ready.is_empty() {
                return;
            }
            match (&self.stream).write(ready) {
                Ok(n) => state.machine.sent(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.close(state, None),
            }
        }
    }

    /// Reads up to `budget` bytes and does what they say; true when there may be more.
    fn receive(self: &Arc<Self>, state: &mut State, budget: usize) -> bool {
        RECEIVED.with_borrow_mut(|buffer| {
            let mut taken = 0;
            while taken < budget && state.phase == Phase::Open {
                match (&self.stream).read(buffer) {
                    Ok(0) => self.close(state, None),
                    Ok(n) => {
                        taken += n;
                        let mut events = std::mem::take(&mut state.events);
                        state.machine.received(&buffer[..n], clock::now(), &mut events);
                        self.dispatch(state, &mut events);
                        state.events = events;
                        if n < buffer.len() {
                            return false;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                    Err(_) => self.close(state, None),
                }
            }
            state.phase == Phase::Open
        })
    }

    fn tick(self: &Arc<Self>, state: &mut State, now: Now) {
        let mut events = std::mem::take(&mut state.events);
        state.machine.tick(now, &mut events);
        self.dispatch(state, &mut events);
        state.events = events;
    }

    fn dispatch(self: &Arc<Self>, state: &mut State, events: &mut Vec<Event>) {
        for event in events.drain(..) {
            match event {
                Event::ReadDone { ioid, result } => self.end(state, ioid, result.map(Outcome::Reading)),
                Event::WriteDone { ioid, result } => self.end(state, ioid, result.map(|()| Outcome::Written)),
                Event::Update { subscription, result } => {
                    if let Some(monitor) = state.subscriptions.get(&subscription) {
                        let result = result.map(|reading| monitor.channel().shaped(reading));
                        state.woken.push(monitor.updated(result));
                    }
                }
                Event::Created { cid, sid, native, count } => self.created(state, cid, sid, native, count),
                Event::Rights { cid, rights } => {
                    if let Some(channel) = state.channels.get(&cid) {
                        channel.set_rights(rights);
                    }
                }
                Event::CreateFailed { cid } | Event::ChannelGone { cid } => self.gone(state, cid),
                Event::Complaint { cid, status, .. } => {
                    if let Some(channel) = cid.and_then(|cid| state.channels.get(&cid)) {
                        channel.complained(status);
                    }
                }
                Event::Unresponsive => state.channels.values().for_each(|channel| channel.set_responsive(false)),
                Event::Responsive => state.channels.values().for_each(|channel| channel.set_responsive(true)),
                Event::Closed(_) => self.close(state, None),
            }
        }
    }

    fn end(&self, state: &mut State, ioid: Ioid, result: Result<Outcome, fodo_ca::eca::Eca>) {
        let Some(InProgress { operation, .. }) = state.operations.try_remove(ioid.0 as usize) else { return };
        let result = result.map_err(|status| Error::Refused {
            pv: operation.channel().name().to_owned(),
            server: self.server,
            refusal: Refusal::Status(status),
        });
        let result = result.map(|outcome| match outcome {
            Outcome::Reading(reading) => Outcome::Reading(operation.channel().shaped(reading)),
            other => other,
        });
        state.woken.push(operation.end(result));
    }

    fn created(self: &Arc<Self>, state: &mut State, cid: Cid, sid: Sid, native: DbrType, count: u32) {
        let Some(channel) = state.channels.get(&cid).cloned() else {
            return state.machine.clear(cid, sid);
        };
        let Some(kind) = native.kind() else {
            return self.gone(state, cid);
        };
        let place = Place { sid, kind, count };
        let Activated { operations, monitors } = channel.activated(self, place);
        for (operation, task) in operations {
            match channel.refusal(&task) {
                Some(error) => state.woken.push(operation.end(Err(error))),
                None if task == Task::Connect => state.woken.push(operation.end(channel.connected())),
                None => self.issue_locked(state, &operation, &task, place),
            }
        }
        for monitor in monitors {
            if let Some(facts) = channel.facts() {
                state.woken.push(monitor.connected(facts));
            }
            self.subscribe_locked(state, &monitor, place);
        }
    }

    /// The server does not serve this channel, or no longer.
    fn gone(&self, state: &mut State, cid: Cid) {
        let Some(channel) = state.channels.remove(&cid) else { return };
        let refused = Error::Refused { pv: channel.name().to_owned(), server: self.server, refusal: Refusal::Channel };
        self.drop_operations(state, |of| of == cid);
        state.subscriptions.retain(|_, monitor| monitor.channel().cid() != cid);
        state.woken.extend(channel.lost(Some(refused), limit::SEARCH_PAUSE));
    }

    /// Ends the operations of some channels as disconnected.
    fn drop_operations(&self, state: &mut State, is_lost: impl Fn(Cid) -> bool) {
        let lost: Vec<usize> =
            state.operations.iter().filter(|(_, entry)| is_lost(entry.cid)).map(|(key, _)| key).collect();
        for key in lost {
            let operation = state.operations.remove(key).operation;
            let error = Error::Disconnected { pv: operation.channel().name().to_owned(), server: self.server };
            state.woken.push(operation.end(Err(error)));
        }
    }

    /// The end of the circuit; its channels are looked for again.
    fn close(&self, state: &mut State, refusal: Option<Refusal>) {
        if state.phase == Phase::Closed {
            return;
        }
        let pause = match state.phase {
            Phase::Open => Duration::ZERO,
            Phase::Opening(_) | Phase::Closed => limit::SEARCH_PAUSE,
        };
        state.phase = Phase::Closed;
        if state.role.reader() == Reader::Reactor {
            self.deregister();
        }
        // Whoever is in poll(2) on the socket sees its end.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        if let Some(context) = self.context.upgrade() {
            context.forget_circuit(self.server, self);
        }
        if let Some(token) = state.token.take() {
            self.reactor.remove(token);
        }
        self.drop_operations(state, |_| true);
        state.subscriptions.clear();
        let channels = std::mem::take(&mut state.channels);
        for channel in channels.into_values() {
            let error = refusal.clone().map(|refusal| Error::Refused {
                pv: channel.name().to_owned(),
                server: self.server,
                refusal,
            });
            state.woken.extend(channel.lost(error, pause));
        }
        state.role.everybody().for_each(Thread::unpark);
    }

    /// Unlocks, then wakes whom the work under the lock has woken.
    fn release(&self, mut state: MutexGuard<'_, State>) {
        if state.woken.is_empty() {
            return;
        }
        let mut woken = std::mem::take(&mut state.woken);
        drop(state);
        woken.drain(..).for_each(Waiter::wake);
    }

    /// Whether the connection has come about.
    fn opened(self: &Arc<Self>, state: &mut State, until: Instant, now: Now) {
        let error = self.stream.take_error().ok().flatten();
        if error.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            return self.close(state, Some(Refusal::Connection));
        }
        match self.stream.peer_addr() {
            Ok(_) => state.phase = Phase::Open,
            Err(_) if now.monotonic < until => {}
            Err(_) => self.close(state, None),
        }
    }
}

impl Drop for Circuit {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(token) = state.token.take() {
            self.reactor.remove(token);
        }
    }
}

/// Where an active channel is, and what its elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) sid: Sid,
    pub(super) kind: Kind,
    pub(super) count: u32,
}

impl Place {
    /// The type and count that a request travels with.
    fn asked(&self, request: &Request) -> (DbrType, u32) {
        let kind = request.kind.unwrap_or(self.kind);
        let level = match request.detail {
            Detail::Value => Level::Plain,
            Detail::Alarm => Level::Status,
            Detail::Time => Level::Time,
            Detail::Graphic => Level::Graphic,
            Detail::Control => Level::Control,
            Detail::Acknowledge => return (DbrType::STSACK_STRING, 1),
            Detail::ClassName => return (DbrType::CLASS_NAME, 1),
        };
        let count = match self.count {
            1 => 1,
            count_max => request.count.min(count_max),
        };
        (DbrType::of(kind, level), count)
    }
}
