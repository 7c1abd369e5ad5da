//! Operations in progress.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use fodo_net::{
    ChannelFacts, Detail, Error, ErrorKind, NodeValue, Operation, PvRequest, Reading, Request, Structure,
    StructureType, WrongReply,
};

use crate::codec::{InputReader, InvalidInput, ReplyTag, ReplyWriter};
use crate::context::JavaChannel;
use crate::error::JavaFailure;

/// What is done with a channel. The numbers are those of `Native.java`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    Connect = 0,
    Get = 1,
    Put = 2,
    PutUnconfirmed = 3,
    GetStructure = 4,
    PutStructure = 5,
    Call = 6,
    Describe = 7,
    Process = 8,
    /// Of a value, or of the structure that the PV is.
    GetAny = 9,
}

impl What {
    pub fn of(number: i32) -> Result<What, JavaFailure> {
        const ALL: [What; 10] = [
            What::Connect,
            What::Get,
            What::Put,
            What::PutUnconfirmed,
            What::GetStructure,
            What::PutStructure,
            What::Call,
            What::Describe,
            What::Process,
            What::GetAny,
        ];
        let known = usize::try_from(number).ok().and_then(|number| ALL.get(number).copied());
        known.ok_or_else(|| JavaFailure::misuse("", format!("there is no operation {number}")))
    }
}

/// What an operation has ended with.
pub enum EndedWith {
    Connected(ChannelFacts),
    Reading(Reading),
    Structure(Structure),
    Type(Arc<StructureType>),
    Nothing,
}

/// How an operation has ended.
pub type End = Result<EndedWith, Error>;

enum StartedCall {
    Connect(Operation<ChannelFacts>),
    Get(Operation<Reading>),
    Put(Operation<()>),
    Structure(Operation<Structure>),
    Describe(Operation<Arc<StructureType>>),
}

/// An operation with what its end needs.
pub struct RunningOperation {
    target: Arc<JavaChannel>,
    started: StartedCall,
    what: What,
}

/// Reads a request for values.
pub fn request(input: &mut InputReader<'_>) -> Result<Request, InvalidInput> {
    const DETAILS: [Detail; 6] =
        [Detail::Value, Detail::Alarm, Detail::Time, Detail::Graphic, Detail::Control, Detail::Full];

    let kind = input.kind_or_native()?;
    let detail = DETAILS.get(usize::from(input.u8()?)).copied();
    let detail = detail.ok_or_else(|| InvalidInput::new("the request has an unknown detail"))?;
    Ok(Request { kind, detail, count: input.u32()? })
}

/// Reads a pvRequest.
pub fn pv_request(text: &str) -> Result<PvRequest, JavaFailure> {
    PvRequest::parse(text).map_err(|error| JavaFailure::misuse("", format!("the pvRequest is invalid: {error}")))
}

/// Whether a reply means that the PV must be read as a structure.
pub fn is_of_a_structure(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WrongReply { reply: WrongReply::Structure { .. }, .. })
}

impl RunningOperation {
    /// `is_driven`: the calling thread waits for it at once.
    pub fn start(
        target: &Arc<JavaChannel>,
        what: What,
        input: &mut InputReader<'_>,
        is_driven: bool,
    ) -> Result<RunningOperation, JavaFailure> {
        let started = StartedCall::of(target, what, input, is_driven);
        let started = started.map_err(|failure| failure.about(target.channel.name()))?;
        Ok(RunningOperation { target: target.clone(), started, what })
    }

    /// A get of the structure that the PV is.
    pub fn of_structure(target: &Arc<JavaChannel>) -> RunningOperation {
        let started = StartedCall::Structure(target.channel.start_get_structure(PvRequest::default()));
        RunningOperation { target: target.clone(), started, what: What::GetStructure }
    }

    pub fn connect(target: &Arc<JavaChannel>) -> RunningOperation {
        let started = StartedCall::Connect(target.channel.start_connect());
        RunningOperation { target: target.clone(), started, what: What::Connect }
    }

    /// The end, unless another operation follows: a get of a structure is repeated as such.
    fn ended(&mut self, end: End) -> Option<End> {
        match end {
            Err(error) if self.what == What::GetAny && is_of_a_structure(&error) => {
                self.target.is_structure.store(true, Ordering::Relaxed);
                *self = RunningOperation::of_structure(&self.target);
                None
            }
            end => Some(end),
        }
    }

    pub fn wait_at_most(&mut self, pause: Duration) -> Option<End> {
        let end = match &mut self.started {
            StartedCall::Connect(operation) => operation.wait_at_most(pause)?.map(EndedWith::Connected),
            StartedCall::Get(operation) => operation.wait_at_most(pause)?.map(EndedWith::Reading),
            StartedCall::Put(operation) => operation.wait_at_most(pause)?.map(|()| EndedWith::Nothing),
            StartedCall::Structure(operation) => operation.wait_at_most(pause)?.map(EndedWith::Structure),
            StartedCall::Describe(operation) => operation.wait_at_most(pause)?.map(EndedWith::Type),
        };
        self.ended(end)
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        fn polled<T: fodo_net::Output>(
            operation: &mut Operation<T>,
            cx: &mut Context<'_>,
            end: fn(T) -> EndedWith,
        ) -> Poll<End> {
            Pin::new(operation).poll(cx).map(|result| result.map(end))
        }
        loop {
            let end = match &mut self.started {
                StartedCall::Connect(operation) => polled(operation, cx, EndedWith::Connected),
                StartedCall::Get(operation) => polled(operation, cx, EndedWith::Reading),
                StartedCall::Put(operation) => polled(operation, cx, |()| EndedWith::Nothing),
                StartedCall::Structure(operation) => polled(operation, cx, EndedWith::Structure),
                StartedCall::Describe(operation) => polled(operation, cx, EndedWith::Type),
            };
            let Poll::Ready(end) = end else { return Poll::Pending };
            if let Some(end) = self.ended(end) {
                return Poll::Ready(end);
            }
        }
    }

    /// Ends the wait after this time.
    pub fn finish(self, waited: Duration) -> (Arc<JavaChannel>, End) {
        let end = match self.started {
            StartedCall::Connect(operation) => operation.finish(waited).map(EndedWith::Connected),
            StartedCall::Get(operation) => operation.finish(waited).map(EndedWith::Reading),
            StartedCall::Put(operation) => operation.finish(waited).map(|()| EndedWith::Nothing),
            StartedCall::Structure(operation) => operation.finish(waited).map(EndedWith::Structure),
            StartedCall::Describe(operation) => operation.finish(waited).map(EndedWith::Type),
        };
        (self.target, end)
    }

    pub fn target(&self) -> &JavaChannel {
        &self.target
    }
}

impl StartedCall {
    fn of(
        target: &JavaChannel,
        what: What,
        input: &mut InputReader<'_>,
        is_driven: bool,
    ) -> Result<StartedCall, JavaFailure> {
        let channel = &target.channel;
        Ok(match what {
            What::Connect => StartedCall::Connect(channel.start_connect()),
            What::GetAny if target.is_structure.load(Ordering::Relaxed) => {
                StartedCall::Structure(channel.start_get_structure(PvRequest::default()))
            }
            What::Get | What::GetAny => match (request(input)?, is_driven) {
                (request, true) => StartedCall::Get(channel.start_driven_get(request)),
                (request, false) => StartedCall::Get(channel.start_get(request)),
            },
            What::Put => match input.node()? {
                NodeValue::Value(value) => StartedCall::Put(channel.start_put(value)),
                _ => return Err(JavaFailure::misuse("", "a structure is written by its fields: use putFields")),
            },
            What::PutUnconfirmed => StartedCall::Put(channel.start_put_unconfirmed(input.value()?)),
            What::GetStructure => StartedCall::Structure(channel.start_get_structure(pv_request(&input.text()?)?)),
            What::PutStructure => {
                let request = pv_request(&input.text()?)?;
                let n = input.count(5)?;
                let fields = (0..n).map(|_| Ok((input.text()?, input.node()?))).collect::<Result<_, InvalidInput>>()?;
                StartedCall::Put(channel.start_put_structure(request, fields))
            }
            What::Call => StartedCall::Structure(channel.start_call(input.structure()?)),
            What::Describe => StartedCall::Describe(channel.start_describe(&input.text()?)),
            What::Process => StartedCall::Put(channel.start_process()),
        })
    }
}

/// Writes how an operation on this channel has ended.
pub fn write_end(out: &mut ReplyWriter, target: &JavaChannel, end: &End) {
    match end {
        Ok(EndedWith::Connected(facts)) => {
            out.reply(ReplyTag::Info);
            out.info_body(target.protocol, facts);
        }
        Ok(EndedWith::Reading(reading)) => out.reading(reading),
        Ok(EndedWith::Structure(structure)) => out.structure(structure),
        Ok(EndedWith::Type(kind)) => out.structure_type(kind),
        Ok(EndedWith::Nothing) => out.reply(ReplyTag::Nothing),
        Err(error) => out.failure(&error.into()),
    }
}
