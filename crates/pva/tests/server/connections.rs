//! The start of a circuit, its channels, searches and what is ignored.

use std::net::Ipv6Addr;

use fodo_data::{Kind, Structure, StructureBuilder, Text};
use fodo_pva::cursor::ByteOrder;
use fodo_pva::frame::{Control, Sender};
use fodo_pva::guid::Guid;
use fodo_pva::message::{Answer, NewChannel, Request};
use fodo_pva::search::{SearchFlags, SearchRequest, SearchResponse, SearchedChannel, TCP, TLS};
use fodo_pva::server::{self, ChannelType, Event};
use fodo_pva::status::{RequestStatus, StatusLevel};
use fodo_pva::types;
use fodo_pva::validation::Credentials;
use fodo_pva::{Cid, Ioid, Sid, limit};

use crate::scripted::{Server, double, pair};

fn create(names: &[&str]) -> Request {
    let channels = names.iter().zip(1..).map(|(name, cid)| NewChannel { cid: Cid(cid), name: (*name).into() });
    Request::CreateChannel { channels: channels.collect() }
}

fn identity(user: impl Into<Text>) -> Credentials {
    Credentials::Ca { user: user.into(), host: "desk".into() }
}

#[test]
fn the_server_speaks_first_and_offers_two_methods() {
    let mut server = Server::new();

    let expected = b"\xca\x02\x41\x02\0\0\0\0\xca\x02\x40\x01\x14\0\0\0\0\0\x01\0\xff\x7f\x02\x09anonymous\x02ca";
    assert_eq!(server.sent(), expected);
}

#[test]
fn a_client_is_identified_by_either_method_in_both_byte_orders() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        for (credentials, expected) in
            [(identity("ann"), ("ann", "desk", "ca")), (Credentials::Anonymous, ("", "", "anonymous"))]
        {
            let mut server = Server::new();
            server.order = order;
            server.sent();

            server.validate(&credentials);

            let Event::Identity { user, host, method } = server.event() else { panic!("no identity") };
            assert_eq!((user.as_str(), host.as_str(), method), expected);
            assert_eq!(server.answer().answer, Answer::ConnectionValidated { status: RequestStatus::OK });
        }
    }
}

// Row 45 of docs/reference/faults.md.
#[test]
fn an_unknown_method_or_a_huge_name_gives_no_identity_and_leaves_the_circuit_usable() {
    let certificate = Credentials::Other { method: "x509".into(), value: None };
    let host = Credentials::Ca { user: "ann".into(), host: "x".repeat(513).into() };
    for credentials in [certificate, identity("x".repeat(513)), host] {
        let mut server = Server::new();
        server.sent();

        server.validate(&credentials);

        assert_eq!((server.take(), server.answer().level()), (vec![], StatusLevel::Error));
        server.channel(double());
    }
}

#[test]
fn the_longest_names_of_a_client_and_of_a_channel_are_accepted() {
    let mut server = Server::new();
    server.sent();
    let (user, name) = ("x".repeat(limit::IDENTITY_BYTES), "y".repeat(limit::NAME_BYTES));

    server.validate(&identity(user.as_str()));
    server.send(&create(&[&name, &(name.clone() + "y")]), |_| {});

    let identified = Event::Identity { user, host: "desk".into(), method: "ca" };
    assert_eq!(server.take(), [identified, Event::Create { cid: Cid(1), name }]);
    let levels = server.answers().iter().map(|answer| answer.level()).collect::<Vec<_>>();
    assert_eq!(levels, [StatusLevel::Ok, StatusLevel::Fatal]);
}

#[test]
fn the_first_identity_is_final() {
    let mut server = Server::validated();

    server.validate(&identity("root"));

    assert_eq!((server.take(), server.answer().level()), (vec![], StatusLevel::Error));
}

#[test]
fn a_rejected_client_receives_a_fatal_status() {
    let mut out = Vec::new();
    server::refusal("too many clients", &mut out);

    let mut status = Vec::new();
    let text = RequestStatus { level: StatusLevel::Fatal, ..RequestStatus::error("too many clients") };
    Answer::ConnectionValidated { status: text }.encode(ByteOrder::Little, &mut status, |_| {});
    assert!(out.starts_with(&Server::new().sent()) && out.ends_with(&status));
}

#[test]
fn channels_are_created_before_validation_and_several_in_one_message() {
    let mut server = Server::new();
    server.sent();

    server.send(&create(&["one", "two"]), |_| {});

    let expected = ["one", "two"].iter().zip(1..);
    let expected = expected.map(|(name, cid)| Event::Create { cid: Cid(cid), name: (*name).into() });
    assert_eq!(server.take(), expected.collect::<Vec<_>>());
    let sids = [1, 2].map(|cid| server.circuit.created(Cid(cid), double()));
    assert_eq!(sids, [Sid(0), Sid(1)]);
    let confirmed = |cid, sid| Answer::CreateChannel { cid, sid, status: RequestStatus::OK };
    let answers: Vec<Answer> = server.answers().into_iter().map(|received| received.answer).collect();
    assert_eq!(answers, [confirmed(Cid(1), Sid(0)), confirmed(Cid(2), Sid(1))]);
}

#[test]
fn a_channel_that_does_not_exist_or_has_an_invalid_name_is_refused() {
    let mut server = Server::validated();
    let long = "x".repeat(2000);
    server.send(&create(&["absent", "", &long]), |_| {});
    let latin = NewChannel { cid: Cid(4), name: Text::from_bytes(b"\xb0C") };
    server.send(&Request::CreateChannel { channels: vec![latin] }, |_| {});

    assert_eq!(server.event(), Event::Create { cid: Cid(1), name: "absent".into() });
    server.circuit.create_failed(Cid(1), "there is no PV with this name");

    let mut refused = Vec::new();
    for received in server.answers() {
        assert_eq!(received.level(), StatusLevel::Fatal);
        let Answer::CreateChannel { cid, sid, status } = received.answer else { panic!("{received:?}") };
        assert_eq!(sid, Sid(u32::MAX));
        refused.push((cid.0, status.message.to_str().into_owned()));
    }
    let reasons = ["the name is empty, too long or not UTF-8"; 3].into_iter().chain(["there is no PV with this name"]);
    assert_eq!(refused, [2, 3, 4, 1].into_iter().zip(reasons.map(String::from)).collect::<Vec<_>>());
}

#[test]
fn the_number_of_a_destroyed_channel_is_reused_once_its_events_were_processed() {
    let (mut server, sid) = Server::with_double();
    server.send(&Request::DestroyChannel { sid, cid: Cid(9) }, |_| {});
    let next = server.circuit.created(Cid(10), double());
    assert_ne!(next, sid);
    server.answers();

    assert_eq!(server.event(), Event::Clear { sid });
    server.send(&Request::DestroyChannel { sid, cid: Cid(9) }, |_| {});

    assert_eq!((server.take(), server.answer().answer), (vec![], Answer::DestroyChannel { sid, cid: Cid(9) }));
    assert_eq!(server.circuit.created(Cid(11), double()), sid);
}

fn search<'a>(flags: SearchFlags, protocol: &str, names: &[&'a str]) -> SearchRequest<'a> {
    let channels = names.iter().zip(1..).map(|(name, cid)| SearchedChannel { cid: Cid(cid), name: name.as_bytes() });
    SearchRequest {
        sequence: 77,
        flags,
        address: Ipv6Addr::UNSPECIFIED,
        port: 0,
        protocols: vec![protocol.into()],
        channels: channels.collect(),
    }
}

#[test]
fn a_name_server_replies_with_the_channels_that_it_found() {
    let no_flags = SearchFlags(0);
    for (flags, protocol, found, expected) in [
        (no_flags, TCP, vec![Cid(2)], Some((true, vec![Cid(2)]))),
        (no_flags, TCP, vec![], None),
        (SearchFlags::MUST_REPLY, TCP, vec![], Some((false, vec![]))),
        (SearchFlags::MUST_REPLY, TLS, vec![], Some((false, vec![]))),
    ] {
        let mut server = Server::validated();
        let names = ["one", "two"];
        server.send(&Request::Search {}, |to| search(flags, protocol, &names).encode(to));

        let Event::Search { search, names } = server.event() else { panic!("no search") };
        assert_eq!(names.len(), if protocol == TCP { 2 } else { 0 });
        server.circuit.searched(search, 5075, &found);

        let responses = server.answers();
        let response = responses.first().map(|received| SearchResponse::decode(&mut received.reader()));
        assert_eq!(response.as_ref().map(|response| (response.is_found, response.cids.clone())), expected);
        if let Some(response) = response {
            assert_eq!((response.sequence, response.port, response.guid), (77, 5075, Guid::from_bits(1, 2)));
        }
    }
}

// Row 31 of docs/reference/faults.md.
#[test]
fn a_search_over_tcp_that_is_cut_off_is_for_its_complete_names() {
    let mut server = Server::validated();
    let mut bytes = Vec::new();
    let names = ["one", "", "three", "four"];
    search(SearchFlags::MUST_REPLY, TCP, &names)
        .encode(&mut fodo_pva::cursor::ByteWriter::new(&mut bytes, server.order));
    bytes.truncate(bytes.len() - 2);

    server.send(&Request::Search {}, |to| to.bytes(&bytes));

    let Event::Search { names, .. } = server.event() else { panic!("no search") };
    assert_eq!(names, [(Cid(1), "one".into()), (Cid(3), "three".into())]);
    assert!(server.is_alive());
}

#[test]
fn an_echo_returns_its_body_and_unknown_messages_are_ignored() {
    let mut server = Server::new();
    server.sent();
    for order in [ByteOrder::Big, ByteOrder::Little] {
        server.order = order;
        server.send(&Request::Unknown(99), |to| to.bytes(b"unknown"));
        server.send(&Request::Authentication {}, |to| to.bytes(b"unknown"));
        server.receive(&Control::EchoRequest(7).header(Sender::Client, order).encode());
        server.send(&Request::Echo {}, |to| to.bytes(b"body"));

        let received = server.answer();
        assert_eq!((received.answer, received.body, server.take()), (Answer::Echo {}, b"body".to_vec(), vec![]));
    }
}

#[test]
fn the_type_of_a_channel_or_of_one_of_its_fields_is_described() {
    let mut server = Server::validated();
    let sid = server.channel(pair());
    for (path, expected) in [
        ("", "pair_t {I32 left, {F64 x, I16[] list} right}"),
        ("right", "{F64 x, I16[] list}"),
        ("right.list", "I16[]"),
    ] {
        server.send(&Request::GetField { sid, ioid: Ioid(1), sub_field: path.into() }, |_| {});

        assert_eq!(server.take(), []);
        let received = server.answer();
        assert_eq!(received.answer, Answer::GetField { ioid: Ioid(1), status: RequestStatus::OK });
        let found = types::decode(&mut received.reader(), &mut server.types).unwrap();
        assert_eq!(found.to_string(), expected);
    }
    for (sid, path) in [(sid, "middle"), (Sid(77), "")] {
        server.send(&Request::GetField { sid, ioid: Ioid(1), sub_field: path.into() }, |_| {});
        assert_eq!(server.answer().level(), StatusLevel::Error);
    }
}

#[test]
fn credentials_may_use_type_ids_and_have_unknown_members() {
    let mut build = StructureBuilder::new("");
    build.scalar("host", Kind::Text).scalar("extra", Kind::F64).scalar("user", Kind::Text);
    let mut value = Structure::new(build.finish().into());
    value.set("user", "eve").unwrap();
    let mut server = Server::new();

    let request = Request::ConnectionValidation { buffer_bytes: 0, registry_size: 10, qos: 0, method: "ca".into() };
    server.send(&request, |to| fodo_pva::value::encode_any(Some(&value), Some(&mut types::TypeIds::new(10)), to));

    assert_eq!(server.event(), Event::Identity { user: "eve".into(), host: String::new(), method: "ca" });
    assert!(server.circuit.held_bytes() > 0, "the type is stored");
}

#[test]
fn a_channel_type_is_that_of_its_layout() {
    let ChannelType::Flat(layout) = double() else { panic!("a double is flat") };

    assert_eq!(ChannelType::Flat(layout.clone()).kind(), layout.kind());
    assert_eq!(pair().kind().id(), &Text::from("pair_t"));
}
