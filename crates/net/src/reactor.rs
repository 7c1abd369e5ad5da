//! Threads that serve sockets and deadlines of many objects, without a thread for each.
//!
//! An object implements [`EventHandler`] and owns the [`Registration`] that [`Reactor::add`] returns. Its sockets must
//! not block; the functions and sockets here are for that.
//!
//! [`Reactor`] has an example with datagrams. A stream is read and written until the socket has no more bytes or accepts
//! no more:
//!
//! ```
//! use std::collections::VecDeque;
//! use std::io;
//! use std::net::TcpStream;
//!
//! use fodo_net::reactor::{ConnectProgress, Outgoing, WriteOutcome, connect, connect_progress, flush, read};
//!
//! struct Connection {
//!     stream: TcpStream,
//!     outgoing: VecDeque<u8>,
//! }
//!
//! impl Connection {
//!     /// Sends and receives as much as possible. Returns whether the socket must become writable first.
//!     fn turn(&mut self, received: &mut Vec<u8>) -> io::Result<bool> {
//!         if connect_progress(&self.stream)? == ConnectProgress::Pending {
//!             return Ok(true);
//!         }
//!         let mut buffer = [0; 4096];
//!         while let Some(n) = read(&self.stream, &mut buffer)? {
//!             received.extend(&buffer[..n]);
//!         }
//!         Ok(flush(&self.stream, &mut self.outgoing)? != WriteOutcome::All)
//!     }
//! }
//!
//! # fn main() -> io::Result<()> {
//! # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let address = listener.local_addr()?;
//! let mut connection = Connection { stream: connect(address)?, outgoing: VecDeque::new() };
//! connection.outgoing.extend(b"hello");
//! while connection.turn(&mut Vec::new())? {
//!     // A program returns to its reactor here.
//! }
//! assert!(connection.outgoing.ready().is_empty());
//! # Ok(())
//! # }
//! ```

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::vec::Drain;

use fodo_data::Now;
use fodo_lock::Mutex;
use slab::Slab;

use crate::event_loop::{EventLoop, LoopHandle, LoopHandler, Schedule};
pub use crate::event_loop::{NextCall, Readiness};
use crate::limit;
use crate::process::PerProcess;
pub use crate::socket::{connect, shared_udp};
pub use crate::stream::{ConnectProgress, Outgoing, WriteOutcome, connect_progress, flush, read};

/// An object with sockets or deadlines; its reactor calls it when one of them is due. [`Reactor`] has an example.
pub trait EventHandler: Send + Sync {
    /// Reads, writes and handles deadlines as far as possible without blocking. Called on the reactor's thread; the
    /// other objects of the reactor wait meanwhile. [`Reactor`] has an example.
    fn on_event(self: Arc<Self>, now: Now) -> NextCall;
}

/// Commands from other threads to the reactor.
enum ReactorCommand {
    /// Call this object at this time at the latest.
    At(usize, Instant),
    /// Call this object soon.
    Soon(usize),
    /// Remove this object.
    Forget(usize),
    /// End the thread.
    Stop,
}

/// A thread that calls event handlers. It ends when this is dropped.
///
/// ```
/// use std::net::{Ipv4Addr, UdpSocket};
/// use std::sync::{Arc, Weak, mpsc};
///
/// use fodo_net::reactor::{EventHandler, NextCall, Reactor, Readiness, Registration, shared_udp};
///
/// /// Passes on what its socket receives.
/// struct Listener {
///     socket: UdpSocket,
///     received: mpsc::Sender<Vec<u8>>,
///     registration: Registration,
/// }
///
/// impl EventHandler for Listener {
///     fn on_event(self: Arc<Self>, _now: fodo_data::Now) -> NextCall {
///         let mut datagram = [0; 64];
///         while let Ok((n, _from)) = self.socket.recv_from(&mut datagram) {
///             let _ = self.received.send(datagram[..n].to_vec());
///         }
///         NextCall::OnReady
///     }
/// }
///
/// # fn main() -> std::io::Result<()> {
/// let reactor = Reactor::start("listener")?;
/// let socket = shared_udp(Ipv4Addr::LOCALHOST, 0)?;
/// let address = socket.local_addr()?;
/// let (received, datagrams) = mpsc::channel();
/// let listener = Arc::new_cyclic(|listener: &Weak<Listener>| Listener {
///     socket,
///     received,
///     registration: reactor.add(listener.clone()),
/// });
/// listener.registration.add_socket(&listener.socket, Readiness::Readable)?;
///
/// UdpSocket::bind("127.0.0.1:0")?.send_to(b"hello", address)?;
/// assert_eq!(datagrams.recv().unwrap(), b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reactor {
    shared: Arc<ReactorShared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread, the reactor and its registrations share.
struct ReactorShared {
    handle: LoopHandle<ReactorCommand>,
    handlers: Mutex<Slab<Weak<dyn EventHandler>>>,
}

impl Reactor {
    /// The reactor of all client contexts of the process; its thread starts with the first call and never ends.
    ///
    /// While a blocking call drives a socket itself, that socket is not registered here.
    pub(crate) fn shared() -> io::Result<Arc<Reactor>> {
        static SHARED: PerProcess<Mutex<Option<Arc<Reactor>>>> =
            PerProcess::new([const { Mutex::new(None) }; limit::FORKS]);
        let mut shared = SHARED.get()?.lock();
        if let Some(reactor) = &*shared {
            return Ok(reactor.clone());
        }
        let reactor = Arc::new(Reactor::start("fodo-client")?);
        Ok(shared.insert(reactor).clone())
    }

    /// Starts a thread with this name. Fails if the system provides no thread or poller.
    pub fn start(thread_name: &str) -> io::Result<Reactor> {
        let (event_loop, handle) = EventLoop::new(Duration::ZERO)?;
        let shared = Arc::new(ReactorShared { handle, handlers: Mutex::default() });
        let mut running = Handlers(shared.clone());
        let thread = std::thread::Builder::new().name(thread_name.into());
        let thread = thread.spawn(move || event_loop.run(&mut running))?;
        Ok(Reactor { shared, thread: Some(thread) })
    }

    /// Adds an object. It is not called before one of its sockets is ready or a call is requested.
    pub fn add(&self, handler: Weak<dyn EventHandler>) -> Registration {
        let index = self.shared.handlers.lock().insert(handler);
        Registration { reactor: self.shared.clone(), index }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.shared.handle.push(ReactorCommand::Stop);
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // If the thread panicked, the panic hook has already reported it on stderr.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for ReactorShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReactorShared").finish_non_exhaustive()
    }
}

/// An object's place in a reactor. Soon after it is dropped, the object is not called any more; a call that has
/// started or is about to start continues.
///
/// ```
/// use std::net::Ipv4Addr;
/// use std::sync::{Arc, mpsc};
/// use std::time::{Duration, Instant};
///
/// use fodo_net::reactor::{EventHandler, NextCall, Reactor, Readiness, shared_udp};
///
/// struct Counter(mpsc::Sender<()>);
///
/// impl EventHandler for Counter {
///     fn on_event(self: Arc<Self>, _now: fodo_data::Now) -> NextCall {
///         let _ = self.0.send(());
///         NextCall::OnReady
///     }
/// }
///
/// # fn main() -> std::io::Result<()> {
/// let reactor = Reactor::start("counter")?;
/// let (sender, calls) = mpsc::channel();
/// let counter: Arc<dyn EventHandler> = Arc::new(Counter(sender));
/// let registration = reactor.add(Arc::downgrade(&counter));
/// registration.call_at(Instant::now() + Duration::from_millis(1));
/// assert!(calls.recv().is_ok());
/// registration.call_soon();
/// assert!(calls.recv().is_ok());
///
/// let socket = shared_udp(Ipv4Addr::LOCALHOST, 0)?;
/// registration.add_socket(&socket, Readiness::Readable)?;
/// registration.remove_socket(&socket);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Registration {
    reactor: Arc<ReactorShared>,
    index: usize,
}

impl Registration {
    /// Calls the object at this time at the latest.
    pub fn call_at(&self, at: Instant) {
        self.reactor.handle.push(ReactorCommand::At(self.index, at));
    }

    /// Calls the object soon.
    pub fn call_soon(&self) {
        self.reactor.handle.push(ReactorCommand::Soon(self.index));
    }

    /// Calls the object when this socket is ready; at once if it is ready already.
    pub fn add_socket(&self, socket: &impl AsRawFd, readiness: Readiness) -> io::Result<()> {
        self.reactor.handle.add_socket(self.index, socket, readiness)
    }

    /// Undoes [`Registration::add_socket`]. Closing the socket has the same effect.
    pub fn remove_socket(&self, socket: &impl AsRawFd) {
        self.reactor.handle.remove_socket(socket);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.reactor.handle.push(ReactorCommand::Forget(self.index));
    }
}

/// The handlers as the loop of the thread calls them.
struct Handlers(Arc<ReactorShared>);

impl LoopHandler for Handlers {
    type Message = ReactorCommand;

    fn handle(&self) -> &LoopHandle<ReactorCommand> {
        &self.0.handle
    }

    fn take_messages(
        &mut self,
        commands: Drain<'_, ReactorCommand>,
        schedule: &mut Schedule,
        _now: Now,
    ) -> ControlFlow<()> {
        for command in commands {
            match command {
                ReactorCommand::At(index, at) => schedule.call_at(index, at),
                ReactorCommand::Soon(index) => schedule.call_soon(index),
                ReactorCommand::Forget(index) => {
                    schedule.forget(index);
                    self.0.handlers.lock().try_remove(index);
                }
                ReactorCommand::Stop => return ControlFlow::Break(()),
            }
        }
        ControlFlow::Continue(())
    }

    fn turn(&mut self, index: usize, now: Now) -> NextCall {
        let handler = self.0.handlers.lock().get(index).and_then(Weak::upgrade);
        handler.map_or(NextCall::OnReady, |handler| handler.on_event(now))
    }
}
