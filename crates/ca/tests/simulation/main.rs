//! Client and server on a simulated connection that splits the stream anywhere, with a simulated clock, for many seeds.
//!
//! `SIM_SEED=n` repeats one seed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic reports the failure")]

#[expect(dead_code, reason = "only the fuzz target, which is driven by bytes, uses the rest")]
mod world;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fodo_ca::beacon::BeaconMonitor;
use fodo_ca::search::{Claim, Datagram, NameSearcher, Responder, Searcher};
use fodo_ca::{client, limit, server};
use fodo_data::Now;
use fodo_engine::Cid;
use fodo_engine::limit::{SEARCH_BURST, SEARCH_PERIOD_MAX};
use fodo_engine::shares::SearchShares;

use self::world::{Chance, World};

fn seeds(n: u64) -> Vec<u64> {
    match std::env::var("SIM_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..n).collect(),
    }
}

fn random(seed: u64) -> Chance {
    let mut random = fastrand::Rng::with_seed(seed);
    Chance::Random(Box::new(move |n| random.usize(..n)))
}

#[test]
fn every_operation_ends_once_every_update_is_delivered_or_counted_and_nothing_is_left_over() {
    let (mut n_updates, mut n_merged) = (0, 0);
    for seed in seeds(60) {
        println!("SIM_SEED={seed}");
        let mut world = World::new(random(seed));

        (0..1200).for_each(|_| world.step());
        world.settle();

        world.check();
        n_updates += world.client.subscriptions.values().map(|subscription| subscription.n_updates).sum::<u64>();
        n_merged += world.server.watches.values().map(|watch| watch.cursor.merged).sum::<u64>();

        world.clear_all();

        assert!(world.client.circuit.holds_nothing(), "{:?}", world.client.circuit);
        assert_eq!(world.server.circuit.held_bytes(), 0, "{:?}", world.server.circuit);
        assert_eq!(world.server.circuit.pending_bytes(), 0, "{:?}", world.server.circuit);
        assert!(world.server.channels.is_empty() && world.server.watches.is_empty(), "{seed}");
    }
    assert!(n_updates > 100 && n_merged > 10, "{n_updates} {n_merged}: the scenario produces updates and merges them");
}

#[test]
fn a_circuit_closes_at_its_deadline_after_a_partial_message() {
    for seed in seeds(50) {
        let mut world = World::new(random(seed));
        let now = world.now;
        world.client.create(0, 4, now);
        let bytes = world.client.circuit.ready().to_vec();
        let cut = 1 + world.chance.below(bytes.len() - 1);
        let mut events = Vec::new();

        world.server.circuit.received(&bytes[..cut], world.now, &mut events);
        let deadline = world.server.circuit.deadline();
        world.server.circuit.tick(world.now + limit::MESSAGE_TIMEOUT, &mut events);

        let is_closed = matches!(events.last(), Some(server::Event::Closed(_)));
        assert_eq!(is_closed, deadline.is_some(), "seed {seed}: {cut} bytes");
    }
}

/// The outputs and deadlines of all state machines during ten minutes, while the wall clock deviates from the monotonic
/// clock by `ahead_s`.
fn history(start: Now, ahead_s: impl Fn(u64) -> i64) -> Vec<String> {
    let config = client::Config {
        priority: 0,
        user: "ann".into(),
        host: "desk".into(),
        echo_after: Duration::from_secs(30),
        payload_bytes_max: 1 << 20,
    };
    let mut client = client::Circuit::new(&config, start);
    let mut server = server::Circuit::new(&server::Config { payload_bytes_max: 1 << 20 }, start);
    let (mut searcher, mut responder) = (Searcher::new(1), Responder::new(5064, start));
    let (mut beacons, mut shares) = (BeaconMonitor::new(start), SearchShares::new(100, 1000));
    (0..20).for_each(|cid| searcher.add(Cid(cid), "x", start));
    let mut log = Vec::new();
    for step in 0..6000 {
        let mut now = start + Duration::from_millis(100 * step);
        now.wall.unix_s += ahead_s(step);
        let (mut out, mut events, mut requests, mut anomalies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        searcher.tick(now, &mut out);
        responder.tick(now, &mut out);
        for datagram in &out {
            beacons.handle(server_address(1), &datagram.bytes, now, &mut anomalies);
        }
        client.tick(now, &mut events);
        // An incomplete message.
        server.received(if step == 100 { &[0] } else { &[] }, now, &mut requests);
        server.tick(now, &mut requests);
        let admits = shares.admits(CLIENT.ip(), 60, now);
        let deadlines = [searcher.deadline(), responder.deadline(), client.deadline(), server.deadline()];
        let deadlines = deadlines.map(|at| at.map(|at| at.saturating_duration_since(start.monotonic)));
        log.push(format!("{step} {out:?} {events:?} {requests:?} {anomalies:?} {admits} {deadlines:?}"));
    }
    log
}

// Row 76 of docs/reference/faults.md.
#[test]
fn wall_clock_jumps_do_not_affect_messages_or_deadlines() {
    let start = Now::for_test();

    let steady = history(start, |_| 0);
    let jumping = history(start, |step| [0, 3600, -3600, 86_400, -7200][step as usize / 50 % 5]);

    let differs = steady.iter().zip(&jumping).find(|(steady, jumping)| steady != jumping);
    assert_eq!(differs, None);
    assert!(steady.iter().any(|log| log.contains("Closed")) && steady.iter().any(|log| log.contains("Unresponsive")));
}

/// Datagrams in transit, by time of arrival.
struct Air {
    chance: Chance,
    on_the_way: BTreeMap<(Instant, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    n_sent: u64,
    loss_percent: usize,
}

impl Air {
    /// Sends a datagram, which may be lost, duplicated or overtaken by later ones.
    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8], now: Now) {
        let n_copies = 1 + usize::from(self.chance.below(100) < 10);
        for _ in 0..n_copies {
            if self.chance.below(100) >= self.loss_percent {
                let at = now.monotonic + Duration::from_micros(self.chance.below(50_000) as u64);
                self.n_sent += 1;
                self.on_the_way.insert((at, self.n_sent), (from, to, bytes.to_vec()));
            }
        }
    }
}

const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 40_000);

/// The address of a server.
fn server_address(index: usize) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, index as u8)), 5064)
}

/// The server index of a name, `name:server:n`; no server has the last index.
fn server_of(name: &str) -> usize {
    name.split(':').nth(1).unwrap().parse().unwrap()
}

/// Searches for names until all names that have a server are found, or for two hours.
fn searched(seed: u64, n_servers: usize, names: &[String]) -> (Vec<Claim>, Duration, u64) {
    let mut chance = random(seed);
    let start = Now::for_test();
    let loss_percent = chance.below(50);
    let mut air = Air { chance, on_the_way: BTreeMap::new(), n_sent: 0, loss_percent };
    let mut searcher = Searcher::new(seed);
    let mut responders: Vec<Responder> =
        (0..n_servers).map(|index| Responder::new(6000 + index as u16, start)).collect();
    names.iter().enumerate().for_each(|(cid, name)| searcher.add(Cid(cid as u32), name, start));
    let n_served = names.iter().filter(|name| server_of(name) < n_servers).count();
    let (mut claims, mut now) = (Vec::new(), start);
    while claims.len() < n_served && now.monotonic < start.monotonic + Duration::from_secs(7200) {
        let mut searches = Vec::new();
        searcher.tick(now, &mut searches);
        assert!(searches.len() <= SEARCH_BURST, "seed {seed}: the burst is limited");
        for Datagram { to, bytes } in searches {
            assert!(to.is_none() && bytes.len() <= limit::SEARCH_BYTES, "seed {seed}");
            (0..n_servers).for_each(|index| air.send(CLIENT, server_address(index), &bytes, now));
        }
        while let Some(entry) = air.on_the_way.first_entry().filter(|entry| entry.key().0 <= now.monotonic) {
            let (from, to, bytes) = entry.remove();
            if to == CLIENT {
                searcher.handle(from, &bytes, now, &mut claims);
                // Duplicate and late replies also occur here; they are not counted.
                claims.retain(|claim| claim.is_first);
                continue;
            }
            let index = (0..n_servers).find(|&index| server_address(index) == to).unwrap();
            let mut answers = Vec::new();
            responders[index].handle(from, &bytes, &mut |name| server_of(name) == index, &mut answers);
            for answer in answers {
                assert!(answer.to == Some(CLIENT) && answer.bytes.len() <= limit::ANSWER_BYTES, "seed {seed}");
                air.send(to, CLIENT, &answer.bytes, now);
            }
        }
        let next = [searcher.deadline(), air.on_the_way.keys().next().map(|key| key.0)].into_iter().flatten().min();
        let Some(next) = next else { break };
        now = now + next.saturating_duration_since(now.monotonic).max(Duration::from_micros(1));
    }
    (claims, now.monotonic - start.monotonic, air.n_sent)
}

#[test]
fn searches_over_a_lossy_network_find_all_served_names_and_no_absent_ones() {
    for seed in seeds(60) {
        let mut chance = random(seed.wrapping_add(1 << 32));
        let n_servers = 1 + chance.below(3);
        let n_names = 1 + chance.below(300);
        let names: Vec<String> =
            (0..n_names).map(|index| format!("name:{}:{index}", chance.below(n_servers + 1))).collect();

        let (claims, _, _) = searched(seed, n_servers, &names);

        let mut claimed: Vec<(u32, usize)> =
            claims.iter().map(|claim| (claim.cid.0, usize::from(claim.server.port()) - 6000)).collect();
        claimed.sort_unstable();
        let served = names.iter().enumerate().map(|(cid, name)| (cid as u32, server_of(name)));
        let served: Vec<(u32, usize)> = served.filter(|&(_, server)| server < n_servers).collect();
        assert_eq!(claimed, served, "seed {seed}: each name once, by its own server");
        for claim in &claims {
            assert_eq!(claim.server.ip(), server_address(usize::from(claim.server.port()) - 6000).ip(), "seed {seed}");
        }
    }
}

#[test]
fn ten_thousand_served_names_are_found_quickly_with_few_datagrams() {
    let names: Vec<String> = (0..10_000).map(|index| format!("name:0:{index}")).collect();

    let searches: Vec<_> = (1..=11).map(|seed| searched(seed, 1, &names)).collect();

    assert!(searches.iter().all(|(claims, ..)| claims.len() == names.len()));
    let n_sent_max = searches.iter().map(|(.., n_sent)| *n_sent).max().unwrap();
    assert!(n_sent_max < 2_000, "{n_sent_max}");
    // With nearly half of all datagrams lost, the maximum depends on a single datagram; only the median is meaningful.
    let mut durations: Vec<Duration> = searches.iter().map(|(_, durations, _)| *durations).collect();
    durations.sort_unstable();
    assert!(durations[durations.len() / 2] < SEARCH_PERIOD_MAX, "{durations:?}");
}
