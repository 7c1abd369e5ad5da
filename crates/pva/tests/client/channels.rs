//! Channels: created, refused, cleared, and ended by the server.

use fodo_pva::client::{AccessRights, Decoding, Event, RequestError, Task};
use fodo_pva::cursor::ByteOrder;
use fodo_pva::message::{Answer, Request};
use fodo_pva::status::RequestStatus;
use fodo_pva::{Cid, Ioid, Sid};

use crate::dialog::{CHANNEL, Dialog, double, prepared};

const OTHER: (Cid, Sid) = (Cid(2), Sid(20));

fn gone(cid: Cid, sid: Sid) -> Answer {
    Answer::DestroyChannel { sid, cid }
}

#[test]
fn a_channel_that_the_server_does_not_have_is_reported_with_its_status() {
    let mut dialog = Dialog::validated(ByteOrder::Little);
    dialog.circuit.create(Cid(1), "w:absent", dialog.now);
    let status = RequestStatus::error("not found");

    dialog.answer(&Answer::CreateChannel { cid: Cid(1), sid: Sid(u32::MAX), status: status.clone() });

    assert_eq!(dialog.events(), [Event::CreateFailed { cid: Cid(1), status }]);
    let open = dialog.circuit.open(Sid(u32::MAX), Task::Get, Decoding::Flat, &prepared(""));
    assert_eq!(open, Err(RequestError::NoSuchChannel));
}

#[test]
fn rights_are_reported_as_the_server_sends_them() {
    let mut dialog = Dialog::with_channel(ByteOrder::Big);

    dialog.answer(&Answer::AclChange { cid: CHANNEL.0, rights: 5 });

    let [Event::Rights { cid, rights }] = dialog.events()[..] else { panic!("one event") };
    assert_eq!(cid, CHANNEL.0);
    assert!(rights.contains(AccessRights::PUT) && rights.contains(AccessRights::RPC));
    assert!(!rights.contains(AccessRights::PUT_GET));
}

#[test]
fn a_channel_that_the_server_ends_ends_with_its_operations_and_no_others() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    dialog.create(OTHER);
    let get = dialog.opened(Task::Get, Decoding::Flat, &double());
    let monitor = dialog.opened(Task::Monitor, Decoding::Flat, &double());
    let kept = dialog.circuit.open(OTHER.1, Task::Get, Decoding::Flat, &prepared("")).unwrap();
    dialog.sent();

    dialog.answer(&gone(CHANNEL.0, CHANNEL.1));
    dialog.answer(&gone(CHANNEL.0, CHANNEL.1));

    assert_eq!(dialog.events(), [Event::ChannelGone { cid: CHANNEL.0, sid: CHANNEL.1 }]);
    // pvxs closes the circuit of a client that uses a channel which has ended.
    assert_eq!(dialog.circuit.get(get), Err(RequestError::NoSuchOperation));
    assert_eq!(dialog.circuit.start(monitor), Err(RequestError::NoSuchOperation));
    assert_eq!(dialog.circuit.describe(CHANNEL.1, ""), Err(RequestError::NoSuchChannel));
    dialog.circuit.destroy(get);
    dialog.circuit.clear(CHANNEL.0, CHANNEL.1);
    assert_eq!(dialog.sent(), []);
    assert_eq!(dialog.circuit.get(kept), Ok(()));
}

#[test]
fn a_cleared_channel_ends_with_its_operations_and_the_confirmation_is_no_event() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let get = dialog.opened(Task::Get, Decoding::Flat, &double());
    assert_eq!(dialog.circuit.get(get), Ok(()));
    dialog.sent();

    dialog.circuit.clear(CHANNEL.0, CHANNEL.1);

    assert_eq!(dialog.sent(), [Request::DestroyChannel { sid: CHANNEL.1, cid: CHANNEL.0 }]);
    dialog.answer(&gone(CHANNEL.0, CHANNEL.1));
    assert_eq!(dialog.events(), []);
    assert!(dialog.circuit.holds_nothing());
}

#[test]
fn the_confirmation_of_a_cleared_channel_does_not_end_another_one_with_its_number() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    dialog.circuit.clear(CHANNEL.0, CHANNEL.1);
    dialog.sent();
    dialog.create((Cid(3), CHANNEL.1));

    dialog.answer(&gone(CHANNEL.0, CHANNEL.1));

    assert_eq!(dialog.events(), []);
    assert!(dialog.circuit.open(CHANNEL.1, Task::Get, Decoding::Flat, &prepared("")).is_ok());
}

#[test]
fn channels_that_were_not_requested_are_ignored() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);

    dialog.answer(&Answer::CreateChannel { cid: Cid(7), sid: Sid(70), status: RequestStatus::OK });

    assert_eq!(dialog.events(), []);
    dialog.circuit.clear(CHANNEL.0, CHANNEL.1);
    dialog.sent();
    assert!(dialog.circuit.holds_nothing());
}

#[test]
fn a_repeated_confirmation_changes_nothing() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    dialog.circuit.create(Cid(7), "w:seven", dialog.now);

    dialog.answer(&Answer::CreateChannel { cid: CHANNEL.0, sid: CHANNEL.1, status: RequestStatus::OK });

    assert_eq!(dialog.events(), []);
    assert!(dialog.circuit.describe(CHANNEL.1, "").is_ok());
}

#[test]
fn channels_to_which_the_server_gives_one_number_are_independent() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    dialog.circuit.create(Cid(7), "w:again", dialog.now);
    dialog.sent();

    dialog.answer(&Answer::CreateChannel { cid: Cid(7), sid: CHANNEL.1, status: RequestStatus::OK });

    let events = dialog.events();
    let [Event::Created { cid: Cid(7), sid: second }] = events[..] else { panic!("{events:?}") };
    let ioids = [CHANNEL.1, second].map(|sid| dialog.circuit.describe(sid, "").unwrap());
    let requested = ioids.map(|ioid| Request::GetField { sid: CHANNEL.1, ioid, sub_field: "".into() });
    assert_eq!(dialog.sent(), requested, "messages have the number of the server");
    dialog.answer(&Answer::DestroyChannel { sid: CHANNEL.1, cid: Cid(7) });
    assert_eq!(dialog.events(), [Event::ChannelGone { cid: Cid(7), sid: second }]);
    assert!(dialog.circuit.describe(second, "").is_err() && dialog.circuit.describe(CHANNEL.1, "").is_ok());
    dialog.circuit.clear(CHANNEL.0, CHANNEL.1);
    assert!(dialog.sent().contains(&Request::DestroyChannel { sid: CHANNEL.1, cid: CHANNEL.0 }));
    assert!(dialog.circuit.holds_nothing());
}

#[test]
fn the_type_of_a_channel_or_field_is_described_or_refused() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let whole = dialog.circuit.describe(CHANNEL.1, "").unwrap();
    let field = dialog.circuit.describe(CHANNEL.1, "alarm").unwrap();
    let requested = |ioid: Ioid, path: &str| Request::GetField { sid: CHANNEL.1, ioid, sub_field: path.into() };
    assert_eq!(dialog.sent(), [requested(whole, ""), requested(field, "alarm")]);

    let status = RequestStatus::error("no such field");
    dialog.answer(&Answer::GetField { ioid: field, status: status.clone() });
    let found = Answer::GetField { ioid: whole, status: RequestStatus::OK };
    for _ in 0..2 {
        dialog.answer_with(&found, |to| fodo_pva::types::encode(&double(), to));
    }

    let refused = Event::Described { ioid: field, result: Err(status) };
    assert_eq!(dialog.events(), [refused, Event::Described { ioid: whole, result: Ok(Some(double())) }]);
    assert_eq!(dialog.circuit.get(whole), Err(RequestError::NoSuchOperation));
}

#[test]
fn a_description_in_progress_is_no_operation_and_can_be_given_up() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.circuit.describe(CHANNEL.1, "").unwrap();
    dialog.sent();

    assert_eq!(dialog.circuit.get(ioid), Err(RequestError::NoSuchOperation));
    dialog.circuit.destroy(ioid);
    dialog.answer_with(&Answer::GetField { ioid, status: RequestStatus::OK }, |to| to.u8(0xff));

    assert_eq!((dialog.sent(), dialog.events()), (vec![], vec![]));
}
