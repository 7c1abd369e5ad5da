//! Requests to a CLU, their replies, and its configuration.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use fodo_net::ClientConfig;

use super::subscription::{FetchItem, SubscriptionChange};
use crate::clock::{ClockFn, system_clock};
use crate::limit::{CALL_INSTRUCTIONS_MAX, CALL_TIME_MAX, MEMORY_BYTES_MAX};
use crate::object::world::CluState;
use crate::object::{ObjectClass, ObjectError};
use crate::remote::PeerClus;
use crate::value::{LuaValue, NumberFormat};

/// The port of the HTTP server unless the configuration names another one.
pub const HTTP_PORT: u16 = 8080;

/// What a CLU needs to start.
///
/// ```
/// use fodo_vclu::{LuaEngine, VcluConfig};
///
/// let folder = std::env::temp_dir().join(format!("fodo-vclu-config-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let mut config = VcluConfig::new(&folder);
/// config.zone = "Europe/Warsaw".into();
/// let engine = LuaEngine::start(config)?;
/// # drop(engine);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct VcluConfig {
    /// The folder `a:` with MAIN.LUA, OM.LUA and USER.LUA. A missing folder is an empty one.
    pub folder: PathBuf,
    /// The folder for the files of Storage objects; without it, they keep nothing. One CLU at a time can use it.
    pub storage: Option<PathBuf>,
    /// The time zone until a script sets another one: an IANA name.
    pub zone: String,
    /// The clocks.
    pub clock: ClockFn,
    /// How numbers are printed in replies.
    pub number_format: NumberFormat,
    /// Instructions of one call.
    pub instructions_max: u64,
    /// Time of one call.
    pub call_time_max: Duration,
    /// Memory of all scripts together.
    pub memory_bytes_max: usize,
    /// The client of Pv objects; `None`: that of the environment variables, such as `EPICS_CA_ADDR_LIST`. Its
    /// `operation_timeout` is not used: each object has its own.
    pub pv_client: Option<ClientConfig>,
    /// The CLUs that RemoteCLU objects call.
    pub peers: PeerClus,
    /// Where the HTTP server of HttpListener objects listens; port 0 is any free port. It starts with the first of them.
    pub http: SocketAddr,
    /// The folder with `ca.crt`, the certificates to trust with `ssl://` and `https://`, and with `certificate.crt` and
    /// `key.pem` of this CLU. Without `ca.crt`, those of the operating system are trusted.
    pub certificates: Option<PathBuf>,
}

impl VcluConfig {
    /// The default limits and the clocks of the computer. `folder`: the folder `a:`.
    pub fn new(folder: impl Into<PathBuf>) -> VcluConfig {
        VcluConfig {
            folder: folder.into(),
            storage: None,
            zone: "UTC".into(),
            clock: system_clock(),
            number_format: NumberFormat::Full,
            instructions_max: CALL_INSTRUCTIONS_MAX,
            call_time_max: CALL_TIME_MAX,
            memory_bytes_max: MEMORY_BYTES_MAX,
            pv_client: None,
            peers: PeerClus::default(),
            http: (Ipv4Addr::LOCALHOST, HTTP_PORT).into(),
            certificates: None,
        }
    }
}

/// The CLU cannot start: its time zone is unknown, another CLU uses its folder for stored values, or the limit of memory is too
/// small for the libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError {
    pub(crate) reason: String,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the virtual CLU cannot start: {}", self.reason)
    }
}

impl std::error::Error for StartError {}

/// The reply to a script.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptAnswer {
    /// What a CLU sends: the printed value; `nil` also after an error.
    pub text: String,
    /// Whether the script failed. The log has the reason.
    pub is_error: bool,
    /// Subscriptions that the script added or removed.
    pub subscriptions: Vec<SubscriptionChange>,
}

/// An object as [`VcluRequest::List`] returns it.
#[derive(Clone, Debug)]
pub struct ObjectListing {
    /// The name in `OBJECT:new`.
    pub name: String,
    /// The name that a person gave it in Object Manager, from a comment in OM.LUA.
    pub label: Option<String>,
    /// Its features, methods and events; `None` for an object that is not available on this CLU.
    pub class: Option<&'static ObjectClass>,
}

/// A request to a CLU, with where to send its reply.
pub enum VcluRequest {
    /// Runs a script: the text of an expression.
    Execute {
        /// The text.
        script: String,
        /// Receives the value.
        reply: ReplyTo<ScriptAnswer>,
    },
    /// Reads features and user variables, all at the same time. An item without value is `Nil`.
    Fetch {
        /// What to read.
        items: Vec<FetchItem>,
        /// The maximum size of the values, such as [`FETCH_BYTES_MAX`](crate::limit::FETCH_BYTES_MAX). A value that exceeds it
        /// together with those before it is `Nil`.
        bytes_max: usize,
        /// Receives a value for each item.
        reply: ReplyTo<Vec<LuaValue>>,
    },
    /// Sets a feature.
    Set {
        /// The name of the object.
        object: String,
        /// The index of the feature.
        feature: u16,
        /// The value.
        value: LuaValue,
        /// Receives whether it was set.
        reply: ReplyTo<Result<(), ObjectError>>,
    },
    /// Calls a method.
    Call {
        /// The name of the object.
        object: String,
        /// The index of the method.
        method: u16,
        /// The arguments; missing ones are `nil`.
        arguments: Vec<LuaValue>,
        /// Receives what the method returns.
        reply: ReplyTo<Result<LuaValue, ObjectError>>,
    },
    /// Lists all objects in the order of their creation.
    List {
        /// Receives the objects.
        reply: ReplyTo<Vec<ObjectListing>>,
    },
    /// Stops all scripts and starts those of the folder.
    Reset {
        /// Receives the state after MAIN.LUA has run up to its first `SYSTEM.Loop`.
        reply: ReplyTo<CluState>,
    },
}

/// Where the reply of a request is sent: a function that is called once, on the thread of the CLU; with `None` if the CLU
/// stops before it replies.
pub struct ReplyTo<T> {
    send: Option<ReplyFn<T>>,
}

type ReplyFn<T> = Box<dyn FnOnce(Option<T>) + Send>;

impl<T> ReplyTo<T> {
    /// `send` must return soon: the CLU does nothing else meanwhile.
    pub fn new(send: impl FnOnce(Option<T>) + Send + 'static) -> ReplyTo<T> {
        ReplyTo { send: Some(Box::new(send)) }
    }

    pub(crate) fn send(mut self, reply: T) {
        if let Some(send) = self.send.take() {
            send(Some(reply));
        }
    }
}

impl<T> Drop for ReplyTo<T> {
    fn drop(&mut self) {
        if let Some(send) = self.send.take() {
            send(None);
        }
    }
}
