//! The memory of the pvRequests that a server keeps for puts.

use std::sync::Arc;

use fodo_data::{Kind, Node, NodeKind, Structure, StructureBuilder, StructureType, UnionMember, UnionType};
use fodo_pva::message::Subcommand;
use fodo_pva::server::CloseReason;
use fodo_pva::status::StatusLevel;
use fodo_pva::{limit, value};

use crate::scripted::{Server, put, pv_request_body};

#[test]
fn the_pv_request_of_each_put_counts_against_the_memory_of_the_circuit() {
    let (mut server, sid) = Server::with_double();
    let text = format!("record[note={}]", "x".repeat(1000));
    let before = server.circuit.held_bytes();

    server.init(&put(sid, 1, Subcommand::INIT), &text);
    let n_bytes = server.circuit.held_bytes() - before;
    server.init(&put(sid, 2, Subcommand::INIT), &text);
    assert!(n_bytes > limit::OPERATION_BYTES + 1000, "{n_bytes}");
    assert_eq!(server.circuit.held_bytes(), before + 2 * n_bytes);

    server.circuit.set_held_bytes_max(before + 3 * n_bytes - 1);
    server.send(&put(sid, 3, Subcommand::INIT), pv_request_body(&text));
    assert!(matches!(server.close_reason(), Some(CloseReason::Exceeded(_))));
}

/// What a server sends and keeps after the start of a put with this pvRequest.
fn started_put(request: StructureType) -> (Server, usize) {
    let (mut server, sid) = Server::with_double();
    let before = server.circuit.held_bytes();
    let request = Structure::new(Arc::new(request));
    server.send(&put(sid, 1, Subcommand::INIT), |to| value::encode_any(Some(&request), None, to));
    let n_bytes = server.circuit.held_bytes() - before;
    (server, n_bytes)
}

#[test]
fn the_types_in_the_pv_request_of_a_put_count_as_well() {
    let (_, small) = started_put(StructureBuilder::empty().finish());
    let (_, with_long_id) = started_put(StructureBuilder::new(&*"x".repeat(10_000)).finish());
    let of_number = |n: u32| UnionMember {
        name: format!("{n}").into(),
        kind: Arc::new(StructureType::single(NodeKind::Scalar(Kind::I8))),
    };
    let choice = UnionType { id: "".into(), members: (0..1000).map(of_number).collect() };
    let (_, with_union) =
        started_put(StructureBuilder::empty().leaf("choice", NodeKind::Union(Arc::new(choice))).finish());

    assert!(with_long_id >= small + 10_000, "{with_long_id}, {small}");
    assert!(with_union >= small + 1000 * size_of::<Node>(), "{with_union}, {small}");
}

#[test]
fn a_pv_request_that_is_too_long_and_one_of_a_put_with_a_variant_are_refused() {
    let long_id = "x".repeat(limit::PV_REQUEST_BYTES);
    for request in [
        StructureBuilder::new(&*long_id).finish(),
        StructureBuilder::empty().leaf("any", NodeKind::Any).finish(),
        StructureBuilder::empty().leaf("many", NodeKind::AnyArray).finish(),
    ] {
        let (mut server, n_bytes) = started_put(request);

        assert_eq!((server.answer().level(), n_bytes), (StatusLevel::Error, 0));
    }
}
