//! Puts and calls that the program ends.

use std::sync::Arc;

use fodo_lock::Mutex;
use fodo_net::{Call, PutRefusal, Structure};

use super::ioc::OutputEnding;
use super::pv::HeldValue;
use super::queue::{ReceivedPut, ReceivedValue};
use crate::error::JavaFailure;

/// How a request ends.
pub enum HandlerResult {
    /// As requested: what was put is posted; a call has no result.
    Complete,
    /// Without a post.
    Quietly,
    Refuse(String),
    /// The PV keeps the value that it had.
    Restore,
    /// A call has a result.
    Result(Structure),
}

/// What waits for its end.
pub enum Ending {
    Put(Box<ReceivedPut>),
    Call(Box<Call>),
    Output(OutputEnding),
}

/// A request that the program ends. Dropped without an end, it is refused.
pub struct JavaRequest(Mutex<Option<Ending>>);

impl JavaRequest {
    pub fn new(ending: Ending) -> Arc<JavaRequest> {
        Arc::new(JavaRequest(Mutex::new(Some(ending))))
    }

    pub fn is_open(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Returns false if it had ended.
    pub fn end(&self, end: HandlerResult) -> Result<bool, JavaFailure> {
        let Some(ending) = self.0.lock().take() else { return Ok(false) };
        match ending {
            Ending::Put(put) => end_put(*put, end)?,
            Ending::Call(call) => match end {
                HandlerResult::Refuse(reason) => call.refuse(reason),
                HandlerResult::Result(mut result) => {
                    result.mark_only([0].into_iter().collect());
                    call.complete(result);
                }
                HandlerResult::Complete | HandlerResult::Quietly | HandlerResult::Restore => {
                    call.complete_without_result()
                }
            },
            Ending::Output(output) => match end {
                HandlerResult::Refuse(reason) => output.refuse(&reason),
                HandlerResult::Restore => output.restore(),
                HandlerResult::Complete | HandlerResult::Quietly | HandlerResult::Result(_) => output.complete(),
            },
        }
        Ok(true)
    }
}

fn end_put(put: ReceivedPut, end: HandlerResult) -> Result<(), JavaFailure> {
    let ReceivedPut { entry, value, completion, .. } = put;
    match end {
        HandlerResult::Refuse(reason) => {
            completion.into_iter().for_each(|put| put.refuse(PutRefusal::Rejected(reason.clone())));
            return Ok(());
        }
        HandlerResult::Complete => {
            let posted = match (&entry.pv.value, value) {
                (HeldValue::Flat(flat), ReceivedValue::Flat(value)) => {
                    flat.post_put(value);
                    Ok(())
                }
                (HeldValue::Structured(shared, _), ReceivedValue::Structure(change)) => {
                    shared.post(&change).map_err(|error| error.to_string())
                }
                _ => Err("the value is not of the type of the PV".to_owned()),
            };
            if let Err(reason) = posted {
                completion.into_iter().for_each(|put| put.refuse(PutRefusal::Rejected(reason.clone())));
                return Err(JavaFailure::misuse(&entry.name, reason));
            }
        }
        HandlerResult::Quietly | HandlerResult::Restore | HandlerResult::Result(_) => {}
    }
    completion.into_iter().for_each(fodo_net::Completion::complete);
    Ok(())
}
