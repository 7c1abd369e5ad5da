//! The environment variables of Channel Access, and what they mean here.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::limit;

/// The port of searches and, where it is free, of circuits.
pub const SERVER_PORT: u16 = 5064;
/// The port that beacons go to.
pub const REPEATER_PORT: u16 = 5065;

/// How a client finds servers and treats circuits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// Where searches go: hosts, broadcast addresses, multicast groups (numbers of EPICS_CA_ADDR_LIST).
    pub search_addresses: Vec<SocketAddr>,
    /// Likewise, by names that are looked up now and then (names of EPICS_CA_ADDR_LIST).
    pub search_hosts: Vec<Host>,
    /// The port at which searches go to every interface's broadcast address, as they come and go;
    /// `None`: they do not (EPICS_CA_AUTO_ADDR_LIST).
    pub interface_search_port: Option<u16>,
    /// Whom to ask for names over TCP (EPICS_CA_NAME_SERVERS).
    pub name_servers: Vec<Host>,
    /// The longest time between two searches for a name that nobody claims (EPICS_CA_MAX_SEARCH_PERIOD).
    pub search_period_max: Duration,
    /// The port of the host's repeater, which hands beacons on. When there is none, this process
    /// becomes it. `None`: beacons are not heard (EPICS_CA_REPEATER_PORT).
    pub repeater_port: Option<u16>,
    /// How many routers a multicast passes (EPICS_CA_MCAST_TTL).
    pub multicast_ttl: u32,
    /// Silence after which a server is asked for an echo (EPICS_CA_CONN_TMO).
    pub echo_after: Duration,
    /// Largest payload that is accepted, in bytes (EPICS_CA_MAX_ARRAY_BYTES, _AUTO_ARRAY_BYTES).
    pub payload_bytes_max: usize,
}

/// A host by its name, or by its address as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// The port there.
    pub port: u16,
}

impl Host {
    /// The address, if the name is one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.name.parse::<Ipv4Addr>().ok().map(|ip| SocketAddr::new(IpAddr::V4(ip), self.port))
    }

    /// Asks the system for the address; it may take its time.
    pub(crate) fn resolved(&self) -> Option<SocketAddr> {
        (self.name.as_str(), self.port).to_socket_addrs().ok()?.find(SocketAddr::is_ipv4)
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Interfaces to bind; empty for all. Multicast groups among them are joined on the others
    /// (EPICS_CAS_INTF_ADDR_LIST).
    pub interfaces: Vec<Ipv4Addr>,
    /// UDP port of searches, and TCP port when it is free (EPICS_CAS_SERVER_PORT). 0: any free ports.
    pub port: u16,
    /// Where beacons go beside the interfaces' own (numbers of EPICS_CAS_BEACON_ADDR_LIST).
    pub beacon_addresses: Vec<SocketAddr>,
    /// Likewise, by names that are looked up now and then (names of EPICS_CAS_BEACON_ADDR_LIST).
    pub beacon_hosts: Vec<Host>,
    /// Whether beacons go to the broadcast address of every interface that is bound
    /// (EPICS_CAS_AUTO_BEACON_ADDR_LIST).
    pub beacons_to_interfaces: bool,
    /// The port of those beacons (EPICS_CAS_BEACON_PORT).
    pub beacon_port: u16,
    /// The longest time between two beacons (EPICS_CAS_BEACON_PERIOD).
    pub beacon_period_max: Duration,
    /// How many routers a multicast passes (EPICS_CA_MCAST_TTL).
    pub multicast_ttl: u32,
    /// Largest payload that is accepted, in bytes.
    pub payload_bytes_max: usize,
}

/// A variable that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The variable's name.
    pub variable: &'static str,
    /// Its text.
    pub text: String,
    /// What was expected.
    pub expected: &'static str,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}=\"{}\": expected {}", self.variable, self.text, self.expected)
    }
}

impl std::error::Error for ConfigError {}

/// Where variables are looked up: the process's environment, or a table in tests.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

fn process(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            interface_search_port: Some(SERVER_PORT),
            repeater_port: Some(REPEATER_PORT),
            ..ClientConfig::at(Vec::new())
        }
    }
}

impl ClientConfig {
    /// Searches go there and nowhere else, and beacons are not heard; all else as by default.
    pub fn at(search_addresses: Vec<SocketAddr>) -> ClientConfig {
        ClientConfig {
            search_addresses,
            search_hosts: Vec::new(),
            interface_search_port: None,
            name_servers: Vec::new(),
            search_period_max: fodo_ca::limit::SEARCH_PERIOD_MAX,
            repeater_port: None,
            multicast_ttl: 1,
            echo_after: Duration::from_secs(30),
            payload_bytes_max: automatic_payload_bytes(),
        }
    }

    /// From the process's environment.
    pub fn from_env() -> Result<ClientConfig, ConfigError> {
        ClientConfig::from_lookup(&process)
    }

    fn from_lookup(lookup: Lookup) -> Result<ClientConfig, ConfigError> {
        let port = port(lookup, "EPICS_CA_SERVER_PORT", SERVER_PORT)?;
        let (search_addresses, search_hosts) = hosts(lookup, "EPICS_CA_ADDR_LIST", port)?;
        let (name_servers, by_name) = hosts(lookup, "EPICS_CA_NAME_SERVERS", port)?;
        let by_number = name_servers.iter().map(|at| Host { name: at.ip().to_string(), port: at.port() });
        let period = seconds(lookup, "EPICS_CA_MAX_SEARCH_PERIOD", fodo_ca::limit::SEARCH_PERIOD_MAX)?;
        Ok(ClientConfig {
            search_addresses,
            search_hosts,
            interface_search_port: yes(lookup, "EPICS_CA_AUTO_ADDR_LIST", true)?.then_some(port),
            name_servers: by_number.chain(by_name).collect(),
            search_period_max: period.max(limit::SEARCH_PERIOD_SETTING_MIN),
            repeater_port: Some(self::port(lookup, "EPICS_CA_REPEATER_PORT", REPEATER_PORT)?),
            multicast_ttl: multicast_ttl(lookup)?,
            echo_after: seconds(lookup, "EPICS_CA_CONN_TMO", Duration::from_secs(30))?,
            payload_bytes_max: payload_bytes(lookup)?,
        })
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            interfaces: Vec::new(),
            port: SERVER_PORT,
            beacon_addresses: Vec::new(),
            beacon_hosts: Vec::new(),
            beacons_to_interfaces: true,
            beacon_port: REPEATER_PORT,
            beacon_period_max: fodo_ca::limit::BEACON_PERIODS.1,
            multicast_ttl: 1,
            payload_bytes_max: automatic_payload_bytes(),
        }
    }
}

impl ServerConfig {
    /// From the process's environment.
    pub fn from_env() -> Result<ServerConfig, ConfigError> {
        ServerConfig::from_lookup(&process)
    }

    fn from_lookup(lookup: Lookup) -> Result<ServerConfig, ConfigError> {
        let client_port = port(lookup, "EPICS_CA_SERVER_PORT", SERVER_PORT)?;
        let repeater_port = port(lookup, "EPICS_CA_REPEATER_PORT", REPEATER_PORT)?;
        let beacon_port = port(lookup, "EPICS_CAS_BEACON_PORT", repeater_port)?;
        let (mut interfaces, by_name) = hosts(lookup, "EPICS_CAS_INTF_ADDR_LIST", 0)?;
        // What the server binds must be known before it starts.
        for host in by_name {
            let expected = "addresses of this host, or names of them";
            let variable = "EPICS_CAS_INTF_ADDR_LIST";
            interfaces.push(host.resolved().ok_or(ConfigError { variable, text: host.name, expected })?);
        }
        let interfaces = interfaces
            .iter()
            .filter_map(|address| match address.ip() {
                IpAddr::V4(ip) if !ip.is_unspecified() => Some(ip),
                _ => None,
            })
            .collect();
        // A server without a beacon list of its own uses the clients' list.
        let list = match lookup("EPICS_CAS_BEACON_ADDR_LIST") {
            Some(_) => "EPICS_CAS_BEACON_ADDR_LIST",
            None => "EPICS_CA_ADDR_LIST",
        };
        let automatic = match lookup("EPICS_CAS_AUTO_BEACON_ADDR_LIST") {
            Some(_) => "EPICS_CAS_AUTO_BEACON_ADDR_LIST",
            None => "EPICS_CA_AUTO_ADDR_LIST",
        };
        let (beacon_addresses, beacon_hosts) = hosts(lookup, list, beacon_port)?;
        // rsrv's name of the setting is older than its present one.
        let period = match lookup("EPICS_CAS_BEACON_PERIOD") {
            Some(_) => "EPICS_CAS_BEACON_PERIOD",
            None => "EPICS_CA_BEACON_PERIOD",
        };
        Ok(ServerConfig {
            interfaces,
            port: port(lookup, "EPICS_CAS_SERVER_PORT", client_port)?,
            beacon_addresses,
            beacon_hosts,
            beacons_to_interfaces: yes(lookup, automatic, true)?,
            beacon_port,
            beacon_period_max: seconds(lookup, period, fodo_ca::limit::BEACON_PERIODS.1)?,
            multicast_ttl: multicast_ttl(lookup)?,
            payload_bytes_max: payload_bytes(lookup)?,
        })
    }
}

/// A quarter of the memory: what one payload may take when no limit is set.
#[cfg(target_os = "linux")]
fn automatic_payload_bytes() -> usize {
    let memory = rustix::system::sysinfo();
    let total = (memory.totalram as usize).saturating_mul(memory.mem_unit.max(1) as usize);
    (total / 4).max(64 * 1024 * 1024)
}

/// What one payload may take when no limit is set, on hosts whose memory is not known.
#[cfg(not(target_os = "linux"))]
fn automatic_payload_bytes() -> usize {
    1024 * 1024 * 1024
}

fn payload_bytes(lookup: Lookup) -> Result<usize, ConfigError> {
    if yes(lookup, "EPICS_CA_AUTO_ARRAY_BYTES", true)? {
        return Ok(automatic_payload_bytes());
    }
    let name = "EPICS_CA_MAX_ARRAY_BYTES";
    let bytes = number::<usize>(lookup, name, "a number of bytes")?.unwrap_or(16_384);
    // The field's programs round a smaller setting up to this, and add room for the metadata.
    Ok(bytes.max(16_384) + 1024)
}

fn text(lookup: Lookup, name: &str) -> Option<String> {
    lookup(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn number<T: std::str::FromStr>(
    lookup: Lookup,
    variable: &'static str,
    expected: &'static str,
) -> Result<Option<T>, ConfigError> {
    text(lookup, variable)
        .map(|text| text.parse().map_err(|_| ConfigError { variable, text: text.clone(), expected }))
        .transpose()
}

fn port(lookup: Lookup, variable: &'static str, default: u16) -> Result<u16, ConfigError> {
    Ok(number(lookup, variable, "a port, 1 to 65535")?.unwrap_or(default))
}

fn seconds(lookup: Lookup, variable: &'static str, default: Duration) -> Result<Duration, ConfigError> {
    let expected = "a number of seconds above 0";
    match number::<f64>(lookup, variable, expected)? {
        None => Ok(default),
        Some(seconds) if seconds > 0.0 && seconds < 1e9 => Ok(Duration::from_secs_f64(seconds)),
        Some(seconds) => Err(ConfigError { variable, text: seconds.to_string(), expected }),
    }
}

fn yes(lookup: Lookup, variable: &'static str, default: bool) -> Result<bool, ConfigError> {
    match text(lookup, variable) {
        None => Ok(default),
        Some(text) if text.eq_ignore_ascii_case("yes") => Ok(true),
        Some(text) if text.eq_ignore_ascii_case("no") => Ok(false),
        Some(text) => Err(ConfigError { variable, text, expected: "YES or NO" }),
    }
}

fn multicast_ttl(lookup: Lookup) -> Result<u32, ConfigError> {
    let (variable, expected) = ("EPICS_CA_MCAST_TTL", "a number of routers, 1 to 255");
    Ok(number::<std::num::NonZeroU8>(lookup, variable, expected)?.map_or(1, |ttl| u32::from(ttl.get())))
}

/// Hosts, each with a port of its own if one is given, separated by blanks: first those that are
/// numbers, then those that have to be looked up, which is not done here, as it can take long.
fn hosts(lookup: Lookup, variable: &'static str, port: u16) -> Result<(Vec<SocketAddr>, Vec<Host>), ConfigError> {
    let (mut addresses, mut names) = (Vec::new(), Vec::new());
    for text in text(lookup, variable).unwrap_or_default().split_whitespace() {
        let (name, port) = match text.split_once(':') {
            None => (text, Some(port)),
            Some((name, port)) => (name, port.parse().ok().filter(|_| !name.is_empty())),
        };
        let Some(port) = port else {
            let expected = "hosts or addresses, each with \":port\" where it has its own";
            return Err(ConfigError { variable, text: text.to_owned(), expected });
        };
        let host = Host { name: name.to_owned(), port };
        match host.address() {
            Some(address) if !addresses.contains(&address) => addresses.push(address),
            None if !names.contains(&host) => names.push(host),
            _ => {}
        }
    }
    Ok((addresses, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table<'a>(rows: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| rows.iter().find(|row| row.0 == name).map(|row| row.1.to_owned())
    }

    #[test]
    fn an_address_list_keeps_ports_of_its_own_and_drops_doubles() {
        let lookup = table(&[
            ("EPICS_CA_ADDR_LIST", " 127.0.0.1 127.0.0.2:6000  127.0.0.1 "),
            ("EPICS_CA_AUTO_ADDR_LIST", "no"),
            ("EPICS_CA_SERVER_PORT", "5070"),
        ]);

        let config = ClientConfig::from_lookup(&lookup).unwrap();

        let expected = ["127.0.0.1:5070", "127.0.0.2:6000"].map(|text| text.parse::<SocketAddr>().unwrap());
        assert_eq!(config.search_addresses, expected);
    }

    #[test]
    fn row_59_a_name_in_a_list_is_kept_to_be_looked_up_and_stops_nobody() {
        let lookup = table(&[
            ("EPICS_CA_ADDR_LIST", "no-such-host.invalid 127.0.0.1 other.invalid:6000"),
            ("EPICS_CA_NAME_SERVERS", "10.0.0.1 names.invalid:7000"),
        ]);

        let config = ClientConfig::from_lookup(&lookup).unwrap();

        let host = |name: &str, port| Host { name: name.into(), port };
        assert_eq!(config.search_addresses, ["127.0.0.1:5064".parse::<SocketAddr>().unwrap()]);
        assert_eq!(config.search_hosts, [host("no-such-host.invalid", 5064), host("other.invalid", 6000)]);
        assert_eq!(config.name_servers, [host("10.0.0.1", 5064), host("names.invalid", 7000)]);
    }

    #[test]
    fn a_port_that_is_none_is_told_with_its_host() {
        let lookup = table(&[("EPICS_CA_ADDR_LIST", "127.0.0.1 host:many")]);

        assert_eq!(ClientConfig::from_lookup(&lookup).unwrap_err().text, "host:many");
    }

    #[test]
    fn searches_slow_down_to_the_period_that_is_set_but_not_below_a_minute() {
        let slow = |text| {
            let rows = [("EPICS_CA_MAX_SEARCH_PERIOD", text)];
            ClientConfig::from_lookup(&table(&rows)).unwrap().search_period_max.as_secs()
        };

        assert_eq!((slow("120"), slow("1"), slow("")), (120, 60, 300));
    }

    #[test]
    fn a_variable_that_cannot_be_understood_is_named() {
        let lookup = table(&[("EPICS_CA_AUTO_ADDR_LIST", "maybe")]);

        let error = ClientConfig::from_lookup(&lookup).unwrap_err();

        assert_eq!(error.to_string(), "EPICS_CA_AUTO_ADDR_LIST=\"maybe\": expected YES or NO");
    }

    #[test]
    fn a_server_takes_the_clients_port_and_list_where_it_has_none_of_its_own() {
        let lookup = table(&[
            ("EPICS_CA_SERVER_PORT", "6064"),
            ("EPICS_CA_REPEATER_PORT", "6065"),
            ("EPICS_CA_ADDR_LIST", "127.0.0.1"),
            ("EPICS_CAS_INTF_ADDR_LIST", "127.0.0.1"),
        ]);

        let config = ServerConfig::from_lookup(&lookup).unwrap();

        assert_eq!(config.port, 6064);
        assert_eq!(config.interfaces, [Ipv4Addr::LOCALHOST]);
        assert_eq!(config.beacon_addresses, ["127.0.0.1:6065".parse::<SocketAddr>().unwrap()]);
    }

    #[test]
    fn an_array_limit_counts_only_when_the_automatic_one_is_off() {
        let fixed = table(&[("EPICS_CA_AUTO_ARRAY_BYTES", "NO"), ("EPICS_CA_MAX_ARRAY_BYTES", "100000")]);
        let automatic = table(&[("EPICS_CA_MAX_ARRAY_BYTES", "100000")]);

        assert_eq!(ClientConfig::from_lookup(&fixed).unwrap().payload_bytes_max, 101_024);
        assert!(ClientConfig::from_lookup(&automatic).unwrap().payload_bytes_max >= 64 * 1024 * 1024);
    }
}
