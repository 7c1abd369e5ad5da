//! The configuration of clients and servers, and the environment variables that set it.

mod environment;
mod interface_address;
mod pva;
mod tls;
mod variable;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::time::Duration;

use self::environment::Variables;
pub use self::environment::{Origin, Setting};
pub use self::interface_address::InterfaceAddress;
pub use self::pva::{PvaClientConfig, PvaServerConfig};
pub use self::variable::{DefaultValue, VARIABLES, ValueFormat, Variable, VariableUser, help};
use crate::protocol::Protocol;
use crate::{interfaces, limit};

/// UDP port of searches and, if it is free, TCP port of circuits.
pub const SERVER_PORT: u16 = 5064;
/// The port to which beacons are sent.
pub const REPEATER_PORT: u16 = 5065;

/// How a client finds servers and manages circuits. Each field has its default, and the variable from which
/// [`ClientConfig::from_env`] reads it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use fodo_net::{ClientConfig, Context};
///
/// // Searches one host only, and waits for at most one second.
/// let config = ClientConfig {
///     operation_timeout: Duration::from_secs(1),
///     ..ClientConfig::with_addresses(vec!["192.0.2.7:5064".parse().unwrap()])
/// };
/// let context = Context::new(config);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// Addresses to search: hosts, broadcast addresses, multicast groups (addresses in EPICS_CA_ADDR_LIST). Default:
    /// none.
    pub search_addresses: Vec<SocketAddr>,
    /// Hosts to search by name; names are resolved periodically (names in EPICS_CA_ADDR_LIST). Default: none.
    pub search_hosts: Vec<Host>,
    /// The port for searches to the broadcast address of every interface, including interfaces that appear later;
    /// `None` disables them (EPICS_CA_AUTO_ADDR_LIST, EPICS_CA_SERVER_PORT). Default: [`SERVER_PORT`].
    pub interface_search_port: Option<u16>,
    /// Name servers to query over TCP (EPICS_CA_NAME_SERVERS). Default: none.
    pub name_servers: Vec<Host>,
    /// The longest time between two searches for a name that no server claims (EPICS_CA_MAX_SEARCH_PERIOD). Default:
    /// 300 s.
    pub search_period_max: Duration,
    /// The port of the host's repeater, which forwards beacons. If there is none, this process becomes the repeater.
    /// `None`: beacons are not received (EPICS_CA_REPEATER_PORT). Default: [`REPEATER_PORT`].
    pub repeater_port: Option<u16>,
    /// Maximum number of routers that a multicast passes (EPICS_CA_MCAST_TTL). Default: 1.
    pub multicast_ttl: u32,
    /// Silence after which the client sends an echo request (EPICS_CA_CONN_TMO). Default: 30 s.
    pub echo_after: Duration,
    /// Largest accepted payload, in bytes (EPICS_CA_MAX_ARRAY_BYTES, EPICS_CA_AUTO_ARRAY_BYTES). Default: a quarter of
    /// the memory, at least 64 MiB.
    pub payload_bytes_max: usize,
    /// Timeout of calls without one of their own, such as [`Channel::get`](crate::Channel::get), and of every awaited
    /// [`Operation`](crate::Operation), from its first poll: it also ends one that is awaited within a longer timeout
    /// of an async runtime. A put with completion takes as long as its record does. [`Duration::MAX`]: no limit. No
    /// variable sets it. Default: 5 s.
    pub operation_timeout: Duration,
    /// How long a blocking call polls for its reply before it sleeps. Waking a sleeping thread on another core takes
    /// longer than the reply; polling uses a whole core (FODO_SPIN_US). Default: 0.
    pub spin: Duration,
    /// How long requests wait for more, so that they are sent together; 16 KiB do not wait (FODO_FLUSH_DELAY_US). It
    /// delays every request, also that of a blocking call. Default: 0.
    pub flush_delay: Duration,
    /// The user name that servers receive, for their access rules. `None`, the default: that of the environment (USER,
    /// LOGNAME or USERNAME) when a circuit opens, or `unknown`.
    pub user: Option<String>,
    /// The protocol of names without a scheme, `ca://` or `pva://` (FODO_PROTOCOL). Default: Channel Access.
    pub default_protocol: Protocol,
    /// How servers are found over pvAccess. Where a field above has the same name, it applies to Channel Access only;
    /// the others apply to both protocols.
    pub pva: PvaClientConfig,
}

/// A host, given by name or by address, as text.
///
/// See the example of [`Host::address`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// The name or address.
    pub name: String,
    /// The port.
    pub port: u16,
}

impl Host {
    /// The address, if the name is one. An address of IPv6 with an interface, as in `fe80::1%eth0`, is one while this host has
    /// the interface. Channel Access ignores addresses of IPv6.
    ///
    /// # Examples
    ///
    /// ```
    /// use fodo_net::Host;
    ///
    /// let gateway = Host { name: "192.0.2.7".into(), port: 5064 };
    /// assert_eq!(gateway.address(), Some("192.0.2.7:5064".parse().unwrap()));
    /// let neighbour = Host { name: "2001:db8::7".into(), port: 5075 };
    /// assert_eq!(neighbour.address(), Some("[2001:db8::7]:5075".parse().unwrap()));
    /// assert_eq!(Host { name: "gateway".into(), port: 5064 }.address(), None);
    /// ```
    pub fn address(&self) -> Option<SocketAddr> {
        if let Ok(ip) = self.name.parse::<Ipv4Addr>() {
            return Some(SocketAddr::from((ip, self.port)));
        }
        let (ip, interface) = match self.name.split_once('%') {
            Some((ip, interface)) => (ip, Some(interface)),
            None => (self.name.as_str(), None),
        };
        let ip: Ipv6Addr = ip.parse().ok()?;
        let index = interface.map_or(Some(0), interfaces::index_of)?;
        Some(SocketAddrV6::new(ip, self.port, 0, index).into())
    }

    /// The host with this address.
    pub(crate) fn at(address: SocketAddr) -> Host {
        Host { name: InterfaceAddress::from(address).to_string(), port: address.port() }
    }

    /// Whether the name is an address of IPv6, perhaps with an interface, as in `fe80::1%eth0`. It is never resolved.
    pub(crate) fn is_ipv6(name: &str) -> bool {
        name.split('%').next().is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
    }

    /// Resolves the name with the system's resolver; this may take long. Addresses of IPv4 are preferred.
    pub(crate) fn resolved(&self) -> Option<SocketAddr> {
        if Host::is_ipv6(&self.name) {
            return self.address();
        }
        let addresses: Vec<SocketAddr> = (self.name.as_str(), self.port).to_socket_addrs().ok()?.collect();
        addresses.iter().find(|address| address.is_ipv4()).or(addresses.first()).copied()
    }
}

/// Where a server listens, and the limits of its clients. Each field has its default, and the variable from which
/// [`ServerConfig::from_env`] reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Addresses of the interfaces to serve on; empty for all. Multicast groups in the list are joined on the others
    /// (EPICS_CAS_INTF_ADDR_LIST). Default: all.
    pub interfaces: Vec<Ipv4Addr>,
    /// Hosts whose UDP searches are ignored (EPICS_CAS_IGNORE_ADDR_LIST). Default: none.
    pub ignored: Vec<Ipv4Addr>,
    /// UDP port of searches, and TCP port if it is free (EPICS_CAS_SERVER_PORT). 0: any free ports. Default:
    /// [`SERVER_PORT`].
    pub port: u16,
    /// Beacon addresses in addition to those of the interfaces (addresses in EPICS_CAS_BEACON_ADDR_LIST). Default:
    /// none.
    pub beacon_addresses: Vec<SocketAddr>,
    /// Beacon hosts by name; names are resolved periodically (names in EPICS_CAS_BEACON_ADDR_LIST). Default: none.
    pub beacon_hosts: Vec<Host>,
    /// Whether beacons are sent to the broadcast address of every bound interface (EPICS_CAS_AUTO_BEACON_ADDR_LIST).
    /// Default: true.
    pub beacons_to_interfaces: bool,
    /// The port of those beacons (EPICS_CAS_BEACON_PORT). Default: [`REPEATER_PORT`].
    pub beacon_port: u16,
    /// The longest time between two beacons (EPICS_CAS_BEACON_PERIOD). Default: 15 s.
    pub beacon_period_max: Duration,
    /// Maximum number of routers that a multicast passes (EPICS_CA_MCAST_TTL). Default: 1.
    pub multicast_ttl: u32,
    /// Largest accepted payload, in bytes (EPICS_CA_MAX_ARRAY_BYTES, EPICS_CA_AUTO_ARRAY_BYTES). Default: a quarter of
    /// the memory, at least 64 MiB.
    pub payload_bytes_max: usize,
    /// How long the server's threads poll for work before they sleep; see [`ClientConfig::spin`] (FODO_SPIN_US).
    /// Default: 0.
    pub spin: Duration,
    /// How long replies and updates wait for more, so that they are sent together; 16 KiB do not wait
    /// (FODO_FLUSH_DELAY_US). Default: 0.
    pub flush_delay: Duration,
    /// Prefix of the PVs with the server's own status; a colon follows it. `None`, the default: no status is served. No
    /// variable sets it.
    pub status_prefix: Option<String>,
    /// The TCP port of all circuits, of both protocols; 0: any free port. The first byte of a client shows its protocol,
    /// and one that has sent nothing for 50 ms is served pvAccess, which therefore takes this much longer to connect. It
    /// fails to start if the port is in use. Searches and beacons use the other ports as before; with searches over TCP
    /// this is the only port that a firewall must let pass. `None`, the default: each protocol has its port. No variable
    /// sets it.
    pub one_port: Option<u16>,
    /// Limits per client and host, for both protocols together. No variable sets it.
    pub quotas: Quotas,
    /// Where pvAccess is served; `None`: it is not served. No variable disables it. Where a field above has the same name,
    /// it applies to Channel Access only; the others apply to both protocols.
    pub pva: Option<PvaServerConfig>,
}

/// Limits on what clients may use. Each is far above the needs of a well-behaved client. A host is an address of IPv4, or all
/// addresses of a network of IPv6 (`/64`), which one host can use.
///
/// ```
/// use fodo_net::{Quotas, ServerConfig};
///
/// // Only a few programs are expected on each host.
/// let quotas = Quotas { host_circuits: 100, ..Quotas::default() };
/// let config = ServerConfig { quotas, ..ServerConfig::default() };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Bytes for all circuits of one host together: their state and their queues. One circuit may use half of them for
    /// state. Default: 2 GiB.
    pub host_bytes: usize,
    /// Circuits of one host. Default: 16 384.
    pub host_circuits: usize,
    /// Bytes of searches from one source that are answered in a quarter of a second. Default: 10 MiB.
    pub source_search_bytes: usize,
    /// The same for all sources together; when it is used up, each source has an equal part of it. Default: 16 MiB.
    pub all_search_bytes: usize,
    /// How long a client may receive none of the data sent to it, or not answer the system's keep-alive probes, before
    /// its connection is closed. Only Linux supports the former. Default: 120 s.
    pub silence: Duration,
    /// How long a client may stay that has sent no request and no identity. Default: 60 s.
    pub silent_client: Duration,
    /// How long any other client may stay without a channel after its last request. Default: 600 s.
    pub unused_client: Duration,
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas {
            host_bytes: limit::HOST_BYTES,
            host_circuits: limit::HOST_CIRCUITS,
            source_search_bytes: fodo_engine::limit::SEARCH_SOURCE_BYTES,
            all_search_bytes: fodo_engine::limit::SEARCH_ALL_BYTES,
            silence: limit::CLIENT_GONE,
            silent_client: limit::SILENT_CLIENT,
            unused_client: limit::UNUSED_CLIENT,
        }
    }
}

/// A variable whose value is invalid.
///
/// See the example of [`ClientConfig::from_variables`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The variable's name.
    pub variable: &'static str,
    /// Its text.
    pub text: String,
    /// What was expected.
    pub expected: &'static str,
    /// Why the text, or the file that it names, cannot be used although it has the expected form; empty otherwise.
    pub reason: String,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}=\"{}\": expected {}", self.variable, self.text, self.expected)?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

impl std::error::Error for ConfigError {}

/// Every variable of both protocols with its value in the process's environment.
///
/// Resolves host names in the lists that a server needs before it starts; this may take long.
///
/// # Examples
///
/// ```
/// for setting in fodo_net::config::settings() {
///     println!("{} = {:?}, from {:?}", setting.variable.name, setting.value, setting.origin);
/// }
/// ```
pub fn settings() -> Vec<Setting> {
    Variables { lookup: &process }.settings()
}

/// Variables of the process's environment that start like those of Channel Access or pvAccess but are unknown.
/// Variables that only other implementations use are known.
///
/// # Examples
///
/// ```
/// for name in fodo_net::config::unknown_variables() {
///     eprintln!("{name} is not a variable of Channel Access or pvAccess: is it misspelt?");
/// }
/// ```
pub fn unknown_variables() -> Vec<String> {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let mut unknown: Vec<String> = names.filter(|name| is_unknown(name)).collect();
    unknown.sort();
    unknown
}

/// The names of all variables of both protocols, also those that only other implementations use.
///
/// # Examples
///
/// ```
/// assert!(fodo_net::config::known_variables().any(|name| name == "EPICS_CA_ADDR_LIST"));
/// ```
pub fn known_variables() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().map(|variable| variable.name).chain(variable::UNUSED)
}

fn is_unknown(name: &str) -> bool {
    let prefixes = ["EPICS_CA_", "EPICS_CAS_", "EPICS_PVA_", "EPICS_PVAS_"];
    prefixes.iter().any(|prefix| name.starts_with(prefix)) && known_variables().all(|known| known != name)
}

/// Non-UTF-8 values are converted lossily, so that parsing rejects them.
fn process(name: &str) -> Option<String> {
    std::env::var_os(name).map(|text| text.to_string_lossy().into_owned())
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            interface_search_port: Some(SERVER_PORT),
            repeater_port: Some(REPEATER_PORT),
            pva: PvaClientConfig::default(),
            ..ClientConfig::with_addresses(Vec::new())
        }
    }
}

impl ClientConfig {
    /// Searches only these addresses, over Channel Access, and receives no beacons; all else as by default.
    /// See the example of [`ClientConfig`].
    pub fn with_addresses(search_addresses: Vec<SocketAddr>) -> ClientConfig {
        ClientConfig {
            search_addresses,
            search_hosts: Vec::new(),
            interface_search_port: None,
            name_servers: Vec::new(),
            search_period_max: fodo_engine::limit::SEARCH_PERIOD_MAX,
            repeater_port: None,
            multicast_ttl: 1,
            echo_after: Duration::from_secs(30),
            payload_bytes_max: automatic_payload_bytes(),
            operation_timeout: limit::OPERATION,
            spin: Duration::ZERO,
            flush_delay: Duration::ZERO,
            user: None,
            default_protocol: Protocol::default(),
            pva: PvaClientConfig::with_addresses(Vec::new()),
        }
    }

    /// Reads the process's environment. Fails if a variable is invalid.
    /// See the example of [`ClientConfig::from_variables`].
    pub fn from_env() -> Result<ClientConfig, ConfigError> {
        ClientConfig::from_variables(&process)
    }

    /// Like [`ClientConfig::from_env`], with `lookup` in place of the environment.
    ///
    /// # Examples
    ///
    /// ```
    /// use fodo_net::ClientConfig;
    ///
    /// let config = ClientConfig::from_variables(&|name| (name == "EPICS_CA_ADDR_LIST").then(|| "192.0.2.7".into()));
    /// assert_eq!(config.unwrap().search_addresses, ["192.0.2.7:5064".parse().unwrap()]);
    ///
    /// let error = ClientConfig::from_variables(&|name| (name == "EPICS_CA_CONN_TMO").then(|| "soon".into())).unwrap_err();
    /// assert_eq!(error.variable, "EPICS_CA_CONN_TMO");
    /// ```
    pub fn from_variables(lookup: &dyn Fn(&str) -> Option<String>) -> Result<ClientConfig, ConfigError> {
        ClientConfig::from_environment(&Variables { lookup })
    }

    fn from_environment(environment: &Variables) -> Result<ClientConfig, ConfigError> {
        let port = environment.port(&variable::SERVER_PORT)?;
        let (search_addresses, search_hosts) = environment.hosts(&variable::ADDR_LIST, port)?;
        let (name_servers, by_name) = environment.hosts(&variable::NAME_SERVERS, port)?;
        let by_number = name_servers.into_iter().map(Host::at);
        Ok(ClientConfig {
            search_addresses,
            search_hosts,
            interface_search_port: environment.is_yes(&variable::AUTO_ADDR_LIST)?.then_some(port),
            name_servers: by_number.chain(by_name).collect(),
            search_period_max: environment.seconds(&variable::MAX_SEARCH_PERIOD)?,
            repeater_port: Some(environment.port(&variable::REPEATER_PORT)?),
            multicast_ttl: environment.hops(&variable::MCAST_TTL)?,
            echo_after: environment.seconds(&variable::CONN_TMO)?,
            payload_bytes_max: payload_bytes(environment)?,
            operation_timeout: limit::OPERATION,
            spin: environment.microseconds(&variable::SPIN)?,
            flush_delay: environment.microseconds(&variable::FLUSH_DELAY)?,
            user: None,
            default_protocol: environment.protocol(&variable::PROTOCOL)?,
            pva: PvaClientConfig::from_environment(environment)?,
        })
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            interfaces: Vec::new(),
            ignored: Vec::new(),
            port: SERVER_PORT,
            beacon_addresses: Vec::new(),
            beacon_hosts: Vec::new(),
            beacons_to_interfaces: true,
            beacon_port: REPEATER_PORT,
            beacon_period_max: fodo_ca::limit::BEACON_PERIODS.1,
            multicast_ttl: 1,
            payload_bytes_max: automatic_payload_bytes(),
            spin: Duration::ZERO,
            flush_delay: Duration::ZERO,
            status_prefix: None,
            one_port: None,
            quotas: Quotas::default(),
            pva: Some(PvaServerConfig::default()),
        }
    }
}

impl ServerConfig {
    /// For tests: the server is reachable from this host only, over both protocols, on free ports, and sends no beacons.
    /// All else as by default.
    ///
    /// With [`Server::client_config`](crate::Server::client_config) this makes a private pair of server and client:
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    ///
    /// use fodo_net::{Context, PvTable, Server, ServerConfig, SharedPv};
    ///
    /// let table = PvTable::from([("x", SharedPv::new(1.5))]);
    /// let server = Server::start(ServerConfig::isolated(), Arc::new(table))?;
    /// let context = Context::new(server.client_config());
    /// # let x = context.channel("x")?.get()?;
    /// # assert_eq!(x.value, 1.5.into());
    /// # Ok(())
    /// # }
    /// ```
    pub fn isolated() -> ServerConfig {
        ServerConfig {
            interfaces: vec![Ipv4Addr::LOCALHOST],
            port: 0,
            beacons_to_interfaces: false,
            pva: Some(PvaServerConfig::isolated()),
            ..ServerConfig::default()
        }
    }

    /// Reads the process's environment. Fails if a variable is invalid. Resolves the host names in
    /// EPICS_CAS_INTF_ADDR_LIST, EPICS_CAS_IGNORE_ADDR_LIST and the same lists of pvAccess, if there are any; this may
    /// take long.
    pub fn from_env() -> Result<ServerConfig, ConfigError> {
        ServerConfig::from_variables(&process)
    }

    /// Like [`ServerConfig::from_env`], with `lookup` in place of the environment.
    pub fn from_variables(lookup: &dyn Fn(&str) -> Option<String>) -> Result<ServerConfig, ConfigError> {
        ServerConfig::from_environment(&Variables { lookup })
    }

    fn from_environment(environment: &Variables) -> Result<ServerConfig, ConfigError> {
        let beacon_port = environment.port(&variable::CAS_BEACON_PORT)?;
        let (beacon_addresses, beacon_hosts) = environment.hosts(&variable::CAS_BEACON_ADDR_LIST, beacon_port)?;
        let mut interfaces = environment.ipv4_addresses(&variable::CAS_INTF_ADDR_LIST)?;
        interfaces.retain(|ip| !ip.is_unspecified());
        Ok(ServerConfig {
            interfaces,
            ignored: environment.ipv4_addresses(&variable::CAS_IGNORE_ADDR_LIST)?,
            port: environment.port(&variable::CAS_SERVER_PORT)?,
            beacon_addresses,
            beacon_hosts,
            beacons_to_interfaces: environment.is_yes(&variable::CAS_AUTO_BEACON_ADDR_LIST)?,
            beacon_port,
            beacon_period_max: environment.seconds(&variable::CAS_BEACON_PERIOD)?,
            multicast_ttl: environment.hops(&variable::MCAST_TTL)?,
            payload_bytes_max: payload_bytes(environment)?,
            spin: environment.microseconds(&variable::SPIN)?,
            flush_delay: environment.microseconds(&variable::FLUSH_DELAY)?,
            status_prefix: None,
            one_port: None,
            quotas: Quotas::default(),
            pva: Some(PvaServerConfig::from_environment(environment)?),
        })
    }
}

/// A quarter of the memory: the largest payload if no limit is set.
#[cfg(target_os = "linux")]
fn automatic_payload_bytes() -> usize {
    let memory = rustix::system::sysinfo();
    let total = (memory.totalram as usize).saturating_mul(memory.mem_unit.max(1) as usize);
    (total / 4).max(64 * 1024 * 1024)
}

/// The largest payload if no limit is set, on systems where the memory size is unknown.
#[cfg(not(target_os = "linux"))]
fn automatic_payload_bytes() -> usize {
    1024 * 1024 * 1024
}

fn payload_bytes(environment: &Variables) -> Result<usize, ConfigError> {
    if environment.is_yes(&variable::AUTO_ARRAY_BYTES)? {
        return Ok(automatic_payload_bytes());
    }
    // The limit applies to the array; a payload also contains its metadata.
    Ok(environment.bytes(&variable::MAX_ARRAY_BYTES)?.saturating_add(limit::METADATA_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table<'a>(rows: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| rows.iter().find(|row| row.0 == name).map(|row| row.1.to_owned())
    }

    fn client(lookup: &dyn Fn(&str) -> Option<String>) -> Result<ClientConfig, ConfigError> {
        ClientConfig::from_environment(&Variables { lookup })
    }

    fn server(lookup: &dyn Fn(&str) -> Option<String>) -> Result<ServerConfig, ConfigError> {
        ServerConfig::from_environment(&Variables { lookup })
    }

    fn setting(rows: &[(&str, &str)], name: &str) -> Setting {
        let settings = Variables { lookup: &table(rows) }.settings();
        settings.into_iter().find(|setting| setting.variable.name == name).unwrap()
    }

    #[test]
    fn an_empty_environment_means_the_defaults() {
        let nothing = table(&[]);

        assert_eq!(client(&nothing).unwrap(), ClientConfig::default());
        assert_eq!(server(&nothing).unwrap(), ServerConfig::default());
    }

    #[test]
    fn a_setting_reports_its_origin() {
        let rows = [("EPICS_CA_SERVER_PORT", "6064"), ("EPICS_CAS_BEACON_PORT", " ")];

        let origins = ["EPICS_CA_SERVER_PORT", "EPICS_CAS_SERVER_PORT", "EPICS_CAS_BEACON_PORT"].map(|name| {
            let setting = setting(&rows, name);
            (setting.value.unwrap(), setting.origin)
        });

        assert_eq!(
            origins,
            [
                ("6064".to_owned(), Origin::Environment),
                ("6064".to_owned(), Origin::Variable("EPICS_CA_SERVER_PORT")),
                ("5065".to_owned(), Origin::Default),
            ]
        );
    }

    #[test]
    fn a_setting_that_is_adjusted_or_unused_has_a_remark() {
        let slow = setting(&[("EPICS_CA_MAX_SEARCH_PERIOD", "1")], "EPICS_CA_MAX_SEARCH_PERIOD");
        let unused = setting(&[("EPICS_CA_MAX_ARRAY_BYTES", "100000")], "EPICS_CA_MAX_ARRAY_BYTES");
        let plain = setting(&[("EPICS_CA_CONN_TMO", "2.5")], "EPICS_CA_CONN_TMO");

        assert_eq!((slow.value.unwrap().as_str(), slow.remark.as_deref()), ("60", Some("raised from 1")));
        assert!(unused.remark.unwrap().starts_with("not used: EPICS_CA_AUTO_ARRAY_BYTES is YES"));
        assert_eq!((plain.value.unwrap().as_str(), plain.remark), ("2.5", None));
    }

    #[test]
    fn an_error_names_the_variable_that_holds_the_wrong_text() {
        let wrong = setting(&[("EPICS_CA_SERVER_PORT", "many")], "EPICS_CAS_SERVER_PORT");

        assert_eq!(wrong.value.unwrap_err().variable, "EPICS_CA_SERVER_PORT");
    }

    #[test]
    fn a_misspelt_variable_is_unknown_and_variables_of_other_programs_are_not() {
        let misspelt = ["EPICS_CA_ADDRLIST", "EPICS_CAS_PORT", "EPICS_PVA_ADDRLIST", "EPICS_PVAS_PORT"];
        let known = ["EPICS_CA_ADDR_LIST", "EPICS_PVA_ADDR_LIST", "EPICS_PVA_DEBUG", "EPICS_PVACMS_DB", "HOME"];

        assert_eq!(misspelt.map(is_unknown), [true; 4]);
        assert_eq!(known.map(is_unknown), [false; 5]);
        assert!(variable::UNUSED.iter().all(|name| VARIABLES.iter().all(|variable| variable.name != *name)));
    }

    #[test]
    fn no_variable_falls_back_to_one_of_another_format() {
        for variable in VARIABLES {
            if let DefaultValue::Variable(other) = variable.default {
                assert_eq!(variable.format, other.format, "{}", variable.name);
            }
        }
    }

    #[test]
    fn an_address_list_keeps_explicit_ports_and_drops_duplicates() {
        let lookup = table(&[
            ("EPICS_CA_ADDR_LIST", " 127.0.0.1 127.0.0.2:6000  127.0.0.1 "),
            ("EPICS_CA_AUTO_ADDR_LIST", "no"),
            ("EPICS_CA_SERVER_PORT", "5070"),
        ]);

        let config = client(&lookup).unwrap();

        let expected = ["127.0.0.1:5070", "127.0.0.2:6000"].map(|text| text.parse::<SocketAddr>().unwrap());
        assert_eq!(config.search_addresses, expected);
    }

    // Row 59 of docs/reference/faults.md.
    #[test]
    fn unresolved_host_names_in_a_list_are_kept_and_cause_no_error() {
        let lookup = table(&[
            ("EPICS_CA_ADDR_LIST", "no-such-host.invalid 127.0.0.1 other.invalid:6000"),
            ("EPICS_CA_NAME_SERVERS", "10.0.0.1 names.invalid:7000"),
        ]);

        let config = client(&lookup).unwrap();

        let host = |name: &str, port| Host { name: name.into(), port };
        assert_eq!(config.search_addresses, ["127.0.0.1:5064".parse::<SocketAddr>().unwrap()]);
        assert_eq!(config.search_hosts, [host("no-such-host.invalid", 5064), host("other.invalid", 6000)]);
        assert_eq!(config.name_servers, [host("10.0.0.1", 5064), host("names.invalid", 7000)]);
    }

    #[test]
    fn an_invalid_port_is_reported_with_its_host() {
        let lookup = table(&[("EPICS_CA_ADDR_LIST", "127.0.0.1 host:many")]);

        assert_eq!(client(&lookup).unwrap_err().text, "host:many");
    }

    #[test]
    fn the_maximum_search_period_is_at_least_a_minute() {
        let slow = |text| {
            let rows = [("EPICS_CA_MAX_SEARCH_PERIOD", text)];
            client(&table(&rows)).unwrap().search_period_max.as_secs()
        };

        assert_eq!((slow("120"), slow("1"), slow("")), (120, 60, 300));
    }

    #[test]
    fn the_error_for_an_invalid_setting_names_its_variable() {
        let lookup = table(&[("EPICS_CA_AUTO_ADDR_LIST", "maybe")]);

        let error = client(&lookup).unwrap_err();

        assert_eq!(error.to_string(), "EPICS_CA_AUTO_ADDR_LIST=\"maybe\": expected YES or NO");
    }

    #[test]
    fn a_server_falls_back_to_the_client_port_and_address_list() {
        let lookup = table(&[
            ("EPICS_CA_SERVER_PORT", "6064"),
            ("EPICS_CA_REPEATER_PORT", "6065"),
            ("EPICS_CA_ADDR_LIST", "127.0.0.1"),
            ("EPICS_CAS_INTF_ADDR_LIST", "127.0.0.1"),
        ]);

        let config = server(&lookup).unwrap();

        assert_eq!(config.port, 6064);
        assert_eq!(config.interfaces, [Ipv4Addr::LOCALHOST]);
        assert_eq!(config.beacon_addresses, ["127.0.0.1:6065".parse::<SocketAddr>().unwrap()]);
    }

    #[test]
    fn an_array_limit_applies_only_when_the_automatic_limit_is_off() {
        let fixed = table(&[("EPICS_CA_AUTO_ARRAY_BYTES", "NO"), ("EPICS_CA_MAX_ARRAY_BYTES", "100000")]);
        let automatic = table(&[("EPICS_CA_MAX_ARRAY_BYTES", "100000")]);

        assert_eq!(client(&fixed).unwrap().payload_bytes_max, 101_024);
        assert!(client(&automatic).unwrap().payload_bytes_max >= 64 * 1024 * 1024);
    }

    /// The value of a variable set to this text, or the text of the error.
    fn understood(name: &str, text: &str) -> String {
        match setting(&[(name, text)], name).value {
            Ok(value) => value,
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_format_rejects_values_out_of_range_and_reports_what_it_expects() {
        for (name, text, expected) in [
            ("EPICS_CA_SERVER_PORT", " 6064 ", "6064"),
            ("EPICS_CA_SERVER_PORT", "65535", "65535"),
            ("EPICS_CA_SERVER_PORT", "65536", "EPICS_CA_SERVER_PORT=\"65536\": expected a port, 1 to 65535"),
            ("EPICS_CA_MCAST_TTL", "1", "1"),
            ("EPICS_CA_MCAST_TTL", "255", "255"),
            ("EPICS_CA_MCAST_TTL", "0", "EPICS_CA_MCAST_TTL=\"0\": expected a number of routers, 1 to 255"),
            ("EPICS_CA_MCAST_TTL", "256", "EPICS_CA_MCAST_TTL=\"256\": expected a number of routers, 1 to 255"),
            ("EPICS_CA_CONN_TMO", "0.25", "0.25"),
            ("EPICS_CA_CONN_TMO", "0", "EPICS_CA_CONN_TMO=\"0\": expected a number of seconds above 0"),
            ("EPICS_CA_CONN_TMO", "-1", "EPICS_CA_CONN_TMO=\"-1\": expected a number of seconds above 0"),
            ("EPICS_CA_CONN_TMO", "1e9", "EPICS_CA_CONN_TMO=\"1e9\": expected a number of seconds above 0"),
            ("EPICS_CA_CONN_TMO", "nan", "EPICS_CA_CONN_TMO=\"nan\": expected a number of seconds above 0"),
            ("EPICS_CA_MAX_SEARCH_PERIOD", "60", "60"),
            ("EPICS_CA_MAX_SEARCH_PERIOD", "59.9", "60"),
            ("EPICS_CA_AUTO_ADDR_LIST", "yEs", "YES"),
            ("EPICS_CA_AUTO_ADDR_LIST", "nO", "NO"),
            ("EPICS_CA_AUTO_ADDR_LIST", "1", "EPICS_CA_AUTO_ADDR_LIST=\"1\": expected YES or NO"),
            ("EPICS_CA_MAX_ARRAY_BYTES", "1", "16384"),
            ("EPICS_CA_MAX_ARRAY_BYTES", "16385", "16385"),
            ("EPICS_CA_MAX_ARRAY_BYTES", "-1", "EPICS_CA_MAX_ARRAY_BYTES=\"-1\": expected a number of bytes"),
            ("FODO_SPIN_US", "0", "0"),
            ("FODO_SPIN_US", "50", "50"),
            ("FODO_SPIN_US", "0.5", "FODO_SPIN_US=\"0.5\": expected a whole number of microseconds"),
            ("EPICS_CA_ADDR_LIST", " a:1  10.0.0.1\tb ", "a:1 10.0.0.1 b"),
            (
                "EPICS_CA_ADDR_LIST",
                "a:",
                "EPICS_CA_ADDR_LIST=\"a:\": expected host names or IPv4 addresses, each optionally with \":port\"",
            ),
            (
                "EPICS_CA_ADDR_LIST",
                "b :5",
                "EPICS_CA_ADDR_LIST=\":5\": expected host names or IPv4 addresses, each optionally with \":port\"",
            ),
            ("EPICS_CAS_INTF_ADDR_LIST", "127.0.0.1 127.0.0.2", "127.0.0.1 127.0.0.2"),
            ("EPICS_CAS_BEACON_PERIOD", "7.5", "7.5"),
        ] {
            assert_eq!(understood(name, text), expected, "{name}={text:?}");
        }
    }

    #[test]
    fn a_remark_reports_raised_and_unused_settings() {
        let remark = |rows: &[(&str, &str)], name| setting(rows, name).remark;
        let fixed = ("EPICS_CA_AUTO_ARRAY_BYTES", "NO");

        assert_eq!(
            remark(&[fixed, ("EPICS_CA_MAX_ARRAY_BYTES", "100")], "EPICS_CA_MAX_ARRAY_BYTES"),
            Some("raised from 100".into())
        );
        assert_eq!(remark(&[fixed, ("EPICS_CA_MAX_ARRAY_BYTES", "16384")], "EPICS_CA_MAX_ARRAY_BYTES"), None);
        assert_eq!(remark(&[], "EPICS_CA_AUTO_ARRAY_BYTES"), None);
        assert!(remark(&[], "EPICS_CA_MAX_ARRAY_BYTES").is_some());
        assert_eq!(
            remark(&[("EPICS_CA_MAX_SEARCH_PERIOD", "0")], "EPICS_CA_MAX_SEARCH_PERIOD"),
            None,
            "it is an error"
        );
        assert_eq!(remark(&[("EPICS_CA_SERVER_PORT", "7")], "EPICS_CA_SERVER_PORT"), None);
        let twice = Some("an address is listed more than once".to_owned());
        for (name, list) in [
            ("EPICS_CAS_INTF_ADDR_LIST", "127.0.0.1 localhost"),
            ("EPICS_PVAS_IGNORE_ADDR_LIST", "::1 [::1]:5"),
            ("EPICS_CA_ADDR_LIST", "a b a"),
        ] {
            assert_eq!(remark(&[(name, list)], name), twice, "{list}");
            assert_eq!(remark(&[(name, "127.0.0.1 127.0.0.2")], name), None);
        }
    }

    #[test]
    fn a_host_is_listed_once_per_port() {
        let lookup = table(&[("EPICS_CA_ADDR_LIST", "a a:5064 a:6000 10.0.0.1:1 10.0.0.1:2 10.0.0.1:1")]);

        let config = client(&lookup).unwrap();

        assert_eq!(config.search_hosts.len(), 2);
        assert_eq!(config.search_addresses.len(), 2);
    }

    #[test]
    fn an_interface_is_listed_once_by_address_name_and_port() {
        let lookup = table(&[
            ("EPICS_CAS_INTF_ADDR_LIST", "127.0.0.1 localhost 127.0.0.1:6000 127.0.0.2 localhost:7"),
            ("EPICS_CAS_IGNORE_ADDR_LIST", "localhost 127.0.0.1"),
            ("EPICS_PVAS_INTF_ADDR_LIST", "::1 [::1]:6000 ::ffff:127.0.0.1 localhost 127.0.0.1"),
        ]);

        let config = server(&lookup).unwrap();

        assert_eq!(config.interfaces, [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)]);
        assert_eq!(config.ignored, [Ipv4Addr::LOCALHOST]);
        assert_eq!(
            config.pva.unwrap().interfaces.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["::1", "127.0.0.1"]
        );
    }

    #[test]
    fn each_variable_of_a_client_sets_its_own_option() {
        let lookup = table(&[
            ("EPICS_CA_AUTO_ADDR_LIST", "NO"),
            ("EPICS_CA_REPEATER_PORT", "7065"),
            ("EPICS_CA_MCAST_TTL", "5"),
            ("EPICS_CA_CONN_TMO", "12"),
            ("FODO_SPIN_US", "50"),
            ("FODO_FLUSH_DELAY_US", "1500"),
        ]);

        let config = client(&lookup).unwrap();
        let flush_delay_of_server = server(&lookup).unwrap().flush_delay;

        assert_eq!((config.interface_search_port, config.repeater_port, config.multicast_ttl), (None, Some(7065), 5));
        assert_eq!((config.echo_after, config.spin), (Duration::from_secs(12), Duration::from_micros(50)));
        assert_eq!([config.flush_delay, flush_delay_of_server], [Duration::from_micros(1500); 2]);
        assert_eq!(client(&table(&[("EPICS_CA_SERVER_PORT", "6064")])).unwrap().interface_search_port, Some(6064));
    }

    #[test]
    fn each_variable_of_a_server_sets_its_own_option() {
        let lookup = table(&[
            ("EPICS_CAS_INTF_ADDR_LIST", "0.0.0.0 127.0.0.1"),
            ("EPICS_CAS_IGNORE_ADDR_LIST", "10.0.0.7"),
            ("EPICS_CAS_SERVER_PORT", "6064"),
            ("EPICS_CAS_BEACON_ADDR_LIST", "10.0.0.255"),
            ("EPICS_CAS_AUTO_BEACON_ADDR_LIST", "NO"),
            ("EPICS_CAS_BEACON_PORT", "7065"),
            ("EPICS_CAS_BEACON_PERIOD", "3"),
        ]);

        let config = server(&lookup).unwrap();

        assert_eq!((config.interfaces, config.ignored), (vec![Ipv4Addr::LOCALHOST], vec![Ipv4Addr::new(10, 0, 0, 7)]));
        assert_eq!((config.port, config.beacon_port, config.beacons_to_interfaces), (6064, 7065, false));
        assert_eq!(config.beacon_addresses, ["10.0.0.255:7065".parse::<SocketAddr>().unwrap()]);
        assert_eq!(config.beacon_period_max, Duration::from_secs(3));
    }

    #[test]
    fn the_settings_and_configurations_of_this_process_cover_every_variable() {
        let settings = settings();

        assert!(settings.iter().map(|setting| setting.variable).eq(VARIABLES.iter().copied()));
        assert_eq!(process("NO_SUCH_VARIABLE_HERE"), None);
        assert!(process("PATH").is_some_and(|path| path.contains('/')));
        assert!(unknown_variables().iter().all(|name| is_unknown(name)));
    }

    #[test]
    fn the_default_payload_limit_is_a_quarter_of_the_memory() {
        let bytes = automatic_payload_bytes();

        assert!(bytes >= 64 * 1024 * 1024, "{bytes}");
        #[cfg(target_os = "linux")]
        {
            let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
            let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
            let memory: usize = 1024 * total.trim().trim_end_matches(" kB").parse::<usize>().unwrap();
            assert!(bytes <= 64 * 1024 * 1024 || (memory / 5..memory / 2).contains(&bytes), "{bytes} of {memory}");
        }
    }
}
