//! The queue of requests that wait until their record is done.
//!
//! Source: EPICS Base 7.0, dbNotify. Observed with softIoc: puts with completion to a busy record are written one after
//! the other when the record is done; a put without completion is written at once.

use std::collections::VecDeque;

use fodo_data::Value;

use crate::deferred::Deferred;
use crate::post::LONG_STRING;
use crate::turn::{Turn, Waiter};
use crate::{Event, PutError};

/// The requests that wait for one record, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: VecDeque<(Waiter, Wanted)>,
    /// The first request is scheduled, and starts when the current chain is done.
    is_called: bool,
}

/// A request to a record whose completion is reported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wanted {
    /// Write a value to a field, and process the record if the field is PP or PROC.
    Put { field: u16, value: Value },
    /// Process the record if it is passive.
    Processing,
}

impl Line {
    /// Whether a request of `waiter` is still queued.
    pub(crate) fn has(&self, waiter: Waiter) -> bool {
        self.waiting.iter().any(|(other, _)| *other == waiter)
    }
}

impl Turn<'_> {
    /// Executes a request, at once or when the record is done. `waiter` receives the completion. A rejection at once is
    /// the return value only.
    pub(crate) fn notify(&mut self, record: u32, waiter: Waiter, wanted: Wanted) -> Result<(), PutError> {
        // A put to a link field does not depend on the record's processing.
        let is_link = matches!(wanted, Wanted::Put { field, .. } if self.core.is_link(record, field & !LONG_STRING));
        let is_busy = self.engine.lines.contains_key(&record) || self.is_active(record);
        if is_busy && !is_link {
            self.engine.lines.entry(record).or_default().waiting.push_back((waiter, wanted));
            return Ok(());
        }
        self.begin_notified(record, waiter, wanted)
    }

    /// Schedules the next request of a record that is done, after the current chain.
    pub(crate) fn call_next(&mut self, record: u32) {
        if let Some(line) = self.engine.lines.get_mut(&record)
            && !std::mem::replace(&mut line.is_called, true)
        {
            self.engine.deferred.push(Deferred::Next { record });
        }
    }

    /// Starts the first request of the queue.
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

    /// Removes a request from the queue. A request that has started is not affected.
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
