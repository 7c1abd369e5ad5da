//! Datagrams that no client sends; rows 72 and 74 of the table of faults.

use std::time::Duration;

use fodo_clu::cipher::CipherKey;
use fodo_clu::command::{Request, SecretKey, Session};
use fodo_clu::limit;
use fodo_clu::server::{DropReason, FloodLimits, ServerSocket};

use super::clu_server;
use super::world::*;

fn n_dropped(world: &World, reason: DropReason) -> u64 {
    world.assert_accounted().n_dropped_for(reason)
}

#[test]
fn no_length_of_a_datagram_gets_a_reply_without_the_key() {
    let mut config = config();
    config.flood_limits = FloodLimits { requests_per_s: 1_000_000, strangers_per_s: 1_000_000 };
    let mut world = World::new(config);

    for length in 0..=2100_usize {
        let datagram: Vec<u8> = (0..length).map(|index| (index * 31) as u8).collect();
        for socket in [ServerSocket::Unicast, ServerSocket::Broadcast] {
            assert_eq!(world.deliver(socket, client(1), &datagram), [], "{length} bytes");
        }
    }

    let n_whole = 2 * (1..=2100).filter(|length| length % 16 == 0).count() as u64;
    let n_too_long = 2 * (2049..=2100).filter(|length| length % 16 == 0).count() as u64;
    assert_eq!(n_dropped(&world, DropReason::NotWholeBlocks), 2 * 2101 - n_whole);
    assert_eq!(n_dropped(&world, DropReason::TooLong), n_too_long);
    assert_eq!(n_dropped(&world, DropReason::NoKeyFits), n_whole - n_too_long);
}

#[test]
fn a_request_whose_bytes_were_changed_or_cut_never_becomes_another_request() {
    let mut config = config();
    config.flood_limits.strangers_per_s = 1_000_000;
    let mut world = World::new(config);
    let request = Request::Execute { client: None, session: Session(1), script: b"echo the heating is off now" };
    let valid = encrypted(&project_key(), &request);

    for at in 0..valid.len() {
        for bit in 0..8 {
            let mut changed = valid.clone();
            changed[at] ^= 1 << bit;
            world.deliver(ServerSocket::Unicast, client(1), &changed);
        }
    }
    for length in 0..valid.len() {
        world.deliver(ServerSocket::Unicast, client(1), &valid[..length]);
    }

    // A changed byte destroys its own block, which is then not UTF-8. There is no other protection.
    assert_eq!(world.executed, [""; 0]);
    world.assert_accounted();
}

#[test]
fn a_recorded_request_is_executed_again_until_the_key_changes() {
    let mut world = World::new(config());
    let request = Request::Execute { client: None, session: Session(1), script: b"echo open" };
    let recorded = encrypted(&project_key(), &request);
    let new = CipherKey::new([7; 16], [8; 16]);

    assert_eq!(world.deliver(ServerSocket::Unicast, client(1), &recorded).len(), 1);
    assert_eq!(world.deliver(ServerSocket::Unicast, client(9), &recorded).len(), 1);
    let request = Request::SetKey { challenge: &new.seal(&[0; 30]), iv: new.iv(), key: SecretKey(new.key()) };
    let set_key = encrypted(&project_key(), &request);
    world.deliver(ServerSocket::Unicast, client(1), &set_key);

    assert_eq!(world.deliver(ServerSocket::Unicast, client(9), &recorded), []);
    assert_eq!(world.deliver(ServerSocket::Unicast, client(9), &set_key), []);
    assert_eq!(world.executed.len(), 2);
    assert_eq!(n_dropped(&world, DropReason::NoKeyFits), 2);
}

#[test]
fn a_flood_without_the_key_is_limited_and_does_not_stop_clients() {
    let mut config = config();
    config.flood_limits = FloodLimits { requests_per_s: 1000, strangers_per_s: 10 };
    let mut world = World::new(config);

    for _ in 0..500 {
        world.deliver(ServerSocket::Unicast, client(9), &[7; 64]);
    }
    assert_eq!(n_dropped(&world, DropReason::NoKeyFits), 10);
    assert_eq!(n_dropped(&world, DropReason::StrangerFlood), 490);
    assert!(world.execute(client(1), &project_key(), "checkAlive()").is_some());
    assert!(world.execute(client(9), &project_key(), "checkAlive()").is_some(), "the address was forged");

    for _ in 0..1000 {
        world.deliver(ServerSocket::Unicast, client(9), &[7; 64]);
    }
    assert_eq!(world.execute(client(9), &project_key(), "checkAlive()"), None);
    assert!(n_dropped(&world, DropReason::RequestFlood) > 500);
    assert!(world.execute(client(1), &project_key(), "checkAlive()").is_some());

    world.advance(Duration::from_secs(1));
    assert!(world.execute(client(9), &project_key(), "checkAlive()").is_some());
}

#[test]
fn discoveries_are_limited_for_each_address() {
    let mut world = World::new(config());
    let key = project_key();
    let request = Request::Discover { challenge: &key.seal(&[5; 30]), iv: key.iv(), client: None };
    let datagram = encrypted(&CipherKey::broadcast(), &request);

    let n_replies: usize = (0..1000).map(|_| world.deliver(ServerSocket::Broadcast, client(9), &datagram).len()).sum();

    assert_eq!(n_replies, limit::STRANGERS_PER_S_DEFAULT as usize);
    assert_eq!(n_dropped(&world, DropReason::StrangerFlood), 1000 - n_replies as u64);
}

#[test]
fn floods_from_many_addresses_use_bounded_memory() {
    let mut world = World::new(config());

    for number in 0..3 * limit::FLOOD_SOURCES_MAX {
        let from = (std::net::Ipv4Addr::from(0x0b00_0000 + number as u32), 5000).into();
        world.deliver(ServerSocket::Unicast, from, &[7; 16]);
    }

    assert!(world.server.n_sources() <= limit::FLOOD_SOURCES_MAX);
    world.assert_accounted();
}

#[test]
fn a_script_that_is_no_text_is_dropped() {
    let mut world = World::new(config());
    let request = Request::Execute { client: None, session: Session(1), script: b"echo \xff\xfe" };

    assert_eq!(world.request(client(1), &project_key(), &request), []);

    assert_eq!(n_dropped(&world, DropReason::NotText), 1);
}

#[test]
fn a_new_key_may_contain_separators_and_line_ends() {
    let mut world = World::new(config());
    let new = CipherKey::new(*b":::\r\n:req_set_ke", *b"\r\n:req:1:2:3\r\n::");

    let request = Request::SetKey {
        challenge: &new.seal(b"req:::::::::\r\n::::::::::::::::"),
        iv: new.iv(),
        key: SecretKey(new.key()),
    };
    let sent = world.request(client(1), &project_key(), &request);

    assert_eq!(text(&new, &sent[0]).as_deref(), Some("resp:OK"));
    assert!(world.execute(client(1), &new, "checkAlive()").is_some());
}

/// The target of the fuzzer with random inputs, most of whose steps contain valid commands.
#[test]
fn random_sequences_of_datagrams_are_accounted_for() {
    const COMMANDS: [&str; 8] = [
        "req::1:f()",
        "req_reset:10.0.0.1",
        "req_start_ftp",
        "req_stop_ftp",
        "req_gen_measurements::1:1",
        "req_set_clu_ip:0d0a1b2c:10.0.0.2:10.0.0.1",
        "meas_file_download::1:ok",
        "req_unknown",
    ];
    let mut random = fastrand::Rng::with_seed(19);
    for _ in 0..300 {
        let mut input = vec![random.u8(..)];
        for _ in 0..random.usize(..100) {
            let bytes: Vec<u8> = match random.u8(..5) {
                0 => std::iter::repeat_with(|| random.u8(..)).take(16).collect(),
                1 => [&[0; 32], &b":"[..], &[2; 16], b":req_discovery_clu:10.0.0.1"].concat(),
                2 => [&[0; 32], &b":"[..], &[random.u8(..); 16], b":req_set_key:", &[random.u8(..); 16]].concat(),
                _ => random.choice(COMMANDS).unwrap_or_default().into(),
            };
            input.extend([random.u8(..), random.u8(..), bytes.len() as u8]);
            input.extend(bytes);
        }
        clu_server::feed(&input);
    }
}
