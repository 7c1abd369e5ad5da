//! A circuit's subscriptions on one PV, and how they get its posts.

use std::sync::Arc;

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_ca::ring::Cursor;
use fodo_ca::server::Circuit as Machine;
use fodo_ca::{Sid, SubscriptionId};
use fodo_data::Reading;
use slab::Slab;

use crate::server::posts::Listener;
use crate::server::{Pv, UpdateCounts};

/// One PV that this circuit has subscriptions on.
pub(super) struct Watch {
    pub(super) pv: Arc<dyn Pv>,
    pub(super) listener: Arc<Listener>,
    /// Tells it from others that have its index before or after it.
    pub(super) number: u64,
    pub(super) is_unsent: bool,
    pub(super) subscriptions: Slab<Subscription>,
    /// How many slots these ever took.
    pub(super) n_slots: usize,
    /// The slot whose turn is first.
    pub(super) first_slot: usize,
}

pub(super) struct Subscription {
    pub(super) id: SubscriptionId,
    pub(super) sid: Sid,
    pub(super) dbr: DbrType,
    pub(super) count: u32,
    pub(super) cursor: Cursor,
}

/// Sends what a watch's subscriptions have not had; false when the circuit has enough for now.
pub(super) fn send_watch(
    watch: &mut Watch,
    machine: &mut Machine,
    queue_bytes_max: usize,
    counts: &mut UpdateCounts,
) -> bool {
    watch.listener.looks();
    let Watch { pv, subscriptions, n_slots, first_slot, .. } = watch;
    let any = |wants: &dyn Fn(DbrType) -> bool| subscriptions.iter().any(|(_, subscription)| wants(subscription.dbr));
    // Asked for before the ring is held: a source may post while it holds what this needs.
    let kind = any(&DbrType::may_need_meta).then(|| pv.facts().kind);
    let meta = kind.filter(|&kind| any(&|dbr| dbr.needs_meta(kind))).map(|_| pv.meta());
    let filled_by = pv.posts().with_ring(|ring| {
        let mut slots = (*first_slot..*n_slots).chain(0..*first_slot);
        slots.find(|&slot| {
            let Some(Subscription { id, sid, dbr, count, cursor }) = subscriptions.get_mut(slot) else { return false };
            while ring.n_waiting(cursor) > 0 {
                if machine.pending_bytes() >= queue_bytes_max {
                    return true;
                }
                let merged_before = cursor.merged;
                let Some(post) = ring.next(cursor) else { return false };
                counts.merged += cursor.merged - merged_before;
                counts.sent += 1;
                if meta.is_some() && dbr.needs_meta(post.reading.value.kind()) {
                    let mut reading = post.reading.clone();
                    reading.meta.clone_from(&meta);
                    update(machine, *sid, *dbr, *count, *id, &reading);
                } else {
                    update(machine, *sid, *dbr, *count, *id, &post.reading);
                }
            }
            false
        })
    });
    if let Some(slot) = filled_by {
        // Its fellows are first next time.
        *first_slot = (slot + 1) % (*n_slots).max(1);
    }
    filled_by.is_none()
}

/// Sends an update; a value that cannot become the wanted type is told as such.
#[inline(always)]
pub(super) fn update(machine: &mut Machine, sid: Sid, dbr: DbrType, count: u32, id: SubscriptionId, reading: &Reading) {
    if machine.update(sid, dbr, count, id, Ok(reading)).is_err() {
        // A status has nothing to convert, so this cannot fail again.
        let _ = machine.update(sid, dbr, count, id, Err(Eca::GETFAIL));
    }
}

pub(super) fn complete(reading: &mut Reading, pv: &dyn Pv, dbr: DbrType) {
    if reading.meta.is_none() && dbr.needs_meta(reading.value.kind()) {
        reading.meta = Some(pv.meta());
    }
}
