//! Hearing beacons: the client registers with the host's repeater, or becomes it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use fodo_ca::beacon::{Anomaly, Beacons};
use fodo_ca::repeater;
use fodo_data::Now;

use super::reactor::Reactor;
use crate::limit;
use crate::repeater::Repeater;

/// What hears beacons at a searching socket.
#[derive(Debug)]
pub(super) struct Ear {
    port: u16,
    beacons: Beacons,
    registration: Registration,
    /// When this process is the repeater.
    repeater: Option<Repeater>,
}

/// Whether the repeater knows us; the comment says what is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registration {
    /// Its confirmation, until that moment.
    Asked { n_times: u32, until: Instant },
    /// The moment to register again, as the repeater may be another by then.
    Confirmed { until: Instant },
}

impl Ear {
    /// For beacons from the repeater at this port. It registers with the first tick.
    pub(super) fn new(port: u16, now: Now) -> Ear {
        let registration = Registration::Asked { n_times: 0, until: now.monotonic };
        Ear { port, beacons: Beacons::new(now), registration, repeater: None }
    }

    /// Takes a datagram in.
    pub(super) fn handle(&mut self, from: SocketAddr, bytes: &[u8], now: Now, anomalies: &mut Vec<Anomaly>) {
        if from.ip().is_loopback() && from.port() == self.port && repeater::is_confirmation(bytes) {
            self.registration = Registration::Confirmed { until: now.monotonic + limit::REGISTRATION_AGAIN };
        }
        self.beacons.handle(from, bytes, now, anomalies);
    }

    /// Registers when it is time.
    pub(super) fn tick(&mut self, socket: &UdpSocket, reactor: &Arc<Reactor>, now: Now) {
        if self.deadline() > now.monotonic {
            return;
        }
        let (pause, n_patient) = limit::REGISTRATION;
        let n_times = match self.registration {
            Registration::Asked { n_times, .. } => n_times,
            Registration::Confirmed { .. } => 0,
        };
        if n_times >= n_patient && self.repeater.is_none() {
            // Another process may have been first; then that one answers in a moment.
            self.repeater = Repeater::start_on(reactor, self.port).ok();
        }
        // As a datagram that is lost: it is sent again.
        let _ = socket.send_to(&repeater::registration(), (Ipv4Addr::LOCALHOST, self.port));
        let pause = (pause * (1 << n_times.min(8))).min(limit::REGISTRATION_AGAIN);
        self.registration = Registration::Asked { n_times: n_times + 1, until: now.monotonic + pause };
    }

    /// When to call [`Ear::tick`] at the latest.
    pub(super) fn deadline(&self) -> Instant {
        match self.registration {
            Registration::Asked { until, .. } | Registration::Confirmed { until } => until,
        }
    }
}
