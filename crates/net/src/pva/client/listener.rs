//! What the events of the machine mean for the callers of its operations.

use std::sync::Arc;

use fodo_data::{Array, BitSet, Kind, Reading, StructureType};
use fodo_engine::{Cid, Ioid};
use fodo_pva::client::{DisconnectReason, Event, Listener, Received, RequestError};
use fodo_pva::status::RequestStatus;

use super::conversion::ReplyConversion;
use super::operations::{Caller, OperationRole, OperationTables, UpdateDelivery};
use super::{CircuitEvent, Replies, conversion, structured};
use crate::client::{Failure, OperationOutcome, Refusal};

/// Passes replies and updates on as they are decoded; the machine itself is in use meanwhile.
pub(super) struct PvaListener<'a, R> {
    pub(super) tables: &'a mut OperationTables,
    pub(super) replies: &'a mut R,
    pub(super) events: &'a mut Vec<CircuitEvent>,
}

impl<R: Replies> Listener for PvaListener<'_, R> {
    #[inline(always)]
    fn event(&mut self, event: Event) {
        match event {
            Event::Update { ioid, received, overrun, .. } => self.updated(ioid, received, &overrun),
            Event::Done { ioid, result } => self.done(ioid, result),
            other => self.rare(other),
        }
    }

    #[inline(always)]
    fn number_read(&mut self, ioid: Ioid, reading: Reading) {
        if let Some((_, _, Caller { ioid: Some(caller), conversion, .. })) = self.tables.take_caller(ioid) {
            self.replies.ended(caller, conversion.outcome_of(reading));
        }
    }

    fn room(&mut self, ioid: Ioid, kind: Kind, n_elements: usize) -> Option<Array> {
        let caller = self.tables.get(ioid).and_then(|operation| operation.first_caller());
        self.replies.room(caller, kind, n_elements)
    }

    fn large_array(&mut self, array: &Array) {
        self.replies.large_array(array);
    }
}

impl<R: Replies> PvaListener<'_, R> {
    fn done(&mut self, ioid: Ioid, result: Result<Received, RequestError>) {
        let Some((of, sid, caller)) = self.tables.take_caller(ioid) else { return self.structured_done(ioid, result) };
        let ended = caller.conversion.outcome(of.is_put(), result);
        match (caller.ioid, ended) {
            (Some(ioid), ended) => self.replies.ended(ioid, ended),
            (None, Ok(_)) => {}
            (None, Err(failure)) => {
                let cid = self.tables.cid(sid);
                self.events.extend(cid.and_then(|cid| conversion::refused_put(cid, failure)));
            }
        }
    }

    fn structured_done(&mut self, ioid: Ioid, result: Result<Received, RequestError>) {
        if let Some((caller, ended)) = self.tables.structured_done(ioid, result) {
            self.replies.ended(caller, ended);
        }
    }

    #[inline]
    fn updated(&mut self, ioid: Ioid, received: Received, overrun: &BitSet) {
        let Some(operation) = self.tables.get_mut(ioid) else { return };
        let OperationRole::Monitor { subscription, delivery, n_acknowledged, n_unacknowledged } = &mut operation.role
        else {
            return;
        };
        let (subscription, delivery) = (*subscription, *delivery);
        if *n_acknowledged > 0 {
            *n_unacknowledged += 1;
            if n_unacknowledged == n_acknowledged {
                let n_updates = std::mem::take(n_unacknowledged);
                self.tables.acknowledged.push((ioid, n_updates));
                self.tables.has_follow_up = true;
            }
        }
        let is_overrun = !overrun.is_empty();
        match (delivery, received) {
            (UpdateDelivery::Reading(conversion), received) => {
                self.replies.updated(subscription, conversion.update(received), is_overrun);
            }
            (UpdateDelivery::Row(target), received) => {
                let update = ReplyConversion::default().update(received);
                self.replies.row_updated(subscription, target, update, is_overrun);
            }
            (UpdateDelivery::Structure, Received::Structure(structure)) => {
                self.replies.structure_updated(subscription, structure, is_overrun);
            }
            // A monitor of structures receives nothing else.
            (UpdateDelivery::Structure, _) => {}
        }
    }

    /// Handles infrequent events.
    #[cold]
    fn rare(&mut self, event: Event) {
        match event {
            Event::Created { cid, sid } => {
                if self.tables.created(cid, sid) {
                    self.events.push(CircuitEvent::Confirmed { cid, sid });
                }
            }
            Event::CreateFailed { cid, status } => {
                self.channel_refused(cid, Refusal::Channel { text: status.message.to_string() });
            }
            // A second confirmation of the channel has another number, and is not used.
            Event::ChannelGone { cid, sid } if self.tables.sid(cid) == Some(sid) => {
                self.tables.remove_channel(sid);
                self.channel_refused(cid, Refusal::Channel { text: String::new() });
            }
            Event::ChannelGone { .. } => {}
            Event::Described { ioid, result } => {
                let Some(operation) = self.tables.remove(ioid) else { return };
                let result = result.map_err(|status| conversion::refusal(&status));
                if let OperationRole::DescribeTo(caller, path) = &operation.role {
                    return self.described_to(*caller, path, result);
                }
                // A server that only executes calls may not describe a type.
                let described = self.tables.described(operation.sid, result);
                let created = |(cid, server_channel)| CircuitEvent::Created { cid, server_channel };
                self.events.extend(described.map(created));
            }
            Event::Opened { ioid, kind } => {
                self.tables.opened(ioid);
                self.tables.structured_opened(ioid, kind);
            }
            Event::OpenFailed { ioid, reason } => self.open_failed(ioid, reason),
            Event::Ended { ioid, status } => self.monitor_ended(ioid, status),
            Event::Message { ioid, text, .. } => {
                let sid = self.tables.get_mut(ioid).map(|operation| operation.sid);
                let cid = sid.and_then(|sid| self.tables.cid(sid));
                self.events.extend(cid.map(|cid| CircuitEvent::Message { cid, text }));
            }
            Event::CreateUnanswered => self.events.push(CircuitEvent::CreateUnanswered),
            Event::Unresponsive => self.events.push(CircuitEvent::Unresponsive),
            Event::Closed(DisconnectReason::Rejected(status)) => {
                self.events.push(CircuitEvent::Closed(Some(conversion::refusal(&status))));
            }
            Event::Closed(_) => self.events.push(CircuitEvent::Closed(None)),
            // Handled before the bytes were decoded, so that it precedes the updates.
            Event::Responsive => {}
            // Only Phoebus sends rights. Every server reports a request that it refuses.
            Event::Rights { .. } => {}
            // Circuits with channels send no searches.
            Event::Claimed { .. } => {}
            // Handled before.
            Event::Done { .. } | Event::Update { .. } => {}
        }
    }

    /// A caller has requested the type of a field.
    fn described_to(&mut self, caller: Ioid, path: &str, result: Result<Option<Arc<StructureType>>, Refusal>) {
        let no_type = || Failure::Refused(Refusal::Reported { text: String::new() });
        let ended = match result {
            Ok(Some(kind)) => structured::field_type(kind, path).map(OperationOutcome::Type),
            Ok(None) => Err(no_type()),
            Err(refusal) => Err(Failure::Refused(refusal)),
        };
        self.replies.ended(caller, ended);
    }

    fn channel_refused(&mut self, cid: Cid, refusal: Refusal) {
        self.events.push(CircuitEvent::Refused { cid, refusal });
    }

    /// The server does not open an operation: all requests that wait for that have failed.
    fn open_failed(&mut self, ioid: Ioid, reason: RequestError) {
        let Some(operation) = self.tables.remove(ioid) else { return };
        let failure = conversion::failure(reason);
        if let OperationRole::Monitor { subscription, .. } = operation.role {
            let refusal = match failure {
                Failure::Refused(refusal) => refusal,
                _ => Refusal::Reported { text: String::new() },
            };
            return self.replies.refused(subscription, refusal);
        }
        let cid = self.tables.cid(operation.sid);
        for caller in operation.into_callers() {
            match caller.ioid {
                Some(ioid) => self.replies.ended(ioid, Err(failure.clone())),
                None => {
                    self.events.extend(cid.and_then(|cid| conversion::refused_put(cid, failure.clone())));
                }
            }
        }
    }

    fn monitor_ended(&mut self, ioid: Ioid, status: RequestStatus) {
        let Some(operation) = self.tables.remove(ioid) else { return };
        let OperationRole::Monitor { subscription, .. } = operation.role else { return };
        let refusal = match status.is_success() {
            true => Refusal::FurtherUpdates,
            false => conversion::refusal(&status),
        };
        self.replies.refused(subscription, refusal);
    }
}
