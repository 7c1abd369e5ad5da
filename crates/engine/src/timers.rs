//! Timers: one deadline for each of many objects, and which of them are due.

use std::collections::BTreeSet;
use std::time::Instant;

/// At most one deadline per object, identified by its index.
#[derive(Debug, Default)]
pub struct Timers {
    by_time: BTreeSet<(Instant, usize)>,
    by_index: Vec<Option<Instant>>,
}

impl Timers {
    /// The earliest deadline.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Sets the deadline of an object.
    pub fn set(&mut self, index: usize, at: Instant) {
        if self.by_index.get(index) == Some(&Some(at)) {
            return;
        }
        self.clear(index);
        if self.by_index.len() <= index {
            self.by_index.resize(index + 1, None);
        }
        self.by_index[index] = Some(at);
        self.by_time.insert((at, index));
    }

    /// Sets the deadline of an object unless it has an earlier one.
    #[inline]
    pub fn set_if_earlier(&mut self, index: usize, at: Instant) {
        match self.by_index.get(index) {
            Some(Some(present)) if *present <= at => {}
            _ => self.set(index, at),
        }
    }

    /// Removes the deadline of an object.
    #[inline]
    pub fn clear(&mut self, index: usize) {
        if let Some(at) = self.by_index.get_mut(index).and_then(Option::take) {
            self.by_time.remove(&(at, index));
        }
    }

    /// Appends the objects whose deadline has passed, and removes these deadlines.
    pub fn take_due(&mut self, now: Instant, due: &mut Vec<usize>) {
        while let Some(&(at, index)) = self.by_time.first() {
            if at > now {
                return;
            }
            self.clear(index);
            due.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_object_has_one_timer_and_the_earlier_deadline_wins() {
        let start = Instant::now();
        let mut timers = Timers::default();

        timers.set(3, start + Duration::from_secs(2));
        timers.set_if_earlier(3, start + Duration::from_secs(5));
        timers.set_if_earlier(3, start + Duration::from_secs(1));
        let mut due = Vec::new();
        timers.take_due(start + Duration::from_secs(1), &mut due);

        assert_eq!(due, [3]);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn timers_fire_once_and_in_deadline_order() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timers = Timers::default();
        for (index, seconds) in [(0, 3), (1, 1), (2, 2), (3, 9), (1, 4)] {
            timers.set(index, at(seconds));
        }
        timers.set_if_earlier(5, at(3));
        timers.clear(3);
        timers.clear(77);
        let mut due = Vec::new();

        assert_eq!(timers.next(), Some(at(2)));
        timers.take_due(at(3), &mut due);
        assert_eq!((due.as_slice(), timers.next()), ([2, 0, 5].as_slice(), Some(at(4))));
        timers.take_due(at(100), &mut due);
        assert_eq!((due.as_slice(), timers.next()), ([2, 0, 5, 1].as_slice(), None));
    }

    #[test]
    fn a_deadline_is_due_at_its_time_and_not_before() {
        let start = Instant::now();
        let at = |nanos| start + Duration::from_nanos(nanos);
        let mut timers = Timers::default();
        let mut due = Vec::new();
        timers.set(1, at(10));

        timers.take_due(at(9), &mut due);
        assert_eq!((due.len(), timers.next()), (0, Some(at(10))));
        timers.take_due(at(10), &mut due);
        assert_eq!((due, timers.next()), (vec![1], None));
    }

    #[test]
    fn a_deadline_can_be_moved_and_removed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timers = Timers::default();
        assert_eq!(timers.next(), None);

        timers.set_if_earlier(2, at(5));
        timers.set_if_earlier(2, at(6));
        assert_eq!(timers.next(), Some(at(5)));
        timers.set(2, at(9));
        assert_eq!(timers.next(), Some(at(9)));
        timers.set_if_earlier(2, at(8));
        timers.set(2, at(8));
        assert_eq!(timers.next(), Some(at(8)));
        timers.clear(1);
        timers.clear(2);
        timers.clear(2);
        assert_eq!((timers.next(), timers.by_time.len()), (None, 0));
        timers.set(2, at(8));
        assert_eq!(timers.next(), Some(at(8)));
    }
}
