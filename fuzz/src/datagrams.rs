//! Datagrams from arbitrary senders to every receiver of datagrams: searches, replies, beacons and registrations, in
//! the order and at the times that the input gives.
//!
//! The input is a series of datagrams, each after four bytes: the receiver, the sender, the time since the previous
//! one, and its length in units of eight bytes.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use fodo_ca::beacon::BeaconMonitor;
use fodo_ca::limit;
use fodo_ca::repeater::{Repeater, is_confirmation};
use fodo_ca::search::{NameSearcher, Responder, Searcher};
use fodo_ca::traffic::SearchMonitor;
use fodo_data::Now;
use fodo_engine::Cid;
use fodo_engine::limit::SEARCH_BURST;
use fodo_engine::shares::SearchShares;

/// The number of names being searched for.
const NAMES: u32 = 8;

/// Every receiver of datagrams.
struct Listeners {
    searcher: Searcher,
    responder: Responder,
    beacons: BeaconMonitor,
    repeater: Repeater,
    traffic: SearchMonitor,
    shares: SearchShares,
}

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let mut now = Now::for_test();
    let mut listeners = Listeners {
        searcher: Searcher::new(1),
        responder: Responder::new(5064, now),
        beacons: BeaconMonitor::new(now),
        repeater: Repeater::new(5065),
        traffic: SearchMonitor::new(1),
        shares: SearchShares::new(4096, 16 * 1024),
    };
    (0..NAMES).for_each(|cid| listeners.searcher.add(Cid(cid), &format!("pv{cid}"), now));
    let mut rest = bytes;
    while let [who, from, pause, length, behind @ ..] = rest {
        let (datagram, next) = behind.split_at((usize::from(*length) * 8).min(behind.len()));
        rest = next;
        // From zero to an hour, because periods span many orders of magnitude.
        now = now + Duration::from_millis(u64::from(*pause).pow(3) / 5);
        listeners.hear(*who, source(*from), datagram, now);
        listeners.check(now);
    }
}

/// One of a few senders, including addresses to which no reply is possible.
fn source(number: u8) -> SocketAddr {
    let ip = match number % 8 {
        0 => Ipv4Addr::LOCALHOST,
        1 => Ipv4Addr::BROADCAST,
        2 => Ipv4Addr::new(224, 0, 0, 1),
        other => Ipv4Addr::new(10, 0, 0, other),
    };
    SocketAddr::from((ip, u16::from(number / 8) * 100))
}

impl Listeners {
    fn hear(&mut self, who: u8, from: SocketAddr, bytes: &[u8], now: Now) {
        let mut out = Vec::new();
        match who % 6 {
            0 => {
                let n_before = self.searcher.n_names();
                let mut claims = Vec::new();
                self.searcher.handle(from, bytes, now, &mut claims);
                let n_first = claims.iter().filter(|claim| claim.is_first).count();
                assert_eq!(self.searcher.n_names() + n_first, n_before, "a name is found once");
                // The same as if its server were lost again.
                claims.iter().filter(|claim| claim.is_first).for_each(|claim| {
                    self.searcher.add_lost(claim.cid, "pv".into(), now);
                });
            }
            1 if self.shares.admits(from.ip(), bytes.len(), now) => {
                self.responder.handle(from, bytes, &mut |name| name.len() % 2 == 1, &mut out);
                let n_said: usize = out.iter().map(|datagram| datagram.bytes.len()).sum();
                assert!(n_said <= bytes.len() + 16, "no amplification");
                assert!(out.iter().all(|datagram| datagram.bytes.len() <= limit::ANSWER_BYTES));
            }
            2 => {
                let mut anomalies = Vec::new();
                self.beacons.handle(from, bytes, now, &mut anomalies);
                anomalies.iter().for_each(|_| self.searcher.boost(now));
            }
            3 => {
                let n_clients = self.repeater.n_clients();
                self.repeater.handle(from, true, bytes, now, &mut |client| client.port() % 3 != 0, &mut out);
                let n_messages = bytes.len() / 16 + 1;
                assert!(out.len() <= n_messages * (n_clients + 1), "at most one for each client and beacon");
            }
            4 => self.traffic.handle_broadcast(from, bytes, now),
            _ => {
                self.traffic.answered(from, bytes, now);
                // The result is arbitrary; it must only not panic.
                let _ = is_confirmation(bytes);
            }
        }
    }

    fn check(&mut self, now: Now) {
        let mut out = Vec::new();
        self.searcher.tick(now, &mut out);
        assert!(out.len() <= SEARCH_BURST && out.iter().all(|sent| sent.bytes.len() <= limit::SEARCH_BYTES));
        assert_eq!(self.searcher.n_names(), NAMES as usize);
        assert!(self.searcher.deadline().is_some(), "a name being searched for has a next search time");
        self.traffic.tick(now, &mut out);
        self.responder.tick(now, &mut out);
        assert!(self.repeater.n_clients() <= limit::REPEATER_CLIENTS);
        assert!(self.beacons.n_servers() <= limit::BEACON_SERVERS);
    }
}
