//! Contexts, channels, operations and monitors.
//!
//! Every operation waits for its channel to connect first. Nothing here needs an async runtime:
//! an [`Operation`] can be waited for or awaited.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use fodo_data::{EventMask, Kind, Reading, Value};

use crate::config::{ClientConfig, ConfigError};

/// A set of channels with one configuration. Cheap to make; sockets open with the first channel.
#[derive(Clone, Debug)]
pub struct Context {}

impl Context {
    /// A context with this configuration.
    pub fn new(config: ClientConfig) -> Context {
        let _ = config;
        todo!()
    }

    /// A context configured by the EPICS_CA_* environment variables.
    pub fn from_env() -> Result<Context, ConfigError> {
        Ok(Context::new(ClientConfig::from_env()?))
    }

    /// A hold on the PV `name`; the search for it starts at once. Each call makes a channel of its own.
    pub fn channel(&self, name: &str) -> Result<Channel, Error> {
        let _ = name;
        todo!()
    }
}

/// Where a channel stands; the comment says what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// For a server to claim the name.
    Searching,
    /// For the circuit to that server to open.
    Connecting,
    /// For the server to confirm the channel.
    Creating,
    /// For nothing: operations may start.
    Active,
}

/// What the server says of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The server's address.
    pub server: SocketAddr,
    /// The kind of an element.
    pub kind: Kind,
    /// How many elements it can hold.
    pub count_max: u32,
    /// Whether this client may read.
    pub may_read: bool,
    /// Whether this client may write.
    pub may_write: bool,
}

/// How much to ask for beside the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    Value,
    /// The alarm.
    Alarm,
    /// Alarm and time stamp.
    #[default]
    Time,
    /// Alarm, units, display and alarm limits, labels.
    Graphic,
    /// The same with control limits.
    Control,
    /// A string with alarm and acknowledge state (`DBR_STSACK_STRING`).
    Acknowledge,
    /// The record type's name (`DBR_CLASS_NAME`).
    ClassName,
}

/// What to ask a server for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The kind of an element; `None` for the channel's own.
    pub kind: Option<Kind>,
    /// What to have with it.
    pub detail: Detail,
    /// How many elements; 0 for as many as there are.
    pub count: u32,
}

/// Why an operation did not give what it was asked for; the variant says whose turn it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// Nobody claimed the name in time.
    NotFound { pv: String, after: Duration },
    /// A server claimed the name, then did not answer in time.
    NoAnswer { pv: String, server: SocketAddr, after: Duration },
    /// The server said no.
    Refused { pv: String, server: SocketAddr, refusal: Refusal },
    /// The circuit was lost while the operation was under way.
    Disconnected { pv: String, server: SocketAddr },
    /// The call cannot be right: an empty name, a value that cannot be sent.
    Misuse { pv: String, reason: String },
}

/// What a server says no to.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The TCP connection.
    Connection,
    /// The channel.
    Channel,
    /// Reading.
    ReadAccess,
    /// Writing.
    WriteAccess,
    /// The operation, with its status.
    Status(fodo_ca::eca::Eca),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let _ = f;
        todo!()
    }
}

impl std::error::Error for Error {}

/// A hold on one PV. Cloning shares it; the channel is given up with its last clone.
#[derive(Clone, Debug)]
pub struct Channel {}

impl Channel {
    /// The PV's name.
    pub fn name(&self) -> &str {
        todo!()
    }

    /// Where it stands now.
    pub fn state(&self) -> ChannelState {
        todo!()
    }

    /// What the server says of it; `None` while it is not active.
    pub fn facts(&self) -> Option<Facts> {
        todo!()
    }

    /// Waits until it is active.
    pub fn connect(&self, timeout: Duration) -> Result<Facts, Error> {
        self.start_connect().wait(timeout)
    }

    /// The value with alarm and time; one round trip when connected. Blocks, driving the circuit itself.
    pub fn get(&self, timeout: Duration) -> Result<Reading, Error> {
        self.start_get(Request::default()).wait(timeout)
    }

    /// Writes and waits until processing is complete; one round trip when connected.
    pub fn put(&self, value: impl Into<Value>, timeout: Duration) -> Result<(), Error> {
        self.start_put(value.into()).wait(timeout)
    }

    /// Writes without an answer; completes when the bytes were handed to the circuit.
    pub fn put_unconfirmed(&self, value: impl Into<Value>, timeout: Duration) -> Result<(), Error> {
        let _ = (value.into(), timeout);
        todo!()
    }

    /// Ends when the channel is active.
    pub fn start_connect(&self) -> Operation<Facts> {
        todo!()
    }

    /// Starts a get.
    pub fn start_get(&self, request: Request) -> Operation<Reading> {
        let _ = request;
        todo!()
    }

    /// Starts a put with completion.
    pub fn start_put(&self, value: Value) -> Operation<()> {
        let _ = value;
        todo!()
    }

    /// Starts a subscription whose events are taken from the [`Monitor`].
    pub fn monitor(&self, options: MonitorOptions) -> Monitor {
        let _ = options;
        todo!()
    }

    /// Starts a subscription whose events are given to `callback`, in order, on the context's one
    /// callback thread. It ends when the returned monitor is dropped.
    pub fn monitor_with(
        &self,
        options: MonitorOptions,
        callback: impl FnMut(MonitorEvent) + Send + 'static,
    ) -> Monitor {
        let _ = (options, callback);
        todo!()
    }
}

/// An operation in progress. Wait for it or await it; dropping it cancels it.
#[derive(Debug)]
pub struct Operation<T> {
    _result: std::marker::PhantomData<T>,
}

impl<T> Operation<T> {
    /// Blocks until it ends or `timeout` has passed, driving the circuit meanwhile.
    pub fn wait(self, timeout: Duration) -> Result<T, Error> {
        let _ = timeout;
        todo!()
    }
}

impl<T> Future for Operation<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let _ = cx;
        todo!()
    }
}

/// What a subscription is to deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorOptions {
    /// What each update holds.
    pub request: Request,
    /// Which changes count.
    pub mask: EventMask,
    /// How many updates wait at most; when full, the newest replaces the last and is counted.
    pub queue_max: usize,
}

impl Default for MonitorOptions {
    fn default() -> Self {
        MonitorOptions { request: Request::default(), mask: EventMask::VALUE | EventMask::ALARM, queue_max: 1024 }
    }
}

/// What a subscription tells.
#[derive(Clone, Debug, PartialEq)]
pub enum MonitorEvent {
    /// The channel is active; an update follows.
    Connected(Facts),
    /// An update.
    Update(Reading),
    /// The circuit was lost; a new one is looked for.
    Disconnected,
    /// The server gives no updates, and why.
    Refused(Refusal),
}

/// How many updates went where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Came from the server.
    pub received: u64,
    /// Were replaced by later ones in the full queue.
    pub merged: u64,
    /// Were handed to the user's code.
    pub delivered: u64,
}

/// A running subscription; ends when dropped.
#[derive(Debug)]
pub struct Monitor {}

impl Monitor {
    /// The next event; `None` when none comes in time. With a callback there is never one here.
    pub fn next(&self, timeout: Duration) -> Option<MonitorEvent> {
        let _ = timeout;
        todo!()
    }

    /// The next event as a future.
    pub fn next_event(&self) -> impl Future<Output = MonitorEvent> + '_ {
        std::future::pending()
    }

    /// How many updates went where so far.
    pub fn counts(&self) -> Counts {
        todo!()
    }
}
