//! How the subscriptions to one structured PV receive its posts.

use fodo_data::BitSet;
use fodo_engine::ring::PostRing;
use fodo_engine::structure_ring::StructureUpdate;
use fodo_pva::server::{Circuit as Machine, Contents, FieldSelection, RequestKey};

use super::PvAccess;
use super::monitor::ContentKind;
use super::pv::PvaPv;
use crate::limit;
use crate::server::UpdateCounts;
use crate::server::circuit::{Watch, WatchSubscription, slots};

/// Updates of one PV that are encoded once for all of its subscriptions with the same selection.
#[derive(Default)]
pub(super) struct SharedStructureUpdates(Vec<EncodedUpdate>);

struct EncodedUpdate {
    /// The number of the post.
    post: u64,
    changed: BitSet,
    overrun: BitSet,
    selection: FieldSelection,
    /// `None` if there is nothing to send.
    contents: Option<Vec<u8>>,
}

/// Sends pending updates to a watch's subscriptions; returns false if the circuit's buffer is full.
///
/// The ring is locked only while an update is taken from it.
pub(super) fn send_watch(
    watch: &mut Watch<PvAccess>,
    machine: &mut Machine,
    shared: &mut SharedStructureUpdates,
    queue_bytes_max: usize,
    counts: &mut UpdateCounts,
) -> bool {
    watch.listener.start_reading();
    let Watch { pv: PvaPv::Structured(pv), subscriptions, n_slots, first_slot, .. } = watch else { return true };
    shared.0.clear();
    let is_shared = subscriptions.len() > 1;
    for slot in slots(*first_slot, *n_slots) {
        let Some(WatchSubscription { key, content, cursor, .. }) = subscriptions.get_mut(slot) else { continue };
        let ContentKind::Structured(selection) = &content.updates else { continue };
        while machine.may_update(*key) {
            if machine.pending_bytes() >= queue_bytes_max && pv.posts().with_ring(|ring| ring.n_waiting(cursor)) > 0 {
                // The following subscriptions are served first next time.
                *first_slot = (slot + 1) % (*n_slots).max(1);
                return false;
            }
            let merged_before = cursor.merged;
            let Some(update) = pv.posts().with_ring(|ring| ring.next(cursor)) else { break };
            counts.merged += cursor.merged - merged_before;
            // A larger array is sent from its own memory.
            let is_sent = if is_shared && update.value.n_bytes() < fodo_pva::limit::BULK_BYTES {
                shared.send(machine, *key, selection, update)
            } else {
                machine.update(*key, Contents::Structure(&update.value), &update.changed, &update.overrun)
            };
            counts.sent += u64::from(is_sent);
        }
    }
    true
}

impl SharedStructureUpdates {
    /// Sends an update that another subscription may have sent already. Returns whether there was something to send.
    fn send(
        &mut self,
        machine: &mut Machine,
        request: RequestKey,
        selection: &FieldSelection,
        update: StructureUpdate,
    ) -> bool {
        let StructureUpdate { value, number, changed, overrun } = update;
        let is_same = |known: &EncodedUpdate| {
            known.post == number
                && known.changed == changed
                && known.overrun == overrun
                && known.selection == *selection
        };
        if let Some(known) = self.0.iter().find(|known| is_same(known)) {
            return known.contents.as_ref().is_some_and(|contents| machine.update_encoded(request, contents));
        }
        let mut contents = Vec::new();
        let is_any = machine.encode_update(request, Contents::Structure(&value), &changed, &overrun, &mut contents);
        let is_sent = is_any && machine.update_encoded(request, &contents);
        if self.0.len() < limit::SHARED_UPDATES {
            let contents = is_any.then_some(contents);
            self.0.push(EncodedUpdate { post: number, changed, overrun, selection: selection.clone(), contents });
        }
        is_sent
    }
}
