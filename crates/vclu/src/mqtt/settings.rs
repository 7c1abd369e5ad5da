//! Where the broker is, and how the CLU introduces itself.

use std::fmt;

/// What a broker connection needs.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct MqttSettings {
    pub broker: BrokerUrl,
    /// Two clients with the same identifier disconnect each other.
    pub client_id: String,
    /// `online` while connected, otherwise `offline`: the broker publishes it as the last will.
    pub availability_topic: String,
}

/// The parts of a URL such as `ssl://user:password@broker:8883`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BrokerUrl {
    pub host: String,
    pub port: u16,
    pub has_tls: bool,
    user: Option<(String, Option<String>)>,
}

impl BrokerUrl {
    /// The error never contains the URL, which may have a password.
    pub fn parse(url: &str) -> Result<BrokerUrl, String> {
        let wrong = || "MQTTUrl must have the form tcp://HOST:PORT or ssl://USER:PASSWORD@HOST:PORT".to_string();
        let (scheme, rest) = url.trim().split_once("://").ok_or_else(wrong)?;
        let has_tls = match scheme {
            "tcp" | "mqtt" => false,
            "ssl" | "mqtts" | "tls" => true,
            _ => return Err(wrong()),
        };
        let (user, address) = match rest.rsplit_once('@') {
            Some((user, address)) => {
                let user = match user.split_once(':') {
                    Some((name, password)) => (name.to_string(), Some(password.to_string())),
                    None => (user.to_string(), None),
                };
                (Some(user), address)
            }
            None => (None, rest),
        };
        let address = address.trim_end_matches('/');
        let (host, port) = match address.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some(""))),
            None => address.split_once(':').map_or((address, Some("")), |(host, port)| (host, Some(port))),
        };
        let port = match port.ok_or_else(wrong)? {
            "" if has_tls => 8883,
            "" => 1883,
            port => port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?,
        };
        if host.is_empty() || host.contains('/') {
            return Err(wrong());
        }
        Ok(BrokerUrl { host: host.to_string(), port, has_tls, user })
    }

    pub fn user(&self) -> Option<(&str, Option<&str>)> {
        self.user.as_ref().map(|(name, password)| (name.as_str(), password.as_deref()))
    }
}

/// Without user and password.
impl fmt::Display for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A URL that can be printed: `*` replaces the password.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_string() };
    let Some((user, address)) = rest.rsplit_once('@') else { return url.to_string() };
    match user.split_once(':') {
        Some((name, _)) => format!("{scheme}://{name}:*@{address}"),
        None => url.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_url_have_defaults() {
        let plain = BrokerUrl::parse("tcp://broker").unwrap();
        assert_eq!((plain.to_string().as_str(), plain.has_tls, plain.user()), ("broker:1883", false, None));

        let tls = BrokerUrl::parse("ssl://me:p:w@rd@10.0.0.2/").unwrap();
        assert_eq!((tls.to_string().as_str(), tls.has_tls), ("10.0.0.2:8883", true));
        assert_eq!(tls.user(), Some(("me", Some("p:w@rd"))));

        let v6 = BrokerUrl::parse("mqtt://me@[::1]:1884").unwrap();
        assert_eq!((v6.host.as_str(), v6.port, v6.user()), ("::1", 1884, Some(("me", None))));
    }

    #[test]
    fn an_invalid_url_is_refused_without_repeating_its_password() {
        for url in ["broker", "http://broker", "tcp://", "tcp://b:0", "tcp://b:x", "tcp://u:secret@/", "tcp://[::1]x"] {
            let error = BrokerUrl::parse(url).err().unwrap();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_printed_url_has_no_password() {
        assert_eq!(without_password("ssl://me:p@ss@host:1"), "ssl://me:*@host:1");
        assert_eq!(without_password("tcp://me@host"), "tcp://me@host");
        assert_eq!(without_password("tcp://host"), "tcp://host");
    }
}
