//! What records with expressions share: compiling them once, and the output of calcout, scalcout and acalcout, which
//! OOPT, ODLY, DOPT, IVOA and OEVT control.

use fodo_data::{EventMask, Text, Value};

use crate::calc::{CalcError, CompiledExpression};
use crate::link::Link;
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::index_in;
use crate::record::inputs::{self, InputLinks};
use crate::record::links::state_of;
use crate::record::output::may_write;

/// Compiles an expression and keeps its program; there is none after an error.
pub(crate) fn compile(
    program: &mut Option<CompiledExpression>,
    expression: &Text,
    compiler: fn(&str) -> Result<CompiledExpression, CalcError>,
) -> Result<(), CalcError> {
    *program = None;
    *program = Some(compiler(&expression.to_str())?);
    Ok(())
}

/// Like [`compile`], but an empty expression is valid and has no program.
pub(crate) fn compile_optional(
    program: &mut Option<CompiledExpression>,
    expression: &Text,
    compiler: fn(&str) -> Result<CompiledExpression, CalcError>,
) -> Result<(), CalcError> {
    *program = None;
    if expression.is_empty() { Ok(()) } else { compile(program, expression, compiler) }
}

/// CLCV or OCLV: 0, or -1 for an expression that cannot be compiled.
pub(crate) fn state_of_program(is_valid: bool) -> i32 {
    if is_valid { 0 } else { -1 }
}

/// The choices of OOPT.
const EVERY_TIME: u16 = 0;
const ON_CHANGE: u16 = 1;
const WHEN_ZERO: u16 = 2;
const WHEN_NON_ZERO: u16 = 3;
const TRANSITION_TO_ZERO: u16 = 4;
const TRANSITION_TO_NON_ZERO: u16 = 5;

/// Whether OOPT requests an output. `is_changed`: whether the value has changed enough for the choice On Change.
pub(crate) fn is_output_due<N: Default + PartialEq>(option: u16, now: N, before: N, is_changed: bool) -> bool {
    let (is_zero, was_zero) = (now == N::default(), before == N::default());
    match option {
        EVERY_TIME => true,
        ON_CHANGE => is_changed,
        WHEN_ZERO => is_zero,
        WHEN_NON_ZERO => !is_zero,
        TRANSITION_TO_ZERO => !was_zero && is_zero,
        TRANSITION_TO_NON_ZERO => was_zero && !is_zero,
        // Never, of the records of synApps.
        _ => false,
    }
}

/// The fields of a record with the group `expression_output` and with link states; [`expression_output!`] implements
/// it.
pub(crate) trait ExpressionFields: InputLinks + Sized {
    const CALC: u16;
    const CLCV: u16;
    const OCAL: u16;
    const OCLV: u16;
    const OUT: u16;
    const OUTV: u16;
    const DLYA: u16;
    /// The first field number of the inputs' links, and that of the states of these links.
    const INPA: u16;
    const INAV: u16;

    /// CALC and OCAL.
    fn expressions(&mut self) -> [Expression<'_>; 2];

    /// OUT.
    fn output(&self) -> &Link;

    fn stage(&mut self) -> OutputStage<'_>;
}

/// An expression of a record.
pub(crate) struct Expression<'a> {
    pub(crate) text: &'a Text,
    pub(crate) has_program: bool,
    /// CLCV or OCLV.
    pub(crate) state: &'a mut i32,
}

/// The fields that determine when and what is written.
pub(crate) struct OutputStage<'a> {
    pub(crate) input_states: &'a mut [u16],
    pub(crate) output_link_state: &'a mut u16,
    pub(crate) delay_s: f64,
    pub(crate) is_delayed: &'a mut u16,
    pub(crate) output_value: &'a mut f64,
    pub(crate) invalid_action: u16,
    pub(crate) invalid_value: f64,
}

macro_rules! expression_output {
    ($record:ident) => {
        impl $crate::record::expression::ExpressionFields for $record {
            const CALC: u16 = $record::at("CALC");
            const CLCV: u16 = $record::at("CLCV");
            const OCAL: u16 = $record::at("OCAL");
            const OCLV: u16 = $record::at("OCLV");
            const OUT: u16 = $record::at("OUT");
            const OUTV: u16 = $record::at("OUTV");
            const DLYA: u16 = $record::at("DLYA");
            const INPA: u16 = $record::at("INPA");
            const INAV: u16 = $record::at("INAV");

            fn expressions(&mut self) -> [$crate::record::expression::Expression<'_>; 2] {
                [
                    $crate::record::expression::Expression {
                        text: &self.expression,
                        has_program: self.program.is_some(),
                        state: &mut self.expression_state,
                    },
                    $crate::record::expression::Expression {
                        text: &self.output_expression,
                        has_program: self.output_program.is_some(),
                        state: &mut self.output_expression_state,
                    },
                ]
            }

            fn output(&self) -> &$crate::link::Link {
                &self.output
            }

            fn stage(&mut self) -> $crate::record::expression::OutputStage<'_> {
                $crate::record::expression::OutputStage {
                    input_states: &mut self.input_states,
                    output_link_state: &mut self.output_link_state,
                    delay_s: self.output_delay,
                    is_delayed: &mut self.is_delayed,
                    output_value: &mut self.output_value,
                    invalid_action: self.invalid_action,
                    invalid_value: self.invalid_value,
                }
            }
        }
    };
}

pub(crate) use expression_output;

/// A record that evaluates an expression and writes the result.
pub(crate) trait ExpressionOutput: ExpressionFields {
    /// Whether an empty expression is valid.
    const MAY_BE_EMPTY: bool = false;
    /// Whether the time stamp is set before the record waits for ODLY.
    const STAMPS_BEFORE_DELAY: bool = false;
    /// Whether an input is posted when its link becomes empty.
    const POSTS_EMPTY_INPUTS: bool = false;

    /// Whether OOPT requests an output for this processing.
    fn is_output_due(&mut self) -> bool;

    /// Evaluates OCAL if DOPT selects it, before the output.
    fn evaluate_output(&mut self) {}

    /// The value to write to OUT.
    fn value_to_write(step: &mut Step<'_, '_, Self>) -> Value;

    /// Whether the record waits until a write through a channel has completed.
    fn waits(&mut self) -> bool;

    /// The event to post, that of OEVT.
    fn event(&self) -> Option<Text>;
}

/// Initializes inputs, states of links and programs.
pub(crate) fn init<R: ExpressionOutput>(record: &mut R) {
    inputs::init(record);
    for index in 0..record.links().len() {
        update_input_state(record, index);
    }
    update_output_state(record);
    for (index, field) in [R::CALC, R::OCAL].into_iter().enumerate() {
        if !record.expressions()[index].has_program {
            compile_field(record, index, field);
        }
        update_expression_state(record, index);
    }
}

/// Called after a put to a field. Returns whether it is one of an expression, of its output or of an input link.
pub(crate) fn field_was_put<R: ExpressionOutput>(record: &mut R, field: u16, posts: &mut RecordPosts) -> bool {
    if let Some(index) = [R::CALC, R::OCAL].iter().position(|expression| *expression == field) {
        compile_field(record, index, field);
        update_expression_state(record, index);
        posts.post(record, [R::CLCV, R::OCLV][index], EventMask::VALUE);
    } else if field == R::OUT {
        update_output_state(record);
        posts.post(record, R::OUTV, EventMask::VALUE);
    } else if let Some(index) = index_in(field, R::INPA, record.links().len()) {
        update_input_state(record, index);
        let is_set = inputs::init_one(record, index);
        if is_set || R::POSTS_EMPTY_INPUTS && record.links()[index].is_constant() {
            posts.post(record, R::FIRST + index as u16, EventMask::VALUE);
        }
        posts.post(record, R::INAV + index as u16, EventMask::VALUE);
    } else {
        return false;
    }
    true
}

fn compile_field<R: ExpressionOutput>(record: &mut R, index: usize, field: u16) {
    let text = record.expressions()[index].text.clone();
    // CLCV and OCLV report the error.
    let _ = record.compile(field, &text);
}

fn update_expression_state<R: ExpressionOutput>(record: &mut R, index: usize) {
    let [calc, ocal] = record.expressions();
    let expression = if index == 0 { calc } else { ocal };
    let is_valid = expression.has_program || R::MAY_BE_EMPTY && expression.text.is_empty();
    *expression.state = state_of_program(is_valid);
}

fn update_input_state<R: ExpressionOutput>(record: &mut R, index: usize) {
    let state = state_of(&record.links()[index]);
    record.stage().input_states[index] = state;
}

fn update_output_state<R: ExpressionOutput>(record: &mut R) {
    let state = state_of(record.output());
    *record.stage().output_link_state = state;
}

/// Writes the output if OOPT requests it, at once or after ODLY; also called when the record completes. Returns the
/// outcome if the record has to wait.
pub(crate) fn write<R: ExpressionOutput>(step: &mut Step<'_, '_, R>) -> Option<ProcessOutcome> {
    if step.is_completion {
        let is_delayed = std::mem::take(step.lock().stage().is_delayed) != 0;
        if !is_delayed {
            return None;
        }
        step.post(|record, posts| posts.post(record, R::DLYA, EventMask::VALUE));
    } else if !step.lock().is_output_due() {
        return None;
    }
    let delay_s = step.lock().stage().delay_s;
    if delay_s > 0.0 && !step.is_completion {
        *step.lock().stage().is_delayed = 1;
        if R::STAMPS_BEFORE_DELAY {
            step.stamp(None);
        }
        step.post(|record, posts| posts.post(record, R::DLYA, EventMask::VALUE));
        return Some(step.complete_after(delay_s));
    }
    execute(step).then_some(ProcessOutcome::Waiting)
}

/// Drives OUT and posts the event OEVT, unless the alarm and IVOA forbid it. Returns whether the record has to wait for
/// the write to complete, which only a channel reports.
fn execute<R: ExpressionOutput>(step: &mut Step<'_, '_, R>) -> bool {
    let record = step.lock();
    record.evaluate_output();
    let invalid_action = record.stage().invalid_action;
    let use_invalid_value = |record: &mut R| {
        let stage = record.stage();
        *stage.output_value = stage.invalid_value;
    };
    if !may_write(record, invalid_action, use_invalid_value) {
        return false;
    }
    let value = R::value_to_write(step);
    let is_waiting = step.lock().waits() && step.write_link_with_completion(R::output, value.clone(), 0);
    if !is_waiting {
        // A broken link has already raised its alarm; the event is posted nevertheless.
        let _ = step.write_link("OUT", R::output, value);
    }
    let event = step.lock().event();
    if let Some(event) = event {
        step.post_event(event);
    }
    is_waiting
}
