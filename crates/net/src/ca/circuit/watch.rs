//! How the subscriptions to one PV receive its posts.

use std::sync::Arc;

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_ca::server::Circuit as Machine;
use fodo_data::{Meta, Reading, Value};
use fodo_engine::ring::PostRing;
use fodo_engine::{Sid, SubscriptionId};
use slab::Slab;

use super::{ChannelAccess, RequestedDbr};
use crate::server::circuit::{Watch, WatchSubscription, slots};
use crate::server::{ChannelAccessPv, Pv, UpdateCounts};

/// Sends pending updates to a watch's subscriptions; returns false if the circuit's buffer is full.
#[inline]
pub(super) fn send_watch(
    watch: &mut Watch<ChannelAccess>,
    machine: &mut Machine,
    queue_bytes_max: usize,
    counts: &mut UpdateCounts,
) -> bool {
    watch.listener.start_reading();
    let Watch { pv, subscriptions, n_slots, first_slot, .. } = watch;
    let may_need_meta = subscriptions.iter().any(|(_, subscription)| subscription.content.dbr.may_need_meta());
    // Queried before the ring is locked: a source may post while it holds a lock that this needs.
    let meta_and_class = if may_need_meta { MetaAndClass::of(&**pv, subscriptions) } else { None };
    let filled_by = pv.posts().with_ring(|ring| {
        slots(*first_slot, *n_slots).find(|&slot| {
            let Some(WatchSubscription { key: id, sid, content, cursor }) = subscriptions.get_mut(slot) else {
                return false;
            };
            let RequestedDbr { dbr, count } = content;
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
    fn of(pv: &dyn Pv, subscriptions: &Slab<WatchSubscription<ChannelAccess>>) -> Option<MetaAndClass> {
        let kind = pv.facts().kind;
        let types = || subscriptions.iter().map(|(_, subscription)| subscription.content.dbr);
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
#[inline]
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
