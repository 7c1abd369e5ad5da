//! Monitor groups, whose rows a thread of Python takes in batches.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use fodo_lock::Mutex;
use fodo_net::{Error, GroupChange, GroupCounts, GroupRow, GroupRows, MonitorGroup};
use pyo3::exceptions::{PyBufferError, PyIndexError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::operation::{self, NamedChannel};
use crate::ownership::Owned;
use crate::queue::MonitorWaker;
use crate::{error, limit, monitor};

/// A group whose rows wait, or which was closed.
struct OpenGroup {
    /// By the index of the PV.
    targets: Vec<NamedChannel>,
    /// `None` after it was closed.
    group: Mutex<Option<Arc<MonitorGroup>>>,
    /// The number in the queue of its consumer, if it has one.
    consumer: Option<(u64, MonitorWaker)>,
    /// At the moment when it was closed.
    last_counts: Mutex<GroupCounts>,
    /// Events that could not be made objects of Python.
    n_not_converted: AtomicU64,
}

/// Subscriptions to many PVs.
#[pyclass(frozen, name = "Group", module = "fodo._native")]
pub struct PyGroup(Owned<OpenGroup>);

/// Rows that were taken, as bytes.
#[pyclass(frozen, name = "Rows", module = "fodo._native")]
pub struct PyRows {
    rows: Vec<GroupRow>,
    /// The number of bytes and 1: a buffer refers to them here.
    shape: [ffi::Py_ssize_t; 1],
    strides: [ffi::Py_ssize_t; 1],
}

/// Rows, and the changes of connections among them as `fodo._batches.BatchEvent`.
type TakenRows<'py> = (PyRows, Bound<'py, PyList>);

impl PyGroup {
    /// Adds the channels to an empty group; they have the indexes 0, 1, ...
    pub fn start(
        py: Python<'_>,
        group: MonitorGroup,
        targets: Vec<NamedChannel>,
        consumer: Option<(u64, MonitorWaker)>,
    ) -> PyResult<PyGroup> {
        for target in &targets {
            group.add_channel(&target.channel).map_err(|error| error::raised(py, &target.name, &error))?;
        }
        let (group, last_counts) = (Mutex::new(Some(Arc::new(group))), Mutex::default());
        let n_not_converted = AtomicU64::new(0);
        Ok(PyGroup(Owned::new(OpenGroup { targets, group, consumer, last_counts, n_not_converted })))
    }
}

#[pymethods]
impl PyGroup {
    /// The number by which the queue reports it; `None` without a queue.
    #[getter]
    fn number(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(self.0.get(py)?.consumer.as_ref().map(|(number, _)| *number))
    }

    #[getter]
    fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.0.get(py)?.group.lock().is_none())
    }

    /// Lets the queue report the group now.
    fn wake(&self, py: Python<'_>) -> PyResult<()> {
        if let Some((_, waker)) = &self.0.get(py)?.consumer {
            waker.wake();
        }
        Ok(())
    }

    /// All rows and changes that wait; `None` if none do. Then the queue reports the next ones.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<TakenRows<'py>>> {
        let open = self.0.get(py)?;
        let Some(group) = open.current() else { return Ok(None) };
        let waker = match &open.consumer {
            Some((_, waker)) => {
                waker.rearm();
                waker.waker()
            }
            None => Waker::noop().clone(),
        };
        open.polled(py, &group, &waker)
    }

    /// Waits for rows or changes, for at most `timeout` seconds. `None`: there were none in time, or the group is closed.
    #[pyo3(signature = (timeout=None))]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<TakenRows<'py>>> {
        let open = self.0.get(py)?;
        let deadline = operation::duration(timeout)?.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let pause = left.unwrap_or(Duration::MAX).min(limit::SIGNAL_PERIOD);
            let Some(group) = open.current() else { return Ok(None) };
            let mut taken = GroupRows::default();
            if py.detach(|| group.take(&mut taken, pause)) {
                return open.objects(py, &group, taken).map(Some);
            }
            // Rows that were received meanwhile, or the end of the context.
            if let Some(taken) = open.polled(py, &group, Waker::noop())? {
                return Ok(Some(taken));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            py.check_signals()?;
        }
    }

    /// How many updates were received, merged, delivered and wait; how many the server reports as overrun; how often the
    /// connection of a PV was lost.
    fn counts(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64, u64, u64)> {
        let counts = self.0.get(py)?.counts();
        let GroupCounts { received, merged, delivered, waiting, overrun, n_disconnected, .. } = counts;
        Ok((received, merged, delivered, waiting, overrun, n_disconnected))
    }

    /// How many events were taken that could not be made objects of Python.
    #[getter]
    fn n_not_converted(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.get(py)?.n_not_converted.load(Ordering::Relaxed))
    }

    /// Why the channel of a PV is not connected, as an exception; `None` if it is.
    fn why_inactive<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let targets = &self.0.get(py)?.targets;
        let target = targets.get(index).ok_or_else(|| PyIndexError::new_err("there is no PV with this index"))?;
        let why = target.channel.why_inactive(Duration::ZERO);
        why.map(|error: Error| error::exception(py, &target.name, &error)).transpose()
    }

    /// Ends the subscriptions; rows that wait are dropped.
    fn close(&self) {
        if let Some(open) = self.0.here() {
            open.close();
        }
    }
}

impl OpenGroup {
    fn current(&self) -> Option<Arc<MonitorGroup>> {
        self.group.lock().clone()
    }

    fn close(&self) {
        // Dropped without a lock held, since that takes those of the client.
        let group = self.group.lock().take();
        if let Some(group) = group {
            self.keep_counts(&group);
        }
    }

    /// Keeps the counts of a group that was closed. They only increase, so those with the greater sum are the later ones.
    fn keep_counts(&self, group: &MonitorGroup) {
        let counts = group.counts();
        let mut last = self.last_counts.lock();
        if counts.received + counts.delivered >= last.received + last.delivered {
            *last = counts;
        }
    }

    fn counts(&self) -> GroupCounts {
        self.current().map_or_else(|| *self.last_counts.lock(), |group| group.counts())
    }

    /// What waits; otherwise the waker is called for the next rows. Closes the group if its context is closed.
    fn polled<'py>(&self, py: Python<'py>, group: &MonitorGroup, waker: &Waker) -> PyResult<Option<TakenRows<'py>>> {
        let mut taken = GroupRows::default();
        match group.poll_take(&mut Context::from_waker(waker), &mut taken) {
            Poll::Ready(true) => self.objects(py, group, taken).map(Some),
            Poll::Ready(false) => {
                self.close();
                Ok(None)
            }
            Poll::Pending => Ok(None),
        }
    }

    /// What was taken from the group, as Python has it.
    fn objects<'py>(&self, py: Python<'py>, group: &MonitorGroup, taken: GroupRows) -> PyResult<TakenRows<'py>> {
        if self.group.lock().is_none() {
            // Another thread has closed it meanwhile, and has kept the counts before these rows were taken.
            self.keep_counts(group);
        }
        let changes = PyList::empty(py);
        if !taken.changes.is_empty() {
            let class = py.import("fodo._batches")?.getattr("BatchEvent")?;
            for GroupChange { index, at_row, merged, event } in taken.changes {
                let Some(target) = self.targets.get(index as usize) else { continue };
                // The rows and the other events are delivered in any case.
                let parts = monitor::event_parts(py, target, event).or_else(|failure| {
                    self.n_not_converted.fetch_add(1, Ordering::Relaxed);
                    PyResult::Ok(("not_converted", error::not_converted(py, &target.name, &failure)?))
                });
                let (kind, detail) = parts?;
                changes.append(class.call1((&target.name, kind, detail, index, at_row, merged))?)?;
            }
        }
        Ok((PyRows::new(taken.rows), changes))
    }
}

impl PyRows {
    fn new(rows: Vec<GroupRow>) -> PyRows {
        // The size of a vector is at most `isize::MAX`.
        let n_bytes = size_of_val(rows.as_slice()) as ffi::Py_ssize_t;
        PyRows { rows, shape: [n_bytes], strides: [1] }
    }
}

#[pymethods]
impl PyRows {
    /// The number of rows.
    fn __len__(&self) -> usize {
        self.rows.len()
    }

    /// # Safety
    ///
    /// Called by Python with a `view` that it has allocated for this call.
    unsafe fn __getbuffer__(slf: Bound<'_, PyRows>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("the view is missing"));
        }
        let this = slf.get();
        let if_requested = |flag: c_int, pointer: *const ffi::Py_ssize_t| match flags & flag == flag {
            true => pointer.cast_mut(),
            false => std::ptr::null_mut(),
        };
        // SAFETY: `view` is not null, and Python has allocated it. The rows are in a vector of the frozen `this` that nothing
        // changes, they have no padding, and the view is read-only. `shape` and `strides` are fields of `this`. The view keeps
        // `this` alive by its reference `obj`, which Python releases with the view.
        unsafe {
            (*view).obj = std::ptr::null_mut();
            if flags & ffi::PyBUF_WRITABLE != 0 {
                return Err(PyBufferError::new_err("the rows are read-only"));
            }
            (*view).buf = this.rows.as_ptr().cast_mut().cast();
            (*view).len = this.shape[0];
            (*view).itemsize = 1;
            (*view).readonly = 1;
            (*view).ndim = 1;
            (*view).format = match flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT {
                true => c"B".as_ptr().cast_mut(),
                false => std::ptr::null_mut(),
            };
            (*view).shape = if_requested(ffi::PyBUF_ND, this.shape.as_ptr());
            (*view).strides = if_requested(ffi::PyBUF_STRIDES, this.strides.as_ptr());
            (*view).suboffsets = std::ptr::null_mut();
            (*view).internal = std::ptr::null_mut();
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }
}
