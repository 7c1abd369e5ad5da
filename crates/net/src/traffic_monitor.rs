//! Monitoring the searches and beacons of other programs, and searching for names independently of any client.
//!
//! ```
//! # let (server, _context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
//! # let config = server.client_config();
//! use std::time::Duration;
//!
//! use fodo_net::traffic_monitor::TrafficMonitor;
//!
//! # fn main_with(config: fodo_net::ClientConfig) -> std::io::Result<()> {
//! // `TrafficMonitor::listening` also receives the searches and beacons of other programs.
//! let mut monitor = TrafficMonitor::searching(&config)?;
//! monitor.search("demo:gap");
//! monitor.run(Duration::from_secs(5), |traffic| !traffic.is_waiting())?;
//!
//! for name in monitor.traffic().names() {
//!     println!("{} is served by {:?}", name.name, name.servers);
//! }
//! println!("received on {:?}", monitor.listening_on());
//! for host in monitor.take_unresolved() {
//!     println!("unknown host {host}");
//! }
//! # Ok(())
//! # }
//! # main_with(config).unwrap();
//! ```

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fodo_ca::search::Datagram;
pub use fodo_ca::traffic::{ClientTraffic, NameState, NameTraffic, SearchMonitor, ServerTraffic};
use rustix::event::{PollFd, PollFlags};

use crate::address_list::{AddressFamilies, AddressList, InterfaceSelection};
use crate::config::ClientConfig;
use crate::repeater::Repeater;
use crate::{clock, interfaces, limit, socket};

/// A passive observer of the network with its own sockets. It works on the thread that calls [`TrafficMonitor::run`].
///
/// It receives no messages of other threads and has few sockets, so it waits with poll(2) and needs no event loop.
#[derive(Debug)]
pub struct TrafficMonitor {
    search_socket: UdpSocket,
    sockets: Vec<UdpSocket>,
    addresses: AddressList,
    traffic: SearchMonitor,
    datagrams: Vec<Datagram>,
    registration: Option<RegistrationTimer>,
}

/// The registration with the host's repeater, which forwards beacons; renewed periodically.
#[derive(Debug)]
struct RegistrationTimer {
    port: u16,
    at: Instant,
    /// Present if the host had no repeater, so that this process became the repeater.
    _repeater: Option<Repeater>,
}

impl TrafficMonitor {
    /// Creates an observer that only searches, at the addresses where a client with this configuration would search by
    /// UDP.
    pub fn searching(config: &ClientConfig) -> io::Result<TrafficMonitor> {
        let search_socket = socket::search_udp(config.multicast_ttl)?;
        let automatic = config.interface_search_port.map_or(InterfaceSelection::No, InterfaceSelection::All);
        let addresses = interfaces::with_loopback_broadcast(&config.search_addresses);
        Ok(TrafficMonitor {
            search_socket,
            sockets: Vec::new(),
            addresses: AddressList::new(
                AddressFamilies::Ipv4,
                &addresses,
                &config.search_hosts,
                automatic,
                Instant::now(),
            ),
            traffic: SearchMonitor::new(u64::from(std::process::id())),
            datagrams: Vec::new(),
            registration: None,
        })
    }

    /// Creates an observer that also receives searches, on the ports where such a client would search, and beacons.
    ///
    /// A unicast datagram reaches only one program of a host, so it is received only while no server of this host uses
    /// the port; broadcasts and multicasts reach all programs. Fails if no port can be shared.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use fodo_net::ClientConfig;
    /// use fodo_net::traffic_monitor::{NameState, TrafficMonitor};
    ///
    /// let mut monitor = TrafficMonitor::listening(&ClientConfig::from_env()?)?;
    /// monitor.run(Duration::from_secs(60), |_traffic| false)?;
    /// for name in monitor.traffic().names().iter().filter(|name| name.state == NameState::Dead) {
    ///     println!("no server has {}, for which {} clients search", name.name, name.clients.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn listening(config: &ClientConfig) -> io::Result<TrafficMonitor> {
        let mut monitor = TrafficMonitor::searching(config)?;
        let listed = config.search_addresses.iter().map(SocketAddr::port);
        let mut ports: Vec<u16> = listed
            .chain(config.search_hosts.iter().map(|host| host.port))
            .chain(config.interface_search_port)
            .collect();
        ports.sort_unstable();
        ports.dedup();
        for port in ports {
            monitor.sockets.extend(listening_sockets(port)?);
        }
        let groups = config.search_addresses.iter().filter_map(|address| match address {
            SocketAddr::V4(address) if address.ip().is_multicast() => Some(*address),
            _ => None,
        });
        for group in groups {
            monitor.sockets.push(socket::multicast_udp(*group.ip(), &interfaces::own_addresses(), group.port())?);
        }
        if monitor.sockets.is_empty() {
            let reason = "the configuration contains no search address; add one, or search on all interfaces";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        monitor.registration = config.repeater_port.map(|port| {
            // If this process cannot be the repeater, another program is.
            RegistrationTimer { port, at: Instant::now(), _repeater: Repeater::start(port).ok() }
        });
        Ok(monitor)
    }

    /// The addresses on which searches are received.
    pub fn listening_on(&self) -> Vec<SocketAddr> {
        self.sockets.iter().filter_map(|socket| socket.local_addr().ok()).collect()
    }

    /// Searches for a name like a client; no datagram is sent before [`TrafficMonitor::run`].
    pub fn search(&mut self, name: &str) {
        self.traffic.ask(name, clock::now());
    }

    /// The traffic observed so far.
    pub fn traffic(&self) -> &SearchMonitor {
        &self.traffic
    }

    /// Host names in the address lists that cannot be resolved, each reported once.
    pub fn take_unresolved(&mut self) -> Vec<String> {
        self.addresses.take_unresolved()
    }

    /// Receives and searches until `duration` has passed, or until `is_enough` returns true after a turn.
    pub fn run(&mut self, duration: Duration, mut is_enough: impl FnMut(&SearchMonitor) -> bool) -> io::Result<()> {
        let end = Instant::now() + duration;
        let mut has_more = true;
        loop {
            self.tick();
            let now = Instant::now();
            if now >= end || (!has_more && is_enough(&self.traffic)) {
                return Ok(());
            }
            let registers_at = self.registration.as_ref().map(|registration| registration.at);
            let due = [self.traffic.deadline(), self.addresses.deadline(), registers_at];
            let next = due.into_iter().flatten().fold(end, Instant::min);
            let wait = if has_more { Duration::ZERO } else { next.saturating_duration_since(now) };
            self.wait(wait)?;
            has_more = self.receive();
        }
    }

    /// Waits until a datagram is received, at most for this time.
    fn wait(&self, timeout: Duration) -> io::Result<()> {
        let sockets = std::iter::once(&self.search_socket).chain(&self.sockets);
        let mut descriptors: Vec<PollFd> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        match socket::wait(&mut descriptors, timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn tick(&mut self) {
        let now = clock::now();
        self.addresses.refresh(now.monotonic, || {});
        self.traffic.tick(now, &mut self.datagrams);
        for datagram in self.datagrams.drain(..) {
            for to in self.addresses.all() {
                // A failure is like a lost datagram: the search is repeated.
                let _ = self.search_socket.send_to(&datagram.bytes, to);
            }
        }
        if let Some(registration) = &mut self.registration
            && registration.at <= now.monotonic
        {
            // As above.
            let _ = self
                .search_socket
                .send_to(&fodo_ca::repeater::registration(), (Ipv4Addr::LOCALHOST, registration.port));
            registration.at = now.monotonic + limit::ADDRESS_REFRESH;
        }
    }

    /// Handles waiting datagrams; returns true if there are more.
    fn receive(&mut self) -> bool {
        let own_port = self.search_socket.local_addr().map_or(0, |address| address.port());
        let mut buffer = [0; 8192];
        let mut has_more = false;
        for (index, socket) in std::iter::once(&self.search_socket).chain(&self.sockets).enumerate() {
            let mut n_taken = 0;
            while let Ok((n, from)) = socket.recv_from(&mut buffer) {
                let from = one_address(from);
                let is_own = from.ip().is_loopback() && from.port() == own_port;
                match index {
                    0 => self.traffic.answered(from, &buffer[..n], clock::now()),
                    _ if is_own => {}
                    _ => self.traffic.handle_broadcast(from, &buffer[..n], clock::now()),
                }
                n_taken += 1;
                if n_taken == limit::TURN_DATAGRAMS {
                    has_more = true;
                    break;
                }
            }
        }
        has_more
    }
}

/// Maps all addresses of this host to one, since a program on it sends from several of them.
fn one_address(from: SocketAddr) -> SocketAddr {
    match interfaces::is_this_host(from.ip()) {
        true => SocketAddr::from((Ipv4Addr::LOCALHOST, from.port())),
        false => from,
    }
}

/// Sockets that receive datagrams to a port: all of them, or only broadcasts if a server of this host uses the port,
/// since otherwise its searches would be delivered here.
fn listening_sockets(port: u16) -> io::Result<Vec<UdpSocket>> {
    if !socket::is_taken(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))) {
        return Ok(vec![socket::shared_udp(Ipv4Addr::UNSPECIFIED, port)?]);
    }
    let broadcasts = interfaces::broadcast_addresses();
    let bound: Vec<io::Result<UdpSocket>> =
        broadcasts.into_iter().map(|broadcast| socket::shared_udp(broadcast, port)).collect();
    if bound.iter().all(Result::is_err) {
        // All have the same cause: another program uses the port exclusively.
        let with_port = |error: io::Error| io::Error::new(error.kind(), format!("UDP port {port}: {error}"));
        return bound.into_iter().collect::<io::Result<_>>().map_err(with_port);
    }
    Ok(bound.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_handles_a_limited_number_of_datagrams_and_reports_whether_there_are_more() {
        let mut monitor = TrafficMonitor::searching(&ClientConfig::with_addresses(Vec::new())).unwrap();
        let port = monitor.search_socket.local_addr().unwrap().port();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for _ in 0..limit::TURN_DATAGRAMS + 10 {
            sender.send_to(b"x", (Ipv4Addr::LOCALHOST, port)).unwrap();
        }

        let is_more = [monitor.receive(), monitor.receive()];

        assert_eq!(is_more, [true, false]);
    }

    #[test]
    fn a_name_is_searched_for_and_the_monitor_registers_again_only_after_a_pause() {
        let (server, repeater) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let config = ClientConfig::with_addresses(vec![server.local_addr().unwrap()]);
        let mut monitor = TrafficMonitor::searching(&config).unwrap();
        let port = repeater.local_addr().unwrap().port();
        monitor.registration = Some(RegistrationTimer { port, at: Instant::now(), _repeater: None });
        monitor.search("x:y");
        for socket in [&server, &repeater] {
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        }

        let before = Instant::now();
        monitor.tick();
        monitor.tick();
        let after = Instant::now();

        assert!(server.recv(&mut [0; 64]).is_ok());
        assert_eq!(repeater.recv(&mut [0; 64]).unwrap(), fodo_ca::repeater::registration().len());
        repeater.set_nonblocking(true).unwrap();
        assert!(repeater.recv(&mut [0; 64]).is_err(), "it is registered");
        let again_at = monitor.registration.unwrap().at;
        assert!((before + limit::ADDRESS_REFRESH..=after + limit::ADDRESS_REFRESH).contains(&again_at));
    }
}
