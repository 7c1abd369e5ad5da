//! The subscriptions of a circuit: how they start and end.

use std::sync::Arc;

use fodo_ca::dbr::DbrType;
use fodo_data::EventMask;
use fodo_engine::{Ioid, SubscriptionId};

use super::super::batch::Failure;
use super::super::monitor::MonitorCore;
use super::{Circuit, CircuitPhase, ClientMachine, Expected, RowTarget, ServerChannel, State};

/// A subscription on the circuit.
pub(super) enum Subscribed {
    /// Receives the updates of a monitor.
    Updates(Arc<MonitorCore>, Expected),
    /// Receives the updates of a PV of a group, which become rows.
    Rows(Arc<MonitorCore>, RowTarget),
    /// Keeps a monitor's units, limits and labels up to date; the type that contains them.
    Description(Arc<MonitorCore>, DbrType),
    /// Receives the updates of a monitor with pvAccess; the number of its operation.
    Operation(Arc<MonitorCore>, Ioid),
}

// The updates of a million subscriptions look up a million of them.
const _: () = assert!(size_of::<Subscribed>() == 24);

impl Subscribed {
    pub(super) fn monitor(&self) -> &Arc<MonitorCore> {
        match self {
            Subscribed::Updates(monitor, _)
            | Subscribed::Rows(monitor, _)
            | Subscribed::Description(monitor, _)
            | Subscribed::Operation(monitor, _) => monitor,
        }
    }

    pub(super) fn into_monitor(self) -> Arc<MonitorCore> {
        match self {
            Subscribed::Updates(monitor, _)
            | Subscribed::Rows(monitor, _)
            | Subscribed::Description(monitor, _)
            | Subscribed::Operation(monitor, _) => monitor,
        }
    }
}

impl Circuit {
    /// Starts a monitor on an active channel.
    pub(in crate::client) fn subscribe(self: &Arc<Self>, monitor: &Arc<MonitorCore>, server_channel: ServerChannel) {
        let mut state = self.state.lock();
        let is_open = state.phase != CircuitPhase::Closed;
        // A channel that was lost and is active again has subscribed its monitors, perhaps with the same number.
        if is_open
            && monitor.channel().server_channel_on(self) == Some(server_channel)
            && monitor.subscriptions().is_none()
        {
            self.subscribe_locked(&mut state, monitor, server_channel);
            self.flush_with_others(&mut state);
        }
        self.release(state);
    }

    pub(super) fn subscribe_locked(
        self: &Arc<Self>,
        state: &mut State,
        monitor: &Arc<MonitorCore>,
        server_channel: ServerChannel,
    ) {
        let options = monitor.options();
        if options.mask.is_empty() {
            // It only follows the connection.
            return;
        }
        let target = match state.row_target(monitor, server_channel) {
            Ok(target) => target,
            Err(waiter) => return state.afterwards.woken.push(waiter),
        };
        let machine = match &mut state.machine {
            // It was refused when it was created.
            ClientMachine::Ca(_) if monitor.request().is_some() => return,
            ClientMachine::Ca(machine) => machine,
            ClientMachine::Pva(_) => return self.subscribe_pva(state, monitor, target, server_channel),
        };
        let description = server_channel.description(&options.request).map(|dbr| {
            // Subscribed first, so that the first update has it already.
            let description = state.subscriptions.insert(Subscribed::Description(monitor.clone(), dbr));
            machine.subscribe(server_channel.sid, dbr, 1, EventMask::PROPERTY, description);
            description
        });
        let (dbr, count) = server_channel.request_type(&options.request);
        let subscription = state.subscriptions.insert(match target {
            Some(target) => Subscribed::Rows(monitor.clone(), target),
            None => Subscribed::Updates(monitor.clone(), server_channel.expected(&options.request)),
        });
        machine.subscribe(server_channel.sid, dbr, count, options.mask, subscription);
        self.subscribed(state, monitor, MonitorSubscriptions { server_channel, subscription, description });
    }

    /// Starts a monitor with one operation of pvAccess.
    #[cold]
    fn subscribe_pva(
        self: &Arc<Self>,
        state: &mut State,
        monitor: &Arc<MonitorCore>,
        target: Option<RowTarget>,
        server_channel: ServerChannel,
    ) {
        let State { machine: ClientMachine::Pva(machine), subscriptions, afterwards, .. } = state else { return };
        let subscription = subscriptions.insert(Subscribed::Operation(monitor.clone(), Ioid(0)));
        match (
            machine.subscribe(server_channel.sid, monitor.options(), monitor.request(), target, subscription),
            subscriptions.get_mut(subscription),
        ) {
            (Ok(opened), Some(Subscribed::Operation(_, ioid))) => *ioid = opened,
            (Ok(_), _) => {}
            (Err(Failure::WrongReply(reply)), _) => afterwards.woken.push(monitor.wrong_reply(reply)),
            (Err(failure), _) => afterwards.woken.push(monitor.refused(failure.into_refusal())),
        }
        self.subscribed(state, monitor, MonitorSubscriptions { server_channel, subscription, description: None });
    }

    /// Records the subscriptions of a monitor.
    fn subscribed(
        self: &Arc<Self>,
        state: &mut State,
        monitor: &Arc<MonitorCore>,
        subscriptions: MonitorSubscriptions,
    ) {
        monitor.set_subscriptions(self, subscriptions);
        if monitor.is_ended() {
            // Its owner dropped it before the subscription was recorded.
            state.cancel(subscriptions);
        }
    }

    /// Ends the subscriptions of a monitor.
    pub(in crate::client) fn cancel(&self, subscriptions: MonitorSubscriptions) {
        let mut state = self.state.lock();
        state.cancel(subscriptions);
        self.flush_soon(&mut state);
        self.release(state);
    }
}

impl State {
    /// Ends the subscriptions of a monitor, if they still exist.
    fn cancel(&mut self, subscriptions: MonitorSubscriptions) {
        for subscription in subscriptions.ids() {
            let Some(subscribed) = self.subscriptions.remove(subscription) else { continue };
            if self.phase == CircuitPhase::Open {
                let machine = match (&mut self.machine, &subscribed) {
                    (ClientMachine::Ca(machine), _) => machine,
                    (ClientMachine::Pva(machine), Subscribed::Operation(monitor, ioid)) => {
                        machine.cancel(*ioid);
                        self.afterwards.dropped.push(monitor.clone());
                        continue;
                    }
                    (ClientMachine::Pva(_), _) => continue,
                };
                let request = &subscribed.monitor().options().request;
                let (dbr, count) = match (&subscribed, subscriptions.server_channel.description(request)) {
                    (Subscribed::Description(..), Some(dbr)) => (dbr, 1),
                    _ => subscriptions.server_channel.request_type(request),
                };
                machine.cancel(subscriptions.server_channel.sid, dbr, count, subscription);
            }
            self.afterwards.dropped.push(subscribed.into_monitor());
        }
    }
}

/// The subscriptions of one monitor.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct MonitorSubscriptions {
    pub(super) server_channel: ServerChannel,
    pub(super) subscription: SubscriptionId,
    /// The one that keeps units, limits and labels up to date.
    pub(super) description: Option<SubscriptionId>,
}

impl MonitorSubscriptions {
    pub(super) fn ids(&self) -> impl Iterator<Item = SubscriptionId> + use<> {
        std::iter::once(self.subscription).chain(self.description)
    }
}
