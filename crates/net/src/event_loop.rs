//! The loop of every thread that serves sockets: it waits for sockets, deadlines and messages of other threads, and
//! then gives each object that is due one turn.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::vec::Drain;

use fodo_data::Now;
use fodo_engine::timers::Timers;
use fodo_lock::Mutex;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};

use crate::{clock, limit};

/// When an object gets its next turn. It replaces the deadline of an earlier turn. The example of
/// [`Reactor`](crate::reactor::Reactor) returns one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextCall {
    /// When the socket is ready.
    OnReady,
    /// When the socket is ready, or at this moment.
    At(Instant),
    /// At once, after the other objects: there was more to do than one turn allows.
    Soon,
}

impl NextCall {
    /// The same, or at this moment if that is earlier.
    pub(crate) fn or_at(self, at: Instant) -> NextCall {
        match self {
            NextCall::OnReady => NextCall::At(at),
            NextCall::At(other) => NextCall::At(other.min(at)),
            NextCall::Soon => NextCall::Soon,
        }
    }
}

/// The events of a socket that cause a turn. Each is reported once: a turn must read, or write, until the socket
/// refuses, or request another turn with [`NextCall::Soon`]. [`Reactor`](crate::reactor::Reactor) has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Bytes, datagrams or connections were received.
    Readable,
    /// The same, and the socket accepts bytes again after it was full.
    ReadableOrWritable,
}

/// What a loop calls. Objects are identified by an index, which is also the index of their sockets.
pub trait LoopHandler {
    /// What other threads send to the loop.
    type Message;

    /// The handle that [`EventLoop::new`] returned together with the loop.
    fn handle(&self) -> &LoopHandle<Self::Message>;

    /// Handles messages in order; [`ControlFlow::Break`] ends the loop. It takes all of them, because one call for each
    /// would cost as much as a short message.
    fn take_messages(
        &mut self,
        messages: Drain<'_, Self::Message>,
        schedule: &mut Schedule,
        now: Now,
    ) -> ControlFlow<()>;

    /// The peer of a socket of this object has shut down its sending side. The turn of the object follows.
    fn read_closed(&mut self, _index: usize) {}

    /// Reads, writes and handles deadlines of an object as far as possible without blocking. The object may have been
    /// removed.
    fn turn(&mut self, index: usize, now: Now) -> NextCall;
}

/// The objects that get a turn soon, and the deadlines of the others.
#[derive(Debug, Default)]
pub struct Schedule {
    due: Vec<usize>,
    timers: Timers,
}

impl Schedule {
    /// Gives an object a turn soon.
    pub fn call_soon(&mut self, index: usize) {
        // Messages about one object often arrive together.
        if self.due.last() != Some(&index) {
            self.due.push(index);
        }
    }

    /// Gives an object a turn at this time at the latest.
    pub fn call_at(&mut self, index: usize, at: Instant) {
        self.timers.set_if_earlier(index, at);
    }

    /// Removes the deadline of an object that was removed.
    pub fn forget(&mut self, index: usize) {
        self.timers.clear(index);
    }
}

/// What other threads use of a loop: they send it messages and add sockets. A message wakes the loop only if it sleeps.
#[derive(Debug)]
pub struct LoopHandle<M> {
    messages: Mutex<Vec<M>>,
    is_awake: AtomicBool,
    waker: Waker,
    registry: Registry,
}

impl<M> LoopHandle<M> {
    /// Sends a message.
    pub fn push(&self, message: M) {
        self.messages.lock().push(message);
        if !self.is_awake.swap(true, Ordering::AcqRel) {
            // If the wake-up fails, the message waits for the next turn; there is no caller to report the error to.
            let _ = self.waker.wake();
        }
    }

    /// Gives this object turns when the socket is ready; at once if it is ready already.
    pub fn add_socket(&self, index: usize, socket: &impl AsRawFd, readiness: Readiness) -> io::Result<()> {
        let interest = match readiness {
            Readiness::Readable => Interest::READABLE,
            Readiness::ReadableOrWritable => Interest::READABLE | Interest::WRITABLE,
        };
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), Token(index), interest)
    }

    /// Undoes [`LoopHandle::add_socket`]. Closing the last descriptor of a socket has the same effect.
    pub fn remove_socket(&self, socket: &impl AsRawFd) {
        // If the system does not know the socket, there is nothing to undo.
        let _ = self.registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
    }
}

const WAKE: Token = Token(usize::MAX);

/// A loop that has not started yet.
#[derive(Debug)]
pub struct EventLoop {
    poll: Poll,
    /// How long to poll for events before sleeping.
    spin: Duration,
    schedule: Schedule,
}

impl EventLoop {
    /// Creates a loop, and the handle to it. `spin`: how long it polls for events before it sleeps.
    pub fn new<M>(spin: Duration) -> io::Result<(EventLoop, LoopHandle<M>)> {
        let poll = Poll::new()?;
        let handle = LoopHandle {
            messages: Mutex::default(),
            is_awake: AtomicBool::new(false),
            waker: Waker::new(poll.registry(), WAKE)?,
            registry: poll.registry().try_clone()?,
        };
        Ok((EventLoop { poll, spin, schedule: Schedule::default() }, handle))
    }

    /// The schedule of the first turns.
    pub fn schedule(&mut self) -> &mut Schedule {
        &mut self.schedule
    }

    /// Serves until a message ends the loop.
    pub fn run<H: LoopHandler>(mut self, handler: &mut H) {
        let mut events = Events::with_capacity(limit::TURN_EVENTS);
        let mut messages = Vec::new();
        let mut due = Vec::new();
        loop {
            self.wait(&mut events);
            handler.handle().is_awake.store(true, Ordering::Release);
            let now = clock::now();
            for event in events.iter().filter(|event| event.token() != WAKE) {
                if event.is_read_closed() {
                    handler.read_closed(event.token().0);
                }
                self.schedule.due.push(event.token().0);
            }
            if self.take_messages(handler, &mut messages, now).is_break() {
                return;
            }
            self.schedule.timers.take_due(now.monotonic, &mut self.schedule.due);
            std::mem::swap(&mut due, &mut self.schedule.due);
            self.turn_all(handler, &mut due, now);
            // Messages caused by the turns themselves need no wake-up.
            let flow = self.take_messages(handler, &mut messages, now);
            handler.handle().is_awake.store(false, Ordering::Release);
            if !handler.handle().messages.lock().is_empty() {
                // Another thread has sent a message while `is_awake` was set, and so has not woken the loop.
                let _ = handler.handle().waker.wake();
            }
            if flow.is_break() {
                return;
            }
        }
    }

    /// Waits for events or the next deadline; if configured, polls for events for a while before it sleeps.
    fn wait(&mut self, events: &mut Events) {
        if !self.spin.is_zero() && self.schedule.due.is_empty() {
            let start = Instant::now();
            while start.elapsed() < self.spin && self.timeout() != Some(Duration::ZERO) {
                if self.poll.poll(events, Some(Duration::ZERO)).is_ok() && !events.is_empty() {
                    return;
                }
            }
        }
        // An error such as EINTR does not matter: the caller handles whatever is due.
        let _ = self.poll.poll(events, self.timeout());
    }

    /// How long to wait: zero if an object is due, otherwise until the next deadline.
    fn timeout(&self) -> Option<Duration> {
        if !self.schedule.due.is_empty() {
            return Some(Duration::ZERO);
        }
        Some(self.schedule.timers.next()?.saturating_duration_since(Instant::now()))
    }

    fn take_messages<H: LoopHandler>(
        &mut self,
        handler: &mut H,
        messages: &mut Vec<H::Message>,
        now: Now,
    ) -> ControlFlow<()> {
        std::mem::swap(messages, &mut handler.handle().messages.lock());
        handler.take_messages(messages.drain(..), &mut self.schedule, now)
    }

    /// Gives each due object one turn.
    fn turn_all<H: LoopHandler>(&mut self, handler: &mut H, due: &mut Vec<usize>, now: Now) {
        due.sort_unstable();
        due.dedup();
        for index in due.drain(..) {
            match handler.turn(index, now) {
                NextCall::OnReady => self.schedule.timers.clear(index),
                NextCall::At(at) => self.schedule.timers.set(index, at),
                NextCall::Soon => self.schedule.due.push(index),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;

    use super::*;

    /// Records its calls, and ends the loop with the message "stop".
    struct Recorder {
        handle: Arc<LoopHandle<&'static str>>,
        calls: Vec<String>,
        /// The results of the next turns; afterwards the loop is stopped.
        results: Vec<NextCall>,
        socket: Option<UdpSocket>,
    }

    impl LoopHandler for Recorder {
        type Message = &'static str;

        fn handle(&self) -> &LoopHandle<&'static str> {
            &self.handle
        }

        fn take_messages(
            &mut self,
            messages: Drain<'_, &'static str>,
            schedule: &mut Schedule,
            now: Now,
        ) -> ControlFlow<()> {
            for message in messages {
                self.calls.push(message.to_owned());
                match message {
                    "soon" => schedule.call_soon(1),
                    "at" => schedule.call_at(2, now.monotonic + Duration::from_millis(1)),
                    "forget" => schedule.forget(2),
                    _ => return ControlFlow::Break(()),
                }
            }
            ControlFlow::Continue(())
        }

        fn turn(&mut self, index: usize, _now: Now) -> NextCall {
            self.calls.push(index.to_string());
            if let Some(socket) = &self.socket {
                socket.recv(&mut [0; 8]).unwrap();
            }
            if self.results.is_empty() {
                self.handle.push("stop");
            }
            self.results.pop().unwrap_or(NextCall::OnReady)
        }
    }

    /// The calls of a loop that gets these messages and turns with these results, the last first.
    fn calls(spin: Duration, messages: &[&'static str], results: Vec<NextCall>) -> Vec<String> {
        let (event_loop, handle) = EventLoop::new(spin).unwrap();
        messages.iter().for_each(|&message| handle.push(message));
        let mut recorder = Recorder { handle: Arc::new(handle), calls: Vec::new(), results, socket: None };
        event_loop.run(&mut recorder);
        recorder.calls
    }

    #[test]
    fn messages_give_turns_at_once_or_at_a_deadline() {
        assert_eq!(calls(Duration::ZERO, &["soon", "soon"], vec![]), ["soon", "soon", "1", "stop"]);
        assert_eq!(calls(Duration::ZERO, &["at"], vec![]), ["at", "2", "stop"]);
        assert_eq!(calls(Duration::from_millis(2), &["at"], vec![]), ["at", "2", "stop"]);
        assert_eq!(calls(Duration::ZERO, &["at", "forget", "stop", "soon"], vec![]), ["at", "forget", "stop"]);
    }

    #[test]
    fn the_result_of_a_turn_determines_the_next_one() {
        let at = |after_ms| NextCall::At(Instant::now() + Duration::from_millis(after_ms));

        assert_eq!(calls(Duration::ZERO, &["soon"], vec![NextCall::Soon]), ["soon", "1", "1", "stop"]);
        assert_eq!(calls(Duration::ZERO, &["soon"], vec![at(1)]), ["soon", "1", "1", "stop"]);
        // Object 1 waits for an hour; object 2 has a second turn at once.
        let results = vec![at(0), at(3_600_000)];
        assert_eq!(calls(Duration::ZERO, &["soon", "at"], results), ["soon", "at", "1", "2", "2", "stop"]);
    }

    #[test]
    fn a_socket_gives_its_object_a_turn_and_a_removed_one_does_not() {
        let (event_loop, handle) = EventLoop::new(Duration::ZERO).unwrap();
        let sockets = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        for (index, socket) in sockets.iter().enumerate() {
            socket.set_nonblocking(true).unwrap();
            handle.add_socket(index, socket, Readiness::Readable).unwrap();
            socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        }
        handle.remove_socket(&sockets[0]);
        let [_, socket] = sockets;
        let handle = Arc::new(handle);
        let mut recorder = Recorder { handle, calls: Vec::new(), results: Vec::new(), socket: Some(socket) };

        event_loop.run(&mut recorder);

        assert_eq!(recorder.calls, ["1", "stop"]);
    }

    #[test]
    fn a_message_of_another_thread_wakes_a_sleeping_loop() {
        let (event_loop, handle) = EventLoop::new(Duration::ZERO).unwrap();
        let handle = Arc::new(handle);
        let mut recorder = Recorder { handle: handle.clone(), calls: Vec::new(), results: Vec::new(), socket: None };

        std::thread::scope(|scope| {
            scope.spawn(|| event_loop.run(&mut recorder));
            handle.push("forget");
            handle.push("stop");
        });

        assert_eq!(recorder.calls, ["forget", "stop"]);
    }
}
