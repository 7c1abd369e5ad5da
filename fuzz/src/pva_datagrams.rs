//! Datagrams from arbitrary senders to every receiver of pvAccess: searches, forwarded searches, replies and beacons,
//! in the order and at the times that the input gives.
//!
//! The input is a series of datagrams, each after four bytes: the receiver and how the datagram arrived, the sender,
//! the time since the previous one, and its length in units of eight bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use fodo_data::Now;
use fodo_engine::limit::SEARCH_BURST;
use fodo_engine::shares::SearchShares;
use fodo_pva::beacon_monitor::BeaconMonitor;
use fodo_pva::guid::Guid;
use fodo_pva::responder::{Arrival, Recipient, Responder};
use fodo_pva::searcher::{NameSearcher, Reach, Searcher};
use fodo_pva::{Cid, limit};

/// The number of names being searched for.
const NAMES: u32 = 8;

/// The smallest search: its fixed part, no protocol and no name.
const SEARCH_BYTES_MIN: usize = 37;

/// The size of the tag before a forwarded search, with its header.
const TAG_BYTES: usize = 24;

/// By how much a reply may be larger than its search.
const REPLY_BYTES_MORE: usize = 12;

/// Every receiver of datagrams.
struct Listeners {
    searcher: Searcher,
    responder: Responder,
    beacons: BeaconMonitor,
    shares: SearchShares,
}

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let mut now = Now::for_test();
    let mut responder = Responder::new(Guid::from_bits(1, 2), 5075, now);
    responder.set_ignored(vec![Ipv4Addr::new(10, 0, 0, 7).into()]);
    let mut listeners = Listeners {
        searcher: Searcher::new(1, 4000),
        responder,
        beacons: BeaconMonitor::new(now),
        shares: SearchShares::new(4096, 16 * 1024),
    };
    (0..NAMES).for_each(|cid| listeners.searcher.add(Cid(cid), &format!("pv{cid}"), now));
    listeners.check(now);
    let mut rest = bytes;
    while let [who, from, pause, length, behind @ ..] = rest {
        let (datagram, next) = behind.split_at((usize::from(*length) * 8).min(behind.len()));
        rest = next;
        // From zero to an hour, because periods span many orders of magnitude.
        now = now + Duration::from_millis(u64::from(*pause).pow(3) / 5);
        listeners.receive(*who, source(*from), datagram, now);
        listeners.check(now);
    }
}

/// One of a few senders, including addresses to which no reply is possible.
fn source(number: u8) -> SocketAddr {
    let ip = match number % 8 {
        0 => IpAddr::V4(Ipv4Addr::LOCALHOST),
        1 => IpAddr::V4(Ipv4Addr::BROADCAST),
        2 => IpAddr::V4(Ipv4Addr::new(224, 0, 0, 128)),
        3 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        other => IpAddr::V4(Ipv4Addr::new(10, 0, 0, other)),
    };
    SocketAddr::new(ip, u16::from(number / 8) * 100)
}

impl Listeners {
    fn receive(&mut self, who: u8, from: SocketAddr, bytes: &[u8], now: Now) {
        match who % 3 {
            0 => {
                let n_before = self.searcher.n_names();
                let mut claims = Vec::new();
                self.searcher.handle(from, bytes, now, &mut claims);
                let n_first = claims.iter().filter(|claim| claim.is_first).count();
                assert_eq!(self.searcher.n_names() + n_first, n_before, "a name is found once");
                assert!(claims.len() <= bytes.len() / 4, "a claim that the datagram does not contain");
                assert!(claims.iter().all(|claim| is_one_host(claim.server)), "a server without an address");
                // The same as if its server were lost again.
                claims.iter().filter(|claim| claim.is_first).for_each(|claim| {
                    self.searcher.add_lost(claim.cid, "pv".into(), now);
                });
            }
            1 if self.shares.admits(from.ip(), bytes.len(), now) => self.respond(who / 3, from, bytes),
            1 => {}
            _ => {
                let mut anomalies = Vec::new();
                self.beacons.handle(from, bytes, now, &mut anomalies);
                anomalies.iter().for_each(|_| self.searcher.boost(now));
            }
        }
    }

    fn respond(&self, arrival: u8, from: SocketAddr, bytes: &[u8]) {
        let arrival = match arrival % 3 {
            0 => Arrival::Shared,
            1 => Arrival::Unicast { destination: Ipv4Addr::new(10, 0, 0, 9).into() },
            _ => Arrival::LocalGroup,
        };
        let mut out = Vec::new();
        let mut is_served = |name: &str| {
            assert!((1..=limit::NAME_BYTES).contains(&name.len()), "an invalid name");
            name.len().is_multiple_of(2)
        };
        // A flaw is only reported; the input decides whether there is one.
        let _ = self.responder.handle(from, arrival, bytes, &mut is_served, &mut out);
        let (replies, forwards): (Vec<_>, Vec<_>) = out.into_iter().partition(|one| one.to != Recipient::LocalGroup);
        let n_searches_max = bytes.len() / SEARCH_BYTES_MIN;
        assert!(replies.len().max(forwards.len()) <= n_searches_max, "one reply for each search");
        let n_bytes = |sent: &[fodo_pva::responder::Datagram]| sent.iter().map(|sent| sent.bytes.len()).sum::<usize>();
        assert!(n_bytes(&replies) <= bytes.len() + n_searches_max * REPLY_BYTES_MORE, "no amplification");
        assert!(n_bytes(&forwards) <= bytes.len() + n_searches_max * TAG_BYTES, "a search is forwarded once");
        assert!(forwards.is_empty() || matches!(arrival, Arrival::Unicast { .. }), "a loop of forwarded searches");
        for reply in &replies {
            let Recipient::Client { to, .. } = reply.to else { unreachable!("no beacon is due") };
            assert!(is_one_host(to), "a reply to {to}");
            assert_ne!(to.ip(), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7)), "a reply to an ignored host");
        }
    }

    fn check(&mut self, now: Now) {
        let mut searches = Vec::new();
        self.searcher.tick(now, &mut searches);
        assert!(searches.len() <= SEARCH_BURST);
        assert!(searches.iter_mut().all(|sent| sent.bytes_to(Reach::Group).len() <= limit::SEARCH_BYTES));
        assert_eq!(self.searcher.n_names(), NAMES as usize);
        assert!(self.searcher.deadline().is_some(), "a name being searched for has a next search time");
        let mut beacons = Vec::new();
        self.responder.tick(now, &mut beacons);
        assert!(beacons.len() <= 1 && self.responder.deadline().is_some_and(|due| due > now.monotonic));
        assert!(self.beacons.n_servers() <= limit::BEACON_SERVERS);
    }
}

/// Whether one host has the address.
fn is_one_host(address: SocketAddr) -> bool {
    let ip = address.ip();
    !ip.is_multicast() && !ip.is_unspecified() && ip != IpAddr::V4(Ipv4Addr::BROADCAST) && address.port() != 0
}
