//! The environment variables of Channel Access as one table, and what they mean here.

use std::net::SocketAddr;
use std::time::Duration;

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
    pub interfaces: Vec<std::net::Ipv4Addr>,
    /// UDP port of searches, and TCP port when it is free (EPICS_CAS_SERVER_PORT). 0: any free pair.
    pub port: u16,
    /// Where beacons go (EPICS_CAS_BEACON_ADDR_LIST, _AUTO_BEACON_ADDR_LIST).
    pub beacon_addresses: Vec<SocketAddr>,
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

impl ClientConfig {
    /// From the process's environment.
    pub fn from_env() -> Result<ClientConfig, ConfigError> {
        todo!()
    }
}

impl ServerConfig {
    /// From the process's environment.
    pub fn from_env() -> Result<ServerConfig, ConfigError> {
        todo!()
    }
}
