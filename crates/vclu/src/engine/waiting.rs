//! Calls that wait, and how they continue.

use std::mem;
use std::time::Instant;

use mlua::Thread;

use super::convert::to_lua;
use super::request::ReplyTo;
use super::{CallOwner, LuaEngine};
use crate::limit::{RESULT_WAIT_MAX, TURN_TIME_MAX};
use crate::object::ObjectError;
use crate::object::world::Ticket;
use crate::value::LuaValue;

/// A call in `SYSTEM.Wait` or `SYSTEM.Loop`, or in a method that ends later.
pub(super) struct WaitingCall {
    /// When it continues at the latest.
    pub(super) due: Instant,
    /// The result with which it continues; `None` if it waits only for the time.
    pub(super) ticket: Option<Ticket>,
    pub(super) continuation: Continuation,
}

/// What continues after a wait.
pub(super) enum Continuation {
    /// A coroutine.
    Script(Thread, CallOwner),
    /// [`VcluRequest::Call`].
    Call(ReplyTo<Result<LuaValue, ObjectError>>),
}

impl LuaEngine {
    /// Calls a method for the program.
    pub(super) fn call(
        &mut self,
        object: String,
        method: u16,
        arguments: Vec<LuaValue>,
        reply: ReplyTo<Result<LuaValue, ObjectError>>,
    ) {
        self.begin_call();
        let result = self.sandbox.world().call(&object, method, arguments, &self.sandbox.globals());
        self.note_refused(&object, result.as_ref().err());
        let ticket = self.sandbox.world().awaited.take();
        match ticket {
            Some(ticket) => {
                let due = self.now().monotonic + RESULT_WAIT_MAX;
                self.waiting.push(WaitingCall { due, ticket: Some(ticket), continuation: Continuation::Call(reply) });
            }
            None => reply.send(result),
        }
    }

    /// Continues the calls whose wait has ended: those whose time is over, the earliest first, and then those whose result
    /// is there, in the order of the calls.
    pub(super) fn resume_waiting(&mut self) {
        let now = self.now().monotonic;
        let results = mem::take(&mut self.sandbox.world().results);
        let has_ended = |call: &mut WaitingCall| match call.ticket {
            Some(ticket) => call.due <= now || results.contains_key(&ticket),
            None => call.due <= now,
        };
        let mut ended: Vec<WaitingCall> = self.waiting.extract_if(.., has_ended).collect();
        ended.sort_by_key(|call| (call.ticket, call.due));
        let end = now + TURN_TIME_MAX;
        for call in ended {
            let result = call.ticket.map(|ticket| results.get(&ticket).cloned());
            if self.now().monotonic < end {
                self.continue_call(call.continuation, result);
                self.refresh();
                continue;
            }
            // In the next turn.
            if let (Some(ticket), Some(Some(result))) = (call.ticket, result) {
                self.sandbox.world().results.insert(ticket, result);
            }
            self.waiting.push(call);
        }
    }

    /// `result`: what the call waited for; `Some(None)` if there is none in time.
    fn continue_call(&mut self, continuation: Continuation, result: Option<Option<LuaValue>>) {
        self.has_changed |= !matches!(continuation, Continuation::Script(_, CallOwner::Main));
        self.begin_call();
        if let Some(None) = result {
            self.sandbox.world().refuse("a method has not ended in time");
        }
        let value = result.flatten().unwrap_or_default();
        match continuation {
            Continuation::Call(reply) => reply.send(Ok(value)),
            Continuation::Script(thread, owner) => match to_lua(&value, &self.sandbox.lua) {
                Ok(value) => self.resume(thread, value, owner),
                Err(error) => self.finish(owner, Err(error)),
            },
        }
    }
}
