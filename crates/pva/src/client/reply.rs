//! The messages of a server: their effect on channels and operations, and the events that report it.

use fodo_data::Text;
use fodo_engine::search::ClaimedServer;

use super::layout::OperationTypes;
use super::operation::{OpenOperation, OperationStage, OperationStep};
use super::{AccessRights, ClientState, DisconnectReason, Event, Handshake, Listener, Received, RequestError, Task};
use crate::cursor::ByteReader;
use crate::frame::Header;
use crate::incoming_array::IncomingArray;
use crate::message::{self, Answer, Request, Subcommand};
use crate::search::{self, SearchResponse};
use crate::status::{PLAIN_OK, RequestStatus};
use crate::types::{self, TypeIds};
use crate::validation::{self, Credentials};
use crate::{Cid, Ioid, Sid, limit, value};

/// The state of a circuit while it handles messages, with its listener.
pub(super) struct Dispatcher<'a, L> {
    pub(super) inner: &'a mut ClientState,
    pub(super) listener: &'a mut L,
}

impl<L: Listener> Dispatcher<'_, L> {
    pub(super) fn close(&mut self, reason: DisconnectReason) {
        if !std::mem::replace(&mut self.inner.is_closed, true) {
            self.listener.event(Event::Closed(reason));
        }
    }

    /// Handles a message that was examined before it was complete, with the large array that its payload lacks.
    #[cold]
    pub(super) fn large_message(&mut self, header: &Header, payload: &[u8], array: Option<IncomingArray>) {
        let Some(array) = array else { return self.message(header, payload) };
        let mut apart = array.finish();
        if let Some(array) = apart.arrived() {
            self.listener.large_array(array);
        }
        self.any_message(header, payload, ByteReader::with_apart(payload, header.order, &mut apart));
    }

    #[inline(always)]
    pub(super) fn message(&mut self, header: &Header, payload: &[u8]) {
        // The most frequent reply: a get of a number has succeeded.
        if let (message::GET, &[i0, i1, i2, i3, 0, PLAIN_OK, ref value @ ..]) = (header.command, payload)
            && let ioid = Ioid(header.order.u32_from([i0, i1, i2, i3]))
            && let Some(operation) = self.inner.operations.get_mut(ioid)
            && let Some(reading) = operation.take_number(value, header.order)
        {
            return self.listener.number_read(ioid, reading);
        }
        let reader = ByteReader::new(payload, header.order);
        self.any_message(header, payload, reader);
    }

    #[inline(always)]
    fn any_message(&mut self, header: &Header, payload: &[u8], mut reader: ByteReader) {
        let answer = Answer::decode(header.command, &mut reader);
        if !reader.has_failed() {
            match answer {
                Answer::Get { ioid, sub, status } => {
                    self.replied(Task::Get, ioid, sub, status, payload, &mut reader);
                }
                Answer::Monitor { ioid, sub } => self.monitored(ioid, sub, payload, &mut reader),
                Answer::Put { ioid, sub, status } => {
                    self.replied(Task::Put, ioid, sub, status, payload, &mut reader);
                }
                answer => self.rare(answer, payload, &mut reader),
            }
        }
        self.check(header, &reader);
    }

    /// Closes the circuit if a message could not be decoded.
    #[inline]
    fn check(&mut self, header: &Header, reader: &ByteReader) {
        if let Err(fault) = reader.finish() {
            self.close(DisconnectReason::Malformed { command: header.command, fault });
        }
    }

    /// Handles infrequent messages.
    fn rare(&mut self, answer: Answer, payload: &[u8], reader: &mut ByteReader) {
        match answer {
            Answer::ConnectionValidation { registry_size, methods, .. } => self.greeted(registry_size, &methods),
            Answer::ConnectionValidated { status } => self.validated(status),
            Answer::CreateChannel { cid, sid, status } => self.created(cid, sid, status),
            Answer::DestroyChannel { sid, cid } => {
                let number = self.inner.operations.number_of(cid, sid);
                if let Some(sid) = number.filter(|sid| self.inner.operations.remove_channel(cid, *sid).is_some()) {
                    self.listener.event(Event::ChannelGone { cid, sid });
                }
            }
            Answer::AclChange { cid, rights } => {
                self.listener.event(Event::Rights { cid, rights: AccessRights(rights) });
            }
            Answer::PutGet { ioid, sub, status } => self.replied(Task::PutGet, ioid, sub, status, payload, reader),
            Answer::Rpc { ioid, sub, status } => self.replied(Task::Rpc, ioid, sub, status, payload, reader),
            Answer::Process { ioid, sub, status } => self.replied(Task::Process, ioid, sub, status, payload, reader),
            Answer::GetField { ioid, status } => self.described(ioid, status, reader),
            Answer::Message { ioid, level, text } => self.listener.event(Event::Message { ioid, level, text }),
            Answer::SearchResponse {} => self.claimed(reader),
            // Nothing to do, or the reply to a request that this client does not send.
            Answer::Get { .. }
            | Answer::Put { .. }
            | Answer::Monitor { .. }
            | Answer::Echo {}
            | Answer::Beacon {}
            | Answer::Authentication {}
            | Answer::Array { .. } => {}
            // A newer server may send unknown messages.
            Answer::Unknown(_) => {}
        }
    }

    /// The server has sent its greeting: sends the identity of this client.
    fn greeted(&mut self, registry_size: u16, methods: &[Text]) {
        if self.inner.handshake != Handshake::Greeting {
            return;
        }
        self.inner.handshake = Handshake::Validation;
        let ClientState { outbox, identity, has_certificate, .. } = &mut *self.inner;
        outbox.ids = TypeIds::new(registry_size);
        let is_offered = |name: &str| methods.iter().any(|method| method.as_bytes() == name.as_bytes());
        let credentials = if *has_certificate && is_offered(validation::X509) {
            Credentials::Other { method: validation::X509.into(), value: None }
        } else if is_offered(validation::CA) {
            Credentials::Ca { user: identity.user.as_str().into(), host: identity.host.as_str().into() }
        } else {
            Credentials::Anonymous
        };
        let request = Request::ConnectionValidation {
            buffer_bytes: limit::ANNOUNCED_BUFFER_BYTES,
            registry_size: limit::ANNOUNCED_TYPE_IDS,
            qos: u16::from(identity.priority),
            method: credentials.method(),
        };
        outbox.push(&request, |to, _| credentials.encode(None, to));
    }

    /// The server accepts this client or not.
    fn validated(&mut self, status: RequestStatus) {
        if !status.is_success() {
            return self.close(DisconnectReason::Rejected(status));
        }
        if self.inner.handshake == Handshake::Validation {
            self.inner.handshake = Handshake::Complete;
            std::mem::take(&mut self.inner.early_requests).into_iter().for_each(|request| self.inner.send(request));
        }
    }

    fn created(&mut self, cid: Cid, sid: Sid, status: RequestStatus) {
        // A server must not create more channels than were requested.
        let Some(n_creating) = self.inner.n_creating.checked_sub(1) else { return };
        self.inner.n_creating = n_creating;
        if !status.is_success() {
            return self.listener.event(Event::CreateFailed { cid, status });
        }
        if self.inner.operations.number_of(cid, sid).is_some() {
            return;
        }
        let sid = self.inner.operations.add_channel(cid, sid);
        self.listener.event(Event::Created { cid, sid });
    }

    fn described(&mut self, ioid: Ioid, status: RequestStatus, reader: &mut ByteReader) {
        let ClientState { operations, types, .. } = &mut *self.inner;
        let kind = if status.is_success() { types::decode(reader, types) } else { None };
        let is_awaited =
            operations.get_mut(ioid).is_some_and(|operation| operation.stage == OperationStage::Describing);
        if is_awaited && !reader.has_failed() {
            operations.remove(ioid);
            let result = if status.is_success() { Ok(kind) } else { Err(status) };
            self.listener.event(Event::Described { ioid, result });
        }
    }

    fn claimed(&mut self, reader: &mut ByteReader) {
        let SearchResponse { address, port, protocol, is_found, cids, .. } = SearchResponse::decode(reader);
        let usable = search::transport(&protocol).filter(|transport| self.inner.transports.contains(transport));
        let (Some(transport), true, false) = (usable, is_found, reader.has_failed()) else { return };
        let server = ClaimedServer { ip: search::specified(address), port, transport };
        cids.into_iter().for_each(|cid| self.listener.event(Event::Claimed { cid, server }));
    }

    /// Handles the reply to a request of an operation that is not a monitor.
    #[inline]
    fn replied(
        &mut self,
        task: Task,
        ioid: Ioid,
        sub: Subcommand,
        status: RequestStatus,
        payload: &[u8],
        reader: &mut ByteReader,
    ) {
        if sub.contains(Subcommand::INIT) {
            return self.initialised(task, ioid, status, payload, reader);
        }
        let ClientState { operations, types, .. } = &mut *self.inner;
        let operation = match operations.get_mut(ioid) {
            Some(operation) if operation.task == task => operation,
            _ => return self.ignore(task, &status, reader),
        };
        let OperationStage::Executing(step) = operation.stage else { return };
        let result = match step {
            _ if !status.is_success() => Err(RequestError::Refused(status)),
            OperationStep::Read => Ok(operation.decode(reader, types)),
            OperationStep::Choices => return self.choose(ioid, reader),
            OperationStep::Write if task == Task::PutGet => Ok(operation.decode(reader, types)),
            OperationStep::Call if task == Task::Rpc => {
                Ok(value::decode_any(reader, types).map_or(Received::None, Received::Structure))
            }
            OperationStep::Write | OperationStep::Call => Ok(Received::None),
        };
        if !reader.has_failed() {
            self.finish(ioid, result);
        }
    }

    /// Reports the end of further gets that have the same reply.
    #[cold]
    fn share(&mut self, ioid: Ioid, result: &Result<Received, RequestError>, n_gets: u32) {
        for _ in 0..n_gets {
            self.listener.event(Event::Done { ioid, result: result.clone() });
        }
    }

    /// Reports the end of what an operation has executed, and sends its next request.
    #[inline]
    fn finish(&mut self, ioid: Ioid, result: Result<Received, RequestError>) {
        let Some(operation) = self.inner.operations.get_mut(ioid) else { return };
        let n_finished = operation.finish();
        let has_waiting = operation.has_waiting();
        if n_finished > 1 {
            self.share(ioid, &result, n_finished - 1);
        }
        self.listener.event(Event::Done { ioid, result });
        if has_waiting {
            self.advance(ioid);
        }
    }

    /// Sends the next request of an operation; reports requests that cannot be sent.
    fn advance(&mut self, ioid: Ioid) {
        loop {
            let ClientState { operations, outbox, .. } = &mut *self.inner;
            let Some(operation) = operations.get_mut(ioid) else { return };
            match operation.advance(outbox) {
                Ok(()) => return,
                Err(reason) => self.listener.event(Event::Done { ioid, result: Err(reason) }),
            }
        }
    }

    /// The names of the states for a put were received.
    fn choose(&mut self, ioid: Ioid, reader: &mut ByteReader) {
        let ClientState { operations, outbox, types, .. } = &mut *self.inner;
        let Some(operation) = operations.get_mut(ioid) else { return };
        let choices = operation.decode_choices(reader, types);
        if !reader.has_failed()
            && let Err(reason) = operation.choose(choices, outbox)
        {
            self.finish(ioid, Err(reason));
        }
    }

    /// Handles the reply to INIT.
    fn initialised(&mut self, task: Task, ioid: Ioid, status: RequestStatus, payload: &[u8], reader: &mut ByteReader) {
        // Also for an operation that has ended: later messages may refer to its types by their ids.
        let types = match status.is_success() {
            true => self.decode_types(task, payload, reader).ok_or(RequestError::TypesTooLarge),
            false => Err(RequestError::Refused(status)),
        };
        let ClientState { operations, outbox, .. } = &mut *self.inner;
        let operation = match operations.get_mut(ioid) {
            Some(operation) if operation.task == task && operation.stage == OperationStage::Opening => operation,
            _ => return,
        };
        if reader.has_failed() {
            return;
        }
        match types {
            Ok(types) => {
                let kind = types.written.as_ref().or(types.read.as_ref()).map(|layout| layout.kind().clone());
                operation.opened(types, outbox);
                let has_waiting = operation.has_waiting();
                self.listener.event(Event::Opened { ioid, kind });
                if has_waiting {
                    self.advance(ioid);
                }
            }
            Err(reason) => {
                let sid = operation.sid;
                operations.remove(ioid);
                if reason == RequestError::TypesTooLarge {
                    outbox.push(&Request::DestroyRequest { sid, ioid }, |_, _| {});
                }
                self.listener.event(Event::OpenFailed { ioid, reason });
            }
        }
    }

    /// The types in the reply to INIT. `None` after a fault, or if they are too large.
    fn decode_types(&mut self, task: Task, payload: &[u8], reader: &mut ByteReader) -> Option<OperationTypes> {
        let ClientState { layouts, types, .. } = &mut *self.inner;
        Some(match task {
            Task::Rpc | Task::Process => OperationTypes::default(),
            Task::Get | Task::Monitor => {
                OperationTypes { read: Some(layouts.decode_last(payload, reader, types)?), written: None }
            }
            Task::Put => {
                let both = layouts.decode_last(payload, reader, types)?;
                OperationTypes { read: Some(both.clone()), written: Some(both) }
            }
            Task::PutGet => {
                let (written, read) = (layouts.decode(reader, types), layouts.decode(reader, types));
                OperationTypes { read: Some(read?), written: Some(written?) }
            }
        })
    }

    /// Handles a message of a monitor.
    #[inline]
    fn monitored(&mut self, ioid: Ioid, sub: Subcommand, payload: &[u8], reader: &mut ByteReader) {
        if sub.contains(Subcommand::INIT) {
            let status = RequestStatus::decode(reader);
            if !reader.has_failed() {
                self.initialised(Task::Monitor, ioid, status, payload, reader);
            }
            return;
        }
        let end = sub.contains(Subcommand::DESTROY).then(|| RequestStatus::decode(reader));
        if end.is_none() || reader.n_left() > 0 {
            self.updated(ioid, reader);
        }
        if let Some(status) = end
            && !reader.has_failed()
        {
            self.ended(ioid, status);
        }
    }

    #[inline]
    fn updated(&mut self, ioid: Ioid, reader: &mut ByteReader) {
        let ClientState { operations, types, .. } = &mut *self.inner;
        let Some((monitored, layout)) = operations.get_mut(ioid).and_then(OpenOperation::monitored) else { return };
        let changed = layout.decode_into(&mut monitored.received, reader, types);
        let overrun = reader.bit_set(layout.kind().nodes().len());
        if !reader.has_failed() {
            let received = monitored.received.clone();
            self.listener.event(Event::Update { ioid, received, changed, overrun });
        }
    }

    #[cold]
    fn ended(&mut self, ioid: Ioid, status: RequestStatus) {
        let ClientState { operations, outbox, .. } = &mut *self.inner;
        if operations.get_mut(ioid).is_none_or(|operation| operation.task != Task::Monitor) {
            return;
        }
        if let Some(operation) = operations.remove(ioid) {
            // pvAccessCPP keeps a monitor that has ended until the client destroys it.
            outbox.push(&Request::DestroyRequest { sid: operation.sid, ioid }, |_, _| {});
            self.listener.event(Event::Ended { ioid, status });
        }
    }

    /// The reply to an operation that has ended. The type of the result of a procedure may have an id to which later
    /// messages refer.
    #[cold]
    fn ignore(&mut self, task: Task, status: &RequestStatus, reader: &mut ByteReader) {
        if task == Task::Rpc && status.is_success() {
            value::decode_any(reader, &mut self.inner.types);
        }
    }
}
