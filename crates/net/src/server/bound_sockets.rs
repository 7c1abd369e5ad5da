//! The sockets that a server binds when it starts.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use super::first_bytes::PortProtocol;
use super::relay::Relay;
use super::{ProtocolPorts, PvaServerPorts, ServerError};
use crate::address_list::{AddressFamilies, AddressList, InterfaceSelection};
use crate::config::{InterfaceAddress, PvaServerConfig, Quotas, ServerConfig};
use crate::log::Log;
use crate::protocol::CircuitKind;
use crate::pva::responder::PvaSearchSockets;
use crate::tls::TlsPolicy;
use crate::{interfaces, limit, socket};

/// Listening sockets, each with the protocol of its clients.
type ListeningSockets = Vec<(PortProtocol, TcpListener)>;

/// The TCP ports of pvAccess.
#[derive(Clone, Copy, Debug)]
pub struct PvaTcpPorts {
    /// Of plain circuits; `None` if TLS is the only transport.
    pub plain: Option<u16>,
    /// Of circuits within TLS; `None` without a keychain.
    pub tls: Option<u16>,
}

/// The sockets of the server as a whole.
#[derive(Debug)]
pub(super) struct BoundSockets {
    /// Of both protocols.
    pub(super) listeners: ListeningSockets,
    pub(super) search_sockets: Vec<SearchSocket>,
    /// Hosts whose searches are ignored.
    pub(super) ignored: Vec<Ipv4Addr>,
    pub(super) beacon_addresses: AddressList,
    pub(super) beacon_period_max: Duration,
    pub(super) quotas: Quotas,
    pub(super) relay: Option<Relay>,
    /// The ports of Channel Access.
    pub(super) ports: ProtocolPorts,
    pub(super) pva: Option<PvaSearchSockets>,
}

/// A socket that receives searches.
#[derive(Debug)]
pub struct SearchSocket {
    pub socket: UdpSocket,
    /// The index of the socket that sends the replies: itself, or the one bound to the address of the same interface.
    pub replies_from: usize,
    /// The address to which it is bound, if it receives only datagrams addressed to this host alone.
    pub unicast: Option<IpAddr>,
}

/// The addresses in the configuration of a server: groups to join, and interfaces.
pub struct Interfaces {
    groups: Vec<InterfaceAddress>,
    /// The addresses of the interfaces to serve on; unspecified ones for all.
    pub addresses: Vec<InterfaceAddress>,
}

impl Interfaces {
    /// For Channel Access.
    pub fn of_ipv4(configured: &[Ipv4Addr]) -> Interfaces {
        Interfaces::or_all(configured.iter().map(|&ip| ip.into()), &[IpAddr::V4(Ipv4Addr::UNSPECIFIED)])
    }

    /// For pvAccess.
    pub fn of(configured: &[InterfaceAddress]) -> Interfaces {
        let all = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        Interfaces::or_all(configured.iter().copied(), if interfaces::has_ipv6() { &all } else { &all[..1] })
    }

    fn or_all(configured: impl Iterator<Item = InterfaceAddress>, all: &[IpAddr]) -> Interfaces {
        let (groups, mut addresses): (Vec<_>, Vec<_>) = configured.partition(|address| address.ip.is_multicast());
        if addresses.is_empty() {
            addresses = all.iter().map(|&ip| ip.into()).collect();
        }
        Interfaces { groups, addresses }
    }

    pub fn are_all(&self) -> bool {
        self.addresses.iter().all(|address| address.ip.is_unspecified())
    }

    fn ipv4(&self) -> Vec<Ipv4Addr> {
        self.addresses.iter().filter_map(|address| interfaces::ipv4(address.ip)).collect()
    }

    /// The interfaces whose beacons are sent to their broadcast addresses, if that `is_on`.
    pub fn for_beacons(&self, is_on: bool, port: u16) -> InterfaceSelection {
        match (is_on, self.are_all()) {
            (false, _) => InterfaceSelection::No,
            (true, true) => InterfaceSelection::All(port),
            (true, false) => InterfaceSelection::Of(self.ipv4(), port),
        }
    }

    /// Joins the groups.
    pub fn join(&self, port: u16, multicast_ttl: u32, sockets: &mut Vec<SearchSocket>) -> Result<(), ServerError> {
        for &group in &self.groups {
            let failed = |error| ServerError::Bind { address: group.at(port), error };
            match group.ip {
                IpAddr::V4(group) => join(group, &self.ipv4(), port, sockets).map_err(failed)?,
                IpAddr::V6(ip) => self.join_ipv6(ip, group.index, port, sockets).map_err(failed)?,
            }
        }
        for SearchSocket { socket, .. } in sockets {
            match is_ipv6(socket) {
                true => socket2::SockRef::from(&*socket).set_multicast_hops_v6(multicast_ttl),
                false => socket.set_multicast_ttl_v4(multicast_ttl),
            }
            .map_err(ServerError::System)?;
        }
        Ok(())
    }

    /// Joins a group of IPv6 on the interface with this number, or on those of the addresses if that is 0. One success is
    /// enough, since some interfaces do not support multicasts. As with IPv4, only the socket for all interfaces can join
    /// itself; otherwise each interface gets a socket, since the address of a group of one link includes the interface.
    fn join_ipv6(&self, group: Ipv6Addr, index: u32, port: u16, sockets: &mut Vec<SearchSocket>) -> io::Result<()> {
        let of_ipv6 = self.addresses.iter().filter_map(|address| interfaces::ipv6(address.ip));
        let own: Vec<Ipv6Addr> = of_ipv6.filter(|ip| !ip.is_unspecified()).collect();
        let indices = if index > 0 { vec![index] } else { interfaces::ipv6_indices(&own) };
        let replies_from = sockets.iter().position(|socket| is_ipv6(&socket.socket));
        let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
        for index in indices {
            let joined = match replies_from.and_then(|at| sockets.get(at)) {
                Some(SearchSocket { socket, unicast: None, .. }) => socket.join_multicast_v6(&group, index),
                _ => socket::multicast_udp_ipv6(group, index, port).map(|socket| {
                    let replies_from = replies_from.unwrap_or(sockets.len());
                    sockets.push(SearchSocket { socket, replies_from, unicast: None });
                }),
            };
            result = result.or(joined);
        }
        result
    }
}

fn is_ipv6(socket: &UdpSocket) -> bool {
    socket.local_addr().is_ok_and(|at| at.is_ipv6())
}

impl BoundSockets {
    /// Binds the sockets of all protocols. What is missing without making the server useless is reported to `log`.
    pub(super) fn bind(config: &ServerConfig, log: &Log) -> Result<BoundSockets, ServerError> {
        let interfaces = Interfaces::of_ipv4(&config.interfaces);
        let (mut search_sockets, udp) = bind_udp(&interfaces.addresses, config.port)?;
        let relay = relay(&interfaces, udp, &mut search_sockets)?;
        interfaces.join(udp, config.multicast_ttl, &mut search_sockets)?;
        let (mut listeners, tcp) = match config.one_port {
            None => with_kind(CircuitKind::Ca, listen(&interfaces.addresses, config.port)?),
            // Clients know this port, so that no other can replace it.
            Some(port) => with_kind(CircuitKind::Ca, listen_at(&interfaces.addresses, port)?),
        };
        let automatic = interfaces.for_beacons(config.beacons_to_interfaces, config.beacon_port);
        let beacon_addresses = AddressList::new(
            AddressFamilies::Ipv4,
            &config.beacon_addresses,
            &config.beacon_hosts,
            automatic,
            Instant::now(),
        );
        let pva = match &config.pva {
            None => None,
            Some(pva) => {
                let of_pva = Interfaces::of(&pva.interfaces).addresses;
                let (found, ports) = match config.one_port {
                    None => listen_for_pva(pva, &of_pva)?,
                    Some(_) => share(&mut listeners, pva, &interfaces.addresses, &of_pva, tcp)?,
                };
                listeners.extend(found);
                Some(PvaSearchSockets::bind(pva, ports, config.multicast_ttl, log)?)
            }
        };
        Ok(BoundSockets {
            listeners,
            search_sockets,
            ignored: config.ignored.clone(),
            beacon_addresses,
            beacon_period_max: config.beacon_period_max,
            quotas: config.quotas.clone(),
            relay,
            ports: ProtocolPorts { tcp, udp },
            pva,
        })
    }

    /// The ports of pvAccess.
    pub(super) fn pva_ports(&self) -> Option<PvaServerPorts> {
        self.pva.as_ref().map(PvaSearchSockets::ports)
    }
}

/// Joins a multicast group on the interfaces. The socket for all interfaces can join itself; otherwise the group needs
/// a socket of its own, since a socket bound to an interface's address does not receive multicasts.
fn join(group: Ipv4Addr, interfaces: &[Ipv4Addr], port: u16, search_sockets: &mut Vec<SearchSocket>) -> io::Result<()> {
    if let ([Ipv4Addr::UNSPECIFIED], Some(SearchSocket { socket, .. })) = (interfaces, search_sockets.first()) {
        let joined = interfaces::own_addresses().into_iter().map(|own| socket.join_multicast_v4(&group, &own));
        // Some interfaces do not support multicast; one success is enough.
        return joined.reduce(Result::or).unwrap_or(Err(io::ErrorKind::AddrNotAvailable.into()));
    }
    let socket = socket::multicast_udp(group, interfaces, port)?;
    search_sockets.push(SearchSocket { socket, replies_from: 0, unicast: None });
    Ok(())
}

/// Binds a search socket for every interface, and one for its broadcast address, since a socket bound to an interface's
/// address does not receive broadcasts.
pub fn bind_udp(interfaces: &[InterfaceAddress], port: u16) -> Result<(Vec<SearchSocket>, u16), ServerError> {
    let mut sockets: Vec<SearchSocket> = Vec::new();
    let mut port = port;
    for &interface in interfaces {
        let failed = |error| ServerError::Bind { address: interface.at(port), error };
        let socket = socket::shared_udp_at(interface.at(port)).map_err(failed)?;
        port = socket.local_addr().map_err(failed)?.port();
        let replies_from = sockets.len();
        let unicast = (!interface.ip.is_unspecified()).then_some(interface.ip);
        sockets.push(SearchSocket { socket, replies_from, unicast });
        if let Some(IpAddr::V4(interface)) = unicast
            && let Some(broadcast) = interfaces::broadcast_of(interface)
        {
            // Systems that do not allow binding a broadcast address still deliver unicast searches.
            let hears_broadcasts = socket::shared_udp(broadcast, port).ok();
            sockets.extend(hears_broadcasts.map(|socket| SearchSocket { socket, replies_from, unicast: None }));
        }
    }
    Ok((sockets, port))
}

/// Sets up the relay of unicast searches. A socket for all interfaces cannot tell to which address a datagram was sent,
/// so each address of this host gets a socket of its own.
fn relay(
    interfaces: &Interfaces,
    port: u16,
    search_sockets: &mut Vec<SearchSocket>,
) -> Result<Option<Relay>, ServerError> {
    if !cfg!(target_os = "linux") {
        return Ok(None);
    }
    if interfaces.are_all() {
        let own = interfaces::own_addresses().into_iter().filter(|own| !own.is_loopback());
        bind_own_addresses(port, own.map(InterfaceAddress::from), search_sockets);
    }
    Relay::new(port).map(Some).map_err(ServerError::System)
}

/// Binds a socket to each of these addresses of this host.
pub fn bind_own_addresses(
    port: u16,
    addresses: impl Iterator<Item = InterfaceAddress>,
    search_sockets: &mut Vec<SearchSocket>,
) {
    for own in addresses {
        // The address was just removed; unicast searches are still received by the socket for all interfaces.
        let Ok(socket) = socket::shared_udp_at(own.at(port)) else { continue };
        search_sockets.push(SearchSocket { socket, replies_from: search_sockets.len(), unicast: Some(own.ip) });
    }
}

/// Listens on every interface on one port: the requested one, or any free port if that is in use.
fn listen(interfaces: &[InterfaceAddress], preferred_port: u16) -> Result<(Vec<TcpListener>, u16), ServerError> {
    let is_in_use = |result: &Result<_, ServerError>| matches!(result, Err(ServerError::Bind { error, .. }) if error.kind() == io::ErrorKind::AddrInUse);
    let mut result = listen_at(interfaces, preferred_port);
    // A second server on the same host: clients learn its port from the search reply. A port that is free on the first
    // interface may be in use on another.
    for _ in 0..limit::PORT_ATTEMPTS {
        if !is_in_use(&result) {
            break;
        }
        result = listen_at(interfaces, 0);
    }
    result
}

/// Listens on every interface on this port; 0 for any free one.
fn listen_at(interfaces: &[InterfaceAddress], port: u16) -> Result<(Vec<TcpListener>, u16), ServerError> {
    let mut port = port;
    let mut listeners = Vec::new();
    for &interface in interfaces {
        let failed = |error| ServerError::Bind { address: interface.at(port), error };
        let listener = socket::listen(interface.at(port)).map_err(failed)?;
        port = listener.local_addr().map_err(failed)?.port();
        listeners.push(listener);
    }
    Ok((listeners, port))
}

fn with_kind(kind: CircuitKind, found: (Vec<TcpListener>, u16)) -> (ListeningSockets, u16) {
    with_protocol(PortProtocol::Only(kind), found)
}

fn with_protocol(protocol: PortProtocol, (listeners, port): (Vec<TcpListener>, u16)) -> (ListeningSockets, u16) {
    (listeners.into_iter().map(|listener| (protocol, listener)).collect(), port)
}

/// Listens for pvAccess: on one port by plain TCP, on another within TLS, as configured.
fn listen_for_pva(
    config: &PvaServerConfig,
    interfaces: &[InterfaceAddress],
) -> Result<(ListeningSockets, PvaTcpPorts), ServerError> {
    let (mut listeners, mut ports) = (ListeningSockets::new(), PvaTcpPorts { plain: None, tls: None });
    if !config.tls.is_only() {
        let (found, port) = with_kind(CircuitKind::Pva, listen(interfaces, config.port)?);
        listeners.extend(found);
        ports.plain = Some(port);
    }
    if config.tls.keychain().is_some() {
        let (found, port) = with_kind(CircuitKind::PvaTls, listen(interfaces, config.tls_port)?);
        listeners.extend(found);
        ports.tls = Some(port);
    }
    Ok((listeners, ports))
}

/// Serves pvAccess at the port of Channel Access: with the listeners of the interfaces that both have, and with others
/// on the rest. Returns the others. The port is also that of TLS, if there is a keychain.
fn share(
    of_ca: &mut ListeningSockets,
    config: &PvaServerConfig,
    ca_interfaces: &[InterfaceAddress],
    pva_interfaces: &[InterfaceAddress],
    port: u16,
) -> Result<(ListeningSockets, PvaTcpPorts), ServerError> {
    for ((protocol, _), _) in of_ca.iter_mut().zip(ca_interfaces).filter(|(_, ip)| pva_interfaces.contains(ip)) {
        *protocol = PortProtocol::FirstByte;
    }
    let rest: Vec<_> = pva_interfaces.iter().filter(|ip| !ca_interfaces.contains(ip)).copied().collect();
    // Where Channel Access is not served, the first byte must not select it.
    let protocol = match &config.tls {
        TlsPolicy::Off => PortProtocol::Only(CircuitKind::Pva),
        TlsPolicy::Preferred(_) => PortProtocol::FirstByteOfPva,
        TlsPolicy::Only(_) => PortProtocol::Only(CircuitKind::PvaTls),
    };
    let (others, _) = with_protocol(protocol, listen_at(&rest, port)?);
    let of_kind = |is_served: bool| is_served.then_some(port);
    let ports = PvaTcpPorts { plain: of_kind(!config.tls.is_only()), tls: of_kind(config.tls.keychain().is_some()) };
    Ok((others, ports))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::config::PvaServerConfig;

    /// The addresses and protocols at which a server with these interfaces listens.
    fn listening(one_port: Option<u16>, of_ca: &[Ipv4Addr], of_pva: &[Ipv4Addr]) -> Vec<(PortProtocol, SocketAddr)> {
        let pva =
            PvaServerConfig { interfaces: of_pva.iter().map(|&ip| ip.into()).collect(), ..PvaServerConfig::isolated() };
        let config = ServerConfig { one_port, interfaces: of_ca.to_vec(), pva: Some(pva), ..ServerConfig::isolated() };
        let bound = BoundSockets::bind(&config, &Log::silent()).unwrap();
        assert_eq!(bound.ports.tcp, bound.listeners[0].1.local_addr().unwrap().port());
        let addresses = bound.listeners.iter().map(|(protocol, listener)| (*protocol, listener.local_addr().unwrap()));
        addresses.collect()
    }

    #[test]
    fn servers_have_tcp_ports_of_their_own() {
        let first = BoundSockets::bind(&ServerConfig::isolated(), &Log::silent()).unwrap();
        let (ca, pva) = (first.ports, first.pva_ports().unwrap());
        let of_pva = PvaServerConfig { port: pva.tcp.unwrap(), search_port: pva.udp, ..PvaServerConfig::isolated() };
        let config = ServerConfig { port: ca.tcp, pva: Some(of_pva), ..ServerConfig::isolated() };

        let second = BoundSockets::bind(&config, &Log::silent()).unwrap();

        assert_ne!(second.ports.tcp, ca.tcp);
        assert_ne!(second.pva_ports().unwrap().tcp, pva.tcp);
    }

    #[test]
    fn one_port_serves_both_protocols_on_the_interfaces_that_both_have() {
        let [one, other] = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)];

        let apart = listening(None, &[one], &[one]);
        let same = listening(Some(0), &[one], &[one]);
        let partly = listening(Some(0), &[one], &[one, other]);

        assert_eq!(apart.len(), 2);
        assert_ne!(apart[0].1, apart[1].1);
        assert_eq!(same.iter().map(|(protocol, _)| *protocol).collect::<Vec<_>>(), [PortProtocol::FirstByte]);
        let port = partly[0].1.port();
        let expected = [
            (PortProtocol::FirstByte, SocketAddr::from((one, port))),
            (PortProtocol::Only(CircuitKind::Pva), SocketAddr::from((other, port))),
        ];
        assert_eq!(partly, expected);
    }

    #[test]
    fn a_port_for_all_protocols_that_is_in_use_is_not_replaced() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let one_port = Some(taken.local_addr().unwrap().port());

        let error = BoundSockets::bind(&ServerConfig { one_port, ..ServerConfig::isolated() }, &Log::silent());

        assert!(
            matches!(error, Err(ServerError::Bind { address, .. }) if Some(address.port()) == one_port),
            "{error:?}"
        );
    }
}
