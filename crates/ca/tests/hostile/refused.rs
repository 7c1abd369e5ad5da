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

#[test]
fn only_clients_from_version_4_4_on_get_channels() {
    for (minor, is_served) in [(0, false), (3, false), (4, true), (13, true)] {
        let mut server = Server::with_channel();

        server.receive(&[text(Request::CreateChan { cid: Cid(8), minor }, b"x")]);

        let answer = server.last();
        assert_eq!(matches!(answer, Answer::CreateChan { cid: Cid(8), .. }), is_served, "{minor} {answer:?}");
        assert_eq!(matches!(answer, Answer::Error { status: Eca::DEFUNCT, .. }), !is_served, "{minor} {answer:?}");
    }
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

#[test]
fn requests_are_accepted_up_to_their_limits_and_not_beyond() {
    let (sid, subscription) = (Sid(0), SubscriptionId(1));
    let bytes_max = PAYLOAD_BYTES_MAX as u32;
    // An element of this type has one byte.
    let dbr = DbrType(4);
    let read = |count| bare(Request::ReadNotify { dbr, count, sid, ioid: Ioid(1) });
    let subscribe = |count| {
        let mut payload = [0; 16];
        payload[13] = 1;
        with(Request::EventAdd { dbr, count, sid, subscription }, &payload)
    };
    let create = |n_letters| text(Request::CreateChan { cid: Cid(8), minor: 13 }, &vec![b'x'; n_letters]);
    let search =
        |n_letters| text(Request::Search { reply: 5, minor: 13, cid: Cid(1), again: 1 }, &vec![b'x'; n_letters]);
    for (what, accepted, rejected) in [
        ("a read", read(bytes_max), read(bytes_max + 1)),
        ("a subscription", subscribe(bytes_max), subscribe(bytes_max + 1)),
        ("a mask", event_add(0, 1, 255), event_add(0, 1, 256)),
        ("a channel", create(limit::NAME_BYTES), create(limit::NAME_BYTES + 1)),
        ("a search", search(limit::NAME_BYTES), search(limit::NAME_BYTES + 1)),
        ("a short search", search(1), search(0)),
    ] {
        for (message, n_events) in [(accepted, 1), (rejected, 0)] {
            let mut server = Server::with_channel();

            server.receive(&[message]);

            assert_eq!(server.events.len(), n_events, "{what}: {:?}", server.events);
            assert!(server.is_usable(), "{what}");
        }
    }
}

#[test]
fn an_old_get_of_no_elements_is_a_get_of_one() {
    for (request, count) in [
        (Request::Read { dbr: DbrType(6), count: 0, sid: Sid(0), ioid: Ioid(1) }, 1),
        (Request::Read { dbr: DbrType(6), count: 2, sid: Sid(0), ioid: Ioid(1) }, 2),
        (Request::ReadNotify { dbr: DbrType(6), count: 0, sid: Sid(0), ioid: Ioid(1) }, 0),
    ] {
        let mut server = Server::with_channel();

        server.receive(&[bare(request)]);

        let [server::Event::Read { count: requested, .. }] = server.events[..] else { unreachable!("one read") };
        assert_eq!(requested, count, "{request}");
    }
}
