//! A server's circuit of pvAccess: how it answers requests and sends updates.
//!
//! Serves the same PVs as Channel Access, as NTScalar, NTScalarArray or NTEnum, and structured ones.

mod calls;
mod monitor;
mod puts;
mod pv;
mod read;
mod server_channel;
mod structures;
mod update;

use std::collections::HashMap;
use std::ops::ControlFlow;

use fodo_data::Now;
use fodo_engine::{Cid, Rights, Sid};
use fodo_pva::server::{self, CloseReason, Config, Event, PendingSearch, RequestKey};
use fodo_pva::status::RequestStatus;
use fodo_pva::validation;

use self::calls::Calls;
use self::monitor::{MonitorContent, NotStarted};
use self::puts::PutReply;
use self::pv::PvaPv;
use self::structures::SharedStructureUpdates;
use self::update::SharedUpdates;
use crate::limit;
use crate::protocol::Protocol;
use crate::server::circuit::{
    Circuit, CircuitConfig, CircuitProtocol, ClosedBecause, EarlyRefusal, OpenedPv, Put, PutFailure, Watch,
    circuit_machine,
};
use crate::server::{Source, UpdateCounts};

circuit_machine!(server::Circuit, Event);

/// What a circuit of pvAccess keeps.
pub(crate) struct PvAccess {
    /// Subscriptions that have sent nothing yet: the client has not started them, or has not opened their window.
    not_started: HashMap<RequestKey, NotStarted>,
    /// The numbers of the completions of puts in progress.
    put_numbers: HashMap<RequestKey, u64>,
    calls: Calls,
    /// How many names this circuit may still look up before the turn of the others.
    n_lookups_left: usize,
    /// Memory of the posts that wait for clients that requested a longer queue than the PV has.
    long_queue_bytes: usize,
    shared: SharedUpdates,
    shared_structures: SharedStructureUpdates,
}

impl CircuitProtocol for PvAccess {
    const PROTOCOL: Protocol = Protocol::Pva;

    type Machine = server::Circuit;
    type Pv = PvaPv;
    type SubscriptionKey = RequestKey;
    type Content = MonitorContent;
    type PutReply = PutReply;
    type Status = RequestStatus;

    fn new() -> PvAccess {
        PvAccess {
            not_started: HashMap::new(),
            put_numbers: HashMap::new(),
            calls: Calls::default(),
            n_lookups_left: limit::TURN_LOOKUPS,
            long_queue_bytes: 0,
            shared: SharedUpdates::default(),
            shared_structures: SharedStructureUpdates::default(),
        }
    }

    fn machine(config: &CircuitConfig, _now: Now) -> server::Circuit {
        let &CircuitConfig { payload_bytes_max, guid, tls_port, .. } = config;
        let mut circuit = server::Circuit::new(&Config { payload_bytes_max, guid });
        if let Some(port) = tls_port {
            circuit.offer_tls(port);
        }
        circuit
    }

    #[inline]
    fn answer(circuit: &mut Circuit<PvAccess>, source: &dyn Source, event: Event, now: Now) -> ControlFlow<()> {
        match event {
            Event::Read { sid, request, needs_meta, atomic } => circuit.read(sid, request, needs_meta, atomic),
            Event::Write { sid, request, value, options, reply } => {
                circuit.write(sid, value, options, PutReply { request, reply }, now);
            }
            Event::Process { sid, request } => circuit.process(sid, request, now),
            Event::Rpc { sid, request, argument } => circuit.call(source, sid, request, argument, now),
            Event::Subscribe { sid, request, options, selection, needs_meta } => {
                let not_started = NotStarted { sid, options, selection, needs_meta };
                circuit.protocol.not_started.insert(request, not_started);
            }
            Event::Start { request } | Event::Ack { request } => circuit.resume(request),
            // Its posts wait in the ring; the machine takes no updates.
            Event::Stop { .. } => {}
            Event::Cancel { request, .. } => circuit.cancel(request),
            Event::Create { cid, name } => circuit.create(source, cid, &name, now),
            Event::Search { search, names } => return circuit.search(source, search, names, now),
            Event::Clear { sid } => circuit.clear(sid, now),
            Event::Reply(reply) => circuit.machine.reply(reply),
            Event::Drained => circuit.drained(EarlyRefusal::NoRoom, now),
            Event::Denied => circuit.drained(EarlyRefusal::NoAccess, now),
            Event::Identity { user, host, method } => circuit.identify(user, host, method, now),
            Event::Closed(reason) => circuit.closed(reason.into(), now),
        }
        ControlFlow::Continue(())
    }

    fn value_bytes(event: &Event) -> usize {
        event.value_bytes()
    }

    #[inline]
    fn may_update(_: &server::Circuit) -> bool {
        true
    }

    fn n_suspended(&self) -> usize {
        self.not_started.len()
    }

    fn held_bytes(&self) -> usize {
        self.long_queue_bytes + self.calls.held_bytes()
    }

    fn subscription_ended(&mut self, pv: &PvaPv, content: &MonitorContent) {
        if let Some(queue) = &content.long_queue {
            self.long_queue_bytes -= queue.n_bytes;
            pv.release(queue.n_posts);
        }
    }

    #[inline]
    fn send_watch(
        &mut self,
        machine: &mut server::Circuit,
        watch: &mut Watch<PvAccess>,
        queue_bytes_max: usize,
        counts: &mut UpdateCounts,
    ) -> bool {
        match watch.pv {
            PvaPv::Flat { .. } => update::send_watch(watch, machine, &mut self.shared, queue_bytes_max, counts),
            PvaPv::Structured(_) => {
                structures::send_watch(watch, machine, &mut self.shared_structures, queue_bytes_max, counts)
            }
            PvaPv::Server => true,
        }
    }

    /// pvAccess does not report rights to clients. The machine drops the value of a put that is not allowed.
    fn rights_changed(machine: &mut server::Circuit, sid: Sid, _is_read_only: bool, allowed: Rights) {
        machine.set_may_write(sid, allowed.write);
    }

    fn close_channel(machine: &mut server::Circuit, sid: Sid, events: &mut Vec<Event>) {
        machine.close_channel(sid, events);
    }

    fn changed_subscriptions(circuit: &Circuit<PvAccess>) -> Vec<RequestKey> {
        circuit.all_unreadable_subscriptions()
    }

    fn change_subscription(circuit: &mut Circuit<PvAccess>, request: RequestKey) {
        circuit.end_unreadable(request);
    }

    fn put_status(failure: PutFailure<'_>) -> RequestStatus {
        puts::status(failure)
    }

    fn put_started(&mut self, reply: &PutReply, put: u64) {
        self.put_numbers.insert(reply.request, put);
    }

    fn put_ended(&mut self, reply: &PutReply) {
        self.put_numbers.remove(&reply.request);
    }

    fn put_done(circuit: &mut Circuit<PvAccess>, put: &Put<PvAccess>, result: Result<(), RequestStatus>) {
        circuit.finish_put(put.sid, put.reply, result);
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

impl Circuit<PvAccess> {
    fn create(&mut self, source: &dyn Source, cid: Cid, name: &str, now: Now) {
        let opened = match name {
            server_channel::NAME => {
                self.restart_idle_time(now);
                Ok(server_channel::opened())
            }
            name => self.open(source, name, now),
        };
        match opened {
            Ok(OpenedPv { pv, facts: kind, allowed }) => {
                let sid = self.machine.created(cid, kind);
                self.machine.set_may_write(sid, allowed.write);
                self.add_channel(sid, pv, allowed);
            }
            Err(reason) => self.machine.create_failed(cid, &reason),
        }
    }

    /// Stores who the client is. Channels that it has created before have rights without a name, so these are checked
    /// again.
    fn identify(&mut self, user: String, host: String, method: &'static str, now: Now) {
        match method {
            validation::X509 => self.identified_by_certificate(now),
            method => self.identified(user, host, method, now),
        }
        if self.has_channels() {
            self.check_rights();
            self.request_turn();
        }
    }

    /// Looks names up, as many as allowed in a turn. If that is all that is allowed, the others follow in the next turn.
    fn search(
        &mut self,
        source: &dyn Source,
        search: PendingSearch,
        mut names: Vec<(Cid, String)>,
        now: Now,
    ) -> ControlFlow<()> {
        self.restart_idle_time(now);
        let Some(port) = self.own_port() else { return ControlFlow::Continue(()) };
        // From the end, so that no name is moved.
        let n_later = names.len().saturating_sub(self.protocol.n_lookups_left);
        self.protocol.n_lookups_left -= names.len() - n_later;
        let part = names.drain(n_later..).filter(|(_, name)| self.serves(source, name, now));
        let found: Vec<Cid> = part.map(|(cid, _)| cid).collect();
        if self.protocol.n_lookups_left > 0 {
            self.machine.searched(search, port, &found);
            return ControlFlow::Continue(());
        }
        self.protocol.n_lookups_left = limit::TURN_LOOKUPS;
        self.machine.searched(search.without_demand(), port, &found);
        let search = if found.is_empty() { search } else { search.without_demand() };
        // Also without a name: as long as a request waits, nothing is read.
        self.postpone(Event::Search { search, names });
        ControlFlow::Break(())
    }

    /// A request has ended: a subscription, or a put or call in progress.
    fn cancel(&mut self, request: RequestKey) {
        if self.end_subscription(request) || self.protocol.not_started.remove(&request).is_some() {
            return;
        }
        if let Some(&put) = self.protocol.put_numbers.get(&request) {
            self.cancel_put(put);
        }
        self.protocol.calls.cancel(request);
    }
}
