//! Puts of one client, and their ends.

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_ca::{Ioid, Sid};
use fodo_data::{Now, Scalar, Severity, Value};

use super::{Channel, Circuit};
use crate::limit;
use crate::log::Level;
use crate::server::{Completion, PutRefusal, Pv};

/// A put whose processing goes on.
pub(super) struct Put {
    pub(super) sid: Sid,
    dbr: DbrType,
    count: u32,
    ioid: Option<Ioid>,
}

impl Circuit {
    /// The processing of a put has ended.
    pub(in super::super) fn put_done(&mut self, put: u64) {
        if let Some(Put { sid, dbr, count, ioid }) = self.puts.remove(&put) {
            self.machine.write_done(sid, dbr, count, ioid, Ok(()));
        }
    }

    pub(super) fn write(&mut self, sid: Sid, dbr: DbrType, value: Value, ioid: Option<Ioid>, now: Now) {
        let Some(Channel { pv, allowed }) = self.channel(sid) else { return };
        let (pv, count) = (pv.clone(), value.len() as u32);
        if !allowed.write {
            self.log.tell(
                Level::Debug,
                "a put is refused, since its client may not write",
                Some(self.peer.address),
                None,
                now,
            );
            return self.machine.write_done(sid, dbr, count, ioid, Err(Eca::NOWTACCESS));
        }
        if dbr == DbrType::PUT_ACKT || dbr == DbrType::PUT_ACKS {
            let result = acknowledge(&*pv, dbr, &value);
            return self.machine.write_done(sid, dbr, count, ioid, result);
        }
        if ioid.is_some() && self.puts.len() >= limit::PUTS {
            return self.machine.write_done(sid, dbr, count, ioid, Err(Eca::ALLOCMEM));
        }
        let put = self.put_next;
        let completion = ioid.map(|ioid| {
            self.puts.insert(put, Put { sid, dbr, count, ioid: Some(ioid) });
            self.put_next += 1;
            Completion::new(self.inbox.clone(), self.key, put)
        });
        if let Err(refusal) = pv.put(value, &self.peer, completion) {
            self.puts.remove(&put);
            let status = match refusal {
                PutRefusal::ReadOnly => Eca::NOWTACCESS,
                PutRefusal::Rejected(_) => Eca::PUTFAIL,
            };
            self.machine.write_done(sid, dbr, count, ioid, Err(status));
        }
    }
}

fn acknowledge(pv: &dyn Pv, dbr: DbrType, value: &Value) -> Result<(), Eca> {
    let Some(Scalar::U16(word) | Scalar::Enum(word)) = value.first() else {
        return Err(Eca::PUTFAIL);
    };
    let result = match dbr == DbrType::PUT_ACKT {
        true => pv.acknowledge(Some(word != 0), None),
        false => pv.acknowledge(None, Some(Severity::from_code(word))),
    };
    result.map_err(|_| Eca::PUTFAIL)
}
