//! One client's connection: its channels, its watches on PVs, its puts in progress. What differs between the protocols
//! is in the implementations of [`CircuitProtocol`].

mod encrypted;
mod idle;
mod protocol;
mod puts;
mod resources;
mod rights;
mod sending;
mod watch;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use fodo_data::Now;
use fodo_engine::ring::Cursor;
use fodo_engine::{Rights, Sid};
use slab::Slab;

use self::idle::IdleDeadline;
pub(crate) use self::protocol::{
    ChannelPv, CircuitConfig, CircuitMachine, CircuitProtocol, EventOf, PutFailure, circuit_machine,
};
pub(crate) use self::puts::{EarlyRefusal, Put};
use self::rights::RightsCheck;
pub(crate) use self::rights::reported_rights;
use self::sending::TurnOutput;
pub(crate) use self::watch::{Watch, WatchSubscription, slots, subscribe};
use super::observer::ClientStatus;
use super::panics::{self, catch_panic};
use super::posts::PostListener;
use super::quota::CircuitQuota;
use super::reactor::{CircuitKey, Inbox, ReactorMessage};
use super::{Peer, Source, UpdateCounts, UpdateTally};
use crate::event_loop::NextCall;
use crate::flush_delay::FlushDelay;
use crate::limit;
use crate::log::{self, Log};
use crate::stream::WriteOutcome;
use crate::tls::TlsStream;

/// One client's connection.
pub(crate) struct Circuit<P: CircuitProtocol> {
    stream: Arc<TcpStream>,
    /// The encryption of the stream; `None` if it is plain TCP.
    tls: Option<Box<TlsStream>>,
    pub(crate) machine: P::Machine,
    /// What only this protocol keeps.
    pub(crate) protocol: P,
    key: CircuitKey,
    inbox: Arc<Inbox>,
    pub(crate) peer: Peer,
    channels: Vec<Option<ServedChannel<P>>>,
    n_channels: usize,
    /// Until when it may stay without a channel.
    idle_deadline: IdleDeadline,
    watches: Slab<Watch<P>>,
    watch_of_pv: HashMap<usize, usize>,
    /// The watch and the slot of each subscription.
    subscription_slots: HashMap<P::SubscriptionKey, (usize, usize)>,
    /// Watches with unsent posts, by index and number, each once, in the order of their posts.
    unsent_watches: VecDeque<(usize, u64)>,
    /// How many of these belong to watches that have ended; at most half of them.
    n_unsent_ended: usize,
    watch_next: u64,
    /// By the numbers of their completions.
    puts: HashMap<u64, Put<P>>,
    /// Memory of their values while they wait for their records.
    puts_bytes: usize,
    events: Vec<EventOf<P>>,
    /// Requests that are not answered until the reply buffer has space; nothing is decoded before.
    queued_requests: VecDeque<EventOf<P>>,
    /// Bytes read from the socket but not decoded, because enough replies were queued.
    unread: Vec<u8>,
    /// The peer has shut down its sending side.
    peer_has_ended: bool,
    /// The circuit is closed once all pending bytes are sent, or at this time.
    closes_by: Option<Instant>,
    flush_delay: FlushDelay,
    /// Reading is suspended, because replies cannot be sent.
    is_held_up: bool,
    /// Since when data has been waiting for the peer without a break.
    waits_since: Option<Instant>,
    rights_check: RightsCheck<P::SubscriptionKey>,
    counts: UpdateCounts,
    quota: CircuitQuota,
    /// Only the silence of the client shows its protocol.
    protocol_is_assumed: bool,
    log: Arc<Log>,
}

pub(crate) struct ServedChannel<P: CircuitProtocol> {
    pub(crate) pv: P::Pv,
    /// The access rights of the client, regardless of those of the PV.
    pub(crate) allowed: Rights,
}

/// A PV for which a client has requested a channel.
pub(crate) struct OpenedPv<P: CircuitProtocol> {
    pub(crate) pv: P::Pv,
    pub(crate) facts: <P::Pv as ChannelPv>::Facts,
    /// The access rights of the client, regardless of those of the PV.
    pub(crate) allowed: Rights,
}

/// Why a machine closes its circuit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClosedBecause {
    Malformed(&'static str),
    Misbehaved(&'static str),
    Exceeded(&'static str),
}

impl<P: CircuitProtocol> Circuit<P> {
    pub(super) fn new(
        stream: Arc<TcpStream>,
        key: CircuitKey,
        inbox: Arc<Inbox>,
        config: &CircuitConfig,
        quota: CircuitQuota,
        log: Arc<Log>,
        now: Now,
    ) -> Circuit<P> {
        let peer = Peer::new(quota.peer());
        log.write(log::Level::Info, "a client has connected", Some(peer.address), None, now);
        Circuit {
            stream,
            tls: None,
            machine: P::machine(config, now),
            protocol: P::new(),
            key,
            inbox,
            peer,
            channels: Vec::new(),
            n_channels: 0,
            idle_deadline: IdleDeadline::Silent(now.monotonic + quota.limits().silent_client),
            watches: Slab::new(),
            watch_of_pv: HashMap::new(),
            subscription_slots: HashMap::new(),
            unsent_watches: VecDeque::new(),
            n_unsent_ended: 0,
            watch_next: 0,
            puts: HashMap::new(),
            puts_bytes: 0,
            events: Vec::new(),
            queued_requests: VecDeque::new(),
            unread: Vec::new(),
            peer_has_ended: false,
            closes_by: None,
            flush_delay: FlushDelay::new(config.flush_delay),
            is_held_up: false,
            waits_since: None,
            rights_check: RightsCheck::Done,
            counts: UpdateCounts::default(),
            quota,
            protocol_is_assumed: false,
            log,
        }
    }

    /// The client was silent at a port for all protocols, so that it is served this one.
    pub(super) fn protocol_is_assumed(&mut self) {
        self.protocol_is_assumed = true;
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
            protocol: P::PROTOCOL,
            user: self.peer.user.clone(),
            host: self.peer.host.clone(),
            is_encrypted: self.peer.is_encrypted,
            n_channels: self.n_channels,
            n_subscriptions: self.subscription_slots.len() + self.protocol.n_suspended(),
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
            self.unsent_watches.push_back((watch, found.number));
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
        let mut output = TurnOutput::new();
        if may_read {
            match self.receive(source, buffer, &mut output, now) {
                Ok(more) => has_more = more,
                Err(_) => return None,
            }
            if self.machine.deadline().is_some_and(|at| at <= now.monotonic) {
                self.machine.tick(now, &mut self.events);
                self.answer(source, now);
            }
        }
        let sent = match self.flush_delay.is_zero() {
            true => self.send(tally, &mut output),
            false => self.send_delayed(tally, &mut output, now),
        };
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
            Ok(WriteOutcome::All | WriteOutcome::SocketIsFull) => {
                let next = self.rest(may_read, now)?;
                Some(self.flush_delay.deadline().map_or(next, |at| next.or_at(at)))
            }
            Err(_) => None,
        }
    }

    /// Whether the buffer has space for a reply.
    fn may_answer(&self) -> bool {
        self.closes_by.is_none() && self.machine.pending_bytes() < self.queue_bytes_max(limit::ANSWER_BYTES)
    }

    /// Whether all requests so far are answered, and another one can be.
    fn may_read(&self) -> bool {
        self.may_answer() && self.queued_requests.is_empty() && self.rights_check.is_done()
    }

    /// Whether updates may be sent. A queued request may cancel a subscription whose client expects no more updates,
    /// and an unchecked channel may no longer be readable by the client.
    fn may_update(&self) -> bool {
        P::may_update(&self.machine) && self.queued_requests.is_empty() && self.rights_check.is_done()
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

    /// Reads and answers a limited number of bytes; returns true if there may be more.
    fn receive(
        &mut self,
        source: &dyn Source,
        buffer: &mut [u8],
        output: &mut TurnOutput,
        now: Now,
    ) -> io::Result<bool> {
        self.answer(source, now);
        let unread = std::mem::take(&mut self.unread);
        self.feed(&unread, source, output, now)?;
        let mut n_taken = 0;
        while n_taken < limit::SERVER_TURN_BYTES && self.may_read() {
            let Some(n) = self.read_stream(buffer)? else { return Ok(self.has_received()) };
            n_taken += n;
            self.feed(&buffer[..n], source, output, now)?;
            if n < buffer.len() && !self.peer_has_ended && self.unread.is_empty() && self.queued_requests.is_empty() {
                return Ok(self.has_received());
            }
        }
        Ok(true)
    }

    /// Decodes requests in pieces and answers them while the reply buffer has space; keeps the rest.
    fn feed(&mut self, bytes: &[u8], source: &dyn Source, output: &mut TurnOutput, now: Now) -> io::Result<()> {
        let mut pieces = bytes.chunks(limit::REQUEST_PIECE_BYTES);
        while self.may_read() {
            let Some(piece) = pieces.next() else { return Ok(()) };
            self.report_resources();
            self.machine.set_held_bytes_max(self.quota.held_bytes_max());
            self.machine.set_arriving_bytes_max(self.quota.arriving_bytes_max());
            self.machine.received(piece, now, &mut self.events);
            self.answer(source, now);
            self.send_piece(output)?;
        }
        pieces.for_each(|piece| self.unread.extend_from_slice(piece));
        Ok(())
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
            if P::answer(self, source, event, now).is_break() {
                break;
            }
        }
        self.check_subscriptions();
    }

    /// Puts the rest of a request before all others; it is answered in the next turn.
    pub(crate) fn postpone(&mut self, rest: EventOf<P>) {
        self.queued_requests.push_front(rest);
    }

    /// Appends the events of the machine to the queued requests.
    pub(super) fn take_events(&mut self) {
        if self.queued_requests.is_empty() {
            // Both keep their allocations, and nothing is moved.
            let emptied =
                std::mem::replace(&mut self.queued_requests, VecDeque::from(std::mem::take(&mut self.events)));
            self.events = Vec::from(emptied);
        } else {
            self.queued_requests.extend(self.events.drain(..));
        }
    }

    /// The client has sent its names, by this method.
    pub(crate) fn identified(&mut self, user: String, host: String, method: &'static str, now: Now) {
        self.restart_idle_time(now);
        (self.peer.user, self.peer.host, self.peer.method) = (user, host, method);
    }

    /// Whether the source serves a name for which the client searches.
    pub(crate) fn serves(&self, source: &dyn Source, name: &str, now: Now) -> bool {
        self.quota.count_search();
        panics::serves(source, name, P::PROTOCOL, &self.log, self.peer.address, now)
    }

    /// The port of this circuit, for replies to searches: a client that searches here is connected to this server.
    pub(crate) fn own_port(&self) -> Option<u16> {
        self.stream.local_addr().ok().map(|address| address.port())
    }

    /// The machine has closed the circuit: logs why, and ends it when the client has received what it says.
    pub(crate) fn closed(&mut self, reason: ClosedBecause, now: Now) {
        let (why, what) = match reason {
            ClosedBecause::Malformed(what) => ("it sent an invalid message", what),
            ClosedBecause::Misbehaved(what) => ("it violated the protocol", what),
            ClosedBecause::Exceeded(what) => {
                self.quota.count_refused();
                ("it exceeded a limit", what)
            }
        };
        let mut text = format!("a client is closed, because {why}: {what}");
        if self.protocol_is_assumed {
            let silence_ms = limit::FIRST_BYTE.as_millis();
            text.push_str(&format!(" (it was silent for {silence_ms} ms, so that {} was assumed)", P::PROTOCOL.name()));
        }
        self.log.write(log::Level::Warning, &text, Some(self.peer.address), None, now);
        self.closes_by = Some(now.monotonic + limit::CLOSING);
    }

    /// Opens the PV of a new channel. Fails with the reason for the client; what the program reports is logged.
    pub(crate) fn open(&mut self, source: &dyn Source, name: &str, now: Now) -> Result<OpenedPv<P>, String> {
        self.restart_idle_time(now);
        let opened = catch_panic(|| match source.open(name).map(P::Pv::accept) {
            Some(Ok((pv, facts))) => Ok(OpenedPv { facts, allowed: pv.rights(&self.peer), pv }),
            Some(Err(reason)) => Err(Some(reason.to_owned())),
            None => Err(source.refusal_reason(name)),
        });
        match opened {
            Ok(Ok(opened)) => Ok(opened),
            Ok(Err(reason)) => {
                let (level, what) = match &reason {
                    Some(reason) => (log::Level::Warning, format!("a channel is refused: {reason}")),
                    None => (log::Level::Debug, "a channel is refused".into()),
                };
                self.log.write(level, &what, Some(self.peer.address), Some(name), now);
                Err(reason.unwrap_or_else(|| "there is no PV with this name".into()))
            }
            Err(panic) => {
                panics::log_panic(&self.log, "a channel is refused", &panic, self.peer.address, Some(name), now);
                Err("the PV cannot be opened".into())
            }
        }
    }

    /// Stores a channel that the machine has confirmed.
    pub(crate) fn add_channel(&mut self, sid: Sid, pv: P::Pv, allowed: Rights) {
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

    /// Whether the client has a channel.
    pub(crate) fn has_channels(&self) -> bool {
        self.n_channels > 0
    }

    #[inline]
    pub(crate) fn channel(&self, sid: Sid) -> Option<&ServedChannel<P>> {
        self.channels.get(sid.0 as usize)?.as_ref()
    }

    /// Starts a subscription to the PV of a channel. `subscribe`: adds it to those of the listener, and returns what its
    /// updates contain and its position.
    #[inline]
    pub(crate) fn start_subscription(
        &mut self,
        sid: Sid,
        key: P::SubscriptionKey,
        subscribe: impl FnOnce(&P::Pv, &Arc<PostListener>) -> Option<(P::Content, Cursor)>,
    ) {
        let Some(channel) = self.channel(sid) else { return };
        let pv = channel.pv.clone();
        let address = pv.address();
        let watch = match self.watch_of_pv.get(&address) {
            Some(&watch) => watch,
            None => self.watch(address, &pv),
        };
        let listener = self.watches[watch].listener.clone();
        let Some((content, cursor)) = subscribe(&pv, &listener) else { return };
        let Watch { subscriptions, n_slots, .. } = &mut self.watches[watch];
        let slot = subscriptions.insert(WatchSubscription { key, sid, content, cursor });
        *n_slots = (*n_slots).max(slot + 1);
        // Replaces another subscription with the same number.
        if let Some(before) = self.subscription_slots.insert(key, (watch, slot)) {
            self.end(before);
        }
    }

    /// A running subscription; `None` if it has not started, or has ended.
    pub(crate) fn running_subscription(&mut self, key: P::SubscriptionKey) -> Option<&mut WatchSubscription<P>> {
        let &(watch, slot) = self.subscription_slots.get(&key)?;
        self.watches.get_mut(watch)?.subscriptions.get_mut(slot)
    }

    /// A subscription can be sent updates again: looks for them.
    pub(crate) fn look_for_updates(&mut self, key: P::SubscriptionKey) {
        if let Some(&(watch, _)) = self.subscription_slots.get(&key) {
            self.posted(watch);
        }
    }

    /// Requests another turn.
    pub(crate) fn request_turn(&self) {
        // No watch has this index.
        self.inbox.push(ReactorMessage::Posted { circuit: self.key, watch: usize::MAX });
    }

    /// Starts to listen to a PV.
    fn watch(&mut self, address: usize, pv: &P::Pv) -> usize {
        let entry = self.watches.vacant_entry();
        let watch = entry.key();
        let listener = PostListener::new(self.inbox.clone(), self.key, watch);
        pv.listen(listener.clone());
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

    /// Ends a running subscription; returns whether it was running.
    pub(crate) fn end_subscription(&mut self, key: P::SubscriptionKey) -> bool {
        let place = self.subscription_slots.remove(&key);
        place.is_some_and(|place| {
            self.end(place);
            true
        })
    }

    /// Ends the subscription in this slot of this watch.
    fn end(&mut self, (index, slot): (usize, usize)) {
        let watch = &mut self.watches[index];
        if let Some(subscription) = watch.subscriptions.try_remove(slot) {
            watch.pv.unsubscribe(&watch.listener, &subscription.cursor);
            self.protocol.subscription_ended(&watch.pv, &subscription.content);
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
        self.watch_of_pv.remove(&watch.pv.address());
        for (_, subscription) in &watch.subscriptions {
            watch.pv.unsubscribe(&watch.listener, &subscription.cursor);
            self.protocol.subscription_ended(&watch.pv, &subscription.content);
        }
        watch.pv.unlisten(&watch.listener);
        watch.pv.listeners_changed();
    }

    /// The client has destroyed a channel, after its subscriptions.
    pub(crate) fn clear(&mut self, sid: Sid, now: Now) {
        // Its puts end without a reply, and the number may soon belong to another channel.
        self.cancel_puts(Some(sid));
        let cleared = self.channels.get_mut(sid.0 as usize).and_then(Option::take);
        self.n_channels -= usize::from(cleared.is_some());
        if cleared.is_some() && self.n_channels == 0 {
            self.restart_idle_time(now);
            self.quota.set_has_channel(false);
        }
    }

    /// Releases everything.
    pub(super) fn close(mut self) {
        self.inbox.remove_socket(&self.stream);
        if self.flush_delay.deadline().is_some() {
            // Without the delay these bytes would have been sent. What the socket does not accept is lost with the circuit.
            let mut n_budget = limit::SERVER_TURN_BYTES;
            let _ = self.flush_up_to(&mut n_budget);
        }
        if let Some(tls) = &mut self.tls {
            tls.close(&self.stream);
        }
        self.watches.iter_mut().for_each(|(_, watch)| watch.is_unsent = false);
        self.cancel_puts(None);
        let watches: Vec<usize> = self.watches.iter().map(|(index, _)| index).collect();
        for index in watches {
            // The panic hook has reported a panic; the other PVs must be released nevertheless.
            let _ = catch_panic(|| self.unwatch(index));
        }
    }
}

impl<P: CircuitProtocol> std::fmt::Debug for Circuit<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Circuit").field("peer", &self.peer.address).finish_non_exhaustive()
    }
}
