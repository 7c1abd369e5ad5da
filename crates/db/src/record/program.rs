//! Program: the device support whose values the program sets and takes, while a record is processed.

use fodo_data::{Status, Text, Value};

use crate::device::DeviceSupport;
use crate::menu::INVALID;
use crate::process::program::ProgramMark;
use crate::process::step::{Element, LinkError, ProcessOutcome, Step};
use crate::program::OutputResult;
use crate::record::Record;
use crate::record::array::{self, ArrayRecord};
use crate::record::output::{OutputRecord, WriteResult};
use crate::record::simulation::{self, Simulated};

/// Reads the value that the program set last, and raises its alarm. `Ok(None)`: the program has not set a value, so the
/// record keeps its initial value. `Err`: it has none; the alarm is raised.
pub(crate) fn read<R: Record>(step: &mut Step<'_, '_, R>) -> Result<Option<Value>, LinkError> {
    let (program, record) = step.program();
    let newest = program.input(record).cloned();
    let common = step.lock().common();
    if let Some(newest) = &newest {
        newest.mark.raise(common);
    }
    let value = newest.and_then(|newest| newest.value);
    if value.is_none() && common.undefined != 0 {
        common.raise_with_message(Status::UDF, common.undefined_severity, "not set by the program".into());
        return Err(LinkError);
    }
    Ok(value)
}

/// As [`read`], for a text.
pub(crate) fn read_text<R: Record>(step: &mut Step<'_, '_, R>) -> Result<Option<Text>, LinkError> {
    Ok(read(step)?.and_then(|value| value.first()).and_then(Text::of))
}

/// Sets the time stamp to that of the value which the program set, if TSE allows that.
pub(crate) fn stamp_input<R: Record>(step: &mut Step<'_, '_, R>) {
    if DeviceSupport::of(step.lock()) != DeviceSupport::Program {
        return;
    }
    let (program, record) = step.program();
    if let Some(mark) = program.input(record).map(|newest| newest.mark.clone()) {
        mark.stamp(step.lock().common());
    }
}

/// Takes alarm and time of an output whose value the program has set.
pub(crate) fn take_set<R: Record>(step: &mut Step<'_, '_, R>) -> Option<ProgramMark> {
    if step.lock().common().device == 0 {
        return None;
    }
    let (program, record) = step.program();
    program.take_set(record)
}

/// Instead of writing a value that the program has set: raises its alarm, and that of a write which the program refused
/// meanwhile.
pub(crate) fn accept_set<R: Record>(step: &mut Step<'_, '_, R>, set: &ProgramMark) -> bool {
    set.raise(step.lock().common());
    is_written(step)
}

/// Hands the value of an output to the program; when it has handled the value, raises the alarm of a refusal.
pub(crate) fn write<R: OutputRecord>(step: &mut Step<'_, '_, R>) -> WriteResult {
    if step.is_completion {
        return WriteResult::Done { is_ok: is_written(step) };
    }
    let value = step.lock().value_to_write();
    match value.is_some_and(|value| step.hand_to_program(value)) {
        true => WriteResult::Waiting(ProcessOutcome::Waiting),
        false => WriteResult::Done { is_ok: true },
    }
}

/// Whether the program has accepted the value. If it has refused it, raises the alarm.
fn is_written<R: Record>(step: &mut Step<'_, '_, R>) -> bool {
    let (program, record) = step.program();
    let Some(OutputResult::Refused { message }) = program.take_result(record) else { return true };
    step.lock().common().raise_with_message(Status::WRITE, INVALID, message);
    false
}

/// Processes a waveform whose value the program takes. It has no simulation mode.
pub(crate) fn process_array<R: ArrayRecord + Simulated>(step: &mut Step<'_, '_, R>) -> ProcessOutcome {
    let set = take_set(step);
    let is_ok = match &set {
        Some(set) => accept_set(step, set),
        None if step.is_completion => is_written(step),
        None => {
            let value = Value::Array(step.lock().posting().value.clone());
            if step.hand_to_program(value) {
                return ProcessOutcome::Waiting;
            }
            true
        }
    };
    step.lock().common().undefined = 0;
    simulation::stamp(step);
    if let Some(set) = &set {
        set.stamp(step.lock().common());
    }
    step.post(array::monitor);
    ProcessOutcome::done(is_ok)
}
