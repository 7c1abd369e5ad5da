//! Access rights that change while clients are connected. The messages and their form were observed on the wire of
//! EPICS' softIoc 7.0.10, with access rules whose CALC changed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fodo_ca::eca::Eca;
use fodo_ca::message::{self, Answer, Request};
use fodo_engine::{Cid, Ioid, Sid, SubscriptionId};
use fodo_net::{Peer, Rights};
use fodo_testing::eventually;

use crate::cell::{Cell, Table, serve};
use crate::raw::{DOUBLE, Raw, bare, create, echo, put, subscribe, with};

fn nothing(_: &Peer) -> Rights {
    Rights { read: false, write: false }
}

fn everything(_: &Peer) -> Rights {
    Rights { read: true, write: true }
}

fn everything_for_ann(by: &Peer) -> Rights {
    Rights { read: true, write: by.user == "ann" && by.host == "desk" }
}

/// How often a server has called the functions below.
static N_CALLS: AtomicUsize = AtomicUsize::new(0);

fn nothing_counted(by: &Peer) -> Rights {
    N_CALLS.fetch_add(1, Ordering::Relaxed);
    nothing(by)
}

fn everything_counted(by: &Peer) -> Rights {
    N_CALLS.fetch_add(1, Ordering::Relaxed);
    everything(by)
}

/// Waits until the server has called them this often in total; returns true if it stops earlier, as a circuit with a
/// full buffer does.
fn calls_stop_before(n_calls: usize) -> bool {
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        match N_CALLS.load(Ordering::Relaxed) {
            now if now >= n_calls => return false,
            now if now != seen => (seen, since) = (now, Instant::now()),
            _ if since.elapsed() > Duration::from_millis(500) => return true,
            _ => std::thread::yield_now(),
        }
    }
}

fn named(request: Request, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    message::encode_text(&mut bytes, |size| request.header(size), name.as_bytes());
    bytes
}

fn said(raw: &mut Raw) -> (Answer, Vec<u8>) {
    raw.hear().expect("the stream ended early")
}

fn rights_of(cid: u32, read: bool, write: bool) -> (Answer, Vec<u8>) {
    (Answer::AccessRights { cid: Cid(cid), rights: Rights { read, write } }, Vec::new())
}

fn update(status: Eca, count: u32, payload: &[u8]) -> (Answer, Vec<u8>) {
    (Answer::EventAdd { dbr: DOUBLE, count, status, subscription: SubscriptionId(3) }, payload.to_vec())
}

// Row 24 of docs/reference/faults.md.
#[test]
fn losing_read_access_is_reported_and_pauses_updates() {
    let table = Table::of([("x", Cell::new(1.0))]);
    let server = serve(&table);
    let signal = server.rights_signal();
    let x = &table.0["x"];
    let mut raw = Raw::with_channel(server.tcp_port(), "x");
    raw.send(&[subscribe(3)]);
    assert_eq!(said(&mut raw), update(Eca::NORMAL, 1, &1.0_f64.to_be_bytes()));

    x.allow(nothing);
    signal.notify_changed();
    assert_eq!(said(&mut raw), rights_of(0, false, false));
    assert_eq!(said(&mut raw), update(Eca::NORDACCESS, 1, &[0; 8]));
    eventually("the subscription has ended", || !x.has_listeners());
    x.set(2.0);
    x.allow(everything);
    signal.notify_changed();

    assert_eq!(said(&mut raw), rights_of(0, true, true));
    assert_eq!(said(&mut raw), update(Eca::NORMAL, 1, &2.0_f64.to_be_bytes()));
    x.set(3.0);
    assert_eq!(said(&mut raw), update(Eca::NORMAL, 1, &3.0_f64.to_be_bytes()));
}

// Row 24 of docs/reference/faults.md.
#[test]
fn requests_without_access_rights_are_rejected_as_by_rsrv() {
    let table = Table::of([("x", Cell::new(1.0))]);
    let x = &table.0["x"];
    x.allow(nothing);
    let server = serve(&table);
    let mut raw = Raw::connected(server.tcp_port());
    raw.send(&[bare(Request::Version { priority: 0, minor: 13, sequence: 0 }), create(7, "x")]);
    said(&mut raw);
    assert_eq!(said(&mut raw), rights_of(7, false, false));
    said(&mut raw);
    let one_read = Request::ReadNotify { dbr: DOUBLE, count: 1, sid: Sid(0), ioid: Ioid(4) };
    let old_read = Request::Read { dbr: DOUBLE, count: 1, sid: Sid(0), ioid: Ioid(5) };
    let old_put = Request::Write { dbr: DOUBLE, count: 1, sid: Sid(0), ioid: Ioid(6) };

    raw.send(&[bare(one_read), bare(old_read), put(8), with(old_put, &[0; 8]), subscribe(3)]);

    let status = Eca::NORDACCESS;
    let refused = Answer::ReadNotify { dbr: DOUBLE, count: 1, status, ioid: Ioid(4) };
    assert_eq!(said(&mut raw), (refused, vec![0; 8]));
    assert_eq!(said(&mut raw).0, Answer::Error { cid: Cid(7), status });
    let status = Eca::NOWTACCESS;
    assert_eq!(said(&mut raw).0, Answer::WriteNotify { dbr: DOUBLE, count: 1, status, ioid: Ioid(8) });
    assert_eq!(said(&mut raw).0, Answer::Error { cid: Cid(7), status });
    assert_eq!(said(&mut raw), update(Eca::NORDACCESS, 1, &[0; 8]));
    assert_eq!((x.n_reads(), x.has_listeners()), (0, false), "no client has used it");
}

#[test]
fn the_status_of_a_client_counts_its_subscriptions_with_and_without_access() {
    let table = Table::of([("x", Cell::new(1.0)), ("y", Cell::new(1.0))]);
    table.0["x"].allow(nothing);
    let server = serve(&table);
    let mut raw = Raw::with_channel(server.tcp_port(), "x");
    raw.send(&[create(1, "y")]);
    raw.until(|answer| matches!(answer, Answer::CreateChan { .. }));
    let mut mask = Vec::new();
    message::encode_mask(&mut mask, 1);
    let of_y = Request::EventAdd { dbr: DOUBLE, count: 0, sid: Sid(1), subscription: SubscriptionId(4) };

    raw.send(&[subscribe(3), with(of_y, &mask), echo()]);
    raw.until(|answer| *answer == Answer::Echo {});

    let clients = server.observer().clients();
    assert_eq!((clients[0].n_channels, clients[0].n_subscriptions), (2, 2));
    assert!(!table.0["x"].has_listeners());
}

// Row 24 of docs/reference/faults.md.
#[test]
fn a_cancelled_subscription_without_access_is_not_restored() {
    let table = Table::of([("x", Cell::new(1.0))]);
    let x = &table.0["x"];
    x.allow(nothing);
    let server = serve(&table);
    let mut raw = Raw::with_channel(server.tcp_port(), "x");
    raw.send(&[subscribe(3)]);
    assert_eq!(said(&mut raw), update(Eca::NORDACCESS, 1, &[0; 8]));
    let cancel = Request::EventCancel { dbr: DOUBLE, count: 0, sid: Sid(0), subscription: SubscriptionId(3) };

    raw.send(&[bare(cancel)]);
    let (confirmed, payload) = said(&mut raw);
    x.allow(everything);
    server.rights_signal().notify_changed();
    let reported = said(&mut raw);
    raw.send(&[echo()]);

    assert!(matches!(confirmed, Answer::EventAdd { .. }) && payload.is_empty());
    assert_eq!(reported, rights_of(0, true, true));
    assert_eq!(said(&mut raw).0, Answer::Echo {});
    assert!(!x.has_listeners());
}

// Row 24 of docs/reference/faults.md.
#[test]
fn rights_changes_for_a_non_reading_client_use_bounded_memory() {
    const N_CHANNELS: u32 = 1000;
    const N_FLAPS: usize = 2000;
    let table = Table::of([("x", Cell::new(1.0))]);
    let server = serve(&table);
    let signal = server.rights_signal();
    let mut raw = Raw::with_channel(server.tcp_port(), "x");
    let more: Vec<Vec<u8>> = (1..N_CHANNELS).map(|cid| create(cid, "x")).collect();
    raw.send(&more);
    (1..N_CHANNELS).for_each(|_| drop(raw.until(|answer| matches!(answer, Answer::CreateChan { .. }))));

    let is_stalled = (0..N_FLAPS).any(|flap| {
        let before = N_CALLS.load(Ordering::Relaxed);
        table.0["x"].allow(if flap % 2 == 0 { nothing_counted } else { everything_counted });
        signal.notify_changed();
        calls_stop_before(before + N_CHANNELS as usize)
    });
    table.0["x"].allow(nothing);
    signal.notify_changed();
    let mut last = vec![None; N_CHANNELS as usize];
    raw.send(&[echo()]);
    loop {
        match said(&mut raw).0 {
            Answer::AccessRights { cid: Cid(cid), rights } => {
                last[cid as usize] = Some(rights);
            }
            Answer::Echo {} => break,
            _ => {}
        }
    }

    assert!(is_stalled, "a client that reads nothing is notified of every change");
    assert!(last.iter().all(|rights| *rights == Some(Rights { read: false, write: false })));
}

// Row 23 of docs/reference/faults.md.
#[test]
fn access_rights_depend_on_names_sent_before_the_first_channel() {
    let table = Table::of([("x", Cell::new(1.0))]);
    let x = &table.0["x"];
    x.allow(everything_for_ann);
    let server = serve(&table);
    let version = bare(Request::Version { priority: 0, minor: 13, sequence: 0 });
    let as_ann = [named(Request::ClientName {}, "ann"), named(Request::HostName {}, "desk")].concat();
    let status_of_put = |messages: &[Vec<u8>]| {
        let mut raw = Raw::connected(server.tcp_port());
        raw.send(messages);
        raw.until(|answer| matches!(answer, Answer::CreateChan { .. }));
        raw.send(&[put(1)]);
        match raw.until(|answer| matches!(answer, Answer::WriteNotify { .. })).0 {
            Answer::WriteNotify { status, .. } => status,
            _ => Eca::INTERNAL,
        }
    };

    let early = status_of_put(&[version.clone(), as_ann.clone(), create(0, "x")]);
    let late = status_of_put(&[version.clone(), create(0, "x"), as_ann]);
    let anonymous = status_of_put(&[version, create(0, "x")]);

    assert_eq!((early, late, anonymous), (Eca::NORMAL, Eca::NOWTACCESS, Eca::NOWTACCESS));
}
