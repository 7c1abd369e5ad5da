//! One client's connection: its channels, its watches on PVs, its puts in progress.

mod idle;
mod puts;
mod rights;
mod watch;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use fodo_ca::dbr::{AttributeLevel, DbrType};
use fodo_ca::eca::Eca;
use fodo_ca::server::{Circuit as Machine, CloseReason, Config, Event, ReadReply};
use fodo_data::{EventMask, Now};
use fodo_engine::{Cid, Rights, Sid, SubscriptionId};
use slab::Slab;

use self::idle::IdleDeadline;
use self::puts::{Put, value_bytes};
use self::rights::{Denied, RightsCheck};
use self::watch::{MetaAndClass, Watch, WatchSubscription, current, send_watch, update};
use super::observer::ClientStatus;
use super::panics::{self, catch_panic};
use super::posts::PostListener;
use super::quota::CircuitQuota;
use super::reactor::{CircuitKey, Inbox};
use super::{Peer, Pv, Source, UpdateCounts, UpdateTally};
use crate::event_loop::NextCall;
use crate::limit;
use crate::log::{self, Log};
use crate::stream::{self, WriteOutcome};

/// One client's connection.
pub(super) struct Circuit {
    stream: Arc<TcpStream>,
    machine: Machine,
    key: CircuitKey,
    inbox: Arc<Inbox>,
    peer: Peer,
    channels: Vec<Option<ServedChannel>>,
    n_channels: usize,
    /// Until when it may stay without a channel.
    idle_deadline: IdleDeadline,
    watches: Slab<Watch>,
    watch_of_pv: HashMap<usize, usize>,
    /// The watch and the slot of each subscription.
    subscription_slots: HashMap<SubscriptionId, (usize, usize)>,
    /// Watches with unsent posts, by index and number, each once, in the order of their posts.
    unsent_watches: Vec<(usize, u64)>,
    /// How many of these belong to watches that have ended; at most half of them.
    n_unsent_ended: usize,
    watch_next: u64,
    /// By the numbers of their completions.
    puts: HashMap<u64, Put>,
    /// Memory of their values while they wait for their records.
    puts_bytes: usize,
    events: Vec<Event>,
    /// Requests that are not answered until the reply buffer has space; nothing is decoded before.
    queued_requests: VecDeque<Event>,
    /// Bytes read from the socket but not decoded, because enough replies were queued.
    unread: Vec<u8>,
    /// The peer has shut down its sending side.
    peer_has_ended: bool,
    /// The circuit is closed once all pending bytes are sent, or at this time.
    closes_by: Option<Instant>,
    /// Reading is suspended, because replies cannot be sent.
    is_held_up: bool,
    /// Since when data has been waiting for the peer without a break.
    waits_since: Option<Instant>,
    rights_check: RightsCheck,
    /// Subscriptions that the client may not read now.
    denied: HashMap<SubscriptionId, Denied>,
    counts: UpdateCounts,
    quota: CircuitQuota,
    log: Arc<Log>,
}

struct ServedChannel {
    pv: Arc<dyn Pv>,
    /// The access rights of the client, regardless of those of the PV.
    allowed: Rights,
}

impl Circuit {
    pub(super) fn new(
        stream: Arc<TcpStream>,
        key: CircuitKey,
        inbox: Arc<Inbox>,
        payload_bytes_max: usize,
        quota: CircuitQuota,
        log: Arc<Log>,
        now: Now,
    ) -> Circuit {
        let peer = Peer { user: String::new(), host: String::new(), address: quota.peer() };
        log.write(log::Level::Info, "a client has connected", Some(peer.address), None, now);
        Circuit {
            stream,
            machine: Machine::new(&Config { payload_bytes_max }, now),
            key,
            inbox,
            peer,
            channels: Vec::new(),
            n_channels: 0,
            idle_deadline: IdleDeadline::Silent(now.monotonic + quota.limits().silent_client),
            watches: Slab::new(),
            watch_of_pv: HashMap::new(),
            subscription_slots: HashMap::new(),
            unsent_watches: Vec::new(),
            n_unsent_ended: 0,
            watch_next: 0,
            puts: HashMap::new(),
            puts_bytes: 0,
            events: Vec::new(),
            queued_requests: VecDeque::new(),
            unread: Vec::new(),
            peer_has_ended: false,
            closes_by: None,
            is_held_up: false,
            waits_since: None,
            rights_check: RightsCheck::Done,
            denied: HashMap::new(),
            counts: UpdateCounts::default(),
            quota,
            log,
        }
    }

    /// Logs the end of the circuit, whatever its cause.
    pub(super) fn log_end(&self, now: Now) {
        self.log.write(log::Level::Info, "a client has disconnected", Some(self.peer.address), None, now);
    }

    /// Logs that code of the program has panicked in a turn, and that the circuit is closed for that reason.
    pub(super) fn log_panic(&self, panic: &str, now: Now) {
        panics::log_panic(&self.log, "a client is closed", panic, self.peer.address, None, now);
    }

    /// The status of the client.
    pub(super) fn status(&self, now: Now) -> ClientStatus {
        ClientStatus {
            address: self.peer.address,
            user: self.peer.user.clone(),
            host: self.peer.host.clone(),
            n_channels: self.n_channels,
            n_subscriptions: self.subscription_slots.len() + self.denied.len(),
            queued_bytes: self.machine.pending_bytes(),
            n_pvs_waiting: self.unsent_watches.len() - self.n_unsent_ended,
            updates: self.counts,
            waiting: self.waits_since.map(|since| now.monotonic.saturating_duration_since(since)),
        }
    }

    /// A watched PV has changed.
    pub(super) fn posted(&mut self, watch: usize) {
        if let Some(found) = self.watches.get_mut(watch)
            && !std::mem::replace(&mut found.is_unsent, true)
        {
            self.unsent_watches.push((watch, found.number));
        }
    }

    /// The peer has shut down its sending side: everything it has sent is read, then the circuit ends.
    pub(super) fn peer_has_ended(&mut self) {
        self.peer_has_ended = true;
    }

    /// Reads, answers and writes as far as possible without blocking. `None`: the circuit has ended.
    pub(super) fn turn(
        &mut self,
        source: &dyn Source,
        buffer: &mut [u8],
        tally: &UpdateTally,
        now: Now,
    ) -> Option<NextCall> {
        if self.is_idle_for_too_long(now) {
            return None;
        }
        let may_read = self.may_answer();
        // While replies are queued, requests stay in the socket; no further event reports them.
        let mut has_more = !may_read && self.closes_by.is_none();
        if std::mem::replace(&mut self.is_held_up, !may_read) && may_read {
            self.machine.resume(now);
        }
        if may_read {
            match self.receive(source, buffer, now) {
                Ok(more) => has_more = more,
                Err(_) => return None,
            }
            if self.machine.deadline().is_some_and(|at| at <= now.monotonic) {
                self.machine.tick(now, &mut self.events);
                self.answer(source, now);
            }
        }
        let sent = self.send(tally);
        self.report_resources();
        self.waits_since = match sent {
            Ok(WriteOutcome::All) if self.unsent_watches.is_empty() => None,
            _ => self.waits_since.or(Some(now.monotonic)),
        };
        match sent {
            Ok(WriteOutcome::All) if self.closes_by.is_some() => None,
            Ok(WriteOutcome::Enough) => Some(NextCall::Soon),
            Ok(WriteOutcome::All) if has_more => Some(NextCall::Soon),
            // A turn follows when the socket has drained; it also reads what is left.
            Ok(WriteOutcome::All | WriteOutcome::SocketIsFull) => self.rest(may_read, now),
            Err(_) => None,
        }
    }

    /// Whether the buffer has space for a reply.
    fn may_answer(&self) -> bool {
        self.closes_by.is_none() && self.machine.pending_bytes() < self.queue_bytes_max(limit::ANSWER_BYTES)
    }

    /// How many bytes may be queued before no more is added: the usual number, or none while this host has too many
    /// queued.
    fn queue_bytes_max(&self, usual: usize) -> usize {
        if self.quota.may_queue() { usual } else { 1 }
    }

    /// Reports the resources in use.
    fn report_resources(&mut self) {
        let queued_value_bytes: usize = self.queued_requests.iter().map(value_bytes).sum();
        let held =
            self.machine.held_bytes() + self.puts.len() * limit::PUT_BYTES + self.puts_bytes + queued_value_bytes;
        self.quota.set(limit::CIRCUIT_BYTES + held, self.machine.pending_bytes() + self.unread.len());
    }

    /// Whether all requests so far are answered, and another one can be.
    fn may_read(&self) -> bool {
        self.may_answer() && self.queued_requests.is_empty() && self.rights_check == RightsCheck::Done
    }

    /// Whether updates may be sent. A queued request may cancel a subscription whose client expects no more updates,
    /// and an unchecked channel may no longer be readable by the client.
    fn may_update(&self) -> bool {
        !self.machine.events_off() && self.queued_requests.is_empty() && self.rights_check == RightsCheck::Done
    }

    fn rest(&self, may_read: bool, now: Now) -> Option<NextCall> {
        // While reading is suspended, the client's message cannot be completed: that is not its fault.
        let message = self.machine.deadline().filter(|_| may_read);
        match self.closes_by {
            Some(at) if at <= now.monotonic => None,
            Some(at) => Some(NextCall::At(at)),
            None => Some(message.into_iter().chain(self.idle_deadline()).min().map_or(NextCall::OnReady, NextCall::At)),
        }
    }

    /// Writes updates and replies until the socket is full, the limit of a turn is reached, or all is sent.
    fn send(&mut self, tally: &UpdateTally) -> io::Result<WriteOutcome> {
        let mut n_budget = limit::SERVER_TURN_BYTES;
        loop {
            let counts = self.send_updates();
            tally.add(counts);
            self.counts.sent += counts.sent;
            self.counts.merged += counts.merged;
            match stream::flush_up_to(&self.stream, &mut self.machine, &mut n_budget)? {
                WriteOutcome::All if !self.unsent_watches.is_empty() && self.may_update() => {}
                sent => return Ok(sent),
            }
        }
    }

    /// Reads and answers a limited number of bytes; returns true if there may be more.
    fn receive(&mut self, source: &dyn Source, buffer: &mut [u8], now: Now) -> io::Result<bool> {
        self.answer(source, now);
        let unread = std::mem::take(&mut self.unread);
        self.feed(&unread, source, now);
        let mut n_taken = 0;
        while n_taken < limit::SERVER_TURN_BYTES && self.may_read() {
            let Some(n) = stream::read(&self.stream, buffer)? else { return Ok(false) };
            n_taken += n;
            self.feed(&buffer[..n], source, now);
            if n < buffer.len() && !self.peer_has_ended && self.unread.is_empty() && self.queued_requests.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Decodes requests in pieces and answers them while the reply buffer has space; keeps the rest.
    fn feed(&mut self, bytes: &[u8], source: &dyn Source, now: Now) {
        let mut pieces = bytes.chunks(limit::REQUEST_PIECE_BYTES);
        while self.may_read() {
            let Some(piece) = pieces.next() else { return };
            self.report_resources();
            self.machine.set_held_bytes_max(self.quota.held_bytes_max());
            self.machine.set_arriving_bytes_max(self.quota.arriving_bytes_max());
            self.machine.received(piece, now, &mut self.events);
            self.answer(source, now);
        }
        pieces.for_each(|piece| self.unread.extend_from_slice(piece));
    }

    /// Answers requests in order, until enough replies are queued. A reply that is converted for its client takes
    /// memory and time, even if its request was small.
    fn answer(&mut self, source: &dyn Source, now: Now) {
        self.take_events();
        self.check_channels();
        // Evaluated once for all requests that were decoded together.
        let queue_bytes_max = self.queue_bytes_max(limit::ANSWER_BYTES);
        while self.closes_by.is_none()
            && self.machine.pending_bytes() < queue_bytes_max
            && self.knows_rights()
            && let Some(event) = self.queued_requests.pop_front()
        {
            match event {
                Event::Read { sid, dbr, count, reply } => self.read(sid, dbr, count, reply),
                Event::Write { sid, dbr, value, ioid } => self.write(sid, dbr, value, ioid, now),
                Event::Subscribe { sid, dbr, count, mask, subscription } => {
                    self.subscribe(sid, dbr, count, mask, subscription);
                }
                Event::Cancel { subscription, .. } => self.cancel(subscription),
                Event::Create { cid, name } => self.create(source, cid, &name, now),
                Event::Search { search, name } => {
                    self.quota.count_search();
                    self.restart_idle_time(now);
                    // The client is connected to this server, so the port is that of this connection.
                    let port = self.stream.local_addr().ok().map(|address| address.port());
                    let port = port.filter(|_| panics::serves(source, &name, &self.log, self.peer.address, now));
                    self.machine.searched(search, port);
                }
                Event::Clear { sid } => self.clear(sid, now),
                Event::Reply(answers) => self.machine.reply(&answers),
                Event::Drained(why) => self.drained(why, now),
                Event::Identity { user, host } => {
                    self.restart_idle_time(now);
                    (self.peer.user, self.peer.host) = (user, host);
                }
                Event::Closed(reason) => {
                    let (why, what) = match reason {
                        CloseReason::Malformed(what) => ("it sent an invalid message", what),
                        CloseReason::Misbehaved(what) => ("it violated the protocol", what),
                        CloseReason::Exceeded(what) => {
                            self.quota.count_refused();
                            ("it exceeded a limit", what)
                        }
                    };
                    let text = format!("a client is closed, because {why}: {what}");
                    self.log.write(log::Level::Warning, &text, Some(self.peer.address), None, now);
                    self.closes_by = Some(now.monotonic + limit::CLOSING);
                }
            }
        }
        self.check_subscriptions();
    }

    /// Appends the events of the machine to the queued requests.
    fn take_events(&mut self) {
        if self.queued_requests.is_empty() {
            // Both keep their allocations, and nothing is moved.
            let emptied =
                std::mem::replace(&mut self.queued_requests, VecDeque::from(std::mem::take(&mut self.events)));
            self.events = Vec::from(emptied);
        } else {
            self.queued_requests.extend(self.events.drain(..));
        }
    }

    fn create(&mut self, source: &dyn Source, cid: Cid, name: &str, now: Now) {
        self.restart_idle_time(now);
        let opened = catch_panic(|| match source.open(name) {
            Some(pv) => Ok((pv.facts(), pv.rights(&self.peer), pv)),
            None => Err(source.refusal_reason(name).map_or(String::new(), |why| format!(": {why}"))),
        });
        let (facts, allowed, pv) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(why)) => {
                let level = if why.is_empty() { log::Level::Debug } else { log::Level::Warning };
                self.log.write(level, &format!("a channel is refused{why}"), Some(self.peer.address), Some(name), now);
                return self.machine.create_failed(cid);
            }
            Err(panic) => {
                panics::log_panic(&self.log, "a channel is refused", &panic, self.peer.address, Some(name), now);
                return self.machine.create_failed(cid);
            }
        };
        let native = DbrType::of(facts.kind, AttributeLevel::Plain);
        let sid =
            self.machine.created(cid, native, facts.count_max, rights::reported_rights(facts.is_read_only, allowed));
        let index = sid.0 as usize;
        if self.channels.len() <= index {
            self.channels.resize_with(index + 1, || None);
        }
        self.channels[index] = Some(ServedChannel { pv, allowed });
        self.n_channels += 1;
        if self.n_channels == 1 {
            self.quota.set_has_channel(true);
        }
    }

    fn channel(&self, sid: Sid) -> Option<&ServedChannel> {
        self.channels.get(sid.0 as usize)?.as_ref()
    }

    fn read(&mut self, sid: Sid, dbr: DbrType, count: u32, reply: ReadReply) {
        let Some(ServedChannel { pv, allowed }) = self.channel(sid) else { return };
        if !allowed.read {
            return self.machine.read_done(sid, dbr, count, reply, Err(Eca::NORDACCESS));
        }
        let reading = current(&**pv, dbr);
        self.machine.read_done(sid, dbr, count, reply, Ok(&reading));
    }

    fn subscribe(&mut self, sid: Sid, dbr: DbrType, count: u32, mask: EventMask, id: SubscriptionId) {
        let Some(ServedChannel { pv, allowed }) = self.channel(sid) else { return };
        let (pv, may_read) = (pv.clone(), allowed.read);
        if !may_read {
            self.cancel(id);
            return self.deny(id, Denied { sid, dbr, count, mask });
        }
        let address = Arc::as_ptr(&pv).cast::<()>().addr();
        let watch = match self.watch_of_pv.get(&address) {
            Some(&watch) => watch,
            None => self.watch(address, &pv),
        };
        let listener = self.watches[watch].listener.clone();
        let mut first = None;
        pv.with_reading(&mut |reading| {
            first = Some((pv.first_update(reading, mask), pv.posts().subscribe(&listener, mask)));
        });
        let Some((reading, cursor)) = first else { return };
        let Watch { subscriptions, n_slots, .. } = &mut self.watches[watch];
        let slot = subscriptions.insert(WatchSubscription { id, sid, dbr, count, cursor });
        *n_slots = (*n_slots).max(slot + 1);
        self.forget_denied(id);
        // Replaces another subscription with the same number.
        if let Some(before) = self.subscription_slots.insert(id, (watch, slot)) {
            self.end(before);
        }
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

    /// Starts to listen to a PV.
    fn watch(&mut self, address: usize, pv: &Arc<dyn Pv>) -> usize {
        let entry = self.watches.vacant_entry();
        let watch = entry.key();
        let listener = PostListener::new(self.inbox.clone(), self.key, watch);
        pv.posts().listen(listener.clone());
        entry.insert(Watch {
            pv: pv.clone(),
            listener,
            number: self.watch_next,
            is_unsent: false,
            subscriptions: Slab::new(),
            n_slots: 0,
            first_slot: 0,
        });
        self.watch_next += 1;
        self.watch_of_pv.insert(address, watch);
        // Called every time: another circuit may have been first, but its call may not have reached the PV yet. Called
        // last, so that a panic leaves a watch that can be ended.
        pv.listeners_changed();
        watch
    }

    fn cancel(&mut self, id: SubscriptionId) {
        self.forget_denied(id);
        if let Some(place) = self.subscription_slots.remove(&id) {
            self.end(place);
        }
    }

    /// Ends the subscription in this slot of this watch.
    fn end(&mut self, (index, slot): (usize, usize)) {
        let watch = &mut self.watches[index];
        if let Some(subscription) = watch.subscriptions.try_remove(slot) {
            watch.pv.posts().unsubscribe(&watch.listener, &subscription.cursor);
        }
        if watch.subscriptions.is_empty() {
            self.unwatch(index);
        }
    }

    fn unwatch(&mut self, index: usize) {
        let watch = self.watches.remove(index);
        if watch.is_unsent {
            self.n_unsent_ended += 1;
            // Searching for each one would take time quadratic in the number of a client's subscriptions.
            if self.n_unsent_ended * 2 > self.unsent_watches.len() {
                let Circuit { unsent_watches, watches, .. } = self;
                unsent_watches
                    .retain(|&(index, number)| watches.get(index).is_some_and(|watch| watch.number == number));
                self.n_unsent_ended = 0;
            }
        }
        self.watch_of_pv.remove(&Arc::as_ptr(&watch.pv).cast::<()>().addr());
        for (_, subscription) in &watch.subscriptions {
            watch.pv.posts().unsubscribe(&watch.listener, &subscription.cursor);
        }
        watch.pv.posts().unlisten(&watch.listener);
        watch.pv.listeners_changed();
    }

    fn clear(&mut self, sid: Sid, now: Now) {
        // Its puts end without a reply, and the number may soon belong to another channel.
        self.cancel_puts(Some(sid));
        let cleared = self.channels.get_mut(sid.0 as usize).and_then(Option::take);
        self.n_channels -= usize::from(cleared.is_some());
        if cleared.is_some() && self.n_channels == 0 {
            self.restart_idle_time(now);
            self.quota.set_has_channel(false);
        }
    }

    /// Sends posts to the subscriptions until the circuit has enough to write for now. Unsent posts stay in the rings,
    /// where later posts replace them and are counted.
    fn send_updates(&mut self) -> UpdateCounts {
        let mut counts = UpdateCounts::default();
        if !self.may_update() {
            return counts;
        }
        let queue_bytes_max = self.queue_bytes_max(limit::UPDATE_BYTES);
        let mut n_sent = 0;
        let mut is_full = false;
        while let (Some(&(index, number)), false) = (self.unsent_watches.get(n_sent), is_full) {
            let Some(watch) = self.watches.get_mut(index).filter(|watch| watch.number == number) else {
                self.n_unsent_ended -= 1;
                n_sent += 1;
                continue;
            };
            is_full = !send_watch(watch, &mut self.machine, queue_bytes_max, &mut counts);
            watch.is_unsent = is_full;
            n_sent += usize::from(!is_full);
        }
        self.unsent_watches.drain(..n_sent);
        if is_full {
            // Its remaining posts follow those of the others, so that one fast PV does not block the rest.
            self.unsent_watches.rotate_left(1);
        }
        counts
    }

    /// Releases everything.
    pub(super) fn close(mut self) {
        self.inbox.remove_socket(&self.stream);
        self.watches.iter_mut().for_each(|(_, watch)| watch.is_unsent = false);
        self.cancel_puts(None);
        let watches: Vec<usize> = self.watches.iter().map(|(index, _)| index).collect();
        for index in watches {
            // The panic hook has reported a panic; the other PVs must be released nevertheless.
            let _ = catch_panic(|| self.unwatch(index));
        }
    }
}

impl std::fmt::Debug for Circuit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Circuit").field("peer", &self.peer.address).finish_non_exhaustive()
    }
}
