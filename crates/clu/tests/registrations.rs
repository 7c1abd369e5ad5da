//! Registrations of a subscription that fail after they were confirmed, with a simulated CLU and a clock of the test.

#[expect(dead_code, reason = "the other tests use the rest")]
mod simulated;

use std::time::Duration;

use fodo_clu::client::{Availability, ClientEvent, CluSubscription};
use fodo_clu::script::CluItem;
use simulated::{FailedRegistration, RegistrationFailure, World, availabilities, config, updates};

const SECOND: Duration = Duration::from_secs(1);

fn features(n: u32) -> Vec<CluItem> {
    (0..n).filter_map(|index| CluItem::feature("PAN9821", index)).collect()
}

/// The items that are reported as missing, with the seconds.
fn missing(world: &World) -> Vec<(u64, usize)> {
    let missing = |(at, event): &(Duration, ClientEvent)| match event {
        ClientEvent::Missing { index, .. } => Some((at.as_secs(), *index)),
        _ => None,
    };
    world.events.iter().filter_map(missing).collect()
}

/// The items that are updated in this second.
fn updated_at(world: &World, id: CluSubscription, second: u64) -> Vec<usize> {
    let updates = updates(world, id).into_iter().filter(|(at, _, _)| at.as_secs() == second);
    let mut items: Vec<usize> = updates.flat_map(|(_, first, values)| first..first + values.len()).collect();
    items.sort_unstable();
    items.dedup();
    items
}

/// A reset without a long silence has removed an object, or one value is too long now, or the CLU refuses an item.
#[test]
fn an_item_that_cannot_be_registered_any_more_is_reported_and_the_others_are_delivered() {
    let failures: [RegistrationFailure; 3] = [
        |items| items.iter().any(|item| item == "{PAN9821,5}").then_some(FailedRegistration::Nil),
        |items| items.iter().any(|item| item == "{PAN9821,5}").then_some(FailedRegistration::TooLong),
        |items| items.iter().any(|item| item == "{PAN9821,5}").then_some(FailedRegistration::Refused),
    ];
    for failure in failures {
        let mut world = World::new(3, config());
        let id = world.call(|client, now, out| client.subscribe(features(16), now, out)).unwrap();
        world.run_until(Duration::from_millis(6500));
        world.clu.registration_failure = failure;
        world.clu.restart();
        world.run_until(60 * SECOND);

        assert_eq!(availabilities(&world), [(0, Availability::Available)]);
        let missing = missing(&world);
        assert_eq!(missing.len(), 1, "{missing:?}");
        let (at_s, index) = missing[0];
        assert!(index == 5 && at_s <= 50, "{missing:?}");
        assert_eq!(updated_at(&world, id, 58), (0..16).filter(|index| *index != 5).collect::<Vec<_>>());
    }
}

/// A busy CLU refuses any request.
#[test]
fn refusals_of_a_busy_clu_do_not_split_a_registration() {
    let mut world = World::new(3, config());
    let id = world.call(|client, now, out| client.subscribe(features(16), now, out)).unwrap();
    world.clu.registration_failure = |_| Some(FailedRegistration::Refused);
    world.run_until(12 * SECOND);
    world.clu.registration_failure = |_| None;
    world.run_until(30 * SECOND);

    assert_eq!((missing(&world), world.clu.registrations.len()), (vec![], 1));
    assert_eq!(updated_at(&world, id, 29), (0..16).collect::<Vec<_>>());
}

#[test]
fn a_known_object_may_be_missing_while_the_scripts_of_the_clu_start() {
    let mut world = World::new(3, config());
    let id = world.call(|client, now, out| client.subscribe(features(16), now, out)).unwrap();
    world.run_until(Duration::from_millis(6500));
    world.clu.registration_failure = |_| Some(FailedRegistration::Nil);
    world.clu.restart();
    // The last report was received at 6 s.
    world.run_until(22 * SECOND);
    world.clu.registration_failure = |_| None;
    world.run_until(30 * SECOND);

    assert_eq!((missing(&world), world.clu.registrations.len()), (vec![], 1));
    assert_eq!(updated_at(&world, id, 29), (0..16).collect::<Vec<_>>());
}

#[test]
fn items_whose_registration_stays_without_reply_are_reported_once() {
    let mut world = World::new(3, config());
    let id = world.call(|client, now, out| client.subscribe(features(2), now, out)).unwrap();
    world.run_until(Duration::from_millis(6500));
    world.clu.registration_failure = |_| Some(FailedRegistration::NoReply);
    world.clu.restart();
    world.run_until(80 * SECOND);

    let missing = missing(&world);
    assert_eq!(missing.iter().map(|(_, index)| *index).collect::<Vec<_>>(), [0, 1]);
    assert!(missing.iter().all(|(at_s, _)| *at_s <= 40), "{missing:?}");
    world.clu.registration_failure = |_| None;
    world.run_until(100 * SECOND);
    assert_eq!(updated_at(&world, id, 99), [0, 1]);
}
