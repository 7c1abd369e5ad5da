//! The events of a monitor that wait.

use std::collections::VecDeque;

use fodo_data::{Reading, Value};

use super::{MonitorEvent, MonitorOptions, WhenFull};
use crate::limit;

/// Events in their order, updates among them within the bounds of the options.
#[derive(Default)]
pub(super) struct Queue {
    /// The one that is next. Mostly none waits behind it, and then the queue needs no memory of its own.
    first: Option<Queued>,
    rest: VecDeque<Queued>,
    n_updates: usize,
    /// Bytes of their arrays; what else waits is small.
    value_bytes: usize,
}

/// An event that waits.
struct Queued {
    event: MonitorEvent,
    /// Updates that it has replaced, and that are to be told before it.
    n_merged: u64,
}

impl Queued {
    fn is_update(&self) -> bool {
        matches!(self.event, MonitorEvent::Update(_))
    }

    fn bytes(&self) -> usize {
        match &self.event {
            MonitorEvent::Update(Reading { value: value @ Value::Array(_), .. }) => value.n_bytes(),
            _ => 0,
        }
    }
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Takes an event in; gives how many updates were given up for it.
    #[inline]
    pub(super) fn enter(&mut self, event: MonitorEvent, options: &MonitorOptions) -> u64 {
        if self.first.is_some() {
            return self.enter_behind(Queued { event, n_merged: 0 }, options);
        }
        let first = self.first.insert(Queued { event, n_merged: 0 });
        self.n_updates += usize::from(first.is_update());
        self.value_bytes += first.bytes();
        0
    }

    fn enter_behind(&mut self, mut new: Queued, options: &MonitorOptions) -> u64 {
        let mut n_given_up = 0;
        if new.is_update() {
            while self.is_full(new.bytes(), options) && self.give_up(&mut new, options.when_full) {
                n_given_up += 1;
            }
        } else if self.len() - self.n_updates >= limit::CONNECTION_EVENTS
            && let Some(oldest) = self.first_of(false)
        {
            // The newest says how things stand.
            self.remove(oldest);
        }
        self.count(&new);
        match &self.first {
            None => self.first = Some(new),
            Some(_) => self.rest.push_back(new),
        }
        n_given_up
    }

    fn count(&mut self, new: &Queued) {
        self.n_updates += usize::from(new.is_update());
        self.value_bytes += new.bytes();
    }

    /// The next event for the user: of an update that has replaced others, first that it has.
    #[inline]
    pub(super) fn leave(&mut self) -> Option<MonitorEvent> {
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
                // The first update comes while Connected waits. With most monitors two wait never again.
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

    /// Gives up one update for `new`; false when there is none.
    fn give_up(&mut self, new: &mut Queued, when_full: WhenFull) -> bool {
        let index = match when_full {
            WhenFull::ReplaceLast => {
                (0..self.len()).rev().find(|&index| self.get(index).is_some_and(Queued::is_update))
            }
            WhenFull::DropOldest => self.first_of(true),
        };
        let Some(index) = index else { return false };
        let Some(given_up) = self.remove(index) else { return false };
        let n_merged = given_up.n_merged + 1;
        // The next update tells of it.
        match self.first.iter_mut().chain(&mut self.rest).skip(index).find(|queued| queued.is_update()) {
            Some(next) => next.n_merged += n_merged,
            None => new.n_merged += n_merged,
        }
        true
    }

    /// The first event that is an update, or that is none.
    fn first_of(&self, is_update: bool) -> Option<usize> {
        self.first.iter().chain(&self.rest).position(|queued| queued.is_update() == is_update)
    }

    fn get(&self, index: usize) -> Option<&Queued> {
        match index.checked_sub(1) {
            None => self.first.as_ref(),
            Some(behind) => self.rest.get(behind),
        }
    }

    fn remove(&mut self, index: usize) -> Option<Queued> {
        let removed = match index.checked_sub(1) {
            None => std::mem::replace(&mut self.first, self.rest.pop_front()),
            Some(behind) => self.rest.remove(behind),
        }?;
        self.n_updates -= usize::from(removed.is_update());
        self.value_bytes -= removed.bytes();
        Some(removed)
    }
}
