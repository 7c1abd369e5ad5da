//! Paths without sockets: both state machines of one circuit, and the ring of posts between a PV and its subscriptions.

use std::hint::black_box;
use std::time::Duration;

use fodo_ca::client::{self, Circuit as Client};
use fodo_ca::dbr::DbrType;
use fodo_ca::server::{self, Circuit as Server, ReadReply};
use fodo_data::{EventMask, Now, Reading, TimeStamp, Value};
use fodo_engine::ring::{Cursor, Post, Ring};
use fodo_engine::{Cid, Ioid, Rights, Sid, SubscriptionId};

use crate::N_PVS;

/// The most common request of clients: a double with alarm and time stamp.
const TIME_DOUBLE: DbrType = DbrType(20);
const PLAIN_DOUBLE: DbrType = DbrType(6);

/// The number of posts that a record keeps.
const N_POSTS: usize = 8;

/// All elements.
const COUNT: u32 = 0;

/// Two ends with the same channels.
struct Pair {
    client: Client,
    server: Server,
    now: Now,
    sids: Vec<Sid>,
}

impl Pair {
    fn connected() -> Pair {
        let now = Now::for_test();
        let config = client::Config {
            priority: 0,
            user: "operator".into(),
            host: "console".into(),
            echo_after: Duration::from_secs(30),
            payload_bytes_max: 16 << 20,
        };
        let mut client = Client::new(&config, now);
        let mut server = Server::new(&server::Config { payload_bytes_max: 16 << 20 }, now);
        let mut sids = Vec::new();
        for number in 0..N_PVS {
            client.create(Cid(number), &format!("pv:{number:06}"), now);
            sids.push(server.created(Cid(number), PLAIN_DOUBLE, 1, Rights { read: true, write: true }));
        }
        let mut pair = Pair { client, server, now, sids };
        pair.deliver_requests();
        pair.deliver_answers();
        pair
    }

    /// A pair with a subscription to every channel.
    fn subscribed() -> Pair {
        let mut pair = Pair::connected();
        for (number, &sid) in (0..).zip(&pair.sids) {
            pair.client.subscribe(sid, TIME_DOUBLE, COUNT, EventMask::VALUE, SubscriptionId(number));
        }
        pair.deliver_requests();
        pair
    }

    /// Transfers the client's pending bytes to the server.
    fn deliver_requests(&mut self) {
        self.server.received(&sent_by_client(&mut self.client), self.now, &mut Vec::new());
    }

    /// Transfers the server's pending bytes to the client.
    fn deliver_answers(&mut self) {
        self.client.received(&sent_by_server(&mut self.server), self.now, &mut Vec::new());
    }

    fn request(&mut self) {
        for (number, &sid) in (0..).zip(&self.sids) {
            self.client.read(sid, TIME_DOUBLE, COUNT, Ioid(number));
        }
    }

    fn answer(&mut self, reading: &Reading) {
        for (number, &sid) in (0..).zip(&self.sids) {
            let reply = ReadReply::Notify(Ioid(number));
            self.server.read_done(sid, black_box(TIME_DOUBLE), COUNT, reply, Ok(black_box(reading)));
        }
    }

    fn update(&mut self, reading: &Reading) {
        for (number, &sid) in (0..).zip(&self.sids) {
            let dbr = black_box(TIME_DOUBLE);
            self.server.update(sid, dbr, COUNT, SubscriptionId(number), Ok(black_box(reading))).unwrap();
        }
    }
}

fn sent_by_client(client: &mut Client) -> Vec<u8> {
    let bytes = client.ready().to_vec();
    client.sent(bytes.len());
    assert_eq!(client.pending_bytes(), 0);
    bytes
}

fn sent_by_server(server: &mut Server) -> Vec<u8> {
    let bytes = server.ready().to_vec();
    server.sent(bytes.len());
    assert_eq!(server.pending_bytes(), 0);
    bytes
}

fn reading() -> Reading {
    Reading { time: TimeStamp::from_epics(1_000_000_000, 0), ..Reading::bare(Value::from(21.5)) }
}

/// Checks the size of the messages of one round.
fn assert_messages(bytes: &[u8], message_bytes: usize) {
    assert_eq!(bytes.len(), message_bytes * N_PVS as usize);
}

/// Encodes a client's read requests into the outbox, and takes them out.
pub fn encode_request(n_rounds: u32) {
    let mut pair = Pair::connected();
    for _ in 0..n_rounds {
        pair.request();
        assert_messages(&sent_by_client(&mut pair.client), 16);
    }
}

/// Decodes these requests on the server.
pub fn decode_request(n_rounds: u32) {
    let mut pair = Pair::connected();
    pair.request();
    let requests = sent_by_client(&mut pair.client);
    let mut events = Vec::new();
    for _ in 0..n_rounds {
        pair.server.received(&requests, pair.now, &mut events);
        assert_eq!(events.len(), N_PVS as usize);
        events.clear();
    }
}

/// Encodes readings as replies.
pub fn encode_answer(n_rounds: u32) {
    let mut pair = Pair::connected();
    let reading = reading();
    for _ in 0..n_rounds {
        pair.answer(&reading);
        assert_messages(&sent_by_server(&mut pair.server), 40);
    }
}

/// Decodes these replies into the readings that a get returns.
pub fn decode_answer(n_rounds: u32) {
    let mut pair = Pair::connected();
    pair.answer(&reading());
    let answers = sent_by_server(&mut pair.server);
    let mut events = Vec::new();
    for _ in 0..n_rounds {
        pair.client.received(&answers, pair.now, &mut events);
        assert_eq!(events.len(), N_PVS as usize);
        events.clear();
    }
}

/// Encodes readings as updates.
pub fn encode_update(n_rounds: u32) {
    let mut pair = Pair::subscribed();
    let reading = reading();
    for _ in 0..n_rounds {
        pair.update(&reading);
        assert_messages(&sent_by_server(&mut pair.server), 40);
    }
}

/// Decodes these updates into readings.
pub fn decode_update(n_rounds: u32) {
    let mut pair = Pair::subscribed();
    pair.update(&reading());
    let updates = sent_by_server(&mut pair.server);
    let mut events = Vec::new();
    for _ in 0..n_rounds {
        pair.client.received(&updates, pair.now, &mut events);
        assert_eq!(events.len(), N_PVS as usize);
        events.clear();
    }
}

/// Pushes a change into the full ring of its PV.
pub fn post(n_rounds: u32) {
    let mut ring = full_ring();
    for _ in 0..n_rounds * N_PVS {
        black_box(&mut ring).push(change());
    }
}

/// Takes a change out of that ring, by a subscription that has received all previous ones.
pub fn drain(n_rounds: u32) {
    let mut ring = full_ring();
    let mut cursors: Vec<Cursor> = (0..N_PVS).map(|_| ring.cursor(EventMask::VALUE)).collect();
    for _ in 0..n_rounds {
        ring.push(change());
        for cursor in &mut cursors {
            assert!(black_box(&ring).next(cursor).is_some());
        }
    }
    assert!(cursors.iter().all(|cursor| cursor.merged == 0));
}

fn full_ring() -> Ring {
    let mut ring = Ring::new(N_POSTS);
    (0..N_POSTS).for_each(|_| ring.push(change()));
    ring
}

fn change() -> Post {
    Post { mask: EventMask::VALUE, reading: reading() }
}
