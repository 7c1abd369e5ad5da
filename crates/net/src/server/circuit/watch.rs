//! A circuit's subscriptions to one PV, and how they receive its posts.

use std::sync::Arc;

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_ca::server::Circuit as Machine;
use fodo_data::{Meta, Reading, Value};
use fodo_engine::ring::Cursor;
use fodo_engine::{Sid, SubscriptionId};
use slab::Slab;

use crate::server::posts::PostListener;
use crate::server::{ChannelAccessPv, Pv, UpdateCounts};

/// One PV to which this circuit has subscriptions.
pub(super) struct Watch {
    pub(super) pv: Arc<dyn Pv>,
    pub(super) listener: Arc<PostListener>,
    /// Distinguishes it from earlier and later watches with the same index.
    pub(super) number: u64,
    pub(super) is_unsent: bool,
    pub(super) subscriptions: Slab<WatchSubscription>,
    /// The largest number of slots used so far.
    pub(super) n_slots: usize,
    /// The slot that is served first.
    pub(super) first_slot: usize,
}

pub(super) struct WatchSubscription {
    pub(super) id: SubscriptionId,
    pub(super) sid: Sid,
    pub(super) dbr: DbrType,
    pub(super) count: u32,
    pub(super) cursor: Cursor,
}

/// Sends pending updates to a watch's subscriptions; returns false if the circuit's buffer is full.
pub(super) fn send_watch(
    watch: &mut Watch,
    machine: &mut Machine,
    queue_bytes_max: usize,
    counts: &mut UpdateCounts,
) -> bool {
    watch.listener.start_reading();
    let Watch { pv, subscriptions, n_slots, first_slot, .. } = watch;
    let may_need_meta = subscriptions.iter().any(|(_, subscription)| subscription.dbr.may_need_meta());
    // Queried before the ring is locked: a source may post while it holds a lock that this needs.
    let meta_and_class = if may_need_meta { MetaAndClass::of(&**pv, subscriptions) } else { None };
    let filled_by = pv.posts().with_ring(|ring| {
        let mut slots = (*first_slot..*n_slots).chain(0..*first_slot);
        slots.find(|&slot| {
            let Some(WatchSubscription { id, sid, dbr, count, cursor }) = subscriptions.get_mut(slot) else {
                return false;
            };
            while ring.n_waiting(cursor) > 0 {
                if machine.pending_bytes() >= queue_bytes_max {
                    return true;
                }
                let merged_before = cursor.merged;
                let Some(post) = ring.next(cursor) else { return false };
                counts.merged += cursor.merged - merged_before;
                counts.sent += 1;
                match &meta_and_class {
                    Some(meta_and_class) if dbr.needs_meta(post.reading.value.kind()) => {
                        meta_and_class.update(machine, *sid, *dbr, *count, *id, post.reading.clone());
                    }
                    _ => update(machine, *sid, *dbr, *count, *id, &post.reading),
                }
            }
            false
        })
    });
    if let Some(slot) = filled_by {
        // The following subscriptions are served first next time.
        *first_slot = (slot + 1) % (*n_slots).max(1);
    }
    filled_by.is_none()
}

/// Sends an update; if the value cannot be converted to the type, reports that instead.
#[inline(always)]
pub(super) fn update(machine: &mut Machine, sid: Sid, dbr: DbrType, count: u32, id: SubscriptionId, reading: &Reading) {
    if machine.update(sid, dbr, count, id, Ok(reading)).is_err() {
        refuse(machine, sid, dbr, count, id);
    }
}

fn refuse(machine: &mut Machine, sid: Sid, dbr: DbrType, count: u32, id: SubscriptionId) {
    // An update with a status converts no value, so it cannot fail.
    let _ = machine.update(sid, dbr, count, id, Err(Eca::GETFAIL));
}

/// What some types contain in addition to value, alarm and time stamp.
pub(super) struct MetaAndClass {
    meta: Arc<Meta>,
    /// The reply to `DBR_CLASS_NAME`; `None` if it is not needed.
    class_name: Option<&'static str>,
}

impl MetaAndClass {
    /// What these subscriptions to a PV need; `None` if they need nothing of it.
    #[inline(never)]
    fn of(pv: &dyn Pv, subscriptions: &Slab<WatchSubscription>) -> Option<MetaAndClass> {
        let kind = pv.facts().kind;
        let types = || subscriptions.iter().map(|(_, subscription)| subscription.dbr);
        let needs_meta = types().any(|dbr| dbr.needs_meta(kind));
        needs_meta.then(|| MetaAndClass::new(pv, types().any(|dbr| dbr == DbrType::CLASS_NAME)))
    }

    pub(super) fn new(pv: &dyn Pv, needs_class: bool) -> MetaAndClass {
        MetaAndClass { meta: pv.meta(), class_name: needs_class.then(|| class_name(pv)) }
    }

    /// Sends an update of a type that contains more than value, alarm and time stamp.
    pub(super) fn update(
        &self,
        machine: &mut Machine,
        sid: Sid,
        dbr: DbrType,
        count: u32,
        id: SubscriptionId,
        mut reading: Reading,
    ) {
        match dbr {
            // rsrv accepts a subscription with a type that only puts have, and fails each of its updates.
            DbrType::PUT_ACKT | DbrType::PUT_ACKS => return refuse(machine, sid, dbr, count, id),
            DbrType::CLASS_NAME => reading.value = Value::from(self.class_name.unwrap_or_default()),
            _ => reading.meta = Some(self.meta.clone()),
        }
        update(machine, sid, dbr, count, id, &reading);
    }
}

/// The current reading, with what `dbr` needs.
pub(super) fn current(pv: &dyn Pv, dbr: DbrType) -> Reading {
    if dbr == DbrType::CLASS_NAME {
        return Reading::bare(Value::from(class_name(pv)));
    }
    let mut reading = pv.read();
    if reading.meta.is_none() && dbr.needs_meta(reading.value.kind()) {
        reading.meta = Some(pv.meta());
    }
    reading
}

/// The reply to `DBR_CLASS_NAME`.
fn class_name(pv: &dyn Pv) -> &'static str {
    pv.channel_access().map_or("pv", ChannelAccessPv::class_name)
}
