//! The server end of a pvAccess circuit: anything that a client may send, in pieces.
//!
//! The first byte is the size of the pieces, the second selects the memory limits of the circuit.

use std::collections::HashMap;
use std::sync::Arc;

use fodo_data::{
    BitSet, Kind, NormativeLayout, Now, Reading, Structure, StructureBuilder, StructureType, normative_type,
};
use fodo_pva::cursor::ByteReader;
use fodo_pva::frame::{Frame, Framer, Sender};
use fodo_pva::guid::Guid;
use fodo_pva::message::Answer;
use fodo_pva::server::{ChannelType, Circuit, Config, Contents, Event, RequestKey, WriteReply};
use fodo_pva::status::RequestStatus;
use fodo_pva::{Sid, limit};

/// The largest accepted payload; small, so that inputs can exceed it.
const PAYLOAD_BYTES_MAX: usize = 1 << 16;

/// The maximum memory for what one message adds before the circuit checks its limit: its types.
const TYPE_BYTES_MAX: usize = limit::CACHED_NODES_MAX * 64 + limit::CACHED_NAME_BYTES_MAX;

/// The largest reply to one byte: a complete type, for the shortest GET_FIELD.
const REPLY_FACTOR_MAX: usize = 64;

/// The greeting, and the replies to a few requests.
const SENT_BYTES_SPARE: usize = 4096;

/// What the client waits for.
#[derive(Clone, Copy)]
enum Awaited {
    Contents(Sid),
    Status,
    Result,
}

/// A server circuit, and its caller with PVs of several types.
struct Server {
    circuit: Circuit,
    held_bytes_max: usize,
    /// The channels that exist.
    channels: HashMap<Sid, ChannelType>,
    /// Requests without a reply. They get one after the next piece, which may end them.
    unanswered: Vec<(RequestKey, Awaited)>,
    /// Subscriptions and their channels.
    subscriptions: HashMap<RequestKey, Sid>,
    reading: Reading,
    pair: Structure,
    sent: Framer,
    n_sent_bytes: usize,
}

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let [length, limits, rest @ ..] = bytes else { return };
    let now = Now::for_test();
    let mut server = Server::new(4096 << (limits & 15), 256 << (limits >> 4));
    let mut events = Vec::new();
    let mut n_received_bytes = 0;
    for piece in rest.chunks(usize::from(*length).max(1)) {
        let had_channels = !server.channels.is_empty();
        let due: Vec<_> = server.unanswered.iter().map(|(request, _)| *request).collect();
        server.circuit.received(piece, now, &mut events);
        n_received_bytes += piece.len();
        for event in events.drain(..) {
            if let Event::Closed(_) = event {
                return;
            }
            server.handle(event);
        }
        server.answer_all(&due);
        server.check(n_received_bytes, had_channels);
    }
    if let Some(deadline) = server.circuit.deadline() {
        server.circuit.tick(now + deadline.duration_since(now.monotonic), &mut events);
        assert!(matches!(events[..], [Event::Closed(_)]), "an incomplete message times out");
    }
}

/// The type of a PV by the last letter of its name, so that the names of recordings have several; `None` if there is no
/// such PV.
fn type_of(name: &str) -> Option<ChannelType> {
    let flat = |kind, is_array| NormativeLayout::of(Arc::new(normative_type(kind, is_array)));
    let layout = match name.bytes().last() {
        Some(b't') => return None,
        Some(b'p') => return Some(ChannelType::Structured(pair())),
        Some(b's') => flat(Kind::F64, true),
        Some(b'm') => flat(Kind::Enum, false),
        Some(b'g') => flat(Kind::Text, false),
        _ => flat(Kind::F64, false),
    };
    layout.map(|layout| ChannelType::Flat(Arc::new(layout)))
}

fn pair() -> Arc<StructureType> {
    let mut build = StructureBuilder::new("pair_t");
    build.scalar("left", Kind::I32).open("right", "").scalar("x", Kind::F64).array("list", Kind::I16).close();
    Arc::new(build.finish())
}

impl Server {
    fn new(held_bytes_max: usize, arriving_bytes_max: usize) -> Server {
        let mut circuit = Circuit::new(&Config { payload_bytes_max: PAYLOAD_BYTES_MAX, guid: Guid::default() });
        circuit.set_held_bytes_max(held_bytes_max);
        circuit.set_arriving_bytes_max(arriving_bytes_max);
        let mut pair = Structure::new(pair());
        pair.mark(0);
        Server {
            circuit,
            held_bytes_max,
            channels: HashMap::new(),
            unanswered: Vec::new(),
            subscriptions: HashMap::new(),
            reading: Reading::bare(1.5.into()),
            pair,
            sent: Framer::new(Sender::Server, 1 << 30),
            n_sent_bytes: 0,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Create { cid, name } => match type_of(&name) {
                Some(kind) => {
                    let sid = self.circuit.created(cid, kind.clone());
                    assert!(self.channels.insert(sid, kind).is_none(), "two channels have the same number");
                }
                None => self.circuit.create_failed(cid, "no such PV"),
            },
            Event::Clear { sid } => assert!(self.channels.remove(&sid).is_some(), "an unknown channel has ended"),
            Event::Search { search, names } => {
                let found: Vec<_> =
                    names.iter().filter(|(_, name)| type_of(name).is_some()).map(|(cid, _)| *cid).collect();
                self.circuit.searched(search, 5075, &found);
            }
            Event::Read { sid, request, .. } => self.wait(sid, request, Awaited::Contents(sid)),
            Event::Write { sid, request, reply: WriteReply::Status, .. } => self.wait(sid, request, Awaited::Status),
            Event::Write { sid, request, .. } => self.wait(sid, request, Awaited::Contents(sid)),
            Event::Process { sid, request } => self.wait(sid, request, Awaited::Status),
            Event::Rpc { sid, request, .. } => self.wait(sid, request, Awaited::Result),
            Event::Subscribe { sid, request, .. } => {
                assert!(self.channels.contains_key(&sid), "a subscription to an unknown channel");
                self.subscriptions.insert(request, sid);
            }
            Event::Start { request } | Event::Ack { request } => self.update(request),
            Event::Cancel { sid, request } => {
                assert!(self.channels.contains_key(&sid), "an unknown channel has ended");
                self.subscriptions.remove(&request);
                self.unanswered.retain(|(unanswered, _)| *unanswered != request);
                self.check_nothing_is_sent_for(request);
            }
            Event::Reply(reply) => self.circuit.reply(reply),
            Event::Identity { user, host, .. } => {
                assert!(user.len().max(host.len()) <= 3 * limit::IDENTITY_BYTES, "a name of unlimited length");
            }
            Event::Stop { .. } | Event::Drained | Event::Denied | Event::Closed(_) => {}
        }
    }

    fn wait(&mut self, sid: Sid, request: RequestKey, awaited: Awaited) {
        assert!(self.channels.contains_key(&sid), "a request of an unknown channel");
        self.unanswered.push((request, awaited));
    }

    /// Replies to those of the requests that have not ended.
    fn answer_all(&mut self, due: &[RequestKey]) {
        let unanswered = std::mem::take(&mut self.unanswered);
        let (ready, later): (Vec<_>, Vec<_>) = unanswered.into_iter().partition(|(request, _)| due.contains(request));
        self.unanswered = later;
        ready.into_iter().for_each(|(request, awaited)| self.answer(request, awaited));
    }

    fn answer(&mut self, request: RequestKey, awaited: Awaited) {
        match awaited {
            Awaited::Status => self.circuit.write_done(request, Ok(())),
            Awaited::Result => self.circuit.rpc_done(request, Ok(Some(&self.pair))),
            Awaited::Contents(sid) => {
                let contents = match self.is_flat(sid) {
                    true => Contents::Reading(&self.reading),
                    false => Contents::Structure(&self.pair),
                };
                self.circuit.read_done(request, Ok(contents));
            }
        }
    }

    /// Whether the value of a channel is a reading.
    fn is_flat(&self, sid: Sid) -> bool {
        matches!(self.channels.get(&sid), Some(ChannelType::Flat(_)))
    }

    /// Sends one update of a subscription, if it has not ended.
    fn update(&mut self, request: RequestKey) {
        let Some(sid) = self.subscriptions.get(&request).copied() else { return };
        let marks: BitSet = (0..20).collect();
        let was_possible = self.circuit.may_update(request);
        let contents = match self.is_flat(sid) {
            true => Contents::Reading(&self.reading),
            false => Contents::Structure(&self.pair),
        };
        let is_sent = self.circuit.update(request, contents, &marks, &marks);
        assert!(was_possible || !is_sent, "an update beyond the window");
    }

    /// Every late reply to a request that has ended is dropped.
    fn check_nothing_is_sent_for(&mut self, request: RequestKey) {
        let n_before = self.circuit.pending_bytes();
        let late = RequestStatus::error("late");
        self.circuit.read_done(request, Ok(Contents::Reading(&self.reading)));
        self.circuit.write_done(request, Err(&late));
        self.circuit.rpc_done(request, Ok(None));
        self.circuit.end_monitor(request, &late);
        let marks: BitSet = (0..20).collect();
        assert!(!self.circuit.update(request, Contents::Reading(&self.reading), &marks, &marks));
        assert_eq!(self.circuit.pending_bytes(), n_before, "a reply to a request that has ended");
    }

    /// Checks the memory of the circuit and everything that it has sent.
    fn check(&mut self, n_received_bytes: usize, had_channels: bool) {
        let arrived = 2 * n_received_bytes + 2 * limit::KEPT_BYTES;
        assert!(self.circuit.held_bytes() <= self.held_bytes_max + TYPE_BYTES_MAX + arrived, "too much memory");
        // One piece may complete several requests for channels.
        assert!(self.channels.len() <= self.held_bytes_max / limit::CHANNEL_BYTES + 64, "too many channels");
        self.n_sent_bytes += self.circuit.pending_bytes();
        let n_most = n_received_bytes * REPLY_FACTOR_MAX + SENT_BYTES_SPARE;
        assert!(self.n_sent_bytes <= n_most, "{} bytes for {n_received_bytes}", self.n_sent_bytes);
        loop {
            let ready = self.circuit.ready();
            if ready.is_empty() {
                break;
            }
            let bytes = ready.to_vec();
            self.circuit.sent(bytes.len());
            let mut left = &bytes[..];
            while let Some(frame) = self.sent.next(&mut left).expect("the server sends valid frames") {
                let Frame::Message(header, payload) = frame else { continue };
                let mut reader = ByteReader::new(payload, header.order);
                let answer = Answer::decode(header.command, &mut reader);
                assert!(!reader.has_failed(), "the server sends complete messages");
                check_answer(&answer, &mut reader, had_channels);
            }
        }
        assert_eq!(self.circuit.pending_bytes(), 0);
    }
}

/// An operation succeeds only on a channel, which must exist before the request.
fn check_answer(answer: &Answer, body: &mut ByteReader, had_channels: bool) {
    let is_success = match answer {
        Answer::Get { status, .. }
        | Answer::Put { status, .. }
        | Answer::PutGet { status, .. }
        | Answer::Array { status, .. }
        | Answer::Process { status, .. }
        | Answer::GetField { status, .. }
        | Answer::Rpc { status, .. } => status.is_success(),
        Answer::Monitor { sub, .. } if sub.0 == 0 => true,
        Answer::Monitor { .. } => RequestStatus::decode(body).is_success(),
        _ => false,
    };
    assert!(had_channels || !is_success, "{answer} without a channel");
}
