//! Those who wait for a record to be done before their own put or processing of it begins.
//!
//! Source: EPICS Base 7.0, dbNotify; seen with softIoc: a put with completion to a record that is busy is written when
//! the record is done, one after the other; one without completion is written at once.

use std::collections::VecDeque;

use fodo_data::Value;

use crate::deferred::Deferred;
use crate::post::LONG_STRING;
use crate::turn::{Turn, Waiter};
use crate::{Event, PutError};

/// Who waits for one record, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: VecDeque<(Waiter, Wanted)>,
    /// The first has been called and will begin when the chain in hand is done.
    is_called: bool,
}

/// What somebody wants of a record, and to hear the end of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wanted {
    /// A field gets a value, and the record processes where the field says so.
    Put { field: u16, value: Value },
    /// The record processes if it is passive.
    Processing,
}

impl Line {
    /// Whether somebody's turn has not come.
    pub(crate) fn has(&self, waiter: Waiter) -> bool {
        self.waiting.iter().any(|(other, _)| *other == waiter)
    }
}

impl Turn<'_> {
    /// Does what is wanted, at once or when the record is done. `waiter` hears of the end, but not of a refusal.
    pub(crate) fn notify(&mut self, record: u32, waiter: Waiter, wanted: Wanted) -> Result<(), PutError> {
        // A link has nothing to do with what its record does meanwhile.
        let is_link = matches!(wanted, Wanted::Put { field, .. } if self.core.is_link(record, field & !LONG_STRING));
        let is_busy = self.engine.lines.contains_key(&record) || self.is_active(record);
        if is_busy && !is_link {
            self.engine.lines.entry(record).or_default().waiting.push_back((waiter, wanted));
            return Ok(());
        }
        self.begin_notified(record, waiter, wanted)
    }

    /// The record is done: the next one's turn comes after the chain in hand.
    pub(crate) fn call_next(&mut self, record: u32) {
        if let Some(line) = self.engine.lines.get_mut(&record)
            && !std::mem::replace(&mut line.is_called, true)
        {
            self.engine.deferred.push(Deferred::Next { record });
        }
    }

    /// Begins with the first in line.
    pub(crate) fn next_in_line(&mut self, record: u32) {
        if let Some(line) = self.engine.lines.get_mut(&record) {
            line.is_called = false;
        }
        if self.is_active(record) {
            return;
        }
        let Some((waiter, wanted)) = self.engine.lines.get_mut(&record).and_then(|line| line.waiting.pop_front())
        else {
            return;
        };
        self.leave_if_empty(record);
        if let Err(error) = self.begin_notified(record, waiter, wanted) {
            match waiter {
                Waiter::Put(put) => self.events.push(Event::PutRefused { put, error }),
                Waiter::Record { .. } => self.tell_if_done(waiter),
            }
        }
        if !self.is_active(record) {
            self.call_next(record);
        }
    }

    /// Takes somebody out of the line; one whose turn has come is left alone.
    pub(crate) fn give_up(&mut self, record: u32, waiter: Waiter) {
        if let Some(line) = self.engine.lines.get_mut(&record)
            && let Some(place) = line.waiting.iter().position(|(other, _)| *other == waiter)
        {
            line.waiting.remove(place);
            self.leave_if_empty(record);
        }
    }

    fn leave_if_empty(&mut self, record: u32) {
        if self.engine.lines.get(&record).is_some_and(|line| line.waiting.is_empty()) {
            self.engine.lines.remove(&record);
        }
    }

    fn begin_notified(&mut self, record: u32, waiter: Waiter, wanted: Wanted) -> Result<(), PutError> {
        self.with_waiters(vec![waiter], |turn| match wanted {
            Wanted::Processing => {
                turn.process_wanted(record, false, true);
                Ok(())
            }
            Wanted::Put { field, value } => {
                let result = turn.put_field(record, field, value);
                if result.is_err() {
                    turn.waiters.clear();
                }
                result
            }
        })
    }

    fn is_active(&mut self, record: u32) -> bool {
        self.with(record, |body, _| body.common().is_active != 0).unwrap_or(false)
    }
}
