//! The host's network interfaces, and the addresses at which a search reaches all servers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use fodo_lock::Mutex;

use crate::config::InterfaceAddress;
use crate::limit;
use crate::process::PerProcess;

/// The broadcast address of the loopback network. Where it exists (Linux), it reaches all servers of this host, while a
/// datagram to 127.0.0.1 reaches only one of them.
pub const LOOPBACK_BROADCAST: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 255);

/// Default search addresses: the broadcast address of every interface, and this host itself, so that a client finds a
/// server on the same host without any network.
pub fn search_addresses(port: u16) -> Vec<SocketAddr> {
    let mut found: Vec<Ipv4Addr> = Vec::new();
    if cfg!(target_os = "linux") {
        found.push(LOOPBACK_BROADCAST);
    }
    found.push(Ipv4Addr::LOCALHOST);
    for (address, broadcast) in v4_interfaces() {
        let target = broadcast.unwrap_or(address);
        if !address.is_loopback() && !found.contains(&target) {
            found.push(target);
        }
    }
    found.into_iter().map(|ip| SocketAddr::new(IpAddr::V4(ip), port)).collect()
}

/// Adds to the loopback addresses in the list the one that reaches all servers of this host. If several servers share a
/// port, a datagram to 127.0.0.1 reaches only the one that bound it last.
pub fn with_loopback_broadcast(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut all = addresses.to_vec();
    if cfg!(target_os = "linux") {
        let here = addresses.iter().filter(|address| address.ip().is_loopback());
        all.extend(here.map(|address| SocketAddr::from((LOOPBACK_BROADCAST, address.port()))));
    }
    all
}

/// The broadcast address of the interface with this address; also of the loopback network.
pub fn broadcast_of(interface: Ipv4Addr) -> Option<Ipv4Addr> {
    if interface.is_loopback() {
        return cfg!(target_os = "linux").then_some(LOOPBACK_BROADCAST);
    }
    v4_interfaces().into_iter().find(|(address, _)| *address == interface).and_then(|(_, broadcast)| broadcast)
}

/// The addresses of all interfaces.
pub fn own_addresses() -> Vec<Ipv4Addr> {
    v4_interfaces().into_iter().map(|(address, _)| address).collect()
}

/// The addresses of IPv6 of all interfaces.
pub fn own_ipv6_addresses() -> Vec<InterfaceAddress> {
    let v6 = |interface: if_addrs::Interface| match interface.addr {
        if_addrs::IfAddr::V6(v6) => {
            // Others are valid on every interface.
            let index = if v6.ip.is_unicast_link_local() { interface.index.unwrap_or(0) } else { 0 };
            Some(InterfaceAddress { ip: v6.ip.into(), index })
        }
        if_addrs::IfAddr::V4(_) => None,
    };
    if_addrs::get_if_addrs().unwrap_or_default().into_iter().filter_map(v6).collect()
}

/// The numbers of the interfaces with IPv6: of those with one of these addresses, or of all of them if there is none.
pub fn ipv6_indices(addresses: &[Ipv6Addr]) -> Vec<u32> {
    let mut indices: Vec<u32> = if_addrs::get_if_addrs()
        .unwrap_or_default()
        .into_iter()
        .filter(|interface| match interface.ip() {
            IpAddr::V6(ip) => addresses.is_empty() || addresses.contains(&ip),
            IpAddr::V4(_) => false,
        })
        .filter_map(|interface| interface.index)
        .collect();
    indices.sort_unstable();
    indices.dedup();
    indices
}

/// The number of the interface that is given by its number, its name or one of its addresses.
pub fn index_of(interface: &str) -> Option<u32> {
    if let Ok(index) = interface.parse() {
        return Some(index);
    }
    let ip: Option<IpAddr> = interface.parse().ok();
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    all.into_iter().find(|known| known.name == interface || Some(known.ip()) == ip).and_then(|known| known.index)
}

/// Whether this host has IPv6, at least on loopback.
pub fn has_ipv6() -> bool {
    UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// The address, if it is one of IPv4.
pub fn ipv4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// The address, if it is one of IPv6.
pub fn ipv6(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(address),
    }
}

/// The address of an interface, and its broadcast address, which IPv6 does not have.
type InterfaceAddresses = (IpAddr, Option<Ipv4Addr>);

/// The addresses of the host's interfaces, and when they were read.
type OwnInterfaces = Option<(Instant, Vec<InterfaceAddresses>)>;

static OWN: PerProcess<Mutex<OwnInterfaces>> = PerProcess::new([const { Mutex::new(None) }; limit::FORKS]);

/// Whether the address belongs to this host. Queries the system only from time to time.
pub fn is_this_host(address: IpAddr) -> bool {
    address.is_loopback() || is_any_interface(|(own, _)| own == address)
}

/// Whether a datagram to this address is received by more than one host, or by all programs of this host that share its
/// port. Queries the system only from time to time.
pub fn is_group(address: IpAddr) -> bool {
    let IpAddr::V4(address) = address else { return address.is_multicast() };
    address.is_multicast()
        || address == Ipv4Addr::BROADCAST
        || (cfg!(target_os = "linux") && address == LOOPBACK_BROADCAST)
        || is_any_interface(|(own, broadcast)| own != IpAddr::V4(address) && broadcast == Some(address))
}

fn is_any_interface(is_it: impl Fn(InterfaceAddresses) -> bool) -> bool {
    let all = || -> Vec<InterfaceAddresses> {
        let v4 = v4_interfaces().into_iter().map(|(own, broadcast)| (IpAddr::V4(own), broadcast));
        v4.chain(own_ipv6_addresses().into_iter().map(|own| (own.ip, None))).collect()
    };
    let Ok(own) = OWN.get() else { return all().into_iter().any(is_it) };
    let mut own = own.lock();
    let now = Instant::now();
    let known = own.take().filter(|(at, _)| now < *at + limit::ADDRESS_REFRESH);
    let (_, interfaces) = own.insert(known.unwrap_or_else(|| (now, all())));
    interfaces.iter().copied().any(is_it)
}

/// The addresses at which this host receives broadcasts. A socket that is bound to one of them receives no unicast
/// datagrams, which would otherwise not reach another program that shares the port.
pub fn broadcast_addresses() -> Vec<Ipv4Addr> {
    let mut broadcasts: Vec<Ipv4Addr> = own_addresses().into_iter().filter_map(broadcast_of).collect();
    broadcasts.push(Ipv4Addr::BROADCAST);
    broadcasts.sort_unstable();
    broadcasts.dedup();
    broadcasts
}

/// Address and broadcast address of every interface that is up. Empty if the system does not report them.
fn v4_interfaces() -> Vec<(Ipv4Addr, Option<Ipv4Addr>)> {
    if_addrs::get_if_addrs()
        .unwrap_or_default()
        .into_iter()
        .filter_map(|interface| match interface.addr {
            if_addrs::IfAddr::V4(v4) => Some((v4.ip, v4.broadcast)),
            if_addrs::IfAddr::V6(_) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_addresses_always_include_the_loopback_address() {
        let addresses = search_addresses(5064);

        assert!(addresses.contains(&"127.0.0.1:5064".parse().unwrap()));
    }

    #[test]
    fn local_addresses_are_distinguished_from_remote_ones() {
        assert!(is_this_host("127.0.0.7".parse().unwrap()));
        assert!(is_this_host("::1".parse().unwrap()));
        assert!(["192.0.2.1", "2001:db8::1"].into_iter().all(|other| !is_this_host(other.parse().unwrap())));
        for address in own_addresses() {
            assert!(is_this_host(IpAddr::V4(address)), "{address}");
        }
        assert!(own_addresses().contains(&Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn broadcast_addresses_and_multicast_groups_reach_groups_and_hosts_do_not() {
        for (address, _) in v4_interfaces() {
            assert!(!is_group(IpAddr::V4(address)), "{address}");
        }
        assert!(broadcast_addresses().into_iter().all(|address| is_group(IpAddr::V4(address))));
        assert!(broadcast_addresses().contains(&Ipv4Addr::BROADCAST));
        assert!(["224.0.0.128", "ff02::42:1"].into_iter().all(|group| is_group(group.parse().unwrap())));
        assert!(!is_group("198.51.100.255".parse().unwrap()) && !is_group("::1".parse().unwrap()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_interface_is_given_by_its_name_its_number_or_an_address() {
        let index = index_of("lo").unwrap();

        assert_eq!([index.to_string().as_str(), "127.0.0.1"].map(index_of), [Some(index); 2]);
        assert_eq!(["nowhere", "192.0.2.1"].map(index_of), [None; 2]);
        if has_ipv6() {
            assert!(ipv6_indices(&[Ipv6Addr::LOCALHOST]) == [index] && ipv6_indices(&[]).contains(&index));
            assert!(own_ipv6_addresses().contains(&IpAddr::V6(Ipv6Addr::LOCALHOST).into()));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn local_searches_use_the_loopback_broadcast_address() {
        let [here, elsewhere, all] =
            ["127.0.0.1:5064", "10.0.0.1:5065", "127.255.255.255:5064"].map(|text| text.parse::<SocketAddr>().unwrap());

        assert_eq!(with_loopback_broadcast(&[here, elsewhere]), [here, elsewhere, all]);
        assert_eq!(broadcast_of(Ipv4Addr::LOCALHOST), Some(LOOPBACK_BROADCAST));
        assert_eq!(broadcast_of(Ipv4Addr::new(192, 0, 2, 1)), None);
        assert_eq!(search_addresses(5064)[0], all);
    }

    #[test]
    fn each_interface_broadcast_address_is_searched_once() {
        let addresses = search_addresses(5064);

        for (address, broadcast) in v4_interfaces().into_iter().filter(|(address, _)| !address.is_loopback()) {
            let target = SocketAddr::from((broadcast.unwrap_or(address), 5064));
            assert_eq!(addresses.iter().filter(|known| **known == target).count(), 1, "{target}");
        }
        let n_loopback = addresses.iter().filter(|address| address.ip().is_loopback()).count();
        assert_eq!(n_loopback, if cfg!(target_os = "linux") { 2 } else { 1 });
    }
}
