//! The repeater's socket: it receives all beacons that reach this host.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Weak};

use fodo_ca::repeater::Repeater as Machine;
use fodo_ca::search::Datagram;
use fodo_data::Now;
use fodo_lock::Mutex;

use crate::reactor::{EventHandler, NextCall, Reactor, Readiness, Registration};
use crate::{limit, socket};

/// Forwards the beacons that reach this host to every registered client on it. Stops when dropped.
///
/// ```
/// use fodo_net::Repeater;
///
/// # fn main() -> std::io::Result<()> {
/// let repeater = Repeater::start(0)?; // 5065 at most sites; 0: any free port, for a test
/// println!("port {}, {} clients", repeater.port(), repeater.n_clients());
/// # Ok(())
/// # }
/// ```
///
/// Runs on the client thread of this process. Needs no permission, and no configuration except its port. Programs that
/// use libca or Fodo can register with it, just as Fodo's clients can register with libca's repeater.
#[derive(Debug)]
pub struct Repeater(Arc<RepeaterShared>);

struct RepeaterShared {
    socket: UdpSocket,
    registration: Registration,
    state: Mutex<RepeaterState>,
}

struct RepeaterState {
    machine: Machine,
    datagrams: Vec<Datagram>,
}

impl Repeater {
    /// Binds the port. Fails if a repeater is already running.
    pub fn start(port: u16) -> io::Result<Repeater> {
        Repeater::start_on(&*Reactor::shared()?, port)
    }

    pub(crate) fn start_on(reactor: &Reactor, port: u16) -> io::Result<Repeater> {
        let socket = socket::exclusive_udp(port)?;
        let port = socket.local_addr()?.port();
        let state = RepeaterState { machine: Machine::new(port), datagrams: Vec::new() };
        let shared = Arc::new_cyclic(|shared: &Weak<RepeaterShared>| {
            let registration = reactor.add(shared.clone());
            RepeaterShared { socket, registration, state: Mutex::new(state) }
        });
        shared.registration.add_socket(&shared.socket, Readiness::Readable)?;
        Ok(Repeater(shared))
    }

    /// Its UDP port.
    pub fn port(&self) -> u16 {
        self.0.socket.local_addr().map_or(0, |address| address.port())
    }

    /// Number of clients that are registered now.
    pub fn n_clients(&self) -> usize {
        self.0.state.lock().machine.n_clients()
    }
}

impl std::fmt::Debug for RepeaterShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Repeater").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl EventHandler for RepeaterShared {
    fn on_event(self: Arc<Self>, now: Now) -> NextCall {
        let mut state = self.state.lock();
        let RepeaterState { machine, datagrams } = &mut *state;
        let mut buffer = [0; 2048];
        for _ in 0..limit::TURN_DATAGRAMS {
            let (n, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return NextCall::OnReady,
                // An ICMP error about a client that has disconnected; other datagrams wait.
                Err(_) => continue,
            };
            let is_local = from.ip().is_loopback();
            machine.handle(from, is_local, &buffer[..n], now, &mut is_alive, datagrams);
            for datagram in datagrams.drain(..) {
                if let Some(to) = datagram.to {
                    // A failure is like a lost datagram: the next beacon follows.
                    let _ = self.socket.send_to(&datagram.bytes, to);
                }
            }
        }
        NextCall::Soon
    }
}

/// Whether a client still exists: then no other socket can bind its port.
fn is_alive(client: SocketAddr) -> bool {
    socket::is_taken(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), client.port()))
}
