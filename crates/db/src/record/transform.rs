//! transform, of synApps calc: sixteen values, each from an input, an expression or a put, and each with an output.

use fodo_data::{Meta, Status, Text};

use crate::calc::{CalcError, CompiledExpression, TextInputs};
use crate::common::{Common, row};
use crate::field::{names, record_fields};
use crate::link::Target;
use crate::menu::{self, INVALID};
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::expression::{compile_optional, state_of_program};
use crate::record::inputs::{self, inputs};
use crate::record::links::state_of;
use crate::record::{CHANGED, Record, changes, index_in, record_type};

record_fields! {
    /// Sixteen values with expressions.
    Transform
    fields {
        "VERS" version: Float = 5.8, NOMOD;
        "IVLA" invalid_action: Menu(menu::TRANSFORM_IVLA);
        "COPT" calculation_option: Menu(menu::TRANSFORM_COPT);
        "VAL" value: Double, INTEREST0;
        "EGU" units: String(16);
        "PREC" precision: Short;
        "MAP" put_bits: Short;
    }
    arrays {
        expressions: [String(80); 16] [SPECIAL EXPRESSION] "CLC" A_TO_P;
        expression_states: [Long(); 16] [] "C" A_TO_P "V";
        inputs: [InLink(); 16] [SPECIAL] "INP" A_TO_P;
        outputs: [OutLink(); 16] [SPECIAL] "OUT" A_TO_P;
        args: [Double(); 16] [PP SPECIAL INTEREST0] "" A_TO_P;
        last_args: [Double(); 16] [NOMOD INTEREST3] "L" A_TO_P;
        comments: [String(39); 16] [] "CMT" A_TO_P;
        input_states: [Menu(menu::CALCOUT_INAV); 16] [NOMOD] "I" A_TO_P "V";
        output_states: [Menu(menu::CALCOUT_INAV); 16] [NOMOD] "O" A_TO_P "V";
    }
    private {
        common: Common;
        programs: Programs;
        is_posted: bool;
    }
}

record_type!(Transform, "transform", [], CLCA CAV INPA OUTA A IAV OAV);
inputs!(Transform);

const N_VALUES: usize = 16;
/// A choice of IVLA: without inputs, nothing is calculated and written.
const DO_NOTHING: u16 = 1;
/// The compiled expressions.
type Programs = [Option<CompiledExpression>; N_VALUES];

/// The names of the links, for messages.
const OUTPUTS: [&str; N_VALUES] = names(Transform::ROWS, "OUTA");

impl Record for Transform {
    fn init(&mut self) {
        self.value = 0.0;
        self.put_bits = 0;
        inputs::init(self);
        for index in 0..N_VALUES {
            self.input_states[index] = state_of(&self.inputs[index]);
            self.output_states[index] = state_of(&self.outputs[index]);
            self.expression_states[index] = state_of_program(self.is_valid(index));
        }
        self.last_args = self.args;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Transform::ROWS, field)?;
        meta.precision = if row.name == "VERS" { 2 } else { crate::meta::precision(row, self.precision) };
        None
    }

    fn after_put(&mut self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str> {
        let index = |first: u16| index_in(field, first, N_VALUES);
        if let Some(index) = index(CLCA) {
            let expression = self.expressions[index].clone();
            let is_valid = self.compile(field, &expression).is_ok();
            let changes = changes(&mut self.expression_states[index], &state_of_program(is_valid));
            if !changes.is_empty() {
                posts.post(self, CAV + index as u16, changes);
            }
        } else if let Some(index) = index(A) {
            if !self.inputs[index].is_constant() {
                self.args[index] = self.last_args[index];
                return Err("this value is set only by its input link");
            }
            if self.common.is_active == 0 {
                self.put_bits |= 1 << index;
            }
        } else if let Some(index) = index(INPA) {
            self.input_states[index] = state_of(&self.inputs[index]);
            inputs::init_one(self, index);
            if self.inputs[index].is_constant() {
                posts.post(self, A + index as u16, CHANGED);
            }
            posts.post(self, IAV + index as u16, CHANGED);
        } else if let Some(index) = index(OUTA) {
            self.output_states[index] = state_of(&self.outputs[index]);
            posts.post(self, OAV + index as u16, CHANGED);
        }
        Ok(())
    }

    fn compile(&mut self, field: u16, text: &Text) -> Result<(), CalcError> {
        match index_in(field, CLCA, N_VALUES) {
            Some(index) => compile_optional(&mut self.programs[index], text, CompiledExpression::compile_text),
            None => Ok(()),
        }
    }

    fn link_state_changed(&mut self, field: u16, posts: &mut RecordPosts) {
        // A put to a link is never rejected.
        let _ = self.after_put(field, posts);
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        step.lock().common.undefined = 0;
        for index in 0..N_VALUES {
            if inputs::fetch(step, index).is_err() {
                step.lock().args[index] = 0.0;
            }
        }
        let transform = step.lock();
        if transform.common.new_severity >= INVALID && transform.invalid_action == DO_NOTHING {
            step.stamp(None);
            step.post(|transform, posts| posts.alarms(transform));
            return ProcessOutcome::NoForward;
        }
        step.lock().calculate();
        for (index, name) in OUTPUTS.iter().enumerate() {
            let value = step.lock().args[index];
            // A broken link has already raised its alarm; the other links are still written.
            let _ = step.write_link(name, |transform| &transform.outputs[index], value);
        }
        step.stamp(None);
        step.post(Transform::monitor);
        ProcessOutcome::Done
    }
}

impl Transform {
    /// Whether an expression is empty or was compiled.
    fn is_valid(&self, index: usize) -> bool {
        self.expressions[index].is_empty() || self.programs[index].is_some()
    }

    /// Evaluates the expressions, one after another, of values that have no input and were not put.
    fn calculate(&mut self) {
        const ALWAYS: u16 = 1;
        let put_bits = std::mem::take(&mut self.put_bits);
        for index in 0..N_VALUES {
            let (now, before) = (self.args[index], self.last_args[index]);
            let is_same = now == 0.0 && before == 0.0 || now.to_bits() == before.to_bits();
            let is_new = !is_same || put_bits >> index & 1 != 0;
            let is_calculated = self.inputs[index].is_constant() && !is_new || self.calculation_option == ALWAYS;
            let Some(program) = self.programs[index].as_ref().filter(|_| is_calculated) else { continue };
            let mut inputs = TextInputs { args: &mut self.args, texts: &mut [], value: now, text: &Text::EMPTY };
            let result = program.run_text(&mut inputs).map(|result| result.number());
            if let Some(number) = result {
                self.args[index] = number;
            }
            if !result.is_some_and(f64::is_finite) {
                self.common.raise(Status::CALC, INVALID);
                self.common.undefined = 1;
            }
        }
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        posts.alarms(self);
        let is_first = !std::mem::replace(&mut self.is_posted, true);
        inputs::post(self, posts, CHANGED, is_first);
    }
}
