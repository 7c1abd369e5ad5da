//! The memory that channels and subscriptions cost a server, compared with what their quotas count. It is the only test
//! of its process, since it measures the memory of the process.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a panic reports a failed test")]

#[path = "faults/raw.rs"]
#[expect(dead_code, reason = "the rest is for the tests that are about it")]
mod raw;

use std::sync::Arc;
use std::time::Duration;

use fodo_ca::limit;
use fodo_ca::message::{self, Answer, Request};
use fodo_engine::{Sid, SubscriptionId};
use fodo_net::{PvTable, Server, ServerConfig, SharedPv};

use raw::{DOUBLE, Raw, create, echo, with};

const PATIENCE: Duration = Duration::from_secs(30);

/// Resident memory of this process, in bytes.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Sends these messages and waits until they are answered; returns the memory that this took.
fn cost(raw: &mut Raw, requests: impl Iterator<Item = Vec<u8>>) -> usize {
    let before = resident_bytes();
    for request in requests {
        raw.send(&[request, echo()]);
        raw.until(|answer| *answer == Answer::Echo {});
    }
    resident_bytes().saturating_sub(before)
}

/// A subscription to the channel with this number.
fn subscribe(number: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    message::encode_mask(&mut payload, 1);
    let (sid, subscription) = (Sid(number), SubscriptionId(number));
    with(Request::EventAdd { dbr: DOUBLE, count: 0, sid, subscription }, &payload)
}

// Rows 17 and 18 of docs/reference/faults.md.
#[test]
fn channels_and_subscriptions_use_at_most_the_memory_counted_for_them() {
    const N: u32 = 50_000;
    let pvs: PvTable = (0..N).map(|number| (number.to_string(), SharedPv::new(f64::from(number)))).collect();
    let server = Server::start(ServerConfig::isolated(), Arc::new(pvs)).unwrap();
    let mut raw = Raw::connected(server.tcp_port());

    let channels = cost(&mut raw, (0..N).map(|number| create(number, &number.to_string()))) / N as usize;
    let subscriptions = cost(&mut raw, (0..N).map(subscribe)) / N as usize;

    println!("{channels} bytes of a channel, {subscriptions} of a subscription");
    assert!(channels <= limit::CHANNEL_BYTES, "{channels}");
    assert!(subscriptions <= limit::SUBSCRIPTION_BYTES, "{subscriptions}");
    assert!(channels + subscriptions >= (limit::CHANNEL_BYTES + limit::SUBSCRIPTION_BYTES) / 4, "not by far less");
}
