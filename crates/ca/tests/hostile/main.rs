//! Bytes that a correct peer never sends: nothing panics, memory is bounded by the input, and a circuit stays usable or
//! closes. The `row_` numbers are those of the table in `docs/reference/faults.md`.
#![expect(clippy::unwrap_used, reason = "a panic reports the failure")]

#[path = "../wire/recording.rs"]
#[expect(dead_code, reason = "only the wire test uses the rest")]
mod recording;

mod datagrams;
mod quota;
mod refused;
mod unfinished;

use std::net::SocketAddr;
use std::time::Duration;

use fastrand::Rng;
use fodo_ca::dbr::{self, DbrType};
use fodo_ca::eca::Eca;
use fodo_ca::message::{self, Answer, Header, MINOR_VERSION, Request};
use fodo_ca::search::{Datagram, Responder, Searcher};
use fodo_ca::{client, limit, server};
use fodo_data::{Alarm, EventMask, Now, Reading, Severity, Status, Value};
use fodo_engine::{Cid, Ioid, Rights, Sid, SubscriptionId};

use recording::{Recording, Way};

/// A copy with bytes overwritten, removed, duplicated or inserted.
fn mutated(bytes: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.usize(1..=6) {
        let at = random.usize(..bytes.len().max(1));
        let end = (at + random.usize(..40)).min(bytes.len());
        match random.u8(..5) {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (at % 8)),
            1 => bytes[at..end].fill([0, 0xff, 0x7f][at % 3]),
            2 => drop(bytes.drain(at..end)),
            3 => bytes.extend_from_within(at..end),
            _ => random.fill(&mut bytes[at..end]),
        }
    }
    bytes
}

const PAYLOAD_BYTES_MAX: usize = 1 << 20;
const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 40_000);

fn client_circuit(now: Now) -> client::Circuit {
    client::Circuit::new(
        &client::Config {
            priority: 0,
            user: "ann".into(),
            host: "desk".into(),
            echo_after: Duration::from_secs(30),
            payload_bytes_max: PAYLOAD_BYTES_MAX,
        },
        now,
    )
}

/// A server circuit and its events. It replies to every request with the same reading.
struct Server {
    circuit: server::Circuit,
    events: Vec<server::Event>,
    now: Now,
    n_elements: u32,
    rights: Rights,
}

/// A put of `n_elements` doubles to channel 0, with number 9.
fn put_of(n_elements: u32) -> Vec<u8> {
    let write = Request::WriteNotify { dbr: DbrType(6), count: n_elements, sid: Sid(0), ioid: Ioid(9) };
    with(write, &vec![1; n_elements as usize * 8])
}

impl Server {
    fn new() -> Server {
        let now = Now::for_test();
        let circuit = server::Circuit::new(&server::Config { payload_bytes_max: PAYLOAD_BYTES_MAX }, now);
        let mut server =
            Server { circuit, events: Vec::new(), now, n_elements: 100, rights: Rights { read: true, write: true } };
        server.drain();
        server
    }

    /// A server with channel 0, an array of 100 doubles.
    fn with_channel() -> Server {
        Server::new().connected()
    }

    /// A server with channel 0, an array of 100 000 doubles.
    fn with_array() -> Server {
        Server { n_elements: 100_000, ..Server::new() }.connected()
    }

    /// Creates channel 0.
    fn connected(mut self) -> Server {
        self.receive(&[text(Request::CreateChan { cid: Cid(7), minor: 13 }, b"x")]);
        self.drain();
        self.events.clear();
        self
    }

    fn receive(&mut self, messages: &[Vec<u8>]) {
        let n_before = self.events.len();
        self.circuit.received(&messages.concat(), self.now, &mut self.events);
        let events = self.events[n_before..].to_vec();
        events.iter().for_each(|event| self.answer(event));
    }

    fn answer(&mut self, event: &server::Event) {
        let reading = Reading::bare(Value::from(1.5));
        match event {
            server::Event::Create { cid, .. } => {
                self.circuit.created(*cid, DbrType(6), self.n_elements, self.rights);
            }
            server::Event::Read { sid, dbr, count, reply } => {
                self.circuit.read_done(*sid, *dbr, *count, *reply, Ok(&reading));
            }
            server::Event::Write { sid, dbr, ioid, .. } => {
                self.circuit.write_done(*sid, *dbr, 1, *ioid, Err(Eca::PUTFAIL));
            }
            server::Event::Subscribe { sid, dbr, count, subscription, .. } => {
                // Expected to fail if the value cannot be converted to the requested type.
                let _ = self.circuit.update(*sid, *dbr, *count, *subscription, Ok(&reading));
            }
            server::Event::Reply(answers) => self.circuit.reply(answers),
            _ => {}
        }
    }

    /// The headers of all ready messages and their payloads, except large payloads.
    fn drain(&mut self) -> Vec<(Header, Vec<u8>)> {
        let mut bytes = Vec::new();
        loop {
            let ready = self.circuit.ready();
            if ready.is_empty() {
                break;
            }
            bytes.extend_from_slice(ready);
            let n = ready.len();
            self.circuit.sent(n);
        }
        recording::messages(&bytes).into_iter().map(|message| (message.header, message.payload)).collect()
    }

    /// The latest reply.
    fn last(&mut self) -> Answer {
        Answer::from_header(&self.drain().last().unwrap().0)
    }

    fn is_closed(&self) -> bool {
        self.events.iter().any(|event| matches!(event, server::Event::Closed(_)))
    }

    /// Whether the server replies to an echo request.
    fn is_usable(&mut self) -> bool {
        self.drain();
        self.receive(&[bare(Request::Echo {})]);
        matches!(self.drain().as_slice(), [(Header { command: 23, .. }, _)])
    }
}

fn bare(request: Request) -> Vec<u8> {
    with(request, &[])
}

fn with(request: Request, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.header(payload.len()).encode(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

fn with_answer(answer: Answer, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    answer.header(payload.len()).encode(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

fn text(request: Request, text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    message::encode_text(&mut bytes, |size| request.header(size), text);
    bytes
}

fn event_add(sid: u32, subscription: u32, mask: u16) -> Vec<u8> {
    let mut payload = vec![0; 16];
    payload[12..14].copy_from_slice(&mask.to_be_bytes());
    with(
        Request::EventAdd { dbr: DbrType(6), count: 1, sid: Sid(sid), subscription: SubscriptionId(subscription) },
        &payload,
    )
}

// Row 12 of docs/reference/faults.md.
#[test]
fn a_misaligned_payload_gets_an_error_reply_and_closes_the_circuit() {
    let mut server = Server::with_channel();

    server.receive(&[with(Request::Write { dbr: DbrType(6), count: 1, sid: Sid(0), ioid: Ioid(7) }, &[0; 12])]);

    assert_eq!(server.last(), Answer::Error { cid: Cid(7), status: Eca::INTERNAL });
    assert!(server.is_closed());
}

// Row 13 of docs/reference/faults.md.
#[test]
fn an_oversized_put_is_rejected_by_its_header_and_the_circuit_stays_usable() {
    let mut server = Server::with_channel();
    let write = Request::WriteNotify { dbr: DbrType(6), count: 1 << 18, sid: Sid(0), ioid: Ioid(9) };
    let mut head = Vec::new();
    write.header(1 << 21).encode(&mut head);

    server.receive(&[head]);
    assert_eq!(
        server.last(),
        Answer::WriteNotify { dbr: DbrType(6), count: 1 << 18, status: Eca::TOLARGE, ioid: Ioid(9) }
    );
    (0..32).for_each(|_| server.receive(&[vec![0; 1 << 16]]));

    assert!(server.is_usable());
    assert_eq!(server.events, []);
}

// Row 14 of docs/reference/faults.md.
#[test]
fn an_invalid_count_or_type_fails_only_its_operation_on_the_server() {
    let mut server = Server::with_channel();
    let put = |dbr, count, payload: &[u8]| {
        with(Request::WriteNotify { dbr: DbrType(dbr), count, sid: Sid(0), ioid: Ioid(1) }, payload)
    };
    let large = vec![0; 128 * 1024];
    for (message, status) in [
        (put(6, 2, &[0; 8]), Eca::BADCOUNT),
        (put(6, u32::MAX, &[0; 8]), Eca::BADCOUNT),
        (put(5, 0x8000_0000, &[0; 8]), Eca::BADCOUNT),
        (put(99, 1, &[0; 8]), Eca::BADTYPE),
        (put(u16::MAX, 1, &[0; 8]), Eca::BADTYPE),
        (put(37, 1, &[0; 40]), Eca::PUTFAIL),
        (put(38, 1, &[0; 40]), Eca::PUTFAIL),
        (put(37, 100, &large), Eca::PUTFAIL),
        (put(99, 100, &large), Eca::BADTYPE),
        (put(0, 100_000, &large), Eca::BADCOUNT),
        (put(6, 101, &large), Eca::TOLARGE),
    ] {
        server.receive(std::slice::from_ref(&message));

        let Answer::WriteNotify { status: reported, ioid: Ioid(1), .. } = server.last() else { unreachable!() };
        assert_eq!(reported, status, "{:x?}", &message[..24]);
        assert!(server.is_usable());
    }
    for (dbr, count, status) in
        [(99, 1, Eca::BADTYPE), (35, 1, Eca::GETFAIL), (6, u32::MAX, Eca::TOLARGE), (0, 1 << 26, Eca::TOLARGE)]
    {
        server.receive(&[bare(Request::ReadNotify { dbr: DbrType(dbr), count, sid: Sid(0), ioid: Ioid(1) })]);

        let (header, payload) = server.drain().pop().unwrap();
        assert!(Answer::from_header(&header).to_string().contains(&status.to_string()), "{dbr} {count}");
        assert!(payload.len() <= limit::REFUSAL_BYTES);
        assert!(server.is_usable());
    }
    assert_eq!(server.events, []);
}

// Row 77 of docs/reference/faults.md.
#[test]
fn bytes_of_another_protocol_close_the_circuit_before_a_full_header() {
    let words: [&[u8]; 4] = [b"G", b"GET /", b"SSH-2.0-x\r\n", &[0x16, 3, 1]];
    for word in words {
        let mut whole = Server::new();
        let mut in_pieces = Server::new();

        whole.receive(&[word.to_vec()]);
        word.iter().for_each(|byte| in_pieces.receive(&[vec![*byte]]));

        assert!(whole.is_closed() && in_pieces.is_closed(), "{word:?}");
    }
}

// Row 77 of docs/reference/faults.md.
#[test]
fn a_version_message_received_byte_by_byte_is_accepted() {
    let mut server = Server::new();
    let version = bare(Request::Version { priority: 0, minor: 13, sequence: 0 });

    version.iter().for_each(|byte| server.receive(&[vec![*byte]]));

    assert!(server.is_usable());
}

// Row 16 of docs/reference/faults.md.
#[test]
fn a_missing_or_unusual_version_is_served_and_a_too_old_one_is_rejected() {
    for first in [None, Some(0), Some(65_535)] {
        let mut server = Server::new();
        let version = first.map(|minor| bare(Request::Version { priority: 0, minor, sequence: 0 }));
        let create = text(Request::CreateChan { cid: Cid(1), minor: 13 }, b"x");

        server.receive(&[version.unwrap_or_default(), create]);

        assert!(matches!(server.last(), Answer::CreateChan { cid: Cid(1), .. }));
    }
    let mut server = Server::new();
    server.receive(&[text(Request::CreateChan { cid: Cid(1), minor: 3 }, b"x")]);
    assert_eq!(server.last(), Answer::Error { cid: Cid(u32::MAX), status: Eca::DEFUNCT });
}

// Row 17 of docs/reference/faults.md.
#[test]
fn requests_with_unknown_channel_ids_are_rejected_without_closing_the_circuit() {
    let mut server = Server::with_channel();
    server.receive(&[text(Request::CreateChan { cid: Cid(7), minor: 13 }, b"again")]);
    assert!(matches!(server.last(), Answer::CreateChan { cid: Cid(7), sid: Sid(1), .. }), "the same number twice");

    let (dbr, sid, ioid) = (DbrType(6), Sid(1000), Ioid(1));
    let subscription = SubscriptionId(1);
    for request in [
        bare(Request::ClearChannel { sid, cid: Cid(7) }),
        event_add(sid.0, 1, 1),
        bare(Request::EventCancel { dbr, count: 1, sid, subscription }),
        bare(Request::ReadNotify { dbr, count: 1, sid, ioid }),
        bare(Request::Read { dbr, count: 1, sid, ioid }),
        with(Request::Write { dbr, count: 1, sid, ioid }, &[0; 8]),
        with(Request::WriteNotify { dbr, count: 1 << 14, sid, ioid }, &vec![0; 1 << 17]),
    ] {
        let mut server = Server::with_channel();

        server.receive(&[request]);

        assert_eq!(server.last(), Answer::Error { cid: Cid(u32::MAX), status: Eca::INTERNAL });
        assert!(server.events.is_empty() && server.is_usable(), "{:?}", server.events);
    }
}

// Row 17 of docs/reference/faults.md.
#[test]
fn clearing_a_channel_ends_its_subscriptions_only() {
    let mut server = Server::with_channel();
    server.receive(&[text(Request::CreateChan { cid: Cid(8), minor: 13 }, b"y")]);
    server.receive(&[event_add(0, 1, 1), event_add(0, 2, 1), event_add(1, 3, 1)]);

    server.receive(&[bare(Request::ClearChannel { sid: Sid(0), cid: Cid(7) }), event_add(1, 1, 1), event_add(1, 2, 1)]);
    assert!(!matches!(server.last(), Answer::Error { .. }), "the numbers of its subscriptions are free");
    server.receive(&[event_add(1, 3, 1)]);

    assert_eq!(server.last(), Answer::Error { cid: Cid(8), status: Eca::ALLOCMEM }, "the other number is in use");
}

#[test]
fn a_channel_created_while_another_is_cleared_gets_its_own_server_id() {
    let mut server = Server::with_channel();
    let create = || text(Request::CreateChan { cid: Cid(8), minor: 13 }, b"y");
    let clear = bare(Request::ClearChannel { sid: Sid(0), cid: Cid(7) });
    let read = bare(Request::ReadNotify { dbr: DbrType(6), count: 1, sid: Sid(0), ioid: Ioid(1) });

    server.receive(&[create(), event_add(0, 1, 1), clear]);
    assert!(matches!(server.drain()[1], (Header { command: 18, p2: 1, .. }, _)), "not the number being cleared");
    server.receive(&[create()]);
    assert!(matches!(server.last(), Answer::CreateChan { sid: Sid(0), .. }), "the number is free now");

    server.receive(&[bare(Request::ClearChannel { sid: Sid(0), cid: Cid(8) }), read]);
    assert_eq!(
        server.last(),
        Answer::Error { cid: Cid(u32::MAX), status: Eca::INTERNAL },
        "and removed immediately for the client"
    );
}

// Row 23 of docs/reference/faults.md.
#[test]
fn user_and_host_names_are_rejected_after_the_first_channel() {
    let mut server = Server::new();
    server.receive(&[text(Request::ClientName {}, b"ann"), text(Request::HostName {}, b"desk")]);
    server.receive(&[text(Request::CreateChan { cid: Cid(7), minor: 13 }, b"x")]);
    server.drain();
    let n_events = server.events.len();

    for request in [text(Request::ClientName {}, b"root"), text(Request::HostName {}, b"control room")] {
        server.receive(&[request]);

        assert!(matches!(server.last(), Answer::Error { status: Eca::INTERNAL, .. }));
    }

    assert!(matches!(&server.events[1], server::Event::Identity { user, host } if user == "ann" && host == "desk"));
    assert_eq!(server.events.len(), n_events, "the later ones are rejected");
    assert!(server.is_usable());
}

#[test]
fn a_server_circuit_survives_any_bytes_with_bounded_memory() {
    let recordings: Vec<Vec<u8>> = Recording::all()
        .iter()
        .filter(|recording| recording.is_stream())
        .map(|recording| recording.messages_to(Way::ToServer).iter().flat_map(recording::Message::bytes).collect())
        .collect();
    let (mut n_closed, mut n_open) = (0, 0);
    for seed in 0..3000 {
        let mut random = Rng::with_seed(seed);
        let mut bytes = mutated(&recordings[seed as usize % recordings.len()], &mut random);
        if seed % 8 == 0 {
            bytes = (0..1000).map(|_| random.u8(..)).collect();
        }
        let mut server = Server::new();
        let piece = [1, 7, 64, 1000, usize::MAX][random.usize(..5)];
        for piece in bytes.chunks(piece) {
            server.receive(&[piece.to_vec()]);
            // Each message has at least 16 bytes, and causes at most one event for itself and one for the identity.
            assert!(server.events.len() <= bytes.len() / 8 + 2, "seed {seed}");
        }
        if server.is_closed() {
            n_closed += 1;
            assert!(matches!(server.events.last(), Some(server::Event::Closed(_))), "seed {seed}");
            assert_eq!(server.circuit.deadline(), None, "seed {seed}");
        } else {
            n_open += 1;
        }
        server.drain();
        assert_eq!(server.circuit.pending_bytes(), 0, "seed {seed}");
    }
    assert!(n_closed > 100 && n_open > 100, "{n_closed} {n_open}");
}

#[test]
fn a_client_circuit_survives_any_bytes_with_bounded_memory() {
    let recordings: Vec<Vec<u8>> = Recording::all()
        .iter()
        .filter(|recording| recording.is_stream())
        .map(|recording| recording.messages_to(Way::ToClient).iter().flat_map(recording::Message::bytes).collect())
        .collect();
    for seed in 0..3000 {
        let mut random = Rng::with_seed(seed);
        let bytes = mutated(&recordings[seed as usize % recordings.len()], &mut random);
        let now = Now::for_test();
        let mut circuit = client_circuit(now);
        circuit.subscribe(Sid(1), DbrType(20), 0, EventMask::VALUE, SubscriptionId(1));
        let pending_bytes = circuit.pending_bytes();
        let mut events = Vec::new();
        let piece = [1, 7, 64, 1000, usize::MAX][random.usize(..5)];
        bytes.chunks(piece).for_each(|piece| circuit.received(piece, now, &mut events));
        circuit.tick(now + Duration::from_secs(30), &mut events);
        circuit.tick(now + Duration::from_secs(60), &mut events);

        assert!(events.len() <= bytes.len() / 16 + 2, "seed {seed}");
        assert!(circuit.pending_bytes() <= pending_bytes + 16, "seed {seed}: at most an echo");
        let closed = events.iter().position(|event| matches!(event, client::Event::Closed(_)));
        assert!(closed.is_none_or(|at| at == events.len() - 1), "seed {seed}: {events:?}");
    }
}

#[test]
fn an_echo_returns_its_payload() {
    let mut server = Server::new();

    server.receive(&[with(Request::Echo {}, b"12345678"), bare(Request::Echo {})]);

    let payloads: Vec<Vec<u8>> = server.drain().into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(payloads, [b"12345678".to_vec(), vec![]]);
}

fn events_of(circuit: &mut client::Circuit, bytes: &[u8]) -> Vec<client::Event> {
    let mut events = Vec::new();
    circuit.received(bytes, Now::for_test(), &mut events);
    events
}

// Row 60 of docs/reference/faults.md.
#[test]
fn a_client_requests_variable_counts_only_from_servers_that_support_them() {
    for (minor, requested) in [(12, 10), (MINOR_VERSION, 0)] {
        let mut circuit = client_circuit(Now::for_test());
        let server = Answer::Version { valid: 0, minor: u32::from(minor), sequence: 0 };
        let created = Answer::CreateChan { dbr: DbrType(6), count: 10, cid: Cid(1), sid: Sid(4) };
        events_of(&mut circuit, &[with_answer(server, &[]), with_answer(created, &[])].concat());
        let n_ready = circuit.ready().len();
        circuit.sent(n_ready);

        circuit.read(Sid(4), DbrType(6), 0, Ioid(1));

        let (header, _) = Header::decode(circuit.ready()).unwrap();
        assert_eq!(header.count, requested, "an old server does not support 0");
    }
}

// Row 61 of docs/reference/faults.md.
#[test]
fn an_invalid_reply_fails_only_its_operation_on_the_client() {
    let mut circuit = client_circuit(Now::for_test());
    let answer = |dbr, count, payload_bytes: usize| {
        let answer = Answer::ReadNotify { dbr: DbrType(dbr), count, status: Eca::NORMAL, ioid: Ioid(1) };
        with_answer(answer, &vec![0; payload_bytes])
    };
    for (bytes, status) in [
        (answer(6, 2, 8), Eca::BADCOUNT),
        (answer(6, u32::MAX, 8), Eca::BADCOUNT),
        (answer(99, 1, 8), Eca::BADTYPE),
        (answer(6, 100_000, 1 << 17), Eca::BADCOUNT),
        (answer(99, 100_000, 1 << 17), Eca::BADTYPE),
        (answer(6, 1 << 18, 1 << 21), Eca::TOLARGE),
        (answer(31, 1, 8), Eca::BADCOUNT),
    ] {
        let [client::Event::ReadDone { result, .. }] = &events_of(&mut circuit, &bytes)[..] else {
            panic!("{bytes:?}")
        };

        assert_eq!(*result, Err(status));
    }
    let valid = events_of(&mut circuit, &answer(6, 1, 8));
    assert!(matches!(valid[..], [client::Event::ReadDone { ioid: Ioid(1), result: Ok(_), .. }]), "{valid:?}");
}

// Row 61 of docs/reference/faults.md.
#[test]
fn updates_without_a_subscription_create_no_events() {
    let mut circuit = client_circuit(Now::for_test());
    let subscription = SubscriptionId(9);
    let update = Answer::EventAdd { dbr: DbrType(6), count: 1, status: Eca::NORMAL, subscription };
    let flood = with_answer(update, &[0; 8]).repeat(10_000);

    let mut listener = Unsubscribed(Vec::new());
    circuit.received(&flood, Now::for_test(), &mut listener);

    assert_eq!(listener.0, []);
}

/// Stores all events except updates, which it does not want.
struct Unsubscribed(Vec<client::Event>);

impl client::Listener for Unsubscribed {
    fn event(&mut self, event: client::Event) {
        self.0.push(event);
    }

    fn wants(&self, _: SubscriptionId) -> bool {
        false
    }
}

// Row 53 of docs/reference/faults.md.
#[test]
fn an_unknown_severity_decodes_as_invalid_and_an_unknown_status_is_kept() {
    // TIME_DOUBLE: status 999, severity, one hour after the EPICS epoch, 1.5.
    let value = |severity: u8| {
        let head = [3, 231, 0, severity, 0, 0, 14, 16, 0, 0, 0, 0, 0, 0, 0, 0];
        [head.as_slice(), &1.5_f64.to_be_bytes()].concat()
    };

    for severity in [3, 4, 7, 255] {
        let reading = dbr::decode(DbrType(20), 1, &value(severity)).unwrap();

        assert_eq!(reading.alarm, Alarm { severity: Severity::Invalid, status: Status(999) });
        assert_eq!(reading.value, Value::from(1.5));
    }
}
