//! Device supports: what DTYP says, and the ways to a value that several record types share.

use fodo_data::{Status, Value};

use crate::link::Link;
use crate::record::Record;
use crate::step::{Broken, Element, Step};

/// The device supports of Base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// The value goes through a link as it is.
    Soft,
    /// The raw value does, and is converted.
    Raw,
    /// As Soft, and the record is done when all that the link started is.
    Async,
}

impl Device {
    /// What DTYP of a record says. A record type without devices is Soft.
    pub(crate) fn of(record: &mut dyn Record) -> Device {
        let number = record.common().device;
        match record.record_type().devices.get(usize::from(number)) {
            Some(&"Raw Soft Channel") => Device::Raw,
            Some(&"Async Soft Channel") => Device::Async,
            _ => Device::Soft,
        }
    }
}

/// What came of reading an input.
#[derive(Debug, PartialEq)]
pub(crate) enum Fetched<T> {
    /// INP is empty or constant: nothing changes.
    Nothing,
    Value(T),
    /// The alarm is raised.
    Failed,
    /// For what INP processes: the record will be completed.
    Waiting,
}

/// What a record with a raw value has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// RVAL is to be converted to VAL.
    Raw,
    /// VAL is there.
    Value,
    /// The alarm is raised.
    Failed,
    /// For what INP processes: the record will be completed.
    Waiting,
}

impl Read {
    /// RVAL or VAL, as SIMM says.
    pub(crate) fn simulated(is_raw: bool) -> Read {
        if is_raw { Read::Raw } else { Read::Value }
    }
}

/// A record with INP.
pub(crate) trait Input: Record {
    fn input(&self) -> &Link;
}

/// Reads INP for Soft Channel and Async Soft Channel, and takes over its time where TSE says so.
pub(crate) fn fetch<R: Input, T: Element>(step: &mut Step<'_, '_, R>) -> Fetched<T> {
    let value = match fetch_value(step, T::KIND) {
        Fetched::Value(value) => value,
        Fetched::Nothing => return Fetched::Nothing,
        Fetched::Failed => return Fetched::Failed,
        Fetched::Waiting => return Fetched::Waiting,
    };
    match value.first().and_then(T::of) {
        Some(element) => Fetched::Value(element),
        None => {
            step.blame("INP");
            Fetched::Failed
        }
    }
}

/// As [`fetch`], all elements.
pub(crate) fn fetch_value<R: Input>(step: &mut Step<'_, '_, R>, kind: fodo_data::Kind) -> Fetched<Value> {
    let is_async = Device::of(&mut *step.lock()) == Device::Async;
    let fetched = match is_async {
        true if !step.is_completion && step.notify(R::input) => return Fetched::Waiting,
        true => step.fetch_only(R::input, kind),
        false => step.fetch_array("INP", R::input, kind),
    };
    match fetched {
        Ok(None) => Fetched::Nothing,
        Ok(Some(value)) => {
            step.stamp_from(R::input);
            Fetched::Value(value)
        }
        Err(Broken) => {
            if is_async {
                // Soft Channel blames the link, Async Soft Channel the reading, as in Base.
                step.lock().common().raise(Status::READ, 3);
            }
            Fetched::Failed
        }
    }
}
