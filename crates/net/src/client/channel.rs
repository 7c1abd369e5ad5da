mod checked_put;
mod claims;
mod handle;
mod state;
mod structured;
mod unconfirmed;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use fodo_data::Array;
use fodo_engine::search::HasName;
use fodo_engine::{Cid, Rights};
use fodo_lock::{Mutex, Rank};

pub(crate) use self::checked_put::CheckedPut;
pub use self::handle::Channel;
use self::state::{ChannelPhase, State};
pub(super) use self::state::{Responsiveness, Trouble};
pub(super) use self::structured::{ONLY_PVA, REQUEST_WITH_PVA};
use super::circuit::{Afterwards, Circuit, MonitorSubscriptions, ServerChannel};
use super::monitor::MonitorCore;
use super::notice::Notice;
use super::operation::{OperationCore, OperationTask, Waiter};
use super::search::Search;
use super::{ChannelFacts, ContextCore, Error, ErrorKind, Priority, Refusal};
use crate::limit;
use crate::protocol::Protocol;

/// The state of a channel.
///
/// See the example of [`Channel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelState {
    /// Waits for a server to claim the name.
    Searching,
    /// Waits for the circuit to that server to open, and for the server to confirm the channel.
    Connecting,
    /// Operations can start.
    Active,
    /// The server has been silent for too long; its circuit is still open.
    Unresponsive,
    /// The context was closed.
    Closed,
}

/// The part of a channel that its handles, its circuit and its operations share. A process may have a million of them.
pub(super) struct ChannelCore {
    name: Box<str>,
    cid: Cid,
    protocol: Protocol,
    priority: Priority,
    /// The channel is closed when the last handle is dropped.
    n_handles: AtomicU32,
    context: Arc<ContextCore>,
    state: Mutex<State>,
}

/// The operations and monitors that waited for a channel to become active and must now be sent to its server.
pub(super) struct Activated {
    pub(super) operations: Vec<(Arc<OperationCore>, OperationTask)>,
    pub(super) monitors: Vec<Arc<MonitorCore>>,
}

/// Where an operation can be issued if not on the circuit that was tried.
pub(super) enum OtherRoute {
    /// On this circuit.
    OnCircuit(Arc<Circuit>),
    /// Not in a batch: its channel is not active, its request is refused, or the queue of the circuit is full.
    Individually,
}

impl std::fmt::Debug for ChannelCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("name", &self.name).field("phase", &self.state.lock().phase).finish()
    }
}

impl ChannelCore {
    fn new(
        name: &str,
        protocol: Protocol,
        cid: Cid,
        priority: Priority,
        context: Arc<ContextCore>,
    ) -> Arc<ChannelCore> {
        let state = State::new();
        let n_handles = AtomicU32::new(1);
        Arc::new(ChannelCore {
            name: name.into(),
            cid,
            protocol,
            priority,
            n_handles,
            context,
            state: Mutex::ranked(Rank::Channel, state),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Whether both have the same circuit to the same server.
    pub(super) fn shares_circuits_with(&self, other: &ChannelCore) -> bool {
        (self.protocol, self.priority) == (other.protocol, other.priority) && Arc::ptr_eq(&self.context, &other.context)
    }

    pub(super) fn cid(&self) -> Cid {
        self.cid
    }

    /// The search of its protocol.
    fn search(&self) -> &Search {
        self.context.search(self.protocol)
    }

    /// Speeds up the search, because a caller is waiting.
    pub(super) fn flush_searches(&self) {
        self.search().flush_searches();
    }

    /// The timeout of calls that have none of their own.
    pub(super) fn operation_timeout(&self) -> Duration {
        self.context.config.operation_timeout
    }

    /// Registers an awaited operation, so that it ends at its deadline.
    pub(super) fn add_deadline(&self, operation: &Arc<OperationCore>) {
        self.context.deadlines().add(operation);
    }

    /// Sets the access rights. Monitors are notified of a change while the channel is active.
    pub(super) fn set_rights(&self, rights: Rights, afterwards: &mut Afterwards) {
        let mut state = self.state.lock();
        let has_changed = std::mem::replace(&mut state.rights, rights) != rights;
        if let Some(facts) = state.facts().filter(|_| has_changed) {
            afterwards.woken.extend(state.monitors.iter().map(|monitor| monitor.rights_changed(facts.clone())));
        }
    }

    /// Records whether the server of an active channel responds, and notifies the monitors. While it does not, the name
    /// is searched for as well: the server may have gone silently and be back at another address.
    pub(super) fn set_responsiveness(self: &Arc<Self>, now: Responsiveness, afterwards: &mut Afterwards) {
        let mut state = self.state.lock();
        let ChannelPhase::Active(_, _, responsiveness) = &mut state.phase else { return };
        *responsiveness = now;
        afterwards.woken.extend(state.monitors.iter().map(|monitor| monitor.responsiveness_changed(now)));
        match now {
            Responsiveness::Responsive => state.until_active = None,
            Responsiveness::Silent => state.until_active().is_sought = true,
        }
        drop(state);
        match now {
            Responsiveness::Responsive => self.search().stop(self.cid),
            Responsiveness::Silent => self.search().start_lost(self.clone()),
        }
    }

    /// The server has rejected the request to create this channel, with an explanation.
    pub(super) fn create_rejected(&self, refusal: Refusal) {
        let mut state = self.state.lock();
        if let ChannelPhase::Connecting(circuit) = &state.phase {
            let trouble = Trouble::Refused(circuit.server(), refusal);
            state.until_active().trouble = Some(trouble);
        }
    }

    /// The server has confirmed the channel. Returns the operations and monitors that waited for that and must still be
    /// sent; `None` if the channel was closed meanwhile.
    pub(super) fn activated(
        &self,
        circuit: &Arc<Circuit>,
        server_channel: ServerChannel,
        afterwards: &mut Afterwards,
    ) -> Option<Activated> {
        let mut state = self.state.lock();
        if matches!(state.phase, ChannelPhase::Closed) {
            return None;
        }
        state.phase = ChannelPhase::Active(circuit.clone(), server_channel, Responsiveness::Responsive);
        let until = state.until_active.take();
        if until.as_ref().is_some_and(|until| until.is_sought) {
            self.search().stop(self.cid);
        }
        let mut operations = until.map(|until| until.waiting).unwrap_or_default();
        operations.retain(|(operation, task)| match state.ended(&self.name, task) {
            None => true,
            Some(result) => {
                afterwards.woken.extend(operation.end(result).into_option());
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

    /// The server's identity of the channel on this circuit, if it is active there.
    pub(super) fn server_channel_on(&self, circuit: &Arc<Circuit>) -> Option<ServerChannel> {
        match &self.state.lock().phase {
            ChannelPhase::Active(on, server_channel, _) if Arc::ptr_eq(on, circuit) => Some(*server_channel),
            _ => None,
        }
    }

    /// The server's identity of the channel on this circuit if the task can be issued there at once; otherwise where it can be issued.
    pub(super) fn server_channel_for(
        &self,
        task: &OperationTask,
        circuit: &Arc<Circuit>,
    ) -> Result<ServerChannel, OtherRoute> {
        let state = self.state.lock();
        match &state.phase {
            // A batch does not handle refusals or wait for a server; such operations are started individually.
            ChannelPhase::Active(..) if !state.allows(task) => Err(OtherRoute::Individually),
            ChannelPhase::Active(on, server_channel, _) if Arc::ptr_eq(on, circuit) => Ok(*server_channel),
            ChannelPhase::Active(on, ..) => Err(OtherRoute::OnCircuit(on.clone())),
            _ => Err(OtherRoute::Individually),
        }
    }

    /// The circuit is lost, or the server has deleted the channel; the search starts again. Waiting operations continue
    /// to wait, unless the server refused the channel itself.
    ///
    /// A server that claims names but cannot be used would claim them again at once. Therefore the search for a channel
    /// that was not active waits longer each time.
    pub(super) fn lost(self: &Arc<Self>, trouble: Trouble, afterwards: &mut Afterwards) {
        let mut state = self.state.lock();
        if matches!(state.phase, ChannelPhase::Closed) {
            return;
        }
        let before = std::mem::replace(&mut state.phase, ChannelPhase::Searching);
        let was_active = matches!(before, ChannelPhase::Active(..));
        if was_active {
            for monitor in &state.monitors {
                afterwards.woken.push(monitor.disconnected());
            }
        }
        if let Some(until) = &mut state.until_active {
            until.is_sought = false;
        }
        if let Trouble::Refused(_, Refusal::Channel { .. }) = &trouble {
            for (operation, _) in state.until_active().waiting.drain(..) {
                let error = trouble.error(&self.name, Duration::ZERO);
                afterwards.woken.push(operation.end(Err(error)));
            }
        }
        if was_active && !matches!(trouble, Trouble::Refused(..) | Trouble::Handshake(..)) {
            drop(state);
            return self.search().start_lost(self.clone());
        }
        let pause = state.until_active().failed(trouble);
        drop(state);
        self.search().start(self.clone(), pause);
    }

    /// The channel's circuit, if it is active.
    pub(super) fn circuit(&self) -> Option<Arc<Circuit>> {
        match &self.state.lock().phase {
            ChannelPhase::Active(circuit, ..) => Some(circuit.clone()),
            _ => None,
        }
    }

    pub(super) fn facts(&self) -> Option<ChannelFacts> {
        self.state.lock().facts()
    }

    /// The error of an operation that received no reply in time.
    pub(super) fn timed_out(&self, after: Duration) -> Error {
        let state = self.state.lock();
        let trouble = state.until_active.as_ref().and_then(|until| until.trouble.as_ref());
        match (&state.phase, trouble) {
            // An earlier failure of the same server explains more than the missing reply.
            (ChannelPhase::Connecting(circuit) | ChannelPhase::Active(circuit, ..), trouble)
                if trouble.is_none_or(|trouble| trouble.server() != circuit.server()) =>
            {
                Error::new(self.name(), ErrorKind::NoReply { server: circuit.server(), after })
            }
            (_, Some(trouble)) => trouble.error(&self.name, after),
            (_, None) => Error::new(self.name(), ErrorKind::NotFound { protocol: self.protocol, after }),
        }
    }

    pub(super) fn forget_operation(&self, operation: &OperationCore) {
        if let Some(until) = &mut self.state.lock().until_active {
            until.waiting.retain(|(waiting, _)| !std::ptr::eq(&**waiting, operation));
        }
    }

    /// The subscriptions of its monitors.
    pub(super) fn subscriptions(&self) -> Vec<MonitorSubscriptions> {
        self.state.lock().monitors.iter().filter_map(|monitor| monitor.subscriptions()).collect()
    }

    /// Adds a monitor, and queues its first event, if there is one, before any later one of the channel. Returns the
    /// waiter to wake, and where to subscribe.
    fn add_monitor(&self, monitor: &Arc<MonitorCore>) -> (Waiter, Option<(Arc<Circuit>, ServerChannel)>) {
        let mut state = self.state.lock();
        if matches!(state.phase, ChannelPhase::Closed) {
            return (monitor.closed(), None);
        }
        state.monitors.push(monitor.clone());
        let waiter = state.facts().map(|facts| monitor.connected(facts)).unwrap_or_default();
        match &state.phase {
            ChannelPhase::Active(circuit, server_channel, _) => (waiter, Some((circuit.clone(), *server_channel))),
            _ => (waiter, None),
        }
    }

    pub(super) fn forget_monitor(&self, monitor: &Arc<MonitorCore>) {
        self.state.lock().monitors.retain(|known| !Arc::ptr_eq(known, monitor));
    }

    /// Starts a task. `is_driven`: the caller waits for it at once; `buffer`: memory for the reply.
    fn start(self: &Arc<Self>, task: OperationTask, is_driven: bool, buffer: Option<Array>) -> Arc<OperationCore> {
        let operation = OperationCore::new(self.clone(), buffer);
        let mut lost = None;
        for _ in 0..limit::ISSUE_ATTEMPTS {
            let (circuit, server_channel) = {
                let mut state = self.state.lock();
                match &state.phase {
                    ChannelPhase::Active(circuit, server_channel, _) => match state.ended(&self.name, &task) {
                        None => (circuit.clone(), *server_channel),
                        Some(result) => {
                            operation.end(result).wake();
                            return operation;
                        }
                    },
                    ChannelPhase::Closed => {
                        operation.end(Err(self.closed())).wake();
                        return operation;
                    }
                    ChannelPhase::Searching | ChannelPhase::Connecting(_) => {
                        let confirmed = match &state.phase {
                            ChannelPhase::Connecting(circuit) if task.is_call() => Some(circuit.clone()),
                            _ => None,
                        };
                        let waiting = &mut state.until_active().waiting;
                        if waiting.is_empty() {
                            // Usually one operation waits.
                            waiting.reserve_exact(1);
                        }
                        waiting.push((operation.clone(), task));
                        drop(state);
                        if let Some(circuit) = confirmed {
                            circuit.issue_waiting_calls(self);
                        }
                        return operation;
                    }
                }
            };
            if circuit.issue(&operation, &task, server_channel, is_driven) {
                return operation;
            }
            // The circuit was lost between the two locks; the channel is now on another circuit or being searched for.
            lost = Some(circuit.server());
        }
        if let Some(server) = lost {
            let error = Error::new(self.name(), ErrorKind::Disconnected { server });
            operation.end(Err(error)).wake();
        }
        operation
    }

    /// Takes the calls that wait until the channel is active.
    pub(super) fn take_waiting_calls(&self) -> Vec<(Arc<OperationCore>, OperationTask)> {
        match &mut self.state.lock().until_active {
            Some(until) => until.waiting.extract_if(.., |(_, task)| task.is_call()).collect(),
            None => Vec::new(),
        }
    }

    pub(super) fn is_of(&self, context: &ContextCore) -> bool {
        std::ptr::eq(&*self.context, context)
    }

    /// The error of an operation on a closed context.
    pub(super) fn closed(&self) -> Error {
        Error::new(self.name(), ErrorKind::ContextClosed)
    }

    /// The error of a request that was queued on a circuit to this server, which has closed.
    pub(super) fn cut_off(&self, server: SocketAddr) -> Error {
        match self.state.lock().phase {
            ChannelPhase::Closed => self.closed(),
            _ => Error::new(self.name(), ErrorKind::Disconnected { server }),
        }
    }

    /// The context is closed. Waiting operations end here; issued operations end with their circuit.
    pub(super) fn end_with_context(&self) {
        let (_phase, waiting, monitors) = {
            let mut state = self.state.lock();
            let phase = std::mem::replace(&mut state.phase, ChannelPhase::Closed);
            let waiting = state.until_active.take().map(|until| until.waiting).unwrap_or_default();
            (phase, waiting, std::mem::take(&mut state.monitors))
        };
        self.search().remove_channel(self.cid);
        for (operation, _) in waiting {
            operation.end(Err(self.closed())).wake();
        }
        for monitor in monitors {
            monitor.closed().wake();
        }
    }

    fn close(&self) {
        let phase = std::mem::replace(&mut self.state.lock().phase, ChannelPhase::Closed);
        match phase {
            ChannelPhase::Connecting(circuit) => circuit.clear(self.cid, None),
            ChannelPhase::Active(circuit, server_channel, _) => circuit.clear(self.cid, Some(server_channel.sid)),
            ChannelPhase::Searching | ChannelPhase::Closed => {}
        }
        self.search().remove_channel(self.cid);
    }
}

impl HasName for ChannelCore {
    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use fodo_data::Kind;
    use fodo_engine::Sid;

    use super::*;
    use crate::client::monitor::Delivery;
    use crate::client::{Context, Monitor, MonitorEvent, MonitorOptions};
    use crate::config::ClientConfig;

    #[test]
    fn a_channel_takes_at_most_two_cache_lines_plus_its_name() {
        let counts_of_arc = 2 * size_of::<usize>();
        let rank_of_lock = if cfg!(debug_assertions) { size_of::<usize>() } else { 0 };

        assert!(size_of::<ChannelCore>() + counts_of_arc <= 128 + rank_of_lock, "{}", size_of::<ChannelCore>());
    }

    #[test]
    fn a_monitor_of_a_channel_that_is_lost_at_once_receives_its_events_in_order() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let context = Context::new(ClientConfig::with_addresses(Vec::new()));
        let x = context.channel("x").unwrap();
        let circuit =
            context.core.circuit_to(listener.local_addr().unwrap(), Protocol::Ca, Default::default(), 0).unwrap();
        let server_channel = ServerChannel { sid: Sid(1), kind: Kind::F64, count: 1 };
        let mut afterwards = Afterwards::default();
        assert!(x.core().activated(&circuit, server_channel, &mut afterwards).is_some());
        let core = MonitorCore::new(x.core().clone(), MonitorOptions::default(), None, Delivery::Readings);

        let (_, active) = x.core().add_monitor(&core);
        // Another thread is faster than the one that subscribes.
        x.core().lost(Trouble::ConnectionClosed(circuit.server()), &mut afterwards);

        assert!(active.is_some());
        let monitor: Monitor = Monitor::new(core, x);
        assert!(matches!(monitor.next_timeout(Duration::ZERO), Some(MonitorEvent::Connected(_))));
        assert_eq!(monitor.next_timeout(Duration::ZERO), Some(MonitorEvent::Disconnected));
    }
}
