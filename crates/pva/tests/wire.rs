//! Replays recorded traffic with QSRV2 and QSRV1 (`wire/*.txt`): this crate must decode it completely, describe it as
//! recorded, and encode the same bytes.
//!
//! `WIRE_BLESS=1` rewrites the lines with the decoded messages (`=`, `~`); review them as code.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic reports the failure")]

#[path = "wire/conversation.rs"]
mod conversation;
#[path = "wire/golden.rs"]
mod golden;
#[path = "wire/recording.rs"]
mod recording;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use fodo_data::{EventMask, Kind, NormativeLayout, Now, Reading, Scalar, Severity, Status, Structure, normative_type};
use fodo_pva::Cid;
use fodo_pva::beacon_monitor::{Anomaly, BeaconMonitor};
use fodo_pva::cursor::{ByteOrder, ByteReader, ByteWriter};
use fodo_pva::frame::Sender;
use fodo_pva::message::{Answer, Subcommand};
use fodo_pva::searcher::{Claim, NameSearcher, Searcher};
use fodo_pva::types::TypeCache;
use fodo_pva::value;

use conversation::{Body, Conversation, Message, Prefix};
use recording::{Line, Recording};

/// Decodes a whole recording; calls `each` with every message.
fn replay(recording: &Recording, mut each: impl FnMut(&Message)) {
    let mut conversation = Conversation::new();
    for line in &recording.lines {
        if let Line::Bytes(from, bytes, _) = line {
            conversation.take(*from, bytes).iter().for_each(&mut each);
        }
    }
}

#[test]
fn every_recorded_message_decodes_to_its_recorded_description() {
    for mut recording in Recording::all() {
        let mut conversation = Conversation::new();
        let mut blessed = String::new();
        for line in &recording.lines {
            match line {
                Line::Comment(text) => blessed.push_str(&format!("{text}\n")),
                Line::Bytes(from, bytes, text) => {
                    blessed.push_str(&format!("{text}\n"));
                    for message in conversation.take(*from, bytes) {
                        blessed.push_str(&format!("= {}\n", message.prefix));
                        let body = message.body.to_string();
                        if !body.is_empty() {
                            blessed.push_str(&format!("~ {body}\n"));
                        }
                    }
                }
            }
        }
        if std::env::var_os("WIRE_BLESS").is_some() {
            recording.save(&blessed);
        }
        assert_eq!(recording.text(), blessed, "{}", recording.name);
    }
}

#[test]
fn every_recorded_message_is_encoded_to_the_same_bytes() {
    let (mut n_messages, mut n_ids) = (0, 0);
    for recording in Recording::all() {
        replay(&recording, |message| {
            // pvAccessCPP gives ids to all structures within a type, this crate only to whole types.
            if message.has_type_ids() {
                n_ids += 1;
                return;
            }
            assert_eq!(message.encoded(message.order), message.bytes, "{}: {}", recording.name, message.prefix);
            n_messages += 1;
        });
    }
    assert!(n_messages > 400 && n_ids > 20, "{n_messages} {n_ids}");
}

#[test]
fn every_recorded_message_survives_the_other_byte_order() {
    for recording in Recording::all() {
        let (mut original, mut swapped) = (Conversation::new(), Conversation::new());
        for line in &recording.lines {
            let Line::Bytes(from, bytes, _) = line else { continue };
            for message in original.take(*from, bytes) {
                let other = match message.order {
                    ByteOrder::Little => ByteOrder::Big,
                    ByteOrder::Big => ByteOrder::Little,
                };
                let again = swapped.take(*from, &message.encoded(other));

                assert_eq!(again.len(), 1);
                let (again, expected) = (&again[0], message);
                assert_eq!(again.prefix, expected.prefix, "{}", recording.name);
                assert_eq!(again.body.to_string(), expected.body.to_string(), "{}", recording.name);
            }
        }
    }
}

/// The bodies of the replies of one command in a recording.
fn answered(recording: &str, is_it: impl Fn(&Answer) -> bool) -> Vec<Body> {
    let mut bodies = Vec::new();
    replay(&Recording::named(recording), |message| {
        if let Prefix::Answer(answer) = &message.prefix
            && is_it(answer)
        {
            bodies.push(message.body.clone());
        }
    });
    bodies
}

#[test]
fn the_normative_types_are_those_of_qsrv2() {
    let is_init = |answer: &Answer| matches!(answer, Answer::Get { sub, .. } if sub.contains(Subcommand::INIT));
    let types = answered("qsrv2-gets", is_init);
    let expected = [
        (Kind::F64, false),
        (Kind::I32, false),
        (Kind::I64, false),
        (Kind::Text, false),
        (Kind::Enum, false),
        (Kind::F64, true),
        (Kind::I8, true),
        (Kind::Text, true),
        (Kind::I16, true),
    ];

    for ((kind, is_array), body) in expected.into_iter().zip(&types) {
        let Body::Type(Some(found)) = body else { panic!("{body}") };
        assert_eq!(normative_type(kind, is_array).to_string(), found.to_string());
        assert_eq!(normative_type(kind, is_array), **found);
    }
}

/// A complete value of each type, as QSRV2 sends it in reply to a get.
fn values(recording: &str) -> Vec<Structure> {
    let is_value = |answer: &Answer| matches!(answer, Answer::Get { sub, .. } if !sub.contains(Subcommand::INIT));
    let bodies = answered(recording, is_value);
    bodies.into_iter().map(|body| if let Body::Values(values) = body { values } else { panic!("{body}") }).collect()
}

#[test]
fn a_reading_of_qsrv2_is_encoded_to_the_same_bytes_without_a_structure() {
    let everything = EventMask(15);
    for received in values("qsrv2-gets").iter().take(9) {
        let layout = NormativeLayout::of(received.kind().clone()).unwrap();
        let mut reading = layout.reading(received);
        reading.meta = Some(Arc::new(layout.meta(received)));

        let bytes = |write: &dyn Fn(&mut ByteWriter)| {
            let mut out = Vec::new();
            write(&mut ByteWriter::new(&mut out, ByteOrder::Little));
            out
        };
        let ours = bytes(&|to| value::encode_reading(&layout, layout.whole(everything), &reading, to));
        let theirs = bytes(&|to| value::encode_bits(received, received.changed(), to));

        assert_eq!(layout.whole(everything), received.changed(), "{}", received.kind());
        assert_eq!(ours, theirs, "{}", received.kind());
    }
}

#[test]
fn readings_of_both_servers_have_value_alarm_and_time() {
    for server in ["qsrv2-gets", "qsrv1-gets"] {
        let values = values(server);
        let reading = |index: usize| NormativeLayout::of(values[index].kind().clone()).unwrap().reading(&values[index]);
        let meta = |index: usize| NormativeLayout::of(values[index].kind().clone()).unwrap().meta(&values[index]);

        assert_eq!(reading(0).value, 1.5.into(), "{server}");
        assert_eq!((reading(0).alarm.severity, reading(0).alarm.status), (Severity::None, Status::NO_ALARM));
        assert!(reading(0).time.unix_s > 1_700_000_000 && reading(0).message.is_none(), "{server}");
        assert_eq!((meta(0).units, meta(0).precision), ("mm".into(), 3), "{server}");
        assert_eq!((meta(0).alarm.low, meta(0).control.high), (-9.0, 70.0), "{server}");
        assert_eq!(reading(1).value, (-100_000).into(), "{server}");
        assert_eq!(reading(3).value, "a string".into(), "{server}");
        assert_eq!(reading(4).value, fodo_data::Value::Scalar(Scalar::Enum(2)), "{server}");
        assert_eq!(meta(4).labels, ["closed".into(), "opening".into(), "open".into()], "{server}");
    }
}

#[test]
fn the_update_of_a_double_by_qsrv2_has_41_bytes_and_is_encoded_from_a_reading() {
    let mut updates = Vec::new();
    replay(&Recording::named("qsrv2-monitors"), |message| {
        if let Body::Update(values, overrun) = &message.body
            && values.changed().iter().eq([1, 7, 8, 9])
        {
            updates.push((message.clone(), values.clone(), overrun.clone()));
        }
    });

    assert!(updates.len() >= 3, "{}", updates.len());
    for (message, values, overrun) in updates {
        let layout = NormativeLayout::of(values.kind().clone()).unwrap();
        let reading = layout.reading(&values);
        let Prefix::Answer(prefix) = &message.prefix else { panic!("an update comes from a server") };
        let mut out = Vec::with_capacity(41);
        prefix.encode(message.order, &mut out, |to| {
            value::encode_reading(&layout, layout.marks(EventMask::VALUE), &reading, to);
            to.bit_set(&overrun);
        });

        assert_eq!(out.len(), 41);
        assert_eq!(out, message.bytes);
    }
}

#[test]
fn updates_decoded_into_a_reading_equal_those_decoded_into_a_structure() {
    for server in ["qsrv2-monitors", "qsrv1-monitors"] {
        let mut current: Option<(Structure, Reading)> = None;
        let mut n_updates = 0;
        replay(&Recording::named(server), |message| {
            let Body::Update(delta, _) = &message.body else { return };
            let layout = NormativeLayout::of(delta.kind().clone()).unwrap();
            let fresh = || {
                let structure = Structure::new(delta.kind().clone());
                let reading = layout.reading(&structure);
                (structure, reading)
            };
            let known = current.take().filter(|(structure, _)| structure.kind() == delta.kind());
            let (mut structure, mut reading) = known.unwrap_or_else(fresh);
            let mut bytes = Vec::new();
            value::encode_bits(delta, delta.changed(), &mut ByteWriter::new(&mut bytes, message.order));

            structure.apply(delta).unwrap();
            let mut reader = ByteReader::new(&bytes, message.order);
            let bits = value::decode_reading(&layout, &mut reading, &mut reader, &mut TypeCache::new());

            assert_eq!((&bits, reader.n_left(), reader.finish()), (delta.changed(), 0, Ok(())));
            assert_eq!(Reading { meta: None, ..reading.clone() }, layout.reading(&structure));
            if let Some(meta) = &reading.meta {
                assert_eq!(**meta, layout.meta(&structure));
            }
            current = Some((structure, reading));
            n_updates += 1;
        });
        assert!(n_updates > 8, "{server}: {n_updates}");
    }
}

#[test]
fn an_alarm_in_an_update_has_the_reason_of_the_record() {
    for server in ["qsrv2-monitors", "qsrv1-monitors"] {
        let mut alarms = Vec::new();
        replay(&Recording::named(server), |message| {
            if let Body::Update(values, _) = &message.body
                && let Some(layout) = NormativeLayout::of(values.kind().clone())
                && values.kind().leaves(values.changed()).contains(layout.kind().node("alarm.severity").unwrap())
            {
                let alarm = layout.reading(values).alarm;
                alarms.push((alarm.severity, alarm.status));
            }
        });

        let expected =
            [(Severity::Minor, Status::HIGH), (Severity::Major, Status::HIHI), (Severity::None, Status::NO_ALARM)];
        assert!(alarms.windows(3).any(|seen| seen == expected), "{server}: {alarms:?}");
    }
}

#[test]
fn recorded_responses_claim_the_served_name_once_and_the_recorded_beacon_reports_a_start() {
    for (recording, port) in [("qsrv2-datagrams", 36975), ("qsrv1-datagrams", 59257)] {
        let now = Now::for_test();
        let from: SocketAddr = "127.0.0.1:5076".parse().unwrap();
        // The recorded request has the number 7.
        let mut searcher = Searcher::new(6, 34798);
        searcher.add(Cid(42), "w:double", now);
        searcher.add(Cid(43), "w:absent", now);
        searcher.tick(now, &mut Vec::new());
        let mut beacons = BeaconMonitor::new(now);
        let (mut claims, mut anomalies) = (Vec::new(), Vec::new());

        for line in &Recording::named(recording).lines {
            if let Line::Bytes(Sender::Server, bytes, _) = line {
                searcher.handle(from, bytes, now, &mut claims);
                beacons.handle(from, bytes, now, &mut anomalies);
            }
        }

        let server = SocketAddr::new(from.ip(), port);
        assert_eq!(
            claims[0],
            Claim { cid: Cid(42), server, transport: Default::default(), plain: None, is_first: true },
            "{recording}"
        );
        assert!(claims[1..].iter().all(|claim| *claim == Claim { is_first: false, ..claims[0] }), "{claims:?}");
        assert_eq!((searcher.n_names(), anomalies), (1, vec![Anomaly::Started(server)]), "{recording}");
    }
}

/// The kinds of recorded messages, so that a new capture cannot lose any of them.
#[test]
fn the_recordings_cover_all_commands_in_use() {
    let mut commands = BTreeSet::new();
    for recording in Recording::all() {
        replay(&recording, |message| {
            commands.insert((message.from == Sender::Server, message.prefix.command()));
        });
    }

    let requests = [1, 2, 3, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 20, 21, 99];
    let answers = [0, 1, 2, 4, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 20];
    let expected = requests.map(|command| (false, command)).into_iter().chain(answers.map(|command| (true, command)));
    assert!(commands.iter().copied().eq(expected), "{commands:?}");
}
