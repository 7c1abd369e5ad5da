//! Operations on structures: gets, puts, calls and processing, with the pvRequest of the caller.
//!
//! A channel keeps an open operation for each pvRequest, at most [`limit::STRUCTURED_OPERATIONS`] in total; the one that
//! was not used for the longest time is closed for another. Calls do not wait for each other: each uses an operation of
//! its own while there are fewer, and leaves it open for the next one.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use fodo_data::{Structure, StructureBuilder, StructureType};
use fodo_engine::{Ioid, Sid};
use fodo_pva::client::{Decoding, PreparedRequest, Received, RequestError, Task};
use fodo_pva::request::PvRequest;

use super::operations::{Caller, ClientOperation, HeldRequest, OperationRole, OperationTables};
use super::{PvaMachine, Replies, assigned, conversion};
use crate::client::{Failure, OperationOutcome, StructuredTask};
use crate::limit;

/// A pvRequest in the form in which it is sent, for all channels that use it.
#[derive(Debug)]
struct SharedRequest {
    request: PvRequest,
    prepared: PreparedRequest,
}

/// The pvRequest of the last task: the operations of a batch share one task, so it is prepared and compared once for all.
#[derive(Debug, Default)]
pub(super) struct LastRequest(Option<(Weak<StructuredTask>, Arc<SharedRequest>)>);

impl LastRequest {
    /// The pvRequest of a task.
    fn of(&mut self, task: &Arc<StructuredTask>, request: &PvRequest) -> &Arc<SharedRequest> {
        let shared = match self.0.take() {
            Some((last, shared)) if std::ptr::eq(last.as_ptr(), &**task) => return &self.0.insert((last, shared)).1,
            Some((_, shared)) if shared.request == *request => shared,
            _ => Arc::new(SharedRequest { request: request.clone(), prepared: PreparedRequest::new(request) }),
        };
        &self.0.insert((Arc::downgrade(task), shared)).1
    }
}

/// The operation that a task needs, and its pvRequest; `None` for a description, which needs no open operation.
fn needed(task: &StructuredTask) -> Option<(Task, &PvRequest)> {
    static ALL: PvRequest = PvRequest { groups: Vec::new(), options: Vec::new() };
    match task {
        StructuredTask::Describe(_) => None,
        StructuredTask::Get(request) => Some((Task::Get, request)),
        StructuredTask::Put(request, _) => Some((Task::Put, request)),
        StructuredTask::Call(_) => Some((Task::Rpc, &ALL)),
        StructuredTask::Process => Some((Task::Process, &ALL)),
    }
}

/// An open operation on structures.
#[derive(Debug)]
pub(super) struct StructuredOperation {
    task: Task,
    request: Arc<SharedRequest>,
    /// For a put: the type of what it writes, once the server has confirmed the operation.
    written: Option<Arc<StructureType>>,
    /// Puts that wait for this type.
    waiting: VecDeque<(Ioid, Arc<StructuredTask>)>,
}

impl StructuredOperation {
    /// Whether it executes this task with this pvRequest.
    fn is_of(&self, task: Task, request: &Arc<SharedRequest>) -> bool {
        self.task == task && (Arc::ptr_eq(&self.request, request) || self.request.request == request.request)
    }

    /// The callers of the puts that wait for the type.
    pub(super) fn into_waiting_callers(self) -> impl Iterator<Item = Ioid> {
        self.waiting.into_iter().map(|(caller, _)| caller)
    }

    /// The result of a request that has ended.
    fn outcome(&self, result: Result<Received, RequestError>) -> Result<OperationOutcome, Failure> {
        let received = result.map_err(conversion::failure)?;
        Ok(match (self.task, received) {
            (Task::Put | Task::Process, _) => OperationOutcome::Written,
            (_, Received::Structure(structure)) => OperationOutcome::Structure(structure),
            // A procedure that returns nothing.
            _ => OperationOutcome::Structure(Structure::new(Arc::new(StructureBuilder::new("").finish()))),
        })
    }
}

impl PvaMachine {
    /// Starts an operation on structures, after the puts without completion that are not sent.
    pub(super) fn request_structured(
        &mut self,
        sid: Sid,
        caller: Ioid,
        task: &Arc<StructuredTask>,
    ) -> Result<(), Failure> {
        if self.tables.has_puts_before(sid) {
            return self.tables.hold(sid, HeldRequest::Structured(caller, task.clone()));
        }
        self.start_structured(sid, caller, task)
    }

    pub(super) fn start_structured(
        &mut self,
        sid: Sid,
        caller: Ioid,
        task: &Arc<StructuredTask>,
    ) -> Result<(), Failure> {
        let ioid = match &**task {
            StructuredTask::Describe(path) => {
                // pvxs ignores the path of a field, and describes the whole type.
                let ioid = self.circuit.describe(sid, "").map_err(conversion::failure)?;
                self.tables.insert(ClientOperation::new(ioid, sid, OperationRole::DescribeTo(caller, path.clone())));
                return Ok(());
            }
            _ => self.structured_operation(sid, task)?,
        };
        match &**task {
            StructuredTask::Put(..) => match self.tables.structured_mut(ioid) {
                Some(StructuredOperation { written: Some(written), .. }) => {
                    let put = changed_fields(written, task)?;
                    self.circuit.put(ioid, put)
                }
                Some(StructuredOperation { waiting, .. }) if waiting.len() < limit::HELD_REQUESTS => {
                    waiting.push_back((caller, task.clone()));
                    return Ok(());
                }
                _ => Err(RequestError::QueueFull),
            },
            StructuredTask::Call(argument) => self.circuit.rpc(ioid, argument.clone()),
            StructuredTask::Process => self.circuit.process(ioid),
            StructuredTask::Get(_) | StructuredTask::Describe(_) => self.circuit.get(ioid),
        }
        .map_err(conversion::failure)?;
        if matches!(**task, StructuredTask::Call(_) | StructuredTask::Process) {
            self.tables.add_call(caller, ioid);
        }
        self.tables.add_caller(ioid, Caller { ioid: Some(caller), ..Caller::default() });
        Ok(())
    }

    /// The open operation of a channel for this task; opens it if there is none.
    fn structured_operation(&mut self, sid: Sid, task: &Arc<StructuredTask>) -> Result<Ioid, Failure> {
        let Some((of, request)) = needed(task) else { return Err(Failure::Disconnected) };
        let request = self.last_request.of(task, request);
        let is_call = of == Task::Rpc;
        let is_free =
            |operation: &StructuredOperation, is_idle: bool| operation.is_of(of, request) && (is_idle || !is_call);
        match self.tables.find_structured(sid, is_free) {
            Some(ioid) => Ok(ioid),
            None => {
                let request = request.clone();
                self.open_structured(sid, of, request)
            }
        }
    }

    #[inline(never)]
    fn open_structured(&mut self, sid: Sid, task: Task, request: Arc<SharedRequest>) -> Result<Ioid, Failure> {
        if self.tables.n_structured(sid) >= limit::STRUCTURED_OPERATIONS {
            match self.tables.find_structured(sid, |_, is_idle| is_idle) {
                Some(unused) => {
                    self.tables.remove(unused);
                    self.circuit.destroy(unused);
                }
                // Calls then wait for each other.
                None => {
                    let is_it = |operation: &StructuredOperation, _: bool| operation.is_of(task, &request);
                    return self.tables.find_structured(sid, is_it).ok_or_else(too_many);
                }
            }
        }
        let opened = self.circuit.open(sid, task, Decoding::Structured, &request.prepared);
        let ioid = opened.map_err(conversion::failure)?;
        let operation = StructuredOperation { task, request, written: None, waiting: VecDeque::new() };
        self.tables.insert(ClientOperation::new(ioid, sid, OperationRole::Structured(Box::new(operation))));
        Ok(ioid)
    }

    /// Sends the first of the puts that have waited for the type of what they write; the others follow.
    pub(super) fn put_waiting(&mut self, ioid: Ioid, replies: &mut impl Replies) {
        let Some(StructuredOperation { waiting, written: Some(written), .. }) = self.tables.structured_mut(ioid) else {
            return;
        };
        let written = written.clone();
        for (caller, task) in std::mem::take(waiting) {
            let put = changed_fields(&written, &task);
            match put.and_then(|put| self.circuit.put(ioid, put).map_err(conversion::failure)) {
                Ok(()) => self.tables.add_caller(ioid, Caller { ioid: Some(caller), ..Caller::default() }),
                Err(failure) => replies.ended(caller, Err(failure)),
            }
        }
    }

    /// A caller has given up. A call or processing that no other caller waits behind is interrupted: some servers never
    /// reply. The other requests keep their place in the queue.
    pub(crate) fn forget(&mut self, caller: Ioid) {
        let Some(ioid) = self.tables.end_call(caller) else { return };
        if self.tables.get_mut(ioid).is_some_and(|operation| operation.n_callers() == 1) {
            self.tables.remove(ioid);
            self.circuit.destroy(ioid);
        }
    }
}

#[cold]
fn too_many() -> Failure {
    let most = limit::STRUCTURED_OPERATIONS;
    Failure::misuse(
        format!("{most} requests with different pvRequests are in progress, which is the maximum"),
        "wait until one of them has ended",
    )
}

/// The type of the field at a path; the empty path is the whole type.
pub(super) fn field_type(kind: Arc<StructureType>, path: &str) -> Result<Arc<StructureType>, Failure> {
    match kind.node(path) {
        Some(0) => Ok(kind),
        Some(bit) => Ok(Arc::new(kind.subtree(bit))),
        None => Err(no_such_field(path)),
    }
}

#[cold]
fn no_such_field(path: &str) -> Failure {
    Failure::misuse(format!("the PV has no field \"{path}\""), "describe the PV to see its fields")
}

/// The structure that a put sends: only the fields that the caller sets are marked.
fn changed_fields(kind: &Arc<StructureType>, task: &StructuredTask) -> Result<Structure, Failure> {
    match task {
        StructuredTask::Put(_, fields) => {
            let failed =
                |reason: String| Failure::misuse(reason, "set fields that the PV has, to values of their types");
            assigned::structure(kind, fields).map_err(failed)
        }
        _ => Ok(Structure::new(kind.clone())),
    }
}

/// Operations on structures of a channel.
impl OperationTables {
    pub(super) fn n_structured(&self, sid: Sid) -> usize {
        self.structured_of(sid).len()
    }

    /// The operation for which `is_it`, the one that was not used for the longest time first; from now on it is the one
    /// used last.
    fn find_structured(&mut self, sid: Sid, is_it: impl Fn(&StructuredOperation, bool) -> bool) -> Option<Ioid> {
        let of_channel = self.structured_of(sid);
        let position = of_channel.iter().position(|ioid| match self.get(*ioid) {
            Some(operation @ ClientOperation { role: OperationRole::Structured(structured), .. }) => {
                is_it(structured, operation.n_callers() == 0 && structured.waiting.is_empty())
            }
            _ => false,
        })?;
        // Usually there is one.
        if position + 1 == of_channel.len() {
            return of_channel.last().copied();
        }
        self.use_structured(sid, position)
    }

    pub(super) fn structured_mut(&mut self, ioid: Ioid) -> Option<&mut StructuredOperation> {
        match &mut self.get_mut(ioid)?.role {
            OperationRole::Structured(structured) => Some(structured),
            _ => None,
        }
    }

    /// The server has confirmed an operation, with the type of what it writes or reads. Puts that waited for it follow.
    pub(super) fn structured_opened(&mut self, ioid: Ioid, kind: Option<Arc<StructureType>>) {
        let Some(structured) = self.structured_mut(ioid) else { return };
        structured.written = kind;
        if !structured.waiting.is_empty() {
            self.has_follow_up = true;
            self.opened_puts.push(ioid);
        }
    }

    /// A request of an operation on structures has ended: returns its caller and its result.
    pub(super) fn structured_done(
        &mut self,
        ioid: Ioid,
        result: Result<Received, RequestError>,
    ) -> Option<(Ioid, Result<OperationOutcome, Failure>)> {
        let operation = self.get_mut(ioid)?;
        let OperationRole::Structured(structured) = &operation.role else { return None };
        let is_interruptible = matches!(structured.task, Task::Rpc | Task::Process);
        let outcome = structured.outcome(result);
        let caller = operation.take_first()?.ioid?;
        if is_interruptible {
            self.end_call(caller);
        }
        Some((caller, outcome))
    }
}
