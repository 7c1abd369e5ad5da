//! Monitor groups over both protocols: their rows, changes and counters.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers as well")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod scripted;
#[allow(dead_code, reason = "each test program uses a part of it")]
mod served;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_ca::message::{Answer, Request};
use fodo_net::{
    Alarm, ClientConfig, Context, ErrorKind, GroupChange, GroupCounts, GroupOptions, GroupRow, GroupRows, Kind, Meta,
    MonitorEvent, MonitorGroup, Protocol, Pv, PvTable, Reading, Refusal, Scalar, Server, ServerConfig, Severity,
    SharedPv, Status, TimeStamp, Value, WrongReply,
};

use scripted::{Scripted, created, message, update};
use served::{cell, start};

const PATIENCE: Duration = Duration::from_secs(20);
const BOTH: [Protocol; 2] = [Protocol::Ca, Protocol::Pva];

/// A server of these PVs, and a client that uses this protocol.
fn serve(protocol: Protocol, pvs: impl Into<PvTable>) -> (Server, Context) {
    let server = start(pvs);
    let context = Context::new(ClientConfig { default_protocol: protocol, ..server.client_config() });
    (server, context)
}

/// A group with these PVs, which have the indexes 0, 1, ...
fn group_of(context: &Context, options: GroupOptions, names: &[&str]) -> MonitorGroup {
    let group = context.monitor_group(options);
    let indexes: Vec<u32> = group.add(names).into_iter().map(Result::unwrap).collect();
    assert_eq!(indexes, (0..names.len() as u32).collect::<Vec<_>>());
    group
}

/// Takes rows and changes until this is true of all of them.
fn take_until(group: &MonitorGroup, is_complete: impl Fn(&GroupRows) -> bool) -> GroupRows {
    let (mut all, mut taken) = (GroupRows::default(), GroupRows::default());
    let deadline = Instant::now() + PATIENCE;
    while !is_complete(&all) {
        assert!(Instant::now() < deadline, "{:?}, {} rows, {:?}", group.counts(), all.rows.len(), all.changes);
        if group.take(&mut taken, Duration::from_millis(100)) {
            let n_before = all.rows.len();
            all.rows.append(&mut taken.rows);
            let later = |change: GroupChange| GroupChange { at_row: change.at_row + n_before, ..change };
            all.changes.extend(taken.changes.drain(..).map(later));
        }
    }
    all
}

/// Waits until this is true of the counters.
fn await_counts(group: &MonitorGroup, is_true: impl Fn(GroupCounts) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true(group.counts()) {
        assert!(Instant::now() < deadline, "{:?}", group.counts());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn assert_accounted(counts: GroupCounts) {
    let GroupCounts { received, merged, removed, delivered, waiting, .. } = counts;
    assert_eq!(received, merged + removed + delivered + waiting, "{counts:?}");
}

fn values(rows: &[GroupRow], index: u32) -> Vec<f64> {
    rows.iter().filter(|row| row.index == index).map(|row| row.value).collect()
}

fn is_connected(change: &GroupChange) -> bool {
    matches!(change.event, MonitorEvent::Connected(_))
}

#[test]
fn a_row_contains_value_alarm_and_time_stamp_of_an_update() {
    let labels = Meta { labels: vec!["closed".into(), "open".into(), "moving".into()], ..Meta::default() };
    let pvs = [
        SharedPv::new(1.5),
        SharedPv::new(-7),
        SharedPv::new(0.25_f32),
        SharedPv::new(1_i64 << 53),
        SharedPv::builder(Value::Scalar(Scalar::Enum(2))).meta(labels).build(),
    ];
    let names = ["f64", "i32", "f32", "i64", "enum"];
    let alarm = Alarm { severity: Severity::Major, status: Status::HIHI };
    for protocol in BOTH {
        let (_server, context) = serve(protocol, names.into_iter().zip(pvs.clone()).collect::<PvTable>());
        let time = TimeStamp { unix_s: 1_800_000_000, nanos: 123_456_789 };
        pvs[0].post_reading(Reading { alarm, time, ..Reading::bare(1.5.into()) });
        let group = group_of(&context, GroupOptions::default(), &names);

        let taken = take_until(&group, |all| all.rows.len() == names.len());

        let all: Vec<f64> = (0..5).flat_map(|index| values(&taken.rows, index)).collect();
        assert_eq!(all, [1.5, -7.0, 0.25, 9_007_199_254_740_992.0, 2.0], "{protocol}");
        let row = taken.rows.iter().find(|row| row.index == 0).unwrap();
        assert_eq!((row.severity, Status(row.status), row.merged), (Severity::Major.code(), Status::HIHI, 0));
        assert_eq!((row.unix_s, row.nanos), (time.unix_s, time.nanos), "{protocol}");
        let row = taken.rows.iter().find(|row| row.index == 1).unwrap();
        let TimeStamp { unix_s, nanos } = pvs[1].reading().time;
        assert_eq!((row.severity, row.status, row.unix_s, row.nanos), (0, 0, unix_s, nanos), "{protocol}");
        assert!(taken.changes.len() == 5 && taken.changes.iter().all(is_connected), "{:?}", taken.changes);
    }
}

#[test]
fn a_row_follows_the_change_that_its_pv_is_connected() {
    for protocol in BOTH {
        let (_server, context) = serve(protocol, [("x", cell(1.0)), ("y", cell(2.0))]);
        let group = group_of(&context, GroupOptions::default(), &["x", "y"]);

        let taken = take_until(&group, |all| all.rows.len() == 2);

        for index in 0..2 {
            let change = taken.changes.iter().find(|change| change.index == index).unwrap();
            let row = taken.rows.iter().position(|row| row.index == index).unwrap();
            assert!(change.at_row <= row, "{protocol} {taken:?}");
        }
    }
}

#[test]
fn updates_of_many_subscriptions_arrive_in_order_and_each_is_accounted_for() {
    const N_PVS: u32 = 8;
    const N_SUBSCRIPTIONS: u32 = 25;
    const LAST: u32 = 300;
    for protocol in BOTH {
        let pvs: Vec<SharedPv> = (0..N_PVS).map(|_| SharedPv::new(0.0)).collect();
        let named = pvs.iter().enumerate().map(|(number, pv)| (number.to_string(), pv.clone()));
        let (_server, context) = serve(protocol, named.collect::<PvTable>());
        let group = context.monitor_group(GroupOptions::default());
        for number in 0..N_PVS {
            let channel = context.channel(&number.to_string()).unwrap();
            for subscription in 0..N_SUBSCRIPTIONS {
                assert_eq!(group.add_channel(&channel), Ok(number * N_SUBSCRIPTIONS + subscription));
            }
        }
        assert_eq!(group.len(), (N_PVS * N_SUBSCRIPTIONS) as usize);
        await_counts(&group, |counts| counts.received >= u64::from(N_PVS * N_SUBSCRIPTIONS));

        let posting = std::thread::spawn(move || {
            for value in 1..=LAST {
                pvs.iter().for_each(|pv| pv.post(f64::from(value)));
            }
        });
        let n_last = |all: &GroupRows| all.rows.iter().filter(|row| row.value == f64::from(LAST)).count();
        let taken = take_until(&group, |all| n_last(all) == (N_PVS * N_SUBSCRIPTIONS) as usize);
        posting.join().unwrap();

        for index in 0..N_PVS * N_SUBSCRIPTIONS {
            let values = values(&taken.rows, index);
            assert!(values.is_sorted_by(|before, after| before < after), "{protocol} {index} {values:?}");
            assert_eq!((values[0], values.last()), (0.0, Some(&f64::from(LAST))), "{protocol} {index}");
        }
        let counts = group.counts();
        assert_accounted(counts);
        assert_eq!((counts.delivered, counts.merged), (taken.rows.len() as u64, 0), "{protocol}");
        assert_eq!(counts.waiting, 0, "{protocol}");
    }
}

#[test]
fn a_group_that_is_not_read_is_bounded_and_keeps_the_newest_update_of_each_pv() {
    for protocol in BOTH {
        let pvs = [SharedPv::new(0.0), SharedPv::new(0.0), SharedPv::new(0.0)];
        let (_server, context) = serve(protocol, [("x", pvs[0].clone()), ("y", pvs[1].clone()), ("z", pvs[2].clone())]);
        let options = GroupOptions { rows_max: 10, ..GroupOptions::default() };
        let group = group_of(&context, options, &["x", "y", "z"]);
        await_counts(&group, |counts| counts.received == 3);

        for value in 1..=50 {
            // One by one, so that the server merges nothing.
            pvs[0].post(f64::from(value));
            pvs[1].post(f64::from(-value));
            await_counts(&group, |counts| counts.received == 3 + 2 * value as u64);
            assert!(group.counts().waiting <= 10 + 3);
        }

        assert_accounted(group.counts());
        assert_eq!((group.counts().received, group.counts().waiting, group.counts().merged), (103, 10, 93));
        let taken = take_until(&group, |all| !all.rows.is_empty());
        let [x, y, z] = [0, 1, 2].map(|index| values(&taken.rows, index));
        assert_eq!((x.last(), y.last(), &z[..]), (Some(&50.0), Some(&-50.0), &[0.0][..]), "{protocol}");
        assert!(x.is_sorted() && y.is_sorted_by(|before, after| before > after), "{protocol} {x:?} {y:?}");
        assert_eq!(taken.rows.iter().map(|row| u64::from(row.merged)).sum::<u64>(), 93, "{protocol}");
    }
}

#[test]
fn a_group_of_the_newest_updates_has_one_row_for_each_pv() {
    let pv = SharedPv::new(0.0);
    for protocol in BOTH {
        pv.post(0.0);
        let (_server, context) = serve(protocol, [("x", pv.clone())]);
        let group = group_of(&context, GroupOptions::newest(), &["x"]);
        for value in 1..=20 {
            await_counts(&group, |counts| counts.received == value);
            pv.post(value as f64);
        }
        await_counts(&group, |counts| counts.received == 21);

        let taken = take_until(&group, |all| !all.rows.is_empty());

        let [row] = taken.rows[..] else { panic!("{taken:?}") };
        assert_eq!((row.value, row.merged), (20.0, 20), "{protocol}");
    }
}

#[test]
fn a_group_continues_with_another_server_and_reports_the_interruption() {
    for protocol in BOTH {
        let (first, table) = (start([("x", cell(1.0))]), Arc::new(PvTable::new()));
        let second = Server::start(ServerConfig::isolated(), table.clone()).unwrap();
        let [mut config, other] = [first.client_config(), second.client_config()];
        config.default_protocol = protocol;
        config.search_addresses.extend(other.search_addresses);
        config.pva.search_addresses.extend(other.pva.search_addresses);
        let context = Context::new(config);
        let group = group_of(&context, GroupOptions::default(), &["x"]);
        let taken = take_until(&group, |all| !all.rows.is_empty());
        assert!(is_connected(&taken.changes[0]), "{taken:?}");

        drop(first);
        let taken = take_until(&group, |all| !all.changes.is_empty());
        assert_eq!((taken.rows.len(), &taken.changes[0].event), (0, &MonitorEvent::Disconnected), "{protocol}");
        table.insert("x", cell(2.0));

        let taken = take_until(&group, |all| !all.rows.is_empty());
        assert!(is_connected(&taken.changes[0]) && taken.changes[0].at_row == 0, "{protocol} {taken:?}");
        assert_eq!(values(&taken.rows, 0), [2.0], "{protocol}");
        assert_eq!((group.counts().n_disconnected, group.counts().delivered), (1, 2), "{protocol}");
    }
}

#[test]
fn a_pv_can_be_removed_and_another_added_while_updates_are_received() {
    for protocol in BOTH {
        let pvs = [SharedPv::new(0.0), SharedPv::new(0.0)];
        let (_server, context) = serve(protocol, [("x", pvs[0].clone()), ("y", pvs[1].clone())]);
        let group = group_of(&context, GroupOptions::default(), &["x", "y"]);
        await_counts(&group, |counts| counts.received >= 2);
        let is_over = Arc::new(AtomicBool::new(false));
        let (posted, ends) = (pvs.clone(), is_over.clone());
        let posting = std::thread::spawn(move || {
            let mut value = 0.0;
            while !ends.load(Ordering::Relaxed) {
                value += 1.0;
                posted.iter().for_each(|pv| pv.post(value));
            }
        });

        let mut taken = GroupRows::default();
        for _ in 0..20 {
            let before = group.counts().received;
            await_counts(&group, |counts| counts.received > before + 10);
            assert!(group.remove(0) && !group.remove(0), "{protocol}");
            assert!(group.take(&mut taken, PATIENCE));
            assert_eq!(values(&taken.rows, 0), [0.0; 0], "{protocol}");
            assert_eq!(group.add(&["x"]), [Ok(0)], "the index is free after a take");
            assert_eq!(group.channel(0).unwrap().name(), "x");
            let of_x = take_until(&group, |all| !values(&all.rows, 0).is_empty());
            assert!(!of_x.rows.is_empty());
        }

        is_over.store(true, Ordering::Relaxed);
        posting.join().unwrap();
        assert_accounted(group.counts());
        assert_eq!(group.len(), 2);
        let last = pvs[1].reading().value.to_f64().unwrap();
        pvs[1].post(last + 1.0);
        take_until(&group, |all| values(&all.rows, 1).contains(&(last + 1.0)));
    }
}

#[test]
fn a_group_that_is_dropped_while_updates_are_received_leaves_nothing_to_the_next_one() {
    for protocol in BOTH {
        let (x, y) = (SharedPv::new(0.0), SharedPv::new(-1.0));
        let (_server, context) = serve(protocol, [("x", x.clone()), ("y", y.clone())]);
        // Keeps the circuit open.
        let channel = context.channel("y").unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (posted, ends) = (x.clone(), is_over.clone());
        let posting = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                posted.post(1.0);
            }
        });

        for _ in 0..20 {
            let group = group_of(&context, GroupOptions::default(), &["x", "x", "x"]);
            await_counts(&group, |counts| counts.received > 10);
            drop(group);
            let group = context.monitor_group(GroupOptions::default());
            assert_eq!(group.add_channel(&channel), Ok(0));
            let taken = take_until(&group, |all| !all.rows.is_empty());
            assert_eq!(values(&taken.rows, 0), [-1.0], "{protocol}");
        }

        is_over.store(true, Ordering::Relaxed);
        posting.join().unwrap();
        let x: Arc<dyn Pv> = x.into();
        let deadline = Instant::now() + PATIENCE;
        while x.posts().has_listeners() {
            assert!(Instant::now() < deadline, "{protocol}: the subscriptions have not ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn two_groups_of_one_circuit_receive_their_own_rows() {
    for protocol in BOTH {
        let (x, y) = (SharedPv::new(0.0), SharedPv::new(0.0));
        let (_server, context) = serve(protocol, [("x", x.clone()), ("y", y.clone())]);
        let one = group_of(&context, GroupOptions::default(), &["x", "y"]);
        let other = group_of(&context, GroupOptions::default(), &["y", "x", "y"]);
        await_counts(&one, |counts| counts.received == 2);
        await_counts(&other, |counts| counts.received == 3);

        for value in 1..=30 {
            x.post(f64::from(value));
            y.post(f64::from(-value));
            await_counts(&one, |counts| counts.received == 2 + 2 * value as u64);
            await_counts(&other, |counts| counts.received == 3 + 3 * value as u64);
        }

        let [one, other] = [one, other].map(|group| take_until(&group, |all| !all.rows.is_empty()).rows);
        let rising: Vec<f64> = (0..=30).map(f64::from).collect();
        let falling: Vec<f64> = (0..=30).map(|value| f64::from(-value)).collect();
        assert_eq!([values(&one, 0), values(&one, 1)], [rising.clone(), falling.clone()], "{protocol}");
        assert_eq!([values(&other, 0), values(&other, 1), values(&other, 2)], [falling.clone(), rising, falling]);
    }
}

#[test]
fn a_pv_that_is_not_a_number_is_refused_and_the_others_are_received() {
    for protocol in BOTH {
        let pvs = [("text", cell("open")), ("array", cell(vec![1, 2, 3])), ("x", cell(1.5))];
        let (_server, context) = serve(protocol, pvs);
        let group = group_of(&context, GroupOptions::default(), &["text", "array", "x"]);

        // A change of a PV replaces the one before.
        let is_refused = |change: &GroupChange| matches!(change.event, MonitorEvent::WrongReply(_));
        let taken = take_until(&group, |all| {
            !all.rows.is_empty() && all.changes.iter().filter(|change| is_refused(change)).count() == 2
        });

        let of = |index| taken.changes.iter().rfind(|change| change.index == index).map(|change| &change.event);
        let refused = |kind, count_max| MonitorEvent::WrongReply(WrongReply::NotANumber { kind, count_max });
        let count_max = if protocol == Protocol::Ca { 20_000_000 } else { 0 };
        assert_eq!(of(0), Some(&refused(Kind::Text, 1)), "{protocol}");
        assert_eq!(of(1), Some(&refused(Kind::I32, count_max)), "{protocol}");
        assert_eq!(values(&taken.rows, 2), [1.5], "{protocol}");
        assert_eq!(taken.rows.len(), 1, "{protocol}");
    }
}

#[test]
fn a_group_ends_with_its_context() {
    for protocol in BOTH {
        let (_server, context) = serve(protocol, [("x", cell(1.5))]);
        let group = group_of(&context, GroupOptions::default(), &["x", "absent"]);
        take_until(&group, |all| !all.rows.is_empty());
        let closing = context.clone();
        let waiting = std::thread::spawn(move || {
            let (mut taken, mut closed) = (GroupRows::default(), Vec::new());
            // Ends although its timeout is unlimited.
            while group.take(&mut taken, Duration::MAX) {
                closed.extend(taken.changes.drain(..).map(|change| (change.index, change.event)));
            }
            (group, closed)
        });

        closing.close();

        let (group, mut closed) = waiting.join().unwrap();
        closed.sort_by_key(|(index, _)| *index);
        assert_eq!(closed, [(0, MonitorEvent::Closed), (1, MonitorEvent::Closed)], "{protocol}");
        let added = group.add(&["y"]);
        assert!(matches!(&added[..], [Err(error)] if error.kind() == &ErrorKind::ContextClosed), "{added:?}");
    }
}

#[test]
fn a_group_without_pvs_ends_with_its_context() {
    let (_server, context) = serve(Protocol::Ca, [("x", cell(1.5))]);
    // One never had a PV, the other one has lost its only one.
    let (empty, emptied) =
        (context.monitor_group(GroupOptions::default()), group_of(&context, GroupOptions::default(), &["x"]));
    take_until(&emptied, |all| !all.rows.is_empty());
    let (started, waits) = std::sync::mpsc::channel();
    let waiting = [empty, emptied].map(|group| {
        let started = started.clone();
        std::thread::spawn(move || {
            let mut taken = GroupRows::default();
            group.remove(0);
            group.take(&mut taken, Duration::ZERO);
            started.send(()).unwrap();
            group.take(&mut taken, Duration::MAX)
        })
    });
    waits.iter().take(2).for_each(drop);

    context.close();

    assert_eq!(waiting.map(|thread| thread.join().unwrap()), [false, false]);
    let late = context.monitor_group(GroupOptions::default());
    assert!(!late.take(&mut GroupRows::default(), Duration::MAX));
}

#[test]
fn a_take_ends_after_its_timeout_and_an_update_wakes_it_before() {
    let x = SharedPv::new(1.0);
    for protocol in BOTH {
        let (_server, context) = serve(protocol, [("x", x.clone())]);
        let group = group_of(&context, GroupOptions::default(), &["x"]);
        take_until(&group, |all| !all.rows.is_empty());
        let mut taken = GroupRows::default();

        let start = Instant::now();
        assert!(!group.take(&mut taken, Duration::from_millis(20)));
        assert!(start.elapsed() >= Duration::from_millis(20));
        let waiting = std::thread::spawn(move || {
            let has_any = group.take(&mut taken, Duration::MAX);
            (group, has_any, taken)
        });
        x.post(2.0);

        let (group, has_any, mut taken) = waiting.join().unwrap();
        assert_eq!((has_any, values(&taken.rows, 0)), (true, vec![2.0]), "{protocol}");
        x.post(3.0);
        assert!(pollster::block_on(group.next_rows(&mut taken)));
        assert_eq!(values(&taken.rows, 0), [3.0], "{protocol}");
    }
}

#[test]
fn names_and_channels_fail_one_by_one() {
    let (server, context) = serve(Protocol::Ca, [("x", cell(1.5))]);
    let group = context.monitor_group(GroupOptions::default());

    let added = group.add(&["", "x", "pva://x"]);
    assert!(matches!(&added[..], [Err(_), Ok(0), Ok(1)]), "{added:?}");
    let taken = take_until(&group, |all| all.rows.len() == 2);
    assert_eq!([values(&taken.rows, 0), values(&taken.rows, 1)], [[1.5], [1.5]]);

    let other = Context::new(server.client_config());
    let error = group.add_channel(&other.channel("x").unwrap()).unwrap_err();
    assert!(error.to_string().contains("another context"), "{error}");
    assert_eq!((group.len(), group.channel(2).is_none()), (2, true));
}

#[test]
fn what_a_server_sends_instead_of_a_number_is_a_change_between_the_rows() {
    let time_double = DbrType::TIME_DOUBLE;
    let wrong = [
        (DbrType(14), 1, MonitorEvent::WrongReply(WrongReply::Type { requested: time_double, received: DbrType(14) })),
        (DbrType(19), 1, MonitorEvent::WrongReply(WrongReply::Type { requested: time_double, received: DbrType(19) })),
        (time_double, 3, MonitorEvent::WrongReply(WrongReply::Count { requested: 1, received: 3 })),
    ];
    for (dbr, count, event) in wrong {
        let server = Scripted::start(move |request| match *request {
            Request::CreateChan { cid, .. } => Some(created(cid, 1)),
            Request::EventAdd { subscription, .. } => {
                let good = || update(time_double, 1, subscription);
                Some([good(), good(), update(dbr, count, subscription), good()].concat())
            }
            _ => None,
        });
        let context = Context::new(ClientConfig::with_addresses(vec![server.address()]));
        let group = group_of(&context, GroupOptions::default(), &["x"]);

        let taken = take_until(&group, |all| all.rows.len() == 3);

        let change = taken.changes.last().unwrap();
        assert_eq!((change.at_row, &change.event), (2, &event));
        assert_eq!((group.counts().received, taken.rows[0].unix_s), (3, TimeStamp::NEVER.unix_s));
    }
}

#[test]
fn an_update_without_read_access_is_a_change() {
    let server = Scripted::start(|request| match *request {
        Request::CreateChan { cid, .. } => Some(created(cid, 1)),
        Request::EventAdd { subscription, dbr, .. } => {
            let refused = Answer::EventAdd { dbr, count: 1, status: Eca::NORDACCESS, subscription };
            Some(message(refused, &[0; 24]))
        }
        _ => None,
    });
    let context = Context::new(ClientConfig::with_addresses(vec![server.address()]));
    let group = group_of(&context, GroupOptions::default(), &["x"]);

    let refused = |change: &GroupChange| change.event == MonitorEvent::Refused(Refusal::ReadAccess);
    let taken = take_until(&group, |all| all.changes.iter().any(refused));

    assert_eq!((taken.rows.len(), group.counts().received), (0, 0));
}
