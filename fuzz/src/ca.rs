//! Both ends of a circuit, both ends of a search, and every DBR layout.
//!
//! The first byte selects the receiver, the second the size of the pieces in which a circuit receives the rest. Used by
//! the fuzz target and by the test that replays the corpus.

use std::net::{Ipv4Addr, SocketAddr};

use fodo_ca::dbr::{self, DbrType};
use fodo_ca::search::{NameSearcher, Responder, Searcher};
use fodo_ca::{client, server};
use fodo_data::{EventMask, Now, Reading, Value};
use fodo_engine::{Cid, Ioid, Rights, SubscriptionId};

/// How often ready bytes are taken after one piece; it would be a defect if a circuit always had more to send.
const SENDS_MAX: usize = 10_000;

/// The largest accepted payload; small, so that inputs can exceed it.
const PAYLOAD_BYTES_MAX: usize = 1 << 16;

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let Some((who, rest)) = bytes.split_first() else { return };
    let Some((length, rest)) = rest.split_first() else { return };
    let length = usize::from(*length).max(1);
    match who % 4 {
        0 => feed_server(rest, length),
        1 => feed_client(rest, length),
        2 => feed_search(rest),
        _ => feed_dbr(rest),
    }
}

fn feed_server(bytes: &[u8], length: usize) {
    let now = Now::for_test();
    let mut circuit = server::Circuit::new(&server::Config { payload_bytes_max: PAYLOAD_BYTES_MAX }, now);
    let reading = Reading::bare(Value::from(vec![1.0, 2.0, 3.0]));
    let mut events = Vec::new();
    for piece in bytes.chunks(length) {
        circuit.received(piece, now, &mut events);
        for event in events.drain(..) {
            match event {
                server::Event::Create { cid, name } if name.len() % 2 == 0 => circuit.create_failed(cid),
                server::Event::Create { cid, .. } => {
                    circuit.created(cid, DbrType(6), 3, Rights { read: true, write: true });
                }
                server::Event::Read { sid, dbr, count, reply } => {
                    circuit.read_done(sid, dbr, count.min(1000), reply, Ok(&reading));
                }
                server::Event::Write { sid, dbr, ioid, .. } => circuit.write_done(sid, dbr, 1, ioid, Ok(())),
                server::Event::Subscribe { sid, dbr, count, subscription, .. } => {
                    // Fails if a double cannot be converted to the type; the circuit reports it to the client.
                    let _ = circuit.update(sid, dbr, count.min(1000), subscription, Ok(&reading));
                }
                server::Event::Reply(answers) => circuit.reply(&answers),
                server::Event::Closed(_) => return,
                _ => {}
            }
        }
        drain(|| {
            let n = circuit.ready().len();
            circuit.sent(n);
            n
        });
    }
    circuit.tick(now, &mut events);
}

fn feed_client(bytes: &[u8], length: usize) {
    let now = Now::for_test();
    let config = client::Config {
        priority: 0,
        user: "user".into(),
        host: "host".into(),
        echo_after: std::time::Duration::from_secs(30),
        payload_bytes_max: PAYLOAD_BYTES_MAX,
    };
    let mut circuit = client::Circuit::new(&config, now);
    circuit.create(Cid(1), "one", now);
    circuit.create(Cid(2), "two", now);
    let mut events = Vec::new();
    let mut next_id = 0;
    for piece in bytes.chunks(length) {
        circuit.received(piece, now, &mut events);
        for event in events.drain(..) {
            match event {
                client::Event::Created { sid, native, count, .. } => {
                    next_id += 1;
                    circuit.read(sid, native, count, Ioid(next_id));
                    circuit.subscribe(sid, native, 0, EventMask::VALUE, SubscriptionId(next_id));
                    // A channel may have any type; fails if the value cannot be written.
                    let _ = circuit.write(sid, native, &Value::from(1.5), Some(Ioid(next_id + 1000)));
                }
                client::Event::Closed(_) => return,
                _ => {}
            }
        }
        drain(|| {
            let n = circuit.ready().len();
            circuit.sent(n);
            n
        });
    }
    circuit.tick(now, &mut events);
}

fn feed_search(bytes: &[u8]) {
    let now = Now::for_test();
    let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 5064));
    let mut datagrams = Vec::new();
    Responder::new(5064, now).handle(from, bytes, &mut |name| name.len() % 2 == 1, &mut datagrams);

    let mut searcher = Searcher::new(1);
    searcher.add(Cid(0), "zero", now);
    searcher.add(Cid(1), "one", now);
    searcher.tick(now, &mut datagrams);
    searcher.handle(from, bytes, now, &mut Vec::new());
}

/// A reading has no more elements than the payload has bytes, and can be encoded again.
fn feed_dbr(bytes: &[u8]) {
    let [high, low, count, payload @ ..] = bytes else { return };
    let dbr = DbrType(u16::from_be_bytes([*high, *low]) % 40);
    let Ok(reading) = dbr::decode(dbr, u32::from(*count), payload) else { return };
    // A single string may have an empty payload.
    assert!(reading.value.len() <= payload.len().max(1));
    // Fails for write-only types.
    let _ = dbr::encode(dbr, u32::from(*count), &reading, &mut Vec::new());
}

fn drain(mut send: impl FnMut() -> usize) {
    for _ in 0..SENDS_MAX {
        if send() == 0 {
            return;
        }
    }
    unreachable!("a circuit that never runs dry");
}
