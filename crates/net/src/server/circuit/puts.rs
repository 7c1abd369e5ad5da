//! Puts and calls of one client and their completion.

use fodo_data::{Now, Structure};
use fodo_engine::Sid;

use super::protocol::{ChannelPv, CircuitProtocol, PutFailure};
use super::{Circuit, ServedChannel};
use crate::limit;
use crate::log::{Level, Log};
use crate::server::panics::{catch_panic, log_panic};
use crate::server::{Call, Completion, Peer, PutRefusal};

/// A put that is being processed.
pub(crate) struct Put<P: CircuitProtocol> {
    pub(crate) sid: Sid,
    /// What its reply repeats.
    pub(crate) reply: P::PutReply,
    value_bytes: usize,
}

/// Why a put was refused regardless of its value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EarlyRefusal {
    NoAccess,
    NoRoom,
}

impl<P: CircuitProtocol> Circuit<P> {
    /// The processing of a put has ended.
    pub(in crate::server) fn put_done(&mut self, put: u64, result: &Result<(), PutRefusal>, now: Now) {
        if let Some(put) = self.puts.remove(&put) {
            let result = match result {
                Ok(()) => Ok(()),
                Err(refusal) => Err(self.refused(refusal, now)),
            };
            self.end_put(&put, result);
        }
    }

    fn end_put(&mut self, put: &Put<P>, result: Result<(), P::Status>) {
        self.puts_bytes -= put.value_bytes;
        self.protocol.put_ended(&put.reply);
        P::put_done(self, put, result);
    }

    /// Logs why a put failed; returns the status for its client.
    pub(crate) fn refused(&self, refusal: &PutRefusal, now: Now) -> P::Status {
        self.log.write(Level::Info, &format!("a put failed: {refusal}"), Some(self.peer.address), None, now);
        P::put_status(PutFailure::Refused(refusal))
    }

    /// Passes a put to its PV by calling `start`; returns the status of a failure. A panic of the PV fails only this put.
    #[inline]
    pub(crate) fn put(&self, start: impl FnOnce(&Peer) -> Result<(), PutRefusal>, now: Now) -> Result<(), P::Status> {
        match catch_panic(|| start(&self.peer)) {
            Ok(result) => result.map_err(|refusal| self.refused(&refusal, now)),
            Err(panic) => {
                log_panic(&self.log, "a put failed", &panic, self.peer.address, None, now);
                Err(P::put_status(PutFailure::Panicked))
            }
        }
    }

    /// Passes a put to its PV by calling `start`, and replies when its processing has ended. `value_bytes`: the memory of
    /// its value.
    #[inline]
    pub(crate) fn put_with_completion(
        &mut self,
        sid: Sid,
        value_bytes: usize,
        reply: P::PutReply,
        start: impl FnOnce(&P::Pv, &Peer, Completion) -> Result<(), PutRefusal>,
        now: Now,
    ) {
        let Some(Some(ServedChannel { pv, .. })) = self.channels.get(sid.0 as usize) else { return };
        if self.puts.len() >= limit::PUTS || !self.quota.may_queue() {
            self.quota.count_refused();
            let put = Put { sid, reply, value_bytes: 0 };
            return P::put_done(self, &put, Err(P::put_status(PutFailure::NoRoom)));
        }
        let completion = Completion::new(self.inbox.clone(), self.key);
        let put = completion.number();
        self.protocol.put_started(&reply, put);
        self.puts.insert(put, Put { sid, reply, value_bytes });
        self.puts_bytes += value_bytes;
        if let Err(status) = self.put(|peer| start(pv, peer, completion), now)
            && let Some(put) = self.puts.remove(&put)
        {
            self.end_put(&put, Err(status));
        }
    }

    /// Drops the puts of a channel, or all puts.
    pub(super) fn cancel_puts(&mut self, of: Option<Sid>) {
        let ended = self.puts.extract_if(|_, put| of.is_none_or(|sid| put.sid == sid));
        let mut ended: Vec<(u64, Put<P>)> = ended.collect();
        // In order, so that the source finds the one that waits first at once.
        ended.sort_unstable_by_key(|(number, _)| *number);
        for (number, put) in ended {
            self.drop_put(number, &put);
        }
    }

    /// Drops a put whose client does not wait for it any more.
    pub(crate) fn cancel_put(&mut self, number: u64) {
        if let Some(put) = self.puts.remove(&number) {
            self.drop_put(number, &put);
        }
    }

    fn drop_put(&mut self, number: u64, put: &Put<P>) {
        self.puts_bytes -= put.value_bytes;
        self.protocol.put_ended(&put.reply);
        if let Some(ServedChannel { pv, .. }) = self.channel(put.sid) {
            // The panic hook has reported a panic; the other puts must be cancelled nevertheless.
            let _ = catch_panic(|| pv.cancel_put(number));
        }
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// A call of a procedure by this client.
    pub(crate) fn new_call(&self, argument: Structure) -> Call {
        Call::new(argument, self.peer.clone(), self.inbox.clone(), self.key)
    }

    /// Logs a put that was refused regardless of its value.
    pub(crate) fn drained(&self, why: EarlyRefusal, now: Now) {
        let (level, what) = match why {
            EarlyRefusal::NoAccess => (Level::Debug, "a put is refused, because the client has no write access"),
            EarlyRefusal::NoRoom => {
                self.quota.count_refused();
                (Level::Warning, "a put is refused, because the clients of its host use too much memory")
            }
        };
        self.log.write(level, what, Some(self.peer.address), None, now);
    }
}
