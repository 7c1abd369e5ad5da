//! Puts: checks before a value is accepted, and before the rest of it arrives.

use fodo_data::{Kind, Value};
use fodo_engine::Sid;

use super::{DroppedPut, Event, ServerState};
use crate::dbr::{self, AttributeLevel, DbrType};
use crate::eca::Eca;
use crate::frame::Plan;
use crate::message::{Header, Request};

impl ServerState {
    /// Decides from the header what to do with a put with a large payload. If the put is rejected, the client receives
    /// an error.
    pub(super) fn plan_write(&mut self, header: &Header, sid: Sid, dbr: DbrType, count: u32) -> Plan {
        if let Err(status) = check_write_type(header) {
            self.refuse_write(header, status);
            return Plan::Skip;
        }
        let (count_max, may_write) =
            self.channel(sid).map_or((0, false), |channel| (channel.count_max, channel.may_write));
        if !may_write {
            self.drain(header, DroppedPut::NoAccess);
            return Plan::Skip;
        }
        let is_string = dbr.kind() == Some(Kind::Text);
        let payload_bytes = header.payload_bytes as usize;
        if payload_bytes > self.payload_bytes_max || (count > count_max && !is_string) {
            self.refuse_write(header, Eca::TOLARGE);
            return Plan::Skip;
        }
        let Some(needed) = dbr.payload_bytes(count).filter(|needed| *needed <= payload_bytes) else {
            self.refuse_write(header, Eca::BADCOUNT);
            return Plan::Skip;
        };
        if needed > self.arriving_bytes_max {
            self.drain(header, DroppedPut::NoRoom);
            return Plan::Skip;
        }
        Plan::Value(dbr, count, None)
    }

    pub(super) fn write(&mut self, header: &Header, dbr: DbrType, count: u32, payload: &[u8]) {
        if !self.owns(header, Sid(header.p1)) {
            return;
        }
        if let Err(status) = check_write_type(header) {
            return self.refuse_write(header, status);
        }
        match dbr::decode(dbr, count, payload) {
            Ok(reading) => self.written(header, reading.value),
            Err(_) => self.refuse_write(header, Eca::BADCOUNT),
        }
    }

    pub(super) fn written(&mut self, header: &Header, value: Value) {
        let sid = Sid(header.p1);
        if !self.owns(header, sid) {
            return;
        }
        match Request::from_header(header) {
            Request::WriteNotify { dbr, ioid, .. } => {
                self.request_reply(Event::Write { sid, dbr, value, ioid: Some(ioid) });
            }
            _ => self.request_reply(Event::Write { sid, dbr: DbrType(header.data_type), value, ioid: None }),
        }
    }
}

/// Checks whether a put may have its type. As in rsrv, WRITE also accepts types with metadata (7 to 34); WRITE_NOTIFY
/// does not.
fn check_write_type(request: &Header) -> Result<(), Eca> {
    let dbr = DbrType(request.data_type);
    let is_acknowledgement = dbr == DbrType::PUT_ACKT || dbr == DbrType::PUT_ACKS;
    match (dbr.kind(), dbr.level(), Request::from_header(request)) {
        (None, ..) => Err(Eca::BADTYPE),
        (_, Some(AttributeLevel::Plain), _) => Ok(()),
        (_, Some(_), Request::Write { .. }) => Ok(()),
        _ if is_acknowledgement => Ok(()),
        _ => Err(Eca::PUTFAIL),
    }
}
