//! The client's view of beacons: detects servers that have started or reappeared.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use fodo_data::Now;
pub use fodo_engine::search::Anomaly;
use fodo_engine::search::is_endpoint;

use crate::beacon::Beacon;
use crate::cursor::ByteReader;
use crate::frame::{self, Header, Sender};
use crate::guid::Guid;
use crate::message::Answer;
use crate::{limit, search};

/// The servers whose beacons were received.
///
/// A server has a new identity after each start, so another identity at the same address means that the server has
/// restarted. A server with several addresses has one entry for each.
#[derive(Debug)]
pub struct BeaconMonitor {
    servers: HashMap<SocketAddr, BeaconSource>,
    /// In the order in which they were first received; when the table is full, the first is removed.
    order: VecDeque<SocketAddr>,
    since: Instant,
}

#[derive(Debug)]
struct BeaconSource {
    guid: Guid,
    received_at: Instant,
}

impl BeaconMonitor {
    /// Creates a table without servers.
    pub fn new(now: Now) -> BeaconMonitor {
        BeaconMonitor { servers: HashMap::new(), order: VecDeque::new(), since: now.monotonic }
    }

    /// The number of known addresses.
    pub fn n_servers(&self) -> usize {
        self.servers.len()
    }

    /// Processes a datagram; messages other than beacons for TCP or TLS are ignored.
    pub fn handle(&mut self, from: SocketAddr, bytes: &[u8], now: Now, anomalies: &mut Vec<Anomaly>) {
        for (header, payload) in frame::datagram(bytes).map_while(Result::ok) {
            let Some(beacon) = beacon(&header, payload) else { continue };
            let server = beacon.server(from);
            if is_endpoint(server) {
                anomalies.extend(self.record(server, &beacon, now.monotonic));
            }
        }
    }

    fn record(&mut self, address: SocketAddr, beacon: &Beacon, now: Instant) -> Option<Anomaly> {
        let received = BeaconSource { guid: beacon.guid, received_at: now };
        if let Some(known) = self.servers.get_mut(&address) {
            let before = std::mem::replace(known, received);
            return match now.saturating_duration_since(before.received_at) {
                _ if before.guid != beacon.guid => Some(Anomaly::Started(address)),
                silence if silence >= limit::BEACON_SILENCE => Some(Anomaly::Appeared(address)),
                _ => None,
            };
        }
        if self.order.len() >= limit::BEACON_SERVERS
            && let Some(first) = self.order.pop_front()
        {
            self.servers.remove(&first);
        }
        self.order.push_back(address);
        self.servers.insert(address, received);
        match beacon.sequence {
            0..limit::BEACONS_OF_START => Some(Anomaly::Started(address)),
            // A server that was running before this client started is not an anomaly.
            _ if now < self.since + limit::BEACON_SILENCE => None,
            _ => Some(Anomaly::Appeared(address)),
        }
    }
}

/// The beacon in a message. Other messages are ignored without being decoded: searches arrive at the same port.
fn beacon(header: &Header, payload: &[u8]) -> Option<Beacon> {
    if header.is_control || header.from != Sender::Server || header.command != (Answer::Beacon {}).command() {
        return None;
    }
    let mut reader = ByteReader::new(payload, header.order);
    let beacon = Beacon::decode(&mut reader);
    (!reader.has_failed() && search::transport(&beacon.protocol).is_some()).then_some(beacon)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use std::time::Duration;

    use super::*;
    use crate::cursor::ByteOrder;

    fn server(index: u32) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + index)), 5075)
    }

    /// A beacon with an unspecified address, as pvxs sends it.
    fn beacon(guid: u32, sequence: u8) -> Beacon {
        Beacon {
            guid: Guid::from_bits(0, guid),
            flags: 0,
            sequence,
            change_count: 0,
            address: Ipv6Addr::UNSPECIFIED,
            port: 5075,
            protocol: search::TCP.into(),
            status: None,
        }
    }

    fn encoded(beacon: &Beacon, order: ByteOrder) -> Vec<u8> {
        let mut bytes = Vec::new();
        (Answer::Beacon {}).encode(order, &mut bytes, |to| beacon.encode(to));
        bytes
    }

    struct BeaconRecorder {
        beacons: BeaconMonitor,
        start: Now,
    }

    impl BeaconRecorder {
        fn new() -> BeaconRecorder {
            let start = Now::for_test();
            BeaconRecorder { beacons: BeaconMonitor::new(start), start }
        }

        fn bytes_at(&mut self, seconds: f64, from: SocketAddr, bytes: &[u8]) -> Vec<Anomaly> {
            let mut anomalies = Vec::new();
            self.beacons.handle(from, bytes, self.start + Duration::from_secs_f64(seconds), &mut anomalies);
            anomalies
        }

        fn at(&mut self, seconds: f64, from: SocketAddr, beacon: &Beacon) -> Vec<Anomaly> {
            self.bytes_at(seconds, from, &encoded(beacon, ByteOrder::Big))
        }
    }

    #[test]
    fn a_starting_server_is_reported_once_and_a_running_one_is_not() {
        let mut recorder = BeaconRecorder::new();

        assert_eq!(recorder.at(3.0, server(1), &beacon(1, 100)), []);
        assert_eq!(recorder.at(3.0, server(2), &beacon(2, 0)), [Anomaly::Started(server(2))]);
        assert_eq!(recorder.at(18.0, server(2), &beacon(2, 1)), []);
        assert_eq!(recorder.at(183.0, server(1), &beacon(1, 101)), []);
        assert_eq!(recorder.at(359.9, server(3), &beacon(3, 77)), []);
        assert_eq!(recorder.at(360.0, server(4), &beacon(4, 77)), [Anomaly::Appeared(server(4))], "by a new route");
        assert_eq!(recorder.at(361.0, server(5), &beacon(5, 7)), [Anomaly::Started(server(5))]);
        assert_eq!(recorder.at(361.0, server(6), &beacon(6, 8)), [Anomaly::Appeared(server(6))]);
    }

    #[test]
    fn another_identity_at_the_same_address_is_a_restart() {
        let mut recorder = BeaconRecorder::new();
        recorder.at(1.0, server(1), &beacon(1, 100));

        assert_eq!(recorder.at(2.0, server(1), &beacon(2, 200)), [Anomaly::Started(server(1))]);
        assert_eq!(recorder.at(17.0, server(1), &beacon(2, 201)), []);
    }

    #[test]
    fn a_changed_address_of_a_server_is_reported_once() {
        let mut recorder = BeaconRecorder::new();
        recorder.at(1.0, server(1), &beacon(1, 100));

        assert_eq!(recorder.at(500.0, server(2), &beacon(1, 120)), [Anomaly::Appeared(server(2))]);
        assert_eq!(recorder.at(501.0, server(1), &beacon(1, 120)), [Anomaly::Appeared(server(1))], "after a silence");
        for second in 502..510 {
            assert_eq!(recorder.at(f64::from(second), server(1), &beacon(1, 121)), [], "a server with two addresses");
            assert_eq!(recorder.at(f64::from(second), server(2), &beacon(1, 121)), []);
        }
    }

    #[test]
    fn a_server_is_reported_again_after_two_of_the_longest_periods_of_silence() {
        let after_silence = |seconds: f64| {
            let mut recorder = BeaconRecorder::new();
            recorder.at(0.0, server(1), &beacon(1, 100));
            recorder.at(seconds, server(1), &beacon(1, 101))
        };

        assert_eq!(after_silence(359.0), []);
        assert_eq!(after_silence(360.0), [Anomaly::Appeared(server(1))]);
    }

    #[test]
    fn the_address_in_a_beacon_is_the_address_of_the_server() {
        let mut recorder = BeaconRecorder::new();
        let elsewhere = Beacon { address: Ipv4Addr::new(10, 0, 0, 9).to_ipv6_mapped(), port: 6075, ..beacon(1, 0) };

        let bytes = encoded(&elsewhere, ByteOrder::Little);

        assert_eq!(recorder.bytes_at(1.0, server(1), &bytes), [Anomaly::Started("10.0.0.9:6075".parse().unwrap())]);
    }

    #[test]
    fn beacons_without_a_valid_address_or_for_another_transport_are_ignored() {
        let mut recorder = BeaconRecorder::new();
        let group = Ipv4Addr::new(224, 0, 0, 1).to_ipv6_mapped();
        let mut from_client = encoded(&beacon(1, 0), ByteOrder::Big);
        from_client[2] &= !0x40;

        assert_eq!(recorder.at(1.0, server(1), &Beacon { port: 0, ..beacon(1, 0) }), []);
        assert_eq!(recorder.at(1.0, server(1), &Beacon { address: group, ..beacon(1, 0) }), []);
        assert_eq!(recorder.at(1.0, server(1), &Beacon { protocol: "udp".into(), ..beacon(1, 0) }), []);
        assert_eq!(recorder.bytes_at(1.0, server(1), &from_client), []);
        let whole = encoded(&beacon(1, 0), ByteOrder::Big);
        for n_bytes in 0..whole.len() {
            assert_eq!(recorder.bytes_at(1.0, server(1), &whole[..n_bytes]), [], "{n_bytes}");
        }
        assert_eq!(recorder.beacons.n_servers(), 0);
    }

    // Row 33 of docs/reference/faults.md.
    #[test]
    fn counters_that_jump_are_no_anomaly_and_identities_that_change_take_one_entry() {
        let mut recorder = BeaconRecorder::new();
        recorder.at(1.0, server(1), &beacon(0, 100));

        for number in 0..1000_u16 {
            let jumping = Beacon { change_count: number.wrapping_mul(77), ..beacon(0, number as u8) };
            assert_eq!(recorder.at(2.0, server(1), &jumping), [], "{number}");
        }
        for guid in 1..1000 {
            assert_eq!(recorder.at(3.0, server(1), &beacon(guid, 100)), [Anomaly::Started(server(1))]);
        }

        assert_eq!((recorder.beacons.n_servers(), recorder.beacons.order.len()), (1, 1));
    }

    #[test]
    fn beacons_of_40000_servers_stay_within_the_table_limit() {
        let mut recorder = BeaconRecorder::new();

        for index in 0..40_000 {
            recorder.at(f64::from(index) / 1000.0, server(index), &beacon(index, 3));
        }

        assert_eq!(recorder.beacons.n_servers(), limit::BEACON_SERVERS);
        assert_eq!(recorder.beacons.order.len(), limit::BEACON_SERVERS);
    }
}
