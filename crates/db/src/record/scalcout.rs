//! scalcout, of synApps calc: a calcout whose inputs and results are both numbers and texts.

use fodo_data::{EventMask, Kind, Meta, Status, Text, Value};

use crate::calc::{CalcError, CompiledExpression, TextInputs, unescaped};
use crate::common::{Common, row};
use crate::field::{Dbf, names, record_fields};
use crate::link::Target;
use crate::menu::{self, INVALID, NO, USE_OCAL};
use crate::process::post::RecordPosts;
use crate::process::scan::event_name;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::expression::{self, ExpressionOutput, compile_optional, expression_output, is_output_due};
use crate::record::inputs::{self, inputs};
use crate::record::levels::{self, HasAlarmLimits, alarm_limits};
use crate::record::links::state_of;
use crate::record::long_text::cut;
use crate::record::simulation::constant;
use crate::record::{CHANGED, Record, index_in, is_changed, record_type};
use crate::reference::KindAndCount;

record_fields! {
    /// An expression of numbers and texts, with an output.
    SCalcOut
    fields {
        "VERS" version: Double = 1.0, NOMOD INTEREST0;
        ..expression_output(80, "", SYNAPPS_OOPT);
        "SVAL" text_value: String(40), ASL0 INTEREST0;
        "PSVL" previous_text: String(40), NOMOD INTEREST0;
        "OSV" output_text: String(40), ASL0 INTEREST0;
        "POSV" old_output_text: String(40), NOMOD INTEREST0;
        "WAIT" waits: Menu(menu::SCALCOUT_WAIT);
        "OEVT" output_event: UShort, ASL0 INTEREST0;
        "PREC" precision: Short;
        ..limits(Double;;);
    }
    arrays {
        inputs: [InLink(); 12] [SPECIAL] "INP" A_TO_L;
        text_inputs: [InLink(); 12] [SPECIAL] "IN" AA_TO_LL;
        input_states: [Menu(menu::CALCOUT_INAV); 12] [NOMOD] "IN" A_TO_L "V";
        text_input_states: [Menu(menu::CALCOUT_INAV); 12] [NOMOD] "I" AA_TO_LL "V";
        args: [Double(); 12] [PP INTEREST0] "" A_TO_L;
        texts: [String(40); 12] [PP INTEREST4] "" AA_TO_LL;
        last_args: [Double(); 12] [NOMOD INTEREST3] "P" A_TO_L;
        last_texts: [String(40); 12] [NOMOD INTEREST4] "P" AA_TO_LL;
    }
    private {
        common: Common;
        program: Option<CompiledExpression>;
        output_program: Option<CompiledExpression>;
    }
}

record_type!(SCalcOut, "scalcout", ["Soft Channel"], CALC OCAL SVAL OVAL OSV AA INAA IAAV);
alarm_limits!(SCalcOut, f64);
inputs!(SCalcOut, "PA");
expression_output!(SCalcOut);

const N_TEXTS: usize = 12;
/// The names of the text links, for messages.
const TEXT_INPUTS: [&str; N_TEXTS] = names(SCalcOut::ROWS, "INAA");

impl Record for SCalcOut {
    fn init(&mut self) {
        for index in 0..N_TEXTS {
            self.text_input_states[index] = state_of(&self.text_inputs[index]);
            if let Some(text) = constant(&self.text_inputs[index]) {
                self.texts[index] = cut(text);
            }
        }
        expression::init(self);
        self.previous_value = self.value;
        self.forget_changes();
        self.old_output_value = self.output_value;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(SCalcOut::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        inputs::meta_from_record(self, field, meta);
        None
    }

    fn after_put(&mut self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str> {
        self.link_state_changed(field, posts);
        Ok(())
    }

    fn compile(&mut self, field: u16, text: &Text) -> Result<(), CalcError> {
        match field {
            CALC => compile_optional(&mut self.program, text, CompiledExpression::compile_text),
            OCAL => compile_optional(&mut self.output_program, text, CompiledExpression::compile_text),
            _ => Ok(()),
        }
    }

    fn link_state_changed(&mut self, field: u16, posts: &mut RecordPosts) {
        if let Some(index) = index_in(field, INAA, N_TEXTS) {
            self.text_input_states[index] = state_of(&self.text_inputs[index]);
            posts.post(self, IAAV + index as u16, EventMask::VALUE);
        } else {
            expression::field_was_put(self, field, posts);
        }
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        if !step.is_completion && fetch(step) {
            step.lock().evaluate();
        }
        if let Some(waiting) = expression::write(step) {
            return waiting;
        }
        levels::check(step.lock());
        step.stamp(None);
        step.post(SCalcOut::monitor);
        ProcessOutcome::Done
    }
}

/// Fetches all inputs. A text that cannot be read becomes "Huh?". Returns whether all numbers could be read.
fn fetch(step: &mut Step<'_, '_, SCalcOut>) -> bool {
    if (0..N_TEXTS).any(|index| inputs::fetch(step, index).is_err()) {
        return false;
    }
    for (index, name) in TEXT_INPUTS.iter().enumerate() {
        let text = match step.read_link_text(name, |scalcout| &scalcout.text_inputs[index]) {
            Ok(Some(text)) => cut(text),
            Ok(None) => continue,
            Err(_) => "Huh?".into(),
        };
        step.lock().texts[index] = text;
    }
    true
}

impl ExpressionOutput for SCalcOut {
    fn is_output_due(&mut self) -> bool {
        let before = std::mem::replace(&mut self.previous_value, self.value);
        let is_moved = (before - self.value).abs() > self.monitor_deadband;
        let is_changed = is_moved || self.text_value != self.previous_text;
        is_output_due(self.output_option, self.value, before, is_changed)
    }

    /// Sets OVAL and OSV to the results of CALC or of OCAL, as DOPT selects.
    fn evaluate_output(&mut self) {
        if self.output_source != USE_OCAL {
            self.output_value = self.value;
            self.output_text = self.text_value.clone();
            return;
        }
        let (text, program) = (self.output_text.clone(), self.output_program.take());
        let results = self.results(program.as_ref(), self.output_value, &text);
        self.output_program = program;
        if let Some((value, text)) = results {
            self.output_value = value;
            self.output_text = text;
        }
    }

    /// A text or menu field receives the text, an array of characters its bytes, anything else the number.
    fn value_to_write(step: &mut Step<'_, '_, Self>) -> Value {
        let target = step.target_facts(|scalcout| &scalcout.output);
        let scalcout = step.lock();
        match target {
            Some(KindAndCount { kind: Kind::Text | Kind::Enum, .. }) => Value::from(scalcout.output_text.clone()),
            Some(KindAndCount { kind: Kind::I8 | Kind::U8, count_max: 2.. }) => {
                Value::from(unescaped(scalcout.output_text.as_bytes()))
            }
            _ => Value::from(scalcout.output_value),
        }
    }

    fn waits(&mut self) -> bool {
        self.waits != NO
    }

    fn event(&self) -> Option<Text> {
        event_name(&self.output_event.to_string().into())
    }
}

impl SCalcOut {
    /// The results of an expression, as a number and as a text. A non-finite number raises the alarm CALC.
    fn results(&mut self, program: Option<&CompiledExpression>, value: f64, text: &Text) -> Option<(f64, Text)> {
        let digits = if program.is_some_and(CompiledExpression::is_textual) { 8 } else { self.precision };
        let mut inputs = TextInputs { args: &mut self.args, texts: &mut self.texts, value, text };
        let result = program.and_then(|program| program.run_text(&mut inputs));
        let results = result.map(|result| (result.number(), cut(Text::from_bytes(&result.text(digits)))));
        if !results.as_ref().is_some_and(|(number, _)| number.is_finite()) {
            self.common.raise(Status::CALC, INVALID);
        }
        results
    }

    fn evaluate(&mut self) {
        let (text, program) = (self.text_value.clone(), self.program.take());
        let results = self.results(program.as_ref(), self.value, &text);
        self.program = program;
        if let Some((value, text)) = results {
            if value.is_finite() {
                self.common.undefined = 0;
            }
            self.value = value;
            self.text_value = text;
        }
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let mask = levels::monitor(self, posts);
        if is_changed(&mut self.previous_text, &self.text_value) {
            posts.post(self, SVAL, mask | CHANGED);
        }
        if is_changed(&mut self.old_output_text, &self.output_text) {
            posts.post(self, OSV, mask | CHANGED);
        }
        inputs::post(self, posts, mask, mask.meets(EventMask::ALARM));
        for index in 0..N_TEXTS {
            if is_changed(&mut self.last_texts[index], &self.texts[index]) {
                posts.post(self, AA + index as u16, mask | CHANGED);
            }
        }
        if is_changed(&mut self.old_output_value, &self.output_value) {
            posts.post(self, OVAL, mask | CHANGED);
        }
    }
}
