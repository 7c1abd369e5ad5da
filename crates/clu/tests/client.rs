//! The client of a CLU, with a simulated CLU and a clock of the test.

#[expect(dead_code, reason = "the other tests use the rest")]
mod simulated;

use std::time::Duration;

use fodo_clu::cipher::CipherKey;
use fodo_clu::client::{Answer, Availability, ClientEvent, CluRequest, RequestId, RequestOutcome, SubmitError};
use fodo_clu::command::Serial;
use fodo_clu::limit;
use fodo_clu::script::{CluItem, ReportTarget};
use fodo_data::Scalar;
use simulated::{
    GOOD_WIRE, ListForm, NESTED, NOT_UTF8, SERIAL, Wire, World, availabilities, clu_address, config, key, long_text,
    updates, values,
};

const SECOND: Duration = Duration::from_secs(1);

/// A client that does not check the availability.
fn world() -> World {
    let mut config = config();
    config.checks_availability = false;
    World::new(1, config)
}

fn answered(text: &str) -> Vec<RequestOutcome> {
    vec![RequestOutcome::Answered(Answer::Text(text.into()))]
}

fn features(n: u32) -> Vec<CluItem> {
    (0..n).filter_map(|index| CluItem::feature("PAN9821", index)).collect()
}

#[test]
fn a_request_ends_as_answered_nil_refused_or_timed_out() {
    let mut world = world();
    world.wire.delay = Duration::ZERO;
    let answer = world.submit(CluRequest::Execute("f()"));
    let nil = world.submit(CluRequest::Execute("nothing()"));
    let refused = world.submit(CluRequest::Execute("refuse"));
    world.run_until(SECOND);
    world.clu.is_running = false;
    let timed_out = world.submit(CluRequest::Execute("g()"));
    world.run_until(7 * SECOND);

    assert_eq!(world.outcomes(answer), answered("value of f()"));
    assert_eq!(world.outcomes(nil), [RequestOutcome::Nil]);
    assert_eq!(world.outcomes(refused), [RequestOutcome::Refused]);
    assert_eq!(world.outcomes(timed_out), [RequestOutcome::TimedOut { was_sent: true }]);
    let counts = world.client.counts();
    assert_eq!((counts.submitted, counts.answered, counts.nil, counts.refused, counts.timed_out), (4, 1, 1, 1, 1));
    assert_eq!((counts.pending, world.client.deadline()), (0, None));
}

/// Such a refusal contains no session: the request that was sent first may still be carried out.
#[test]
fn a_refusal_without_a_session_ends_no_request_while_several_are_in_flight() {
    let mut world = world();
    let set = CluItem::feature("DOU1", 0).unwrap();
    let change = world.submit(CluRequest::Set(&set, &Scalar::Bool(true)));
    let second = world.submit(CluRequest::Execute("f()"));
    let refusal = world.clu.encrypted(b"resp:ERROR");
    world.wire.delay = Duration::ZERO;
    world.send_to_client(clu_address(), &refusal);
    world.run_until(SECOND);

    assert_eq!(world.outcomes(change), answered("value of DOU1:set(0,true)"));
    assert_eq!(world.outcomes(second), answered("value of f()"));
    assert_eq!((world.client.counts().refused, world.client.counts().unmatched), (0, 1));
}

#[test]
fn a_refusal_with_a_session_ends_its_request() {
    let mut world = world();
    let first = world.submit(CluRequest::Execute("f()"));
    let refused = world.submit(CluRequest::Execute("refuse with a session"));
    world.run_until(SECOND);

    assert_eq!(world.outcomes(first), answered("value of f()"));
    assert_eq!(world.outcomes(refused), [RequestOutcome::Refused]);
}

#[test]
fn only_requests_without_effects_are_sent_again() {
    let mut world = world();
    world.wire.loss = 1.0;
    let (set, get) = (CluItem::feature("DOU1", 0).unwrap(), CluItem::feature("DOU1", 1).unwrap());
    let execute = world.submit(CluRequest::Execute("once()"));
    let change = world.submit(CluRequest::Set(&set, &Scalar::Bool(true)));
    let repeated = world.submit(CluRequest::ExecuteRepeatedly("often()"));
    let value = world.submit(CluRequest::Get(&get));
    world.wire = GOOD_WIRE;
    world.run_until(10 * SECOND);

    assert_eq!(world.outcomes(execute), [RequestOutcome::TimedOut { was_sent: true }]);
    assert_eq!(world.outcomes(change), [RequestOutcome::TimedOut { was_sent: true }]);
    assert_eq!(world.outcomes(repeated), answered("value of often()"));
    assert_eq!(world.outcomes(value), answered("value of DOU1:get(1)"));
    assert_eq!(world.clu.executed.len(), 2);
    assert_eq!(world.client.counts().resent, 2);
}

#[test]
fn a_fetch_has_as_many_values_as_items() {
    let mut world = world();
    let items = features(5);

    let fetch = world.submit(CluRequest::Fetch(&items));
    let wrong = world.submit(CluRequest::Fetch(&[]));
    world.run_until(SECOND);

    let listed: Vec<String> = (0..5).map(|index| format!("{{PAN9821,{index}}}")).collect();
    assert_eq!(world.outcomes(fetch), [RequestOutcome::Answered(Answer::Values(values(&listed, 0)))]);
    assert_eq!(world.outcomes(wrong), [RequestOutcome::Answered(Answer::Values(vec![]))]);
}

#[test]
fn a_value_may_be_a_text_of_64_kilobytes_a_nested_table_or_other_than_utf8() {
    let mut world = world();
    for (script, value) in [("long()", long_text()), ("nested()", NESTED.to_vec()), ("bytes()", NOT_UTF8.to_vec())] {
        let request = world.submit(CluRequest::Execute(script));
        let until = world.elapsed() + SECOND;
        world.run_until(until);

        let expected = RequestOutcome::Answered(Answer::Text(fodo_data::Text::from_bytes(&value)));
        assert_eq!(world.outcomes(request), [expected], "{script}");
    }
}

#[test]
fn a_value_of_another_form_is_wrong() {
    let mut config = config();
    config.checks_availability = false;
    config.serial = Some(Serial(1));
    let mut world = World::new(1, config);

    let alive = world.submit(CluRequest::CheckAlive);
    world.run_until(SECOND);

    assert_eq!(world.outcomes(alive), [RequestOutcome::Wrong(SERIAL.to_string().as_str().into())]);
}

#[test]
fn late_repeated_foreign_and_invalid_datagrams_are_dropped_and_counted() {
    let mut world = world();
    world.wire.delay = Duration::ZERO;
    let late = world.submit(CluRequest::Execute("late()"));
    world.clu.is_running = false;
    world.run_until(6 * SECOND);
    assert_eq!(world.outcomes(late), [RequestOutcome::TimedOut { was_sent: true }]);
    // The reply to the request that timed out: its session is the only one that was used.
    let mut first = [0; 4];
    fastrand::Rng::with_seed(1).fill(&mut first);
    let session = fodo_clu::command::Session(first.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)));
    let reply = fodo_clu::command::Reply::Executed { clu: None, session, value: b"1" };
    let mut plain = Vec::new();
    reply.encode(&mut plain);
    let reply = world.clu.encrypted(&plain);
    world.send_to_client(clu_address(), &reply);
    world.send_to_client(([10, 0, 0, 3], 1234).into(), &reply);
    // The virtual CLU answers from another port.
    world.send_to_client(([10, 0, 0, 2], 40_000).into(), &reply);
    for invalid in [&b""[..], b"123", &[7; 16]] {
        world.send_to_client(clu_address(), invalid);
    }
    for value in [&b"clientReport:1:{1}"[..], b"unknown session"] {
        let update = world.clu.update(value);
        world.send_to_client(clu_address(), &update);
    }
    let no_reply = world.clu.encrypted(b"req_start_ftp");
    world.send_to_client(clu_address(), &no_reply);
    world.run_until(7 * SECOND);

    let counts = world.client.counts();
    assert_eq!((counts.late, counts.foreign, counts.undecryptable), (2, 1, 3));
    assert_eq!((counts.unmatched, counts.malformed, counts.replies), (2, 1, 0));
    assert_eq!(counts.received, 9);
    assert_eq!(world.outcomes(late).len(), 1);
}

#[test]
fn a_second_reply_to_a_request_that_was_sent_twice_is_counted() {
    let mut world = world();
    world.wire.delay = Duration::ZERO;
    world.clu.is_running = false;
    let get = world.submit(CluRequest::ExecuteRepeatedly("f()"));
    world.run_until(Duration::from_millis(1500));
    world.clu.is_running = true;
    world.wire.copies = 1.0;
    world.run_until(10 * SECOND);

    assert_eq!(world.outcomes(get), answered("value of f()"));
    let counts = world.client.counts();
    assert_eq!((counts.replies, counts.repeated), (1, 3));
}

#[test]
fn requests_beyond_the_number_in_flight_wait_for_replies() {
    let mut world = world();
    let ids: Vec<RequestId> = (0..50).map(|n| world.submit(CluRequest::Execute(&format!("f{n}()")))).collect();
    assert_eq!(world.client.counts().datagrams_sent, limit::IN_FLIGHT_DEFAULT as u64);
    world.run_until(SECOND);

    for (n, id) in ids.into_iter().enumerate() {
        assert_eq!(world.outcomes(id), answered(&format!("value of f{n}()")));
    }
}

#[test]
fn a_request_that_was_never_sent_is_reported_as_such() {
    let mut world = world();
    world.clu.is_running = false;
    let ids: Vec<RequestId> = (0..5).map(|_| world.submit(CluRequest::Execute("f()"))).collect();
    world.run_until(6 * SECOND);

    let outcomes: Vec<RequestOutcome> = ids.iter().flat_map(|id| world.outcomes(*id)).collect();
    let expected = [true, true, true, true, false].map(|was_sent| RequestOutcome::TimedOut { was_sent });
    assert_eq!(outcomes, expected);
}

#[test]
fn requests_that_cannot_be_sent_are_rejected() {
    let mut world = world();
    world.clu.is_running = false;
    let long = "x".repeat(limit::COMMAND_BYTES_MAX);
    let submit = |world: &mut World, request: CluRequest<'_>| {
        world.call(|client, now, out| client.submit(request, now, out)).map(|_| ())
    };

    assert_eq!(
        submit(&mut world, CluRequest::Execute(&long)),
        Err(SubmitError::TooLong { bytes: limit::COMMAND_BYTES_MAX + 24 })
    );
    let call = CluRequest::Call { object: "os.exit()--", method: 0, arguments: &[] };
    assert_eq!(submit(&mut world, call), Err(SubmitError::InvalidName));
    for _ in 0..limit::REQUESTS_MAX {
        assert_eq!(submit(&mut world, CluRequest::Execute("f()")), Ok(()));
    }
    assert_eq!(submit(&mut world, CluRequest::Execute("f()")), Err(SubmitError::QueueFull));
}

#[test]
fn a_cancelled_request_ends_once_and_the_next_one_is_sent() {
    let mut world = world();
    world.clu.is_running = false;
    let ids: Vec<RequestId> = (0..6).map(|n| world.submit(CluRequest::Execute(&format!("f{n}()")))).collect();

    for index in [0, 5] {
        world.call(|client, now, out| client.cancel(ids[index], now, out));
    }
    world.call(|client, now, out| client.cancel(ids[0], now, out));

    assert_eq!(
        (world.outcomes(ids[0]), world.outcomes(ids[5])),
        (vec![RequestOutcome::Cancelled], vec![RequestOutcome::Cancelled])
    );
    let counts = world.client.counts();
    assert_eq!((counts.cancelled, counts.pending, counts.datagrams_sent), (2, 4, 5));
}

#[test]
fn a_request_without_a_session_is_sent_alone() {
    let mut world = world();
    world.wire.delay = Duration::ZERO;
    let before = world.submit(CluRequest::Execute("before()"));
    let reset = world.submit(CluRequest::Reset);
    let tftp = world.submit(CluRequest::StartTftp);
    let after = world.submit(CluRequest::Execute("after()"));
    assert_eq!(world.client.counts().datagrams_sent, 1);
    world.run_until(SECOND);

    assert_eq!(world.outcomes(before), answered("value of before()"));
    assert_eq!(world.outcomes(reset), [RequestOutcome::Answered(Answer::Accepted)]);
    assert_eq!(world.outcomes(tftp), [RequestOutcome::Answered(Answer::Accepted)]);
    assert_eq!(world.outcomes(after), answered("value of after()"));
}

#[test]
fn after_a_key_was_set_the_client_uses_it() {
    let mut world = world();
    let new_key = CipherKey::new([1; 16], [2; 16]);
    let set = world.submit(CluRequest::SetKey(&new_key));
    let next = world.submit(CluRequest::Execute("f()"));
    world.run_until(SECOND);

    assert_eq!(world.outcomes(set), [RequestOutcome::Answered(Answer::Accepted)]);
    assert_eq!(world.outcomes(next), answered("value of f()"));
    assert_eq!(world.clu.key, new_key);
    assert_ne!(world.clu.key, key());
}

#[test]
fn setting_the_key_that_the_clu_has_already_is_confirmed() {
    let mut world = world();
    let set = world.submit(CluRequest::SetKey(&key()));
    world.run_until(SECOND);

    assert_eq!(world.outcomes(set), [RequestOutcome::Answered(Answer::Accepted)]);
    assert_eq!(world.client.counts().unmatched, 0);
}

#[test]
fn after_an_address_was_set_the_client_uses_it() {
    let mut world = world();
    let [address, gateway] = [[10, 0, 0, 77].into(), [10, 0, 0, 254].into()];
    let refused = world.submit(CluRequest::SetAddress { serial: Serial(5), address, gateway });
    let set = world.submit(CluRequest::SetAddress { serial: SERIAL, address, gateway });
    world.run_until(SECOND);

    assert_eq!(world.outcomes(refused), [RequestOutcome::Refused]);
    assert_eq!(world.outcomes(set), [RequestOutcome::Answered(Answer::Accepted)]);
    assert_eq!(world.client.clu(), ([10, 0, 0, 77], 1234).into());
}

#[test]
fn a_clu_that_stops_is_unavailable_within_10_seconds_and_recovers() {
    let mut world = World::new(2, config());
    world.run_until(20 * SECOND + Duration::from_millis(100));
    assert_eq!(availabilities(&world), [(0, Availability::Available)]);
    assert!(world.client.round_trip().is_some_and(|time| time < Duration::from_millis(5)));

    world.clu.is_running = false;
    world.run_until(60 * SECOND);
    world.clu.is_running = true;
    world.run_until(70 * SECOND);

    let [(0, _), (lost_s, Availability::Unavailable), (back_s, Availability::Available)] = availabilities(&world)[..]
    else {
        panic!("{:?}", availabilities(&world));
    };
    assert!((20..=30).contains(&lost_s), "{lost_s}");
    assert!((60..=66).contains(&back_s), "{back_s}");
    assert!(world.client.counts().is_balanced());
}

#[test]
fn a_lost_reply_to_one_check_does_not_make_a_clu_unavailable() {
    let mut world = World::new(2, config());
    world.run_until(4 * SECOND);
    world.clu.is_running = false;
    world.run_until(6 * SECOND);
    world.clu.is_running = true;
    world.run_until(60 * SECOND);

    assert_eq!(availabilities(&world), [(0, Availability::Available)]);
    assert_eq!(world.client.counts().timed_out, 1);
}

#[test]
fn a_clu_in_emergency_mode_and_another_clu_are_recognised() {
    let mut world = World::new(2, config());
    world.clu.is_emergency = true;
    world.run_until(20 * SECOND);
    assert_eq!(availabilities(&world), [(0, Availability::Emergency)]);

    let mut config = config();
    config.serial = Some(Serial(1));
    let mut world = World::new(2, config);
    world.run_until(20 * SECOND);
    assert_eq!(availabilities(&world), [(0, Availability::Unavailable)]);
}

#[test]
fn a_subscription_is_registered_in_pages_and_delivers_each_report() {
    for list_form in [ListForm::Quoted, ListForm::Unquoted] {
        let mut world = World::new(3, config());
        world.clu.list_form = list_form;
        let mut items = features(35);
        items.extend(CluItem::variable("setpoint"));
        let id = world.call(|client, now, out| client.subscribe(items, now, out)).unwrap();
        world.run_until(Duration::from_millis(10_500));

        let updates = updates(&world, id);
        // The reply to the registration and ten reports, of each page.
        assert_eq!(updates.len(), 3 * 11);
        for first in [0, 16, 32] {
            let pages: Vec<_> = updates.iter().filter(|(_, start, _)| *start == first).collect();
            assert_eq!(pages.len(), 11);
            assert!(pages.iter().all(|(_, _, values)| values.len() == if first == 32 { 4 } else { 16 }));
        }
        let variable = &updates.iter().rev().find(|(_, first, _)| *first == 32).unwrap().2[3];
        assert_eq!(*variable, values(&["\"setpoint\"".to_string()], 10)[0]);
        assert_eq!(world.client.counts().reports, 30);
    }
}

#[test]
fn a_registration_is_renewed_every_45_seconds() {
    let mut world = World::new(3, config());
    world.call(|client, now, out| client.subscribe(features(3), now, out)).unwrap();
    world.run_until(140 * SECOND);

    let n_registered: Vec<usize> = world.clu.n_registered.values().copied().collect();
    assert_eq!(n_registered, [4]);
}

#[test]
fn a_subscription_survives_a_restart_that_no_check_notices() {
    let mut world = World::new(3, config());
    let id = world.call(|client, now, out| client.subscribe(features(3), now, out)).unwrap();
    world.run_until(6 * SECOND);
    world.clu.restart();
    world.run_until(40 * SECOND);

    let times: Vec<u64> = updates(&world, id).iter().map(|(at, _, _)| at.as_secs()).collect();
    assert_eq!(availabilities(&world), [(0, Availability::Available)]);
    assert!(times.contains(&6) && times.contains(&39), "{times:?}");
    let gap = times.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(gap.is_some_and(|gap| gap <= limit::REPORT_SILENCE.as_secs() + 1), "{times:?}");
}

#[test]
fn a_subscription_is_registered_again_when_the_clu_is_available_again() {
    let mut world = World::new(3, config());
    let id = world.call(|client, now, out| client.subscribe(features(20), now, out)).unwrap();
    world.run_until(6 * SECOND);
    world.clu.is_running = false;
    world.run_until(60 * SECOND);
    world.clu.restart();
    world.run_until(70 * SECOND);

    let back_s = availabilities(&world)[2].0;
    let after = updates(&world, id).iter().filter(|(at, _, _)| at.as_secs() >= back_s).count();
    assert!(after >= 2 * 3, "{after}");
    assert!(updates(&world, id).iter().all(|(at, _, _)| at.as_secs() <= 7 || at.as_secs() >= back_s));
}

#[test]
fn an_unknown_item_is_reported_and_the_others_are_delivered() {
    let mut world = World::new(3, config());
    let mut items = features(16);
    items[5] = CluItem::feature("UNKNOWN1", 0).unwrap();
    let id = world.call(|client, now, out| client.subscribe(items, now, out)).unwrap();
    world.run_until(Duration::from_millis(3500));

    let missing = world.events.iter().filter(|(_, event)| matches!(event, ClientEvent::Missing { .. })).count();
    let expected = ClientEvent::Missing { subscription: id, index: 5 };
    assert!(world.events.iter().any(|(_, event)| *event == expected));
    assert_eq!(missing, 1);
    let updates = updates(&world, id);
    let mut delivered: Vec<usize> =
        updates.iter().flat_map(|(_, first, values)| *first..first + values.len()).collect();
    delivered.sort_unstable();
    delivered.dedup();
    assert_eq!(delivered, (0..16).filter(|index| *index != 5).collect::<Vec<_>>());
}

#[test]
fn a_report_with_another_number_of_values_is_dropped_and_counted() {
    let mut world = World::new(3, config());
    let id = world.call(|client, now, out| client.subscribe(features(2), now, out)).unwrap();
    world.run_until(Duration::from_millis(500));
    let n_updates = updates(&world, id).len();
    let client_id = *world.clu.registrations.keys().next().unwrap();
    let update = world.clu.update(format!("clientReport:{client_id}:{{1,2,3}}").as_bytes());
    world.send_to_client(clu_address(), &update);
    world.run_until(Duration::from_millis(600));

    assert_eq!((updates(&world, id).len(), world.client.counts().malformed), (n_updates, 1));
}

#[test]
fn a_subscription_that_ends_is_removed_from_the_clu() {
    let mut config = config();
    config.report_target = ReportTarget::Address([10, 0, 0, 1].into(), 4344);
    let mut world = World::new(3, config);
    let ended = world.call(|client, now, out| client.subscribe(features(20), now, out)).unwrap();
    let kept = world.call(|client, now, out| client.subscribe(features(1), now, out)).unwrap();
    world.run_until(2 * SECOND);
    world.call(|client, now, out| client.unsubscribe(ended, now, out));
    world.run_until(4 * SECOND);

    assert_eq!((world.clu.registrations.len(), world.clu.n_destroyed), (1, 2));
    let last = |id| updates(&world, id).last().map(|(at, _, _)| at.as_secs());
    assert!(last(ended) <= Some(2) && last(kept) >= Some(3));

    world.call(|client, now, out| client.close(now, out));
    world.run_until(20 * SECOND);
    assert_eq!((world.clu.registrations.len(), world.clu.n_destroyed), (0, 3));
    assert_eq!(world.client.deadline(), None);
}

/// Random requests on a wire that loses, copies and delays datagrams.
#[test]
fn each_request_ends_exactly_once_whatever_the_network_does() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::new(seed, config());
        world.wire = Wire { loss: 0.2, copies: 0.2, delay: Duration::from_millis(2500) };
        let item = CluItem::feature("DOU1", 0).unwrap();
        let subscription = world.call(|client, now, out| client.subscribe(features(40), now, out)).unwrap();
        let mut ids = Vec::new();
        for _ in 0..150 {
            let request = match random.u8(0..8) {
                0 => CluRequest::Reset,
                1 => CluRequest::StartTftp,
                2 => CluRequest::Execute("refuse"),
                3 => CluRequest::Execute("nothing()"),
                4 => CluRequest::Fetch(std::slice::from_ref(&item)),
                5 => CluRequest::CheckAlive,
                6 => CluRequest::Get(&item),
                _ => CluRequest::Execute("f()"),
            };
            ids.push(world.submit(request));
            if random.u8(0..10) == 0 {
                let id = ids[random.usize(..ids.len())];
                world.call(|client, now, out| client.cancel(id, now, out));
            }
            if random.u8(0..20) == 0 {
                world.clu.is_running = !world.clu.is_running;
            }
            let mut garbage = vec![0; random.usize(0..64)];
            random.fill(&mut garbage);
            world.send_to_client(clu_address(), &garbage);
            let until = world.elapsed() + Duration::from_millis(random.u64(0..800));
            world.run_until(until);
        }
        world.call(|client, now, out| client.unsubscribe(subscription, now, out));
        let until = world.elapsed() + 30 * SECOND;
        world.run_until(until);

        for id in &ids {
            assert_eq!(world.outcomes(*id).len(), 1, "seed {seed}, {id:?}");
        }
        let counts = world.client.counts();
        assert!(counts.is_balanced() && counts.pending <= 1, "seed {seed}: {counts:?}");
    }
}
