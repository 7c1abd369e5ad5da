//! Results and events that wait for a thread of Java.
//!
//! The threads that read circuits add to a queue and never run code of Java, so that a busy program delays no circuit. The queue
//! is bounded by the number of operations and monitors: each is listed at most once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use fodo_lock::{Condvar, Mutex};

use crate::codec::{ReplyTag, ReplyWriter};
use crate::limit;
use crate::list::RunningList;
use crate::monitor::JavaMonitor;
use crate::operation::{RunningOperation, write_end};

/// The queue of one context.
#[derive(Default)]
pub struct EventQueue {
    listed: Mutex<Listed>,
    /// Woken when an entry is added to the empty list, and when the queue is closed.
    changed: Condvar,
    /// Of the operations that have not ended.
    deadlines: Mutex<BTreeMap<WaitDeadline, Weak<WaitingOperation>>>,
    next_deadline: AtomicU64,
}

/// When an operation ends, and a number that makes it unique.
type WaitDeadline = (Instant, u64);

#[derive(Default)]
struct Listed {
    entries: VecDeque<Ready>,
    /// Channels were closed, whose operations end.
    has_closed_channels: bool,
    is_closed: bool,
    /// No thread takes entries any more. Each refers to the queue, so that an entry in here would keep both for ever.
    is_ended: bool,
}

/// What can be taken.
pub enum Ready {
    Operation(Arc<WaitingOperation>),
    Monitor(Arc<JavaMonitor>),
}

/// An operation of either kind.
pub enum AnyOperation {
    One(RunningOperation),
    List(RunningList),
}

/// An operation whose end a queue reports. It wakes itself.
pub struct WaitingOperation {
    queue: Arc<EventQueue>,
    token: i64,
    timeout: Duration,
    /// Its key among the deadlines of the queue.
    deadline: WaitDeadline,
    /// `None` after its end.
    running: Mutex<Option<AnyOperation>>,
    is_listed: AtomicBool,
}

impl Wake for WaitingOperation {
    fn wake(self: Arc<Self>) {
        if !self.is_listed.swap(true, Ordering::AcqRel) {
            self.queue.push(Ready::Operation(self.clone()));
        }
    }
}

impl WaitingOperation {
    /// Writes the result, if the operation has ended.
    fn write_if_ended(self: &Arc<Self>, out: &mut ReplyWriter) {
        self.is_listed.store(false, Ordering::Release);
        let waker = Waker::from(self.clone());
        let mut cx = Context::from_waker(&waker);
        // Polled without the lock held, since that takes locks of the client, which may call the waker.
        let Some(running) = self.running.lock().take() else { return };
        match running {
            AnyOperation::One(mut operation) => match operation.poll(&mut cx) {
                Poll::Ready(end) => self.end(out, |out| write_end(out, operation.target(), &end)),
                Poll::Pending => match operation.target().closed() {
                    Some(failure) => self.end(out, |out| out.failure(&failure)),
                    None => self.keep(AnyOperation::One(operation)),
                },
            },
            AnyOperation::List(mut list) => match list.poll(&mut cx) {
                Poll::Ready(()) => self.end(out, |out| list.finish(Duration::ZERO, out)),
                Poll::Pending => match list.closed() {
                    Some(failure) => self.end(out, |out| out.failure(&failure)),
                    None => self.keep(AnyOperation::List(list)),
                },
            },
        }
    }

    /// Whether its channels were closed.
    fn is_closed(&self) -> bool {
        match &*self.running.lock() {
            Some(AnyOperation::One(operation)) => operation.target().is_closed(),
            Some(AnyOperation::List(list)) => list.is_closed(),
            None => false,
        }
    }

    /// Writes the result of the operation, which has ended.
    fn end(&self, out: &mut ReplyWriter, result: impl FnOnce(&mut ReplyWriter)) {
        self.queue.deadlines.lock().remove(&self.deadline);
        entry(out, self.token, result);
    }

    /// Keeps an operation that has not ended. A waker that was called meanwhile has listed it again.
    fn keep(&self, running: AnyOperation) {
        *self.running.lock() = Some(running);
    }

    /// Writes the result, or that the time is over.
    fn write_late(&self, out: &mut ReplyWriter) {
        let waited = self.timeout;
        // Ended without the lock held, since that takes locks of the client.
        let running = self.running.lock().take();
        match running {
            Some(AnyOperation::One(operation)) => {
                let (target, end) = operation.finish(waited);
                entry(out, self.token, |out| write_end(out, &target, &end));
            }
            Some(AnyOperation::List(list)) => entry(out, self.token, |out| list.finish(waited, out)),
            None => {}
        }
    }
}

/// Writes an entry: its token, its number of bytes and a reply.
pub fn entry(out: &mut ReplyWriter, token: i64, reply: impl FnOnce(&mut ReplyWriter)) {
    out.i64(token);
    out.sized(reply);
}

impl EventQueue {
    pub fn push(&self, entry: Ready) {
        let is_first = {
            let mut listed = self.listed.lock();
            if listed.is_ended {
                return;
            }
            listed.entries.push_back(entry);
            listed.entries.len() == 1
        };
        if is_first {
            self.changed.notify_one();
        }
    }

    /// Adds an operation, whose result is an entry with this token. It ends after the timeout at the latest.
    pub fn add(self: &Arc<Self>, token: i64, running: AnyOperation, timeout: Duration) {
        let now = Instant::now();
        let deadline = now.checked_add(timeout).unwrap_or_else(|| now + limit::WAIT_MAX);
        let deadline = (deadline, self.next_deadline.fetch_add(1, Ordering::Relaxed));
        let waiting = Arc::new(WaitingOperation {
            queue: self.clone(),
            token,
            timeout,
            deadline,
            running: Mutex::new(Some(running)),
            is_listed: AtomicBool::new(false),
        });
        self.deadlines.lock().insert(deadline, Arc::downgrade(&waiting));
        // The thread of the queue polls it for the first time, which registers the waker.
        waiting.wake();
    }

    /// Ends the operations of closed channels. Their number does not matter to the caller: the thread of the queue looks
    /// through its operations, once for all channels that were closed meanwhile.
    pub fn end_closed(&self) {
        self.listed.lock().has_closed_channels = true;
        self.changed.notify_one();
    }

    /// Ends waits, as soon as the queue is empty.
    pub fn close(&self) {
        self.listed.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits for at most `pause`, and writes what is ready: a list of entries, or that the queue is closed. Ends when
    /// `len_max` bytes are written.
    pub fn drain(&self, pause: Duration, len_max: usize, out: &mut ReplyWriter) {
        let start = out.len();
        out.reply(ReplyTag::List);
        let count = out.reserve_u32();
        let mut n = 0;
        let end = Instant::now().checked_add(pause);
        loop {
            let is_closed = self.take(&mut n, len_max, out);
            self.take_late(&mut n, out);
            self.take_closed(&mut n, out);
            if n > 0 {
                return out.set_u32(count, n);
            }
            if is_closed {
                self.end();
                out.truncate(start);
                return out.reply(ReplyTag::Closed);
            }
            let now = Instant::now();
            let left = end.map_or(pause, |end| end.saturating_duration_since(now));
            if left.is_zero() {
                return;
            }
            let due = self.deadlines.lock().first_key_value().map(|((due, _), _)| due.saturating_duration_since(now));
            let mut listed = self.listed.lock();
            if listed.entries.is_empty() && !listed.has_closed_channels && !listed.is_closed {
                self.changed.wait_for(&mut listed, due.map_or(left, |due| due.min(left)));
            }
        }
    }

    /// Drops the entries that were added meanwhile, and later ones.
    fn end(&self) {
        let dropped = {
            let mut listed = self.listed.lock();
            listed.is_ended = true;
            std::mem::take(&mut listed.entries)
        };
        drop(dropped);
    }

    /// Takes entries until `len_max` bytes are written; returns whether the queue is closed and empty.
    fn take(&self, n: &mut usize, len_max: usize, out: &mut ReplyWriter) -> bool {
        // Those that are listed again meanwhile have their turn after the others.
        let (mut entries, is_closed) = {
            let mut listed = self.listed.lock();
            (std::mem::take(&mut listed.entries), listed.is_closed)
        };
        let is_empty = entries.is_empty();
        while out.len() < len_max {
            let Some(ready) = entries.pop_front() else { break };
            let before = out.len();
            match ready {
                Ready::Operation(waiting) => {
                    waiting.write_if_ended(out);
                    *n += usize::from(out.len() > before);
                }
                Ready::Monitor(monitor) => *n += monitor.write_ready(out, len_max),
            }
        }
        if !entries.is_empty() {
            let mut listed = self.listed.lock();
            entries.append(&mut listed.entries);
            listed.entries = entries;
        }
        is_closed && is_empty
    }

    /// Ends the operations whose time is over.
    fn take_late(&self, n: &mut usize, out: &mut ReplyWriter) {
        let now = Instant::now();
        loop {
            let late = {
                let mut deadlines = self.deadlines.lock();
                match deadlines.first_entry() {
                    Some(first) if first.key().0 <= now => first.remove(),
                    _ => return,
                }
            };
            // One that has ended is dropped already.
            let Some(waiting) = late.upgrade() else { continue };
            let before = out.len();
            waiting.write_late(out);
            *n += usize::from(out.len() > before);
        }
    }

    /// Ends the operations of channels that were closed.
    fn take_closed(&self, n: &mut usize, out: &mut ReplyWriter) {
        if !std::mem::take(&mut self.listed.lock().has_closed_channels) {
            return;
        }
        let waiting: Vec<_> = self.deadlines.lock().values().filter_map(Weak::upgrade).collect();
        for waiting in waiting.iter().filter(|waiting| waiting.is_closed()) {
            let before = out.len();
            waiting.write_if_ended(out);
            *n += usize::from(out.len() > before);
        }
    }
}
