//! The open operations of a circuit, and the callers that wait for their replies.

use std::collections::VecDeque;
use std::sync::Arc;

use fodo_data::{ArraySize, Kind, NodeKind, NormativeLayout, Role, Scalar, StructureType, Text, Value};
use fodo_engine::{Cid, Ioid, NumberMap, PeerNumberHashMap, Sid, SubscriptionId};

use super::conversion::ReplyConversion;
use super::requests::{N_USES, OperationUse};
use super::structured::StructuredOperation;
use crate::client::{Failure, Refusal, RowTarget, ServerChannel, StructuredTask, WrongReply};
use crate::limit;

/// No operation: the machine does not use this number.
pub(super) const NONE: Ioid = Ioid(0);

/// A caller of an open operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Caller {
    /// The caller's number; `None` for a put without completion.
    pub(super) ioid: Option<Ioid>,
    /// For a get: how its value is converted.
    pub(super) conversion: ReplyConversion,
    /// A put of the name of a state is sent only after the names were read.
    pub(super) is_state_name: bool,
    /// What it adds to the queued bytes while it is not sent.
    pub(super) bytes: usize,
}

/// What an open operation is used for.
#[derive(Debug)]
pub(super) enum OperationRole {
    /// The description of the channel's type.
    Describe,
    /// The same for a caller: its number, and the path of the field.
    DescribeTo(Ioid, String),
    /// Gets or puts.
    Use(OperationUse),
    /// The same with structures, calls or processing.
    Structured(Box<StructuredOperation>),
    /// The updates of a subscription. `n_acknowledged`: how many updates are acknowledged at once; 0 without flow control.
    Monitor { subscription: SubscriptionId, delivery: UpdateDelivery, n_acknowledged: u32, n_unacknowledged: u32 },
}

/// What the updates of a subscription become.
#[derive(Clone, Copy, Debug)]
pub(super) enum UpdateDelivery {
    /// Readings, converted in this way.
    Reading(ReplyConversion),
    /// Rows of a monitor group.
    Row(RowTarget),
    /// Structures.
    Structure,
}

/// An operation of the machine.
#[derive(Debug)]
pub(super) struct ClientOperation {
    pub(super) ioid: Ioid,
    pub(super) sid: Sid,
    pub(super) role: OperationRole,
    /// Whether the server has confirmed it.
    is_open: bool,
    /// The caller whose reply is next. Usually there is no other, and then the queue allocates no memory.
    first: Option<Caller>,
    others: VecDeque<Caller>,
}

impl ClientOperation {
    pub(super) fn new(ioid: Ioid, sid: Sid, role: OperationRole) -> ClientOperation {
        ClientOperation { ioid, sid, role, is_open: false, first: None, others: VecDeque::new() }
    }

    /// How many requests are not sent.
    fn n_unsent(&self) -> usize {
        match &self.first {
            Some(first) if self.is_open && !first.is_state_name => self.n_callers() - 1,
            _ => self.n_callers(),
        }
    }

    /// How many requests have not ended.
    pub(super) fn n_callers(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    /// The caller whose request has ended.
    #[inline]
    pub(super) fn take_first(&mut self) -> Option<Caller> {
        let caller = self.first.take()?;
        if self.others.capacity() > 0 {
            self.first = self.others.pop_front();
            if self.others.is_empty() {
                self.others = VecDeque::new();
            }
        }
        Some(caller)
    }

    /// The number of the caller whose reply is next.
    pub(super) fn first_caller(&self) -> Option<Ioid> {
        self.first.as_ref()?.ioid
    }

    /// What the first caller counts: nothing once its request is sent.
    fn first_bytes(&self) -> usize {
        self.first.as_ref().map_or(0, |first| first.bytes)
    }

    /// All callers, in order.
    pub(super) fn into_callers(self) -> impl Iterator<Item = Caller> {
        let waiting = match self.role {
            OperationRole::Structured(structured) => Some(structured.into_waiting_callers()),
            _ => None,
        };
        let waiting = waiting.into_iter().flatten().map(|ioid| Caller { ioid: Some(ioid), ..Caller::default() });
        self.first.into_iter().chain(self.others).chain(waiting)
    }
}

/// A request that waits until others of its channel are sent.
#[derive(Debug)]
pub(super) enum HeldRequest {
    Get(OperationUse, Caller),
    Put(OperationUse, Caller, Value),
    /// The number of the caller, and its request.
    Structured(Ioid, Arc<StructuredTask>),
}

impl HeldRequest {
    pub(super) fn is_unconfirmed_put(&self) -> bool {
        matches!(self, HeldRequest::Put(OperationUse::PutUnconfirmed, ..))
    }

    fn bytes(&self) -> usize {
        match self {
            HeldRequest::Get(_, caller) | HeldRequest::Put(_, caller, _) => caller.bytes,
            HeldRequest::Structured(..) => 0,
        }
    }
}

/// About how many bytes a put of this value takes until it is sent.
pub(super) fn put_bytes(value: &Value) -> usize {
    limit::QUEUED_PUT_BYTES + value.n_bytes()
}

/// A channel that the server has confirmed, and its open operations.
#[derive(Debug)]
pub(super) struct ChannelOperations {
    cid: Cid,
    /// By [`OperationUse`]; [`NONE`] where none is open.
    pub(super) open: [Ioid; N_USES],
    /// The kind of its value, once it was described; `None` if it has none of its own.
    value_kind: Option<Kind>,
    /// Why it has none of its own.
    no_value: Option<Box<Failure>>,
    /// It was cleared, and has puts to send.
    is_clearing: bool,
    /// Monitors, and descriptions for callers.
    unshared: Vec<Ioid>,
    /// Open operations on structures, the one that was used last at the end.
    structured: Vec<Ioid>,
    describing: Ioid,
    /// Usually there are none.
    held: VecDeque<HeldRequest>,
}

impl ChannelOperations {
    /// Whether a put of this value reads the names of the states first.
    pub(super) fn is_name_of_state(&self, value: &Value) -> bool {
        self.value_kind == Some(Kind::Enum) && matches!(value, Value::Scalar(Scalar::Text(_)))
    }
}

/// The kind and the maximum number of elements of a value; 0: any number.
pub(crate) type KindAndLength = (Kind, u32);

/// The kind and the maximum number of elements of the value in a type; `None` if it has no value of its own.
pub(crate) fn value_kind(kind: &Arc<StructureType>) -> Option<KindAndLength> {
    let layout = NormativeLayout::of(kind.clone())?;
    let bit = layout.value_bit();
    Some(match (layout.role(bit), &layout.kind().nodes()[bit].kind) {
        (Role::Index, _) => (Kind::Enum, 1),
        (_, NodeKind::Scalar(kind)) => (*kind, 1),
        (_, NodeKind::Array { kind, size }) => match size {
            ArraySize::Variable => (*kind, 0),
            ArraySize::Max(max) | ArraySize::Fixed(max) => (*kind, *max),
        },
        _ => (Kind::Text, 1),
    })
}

/// The channels and open operations of a circuit, and what the events of the machine leave to do.
#[derive(Debug, Default)]
pub(super) struct OperationTables {
    channels: PeerNumberHashMap<Sid, ChannelOperations>,
    sids: NumberMap<Cid, Sid>,
    /// By the low bits of their numbers, which are dense.
    operations: Vec<Option<ClientOperation>>,
    n_operations: usize,
    /// The type that was described last, and its value: most channels of a server have one of a few types.
    described: Option<(Arc<StructureType>, Option<KindAndLength>)>,
    /// Bytes of the puts without completion that are not sent.
    pub(super) unsent_bytes: usize,
    /// Channels that were cleared and have puts to send.
    pub(super) n_clearing: usize,
    /// Whether one of the following lists has an entry.
    pub(super) has_follow_up: bool,
    /// Channels to describe.
    pub(super) created: Vec<Sid>,
    /// Confirmed channels to clear.
    pub(super) rejected: Vec<(Cid, Sid)>,
    /// Monitors whose updates are to be acknowledged, with their number.
    pub(super) acknowledged: Vec<(Ioid, u32)>,
    /// Channels whose held requests can perhaps be sent.
    pub(super) released: Vec<Sid>,
    /// Operations whose waiting puts of structures can be sent.
    pub(super) opened_puts: Vec<Ioid>,
    /// The operations of calls and processing by their callers.
    calls: std::collections::HashMap<Ioid, Ioid>,
}

/// The position of an operation.
#[inline]
fn place(ioid: Ioid) -> usize {
    ioid.0 as usize & (fodo_pva::limit::OPERATIONS_MAX - 1)
}

/// Channels.
impl OperationTables {
    /// The server has confirmed a channel. Returns false for a second confirmation, which is rejected.
    pub(super) fn created(&mut self, cid: Cid, sid: Sid) -> bool {
        self.has_follow_up = true;
        if self.sids.contains(cid) {
            self.rejected.push((cid, sid));
            return false;
        }
        self.sids.insert(cid, sid);
        let channel = ChannelOperations {
            cid,
            open: [NONE; N_USES],
            value_kind: None,
            no_value: None,
            is_clearing: false,
            unshared: Vec::new(),
            structured: Vec::new(),
            describing: NONE,
            held: VecDeque::new(),
        };
        self.channels.insert(sid, channel);
        self.created.push(sid);
        true
    }

    pub(super) fn sid(&self, cid: Cid) -> Option<Sid> {
        self.sids.get(cid).copied()
    }

    pub(super) fn cid(&self, sid: Sid) -> Option<Cid> {
        self.channels.get(&sid).map(|channel| channel.cid)
    }

    /// A channel whose type has a value; fails if it has none or has ended.
    #[inline]
    pub(super) fn channel_with_value(&self, sid: Sid) -> Result<&ChannelOperations, Failure> {
        match self.channels.get(&sid) {
            Some(channel) if channel.value_kind.is_some() => Ok(channel),
            Some(ChannelOperations { no_value: Some(failure), .. }) => Err((**failure).clone()),
            Some(_) | None => Err(Failure::Disconnected),
        }
    }

    pub(super) fn open_operations(&self, sid: Sid) -> Option<[Ioid; N_USES]> {
        self.channels.get(&sid).map(|channel| channel.open)
    }

    /// The type of a channel is known.
    /// `Err`: the server does not describe it.
    pub(super) fn described(
        &mut self,
        sid: Sid,
        kind: Result<Option<Arc<StructureType>>, Refusal>,
    ) -> Option<(Cid, ServerChannel)> {
        let (value, no_value) = match kind {
            Ok(Some(kind)) => {
                let no_value = || Failure::WrongReply(WrongReply::Structure { id: kind.id().clone() });
                let value = self.value_of(&kind);
                (value, value.is_none().then(no_value))
            }
            Ok(None) => (None, Some(Failure::WrongReply(WrongReply::Structure { id: Text::EMPTY }))),
            Err(refusal) => (None, Some(Failure::Refused(refusal))),
        };
        let channel = self.channels.get_mut(&sid)?;
        channel.describing = NONE;
        channel.value_kind = value.map(|(kind, _)| kind);
        channel.no_value = no_value.map(Box::new);
        // A structure without a value is reported as a text of unknown length.
        let (kind, count) = value.unwrap_or((Kind::Text, 0));
        Some((channel.cid, ServerChannel { sid, kind, count }))
    }

    /// The kind and number of elements of the value in a type.
    fn value_of(&mut self, kind: &Arc<StructureType>) -> Option<KindAndLength> {
        if let Some((_, value)) = self.described.as_ref().filter(|(before, _)| before == kind) {
            return *value;
        }
        let value = value_kind(kind);
        self.described = Some((kind.clone(), value));
        value
    }

    /// Removes a channel with its operations. Their callers are known to the circuit, which ends them.
    pub(super) fn remove_channel(&mut self, sid: Sid) {
        let Some(channel) = self.channels.remove(&sid) else { return };
        let ChannelOperations { cid, open, is_clearing, unshared, structured, describing, held, .. } = channel;
        self.sids.remove(cid);
        self.n_clearing -= usize::from(is_clearing);
        for ioid in open.into_iter().chain(unshared).chain(structured).chain([describing]) {
            self.take(ioid);
        }
        self.unsent_bytes -= held.iter().map(HeldRequest::bytes).sum::<usize>();
    }

    /// Whether puts without completion wait to be sent.
    pub(super) fn has_unsent_puts(&self, sid: Sid) -> bool {
        let unconfirmed =
            self.channels.get(&sid).map_or(NONE, |channel| channel.open[OperationUse::PutUnconfirmed as usize]);
        self.n_unsent(unconfirmed) > 0 || self.holds_unconfirmed_put(sid)
    }

    /// Ends the channel once its puts are sent.
    pub(super) fn clear_later(&mut self, sid: Sid) {
        if let Some(channel) = self.channels.get_mut(&sid) {
            self.n_clearing += usize::from(!std::mem::replace(&mut channel.is_clearing, true));
        }
    }

    pub(super) fn is_clearing(&self, sid: Sid) -> bool {
        self.channels.get(&sid).is_some_and(|channel| channel.is_clearing)
    }
}

/// Held requests.
impl OperationTables {
    fn held(&self, sid: Sid) -> impl Iterator<Item = &HeldRequest> {
        self.channels.get(&sid).into_iter().flat_map(|channel| &channel.held)
    }

    pub(super) fn holds_put(&self, sid: Sid) -> bool {
        self.held(sid).any(|held| matches!(held, HeldRequest::Put(..) | HeldRequest::Structured(..)))
    }

    /// Whether puts wait to be sent, after which a request on structures follows.
    pub(super) fn has_puts_before(&self, sid: Sid) -> bool {
        let Some(ChannelOperations { open, held, .. }) = self.channels.get(&sid) else { return false };
        let is_put = |held: &HeldRequest| matches!(held, HeldRequest::Put(..) | HeldRequest::Structured(..));
        self.n_unsent(open[OperationUse::PutUnconfirmed as usize]) > 0 || held.iter().any(is_put)
    }

    pub(super) fn holds_unconfirmed_put(&self, sid: Sid) -> bool {
        self.held(sid).any(HeldRequest::is_unconfirmed_put)
    }

    /// Holds a request until the puts before it are sent.
    #[cold]
    pub(super) fn hold(&mut self, sid: Sid, request: HeldRequest) -> Result<(), Failure> {
        let Some(channel) = self.channels.get_mut(&sid) else { return Err(Failure::Disconnected) };
        if channel.held.len() >= limit::HELD_REQUESTS {
            let most = limit::HELD_REQUESTS;
            return Err(Failure::misuse(
                format!("{most} requests wait for puts of the channel, which is the maximum"),
                "wait until some of them have ended",
            ));
        }
        self.unsent_bytes += request.bytes();
        channel.held.push_back(request);
        Ok(())
    }

    pub(super) fn take_held(&mut self, sid: Sid) -> VecDeque<HeldRequest> {
        let held = self.channels.get_mut(&sid).map(|channel| std::mem::take(&mut channel.held)).unwrap_or_default();
        self.unsent_bytes -= held.iter().map(HeldRequest::bytes).sum::<usize>();
        held
    }

    /// Keeps requests that still cannot be sent.
    pub(super) fn keep_held(&mut self, sid: Sid, held: VecDeque<HeldRequest>) {
        if held.is_empty() {
            return;
        }
        if let Some(channel) = self.channels.get_mut(&sid) {
            self.unsent_bytes += held.iter().map(HeldRequest::bytes).sum::<usize>();
            channel.held = held;
        }
    }

    /// A put of the channel was sent, or an operation has ended.
    fn release(&mut self, sid: Sid) {
        if let Some(channel) = self.channels.get(&sid)
            && (!channel.held.is_empty() || channel.is_clearing)
        {
            self.has_follow_up = true;
            self.released.push(sid);
        }
    }
}

/// Operations.
impl OperationTables {
    /// Adds an operation of a channel.
    pub(super) fn insert(&mut self, operation: ClientOperation) {
        let (ioid, sid) = (operation.ioid, operation.sid);
        if let Some(channel) = self.channels.get_mut(&sid) {
            match operation.role {
                OperationRole::Describe => channel.describing = ioid,
                OperationRole::Use(of) => channel.open[of as usize] = ioid,
                OperationRole::Structured(_) => channel.structured.push(ioid),
                OperationRole::Monitor { .. } | OperationRole::DescribeTo(..) => channel.unshared.push(ioid),
            }
        }
        let place = place(ioid);
        if self.operations.len() <= place {
            self.operations.resize_with(place + 1, || None);
        }
        self.n_operations += 1;
        self.operations[place] = Some(operation);
    }

    #[inline]
    pub(super) fn get_mut(&mut self, ioid: Ioid) -> Option<&mut ClientOperation> {
        match self.operations.get_mut(place(ioid)) {
            Some(Some(operation)) if operation.ioid == ioid => Some(operation),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn get(&self, ioid: Ioid) -> Option<&ClientOperation> {
        self.operations.get(place(ioid)).and_then(Option::as_ref).filter(|operation| operation.ioid == ioid)
    }

    /// The open operations on structures of a channel, the one that was used last at the end.
    pub(super) fn structured_of(&self, sid: Sid) -> &[Ioid] {
        self.channels.get(&sid).map_or(&[], |channel| &channel.structured)
    }

    /// The operation on structures at this position is now the one used last.
    pub(super) fn use_structured(&mut self, sid: Sid, position: usize) -> Option<Ioid> {
        let structured = &mut self.channels.get_mut(&sid)?.structured;
        structured.get_mut(position..)?.rotate_left(1);
        structured.last().copied()
    }

    /// A call or processing has a caller.
    pub(super) fn add_call(&mut self, caller: Ioid, ioid: Ioid) {
        self.calls.insert(caller, ioid);
    }

    /// It has ended, or its caller has given up. Returns its operation.
    pub(super) fn end_call(&mut self, caller: Ioid) -> Option<Ioid> {
        self.calls.remove(&caller)
    }

    /// Removes an operation from its place.
    fn take(&mut self, ioid: Ioid) -> Option<ClientOperation> {
        self.get_mut(ioid)?;
        let operation = self.operations.get_mut(place(ioid))?.take()?;
        self.n_operations -= 1;
        self.unsent_bytes -=
            operation.first_bytes() + operation.others.iter().map(|caller| caller.bytes).sum::<usize>();
        if !self.calls.is_empty() {
            self.calls.retain(|_, of| *of != ioid);
        }
        if self.n_operations == 0 {
            self.operations = Vec::new();
        }
        Some(operation)
    }

    /// Removes an operation, also from its channel.
    pub(super) fn remove(&mut self, ioid: Ioid) -> Option<ClientOperation> {
        let operation = self.take(ioid)?;
        if let Some(channel) = self.channels.get_mut(&operation.sid) {
            match operation.role {
                OperationRole::Describe => channel.describing = NONE,
                OperationRole::Use(of) => channel.open[of as usize] = NONE,
                OperationRole::Structured(_) => channel.structured.retain(|other| *other != ioid),
                OperationRole::Monitor { .. } | OperationRole::DescribeTo(..) => {
                    channel.unshared.retain(|other| *other != ioid);
                }
            }
        }
        self.release(operation.sid);
        Some(operation)
    }

    /// How many requests of an operation are not sent.
    #[inline]
    pub(super) fn n_unsent(&self, ioid: Ioid) -> usize {
        match ioid {
            NONE => 0,
            _ => self.operations.get(place(ioid)).and_then(Option::as_ref).map_or(0, ClientOperation::n_unsent),
        }
    }

    /// Adds a caller whose request the machine has accepted.
    #[inline]
    pub(super) fn add_caller(&mut self, ioid: Ioid, mut caller: Caller) {
        let Some(operation) = self.get_mut(ioid) else { return };
        let bytes = match &operation.first {
            None => {
                if operation.is_open && !caller.is_state_name {
                    caller.bytes = 0;
                }
                operation.first = Some(caller);
                caller.bytes
            }
            Some(_) => {
                operation.others.push_back(caller);
                caller.bytes
            }
        };
        self.unsent_bytes += bytes;
    }

    /// The server has confirmed an operation: its first request is sent.
    pub(super) fn opened(&mut self, ioid: Ioid) {
        let Some(operation) = self.get_mut(ioid) else { return };
        operation.is_open = true;
        let sid = operation.sid;
        let n_sent = sent_bytes(operation);
        self.unsent_bytes -= n_sent;
        self.release(sid);
    }

    /// A request of an operation has ended: returns its caller. The next one is sent.
    #[inline(always)]
    pub(super) fn take_caller(&mut self, ioid: Ioid) -> Option<(OperationUse, Sid, Caller)> {
        let operation = self.get_mut(ioid)?;
        let OperationRole::Use(of) = operation.role else { return None };
        let caller = operation.take_first()?;
        let (sid, n_sent) = (operation.sid, caller.bytes + sent_bytes(operation));
        self.unsent_bytes -= n_sent;
        if of.is_put() {
            self.release(sid);
        }
        Some((of, sid, caller))
    }

    /// Whether nothing is left.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let OperationTables { channels, sids, operations, unsent_bytes, n_clearing, has_follow_up, calls, .. } = self;
        let is_without_operations = operations.iter().all(Option::is_none) && self.n_operations == 0;
        channels.is_empty()
            && calls.is_empty()
            && sids.is_empty()
            && is_without_operations
            && !has_follow_up
            && (*unsent_bytes, *n_clearing) == (0, 0)
    }
}

/// The first request of an operation is sent, unless it is the name of a state; returns the bytes that it counted.
#[inline]
fn sent_bytes(operation: &mut ClientOperation) -> usize {
    match &mut operation.first {
        Some(first) if operation.is_open && !first.is_state_name => std::mem::take(&mut first.bytes),
        _ => 0,
    }
}
