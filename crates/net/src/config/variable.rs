//! The environment variables of Channel Access and of pvAccess, and our own. The parser, `fodo config`, the help texts and the
//! reference page are all made from this one table.

use std::time::Duration;

use crate::limit;

/// An environment variable.
///
/// See the example of [`help`].
#[derive(Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Which side uses it.
    pub user: VariableUser,
    /// What it does, in a few words.
    pub purpose: &'static str,
    /// The default if it is not set. As in EPICS base, an empty variable counts as not set.
    pub default: DefaultValue,
    /// How its text is parsed.
    pub format: ValueFormat,
}

/// Which side uses a variable.
///
/// See the example of [`help`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableUser {
    /// Clients. Servers may fall back to it.
    Client,
    /// Servers.
    Server,
    /// Both.
    Both,
}

/// The default of a variable that is not set.
///
/// See the example of [`help`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// This text.
    Text(&'static str),
    /// The value of another variable.
    Variable(&'static Variable),
}

/// How a variable's text is parsed.
///
/// See the example of [`help`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueFormat {
    /// Host addresses or names, each optionally with `:port`, separated by blanks.
    Hosts,
    /// The same, each optionally after `pvas://`, for TLS, or `pva://`.
    NameServers,
    /// Addresses, or names that are resolved when the program starts, separated by blanks.
    Addresses,
    /// A port.
    Port,
    /// Seconds above 0; smaller values are raised to this minimum.
    Seconds(Duration),
    /// YES or NO.
    YesNo,
    /// A number of bytes; smaller values are raised to this minimum.
    Bytes(usize),
    /// A number of routers, 1 to 255.
    Hops,
    /// Microseconds, 0 or more.
    Microseconds,
    /// The name of a protocol.
    Protocol,
    /// The name of a file; a keychain may be followed by `;` and its password, which is never shown.
    File,
    /// Options of TLS, separated by blanks.
    TlsOptions,
}

impl ValueFormat {
    /// What is expected, for an error text. Only pvAccess has IPv6.
    pub(super) const fn expected(self, is_of_pvaccess: bool) -> &'static str {
        match self {
            ValueFormat::Hosts if is_of_pvaccess => {
                "host names, IPv4 addresses or IPv6 addresses in brackets, each optionally with \":port\""
            }
            ValueFormat::NameServers => {
                "host names, IPv4 addresses or IPv6 addresses in brackets, each optionally with \":port\", after pvas:// for TLS"
            }
            ValueFormat::Addresses if is_of_pvaccess => "IPv4 or IPv6 addresses, or host names that can be resolved",
            ValueFormat::Hosts => "host names or IPv4 addresses, each optionally with \":port\"",
            ValueFormat::Addresses => "IPv4 addresses, or host names that can be resolved",
            ValueFormat::Port => "a port, 1 to 65535",
            ValueFormat::Seconds(_) => "a number of seconds above 0",
            ValueFormat::YesNo => "YES or NO",
            ValueFormat::Bytes(_) => "a number of bytes",
            ValueFormat::Hops => "a number of routers, 1 to 255",
            ValueFormat::Microseconds => "a whole number of microseconds",
            ValueFormat::Protocol => "ca or pva",
            ValueFormat::File => "the name of a file",
            ValueFormat::TlsOptions => "client_cert=optional or client_cert=require",
        }
    }
}

impl Variable {
    /// Whether its text has the additions that pvxs accepts: in lists the number of routers and the interface of a
    /// multicast group, as in `224.0.1.1,3@10.0.0.5`; 1 and 0 for YES and NO.
    pub(super) fn is_of_pvaccess(&self) -> bool {
        self.name.starts_with("EPICS_PVA")
    }
}

/// All variables: first those of clients, then those of servers; for each of them first Channel Access.
/// See the example of [`help`].
pub static VARIABLES: [&Variable; 43] = [
    &ADDR_LIST,
    &AUTO_ADDR_LIST,
    &NAME_SERVERS,
    &SERVER_PORT,
    &REPEATER_PORT,
    &MAX_SEARCH_PERIOD,
    &MCAST_TTL,
    &CONN_TMO,
    &AUTO_ARRAY_BYTES,
    &MAX_ARRAY_BYTES,
    &PVA_ADDR_LIST,
    &PVA_AUTO_ADDR_LIST,
    &PVA_INTF_ADDR_LIST,
    &PVA_NAME_SERVERS,
    &PVA_BROADCAST_PORT,
    &PVA_SERVER_PORT,
    &PVA_CONN_TMO,
    &PVA_TLS_KEYCHAIN,
    &PVA_TLS_KEYCHAIN_PWD_FILE,
    &PVA_TLS_PORT,
    &PVA_TLS_OPTIONS,
    &PVA_TLS_ONLY,
    &PROTOCOL,
    &SPIN,
    &FLUSH_DELAY,
    &BEACON_PERIOD,
    &CAS_INTF_ADDR_LIST,
    &CAS_IGNORE_ADDR_LIST,
    &CAS_SERVER_PORT,
    &CAS_BEACON_ADDR_LIST,
    &CAS_AUTO_BEACON_ADDR_LIST,
    &CAS_BEACON_PORT,
    &CAS_BEACON_PERIOD,
    &PVAS_INTF_ADDR_LIST,
    &PVAS_IGNORE_ADDR_LIST,
    &PVAS_SERVER_PORT,
    &PVAS_BROADCAST_PORT,
    &PVAS_BEACON_ADDR_LIST,
    &PVAS_AUTO_BEACON_ADDR_LIST,
    &PVAS_TLS_KEYCHAIN,
    &PVAS_TLS_KEYCHAIN_PWD_FILE,
    &PVAS_TLS_PORT,
    &PVAS_TLS_OPTIONS,
];

/// Variables of other implementations of pvAccess, without a use here: limits of their buffers, their log.
pub(super) static UNUSED: [&str; 15] = [
    "EPICS_PVA_BEACON_PERIOD",
    "EPICS_PVA_DEBUG",
    "EPICS_PVA_ENABLE_IPV6",
    "EPICS_PVA_FAST_BEACON_MAX",
    "EPICS_PVA_FAST_BEACON_MIN",
    "EPICS_PVA_MAX_ARRAY_BYTES",
    "EPICS_PVA_MAX_ARRAY_FORMATTING",
    "EPICS_PVA_MAX_BEACON_AGE",
    "EPICS_PVA_MULTICAST_GROUP",
    "EPICS_PVA_SEND_BUFFER_SIZE",
    "EPICS_PVA_TCP_SOCKET_TMO",
    "EPICS_PVAS_BEACON_PERIOD",
    "EPICS_PVAS_MAX_ARRAY_BYTES",
    "EPICS_PVAS_PROVIDER_NAMES",
    "EPICS_PVAS_TLS_STOP_IF_NO_CERT",
];

/// A help line for each variable whose user `is_selected` accepts: its name, what it does, and its default.
///
/// # Examples
///
/// ```
/// use fodo_net::config::{VARIABLES, VariableUser, help};
///
/// // The section of a client's help text on its environment.
/// println!("{}", help(|user| user != VariableUser::Server));
/// assert!(VARIABLES.iter().any(|variable| variable.name == "EPICS_CA_ADDR_LIST"));
/// ```
pub fn help(is_selected: impl Fn(VariableUser) -> bool) -> String {
    let selected = VARIABLES.iter().filter(|variable| is_selected(variable.user));
    let lines = selected.map(|variable| {
        let otherwise = match variable.default {
            DefaultValue::Text("") => String::new(),
            DefaultValue::Text(text) => format!(" ({text})"),
            DefaultValue::Variable(other) => format!(" ({})", other.name),
        };
        format!("  {:<32}  {}{otherwise}", variable.name, variable.purpose)
    });
    lines.collect::<Vec<_>>().join("\n")
}

const fn variable(
    name: &'static str,
    side: VariableUser,
    form: ValueFormat,
    otherwise: DefaultValue,
    purpose: &'static str,
) -> Variable {
    Variable { name, user: side, purpose, default: otherwise, format: form }
}

const fn client(name: &'static str, form: ValueFormat, default: &'static str, purpose: &'static str) -> Variable {
    variable(name, VariableUser::Client, form, DefaultValue::Text(default), purpose)
}

const fn server(name: &'static str, form: ValueFormat, otherwise: DefaultValue, purpose: &'static str) -> Variable {
    variable(name, VariableUser::Server, form, otherwise, purpose)
}

pub(super) static ADDR_LIST: Variable =
    client("EPICS_CA_ADDR_LIST", ValueFormat::Hosts, "", "search addresses: hosts, networks, groups");
pub(super) static AUTO_ADDR_LIST: Variable =
    client("EPICS_CA_AUTO_ADDR_LIST", ValueFormat::YesNo, "YES", "YES: also broadcast on all interfaces");
pub(super) static NAME_SERVERS: Variable =
    client("EPICS_CA_NAME_SERVERS", ValueFormat::Hosts, "", "name servers for searches over TCP");
pub(super) static SERVER_PORT: Variable = client("EPICS_CA_SERVER_PORT", ValueFormat::Port, "5064", "port of searches");
pub(super) static REPEATER_PORT: Variable =
    client("EPICS_CA_REPEATER_PORT", ValueFormat::Port, "5065", "UDP port of beacons");
pub(super) static MAX_SEARCH_PERIOD: Variable = client(
    "EPICS_CA_MAX_SEARCH_PERIOD",
    ValueFormat::Seconds(limit::SEARCH_PERIOD_SETTING_MIN),
    "300",
    "longest time between searches for a name, in s",
);
pub(super) static MCAST_TTL: Variable = variable(
    "EPICS_CA_MCAST_TTL",
    VariableUser::Both,
    ValueFormat::Hops,
    DefaultValue::Text("1"),
    "maximum number of routers a multicast passes",
);
pub(super) static CONN_TMO: Variable = client(
    "EPICS_CA_CONN_TMO",
    ValueFormat::Seconds(Duration::ZERO),
    "30",
    "seconds of silence until a server is probed",
);
pub(super) static AUTO_ARRAY_BYTES: Variable = variable(
    "EPICS_CA_AUTO_ARRAY_BYTES",
    VariableUser::Both,
    ValueFormat::YesNo,
    DefaultValue::Text("YES"),
    "NO: the next variable limits arrays",
);
pub(super) static MAX_ARRAY_BYTES: Variable = variable(
    "EPICS_CA_MAX_ARRAY_BYTES",
    VariableUser::Both,
    ValueFormat::Bytes(limit::ARRAY_SETTING_MIN_BYTES),
    DefaultValue::Text("16384"),
    "maximum size of an array, in bytes",
);
pub(super) static SPIN: Variable = variable(
    "FODO_SPIN_US",
    VariableUser::Both,
    ValueFormat::Microseconds,
    DefaultValue::Text("0"),
    "how long to poll for data before sleeping, in us",
);
pub(super) static FLUSH_DELAY: Variable = variable(
    "FODO_FLUSH_DELAY_US",
    VariableUser::Both,
    ValueFormat::Microseconds,
    DefaultValue::Text("0"),
    "how long data to send waits for more, in us",
);
pub(super) static BEACON_PERIOD: Variable = server(
    "EPICS_CA_BEACON_PERIOD",
    ValueFormat::Seconds(Duration::ZERO),
    DefaultValue::Text("15"),
    "older name of EPICS_CAS_BEACON_PERIOD",
);
pub(super) static CAS_INTF_ADDR_LIST: Variable = server(
    "EPICS_CAS_INTF_ADDR_LIST",
    ValueFormat::Addresses,
    DefaultValue::Text(""),
    "interfaces to serve on, groups to join; empty: all",
);
pub(super) static CAS_IGNORE_ADDR_LIST: Variable = server(
    "EPICS_CAS_IGNORE_ADDR_LIST",
    ValueFormat::Addresses,
    DefaultValue::Text(""),
    "hosts whose UDP searches are ignored",
);
pub(super) static CAS_SERVER_PORT: Variable =
    server("EPICS_CAS_SERVER_PORT", ValueFormat::Port, DefaultValue::Variable(&SERVER_PORT), "port to serve on");
pub(super) static CAS_BEACON_ADDR_LIST: Variable = server(
    "EPICS_CAS_BEACON_ADDR_LIST",
    ValueFormat::Hosts,
    DefaultValue::Variable(&ADDR_LIST),
    "addresses for beacons",
);
pub(super) static CAS_AUTO_BEACON_ADDR_LIST: Variable = server(
    "EPICS_CAS_AUTO_BEACON_ADDR_LIST",
    ValueFormat::YesNo,
    DefaultValue::Variable(&AUTO_ADDR_LIST),
    "NO: beacons only to listed addresses",
);
pub(super) static CAS_BEACON_PORT: Variable =
    server("EPICS_CAS_BEACON_PORT", ValueFormat::Port, DefaultValue::Variable(&REPEATER_PORT), "port of beacons");
pub(super) static CAS_BEACON_PERIOD: Variable = server(
    "EPICS_CAS_BEACON_PERIOD",
    ValueFormat::Seconds(Duration::ZERO),
    DefaultValue::Variable(&BEACON_PERIOD),
    "longest time between beacons, in s",
);
pub(super) static PVA_ADDR_LIST: Variable =
    client("EPICS_PVA_ADDR_LIST", ValueFormat::Hosts, "", "search addresses: hosts, networks, groups");
pub(super) static PVA_AUTO_ADDR_LIST: Variable =
    client("EPICS_PVA_AUTO_ADDR_LIST", ValueFormat::YesNo, "YES", "YES: also broadcast on all interfaces");
pub(super) static PVA_INTF_ADDR_LIST: Variable =
    client("EPICS_PVA_INTF_ADDR_LIST", ValueFormat::Addresses, "", "interfaces of those broadcasts; empty: all");
pub(super) static PVA_NAME_SERVERS: Variable = client(
    "EPICS_PVA_NAME_SERVERS",
    ValueFormat::NameServers,
    "",
    "name servers for searches over TCP, pvas://HOST by TLS",
);
pub(super) static PVA_BROADCAST_PORT: Variable =
    client("EPICS_PVA_BROADCAST_PORT", ValueFormat::Port, "5076", "UDP port of searches and beacons");
pub(super) static PVA_SERVER_PORT: Variable =
    client("EPICS_PVA_SERVER_PORT", ValueFormat::Port, "5075", "TCP port of name servers");
pub(super) static PVA_CONN_TMO: Variable = client(
    "EPICS_PVA_CONN_TMO",
    ValueFormat::Seconds(Duration::ZERO),
    "30",
    "a server is probed after half of this silence, in s",
);
pub(super) static PROTOCOL: Variable =
    client("FODO_PROTOCOL", ValueFormat::Protocol, "ca", "protocol of names without ca:// or pva://");
pub(super) static PVAS_INTF_ADDR_LIST: Variable = server(
    "EPICS_PVAS_INTF_ADDR_LIST",
    ValueFormat::Addresses,
    DefaultValue::Text(""),
    "interfaces to serve on, groups to join; empty: all",
);
pub(super) static PVAS_IGNORE_ADDR_LIST: Variable = server(
    "EPICS_PVAS_IGNORE_ADDR_LIST",
    ValueFormat::Addresses,
    DefaultValue::Text(""),
    "hosts whose UDP searches are ignored",
);
pub(super) static PVAS_SERVER_PORT: Variable = server(
    "EPICS_PVAS_SERVER_PORT",
    ValueFormat::Port,
    DefaultValue::Variable(&PVA_SERVER_PORT),
    "TCP port to serve on",
);
pub(super) static PVAS_BROADCAST_PORT: Variable = server(
    "EPICS_PVAS_BROADCAST_PORT",
    ValueFormat::Port,
    DefaultValue::Variable(&PVA_BROADCAST_PORT),
    "UDP port of searches and beacons",
);
pub(super) static PVAS_BEACON_ADDR_LIST: Variable = server(
    "EPICS_PVAS_BEACON_ADDR_LIST",
    ValueFormat::Hosts,
    DefaultValue::Variable(&PVA_ADDR_LIST),
    "addresses for beacons",
);
pub(super) static PVAS_AUTO_BEACON_ADDR_LIST: Variable = server(
    "EPICS_PVAS_AUTO_BEACON_ADDR_LIST",
    ValueFormat::YesNo,
    DefaultValue::Variable(&PVA_AUTO_ADDR_LIST),
    "NO: beacons only to listed addresses",
);

pub(super) static PVA_TLS_KEYCHAIN: Variable =
    client("EPICS_PVA_TLS_KEYCHAIN", ValueFormat::File, "", "keychain for TLS: FILE or FILE;PASSWORD; empty: no TLS");
pub(super) static PVA_TLS_KEYCHAIN_PWD_FILE: Variable =
    client("EPICS_PVA_TLS_KEYCHAIN_PWD_FILE", ValueFormat::File, "", "file whose first line is the password");
pub(super) static PVA_TLS_PORT: Variable =
    client("EPICS_PVA_TLS_PORT", ValueFormat::Port, "5076", "TCP port of TLS, of servers and of pvas://HOST");
pub(super) static PVA_TLS_OPTIONS: Variable =
    client("EPICS_PVA_TLS_OPTIONS", ValueFormat::TlsOptions, "", "options of TLS, for servers");
pub(super) static PVA_TLS_ONLY: Variable = variable(
    "FODO_PVA_TLS_ONLY",
    VariableUser::Both,
    ValueFormat::YesNo,
    DefaultValue::Text("NO"),
    "YES: pvAccess never without TLS",
);
pub(super) static PVAS_TLS_KEYCHAIN: Variable = server(
    "EPICS_PVAS_TLS_KEYCHAIN",
    ValueFormat::File,
    DefaultValue::Text(""),
    "keychain for TLS: FILE or FILE;PASSWORD; empty: no TLS",
);
pub(super) static PVAS_TLS_KEYCHAIN_PWD_FILE: Variable = server(
    "EPICS_PVAS_TLS_KEYCHAIN_PWD_FILE",
    ValueFormat::File,
    DefaultValue::Text(""),
    "file whose first line is the password",
);
pub(super) static PVAS_TLS_PORT: Variable = server(
    "EPICS_PVAS_TLS_PORT",
    ValueFormat::Port,
    DefaultValue::Variable(&PVA_TLS_PORT),
    "TCP port of TLS to serve on",
);
pub(super) static PVAS_TLS_OPTIONS: Variable = server(
    "EPICS_PVAS_TLS_OPTIONS",
    ValueFormat::TlsOptions,
    DefaultValue::Variable(&PVA_TLS_OPTIONS),
    "client_cert=optional or =require",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_each_variable_with_its_default() {
        let all = help(|_| true);
        let of_servers = help(|side| side == VariableUser::Server);

        assert_eq!(all.lines().count(), VARIABLES.len());
        let line = |name: &str| all.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
        assert_eq!(line("EPICS_CA_SERVER_PORT"), "  EPICS_CA_SERVER_PORT              port of searches (5064)");
        assert!(line("EPICS_CAS_SERVER_PORT").ends_with("port to serve on (EPICS_CA_SERVER_PORT)"));
        assert!(
            line("EPICS_CA_ADDR_LIST").ends_with("hosts, networks, groups"),
            "no default is shown where there is none"
        );
        assert!(of_servers.lines().all(|line| !line.contains("  EPICS_CA_ADDR_LIST ")) && of_servers.contains("CAS"));
    }
}
