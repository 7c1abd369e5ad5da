//! Monitoring the searches and beacons of other programs, and searching for names independently of any client.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use fodo_ca::search::Datagram;
pub use fodo_ca::traffic::{ClientTraffic, NameState, NameTraffic, SearchMonitor, ServerTraffic};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::config::ClientConfig;
use crate::places::{Automatic, Places};
use crate::repeater::Repeater;
use crate::{clock, interfaces, limit, socket};

/// A passive observer of the network with its own sockets. It works on the thread that calls [`Bystander::run`].
#[derive(Debug)]
pub struct Bystander {
    poll: Poll,
    asking: UdpSocket,
    hearing: Vec<UdpSocket>,
    places: Places,
    traffic: SearchMonitor,
    datagrams: Vec<Datagram>,
    registration: Option<Registration>,
}

/// The registration with the host's repeater, which forwards beacons; renewed periodically.
#[derive(Debug)]
struct Registration {
    port: u16,
    at: Instant,
    /// Present if the host had no repeater, so that this process became the repeater.
    _repeater: Option<Repeater>,
}

impl Bystander {
    /// Creates an observer that only searches, at the addresses where a client with this configuration would search by
    /// UDP.
    pub fn asking(config: &ClientConfig) -> io::Result<Bystander> {
        let poll = Poll::new()?;
        let asking = socket::searching(config.multicast_ttl)?;
        poll.registry().register(&mut SourceFd(&asking.as_raw_fd()), Token(0), Interest::READABLE)?;
        let automatic = config.interface_search_port.map_or(Automatic::No, Automatic::All);
        let addresses = interfaces::with_all_servers_here(&config.search_addresses);
        Ok(Bystander {
            poll,
            asking,
            hearing: Vec::new(),
            places: Places::new(&addresses, &config.search_hosts, automatic, Instant::now()),
            traffic: SearchMonitor::new(u64::from(std::process::id())),
            datagrams: Vec::new(),
            registration: None,
        })
    }

    /// Creates an observer that also receives searches, on the ports where such a client would search, and beacons.
    ///
    /// A unicast datagram reaches only one program of a host, so it is received only while no server of this host uses
    /// the port; broadcasts and multicasts reach all programs. Fails if no port can be shared.
    pub fn hearing(config: &ClientConfig) -> io::Result<Bystander> {
        let mut bystander = Bystander::asking(config)?;
        let listed = config.search_addresses.iter().map(SocketAddr::port);
        let mut ports: Vec<u16> = listed
            .chain(config.search_hosts.iter().map(|host| host.port))
            .chain(config.interface_search_port)
            .collect();
        ports.sort_unstable();
        ports.dedup();
        for port in ports {
            bystander.hearing.extend(hearing_at(port)?);
        }
        let groups = config.search_addresses.iter().filter_map(|address| match address {
            SocketAddr::V4(address) if address.ip().is_multicast() => Some(*address),
            _ => None,
        });
        for group in groups {
            bystander.hearing.push(socket::member(*group.ip(), &interfaces::own_addresses(), group.port())?);
        }
        if bystander.hearing.is_empty() {
            let reason = "no search addresses: EPICS_CA_ADDR_LIST is empty and EPICS_CA_AUTO_ADDR_LIST is NO";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        for (index, socket) in bystander.hearing.iter().enumerate() {
            let token = Token(index + 1);
            bystander.poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)?;
        }
        bystander.registration = config.repeater_port.map(|port| {
            // If this process cannot be the repeater, another program is.
            Registration { port, at: Instant::now(), _repeater: Repeater::start(port).ok() }
        });
        Ok(bystander)
    }

    /// The addresses on which searches are received.
    pub fn heard_at(&self) -> Vec<SocketAddr> {
        self.hearing.iter().filter_map(|socket| socket.local_addr().ok()).collect()
    }

    /// Searches for a name like a client; no datagram is sent before [`Bystander::run`].
    pub fn ask(&mut self, name: &str) {
        self.traffic.ask(name, clock::now());
    }

    /// The traffic observed so far.
    pub fn traffic(&self) -> &SearchMonitor {
        &self.traffic
    }

    /// Host names in the address lists that cannot be resolved, each reported once.
    pub fn take_unresolved(&mut self) -> Vec<String> {
        self.places.take_unresolved()
    }

    /// Receives and searches until `duration` has passed, or until `is_enough` returns true after a turn.
    pub fn run(&mut self, duration: Duration, mut is_enough: impl FnMut(&SearchMonitor) -> bool) -> io::Result<()> {
        let end = Instant::now() + duration;
        let mut events = Events::with_capacity(64);
        let mut has_more = true;
        loop {
            self.tick();
            let now = Instant::now();
            if now >= end || (!has_more && is_enough(&self.traffic)) {
                return Ok(());
            }
            let registers_at = self.registration.as_ref().map(|registration| registration.at);
            let due = [self.traffic.deadline(), self.places.deadline(), registers_at];
            let next = due.into_iter().flatten().fold(end, Instant::min);
            let wait = if has_more { Duration::ZERO } else { next.saturating_duration_since(now) };
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => has_more = self.receive(),
            }
        }
    }

    fn tick(&mut self) {
        let now = clock::now();
        self.places.look(now.monotonic, || {});
        self.traffic.tick(now, &mut self.datagrams);
        for datagram in self.datagrams.drain(..) {
            for to in self.places.all() {
                // A failure is like a lost datagram: the search is repeated.
                let _ = self.asking.send_to(&datagram.bytes, to);
            }
        }
        if let Some(registration) = &mut self.registration
            && registration.at <= now.monotonic
        {
            // As above.
            let _ = self.asking.send_to(&fodo_ca::repeater::registration(), (Ipv4Addr::LOCALHOST, registration.port));
            registration.at = now.monotonic + limit::PLACES_LOOK;
        }
    }

    /// Handles waiting datagrams; returns true if there are more.
    fn receive(&mut self) -> bool {
        let own_port = self.asking.local_addr().map_or(0, |address| address.port());
        let mut buffer = [0; 8192];
        let mut has_more = false;
        for (index, socket) in std::iter::once(&self.asking).chain(&self.hearing).enumerate() {
            let mut n_taken = 0;
            while let Ok((n, from)) = socket.recv_from(&mut buffer) {
                let from = one_address(from);
                let is_own = from.ip().is_loopback() && from.port() == own_port;
                match index {
                    0 => self.traffic.answered(from, &buffer[..n], clock::now()),
                    _ if is_own => {}
                    _ => self.traffic.overheard(from, &buffer[..n], clock::now()),
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
fn hearing_at(port: u16) -> io::Result<Vec<UdpSocket>> {
    if !socket::is_taken(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))) {
        return Ok(vec![socket::answering(Ipv4Addr::UNSPECIFIED, port)?]);
    }
    let mut broadcasts: Vec<Ipv4Addr> =
        interfaces::own_addresses().into_iter().filter_map(interfaces::broadcast_of).collect();
    broadcasts.push(Ipv4Addr::BROADCAST);
    broadcasts.sort_unstable();
    broadcasts.dedup();
    let bound: Vec<io::Result<UdpSocket>> =
        broadcasts.into_iter().map(|broadcast| socket::answering(broadcast, port)).collect();
    if bound.iter().all(Result::is_err) {
        // All have the same cause: another program uses the port exclusively.
        let told = |error: io::Error| io::Error::new(error.kind(), format!("UDP port {port}: {error}"));
        return bound.into_iter().collect::<io::Result<_>>().map_err(told);
    }
    Ok(bound.into_iter().flatten().collect())
}
