//! The PVs of a server by their names, as its threads see them.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fodo_lock::RwLock;
use fodo_net::{
    Call, Completion, EventMask, Meta, Peer, Posts, PutOptions, PutRefusal, Pv, PvFacts, Reading, Rights, ServedPv,
    Source, Structure, StructurePosts, StructureType, StructuredPv, Value,
};

use super::pv::{HeldValue, OwnedPv};
use super::queue::{ReceivedPut, ReceivedValue, ServerTasks};

/// A PV under one name of a server.
pub struct PvEntry {
    pub name: String,
    /// By which the Java object of the PV is found.
    pub token: i64,
    pub pv: Arc<OwnedPv>,
    queue: Arc<ServerTasks>,
    is_removed: AtomicBool,
}

impl PvEntry {
    fn put(
        self: &Arc<Self>,
        value: ReceivedValue,
        by: &Peer,
        completion: Option<Completion>,
    ) -> Result<(), PutRefusal> {
        if !self.pv.accepts_puts {
            return Err(PutRefusal::ReadOnly);
        }
        self.queue.put(ReceivedPut { entry: self.clone(), value, by: by.clone(), completion })
    }
}

/// A scalar, an array or an enum under a name.
struct FlatEntry(Arc<PvEntry>);

/// A structure or a procedure under a name.
struct StructuredEntry(Arc<PvEntry>);

/// The PVs of a server.
pub struct ServedPvs {
    entries: RwLock<HashMap<String, Arc<PvEntry>>>,
    queue: Arc<ServerTasks>,
}

impl ServedPvs {
    pub fn new(queue: Arc<ServerTasks>) -> ServedPvs {
        ServedPvs { entries: RwLock::default(), queue }
    }

    pub fn queue(&self) -> &Arc<ServerTasks> {
        &self.queue
    }

    /// Returns false if the name exists.
    pub fn insert(&self, name: String, token: i64, pv: Arc<OwnedPv>) -> bool {
        let mut entries = self.entries.write();
        if entries.contains_key(&name) {
            return false;
        }
        let (queue, is_removed) = (self.queue.clone(), AtomicBool::new(false));
        entries.insert(name.clone(), Arc::new(PvEntry { name, token, pv, queue, is_removed }));
        true
    }

    /// Returns false if the name does not exist.
    pub fn remove(&self, name: &str) -> bool {
        let removed = self.entries.write().remove(name);
        let Some(entry) = removed else { return false };
        entry.is_removed.store(true, Ordering::Release);
        true
    }

    fn find(&self, name: &str) -> Option<Arc<PvEntry>> {
        self.entries.read().get(name).cloned()
    }
}

impl Source for ServedPvs {
    fn serves(&self, name: &str) -> bool {
        self.entries.read().contains_key(name)
    }

    fn serves_flat(&self, name: &str) -> bool {
        self.find(name).is_some_and(|entry| matches!(entry.pv.value, HeldValue::Flat(_)))
    }

    fn open(&self, name: &str) -> Option<ServedPv> {
        let entry = self.find(name)?;
        Some(match &entry.pv.value {
            HeldValue::Flat(_) => ServedPv::Flat(Arc::new(FlatEntry(entry))),
            HeldValue::Structured(..) => ServedPv::Structured(Arc::new(StructuredEntry(entry))),
        })
    }

    fn names(&self) -> Vec<String> {
        self.entries.read().keys().cloned().collect()
    }
}

impl Deref for FlatEntry {
    type Target = dyn Pv;

    fn deref(&self) -> &Self::Target {
        match &self.0.pv.value {
            HeldValue::Flat(flat) => &*flat.pv,
            HeldValue::Structured(..) => unreachable!("created for a flat value"),
        }
    }
}

impl Deref for StructuredEntry {
    type Target = dyn StructuredPv;

    fn deref(&self) -> &Self::Target {
        match &self.0.pv.value {
            HeldValue::Structured(_, pv) => &**pv,
            HeldValue::Flat(_) => unreachable!("created for a structure"),
        }
    }
}

impl Pv for FlatEntry {
    fn facts(&self) -> PvFacts {
        PvFacts { is_read_only: !self.0.pv.accepts_puts, ..(**self).facts() }
    }

    fn read(&self) -> Reading {
        (**self).read()
    }

    fn with_reading(&self, subscribe: &mut dyn FnMut(Reading)) {
        (**self).with_reading(subscribe);
    }

    fn put(&self, value: Value, by: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
        let HeldValue::Flat(flat) = &self.0.pv.value else { unreachable!("created for a flat value") };
        let value = flat.converted(value).map_err(PutRefusal::Rejected)?;
        self.0.put(ReceivedValue::Flat(value), by, completion)
    }

    fn posts(&self) -> &Posts {
        (**self).posts()
    }

    fn meta(&self) -> Arc<Meta> {
        (**self).meta()
    }

    fn is_closed(&self) -> bool {
        self.0.is_removed.load(Ordering::Acquire)
    }

    fn cancel_put(&self, put: u64) {
        self.0.queue.cancel(put);
    }

    fn always_ends_puts(&self) -> bool {
        true
    }

    fn first_update(&self, reading: Reading, mask: EventMask) -> Option<Reading> {
        (**self).first_update(reading, mask)
    }
}

impl StructuredPv for StructuredEntry {
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
        _options: PutOptions,
        by: &Peer,
        completion: Option<Completion>,
    ) -> Result<(), PutRefusal> {
        self.0.put(ReceivedValue::Structure(value), by, completion)
    }

    fn call(&self, call: Call) {
        if self.0.pv.accepts_calls {
            self.0.queue.call(&self.0, call);
        } else {
            call.refuse("the PV is not a procedure");
        }
    }

    fn rights(&self, _by: &Peer) -> Rights {
        Rights { read: true, write: true }
    }

    fn is_closed(&self) -> bool {
        self.0.is_removed.load(Ordering::Acquire)
    }

    fn cancel_put(&self, put: u64) {
        self.0.queue.cancel(put);
    }
}
