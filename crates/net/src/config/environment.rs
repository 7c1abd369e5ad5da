//! Reading the environment: which text applies to a variable, where it comes from, and its value.

use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU8;
use std::time::Duration;

use super::variable::{DefaultValue, VARIABLES, ValueFormat, Variable};
use super::{ConfigError, Host, InterfaceAddress, tls, variable};
use crate::interfaces;
use crate::protocol::Protocol;
use crate::tls::TlsPolicy;

/// Where a variable's value comes from.
///
/// See the example of [`settings`](super::settings).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The variable itself is set.
    Environment,
    /// Another variable is set, and this one is not.
    Variable(&'static str),
    /// No variable is set.
    Default,
}

/// The current setting of a variable.
///
/// See the example of [`settings`](super::settings).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The variable.
    pub variable: &'static Variable,
    /// Where its value comes from.
    pub origin: Origin,
    /// The value in effect, as text, or the error.
    pub value: Result<String, ConfigError>,
    /// A note if the value in effect differs from what the environment suggests.
    pub remark: Option<String>,
}

/// Looks up variables: in the process's environment, or in a table in tests.
pub(super) struct Variables<'a> {
    pub(super) lookup: &'a dyn Fn(&str) -> Option<String>,
}

/// The text that applies to a variable.
pub(super) struct VariableText {
    /// Trimmed. Borrowed if it is a default, since a program may create a context for each of many objects.
    pub(super) text: Cow<'static, str>,
    /// The variable that provided it.
    at: &'static Variable,
    is_set: bool,
}

impl VariableText {
    pub(super) fn wrong(&self, form: ValueFormat) -> ConfigError {
        self.wrong_part(form, &self.text)
    }

    fn wrong_part(&self, form: ValueFormat, part: &str) -> ConfigError {
        ConfigError {
            variable: self.at.name,
            text: tls::without_password(form, part).to_owned(),
            expected: form.expected(self.at.is_of_pvaccess()),
            reason: String::new(),
        }
    }
}

impl Variables<'_> {
    pub(super) fn found(&self, variable: &'static Variable) -> VariableText {
        let trimmed = |text: String| if text.trim().len() < text.len() { text.trim().to_owned() } else { text };
        let text = (self.lookup)(variable.name).map(trimmed).filter(|text| !text.is_empty());
        match (text, variable.default) {
            (Some(text), _) => VariableText { text: text.into(), at: variable, is_set: true },
            (None, DefaultValue::Text(text)) => VariableText { text: text.into(), at: variable, is_set: false },
            (None, DefaultValue::Variable(other)) => self.found(other),
        }
    }

    fn number<T: std::str::FromStr>(&self, variable: &'static Variable) -> Result<T, ConfigError> {
        let found = self.found(variable);
        found.text.parse().map_err(|_| found.wrong(variable.format))
    }

    pub(super) fn port(&self, variable: &'static Variable) -> Result<u16, ConfigError> {
        self.number(variable)
    }

    pub(super) fn hops(&self, variable: &'static Variable) -> Result<u32, ConfigError> {
        Ok(u32::from(self.number::<NonZeroU8>(variable)?.get()))
    }

    pub(super) fn bytes(&self, variable: &'static Variable) -> Result<usize, ConfigError> {
        let bytes: usize = self.number(variable)?;
        Ok(if let ValueFormat::Bytes(least) = variable.format { bytes.max(least) } else { bytes })
    }

    pub(super) fn seconds(&self, variable: &'static Variable) -> Result<Duration, ConfigError> {
        let seconds: f64 = self.number(variable)?;
        if !(seconds > 0.0 && seconds < 1e9) {
            return Err(self.found(variable).wrong(variable.format));
        }
        let seconds = Duration::from_secs_f64(seconds);
        Ok(if let ValueFormat::Seconds(least) = variable.format { seconds.max(least) } else { seconds })
    }

    pub(super) fn microseconds(&self, variable: &'static Variable) -> Result<Duration, ConfigError> {
        Ok(Duration::from_micros(u64::from(self.number::<u32>(variable)?)))
    }

    pub(super) fn is_yes(&self, variable: &'static Variable) -> Result<bool, ConfigError> {
        let found = self.found(variable);
        match &found.text {
            text if text.eq_ignore_ascii_case("yes") => Ok(true),
            text if text.eq_ignore_ascii_case("no") => Ok(false),
            text if text == "1" && variable.is_of_pvaccess() => Ok(true),
            text if text == "0" && variable.is_of_pvaccess() => Ok(false),
            _ => Err(found.wrong(variable.format)),
        }
    }

    pub(super) fn protocol(&self, variable: &'static Variable) -> Result<Protocol, ConfigError> {
        let found = self.found(variable);
        Protocol::labelled(&found.text).ok_or_else(|| found.wrong(variable.format))
    }

    /// Parses hosts. Returns the addresses, and the names that must be resolved; that may take long, so it is not done
    /// here. `port`: the port of entries without one.
    pub(super) fn hosts(
        &self,
        variable: &'static Variable,
        port: u16,
    ) -> Result<(Vec<SocketAddr>, Vec<Host>), ConfigError> {
        let found = self.found(variable);
        let (mut addresses, mut names) = (Vec::new(), Vec::new());
        for part in found.text.split_whitespace() {
            let host = host_of(part, port, variable.is_of_pvaccess());
            let host = host.ok_or_else(|| found.wrong_part(variable.format, part))?;
            match host.address() {
                Some(address) if !addresses.contains(&address) => addresses.push(address),
                Some(_) => {}
                // Also an address of an interface that does not exist: reported when names are resolved, so that the rest
                // of the list is used.
                None if !names.contains(&host) => names.push(host),
                None => {}
            }
        }
        Ok((addresses, names))
    }

    /// Parses the name servers of pvAccess: those of plain TCP, and those of TLS. pvxs and core-pva write the schemes `pva://`
    /// and `pvas://` as well. Fails if the client cannot use one.
    pub(super) fn name_servers(&self, tls: &TlsPolicy) -> Result<(Vec<Host>, Vec<Host>), ConfigError> {
        let variable = &variable::PVA_NAME_SERVERS;
        let [tcp_port, tls_port] = [self.port(&variable::PVA_SERVER_PORT)?, self.port(&variable::PVA_TLS_PORT)?];
        let found = self.found(variable);
        let (mut plain, mut encrypted) = (Vec::new(), Vec::new());
        for part in found.text.split_whitespace() {
            let wrong = |reason: &str| ConfigError { reason: reason.into(), ..found.wrong_part(variable.format, part) };
            let (scheme, entry) = part.split_once("://").unwrap_or(("pva", part));
            let (list, port) = match (scheme, tls) {
                ("pva", TlsPolicy::Only(_)) => {
                    return Err(wrong("FODO_PVA_TLS_ONLY is YES, so name servers are written as pvas://HOST"));
                }
                ("pva", _) => (&mut plain, tcp_port),
                ("pvas", TlsPolicy::Off) => return Err(wrong("pvas:// needs the keychain EPICS_PVA_TLS_KEYCHAIN")),
                ("pvas", _) => (&mut encrypted, tls_port),
                _ => return Err(wrong("")),
            };
            let host = host_of(entry.strip_suffix('/').unwrap_or(entry), port, true).ok_or_else(|| wrong(""))?;
            if !list.contains(&host) {
                list.push(host);
            }
        }
        Ok((plain, encrypted))
    }

    /// Parses addresses, each one once: ports do not matter, and a name can have the address of another entry. Names are
    /// resolved at once, since a server needs them before it starts.
    pub(super) fn addresses(&self, variable: &'static Variable) -> Result<Vec<InterfaceAddress>, ConfigError> {
        let (numeric, names) = self.hosts(variable, 0)?;
        let mut addresses = Vec::new();
        let mut add = |address: SocketAddr| {
            let address = InterfaceAddress { ip: address.ip().to_canonical(), ..address.into() };
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        };
        numeric.into_iter().for_each(&mut add);
        for host in names {
            let resolved = host.resolved().filter(|address| address.is_ipv4() || variable.is_of_pvaccess());
            add(resolved.ok_or_else(|| self.found(variable).wrong_part(variable.format, &host.name))?);
        }
        Ok(addresses)
    }

    /// The same for Channel Access.
    pub(super) fn ipv4_addresses(&self, variable: &'static Variable) -> Result<Vec<Ipv4Addr>, ConfigError> {
        let addresses = self.addresses(variable)?;
        Ok(addresses.into_iter().filter_map(|address| interfaces::ipv4(address.ip)).collect())
    }

    pub(super) fn settings(&self) -> Vec<Setting> {
        VARIABLES.iter().map(|variable| self.setting(variable)).collect()
    }

    fn setting(&self, variable: &'static Variable) -> Setting {
        let found = self.found(variable);
        let origin = match found.is_set {
            false => Origin::Default,
            true if found.at == variable => Origin::Environment,
            true => Origin::Variable(found.at.name),
        };
        let value = self.value(variable, &found);
        let remark = self.remark(variable, &found, value.as_ref().ok());
        Setting { variable, origin, value, remark }
    }

    fn value(&self, variable: &'static Variable, found: &VariableText) -> Result<String, ConfigError> {
        Ok(match variable.format {
            ValueFormat::Hosts | ValueFormat::NameServers => {
                match variable.format {
                    ValueFormat::NameServers => drop(self.name_servers(&self.tls_of_client().unwrap_or_default())?),
                    _ => drop(self.hosts(variable, 0)?),
                }
                found.text.split_whitespace().collect::<Vec<_>>().join(" ")
            }
            ValueFormat::Addresses => {
                self.addresses(variable)?.iter().map(InterfaceAddress::to_string).collect::<Vec<_>>().join(" ")
            }
            ValueFormat::Port => self.port(variable)?.to_string(),
            ValueFormat::Seconds(_) => self.seconds(variable)?.as_secs_f64().to_string(),
            ValueFormat::YesNo => if self.is_yes(variable)? { "YES" } else { "NO" }.to_owned(),
            ValueFormat::Bytes(_) => self.bytes(variable)?.to_string(),
            ValueFormat::Hops => self.hops(variable)?.to_string(),
            ValueFormat::Microseconds => self.microseconds(variable)?.as_micros().to_string(),
            ValueFormat::Protocol => self.protocol(variable)?.to_string(),
            ValueFormat::File => {
                self.check_file(variable)?;
                tls::without_password(variable.format, &found.text).to_owned()
            }
            ValueFormat::TlsOptions => {
                self.client_certificates(variable)?;
                found.text.clone().into_owned()
            }
        })
    }

    fn remark(&self, variable: &'static Variable, found: &VariableText, value: Option<&String>) -> Option<String> {
        if variable == &variable::MAX_ARRAY_BYTES && self.is_yes(&variable::AUTO_ARRAY_BYTES) == Ok(true) {
            let reason = "not used: EPICS_CA_AUTO_ARRAY_BYTES is YES, so memory limits the size of arrays";
            return Some(reason.to_owned());
        }
        let is_list = matches!(variable.format, ValueFormat::Hosts | ValueFormat::NameServers | ValueFormat::Addresses)
            && variable.is_of_pvaccess();
        let any = |is_it: fn(&str) -> bool| is_list && found.text.split_whitespace().any(is_it);
        if any(|part| part.contains('@') && ipv6_entry(part).is_none()) {
            return Some(
                "not used: the number of routers (,N) and the interface (@ADDRESS) of a group of IPv4".to_owned(),
            );
        }
        if any(|part| part.contains(',')) {
            return Some("not used: the number of routers (,N) of a group".to_owned());
        }
        let n_used = match variable.format {
            ValueFormat::Addresses => self.addresses(variable).ok().map(|addresses| addresses.len()),
            ValueFormat::Hosts => self.hosts(variable, 0).ok().map(|(addresses, names)| addresses.len() + names.len()),
            _ => None,
        };
        if n_used.is_some_and(|n_used| n_used < found.text.split_whitespace().count()) {
            return Some("an address is listed more than once".to_owned());
        }
        if variable.format == ValueFormat::TlsOptions {
            return tls::unused_options(&found.text);
        }
        if !matches!(variable.format, ValueFormat::Seconds(_) | ValueFormat::Bytes(_)) {
            return None;
        }
        let (set, used): (f64, f64) = (found.text.parse().ok()?, value?.parse().ok()?);
        (set < used).then(|| format!("raised from {}", found.text))
    }
}

/// The host in an entry of a list. `port`: that of entries without one.
fn host_of(part: &str, port: u16, is_of_pvaccess: bool) -> Option<Host> {
    let host = if is_of_pvaccess { without_route(part) } else { part };
    let (name, port) = match (ipv6_entry(part).filter(|_| is_of_pvaccess), host.split_once(':')) {
        (Some((address, None)), _) => (address, port),
        (Some((address, Some(port))), _) => (address, port.parse().ok()?),
        (None, None) => (host.to_owned(), port),
        (None, Some((name, port))) => (name.to_owned(), port.parse().ok()?),
    };
    (!name.is_empty()).then_some(Host { name, port })
}

/// An entry of a list of pvAccess without the number of routers and the interface, as in `224.0.1.1,3@10.0.0.5`.
fn without_route(part: &str) -> &str {
    part.split([',', '@']).next().unwrap_or(part)
}

/// The address and the port in an entry such as `::1`, `[::1]:5076`, `fe80::1%eth0` or `[ff02::42:1]:5076,1@eth0`. An
/// interface after `@` becomes a part of the address.
fn ipv6_entry(part: &str) -> Option<(String, Option<&str>)> {
    let host = without_route(part);
    let (address, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, behind) = rest.split_once(']')?;
            (address, if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) })
        }
        None => (host, None),
    };
    if !Host::is_ipv6(address) {
        return None;
    }
    match part.split_once('@') {
        Some((_, interface)) if !address.contains('%') => Some((format!("{address}%{interface}"), port)),
        _ => Some((address.to_owned(), port)),
    }
}
