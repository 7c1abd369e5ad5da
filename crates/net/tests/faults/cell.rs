//! A PV whose unusual behaviour a test can control and count, and a server of such PVs.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fodo_net::{
    ClientConfig, Completion, Context, EventMask, Peer, Post, Posts, PutRefusal, Pv, PvFacts, Reading, Rights,
    ServedPv, Server, ServerConfig, Source, Value,
};

/// Number of posts that a cell keeps.
pub const N_POSTS: usize = 8;

/// A PV whose value is the last one put.
pub struct Cell {
    count_max: u32,
    reading: Mutex<Reading>,
    posts: Posts,
    held: Option<Mutex<Vec<Completion>>>,
    allowed: Mutex<fn(&Peer) -> Rights>,
    counts_when_attached: bool,
    n_reads: AtomicUsize,
    cancelled: Mutex<Vec<u64>>,
}

impl Cell {
    pub fn new(value: impl Into<Value>) -> Cell {
        let value = value.into();
        let count_max = if matches!(value, Value::Array(_)) { 20_000_000 } else { 1 };
        let reading = Mutex::new(Reading::bare(value));
        let (posts, n_reads, cancelled) = (Posts::new(N_POSTS), AtomicUsize::new(0), Mutex::default());
        let allowed: Mutex<fn(&Peer) -> Rights> = Mutex::new(|_| Rights { read: true, write: true });
        Cell { count_max, reading, posts, held: None, allowed, counts_when_attached: false, n_reads, cancelled }
    }

    /// A cell whose puts do not end before [`Cell::complete`].
    pub fn that_holds(value: impl Into<Value>) -> Cell {
        Cell { held: Some(Mutex::default()), ..Cell::new(value) }
    }

    /// A cell that increments by 1 at the moment of a subscription.
    pub fn that_counts_when_attached() -> Cell {
        Cell { counts_when_attached: true, ..Cell::new(0.0) }
    }

    pub fn set(&self, value: impl Into<Value>) {
        self.set_reading(Reading::bare(value.into()));
    }

    pub fn set_reading(&self, reading: Reading) {
        let mut present = self.reading.lock().unwrap();
        present.clone_from(&reading);
        self.posts.post(Post { mask: EventMask::VALUE, reading });
    }

    /// Sets the rights of clients; the server is notified by its signal.
    pub fn allow(&self, allowed: fn(&Peer) -> Rights) {
        *self.allowed.lock().unwrap() = allowed;
    }

    /// Number of puts that have not ended.
    pub fn n_held(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.lock().unwrap().len())
    }

    /// Completes this many of the oldest puts.
    pub fn complete(&self, n: usize) {
        let held = self.held.as_ref().unwrap();
        let first: Vec<Completion> = held.lock().unwrap().drain(..n).collect();
        first.into_iter().for_each(Completion::complete);
    }

    /// Ends all puts with a refusal.
    pub fn refuse(&self) {
        let held = std::mem::take(&mut *self.held.as_ref().unwrap().lock().unwrap());
        held.into_iter().for_each(|completion| completion.refuse(PutRefusal::ReadOnly));
    }

    /// The numbers of the puts whose clients have disconnected.
    pub fn cancelled(&self) -> Vec<u64> {
        self.cancelled.lock().unwrap().clone()
    }

    /// How often it was read.
    pub fn n_reads(&self) -> usize {
        self.n_reads.load(Ordering::Relaxed)
    }

    pub fn has_listeners(&self) -> bool {
        self.posts.has_listeners()
    }
}

impl Pv for Cell {
    fn facts(&self) -> PvFacts {
        let kind = self.reading.lock().unwrap().value.kind();
        PvFacts { kind, count_max: self.count_max, is_read_only: false }
    }

    fn read(&self) -> Reading {
        self.n_reads.fetch_add(1, Ordering::Relaxed);
        self.reading.lock().unwrap().clone()
    }

    fn rights(&self, by: &Peer) -> Rights {
        (self.allowed.lock().unwrap())(by)
    }

    fn put(&self, value: Value, _: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
        self.set(value);
        match (&self.held, completion) {
            (Some(held), Some(completion)) => held.lock().unwrap().push(completion),
            (_, completion) => completion.into_iter().for_each(Completion::complete),
        }
        Ok(())
    }

    fn cancel_put(&self, put: u64) {
        self.cancelled.lock().unwrap().push(put);
    }

    fn posts(&self) -> &Posts {
        &self.posts
    }

    fn with_reading(&self, subscribe: &mut dyn FnMut(Reading)) {
        if self.counts_when_attached {
            self.set(number(&self.read()) + 1.0);
        }
        let present = self.reading.lock().unwrap();
        subscribe(present.clone());
    }
}

/// Cells by name.
pub struct Table(pub HashMap<&'static str, Arc<Cell>>);

impl Table {
    pub fn of<const N: usize>(cells: [(&'static str, Cell); N]) -> Arc<Table> {
        Arc::new(Table(cells.into_iter().map(|(name, cell)| (name, Arc::new(cell))).collect()))
    }
}

impl Source for Table {
    fn serves(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn open(&self, name: &str) -> Option<ServedPv> {
        self.0.get(name).map(|cell| ServedPv::Flat(cell.clone()))
    }
}

/// Loopback, any port, no beacons.
pub fn quiet() -> ServerConfig {
    ServerConfig { payload_bytes_max: 256 << 20, ..ServerConfig::isolated() }
}

pub fn serve(source: &Arc<impl Source>) -> Server {
    Server::start(quiet(), source.clone()).unwrap()
}

pub fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A well-behaved client of that server.
pub fn client(server: &Server) -> Context {
    Context::new(server.client_config())
}

/// A client that searches on this port.
pub fn client_at(udp_port: u16) -> Context {
    Context::new(ClientConfig { payload_bytes_max: 256 << 20, ..ClientConfig::with_addresses(vec![local(udp_port)]) })
}

pub fn number(reading: &Reading) -> f64 {
    reading.value.first().unwrap().to_f64().unwrap()
}
