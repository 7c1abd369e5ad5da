//! One operation: its state, and the requests that wait for their turn.

use std::collections::VecDeque;

use fodo_data::{Kind, Meta, Reading, Scalar, Structure, StructureError, Text, Value};

use super::layout::{Layout, OperationTypes};
use super::outbox::Outbox;
use super::{Decoding, PreparedRequest, PutContent, Received, RequestError, Task};
use crate::cursor::{ByteOrder, ByteReader};
use crate::message::{Request, Subcommand};
use crate::types::TypeCache;
use crate::{Ioid, Sid, limit, value};

/// The state of an operation; the comment of each says what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationStage {
    /// For the reply to INIT.
    Opening,
    /// For the reply to GET_FIELD, which ends it.
    Describing,
    /// For its caller.
    Idle,
    /// For the reply to a request.
    Executing(OperationStep),
}

/// What an operation executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationStep {
    /// A get.
    Read,
    /// A read of the names of the states, for the put that is first in the queue.
    Choices,
    /// A put.
    Write,
    /// An RPC or the processing of a record.
    Call,
}

/// A request that waits for its turn.
#[derive(Debug)]
pub(super) enum Execution {
    /// This many gets, which share one reply.
    Get(u32),
    Put(PutContent),
    Rpc(Box<Structure>),
    Process,
}

/// The part of an operation that only monitors have.
#[derive(Debug)]
pub(super) struct Monitored {
    /// What was received last; updates contain only what has changed.
    pub(super) received: Received,
    /// With flow control: how many updates the server may send before the first acknowledgement.
    window: Option<u32>,
    /// Whether the caller wants updates.
    is_running: bool,
    has_started: bool,
}

/// An operation that is being opened or is open.
#[derive(Debug)]
pub(super) struct OpenOperation {
    pub(super) ioid: Ioid,
    /// The number of its channel in messages.
    pub(super) sid: Sid,
    /// The number of its channel for the caller.
    pub(super) channel: Sid,
    pub(super) task: Task,
    pub(super) stage: OperationStage,
    decoding: Decoding,
    /// Whether gets process a record, so that none shares the reply to another one.
    has_effect: bool,
    /// How many gets end with the next reply to a get.
    n_gets: u32,
    /// How many requests of the caller have not ended.
    n_unfinished: u32,
    /// Known once it is open.
    types: OperationTypes,
    /// Empty while the operation is idle.
    queue: VecDeque<Execution>,
    monitored: Option<Box<Monitored>>,
    /// The neighbours in the list of its channel's operations.
    pub(super) next: Ioid,
    pub(super) previous: Ioid,
}

// A get of each of ten thousand channels touches as many of them: two cache lines each.
const _: () = assert!(size_of::<Option<OpenOperation>>() <= 128);

impl OpenOperation {
    pub(super) fn new(ioid: Ioid, sid: Sid, task: Task, decoding: Decoding, stage: OperationStage) -> OpenOperation {
        OpenOperation {
            ioid,
            sid,
            channel: sid,
            task,
            stage,
            decoding,
            has_effect: false,
            n_gets: 0,
            n_unfinished: 0,
            types: OperationTypes::default(),
            queue: VecDeque::new(),
            monitored: None,
            next: Ioid(0),
            previous: Ioid(0),
        }
    }

    /// Sends INIT with a pvRequest.
    pub(super) fn initialise(&mut self, request: &PreparedRequest, outbox: &mut Outbox) {
        self.has_effect = request.has_effect();
        if self.task == Task::Monitor {
            let window = request.window();
            let monitored = Monitored { received: Received::None, window, is_running: false, has_started: false };
            self.monitored = Some(Box::new(monitored));
        }
        outbox.push(&self.request(Subcommand::INIT), |to, ids| {
            value::encode_any(Some(request.structure()), Some(ids), to);
        });
    }

    /// The server has confirmed the operation, with the types of what it reads and writes.
    pub(super) fn opened(&mut self, types: OperationTypes, outbox: &mut Outbox) {
        self.types = types;
        self.stage = OperationStage::Idle;
        if let (Some(monitored), Some(read)) = (&mut self.monitored, &self.types.read) {
            monitored.received = read.initial(self.decoding);
            if monitored.is_running {
                self.send_start(outbox);
            }
        }
    }

    /// Whether the server executes something that it might interrupt.
    pub(super) fn is_interruptible(&self) -> bool {
        matches!(self.stage, OperationStage::Executing(OperationStep::Write | OperationStep::Call))
    }

    /// Sends a request of the caller, or queues it while another one is executed.
    pub(super) fn accept(&mut self, execution: Execution, outbox: &mut Outbox) -> Result<(), RequestError> {
        if self.n_unfinished as usize >= limit::EXECUTIONS_MAX {
            return Err(RequestError::QueueFull);
        }
        match self.stage {
            OperationStage::Idle => self.begin(execution, outbox)?,
            OperationStage::Opening
                if matches!(execution, Execution::Get(_))
                    && self.queue.is_empty()
                    && (self.n_gets == 0 || !self.has_effect) =>
            {
                self.n_gets += 1;
            }
            _ => self.enqueue(execution)?,
        }
        self.n_unfinished += 1;
        Ok(())
    }

    /// The same as [`OpenOperation::accept`] for a get, which is nearly always the only request of its operation.
    #[inline]
    pub(super) fn accept_get(&mut self, outbox: &mut Outbox) -> Result<(), RequestError> {
        if (self.stage, self.task, self.n_unfinished) != (OperationStage::Idle, Task::Get, 0) {
            return self.accept(Execution::Get(1), outbox);
        }
        (self.stage, self.n_gets, self.n_unfinished) = (OperationStage::Executing(OperationStep::Read), 1, 1);
        outbox.push_get(self.sid, self.ioid);
        Ok(())
    }

    fn enqueue(&mut self, execution: Execution) -> Result<(), RequestError> {
        let execution = match (execution, self.queue.back_mut(), &self.types.written) {
            (Execution::Get(n), Some(Execution::Get(n_last)), _) if !self.has_effect => {
                *n_last += n;
                return Ok(());
            }
            // A value that cannot be converted is rejected at once.
            (Execution::Put(put), _, Some(written)) => Execution::Put(written.checked(put)?),
            (execution, _, _) => execution,
        };
        self.queue.push_back(execution);
        Ok(())
    }

    /// Sends the first waiting request of an idle operation. `Err`: that request has ended, another one may wait.
    pub(super) fn advance(&mut self, outbox: &mut Outbox) -> Result<(), RequestError> {
        if self.stage != OperationStage::Idle {
            return Ok(());
        }
        let first = match self.n_gets {
            0 => self.queue.pop_front(),
            n_gets => Some(Execution::Get(n_gets)),
        };
        let Some(first) = first else { return Ok(()) };
        self.begin(first, outbox).inspect_err(|_| self.n_unfinished -= 1)
    }

    #[inline]
    fn begin(&mut self, execution: Execution, outbox: &mut Outbox) -> Result<(), RequestError> {
        let step = match execution {
            Execution::Get(n_gets) => {
                self.n_gets = n_gets;
                self.send_read(outbox);
                OperationStep::Read
            }
            Execution::Put(put) => self.begin_put(put, outbox)?,
            Execution::Rpc(argument) => {
                outbox.push_value(&self.request(Subcommand::EXECUTE), |to| {
                    value::encode_any(Some(&argument), None, to);
                })?;
                OperationStep::Call
            }
            Execution::Process => {
                outbox.push(&self.request(Subcommand::EXECUTE), |_, _| {});
                OperationStep::Call
            }
        };
        self.stage = OperationStage::Executing(step);
        Ok(())
    }

    #[inline]
    fn send_read(&self, outbox: &mut Outbox) {
        match self.task {
            Task::Get => outbox.push_get(self.sid, self.ioid),
            _ => outbox.push(&self.request(Subcommand::GET), |_, _| {}),
        }
    }

    fn begin_put(&mut self, put: PutContent, outbox: &mut Outbox) -> Result<OperationStep, RequestError> {
        let Some(written) = &self.types.written else { return Err(RequestError::OtherTask) };
        let request = self.request(Subcommand::EXECUTE);
        match written.checked(put)? {
            name @ PutContent::Value(Value::Scalar(Scalar::Text(_))) if written.has_states() => {
                self.send_read(outbox);
                self.queue.push_front(Execution::Put(name));
                return Ok(OperationStep::Choices);
            }
            PutContent::Value(value) => outbox.push_value(&request, |to| written.encode_value(value, to))?,
            PutContent::Structure(structure) => {
                outbox.push_value(&request, |to| value::encode_bits(&structure, structure.changed(), to))?;
            }
        }
        Ok(OperationStep::Write)
    }

    /// The names of the states for a put were received: sends the put with the index.
    pub(super) fn choose(&mut self, choices: Vec<Text>, outbox: &mut Outbox) -> Result<(), RequestError> {
        self.stage = OperationStage::Idle;
        let Some(Execution::Put(PutContent::Value(Value::Scalar(name)))) = self.queue.pop_front() else {
            debug_assert!(false, "the put for which the names are read is the first in the queue");
            return Err(RequestError::OtherTask);
        };
        let meta = Meta { labels: choices, ..Meta::default() };
        let index = name.to_kind(Kind::Enum, Some(&meta)).map_err(StructureError::from)?;
        self.begin(Execution::Put(Value::Scalar(index).into()), outbox)
    }

    /// The request that was executed has ended; returns how many requests of the caller end with it.
    #[inline]
    pub(super) fn finish(&mut self) -> u32 {
        let n_finished = match self.stage {
            OperationStage::Executing(OperationStep::Read) => std::mem::take(&mut self.n_gets),
            OperationStage::Executing(OperationStep::Choices) => {
                self.queue.pop_front();
                1
            }
            _ => 1,
        };
        self.stage = OperationStage::Idle;
        self.n_unfinished -= n_finished;
        n_finished
    }

    /// Ends a get that no other request waits behind, if its reply is a number that can be decoded in one step. Returns
    /// the reading; `None` for everything else.
    #[inline(always)]
    pub(super) fn take_number(&mut self, reply: &[u8], order: ByteOrder) -> Option<Reading> {
        let is_alone = self.stage == OperationStage::Executing(OperationStep::Read) && self.n_unfinished == 1;
        let layout = self.types.read.as_ref().filter(|_| is_alone && self.task == Task::Get)?;
        let reading = layout.number(self.decoding, reply, order)?;
        (self.stage, self.n_gets, self.n_unfinished) = (OperationStage::Idle, 0, 0);
        Some(reading)
    }

    /// Whether [`OpenOperation::advance`] has something to send.
    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        !self.queue.is_empty() || self.n_gets > 0
    }

    /// Decodes what the operation has read.
    #[inline]
    pub(super) fn decode(&self, reader: &mut ByteReader, cache: &mut TypeCache) -> Received {
        let Some(layout) = &self.types.read else { return Received::None };
        let mut received = layout.initial(self.decoding);
        layout.decode_into(&mut received, reader, cache);
        received
    }

    /// Decodes the names of the states that a put chooses from.
    pub(super) fn decode_choices(&self, reader: &mut ByteReader, cache: &mut TypeCache) -> Vec<Text> {
        let Some(layout) = &self.types.read else { return Vec::new() };
        let mut structure = Structure::new(layout.kind().clone());
        value::decode_changed(&mut structure, reader, cache);
        layout.choices(&structure)
    }

    /// An open monitor with its type.
    #[inline]
    pub(super) fn monitored(&mut self) -> Option<(&mut Monitored, &Layout)> {
        Some((self.monitored.as_deref_mut()?, self.types.read.as_deref()?))
    }

    /// The caller wants updates.
    pub(super) fn start(&mut self, outbox: &mut Outbox) -> Result<(), RequestError> {
        let Some(monitored) = &mut self.monitored else { return Err(RequestError::OtherTask) };
        let was_running = std::mem::replace(&mut monitored.is_running, true);
        if !was_running && self.stage == OperationStage::Idle {
            self.send_start(outbox);
        }
        Ok(())
    }

    /// QSRV1 sends nothing if START arrives before the first acknowledgement, and ignores both in one message.
    fn send_start(&mut self, outbox: &mut Outbox) {
        let Some(monitored) = &mut self.monitored else { return };
        if !std::mem::replace(&mut monitored.has_started, true)
            && let Some(window) = monitored.window
        {
            outbox.push(&self.request(Subcommand::ACK), |to, _| to.u32(window));
        }
        outbox.push(&self.request(Subcommand::START), |_, _| {});
    }

    /// The caller wants no updates for now.
    pub(super) fn stop(&mut self, outbox: &mut Outbox) -> Result<(), RequestError> {
        let Some(monitored) = &mut self.monitored else { return Err(RequestError::OtherTask) };
        let was_running = std::mem::replace(&mut monitored.is_running, false);
        if was_running && self.stage == OperationStage::Idle {
            outbox.push(&self.request(Subcommand::STOP), |_, _| {});
        }
        Ok(())
    }

    /// The caller has taken this many updates.
    pub(super) fn acknowledge(&mut self, n_updates: u32, outbox: &mut Outbox) -> Result<(), RequestError> {
        let Some(monitored) = &self.monitored else { return Err(RequestError::OtherTask) };
        if monitored.window.is_some() && monitored.has_started && n_updates > 0 {
            outbox.push(&self.request(Subcommand::ACK), |to, _| to.u32(n_updates));
        }
        Ok(())
    }

    #[inline]
    fn request(&self, sub: Subcommand) -> Request {
        let OpenOperation { sid, ioid, .. } = *self;
        match self.task {
            Task::Get => Request::Get { sid, ioid, sub },
            Task::Put => Request::Put { sid, ioid, sub },
            Task::PutGet => Request::PutGet { sid, ioid, sub },
            Task::Rpc => Request::Rpc { sid, ioid, sub },
            Task::Process => Request::Process { sid, ioid, sub },
            Task::Monitor => Request::Monitor { sid, ioid, sub },
        }
    }
}
