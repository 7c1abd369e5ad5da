//! calc: an expression of up to 21 inputs.

use fodo_data::{EventMask, Meta, Status, Text};

use crate::calc::{CalcError, CompiledExpression};
use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu::INVALID;
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::expression::compile;
use crate::record::inputs::{self, inputs};
use crate::record::levels::{self, alarm_limits};
use crate::record::{Record, record_type};

record_fields! {
    /// An expression of the inputs.
    Calc
    fields {
        "VAL" value: Double, ASL0 INTEREST0;
        "CALC" expression: String(160) = "0".into(), PP SPECIAL EXPRESSION INTEREST0;
        "PREC" precision: Short, PROP;
        ..limits(Double; PROP; PROP);
        ..alarm_filter();
    }
    arrays {
        inputs: [InLink(); 21] [] "INP" A_TO_U;
        args: [Double(); 21] [PP INTEREST0] "" A_TO_U;
        last_args: [Double(); 21] [NOMOD INTEREST3] "L" A_TO_U;
    }
    private {
        common: Common;
        program: Option<CompiledExpression>;
    }
}

record_type!(Calc, "calc", [], CALC);
alarm_limits!(Calc, f64, filtered);
inputs!(Calc);

impl Record for Calc {
    fn init(&mut self) {
        inputs::init(self);
        if self.program.is_none() {
            // The expression of a file was compiled before; this is the initial one.
            let _ = self.compile_expression();
        }
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Calc::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        inputs::meta(self, field, self.precision, meta)
    }

    fn after_put(&mut self, field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
        if field == CALC { self.compile_expression().map_err(|error| error.reason) } else { Ok(()) }
    }

    fn compile(&mut self, field: u16, expression: &Text) -> Result<(), CalcError> {
        if field == CALC { compile(&mut self.program, expression, CompiledExpression::compile) } else { Ok(()) }
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        if inputs::fetch_all(step) {
            step.lock().evaluate();
        }
        let before = step.lock().common.time;
        step.stamp(None);
        let elapsed_s = step.elapsed_s(before);
        step.post(|calc, posts| {
            levels::check_filtered(calc, elapsed_s);
            calc.monitor(posts);
        });
        ProcessOutcome::Done
    }
}

impl Calc {
    fn compile_expression(&mut self) -> Result<(), CalcError> {
        compile(&mut self.program, &self.expression, CompiledExpression::compile)
    }

    fn evaluate(&mut self) {
        let result = match &self.program {
            Some(program) => program.run(&mut self.args, self.value),
            None => None,
        };
        match result {
            Some(value) => {
                self.value = value;
                self.common.undefined = u8::from(value.is_nan());
            }
            None => {
                self.common.raise(Status::CALC, INVALID);
            }
        }
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let mask = levels::monitor(self, posts);
        inputs::post(self, posts, mask, mask.meets(EventMask::ALARM));
    }
}
