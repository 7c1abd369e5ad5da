//! IOCs of a program.
//!
//! Puts to outputs wait in an inbox, from which a thread of Python takes them.

pub mod output;
pub mod record;
mod routine;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use fodo_ioc::{IocBuilder, IocError, Policy, RecordDefinition, RecordError, RecordHandle, RoutineFailed, RunningIoc};
use fodo_lock::{Mutex, Rank};
use fodo_net::log::{Level, Log};
use fodo_net::{ClientConfig, Observer, ServerConfig};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use self::output::{InboxItem, ProgramInbox, PyInbox};
use self::record::PyRecord;
use crate::ownership::Owned;
use crate::{assign, context, error};

/// What the objects of an IOC share.
#[derive(Default)]
pub struct IocState {
    pub inbox: ProgramInbox,
    /// Whether records call routines of Python while the database is locked. Then no thread may wait for the database while it
    /// holds the lock of the interpreter.
    has_routines: AtomicBool,
    n_set: AtomicU64,
    n_set_refused: AtomicU64,
    n_completed: AtomicU64,
    n_refused: AtomicU64,
    n_restored: AtomicU64,
    n_routine_errors: AtomicU64,
    /// The thread that takes from the inbox, which calls the functions of the program.
    taker: Mutex<Option<ThreadId>>,
}

impl IocState {
    /// Whether this thread is the one that calls the functions of the program.
    fn is_taker(&self) -> bool {
        *self.taker.lock() == Some(std::thread::current().id())
    }

    /// Runs a short operation on the database. Without routines it keeps the lock of the interpreter: another thread that
    /// computes would take that for milliseconds.
    fn with_database<T: Send>(&self, py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
        if self.has_routines.load(Ordering::Relaxed) { py.detach(work) } else { work() }
    }

    fn count_sets(&self, n: usize, n_refused: usize) {
        self.n_set.fetch_add((n - n_refused) as u64, Ordering::Relaxed);
        self.n_set_refused.fetch_add(n_refused as u64, Ordering::Relaxed);
    }
}

/// What an IOC is built from. It can be started once.
#[pyclass(frozen, name = "IocBuilder", module = "fodo._native")]
pub struct PyIocBuilder {
    parts: Mutex<Option<Parts>>,
    state: Arc<IocState>,
}

struct Parts {
    builder: IocBuilder,
    access: Option<(PathBuf, String)>,
    /// The prefix of the PVs with statistics.
    statistics: Option<String>,
}

impl PyIocBuilder {
    fn with_parts<T>(&self, py: Python<'_>, work: impl FnOnce(&mut Parts) -> Result<T, IocError>) -> PyResult<T> {
        let done = self.parts.lock().as_mut().map(work);
        // Outside the lock, since exceptions are made by Python.
        let done = done.ok_or_else(|| error::misuse(py, "", "the IOC was built"))?;
        done.map_err(|error| error::misuse(py, "", &shown(&error)))
    }
}

#[pymethods]
impl PyIocBuilder {
    #[new]
    fn create(py: Python<'_>) -> PyResult<PyIocBuilder> {
        context::watch_for_forks(py)?;
        let parts = Parts { builder: IocBuilder::new(), access: None, statistics: None };
        Ok(PyIocBuilder { parts: Mutex::ranked(Rank::RunningIoc, Some(parts)), state: Arc::default() })
    }

    /// Adds a record. `initial`: the value of VAL.
    #[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
    fn define(
        &self,
        py: Python<'_>,
        record_type: &str,
        name: &str,
        fields: Vec<(String, String)>,
        infos: Vec<(String, String)>,
        aliases: Vec<String>,
        initial: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let mut definition = RecordDefinition::new(record_type, name);
        for (field, text) in fields {
            definition = definition.field(&field, text);
        }
        for (info, text) in infos {
            definition = definition.info(&info, text);
        }
        for alias in aliases {
            definition = definition.alias(&alias);
        }
        if let Some(initial) = initial {
            let value = assign::value(initial).map_err(|reason| error::misuse(py, name, &reason))?;
            definition = definition.value(value);
        }
        self.with_parts(py, |parts| parts.builder.define(&definition))
    }

    fn load(&self, py: Python<'_>, path: PathBuf, macros: &str) -> PyResult<()> {
        self.with_parts(py, |parts| parts.builder.load(path, macros))
    }

    fn load_text(&self, py: Python<'_>, text: &str, macros: &str) -> PyResult<()> {
        self.with_parts(py, |parts| parts.builder.load_text(text, macros))
    }

    /// Registers a function of `sub` records.
    fn routine(&self, py: Python<'_>, name: &str, function: Py<PyAny>) -> PyResult<()> {
        self.state.has_routines.store(true, Ordering::Relaxed);
        let routine = routine::PyRoutine::new(name, function, self.state.clone());
        self.with_parts(py, |parts| {
            parts.builder.loader().routine(name, move |call| {
                *call.value = routine.value(call.args).ok_or(RoutineFailed)?;
                Ok(())
            });
            Ok(())
        })
    }

    /// Registers a function of `aSub` records.
    fn array_routine(&self, py: Python<'_>, name: &str, function: Py<PyAny>) -> PyResult<()> {
        self.state.has_routines.store(true, Ordering::Relaxed);
        let routine = routine::PyRoutine::new(name, function, self.state.clone());
        self.with_parts(py, |parts| {
            parts.builder.loader().array_routine(name, move |call| {
                let inputs: Vec<_> =
                    routine::LETTERS.filter_map(|letter| Some((letter, call.input_array(letter)?.clone()))).collect();
                for (letter, array) in routine.arrays(&inputs).ok_or(RoutineFailed)? {
                    let set = call.set_output_array(letter, &array);
                    set.inspect_err(|_| routine.report(&format!("output {letter} cannot store what it returned")))?;
                }
                Ok(0)
            });
            Ok(())
        })
    }

    /// Saves and restores the fields that info items name. `period`: in seconds.
    fn autosave(&self, py: Python<'_>, folder: PathBuf, period: f64) -> PyResult<()> {
        let invalid = || error::misuse(py, "", &format!("the period of autosave cannot be {period} s"));
        let period = Duration::try_from_secs_f64(period).ok().filter(|period| !period.is_zero()).ok_or_else(invalid)?;
        self.with_parts(py, |parts| {
            parts.builder.set_save_period(period);
            parts.builder.keep_values_in(folder);
            Ok(())
        })
    }

    /// Applies an access file.
    fn access(&self, py: Python<'_>, path: PathBuf, macros: String) -> PyResult<()> {
        self.with_parts(py, |parts| {
            parts.access = Some((path, macros));
            Ok(())
        })
    }

    /// Publishes statistics of the IOC, as PVs whose names begin with `prefix` and a colon.
    fn statistics(&self, py: Python<'_>, prefix: String) -> PyResult<()> {
        self.with_parts(py, |parts| {
            parts.statistics = Some(prefix);
            Ok(())
        })
    }

    /// Builds and starts the IOC. `settings`: variables, before those of the environment. `is_isolated`: on loopback and free
    /// ports. `outputs`: the records of which the inbox receives the puts, by their index here.
    fn start(
        &self,
        py: Python<'_>,
        settings: HashMap<String, String>,
        is_isolated: bool,
        outputs: Vec<String>,
    ) -> PyResult<PyRunningIoc> {
        let lookup = |name: &str| settings.get(name).cloned().or_else(|| std::env::var(name).ok());
        let invalid = |error: &dyn std::fmt::Display| error::misuse(py, "", &error.to_string());
        let config = ServerConfig::from_variables(&lookup).map_err(|error| invalid(&error))?;
        let (mut config, links) = match is_isolated {
            true => (ServerConfig { payload_bytes_max: config.payload_bytes_max, ..ServerConfig::isolated() }, None),
            false => (config, Some(ClientConfig::from_variables(&lookup).map_err(|error| invalid(&error))?)),
        };
        let parts = self.parts.lock().take();
        let built = || error::misuse(py, "", "the IOC was built");
        let Parts { mut builder, access, statistics } = parts.ok_or_else(built)?;
        config.status_prefix = statistics;
        for (index, name) in outputs.iter().enumerate() {
            let state = self.state.clone();
            builder.on_output(name, move |request| state.inbox.push(InboxItem::Output(index, request)));
        }
        let started = py.detach(|| started(builder, access, config, links, &self.state));
        let running = started.map_err(|error| error::misuse(py, "", &shown(&error)))?;
        Ok(PyRunningIoc {
            observer: running.observer(),
            running: Owned::new(Arc::new(Mutex::ranked(Rank::RunningIoc, Some(running)))),
            state: self.state.clone(),
        })
    }
}

fn started(
    builder: IocBuilder,
    access: Option<(PathBuf, String)>,
    config: ServerConfig,
    links: Option<ClientConfig>,
    state: &Arc<IocState>,
) -> Result<RunningIoc, IocError> {
    let mut ioc = builder.build()?;
    if let Some(config) = links {
        ioc = ioc.with_links(config);
    }
    if access.is_some() {
        ioc = ioc.with_policy(Policy { access_file: access, ..Policy::default() })?;
    }
    for warning in ioc.access_warnings().iter().chain(ioc.autosave_warnings()) {
        state.inbox.push(InboxItem::Line(Level::Warning, warning.clone()));
    }
    let sink = state.clone();
    let log = Log::new(Level::Warning, move |line| sink.inbox.push(InboxItem::Line(line.level, line.to_string())));
    ioc.serve_with_log(config, log)
}

/// An error with its cause.
fn shown(error: &IocError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The exception for an error of a record.
fn record_error(py: Python<'_>, name: &str, error: &RecordError) -> PyErr {
    let (class, pv, reason) = match error {
        RecordError::Unknown { message } => ("Misuse", name, message.clone()),
        RecordError::Set { pv, error } => ("Misuse", pv.as_str(), error.to_string()),
        RecordError::Put { pv, error } => ("Refused", pv.as_str(), error.to_string()),
        RecordError::Stopped { pv } => ("Closed", pv.as_str(), "the IOC has stopped".to_owned()),
    };
    let exception = error::instance(py, class, &PyString::new(py, pv), &reason, None, None);
    exception.map_or_else(|failure| failure, PyErr::from_value)
}

/// A running IOC.
#[pyclass(frozen, name = "RunningIoc", module = "fodo._native")]
pub struct PyRunningIoc {
    /// `None` after it was stopped.
    running: Owned<Arc<Mutex<Option<RunningIoc>>>>,
    /// Of its server, also after that was stopped.
    observer: Option<Observer>,
    state: Arc<IocState>,
}

impl PyRunningIoc {
    /// Runs `work`, unless the IOC was stopped. The lock of the interpreter is free meanwhile.
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&RunningIoc) -> T + Send) -> PyResult<T> {
        routine::refuse_inside(py)?;
        let running = self.running.get(py)?;
        py.detach(|| running.lock().as_ref().map(work)).ok_or_else(|| closed(py, ""))
    }
}

/// The IOC has stopped.
fn closed(py: Python<'_>, name: &str) -> PyErr {
    record_error(py, name, &RecordError::Stopped { pv: name.to_owned() })
}

#[pymethods]
impl PyRunningIoc {
    /// The variables of a client that searches only this IOC.
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let config = self.with(py, RunningIoc::client_config)?;
        let settings = PyDict::new(py);
        let listed = |addresses: &[SocketAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        for (protocol, addresses) in [("CA", &config.search_addresses), ("PVA", &config.pva.search_addresses)] {
            settings.set_item(format!("EPICS_{protocol}_ADDR_LIST"), listed(addresses))?;
            settings.set_item(format!("EPICS_{protocol}_AUTO_ADDR_LIST"), "NO")?;
        }
        // For clients that use the port alone.
        if let Some(address) = config.search_addresses.first() {
            settings.set_item("EPICS_CA_SERVER_PORT", address.port().to_string())?;
        }
        if let Some(address) = config.pva.search_addresses.first() {
            settings.set_item("EPICS_PVA_BROADCAST_PORT", address.port().to_string())?;
        }
        Ok(settings)
    }

    /// Connects a record object with its record.
    fn bind(&self, py: Python<'_>, record: &PyRecord) -> PyResult<()> {
        let name = record.name(py)?;
        let handle = self.with(py, |running| running.record(&name))?;
        record.bind(handle.map_err(|error| record_error(py, &name, &error))?, self.state.clone());
        Ok(())
    }

    /// Sets many records. Returns the positions of the values that are refused, with their exceptions.
    fn set_many<'py>(
        &self,
        py: Python<'py>,
        records: &Bound<'py, PyAny>,
        values: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<(usize, Bound<'py, PyAny>)>> {
        let values = record::paired(py, records, values)?;
        let n = values.len();
        let (handles, values): (Vec<_>, Vec<_>) = values.into_iter().unzip();
        let handles: Vec<&RecordHandle> = handles.iter().map(|handle| handle.get(py)).collect::<PyResult<_>>()?;
        let result = self.with(py, |running| running.set_many(handles.into_iter().zip(values)))?;
        let errors = result.map_or_else(|failure| failure.errors, |()| Vec::new());
        // A handle of another IOC is the only reason to set nothing.
        let is_nothing_set = errors.iter().any(|(_, error)| matches!(error, RecordError::Unknown { .. }));
        self.state.count_sets(n, if is_nothing_set { n } else { errors.len() });
        let exception = |(position, error): (usize, RecordError)| {
            (position, record_error(py, "", &error).into_value(py).into_bound(py).into_any())
        };
        Ok(errors.into_iter().map(exception).collect())
    }

    /// What the thread of Python takes.
    fn inbox(&self, py: Python<'_>) -> PyResult<PyInbox> {
        self.running.get(py)?;
        Ok(PyInbox(Owned::new(self.state.clone())))
    }

    /// Counts: values set, values refused, puts completed, refused and restored, errors of routines, lines of the log that were
    /// left out.
    fn counts(&self) -> (u64, u64, u64, u64, u64, u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let state = &self.state;
        (
            of(&state.n_set),
            of(&state.n_set_refused),
            of(&state.n_completed),
            of(&state.n_refused),
            of(&state.n_restored),
            of(&state.n_routine_errors),
            state.inbox.n_dropped(),
        )
    }

    /// Counts of updates to clients: posted, sent, merged and dropped.
    fn update_counts(&self) -> (u64, u64, u64, u64) {
        let observer = self.observer.as_ref().filter(|_| self.running.here().is_some());
        let server = observer.map(Observer::counts).unwrap_or_default();
        (server.posted, server.updates.sent, server.updates.merged, server.dropped)
    }

    /// Applies a changed access file; returns warnings.
    fn reload_access<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let warnings = self.with(py, RunningIoc::reload_access)?;
        PyList::new(py, warnings.map_err(|error| error::misuse(py, "", &shown(&error)))?)
    }

    /// Stops the IOC. Returns the number of autosave files that could not be written.
    fn stop(&self, py: Python<'_>) -> PyResult<usize> {
        routine::refuse_inside(py)?;
        let Some(running) = self.running.here() else { return Ok(0) };
        let end = py.detach(|| {
            let taken = running.lock().take();
            let end = taken.map_or(Ok(()), RunningIoc::stop);
            // What waits there is refused, which locks the database.
            self.state.inbox.close();
            end
        });
        Ok(end.map_or_else(|unsaved| unsaved.n_sets, |()| 0))
    }
}

impl Drop for PyRunningIoc {
    fn drop(&mut self) {
        let Some(running) = self.running.here().cloned() else { return };
        let state = self.state.clone();
        let stop = move || {
            let taken = running.lock().take();
            drop(taken);
            // What waits there is refused, which locks the database.
            state.inbox.close();
        };
        if routine::is_inside() {
            // It waits for the thread that processes, which is this one.
            std::thread::spawn(stop);
            return;
        }
        // Its threads may wait for the interpreter in a routine.
        let mut stop = Some(stop);
        if Python::try_attach(|py| py.detach(|| stop.take().map(|stop| stop()))).is_none() {
            stop.into_iter().for_each(|stop| stop());
        }
    }
}
