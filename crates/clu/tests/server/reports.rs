//! Subscriptions: when reports are sent, and when subscriptions end.

use std::time::Duration;

use fodo_clu::cipher::CipherKey;
use fodo_clu::command::{Reply, Request, SecretKey, Session};
use fodo_clu::limit;

use super::world::*;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The time of each report, and its text.
fn reports(sent: Vec<(Duration, Sent)>) -> Vec<(Duration, String)> {
    sent.iter().map(|(at, sent)| (*at, text(&project_key(), sent).unwrap())).collect()
}

#[test]
fn a_registration_is_answered_with_its_values_and_then_reports_changes() {
    let mut world = World::new(config());
    world.values[3] = 27;

    let reply = world.execute(client(1), &project_key(), "register 7 3 4");
    assert_eq!(reply.as_deref(), Some("clientReport:7:{27,0}"));
    assert_eq!(world.advance(s(5)), []);

    world.values[4] = 5;
    let sent = world.advance(s(5));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].1.to, client(1));
    let plain = plain(&project_key(), &sent[0].1).unwrap();
    assert_eq!(plain, b"resp:10.0.0.2:00000000:clientReport:7:{27,5}");
    assert!(matches!(Reply::decode(&plain), Some(Reply::Executed { session: Session::UPDATE, .. })));
}

#[test]
fn reports_are_sent_to_the_declared_address() {
    let mut world = World::new(config());

    world.execute(client(1), &project_key(), "register 10.0.9.9:4344 7 3");
    world.values[3] = 1;
    let sent = world.advance(s(2));

    assert_eq!(sent.iter().map(|(_, sent)| sent.to).collect::<Vec<_>>(), [([10, 0, 9, 9], 4344).into()]);
}

#[test]
fn changes_are_merged_to_one_report_in_an_interval() {
    let mut world = World::new(config());
    world.execute(client(1), &project_key(), "register 7 3");

    let mut all = Vec::new();
    for step in 1..=50 {
        world.values[3] = step;
        world.server.values_changed(world.now, &mut world.out);
        assert_eq!(world.carry_out(), [], "the interval is over only in advance()");
        all.extend(world.advance(Duration::from_millis(100)));
    }

    let texts: Vec<_> = reports(all).into_iter().map(|(_, text)| text).collect();
    let expected: Vec<_> = [10, 20, 30, 40, 50].map(|step| format!("clientReport:7:{{{step}}}")).to_vec();
    assert_eq!(texts, expected);
}

#[test]
fn a_change_after_a_quiet_time_is_reported_at_once() {
    let mut world = World::new(config());
    world.execute(client(1), &project_key(), "register 7 3");
    world.advance(Duration::from_millis(5300));

    world.values[3] = 1;
    world.server.values_changed(world.now, &mut world.out);
    let first = world.carry_out();
    world.values[3] = 2;
    world.server.values_changed(world.now, &mut world.out);
    let second = reports(world.advance(s(3)));

    assert_eq!(first.iter().filter_map(|sent| text(&project_key(), sent)).collect::<Vec<_>>(), ["clientReport:7:{1}"]);
    assert_eq!(second, [(s(1), "clientReport:7:{2}".to_string())]);
}

#[test]
fn unchanged_values_are_repeated_so_that_a_lost_report_is_replaced() {
    let mut world = World::new(config());
    world.execute(client(1), &project_key(), "register 7 3");

    let times: Vec<_> = world.advance(s(35)).into_iter().map(|(at, _)| at).collect();

    assert_eq!(times, [s(10), s(20), s(30)]);
    assert_eq!(world.server.counts().reports_unchanged, 32);
    assert!(limit::REPORT_REPEAT < limit::SUBSCRIPTION_TIME);
}

#[test]
fn a_subscription_ends_60_s_after_its_last_registration() {
    let mut world = World::new(config());
    world.execute(client(1), &project_key(), "register 7 3");
    world.execute(client(2), &project_key(), "register 7 3");

    world.advance(s(45));
    world.execute(client(2), &project_key(), "register 7 3");
    world.advance(Duration::from_millis(14_999));
    assert_eq!(world.server.n_subscriptions(), 2);
    world.advance(Duration::from_millis(1));
    assert_eq!(world.server.n_subscriptions(), 1);
    let receivers: std::collections::HashSet<_> = world.advance(s(30)).into_iter().map(|(_, sent)| sent.to).collect();
    assert_eq!(receivers, [client(2)].into());
    assert_eq!(world.advance(s(3600)).len(), 1);

    assert_eq!((world.server.n_subscriptions(), world.server.counts().subscriptions_expired), (0, 2));
    assert_eq!(world.server.deadline(), None);
}

#[test]
fn a_destroyed_subscription_is_not_reported_and_another_with_its_number_is() {
    let mut world = World::new(config());
    world.execute(client(1), &project_key(), "register 7 3");
    world.execute(client(2), &project_key(), "register 7 3");

    assert_eq!(world.execute(client(1), &project_key(), "destroy 7").as_deref(), Some("7"));
    world.values[3] = 1;
    let sent = world.advance(s(2));

    assert_eq!(sent.iter().map(|(_, sent)| sent.to).collect::<Vec<_>>(), [client(2)]);
}

#[test]
fn a_new_key_is_used_for_reports_at_once() {
    let mut world = World::new(config());
    let new = CipherKey::new([7; 16], [8; 16]);
    world.execute(client(1), &project_key(), "register 7 3");

    let request = Request::SetKey { challenge: &new.seal(&[0; 30]), iv: new.iv(), key: SecretKey(new.key()) };
    world.request(client(1), &project_key(), &request);
    world.values[3] = 1;
    let sent = world.advance(s(2));

    assert_eq!(text(&new, &sent[0].1).as_deref(), Some("clientReport:7:{1}"));
}

#[test]
fn values_that_are_late_are_requested_again_and_the_late_ones_are_ignored() {
    let mut world = World::new(config());
    world.execute(client(1), &project_key(), "register 7 3");

    world.now = world.now + s(1);
    world.server.tick(world.now, &mut world.out);
    let first = world.out.events.pop().expect("a request for values");
    world.now = world.now + limit::FETCH_TIMEOUT;
    world.server.tick(world.now, &mut world.out);
    let fodo_clu::server::ServerEvent::Fetch { fetch, .. } = first else { panic!("not a request for values") };
    world.server.fetched(fetch, b"{99}", world.now, &mut world.out);

    assert_eq!(world.take_sent(), []);
    assert_eq!((world.server.counts().fetches_unanswered, world.server.counts().fetches_late), (1, 1));
    assert_eq!(world.carry_out().len(), 1, "the repeated request is answered");
}

#[test]
fn values_that_cannot_be_read_are_requested_again_after_an_interval() {
    let mut world = World::new(config());
    world.execute(client(1), &project_key(), "register 7 3");
    world.values[3] = 5;

    world.now = world.now + s(1);
    world.server.tick(world.now, &mut world.out);
    let Some(fodo_clu::server::ServerEvent::Fetch { fetch, .. }) = world.out.events.pop() else { panic!("no fetch") };
    world.server.not_fetched(fetch, world.now);
    world.server.not_fetched(fetch, world.now);
    let sent = reports(world.advance(s(3)));

    assert_eq!(sent, [(s(1), "clientReport:7:{5}".to_string())]);
    assert_eq!(world.server.counts().fetches_unanswered, 1);
}

#[test]
fn registrations_above_a_limit_are_refused_with_a_reason() {
    let mut world = World::new(config());
    let key = project_key();

    for id in 0..limit::SUBSCRIPTIONS_OF_ADDRESS_MAX {
        let reply = world.execute(client(1), &key, &format!("register {id} 3"));
        assert_eq!(reply, Some(format!("clientReport:{id}:{{0}}")));
    }
    let refused = world.execute(client(1), &key, "register 99999 3");
    assert_eq!(refused.as_deref(), Some("error: a CLU has space for 4096 registrations of one address"));
    assert!(world.execute(client(2), &key, "register 1 3").unwrap().starts_with("clientReport"));
    assert!(world.execute(client(1), &key, "register 0 3").unwrap().starts_with("clientReport"), "a renewal");

    let long = vec!["3"; limit::SUBSCRIPTION_ITEMS_MAX + 1].join(" ");
    let refused = world.execute(client(2), &key, &format!("register 2 {long}"));
    assert_eq!(refused.as_deref(), Some("error: a CLU has space for 256 values in one registration"));
    for invalid in ["0.0.0.0:4344", "255.255.255.255:4344", "224.0.0.1:4344", "10.0.0.1:0"] {
        let refused = world.execute(client(2), &key, &format!("register {invalid} 2 3")).unwrap();
        assert!(refused.starts_with("error: reports cannot be sent to "), "{refused}");
    }
    assert_eq!(world.server.n_subscriptions(), limit::SUBSCRIPTIONS_OF_ADDRESS_MAX + 1);
    assert_eq!(world.server.counts().registrations_refused, 6);
}

#[test]
fn a_registration_whose_reply_is_too_long_is_not_entered() {
    let mut world = World::new(config());
    let items = vec!["3"; 128].join(" ");
    world.values[3] = i64::MAX;

    let reply = world.execute(client(1), &project_key(), &format!("register 7 {items}")).unwrap();

    assert!(reply.starts_with("error: the value has "), "{reply}");
    assert_eq!((world.server.n_subscriptions(), world.server.counts().values_too_long), (0, 1));
}

#[test]
fn a_report_that_is_too_long_is_counted_and_not_sent() {
    let mut world = World::new(config());
    world.execute(client(1), &project_key(), "register 7 3");

    world.now = world.now + s(1);
    world.server.tick(world.now, &mut world.out);
    let Some(fodo_clu::server::ServerEvent::Fetch { fetch, .. }) = world.out.events.pop() else { panic!("no fetch") };
    world.server.fetched(fetch, "x".repeat(3000).as_bytes(), world.now, &mut world.out);

    assert_eq!(world.take_sent(), []);
    assert_eq!((world.server.counts().reports, world.server.counts().reports_too_long), (0, 1));
}
