//! The engine of a CLU: its scripts and its objects, driven by one caller.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use mlua::{Error, Function, IntoLuaMulti, MultiValue, Thread, Value};

mod budget;
mod chunk;
mod convert;
mod pattern;
pub(crate) mod request;
mod sandbox;
pub(crate) mod subscription;
mod waiting;

use budget::Budget;
use chunk::ChunkCache;
use request::{ObjectListing, ReplyTo, ScriptAnswer, StartError, VcluConfig, VcluRequest};
use sandbox::Sandbox;
use subscription::SubscriptionChange;
use waiting::{Continuation, WaitingCall};

use crate::clock::LocalClock;
use crate::folder::{has_script, read_script};
use crate::limit::{
    IDLE_RUNNERS_MAX, LOOP_PERIOD, MEMORY_RESERVE_BYTES, RESULT_WAIT_MAX, SUBSCRIPTION_CHANGES_MAX, TURN_TIME_MAX,
    WAIT_MAX, WAITING_MAX,
};
use crate::log::{CluCounts, CluLog, LogEntry, LogSeverity, count};
use crate::network::CluNetwork;
use crate::object::storage::lock_folder;
use crate::object::world::{CallWait, CluState, Outside, PendingEvent, Ticket, World};
use crate::object::{ObjectClass, ObjectError};

/// EMERGNCY.LUA of a CLU whose folder has none, or whose own one fails.
const BUILT_IN_EMERGENCY: &str =
    "function checkAlive() return \"emergency\" end\nSYSTEM.Init()\nrepeat SYSTEM.Loop() until false\n";

/// The scripts and the objects of a CLU. It has no thread: its caller passes requests and calls [`LuaEngine::turn`] when a
/// deadline has passed. [`VirtualClu`](crate::VirtualClu) runs it on a thread.
///
/// ```
/// use std::sync::mpsc;
///
/// use fodo_vclu::{LuaEngine, ReplyTo, VcluConfig, VcluRequest};
///
/// let folder = std::env::temp_dir().join(format!("fodo-vclu-engine-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// std::fs::write(folder.join("MAIN.LUA"), r#"
///     function checkAlive() return "0d0a1b2c" end
///     SYSTEM.Init()
///     repeat SYSTEM.Loop() until false
/// "#)?;
/// let mut engine = LuaEngine::start(VcluConfig::new(&folder))?;
///
/// let (sender, receiver) = mpsc::channel();
/// let reply = ReplyTo::new(move |answer| drop(sender.send(answer)));
/// engine.handle(VcluRequest::Execute { script: "checkAlive()".into(), reply });
/// assert_eq!(receiver.recv()?.map(|answer| answer.text).as_deref(), Some("0d0a1b2c"));
/// # drop(engine);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LuaEngine {
    config: VcluConfig,
    log: Arc<CluLog>,
    sandbox: Sandbox,
    stage: BootStage,
    /// Why MAIN.LUA or EMERGNCY.LUA cannot continue.
    failure: Option<String>,
    chunks: ChunkCache,
    idle: Vec<Thread>,
    waiting: Vec<WaitingCall>,
    /// What a reset keeps.
    outside: Outside,
    /// Whether values may have changed since [`LuaEngine::take_changed`].
    has_changed: bool,
    /// Held until the objects have saved their values.
    _storage_lock: Option<File>,
}

/// Which script runs as the main one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BootStage {
    /// MAIN.LUA.
    Main,
    /// EMERGNCY.LUA of the folder.
    Emergency,
    /// [`BUILT_IN_EMERGENCY`].
    BuiltIn,
}

/// Who receives the result of a call.
enum CallOwner {
    /// The main script.
    Main,
    /// An event of the object with this name.
    Event { object: String, address: u16 },
    /// A client.
    Request { script_bytes: usize, reply: ReplyTo<ScriptAnswer>, subscriptions: Vec<SubscriptionChange> },
}

impl LuaEngine {
    /// Starts the scripts of the folder and runs MAIN.LUA up to its first `SYSTEM.Loop`. Fails for an unknown time
    /// zone, if another CLU uses the folder for stored values, and if the libraries exceed the limit of memory; a MAIN.LUA that fails starts emergency mode instead.
    pub fn start(config: VcluConfig) -> Result<LuaEngine, StartError> {
        LuaEngine::start_with_log(config, Arc::default(), Waker::noop().clone())
    }

    /// `turn_waker`: wakes the thread that calls [`LuaEngine::turn`].
    pub(crate) fn start_with_log(
        config: VcluConfig,
        log: Arc<CluLog>,
        turn_waker: Waker,
    ) -> Result<LuaEngine, StartError> {
        let unknown_zone = || StartError { reason: format!("this computer has no time zone \"{}\"", config.zone) };
        let clock = LocalClock::new(&config.zone).ok_or_else(unknown_zone)?;
        let storage_lock = config.storage.as_deref().map(lock_folder).transpose();
        let storage_lock = storage_lock.map_err(|reason| StartError { reason })?.flatten();
        let outside = Outside::new(&config, Arc::clone(&log), turn_waker);
        let sandbox = new_sandbox(&config, clock, &outside);
        let sandbox = sandbox.map_err(|error| StartError { reason: error.to_string() })?;
        let mut engine = LuaEngine {
            config,
            log,
            sandbox,
            stage: BootStage::Main,
            failure: None,
            chunks: ChunkCache::default(),
            idle: Vec::new(),
            waiting: Vec::new(),
            outside,
            has_changed: false,
            _storage_lock: storage_lock,
        };
        engine.boot(BootStage::Main);
        engine.settle();
        Ok(engine)
    }

    /// Handles a request. The reply is sent before this returns, except by a script that calls `SYSTEM.Wait`.
    pub fn handle(&mut self, request: VcluRequest) {
        self.refresh();
        count(&self.log.counters.requests);
        self.has_changed |= !matches!(request, VcluRequest::Fetch { .. } | VcluRequest::List { .. });
        match request {
            VcluRequest::Execute { script, reply } => self.execute(script, reply),
            VcluRequest::Fetch { items, bytes_max, reply } => {
                self.begin_call();
                let values = self.limited(|engine| engine.sandbox.fetch(&items, bytes_max));
                if self.sandbox.host.budget.is_exceeded() {
                    count(&self.log.counters.scripts_failed);
                    count(&self.log.counters.budgets_exceeded);
                }
                reply.send(values);
            }
            VcluRequest::Set { object, feature, value, reply } => {
                let result = self.sandbox.world().set(&object, feature, value, &self.sandbox.globals());
                self.note_refused(&object, result.as_ref().err());
                reply.send(result);
            }
            VcluRequest::Call { object, method, arguments, reply } => self.call(object, method, arguments, reply),
            VcluRequest::List { reply } => reply.send(self.list()),
            VcluRequest::Reset { reply } => {
                self.reset();
                // A MAIN.LUA that fails at once: the reply is the state of emergency mode.
                self.settle();
                reply.send(self.state());
            }
        }
        self.run_events();
        self.settle();
    }

    /// Does what is due: objects that received something from other threads, calls that wait, timers and other objects,
    /// handlers of events.
    pub fn turn(&mut self) {
        self.refresh();
        self.has_changed |= self.sandbox.world().poll_woken(&self.sandbox.globals());
        self.resume_waiting();
        let due = self.sandbox.host.world.borrow().deadline();
        self.has_changed |= due.is_some_and(|due| due <= self.now().monotonic);
        self.sandbox.world().tick(&self.sandbox.globals());
        self.run_events();
        self.settle();
    }

    /// When [`LuaEngine::turn`] must be called; in the past if it must be called now.
    pub fn deadline(&self) -> Option<Instant> {
        let world = self.sandbox.host.world.borrow();
        if !world.events.is_empty() || !world.woken.is_empty() || !world.results.is_empty() {
            return Some(world.now.monotonic);
        }
        let waiting = self.waiting.iter().map(|call| call.due).min();
        waiting.into_iter().chain(world.deadline()).min()
    }

    /// Whether values may have changed since the last call: after everything but reads and the loop of MAIN.LUA.
    pub(crate) fn take_changed(&mut self) -> bool {
        mem::take(&mut self.has_changed)
    }

    /// The state.
    pub fn state(&self) -> CluState {
        self.sandbox.host.world.borrow().state
    }

    /// The connections of MQTT and HTTP.
    pub(crate) fn network(&self) -> &Arc<CluNetwork> {
        &self.outside.network
    }

    /// The newest entries of the log, the oldest first.
    pub fn log(&self) -> Vec<LogEntry> {
        self.log.entries()
    }

    /// The counters since the start.
    pub fn counts(&self) -> CluCounts {
        self.log.counters.snapshot()
    }

    /// Stops all scripts, saves what Storage objects keep, and starts the scripts of the folder.
    fn reset(&mut self) {
        self.stop();
        self.log.write(self.now().wall, LogSeverity::Info, "reset");
        self.boot(BootStage::Main);
    }

    /// Ends the calls that wait, and saves what Storage objects keep.
    fn stop(&mut self) {
        self.begin_call();
        for call in mem::take(&mut self.waiting) {
            if let Continuation::Script(_, owner @ CallOwner::Request { .. }) = call.continuation {
                self.finish(owner, Err(Error::runtime("the CLU was reset")));
            }
        }
        self.sandbox.world().stop(&self.sandbox.globals());
    }

    /// Replaces the sandbox by a new one, and runs the main script up to its first `SYSTEM.Loop`.
    fn boot(&mut self, stage: BootStage) {
        let clock = self.sandbox.host.world.borrow().clock.clone();
        match new_sandbox(&self.config, clock, &self.outside) {
            Ok(sandbox) => self.sandbox = sandbox,
            Err(error) => {
                self.log.write(self.now().wall, LogSeverity::Error, format!("the scripts were not reset: {error}"));
                return;
            }
        }
        self.stage = stage;
        self.failure = None;
        self.chunks = ChunkCache::default();
        self.idle.clear();
        self.waiting.clear();
        let labels = read_script(&self.config.folder, "OM.LUA").map(|text| labels_of(&text)).unwrap_or_default();
        self.sandbox.world().labels = labels;
        self.refresh();
        if stage != BootStage::Main {
            self.sandbox.world().state = CluState::Emergency;
            // EMERGNCY.LUA may have no CLU object that says so.
            self.outside.network.mqtt.configure(None);
        }
        let (main, argument) = match stage {
            BootStage::Main => (Ok(self.sandbox.boot.clone()), None),
            BootStage::Emergency => (Ok(self.sandbox.dofile.clone()), Some("EMERGNCY.LUA")),
            BootStage::BuiltIn => (self.sandbox.lua.load(BUILT_IN_EMERGENCY).into_function(), None),
        };
        match main {
            Ok(main) => self.run(main, argument, CallOwner::Main),
            Err(error) => self.failure = Some(error.to_string()),
        }
    }

    /// Starts emergency mode if the main script has failed.
    fn settle(&mut self) {
        while let Some(reason) = self.failure.take() {
            let next = match self.stage {
                BootStage::Main if has_script(&self.config.folder, "EMERGNCY.LUA") => BootStage::Emergency,
                BootStage::Main | BootStage::Emergency => BootStage::BuiltIn,
                // It has no cause to fail but a full memory, and then its functions exist.
                BootStage::BuiltIn => return,
            };
            let script = if self.stage == BootStage::Main { "MAIN.LUA" } else { "EMERGNCY.LUA" };
            let text = format!("{script} failed, emergency mode starts: {reason}");
            self.log.write(self.now().wall, LogSeverity::Error, text);
            self.stop();
            self.boot(next);
        }
    }

    fn now(&self) -> fodo_data::Now {
        self.sandbox.host.world.borrow().now
    }

    fn refresh(&mut self) {
        self.sandbox.world().now = (self.config.clock)();
    }

    /// Starts the budget of a call, with the time at which the call really starts: the calls before it may have taken long.
    fn begin_call(&mut self) {
        self.refresh();
        self.sandbox.host.budget.start(self.now().monotonic);
        let is_full = self.waiting.len() >= WAITING_MAX;
        self.sandbox.world().call_wait = if is_full { CallWait::TooMany } else { CallWait::Possible };
    }

    fn execute(&mut self, script: String, reply: ReplyTo<ScriptAnswer>) {
        let trimmed = script.trim();
        let function = match self.chunks.find(trimmed) {
            Some(function) => Ok(function),
            None => {
                self.begin_call();
                count(&self.log.counters.chunks_compiled);
                let compiled = self.limited(|engine| chunk::compile(&engine.sandbox.lua, trimmed));
                compiled.inspect(|function| self.chunks.insert(trimmed, function))
            }
        };
        let owner = CallOwner::Request { script_bytes: script.len(), reply, subscriptions: Vec::new() };
        match function {
            Ok(function) => self.run(function, None, owner),
            Err(error) => self.finish(owner, Err(error)),
        }
    }

    /// Runs a function in a coroutine, until it returns, fails or waits.
    fn run(&mut self, function: Function, argument: Option<&str>, owner: CallOwner) {
        self.begin_call();
        let thread = match self.idle.pop() {
            Some(thread) => Ok(thread),
            None => self.sandbox.lua.create_thread(self.sandbox.run.clone()),
        };
        match thread {
            Ok(thread) => self.resume(thread, (function, argument), owner),
            Err(error) => self.finish(owner, Err(error)),
        }
    }

    /// Continues a call, whose budget has been started.
    fn resume(&mut self, thread: Thread, arguments: impl IntoLuaMulti, mut owner: CallOwner) {
        let yielded = self.limited(|_| thread.resume::<MultiValue>(arguments));
        let changes = mem::take(&mut self.sandbox.world().subscriptions);
        if let CallOwner::Request { subscriptions, .. } = &mut owner {
            subscriptions.extend(changes);
            if subscriptions.len() > SUBSCRIPTION_CHANGES_MAX {
                let text = format!("a request changes at most {SUBSCRIPTION_CHANGES_MAX} subscriptions");
                return self.finish(owner, Err(Error::runtime(text)));
            }
        } else if !changes.is_empty() {
            self.sandbox.world().refuse("SYSTEM:clientRegister works only in a request of a client");
        }
        let (kind, value) = match yielded {
            Ok(values) => {
                let mut values = values.into_iter();
                (values.next().unwrap_or(Value::Nil), values.next().unwrap_or(Value::Nil))
            }
            Err(error) => return self.finish(owner, Err(error)),
        };
        let Value::Table(kind) = kind else {
            return self.finish(owner, Err(Error::runtime("attempt to yield outside a coroutine")));
        };
        let mut ticket = None;
        let pause = if kind == self.sandbox.done {
            if self.idle.len() < IDLE_RUNNERS_MAX {
                self.idle.push(thread);
            }
            return self.finish(owner, Ok(value));
        } else if kind == self.sandbox.looped {
            if matches!(owner, CallOwner::Main) {
                self.main_has_started();
            }
            LOOP_PERIOD
        } else if kind == self.sandbox.wait {
            let ms = self.sandbox.host.outside(&value).ok().and_then(|ms| ms.as_number());
            let ms = ms.filter(|ms| ms.is_finite()).unwrap_or(0.0).max(1.0);
            Duration::from_secs_f64((ms / 1000.0).min(WAIT_MAX.as_secs_f64()))
        } else if kind == self.sandbox.result {
            let number = self.sandbox.host.outside(&value).ok().and_then(|number| number.as_number());
            ticket = number.map(|number| Ticket(number as u64));
            RESULT_WAIT_MAX
        } else {
            return self.finish(owner, Err(Error::runtime("attempt to yield outside a coroutine")));
        };
        if self.waiting.len() >= WAITING_MAX && !matches!(owner, CallOwner::Main) {
            let text = format!("more than {WAITING_MAX} calls wait");
            return self.finish(owner, Err(Error::runtime(text)));
        }
        self.refresh();
        let due = self.now().monotonic + pause;
        self.waiting.push(WaitingCall { due, ticket, continuation: Continuation::Script(thread, owner) });
    }

    /// Runs `f` with the limit of memory for scripts. Between calls, the engine has some more.
    fn limited<R>(&mut self, f: impl FnOnce(&mut LuaEngine) -> R) -> R {
        let lua = self.sandbox.lua.clone();
        let limit = self.config.memory_bytes_max;
        // It fails only for a state with a foreign allocator.
        let _ = lua.set_memory_limit(limit);
        let result = f(self);
        let _ = lua.set_memory_limit(limit + MEMORY_RESERVE_BYTES);
        result
    }

    /// MAIN.LUA has reached `SYSTEM.Loop`, or has returned.
    fn main_has_started(&mut self) {
        if self.state() != CluState::Starting {
            return;
        }
        match self.sandbox.lua.globals().raw_get::<Value>("checkAlive") {
            Ok(Value::Function(_)) => self.sandbox.world().state = CluState::Running,
            _ => self.failure = Some("it does not define checkAlive".into()),
        }
    }

    /// Ends a call.
    fn finish(&mut self, owner: CallOwner, result: mlua::Result<Value>) {
        let result = result.and_then(|value| self.sandbox.host.outside(&value));
        if let Err(error) = &result {
            self.note_failed(&owner, error);
        }
        match (owner, result) {
            (CallOwner::Main, Ok(_)) => self.main_has_started(),
            (CallOwner::Main, Err(error)) => self.failure = Some(error.to_string()),
            (CallOwner::Event { .. }, _) => {}
            (CallOwner::Request { reply, subscriptions, .. }, Ok(value)) => {
                let text = value.to_text(self.config.number_format);
                reply.send(ScriptAnswer { text, is_error: false, subscriptions });
            }
            (CallOwner::Request { reply, .. }, Err(_)) => {
                reply.send(ScriptAnswer { text: "nil".into(), is_error: true, subscriptions: Vec::new() });
            }
        }
    }

    /// Counts and logs a call that failed.
    fn note_failed(&self, owner: &CallOwner, error: &Error) {
        let counters = &self.log.counters;
        count(&counters.scripts_failed);
        if self.sandbox.host.budget.is_exceeded() {
            count(&counters.budgets_exceeded);
        } else if is_memory_error(error) {
            count(&counters.memory_errors);
            // Its garbage is collected now, so that the next call starts with what is really in use.
            let _ = self.sandbox.lua.gc_collect();
        }
        let text = match owner {
            CallOwner::Main => return,
            CallOwner::Event { object, address } => format!("event {address} of {object}: {error}"),
            // The text of a request, and an error that repeats a part of it, may contain passwords.
            CallOwner::Request { script_bytes, .. } => {
                format!("a request of {script_bytes} bytes failed: {}", without_script(error))
            }
        };
        self.log.write(self.now().wall, LogSeverity::Error, text);
    }

    fn note_refused(&self, object: &str, error: Option<&ObjectError>) {
        if let Some(error) = error {
            self.sandbox.host.world.borrow().refuse(format!("{object}: {error}"));
        }
    }

    /// Calls the handlers of the events that are queued now, until [`TURN_TIME_MAX`] is over. Further ones, and the events that
    /// they cause, wait for the next turn, so that events delay neither requests nor the end of the CLU.
    fn run_events(&mut self) {
        let mut n_events = self.sandbox.host.world.borrow().events.len();
        if n_events == 0 {
            return;
        }
        self.has_changed = true;
        let end = (self.config.clock)().monotonic + TURN_TIME_MAX;
        while n_events > 0 {
            let Some(event) = self.sandbox.world().events.pop_front() else { return };
            let handler = self.sandbox.host.world.borrow().handler_of(event);
            let Some((object, handler)) = handler else {
                n_events -= 1;
                continue;
            };
            let next = PendingEvent { handler: event.handler + 1, ..event };
            self.sandbox.world().events.push_front(next);
            self.run(handler, None, CallOwner::Event { object, address: event.address });
            if (self.config.clock)().monotonic >= end {
                return;
            }
        }
    }

    fn list(&self) -> Vec<ObjectListing> {
        let world = self.sandbox.host.world.borrow();
        let listing = |(name, class): (&str, Option<&'static ObjectClass>)| ObjectListing {
            name: name.to_string(),
            label: world.labels.get(name).cloned(),
            class,
        };
        world.objects().map(listing).collect()
    }
}

impl Drop for LuaEngine {
    fn drop(&mut self) {
        self.waiting.clear();
        self.stop();
        self.outside.network.close();
    }
}

impl Sandbox {
    fn world(&self) -> std::cell::RefMut<'_, World> {
        self.host.world.borrow_mut()
    }
}

fn new_sandbox(config: &VcluConfig, clock: LocalClock, outside: &Outside) -> mlua::Result<Sandbox> {
    let world = World::new((config.clock)(), clock, outside.clone());
    let world = Rc::new(RefCell::new(world));
    let budget = Rc::new(Budget::new(Arc::clone(&config.clock), config.instructions_max, config.call_time_max));
    Sandbox::new(world, budget, config.folder.clone(), config.number_format)
}

/// Whether a call failed because the memory is full; the error may be inside others.
fn is_memory_error(error: &Error) -> bool {
    match error {
        Error::MemoryError(_) => true,
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => is_memory_error(cause),
        _ => false,
    }
}

/// An error without texts of scripts: the reason if it is one of this crate, otherwise the kind and the place.
fn without_script(error: &Error) -> String {
    match error {
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => without_script(cause),
        Error::SyntaxError { .. } => "it is not Lua".into(),
        Error::MemoryError(_) => "not enough memory".into(),
        // Lua adds the calls that led to its own errors and to those of scripts.
        Error::RuntimeError(text) if text.contains("stack traceback:") => match place_of(text) {
            Some((script, line)) => format!("an error of Lua in line {line} of {script}"),
            None => "an error of Lua".into(),
        },
        error => error.to_string(),
    }
}

/// The script and the line with which the text of an error starts.
fn place_of(text: &str) -> Option<(&str, u32)> {
    let (script, rest) = text.split_once(':')?;
    let is_script = matches!(script, "request" | "prelude") || script.to_ascii_uppercase().ends_with(".LUA");
    let line = rest.split_once(':')?.0.parse().ok()?;
    is_script.then_some((script, line))
}

/// The names that a person gave the objects: comments `-- NAME_CLU name=ID` and `-- NAME_PERIPHERY name=ID` of OM.LUA.
fn labels_of(text: &str) -> HashMap<String, String> {
    let label = |line: &str| {
        let comment = line.trim().strip_prefix("--")?.trim_start();
        let names = comment.strip_prefix("NAME_CLU ").or_else(|| comment.strip_prefix("NAME_PERIPHERY "))?;
        let (label, name) = names.rsplit_once('=')?;
        // The name of an object of another CLU has the name of that CLU before it.
        let name = name.trim().rsplit("->").next()?;
        Some((name.to_string(), label.trim().to_string()))
    };
    text.lines().filter_map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_from_the_comments_of_object_manager() {
        let text = "-- NAME_CLU Cellar=CLU0001\r\n-- NAME_PERIPHERY Pump timer=TIM0002\n-- other\nx = 1\n";

        let labels = labels_of(text);

        assert_eq!(labels.len(), 2);
        assert_eq!(labels["CLU0001"], "Cellar");
        assert_eq!(labels["TIM0002"], "Pump timer");
    }
}
