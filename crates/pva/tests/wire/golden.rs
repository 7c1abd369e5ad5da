//! Frames of several programs, observed on the wire: each decodes to the expected message and is encoded to the same
//! bytes.

use std::sync::Arc;

use fodo_data::{Kind, normative_type};
use fodo_pva::Ioid;
use fodo_pva::cursor::{ByteOrder, ByteReader, ByteWriter};
use fodo_pva::frame::Sender::{Client, Server};
use fodo_pva::frame::{Header, Portion, Sender};
use fodo_pva::message::{Answer, Request, Subcommand};
use fodo_pva::status::RequestStatus;
use fodo_pva::types::{self, TypeCache, TypeIds};
use fodo_pva::validation::Credentials;

use crate::conversation::{Conversation, Message};

/// Bytes from hexadecimal words, quoted texts, and `n*word` for repetitions.
fn bytes(text: &str) -> Vec<u8> {
    let word = |word: &str| -> Vec<u8> {
        match word.strip_prefix('"') {
            Some(text) => text.trim_end_matches('"').bytes().collect(),
            None => (0..word.len()).step_by(2).map(|at| u8::from_str_radix(&word[at..at + 2], 16).unwrap()).collect(),
        }
    };
    let words = text.split_whitespace().flat_map(|text| match text.split_once('*') {
        Some((n, text)) => word(text).repeat(n.parse().unwrap()),
        None => word(text),
    });
    words.collect()
}

/// The only message of a frame, which must be encoded to the same bytes.
fn only(conversation: &mut Conversation, from: Sender, frame: &str) -> Message {
    let frame = bytes(frame);
    let mut messages = conversation.take(from, &frame);
    assert_eq!(messages.len(), 1);
    let message = messages.remove(0);
    assert_eq!(message.encoded(message.order), frame, "{}", message.prefix);
    message
}

#[test]
fn frames_that_need_no_earlier_message_round_trip() {
    for (from, frame, prefix, body) in [
        (Server, "ca024102 00000000", "SetByteOrder(0)", ""),
        (
            Server,
            r#"ca024001 14000000 00000100 ff7f 02 09 "anonymous" 02 "ca""#,
            r#"CONNECTION_VALIDATION buffer_bytes=65536 registry_size=32767 methods=["anonymous", "ca"]"#,
            "",
        ),
        (
            Server,
            r#"ca024001 14000000 00440000 ff7f 02 09 "anonymous" 02 "ca""#,
            r#"CONNECTION_VALIDATION buffer_bytes=17408 registry_size=32767 methods=["anonymous", "ca"]"#,
            "",
        ),
        (
            Client,
            r#"ca020001 22000000 00000100 ff7f 0000 02 "ca" 80 00 02 04 "user" 60 04 "host" 60 04 "root" 02 "vm""#,
            r#"CONNECTION_VALIDATION buffer_bytes=65536 registry_size=32767 qos=0 method="ca""#,
            "root on vm",
        ),
        (Server, "ca024009 01000000 ff", "CONNECTION_VALIDATED status=OK", ""),
        (Client, r#"ca020007 0b000000 0100 78563412 04 "T:ao""#, r#"CREATE_CHANNEL channels=[305419896 "T:ao"]"#, ""),
        (Server, "ca024007 09000000 78563412 01030507 ff", "CREATE_CHANNEL cid=305419896 sid=117768961 status=OK", ""),
        (
            Client,
            r#"ca02000a 15000000 01030507 00200010 08 80 00 01 05 "field" 80 00 00"#,
            "GET sid=117768961 ioid=268443648 sub=0x08",
            "field()",
        ),
        (Client, "ca02000a 09000000 01030507 00200010 00", "GET sid=117768961 ioid=268443648 sub=0x00", ""),
        (Client, "ca02000d 09000000 01030507 00200010 44", "MONITOR sid=117768961 ioid=268443648 sub=0x44", ""),
        (
            Client,
            "ca02000d 0d000000 01030507 00200010 80 02000000",
            "MONITOR sid=117768961 ioid=268443648 sub=0x80",
            "2 more",
        ),
        (Client, "ca02000f 08000000 01030507 00200010", "DESTROY_REQUEST sid=117768961 ioid=268443648", ""),
        (
            Client,
            r#"ca028003 0000002c 66696e64 80 000000 16*00 d2d9 01 03 "tcp" 0001 12345678 06 "T:enum""#,
            "SEARCH",
            "SearchRequest { sequence: 1718185572, flags: SearchFlags(128), address: ::, port: 53977, \
             protocols: [\"tcp\"], channels: [305419896 \"T:enum\"] }",
        ),
        (
            Client,
            r#"ca020003 2c000000 01000000 80 000000 10*00 ffff 00000000 90b9 01 03 "tcp" 0100 41302010 06 "T:enum""#,
            "SEARCH",
            "SearchRequest { sequence: 1, flags: SearchFlags(128), address: ::ffff:0.0.0.0, port: 47504, \
             protocols: [\"tcp\"], channels: [270544961 \"T:enum\"] }",
        ),
        (
            Server,
            r#"ca024004 2d000000 0123456789ab012345670123 "abcd" 16*00 d313 03 "tcp" 01 0100 2a000000"#,
            "SEARCH_RESPONSE",
            "SearchResponse { guid: 0123456789ab012345670123, sequence: 1684234849, address: ::, port: 5075, \
             protocol: \"tcp\", is_found: true, cids: [Cid(42)] }",
        ),
        (Server, "ca024006 05000000 78563412 00", "ACL_CHANGE cid=305419896 rights=0", ""),
    ] {
        let message = only(&mut Conversation::new(), from, frame);

        assert_eq!(message.prefix.to_string(), prefix);
        assert_eq!(message.body.to_string(), body);
    }
}

/// A circuit in which the operation 0x10002000 has the type of a double.
fn with_double(start: fn(&mut Conversation, &mut Vec<u8>)) -> Conversation {
    let mut conversation = Conversation::new();
    let mut out = Vec::new();
    start(&mut conversation, &mut out);
    conversation.take(Server, &out);
    conversation
}

const OPERATION: Ioid = Ioid(0x1000_2000);

#[test]
fn the_delta_of_a_monitor_with_flow_control_round_trips() {
    let mut conversation = with_double(|conversation, out| {
        let start = only(
            conversation,
            Client,
            r#"ca02000d 4b000000 01030507 00200010 88 80 00 02 05 "field" 80 00 00 06 "record" 80 00 01 08 "_options"
               80 00 02 08 "pipeline" 60 09 "queueSize" 60 04 "true" 01 "4" 04000000"#,
        );
        assert_eq!(start.body.to_string(), "field()record[pipeline=true,queueSize=4] 4 more");
        Answer::Monitor { ioid: OPERATION, sub: Subcommand::INIT }.encode(ByteOrder::Little, out, |to| {
            RequestStatus::OK.encode(to);
            types::encode(&normative_type(Kind::F64, false), to);
        });
    });

    let delta = "ca02400d 21000000 00200010 00 02 8203 00000000805ac240 17e9006b00000000 865e2d0f 00000000 00";
    let update = only(&mut conversation, Server, delta);

    let expected =
        "value=9397 timeStamp.secondsPastEpoch=1795221783 timeStamp.nanoseconds=254631558 timeStamp.userTag=0";
    assert_eq!(update.body.to_string(), expected);
}

#[test]
fn a_put_and_its_reply_round_trip() {
    let mut conversation = with_double(|conversation, out| {
        only(conversation, Client, "ca02000b 0c000000 01030507 00200010 08 80 00 00");
        Answer::Put { ioid: OPERATION, sub: Subcommand::INIT, status: RequestStatus::OK }.encode(
            ByteOrder::Little,
            out,
            |to| types::encode(&normative_type(Kind::F64, false), to),
        );
    });

    let put = only(&mut conversation, Client, "ca02000b 13000000 01030507 00200010 00 01 02 000000000000f43f");
    let done = only(&mut conversation, Server, "ca02400b 06000000 00200010 00 ff");

    assert_eq!(put.body.to_string(), "value=1.25");
    assert_eq!(done.prefix.to_string(), "PUT ioid=268443648 sub=0x00 status=OK");
}

#[test]
fn types_with_ids_are_the_same_bytes_as_from_pvaccesscpp() {
    let frame = bytes(
        r#"ca020001 25000000 001e3c00 ff7f 0000 02 "ca" fd 0100 80 00 02 04 "user" 60 04 "host" 60 04 "root" 02 "vm""#,
    );
    let mut ours = Vec::new();
    let credentials = Credentials::Ca { user: "root".into(), host: "vm".into() };
    let mut ids = TypeIds::new(0x7fff);
    Request::ConnectionValidation { buffer_bytes: 0x3c_1e00, registry_size: 0x7fff, qos: 0, method: "ca".into() }
        .encode(ByteOrder::Little, &mut ours, |to| credentials.encode(Some(&mut ids), to));
    assert_eq!(ours, frame);

    let kind = Arc::new(normative_type(Kind::F64, false));
    let mut cache = TypeCache::new();
    let mut ids = TypeIds::new(0x7fff);
    let mut sent = Vec::new();
    (0..2).for_each(|_| ids.encode(&kind, &mut ByteWriter::new(&mut sent, ByteOrder::Little)));
    let mut reader = ByteReader::new(&sent, ByteOrder::Little);
    (0..2).for_each(|_| assert_eq!(types::decode(&mut reader, &mut cache), Some(kind.clone())));
    let mut reply = Vec::new();
    Answer::Get { ioid: Ioid(0x8070_6053), sub: Subcommand::INIT, status: RequestStatus::OK }.encode(
        ByteOrder::Little,
        &mut reply,
        |to| ids.encode(&kind, to),
    );
    assert_eq!(reply, bytes("ca02400a 09000000 53607080 08 ff fe 0100"));
}

#[test]
fn a_segmented_reply_of_a_million_doubles_has_the_headers_of_pvaccesscpp() {
    // QSRV1 sends what precedes the array, the array, and what follows it as one segment each.
    let headers = ["ca02500a 0d000000", "ca02700a 00127a00", "ca02600a c0000000"];
    let portions = [(Portion::First, 13), (Portion::Middle, 8_000_000), (Portion::Last, 192)];

    for (header, (portion, n_bytes)) in headers.iter().zip(portions) {
        let decoded = Header::decode(bytes(header).first_chunk().unwrap()).unwrap();
        assert_eq!(decoded, Header { portion, ..Header::of(Server, ByteOrder::Little, 10, n_bytes) });
        assert_eq!(decoded.encode().as_slice(), bytes(header));
    }
}
