//! Server side: publishes the PVs of a [`Source`] on the network.

mod circuit;
mod observer;
mod panics;
mod posts;
mod pv_table;
mod quota;
mod reactor;
mod relay;
mod shared_pv;
mod source;
mod status;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use self::observer::{ClientStatus, Observer, ServerCounts, host_with_most_unused_clients};
pub use self::posts::Posts;
pub use self::pv_table::{PvTable, SourceChain};
use self::quota::{ClientHosts, Descriptors};
use self::reactor::{Inbox, Reactor, ReactorMessage};
use self::relay::Relay;
pub use self::shared_pv::{DeferredPut, SharedPv, SharedPvBuilder};
pub use self::source::{ChannelAccessPv, Completion, Peer, PutRefusal, Pv, PvFacts, RightsSignal, Source};
use self::status::{StatusPvs, StatusThread};
use crate::address_list::{AddressList, InterfaceSelection};
use crate::config::{ClientConfig, Quotas, ServerConfig};
use crate::log::Log;
use crate::{interfaces, limit, socket};

/// Why a server failed to start.
///
/// The text does not contain the system's error, which is the [`source`](std::error::Error::source).
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// An address cannot be bound.
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The system provides no thread or poller.
    System(io::Error),
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServerError::Bind { address, .. } => write!(f, "cannot listen on {address}"),
            ServerError::System(_) => write!(f, "the operating system provided no thread or poller"),
        }
    }
}

impl std::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ServerError::Bind { error, .. } | ServerError::System(error) => Some(error),
        }
    }
}

/// Counters of the updates of a server's PVs, summed over all subscriptions so far. [`Server::update_counts`] has an
/// example.
///
/// A post counts once for each subscription whose mask it matches. Posts in neither counter are still waiting in a
/// ring, because the circuit's buffer is full, or were dropped when a subscription ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateCounts {
    /// Passed to the circuit of the subscription.
    pub sent: u64,
    /// Replaced by later ones before they were sent.
    pub merged: u64,
}

/// The atomic counters behind [`UpdateCounts`].
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
///
/// Dropping it closes the connections of all clients and waits for the threads of the server, also while one calls a
/// source or a closure of the program; a drop within such a call would never return.
#[derive(Debug)]
pub struct Server {
    inboxes: Vec<Arc<Inbox>>,
    observer: Observer,
    status_thread: Option<StatusThread>,
    threads: Vec<JoinHandle<()>>,
    tcp_port: u16,
    udp_port: u16,
    client_config: ClientConfig,
}

impl Server {
    /// Binds the sockets, then accepts clients and answers searches on at most four threads.
    ///
    /// Fails if an address cannot be bound, or if the system provides no thread. See [`PvTable`] for an example.
    pub fn start(config: ServerConfig, source: Arc<dyn Source>) -> Result<Server, ServerError> {
        Server::start_with_log(config, source, Log::silent())
    }

    /// Like [`Server::start`], and reports events to `log`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    ///
    /// use fodo_net::log::{Level, Log};
    /// use fodo_net::{PvTable, Server, ServerConfig};
    ///
    /// let log = Log::new(Level::Warning, |line| eprintln!("{line}"));
    /// let server = Server::start_with_log(ServerConfig::isolated(), Arc::new(PvTable::new()), log)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_with_log(config: ServerConfig, source: Arc<dyn Source>, log: Log) -> Result<Server, ServerError> {
        let log = Arc::new(log);
        let bound = BoundSockets::bind(&config)?;
        let (tcp_port, udp_port) = (bound.tcp_port, bound.udp_port);
        let client_config = client_config(&config, udp_port);
        let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(limit::SERVER_THREADS);
        let tally = Arc::new(UpdateTally::default());
        let status = config.status_prefix.map(|prefix| (StatusPvs::new(), prefix));
        let source: Arc<dyn Source> = match &status {
            Some((status, prefix)) => Arc::new(SourceChain::new(vec![Arc::new(status.table(prefix)), source])),
            None => source,
        };
        let hosts = Arc::new(ClientHosts::new(config.quotas.clone(), Descriptors::of_process()));
        let mut reactors = Vec::new();
        for _ in 0..n_threads {
            let reactor =
                Reactor::new(source.clone(), config.payload_bytes_max, config.spin, tally.clone(), log.clone());
            reactors.push(reactor.map_err(ServerError::System)?);
        }
        let inboxes: Vec<Arc<Inbox>> = reactors.iter().map(|reactor| reactor.inbox().clone()).collect();
        let threads = Vec::new();
        let observer = Observer::new(inboxes.clone(), tally, hosts.clone());
        let mut server = Server {
            inboxes: inboxes.clone(),
            observer,
            status_thread: None,
            threads,
            tcp_port,
            udp_port,
            client_config,
        };
        let mut bound = Some(bound);
        for (index, mut reactor) in reactors.into_iter().enumerate() {
            if let Some(bound) = bound.take() {
                reactor.take_sockets(bound, inboxes.clone(), hosts.clone()).map_err(ServerError::System)?;
            }
            let thread = std::thread::Builder::new()
                .name(format!("fodo-server-{index}"))
                .spawn(move || reactor.run())
                .map_err(ServerError::System)?;
            server.threads.push(thread);
        }
        if let Some((mut status, _)) = status {
            server.refresh_every_second(move |clients, counts| status.refresh(clients, counts))?;
        }
        Ok(server)
    }

    /// Calls `refresh` soon, and then every second until the server stops, with its clients and its counters; for a
    /// program that publishes its own status.
    ///
    /// `refresh`: called on one thread, which also refreshes the status of the server
    /// ([`ServerConfig::status_prefix`]); the first call of this method starts it. If it panics, the thread ends, and
    /// with it all these refreshes. Fails if the system provides no thread.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    ///
    /// use fodo_net::{PvTable, Server, ServerConfig, SharedPv};
    ///
    /// let n_clients = SharedPv::new(0);
    /// let table = PvTable::from([("gateway:clients", n_clients.clone())]);
    /// let mut server = Server::start(ServerConfig::isolated(), Arc::new(table))?;
    /// server.refresh_every_second(move |clients, _counts| n_clients.post(clients.len() as i32))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn refresh_every_second(
        &mut self,
        refresh: impl FnMut(&[ClientStatus], &ServerCounts) + Send + 'static,
    ) -> Result<(), ServerError> {
        let thread = match self.status_thread.take() {
            Some(thread) => thread,
            None => StatusThread::start(self.observer.clone()).map_err(ServerError::System)?,
        };
        self.status_thread.insert(thread).add(Box::new(refresh));
        Ok(())
    }

    /// The update counters so far. Exact once the circuits are idle.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # use fodo_net::{PvTable, Server, ServerConfig};
    /// # let server = Server::start(ServerConfig::isolated(), Arc::new(PvTable::new()))?;
    /// let counts = server.update_counts();
    /// println!("{} updates sent, {} merged", counts.sent, counts.merged);
    /// # Ok(())
    /// # }
    /// ```
    pub fn update_counts(&self) -> UpdateCounts {
        self.observer.counts().updates
    }

    /// A handle that makes the server check the clients' access rights again; for the code that decides them.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// use fodo_net::{PvTable, Rights, Server, ServerConfig, SharedPv};
    ///
    /// let is_locked = Arc::new(AtomicBool::new(false));
    /// let locked = is_locked.clone();
    /// let setpoint = SharedPv::builder(20.0)
    ///     .on_put(|value, _client| Ok(value))
    ///     .rights(move |_client| Rights { read: true, write: !locked.load(Ordering::Relaxed) })
    ///     .build();
    /// let table = PvTable::from([("lab:setpoint", setpoint)]);
    /// let server = Server::start(ServerConfig::isolated(), Arc::new(table))?;
    ///
    /// is_locked.store(true, Ordering::Relaxed);
    /// // Connected clients are informed, and their puts are refused from now on.
    /// server.rights_signal().notify_changed();
    /// # Ok(())
    /// # }
    /// ```
    pub fn rights_signal(&self) -> RightsSignal {
        RightsSignal(self.inboxes.clone())
    }

    /// A handle to observe this server; it may outlive the server.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # use fodo_net::{PvTable, Server, ServerConfig};
    /// # let server = Server::start(ServerConfig::isolated(), Arc::new(PvTable::new()))?;
    /// let observer = server.observer();
    /// for client in observer.clients() {
    ///     println!("{} has {} channels", client.address, client.n_channels);
    /// }
    /// println!("{} names were searched for", observer.counts().searches);
    /// # Ok(())
    /// # }
    /// ```
    pub fn observer(&self) -> Observer {
        self.observer.clone()
    }

    /// The configuration of a client on this host that searches only this server and receives no beacons, with the same
    /// limit of payloads. See [`ServerConfig::isolated`].
    pub fn client_config(&self) -> ClientConfig {
        self.client_config.clone()
    }

    /// The TCP port of its circuits.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # use fodo_net::{PvTable, Server, ServerConfig};
    /// # let server = Server::start(ServerConfig::isolated(), Arc::new(PvTable::new()))?;
    /// println!("TCP port {}, UDP port {}", server.tcp_port(), server.udp_port());
    /// # Ok(())
    /// # }
    /// ```
    pub fn tcp_port(&self) -> u16 {
        self.tcp_port
    }

    /// The UDP port on which it receives searches. [`Server::tcp_port`] has an example.
    pub fn udp_port(&self) -> u16 {
        self.udp_port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Dropped first, while the reactors that it queries still reply.
        self.status_thread.take();
        self.inboxes.iter().for_each(|inbox| inbox.push(ReactorMessage::Stop));
        for thread in self.threads.drain(..) {
            // If a reactor panicked, the panic hook has already reported it on stderr.
            let _ = thread.join();
        }
    }
}

/// The configuration of a client on this host that searches only this server.
fn client_config(config: &ServerConfig, udp_port: u16) -> ClientConfig {
    let bound = config.interfaces.iter().find(|ip| !ip.is_multicast() && !ip.is_unspecified());
    let server = SocketAddr::from((bound.copied().unwrap_or(Ipv4Addr::LOCALHOST), udp_port));
    ClientConfig { payload_bytes_max: config.payload_bytes_max, ..ClientConfig::with_addresses(vec![server]) }
}

/// The sockets of the server as a whole.
#[derive(Debug)]
struct BoundSockets {
    listeners: Vec<TcpListener>,
    search_sockets: Vec<SearchSocket>,
    /// Hosts whose searches are ignored.
    ignored: Vec<Ipv4Addr>,
    beacon_addresses: AddressList,
    beacon_period_max: Duration,
    quotas: Quotas,
    relay: Option<Relay>,
    tcp_port: u16,
    udp_port: u16,
}

/// A socket that receives searches.
#[derive(Debug)]
struct SearchSocket {
    socket: UdpSocket,
    /// The index of the socket that sends the replies: itself, or the one bound to the address of the same interface.
    replies_from: usize,
    /// Whether it receives only datagrams addressed to this host alone.
    is_unicast: bool,
}

impl BoundSockets {
    fn bind(config: &ServerConfig) -> Result<BoundSockets, ServerError> {
        let (groups, some): (Vec<Ipv4Addr>, Vec<Ipv4Addr>) = config.interfaces.iter().partition(|ip| ip.is_multicast());
        let interfaces = match some.as_slice() {
            [] => &[Ipv4Addr::UNSPECIFIED][..],
            some => some,
        };
        let (mut search_sockets, udp_port) = bind_udp(interfaces, config.port)?;
        let relay = relay(interfaces, udp_port, &mut search_sockets)?;
        for group in groups {
            join(group, interfaces, udp_port, &mut search_sockets)?;
        }
        for SearchSocket { socket, .. } in &search_sockets {
            socket.set_multicast_ttl_v4(config.multicast_ttl).map_err(ServerError::System)?;
        }
        let (listeners, tcp_port) = listen(interfaces, config.port)?;
        let automatic = match (config.beacons_to_interfaces, some.is_empty()) {
            (false, _) => InterfaceSelection::No,
            (true, true) => InterfaceSelection::All(config.beacon_port),
            (true, false) => InterfaceSelection::Of(some, config.beacon_port),
        };
        let beacon_addresses =
            AddressList::new(&config.beacon_addresses, &config.beacon_hosts, automatic, Instant::now());
        let beacon_period_max = config.beacon_period_max;
        let ignored = config.ignored.clone();
        let quotas = config.quotas.clone();
        Ok(BoundSockets {
            listeners,
            search_sockets,
            ignored,
            beacon_addresses,
            beacon_period_max,
            quotas,
            tcp_port,
            udp_port,
            relay,
        })
    }
}

/// Joins a multicast group on the interfaces. The socket for all interfaces can join itself; otherwise the group needs
/// a socket of its own, since a socket bound to an interface's address does not receive multicasts.
fn join(
    group: Ipv4Addr,
    interfaces: &[Ipv4Addr],
    port: u16,
    search_sockets: &mut Vec<SearchSocket>,
) -> Result<(), ServerError> {
    let failed = |error| ServerError::Bind { address: SocketAddr::from((group, port)), error };
    if let ([Ipv4Addr::UNSPECIFIED], Some(SearchSocket { socket, .. })) = (interfaces, search_sockets.first()) {
        let joined = interfaces::own_addresses().into_iter().map(|own| socket.join_multicast_v4(&group, &own));
        // Some interfaces do not support multicast; one success is enough.
        return joined.reduce(Result::or).unwrap_or(Err(io::ErrorKind::AddrNotAvailable.into())).map_err(failed);
    }
    let socket = socket::multicast_udp(group, interfaces, port).map_err(failed)?;
    search_sockets.push(SearchSocket { socket, replies_from: 0, is_unicast: false });
    Ok(())
}

/// Binds a search socket for every interface, and one for its broadcast address, since a socket bound to an interface's
/// address does not receive broadcasts.
fn bind_udp(interfaces: &[Ipv4Addr], port: u16) -> Result<(Vec<SearchSocket>, u16), ServerError> {
    let mut sockets: Vec<SearchSocket> = Vec::new();
    let mut port = port;
    for &interface in interfaces {
        let failed = |error| ServerError::Bind { address: SocketAddr::from((interface, port)), error };
        let socket = socket::shared_udp(interface, port).map_err(failed)?;
        port = socket.local_addr().map_err(failed)?.port();
        let replies_from = sockets.len();
        sockets.push(SearchSocket { socket, replies_from, is_unicast: !interface.is_unspecified() });
        if !interface.is_unspecified()
            && let Some(broadcast) = interfaces::broadcast_of(interface)
        {
            // Systems that do not allow binding a broadcast address still deliver unicast searches.
            let hears_broadcasts = socket::shared_udp(broadcast, port).ok();
            sockets.extend(hears_broadcasts.map(|socket| SearchSocket { socket, replies_from, is_unicast: false }));
        }
    }
    Ok((sockets, port))
}

/// Sets up the relay of unicast searches. A socket for all interfaces cannot tell to which address a datagram was sent,
/// so each address of this host gets a socket of its own.
fn relay(
    interfaces: &[Ipv4Addr],
    port: u16,
    search_sockets: &mut Vec<SearchSocket>,
) -> Result<Option<Relay>, ServerError> {
    if !cfg!(target_os = "linux") {
        return Ok(None);
    }
    if interfaces == [Ipv4Addr::UNSPECIFIED] {
        for own in interfaces::own_addresses().into_iter().filter(|own| !own.is_loopback()) {
            // The address was just removed; unicast searches are still received by the socket for all interfaces.
            let Ok(socket) = socket::shared_udp(own, port) else { continue };
            search_sockets.push(SearchSocket { socket, replies_from: search_sockets.len(), is_unicast: true });
        }
    }
    Relay::new(port).map(Some).map_err(ServerError::System)
}

/// Listens on every interface on one port: the requested one, or any free port if that is in use.
fn listen(interfaces: &[Ipv4Addr], preferred_port: u16) -> Result<(Vec<TcpListener>, u16), ServerError> {
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
    match at(preferred_port) {
        // A second server on the same host: clients learn its port from the search reply.
        Err(ServerError::Bind { error, .. }) if error.kind() == io::ErrorKind::AddrInUse => at(0),
        result => result,
    }
}
