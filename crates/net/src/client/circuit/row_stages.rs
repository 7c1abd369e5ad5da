//! The rows of monitor groups between the decoder and their group.

use std::sync::{Arc, Weak};

use fodo_data::Kind;

use super::super::WrongReply;
use super::super::group::{GroupCore, GroupRow};
use super::super::monitor::MonitorCore;
use super::super::operation::Waiter;
use super::{ServerChannel, State};

/// Where the updates of a subscription become rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowTarget {
    /// The stage of its group on the circuit.
    pub(crate) stage: u32,
    /// The index of the PV in the group.
    pub(crate) index: u32,
}

/// The rows of the piece that is being decoded, by group. They are handed over at the end of the piece, so there are none
/// while the circuit is not locked.
#[derive(Debug, Default)]
pub(super) struct RowStages {
    /// A stage whose group no longer exists is used for another one.
    stages: Vec<RowStage>,
    /// The stages with rows.
    filled: Vec<u32>,
}

#[derive(Debug, Default)]
struct RowStage {
    /// Exists while the circuit has subscriptions of it: these refer to its monitors.
    group: Weak<GroupCore>,
    rows: Vec<GroupRow>,
    n_overrun: u64,
}

impl RowStages {
    /// The stage of a group; there are few groups.
    fn stage_of(&mut self, group: &Arc<GroupCore>) -> u32 {
        let of = |stage: &RowStage| std::ptr::eq(stage.group.as_ptr(), Arc::as_ptr(group));
        let is_free = |stage: &RowStage| stage.group.strong_count() == 0;
        let place = self.stages.iter().position(of).or_else(|| self.stages.iter().position(is_free));
        let place = place.unwrap_or(self.stages.len());
        if place == self.stages.len() {
            self.stages.push(RowStage::default());
        }
        self.stages[place].group = Arc::downgrade(group);
        place as u32
    }

    /// Adds a row. `is_overrun`: the server has merged other updates into it.
    #[inline(always)]
    pub(super) fn push(&mut self, stage: u32, row: GroupRow, is_overrun: bool) {
        let Some(staged) = self.stages.get_mut(stage as usize) else { return };
        if staged.rows.is_empty() {
            self.filled.push(stage);
        }
        staged.rows.push(row);
        staged.n_overrun += u64::from(is_overrun);
    }

    /// Adds the rows to their groups, with one lock for each group.
    #[inline]
    pub(super) fn hand_over(&mut self, woken: &mut Vec<Waiter>) {
        if !self.filled.is_empty() {
            self.hand_over_filled(woken);
        }
    }

    fn hand_over_filled(&mut self, woken: &mut Vec<Waiter>) {
        for stage in self.filled.drain(..) {
            let Some(RowStage { group, rows, n_overrun }) = self.stages.get_mut(stage as usize) else { continue };
            let waiter = group.upgrade().map(|group| group.receive(rows, *n_overrun)).unwrap_or_default();
            woken.extend(waiter.into_option());
            rows.clear();
            *n_overrun = 0;
        }
    }
}

impl State {
    /// Where the updates of a monitor become rows; `None` if it belongs to no group. Fails if the PV is not a number, with the
    /// waiter to wake.
    pub(super) fn row_target(
        &mut self,
        monitor: &Arc<MonitorCore>,
        server_channel: ServerChannel,
    ) -> Result<Option<RowTarget>, Waiter> {
        let Some((group, index)) = monitor.group() else { return Ok(None) };
        let ServerChannel { kind, count, .. } = server_channel;
        if kind == Kind::Text || count != 1 {
            return Err(monitor.wrong_reply(WrongReply::NotANumber { kind, count_max: count }));
        }
        Ok(Some(RowTarget { stage: self.row_stages.stage_of(group), index }))
    }

    /// Adds all rows to their groups: before a change of a connection, which follows them, and at the end of a piece.
    #[inline]
    pub(super) fn hand_over_rows(&mut self) {
        self.row_stages.hand_over(&mut self.afterwards.woken);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fodo_ca::dbr::DbrType;
    use fodo_data::{Alarm, TimeStamp};
    use fodo_engine::Sid;

    use super::super::super::{Context, GroupOptions, GroupRows, MonitorGroup};
    use super::*;
    use crate::config::ClientConfig;

    fn group() -> MonitorGroup {
        Context::new(ClientConfig::with_addresses(Vec::new())).monitor_group(GroupOptions::default())
    }

    fn row(index: u32) -> GroupRow {
        GroupRow::new(index, 0.0, Alarm::default(), TimeStamp::NEVER)
    }

    /// The indexes of the rows that wait.
    fn taken(group: &MonitorGroup) -> Vec<u32> {
        let mut taken = GroupRows::default();
        group.take(&mut taken, Duration::ZERO);
        taken.rows.iter().map(|row| row.index).collect()
    }

    #[test]
    fn the_rows_of_a_piece_are_handed_over_to_their_groups_at_its_end() {
        let (one, other) = (group(), group());
        let mut stages = RowStages::default();
        let [of_one, of_other] = [&one, &other].map(|group| stages.stage_of(group.core()));

        stages.push(of_one, row(3), false);
        stages.push(of_other, row(7), true);
        stages.push(of_one, row(4), true);
        stages.push(of_one, row(3), false);
        assert_eq!((taken(&one), taken(&other)), (vec![], vec![]));
        stages.hand_over(&mut Vec::new());

        assert_eq!((taken(&one), taken(&other)), (vec![3, 4, 3], vec![7]));
        assert_eq!((one.counts().overrun, other.counts().overrun), (1, 1));
        stages.hand_over(&mut Vec::new());
        assert_eq!((one.counts().received, other.counts().received), (3, 1));
    }

    #[test]
    fn a_group_keeps_its_stage_and_leaves_it_to_another_one_when_it_no_longer_exists() {
        let (one, other) = (group(), group());
        let mut stages = RowStages::default();
        let first = stages.stage_of(one.core());

        assert_eq!((first, stages.stage_of(other.core())), (0, 1));
        assert_eq!((stages.stage_of(one.core()), stages.stage_of(other.core())), (0, 1));
        drop(one);
        let third = group();
        assert_eq!((stages.stage_of(third.core()), stages.stage_of(group().core())), (0, 2));
    }

    #[test]
    fn the_server_of_channel_access_converts_every_number_to_a_row() {
        let options = GroupOptions::default().of_monitor();
        for kind in [Kind::I16, Kind::I32, Kind::U8, Kind::F32, Kind::F64, Kind::Enum] {
            let server_channel = ServerChannel { sid: Sid(1), kind, count: 1 };
            assert_eq!(server_channel.request_type(&options.request), (DbrType::TIME_DOUBLE, 1));
        }
    }
}
