//! The memory of a circuit: what counts how much, what is closed above its limit, and what is available again.

use std::sync::Arc;

use fodo_data::{ArraySize, Kind, NodeKind, StructureBuilder, StructureType, UnionType};
use fodo_pva::cursor::ByteOrder;
use fodo_pva::message::{Answer, NewChannel, Request, Subcommand};
use fodo_pva::server::{CloseReason, Event};
use fodo_pva::status::{RequestStatus, StatusLevel};
use fodo_pva::{Cid, Ioid, Sid, limit, types};

use crate::limits::message;
use crate::scripted::{Server, double, get, monitor, pair, pv_request_body, rpc};

#[test]
fn a_circuit_that_exceeds_its_memory_limit_gets_an_error_and_is_closed() {
    let create = Request::CreateChannel { channels: vec![NewChannel { cid: Cid(9), name: "pv".into() }] };
    for request in [create, get(Sid(0), 9, Subcommand::INIT)] {
        let (mut server, sid) = Server::with_double();
        for ioid in 1..5 {
            server.init(&get(sid, ioid, Subcommand::INIT), "");
        }
        server.circuit.set_held_bytes_max(server.circuit.held_bytes());

        server.send(&request, pv_request_body(""));

        assert!(server.answer().level() >= StatusLevel::Error, "{request}");
        assert!(matches!(server.close_reason(), Some(CloseReason::Exceeded(_))), "{request}");
    }
}

#[test]
fn channels_operations_selections_and_types_count_with_their_memory() {
    let (mut server, sid) = Server::with_double();
    server.channel(double());
    assert_eq!(server.circuit.held_bytes(), 2 * limit::CHANNEL_BYTES);
    for ioid in 1..=3 {
        server.init(&get(sid, ioid, Subcommand::INIT), "");
    }
    let held_bytes = 2 * limit::CHANNEL_BYTES + 3 * limit::OPERATION_BYTES;
    assert_eq!(server.circuit.held_bytes(), held_bytes);

    // A pvRequest whose type has an id and no members: one node.
    server.receive(&message(ByteOrder::Little, &get(sid, 4, Subcommand::INIT), b"\xfd\x01\x00\x80\x00\x00"));
    server.take();
    server.answers();
    let with_type = held_bytes + limit::OPERATION_BYTES + size_of::<fodo_data::Node>();
    assert_eq!(server.circuit.held_bytes(), with_type);

    server.init(&get(sid, 5, Subcommand::INIT), "value");
    let with_selection = server.circuit.held_bytes();
    assert!(with_selection > with_type + limit::OPERATION_BYTES, "the bits of the selection");
    server.send(&Request::DestroyRequest { sid, ioid: Ioid(5) }, |_| {});
    assert_eq!(server.circuit.held_bytes(), with_type);
    server.answers();

    // The same operation fits again, but not in less.
    for (n_missing, level) in [(0, StatusLevel::Ok), (1, StatusLevel::Error)] {
        server.circuit.set_held_bytes_max(with_selection - n_missing);
        server.send(&get(sid, 5, Subcommand::INIT), pv_request_body("value"));
        server.take();
        assert_eq!(server.answer().level(), level);
        server.send(&Request::DestroyRequest { sid, ioid: Ioid(5) }, |_| {});
    }
}

#[test]
fn channels_are_created_up_to_the_memory_limit_also_with_one_message() {
    let create = |n: u32| {
        let channels = (1..=n).map(|cid| NewChannel { cid: Cid(cid), name: "pv".into() });
        Request::CreateChannel { channels: channels.collect() }
    };
    for (n_requested, is_closed) in [(2, false), (3, true)] {
        let mut server = Server::validated();
        server.circuit.set_held_bytes_max(2 * limit::CHANNEL_BYTES);

        server.send(&create(n_requested), |_| {});

        assert_eq!(server.close_reason().is_some(), is_closed);
        let created = server.take().into_iter().filter(|event| matches!(event, Event::Create { .. }));
        assert_eq!((created.count(), server.answers().len()), (2, n_requested as usize - 2));
    }
}

#[test]
fn memory_of_ended_operations_and_channels_is_available_again() {
    let mut server = Server::validated();
    server.circuit.set_held_bytes_max(limit::CHANNEL_BYTES + limit::OPERATION_BYTES + 1000);
    for _ in 0..100 {
        let sid = server.channel(double());
        server.init(&get(sid, 1, Subcommand::INIT), "value");
        server.send(&Request::DestroyRequest { sid, ioid: Ioid(1) }, |_| {});
        server.init(&get(sid, 1, Subcommand::INIT), "alarm");
        server.send(&Request::DestroyChannel { sid, cid: Cid(9) }, |_| {});
        server.take();
    }

    assert!(server.is_alive());
    assert_eq!(server.circuit.held_bytes(), 0);
}

#[test]
fn subscriptions_and_operations_are_cheap_enough_for_a_hundred_thousand_in_one_circuit() {
    const N: u32 = 100_000;
    let (mut server, sid) = Server::with_double();
    for first in (0..N).step_by(1000) {
        let mut bytes = Vec::new();
        for ioid in first..first + 1000 {
            monitor(sid, ioid, Subcommand::INIT).encode(ByteOrder::Little, &mut bytes, pv_request_body("value"));
        }
        server.receive(&bytes);
        assert_eq!(server.take().len(), 1000);
        server.sent();
    }

    server.send(&Request::DestroyChannel { sid, cid: Cid(9) }, |_| {});

    assert_eq!(server.take().len(), N as usize + 1);
    assert_eq!(server.answers().len(), 1);
}

// Row 44 of docs/reference/faults.md.
#[test]
fn a_small_message_whose_value_needs_much_memory_is_rejected_before_it_is_decoded() {
    let n_elements = 1_000_000;
    for (kind, element) in [
        (NodeKind::AnyArray, 0),
        (NodeKind::UnionArray(Arc::new(UnionType { id: "".into(), members: Vec::new() })), 0),
        (NodeKind::StructureArray(Arc::new(StructureBuilder::empty().finish())), 0),
        (NodeKind::Array { kind: Kind::Text, size: ArraySize::Variable }, 0),
    ] {
        let mut server = Server::validated();
        let sid = server.channel(pair());
        server.send(&rpc(sid, 1, Subcommand::INIT), pv_request_body(""));
        server.take();
        server.answers();
        server.circuit.set_arriving_bytes_max(2_000_000);

        server.send(&rpc(sid, 1, Subcommand::EXECUTE), |to| {
            types::encode(&StructureType::single(kind.clone()), to);
            to.size(n_elements);
            // The fault at the end would be found first if the elements were decoded.
            to.bytes(&vec![element; n_elements - 1]);
            to.bytes(&[0xfe]);
        });

        assert_eq!(server.take(), [Event::Drained], "{kind:?}");
        let Answer::Rpc { status, .. } = server.answer().answer else { panic!("{kind:?}") };
        assert_eq!(status, RequestStatus::error("the server has no memory for the value"), "{kind:?}");
        server.send(&rpc(sid, 1, Subcommand::EXECUTE), types::encode_null);
        assert!(matches!(server.event(), Event::Rpc { .. }), "the operation remains");
    }
}

// Row 44 of docs/reference/faults.md.
#[test]
fn texts_count_with_their_memory_while_they_are_decoded() {
    for (budget, is_accepted) in [(3_000_000, false), (6_000_000, true)] {
        let mut server = Server::validated();
        let sid = server.channel(pair());
        server.send(&rpc(sid, 1, Subcommand::INIT), pv_request_body(""));
        server.take();
        server.answers();
        server.circuit.set_arriving_bytes_max(budget);

        server.send(&rpc(sid, 1, Subcommand::EXECUTE), |to| {
            types::encode(&StructureType::single(NodeKind::Array { kind: Kind::Text, size: ArraySize::Variable }), to);
            to.size(100_000);
            (0..100_000).for_each(|_| to.text(b"x"));
        });

        assert_eq!(matches!(server.event(), Event::Rpc { .. }), is_accepted, "{budget}");
    }
}
