//! calcout: evaluates an expression of up to 21 inputs, and writes the result if OOPT requests it, at once or after a
//! delay.

use std::cmp::Ordering;

use fodo_data::{EventMask, Limits, Meta, Status, Text, Value};

use crate::calc::{CalcError, CompiledExpression};
use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu::{INVALID, USE_OCAL};
use crate::process::post::RecordPosts;
use crate::process::scan::event_name;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::device::DeviceSupport;
use crate::record::expression::{self, ExpressionOutput, compile, compile_optional, expression_output, is_output_due};
use crate::record::inputs::{self, inputs};
use crate::record::levels::{self, HasAlarmLimits, alarm_limits};
use crate::record::{CHANGED, Record, is_changed, raise_undefined, record_type};

record_fields! {
    /// An expression with an output.
    CalcOut
    fields {
        ..expression_output(160, "0", OOPT);
        "OEVT" output_event: String(40), ASL0 SPECIAL INTEREST0;
        "PREC" precision: Short, PROP;
        ..limits(Double; PROP; PROP);
    }
    arrays {
        inputs: [InLink(); 21] [SPECIAL] "INP" A_TO_U;
        input_states: [Menu(crate::menu::CALCOUT_INAV); 21] [NOMOD] "IN" A_TO_U "V";
        args: [Double(); 21] [PP INTEREST0] "" A_TO_U;
        last_args: [Double(); 21] [NOMOD INTEREST3] "L" A_TO_U;
    }
    private {
        common: Common;
        program: Option<CompiledExpression>;
        output_program: Option<CompiledExpression>;
        event: Option<Text>;
    }
}

record_type!(CalcOut, "calcout", ["Soft Channel", "Async Soft Channel"], CALC OCAL OEVT OVAL);
alarm_limits!(CalcOut, f64);
inputs!(CalcOut);
expression_output!(CalcOut);

impl Record for CalcOut {
    fn init(&mut self) {
        expression::init(self);
        self.event = event_name(&self.output_event);
        self.previous_value = self.value;
        self.forget_changes();
        self.old_output_value = self.output_value;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(CalcOut::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        if row.name == "ODLY" {
            meta.units = "s".into();
            meta.precision = 2;
            meta.display.low = 0.0;
            meta.control = Limits { low: 0.0, high: 100_000.0 };
        }
        inputs::meta(self, field, self.precision, meta)
    }

    fn after_put(&mut self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str> {
        if field == OEVT {
            self.event = event_name(&self.output_event);
        } else {
            expression::field_was_put(self, field, posts);
        }
        Ok(())
    }

    fn compile(&mut self, field: u16, text: &Text) -> Result<(), CalcError> {
        match field {
            CALC => compile(&mut self.program, text, CompiledExpression::compile),
            OCAL => compile_optional(&mut self.output_program, text, CompiledExpression::compile),
            _ => Ok(()),
        }
    }

    fn link_state_changed(&mut self, field: u16, posts: &mut RecordPosts) {
        expression::field_was_put(self, field, posts);
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        if step.is_completion {
            step.stamp(None);
        } else {
            if inputs::fetch_all(step) {
                step.lock().evaluate();
            }
            levels::check(step.lock());
        }
        if let Some(waiting) = expression::write(step) {
            return waiting;
        }
        if !step.is_completion {
            step.stamp(None);
        }
        step.post(CalcOut::monitor);
        ProcessOutcome::Done
    }
}

impl ExpressionOutput for CalcOut {
    const STAMPS_BEFORE_DELAY: bool = true;
    const POSTS_EMPTY_INPUTS: bool = true;

    fn is_output_due(&mut self) -> bool {
        let before = std::mem::replace(&mut self.previous_value, self.value);
        let distance = (before - self.value).abs();
        // NaN always counts as a change.
        let is_changed = distance.partial_cmp(&self.monitor_deadband).is_none_or(Ordering::is_gt);
        is_output_due(self.output_option, self.value, before, is_changed)
    }

    fn evaluate_output(&mut self) {
        if self.output_source == USE_OCAL {
            let result =
                self.output_program.as_ref().and_then(|program| program.run(&mut self.args, self.output_value));
            match result {
                Some(value) => {
                    self.output_value = value;
                    self.common.undefined = u8::from(value.is_nan());
                }
                None => {
                    self.common.raise_with_message(Status::CALC, INVALID, "OCAL calcPerform".into());
                }
            }
        } else {
            self.output_value = self.value;
        }
        raise_undefined(&mut self.common);
    }

    fn value_to_write(step: &mut Step<'_, '_, Self>) -> Value {
        step.lock().output_value.into()
    }

    fn waits(&mut self) -> bool {
        DeviceSupport::of(self) == DeviceSupport::Async
    }

    fn event(&self) -> Option<Text> {
        self.event.clone()
    }
}

impl CalcOut {
    fn evaluate(&mut self) {
        let value = self.value;
        match self.program.as_ref().and_then(|program| program.run(&mut self.args, value)) {
            Some(value) => {
                self.value = value;
                self.common.undefined = u8::from(value.is_nan());
            }
            None => {
                self.common.raise_with_message(Status::CALC, INVALID, "calcPerform".into());
            }
        }
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let mask = levels::monitor(self, posts);
        inputs::post(self, posts, mask, mask.meets(EventMask::ALARM));
        if is_changed(&mut self.old_output_value, &self.output_value) {
            posts.post(self, OVAL, mask | CHANGED);
        }
    }
}
