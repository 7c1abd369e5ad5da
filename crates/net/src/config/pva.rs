//! The configuration of pvAccess, of clients and servers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use fodo_pva::search::{BROADCAST_PORT, SERVER_PORT, TLS_PORT};

use super::environment::Variables;
use super::{ConfigError, Host, InterfaceAddress, variable};
use crate::tls::{ClientCertificates, TlsPolicy};
use crate::{interfaces, limit};

/// How a client finds servers over pvAccess; the field [`ClientConfig::pva`](super::ClientConfig::pva). Each field has
/// its default, and the variable from which [`ClientConfig::from_env`](super::ClientConfig::from_env) reads it.
///
/// # Examples
///
/// ```
/// use fodo_net::{ClientConfig, PvaClientConfig};
///
/// // Searches one host only.
/// let pva = PvaClientConfig::with_addresses(vec!["192.0.2.7:5076".parse().unwrap()]);
/// let config = ClientConfig { pva, ..ClientConfig::with_addresses(Vec::new()) };
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PvaClientConfig {
    /// Addresses to search: hosts, broadcast addresses, multicast groups (addresses in EPICS_PVA_ADDR_LIST, and the
    /// broadcast addresses of the interfaces in EPICS_PVA_INTF_ADDR_LIST). Default: none.
    pub search_addresses: Vec<SocketAddr>,
    /// Hosts to search by name; names are resolved periodically (names in EPICS_PVA_ADDR_LIST). Default: none.
    pub search_hosts: Vec<Host>,
    /// The port for searches to the broadcast address of every interface, including interfaces that appear later;
    /// `None` disables them (EPICS_PVA_AUTO_ADDR_LIST, EPICS_PVA_BROADCAST_PORT). Default: 5076.
    pub interface_search_port: Option<u16>,
    /// Name servers to query over plain TCP (EPICS_PVA_NAME_SERVERS); they are not used if TLS is the only transport.
    /// Default: none.
    pub name_servers: Vec<Host>,
    /// Name servers to query over TLS (entries of EPICS_PVA_NAME_SERVERS that begin with `pvas://`). Default: none.
    pub tls_name_servers: Vec<Host>,
    /// The UDP port at which the client receives beacons that are broadcast; other programs of the host can share it.
    /// `None`: beacons are not received (EPICS_PVA_BROADCAST_PORT). Default: 5076.
    pub beacon_port: Option<u16>,
    /// Silence after which the client sends an echo request: half of EPICS_PVA_CONN_TMO, between 1 and 15 s, the same
    /// as pvxs. Default: 15 s.
    pub echo_after: Duration,
    /// Whether circuits use TLS (EPICS_PVA_TLS_KEYCHAIN, FODO_PVA_TLS_ONLY). Default: off.
    pub tls: TlsPolicy,
}

impl Default for PvaClientConfig {
    fn default() -> PvaClientConfig {
        PvaClientConfig {
            interface_search_port: Some(BROADCAST_PORT),
            beacon_port: Some(BROADCAST_PORT),
            ..PvaClientConfig::with_addresses(Vec::new())
        }
    }
}

impl PvaClientConfig {
    /// Searches only these addresses and receives no beacons; all else as by default. See the example of [`PvaClientConfig`].
    pub fn with_addresses(search_addresses: Vec<SocketAddr>) -> PvaClientConfig {
        PvaClientConfig {
            search_addresses,
            search_hosts: Vec::new(),
            interface_search_port: None,
            name_servers: Vec::new(),
            tls_name_servers: Vec::new(),
            beacon_port: None,
            echo_after: limit::PVA_ECHO_PERIODS.1,
            tls: TlsPolicy::Off,
        }
    }

    pub(super) fn from_environment(environment: &Variables) -> Result<PvaClientConfig, ConfigError> {
        let port = environment.port(&variable::PVA_BROADCAST_PORT)?;
        let (mut search_addresses, search_hosts) = environment.hosts(&variable::PVA_ADDR_LIST, port)?;
        let mut interfaces = environment.addresses(&variable::PVA_INTF_ADDR_LIST)?;
        interfaces.retain(|InterfaceAddress { ip, .. }| !ip.is_unspecified() && !ip.is_multicast());
        let is_automatic = environment.is_yes(&variable::PVA_AUTO_ADDR_LIST)?;
        if is_automatic {
            let ipv4 = interfaces.iter().filter_map(|interface| interfaces::ipv4(interface.ip));
            let broadcasts = ipv4.map(|ip| interfaces::broadcast_of(ip).unwrap_or(ip));
            search_addresses.extend(broadcasts.map(|ip| SocketAddr::from((ip, port))));
        }
        let tls = environment.tls_of_client()?;
        let (name_servers, tls_name_servers) = environment.name_servers(&tls)?;
        let (echo_min, echo_max) = limit::PVA_ECHO_PERIODS;
        Ok(PvaClientConfig {
            search_addresses,
            search_hosts,
            interface_search_port: (is_automatic && interfaces.is_empty()).then_some(port),
            name_servers,
            tls_name_servers,
            beacon_port: Some(port),
            // pvxs multiplies the variable by 4/3, and sends an echo request after 3/8 of the product.
            echo_after: (environment.seconds(&variable::PVA_CONN_TMO)? / 2).clamp(echo_min, echo_max),
            tls,
        })
    }
}

/// Where a server listens for clients of pvAccess; the field [`ServerConfig::pva`](super::ServerConfig::pva). Each field
/// has its default, and the variable from which [`ServerConfig::from_env`](super::ServerConfig::from_env) reads it. The
/// limits of clients are the same for both protocols.
///
/// # Examples
///
/// ```
/// use fodo_net::{PvaServerConfig, ServerConfig};
///
/// // Serves pvAccess on another TCP port, and clients of this host only.
/// let pva = PvaServerConfig { port: 6075, ..PvaServerConfig::isolated() };
/// let config = ServerConfig { pva: Some(pva), ..ServerConfig::isolated() };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvaServerConfig {
    /// Addresses of the interfaces to serve on; empty for all, of IPv4 and, if the host has it, of IPv6. Multicast groups in
    /// the list are joined on the others (EPICS_PVAS_INTF_ADDR_LIST). Default: all.
    pub interfaces: Vec<InterfaceAddress>,
    /// Hosts whose UDP searches are ignored (EPICS_PVAS_IGNORE_ADDR_LIST). Default: none.
    pub ignored: Vec<IpAddr>,
    /// TCP port, if it is free; otherwise any free port (EPICS_PVAS_SERVER_PORT). 0: any free port. Default: 5075.
    pub port: u16,
    /// UDP port of searches, which all servers of a host share (EPICS_PVAS_BROADCAST_PORT). Searches that only one of
    /// them receives are forwarded to the others. 0: any free port, and nothing is forwarded. Default: 5076.
    pub search_port: u16,
    /// Beacon addresses in addition to those of the interfaces (addresses in EPICS_PVAS_BEACON_ADDR_LIST). Default:
    /// none.
    pub beacon_addresses: Vec<SocketAddr>,
    /// Beacon hosts by name; names are resolved periodically (names in EPICS_PVAS_BEACON_ADDR_LIST). Default: none.
    pub beacon_hosts: Vec<Host>,
    /// Whether beacons are sent to the broadcast address of every bound interface, at the port of searches
    /// (EPICS_PVAS_AUTO_BEACON_ADDR_LIST). Default: true.
    pub beacons_to_interfaces: bool,
    /// Whether circuits use TLS (EPICS_PVAS_TLS_KEYCHAIN, FODO_PVA_TLS_ONLY). Default: off.
    pub tls: TlsPolicy,
    /// TCP port of circuits with TLS, if it is free; otherwise any free port (EPICS_PVAS_TLS_PORT). 0: any free port.
    /// Default: 5076.
    pub tls_port: u16,
    /// Whether clients with TLS need a certificate (EPICS_PVAS_TLS_OPTIONS). Default: optional.
    pub client_certificates: ClientCertificates,
}

impl Default for PvaServerConfig {
    fn default() -> PvaServerConfig {
        PvaServerConfig {
            interfaces: Vec::new(),
            ignored: Vec::new(),
            port: SERVER_PORT,
            search_port: BROADCAST_PORT,
            beacon_addresses: Vec::new(),
            beacon_hosts: Vec::new(),
            beacons_to_interfaces: true,
            tls: TlsPolicy::Off,
            tls_port: TLS_PORT,
            client_certificates: ClientCertificates::Optional,
        }
    }
}

impl PvaServerConfig {
    /// For tests: reachable from this host only, on free ports, without beacons and without forwarded searches; the
    /// same as in [`ServerConfig::isolated`](super::ServerConfig::isolated). See the example of [`PvaServerConfig`].
    pub fn isolated() -> PvaServerConfig {
        PvaServerConfig {
            interfaces: vec![Ipv4Addr::LOCALHOST.into()],
            port: 0,
            tls_port: 0,
            search_port: 0,
            beacons_to_interfaces: false,
            ..PvaServerConfig::default()
        }
    }

    pub(super) fn from_environment(environment: &Variables) -> Result<PvaServerConfig, ConfigError> {
        let search_port = environment.port(&variable::PVAS_BROADCAST_PORT)?;
        let (beacon_addresses, beacon_hosts) = environment.hosts(&variable::PVAS_BEACON_ADDR_LIST, search_port)?;
        let mut interfaces = environment.addresses(&variable::PVAS_INTF_ADDR_LIST)?;
        interfaces.retain(|interface| !interface.ip.is_unspecified());
        let ignored = environment.addresses(&variable::PVAS_IGNORE_ADDR_LIST)?;
        Ok(PvaServerConfig {
            interfaces,
            ignored: ignored.into_iter().map(|host| host.ip).collect(),
            port: environment.port(&variable::PVAS_SERVER_PORT)?,
            search_port,
            beacon_addresses,
            beacon_hosts,
            beacons_to_interfaces: environment.is_yes(&variable::PVAS_AUTO_BEACON_ADDR_LIST)?,
            tls: environment.tls_of_server()?,
            tls_port: environment.port(&variable::PVAS_TLS_PORT)?,
            client_certificates: environment.client_certificates(&variable::PVAS_TLS_OPTIONS)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ClientConfig, ServerConfig};
    use crate::protocol::Protocol;

    fn table<'a>(rows: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| rows.iter().find(|row| row.0 == name).map(|row| row.1.to_owned())
    }

    fn client(rows: &[(&str, &str)]) -> Result<ClientConfig, ConfigError> {
        ClientConfig::from_variables(&table(rows))
    }

    fn server(rows: &[(&str, &str)]) -> PvaServerConfig {
        ServerConfig::from_variables(&table(rows)).unwrap().pva.unwrap()
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_empty_environment_means_the_default_ports_of_pvaccess() {
        let config = client(&[]).unwrap();

        assert_eq!((config.default_protocol, &config.pva), (Protocol::Ca, &PvaClientConfig::default()));
        assert_eq!((config.pva.interface_search_port, config.pva.echo_after.as_secs()), (Some(5076), 15));
        assert_eq!((server(&[]).port, server(&[]).search_port), (5075, 5076));
        assert_eq!(server(&[]), PvaServerConfig::default());
    }

    #[test]
    fn each_variable_of_pvaccess_sets_its_own_option_of_a_client() {
        let config = client(&[
            ("FODO_PROTOCOL", "PVA"),
            ("EPICS_PVA_ADDR_LIST", "10.0.0.1 gateway 10.0.0.2:6000"),
            ("EPICS_PVA_AUTO_ADDR_LIST", "NO"),
            ("EPICS_PVA_BROADCAST_PORT", "7076"),
            ("EPICS_PVA_SERVER_PORT", "7075"),
            ("EPICS_PVA_NAME_SERVERS", "10.0.0.3 names:7000"),
        ])
        .unwrap();

        let host = |name: &str, port| Host { name: name.into(), port };
        assert_eq!(config.default_protocol, Protocol::Pva);
        assert_eq!(config.pva.search_addresses, [address("10.0.0.1:7076"), address("10.0.0.2:6000")]);
        assert_eq!(config.pva.search_hosts, [host("gateway", 7076)]);
        assert_eq!(config.pva.name_servers, [host("10.0.0.3", 7075), host("names", 7000)]);
        assert_eq!(config.pva.interface_search_port, None);
        assert_eq!(client(&[("EPICS_PVA_BROADCAST_PORT", "7076")]).unwrap().pva.interface_search_port, Some(7076));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_client_broadcasts_only_on_the_interfaces_that_are_listed() {
        let interfaces = ("EPICS_PVA_INTF_ADDR_LIST", "127.0.0.1");

        let listed = client(&[interfaces]).unwrap().pva;
        let off = client(&[interfaces, ("EPICS_PVA_AUTO_ADDR_LIST", "NO")]).unwrap().pva;

        assert_eq!(
            (listed.search_addresses, listed.interface_search_port),
            (vec![address("127.255.255.255:5076")], None)
        );
        assert_eq!((off.search_addresses, off.interface_search_port), (vec![], None));
        assert_eq!(client(&[("EPICS_PVA_INTF_ADDR_LIST", "0.0.0.0")]).unwrap().pva, PvaClientConfig::default());
    }

    #[test]
    fn an_echo_request_follows_after_half_of_the_timeout_but_at_least_every_15_seconds() {
        let echo_after = |text| client(&[("EPICS_PVA_CONN_TMO", text)]).unwrap().pva.echo_after.as_secs_f64();

        assert_eq!(["30", "300", "10", "0.5"].map(echo_after), [15.0, 15.0, 5.0, 1.0]);
    }

    #[test]
    fn a_server_falls_back_to_the_variables_of_clients_as_in_pvxs() {
        let both = [
            ("EPICS_PVA_SERVER_PORT", "7075"),
            ("EPICS_PVA_BROADCAST_PORT", "7076"),
            ("EPICS_PVA_ADDR_LIST", "10.0.0.1"),
            ("EPICS_PVA_AUTO_ADDR_LIST", "0"),
            ("EPICS_PVA_INTF_ADDR_LIST", "10.0.0.7"),
        ];
        let own = [
            ("EPICS_PVAS_SERVER_PORT", "8075"),
            ("EPICS_PVAS_BROADCAST_PORT", "8076"),
            ("EPICS_PVAS_BEACON_ADDR_LIST", "10.0.0.2 beacons"),
            ("EPICS_PVAS_AUTO_BEACON_ADDR_LIST", "1"),
            ("EPICS_PVAS_INTF_ADDR_LIST", "0.0.0.0 10.0.0.8 224.0.1.5,1@10.0.0.8"),
            ("EPICS_PVAS_IGNORE_ADDR_LIST", "10.0.0.9"),
        ];

        let fallback = server(&both);
        let set = server(&[both.as_slice(), own.as_slice()].concat().into_iter().rev().collect::<Vec<_>>());

        assert_eq!((fallback.port, fallback.search_port, fallback.beacons_to_interfaces), (7075, 7076, false));
        assert_eq!(fallback.beacon_addresses, [address("10.0.0.1:7076")]);
        assert!(fallback.interfaces.is_empty(), "a server has its own list of interfaces");
        assert_eq!((set.port, set.search_port, set.beacons_to_interfaces), (8075, 8076, true));
        assert_eq!(set.beacon_addresses, [address("10.0.0.2:8076")]);
        assert_eq!(set.beacon_hosts, [Host { name: "beacons".into(), port: 8076 }]);
        assert_eq!(set.interfaces, [[10, 0, 0, 8], [224, 0, 1, 5]].map(|ip| Ipv4Addr::from(ip).into()));
        assert_eq!(set.ignored, [Ipv4Addr::new(10, 0, 0, 9)]);
    }

    #[test]
    fn the_routers_and_the_interface_of_a_group_are_accepted_in_lists_of_pvaccess_only() {
        let of = |name: &str, text: &str| {
            let settings = Variables { lookup: &table(&[(name, text)]) }.settings();
            settings.into_iter().find(|setting| setting.variable.name == name).unwrap()
        };

        let list = of("EPICS_PVA_ADDR_LIST", "224.0.1.5:6076,3@10.0.0.5 10.0.0.1");

        assert!(list.remark.unwrap().starts_with("not used"));
        assert!(of("EPICS_PVA_ADDR_LIST", "10.0.0.1").remark.is_none());
        let group = client(&[("EPICS_PVA_ADDR_LIST", "224.0.1.5:6076,3@10.0.0.5")]).unwrap().pva;
        assert_eq!(group.search_addresses, [address("224.0.1.5:6076")]);
        assert_eq!(client(&[("EPICS_PVA_ADDR_LIST", ",1")]).unwrap_err().text, ",1");
        assert_eq!(client(&[("EPICS_CA_ADDR_LIST", "224.0.1.5,3")]).unwrap().search_addresses, []);
        assert!(of("EPICS_CA_AUTO_ADDR_LIST", "1").value.is_err());
        assert_eq!(of("FODO_PROTOCOL", "http").value.unwrap_err().expected, "ca or pva");
    }

    #[test]
    fn lists_of_pvaccess_have_addresses_of_ipv6() {
        let list = "[::1] 10.0.0.1 [2001:db8::1]:6076 fe80::1%2 [ff02::42:1]:6076,1@3 fe80::1%nowhere gateway";
        let rows = [("EPICS_PVA_ADDR_LIST", list), ("EPICS_PVA_NAME_SERVERS", "::1 10.0.0.2 [fe80::1%2]:7000")];

        let config = client(&rows).unwrap().pva;
        let settings = Variables { lookup: &table(&rows) }.settings();

        let searched = ["[::1]:5076", "10.0.0.1:5076", "[2001:db8::1]:6076", "[fe80::1%2]:5076", "[ff02::42:1%3]:6076"];
        assert_eq!(config.search_addresses, searched.map(address));
        let host = |name: &str, port| Host { name: name.into(), port };
        assert_eq!(config.search_hosts, [host("fe80::1%nowhere", 5076), host("gateway", 5076)]);
        assert_eq!(config.name_servers, [host("::1", 5075), host("10.0.0.2", 5075), host("fe80::1%2", 7000)]);
        assert_eq!(config.name_servers[2].address(), Some(address("[fe80::1%2]:7000")));
        let remark = settings.iter().find(|setting| setting.variable.name == rows[0].0).unwrap().remark.as_deref();
        assert_eq!(remark, Some("not used: the number of routers (,N) of a group"));
    }

    #[test]
    fn a_server_has_interfaces_groups_and_ignored_hosts_of_ipv6() {
        let interfaces = ("EPICS_PVAS_INTF_ADDR_LIST", "[::1] fe80::7%2 [ff02::42:1]@2 127.0.0.1");

        let config = server(&[interfaces, ("EPICS_PVAS_IGNORE_ADDR_LIST", "2001:db8::9")]);

        let texts: Vec<String> = config.interfaces.iter().map(InterfaceAddress::to_string).collect();
        assert_eq!(texts, ["::1", "fe80::7%2", "ff02::42:1%2", "127.0.0.1"]);
        assert_eq!(config.ignored, ["2001:db8::9".parse::<IpAddr>().unwrap()]);
        assert!(server(&[("EPICS_PVAS_INTF_ADDR_LIST", "[::]")]).interfaces.is_empty(), "all");
        let error = |name: &'static str, text: &'static str| {
            ServerConfig::from_variables(&table(&[(name, text)])).unwrap_err().to_string()
        };
        assert_eq!(
            error("EPICS_PVAS_INTF_ADDR_LIST", "[fe80::7%nowhere]"),
            "EPICS_PVAS_INTF_ADDR_LIST=\"fe80::7%nowhere\": expected IPv4 or IPv6 addresses, or host names that can be resolved"
        );
        assert!(error("EPICS_PVAS_BEACON_ADDR_LIST", "[::1]:many").contains("[::1]:many"));
        assert!(error("EPICS_CAS_INTF_ADDR_LIST", "[::1]").contains("expected IPv4 addresses"));
    }
}
