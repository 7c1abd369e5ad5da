//! The server's half of recorded circuits (`tests/wire/*.txt`): the client of the recording is replaced by this one.

use std::collections::HashMap;
use std::fmt::Debug;

use fodo_data::{BitSet, NormativeLayout, Now, Reading, Structure};
use fodo_pva::client::{
    Circuit, Config, Decoding, DisconnectReason, Event, PreparedRequest, Received, RequestError, Task,
};
use fodo_pva::cursor::ByteOrder;
use fodo_pva::frame::{HEADER_BYTES, Header, Portion, Sender};
use fodo_pva::message::{Answer, Request, Subcommand};
use fodo_pva::request::PvRequest;
use fodo_pva::status::RequestStatus;
use fodo_pva::{Cid, Ioid, Sid};

use crate::conversation::{Body, Conversation, Message, Prefix};
use crate::dialog::config;
use crate::recording::{Line, Recording};

struct Replay {
    circuit: Circuit,
    now: Now,
    decoding: Decoding,
    events: Vec<Event>,
    /// The number that the circuit uses for each operation of the recording.
    ioids: HashMap<Ioid, Ioid>,
    channels: Vec<(Cid, Sid)>,
    /// What each monitor has received, and the nodes that it has received.
    monitored: HashMap<Ioid, (Structure, BitSet)>,
    /// Decodes what the circuit sends.
    ours: Conversation,
    /// The requests of the recording, and those of the circuit.
    requests: [Vec<String>; 2],
}

fn circuits() -> impl Iterator<Item = Recording> {
    Recording::all().into_iter().filter(|recording| !recording.name.ends_with("datagrams"))
}

/// What the circuit calls an operation of the recording.
fn task_of(request: &Request) -> Option<(Task, Sid, Ioid, Subcommand)> {
    Some(match *request {
        Request::Get { sid, ioid, sub } => (Task::Get, sid, ioid, sub),
        Request::Put { sid, ioid, sub } => (Task::Put, sid, ioid, sub),
        Request::PutGet { sid, ioid, sub } => (Task::PutGet, sid, ioid, sub),
        Request::Rpc { sid, ioid, sub } => (Task::Rpc, sid, ioid, sub),
        Request::Process { sid, ioid, sub } => (Task::Process, sid, ioid, sub),
        Request::Monitor { sid, ioid, sub } => (Task::Monitor, sid, ioid, sub),
        _ => return None,
    })
}

impl Replay {
    /// Replays a whole recording; checks each event against the message that caused it.
    fn of(recording: &Recording, decoding: Decoding) -> Replay {
        let now = Now::for_test();
        let mut replay = Replay {
            circuit: Circuit::new(&Config { priority: 0, ..config() }, now),
            now,
            decoding,
            events: Vec::new(),
            ioids: HashMap::new(),
            channels: Vec::new(),
            monitored: HashMap::new(),
            ours: Conversation::new(),
            requests: [Vec::new(), Vec::new()],
        };
        let mut theirs = Conversation::new();
        for line in &recording.lines {
            let Line::Bytes(from, bytes, _) = line else { continue };
            let messages = theirs.take(*from, bytes);
            match from {
                Sender::Client => messages.iter().for_each(|message| replay.request(message)),
                Sender::Server => {
                    replay.receive(bytes);
                    messages.iter().for_each(|message| replay.check(message, &recording.name));
                    assert_eq!(replay.events, [], "{}", recording.name);
                }
            }
            replay.take_requests();
        }
        replay
    }

    /// Does what a request of the recording does.
    fn request(&mut self, message: &Message) {
        let Prefix::Request(request) = &message.prefix else { return };
        self.requests[0].push(format!("{request} {}", message.body).replace("sub=0x10", "sub=0x00"));
        let circuit = &mut self.circuit;
        if let Some((task, sid, ioid, sub)) = task_of(request) {
            return self.execute(task, sid, ioid, sub, &message.body);
        }
        match request {
            Request::CreateChannel { channels } => {
                channels.iter().for_each(|channel| circuit.create(channel.cid, &channel.name.to_str(), self.now));
            }
            Request::DestroyChannel { sid, cid } => {
                circuit.clear(*cid, *sid);
                self.channels.retain(|channel| *channel != (*cid, *sid));
            }
            Request::GetField { sid, ioid, sub_field } => {
                self.ioids.insert(*ioid, circuit.describe(*sid, &sub_field.to_str()).unwrap());
            }
            Request::DestroyRequest { ioid, .. } => {
                if let Some(ioid) = self.ioids.get(ioid) {
                    circuit.destroy(*ioid);
                }
            }
            // The circuit greets the server by itself. It sends no search, echo, array or unknown request here.
            _ => {}
        }
    }

    fn execute(&mut self, task: Task, sid: Sid, ioid: Ioid, sub: Subcommand, body: &Body) {
        let circuit = &mut self.circuit;
        if let Body::PvRequest(structure, _) = body {
            let request = PreparedRequest::new(&PvRequest::from_structure(structure));
            self.ioids.insert(ioid, circuit.open(sid, task, self.decoding, &request).unwrap());
            return;
        }
        let ioid = self.ioids[&ioid];
        let result = match (task, sub, body) {
            (Task::Put, _, Body::Values(values)) => circuit.put(ioid, values.clone()),
            (Task::Get | Task::Put, ..) => circuit.get(ioid),
            (Task::Process, ..) => circuit.process(ioid),
            (Task::Rpc, _, Body::Any(Some(argument))) => circuit.rpc(ioid, argument.clone()),
            (Task::Monitor, Subcommand::START, _) => circuit.start(ioid),
            (Task::Monitor, Subcommand::STOP, _) => circuit.stop(ioid),
            (Task::Monitor, Subcommand::ACK, Body::Window(n_updates)) => circuit.acknowledge(ioid, *n_updates),
            (Task::Monitor, Subcommand::DESTROY, _) => {
                circuit.destroy(ioid);
                Ok(())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(result, Ok(()));
    }

    /// Receives a frame of the server, with the circuit's own number in place of the recorded one.
    fn receive(&mut self, frame: &[u8]) {
        let mut frame = frame.to_vec();
        let header = Header::decode(frame.first_chunk().unwrap()).unwrap();
        let has_ioid =
            matches!(header.command, 10..=18 | 20) && matches!(header.portion, Portion::Whole | Portion::First);
        let mut is_known = true;
        if !header.is_control && has_ioid {
            let ioid: &mut [u8; 4] = (&mut frame[HEADER_BYTES..HEADER_BYTES + 4]).try_into().unwrap();
            let (recorded, bytes_of): (_, fn(u32) -> [u8; 4]) = match header.order {
                ByteOrder::Little => (u32::from_le_bytes(*ioid), u32::to_le_bytes),
                ByteOrder::Big => (u32::from_be_bytes(*ioid), u32::to_be_bytes),
            };
            match self.ioids.get(&Ioid(recorded)) {
                Some(ours) => *ioid = bytes_of(ours.0),
                None => is_known = false,
            }
        }
        self.circuit.received(&frame, self.now, &mut self.events);
        if is_known {
            self.ours.take(Sender::Server, &frame);
        }
    }

    /// Takes the requests of the circuit.
    fn take_requests(&mut self) {
        let mut bytes = Vec::new();
        while let n @ 1.. = self.circuit.ready().len() {
            bytes.extend_from_slice(self.circuit.ready());
            self.circuit.sent(n);
        }
        for message in self.ours.take(Sender::Client, &bytes) {
            let mut text = format!("{} {}", message.prefix, message.body);
            for (recorded, ours) in &self.ioids {
                text = text.replace(&format!("ioid={ours} "), &format!("ioid={recorded} "));
            }
            self.requests[1].push(text);
        }
    }

    /// Takes the events that a message must have caused.
    fn check(&mut self, message: &Message, name: &str) {
        let Prefix::Answer(answer) = &message.prefix else { return };
        let expected = match (answer, &message.body) {
            (Answer::ConnectionValidated { status }, _) if !status.is_success() => {
                Some(Event::Closed(DisconnectReason::Rejected(status.clone())))
            }
            (Answer::CreateChannel { cid, sid, status }, _) => Some(match status.is_success() {
                true => {
                    self.channels.push((*cid, *sid));
                    Event::Created { cid: *cid, sid: *sid }
                }
                false => Event::CreateFailed { cid: *cid, status: status.clone() },
            }),
            (Answer::GetField { ioid, status }, body) => Some(Event::Described {
                ioid: self.ioids[ioid],
                result: if let Body::Type(kind) = body { Ok(kind.clone()) } else { Err(status.clone()) },
            }),
            (Answer::Message { ioid, level, text }, _) => {
                let ioid = *self.ioids.get(ioid).unwrap_or(ioid);
                Some(Event::Message { ioid, level: *level, text: text.clone() })
            }
            (Answer::Monitor { ioid, .. }, Body::StatusAndType(status, kind)) => {
                if let Some(kind) = kind {
                    self.monitored.insert(*ioid, (Structure::new(kind.clone()), BitSet::new()));
                }
                Some(self.opened(*ioid, status, kind.clone()))
            }
            (Answer::Monitor { ioid, .. }, Body::Update(delta, overrun)) => {
                return self.check_update(*ioid, delta, overrun, name);
            }
            (Answer::SearchResponse {}, _) => return self.events.clear(),
            (answer, body) => self.done(answer, body),
        };
        let found = if self.events.is_empty() { None } else { Some(self.events.remove(0)) };
        let without_meta = |event: Option<Event>| match event {
            Some(Event::Done { ioid, result: Ok(Received::Reading(reading)) }) => {
                let reading = Reading { meta: None, ..reading };
                Some(Event::Done { ioid, result: Ok(Received::Reading(reading)) })
            }
            other => other,
        };
        assert_eq!(shown(&without_meta(found)), shown(&expected), "{name}: {answer}");
    }

    fn opened(
        &self,
        ioid: Ioid,
        status: &RequestStatus,
        kind: Option<std::sync::Arc<fodo_data::StructureType>>,
    ) -> Event {
        let ioid = self.ioids[&ioid];
        match status.is_success() {
            true => Event::Opened { ioid, kind },
            false => Event::OpenFailed { ioid, reason: RequestError::Refused(status.clone()) },
        }
    }

    /// The event of a reply of an operation that is not a monitor.
    fn done(&self, answer: &Answer, body: &Body) -> Option<Event> {
        let (ioid, sub, status) = match answer {
            Answer::Get { ioid, sub, status }
            | Answer::Put { ioid, sub, status }
            | Answer::PutGet { ioid, sub, status }
            | Answer::Rpc { ioid, sub, status }
            | Answer::Process { ioid, sub, status } => (*ioid, *sub, status),
            _ => return None,
        };
        if sub.contains(Subcommand::INIT) {
            let kind = if let Body::Type(kind) = body { kind.clone() } else { None };
            return Some(self.opened(ioid, status, kind));
        }
        let result = match body {
            _ if !status.is_success() => Err(RequestError::Refused(status.clone())),
            Body::Values(values) => Ok(self.received(values, values.changed())),
            Body::Any(Some(result)) => Ok(Received::Structure(result.clone())),
            _ => Ok(Received::None),
        };
        Some(Event::Done { ioid: self.ioids[&ioid], result })
    }

    /// What the circuit must deliver for a structure of which these nodes were received.
    fn received(&self, structure: &Structure, nodes: &BitSet) -> Received {
        match (NormativeLayout::of(structure.kind().clone()), self.decoding) {
            (Some(layout), Decoding::Flat) => {
                let before = layout.reading(&Structure::new(structure.kind().clone()));
                let mut reading = Reading::bare(before.value);
                for bit in structure.kind().leaves(nodes).iter() {
                    if let Some(value) = structure.value(bit) {
                        layout.store(bit, value.clone(), &mut reading);
                    }
                }
                Received::Reading(Reading { meta: None, ..reading })
            }
            _ => Received::Structure(structure.clone()),
        }
    }

    fn check_update(&mut self, recorded: Ioid, delta: &Structure, overrun: &BitSet, name: &str) {
        let (current, nodes) = self.monitored.get_mut(&recorded).unwrap();
        current.apply(delta).unwrap();
        current.mark_only(delta.changed().clone());
        nodes.union_with(delta.changed());
        let Event::Update { ioid, received, changed, overrun: found } = self.events.remove(0) else {
            panic!("{name}: an update")
        };
        assert_eq!((ioid, &changed, &found), (self.ioids[&recorded], delta.changed(), overrun), "{name}");
        let received = match received {
            Received::Reading(reading) => Received::Reading(Reading { meta: None, ..reading }),
            other => other,
        };
        let (current, nodes) = &self.monitored[&recorded];
        assert_eq!(shown(&received), shown(&self.received(current, nodes)), "{name}");
    }
}

/// Limits that are not set are NaN, which is not equal to itself.
fn shown(something: &impl Debug) -> String {
    format!("{something:?}")
}

#[test]
fn every_message_of_a_recorded_server_causes_the_event_that_it_describes() {
    for recording in circuits() {
        for decoding in [Decoding::Flat, Decoding::Structured] {
            Replay::of(&recording, decoding);
        }
    }
}

#[test]
fn nothing_is_left_over_after_a_recorded_circuit() {
    for recording in circuits() {
        let mut replay = Replay::of(&recording, Decoding::Flat);
        // The circuit was closed.
        if replay.circuit.deadline().is_none() {
            continue;
        }

        let ioids: Vec<Ioid> = replay.ioids.values().copied().collect();
        ioids.into_iter().for_each(|ioid| replay.circuit.destroy(ioid));
        std::mem::take(&mut replay.channels).into_iter().for_each(|(cid, sid)| replay.circuit.clear(cid, sid));
        replay.take_requests();

        assert!(replay.circuit.holds_nothing(), "{}", recording.name);
    }
}

#[test]
fn the_requests_are_those_of_the_recorded_client() {
    for server in ["qsrv1", "qsrv2"] {
        for name in ["gets", "puts", "rpc", "groups", "large"] {
            let recording = Recording::named(&format!("{server}-{name}"));

            let [theirs, ours] = Replay::of(&recording, Decoding::Structured).requests;

            assert_eq!(ours, theirs, "{server}-{name}");
        }
    }
}
