//! What the clones, operations and monitors of a connection share.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

use fodo_clu::client::{
    ClientEvent, ClientOutput, CluClient, CluClientConfig, CluRequest, CluSubscription, RequestId, RequestOutcome,
    SubmitError,
};
use fodo_clu::limit::REPLY_BYTES_MAX;
use fodo_clu::script::{CluItem, ReportTarget};
use fodo_engine::role::{Reader, ReaderRole};
use fodo_lock::{Mutex, MutexGuard, Rank};

use super::config::{CluConnectionConfig, ReportMode};
use super::deliveries::{AvailabilityListener, CluDeliveryCounts, CluUpdate, Deliveries, UpdateListener};
use super::operation::OperationWaiter;
use super::socket::{CluSocket, CluSocketCounts, own_address_towards};
use crate::clock;
use crate::clu::random_source;
use crate::reactor::{Reactor, Readiness, Registration};

/// One connection.
pub(super) struct ConnectionCore {
    pub(super) socket: CluSocket,
    pub(super) registration: Registration,
    pub(super) timeout: Duration,
    pub(super) state: Mutex<ConnectionState>,
}

pub(super) struct ConnectionState {
    pub(super) client: CluClient,
    pub(super) out: ClientOutput,
    pub(super) role: ReaderRole<ThreadId, Thread, Infallible>,
    operations: HashMap<RequestId, RequestSlot>,
    /// The operations without an outcome.
    pub(super) n_waiting: usize,
    /// Of these, the ones that are awaited as futures.
    pub(super) n_futures: usize,
    /// What to wake when the lock is released.
    pub(super) woken: Vec<OperationWaiter>,
    deliveries: Arc<Deliveries>,
    /// The memory for a datagram; the thread that reads has it.
    pub(super) received: Vec<u8>,
    /// The timeout of the socket.
    pub(super) receive_timeout: Duration,
    /// When the reactor calls at the latest.
    pub(super) called_at: Option<Instant>,
    /// A caller has stopped reading since the reactor looked.
    pub(super) has_rested: bool,
    counts: CluSocketCounts,
    pub(super) is_closed: bool,
}

/// An operation, until its outcome is taken.
#[derive(Default)]
struct RequestSlot {
    outcome: Option<RequestOutcome>,
    waiter: Option<OperationWaiter>,
}

impl ConnectionCore {
    pub(super) fn open(config: CluConnectionConfig) -> io::Result<Arc<ConnectionCore>> {
        if !config.clu.is_ipv4() {
            let reason = format!("a CLU has an address of IPv4, not {}", config.clu);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let own_address = config.own_address.map_or_else(|| own_address_towards(config.clu), Ok)?;
        let socket = CluSocket::open()?;
        let reactor = Reactor::shared()?;
        let now = clock::now();
        let report_target = match config.report {
            ReportMode::Address => ReportTarget::Address(own_address, socket.port()),
            ReportMode::Source => ReportTarget::Sender,
        };
        let client_config = CluClientConfig {
            report_target,
            serial: config.serial,
            timeout: config.timeout,
            in_flight_max: config.in_flight_max,
            checks_availability: config.checks_availability,
            ..CluClientConfig::new(config.key, config.clu, own_address, socket.port())
        };
        let state = ConnectionState {
            client: CluClient::new(client_config, random_source(), now),
            out: ClientOutput::default(),
            role: ReaderRole::default(),
            operations: HashMap::new(),
            n_waiting: 0,
            n_futures: 0,
            woken: Vec::new(),
            deliveries: Arc::default(),
            received: vec![0; REPLY_BYTES_MAX],
            receive_timeout: Duration::ZERO,
            called_at: None,
            has_rested: false,
            counts: CluSocketCounts::default(),
            is_closed: false,
        };
        let core = Arc::new_cyclic(|core: &Weak<ConnectionCore>| ConnectionCore {
            socket,
            registration: reactor.add(core.clone()),
            timeout: config.timeout,
            state: Mutex::ranked(Rank::CluConnection, state),
        });
        core.registration.add_socket(&core.socket, Readiness::Readable)?;
        let mut state = core.state.lock();
        state.client_do(|client, out| client.tick(now, out));
        core.settle(&mut state);
        core.release(state);
        Ok(core)
    }

    pub(super) fn start(&self, request: CluRequest<'_>, timeout: Duration) -> Result<RequestId, SubmitError> {
        let mut state = self.state.lock();
        let now = clock::now();
        let id = state.client_do(|client, out| client.submit_timeout(request, timeout, now, out))?;
        state.operations.insert(id, RequestSlot::default());
        state.n_waiting += 1;
        self.settle(&mut state);
        self.release(state);
        Ok(id)
    }

    /// The outcome of an operation, or `None` and the future is woken at its end.
    pub(super) fn poll(&self, request: RequestId, waker: &Waker) -> Option<RequestOutcome> {
        // Code of the executor, which runs without the lock; so does the end of the earlier waker.
        let waker = OperationWaiter::Future(waker.clone());
        let mut state = self.state.lock();
        if let Some(outcome) = state.take_outcome(request) {
            return Some(outcome);
        }
        let earlier = state.await_outcome(request, waker);
        if matches!(state.role.reader(), Reader::Resting(_)) {
            self.attach(&mut state);
        }
        drop(state);
        drop(earlier);
        None
    }

    pub(super) fn cancel(&self, request: RequestId) {
        let mut state = self.state.lock();
        let mut waiter = None;
        if state.take_outcome(request).is_none() {
            waiter = state.forget_waiter(request);
            let now = clock::now();
            state.client_do(|client, out| client.cancel(request, now, out));
            self.settle(&mut state);
            state.take_outcome(request);
        }
        self.release(state);
        drop(waiter);
    }

    pub(super) fn subscribe(
        &self,
        items: Vec<CluItem>,
        listener: UpdateListener,
    ) -> Result<CluSubscription, SubmitError> {
        let mut state = self.state.lock();
        let now = clock::now();
        let subscription = state.client_do(|client, out| client.subscribe(items, now, out))?;
        state.deliveries.add(subscription, listener);
        self.settle(&mut state);
        self.release(state);
        Ok(subscription)
    }

    pub(super) fn unsubscribe(&self, subscription: CluSubscription) {
        let mut state = self.state.lock();
        let now = clock::now();
        if !state.is_closed {
            state.client_do(|client, out| client.unsubscribe(subscription, now, out));
            self.settle(&mut state);
        }
        let deliveries = state.deliveries.clone();
        self.release(state);
        deliveries.remove(subscription);
    }

    pub(super) fn on_availability(&self, listener: AvailabilityListener) {
        let deliveries = self.state.lock().deliveries.clone();
        deliveries.add_of_availability(listener);
    }

    pub(super) fn with_client<T>(&self, read: impl FnOnce(&CluClient) -> T) -> T {
        read(&self.state.lock().client)
    }

    pub(super) fn socket_counts(&self) -> CluSocketCounts {
        let counts = self.state.lock().counts;
        CluSocketCounts { overflowed: self.socket.n_overflowed(), ..counts }
    }

    pub(super) fn delivery_counts(&self) -> CluDeliveryCounts {
        let deliveries = self.state.lock().deliveries.clone();
        deliveries.counts()
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        let now = clock::now();
        state.client_do(|client, out| client.close(now, out));
        self.settle(&mut state);
        state.is_closed = true;
        let deliveries = state.deliveries.clone();
        match state.role.reader() {
            Reader::Reactor => self.registration.remove_socket(&self.socket),
            Reader::Caller => self.socket.wake(),
            Reader::Loop | Reader::Resting(_) => {}
        }
        self.release(state);
        deliveries.end();
    }

    /// Sends datagrams and passes on events, after each use of the machine.
    pub(super) fn settle(&self, state: &mut ConnectionState) {
        self.send_and_deliver(state);
        if let Some(at) = state.client.deadline() {
            self.call_by(state, at);
        }
    }

    pub(super) fn send_and_deliver(&self, state: &mut ConnectionState) {
        if !state.out.datagrams.is_empty() {
            for (to, datagram) in state.out.datagrams.iter() {
                if let Err(error) = self.socket.send(datagram, to) {
                    state.counts.unsent += 1;
                    state.counts.last_failure = Some(error.kind());
                }
            }
            state.out.datagrams.clear();
        }
        if !state.out.events.is_empty() {
            let mut events = std::mem::take(&mut state.out.events);
            events.drain(..).for_each(|event| state.happened(event));
            state.out.events = events;
        }
    }

    /// Has the reactor call at this time at the latest.
    pub(super) fn call_by(&self, state: &mut ConnectionState, at: Instant) {
        if state.called_at.is_none_or(|called_at| at < called_at) {
            self.registration.call_at(at);
            state.called_at = Some(at);
        }
    }

    /// Releases the lock, and then wakes the threads and futures whose requests have ended.
    pub(super) fn release(&self, mut state: MutexGuard<'_, ConnectionState>) {
        if state.woken.is_empty() {
            return;
        }
        let woken = std::mem::take(&mut state.woken);
        drop(state);
        woken.into_iter().for_each(OperationWaiter::wake);
    }
}

impl ConnectionState {
    /// Uses the machine.
    pub(super) fn client_do<T>(&mut self, act: impl FnOnce(&mut CluClient, &mut ClientOutput) -> T) -> T {
        act(&mut self.client, &mut self.out)
    }

    fn happened(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Ended { request, outcome } => {
                let Some(slot) = self.operations.get_mut(&request) else { return };
                slot.outcome = Some(outcome);
                self.n_waiting -= 1;
                if let Some(waiter) = slot.waiter.take() {
                    self.n_futures -= usize::from(matches!(waiter, OperationWaiter::Future(_)));
                    self.woken.push(waiter);
                }
            }
            ClientEvent::Update { subscription, first, values } => {
                self.deliveries.update(subscription, CluUpdate::Values { first, values });
            }
            ClientEvent::Missing { subscription, index } => {
                self.deliveries.update(subscription, CluUpdate::Missing { index });
            }
            ClientEvent::Availability(availability) => self.deliveries.availability(availability),
        }
    }

    /// Takes the outcome of an operation that has ended.
    pub(super) fn take_outcome(&mut self, request: RequestId) -> Option<RequestOutcome> {
        match self.operations.entry(request) {
            Entry::Occupied(mut slot) => {
                let outcome = slot.get_mut().outcome.take()?;
                slot.remove();
                Some(outcome)
            }
            Entry::Vacant(_) => None,
        }
    }

    pub(super) fn has_ended(&self, request: RequestId) -> bool {
        self.operations.get(&request).is_none_or(|slot| slot.outcome.is_some())
    }

    /// Sets what the end of an operation wakes. Returns what it would have woken before.
    pub(super) fn await_outcome(&mut self, request: RequestId, waiter: OperationWaiter) -> Option<OperationWaiter> {
        let earlier = self.forget_waiter(request);
        let Some(slot) = self.operations.get_mut(&request) else { return Some(waiter) };
        self.n_futures += usize::from(matches!(waiter, OperationWaiter::Future(_)));
        slot.waiter = Some(waiter);
        earlier
    }

    fn forget_waiter(&mut self, request: RequestId) -> Option<OperationWaiter> {
        let waiter = self.operations.get_mut(&request)?.waiter.take();
        self.n_futures -= usize::from(matches!(waiter, Some(OperationWaiter::Future(_))));
        waiter
    }

    /// Passes a received datagram to the machine.
    pub(super) fn received(&mut self, from: SocketAddr, datagram: &[u8], now: fodo_data::Now) {
        if !self.is_closed {
            self.client.received(from, datagram, now, &mut self.out);
        }
    }
}
