mod unconfirmed;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fodo_ca::eca::Eca;
use fodo_ca::search::Claim;
use fodo_ca::{Cid, Rights};
use fodo_data::{Array, Kind, Reading, Value};

use super::circuit::{Afterwards, Circuit, Place};
use super::monitor::{Callback, Monitor, MonitorCore, MonitorEvent, MonitorOptions};
use super::notice::Notice;
use super::operation::{Given, Operation, OperationCore, Outcome, Task};
use super::search::is_one_server;
use super::{ContextCore, Error, Facts, Priority, Refusal, Request};
use crate::limit;
use crate::sync::lock;

/// Where a channel stands; the comment says what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// For a server to claim the name.
    Searching,
    /// For the circuit to that server to open, and for the server to confirm the channel.
    Connecting,
    /// For nothing: operations may start.
    Active,
    /// For the server to be heard again; its circuit is still open.
    Unresponsive,
    /// For nothing: its context was closed.
    Closed,
}

/// The part of a channel that its handles, its circuit and its operations share.
pub(super) struct ChannelCore {
    name: Arc<str>,
    cid: Cid,
    priority: Priority,
    context: Arc<ContextCore>,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    rights: Rights,
    /// Operations that wait for the channel to be active.
    waiting: Vec<(Arc<OperationCore>, Task)>,
    monitors: Vec<Arc<MonitorCore>>,
    /// What went wrong last, for the text of a time-out.
    trouble: Option<Trouble>,
    /// Claims in a row that did not make it active; each doubles the pause before the next search.
    n_failures: u32,
    /// The user knows that two servers have the name.
    is_double_told: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    Searching,
    Connecting(Arc<Circuit>),
    Active(Arc<Circuit>, Place, Responsive),
    /// The last handle is gone, or the context was closed.
    Closed,
}

/// What has waited for a channel to be active.
pub(super) struct Activated {
    pub(super) operations: Vec<(Arc<OperationCore>, Task)>,
    pub(super) monitors: Vec<Arc<MonitorCore>>,
}

/// Whether the server of an active channel is heard.
type Responsive = bool;

/// Where an operation can be asked at once that cannot be asked where it was tried.
pub(super) enum Seating {
    /// On this circuit.
    On(Arc<Circuit>),
    Nowhere,
}

#[derive(Clone, Debug)]
enum Trouble {
    Claimed(SocketAddr),
    Refused(SocketAddr, Refusal),
}

impl std::fmt::Debug for ChannelCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("name", &self.name).field("phase", &lock(&self.state).phase).finish()
    }
}

impl ChannelCore {
    fn new(name: &str, cid: Cid, priority: Priority, context: Arc<ContextCore>) -> Arc<ChannelCore> {
        let state = State {
            phase: Phase::Searching,
            rights: Rights { read: true, write: true },
            waiting: Vec::new(),
            monitors: Vec::new(),
            trouble: None,
            n_failures: 0,
            is_double_told: false,
        };
        Arc::new(ChannelCore { name: name.into(), cid, priority, context, state: Mutex::new(state) })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn cid(&self) -> Cid {
        self.cid
    }

    /// A server has claimed the name.
    pub(super) fn claimed(self: &Arc<Self>, claim: &Claim) {
        let server = claim.server;
        if !claim.is_first {
            return self.claimed_too(server);
        }
        if !matches!(lock(&self.state).phase, Phase::Searching) {
            return;
        }
        let Ok(circuit) = self.context.circuit_to(server, self.priority) else {
            // The system gives no socket now.
            return self.search_again();
        };
        {
            let mut state = lock(&self.state);
            if !matches!(state.phase, Phase::Searching) {
                return;
            }
            state.trouble.get_or_insert(Trouble::Claimed(server));
            state.phase = Phase::Connecting(circuit.clone());
        }
        if !circuit.create(self) {
            return self.search_again();
        }
        if matches!(lock(&self.state).phase, Phase::Closed) {
            // Closed in between, when the circuit did not know it yet.
            circuit.clear(self.cid, None);
        }
    }

    /// A server has claimed the name that is another's already; the user is told once.
    fn claimed_too(&self, ignored: SocketAddr) {
        let mut state = lock(&self.state);
        let (Phase::Connecting(circuit) | Phase::Active(circuit, ..)) = &state.phase else { return };
        let used = circuit.server();
        if !state.is_double_told && !is_one_server(used, ignored) {
            state.is_double_told = true;
            drop(state);
            self.context.tell(Notice::TwoServers { pv: self.name.to_string(), used, ignored });
        }
    }

    /// Somebody waits for it.
    pub(super) fn hurry(&self) {
        self.context.search().hurry();
    }

    fn search_again(&self) {
        let mut state = lock(&self.state);
        if !matches!(state.phase, Phase::Closed) {
            state.phase = Phase::Searching;
            let pause = state.failed();
            drop(state);
            self.context.search().start(self.cid, self.name.clone(), pause);
        }
    }

    /// What the server allows; its monitors are told of a change while it is active.
    pub(super) fn set_rights(&self, rights: Rights, afterwards: &mut Afterwards) {
        let mut state = lock(&self.state);
        let has_changed = std::mem::replace(&mut state.rights, rights) != rights;
        if let Some(facts) = state.facts().filter(|_| has_changed) {
            afterwards.woken.extend(state.monitors.iter().map(|monitor| monitor.allowed(facts.clone())));
        }
    }

    /// Whether the server is heard; its monitors are told.
    pub(super) fn set_responsive(&self, is_responsive: bool, afterwards: &mut Afterwards) {
        let mut state = lock(&self.state);
        if let Phase::Active(_, _, responsive) = &mut state.phase {
            *responsive = is_responsive;
            afterwards.woken.extend(state.monitors.iter().map(|monitor| monitor.heard(is_responsive)));
        }
    }

    /// The server complains about something of this channel that has no answer of its own.
    pub(super) fn complained(&self, status: Eca) {
        let mut state = lock(&self.state);
        if let Phase::Connecting(circuit) | Phase::Active(circuit, ..) = &state.phase {
            state.trouble = Some(Trouble::Refused(circuit.server(), Refusal::Status(status)));
        }
    }

    /// The server has confirmed it; gives what has waited for that. `None`: it was closed meanwhile.
    pub(super) fn activated(&self, circuit: &Arc<Circuit>, place: Place) -> Option<Activated> {
        let mut state = lock(&self.state);
        if matches!(state.phase, Phase::Closed) {
            return None;
        }
        state.phase = Phase::Active(circuit.clone(), place, true);
        state.trouble = None;
        state.n_failures = 0;
        Some(Activated { operations: std::mem::take(&mut state.waiting), monitors: state.monitors.clone() })
    }

    /// Where it is on this circuit, if it is active there.
    pub(super) fn place_on(&self, circuit: &Arc<Circuit>) -> Option<Place> {
        match &lock(&self.state).phase {
            Phase::Active(on, place, _) if Arc::ptr_eq(on, circuit) => Some(*place),
            _ => None,
        }
    }

    /// Where it is on this circuit, if a task can be asked there at once; else where it is.
    pub(super) fn seat_for(&self, task: &Task, circuit: &Arc<Circuit>) -> Result<Place, Seating> {
        let state = lock(&self.state);
        match &state.phase {
            // Refusals are the affair of operations that stand alone, as is waiting for a server.
            Phase::Active(..) if !state.allows(task) => Err(Seating::Nowhere),
            Phase::Active(on, place, _) if Arc::ptr_eq(on, circuit) => Ok(*place),
            Phase::Active(on, ..) => Err(Seating::On(on.clone())),
            _ => Err(Seating::Nowhere),
        }
    }

    /// Its circuit is lost, or the server took it away; it is looked for again. Operations that
    /// wait go on waiting, unless the server said no to the channel itself.
    ///
    /// A server that claims names and then cannot be used would claim them again at once, so the
    /// search of a channel that was not active waits longer each time.
    pub(super) fn lost(self: &Arc<Self>, server: SocketAddr, refusal: Option<Refusal>, afterwards: &mut Afterwards) {
        let mut state = lock(&self.state);
        if matches!(state.phase, Phase::Closed) {
            return;
        }
        let was_active = matches!(state.phase, Phase::Active(..));
        state.phase = Phase::Searching;
        if was_active {
            for monitor in &state.monitors {
                afterwards.woken.push(monitor.disconnected());
            }
        }
        if refusal == Some(Refusal::Channel) {
            for (operation, _) in state.waiting.drain(..) {
                let error = Error::Refused { pv: self.name.to_string(), server, refusal: Refusal::Channel };
                afterwards.woken.push(operation.end(Err(error)));
            }
        }
        if was_active && refusal.is_none() {
            drop(state);
            return self.context.search().start_lost(self.cid, self.name.clone());
        }
        state.trouble = refusal.map(|refusal| Trouble::Refused(server, refusal)).or(state.trouble.take());
        let pause = state.failed();
        drop(state);
        self.context.search().start(self.cid, self.name.clone(), pause);
    }

    /// Its circuit, if it is active.
    pub(super) fn circuit(&self) -> Option<Arc<Circuit>> {
        match &lock(&self.state).phase {
            Phase::Active(circuit, ..) => Some(circuit.clone()),
            _ => None,
        }
    }

    pub(super) fn facts(&self) -> Option<Facts> {
        lock(&self.state).facts()
    }

    /// Why a task may not even be asked of the server.
    pub(super) fn refusal(&self, task: &Task) -> Option<Error> {
        lock(&self.state).refusal(&self.name, task)
    }

    /// The error of an operation that got no answer in time.
    pub(super) fn timed_out(&self, after: Duration) -> Error {
        let pv = self.name.to_string();
        let state = lock(&self.state);
        match (&state.trouble, &state.phase) {
            (Some(Trouble::Refused(server, refusal)), _) => {
                Error::Refused { pv, server: *server, refusal: refusal.clone() }
            }
            (_, Phase::Connecting(circuit) | Phase::Active(circuit, ..)) => {
                Error::NoAnswer { pv, server: circuit.server(), after }
            }
            (Some(Trouble::Claimed(server)), _) => Error::NoAnswer { pv, server: *server, after },
            (None, _) => Error::NotFound { pv, after },
        }
    }

    pub(super) fn forget_operation(&self, operation: &OperationCore) {
        lock(&self.state).waiting.retain(|(waiting, _)| !std::ptr::eq(&**waiting, operation));
    }

    pub(super) fn forget_monitor(&self, monitor: &Arc<MonitorCore>) {
        lock(&self.state).monitors.retain(|known| !Arc::ptr_eq(known, monitor));
    }

    /// Starts a task. `is_driven`: its caller waits for it at once; `room`: memory for its answer.
    fn start(self: &Arc<Self>, task: Task, is_driven: bool, room: Option<Array>) -> Arc<OperationCore> {
        let operation = OperationCore::new(self.clone(), room);
        loop {
            let (circuit, place) = {
                let mut state = lock(&self.state);
                match &state.phase {
                    Phase::Active(circuit, place, _) => match state.ended(&self.name, &task) {
                        None => (circuit.clone(), *place),
                        Some(result) => {
                            operation.end(result).wake();
                            return operation;
                        }
                    },
                    Phase::Closed => {
                        operation.end(Err(self.closed())).wake();
                        return operation;
                    }
                    Phase::Searching | Phase::Connecting(_) => {
                        state.waiting.push((operation.clone(), task));
                        return operation;
                    }
                }
            };
            if circuit.issue(&operation, &task, place, is_driven) {
                return operation;
            }
            // The circuit was lost between the two locks; the channel will say so in a moment.
            std::thread::yield_now();
        }
    }

    pub(super) fn is_of(&self, context: &ContextCore) -> bool {
        std::ptr::eq(&*self.context, context)
    }

    /// The error of whatever meets a closed context.
    pub(super) fn closed(&self) -> Error {
        Error::Closed { pv: self.name.to_string() }
    }

    /// Its context is closed. What waits ends here; what its circuit has ends with the circuit.
    pub(super) fn end_with_context(&self) {
        let (_phase, waiting, monitors) = {
            let mut state = lock(&self.state);
            let phase = std::mem::replace(&mut state.phase, Phase::Closed);
            (phase, std::mem::take(&mut state.waiting), std::mem::take(&mut state.monitors))
        };
        self.context.search().leave(self.cid);
        for (operation, _) in waiting {
            operation.end(Err(self.closed())).wake();
        }
        for monitor in monitors {
            monitor.closed().wake();
        }
    }

    fn close(&self) {
        let phase = std::mem::replace(&mut lock(&self.state).phase, Phase::Closed);
        match phase {
            Phase::Connecting(circuit) => circuit.clear(self.cid, None),
            Phase::Active(circuit, place, _) => circuit.clear(self.cid, Some(place.sid)),
            Phase::Searching | Phase::Closed => {}
        }
        self.context.search().leave(self.cid);
    }
}

impl State {
    /// Whether its rights are enough.
    fn allows(&self, task: &Task) -> bool {
        match task {
            Task::Connect => true,
            Task::Get(_) => self.rights.read,
            Task::Put(_) | Task::PutUnconfirmed(_) => self.rights.write,
        }
    }

    fn refusal(&self, pv: &str, task: &Task) -> Option<Error> {
        let server = match &self.phase {
            Phase::Active(circuit, ..) if !self.allows(task) => circuit.server(),
            _ => return None,
        };
        let refusal = if matches!(task, Task::Get(_)) { Refusal::ReadAccess } else { Refusal::WriteAccess };
        Some(Error::Refused { pv: pv.to_owned(), server, refusal })
    }

    /// How a task ends on an active channel without being asked of the server.
    fn ended(&self, pv: &str, task: &Task) -> Option<Result<Outcome, Error>> {
        match task {
            Task::Connect => self.facts().map(Outcome::Connected).map(Ok),
            _ => self.refusal(pv, task).map(Err),
        }
    }

    /// What the server says of it while it is active.
    fn facts(&self) -> Option<Facts> {
        match &self.phase {
            Phase::Active(circuit, place, _) => Some(Facts {
                server: circuit.server(),
                kind: place.kind,
                count_max: place.count,
                may_read: self.rights.read,
                may_write: self.rights.write,
            }),
            _ => None,
        }
    }

    /// Counts a claim that came to nothing; gives the pause before the next search.
    fn failed(&mut self) -> Duration {
        let pause = limit::SEARCH_PAUSE * (1 << self.n_failures.min(limit::SEARCH_PAUSE_DOUBLINGS));
        self.n_failures = self.n_failures.saturating_add(1);
        pause
    }
}

/// Gives the channel up with its last clone.
struct Handle(Arc<ChannelCore>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A hold on one PV. Cloning shares it; the channel is given up with its last clone.
#[derive(Clone)]
pub struct Channel(Arc<Handle>);

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.core().fmt(f)
    }
}

impl Channel {
    pub(super) fn open(name: &str, priority: Priority, context: &Arc<ContextCore>) -> Channel {
        let core = context.search().enter(|cid| ChannelCore::new(name, cid, priority, context.clone()));
        context.search().start(core.cid, core.name.clone(), Duration::ZERO);
        Channel(Arc::new(Handle(core)))
    }

    pub(super) fn core(&self) -> &Arc<ChannelCore> {
        &self.0.0
    }

    /// The PV's name.
    pub fn name(&self) -> &str {
        self.core().name()
    }

    /// Where it stands now. No round trip.
    pub fn state(&self) -> ChannelState {
        match lock(&self.core().state).phase {
            Phase::Searching => ChannelState::Searching,
            Phase::Connecting(_) => ChannelState::Connecting,
            Phase::Active(_, _, true) => ChannelState::Active,
            Phase::Active(_, _, false) => ChannelState::Unresponsive,
            Phase::Closed => ChannelState::Closed,
        }
    }

    /// What the server says of it; `None` while it is not active. No round trip.
    pub fn facts(&self) -> Option<Facts> {
        self.core().facts()
    }

    /// Waits until it is active: search, TCP connection if there is none to that server, one round trip.
    pub fn connect(&self, timeout: Duration) -> Result<Facts, Error> {
        self.start_connect().wait(timeout)
    }

    /// The value with alarm and time; one round trip when connected. Blocks, driving the circuit itself.
    pub fn get(&self, timeout: Duration) -> Result<Reading, Error> {
        self.get_with(Request::default(), timeout)
    }

    /// As [`Channel::get`], for what `request` says.
    pub fn get_with(&self, request: Request, timeout: Duration) -> Result<Reading, Error> {
        self.start(Task::Get(request), true).wait(timeout)
    }

    /// As [`Channel::get_with`], with a large array put into the memory of the one that `reading` holds, if nobody else
    /// holds that too and it is of the same kind: fresh memory for tens of megabytes takes longer than the bytes do.
    ///
    /// On failure `reading` holds an array without elements.
    pub fn get_into(&self, reading: &mut Reading, request: Request, timeout: Duration) -> Result<(), Error> {
        let value = std::mem::replace(&mut reading.value, Value::Array(Array::empty(Kind::U8)));
        let room = match value {
            Value::Array(array) => Some(array),
            Value::Scalar(_) => None,
        };
        let operation: Operation<Reading> =
            Operation::new(self.core().start(Task::Get(request), true, room), self.clone());
        *reading = operation.wait(timeout)?;
        Ok(())
    }

    /// Writes and waits until processing is complete; one round trip when connected.
    pub fn put(&self, value: impl Into<Value>, timeout: Duration) -> Result<(), Error> {
        self.start(Task::Put(value.into()), true).wait(timeout)
    }

    /// Ends when the channel is active.
    pub fn start_connect(&self) -> Operation<Facts> {
        self.start(Task::Connect, false)
    }

    /// Starts a get.
    pub fn start_get(&self, request: Request) -> Operation<Reading> {
        self.start(Task::Get(request), false)
    }

    /// Starts a put with completion.
    pub fn start_put(&self, value: impl Into<Value>) -> Operation<()> {
        self.start(Task::Put(value.into()), false)
    }

    pub(super) fn start_task<T: Given>(&self, task: Task) -> Operation<T> {
        self.start(task, false)
    }

    fn start<T: Given>(&self, task: Task, is_driven: bool) -> Operation<T> {
        Operation::new(self.core().start(task, is_driven, None), self.clone())
    }

    /// Starts a subscription whose events are taken from the [`Monitor`].
    ///
    /// It outlives disconnections: events tell of them, and it starts again with the channel.
    pub fn monitor(&self, options: MonitorOptions) -> Monitor {
        self.start_monitor(options, None)
    }

    /// Starts a subscription whose events are given to `callback`, in order, on the context's one
    /// callback thread. It ends when the returned monitor is dropped.
    pub fn monitor_with(
        &self,
        options: MonitorOptions,
        callback: impl FnMut(MonitorEvent) + Send + 'static,
    ) -> Result<Monitor, Error> {
        let callback: Callback = Box::new(callback);
        let callbacks = self
            .core()
            .context
            .callbacks()
            .map_err(|error| Error::System { pv: self.name().to_owned(), reason: error.to_string() })?;
        Ok(self.start_monitor(options, Some((callback, callbacks))))
    }

    fn start_monitor(
        &self,
        options: MonitorOptions,
        callback: Option<(Callback, Arc<super::callbacks::Callbacks>)>,
    ) -> Monitor {
        let core = self.core();
        let monitor = MonitorCore::new(core.clone(), options, callback);
        let active = {
            let mut state = lock(&core.state);
            let active = match &state.phase {
                Phase::Closed => {
                    drop(state);
                    monitor.closed().wake();
                    return Monitor::new(monitor, self.clone());
                }
                Phase::Active(circuit, place, _) => Some((circuit.clone(), *place)),
                Phase::Searching | Phase::Connecting(_) => None,
            };
            state.monitors.push(monitor.clone());
            active
        };
        if let (Some((circuit, place)), Some(facts)) = (active, core.facts()) {
            monitor.connected(facts).wake();
            circuit.subscribe(&monitor, place);
        }
        Monitor::new(monitor, self.clone())
    }
}
