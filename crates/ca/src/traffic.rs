//! Monitors search traffic: which clients search for which names, and which names no server has.
//!
//! Replies are sent to the searching client and are not visible to others. The monitor therefore searches itself for
//! every name that it receives: once, and a few more times while no server replies.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use fodo_data::Now;
use fodo_engine::Cid;
use fodo_engine::search::is_endpoint;

use crate::limit;
use crate::message::{self, Answer, Request};
use crate::search::{Claim, Datagram, NameSearcher, Searcher, each_message, explicit_ip};

/// The traffic received so far.
#[derive(Debug)]
pub struct SearchMonitor {
    searcher: Searcher,
    names: Vec<NameTraffic>,
    by_name: HashMap<String, Cid>,
    servers: Vec<ServerTraffic>,
    /// Names being searched for, by the time when replies are no longer expected.
    awaited: VecDeque<(Instant, Cid)>,
    n_searches: u64,
    n_left_out: u64,
    claims: Vec<Claim>,
}

/// The traffic for one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameTraffic {
    /// The name.
    pub name: String,
    /// How many times clients have searched for it.
    pub n_searches: u64,
    /// The clients, in the order in which they were first received; at most 64.
    pub clients: Vec<ClientTraffic>,
    /// The servers that claim the name, in the order of their replies. More than one is a configuration error.
    pub servers: Vec<SocketAddr>,
    /// Whether a server has the name.
    pub state: NameState,
    searched_at: Instant,
}

/// Whether a server has a name; the comment says what is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameState {
    /// A reply from the first server.
    Awaited,
    /// Nothing: a server has the name.
    Claimed,
    /// The next search by a client, some time later: no server has replied.
    Dead,
}

/// A client that searches for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTraffic {
    /// The address that it searches from.
    pub address: SocketAddr,
    /// How many times it has searched.
    pub n_searches: u64,
    sequence: u32,
    received_at: Instant,
}

/// A server whose beacons are received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTraffic {
    /// The address of its circuits.
    pub address: SocketAddr,
    /// The number of beacons received.
    pub n_beacons: u64,
    /// How many times the beacon count started again: the server was restarted.
    pub n_restarts: u64,
    beacon: u32,
}

impl SearchMonitor {
    /// Creates a monitor without traffic. `seed` varies the jitter between processes.
    pub fn new(seed: u64) -> SearchMonitor {
        SearchMonitor {
            searcher: Searcher::new(seed),
            names: Vec::new(),
            by_name: HashMap::new(),
            servers: Vec::new(),
            awaited: VecDeque::new(),
            n_searches: 0,
            n_left_out: 0,
            claims: Vec::new(),
        }
    }

    /// All names, in the order in which they were first received.
    pub fn names(&self) -> &[NameTraffic] {
        &self.names
    }

    /// All servers whose beacons were received, in the order of their first beacon.
    pub fn servers(&self) -> &[ServerTraffic] {
        &self.servers
    }

    /// The number of searches received from clients.
    pub fn n_searches(&self) -> u64 {
        self.n_searches
    }

    /// The number of searches not counted for any name, because there were too many names.
    pub fn n_left_out(&self) -> u64 {
        self.n_left_out
    }

    /// Whether replies for a name are still awaited.
    pub fn is_waiting(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Searches for a name as if a client had searched for it.
    pub fn ask(&mut self, name: &str, now: Now) {
        self.entry(name, now);
    }

    /// Processes a datagram sent to all hosts: searches and beacons.
    pub fn handle_broadcast(&mut self, from: SocketAddr, bytes: &[u8], now: Now) {
        let mut sequence_of_datagram = 0;
        each_message(bytes, |header, payload| {
            if let Request::Version { sequence, .. } = Request::from_header(header) {
                sequence_of_datagram = sequence;
            }
            if let Request::Search { .. } = Request::from_header(header)
                && let Some(name) = message::text(payload).and_then(|name| std::str::from_utf8(name).ok())
                && !name.is_empty()
                && name.len() <= limit::NAME_BYTES
            {
                self.searched(from, name, sequence_of_datagram, now);
            }
            self.beacon(from, Answer::from_header(header));
        });
    }

    /// Processes a datagram received on the searching socket: claims, and beacons from the repeater.
    pub fn answered(&mut self, from: SocketAddr, bytes: &[u8], now: Now) {
        each_message(bytes, |header, _| self.beacon(from, Answer::from_header(header)));
        let mut claims = std::mem::take(&mut self.claims);
        self.searcher.handle(from, bytes, now, &mut claims);
        for Claim { cid, server, .. } in claims.drain(..) {
            let Some(name) = self.names.get_mut(cid.0 as usize) else { continue };
            name.state = NameState::Claimed;
            if !name.servers.contains(&server) && name.servers.len() < limit::TRAFFIC_CLIENTS {
                name.servers.push(server);
            }
        }
        self.claims = claims;
    }

    /// Performs actions that are due at `now`; the datagrams in `out` must be sent to the search addresses.
    pub fn tick(&mut self, now: Now, out: &mut Vec<Datagram>) {
        while let Some((_, cid)) = self.awaited.pop_front_if(|(until, _)| *until <= now.monotonic) {
            self.searcher.remove(cid);
            if let Some(name) = self.names.get_mut(cid.0 as usize)
                && name.state == NameState::Awaited
            {
                name.state = NameState::Dead;
            }
        }
        self.searcher.tick(now, out);
    }

    /// The latest time to call [`SearchMonitor::tick`].
    pub fn deadline(&self) -> Option<Instant> {
        let until = self.awaited.front().map(|(until, _)| *until);
        [until, self.searcher.deadline()].into_iter().flatten().min()
    }

    fn searched(&mut self, from: SocketAddr, name: &str, sequence: u32, now: Now) {
        let Some(name) = self.entry(name, now) else {
            self.n_searches += 1;
            self.n_left_out += 1;
            return;
        };
        let received_at = now.monotonic;
        let has_room = name.clients.len() < limit::TRAFFIC_CLIENTS;
        match name.clients.iter_mut().find(|client| client.address == from) {
            // A copy of the same datagram by another route: clients send one to every address of their list.
            Some(client)
                if client.sequence == sequence && received_at < client.received_at + limit::TRAFFIC_DUPLICATE_DELAY =>
            {
                return;
            }
            Some(client) => {
                client.n_searches += 1;
                (client.sequence, client.received_at) = (sequence, received_at);
            }
            None if has_room => {
                name.clients.push(ClientTraffic { address: from, n_searches: 1, sequence, received_at });
            }
            None => {}
        }
        name.n_searches += 1;
        self.n_searches += 1;
    }

    /// The entry of a name; starts a search unless there was one recently. `None` if there are too many names.
    fn entry(&mut self, name: &str, now: Now) -> Option<&mut NameTraffic> {
        let (cid, is_due) = match self.by_name.get(name) {
            Some(&cid) => {
                let known = self.names.get(cid.0 as usize)?;
                (cid, now.monotonic >= known.searched_at + limit::TRAFFIC_SEARCH_AGAIN)
            }
            None if self.names.len() >= limit::TRAFFIC_NAMES => return None,
            None => {
                let cid = Cid(self.names.len() as u32);
                self.by_name.insert(name.to_owned(), cid);
                self.names.push(NameTraffic {
                    name: name.to_owned(),
                    n_searches: 0,
                    clients: Vec::new(),
                    servers: Vec::new(),
                    state: NameState::Awaited,
                    searched_at: now.monotonic,
                });
                (cid, true)
            }
        };
        let known = self.names.get_mut(cid.0 as usize)?;
        if is_due {
            known.searched_at = now.monotonic;
            known.state = NameState::Awaited;
            known.servers.clear();
            self.awaited.push_back((now.monotonic + limit::TRAFFIC_REPLY, cid));
            self.searcher.add(cid, name, now);
        }
        Some(known)
    }

    fn beacon(&mut self, from: SocketAddr, answer: Answer) {
        let Answer::RsrvIsUp { port, beacon, address, .. } = answer else { return };
        // The repeater fills in the sender's address; a beacon directly from a server contains none.
        let ip = explicit_ip(address).unwrap_or(from.ip());
        let address = SocketAddr::new(ip, u16::try_from(port).unwrap_or(0));
        if !is_endpoint(address) {
            return;
        }
        let has_room = self.servers.len() < limit::BEACON_SERVERS;
        match self.servers.iter_mut().find(|server| server.address == address) {
            // A copy by another route.
            Some(server) if server.beacon == beacon => {}
            Some(server) => {
                server.n_beacons += 1;
                server.n_restarts += u64::from(beacon < server.beacon && beacon < limit::BEACONS_OF_START);
                server.beacon = beacon;
            }
            None if has_room => {
                self.servers.push(ServerTraffic { address, n_beacons: 1, n_restarts: 0, beacon });
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Responder;
    use std::time::Duration;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// The search that a separate client sends for a name at this time.
    fn search(name: &str, now: Now) -> Vec<u8> {
        let mut searcher = Searcher::new(1);
        let mut out = Vec::new();
        searcher.add(Cid(7), name, now);
        searcher.tick(now, &mut out);
        out.remove(0).bytes
    }

    /// Lets the monitor search, and servers at these ports reply for the name in `serves`.
    fn answer(traffic: &mut SearchMonitor, ports: &[u16], serves: &str, now: Now) {
        let (mut searches, mut answers) = (Vec::new(), Vec::new());
        traffic.tick(now, &mut searches);
        for datagram in &searches {
            for &port in ports {
                let mut responder = Responder::new(port, now);
                responder.handle(address("10.0.0.9:50000"), &datagram.bytes, &mut |name| name == serves, &mut answers);
            }
        }
        for datagram in answers {
            traffic.answered(address("10.0.0.1:5064"), &datagram.bytes, now);
        }
    }

    #[test]
    fn searches_for_a_name_are_counted_per_client() {
        let start = Now::for_test();
        let mut traffic = SearchMonitor::new(1);

        for (client, after_s) in [("10.0.0.2:4000", 0), ("10.0.0.3:4000", 1), ("10.0.0.2:4000", 2)] {
            let now = start + Duration::from_secs(after_s);
            traffic.handle_broadcast(address(client), &search("x:y", now), now);
        }

        let counts: Vec<u64> = traffic.names()[0].clients.iter().map(|client| client.n_searches).collect();
        assert_eq!((traffic.names()[0].n_searches, counts), (3, vec![2, 1]));
    }

    #[test]
    fn a_datagram_received_by_two_routes_counts_once() {
        let start = Now::for_test();
        let mut traffic = SearchMonitor::new(1);

        traffic.handle_broadcast(address("10.0.0.2:4000"), &search("x:y", start), start);
        traffic.handle_broadcast(address("10.0.0.2:4000"), &search("x:y", start), start + Duration::from_millis(1));

        assert_eq!(traffic.n_searches(), 1);
    }

    #[test]
    fn a_name_without_reply_is_marked_dead_after_a_few_searches() {
        let start = Now::for_test();
        let mut traffic = SearchMonitor::new(1);
        let mut out = Vec::new();

        traffic.handle_broadcast(address("10.0.0.2:4000"), &search("no:such", start), start);
        for step in 0..600 {
            traffic.tick(start + Duration::from_millis(100 * step), &mut out);
        }

        assert_eq!(traffic.names()[0].state, NameState::Dead);
        assert!((2..10).contains(&out.len()), "{} datagrams", out.len());
        assert_eq!((traffic.is_waiting(), traffic.deadline()), (false, None));
    }

    #[test]
    fn every_server_that_claims_a_name_is_listed_once() {
        let start = Now::for_test();
        let mut traffic = SearchMonitor::new(1);

        traffic.ask("x:y", start);
        answer(&mut traffic, &[5064, 6064, 5064], "x:y", start);

        assert_eq!(traffic.names()[0].state, NameState::Claimed);
        assert_eq!(traffic.names()[0].servers, ["10.0.0.1:5064", "10.0.0.1:6064"].map(address));
    }

    #[test]
    fn a_dead_name_becomes_claimed_after_a_new_search_and_reply() {
        let start = Now::for_test();
        let mut traffic = SearchMonitor::new(1);
        traffic.ask("x:y", start);
        answer(&mut traffic, &[], "", start);
        traffic.tick(start + limit::TRAFFIC_REPLY, &mut Vec::new());
        let later = start + limit::TRAFFIC_SEARCH_AGAIN;
        assert_eq!(traffic.names()[0].state, NameState::Dead);

        traffic.handle_broadcast(address("10.0.0.2:4000"), &search("x:y", later), later);
        answer(&mut traffic, &[5064], "x:y", later);

        assert_eq!(traffic.names()[0].state, NameState::Claimed);
    }

    #[test]
    fn beacons_and_restarts_are_counted_per_server() {
        let start = Now::for_test();
        let mut traffic = SearchMonitor::new(1);

        for beacon in [40, 41, 41, 0] {
            let mut bytes = Vec::new();
            Answer::RsrvIsUp { minor: 13, port: 5064, beacon, address: 0 }.encode(&mut bytes);
            traffic.handle_broadcast(address("10.0.0.1:33000"), &bytes, start);
        }

        let server = &traffic.servers()[0];
        assert_eq!((server.address, server.n_beacons, server.n_restarts), (address("10.0.0.1:5064"), 3, 1));
    }

    #[test]
    fn names_beyond_the_table_limit_are_counted_as_left_out() {
        let start = Now::for_test();
        let mut traffic = SearchMonitor::new(1);

        for number in 0..=limit::TRAFFIC_NAMES {
            traffic.handle_broadcast(address("10.0.0.2:4000"), &search(&format!("x:{number}"), start), start);
        }

        assert_eq!((traffic.names().len(), traffic.n_left_out()), (limit::TRAFFIC_NAMES, 1));
    }

    #[test]
    fn the_traffic_monitor_ignores_names_longer_than_the_limit() {
        let start = Now::for_test();
        let mut traffic = SearchMonitor::new(1);

        for length in [1, limit::NAME_BYTES, limit::NAME_BYTES + 1] {
            traffic.handle_broadcast(address("10.0.0.2:4000"), &search(&"x".repeat(length), start), start);
        }

        assert_eq!(traffic.names().iter().map(|name| name.name.len()).collect::<Vec<_>>(), [1, limit::NAME_BYTES]);
        assert_eq!((traffic.n_searches(), traffic.n_left_out()), (2, 0));
    }

    #[test]
    fn an_identical_datagram_counts_again_after_the_duplicate_delay() {
        let start = Now::for_test();
        for (later, n_searches) in [(limit::TRAFFIC_DUPLICATE_DELAY / 2, 1), (limit::TRAFFIC_DUPLICATE_DELAY, 2)] {
            let mut traffic = SearchMonitor::new(1);

            traffic.handle_broadcast(address("10.0.0.2:4000"), &search("x:y", start), start);
            traffic.handle_broadcast(address("10.0.0.2:4000"), &search("x:y", start), start + later);

            assert_eq!(traffic.n_searches(), n_searches, "{later:?} later");
        }
    }

    #[test]
    fn two_datagrams_with_different_sequence_numbers_count_as_two_searches() {
        let start = Now::for_test();
        let mut traffic = SearchMonitor::new(1);
        let mut second = search("x:y", start);
        crate::search::renumber(&mut second, 2);

        traffic.handle_broadcast(address("10.0.0.2:4000"), &search("x:y", start), start);
        traffic.handle_broadcast(address("10.0.0.2:4000"), &second, start);

        assert_eq!(traffic.names()[0].clients[0].n_searches, 2);
    }

    #[test]
    fn searches_of_clients_beyond_the_64_listed_are_still_counted() {
        let start = Now::for_test();
        let mut traffic = SearchMonitor::new(1);

        for port in 0..100 {
            traffic.handle_broadcast(address(&format!("10.0.0.2:{}", 4000 + port)), &search("x:y", start), start);
        }

        assert_eq!((traffic.names()[0].clients.len(), traffic.names()[0].n_searches), (limit::TRAFFIC_CLIENTS, 100));
    }

    #[test]
    fn server_lists_of_the_traffic_monitor_stay_within_their_limits() {
        let start = Now::for_test();
        let mut traffic = SearchMonitor::new(1);
        let ports: Vec<u16> = (5000..5100).collect();

        traffic.ask("x:y", start);
        answer(&mut traffic, &ports, "x:y", start);
        for number in 0..=limit::BEACON_SERVERS as u32 {
            let mut bytes = Vec::new();
            Answer::RsrvIsUp { minor: 13, port: 5064, beacon: 0, address: 0x0a00_0001 + number }.encode(&mut bytes);
            traffic.handle_broadcast(address("10.0.0.1:33000"), &bytes, start);
        }

        assert_eq!(traffic.names()[0].servers.len(), limit::TRAFFIC_CLIENTS);
        assert_eq!(traffic.servers().len(), limit::BEACON_SERVERS);
    }

    #[test]
    fn a_client_search_repeats_the_monitors_search_after_a_minute_at_the_earliest() {
        let start = Now::for_test();
        let mut traffic = SearchMonitor::new(1);
        traffic.ask("x:y", start);
        answer(&mut traffic, &[5064], "x:y", start);
        traffic.tick(start + limit::TRAFFIC_REPLY, &mut Vec::new());
        let before = start + (limit::TRAFFIC_SEARCH_AGAIN - Duration::from_millis(1));
        let then = start + limit::TRAFFIC_SEARCH_AGAIN;

        traffic.handle_broadcast(address("10.0.0.2:4000"), &search("x:y", before), before);
        assert_eq!((traffic.is_waiting(), traffic.names()[0].state), (false, NameState::Claimed));
        traffic.handle_broadcast(address("10.0.0.2:4000"), &search("x:y", then), then);

        assert_eq!((traffic.is_waiting(), traffic.names()[0].state), (true, NameState::Awaited));
        assert_eq!(traffic.names()[0].servers, []);
        assert_eq!(traffic.deadline(), Some(then.monotonic));
        traffic.tick(then, &mut Vec::new());
        let (last, last_before) = (then + limit::TRAFFIC_REPLY, then + limit::TRAFFIC_REPLY.mul_f64(0.99));
        traffic.tick(last_before, &mut Vec::new());
        assert!(traffic.deadline() <= Some(last.monotonic) && traffic.is_waiting());
        traffic.tick(last, &mut Vec::new());
        assert!(!traffic.is_waiting());
    }

    #[test]
    fn a_low_beacon_number_after_a_high_one_counts_as_a_restart() {
        let start = Now::for_test();
        let last_of_start = limit::BEACONS_OF_START - 1;
        for (beacons, n_restarts) in [
            (vec![40, 39], 0),
            (vec![40, last_of_start], 1),
            (vec![40, limit::BEACONS_OF_START], 0),
            (vec![3, 5], 0),
            (vec![40, 0, 1, 2, 0], 2),
        ] {
            let mut traffic = SearchMonitor::new(1);

            for &beacon in &beacons {
                let mut bytes = Vec::new();
                Answer::RsrvIsUp { minor: 13, port: 5064, beacon, address: 0x0a00_0007 }.encode(&mut bytes);
                traffic.answered(address("127.0.0.1:5065"), &bytes, start);
            }

            assert_eq!(traffic.servers()[0].n_restarts, n_restarts, "{beacons:?}");
            assert_eq!(traffic.servers()[0].address, address("10.0.0.7:5064"));
        }
    }

    #[test]
    fn a_beacon_with_an_invalid_port_lists_no_server() {
        let mut traffic = SearchMonitor::new(1);
        for port in [0, 0x1_0000] {
            let mut bytes = Vec::new();
            Answer::RsrvIsUp { minor: 13, port, beacon: 1, address: 0 }.encode(&mut bytes);
            traffic.handle_broadcast(address("10.0.0.1:33000"), &bytes, Now::for_test());
        }
        assert_eq!(traffic.servers(), []);
    }
}
