//! The server end of a circuit.

mod event;
mod refusal;
mod write;

use std::time::Instant;

use fodo_data::{ConvertError, EventMask, Now, Reading};
use fodo_engine::outbox::Outbox;
use fodo_engine::{Cid, Ioid, Rights, Sid, SubscriptionId};
use slab::Slab;

pub use self::event::{CloseReason, Config, DroppedPut, Event, PendingSearch, ReadReply};
use crate::dbr::{self, DbrType};
use crate::eca::Eca;
use crate::frame::{Framer, MessageHandler, Plan};
use crate::message::{self, Answer, Header, MINOR_VERSION, Request};
use crate::subscriptions::{Subscription, Subscriptions};
use crate::value_message::{DbrArray, push_value};
use crate::{limit, search};

/// The server end of a circuit.
#[derive(Debug)]
pub struct Circuit {
    framer: Framer,
    inner: ServerState,
}

/// Everything but the framer, so that the framer can call it.
#[derive(Debug)]
struct ServerState {
    outbox: Outbox<DbrArray>,
    events: Vec<Event>,
    channels: Slab<OpenChannel>,
    /// Channels that were cleared by one of the latest events. Their numbers are not reused before the caller has
    /// processed these events; otherwise they would end a channel created in the meantime.
    cleared: Vec<Sid>,
    subscriptions: Subscriptions,
    user: String,
    host: String,
    has_channels: bool,
    events_off: bool,
    is_closed: bool,
    payload_bytes_max: usize,
    held_bytes_max: usize,
    /// How many bytes of values may arrive with the next [`Circuit::received`].
    arriving_bytes_max: usize,
    /// Whether the caller's reply to one of the latest events must precede replies of the circuit itself.
    has_pending_replies: bool,
}

#[derive(Debug)]
struct OpenChannel {
    cid: Cid,
    count_max: u32,
    may_write: bool,
    is_cleared: bool,
}

impl Circuit {
    /// Creates a circuit with VERSION ready to be sent.
    pub fn new(config: &Config, now: Now) -> Circuit {
        let _ = now;
        let mut outbox = Outbox::default();
        let version = Answer::Version { valid: 0, minor: u32::from(MINOR_VERSION), sequence: 0 };
        outbox.push(|bytes| version.encode(bytes));
        let inner = ServerState {
            outbox,
            events: Vec::new(),
            channels: Slab::new(),
            cleared: Vec::new(),
            subscriptions: Subscriptions::default(),
            user: String::new(),
            host: String::new(),
            has_channels: false,
            events_off: false,
            is_closed: false,
            payload_bytes_max: config.payload_bytes_max,
            held_bytes_max: limit::HELD_BYTES,
            arriving_bytes_max: limit::HELD_BYTES,
            has_pending_replies: false,
        };
        Circuit { framer: Framer::default(), inner }
    }

    /// Confirms a channel (ACCESS_RIGHTS, then CREATE_CHAN, the same as rsrv) and returns its server-side number.
    /// Numbers of cleared channels are reused, so that they can index a slab.
    pub fn created(&mut self, cid: Cid, native: DbrType, count: u32, rights: Rights) -> Sid {
        let channel = OpenChannel { cid, count_max: count, may_write: rights.write, is_cleared: false };
        let sid = Sid(self.inner.channels.insert(channel) as u32);
        self.inner.outbox.push(|bytes| {
            Answer::AccessRights { cid, rights }.encode(bytes);
            Answer::CreateChan { dbr: native, count, cid, sid }.encode(bytes);
        });
        sid
    }

    /// Sends changed access rights of a channel.
    pub fn rights_changed(&mut self, sid: Sid, rights: Rights) {
        if let Some(channel) = self.inner.channel_mut(sid) {
            channel.may_write = rights.write;
            let cid = channel.cid;
            self.inner.outbox.push(|bytes| Answer::AccessRights { cid, rights }.encode(bytes));
        }
    }

    /// Closes a channel of which the PV exists no longer, and reports that to the client. `events`: receives what this ends.
    pub fn close_channel(&mut self, sid: Sid, events: &mut Vec<Event>) {
        let Some(channel) = self.inner.channel_mut(sid) else { return };
        channel.is_cleared = true;
        let cid = channel.cid;
        self.inner.cleared.push(sid);
        self.inner.subscriptions.remove_channel(sid, |subscription| events.push(Event::Cancel { sid, subscription }));
        self.inner.outbox.push(|bytes| Answer::ServerDisconn { cid }.encode(bytes));
        events.push(Event::Clear { sid });
    }

    /// Replies to a search: circuits for the name are at `port` of this host. `None`: sends NOT_FOUND if the client
    /// requested it, otherwise nothing.
    pub fn searched(&mut self, search: PendingSearch, port: Option<u16>) {
        let PendingSearch { reply, minor, cid, again } = search;
        self.inner.outbox.push(|bytes| match port {
            // Without the payload of the UDP reply, the same as rsrv.
            Some(port) => Answer::Search { port, count: 0, address: u32::MAX, cid }.encode(bytes),
            None if reply == search::DO_REPLY => Answer::NotFound { reply, minor, cid, again }.encode(bytes),
            None => {}
        });
    }

    /// Reports that the channel does not exist.
    pub fn create_failed(&mut self, cid: Cid) {
        self.inner.outbox.push(|bytes| Answer::CreateChFail { cid }.encode(bytes));
    }

    /// Replies to a read; if the value cannot be converted to `dbr`, the client receives an error.
    #[inline]
    pub fn read_done(&mut self, sid: Sid, dbr: DbrType, count: u32, reply: ReadReply, result: Result<&Reading, Eca>) {
        let failed = match (result, reply) {
            (Err(status), _) => status,
            (Ok(reading), ReadReply::Notify(ioid)) => {
                let status = Eca::NORMAL;
                let header = |bytes, count| Answer::ReadNotify { dbr, count, status, ioid }.header(bytes);
                match push_value(&mut self.inner.outbox, dbr, count, reading, header) {
                    Ok(()) => return,
                    Err(_) => Eca::GETFAIL,
                }
            }
            (Ok(reading), ReadReply::Plain(ioid)) => match self.inner.answer_plain(sid, dbr, count, ioid, reading) {
                Ok(()) => return,
                Err(_) => Eca::GETFAIL,
            },
        };
        match reply {
            ReadReply::Notify(ioid) => self.inner.refuse_read(dbr, count, ioid, failed),
            ReadReply::Plain(ioid) => {
                let request = Request::Read { dbr, count, sid, ioid }.header(0);
                self.inner.complain(&request, failed, "the value cannot be read");
            }
        }
    }

    /// Replies to a write; `Err` contains the status for the client. Channels cleared in the meantime are ignored.
    pub fn write_done(&mut self, sid: Sid, dbr: DbrType, count: u32, ioid: Option<Ioid>, result: Result<(), Eca>) {
        match (ioid, result) {
            (Some(ioid), result) => {
                let status = result.err().unwrap_or(Eca::NORMAL);
                self.inner.outbox.push(|bytes| Answer::WriteNotify { dbr, count, status, ioid }.encode(bytes));
            }
            (None, Err(status)) => {
                // libca identifies the channel of a failed put by the second word, where its request has the client's
                // number.
                let ioid = Ioid(self.inner.cid(sid).0);
                let payload_bytes = dbr.payload_bytes(count).map_or(0, message::padded);
                let request = Request::Write { dbr, count, sid, ioid }.header(payload_bytes);
                self.inner.complain(&request, status, "the value cannot be written");
            }
            (None, Ok(())) => {}
        }
    }

    /// Sends an update of a subscription.
    #[inline(always)]
    pub fn update(
        &mut self,
        sid: Sid,
        dbr: DbrType,
        count: u32,
        subscription: SubscriptionId,
        result: Result<&Reading, Eca>,
    ) -> Result<(), ConvertError> {
        debug_assert!(self.inner.channels.contains(sid.0 as usize));
        match result {
            Ok(reading) => {
                let status = Eca::NORMAL;
                let header = |bytes, count| Answer::EventAdd { dbr, count, status, subscription }.header(bytes);
                push_value(&mut self.inner.outbox, dbr, count, reading, header)
            }
            Err(status) => {
                self.inner.refuse_update(dbr, count, subscription, status);
                Ok(())
            }
        }
    }

    /// Memory of the client's channels, subscriptions and incomplete message, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.inner.held_bytes() + self.framer.held_bytes()
    }

    /// Sets the limit for [`Circuit::held_bytes`]; a client that exceeds it receives an error and is disconnected.
    pub fn set_held_bytes_max(&mut self, bytes: usize) {
        self.inner.held_bytes_max = bytes;
    }

    /// Sets by how much the value of an incomplete put may grow with the next [`Circuit::received`]. A put that needs
    /// more is rejected, and its payload is dropped as it arrives.
    pub fn set_arriving_bytes_max(&mut self, bytes: usize) {
        self.inner.arriving_bytes_max = bytes;
    }

    /// Restarts the timeout of an incomplete message, because the caller did not read for a while.
    pub fn resume(&mut self, now: Now) {
        self.framer.resume(now);
    }

    /// Sends the contents of an [`Event::Reply`].
    pub fn reply(&mut self, answers: &[u8]) {
        self.inner.outbox.push(|bytes| bytes.extend_from_slice(answers));
    }

    /// Whether the client suspended updates (EVENTS_OFF).
    pub fn events_off(&self) -> bool {
        self.inner.events_off
    }

    /// Processes received bytes. The caller must have processed the events of the previous call.
    pub fn received(&mut self, bytes: &[u8], now: Now, events: &mut Vec<Event>) {
        for sid in self.inner.cleared.drain(..) {
            self.inner.channels.remove(sid.0 as usize);
        }
        std::mem::swap(&mut self.inner.events, events);
        let held_bytes_max = self.framer.held_bytes().saturating_add(self.inner.arriving_bytes_max);
        if let Err(reason) = self.framer.feed(bytes, now, &mut self.inner) {
            self.inner.close(CloseReason::Malformed(reason));
        }
        if self.framer.held_bytes() > held_bytes_max
            && let Some(header) = self.framer.skip_value()
        {
            self.inner.drain(&header, DroppedPut::NoRoom);
        }
        self.inner.has_pending_replies = false;
        std::mem::swap(&mut self.inner.events, events);
    }

    /// Performs actions that are due at `now`: closes the circuit if an incomplete message has timed out.
    pub fn tick(&mut self, now: Now, events: &mut Vec<Event>) {
        if self.deadline().is_some_and(|at| at <= now.monotonic) {
            std::mem::swap(&mut self.inner.events, events);
            self.inner.close(CloseReason::Misbehaved("incomplete message timed out"));
            std::mem::swap(&mut self.inner.events, events);
        }
    }

    /// The latest time to call [`Circuit::tick`].
    pub fn deadline(&self) -> Option<Instant> {
        self.framer.deadline().filter(|_| !self.inner.is_closed)
    }

    /// The next bytes to write; see [`Outbox::ready`].
    pub fn ready(&mut self) -> &[u8] {
        self.inner.outbox.ready()
    }

    /// Reports that the first `n` ready bytes were written.
    pub fn sent(&mut self, n: usize) {
        self.inner.outbox.sent(n);
    }

    /// The number of bytes waiting to be sent.
    #[inline]
    pub fn pending_bytes(&self) -> usize {
        self.inner.outbox.pending_bytes()
    }
}

/// Appends the error sent to a client whose circuit is rejected: an ERROR about VERSION, which the client need not have
/// sent.
pub fn refusal(status: Eca, text: &str, out: &mut Vec<u8>) {
    let request = Request::Version { priority: 0, minor: u32::from(MINOR_VERSION), sequence: 0 }.header(0);
    complaint(&request, Cid(u32::MAX), status, text, out);
}

/// Appends an ERROR message: the header of the request and a text.
fn complaint(request: &Header, cid: Cid, status: Eca, text: &str, out: &mut Vec<u8>) {
    let mut payload = Vec::new();
    request.encode(&mut payload);
    payload.extend_from_slice(text.as_bytes());
    payload.push(0);
    payload.resize(message::padded(payload.len()), 0);
    Answer::Error { cid, status }.header(payload.len()).encode(out);
    out.append(&mut payload);
}

impl MessageHandler for ServerState {
    fn knows(&self, command: u16) -> bool {
        Request::ROWS.iter().any(|row| row.command == command)
    }

    fn plan(&mut self, header: &Header) -> Plan {
        let (dbr, count, sid) = match Request::from_header(header) {
            Request::Write { dbr, count, sid, .. } | Request::WriteNotify { dbr, count, sid, .. } => (dbr, count, sid),
            _ if header.payload_bytes <= limit::SMALL_PAYLOAD_BYTES => return Plan::Whole,
            _ => {
                self.complain(header, Eca::TOLARGE, "the payload is too large for this request");
                return Plan::Skip;
            }
        };
        if !self.owns(header, sid) {
            return Plan::Skip;
        }
        self.plan_write(header, sid, dbr, count)
    }

    fn message(&mut self, header: &Header, payload: &[u8]) {
        match Request::from_header(header) {
            Request::ReadNotify { dbr, count, sid, ioid } => {
                self.read(header, sid, dbr, count, ReadReply::Notify(ioid));
            }
            Request::Read { dbr, count, sid, ioid } => self.read(header, sid, dbr, count, ReadReply::Plain(ioid)),
            Request::Write { dbr, count, .. } | Request::WriteNotify { dbr, count, .. } => {
                self.write(header, dbr, count, payload);
            }
            Request::EventAdd { dbr, count, sid, subscription } => {
                self.subscribe(header, sid, dbr, count, subscription, payload);
            }
            Request::EventCancel { sid, subscription, .. } => self.cancel(header, sid, subscription),
            Request::CreateChan { cid, minor } => self.create(header, cid, minor, payload),
            Request::ClearChannel { sid, cid } => self.clear(header, sid, cid),
            Request::Echo {} | Request::ReadSync {} => self.answer(|bytes| {
                header.encode(bytes);
                bytes.extend_from_slice(payload);
            }),
            Request::EventsOff {} => self.events_off = true,
            Request::EventsOn {} => self.events_off = false,
            Request::Version { .. } => {}
            Request::ClientName {} => self.identify(header, payload, |inner, name| inner.user = name),
            Request::HostName {} => self.identify(header, payload, |inner, name| inner.host = name),
            Request::Search { reply, minor, cid, again } => {
                let name = message::text(payload).and_then(|name| std::str::from_utf8(name).ok());
                if let Some(name) = name.filter(|name| !name.is_empty() && name.len() <= limit::NAME_BYTES) {
                    self.request_reply(Event::Search {
                        search: PendingSearch { reply, minor, cid, again },
                        name: name.into(),
                    });
                }
            }
            Request::RepeaterRegister { .. } | Request::Unknown(_) => {
                self.complain(header, Eca::INTERNAL, "invalid (damaged?) request code from TCP");
                self.close(CloseReason::Misbehaved("command is not a client request"));
            }
        }
    }

    fn misaligned(&mut self, header: &Header) {
        self.complain(header, Eca::INTERNAL, "payload size is not a multiple of 8 bytes");
    }

    fn value(&mut self, header: &Header, reading: Reading) {
        self.written(header, reading.value);
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl ServerState {
    /// Passes on a request that the caller replies to.
    #[inline]
    fn request_reply(&mut self, event: Event) {
        self.has_pending_replies = true;
        self.events.push(event);
    }

    /// Replies immediately, or after pending replies of the caller: the reply to an echo must follow all earlier
    /// replies.
    fn answer(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.has_pending_replies {
            return self.outbox.push(write);
        }
        let mut bytes = Vec::new();
        write(&mut bytes);
        self.events.push(Event::Reply(bytes));
    }

    fn close(&mut self, reason: CloseReason) {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.events.push(Event::Closed(reason));
        }
    }

    fn held_bytes(&self) -> usize {
        self.channels.len() * limit::CHANNEL_BYTES + self.subscriptions.len() * limit::SUBSCRIPTION_BYTES
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.held_bytes() + bytes <= self.held_bytes_max
    }

    fn exceed(&mut self, request: &Header) {
        self.complain(request, Eca::ALLOCMEM, "too many channels and subscriptions for this client or its host");
        self.close(CloseReason::Exceeded("too many channels and subscriptions for the client or its host"));
    }

    /// The client's number for one of its channels; all ones if the channel does not exist.
    fn cid(&self, sid: Sid) -> Cid {
        self.channel(sid).map_or(Cid(u32::MAX), |channel| channel.cid)
    }

    fn channel_mut(&mut self, sid: Sid) -> Option<&mut OpenChannel> {
        self.channels.get_mut(sid.0 as usize).filter(|channel| !channel.is_cleared)
    }

    #[inline]
    fn channel(&self, sid: Sid) -> Option<&OpenChannel> {
        self.channels.get(sid.0 as usize).filter(|channel| !channel.is_cleared)
    }

    /// Whether the channel belongs to this circuit; if not, sends an ERROR. Unlike rsrv, which closes the circuit, this
    /// rejects only the request: the client's other channels are not at fault.
    #[inline]
    fn owns(&mut self, request: &Header, sid: Sid) -> bool {
        let is_ours = self.channel(sid).is_some();
        if !is_ours {
            self.disown(request);
        }
        is_ours
    }

    #[cold]
    fn disown(&mut self, request: &Header) {
        self.complain(request, Eca::INTERNAL, "Bad Resource ID");
    }

    #[inline]
    fn read(&mut self, request: &Header, sid: Sid, dbr: DbrType, count: u32, reply: ReadReply) {
        if !self.owns(request, sid) {
            return;
        }
        let is_readable = dbr.kind().is_some() && dbr != DbrType::PUT_ACKT && dbr != DbrType::PUT_ACKS;
        let bytes = dbr.payload_bytes(count).unwrap_or(usize::MAX);
        if is_readable && bytes <= self.payload_bytes_max {
            let count = if matches!(reply, ReadReply::Plain(_)) { count.max(1) } else { count };
            return self.request_reply(Event::Read { sid, dbr, count, reply });
        }
        let status = match dbr.kind() {
            None => Eca::BADTYPE,
            Some(_) if is_readable => Eca::TOLARGE,
            Some(_) => Eca::GETFAIL,
        };
        match reply {
            ReadReply::Notify(ioid) => self.refuse_read(dbr, count, ioid, status),
            ReadReply::Plain(_) => self.complain(request, status, "the value cannot be read"),
        }
    }

    /// Replies to READ; a single string is sent with no more bytes than it needs.
    fn answer_plain(
        &mut self,
        sid: Sid,
        dbr: DbrType,
        count: u32,
        ioid: Ioid,
        reading: &Reading,
    ) -> Result<(), ConvertError> {
        let cid = self.cid(sid);
        // Replies contain the client's channel number in the word where requests have the server's.
        let header = |bytes, count| Answer::Read { dbr, count, sid: Sid(cid.0), ioid }.header(bytes);
        if dbr != DbrType(0) || count != 1 {
            return push_value(&mut self.outbox, dbr, count, reading, header);
        }
        let mut payload = Vec::new();
        dbr::encode(dbr, 1, reading, &mut payload)?;
        let n_text = payload.iter().position(|&byte| byte == 0).unwrap_or(payload.len() - 1);
        payload.truncate(message::padded(n_text + 1));
        self.answer(|bytes| {
            header(payload.len(), 1).encode(bytes);
            bytes.extend_from_slice(&payload);
        });
        Ok(())
    }

    fn subscribe(
        &mut self,
        header: &Header,
        sid: Sid,
        dbr: DbrType,
        count: u32,
        subscription: SubscriptionId,
        payload: &[u8],
    ) {
        if !self.owns(header, sid) {
            return;
        }
        let mask = message::mask(payload);
        if dbr.kind().is_none() {
            return self.complain(header, Eca::BADTYPE, "unknown data type");
        }
        let is_new = self.subscriptions.find(subscription).is_none();
        let is_small = dbr.payload_bytes(count).is_some_and(|bytes| bytes <= self.payload_bytes_max);
        if mask == 0 || mask > 255 || !is_new || !is_small {
            return self.complain(header, Eca::ALLOCMEM, "the subscription cannot be installed");
        }
        if !self.has_room_for(limit::SUBSCRIPTION_BYTES) {
            return self.exceed(header);
        }
        self.subscriptions.insert(subscription, Subscription { sid, dbr, count });
        // Bits beyond the four kinds of change never match.
        let mask = EventMask((mask & 0x0f) as u8);
        self.request_reply(Event::Subscribe { sid, dbr, count, mask, subscription });
    }

    fn cancel(&mut self, header: &Header, sid: Sid, subscription: SubscriptionId) {
        if !self.owns(header, sid) {
            return;
        }
        match self.subscriptions.find(subscription) {
            Some(Subscription { sid: subscribed_sid, dbr, count }) if subscribed_sid == sid => {
                self.subscriptions.remove(subscription);
                // rsrv replies with EVENT_ADD without payload and the channel number in the status word.
                let status = Eca(sid.0);
                self.answer(|bytes| Answer::EventAdd { dbr, count, status, subscription }.encode(bytes));
                self.events.push(Event::Cancel { sid, subscription });
            }
            _ => self.complain(header, Eca::BADMONID, "no such subscription"),
        }
    }

    fn create(&mut self, header: &Header, cid: Cid, minor: u32, payload: &[u8]) {
        self.has_channels = true;
        if minor < 4 {
            return self.complain(header, Eca::DEFUNCT, "clients before version 4.4 are not supported");
        }
        if !self.has_room_for(limit::CHANNEL_BYTES) {
            return self.exceed(header);
        }
        // No PV has a name that lacks its NUL, is not UTF-8 or is too long.
        match message::text(payload).and_then(|name| std::str::from_utf8(name).ok()) {
            Some(name) if name.len() <= limit::NAME_BYTES => {
                self.request_reply(Event::Create { cid, name: name.to_owned() })
            }
            _ => self.answer(|bytes| Answer::CreateChFail { cid }.encode(bytes)),
        }
    }

    fn clear(&mut self, header: &Header, sid: Sid, cid: Cid) {
        if !self.owns(header, sid) {
            return;
        }
        if let Some(channel) = self.channels.get_mut(sid.0 as usize) {
            channel.is_cleared = true;
            self.cleared.push(sid);
        }
        let ServerState { subscriptions, events, .. } = self;
        subscriptions.remove_channel(sid, |subscription| events.push(Event::Cancel { sid, subscription }));
        self.answer(|bytes| Answer::ClearChannel { sid, cid }.encode(bytes));
        self.events.push(Event::Clear { sid });
    }

    /// Names are accepted until the first channel; later ones are rejected, the same as in rsrv.
    fn identify(&mut self, header: &Header, payload: &[u8], set: fn(&mut ServerState, String)) {
        if self.has_channels {
            return self.complain(header, Eca::INTERNAL, "names must be sent before the first channel is created");
        }
        let Some(name) = message::text(payload).filter(|name| name.len() <= limit::IDENTITY_BYTES) else {
            return self.complain(header, Eca::INTERNAL, "name is longer than 512 bytes or not NUL-terminated");
        };
        set(self, String::from_utf8_lossy(name).into_owned());
        self.events.push(Event::Identity { user: self.user.clone(), host: self.host.clone() });
    }
}
