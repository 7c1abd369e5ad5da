//! Values with large arrays, whose elements are decoded as they arrive: nothing depends on the pieces in which a message
//! arrives.

use std::sync::Arc;

use fodo_data::{
    Array, ArraySize, BitSet, Kind, NodeKind, NodeValue, Reading, Structure, StructureBuilder, StructureType,
    UnionMember, UnionType, UnionValue, Value, normative_type,
};
use fodo_pva::client::{Decoding, Event, Listener, Received, Task};
use fodo_pva::cursor::ByteOrder;
use fodo_pva::frame::{Control, FrameError, HEADER_BYTES, Header, Sender, segments};
use fodo_pva::message::Subcommand;
use fodo_pva::{Ioid, value};

use crate::dialog::{Dialog, ORDERS, reply};

fn array_type() -> Arc<StructureType> {
    Arc::new(normative_type(Kind::I32, true))
}

/// A structure with members before, between and after two large arrays.
fn table_type() -> Arc<StructureType> {
    let mut build = StructureBuilder::new("epics:nt/NTTable:1.0");
    build.scalar("first", Kind::Text).array("position", Kind::F64).array("names", Kind::Text);
    build.array("counts", Kind::U8).scalar("last", Kind::I16);
    Arc::new(build.finish())
}

fn table() -> Structure {
    let mut table = Structure::new(table_type());
    table.set("first", "scan").unwrap();
    table.set("position", (0..30_000).map(|n| f64::from(n) / 3.0).collect::<Vec<_>>()).unwrap();
    table.set("names", vec![fodo_data::Text::from("one"), "two".into()]).unwrap();
    table.set("counts", (0..100_000_u32).map(|n| n as u8).collect::<Vec<_>>()).unwrap();
    table.set("last", -7_i16).unwrap();
    table
}

fn numbers(n: i32) -> Vec<i32> {
    (0..n).map(|n| n.wrapping_mul(77_777_777)).collect()
}

/// A reply to a get of these bits of a structure, or an update.
fn message(task: Task, ioid: Ioid, structure: &Structure, order: ByteOrder) -> Vec<u8> {
    let mut bytes = Vec::new();
    let all: BitSet = [0].into_iter().collect();
    reply(task, ioid, Subcommand::EXECUTE).encode(order, &mut bytes, |to| {
        value::encode_bits(structure, &all, to);
        if task == Task::Monitor {
            to.bit_set(&BitSet::new());
        }
    });
    bytes
}

/// The same message in segments, with a control message after each.
fn segmented(message: &[u8], segment_bytes: usize) -> Vec<u8> {
    let (header, payload) = message.split_first_chunk::<HEADER_BYTES>().unwrap();
    let header = Header::decode(header).unwrap();
    let mut bytes = Vec::new();
    for (frame, range) in segments(header, payload.len(), segment_bytes) {
        bytes.extend_from_slice(&frame);
        bytes.extend_from_slice(&payload[range]);
        bytes.extend_from_slice(&Control::EchoRequest(1).header(Sender::Server, header.order).encode());
    }
    bytes
}

/// The events of a message, and of a small one after it, that arrive in pieces.
fn events(
    task: Task,
    decoding: Decoding,
    kind: &Arc<StructureType>,
    bytes: &dyn Fn(Ioid) -> Vec<u8>,
    order: ByteOrder,
    piece: usize,
) -> Vec<Event> {
    let mut dialog = Dialog::with_channel(order);
    let ioid = dialog.opened(task, decoding, kind);
    match task {
        Task::Monitor => dialog.circuit.start(ioid).unwrap(),
        _ => (0..2).for_each(|_| dialog.circuit.get(ioid).unwrap()),
    }
    let small = message(task, ioid, &Structure::new(kind.clone()), order);
    for piece in [bytes(ioid), small].concat().chunks(piece) {
        dialog.receive(piece);
    }
    dialog.events()
}

#[test]
fn a_value_with_large_arrays_is_the_same_for_any_size_of_its_pieces() {
    let mut reading = Structure::new(array_type());
    reading.set("value", numbers(30_000)).unwrap();
    reading.set("alarm.severity", 2).unwrap();
    for order in ORDERS {
        for (structure, decoding) in
            [(&reading, Decoding::Flat), (&reading, Decoding::Structured), (&table(), Decoding::Structured)]
        {
            for task in [Task::Get, Task::Monitor] {
                let whole = |ioid| message(task, ioid, structure, order);
                let expected = events(task, decoding, structure.kind(), &whole, order, usize::MAX);
                assert_eq!(expected.len(), 2, "{expected:?}");
                assert!(format!("{:?}", expected[0]).len() > 100_000, "the value is in the first event");
                for segment_bytes in [7919, 66_000, usize::MAX] {
                    let bytes = |ioid| segmented(&whole(ioid), segment_bytes);
                    for piece in [1021, 4096, 16 * 1024, 100_000, usize::MAX] {
                        let found = events(task, decoding, structure.kind(), &bytes, order, piece);
                        assert!(found == expected, "{task:?} {decoding:?} {order:?} {segment_bytes} {piece}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_large_array_may_arrive_byte_by_byte_and_in_a_union() {
    let single = |kind| Arc::new(StructureType::single(NodeKind::Array { kind, size: ArraySize::Variable }));
    let members = [("bytes", Kind::I8), ("shorts", Kind::U16)]
        .map(|(name, kind)| UnionMember { name: name.into(), kind: single(kind) });
    let union = Arc::new(UnionType { id: "".into(), members: members.to_vec() });
    let mut build = StructureBuilder::new("epics:nt/NTNDArray:1.0");
    build.leaf("value", NodeKind::Union(union.clone())).scalar("id", Kind::I32);
    let mut image = Structure::new(Arc::new(build.finish()));
    let pixels: Vec<u16> = (0..40_000).collect();
    let mut selected = Structure::new(union.member(1).unwrap().clone());
    selected.set_value(0, pixels.into()).unwrap();
    let value = NodeValue::Union(Some(Box::new(UnionValue { selector: 1, value: selected })));
    image.set_node(image.kind().node("value").unwrap(), value).unwrap();
    image.set("id", 5).unwrap();

    for order in ORDERS {
        let bytes = |ioid| segmented(&message(Task::Monitor, ioid, &image, order), 50_000);
        let [whole, single] = [usize::MAX, 1]
            .map(|piece| events(Task::Monitor, Decoding::Structured, image.kind(), &bytes, order, piece));

        assert_eq!(whole.len(), 2);
        assert!(whole == single);
    }
}

#[test]
fn a_message_that_ends_within_its_large_array_closes_the_circuit_for_the_same_reason_in_any_pieces() {
    let mut reading = Structure::new(array_type());
    reading.set("value", numbers(30_000)).unwrap();
    for order in ORDERS {
        // The count is larger than the payload; and segments end too early, also within an element.
        for (n_cut, segment_bytes) in [(2, usize::MAX), (50_000, usize::MAX), (2, 7000), (50_001, 40_000)] {
            let bytes = |ioid| {
                let whole = message(Task::Get, ioid, &reading, order);
                let payload = &whole[HEADER_BYTES..whole.len() - n_cut - 28];
                let header = Header::of(Sender::Server, order, whole[3], payload.len());
                segmented(&[header.encode().as_slice(), payload].concat(), segment_bytes)
            };
            let expected = events(Task::Get, Decoding::Flat, &array_type(), &bytes, order, usize::MAX);
            assert!(matches!(expected[..], [Event::Closed(_)]), "{expected:?}");

            for piece in [1000, 16 * 1024] {
                let found = events(Task::Get, Decoding::Flat, &array_type(), &bytes, order, piece);
                assert_eq!(found, expected, "{n_cut} {segment_bytes} {piece}");
            }
        }
    }
}

#[test]
fn segments_of_a_large_array_beyond_the_limit_of_a_payload_close_the_circuit() {
    // More than the dialog accepts.
    let mut reading = Structure::new(array_type());
    reading.set("value", numbers(5_000_000)).unwrap();
    let bytes = |ioid| segmented(&message(Task::Get, ioid, &reading, ByteOrder::Little), 1 << 20);

    let found = events(Task::Get, Decoding::Flat, &array_type(), &bytes, ByteOrder::Little, 16 * 1024);

    let too_large = FrameError::TooLarge { bytes: 17 << 20, max: 1 << 24 };
    assert_eq!(found, [Event::Closed(fodo_pva::client::DisconnectReason::Unframed(too_large))]);
}

#[test]
fn an_operation_that_ends_while_its_large_array_arrives_receives_nothing_and_the_next_one_does() {
    let mut reading = Structure::new(array_type());
    reading.set("value", numbers(30_000)).unwrap();
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let [first, second] = [(); 2].map(|()| dialog.opened(Task::Get, Decoding::Flat, &array_type()));
    [first, second].into_iter().for_each(|ioid| dialog.circuit.get(ioid).unwrap());
    let bytes = message(Task::Get, first, &reading, ByteOrder::Little);
    let (start, end) = bytes.split_at(50_000);

    dialog.receive(start);
    dialog.circuit.destroy(first);
    dialog.receive(end);
    assert_eq!(dialog.events(), []);
    dialog.receive(&message(Task::Get, second, &reading, ByteOrder::Little));

    let events = dialog.events();
    assert!(matches!(events[..], [Event::Done { ioid, result: Ok(_) }] if ioid == second), "{}", events.len());
}

/// Provides memory, and keeps the elements of the values.
struct Rooms {
    room: Option<Array>,
    received: Vec<Arc<Vec<i32>>>,
}

impl Listener for Rooms {
    fn event(&mut self, event: Event) {
        match event {
            Event::Done {
                result: Ok(Received::Reading(Reading { value: Value::Array(Array::I32(elements)), .. })),
                ..
            } => {
                self.received.push(elements);
            }
            other => panic!("{other:?}"),
        }
    }

    fn room(&mut self, _: Ioid, _: Kind, _: usize) -> Option<Array> {
        self.room.take()
    }
}

#[test]
fn a_large_array_is_received_in_the_memory_that_the_caller_provides() {
    let mut reading = Structure::new(array_type());
    reading.set("value", numbers(30_000)).unwrap();
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.opened(Task::Get, Decoding::Flat, &array_type());
    let own = Arc::new(vec![9; 40_000]);
    let memory = own.as_ptr();
    let mut rooms = Rooms { room: Some(Array::I32(own)), received: Vec::new() };

    dialog.circuit.get(ioid).unwrap();
    for piece in message(Task::Get, ioid, &reading, ByteOrder::Little).chunks(16 * 1024) {
        dialog.circuit.received(piece, dialog.now, &mut rooms);
    }

    let mut received = rooms.received.pop().unwrap();
    assert_eq!((received.as_ptr(), received.len()), (memory, 30_000));
    assert!(*received == numbers(30_000) && Arc::get_mut(&mut received).is_some());
}
