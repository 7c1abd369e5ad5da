//! A client and a server circuit on a simulated connection that splits the stream anywhere, with a model of the
//! expected results.
//!
//! Driven by random numbers in the simulation, and by the bytes of an input in fuzzing.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use fodo_ca::dbr::DbrType;
use fodo_ca::server::ReadReply;
use fodo_ca::{client, server};
use fodo_data::{EventMask, Now, Reading, Value};
use fodo_engine::ring::{Cursor, Post, Ring};
use fodo_engine::{Cid, Ioid, Rights, Sid, SubscriptionId};

/// The source of decisions: random numbers, or bytes until they are used up.
pub enum Chance {
    /// Returns a number below its argument.
    Random(Box<dyn FnMut(usize) -> usize>),
    Script(VecDeque<u8>),
}

impl Chance {
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        match self {
            Chance::Random(below) => below(n.max(1)),
            // The maximum leads to large pieces, so that the rest ends soon.
            Chance::Script(bytes) if bytes.is_empty() => n.max(1) - 1,
            Chance::Script(bytes) => {
                let n_bytes = if n <= 256 { 1 } else { 3 };
                let number =
                    bytes.drain(..n_bytes.min(bytes.len())).fold(0, |number, byte| number << 8 | usize::from(byte));
                number % n.max(1)
            }
        }
    }

    /// Whether all bytes are used up.
    pub fn is_over(&self) -> bool {
        matches!(self, Chance::Script(bytes) if bytes.is_empty())
    }

    fn pick<T: Clone>(&mut self, among: &[T]) -> Option<T> {
        among.get(self.below(among.len())).cloned()
    }
}

/// A PV whose posts count upwards; its array elements repeat the number.
pub struct Pv {
    pub ring: Ring,
    pub number: i32,
    pub n_elements: usize,
}

/// Enough elements for the extended header and several pieces.
const LARGE: usize = 17_000;

impl Pv {
    fn reading(&self) -> Reading {
        let number = self.number;
        Reading::bare(if self.n_elements == 1 { Value::from(number) } else { vec![number; self.n_elements].into() })
    }
}

/// The number in a reading; every element must repeat it.
fn number(reading: &Reading) -> i32 {
    let number = reading.value.first().unwrap();
    if let Value::Array(array) = &reading.value {
        assert_eq!(array.len(), LARGE);
        assert!([1, LARGE / 3, LARGE - 1].iter().all(|&index| array.scalar(index).as_ref() == Some(&number)));
    }
    number.to_f64().unwrap() as i32
}

pub struct Watch {
    pub sid: Sid,
    pub dbr: DbrType,
    pub pv: usize,
    pub cursor: Cursor,
    pub n_posted: u64,
    pub n_delivered: u64,
}

/// The server circuit with a model of the PVs and channels that it serves.
pub struct ServerEnd {
    pub circuit: server::Circuit,
    pub pvs: Vec<Pv>,
    pub channels: HashMap<Sid, usize>,
    pub watches: BTreeMap<u32, Watch>,
    /// Puts in progress.
    pub puts: Vec<(Sid, DbrType, Option<Ioid>)>,
    pub written: Vec<i32>,
}

impl ServerEnd {
    fn receive(&mut self, bytes: &[u8], now: Now) {
        let mut events = Vec::new();
        self.circuit.received(bytes, now, &mut events);
        self.circuit.tick(now, &mut events);
        events.into_iter().for_each(|event| self.act(event));
    }

    fn act(&mut self, event: server::Event) {
        match event {
            server::Event::Identity { .. } | server::Event::Search { .. } | server::Event::Drained(_) => {}
            server::Event::Create { cid, name } => {
                match name.strip_prefix("pv").and_then(|n| n.parse::<usize>().ok()) {
                    Some(pv) if pv < self.pvs.len() => {
                        let count = self.pvs[pv].n_elements as u32;
                        let sid = self.circuit.created(cid, DbrType(5), count, Rights { read: true, write: true });
                        assert_eq!(self.channels.insert(sid, pv), None, "the number is in use");
                    }
                    _ => self.circuit.create_failed(cid),
                }
            }
            server::Event::Read { sid, dbr, count, reply } => {
                assert!(matches!(reply, ReadReply::Notify(_)));
                let reading = self.pvs[self.channels[&sid]].reading();
                self.circuit.read_done(sid, dbr, count, reply, Ok(&reading));
            }
            server::Event::Write { sid, dbr, value, ioid } => {
                self.written.push(number(&Reading::bare(value)));
                self.puts.push((sid, dbr, ioid));
            }
            server::Event::Subscribe { sid, dbr, mask, subscription, .. } => {
                let pv = self.channels[&sid];
                let cursor = self.pvs[pv].ring.cursor(mask);
                self.circuit.update(sid, dbr, 0, subscription, Ok(&self.pvs[pv].reading())).unwrap();
                self.watches.insert(subscription.0, Watch { sid, dbr, pv, cursor, n_posted: 0, n_delivered: 0 });
            }
            server::Event::Cancel { subscription, .. } => {
                self.watches.remove(&subscription.0).unwrap();
            }
            server::Event::Clear { sid } => {
                self.channels.remove(&sid).unwrap();
                self.watches.retain(|_, watch| watch.sid != sid);
                // Puts in progress continue; the reply is sent when they end.
            }
            server::Event::Reply(answers) => self.circuit.reply(&answers),
            server::Event::Closed(reason) => panic!("{reason:?}"),
        }
    }

    fn post(&mut self, pv: usize) {
        self.pvs[pv].number += 1;
        let reading = self.pvs[pv].reading();
        self.pvs[pv].ring.push(Post { mask: EventMask::VALUE, reading });
        self.watches.values_mut().filter(|watch| watch.pv == pv).for_each(|watch| watch.n_posted += 1);
    }

    /// Sends one post to every subscription that has one waiting; returns whether there was any.
    fn update(&mut self) -> bool {
        let mut is_any = false;
        for (&id, watch) in &mut self.watches {
            let Some(post) = self.pvs[watch.pv].ring.next(&mut watch.cursor) else { continue };
            watch.n_delivered += 1;
            is_any = true;
            self.circuit.update(watch.sid, watch.dbr, 0, SubscriptionId(id), Ok(&post.reading)).unwrap();
        }
        is_any
    }

    fn end_put(&mut self, index: usize) {
        let (sid, dbr, ioid) = self.puts.remove(index);
        if ioid.is_some() {
            self.circuit.write_done(sid, dbr, 1, ioid, Ok(()));
        }
    }
}

/// The client's state of a subscription.
pub struct OpenSubscription {
    pub sid: Sid,
    pub dbr: DbrType,
    pub n_updates: u64,
    pub last: Option<i32>,
}

/// Collects the events of the client circuit.
struct EventCollector<'a> {
    subscriptions: &'a BTreeMap<u32, OpenSubscription>,
    events: Vec<client::Event>,
}

impl client::Listener for EventCollector<'_> {
    fn event(&mut self, event: client::Event) {
        self.events.push(event);
    }

    fn wants(&self, subscription: SubscriptionId) -> bool {
        self.subscriptions.contains_key(&subscription.0)
    }
}

/// The client circuit with its open requests.
pub struct ClientEnd {
    pub circuit: client::Circuit,
    pub creating: HashMap<Cid, bool>,
    pub rights: HashMap<Cid, Rights>,
    pub channels: Vec<(Cid, Sid, u32)>,
    pub reads: HashMap<Ioid, ()>,
    pub writes: HashMap<Ioid, ()>,
    pub written: Vec<i32>,
    pub subscriptions: BTreeMap<u32, OpenSubscription>,
    pub next: u32,
}

impl ClientEnd {
    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub fn create(&mut self, pv: usize, n_pvs: usize, now: Now) {
        let cid = Cid(self.number());
        self.creating.insert(cid, pv < n_pvs);
        self.circuit.create(cid, &format!("pv{pv}"), now);
    }

    fn read(&mut self, sid: Sid, dbr: DbrType) {
        let ioid = Ioid(self.number());
        self.reads.insert(ioid, ());
        self.circuit.read(sid, dbr, 0, ioid);
    }

    fn write(&mut self, sid: Sid, count: u32, is_answered: bool) {
        let n = self.number() as i32;
        let ioid = is_answered.then_some(Ioid(n as u32));
        ioid.and_then(|ioid| self.writes.insert(ioid, ()));
        self.written.push(n);
        let value = if count == 1 { Value::from(n) } else { vec![n; count as usize].into() };
        self.circuit.write(sid, DbrType(5), &value, ioid).unwrap();
    }

    fn subscribe(&mut self, sid: Sid, dbr: DbrType) {
        let id = self.number();
        self.subscriptions.insert(id, OpenSubscription { sid, dbr, n_updates: 0, last: None });
        self.circuit.subscribe(sid, dbr, 0, EventMask::VALUE, SubscriptionId(id));
    }

    fn cancel(&mut self, id: u32) {
        let Some(OpenSubscription { sid, dbr, .. }) = self.subscriptions.remove(&id) else { return };
        self.circuit.cancel(sid, dbr, 0, SubscriptionId(id));
    }

    fn clear(&mut self, index: usize) {
        let (cid, sid, _) = self.channels.swap_remove(index);
        self.subscriptions.retain(|_, subscription| subscription.sid != sid);
        self.circuit.clear(cid, sid);
    }

    fn receive(&mut self, bytes: &[u8], now: Now) {
        let mut collector = EventCollector { subscriptions: &self.subscriptions, events: Vec::new() };
        self.circuit.received(bytes, now, &mut collector);
        collector.events.into_iter().for_each(|event| self.act(event));
    }

    fn act(&mut self, event: client::Event) {
        match event {
            client::Event::Rights { cid, rights } => assert_eq!(self.rights.insert(cid, rights), None),
            client::Event::Created { cid, sid, count, .. } => {
                assert_eq!(self.creating.remove(&cid), Some(true), "every served channel is created once");
                assert!(self.rights.contains_key(&cid), "access rights are sent first");
                self.channels.push((cid, sid, count));
            }
            client::Event::CreateFailed { cid } => assert_eq!(self.creating.remove(&cid), Some(false)),
            client::Event::ReadDone { ioid, result, .. } => {
                self.reads.remove(&ioid).expect("a read ends once");
                number(&result.unwrap());
            }
            client::Event::WriteDone { ioid, result } => {
                self.writes.remove(&ioid).expect("a write ends once");
                result.unwrap();
            }
            client::Event::Update { subscription, result, .. } => {
                let open = self.subscriptions.get_mut(&subscription.0).expect("updates only for open subscriptions");
                let number = number(&result.unwrap());
                assert!(open.last.is_none_or(|last| last < number), "{:?} {number}", open.last);
                open.last = Some(number);
                open.n_updates += 1;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Both circuits, and the bytes in transit between them.
pub struct World {
    pub chance: Chance,
    pub now: Now,
    pub client: ClientEnd,
    pub server: ServerEnd,
    pub to_server: VecDeque<u8>,
    pub to_client: VecDeque<u8>,
}

impl World {
    pub fn new(mut chance: Chance) -> World {
        let now = Now::for_test();
        let config = client::Config {
            priority: 0,
            user: "ann".into(),
            host: "desk".into(),
            echo_after: Duration::from_secs(30),
            payload_bytes_max: 1 << 24,
        };
        let pv = |n_elements, n_posts| Pv { ring: Ring::new(n_posts), number: 0, n_elements };
        let pvs = (0..4).map(|index| pv(if index == 3 { LARGE } else { 1 }, 1 + chance.below(6))).collect();
        World {
            chance,
            now,
            client: ClientEnd {
                circuit: client::Circuit::new(&config, now),
                creating: HashMap::new(),
                rights: HashMap::new(),
                channels: Vec::new(),
                reads: HashMap::new(),
                writes: HashMap::new(),
                written: Vec::new(),
                subscriptions: BTreeMap::new(),
                next: 0,
            },
            server: ServerEnd {
                circuit: server::Circuit::new(&server::Config { payload_bytes_max: 1 << 24 }, now),
                pvs,
                channels: HashMap::new(),
                watches: BTreeMap::new(),
                puts: Vec::new(),
                written: Vec::new(),
            },
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
        }
    }

    /// The number of bytes that one system call transfers.
    fn piece(&mut self) -> usize {
        let most = [3, 30, 1000, 60_000, 200_000, 200_000][self.chance.below(6)];
        1 + self.chance.below(most)
    }

    fn send(&mut self, is_client: bool) {
        let n_max = self.piece();
        let (ready, wire) = match is_client {
            true => (self.client.circuit.ready(), &mut self.to_server),
            false => (self.server.circuit.ready(), &mut self.to_client),
        };
        let n = ready.len().min(n_max);
        wire.extend(&ready[..n]);
        match is_client {
            true => self.client.circuit.sent(n),
            false => self.server.circuit.sent(n),
        }
    }

    fn arrive(&mut self, is_client: bool) {
        let n_max = self.piece();
        let wire = if is_client { &mut self.to_client } else { &mut self.to_server };
        let bytes: Vec<u8> = wire.drain(..n_max.min(wire.len())).collect();
        match is_client {
            true => self.client.receive(&bytes, self.now),
            false => self.server.receive(&bytes, self.now),
        }
    }

    pub fn step(&mut self) {
        let channel = self.chance.pick(&self.client.channels);
        let dbr = DbrType(if self.chance.below(2) == 0 { 5 } else { 19 });
        match (self.chance.below(16), channel) {
            (0, _) => {
                let pv = self.chance.below(self.server.pvs.len() + 1);
                self.client.create(pv, self.server.pvs.len(), self.now);
            }
            (1, Some((_, sid, _))) => self.client.read(sid, dbr),
            (2, Some((_, sid, count))) => {
                let is_answered = self.chance.below(2) == 0;
                self.client.write(sid, count, is_answered);
            }
            (3, Some((_, sid, _))) => self.client.subscribe(sid, dbr),
            (4, _) if self.chance.below(2) == 0 => {
                let ids: Vec<u32> = self.client.subscriptions.keys().copied().collect();
                self.chance.pick(&ids).into_iter().for_each(|id| self.client.cancel(id));
            }
            (5, Some(_)) if self.chance.below(4) == 0 => {
                let index = self.chance.below(self.client.channels.len());
                self.client.clear(index);
            }
            (6 | 7, _) => {
                let pv = self.chance.below(self.server.pvs.len());
                self.server.post(pv);
            }
            (8, _) => {
                self.server.update();
            }
            (9, _) if !self.server.puts.is_empty() => {
                let index = self.chance.below(self.server.puts.len());
                self.server.end_put(index);
            }
            (10, _) => self.now = self.now + Duration::from_millis(self.chance.below(500) as u64),
            (11, _) => self.send(true),
            (12, _) => self.send(false),
            (13, _) => self.arrive(true),
            (14, _) => self.arrive(false),
            _ => {}
        }
    }

    /// Clears every channel, and runs until both circuits have processed that.
    pub fn clear_all(&mut self) {
        while !self.client.channels.is_empty() {
            self.client.clear(0);
        }
        self.settle();
        // The server reuses the numbers of cleared channels from the next message on.
        let channel_that_is_not_there = self.server.pvs.len();
        self.client.create(channel_that_is_not_there, self.server.pvs.len(), self.now);
        self.settle();
    }

    /// Runs until every operation has ended.
    pub fn settle(&mut self) {
        loop {
            let n_pending = self.client.circuit.pending_bytes() + self.server.circuit.pending_bytes();
            let n_on_the_way = self.to_server.len() + self.to_client.len();
            let is_updated = self.server.update();
            if n_pending + n_on_the_way == 0 && !is_updated && self.server.puts.is_empty() {
                return;
            }
            (0..self.server.puts.len()).rev().for_each(|index| self.server.end_put(index));
            for is_client in [true, false] {
                self.send(is_client);
                self.arrive(is_client);
            }
        }
    }

    pub fn check(&self) {
        let ClientEnd { creating, reads, writes, subscriptions, written, channels, .. } = &self.client;
        assert!(creating.is_empty() && reads.is_empty() && writes.is_empty(), "every operation has ended");
        assert_eq!(written, &self.server.written, "puts arrive in order");
        assert_eq!(channels.len(), self.server.channels.len());
        assert_eq!(subscriptions.len(), self.server.watches.len());
        for (id, watch) in &self.server.watches {
            let subscription = &subscriptions[id];
            assert_eq!(
                watch.n_delivered + watch.cursor.merged,
                watch.n_posted,
                "every post is taken or counted as merged"
            );
            assert_eq!(subscription.n_updates, 1 + watch.n_delivered, "the first value and every post taken");
            assert_eq!(subscription.last, Some(self.server.pvs[watch.pv].number), "the newest value arrives");
        }
    }
}
