//! Monitors: updates contain what has changed, events everything.

use std::sync::Arc;

use fodo_data::{BitSet, EventMask, Kind, Meta, NormativeLayout, Reading, StructureBuilder, Value};
use fodo_pva::Ioid;
use fodo_pva::client::{Decoding, Event, Received, RequestError, Task};
use fodo_pva::cursor::ByteOrder;
use fodo_pva::message::{Answer, Request, Subcommand};
use fodo_pva::status::RequestStatus;

use crate::dialog::{CHANNEL, Dialog, ORDERS, double};

fn monitor(ioid: Ioid, sub: Subcommand) -> Request {
    Request::Monitor { sid: CHANNEL.1, ioid, sub }
}

fn layout() -> NormativeLayout {
    NormativeLayout::of(double()).unwrap()
}

fn bits(bits: &[usize]) -> BitSet {
    bits.iter().copied().collect()
}

/// A monitor that was started.
fn running(dialog: &mut Dialog, decoding: Decoding) -> Ioid {
    let ioid = dialog.opened(Task::Monitor, decoding, &double());
    assert_eq!(dialog.circuit.start(ioid), Ok(()));
    assert_eq!(dialog.sent(), [monitor(ioid, Subcommand::START)]);
    ioid
}

/// The only event, which must be an update.
fn update(dialog: &mut Dialog) -> (Received, BitSet, BitSet) {
    let [Event::Update { received, changed, overrun, .. }] = <[_; 1]>::try_from(dialog.events()).unwrap() else {
        panic!("an update")
    };
    (received, changed, overrun)
}

fn reading(dialog: &mut Dialog) -> Reading {
    let (Received::Reading(reading), ..) = update(dialog) else { panic!("a reading") };
    reading
}

#[test]
fn a_monitor_starts_as_soon_as_it_is_open() {
    for order in ORDERS {
        let mut dialog = Dialog::with_channel(order);
        let ioid = dialog.open(Task::Monitor, Decoding::Flat, "");
        assert_eq!(dialog.circuit.start(ioid), Ok(()));
        assert_eq!(dialog.sent(), [monitor(ioid, Subcommand::INIT)]);

        dialog.initialise(Task::Monitor, ioid, &double());

        assert_eq!(dialog.events(), [Event::Opened { ioid, kind: Some(double()) }]);
        assert_eq!(dialog.sent(), [monitor(ioid, Subcommand::START)]);
        assert_eq!(dialog.circuit.start(ioid), Ok(()));
        assert_eq!(dialog.sent(), [], "it runs already");
    }
}

#[test]
fn an_update_is_reported_with_everything_received_before() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = running(&mut dialog, Decoding::Flat);
    let meta = Some(Arc::new(Meta { units: "mm".into(), ..Meta::default() }));
    let first = Reading { user_tag: 4, meta, ..Reading::bare(1.0.into()) };
    dialog.update(ioid, &layout(), layout().marks(EventMask(15)), &first, &BitSet::new());
    let received = reading(&mut dialog);
    assert_eq!((&received.value, received.user_tag), (&first.value, 4));
    assert_eq!(received.meta.map(|meta| meta.units.clone()), Some("mm".into()));

    dialog.update(ioid, &layout(), &bits(&[1]), &Reading::bare(2.0.into()), &bits(&[1]));

    let (received, changed, overrun) = update(&mut dialog);
    let Received::Reading(received) = received else { panic!("a reading") };
    assert_eq!((received.value, received.user_tag), (2.0.into(), 4));
    assert_eq!(received.meta.map(|meta| meta.units.clone()), Some("mm".into()));
    assert_eq!((changed, overrun), (bits(&[1]), bits(&[1])));
}

#[test]
fn metadata_in_an_update_does_not_change_what_was_delivered_before() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = running(&mut dialog, Decoding::Flat);
    let with_units = |units: &str| Reading {
        meta: Some(Arc::new(Meta { units: units.into(), ..Meta::default() })),
        ..Reading::bare(1.0.into())
    };
    let everything = layout().marks(EventMask(15)).clone();

    dialog.update(ioid, &layout(), &everything, &with_units("mm"), &BitSet::new());
    let before = reading(&mut dialog);
    dialog.update(ioid, &layout(), &everything, &with_units("cm"), &BitSet::new());
    let after = reading(&mut dialog);

    let units = [before, after].map(|reading| reading.meta.unwrap().units.to_string());
    assert_eq!(units, ["mm", "cm"]);
}

#[test]
fn a_structure_keeps_the_nodes_that_an_update_does_not_contain() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = running(&mut dialog, Decoding::Structured);
    let whole = bits(&[0]);
    dialog.update(ioid, &layout(), &whole, &Reading { user_tag: 4, ..Reading::bare(1.0.into()) }, &BitSet::new());
    update(&mut dialog);

    dialog.update(ioid, &layout(), &bits(&[1]), &Reading::bare(2.0.into()), &bits(&[7, 8]));

    let (Received::Structure(structure), changed, overrun) = update(&mut dialog) else { panic!("a structure") };
    assert_eq!((structure.get("value"), structure.get("timeStamp.userTag")), (Some(&2.0.into()), Some(&4.into())));
    assert_eq!((structure.changed(), &changed, overrun), (&bits(&[1]), &bits(&[1]), bits(&[7, 8])));
}

#[test]
fn a_type_without_a_scalar_is_monitored_as_a_structure() {
    let mut build = StructureBuilder::new("");
    build.scalar("first", Kind::I32).scalar("second", Kind::I32);
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.opened(Task::Monitor, Decoding::Flat, &Arc::new(build.finish()));

    for (bit, number) in [(1, 5), (2, 6)] {
        dialog.answer_with(&Answer::Monitor { ioid, sub: Subcommand::EXECUTE }, |to| {
            to.bit_set(&bits(&[bit]));
            to.i32(number);
            to.bit_set(&BitSet::new());
        });
    }

    let [_, Event::Update { received: Received::Structure(structure), .. }] = &dialog.events()[..] else {
        panic!("two updates")
    };
    assert_eq!([1, 2].map(|bit| structure.value(bit)), [Some(&Value::from(5)), Some(&6.into())]);
}

#[test]
fn a_monitor_stops_and_starts_again() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = running(&mut dialog, Decoding::Flat);

    (0..2).for_each(|_| assert_eq!(dialog.circuit.stop(ioid), Ok(())));
    assert_eq!(dialog.sent(), [monitor(ioid, Subcommand::STOP)]);
    // In transit when it was stopped.
    dialog.update(ioid, &layout(), &bits(&[1]), &Reading::bare(2.0.into()), &BitSet::new());
    assert_eq!(reading(&mut dialog).value, 2.0.into());
    assert_eq!(dialog.circuit.start(ioid), Ok(()));

    assert_eq!(dialog.sent(), [monitor(ioid, Subcommand::START)]);
}

#[test]
fn a_monitor_that_is_stopped_before_it_is_open_does_not_start() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.open(Task::Monitor, Decoding::Flat, "");
    assert_eq!((dialog.circuit.start(ioid), dialog.circuit.stop(ioid)), (Ok(()), Ok(())));
    dialog.initialise(Task::Monitor, ioid, &double());

    assert_eq!(dialog.sent(), [monitor(ioid, Subcommand::INIT)]);
}

#[test]
fn with_flow_control_the_window_is_sent_before_the_start_and_updates_are_acknowledged() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.open(Task::Monitor, Decoding::Flat, "record[pipeline=true,queueSize=8]");
    assert_eq!(dialog.circuit.start(ioid), Ok(()));
    assert_eq!(dialog.circuit.acknowledge(ioid, 3), Ok(()));
    assert_eq!(dialog.sent(), [monitor(ioid, Subcommand::INIT)]);

    dialog.initialise(Task::Monitor, ioid, &double());
    let (ack, start) = (monitor(ioid, Subcommand::ACK), monitor(ioid, Subcommand::START));
    assert_eq!(dialog.sent_with_bodies(), [(ack.clone(), vec![8, 0, 0, 0]), (start.clone(), vec![])]);
    assert_eq!((dialog.circuit.acknowledge(ioid, 3), dialog.circuit.acknowledge(ioid, 0)), (Ok(()), Ok(())));
    assert_eq!(dialog.sent_with_bodies(), [(ack, vec![3, 0, 0, 0])]);
    assert_eq!((dialog.circuit.stop(ioid), dialog.circuit.start(ioid)), (Ok(()), Ok(())));

    assert_eq!(dialog.sent(), [monitor(ioid, Subcommand::STOP), start], "the window is sent only once");
}

#[test]
fn without_flow_control_nothing_is_acknowledged() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = running(&mut dialog, Decoding::Flat);

    assert_eq!(dialog.circuit.acknowledge(ioid, 3), Ok(()));

    assert_eq!(dialog.sent(), []);
}

#[test]
fn a_monitor_that_the_server_ends_is_reported_after_its_last_update() {
    for has_update in [false, true] {
        let mut dialog = Dialog::with_channel(ByteOrder::Little);
        let ioid = running(&mut dialog, Decoding::Flat);
        let status = RequestStatus::error("removed");

        dialog.answer_with(&Answer::Monitor { ioid, sub: Subcommand::DESTROY }, |to| {
            status.encode(to);
            if has_update {
                fodo_pva::value::encode_reading(&layout(), &bits(&[1]), &Reading::bare(3.0.into()), to);
                to.bit_set(&BitSet::new());
            }
        });

        let mut events = dialog.events();
        assert_eq!(events.pop(), Some(Event::Ended { ioid, status }));
        assert_eq!(events.len(), usize::from(has_update));
        assert_eq!(dialog.sent(), [Request::DestroyRequest { sid: CHANNEL.1, ioid }]);
        assert_eq!(dialog.circuit.start(ioid), Err(RequestError::NoSuchOperation));
    }
}

#[test]
fn a_refused_monitor_has_ended() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.open(Task::Monitor, Decoding::Flat, "");
    let status = RequestStatus::error("no monitor");

    dialog.answer_with(&Answer::Monitor { ioid, sub: Subcommand::INIT }, |to| status.encode(to));

    assert_eq!(dialog.events(), [Event::OpenFailed { ioid, reason: RequestError::Refused(status) }]);
}

#[test]
fn updates_before_a_monitor_is_open_are_ignored() {
    let mut dialog = Dialog::with_channel(ByteOrder::Little);
    let ioid = dialog.open(Task::Monitor, Decoding::Flat, "");

    dialog.update(ioid, &layout(), &bits(&[1]), &Reading::bare(2.0.into()), &BitSet::new());

    assert_eq!(dialog.events(), []);
}
