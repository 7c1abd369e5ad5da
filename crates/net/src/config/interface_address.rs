//! Addresses of interfaces of either family.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

/// The address of an interface, or a multicast group.
///
/// ```
/// use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
///
/// use fodo_net::InterfaceAddress;
///
/// let loopback = InterfaceAddress::from(IpAddr::V6(Ipv6Addr::LOCALHOST));
/// assert_eq!(loopback.to_string(), "::1");
/// assert_eq!(InterfaceAddress::from(Ipv4Addr::LOCALHOST).index, 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceAddress {
    /// The address.
    pub ip: IpAddr,
    /// The system's number of the interface, which a link-local address of IPv6 needs; of a group of IPv6 the only interface
    /// to join it on. 0: not given.
    pub index: u32,
}

impl InterfaceAddress {
    /// The address with a port.
    pub(crate) fn at(self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(ip) => SocketAddr::from((ip, port)),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.index).into(),
        }
    }
}

impl From<IpAddr> for InterfaceAddress {
    fn from(ip: IpAddr) -> InterfaceAddress {
        InterfaceAddress { ip, index: 0 }
    }
}

impl From<Ipv4Addr> for InterfaceAddress {
    fn from(ip: Ipv4Addr) -> InterfaceAddress {
        IpAddr::V4(ip).into()
    }
}

impl From<SocketAddr> for InterfaceAddress {
    /// Without the port.
    fn from(address: SocketAddr) -> InterfaceAddress {
        let index = if let SocketAddr::V6(address) = address { address.scope_id() } else { 0 };
        InterfaceAddress { ip: address.ip(), index }
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            0 => self.ip.fmt(f),
            index => write!(f, "{}%{index}", self.ip),
        }
    }
}
