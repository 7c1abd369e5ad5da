//! Requests that are rejected while the circuit stays open.

use super::*;

// Row 13 of docs/reference/faults.md.
#[test]
fn a_create_request_with_an_oversized_payload_fails_only_itself() {
    let mut server = Server::with_channel();
    let create = Request::CreateChan { cid: Cid(8), minor: 13 };

    server.receive(&[with(create, &[b'x'; 1 << 20])]);

    assert_eq!(server.last(), Answer::Error { cid: Cid(u32::MAX), status: Eca::TOLARGE });
    assert!(server.is_usable());
}

#[test]
fn a_channel_name_without_terminator_is_rejected() {
    let mut server = Server::with_channel();

    server.receive(&[with(Request::CreateChan { cid: Cid(8), minor: 13 }, &[b'x'; 8])]);

    assert_eq!(server.last(), Answer::CreateChFail { cid: Cid(8) });
    assert!(server.is_usable());
}

// Row 18 of docs/reference/faults.md.
#[test]
fn a_subscription_with_an_invalid_mask_type_or_id_fails_only_itself() {
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

        server.receive(&messages);

        assert!(
            server
                .drain()
                .iter()
                .any(|(header, _)| { Answer::from_header(header) == Answer::Error { cid: Cid(7), status } })
        );
        assert!(server.is_usable());
    }
}

// Row 23 of docs/reference/faults.md.
#[test]
fn an_overlong_or_unterminated_user_or_host_name_is_ignored() {
    for request in [Request::ClientName {}, Request::HostName {}] {
        for (name, is_kept) in [(vec![b'a'; 512], true), (vec![b'a'; 513], false), (vec![b'a'; 60_000], false)] {
            let mut server = Server::new();

            server.receive(&[text(request, &name)]);

            assert!(server.is_usable(), "{} bytes", name.len());
            assert_eq!(server.events.iter().any(|event| matches!(event, server::Event::Identity { .. })), is_kept);
        }
        let mut server = Server::new();
        server.receive(&[with(request, &[b'a'; 16])]);
        assert!(matches!(server.last(), Answer::Error { status: Eca::INTERNAL, .. }), "no NUL");
        assert!(server.is_usable(), "no NUL");
    }
}
