//! Decodes the messages of a circuit with what its earlier messages declared, and encodes them again.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use fodo_data::{BitSet, NodeValue, Scalar, Structure, StructureType, Text, Value};
use fodo_pva::beacon::Beacon;
use fodo_pva::cursor::{ByteOrder, ByteReader, ByteWriter};
use fodo_pva::frame::{self, Control, Frame, Framer, Header, Sender};
use fodo_pva::message::{Answer, Request, Subcommand};
use fodo_pva::request::PvRequest;
use fodo_pva::search::{SearchRequest, SearchResponse};
use fodo_pva::status::RequestStatus;
use fodo_pva::types::{self, TypeCache};
use fodo_pva::validation::Credentials;
use fodo_pva::{Ioid, value};

/// The fields at the start of a message, or a control message.
#[derive(Clone, Debug, PartialEq)]
pub enum Prefix {
    Request(Request),
    Answer(Answer),
    Control(Control),
}

impl Prefix {
    pub fn command(&self) -> u8 {
        match self {
            Prefix::Request(request) => request.command(),
            Prefix::Answer(answer) => answer.command(),
            // Only SET_BYTE_ORDER is recorded, whose number is that of ECHO.
            Prefix::Control(control) => control.header(Sender::Server, ByteOrder::Little).command,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Prefix::Request(request) => request.fmt(f),
            Prefix::Answer(answer) => answer.fmt(f),
            Prefix::Control(control) => write!(f, "{control:?}"),
        }
    }
}

/// What follows the fields.
#[derive(Clone, Debug)]
pub enum Body {
    Nothing,
    Bytes(Vec<u8>),
    Credentials(Credentials),
    PvRequest(Structure, Option<u32>),
    Window(u32),
    Any(Option<Structure>),
    Type(Option<Arc<StructureType>>),
    StatusAndType(RequestStatus, Option<Arc<StructureType>>),
    Status(RequestStatus),
    Values(Structure),
    Update(Structure, BitSet),
    /// Encoded again in the order of the original.
    Search(ByteOrder, Vec<u8>),
    Response(SearchResponse),
    Beacon(Beacon),
}

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    pub from: Sender,
    pub order: ByteOrder,
    pub bytes: Vec<u8>,
    pub prefix: Prefix,
    pub body: Body,
}

/// What an operation's INIT declared.
struct Operation {
    command: u8,
    kind: Option<Arc<StructureType>>,
}

/// Both directions of a circuit.
pub struct Conversation {
    framers: [Framer; 2],
    caches: [TypeCache; 2],
    operations: HashMap<Ioid, Operation>,
}

impl Conversation {
    pub fn new() -> Conversation {
        Conversation {
            framers: [Sender::Client, Sender::Server].map(|from| Framer::new(from, 1 << 24)),
            caches: [TypeCache::new(), TypeCache::new()],
            operations: HashMap::new(),
        }
    }

    /// The complete messages in these bytes; an incomplete one is continued with the next bytes.
    pub fn take(&mut self, from: Sender, bytes: &[u8]) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut left = bytes;
        loop {
            let found = match self.framers[from as usize].next(&mut left).unwrap() {
                None => return messages,
                Some(Frame::Control(control, order)) => {
                    messages.push(Message {
                        from,
                        order,
                        // A control message is always recorded in a line of its own.
                        bytes: bytes.to_vec(),
                        prefix: Prefix::Control(control),
                        body: Body::Nothing,
                    });
                    continue;
                }
                Some(Frame::Message(header, payload)) => (header, payload.to_vec()),
                Some(Frame::Piece(_)) => unreachable!("nothing is passed on"),
            };
            messages.push(self.message(found.0, &found.1));
        }
    }

    fn message(&mut self, header: Header, payload: &[u8]) -> Message {
        let mut reader = ByteReader::new(payload, header.order);
        let (prefix, body) = match header.from {
            Sender::Client => {
                let request = Request::decode(header.command, &mut reader);
                let body = self.request_body(&request, &mut reader);
                (Prefix::Request(request), body)
            }
            Sender::Server => {
                let answer = Answer::decode(header.command, &mut reader);
                let body = self.answer_body(&answer, &mut reader);
                (Prefix::Answer(answer), body)
            }
        };
        assert_eq!(reader.finish(), Ok(()), "{prefix}");
        assert_eq!(reader.n_left(), 0, "{prefix}");
        // The bytes of a message in one piece.
        let whole = Header { word: payload.len() as u32, portion: frame::Portion::Whole, ..header };
        let bytes = [whole.encode().as_slice(), payload].concat();
        Message { from: header.from, order: header.order, bytes, prefix, body }
    }

    fn request_body(&mut self, request: &Request, reader: &mut ByteReader) -> Body {
        let cache = &mut self.caches[Sender::Client as usize];
        let (ioid, sub) = match request {
            Request::ConnectionValidation { method, .. } => {
                return Body::Credentials(Credentials::decode(method, reader, cache));
            }
            Request::Search {} => {
                let mut bytes = Vec::new();
                let search = SearchRequest::decode(reader);
                search.encode(&mut ByteWriter::new(&mut bytes, reader.order()));
                return Body::Search(reader.order(), bytes);
            }
            Request::Get { ioid, sub, .. }
            | Request::Put { ioid, sub, .. }
            | Request::PutGet { ioid, sub, .. }
            | Request::Monitor { ioid, sub, .. }
            | Request::Array { ioid, sub, .. }
            | Request::Process { ioid, sub, .. }
            | Request::Rpc { ioid, sub, .. } => (*ioid, *sub),
            _ => return rest(reader),
        };
        if sub.contains(Subcommand::INIT) {
            self.operations.insert(ioid, Operation { command: request.command(), kind: None });
            let pv_request = value::decode_any(reader, cache).unwrap();
            let window = sub.contains(Subcommand::ACK).then(|| reader.u32());
            return Body::PvRequest(pv_request, window);
        }
        match request {
            Request::Put { .. } if reader.n_left() > 0 => {
                let mut values = Structure::new(self.operations[&ioid].kind.clone().unwrap());
                value::decode_changed(&mut values, reader, cache);
                Body::Values(values)
            }
            Request::Monitor { .. } if sub == Subcommand::ACK => Body::Window(reader.u32()),
            Request::Rpc { .. } => Body::Any(value::decode_any(reader, cache)),
            _ => rest(reader),
        }
    }

    fn answer_body(&mut self, answer: &Answer, reader: &mut ByteReader) -> Body {
        let cache = &mut self.caches[Sender::Server as usize];
        let (ioid, sub, status) = match answer {
            Answer::Beacon {} => return Body::Beacon(Beacon::decode(reader)),
            Answer::SearchResponse {} => return Body::Response(SearchResponse::decode(reader)),
            Answer::GetField { status, .. } if status.is_success() => return Body::Type(types::decode(reader, cache)),
            Answer::Get { ioid, sub, status }
            | Answer::Put { ioid, sub, status }
            | Answer::Rpc { ioid, sub, status } => (*ioid, *sub, status.clone()),
            Answer::Monitor { ioid, sub } => (*ioid, *sub, RequestStatus::OK),
            _ => return rest(reader),
        };
        let operation = self.operations.get_mut(&ioid).unwrap();
        assert_eq!(operation.command, answer.command());
        if !status.is_success() {
            return rest(reader);
        }
        if sub.contains(Subcommand::INIT) {
            return match answer {
                Answer::Rpc { .. } => rest(reader),
                Answer::Monitor { .. } => {
                    let status = RequestStatus::decode(reader);
                    operation.kind = types::decode(reader, cache);
                    Body::StatusAndType(status, operation.kind.clone())
                }
                _ => {
                    operation.kind = types::decode(reader, cache);
                    Body::Type(operation.kind.clone())
                }
            };
        }
        let mut changed = |reader: &mut ByteReader| {
            let mut values = Structure::new(operation.kind.clone().unwrap());
            value::decode_changed(&mut values, reader, cache);
            values
        };
        match answer {
            Answer::Rpc { .. } => Body::Any(value::decode_any(reader, cache)),
            Answer::Monitor { .. } if sub.contains(Subcommand::DESTROY) => Body::Status(RequestStatus::decode(reader)),
            Answer::Monitor { .. } => {
                let values = changed(reader);
                let n_nodes = values.kind().nodes().len();
                Body::Update(values, reader.bit_set(n_nodes))
            }
            Answer::Get { .. } => Body::Values(changed(reader)),
            _ if sub.contains(Subcommand::GET) => Body::Values(changed(reader)),
            _ => rest(reader),
        }
    }
}

fn rest(reader: &mut ByteReader) -> Body {
    match reader.rest() {
        [] => Body::Nothing,
        bytes => Body::Bytes(bytes.to_vec()),
    }
}

impl Message {
    /// The message in a byte order, with every type in full.
    pub fn encoded(&self, order: ByteOrder) -> Vec<u8> {
        let mut out = Vec::new();
        let body = |to: &mut ByteWriter| self.body.encode(to);
        match &self.prefix {
            Prefix::Request(Request::Search {}) if order != self.order => {
                let Body::Search(_, payload) = &self.body else { unreachable!("a search has this body") };
                let mut reader = ByteReader::new(payload, self.order);
                let search = SearchRequest::decode(&mut reader);
                Request::Search {}.encode(order, &mut out, |to| search.encode(to));
            }
            Prefix::Request(request) => request.encode(order, &mut out, body),
            Prefix::Answer(answer) => answer.encode(order, &mut out, body),
            Prefix::Control(control) => out.extend(control.header(self.from, order).encode()),
        }
        out
    }

    /// Whether the message contains a type with an id, or only an id.
    pub fn has_type_ids(&self) -> bool {
        self.encoded(self.order).len() != self.bytes.len() && self.bytes.iter().any(|byte| matches!(byte, 0xfd | 0xfe))
    }
}

impl Body {
    fn encode(&self, to: &mut ByteWriter) {
        let kind = |kind: &Option<Arc<StructureType>>, to: &mut ByteWriter| match kind {
            Some(kind) => types::encode(kind, to),
            None => types::encode_null(to),
        };
        match self {
            Body::Nothing => {}
            Body::Bytes(bytes) | Body::Search(_, bytes) => to.bytes(bytes),
            Body::Credentials(credentials) => credentials.encode(None, to),
            Body::PvRequest(request, window) => {
                value::encode_any(Some(request), None, to);
                window.iter().for_each(|n_updates| to.u32(*n_updates));
            }
            Body::Window(n_updates) => to.u32(*n_updates),
            Body::Any(structure) => value::encode_any(structure.as_ref(), None, to),
            Body::Type(found) => kind(found, to),
            Body::StatusAndType(status, found) => {
                status.encode(to);
                if status.is_success() {
                    kind(found, to);
                }
            }
            Body::Status(status) => status.encode(to),
            Body::Values(values) => value::encode_bits(values, values.changed(), to),
            Body::Update(values, overrun) => {
                value::encode_bits(values, values.changed(), to);
                to.bit_set(overrun);
            }
            Body::Response(response) => response.encode(to),
            Body::Beacon(beacon) => beacon.encode(to),
        }
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Body::Nothing => Ok(()),
            Body::Bytes(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Body::Credentials(Credentials::Ca { user, host }) => write!(f, "{user} on {host}"),
            Body::Credentials(credentials) => write!(f, "{credentials:?}"),
            Body::PvRequest(structure, window) => {
                PvRequest::from_structure(structure).fmt(f)?;
                window.map_or(Ok(()), |n_updates| write!(f, " {n_updates} more"))
            }
            Body::Window(n_updates) => write!(f, "{n_updates} more"),
            Body::Any(Some(structure)) => write!(f, "{} {}", structure.kind(), described(structure)),
            Body::Type(Some(kind)) => kind.fmt(f),
            Body::StatusAndType(status, Some(kind)) => write!(f, "{status} {kind}"),
            Body::Any(None) | Body::Type(None) => f.write_str("null"),
            Body::StatusAndType(status, None) | Body::Status(status) => status.fmt(f),
            Body::Values(values) => f.write_str(&described(values)),
            Body::Update(values, overrun) => {
                f.write_str(&described(values))?;
                if overrun.is_empty() { Ok(()) } else { write!(f, " overrun {:?}", overrun.iter().collect::<Vec<_>>()) }
            }
            Body::Search(order, bytes) => {
                write!(f, "{:?}", SearchRequest::decode(&mut ByteReader::new(bytes, *order)))
            }
            Body::Response(response) => write!(f, "{response:?}"),
            Body::Beacon(beacon) => write!(f, "{beacon:?}"),
        }
    }
}

/// The changed leaves with their paths; all of them if none is marked.
fn described(structure: &Structure) -> String {
    let kind = structure.kind();
    let leaves = match structure.changed() {
        changed if changed.is_empty() => kind.leaves(&[0].into_iter().collect()),
        changed => kind.leaves(changed),
    };
    let leaf = |bit| {
        let path = kind.path(bit);
        let equals = if path.is_empty() { "" } else { "=" };
        format!("{path}{equals}{}", described_node(structure.node(bit).unwrap()))
    };
    leaves.iter().map(leaf).collect::<Vec<_>>().join(" ")
}

fn described_node(value: &NodeValue) -> String {
    let element = |element: &Option<Structure>| element.as_ref().map_or("none".into(), described);
    let list = |elements: Vec<String>| format!("[{}]", elements.join(", "));
    match value {
        NodeValue::Structure => String::new(),
        NodeValue::Value(Value::Scalar(scalar)) => described_scalar(scalar),
        NodeValue::Value(Value::Array(array)) if array.len() > 12 => {
            let at = |index| described_scalar(&array.scalar(index).unwrap());
            format!("{} elements, {} {} to {}", array.len(), at(0), at(1), at(array.len() - 1))
        }
        NodeValue::Value(Value::Array(array)) => {
            list((0..array.len()).map(|index| described_scalar(&array.scalar(index).unwrap())).collect())
        }
        NodeValue::Structures(elements) | NodeValue::Anys(elements) => {
            list(elements.iter().map(|value| format!("({})", element(value))).collect())
        }
        NodeValue::Union(value) => value.as_ref().map_or("none".into(), |value| described(&value.value)),
        NodeValue::Unions(elements) => {
            let one = |value: &Option<fodo_data::UnionValue>| {
                value.as_ref().map_or("none".into(), |value| described(&value.value))
            };
            list(elements.iter().map(one).collect())
        }
        NodeValue::Any(value) => {
            value.as_ref().map_or("none".into(), |value| format!("{} {}", value.kind(), described(value)))
        }
    }
}

fn described_scalar(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Text(text) => format!("{:?}", Text::to_str(text)),
        Scalar::F64(number) => number.to_string(),
        Scalar::F32(number) => number.to_string(),
        other => other.to_text(None).to_string(),
    }
}
