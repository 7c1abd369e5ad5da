//! Values of outputs that the program takes: their queue, and the thread that calls the program.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use fodo_data::{Text, Value};
use fodo_db::{FieldMap, FieldRef, OutputId, OutputResult};
use fodo_lock::{Condvar, Mutex};
use fodo_net::log::{Level, Log};

use super::handle::{RecordError, RecordHandle};
use crate::driver::DatabaseDriver;
use crate::limit;

/// A function that takes the values of an output.
pub type OutputHandler = Box<dyn FnMut(OutputRequest) + Send>;

/// The functions that take the values of outputs, by the VAL of their records.
#[derive(Default)]
pub struct OutputHandlers(pub FieldMap<OutputHandler>);

impl fmt::Debug for OutputHandlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputHandlers").field("n_records", &self.0.len()).finish()
    }
}

/// A value of an output that the program has not taken yet.
#[derive(Debug)]
pub struct WaitingOutput {
    pub record: FieldRef,
    pub output: OutputId,
    pub value: Value,
    pub previous: Option<Value>,
}

/// The values of outputs that the program has not taken yet, in the order of processing. A record waits until its value
/// is handled, so it has at most one here.
#[derive(Debug, Default)]
pub struct OutputQueue {
    state: Mutex<QueueState>,
    /// Signals a new value, or the end.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<WaitingOutput>,
    is_stopped: bool,
    /// Whether the thread that takes the values has ended.
    has_ended: bool,
}

impl OutputQueue {
    pub fn push(&self, output: WaitingOutput) {
        let mut state = self.state.lock();
        if !state.is_stopped {
            state.waiting.push_back(output);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Drops all values; from now on `next` returns `None`.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        state.waiting.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// Reports that the thread that takes the values has ended.
    fn end(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Waits until the thread that takes the values has ended; false after `timeout`.
    fn wait_for_end(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        while !state.has_ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let _ = self.changed.wait_for(&mut state, left);
        }
        true
    }

    /// Waits for the next value. `None`: stopped.
    fn next(&self) -> Option<WaitingOutput> {
        let mut state = self.state.lock();
        while !state.is_stopped {
            if let Some(output) = state.waiting.pop_front() {
                return Some(output);
            }
            self.changed.wait(&mut state);
        }
        None
    }
}

/// A value that a record has to write, for the program. The record waits, and so does the client if it has requested
/// the completion of its put, until the program calls one of [`OutputRequest::complete`], [`OutputRequest::refuse`] and
/// [`OutputRequest::restore`], on any thread and at any time. A request that is dropped is refused.
///
/// ```
/// use fodo_ioc::{IocBuilder, OutputRequest, RecordDefinition};
/// use fodo_net::{Context, ServerConfig, Severity, Value};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut builder = IocBuilder::new();
/// for name in ["X:gap", "X:phase"] {
///     builder.define(&RecordDefinition::new("ao", name).field("DTYP", "Program").value(10.0))?;
/// }
/// // An output whose device takes a moment: another thread completes it.
/// let (sender, requests) = std::sync::mpsc::channel::<OutputRequest>();
/// builder.on_output("X:gap", move |request| drop(sender.send(request)));
/// let device = std::thread::spawn(move || {
///     for request in requests {
///         match request.value().first().map(|gap| gap.to_f64()) {
///             Some(Ok(gap)) if gap < 5.0 => request.refuse("the gap must be at least 5 mm"),
///             _ => request.complete(),
///         }
///     }
/// });
/// // An output that accepts a value or keeps the last one.
/// builder.on_output("X:phase", |request| {
///     if request.previous() == Some(request.value()) { request.complete() } else { request.restore() }
/// });
/// let running = builder.build()?.serve(ServerConfig::isolated())?;
///
/// let context = Context::new(running.client_config());
/// let gap = context.channel("X:gap")?;
/// gap.put(20.0)?;
/// gap.put(2.0)?;
/// let reading = gap.get()?;
/// assert_eq!((reading.value, reading.alarm.severity), (Value::from(2.0), Severity::Invalid));
/// let phase = context.channel("X:phase")?;
/// phase.put(3.0)?;
/// assert_eq!(phase.get()?.value, Value::from(10.0));
/// running.stop()?;
/// # device.join().map_err(|_| "the device failed")?;
/// # Ok(())
/// # }
/// ```
pub struct OutputRequest {
    driver: Weak<DatabaseDriver>,
    output: WaitingOutput,
    result: Option<OutputResult>,
}

impl fmt::Debug for OutputRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WaitingOutput { value, previous, .. } = &self.output;
        f.debug_struct("OutputRequest").field("value", value).field("previous", previous).finish_non_exhaustive()
    }
}

impl OutputRequest {
    /// The value to write, of the type of VAL.
    pub fn value(&self) -> &Value {
        &self.output.value
    }

    /// The value that the program accepted or set before; at first the initial value.
    pub fn previous(&self) -> Option<&Value> {
        self.output.previous.as_ref()
    }

    /// A handle for a record or field of the same IOC. See [`RecordHandle`].
    pub fn record(&self, name: &str) -> Result<RecordHandle, RecordError> {
        let stopped = || RecordError::Stopped { pv: name.to_owned() };
        RecordHandle::new(&self.driver.upgrade().ok_or_else(stopped)?, name)
    }

    /// Reports that the value is written.
    pub fn complete(mut self) {
        self.result = Some(OutputResult::Done);
    }

    /// Reports that the value is not written. The record keeps it and has the alarm WRITE, with severity INVALID.
    ///
    /// `message`: for AMSG, at most 39 bytes of it.
    pub fn refuse(mut self, message: impl Into<Text>) {
        self.result = Some(OutputResult::Refused { message: message.into() });
    }

    /// Reports that the value is not written. The record gets back the value before it, without an alarm.
    pub fn restore(mut self) {
        self.result = Some(OutputResult::Restored);
    }
}

impl Drop for OutputRequest {
    fn drop(&mut self) {
        let dropped = || OutputResult::Refused { message: "the program dropped the output".into() };
        let result = self.result.take().unwrap_or_else(dropped);
        if let Some(driver) = self.driver.upgrade() {
            driver.complete_output(self.output.record, self.output.output, result);
        }
    }
}

/// The thread that calls the handlers of outputs, one at a time.
#[derive(Debug)]
pub struct OutputThread {
    driver: Arc<DatabaseDriver>,
    thread: Option<JoinHandle<()>>,
    log: Log,
}

impl OutputThread {
    /// Starts the thread. It ends when the driver is stopped, and drops the handlers.
    pub fn start(driver: &Arc<DatabaseDriver>, handlers: OutputHandlers, log: Log) -> io::Result<OutputThread> {
        let program = (driver.clone(), log.clone());
        let thread = std::thread::Builder::new().name("fodo-program".into()).spawn(move || {
            let (driver, log) = program;
            run(&driver, handlers, &log);
            driver.outputs().end();
        })?;
        Ok(OutputThread { driver: driver.clone(), thread: Some(thread), log })
    }

    /// Waits for the end, unless a handler calls this. A handler that does not return in time keeps its thread, and the
    /// memory of the IOC; the log reports that.
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != this_thread()
        {
            if self.driver.outputs().wait_for_end(limit::HANDLER_END) {
                // `run` catches the panics of handlers.
                let _ = thread.join();
                return;
            }
            let seconds = limit::HANDLER_END.as_secs();
            let line =
                format!("a function of the program for an output has not returned within {seconds} s of the stop");
            self.log.note(Level::Error, &line);
        }
    }
}

fn this_thread() -> ThreadId {
    std::thread::current().id()
}

fn run(driver: &Arc<DatabaseDriver>, handlers: OutputHandlers, log: &Log) {
    let mut handlers = handlers.0;
    while let Some(output) = driver.outputs().next() {
        let record = output.record;
        let request = OutputRequest { driver: Arc::downgrade(driver), output, result: None };
        let Some(handler) = handlers.get_mut(&record) else { continue };
        // The handler is called again, with the state that it has left behind.
        if catch_unwind(AssertUnwindSafe(|| handler(request))).is_err() {
            let pv = driver.database().name(record);
            log.note(Level::Error, &format!("{pv}: the program's function for this output panicked; it is refused"));
        }
    }
}
