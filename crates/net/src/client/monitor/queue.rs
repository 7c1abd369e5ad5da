//! The event queue of a monitor.

use std::collections::VecDeque;

use super::value::MonitorValue;
use super::{MonitorEvent, MonitorOptions, WhenFull};
use crate::limit;

/// Events in order; the options bound the number of updates.
pub struct Queue<T> {
    /// The next event. Usually no other is queued, and then the queue allocates no memory.
    first: Option<Queued<T>>,
    rest: VecDeque<Queued<T>>,
    n_updates: usize,
    /// Bytes of the queued arrays; other events are small.
    value_bytes: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { first: None, rest: VecDeque::new(), n_updates: 0, value_bytes: 0 }
    }
}

/// A queued event.
struct Queued<T> {
    event: MonitorEvent<T>,
    /// Number of updates merged into this one; reported before it.
    n_merged: u64,
}

impl<T: MonitorValue> Queued<T> {
    fn is_update(&self) -> bool {
        matches!(self.event, MonitorEvent::Update(_))
    }

    fn bytes(&self) -> usize {
        match &self.event {
            MonitorEvent::Update(value) => value.array_bytes(),
            _ => 0,
        }
    }

    /// Merges an earlier update into this one. `n_merged`: how many updates that makes.
    fn merge(&mut self, earlier: MonitorEvent<T>, n_merged: u64) {
        self.n_merged += n_merged;
        if let (MonitorEvent::Update(value), MonitorEvent::Update(earlier)) = (&mut self.event, &earlier) {
            value.merge(earlier);
        }
    }
}

impl<T: MonitorValue> Queue<T> {
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Adds an event; returns how many updates were merged or dropped for it.
    #[inline]
    pub(super) fn push(&mut self, event: MonitorEvent<T>, options: &MonitorOptions) -> u64 {
        if self.first.is_some() {
            return self.push_behind(Queued { event, n_merged: 0 }, options);
        }
        let first = self.first.insert(Queued { event, n_merged: 0 });
        self.n_updates += usize::from(first.is_update());
        self.value_bytes += first.bytes();
        0
    }

    fn push_behind(&mut self, mut new: Queued<T>, options: &MonitorOptions) -> u64 {
        let mut n_dropped = 0;
        if new.is_update() {
            while self.is_full(new.bytes(), options) && self.drop_or_merge(&mut new, options.when_full) {
                n_dropped += 1;
            }
        } else if self.len() - self.n_updates >= limit::CONNECTION_EVENTS
            && let Some(oldest) = self.first_of(false)
        {
            // The newest events show the current state, so the oldest is dropped.
            self.remove(oldest);
        }
        self.count(&new);
        match &self.first {
            None => self.first = Some(new),
            Some(_) => self.rest.push_back(new),
        }
        n_dropped
    }

    fn count(&mut self, new: &Queued<T>) {
        self.n_updates += usize::from(new.is_update());
        self.value_bytes += new.bytes();
    }

    /// Removes the next event. An update into which others were merged is preceded by [`MonitorEvent::Merged`].
    #[inline]
    pub(super) fn pop(&mut self) -> Option<MonitorEvent<T>> {
        let first = self.first.as_mut()?;
        if first.n_merged > 0 {
            return Some(MonitorEvent::Merged(std::mem::take(&mut first.n_merged)));
        }
        self.n_updates -= usize::from(first.is_update());
        self.value_bytes -= first.bytes();
        let first = self.first.take()?;
        if self.rest.capacity() > 0 {
            self.first = self.rest.pop_front();
            if self.rest.is_empty() && !first.is_update() {
                // The first update is queued behind Connected. With most monitors two events never wait together again.
                self.rest = VecDeque::new();
            }
        }
        Some(first.event)
    }

    fn is_full(&self, new_bytes: usize, options: &MonitorOptions) -> bool {
        let holds_values = self.value_bytes > 0;
        self.n_updates >= options.queue_max.max(1)
            || (holds_values && self.value_bytes + new_bytes > limit::MONITOR_QUEUE_BYTES)
    }

    /// Drops or merges one update for `new`; returns false if none is queued.
    fn drop_or_merge(&mut self, new: &mut Queued<T>, when_full: WhenFull) -> bool {
        let index = match when_full {
            WhenFull::ReplaceLast => {
                (0..self.len()).rev().find(|&index| self.get(index).is_some_and(Queued::is_update))
            }
            WhenFull::DropOldest => self.first_of(true),
        };
        let Some(index) = index else { return false };
        let Some(dropped) = self.remove(index) else { return false };
        let n_merged = dropped.n_merged + 1;
        // The next update reports it.
        let mut following = self.first.iter_mut().chain(&mut self.rest).skip(index);
        match following.find(|queued| queued.is_update()) {
            Some(next) => {
                self.value_bytes -= next.bytes();
                next.merge(dropped.event, n_merged);
                self.value_bytes += next.bytes();
            }
            None => new.merge(dropped.event, n_merged),
        }
        true
    }

    /// The index of the first event that is an update, or that is not an update.
    fn first_of(&self, is_update: bool) -> Option<usize> {
        self.first.iter().chain(&self.rest).position(|queued| queued.is_update() == is_update)
    }

    fn get(&self, index: usize) -> Option<&Queued<T>> {
        match index.checked_sub(1) {
            None => self.first.as_ref(),
            Some(behind) => self.rest.get(behind),
        }
    }

    fn remove(&mut self, index: usize) -> Option<Queued<T>> {
        let removed = match index.checked_sub(1) {
            None => std::mem::replace(&mut self.first, self.rest.pop_front()),
            Some(behind) => self.rest.remove(behind),
        }?;
        self.n_updates -= usize::from(removed.is_update());
        self.value_bytes -= removed.bytes();
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use fodo_data::{Array, Kind, Reading, Scalar, Structure, StructureBuilder, Value};

    use super::*;

    fn update(number: i32) -> MonitorEvent {
        MonitorEvent::Update(Reading::bare(Value::from(number)))
    }

    /// An update of this many bytes, recognized by its length.
    fn image(n_bytes: usize) -> MonitorEvent {
        MonitorEvent::Update(Reading::bare(Value::Array(Array::U8(vec![0; n_bytes].into()))))
    }

    fn options(queue_max: usize, when_full: WhenFull) -> MonitorOptions {
        MonitorOptions { queue_max, when_full, ..MonitorOptions::default() }
    }

    /// The events that the user receives until the queue is empty, as short text.
    fn taken(queue: &mut Queue<Reading>) -> Vec<String> {
        std::iter::from_fn(|| queue.pop())
            .map(|event| match event {
                MonitorEvent::Update(Reading { value: Value::Scalar(Scalar::I32(number)), .. }) => number.to_string(),
                MonitorEvent::Update(reading) => format!("{} bytes", reading.value.len()),
                MonitorEvent::Merged(n) => format!("merged {n}"),
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn a_full_queue_drops_updates_by_its_policy_and_marks_the_gap() {
        for (when_full, queue_max, expected) in [
            (WhenFull::ReplaceLast, 3, vec!["0", "1", "merged 7", "9"]),
            (WhenFull::DropOldest, 3, vec!["merged 7", "7", "8", "9"]),
            (WhenFull::ReplaceLast, 1, vec!["merged 9", "9"]),
            (WhenFull::DropOldest, 1, vec!["merged 9", "9"]),
            (WhenFull::ReplaceLast, 0, vec!["merged 9", "9"]),
            (WhenFull::ReplaceLast, 10, vec!["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]),
        ] {
            let mut queue = Queue::default();

            let n_dropped: u64 = (0..10).map(|number| queue.push(update(number), &options(queue_max, when_full))).sum();

            let n_kept = queue.len();
            assert_eq!(taken(&mut queue), expected, "{when_full:?} {queue_max}");
            assert_eq!((n_kept as u64 + n_dropped, queue.len()), (10, 0), "{when_full:?} {queue_max}");
        }
    }

    #[test]
    fn connection_events_keep_their_position_when_updates_are_dropped() {
        for (when_full, expected) in [
            (WhenFull::ReplaceLast, ["0", "Disconnected", "Responsive", "merged 2", "3"]),
            (WhenFull::DropOldest, ["Disconnected", "merged 2", "2", "Responsive", "3"]),
        ] {
            let options = options(2, when_full);
            let mut queue = Queue::default();

            for event in
                [update(0), MonitorEvent::Disconnected, update(1), update(2), MonitorEvent::Responsive, update(3)]
            {
                queue.push(event, &options);
            }

            assert_eq!(taken(&mut queue), expected, "{when_full:?}");
        }
    }

    #[test]
    fn the_newest_connection_events_are_kept_beside_the_updates() {
        let options = options(2, WhenFull::ReplaceLast);
        let mut queue = Queue::default();
        queue.push(update(0), &options);

        queue.push(MonitorEvent::Disconnected, &options);
        (0..limit::CONNECTION_EVENTS - 1).for_each(|_| assert_eq!(queue.push(MonitorEvent::Responsive, &options), 0));
        assert_eq!(queue.len(), 1 + limit::CONNECTION_EVENTS);
        queue.push(MonitorEvent::Unresponsive, &options);

        let taken = taken(&mut queue);
        assert_eq!(taken.len(), 1 + limit::CONNECTION_EVENTS);
        assert_eq!(
            (&*taken[0], &*taken[1], taken.last().map(String::as_str)),
            ("0", "Responsive", Some("Unresponsive"))
        );
    }

    #[test]
    fn queued_arrays_are_limited_by_bytes_except_for_a_single_larger_one() {
        let options = options(1000, WhenFull::DropOldest);
        let half = limit::MONITOR_QUEUE_BYTES / 2;
        let mut queue = Queue::default();

        let dropped =
            [half, half, 1, limit::MONITOR_QUEUE_BYTES + 1, 2].map(|n_bytes| queue.push(image(n_bytes), &options));

        assert_eq!(dropped, [0, 0, 1, 2, 1]);
        assert_eq!(taken(&mut queue), ["merged 4", "2 bytes"]);
        assert_eq!(
            queue.push(image(half), &options) + queue.push(image(half), &options),
            0,
            "what was taken is free again"
        );
    }

    /// An update of a structure in which these two fields have the number, and the marked ones have changed.
    fn structure(number: usize, marked: &[usize]) -> MonitorEvent<Structure> {
        let mut build = StructureBuilder::new("");
        build.scalar("a", Kind::I32).array("b", Kind::U8);
        let mut structure = Structure::new(std::sync::Arc::new(build.finish()));
        structure.set("a", number as i32).unwrap();
        structure.set("b", vec![0_u8; number]).unwrap();
        structure.mark_only(marked.iter().copied().collect());
        MonitorEvent::Update(structure)
    }

    /// The number of each update and its changed nodes; for a gap, how many updates were merged.
    fn structures(queue: &mut Queue<Structure>) -> Vec<(u64, Vec<usize>)> {
        std::iter::from_fn(|| queue.pop())
            .map(|event| match event {
                MonitorEvent::Update(structure) => {
                    let number = structure.get("a").and_then(Value::first).unwrap().to_f64().unwrap();
                    (number as u64, structure.changed().iter().collect())
                }
                MonitorEvent::Merged(n) => (n, Vec::new()),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn a_structure_into_which_others_are_merged_has_their_changes_marked() {
        for (when_full, expected) in [
            (WhenFull::ReplaceLast, [(1, vec![1]), (2, vec![]), (4, vec![1, 2])]),
            (WhenFull::DropOldest, [(2, vec![]), (3, vec![1, 2]), (4, vec![1])]),
        ] {
            let mut queue = Queue::default();

            for (number, marked) in [(1, &[1][..]), (2, &[2]), (3, &[1]), (4, &[1])] {
                queue.push(structure(number, marked), &options(2, when_full));
            }

            assert_eq!(structures(&mut queue), expected, "{when_full:?}");
        }
    }

    #[test]
    fn the_changed_arrays_of_structures_count_as_bytes() {
        let options = options(1000, WhenFull::DropOldest);
        let most = limit::MONITOR_QUEUE_BYTES;
        let mut queue = Queue::default();

        let dropped = [(most, &[1][..]), (most / 2, &[2]), (most / 2, &[2]), (most, &[1]), (1, &[2])]
            .map(|(n_bytes, marked)| queue.push(structure(n_bytes, marked), &options));

        assert_eq!(dropped, [0, 0, 0, 0, 2]);
        let left: Vec<(u64, Vec<usize>)> = structures(&mut queue);
        assert_eq!(left.iter().map(|(_, marked)| marked.len()).collect::<Vec<_>>(), [0, 2, 1, 1], "{left:?}");
    }

    #[test]
    fn an_emptied_queue_keeps_the_order_of_later_events() {
        let options = options(2, WhenFull::ReplaceLast);
        let mut queue = Queue::default();
        queue.push(MonitorEvent::Disconnected, &options);
        queue.push(update(1), &options);
        assert!(!queue.is_empty());
        assert_eq!(taken(&mut queue), ["Disconnected", "1"]);
        assert!(queue.is_empty());

        for number in 2..6 {
            queue.push(update(number), &options);
        }

        assert_eq!(taken(&mut queue), ["2", "merged 2", "5"]);
    }
}
