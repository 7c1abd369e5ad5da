//! What the driver does for groups: puts to their members, and one post for each turn.

use std::sync::Arc;

use fodo_db::PutError;
use fodo_net::{Peer, StructuredPv as _};

use super::{DatabaseDriver, DriverState, FieldWrite};
use crate::group::GroupPv;

impl DatabaseDriver {
    /// A client writes the members of a group in order, up to the first error. If the put is atomic, no record is
    /// processed and no value is read in between, and the triggers of all members make one post.
    pub fn put_group(&self, writes: Vec<FieldWrite>, by: &Peer, is_atomic: bool) -> Result<(), PutError> {
        if !is_atomic {
            let put =
                |FieldWrite { field, value, processing }| self.put_processing(field, value, processing, Some(by), None);
            return writes.into_iter().try_for_each(put);
        }
        let mut turn = self.lock();
        let result = writes.into_iter().try_for_each(|write| {
            let by = Some(by).filter(|by| self.guard.reports_puts(&self.database, write.field, by));
            self.put_in_turn(&mut turn, write, by, None)
        });
        self.post_groups(&mut turn);
        result
    }

    /// Posts the changes of a group while it has listeners, the same as [`DatabaseDriver::watch`].
    pub fn watch_group(&self, group: &Arc<GroupPv>) {
        let mut turn = self.lock();
        let has_listeners = group.posts().has_listeners();
        if !group.set_watched(has_listeners) {
            return;
        }
        for (field, index) in group.watched_fields() {
            let members = turn.group_fields.entry(field).or_default();
            if has_listeners {
                members.push((group.clone(), index));
                self.database.watch(field);
                continue;
            }
            members.retain(|(other, _)| !Arc::ptr_eq(other, group));
            if members.is_empty() {
                turn.group_fields.remove(&field);
                self.unwatch_unused(&turn, field);
            }
        }
    }

    /// Posts to the groups that were triggered in this turn, once each.
    #[inline]
    pub(super) fn post_groups(&self, turn: &mut DriverState) {
        if !turn.triggered.is_empty() {
            turn.triggered.drain(..).for_each(|group| group.post_pending());
        }
    }
}
