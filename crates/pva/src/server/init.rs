//! The start of an operation: its pvRequest, and the type that the client receives.

use super::event::{ChannelType, Event, PendingReply, PutOptions, Reply, SubscriptionOptions};
use super::operations::{Method, OperationState, ServedOperation, Window};
use super::{FieldSelection, NO_SUCH_CHANNEL, ORDER, ServerState, operations, options};
use crate::cursor::ByteReader;
use crate::message::{Answer, Subcommand};
use crate::request::PvRequest;
use crate::status::{RequestStatus, StatusLevel};
use crate::{Ioid, Sid, limit, types, value};

/// What a pvRequest says, for the operations that use it.
struct Requested {
    selection: FieldSelection,
    /// Of puts and gets.
    put: PutOptions,
    monitor: Option<SubscriptionOptions>,
    /// Values of options that are not understood.
    invalid: Vec<String>,
}

impl ServerState {
    /// Processes a request of an operation.
    pub(super) fn request(&mut self, method: Method, sid: Sid, ioid: Ioid, sub: Subcommand, reader: &mut ByteReader) {
        match method {
            _ if sub.contains(Subcommand::INIT) => {
                if let Err(text) = self.init(method, sid, ioid, sub, reader) {
                    self.send_status(method, ioid, Subcommand::INIT, RequestStatus::error(text));
                }
            }
            Method::Monitor => self.control_monitor(sid, ioid, sub, reader),
            method => self.execute(method, sid, ioid, sub, reader),
        }
    }

    /// Starts an operation. The reply waits for the caller, because a type may be large.
    fn init(
        &mut self,
        method: Method,
        sid: Sid,
        ioid: Ioid,
        sub: Subcommand,
        reader: &mut ByteReader,
    ) -> Result<(), String> {
        let kind = self.channel(sid).ok_or(NO_SUCH_CHANNEL)?.clone();
        if method == Method::Array {
            return Err("the server does not support operations on parts of arrays".into());
        }
        if self.operations.find(ioid).is_some() {
            return Err("another operation has this number".into());
        }
        let has_window = sub.contains(Subcommand::ACK);
        let n_bytes = reader.n_left().saturating_sub(if has_window { size_of::<u32>() } else { 0 });
        if n_bytes > limit::PV_REQUEST_BYTES {
            return Err(format!("the pvRequest has {n_bytes} bytes; at most {} are accepted", limit::PV_REQUEST_BYTES));
        }
        let pv_request = value::decode_any(reader, &mut self.types);
        self.refer_as_the_client_does();
        let n_updates = if has_window { reader.u32() } else { 0 };
        reader.finish().map_err(|fault| format!("the pvRequest is malformed: {fault}"))?;
        let parsed = pv_request.as_ref().map_or_else(PvRequest::default, PvRequest::from_structure);
        let Requested { selection, mut put, monitor, invalid } = requested(method, &kind, &parsed)?;
        if matches!(method, Method::Put | Method::PutGet) {
            // It is kept, and a variant is larger in memory than what is counted for it.
            if pv_request.as_ref().is_some_and(|request| types::has_variant(request.kind())) {
                return Err("the pvRequest of a put cannot have variants".into());
            }
            put.request = pv_request.map(|request| self.operations.shared(request));
        }
        if !self.has_room_for(limit::OPERATION_BYTES + operations::held_bytes(&selection, &put)) {
            self.exceed();
            return Err("too many channels and operations for this client or its host".into());
        }
        let state = match &monitor {
            Some(options) if options.has_flow_control => OperationState::Stopped(Window::Updates(n_updates)),
            Some(_) => OperationState::Stopped(Window::Unlimited),
            None => OperationState::Idle,
        };
        let needs_meta = match &kind {
            ChannelType::Flat(layout) => layout.has_meta(&selection.bits()),
            ChannelType::Structured(_) => false,
        };
        let mut operation = ServedOperation::new(sid, ioid, method, state, selection.clone());
        (operation.needs_meta, operation.options) = (needs_meta, put);
        let request = self.operations.insert(operation);
        self.events.push(Event::Reply(Reply(PendingReply::Init(ioid))));
        if let Some(options) = monitor {
            self.events.push(Event::Subscribe { sid, request, options, selection, needs_meta });
        }
        invalid.into_iter().for_each(|text| self.warn(ioid, text));
        Ok(())
    }

    /// Sends a text for the log of the client.
    fn warn(&mut self, ioid: Ioid, text: String) {
        let answer = Answer::Message { ioid, level: StatusLevel::Warning as u8, text: text.into() };
        self.outbox.push(|bytes| answer.encode(ORDER, bytes, |_| {}));
    }

    /// Sends types that the client has received before by their id alone, once it has done the same. A client may declare that
    /// it stores ids, and only know those of the same message: spvirit 0.4.2 then has no result for the second get of a circuit.
    fn refer_as_the_client_does(&mut self) {
        if self.types.was_read() {
            self.type_ids.set_registry_size(self.registry_size);
        }
    }

    /// Sends the reply to INIT, unless the operation has ended.
    pub(super) fn send_init(&mut self, ioid: Ioid) {
        let ServerState { outbox, operations, channels, type_ids, .. } = self;
        let Some(operation) = operations.find(ioid).and_then(|index| operations.at_mut(index)) else { return };
        let Some(channel) = channels.get(operation.sid.0 as usize) else { return };
        if !std::mem::take(&mut operation.init_is_unsent) {
            return;
        }
        let (method, kind) = (operation.method, channel.kind.kind());
        let answer = method.answer(ioid, Subcommand::INIT, RequestStatus::OK);
        outbox.push(|bytes| {
            answer.encode(ORDER, bytes, |to| match method {
                Method::Get | Method::Put => type_ids.encode(kind, to),
                Method::PutGet => {
                    type_ids.encode(kind, to);
                    type_ids.encode(kind, to);
                }
                Method::Monitor => {
                    RequestStatus::OK.encode(to);
                    type_ids.encode(kind, to);
                }
                Method::Array | Method::Process | Method::Rpc => {}
            });
        });
    }
}

fn requested(method: Method, kind: &ChannelType, request: &PvRequest) -> Result<Requested, String> {
    let mut invalid = Vec::new();
    let mut complain = |text| invalid.push(text);
    let put = match (method, kind) {
        (Method::Put | Method::PutGet, _) | (Method::Get, ChannelType::Flat(_)) => {
            options::of_put(request, &mut complain)
        }
        (Method::Get, ChannelType::Structured(_)) => options::of_structure(request, &mut complain),
        _ => PutOptions::default(),
    };
    let monitor = (method == Method::Monitor).then(|| options::of_monitor(request, &mut complain));
    let group = match method {
        Method::Process | Method::Rpc => {
            return Ok(Requested { selection: FieldSelection::default(), put, monitor, invalid });
        }
        Method::PutGet if request.groups.iter().any(|group| group.name.as_bytes() == b"getField") => "getField",
        _ => "field",
    };
    let bits = request.selection(group, kind.kind()).map_err(|error| error.to_string())?;
    Ok(Requested { selection: FieldSelection::new(bits, kind.kind()), put, monitor, invalid })
}
