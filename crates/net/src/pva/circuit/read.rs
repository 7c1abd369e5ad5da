//! Gets.

use std::sync::Arc;

use fodo_data::{Meta, Reading};
use fodo_engine::Sid;
use fodo_pva::server::{AtomicOption, Contents, RequestKey};
use fodo_pva::status::RequestStatus;

use super::PvAccess;
use super::pv::PvaPv;
use crate::server::circuit::Circuit;
use crate::server::{Pv, PvAccessPv};

impl Circuit<PvAccess> {
    /// Replies to a get, or to a put that also reads, with the current value.
    pub(super) fn read(&mut self, sid: Sid, request: RequestKey, needs_meta: bool, atomic: AtomicOption) {
        let Some(channel) = self.channel(sid) else { return };
        if !channel.allowed.read {
            return self.machine.read_done(request, Err(&RequestStatus::error(NO_READ_ACCESS)));
        }
        match &channel.pv {
            PvaPv::Flat { pv, .. } => {
                let reading = current(&**pv, needs_meta);
                self.machine.read_done(request, Ok(Contents::Reading(&reading)));
            }
            PvaPv::Structured(pv) => {
                let value = pv.read_with(atomic);
                self.machine.read_done(request, Ok(Contents::Structure(&value)));
            }
            // It may not be read.
            PvaPv::Server => {}
        }
    }
}

/// The current reading, with metadata if the client requested some.
fn current(pv: &dyn Pv, needs_meta: bool) -> Reading {
    with_meta(pv, pv.read(), needs_meta)
}

/// Adds the metadata of a PV to its reading if the client requested some.
pub(super) fn with_meta(pv: &dyn Pv, mut reading: Reading, needs_meta: bool) -> Reading {
    if needs_meta && reading.meta.is_none() {
        reading.meta = Some(meta_of(pv));
    }
    reading
}

/// The metadata of a PV, with the parts that only pvAccess has.
pub(super) fn meta_of(pv: &dyn Pv) -> Arc<Meta> {
    pv.pv_access().map_or_else(|| pv.meta(), PvAccessPv::meta)
}

pub(super) const NO_READ_ACCESS: &str = "the client has no read access to the PV";
