//! A server's circuit of Channel Access: how it answers requests and sends updates.

mod puts;
mod rights;
mod watch;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use fodo_ca::dbr::{AttributeLevel, DbrType};
use fodo_ca::eca::Eca;
use fodo_ca::server::{self, CloseReason, Config, Event, ReadReply};
use fodo_data::{EventMask, Now};
use fodo_engine::ring::Cursor;
use fodo_engine::{Cid, Ioid, Rights, Sid, SubscriptionId};
use fodo_pva::validation;

use self::rights::Denied;
use self::watch::{MetaAndClass, current, update};
use crate::protocol::Protocol;
use crate::server::circuit::{
    ChannelPv, Circuit, CircuitConfig, CircuitProtocol, ClosedBecause, OpenedPv, Put, PutFailure, Watch,
    circuit_machine, reported_rights, subscribe,
};
use crate::server::posts::PostListener;
use crate::server::{Peer, Pv, PvFacts, ServedPv, Source, UpdateCounts};

circuit_machine!(server::Circuit, Event);

/// What a circuit of Channel Access keeps.
pub(crate) struct ChannelAccess {
    /// Subscriptions that the client may not read now.
    denied: HashMap<SubscriptionId, Denied>,
}

/// What the updates of a subscription contain.
pub(crate) struct RequestedDbr {
    dbr: DbrType,
    count: u32,
}

/// What the reply to a put repeats.
pub(crate) struct PutHeader {
    dbr: DbrType,
    count: u32,
    ioid: Ioid,
}

impl CircuitProtocol for ChannelAccess {
    const PROTOCOL: Protocol = Protocol::Ca;

    type Machine = server::Circuit;
    type Pv = Arc<dyn Pv>;
    type SubscriptionKey = SubscriptionId;
    type Content = RequestedDbr;
    type PutReply = PutHeader;
    type Status = Eca;

    fn new() -> ChannelAccess {
        ChannelAccess { denied: HashMap::new() }
    }

    fn machine(&CircuitConfig { payload_bytes_max, .. }: &CircuitConfig, now: Now) -> server::Circuit {
        server::Circuit::new(&Config { payload_bytes_max }, now)
    }

    #[inline]
    fn answer(circuit: &mut Circuit<ChannelAccess>, source: &dyn Source, event: Event, now: Now) -> ControlFlow<()> {
        match event {
            Event::Read { sid, dbr, count, reply } => circuit.read(sid, dbr, count, reply),
            Event::Write { sid, dbr, value, ioid } => circuit.write(sid, dbr, value, ioid, now),
            Event::Subscribe { sid, dbr, count, mask, subscription } => {
                circuit.subscribe(sid, dbr, count, mask, subscription);
            }
            Event::Cancel { subscription, .. } => circuit.cancel(subscription),
            Event::Create { cid, name } => circuit.create(source, cid, &name, now),
            Event::Search { search, name } => {
                circuit.restart_idle_time(now);
                let port = circuit.own_port().filter(|_| circuit.serves(source, &name, now));
                circuit.machine.searched(search, port);
            }
            Event::Clear { sid } => circuit.clear(sid, now),
            Event::Reply(answers) => circuit.machine.reply(&answers),
            Event::Drained(why) => circuit.drained(why.into(), now),
            Event::Identity { user, host } => circuit.identified(user, host, validation::CA, now),
            Event::Closed(reason) => circuit.closed(reason.into(), now),
        }
        ControlFlow::Continue(())
    }

    #[inline]
    fn value_bytes(event: &Event) -> usize {
        match event {
            Event::Write { value, .. } => value.n_bytes(),
            _ => 0,
        }
    }

    #[inline]
    fn may_update(machine: &server::Circuit) -> bool {
        !machine.events_off()
    }

    fn n_suspended(&self) -> usize {
        self.denied.len()
    }

    #[inline]
    fn held_bytes(&self) -> usize {
        0
    }

    #[inline]
    fn subscription_ended(&mut self, _: &Arc<dyn Pv>, _: &RequestedDbr) {}

    #[inline]
    fn send_watch(
        &mut self,
        machine: &mut server::Circuit,
        watch: &mut Watch<ChannelAccess>,
        queue_bytes_max: usize,
        counts: &mut UpdateCounts,
    ) -> bool {
        watch::send_watch(watch, machine, queue_bytes_max, counts)
    }

    fn rights_changed(machine: &mut server::Circuit, sid: Sid, is_read_only: bool, allowed: Rights) {
        machine.rights_changed(sid, reported_rights(is_read_only, allowed));
    }

    fn close_channel(machine: &mut server::Circuit, sid: Sid, events: &mut Vec<Event>) {
        machine.close_channel(sid, events);
    }

    fn changed_subscriptions(circuit: &Circuit<ChannelAccess>) -> Vec<SubscriptionId> {
        circuit.changed_subscriptions()
    }

    fn change_subscription(circuit: &mut Circuit<ChannelAccess>, id: SubscriptionId) {
        circuit.change_subscription(id);
    }

    fn put_status(failure: PutFailure<'_>) -> Eca {
        puts::status(failure)
    }

    #[inline]
    fn put_started(&mut self, _: &PutHeader, _: u64) {}

    #[inline]
    fn put_ended(&mut self, _: &PutHeader) {}

    fn put_done(circuit: &mut Circuit<ChannelAccess>, put: &Put<ChannelAccess>, result: Result<(), Eca>) {
        let PutHeader { dbr, count, ioid } = put.reply;
        circuit.machine.write_done(put.sid, dbr, count, Some(ioid), result);
    }
}

/// Structured PVs do not exist in Channel Access.
impl ChannelPv for Arc<dyn Pv> {
    type Facts = PvFacts;

    fn accept(served: ServedPv) -> Result<(Arc<dyn Pv>, PvFacts), &'static str> {
        let pv = served.flat().ok_or("only pvAccess serves this PV, because it is structured")?;
        let facts = pv.facts();
        Ok((pv, facts))
    }

    #[inline]
    fn address(&self) -> usize {
        Arc::as_ptr(self).cast::<()>().addr()
    }

    fn is_read_only(&self) -> bool {
        (**self).is_read_only()
    }

    fn rights(&self, by: &Peer) -> Rights {
        (**self).rights(by)
    }

    fn is_closed(&self) -> bool {
        (**self).is_closed()
    }

    fn listen(&self, listener: Arc<PostListener>) {
        self.posts().listen(listener);
    }

    fn unlisten(&self, listener: &Arc<PostListener>) {
        self.posts().unlisten(listener);
    }

    fn unsubscribe(&self, listener: &Arc<PostListener>, cursor: &Cursor) {
        self.posts().unsubscribe(listener, cursor);
    }

    fn listeners_changed(&self) {
        (**self).listeners_changed();
    }

    fn cancel_put(&self, put: u64) {
        (**self).cancel_put(put);
    }
}

impl From<CloseReason> for ClosedBecause {
    fn from(reason: CloseReason) -> ClosedBecause {
        match reason {
            CloseReason::Malformed(what) => ClosedBecause::Malformed(what),
            CloseReason::Misbehaved(what) => ClosedBecause::Misbehaved(what),
            CloseReason::Exceeded(what) => ClosedBecause::Exceeded(what),
        }
    }
}

impl Circuit<ChannelAccess> {
    fn create(&mut self, source: &dyn Source, cid: Cid, name: &str, now: Now) {
        let Ok(OpenedPv { pv, facts, allowed }) = self.open(source, name, now) else {
            return self.machine.create_failed(cid);
        };
        let native = DbrType::of(facts.kind, AttributeLevel::Plain);
        let sid = self.machine.created(cid, native, facts.count_max, reported_rights(facts.is_read_only, allowed));
        self.add_channel(sid, pv, allowed);
    }

    #[inline]
    fn read(&mut self, sid: Sid, dbr: DbrType, count: u32, reply: ReadReply) {
        let Some(channel) = self.channel(sid) else { return };
        if !channel.allowed.read {
            return self.machine.read_done(sid, dbr, count, reply, Err(Eca::NORDACCESS));
        }
        let reading = current(&*channel.pv, dbr);
        self.machine.read_done(sid, dbr, count, reply, Ok(&reading));
    }

    fn subscribe(&mut self, sid: Sid, dbr: DbrType, count: u32, mask: EventMask, id: SubscriptionId) {
        let Some(channel) = self.channel(sid) else { return };
        let (pv, may_read) = (channel.pv.clone(), channel.allowed.read);
        if !may_read {
            self.cancel(id);
            return self.deny(id, Denied { sid, dbr, count, mask });
        }
        let mut reading = None;
        self.start_subscription(sid, id, |pv, listener| {
            let (first, cursor) = subscribe(&**pv, listener, mask, |_, _| {})?;
            reading = first;
            Some((RequestedDbr { dbr, count }, cursor))
        });
        self.forget_denied(id);
        match reading {
            Some(reading) if dbr.needs_meta(reading.value.kind()) => {
                MetaAndClass::new(&*pv, dbr == DbrType::CLASS_NAME).update(
                    &mut self.machine,
                    sid,
                    dbr,
                    count,
                    id,
                    reading,
                );
            }
            Some(reading) => update(&mut self.machine, sid, dbr, count, id, &reading),
            None => {}
        }
    }

    fn cancel(&mut self, id: SubscriptionId) {
        self.forget_denied(id);
        self.end_subscription(id);
    }
}
