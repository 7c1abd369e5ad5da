//! Requests that are rejected while the circuit stays open.

use super::*;

#[test]
fn row_13_a_request_with_a_payload_that_it_never_has_fails_alone() {
    let mut server = Server::with_channel();
    let create = Request::CreateChan { cid: Cid(8), minor: 13 };

    server.hear(&[with(create, &[b'x'; 1 << 20])]);

    assert_eq!(server.last(), Answer::Error { cid: Cid(u32::MAX), status: Eca::TOLARGE });
    assert!(server.is_usable());
}

#[test]
fn a_channel_name_without_its_end_names_no_pv() {
    let mut server = Server::with_channel();

    server.hear(&[with(Request::CreateChan { cid: Cid(8), minor: 13 }, &[b'x'; 8])]);

    assert_eq!(server.last(), Answer::CreateChFail { cid: Cid(8) });
    assert!(server.is_usable());
}

#[test]
fn row_18_a_subscription_without_a_mask_a_type_or_a_number_of_its_own_fails_alone() {
    let cancel =
        || bare(Request::EventCancel { dbr: DbrType(6), count: 1, sid: Sid(0), subscription: SubscriptionId(1) });
    let subscription = SubscriptionId(1);
    let unknown_type = with(Request::EventAdd { dbr: DbrType(39), count: 1, sid: Sid(0), subscription }, &[1; 16]);
    for (messages, status) in [
        (vec![event_add(0, 1, 0)], Eca::ALLOCMEM),
        (vec![event_add(0, 1, 0xffff)], Eca::ALLOCMEM),
        (vec![event_add(0, 1, 1), event_add(0, 1, 1)], Eca::ALLOCMEM),
        (vec![event_add(0, 1, 1), cancel(), cancel()], Eca::BADMONID),
        (vec![unknown_type], Eca::BADTYPE),
    ] {
        let mut server = Server::with_channel();

        server.hear(&messages);

        assert!(
            server
                .drain()
                .iter()
                .any(|(header, _)| { Answer::from_header(header) == Answer::Error { cid: Cid(7), status } })
        );
        assert!(server.is_usable());
    }
}

#[test]
fn row_23_a_name_of_a_user_or_host_that_is_too_long_or_without_end_is_ignored() {
    for request in [Request::ClientName {}, Request::HostName {}] {
        for (name, is_kept) in [(vec![b'a'; 512], true), (vec![b'a'; 513], false), (vec![b'a'; 60_000], false)] {
            let mut server = Server::new();

            server.hear(&[text(request, &name)]);

            assert!(server.is_usable(), "{} bytes", name.len());
            assert_eq!(server.events.iter().any(|event| matches!(event, server::Event::Identity { .. })), is_kept);
        }
        let mut server = Server::new();
        server.hear(&[with(request, &[b'a'; 16])]);
        assert!(matches!(server.last(), Answer::Error { status: Eca::INTERNAL, .. }), "no NUL");
        assert!(server.is_usable(), "no NUL");
    }
}
