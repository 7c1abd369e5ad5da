//! Bytes that a correct client never sends: memory is bounded by the bytes that arrive, and a circuit continues or
//! closes. The rows are those of `docs/reference/faults.md`.

use std::time::Duration;

use fodo_data::Kind;
use fodo_pva::cursor::{ByteOrder, ByteWriter};
use fodo_pva::frame::{self, Control, HEADER_BYTES, Header, Portion, Sender};
use fodo_pva::message::{Answer, Request, Subcommand};
use fodo_pva::server::{Circuit, CloseReason, Config, Event};
use fodo_pva::status::{RequestStatus, StatusLevel};
use fodo_pva::{Ioid, Sid, limit};

use crate::recording::{Line, Recording};
use crate::scripted::{
    PAYLOAD_BYTES_MAX, Server, contents, double, double_body, flat, get, pair, put, pv_request_body, reading, rpc,
};

/// A message with a raw body.
pub fn message(order: ByteOrder, request: &Request, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(order, &mut bytes, |to| to.bytes(body));
    bytes
}

/// A put of doubles to the array channel `sid`.
fn array_put(sid: Sid, n_elements: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(sid, 1, Subcommand::EXECUTE).encode(ByteOrder::Little, &mut bytes, |to| {
        to.bytes(&[1, 2]);
        to.size(n_elements);
        to.bytes(&vec![0; n_elements * 8]);
    });
    bytes
}

/// A circuit with a channel to an array of doubles, and an idle put.
fn with_array_put() -> (Server, Sid) {
    let mut server = Server::validated();
    let sid = server.channel(flat(Kind::F64, true));
    server.init(&put(sid, 1, Subcommand::INIT), "");
    (server, sid)
}

// Row 35 of docs/reference/faults.md.
#[test]
fn bytes_of_another_protocol_or_direction_close_the_circuit() {
    let alone = Header { portion: Portion::Last, ..Header::of(Sender::Client, ByteOrder::Little, 2, 0) };
    for (bytes, reason) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "the frame does not start with 0xca"),
        (vec![0xca, 0, 0, 2, 0, 0, 0, 0], "the client has protocol version 0"),
        (
            Header::of(Sender::Server, ByteOrder::Little, 2, 0).encode().to_vec(),
            "the message has the direction of the server",
        ),
        (alone.encode().to_vec(), "a segment is out of place"),
    ] {
        let mut server = Server::validated();

        server.receive(&bytes);

        assert_eq!(server.close_reason(), Some(&CloseReason::Malformed(reason)));
        server.receive(&message(ByteOrder::Little, &Request::Echo {}, b"late"));
        assert_eq!(server.answers().len(), 0, "nothing is decoded any more");
    }
}

// Row 35 of docs/reference/faults.md.
#[test]
fn a_flood_of_control_messages_takes_no_memory_and_gets_no_reply() {
    let mut server = Server::validated();
    let flood = Control::EchoRequest(7).header(Sender::Client, ByteOrder::Little).encode().repeat(100_000);

    server.receive(&flood);

    assert_eq!((server.circuit.pending_bytes(), server.circuit.held_bytes(), server.take()), (0, 0, vec![]));
    assert!(server.is_alive());
}

// Row 36 of docs/reference/faults.md.
#[test]
fn a_message_beyond_the_largest_payload_closes_the_circuit() {
    for n_bytes in [PAYLOAD_BYTES_MAX + 1, 0xffff_ffff] {
        let (mut server, _) = with_array_put();

        server.receive(&Header::of(Sender::Client, ByteOrder::Little, 11, n_bytes).encode());

        assert!(matches!(server.close_reason(), Some(CloseReason::Malformed(_))));
        assert!(server.circuit.held_bytes() < 10_000);
    }
}

// Row 36 of docs/reference/faults.md.
#[test]
fn a_message_without_a_value_that_claims_a_megabyte_closes_the_circuit() {
    for request in [Request::Echo {}, Request::Search {}, get(Sid(0), 1, Subcommand::INIT)] {
        let mut server = Server::validated();
        let large = message(ByteOrder::Little, &request, &vec![0; limit::REQUEST_BYTES + 1]);

        server.receive(&large[..30]);

        assert!(matches!(server.close_reason(), Some(CloseReason::Misbehaved(_))), "{request}");
        let mut server = Server::validated();
        server.receive(&large);
        assert!(matches!(server.close_reason(), Some(CloseReason::Misbehaved(_))), "{request}");
    }
}

// Row 46 of docs/reference/faults.md.
#[test]
fn an_echo_up_to_a_megabyte_is_returned() {
    let mut server = Server::validated();
    let body = vec![7; limit::REQUEST_BYTES];
    for piece in message(ByteOrder::Little, &Request::Echo {}, &body).chunks(2048) {
        server.receive(piece);
    }

    assert_eq!(server.answer().body, body);
}

// Row 37 of docs/reference/faults.md.
#[test]
fn a_put_in_segments_is_joined_and_segments_out_of_place_close_the_circuit() {
    let (mut server, sid) = with_array_put();
    let whole = array_put(sid, 1000);
    let payload = &whole[HEADER_BYTES..];
    let frames = |command: u8| {
        let header = Header::of(Sender::Client, ByteOrder::Little, command, 0);
        frame::segments(header, payload.len(), 3000)
            .map(|(header, range)| [header.as_slice(), &payload[range]].concat())
            .collect::<Vec<_>>()
    };
    for frame in frames(11) {
        server.receive(&frame);
        server.receive(&Control::EchoRequest(7).header(Sender::Client, ByteOrder::Little).encode());
    }
    assert!(matches!(server.event(), Event::Write { .. }));

    for wrong in [vec![frames(11)[2].clone()], vec![frames(11)[0].clone(), frames(10)[1].clone()]] {
        let (mut server, _) = with_array_put();
        server.receive(&wrong.concat());
        assert!(matches!(server.close_reason(), Some(CloseReason::Malformed(_))));
    }
}

// Row 37 of docs/reference/faults.md.
#[test]
fn endless_segments_are_limited_in_size_and_in_time() {
    let mut first = Header::of(Sender::Client, ByteOrder::Little, 11, 100_000);
    first.portion = frame::Portion::First;
    let mut middle = first;
    middle.portion = frame::Portion::Middle;
    let (mut server, _) = with_array_put();
    server.circuit.set_arriving_bytes_max(usize::MAX);
    server.receive(&[first.encode().as_slice(), &[0; 100_000]].concat());
    let piece = [middle.encode().as_slice(), &[0; 100_000]].concat();
    let n_pieces = (0..1000).take_while(|_| {
        server.receive(&piece);
        server.close_reason().is_none()
    });
    assert_eq!(n_pieces.count(), PAYLOAD_BYTES_MAX / 100_000 - 1);

    let (mut server, _) = with_array_put();
    server.receive(&[first.encode().as_slice(), &[0; 100_000]].concat());
    middle.word = 0;
    for _ in 0..60 {
        server.now = server.now + Duration::from_secs(1);
        server.receive(&middle.encode().repeat(1000));
    }
    server.circuit.tick(server.now, &mut server.events);
    assert!(matches!(server.close_reason(), Some(CloseReason::Misbehaved(_))));
}

/// A count of two billion.
const TWO_BILLION: [u8; 5] = [254, 0xff, 0xff, 0xff, 0x7f];

// Rows 38, 39 and 40 of docs/reference/faults.md.
#[test]
fn malformed_values_get_a_status_and_the_circuit_continues() {
    let nested = [b"\x80\0\x01\x01a".repeat(1000), b"\x43".to_vec()].concat();
    let members = [b"\x80\0".as_slice(), &TWO_BILLION].concat();
    let bodies: [(&str, Vec<u8>); 6] = [
        ("a count of members without bytes", members),
        ("an unknown type id", b"\xfe\x05\x00".to_vec()),
        ("types nested a thousand deep", nested),
        ("an unknown type code", b"\x99".to_vec()),
        ("a text without bytes", [b"\x80".as_slice(), &TWO_BILLION].concat()),
        ("a bounded text that is too long", b"\x80\0\x01\x01a\x83\x02\x03abc".to_vec()),
    ];
    for (what, body) in &bodies {
        for is_rpc in [false, true] {
            let (mut server, sid) = Server::with_double();
            if is_rpc {
                server.send(&rpc(sid, 1, Subcommand::INIT), pv_request_body(""));
                server.take();
                server.answers();
            }
            let request = if is_rpc { rpc(sid, 1, Subcommand::EXECUTE) } else { get(sid, 1, Subcommand::INIT) };
            server.receive(&message(ByteOrder::Little, &request, body));

            assert_eq!((server.take(), server.answer().level()), (vec![], StatusLevel::Error), "{what}");
            server.init(&get(sid, 2, Subcommand::INIT), "");
        }
    }
}

// Rows 38 and 40 of docs/reference/faults.md.
#[test]
fn a_malformed_put_gets_a_status_and_the_operation_remains() {
    let many_bits = [&[250][..], &[0xff; 250]].concat();
    for (what, body) in [
        ("marks without values", b"\x01\x02".to_vec()),
        ("marks for nodes that do not exist, without values", many_bits),
        ("two billion elements", [b"\x01\x12".as_slice(), &TWO_BILLION].concat()),
        ("two billion marks", TWO_BILLION.to_vec()),
        ("nothing", vec![]),
    ] {
        for kind in [flat(Kind::F64, true), pair()] {
            let mut server = Server::validated();
            let sid = server.channel(kind);
            server.init(&put(sid, 1, Subcommand::INIT), "");

            server.receive(&message(ByteOrder::Little, &put(sid, 1, Subcommand::EXECUTE), &body));

            assert_eq!((server.take(), server.answer().level()), (vec![], StatusLevel::Error), "{what}");
            server.execute(&put(sid, 1, Subcommand::GET));
        }
    }
}

// Row 40 of docs/reference/faults.md.
#[test]
fn marks_beyond_the_type_are_ignored_if_the_others_have_values() {
    let (mut server, sid) = Server::with_double();
    server.init(&put(sid, 1, Subcommand::INIT), "");
    let body = [b"\x09\x02\0\0\0\0\0\0\0\xff".as_slice(), &1.5_f64.to_le_bytes()].concat();

    server.receive(&message(ByteOrder::Little, &put(sid, 1, Subcommand::EXECUTE), &body));

    let Event::Write { value, .. } = server.event() else { panic!("no write") };
    assert_eq!(value, fodo_pva::server::PutValue::Flat(Some(1.5.into())));
}

// Row 39 of docs/reference/faults.md.
#[test]
fn types_with_ids_count_against_the_memory_of_the_circuit() {
    let (mut server, sid) = Server::with_double();
    server.circuit.set_held_bytes_max(1_000_000);
    let mut body = Vec::new();
    let mut to = ByteWriter::new(&mut body, ByteOrder::Little);
    to.bytes(b"\x80\0");
    to.size(1000);
    (0..1000).for_each(|_| to.bytes(b"\x01a\x00"));
    let with_id = |id: u16| [&[0xfd][..], &id.to_le_bytes(), &body, &[0; 1000]].concat();

    for ioid in 1..100 {
        server.receive(&message(ByteOrder::Little, &get(sid, ioid, Subcommand::INIT), &with_id(ioid as u16)));
        server.take();
        if server.close_reason().is_some() {
            break;
        }
    }

    assert!(server.circuit.held_bytes() < 1_100_000, "{}", server.circuit.held_bytes());
}

// Row 80 of docs/reference/faults.md.
#[test]
fn a_put_that_needs_too_much_memory_is_dropped_as_it_arrives_and_the_circuit_continues() {
    for in_segments in [false, true] {
        let (mut server, sid) = with_array_put();
        let held_before = server.circuit.held_bytes();
        let mut bytes = array_put(sid, 100_000);
        if in_segments {
            let payload = bytes.split_off(HEADER_BYTES);
            let header = Header::of(Sender::Client, ByteOrder::Little, 11, 0);
            let frames = frame::segments(header, payload.len(), 30_000);
            bytes = frames.flat_map(|(header, range)| [header.as_slice(), &payload[range]].concat()).collect();
        }
        server.circuit.set_arriving_bytes_max(100_000);

        for piece in bytes.chunks(2048) {
            server.receive(piece);
            assert!(server.circuit.held_bytes() <= held_before + 400_000);
            server.circuit.set_arriving_bytes_max(100_000_usize.saturating_sub(server.circuit.held_bytes()));
        }

        assert_eq!((server.take(), server.answer().level()), (vec![Event::Drained], StatusLevel::Error));
        server.circuit.set_arriving_bytes_max(100_000);
        server.receive(&array_put(sid, 1000));
        assert!(matches!(server.event(), Event::Write { .. }), "the operation remains");
    }
}

// Row 80 of docs/reference/faults.md.
#[test]
fn a_put_without_write_access_is_rejected_by_its_header_and_takes_no_memory() {
    let (mut server, sid) = with_array_put();
    let held_before = server.circuit.held_bytes();
    let put = array_put(sid, 100_000);
    server.circuit.set_may_write(sid, false);

    server.receive(&put[..100]);

    assert_eq!(server.take(), [Event::Denied]);
    let Answer::Put { status, .. } = server.answer().answer else { panic!("no reply") };
    assert_eq!(status, RequestStatus::error("the client has no write access to the PV"));
    server.receive(&put[100..put.len() - 1]);
    assert_eq!(server.circuit.held_bytes(), held_before);
    server.receive(&put[put.len() - 1..]);
    server.circuit.set_may_write(sid, true);
    put.chunks(1000).for_each(|piece| server.receive(piece));
    assert!(matches!(server.event(), Event::Write { .. }), "the operation remains");
}

#[test]
fn the_message_after_a_dropped_one_has_its_own_timeout() {
    let (mut server, sid) = with_array_put();
    server.circuit.set_arriving_bytes_max(1000);
    let put = array_put(sid, 1000);
    server.receive(&put[..100]);
    server.now = server.now + Duration::from_secs(50);

    server.receive(&[&put[100..], b"\xca\x02\0\x02\x04\0\0\0e"].concat());

    assert_eq!(server.circuit.deadline(), Some((server.now + limit::MESSAGE_TIMEOUT).monotonic));
}

// Row 44 of docs/reference/faults.md.
#[test]
fn the_values_in_the_events_of_one_call_are_limited() {
    let mut server = Server::validated();
    let sid = server.channel(pair());
    for ioid in 1..101 {
        server.init(&put(sid, ioid, Subcommand::INIT), "");
    }
    server.circuit.set_arriving_bytes_max(2000);

    let puts = (1..101).flat_map(|ioid| message(ByteOrder::Little, &put(sid, ioid, Subcommand::EXECUTE), b"\0"));
    server.receive(&puts.collect::<Vec<u8>>());

    let (written, drained): (Vec<Event>, Vec<Event>) =
        server.take().into_iter().partition(|event| matches!(event, Event::Write { .. }));
    assert!(written.len() + drained.len() == 100 && !written.is_empty());
    assert!(written.iter().map(Event::value_bytes).sum::<usize>() <= 2000);
    assert_eq!(server.answers().len(), drained.len());
}

// Row 44 of docs/reference/faults.md.
#[test]
fn the_start_of_an_operation_cannot_have_a_large_message() {
    for request in [rpc, put] {
        let mut server = Server::validated();
        let sid = server.channel(pair());

        let large = message(ByteOrder::Little, &request(sid, 1, Subcommand::INIT), &vec![0; limit::REQUEST_BYTES]);
        server.receive(&large[..100]);

        assert!(matches!(server.close_reason(), Some(CloseReason::Misbehaved(_))));
    }
}

// Row 44 of docs/reference/faults.md.
#[test]
fn a_large_value_is_rejected_before_it_arrives_with_its_reason() {
    let no_room = "the server has no memory for the value";
    for (request, ioid, reason) in [
        (rpc as fn(Sid, u32, Subcommand) -> Request, 1, no_room),
        (put, 1, no_room),
        (|sid, _, sub| Request::PutGet { sid, ioid: Ioid(1), sub }, 1, no_room),
        (rpc, 7, "the channel has no such operation"),
    ] {
        let mut server = Server::validated();
        let sid = server.channel(pair());
        server.send(&request(sid, 1, Subcommand::INIT), pv_request_body(""));
        server.take();
        server.answers();
        server.circuit.set_arriving_bytes_max(100_000);

        let large = message(ByteOrder::Little, &request(sid, ioid, Subcommand::EXECUTE), &vec![0; 10_000_000]);
        server.receive(&large[..100]);

        assert_eq!(server.take(), [Event::Drained]);
        let answer = server.answer().answer;
        let (Answer::Rpc { status, .. } | Answer::Put { status, .. } | Answer::PutGet { status, .. }) = answer else {
            panic!("{answer}")
        };
        assert_eq!(status, RequestStatus::error(reason));
        server.receive(&large[100..]);
        assert!(server.is_alive());
    }
}

#[test]
fn a_value_of_exactly_the_free_memory_may_arrive() {
    for (n_missing, events) in [(0, vec![]), (1, vec![Event::Drained])] {
        let (mut server, sid) = with_array_put();
        let put = array_put(sid, 100_000);
        server.circuit.set_arriving_bytes_max(put.len() - HEADER_BYTES - n_missing);

        server.receive(&put[..100]);

        assert_eq!(server.take(), events, "{n_missing}");
    }
}

// Row 47 of docs/reference/faults.md.
#[test]
fn each_message_is_decoded_in_its_own_byte_order() {
    let (mut server, sid) = Server::with_double();
    server.init(&put(sid, 1, Subcommand::INIT), "");
    for (number, order) in [(1.5, ByteOrder::Big), (2.5, ByteOrder::Little), (3.5, ByteOrder::Big)] {
        server.order = order;
        server.send(&put(sid, 1, Subcommand::EXECUTE), double_body(number));

        let Event::Write { request, value, .. } = server.event() else { panic!("no write") };
        assert_eq!(value, fodo_pva::server::PutValue::Flat(Some(number.into())));
        server.circuit.write_done(request, Ok(()));
    }
}

// Row 47 of docs/reference/faults.md.
#[test]
fn a_byte_order_that_changes_within_a_message_closes_the_circuit() {
    let (mut server, sid) = with_array_put();
    let whole = array_put(sid, 1000);
    let (first, last) = whole[HEADER_BYTES..].split_at(1000);
    let header = |order, portion, payload: &[u8]| {
        Header { portion, ..Header::of(Sender::Client, order, 11, payload.len()) }.encode()
    };
    server.receive(&[&header(ByteOrder::Little, Portion::First, first)[..], first].concat());
    assert_eq!(server.close_reason(), None);

    server.receive(&[&header(ByteOrder::Big, Portion::Last, last)[..], last].concat());

    assert!(matches!(server.event(), Event::Closed(CloseReason::Malformed(_))));
}

// Row 15 of docs/reference/faults.md.
#[test]
fn an_incomplete_message_of_pvaccess_closes_the_circuit_after_the_timeout() {
    let echo = message(ByteOrder::Little, &Request::Echo {}, &[b'x'; 200]);
    for n_bytes in [1, 7, 8, 30] {
        let mut server = Server::validated();
        let start = server.now;
        for (n, byte) in echo[..n_bytes].iter().enumerate() {
            server.now = start + Duration::from_secs(n as u64);
            server.receive(&[*byte]);
            server.circuit.tick(server.now, &mut server.events);
            assert_eq!(server.circuit.deadline(), Some((start + limit::MESSAGE_TIMEOUT).monotonic));
        }
        assert_eq!(server.close_reason(), None);

        server.circuit.tick(start + limit::MESSAGE_TIMEOUT, &mut server.events);

        assert!(matches!(server.close_reason(), Some(CloseReason::Misbehaved(_))));
        assert_eq!(server.circuit.deadline(), None);
    }
}

// Row 15 of docs/reference/faults.md.
#[test]
fn each_message_of_pvaccess_has_its_own_timeout_which_progress_restarts() {
    let mut server = Server::validated();
    let start = server.now;
    let echo = message(ByteOrder::Little, &Request::Echo {}, b"body");
    for second in [0, 40, 80] {
        server.now = start + Duration::from_secs(second);
        let n_first = if second == 40 { 9 } else { 5 };
        server.receive(&echo[..n_first]);
        server.now = start + Duration::from_secs(second + 30);
        server.receive(&[&echo[n_first..], &echo[..5]].concat());
        assert_eq!(server.circuit.deadline(), Some((server.now + limit::MESSAGE_TIMEOUT).monotonic));
        server.receive(&echo[5..]);
        assert_eq!(server.circuit.deadline(), None);
    }

    let (mut server, sid) = with_array_put();
    let start = server.now;
    let put = array_put(sid, 100_000);
    server.receive(&put[..100]);
    server.now = start + Duration::from_secs(50);
    server.receive(&put[100..100 + limit::MESSAGE_PROGRESS_BYTES]);
    assert_eq!(server.circuit.deadline(), Some((server.now + limit::MESSAGE_TIMEOUT).monotonic));
    server.now = start + Duration::from_secs(100);
    server.circuit.resume(server.now);
    assert_eq!(server.circuit.deadline(), Some((server.now + limit::MESSAGE_TIMEOUT).monotonic));
}

/// Reproducible pseudo-random numbers from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

/// Replies to an event in one of the possible ways.
fn answer(circuit: &mut Circuit, event: Event, chance: &mut Chance) {
    let reading = reading(1.5);
    let error = fodo_pva::status::RequestStatus::error("by chance");
    let is_refused = chance.below(4) == 0;
    match event {
        Event::Create { cid, .. } if is_refused => circuit.create_failed(cid, "by chance"),
        Event::Create { cid, .. } => {
            let kind = if chance.below(2) == 0 { double() } else { pair() };
            circuit.created(cid, kind);
        }
        Event::Search { search, names } => {
            circuit.searched(search, 5075, &names.iter().map(|(cid, _)| *cid).collect::<Vec<_>>());
        }
        Event::Read { request, .. } if is_refused => circuit.read_done(request, Err(&error)),
        Event::Read { request, .. } => circuit.read_done(request, Ok(contents(&reading))),
        Event::Write { request, reply: fodo_pva::server::WriteReply::Status, .. } | Event::Process { request, .. } => {
            circuit.write_done(request, if is_refused { Err(&error) } else { Ok(()) });
        }
        Event::Write { request, .. } => circuit.read_done(request, Ok(contents(&reading))),
        Event::Rpc { request, argument, .. } => circuit.rpc_done(request, Ok(argument.as_ref())),
        Event::Start { request } | Event::Ack { request } => {
            let marks = [chance.below(40)].into_iter().collect();
            circuit.update(request, contents(&reading), &marks, &marks);
        }
        Event::Reply(reply) => circuit.reply(reply),
        Event::Subscribe { request, .. } if is_refused => circuit.end_monitor(request, &error),
        _ => {}
    }
}

// Rows 35 to 47 of docs/reference/faults.md.
#[test]
fn recordings_with_changed_bytes_cause_no_panic_and_no_growth() {
    let recordings: Vec<Vec<Vec<u8>>> = Recording::all()
        .iter()
        .map(|recording| {
            let lines = recording.lines.iter();
            let sent = lines.filter_map(|line| match line {
                Line::Bytes(Sender::Client, bytes, _) if bytes.len() < 10_000 => Some(bytes.clone()),
                _ => None,
            });
            sent.collect()
        })
        .collect();
    for seed in 0..400 {
        let mut chance = Chance(seed);
        let mut server = Server::new();
        server.circuit = Circuit::new(&Config { payload_bytes_max: 100_000, guid: fodo_pva::guid::Guid::default() });
        let recording = &recordings[chance.below(recordings.len())];
        for message in recording {
            let mut bytes = message.clone();
            // Channels have other numbers here than in the recording.
            if bytes.len() > 12 && matches!(bytes[3], 8 | 10..=17 | 20 | 21) {
                bytes[8..12].copy_from_slice(&[0, 0, 0, 0]);
            }
            for _ in 0..chance.below(3) {
                let at = chance.below(bytes.len());
                match chance.below(3) {
                    0 => bytes[at] ^= 1 << chance.below(8),
                    1 => bytes[at] = [0, 0xff, 0xfe, 0xfd][chance.below(4)],
                    _ if at > HEADER_BYTES => bytes.truncate(at),
                    _ => {}
                }
            }
            // A header that matches, so that the body is decoded.
            if bytes.len() >= HEADER_BYTES && chance.below(4) != 0 {
                let payload_bytes = (bytes.len() - HEADER_BYTES) as u32;
                let declared = match bytes[2] & 0x80 {
                    0 => payload_bytes.to_le_bytes(),
                    _ => payload_bytes.to_be_bytes(),
                };
                bytes[4..8].copy_from_slice(&declared);
            }
            server.receive(&bytes);
            for event in std::mem::take(&mut server.events) {
                answer(&mut server.circuit, event, &mut chance);
            }
            assert!(server.circuit.held_bytes() < 1_000_000, "seed {seed}");
        }
        server.sent();
    }
}
