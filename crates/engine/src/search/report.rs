//! What servers report that concerns searches.

use std::net::{IpAddr, SocketAddr};

use crate::Cid;

/// How the circuits of a server are transported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Plain TCP.
    #[default]
    Tcp,
    /// TLS, which only pvAccess has.
    Tls,
}

/// A server claims a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The client's number for the name.
    pub cid: Cid,
    /// The server's TCP address.
    pub server: SocketAddr,
    /// The transport that the server expects at this address.
    pub transport: Transport,
    /// Where this server is reached by plain TCP, if nothing else shows that it is reached at `server`.
    pub plain: Option<SocketAddr>,
    /// Whether the name was being searched for. If not, the reply is late or a duplicate, or a second server has the
    /// name.
    pub is_first: bool,
}

/// Where a name is served, according to a name server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimedServer {
    /// The address of the server; `None`: that of the name server.
    pub ip: Option<IpAddr>,
    /// The TCP port of the server.
    pub port: u16,
    /// The transport that the server expects at this address.
    pub transport: Transport,
}

impl ClaimedServer {
    /// The TCP address of the server. `name_server`, `over`: how the name server is connected. Its own circuits with this
    /// transport are where it was reached, whatever port it names: that may be another one on the way.
    pub fn address(&self, name_server: SocketAddr, over: Transport) -> SocketAddr {
        match self.ip {
            Some(ip) => SocketAddr::new(ip, self.port),
            None if self.transport == over => name_server,
            None => {
                // Keeps the interface of a link-local address.
                let mut other = name_server;
                other.set_port(self.port);
                other
            }
        }
    }
}

/// An event indicated by a beacon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// A server has started or restarted.
    Started(SocketAddr),
    /// A running server is received that was not received before: a network connection has been restored.
    Appeared(SocketAddr),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_an_address_is_the_name_server_and_its_port_counts_only_for_another_transport() {
        let name_server: SocketAddr = "[fe80::1%2]:6075".parse().unwrap();
        let claimed = |ip: Option<&str>, transport| {
            let server = ClaimedServer { ip: ip.map(|ip| ip.parse().unwrap()), port: 5076, transport };
            server.address(name_server, Transport::Tcp).to_string()
        };

        assert_eq!(claimed(Some("10.0.0.1"), Transport::Tcp), "10.0.0.1:5076");
        assert_eq!(claimed(None, Transport::Tcp), "[fe80::1%2]:6075");
        assert_eq!(claimed(None, Transport::Tls), "[fe80::1%2]:5076");
    }
}
