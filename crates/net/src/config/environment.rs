//! Reading the environment: which text applies to a variable, where it comes from, and its value.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU8;
use std::time::Duration;

use super::variable::{DefaultValue, VARIABLES, ValueFormat, Variable};
use super::{ConfigError, Host, variable};

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
struct VariableText {
    /// Trimmed. Borrowed if it is a default, since a program may create a context for each of many objects.
    text: Cow<'static, str>,
    /// The variable that provided it.
    at: &'static Variable,
    is_set: bool,
}

impl VariableText {
    fn wrong(&self, form: ValueFormat) -> ConfigError {
        self.wrong_part(form, &self.text)
    }

    fn wrong_part(&self, form: ValueFormat, part: &str) -> ConfigError {
        ConfigError { variable: self.at.name, text: part.to_owned(), expected: form.expected() }
    }
}

impl Variables<'_> {
    fn found(&self, variable: &'static Variable) -> VariableText {
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
            _ => Err(found.wrong(variable.format)),
        }
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
            let (name, port) = match part.split_once(':') {
                None => (part, Some(port)),
                Some((name, port)) => (name, port.parse().ok().filter(|_| !name.is_empty())),
            };
            let port = port.ok_or_else(|| found.wrong_part(variable.format, part))?;
            if let Ok(ip) = name.parse::<Ipv4Addr>() {
                let address = SocketAddr::new(IpAddr::V4(ip), port);
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
                continue;
            }
            let host = Host { name: name.to_owned(), port };
            if !names.contains(&host) {
                names.push(host);
            }
        }
        Ok((addresses, names))
    }

    /// Parses addresses. Names are resolved at once, since a server needs them before it starts.
    pub(super) fn addresses(&self, variable: &'static Variable) -> Result<Vec<Ipv4Addr>, ConfigError> {
        let (mut addresses, names) = self.hosts(variable, 0)?;
        for host in names {
            let resolved = host.resolved();
            addresses.push(resolved.ok_or_else(|| self.found(variable).wrong_part(variable.format, &host.name))?);
        }
        let ips = addresses.iter().filter_map(|address| match address.ip() {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        });
        Ok(ips.collect())
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
            ValueFormat::Hosts => {
                self.hosts(variable, 0)?;
                found.text.split_whitespace().collect::<Vec<_>>().join(" ")
            }
            ValueFormat::Addresses => {
                self.addresses(variable)?.iter().map(Ipv4Addr::to_string).collect::<Vec<_>>().join(" ")
            }
            ValueFormat::Port => self.port(variable)?.to_string(),
            ValueFormat::Seconds(_) => self.seconds(variable)?.as_secs_f64().to_string(),
            ValueFormat::YesNo => if self.is_yes(variable)? { "YES" } else { "NO" }.to_owned(),
            ValueFormat::Bytes(_) => self.bytes(variable)?.to_string(),
            ValueFormat::Hops => self.hops(variable)?.to_string(),
            ValueFormat::Microseconds => self.microseconds(variable)?.as_micros().to_string(),
        })
    }

    fn remark(&self, variable: &'static Variable, found: &VariableText, value: Option<&String>) -> Option<String> {
        if variable == &variable::MAX_ARRAY_BYTES && self.is_yes(&variable::AUTO_ARRAY_BYTES) == Ok(true) {
            let reason = "not used: EPICS_CA_AUTO_ARRAY_BYTES is YES, so memory limits the size of arrays";
            return Some(reason.to_owned());
        }
        if !matches!(variable.format, ValueFormat::Seconds(_) | ValueFormat::Bytes(_)) {
            return None;
        }
        let (set, used): (f64, f64) = (found.text.parse().ok()?, value?.parse().ok()?);
        (set < used).then(|| format!("raised from {}", found.text))
    }
}
