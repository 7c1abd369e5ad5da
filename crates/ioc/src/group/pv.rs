//! Serves a group as a PV.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use fodo_data::{BitSet, EventMask, Meta, Reading, Structure, StructureType, Value};
use fodo_db::{FieldRef, MemberMapping, Processing};
use fodo_lock::{Mutex, Rank};
use fodo_net::{
    AtomicOption, Completion, Peer, ProcessOption, PutOptions, PutRefusal, Rights, StructurePosts, StructuredPv,
};

use super::layout::GroupLayout;
use super::member::{MemberContent, MemberSource, ResolvedMember};
use crate::driver::{DatabaseDriver, FieldWrite};
use crate::limit;
use crate::pv::{processing_of, refusal, stored_value};

/// Everything that a read contains.
const EVERYTHING: EventMask = EventMask(15);

/// A group that clients of pvAccess read, write and monitor.
#[derive(Debug)]
pub struct GroupPv {
    driver: Arc<DatabaseDriver>,
    layout: GroupLayout,
    state: Mutex<LatestValue>,
    posts: StructurePosts,
    /// Whether the driver passes updates to this group.
    is_watched: AtomicBool,
    me: Weak<GroupPv>,
}

#[derive(Debug)]
struct LatestValue {
    /// The latest value. Gets and posts change it in place unless it is still being sent.
    value: Arc<Structure>,
    /// The metadata in `value` of each member; `None` until it is read.
    metas: Vec<Option<Arc<Meta>>>,
    /// What each member has to post at the end of the turn.
    pending: Vec<EventMask>,
    has_pending: bool,
}

impl GroupPv {
    pub fn new(driver: Arc<DatabaseDriver>, layout: GroupLayout) -> Arc<GroupPv> {
        let state = LatestValue {
            value: Arc::new(layout.initial.clone()),
            metas: vec![None; layout.members.len()],
            pending: vec![EventMask::NONE; layout.members.len()],
            has_pending: false,
        };
        Arc::new_cyclic(|me| GroupPv {
            driver,
            layout,
            state: Mutex::ranked(Rank::Group, state),
            posts: StructurePosts::new(limit::GROUP_POSTS),
            is_watched: AtomicBool::new(false),
            me: me.clone(),
        })
    }

    pub fn layout(&self) -> &GroupLayout {
        &self.layout
    }

    /// The fields whose changes may be posted, with the indexes of their members.
    pub fn watched_fields(&self) -> impl Iterator<Item = (FieldRef, usize)> {
        let is_watched = |member: &ResolvedMember| {
            !member.definition.triggers.is_empty() || member.definition.mapping == MemberMapping::Scalar
        };
        let members = self.layout.members.iter().enumerate().filter(move |(_, member)| is_watched(member));
        members.filter_map(|(index, member)| member.source.as_ref().map(|source| (source.field, index)))
    }

    /// Notes whether clients listen. Returns true if that is new.
    pub fn set_watched(&self, is_watched: bool) -> bool {
        self.is_watched.swap(is_watched, Ordering::Relaxed) != is_watched
    }

    /// Notes an update of the field of a member, to be posted by [`GroupPv::post_pending`]. Returns whether it is the
    /// first one since.
    ///
    /// Like QSRV2, a member that triggers itself posts what has changed, and the others that it triggers post their value
    /// and alarm. A change of metadata is posted without a trigger.
    pub fn trigger(&self, index: usize, mask: EventMask, reading: &Reading) -> bool {
        let Some(member) = self.layout.members.get(index) else { return false };
        let Some(mask) = self.passed(member, mask, reading) else { return false };
        let both = EventMask::VALUE | EventMask::ALARM;
        let subscribed = match member.definition.mapping {
            MemberMapping::Meta => EventMask::ALARM,
            _ => both | EventMask::LOG,
        };
        let mut state = self.state.lock();
        let LatestValue { pending, has_pending, .. } = &mut *state;
        let mut triggers_any = false;
        let mut add = |index: usize, mask: EventMask| {
            if let Some(pending) = pending.get_mut(index) {
                *pending |= mask;
                triggers_any = true;
            }
        };
        if mask.meets(subscribed) {
            for &triggered in &member.definition.triggers {
                add(triggered, if triggered == index { EventMask(mask.0 & both.0) } else { both });
            }
        }
        if mask.meets(EventMask::PROPERTY) {
            add(index, EventMask::PROPERTY);
        }
        triggers_any && !std::mem::replace(has_pending, true)
    }

    /// What the filters of the member's channel let pass.
    fn passed(&self, member: &ResolvedMember, mask: EventMask, reading: &Reading) -> Option<EventMask> {
        let Some(MemberSource { field, filters: Some(filters) }) = &member.source else { return Some(mask) };
        let context = self.driver.filter_context(*field);
        filters.lock().update(mask, reading.clone(), &context).map(|(mask, _)| mask)
    }

    /// Posts what members have triggered in this turn of the database, as one update. The caller holds the lock of the
    /// driver.
    pub fn post_pending(&self) {
        let mut state = self.state.lock();
        let LatestValue { value, metas, pending, has_pending } = &mut *state;
        *has_pending = false;
        let own = Arc::make_mut(value);
        let mut marks = BitSet::new();
        for ((member, meta), pending) in self.layout.members.iter().zip(metas).zip(pending) {
            let mask = std::mem::replace(pending, EventMask::NONE);
            if !mask.is_empty() && member.update(&self.driver, mask, meta, own) {
                member.mark(mask, &mut marks);
            }
        }
        own.mark_only(marks.clone());
        self.posts.post(value.clone(), marks);
    }

    /// The present value of all members.
    fn read_all(&self, is_atomic: bool) -> Arc<Structure> {
        let mut state = self.state.lock();
        let LatestValue { value, metas, .. } = &mut *state;
        let own = Arc::make_mut(value);
        for (member, meta) in self.layout.members.iter().zip(metas) {
            member.update(&self.driver, EVERYTHING, meta, own);
        }
        set(own, self.layout.atomic, is_atomic);
        own.mark_only(self.layout.whole.clone());
        state.value.clone()
    }

    /// What a put writes, in order.
    fn writes(&self, value: &Structure, process: ProcessOption, by: &Peer) -> Result<Vec<FieldWrite>, PutRefusal> {
        let changed = value.kind().leaves(value.changed());
        let mut writes = Vec::new();
        for member in &self.layout.members {
            let Some(MemberSource { field, .. }) = member.source else { continue };
            let write = match (&member.definition.mapping, &member.content) {
                (MemberMapping::Proc, _) => self.processing(field, process),
                (_, MemberContent::Nothing) => None,
                _ if member.definition.put_order.is_none() => None,
                _ => member.put_value(value, &changed).map(|value| {
                    let facts = self.driver.database().facts(field);
                    let value = stored_value(value, facts.kind, facts.count_max);
                    FieldWrite { field, value, processing: processing_of(process) }
                }),
            };
            let Some(write) = write else { continue };
            self.check(member, &write, by)?;
            writes.push(write);
        }
        if writes.is_empty() && !value.changed().is_empty() {
            return Err(PutRefusal::Rejected("the put sets no member of the group that has +putorder".into()));
        }
        Ok(writes)
    }

    /// How a put to the group processes the record of a member that is only processed.
    fn processing(&self, field: FieldRef, process: ProcessOption) -> Option<FieldWrite> {
        let database = self.driver.database();
        let is_processed = match process {
            ProcessOption::Always | ProcessOption::Passive => true,
            ProcessOption::Never => field == database.processing_field(field),
        };
        let field = database.processing_field(field);
        is_processed.then(|| FieldWrite { field, value: Value::from(1_u8), processing: Processing::Passive })
    }

    /// Checks before anything is written that this client may write a member.
    fn check(&self, member: &ResolvedMember, write: &FieldWrite, by: &Peer) -> Result<(), PutRefusal> {
        let database = self.driver.database();
        let path = &member.definition.path;
        let reason = if !self.driver.guard().allowed(database, write.field, by).write {
            "the client has no write access"
        } else if database.facts(write.field).is_read_only {
            "its field is read-only"
        } else if database.is_put_disabled(write.field) {
            "DISP of its record is set"
        } else {
            return Ok(());
        };
        Err(PutRefusal::Rejected(format!("member {path} cannot be written: {reason}")))
    }

    fn is_writable(member: &ResolvedMember) -> bool {
        let is_written = member.definition.put_order.is_some() && !matches!(member.content, MemberContent::Nothing);
        is_written && member.definition.mapping != MemberMapping::Meta
            || member.definition.mapping == MemberMapping::Proc
    }
}

fn set(value: &mut Structure, bit: usize, to: impl Into<Value>) {
    // Every group has the nodes of its options.
    let _ = value.set_value(bit, to.into());
}

impl StructuredPv for GroupPv {
    fn kind(&self) -> Arc<StructureType> {
        self.layout.kind.clone()
    }

    fn read(&self) -> Arc<Structure> {
        self.read_with(AtomicOption::Unset)
    }

    fn read_with(&self, atomic: AtomicOption) -> Arc<Structure> {
        if !atomic.or(self.layout.is_atomic) {
            return self.read_all(false);
        }
        let mut value = None;
        self.driver.while_locked(&mut || value = Some(self.read_all(true)));
        value.unwrap_or_else(|| Arc::new(self.layout.initial.clone()))
    }

    fn with_value(&self, subscribe: &mut dyn FnMut(Arc<Structure>)) {
        // Like QSRV2, a subscription is always atomic.
        self.driver.while_locked(&mut || subscribe(self.read_all(true)));
    }

    fn posts(&self) -> &StructurePosts {
        &self.posts
    }

    fn is_read_only(&self) -> bool {
        !self.layout.members.iter().any(GroupPv::is_writable)
    }

    fn put_with(
        &self,
        value: Structure,
        options: PutOptions,
        by: &Peer,
        completion: Option<Completion>,
    ) -> Result<(), PutRefusal> {
        let writes = self.writes(&value, options.process, by)?;
        self.driver.put_group(writes, by, options.atomic.or(self.layout.is_atomic)).map_err(refusal)?;
        completion.into_iter().for_each(Completion::complete);
        Ok(())
    }

    /// Like QSRV2, the first update contains the size of the queue.
    fn first_update(&self, value: Arc<Structure>, queue_size: usize) -> Arc<Structure> {
        let mut value = Arc::unwrap_or_clone(value);
        set(&mut value, self.layout.queue_size, queue_size as i32);
        Arc::new(value)
    }

    /// A client may read a group if it may read every member.
    fn rights(&self, by: &Peer) -> Rights {
        let (guard, database) = (self.driver.guard(), self.driver.database());
        let sources = |member: &'_ ResolvedMember| member.source.as_ref().map(|source| source.field);
        let members = self.layout.members.iter();
        let read = members.clone().filter_map(sources).all(|field| guard.allowed(database, field, by).read);
        let mut written = members.filter(|member| GroupPv::is_writable(member)).filter_map(sources);
        // A group that no put writes refuses puts for that reason.
        let write = self.is_read_only() || written.any(|field| guard.allowed(database, field, by).write);
        Rights { read, write }
    }

    fn listeners_changed(&self) {
        if let Some(me) = self.me.upgrade() {
            self.driver.watch_group(&me);
        }
    }
}
