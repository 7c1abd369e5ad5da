//! Recorded conversations of QSRV2: the same requests get the same bytes.
//!
//! The client of the replay stores no type ids, because QSRV2 sends none. The values come from the recording; types,
//! marks, selections, flow control and everything else from the circuit. Differences by intention: PUT_GET, ARRAY and
//! PROCESS get replies, GET_FIELD describes a sub-field instead of the whole type, and the texts of errors.

use std::collections::HashMap;
use std::sync::Arc;

use fodo_data::{NodeKind, NormativeLayout, Now, Reading, Structure, StructureType};
use fodo_pva::cursor::{ByteOrder, ByteReader};
use fodo_pva::frame::{Frame, Framer, Sender};
use fodo_pva::guid::Guid;
use fodo_pva::message::{Answer, Request, Subcommand};
use fodo_pva::server::{ChannelType, Circuit, Config, Contents, Event, PutValue, RequestKey};
use fodo_pva::{Cid, Ioid, Sid};

use crate::conversation::{Body, Conversation, Message, Prefix};
use crate::recording::{Line, Recording};

/// What the server of a recording serves.
#[derive(Default)]
struct Served {
    guid: Guid,
    names: HashMap<Cid, String>,
    kinds: HashMap<String, Arc<StructureType>>,
}

impl Served {
    fn by(recording: &Recording) -> Served {
        let mut served = Served::default();
        let (mut name_of_sid, mut name_of_ioid) = (HashMap::new(), HashMap::new());
        for message in messages(recording) {
            match (&message.prefix, &message.body) {
                (Prefix::Request(Request::CreateChannel { channels }), _) => {
                    served.names.extend(channels.iter().map(|channel| (channel.cid, channel.name.to_string())));
                }
                (Prefix::Answer(Answer::CreateChannel { cid, sid, .. }), _) => {
                    name_of_sid.insert(*sid, served.names[cid].clone());
                }
                (Prefix::Answer(Answer::SearchResponse {}), Body::Response(response)) => served.guid = response.guid,
                (Prefix::Request(request), _) => {
                    if let Some((sid, ioid)) = numbers(request) {
                        name_of_ioid.insert(ioid, name_of_sid[&sid].clone());
                    }
                }
                (Prefix::Answer(answer), Body::Type(Some(kind)) | Body::StatusAndType(_, Some(kind))) => {
                    served.kinds.insert(name_of_ioid[&ioid_of(answer).unwrap()].clone(), kind.clone());
                }
                _ => {}
            }
        }
        served
    }

    fn kind(&self, cid: Cid, is_flat: bool) -> ChannelType {
        let nothing = || Arc::new(StructureType::single(NodeKind::Structure { id: "".into() }));
        let kind = self.kinds.get(&self.names[&cid]).cloned().unwrap_or_else(nothing);
        match NormativeLayout::of(kind.clone()) {
            Some(layout) if is_flat => ChannelType::Flat(Arc::new(layout)),
            _ => ChannelType::Structured(kind),
        }
    }
}

fn messages(recording: &Recording) -> Vec<Message> {
    let mut conversation = Conversation::new();
    let lines = recording.lines.iter().filter_map(|line| match line {
        Line::Bytes(from, bytes, _) => Some((*from, bytes)),
        Line::Comment(_) => None,
    });
    lines.flat_map(|(from, bytes)| conversation.take(from, bytes)).collect()
}

/// The channel and the operation of a request.
fn numbers(request: &Request) -> Option<(Sid, Ioid)> {
    match *request {
        Request::Get { sid, ioid, .. }
        | Request::Put { sid, ioid, .. }
        | Request::Monitor { sid, ioid, .. }
        | Request::Rpc { sid, ioid, .. }
        | Request::GetField { sid, ioid, .. } => Some((sid, ioid)),
        _ => None,
    }
}

fn ioid_of(answer: &Answer) -> Option<Ioid> {
    match *answer {
        Answer::Get { ioid, .. }
        | Answer::Put { ioid, .. }
        | Answer::Monitor { ioid, .. }
        | Answer::Rpc { ioid, .. }
        | Answer::GetField { ioid, .. } => Some(ioid),
        _ => None,
    }
}

/// A recording that is replayed.
struct Replay {
    served: Served,
    is_flat: bool,
    circuit: Circuit,
    events: Vec<Event>,
    now: Now,
    /// Our numbers of the recorded channels.
    sids: HashMap<Sid, Sid>,
    kinds: HashMap<Sid, ChannelType>,
    /// The channel and the latest request of each operation.
    requests: HashMap<Ioid, (Sid, RequestKey)>,
    /// Requests that QSRV2 answers in another way.
    skipped: Vec<Ioid>,
    n_values: usize,
}

impl Replay {
    fn new(recording: &Recording, is_flat: bool) -> Replay {
        let served = Served::by(recording);
        let now = Now::for_test();
        let config = Config { payload_bytes_max: 1 << 24, guid: served.guid };
        Replay {
            served,
            is_flat,
            circuit: Circuit::new(&config),
            events: Vec::new(),
            now,
            sids: HashMap::new(),
            kinds: HashMap::new(),
            requests: HashMap::new(),
            skipped: Vec::new(),
            n_values: 0,
        }
    }

    /// The number of a channel here.
    fn sid(&self, recorded: Sid) -> Sid {
        self.sids.get(&recorded).copied().unwrap_or(recorded)
    }

    /// Passes on a message of the client.
    fn request(&mut self, mut message: Message) {
        let Prefix::Request(request) = &mut message.prefix else { panic!("a request") };
        match request {
            Request::PutGet { .. } | Request::Array { .. } | Request::Process { .. } => return,
            Request::GetField { ioid, sub_field, .. } if !sub_field.is_empty() => return self.skipped.push(*ioid),
            Request::ConnectionValidation { registry_size, .. } => *registry_size = 0,
            Request::DestroyChannel { sid, .. }
            | Request::Get { sid, .. }
            | Request::Put { sid, .. }
            | Request::Monitor { sid, .. }
            | Request::Rpc { sid, .. }
            | Request::GetField { sid, .. }
            | Request::DestroyRequest { sid, .. }
            | Request::CancelRequest { sid, .. } => *sid = self.sids.get(sid).copied().unwrap_or(*sid),
            _ => {}
        }
        let numbers = numbers(request);
        self.circuit.received(&message.encoded(message.order), self.now, &mut self.events);
        for event in std::mem::take(&mut self.events) {
            match event {
                Event::Reply(reply) => self.circuit.reply(reply),
                Event::Read { request, .. } | Event::Rpc { request, .. } | Event::Subscribe { request, .. } => {
                    let (sid, ioid) = numbers.unwrap();
                    self.requests.insert(ioid, (sid, request));
                }
                Event::Write { request, value, .. } => {
                    let (sid, ioid) = numbers.unwrap();
                    self.requests.insert(ioid, (sid, request));
                    let Body::Values(put) = &message.body else { panic!("a put has values") };
                    assert_eq!(value, self.put_value(sid, put));
                }
                Event::Search { .. } => self.events.push(event),
                _ => {}
            }
        }
    }

    fn put_value(&self, sid: Sid, put: &Structure) -> PutValue {
        match &self.kinds[&sid] {
            ChannelType::Flat(layout) => PutValue::Flat(Some(layout.reading(put).value)),
            ChannelType::Structured(_) => PutValue::Structured(put.clone()),
        }
    }

    /// Makes the circuit send what was recorded, unless it did so by itself.
    fn reply(&mut self, answer: &Answer, body: &Body) {
        let request = ioid_of(answer).and_then(|ioid| self.requests.get(&ioid).copied());
        match (answer, body, request) {
            (Answer::CreateChannel { cid, sid, status }, ..) if status.is_success() => {
                let kind = self.served.kind(*cid, self.is_flat);
                let created = self.circuit.created(*cid, kind.clone());
                self.kinds.insert(created, kind);
                self.sids.insert(*sid, created);
            }
            (Answer::CreateChannel { cid, status, .. }, ..) => {
                self.circuit.create_failed(*cid, &status.message.to_str())
            }
            (Answer::SearchResponse {}, Body::Response(response), _) => {
                let Some(Event::Search { search, .. }) = self.events.pop() else { panic!("no search") };
                self.circuit.searched(search, response.port, &response.cids);
            }
            (Answer::Get { .. } | Answer::Put { .. }, Body::Values(values), Some((sid, request))) => {
                let reading = self.reading(sid, values);
                let contents = reading.as_ref().map_or(Contents::Structure(values), Contents::Reading);
                self.circuit.read_done(request, Ok(contents));
                self.n_values += 1;
            }
            (Answer::Put { sub, .. }, Body::Nothing, Some((_, request))) if !sub.contains(Subcommand::INIT) => {
                self.circuit.write_done(request, Ok(()));
            }
            (Answer::Rpc { sub, status, .. }, body, Some((_, request))) if !sub.contains(Subcommand::INIT) => {
                let result = match body {
                    Body::Any(value) => Ok(value.as_ref()),
                    _ => Err(status),
                };
                self.circuit.rpc_done(request, result);
            }
            (Answer::Monitor { .. }, Body::Update(values, overrun), Some((sid, request))) => {
                let reading = self.reading(sid, values);
                let contents = reading.as_ref().map_or(Contents::Structure(values), Contents::Reading);
                assert!(self.circuit.may_update(request));
                assert!(self.circuit.update(request, contents, values.changed(), overrun));
                self.n_values += 1;
            }
            _ => {}
        }
    }

    /// The reading in a recorded value of a flat PV.
    fn reading(&self, sid: Sid, values: &Structure) -> Option<Reading> {
        let ChannelType::Flat(layout) = &self.kinds[&sid] else { return None };
        let mut reading = layout.reading(values);
        reading.meta = Some(Arc::new(layout.meta(values)));
        Some(reading)
    }

    fn sent(&mut self) -> Vec<u8> {
        let mut sent = Vec::new();
        while let n @ 1.. = self.circuit.ready().len() {
            sent.extend_from_slice(self.circuit.ready());
            self.circuit.sent(n);
        }
        sent
    }
}

/// The first message in these bytes, with the texts of its status removed if it is a failure.
fn without_text(bytes: &[u8]) -> (usize, Answer) {
    let mut left = bytes;
    let mut framer = Framer::new(Sender::Server, 1 << 24);
    let Ok(Some(Frame::Message(header, payload))) = framer.next(&mut left) else { panic!("no message") };
    let mut answer = Answer::decode(header.command, &mut ByteReader::new(payload, ByteOrder::Little));
    match &mut answer {
        Answer::CreateChannel { status, .. } | Answer::ConnectionValidated { status } | Answer::Get { status, .. } => {
            status.message = "".into();
            status.call_stack = "".into();
        }
        _ => {}
    }
    (bytes.len() - left.len(), answer)
}

fn is_failure(prefix: &Prefix) -> bool {
    match prefix {
        Prefix::Answer(
            Answer::CreateChannel { status, .. } | Answer::ConnectionValidated { status } | Answer::Get { status, .. },
        ) => !status.is_success(),
        _ => false,
    }
}

/// Replays a recording. Returns the number of values that were sent.
fn replay(recording: &Recording, is_flat: bool) -> usize {
    let mut replay = Replay::new(recording, is_flat);
    let mut sent = Vec::new();
    for mut message in messages(recording) {
        let Prefix::Answer(answer) = &mut message.prefix else {
            match message.from {
                Sender::Client => replay.request(message),
                Sender::Server => {
                    sent.extend(replay.sent());
                    assert_eq!(sent[..8], message.bytes, "the byte order of the server");
                    sent.drain(..8);
                }
            }
            continue;
        };
        if ioid_of(answer).is_some_and(|ioid| replay.skipped.contains(&ioid)) {
            continue;
        }
        replay.reply(answer, &message.body);
        match answer {
            Answer::CreateChannel { sid, .. } | Answer::DestroyChannel { sid, .. } => *sid = replay.sid(*sid),
            _ => {}
        }
        sent.extend(replay.sent());
        let expected = message.encoded(message.order);
        let n_bytes = if is_failure(&message.prefix) {
            let (n_bytes, ours) = without_text(&sent);
            assert_eq!(ours, without_text(&expected).1, "{}: {}", recording.name, message.prefix);
            n_bytes
        } else {
            let n_bytes = expected.len().min(sent.len());
            assert!(sent[..n_bytes] == expected, "{}: {}\n{:x?}", recording.name, message.prefix, &sent[..n_bytes]);
            n_bytes
        };
        sent.drain(..n_bytes);
    }
    sent.extend(replay.sent());
    assert!(sent.is_empty(), "{}: {sent:x?}", recording.name);
    replay.n_values
}

#[test]
fn the_requests_of_recorded_clients_get_the_bytes_of_qsrv2() {
    let recordings = Recording::all();
    let of_circuits = |name: &str| name.starts_with("qsrv2-") && !name.ends_with("-datagrams");
    let recordings: Vec<_> = recordings.iter().filter(|recording| of_circuits(&recording.name)).collect();
    assert_eq!(recordings.len(), 11);

    for is_flat in [true, false] {
        let n_values: usize = recordings.iter().map(|recording| replay(recording, is_flat)).sum();
        assert!(n_values > 30, "{n_values}");
    }
}
