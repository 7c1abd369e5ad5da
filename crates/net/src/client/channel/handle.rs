//! The handle that users have of a channel.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fodo_data::{Array, Kind, Reading, Value};

use super::state::{ChannelPhase, Responsiveness};
use super::{ChannelCore, ChannelState};
use crate::client::callbacks::Callbacks;
use crate::client::group::GroupCore;
use crate::client::monitor::{Callback, Delivery, Monitor, MonitorCore, MonitorEvent, MonitorOptions};
use crate::client::operation::{Operation, OperationCore, OperationTask, Output};
use crate::client::{ChannelFacts, ContextCore, Error, Priority, Request};
use crate::protocol::Protocol;

/// A handle to one PV on its server. Clones share the channel; dropping the last clone closes it.
///
/// A channel connects by itself, and again after a failure. Every operation first waits until the channel is connected.
///
/// | operation | blocks | blocks, with its own timeout | starts |
/// | --- | --- | --- | --- |
/// | connect | [`connect`](Channel::connect) | [`connect_timeout`](Channel::connect_timeout) | [`start_connect`](Channel::start_connect) |
/// | read | [`get`](Channel::get), [`get_with`](Channel::get_with), [`get_into`](Channel::get_into) | [`get_timeout`](Channel::get_timeout), [`get_with_timeout`](Channel::get_with_timeout), [`get_into_timeout`](Channel::get_into_timeout) | [`start_get`](Channel::start_get) |
/// | write, and wait until the server has completed processing | [`put`](Channel::put) | [`put_timeout`](Channel::put_timeout) | [`start_put`](Channel::start_put) |
/// | write | [`put_unconfirmed`](Channel::put_unconfirmed) | [`put_unconfirmed_timeout`](Channel::put_unconfirmed_timeout) | [`start_put_unconfirmed`](Channel::start_put_unconfirmed) |
/// | subscribe | | | [`monitor`](Channel::monitor), [`monitor_with`](Channel::monitor_with) |
///
/// With pvAccess also these, for PVs of any type:
///
/// | operation | blocks | blocks, with its own timeout | starts |
/// | --- | --- | --- | --- |
/// | read the type | [`describe`](Channel::describe) | [`describe_timeout`](Channel::describe_timeout) | [`start_describe`](Channel::start_describe) |
/// | read a structure | [`get_structure`](Channel::get_structure) | [`get_structure_timeout`](Channel::get_structure_timeout) | [`start_get_structure`](Channel::start_get_structure) |
/// | write fields of a structure | [`put_structure`](Channel::put_structure) | [`put_structure_timeout`](Channel::put_structure_timeout) | [`start_put_structure`](Channel::start_put_structure) |
/// | call a procedure (RPC) | [`call`](Channel::call) | [`call_timeout`](Channel::call_timeout) | [`start_call`](Channel::start_call) |
/// | process a record | [`process`](Channel::process) | [`process_timeout`](Channel::process_timeout) | [`start_process`](Channel::start_process) |
/// | subscribe to a structure | | | [`monitor_structure`](Channel::monitor_structure) |
///
/// Calls without a timeout of their own end after
/// [`ClientConfig::operation_timeout`](crate::ClientConfig::operation_timeout). An [`Operation`] that was started is
/// waited for or awaited.
///
/// # Examples
///
/// ```
/// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
/// use std::time::Duration;
///
/// use fodo_net::{ChannelState, Value};
///
/// let gap = context.channel("demo:gap")?;
/// let facts = gap.connect()?;
/// assert_eq!((gap.name(), gap.state()), ("demo:gap", ChannelState::Active));
/// assert!(facts.may_write);
///
/// gap.put(12.5)?;
/// assert_eq!(gap.get()?.value, Value::from(12.5));
///
/// // A record that takes long to process needs a longer timeout.
/// gap.put_timeout(13.0, Duration::from_secs(60))?;
/// # Ok::<(), fodo_net::Error>(())
/// ```
pub struct Channel(Arc<ChannelCore>);

impl Clone for Channel {
    fn clone(&self) -> Channel {
        // Cannot overflow: four billion clones need more memory than a host has.
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

/// State and connection.
impl Channel {
    pub(in crate::client) fn open(
        name: &str,
        protocol: Protocol,
        priority: Priority,
        context: &Arc<ContextCore>,
    ) -> Channel {
        let core = |cid| ChannelCore::new(name, protocol, cid, priority, context.clone());
        Channel(context.search(protocol).add_channel(core))
    }

    pub(in crate::client) fn core(&self) -> &Arc<ChannelCore> {
        &self.0
    }

    pub(super) fn timeout(&self) -> Duration {
        self.core().operation_timeout()
    }

    /// The PV's name, without a scheme. See the example of [`Channel`].
    pub fn name(&self) -> &str {
        self.core().name()
    }

    /// The channel's current state. No round trip. See the example of [`Channel`].
    pub fn state(&self) -> ChannelState {
        match self.core().state.lock().phase {
            ChannelPhase::Searching => ChannelState::Searching,
            ChannelPhase::Connecting(_) => ChannelState::Connecting,
            ChannelPhase::Active(_, _, Responsiveness::Responsive) => ChannelState::Active,
            ChannelPhase::Active(_, _, Responsiveness::Silent) => ChannelState::Unresponsive,
            ChannelPhase::Closed => ChannelState::Closed,
        }
    }

    /// What the server has reported about the channel; `None` unless it is active or unresponsive. No round trip.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// let spectrum = context.channel("demo:spectrum")?;
    /// spectrum.connect()?;
    ///
    /// assert_eq!(spectrum.facts().map(|facts| facts.count_max), Some(3));
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn facts(&self) -> Option<ChannelFacts> {
        self.core().facts()
    }

    /// Why the channel is not active after waiting for `waited`, as the error that an operation would return. `None`
    /// while it is active or unresponsive. No round trip.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use std::time::Duration;
    ///
    /// use fodo_net::{ErrorKind, Protocol};
    ///
    /// let absent = context.channel("demo:absent")?;
    /// let error = absent.why_inactive(Duration::ZERO).unwrap();
    ///
    /// assert_eq!(error.kind(), &ErrorKind::NotFound { protocol: Protocol::Ca, after: Duration::ZERO });
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn why_inactive(&self, waited: Duration) -> Option<Error> {
        match self.state() {
            ChannelState::Active | ChannelState::Unresponsive => None,
            ChannelState::Closed => Some(self.core().closed()),
            ChannelState::Searching | ChannelState::Connecting => Some(self.core().timed_out(waited)),
        }
    }

    /// Waits until the channel is active and returns its facts. See the example of [`Channel`].
    ///
    /// The steps are the search, the TCP connection unless one to that server exists, and one round trip. Fails after
    /// [`ClientConfig::operation_timeout`](crate::ClientConfig::operation_timeout) with the step that was not reached.
    pub fn connect(&self) -> Result<ChannelFacts, Error> {
        self.connect_timeout(self.timeout())
    }

    /// Like [`Channel::connect`], with its own timeout.
    pub fn connect_timeout(&self, timeout: Duration) -> Result<ChannelFacts, Error> {
        self.start_connect().wait_timeout(timeout)
    }

    /// Starts an operation that ends when the channel is active.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// let gap = context.channel("demo:gap")?;
    /// let connecting = gap.start_connect();
    /// // Other work.
    /// println!("connected to {}", connecting.wait()?.server);
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn start_connect(&self) -> Operation<ChannelFacts> {
        self.start(OperationTask::Connect, false)
    }

    /// An operation that has failed.
    pub(super) fn failed<T: Output>(&self, error: Error) -> Operation<T> {
        let operation = OperationCore::new(self.core().clone(), None);
        operation.end(Err(error)).wake();
        Operation::new(operation, self.clone())
    }

    pub(in crate::client) fn start_task<T: Output>(&self, task: OperationTask) -> Operation<T> {
        match task {
            OperationTask::Structured(task) => self.start_structured(task, false),
            task => self.start(task, false),
        }
    }

    pub(super) fn start<T: Output>(&self, task: OperationTask, is_driven: bool) -> Operation<T> {
        Operation::new(self.core().start(task, is_driven, None), self.clone())
    }
}

/// Reading.
impl Channel {
    /// Reads the value with alarm and time stamp; one round trip when connected. Blocks; the calling thread itself
    /// reads the circuit. See the example of [`Channel`].
    pub fn get(&self) -> Result<Reading, Error> {
        self.get_timeout(self.timeout())
    }

    /// Like [`Channel::get`], with its own timeout.
    pub fn get_timeout(&self, timeout: Duration) -> Result<Reading, Error> {
        self.get_with_timeout(Request::default(), timeout)
    }

    /// Like [`Channel::get`], with the type, attributes and number of elements of `request`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use fodo_net::{Detail, Request, Value};
    ///
    /// let temperature = context.channel("demo:temperature")?;
    /// let reading = temperature.get_with(Request { detail: Detail::Full, ..Request::default() })?;
    /// assert_eq!(reading.meta.unwrap().units, "K".into());
    ///
    /// let spectrum = context.channel("demo:spectrum")?;
    /// let first = spectrum.get_with(Request { count: 2, ..Request::default() })?;
    /// assert_eq!(first.value, Value::from(vec![0.0, 1.0]));
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn get_with(&self, request: Request) -> Result<Reading, Error> {
        self.get_with_timeout(request, self.timeout())
    }

    /// Like [`Channel::get_with`], with its own timeout.
    pub fn get_with_timeout(&self, request: Request, timeout: Duration) -> Result<Reading, Error> {
        self.start(OperationTask::Get(request), true).wait_timeout(timeout)
    }

    /// Like [`Channel::get_with`], but reuses the memory of the array in `reading` for a large array. This requires
    /// that the array is of the same kind and not shared. Allocating tens of megabytes takes longer than receiving
    /// them.
    ///
    /// On failure `reading` contains an empty array.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use fodo_net::Request;
    ///
    /// let spectrum = context.channel("demo:spectrum")?;
    /// let mut reading = spectrum.get()?;
    /// for _ in 0..3 {
    ///     spectrum.get_into(&mut reading, Request::default())?;
    ///     println!("{} elements", reading.value.len());
    /// }
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn get_into(&self, reading: &mut Reading, request: Request) -> Result<(), Error> {
        self.get_into_timeout(reading, request, self.timeout())
    }

    /// Like [`Channel::get_into`], with its own timeout.
    pub fn get_into_timeout(&self, reading: &mut Reading, request: Request, timeout: Duration) -> Result<(), Error> {
        let value = std::mem::replace(&mut reading.value, Value::Array(Array::empty(Kind::U8)));
        let buffer = match value {
            Value::Array(array) => Some(array),
            Value::Scalar(_) => None,
        };
        let operation: Operation<Reading> =
            Operation::new(self.core().start(OperationTask::Get(request), true, buffer), self.clone());
        *reading = operation.wait_timeout(timeout)?;
        Ok(())
    }

    /// Starts a get. Does not block.
    ///
    /// # Examples
    ///
    /// Two gets in one round trip; [`many::get`](crate::many::get) does this for many channels.
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use fodo_net::Request;
    ///
    /// let (gap, temperature) = (context.channel("demo:gap")?, context.channel("demo:temperature")?);
    /// let getting = [gap.start_get(Request::default()), temperature.start_get(Request::default())];
    /// for operation in getting {
    ///     println!("{:?}", operation.wait()?.value);
    /// }
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn start_get(&self, request: Request) -> Operation<Reading> {
        self.start(OperationTask::Get(request), false)
    }

    /// Like [`Channel::start_get`], for a caller that waits in periods: the first [`Operation::wait_at_most`] sends the
    /// request, with no other thread involved, as [`Channel::get`] does.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use std::time::Duration;
    ///
    /// use fodo_net::Request;
    ///
    /// let mut reading = context.channel("demo:gap")?.start_driven_get(Request::default());
    /// let result = loop {
    ///     // The program looks after other things between the periods.
    ///     if let Some(result) = reading.wait_at_most(Duration::from_millis(50)) {
    ///         break result;
    ///     }
    /// };
    /// assert_eq!(result?.value, 12.5.into());
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn start_driven_get(&self, request: Request) -> Operation<Reading> {
        self.start(OperationTask::Get(request), true)
    }
}

/// Writing; see also [`Channel::put_unconfirmed`].
impl Channel {
    /// Writes `value` and waits until the server has completed processing; one round trip when connected. A put that
    /// fails with a timeout or [`ErrorKind::Disconnected`](crate::ErrorKind::Disconnected) may have been carried out.
    /// See the example of [`Channel`].
    pub fn put(&self, value: impl Into<Value>) -> Result<(), Error> {
        self.put_timeout(value, self.timeout())
    }

    /// Like [`Channel::put`], with its own timeout.
    pub fn put_timeout(&self, value: impl Into<Value>, timeout: Duration) -> Result<(), Error> {
        self.start(OperationTask::Put(value.into()), true).wait_timeout(timeout)
    }

    /// Starts a put with completion. Does not block. On a connected channel the value is queued at once, and written
    /// even if the operation is dropped; see [`Operation`].
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use std::time::Duration;
    ///
    /// let moving = context.channel("demo:gap")?.start_put(20.0);
    /// // Other work, while the gap opens.
    /// moving.wait_timeout(Duration::from_secs(60))?;
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn start_put(&self, value: impl Into<Value>) -> Operation<()> {
        self.start(OperationTask::Put(value.into()), false)
    }
}

/// Subscribing.
impl Channel {
    /// Starts a subscription; the caller takes its events from the returned [`Monitor`], which has an example.
    ///
    /// It survives disconnections: events report them, and the subscription restarts when the channel is active again.
    /// While no server has the PV there is no event; [`Channel::why_inactive`] says which step is missing.
    pub fn monitor(&self, options: MonitorOptions) -> Monitor {
        self.start_monitor(options, None)
    }

    /// Starts a subscription that passes its events to `callback`, in order.
    ///
    /// Callbacks run on one thread of the context unless its [`Executor`](crate::Executor) is set otherwise. A panic of
    /// a callback ends that call only; the next event calls it again. The subscription ends when the returned monitor
    /// is dropped. Fails if the system provides no thread.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use std::sync::mpsc;
    ///
    /// use fodo_net::{MonitorEvent, MonitorOptions};
    ///
    /// let (sender, values) = mpsc::channel();
    /// let temperature = context.channel("demo:temperature")?;
    /// let _monitor = temperature.monitor_with(MonitorOptions::default(), move |event| {
    ///     if let MonitorEvent::Update(reading) = event {
    ///         // Fails when the receiver is dropped; then no one needs the value.
    ///         let _ = sender.send(reading.value);
    ///     }
    /// })?;
    /// println!("{:?}", values.recv().unwrap());
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn monitor_with(
        &self,
        options: MonitorOptions,
        callback: impl FnMut(MonitorEvent) + Send + 'static,
    ) -> Result<Monitor, Error> {
        let callback: Callback = Box::new(callback);
        let callbacks = self.core().context.callbacks().map_err(|error| Error::system(self.name(), error))?;
        Ok(self.start_monitor(options, Some((callback, callbacks))))
    }

    fn start_monitor(&self, options: MonitorOptions, callback: Option<(Callback, Arc<Callbacks>)>) -> Monitor {
        let monitor = MonitorCore::new(self.core().clone(), options, callback, Delivery::Readings);
        self.add_monitor(&monitor);
        Monitor::new(monitor, self.clone())
    }

    /// Starts a subscription whose updates become rows of a group, where the PV has this index.
    pub(in crate::client) fn monitor_rows(
        &self,
        options: MonitorOptions,
        group: &Arc<GroupCore>,
        index: u32,
    ) -> Monitor {
        let delivery = Delivery::Rows(group.clone(), index);
        let monitor = MonitorCore::new(self.core().clone(), options, None, delivery);
        self.add_monitor(&monitor);
        Monitor::new(monitor, self.clone())
    }

    /// Starts a subscription now or when the channel is active.
    pub(super) fn add_monitor(&self, monitor: &Arc<MonitorCore>) {
        let (waiter, active) = self.core().add_monitor(monitor);
        waiter.wake();
        if let Some((circuit, server_channel)) = active {
            circuit.subscribe(monitor, server_channel);
        }
    }
}
