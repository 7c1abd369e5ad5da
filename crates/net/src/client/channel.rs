mod claims;
mod state;
mod unconfirmed;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fodo_ca::search::Named;
use fodo_ca::{Cid, Rights};
use fodo_data::{Array, Kind, Reading, Value};

pub(super) use self::state::Trouble;
use self::state::{Phase, State};
use super::circuit::{Afterwards, Circuit, Place, Seat};
use super::monitor::{Callback, Monitor, MonitorCore, MonitorEvent, MonitorOptions};
use super::notice::Notice;
use super::operation::{Given, Operation, OperationCore, Task};
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

/// The part of a channel that its handles, its circuit and its operations share. There may be a million.
pub(super) struct ChannelCore {
    name: Box<str>,
    cid: Cid,
    priority: Priority,
    /// The channel is given up with the last of them.
    n_handles: AtomicU32,
    context: Arc<ContextCore>,
    state: Mutex<State>,
}

/// What has waited for a channel to be active, and is to be asked of its server.
pub(super) struct Activated {
    pub(super) operations: Vec<(Arc<OperationCore>, Task)>,
    pub(super) monitors: Vec<Arc<MonitorCore>>,
}

/// Where an operation can be asked at once that cannot be asked where it was tried.
pub(super) enum Seating {
    /// On this circuit.
    On(Arc<Circuit>),
    Nowhere,
}

impl std::fmt::Debug for ChannelCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("name", &self.name).field("phase", &lock(&self.state).phase).finish()
    }
}

impl ChannelCore {
    fn new(name: &str, cid: Cid, priority: Priority, context: Arc<ContextCore>) -> Arc<ChannelCore> {
        let state = State::new();
        let n_handles = AtomicU32::new(1);
        Arc::new(ChannelCore { name: name.into(), cid, priority, n_handles, context, state: Mutex::new(state) })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether both have the same circuit to the same server.
    pub(super) fn shares_circuits_with(&self, other: &ChannelCore) -> bool {
        self.priority == other.priority && Arc::ptr_eq(&self.context, &other.context)
    }

    pub(super) fn cid(&self) -> Cid {
        self.cid
    }

    /// Somebody waits for it.
    pub(super) fn hurry(&self) {
        self.context.search().hurry();
    }

    /// Ends an operation of it that is awaited at its deadline.
    pub(super) fn end_in_time(&self, operation: &Arc<OperationCore>) {
        self.context.deadlines().add(operation);
    }

    /// What the server allows; its monitors are told of a change while it is active.
    pub(super) fn set_rights(&self, rights: Rights, afterwards: &mut Afterwards) {
        let mut state = lock(&self.state);
        let has_changed = std::mem::replace(&mut state.rights, rights) != rights;
        if let Some(facts) = state.facts().filter(|_| has_changed) {
            afterwards.woken.extend(state.monitors.iter().map(|monitor| monitor.allowed(facts.clone())));
        }
    }

    /// Whether the server of an active channel is heard; its monitors are told. While it is not, the name is searched for as
    /// well: the server may have gone without a word, and be back under another address.
    pub(super) fn set_responsive(self: &Arc<Self>, is_responsive: bool, afterwards: &mut Afterwards) {
        let mut state = lock(&self.state);
        let Phase::Active(_, _, responsive) = &mut state.phase else { return };
        *responsive = is_responsive;
        afterwards.woken.extend(state.monitors.iter().map(|monitor| monitor.heard(is_responsive)));
        match is_responsive {
            true => state.until_active = None,
            false => state.until_active().is_sought = true,
        }
        drop(state);
        match is_responsive {
            true => self.context.search().stop(self.cid),
            false => self.context.search().start_lost(self.clone()),
        }
    }

    /// The server has rejected the request for this channel, in its own words.
    pub(super) fn complained(&self, refusal: Refusal) {
        let mut state = lock(&self.state);
        if let Phase::Connecting(circuit) = &state.phase {
            let trouble = Trouble::Refused(circuit.server(), refusal);
            state.until_active().trouble = Some(trouble);
        }
    }

    /// The server has confirmed it; gives what has waited for that and is still to be asked for. `None`: it was closed
    /// meanwhile.
    pub(super) fn activated(
        &self,
        circuit: &Arc<Circuit>,
        place: Place,
        afterwards: &mut Afterwards,
    ) -> Option<Activated> {
        let mut state = lock(&self.state);
        if matches!(state.phase, Phase::Closed) {
            return None;
        }
        state.phase = Phase::Active(circuit.clone(), place, true);
        let until = state.until_active.take();
        if until.as_ref().is_some_and(|until| until.is_sought) {
            self.context.search().stop(self.cid);
        }
        let mut operations = until.map(|until| until.waiting).unwrap_or_default();
        operations.retain(|(operation, task)| match state.ended(&self.name, task) {
            None => true,
            Some(result) => {
                afterwards.woken.extend(operation.end(result).somebody());
                false
            }
        });
        if state.monitors.is_empty() {
            return Some(Activated { operations, monitors: Vec::new() });
        }
        if let Some(facts) = state.facts() {
            afterwards.woken.extend(state.monitors.iter().map(|monitor| monitor.connected(facts.clone())));
        }
        Some(Activated { operations, monitors: state.monitors.clone() })
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
    pub(super) fn lost(self: &Arc<Self>, trouble: Trouble, afterwards: &mut Afterwards) {
        let mut state = lock(&self.state);
        if matches!(state.phase, Phase::Closed) {
            return;
        }
        let before = std::mem::replace(&mut state.phase, Phase::Searching);
        let was_active = matches!(before, Phase::Active(..));
        if was_active {
            for monitor in &state.monitors {
                afterwards.woken.push(monitor.disconnected());
            }
        }
        if let Some(until) = &mut state.until_active {
            until.is_sought = false;
        }
        if let Trouble::Refused(_, Refusal::Channel) = trouble {
            for (operation, _) in state.until_active().waiting.drain(..) {
                let error = trouble.error(self.name.to_string(), Duration::ZERO);
                afterwards.woken.push(operation.end(Err(error)));
            }
        }
        if was_active && !matches!(trouble, Trouble::Refused(..)) {
            drop(state);
            return self.context.search().start_lost(self.clone());
        }
        let pause = state.until_active().failed(trouble);
        drop(state);
        self.context.search().start(self.clone(), pause);
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

    /// The error of an operation that got no answer in time.
    pub(super) fn timed_out(&self, after: Duration) -> Error {
        let pv = self.name.to_string();
        let state = lock(&self.state);
        let trouble = state.until_active.as_ref().and_then(|until| until.trouble.as_ref());
        match (&state.phase, trouble) {
            // What the same server did before says more than that it has not answered this time.
            (Phase::Connecting(circuit) | Phase::Active(circuit, ..), trouble)
                if trouble.is_none_or(|trouble| trouble.server() != circuit.server()) =>
            {
                Error::NoAnswer { pv, server: circuit.server(), after }
            }
            (_, Some(trouble)) => trouble.error(pv, after),
            (_, None) => Error::NotFound { pv, after },
        }
    }

    pub(super) fn forget_operation(&self, operation: &OperationCore) {
        if let Some(until) = &mut lock(&self.state).until_active {
            until.waiting.retain(|(waiting, _)| !std::ptr::eq(&**waiting, operation));
        }
    }

    /// Where its monitors run.
    pub(super) fn seats(&self) -> Vec<Seat> {
        lock(&self.state).monitors.iter().filter_map(|monitor| monitor.seat()).collect()
    }

    pub(super) fn forget_monitor(&self, monitor: &Arc<MonitorCore>) {
        lock(&self.state).monitors.retain(|known| !Arc::ptr_eq(known, monitor));
    }

    /// Starts a task. `is_driven`: its caller waits for it at once; `room`: memory for its answer.
    fn start(self: &Arc<Self>, task: Task, is_driven: bool, room: Option<Array>) -> Arc<OperationCore> {
        let operation = OperationCore::new(self.clone(), room);
        let mut lost = None;
        for _ in 0..limit::ISSUE_ATTEMPTS {
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
                        let waiting = &mut state.until_active().waiting;
                        if waiting.is_empty() {
                            // Mostly there is one.
                            waiting.reserve_exact(1);
                        }
                        waiting.push((operation.clone(), task));
                        return operation;
                    }
                }
            };
            if circuit.issue(&operation, &task, place, is_driven) {
                return operation;
            }
            // The circuit was lost between the two locks; the channel is on another one, or searched for.
            lost = Some(circuit.server());
        }
        if let Some(server) = lost {
            operation.end(Err(Error::Disconnected { pv: self.name.to_string(), server })).wake();
        }
        operation
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
            let waiting = state.until_active.take().map(|until| until.waiting).unwrap_or_default();
            (phase, waiting, std::mem::take(&mut state.monitors))
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

impl Named for ChannelCore {
    fn name(&self) -> &str {
        &self.name
    }
}

/// A hold on one PV. Cloning shares it; the channel is given up with its last clone.
pub struct Channel(Arc<ChannelCore>);

impl Clone for Channel {
    fn clone(&self) -> Channel {
        // Four thousand million of them need more memory than there is.
        self.0.n_handles.fetch_add(1, Ordering::Relaxed);
        Channel(self.0.clone())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // What the others did with the channel comes before its end, as with `Arc`.
        if self.0.n_handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.close();
        }
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.core().fmt(f)
    }
}

impl Channel {
    pub(super) fn open(name: &str, priority: Priority, context: &Arc<ContextCore>) -> Channel {
        Channel(context.search().enter(|cid| ChannelCore::new(name, cid, priority, context.clone())))
    }

    pub(super) fn core(&self) -> &Arc<ChannelCore> {
        &self.0
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

    /// Why it is not active after having waited for so long, as an operation would report it; `None` while it is active. No
    /// round trip.
    pub fn why_inactive(&self, waited: Duration) -> Option<Error> {
        match self.state() {
            ChannelState::Active | ChannelState::Unresponsive => None,
            ChannelState::Closed => Some(self.core().closed()),
            ChannelState::Searching | ChannelState::Connecting => Some(self.core().timed_out(waited)),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_takes_two_cache_lines_beside_its_name() {
        let counts_of_arc = 2 * size_of::<usize>();

        assert!(size_of::<ChannelCore>() + counts_of_arc <= 128, "{}", size_of::<ChannelCore>());
    }
}
