//! The rows of a monitor group: what its caller takes, and what waits until then.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

use fodo_data::{Alarm, Scalar, TimeStamp, Value};

use crate::client::MonitorEvent;

/// An update of one PV of a [`MonitorGroup`](super::MonitorGroup).
///
/// It has the layout of a C structure of 32 bytes without padding, in the order of the fields, and contains no pointer. A
/// binding passes a slice of rows to its language as they are, for instance as a structured array of numpy.
///
/// See the example of [`MonitorGroup`](super::MonitorGroup).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupRow {
    /// The value; of an enum the index of its state, of a boolean 0 or 1. Integers are exact up to 2^53 in magnitude, and
    /// rounded to the nearest number beyond: only 64-bit integers of pvAccess are larger.
    pub value: f64,
    /// The seconds of the server's time stamp, since 1970-01-01 UTC.
    pub unix_s: i64,
    /// The nanoseconds within that second.
    pub nanos: u32,
    /// The index of the PV in the group.
    pub index: u32,
    /// How many earlier updates of the PV this one has replaced, because they were not taken in time.
    pub merged: u32,
    /// The severity of the alarm, 0 to 3, as [`Severity::code`](crate::Severity::code).
    pub severity: u16,
    /// The status of the alarm, as the number of [`Status`](crate::Status).
    pub status: u16,
}

const _: () = assert!(size_of::<GroupRow>() == 32);

impl GroupRow {
    #[inline(always)]
    pub(in crate::client) fn new(index: u32, value: f64, alarm: Alarm, time: TimeStamp) -> GroupRow {
        let Alarm { severity, status } = alarm;
        let TimeStamp { unix_s, nanos } = time;
        GroupRow { value, unix_s, nanos, index, merged: 0, severity: severity.code(), status: status.0 }
    }
}

/// The number in a value; `None` for an array or a string.
#[inline]
pub(in crate::client) fn single_number(value: &Value) -> Option<f64> {
    match value {
        Value::Scalar(Scalar::F64(number)) => Some(*number),
        Value::Scalar(Scalar::Text(_)) | Value::Array(_) => None,
        Value::Scalar(scalar) => scalar.to_f64().ok(),
    }
}

/// A change of the connection of one PV of a [`MonitorGroup`](super::MonitorGroup).
///
/// See the example of [`MonitorGroup`](super::MonitorGroup).
#[derive(Clone, Debug, PartialEq)]
pub struct GroupChange {
    /// The index of the PV in the group.
    pub index: u32,
    /// The change follows this many of the rows taken with it. Rows into which others were merged keep the position of the
    /// first one.
    pub at_row: usize,
    /// How many earlier changes of the PV this one has replaced, because they were not taken in time.
    pub merged: u32,
    /// The change: any event but an update.
    pub event: MonitorEvent<Infallible>,
}

/// What [`MonitorGroup::take`](super::MonitorGroup::take) fills. Reusing it saves the allocation of memory.
///
/// See the example of [`MonitorGroup`](super::MonitorGroup).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupRows {
    /// The updates. Those of one PV are in the order in which its server has sent them.
    pub rows: Vec<GroupRow>,
    /// The changes of connections, at most one for each PV, ordered by their position among the rows.
    pub changes: Vec<GroupChange>,
}

impl GroupRows {
    /// Removes everything; the memory is kept.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.changes.clear();
    }
}

/// Counters of a [`MonitorGroup`](super::MonitorGroup), taken at one moment: `received` is the sum of `merged`,
/// `removed`, `delivered` and `waiting`.
///
/// They count what the client has received; [`MonitorCounts`](crate::MonitorCounts) says what a server may have merged
/// before.
///
/// See the example of [`MonitorGroup`](super::MonitorGroup).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Updates received from servers.
    pub received: u64,
    /// Updates replaced by a later one of the same PV, because there were too many rows.
    pub merged: u64,
    /// Updates dropped because their PV was removed before they were taken.
    pub removed: u64,
    /// Rows taken.
    pub delivered: u64,
    /// Rows that wait to be taken.
    pub waiting: u64,
    /// Updates of which the server has reported that they contain several changes. Only with pvAccess.
    pub overrun: u64,
    /// How often the channel of a PV was lost.
    pub n_disconnected: u64,
}

/// Rows and changes that wait to be taken, and the indexes of the PVs.
#[derive(Debug)]
pub(super) struct WaitingRows {
    /// With more rows, an update replaces the last row of its PV.
    rows_max: usize,
    /// What the next take returns.
    taken_next: GroupRows,
    /// The position of the last row of each PV among the first `n_located` rows. Positions of PVs without a row there are
    /// obsolete: no row of the PV is at that position.
    last_rows: Vec<usize>,
    n_located: usize,
    /// The position of each PV's change.
    change_positions: HashMap<u32, usize>,
    has_merged_changes: bool,
    /// The number of PVs, and those whose context was closed.
    n_pvs: usize,
    closed: HashSet<u32>,
    is_context_closed: bool,
    /// The counters without `waiting`.
    counts: GroupCounts,
    /// Indexes below this one are in use, free or resting.
    n_indexes: u32,
    free_indexes: Vec<u32>,
    /// Indexes of removed PVs. They are free after the next take: until then the caller may look at rows taken before.
    resting_indexes: Vec<u32>,
}

impl WaitingRows {
    pub(super) fn new(rows_max: usize) -> WaitingRows {
        WaitingRows {
            rows_max,
            taken_next: GroupRows::default(),
            last_rows: Vec::new(),
            n_located: 0,
            change_positions: HashMap::new(),
            has_merged_changes: false,
            n_pvs: 0,
            closed: HashSet::new(),
            is_context_closed: false,
            counts: GroupCounts::default(),
            n_indexes: 0,
            free_indexes: Vec::new(),
            resting_indexes: Vec::new(),
        }
    }

    /// Adds a PV; returns its index.
    pub(super) fn add(&mut self) -> u32 {
        self.n_pvs += 1;
        self.free_indexes.pop().unwrap_or_else(|| {
            self.n_indexes += 1;
            self.n_indexes - 1
        })
    }

    /// Adds updates, in order.
    pub(super) fn receive(&mut self, rows: &[GroupRow], n_overrun: u64) {
        self.counts.received += rows.len() as u64;
        self.counts.overrun += n_overrun;
        let free = self.rows_max.saturating_sub(self.taken_next.rows.len());
        let (fitting, others) = rows.split_at(free.min(rows.len()));
        self.taken_next.rows.extend_from_slice(fitting);
        others.iter().for_each(|row| self.merge(*row));
    }

    /// Replaces the last row of the PV, or adds the only one: so each PV keeps its newest update.
    fn merge(&mut self, row: GroupRow) {
        self.locate_rows();
        let position = self.last_rows.get(row.index as usize).copied();
        let last = position.and_then(|position| self.taken_next.rows.get_mut(position));
        match last.filter(|last| last.index == row.index) {
            Some(last) => {
                *last = GroupRow { merged: last.merged.saturating_add(1), ..row };
                self.counts.merged += 1;
            }
            None => self.taken_next.rows.push(row),
        }
    }

    /// Notes the positions of the rows that were added since.
    fn locate_rows(&mut self) {
        for (position, row) in self.taken_next.rows.iter().enumerate().skip(self.n_located) {
            let index = row.index as usize;
            if self.last_rows.len() <= index {
                self.last_rows.resize(index + 1, 0);
            }
            self.last_rows[index] = position;
        }
        self.n_located = self.taken_next.rows.len();
    }

    /// Adds a change. It replaces an earlier change of the PV.
    pub(super) fn change(&mut self, index: u32, event: MonitorEvent<Infallible>) {
        if matches!(event, MonitorEvent::Closed) {
            self.closed.insert(index);
        }
        self.counts.n_disconnected += u64::from(matches!(event, MonitorEvent::Disconnected));
        let GroupRows { rows, changes } = &mut self.taken_next;
        let mut change = GroupChange { index, at_row: rows.len(), merged: 0, event };
        match self.change_positions.get(&index).and_then(|&position| changes.get_mut(position)) {
            Some(earlier) => {
                change.merged = earlier.merged.saturating_add(1);
                *earlier = change;
                self.has_merged_changes = true;
            }
            None => {
                self.change_positions.insert(index, changes.len());
                changes.push(change);
            }
        }
    }

    /// Moves everything to `taken`, which is empty. Returns false if nothing waits.
    pub(super) fn take(&mut self, taken: &mut GroupRows) -> bool {
        self.free_indexes.append(&mut self.resting_indexes);
        if self.taken_next.rows.is_empty() && self.taken_next.changes.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.taken_next, taken);
        self.n_located = 0;
        self.change_positions.clear();
        if std::mem::take(&mut self.has_merged_changes) {
            taken.changes.sort_by_key(|change| change.at_row);
        }
        self.counts.delivered += taken.rows.len() as u64;
        true
    }

    /// Removes a PV, with its rows and its change.
    pub(super) fn remove(&mut self, index: u32) {
        let GroupRows { rows, changes } = &mut self.taken_next;
        let mut removed = Vec::new();
        let mut position = 0;
        rows.retain(|row| {
            removed.extend((row.index == index).then_some(position));
            position += 1;
            row.index != index
        });
        self.counts.removed += removed.len() as u64;
        changes.retain(|change| change.index != index);
        for change in changes.iter_mut() {
            change.at_row -= removed.partition_point(|position| *position < change.at_row);
        }
        self.change_positions = changes.iter().enumerate().map(|(position, change)| (change.index, position)).collect();
        self.n_located = 0;
        self.n_pvs -= 1;
        self.closed.remove(&index);
        self.resting_indexes.push(index);
    }

    /// The context was closed; each PV still receives its own [`MonitorEvent::Closed`].
    pub(super) fn context_closed(&mut self) {
        self.is_context_closed = true;
    }

    /// Whether no row and no change can follow: the context was closed, and with it each PV.
    pub(super) fn is_closed(&self) -> bool {
        (self.is_context_closed || !self.closed.is_empty()) && self.closed.len() >= self.n_pvs
    }

    pub(super) fn counts(&self) -> GroupCounts {
        GroupCounts { waiting: self.taken_next.rows.len() as u64, ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(index: u32, value: i32) -> GroupRow {
        GroupRow::new(index, f64::from(value), Alarm::default(), TimeStamp::NEVER)
    }

    /// Receives updates of these PVs with these values, as one piece.
    fn receive(waiting: &mut WaitingRows, updates: &[(u32, i32)]) {
        let rows: Vec<GroupRow> = updates.iter().map(|&(index, value)| row(index, value)).collect();
        waiting.receive(&rows, 0);
    }

    /// Takes the rows: index, value and how many were merged.
    fn taken(waiting: &mut WaitingRows) -> Vec<(u32, i32, u32)> {
        let mut taken = GroupRows::default();
        waiting.take(&mut taken);
        taken.rows.iter().map(|row| (row.index, row.value as i32, row.merged)).collect()
    }

    fn assert_complete(waiting: &WaitingRows) {
        let GroupCounts { received, merged, removed, delivered, waiting, .. } = waiting.counts();
        assert_eq!(received, merged + removed + delivered + waiting);
    }

    #[test]
    fn rows_are_taken_in_the_order_of_their_arrival() {
        let mut waiting = WaitingRows::new(10);

        receive(&mut waiting, &[(1, 10), (0, 20)]);
        receive(&mut waiting, &[(1, 11)]);

        assert_eq!(taken(&mut waiting), [(1, 10, 0), (0, 20, 0), (1, 11, 0)]);
        assert_eq!(taken(&mut waiting), []);
        assert_eq!(waiting.counts(), GroupCounts { received: 3, delivered: 3, ..GroupCounts::default() });
    }

    #[test]
    fn with_too_many_rows_an_update_replaces_the_last_row_of_its_pv_and_the_row_counts_it() {
        let mut waiting = WaitingRows::new(3);

        receive(&mut waiting, &[(0, 1), (0, 2), (1, 1), (0, 3), (1, 2)]);
        receive(&mut waiting, &[(0, 4), (0, 5)]);

        assert_complete(&waiting);
        assert_eq!(taken(&mut waiting), [(0, 1, 0), (0, 5, 3), (1, 2, 1)]);
        assert_eq!((waiting.counts().merged, waiting.counts().delivered), (4, 3));
    }

    #[test]
    fn each_pv_keeps_its_newest_update_however_many_rows_others_have() {
        for (rows_max, n_waiting) in [(0, 4), (1, 4), (2, 5)] {
            let mut waiting = WaitingRows::new(rows_max);

            for value in 0..100 {
                receive(&mut waiting, &[(7, value), (7, -value), (value.unsigned_abs() % 3, value)]);
            }

            assert_eq!(waiting.counts().waiting, n_waiting, "{rows_max}");
            assert_complete(&waiting);
            let rows = taken(&mut waiting);
            let newest = |index| rows.iter().rfind(|row| row.0 == index).map(|row| row.1);
            assert_eq!([0, 1, 2, 7].map(newest), [Some(99), Some(97), Some(98), Some(-99)], "{rows_max}");
        }
    }

    #[test]
    fn merging_starts_anew_after_a_take() {
        let mut waiting = WaitingRows::new(2);
        receive(&mut waiting, &[(0, 1), (1, 1), (1, 2)]);
        assert_eq!(taken(&mut waiting), [(0, 1, 0), (1, 2, 1)]);

        // The positions of the rows taken before are obsolete.
        receive(&mut waiting, &[(1, 3), (2, 1), (0, 2), (1, 4), (2, 2)]);

        assert_eq!(taken(&mut waiting), [(1, 4, 1), (2, 2, 1), (0, 2, 0)]);
        assert_complete(&waiting);
    }

    #[test]
    fn a_change_has_its_position_among_the_rows() {
        let mut waiting = WaitingRows::new(10);
        let mut taken = GroupRows::default();

        waiting.change(0, MonitorEvent::Unresponsive);
        receive(&mut waiting, &[(0, 1), (1, 1)]);
        waiting.change(1, MonitorEvent::Disconnected);
        receive(&mut waiting, &[(0, 2)]);

        assert!(waiting.take(&mut taken));
        let change = |index, at_row, event| GroupChange { index, at_row, merged: 0, event };
        let expected = [change(0, 0, MonitorEvent::Unresponsive), change(1, 2, MonitorEvent::Disconnected)];
        assert_eq!((taken.rows.len(), &taken.changes[..]), (3, &expected[..]));
        assert_eq!(waiting.counts().n_disconnected, 1);
    }

    #[test]
    fn a_pv_has_one_change_which_counts_those_before_it_and_is_ordered_by_its_position() {
        let mut waiting = WaitingRows::new(10);
        let mut taken = GroupRows::default();

        for _ in 0..1000 {
            waiting.change(0, MonitorEvent::Disconnected);
            waiting.change(0, MonitorEvent::Responsive);
        }
        receive(&mut waiting, &[(0, 1)]);
        waiting.change(1, MonitorEvent::Unresponsive);
        receive(&mut waiting, &[(0, 2)]);
        waiting.change(0, MonitorEvent::Disconnected);

        assert!(waiting.take(&mut taken));
        let expected = [
            GroupChange { index: 1, at_row: 1, merged: 0, event: MonitorEvent::Unresponsive },
            GroupChange { index: 0, at_row: 2, merged: 2000, event: MonitorEvent::Disconnected },
        ];
        assert_eq!(taken.changes, expected);
        assert_eq!(waiting.counts().n_disconnected, 1001);
        assert!(!waiting.take(&mut GroupRows::default()));
    }

    #[test]
    fn the_rows_and_the_change_of_a_removed_pv_are_dropped_and_its_rows_counted() {
        let mut waiting = WaitingRows::new(4);
        let mut taken = GroupRows::default();
        assert_eq!([waiting.add(), waiting.add(), waiting.add()], [0, 1, 2]);
        receive(&mut waiting, &[(0, 1), (1, 1), (0, 2)]);
        waiting.change(0, MonitorEvent::Disconnected);
        waiting.change(1, MonitorEvent::Disconnected);
        waiting.change(2, MonitorEvent::Responsive);
        receive(&mut waiting, &[(1, 2), (1, 3)]);

        waiting.remove(0);
        waiting.change(1, MonitorEvent::Unresponsive);
        receive(&mut waiting, &[(1, 4), (1, 5), (1, 6)]);

        assert_complete(&waiting);
        assert!(waiting.take(&mut taken));
        let values: Vec<(f64, u32)> = taken.rows.iter().map(|row| (row.value, row.merged)).collect();
        assert_eq!(values, [(1.0, 0), (3.0, 1), (4.0, 0), (6.0, 1)]);
        let expected = [
            GroupChange { index: 2, at_row: 1, merged: 0, event: MonitorEvent::Responsive },
            GroupChange { index: 1, at_row: 2, merged: 1, event: MonitorEvent::Unresponsive },
        ];
        assert_eq!(taken.changes, expected);
        assert_eq!((waiting.counts().removed, waiting.counts().merged), (2, 2));
    }

    #[test]
    fn the_index_of_a_removed_pv_is_given_to_another_after_the_next_take() {
        let mut waiting = WaitingRows::new(4);
        let mut taken = GroupRows::default();
        assert_eq!([waiting.add(), waiting.add()], [0, 1]);

        waiting.remove(0);
        assert_eq!(waiting.add(), 2, "rows of 0 may have been taken before");
        waiting.take(&mut taken);

        assert_eq!([waiting.add(), waiting.add()], [0, 3]);
    }

    #[test]
    fn rows_are_closed_when_all_pvs_are() {
        let mut waiting = WaitingRows::new(4);
        let [one, other] = [waiting.add(), waiting.add()];
        assert!(!waiting.is_closed());

        waiting.change(other, MonitorEvent::Closed);
        assert!(!waiting.is_closed(), "a change of the other PV follows");
        waiting.change(one, MonitorEvent::Closed);
        assert!(waiting.is_closed());

        waiting.remove(one);
        assert!(waiting.is_closed());
        waiting.add();
        assert!(!waiting.is_closed());
    }

    #[test]
    fn a_take_reuses_the_memory_of_the_one_before() {
        let mut waiting = WaitingRows::new(100);
        let mut taken = GroupRows::default();
        let mut take = || {
            receive(&mut waiting, &[(0, 1); 50]);
            taken.clear();
            assert!(waiting.take(&mut taken) && taken.rows.len() == 50);
            taken.rows.as_ptr()
        };

        let places = [take(), take()];

        assert_eq!([take(), take(), take(), take()], [places, places].concat()[..]);
    }

    #[test]
    fn bindings_find_each_field_of_a_row_at_its_offset() {
        let offsets = [
            std::mem::offset_of!(GroupRow, value),
            std::mem::offset_of!(GroupRow, unix_s),
            std::mem::offset_of!(GroupRow, nanos),
            std::mem::offset_of!(GroupRow, index),
            std::mem::offset_of!(GroupRow, merged),
            std::mem::offset_of!(GroupRow, severity),
            std::mem::offset_of!(GroupRow, status),
        ];

        assert_eq!(offsets, [0, 8, 16, 20, 24, 28, 30]);
    }

    #[test]
    fn single_numbers_of_every_kind_are_rows_and_other_values_are_not() {
        let numbers: [(Scalar, f64); 8] = [
            (Scalar::F64(1.5), 1.5),
            (Scalar::F32(0.5), 0.5),
            (Scalar::Bool(true), 1.0),
            (Scalar::I8(-1), -1.0),
            (Scalar::U16(65_535), 65_535.0),
            (Scalar::Enum(3), 3.0),
            (Scalar::I64(1 << 53), 9_007_199_254_740_992.0),
            (Scalar::U64(u64::MAX), 18_446_744_073_709_551_616.0),
        ];
        for (scalar, expected) in numbers {
            assert_eq!(single_number(&Value::Scalar(scalar)), Some(expected));
        }
        assert_eq!(single_number(&"1.5".into()), None);
        assert_eq!(single_number(&vec![1.5].into()), None);
    }
}
