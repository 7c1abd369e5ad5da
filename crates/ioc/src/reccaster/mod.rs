//! A client of RecSync: reports to a RecCeiver which records this process serves, for a directory such as
//! ChannelFinder.
//!
//! A RecCeiver announces itself by UDP broadcasts. This client connects to it, sends its records, and answers pings as
//! long as the RecCeiver runs. A reactor does that, independently of the server.
//!
//! [`RunningIoc::announce`](crate::RunningIoc::announce) does this for the records of an IOC. A program without a database
//! reports its PVs itself:
//!
//! ```
//! use std::net::Ipv4Addr;
//! use std::time::Duration;
//!
//! use fodo_ioc::reccaster::{RecCaster, RecCasterConfig, RecSyncItem, RecSyncItems, RecSyncTimeouts};
//! use fodo_net::log::Log;
//! use fodo_net::reactor::Reactor;
//!
//! fn items() -> RecSyncItems {
//!     Box::new([RecSyncItem::Record { record_type: "ao", name: "gap".into() }].into_iter())
//! }
//!
//! # fn main() -> std::io::Result<()> {
//! let timeouts = RecSyncTimeouts { hold_off_max: Duration::from_secs(10), answer: Duration::from_secs(20) };
//! // Port 5049 at most sites; 0: any free port, for a test.
//! let config = RecCasterConfig { interface: Ipv4Addr::LOCALHOST, port: 0, timeouts };
//! let reactor = Reactor::start("reccaster")?;
//! let running = RecCaster::start(config, Box::new(items), Log::silent(), &reactor)?;
//! # drop(running);
//! # Ok(())
//! # }
//! ```

mod items;
pub mod machine;
mod message;

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};

use fodo_data::Now;
use fodo_lock::Rank;
use fodo_net::log::{Level, Log};
use fodo_net::reactor::{
    ConnectProgress, NextCall, Reactor, Readiness, Registration, WriteOutcome, connect, connect_progress, flush, read,
    shared_udp,
};

pub use self::items::RecSyncConfig;
pub use self::machine::RecSyncTimeouts;
use self::machine::{Out, RecCasterMachine, RecSyncEvent, RecSyncInput};
use crate::limit;
use crate::service::{RunningService, Service};

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

/// Creates the items for each server. Called on the thread of the reactor; the items are taken as fast as a server reads.
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
    _service: RunningService<RecCasterSockets>,
}

impl RecCaster {
    /// Starts to listen on the thread of a reactor. Fails if the port cannot be bound; several programs of a host can
    /// share it if all permit that.
    pub fn start(config: RecCasterConfig, items: ItemSource, log: Log, reactor: &Reactor) -> io::Result<RecCaster> {
        let announcements = shared_udp(config.interface, config.port)?;
        let machine = RecCasterMachine::new(items, config.timeouts, RandomState::new().hash_one(std::process::id()));
        let create = |registration| RecCasterSockets {
            machine,
            registration,
            announcements,
            connection: None,
            server: None,
            log,
        };
        Ok(RecCaster { _service: RunningService::start(reactor, Rank::RecCaster, create)? })
    }
}

/// The state machine with its sockets.
struct RecCasterSockets {
    machine: RecCasterMachine,
    registration: Registration,
    announcements: UdpSocket,
    connection: Option<Connection>,
    /// The current or last server.
    server: Option<SocketAddr>,
    log: Log,
}

struct Connection {
    stream: TcpStream,
    is_open: bool,
    unsent: VecDeque<u8>,
}

impl Service for RecCasterSockets {
    fn watch(&self) -> io::Result<()> {
        self.registration.add_socket(&self.announcements, Readiness::Readable)
    }

    fn turn(&mut self, now: Now) -> NextCall {
        let has_datagrams = self.receive_datagrams(now);
        let has_bytes = self.serve_connection(now);
        self.handle(RecSyncInput::Tick, now);
        if has_datagrams || has_bytes {
            return NextCall::Soon;
        }
        self.machine.deadline().map_or(NextCall::OnReady, NextCall::At)
    }
}

impl RecCasterSockets {
    /// Handles a limited number of waiting datagrams; returns true if there may be more.
    fn receive_datagrams(&mut self, now: Now) -> bool {
        let mut datagram = [0; limit::RECCASTER_DATAGRAM_BYTES];
        for _ in 0..limit::RECCASTER_DATAGRAMS {
            match self.announcements.recv_from(&mut datagram) {
                Ok((n, from)) => self.handle(RecSyncInput::Datagram(datagram.get(..n).unwrap_or_default(), from), now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // Like a lost datagram.
                Err(_) => {}
            }
        }
        true
    }

    /// Continues with the connection as far as possible without blocking; returns true if there may be more to read.
    fn serve_connection(&mut self, now: Now) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        if !connection.is_open {
            match connect_progress(&connection.stream) {
                Ok(ConnectProgress::Established) => connection.is_open = true,
                Ok(ConnectProgress::Pending) => return false,
                Err(_) => {
                    self.close(now);
                    return false;
                }
            }
            self.handle(RecSyncInput::Connected, now);
        }
        let has_more = self.receive(now);
        self.send(now);
        has_more
    }

    /// Handles a limited number of received bytes; returns true if there may be more.
    fn receive(&mut self, now: Now) -> bool {
        let mut bytes = [0; limit::RECCASTER_READ_BYTES];
        for _ in 0..limit::RECCASTER_READS {
            let Some(connection) = &self.connection else { return false };
            match read(&connection.stream, &mut bytes) {
                Ok(Some(n)) => self.handle(RecSyncInput::Received(bytes.get(..n).unwrap_or_default()), now),
                Ok(None) => return false,
                Err(_) => {
                    self.close(now);
                    return false;
                }
            }
        }
        true
    }

    /// Sends pending bytes; notifies the machine when all are sent.
    fn send(&mut self, now: Now) {
        let Some(connection) = self.connection.as_mut().filter(|connection| !connection.unsent.is_empty()) else {
            return;
        };
        match flush(&connection.stream, &mut connection.unsent) {
            Ok(WriteOutcome::All) => self.handle(RecSyncInput::Drained, now),
            Ok(WriteOutcome::SocketIsFull | WriteOutcome::Enough) => {}
            Err(_) => self.close(now),
        }
    }

    /// The connection has ended.
    fn close(&mut self, now: Now) {
        self.connection = None;
        self.handle(RecSyncInput::Closed, now);
    }

    /// Passes an input to the machine and performs its actions.
    fn handle(&mut self, input: RecSyncInput<'_>, now: Now) {
        let mut out = Out::default();
        self.machine.handle(input, now.monotonic, &mut out);
        if let Some(event) = out.event {
            self.log_event(event, now);
        }
        if out.close {
            self.connection = None;
        }
        if let Some(server) = out.connect {
            self.server = Some(server);
            match self.connect(server) {
                Ok(connection) => self.connection = Some(connection),
                Err(_) => return self.close(now),
            }
        }
        // A peer that sends pings and reads no replies is disconnected before the queue exceeds its limit.
        let Some(connection) = &mut self.connection else { return };
        if connection.unsent.len() + out.send.len() > limit::RECCASTER_UNSENT_BYTES {
            return self.close(now);
        }
        let was_drained = connection.unsent.is_empty();
        connection.unsent.extend(out.send);
        if was_drained {
            self.send(now);
        }
    }

    fn connect(&self, server: SocketAddr) -> io::Result<Connection> {
        let stream = connect(server)?;
        self.registration.add_socket(&stream, Readiness::ReadableOrWritable)?;
        Ok(Connection { stream, is_open: false, unsent: VecDeque::new() })
    }

    fn log_event(&self, event: RecSyncEvent, now: Now) {
        let (level, what) = match event {
            RecSyncEvent::Announced => (Level::Info, "a RecCeiver knows all records".to_owned()),
            RecSyncEvent::Disconnected => (Level::Info, "a RecCeiver has disconnected".to_owned()),
            RecSyncEvent::Failed(why) => (Level::Warning, format!("cannot send the records to a RecCeiver: {why}")),
        };
        self.log.write(level, &what, self.server, None, now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;
    use crate::service::ServiceHandler;

    #[test]
    fn a_turn_reads_a_limited_number_of_datagrams_and_says_whether_there_may_be_more() {
        let reactor = Reactor::start("test").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let announcements = UdpSocket::bind("127.0.0.1:0").unwrap();
        announcements.set_nonblocking(true).unwrap();
        let to = announcements.local_addr().unwrap();
        let second = std::time::Duration::from_secs(1);
        let timeouts = RecSyncTimeouts { hold_off_max: second, answer: second };
        let mut sockets = RecCasterSockets {
            machine: RecCasterMachine::new(Box::new(|| Box::new(std::iter::empty())), timeouts, 1),
            registration: reactor.add(Weak::<ServiceHandler<RecCasterSockets>>::new()),
            announcements,
            connection: None,
            server: None,
            log: Log::silent(),
        };
        let now = Now { monotonic: std::time::Instant::now(), wall: fodo_data::TimeStamp::NEVER };
        // Loopback delivers a datagram before `send_to` returns.
        let mut turn = |n_datagrams| {
            for _ in 0..n_datagrams {
                sender.send_to(b"x", to).unwrap();
            }
            sockets.receive_datagrams(now)
        };

        assert_eq!([turn(0), turn(limit::RECCASTER_DATAGRAMS - 1)], [false, false]);
        assert_eq!([turn(limit::RECCASTER_DATAGRAMS), turn(0)], [true, false]);
    }
}
