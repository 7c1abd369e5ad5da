//! Puts.

use fodo_data::{Now, Structure, Value};
use fodo_engine::Sid;
use fodo_pva::server::{AtomicOption, NO_WRITE_ACCESS, ProcessOption, PutOptions, PutValue, RequestKey, WriteReply};
use fodo_pva::status::RequestStatus;

use super::PvAccess;
use super::pv::PvaPv;
use super::read::NO_READ_ACCESS;
use crate::server::circuit::{ChannelPv, Circuit, EarlyRefusal, PutFailure};
use crate::server::{Completion, Peer, PutRefusal};

/// How to reply to a put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutReply {
    pub(super) request: RequestKey,
    pub(super) reply: WriteReply,
}

/// What a client requests of a PV.
enum PvPut {
    /// Of a flat PV.
    Value { value: Value, options: PutOptions },
    /// Of a structured PV, whose type has the value.
    Structure { value: Structure, options: PutOptions },
    /// Only processing.
    Process,
}

impl PvPut {
    fn start(self, pv: &PvaPv, by: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
        match (pv, self) {
            (PvaPv::Flat { pv, .. }, PvPut::Value { value, options }) => match pv.pv_access() {
                Some(own) => own.put(value, options.process, by, completion),
                None if options.process == ProcessOption::Passive => pv.put_with(value, options, by, completion),
                None => Err(PutRefusal::Rejected(NO_RECORD.into())),
            },
            (PvaPv::Flat { pv, .. }, PvPut::Process) => match pv.pv_access() {
                Some(own) => own.process(by, completion),
                None => Err(PutRefusal::Rejected(NO_RECORD.into())),
            },
            (PvaPv::Structured(pv), PvPut::Structure { value, options }) => pv.put_with(value, options, by, completion),
            // The machine decodes a value according to the type of its channel, and only records are processed.
            _ => Err(PutRefusal::Rejected(NO_RECORD.into())),
        }
    }
}

impl Circuit<PvAccess> {
    /// Passes a put to its PV. Like QSRV2, replies as soon as a flat PV has accepted the value, unless the client
    /// requested to wait for the end of the processing, or the PV always waits (`Pv::always_ends_puts`); like pvxs, waits
    /// for the end of a put to a structured PV.
    pub(super) fn write(&mut self, sid: Sid, value: PutValue, options: PutOptions, reply: PutReply, now: Now) {
        let Some(channel) = self.channel(sid) else { return };
        if !channel.allowed.write {
            self.drained(EarlyRefusal::NoAccess, now);
            return self.finish_put(sid, reply, Err(RequestStatus::error(NO_WRITE_ACCESS)));
        }
        // Checked first, because a put that has changed something must not be reported as refused.
        if matches!(reply.reply, WriteReply::Value { .. }) && !channel.allowed.read {
            return self.finish_put(sid, reply, Err(RequestStatus::error(NO_READ_ACCESS)));
        }
        if channel.pv.is_read_only() {
            let status = self.refused(&PutRefusal::ReadOnly, now);
            return self.finish_put(sid, reply, Err(status));
        }
        let is_flat = matches!(channel.pv, PvaPv::Flat { .. });
        if options.process != ProcessOption::Passive && is_flat && !has_record(&channel.pv) {
            return self.finish_put(sid, reply, Err(RequestStatus::error(NO_RECORD)));
        }
        let value_bytes = value.n_bytes();
        let must_wait = options.is_blocking || always_ends_puts(&channel.pv);
        let (put, waits) = match value {
            PutValue::Flat(Some(value)) => (PvPut::Value { value, options }, must_wait),
            PutValue::Flat(None) if options.process == ProcessOption::Always => (PvPut::Process, options.is_blocking),
            PutValue::Flat(None) => return self.finish_put(sid, reply, Ok(())),
            PutValue::Structured(value) => (PvPut::Structure { value, options }, true),
        };
        if waits {
            let start = |pv: &PvaPv, peer: &Peer, completion| put.start(pv, peer, Some(completion));
            return self.put_with_completion(sid, value_bytes, reply, start, now);
        }
        let result = self.put(|peer| put.start(&channel.pv, peer, None), now);
        self.finish_put(sid, reply, result);
    }

    /// Processes the record of a PV, and replies at its end.
    pub(super) fn process(&mut self, sid: Sid, request: RequestKey, now: Now) {
        let Some(channel) = self.channel(sid) else { return };
        let reply = PutReply { request, reply: WriteReply::Status };
        if !channel.allowed.write {
            self.drained(EarlyRefusal::NoAccess, now);
            return self.finish_put(sid, reply, Err(RequestStatus::error(NO_WRITE_ACCESS)));
        }
        if !has_record(&channel.pv) {
            return self.finish_put(sid, reply, Err(RequestStatus::error(NO_RECORD)));
        }
        let start = |pv: &PvaPv, peer: &Peer, completion| PvPut::Process.start(pv, peer, Some(completion));
        self.put_with_completion(sid, 0, reply, start, now);
    }

    /// Replies to a put.
    pub(super) fn finish_put(&mut self, sid: Sid, put: PutReply, result: Result<(), RequestStatus>) {
        match (result, put.reply) {
            (Ok(()), WriteReply::Value { needs_meta }) => {
                self.read(sid, put.request, needs_meta, AtomicOption::Unset);
            }
            (Ok(()), WriteReply::Status) => self.machine.write_done(put.request, Ok(())),
            (Err(status), WriteReply::Value { .. }) => self.machine.read_done(put.request, Err(&status)),
            (Err(status), WriteReply::Status) => self.machine.write_done(put.request, Err(&status)),
        }
    }
}

/// Whether processing is an operation of the PV.
fn has_record(pv: &PvaPv) -> bool {
    matches!(pv, PvaPv::Flat { pv, .. } if pv.pv_access().is_some())
}

fn always_ends_puts(pv: &PvaPv) -> bool {
    matches!(pv, PvaPv::Flat { pv, .. } if pv.always_ends_puts())
}

const NO_RECORD: &str = "the PV has no record that can be processed";

/// The status that is sent to the client of a put that fails.
pub(super) fn status(failure: PutFailure<'_>) -> RequestStatus {
    match failure {
        PutFailure::Refused(refusal) => RequestStatus::error(refusal.to_string()),
        PutFailure::Panicked => RequestStatus::error("the server failed to put the value"),
        PutFailure::NoRoom => RequestStatus::error("too many puts of this client or its host are in progress"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_put_contains_the_reason_of_the_pv() {
        let text = |refusal: PutRefusal| status(PutFailure::Refused(&refusal)).message.to_str().into_owned();

        assert_eq!(text(PutRefusal::ReadOnly), "the PV is read-only");
        assert_eq!(text(PutRefusal::Rejected("too high".into())), "the value is rejected: too high");
    }
}
