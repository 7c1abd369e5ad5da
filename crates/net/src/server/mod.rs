//! Server side: publishes the PVs of a [`Source`] on the network.

pub(crate) mod bound_sockets;
mod call;
pub(crate) mod circuit;
mod first_bytes;
mod observer;
pub(crate) mod panics;
pub(crate) mod posts;
mod pv_table;
mod quota;
mod reactor;
mod relay;
pub(crate) mod search_intake;
mod shared_pv;
mod shared_structure;
mod source;
mod status;
mod structured;
mod tls_acceptor;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use self::bound_sockets::BoundSockets;
pub use self::call::Call;
use self::circuit::CircuitConfig;
pub use self::observer::{ClientStatus, Observer, ServerCounts, host_with_most_unused_clients};
pub use self::posts::{Posts, StructurePosts};
pub use self::pv_table::{PvTable, SourceChain};
use self::quota::{ClientHosts, Descriptors};
use self::reactor::{Inbox, Reactor, ReactorMessage};
pub use self::shared_pv::{DeferredPut, SharedPv, SharedPvBuilder};
pub use self::shared_structure::{SharedStructure, SharedStructureBuilder};
pub use self::source::{
    ChannelAccessPv, Completion, NormativeShape, Peer, PutRefusal, Pv, PvAccessPv, PvFacts, RightsSignal, Source,
};
use self::status::{StatusPvs, StatusThread};
pub use self::structured::{ServedPv, StructuredPv};
use self::tls_acceptor::TlsAcceptor;
use crate::config::{ClientConfig, InterfaceAddress, PvaClientConfig, ServerConfig};
use crate::limit;
use crate::log::Log;
use crate::pva::responder::PvaSearchSockets;
use crate::tls::KeychainError;

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
    /// The keychain cannot be used by a server.
    Keychain(KeychainError),
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServerError::Bind { address, .. } => write!(f, "cannot listen on {address}"),
            ServerError::Keychain(error) => error.fmt(f),
            ServerError::System(_) => write!(f, "the operating system provided no thread or poller"),
        }
    }
}

impl std::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ServerError::Bind { error, .. } | ServerError::System(error) => Some(error),
            ServerError::Keychain(_) => None,
        }
    }
}

/// Counters of the updates of a server's PVs, summed over all subscriptions so far. [`Server::update_counts`] has an
/// example.
///
/// A post counts once for each subscription whose mask it matches. Posts in neither counter are still waiting in a
/// ring, because the circuit's buffer is full, were dropped when a subscription ended, or have changed no field that the
/// subscription selects.
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
    ports: ProtocolPorts,
    pva_ports: Option<PvaServerPorts>,
    client_config: ClientConfig,
}

/// The ports that a server uses for a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProtocolPorts {
    /// Of its circuits.
    pub(crate) tcp: u16,
    /// At which it receives searches.
    pub(crate) udp: u16,
}

/// The ports that a server uses for pvAccess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PvaServerPorts {
    /// Of its circuits by plain TCP; `None` if TLS is the only transport.
    pub(crate) tcp: Option<u16>,
    /// Of its circuits by TLS; `None` without a keychain.
    pub(crate) tls: Option<u16>,
    /// At which it receives searches.
    pub(crate) udp: u16,
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
        let bound = BoundSockets::bind(&config, &log)?;
        let (ports, pva_ports) = (bound.ports, bound.pva_ports());
        let client_config = client_config(&config, ports, pva_ports);
        let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(limit::SERVER_THREADS);
        let tally = Arc::new(UpdateTally::default());
        let status = config.status_prefix.map(|prefix| (StatusPvs::new(), prefix));
        let source: Arc<dyn Source> = match &status {
            Some((status, prefix)) => Arc::new(SourceChain::new(vec![Arc::new(status.table(prefix)), source])),
            None => source,
        };
        let hosts = Arc::new(ClientHosts::new(config.quotas.clone(), Descriptors::of_process()));
        let guid = bound.pva.as_ref().map(PvaSearchSockets::guid).unwrap_or_default();
        let circuit_config = CircuitConfig {
            payload_bytes_max: config.payload_bytes_max,
            flush_delay: config.flush_delay,
            guid,
            tls_port: pva_ports.and_then(|ports| ports.tls),
        };
        let acceptor = config.pva.as_ref().map(TlsAcceptor::of).transpose()?.flatten();
        let mut reactors = Vec::new();
        for _ in 0..n_threads {
            let reactor =
                Reactor::new(source.clone(), circuit_config, acceptor.clone(), config.spin, tally.clone(), log.clone());
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
            ports,
            pva_ports,
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

    /// The configuration of a client on this host that searches only this server, over the protocols that it serves, and
    /// receives no beacons, with the same limit of payloads. See [`ServerConfig::isolated`].
    pub fn client_config(&self) -> ClientConfig {
        self.client_config.clone()
    }

    /// The TCP port of its circuits of Channel Access.
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
        self.ports.tcp
    }

    /// The UDP port on which it receives searches of Channel Access. [`Server::tcp_port`] has an example.
    pub fn udp_port(&self) -> u16 {
        self.ports.udp
    }

    /// The TCP port of its circuits of pvAccess without TLS; `None` if it does not serve pvAccess ([`ServerConfig::pva`]), or
    /// only by TLS.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # use fodo_net::{PvTable, Server, ServerConfig};
    /// # let server = Server::start(ServerConfig::isolated(), Arc::new(PvTable::new()))?;
    /// if let (Some(tcp_port), Some(udp_port)) = (server.pva_tcp_port(), server.pva_udp_port()) {
    ///     println!("pvAccess: TCP port {tcp_port}, UDP port {udp_port}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn pva_tcp_port(&self) -> Option<u16> {
        self.pva_ports?.tcp
    }

    /// The TCP port of its circuits of pvAccess by TLS; `None` if it has no keychain ([`PvaServerConfig::tls`]).
    /// [`Server::pva_tcp_port`] has an example.
    ///
    /// [`PvaServerConfig::tls`]: crate::PvaServerConfig::tls
    pub fn pva_tls_port(&self) -> Option<u16> {
        self.pva_ports?.tls
    }

    /// The UDP port on which it receives searches of pvAccess. [`Server::pva_tcp_port`] has an example.
    pub fn pva_udp_port(&self) -> Option<u16> {
        Some(self.pva_ports?.udp)
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
fn client_config(config: &ServerConfig, ports: ProtocolPorts, pva_ports: Option<PvaServerPorts>) -> ClientConfig {
    let pva_servers =
        config.pva.iter().zip(pva_ports).map(|(pva, ports)| reached_at(pva.interfaces.iter().copied(), ports.udp));
    let interfaces = config.interfaces.iter().map(|&ip| ip.into());
    ClientConfig {
        payload_bytes_max: config.payload_bytes_max,
        pva: PvaClientConfig::with_addresses(pva_servers.collect()),
        ..ClientConfig::with_addresses(vec![reached_at(interfaces, ports.udp)])
    }
}

/// The address at which a client on this host reaches a server of these interfaces.
fn reached_at(mut interfaces: impl Iterator<Item = InterfaceAddress>, port: u16) -> SocketAddr {
    let bound = interfaces.find(|interface| !interface.ip.is_multicast() && !interface.ip.is_unspecified());
    bound.unwrap_or(Ipv4Addr::LOCALHOST.into()).at(port)
}
