//! Subscriptions: their flow control and their updates.

use fodo_data::BitSet;

use super::event::{ChannelType, Contents, Event, RequestKey};
use super::operations::{Method, OperationState, ServedOperation, Window};
use super::{NO_SUCH_OPERATION, ORDER, ServerState, encode_contents};
use crate::cursor::{ByteReader, ByteWriter};
use crate::frame::{self, Sender};
use crate::message::{self, Subcommand};
use crate::outbox::push_values;
use crate::status::RequestStatus;
use crate::value::{NUMBER_BYTES, number_into};
use crate::{Ioid, Sid};

impl ServerState {
    /// Processes START, STOP and ACK, which can be combined, and DESTROY.
    pub(super) fn control_monitor(&mut self, sid: Sid, ioid: Ioid, sub: Subcommand, reader: &mut ByteReader) {
        let index = self.owned(sid, ioid);
        let operation = index.and_then(|index| Some((index, self.operations.at_mut(index)?)));
        let Some((index, operation)) = operation.filter(|(_, operation)| operation.method == Method::Monitor) else {
            // STOP and ACK may have been sent before the client received the end of its subscription.
            if sub.contains(Subcommand::START) {
                let status = RequestStatus::error(NO_SUCH_OPERATION);
                self.send_status(Method::Monitor, ioid, Subcommand::DESTROY, status);
            }
            return;
        };
        let (window, was_started) = match operation.state {
            OperationState::Started(window) => (window, true),
            OperationState::Stopped(window) => (window, false),
            OperationState::Idle | OperationState::Executing(_) => return,
        };
        let n_acknowledged = if sub.contains(Subcommand::ACK) { reader.u32() } else { 0 };
        let next_window = window.widened(n_acknowledged);
        let is_started = sub.contains(Subcommand::START) || (was_started && !sub.contains(Subcommand::STOP));
        operation.state = match is_started {
            true => OperationState::Started(next_window),
            false => OperationState::Stopped(next_window),
        };
        let Some(request) = self.operations.key(index) else { return };
        if sub.contains(Subcommand::DESTROY) {
            self.operations.remove(index);
            return self.events.push(Event::Cancel { sid, request });
        }
        match (was_started, is_started) {
            (false, true) => self.events.push(Event::Start { request }),
            (true, false) => self.events.push(Event::Stop { request }),
            (true, true) if !window.is_open() && next_window.is_open() => self.events.push(Event::Ack { request }),
            _ => {}
        }
    }

    /// A subscription that can be sent an update.
    #[inline]
    pub(super) fn subscription(&self, request: RequestKey) -> Option<(&ServedOperation, Window)> {
        let operation = self.operations.of(request)?;
        match operation.state {
            OperationState::Started(window) if window.is_open() => Some((operation, window)),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn update(
        &mut self,
        request: RequestKey,
        contents: Contents<'_>,
        marks: &BitSet,
        overrun: &BitSet,
    ) -> bool {
        let ServerState { outbox, operations, channels, .. } = self;
        let Some(operation) = operations.at_mut(request.index).filter(|operation| operation.is_request(request)) else {
            return false;
        };
        let (OperationState::Started(window), Some(channel)) =
            (operation.state, channels.get(operation.sid.0 as usize))
        else {
            return false;
        };
        if !window.is_open() {
            return false;
        }
        let (kind, ioid) = (&channel.kind, operation.ioid);
        // The most frequent update.
        let mut number = [0; NUMBER_BYTES];
        if let (ChannelType::Flat(layout), Contents::Reading(reading)) = (kind, contents)
            && overrun.is_empty()
            && let Some(selected) = operation.selection.word(marks)
            && let Some(n_bytes) = number_into(&mut number, layout, selected, reading)
        {
            match outbox.next_bytes() {
                Some(bytes) => encode_number_update(ioid, &number, n_bytes, bytes),
                None => outbox.push(|bytes| encode_number_update(ioid, &number, n_bytes, bytes)),
            }
            operation.state = OperationState::Started(window.used());
            return true;
        }
        let Some(selected) = Selected::new(operation, kind, contents, marks, overrun) else { return false };
        let pushed = push_values(outbox, |bytes, left_out| {
            encode_update_of(ioid, bytes, |to| to.leaving_out(left_out, |to| selected.encode(kind, contents, to)));
        });
        if pushed.is_ok() {
            operation.state = OperationState::Started(window.used());
        }
        pushed.is_ok()
    }

    pub(super) fn encode_update(
        &self,
        request: RequestKey,
        contents: Contents<'_>,
        marks: &BitSet,
        overrun: &BitSet,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(operation) = self.operations.of(request) else { return false };
        let Some(kind) = self.channel(operation.sid) else { return false };
        let Some(selected) = Selected::new(operation, kind, contents, marks, overrun) else { return false };
        selected.encode(kind, contents, &mut ByteWriter::new(out, ORDER));
        true
    }

    #[inline]
    pub(super) fn update_encoded(&mut self, request: RequestKey, contents: &[u8]) -> bool {
        let Some((operation, window)) = self.subscription(request) else { return false };
        let ioid = operation.ioid;
        self.outbox.push(|bytes| encode_update_of(ioid, bytes, |to| to.bytes(contents)));
        if let Some(operation) = self.operations.at_mut(request.index) {
            operation.state = OperationState::Started(window.used());
        }
        true
    }

    pub(super) fn end_monitor(&mut self, request: RequestKey, status: &RequestStatus) {
        if let Some(operation) = self.operations.of(request).filter(|operation| operation.method == Method::Monitor) {
            let ioid = operation.ioid;
            self.send_status(Method::Monitor, ioid, Subcommand::DESTROY, status.clone());
            self.operations.remove(request.index);
        }
    }
}

/// Appends an update, as [`Answer::Monitor`](crate::message::Answer::Monitor) encodes it.
#[inline]
fn encode_update_of(ioid: Ioid, out: &mut Vec<u8>, body: impl FnOnce(&mut ByteWriter)) {
    frame::encode(out, Sender::Server, ORDER, message::MONITOR, |to| {
        let [i0, i1, i2, i3] = ORDER.u32_bytes(ioid.0);
        to.bytes(&[i0, i1, i2, i3, Subcommand::EXECUTE.0]);
        body(to);
    });
}

/// Appends an update with a number, without overrun nodes.
#[inline(always)]
fn encode_number_update(ioid: Ioid, number: &[u8; NUMBER_BYTES], n_bytes: usize, out: &mut Vec<u8>) {
    encode_update_of(ioid, out, |to| {
        to.first_bytes(number, n_bytes);
        to.size(0);
    });
}

/// The nodes that an update contains.
struct Selected<'m> {
    changed: std::borrow::Cow<'m, BitSet>,
    overrun: std::borrow::Cow<'m, BitSet>,
}

impl<'m> Selected<'m> {
    /// The selected nodes; `None` if there are none, or if the value has another type than the channel.
    #[inline]
    fn new(
        operation: &ServedOperation,
        kind: &ChannelType,
        contents: Contents<'_>,
        marks: &'m BitSet,
        overrun: &'m BitSet,
    ) -> Option<Selected<'m>> {
        let changed = operation.selection.of(marks, kind.kind());
        let is_any = !changed.is_empty() && kind.accepts(contents);
        is_any.then(|| Selected { changed, overrun: operation.selection.of(overrun, kind.kind()) })
    }

    #[inline]
    fn encode(&self, kind: &ChannelType, contents: Contents<'_>, to: &mut ByteWriter) {
        encode_contents(kind, contents, &self.changed, to);
        to.bit_set(&self.overrun);
    }
}
