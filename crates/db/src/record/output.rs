//! What output records share: IVOA, and writing to the device or to SIOL in simulation mode.

use fodo_data::{Kind, Scalar, Value};

use crate::link::Link;
use crate::record::device::{Device, stream};
use crate::record::simulation::{Simulated, Sink, sink};
use crate::step::{Outcome, Step};

/// A record with an output.
pub(crate) trait Output: Simulated {
    /// Whether a failed write to OUT makes a link to this record fail. Some device supports of Base do not report it,
    /// and only the alarm shows the failure. Async Soft Channel always reports it.
    const TELLS_FAILURE: bool = true;

    /// OUT.
    fn output(&self) -> &Link;

    /// IVOA.
    fn invalid_action(&self) -> u16;

    /// Sets the value to IVOV and converts it.
    fn use_invalid_value(&mut self);

    /// The value to write to SIOL.
    fn simulated_value(&self) -> Value;

    /// The value to write to the device, raw or converted as it requires; `None`: write nothing this time.
    fn value_to_write(&mut self) -> Option<Value>;

    /// Converts a value to what the link's target accepts; `None`: do not write it.
    fn suited(value: Value, _to: Option<Kind>) -> Option<Value> {
        Some(value)
    }

    /// Writes the value to the device.
    fn write(step: &mut Step<'_, '_, Self>) -> Driven
    where
        Self: Sized,
    {
        write_link(step)
    }
}

/// The result of an output.
pub(crate) enum Driven {
    /// Not written: the alarm and IVOA forbid it.
    Not,
    /// Written; the flag says whether that succeeded.
    Done(bool),
    /// The record waits for completion.
    Waiting(Outcome),
}

/// Drives the output unless the alarm and IVOA forbid it.
pub(crate) fn drive<R: Output>(step: &mut Step<'_, '_, R>) -> Driven {
    let is_completion = step.is_completion;
    {
        let record = step.lock();
        if record.common().new_severity >= 3 {
            match record.invalid_action() {
                0 => {}
                2 if !is_completion => record.use_invalid_value(),
                2 => {}
                _ => return Driven::Not,
            }
        }
    }
    let kind = step.kind_at(R::value_link);
    match sink(step, |record| R::suited(record.simulated_value(), kind)) {
        Sink::Device => R::write(step),
        Sink::Done(is_well) => Driven::Done(is_well),
        Sink::Waiting(delay_s) => Driven::Waiting(step.complete_after(delay_s)),
    }
}

/// Writes the value through OUT (Soft Channel, Raw and Async Soft Channel), or as a line (stdio).
pub(crate) fn write_link<R: Output>(step: &mut Step<'_, '_, R>) -> Driven {
    let device = Device::of(step.lock());
    let is_async = device == Device::Async;
    if is_async && step.is_completion {
        return Driven::Done(true);
    }
    let value = step.lock().value_to_write();
    if device != Device::Stdio && step.lock().output().is_constant() {
        return Driven::Done(true);
    }
    let kind = step.kind_at(R::output);
    if device == Device::Stdio {
        let stream = stream(step.lock().output());
        if let (Some(Scalar::Text(line)), Some(stream)) = (value.as_ref().and_then(Value::first), stream) {
            step.print(stream, line);
        }
        return Driven::Done(true);
    }
    let Some(value) = value.and_then(|value| R::suited(value, kind)) else { return Driven::Done(true) };
    if is_async && step.drive_notifying(R::output, value.clone(), 0) {
        return Driven::Waiting(Outcome::Waiting);
    }
    let is_well = step.drive("OUT", R::output, value).is_ok();
    Driven::Done(is_well || !(R::TELLS_FAILURE || is_async))
}
