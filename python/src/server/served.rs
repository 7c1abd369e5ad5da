//! The PVs of a server by their names, as its threads see them.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use fodo_lock::{Mutex, RwLock};
use fodo_net::{
    Call, Completion, EventMask, Kind, Meta, Peer, Posts, PutOptions, PutRefusal, Pv, PvFacts, Reading, Rights, Role,
    ServedPv, Source, Structure, StructurePosts, StructureType, StructuredPv, Value,
};
use pyo3::prelude::*;

use super::handler_queue::HandlerQueue;
use super::operation::ReceivedPut;
use super::pv::{HeldValue, OpenPv, PvSlot};

/// A PV under one name of a server.
pub struct PvEntry {
    pub name: String,
    pub owner: Py<PyAny>,
    slot: PvSlot,
    is_removed: AtomicBool,
    users: Mutex<Users>,
    /// Whether a change of `is_connected` waits in the queue.
    is_listed: AtomicBool,
}

/// Who uses a PV under its name.
#[derive(Default)]
struct Users {
    /// What all channels share; ends with the last of them.
    channels: ChannelsRef,
    /// Differs from whether `channels` is alive only while the last channel closes as another one opens.
    n_alive: usize,
}

#[derive(Default)]
enum ChannelsRef {
    #[default]
    None,
    Flat(Weak<FlatChannels>),
    Structured(Weak<StructuredChannels>),
}

impl PvEntry {
    /// Whether the change must be added to the queue.
    pub fn list_connection(&self) -> bool {
        !self.is_listed.swap(true, Ordering::AcqRel)
    }

    /// Whether the PV has clients; the next change is listed again.
    pub fn take_connection(&self) -> bool {
        self.is_listed.store(false, Ordering::Release);
        self.users.lock().n_alive > 0
    }
}

/// What all channels to one open PV have.
struct Channels {
    entry: Arc<PvEntry>,
    pv: Arc<OpenPv>,
    queue: Arc<HandlerQueue>,
}

impl Channels {
    /// Whether the PV was closed or removed from the server.
    fn is_closed(&self) -> bool {
        let is_current = |pv: &Arc<OpenPv>| Arc::ptr_eq(pv, &self.pv);
        self.entry.is_removed.load(Ordering::Acquire) || !self.entry.slot.lock().as_ref().is_some_and(is_current)
    }

    fn put(&self, put: ReceivedPut) -> Result<(), PutRefusal> {
        if !self.pv.accepts_puts {
            return Err(PutRefusal::ReadOnly);
        }
        self.queue.put(&self.entry, put)
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        let is_last = {
            let mut users = self.entry.users.lock();
            users.n_alive -= 1;
            users.n_alive == 0
        };
        if is_last {
            self.queue.connection_changed(&self.entry);
        }
    }
}

/// The channels to a scalar, an array or an enum.
struct FlatChannels(Channels);

/// The channels to a structure.
struct StructuredChannels(Channels);

/// The PVs of a server.
pub struct ServedPvs {
    entries: RwLock<HashMap<String, Arc<PvEntry>>>,
    queue: Arc<HandlerQueue>,
    /// Whether searches for other names are passed to the handlers.
    is_dynamic: bool,
}

impl ServedPvs {
    pub fn new(queue: Arc<HandlerQueue>, is_dynamic: bool) -> ServedPvs {
        ServedPvs { entries: RwLock::default(), queue, is_dynamic }
    }

    pub fn queue(&self) -> &Arc<HandlerQueue> {
        &self.queue
    }

    /// Returns false if the name exists.
    pub fn insert(&self, name: String, slot: PvSlot, owner: Py<PyAny>) -> bool {
        let [is_removed, is_listed] = Default::default();
        let users = Mutex::default();
        let entry = Arc::new(PvEntry { name: name.clone(), owner, slot, is_removed, users, is_listed });
        let mut entries = self.entries.write();
        if entries.contains_key(&name) {
            return false;
        }
        entries.insert(name, entry);
        true
    }

    pub fn remove(&self, name: &str) -> bool {
        let removed = self.entries.write().remove(name);
        let Some(entry) = removed else { return false };
        entry.is_removed.store(true, Ordering::Release);
        true
    }

    pub fn all_names(&self) -> Vec<String> {
        self.entries.read().keys().cloned().collect()
    }

    /// The entry with this name and its PV, if it is open.
    fn find(&self, name: &str) -> Option<(Arc<PvEntry>, Arc<OpenPv>)> {
        let entry = self.entries.read().get(name).cloned()?;
        let pv = entry.slot.lock().clone()?;
        Some((entry, pv))
    }

    fn channels(&self, entry: &Arc<PvEntry>, pv: &Arc<OpenPv>) -> ServedPv {
        let is_current = |channels: &Channels| Arc::ptr_eq(&channels.pv, pv);
        // Kept until the lock is released: if it is the last reference, dropping it takes the lock.
        let (_flat, _structured);
        let (served, is_first) = {
            let mut users = entry.users.lock();
            match &users.channels {
                ChannelsRef::Flat(channels) => {
                    _flat = channels.upgrade();
                    if let Some(channels) = _flat.as_ref().filter(|channels| is_current(&channels.0)) {
                        return ServedPv::Flat(channels.clone());
                    }
                }
                ChannelsRef::Structured(channels) => {
                    _structured = channels.upgrade();
                    if let Some(channels) = _structured.as_ref().filter(|channels| is_current(&channels.0)) {
                        return ServedPv::Structured(channels.clone());
                    }
                }
                ChannelsRef::None => {}
            }
            let channels = Channels { entry: entry.clone(), pv: pv.clone(), queue: self.queue.clone() };
            users.n_alive += 1;
            let is_first = users.n_alive == 1;
            match &pv.value {
                HeldValue::Flat(_) => {
                    let channels = Arc::new(FlatChannels(channels));
                    users.channels = ChannelsRef::Flat(Arc::downgrade(&channels));
                    (ServedPv::Flat(channels), is_first)
                }
                HeldValue::Structured(..) => {
                    let channels = Arc::new(StructuredChannels(channels));
                    users.channels = ChannelsRef::Structured(Arc::downgrade(&channels));
                    (ServedPv::Structured(channels), is_first)
                }
            }
        };
        if is_first {
            self.queue.connection_changed(entry);
        }
        served
    }
}

impl Source for ServedPvs {
    fn serves(&self, name: &str) -> bool {
        let is_served = self.find(name).is_some();
        if self.is_dynamic && !is_served && !self.entries.read().contains_key(name) {
            self.queue.search(name);
        }
        is_served
    }

    fn serves_flat(&self, name: &str) -> bool {
        self.find(name).is_some_and(|(_, pv)| matches!(pv.value, HeldValue::Flat(_)))
    }

    fn open(&self, name: &str) -> Option<ServedPv> {
        let (entry, pv) = self.find(name)?;
        Some(self.channels(&entry, &pv))
    }

    fn names(&self) -> Vec<String> {
        self.all_names().into_iter().filter(|name| self.serves(name)).collect()
    }
}

impl FlatChannels {
    fn flat(&self) -> &super::pv::FlatValue {
        match &self.0.pv.value {
            HeldValue::Flat(flat) => flat,
            HeldValue::Structured(..) => unreachable!("created for a flat value"),
        }
    }
}

impl Deref for StructuredChannels {
    type Target = dyn StructuredPv;

    fn deref(&self) -> &Self::Target {
        match &self.0.pv.value {
            HeldValue::Structured(_, pv) => &**pv,
            HeldValue::Flat(_) => unreachable!("created for a structure"),
        }
    }
}

impl Pv for FlatChannels {
    fn facts(&self) -> PvFacts {
        PvFacts { is_read_only: !self.0.pv.accepts_puts, ..self.flat().pv.facts() }
    }

    fn read(&self) -> Reading {
        self.flat().pv.read()
    }

    fn with_reading(&self, subscribe: &mut dyn FnMut(Reading)) {
        self.flat().pv.with_reading(subscribe);
    }

    fn put(&self, value: Value, by: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
        self.put_with(value, PutOptions::default(), by, completion)
    }

    fn put_with(
        &self,
        value: Value,
        options: PutOptions,
        by: &Peer,
        completion: Option<Completion>,
    ) -> Result<(), PutRefusal> {
        let flat = self.flat();
        let rejected = |reason: String| PutRefusal::Rejected(reason);
        let (kind, bit) = (flat.layout.kind(), flat.layout.value_bit());
        if value.len() > flat.pv.facts().count_max as usize {
            let reason = format!("{} elements, but the PV has at most {}", value.len(), flat.pv.facts().count_max);
            return Err(rejected(reason));
        }
        let value = match flat.layout.role(bit) {
            // A label becomes its index.
            Role::Index => {
                value.to_kind(Kind::Enum, Some(&flat.meta())).map_err(|error| rejected(error.to_string()))?
            }
            _ => value,
        };
        let mut change = Structure::new(kind.clone());
        change.set_value(bit, value).map_err(|error| rejected(error.to_string()))?;
        self.0.put(ReceivedPut { value: change, request: options.request, by: by.clone(), completion })
    }

    fn posts(&self) -> &Posts {
        self.flat().pv.posts()
    }

    fn meta(&self) -> Arc<Meta> {
        self.flat().meta()
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn cancel_put(&self, put: u64) {
        self.0.queue.cancel(put);
    }

    fn always_ends_puts(&self) -> bool {
        true
    }

    fn first_update(&self, reading: Reading, mask: EventMask) -> Option<Reading> {
        self.flat().pv.first_update(reading, mask)
    }
}

impl StructuredPv for StructuredChannels {
    fn kind(&self) -> Arc<StructureType> {
        (**self).kind()
    }

    fn read(&self) -> Arc<Structure> {
        (**self).read()
    }

    fn with_value(&self, subscribe: &mut dyn FnMut(Arc<Structure>)) {
        (**self).with_value(subscribe);
    }

    fn posts(&self) -> &StructurePosts {
        (**self).posts()
    }

    fn is_read_only(&self) -> bool {
        !self.0.pv.accepts_puts
    }

    fn put_with(
        &self,
        value: Structure,
        options: PutOptions,
        by: &Peer,
        completion: Option<Completion>,
    ) -> Result<(), PutRefusal> {
        self.0.put(ReceivedPut { value, request: options.request, by: by.clone(), completion })
    }

    fn call(&self, call: Call) {
        if self.0.pv.accepts_calls {
            self.0.queue.call(&self.0.entry, call);
        } else {
            call.refuse("the PV is not a procedure");
        }
    }

    fn rights(&self, _by: &Peer) -> Rights {
        Rights { read: true, write: true }
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn cancel_put(&self, put: u64) {
        self.0.queue.cancel(put);
    }
}
