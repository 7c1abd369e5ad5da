//! Puts of one client and their completion.

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_ca::server::{DroppedPut, Event};
use fodo_data::{Now, Scalar, Severity, Value};
use fodo_engine::{Ioid, Sid};

use super::{Circuit, ServedChannel};
use crate::limit;
use crate::log::Level;
use crate::server::panics::{catch_panic, log_panic};
use crate::server::{Completion, PutRefusal, Pv};

/// A put that is being processed.
pub(super) struct Put {
    pub(super) sid: Sid,
    dbr: DbrType,
    count: u32,
    ioid: Ioid,
    pub(super) value_bytes: usize,
}

impl Circuit {
    /// The processing of a put has ended.
    pub(in super::super) fn put_done(&mut self, put: u64, result: &Result<(), PutRefusal>, now: Now) {
        if let Some(put) = self.puts.remove(&put) {
            let result = result.as_ref().map_err(|refusal| self.refused(refusal, now));
            self.end_put(&put, result.copied());
        }
    }

    fn end_put(&mut self, &Put { sid, dbr, count, ioid, value_bytes }: &Put, result: Result<(), Eca>) {
        self.puts_bytes -= value_bytes;
        self.machine.write_done(sid, dbr, count, Some(ioid), result);
    }

    /// Logs why a put failed; returns the status for its client.
    fn refused(&self, refusal: &PutRefusal, now: Now) -> Eca {
        self.log.write(Level::Info, &format!("a put failed: {refusal}"), Some(self.peer.address), None, now);
        status(refusal)
    }

    /// Passes a put to its PV; returns the status of a failure. A panic of the PV fails only this put.
    fn put(&self, pv: &dyn Pv, value: Value, completion: Option<Completion>, now: Now) -> Result<(), Eca> {
        match catch_panic(|| pv.put(value, &self.peer, completion)) {
            Ok(result) => result.map_err(|refusal| self.refused(&refusal, now)),
            Err(panic) => {
                log_panic(&self.log, "a put failed", &panic, self.peer.address, None, now);
                Err(Eca::PUTFAIL)
            }
        }
    }

    pub(super) fn write(&mut self, sid: Sid, dbr: DbrType, value: Value, ioid: Option<Ioid>, now: Now) {
        let Some(Some(ServedChannel { pv, allowed })) = self.channels.get(sid.0 as usize) else { return };
        let count = value.len() as u32;
        if !allowed.write {
            self.drained(DroppedPut::NoAccess, now);
            return self.machine.write_done(sid, dbr, count, ioid, Err(Eca::NOWTACCESS));
        }
        if dbr == DbrType::PUT_ACKT || dbr == DbrType::PUT_ACKS {
            let result = acknowledge(&**pv, dbr, &value);
            return self.machine.write_done(sid, dbr, count, ioid, result);
        }
        let Some(ioid) = ioid else {
            if let Err(status) = self.put(&**pv, value, None, now) {
                self.machine.write_done(sid, dbr, count, None, Err(status));
            }
            return;
        };
        if self.puts.len() >= limit::PUTS || !self.quota.may_queue() {
            self.quota.count_refused();
            return self.machine.write_done(sid, dbr, count, Some(ioid), Err(Eca::ALLOCMEM));
        }
        let completion = Completion::new(self.inbox.clone(), self.key);
        let (put, value_bytes) = (completion.number(), value.n_bytes());
        self.puts.insert(put, Put { sid, dbr, count, ioid, value_bytes });
        self.puts_bytes += value_bytes;
        if let Err(status) = self.put(&**pv, value, Some(completion), now)
            && let Some(put) = self.puts.remove(&put)
        {
            self.end_put(&put, Err(status));
        }
    }

    /// Drops the puts of a channel, or all puts.
    pub(super) fn cancel_puts(&mut self, of: Option<Sid>) {
        let ended = self.puts.extract_if(|_, put| of.is_none_or(|sid| put.sid == sid));
        let mut ended: Vec<(u64, Put)> = ended.collect();
        // In order, so that the source finds the one that waits first at once.
        ended.sort_unstable_by_key(|(number, _)| *number);
        for (number, put) in ended {
            self.puts_bytes -= put.value_bytes;
            if let Some(ServedChannel { pv, .. }) = self.channel(put.sid) {
                // The panic hook has reported a panic; the other puts must be cancelled nevertheless.
                let _ = catch_panic(|| pv.cancel_put(number));
            }
        }
    }

    /// Logs a put that was refused regardless of its value.
    pub(super) fn drained(&self, why: DroppedPut, now: Now) {
        let (level, what) = match why {
            DroppedPut::NoAccess => (Level::Debug, "a put is refused, because the client has no write access"),
            DroppedPut::NoRoom => {
                self.quota.count_refused();
                (Level::Warning, "a put is refused, because the clients of its host use too much memory")
            }
        };
        self.log.write(level, what, Some(self.peer.address), None, now);
    }
}

/// Memory of the value in a queued request.
pub(super) fn value_bytes(event: &Event) -> usize {
    match event {
        Event::Write { value, .. } => value.n_bytes(),
        _ => 0,
    }
}

/// The status that is sent to the client of a refused put.
fn status(refusal: &PutRefusal) -> Eca {
    match refusal {
        PutRefusal::ReadOnly => Eca::NOWTACCESS,
        PutRefusal::Rejected(_) | PutRefusal::ProcessingFailed(_) => Eca::PUTFAIL,
    }
}

fn acknowledge(pv: &dyn Pv, dbr: DbrType, value: &Value) -> Result<(), Eca> {
    let Some(Scalar::U16(word) | Scalar::Enum(word)) = value.first() else {
        return Err(Eca::PUTFAIL);
    };
    let Some(pv) = pv.channel_access() else { return Err(Eca::NOWTACCESS) };
    let result = match dbr == DbrType::PUT_ACKT {
        true => pv.acknowledge(Some(word != 0), None),
        false => pv.acknowledge(None, Some(Severity::from_code(word))),
    };
    result.map_err(|refusal| status(&refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_put_says_whether_the_pv_or_the_value_was_refused() {
        assert_eq!(status(&PutRefusal::ReadOnly), Eca::NOWTACCESS);
        assert_eq!(status(&PutRefusal::Rejected("too high".into())), Eca::PUTFAIL);
        assert_eq!(status(&PutRefusal::ProcessingFailed("no device".into())), Eca::PUTFAIL);
    }
}
