use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fodo_ca::Rights;
use fodo_data::{EventMask, Kind, Meta, Reading, Severity, Value};

use super::observer::{ClientStatus, ServerCounts};
use super::posts::Posts;
use super::reactor::{CircuitKey, Inbox, Message};

/// A set of PVs that a server can publish. Called on the server's threads; must not block for long.
pub trait Source: Send + Sync + 'static {
    /// Whether `name` is served. Called for each search.
    fn serves(&self, name: &str) -> bool;

    /// Opens the PV with this name.
    ///
    /// Returns the same object for every channel to the same field, except for names with filters. `None` if the PV
    /// does not exist or is refused.
    fn open(&self, name: &str) -> Option<Arc<dyn Pv>>;

    /// Why [`Source::open`] returned `None` for a name, if there is a reason other than that it does not exist; for the
    /// log.
    fn refusal(&self, _name: &str) -> Option<String> {
        None
    }

    /// Called once a second on a separate thread if the server publishes its status; for a source that extends the
    /// status.
    fn refresh_status(&self, _clients: &[ClientStatus], _counts: &ServerCounts) {}
}

/// What a server reports about a PV when a client connects.
#[derive(Clone, Debug, PartialEq)]
pub struct PvFacts {
    /// The type of an element.
    pub kind: Kind,
    /// The maximum number of elements.
    pub count_max: u32,
    /// Whether every put is refused, regardless of its value.
    pub is_read_only: bool,
    /// The reply to `DBR_CLASS_NAME`.
    pub class_name: &'static str,
}

/// The client of a request. Only the address is reliable: the client itself sends user and host, before its first
/// channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user name.
    pub user: String,
    /// The host name.
    pub host: String,
    /// The remote address of the connection.
    pub address: SocketAddr,
}

/// A PV that is served. Called on the server's threads; must not block for long.
pub trait Pv: Send + Sync {
    /// Type, size and properties, as reported to clients.
    fn facts(&self) -> PvFacts;

    /// The current value, alarm and time stamp, without `meta`.
    fn read(&self) -> Reading;

    /// Units, limits, labels and acknowledge state.
    fn meta(&self) -> Arc<Meta>;

    /// The access rights of a client; called when a channel is created and after [`RightsSignal::changed`].
    ///
    /// The server refuses requests that are not allowed. A PV that no client may write sets [`PvFacts::is_read_only`]
    /// instead.
    fn allowed(&self, _by: &Peer) -> Rights {
        Rights { read: true, write: true }
    }

    /// Writes `value`. The end of the processing that this starts is reported through `completion`, during this call or
    /// later.
    ///
    /// A failure is reported by the result, or later by [`Completion::refused`]. Dropping the completion fails the put.
    fn put(&self, value: Value, by: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal>;

    /// The client of a put in progress has disconnected: drop the put if its processing has not started.
    ///
    /// `put`: its [`Completion::number`].
    fn give_up(&self, put: u64) {
        let _ = put;
    }

    /// Acknowledges alarms (`DBR_PUT_ACKT`, `DBR_PUT_ACKS`).
    fn acknowledge(&self, transient: Option<bool>, severity: Option<Severity>) -> Result<(), PutRefusal>;

    /// The posts of this PV, to which it pushes its changes.
    fn posts(&self) -> &Posts;

    /// A circuit has started or stopped listening to [`Pv::posts`]; query [`Posts::has_listeners`] for the current
    /// state.
    fn listeners_changed(&self);

    /// Calls `attach` once with the current reading, while no change can be posted.
    fn attach(&self, attach: &mut dyn FnMut(Reading));

    /// The first update of a subscription with this mask; called within [`Pv::attach`] with its reading. `None` if
    /// there is nothing to send yet, as with filters.
    fn first_update(&self, reading: Reading, _mask: EventMask) -> Option<Reading> {
        Some(reading)
    }
}

/// Makes a server check the access rights of its clients again.
#[derive(Clone, Debug)]
pub struct RightsSignal(pub(super) Vec<Arc<Inbox>>);

impl RightsSignal {
    /// Notifies the server that access rights may have changed.
    ///
    /// Every circuit queries its PVs again ([`Pv::allowed`]) and reports changes to its client. Never blocks. Calls
    /// made before the circuits have checked count as one.
    pub fn changed(&self) {
        self.0.iter().for_each(|inbox| inbox.check_rights());
    }
}

/// Why a put failed.
#[derive(Clone, Debug, PartialEq)]
pub enum PutRefusal {
    /// No client may write the PV; nothing was changed.
    ReadOnly,
    /// This value is rejected, or no value is accepted now, with the reason; nothing was changed.
    Rejected(String),
    /// The value was written, but the processing that it started failed, with the reason.
    Unprocessed(String),
}

/// Reports the result of a put to its client.
///
/// A completion that is dropped without [`Completion::done`], for example by a panic, refuses the put. So no client
/// waits forever, or takes a failed put for a completed one.
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
    pub fn done(mut self) {
        self.result = Some(Ok(()));
    }

    /// Reports that a queued put was refused when its turn came.
    pub fn refused(mut self, refusal: PutRefusal) {
        self.result = Some(Err(refusal));
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let dropped = || Err(PutRefusal::Rejected("the source dropped the put without a result".into()));
        let result = self.result.take().unwrap_or_else(dropped);
        self.inbox.push(Message::PutDone { circuit: self.circuit, put: self.put, result });
    }
}
