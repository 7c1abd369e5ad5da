//! Updates: to clients that stall, of PVs that change at a high rate, and with races.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use fodo_ca::message::{self, Answer, Request};
use fodo_engine::{Ioid, Sid, SubscriptionId};
use fodo_net::{Alarm, Array, Monitor, MonitorEvent, MonitorOptions, Reading, Severity, Status, TimeStamp, Value};

use crate::PATIENCE;
use crate::cell::{Cell, N_POSTS, Table, client, client_at, number, quiet, serve};
use crate::raw::{DOUBLE, Raw, bare, create, echo, subscribe, with};
use fodo_testing::free_port;

/// The next update; other events are ignored.
fn update(monitor: &Monitor) -> Reading {
    loop {
        match monitor.next_timeout(PATIENCE) {
            Some(MonitorEvent::Update(reading)) => return reading,
            Some(_) => {}
            None => panic!("no update"),
        }
    }
}

/// The next update of a raw client, as doubles.
fn raw_update(raw: &mut Raw) -> Vec<f64> {
    let (_, payload) = raw.until(|answer| matches!(answer, Answer::EventAdd { .. }));
    payload.chunks_exact(8).map(|eight| f64::from_be_bytes(eight.try_into().unwrap())).collect()
}

// Row 19 of docs/reference/faults.md.
#[test]
fn updates_are_merged_and_counted_while_a_client_has_events_off() {
    const N: u64 = 100_000;
    let table = Table::of([("n", Cell::new(0.0))]);
    let server = serve(&table);
    let mut raw = Raw::with_channel(server.tcp_port(), "n");
    raw.send(&[subscribe(1)]);
    assert_eq!(raw_update(&mut raw), [0.0]);
    raw.send(&[bare(Request::EventsOff {}), echo()]);
    raw.until(|answer| *answer == Answer::Echo {});

    (1..=N).for_each(|value| table.0["n"].set(value as f64));
    raw.send(&[echo()]);
    let heard_while_off = raw.hear().unwrap().0;
    let sent_while_off = server.update_counts().sent;
    raw.send(&[bare(Request::EventsOn {})]);
    let mut last = raw_update(&mut raw);
    while last != [N as f64] {
        last = raw_update(&mut raw);
    }

    assert_eq!((heard_while_off, sent_while_off), (Answer::Echo {}, 0));
    let counts = server.update_counts();
    assert_eq!((counts.sent, counts.merged), (N_POSTS as u64, N - N_POSTS as u64));
}

// Row 19 of docs/reference/faults.md.
#[test]
fn a_client_that_toggles_events_receives_every_newest_value() {
    let table = Table::of([("n", Cell::new(0.0))]);
    let server = serve(&table);
    let mut raw = Raw::with_channel(server.tcp_port(), "n");
    raw.send(&[subscribe(1)]);
    assert_eq!(raw_update(&mut raw), [0.0]);
    let toggles = [bare(Request::EventsOff {}), bare(Request::EventsOn {})].concat().repeat(1000);

    for round in 1..=100 {
        table.0["n"].set(f64::from(round));
        raw.send(std::slice::from_ref(&toggles));
        while raw_update(&mut raw) != [f64::from(round)] {}
    }

    let counts = server.update_counts();
    assert_eq!((counts.sent, counts.merged), (100, 0));
}

#[test]
fn pvs_with_unsent_updates_are_counted_until_their_subscriptions_end() {
    let table = Table::of(["a", "b", "c"].map(|name| (name, Cell::new(0.0))));
    let server = serve(&table);
    let mut raw = Raw::with_channel(server.tcp_port(), "a");
    raw.send(&[create(1, "b"), create(2, "c")]);
    (0..2).for_each(|_| drop(raw.until(|answer| matches!(answer, Answer::CreateChan { .. }))));
    let mut mask = Vec::new();
    message::encode_mask(&mut mask, 1);
    let (dbr, count) = (DOUBLE, 0);
    for number in 0..3 {
        let (sid, subscription) = (Sid(number), SubscriptionId(number));
        raw.send(&[with(Request::EventAdd { dbr, count, sid, subscription }, &mask)]);
        assert_eq!(raw_update(&mut raw), [0.0]);
    }
    let n_waiting = |raw: &mut Raw| {
        raw.send(&[echo()]);
        raw.until(|answer| *answer == Answer::Echo {});
        server.observer().clients()[0].n_pvs_waiting
    };

    raw.send(&[bare(Request::EventsOff {}), echo()]);
    raw.until(|answer| *answer == Answer::Echo {});
    table.0.values().for_each(|cell| cell.set(1.0));
    let mut n_waiting_while_off = vec![n_waiting(&mut raw)];
    for number in 0..2 {
        let (sid, subscription) = (Sid(number), SubscriptionId(number));
        raw.send(&[bare(Request::EventCancel { dbr, count, sid, subscription })]);
        n_waiting_while_off.push(n_waiting(&mut raw));
    }
    raw.send(&[bare(Request::EventsOn {})]);

    assert_eq!(n_waiting_while_off, [3, 2, 1]);
    assert_eq!(raw_update(&mut raw), [1.0]);
    assert_eq!(n_waiting(&mut raw), 0);
}

// Row 28 of docs/reference/faults.md.
#[test]
fn a_subscription_follows_changes_of_the_array_length() {
    let table = Table::of([("a", Cell::new(vec![1.0]))]);
    let server = serve(&table);
    let a = client(&server).channel("a").unwrap();
    let monitor = a.monitor(MonitorOptions::default());
    assert_eq!(update(&monitor).value, Value::from(vec![1.0]));

    for n in [3, 0, 100_000, 1, 0, 20_000, 2] {
        let elements = vec![n as f64; n];
        table.0["a"].set(elements.clone());

        assert!(update(&monitor).value == Value::from(elements.clone()), "an update of {n} elements");
        assert!(a.get_timeout(PATIENCE).unwrap().value == Value::from(elements), "a get of {n} elements");
    }
}

// Row 28 of docs/reference/faults.md.
#[test]
fn a_get_beyond_a_shrunk_array_returns_zeros() {
    let table = Table::of([("a", Cell::new(vec![7.0; 20_000]))]);
    let server = serve(&table);
    let mut raw = Raw::with_channel(server.tcp_port(), "a");
    let read = |count| bare(Request::ReadNotify { dbr: DOUBLE, count, sid: Sid(0), ioid: Ioid(1) });

    for (n_present, n_requested) in [(20_000, 20_000), (2, 20_000), (0, 20_000), (2, 5), (0, 5)] {
        table.0["a"].set(vec![7.0; n_present]);
        raw.send(&[read(n_requested as u32)]);
        let (_, payload) = raw.until(|answer| matches!(answer, Answer::ReadNotify { .. }));

        let (head, tail) = payload.split_at(8 * n_present);
        assert_eq!(payload.len(), 8 * n_requested);
        assert!(head.chunks(8).all(|eight| eight == 7_f64.to_be_bytes()) && tail.iter().all(|&byte| byte == 0));
    }
}

// Row 48 of docs/reference/faults.md.
#[test]
fn stalled_image_readers_keep_few_images_and_delay_no_other_client() {
    const N_IMAGES: usize = 100;
    const ELEMENTS: usize = 256 * 1024;
    let table = Table::of([("image", Cell::new(vec![0.0]))]);
    let server = serve(&table);
    let mut stalled: Vec<Raw> = (0..3).map(|_| Raw::with_channel(server.tcp_port(), "image")).collect();
    stalled.iter_mut().for_each(|raw| raw.send(&[subscribe(1)]));
    let good = client(&server).channel("image").unwrap().monitor(MonitorOptions::default());
    update(&good);
    let mut images: Vec<Weak<Vec<f64>>> = Vec::new();

    for index in 1..=N_IMAGES {
        let image = Arc::new(vec![index as f64; ELEMENTS]);
        images.push(Arc::downgrade(&image));
        table.0["image"].set(Value::Array(Array::F64(image)));
        assert_eq!(number(&update(&good)), index as f64, "the good one gets each");
    }
    let n_kept = images.iter().filter(|image| image.strong_count() > 0).count();

    assert!(n_kept <= N_POSTS + 2 * stalled.len(), "{n_kept} images are kept");
    for raw in &mut stalled {
        let mut n_heard = 0;
        while raw_update(raw).first() != Some(&(N_IMAGES as f64)) {
            n_heard += 1;
        }
        assert!(n_heard <= N_POSTS + 10, "{n_heard} before the newest");
    }
}

// Row 49 of docs/reference/faults.md.
#[test]
fn one_slow_subscriber_makes_no_other_client_lose_an_update() {
    const N_GOOD: usize = 1000;
    let table = Table::of([("n", Cell::new(0.0))]);
    let server = serve(&table);
    // A client that is sent 600 KB with every post, and reads none of it.
    let mut slow = Raw::with_channel(server.tcp_port(), "n");
    slow.send(&(0..25_000).map(subscribe).collect::<Vec<_>>());
    slow.send(&[echo()]);
    let contexts = [(); 4].map(|()| client(&server));
    let channels: Vec<_> = (0..N_GOOD).map(|index| contexts[index % 4].channel("n").unwrap()).collect();
    let good: Vec<Monitor> = channels.iter().map(|channel| channel.monitor(MonitorOptions::default())).collect();
    good.iter().for_each(|monitor| assert_eq!(number(&update(monitor)), 0.0));

    for value in 1..=40 {
        table.0["n"].set(f64::from(value));
        good.iter().for_each(|monitor| assert_eq!(number(&update(monitor)), f64::from(value)));
    }

    assert!(good.iter().all(|monitor| monitor.counts().merged == 0 && monitor.counts().received == 41));
    // The merged updates are counted when it reads on.
    while raw_update(&mut slow) != [40.0] {}
    assert!(server.update_counts().merged > 0, "it was not slow");
}

// Row 51 of docs/reference/faults.md.
#[test]
fn every_one_of_a_million_posts_is_sent_or_merged() {
    const N: u64 = 1_000_000;
    let table = Table::of([("n", Cell::new(0.0))]);
    let server = serve(&table);
    let n = client(&server).channel("n").unwrap();
    let monitor = n.monitor(MonitorOptions::default());
    assert_eq!(number(&update(&monitor)), 0.0);

    (1..=N).for_each(|value| table.0["n"].set(value as f64));
    let mut last = 0.0;
    while last < N as f64 {
        let next = number(&update(&monitor));
        assert!(next > last, "{next} after {last}");
        last = next;
    }

    let (server, client) = (server.update_counts(), monitor.counts());
    assert_eq!(server.sent + server.merged, N);
    assert_eq!(client.received, server.sent + 1);
    assert_eq!(client.delivered + client.merged, client.received);
}

/// Increments a cell until `work` is done.
fn while_it_counts(cell: &Cell, work: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1_u64.. {
                cell.set(value as f64);
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        // Ends the other thread even if this one panics.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

// Row 52 of docs/reference/faults.md.
#[test]
fn a_subscription_during_changes_delivers_values_in_order() {
    let table = Table::of([("n", Cell::new(0.0))]);
    let server = serve(&table);
    let n = client(&server).channel("n").unwrap();

    while_it_counts(&table.0["n"], || {
        for _ in 0..300 {
            let mut last = number(&n.get_timeout(PATIENCE).unwrap());
            let monitor = n.monitor(MonitorOptions::default());
            for step in 0..4 {
                let next = number(&update(&monitor));
                assert!(next > last || (step == 0 && next == last), "{next} after {last}");
                last = next;
            }
        }
    });
}

// Row 52 of docs/reference/faults.md.
#[test]
fn a_change_at_the_moment_of_subscribing_is_delivered_once() {
    let table = Table::of([("n", Cell::that_counts_when_attached())]);
    let server = serve(&table);
    let n = client(&server).channel("n").unwrap();
    // So that the circuit already listens to the PV.
    let first = n.monitor(MonitorOptions::default());
    assert_eq!(number(&update(&first)), 1.0);

    let second = n.monitor(MonitorOptions::default());
    let at_first = number(&update(&second));
    table.0["n"].set(3.0);

    assert_eq!((at_first, number(&update(&second))), (2.0, 3.0));
    assert_eq!((number(&update(&first)), number(&update(&first))), (2.0, 3.0));
}

// Row 52 of docs/reference/faults.md.
#[test]
fn a_server_restart_during_changes_delivers_no_older_value() {
    let table = Table::of([("n", Cell::new(0.0))]);
    let config = fodo_net::ServerConfig { port: free_port(), ..quiet() };
    let start = || fodo_net::Server::start(config.clone(), table.clone()).unwrap();
    let mut server = Some(start());
    let port = config.port;
    let monitor = client_at(port).channel("n").unwrap().monitor(MonitorOptions::default());

    while_it_counts(&table.0["n"], || {
        let mut last = -1.0;
        for _ in 0..3 {
            for _ in 0..100 {
                let next = number(&update(&monitor));
                assert!(next > last, "{next} after {last}");
                last = next;
            }
            drop(server.take());
            while let Some(event) = monitor.next_timeout(PATIENCE) {
                match event {
                    MonitorEvent::Update(reading) => last = number(&reading),
                    MonitorEvent::Disconnected => break,
                    _ => {}
                }
            }
            server = Some(start());
        }
    });
}

// Row 53 of docs/reference/faults.md.
#[test]
fn unusual_numbers_and_timestamps_arrive_unchanged() {
    let table = Table::of([("n", Cell::new(0.0))]);
    let server = serve(&table);
    let n = client(&server).channel("n").unwrap();
    let monitor = n.monitor(MonitorOptions::default());
    update(&monitor);
    let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::from_bits(1), f64::MIN_POSITIVE, f64::MAX];
    // Later, earlier, the very first, the last that fits in 32 bits of seconds, and more nanoseconds than a second has.
    let times = [(5, 1), (4, 0), (0, 0), (u32::MAX, 999_999_999), (1, 2_000_000_000)];

    for (value, (seconds, nanos)) in values.into_iter().flat_map(|value| times.map(|time| (value, time))) {
        let time = TimeStamp::from_epics(seconds, nanos);
        let alarm = Alarm { severity: Severity::Invalid, status: Status(999) };
        table.0["n"].set_reading(Reading { time, alarm, ..Reading::bare(Value::from(value)) });

        for reading in [update(&monitor), n.get_timeout(PATIENCE).unwrap()] {
            assert_eq!(number(&reading).to_bits(), value.to_bits());
            assert_eq!((reading.time, reading.alarm), (time, alarm), "{value} at {seconds} s");
        }
    }
}
