//! The server's end, including sockets and threads: a PV that is not a record, so that only the server is counted.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use fodo_net::{
    Completion, EventMask, Kind, Peer, Post, Posts, Protocol, PutRefusal, Pv, PvFacts, Reading, ServedPv, Server,
    ServerConfig, Source, TimeStamp, Value,
};

use crate::{N_PVS, peer};

/// The number of posts that a record keeps.
const N_POSTS: usize = 8;

/// A number; a put of any value to the first PV changes all of them, on the thread that decoded it, as records do.
struct Number {
    present: AtomicU32,
    posts: Posts,
    all: Weak<Numbers>,
}

/// The PVs `pv:0`, `pv:1` and so on.
pub struct Numbers(Vec<Arc<Number>>);

impl Numbers {
    fn new() -> Arc<Numbers> {
        let number =
            |all: &Weak<Numbers>| Number { present: AtomicU32::new(0), posts: Posts::new(N_POSTS), all: all.clone() };
        Arc::new_cyclic(|all| Numbers((0..N_PVS).map(|_| Arc::new(number(all))).collect()))
    }

    fn find(&self, name: &str) -> Option<&Arc<Number>> {
        self.0.get(name.strip_prefix("pv:")?.parse::<usize>().ok()?)
    }
}

impl Source for Numbers {
    fn serves(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn open(&self, name: &str) -> Option<ServedPv> {
        self.find(name).map(|number| ServedPv::Flat(number.clone()))
    }
}

impl Number {
    fn change(&self) {
        self.present.fetch_add(1, Ordering::Relaxed);
        self.posts.post(Post { mask: EventMask::VALUE, reading: self.read() });
    }
}

impl Pv for Number {
    fn facts(&self) -> PvFacts {
        PvFacts { kind: Kind::F64, count_max: 1, is_read_only: false }
    }

    fn read(&self) -> Reading {
        let value = Value::from(f64::from(self.present.load(Ordering::Relaxed)));
        Reading { time: TimeStamp::from_epics(1_000_000_000, 0), ..Reading::bare(value) }
    }

    fn put(&self, _: Value, _: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
        if let Some(all) = self.all.upgrade() {
            all.0.iter().for_each(|number| number.change());
        }
        completion.into_iter().for_each(Completion::complete);
        Ok(())
    }

    fn posts(&self) -> &Posts {
        &self.posts
    }

    fn with_reading(&self, subscribe: &mut dyn FnMut(Reading)) {
        subscribe(self.read());
    }
}

/// Starts a server of these PVs on a free loopback port.
pub fn start() -> Server {
    Server::start(ServerConfig::isolated(), Numbers::new()).unwrap()
}

/// The port at which a server receives searches of a protocol.
pub fn udp_port(server: &Server, protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Pva => server.pva_udp_port().unwrap(),
        _ => server.udp_port(),
    }
}

/// Read requests, from the socket to their replies in it; the requests of a round arrive together.
pub fn serve_reads(protocol: Protocol, n_rounds: u32) {
    let server = start();
    peer::run_client("get", protocol, udp_port(&server, protocol), n_rounds);
}

/// Changes of PVs, to the bytes of their updates in the socket of the single client that monitors them.
pub fn serve_updates(protocol: Protocol, n_rounds: u32) {
    let server = start();
    peer::run_client("monitor", protocol, udp_port(&server, protocol), n_rounds);
    let counts = server.update_counts();
    assert_eq!((counts.sent, counts.merged), (u64::from(n_rounds) * u64::from(N_PVS), 0));
}
