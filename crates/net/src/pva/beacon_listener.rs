//! Receiving beacons of pvAccess: servers broadcast them at the port of searches.

use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::time::Instant;

use fodo_data::Now;
use fodo_pva::beacon_monitor::{Anomaly, BeaconMonitor};

use crate::config::InterfaceAddress;
use crate::reactor::{Readiness, Registration, shared_udp};
use crate::{interfaces, limit, socket};

/// Receives beacons on a socket for each broadcast address of the host, and for each group of IPv6 that is searched.
///
/// A socket for all addresses would also receive unicast searches, and the server of this host that they are for would
/// not; pvxs therefore makes its clients forward searches.
#[derive(Debug)]
pub(super) struct BeaconListener {
    port: u16,
    beacons: BeaconMonitor,
    /// Groups of IPv6 with the numbers of their interfaces; 0 for all of them.
    groups: Vec<(Ipv6Addr, u32)>,
    sockets: Vec<(InterfaceAddress, UdpSocket)>,
    /// When the interfaces are checked again.
    check_at: Instant,
}

impl BeaconListener {
    /// For beacons at this port. It binds its sockets with the first tick.
    pub(super) fn new(port: u16, groups: Vec<(Ipv6Addr, u32)>, now: Now) -> BeaconListener {
        let (beacons, sockets, check_at) = (BeaconMonitor::new(now), Vec::new(), now.monotonic);
        BeaconListener { port, beacons, groups, sockets, check_at }
    }

    /// The addresses at which beacons arrive now.
    fn addresses(&self) -> Vec<InterfaceAddress> {
        let mut addresses: Vec<InterfaceAddress> =
            interfaces::broadcast_addresses().into_iter().map(InterfaceAddress::from).collect();
        for &(group, index) in &self.groups {
            let indices = if index > 0 { vec![index] } else { interfaces::ipv6_indices(&[]) };
            addresses.extend(indices.into_iter().map(|index| InterfaceAddress { ip: group.into(), index }));
        }
        addresses
    }

    /// Binds sockets for new interfaces if it is due.
    pub(super) fn tick(&mut self, registration: &Registration, now: Now) {
        if self.check_at > now.monotonic {
            return;
        }
        self.check_at = now.monotonic + limit::ADDRESS_REFRESH;
        let addresses = self.addresses();
        self.sockets.retain(|(bound, _)| addresses.contains(bound));
        for address in addresses {
            if self.sockets.iter().any(|(bound, _)| *bound == address) {
                continue;
            }
            let bound = match address.ip {
                IpAddr::V4(broadcast) => shared_udp(broadcast, self.port),
                IpAddr::V6(group) => socket::multicast_udp_ipv6(group, address.index, self.port),
            };
            let bound = bound.and_then(|socket| registration.add_socket(&socket, Readiness::Readable).map(|()| socket));
            // If another program uses the port exclusively, it may end; the next check tries again.
            self.sockets.extend(bound.ok().map(|socket| (address, socket)));
        }
    }

    /// Processes the beacons that have arrived. Returns whether there may be more.
    pub(super) fn receive(&mut self, now: Now, anomalies: &mut Vec<Anomaly>) -> bool {
        let mut buffer = [0; limit::DATAGRAM_BYTES];
        let mut n_left = limit::TURN_DATAGRAMS;
        for (_, socket) in &self.sockets {
            loop {
                let Some(n) = n_left.checked_sub(1) else { return true };
                n_left = n;
                match socket.recv_from(&mut buffer) {
                    Ok((n, from)) => self.beacons.handle(from, &buffer[..n], now, anomalies),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    // An ICMP error; there may be datagrams as well.
                    Err(_) => {}
                }
            }
        }
        false
    }

    /// When to call [`BeaconListener::tick`] at the latest.
    pub(super) fn deadline(&self) -> Instant {
        self.check_at
    }
}
