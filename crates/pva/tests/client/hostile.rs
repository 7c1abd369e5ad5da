//! Bytes that a correct server never sends.

use fodo_data::{BitSet, Reading, Value};
use fodo_pva::client::{Decoding, DisconnectReason, Event, Listener, Task};
use fodo_pva::cursor::ByteOrder;
use fodo_pva::frame::{Control, FrameError, Header, Portion, Sender};
use fodo_pva::message::{Answer, Subcommand};
use fodo_pva::status::RequestStatus;
use fodo_pva::{Cid, Ioid, Sid, types};

use crate::dialog::{CHANNEL, Dialog, ORDERS, config, double, prepared, reply};

/// The command of the message for which the circuit was closed; nothing else was reported.
fn malformed(dialog: &mut Dialog) -> u8 {
    let [Event::Closed(DisconnectReason::Malformed { command, fault })] = dialog.events()[..] else {
        panic!("one event")
    };
    let reason = DisconnectReason::Malformed { command, fault };
    assert!(reason.to_string().starts_with(&format!("in a message with command {command}: expected ")), "{reason}");
    command
}

#[test]
fn another_protocol_closes_the_circuit() {
    let mut dialog = Dialog::new(ByteOrder::Little);

    dialog.receive(b"HTTP/1.1 400 Bad Request\r\n");
    dialog.receive(b"HTTP/1.1 400 Bad Request\r\n");

    let reason = DisconnectReason::Unframed(FrameError::NotPvAccess(b'H'));
    assert_eq!(reason.to_string(), "the frame starts with 0x48, not with 0xca");
    assert_eq!(dialog.events(), [Event::Closed(reason)]);
}

#[test]
fn a_message_that_claims_too_much_closes_the_circuit_and_takes_no_memory() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let bytes = config().payload_bytes_max + 1;

    dialog.receive(&[&[0xca, 2, 0x40, 10][..], &(bytes as u32).to_le_bytes()].concat());

    let max = config().payload_bytes_max;
    assert_eq!(dialog.events(), [Event::Closed(DisconnectReason::Unframed(FrameError::TooLarge { bytes, max }))]);
}

#[test]
fn a_reply_that_ends_too_early_is_not_delivered() {
    for order in ORDERS {
        let whole = |dialog: &mut Dialog, n_missing: usize| {
            let ioid = dialog.opened(Task::Get, Decoding::Flat, &double());
            assert_eq!(dialog.circuit.get(ioid), Ok(()));
            dialog.answer_with(&reply(Task::Get, ioid, Subcommand::EXECUTE), |to| {
                let mut body = vec![1, 2];
                body.extend([0; 8]);
                to.bytes(&body[..body.len() - n_missing]);
            });
        };
        for n_missing in 1..=10 {
            let mut dialog = Dialog::with_channel(order);
            whole(&mut dialog, n_missing);
            assert_eq!(malformed(&mut dialog), 10);
        }
        let mut dialog = Dialog::with_channel(order);
        whole(&mut dialog, 0);
        assert_eq!(dialog.events().len(), 1);
    }
}

#[test]
fn messages_without_their_fields_are_malformed() {
    for command in [1, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 18, 20, 4] {
        let mut dialog = Dialog::with_channel(ByteOrder::Little);

        dialog.receive(&[0xca, 2, 0x40, command, 2, 0, 0, 0, 1, 0]);

        assert_eq!(malformed(&mut dialog), command);
    }
}

#[test]
fn a_type_or_status_that_cannot_be_decoded_closes_the_circuit() {
    for (task, sub, body) in [
        (Task::Get, Subcommand::INIT, &b"\xff"[..]),
        (Task::Get, Subcommand::INIT, b"\xfe\x05\x00"),
        (Task::Put, Subcommand::INIT, b"\x80\x00"),
        (Task::PutGet, Subcommand::INIT, b"\x43"),
        (Task::Monitor, Subcommand::INIT, b"\x07"),
        (Task::Monitor, Subcommand::INIT, b"\xff\x44"),
        (Task::Monitor, Subcommand::DESTROY, b"\x07"),
    ] {
        let mut dialog = Dialog::with_channel(ByteOrder::Little);
        let ioid = dialog.open(task, Decoding::Flat, "");

        dialog.answer_with(&reply(task, ioid, sub), |to| to.bytes(body));

        malformed(&mut dialog);
    }
}

#[test]
fn an_update_with_a_missing_overrun_set_is_not_delivered() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.opened(Task::Monitor, Decoding::Flat, &double());

    dialog.answer_with(&Answer::Monitor { ioid, sub: Subcommand::EXECUTE }, |to| {
        to.bit_set(&[1].into_iter().collect());
        to.f64(1.0);
    });

    assert_eq!(malformed(&mut dialog), 13);
}

#[test]
fn a_null_type_and_a_field_with_a_wrong_type_are_errors_of_their_messages_only() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.circuit.describe(CHANNEL.1, "").unwrap();
    dialog.answer_with(&Answer::GetField { ioid, status: RequestStatus::OK }, types::encode_null);
    assert_eq!(dialog.events(), [Event::Described { ioid, result: Ok(None) }]);
    dialog.sent();

    // Time stamps that are no numbers are not stored in a reading.
    let mut build = fodo_data::StructureBuilder::new("");
    build.scalar("value", fodo_data::Kind::F64).open("timeStamp", "").scalar("nanoseconds", fodo_data::Kind::Text);
    let kind = build.finish().into();
    let ioid = dialog.opened(Task::Get, Decoding::Flat, &kind);
    assert_eq!(dialog.circuit.get(ioid), Ok(()));
    dialog.answer_with(&reply(Task::Get, ioid, Subcommand::EXECUTE), |to| {
        to.bit_set(&[0].into_iter().collect());
        to.f64(1.0);
        to.text(b"soon");
    });
    assert_eq!(dialog.events(), [crate::dialog::done(ioid, 1.0)]);
}

// Row 35 of docs/reference/faults.md.
#[test]
fn messages_of_a_client_and_of_version_0_close_the_circuit() {
    for (bytes, error) in [
        (vec![0xca, 2, 0, 2, 0, 0, 0, 0], FrameError::WrongDirection),
        (vec![0xca, 0, 0x40, 2, 0, 0, 0, 0], FrameError::Obsolete),
    ] {
        let mut dialog = Dialog::with_channel(ByteOrder::Little);

        dialog.receive(&bytes);

        assert_eq!(dialog.events(), [Event::Closed(DisconnectReason::Unframed(error))]);
    }
}

// Row 35 of docs/reference/faults.md.
#[test]
fn a_flood_of_control_messages_of_a_server_gets_no_reply() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let flood = [
        Control::EchoRequest(7).header(Sender::Server, ByteOrder::Little),
        Control::SetByteOrder(0).header(Sender::Server, ByteOrder::Big),
        Control::SetByteOrder(0).header(Sender::Server, ByteOrder::Little),
    ];

    dialog.receive(&flood.map(|header| header.encode()).concat().repeat(30_000));

    assert_eq!((dialog.circuit.pending_bytes(), dialog.events()), (0, vec![]));
    dialog.create((Cid(2), Sid(20)));
}

// Row 37 of docs/reference/faults.md.
#[test]
fn endless_segments_of_a_server_are_limited_in_size() {
    let segment = |portion| {
        let header = Header { portion, ..Header::of(Sender::Server, ByteOrder::Little, 10, 1_000_000) };
        [header.encode().as_slice(), &[0; 1_000_000]].concat()
    };
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    dialog.receive(&segment(Portion::First));
    let middle = segment(Portion::Middle);

    let n_accepted = (0..100).take_while(|_| {
        dialog.receive(&middle);
        dialog.circuit.deadline().is_some()
    });

    assert_eq!(n_accepted.count(), config().payload_bytes_max / 1_000_000 - 1);
    assert!(matches!(dialog.events()[..], [Event::Closed(DisconnectReason::Unframed(FrameError::TooLarge { .. }))]));
}

// Rows 38 and 39 of docs/reference/faults.md.
#[test]
fn counts_beyond_the_bytes_and_types_of_great_depth_close_the_circuit_of_a_client() {
    let nested = [&b"\xff"[..], &b"\x80\0\x01\x01a".repeat(1000), b"\x43"].concat();
    for body in [&b"\xff\x80\0\xfe\xff\xff\xff\x7f"[..], b"\xff\x80\xfe\xff\xff\xff\x7f", &nested] {
        let mut dialog = Dialog::with_channel(ByteOrder::Little);
        let ioid = dialog.open(Task::Monitor, Decoding::Flat, "");

        dialog.answer_with(&reply(Task::Monitor, ioid, Subcommand::INIT), |to| to.bytes(body));

        assert_eq!(malformed(&mut dialog), 13);
    }
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let doubles = std::sync::Arc::new(fodo_data::normative_type(fodo_data::Kind::F64, true));
    let ioid = dialog.opened(Task::Get, Decoding::Flat, &doubles);
    assert_eq!(dialog.circuit.get(ioid), Ok(()));

    let two_billion = b"\x01\x02\xfe\xff\xff\xff\x7f";
    dialog.answer_with(&reply(Task::Get, ioid, Subcommand::EXECUTE), |to| to.bytes(two_billion));

    assert_eq!(malformed(&mut dialog), 10);
}

/// Reproducible pseudo-random numbers from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

/// Counts events and drops them.
struct Count(usize);

impl Listener for Count {
    fn event(&mut self, _: Event) {
        self.0 += 1;
    }
}

/// A conversation with every kind of message: the bytes from the server.
fn conversation(order: ByteOrder) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    let mut add = |answer: Answer, body: &dyn Fn(&mut fodo_pva::cursor::ByteWriter)| {
        let mut bytes = Vec::new();
        answer.encode(order, &mut bytes, body);
        messages.push(bytes);
    };
    let ioid = |index: u32| Ioid(1 << 22 | index);
    let status = RequestStatus::OK;
    let typed = |to: &mut fodo_pva::cursor::ByteWriter| types::encode(&double(), to);
    let layout = fodo_data::NormativeLayout::of(double()).unwrap();
    let some = |to: &mut fodo_pva::cursor::ByteWriter| {
        let marks: BitSet = (1..13).collect();
        fodo_pva::value::encode_reading(&layout, &marks, &Reading::bare(Value::from(1.5)), to);
        to.bit_set(&[1].into_iter().collect());
    };
    let (init, execute) = (Subcommand::INIT, Subcommand::EXECUTE);
    add(Answer::Get { ioid: ioid(0), sub: init, status: status.clone() }, &typed);
    add(Answer::Put { ioid: ioid(1), sub: init, status: status.clone() }, &typed);
    add(Answer::Monitor { ioid: ioid(2), sub: init }, &|to| {
        RequestStatus::OK.encode(to);
        typed(to);
    });
    add(Answer::Rpc { ioid: ioid(3), sub: init, status: status.clone() }, &|_| {});
    add(Answer::Get { ioid: ioid(0), sub: execute, status: status.clone() }, &some);
    add(Answer::Put { ioid: ioid(1), sub: execute, status: status.clone() }, &|_| {});
    add(Answer::Monitor { ioid: ioid(2), sub: execute }, &some);
    add(Answer::Rpc { ioid: ioid(3), sub: execute, status: status.clone() }, &|to| {
        fodo_pva::value::encode_any(Some(&fodo_data::Structure::new(double())), None, to);
    });
    add(Answer::GetField { ioid: ioid(4), status: status.clone() }, &typed);
    add(Answer::Message { ioid: ioid(2), level: 0, text: "text".into() }, &|_| {});
    add(Answer::CreateChannel { cid: Cid(2), sid: Sid(11), status }, &|_| {});
    add(Answer::Monitor { ioid: ioid(2), sub: Subcommand::DESTROY }, &|to| {
        RequestStatus::OK.encode(to);
        some(to);
    });
    add(Answer::DestroyChannel { sid: CHANNEL.1, cid: CHANNEL.0 }, &|_| {});
    messages
}

#[test]
fn damaged_conversations_cause_no_panic() {
    let mut n_events = 0;
    for seed in 0..2000 {
        let mut chance = Chance(seed);
        let order = ORDERS[chance.below(2)];
        let mut dialog = Dialog::with_channel(order);
        let circuit = &mut dialog.circuit;
        for task in [Task::Get, Task::Put, Task::Monitor, Task::Rpc] {
            circuit.open(CHANNEL.1, task, Decoding::Flat, &prepared("")).unwrap();
        }
        circuit.describe(CHANNEL.1, "").unwrap();
        circuit.get(Ioid(1 << 22)).unwrap();
        circuit.put(Ioid(1 << 22 | 1), Value::from(1)).unwrap();
        circuit.start(Ioid(1 << 22 | 2)).unwrap();
        circuit.rpc(Ioid(1 << 22 | 3), fodo_data::Structure::single(1.into())).unwrap();
        circuit.create(Cid(2), "w:two", dialog.now);

        let mut stream = conversation(order).concat();
        for _ in 0..chance.below(4) {
            let at = chance.below(stream.len());
            stream[at] = [0, 0xff, 0x7f, 0xfe, 8, chance.below(256) as u8][chance.below(6)];
        }
        let mut count = Count(0);
        let piece = 1 + chance.below(200);
        stream.chunks(piece).for_each(|piece| dialog.circuit.received(piece, dialog.now, &mut count));

        assert!(dialog.circuit.pending_bytes() < 10_000, "{seed}");
        n_events += count.0;
    }
    assert!(n_events > 5000, "{n_events}");
}

#[test]
fn an_undamaged_conversation_reports_every_message() {
    for order in ORDERS {
        let mut dialog = Dialog::with_channel(order);
        for task in [Task::Get, Task::Put, Task::Monitor, Task::Rpc] {
            dialog.open(task, Decoding::Structured, "");
        }
        dialog.circuit.describe(CHANNEL.1, "").unwrap();
        dialog.circuit.get(Ioid(1 << 22)).unwrap();
        dialog.circuit.put(Ioid(1 << 22 | 1), Value::from(1)).unwrap();
        dialog.circuit.rpc(Ioid(1 << 22 | 3), fodo_data::Structure::single(1.into())).unwrap();
        dialog.circuit.create(Cid(2), "w:two", dialog.now);

        conversation(order).iter().for_each(|bytes| dialog.receive(bytes));

        // The last message of a monitor is an update and its end.
        assert_eq!(dialog.events().len(), conversation(order).len() + 1);
    }
}
