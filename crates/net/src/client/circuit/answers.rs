//! What a server's answers do to operations, channels and monitors.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use fodo_ca::client::Event;
use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_ca::{Cid, Ioid, Sid, SubscriptionId};
use fodo_data::Reading;

use super::super::batch::Failure;
use super::super::channel::Activated;
use super::super::monitor::MonitorCore;
use super::super::operation::{Outcome, Waiter};
use super::super::{Error, Refusal};
use super::place::as_array;
use super::{Circuit, InProgress, Place, State, Subscribed};

impl Circuit {
    pub(super) fn dispatch(self: &Arc<Self>, state: &mut State, events: &mut Vec<Event>) {
        for event in events.drain(..) {
            match event {
                Event::ReadDone { ioid, result } => self.read_done(state, ioid, result),
                Event::WriteDone { ioid, result } => {
                    self.end(state, ioid, Some(false), result.map(|()| Outcome::Written));
                }
                Event::Update { subscription, result } => state.update(subscription, result),
                Event::Created { cid, sid, native, count } => self.created(state, cid, sid, native, count),
                Event::Rights { cid, rights } => {
                    let State { channels, afterwards, .. } = &mut *state;
                    if let Some(channel) = channels.get(cid) {
                        channel.set_rights(rights, afterwards);
                    }
                }
                Event::CreateFailed { cid } | Event::ChannelGone { cid } => self.gone(state, cid),
                Event::Complaint { ioid: Some(ioid), status, .. } => self.end(state, ioid, None, Err(status)),
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
        MonitorCore::call(&mut state.called);
    }

    /// An answer to a get, or the first of the two to one that wants everything.
    fn read_done(&self, state: &mut State, ioid: Ioid, result: Result<Reading, Eca>) {
        let description_of = match state.descriptions.is_empty() {
            true => None,
            false => state.descriptions.remove(&ioid),
        };
        let Some(of) = description_of else {
            return self.end(state, ioid, Some(true), result.map(Outcome::Reading));
        };
        let reading = match result {
            Ok(reading) => reading,
            Err(status) => return self.end(state, of, Some(true), Err(status)),
        };
        if let Some(batch) = state.batch(of) {
            batch.described(of, reading.meta);
        } else if let Some(entry) = state.operations.get_mut(&of) {
            entry.meta = reading.meta;
        }
    }

    /// An operation ends. `is_get`: only if it is of that kind; an answer of the other kind is a server's mistake, and the
    /// right one may still come.
    fn end(&self, state: &mut State, ioid: Ioid, is_get: Option<bool>, result: Result<Outcome, Eca>) {
        if let Some(batch) = state.batch(ioid) {
            let result = result.map_err(|status| Failure::Refused(Refusal::Status(status)));
            if let Some(thread) = batch.end(ioid, is_get, result) {
                state.afterwards.woken.push(Waiter::Thread(thread));
            }
            return;
        }
        let Entry::Occupied(entry) = state.operations.entry(ioid) else { return };
        if is_get.is_some_and(|is_get| is_get != entry.get().is_get) {
            return;
        }
        let InProgress { operation, is_array, meta, .. } = entry.remove();
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
            waiter => state.afterwards.woken.push(waiter),
        }
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
        let is_its = |subscribed: &Subscribed| subscribed.monitor().channel().cid() == cid;
        let lost = state.subscriptions.extract_if(|_, subscribed| is_its(subscribed));
        state.afterwards.dropped.extend(lost.map(|(_, subscribed)| subscribed.into_monitor()));
        self.drop_operations(state, Some(cid));
        channel.lost(self.server, Some(Refusal::Channel), &mut state.afterwards);
        self.close_if_unused(state);
    }
}

impl State {
    /// An update of a subscription that may have ended meanwhile, or why there is none.
    fn update(&mut self, subscription: SubscriptionId, result: Result<Reading, Eca>) {
        let waiter = match (self.subscriptions.get(&subscription), result) {
            (Some(Subscribed::Updates(monitor, false)), Ok(reading)) => monitor.updated(reading, self.heard_at),
            (Some(Subscribed::Updates(monitor, true)), Ok(mut reading)) => {
                as_array(&mut reading.value);
                monitor.updated(reading, self.heard_at)
            }
            (Some(Subscribed::Updates(monitor, _)), Err(status)) => monitor.refused(status),
            (Some(Subscribed::Description(monitor)), Ok(Reading { meta: Some(meta), .. })) => {
                return monitor.described(meta);
            }
            (Some(Subscribed::Description(_)) | None, _) => return,
        };
        match waiter {
            Waiter::Nobody => {}
            Waiter::Callback(monitor) => self.called.push(monitor),
            other => self.afterwards.woken.push(other),
        }
    }
}
