//! Silent servers.

use std::time::Duration;

use fodo_pva::Cid;
use fodo_pva::client::Event;
use fodo_pva::cursor::ByteOrder;
use fodo_pva::limit;
use fodo_pva::message::{Answer, Request};
use fodo_pva::status::RequestStatus;

use crate::dialog::{Dialog, ECHO_AFTER};

#[test]
fn an_echo_is_sent_in_every_period_even_while_the_server_sends() {
    let mut dialog = Dialog::validated(ByteOrder::Little);
    for _ in 0..3 {
        let start = dialog.now;
        assert_eq!(dialog.circuit.deadline(), Some((start + ECHO_AFTER).monotonic));

        dialog.now = start + ECHO_AFTER / 2;
        dialog.answer(&Answer::Beacon {});
        dialog.tick();
        assert_eq!(dialog.sent(), [], "not before the period has passed");
        dialog.now = start + ECHO_AFTER;
        dialog.tick();
        dialog.tick();
        assert_eq!(dialog.sent_with_bodies(), [(Request::Echo {}, vec![])]);
        dialog.answer(&Answer::Echo {});
    }
    assert_eq!(dialog.events(), []);
}

#[test]
fn a_server_that_does_not_reply_is_unresponsive_until_it_sends_again() {
    let mut dialog = Dialog::validated(ByteOrder::Little);
    dialog.now = dialog.now + ECHO_AFTER;
    dialog.tick();
    assert_eq!(dialog.sent(), [Request::Echo {}]);

    dialog.now = dialog.now + limit::ECHO_TIMEOUT;
    dialog.tick();
    assert_eq!((dialog.events(), dialog.circuit.deadline()), (vec![Event::Unresponsive], None));
    dialog.now = dialog.now + Duration::from_secs(1000);
    dialog.tick();
    assert_eq!((dialog.events(), dialog.sent()), (vec![], vec![]));

    dialog.answer(&Answer::Echo {});
    assert_eq!(dialog.events(), [Event::Responsive]);
    assert_eq!(dialog.circuit.deadline(), Some((dialog.now + ECHO_AFTER).monotonic));
}

#[test]
fn a_server_that_does_not_greet_gets_no_echo_and_is_unresponsive() {
    let mut dialog = Dialog::new(ByteOrder::Little);
    dialog.now = dialog.now + ECHO_AFTER;

    dialog.tick();

    assert_eq!((dialog.sent(), dialog.events()), (vec![], vec![Event::Unresponsive]));
    dialog.greet(ByteOrder::Little, &["ca"]);
    assert_eq!((dialog.sent().len(), dialog.events()), (1, vec![Event::Responsive]));
}

#[test]
fn a_server_that_does_not_confirm_the_client_is_unresponsive() {
    // Phoebus, if it cannot resolve the host's name.
    let mut dialog = Dialog::new(ByteOrder::Little);
    dialog.greet(ByteOrder::Little, &["ca"]);
    dialog.sent();
    dialog.now = dialog.now + ECHO_AFTER;

    dialog.tick();

    assert_eq!((dialog.sent(), dialog.events()), (vec![], vec![Event::Unresponsive]));
}

#[test]
fn a_channel_without_a_reply_is_reported_once() {
    let mut dialog = Dialog::validated(ByteOrder::Little);
    let start = dialog.now;
    dialog.circuit.create(Cid(1), "w:one", start);
    assert_eq!(dialog.circuit.deadline(), Some((start + limit::CREATE_TIMEOUT).monotonic));

    dialog.now = start + (limit::CREATE_TIMEOUT - Duration::from_nanos(1));
    dialog.tick();
    assert_eq!(dialog.events(), [], "there is time left");
    dialog.now = start + limit::CREATE_TIMEOUT;
    dialog.tick();
    dialog.tick();
    assert_eq!((dialog.sent().len(), dialog.events()), (1, vec![Event::CreateUnanswered]));
    assert!(!dialog.circuit.holds_nothing());

    // Any message is a sign of life; only a reply ends the wait.
    dialog.answer(&Answer::Echo {});
    assert_eq!(dialog.circuit.deadline(), Some((dialog.now + limit::CREATE_TIMEOUT).monotonic));
    let status = RequestStatus::error("not found");
    dialog.answer(&Answer::CreateChannel { cid: Cid(1), sid: fodo_pva::Sid(0), status });
    assert_eq!(dialog.circuit.deadline(), Some((start + ECHO_AFTER).monotonic));
}
