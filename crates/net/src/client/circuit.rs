//! One TCP connection to a server, driven by the reactor, a blocking call or an event loop of the program.
//!
//! One mutex guards the whole state. If no other caller reads the circuit, a blocking caller becomes the reader until its
//! own reply is received, and ends the operations of others whose replies it reads. When it leaves, the next blocked
//! caller takes over. Without one, the circuit rests for a moment ([`limit::READER_LEASE`]) and then returns to the
//! reactor. That part is in `drive`. An event loop that awaits operations reads for [`limit::LOOP_LEASE`] after the last one;
//! that part is in `in_loop`.
//!
//! The queue of requests is bounded whatever the server does. An operation is encoded only while fewer than
//! [`limit::REQUEST_BYTES`] wait to be sent; otherwise its task waits in `unsent`, until there is space or its caller
//! gives it up. The other requests are small, and always queued; beyond [`limit::UNREAD_BYTES`] the circuit is closed.

mod drive;
mod in_loop;
mod machine;
mod replies;
mod requests;
mod row_stages;
mod server_channel;
mod spare_arrays;
mod subscriptions;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

use fodo_ca::client::Event;
use fodo_data::{Meta, Now};
use fodo_engine::role::{Reader, ReaderRole};
use fodo_engine::{Cid, IdMap, Ioid, NumberMap, Sid, SubscriptionId};
use fodo_lock::{Mutex, MutexGuard, Rank};

pub(in crate::client) use self::machine::ClientMachine;
use self::row_stages::RowStages;
pub(crate) use self::row_stages::RowTarget;
pub(super) use self::server_channel::Expected;
pub(crate) use self::server_channel::ServerChannel;
use self::spare_arrays::SpareArrays;
pub(super) use self::subscriptions::MonitorSubscriptions;
use self::subscriptions::Subscribed;
use super::batch::{Batch, Failure};
use super::channel::{ChannelCore, Trouble};
use super::loop_reader::LoopHolder;
use super::monitor::MonitorCore;
use super::operation::{OperationCore, OperationTask, Waiter};
use super::{ContextCore, Error, ErrorKind, Notice, Refusal};
use crate::config::ClientConfig;
use crate::flush_delay::FlushDelay;
use crate::pva::client::CircuitEvent;
use crate::reactor::{Reactor, Readiness, Registration};
use crate::stream::{ConnectProgress, WriteOutcome, connect_progress};
use crate::tls::{self, HandshakeProgress, TlsPeer, TlsStream};
use crate::{clock, limit, socket, stream};

/// One TCP connection to a server.
pub(super) struct Circuit {
    server: SocketAddr,
    registration: Registration,
    context: Weak<ContextCore>,
    stream: TcpStream,
    /// How long a blocking call polls before it sleeps.
    spin: Duration,
    /// The server's identity in its certificate, once the handshake of TLS is complete.
    tls_peer: OnceLock<Arc<TlsPeer>>,
    state: Mutex<State>,
}

struct State {
    server: SocketAddr,
    machine: ClientMachine,
    /// The encryption of the stream; `None` if it is plain TCP.
    tls: Option<Box<TlsStream>>,
    phase: CircuitPhase,
    role: ReaderRole<ThreadId, Thread, LoopHolder>,
    lease_is_timed: bool,
    channels: NumberMap<Cid, Arc<ChannelCore>>,
    /// Individual operations.
    operations: IdMap<Ioid, InProgress>,
    /// Operations that wait for space in the queue, in the order of their start.
    unsent: BTreeMap<u64, Unsent>,
    unsent_next: u64,
    /// The largest request so far.
    request_bytes_max: usize,
    /// Batches in progress. There are few, since a thread waits for each.
    batches: Vec<Batch>,
    batch_number_next: u32,
    subscriptions: IdMap<SubscriptionId, Subscribed>,
    row_stages: RowStages,
    flush_delay: FlushDelay,
    flush_is_requested: bool,
    /// The reactor is scheduled to send the requests of a burst soon.
    flush_is_timed: bool,
    /// When a request for which no caller waits was last made, unless the reactor was to send it with others.
    last_unawaited: Option<Instant>,
    /// The pending bytes when the reactor last tried to send while a caller reads, and the pause until it tries again.
    retried: (usize, Duration),
    /// The last channel was closed; close the circuit once all pending bytes are sent.
    closes_when_sent: bool,
    /// Events of the machine that were not handled at once.
    events: Vec<Event>,
    /// The same, of a machine for pvAccess.
    pva_events: Vec<CircuitEvent>,
    began: Instant,
    spare_arrays: SpareArrays,
    /// When the bytes being handled were received, in nanoseconds since `began`.
    received_ns: u64,
    /// Monitors whose callbacks must run: scheduled together at the end of [`Circuit::dispatch`], or after unlocking if
    /// the user's own executor runs them.
    called: Vec<Arc<MonitorCore>>,
    afterwards: Afterwards,
}

/// Work that is done after unlocking the circuit, since it can run user code.
#[derive(Default)]
pub(super) struct Afterwards {
    pub(super) woken: Vec<Waiter>,
    /// Monitors whose last reference this may be: dropping one drops its callback.
    pub(super) dropped: Vec<Arc<MonitorCore>>,
}

/// An individual operation; the comment of each says what it waits for.
enum InProgress {
    /// For the server's reply.
    Issued {
        operation: Arc<OperationCore>,
        /// The expected reply to a get; `None` for a put.
        expected: Option<Expected>,
        /// The result of the first of two requests.
        meta: Option<Arc<Meta>>,
    },
    /// For space in the queue; its key in `unsent`.
    Unsent(Arc<OperationCore>, u64),
}

impl InProgress {
    fn operation(&self) -> &Arc<OperationCore> {
        match self {
            InProgress::Issued { operation, .. } | InProgress::Unsent(operation, _) => operation,
        }
    }
}

/// An operation whose request is not encoded yet.
struct Unsent {
    ioid: Ioid,
    task: OperationTask,
    server_channel: ServerChannel,
}

/// The state of the connection; the comment of each says what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CircuitPhase {
    /// For the TCP connection, until this deadline.
    Opening(Instant),
    /// For the handshake of TLS, until this deadline. The reactor drives it.
    Securing(Instant),
    /// For nothing: requests can be sent.
    Open,
    /// For its channels to release it.
    Closed,
}

thread_local! {
    /// Bytes received from a socket, before they are decoded.
    static RECEIVED: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; limit::RECEIVE_BYTES]);
}

impl std::fmt::Debug for Circuit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Circuit").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Circuit {
    /// Starts to connect. `tls`: the encryption, unless it is plain TCP.
    pub(super) fn open(
        server: SocketAddr,
        machine: ClientMachine,
        tls: Option<TlsStream>,
        config: &ClientConfig,
        reactor: &Reactor,
        context: Weak<ContextCore>,
    ) -> io::Result<Arc<Circuit>> {
        let now = clock::now();
        let stream = socket::connect(server)?;
        let state = State {
            server,
            machine,
            tls: tls.map(Box::new),
            phase: CircuitPhase::Opening(now.monotonic + limit::CONNECT),
            role: ReaderRole::default(),
            lease_is_timed: false,
            channels: NumberMap::default(),
            operations: IdMap::new(requests::SINGLE_NUMBER_BITS),
            unsent: BTreeMap::new(),
            unsent_next: 0,
            request_bytes_max: 0,
            batches: Vec::new(),
            batch_number_next: requests::BATCH_NUMBERS.start,
            subscriptions: IdMap::new(u32::BITS),
            row_stages: RowStages::default(),
            flush_delay: FlushDelay::new(config.flush_delay),
            flush_is_requested: false,
            flush_is_timed: false,
            last_unawaited: None,
            retried: (0, limit::READER_LEASE),
            closes_when_sent: false,
            events: Vec::new(),
            pva_events: Vec::new(),
            began: now.monotonic,
            spare_arrays: SpareArrays::default(),
            received_ns: 0,
            called: Vec::new(),
            afterwards: Afterwards::default(),
        };
        let circuit = Arc::new_cyclic(|circuit: &Weak<Circuit>| {
            let registration = reactor.add(circuit.clone());
            let state = Mutex::ranked(Rank::Circuit, state);
            let spin = config.spin;
            Circuit { server, registration, context, stream, spin, tls_peer: OnceLock::new(), state }
        });
        circuit.registration.add_socket(&circuit.stream, Readiness::ReadableOrWritable)?;
        circuit.registration.call_at(now.monotonic + limit::CONNECT);
        Ok(circuit)
    }

    pub(super) fn server(&self) -> SocketAddr {
        self.server
    }

    /// Number of bytes of requests that wait to be sent.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.state.lock().machine.queued_bytes()
    }

    /// Requests channels on the circuit that `circuit` returns; again if that one has closed meanwhile, as it does when
    /// its last channel is closed. Fails if `circuit` fails.
    pub(super) fn create_on<'a>(
        circuit: impl Fn() -> io::Result<Arc<Circuit>>,
        channels: impl Iterator<Item = &'a Arc<ChannelCore>> + Clone,
    ) -> io::Result<()> {
        for _ in 0..limit::ISSUE_ATTEMPTS {
            if circuit()?.create(channels.clone()) {
                return Ok(());
            }
        }
        Err(io::ErrorKind::NotConnected.into())
    }

    /// Requests channels, now or as soon as the connection is open. Returns false if the circuit is closed.
    fn create<'a>(self: &Arc<Self>, channels: impl Iterator<Item = &'a Arc<ChannelCore>>) -> bool {
        let now = clock::now();
        let mut state = self.state.lock();
        if state.phase == CircuitPhase::Closed {
            return false;
        }
        for channel in channels {
            // A channel closed concurrently was either closed before this check or removes itself afterwards.
            if channel.connecting(self) {
                state.closes_when_sent = false;
                state.machine.create(channel.cid(), channel.name(), now);
                state.channels.insert(channel.cid(), channel.clone());
            }
        }
        if let Some(due) = state.machine.deadline() {
            self.registration.call_at(due);
        }
        self.close_if_unused(&mut state);
        self.flush(&mut state);
        if matches!(state.role.reader(), Reader::Resting(_)) {
            // The reactor resumes reading at once.
            self.request_flush(&mut state);
        }
        self.request_retry(&mut state);
        self.release(state);
        true
    }

    /// Closes a channel; its owners have already ended its operations and monitors.
    pub(super) fn clear(&self, cid: Cid, sid: Option<Sid>) {
        let mut state = self.state.lock();
        if state.channels.remove(cid).is_some() {
            if state.phase == CircuitPhase::Open {
                state.machine.clear_after_puts(cid, sid);
            }
            self.flush_soon(&mut state);
            self.close_if_unused(&mut state);
        }
        self.release(state);
    }

    /// Closes a channel here, because another server has claimed its name while this server is silent.
    pub(super) fn abandon(self: &Arc<Self>, channel: &ChannelCore) {
        let mut state = self.state.lock();
        if state.phase == CircuitPhase::Open {
            let sid = channel.server_channel_on(self).map(|server_channel| server_channel.sid);
            state.machine.clear(channel.cid(), sid);
        }
        self.lose(&mut state, channel.cid(), Trouble::NoReply(self.server));
        self.close_if_unused(&mut state);
        self.release(state);
    }

    /// Closes a circuit without channels once all pending bytes are sent.
    fn close_if_unused(&self, state: &mut State) {
        let is_unused = state.channels.is_empty() && !state.machine.has_cleared_channels();
        if is_unused && state.phase != CircuitPhase::Closed {
            state.closes_when_sent = true;
            self.flush(state);
        }
    }

    /// The operation's caller has given up; a later reply is ignored.
    pub(super) fn forget_operation(&self, ioid: Ioid) {
        let mut state = self.state.lock();
        if let Some(InProgress::Unsent(_, key)) = state.operations.remove(ioid) {
            state.unsent.remove(&key);
        }
        state.machine.forget(ioid);
    }

    /// Ensures that queued requests are sent.
    fn request_flush(&self, state: &mut State) {
        if state.flush_is_requested || state.phase != CircuitPhase::Open {
            return;
        }
        state.flush_is_requested = true;
        self.registration.call_soon();
    }

    /// Sends pending bytes, unless they wait for more: then the reactor sends them.
    #[inline]
    fn flush(&self, state: &mut State) {
        match state.flush_delay.is_zero() {
            true => self.send(state),
            false => self.send_delayed(state),
        }
    }

    #[cold]
    fn send_delayed(&self, state: &mut State) {
        if self.waits_for_more(state) {
            return;
        }
        self.send(state);
        if !state.machine.has_pending_bytes() {
            state.flush_delay.all_sent();
        }
    }

    /// Whether the flush delay lets the pending bytes wait for more.
    fn waits_for_more(&self, state: &mut State) -> bool {
        if state.closes_when_sent || state.phase != CircuitPhase::Open {
            return false;
        }
        let before = state.flush_delay.deadline();
        let waits = state.flush_delay.waits_for_more(state.machine.pending_bytes(), Instant::now());
        if let (None, Some(until)) = (before, state.flush_delay.deadline()) {
            self.registration.call_at(until);
        }
        waits
    }

    /// Writes pending bytes until the socket accepts no more, and fills the queue again with operations that wait for
    /// space.
    fn send(&self, state: &mut State) {
        while state.phase == CircuitPhase::Open {
            let flushed = match &mut state.tls {
                None => state.machine.flush(&self.stream),
                Some(tls) => state.machine.flush_encrypted(tls, &self.stream),
            };
            match flushed {
                Ok(outcome) => match (outcome, state.request_unsent()) {
                    (WriteOutcome::All, true) => {}
                    (WriteOutcome::All, false) if state.closes_when_sent => self.close(state, None),
                    (WriteOutcome::All, false) => return,
                    _ if state.machine.pending_bytes() > limit::UNREAD_BYTES + state.request_bytes_max => {
                        self.close(state, None);
                    }
                    _ => return,
                },
                Err(_) => self.close(state, None),
            }
        }
    }

    /// Reads and handles up to `budget` bytes; returns true if there may be more. `to_the_end`: read until the socket
    /// is empty or closed; otherwise a short read ends it.
    fn receive(self: &Arc<Self>, state: &mut State, budget: usize, to_the_end: bool) -> bool {
        RECEIVED.with_borrow_mut(|buffer| {
            let mut taken = 0;
            while taken < budget && state.phase == CircuitPhase::Open {
                let read = match &mut state.tls {
                    None => stream::read(&self.stream, buffer),
                    Some(tls) => tls.read(&self.stream, buffer),
                };
                match read {
                    Ok(Some(n)) => {
                        taken += n;
                        let now = clock::now();
                        let since_open = now.monotonic.saturating_duration_since(state.began);
                        state.received_ns = u64::try_from(since_open.as_nanos()).unwrap_or(u64::MAX);
                        for piece in buffer[..n].chunks(limit::DECODE_PIECE_BYTES) {
                            self.decode(state, piece, now);
                        }
                        if let Some(at) = state.spare_arrays.untimed_deadline() {
                            self.registration.call_at(at);
                        }
                        if n < buffer.len() && !to_the_end {
                            return state.has_received();
                        }
                    }
                    Ok(None) => return state.has_received(),
                    Err(error) => self.fail(state, &error),
                }
            }
            state.phase == CircuitPhase::Open
        })
    }

    /// Ends all operations, or those of one channel, as disconnected.
    fn drop_operations(&self, state: &mut State, only: Option<Cid>) {
        let State { operations, unsent, batches, afterwards, .. } = state;
        let is_lost = |of: &InProgress| only.is_none_or(|cid| cid == of.operation().channel().cid());
        for lost in operations.extract(is_lost) {
            if let InProgress::Unsent(_, key) = lost {
                unsent.remove(&key);
            }
            let operation = lost.operation();
            let error = Error::new(operation.channel().name(), ErrorKind::Disconnected { server: self.server });
            afterwards.woken.push(operation.end(Err(error)));
        }
        afterwards.woken.extend(batches.iter_mut().filter_map(|batch| batch.end_all(only, &Failure::Disconnected)));
    }

    /// Closes the circuit, because reading has failed. Servers of TLS reject the certificate of a client after its handshake.
    #[cold]
    fn fail(&self, state: &mut State, error: &io::Error) {
        match tls::failure(error) {
            Some(reason) => self.reject(state, reason),
            None => self.close(state, None),
        }
    }

    /// Closes the circuit, because its handshake of TLS failed; reports why.
    #[cold]
    fn reject(&self, state: &mut State, reason: String) {
        if let Some(context) = self.context.upgrade() {
            context.add_notice(Notice::HandshakeFailed { server: self.server, reason: reason.clone() });
        }
        self.close_because(state, Trouble::Handshake(self.server, reason.into()));
    }

    /// Closes the circuit; the search for its channels starts again.
    fn close(&self, state: &mut State, refusal: Option<Refusal>) {
        let trouble = match refusal {
            Some(refusal) => Trouble::Refused(self.server, refusal),
            None if state.phase == CircuitPhase::Open => Trouble::ConnectionClosed(self.server),
            None => Trouble::NoReply(self.server),
        };
        self.close_because(state, trouble);
    }

    fn close_because(&self, state: &mut State, trouble: Trouble) {
        if state.phase == CircuitPhase::Closed {
            return;
        }
        state.phase = CircuitPhase::Closed;
        if state.role.reader() == Reader::Reactor {
            self.registration.remove_socket(&self.stream);
        }
        self.leave_loop(state, Instant::now());
        if let Some(tls) = &mut state.tls {
            tls.close(&self.stream);
        }
        // A thread in poll(2) on the socket is woken by this.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        if let Some(context) = self.context.upgrade() {
            context.forget_circuit(self);
        }
        self.drop_operations(state, None);
        let subscriptions = state.subscriptions.take_all();
        state.afterwards.dropped.extend(subscriptions.into_iter().map(Subscribed::into_monitor));
        for channel in std::mem::take(&mut state.channels).into_values() {
            channel.lost(trouble.clone(), &mut state.afterwards);
        }
        state.role.waiting_callers().for_each(Thread::unpark);
    }

    /// The context is closed: sends as much as the socket accepts now, then closes.
    pub(super) fn end_with_context(&self) {
        let mut state = self.state.lock();
        self.send(&mut state);
        let State { operations, unsent, batches, afterwards, .. } = &mut *state;
        unsent.clear();
        for in_progress in operations.take_all() {
            let operation = in_progress.operation();
            afterwards.woken.push(operation.end(Err(operation.channel().closed())));
        }
        afterwards.woken.extend(batches.iter_mut().filter_map(|batch| batch.end_all(None, &Failure::Closed)));
        self.close(&mut state, None);
        self.release(state);
    }

    /// Unlocks, then does the work that was deferred.
    fn release(&self, mut state: MutexGuard<'_, State>) {
        if state.afterwards.dropped.is_empty() && state.called.is_empty() {
            // Nothing, or as with a single operation one waiter: the list keeps its allocation.
            if state.afterwards.woken.len() <= 1 {
                let woken = state.afterwards.woken.pop();
                drop(state);
                return woken.into_iter().for_each(Waiter::wake);
            }
        }
        let Afterwards { woken, dropped } = std::mem::take(&mut state.afterwards);
        // Usually empty; then it keeps its allocation.
        let mut called = if state.called.is_empty() { Vec::new() } else { std::mem::take(&mut state.called) };
        drop(state);
        woken.into_iter().for_each(Waiter::wake);
        MonitorCore::call(&mut called);
        drop(dropped);
    }

    /// Checks whether the connection is established.
    fn opened(self: &Arc<Self>, state: &mut State, until: Instant, now: Now) {
        match connect_progress(&self.stream) {
            Ok(ConnectProgress::Established) if state.tls.is_some() => {
                state.phase = CircuitPhase::Securing(now.monotonic + limit::TLS_HANDSHAKE);
            }
            Ok(ConnectProgress::Established) => state.phase = CircuitPhase::Open,
            Ok(ConnectProgress::Pending) if now.monotonic < until => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.close(state, Some(Refusal::Connection));
            }
            Ok(ConnectProgress::Pending) | Err(_) => self.close(state, None),
        }
    }

    /// Continues the handshake of TLS.
    #[cold]
    fn secure(&self, state: &mut State, until: Instant, now: Now) {
        let Some(tls) = &mut state.tls else { return };
        match tls.handshake_until(&self.stream, until, now.monotonic) {
            Ok(HandshakeProgress::Complete) => {
                if tls.has_own_certificate() {
                    state.machine.use_certificate();
                }
                // Set once: a handshake is completed once.
                let _ = self.tls_peer.set(Arc::new(tls.peer().unwrap_or_default()));
                state.phase = CircuitPhase::Open;
            }
            Ok(HandshakeProgress::Pending) => {}
            Err(reason) => self.reject(state, reason),
        }
    }

    /// The identity of the server, if the circuit uses TLS and its handshake is complete.
    pub(super) fn tls_peer(&self) -> Option<Arc<TlsPeer>> {
        self.tls_peer.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{self, Waker};

    use fodo_data::Reading;

    use super::super::batch::BatchEnd;
    use super::super::loop_reader::LoopReader;
    use super::super::{Context, Operation};
    use super::*;
    use crate::config::ClientConfig;
    use crate::protocol::Protocol;
    use crate::reactor::{EventHandler as _, NextCall};
    use fodo_engine::role::Taken;

    /// An open circuit, and the server's end of it.
    fn connected() -> (Arc<Circuit>, TcpStream) {
        connected_on(&Reactor::shared().unwrap())
    }

    /// The same, with a reactor that has ended: only the test drives the circuit.
    fn connected_without_reactor() -> (Arc<Circuit>, TcpStream) {
        connected_on(&Reactor::start("ends at once").unwrap())
    }

    fn connected_on(reactor: &Reactor) -> (Arc<Circuit>, TcpStream) {
        connected_with(Duration::ZERO, reactor)
    }

    fn connected_with(flush_delay: Duration, reactor: &Reactor) -> (Arc<Circuit>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config =
            ClientConfig { payload_bytes_max: 1 << 20, flush_delay, ..ClientConfig::with_addresses(Vec::new()) };
        let address = listener.local_addr().unwrap();
        let machine = ClientMachine::new(Protocol::Ca, &config, 0);
        let circuit = Circuit::open(address, machine, None, &config, reactor, Weak::new()).unwrap();
        let (server, _) = listener.accept().unwrap();
        circuit.state.lock().phase = CircuitPhase::Open;
        (circuit, server)
    }

    /// Waits until this many bytes are in the circuit's socket; the locked state keeps others from reading it.
    fn await_bytes(circuit: &Circuit, n_bytes: usize) {
        let start = Instant::now();
        while n_waiting(circuit) < n_bytes {
            assert!(start.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
    }

    fn n_waiting(circuit: &Circuit) -> usize {
        circuit.stream.peek(&mut [0; 4096]).unwrap_or(0)
    }

    #[test]
    fn a_circuit_reads_up_to_its_budget_and_returns_whether_there_may_be_more() {
        let echo = [0, 23, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for (budget, to_the_end, may_be_more, n_left) in [
            (0, true, true, 800),
            (1, true, true, 0),
            (800, true, true, 0),
            (801, true, false, 0),
            (800, false, false, 0),
        ] {
            let (circuit, mut server) = connected();
            let mut state = circuit.state.lock();
            server.write_all(&echo.repeat(50)).unwrap();
            await_bytes(&circuit, 800);

            let is_more = circuit.receive(&mut state, budget, to_the_end);

            assert_eq!((is_more, n_waiting(&circuit)), (may_be_more, n_left), "{budget} {to_the_end}");
            assert_eq!(state.phase, CircuitPhase::Open);
        }
    }

    #[test]
    fn a_circuit_is_closed_when_its_server_disconnects_and_accepts_no_further_channel() {
        let (circuit, server) = connected();
        let mut state = circuit.state.lock();
        drop(server);

        let start = Instant::now();
        while state.phase == CircuitPhase::Open && start.elapsed() < Duration::from_secs(10) {
            assert!(!circuit.receive(&mut state, 1, true));
        }

        assert_eq!(state.phase, CircuitPhase::Closed);
        drop(state);
        assert!(!circuit.create(std::iter::empty()));
    }

    #[test]
    fn channels_are_requested_again_if_their_circuit_closes_as_unused() {
        let (closed, _server) = connected();
        closed.end_with_context();
        let (open, _other_server) = connected();
        let n_calls = std::cell::Cell::new(0);
        let circuit = || {
            n_calls.set(n_calls.get() + 1);
            Ok(if n_calls.get() == 1 { closed.clone() } else { open.clone() })
        };

        let requested = Circuit::create_on(circuit, std::iter::empty());

        assert!(requested.is_ok());
        assert_eq!(n_calls.get(), 2);
    }

    #[test]
    fn the_end_of_a_subscription_that_closes_the_circuit_wakes_its_operations() {
        struct Counting(AtomicUsize);
        impl std::task::Wake for Counting {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (circuit, _server) = connected_without_reactor();
        let x = Context::new(ClientConfig::with_addresses(Vec::new())).channel("x").unwrap();
        let server_channel = ServerChannel { sid: Sid(1), kind: fodo_data::Kind::F64, count: 1 };
        let operation = OperationCore::new(x.core().clone(), None);
        {
            let mut state = circuit.state.lock();
            circuit.issue_locked(&mut state, &operation, &OperationTask::Get(Default::default()), server_channel);
            state.machine.queue(&vec![0; limit::BURST_BYTES]);
        }
        let counting = Arc::new(Counting(AtomicUsize::new(0)));
        let waker = Waker::from(counting.clone());
        let mut get = pin!(Operation::<Reading>::new(operation, x));
        assert!(get.as_mut().poll(&mut task::Context::from_waker(&waker)).is_pending());
        circuit.stream.shutdown(std::net::Shutdown::Both).unwrap();

        circuit.cancel(MonitorSubscriptions { server_channel, subscription: SubscriptionId(0), description: None });

        assert_eq!(counting.0.load(Ordering::Relaxed), 1);
        assert!(get.poll(&mut task::Context::from_waker(&waker)).is_ready());
    }

    #[test]
    fn requests_are_a_burst_only_while_each_follows_the_one_before_closely() {
        let (circuit, _server) = connected_without_reactor();
        let mut state = circuit.state.lock();
        let (start, gap) = (Instant::now(), limit::BURST_GAP);

        let are_bursts = [0, 1, 3, 4, 6].map(|n| state.is_burst(start + gap / 2 * n));

        assert_eq!(are_bursts, [false, true, false, true, false]);
    }

    #[test]
    fn sending_is_tried_again_ever_less_often_while_a_caller_reads_and_the_server_does_not() {
        let (circuit, _server) = connected_without_reactor();
        let mut state = circuit.state.lock();
        assert_ne!(state.role.take(), Taken::Not);
        state.machine.queue(&vec![0; 64 << 20]);
        circuit.flush(&mut state);
        drop(state);
        let now = clock::now();

        let pauses = (0..20).map(|_| match circuit.clone().on_event(now) {
            NextCall::At(at) => at - now.monotonic,
            other => panic!("{other:?}"),
        });
        let pauses: Vec<Duration> = pauses.collect();

        assert_eq!(pauses[0], limit::READER_LEASE);
        // The system may take a few more bytes at first.
        let is_next = |pair: &[Duration]| pair[1] == limit::READER_LEASE || pair[1] == pair[0] * 2;
        let n_growing = pauses.windows(2).take_while(|pair| is_next(pair)).count();
        assert!(
            n_growing >= 6 && pauses[n_growing..].iter().all(|pause| *pause == limit::RETRY_PAUSE_MAX),
            "{pauses:?}"
        );
    }

    #[test]
    fn a_caller_that_waits_for_a_reply_is_not_woken_because_the_socket_accepts_bytes() {
        let (circuit, _server) = connected_without_reactor();
        let n_checks = std::cell::Cell::new(0);
        let is_done = || {
            n_checks.set(n_checks.get() + 1);
            false
        };

        circuit.drive(Instant::now() + Duration::from_millis(50), &is_done);

        assert!(n_checks.get() < 10, "{} checks", n_checks.get());
    }

    const ECHO: [u8; 16] = [0, 23, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    /// A circuit that an event loop has begun to read, and when its lease ends.
    fn read_in_loop() -> (Arc<Circuit>, TcpStream, LoopReader, Now, Instant) {
        let (circuit, server) = connected_without_reactor();
        let (reader, start) = (LoopReader::new().unwrap(), clock::now());
        circuit.attend_in(&reader);
        let until = lease_end(&circuit, start);
        assert!(until >= start.monotonic + limit::LOOP_LEASE);
        (circuit, server, reader, start, until)
    }

    /// The end of the lease, as the turn of the reactor returns it.
    fn lease_end(circuit: &Arc<Circuit>, now: Now) -> Instant {
        match circuit.clone().on_event(now) {
            NextCall::At(until) => until,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_event_loop_reads_what_its_circuit_receives_and_the_reactor_does_not() {
        let (circuit, mut server, reader, start, _) = read_in_loop();
        server.write_all(&ECHO.repeat(50)).unwrap();
        let start_waiting = Instant::now();
        while n_waiting(&circuit) < 800 {
            assert!(start_waiting.elapsed() < Duration::from_secs(10));
            lease_end(&circuit, start);
        }

        reader.serve(Some(Duration::ZERO));

        assert_eq!(n_waiting(&circuit), 0);
    }

    #[test]
    fn the_reactor_takes_the_reading_back_when_the_lease_of_an_event_loop_has_ended() {
        let (circuit, mut server, reader, start, until) = read_in_loop();
        server.write_all(&ECHO.repeat(50)).unwrap();
        while n_waiting(&circuit) < 800 {
            std::thread::yield_now();
        }

        circuit.clone().on_event(start + (until - start.monotonic));

        assert_eq!((circuit.state.lock().role.reader(), n_waiting(&circuit)), (Reader::Reactor, 0));
        server.write_all(&ECHO).unwrap();
        while n_waiting(&circuit) < 16 {
            std::thread::yield_now();
        }
        reader.serve(Some(Duration::ZERO));
        assert_eq!(n_waiting(&circuit), 16, "the loop reads it no longer");
    }

    #[test]
    fn the_next_operation_extends_the_lease_of_an_event_loop_only_if_it_has_read() {
        let (circuit, mut server, reader, start, until) = read_in_loop();

        circuit.attend_in(&reader);
        let unread = lease_end(&circuit, start);
        server.write_all(&ECHO).unwrap();
        reader.serve(Some(Duration::from_secs(10)));
        circuit.attend_in(&reader);
        let read = lease_end(&circuit, start);

        assert_eq!(unread, until);
        assert!(read > until);
    }

    #[test]
    fn an_event_loop_reads_no_circuit_whose_socket_is_full() {
        let (circuit, _server) = connected_without_reactor();
        let reader = LoopReader::new().unwrap();
        circuit.state.lock().machine.queue(&vec![0; 64 << 20]);

        circuit.attend_in(&reader);
        let at_first = circuit.state.lock().role.reader();
        let (other, _other_server, _reader, start, _) = read_in_loop();
        other.state.lock().machine.queue(&vec![0; 64 << 20]);
        other.clone().on_event(start);

        assert_eq!((at_first, other.state.lock().role.reader()), (Reader::Reactor, Reader::Reactor));
    }

    #[test]
    fn an_event_loop_reads_again_after_a_blocking_call() {
        let (circuit, mut server, reader, ..) = read_in_loop();
        let is_read_in_loop = || circuit.state.lock().role.reader() == Reader::Loop;
        let start = Instant::now();

        // On a busy host the call may take longer than the lease.
        loop {
            circuit.attend_in(&reader);
            circuit.drive(Instant::now() + Duration::from_micros(100), &|| false);
            if is_read_in_loop() {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(10));
        }
        server.write_all(&ECHO).unwrap();
        reader.serve(Some(Duration::from_secs(10)));

        assert_eq!(n_waiting(&circuit), 0);
        circuit.end_with_context();
        assert!(!is_read_in_loop());
    }

    #[test]
    fn a_circuit_is_closed_when_a_server_that_reads_nothing_has_too_many_requests() {
        let (circuit, _server) = connected_without_reactor();
        let mut state = circuit.state.lock();
        let piece = vec![0; 1 << 20];

        while state.machine.pending_bytes() <= limit::UNREAD_BYTES - piece.len() {
            state.machine.queue(&piece);
        }
        circuit.flush(&mut state);
        assert_eq!(state.phase, CircuitPhase::Open);
        // More than the buffers of the system have taken.
        (0..32).for_each(|_| state.machine.queue(&piece));
        circuit.flush(&mut state);

        assert_eq!(state.phase, CircuitPhase::Closed);
    }

    #[test]
    fn requests_wait_for_the_flush_delay_unless_there_are_many() {
        let delay = Duration::from_secs(3600);
        let (circuit, _server) = connected_with(delay, &Reactor::start("ends at once").unwrap());
        let mut state = circuit.state.lock();
        let first_bytes = state.machine.pending_bytes();
        circuit.flush(&mut state);
        let until = state.flush_delay.deadline().unwrap();
        let waits_for_socket = state.awaits_socket();

        state.machine.queue(&vec![0; limit::FLUSH_BYTES - first_bytes - 1]);
        circuit.flush(&mut state);
        let nearly_enough = state.machine.pending_bytes();
        drop(state);
        let turn = circuit.clone().on_event(clock::now());
        let mut state = circuit.state.lock();
        state.machine.queue(&[0]);
        circuit.flush(&mut state);
        let enough = state.machine.pending_bytes();

        assert!(first_bytes > 0 && until > Instant::now() + delay / 2 && !waits_for_socket);
        assert!(matches!(turn, NextCall::At(at) if at <= until), "{turn:?}");
        assert_eq!((nearly_enough, enough), (limit::FLUSH_BYTES - 1, 0));
        assert_eq!(state.flush_delay.deadline(), None);
    }

    #[test]
    fn a_circuit_whose_last_channel_is_closed_does_not_wait_for_more_requests() {
        let (circuit, _server) = connected_with(Duration::from_secs(3600), &Reactor::start("ends at once").unwrap());
        let mut state = circuit.state.lock();
        circuit.flush(&mut state);

        circuit.close_if_unused(&mut state);

        assert_eq!(state.phase, CircuitPhase::Closed);
    }

    #[test]
    fn batch_ids_are_consecutive_and_wrap_around() {
        let (circuit, _server) = connected();
        let mut state = circuit.state.lock();
        let (start, end) = (requests::BATCH_NUMBERS.start, requests::BATCH_NUMBERS.end);
        assert!(start > u32::MAX >> (u32::BITS - requests::SINGLE_NUMBER_BITS), "no number of a single operation");

        assert_eq!(state.next_batch_numbers(10), start..start + 10);
        assert_eq!(state.next_batch_numbers(5), start + 10..start + 15);
        state.batch_number_next = end - 5;
        assert_eq!(state.next_batch_numbers(5), end - 5..end);
        assert_eq!(state.next_batch_numbers(1), start..start + 1);
        state.batch_number_next = end - 5;
        assert_eq!(state.next_batch_numbers(6), start..start + 6);
        assert_eq!(state.next_batch_numbers(usize::MAX), start..end);
    }

    #[test]
    fn batch_ids_are_those_that_no_batch_in_progress_has() {
        let (circuit, _server) = connected_without_reactor();
        let mut state = circuit.state.lock();
        let start = requests::BATCH_NUMBERS.start;
        state.batches.push(Batch::new(start + 10..start + 20, &BatchEnd::for_this_thread()));

        assert_eq!(state.next_batch_numbers(10), start..start + 10, "up to the batch in progress");
        assert_eq!(state.next_batch_numbers(5), start + 20..start + 25, "from its end");
        state.batch_number_next = start + 9;
        assert_eq!(state.next_batch_numbers(2), start + 20..start + 22);
        state.batch_number_next = start + 19;
        assert_eq!(state.next_batch_numbers(1), start + 20..start + 21);
    }

    #[test]
    fn requests_without_a_waiting_caller_are_sent_together_and_others_by_their_caller() {
        let (circuit, _server) = connected_without_reactor();
        let context = Context::new(ClientConfig::with_addresses(Vec::new()));
        let x = context.channel("x").unwrap();
        let server_channel = ServerChannel { sid: Sid(1), kind: fodo_data::Kind::F64, count: 1 };
        assert!(x.core().activated(&circuit, server_channel, &mut Afterwards::default()).is_some());
        let unsent_after_issuing = |is_driven| {
            let operation = OperationCore::new(x.core().clone(), None);
            assert!(circuit.issue(&operation, &OperationTask::Get(Default::default()), server_channel, is_driven));
            circuit.unsent_bytes()
        };

        let first = unsent_after_issuing(false);
        let second = unsent_after_issuing(false);
        let n_sent_at_once = (0..limit::FLIGHT_BYTES).filter(|_| unsent_after_issuing(true) == 0).count();
        let before = circuit.unsent_bytes();
        let last = unsent_after_issuing(false);

        assert!(0 < first && first < second && second < limit::FLIGHT_BYTES, "{first} {second}");
        assert_eq!(n_sent_at_once, 0, "their callers send them");
        assert!(before > limit::FLIGHT_BYTES && last == 0, "{before} {last}");
    }
}
