//! The client's view of beacons: detects servers that have started or reappeared.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fodo_data::Now;
pub use fodo_engine::search::Anomaly;
use fodo_engine::search::is_endpoint;

use crate::limit;
use crate::message::Answer;
use crate::search::{each_message, explicit_ip};

/// The servers whose beacons were received.
///
/// A running server counts its beacons, so a server whose count starts again has restarted. libca ignores the count and
/// requires the period to change by a fifth. Beacons arrive by several routes: one with the same number, or a number
/// just before, is a copy.
#[derive(Debug)]
pub struct BeaconMonitor {
    servers: HashMap<SocketAddr, BeaconSource>,
    /// In the order in which they were first received; when the table is full, the first is removed.
    order: VecDeque<SocketAddr>,
    since: Instant,
}

#[derive(Debug)]
struct BeaconSource {
    number: u32,
    received_at: Instant,
    period: Option<Duration>,
}

/// The first minor version whose beacons are numbered.
const MINOR_COUNTED: u16 = 10;

impl BeaconMonitor {
    /// Creates a table without servers.
    pub fn new(now: Now) -> BeaconMonitor {
        BeaconMonitor { servers: HashMap::new(), order: VecDeque::new(), since: now.monotonic }
    }

    /// The number of known servers.
    pub fn n_servers(&self) -> usize {
        self.servers.len()
    }

    /// Processes a datagram; messages other than beacons are ignored.
    pub fn handle(&mut self, from: SocketAddr, bytes: &[u8], now: Now, anomalies: &mut Vec<Anomaly>) {
        each_message(bytes, |header, _| {
            let Answer::RsrvIsUp { minor, port, beacon, address } = Answer::from_header(header) else { return };
            // The repeater fills in the sender's address; a beacon directly from a server contains none.
            let ip = explicit_ip(address).unwrap_or(from.ip());
            let server = SocketAddr::new(ip, u16::try_from(port).unwrap_or(0));
            if is_endpoint(server) {
                let number = (minor >= MINOR_COUNTED).then_some(beacon);
                anomalies.extend(self.record(server, number, now.monotonic));
            }
        });
    }

    fn record(&mut self, address: SocketAddr, number: Option<u32>, now: Instant) -> Option<Anomaly> {
        let Some(server) = self.servers.get_mut(&address) else {
            self.enter(address, number.unwrap_or(0), now);
            return match number {
                Some(number) if number < limit::BEACONS_OF_START => Some(Anomaly::Started(address)),
                // A server that was running before this client started is not an anomaly.
                _ if now < self.since + limit::BEACON_SILENCE => None,
                _ => Some(Anomaly::Appeared(address)),
            };
        };
        let silence = now.saturating_duration_since(server.received_at);
        match number {
            Some(number) if number.wrapping_sub(server.number) as i32 > 0 => server.counted(address, number, now),
            // A copy of the same beacon by another route, or one overtaken by a later one.
            Some(_) if silence < limit::BEACON_DUPLICATE_DELAY => None,
            Some(number) => {
                *server = BeaconSource { number, received_at: now, period: None };
                Some(Anomaly::Started(address))
            }
            None if silence < limit::BEACON_DUPLICATE_DELAY => None,
            None => {
                let is_sooner = server.period.is_some_and(|period| silence.mul_f64(1.25) < period);
                let anomaly = server.counted(address, server.number.wrapping_add(1), now);
                if is_sooner { Some(Anomaly::Started(address)) } else { anomaly }
            }
        }
    }

    fn enter(&mut self, address: SocketAddr, number: u32, now: Instant) {
        if self.order.len() >= limit::BEACON_SERVERS
            && let Some(first) = self.order.pop_front()
        {
            self.servers.remove(&first);
        }
        self.order.push_back(address);
        self.servers.insert(address, BeaconSource { number, received_at: now, period: None });
    }
}

impl BeaconSource {
    /// Records a later beacon; reports an anomaly if it follows a silence of several periods.
    fn counted(&mut self, address: SocketAddr, number: u32, now: Instant) -> Option<Anomaly> {
        let silence = now.saturating_duration_since(self.received_at);
        // libca's factor. After a start, periods double, which is below this factor.
        let was_away =
            self.period.is_some_and(|period| silence >= period.mul_f64(3.25) && silence >= limit::BEACON_SILENCE);
        let n_periods = number.wrapping_sub(self.number).max(1);
        *self = BeaconSource {
            number,
            received_at: now,
            period: Some(if was_away { limit::BEACON_PERIODS.1 } else { silence / n_periods }),
        };
        was_away.then_some(Anomaly::Appeared(address))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const REPEATER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5065);

    fn server(index: u32) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + index)), 5064)
    }

    /// A beacon as forwarded by the repeater.
    fn beacon(server: SocketAddr, minor: u16, number: u32) -> Vec<u8> {
        let IpAddr::V4(ip) = server.ip() else { unreachable!("only IPv4 addresses are used here") };
        let mut bytes = Vec::new();
        Answer::RsrvIsUp { minor, port: u32::from(server.port()), beacon: number, address: ip.to_bits() }
            .encode(&mut bytes);
        bytes
    }

    struct BeaconRecorder {
        beacons: BeaconMonitor,
        start: Now,
        now: Now,
    }

    impl BeaconRecorder {
        fn new() -> BeaconRecorder {
            let now = Now::for_test();
            BeaconRecorder { beacons: BeaconMonitor::new(now), start: now, now }
        }

        fn at(&mut self, seconds: f64, bytes: &[u8]) -> Vec<Anomaly> {
            self.now = self.start + Duration::from_secs_f64(seconds);
            let mut anomalies = Vec::new();
            self.beacons.handle(REPEATER, bytes, self.now, &mut anomalies);
            anomalies
        }
    }

    #[test]
    fn beacons_report_new_servers_but_not_those_already_running() {
        let mut recorder = BeaconRecorder::new();

        assert_eq!(recorder.at(3.0, &beacon(server(1), 13, 500)), []);
        assert_eq!(recorder.at(3.0, &beacon(server(2), 13, 0)), [Anomaly::Started(server(2))]);
        assert_eq!(recorder.at(3.02, &beacon(server(2), 13, 1)), []);
        assert_eq!(recorder.at(3.06, &beacon(server(2), 13, 2)), [], "the periods double");
        assert_eq!(recorder.at(18.0, &beacon(server(1), 13, 501)), []);
        assert_eq!(recorder.at(29.9, &beacon(server(3), 13, 77)), []);
        assert_eq!(recorder.at(30.0, &beacon(server(4), 13, 77)), [Anomaly::Appeared(server(4))], "by a new route");
    }

    #[test]
    fn only_a_low_beacon_number_reports_the_start_of_a_new_server() {
        let mut recorder = BeaconRecorder::new();
        let last_of_start = limit::BEACONS_OF_START - 1;

        assert_eq!(recorder.at(1.0, &beacon(server(1), 13, last_of_start)), [Anomaly::Started(server(1))]);
        assert_eq!(recorder.at(1.0, &beacon(server(2), 13, last_of_start + 1)), []);
    }

    #[test]
    fn a_beacon_counter_that_restarts_reports_a_server_restart() {
        let mut recorder = BeaconRecorder::new();
        recorder.at(1.0, &beacon(server(1), 13, 500));
        recorder.at(16.0, &beacon(server(1), 13, 501));

        assert_eq!(recorder.at(17.0, &beacon(server(1), 13, 0)), [Anomaly::Started(server(1))]);
        assert_eq!(recorder.at(17.02, &beacon(server(1), 13, 1)), []);
    }

    #[test]
    fn duplicate_and_late_beacons_report_nothing() {
        let mut recorder = BeaconRecorder::new();
        recorder.at(1.0, &beacon(server(1), 13, 500));
        recorder.at(16.0, &beacon(server(1), 13, 501));

        assert_eq!(recorder.at(16.001, &beacon(server(1), 13, 501)), []);
        assert_eq!(recorder.at(16.099, &beacon(server(1), 13, 500)), []);
        assert_eq!(recorder.at(16.1, &beacon(server(1), 13, 500)), [Anomaly::Started(server(1))]);
    }

    #[test]
    fn beacons_are_numbered_from_minor_version_10_on() {
        for (minor, anomalies) in [(9, vec![]), (10, vec![Anomaly::Started(server(1))])] {
            let mut recorder = BeaconRecorder::new();
            recorder.at(0.0, &beacon(server(1), minor, 500));
            recorder.at(15.0, &beacon(server(1), minor, 501));

            assert_eq!(recorder.at(30.0, &beacon(server(1), minor, 0)), anomalies, "minor version {minor}");
        }
    }

    #[test]
    fn a_server_is_reported_again_after_a_long_silence() {
        let mut recorder = BeaconRecorder::new();
        recorder.at(0.0, &beacon(server(1), 13, 500));
        recorder.at(15.0, &beacon(server(1), 13, 501));

        assert_eq!(recorder.at(60.0, &beacon(server(1), 13, 504)), [], "two beacons are lost");
        assert_eq!(recorder.at(600.0, &beacon(server(1), 13, 540)), [Anomaly::Appeared(server(1))]);
        assert_eq!(recorder.at(615.0, &beacon(server(1), 13, 541)), []);
    }

    #[test]
    fn lost_beacons_do_not_lengthen_the_period_of_a_server() {
        let after_silence = |seconds: f64| {
            let mut recorder = BeaconRecorder::new();
            recorder.at(0.0, &beacon(server(1), 13, 500));
            recorder.at(45.0, &beacon(server(1), 13, 503));
            recorder.at(45.0 + seconds, &beacon(server(1), 13, 504))
        };

        assert_eq!(after_silence(48.0), [], "a little less than 3.25 periods of 15 s");
        assert_eq!(after_silence(50.0), [Anomaly::Appeared(server(1))]);
    }

    #[test]
    fn an_early_beacon_of_a_server_without_beacon_numbers_reports_a_restart() {
        let mut recorder = BeaconRecorder::new();
        for step in 0..4 {
            assert_eq!(recorder.at(f64::from(step) * 15.0, &beacon(server(1), 9, 0)), []);
        }

        assert_eq!(recorder.at(45.099, &beacon(server(1), 9, 0)), [], "a copy by another route");
        assert_eq!(recorder.at(45.1, &beacon(server(1), 9, 0)), [Anomaly::Started(server(1))]);
    }

    // Row 9 of docs/reference/faults.md.
    #[test]
    fn beacons_of_20000_servers_stay_within_the_table_limit() {
        let mut recorder = BeaconRecorder::new();

        for index in 0..20_000 {
            recorder.at(f64::from(index) / 1000.0, &beacon(server(index), 13, 3));
        }

        assert_eq!(recorder.beacons.n_servers(), limit::BEACON_SERVERS);
        assert_eq!(recorder.beacons.order.len(), limit::BEACON_SERVERS);
    }

    #[test]
    fn beacons_without_a_valid_server_address_are_ignored() {
        let mut recorder = BeaconRecorder::new();
        let nowhere = SocketAddr::new(server(1).ip(), 0);
        let everywhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)), 5064);

        assert_eq!(recorder.at(1.0, &beacon(nowhere, 13, 0)), []);
        assert_eq!(recorder.at(1.0, &beacon(everywhere, 13, 0)), []);
        assert_eq!(recorder.at(1.0, &beacon(server(1), 13, 0)[..15]), []);
        assert_eq!(recorder.beacons.n_servers(), 0);
    }
}
