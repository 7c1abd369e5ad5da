//! Puts: values are converted to the type of the server.

use std::sync::Arc;

use fodo_data::{
    ArraySize, ConvertError, Kind, NodeKind, Reading, Structure, StructureBuilder, StructureError, StructureType, Text,
    Value, normative_type,
};
use fodo_pva::Ioid;
use fodo_pva::client::{Decoding, Event, PutContent, Received, RequestError, Task};
use fodo_pva::cursor::ByteOrder;
use fodo_pva::limit;
use fodo_pva::message::{Request, Subcommand};
use fodo_pva::status::RequestStatus;

use crate::dialog::{CHANNEL, Dialog, ORDERS, done, done_without_result, double, refusal, reply};

fn put(ioid: Ioid, sub: Subcommand) -> Request {
    Request::Put { sid: CHANNEL.1, ioid, sub }
}

fn written(dialog: &mut Dialog, ioid: Ioid) {
    dialog.answer(&reply(Task::Put, ioid, Subcommand::EXECUTE));
    assert_eq!(dialog.events(), [done_without_result(ioid)]);
}

/// What is sent for a put of a value to a PV of this type.
fn sent(kind: StructureType, value: impl Into<PutContent>) -> Result<Vec<u8>, RequestError> {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.opened(Task::Put, Decoding::Flat, &Arc::new(kind));
    dialog.circuit.put(ioid, value)?;
    let [(request, body)] = <[_; 1]>::try_from(dialog.sent_with_bodies()).unwrap();
    assert_eq!(request, put(ioid, Subcommand::EXECUTE));
    written(&mut dialog, ioid);
    Ok(body)
}

#[test]
fn a_put_sends_the_value_in_the_kind_and_the_byte_order_of_the_server() {
    for order in ORDERS {
        let mut dialog = Dialog::with_channel(order);
        let ioid = dialog.opened(Task::Put, Decoding::Flat, &double());

        assert_eq!(dialog.circuit.put(ioid, Value::from(2)), Ok(()));

        let number = if order == ByteOrder::Big { 2.0_f64.to_be_bytes() } else { 2.0_f64.to_le_bytes() };
        let body = [&[1, 2][..], &number].concat();
        assert_eq!(dialog.sent_with_bodies(), [(put(ioid, Subcommand::EXECUTE), body)]);
        written(&mut dialog, ioid);
    }
    assert_eq!(sent(normative_type(Kind::I32, false), Value::from(-7.9)), Ok(vec![1, 2, 0xf9, 0xff, 0xff, 0xff]));
    assert_eq!(sent(normative_type(Kind::Text, false), Value::from("ab")), Ok(b"\x01\x02\x02ab".to_vec()));
    assert_eq!(sent(normative_type(Kind::I16, true), Value::from(vec![1.0, 2.0])), Ok(vec![1, 2, 2, 1, 0, 2, 0]));
    assert_eq!(sent(normative_type(Kind::U8, true), Value::from(3)), Ok(vec![1, 2, 1, 3]));
    assert_eq!(sent(normative_type(Kind::U8, false), Value::from("12")), Ok(vec![1, 2, 12]));
}

#[test]
fn a_value_that_cannot_be_converted_is_not_sent() {
    let refused = |kind, value: Value| match sent(kind, value) {
        Err(RequestError::Value(error)) => error,
        other => panic!("{other:?}"),
    };
    let mut bounded = StructureBuilder::new("");
    bounded.leaf("value", NodeKind::Array { kind: Kind::U8, size: ArraySize::Max(2) });
    let bounded = bounded.finish();
    let mut group = StructureBuilder::new("");
    group.scalar("first", Kind::F64);

    let not_a_number = StructureError::Convert(ConvertError::NotANumber("wide".into()));
    assert_eq!(refused(normative_type(Kind::F64, false), "wide".into()), not_a_number);
    let empty = StructureError::Convert(ConvertError::Empty);
    assert_eq!(refused(normative_type(Kind::F64, false), Vec::<f64>::new().into()), empty);
    assert_eq!(refused(group.finish(), 1.into()), StructureError::OtherKind("value".into()));
    let too_long = StructureError::Size { path: "value".into(), max: 2 };
    assert_eq!(refused(bounded.clone(), vec![1, 2, 3].into()), too_long);
    assert_eq!(sent(bounded, Value::from(vec![1, 2])), Ok(vec![1, 2, 2, 1, 2]));
}

#[test]
fn the_changed_nodes_of_a_structure_are_sent() {
    let kind = Arc::new(normative_type(Kind::F64, false));
    let mut structure = Structure::new(kind.clone());
    structure.set("value", 2.0).unwrap();
    structure.set("alarm.severity", 1).unwrap();

    let body = sent((*kind).clone(), structure).unwrap();

    assert_eq!(body[..2], [1, 0b1010]);
    assert_eq!(body.len(), 2 + 8 + 4);
    let other = Structure::new(Arc::new(normative_type(Kind::I32, false)));
    assert_eq!(sent((*kind).clone(), other), Err(RequestError::Value(StructureError::OtherType)));
}

#[test]
fn puts_and_gets_of_one_operation_are_executed_in_order() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.open(Task::Put, Decoding::Flat, "value");
    let body = |number: f64| [&[1, 2][..], &number.to_le_bytes()].concat();
    assert_eq!(dialog.circuit.get(ioid), Ok(()));
    assert_eq!(dialog.circuit.put(ioid, Value::from(1)), Ok(()));
    assert_eq!(dialog.circuit.put(ioid, Value::from(2)), Ok(()));
    assert_eq!(dialog.circuit.get(ioid), Ok(()));
    assert_eq!(dialog.sent(), [put(ioid, Subcommand::INIT)]);

    dialog.initialise(Task::Put, ioid, &double());
    assert_eq!(dialog.sent(), [put(ioid, Subcommand::GET)]);
    dialog.answer_reading(Task::Put, ioid, &double(), &Reading::bare(0.5.into()));
    assert_eq!(dialog.sent_with_bodies(), [(put(ioid, Subcommand::EXECUTE), body(1.0))]);
    dialog.answer(&reply(Task::Put, ioid, Subcommand::EXECUTE));
    assert_eq!(dialog.sent_with_bodies(), [(put(ioid, Subcommand::EXECUTE), body(2.0))]);
    dialog.answer(&reply(Task::Put, ioid, Subcommand::EXECUTE));
    assert_eq!(dialog.sent(), [put(ioid, Subcommand::GET)]);
    dialog.answer_reading(Task::Put, ioid, &double(), &Reading::bare(2.0.into()));

    let opened = Event::Opened { ioid, kind: Some(double()) };
    let (first, last) = (done(ioid, 0.5), done(ioid, 2.0));
    assert_eq!(dialog.events(), [opened, first, done_without_result(ioid), done_without_result(ioid), last]);
}

#[test]
fn a_value_that_turns_out_to_be_invalid_ends_and_the_next_request_is_sent() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.open(Task::Put, Decoding::Flat, "value");
    assert_eq!(dialog.circuit.put(ioid, Value::from("wide")), Ok(()));
    assert_eq!(dialog.circuit.put(ioid, Value::from("2")), Ok(()));
    dialog.sent();

    dialog.initialise(Task::Put, ioid, &double());

    let error = StructureError::Convert(ConvertError::NotANumber("wide".into()));
    let invalid = Event::Done { ioid, result: Err(RequestError::Value(error.clone())) };
    assert_eq!(dialog.events(), [Event::Opened { ioid, kind: Some(double()) }, invalid]);
    assert_eq!(dialog.sent(), [put(ioid, Subcommand::EXECUTE)]);
    // Now the type is known.
    assert_eq!(dialog.circuit.put(ioid, Value::from("wide")), Err(RequestError::Value(error)));
    written(&mut dialog, ioid);
    // No request that has ended counts.
    assert!((0..limit::EXECUTIONS_MAX).all(|_| dialog.circuit.get(ioid).is_ok()));
}

#[test]
fn a_refused_put_ends_and_the_operation_remains() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.opened(Task::Put, Decoding::Flat, &double());
    let status = RequestStatus::error("read only");
    assert_eq!(dialog.circuit.put(ioid, Value::from(1)), Ok(()));

    dialog.answer(&refusal(Task::Put, ioid, Subcommand::EXECUTE, status.clone()));

    assert_eq!(dialog.events(), [Event::Done { ioid, result: Err(RequestError::Refused(status)) }]);
    assert_eq!(dialog.circuit.put(ioid, Value::from(1)), Ok(()));
    written(&mut dialog, ioid);
}

fn states() -> Arc<StructureType> {
    Arc::new(normative_type(Kind::Enum, false))
}

/// The server replies with the names of the states.
fn answer_choices(dialog: &mut Dialog, ioid: Ioid, names: &[&str]) {
    dialog.answer_with(&reply(Task::Put, ioid, Subcommand::GET), |to| {
        to.bit_set(&[states().node("value").unwrap()].into_iter().collect());
        to.i32(0);
        to.size(names.len());
        names.iter().for_each(|name| to.text(name.as_bytes()));
    });
}

/// A put of a state's index.
fn index(number: u8) -> Vec<u8> {
    vec![1, 4, number, 0, 0, 0]
}

#[test]
fn an_enum_is_put_by_index_at_once_and_by_name_after_its_names_were_read() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.opened(Task::Put, Decoding::Flat, &states());

    assert_eq!(dialog.circuit.put(ioid, Value::from(2.0)), Ok(()));
    assert_eq!(dialog.sent_with_bodies(), [(put(ioid, Subcommand::EXECUTE), index(2))]);
    written(&mut dialog, ioid);
    for (name, expected) in [("open", 1), ("2", 0), ("1", 1)] {
        assert_eq!(dialog.circuit.put(ioid, Value::from(name)), Ok(()));
        assert_eq!(dialog.sent(), [put(ioid, Subcommand::GET)]);
        answer_choices(&mut dialog, ioid, &["2", "open"]);
        assert_eq!(dialog.sent_with_bodies(), [(put(ioid, Subcommand::EXECUTE), index(expected))]);
        written(&mut dialog, ioid);
    }
}

#[test]
fn an_unknown_name_of_a_state_is_not_put_and_the_next_request_is_sent() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.opened(Task::Put, Decoding::Flat, &states());
    for value in [Value::from("ajar"), "open".into(), 0.into()] {
        assert_eq!(dialog.circuit.put(ioid, value), Ok(()));
    }

    answer_choices(&mut dialog, ioid, &["closed", "open"]);
    let unknown = StructureError::Convert(ConvertError::NoSuchState(Text::from("ajar")));
    assert_eq!(dialog.events(), [Event::Done { ioid, result: Err(RequestError::Value(unknown)) }]);
    dialog.answer(&refusal(Task::Put, ioid, Subcommand::GET, RequestStatus::error("no")));
    let refused = RequestError::Refused(RequestStatus::error("no"));
    assert_eq!(dialog.events(), [Event::Done { ioid, result: Err(refused) }]);

    let [.., (request, body)] = &dialog.sent_with_bodies()[..] else { panic!("several requests") };
    assert_eq!((request, body), (&put(ioid, Subcommand::EXECUTE), &index(0)));
    written(&mut dialog, ioid);
}

#[test]
fn a_put_get_returns_what_the_server_reads_afterwards() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.opened(Task::PutGet, Decoding::Flat, &double());
    let request = |sub| Request::PutGet { sid: CHANNEL.1, ioid, sub };

    assert_eq!(dialog.circuit.put(ioid, Value::from(1)), Ok(()));
    assert_eq!(dialog.circuit.get(ioid), Ok(()));
    assert_eq!(dialog.sent(), [request(Subcommand::EXECUTE)]);
    dialog.answer_reading(Task::PutGet, ioid, &double(), &Reading::bare(10.0.into()));
    assert_eq!(dialog.sent(), [request(Subcommand::GET)]);
    dialog.answer_reading(Task::PutGet, ioid, &double(), &Reading::bare(11.0.into()));

    assert_eq!(dialog.events(), [done(ioid, 10.0), done(ioid, 11.0)]);
}

#[test]
fn the_read_back_of_a_put_is_a_structure_on_request() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.opened(Task::Put, Decoding::Structured, &double());
    assert_eq!(dialog.circuit.get(ioid), Ok(()));

    dialog.answer_reading(Task::Put, ioid, &double(), &Reading::bare(10.0.into()));

    let [Event::Done { result: Ok(Received::Structure(structure)), .. }] = &dialog.events()[..] else {
        panic!("a structure")
    };
    assert_eq!(structure.get("value"), Some(&10.0.into()));
}
