//! Gets: the first opens the operation, the others cost one round trip each.

use std::sync::Arc;

use fodo_data::{Alarm, Kind, Reading, Severity, Status, StructureBuilder, TimeStamp, Value, normative_type};
use fodo_pva::client::{Decoding, Event, Received, RequestError, Task};
use fodo_pva::cursor::{ByteOrder, ByteReader};
use fodo_pva::limit;
use fodo_pva::message::{Request, Subcommand};
use fodo_pva::request::PvRequest;
use fodo_pva::status::RequestStatus;
use fodo_pva::types::TypeCache;
use fodo_pva::{Ioid, value};

use crate::dialog::{CHANNEL, Dialog, ORDERS, done, done_without_result, double, refusal, reply};

fn get(ioid: Ioid, sub: Subcommand) -> Request {
    Request::Get { sid: CHANNEL.1, ioid, sub }
}

#[test]
fn a_get_on_an_open_operation_costs_one_request_and_the_first_one_two() {
    for order in ORDERS {
        let mut dialog = Dialog::with_channel(order);
        let ioid = dialog.open(Task::Get, Decoding::Flat, "value,alarm,timeStamp");
        assert_eq!(dialog.circuit.get(ioid), Ok(()));
        assert_eq!(dialog.sent(), [get(ioid, Subcommand::INIT)]);

        dialog.initialise(Task::Get, ioid, &double());
        assert_eq!(dialog.sent(), [get(ioid, Subcommand::EXECUTE)]);
        assert_eq!(dialog.events(), [Event::Opened { ioid, kind: Some(double()) }]);
        dialog.answer_reading(Task::Get, ioid, &double(), &Reading::bare(1.5.into()));
        assert_eq!((dialog.sent(), dialog.events()), (vec![], vec![done(ioid, 1.5)]));

        assert_eq!(dialog.circuit.get(ioid), Ok(()));
        assert_eq!(dialog.sent(), [get(ioid, Subcommand::EXECUTE)]);
        dialog.answer_reading(Task::Get, ioid, &double(), &Reading::bare(2.5.into()));
        assert_eq!(dialog.events(), [done(ioid, 2.5)]);
    }
}

#[test]
fn a_reading_has_value_alarm_and_time_and_a_reply_starts_anew() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.opened(Task::Get, Decoding::Flat, &double());
    let alarm = Alarm { severity: Severity::Major, status: Status::HIHI };
    let time = TimeStamp { unix_s: 1_800_000_000, nanos: 5 };
    let sent = Reading { alarm, time, user_tag: 3, ..Reading::bare(9.5.into()) };

    for reading in [&sent, &Reading::bare(1.0.into())] {
        assert_eq!(dialog.circuit.get(ioid), Ok(()));
        dialog.answer_reading(Task::Get, ioid, &double(), reading);

        assert_eq!(dialog.events(), [Event::Done { ioid, result: Ok(Received::Reading(reading.clone())) }]);
    }
    // Nothing of the reply before.
    assert_eq!(dialog.circuit.get(ioid), Ok(()));
    dialog.answer_with(&reply(Task::Get, ioid, Subcommand::EXECUTE), |to| to.size(0));
    let empty = Reading { time: TimeStamp::NEVER, ..Reading::bare(0.0.into()) };
    assert_eq!(dialog.events(), [Event::Done { ioid, result: Ok(Received::Reading(empty)) }]);
}

#[test]
fn gets_that_wait_together_share_a_request_and_each_ends() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.open(Task::Get, Decoding::Flat, "value");
    (0..3).for_each(|_| assert_eq!(dialog.circuit.get(ioid), Ok(())));
    dialog.initialise(Task::Get, ioid, &double());
    assert_eq!(dialog.sent(), [get(ioid, Subcommand::INIT), get(ioid, Subcommand::EXECUTE)]);
    dialog.events();

    // These were called after the request was sent: its reply may be older.
    (0..2).for_each(|_| assert_eq!(dialog.circuit.get(ioid), Ok(())));
    assert_eq!(dialog.sent(), []);
    dialog.answer_reading(Task::Get, ioid, &double(), &Reading::bare(1.0.into()));
    assert_eq!(dialog.events(), vec![done(ioid, 1.0); 3]);
    assert_eq!(dialog.sent(), [get(ioid, Subcommand::EXECUTE)]);

    dialog.answer_reading(Task::Get, ioid, &double(), &Reading::bare(2.0.into()));
    assert_eq!((dialog.events(), dialog.sent()), (vec![done(ioid, 2.0); 2], vec![]));
}

#[test]
fn each_get_that_processes_a_record_is_a_request_of_its_own() {
    for (option, shares) in [("true", false), ("1", false), ("false", true), ("passive", true)] {
        let mut dialog = Dialog::with_channel(ByteOrder::Little);
        let ioid = dialog.open(Task::Get, Decoding::Structured, &format!("record[process={option}]"));
        (0..3).for_each(|_| assert_eq!(dialog.circuit.get(ioid), Ok(())));
        dialog.initialise(Task::Get, ioid, &double());
        (0..2).for_each(|_| assert_eq!(dialog.circuit.get(ioid), Ok(())));
        dialog.events();

        let mut ends = Vec::new();
        for number in 1..=5 {
            assert_eq!(dialog.sent().last(), Some(&get(ioid, Subcommand::EXECUTE)), "{option}");
            dialog.answer_reading(Task::Get, ioid, &double(), &Reading::bare(f64::from(number).into()));
            ends.push(dialog.events().len());
            if ends.iter().sum::<usize>() == 5 {
                break;
            }
        }

        assert_eq!(ends, if shares { vec![3, 2] } else { vec![1; 5] }, "{option}");
        assert_eq!(dialog.sent(), []);
    }
}

#[test]
fn the_requests_of_one_operation_are_limited() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.opened(Task::Get, Decoding::Flat, &double());
    (0..limit::EXECUTIONS_MAX).for_each(|_| assert_eq!(dialog.circuit.get(ioid), Ok(())));

    assert_eq!(dialog.circuit.get(ioid), Err(RequestError::QueueFull));

    dialog.answer_reading(Task::Get, ioid, &double(), &Reading::bare(1.0.into()));
    assert_eq!(dialog.circuit.get(ioid), Ok(()));
    assert_eq!(dialog.circuit.get(ioid), Err(RequestError::QueueFull));
}

#[test]
fn operations_of_one_channel_are_independent() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let first = dialog.opened(Task::Get, Decoding::Flat, &double());
    let second = dialog.opened(Task::Get, Decoding::Flat, &double());
    assert_eq!((dialog.circuit.get(first), dialog.circuit.get(second)), (Ok(()), Ok(())));

    dialog.answer_reading(Task::Get, second, &double(), &Reading::bare(2.0.into()));
    dialog.answer_reading(Task::Get, first, &double(), &Reading::bare(1.0.into()));

    assert_eq!(dialog.events(), [done(second, 2.0), done(first, 1.0)]);
}

#[test]
fn the_pv_request_is_sent_with_its_options_and_later_by_id() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let mut cache = TypeCache::new();
    let text = "field(value)record[atomic=true]";

    for n_bytes_max in [200, 3 + 5] {
        dialog.open(Task::Get, Decoding::Flat, text);
        let [(_, body)] = <[_; 1]>::try_from(dialog.sent_with_bodies()).unwrap();
        let mut reader = ByteReader::new(&body, ByteOrder::Little);
        let structure = value::decode_any(&mut reader, &mut cache).unwrap();

        assert_eq!(PvRequest::from_structure(&structure), PvRequest::parse(text).unwrap());
        assert!(body.len() <= n_bytes_max, "{}", body.len());
    }
}

#[test]
fn a_refused_operation_has_ended_with_everything_that_was_requested_of_it() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.open(Task::Get, Decoding::Flat, "absent");
    assert_eq!(dialog.circuit.get(ioid), Ok(()));
    dialog.sent();
    let status = RequestStatus::error("no such field");

    dialog.answer(&refusal(Task::Get, ioid, Subcommand::INIT, status.clone()));

    let reason = RequestError::Refused(status);
    assert_eq!(reason.to_string(), "the server refuses the request: ERROR \"no such field\"");
    assert_eq!((dialog.events(), dialog.sent()), (vec![Event::OpenFailed { ioid, reason }], vec![]));
    assert_eq!(dialog.circuit.get(ioid), Err(RequestError::NoSuchOperation));
}

#[test]
fn a_refused_get_ends_and_the_operation_remains() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.opened(Task::Get, Decoding::Flat, &double());
    (0..2).for_each(|_| assert_eq!(dialog.circuit.get(ioid), Ok(())));
    let status = RequestStatus::error("not now");

    dialog.answer(&refusal(Task::Get, ioid, Subcommand::EXECUTE, status.clone()));
    dialog.answer_reading(Task::Get, ioid, &double(), &Reading::bare(1.0.into()));

    let refused = Event::Done { ioid, result: Err(RequestError::Refused(status)) };
    assert_eq!(dialog.events(), [refused, done(ioid, 1.0)]);
}

#[test]
fn a_structure_is_delivered_on_request_and_for_types_without_a_scalar_or_array() {
    let mut build = StructureBuilder::new("pair_t");
    build.scalar("first", Kind::I32).scalar("second", Kind::I32);
    let pair = Arc::new(build.finish());
    let mut dialog = Dialog::with_channel(ByteOrder::Little);

    for (decoding, kind) in [(Decoding::Structured, double()), (Decoding::Flat, pair)] {
        let ioid = dialog.opened(Task::Get, decoding, &kind);
        assert_eq!(dialog.circuit.get(ioid), Ok(()));
        dialog.sent();
        dialog.answer_with(&reply(Task::Get, ioid, Subcommand::EXECUTE), |to| {
            to.bit_set(&[1].into_iter().collect());
            if kind == double() { to.f64(7.0) } else { to.i32(7) }
        });

        let [Event::Done { result: Ok(Received::Structure(structure)), .. }] = &dialog.events()[..] else {
            panic!("one structure")
        };
        assert!(*structure.kind() == kind && structure.changed().iter().eq([1]));
        assert_eq!(structure.value(1).and_then(Value::first).map(|first| first.to_f64()), Some(Ok(7.0)));
    }
}

#[test]
fn an_enum_is_a_reading_with_the_index_and_its_names_as_labels() {
    let kind = Arc::new(normative_type(Kind::Enum, false));
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.opened(Task::Get, Decoding::Flat, &kind);
    assert_eq!(dialog.circuit.get(ioid), Ok(()));

    dialog.answer_with(&reply(Task::Get, ioid, Subcommand::EXECUTE), |to| {
        to.bit_set(&[kind.node("value").unwrap()].into_iter().collect());
        to.i32(1);
        to.size(2);
        to.text(b"closed");
        to.text(b"open");
    });

    let [Event::Done { result: Ok(Received::Reading(reading)), .. }] = &dialog.events()[..] else {
        panic!("a reading")
    };
    assert_eq!(reading.value, Value::Scalar(fodo_data::Scalar::Enum(1)));
    assert_eq!(reading.meta.as_ref().map(|meta| meta.labels.len()), Some(2));
    assert_eq!(dialog.circuit.get(ioid), Ok(()));
    dialog.answer_with(&reply(Task::Get, ioid, Subcommand::EXECUTE), |to| to.size(0));
    let nothing = Reading::bare(Value::Scalar(fodo_data::Scalar::Enum(0)));
    assert_eq!(dialog.events(), [Event::Done { ioid, result: Ok(Received::Reading(nothing)) }]);
}

#[test]
fn a_procedure_is_called_with_its_argument_and_returns_a_structure_or_nothing() {
    let mut dialog = Dialog::with_channel(ByteOrder::Big);
    let ioid = dialog.open(Task::Rpc, Decoding::Structured, "");
    let argument = fodo_data::Structure::single(3.into());
    assert_eq!(dialog.circuit.rpc(ioid, argument.clone()), Ok(()));
    assert_eq!(dialog.circuit.rpc(ioid, argument.clone()), Ok(()));
    dialog.sent();

    dialog.answer(&reply(Task::Rpc, ioid, Subcommand::INIT));
    let called = Request::Rpc { sid: CHANNEL.1, ioid, sub: Subcommand::EXECUTE };
    assert_eq!(dialog.sent_with_bodies(), [(called, vec![0x22, 0, 0, 0, 3])]);
    let answered = reply(Task::Rpc, ioid, Subcommand::EXECUTE);
    dialog.answer_with(&answered, |to| value::encode_any(Some(&argument), None, to));
    dialog.answer_with(&answered, |to| to.u8(0xff));

    let returned = Event::Done { ioid, result: Ok(Received::Structure(argument)) };
    assert_eq!(dialog.events(), [Event::Opened { ioid, kind: None }, returned, done_without_result(ioid)]);
}

#[test]
fn a_record_is_processed() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.open(Task::Process, Decoding::Flat, "");
    dialog.answer(&reply(Task::Process, ioid, Subcommand::INIT));
    dialog.sent();

    assert_eq!(dialog.circuit.process(ioid), Ok(()));
    assert_eq!(dialog.sent(), [Request::Process { sid: CHANNEL.1, ioid, sub: Subcommand::EXECUTE }]);
    dialog.answer(&reply(Task::Process, ioid, Subcommand::EXECUTE));

    assert_eq!(dialog.events(), [Event::Opened { ioid, kind: None }, done_without_result(ioid)]);
}

#[test]
fn an_operation_accepts_only_the_requests_of_its_task() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let other = Err(RequestError::OtherTask);
    let get = dialog.open(Task::Get, Decoding::Flat, "");
    let monitor = dialog.open(Task::Monitor, Decoding::Flat, "");
    dialog.sent();

    assert_eq!(dialog.circuit.put(get, Value::from(1.0)), other);
    assert_eq!(dialog.circuit.process(get), other);
    assert_eq!(dialog.circuit.rpc(get, fodo_data::Structure::single(1.into())), other);
    assert_eq!(dialog.circuit.start(get), other);
    assert_eq!(dialog.circuit.stop(get), other);
    assert_eq!(dialog.circuit.acknowledge(get, 1), other);
    assert_eq!(dialog.circuit.get(monitor), other);
    assert_eq!(dialog.sent(), []);
}
