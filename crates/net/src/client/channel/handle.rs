//! The handle that users have of a channel.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fodo_data::{Array, Kind, Reading, Value};

use super::state::Phase;
use super::{ChannelCore, ChannelState};
use crate::client::callbacks::Callbacks;
use crate::client::monitor::{Callback, Monitor, MonitorCore, MonitorEvent, MonitorOptions};
use crate::client::operation::{Given, Operation, Task};
use crate::client::{ContextCore, Error, Facts, Priority, Request};
use crate::sync::lock;

/// A handle to one PV on its server. Clones share the channel; dropping the last clone closes it.
pub struct Channel(Arc<ChannelCore>);

impl Clone for Channel {
    fn clone(&self) -> Channel {
        // Cannot overflow: four billion clones need more memory than the machine has.
        self.0.n_handles.fetch_add(1, Ordering::Relaxed);
        Channel(self.0.clone())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Acquire and release as in `Arc`: other clones' use of the channel happens before its end.
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
    pub(in crate::client) fn open(name: &str, priority: Priority, context: &Arc<ContextCore>) -> Channel {
        Channel(context.search().enter(|cid| ChannelCore::new(name, cid, priority, context.clone())))
    }

    pub(in crate::client) fn core(&self) -> &Arc<ChannelCore> {
        &self.0
    }

    /// The PV's name.
    pub fn name(&self) -> &str {
        self.core().name()
    }

    /// The channel's current state. No round trip.
    pub fn state(&self) -> ChannelState {
        match lock(&self.core().state).phase {
            Phase::Searching => ChannelState::Searching,
            Phase::Connecting(_) => ChannelState::Connecting,
            Phase::Active(_, _, true) => ChannelState::Active,
            Phase::Active(_, _, false) => ChannelState::Unresponsive,
            Phase::Closed => ChannelState::Closed,
        }
    }

    /// What the server has reported about the channel; `None` while it is not active. No round trip.
    pub fn facts(&self) -> Option<Facts> {
        self.core().facts()
    }

    /// Why the channel is not active after waiting for `waited`, as the error that an operation would return. `None`
    /// while it is active. No round trip.
    pub fn why_inactive(&self, waited: Duration) -> Option<Error> {
        match self.state() {
            ChannelState::Active | ChannelState::Unresponsive => None,
            ChannelState::Closed => Some(self.core().closed()),
            ChannelState::Searching | ChannelState::Connecting => Some(self.core().timed_out(waited)),
        }
    }

    /// Waits until the channel is active and returns its facts.
    ///
    /// The steps are the search, the TCP connection unless one to that server exists, and one round trip. Fails after
    /// `timeout` with the step that was not reached.
    pub fn connect(&self, timeout: Duration) -> Result<Facts, Error> {
        self.start_connect().wait(timeout)
    }

    /// Reads the value with alarm and time stamp; one round trip when connected. Blocks; the calling thread itself
    /// reads the circuit.
    pub fn get(&self, timeout: Duration) -> Result<Reading, Error> {
        self.get_with(Request::default(), timeout)
    }

    /// Like [`Channel::get`], with the type, attributes and number of elements of `request`.
    pub fn get_with(&self, request: Request, timeout: Duration) -> Result<Reading, Error> {
        self.start(Task::Get(request), true).wait(timeout)
    }

    /// Like [`Channel::get_with`], but reuses the memory of the array in `reading` for a large array. This requires
    /// that the array is of the same kind and not shared. Allocating tens of megabytes takes longer than receiving
    /// them.
    ///
    /// On failure `reading` contains an empty array.
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

    /// Writes `value` and waits until the server has completed processing; one round trip when connected.
    pub fn put(&self, value: impl Into<Value>, timeout: Duration) -> Result<(), Error> {
        self.start(Task::Put(value.into()), true).wait(timeout)
    }

    /// Starts an operation that ends when the channel is active.
    pub fn start_connect(&self) -> Operation<Facts> {
        self.start(Task::Connect, false)
    }

    /// Starts a get. Does not block.
    pub fn start_get(&self, request: Request) -> Operation<Reading> {
        self.start(Task::Get(request), false)
    }

    /// Starts a put with completion. Does not block.
    pub fn start_put(&self, value: impl Into<Value>) -> Operation<()> {
        self.start(Task::Put(value.into()), false)
    }

    pub(in crate::client) fn start_task<T: Given>(&self, task: Task) -> Operation<T> {
        self.start(task, false)
    }

    pub(super) fn start<T: Given>(&self, task: Task, is_driven: bool) -> Operation<T> {
        Operation::new(self.core().start(task, is_driven, None), self.clone())
    }

    /// Starts a subscription; the caller takes its events from the returned [`Monitor`].
    ///
    /// It survives disconnections: events report them, and the subscription restarts when the channel is active again.
    pub fn monitor(&self, options: MonitorOptions) -> Monitor {
        self.start_monitor(options, None)
    }

    /// Starts a subscription that passes its events to `callback`, in order.
    ///
    /// Callbacks run on one thread of the context unless its [`Executor`](crate::Executor) is set otherwise. The
    /// subscription ends when the returned monitor is dropped. Fails if the system provides no thread.
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
        callback: Option<(Callback, Arc<Callbacks>)>,
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
