//! The UDP sockets of a server of pvAccess: searches, their forwarding to the other servers of this host, and beacons.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::Instant;

use fodo_data::Now;
use fodo_pva::frame;
use fodo_pva::guid::Guid;
use fodo_pva::responder::{Arrival, Datagram, DatagramFlaw, Recipient, Responder};
use fodo_pva::search::LOCAL_GROUP;

use crate::address_list::{AddressFamilies, AddressList};
use crate::config::{InterfaceAddress, PvaServerConfig};
use crate::log::{Level, Log};
use crate::protocol::Protocol;
use crate::server::bound_sockets::{self, Interfaces, PvaTcpPorts, SearchSocket};
use crate::server::search_intake::SearchIntake;
use crate::server::{PvaServerPorts, ServerError, Source};
use crate::{clock, interfaces, limit, socket};

/// The sockets, and the machine that answers what they receive.
#[derive(Debug)]
pub struct PvaSearchSockets {
    responder: Responder,
    search_sockets: Vec<SearchSocket>,
    /// `None` if nothing is forwarded.
    local_group: Option<LocalGroup>,
    beacon_addresses: AddressList,
    ports: PvaServerPorts,
    datagrams: Vec<Datagram>,
}

/// The multicast group through which the servers of this host forward searches.
#[derive(Debug)]
struct LocalGroup {
    receiver: UdpSocket,
    sender: UdpSocket,
    /// The address from which it sends, used to recognize its own datagrams.
    own: SocketAddr,
    others: SocketAddr,
}

impl LocalGroup {
    fn join(port: u16) -> io::Result<LocalGroup> {
        let receiver = socket::multicast_udp(LOCAL_GROUP, &[Ipv4Addr::LOCALHOST], port)?;
        let sender = socket::loopback_multicast_udp()?;
        let own = sender.local_addr()?;
        Ok(LocalGroup { receiver, sender, own, others: SocketAddr::from((LOCAL_GROUP, port)) })
    }
}

impl PvaSearchSockets {
    /// Binds the sockets. `tcp`: the ports of the circuits.
    pub fn bind(
        config: &PvaServerConfig,
        tcp: PvaTcpPorts,
        multicast_ttl: u32,
        log: &Log,
    ) -> Result<PvaSearchSockets, ServerError> {
        let interfaces = Interfaces::of(&config.interfaces);
        let (mut search_sockets, udp) = bound_sockets::bind_udp(&interfaces.addresses, config.search_port)?;
        let mut local_group = None;
        if config.search_port != 0 {
            // A socket for all interfaces cannot tell to which address a datagram was sent, so each address gets its own.
            if interfaces.are_all() && cfg!(target_os = "linux") {
                let ipv4 = interfaces::own_addresses().into_iter().map(InterfaceAddress::from);
                let ipv6 = interfaces::own_ipv6_addresses();
                bound_sockets::bind_own_addresses(udp, ipv4.chain(ipv6), &mut search_sockets);
            }
            local_group = joined(udp, log);
        }
        interfaces.join(udp, multicast_ttl, &mut search_sockets)?;
        let now = clock::now();
        let automatic = interfaces.for_beacons(config.beacons_to_interfaces, udp);
        let beacon_addresses = AddressList::new(
            AddressFamilies::Both,
            &config.beacon_addresses,
            &config.beacon_hosts,
            automatic,
            now.monotonic,
        );
        let PvaTcpPorts { plain: tcp, tls } = tcp;
        let any_port = tcp.or(tls).unwrap_or_default();
        let mut responder = Responder::new(new_guid(any_port, now), any_port, now);
        responder.set_ports(tcp, tls);
        // Sockets of IPv6 receive nothing from addresses of IPv4.
        responder.set_ignored(config.ignored.iter().map(IpAddr::to_canonical).collect());
        if !interfaces.are_all() {
            responder.set_interfaces(interfaces.addresses.iter().map(|address| address.ip).collect());
        }
        let ports = PvaServerPorts { tcp, tls, udp };
        let datagrams = Vec::new();
        Ok(PvaSearchSockets { responder, search_sockets, local_group, beacon_addresses, ports, datagrams })
    }

    /// The identity of the server.
    pub fn guid(&self) -> Guid {
        self.responder.guid()
    }

    pub fn ports(&self) -> PvaServerPorts {
        self.ports
    }

    /// The sockets whose datagrams [`PvaSearchSockets::turn`] handles.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let search_sockets = self.search_sockets.iter().map(|SearchSocket { socket, .. }| socket.as_raw_fd());
        search_sockets.chain(self.local_group.iter().map(|group| group.receiver.as_raw_fd()))
    }

    /// Answers searches and sends beacons, as many per turn as allowed. Returns whether searches are left.
    pub fn turn(&mut self, source: &dyn Source, intake: &mut SearchIntake, buffer: &mut [u8], now: Now) -> bool {
        let has_more = self.answer(source, intake, buffer, now);
        self.responder.tick(now, &mut self.datagrams);
        self.send_beacons(now);
        has_more
    }

    /// When the next turn is due, even if nothing is received.
    pub fn deadline(&self) -> Option<Instant> {
        self.responder.deadline()
    }

    fn answer(&mut self, source: &dyn Source, intake: &mut SearchIntake, buffer: &mut [u8], now: Now) -> bool {
        let PvaSearchSockets { responder, search_sockets, local_group, datagrams, .. } = self;
        let sockets = search_sockets.iter().map(|SearchSocket { socket, replies_from, unicast }| {
            let arrival = unicast.map_or(Arrival::Shared, |destination| Arrival::Unicast { destination });
            (socket, arrival, *replies_from)
        });
        let group = local_group.iter().map(|group| (&group.receiver, Arrival::LocalGroup, 0));
        let mut has_more = false;
        for (socket, arrival, replies_from) in sockets.chain(group) {
            let mut n_left = limit::TURN_SEARCH_BYTES;
            while n_left > 0 {
                let Ok((n, from)) = socket.recv_from(buffer) else { break };
                // Even an empty datagram has a cost.
                let cost_bytes = n + frame::HEADER_BYTES;
                n_left = n_left.saturating_sub(cost_bytes);
                let is_own = local_group.as_ref().is_some_and(|group| group.own == from);
                if is_own || !intake.admits(from, cost_bytes, now) {
                    continue;
                }
                let mut serves = |name: &str| intake.serves(source, name, Protocol::Pva, from, now);
                if let Some(flaw) = responder.handle(from, arrival, &buffer[..n], &mut serves, datagrams) {
                    report(intake, &flaw, from, now);
                }
                for datagram in datagrams.drain(..) {
                    send(&datagram, search_sockets, replies_from, local_group.as_ref());
                }
            }
            // The poller does not report again what is left in the socket.
            has_more |= n_left == 0;
        }
        has_more
    }

    fn send_beacons(&mut self, now: Now) {
        if self.datagrams.is_empty() {
            return;
        }
        // Names that are being resolved are used for the next beacon.
        self.beacon_addresses.refresh(now.monotonic, || {});
        for datagram in self.datagrams.drain(..) {
            for to in self.beacon_addresses.all() {
                // The system knows which interface leads there: use the first socket that accepts the datagram.
                let mut sockets =
                    self.search_sockets.iter().enumerate().filter(|(index, from)| *index == from.replies_from);
                sockets.any(|(_, from)| socket::send_to(&from.socket, &datagram.bytes, *to).is_ok());
            }
        }
    }
}

/// Sends a reply or a forwarded search. `replies_from`: the index of the socket for replies to what was received.
fn send(datagram: &Datagram, sockets: &[SearchSocket], replies_from: usize, local_group: Option<&LocalGroup>) {
    // A failure is like a lost datagram: the client searches again.
    match datagram.to {
        Recipient::Client { to, from } => {
            let searched = from.and_then(|from| sockets.iter().find(|socket| socket.unicast == Some(from)));
            if let Some(SearchSocket { socket, .. }) = searched.or_else(|| sockets.get(replies_from)) {
                let _ = socket.send_to(&datagram.bytes, to);
            }
        }
        Recipient::LocalGroup => {
            if let Some(group) = local_group {
                let _ = group.sender.send_to(&datagram.bytes, group.others);
            }
        }
        // Only a tick emits beacons.
        Recipient::Beacons => {}
    }
}

fn report(intake: &SearchIntake, flaw: &DatagramFlaw, from: SocketAddr, now: Now) {
    let (what, name) = match flaw {
        DatagramFlaw::Frame(_) => ("a datagram with a message that is not valid pvAccess", None),
        DatagramFlaw::Search(_) => ("a search over pvAccess that cannot be decoded", None),
        DatagramFlaw::NoName(name) => ("a search over pvAccess for an invalid name", Some(name.as_str())),
    };
    intake.report_flaw(what, name, from, now);
}

/// The group of forwarded searches. Without it, of several servers on this host only one is found by searches to one
/// address; all of them are found by broadcasts.
fn joined(port: u16, log: &Log) -> Option<LocalGroup> {
    let joined = LocalGroup::join(port);
    if let Err(error) = &joined {
        let what =
            format!("searches over pvAccess are not forwarded within this host, because it has no multicasts: {error}");
        log.note(Level::Warning, &what);
    }
    joined.ok()
}

/// An identity that no other server has. The keys of each hasher are from the system's random source.
fn new_guid(tcp_port: u16, now: Now) -> Guid {
    let random = || {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_i64(now.wall.unix_s);
        hasher.write_u32(now.wall.nanos);
        hasher.write_u32(std::process::id());
        hasher.write_u16(tcp_port);
        hasher.finish()
    };
    Guid::from_bits(random(), random() as u32)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn bound(config: &PvaServerConfig) -> PvaSearchSockets {
        PvaSearchSockets::bind(config, PvaTcpPorts { plain: Some(5075), tls: None }, 1, &Log::silent()).unwrap()
    }

    #[test]
    fn every_server_has_an_identity_of_its_own() {
        let now = clock::now();

        let guids: HashSet<Guid> = (0..1000).map(|_| new_guid(5075, now)).collect();

        assert_eq!(guids.len(), 1000);
        let server = bound(&PvaServerConfig::isolated());
        assert_eq!(server.guid(), server.guid());
    }

    #[test]
    fn an_isolated_server_uses_loopback_and_forwards_nothing() {
        let server = bound(&PvaServerConfig::isolated());

        assert!(server.local_group.is_none() && server.beacon_addresses.all().is_empty());
        for SearchSocket { socket, .. } in &server.search_sockets {
            let address = socket.local_addr().unwrap();
            assert!(address.ip().is_loopback() && address.port() == server.ports().udp, "{address}");
        }
    }

    #[test]
    fn servers_share_the_port_of_searches() {
        let first = bound(&PvaServerConfig::isolated());
        let fixed = PvaServerConfig { search_port: first.ports().udp, ..PvaServerConfig::isolated() };

        let second = bound(&fixed);

        assert_eq!(second.ports(), first.ports());
    }

    #[test]
    fn beacons_to_interfaces_go_to_the_port_of_searches() {
        let config = PvaServerConfig { beacons_to_interfaces: true, ..PvaServerConfig::isolated() };

        let server = bound(&config);

        let ports: HashSet<u16> = server.beacon_addresses.all().iter().map(SocketAddr::port).collect();
        assert_eq!(ports, HashSet::from([server.ports().udp]));
    }
}
