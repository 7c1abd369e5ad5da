//! Operations in progress, and the blocking wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{self, Poll, ready};
use std::time::{Duration, Instant};

use fodo_lock::Mutex;
use fodo_net::{
    Channel, ChannelFacts, Error, ErrorKind, LoopReader, Operation, Protocol, PvRequest, Reading, Structure,
    StructureType, WrongReply,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::gets::ListedGets;
use crate::ownership::Owned;
use crate::{error, limit, reading};

/// What an operation has ended with.
pub enum EndedWith {
    Connected(ChannelFacts),
    Reading(Reading),
    Structure(Structure),
    Type(Arc<StructureType>),
    /// Several gets, and the time after which they end.
    Several(Box<ListedGets>, Duration),
    Nothing,
}

/// How an operation has ended.
pub type End = Result<EndedWith, Error>;

/// The operation of the client.
pub enum StartedOperation {
    Connect(Operation<ChannelFacts>),
    Get(Operation<Reading>),
    Put(Operation<()>),
    Structure(Operation<Structure>),
    Describe(Operation<Arc<StructureType>>),
    Gets(Box<ListedGets>),
    /// Gets that have ended.
    Nothing,
}

/// The PV of an operation or a monitor.
pub struct NamedChannel {
    /// The name as the user wrote it.
    pub name: Py<PyString>,
    pub protocol: Protocol,
    pub channel: Channel,
    /// Whether the PV is a structure without a value of its own, as soon as that is known.
    pub is_structure: Arc<AtomicBool>,
}

impl NamedChannel {
    pub fn copy(&self, py: Python<'_>) -> NamedChannel {
        NamedChannel {
            name: self.name.clone_ref(py),
            protocol: self.protocol,
            channel: self.channel.clone(),
            is_structure: self.is_structure.clone(),
        }
    }
}

/// Whether a reply means that the PV must be read as a structure.
pub fn is_of_a_structure(reply: &WrongReply) -> bool {
    matches!(reply, WrongReply::Structure { .. })
}

/// An operation with what its result needs.
pub struct RunningOperation {
    target: NamedChannel,
    started: StartedOperation,
}

impl RunningOperation {
    pub fn new(target: NamedChannel, started: StartedOperation) -> RunningOperation {
        RunningOperation { target, started }
    }

    /// The end of an operation, unless another one follows: a get of a structure is repeated as such.
    fn ended(&mut self, end: End) -> Option<End> {
        match end {
            Err(error) if matches!(error.kind(), ErrorKind::WrongReply { reply, .. } if is_of_a_structure(reply)) => {
                if !matches!(self.started, StartedOperation::Get(_)) {
                    return Some(Err(error));
                }
                self.target.is_structure.store(true, Ordering::Relaxed);
                self.started =
                    StartedOperation::Structure(self.target.channel.start_get_structure(PvRequest::default()));
                None
            }
            end => Some(end),
        }
    }

    /// Waits for at most `pause`.
    fn wait_at_most(&mut self, pause: Duration) -> Option<End> {
        let end = match &mut self.started {
            StartedOperation::Connect(operation) => operation.wait_at_most(pause)?.map(EndedWith::Connected),
            StartedOperation::Get(operation) => operation.wait_at_most(pause)?.map(EndedWith::Reading),
            StartedOperation::Put(operation) => operation.wait_at_most(pause)?.map(|()| EndedWith::Nothing),
            StartedOperation::Structure(operation) => operation.wait_at_most(pause)?.map(EndedWith::Structure),
            StartedOperation::Describe(operation) => operation.wait_at_most(pause)?.map(EndedWith::Type),
            StartedOperation::Gets(gets) => match gets.wait_at_most(pause) {
                true => self.end_gets(),
                false => return None,
            },
            StartedOperation::Nothing => Ok(EndedWith::Nothing),
        };
        self.ended(end)
    }

    fn end_gets(&mut self) -> End {
        Ok(match std::mem::replace(&mut self.started, StartedOperation::Nothing) {
            StartedOperation::Gets(gets) => EndedWith::Several(gets, Duration::ZERO),
            _ => EndedWith::Nothing,
        })
    }

    /// Polls in the event loop of `by`.
    pub fn poll(&mut self, by: &LoopReader, cx: &mut task::Context<'_>) -> Poll<End> {
        loop {
            let end = match &mut self.started {
                StartedOperation::Connect(operation) => ready!(operation.poll_in(by, cx)).map(EndedWith::Connected),
                StartedOperation::Get(operation) => ready!(operation.poll_in(by, cx)).map(EndedWith::Reading),
                StartedOperation::Put(operation) => ready!(operation.poll_in(by, cx)).map(|()| EndedWith::Nothing),
                StartedOperation::Structure(operation) => ready!(operation.poll_in(by, cx)).map(EndedWith::Structure),
                StartedOperation::Describe(operation) => ready!(operation.poll_in(by, cx)).map(EndedWith::Type),
                StartedOperation::Gets(gets) => {
                    ready!(gets.poll(by, cx));
                    self.end_gets()
                }
                StartedOperation::Nothing => Ok(EndedWith::Nothing),
            };
            if let Some(end) = self.ended(end) {
                return Poll::Ready(end);
            }
        }
    }

    /// Ends the wait after this time; also returns the PV.
    pub fn finish(self, waited: Duration) -> (NamedChannel, End) {
        let end = match self.started {
            StartedOperation::Connect(operation) => operation.finish(waited).map(EndedWith::Connected),
            StartedOperation::Get(operation) => operation.finish(waited).map(EndedWith::Reading),
            StartedOperation::Put(operation) => operation.finish(waited).map(|()| EndedWith::Nothing),
            StartedOperation::Structure(operation) => operation.finish(waited).map(EndedWith::Structure),
            StartedOperation::Describe(operation) => operation.finish(waited).map(EndedWith::Type),
            StartedOperation::Gets(gets) => Ok(EndedWith::Several(gets, waited)),
            StartedOperation::Nothing => Ok(EndedWith::Nothing),
        };
        (self.target, end)
    }

    pub fn into_target(self) -> NamedChannel {
        self.target
    }
}

/// The result as Python has it: a value, or an exception that is returned, also if the value cannot be converted.
pub fn result<'py>(py: Python<'py>, target: &NamedChannel, end: End) -> PyResult<Bound<'py, PyAny>> {
    converted(py, target, end).or_else(|failure| error::not_converted(py, &target.name, &failure))
}

fn converted<'py>(py: Python<'py>, target: &NamedChannel, end: End) -> PyResult<Bound<'py, PyAny>> {
    match end {
        Ok(EndedWith::Connected(facts)) => connection(py, target, &facts),
        Ok(EndedWith::Reading(reading)) => reading::value(py, &target.name, reading),
        Ok(EndedWith::Structure(structure)) => reading::structure_value(py, &target.name, structure),
        Ok(EndedWith::Type(kind)) => Ok(PyString::new(py, &kind.to_string()).into_any()),
        Ok(EndedWith::Several(gets, waited)) => Ok(gets.into_python(py, waited)?.into_any()),
        Ok(EndedWith::Nothing) => Ok(py.None().into_bound(py)),
        Err(error) => error::exception(py, &target.name, &error),
    }
}

/// What the server has reported about a channel, as `fodo._info.Info`.
pub fn connection<'py>(py: Python<'py>, target: &NamedChannel, facts: &ChannelFacts) -> PyResult<Bound<'py, PyAny>> {
    py.import("fodo._info")?.getattr("Info")?.call1((
        &target.name,
        target.protocol.to_string(),
        facts.server.to_string(),
        reading::kind_name(facts.kind),
        facts.count_max,
        facts.may_read,
        facts.may_write,
    ))
}

/// An operation that has started. It is waited for once: by [`wait`], or in a queue.
#[pyclass(frozen, name = "Operation", module = "fodo._native")]
pub struct PyOperation(Mutex<Option<Owned<RunningOperation>>>);

impl PyOperation {
    pub fn new(target: NamedChannel, started: StartedOperation) -> PyOperation {
        PyOperation(Mutex::new(Some(Owned::new(RunningOperation::new(target, started)))))
    }

    /// The operation, for the one that waits for it.
    pub fn take(&self, py: Python<'_>) -> PyResult<RunningOperation> {
        let taken = self.0.lock().take();
        taken.ok_or_else(|| PyValueError::new_err("the operation is already waited for"))?.into_value(py)
    }
}

/// When a wait ends; `None`: never.
fn deadline_after(timeout: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(timeout?)
}

/// A timeout in seconds: `None`, or one above the range of a duration, has no end.
pub fn duration(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        Some(seconds) if seconds.is_nan() || seconds < 0.0 => {
            Err(PyValueError::new_err("a timeout cannot be negative or NaN"))
        }
        seconds => Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())),
    }
}

/// Waits for operations with one timeout in seconds. Returns a value or an exception for each. A signal, such as Ctrl-C,
/// ends the wait with the exception of its handler.
#[pyfunction]
#[pyo3(signature = (operations, timeout=None))]
pub fn wait<'py>(
    py: Python<'py>,
    operations: Vec<Bound<'py, PyOperation>>,
    timeout: Option<f64>,
) -> PyResult<Bound<'py, PyList>> {
    let timeout = duration(timeout)?;
    let deadline = deadline_after(timeout);
    let mut waiting: Vec<RunningOperation> =
        operations.iter().map(|operation| operation.get().take(py)).collect::<PyResult<_>>()?;
    if let [RunningOperation { started, .. }] = &mut waiting[..]
        && matches!(started, StartedOperation::Gets(_))
        && let StartedOperation::Gets(gets) = std::mem::replace(started, StartedOperation::Nothing)
    {
        return PyList::new(py, [gets.wait(py, deadline, timeout.unwrap_or_default())?]);
    }
    let mut ends: Vec<End> = Vec::with_capacity(waiting.len());
    while ends.len() < waiting.len() {
        let is_over = py.detach(|| wait_a_period(&mut waiting, &mut ends, deadline));
        if is_over {
            break;
        }
        py.check_signals()?;
    }
    let late = waiting.split_off(ends.len());
    let mut results = Vec::with_capacity(ends.len() + late.len());
    for (operation, end) in waiting.into_iter().zip(ends) {
        results.push(result(py, &operation.into_target(), end)?);
    }
    for operation in late {
        let (target, end) = operation.finish(timeout.unwrap_or_default());
        results.push(result(py, &target, end)?);
    }
    PyList::new(py, results)
}

/// Waits for one operation, as [`wait`] does.
pub fn wait_for<'py>(
    py: Python<'py>,
    mut operation: RunningOperation,
    timeout: Option<Duration>,
) -> PyResult<Bound<'py, PyAny>> {
    let deadline = deadline_after(timeout);
    loop {
        let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        match py.detach(|| operation.wait_at_most(left.min(limit::SIGNAL_PERIOD))) {
            Some(end) => return result(py, &operation.target, end),
            None if left.is_zero() => {
                let (target, end) = operation.finish(timeout.unwrap_or_default());
                return result(py, &target, end);
            }
            None => py.check_signals()?,
        }
    }
}

/// Waits until all operations have ended, or none has for a period. Returns whether the wait is over.
fn wait_a_period(waiting: &mut [RunningOperation], ends: &mut Vec<End>, deadline: Option<Instant>) -> bool {
    while let Some(operation) = waiting.get_mut(ends.len()) {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match operation.wait_at_most(left.unwrap_or(Duration::MAX).min(limit::SIGNAL_PERIOD)) {
            Some(end) => ends.push(end),
            None => return left.is_some_and(|left| left.is_zero()),
        }
    }
    true
}
