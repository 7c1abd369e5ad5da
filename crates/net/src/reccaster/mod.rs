//! A client of RecSync: reports to a RecCeiver which records this process serves, for a directory such as
//! ChannelFinder.
//!
//! A RecCeiver announces itself by UDP broadcasts. This client connects to it, sends its records, and answers pings as
//! long as the RecCeiver runs. One thread does that, independently of the server.

pub mod machine;
mod message;

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use mio::net::{TcpStream, UdpSocket};
use mio::{Events, Interest, Poll, Token, Waker};

pub use self::machine::RecSyncTimeouts;
use self::machine::{Out, RecCasterMachine, RecSyncEvent, RecSyncInput};
use crate::log::{Level, Log};
use crate::{clock, limit, socket};

/// One item of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecSyncItem {
    /// A property of the whole process: an environment variable.
    Variable {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A record.
    Record {
        /// Its type.
        record_type: &'static str,
        /// Its name.
        name: String,
    },
    /// An alias of the preceding record.
    Alias(String),
    /// An info item of the preceding record.
    Info {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
}

/// All items of the report, variables first.
pub type RecSyncItems = Box<dyn Iterator<Item = RecSyncItem> + Send>;

/// Creates the items for each server. Called on the RecSync thread; the items are taken as fast as a server reads.
pub type ItemSource = Box<dyn Fn() -> RecSyncItems + Send>;

/// Where announcements are received, and the timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecCasterConfig {
    /// The address of an interface; the unspecified address for all, as required to receive broadcasts.
    pub interface: Ipv4Addr,
    /// The UDP port; 5049 unless a plant uses another.
    pub port: u16,
    /// The timeouts.
    pub timeouts: RecSyncTimeouts,
}

/// A client of RecSync that runs until it is dropped.
#[derive(Debug)]
pub struct RecCaster {
    is_stopped: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

const ANNOUNCEMENTS: Token = Token(0);
const CONNECTION: Token = Token(1);
const STOP: Token = Token(2);

impl RecCaster {
    /// Starts to listen on a separate thread. Fails if the port cannot be bound; several programs of a host can share
    /// it if all permit that.
    pub fn start(config: RecCasterConfig, items: ItemSource, log: Log) -> io::Result<RecCaster> {
        let mut announcements = UdpSocket::from_std(socket::shared_udp(config.interface, config.port)?);
        let poll = Poll::new()?;
        poll.registry().register(&mut announcements, ANNOUNCEMENTS, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), STOP)?;
        let is_stopped = Arc::new(AtomicBool::new(false));
        let machine = RecCasterMachine::new(items, config.timeouts, RandomState::new().hash_one(std::process::id()));
        let caster =
            RecCasterThread { machine, poll, announcements, has_more: false, connection: None, server: None, log };
        let stopped = is_stopped.clone();
        let thread = std::thread::Builder::new().name("fodo-reccaster".into()).spawn(move || caster.run(&stopped))?;
        Ok(RecCaster { is_stopped, waker, thread: Some(thread) })
    }
}

impl Drop for RecCaster {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        if self.waker.wake().is_ok()
            && let Some(thread) = self.thread.take()
        {
            // If the thread panicked, the panic hook has already reported it on stderr.
            let _ = thread.join();
        }
    }
}

/// The state machine with its sockets.
struct RecCasterThread {
    machine: RecCasterMachine,
    poll: Poll,
    announcements: UdpSocket,
    /// Whether datagrams were left in the socket, which the poller does not report again.
    has_more: bool,
    connection: Option<Connection>,
    /// The current or last server.
    server: Option<SocketAddr>,
    log: Log,
}

struct Connection {
    stream: TcpStream,
    is_open: bool,
    unsent: Vec<u8>,
}

impl RecCasterThread {
    fn run(mut self, is_stopped: &AtomicBool) {
        let mut events = Events::with_capacity(8);
        while !is_stopped.load(Ordering::Acquire) {
            let deadline = if self.has_more { Some(Instant::now()) } else { self.machine.deadline() };
            let timeout = deadline.map(|due| due.saturating_duration_since(Instant::now()));
            // An error such as EINTR does not matter: whatever is due is handled below.
            let _ = self.poll.poll(&mut events, timeout);
            if self.has_more || events.iter().any(|event| event.token() == ANNOUNCEMENTS) {
                self.receive_datagrams();
            }
            if events.iter().any(|event| event.token() == CONNECTION) {
                self.serve_connection();
            }
            self.handle(RecSyncInput::Tick);
        }
    }

    /// Handles a limited number of waiting datagrams.
    fn receive_datagrams(&mut self) {
        let mut datagram = [0; limit::RECCASTER_DATAGRAM_BYTES];
        self.has_more = true;
        for _ in 0..limit::RECCASTER_DATAGRAMS {
            match self.announcements.recv_from(&mut datagram) {
                Ok((n, from)) => self.handle(RecSyncInput::Datagram(datagram.get(..n).unwrap_or_default(), from)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.has_more = false;
                    return;
                }
                // Like a lost datagram.
                Err(_) => {}
            }
        }
    }

    /// Continues with the connection as far as possible without blocking.
    fn serve_connection(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        if !connection.is_open {
            match (connection.stream.take_error(), connection.stream.peer_addr()) {
                (Ok(None), Ok(_)) => connection.is_open = true,
                // The connection is not yet established.
                (Ok(None), Err(error)) if error.kind() == io::ErrorKind::NotConnected => return,
                _ => return self.close(),
            }
            self.handle(RecSyncInput::Connected);
        }
        self.receive();
        self.send();
    }

    fn receive(&mut self) {
        let mut bytes = [0; 1024];
        while let Some(connection) = &mut self.connection {
            match connection.stream.read(&mut bytes) {
                Ok(0) => return self.close(),
                Ok(n) => self.handle(RecSyncInput::Received(bytes.get(..n).unwrap_or_default())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.close(),
            }
        }
    }

    /// Sends pending bytes; notifies the machine when all are sent.
    fn send(&mut self) {
        while let Some(connection) = self.connection.as_mut().filter(|connection| !connection.unsent.is_empty()) {
            match connection.stream.write(&connection.unsent) {
                Ok(n) => {
                    connection.unsent.drain(..n);
                    if connection.unsent.is_empty() {
                        self.handle(RecSyncInput::Drained);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.close(),
            }
        }
    }

    /// The connection has ended.
    fn close(&mut self) {
        self.connection = None;
        self.handle(RecSyncInput::Closed);
    }

    /// Passes an input to the machine and performs its actions.
    fn handle(&mut self, input: RecSyncInput<'_>) {
        let mut out = Out::default();
        self.machine.handle(input, Instant::now(), &mut out);
        if let Some(event) = out.event {
            self.log_event(event);
        }
        if out.close {
            self.connection = None;
        }
        if let Some(server) = out.connect {
            self.server = Some(server);
            match self.connect(server) {
                Ok(connection) => self.connection = Some(connection),
                Err(_) => return self.close(),
            }
        }
        // A peer that sends pings and reads no replies is disconnected before the queue exceeds its limit.
        let Some(connection) = &mut self.connection else { return };
        if connection.unsent.len() + out.send.len() > limit::RECCASTER_UNSENT_BYTES {
            return self.close();
        }
        let is_new = connection.unsent.is_empty() && !out.send.is_empty();
        connection.unsent.extend(out.send);
        if is_new {
            self.send();
        }
    }

    fn connect(&self, server: SocketAddr) -> io::Result<Connection> {
        let mut stream = TcpStream::from_std(socket::connect(server)?);
        self.poll.registry().register(&mut stream, CONNECTION, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Connection { stream, is_open: false, unsent: Vec::new() })
    }

    fn log_event(&self, event: RecSyncEvent) {
        let (level, what) = match event {
            RecSyncEvent::Announced => (Level::Info, "a RecCeiver knows all records".to_owned()),
            RecSyncEvent::Disconnected => (Level::Info, "a RecCeiver has disconnected".to_owned()),
            RecSyncEvent::Failed(why) => (Level::Warning, format!("cannot send the records to a RecCeiver: {why}")),
        };
        self.log.write(level, &what, self.server, None, clock::now());
    }
}
