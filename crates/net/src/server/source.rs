use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fodo_ca::Rights;
use fodo_data::{EventMask, Kind, Meta, Reading, Severity, Value};

use super::observer::{ClientStatus, ServerCounts};
use super::posts::Posts;
use super::reactor::{CircuitKey, Inbox, Message};

/// Whatever can be served. Called on the server's threads; must not block for long.
pub trait Source: Send + Sync + 'static {
    /// Whether `name` is served. Answers searches.
    fn serves(&self, name: &str) -> bool;

    /// The PV of that name; the same object for every channel to the same field, but for those whose names have filters.
    fn open(&self, name: &str) -> Option<Arc<dyn Pv>>;

    /// Why [`Source::open`] gives nothing for a name, where there is more to say than that nobody has it: for the log.
    fn refusal(&self, _name: &str) -> Option<String> {
        None
    }

    /// Called once a second on a thread of its own where the server tells its status: for a source that adds to it.
    fn refresh_status(&self, _clients: &[ClientStatus], _counts: &ServerCounts) {}
}

/// What clients are told of a PV when they connect.
#[derive(Clone, Debug, PartialEq)]
pub struct PvFacts {
    /// The kind of an element.
    pub kind: Kind,
    /// How many elements it can hold.
    pub count_max: u32,
    /// Whether a put is refused whatever it says.
    pub is_read_only: bool,
    /// What DBR_CLASS_NAME answers.
    pub class_name: &'static str,
}

/// Who asks. Only the address is known for sure: user and host are what the client says of itself, before its first channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user's name.
    pub user: String,
    /// The name of the host.
    pub host: String,
    /// Where the connection comes from.
    pub address: SocketAddr,
}

/// A PV that is served. Called on the server's threads; must not block for long.
pub trait Pv: Send + Sync {
    /// What clients are told of it.
    fn facts(&self) -> PvFacts;

    /// Value, alarm and time as they are now; `meta` left out.
    fn read(&self) -> Reading;

    /// Units, limits, labels, acknowledge state.
    fn meta(&self) -> Arc<Meta>;

    /// What a client may do with it; asked when a channel is made and after [`RightsSignal::changed`].
    ///
    /// The server refuses what is not allowed; a PV that nobody may write says so in its facts.
    fn allowed(&self, _by: &Peer) -> Rights {
        Rights { read: true, write: true }
    }

    /// Writes. The end of the processing that this begins is reported through `completion`, within this call or later;
    /// a failure is reported by the result, or later by [`Completion::refused`]. A completion that is dropped fails the put.
    fn put(&self, value: Value, by: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal>;

    /// The client of a put that has not ended has gone: what has not begun of it need not begin.
    /// `put`: its [`Completion::number`].
    fn give_up(&self, put: u64) {
        let _ = put;
    }

    /// Acknowledges alarms (`DBR_PUT_ACKT`, `DBR_PUT_ACKS`).
    fn acknowledge(&self, transient: Option<bool>, severity: Option<Severity>) -> Result<(), PutRefusal>;

    /// Where its changes are posted.
    fn posts(&self) -> &Posts;

    /// A listener of [`Pv::posts`] has come or gone; what holds now says [`Posts::has_listeners`].
    fn listeners_changed(&self);

    /// Calls `attach` once with the present reading while no change can be posted.
    fn attach(&self, attach: &mut dyn FnMut(Reading));

    /// What a subscription to changes of these kinds begins with; called within [`Pv::attach`] with its reading. A PV with
    /// filters may have nothing to tell yet.
    fn first_update(&self, reading: Reading, _mask: EventMask) -> Option<Reading> {
        Some(reading)
    }
}

/// Tells a server that what clients may do may have changed.
#[derive(Clone, Debug)]
pub struct RightsSignal(pub(super) Vec<Arc<Inbox>>);

impl RightsSignal {
    /// Every circuit asks its PVs anew ([`Pv::allowed`]) and tells its client. Never blocks; signals that come before the
    /// circuits have looked count as one.
    pub fn changed(&self) {
        self.0.iter().for_each(|inbox| inbox.check_rights());
    }
}

/// Why a put failed.
#[derive(Clone, Debug, PartialEq)]
pub enum PutRefusal {
    /// No client may write the PV; nothing was changed.
    ReadOnly,
    /// Not this value, or not now, and why; nothing was changed.
    Rejected(String),
    /// The value was written, but what it set off failed; why.
    Unprocessed(String),
}

/// Reports to the client of a put how it ended. A completion that is dropped without [`Completion::done`], for example
/// by a panic, refuses the put, so that no client waits for ever or takes for done what was not.
#[derive(Debug)]
pub struct Completion {
    inbox: Arc<Inbox>,
    circuit: CircuitKey,
    put: u64,
    /// What the source has answered.
    result: Option<Result<(), PutRefusal>>,
}

impl Completion {
    pub(super) fn new(inbox: Arc<Inbox>, circuit: CircuitKey) -> Completion {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let put = NEXT.fetch_add(1, Ordering::Relaxed);
        Completion { inbox, circuit, put, result: None }
    }

    /// No other put of this process has it, and later ones have greater ones.
    pub fn number(&self) -> u64 {
        self.put
    }

    /// The value is written and processing has ended.
    pub fn done(mut self) {
        self.result = Some(Ok(()));
    }

    /// The put had to wait and was refused when its turn came.
    pub fn refused(mut self, refusal: PutRefusal) {
        self.result = Some(Err(refusal));
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let dropped = || Err(PutRefusal::Rejected("the source dropped the put without an answer".into()));
        let result = self.result.take().unwrap_or_else(dropped);
        self.inbox.push(Message::PutDone { circuit: self.circuit, put: self.put, result });
    }
}
