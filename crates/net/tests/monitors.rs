//! What monitors do with updates that are not taken in time, and on which threads their callbacks run.

#[allow(dead_code, reason = "each test program uses a part of it")]
mod served;

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use fodo_net::{
    CallbackJob, Channel, Context, EventMask, Executor, Monitor, MonitorEvent, MonitorOptions, Value, WhenFull,
};

use served::{cell, context, serve, start};

const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until this many updates were received, taken or not.
fn received(monitor: &Monitor, n: u64) {
    let deadline = Instant::now() + PATIENCE;
    while monitor.counts().received < n {
        assert!(Instant::now() < deadline, "{:?}", monitor.counts());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The queued events: values, and merged counts as negative numbers.
fn waiting(monitor: &Monitor) -> Vec<i64> {
    let events = std::iter::from_fn(|| monitor.next_timeout(Duration::ZERO));
    events
        .filter_map(|event| match event {
            MonitorEvent::Update(reading) => Some(reading.value.first().unwrap().to_f64().unwrap() as i64),
            MonitorEvent::Merged(n) => Some(-(n as i64)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_full_monitor_queue_keeps_the_oldest_or_newest_updates() {
    let (_server, context) = serve([("x", cell(0.0))]);
    let x = context.channel("x").unwrap();
    x.connect().unwrap();
    let options = |queue_max, when_full| MonitorOptions { queue_max, when_full, ..MonitorOptions::default() };
    let first = x.monitor(options(4, WhenFull::ReplaceLast));
    let last = x.monitor(options(4, WhenFull::DropOldest));
    let newest = x.monitor(MonitorOptions::newest());

    for number in 1..=9 {
        [&first, &last, &newest].iter().for_each(|monitor| received(monitor, number));
        x.put(number as f64).unwrap();
    }
    [&first, &last, &newest].iter().for_each(|monitor| received(monitor, 10));

    assert!(matches!(newest.next_timeout(Duration::ZERO), Some(MonitorEvent::Connected(_))));
    assert_eq!(waiting(&first), [0, 1, 2, -6, 9]);
    assert_eq!(waiting(&last), [-6, 6, 7, 8, 9]);
    assert_eq!(waiting(&newest), [-9, 9]);
    for monitor in [&first, &last, &newest] {
        let counts = monitor.counts();
        assert_eq!(counts.received, counts.merged + counts.delivered, "{counts:?}");
    }
}

#[test]
fn queued_large_values_are_limited_by_bytes_instead_of_count() {
    let (_server, context) = serve([("a", cell(vec![0i32; 5_000_000]))]);
    let a = context.channel("a").unwrap();
    let monitor = a.monitor(MonitorOptions::default());

    for number in 1..=6 {
        received(&monitor, number);
        a.put_timeout(vec![number as i32; 5_000_000], PATIENCE).unwrap();
    }
    received(&monitor, 7);

    // Three times 20 MB are below 64 MiB, four times are above.
    let kept = waiting(&monitor);
    assert_eq!(kept, [0, 1, -4, 6]);
}

#[test]
fn the_longest_gap_measures_the_time_between_updates() {
    let (_server, context) = serve([("x", cell(0.0))]);
    let x = context.channel("x").unwrap();
    let start = Instant::now();
    let monitor = x.monitor(MonitorOptions::default());
    received(&monitor, 1);

    let first_received = Instant::now();
    // Between the updates are the round trips of a hundred gets.
    (0..100).for_each(|_| drop(x.get().unwrap()));
    let gap_min = first_received.elapsed();
    x.put(1.0).unwrap();
    received(&monitor, 2);

    let gap = monitor.counts().longest_gap;
    assert!((gap_min..start.elapsed()).contains(&gap), "{gap:?} is less than {gap_min:?} or more than the whole test");
}

/// Ten PVs with monitors, whose callbacks report PV, number and thread.
fn calls_by(executor: Executor) -> (Vec<(usize, i64, ThreadId)>, HashSet<ThreadId>) {
    const NAMES: [&str; 10] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9"];
    let server = start(NAMES.map(|name| (name, cell(0.0))));
    let context = Context::with_executor(server.client_config(), executor);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let monitors: Vec<Monitor> = NAMES
        .iter()
        .enumerate()
        .map(|(pv, name)| {
            let calls = calls.clone();
            let tell = move |event: MonitorEvent| {
                let MonitorEvent::Update(reading) = event else { return };
                let number = reading.value.first().unwrap().to_f64().unwrap() as i64;
                calls.lock().unwrap().push((pv, number, std::thread::current().id()));
                std::thread::sleep(Duration::from_micros(200));
            };
            context.channel(name).unwrap().monitor_with(MonitorOptions::default(), tell).unwrap()
        })
        .collect();
    let channels: Vec<_> = NAMES.iter().map(|name| context.channel(name).unwrap()).collect();
    for number in 1..=20 {
        let puts = channels.iter().cloned().map(|channel| (channel, Value::from(f64::from(number))));
        assert!(fodo_net::many::put(puts).iter().all(Result::is_ok));
    }
    let deadline = Instant::now() + PATIENCE;
    while calls.lock().unwrap().len() < 210 {
        let counts: Vec<_> = monitors.iter().map(Monitor::counts).collect();
        assert!(Instant::now() < deadline, "{counts:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    let calls = std::mem::take(&mut *calls.lock().unwrap());
    let threads = calls.iter().map(|(_, _, thread)| *thread).collect();
    (calls, threads)
}

fn assert_in_order(calls: &[(usize, i64, ThreadId)]) {
    for pv in 0..10 {
        let numbers: Vec<i64> = calls.iter().filter(|(of, ..)| *of == pv).map(|(_, number, _)| *number).collect();
        assert_eq!(numbers, (0..=20).collect::<Vec<_>>(), "PV {pv}");
    }
}

#[test]
fn one_thread_calls_the_callbacks_of_all_monitors_in_order() {
    let (calls, threads) = calls_by(Executor::OneThread);

    assert_in_order(&calls);
    assert_eq!(threads.len(), 1);
}

#[test]
fn many_threads_call_the_callbacks_of_each_monitor_in_order() {
    let (calls, threads) = calls_by(Executor::Threads(NonZeroUsize::new(4).unwrap()));

    assert_in_order(&calls);
    assert!((2..=4).contains(&threads.len()), "{threads:?}");
}

#[test]
fn a_custom_executor_runs_callbacks_on_its_own_thread() {
    let (sender, jobs) = channel::<CallbackJob>();
    let loop_thread = std::thread::spawn(move || jobs.into_iter().for_each(CallbackJob::run));
    let sender = Mutex::new(sender);

    let (calls, threads) = calls_by(Executor::Custom(Arc::new(move |job| {
        // After the end of the loop no callbacks are expected.
        let _ = sender.lock().unwrap().send(job);
    })));

    assert_in_order(&calls);
    assert_eq!(threads, HashSet::from([loop_thread.thread().id()]));
}

#[test]
fn a_blocked_callback_does_not_delay_others_with_several_threads() {
    let server = start([("slow", cell(0.0)), ("x", cell(0.0))]);
    let many = Executor::Threads(NonZeroUsize::new(2).unwrap());
    let context = Context::with_executor(server.client_config(), many);
    let (release, released) = sync_channel::<()>(0);
    let stuck = move |_event| {
        // Dropping it releases the callback.
        let _ = released.recv();
    };
    let _stuck = context.channel("slow").unwrap().monitor_with(MonitorOptions::default(), stuck).unwrap();
    let (sender, events) = channel();
    let tell = move |event| drop(sender.send(event));
    let _monitor = context.channel("x").unwrap().monitor_with(MonitorOptions::default(), tell).unwrap();

    let updates = events.iter().filter(|event| matches!(event, MonitorEvent::Update(_)));
    let first = updates.take(1).count();

    assert_eq!(first, 1);
    drop(release);
}

#[test]
fn closing_a_context_drops_pending_callbacks() {
    let (_server, context) = serve([("x", cell(0.0))]);
    let x = context.channel("x").unwrap();
    let (entered, entries) = channel();
    let (release, released) = sync_channel::<()>(0);
    let stuck = move |_event| {
        let _ = entered.send(());
        // Dropping it releases the callback.
        let _ = released.recv();
    };
    let stuck = x.monitor_with(MonitorOptions::default(), stuck).unwrap();
    entries.recv_timeout(PATIENCE).unwrap();
    let held = Arc::new(());
    let kept = held.clone();
    let waiting = x.monitor_with(MonitorOptions::default(), move |_event| drop(kept.clone())).unwrap();
    received(&waiting, 1);

    context.close();
    drop((stuck, waiting, x, context));
    drop(release);

    let deadline = Instant::now() + PATIENCE;
    while Arc::strong_count(&held) > 1 {
        assert!(Instant::now() < deadline, "the callback is still there");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_callback_may_panic_subscribe_and_put() {
    let (_server, context) = serve([("x", cell(0.0)), ("y", cell(0.0))]);
    let (sender, events) = channel();
    let inner = context.clone();
    let meddle = move |event| {
        if let MonitorEvent::Update(_) = event {
            let sender = sender.clone();
            let y = inner.channel("y").unwrap();
            y.put_unconfirmed(7.0).unwrap();
            let tell = move |event| drop(sender.send(event));
            let monitor = y.monitor_with(MonitorOptions::default(), tell).unwrap();
            std::mem::forget(monitor);
            panic!("a callback that goes wrong, on purpose");
        }
    };

    let _monitor = context.channel("x").unwrap().monitor_with(MonitorOptions::default(), meddle).unwrap();
    let seven =
        |event: &MonitorEvent| matches!(event, MonitorEvent::Update(reading) if reading.value == Value::from(7.0));

    assert!(events.iter().any(|event| seven(&event)));
}

#[test]
fn an_executor_of_the_user_may_use_the_channel_and_its_panics_stop_nothing() {
    let served = cell(0);
    let server = start([("x", served.clone())]);
    let (sender, jobs) = channel::<CallbackJob>();
    let opened: Arc<OnceLock<Channel>> = Arc::default();
    let used = opened.clone();
    let executor = Executor::Custom(Arc::new(move |job| {
        // Locks the circuit.
        let _unsent = used.get().map(Channel::unsent_bytes);
        sender.send(job).unwrap();
        panic!("an executor that goes wrong, on purpose");
    }));
    let context = Context::with_executor(server.client_config(), executor);
    let x = opened.get_or_init(|| context.channel("x").unwrap());
    let (sender, events) = channel();
    let _monitor = x.monitor_with(MonitorOptions::default(), move |event| drop(sender.send(event))).unwrap();

    for number in 1..=3 {
        served.post(number);
        let is_posted = |event: MonitorEvent| matches!(event, MonitorEvent::Update(reading) if reading.value == Value::from(number));
        while !events.try_iter().any(is_posted) {
            jobs.recv_timeout(PATIENCE).unwrap().run();
        }
    }

    assert_eq!(x.get_timeout(PATIENCE).unwrap().value, Value::from(3));
}

#[test]
fn a_monitor_of_no_changes_follows_the_connection_only() {
    let (_server, context) = serve([("x", cell(1.0))]);
    let x = context.channel("x").unwrap();

    let options = |mask| MonitorOptions { mask, ..MonitorOptions::default() };
    let connection = x.monitor(options(EventMask::NONE));
    let values = x.monitor(options(EventMask::VALUE));
    received(&values, 1);
    x.put(2.0).unwrap();
    received(&values, 2);

    assert!(matches!(connection.next_timeout(PATIENCE), Some(MonitorEvent::Connected(_))));
    assert_eq!(connection.counts().received, 0);
}

#[test]
fn a_monitor_reports_changes_of_access_rights() {
    use std::io::{Read, Write};
    let wire = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = wire.local_addr().unwrap().port();
    let answering = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let context = context(answering.local_addr().unwrap().port());
    let monitor = context.channel("x").unwrap().monitor(MonitorOptions::default());
    let (mut buffer, message) = ([0; 2048], |command: u8, rest: [u8; 14]| [&[0, command][..], &rest].concat());
    let (_, from) = answering.recv_from(&mut buffer).unwrap();
    let cid: [u8; 4] = buffer[24..28].try_into().unwrap();
    let mut claim = message(0, [0, 0, 0, 1, 0, 13, 0, 0, 0, 1, 0, 0, 0, 0]);
    claim.extend([&[0, 6, 0, 8][..], &port.to_be_bytes(), &[0, 0, 255, 255, 255, 255], &cid].concat());
    claim.extend([0, 13, 0, 0, 0, 0, 0, 0]);
    answering.send_to(&claim, from).unwrap();
    let (mut circuit, _) = wire.accept().unwrap();
    let rights = |bits: u8| [&[0, 22, 0, 0, 0, 0, 0, 0][..], &cid, &[0, 0, 0, bits]].concat();
    let created = [&[0, 18, 0, 0, 0, 6, 0, 1][..], &cid, &[0, 0, 0, 7]].concat();

    let mut heard = Vec::new();
    while !heard.windows(2).any(|command| command == [0, 18]) {
        let n = circuit.read(&mut buffer).unwrap();
        heard.extend_from_slice(&buffer[..n]);
    }
    circuit.write_all(&[rights(3), created, rights(3), rights(1)].concat()).unwrap();

    let facts = match monitor.next_timeout(PATIENCE) {
        Some(MonitorEvent::Connected(facts)) => facts,
        other => panic!("{other:?}"),
    };
    assert!(facts.may_read && facts.may_write);
    assert!(
        matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Rights(facts)) if facts.may_read && !facts.may_write)
    );
}
