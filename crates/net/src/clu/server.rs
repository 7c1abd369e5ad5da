//! The sockets of the server of a CLU, and the threads that drive its machines.
//!
//! ```
//! # use std::io;
//! use fodo_clu::server::CluServerConfig;
//! use fodo_clu::tftp::{FilePath, FileStore, StoreFault, TftpServerConfig, TransferId};
//! use fodo_data::Now;
//! use fodo_net::clu::*;
//!
//! /// Has no files.
//! struct NoFiles;
//!
//! impl FileStore for NoFiles {
//!     fn read(&mut self, _: &FilePath, _: usize) -> Result<Vec<u8>, StoreFault> {
//!         Err(StoreFault::NotFound)
//!     }
//! #   fn begin(&mut self, _: TransferId, _: &FilePath) -> Result<(), StoreFault> { Err(StoreFault::NotPermitted) }
//! #   fn write(&mut self, _: TransferId, _: &[u8]) -> Result<(), StoreFault> { Err(StoreFault::Failed) }
//! #   fn commit(&mut self, _: TransferId) -> Result<(), StoreFault> { Err(StoreFault::Failed) }
//! #   fn abort(&mut self, _: TransferId) {}
//!     // ...
//! }
//!
//! impl CluFiles for NoFiles {
//!     fn store_key(&mut self, _: &CipherKey) -> io::Result<()> {
//!         Err(io::ErrorKind::Unsupported.into())
//!     }
//!
//!     fn measure(&mut self, _: &str) -> io::Result<()> {
//!         Err(io::ErrorKind::Unsupported.into())
//!     }
//! }
//!
//! /// Answers each script with its length, and has no values to subscribe to.
//! struct Lengths(CluOutcomes<()>);
//!
//! impl CluHandler for Lengths {
//!     type Item = ();
//!     type Files = NoFiles;
//!
//!     fn start(&self, tasks: &mut Vec<CluTask<()>>) {
//!         for task in tasks.drain(..) {
//!             self.0.push(match task {
//!                 CluTask::Execute { reply, script } => {
//!                     CluOutcome::Executed { reply, value: script.len().to_string(), changes: Vec::new() }
//!                 }
//!                 CluTask::Fetch { fetch, .. } => CluOutcome::Fetched { fetch, list: "{}".into() },
//!                 CluTask::Reset { reply } => CluOutcome::Reset { reply },
//!             });
//!         }
//!         self.0.wake();
//!     }
//! }
//!
//! let key = CipherKey::new([1; 16], [2; 16]);
//! let config = CluSocketsConfig {
//!     listen: ([127, 0, 0, 1], 0).into(),
//!     broadcast: None,
//!     tftp: None,
//!     tftp_limits: TftpServerConfig::default(),
//!     clock: std::sync::Arc::new(|| Now { monotonic: std::time::Instant::now(), wall: std::time::SystemTime::now().into() }),
//! };
//! let clu = CluServerConfig::new(Serial(0x0d0a1b2c), [127, 0, 0, 1].into(), key.clone());
//! let outcomes = CluOutcomes::new()?;
//! let handler = Lengths(outcomes.clone());
//! let (mut server, poll) = CluServerSockets::start(config, clu, outcomes, handler, NoFiles)?;
//!
//! let connection = CluConnection::open(CluConnectionConfig::new(server.address()?, key))?;
//! let outcome = connection.request(CluRequest::Execute("four"))?;
//! assert_eq!(outcome, RequestOutcome::Answered(Answer::Text("4".into())));
//!
//! assert!(server.counts().answered > 0 && server.tftp_counts().files_read == 0);
//! assert_eq!((server.n_subscriptions(), server.tftp_address()), (0, None));
//! let CluServerSocketCounts { unsent, .. } = server.socket_counts();
//! assert_eq!(unsent, 0);
//! server.stop();
//! assert!(poll.is_stopped());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io::{self, Read, Write};
use std::mem;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use fodo_clu::cipher::CipherKey;
use fodo_clu::server::{CluServerConfig, CluServerCounts, FetchId, RegistrationChange, UnansweredRequest};
use fodo_clu::tftp::{FileStore, TftpServerConfig, TftpServerCounts, TransferId};
use fodo_data::Now;
use fodo_lock::{Mutex, Rank};
use rustix::event::{PollFd, PollFlags};

mod datagrams;
mod driver;
mod turns;

use driver::MachineDriver;
use turns::DriveTurns;

use crate::{interfaces, limit, socket};

/// Where the server of a CLU receives datagrams.
#[derive(Clone)]
pub struct CluSocketsConfig {
    /// The address of the CLU. Port 0 is any free port.
    pub listen: SocketAddr,
    /// The interface whose broadcasts are received, by its address or by its broadcast address. Port 0 is the port of
    /// `listen`.
    pub broadcast: Option<SocketAddr>,
    /// Where TFTP requests are received. Port 0 is any free port.
    pub tftp: Option<SocketAddr>,
    /// What TFTP permits.
    pub tftp_limits: TftpServerConfig,
    /// The clocks. A test that advances them must then cause a turn, for example with a request.
    pub clock: NowFn,
}

/// Clocks.
pub type NowFn = Arc<dyn Fn() -> Now + Send + Sync>;

/// What a request, or a subscription, requires from the scripts of a CLU. Each is ended with one [`CluOutcome`].
#[derive(Debug)]
pub enum CluTask<I> {
    /// Evaluate an expression of Lua.
    Execute {
        /// For the outcome.
        reply: UnansweredRequest,
        /// The expression.
        script: String,
    },
    /// Read the values of a subscription.
    Fetch {
        /// For the outcome.
        fetch: FetchId,
        /// What to read.
        items: Arc<[I]>,
    },
    /// Stop all objects and start the scripts again.
    Reset {
        /// For the outcome.
        reply: UnansweredRequest,
    },
}

/// The end of a [`CluTask`].
#[derive(Debug)]
pub enum CluOutcome<I> {
    /// The value of an expression.
    Executed {
        /// Of the task.
        reply: UnansweredRequest,
        /// The printed value.
        value: String,
        /// The registrations that the script has made.
        changes: Vec<RegistrationChange<I>>,
    },
    /// The values of a subscription.
    Fetched {
        /// Of the task.
        fetch: FetchId,
        /// The printed list.
        list: String,
    },
    /// The values of a subscription could not be read; the server requests them again after an interval.
    NotFetched {
        /// Of the task.
        fetch: FetchId,
    },
    /// The scripts have started again.
    Reset {
        /// Of the task.
        reply: UnansweredRequest,
    },
    /// The task was not carried out, for example because a queue is full. The client receives an error.
    Refused {
        /// Of the task.
        reply: UnansweredRequest,
    },
    /// Values may have changed: subscriptions are reported before the end of their interval.
    ValuesChanged,
}

/// What carries out the requests of clients.
pub trait CluHandler: Send + Sync + 'static {
    /// One value of a subscription.
    type Item: Send + Sync + 'static;

    /// The files of the CLU.
    type Files: CluFiles;

    /// Starts tasks, and empties the list. It must not wait for them: their outcomes go to the [`CluOutcomes`] of the server.
    fn start(&self, tasks: &mut Vec<CluTask<Self::Item>>);
}

/// The files of a CLU. Its functions take no lock but are called with one.
pub trait CluFiles: FileStore + Send + 'static {
    /// Stores a new key of the project; an error keeps the old one in effect.
    fn store_key(&mut self, key: &CipherKey) -> io::Result<()>;

    /// Writes the measurements to their file.
    ///
    /// `parameter`: the field of the request that selects them.
    fn measure(&mut self, parameter: &str) -> io::Result<()>;
}

/// What happened on the sockets of a server since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CluServerSocketCounts {
    /// Datagrams that the system did not send.
    pub unsent: u64,
    /// Datagrams that the system dropped because the server did not read its sockets fast enough; 0 on systems other than
    /// Linux.
    pub system_drops: u64,
    /// Errors of sockets while datagrams were received.
    pub receive_errors: u64,
    /// Transfers that ended because they got no socket.
    pub transfers_without_socket: u64,
    /// Keys and measurements that could not be stored; the requests were refused.
    pub not_stored: u64,
}

/// Receives the outcomes of tasks, on any thread. Cheap to clone.
pub struct CluOutcomes<I> {
    queue: Arc<OutcomeQueue<I>>,
}

impl<I> Clone for CluOutcomes<I> {
    fn clone(&self) -> CluOutcomes<I> {
        CluOutcomes { queue: Arc::clone(&self.queue) }
    }
}

/// Bounded by the tasks that wait, because each has one outcome.
struct OutcomeQueue<I> {
    outcomes: Mutex<Vec<CluOutcome<I>>>,
    waker: UnixStream,
    woken: UnixStream,
}

impl<I> CluOutcomes<I> {
    /// Creates an empty queue, for [`CluServerSockets::start`].
    pub fn new() -> io::Result<CluOutcomes<I>> {
        let (waker, woken) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        Ok(CluOutcomes { queue: Arc::new(OutcomeQueue { outcomes: Mutex::default(), waker, woken }) })
    }

    /// Ends a task. Never waits. The thread of the tasks sends it with its next [`CluTaskPoll::turn`]; the server's own thread
    /// sends it sooner if that turn is late. After a push by a third thread, call [`CluOutcomes::wake`].
    pub fn push(&self, outcome: CluOutcome<I>) {
        self.queue.outcomes.lock().push(outcome);
    }

    /// Ends the wait of the thread that drives the machines.
    pub fn wake(&self) {
        // It fails only if the thread has already been woken many times.
        let _ = (&self.queue.waker).write(&[0]);
    }

    /// Exchanges an empty list for the outcomes.
    fn swap(&self, outcomes: &mut Vec<CluOutcome<I>>) {
        debug_assert!(outcomes.is_empty());
        mem::swap(&mut *self.queue.outcomes.lock(), outcomes);
    }

    fn clear_wakes(&self) {
        let _ = (&self.queue.woken).read(&mut [0; 64]);
    }
}

/// The sockets of a server, and the thread that drives its machines while the thread of the tasks is busy. Dropping it stops
/// both: requests without a reply get none, and transfers of files end.
///
/// The [module](self) has an example.
pub struct CluServerSockets<H: CluHandler> {
    shared: Arc<ServerShared<H>>,
    thread: Option<JoinHandle<()>>,
}

/// Lets the thread that carries out the tasks drive the machines while it waits for tasks, so that a request wakes no other
/// thread. Without it, or while a task takes long, the server's own thread drives them and passes tasks to
/// [`CluHandler::start`].
pub struct CluTaskPoll<H: CluHandler> {
    shared: Arc<ServerShared<H>>,
    outcomes: Vec<CluOutcome<H::Item>>,
}

struct ServerShared<H: CluHandler> {
    sockets: ServedSockets,
    outcomes: CluOutcomes<H::Item>,
    handler: H,
    driver: Mutex<MachineDriver<H>>,
    clock: NowFn,
    turns: DriveTurns,
}

struct ServedSockets {
    unicast: UdpSocket,
    broadcast: Vec<UdpSocket>,
    tftp: Option<UdpSocket>,
}

impl<H: CluHandler> CluServerSockets<H> {
    /// Opens the sockets and starts the thread. Fails if an address is in use or is not one of this host.
    pub fn start(
        config: CluSocketsConfig,
        server: CluServerConfig,
        outcomes: CluOutcomes<H::Item>,
        handler: H,
        files: H::Files,
    ) -> io::Result<(CluServerSockets<H>, CluTaskPoll<H>)> {
        let unicast = bound(config.listen)?;
        let port = unicast.local_addr()?.port();
        let sockets = ServedSockets {
            broadcast: config.broadcast.map(|at| broadcast_sockets(at, port)).transpose()?.unwrap_or_default(),
            tftp: config.tftp.map(bound).transpose()?,
            unicast,
        };
        let clock = Arc::clone(&config.clock);
        let driver = Mutex::ranked(Rank::CluServer, MachineDriver::new(server, &config, files));
        let shared = Arc::new(ServerShared { sockets, outcomes, handler, driver, clock, turns: DriveTurns::new() });
        let of_thread = Arc::clone(&shared);
        let thread = Builder::new().name("fodo-clu-sockets".into()).spawn(move || of_thread.run())?;
        let poll = CluTaskPoll { shared: Arc::clone(&shared), outcomes: Vec::new() };
        Ok((CluServerSockets { shared, thread: Some(thread) }, poll))
    }

    /// Where requests are received.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.shared.sockets.unicast.local_addr()
    }

    /// Where TFTP requests are received.
    pub fn tftp_address(&self) -> Option<SocketAddr> {
        self.shared.sockets.tftp.as_ref().and_then(|socket| socket.local_addr().ok())
    }

    /// What happened to the datagrams since the start.
    pub fn counts(&self) -> CluServerCounts {
        self.shared.driver.lock().server.counts().clone()
    }

    /// What happened to transfers of files since the start.
    pub fn tftp_counts(&self) -> TftpServerCounts {
        self.shared.driver.lock().tftp.counts()
    }

    /// What happened on the sockets since the start.
    pub fn socket_counts(&self) -> CluServerSocketCounts {
        let counts = self.shared.driver.lock().counts;
        let ServedSockets { unicast, broadcast, tftp } = &self.shared.sockets;
        let sockets = std::iter::once(unicast).chain(broadcast).chain(tftp);
        CluServerSocketCounts { system_drops: datagrams::n_system_drops(sockets), ..counts }
    }

    /// The number of subscriptions.
    pub fn n_subscriptions(&self) -> usize {
        self.shared.driver.lock().server.n_subscriptions()
    }

    /// Stops the thread. The thread of the tasks receives and sends nothing more, and ends its wait.
    pub fn stop(&mut self) {
        self.shared.turns.stop();
        self.shared.outcomes.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by the thread.
            let _ = thread.join();
        }
    }
}

impl<H: CluHandler> Drop for CluServerSockets<H> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<H: CluHandler> CluTaskPoll<H> {
    /// Sends the outcomes of tasks, then waits for new tasks and adds them to `tasks`.
    ///
    /// `until`: when it returns at the latest, by the clock of the configuration; without it, when there are tasks; a time in the past does not wait. It also
    /// returns early after [`CluOutcomes::wake`], and at once after the server has stopped.
    pub fn turn(&mut self, until: Option<Instant>, tasks: &mut Vec<CluTask<H::Item>>) {
        let shared = &self.shared;
        shared.turn(&mut self.outcomes, tasks, |deadline, transfers| {
            shared.turns.task_thread_waits();
            let ready = shared.wait(earlier(deadline, until), transfers);
            shared.turns.task_thread_works();
            ready
        });
    }

    /// Whether the server has stopped.
    pub fn is_stopped(&self) -> bool {
        self.shared.turns.is_stopped()
    }
}

impl<H: CluHandler> Drop for CluTaskPoll<H> {
    fn drop(&mut self) {
        self.shared.turns.task_thread_ends();
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

/// A non-blocking socket that no other program shares.
fn bound(at: SocketAddr) -> io::Result<UdpSocket> {
    if !at.is_ipv4() {
        return Err(with_address(at, io::Error::new(io::ErrorKind::InvalidInput, "a CLU needs IPv4")));
    }
    let socket = UdpSocket::bind(at).map_err(|error| with_address(at, error))?;
    socket.set_nonblocking(true)?;
    // A request for more than the system permits is reduced.
    let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(limit::CLU_RECEIVE_BUFFER_BYTES);
    Ok(socket)
}

fn with_address(at: SocketAddr, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("UDP {at}: {error}"))
}

/// Sockets that receive the broadcasts of an interface: those to its own broadcast address, and those to all hosts.
fn broadcast_sockets(at: SocketAddr, port: u16) -> io::Result<Vec<UdpSocket>> {
    let SocketAddr::V4(at) = at else {
        return Err(with_address(at, io::Error::new(io::ErrorKind::InvalidInput, "broadcasts need IPv4")));
    };
    let port = if at.port() == 0 { port } else { at.port() };
    let broadcast = interfaces::broadcast_of(*at.ip()).unwrap_or(*at.ip());
    let mut addresses = vec![broadcast];
    if broadcast != Ipv4Addr::BROADCAST && !broadcast.is_loopback() {
        addresses.push(Ipv4Addr::BROADCAST);
    }
    let bound = addresses.into_iter().map(|address| {
        socket::shared_udp(address, port).map_err(|error| with_address(SocketAddr::from((address, port)), error))
    });
    bound.collect()
}

impl<H: CluHandler> ServerShared<H> {
    /// Drives the machines while no other thread does, until the server stops.
    fn run(&self) {
        let (mut tasks, mut outcomes) = (Vec::new(), Vec::new());
        while let Some(turn) = self.turns.next_socket_turn() {
            while self.turns.has(turn) {
                self.turn(&mut outcomes, &mut tasks, |deadline, transfers| {
                    let until = (self.clock)().monotonic + limit::CLU_BUSY_PERIOD;
                    self.wait(earlier(deadline, Some(until)), transfers)
                });
                if !tasks.is_empty() {
                    self.handler.start(&mut tasks);
                }
            }
            // The thread of the tasks may wait already: without the outcomes, the deadlines and the sockets of the last turn here,
            // and without a wake-up that this thread has received.
            self.outcomes.wake();
        }
        self.driver.lock().stop(&self.sockets);
    }

    /// Sends outcomes, does what is due, then waits for datagrams and passes them to the machines. Returns without waiting
    /// if something that is due needs the scripts.
    ///
    /// `outcomes`: an empty list, for its memory.
    fn turn(
        &self,
        outcomes: &mut Vec<CluOutcome<H::Item>>,
        tasks: &mut Vec<CluTask<H::Item>>,
        wait: impl FnOnce(Option<Instant>, &TransferSockets) -> ReadySockets,
    ) {
        self.outcomes.swap(outcomes);
        let (deadline, transfers) = {
            let mut driver = self.driver.lock();
            if self.turns.is_stopped() {
                return outcomes.clear();
            }
            driver.finish(outcomes);
            driver.tick();
            driver.settle(&self.sockets, tasks);
            (driver.deadline(), driver.transfers.clone())
        };
        if !tasks.is_empty() {
            return;
        }
        let ready = wait(deadline, &transfers);
        let mut driver = self.driver.lock();
        if ready != ReadySockets::default() && !self.turns.is_stopped() {
            driver.receive(&self.sockets, &ready, &transfers);
            driver.settle(&self.sockets, tasks);
        }
    }

    /// Waits for a datagram, a wake-up or the deadline.
    fn wait(&self, deadline: Option<Instant>, transfers: &TransferSockets) -> ReadySockets {
        let timeout = deadline.map_or(limit::CLU_TURN_MAX, |at| at.saturating_duration_since((self.clock)().monotonic));
        let ServedSockets { unicast, broadcast, tftp } = &self.sockets;
        let fixed = std::iter::once(unicast).chain(broadcast).chain(tftp);
        let sockets = fixed.chain(transfers.iter().map(|(_, socket)| &**socket));
        let mut descriptors: Vec<PollFd> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        descriptors.push(PollFd::new(&self.outcomes.queue.woken, PollFlags::IN));
        if socket::wait(&mut descriptors, timeout).is_err() {
            // A signal: the next turn waits again.
            return ReadySockets::default();
        }
        let mut is_ready = descriptors.iter().map(|descriptor| !descriptor.revents().is_empty());
        let ready = ReadySockets {
            unicast: is_ready.next().unwrap_or(false),
            broadcast: is_ready.by_ref().take(broadcast.len()).fold(false, |any, ready| any | ready),
            tftp: tftp.is_some() && is_ready.next().unwrap_or(false),
            transfers: is_ready.by_ref().take(transfers.len()).fold(false, |any, ready| any | ready),
        };
        if is_ready.next().unwrap_or(false) {
            self.outcomes.clear_wakes();
        }
        ready
    }
}

/// The sockets of the transfers of files in progress.
type TransferSockets = [(TransferId, Arc<UdpSocket>)];

/// Which sockets have datagrams.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct ReadySockets {
    unicast: bool,
    broadcast: bool,
    tftp: bool,
    transfers: bool,
}
