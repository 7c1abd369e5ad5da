//! A circuit and the server at its other end, whose replies the test chooses.

use std::sync::Arc;
use std::time::Duration;

use fodo_data::{BitSet, Kind, NormativeLayout, Now, Reading, StructureType, normative_type};
use fodo_pva::client::{Circuit, Config, Decoding, Event, PreparedRequest, Received, Task};
use fodo_pva::cursor::{ByteOrder, ByteReader, ByteWriter};
use fodo_pva::frame::{Control, Frame, Framer, Sender};
use fodo_pva::message::{Answer, Request, Subcommand};
use fodo_pva::request::PvRequest;
use fodo_pva::status::RequestStatus;
use fodo_pva::types;
use fodo_pva::{Cid, Ioid, Sid, value};

pub const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

pub const ECHO_AFTER: Duration = Duration::from_secs(15);

/// The channel that most tests use.
pub const CHANNEL: (Cid, Sid) = (Cid(1), Sid(10));

pub fn config() -> Config {
    Config {
        priority: 7,
        user: "operator".into(),
        host: "127.0.0.1".into(),
        echo_after: ECHO_AFTER,
        payload_bytes_max: 1 << 24,
    }
}

pub struct Dialog {
    pub circuit: Circuit,
    pub now: Now,
    /// The order in which the server sends.
    order: ByteOrder,
    /// The order in which the client must send.
    pub required: ByteOrder,
    requests: Framer,
    events: Vec<Event>,
}

impl Dialog {
    /// The server has not sent anything.
    pub fn new(order: ByteOrder) -> Dialog {
        let now = Now::for_test();
        let requests = Framer::new(Sender::Client, usize::MAX);
        let circuit = Circuit::new(&config(), now);
        Dialog { circuit, now, order, required: order, requests, events: Vec::new() }
    }

    /// The handshake is complete.
    pub fn validated(order: ByteOrder) -> Dialog {
        let mut dialog = Dialog::new(order);
        dialog.greet(order, &["anonymous", "ca"]);
        dialog.answer(&Answer::ConnectionValidated { status: RequestStatus::OK });
        assert_eq!((dialog.sent().len(), dialog.events()), (1, vec![]));
        dialog
    }

    /// The server has confirmed [`CHANNEL`].
    pub fn with_channel(order: ByteOrder) -> Dialog {
        let mut dialog = Dialog::validated(order);
        dialog.create(CHANNEL);
        dialog
    }

    /// The greeting of a server that requires a byte order.
    pub fn greet(&mut self, required: ByteOrder, methods: &[&str]) {
        self.required = required;
        self.receive(&Control::SetByteOrder(0).header(Sender::Server, required).encode());
        self.answer(&Answer::ConnectionValidation {
            buffer_bytes: 0x1_0000,
            registry_size: 0x7fff,
            methods: methods.iter().map(|method| (*method).into()).collect(),
        });
    }

    /// Creates a channel, which the server confirms.
    pub fn create(&mut self, (cid, sid): (Cid, Sid)) {
        self.circuit.create(cid, "w:pv", self.now);
        assert_eq!(self.sent().len(), 1);
        self.answer(&Answer::CreateChannel { cid, sid, status: RequestStatus::OK });
        assert_eq!(self.events(), [Event::Created { cid, sid }]);
    }

    /// Opens an operation; the server has not replied.
    pub fn open(&mut self, task: Task, decoding: Decoding, request: &str) -> Ioid {
        self.circuit.open(CHANNEL.1, task, decoding, &prepared(request)).unwrap()
    }

    /// Opens an operation of this type; nothing of this remains among the requests and events.
    pub fn opened(&mut self, task: Task, decoding: Decoding, kind: &Arc<StructureType>) -> Ioid {
        let ioid = self.open(task, decoding, "");
        assert_eq!(self.sent().len(), 1);
        self.initialise(task, ioid, kind);
        assert_eq!(self.events(), [Event::Opened { ioid, kind: Some(kind.clone()) }]);
        ioid
    }

    /// The server replies to INIT with a type.
    pub fn initialise(&mut self, task: Task, ioid: Ioid, kind: &Arc<StructureType>) {
        self.answer_with(&reply(task, ioid, Subcommand::INIT), |to| {
            if task == Task::Monitor {
                RequestStatus::OK.encode(to);
            }
            types::encode(kind, to);
            if task == Task::PutGet {
                types::encode(kind, to);
            }
        });
    }

    /// The server replies to a get with a scalar, all of whose current nodes it sends.
    pub fn answer_reading(&mut self, task: Task, ioid: Ioid, kind: &Arc<StructureType>, reading: &Reading) {
        let layout = NormativeLayout::of(kind.clone()).unwrap();
        self.answer_with(&reply(task, ioid, Subcommand::EXECUTE), |to| {
            value::encode_reading(&layout, layout.marks(fodo_data::EventMask(5)), reading, to);
        });
    }

    /// The server sends an update that contains these nodes.
    pub fn update(&mut self, ioid: Ioid, layout: &NormativeLayout, bits: &BitSet, reading: &Reading, overrun: &BitSet) {
        self.answer_with(&Answer::Monitor { ioid, sub: Subcommand::EXECUTE }, |to| {
            value::encode_reading(layout, bits, reading, to);
            to.bit_set(overrun);
        });
    }

    pub fn answer(&mut self, answer: &Answer) {
        self.answer_with(answer, |_| {});
    }

    pub fn answer_with(&mut self, answer: &Answer, body: impl FnOnce(&mut ByteWriter)) {
        let mut bytes = Vec::new();
        answer.encode(self.order, &mut bytes, body);
        self.receive(&bytes);
    }

    pub fn receive(&mut self, bytes: &[u8]) {
        self.circuit.received(bytes, self.now, &mut self.events);
    }

    pub fn tick(&mut self) {
        self.circuit.tick(self.now, &mut self.events);
    }

    /// The events since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The requests since the last call, with what follows their fields.
    pub fn sent_with_bodies(&mut self) -> Vec<(Request, Vec<u8>)> {
        let mut requests = Vec::new();
        while !self.circuit.ready().is_empty() {
            let bytes = self.circuit.ready().to_vec();
            self.circuit.sent(bytes.len());
            let mut left = &bytes[..];
            while let Some(frame) = self.requests.next(&mut left).unwrap() {
                let Frame::Message(header, payload) = frame else { panic!("the client sends no control messages") };
                assert_eq!(header.order, self.required);
                let mut reader = ByteReader::new(payload, header.order);
                let request = Request::decode(header.command, &mut reader);
                assert_eq!(reader.finish(), Ok(()));
                requests.push((request, reader.rest().to_vec()));
            }
        }
        requests
    }

    /// The requests since the last call.
    pub fn sent(&mut self) -> Vec<Request> {
        self.sent_with_bodies().into_iter().map(|(request, _)| request).collect()
    }
}

pub fn prepared(request: &str) -> PreparedRequest {
    PreparedRequest::new(&PvRequest::parse(request).unwrap())
}

pub fn double() -> Arc<StructureType> {
    Arc::new(normative_type(Kind::F64, false))
}

/// A reply without an error.
pub fn reply(task: Task, ioid: Ioid, sub: Subcommand) -> Answer {
    refusal(task, ioid, sub, RequestStatus::OK)
}

pub fn refusal(task: Task, ioid: Ioid, sub: Subcommand, status: RequestStatus) -> Answer {
    match task {
        Task::Get => Answer::Get { ioid, sub, status },
        Task::Put => Answer::Put { ioid, sub, status },
        Task::PutGet => Answer::PutGet { ioid, sub, status },
        Task::Rpc => Answer::Rpc { ioid, sub, status },
        Task::Process => Answer::Process { ioid, sub, status },
        Task::Monitor => Answer::Monitor { ioid, sub },
    }
}

/// The end of a get with this value.
pub fn done(ioid: Ioid, value: impl Into<fodo_data::Value>) -> Event {
    Event::Done { ioid, result: Ok(Received::Reading(Reading::bare(value.into()))) }
}

/// The end of a request that returns nothing.
pub fn done_without_result(ioid: Ioid) -> Event {
    Event::Done { ioid, result: Ok(Received::None) }
}
