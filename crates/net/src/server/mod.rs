//! A server: any [`Source`] of PVs on the network.

use std::net::SocketAddr;
use std::sync::Arc;

use fodo_ca::ring::Post;
use fodo_data::{Kind, Meta, Reading, Value};

use crate::config::ServerConfig;

/// Whatever can be served. Called on reactor threads; never blocks for long.
pub trait Source: Send + Sync + 'static {
    /// Whether `name` is served. Answers searches.
    fn serves(&self, name: &str) -> bool;

    /// The PV of that name; the same object for every channel to the same field.
    fn open(&self, name: &str) -> Option<Arc<dyn Pv>>;
}

/// What clients are told of a PV when they connect.
#[derive(Clone, Debug, PartialEq)]
pub struct PvFacts {
    /// The kind of an element.
    pub kind: Kind,
    /// How many elements it can hold.
    pub count_max: u32,
    /// What DBR_CLASS_NAME answers.
    pub class_name: &'static str,
}

/// A PV that is served.
pub trait Pv: Send + Sync {
    /// What clients are told of it.
    fn facts(&self) -> PvFacts;

    /// Value, alarm and time as they are now; `meta` left out.
    fn read(&self) -> Reading;

    /// Units, limits, labels, acknowledge state.
    fn meta(&self) -> Arc<Meta>;

    /// Writes. With a completion, the end of processing is told through it or by the outcome.
    fn put(&self, value: Value, completion: Option<Completion>) -> PutOutcome;

    /// Acknowledges alarms (`DBR_PUT_ACKT`, `DBR_PUT_ACKS`).
    fn acknowledge(&self, transient: Option<bool>, severity: Option<fodo_data::Severity>) -> PutOutcome;

    /// Where its changes are posted.
    fn posts(&self) -> &Posts;

    /// The first subscription has come, or the last has gone.
    fn watched(&self, is_watched: bool);

    /// Calls `attach` once with the present reading while no change can be posted.
    fn attach(&self, attach: &mut dyn FnMut(Reading));
}

/// How a put went.
#[derive(Debug)]
pub enum PutOutcome {
    /// It is complete.
    Done,
    /// It was refused.
    Refused(PutRefusal),
    /// Processing goes on; the completion was kept and will tell.
    Pending,
}

/// Why a put was refused.
#[derive(Clone, Debug, PartialEq)]
pub enum PutRefusal {
    /// Nobody may write it.
    ReadOnly,
    /// Not this value, or not now.
    Rejected(String),
}

/// Tells the client of a put that its processing has ended. Dropping it tells so too.
#[derive(Debug)]
pub struct Completion {}

impl Completion {
    /// Processing has ended.
    pub fn done(self) {
        todo!()
    }
}

/// The last posts of one PV and who listens.
#[derive(Debug, Default)]
pub struct Posts {}

impl Posts {
    /// Room for the last `n_posts`.
    pub fn new(n_posts: usize) -> Posts {
        let _ = n_posts;
        todo!()
    }

    /// A change: kept in the ring, the listening circuits are woken.
    pub fn push(&self, post: Post) {
        let _ = post;
        todo!()
    }
}

/// Why a server cannot start.
#[derive(Debug)]
pub enum ServerError {
    /// An address cannot be bound.
    Bind { address: SocketAddr, error: std::io::Error },
}

/// A running server; stops when dropped.
#[derive(Debug)]
pub struct Server {}

impl Server {
    /// Binds, listens and answers searches from now on.
    pub fn start(config: ServerConfig, source: Arc<dyn Source>) -> Result<Server, ServerError> {
        let _ = (config, source);
        todo!()
    }

    /// The TCP port of the circuits.
    pub fn tcp_port(&self) -> u16 {
        todo!()
    }

    /// The UDP port of the searches.
    pub fn udp_port(&self) -> u16 {
        todo!()
    }
}
