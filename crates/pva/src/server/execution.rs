//! The executions of operations: requests of the client, and replies of the caller.

use fodo_data::Structure;

use super::event::{ChannelType, Contents, Event, ProcessOption, PutValue, RequestKey, WriteReply};
use super::operations::{Method, OperationState, ServedOperation};
use super::{EVERYTHING, NO_SUCH_OPERATION, ORDER, OpenChannel, ServerState, encode_contents, put};
use crate::cursor::{ByteReader, ByteWriter};
use crate::frame::{self, Sender};
use crate::message::{self, Request, Subcommand};
use crate::outbox::push_values;
use crate::status::{self, RequestStatus};
use crate::{Ioid, Sid, value};

/// What a request to execute an operation contains.
enum RequestValue {
    Nothing,
    Put(PutValue),
    Rpc(Option<Structure>),
}

const NO_ROOM: &str = "the server has no memory for the value";
/// The refusal of a put by a client without write access.
pub const NO_WRITE_ACCESS: &str = "the client has no write access to the PV";
const TOO_LARGE: &str = "the value is too large for one message";
const OTHER_TYPE: &str = "the server has no value of the channel's type";

/// Appends the reply to a get that has succeeded, as [`Answer::Get`](crate::message::Answer::Get) encodes it.
#[inline]
fn encode_get_done(ioid: Ioid, sub: Subcommand, out: &mut Vec<u8>, body: impl FnOnce(&mut ByteWriter)) {
    frame::encode(out, Sender::Server, ORDER, message::GET, |to| {
        let [i0, i1, i2, i3] = ORDER.u32_bytes(ioid.0);
        to.bytes(&[i0, i1, i2, i3, sub.0, status::PLAIN_OK]);
        body(to);
    });
}

impl ServedOperation {
    /// The event for a request to read. A get may request that the record is processed before.
    #[inline]
    fn read(&self, request: RequestKey) -> Event {
        let ServedOperation { sid, needs_meta, ref options, .. } = *self;
        match (self.method, options.process) {
            (Method::Get, ProcessOption::Always) => {
                let reply = WriteReply::Value { needs_meta };
                Event::Write { sid, request, value: PutValue::Flat(None), options: options.clone(), reply }
            }
            _ => Event::Read { sid, request, needs_meta, atomic: options.atomic },
        }
    }
}

impl ServerState {
    /// Executes an operation. Requests that fail before the caller sees them get a status; the operation remains.
    pub(super) fn execute(&mut self, method: Method, sid: Sid, ioid: Ioid, sub: Subcommand, reader: &mut ByteReader) {
        let index = match self.executable(method, sid, ioid, sub) {
            Ok(index) => index,
            Err(text) => return self.send_status(method, ioid, sub, RequestStatus::error(text)),
        };
        let argument = match self.argument(method, sid, sub, reader) {
            Ok(argument) => argument,
            Err(text) => {
                self.send_status(method, ioid, sub, RequestStatus::error(text));
                return self.operations.finish(index);
            }
        };
        let request = self.operations.start_request(index);
        let Some(operation) = self.operations.at_mut(index) else { return };
        operation.state = OperationState::Executing(sub);
        let event = match argument {
            RequestValue::Put(value) => {
                let ServedOperation { ref options, needs_meta, .. } = *operation;
                let is_put = method == Method::Put;
                let reply = if is_put { WriteReply::Status } else { WriteReply::Value { needs_meta } };
                Event::Write { sid, request, value, options: options.clone(), reply }
            }
            RequestValue::Rpc(argument) => Event::Rpc { sid, request, argument },
            RequestValue::Nothing if method == Method::Process => Event::Process { sid, request },
            RequestValue::Nothing => operation.read(request),
        };
        self.events.push(event);
    }

    /// Executes a get, which has no value.
    #[inline]
    pub(super) fn execute_get(&mut self, sid: Sid, ioid: Ioid) {
        let sub = Subcommand::EXECUTE;
        match self.executable(Method::Get, sid, ioid, sub) {
            Ok(index) => {
                let request = self.operations.start_request(index);
                let Some(operation) = self.operations.at_mut(index) else { return };
                operation.state = OperationState::Executing(sub);
                let event = operation.read(request);
                self.events.push(event);
            }
            Err(text) => self.send_status(Method::Get, ioid, sub, RequestStatus::error(text)),
        }
    }

    /// Finds the operation that a request executes, unless it is busy. DESTROY takes effect in any case.
    #[inline]
    fn executable(&mut self, method: Method, sid: Sid, ioid: Ioid, sub: Subcommand) -> Result<u32, &'static str> {
        let index = self.owned(sid, ioid).ok_or(NO_SUCH_OPERATION)?;
        let operation = self.operations.at_mut(index).filter(|operation| operation.method == method);
        let operation = operation.ok_or(NO_SUCH_OPERATION)?;
        operation.is_ending |= sub.contains(Subcommand::DESTROY);
        match operation.state {
            OperationState::Idle => Ok(index),
            _ => Err("the operation is still being executed"),
        }
    }

    /// Decodes the value in a request, if it has one.
    fn argument(
        &mut self,
        method: Method,
        sid: Sid,
        sub: Subcommand,
        reader: &mut ByteReader,
    ) -> Result<RequestValue, String> {
        let is_read = match method {
            Method::Put => sub.contains(Subcommand::GET),
            Method::PutGet => sub.contains(Subcommand::GET) || sub.contains(Subcommand::ACK),
            _ => true,
        };
        reader.limit_memory(self.value_bytes_left);
        let kind = self.channels.get(sid.0 as usize).map(|channel| &channel.kind);
        let (argument, n_bytes) = match (method, kind) {
            (Method::Rpc, _) => {
                let argument = value::decode_any(reader, &mut self.types);
                let n_bytes = argument.as_ref().map_or(0, Structure::n_bytes);
                (RequestValue::Rpc(argument), n_bytes)
            }
            (Method::Put | Method::PutGet, Some(kind)) if !is_read => {
                let value = put::decode(kind, reader, &mut self.types);
                let n_bytes = value.n_bytes();
                (RequestValue::Put(value), n_bytes)
            }
            _ => return Ok(RequestValue::Nothing),
        };
        let left = self.value_bytes_left.checked_sub(n_bytes).filter(|_| !reader.is_short_of_memory());
        let Some(left) = left else {
            self.events.push(Event::Drained);
            return Err(NO_ROOM.into());
        };
        reader.finish().map_err(|fault| format!("the value is malformed: {fault}"))?;
        self.value_bytes_left = left;
        Ok(argument)
    }

    /// Rejects a request whose value is dropped as it arrives.
    pub(super) fn drain(&mut self, request: &Request, is_denied: bool) {
        let (method, sid, ioid, sub) = match *request {
            Request::Put { sid, ioid, sub } => (Method::Put, sid, ioid, sub),
            Request::PutGet { sid, ioid, sub } => (Method::PutGet, sid, ioid, sub),
            Request::Rpc { sid, ioid, sub } => (Method::Rpc, sid, ioid, sub),
            _ => return,
        };
        let found = self.executable(method, sid, ioid, sub);
        let (why, event) = if is_denied { (NO_WRITE_ACCESS, Event::Denied) } else { (NO_ROOM, Event::Drained) };
        let text = found.err().unwrap_or(why);
        self.send_status(method, ioid, sub, RequestStatus::error(text));
        if let Ok(index) = found {
            self.operations.finish(index);
        }
        self.events.push(event);
    }

    #[inline]
    pub(super) fn read_done(&mut self, request: RequestKey, result: Result<Contents<'_>, &RequestStatus>) {
        let ServerState { outbox, operations, channels, .. } = self;
        let Some(operation) = operations.of(request) else { return };
        let (OperationState::Executing(sub), Some(OpenChannel { kind, .. })) =
            (operation.state, channels.get(operation.sid.0 as usize))
        else {
            return;
        };
        let (method, ioid) = (operation.method, operation.ioid);
        let failure = match result {
            Ok(contents) if kind.accepts(contents) => {
                let marks = match (contents, kind) {
                    (Contents::Structure(structure), _) => structure.changed(),
                    (Contents::Reading(_), ChannelType::Flat(layout)) => layout.whole(EVERYTHING),
                    (Contents::Reading(_), ChannelType::Structured(_)) => return,
                };
                let bits = operation.selection.of(marks, kind.kind());
                let pushed = push_values(outbox, |bytes, left_out| {
                    let body =
                        |to: &mut ByteWriter| to.leaving_out(left_out, |to| encode_contents(kind, contents, &bits, to));
                    match method {
                        Method::Get => encode_get_done(ioid, sub, bytes, body),
                        method => method.answer(ioid, sub, RequestStatus::OK).encode(ORDER, bytes, body),
                    }
                });
                pushed.err().map(|_| RequestStatus::error(TOO_LARGE))
            }
            Ok(_) => Some(RequestStatus::error(OTHER_TYPE)),
            Err(status) => Some(status.clone()),
        };
        if let Some(status) = failure {
            self.send_status(method, ioid, sub, status);
        }
        self.operations.finish(request.index);
    }

    /// Replies with nothing but a status.
    pub(super) fn status_done(&mut self, request: RequestKey, failure: Option<&RequestStatus>) {
        let Some(operation) = self.operations.of(request) else { return };
        let OperationState::Executing(sub) = operation.state else { return };
        let (method, ioid) = (operation.method, operation.ioid);
        debug_assert!(failure.is_some() || matches!(method, Method::Put | Method::Process), "a value is missing");
        self.send_status(method, ioid, sub, failure.cloned().unwrap_or_default());
        self.operations.finish(request.index);
    }

    /// The result has its type in full: it may be different each time.
    pub(super) fn rpc_done(&mut self, request: RequestKey, result: Result<Option<&Structure>, &RequestStatus>) {
        let value = match result {
            Ok(value) => value,
            Err(status) => return self.status_done(request, Some(status)),
        };
        let Some(operation) = self.operations.of(request) else { return };
        let OperationState::Executing(sub) = operation.state else { return };
        let (method, ioid) = (operation.method, operation.ioid);
        let answer = method.answer(ioid, sub, RequestStatus::OK);
        let pushed = push_values(&mut self.outbox, |bytes, left_out| {
            answer.encode(ORDER, bytes, |to| to.leaving_out(left_out, |to| value::encode_any(value, None, to)));
        });
        if pushed.is_err() {
            self.send_status(method, ioid, sub, RequestStatus::error(TOO_LARGE));
        }
        self.operations.finish(request.index);
    }
}
