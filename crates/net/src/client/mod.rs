//! Client side: contexts, channels, operations and monitors.
//!
//! Every operation first waits until its channel is connected. No async runtime is required: the caller can block on an
//! [`Operation`] or await it.

mod batch;
mod callbacks;
mod channel;
mod circuit;
mod deadlines;
pub mod diagnosis;
mod error;
mod group;
mod loop_reader;
pub mod many;
mod monitor;
mod name_server;
mod notice;
mod operation;
pub(crate) mod search;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use fodo_data::Kind;
use fodo_engine::search::Transport;
use fodo_lock::{Mutex, Rank};

pub(crate) use self::batch::Failure;
use self::callbacks::Callbacks;
pub use self::callbacks::{CallbackJob, Executor};
pub use self::channel::{Channel, ChannelState};
use self::circuit::{Circuit, ClientMachine};
pub(crate) use self::circuit::{RowTarget, ServerChannel};
use self::deadlines::Deadlines;
pub use self::error::{Error, ErrorKind, Refusal, WrongReply};
use self::group::GroupCore;
pub use self::group::{GroupChange, GroupCounts, GroupOptions, GroupRow, GroupRows, MonitorGroup};
pub use self::loop_reader::LoopReader;
pub use self::monitor::{Monitor, MonitorCounts, MonitorEvent, MonitorIter, MonitorOptions, MonitorValue, WhenFull};
pub use self::notice::Notice;
use self::notice::Notices;
pub use self::operation::{Operation, Output};
pub(crate) use self::operation::{OperationOutcome, OperationTask, StructuredTask};
use self::search::Search;
use crate::config::{ClientConfig, ConfigError};
use crate::limit;
use crate::protocol::Protocol;
use crate::reactor::Reactor;
use crate::tls::{TlsPeer, TlsStream};

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
    /// The monitor groups, which end with the context also while they have no PV.
    groups: Mutex<Vec<Weak<GroupCore>>>,
    notices: Notices,
}

/// Channel priority, 0 to 99. Channels of different priorities use separate circuits to the same server, and the server
/// may serve the higher priority first.
///
/// See the example of [`Context::channel_at`].
pub type Priority = u8;

/// The circuits of a context, by server, protocol and priority.
#[derive(Debug)]
enum Circuits {
    /// New circuits can be added.
    Open(HashMap<(SocketAddr, Protocol, Transport, Priority), Arc<Circuit>>),
    /// The context was closed: no circuits, and none can be added.
    Closed,
}

/// What a context needs once it has a channel.
struct NetworkHandles {
    reactor: Arc<Reactor>,
    /// The searches of each protocol; opened with the first channel of the protocol.
    ca: OnceLock<Search>,
    pva: OnceLock<Search>,
}

impl NetworkHandles {
    fn search(&self, protocol: Protocol) -> &OnceLock<Search> {
        match protocol {
            Protocol::Ca => &self.ca,
            Protocol::Pva => &self.pva,
        }
    }
}

impl std::fmt::Debug for NetworkHandles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries([&self.ca, &self.pva].into_iter().filter_map(OnceLock::get)).finish()
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
            groups: Mutex::default(),
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
    /// A scheme before the name selects the protocol: `pva://name` or `ca://name`. Without one it is
    /// [`ClientConfig::default_protocol`]. [`Channel::name`] and errors contain the name without the scheme.
    ///
    /// Fails if the name is empty, longer than its protocol allows (511 bytes with Channel Access, 1024 with pvAccess) or
    /// contains NUL, after [`Context::close`], and if the system provides no socket or thread. See the example of
    /// [`Context`].
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
        let (protocol, name) = Protocol::split(name);
        let protocol = protocol.unwrap_or(self.core.config.default_protocol);
        let misuse = |reason: &str, advice| Err(Error::misuse(name, reason, advice));
        if name.is_empty() {
            return misuse("the name of the channel is empty", "pass the name of a PV, such as \"demo:gap\"");
        }
        let most = name_bytes_max(protocol);
        if name.len() > most {
            let reason = format!("the name has {} bytes, but a server accepts at most {most}", name.len());
            return misuse(&reason, "shorten the name, or the filter in it");
        }
        if name.bytes().any(|byte| byte == 0) {
            return misuse("the name contains NUL", "remove it; a name ends before the NUL of a C string");
        }
        if priority > limit::PRIORITY_MAX {
            return misuse(&format!("the priority {priority} is out of range"), "it must be between 0 and 99");
        }
        self.core.open(protocol).map_err(|error| Error::system(name, error))?;
        let channel = Channel::open(name, protocol, priority, &self.core);
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
    /// Opens what channels over this protocol need.
    fn open(self: &Arc<Self>, protocol: Protocol) -> io::Result<()> {
        let network = match self.network.get() {
            Some(network) => network,
            None => {
                let reactor = Reactor::shared()?;
                let new = || NetworkHandles { reactor, ca: OnceLock::new(), pva: OnceLock::new() };
                self.network.get_or_init(new)
            }
        };
        let search = network.search(protocol);
        if search.get().is_none() {
            // Another thread may have set it first; its search is the same.
            let _ = search.set(Search::shared(protocol, &self.config, &network.reactor, Arc::downgrade(self))?);
        }
        Ok(())
    }

    fn is_closed(&self) -> bool {
        matches!(*self.circuits.lock(), Circuits::Closed)
    }

    /// A group that ends with the context.
    fn add_group(&self, group: &Arc<GroupCore>) {
        {
            let mut groups = self.groups.lock();
            groups.retain(|known| known.strong_count() > 0);
            groups.push(Arc::downgrade(group));
        }
        // Checked only now: if `close` ran too early to see the new group, the group is closed here.
        if self.is_closed() {
            group.end_with_context().wake();
        }
    }

    fn close(&self) {
        let Circuits::Open(circuits) = std::mem::replace(&mut *self.circuits.lock(), Circuits::Closed) else { return };
        let groups = std::mem::take(&mut *self.groups.lock());
        groups.iter().filter_map(Weak::upgrade).for_each(|group| group.end_with_context().wake());
        let Some(network) = self.network.get() else { return };
        for search in [&network.ca, &network.pva].into_iter().filter_map(OnceLock::get) {
            for channel in search.channels() {
                if channel.is_of(self) {
                    channel.end_with_context();
                }
            }
        }
        circuits.values().for_each(|circuit| circuit.end_with_context());
    }

    /// Speeds up all searches, because a caller is waiting.
    fn flush_searches(&self) {
        let Some(network) = self.network.get() else { return };
        [&network.ca, &network.pva].into_iter().filter_map(OnceLock::get).for_each(Search::flush_searches);
    }

    fn network(&self) -> &NetworkHandles {
        match self.network.get() {
            Some(network) => network,
            None => unreachable!("a context with channels is open"),
        }
    }

    /// The search for names of channels over this protocol.
    fn search(&self, protocol: Protocol) -> &Search {
        match self.network().search(protocol).get() {
            Some(search) => search,
            None => unreachable!("the search was opened before the channel was created"),
        }
    }

    /// The deadlines of awaited operations; created on first use.
    fn deadlines(&self) -> &Deadlines {
        self.deadlines.get_or_init(|| Deadlines::new(self.config.operation_timeout, &self.network().reactor))
    }

    /// Returns the circuit to this server with this protocol, transport and priority, and opens it if it does not exist.
    fn circuit_to(
        self: &Arc<Self>,
        server: SocketAddr,
        protocol: Protocol,
        transport: Transport,
        priority: Priority,
    ) -> io::Result<Arc<Circuit>> {
        let mut circuits = self.circuits.lock();
        let Circuits::Open(circuits) = &mut *circuits else {
            return Err(io::Error::from(io::ErrorKind::NotConnected));
        };
        if let Some(circuit) = circuits.get(&(server, protocol, transport, priority)) {
            return Ok(circuit.clone());
        }
        let Some(network) = self.network.get() else {
            return Err(io::Error::from(io::ErrorKind::NotConnected));
        };
        let tls = match (transport, protocol, self.config.pva.tls.keychain()) {
            (Transport::Tls, _, Some(keychain)) => Some(TlsStream::client(keychain, server)?),
            (Transport::Tls, _, None) => return Err(io::Error::other("TLS is not configured")),
            // Searches do not accept such servers.
            (Transport::Tcp, Protocol::Pva, _) if self.config.pva.tls.is_only() => {
                return Err(io::Error::other("TLS is the only transport"));
            }
            (Transport::Tcp, ..) => None,
        };
        let machine = ClientMachine::new(protocol, &self.config, priority);
        let context = Arc::downgrade(self);
        let circuit = Circuit::open(server, machine, tls, &self.config, &network.reactor, context)?;
        circuits.insert((server, protocol, transport, priority), circuit.clone());
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

/// The longest name of a PV that servers accept, in bytes.
fn name_bytes_max(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Ca => fodo_ca::limit::NAME_BYTES,
        Protocol::Pva => fodo_pva::limit::NAME_BYTES,
    }
}

/// The client's identity and limits for a new circuit with Channel Access.
pub(crate) fn circuit_config(config: &ClientConfig, priority: Priority) -> fodo_ca::client::Config {
    fodo_ca::client::Config {
        priority,
        user: user(config),
        host: host(),
        echo_after: config.echo_after,
        payload_bytes_max: config.payload_bytes_max,
    }
}

/// The same with pvAccess.
fn pva_circuit_config(config: &ClientConfig, priority: Priority) -> fodo_pva::client::Config {
    fodo_pva::client::Config {
        priority,
        user: user(config),
        host: host(),
        echo_after: config.pva.echo_after,
        payload_bytes_max: config.payload_bytes_max,
    }
}

/// The user name that is sent to servers.
pub(crate) fn user(config: &ClientConfig) -> String {
    let variables = ["USER", "LOGNAME", "USERNAME"];
    let of_environment = || variables.iter().find_map(|name| std::env::var(name).ok());
    config.user.clone().or_else(of_environment).unwrap_or_else(|| "unknown".to_owned())
}

/// The host name that is sent to servers.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What the server has reported about a channel.
///
/// See the example of [`Channel`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelFacts {
    /// The server's address.
    pub server: SocketAddr,
    /// The type of an element. With pvAccess, [`Kind::Text`] also for a structure without a value of its own.
    pub kind: Kind,
    /// The maximum number of elements: 1 for a scalar. With pvAccess 0 for an array of any length, and for a structure
    /// without a value of its own.
    pub count_max: u32,
    /// Whether this client may read. Servers of pvAccess do not report it: always true.
    pub may_read: bool,
    /// Whether this client may write. Servers of pvAccess do not report it: always true.
    pub may_write: bool,
    /// The identity in the server's certificate, if the circuit uses TLS; `None`: it is plain TCP.
    pub tls: Option<Arc<TlsPeer>>,
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
    /// Everything: alarm, time stamp, units, limits, labels. With Channel Access this sends two requests in one round
    /// trip, and a monitor uses a second subscription that keeps units, limits and labels up to date.
    Full,
    /// The value as a string with alarm and acknowledge state (`DBR_STSACK_STRING`). Only with Channel Access; with
    /// pvAccess the request fails with [`ErrorKind::Misuse`].
    AcknowledgeState,
    /// The name of the record type (`DBR_CLASS_NAME`). Only with Channel Access, as [`Detail::AcknowledgeState`].
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
