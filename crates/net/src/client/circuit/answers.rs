//! What a server's answers do to operations, channels and monitors.

use std::net::SocketAddr;
use std::sync::Arc;

use fodo_ca::client::{Circuit as Machine, Event, Listener};
use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_ca::{Cid, Ioid, Sid, SubscriptionId};
use fodo_data::{Now, Reading};

use super::super::batch::{Batch, Failure};
use super::super::channel::Activated;
use super::super::monitor::MonitorCore;
use super::super::numbering::Numbering;
use super::super::operation::{Outcome, Waiter};
use super::super::{Error, Refusal};
use super::place::as_array;
use super::{Circuit, InProgress, Place, Seat, State, Subscribed};

/// What answers end and updates reach; all of a circuit's state but the machine that tells of them.
struct Answering<'a> {
    server: SocketAddr,
    operations: &'a mut Numbering<Ioid, InProgress>,
    batches: &'a mut [Batch],
    subscriptions: &'a Numbering<SubscriptionId, Subscribed>,
    heard_ns: u64,
    called: &'a mut Vec<Arc<MonitorCore>>,
    woken: &'a mut Vec<Waiter>,
    /// Events for which the machine itself is needed, and those behind them.
    events: &'a mut Vec<Event>,
}

impl Listener for Answering<'_> {
    #[inline(always)]
    fn event(&mut self, event: Event) {
        match event {
            Event::Update { subscription, result } if self.events.is_empty() => self.update(subscription, result),
            Event::ReadDone { ioid, result } if self.events.is_empty() => self.read_done(ioid, result),
            other => self.events.push(other),
        }
    }

    #[inline(always)]
    fn wants(&self, subscription: SubscriptionId) -> bool {
        self.subscriptions.get(subscription).is_some()
    }
}

impl State {
    fn answering(&mut self, server: SocketAddr) -> (&mut Machine, Answering<'_>) {
        let State { machine, operations, batches, subscriptions, called, afterwards, events, heard_ns, .. } = self;
        let woken = &mut afterwards.woken;
        let answering =
            Answering { server, operations, batches, subscriptions, heard_ns: *heard_ns, called, woken, events };
        (machine, answering)
    }
}

impl Circuit {
    /// Takes bytes in and does what they say.
    pub(super) fn hear(self: &Arc<Self>, state: &mut State, bytes: &[u8], now: Now) {
        let (machine, mut answering) = state.answering(self.server);
        machine.received(bytes, now, &mut answering);
        self.dispatch(state);
    }

    /// Does what the machine has told.
    pub(super) fn dispatch(self: &Arc<Self>, state: &mut State) {
        let mut events = std::mem::take(&mut state.events);
        for event in events.drain(..) {
            match event {
                Event::ReadDone { ioid, result } => state.answering(self.server).1.read_done(ioid, result),
                Event::WriteDone { ioid, result } => {
                    state.answering(self.server).1.end(ioid, Some(false), result.map(|()| Outcome::Written));
                }
                Event::Update { subscription, result } => {
                    state.answering(self.server).1.update(subscription, result);
                }
                Event::Created { cid, sid, native, count } => self.created(state, cid, sid, native, count),
                Event::Rights { cid, rights } => {
                    let State { channels, afterwards, .. } = &mut *state;
                    if let Some(channel) = channels.get(cid) {
                        channel.set_rights(rights, afterwards);
                    }
                }
                Event::CreateFailed { cid } | Event::ChannelGone { cid } => self.gone(state, cid),
                Event::Complaint { ioid: Some(ioid), status, .. } => {
                    state.answering(self.server).1.end(ioid, None, Err(status));
                }
                Event::Complaint { cid, status, .. } => {
                    if let Some(channel) = cid.and_then(|cid| state.channels.get(cid)) {
                        channel.complained(status);
                    }
                }
                // Nothing is asked for on circuits of channels.
                Event::Claimed { .. } => {}
                Event::Unresponsive | Event::Responsive => {
                    let is_responsive = event == Event::Responsive;
                    let State { channels, afterwards, .. } = state;
                    channels.values().for_each(|channel| channel.set_responsive(is_responsive, afterwards));
                }
                Event::Closed(_) => self.close(state, None),
            }
        }
        // With its memory.
        state.events = events;
        MonitorCore::call(&mut state.called);
    }

    fn created(self: &Arc<Self>, state: &mut State, cid: Cid, sid: Sid, native: DbrType, count: u32) {
        let Some(channel) = state.channels.get(cid).cloned() else {
            return state.machine.clear(cid, sid);
        };
        let Some(kind) = native.kind() else {
            state.machine.clear(cid, sid);
            return self.gone(state, cid);
        };
        let place = Place { sid, kind, count };
        let activated = channel.activated(self, place, &mut state.afterwards);
        let Some(Activated { operations, monitors }) = activated else {
            // Its last handle is gone.
            state.channels.remove(cid);
            state.machine.clear(cid, sid);
            return self.close_if_unused(state);
        };
        for (operation, task) in operations {
            self.issue_locked(state, &operation, &task, place);
        }
        for monitor in monitors {
            self.subscribe_locked(state, &monitor, place);
            state.afterwards.dropped.push(monitor);
        }
    }

    /// The server does not serve this channel, or no longer.
    fn gone(&self, state: &mut State, cid: Cid) {
        let Some(channel) = state.channels.remove(cid) else { return };
        for subscription in channel.seats().iter().flat_map(Seat::subscriptions) {
            let lost = state.subscriptions.remove(subscription);
            state.afterwards.dropped.extend(lost.map(Subscribed::into_monitor));
        }
        self.drop_operations(state, Some(cid));
        channel.lost(self.server, Some(Refusal::Channel), &mut state.afterwards);
        self.close_if_unused(state);
    }
}

impl Answering<'_> {
    /// An answer to a get, or the first of the two to one that wants everything.
    #[inline]
    fn read_done(&mut self, ioid: Ioid, result: Result<Reading, Eca>) {
        if let Some(batch) = batch_of(self.batches, ioid) {
            return end_in(batch, ioid, Some(true), result.map(Outcome::Reading), self.woken);
        }
        match self.operations.get(ioid) {
            Some(&InProgress::Description(of)) => self.described(ioid, of, result),
            Some(InProgress::Operation { .. }) => self.end(ioid, Some(true), result.map(Outcome::Reading)),
            None => {}
        }
    }

    fn described(&mut self, ioid: Ioid, of: Ioid, result: Result<Reading, Eca>) {
        self.operations.remove(ioid);
        let description = match result {
            Ok(reading) => reading.meta,
            Err(status) => return self.end(of, Some(true), Err(status)),
        };
        if let Some(batch) = batch_of(self.batches, of) {
            batch.described(of, description);
        } else if let Some(InProgress::Operation { meta, .. }) = self.operations.get_mut(of) {
            *meta = description;
        }
    }

    /// An operation ends. `is_get`: only if it is of that kind; an answer of the other kind is a server's mistake, and the
    /// right one may still come.
    fn end(&mut self, ioid: Ioid, is_get: Option<bool>, result: Result<Outcome, Eca>) {
        if let Some(batch) = batch_of(self.batches, ioid) {
            return end_in(batch, ioid, is_get, result, self.woken);
        }
        let is_of_its_kind = match self.operations.get(ioid) {
            Some(InProgress::Operation { is_get: is, .. }) => is_get.is_none_or(|is_get| is_get == *is),
            _ => false,
        };
        if !is_of_its_kind {
            return;
        }
        let Some(InProgress::Operation { operation, is_array, meta, .. }) = self.operations.remove(ioid) else {
            return;
        };
        let result = match result {
            Ok(mut outcome) => {
                outcome.complete(meta, is_array);
                Ok(outcome)
            }
            Err(status) => Err(Error::Refused {
                pv: operation.channel().name().to_owned(),
                server: self.server,
                refusal: Refusal::Status(status),
            }),
        };
        match operation.end(result) {
            Waiter::Nobody => {}
            waiter => self.woken.push(waiter),
        }
    }

    /// An update of a subscription that may have ended meanwhile, or why there is none.
    #[inline]
    fn update(&mut self, subscription: SubscriptionId, result: Result<Reading, Eca>) {
        let waiter = match self.subscriptions.get(subscription) {
            Some(Subscribed::Updates(monitor, is_array)) => match result {
                Ok(mut reading) => {
                    if *is_array {
                        as_array(&mut reading.value);
                    }
                    monitor.updated(reading, self.heard_ns)
                }
                Err(status) => monitor.refused(status),
            },
            Some(Subscribed::Description(monitor)) => {
                if let Ok(Reading { meta: Some(meta), .. }) = result {
                    monitor.described(meta);
                }
                return;
            }
            None => return,
        };
        match waiter {
            Waiter::Nobody => {}
            Waiter::Callback(monitor) => self.called.push(monitor),
            other => self.woken.push(other),
        }
    }
}

/// The batch that a number belongs to.
#[inline]
fn batch_of(batches: &mut [Batch], ioid: Ioid) -> Option<&mut Batch> {
    batches.iter_mut().find(|batch| batch.numbers().contains(&ioid.0))
}

/// An operation of a batch ends.
#[inline]
fn end_in(batch: &mut Batch, ioid: Ioid, is_get: Option<bool>, result: Result<Outcome, Eca>, woken: &mut Vec<Waiter>) {
    let result = result.map_err(|status| Failure::Refused(Refusal::Status(status)));
    if let Some(thread) = batch.end(ioid, is_get, result) {
        woken.push(Waiter::Thread(thread));
    }
}
