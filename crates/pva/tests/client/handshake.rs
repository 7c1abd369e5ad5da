//! The start of a circuit: the server sends first.

use fodo_data::Text;
use fodo_engine::search::{ClaimedServer, Transport};
use fodo_pva::Cid;
use fodo_pva::client::{DisconnectReason, Event};
use fodo_pva::cursor::{ByteOrder, ByteReader};
use fodo_pva::message::{Answer, NewChannel, Request};
use fodo_pva::search::SearchedChannel;
use fodo_pva::status::RequestStatus;
use fodo_pva::types::TypeCache;
use fodo_pva::validation::Credentials;

use crate::dialog::{Dialog, ORDERS};

fn creates(cid: u32, name: &str) -> Request {
    Request::CreateChannel { channels: vec![NewChannel { cid: Cid(cid), name: name.into() }] }
}

/// What the client has sent about itself.
fn identity(dialog: &mut Dialog) -> (Request, Credentials) {
    let [(request, body)] = <[_; 1]>::try_from(dialog.sent_with_bodies()).unwrap();
    let Request::ConnectionValidation { method, .. } = &request else { panic!("{request}") };
    let mut reader = ByteReader::new(&body, dialog.required);
    let credentials = Credentials::decode(method, &mut reader, &mut TypeCache::new());
    assert_eq!((reader.n_left(), reader.finish()), (0, Ok(())));
    (request, credentials)
}

#[test]
fn requests_wait_for_the_handshake_and_are_then_sent_in_order() {
    for order in ORDERS {
        let mut dialog = Dialog::new(order);
        dialog.circuit.create(Cid(1), "w:one", dialog.now);
        dialog.circuit.create(Cid(2), "w:two", dialog.now);
        assert_eq!((dialog.sent(), dialog.circuit.is_accepted()), (vec![], false));

        dialog.greet(order, &["anonymous", "ca"]);
        let (request, credentials) = identity(&mut dialog);
        let expected = Request::ConnectionValidation {
            buffer_bytes: 0x1_0000,
            registry_size: 0x7fff,
            qos: 7,
            method: "ca".into(),
        };
        assert_eq!(request, expected);
        assert_eq!(credentials, Credentials::Ca { user: "operator".into(), host: "127.0.0.1".into() });

        dialog.circuit.create(Cid(3), "w:three", dialog.now);
        assert_eq!((dialog.sent(), dialog.circuit.is_accepted()), (vec![], false));
        dialog.answer(&Answer::ConnectionValidated { status: RequestStatus::OK });
        assert_eq!(dialog.sent(), [creates(1, "w:one"), creates(2, "w:two"), creates(3, "w:three")]);
        dialog.circuit.create(Cid(4), "w:four", dialog.now);
        assert_eq!((dialog.sent(), dialog.events()), (vec![creates(4, "w:four")], vec![]));
        assert!(dialog.circuit.is_accepted());
    }
}

#[test]
fn the_client_sends_in_the_order_of_the_control_message_and_decodes_each_message_in_its_own() {
    let mut dialog = Dialog::new(ByteOrder::Little);

    dialog.greet(ByteOrder::Big, &["ca"]);
    identity(&mut dialog);
    dialog.answer(&Answer::ConnectionValidated { status: RequestStatus::OK });
    dialog.circuit.create(Cid(1), "w:one", dialog.now);

    assert_eq!(dialog.sent(), [creates(1, "w:one")]);
}

#[test]
fn a_server_without_the_method_ca_gets_an_anonymous_client() {
    for methods in [&["anonymous"][..], &["x509"], &[]] {
        let mut dialog = Dialog::new(ByteOrder::Little);
        dialog.greet(ByteOrder::Little, methods);

        assert_eq!(identity(&mut dialog).1, Credentials::Anonymous, "{methods:?}");
    }
}

#[test]
fn a_client_that_the_server_rejects_closes_the_circuit() {
    let mut dialog = Dialog::new(ByteOrder::Little);
    dialog.greet(ByteOrder::Little, &["ca"]);
    let status = RequestStatus::error("not you");

    dialog.answer(&Answer::ConnectionValidated { status: status.clone() });
    dialog.answer(&Answer::ConnectionValidated { status: RequestStatus::OK });

    let reason = DisconnectReason::Rejected(status);
    assert_eq!(reason.to_string(), "the server rejects the client: ERROR \"not you\"");
    assert_eq!(dialog.events(), [Event::Closed(reason)]);
    assert_eq!(dialog.circuit.deadline(), None);
}

#[test]
fn a_greeting_is_answered_once() {
    let mut dialog = Dialog::validated(ByteOrder::Little);

    dialog.greet(ByteOrder::Little, &["ca"]);
    dialog.answer(&Answer::ConnectionValidated { status: RequestStatus::OK });

    assert_eq!((dialog.sent(), dialog.events()), (vec![], vec![]));
}

#[test]
fn a_confirmation_before_the_greeting_sends_nothing() {
    let mut dialog = Dialog::new(ByteOrder::Little);
    dialog.circuit.create(Cid(1), "w:one", dialog.now);

    dialog.answer(&Answer::ConnectionValidated { status: RequestStatus::OK });

    assert_eq!((dialog.sent(), dialog.events()), (vec![], vec![]));
}

#[test]
fn names_are_searched_over_tcp_after_the_handshake() {
    let mut dialog = Dialog::new(ByteOrder::Big);
    let names = [SearchedChannel { cid: Cid(5), name: b"w:one" }, SearchedChannel { cid: Cid(6), name: b"w:two" }];
    dialog.circuit.set_transports(&[Transport::Tls, Transport::Tcp]);
    dialog.circuit.search(&names);
    assert!(!dialog.circuit.holds_nothing(), "a search that waits for the handshake");
    dialog.greet(ByteOrder::Big, &["ca"]);
    dialog.answer(&Answer::ConnectionValidated { status: RequestStatus::OK });

    let (request, body) = dialog.sent_with_bodies().pop().unwrap();

    let search = fodo_pva::search::SearchRequest::decode(&mut ByteReader::new(&body, ByteOrder::Big));
    assert_eq!((request, &search.channels[..]), (Request::Search {}, &names[..]));
    assert_eq!((search.protocols, search.port), (vec!["tls".into(), "tcp".into()], 0));
}

#[test]
fn a_search_response_names_the_server_or_means_the_name_server_itself_by_a_transport_that_the_client_can_use() {
    use fodo_pva::search::{SearchResponse, wire_address};
    let response = |address: [u8; 4], protocol: &str, is_found| SearchResponse {
        guid: Default::default(),
        sequence: 0,
        address: wire_address(address.into()),
        port: 5075,
        protocol: Text::from(protocol),
        is_found,
        cids: vec![Cid(5), Cid(6)],
    };
    let (elsewhere, itself) = (Some([10, 0, 0, 1].into()), None);

    let by_tcp = [(elsewhere, Transport::Tcp), (itself, Transport::Tcp)];
    let by_tls = [(elsewhere, Transport::Tls)];
    let cases: [(&'static [Transport], Vec<_>); 3] = [
        (&[Transport::Tcp], by_tcp.to_vec()),
        (&[Transport::Tls], by_tls.to_vec()),
        (&[Transport::Tls, Transport::Tcp], [&by_tcp[..], &by_tls].concat()),
    ];

    for (transports, expected) in cases {
        let mut dialog = Dialog::validated(ByteOrder::Little);
        dialog.circuit.set_transports(transports);

        for response in [
            response([10, 0, 0, 1], "tcp", true),
            response([0, 0, 0, 0], "tcp", true),
            response([10, 0, 0, 1], "tls", true),
            response([10, 0, 0, 1], "quic", true),
            response([10, 0, 0, 1], "tcp", false),
        ] {
            dialog.answer_with(&Answer::SearchResponse {}, |to| response.encode(to));
        }

        let claimed = |(ip, transport)| {
            let server = ClaimedServer { ip, port: 5075, transport };
            [5, 6].map(|cid| Event::Claimed { cid: Cid(cid), server })
        };
        assert_eq!(dialog.events(), expected.into_iter().flat_map(claimed).collect::<Vec<_>>());
    }
}
