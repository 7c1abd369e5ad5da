//! The end of operations: nothing is left over, and late replies are ignored.

use fodo_data::{EventMask, NormativeLayout, Reading, Structure, Value};
use fodo_pva::client::{Decoding, Event, RequestError, Task, operation_index};
use fodo_pva::cursor::{ByteOrder, ByteWriter};
use fodo_pva::message::{Answer, Request, Subcommand};
use fodo_pva::types::TypeIds;
use fodo_pva::{Ioid, value};

use crate::dialog::{CHANNEL, Dialog, done, double, reply};

fn destroy(ioid: Ioid) -> Request {
    Request::DestroyRequest { sid: CHANNEL.1, ioid }
}

#[test]
fn nothing_is_left_over_after_everything_has_ended() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let get = dialog.opened(Task::Get, Decoding::Flat, &double());
    let monitor = dialog.opened(Task::Monitor, Decoding::Structured, &double());
    let opening = dialog.open(Task::Put, Decoding::Flat, "");
    assert_eq!(dialog.circuit.put(opening, Value::from(1)), Ok(()));
    dialog.sent();

    [get, monitor, opening].into_iter().for_each(|ioid| dialog.circuit.destroy(ioid));
    assert_eq!(dialog.sent(), [get, monitor, opening].map(destroy));
    assert!(!dialog.circuit.holds_nothing(), "the channel");
    dialog.circuit.clear(CHANNEL.0, CHANNEL.1);
    assert!(!dialog.circuit.holds_nothing(), "a request that was not sent");
    dialog.sent();

    assert!(dialog.circuit.holds_nothing());
    assert_eq!(dialog.events(), []);
    dialog.receive(&[0xca]);
    assert!(!dialog.circuit.holds_nothing(), "a part of a message");
}

#[test]
fn what_an_operation_executes_is_interrupted_unless_it_reads() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let put = dialog.opened(Task::Put, Decoding::Flat, &double());
    let get = dialog.opened(Task::Get, Decoding::Flat, &double());
    assert_eq!((dialog.circuit.put(put, Value::from(1)), dialog.circuit.get(get)), (Ok(()), Ok(())));
    dialog.sent();

    dialog.circuit.destroy(put);
    dialog.circuit.destroy(get);
    dialog.circuit.destroy(get);

    let cancel = Request::CancelRequest { sid: CHANNEL.1, ioid: put };
    assert_eq!(dialog.sent(), [cancel, destroy(put), destroy(get)]);
}

#[test]
fn replies_to_an_operation_that_has_ended_are_ignored() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let layout = NormativeLayout::of(double()).unwrap();
    let marks = layout.marks(EventMask::VALUE);
    let mut ended = |task| {
        let ioid = dialog.opened(task, Decoding::Flat, &double());
        dialog.circuit.destroy(ioid);
        dialog.sent();
        (task, ioid)
    };
    let operations = [Task::Get, Task::Put, Task::Monitor].map(&mut ended);

    for (task, ioid) in operations {
        dialog.initialise(task, ioid, &double());
        dialog.answer_with(&reply(task, ioid, Subcommand::EXECUTE), |to| {
            value::encode_reading(&layout, marks, &Reading::bare(1.0.into()), to);
            to.size(0);
        });
        assert_eq!(dialog.circuit.get(ioid), Err(RequestError::NoSuchOperation));
    }
    dialog.answer(&Answer::Process { ioid: Ioid(9), sub: Subcommand::EXECUTE, status: Default::default() });

    assert_eq!(dialog.events(), []);
    // The circuit is usable.
    let ioid = dialog.opened(Task::Get, Decoding::Flat, &double());
    assert_eq!(dialog.circuit.get(ioid), Ok(()));
    dialog.answer_reading(Task::Get, ioid, &double(), &Reading::bare(1.0.into()));
    assert_eq!(dialog.events(), [done(ioid, 1.0)]);
}

#[test]
fn a_late_reply_is_not_taken_for_that_of_the_operation_that_has_the_index_now() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let before = dialog.opened(Task::Get, Decoding::Flat, &double());
    assert_eq!(dialog.circuit.get(before), Ok(()));
    dialog.circuit.destroy(before);
    dialog.sent();
    let now = dialog.opened(Task::Get, Decoding::Flat, &double());
    assert_eq!((operation_index(now), dialog.circuit.get(now)), (operation_index(before), Ok(())));

    dialog.answer_reading(Task::Get, before, &double(), &Reading::bare(1.0.into()));
    assert_eq!(dialog.events(), []);
    dialog.answer_reading(Task::Get, now, &double(), &Reading::bare(2.0.into()));

    assert_eq!(dialog.events(), [done(now, 2.0)]);
}

#[test]
fn replies_that_were_not_requested_are_ignored() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.opened(Task::Get, Decoding::Flat, &double());
    let put = dialog.opened(Task::Put, Decoding::Flat, &double());

    dialog.answer_reading(Task::Get, ioid, &double(), &Reading::bare(1.0.into()));
    dialog.initialise(Task::Get, ioid, &double());
    dialog.answer_with(&Answer::Monitor { ioid, sub: Subcommand::DESTROY }, |to| to.u8(0xff));
    dialog.answer_reading(Task::Get, put, &double(), &Reading::bare(1.0.into()));
    assert_eq!(dialog.circuit.put(put, Value::from(1)), Ok(()));
    dialog.answer(&reply(Task::Process, put, Subcommand::EXECUTE));

    assert_eq!(dialog.events(), []);
}

#[test]
fn the_id_of_a_type_that_came_with_a_late_reply_is_known_afterwards() {
    // pvAccessCPP sends a type in full only once.
    let mut ids = TypeIds::new(10);
    let [first, again] = [(); 2].map(|()| {
        let mut bytes = Vec::new();
        ids.encode(&double(), &mut ByteWriter::new(&mut bytes, ByteOrder::Little));
        bytes
    });
    assert_eq!(again.len(), 3);

    for task in [Task::Get, Task::Rpc] {
        let mut dialog = Dialog::with_channel(ByteOrder::Little);
        let ended = dialog.open(task, Decoding::Flat, "");
        dialog.circuit.destroy(ended);
        let sub = if task == Task::Rpc { Subcommand::EXECUTE } else { Subcommand::INIT };
        dialog.answer_with(&reply(task, ended, sub), |to| {
            to.bytes(&first);
            if task == Task::Rpc {
                value::encode(&Structure::new(double()), to);
            }
        });

        let ioid = dialog.open(Task::Get, Decoding::Flat, "");
        dialog.answer_with(&reply(Task::Get, ioid, Subcommand::INIT), |to| to.bytes(&again));

        assert_eq!(dialog.events(), [Event::Opened { ioid, kind: Some(double()) }], "{task:?}");
    }
}

#[test]
fn a_text_of_the_server_is_reported() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);

    dialog.answer(&Answer::Message { ioid: Ioid(3), level: 1, text: "bad request id".into() });

    assert_eq!(dialog.events(), [Event::Message { ioid: Ioid(3), level: 1, text: "bad request id".into() }]);
}

#[test]
fn unknown_messages_are_skipped() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let control = fodo_pva::frame::Control::EchoRequest(1);

    dialog.answer_with(&Answer::Unknown(99), |to| to.bytes(b"unknown"));
    dialog.answer_with(&Answer::Authentication {}, |to| to.bytes(b"more"));
    dialog.receive(&control.header(fodo_pva::frame::Sender::Server, ByteOrder::Little).encode());

    assert_eq!((dialog.events(), dialog.sent()), (vec![], vec![]));
}
