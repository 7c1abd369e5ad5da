//! The machine of a client's circuit with pvAccess, and what net must remember for it.
//!
//! An operation of pvAccess is opened before it is used. Therefore each channel keeps one open operation for each use: a
//! get with some attributes, a put with completion, and a put without. The first use costs two round trips, every other
//! one costs one. The callers of an open operation wait in a queue, because its replies arrive in the order of the calls.
//!
//! The requests of a channel must take effect in the order of the calls, but an operation sends a put only after the
//! reply to the one before. While one of the two put operations has puts that are not sent, the puts of the other one are
//! therefore held, and after a put without completion also the gets.

mod assigned;
mod conversion;
mod listener;
mod operations;
mod requests;
mod structured;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Instant;

use fodo_data::{Array, Kind, Now, Reading, Structure, Text, Value};
use fodo_engine::{Cid, Ioid, Sid, SubscriptionId};
use fodo_pva::client::{Circuit as PvaCircuit, Config, Decoding, Event, PreparedRequest, Task};

pub(crate) use self::assigned::check as check_field;
use self::conversion::ReplyConversion;
pub(super) use self::conversion::failure;
use self::listener::PvaListener;
pub(crate) use self::operations::value_kind;
use self::operations::{Caller, ClientOperation, HeldRequest, OperationRole, OperationTables, UpdateDelivery};
use self::requests::OperationUse;
pub(crate) use self::requests::of_structure_monitor;
use self::structured::LastRequest;
use crate::client::{
    Failure, MonitorOptions, OperationOutcome, OperationTask, Refusal, RowTarget, ServerChannel, WrongReply,
};
use crate::{Protocol, limit};

/// Receives the ends of operations and the updates of monitors as they are decoded.
pub(crate) trait Replies {
    /// An operation has ended; the caller may have given it up.
    fn ended(&mut self, ioid: Ioid, result: Result<OperationOutcome, Failure>);

    /// An update was received, or something that is not a value of the requested kind. `is_overrun`: the server has
    /// merged other updates into it.
    fn updated(&mut self, subscription: SubscriptionId, update: Result<Reading, WrongReply>, is_overrun: bool);

    /// The same for a PV of a monitor group.
    fn row_updated(
        &mut self,
        subscription: SubscriptionId,
        target: RowTarget,
        update: Result<Reading, WrongReply>,
        is_overrun: bool,
    );

    /// The same for a monitor of structures.
    fn structure_updated(&mut self, subscription: SubscriptionId, structure: Structure, is_overrun: bool);

    /// The server refuses a subscription or has ended it.
    fn refused(&mut self, subscription: SubscriptionId, refusal: Refusal);

    /// An array whose memory a large array may reuse, in the reply to an operation or, `None`, in anything else.
    fn room(&mut self, ioid: Option<Ioid>, kind: Kind, n_elements: usize) -> Option<Array>;

    /// A large array has arrived.
    fn large_array(&mut self, array: &Array);
}

/// An event that concerns a channel or the circuit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CircuitEvent {
    /// The server has confirmed a channel. Its type is not known yet, so only calls can be sent.
    Confirmed { cid: Cid, sid: Sid },
    /// The server has described the type of a channel, or does not describe it.
    Created { cid: Cid, server_channel: ServerChannel },
    /// The server does not have the channel, or no longer.
    Refused { cid: Cid, refusal: Refusal },
    /// The server refused a put without completion.
    PutRefused { cid: Cid, refusal: Refusal },
    /// The server has sent a text about an operation of a channel.
    Message { cid: Cid, text: Text },
    /// The server sends nothing although a channel waits for its confirmation.
    CreateUnanswered,
    /// The server is silent.
    Unresponsive,
    /// A channel that was cleared has sent its last put.
    Cleared,
    /// The circuit is no longer usable; why, if the server rejects the client.
    Closed(Option<Refusal>),
}

/// The machine of a client's circuit with pvAccess, with the operations that are kept open.
#[derive(Debug)]
pub(crate) struct PvaMachine {
    circuit: PvaCircuit,
    tables: OperationTables,
    last_request: LastRequest,
    /// Events of the machine that were not handled at once.
    machine_events: Vec<Event>,
    /// Whether the server is silent.
    is_silent: bool,
}

impl PvaMachine {
    pub(crate) fn new(config: &Config, now: Now) -> PvaMachine {
        PvaMachine {
            circuit: PvaCircuit::new(config, now),
            tables: OperationTables::default(),
            last_request: LastRequest::default(),
            machine_events: Vec::new(),
            is_silent: false,
        }
    }

    /// The circuit uses TLS, and this client has presented a certificate.
    pub(crate) fn use_certificate(&mut self) {
        self.circuit.use_certificate();
    }

    /// Requests a channel; ends with [`CircuitEvent::Created`] or [`CircuitEvent::Refused`].
    pub(crate) fn create(&mut self, cid: Cid, name: &str, now: Now) {
        self.circuit.create(cid, name, now);
    }

    /// Ends a channel with its operations, whether it has been described or not.
    pub(crate) fn clear(&mut self, cid: Cid) {
        if let Some(sid) = self.tables.sid(cid) {
            self.end_channel(cid, sid);
        }
    }

    /// The same, after the puts without completion that wait for the reply to the one before.
    pub(crate) fn clear_after_puts(&mut self, cid: Cid) {
        match self.tables.sid(cid) {
            Some(sid) if self.tables.has_unsent_puts(sid) => self.tables.clear_later(sid),
            _ => self.clear(cid),
        }
    }

    fn end_channel(&mut self, cid: Cid, sid: Sid) {
        self.tables.remove_channel(sid);
        self.circuit.clear(cid, sid);
    }

    /// Whether a channel that was cleared still has puts to send.
    pub(crate) fn has_cleared_channels(&self) -> bool {
        self.tables.n_clearing > 0
    }

    /// Starts an operation. A put without completion has no further event unless the server refuses it.
    #[inline]
    pub(crate) fn request(
        &mut self,
        ioid: Ioid,
        task: &OperationTask,
        server_channel: ServerChannel,
    ) -> Result<(), Failure> {
        let sid = server_channel.sid;
        match task {
            OperationTask::Connect => Ok(()),
            OperationTask::Get(request) => {
                let of = OperationUse::of_get(request.detail)?;
                let channel = self.tables.channel_with_value(sid)?;
                let caller = Caller { ioid: Some(ioid), conversion: ReplyConversion::of(request), ..Caller::default() };
                let open = channel.open;
                if self.tables.n_unsent(open[OperationUse::PutUnconfirmed as usize]) > 0 {
                    return self.tables.hold(sid, HeldRequest::Get(of, caller));
                }
                self.start_get(sid, of, open[of as usize], caller)
            }
            OperationTask::Put(value) => self.put(sid, OperationUse::Put, Some(ioid), value),
            OperationTask::PutUnconfirmed(value) => self.put(sid, OperationUse::PutUnconfirmed, None, value),
            OperationTask::CheckedPut(put) => {
                let of = if put.is_confirmed { OperationUse::Put } else { OperationUse::PutUnconfirmed };
                // First, so that a structure is reported as such.
                self.tables.channel_with_value(sid)?;
                let value = put.accepted(server_channel, Protocol::Pva)?;
                self.put(sid, of, put.is_confirmed.then_some(ioid), &value)
            }
            OperationTask::Structured(task) => self.request_structured(sid, ioid, task),
        }
    }

    /// Writes without a reply.
    pub(crate) fn put_unconfirmed(&mut self, sid: Sid, value: &Value) -> Result<(), Failure> {
        self.put(sid, OperationUse::PutUnconfirmed, None, value)
    }

    fn put(&mut self, sid: Sid, of: OperationUse, ioid: Option<Ioid>, value: &Value) -> Result<(), Failure> {
        let channel = self.tables.channel_with_value(sid)?;
        let is_state_name = channel.is_name_of_state(value);
        let open = channel.open;
        let bytes = if of == OperationUse::PutUnconfirmed { operations::put_bytes(value) } else { 0 };
        let caller = Caller { ioid, is_state_name, bytes, ..Caller::default() };
        if self.tables.n_unsent(open[of.other_put() as usize]) > 0 || self.tables.holds_put(sid) {
            return self.tables.hold(sid, HeldRequest::Put(of, caller, value.clone()));
        }
        self.start_put(sid, of, open[of as usize], caller, value.clone())
    }

    /// `open`: the open operation of the channel for this use.
    #[inline]
    fn start_get(&mut self, sid: Sid, of: OperationUse, open: Ioid, caller: Caller) -> Result<(), Failure> {
        let ioid = self.opened(sid, of, open)?;
        self.circuit.get(ioid).map_err(failure)?;
        self.tables.add_caller(ioid, caller);
        Ok(())
    }

    fn start_put(
        &mut self,
        sid: Sid,
        of: OperationUse,
        open: Ioid,
        caller: Caller,
        value: Value,
    ) -> Result<(), Failure> {
        let ioid = self.opened(sid, of, open)?;
        self.circuit.put(ioid, value).map_err(failure)?;
        self.tables.add_caller(ioid, caller);
        Ok(())
    }

    /// The open operation of a channel for this use; opens it if there is none.
    #[inline]
    fn opened(&mut self, sid: Sid, of: OperationUse, open: Ioid) -> Result<Ioid, Failure> {
        if open == operations::NONE { self.open(sid, of) } else { Ok(open) }
    }

    #[inline(never)]
    fn open(&mut self, sid: Sid, of: OperationUse) -> Result<Ioid, Failure> {
        let task = if of.is_put() { Task::Put } else { Task::Get };
        let ioid = self.circuit.open(sid, task, Decoding::Flat, of.prepared_request()).map_err(failure)?;
        self.tables.insert(ClientOperation::new(ioid, sid, OperationRole::Use(of)));
        Ok(ioid)
    }

    /// The server's number of a channel that it has confirmed.
    pub(crate) fn sid(&self, cid: Cid) -> Option<Sid> {
        self.tables.sid(cid)
    }

    /// Starts a subscription; returns the number with which it is cancelled. `request`: for a monitor of structures; `target`:
    /// for a PV of a monitor group.
    pub(crate) fn subscribe(
        &mut self,
        sid: Sid,
        options: &MonitorOptions,
        request: Option<&PreparedRequest>,
        target: Option<RowTarget>,
        subscription: SubscriptionId,
    ) -> Result<Ioid, Failure> {
        let (request, decoding) = match request {
            Some(request) => (Cow::Borrowed(request), Decoding::Structured),
            None => {
                self.tables.channel_with_value(sid)?;
                (requests::of_monitor(options)?, Decoding::Flat)
            }
        };
        let ioid = self.circuit.open(sid, Task::Monitor, decoding, &request).map_err(failure)?;
        self.circuit.start(ioid).map_err(failure)?;
        let delivery = match (decoding, target) {
            (Decoding::Structured, _) => UpdateDelivery::Structure,
            (Decoding::Flat, Some(target)) => UpdateDelivery::Row(target),
            (Decoding::Flat, None) => UpdateDelivery::Reading(ReplyConversion::of(&options.request)),
        };
        let n_acknowledged = request.window().map_or(0, |window| (window / 2).clamp(1, limit::PVA_ACKNOWLEDGED));
        let role = OperationRole::Monitor { subscription, delivery, n_acknowledged, n_unacknowledged: 0 };
        self.tables.insert(ClientOperation::new(ioid, sid, role));
        Ok(ioid)
    }

    /// Ends a subscription.
    pub(crate) fn cancel(&mut self, ioid: Ioid) {
        if self.tables.remove(ioid).is_some() {
            self.circuit.destroy(ioid);
        }
    }

    /// Whether the server is silent: its next bytes mean that it responds again.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Processes received bytes. Replies and updates are passed on at once; `events` receives the other events.
    pub(crate) fn received(
        &mut self,
        bytes: &[u8],
        now: Now,
        replies: &mut impl Replies,
        events: &mut Vec<CircuitEvent>,
    ) {
        self.is_silent = false;
        let mut listener = PvaListener { tables: &mut self.tables, replies, events };
        self.circuit.received(bytes, now, &mut listener);
        if self.tables.has_follow_up {
            self.follow_up(replies, events);
        }
    }

    /// Performs what the events in received bytes require of the machine.
    fn follow_up(&mut self, replies: &mut impl Replies, events: &mut Vec<CircuitEvent>) {
        self.tables.has_follow_up = false;
        for (cid, sid) in std::mem::take(&mut self.tables.rejected) {
            self.circuit.clear(cid, sid);
        }
        for sid in std::mem::take(&mut self.tables.created) {
            self.describe(sid, events);
        }
        let mut acknowledged = std::mem::take(&mut self.tables.acknowledged);
        for (ioid, n_updates) in acknowledged.drain(..) {
            // Fails only if the monitor has ended meanwhile.
            let _ = self.circuit.acknowledge(ioid, n_updates);
        }
        // Keeps its allocation.
        self.tables.acknowledged = acknowledged;
        for ioid in std::mem::take(&mut self.tables.opened_puts) {
            self.put_waiting(ioid, replies);
        }
        for sid in std::mem::take(&mut self.tables.released) {
            self.release(sid, replies, events);
        }
    }

    /// Requests the type of a channel that the server has confirmed.
    fn describe(&mut self, sid: Sid, events: &mut Vec<CircuitEvent>) {
        let Some(cid) = self.tables.cid(sid) else { return };
        match self.circuit.describe(sid, "") {
            Ok(ioid) => self.tables.insert(ClientOperation::new(ioid, sid, OperationRole::Describe)),
            Err(error) => {
                self.end_channel(cid, sid);
                events.push(CircuitEvent::Refused { cid, refusal: Refusal::Reported { text: error.to_string() } });
            }
        }
    }

    /// Starts the held requests of a channel that can be sent now, and ends a channel that was cleared if it has no more.
    fn release(&mut self, sid: Sid, replies: &mut impl Replies, events: &mut Vec<CircuitEvent>) {
        let Some(cid) = self.tables.cid(sid) else { return };
        let mut kept = VecDeque::new();
        let mut is_put_kept = false;
        for held in self.tables.take_held(sid) {
            let Some(open) = self.tables.open_operations(sid) else { return };
            let n_unsent = |of: OperationUse| self.tables.n_unsent(open[of as usize]);
            match held {
                HeldRequest::Get(of, caller) if n_unsent(OperationUse::PutUnconfirmed) > 0 => {
                    kept.push_back(HeldRequest::Get(of, caller));
                }
                HeldRequest::Get(of, caller) => {
                    let started = self.start_get(sid, of, open[of as usize], caller);
                    if let (Err(failure), Some(ioid)) = (started, caller.ioid) {
                        replies.ended(ioid, Err(failure));
                    }
                }
                HeldRequest::Structured(caller, task) if is_put_kept || n_unsent(OperationUse::PutUnconfirmed) > 0 => {
                    is_put_kept = true;
                    kept.push_back(HeldRequest::Structured(caller, task));
                }
                HeldRequest::Structured(caller, task) => {
                    if let Err(failure) = self.start_structured(sid, caller, &task) {
                        replies.ended(caller, Err(failure));
                    }
                }
                HeldRequest::Put(of, caller, value) if is_put_kept || n_unsent(of.other_put()) > 0 => {
                    is_put_kept = true;
                    kept.push_back(HeldRequest::Put(of, caller, value));
                }
                HeldRequest::Put(of, caller, value) => {
                    match (self.start_put(sid, of, open[of as usize], caller, value), caller.ioid) {
                        (Ok(()), _) => {}
                        (Err(failure), Some(ioid)) => replies.ended(ioid, Err(failure)),
                        (Err(failure), None) => events.extend(conversion::refused_put(cid, failure)),
                    }
                }
            }
        }
        self.tables.keep_held(sid, kept);
        if self.tables.is_clearing(sid) && !self.tables.has_unsent_puts(sid) {
            self.end_channel(cid, sid);
            events.push(CircuitEvent::Cleared);
        }
    }

    /// Performs actions that are due at `now`.
    pub(crate) fn tick(&mut self, now: Now, events: &mut Vec<CircuitEvent>) {
        self.circuit.tick(now, &mut self.machine_events);
        for event in self.machine_events.drain(..) {
            match event {
                Event::Unresponsive => {
                    self.is_silent = true;
                    events.push(CircuitEvent::Unresponsive);
                }
                Event::CreateUnanswered => events.push(CircuitEvent::CreateUnanswered),
                // Time alone causes no other event.
                _ => {}
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.circuit.deadline()
    }

    /// The number of bytes that wait to be sent.
    #[inline]
    pub(crate) fn pending_bytes(&self) -> usize {
        self.circuit.pending_bytes()
    }

    /// The same, with the puts without completion that wait for the reply to the one before.
    #[inline]
    pub(crate) fn queued_bytes(&self) -> usize {
        self.circuit.pending_bytes() + self.tables.unsent_bytes
    }

    pub(crate) fn ready(&mut self) -> &[u8] {
        self.circuit.ready()
    }

    pub(crate) fn sent(&mut self, n: usize) {
        self.circuit.sent(n);
    }

    /// Whether nothing is left over, in the machine or beside it.
    #[cfg(test)]
    pub(crate) fn holds_nothing(&self) -> bool {
        self.circuit.holds_nothing() && self.tables.is_empty()
    }
}

#[cfg(test)]
mod tests;
