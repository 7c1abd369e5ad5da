//! ReplyConversion of what a server sends to what the caller requested.

use fodo_data::{Kind, Reading, Text, Value};
use fodo_engine::Cid;
use fodo_pva::client::{Received, RequestError};
use fodo_pva::status::RequestStatus;

use super::CircuitEvent;
use crate::client::{Failure, OperationOutcome, Refusal, Request, WrongReply};

/// The type and length that a caller requested. Servers of pvAccess send a value in its own type and whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplyConversion {
    /// `None`: the kind of the server's value.
    kind: Option<Kind>,
    /// The maximum number of elements; 0: all.
    count_max: u32,
}

impl ReplyConversion {
    #[inline]
    pub(super) fn of(request: &Request) -> ReplyConversion {
        ReplyConversion { kind: request.kind, count_max: request.count }
    }

    /// Converts a reading.
    #[inline(always)]
    pub(super) fn apply(self, mut reading: Reading) -> Result<Reading, WrongReply> {
        if self != ReplyConversion::default() {
            reading.value = self.converted(&reading)?;
        }
        Ok(reading)
    }

    #[cold]
    fn converted(self, reading: &Reading) -> Result<Value, WrongReply> {
        let value = match &reading.value {
            Value::Array(array) if self.count_max != 0 && array.len() > self.count_max as usize => {
                Value::Array(array.truncated(self.count_max as usize))
            }
            value => value.clone(),
        };
        let received = value.kind();
        match self.kind {
            Some(requested) if requested != received => {
                value.to_kind(requested, reading.meta.as_deref()).map_err(|_| WrongReply::Kind { requested, received })
            }
            _ => Ok(value),
        }
    }

    /// The outcome of a get that has read this.
    #[inline(always)]
    pub(super) fn outcome_of(self, reading: Reading) -> Result<OperationOutcome, Failure> {
        self.apply(reading).map(OperationOutcome::Reading).map_err(Failure::WrongReply)
    }

    /// The outcome of a request of an operation. `is_put`: nothing is read.
    pub(super) fn outcome(
        self,
        is_put: bool,
        result: Result<Received, RequestError>,
    ) -> Result<OperationOutcome, Failure> {
        match result {
            Ok(_) if is_put => Ok(OperationOutcome::Written),
            Ok(received) => self.update(received).map(OperationOutcome::Reading).map_err(Failure::WrongReply),
            Err(error) => Err(failure(error)),
        }
    }

    /// The reading in what was received.
    #[inline(always)]
    pub(super) fn update(self, received: Received) -> Result<Reading, WrongReply> {
        match received {
            Received::Reading(reading) => self.apply(reading),
            Received::Structure(structure) => Err(WrongReply::Structure { id: structure.kind().id().clone() }),
            Received::None => Err(WrongReply::Structure { id: Text::EMPTY }),
        }
    }
}

/// Why a request failed.
#[cold]
pub(in crate::pva) fn failure(error: RequestError) -> Failure {
    match error {
        RequestError::Refused(status) => Failure::Refused(refusal(&status)),
        RequestError::NoSuchChannel | RequestError::NoSuchOperation => Failure::Disconnected,
        RequestError::TypesTooLarge => Failure::Refused(Refusal::Reported { text: error.to_string() }),
        RequestError::Value(_) => Failure::unsendable(error),
        RequestError::TooLarge => Failure::misuse(error.to_string(), "send fewer elements at once"),
        RequestError::QueueFull | RequestError::TooManyOperations | RequestError::OtherTask => {
            Failure::misuse(error.to_string(), "wait until some of them have ended")
        }
    }
}

/// The refusal that a server's status means.
#[cold]
pub(super) fn refusal(status: &RequestStatus) -> Refusal {
    Refusal::Reported { text: status.message.to_string() }
}

/// The event for a put without completion that failed; none if its channel has ended.
#[cold]
pub(super) fn refused_put(cid: Cid, failure: Failure) -> Option<CircuitEvent> {
    let refusal = match failure {
        Failure::Refused(refusal) => refusal,
        Failure::Misuse(misuse) => Refusal::Reported { text: format!("{}; {}", misuse.0, misuse.1) },
        Failure::WrongReply(reply) => Refusal::Reported { text: reply.to_string() },
        Failure::Disconnected | Failure::Closed => return None,
    };
    Some(CircuitEvent::PutRefused { cid, refusal })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fodo_data::{Array, Meta, Scalar};

    use super::*;

    fn converted(kind: Option<Kind>, count: u32, value: impl Into<Value>) -> Result<Value, WrongReply> {
        let meta = Meta { labels: vec!["off".into(), "on".into()], ..Meta::default() };
        let reading = Reading { meta: Some(Arc::new(meta)), ..Reading::bare(value.into()) };
        ReplyConversion::of(&Request { kind, count, ..Request::default() }).apply(reading).map(|reading| reading.value)
    }

    #[test]
    fn a_value_is_converted_to_the_requested_kind_and_length() {
        let numbers = vec![1.5, 2.5, 3.5];

        assert_eq!(converted(None, 0, numbers.clone()), Ok(numbers.clone().into()));
        assert_eq!(converted(None, 2, numbers.clone()), Ok(vec![1.5, 2.5].into()));
        assert_eq!(converted(None, 9, numbers.clone()), Ok(numbers.clone().into()));
        assert_eq!(converted(Some(Kind::I32), 1, numbers), Ok(Value::Array(Array::I32(Arc::new(vec![1])))));
        assert_eq!(converted(Some(Kind::F64), 2, 7), Ok(7.0.into()), "a count does not concern a scalar");
        assert_eq!(converted(Some(Kind::Text), 0, Value::Scalar(Scalar::Enum(1))), Ok("on".into()));
    }

    #[test]
    fn a_value_that_cannot_be_converted_is_a_wrong_reply() {
        let wrong = WrongReply::Kind { requested: Kind::F64, received: Kind::Text };

        assert_eq!(converted(Some(Kind::F64), 0, "open"), Err(wrong));
    }
}
