//! Receiving beacons: the client registers with the host's repeater, or becomes the repeater.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use fodo_ca::beacon::{Anomaly, BeaconMonitor};
use fodo_ca::repeater;
use fodo_data::Now;

use crate::limit;
use crate::reactor::Reactor;
use crate::repeater::Repeater;

/// Receives beacons on the search socket.
#[derive(Debug)]
pub(crate) struct BeaconListener {
    port: u16,
    beacons: BeaconMonitor,
    registration: RepeaterRegistration,
    /// Present if this process is the repeater.
    repeater: Option<Repeater>,
}

/// The registration with the repeater; the comment of each state says what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepeaterRegistration {
    /// For the confirmation, until `until`.
    Pending { n_times: u32, until: Instant },
    /// For the time to register again: the repeater may be another process by then.
    Confirmed { until: Instant },
}

impl BeaconListener {
    /// For beacons from the repeater at this port. It registers with the first tick.
    pub(crate) fn new(port: u16, now: Now) -> BeaconListener {
        let registration = RepeaterRegistration::Pending { n_times: 0, until: now.monotonic };
        BeaconListener { port, beacons: BeaconMonitor::new(now), registration, repeater: None }
    }

    /// Handles a datagram.
    pub(crate) fn handle(&mut self, from: SocketAddr, bytes: &[u8], now: Now, anomalies: &mut Vec<Anomaly>) {
        if from.ip().is_loopback() && from.port() == self.port && repeater::is_confirmation(bytes) {
            self.registration = RepeaterRegistration::Confirmed { until: now.monotonic + limit::REGISTRATION_AGAIN };
        }
        self.beacons.handle(from, bytes, now, anomalies);
    }

    /// Registers with the repeater if it is due.
    pub(crate) fn tick(&mut self, socket: &UdpSocket, reactor: &Reactor, now: Now) {
        if self.deadline() > now.monotonic {
            return;
        }
        let (pause, n_patient) = limit::REGISTRATION;
        let n_times = match self.registration {
            RepeaterRegistration::Pending { n_times, .. } => n_times,
            RepeaterRegistration::Confirmed { .. } => 0,
        };
        if n_times >= n_patient && self.repeater.is_none() {
            // Another process may have become the repeater first; then that one confirms soon.
            self.repeater = Repeater::start_on(reactor, self.port).ok();
        }
        // A failure is like a lost datagram: the registration is sent again.
        let _ = socket.send_to(&repeater::registration(), (Ipv4Addr::LOCALHOST, self.port));
        let pause = (pause * (1 << n_times.min(8))).min(limit::REGISTRATION_AGAIN);
        self.registration = RepeaterRegistration::Pending { n_times: n_times + 1, until: now.monotonic + pause };
    }

    /// When to call [`BeaconListener::tick`] at the latest.
    pub(crate) fn deadline(&self) -> Instant {
        match self.registration {
            RepeaterRegistration::Pending { until, .. } | RepeaterRegistration::Confirmed { until } => until,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    const CONFIRMATION: [u8; 16] = [0, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 127, 0, 0, 1];

    fn socket() -> UdpSocket {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
    }

    #[test]
    fn a_client_registers_ever_less_often_until_the_repeater_confirms() {
        let (repeater, socket, reactor) = (socket(), socket(), Reactor::start("unused").unwrap());
        let port = repeater.local_addr().unwrap().port();
        let mut now = clock::now();
        let mut listener = BeaconListener::new(port, now);

        let mut pauses = Vec::new();
        for _ in 0..12 {
            listener.tick(&socket, &reactor, now);
            let pause = listener.deadline() - now.monotonic;
            // Too early.
            listener.tick(&socket, &reactor, now + pause / 2);
            pauses.push(pause);
            now = now + pause;
        }
        for from in [(Ipv4Addr::LOCALHOST, port ^ 1), (Ipv4Addr::new(192, 0, 2, 1), port)] {
            listener.handle(SocketAddr::from(from), &CONFIRMATION, now, &mut Vec::new());
        }
        let unconfirmed = listener.deadline();
        listener.handle(repeater.local_addr().unwrap(), &CONFIRMATION, now, &mut Vec::new());
        let confirmed = listener.deadline();
        let later = now + limit::REGISTRATION_AGAIN;
        listener.tick(&socket, &reactor, later);

        let (first, _) = limit::REGISTRATION;
        assert_eq!(pauses[..8], [1, 2, 4, 8, 16, 32, 64, 128].map(|n| first * n));
        assert_eq!(pauses[8..], [first * 256; 4]);
        assert_eq!((unconfirmed, confirmed), (now.monotonic, later.monotonic));
        assert_eq!(listener.deadline(), later.monotonic + first, "another repeater may run by then");
        repeater.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (0..13).for_each(|_| assert_eq!(repeater.recv(&mut [0; 64]).unwrap(), repeater::registration().len()));
        repeater.set_nonblocking(true).unwrap();
        assert!(repeater.recv(&mut [0; 64]).is_err(), "one registration for each pause");
    }

    #[test]
    fn a_client_becomes_the_repeater_when_none_has_confirmed_several_registrations() {
        let (socket, free, reactor) = (socket(), socket(), Reactor::start("repeater").unwrap());
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut now = clock::now();
        let mut listener = BeaconListener::new(port, now);

        let (_, n_patient) = limit::REGISTRATION;
        for n_times in 0..n_patient + 2 {
            listener.tick(&socket, &reactor, now);
            now = now + (listener.deadline() - now.monotonic);
            assert_eq!(listener.repeater.is_some(), n_times >= n_patient, "after {n_times} registrations");
        }
    }
}
