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
pub(super) struct BeaconListener {
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
    pub(super) fn new(port: u16, now: Now) -> BeaconListener {
        let registration = RepeaterRegistration::Pending { n_times: 0, until: now.monotonic };
        BeaconListener { port, beacons: BeaconMonitor::new(now), registration, repeater: None }
    }

    /// Handles a datagram.
    pub(super) fn handle(&mut self, from: SocketAddr, bytes: &[u8], now: Now, anomalies: &mut Vec<Anomaly>) {
        if from.ip().is_loopback() && from.port() == self.port && repeater::is_confirmation(bytes) {
            self.registration = RepeaterRegistration::Confirmed { until: now.monotonic + limit::REGISTRATION_AGAIN };
        }
        self.beacons.handle(from, bytes, now, anomalies);
    }

    /// Registers with the repeater if it is due.
    pub(super) fn tick(&mut self, socket: &UdpSocket, reactor: &Reactor, now: Now) {
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
    pub(super) fn deadline(&self) -> Instant {
        match self.registration {
            RepeaterRegistration::Pending { until, .. } | RepeaterRegistration::Confirmed { until } => until,
        }
    }
}
