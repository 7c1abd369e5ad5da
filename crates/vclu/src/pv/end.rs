//! The CLU behind the PVs: in this process or on the network.

use std::sync::Arc;

use fodo_clu::script::CluItem;
use fodo_clu::value::parse_value;
use fodo_data::Scalar;
use fodo_net::clu::{Answer, CluConnection, CluRequest, RequestOutcome, SubmitError};

use super::tasks::OneReply;
use crate::actor::VirtualClu;
use crate::engine::request::{ReplyTo, VcluRequest};
use crate::engine::subscription::FetchItem;
use crate::limit::FETCH_PVS_BYTES_MAX;
use crate::object::ObjectError;
use crate::value::LuaValue;

/// The CLU whose objects are PVs. [`CluPvConfig`](crate::CluPvConfig) has an example.
#[derive(Clone)]
pub enum CluEnd {
    /// A virtual CLU in this process.
    Process(Arc<VirtualClu>),
    /// A CLU on the network.
    Network(CluConnection),
}

/// What a PV reads, sets or calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ValueItem {
    /// A feature of an object.
    Feature { object: String, index: u32 },
    /// A user variable.
    Variable(String),
    /// How often an event of an object was fired.
    Event { object: String, address: u32 },
    /// A method of an object, with at most one argument.
    Method { object: String, index: u32, has_argument: bool },
    /// The colour of an LED: the values with its parts, by their indices among all.
    Colour { object: String, parts: Vec<usize> },
}

impl ValueItem {
    /// The name of its object in Lua.
    pub(super) fn object(&self) -> Option<&str> {
        match self {
            ValueItem::Feature { object, .. }
            | ValueItem::Event { object, .. }
            | ValueItem::Method { object, .. }
            | ValueItem::Colour { object, .. } => Some(object),
            ValueItem::Variable(_) => None,
        }
    }
}

/// What is known after a CLU has answered a request to set a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetReply {
    /// The CLU has taken the value.
    Taken,
    /// The CLU has answered `nil`, as for an error too: the value must be read back.
    Unconfirmed,
}

impl CluEnd {
    /// Sets a feature or a variable.
    pub(super) async fn set(&self, item: &ValueItem, value: &Scalar) -> Result<SetReply, String> {
        match self {
            CluEnd::Process(clu) => set_in_process(clu, item, value).await,
            CluEnd::Network(connection) => {
                let item = listed(item).ok_or(NOT_A_NAME)?;
                let outcome = started(connection.start(CluRequest::Set(&item, value)))?.await;
                Ok(if answered(outcome)?.is_some() { SetReply::Taken } else { SetReply::Unconfirmed })
            }
        }
    }

    /// The current values; `None` is `nil`.
    pub(super) async fn read(&self, items: &[&ValueItem]) -> Result<Vec<Option<Scalar>>, String> {
        match self {
            CluEnd::Process(clu) => {
                let items = items.iter().map(|item| fetched(item)).collect();
                let request = |reply| VcluRequest::Fetch { items, bytes_max: FETCH_PVS_BYTES_MAX, reply };
                Ok(replied(clu, request).await?.into_iter().map(scalar_of).collect())
            }
            CluEnd::Network(connection) => match items {
                [item] => {
                    let item = listed(item).ok_or(NOT_A_NAME)?;
                    let outcome = started(connection.start(CluRequest::Get(&item)))?.await;
                    Ok(vec![answered(outcome)?])
                }
                items => {
                    let items: Option<Vec<CluItem>> = items.iter().map(|item| listed(item)).collect();
                    let request = CluRequest::Fetch(&items.ok_or(NOT_A_NAME)?);
                    match started(connection.start(request))?.await {
                        RequestOutcome::Answered(Answer::Values(values)) => Ok(values),
                        outcome => answered(outcome).and(Err("the CLU does not know one of the values".into())),
                    }
                }
            },
        }
    }

    /// Calls a method; returns its value.
    pub(super) async fn call(&self, object: &str, method: u32, arguments: &[Scalar]) -> Result<Option<Scalar>, String> {
        match self {
            CluEnd::Process(clu) => {
                let (object, arguments) = (object.to_string(), arguments.iter().map(lua_of).collect());
                let method = u16::try_from(method).map_err(|_| "the index of the method is too large")?;
                let request = |reply| VcluRequest::Call { object, method, arguments, reply };
                replied(clu, request).await?.map(scalar_of).map_err(|error| error.to_string())
            }
            CluEnd::Network(connection) => {
                let outcome = started(connection.start(CluRequest::Call { object, method, arguments }))?.await;
                answered(outcome)
            }
        }
    }

    /// Whether the scripts of a CLU in this process run, and not those of emergency mode.
    pub(super) async fn is_alive(clu: &VirtualClu) -> Result<bool, String> {
        let request = |reply| VcluRequest::Execute { script: "checkAlive()".into(), reply };
        let answer = replied(clu, request).await?;
        Ok(!answer.is_error && answer.text != "emergency" && answer.text != "nil")
    }

    /// The objects of a CLU in this process with the numbers of their classes, without those that it does not have.
    pub(super) async fn classes(clu: &VirtualClu) -> Result<Vec<(String, u32)>, String> {
        let listed = replied(clu, |reply| VcluRequest::List { reply }).await?;
        Ok(listed.into_iter().filter_map(|listing| Some((listing.name, listing.class?.number))).collect())
    }
}

const NOT_A_NAME: &str = "the name of the object is not a name in Lua";

async fn set_in_process(clu: &VirtualClu, item: &ValueItem, value: &Scalar) -> Result<SetReply, String> {
    match item {
        ValueItem::Feature { object, index } => {
            let feature = u16::try_from(*index).map_err(|_| "the index of the feature is too large")?;
            let (object, value) = (object.clone(), lua_of(value));
            let set: Result<(), ObjectError> =
                replied(clu, |reply| VcluRequest::Set { object, feature, value, reply }).await?;
            set.map(|()| SetReply::Taken).map_err(|error| error.to_string())
        }
        item => {
            let mut script = Vec::new();
            listed(item).ok_or(NOT_A_NAME)?.write_set(value, &mut script);
            let script = String::from_utf8_lossy(&script).into_owned();
            let answer = replied(clu, |reply| VcluRequest::Execute { script, reply }).await?;
            if answer.is_error { Err("the script of the variable failed".into()) } else { Ok(SetReply::Unconfirmed) }
        }
    }
}

/// The reply of a CLU in this process.
async fn replied<T: Send + 'static>(
    clu: &VirtualClu,
    request: impl FnOnce(ReplyTo<T>) -> VcluRequest,
) -> Result<T, String> {
    let (reply, send) = OneReply::new();
    if clu.submit(request(ReplyTo::new(send))).is_err() {
        return Err("the virtual CLU accepts no requests: too many wait, or it has stopped".into());
    }
    reply.await.ok_or("the virtual CLU has stopped".into())
}

fn started<T>(operation: Result<T, SubmitError>) -> Result<T, String> {
    operation.map_err(|error| error.to_string())
}

/// The value in a reply of a CLU on the network; `None` is `nil`.
fn answered(outcome: RequestOutcome) -> Result<Option<Scalar>, String> {
    match outcome {
        RequestOutcome::Answered(Answer::Text(text)) => Ok(parse_value(text.as_bytes())),
        RequestOutcome::Answered(_) => Ok(None),
        RequestOutcome::Nil => Ok(None),
        RequestOutcome::Wrong(reply) => Err(format!("the CLU sent an invalid reply: \"{reply}\"")),
        RequestOutcome::Refused => Err("the CLU refused the request".into()),
        RequestOutcome::TimedOut { .. } => Err("the CLU did not answer".into()),
        RequestOutcome::Cancelled => Err("the connection to the CLU was closed".into()),
    }
}

/// The item of a subscription; `None` for what a CLU on the network does not list.
pub(super) fn listed(item: &ValueItem) -> Option<CluItem> {
    match item {
        ValueItem::Feature { object, index } => CluItem::feature(object, *index),
        ValueItem::Variable(name) => CluItem::variable(name),
        ValueItem::Event { .. } | ValueItem::Method { .. } | ValueItem::Colour { .. } => None,
    }
}

fn fetched(item: &ValueItem) -> FetchItem {
    let number = |index: &u32| u16::try_from(*index).ok();
    match item {
        ValueItem::Feature { object, index } => {
            number(index).map_or(FetchItem::Unknown, |index| FetchItem::Feature { object: object.clone(), index })
        }
        ValueItem::Event { object, address } => {
            number(address).map_or(FetchItem::Unknown, |address| FetchItem::Event { object: object.clone(), address })
        }
        ValueItem::Variable(name) => FetchItem::Variable(name.clone()),
        ValueItem::Method { .. } | ValueItem::Colour { .. } => FetchItem::Unknown,
    }
}

fn scalar_of(value: LuaValue) -> Option<Scalar> {
    Some(match value {
        LuaValue::Nil => return None,
        LuaValue::Boolean(is_on) => Scalar::Bool(is_on),
        LuaValue::Number(number) => Scalar::F64(number),
        LuaValue::Text(text) => Scalar::Text(text.into()),
        other => Scalar::Text(other.to_text(Default::default()).into()),
    })
}

fn lua_of(value: &Scalar) -> LuaValue {
    match value {
        Scalar::Text(text) => LuaValue::Text(text.to_str().into_owned()),
        Scalar::Bool(is_on) => LuaValue::Boolean(*is_on),
        value => value.to_f64().map_or(LuaValue::Nil, LuaValue::Number),
    }
}
