//! Memory limits of a circuit.

use super::*;

// Rows 17 and 18 of docs/reference/faults.md.
#[test]
fn one_circuit_accepts_a_million_channels_and_subscriptions() {
    const N: u32 = 1_000_000;
    let mut server = Server::new();
    for first in (0..N).step_by(1000) {
        let of_piece = first..first + 1000;
        let creates = of_piece.clone().map(|n| text(Request::CreateChan { cid: Cid(n), minor: 13 }, b"x"));
        server.receive(&creates.collect::<Vec<_>>());
        server.receive(&of_piece.map(|n| event_add(n, n, 1)).collect::<Vec<_>>());
        let n_ready = server.circuit.pending_bytes();
        server.circuit.sent(n_ready);
        server.events.clear();
    }

    assert!(!server.is_closed() && server.is_usable());
    server.receive(&[bare(Request::ReadNotify { dbr: DbrType(6), count: 1, sid: Sid(N - 1), ioid: Ioid(1) })]);
    assert!(matches!(server.last(), Answer::ReadNotify { status: Eca::NORMAL, .. }));
}

// Rows 17 and 18 of docs/reference/faults.md.
#[test]
fn a_circuit_that_exceeds_its_memory_limit_gets_an_error_and_is_closed() {
    const MAX: usize = 10 * limit::CHANNEL_BYTES + 5 * limit::SUBSCRIPTION_BYTES;
    let create = |n| text(Request::CreateChan { cid: Cid(n), minor: 13 }, b"x");
    for (first_too_many, what) in [(create(10), "a channel"), (event_add(3, 5, 1), "a subscription")] {
        let mut server = Server::new();
        server.circuit.set_held_bytes_max(MAX);
        (0..10).for_each(|n| server.receive(&[create(n)]));
        (0..5).for_each(|n| server.receive(&[event_add(n, n, 1)]));
        assert!(server.is_usable() && server.circuit.held_bytes() == MAX);

        server.receive(&[first_too_many]);

        assert!(matches!(server.last(), Answer::Error { status: Eca::ALLOCMEM, .. }), "{what}");
        assert!(
            matches!(server.events.last(), Some(server::Event::Closed(server::CloseReason::Exceeded(_)))),
            "{what}"
        );
    }
}

// Rows 17 and 18 of docs/reference/faults.md.
#[test]
fn memory_of_cleared_channels_and_subscriptions_is_available_again() {
    let mut server = Server::new();
    server.circuit.set_held_bytes_max(limit::CHANNEL_BYTES + limit::SUBSCRIPTION_BYTES);

    for n in 0..100 {
        server.receive(&[text(Request::CreateChan { cid: Cid(n), minor: 13 }, b"x")]);
        server.receive(&[event_add(0, n, 1)]);
        server.receive(&[bare(Request::ClearChannel { sid: Sid(0), cid: Cid(n) })]);
    }

    assert!(server.is_usable());
    assert_eq!(server.circuit.held_bytes(), 0);
}

/// The status of the latest reply, which must be the reply to a put.
fn put_status(server: &mut Server) -> Eca {
    match server.last() {
        Answer::WriteNotify { status, ioid: Ioid(9), .. } => status,
        other => panic!("{other:?}"),
    }
}

// Row 80 of docs/reference/faults.md.
#[test]
fn bytes_of_a_partial_put_are_counted_until_it_is_complete() {
    let mut server = Server::with_array();
    let (put, before) = (put_of(100_000), server.circuit.held_bytes());

    server.receive(&[put[..400_000].to_vec()]);
    let half = server.circuit.held_bytes() - before;
    server.receive(&[put[400_000..].to_vec()]);

    assert!((390_000..=400_000).contains(&half), "{half}");
    assert_eq!(server.circuit.held_bytes(), before);
    assert!(matches!(server.events.last(), Some(server::Event::Write { .. })));
}

// Row 80 of docs/reference/faults.md.
#[test]
fn a_put_beyond_the_memory_limit_is_rejected_and_the_circuit_stays_usable() {
    let put = put_of(100_000);
    let head_first = [put[..24].to_vec(), put[24..].to_vec()];
    for (room_at_first, what) in [(799_999, "by its header"), (usize::MAX, "while it arrives")] {
        let mut server = Server::with_array();
        let before = server.circuit.held_bytes();
        server.circuit.set_arriving_bytes_max(room_at_first);
        server.receive(&head_first[..1]);
        server.circuit.set_arriving_bytes_max(100_000);

        for piece in head_first[1].chunks(2048) {
            server.receive(&[piece.to_vec()]);
            let arrived = server.circuit.held_bytes() - before;
            assert!(arrived <= 102_048, "{what}: {arrived}");
            server.circuit.set_arriving_bytes_max(100_000_usize.saturating_sub(arrived));
        }

        assert_eq!(put_status(&mut server), Eca::ALLOCMEM, "{what}");
        assert_eq!(server.events, [server::Event::Drained(server::DroppedPut::NoRoom)], "{what}");
        assert!(server.is_usable(), "{what}");
    }
}

// Row 80 of docs/reference/faults.md.
#[test]
fn a_put_without_write_access_is_rejected_by_its_header_and_takes_no_memory() {
    let mut server =
        Server { n_elements: 100_000, rights: Rights { read: true, write: false }, ..Server::new() }.connected();
    let (put, before) = (put_of(100_000), server.circuit.held_bytes());

    server.receive(&[put[..400_000].to_vec()]);

    assert_eq!(put_status(&mut server), Eca::NOWTACCESS);
    assert_eq!(server.circuit.held_bytes(), before);
    server.receive(&[put[400_000..].to_vec()]);
    assert_eq!(server.events, [server::Event::Drained(server::DroppedPut::NoAccess)]);
    server.circuit.rights_changed(Sid(0), Rights { read: true, write: true });
    server.receive(&[put]);
    assert!(matches!(server.events.last(), Some(server::Event::Write { .. })), "a put within the limit succeeds");
}
