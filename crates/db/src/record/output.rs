//! What output records share: DOL, IVOA, and writing to the device or to SIOL in simulation mode.

use fodo_data::{Kind, Scalar, Status, Value};

use crate::link::{Link, Target};
use crate::menu::{CLOSED_LOOP, INVALID, RAW};
use crate::process::post::RecordPosts;
use crate::process::step::{Element, LinkError, ProcessOutcome, Step};
use crate::record::device::{DeviceSupport, stream};
use crate::record::simulation::{OutputTarget, Simulated, output_target, time_source};
use crate::record::{Record, program};

/// The fields of an output; [`output_fields!`] implements it.
pub(crate) trait OutputFields: Record + Sized {
    /// OUT.
    fn output(&self) -> &Link;

    /// OMSL and DOL.
    fn desired(&self) -> (u16, &Link);

    /// IVOA; 0 if the record does not have it.
    fn invalid_action(&self) -> u16;
}

macro_rules! output_fields {
    ($record:ident) => {
        $crate::record::output::output_fields!($record, |record| record.invalid_action);
    };
    ($record:ident, |$self:ident| $invalid_action:expr) => {
        impl $crate::record::output::OutputFields for $record {
            fn output(&self) -> &$crate::link::Link {
                &self.output
            }

            fn desired(&self) -> (u16, &$crate::link::Link) {
                (self.output_mode, &self.desired_output)
            }

            fn invalid_action(&self) -> u16 {
                let $self = self;
                $invalid_action
            }
        }
    };
}

pub(crate) use output_fields;

/// A record with an output.
pub(crate) trait OutputRecord: OutputFields + Simulated {
    /// Whether a failed write to OUT makes a link to this record fail. Some device supports of Base do not report it,
    /// and only the alarm shows the failure. Async Soft Channel always reports it.
    const REPORTS_WRITE_FAILURE: bool = true;

    /// Whether a failed write to SIOL makes a link to this record fail.
    const REPORTS_SIMULATION_FAILURE: bool = true;

    /// Whether a failed read of DOL makes a link to this record fail even if OUT is written.
    const REPORTS_READ_FAILURE: bool = false;

    /// Sets the value to IVOV and converts it.
    fn use_invalid_value(&mut self);

    /// The value that Soft Channel writes.
    fn value(&self) -> Value;

    /// The raw value, for Raw Soft Channel and for SIMM RAW.
    fn raw_value(&self) -> Value {
        self.value()
    }

    /// The value to write to SIOL.
    fn simulated_value(&mut self) -> Value {
        if *self.simulation().mode == RAW { self.raw_value() } else { self.value() }
    }

    /// The value to write to the device, raw or converted as it requires; `None`: write nothing this time.
    fn value_to_write(&mut self) -> Option<Value> {
        Some(if DeviceSupport::of(self) == DeviceSupport::Raw { self.raw_value() } else { self.value() })
    }

    /// Converts a value to what the link's target accepts; `None`: do not write it.
    fn to_target_kind(value: Value, _to: Option<Kind>) -> Option<Value> {
        Some(value)
    }

    /// Writes the value to the device.
    fn write(step: &mut Step<'_, '_, Self>) -> WriteResult {
        write_link(step)
    }

    /// Sets the value, that of DOL in closed loop mode, converts it and sets the time stamp. Returns whether that
    /// succeeded.
    fn prepare(step: &mut Step<'_, '_, Self>) -> bool;

    /// Raises the alarms of the value.
    fn check(&mut self) {}

    /// Sets the time stamp when an asynchronous write has completed.
    fn stamp_completion(step: &mut Step<'_, '_, Self>) {
        step.stamp(Some(Target::Constant));
    }

    /// Called after the output, before posting.
    fn finish(_step: &mut Step<'_, '_, Self>) {}

    /// Posts what has changed.
    fn monitor(&mut self, posts: &mut RecordPosts);
}

/// The result of an output.
pub(crate) enum WriteResult {
    /// Not written: the alarm and IVOA forbid it.
    Suppressed,
    /// Written, or there was nothing to write.
    Done { is_ok: bool },
    /// The record waits for completion.
    Waiting(ProcessOutcome),
}

/// Processes an output record.
pub(crate) fn process<R: OutputRecord>(step: &mut Step<'_, '_, R>) -> ProcessOutcome {
    let set = program::take_set(step);
    let mut is_ok = step.is_completion && set.is_none() || R::prepare(step);
    step.lock().check();
    let written = match &set {
        Some(set) => WriteResult::Done { is_ok: program::accept_set(step, set) },
        None => drive(step),
    };
    match written {
        WriteResult::Suppressed => {}
        WriteResult::Done { is_ok: is_written } => is_ok = is_written && (is_ok || !R::REPORTS_READ_FAILURE),
        WriteResult::Waiting(outcome) => return outcome,
    }
    if step.is_completion {
        R::stamp_completion(step);
    }
    R::finish(step);
    if let Some(set) = &set {
        set.stamp(step.lock().common());
    }
    step.post(R::monitor);
    ProcessOutcome::done(is_ok)
}

/// Reads DOL in closed loop mode. `Ok(None)`: the value does not change.
pub(crate) fn fetch_desired<R: OutputFields, T: Element>(step: &mut Step<'_, '_, R>) -> Result<Option<T>, LinkError> {
    fetch_desired_from(step, R::desired)
}

/// Like [`fetch_desired`], for a record with several outputs.
pub(crate) fn fetch_desired_from<R: Record, T: Element>(
    step: &mut Step<'_, '_, R>,
    mode_and_link: impl Fn(&R) -> (u16, &Link),
) -> Result<Option<T>, LinkError> {
    if is_closed_loop(mode_and_link(step.lock())) {
        step.read_link("DOL", |record| mode_and_link(record).1)
    } else {
        Ok(None)
    }
}

/// Reads DOL as [`fetch_desired`], and clears UDF. `None`: there is no value to convert, since DOL cannot be read or no
/// value was ever set; the alarm of the latter has a message.
pub(crate) fn fetch_defined<R: OutputFields, T: Element>(
    step: &mut Step<'_, '_, R>,
    message: &'static str,
) -> Option<Option<T>> {
    let value = fetch_desired(step).ok()?;
    let record = step.lock();
    let is_read = is_closed_loop(record.desired());
    let common = record.common();
    if common.undefined != 0 && !is_read {
        common.raise_with_message(Status::UDF, common.undefined_severity, message.into());
        return None;
    }
    common.undefined = 0;
    Some(value)
}

/// Whether the value is read from DOL: OMSL is closed_loop, and DOL is not a constant.
pub(crate) fn is_closed_loop((mode, link): (u16, &Link)) -> bool {
    mode == CLOSED_LOOP && !link.is_constant()
}

/// Sets the time stamp of an output; in simulation mode it is the present time.
pub(crate) fn stamp<R: Simulated>(step: &mut Step<'_, '_, R>) {
    let simulated = time_source(step).map(|_| Target::Constant);
    step.stamp(simulated);
}

/// Whether the alarm and IVOA allow an output. Calls `use_invalid_value` if IVOA requests IVOV.
pub(crate) fn may_write<R: Record>(
    record: &mut R,
    invalid_action: u16,
    use_invalid_value: impl FnOnce(&mut R),
) -> bool {
    const CONTINUE: u16 = 0;
    const USE_INVALID_VALUE: u16 = 2;
    if record.common().new_severity < INVALID {
        return true;
    }
    if invalid_action == USE_INVALID_VALUE {
        use_invalid_value(record);
    }
    [CONTINUE, USE_INVALID_VALUE].contains(&invalid_action)
}

/// Drives the output unless the alarm and IVOA forbid it.
fn drive<R: OutputRecord>(step: &mut Step<'_, '_, R>) -> WriteResult {
    let is_completion = step.is_completion;
    let record = step.lock();
    let invalid_action = record.invalid_action();
    let use_invalid_value = |record: &mut R| {
        if !is_completion {
            record.use_invalid_value();
        }
    };
    if !may_write(record, invalid_action, use_invalid_value) {
        return WriteResult::Suppressed;
    }
    let kind = step.kind_at(R::value_link);
    match output_target(step, |record| R::to_target_kind(record.simulated_value(), kind)) {
        OutputTarget::Device => R::write(step),
        OutputTarget::Simulated { is_ok } => WriteResult::Done { is_ok: is_ok || !R::REPORTS_SIMULATION_FAILURE },
        OutputTarget::Invalid => WriteResult::Done { is_ok: false },
        OutputTarget::Waiting(delay_s) => WriteResult::Waiting(step.complete_after(delay_s)),
    }
}

/// Writes the value through OUT (Soft Channel, Raw and Async Soft Channel), as a line (stdio), or to the program.
pub(crate) fn write_link<R: OutputRecord>(step: &mut Step<'_, '_, R>) -> WriteResult {
    let device = DeviceSupport::of(step.lock());
    if device == DeviceSupport::Program {
        return program::write(step);
    }
    let is_async = device == DeviceSupport::Async;
    if is_async && step.is_completion {
        return WriteResult::Done { is_ok: true };
    }
    let value = step.lock().value_to_write();
    if device != DeviceSupport::Stdio && step.lock().output().is_constant() {
        return WriteResult::Done { is_ok: true };
    }
    let kind = step.kind_at(R::output);
    if device == DeviceSupport::Stdio {
        let stream = stream(step.lock().output());
        if let (Some(Scalar::Text(line)), Some(stream)) = (value.as_ref().and_then(Value::first), stream) {
            step.print(stream, line);
        }
        return WriteResult::Done { is_ok: true };
    }
    let Some(value) = value.and_then(|value| R::to_target_kind(value, kind)) else {
        return WriteResult::Done { is_ok: true };
    };
    if is_async && step.write_link_with_completion(R::output, value.clone(), 0) {
        return WriteResult::Waiting(ProcessOutcome::Waiting);
    }
    let is_ok = step.write_link("OUT", R::output, value).is_ok();
    WriteResult::Done { is_ok: is_ok || !(R::REPORTS_WRITE_FAILURE || is_async) }
}
