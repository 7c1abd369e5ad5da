//! A server: any [`Source`] of PVs on the network.

mod circuit;
mod posts;
mod reactor;
mod source;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;

pub use self::posts::Posts;
use self::reactor::{Inbox, Message, Reactor};
pub use self::source::{Completion, PutRefusal, Pv, PvFacts, Source};
use crate::config::ServerConfig;
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

/// A running server; stops when dropped.
#[derive(Debug)]
pub struct Server {
    inboxes: Vec<Arc<Inbox>>,
    threads: Vec<JoinHandle<()>>,
    tcp_port: u16,
    udp_port: u16,
}

impl Server {
    /// Binds, listens and answers searches from now on, on at most four threads.
    pub fn start(config: ServerConfig, source: Arc<dyn Source>) -> Result<Server, ServerError> {
        let edge = Edge::bind(&config)?;
        let (tcp_port, udp_port) = (edge.tcp_port, edge.udp_port);
        let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(limit::SERVER_THREADS);
        let mut reactors = Vec::new();
        for _ in 0..n_threads {
            reactors.push(Reactor::new(source.clone(), config.payload_bytes_max).map_err(ServerError::System)?);
        }
        let inboxes: Vec<Arc<Inbox>> = reactors.iter().map(|reactor| reactor.inbox().clone()).collect();
        let mut server = Server { inboxes: inboxes.clone(), threads: Vec::new(), tcp_port, udp_port };
        let mut edge = Some(edge);
        for (index, mut reactor) in reactors.into_iter().enumerate() {
            if let Some(edge) = edge.take() {
                reactor.take_edge(edge, inboxes.clone()).map_err(ServerError::System)?;
            }
            let thread = std::thread::Builder::new()
                .name(format!("fodo-server-{index}"))
                .spawn(move || reactor.run())
                .map_err(ServerError::System)?;
            server.threads.push(thread);
        }
        Ok(server)
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
    beacon_addresses: Vec<SocketAddr>,
    tcp_port: u16,
    udp_port: u16,
}

/// A socket that hears searches.
#[derive(Debug)]
struct Answering {
    socket: UdpSocket,
    /// The one that answers them: itself, or the one with the address of the same interface.
    replies_from: usize,
}

impl Edge {
    fn bind(config: &ServerConfig) -> Result<Edge, ServerError> {
        let interfaces = match config.interfaces.as_slice() {
            [] => &[Ipv4Addr::UNSPECIFIED][..],
            some => some,
        };
        let (answering, udp_port) = bind_udp(interfaces, config.port)?;
        let (listeners, tcp_port) = listen(interfaces, config.port)?;
        let mut beacon_addresses = config.beacon_addresses.clone();
        if config.beacons_to_interfaces {
            let automatic: Vec<SocketAddr> = match config.interfaces.as_slice() {
                [] => interfaces::search_addresses(config.beacon_port),
                some => some
                    .iter()
                    .map(|&ip| SocketAddr::from((interfaces::broadcast_of(ip).unwrap_or(ip), config.beacon_port)))
                    .collect(),
            };
            beacon_addresses.extend(automatic.into_iter().filter(|to| !config.beacon_addresses.contains(to)));
        }
        Ok(Edge { listeners, answering, beacon_addresses, tcp_port, udp_port })
    }
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
        sockets.push(Answering { socket, replies_from });
        if !interface.is_unspecified()
            && let Some(broadcast) = interfaces::broadcast_of(interface)
        {
            // Systems that let nobody bind a broadcast address still deliver unicast searches.
            let hears_broadcasts = socket::answering(broadcast, port).ok();
            sockets.extend(hears_broadcasts.map(|socket| Answering { socket, replies_from }));
        }
    }
    Ok((sockets, port))
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
