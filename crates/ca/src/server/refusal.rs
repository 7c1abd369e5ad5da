//! Replies to requests that fail.

use fodo_engine::{Ioid, Sid, SubscriptionId};

use super::{DroppedPut, Event, ServerState, complaint};
use crate::dbr::DbrType;
use crate::eca::Eca;
use crate::limit;
use crate::message::{self, Answer, Header, Request};

impl ServerState {
    /// Sends an ERROR about a request, with its header and a text.
    pub(super) fn complain(&mut self, request: &Header, status: Eca, text: &str) {
        // Only these requests have a channel number in that word.
        let sid = match Request::from_header(request) {
            Request::EventAdd { sid, .. } | Request::EventCancel { sid, .. } | Request::ClearChannel { sid, .. } => sid,
            Request::Read { sid, .. } | Request::ReadNotify { sid, .. } => sid,
            Request::Write { sid, .. } | Request::WriteNotify { sid, .. } => sid,
            _ => Sid(u32::MAX),
        };
        let cid = self.cid(sid);
        self.answer(|bytes| complaint(request, cid, status, text, bytes));
    }

    /// Replies that there is no value. Zeros are sent in its place, the same as by rsrv, unless they exceed
    /// [`limit::REFUSAL_BYTES`].
    pub(super) fn refuse_read(&mut self, dbr: DbrType, count: u32, ioid: Ioid, status: Eca) {
        let zeros = dbr.payload_bytes(count).map_or(0, message::padded);
        let (zeros, count) = if zeros <= limit::REFUSAL_BYTES { (zeros, count) } else { (0, 0) };
        self.answer(|bytes| {
            Answer::ReadNotify { dbr, count, status, ioid }.header(zeros).encode(bytes);
            bytes.resize(bytes.len() + zeros, 0);
        });
    }

    /// Reports that a subscription has no value at present; further updates may follow.
    pub(super) fn refuse_update(&mut self, dbr: DbrType, count: u32, subscription: SubscriptionId, status: Eca) {
        let zeros = dbr.payload_bytes(count).map_or(0, message::padded);
        let (zeros, count) = match zeros {
            1..=limit::REFUSAL_BYTES => (zeros, count),
            // An empty payload would mean the end of the subscription.
            _ => (dbr.payload_bytes(1).map_or(8, message::padded), 1),
        };
        self.outbox.push(|bytes| {
            Answer::EventAdd { dbr, count, status, subscription }.header(zeros).encode(bytes);
            bytes.resize(bytes.len() + zeros, 0);
        });
    }

    /// Rejects a put whose payload is dropped, and reports it.
    pub(super) fn drain(&mut self, header: &Header, why: DroppedPut) {
        let status = match why {
            DroppedPut::NoAccess => Eca::NOWTACCESS,
            DroppedPut::NoRoom => Eca::ALLOCMEM,
        };
        self.refuse_write(header, status);
        self.events.push(Event::Drained(why));
    }

    pub(super) fn refuse_write(&mut self, header: &Header, status: Eca) {
        match Request::from_header(header) {
            Request::WriteNotify { dbr, count, ioid, .. } => {
                let answer = Answer::WriteNotify { dbr, count, status, ioid };
                self.answer(|bytes| answer.encode(bytes));
            }
            _ => self.complain(header, status, "the value cannot be written"),
        }
    }
}
