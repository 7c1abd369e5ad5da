//! What waits for the thread of Java that calls the handlers of a server or of an IOC.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fodo_lock::{Condvar, Mutex};
use fodo_net::log::Level;
use fodo_net::{Call, Completion, Peer, PutRefusal, Structure, Value};

use super::ioc::OutputEnding;
use super::limit;
use super::served::PvEntry;

/// The value of a put.
pub enum ReceivedValue {
    Flat(Value),
    /// The fields of the put are marked.
    Structure(Structure),
}

/// A put of a client to a PV of a server.
pub struct ReceivedPut {
    pub entry: Arc<PvEntry>,
    pub value: ReceivedValue,
    pub by: Peer,
    /// `None`: the client does not want to know its end.
    pub completion: Option<Completion>,
}

/// Something for the thread of Java.
pub enum ServerTask {
    Put(Box<ReceivedPut>),
    Call(Arc<PvEntry>, Box<Call>),
    /// The number of an output of an IOC, and what it has to write.
    Output(i64, OutputEnding),
    /// A line of the log of an IOC.
    Line(Level, String),
}

#[derive(Default)]
struct WaitingTasks {
    tasks: VecDeque<ServerTask>,
    /// The size of the values of all tasks.
    n_bytes: usize,
    n_lines: usize,
    is_closed: bool,
}

/// The tasks that the thread has not taken yet, in order.
#[derive(Default)]
pub struct ServerTasks {
    waiting: Mutex<WaitingTasks>,
    changed: Condvar,
    n_puts: AtomicU64,
    n_calls: AtomicU64,
    n_refused: AtomicU64,
    n_cancelled: AtomicU64,
    n_lines_dropped: AtomicU64,
}

/// What [`ServerTasks::next`] has found.
pub enum NextTask {
    Task(ServerTask),
    /// Nothing in the time to wait.
    Nothing,
    /// The queue is closed and empty.
    Closed,
}

/// Counts of a queue.
pub struct TaskCounts {
    pub puts: u64,
    pub calls: u64,
    pub waiting: u64,
    pub refused: u64,
    pub cancelled: u64,
    pub lines_dropped: u64,
}

impl ServerTasks {
    /// Refuses the put when the queue is full.
    pub fn put(&self, put: ReceivedPut) -> Result<(), PutRefusal> {
        match self.push_bounded(ServerTask::Put(Box::new(put))) {
            Ok(()) => {
                self.n_puts.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err((reason, task)) => {
                if let ServerTask::Put(put) = *task
                    && let Some(completion) = put.completion
                {
                    completion.refuse(PutRefusal::Rejected(reason));
                    return Ok(());
                }
                Err(PutRefusal::Rejected(reason))
            }
        }
    }

    /// Refuses the call when the queue is full.
    pub fn call(&self, entry: &Arc<PvEntry>, call: Call) {
        match self.push_bounded(ServerTask::Call(entry.clone(), Box::new(call))) {
            Ok(()) => drop(self.n_calls.fetch_add(1, Ordering::Relaxed)),
            Err((reason, task)) => {
                if let ServerTask::Call(_, call) = *task {
                    call.refuse(reason);
                }
            }
        }
    }

    fn push_bounded(&self, task: ServerTask) -> Result<(), (String, Box<ServerTask>)> {
        let n_bytes = task.n_bytes();
        let mut waiting = self.waiting.lock();
        // A single value may be larger than the limit.
        let is_full = waiting.n_bytes > 0 && waiting.n_bytes.saturating_add(n_bytes) > limit::TASK_BYTES;
        let reason = match waiting.tasks.len() {
            _ if waiting.is_closed => "the server is stopping".to_owned(),
            n if n >= limit::TASKS || is_full => format!("the server is busy: {n} requests wait"),
            _ => {
                waiting.n_bytes += n_bytes;
                waiting.tasks.push_back(task);
                self.changed.notify_one();
                return Ok(());
            }
        };
        self.n_refused.fetch_add(1, Ordering::Relaxed);
        Err((reason, Box::new(task)))
    }

    /// Adds what an output has to write. An output waits until that has ended, so it has at most one task here.
    pub fn output(&self, number: i64, request: OutputEnding) {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            // An output that is dropped locks the database.
            drop(waiting);
            return drop(request);
        }
        waiting.tasks.push_back(ServerTask::Output(number, request));
        self.changed.notify_one();
    }

    /// Adds a line of the log; counts it when too many wait.
    pub fn line(&self, level: Level, text: String) {
        let mut waiting = self.waiting.lock();
        if waiting.n_lines >= limit::LOG_LINES {
            self.n_lines_dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.n_lines += 1;
        waiting.tasks.push_back(ServerTask::Line(level, text));
        self.changed.notify_one();
    }

    /// Drops a put of a client that has disconnected, if it still waits.
    pub fn cancel(&self, put: u64) {
        let is_it = |task: &ServerTask| match task {
            ServerTask::Put(waiting) => {
                waiting.completion.as_ref().is_some_and(|completion| completion.number() == put)
            }
            _ => false,
        };
        let cancelled = {
            let mut waiting = self.waiting.lock();
            let found = waiting.tasks.iter().position(is_it);
            let task = found.and_then(|index| waiting.tasks.remove(index));
            waiting.n_bytes -= task.as_ref().map_or(0, ServerTask::n_bytes);
            task
        };
        // Its end is reported without the lock.
        if cancelled.is_some() {
            self.n_cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for a task, for at most this time.
    pub fn next(&self, pause: Duration) -> NextTask {
        let deadline = Instant::now() + pause;
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(task) = waiting.tasks.pop_front() {
                waiting.n_bytes -= task.n_bytes();
                waiting.n_lines -= usize::from(matches!(task, ServerTask::Line(..)));
                return NextTask::Task(task);
            }
            if waiting.is_closed {
                return NextTask::Closed;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return NextTask::Nothing;
            }
            self.changed.wait_for(&mut waiting, left);
        }
    }

    /// Refuses what waits, but for lines of the log; nothing but lines can be added from now on.
    pub fn close(&self) {
        let refused = {
            let mut waiting = self.waiting.lock();
            waiting.is_closed = true;
            waiting.n_bytes = 0;
            let tasks = std::mem::take(&mut waiting.tasks);
            let (lines, refused): (VecDeque<_>, VecDeque<_>) =
                tasks.into_iter().partition(|task| matches!(task, ServerTask::Line(..)));
            waiting.tasks = lines;
            refused
        };
        self.changed.notify_all();
        let n_refused = refused.iter().filter(|task| !matches!(task, ServerTask::Output(..))).count();
        self.n_refused.fetch_add(n_refused as u64, Ordering::Relaxed);
        // Without the lock: an output that is dropped locks the database.
        drop(refused);
    }

    pub fn counts(&self) -> TaskCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let waiting = self.waiting.lock().tasks.len() as u64;
        TaskCounts {
            puts: of(&self.n_puts),
            calls: of(&self.n_calls),
            waiting,
            refused: of(&self.n_refused),
            cancelled: of(&self.n_cancelled),
            lines_dropped: of(&self.n_lines_dropped),
        }
    }
}

impl ServerTask {
    /// The size of the value that a client has sent.
    fn n_bytes(&self) -> usize {
        match self {
            ServerTask::Put(put) => match &put.value {
                ReceivedValue::Flat(value) => value.n_bytes(),
                ReceivedValue::Structure(value) => value.n_bytes(),
            },
            ServerTask::Call(_, call) => call.argument.n_bytes(),
            ServerTask::Output(..) | ServerTask::Line(..) => 0,
        }
    }
}
