//! Handling of a server's replies: their effect on operations, channels and monitors.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_ca::client::{Event, Listener, RejectedRequest};
use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_data::{Array, Kind, Now, Reading, Scalar, Structure, Value};
use fodo_engine::{Cid, IdMap, Ioid, Sid, SubscriptionId};

use super::super::batch::{Batch, Failure, PutOrFailure, finish_get};
use super::super::channel::{Activated, ChannelCore, Responsiveness, Trouble};
use super::super::group::{GroupRow, single_number};
use super::super::monitor::MonitorCore;
use super::super::notice::Notice;
use super::super::operation::{OperationOutcome, Waiter};
use super::super::{Refusal, WrongReply};
use super::requests::META_BIT;
use super::row_stages::{RowStages, RowTarget};
use super::spare_arrays::SpareArrays;
use super::{Circuit, ClientMachine, InProgress, MonitorSubscriptions, ServerChannel, State, Subscribed};
use crate::pva::client::{CircuitEvent, Replies};

/// The parts of a circuit's state that replies and updates need; everything except the machine that reports them.
struct ReplyHandler<'a> {
    server: SocketAddr,
    operations: &'a mut IdMap<Ioid, InProgress>,
    batches: &'a mut [Batch],
    subscriptions: &'a IdMap<SubscriptionId, Subscribed>,
    row_stages: &'a mut RowStages,
    began: Instant,
    received_ns: u64,
    spare_arrays: &'a mut SpareArrays,
    called: &'a mut Vec<Arc<MonitorCore>>,
    woken: &'a mut Vec<Waiter>,
}

/// Receives the events of a machine for Channel Access.
struct CaListener<'a> {
    replies: ReplyHandler<'a>,
    /// Events that need the machine itself, and all events after those.
    events: &'a mut Vec<Event>,
}

impl Listener for CaListener<'_> {
    #[inline(always)]
    fn event(&mut self, event: Event) {
        match event {
            Event::Update { subscription, dbr, result } if self.events.is_empty() => {
                self.replies.update(subscription, dbr, result);
            }
            Event::ReadDone { ioid, dbr, result } if self.events.is_empty() => {
                self.replies.read_done(ioid, dbr, result);
            }
            other => self.events.push(other),
        }
    }

    #[inline(always)]
    fn wants(&self, subscription: SubscriptionId) -> bool {
        self.replies.subscriptions.get(subscription).is_some()
    }

    fn room(&mut self, ioid: Option<Ioid>, kind: Kind, n_elements: usize) -> Option<Array> {
        self.replies.room(ioid, kind, n_elements)
    }

    fn large_array(&mut self, array: &Array) {
        self.replies.large_array(array);
    }
}

/// The replies and updates of a machine for pvAccess.
impl Replies for ReplyHandler<'_> {
    #[inline]
    fn ended(&mut self, ioid: Ioid, result: Result<OperationOutcome, Failure>) {
        match batch_of(self.batches, ioid) {
            Some(batch) => self.woken.extend(batch.end_with(ioid, result)),
            None => self.end_single(ioid, result),
        }
    }

    #[inline]
    fn updated(&mut self, subscription: SubscriptionId, update: Result<Reading, WrongReply>, is_overrun: bool) {
        let Some(Subscribed::Operation(monitor, _)) = self.subscriptions.get(subscription) else { return };
        if is_overrun {
            monitor.count_overrun();
        }
        let waiter = match update {
            Ok(reading) => monitor.updated(reading, self.received_ns),
            Err(reply) => monitor.wrong_reply(reply),
        };
        self.wake(waiter);
    }

    fn structure_updated(&mut self, subscription: SubscriptionId, structure: Structure, is_overrun: bool) {
        let Some(Subscribed::Operation(monitor, _)) = self.subscriptions.get(subscription) else { return };
        if is_overrun {
            monitor.count_overrun();
        }
        let waiter = monitor.structure_updated(structure, self.received_ns);
        self.wake(waiter);
    }

    #[inline]
    fn row_updated(
        &mut self,
        subscription: SubscriptionId,
        RowTarget { stage, index }: RowTarget,
        update: Result<Reading, WrongReply>,
        is_overrun: bool,
    ) {
        let reply = match update {
            Ok(Reading { value, alarm, time, .. }) => match single_number(&value) {
                Some(number) => {
                    return self.row_stages.push(stage, GroupRow::new(index, number, alarm, time), is_overrun);
                }
                None => WrongReply::NotANumber { kind: value.kind(), count_max: 0 },
            },
            Err(reply) => reply,
        };
        if let Some(subscribed) = self.subscriptions.get(subscription) {
            self.row_stages.hand_over(self.woken);
            let waiter = subscribed.monitor().wrong_reply(reply);
            self.wake(waiter);
        }
    }

    fn refused(&mut self, subscription: SubscriptionId, refusal: Refusal) {
        self.row_stages.hand_over(self.woken);
        if let Some(subscribed) = self.subscriptions.get(subscription) {
            let waiter = subscribed.monitor().refused(refusal);
            self.wake(waiter);
        }
    }

    fn room(&mut self, ioid: Option<Ioid>, kind: Kind, n_elements: usize) -> Option<Array> {
        let in_progress = ioid.and_then(|ioid| self.operations.get(ioid));
        let given = in_progress.and_then(|in_progress| in_progress.operation().take_buffer());
        // The caller's array may be one that this circuit keeps, so it is dropped first.
        given.filter(|given| !given.is_shared()).or_else(|| self.spare_arrays.take(kind, n_elements))
    }

    fn large_array(&mut self, array: &Array) {
        self.spare_arrays.keep(array, self.began + Duration::from_nanos(self.received_ns));
    }
}

impl State {
    fn reply_handler(&mut self) -> (&mut ClientMachine, ReplyHandler<'_>, &mut Vec<Event>, &mut Vec<CircuitEvent>) {
        let State { server, machine, operations, batches, subscriptions, row_stages, spare_arrays, called, .. } = self;
        let replies = ReplyHandler {
            server: *server,
            operations,
            batches,
            subscriptions,
            row_stages,
            began: self.began,
            received_ns: self.received_ns,
            spare_arrays,
            called,
            woken: &mut self.afterwards.woken,
        };
        (machine, replies, &mut self.events, &mut self.pva_events)
    }

    fn replies(&mut self) -> ReplyHandler<'_> {
        self.reply_handler().1
    }
}

impl Circuit {
    /// Decodes received bytes and handles their messages.
    pub(super) fn decode(self: &Arc<Self>, state: &mut State, bytes: &[u8], now: Now) {
        match state.reply_handler() {
            (ClientMachine::Ca(machine), replies, events, _) => {
                machine.received(bytes, now, &mut CaListener { replies, events });
                self.dispatch(state);
            }
            (ClientMachine::Pva(_), ..) => self.decode_pva(state, bytes, now),
        }
    }

    #[inline(never)]
    fn decode_pva(self: &Arc<Self>, state: &mut State, bytes: &[u8], now: Now) {
        if let ClientMachine::Pva(machine) = &state.machine
            && machine.is_silent()
        {
            // Before the updates in these bytes.
            self.responsive(state);
        }
        if let (ClientMachine::Pva(machine), mut replies, _, events) = state.reply_handler() {
            machine.received(bytes, now, &mut replies, events);
        }
        self.dispatch_pva(state);
    }

    /// Performs actions of the machine that are due.
    pub(super) fn tick(self: &Arc<Self>, state: &mut State, now: Now) {
        match &mut state.machine {
            ClientMachine::Ca(machine) => {
                machine.tick(now, &mut state.events);
                self.dispatch(state);
            }
            ClientMachine::Pva(machine) => {
                machine.tick(now, &mut state.pva_events);
                self.dispatch_pva(state);
            }
        }
    }

    /// Handles the queued events of the machine for Channel Access.
    fn dispatch(self: &Arc<Self>, state: &mut State) {
        let mut events = std::mem::take(&mut state.events);
        for event in events.drain(..) {
            if !matches!(event, Event::Update { .. }) {
                state.hand_over_rows();
            }
            match event {
                Event::ReadDone { ioid, dbr, result } => state.replies().read_done(ioid, dbr, result),
                Event::WriteDone { ioid, result } => state.replies().end(ioid, PutOrFailure::Written(result)),
                Event::Update { subscription, dbr, result } => state.replies().update(subscription, dbr, result),
                Event::Created { cid, sid, native, count } => self.created_ca(state, cid, sid, native, count),
                Event::Rights { cid, rights } => {
                    let State { channels, afterwards, .. } = &mut *state;
                    if let Some(channel) = channels.get(cid) {
                        channel.set_rights(rights, afterwards);
                    }
                }
                Event::CreateFailed { cid } | Event::ChannelGone { cid } => {
                    self.channel_refused(state, cid, Refusal::Channel { text: String::new() });
                }
                Event::Complaint { about, status, text } => {
                    self.request_rejected(state, about, Refusal::of(status, text));
                }
                // Circuits with channels send no searches.
                Event::Claimed { .. } => {}
                Event::CreateUnanswered => state.channels.values().for_each(ChannelCore::create_unanswered),
                Event::Unresponsive => self.unresponsive(state),
                Event::Responsive => self.responsive(state),
                Event::Closed(_) => self.close(state, None),
            }
        }
        // Keeps its allocation.
        state.events = events;
        state.hand_over_rows();
        MonitorCore::call_on_threads(&mut state.called);
    }

    /// The same for pvAccess.
    fn dispatch_pva(self: &Arc<Self>, state: &mut State) {
        state.hand_over_rows();
        let mut events = std::mem::take(&mut state.pva_events);
        for event in events.drain(..) {
            match event {
                CircuitEvent::Confirmed { cid, sid } => self.issue_calls(state, cid, sid),
                CircuitEvent::Created { cid, server_channel } => self.created(state, cid, server_channel),
                CircuitEvent::Refused { cid, refusal } => self.channel_refused(state, cid, refusal),
                CircuitEvent::PutRefused { cid, refusal } => self.put_refused(state, cid, refusal),
                CircuitEvent::Message { cid, text } => {
                    if let (Some(channel), Some(context)) = (state.channels.get(cid), self.context.upgrade()) {
                        let (pv, text) = (channel.name().to_owned(), text.to_string());
                        context.add_notice(Notice::ServerMessage { pv, server: self.server, text });
                    }
                }
                CircuitEvent::Cleared => self.close_if_unused(state),
                CircuitEvent::CreateUnanswered => state.channels.values().for_each(ChannelCore::create_unanswered),
                CircuitEvent::Unresponsive => self.unresponsive(state),
                CircuitEvent::Closed(refusal) => self.close(state, refusal),
            }
        }
        state.pva_events = events;
        MonitorCore::call_on_threads(&mut state.called);
    }

    fn created_ca(self: &Arc<Self>, state: &mut State, cid: Cid, sid: Sid, native: DbrType, count: u32) {
        match native.kind() {
            Some(kind) => self.created(state, cid, ServerChannel { sid, kind, count }),
            None => {
                state.machine.clear(cid, Some(sid));
                self.channel_refused(state, cid, Refusal::Channel { text: String::new() });
            }
        }
    }

    /// The server has confirmed a channel.
    fn created(self: &Arc<Self>, state: &mut State, cid: Cid, server_channel: ServerChannel) {
        let sid = server_channel.sid;
        let Some(channel) = state.channels.get(cid).cloned() else {
            return state.machine.clear(cid, Some(sid));
        };
        if let Some(active) = channel.server_channel_on(self) {
            // The second reply: the channel was requested again while the server was silent, or the server repeats itself.
            if active.sid != sid {
                state.machine.clear(cid, Some(sid));
            }
            return;
        }
        let activated = channel.activated(self, server_channel, &mut state.afterwards);
        let Some(Activated { operations, monitors }) = activated else {
            // Its last handle was dropped.
            state.channels.remove(cid);
            state.machine.clear(cid, Some(sid));
            return self.close_if_unused(state);
        };
        for (operation, task) in operations {
            self.issue_locked(state, &operation, &task, server_channel);
        }
        for monitor in monitors {
            self.subscribe_locked(state, &monitor, server_channel);
            state.afterwards.dropped.push(monitor);
        }
    }

    /// The server has confirmed a channel and not described it yet. Calls need no description, and a server that only
    /// executes calls may never send one.
    pub(super) fn issue_calls(self: &Arc<Self>, state: &mut State, cid: Cid, sid: Sid) {
        let Some(channel) = state.channels.get(cid) else { return };
        for (operation, task) in channel.take_waiting_calls() {
            // The type is not used.
            self.issue_locked(state, &operation, &task, ServerChannel { sid, kind: Kind::Text, count: 0 });
        }
    }

    /// The server does not serve this channel, or has deleted it.
    fn channel_refused(&self, state: &mut State, cid: Cid, refusal: Refusal) {
        self.lose(state, cid, Trouble::Refused(self.server, refusal));
        self.close_if_unused(state);
    }

    /// The server responds again.
    fn responsive(&self, state: &mut State) {
        let State { channels, afterwards, .. } = state;
        channels.values().for_each(|channel| channel.set_responsiveness(Responsiveness::Responsive, afterwards));
    }

    /// The server has refused a put without completion.
    fn put_refused(&self, state: &mut State, cid: Cid, refusal: Refusal) {
        if let (Some(channel), Some(context)) = (state.channels.get(cid), self.context.upgrade()) {
            let pv = channel.name().to_owned();
            context.add_notice(Notice::PutRefused { pv, server: self.server, refusal });
        }
    }

    /// Ends a channel's operations and subscriptions here; the search for its name starts again.
    pub(super) fn lose(&self, state: &mut State, cid: Cid, trouble: Trouble) {
        let Some(channel) = state.channels.remove(cid) else { return };
        for subscription in channel.subscriptions().iter().flat_map(MonitorSubscriptions::ids) {
            let lost = state.subscriptions.remove(subscription);
            state.afterwards.dropped.extend(lost.map(Subscribed::into_monitor));
        }
        self.drop_operations(state, Some(cid));
        channel.lost(trouble, &mut state.afterwards);
    }

    /// The server is silent. Active channels are kept; the others have waited long enough.
    fn unresponsive(&self, state: &mut State) {
        let State { channels, afterwards, .. } = &mut *state;
        channels.values().for_each(|channel| channel.set_responsiveness(Responsiveness::Silent, afterwards));
        let unconfirmed: Vec<Cid> =
            channels.values().filter(|channel| channel.is_connecting()).map(|channel| channel.cid()).collect();
        for cid in unconfirmed {
            state.machine.clear(cid, None);
            self.lose(state, cid, Trouble::NoReply(self.server));
        }
        if state.channels.is_empty() {
            // Not `close_if_unused`: a silent server may never accept the pending bytes.
            self.close(state, None);
        }
    }

    /// The server has rejected a request.
    fn request_rejected(&self, state: &mut State, about: RejectedRequest, refusal: Refusal) {
        match about {
            RejectedRequest::Operation(ioid) => {
                let ioid = operation_of(ioid);
                state.replies().end(ioid, PutOrFailure::Failure(Failure::Refused(refusal)));
            }
            RejectedRequest::Subscription(subscription) => {
                if let Some(subscribed) = state.subscriptions.get(subscription) {
                    state.afterwards.woken.push(subscribed.monitor().refused(refusal));
                }
            }
            RejectedRequest::Put(cid) => self.put_refused(state, cid, refusal),
            RejectedRequest::Channel(cid) => {
                if let Some(channel) = state.channels.get(cid) {
                    channel.create_rejected(refusal);
                }
            }
            RejectedRequest::Circuit => {}
        }
    }
}

impl ReplyHandler<'_> {
    /// Handles the reply to a get, or the first of two replies for [`super::super::Detail::Full`].
    #[inline]
    fn read_done(&mut self, ioid: Ioid, dbr: DbrType, result: Result<Reading, Eca>) {
        if let Some(batch) = batch_of(self.batches, ioid) {
            if let Some(waiter) = batch.end_get(ioid, dbr, result) {
                self.woken.push(waiter);
            }
            return;
        }
        if ioid.0 & META_BIT != 0 {
            return self.meta_read(operation_of(ioid), dbr, result);
        }
        // A put expects another reply.
        if let Some(InProgress::Issued { expected: Some(expected), meta, .. }) = self.operations.get_mut(ioid) {
            let ended = finish_get(expected, meta, dbr, result);
            self.end_single(ioid, ended);
        }
    }

    /// Handles units, limits and labels for this operation.
    fn meta_read(&mut self, of: Ioid, dbr: DbrType, result: Result<Reading, Eca>) {
        let awaiting = match batch_of(self.batches, of) {
            Some(batch) => batch.awaited_meta(of),
            None => match self.operations.get_mut(of) {
                Some(InProgress::Issued { expected: Some(expected), meta, .. }) => Some((&*expected, meta)),
                _ => None,
            },
        };
        let Some((expected, meta)) = awaiting else { return };
        let failure = match (result, expected.check_meta(dbr)) {
            (Ok(reading), Ok(())) => {
                *meta = reading.meta;
                return;
            }
            (Ok(_), Err(reply)) => Failure::WrongReply(reply),
            (Err(status), _) => Failure::Refused(status.into()),
        };
        self.end(of, PutOrFailure::Failure(failure));
    }

    /// Ends an operation if it waits for such a reply.
    fn end(&mut self, ioid: Ioid, reply: PutOrFailure) {
        if let Some(batch) = batch_of(self.batches, ioid) {
            self.woken.extend(batch.end(ioid, reply));
            return;
        }
        let Some(InProgress::Issued { expected, .. }) = self.operations.get(ioid) else { return };
        if let Some(ended) = reply.end(expected.as_ref()) {
            self.end_single(ioid, ended);
        }
    }

    /// Ends an individual operation.
    #[inline(always)]
    fn end_single(&mut self, ioid: Ioid, ended: Result<OperationOutcome, Failure>) {
        let Some(InProgress::Issued { operation, .. }) = self.operations.remove(ioid) else { return };
        match operation.end(ended.map_err(|failure| failure.error(operation.channel(), self.server))) {
            Waiter::None => {}
            waiter => self.woken.push(waiter),
        }
    }

    /// Handles an update, or an error, of a subscription that may have ended meanwhile.
    #[inline]
    fn update(&mut self, subscription: SubscriptionId, dbr: DbrType, result: Result<Reading, Eca>) {
        let waiter = match self.subscriptions.get(subscription) {
            Some(Subscribed::Updates(monitor, expected)) => match result {
                Ok(mut reading) => match expected.check(dbr, &mut reading.value) {
                    Ok(()) => monitor.updated(reading, self.received_ns),
                    Err(reply) => monitor.wrong_reply(reply),
                },
                Err(status) => monitor.refused(status.into()),
            },
            Some(Subscribed::Rows(monitor, target)) => match result {
                Ok(Reading { value: Value::Scalar(Scalar::F64(number)), alarm, time, .. })
                    if dbr == DbrType::TIME_DOUBLE =>
                {
                    return self.row_stages.push(target.stage, GroupRow::new(target.index, number, alarm, time), false);
                }
                other => {
                    self.row_stages.hand_over(self.woken);
                    no_row(monitor, dbr, other)
                }
            },
            Some(Subscribed::Description(monitor, requested)) => match result {
                Ok(_) if dbr != *requested => {
                    monitor.wrong_reply(WrongReply::Type { requested: *requested, received: dbr })
                }
                Ok(Reading { meta: Some(meta), .. }) => return monitor.set_meta(meta),
                _ => return,
            },
            Some(Subscribed::Operation(..)) | None => return,
        };
        self.wake(waiter);
    }

    #[inline(always)]
    fn wake(&mut self, waiter: Waiter) {
        match waiter {
            Waiter::None => {}
            Waiter::Callback(monitor) => self.called.push(monitor),
            other => self.woken.push(other),
        }
    }
}

/// What a server of Channel Access has sent to a PV of a group instead of a number. Returns the waiter to wake.
#[cold]
fn no_row(monitor: &Arc<MonitorCore>, dbr: DbrType, result: Result<Reading, Eca>) -> Waiter {
    match result {
        Ok(reading) if dbr == DbrType::TIME_DOUBLE => {
            monitor.wrong_reply(WrongReply::Count { requested: 1, received: reading.value.len() })
        }
        Ok(_) => monitor.wrong_reply(WrongReply::Type { requested: DbrType::TIME_DOUBLE, received: dbr }),
        Err(status) => monitor.refused(status.into()),
    }
}

/// The operation to which a request with this number belongs.
fn operation_of(ioid: Ioid) -> Ioid {
    Ioid(ioid.0 & !META_BIT)
}

/// The batch that contains this number.
#[inline]
fn batch_of(batches: &mut [Batch], ioid: Ioid) -> Option<&mut Batch> {
    batches.iter_mut().find(|batch| batch.numbers().contains(&ioid.0))
}
