//! calc: an expression of up to 21 inputs.

use fodo_data::{EventMask, Meta, Status};

use crate::calc::Program;
use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu;
use crate::post::Posts;
use crate::record::inputs::{self, inputs};
use crate::record::levels::{self, Filter, leveled, moved};
use crate::record::{Record, record_type};
use crate::step::{Outcome, Step};

record_fields! {
    /// An expression of the inputs.
    Calc
    fields {
        "VAL" value: Double, ASL0;
        "CALC" expression: String(160) = "0".into(), PP SPECIAL;
        "EGU" units: String(16), PROP;
        "PREC" precision: Short, PROP;
        "HOPR" display_high: Double, PROP;
        "LOPR" display_low: Double, PROP;
        "HIHI" hihi: Double, PP PROP;
        "LOLO" lolo: Double, PP PROP;
        "HIGH" high: Double, PP PROP;
        "LOW" low: Double, PP PROP;
        "HHSV" hihi_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "LLSV" lolo_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "HSV" high_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "LSV" low_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "AFTC" alarm_filter_time: Double;
        "AFVL" alarm_filter_value: Double, NOMOD;
        "HYST" hysteresis: Double;
        "ADEL" archive_deadband: Double;
        "MDEL" monitor_deadband: Double;
        "LALM" last_alarmed: Double, NOMOD;
        "ALST" last_archived: Double, NOMOD;
        "MLST" last_monitored: Double, NOMOD;
    }
    arrays {
        inputs: [InLink(); 21] [] {
            "INPA" 0, "INPB" 1, "INPC" 2, "INPD" 3, "INPE" 4, "INPF" 5, "INPG" 6, "INPH" 7, "INPI" 8, "INPJ" 9, "INPK" 10, "INPL" 11, "INPM" 12, "INPN" 13, "INPO" 14, "INPP" 15, "INPQ" 16, "INPR" 17, "INPS" 18, "INPT" 19, "INPU" 20
        }
        args: [Double(); 21] [PP] {
            "A" 0, "B" 1, "C" 2, "D" 3, "E" 4, "F" 5, "G" 6, "H" 7, "I" 8, "J" 9, "K" 10, "L" 11, "M" 12, "N" 13, "O" 14, "P" 15, "Q" 16, "R" 17, "S" 18, "T" 19, "U" 20
        }
        last_args: [Double(); 21] [NOMOD] {
            "LA" 0, "LB" 1, "LC" 2, "LD" 3, "LE" 4, "LF" 5, "LG" 6, "LH" 7, "LI" 8, "LJ" 9, "LK" 10, "LL" 11, "LM" 12, "LN" 13, "LO" 14, "LP" 15, "LQ" 16, "LR" 17, "LS" 18, "LT" 19, "LU" 20
        }
    }
    private {
        common: Common;
        program: Option<Program>;
    }
}

record_type!(Calc, "calc", []);
leveled!(Calc, f64);
inputs!(Calc);

const VAL: u16 = Calc::at("VAL");
const CALC: u16 = Calc::at("CALC");

impl Record for Calc {
    fn init(&mut self) {
        inputs::init(self);
        self.program = Program::compile(&self.expression.to_str()).ok();
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Calc::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        inputs::meta(self, field, self.precision, meta)
    }

    fn after_put(&mut self, field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
        if field != CALC {
            return Ok(());
        }
        let compiled = Program::compile(&self.expression.to_str());
        let result = compiled.as_ref().map(|_| ()).map_err(|error| error.reason);
        self.program = compiled.ok();
        result
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        if inputs::fetch_all(step) {
            step.lock().evaluate();
        }
        let before = step.lock().common.time;
        step.stamp(None);
        let elapsed_s = step.elapsed_s(before);
        step.post(|calc, posts| {
            let mut state = calc.alarm_filter_value;
            let time_s = calc.alarm_filter_time;
            levels::check(calc, Some(Filter { time_s, state: &mut state, elapsed_s }));
            calc.alarm_filter_value = state;
            calc.monitor(posts);
        });
        Outcome::Done
    }
}

impl Calc {
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
                self.common.raise(Status::CALC, 3);
            }
        }
    }

    fn monitor(&mut self, posts: &mut Posts) {
        let mut mask = posts.alarms(self);
        if moved(&mut self.last_monitored, self.value, self.monitor_deadband) {
            mask |= EventMask::VALUE;
        }
        if moved(&mut self.last_archived, self.value, self.archive_deadband) {
            mask |= EventMask::LOG;
        }
        if !mask.is_empty() {
            posts.post(self, VAL, mask);
        }
        inputs::post(self, posts, mask, mask.meets(EventMask::ALARM));
    }
}
