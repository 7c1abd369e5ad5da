//! Scan lists: the records of each period and event, in the order of PHAS.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::iter::Rev;
use std::ops::Range;
use std::time::{Duration, Instant};

use fodo_data::{Text, number_at_start};

use crate::common::Common;
use crate::menu::EVENT;
use crate::scan_menu::ScanMenu;

/// The counters of one scan period since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanCounts {
    /// The choice of SCAN: `1 second`.
    pub choice: String,
    /// The period.
    pub period: Duration,
    /// How many records have this choice now.
    pub n_records: usize,
    /// How many records were due and processed, counting each time.
    pub scanned: u64,
    /// How many periods were skipped because scans were late.
    pub skipped: u64,
}

/// The fields that determine a record's scan list and its position there.
#[derive(Clone, Debug)]
pub(crate) struct ScanPosition {
    scan: u16,
    phase: i16,
    priority: u16,
    event: Text,
}

impl ScanPosition {
    pub(crate) fn of(common: &Common) -> ScanPosition {
        ScanPosition { scan: common.scan, phase: common.phase, priority: common.priority, event: common.event.clone() }
    }
}

/// The normalised name of an event. Surrounding blanks are removed. A number from 1 to 255, in any notation, loses its
/// decimals, which are there if a number was converted to text. `None`: empty, or a number from 0 to below 1.
///
/// Source: EPICS Base 7.0, eventNameToHandle.
pub(crate) fn event_name(text: &Text) -> Option<Text> {
    let words = text.to_str();
    let words = words.trim();
    match number_at_start(words) {
        Ok((number, n_bytes)) if n_bytes == words.len() && (0.0..1.0).contains(&number) => None,
        Ok((number, n_bytes)) if n_bytes == words.len() && (1.0..256.0).contains(&number) => {
            Some(Text::from(number.trunc().to_string()))
        }
        _ => (!words.is_empty()).then(|| Text::from(words)),
    }
}

/// The periodic scan lists, and the records that wait for an event.
#[derive(Debug)]
pub(crate) struct Scans {
    /// By the index of the choice of SCAN.
    lists: Vec<ScanList>,
    /// Records by event name; each list sorted by priority, highest first, then by phase.
    events: HashMap<Text, Vec<(EventOrder, u32)>>,
}

type EventOrder = (Reverse<u16>, i16);

#[derive(Debug, Default)]
struct ScanList {
    /// `None` if the choice is not periodic; then the list is empty.
    period: Option<Duration>,
    /// Sorted by phase; within a phase, in the order of addition.
    records: Vec<(i16, u32)>,
    next: Option<Instant>,
    /// The records of the current scan that are not yet processed.
    pending: VecDeque<u32>,
    n_scanned: u64,
    n_skipped: u64,
}

impl Scans {
    pub(crate) fn new(menu: &ScanMenu) -> Scans {
        let lists = menu.rates().iter().map(|rate| ScanList { period: rate.period, ..ScanList::default() });
        Scans { lists: lists.collect(), events: HashMap::new() }
    }

    /// The choices of SCAN in the order of processing: the last one of the menu, usually the fastest, is first. In
    /// Base, it has the highest priority.
    pub(crate) fn last_choice_first(&self) -> Rev<Range<usize>> {
        (0..self.lists.len()).rev()
    }

    pub(crate) fn add(&mut self, position: &ScanPosition, record: u32, now: Instant) {
        if position.scan == EVENT {
            if let Some(name) = event_name(&position.event) {
                insert(self.events.entry(name).or_default(), (Reverse(position.priority), position.phase), record);
            }
            return;
        }
        let list = self.lists.get_mut(usize::from(position.scan));
        if let Some(list) = list.filter(|list| list.period.is_some()) {
            if list.records.is_empty() {
                list.advance(now);
            }
            insert(&mut list.records, position.phase, record);
        }
    }

    /// Removes a record from the list of a choice of SCAN; for Event from every list, since EVNT may have changed.
    pub(crate) fn remove(&mut self, scan: u16, record: u32) {
        if scan == EVENT {
            for list in self.events.values_mut() {
                list.retain(|(_, other)| *other != record);
            }
            self.events.retain(|_, list| !list.is_empty());
        } else if let Some(list) = self.lists.get_mut(usize::from(scan)) {
            list.records.retain(|(_, other)| *other != record);
            list.pending.retain(|other| *other != record);
        }
    }

    /// The records that wait for an event.
    pub(crate) fn of_event(&self, name: &Text) -> Vec<u32> {
        let list = self.events.get(name);
        list.into_iter().flatten().map(|(_, record)| *record).collect()
    }

    /// Starts all periods now: the first scan of each is due after one period, as in Base.
    pub(crate) fn start(&mut self, now: Instant) {
        for list in &mut self.lists {
            list.next = list.period.and_then(|period| now.checked_add(period));
        }
    }

    /// Marks the records of every list that is due as pending. A list keeps its schedule: missed periods are skipped
    /// and counted. A list whose previous scan is still pending waits, without delaying other lists.
    pub(crate) fn collect(&mut self, now: Instant) {
        for list in &mut self.lists {
            if list.pending.is_empty() && list.next.is_some_and(|next| next <= now) {
                list.pending.extend(list.records.iter().map(|(_, record)| *record));
                list.n_scanned += list.records.len() as u64;
                list.n_skipped += list.advance(now).saturating_sub(1);
            }
        }
    }

    /// How many lists have records that are due and not yet processed.
    pub(crate) fn n_pending(&self) -> u64 {
        self.lists.iter().filter(|list| !list.pending.is_empty()).count() as u64
    }

    /// Removes and returns the next pending record of a choice of SCAN.
    pub(crate) fn pop(&mut self, scan: usize) -> Option<u32> {
        self.lists.get_mut(scan)?.pending.pop_front()
    }

    /// When the next list with records is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.lists.iter().filter(|list| !list.records.is_empty()).filter_map(|list| list.next).min()
    }

    /// The counters of every periodic choice, in the order of the menu.
    pub(crate) fn counts(&self, menu: &ScanMenu) -> Vec<ScanCounts> {
        let of_choice = |(choice, list): (&String, &ScanList)| {
            list.period.map(|period| ScanCounts {
                choice: choice.clone(),
                period,
                n_records: list.records.len(),
                scanned: list.n_scanned,
                skipped: list.n_skipped,
            })
        };
        menu.rates().iter().map(|rate| &rate.choice).zip(&self.lists).filter_map(of_choice).collect()
    }
}

impl ScanList {
    /// Moves the next scan to the first scheduled time after `now`. Returns the number of periods.
    fn advance(&mut self, now: Instant) -> u64 {
        let (Some(period), Some(next)) = (self.period, self.next.filter(|next| *next <= now)) else { return 0 };
        let n_periods = now.duration_since(next).as_nanos() / period.as_nanos().max(1) + 1;
        let n_periods = u32::try_from(n_periods).unwrap_or(u32::MAX);
        self.next = next.checked_add(period.saturating_mul(n_periods));
        n_periods.into()
    }
}

/// Inserts after all entries with the same or a smaller key.
fn insert<K: PartialOrd>(list: &mut Vec<(K, u32)>, key: K, record: u32) {
    let position = list.partition_point(|(other, _)| *other <= key);
    list.insert(position, (key, record));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scans() -> Scans {
        Scans::new(&ScanMenu::default())
    }

    fn skipped(scans: &Scans, choice: &str) -> u64 {
        let counts = scans.counts(&ScanMenu::default());
        counts.iter().find(|scan| scan.choice == choice).unwrap().skipped
    }

    fn position(scan: u16, phase: i16) -> ScanPosition {
        ScanPosition { scan, phase, priority: 0, event: "alarm".into() }
    }

    #[test]
    fn a_late_scan_keeps_its_phase_and_counts_skipped_periods() {
        let start = Instant::now();
        let mut scans = scans();
        scans.add(&position(6, 0), 7, start);
        scans.start(start);
        assert_eq!(scans.deadline(), Some(start + Duration::from_secs(1)));
        scans.collect(start + Duration::from_secs(1));
        assert_eq!(scans.pop(6), Some(7));

        scans.collect(start + Duration::from_millis(4_250));

        assert_eq!((scans.pop(6), scans.pop(6)), (Some(7), None));
        assert_eq!(scans.deadline(), Some(start + Duration::from_secs(5)));
        let period = Duration::from_secs(1);
        let counts = ScanCounts { choice: "1 second".into(), period, n_records: 1, scanned: 2, skipped: 2 };
        assert_eq!(scans.counts(&ScanMenu::default())[3], counts);
    }

    #[test]
    fn records_of_a_scan_list_are_processed_in_phase_order() {
        let start = Instant::now();
        let mut scans = scans();
        for (phase, record) in [(1, 10), (0, 11), (1, 12), (-1, 13)] {
            scans.add(&position(9, phase), record, start);
        }
        scans.start(start);

        scans.collect(start + Duration::from_millis(100));

        let order: Vec<u32> = std::iter::from_fn(|| scans.pop(9)).collect();
        assert_eq!(order, [13, 11, 10, 12]);
    }

    #[test]
    fn a_pending_scan_list_is_not_queued_twice_and_does_not_block_other_lists() {
        let start = Instant::now();
        let mut scans = scans();
        scans.add(&position(6, 0), 7, start);
        scans.add(&position(9, 0), 8, start);
        scans.start(start);
        scans.collect(start + Duration::from_secs(1));
        assert_eq!((scans.pop(9), scans.n_pending()), (Some(8), 1));

        scans.collect(start + Duration::from_secs(2));

        assert_eq!((scans.pop(9), scans.pop(9)), (Some(8), None));
        assert_eq!((scans.pop(6), scans.pop(6)), (Some(7), None));
    }

    #[test]
    fn a_scan_list_that_was_empty_keeps_its_phase_and_counts_no_skipped_period() {
        let start = Instant::now();
        let mut scans = scans();
        scans.start(start);

        scans.add(&position(6, 0), 7, start + Duration::from_millis(5_300));

        assert_eq!(scans.deadline(), Some(start + Duration::from_secs(6)));
        scans.collect(start + Duration::from_secs(6));
        assert_eq!((scans.pop(6), skipped(&scans, "1 second")), (Some(7), 0));
    }

    #[test]
    fn a_record_removed_from_its_scan_list_is_not_scanned() {
        let start = Instant::now();
        let mut scans = scans();
        scans.add(&position(6, 0), 7, start);
        scans.start(start);
        scans.collect(start + Duration::from_secs(1));

        scans.remove(6, 7);

        assert_eq!((scans.pop(6), scans.n_pending()), (None, 0));
    }

    #[test]
    fn event_scanned_records_are_processed_in_order_of_priority_and_phase() {
        let mut scans = scans();
        scans.add(&position(EVENT, 1), 10, Instant::now());
        scans.add(&position(EVENT, 0), 11, Instant::now());
        scans.add(&ScanPosition { priority: 2, ..position(EVENT, 5) }, 12, Instant::now());
        scans.add(&ScanPosition { event: "other".into(), ..position(EVENT, 0) }, 13, Instant::now());

        assert_eq!(scans.of_event(&"alarm".into()), [12, 11, 10]);
        scans.remove(EVENT, 11);
        assert_eq!(scans.of_event(&"alarm".into()), [12, 10]);
    }

    #[test]
    fn a_numeric_event_name_is_truncated_to_its_integer_part() {
        let name = |text: &str| event_name(&text.into()).map(|name| name.to_string());

        assert_eq!(name(" 5.00 "), Some("5".into()));
        assert_eq!(name("300.5"), Some("300.5".into()));
        assert_eq!(name(" beam lost "), Some("beam lost".into()));
        assert_eq!((name("0.5"), name("  ")), (None, None));
        for text in ["+0x02", "0x2.8", "2e0", "+2.", "02"] {
            assert_eq!(name(text), Some("2".into()), "{text}");
        }
        assert_eq!(name("2x"), Some("2x".into()));
    }

    #[test]
    fn a_scan_is_due_at_its_time_and_a_period_is_skipped_from_the_next_one_on() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let nanosecond = Duration::from_nanos(1);
        for (late, n_skipped) in [(Duration::ZERO, 0), (second - nanosecond, 0), (second, 1), (second * 3, 3)] {
            let mut scans = scans();
            scans.add(&position(6, 0), 7, start);
            scans.start(start);

            scans.collect(start + second - nanosecond);
            assert_eq!((scans.n_pending(), scans.pop(6)), (0, None));
            scans.collect(start + second + late);

            assert_eq!((scans.pop(6), skipped(&scans, "1 second")), (Some(7), n_skipped), "{late:?}");
            assert_eq!(scans.deadline(), Some(start + second * (2 + n_skipped as u32)));
        }
    }

    #[test]
    fn the_number_of_an_event_is_from_1_to_255() {
        let name = |text: &str| event_name(&text.into()).map(|name| name.to_string());

        assert_eq!(["0", "0.999", "-0"].map(name), [None, None, None]);
        assert_eq!(["1", "255.9"].map(name), [Some("1".into()), Some("255".into())]);
        assert_eq!(["256", "256.0", "-1.0"].map(name), ["256", "256.0", "-1.0"].map(|text| Some(text.into())));
    }
}
