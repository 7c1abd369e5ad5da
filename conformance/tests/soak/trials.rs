//! Trials of the worst that a hostile host can do, with measurements.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use fodo_ca::message::Answer;
use fodo_net::Value;

use crate::faults::{half_sent, misaligned_searches};
use crate::ioc::{Ioc, N_DESCRIPTORS, N_ELEMENTS};
use crate::neighbour::{Latencies, Neighbour, connected_from};
use crate::raw::{Raw, echo};
use fodo_testing::eventually;

use crate::{Over, PATIENCE};

/// Address of a well-behaved client on another host.
const OTHER_HOST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Maximum time until a new client on another host has a channel. The target is a second; this allows for a busy
/// machine. The server closes a silent connection only after a minute, so it cannot be what makes room.
const SERVED_MAX: Duration = Duration::from_secs(30);

/// Number of clients that send half of a put.
const N_PUTS: usize = 40;

/// Maximum memory for all clients of one host.
const HOST_BYTES: u64 = 2 << 30;

/// Maximum memory for puts of clients without write access.
const DRAINED_BYTES_MAX: u64 = 20 << 20;

/// Does `hostile` while a client on another host gets values; returns the latencies of these gets.
fn beside_a_neighbour(ioc: &Ioc, hostile: impl FnOnce()) -> Latencies {
    let (is_over, fault) = (AtomicBool::new(false), AtomicUsize::new(0));
    let neighbour = Neighbour::at(OTHER_HOST, ioc.server);
    std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| neighbour.watch(&fault, &is_over));
        let over = Over(&is_over);
        hostile();
        drop(over);
        neighbour.join().unwrap_or_else(|_| panic!("the other client failed: {}", ioc.log()))
    })
}

/// Sends `N_PUTS` puts of 80 MB without their last 1 MB; returns the maximum memory that they took, and the latencies
/// of another client's gets meanwhile.
fn send_halves(ioc: &Ioc, name: &str) -> (u64, Latencies) {
    let before = ioc.memory();
    let mut most = before;
    let latencies = beside_a_neighbour(ioc, || {
        let mut held = Vec::new();
        for _ in 0..N_PUTS {
            let raw = Raw::with_channel(ioc.server.port(), name);
            held.push(half_sent(raw, (N_ELEMENTS as usize * 8) - (1 << 20)));
            most = most.max(ioc.memory());
        }
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            most = most.max(ioc.memory());
        }
    });
    (most - before, latencies)
}

// Row 80 of docs/reference/faults.md.
#[test]
#[ignore = "takes a gigabyte of memory; `cargo xtask soak MINUTES` runs it"]
fn forty_partial_puts_of_80_megabytes_stay_within_the_host_quota() {
    let ioc = Ioc::start("halves");

    let (most, latencies) = send_halves(&ioc, "f:huge");
    println!("half-sent puts: {} MB; {}", most >> 20, latencies.all());
    assert!(most < HOST_BYTES, "{most} bytes");
    assert!(ioc.log().contains("too much memory"), "{}", ioc.log());
    assert!(ioc.metric("fodo_refused_total") > 0.0);
    ioc.stop();
}

// Row 80 of docs/reference/faults.md.
#[test]
#[ignore = "sends three gigabytes; `cargo xtask soak MINUTES` runs it"]
fn forty_partial_puts_without_write_access_take_no_memory() {
    let ioc = Ioc::start("rightless");

    let (most, latencies) = send_halves(&ioc, "f:guarded");

    println!("half-sent puts without rights: {} MB; {}", most >> 20, latencies.all());
    assert!(most < DRAINED_BYTES_MAX, "{most} bytes");
    ioc.stop();
}

// Row 81 of docs/reference/faults.md.
#[test]
fn silent_connections_leave_descriptors_for_other_hosts_and_ioc_files() {
    fodo_net::process::raise_descriptor_limit();
    let ioc = Ioc::start("silent");
    let neighbour = Neighbour::at(OTHER_HOST, ioc.server);
    let kept = ioc.context().channel("f:kept").expect("a channel");
    kept.connect_timeout(PATIENCE).expect("it is there");

    for hosts in [1, 3] {
        let addresses = (1..=hosts).map(|n| Ipv4Addr::new(127, 0, 1, n));
        let mut silent = Vec::new();
        let latencies = beside_a_neighbour(&ioc, || {
            let connections = addresses.flat_map(|own| (0..N_DESCRIPTORS).map(move |_| own));
            silent.extend(connections.map(|own| connected_from(own, ioc.server)));
            // Time for the other client to do a few hundred gets.
            std::thread::sleep(Duration::from_millis(500));
        });
        let (mut late, served_after) = neighbour.connect();

        println!("silent connections of {hosts} hosts: served after {served_after:?}; {}", latencies.all());
        assert!(served_after < SERVED_MAX, "{served_after:?}");
        assert!(ioc.n_files() < N_DESCRIPTORS, "a reserve of descriptors is left");
        let value = f64::from(hosts) + 0.25;
        kept.put_timeout(Value::from(value), PATIENCE).expect("a put");
        eventually("autosave saves", || ioc.has_saved(&value.to_string()));
        let (page, page_after) = ioc.metrics();
        assert!(page_after < SERVED_MAX, "the metrics take {page_after:?}");
        assert!(page.contains("fodo_clients_without_channel_of_host{host=\"127.0.1."), "{page}");
        assert!(ioc.log().contains("without a channel is closed"), "{}", ioc.log());
        late.send(&[echo()]);
        late.until(|answer| matches!(answer, Answer::Echo {}));
    }
    let _silent: Vec<Raw> =
        (0..N_DESCRIPTORS).map(|_| connected_from(Ipv4Addr::new(127, 0, 1, 1), ioc.server)).collect();
    ioc.make_rules_stricter();
    eventually("stricter rules hold", || kept.put_timeout(Value::from(9.0), PATIENCE).is_err());
    drop(kept);
    ioc.stop();
}

// Rows 2 and 6 of docs/reference/faults.md.
#[test]
fn an_ioc_does_not_reply_to_misaligned_searches() {
    let ioc = Ioc::start("misaligned");
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
    client.set_read_timeout(Some(PATIENCE)).expect("it is a socket");

    client.send_to(&misaligned_searches(), ioc.server).expect("it is sent");
    let mut aligned = misaligned_searches()[..16].to_vec();
    let search = fodo_ca::message::Request::Search { reply: 5, minor: 13, cid: fodo_engine::Cid(77), again: 77 };
    fodo_ca::message::encode_text(&mut aligned, |size| search.header(size), b"f:ao");
    client.send_to(&aligned, ioc.server).expect("it is sent");

    let mut buffer = [0; 4096];
    let (n_bytes, _) = client.recv_from(&mut buffer).expect("the second one is answered");
    assert_eq!(n_bytes, aligned.len(), "and nothing else");
    ioc.stop();
}
