//! The queue of requests that wait until their record is done.
//!
//! Source: EPICS Base 7.0, dbNotify. Observed with softIoc: puts with completion to a busy record are written one after
//! the other when the record is done; a put without completion is written at once.

use std::collections::VecDeque;

use fodo_data::Value;

use crate::error::PutError;
use crate::event::Event;
use crate::input::Processing;
use crate::process::deferred::{CompletionWaiter, Deferred};
use crate::process::engine::EngineCall;
use crate::reference::LONG_STRING;

/// The requests that wait for one record, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct RequestQueue {
    waiting: VecDeque<(CompletionWaiter, QueuedRequest)>,
    /// The first request is scheduled, and starts when the current chain is done.
    is_scheduled: bool,
}

/// A request to a record whose completion is reported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum QueuedRequest {
    /// Write a value to a field, and process the record if the field is PP or PROC, or as the client decides.
    Put { field: u16, value: Value, processing: Processing },
    /// Process the record if it is passive.
    Processing,
}

impl RequestQueue {
    /// Whether a request of `waiter` is still queued.
    pub(crate) fn has(&self, waiter: CompletionWaiter) -> bool {
        self.waiting.iter().any(|(other, _)| *other == waiter)
    }
}

impl EngineCall<'_> {
    /// Executes a request, at once or when the record is done. `waiter` receives the completion. A rejection at once is
    /// the return value only.
    pub(crate) fn execute(
        &mut self,
        record: u32,
        waiter: CompletionWaiter,
        request: QueuedRequest,
    ) -> Result<(), PutError> {
        // A put to a link field does not depend on the record's processing.
        let is_link =
            matches!(request, QueuedRequest::Put { field, .. } if self.core.is_link(record, field & !LONG_STRING));
        let is_busy = self.engine.request_queues.contains_key(&record) || self.is_active(record);
        if is_busy && !is_link {
            self.engine.request_queues.entry(record).or_default().waiting.push_back((waiter, request));
            return Ok(());
        }
        self.begin_notified(record, waiter, request)
    }

    /// Schedules the next request of a record that is done, after the current chain.
    pub(crate) fn schedule_next_request(&mut self, record: u32) {
        if let Some(queue) = self.engine.request_queues.get_mut(&record)
            && !std::mem::replace(&mut queue.is_scheduled, true)
        {
            self.engine.deferred.push(Deferred::StartNextRequest { record });
        }
    }

    /// Starts the first request of the queue.
    pub(crate) fn start_next_request(&mut self, record: u32) {
        if let Some(queue) = self.engine.request_queues.get_mut(&record) {
            queue.is_scheduled = false;
        }
        if self.is_active(record) {
            return;
        }
        let Some((waiter, request)) =
            self.engine.request_queues.get_mut(&record).and_then(|queue| queue.waiting.pop_front())
        else {
            return;
        };
        self.remove_empty_queue(record);
        if let Err(error) = self.begin_notified(record, waiter, request) {
            match waiter {
                CompletionWaiter::Put(put) => self.events.push(Event::PutRefused { put, error }),
                CompletionWaiter::Record { .. } => self.complete_if_done(waiter),
            }
        }
        if !self.is_active(record) {
            self.schedule_next_request(record);
        }
    }

    /// Removes a request from the queue. A request that has started is not affected.
    pub(crate) fn cancel_request(&mut self, record: u32, waiter: CompletionWaiter) {
        if let Some(queue) = self.engine.request_queues.get_mut(&record)
            && let Some(position) = queue.waiting.iter().position(|(other, _)| *other == waiter)
        {
            queue.waiting.remove(position);
            self.remove_empty_queue(record);
        }
    }

    fn remove_empty_queue(&mut self, record: u32) {
        if self.engine.request_queues.get(&record).is_some_and(|queue| queue.waiting.is_empty()) {
            self.engine.request_queues.remove(&record);
        }
    }

    fn begin_notified(
        &mut self,
        record: u32,
        waiter: CompletionWaiter,
        request: QueuedRequest,
    ) -> Result<(), PutError> {
        self.with_waiters(vec![waiter], |call| match request {
            QueuedRequest::Processing => {
                call.process_for_put(record, false, true);
                Ok(())
            }
            QueuedRequest::Put { field, value, processing } => {
                let result = call.put_field(record, field, value, processing);
                if result.is_err() {
                    call.waiters.clear();
                }
                result
            }
        })
    }

    fn is_active(&mut self, record: u32) -> bool {
        self.with(record, |body, _| body.common().is_active != 0).unwrap_or(false)
    }
}
