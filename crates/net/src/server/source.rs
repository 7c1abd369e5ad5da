//! The contract between a server and what it serves: [`Source`] and [`Pv`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fodo_data::{AcknowledgePut, EventMask, Kind, Meta, MetaParts, Reading, Value};
use fodo_engine::Rights;
use fodo_pva::server::{ProcessOption, PutOptions};

use super::posts::Posts;
use super::reactor::{CircuitKey, Inbox, ReactorMessage};
use super::structured::ServedPv;

/// A set of PVs that a server can publish. Called on the server's threads; must not block for long: meanwhile the other
/// clients of the thread wait, and on the first thread also all searches and new clients.
///
/// A panic is logged and refuses the request: the name is not served, or the channel is refused.
///
/// [`PvTable`](crate::PvTable) is a ready-made source; [`SourceChain`](crate::SourceChain) combines several.
///
/// ```
/// use fodo_net::{ServedPv, SharedPv, Source};
///
/// /// Serves its PVs as `sensor:0`, `sensor:1` and so on.
/// struct Sensors(Vec<SharedPv>);
///
/// impl Sensors {
///     fn find(&self, name: &str) -> Option<&SharedPv> {
///         self.0.get(name.strip_prefix("sensor:")?.parse::<usize>().ok()?)
///     }
/// }
///
/// impl Source for Sensors {
///     fn serves(&self, name: &str) -> bool {
///         self.find(name).is_some()
///     }
///
///     fn open(&self, name: &str) -> Option<ServedPv> {
///         // The same PV for every channel: a clone refers to the same PV.
///         self.find(name).cloned().map(Into::into)
///     }
/// }
/// # let sensors = Sensors(vec![SharedPv::new(21.5)]);
/// # assert!(sensors.open("sensor:0").is_some() && sensors.open("sensor:1").is_none());
/// ```
pub trait Source: Send + Sync + 'static {
    /// Whether `name` is served. Called for each search.
    fn serves(&self, name: &str) -> bool;

    /// Whether `name` is a [flat](ServedPv::Flat) PV, which Channel Access can serve too. Called instead of
    /// [`Source::serves`] for each search of Channel Access, and by default the same.
    fn serves_flat(&self, name: &str) -> bool {
        self.serves(name)
    }

    /// Opens the PV with this name.
    ///
    /// Returns the same object for every channel to the same PV where possible: each circuit listens once per object.
    /// `None` if the PV does not exist or is refused.
    fn open(&self, name: &str) -> Option<ServedPv>;

    /// Why [`Source::open`] returned `None` for a name, if there is a reason other than that it does not exist; for the
    /// log.
    fn refusal_reason(&self, _name: &str) -> Option<String> {
        None
    }

    /// The names of all PVs, in any order, for clients of pvAccess that request a list
    /// ([`discovery::names`](crate::discovery::names)). By default there are none, as for a source that computes them.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What a server reports about a PV when a client connects; see [`Pv`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvFacts {
    /// The type of an element.
    pub kind: Kind,
    /// The maximum number of elements.
    pub count_max: u32,
    /// Whether every put is refused, regardless of its value.
    pub is_read_only: bool,
}

/// The client of a request. Only the address is reliable, and with the method `x509` the user and the authority: other
/// clients themselves send user and host, usually before their first channel. Both are empty for an anonymous client of
/// pvAccess.
///
/// ```
/// use fodo_net::{Peer, PutRefusal, SharedPv};
///
/// let accepts = |peer: &Peer| peer.user == "operator" || peer.address.ip().is_loopback();
/// let gap = SharedPv::builder(12.5)
///     .on_put(move |value, peer| match accepts(peer) {
///         true => Ok(value),
///         false => Err(PutRefusal::Rejected(format!("{} on {} may not move the gap", peer.user, peer.host))),
///     })
///     .build();
/// # drop(gap);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user name.
    pub user: String,
    /// The host name.
    pub host: String,
    /// The remote address of the connection.
    pub address: SocketAddr,
    /// How the client has identified itself: `ca` (it says who it is, the only way of Channel Access), `anonymous`, or `x509`
    /// (by a verified certificate). Empty until it has.
    pub method: &'static str,
    /// With `x509`, the common names of the authorities that issued the certificate, the root first, separated by line
    /// feeds. Empty otherwise.
    pub authority: String,
    /// Whether the connection uses TLS.
    pub is_encrypted: bool,
}

impl Peer {
    /// A client that has not identified itself.
    ///
    /// ```
    /// use fodo_net::Peer;
    ///
    /// let peer = Peer { user: "operator".into(), ..Peer::new("192.0.2.7:40000".parse().unwrap()) };
    /// assert_eq!((peer.user.as_str(), peer.host.as_str(), peer.is_encrypted), ("operator", "", false));
    /// ```
    pub fn new(address: SocketAddr) -> Peer {
        let (user, host, authority) = Default::default();
        Peer { user, host, address, method: "", authority, is_encrypted: false }
    }
}

/// A PV that is served. Called on the server's threads; must not block for long: meanwhile the other clients of the
/// thread wait, and on the first thread also all searches and new clients.
///
/// A panic is logged. In [`Pv::put`] it fails the put, in [`Pv::facts`] and [`Pv::rights`] it refuses a new channel,
/// and elsewhere it closes the connection of the client for which the method was called.
///
/// [`SharedPv`](crate::SharedPv) is a ready-made PV. A PV of its own kind says what it is, reads its value, accepts or
/// refuses puts, and pushes its changes to [`Posts`]. All other methods have a default.
///
/// ```
/// use std::time::{Instant, SystemTime};
///
/// use fodo_net::{Completion, Kind, Peer, Posts, PutRefusal, Pv, PvFacts, Reading, Value};
///
/// /// The seconds since its creation, computed when a client reads it. It posts no changes.
/// struct Age {
///     since: Instant,
///     posts: Posts,
/// }
///
/// impl Pv for Age {
///     fn facts(&self) -> PvFacts {
///         PvFacts { kind: Kind::F64, count_max: 1, is_read_only: true }
///     }
///
///     fn read(&self) -> Reading {
///         let value = Value::from(self.since.elapsed().as_secs_f64());
///         Reading { time: SystemTime::now().into(), ..Reading::bare(value) }
///     }
///
///     fn with_reading(&self, subscribe: &mut dyn FnMut(Reading)) {
///         subscribe(self.read());
///     }
///
///     fn put(&self, _: Value, _: &Peer, _: Option<Completion>) -> Result<(), PutRefusal> {
///         Err(PutRefusal::ReadOnly)
///     }
///
///     fn posts(&self) -> &Posts {
///         &self.posts
///     }
/// }
/// # assert!(Age { since: Instant::now(), posts: Posts::new(1) }.facts().is_read_only);
/// ```
pub trait Pv: Send + Sync {
    /// Type, size and properties, as reported to clients.
    fn facts(&self) -> PvFacts;

    /// [`PvFacts::is_read_only`], which is needed for each put. A PV whose facts take time overrides this. [`Pv`]
    /// has an example.
    fn is_read_only(&self) -> bool {
        self.facts().is_read_only
    }

    /// The current value, alarm and time stamp, without `meta`.
    fn read(&self) -> Reading;

    /// Calls `subscribe` once with the current reading, while no change can be posted.
    fn with_reading(&self, subscribe: &mut dyn FnMut(Reading));

    /// Writes `value`. The end of the processing that this starts is reported through `completion`, during this call or
    /// later. `completion`: `None` if the client does not want to know the end.
    ///
    /// A failure is reported by the result, or later by [`Completion::refuse`]. Dropping the completion fails the put.
    fn put(&self, value: Value, by: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal>;

    /// The same as [`Pv::put`] for a client of pvAccess, with its pvRequest; not called if the PV has [`Pv::pv_access`]. By
    /// default these options are ignored.
    fn put_with(
        &self,
        value: Value,
        _options: PutOptions,
        by: &Peer,
        completion: Option<Completion>,
    ) -> Result<(), PutRefusal> {
        self.put(value, by, completion)
    }

    /// The posts of this PV, to which it pushes its changes.
    fn posts(&self) -> &Posts;

    /// Units, limits, labels and acknowledge state. By default there are none.
    fn meta(&self) -> Arc<Meta> {
        Arc::default()
    }

    /// The access rights of a client; called when a channel is created and after [`RightsSignal::notify_changed`]. By
    /// default every client may read and write.
    ///
    /// The server refuses requests that are not allowed. A PV that no client may write sets [`PvFacts::is_read_only`]
    /// instead. [`Server::rights_signal`](crate::Server::rights_signal) has an example.
    fn rights(&self, _by: &Peer) -> Rights {
        Rights { read: true, write: true }
    }

    /// Whether every put over pvAccess is answered at its end, so that its client receives the error of a handler that takes
    /// time. By default only if the client requests to wait; Channel Access has no such choice. [`Completion`] has an example of a PV.
    fn always_ends_puts(&self) -> bool {
        false
    }

    /// Whether the PV exists no longer: [`RightsSignal::notify_changed`] closes the channels of such PVs, and their clients
    /// search again. By default it is not.
    /// [`Server::rights_signal`](crate::Server::rights_signal) has an example.
    fn is_closed(&self) -> bool {
        false
    }

    /// The client of a put in progress has disconnected: drop the put if its processing has not started. Does nothing by
    /// default.
    ///
    /// `put`: its [`Completion::number`]. [`Completion`] has an example.
    fn cancel_put(&self, put: u64) {
        let _ = put;
    }

    /// A circuit has started or stopped listening to [`Pv::posts`]; query [`Posts::has_listeners`] for the current
    /// state. Does nothing by default.
    fn listeners_changed(&self) {}

    /// The first update of a subscription with this mask; called within [`Pv::with_reading`] with its reading. `None`
    /// if there is nothing to send yet, as with filters. By default the reading itself.
    fn first_update(&self, reading: Reading, _mask: EventMask) -> Option<Reading> {
        Some(reading)
    }

    /// What only Channel Access requests of a PV; called when such a request is received. `None` by default. See
    /// [`ChannelAccessPv`].
    fn channel_access(&self) -> Option<&dyn ChannelAccessPv> {
        None
    }

    /// What only pvAccess requests of a PV; called when such a request is received. `None` by default. See
    /// [`PvAccessPv`].
    fn pv_access(&self) -> Option<&dyn PvAccessPv> {
        None
    }
}

/// What only Channel Access requests of a PV; see [`Pv::channel_access`].
///
/// ```
/// use fodo_net::{AcknowledgePut, ChannelAccessPv, PutRefusal};
///
/// struct Motor;
///
/// impl ChannelAccessPv for Motor {
///     fn class_name(&self) -> &'static str {
///         "motor"
///     }
///
///     fn acknowledge(&self, _put: AcknowledgePut) -> Result<(), PutRefusal> {
///         Err(PutRefusal::Rejected("alarms of this PV are not acknowledged".into()))
///     }
/// }
/// # assert_eq!(Motor.class_name(), "motor");
/// ```
pub trait ChannelAccessPv {
    /// The reply to `DBR_CLASS_NAME`: the record type. A PV without this trait replies `pv`.
    fn class_name(&self) -> &'static str;

    /// Acknowledges alarms (`DBR_PUT_ACKT`, `DBR_PUT_ACKS`). A PV without this trait refuses it.
    fn acknowledge(&self, put: AcknowledgePut) -> Result<(), PutRefusal>;
}

/// What only pvAccess requests of a PV; see [`Pv::pv_access`]. A record of a soft IOC is an example.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_net::{
///     Completion, Kind, Meta, MetaParts, NormativeShape, Peer, ProcessOption, PutRefusal, PvAccessPv, Value,
/// };
///
/// /// Characters that pvAccess shows as one text.
/// struct Title;
///
/// impl PvAccessPv for Title {
///     fn shape(&self) -> NormativeShape {
///         NormativeShape { kind: Kind::Text, is_array: false, parts: MetaParts(0), tag_bits: 0 }
///     }
///
///     fn meta(&self) -> Arc<Meta> {
///         Arc::new(Meta { description: "the title".into(), ..Meta::default() })
///     }
///
///     fn put(&self, _: Value, _: ProcessOption, _: &Peer, _: Option<Completion>) -> Result<(), PutRefusal> {
///         Err(PutRefusal::ReadOnly)
///     }
///
///     fn process(&self, _: &Peer, _: Option<Completion>) -> Result<(), PutRefusal> {
///         Err(PutRefusal::Rejected("there is no record".into()))
///     }
/// }
/// # assert_eq!(Title.shape().kind, Kind::Text);
/// # assert_eq!(Title.meta().description, "the title".into());
/// ```
pub trait PvAccessPv {
    /// The normative type of the PV, and which metadata it has. Without this trait these follow from [`Pv::facts`].
    fn shape(&self) -> NormativeShape;

    /// The metadata of [`Pv::meta`] with those that Channel Access does not have: the description and the form.
    fn meta(&self) -> Arc<Meta>;

    /// The same as [`Pv::put`], for a value in the kind of [`PvAccessPv::shape`]. `process`: whether the put processes
    /// the record; a source without records ignores it.
    fn put(
        &self,
        value: Value,
        process: ProcessOption,
        by: &Peer,
        completion: Option<Completion>,
    ) -> Result<(), PutRefusal>;

    /// Processes the record without a put. Refused by a source without records.
    fn process(&self, by: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal>;
}

/// Which normative type of pvAccess a PV has, and which metadata it sends. [`PvAccessPv`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormativeShape {
    /// The type of an element. For a long string, whose value is an array of characters, [`Kind::Text`].
    pub kind: Kind,
    /// Whether the value is an array.
    pub is_array: bool,
    /// The metadata that the PV has.
    pub parts: MetaParts,
    /// The number of the lowest bits of the nanoseconds that are the user tag of the time stamp; usually 0.
    pub tag_bits: u8,
}

impl From<&PvFacts> for NormativeShape {
    fn from(facts: &PvFacts) -> NormativeShape {
        let is_array = facts.count_max > 1;
        NormativeShape { kind: facts.kind, is_array, parts: MetaParts::of(facts.kind, is_array), tag_bits: 0 }
    }
}

/// Makes a server check the access rights of its clients again. [`Server::rights_signal`](crate::Server::rights_signal)
/// has an example.
#[derive(Clone, Debug)]
pub struct RightsSignal(pub(super) Vec<Arc<Inbox>>);

impl RightsSignal {
    /// Notifies the server that access rights may have changed.
    ///
    /// Every circuit queries its PVs again ([`Pv::rights`], [`Pv::is_closed`]) and reports changes to its client; over pvAccess, by ending the
    /// subscriptions that may no longer be read. Never blocks. Calls made before the circuits have checked count as one.
    pub fn notify_changed(&self) {
        self.0.iter().for_each(|inbox| inbox.check_rights());
    }
}

/// Why a put failed.
///
/// The reasons are texts for the operator of the server: they are written to its log ([`Level::Info`]), with the
/// address of the client and without the name of the PV. A client of Channel Access receives only a status, one of
/// pvAccess also the text.
///
/// [`Level::Info`]: crate::log::Level::Info
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PutRefusal {
    /// No client may write the PV; nothing was changed. The client receives `ECA_NOWTACCESS`.
    ReadOnly,
    /// This value is rejected, or no value is accepted now, with the reason; nothing was changed. The client receives
    /// `ECA_PUTFAIL`.
    Rejected(String),
    /// The value was written, but the processing that it started failed, with the reason. The client receives
    /// `ECA_PUTFAIL`, the same as for a value that was rejected.
    ProcessingFailed(String),
}

impl std::fmt::Display for PutRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PutRefusal::ReadOnly => f.write_str("the PV is read-only"),
            PutRefusal::Rejected(reason) => write!(f, "the value is rejected: {reason}"),
            PutRefusal::ProcessingFailed(reason) => write!(f, "the value is written, but processing failed: {reason}"),
        }
    }
}

impl std::error::Error for PutRefusal {}

/// Reports the result of a put to its client.
///
/// A completion that is dropped without [`Completion::complete`], for example by a panic, refuses the put. So no client
/// waits forever, or takes a failed put for a completed one.
///
/// ```
/// use std::collections::VecDeque;
///
/// use fodo_net::{Completion, PutRefusal};
///
/// /// Puts that wait for a slow device, in the order of their arrival.
/// #[derive(Default)]
/// struct Waiting(VecDeque<Completion>);
///
/// impl Waiting {
///     fn device_finished(&mut self, failure: Option<String>) {
///         let Some(completion) = self.0.pop_front() else { return };
///         match failure {
///             None => completion.complete(),
///             Some(reason) => completion.refuse(PutRefusal::ProcessingFailed(reason)),
///         }
///     }
///
///     /// Called by `Pv::cancel_put`.
///     fn cancel(&mut self, put: u64) {
///         self.0.retain(|completion| completion.number() != put);
///     }
/// }
/// # let mut waiting = Waiting::default();
/// # waiting.device_finished(None);
/// # waiting.cancel(1);
/// ```
#[derive(Debug)]
pub struct Completion {
    inbox: Arc<Inbox>,
    circuit: CircuitKey,
    put: u64,
    /// The result that the source has reported.
    result: Option<Result<(), PutRefusal>>,
}

impl Completion {
    pub(super) fn new(inbox: Arc<Inbox>, circuit: CircuitKey) -> Completion {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let put = NEXT.fetch_add(1, Ordering::Relaxed);
        Completion { inbox, circuit, put, result: None }
    }

    /// A number that is unique in this process; later puts have larger numbers.
    pub fn number(&self) -> u64 {
        self.put
    }

    /// Reports that the value is written and processing has ended.
    pub fn complete(mut self) {
        self.result = Some(Ok(()));
    }

    /// Reports that the put failed, for example because it was refused when its turn came.
    pub fn refuse(mut self, refusal: PutRefusal) {
        self.result = Some(Err(refusal));
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let dropped = || Err(PutRefusal::Rejected("the source dropped the put without a result".into()));
        let result = self.result.take().unwrap_or_else(dropped);
        self.inbox.push(ReactorMessage::PutDone { circuit: self.circuit, put: self.put, result });
    }
}
