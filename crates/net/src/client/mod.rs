//! Contexts, channels, operations and monitors.
//!
//! Every operation waits for its channel to connect first. Nothing here needs an async runtime:
//! an [`Operation`] can be waited for or awaited.

mod batch;
mod callbacks;
mod channel;
mod circuit;
mod deadlines;
pub mod diagnosis;
mod ear;
mod error;
pub mod many;
mod monitor;
mod name_server;
mod notice;
mod numbering;
mod operation;
mod reactor;
mod role;
mod search;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fodo_data::Kind;

use self::callbacks::Callbacks;
pub use self::callbacks::{Executor, Job};
pub use self::channel::{Channel, ChannelState};
use self::circuit::Circuit;
use self::deadlines::Deadlines;
pub use self::error::{Error, Refusal, WrongReply};
pub use self::monitor::{Counts, Monitor, MonitorEvent, MonitorOptions, WhenFull};
pub use self::notice::Notice;
use self::notice::Notices;
pub use self::operation::{Given, Operation, OutcomeOf};
pub(crate) use self::reactor::{Driven, Reactor, Turn};
use self::search::Search;
use crate::config::{ClientConfig, ConfigError};
use crate::limit;
use crate::sync::lock;

/// A set of channels with one configuration. Cheap to make; sockets open with the first channel.
///
/// Cloning shares it. The reactor thread and the search socket are the process's; circuits and
/// names are the context's own.
#[derive(Clone, Debug)]
pub struct Context {
    core: Arc<ContextCore>,
}

/// What a context's channels share.
#[derive(Debug)]
struct ContextCore {
    config: ClientConfig,
    executor: Executor,
    edge: OnceLock<Edge>,
    deadlines: OnceLock<Arc<Deadlines>>,
    circuits: Mutex<Circuits>,
    callbacks: Mutex<Option<Arc<Callbacks>>>,
    notices: Notices,
}

/// From 0 to 99; channels of each have a circuit of their own to a server, which may serve the higher ones first.
pub type Priority = u8;

/// The circuits of a context, by their servers and priorities.
#[derive(Debug)]
enum Circuits {
    /// More may come.
    Open(HashMap<(SocketAddr, Priority), Arc<Circuit>>),
    /// There are none, and there will be none.
    Closed,
}

/// What a context needs as soon as it has a channel.
struct Edge {
    reactor: Arc<Reactor>,
    search: Arc<Search>,
}

impl std::fmt::Debug for Edge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.search.fmt(f)
    }
}

impl Context {
    /// A context with this configuration. No socket, no thread yet.
    pub fn new(config: ClientConfig) -> Context {
        Context::with_executor(config, Executor::One)
    }

    /// As [`Context::new`], with callbacks of monitors where `executor` says.
    pub fn with_executor(config: ClientConfig, executor: Executor) -> Context {
        let core = ContextCore {
            config,
            executor,
            edge: OnceLock::new(),
            deadlines: OnceLock::new(),
            circuits: Mutex::new(Circuits::Open(HashMap::new())),
            callbacks: Mutex::default(),
            notices: Notices::default(),
        };
        Context { core: Arc::new(core) }
    }

    /// A context configured by the EPICS_CA_* environment variables.
    pub fn from_env() -> Result<Context, ConfigError> {
        Ok(Context::new(ClientConfig::from_env()?))
    }

    /// The next thing that the user should know though nothing has failed; `None` when there is
    /// none within `timeout`. Each is given once, to whichever thread takes it; when nobody does,
    /// the first 256 are kept.
    pub fn next_notice(&self, timeout: Duration) -> Option<Notice> {
        self.core.notices.next(timeout)
    }

    /// A hold on the PV `name`; the search for it starts at once. Each call makes a channel of its own.
    ///
    /// Fails for a name that no server can have, after [`Context::close`], and when the system gives no
    /// socket or thread.
    pub fn channel(&self, name: &str) -> Result<Channel, Error> {
        self.channel_at(name, 0)
    }

    /// As [`Context::channel`], on a circuit of its own priority: what is slow on one does not hold up the other.
    ///
    /// Fails as well for a priority above 99.
    pub fn channel_at(&self, name: &str, priority: Priority) -> Result<Channel, Error> {
        let misuse = |reason: &str| Err(Error::Misuse { pv: name.to_owned(), reason: reason.to_owned() });
        if name.is_empty() {
            return misuse("a channel needs a name");
        }
        if name.len() > fodo_ca::limit::NAME_BYTES {
            return misuse("the name is longer than servers take");
        }
        if name.bytes().any(|byte| byte == 0) {
            return misuse("a name cannot contain NUL");
        }
        if priority > limit::PRIORITY_MAX {
            return misuse("a priority is from 0 to 99");
        }
        self.core.open().map_err(|error| Error::System { pv: name.to_owned(), reason: error.to_string() })?;
        let channel = Channel::open(name, priority, &self.core);
        // Looked at only now: a channel that `close` did not see finds the context closed here.
        if self.core.is_closed() {
            return Err(Error::Closed { pv: name.to_owned() });
        }
        Ok(channel)
    }

    /// Closes every circuit of this context and its clones, for good.
    ///
    /// Operations that have not ended end with [`Error::Closed`], and so do later ones; a put among them may
    /// or may not have reached its server. Each monitor has [`MonitorEvent::Closed`] as its last event, its
    /// callback on the callback thread, which ends with the last handle of the context.
    ///
    /// No round trip, and it does not block: servers notice the end of the connection. It may be called from
    /// any thread, a callback too, and again, which does nothing.
    pub fn close(&self) {
        self.core.close();
    }
}

impl ContextCore {
    fn open(self: &Arc<Self>) -> io::Result<()> {
        if self.edge.get().is_some() {
            return Ok(());
        }
        let reactor = Reactor::shared()?;
        let search = Search::shared(&self.config, &reactor, Arc::downgrade(self))?;
        // Another thread may have been first; then its edge is as good.
        let _ = self.edge.set(Edge { reactor, search });
        Ok(())
    }

    fn is_closed(&self) -> bool {
        matches!(*lock(&self.circuits), Circuits::Closed)
    }

    fn close(&self) {
        let Circuits::Open(circuits) = std::mem::replace(&mut *lock(&self.circuits), Circuits::Closed) else { return };
        let Some(edge) = self.edge.get() else { return };
        for channel in edge.search.channels() {
            if channel.is_of(self) {
                channel.end_with_context();
            }
        }
        circuits.values().for_each(|circuit| circuit.end_with_context());
    }

    fn edge(&self) -> &Edge {
        match self.edge.get() {
            Some(edge) => edge,
            None => unreachable!("a context with channels is open"),
        }
    }

    fn search(&self) -> &Search {
        &self.edge().search
    }

    /// The deadlines of awaited operations; made with the first.
    fn deadlines(&self) -> &Deadlines {
        self.deadlines.get_or_init(|| Deadlines::new(self.config.operation_timeout, &self.edge().reactor))
    }

    /// The circuit of a priority to a server; opens it if there is none.
    fn circuit_to(self: &Arc<Self>, server: SocketAddr, priority: Priority) -> io::Result<Arc<Circuit>> {
        let mut circuits = lock(&self.circuits);
        let Circuits::Open(circuits) = &mut *circuits else {
            return Err(io::Error::from(io::ErrorKind::NotConnected));
        };
        if let Some(circuit) = circuits.get(&(server, priority)) {
            return Ok(circuit.clone());
        }
        let Some(edge) = self.edge.get() else {
            return Err(io::Error::from(io::ErrorKind::NotConnected));
        };
        let config = circuit_config(&self.config, priority);
        let circuit = Circuit::open(server, &config, self.config.spin, edge.reactor.clone(), Arc::downgrade(self))?;
        circuits.insert((server, priority), circuit.clone());
        Ok(circuit)
    }

    fn tell(&self, notice: Notice) {
        self.notices.push(notice);
    }

    fn forget_circuit(&self, circuit: &Circuit) {
        if let Circuits::Open(circuits) = &mut *lock(&self.circuits) {
            circuits.retain(|_, known| !std::ptr::eq(&**known, circuit));
        }
    }

    /// The threads of the monitors' callbacks; they start with the first.
    fn callbacks(&self) -> io::Result<Arc<Callbacks>> {
        let mut callbacks = lock(&self.callbacks);
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
        if let Some(callbacks) = lock(&self.callbacks).take() {
            callbacks.end();
        }
    }
}

/// What a circuit is told of this client.
fn circuit_config(config: &ClientConfig, priority: Priority) -> fodo_ca::client::Config {
    fodo_ca::client::Config {
        priority,
        user: user(),
        host: host(),
        echo_after: config.echo_after,
        payload_bytes_max: config.payload_bytes_max,
    }
}

/// The login name, as servers are told it.
fn user() -> String {
    let variables = ["USER", "LOGNAME", "USERNAME"];
    variables.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_else(|| "unknown".to_owned())
}

/// The host's name, as servers are told it.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
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
    /// Everything: alarm, time stamp, units, limits, labels. Two requests in one round trip; a monitor has a second
    /// subscription that keeps units, limits and labels up to date.
    Full,
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
