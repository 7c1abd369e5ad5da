//! All objects of a CLU, and what they share: clocks, events, the log.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use fodo_data::Now;
use mlua::Function;

use super::pv::PvClient;
use super::wake::WokenObjects;
use super::{CLASSES, CluObject, FeatureAccess, ObjectClass, ObjectError};
use crate::clock::LocalClock;
use crate::engine::request::VcluConfig;
use crate::engine::subscription::SubscriptionChange;
use crate::limit::{EVENTS_MAX, HANDLERS_MAX, NAME_BYTES_MAX, OBJECTS_MAX, WAITING_MAX};
use crate::log::{CluLog, LogSeverity, count};
use crate::network::CluNetwork;
use crate::remote::PeerClus;
use crate::value::LuaValue;

/// The state that a CLU reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CluState {
    /// MAIN.LUA has not called `SYSTEM.Loop` yet.
    Starting,
    /// The scripts run.
    Running,
    /// MAIN.LUA failed; EMERGNCY.LUA runs.
    Emergency,
}

impl CluState {
    /// The value of the feature `State`.
    pub(crate) fn number(self) -> f64 {
        match self {
            CluState::Starting => 0.0,
            CluState::Running => 1.0,
            CluState::Emergency => 4.0,
        }
    }
}

/// The objects, and what they share. The scripts reach it through the functions of the sandbox.
pub(crate) struct World {
    slots: Vec<ObjectSlot>,
    index_by_name: HashMap<String, usize>,
    /// The time of the current call.
    pub now: Now,
    pub started: Instant,
    pub clock: LocalClock,
    pub state: CluState,
    pub log: Arc<CluLog>,
    /// Where Storage objects keep their files.
    pub storage: Option<PathBuf>,
    pub events: VecDeque<PendingEvent>,
    /// How often each event was fired, with or without handlers, by object and address.
    fired: BTreeMap<(usize, u16), u64>,
    /// What the current call has changed in the subscriptions.
    pub subscriptions: Vec<SubscriptionChange>,
    /// The client of Pv objects.
    pub pv_client: PvClient,
    /// The CLUs of RemoteCLU objects.
    pub peers: PeerClus,
    /// The address in the constructor of the RemoteCLU that is being created.
    pub peer_address: Option<Ipv4Addr>,
    /// The connections of MQTT and HTTP.
    pub network: Arc<CluNetwork>,
    /// The names for people, by the names of the objects.
    pub labels: HashMap<String, String>,
    /// The objects that other threads have woken.
    pub woken: Arc<WokenObjects>,
    /// Whether the current call of an object can wait.
    pub call_wait: CallWait,
    /// For which result the current call waits.
    pub awaited: Option<Ticket>,
    /// The results of calls that wait.
    pub results: BTreeMap<Ticket, LuaValue>,
    n_tickets: u64,
}

/// What the objects have in common with the engine; a reset keeps it.
#[derive(Clone)]
pub(crate) struct Outside {
    pub log: Arc<CluLog>,
    /// Where Storage objects keep their files.
    pub storage: Option<PathBuf>,
    /// The client of Pv objects.
    pub pv_client: PvClient,
    /// The CLUs of RemoteCLU objects.
    pub peers: PeerClus,
    /// The connections of MQTT and HTTP.
    pub network: Arc<CluNetwork>,
    /// Wakes the thread that drives the engine.
    pub turn_waker: Waker,
}

impl Outside {
    pub fn new(config: &VcluConfig, log: Arc<CluLog>, turn_waker: Waker) -> Outside {
        let network = Arc::new(CluNetwork::new(config, &log));
        let pv_client = PvClient::new(config.pv_client.clone());
        Outside { log, storage: config.storage.clone(), pv_client, peers: config.peers.clone(), network, turn_waker }
    }
}

/// A result for which a call of an object waits; no two have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub u64);

/// Whether a call of an object can wait for a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallWait {
    /// It can.
    Possible,
    /// A script calls it within a coroutine of its own.
    InCoroutine,
    /// As many calls as [`WAITING_MAX`] wait.
    TooMany,
}

/// An object and the handlers of its events.
struct ObjectSlot {
    name: String,
    /// `None` for an object that this CLU does not have.
    class: Option<&'static ObjectClass>,
    /// `None` also while the object handles a call.
    object: Option<Box<dyn CluObject>>,
    handlers: BTreeMap<u16, Vec<Function>>,
}

/// An event whose handlers must be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingEvent {
    pub object: usize,
    pub address: u16,
    /// The index of the next handler.
    pub handler: usize,
}

/// What an object may use during a call.
pub(crate) struct ObjectContext<'a> {
    pub world: &'a mut World,
    /// Global variables of the scripts.
    pub variables: &'a dyn ScriptVariables,
    object: usize,
}

/// The global variables of the scripts, without calling any script.
pub(crate) trait ScriptVariables {
    /// Fails for a value that is too large.
    fn get(&self, name: &str) -> Result<LuaValue, String>;
    /// Fails if the memory of the scripts is full.
    fn set(&self, name: &str, value: &LuaValue) -> Result<(), String>;
}

pub(crate) type SharedWorld = Rc<RefCell<World>>;

impl World {
    pub fn new(now: Now, clock: LocalClock, outside: Outside) -> World {
        World {
            slots: Vec::new(),
            index_by_name: HashMap::new(),
            now,
            started: now.monotonic,
            clock,
            state: CluState::Starting,
            log: outside.log,
            storage: outside.storage,
            pv_client: outside.pv_client,
            peers: outside.peers,
            peer_address: None,
            network: outside.network,
            labels: HashMap::new(),
            events: VecDeque::new(),
            fired: BTreeMap::new(),
            subscriptions: Vec::new(),
            woken: WokenObjects::new(outside.turn_waker),
            call_wait: CallWait::InCoroutine,
            awaited: None,
            results: BTreeMap::new(),
            n_tickets: 0,
        }
    }

    pub fn log(&self, level: LogSeverity, text: impl Into<String>) {
        self.log.write(self.now.wall, level, text);
    }

    /// The name of an object for people.
    pub fn label(&self, name: &str) -> String {
        self.labels.get(name).cloned().unwrap_or_else(|| name.to_string())
    }

    /// Reports a refused call.
    pub fn refuse(&self, text: impl Into<String>) {
        count(&self.log.counters.calls_refused);
        self.log(LogSeverity::Warning, text);
    }

    /// Creates an object. An object that this CLU does not have is entered as not available, so that the rest of the
    /// project runs. A repeated name replaces the object.
    pub fn create(
        &mut self,
        class: Option<&'static ObjectClass>,
        name: &str,
        variables: &dyn ScriptVariables,
    ) -> Result<(), ObjectError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(ObjectError::Failed {
                reason: format!("the name of an object has at most {NAME_BYTES_MAX} bytes"),
            });
        }
        let index = match self.index_by_name.get(name) {
            Some(index) => *index,
            None if self.slots.len() == OBJECTS_MAX => {
                return Err(ObjectError::Failed { reason: format!("a CLU has at most {OBJECTS_MAX} objects") });
            }
            None => self.slots.len(),
        };
        if index == self.slots.len() {
            self.slots.push(ObjectSlot { name: name.to_string(), class, object: None, handlers: BTreeMap::new() });
            self.index_by_name.insert(name.to_string(), index);
        }
        let object = class.map(|class| (class.create)(&mut ObjectContext { world: self, variables, object: index }));
        let Some(slot) = self.slots.get_mut(index) else { return Err(ObjectError::UnknownObject) };
        *slot = ObjectSlot { name: name.to_string(), class, object, handlers: BTreeMap::new() };
        Ok(())
    }

    /// Calls `f` with an object, its class and what it may use.
    fn with_object<R>(
        &mut self,
        name: &str,
        variables: &dyn ScriptVariables,
        f: impl FnOnce(&mut dyn CluObject, &'static ObjectClass, &mut ObjectContext<'_>) -> Result<R, ObjectError>,
    ) -> Result<R, ObjectError> {
        let index = *self.index_by_name.get(name).ok_or(ObjectError::UnknownObject)?;
        let slot = self.slots.get_mut(index).ok_or(ObjectError::UnknownObject)?;
        let class = slot.class.ok_or(ObjectError::Unavailable)?;
        // An object that is reached again during its own call.
        let mut object = slot.object.take().ok_or(ObjectError::Unavailable)?;
        let result = f(object.as_mut(), class, &mut ObjectContext { world: self, variables, object: index });
        if let Some(slot) = self.slots.get_mut(index) {
            slot.object = Some(object);
        }
        result
    }

    pub fn get(&mut self, name: &str, index: u16, variables: &dyn ScriptVariables) -> Result<LuaValue, ObjectError> {
        self.with_object(name, variables, |object, class, context| {
            let feature = class.features.iter().find(|feature| feature.index == index);
            let feature = feature.ok_or(ObjectError::UnknownFeature { index })?;
            if feature.access == FeatureAccess::Set {
                return Err(ObjectError::WriteOnly { feature: feature.name });
            }
            Ok(object.get(index, context))
        })
    }

    /// How often an event was fired since the scripts started; `None` if the object does not have it.
    pub fn n_fired(&self, name: &str, address: u16) -> Option<u64> {
        let object = *self.index_by_name.get(name)?;
        let class = self.slots.get(object)?.class?;
        let has_event = class.events.iter().any(|event| event.address == address);
        has_event.then(|| self.fired.get(&(object, address)).copied().unwrap_or_default())
    }

    pub fn set(
        &mut self,
        name: &str,
        index: u16,
        value: LuaValue,
        variables: &dyn ScriptVariables,
    ) -> Result<(), ObjectError> {
        self.with_object(name, variables, |object, class, context| {
            let feature = class.features.iter().find(|feature| feature.index == index);
            let value = feature.ok_or(ObjectError::UnknownFeature { index })?.accept(value)?;
            object.set(index, value, context)
        })
    }

    pub fn call(
        &mut self,
        name: &str,
        index: u16,
        arguments: Vec<LuaValue>,
        variables: &dyn ScriptVariables,
    ) -> Result<LuaValue, ObjectError> {
        self.with_object(name, variables, |object, class, context| {
            let method = class.methods.iter().find(|method| method.index == index);
            let arguments = method.ok_or(ObjectError::UnknownMethod { index })?.accept(arguments)?;
            object.call(index, &arguments, context)
        })
    }

    /// Adds a handler of an event.
    pub fn add_event(&mut self, name: &str, address: u16, handler: Function) -> Result<(), ObjectError> {
        let index = *self.index_by_name.get(name).ok_or(ObjectError::UnknownObject)?;
        let slot = self.slots.get_mut(index).ok_or(ObjectError::UnknownObject)?;
        let class = slot.class.ok_or(ObjectError::Unavailable)?;
        if !class.events.iter().any(|event| event.address == address) {
            return Err(ObjectError::Failed { reason: format!("there is no event {address}") });
        }
        let handlers = slot.handlers.entry(address).or_default();
        if handlers.len() == HANDLERS_MAX {
            return Err(ObjectError::Failed { reason: format!("an event has at most {HANDLERS_MAX} handlers") });
        }
        handlers.push(handler);
        Ok(())
    }

    pub fn has_object(&self, name: &str) -> bool {
        self.index_by_name.contains_key(name)
    }

    /// The next handler of an event, and the name of the object.
    pub fn handler_of(&self, event: PendingEvent) -> Option<(String, Function)> {
        let slot = self.slots.get(event.object)?;
        let handler = slot.handlers.get(&event.address)?.get(event.handler)?;
        Some((slot.name.clone(), handler.clone()))
    }

    /// Every object with its class, in the order of creation.
    pub fn objects(&self) -> impl Iterator<Item = (&str, Option<&'static ObjectClass>)> {
        self.slots.iter().map(|slot| (slot.name.as_str(), slot.class))
    }

    /// `SYSTEM.Init`: initializes each object in the order of creation.
    pub fn init(&mut self, variables: &dyn ScriptVariables) {
        self.for_each(variables, |object, context| object.init(context));
    }

    /// The CLU stops or is reset.
    pub fn stop(&mut self, variables: &dyn ScriptVariables) {
        self.for_each(variables, |object, context| object.stop(context));
    }

    fn for_each(
        &mut self,
        variables: &dyn ScriptVariables,
        mut f: impl FnMut(&mut dyn CluObject, &mut ObjectContext<'_>),
    ) {
        for index in 0..self.slots.len() {
            self.with_slot(index, variables, &mut f);
        }
    }

    /// The earliest deadline of all objects.
    pub fn deadline(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| slot.object.as_ref()?.deadline()).min()
    }

    /// Calls the objects whose deadline has passed, the earliest first.
    pub fn tick(&mut self, variables: &dyn ScriptVariables) {
        let now = self.now.monotonic;
        let deadlines = self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let deadline = slot.object.as_ref()?.deadline()?;
            (deadline <= now).then_some((deadline, index))
        });
        let mut due: Vec<(Instant, usize)> = deadlines.collect();
        due.sort_unstable();
        for (_, index) in due {
            self.with_slot(index, variables, |object, context| object.tick(context));
        }
    }

    /// Polls the objects that other threads have woken.
    ///
    /// Returns whether there was one.
    pub fn poll_woken(&mut self, variables: &dyn ScriptVariables) -> bool {
        let woken = self.woken.take();
        let is_any = !woken.is_empty();
        for index in woken {
            self.with_slot(index, variables, |object, context| object.woken(context));
        }
        is_any
    }

    fn with_slot(
        &mut self,
        index: usize,
        variables: &dyn ScriptVariables,
        f: impl FnOnce(&mut dyn CluObject, &mut ObjectContext<'_>),
    ) {
        let Some(mut object) = self.slots.get_mut(index).and_then(|slot| slot.object.take()) else { return };
        f(object.as_mut(), &mut ObjectContext { world: self, variables, object: index });
        if let Some(slot) = self.slots.get_mut(index) {
            slot.object = Some(object);
        }
    }
}

impl ObjectContext<'_> {
    pub fn now(&self) -> Now {
        self.world.now
    }

    /// The name of the object itself.
    pub fn name(&self) -> String {
        self.world.slots.get(self.object).map(|slot| slot.name.clone()).unwrap_or_default()
    }

    /// Queues an event of the object. An event without handlers costs nothing.
    pub fn fire(&mut self, address: u16) {
        *self.world.fired.entry((self.object, address)).or_default() += 1;
        let has_handler = self.world.slots.get(self.object).is_some_and(|slot| slot.handlers.contains_key(&address));
        if !has_handler {
            return;
        }
        if self.world.events.len() == EVENTS_MAX {
            count(&self.world.log.counters.events_dropped);
            return;
        }
        count(&self.world.log.counters.events);
        self.world.events.push_back(PendingEvent { object: self.object, address, handler: 0 });
    }

    /// Whether handlers of an event of the object still have to be called.
    pub fn is_pending(&self, address: u16) -> bool {
        self.world.events.iter().any(|event| event.object == self.object && event.address == address)
    }

    /// Wakes the object from any thread: its [`CluObject::woken`] is called soon.
    pub fn waker(&self) -> Waker {
        self.world.woken.waker(self.object)
    }

    /// Fails if the current call cannot wait for a result.
    pub fn check_wait(&self) -> Result<(), ObjectError> {
        let reason = match self.world.call_wait {
            CallWait::Possible => return Ok(()),
            CallWait::InCoroutine => "this method waits, which is impossible within a coroutine of a script".into(),
            CallWait::TooMany => format!("this method waits, and {WAITING_MAX} calls already wait"),
        };
        Err(ObjectError::Failed { reason })
    }

    /// The current call ends with the result that [`ObjectContext::end_call`] receives, not with that of the method. Others
    /// run meanwhile. Check before whether it can wait.
    pub fn wait(&mut self) -> Ticket {
        self.world.n_tickets += 1;
        let ticket = Ticket(self.world.n_tickets);
        self.world.awaited = Some(ticket);
        ticket
    }

    /// Ends a call that waits.
    pub fn end_call(&mut self, ticket: Ticket, result: LuaValue) {
        self.world.results.insert(ticket, result);
    }

    /// Reads a feature of another object; `Nil` if it has none.
    pub fn read(&mut self, name: &str, index: u16) -> LuaValue {
        self.world.get(name, index, self.variables).unwrap_or_default()
    }

    /// Sets a feature of another object.
    pub fn write(&mut self, name: &str, index: u16, value: LuaValue) {
        if let Err(error) = self.world.set(name, index, value, self.variables) {
            let own = self.name();
            self.world.refuse(format!("{own}: feature {index} of {name} was not set: {error}"));
        }
    }

    pub fn log(&self, level: LogSeverity, text: &str) {
        self.world.log(level, format!("{}: {text}", self.name()));
    }
}

/// The class with a number.
pub(crate) fn class_of(number: u32) -> Option<&'static ObjectClass> {
    CLASSES.into_iter().find(|class| class.number == number)
}
