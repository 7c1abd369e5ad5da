//! What a connection needs to know.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use fodo_clu::cipher::CipherKey;
use fodo_clu::command::Serial;
use fodo_clu::limit;

/// Where the CLU sends the values of subscriptions. See the example of [`CluConnectionConfig`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportMode {
    /// To the client's own address, which the registration contains. All CLUs accept it.
    #[default]
    Address,
    /// To the address from which the registration was received, also through an address translation. OpenGr8ton's virtual CLU
    /// does not answer it.
    Source,
}

/// The configuration of a [`CluConnection`](super::CluConnection). Its `Debug` form does not contain the key.
///
/// ```
/// use std::time::Duration;
///
/// use fodo_net::clu::{CipherKey, CluConnectionConfig, ReportMode, Serial};
///
/// let key = CipherKey::new([1; 16], [2; 16]);
/// let mut config = CluConnectionConfig::new("10.0.0.2:1234".parse()?, key);
/// config.serial = Serial::parse("0d0a1b2c");
/// config.timeout = Duration::from_secs(2);
/// config.report = ReportMode::Source;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CluConnectionConfig {
    /// Where requests are sent. Replies may come from any port of this address.
    pub clu: SocketAddr,
    /// The key of the project.
    pub key: CipherKey,
    /// The client's address, as the CLU can reach it. `None`: that of the route to the CLU.
    pub own_address: Option<Ipv4Addr>,
    /// The serial number. If it is known, a CLU with another one at the same address counts as unavailable.
    pub serial: Option<Serial>,
    /// How long a request waits for its reply, with the time before it is sent; 5 s by default, and at most one day.
    pub timeout: Duration,
    /// How many requests are sent before a reply: 4 by default, because real CLUs answer few at a time, and at most 256.
    pub in_flight_max: usize,
    /// Whether the connection sends checkAlive every 5 s. Without it, [`Availability`](super::Availability) stays unknown
    /// and subscriptions do not wait for the CLU to be available.
    pub checks_availability: bool,
    /// Where the CLU sends the values of subscriptions.
    pub report: ReportMode,
}

impl CluConnectionConfig {
    /// A configuration with the default limits.
    pub fn new(clu: SocketAddr, key: CipherKey) -> CluConnectionConfig {
        CluConnectionConfig {
            clu,
            key,
            own_address: None,
            serial: None,
            timeout: limit::REQUEST_TIMEOUT,
            in_flight_max: limit::IN_FLIGHT_DEFAULT,
            checks_availability: true,
            report: ReportMode::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_a_configuration_does_not_contain_the_key() {
        let config =
            CluConnectionConfig::new(([10, 0, 0, 2], 1234).into(), CipherKey::new(*b"secret-secret-01", [7; 16]));

        let shown = format!("{config:?}");

        assert!(shown.contains("10.0.0.2:1234") && shown.contains("CipherKey { .. }"), "{shown}");
    }
}
