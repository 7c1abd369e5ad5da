//! Calls of procedures.

use std::collections::HashMap;

use fodo_data::{Now, Structure, StructureBuilder};
use fodo_engine::Sid;
use fodo_pva::server::{NO_WRITE_ACCESS, RequestKey};
use fodo_pva::status::RequestStatus;

use super::pv::PvaPv;
use super::{PvAccess, server_channel};
use crate::limit;
use crate::log::Level;
use crate::server::Source;
use crate::server::circuit::Circuit;
use crate::server::panics::{catch_panic, log_panic};

/// The calls that have not ended.
#[derive(Default)]
pub(super) struct Calls {
    by_number: HashMap<u64, PendingCall>,
    numbers: HashMap<RequestKey, u64>,
    argument_bytes: usize,
}

struct PendingCall {
    /// `None` if the client does not wait any more. The call is nevertheless counted until the program ends it.
    request: Option<RequestKey>,
    argument_bytes: usize,
}

impl Calls {
    /// Memory of the calls and their arguments, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.by_number.len() * limit::PUT_BYTES + self.argument_bytes
    }

    fn add(&mut self, number: u64, request: RequestKey, argument_bytes: usize) {
        self.by_number.insert(number, PendingCall { request: Some(request), argument_bytes });
        self.numbers.insert(request, number);
        self.argument_bytes += argument_bytes;
    }

    /// The client does not wait any more.
    pub(super) fn cancel(&mut self, request: RequestKey) {
        if let Some(number) = self.numbers.remove(&request)
            && let Some(call) = self.by_number.get_mut(&number)
        {
            call.request = None;
        }
    }

    /// The program has ended a call. Returns its request if the client waits for the result.
    fn end(&mut self, number: u64) -> Option<RequestKey> {
        let PendingCall { request, argument_bytes } = self.by_number.remove(&number)?;
        self.argument_bytes -= argument_bytes;
        if let Some(request) = &request {
            self.numbers.remove(request);
        }
        request
    }
}

impl Circuit<PvAccess> {
    /// Passes a call to its PV, or answers it for the server.
    pub(super) fn call(
        &mut self,
        source: &dyn Source,
        sid: Sid,
        request: RequestKey,
        argument: Option<Structure>,
        now: Now,
    ) {
        let Some(channel) = self.channel(sid) else { return };
        let argument = argument.unwrap_or_else(|| Structure::new(StructureBuilder::new("").finish().into()));
        if matches!(channel.pv, PvaPv::Server) {
            let result = catch_panic(|| server_channel::answer(source, &argument));
            return self.finish_call(request, result.unwrap_or_else(|_| Err(PANICKED.into())).map(Some));
        }
        if !channel.allowed.write {
            return self.finish_call(request, Err(NO_WRITE_ACCESS.into()));
        }
        let PvaPv::Structured(pv) = &channel.pv else {
            return self.finish_call(request, Err("the PV is not a procedure".into()));
        };
        let pv = pv.clone();
        if self.protocol.calls.by_number.len() >= limit::CALLS || !self.may_queue() {
            self.count_refused();
            return self.finish_call(request, Err("too many calls of this client or its host are in progress".into()));
        }
        let argument_bytes = argument.n_bytes();
        let call = self.new_call(argument);
        self.protocol.calls.add(call.number(), request, argument_bytes);
        // A panic drops the call, which thereby ends.
        if let Err(panic) = catch_panic(|| pv.call(call)) {
            log_panic(self.log(), "a call failed", &panic, self.peer.address, None, now);
        }
    }

    /// The program has ended a call, perhaps without a result.
    pub(crate) fn call_done(&mut self, number: u64, result: Result<Option<Structure>, String>, now: Now) {
        if let Err(reason) = &result {
            self.log().write(Level::Info, &format!("a call failed: {reason}"), Some(self.peer.address), None, now);
        }
        if let Some(request) = self.protocol.calls.end(number) {
            self.finish_call(request, result);
        }
    }

    fn finish_call(&mut self, request: RequestKey, result: Result<Option<Structure>, String>) {
        match result {
            Ok(result) => self.machine.rpc_done(request, Ok(result.as_ref())),
            Err(reason) => self.machine.rpc_done(request, Err(&RequestStatus::error(reason))),
        }
    }
}

const PANICKED: &str = "the server failed to list its PVs";
