//! Results and events that wait for a thread of Python.
//!
//! The threads that read circuits add to a queue and never run code of Python, so that a busy program delays no circuit. A
//! descriptor becomes readable when the queue is no longer empty: an event loop watches it, or a thread waits for it. The
//! same descriptor becomes readable when a circuit that the event loop reads itself has bytes: then `drain` reads them, and
//! takes the results that this adds without another wake-up.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use fodo_lock::Mutex;
use fodo_net::LoopReader;
use pyo3::prelude::*;

use crate::context::PyChannel;
use crate::limit;
use crate::operation::{self, End, PyOperation, RunningOperation};
use crate::ownership::Owned;

/// What can be taken now.
#[derive(Clone, Copy)]
enum Ready {
    /// The operation with this index of a group.
    Operation(u64, usize),
    /// Events of a monitor.
    Monitor(u64),
}

/// The part of a queue that the threads of the client see.
struct ReadyList {
    listed: Mutex<Listed>,
    reader: LoopReader,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct Listed {
    /// Bounded by the number of operations and monitors: each is listed at most once.
    entries: Vec<Ready>,
    /// The consumer reads circuits and takes the entries afterwards, so it need not be woken.
    is_taken_soon: bool,
}

impl ReadyList {
    fn push(&self, entry: Ready) {
        let is_waited_for = {
            let mut listed = self.listed.lock();
            listed.entries.push(entry);
            listed.entries.len() == 1 && !listed.is_taken_soon
        };
        if is_waited_for {
            self.reader.wake();
        }
    }

    /// Reads what circuits have received, and takes at most a turn of entries; the descriptor stays readable if there are
    /// more.
    fn take(&self) -> Vec<Ready> {
        self.listed.lock().is_taken_soon = true;
        self.reader.serve(Some(Duration::ZERO));
        let mut listed = self.listed.lock();
        listed.is_taken_soon = false;
        let n_taken = listed.entries.len().min(limit::TURN);
        let rest = listed.entries.split_off(n_taken);
        let taken = std::mem::replace(&mut listed.entries, rest);
        let has_more = !listed.entries.is_empty();
        drop(listed);
        if has_more {
            self.reader.wake();
        }
        taken
    }
}

/// Lists an operation or a monitor in its queue when it is woken.
struct ListWaker {
    list: Arc<ReadyList>,
    entry: Ready,
    is_listed: AtomicBool,
}

impl Wake for ListWaker {
    fn wake(self: Arc<Self>) {
        if !self.is_listed.swap(true, Ordering::AcqRel) {
            self.list.push(self.entry);
        }
    }
}

/// Wakes a monitor's consumer.
pub struct MonitorWaker(Arc<ListWaker>);

impl MonitorWaker {
    /// From now on, an event lists the monitor again.
    pub fn rearm(&self) {
        self.0.is_listed.store(false, Ordering::Release);
    }

    pub fn waker(&self) -> Waker {
        self.0.clone().into()
    }

    /// Lists the monitor now.
    pub fn wake(&self) {
        self.0.clone().wake();
    }
}

/// Operations that are waited for together.
struct OperationGroup {
    operations: Vec<GroupMember>,
    n_left: usize,
}

struct GroupMember {
    operation: RunningOperation,
    waker: Arc<ListWaker>,
    end: Option<End>,
}

/// The part of a queue that its consumer uses.
struct Consumer {
    list: Arc<ReadyList>,
    groups: Mutex<HashMap<u64, OperationGroup>>,
    next: AtomicU64,
}

/// The results of operations and the events of monitors, for one consumer: an event loop, or a thread.
#[pyclass(frozen, name = "CompletionQueue", module = "fodo._native")]
pub struct CompletionQueue(Owned<Consumer>);

impl CompletionQueue {
    /// A waker of a monitor, with the number by which the queue reports it.
    pub fn monitor_waker(&self, py: Python<'_>) -> PyResult<(u64, MonitorWaker)> {
        let consumer = self.0.get(py)?;
        let number = consumer.next.fetch_add(1, Ordering::Relaxed);
        let entry = Ready::Monitor(number);
        let waker = ListWaker { list: consumer.list.clone(), entry, is_listed: AtomicBool::new(false) };
        Ok((number, MonitorWaker(Arc::new(waker))))
    }
}

/// The results of a group, as Python has them.
type Results<'py> = Vec<Bound<'py, PyAny>>;

/// Complete groups by their numbers, and the numbers of monitors with events.
type Drained<'py> = (Vec<(u64, Results<'py>)>, Vec<u64>);

#[pymethods]
impl CompletionQueue {
    #[new]
    fn create() -> PyResult<CompletionQueue> {
        let list =
            ReadyList { listed: Mutex::default(), reader: LoopReader::new()?, is_closed: AtomicBool::new(false) };
        let (groups, next) = (Mutex::default(), AtomicU64::new(0));
        Ok(CompletionQueue(Owned::new(Consumer { list: Arc::new(list), groups, next })))
    }

    /// The descriptor that is readable while there is something to take.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.0.get(py)?.list.reader.as_raw_fd())
    }

    /// Adds operations; their results are taken together, with the returned number.
    fn add(&self, py: Python<'_>, operations: Vec<Bound<'_, PyOperation>>) -> PyResult<u64> {
        let operations = operations.iter().map(|operation| operation.get().take(py)).collect::<PyResult<_>>()?;
        Ok(self.0.get(py)?.add(operations))
    }

    /// Starts a get of a value, and adds it.
    fn get(
        &self,
        py: Python<'_>,
        channel: &Bound<'_, PyChannel>,
        detail: &str,
        kind: Option<&str>,
        count: i64,
    ) -> PyResult<u64> {
        let consumer = self.0.get(py)?;
        Ok(consumer.add(vec![channel.get().start_get(py, detail, kind, count, false)?]))
    }

    /// Takes what is ready: each complete group with its results, and the numbers of monitors with events.
    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Drained<'py>> {
        let consumer = self.0.get(py)?;
        let (mut complete, mut monitors) = (Vec::new(), Vec::new());
        for entry in consumer.list.take() {
            match entry {
                Ready::Monitor(number) => monitors.push(number),
                Ready::Operation(number, index) => {
                    if let Some(group) = consumer.advance(number, index) {
                        complete.push((number, group.results(py)?));
                    }
                }
            }
        }
        Ok((complete, monitors))
    }

    /// Ends the wait for a group after this time in seconds; returns its results unless they were taken.
    fn expire<'py>(&self, py: Python<'py>, number: u64, waited: f64) -> PyResult<Option<Results<'py>>> {
        let waited = operation::duration(Some(waited))?.unwrap_or_default();
        let group = self.0.get(py)?.groups.lock().remove(&number);
        let Some(group) = group else { return Ok(None) };
        let ends = group.operations.into_iter().map(|member| match member.end {
            Some(end) => (member.operation.into_target(), end),
            None => member.operation.finish(waited),
        });
        ends.map(|(target, end)| operation::result(py, &target, end)).collect::<PyResult<_>>().map(Some)
    }

    /// Gives up a group of which no results are needed.
    fn cancel(&self, number: u64) {
        if let Some(consumer) = self.0.here() {
            let group = consumer.groups.lock().remove(&number);
            drop(group);
        }
    }

    /// Waits until there is something to take. Returns false if the queue is closed and empty.
    fn wait(&self, py: Python<'_>) -> PyResult<bool> {
        let list = &self.0.get(py)?.list;
        loop {
            if !list.listed.lock().entries.is_empty() {
                return Ok(true);
            }
            if list.is_closed.load(Ordering::Acquire) {
                return Ok(false);
            }
            py.detach(|| list.reader.serve(None));
        }
    }

    /// Ends waits as soon as the queue is empty.
    fn close(&self) {
        if let Some(consumer) = self.0.here() {
            consumer.list.is_closed.store(true, Ordering::Release);
            consumer.list.reader.wake();
        }
    }
}

impl Consumer {
    /// Adds operations as one group; returns its number.
    fn add(&self, operations: Vec<RunningOperation>) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let member = |(index, operation)| {
            let (entry, is_listed) = (Ready::Operation(number, index), AtomicBool::new(false));
            let waker = Arc::new(ListWaker { list: self.list.clone(), entry, is_listed });
            GroupMember { operation, waker, end: None }
        };
        let operations: Vec<GroupMember> = operations.into_iter().enumerate().map(member).collect();
        let mut group = OperationGroup { n_left: operations.len(), operations };
        (0..group.operations.len()).for_each(|index| group.poll(index, &self.list.reader));
        let is_complete = group.n_left == 0;
        self.groups.lock().insert(number, group);
        if is_complete {
            self.list.push(Ready::Operation(number, 0));
        }
        number
    }

    /// Polls an operation that was woken; returns its group if that is complete. Operations are polled without a lock held,
    /// since that takes the locks of the client.
    fn advance(&self, number: u64, index: usize) -> Option<OperationGroup> {
        let mut group = self.groups.lock().remove(&number)?;
        group.poll(index, &self.list.reader);
        if group.n_left == 0 {
            return Some(group);
        }
        self.groups.lock().insert(number, group);
        None
    }
}

impl OperationGroup {
    fn poll(&mut self, index: usize, by: &LoopReader) {
        let Some(member) = self.operations.get_mut(index).filter(|member| member.end.is_none()) else { return };
        member.waker.is_listed.store(false, Ordering::Release);
        let waker = Waker::from(member.waker.clone());
        if let Poll::Ready(end) = member.operation.poll(by, &mut Context::from_waker(&waker)) {
            member.end = Some(end);
            self.n_left -= 1;
        }
    }

    fn results(self, py: Python<'_>) -> PyResult<Results<'_>> {
        let members = self.operations.into_iter();
        let ends = members.filter_map(|member| Some((member.operation.into_target(), member.end?)));
        ends.map(|(target, end)| operation::result(py, &target, end)).collect()
    }
}
