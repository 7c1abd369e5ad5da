//! The one thread that serves every socket and timer of all client contexts of the process.
//!
//! While a blocking call drives a socket itself, that socket is not registered here.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;

use fodo_data::Now;
use mio::{Events, Poll, Registry, Token, Waker};
use slab::Slab;

use crate::clock;
use crate::sync::lock;
use crate::timers::Timers;

/// An object with a socket or a timer; the reactor calls it when either is due.
pub trait EventHandler: Send + Sync {
    /// Reads, writes and handles timers as far as possible without blocking.
    fn on_event(self: Arc<Self>, now: Now) -> NextCall;
}

/// When the reactor calls the object again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextCall {
    /// When the socket is ready.
    OnReady,
    /// When the socket is ready, or at this moment.
    At(Instant),
    /// At once, after the other objects: there was more to do than one turn allows.
    Soon,
}

/// Commands from other threads to the reactor.
enum ReactorCommand {
    /// Call this object at this time at the latest.
    At(usize, Instant),
    /// Call this object soon.
    Soon(usize),
    /// Remove this object.
    Forget(usize),
}

/// A handle to the reactor.
pub struct Reactor {
    registry: Registry,
    waker: Waker,
    is_awake: AtomicBool,
    commands: Mutex<Vec<ReactorCommand>>,
    driven: Mutex<Slab<Weak<dyn EventHandler>>>,
}

const WAKE: Token = Token(usize::MAX);

impl Reactor {
    /// The reactor of the process; its thread starts with the first call.
    pub fn shared() -> io::Result<Arc<Reactor>> {
        static SHARED: OnceLock<Arc<Reactor>> = OnceLock::new();
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = lock(&STARTING);
        if let Some(reactor) = SHARED.get() {
            return Ok(reactor.clone());
        }
        let reactor = Reactor::start()?;
        Ok(SHARED.get_or_init(|| reactor).clone())
    }

    fn start() -> io::Result<Arc<Reactor>> {
        let poll = Poll::new()?;
        let reactor = Arc::new(Reactor {
            registry: poll.registry().try_clone()?,
            waker: Waker::new(poll.registry(), WAKE)?,
            is_awake: AtomicBool::new(false),
            commands: Mutex::default(),
            driven: Mutex::default(),
        });
        let running = reactor.clone();
        std::thread::Builder::new().name("fodo-client".into()).spawn(move || running.run(poll))?;
        Ok(reactor)
    }

    /// The registry for sockets; usable from any thread.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Adds an object; returns the token for its socket and timers.
    pub fn add(&self, driven: Weak<dyn EventHandler>) -> Token {
        Token(lock(&self.driven).insert(driven))
    }

    /// Removes an object.
    pub fn remove(&self, token: Token) {
        self.send_command(ReactorCommand::Forget(token.0));
    }

    /// Calls an object at this time at the latest.
    pub fn call_at(&self, token: Token, at: Instant) {
        self.send_command(ReactorCommand::At(token.0, at));
    }

    /// Calls an object soon.
    pub fn call_soon(&self, token: Token) {
        self.send_command(ReactorCommand::Soon(token.0));
    }

    fn send_command(&self, command: ReactorCommand) {
        lock(&self.commands).push(command);
        if !self.is_awake.swap(true, Ordering::AcqRel) {
            // If the wake-up fails, the command waits for the next turn; there is no caller to report the error to.
            let _ = self.waker.wake();
        }
    }

    fn run(&self, mut poll: Poll) {
        let mut events = Events::with_capacity(1024);
        let mut timers = Timers::default();
        let mut due: Vec<usize> = Vec::new();
        let mut commands = Vec::new();
        loop {
            let timeout = match due.is_empty() {
                true => timers.next().map(|at| at.saturating_duration_since(Instant::now())),
                false => Some(std::time::Duration::ZERO),
            };
            // An error such as EINTR does not matter: whatever is due is handled below.
            let _ = poll.poll(&mut events, timeout);
            self.is_awake.store(true, Ordering::Release);
            due.extend(events.iter().map(|event| event.token()).filter(|token| *token != WAKE).map(|token| token.0));
            commands.append(&mut lock(&self.commands));
            for command in commands.drain(..) {
                match command {
                    ReactorCommand::At(index, at) => timers.set_if_earlier(index, at),
                    ReactorCommand::Soon(index) => due.push(index),
                    ReactorCommand::Forget(index) => {
                        timers.clear(index);
                        lock(&self.driven).try_remove(index);
                    }
                }
            }
            let now = clock::now();
            timers.take_due(now.monotonic, &mut due);
            due.sort_unstable();
            due.dedup();
            due = self.turn_all(&due, now, &mut timers);
            self.is_awake.store(false, Ordering::Release);
            if !lock(&self.commands).is_empty() {
                // Another thread has sent a command while `is_awake` was set, and so has not woken the reactor.
                let _ = self.waker.wake();
            }
        }
    }

    /// Calls every due object; returns those that must be called again at once.
    fn turn_all(&self, due: &[usize], now: Now, timers: &mut Timers) -> Vec<usize> {
        let mut again = Vec::new();
        for &index in due {
            let driven = lock(&self.driven).get(index).and_then(Weak::upgrade);
            let Some(driven) = driven else { continue };
            match driven.on_event(now) {
                NextCall::OnReady => timers.clear(index),
                NextCall::At(at) => timers.set(index, at),
                NextCall::Soon => again.push(index),
            }
        }
        again
    }
}
