//! Handling of a server's replies: their effect on operations, channels and monitors.

use std::net::SocketAddr;
use std::sync::Arc;

use fodo_ca::client::{Circuit as Machine, Event, Listener, RejectedRequest};
use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_data::{Now, Reading};
use fodo_engine::{Cid, IdMap, Ioid, Sid, SubscriptionId};

use super::super::batch::{Batch, Failure, PutOrFailure, finish_get};
use super::super::channel::{Activated, ChannelCore, Responsiveness, Trouble};
use super::super::monitor::MonitorCore;
use super::super::notice::Notice;
use super::super::operation::{OperationOutcome, Waiter};
use super::super::{Refusal, WrongReply};
use super::requests::META_BIT;
use super::{Circuit, InProgress, MonitorSubscriptions, ServerChannel, State, Subscribed};

/// The parts of a circuit's state that replies and updates need; everything except the machine that reports them.
struct ReplyHandler<'a> {
    server: SocketAddr,
    operations: &'a mut IdMap<Ioid, InProgress>,
    batches: &'a mut [Batch],
    subscriptions: &'a IdMap<SubscriptionId, Subscribed>,
    received_ns: u64,
    called: &'a mut Vec<Arc<MonitorCore>>,
    woken: &'a mut Vec<Waiter>,
    /// Events that need the machine itself, and all events after those.
    events: &'a mut Vec<Event>,
}

impl Listener for ReplyHandler<'_> {
    #[inline(always)]
    fn event(&mut self, event: Event) {
        match event {
            Event::Update { subscription, dbr, result } if self.events.is_empty() => {
                self.update(subscription, dbr, result);
            }
            Event::ReadDone { ioid, dbr, result } if self.events.is_empty() => self.read_done(ioid, dbr, result),
            other => self.events.push(other),
        }
    }

    #[inline(always)]
    fn wants(&self, subscription: SubscriptionId) -> bool {
        self.subscriptions.get(subscription).is_some()
    }
}

impl State {
    fn reply_handler(&mut self, server: SocketAddr) -> (&mut Machine, ReplyHandler<'_>) {
        let State { machine, operations, batches, subscriptions, called, afterwards, events, received_ns, .. } = self;
        let woken = &mut afterwards.woken;
        let answering = ReplyHandler {
            server,
            operations,
            batches,
            subscriptions,
            received_ns: *received_ns,
            called,
            woken,
            events,
        };
        (machine, answering)
    }
}

impl Circuit {
    /// Decodes received bytes and handles their messages.
    pub(super) fn decode(self: &Arc<Self>, state: &mut State, bytes: &[u8], now: Now) {
        let (machine, mut answering) = state.reply_handler(self.server);
        machine.received(bytes, now, &mut answering);
        self.dispatch(state);
    }

    /// Handles the queued events of the machine.
    pub(super) fn dispatch(self: &Arc<Self>, state: &mut State) {
        let mut events = std::mem::take(&mut state.events);
        for event in events.drain(..) {
            match event {
                Event::ReadDone { ioid, dbr, result } => {
                    state.reply_handler(self.server).1.read_done(ioid, dbr, result)
                }
                Event::WriteDone { ioid, result } => {
                    state.reply_handler(self.server).1.end(ioid, PutOrFailure::Written(result));
                }
                Event::Update { subscription, dbr, result } => {
                    state.reply_handler(self.server).1.update(subscription, dbr, result);
                }
                Event::Created { cid, sid, native, count } => self.created(state, cid, sid, native, count),
                Event::Rights { cid, rights } => {
                    let State { channels, afterwards, .. } = &mut *state;
                    if let Some(channel) = channels.get(cid) {
                        channel.set_rights(rights, afterwards);
                    }
                }
                Event::CreateFailed { cid } | Event::ChannelGone { cid } => self.channel_refused(state, cid),
                Event::Complaint { about, status, text } => {
                    self.request_rejected(state, about, Refusal::of(status, text));
                }
                // Circuits with channels send no searches.
                Event::Claimed { .. } => {}
                Event::CreateUnanswered => state.channels.values().for_each(ChannelCore::create_unanswered),
                Event::Unresponsive => self.unresponsive(state),
                Event::Responsive => {
                    let State { channels, afterwards, .. } = state;
                    channels
                        .values()
                        .for_each(|channel| channel.set_responsiveness(Responsiveness::Responsive, afterwards));
                }
                Event::Closed(_) => self.close(state, None),
            }
        }
        // Keeps its allocation.
        state.events = events;
        MonitorCore::call_on_threads(&mut state.called);
    }

    fn created(self: &Arc<Self>, state: &mut State, cid: Cid, sid: Sid, native: DbrType, count: u32) {
        let Some(channel) = state.channels.get(cid).cloned() else {
            return state.machine.clear(cid, sid);
        };
        if let Some(active) = channel.server_channel_on(self) {
            // The second reply: the channel was requested again while the server was silent, or the server repeats itself.
            if active.sid != sid {
                state.machine.clear(cid, sid);
            }
            return;
        }
        let Some(kind) = native.kind() else {
            state.machine.clear(cid, sid);
            return self.channel_refused(state, cid);
        };
        let server_channel = ServerChannel { sid, kind, count };
        let activated = channel.activated(self, server_channel, &mut state.afterwards);
        let Some(Activated { operations, monitors }) = activated else {
            // Its last handle was dropped.
            state.channels.remove(cid);
            state.machine.clear(cid, sid);
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

    /// The server does not serve this channel, or has deleted it.
    fn channel_refused(&self, state: &mut State, cid: Cid) {
        self.lose(state, cid, Trouble::Refused(self.server, Refusal::Channel));
        self.close_if_unused(state);
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
                state.machine.forget(ioid);
                state.reply_handler(self.server).1.end(ioid, PutOrFailure::Failure(Failure::Refused(refusal)));
            }
            RejectedRequest::Subscription(subscription) => {
                if let Some(subscribed) = state.subscriptions.get(subscription) {
                    state.afterwards.woken.push(subscribed.monitor().refused(refusal));
                }
            }
            RejectedRequest::Put(cid) => {
                if let (Some(channel), Some(context)) = (state.channels.get(cid), self.context.upgrade()) {
                    let pv = channel.name().to_owned();
                    context.add_notice(Notice::PutRefused { pv, server: self.server, refusal });
                }
            }
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
        if ioid.0 & META_BIT != 0 {
            return self.meta_read(operation_of(ioid), dbr, result);
        }
        if let Some(batch) = batch_of(self.batches, ioid) {
            if let Some(thread) = batch.end_get(ioid, dbr, result) {
                self.woken.push(Waiter::Thread(thread));
            }
            return;
        }
        // A put expects another reply.
        if let Some(InProgress::Issued { expected: Some(expected), meta, .. }) = self.operations.get_mut(ioid) {
            let ended = finish_get(expected, meta, dbr, result);
            self.ended(ioid, ended);
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
            self.woken.extend(batch.end(ioid, reply).map(Waiter::Thread));
            return;
        }
        let Some(InProgress::Issued { expected, .. }) = self.operations.get(ioid) else { return };
        if let Some(ended) = reply.end(expected.as_ref()) {
            self.ended(ioid, ended);
        }
    }

    #[inline(always)]
    fn ended(&mut self, ioid: Ioid, ended: Result<OperationOutcome, Failure>) {
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
            Some(Subscribed::Description(monitor, requested)) => match result {
                Ok(_) if dbr != *requested => {
                    monitor.wrong_reply(WrongReply::Type { requested: *requested, received: dbr })
                }
                Ok(Reading { meta: Some(meta), .. }) => return monitor.set_meta(meta),
                _ => return,
            },
            None => return,
        };
        match waiter {
            Waiter::None => {}
            Waiter::Callback(monitor) => self.called.push(monitor),
            other => self.woken.push(other),
        }
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
