//! What an IOC has for the thread of Python: puts to outputs, and lines of its log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fodo_ioc::OutputRequest;
use fodo_lock::{Condvar, Mutex};
use fodo_net::Reading;
use fodo_net::log::Level;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::{IocState, routine};
use crate::ownership::Owned;
use crate::{error, limit, reading};

/// Something for the thread of Python.
pub enum InboxItem {
    /// The index of an output, and what it has to write.
    Output(usize, OutputRequest),
    /// A request that was deleted inside a routine, where the database is locked.
    Deleted(Owned<OutputRequest>),
    Line(Level, String),
}

/// What the thread of Python has not taken yet, in order. An output waits until its put has ended, so it has at most one here;
/// the number of lines is limited.
#[derive(Default)]
pub struct ProgramInbox {
    contents: Mutex<InboxContents>,
    changed: Condvar,
}

#[derive(Default)]
struct InboxContents {
    items: VecDeque<InboxItem>,
    n_lines: usize,
    n_dropped: u64,
    is_closed: bool,
}

impl ProgramInbox {
    pub fn push(&self, item: InboxItem) {
        let mut contents = self.contents.lock();
        if contents.is_closed {
            // An output that is dropped locks the database.
            drop(contents);
            return drop(item);
        }
        if matches!(item, InboxItem::Line(..)) {
            if contents.n_lines == limit::LOG_LINES {
                contents.n_dropped += 1;
                return;
            }
            contents.n_lines += 1;
        }
        contents.items.push_back(item);
        drop(contents);
        self.changed.notify_one();
    }

    /// Waits for the next item; `None` when it is closed and has no more lines.
    fn take(&self) -> Option<InboxItem> {
        let mut contents = self.contents.lock();
        loop {
            if let Some(item) = contents.items.pop_front() {
                contents.n_lines -= usize::from(matches!(item, InboxItem::Line(..)));
                return Some(item);
            }
            if contents.is_closed {
                return None;
            }
            self.changed.wait(&mut contents);
        }
    }

    /// Drops the outputs; nothing can be added from now on.
    pub fn close(&self) {
        let mut contents = self.contents.lock();
        contents.is_closed = true;
        let items = std::mem::take(&mut contents.items);
        let (lines, outputs): (VecDeque<_>, VecDeque<_>) =
            items.into_iter().partition(|item| matches!(item, InboxItem::Line(..)));
        contents.items = lines;
        drop(contents);
        drop(outputs);
        self.changed.notify_all();
    }

    pub fn n_dropped(&self) -> u64 {
        self.contents.lock().n_dropped
    }
}

/// The inbox, for the thread that takes from it.
#[pyclass(frozen, name = "Inbox", module = "fodo._native")]
pub struct PyInbox(pub Owned<Arc<IocState>>);

/// What the thread takes: the index of an output and the request, or the level of a line and its text.
type TakenItem<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

#[pymethods]
impl PyInbox {
    /// Waits for the next item; returns `None` when the IOC has stopped. The thread that calls this counts as the one that
    /// calls the functions of the program.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<TakenItem<'py>>> {
        let state = self.0.get(py)?;
        *state.taker.lock() = Some(std::thread::current().id());
        let mut item = py.detach(|| state.inbox.take());
        while let Some(InboxItem::Deleted(request)) = item {
            item = py.detach(|| {
                drop(request);
                state.inbox.take()
            });
        }
        Ok(match item {
            None | Some(InboxItem::Deleted(_)) => None,
            Some(InboxItem::Line(level, text)) => {
                let level = PyString::new(py, &level.to_string()).into_any();
                Some((level, PyString::new(py, &text).into_any()))
            }
            Some(InboxItem::Output(index, request)) => {
                let request = PyOutputRequest { request: Mutex::new(Some(Owned::new(request))), state: state.clone() };
                Some((index.into_pyobject(py)?.into_any(), Py::new(py, request)?.into_bound(py).into_any()))
            }
        })
    }
}

/// A value that an output has to write; it waits until one of the methods is called, or the object is deleted.
#[pyclass(frozen, name = "OutputRequest", module = "fodo._native")]
pub struct PyOutputRequest {
    request: Mutex<Option<Owned<OutputRequest>>>,
    state: Arc<IocState>,
}

impl PyOutputRequest {
    /// Ends the request; only the first call does.
    fn end(&self, py: Python<'_>, work: impl FnOnce(OutputRequest, &IocState) + Send) -> PyResult<bool> {
        routine::refuse_inside(py)?;
        let request = self.request.lock().take();
        let Some(request) = request else { return Ok(false) };
        let request = request.into_value(py)?;
        self.state.with_database(py, || work(request, &self.state));
        Ok(true)
    }

    fn value_of(
        &self,
        py: Python<'_>,
        select: impl Fn(&OutputRequest) -> Option<fodo_net::Value>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let value = self.request.lock().as_ref().map(|request| request.get(py).map(&select));
        // Outside the lock, since exceptions are made by Python.
        let value = value.ok_or_else(|| error::misuse(py, "", "the request has ended"))??;
        let name = PyString::intern(py, "").unbind();
        value.map(|value| reading::value(py, &name, Reading::bare(value)).map(Bound::unbind)).transpose()
    }
}

#[pymethods]
impl PyOutputRequest {
    #[getter]
    fn value(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.value_of(py, |request| Some(request.value().clone()))
    }

    #[getter]
    fn previous(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.value_of(py, |request| request.previous().cloned())
    }

    #[getter]
    fn is_ended(&self) -> bool {
        self.request.lock().is_none()
    }

    fn complete(&self, py: Python<'_>) -> PyResult<bool> {
        self.end(py, |request, state| {
            state.n_completed.fetch_add(1, Ordering::Relaxed);
            request.complete();
        })
    }

    fn refuse(&self, py: Python<'_>, reason: &str) -> PyResult<bool> {
        self.end(py, |request, state| {
            state.n_refused.fetch_add(1, Ordering::Relaxed);
            request.refuse(reason);
        })
    }

    fn restore(&self, py: Python<'_>) -> PyResult<bool> {
        self.end(py, |request, state| {
            state.n_restored.fetch_add(1, Ordering::Relaxed);
            request.restore();
        })
    }
}

impl Drop for PyOutputRequest {
    fn drop(&mut self) {
        let Some(request) = self.request.lock().take() else { return };
        let mut request = Some(request);
        if routine::is_inside() {
            self.state.n_refused.fetch_add(1, Ordering::Relaxed);
            return request.into_iter().for_each(|request| self.state.inbox.push(InboxItem::Deleted(request)));
        }
        // As `end`: it locks the database.
        let attached = Python::try_attach(|py| {
            self.state.n_refused.fetch_add(1, Ordering::Relaxed);
            self.state.with_database(py, || drop(request.take()));
        });
        if attached.is_none() {
            // The interpreter has ended, and with it the IOC.
            std::mem::forget(request);
        }
    }
}
