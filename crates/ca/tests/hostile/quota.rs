//! How much one circuit may hold.

use super::*;

#[test]
fn row_17_and_18_a_million_channels_and_subscriptions_of_one_circuit_are_no_fault() {
    const N: u32 = 1_000_000;
    let mut server = Server::new();
    for first in (0..N).step_by(1000) {
        let of_piece = first..first + 1000;
        let creates = of_piece.clone().map(|n| text(Request::CreateChan { cid: Cid(n), minor: 13 }, b"x"));
        server.hear(&creates.collect::<Vec<_>>());
        server.hear(&of_piece.map(|n| event_add(n, n, 1)).collect::<Vec<_>>());
        let n_ready = server.circuit.pending_bytes();
        server.circuit.sent(n_ready);
        server.events.clear();
    }

    assert!(!server.is_closed() && server.is_usable());
    server.hear(&[bare(Request::ReadNotify { dbr: DbrType(6), count: 1, sid: Sid(N - 1), ioid: Ioid(1) })]);
    assert!(matches!(server.last(), Answer::ReadNotify { status: Eca::NORMAL, .. }));
}

#[test]
fn row_17_and_18_who_holds_more_than_it_may_is_told_and_closed() {
    const MAX: usize = 10 * limit::CHANNEL_BYTES + 5 * limit::SUBSCRIPTION_BYTES;
    let create = |n| text(Request::CreateChan { cid: Cid(n), minor: 13 }, b"x");
    for (first_too_many, what) in [(create(10), "a channel"), (event_add(3, 5, 1), "a subscription")] {
        let mut server = Server::new();
        server.circuit.set_held_bytes_max(MAX);
        (0..10).for_each(|n| server.hear(&[create(n)]));
        (0..5).for_each(|n| server.hear(&[event_add(n, n, 1)]));
        assert!(server.is_usable() && server.circuit.held_bytes() == MAX);

        server.hear(&[first_too_many]);

        assert!(matches!(server.last(), Answer::Error { status: Eca::ALLOCMEM, .. }), "{what}");
        assert!(matches!(server.events.last(), Some(server::Event::Closed(server::Closed::Exceeded(_)))), "{what}");
    }
}

#[test]
fn row_17_and_18_what_is_given_back_can_be_had_again() {
    let mut server = Server::new();
    server.circuit.set_held_bytes_max(limit::CHANNEL_BYTES + limit::SUBSCRIPTION_BYTES);

    for n in 0..100 {
        server.hear(&[text(Request::CreateChan { cid: Cid(n), minor: 13 }, b"x")]);
        server.hear(&[event_add(0, n, 1)]);
        server.hear(&[bare(Request::ClearChannel { sid: Sid(0), cid: Cid(n) })]);
    }

    assert!(server.is_usable());
    assert_eq!(server.circuit.held_bytes(), 0);
}
