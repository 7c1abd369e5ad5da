//! What waits for the thread of Python that calls the handlers of a server.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fodo_lock::{Condvar, Mutex};
use fodo_net::{Call, PutRefusal};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use super::operation::{PyServerOperation, ReceivedPut};
use super::served::PvEntry;
use crate::limit;

/// A request of a client, or a change of the clients of a PV.
pub enum HandlerTask {
    /// A search for a name that no PV has.
    Search(String),
    /// The PV has got its first client or lost its last one.
    Connection(Arc<PvEntry>),
    /// A put.
    Put(Arc<PvEntry>, Box<ReceivedPut>),
    /// A call of a procedure.
    Call(Arc<PvEntry>, Box<Call>),
}

#[derive(Default)]
struct Waiting {
    tasks: VecDeque<HandlerTask>,
    /// The names among the tasks.
    searched: HashSet<String>,
    /// The size of the values of all tasks.
    n_bytes: usize,
    is_closed: bool,
}

/// The requests to one server that no handler has taken yet.
pub struct HandlerQueue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    n_puts: AtomicU64,
    n_calls: AtomicU64,
    n_refused: AtomicU64,
    n_cancelled: AtomicU64,
}

impl HandlerQueue {
    pub fn new() -> HandlerQueue {
        let (waiting, changed) = (Mutex::default(), Condvar::new());
        let [n_puts, n_calls, n_refused, n_cancelled] = Default::default();
        HandlerQueue { waiting, changed, n_puts, n_calls, n_refused, n_cancelled }
    }

    pub fn put(&self, entry: &Arc<PvEntry>, put: ReceivedPut) -> Result<(), PutRefusal> {
        match self.push(HandlerTask::Put(entry.clone(), Box::new(put))) {
            Ok(()) => {
                self.n_puts.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err((reason, task)) => {
                // The result of this function is the reply.
                if let HandlerTask::Put(_, put) = *task
                    && let Some(completion) = put.completion
                {
                    completion.refuse(PutRefusal::Rejected(reason));
                    return Ok(());
                }
                Err(PutRefusal::Rejected(reason))
            }
        }
    }

    pub fn call(&self, entry: &Arc<PvEntry>, call: Call) {
        match self.push(HandlerTask::Call(entry.clone(), Box::new(call))) {
            Ok(()) => drop(self.n_calls.fetch_add(1, Ordering::Relaxed)),
            Err((reason, task)) => {
                if let HandlerTask::Call(_, call) = *task {
                    call.refuse(reason);
                }
            }
        }
    }

    /// The PV has got its first client or lost its last one. At most one such task waits for each PV.
    pub fn connection_changed(&self, entry: &Arc<PvEntry>) {
        let mut waiting = self.waiting.lock();
        if !waiting.is_closed && entry.list_connection() {
            waiting.tasks.push_back(HandlerTask::Connection(entry.clone()));
            self.changed.notify_one();
        }
    }

    /// A client searches for a name that no PV has.
    pub fn search(&self, name: &str) {
        let mut waiting = self.waiting.lock();
        if !waiting.is_closed
            && waiting.searched.len() < limit::SEARCHED_NAMES
            && waiting.searched.insert(name.to_owned())
        {
            waiting.tasks.push_back(HandlerTask::Search(name.to_owned()));
            self.changed.notify_one();
        }
    }

    fn push(&self, task: HandlerTask) -> Result<(), (String, Box<HandlerTask>)> {
        let n_bytes = task.n_bytes();
        let mut waiting = self.waiting.lock();
        // A single value may be larger than the limit.
        let is_full = waiting.n_bytes > 0 && waiting.n_bytes.saturating_add(n_bytes) > limit::HANDLER_BYTES;
        let reason = match waiting.tasks.len() {
            _ if waiting.is_closed => "the server is stopping".to_owned(),
            n if n >= limit::HANDLER_TASKS || is_full => format!("the server is busy: {n} requests wait"),
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

    /// Drops a put of a client that has disconnected, if it still waits.
    pub fn cancel(&self, put: u64) {
        let is_it = |task: &HandlerTask| match task {
            HandlerTask::Put(_, waiting) => {
                waiting.completion.as_ref().is_some_and(|completion| completion.number() == put)
            }
            _ => false,
        };
        let cancelled = {
            let mut waiting = self.waiting.lock();
            let found = waiting.tasks.iter().position(is_it);
            let task = found.and_then(|index| waiting.tasks.remove(index));
            waiting.n_bytes -= task.as_ref().map_or(0, HandlerTask::n_bytes);
            task
        };
        // Its end is reported without the lock.
        if cancelled.is_some() {
            self.n_cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for a task; `None` if the queue is closed and empty.
    pub fn next(&self) -> Option<HandlerTask> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(task) = waiting.tasks.pop_front() {
                waiting.n_bytes -= task.n_bytes();
                if let HandlerTask::Search(name) = &task {
                    waiting.searched.remove(name);
                }
                return Some(task);
            }
            if waiting.is_closed {
                return None;
            }
            self.changed.wait(&mut waiting);
        }
    }

    pub fn open(&self) {
        self.waiting.lock().is_closed = false;
    }

    pub fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.changed.notify_all();
    }

    pub fn counts(&self) -> [(&'static str, u64); 5] {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let n_waiting = self.waiting.lock().tasks.len() as u64;
        [
            ("puts", of(&self.n_puts)),
            ("calls", of(&self.n_calls)),
            ("waiting", n_waiting),
            ("handlers_busy", of(&self.n_refused)),
            ("cancelled", of(&self.n_cancelled)),
        ]
    }
}

/// The owner of a PV, its name, and what is to be done.
pub type PythonTask<'py> = (Py<PyAny>, String, Bound<'py, PyAny>);

impl HandlerTask {
    /// The size of its value.
    fn n_bytes(&self) -> usize {
        match self {
            HandlerTask::Search(_) | HandlerTask::Connection(_) => 0,
            HandlerTask::Put(_, put) => put.value.n_bytes(),
            HandlerTask::Call(_, call) => call.argument.n_bytes(),
        }
    }

    /// The owner of the PV, its name, and the operation, or whether the PV has clients; of a search only the name.
    pub fn into_python(self, py: Python<'_>) -> PyResult<PythonTask<'_>> {
        let (entry, operation) = match self {
            HandlerTask::Search(name) => return Ok((py.None(), name, py.None().into_bound(py))),
            HandlerTask::Connection(entry) => {
                let is_connected = PyBool::new(py, entry.take_connection()).to_owned().into_any();
                return Ok((entry.owner.clone_ref(py), entry.name.clone(), is_connected));
            }
            HandlerTask::Put(entry, put) => {
                let operation = PyServerOperation::of_put(entry.name.clone(), *put);
                (entry, operation)
            }
            HandlerTask::Call(entry, call) => {
                let operation = PyServerOperation::of_call(entry.name.clone(), *call);
                (entry, operation)
            }
        };
        Ok((entry.owner.clone_ref(py), entry.name.clone(), Bound::new(py, operation)?.into_any()))
    }
}
