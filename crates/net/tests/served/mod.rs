//! A server of cells on loopback, for the tests of client and server; each test uses a part of it.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use fodo_net::{
    ClientConfig, Completion, Context, EventMask, Meta, Peer, Post, Posts, PutRefusal, Pv, PvFacts, Reading, Server,
    ServerConfig, Severity, Source, Value,
};

/// A PV whose value is the last one put.
pub struct Cell {
    pub facts: PvFacts,
    pub value: Mutex<Value>,
    pub posts: Posts,
    pub is_read_only: bool,
    pub held: Mutex<Vec<Completion>>,
    pub holds_completions: bool,
}

impl Cell {
    pub fn new(value: impl Into<Value>) -> Cell {
        let value = value.into();
        let count_max = if matches!(value, Value::Array(_)) { 20_000_000 } else { 1 };
        Cell {
            facts: PvFacts { kind: value.kind(), count_max, is_read_only: false, class_name: "cell" },
            value: Mutex::new(value),
            posts: Posts::new(8),
            is_read_only: false,
            held: Mutex::default(),
            holds_completions: false,
        }
    }

    pub fn set(&self, value: Value) {
        let mut present = self.value.lock().unwrap();
        *present = value.clone();
        self.posts.push(Post { mask: EventMask::VALUE, reading: Reading::bare(value) });
    }
}

impl Pv for Cell {
    fn facts(&self) -> PvFacts {
        self.facts.clone()
    }

    fn read(&self) -> Reading {
        Reading::bare(self.value.lock().unwrap().clone())
    }

    fn meta(&self) -> Arc<Meta> {
        Arc::new(Meta { units: "mm".into(), precision: 2, ..Meta::default() })
    }

    fn put(&self, value: Value, _: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
        if self.is_read_only {
            return Err(PutRefusal::ReadOnly);
        }
        let value = value.to_kind(self.facts.kind, None).map_err(|error| PutRefusal::Rejected(error.to_string()))?;
        self.set(value);
        if self.holds_completions {
            self.held.lock().unwrap().extend(completion);
        } else {
            completion.into_iter().for_each(Completion::done);
        }
        Ok(())
    }

    fn acknowledge(&self, _: Option<bool>, _: Option<Severity>) -> Result<(), PutRefusal> {
        Err(PutRefusal::ReadOnly)
    }

    fn posts(&self) -> &Posts {
        &self.posts
    }

    fn listeners_changed(&self) {}

    fn attach(&self, attach: &mut dyn FnMut(Reading)) {
        let present = self.value.lock().unwrap();
        attach(Reading::bare(present.clone()));
    }
}

#[derive(Default)]
pub struct Table(pub HashMap<&'static str, Arc<Cell>>);

impl Table {
    pub fn with(mut self, name: &'static str, cell: Cell) -> Table {
        self.0.insert(name, Arc::new(cell));
        self
    }
}

impl Source for Table {
    fn serves(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn open(&self, name: &str) -> Option<Arc<dyn Pv>> {
        self.0.get(name).map(|cell| cell.clone() as Arc<dyn Pv>)
    }
}

pub fn serve(table: Table) -> (Server, Context) {
    let server = start(Arc::new(table), 0);
    let context = context(server.udp_port());
    (server, context)
}

pub fn start(table: Arc<Table>, port: u16) -> Server {
    let config = ServerConfig {
        interfaces: vec![Ipv4Addr::LOCALHOST],
        port,
        beacon_addresses: Vec::new(),
        beacons_to_interfaces: false,
        payload_bytes_max: 256 << 20,
        ..ServerConfig::default()
    };
    Server::start(config, table).unwrap()
}

pub fn context(udp_port: u16) -> Context {
    Context::new(config(udp_port))
}

pub fn config(udp_port: u16) -> ClientConfig {
    ClientConfig {
        payload_bytes_max: 256 << 20,
        ..ClientConfig::with_addresses(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, udp_port))])
    }
}
