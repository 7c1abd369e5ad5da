//! Reading circuits on the thread of an event loop of the program.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use fodo_lock::Mutex;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};

use super::circuit::Circuit;
use crate::limit;

/// Reads circuits on the thread of an event loop, so that the result of an awaited operation needs no other thread.
///
/// The event loop watches one descriptor, that of [`AsFd`], for readability; edge or level triggered. When it is readable the
/// loop calls [`LoopReader::serve`], which receives, decodes, and ends operations. The operations that the loop awaits are
/// polled with [`Operation::poll_in`](crate::Operation::poll_in): each of them gives the reader its circuit for the next two
/// milliseconds. So the loop reads while operations follow one another, and otherwise the thread `fodo-client` does.
///
/// A loop that is busy delays no circuit for longer than that: then `fodo-client` takes the reading back. A blocking call of
/// another thread does so at once, until it ends. Any number of loops may use the same context; one of them reads a circuit,
/// and wakes the others.
///
/// Dropping the reader, or no longer calling it, ends nothing; operations that it would have ended are ended by
/// `fodo-client`.
///
/// # Examples
///
/// A loop that only waits for one operation:
///
/// ```
/// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
/// use std::task::{Context, Poll, Waker};
///
/// use fodo_net::{LoopReader, Request};
///
/// let reader = LoopReader::new()?;
/// let gap = context.channel("demo:gap")?;
/// let mut operation = gap.start_get(Request::default());
/// let waker: Waker = reader.waker();
/// let reading = loop {
///     match operation.poll_in(&reader, &mut Context::from_waker(&waker)) {
///         Poll::Ready(result) => break result?,
///         // An event loop returns here, and calls `serve` without a timeout when the descriptor is readable.
///         Poll::Pending => reader.serve(None),
///     }
/// };
/// println!("{:?}", reading.value);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With tokio, `AsyncFd::new(reader)` watches the descriptor, and `std::future::poll_fn` polls an operation.
#[derive(Debug)]
pub struct LoopReader {
    shared: Arc<LoopShared>,
}

/// What a reader and the circuits that it reads share.
#[derive(Debug)]
pub(super) struct LoopShared {
    polling: Mutex<Polling>,
    registry: Registry,
    waker: Arc<Waker>,
    /// The circuits that are registered, by their addresses.
    circuits: Mutex<HashMap<usize, Weak<Circuit>>>,
}

#[derive(Debug)]
struct Polling {
    poll: Poll,
    events: Events,
    /// Circuits that may have more to read than one turn allows.
    unfinished: Vec<Due>,
}

/// A circuit with bytes to read.
#[derive(Clone, Copy, Debug)]
struct Due {
    circuit: usize,
    /// Whether the server has closed its side: then all must be read, since no event follows.
    is_closing: bool,
}

/// A reader as the lease of a circuit contains it, with the thread that began the lease.
#[derive(Clone, Debug)]
pub(super) struct LoopHolder {
    shared: Arc<LoopShared>,
    pub(super) thread: ThreadId,
}

impl PartialEq for LoopHolder {
    fn eq(&self, other: &LoopHolder) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

const WAKE: Token = Token(usize::MAX);

impl LoopReader {
    /// Creates a reader for one event loop. Fails if the system provides no descriptors. See the example of [`LoopReader`].
    pub fn new() -> io::Result<LoopReader> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Arc::new(Waker::new(&registry, WAKE)?);
        let polling = Polling { poll, events: Events::with_capacity(limit::LOOP_EVENTS), unfinished: Vec::new() };
        let (polling, circuits) = (Mutex::new(polling), Mutex::default());
        Ok(LoopReader { shared: Arc::new(LoopShared { polling, registry, waker, circuits }) })
    }

    /// Reads what has arrived on the calling thread, and ends operations and monitors' waits with it: their wakers are called
    /// here. Waits until there is something for at most `timeout`, `None`: without end. An event loop passes
    /// [`Duration::ZERO`]. Each circuit is read up to a limit; if there is more, the descriptor stays readable. See the
    /// example of [`LoopReader`].
    pub fn serve(&self, timeout: Option<Duration>) {
        let mut due = self.shared.due(timeout);
        due.retain_mut(|due| {
            let circuit = self.shared.circuits.lock().get(&due.circuit).and_then(Weak::upgrade);
            circuit.is_some_and(|circuit| circuit.serve_in_loop(&self.shared, due.is_closing))
        });
        if !due.is_empty() {
            self.shared.polling.lock().unfinished.append(&mut due);
            self.wake();
        }
    }

    /// Makes the descriptor readable once. May be called from any thread: a loop needs no other descriptor for what else
    /// wakes it. See the example of [`LoopReader`].
    pub fn wake(&self) {
        // Fails only if the system has no memory; the next event wakes the loop then.
        let _ = self.shared.waker.wake();
    }

    /// A waker that does the same. See the example of [`LoopReader`].
    pub fn waker(&self) -> std::task::Waker {
        struct Wakes(Arc<Waker>);
        impl std::task::Wake for Wakes {
            fn wake(self: Arc<Self>) {
                // As in `LoopReader::wake`.
                let _ = self.0.wake();
            }
        }
        Arc::new(Wakes(self.shared.waker.clone())).into()
    }

    /// The reader, for a lease that the calling thread begins.
    pub(super) fn holder(&self) -> LoopHolder {
        LoopHolder { shared: self.shared.clone(), thread: std::thread::current().id() }
    }
}

impl AsFd for LoopReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.registry.as_fd()
    }
}

impl AsRawFd for LoopReader {
    fn as_raw_fd(&self) -> RawFd {
        self.shared.registry.as_raw_fd()
    }
}

impl LoopShared {
    fn due(&self, timeout: Option<Duration>) -> Vec<Due> {
        let mut polling = self.polling.lock();
        let Polling { poll, events, unfinished } = &mut *polling;
        let mut due = std::mem::take(unfinished);
        // An error such as EINTR does not matter: the descriptor is still readable.
        if poll.poll(events, timeout).is_ok() {
            let readable = events.iter().filter(|event| event.token() != WAKE);
            due.extend(readable.map(|event| Due { circuit: event.token().0, is_closing: event.is_read_closed() }));
        }
        due
    }
}

impl LoopHolder {
    pub(super) fn is(&self, shared: &Arc<LoopShared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Registers a circuit's socket; the descriptor becomes readable at once if there are bytes.
    pub(super) fn add(&self, circuit: &Arc<Circuit>, socket: RawFd) -> io::Result<()> {
        let key = Arc::as_ptr(circuit).addr();
        // First, so that the first event finds it.
        self.shared.circuits.lock().insert(key, Arc::downgrade(circuit));
        let registered = self.shared.registry.register(&mut SourceFd(&socket), Token(key), Interest::READABLE);
        if registered.is_err() {
            self.shared.circuits.lock().remove(&key);
        }
        registered
    }

    /// Undoes [`LoopHolder::add`].
    pub(super) fn remove(&self, circuit: &Circuit, socket: RawFd) {
        self.shared.circuits.lock().remove(&std::ptr::from_ref(circuit).addr());
        // If the system does not know the socket, there is nothing to undo.
        let _ = self.shared.registry.deregister(&mut SourceFd(&socket));
    }
}
