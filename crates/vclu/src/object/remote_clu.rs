//! RemoteCLU: another CLU of the project, whose scripts the own scripts call.
//!
//! A call waits for the reply in its coroutine: other requests, events and timers run meanwhile.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use fodo_clu::PORT;
use fodo_clu::cipher::CipherKey;
use fodo_clu::client::{Answer, CluRequest, RequestOutcome};
use fodo_net::clu::{CluConnection, CluConnectionConfig, CluOperation};

use super::world::Ticket;
use super::{CluObject, ObjectClass, ObjectContext, ObjectError, ObjectMethod, Parameter, ValueKind};
use crate::limit::{REMOTE_CALLS_MAX, REMOTE_TIMEOUT};
use crate::log::{LogSeverity, count};
use crate::remote::PeerClu;
use crate::value::{LuaValue, parse_reply};

pub(crate) static CLASS: ObjectClass = ObjectClass {
    number: 1,
    name: "RemoteCLU",
    version: 1,
    features: &[],
    methods: &[ObjectMethod::with(0, "execute", &[Parameter::new("Script", ValueKind::Text, "")])],
    events: &[],
    create: |context| Box::new(RemoteClu::new(context)),
};

struct RemoteClu {
    address: SocketAddr,
    /// `None`: the key of the project.
    key: Option<CipherKey>,
    /// With the key that it uses.
    connection: Option<(CipherKey, CluConnection)>,
    calls: Vec<RemoteCall>,
    waker: Waker,
}

/// A script that the other CLU executes.
struct RemoteCall {
    ticket: Ticket,
    operation: CluOperation,
}

impl RemoteClu {
    fn new(context: &mut ObjectContext<'_>) -> RemoteClu {
        let in_constructor = context.world.peer_address.take().unwrap_or(Ipv4Addr::UNSPECIFIED);
        let peer = context.world.peers.find(&context.name());
        let PeerClu { address, key } =
            peer.unwrap_or(PeerClu { address: SocketAddr::new(IpAddr::V4(in_constructor), PORT), key: None });
        context.world.peers.note(context.name(), PeerClu { address, key: key.clone() });
        RemoteClu { address, key, connection: None, calls: Vec::new(), waker: context.waker() }
    }

    /// The connection, opened again after a change of the key.
    fn connection(&mut self, context: &ObjectContext<'_>) -> Result<CluConnection, ObjectError> {
        let key = self.key.clone().or_else(|| context.world.peers.project_key());
        let key = key.ok_or_else(|| failed("this CLU has no key for it".into()))?;
        if let Some((used, connection)) = &self.connection
            && *used == key
        {
            return Ok(connection.clone());
        }
        let mut config = CluConnectionConfig::new(self.address, key.clone());
        config.checks_availability = false;
        config.timeout = REMOTE_TIMEOUT;
        let connection = CluConnection::open(config)
            .map_err(|error| failed(format!("no connection to {} can be opened: {error}", self.address)))?;
        self.connection = Some((key, connection.clone()));
        Ok(connection)
    }

    /// The value of a reply; `nil` with a reason in the log if there is none.
    fn value(&self, outcome: RequestOutcome, context: &ObjectContext<'_>) -> LuaValue {
        let reason = match outcome {
            RequestOutcome::Answered(Answer::Text(text)) => return parse_reply(&text.to_str()),
            RequestOutcome::Nil => return LuaValue::Nil,
            RequestOutcome::Answered(_) | RequestOutcome::Wrong(_) => "sent an invalid reply".to_string(),
            RequestOutcome::Refused => "refused the script".to_string(),
            RequestOutcome::TimedOut { was_sent: true } => format!("did not reply within {REMOTE_TIMEOUT:?}"),
            RequestOutcome::TimedOut { was_sent: false } => {
                format!("did not reply to earlier scripts within {REMOTE_TIMEOUT:?}, so that this one was not sent")
            }
            RequestOutcome::Cancelled => "did not receive the script: the connection was closed".to_string(),
        };
        count(&context.world.log.counters.remote_calls_failed);
        context.log(LogSeverity::Warning, &format!("{} {reason}", self.address));
        LuaValue::Nil
    }
}

impl CluObject for RemoteClu {
    fn get(&self, _index: u16, _context: &mut ObjectContext<'_>) -> LuaValue {
        LuaValue::Nil
    }

    fn set(&mut self, _index: u16, _value: LuaValue, _context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        Err(ObjectError::Unavailable)
    }

    fn call(
        &mut self,
        _index: u16,
        arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        let [LuaValue::Text(script)] = arguments else { return Err(failed("execute needs a script".into())) };
        context.check_wait()?;
        if self.calls.len() == REMOTE_CALLS_MAX {
            return Err(failed(format!("{REMOTE_CALLS_MAX} calls already wait for this CLU")));
        }
        let connection = self.connection(context)?;
        let operation = connection.start(CluRequest::Execute(script)).map_err(|error| failed(error.to_string()))?;
        count(&context.world.log.counters.remote_calls);
        self.calls.push(RemoteCall { ticket: context.wait(), operation });
        self.waker.wake_by_ref();
        Ok(LuaValue::Nil)
    }

    fn woken(&mut self, context: &mut ObjectContext<'_>) {
        let mut ended = Vec::new();
        self.calls.retain_mut(|call| match Pin::new(&mut call.operation).poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(outcome) => {
                ended.push((call.ticket, outcome));
                false
            }
            Poll::Pending => true,
        });
        for (ticket, outcome) in ended {
            let value = self.value(outcome, context);
            context.end_call(ticket, value);
        }
    }
}

fn failed(reason: String) -> ObjectError {
    ObjectError::Failed { reason }
}
