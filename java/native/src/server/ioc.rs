//! IOCs of a program.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fodo_ioc::{
    IocBuilder, IocError, OutputRequest, Policy, ProgramValue, RecordDefinition, RecordError, RecordHandle, RunningIoc,
};
use fodo_lock::{Mutex, Rank};
use fodo_net::log::{Level, Log};
use fodo_net::{ClientConfig, Observer, ServerConfig, Value};

use super::queue::ServerTasks;
use crate::error::{ErrorClass, JavaFailure};

/// What records an IOC has.
pub enum BuildStep {
    File { path: PathBuf, macros: String },
    Text { text: String, macros: String },
    Record(RecordSpec),
}

/// A record that is defined without a file.
pub struct RecordSpec {
    pub record_type: String,
    pub name: String,
    pub fields: Vec<(String, String)>,
    pub infos: Vec<(String, String)>,
    pub aliases: Vec<String>,
    pub initial: Option<Value>,
}

/// What an IOC is started from.
pub struct IocSpec {
    pub is_isolated: bool,
    /// Variables, before those of the environment.
    pub settings: HashMap<String, String>,
    /// An access file and its macros.
    pub access: Option<(PathBuf, String)>,
    /// The prefix of the PVs with statistics.
    pub statistics: Option<String>,
    /// The folder of autosave and its period.
    pub saved: Option<(PathBuf, Duration)>,
    pub steps: Vec<BuildStep>,
    /// The outputs whose values the program receives; a request has the index.
    pub outputs: Vec<String>,
}

/// Counts of what the program has done with records.
#[derive(Default)]
pub struct ProgramCounts {
    pub set: AtomicU64,
    pub not_set: AtomicU64,
    pub completed: AtomicU64,
    pub refused: AtomicU64,
    pub restored: AtomicU64,
}

/// A running IOC.
pub struct JavaIoc {
    /// `None` after it was stopped.
    running: Mutex<Option<RunningIoc>>,
    /// Of its server, also after that was stopped.
    pub observer: Option<Observer>,
    pub queue: Arc<ServerTasks>,
    pub counts: Arc<ProgramCounts>,
}

/// A record of an IOC, or one of its fields.
pub struct JavaRecord {
    pub handle: RecordHandle,
    counts: Arc<ProgramCounts>,
}

/// A value that an output has to write; dropped without an end, it is refused.
pub struct OutputEnding {
    request: Option<OutputRequest>,
    counts: Arc<ProgramCounts>,
}

impl JavaIoc {
    pub fn start(spec: IocSpec) -> Result<JavaIoc, JavaFailure> {
        let lookup = |name: &str| spec.settings.get(name).cloned().or_else(|| std::env::var(name).ok());
        let invalid = |error: &dyn std::fmt::Display| JavaFailure::misuse("", error.to_string());
        let config = ServerConfig::from_variables(&lookup).map_err(|error| invalid(&error))?;
        let (mut config, links) = match spec.is_isolated {
            true => (ServerConfig { payload_bytes_max: config.payload_bytes_max, ..ServerConfig::isolated() }, None),
            false => (config, Some(ClientConfig::from_variables(&lookup).map_err(|error| invalid(&error))?)),
        };
        config.status_prefix = spec.statistics;
        let (queue, counts) = (Arc::new(ServerTasks::default()), Arc::<ProgramCounts>::default());
        let mut builder = built(spec.steps).map_err(|error| invalid(&shown(&error)))?;
        if let Some((folder, period)) = spec.saved {
            builder.set_save_period(period);
            builder.keep_values_in(folder);
        }
        for (number, name) in (0_i64..).zip(&spec.outputs) {
            let (inbox, counts) = (queue.clone(), counts.clone());
            builder.on_output(name, move |request| inbox.output(number, OutputEnding::new(request, counts.clone())));
        }
        let running = served(builder, spec.access, config, links, &queue).map_err(|error| invalid(&shown(&error)))?;
        let observer = running.observer();
        Ok(JavaIoc { running: Mutex::ranked(Rank::RunningIoc, Some(running)), observer, queue, counts })
    }

    fn with<T>(&self, work: impl FnOnce(&RunningIoc) -> T) -> Result<T, JavaFailure> {
        self.running.lock().as_ref().map(work).ok_or_else(closed)
    }

    /// The variables of a client that searches only this IOC.
    pub fn settings(&self) -> Result<Vec<(String, String)>, JavaFailure> {
        let config = self.with(RunningIoc::client_config)?;
        let listed = |addresses: &[SocketAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let mut settings = Vec::new();
        for (protocol, addresses) in [("CA", &config.search_addresses), ("PVA", &config.pva.search_addresses)] {
            settings.push((format!("EPICS_{protocol}_ADDR_LIST"), listed(addresses)));
            settings.push((format!("EPICS_{protocol}_AUTO_ADDR_LIST"), "NO".to_owned()));
        }
        // For clients that use the port alone.
        if let Some(address) = config.search_addresses.first() {
            settings.push(("EPICS_CA_SERVER_PORT".to_owned(), address.port().to_string()));
        }
        if let Some(address) = config.pva.search_addresses.first() {
            settings.push(("EPICS_PVA_BROADCAST_PORT".to_owned(), address.port().to_string()));
        }
        Ok(settings)
    }

    pub fn record(&self, name: &str) -> Result<JavaRecord, JavaFailure> {
        let handle = self.with(|running| running.record(name))?.map_err(|error| record_failure(name, &error))?;
        Ok(JavaRecord { handle, counts: self.counts.clone() })
    }

    /// Sets many records. Returns the positions of the values that are refused, with the reasons.
    pub fn set_many(&self, values: Vec<(&RecordHandle, Value)>) -> Result<Vec<(usize, JavaFailure)>, JavaFailure> {
        let n = values.len();
        let values = values.into_iter().map(|(handle, value)| (handle, ProgramValue::new(value)));
        let errors =
            self.with(|running| running.set_many(values))?.map_or_else(|failure| failure.errors, |()| Vec::new());
        // A handle of another IOC is the only reason to set nothing.
        if let Some((_, error)) = errors.iter().find(|(_, error)| matches!(error, RecordError::Unknown { .. })) {
            self.counts.not_set.fetch_add(n as u64, Ordering::Relaxed);
            return Err(record_failure("", error));
        }
        self.counts.set.fetch_add((n - errors.len()) as u64, Ordering::Relaxed);
        self.counts.not_set.fetch_add(errors.len() as u64, Ordering::Relaxed);
        Ok(errors.into_iter().map(|(position, error)| (position, record_failure("", &error))).collect())
    }

    /// Applies a changed access file; returns warnings.
    pub fn reload_access(&self) -> Result<Vec<String>, JavaFailure> {
        self.with(RunningIoc::reload_access)?.map_err(|error| JavaFailure::misuse("", shown(&error)))
    }

    /// Stops the IOC. Returns the number of autosave files that could not be written.
    pub fn close(&self) -> usize {
        let running = self.running.lock().take();
        let end = running.map_or(Ok(()), RunningIoc::stop);
        // What waits there is refused, which locks the database.
        self.queue.close();
        end.map_or_else(|unsaved| unsaved.n_sets, |()| 0)
    }
}

impl Drop for JavaIoc {
    fn drop(&mut self) {
        self.close();
    }
}

fn built(steps: Vec<BuildStep>) -> Result<IocBuilder, IocError> {
    let mut builder = IocBuilder::new();
    for step in steps {
        match step {
            BuildStep::File { path, macros } => builder.load(path, &macros)?,
            BuildStep::Text { text, macros } => builder.load_text(&text, &macros)?,
            BuildStep::Record(record) => builder.define(&definition(record))?,
        }
    }
    Ok(builder)
}

fn definition(record: RecordSpec) -> RecordDefinition {
    let mut definition = RecordDefinition::new(&record.record_type, &record.name);
    for (field, text) in record.fields {
        definition = definition.field(&field, text);
    }
    for (info, text) in record.infos {
        definition = definition.info(&info, text);
    }
    for alias in record.aliases {
        definition = definition.alias(&alias);
    }
    match record.initial {
        Some(initial) => definition.value(initial),
        None => definition,
    }
}

fn served(
    builder: IocBuilder,
    access: Option<(PathBuf, String)>,
    config: ServerConfig,
    links: Option<ClientConfig>,
    queue: &Arc<ServerTasks>,
) -> Result<RunningIoc, IocError> {
    let mut ioc = builder.build()?;
    if let Some(config) = links {
        ioc = ioc.with_links(config);
    }
    if access.is_some() {
        ioc = ioc.with_policy(Policy { access_file: access, ..Policy::default() })?;
    }
    for warning in ioc.access_warnings().iter().chain(ioc.autosave_warnings()) {
        queue.line(Level::Warning, warning.clone());
    }
    let lines = queue.clone();
    ioc.serve_with_log(config, Log::new(Level::Warning, move |line| lines.line(line.level, line.to_string())))
}

/// An error with its cause.
fn shown(error: &IocError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn closed() -> JavaFailure {
    JavaFailure::closed("", "the IOC was closed")
}

/// The failure for an error of a record.
fn record_failure(name: &str, error: &RecordError) -> JavaFailure {
    match error {
        RecordError::Unknown { message } => JavaFailure::misuse(name, message.clone()),
        RecordError::Set { pv, error } => JavaFailure::misuse(pv, error.to_string()),
        RecordError::Put { pv, error } => JavaFailure::new(ErrorClass::Refused, pv, error.to_string()),
        RecordError::Stopped { pv } => JavaFailure::closed(pv, "the IOC was closed"),
    }
}

impl JavaRecord {
    pub fn set(&self, value: ProgramValue) -> Result<(), JavaFailure> {
        let result = self.handle.set_with(value);
        let counter = if result.is_ok() { &self.counts.set } else { &self.counts.not_set };
        counter.fetch_add(1, Ordering::Relaxed);
        result.map_err(|error| record_failure(self.handle.name(), &error))
    }

    pub fn put(&self, value: Value) -> Result<(), JavaFailure> {
        self.handle.put(value).map_err(|error| record_failure(self.handle.name(), &error))
    }

    /// Writes the record; the returned object waits until its processing has ended.
    pub fn put_and_wait(&self, value: Value) -> Result<WaitingPut, JavaFailure> {
        let (sender, ended) = std::sync::mpsc::channel();
        // It fails if the caller no longer waits.
        let started = self.handle.put_with(value, move |result| drop(sender.send(result)));
        started.map_err(|error| record_failure(self.handle.name(), &error))?;
        Ok(WaitingPut { ended: Mutex::new(ended), name: self.handle.name().to_owned() })
    }
}

/// A put that the program waits for.
pub struct WaitingPut {
    ended: Mutex<std::sync::mpsc::Receiver<Result<(), RecordError>>>,
    name: String,
}

impl WaitingPut {
    /// Waits until it has ended; `None` if it has not after this time.
    pub fn wait(&self, pause: Duration) -> Option<Result<(), JavaFailure>> {
        use std::sync::mpsc::RecvTimeoutError;

        match self.ended.lock().recv_timeout(pause) {
            Ok(result) => Some(result.map_err(|error| record_failure(&self.name, &error))),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(JavaFailure::closed(&self.name, "the IOC was closed"))),
        }
    }
}

impl OutputEnding {
    pub fn new(request: OutputRequest, counts: Arc<ProgramCounts>) -> OutputEnding {
        OutputEnding { request: Some(request), counts }
    }

    /// The value to write, and the one that the program accepted or set before.
    pub fn values(&self) -> Option<(&Value, Option<&Value>)> {
        self.request.as_ref().map(|request| (request.value(), request.previous()))
    }

    pub fn complete(mut self) {
        self.counts.completed.fetch_add(1, Ordering::Relaxed);
        self.request.take().into_iter().for_each(OutputRequest::complete);
    }

    pub fn refuse(mut self, reason: &str) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        self.request.take().into_iter().for_each(|request| request.refuse(reason));
    }

    pub fn restore(mut self) {
        self.counts.restored.fetch_add(1, Ordering::Relaxed);
        self.request.take().into_iter().for_each(OutputRequest::restore);
    }
}

impl Drop for OutputEnding {
    fn drop(&mut self) {
        if self.request.is_some() {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}
