//! Calls of procedures.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fodo_data::{Structure, Value};

use super::Peer;
use super::reactor::{CircuitKey, Inbox, ReactorMessage};

/// A call of a procedure by a client of pvAccess. The program ends it now or later, on any thread.
///
/// Dropping it without [`Call::complete`] or [`Call::refuse`], for example by a panic, refuses the call.
///
/// ```
/// use std::sync::{Arc, mpsc};
///
/// use fodo_net::{Call, Kind, SharedStructure, Structure, StructureBuilder};
///
/// let mut build = StructureBuilder::new("epics:nt/NTScalar:1.0");
/// let mut result = Structure::new(Arc::new(build.scalar("value", Kind::F64).finish()));
/// let (sender, calls) = mpsc::channel::<Call>();
/// let slow = SharedStructure::procedure_deferred(move |call| drop(sender.send(call)));
/// std::thread::spawn(move || {
///     for call in calls {
///         match call.get("count").map(|count| count.to_f64()) {
///             Some(Ok(count)) if result.set("value", 2.0 * count).is_ok() => call.complete(result.clone()),
///             _ => call.refuse("the argument count is missing"),
///         }
///     }
/// });
/// # drop(slow);
/// ```
#[derive(Debug)]
pub struct Call {
    /// The argument; an empty structure if the client sent none.
    pub argument: Structure,
    /// The client.
    pub by: Peer,
    ending: CallEnding,
}

/// Reports the end of a call to its circuit.
struct CallEnding {
    inbox: Arc<Inbox>,
    circuit: CircuitKey,
    number: u64,
    /// What the program has reported.
    result: Option<Result<Option<Box<Structure>>, String>>,
}

impl Call {
    pub(crate) fn new(argument: Structure, by: Peer, inbox: Arc<Inbox>, circuit: CircuitKey) -> Call {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Call { argument, by, ending: CallEnding { inbox, circuit, number, result: None } }
    }

    pub(crate) fn number(&self) -> u64 {
        self.ending.number
    }

    /// The named part of the argument: of the query if it is an NTURI, as most programs send, or else of the argument
    /// itself. `None` if it does not exist or is not a value.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let argument = &self.argument;
        match argument.kind().node("query") {
            Some(_) => argument.get(&format!("query.{name}")),
            None => argument.get(name),
        }
    }

    /// Ends the call with its result.
    pub fn complete(mut self, result: Structure) {
        self.ending.result = Some(Ok(Some(Box::new(result))));
    }

    /// Ends the call, which has no result.
    ///
    /// ```
    /// # use fodo_net::SharedStructure;
    /// let home = SharedStructure::procedure_deferred(|call| call.complete_without_result());
    /// # drop(home);
    /// ```
    pub fn complete_without_result(mut self) {
        self.ending.result = Some(Ok(None));
    }

    /// Ends the call with an error. `reason`: the text for the client.
    pub fn refuse(mut self, reason: impl Into<String>) {
        self.ending.result = Some(Err(reason.into()));
    }
}

impl Drop for CallEnding {
    fn drop(&mut self) {
        let dropped = || Err("the server dropped the call without a result".into());
        let result = self.result.take().unwrap_or_else(dropped);
        self.inbox.push(ReactorMessage::CallDone { circuit: self.circuit, call: self.number, result });
    }
}

impl fmt::Debug for CallEnding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallEnding").field("number", &self.number).finish_non_exhaustive()
    }
}
