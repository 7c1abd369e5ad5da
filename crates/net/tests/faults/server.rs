//! A server and clients that violate the protocol.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_ca::message::{self, Answer, Request};
use fodo_engine::{Cid, Ioid, Sid};
use fodo_testing::eventually;

use crate::PATIENCE;
use crate::cell::{Cell, Table, client, local, number, serve};
use crate::raw::{DOUBLE, Raw, bare, create, echo, put, read, subscribe};

// Row 77 of docs/reference/faults.md.
#[test]
fn a_peer_with_another_protocol_is_closed_at_once() {
    let server = serve(&Table::of([("x", Cell::new(1.5))]));
    let hello: Vec<u8> = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3].into_iter().chain([7; 506]).collect();
    let others: [&[u8]; 4] =
        [b"GET / HTTP/1.1\r\nHost: plant\r\n\r\n", b"OPTIONS * HTTP/1.0\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", &hello];

    for bytes in others {
        let mut stranger = Raw::connected(server.tcp_port());
        stranger.send(&[bytes.to_vec()]);

        let after = stranger.ended_after();
        assert!(after < PATIENCE / 2, "{:?} after {after:?}", bytes.escape_ascii().to_string());
    }
    assert_eq!(number(&client(&server).channel("x").unwrap().get_timeout(PATIENCE).unwrap()), 1.5);
}

// Row 77 of docs/reference/faults.md.
#[test]
fn a_valid_message_received_byte_by_byte_is_processed() {
    let server = serve(&Table::of([("x", Cell::new(1.5))]));
    let mut slow = Raw::connected(server.tcp_port());

    for byte in echo() {
        slow.send(&[vec![byte]]);
    }

    slow.until(|answer| *answer == Answer::Echo {});
}

/// The reply to a put.
fn put_answer(ioid: u32, status: Eca) -> Answer {
    Answer::WriteNotify { dbr: DOUBLE, count: 1, status, ioid: Ioid(ioid) }
}

// Row 21 of docs/reference/faults.md.
#[test]
fn pending_puts_beyond_the_limit_are_rejected_and_the_circuit_stays_usable() {
    const PUTS_MAX: u32 = 64 * 1024;
    let table = Table::of([("slow", Cell::that_holds(0.0)), ("x", Cell::new(1.5))]);
    let server = serve(&table);
    let mut flooding = Raw::with_channel(server.tcp_port(), "slow");

    for ioid in 0..PUTS_MAX + 1000 {
        flooding.send(&[put(ioid)]);
    }

    for ioid in PUTS_MAX..PUTS_MAX + 1000 {
        assert_eq!(flooding.hear().unwrap().0, put_answer(ioid, Eca::ALLOCMEM));
    }
    flooding.send(&[echo()]);
    assert_eq!(flooding.hear().unwrap().0, Answer::Echo {});
    assert_eq!(number(&client(&server).channel("x").unwrap().get_timeout(PATIENCE).unwrap()), 1.5);
    table.0["slow"].complete(1);
    assert_eq!(flooding.hear().unwrap().0, put_answer(0, Eca::NORMAL));
}

// Row 22 of docs/reference/faults.md.
#[test]
fn a_put_of_a_lost_client_completes_without_a_reply_to_other_clients() {
    let table = Table::of([("slow", Cell::that_holds(0.0))]);
    let server = serve(&table);
    let slow = &table.0["slow"];
    let mut dying = Raw::with_channel(server.tcp_port(), "slow");
    dying.send(&[subscribe(1), put(7)]);
    eventually("a put is held", || slow.n_held() == 1);
    drop(dying);
    eventually("the subscription has ended", || !slow.has_listeners());

    // One of them reuses the index of the closed circuit.
    let mut others: Vec<Raw> = (0..8).map(|_| Raw::with_channel(server.tcp_port(), "slow")).collect();
    others.iter_mut().for_each(|other| other.send(&[put(9)]));
    eventually("nine puts are held", || slow.n_held() == 9);
    slow.complete(1);
    for other in &mut others {
        other.send(&[echo()]);
        assert_eq!(other.hear().unwrap().0, Answer::Echo {}, "none of their puts has ended");
    }
    slow.complete(8);

    for other in &mut others {
        assert_eq!(other.hear().unwrap().0, put_answer(9, Eca::NORMAL));
    }
}

#[test]
fn a_queued_put_can_be_rejected_and_is_cancelled_with_its_channel_or_client() {
    let table = Table::of([("slow", Cell::that_holds(0.0))]);
    let server = serve(&table);
    let slow = &table.0["slow"];
    let mut raw = Raw::with_channel(server.tcp_port(), "slow");

    raw.send(&[put(1)]);
    eventually("a put is held", || slow.n_held() == 1);
    slow.refuse();
    assert_eq!(raw.hear().unwrap().0, put_answer(1, Eca::NOWTACCESS));

    raw.send(&[put(2), put(3), bare(Request::ClearChannel { sid: Sid(0), cid: Cid(0) })]);
    raw.hear().unwrap();
    let given_up = slow.cancelled();
    assert!(matches!(given_up[..], [first, second] if first < second), "{given_up:?}");

    raw.send(&[create(1, "slow")]);
    raw.until(|answer| matches!(answer, Answer::CreateChan { .. }));
    raw.send(&[put(4)]);
    eventually("three puts are held", || slow.n_held() == 3);
    drop(raw);
    eventually("three puts are cancelled", || slow.cancelled().len() == 3);
}

// Row 22 of docs/reference/faults.md.
#[test]
fn a_client_that_disconnects_during_a_put_leaves_nothing_behind() {
    let table = Table::of([("x", Cell::new(1.5))]);
    let server = serve(&table);
    for n_bytes in 0..24 {
        let mut dying = Raw::with_channel(server.tcp_port(), "x");
        dying.send(&[subscribe(1), put(7)[..n_bytes].to_vec()]);
        eventually("the subscription exists", || table.0["x"].has_listeners());
    }

    eventually("the subscription has ended", || !table.0["x"].has_listeners());
    eventually("the channel is closed", || Arc::strong_count(&table.0["x"]) == 1);
    assert_eq!(number(&client(&server).channel("x").unwrap().get_timeout(PATIENCE).unwrap()), 1.5);
}

// Row 20 of docs/reference/faults.md.
#[test]
fn the_server_stops_reading_from_a_client_that_reads_no_replies() {
    const LARGE: usize = 64 * 1024;
    let table = Table::of([("a", Cell::new(vec![1.5; LARGE])), ("x", Cell::new(1.5))]);
    let server = serve(&table);
    let x = client(&server).channel("x").unwrap();
    x.connect_timeout(PATIENCE).unwrap();
    let mut deaf = Raw::with_channel(server.tcp_port(), "a");

    let n_said = deaf.flood(&read(1), 100 << 20);
    for _ in 0..100 {
        assert_eq!(number(&x.get_timeout(PATIENCE).unwrap()), 1.5);
    }
    for _ in 0..10 {
        assert_eq!(deaf.hear().unwrap().1.len(), LARGE * 8, "it goes on where it stopped");
    }

    assert!(n_said < 50 << 20, "{n_said} bytes of requests were taken");
}

/// A datagram of searches, whose reply has the same length.
pub fn searches() -> Vec<u8> {
    let mut bytes = bare(Request::Version { priority: 1, minor: 13, sequence: 1 });
    for cid in 0..42 {
        let request = Request::Search { reply: 5, minor: 13, cid: Cid(cid), again: cid };
        message::encode_text(&mut bytes, |size| request.header(size), b"y");
    }
    bytes
}

// Row 5 of docs/reference/faults.md.
#[test]
fn a_search_flood_blocks_neither_circuits_nor_other_searches() {
    let table = Table::of([("x", Cell::new(1.5)), ("y", Cell::new(2.5))]);
    let server = serve(&table);
    let context = client(&server);
    let x = context.channel("x").unwrap();
    x.connect_timeout(PATIENCE).unwrap();
    let (is_over, to) = (AtomicBool::new(false), local(server.udp_port()));

    let (at_x, at_y) = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (flooding, datagram) = (UdpSocket::bind("127.0.0.1:0").unwrap(), searches());
                while !is_over.load(Ordering::Relaxed) {
                    // The flood is valid even if the system drops some of it.
                    let _ = flooding.send_to(&datagram, to);
                }
            });
        }
        let at_x: Vec<_> = (0..20).map(|_| x.get_timeout(PATIENCE)).collect();
        let at_y = context.channel("y").unwrap().get_timeout(PATIENCE);
        is_over.store(true, Ordering::Relaxed);
        (at_x, at_y)
    });

    assert!(at_x.iter().all(|reading| reading.as_ref().is_ok_and(|reading| number(reading) == 1.5)), "{at_x:?}");
    assert_eq!(number(&at_y.unwrap()), 2.5);
}

// Row 20 of docs/reference/faults.md.
#[test]
fn pipelined_gets_are_processed_only_while_buffer_space_is_free() {
    // As doubles, which is not the native type: every reply is a separate megabyte.
    const N: usize = 1000;
    let table = Table::of([("a", Cell::new(vec![7_i32; 128 * 1024])), ("x", Cell::new(1.5))]);
    let server = serve(&table);
    let mut deaf = Raw::with_channel(server.tcp_port(), "a");

    deaf.send(&[read(1).repeat(N)]);
    let x = client(&server).channel("x").unwrap();
    (0..20).for_each(|_| assert_eq!(number(&x.get_timeout(PATIENCE).unwrap()), 1.5));
    for _ in 0..30 {
        assert_eq!(deaf.hear().unwrap().1.len(), 128 * 1024 * 8);
    }

    let n_reads = table.0["a"].n_reads();
    assert!(n_reads < 30 + 20, "{n_reads} for 30 that were heard");
}

#[test]
fn replies_are_sent_in_request_order_as_by_rsrv() {
    // As doubles, which is not the native type: each reply uses buffer space, so that some requests wait.
    let table = Table::of([("a", Cell::new(vec![7_i32; 64 * 1024]))]);
    let server = serve(&table);
    let mut raw = Raw::with_channel(server.tcp_port(), "a");
    let refused = |ioid| bare(Request::ReadNotify { dbr: DbrType(35), count: 1, sid: Sid(0), ioid: Ioid(ioid) });
    let round = |first: u32| {
        let cid = first + 100;
        [read(first), echo(), refused(first + 1), create(cid, "a"), bare(Request::ReadSync {}), create(cid, "none")]
    };

    raw.send(&(0..20).flat_map(|n| round(2 * n)).collect::<Vec<_>>());
    let heard: Vec<u16> = (0..20 * 7).map(|_| raw.hear().unwrap().0.header(0).command).collect();

    // READ_NOTIFY, ECHO, READ_NOTIFY, ACCESS_RIGHTS, CREATE_CHAN, READ_SYNC, CREATE_CH_FAIL
    assert_eq!(heard, [15, 23, 15, 22, 18, 10, 26].repeat(20));
}

// Row 26 of docs/reference/faults.md.
#[test]
fn a_client_with_100_circuits_is_served_and_leaves_nothing_behind() {
    let table = Table::of([("x", Cell::new(1.5))]);
    let server = serve(&table);

    let mut circuits: Vec<Raw> = (0..100).map(|_| Raw::connected(server.tcp_port())).collect();
    for (priority, circuit) in (0..).zip(&mut circuits) {
        circuit.send(&[bare(Request::Version { priority, minor: 13, sequence: 0 }), create(0, "x")]);
        circuit.until(|answer| matches!(answer, Answer::CreateChan { .. }));
        circuit.send(&[subscribe(1)]);
        circuit.until(|answer| matches!(answer, Answer::EventAdd { .. }));
    }
    assert!(table.0["x"].has_listeners());
    drop(circuits);

    eventually("channel and subscription are closed", || {
        !table.0["x"].has_listeners() && Arc::strong_count(&table.0["x"]) == 1
    });
}
