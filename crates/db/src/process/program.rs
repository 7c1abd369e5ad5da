//! Values that the program sets, and values of outputs that wait for the program.

use std::sync::Arc;

use fodo_data::{Alarm, Array, Kind, STRING_BYTES_MAX, Scalar, Status, Text, TimeStamp, Value, number_at_start};

use crate::common::{Common, row};
use crate::core::Core;
use crate::device::DeviceSupport;
use crate::error::PutError;
use crate::field::{Dbf, FieldInfo};
use crate::hash::RecordMap;
use crate::menu::{IO_INTERRUPT, NO_ALARM};
use crate::process::engine::EngineCall;
use crate::process::put::{PutOrigin, fitting};
use crate::program::{OutputId, OutputResult, ProgramDirection, ProgramError, ProgramValue};
use crate::reference::KindAndCount;

/// What the program and the records with DTYP Program exchange, by record.
#[derive(Debug, Default)]
pub(crate) struct ProgramValues {
    inputs: RecordMap<NewestInput>,
    outputs: RecordMap<ProgramOutput>,
    n_offered: u64,
    /// Initial values that no file can contain, until they are written to VAL.
    initial: Vec<(u32, Value)>,
}

/// What the program set last.
#[derive(Clone, Debug)]
pub(crate) struct NewestInput {
    /// Of the type of VAL; `None` until the program sets a value.
    pub(crate) value: Option<Value>,
    pub(crate) mark: ProgramMark,
}

/// Alarm and time of a value that the program set.
#[derive(Clone, Debug)]
pub(crate) struct ProgramMark {
    alarm: Alarm,
    message: Text,
    time: TimeStamp,
    /// Whether the program chose the time.
    is_time_given: bool,
}

/// An output of the program.
#[derive(Debug, Default)]
struct ProgramOutput {
    /// Whether the program takes its values; otherwise the record completes at once.
    is_taken: bool,
    /// The value that the program accepted or set last.
    accepted: Option<Value>,
    /// The value for which the record waits.
    offered: Option<(OutputId, Value)>,
    /// The result of the last one, until the record completes.
    result: Option<OutputResult>,
    /// The program has set VAL itself: alarm and time, until the record is processed.
    set: Option<ProgramMark>,
}

impl ProgramMark {
    fn of(value: &ProgramValue, now: TimeStamp) -> ProgramMark {
        ProgramMark {
            alarm: value.alarm,
            message: cut_message(&value.message),
            time: value.time.unwrap_or(now),
            is_time_given: value.time.is_some(),
        }
    }

    /// Raises the alarm.
    pub(crate) fn raise(&self, common: &mut Common) {
        common.raise_with_message(self.alarm.status, self.alarm.severity.code(), self.message.clone());
    }

    /// Sets the time stamp, if the record takes it from its device. EPICS requires TSE -2 for this; a time that the
    /// program chose is also used with TSE 0.
    pub(crate) fn stamp(&self, common: &mut Common) {
        let is_used = match common.time_event {
            -2 => true,
            0 => self.is_time_given,
            _ => false,
        };
        if is_used && common.time_link.is_constant() {
            common.time = self.time;
        }
    }
}

/// The part of a message that AMSG can store.
fn cut_message(message: &Text) -> Text {
    if message.len() <= STRING_BYTES_MAX {
        return message.clone();
    }
    let text = message.to_str();
    text.get(..text.floor_char_boundary(STRING_BYTES_MAX)).unwrap_or_default().into()
}

impl ProgramValues {
    pub(crate) fn set_initial(&mut self, values: Vec<(u32, Value)>) {
        self.initial = values;
    }

    /// From now on the program takes the values of an output.
    pub(crate) fn take_outputs(&mut self, record: u32) {
        self.outputs.entry(record).or_default().is_taken = true;
    }

    /// What the program set last for an input.
    pub(crate) fn input(&self, record: u32) -> Option<&NewestInput> {
        self.inputs.get(&record)
    }

    /// Takes alarm and time of an output whose VAL the program has set.
    pub(crate) fn take_set(&mut self, record: u32) -> Option<ProgramMark> {
        self.outputs.get_mut(&record)?.set.take()
    }

    /// Takes the result of an output.
    pub(crate) fn take_result(&mut self, record: u32) -> Option<OutputResult> {
        self.outputs.get_mut(&record)?.result.take()
    }

    /// Keeps the value of an output until the program has written it. Returns its number, and the value before it.
    /// `None`: the program does not take the values of this record.
    pub(crate) fn offer(&mut self, record: u32, value: Value) -> Option<(OutputId, Option<Value>)> {
        let output = self.outputs.entry(record).or_default();
        if !output.is_taken {
            output.accepted = Some(value);
            return None;
        }
        self.n_offered += 1;
        let number = OutputId(self.n_offered);
        (output.offered, output.result) = (Some((number, value)), None);
        Some((number, output.accepted.clone()))
    }
}

impl EngineCall<'_> {
    /// The program sets a value: an input stores it, and is processed if its SCAN is I/O Intr. An output shows it, and
    /// does not offer it to the program.
    pub(crate) fn set_by_program(&mut self, record: u32, value: ProgramValue) -> Result<(), ProgramError> {
        let Some(direction) = self.core.program_direction(record) else { return Err(ProgramError::NotProgram) };
        let mark = ProgramMark::of(&value, self.now.wall);
        let value = value.value.map(|value| self.core.fit(record, value)).transpose()?;
        match direction {
            ProgramDirection::Input => self.set_input(record, value, mark),
            ProgramDirection::Output => return self.set_output(record, value, mark),
        }
        Ok(())
    }

    fn set_input(&mut self, record: u32, value: Option<Value>, mark: ProgramMark) {
        let inputs = &mut self.engine.program.inputs;
        let value = value.or_else(|| inputs.get(&record).and_then(|newest| newest.value.clone()));
        inputs.insert(record, NewestInput { value, mark });
        let is_triggered = self.core.with(record, |body| body.common().scan == IO_INTERRUPT);
        if self.engine.is_started && is_triggered == Some(true) {
            self.process_for_change(record);
        }
    }

    fn set_output(&mut self, record: u32, value: Option<Value>, mark: ProgramMark) -> Result<(), ProgramError> {
        let (is_active, has_newer_put) = self.activity(record);
        if let Some(value) = value {
            // A newer put waits: the record offers its value to the program when it completes.
            if !has_newer_put {
                self.write_value(record, value.clone()).map_err(ProgramError::Put)?;
            }
            self.engine.program.outputs.entry(record).or_default().accepted = Some(value);
        }
        if !self.engine.is_started {
            return Ok(());
        }
        self.engine.program.outputs.entry(record).or_default().set = Some(mark);
        if !is_active {
            self.process(record);
            // A disabled record has not used it, and must not use it at the next put.
            drop(self.engine.program.take_set(record));
        }
        Ok(())
    }

    /// The program has handled the value of an output: the record completes. An outdated number is ignored.
    pub(crate) fn complete_output(&mut self, record: u32, number: OutputId, result: OutputResult) {
        let Some(output) = self.engine.program.outputs.get_mut(&record) else { return };
        let Some((_, value)) = output.offered.take_if(|(offered, _)| *offered == number) else { return };
        let before = output.accepted.clone();
        let result = match result {
            OutputResult::Refused { message } => OutputResult::Refused { message: cut_message(&message) },
            result => result,
        };
        match &result {
            OutputResult::Done if output.set.is_none() => output.accepted = Some(value),
            OutputResult::Restored if output.set.is_none() => {
                output.set = Some(ProgramMark::of(&ProgramValue::unchanged(), self.now.wall));
            }
            _ => {}
        }
        output.result = Some(result.clone());
        let (is_active, has_newer_put) = self.activity(record);
        if let (OutputResult::Restored, Some(before), false) = (result, before, has_newer_put) {
            // The record had this value before, so it accepts it.
            let _ = self.write_value(record, before);
        }
        if is_active {
            self.complete(record);
        }
    }

    /// Whether a record is active, and whether a put has arrived since it became active.
    fn activity(&self, record: u32) -> (bool, bool) {
        let activity = self.core.with(record, |body| {
            let common = body.common();
            (common.is_active != 0, common.is_active != 0 && common.reprocess != 0)
        });
        activity.unwrap_or_default()
    }

    fn write_value(&mut self, record: u32, value: Value) -> Result<(), PutError> {
        let Some(cell) = self.core.cell(record) else { return Err(PutError::ReadOnly) };
        self.write(record, cell.record_type().value, value, PutOrigin::Record)
    }

    /// Writes the initial values, once: before saved values are restored, or at the start.
    pub(crate) fn write_initial_values(&mut self) {
        for (record, value) in std::mem::take(&mut self.engine.program.initial) {
            // The loader has converted it.
            let _ = self.write_value(record, value);
        }
    }

    /// Before the first processing: clears the alarm of the records with DTYP Program whose value is defined.
    pub(crate) fn start_program(&mut self) {
        self.write_initial_values();
        let n_records = if self.core.has_program { self.core.records.len() as u32 } else { 0 };
        for record in 0..n_records {
            let Some(direction) = self.core.program_direction(record) else { continue };
            let now = self.now.wall;
            let value = self.core.with(record, |body| {
                let common = body.common();
                if common.undefined == 0 {
                    (common.status, common.severity, common.time) = (Status::NO_ALARM.0, NO_ALARM, now);
                }
                let field = body.record_type().value;
                body.slot(field).map(|slot| slot.value())
            });
            if direction == ProgramDirection::Output {
                self.engine.program.outputs.entry(record).or_default().accepted = value.flatten();
            }
        }
    }
}

impl Core {
    /// The direction of a record with DTYP Program; `None` for other records.
    pub(crate) fn program_direction(&self, record: u32) -> Option<ProgramDirection> {
        self.with(record, |body| DeviceSupport::of(body).program_direction(body.record_type())).flatten()
    }

    /// Converts a value to the type of the record's VAL. Unlike a put of a client, it must not be too long, and a number must
    /// remain the same.
    pub(crate) fn fit(&self, record: u32, value: Value) -> Result<Value, ProgramError> {
        let cell = self.cell(record).ok_or(ProgramError::NotProgram)?;
        let (kind, field) = (cell.record_type(), cell.record_type().value);
        let row = row(kind.rows, field).ok_or(ProgramError::NotProgram)?;
        if row.dbf == Dbf::Array {
            let KindAndCount { kind, count_max } =
                cell.own_kind_and_count(field).0.unwrap_or(KindAndCount { kind: Kind::F64, count_max: 1 });
            return fit_array(value, kind, count_max);
        }
        match &value {
            Value::Array(array) if array.len() > 1 => {
                return Err(ProgramError::TooLong { length: array.len(), max: 1 });
            }
            Value::Scalar(scalar) if scalar.kind() == row.dbf.kind() && row.dbf != Dbf::String => return Ok(value),
            _ => {}
        }
        let given = value.first().map(|given| if row.dbf == Dbf::String { shortest(given) } else { given });
        let value = given.clone().map_or(value, Value::Scalar);
        let value = self.to_field(record, field, &value).map_err(ProgramError::Put)?;
        if let (Some(given), Value::Scalar(stored)) = (&given, &value) {
            check_number(given, stored, None)?;
        }
        check_text(&value, row, cell.own_kind_and_count(field).1)?;
        Ok(value)
    }
}

/// Converts a value to an array of a kind. A text becomes characters if the array has characters.
fn fit_array(value: Value, kind: Kind, count_max: u32) -> Result<Value, ProgramError> {
    let value = match value {
        Value::Scalar(Scalar::Text(text)) if matches!(kind, Kind::I8 | Kind::U8) => {
            Value::Array(Array::U8(Arc::new([text.as_bytes(), &[0]].concat())))
        }
        value => value,
    };
    let (length, max) = (value.len(), count_max as usize);
    if length > max {
        return Err(ProgramError::TooLong { length, max });
    }
    if let Value::Array(Array::Text(texts)) = &value
        && let Some(long) = texts.iter().find(|text| text.len() > STRING_BYTES_MAX)
    {
        return Err(ProgramError::TooLong { length: long.len(), max: STRING_BYTES_MAX });
    }
    let given = match value.into_array() {
        reals @ (Array::F64(_) | Array::F32(_)) if kind == Kind::Text => {
            let texts = (0..reals.len()).filter_map(|index| match shortest(reals.scalar(index)?) {
                Scalar::Text(text) => Some(text),
                _ => None,
            });
            Array::Text(Arc::new(texts.collect()))
        }
        array => array,
    };
    let stored = fitting(Value::Array(given.clone()), kind, count_max).map_err(ProgramError::Put)?;
    // A byte is a character with or without a sign.
    let are_bytes = matches!((given.kind(), kind), (Kind::I8 | Kind::U8, Kind::I8 | Kind::U8));
    if given.kind() != kind && !are_bytes {
        for index in 0..given.len() {
            if let (Some(given), Some(stored)) = (given.scalar(index), stored.scalar(index)) {
                check_number(&given, &stored, Some(index))?;
            }
        }
    }
    Ok(Value::Array(stored))
}

/// A floating point number as its shortest text that is parsed to the same number. A put of a client rounds it.
fn shortest(given: Scalar) -> Scalar {
    match given {
        Scalar::F64(number) => Scalar::Text(format!("{number:?}").into()),
        Scalar::F32(number) => Scalar::Text(format!("{number:?}").into()),
        other => other,
    }
}

/// Fails if a number would be stored as another one. A number of 32 bits is the nearest one to what is given.
fn check_number(given: &Scalar, stored: &Scalar, element: Option<usize>) -> Result<(), ProgramError> {
    let is_same = match (stored, given) {
        // A text may be the name of a state.
        (Scalar::Text(_), _) | (Scalar::Enum(_), Scalar::Text(_)) => true,
        (_, Scalar::Text(text)) => whole_number(text).is_some_and(|number| is_same_number(&number, stored)),
        (_, number) => is_same_number(number, stored),
    };
    let other = || ProgramError::OtherNumber { element, given: given.clone(), kind: stored.kind() };
    is_same.then_some(()).ok_or_else(other)
}

fn is_same_number(given: &Scalar, stored: &Scalar) -> bool {
    let real = match given {
        Scalar::F64(number) => *number,
        Scalar::F32(number) => f64::from(*number),
        integer => {
            let is_same = |given| match (stored, stored.as_integer()) {
                // A byte is a character with or without a sign.
                (Scalar::I8(_), Some(stored)) => given == stored || (given == stored + 256 && stored < 0),
                (_, stored) => stored.is_none_or(|stored| given == stored),
            };
            return integer.as_integer().is_none_or(is_same);
        }
    };
    match stored {
        Scalar::F32(_) => !real.is_finite() || real.abs() <= f64::from(f32::MAX),
        Scalar::F64(_) => true,
        integer => real.fract() == 0.0 && integer.as_integer() == Some(real as i128),
    }
}

/// The number that a whole text is; `None` if it is something else, or has something after the number.
fn whole_number(text: &Text) -> Option<Scalar> {
    let text = text.to_str();
    let text = text.trim();
    if let Ok(integer) = text.parse() {
        return Some(Scalar::I64(integer));
    }
    if let Ok(integer) = text.parse() {
        return Some(Scalar::U64(integer));
    }
    number_at_start(text).ok().filter(|(_, n_bytes)| *n_bytes == text.len()).map(|(number, _)| Scalar::F64(number))
}

/// Checks whether a text field can store a text. `variable_size`: the size of the record's long string.
fn check_text(value: &Value, row: &FieldInfo, variable_size: u16) -> Result<(), ProgramError> {
    let Value::Scalar(Scalar::Text(text)) = value else { return Ok(()) };
    let size = if row.size == 0 { variable_size } else { row.size };
    let max = usize::from(size).saturating_sub(1);
    if text.len() > max { Err(ProgramError::TooLong { length: text.len(), max }) } else { Ok(()) }
}
