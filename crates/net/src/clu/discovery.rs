//! The discovery of CLUs: a broadcast, and the replies to it.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fodo_clu::cipher::{CipherKey, Pin};
use fodo_clu::client::{DiscoveredClu, Discovery, DiscoveryCounts, KeyMatch};
use fodo_clu::limit;

use super::random_source;
use crate::{clock, interfaces};

/// The port on which CLUs receive requests.
pub const CLU_PORT: u16 = 1234;

/// Where and for which project CLUs are searched. Its `Debug` form does not contain the key.
///
/// ```
/// use std::time::Duration;
///
/// use fodo_net::clu::{CLU_PORT, CipherKey, CluDiscoveryConfig};
///
/// let mut config = CluDiscoveryConfig::new([127, 0, 0, 1].into(), CipherKey::new([1; 16], [2; 16]));
/// config.timeout = Duration::from_secs(1);
/// assert!(config.targets.contains(&([255, 255, 255, 255], CLU_PORT).into()));
/// ```
#[derive(Clone, Debug)]
pub struct CluDiscoveryConfig {
    /// The address of the interface to which the search is limited. CLUs reply to it.
    pub interface: Ipv4Addr,
    /// Where the request is sent: by default to the broadcast address of the interface and to 255.255.255.255, which on
    /// Linux is also sent on this interface only.
    pub targets: Vec<SocketAddr>,
    /// The key of the project; CLUs prove whether they have it.
    pub project_key: CipherKey,
    /// How long replies are collected, 3 s by default and at most one day. The request is sent three times in the first 2 s.
    pub timeout: Duration,
}

impl CluDiscoveryConfig {
    /// A search on the interface with this address, with the default values.
    pub fn new(interface: Ipv4Addr, project_key: CipherKey) -> CluDiscoveryConfig {
        let broadcasts = interfaces::broadcast_of(interface).into_iter().chain([Ipv4Addr::BROADCAST]);
        let targets = broadcasts.map(|address| (address, CLU_PORT).into()).collect();
        CluDiscoveryConfig { interface, targets, project_key, timeout: Duration::from_secs(3) }
    }
}

/// A search in progress: an iterator, which blocks until a further CLU has replied or the time is over. See the example of
/// [`discover_clus`].
pub struct CluDiscoverySearch {
    socket: UdpSocket,
    targets: Vec<SocketAddr>,
    discovery: Discovery,
    datagram: Vec<u8>,
}

/// Searches for CLUs: sends the first request and returns the search, which reads the replies.
///
/// Fails if the host has no interface with the address, or if the request could be sent to no target.
///
/// ```
/// # let (clu, project_key) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/clu.rs"));
/// use std::time::Duration;
///
/// use fodo_net::clu::{CluDiscoveryConfig, KeyMatch, Pin, discover_clus};
///
/// let mut config = CluDiscoveryConfig::new([127, 0, 0, 1].into(), project_key);
/// # config.targets = vec![clu];
/// config.timeout = Duration::from_millis(200);
/// let pin = Pin::new("12345678").ok_or("a PIN has 8 characters")?;
///
/// let mut search = discover_clus(config)?;
/// while let Some(clu) = search.next() {
///     let is_of_project = search.key_match(&clu, &pin) == KeyMatch::Project;
///     println!("CLU {} at {}, of this project: {is_of_project}", clu.serial, clu.address.ip());
/// }
/// assert_eq!(search.counts().found, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn discover_clus(config: CluDiscoveryConfig) -> io::Result<CluDiscoverySearch> {
    let socket = UdpSocket::bind((config.interface, 0)).map_err(|error| {
        let reason = format!("cannot search on {}, which must be an address of this host: {error}", config.interface);
        io::Error::new(error.kind(), reason)
    })?;
    socket.set_broadcast(true)?;
    let timeout = config.timeout.min(limit::REQUEST_TIMEOUT_MAX);
    let mut random = random_source();
    let discovery = Discovery::new(&config.project_key, config.interface, &mut random, timeout, clock::now());
    let datagram = vec![0; limit::DATAGRAM_BYTES_MAX];
    let mut search = CluDiscoverySearch { socket, targets: config.targets, discovery, datagram };
    search.send_due()?;
    Ok(search)
}

impl CluDiscoverySearch {
    /// What was received so far. See the example of [`discover_clus`].
    pub fn counts(&self) -> DiscoveryCounts {
        self.discovery.counts()
    }

    /// Which key a CLU has; it proves that with its PIN. See the example of [`discover_clus`].
    pub fn key_match(&self, clu: &DiscoveredClu, pin: &Pin) -> KeyMatch {
        self.discovery.key_match(clu, pin)
    }

    /// Sends the request if it is due. Fails if it can be sent to no target.
    fn send_due(&mut self) -> io::Result<()> {
        let Some(request) = self.discovery.request_due(clock::now()) else { return Ok(()) };
        let mut result = Err(io::Error::new(io::ErrorKind::InvalidInput, "a search for CLUs needs a target"));
        for target in &self.targets {
            match self.socket.send_to(request, target) {
                Ok(_) => result = Ok(()),
                Err(error) if result.is_err() => {
                    let reason = format!("cannot send a search for CLUs to {target}: {error}");
                    result = Err(io::Error::new(error.kind(), reason));
                }
                Err(_) => {}
            }
        }
        result
    }
}

impl Iterator for CluDiscoverySearch {
    type Item = DiscoveredClu;

    fn next(&mut self) -> Option<DiscoveredClu> {
        while !self.discovery.is_ended(clock::now()) {
            // The first request was sent; the interface may have failed since.
            let _ = self.send_due();
            let remaining = self.discovery.deadline().saturating_duration_since(Instant::now());
            self.socket.set_read_timeout(Some(remaining.max(Duration::from_millis(1)))).ok()?;
            // An error, such as a timeout, does not end the search.
            if let Ok((n_bytes, from)) = self.socket.recv_from(&mut self.datagram)
                && let Some(clu) = self.discovery.received(from, &self.datagram[..n_bytes])
            {
                return Some(clu);
            }
        }
        None
    }
}

impl fmt::Debug for CluDiscoverySearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CluDiscoverySearch").field("targets", &self.targets).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_on_an_address_of_another_host_or_without_target_fails() {
        let key = CipherKey::new(*b"secret-secret-01", [2; 16]);
        let elsewhere = CluDiscoveryConfig::new([192, 0, 2, 1].into(), key.clone());
        let without_target =
            CluDiscoveryConfig { targets: Vec::new(), ..CluDiscoveryConfig::new(Ipv4Addr::LOCALHOST, key) };

        let errors = [elsewhere, without_target].map(|config| discover_clus(config).unwrap_err().to_string());

        assert!(errors[0].starts_with("cannot search on 192.0.2.1, which must be an address of this host: "));
        assert_eq!(errors[1], "a search for CLUs needs a target");
    }

    #[test]
    fn debug_forms_contain_no_key() {
        let key = CipherKey::new(*b"secret-secret-01", [2; 16]);
        let mut config = CluDiscoveryConfig::new(Ipv4Addr::LOCALHOST, key);
        config.targets = vec![([127, 0, 0, 1], 9).into()];

        let shown = format!("{config:?} {:?}", discover_clus(config.clone()).unwrap());

        assert!(shown.contains("CipherKey { .. }") && !shown.contains("115, 101"), "{shown}");
    }
}
