//! The host's network interfaces, and the addresses at which a search reaches all servers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use fodo_lock::Mutex;

use crate::limit;

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

/// The host's own addresses, and when they were read.
static OWN: Mutex<Option<(Instant, Vec<Ipv4Addr>)>> = Mutex::new(None);

/// Whether the address belongs to this host. Queries the system only from time to time.
pub fn is_this_host(address: IpAddr) -> bool {
    let IpAddr::V4(address) = address else { return false };
    if address.is_loopback() {
        return true;
    }
    let mut own = OWN.lock();
    let now = Instant::now();
    let known = own.take().filter(|(at, _)| now < *at + limit::ADDRESS_REFRESH);
    let (_, addresses) = own.insert(known.unwrap_or_else(|| (now, own_addresses())));
    addresses.contains(&address)
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
        assert!(!is_this_host("192.0.2.1".parse().unwrap()) && !is_this_host("::1".parse().unwrap()));
        for address in own_addresses() {
            assert!(is_this_host(IpAddr::V4(address)), "{address}");
        }
        assert!(own_addresses().contains(&Ipv4Addr::LOCALHOST));
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
