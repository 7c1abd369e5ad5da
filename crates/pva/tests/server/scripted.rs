//! A server circuit and its scripted client.

use std::sync::Arc;

use fodo_data::{
    Alarm, BitSet, Kind, Limits, Meta, NormativeLayout, Now, Reading, Severity, Status, StructureBuilder,
    StructureType, TimeStamp, Value, normative_type,
};
use fodo_pva::cursor::{ByteOrder, ByteReader, ByteWriter};
use fodo_pva::frame::{Frame, Framer, Sender};
use fodo_pva::guid::Guid;
use fodo_pva::message::{Answer, NewChannel, Request, Subcommand};
use fodo_pva::request::PvRequest;
use fodo_pva::server::{ChannelType, Circuit, CloseReason, Config, Contents, Event, RequestKey};
use fodo_pva::status::StatusLevel;
use fodo_pva::types::{self, TypeCache};
use fodo_pva::validation::Credentials;
use fodo_pva::{Cid, Ioid, Sid, value};

pub const PAYLOAD_BYTES_MAX: usize = 1 << 24;

/// One message of the server.
#[derive(Clone, Debug)]
pub struct Received {
    pub answer: Answer,
    pub body: Vec<u8>,
}

impl Received {
    pub fn reader(&self) -> ByteReader<'_> {
        ByteReader::new(&self.body, ByteOrder::Little)
    }

    /// The level of its status.
    pub fn level(&self) -> StatusLevel {
        match &self.answer {
            Answer::CreateChannel { status, .. }
            | Answer::ConnectionValidated { status }
            | Answer::Get { status, .. }
            | Answer::Put { status, .. }
            | Answer::PutGet { status, .. }
            | Answer::Array { status, .. }
            | Answer::Process { status, .. }
            | Answer::GetField { status, .. }
            | Answer::Rpc { status, .. } => status.level,
            Answer::Monitor { sub, .. } if *sub != Subcommand::EXECUTE => {
                fodo_pva::status::RequestStatus::decode(&mut self.reader()).level
            }
            other => panic!("{other} has no status"),
        }
    }
}

/// A server circuit and its client.
pub struct Server {
    pub circuit: Circuit,
    /// The events that the test has not taken.
    pub events: Vec<Event>,
    pub now: Now,
    /// The byte order of the client.
    pub order: ByteOrder,
    framer: Framer,
    pub types: TypeCache,
}

impl Server {
    /// A circuit whose client has sent nothing.
    pub fn new() -> Server {
        let now = Now::for_test();
        let config = Config { payload_bytes_max: PAYLOAD_BYTES_MAX, guid: Guid::from_bits(1, 2) };
        Server {
            circuit: Circuit::new(&config),
            events: Vec::new(),
            now,
            order: ByteOrder::Little,
            framer: Framer::new(Sender::Server, 1 << 30),
            types: TypeCache::new(),
        }
    }

    /// A circuit whose client has been validated, and has received the reply.
    pub fn validated() -> Server {
        let mut server = Server::new();
        server.validate(&Credentials::Ca { user: "ann".into(), host: "desk".into() });
        server.answers();
        server.take();
        server
    }

    /// A circuit with a channel to a double.
    pub fn with_double() -> (Server, Sid) {
        let mut server = Server::validated();
        let sid = server.channel(double());
        (server, sid)
    }

    pub fn validate(&mut self, credentials: &Credentials) {
        let method = credentials.method();
        let request = Request::ConnectionValidation { buffer_bytes: 0x10000, registry_size: 0x7fff, qos: 0, method };
        self.send(&request, |to| credentials.encode(None, to));
    }

    /// Creates a channel, whose client has received the reply.
    pub fn channel(&mut self, kind: ChannelType) -> Sid {
        self.send(&Request::CreateChannel { channels: vec![NewChannel { cid: Cid(9), name: "pv".into() }] }, |_| {});
        let [Event::Create { cid, .. }] = self.take()[..] else { panic!("one channel") };
        let sid = self.circuit.created(cid, kind);
        self.answers();
        sid
    }

    /// The client sends a message.
    pub fn send(&mut self, request: &Request, body: impl FnOnce(&mut ByteWriter)) {
        let mut bytes = Vec::new();
        request.encode(self.order, &mut bytes, body);
        self.receive(&bytes);
    }

    pub fn receive(&mut self, bytes: &[u8]) {
        self.circuit.received(bytes, self.now, &mut self.events);
    }

    /// The events since the last call, except for replies of the circuit, which are sent.
    pub fn take(&mut self) -> Vec<Event> {
        let mut others = Vec::new();
        for event in self.events.drain(..) {
            match event {
                Event::Reply(reply) => self.circuit.reply(reply),
                event => others.push(event),
            }
        }
        others
    }

    /// The only event since the last call.
    pub fn event(&mut self) -> Event {
        let events = self.take();
        let [event] = &events[..] else { panic!("{events:?}") };
        event.clone()
    }

    /// The request of the only event since the last call.
    pub fn request(&mut self) -> RequestKey {
        match self.event() {
            Event::Read { request, .. }
            | Event::Write { request, .. }
            | Event::Process { request, .. }
            | Event::Rpc { request, .. }
            | Event::Subscribe { request, .. } => request,
            other => panic!("{other:?}"),
        }
    }

    /// All bytes that the server has queued.
    pub fn sent(&mut self) -> Vec<u8> {
        let mut sent = Vec::new();
        loop {
            let ready = self.circuit.ready();
            if ready.is_empty() {
                return sent;
            }
            sent.extend_from_slice(ready);
            let n = ready.len();
            self.circuit.sent(n);
        }
    }

    /// The messages that the server has queued, without control messages.
    pub fn answers(&mut self) -> Vec<Received> {
        let bytes = self.sent();
        let mut left = &bytes[..];
        let mut answers = Vec::new();
        while let Some(frame) = self.framer.next(&mut left).unwrap() {
            let Frame::Message(header, payload) = frame else { continue };
            let mut reader = ByteReader::new(payload, header.order);
            let answer = Answer::decode(header.command, &mut reader);
            answers.push(Received { answer, body: reader.rest().to_vec() });
        }
        answers
    }

    /// The only message that the server has queued.
    pub fn answer(&mut self) -> Received {
        let answers = self.answers();
        let [answer] = &answers[..] else { panic!("{answers:?}") };
        answer.clone()
    }

    /// Starts an operation with a pvRequest. Returns the type in the reply.
    pub fn init(&mut self, request: &Request, pv_request: &str) -> Arc<StructureType> {
        self.send(request, pv_request_body(pv_request));
        assert_eq!(self.take(), []);
        let answer = self.answer();
        types::decode(&mut answer.reader(), &mut self.types).unwrap()
    }

    /// Sends a request without a body.
    pub fn execute(&mut self, request: &Request) -> RequestKey {
        self.send(request, |_| {});
        self.request()
    }

    pub fn close_reason(&self) -> Option<&CloseReason> {
        match self.events.last() {
            Some(Event::Closed(reason)) => Some(reason),
            _ => None,
        }
    }

    /// Whether the circuit replies to an echo, which must be all that it sends.
    pub fn is_alive(&mut self) -> bool {
        self.answers();
        self.send(&Request::Echo {}, |to| to.bytes(b"alive?"));
        self.answers().last().is_some_and(|answer| answer.body == b"alive?")
    }
}

/// Writes a pvRequest.
pub fn pv_request_body(text: &str) -> impl FnOnce(&mut ByteWriter) {
    let structure = PvRequest::parse(text).unwrap().to_structure();
    move |to| value::encode_any(Some(&structure), None, to)
}

pub fn flat(kind: Kind, is_array: bool) -> ChannelType {
    ChannelType::Flat(Arc::new(NormativeLayout::of(Arc::new(normative_type(kind, is_array))).unwrap()))
}

pub fn double() -> ChannelType {
    flat(Kind::F64, false)
}

/// A type that is not normative.
pub fn pair() -> ChannelType {
    let mut build = StructureBuilder::new("pair_t");
    build.scalar("left", Kind::I32).open("right", "").scalar("x", Kind::F64).array("list", Kind::I16).close();
    ChannelType::Structured(Arc::new(build.finish()))
}

/// A reading with metadata, in which every part has a value of its own.
pub fn reading(value: impl Into<Value>) -> Reading {
    let meta = Meta { units: "mm".into(), precision: 3, control: Limits { low: -7.0, high: 7.0 }, ..Meta::default() };
    Reading {
        value: value.into(),
        alarm: Alarm { severity: Severity::Minor, status: Status::HIGH },
        time: TimeStamp { unix_s: 1_800_000_000, nanos: 5 },
        user_tag: 6,
        message: None,
        meta: Some(Arc::new(meta)),
    }
}

pub fn contents(reading: &Reading) -> Contents<'_> {
    Contents::Reading(reading)
}

pub fn bits(bits: &[usize]) -> BitSet {
    bits.iter().copied().collect()
}

pub fn get(sid: Sid, ioid: u32, sub: Subcommand) -> Request {
    Request::Get { sid, ioid: Ioid(ioid), sub }
}

pub fn put(sid: Sid, ioid: u32, sub: Subcommand) -> Request {
    Request::Put { sid, ioid: Ioid(ioid), sub }
}

pub fn rpc(sid: Sid, ioid: u32, sub: Subcommand) -> Request {
    Request::Rpc { sid, ioid: Ioid(ioid), sub }
}

pub fn monitor(sid: Sid, ioid: u32, sub: Subcommand) -> Request {
    Request::Monitor { sid, ioid: Ioid(ioid), sub }
}

/// Writes a double as the value of a put to a scalar.
pub fn double_body(number: f64) -> impl FnOnce(&mut ByteWriter) {
    move |to| {
        to.bit_set(&bits(&[1]));
        to.f64(number);
    }
}
