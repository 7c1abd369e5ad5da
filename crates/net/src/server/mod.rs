//! A server: any [`Source`] of PVs on the network.

mod circuit;
mod observer;
mod posts;
mod quota;
mod reactor;
mod relay;
mod source;
mod status;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use self::observer::{ClientStatus, Observer, ServerCounts, host_of_most_unused};
pub use self::posts::Posts;
use self::quota::{Descriptors, Hosts};
use self::reactor::{Inbox, Message, Reactor};
use self::relay::Relay;
pub use self::source::{Completion, Peer, PutRefusal, Pv, PvFacts, RightsSignal, Source};
pub use self::status::StatusPv;
use self::status::{Refresher, StatusSource};
use crate::config::{Quotas, ServerConfig};
use crate::log::Log;
use crate::places::{Automatic, Places};
use crate::{interfaces, limit, socket};

/// Why a server cannot start.
#[derive(Debug)]
pub enum ServerError {
    /// An address cannot be bound.
    Bind {
        /// Which.
        address: SocketAddr,
        /// The system's words.
        error: io::Error,
    },
    /// The system gives no thread or poller.
    System(io::Error),
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServerError::Bind { address, error } => {
                write!(
                    f,
                    "cannot listen on {address}: {error}; is another server using it, or is it no address of this host?"
                )
            }
            ServerError::System(error) => write!(f, "the operating system says: {error}"),
        }
    }
}

impl std::error::Error for ServerError {}

/// What became of the posts of a server's PVs, summed over all subscriptions there have been.
///
/// A post counts once for each subscription whose mask it meets. Those that are in neither sum
/// wait in a ring for a circuit that has no room, or were left behind when a subscription ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateCounts {
    /// Handed to the circuit of the subscription.
    pub sent: u64,
    /// Replaced by later ones before they were sent.
    pub merged: u64,
}

/// The same, as it is kept.
#[derive(Debug, Default)]
struct UpdateTally {
    sent: AtomicU64,
    merged: AtomicU64,
}

impl UpdateTally {
    fn add(&self, counts: UpdateCounts) {
        self.sent.fetch_add(counts.sent, Ordering::Relaxed);
        self.merged.fetch_add(counts.merged, Ordering::Relaxed);
    }

    fn counts(&self) -> UpdateCounts {
        UpdateCounts { sent: self.sent.load(Ordering::Relaxed), merged: self.merged.load(Ordering::Relaxed) }
    }
}

/// A running server; stops when dropped.
#[derive(Debug)]
pub struct Server {
    inboxes: Vec<Arc<Inbox>>,
    observer: Observer,
    refresher: Option<Refresher>,
    threads: Vec<JoinHandle<()>>,
    tcp_port: u16,
    udp_port: u16,
}

impl Server {
    /// Binds, listens and answers searches from now on, on at most four threads.
    pub fn start(config: ServerConfig, source: Arc<dyn Source>) -> Result<Server, ServerError> {
        Server::start_telling(config, source, Log::silent())
    }

    /// As [`Server::start`], and what happens is told to `log`.
    pub fn start_telling(config: ServerConfig, source: Arc<dyn Source>, log: Log) -> Result<Server, ServerError> {
        let log = Arc::new(log);
        let edge = Edge::bind(&config)?;
        let (tcp_port, udp_port) = (edge.tcp_port, edge.udp_port);
        let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(limit::SERVER_THREADS);
        let tally = Arc::new(UpdateTally::default());
        let status = Arc::new(StatusSource::new(config.status_prefix, source));
        let source: Arc<dyn Source> = status.clone();
        let hosts = Arc::new(Hosts::new(config.quotas.clone(), Descriptors::of_process()));
        let mut reactors = Vec::new();
        for _ in 0..n_threads {
            let reactor =
                Reactor::new(source.clone(), config.payload_bytes_max, config.spin, tally.clone(), log.clone());
            reactors.push(reactor.map_err(ServerError::System)?);
        }
        let inboxes: Vec<Arc<Inbox>> = reactors.iter().map(|reactor| reactor.inbox().clone()).collect();
        let threads = Vec::new();
        let observer = Observer::new(inboxes.clone(), tally, hosts.clone(), status.clone());
        let mut server = Server { inboxes: inboxes.clone(), observer, refresher: None, threads, tcp_port, udp_port };
        let mut edge = Some(edge);
        for (index, mut reactor) in reactors.into_iter().enumerate() {
            if let Some(edge) = edge.take() {
                reactor.take_edge(edge, inboxes.clone(), hosts.clone()).map_err(ServerError::System)?;
            }
            let thread = std::thread::Builder::new()
                .name(format!("fodo-server-{index}"))
                .spawn(move || reactor.run())
                .map_err(ServerError::System)?;
            server.threads.push(thread);
        }
        if status.has_prefix() {
            let started = Refresher::start(server.observer.clone());
            server.refresher = Some(started.map_err(ServerError::System)?);
        }
        Ok(server)
    }

    /// What became of the updates so far. Exact once the circuits are idle.
    pub fn update_counts(&self) -> UpdateCounts {
        self.observer.counts().updates
    }

    /// Tells this server that what clients may do may have changed; for whoever decides it.
    pub fn rights_signal(&self) -> RightsSignal {
        RightsSignal(self.inboxes.clone())
    }

    /// What looks at this server from outside, and may outlive it.
    pub fn observer(&self) -> Observer {
        self.observer.clone()
    }

    /// The TCP port of the circuits.
    pub fn tcp_port(&self) -> u16 {
        self.tcp_port
    }

    /// The UDP port of the searches.
    pub fn udp_port(&self) -> u16 {
        self.udp_port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // While the reactors it asks still answer.
        self.refresher.take();
        self.inboxes.iter().for_each(|inbox| inbox.push(Message::Stop));
        for thread in self.threads.drain(..) {
            // A reactor that panicked has said so on stderr.
            let _ = thread.join();
        }
    }
}

/// The sockets that belong to the server as a whole.
#[derive(Debug)]
struct Edge {
    listeners: Vec<TcpListener>,
    answering: Vec<Answering>,
    /// Whose searches are not answered.
    ignored: Vec<Ipv4Addr>,
    beacon_places: Places,
    beacon_period_max: Duration,
    quotas: Quotas,
    relay: Option<Relay>,
    tcp_port: u16,
    udp_port: u16,
}

/// A socket that hears searches.
#[derive(Debug)]
struct Answering {
    socket: UdpSocket,
    /// The one that answers them: itself, or the one with the address of the same interface.
    replies_from: usize,
    /// Whether it hears what was sent to this host alone, and nothing else.
    is_unicast: bool,
}

impl Edge {
    fn bind(config: &ServerConfig) -> Result<Edge, ServerError> {
        let (groups, some): (Vec<Ipv4Addr>, Vec<Ipv4Addr>) = config.interfaces.iter().partition(|ip| ip.is_multicast());
        let interfaces = match some.as_slice() {
            [] => &[Ipv4Addr::UNSPECIFIED][..],
            some => some,
        };
        let (mut answering, udp_port) = bind_udp(interfaces, config.port)?;
        let relay = relay(interfaces, udp_port, &mut answering)?;
        for group in groups {
            join(group, interfaces, udp_port, &mut answering)?;
        }
        for Answering { socket, .. } in &answering {
            socket.set_multicast_ttl_v4(config.multicast_ttl).map_err(ServerError::System)?;
        }
        let (listeners, tcp_port) = listen(interfaces, config.port)?;
        let automatic = match (config.beacons_to_interfaces, some.is_empty()) {
            (false, _) => Automatic::No,
            (true, true) => Automatic::All(config.beacon_port),
            (true, false) => Automatic::Of(some, config.beacon_port),
        };
        let beacon_places = Places::new(&config.beacon_addresses, &config.beacon_hosts, automatic, Instant::now());
        let beacon_period_max = config.beacon_period_max;
        let ignored = config.ignored.clone();
        let quotas = config.quotas.clone();
        Ok(Edge { listeners, answering, ignored, beacon_places, beacon_period_max, quotas, tcp_port, udp_port, relay })
    }
}

/// Has a group heard on the interfaces: by the socket of all of them, or by one of its own, as a
/// socket with the address of an interface does not hear groups.
fn join(
    group: Ipv4Addr,
    interfaces: &[Ipv4Addr],
    port: u16,
    answering: &mut Vec<Answering>,
) -> Result<(), ServerError> {
    let failed = |error| ServerError::Bind { address: SocketAddr::from((group, port)), error };
    if let ([Ipv4Addr::UNSPECIFIED], Some(Answering { socket, .. })) = (interfaces, answering.first()) {
        let joined = interfaces::own_addresses().into_iter().map(|own| socket.join_multicast_v4(&group, &own));
        // Not every interface can; one is enough.
        return joined.reduce(Result::or).unwrap_or(Err(io::ErrorKind::AddrNotAvailable.into())).map_err(failed);
    }
    let socket = socket::member(group, interfaces, port).map_err(failed)?;
    answering.push(Answering { socket, replies_from: 0, is_unicast: false });
    Ok(())
}

/// A socket for searches on every interface, and one on its broadcast address, since a socket
/// bound to an address does not hear broadcasts.
fn bind_udp(interfaces: &[Ipv4Addr], port: u16) -> Result<(Vec<Answering>, u16), ServerError> {
    let mut sockets: Vec<Answering> = Vec::new();
    let mut port = port;
    for &interface in interfaces {
        let failed = |error| ServerError::Bind { address: SocketAddr::from((interface, port)), error };
        let socket = socket::answering(interface, port).map_err(failed)?;
        port = socket.local_addr().map_err(failed)?.port();
        let replies_from = sockets.len();
        sockets.push(Answering { socket, replies_from, is_unicast: !interface.is_unspecified() });
        if !interface.is_unspecified()
            && let Some(broadcast) = interfaces::broadcast_of(interface)
        {
            // Systems that let nobody bind a broadcast address still deliver unicast searches.
            let hears_broadcasts = socket::answering(broadcast, port).ok();
            sockets.extend(hears_broadcasts.map(|socket| Answering { socket, replies_from, is_unicast: false }));
        }
    }
    Ok((sockets, port))
}

/// What hands unicast searches on. Where all interfaces are heard by one socket, which knows of no datagram to whom it
/// was sent, those to the host alone get sockets of their own.
fn relay(interfaces: &[Ipv4Addr], port: u16, answering: &mut Vec<Answering>) -> Result<Option<Relay>, ServerError> {
    if !cfg!(target_os = "linux") {
        return Ok(None);
    }
    if interfaces == [Ipv4Addr::UNSPECIFIED] {
        for own in interfaces::own_addresses().into_iter().filter(|own| !own.is_loopback()) {
            // An address that has just gone; unicast searches still come in by the socket of all.
            let Ok(socket) = socket::answering(own, port) else { continue };
            answering.push(Answering { socket, replies_from: answering.len(), is_unicast: true });
        }
    }
    Relay::new(port).map(Some).map_err(ServerError::System)
}

/// Listens on every interface at one port: the wanted one, or any that is free.
fn listen(interfaces: &[Ipv4Addr], wanted: u16) -> Result<(Vec<TcpListener>, u16), ServerError> {
    let at = |port: u16| -> Result<(Vec<TcpListener>, u16), ServerError> {
        let mut port = port;
        let mut listeners = Vec::new();
        for &interface in interfaces {
            let failed = |error| ServerError::Bind { address: SocketAddr::from((interface, port)), error };
            let listener = socket::listen(interface, port).map_err(failed)?;
            port = listener.local_addr().map_err(failed)?.port();
            listeners.push(listener);
        }
        Ok((listeners, port))
    };
    match at(wanted) {
        // The second server of a host: clients learn its port from the search.
        Err(ServerError::Bind { error, .. }) if error.kind() == io::ErrorKind::AddrInUse => at(0),
        result => result,
    }
}
