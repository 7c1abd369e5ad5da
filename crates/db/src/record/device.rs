//! Device support: what DTYP selects, and how the record types that share it read and write values.

use fodo_data::{Kind, Status, Text, TimeStamp, Value};

pub(crate) use crate::device::{DeviceSupport, stream};
use crate::link::Link;
use crate::menu::{INVALID, MAJOR};
use crate::process::step::{Element, LinkError, ProcessOutcome, Step};
use crate::record::simulation::{self, InputSource, Simulated, input_source};
use crate::record::{Record, program};
use crate::strftime::strftime;

/// The result of reading an input.
#[derive(Debug, PartialEq)]
enum InputValue<T> {
    /// INP is empty or constant: the value does not change.
    Nothing,
    Value(T),
    /// Reading failed; the alarm is raised.
    Failed,
    /// The record that INP processes has not completed; this record is called again then.
    Waiting,
}

/// The result of reading the input of a record with a raw value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadResult {
    /// RVAL was read and has to be converted to VAL.
    Raw,
    /// VAL was read.
    Value,
    /// Reading failed; the alarm is raised.
    Failed,
}

/// The input of a record; [`input_fields!`] implements it.
pub(crate) trait InputFields: Simulated + Sized {
    /// The type that INP is read as.
    type Value: Element;
    /// The type that SIOL is read as.
    type SimulatedValue: Element;

    /// INP.
    fn input(&self) -> &Link;
}

macro_rules! input_fields {
    ($record:ident, $value:ty, simulated: $simulated:ty) => {
        impl $crate::record::device::InputFields for $record {
            type Value = $value;
            type SimulatedValue = $simulated;

            fn input(&self) -> &$crate::link::Link {
                &self.input
            }
        }
    };
}

pub(crate) use input_fields;

/// A record that reads a value through INP.
pub(crate) trait InputRecord: InputFields {
    /// Stores the value that `device` has read; `None`: INP is empty or constant.
    fn store(&mut self, value: Option<Self::Value>, device: DeviceSupport);

    /// Sets SVAL to the value of SIOL, unless SIOL is constant, and takes it as raw value or as value.
    fn simulate(&mut self, value: Option<Self::SimulatedValue>, is_raw: bool);

    /// Reads INP into the raw value, for Raw Soft Channel.
    fn read_raw(_step: &mut Step<'_, '_, Self>) -> Result<(), LinkError> {
        Ok(())
    }

    /// Called when INP cannot be read.
    fn read_failed(&mut self) {}

    /// Converts what was read, raises alarms and posts. `before`: the previous time stamp.
    fn finish(step: &mut Step<'_, '_, Self>, read: ReadResult, before: TimeStamp);
}

/// Processes an input record.
pub(crate) fn process<R: InputRecord>(step: &mut Step<'_, '_, R>) -> ProcessOutcome {
    let before = step.lock().common().time;
    match read(step) {
        Ok(read) => {
            R::finish(step, read, before);
            ProcessOutcome::done(read != ReadResult::Failed)
        }
        Err(waiting) => waiting,
    }
}

/// Reads INP, or SIOL in simulation mode, and sets the time stamp. `Err`: the record waits.
fn read<R: InputRecord>(step: &mut Step<'_, '_, R>) -> Result<ReadResult, ProcessOutcome> {
    let read = match input_source::<R, R::SimulatedValue>(step) {
        InputSource::Device => {
            let read = read_device(step).ok_or(ProcessOutcome::Waiting)?;
            simulation::stamp(step);
            program::stamp_input(step);
            return Ok(read);
        }
        InputSource::Simulation { value, is_raw } => {
            let record = step.lock();
            record.simulate(value, is_raw);
            record.common().undefined = 0;
            if is_raw { ReadResult::Raw } else { ReadResult::Value }
        }
        InputSource::Failed => ReadResult::Failed,
        InputSource::Waiting(delay_s) => return Err(step.complete_after(delay_s)),
    };
    simulation::stamp(step);
    Ok(read)
}

/// Reads INP. `None`: the record that INP processes has not completed; this record is called again then.
fn read_device<R: InputRecord>(step: &mut Step<'_, '_, R>) -> Option<ReadResult> {
    let device = DeviceSupport::of(step.lock());
    if device == DeviceSupport::Raw {
        return Some(R::read_raw(step).map_or(ReadResult::Failed, |()| ReadResult::Raw));
    }
    match fetch(step, device) {
        InputValue::Nothing => step.lock().store(None, device),
        InputValue::Value(value) => step.lock().store(Some(value), device),
        InputValue::Failed => {
            step.lock().read_failed();
            return Some(ReadResult::Failed);
        }
        InputValue::Waiting => return None,
    }
    if device == DeviceSupport::Environment {
        check_environment(step, R::input);
    }
    Some(ReadResult::Value)
}

/// Reads INP for Soft Channel and Async Soft Channel, and takes the time stamp of the source if TSE requests that.
fn fetch<R: InputRecord, T: Element>(step: &mut Step<'_, '_, R>, device: DeviceSupport) -> InputValue<T> {
    let is_async = device == DeviceSupport::Async;
    if device == DeviceSupport::Program {
        let element = |value: Value| value.to_kind(T::KIND, None).ok().and_then(|value| value.first()).and_then(T::of);
        return match program::read(step) {
            Ok(None) => InputValue::Nothing,
            Ok(Some(value)) => element(value).map_or(InputValue::Failed, InputValue::Value),
            Err(LinkError) => InputValue::Failed,
        };
    }
    if let Some(value) = value_without_link(step, device, T::KIND) {
        let value = value.to_kind(T::KIND, None).ok().and_then(|value| value.first()).and_then(T::of);
        return value.map_or(InputValue::Failed, InputValue::Value);
    }
    let first = |value: Value| value.first().and_then(T::of).ok_or(LinkError);
    let fetched = match is_async {
        true if !step.is_completion && step.process_and_wait(R::input) => return InputValue::Waiting,
        true => step.read_link_only(R::input, T::KIND).and_then(|value| value.map(first).transpose()),
        false => step.read_link("INP", R::input),
    };
    match fetched {
        Ok(None) => InputValue::Nothing,
        Ok(Some(value)) => {
            step.stamp_from(R::input);
            InputValue::Value(value)
        }
        Err(LinkError) => {
            if is_async {
                // As in Base, Soft Channel raises LINK, and Async Soft Channel READ.
                step.lock().common().raise(Status::READ, INVALID);
            }
            InputValue::Failed
        }
    }
}

/// The value from a device support that does not read through a link.
fn value_without_link<R: InputRecord>(step: &mut Step<'_, '_, R>, device: DeviceSupport, kind: Kind) -> Option<Value> {
    let address = step.lock().input().address();
    match device {
        DeviceSupport::Timestamp => {
            step.stamp(None);
            let time = step.lock().common().time;
            Some(match kind {
                Kind::Text => strftime(&address.to_str(), time, &step.site().zone(time)).as_str().into(),
                _ => seconds(time).into(),
            })
        }
        DeviceSupport::GeneralTime => Some(match kind {
            // The only time provider, as in an IOC of EPICS Base without time hardware.
            Kind::Text if address.to_str().eq_ignore_ascii_case("TOPTCP") => "OS Clock".into(),
            Kind::Text => {
                // No provider has been asked for the time yet.
                step.lock().common().raise(Status::READ, MAJOR);
                "No working providers".into()
            }
            Kind::F64 => seconds(step.now()).into(),
            // The providers have no errors to count.
            _ => 0_i32.into(),
        }),
        DeviceSupport::State => Some(u16::from(step.state(&address)).into()),
        DeviceSupport::Environment => Some(step.site().variable(&address.to_str()).unwrap_or(Text::EMPTY).into()),
        DeviceSupport::Soft | DeviceSupport::Raw | DeviceSupport::Async | DeviceSupport::Stdio => None,
        DeviceSupport::Program | DeviceSupport::ProgramOutput => None,
    }
}

/// Raises the alarm of an environment variable that is not set, after VAL has become empty.
pub(crate) fn check_environment<R: Record>(step: &mut Step<'_, '_, R>, link: impl Fn(&R) -> &Link) {
    let device = DeviceSupport::of(step.lock());
    let address = link(step.lock()).address();
    if device == DeviceSupport::Environment && step.site().variable(&address.to_str()).is_none() {
        let record = step.lock();
        let common = record.common();
        let severity = common.undefined_severity;
        common.undefined = 1;
        common.raise_with_message(Status::UDF, severity, "No such ENV".into());
    }
}

/// Seconds since the EPICS epoch.
fn seconds(time: TimeStamp) -> f64 {
    f64::from(time.epics_seconds()) + f64::from(time.nanos) * 1e-9
}
