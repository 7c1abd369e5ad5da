//! Puts of one client.

use std::sync::Arc;

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_ca::server;
use fodo_data::{AcknowledgePut, Now, Scalar, Severity, Value};
use fodo_engine::{Ioid, Sid};

use super::{ChannelAccess, PutHeader};
use crate::server::circuit::{Circuit, EarlyRefusal, PutFailure};
use crate::server::{Peer, PutRefusal, Pv};

impl Circuit<ChannelAccess> {
    pub(super) fn write(&mut self, sid: Sid, dbr: DbrType, value: Value, ioid: Option<Ioid>, now: Now) {
        let Some(channel) = self.channel(sid) else { return };
        let count = value.len() as u32;
        if !channel.allowed.write {
            self.drained(EarlyRefusal::NoAccess, now);
            return self.machine.write_done(sid, dbr, count, ioid, Err(Eca::NOWTACCESS));
        }
        if dbr == DbrType::PUT_ACKT || dbr == DbrType::PUT_ACKS {
            let result = acknowledge(&*channel.pv, dbr, &value);
            return self.machine.write_done(sid, dbr, count, ioid, result);
        }
        let Some(ioid) = ioid else {
            if let Err(status) = self.put(|peer| channel.pv.put(value, peer, None), now) {
                self.machine.write_done(sid, dbr, count, None, Err(status));
            }
            return;
        };
        let (value_bytes, header) = (value.n_bytes(), PutHeader { dbr, count, ioid });
        let start = |pv: &Arc<dyn Pv>, peer: &Peer, completion| pv.put(value, peer, Some(completion));
        self.put_with_completion(sid, value_bytes, header, start, now);
    }
}

impl From<server::DroppedPut> for EarlyRefusal {
    fn from(why: server::DroppedPut) -> EarlyRefusal {
        match why {
            server::DroppedPut::NoAccess => EarlyRefusal::NoAccess,
            server::DroppedPut::NoRoom => EarlyRefusal::NoRoom,
        }
    }
}

/// The status that is sent to the client of a put that fails.
pub(super) fn status(failure: PutFailure<'_>) -> Eca {
    match failure {
        PutFailure::Refused(PutRefusal::ReadOnly) => Eca::NOWTACCESS,
        PutFailure::Refused(PutRefusal::Rejected(_) | PutRefusal::ProcessingFailed(_)) | PutFailure::Panicked => {
            Eca::PUTFAIL
        }
        PutFailure::NoRoom => Eca::ALLOCMEM,
    }
}

fn acknowledge(pv: &dyn Pv, dbr: DbrType, value: &Value) -> Result<(), Eca> {
    let Some(Scalar::U16(word) | Scalar::Enum(word)) = value.first() else {
        return Err(Eca::PUTFAIL);
    };
    let Some(pv) = pv.channel_access() else { return Err(Eca::NOWTACCESS) };
    let put = match dbr == DbrType::PUT_ACKT {
        true => AcknowledgePut::Transient { is_required: word != 0 },
        false => AcknowledgePut::Severity(Severity::from_code(word)),
    };
    pv.acknowledge(put).map_err(|refusal| status(PutFailure::Refused(&refusal)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_put_says_whether_the_pv_or_the_value_was_refused() {
        let status = |refusal| status(PutFailure::Refused(&refusal));
        assert_eq!(status(PutRefusal::ReadOnly), Eca::NOWTACCESS);
        assert_eq!(status(PutRefusal::Rejected("too high".into())), Eca::PUTFAIL);
        assert_eq!(status(PutRefusal::ProcessingFailed("no device".into())), Eca::PUTFAIL);
    }
}
