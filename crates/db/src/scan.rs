//! Scan lists: which records process at which period, in the order of PHAS.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::menu::SCAN_PERIODS_MS;

/// The periodic scan lists and what is left of a scan in progress.
#[derive(Debug, Default)]
pub(crate) struct Scans {
    lists: [List; SCAN_PERIODS_MS.len()],
    /// Records of scans that are due, not yet processed.
    pub(crate) pending: VecDeque<u32>,
}

#[derive(Debug, Default)]
struct List {
    /// Sorted by phase; among the same phase the first added is first.
    records: Vec<(i16, u32)>,
    next: Option<Instant>,
    n_skipped: u64,
}

impl Scans {
    pub(crate) fn add(&mut self, scan: u16, phase: i16, record: u32) {
        let is_periodic = SCAN_PERIODS_MS.get(usize::from(scan)).is_some_and(|period| *period > 0);
        if let (true, Some(list)) = (is_periodic, self.lists.get_mut(usize::from(scan))) {
            let place = list.records.partition_point(|(other, _)| *other <= phase);
            list.records.insert(place, (phase, record));
        }
    }

    pub(crate) fn remove(&mut self, scan: u16, record: u32) {
        if let Some(list) = self.lists.get_mut(usize::from(scan)) {
            list.records.retain(|(_, other)| *other != record);
        }
    }

    /// All periods begin now.
    pub(crate) fn start(&mut self, now: Instant) {
        for (list, &period) in self.lists.iter_mut().zip(&SCAN_PERIODS_MS) {
            list.next = (period > 0).then_some(now);
        }
    }

    /// Moves the records of every list that is due to `pending`. A list keeps its beat: whole periods
    /// that were missed are skipped and counted, and one whose last scan is still pending waits.
    pub(crate) fn collect(&mut self, now: Instant) {
        if !self.pending.is_empty() {
            return;
        }
        // The fastest first: it has the least time.
        for (list, &period) in self.lists.iter_mut().zip(&SCAN_PERIODS_MS).rev() {
            let Some(next) = list.next.filter(|next| *next <= now) else { continue };
            let period = Duration::from_millis(period);
            self.pending.extend(list.records.iter().map(|(_, record)| *record));
            let behind = now.duration_since(next).as_nanos() / period.as_nanos().max(1);
            let skipped = u32::try_from(behind).unwrap_or(u32::MAX);
            list.n_skipped += u64::from(skipped);
            list.next = next.checked_add(period.saturating_mul(skipped.saturating_add(1)));
        }
    }

    /// When a list with records in it is due next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.lists.iter().filter(|list| !list.records.is_empty()).filter_map(|list| list.next).min()
    }

    /// How many periods were skipped because the scans came late, by the number of the SCAN choice.
    pub(crate) fn skipped(&self, scan: u16) -> u64 {
        self.lists.get(usize::from(scan)).map_or(0, |list| list.n_skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_scan_keeps_its_beat_and_counts_what_it_skipped() {
        let start = Instant::now();
        let mut scans = Scans::default();
        scans.add(6, 0, 7);
        scans.start(start);
        scans.collect(start);
        scans.pending.clear();

        scans.collect(start + Duration::from_millis(3_250));

        assert_eq!(scans.pending, [7]);
        assert_eq!(scans.deadline(), Some(start + Duration::from_secs(4)));
        assert_eq!(scans.skipped(6), 2);
    }

    #[test]
    fn records_of_a_list_run_in_the_order_of_their_phase() {
        let start = Instant::now();
        let mut scans = Scans::default();
        for (phase, record) in [(1, 10), (0, 11), (1, 12), (-1, 13)] {
            scans.add(9, phase, record);
        }
        scans.start(start);

        scans.collect(start);

        assert_eq!(scans.pending, [13, 11, 10, 12]);
    }
}
