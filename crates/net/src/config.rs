//! The environment variables of Channel Access, and what they mean here.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::interfaces;

/// The port of searches and, where it is free, of circuits.
pub const SERVER_PORT: u16 = 5064;
/// The port that beacons go to.
pub const REPEATER_PORT: u16 = 5065;

/// How a client finds servers and treats circuits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// Where searches go (EPICS_CA_ADDR_LIST, and the interfaces' broadcast addresses with
    /// EPICS_CA_AUTO_ADDR_LIST).
    pub search_addresses: Vec<SocketAddr>,
    /// Silence after which a server is asked for an echo (EPICS_CA_CONN_TMO).
    pub echo_after: Duration,
    /// Largest payload that is accepted, in bytes (EPICS_CA_MAX_ARRAY_BYTES, _AUTO_ARRAY_BYTES).
    pub payload_bytes_max: usize,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Interfaces to bind; empty for all (EPICS_CAS_INTF_ADDR_LIST).
    pub interfaces: Vec<Ipv4Addr>,
    /// UDP port of searches, and TCP port when it is free (EPICS_CAS_SERVER_PORT). 0: any free ports.
    pub port: u16,
    /// Where beacons go beside the interfaces' own (EPICS_CAS_BEACON_ADDR_LIST).
    pub beacon_addresses: Vec<SocketAddr>,
    /// Whether beacons go to the broadcast address of every interface that is bound
    /// (EPICS_CAS_AUTO_BEACON_ADDR_LIST).
    pub beacons_to_interfaces: bool,
    /// The port of those beacons (EPICS_CAS_BEACON_PORT).
    pub beacon_port: u16,
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
            search_addresses: interfaces::search_addresses(SERVER_PORT),
            echo_after: Duration::from_secs(30),
            payload_bytes_max: automatic_payload_bytes(),
        }
    }
}

impl ClientConfig {
    /// From the process's environment.
    pub fn from_env() -> Result<ClientConfig, ConfigError> {
        ClientConfig::from_lookup(&process)
    }

    fn from_lookup(lookup: Lookup) -> Result<ClientConfig, ConfigError> {
        let port = port(lookup, "EPICS_CA_SERVER_PORT", SERVER_PORT)?;
        let mut search_addresses = addresses(lookup, "EPICS_CA_ADDR_LIST", port)?;
        if yes(lookup, "EPICS_CA_AUTO_ADDR_LIST", true)? {
            for address in interfaces::search_addresses(port) {
                if !search_addresses.contains(&address) {
                    search_addresses.push(address);
                }
            }
        }
        Ok(ClientConfig {
            search_addresses,
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
            beacons_to_interfaces: true,
            beacon_port: REPEATER_PORT,
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
        let interfaces = addresses(lookup, "EPICS_CAS_INTF_ADDR_LIST", 0)?
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
        Ok(ServerConfig {
            interfaces,
            port: port(lookup, "EPICS_CAS_SERVER_PORT", client_port)?,
            beacon_addresses: addresses(lookup, list, beacon_port)?,
            beacons_to_interfaces: yes(lookup, automatic, true)?,
            beacon_port,
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

/// Hosts by name or number, each with a port of its own if one is given, separated by blanks.
fn addresses(lookup: Lookup, variable: &'static str, port: u16) -> Result<Vec<SocketAddr>, ConfigError> {
    let mut found = Vec::new();
    for host in text(lookup, variable).unwrap_or_default().split_whitespace() {
        let resolved = match host.contains(':') {
            true => host.to_socket_addrs(),
            false => (host, port).to_socket_addrs(),
        };
        let address = resolved.ok().and_then(|mut all| all.find(SocketAddr::is_ipv4));
        match address {
            Some(address) if !found.contains(&address) => found.push(address),
            Some(_) => {}
            None => {
                let expected = "hosts or addresses, each with \":port\" where it has its own";
                return Err(ConfigError { variable, text: host.to_owned(), expected });
            }
        }
    }
    Ok(found)
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
