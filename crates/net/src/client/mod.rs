//! Client side: contexts, channels, operations and monitors.
//!
//! Every operation first waits until its channel is connected. No async runtime is required: the caller can block on an
//! [`Operation`] or await it.

mod batch;
mod beacon_listener;
mod callbacks;
mod channel;
mod circuit;
mod deadlines;
pub mod diagnosis;
mod error;
pub mod many;
mod monitor;
mod name_server;
mod notice;
mod operation;
mod search;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fodo_data::Kind;
use fodo_lock::{Mutex, Rank};

use self::callbacks::Callbacks;
pub use self::callbacks::{CallbackJob, Executor};
pub use self::channel::{Channel, ChannelState};
use self::circuit::Circuit;
use self::deadlines::Deadlines;
pub use self::error::{Error, ErrorKind, Refusal, WrongReply};
pub use self::monitor::{Monitor, MonitorCounts, MonitorEvent, MonitorIter, MonitorOptions, WhenFull};
pub use self::notice::Notice;
use self::notice::Notices;
pub use self::operation::{Operation, Output};
use self::search::Search;
use crate::config::{ClientConfig, ConfigError};
use crate::limit;
use crate::reactor::Reactor;

/// A set of channels that share one configuration. Creating one is cheap: sockets open with the first channel.
///
/// Clones share the same context. Dropping a context closes nothing: its channels and monitors keep it alive, and
/// [`Context::close`] ends them. All contexts of a process share the reactor thread; those that search in the same way
/// share a search socket. Each context has its own circuits and channels.
///
/// # Examples
///
/// ```
/// # let (server, _context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
/// # let config = server.client_config();
/// use fodo_net::Context;
///
/// // `config`: for instance that of the environment, from `ClientConfig::from_env()`.
/// let context = Context::new(config);
/// let reading = context.channel("demo:temperature")?.get()?;
/// println!("{:?} since {:?}", reading.value, reading.time);
///
/// // Closes all circuits; monitors end.
/// context.close();
/// # Ok::<(), fodo_net::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Context {
    core: Arc<ContextCore>,
}

/// The state that all channels of a context share.
#[derive(Debug)]
struct ContextCore {
    config: ClientConfig,
    executor: Executor,
    network: OnceLock<NetworkHandles>,
    deadlines: OnceLock<Arc<Deadlines>>,
    circuits: Mutex<Circuits>,
    callbacks: Mutex<Option<Arc<Callbacks>>>,
    notices: Notices,
}

/// Channel priority, 0 to 99. Channels of different priorities use separate circuits to the same server, and the server
/// may serve the higher priority first.
///
/// See the example of [`Context::channel_at`].
pub type Priority = u8;

/// The circuits of a context, by server and priority.
#[derive(Debug)]
enum Circuits {
    /// New circuits can be added.
    Open(HashMap<(SocketAddr, Priority), Arc<Circuit>>),
    /// The context was closed: no circuits, and none can be added.
    Closed,
}

/// What a context needs once it has a channel.
struct NetworkHandles {
    reactor: Arc<Reactor>,
    search: Arc<Search>,
}

impl std::fmt::Debug for NetworkHandles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.search.fmt(f)
    }
}

impl Context {
    /// Creates a context with this configuration. Opens no socket and starts no thread. See the example of [`Context`].
    pub fn new(config: ClientConfig) -> Context {
        Context::with_executor(config, Executor::OneThread)
    }

    /// Like [`Context::new`], but `executor` determines the threads on which monitor callbacks run.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    ///
    /// use fodo_net::{ClientConfig, Context, Executor};
    ///
    /// let four = NonZeroUsize::new(4).unwrap();
    /// let context = Context::with_executor(ClientConfig::default(), Executor::Threads(four));
    /// ```
    pub fn with_executor(config: ClientConfig, executor: Executor) -> Context {
        let core = ContextCore {
            config,
            executor,
            network: OnceLock::new(),
            deadlines: OnceLock::new(),
            circuits: Mutex::ranked(Rank::ContextCircuits, Circuits::Open(HashMap::new())),
            callbacks: Mutex::ranked(Rank::ContextCallbacks, None),
            notices: Notices::default(),
        };
        Context { core: Arc::new(core) }
    }

    /// Creates a context configured by the `EPICS_CA_*` environment variables. Fails if one of them is invalid. Does
    /// not resolve names.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let context = fodo_net::Context::from_env()?;
    /// println!("{:?}", context.channel("machine:current")?.get()?.value);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_env() -> Result<Context, ConfigError> {
        Ok(Context::new(ClientConfig::from_env()?))
    }

    /// Waits for the next notice: something the user should know although no operation failed. Returns `None` if there
    /// is none within `timeout`.
    ///
    /// Each notice is returned once, to one of the calling threads. If no thread takes them, the first 256 are kept.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use std::time::Duration;
    ///
    /// while let Some(notice) = context.next_notice(Duration::ZERO) {
    ///     eprintln!("{notice}");
    /// }
    /// ```
    pub fn next_notice(&self, timeout: Duration) -> Option<Notice> {
        self.core.notices.next(timeout)
    }

    /// Opens a channel to the PV `name`; the search for it starts at once. Each call creates a separate channel.
    ///
    /// Fails if `name` is empty, longer than 511 bytes or contains NUL, after [`Context::close`], and if the system
    /// provides no socket or thread. See the example of [`Context`].
    pub fn channel(&self, name: &str) -> Result<Channel, Error> {
        self.channel_at(name, 0)
    }

    /// Like [`Context::channel`], on the circuit of this priority. Slow traffic at one priority does not delay another.
    ///
    /// Also fails if `priority` is above 99.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// // Large arrays do not delay the interlock's value.
    /// let interlock = context.channel_at("demo:temperature", 90)?;
    /// let spectrum = context.channel("demo:spectrum")?;
    /// println!("{:?} {:?}", interlock.get()?.value, spectrum.get()?.value);
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn channel_at(&self, name: &str, priority: Priority) -> Result<Channel, Error> {
        let misuse = |reason: &str| Err(Error::misuse(name, reason));
        if name.is_empty() {
            return misuse("a channel needs a name");
        }
        if name.len() > fodo_ca::limit::NAME_BYTES {
            let most = fodo_ca::limit::NAME_BYTES;
            return misuse(&format!("the name has {} bytes; a server accepts at most {most}", name.len()));
        }
        if name.bytes().any(|byte| byte == 0) {
            return misuse("a name cannot contain NUL");
        }
        if priority > limit::PRIORITY_MAX {
            return misuse("the priority must be between 0 and 99");
        }
        self.core.open().map_err(|error| Error::system(name, error))?;
        let channel = Channel::open(name, priority, &self.core);
        // Checked only now: if `close` ran too early to see the new channel, the context is closed here.
        if self.core.is_closed() {
            return Err(Error::new(name, ErrorKind::ContextClosed));
        }
        Ok(channel)
    }

    /// Closes every circuit of this context and its clones, permanently.
    ///
    /// Pending operations end with [`ErrorKind::ContextClosed`], and so do all later ones. A pending put may or may not
    /// have reached its server. Each monitor receives [`MonitorEvent::Closed`] as its last event. Callbacks receive it on
    /// the callback thread, which ends when the last clone of the context and its last channel and monitor are dropped.
    ///
    /// Does not block and costs no round trip: servers see the connection close. May be called from any thread,
    /// including from a callback, and more than once; later calls have no effect. See the example of
    /// [`Monitor`].
    pub fn close(&self) {
        self.core.close();
    }
}

impl ContextCore {
    fn open(self: &Arc<Self>) -> io::Result<()> {
        if self.network.get().is_some() {
            return Ok(());
        }
        let reactor = Reactor::shared()?;
        let search = Search::shared(&self.config, &reactor, Arc::downgrade(self))?;
        // Another thread may have set it first; its handles are equivalent.
        let _ = self.network.set(NetworkHandles { reactor, search });
        Ok(())
    }

    fn is_closed(&self) -> bool {
        matches!(*self.circuits.lock(), Circuits::Closed)
    }

    fn close(&self) {
        let Circuits::Open(circuits) = std::mem::replace(&mut *self.circuits.lock(), Circuits::Closed) else { return };
        let Some(network) = self.network.get() else { return };
        for channel in network.search.channels() {
            if channel.is_of(self) {
                channel.end_with_context();
            }
        }
        circuits.values().for_each(|circuit| circuit.end_with_context());
    }

    fn network(&self) -> &NetworkHandles {
        match self.network.get() {
            Some(network) => network,
            None => unreachable!("a context with channels is open"),
        }
    }

    fn search(&self) -> &Search {
        &self.network().search
    }

    /// The deadlines of awaited operations; created on first use.
    fn deadlines(&self) -> &Deadlines {
        self.deadlines.get_or_init(|| Deadlines::new(self.config.operation_timeout, &self.network().reactor))
    }

    /// Returns the circuit to this server at this priority, and opens it if it does not exist.
    fn circuit_to(self: &Arc<Self>, server: SocketAddr, priority: Priority) -> io::Result<Arc<Circuit>> {
        let mut circuits = self.circuits.lock();
        let Circuits::Open(circuits) = &mut *circuits else {
            return Err(io::Error::from(io::ErrorKind::NotConnected));
        };
        if let Some(circuit) = circuits.get(&(server, priority)) {
            return Ok(circuit.clone());
        }
        let Some(network) = self.network.get() else {
            return Err(io::Error::from(io::ErrorKind::NotConnected));
        };
        let config = circuit_config(&self.config, priority);
        let circuit = Circuit::open(server, &config, self.config.spin, &network.reactor, Arc::downgrade(self))?;
        circuits.insert((server, priority), circuit.clone());
        Ok(circuit)
    }

    fn add_notice(&self, notice: Notice) {
        self.notices.push(notice);
    }

    fn forget_circuit(&self, circuit: &Circuit) {
        if let Circuits::Open(circuits) = &mut *self.circuits.lock() {
            circuits.retain(|_, known| !std::ptr::eq(&**known, circuit));
        }
    }

    /// The callback threads; started with the first monitor that has a callback.
    fn callbacks(&self) -> io::Result<Arc<Callbacks>> {
        let mut callbacks = self.callbacks.lock();
        if let Some(running) = &*callbacks {
            return Ok(running.clone());
        }
        let started = Callbacks::start(self.executor.clone())?;
        *callbacks = Some(started.clone());
        Ok(started)
    }
}

impl Drop for ContextCore {
    fn drop(&mut self) {
        if let Some(callbacks) = self.callbacks.get_mut().take() {
            callbacks.end();
        }
    }
}

/// The client's identity and limits for a new circuit.
fn circuit_config(config: &ClientConfig, priority: Priority) -> fodo_ca::client::Config {
    fodo_ca::client::Config {
        priority,
        user: user(config),
        host: host(),
        echo_after: config.echo_after,
        payload_bytes_max: config.payload_bytes_max,
    }
}

/// The user name that is sent to servers.
fn user(config: &ClientConfig) -> String {
    let variables = ["USER", "LOGNAME", "USERNAME"];
    let of_environment = || variables.iter().find_map(|name| std::env::var(name).ok());
    config.user.clone().or_else(of_environment).unwrap_or_else(|| "unknown".to_owned())
}

/// The host name that is sent to servers.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What the server has reported about a channel.
///
/// See the example of [`Channel`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelFacts {
    /// The server's address.
    pub server: SocketAddr,
    /// The type of an element.
    pub kind: Kind,
    /// The maximum number of elements.
    pub count_max: u32,
    /// Whether this client may read.
    pub may_read: bool,
    /// Whether this client may write.
    pub may_write: bool,
}

/// Which attributes to request in addition to the value; by default [`Detail::Time`].
///
/// See the example of [`Channel::get_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Detail {
    /// No attributes.
    Value,
    /// The alarm status and severity.
    Alarm,
    /// Alarm and time stamp.
    #[default]
    Time,
    /// Alarm, units, display and alarm limits, labels.
    Graphic,
    /// As [`Detail::Graphic`], and control limits.
    Control,
    /// Everything: alarm, time stamp, units, limits, labels. Sends two requests in one round trip; a monitor uses a
    /// second subscription that keeps units, limits and labels up to date.
    Full,
    /// The value as a string with alarm and acknowledge state (`DBR_STSACK_STRING`).
    Acknowledge,
    /// The name of the record type (`DBR_CLASS_NAME`).
    ClassName,
}

/// What to request from a server.
///
/// See the example of [`Channel::get_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The type of an element; `None` requests the channel's native type.
    pub kind: Option<Kind>,
    /// Which attributes to request with the value.
    pub detail: Detail,
    /// The number of elements; 0 requests as many as the PV has.
    pub count: u32,
}
