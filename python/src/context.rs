//! Contexts and channels.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fodo_net::{
    ChannelState, ClientConfig, Context, Detail, EventMask, GroupOptions, MonitorOptions, Protocol, PvRequest, Request,
    WhenFull, process,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use crate::gets::ListedGets;
use crate::group::PyGroup;
use crate::monitor::PyMonitor;
use crate::operation::{self, NamedChannel, PyOperation, RunningOperation, StartedOperation};
use crate::ownership::Owned;
use crate::queue::CompletionQueue;
use crate::structure::PyStructure;
use crate::{assign, error, limit, reading};

/// The names of [`Detail`].
const DETAILS: [(&str, Detail); 6] = [
    ("value", Detail::Value),
    ("alarm", Detail::Alarm),
    ("time", Detail::Time),
    ("graphic", Detail::Graphic),
    ("control", Detail::Control),
    ("full", Detail::Full),
];

/// The names of the kinds of change.
const MASKS: [(&str, EventMask); 5] = [
    ("none", EventMask::NONE),
    ("value", EventMask::VALUE),
    ("log", EventMask::LOG),
    ("alarm", EventMask::ALARM),
    ("property", EventMask::PROPERTY),
];

/// The names of [`WhenFull`].
const POLICIES: [(&str, WhenFull); 2] =
    [("replace_last", WhenFull::ReplaceLast), ("drop_oldest", WhenFull::DropOldest)];

/// A client with its configuration.
#[pyclass(frozen, name = "Context", module = "fodo._native")]
pub struct PyContext {
    context: Owned<Context>,
    default_protocol: Protocol,
}

#[pymethods]
impl PyContext {
    /// `settings`: variables such as `EPICS_CA_ADDR_LIST`, before those of the environment.
    #[new]
    fn create(py: Python<'_>, settings: HashMap<String, String>) -> PyResult<PyContext> {
        watch_for_forks(py)?;
        let lookup = |name: &str| settings.get(name).cloned().or_else(|| std::env::var(name).ok());
        let config =
            ClientConfig::from_variables(&lookup).map_err(|error| error::misuse(py, "", &error.to_string()))?;
        // Every call has a timeout of its own.
        let config = ClientConfig { operation_timeout: Duration::MAX, ..config };
        let default_protocol = config.default_protocol;
        Ok(PyContext { context: Owned::new(Context::new(config)), default_protocol })
    }

    /// Whether this process created it.
    #[getter]
    fn is_usable(&self) -> bool {
        self.context.here().is_some()
    }

    /// Fails with `Forked` unless this process created it.
    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        self.context.get(py).map(|_| ())
    }

    /// `checks_name`: whether a blank in the name is an error; without it the PV is searched for.
    fn channel(&self, py: Python<'_>, name: Py<PyString>, priority: u8, checks_name: bool) -> PyResult<PyChannel> {
        let text = name.bind(py).to_cow()?.into_owned();
        // A filter of the channel follows the field, or the dot alone; it may have blanks.
        let dot = text.find('.').unwrap_or(text.len());
        let record = text[dot..].find(['{', '[']).map_or(&*text, |at| &text[..dot + at]);
        if checks_name && record.contains(char::is_whitespace) {
            return Err(error::misuse(py, &text, "the name of a PV has no blanks; pass several names as a list"));
        }
        let channel = self.context.get(py)?.channel_at(&text, priority);
        let channel = channel.map_err(|error| error::raised(py, &name, &error))?;
        let protocol = Protocol::split(&text).0.unwrap_or(self.default_protocol);
        let is_structure = Arc::new(AtomicBool::new(false));
        Ok(PyChannel(Owned::new(NamedChannel { name, protocol, channel, is_structure })))
    }

    /// The channels, for [`PyContext::gets`].
    fn channels(&self, py: Python<'_>, channels: Vec<Bound<'_, PyChannel>>) -> PyResult<PyChannels> {
        Ok(PyChannels(Owned::new(targets(py, &channels)?.into())))
    }

    /// Reads all channels as one operation, whose result is a list with a value or an exception for each, and whether there
    /// are exceptions.
    fn gets(
        &self,
        py: Python<'_>,
        channels: &PyChannels,
        detail: &str,
        kind: Option<&str>,
        count: i64,
    ) -> PyResult<PyOperation> {
        self.context.get(py)?;
        let targets = channels.0.get(py)?;
        let Some(first) = targets.first() else { return Err(error::misuse(py, "", "there is no PV to read")) };
        let misuse = |reason: String| error::misuse(py, &first.name.bind(py).to_string_lossy(), &reason);
        let request = request_of(detail, kind, count).map_err(misuse)?;
        let gets = py.detach(|| ListedGets::start(targets.clone(), request));
        Ok(PyOperation::new(first.copy(py), StartedOperation::Gets(Box::new(gets))))
    }

    /// Subscribes to all channels as one group.
    fn group(
        &self,
        py: Python<'_>,
        channels: Vec<Bound<'_, PyChannel>>,
        mask: &str,
        rows_max: i64,
        window: Option<i64>,
        queue: Option<&CompletionQueue>,
    ) -> PyResult<PyGroup> {
        let misuse = |reason: String| error::misuse(py, "", &reason);
        let mask = mask_named(mask).map_err(misuse)?;
        let rows_max = number("rows_max", rows_max, 0).map_err(misuse)?;
        let window = window.map(|window| number("window", window, 1)).transpose().map_err(misuse)?;
        let group = self.context.get(py)?.monitor_group(GroupOptions { mask, rows_max, window });
        let targets = targets(py, &channels)?;
        let consumer = queue.map(|queue| queue.monitor_waker(py)).transpose()?;
        PyGroup::start(py, group, targets, consumer)
    }

    /// Waits for the next notice, for at most `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn next_notice(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        let context = self.context.get(py)?;
        let deadline = operation::duration(timeout)?.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let pause = left.unwrap_or(Duration::MAX).min(limit::SIGNAL_PERIOD);
            if let Some(notice) = py.detach(|| context.next_notice(pause)) {
                return Ok(Some(notice.to_string()));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            py.check_signals()?;
        }
    }

    fn close(&self, py: Python<'_>) {
        if let Some(context) = self.context.here() {
            py.detach(|| context.close());
        }
    }
}

fn targets(py: Python<'_>, channels: &[Bound<'_, PyChannel>]) -> PyResult<Vec<NamedChannel>> {
    channels.iter().map(|channel| Ok(channel.get().0.get(py)?.copy(py))).collect()
}

/// The value with this name in a table, or the reason why there is none.
fn found<T: Copy>(what: &str, name: &str, table: &[(&str, T)]) -> Result<T, String> {
    let found = table.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let known: Vec<String> = table.iter().map(|(known, _)| format!("\"{known}\"")).collect();
        format!("{what} cannot be \"{name}\": expected {}", known.join(", "))
    })
}

/// A number that an argument gives, of at least `low`.
fn number<T: TryFrom<i64>>(what: &str, given: i64, low: i64) -> Result<T, String> {
    if given < low {
        return Err(format!("{what} cannot be {given}: expected {low} or more"));
    }
    T::try_from(given).map_err(|_| format!("{what} cannot be {given}: the number is too large"))
}

/// The kinds of change in a text such as `value,alarm`.
fn mask_named(text: &str) -> Result<EventMask, String> {
    let masks = text.split(',').map(|name| found("mask", name.trim(), &MASKS));
    masks.reduce(|one, other| Ok(one? | other?)).unwrap_or(Ok(EventMask::NONE))
}

/// The names of all variables that settings may have, also those that only other implementations use.
#[pyfunction]
pub fn known_settings() -> Vec<&'static str> {
    fodo_net::config::known_variables().collect()
}

/// Registers, once in a process, what must happen in the child of a fork.
pub fn watch_for_forks(py: Python<'_>) -> PyResult<()> {
    static REGISTERED: PyOnceLock<()> = PyOnceLock::new();
    REGISTERED
        .get_or_try_init(py, || {
            let keywords = PyDict::new(py);
            keywords.set_item("after_in_child", wrap_pyfunction!(after_fork, py)?)?;
            py.import("os")?.call_method("register_at_fork", (), Some(&keywords)).map(|_| ())
        })
        .map(|_| ())
}

#[pyfunction]
fn after_fork() {
    process::after_fork();
}

/// The request of a get or a monitor, or why it is invalid.
fn request_of(detail: &str, kind: Option<&str>, count: i64) -> Result<Request, String> {
    let count = number("count", count, 0)?;
    let detail = found("detail", detail, &DETAILS)?;
    let kind = match kind {
        Some(name) => Some(reading::kind_named(name).ok_or_else(|| format!("there is no kind \"{name}\""))?),
        None => None,
    };
    Ok(Request { kind, detail, count })
}

/// Connections to several PVs, for gets that are repeated.
#[pyclass(frozen, name = "Channels", module = "fodo._native")]
pub struct PyChannels(Owned<Arc<[NamedChannel]>>);

/// A connection to a PV.
#[pyclass(frozen, name = "Channel", module = "fodo._native")]
pub struct PyChannel(Owned<NamedChannel>);

impl PyChannel {
    fn operation(
        &self,
        py: Python<'_>,
        start: impl FnOnce(&NamedChannel) -> StartedOperation,
    ) -> PyResult<PyOperation> {
        let target = self.0.get(py)?;
        Ok(PyOperation::new(target.copy(py), start(target)))
    }

    fn misuse(&self, py: Python<'_>, reason: &str) -> PyErr {
        match self.0.get(py) {
            Ok(target) => error::misuse(py, &target.name.bind(py).to_string_lossy(), reason),
            Err(forked) => forked,
        }
    }

    /// Looks up a name in a table.
    fn named<T: Copy>(&self, py: Python<'_>, what: &str, name: &str, table: &[(&str, T)]) -> PyResult<T> {
        found(what, name, table).map_err(|reason| self.misuse(py, &reason))
    }

    fn request_of(&self, py: Python<'_>, detail: &str, kind: Option<&str>, count: i64) -> PyResult<Request> {
        request_of(detail, kind, count).map_err(|reason| self.misuse(py, &reason))
    }

    /// Starts a get of a value, or of the structure that the PV is. `is_driven`: the calling thread waits for it at once.
    pub fn start_get(
        &self,
        py: Python<'_>,
        detail: &str,
        kind: Option<&str>,
        count: i64,
        is_driven: bool,
    ) -> PyResult<RunningOperation> {
        let target = self.0.get(py)?;
        let request = self.request_of(py, detail, kind, count)?;
        let started = match target.is_structure.load(Ordering::Relaxed) {
            true => StartedOperation::Structure(target.channel.start_get_structure(PvRequest::default())),
            false if is_driven => StartedOperation::Get(target.channel.start_driven_get(request)),
            false => StartedOperation::Get(target.channel.start_get(request)),
        };
        Ok(RunningOperation::new(target.copy(py), started))
    }

    fn pv_request(&self, py: Python<'_>, text: &str) -> PyResult<PvRequest> {
        PvRequest::parse(text).map_err(|error| self.misuse(py, &format!("the pvRequest is invalid: {error}")))
    }
}

#[pymethods]
impl PyChannel {
    #[getter]
    fn is_active(&self, py: Python<'_>) -> PyResult<bool> {
        let state = self.0.get(py)?.channel.state();
        Ok(matches!(state, ChannelState::Active | ChannelState::Unresponsive))
    }

    /// What the server reports; `None` while the channel is not connected.
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let target = self.0.get(py)?;
        let facts = if self.is_active(py)? { target.channel.facts() } else { None };
        facts.map(|facts| operation::connection(py, target, &facts)).transpose()
    }

    fn connect(&self, py: Python<'_>) -> PyResult<PyOperation> {
        self.operation(py, |target| StartedOperation::Connect(target.channel.start_connect()))
    }

    /// Reads a value, and waits for it for at most `timeout` seconds. Returns the value or an exception.
    fn read<'py>(
        &self,
        py: Python<'py>,
        detail: &str,
        kind: Option<&str>,
        count: i64,
        timeout: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let timeout = operation::duration(Some(timeout))?;
        operation::wait_for(py, self.start_get(py, detail, kind, count, true)?, timeout)
    }

    /// `request`: reads what a pvRequest selects, as a structure.
    fn get(
        &self,
        py: Python<'_>,
        detail: &str,
        kind: Option<&str>,
        count: i64,
        request: Option<&str>,
    ) -> PyResult<PyOperation> {
        let is_structure = self.0.get(py)?.is_structure.load(Ordering::Relaxed);
        let pv_request = match request {
            Some(text) => Some(self.pv_request(py, text)?),
            None => is_structure.then(PvRequest::default),
        };
        let values = self.request_of(py, detail, kind, count)?;
        self.operation(py, |target| match pv_request {
            Some(request) => StartedOperation::Structure(target.channel.start_get_structure(request)),
            None => StartedOperation::Get(target.channel.start_get(values)),
        })
    }

    /// `value`: a dict, or what has changed in a structure, is written to the fields of a structure. `is_confirmed`: whether to
    /// wait for the reply. `is_checked`: the operation fails if the PV would make another value of it.
    #[pyo3(signature = (value, is_confirmed, request, is_checked=true))]
    fn put(
        &self,
        py: Python<'_>,
        value: &Bound<'_, PyAny>,
        is_confirmed: bool,
        request: Option<&str>,
        is_checked: bool,
    ) -> PyResult<PyOperation> {
        let misuse = |reason: String| self.misuse(py, &reason);
        if value.is_instance_of::<PyDict>() || value.is_instance_of::<PyStructure>() {
            let fields = match value.cast::<PyDict>() {
                Ok(fields) => assign::fields(fields).map_err(misuse)?,
                Err(_) => value.cast::<PyStructure>()?.get().changed_fields(),
            };
            let request = self.pv_request(py, request.unwrap_or_default())?;
            return self
                .operation(py, |target| StartedOperation::Put(target.channel.start_put_structure(request, fields)));
        }
        if request.is_some() {
            return Err(self.misuse(py, "a pvRequest writes fields: the value must be a dict, such as {\"value\": 1}"));
        }
        let value = assign::value(value).map_err(misuse)?;
        self.operation(py, |target| {
            StartedOperation::Put(match is_confirmed {
                _ if is_checked => target.channel.start_checked_put(value, is_confirmed),
                true => target.channel.start_put(value),
                false => target.channel.start_put_unconfirmed(value),
            })
        })
    }

    /// Calls a procedure with named arguments, or with a structure.
    fn call(&self, py: Python<'_>, arguments: &Bound<'_, PyAny>) -> PyResult<PyOperation> {
        let argument = match arguments.cast::<PyStructure>() {
            Ok(structure) => {
                structure.get().whole().map(|whole| (**whole).clone()).ok_or("a part of a structure".into())
            }
            Err(_) => assign::call_argument(self.0.get(py)?.channel.name(), arguments.cast()?),
        };
        let argument = argument.map_err(|reason: String| self.misuse(py, &reason))?;
        self.operation(py, |target| StartedOperation::Structure(target.channel.start_call(argument)))
    }

    /// Reads the type.
    fn describe(&self, py: Python<'_>) -> PyResult<PyOperation> {
        self.operation(py, |target| StartedOperation::Describe(target.channel.start_describe("")))
    }

    /// Subscribes. Without a `queue`, a thread waits for the events.
    #[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
    #[pyo3(signature = (detail, kind, count, request, mask, queue_max, when_full, window, queue))]
    fn monitor(
        &self,
        py: Python<'_>,
        detail: &str,
        kind: Option<&str>,
        count: i64,
        request: Option<&str>,
        mask: &str,
        queue_max: i64,
        when_full: &str,
        window: Option<i64>,
        queue: Option<&CompletionQueue>,
    ) -> PyResult<PyMonitor> {
        let misuse = |reason: String| self.misuse(py, &reason);
        let options = MonitorOptions {
            request: self.request_of(py, detail, kind, count)?,
            mask: mask_named(mask).map_err(misuse)?,
            queue_max: number("queue_max", queue_max, 1).map_err(misuse)?,
            when_full: self.named(py, "when_full", when_full, &POLICIES)?,
            window: window.map(|window| number("window", window, 1)).transpose().map_err(misuse)?,
        };
        let pv_request = request.map(|text| self.pv_request(py, text)).transpose()?;
        let consumer = queue.map(|queue| queue.monitor_waker(py)).transpose()?;
        Ok(PyMonitor::start(self.0.get(py)?.copy(py), options, pv_request, consumer))
    }
}
