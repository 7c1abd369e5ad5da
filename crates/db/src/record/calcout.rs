//! calcout: evaluates an expression of up to 21 inputs, and writes the result if OOPT requests it, at once or after a
//! delay.

use std::cmp::Ordering;

use fodo_data::{EventMask, Limits, Meta, Status, Text};

use crate::calc::Program;
use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu;
use crate::post::Posts;
use crate::record::device::Device;
use crate::record::inputs::{self, inputs};
use crate::record::levels::{self, leveled, moved};
use crate::record::links::state_of;
use crate::record::{CHANGED, Record, record_type};
use crate::scan::event_name;
use crate::step::{Outcome, Step};

record_fields! {
    /// An expression with an output.
    CalcOut
    fields {
        "VAL" value: Double, ASL0;
        "PVAL" previous_value: Double;
        "CALC" expression: String(160) = "0".into(), PP SPECIAL;
        "CLCV" expression_state: Long;
        "OUT" output: OutLink, SPECIAL;
        "OUTV" output_link_state: Menu(menu::CALCOUT_INAV), NOMOD;
        "OOPT" output_option: Menu(menu::OOPT);
        "ODLY" output_delay: Double, ASL0;
        "DLYA" is_delayed: UShort, ASL0 NOMOD;
        "DOPT" output_source: Menu(menu::CALCOUT_DOPT);
        "OCAL" output_expression: String(160) = "0".into(), PP SPECIAL;
        "OCLV" output_expression_state: Long;
        "OEVT" output_event: String(40), ASL0 SPECIAL;
        "IVOA" invalid_action: Menu(menu::IVOA);
        "IVOV" invalid_value: Double;
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
        "HYST" hysteresis: Double;
        "ADEL" archive_deadband: Double;
        "MDEL" monitor_deadband: Double;
        "OVAL" output_value: Double, ASL0;
        "POVL" old_output_value: Double, ASL0;
        "LALM" last_alarmed: Double, NOMOD;
        "ALST" last_archived: Double, NOMOD;
        "MLST" last_monitored: Double, NOMOD;
    }
    arrays {
        inputs: [InLink(); 21] [SPECIAL] {
            "INPA" 0, "INPB" 1, "INPC" 2, "INPD" 3, "INPE" 4, "INPF" 5, "INPG" 6, "INPH" 7, "INPI" 8, "INPJ" 9, "INPK" 10, "INPL" 11, "INPM" 12, "INPN" 13, "INPO" 14, "INPP" 15, "INPQ" 16, "INPR" 17, "INPS" 18, "INPT" 19, "INPU" 20
        }
        link_states: [Menu(menu::CALCOUT_INAV); 21] [NOMOD] {
            "INAV" 0, "INBV" 1, "INCV" 2, "INDV" 3, "INEV" 4, "INFV" 5, "INGV" 6, "INHV" 7, "INIV" 8, "INJV" 9, "INKV" 10, "INLV" 11, "INMV" 12, "INNV" 13, "INOV" 14, "INPV" 15, "INQV" 16, "INRV" 17, "INSV" 18, "INTV" 19, "INUV" 20
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
        output_program: Option<Program>;
        event: Option<Text>;
    }
}

record_type!(CalcOut, "calcout", ["Soft Channel", "Async Soft Channel"]);
leveled!(CalcOut, f64);
inputs!(CalcOut);

const VAL: u16 = CalcOut::at("VAL");
const CALC: u16 = CalcOut::at("CALC");
const CLCV: u16 = CalcOut::at("CLCV");
const OCAL: u16 = CalcOut::at("OCAL");
const OCLV: u16 = CalcOut::at("OCLV");
const OEVT: u16 = CalcOut::at("OEVT");
const DLYA: u16 = CalcOut::at("DLYA");
const OVAL: u16 = CalcOut::at("OVAL");
const A: u16 = CalcOut::at("A");
const INPA: u16 = CalcOut::at("INPA");
const INAV: u16 = CalcOut::at("INAV");
const OUT: u16 = CalcOut::at("OUT");
const OUTV: u16 = CalcOut::at("OUTV");

impl Record for CalcOut {
    fn init(&mut self) {
        inputs::init(self);
        for (state, link) in self.link_states.iter_mut().zip(&self.inputs) {
            *state = state_of(link);
        }
        self.output_link_state = state_of(&self.output);
        self.compile();
        self.compile_output();
        self.event = event_name(&self.output_event);
        self.previous_value = self.value;
        self.last_monitored = self.value;
        self.last_archived = self.value;
        self.last_alarmed = self.value;
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

    fn after_put(&mut self, field: u16, posts: &mut Posts) -> Result<(), &'static str> {
        match field {
            CALC => {
                self.compile();
                posts.post(self, CLCV, EventMask::VALUE);
            }
            OCAL => {
                self.compile_output();
                posts.post(self, OCLV, EventMask::VALUE);
            }
            OEVT => self.event = event_name(&self.output_event),
            OUT => {
                self.output_link_state = state_of(&self.output);
                posts.post(self, OUTV, EventMask::VALUE);
            }
            field => self.link_was_put(field - INPA, posts),
        }
        Ok(())
    }

    fn link_joined(&mut self, field: u16, posts: &mut Posts) {
        // A put to a link is never rejected.
        let _ = self.after_put(field, posts);
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        if step.is_completion {
            let is_delayed = std::mem::take(&mut step.lock().is_delayed) != 0;
            step.stamp(None);
            if is_delayed {
                step.post(|calcout, posts| posts.post(calcout, DLYA, EventMask::VALUE));
                if execute(step) {
                    return Outcome::Waiting;
                }
            }
        } else {
            if inputs::fetch_all(step) {
                step.lock().evaluate();
            }
            levels::check(step.lock(), None);
            let delay_s = step.lock().output_delay;
            if step.lock().is_output_wanted() {
                if delay_s > 0.0 {
                    step.lock().is_delayed = 1;
                    step.stamp(None);
                    step.post(|calcout, posts| posts.post(calcout, DLYA, EventMask::VALUE));
                    return step.complete_after(delay_s);
                }
                if execute(step) {
                    return Outcome::Waiting;
                }
            }
            step.stamp(None);
        }
        step.post(CalcOut::monitor);
        Outcome::Done
    }
}

/// Drives OUT and posts the event OEVT, unless the alarm and IVOA forbid it. Returns whether the device support has to
/// wait for the write to complete, which a channel reports.
fn execute(step: &mut Step<'_, '_, CalcOut>) -> bool {
    let (value, event, is_async) = {
        let calcout = step.lock();
        calcout.evaluate_output();
        if calcout.common.new_severity >= 3 {
            match calcout.invalid_action {
                0 => {}
                2 => calcout.output_value = calcout.invalid_value,
                _ => return false,
            }
        }
        (calcout.output_value, calcout.event.clone(), Device::of(&mut *calcout) == Device::Async)
    };
    let is_waiting = is_async && step.drive_notifying(|calcout| &calcout.output, value, 0);
    if !is_waiting {
        // A broken link has already raised its alarm; the event is posted nevertheless.
        let _ = step.drive("OUT", |calcout| &calcout.output, value);
    }
    if let Some(event) = event {
        step.post_event(event);
    }
    is_waiting
}

/// The value for CLCV or OCLV: 0, or -1 for an expression that cannot be compiled.
fn state_of_program(program: Option<&Program>) -> i32 {
    if program.is_some() { 0 } else { -1 }
}

impl CalcOut {
    fn compile(&mut self) {
        self.program = Program::compile(&self.expression.to_str()).ok();
        self.expression_state = state_of_program(self.program.as_ref());
    }

    fn compile_output(&mut self) {
        self.output_program = Program::compile(&self.output_expression.to_str()).ok();
        self.output_expression_state = state_of_program(self.output_program.as_ref());
    }

    /// Called after a put to an input link: a constant becomes the value of its input, and the state of the link
    /// changes.
    fn link_was_put(&mut self, index: u16, posts: &mut Posts) {
        let Some(link) = self.inputs.get(usize::from(index)) else { return };
        let is_constant = link.is_constant();
        self.link_states[usize::from(index)] = state_of(link);
        inputs::init_one(self, usize::from(index));
        if is_constant {
            posts.post(self, A + index, EventMask::VALUE);
        }
        posts.post(self, INAV + index, EventMask::VALUE);
    }

    fn evaluate(&mut self) {
        let value = self.value;
        match self.program.as_ref().and_then(|program| program.run(&mut self.args, value)) {
            Some(value) => {
                self.value = value;
                self.common.undefined = u8::from(value.is_nan());
            }
            None => {
                self.common.raise_saying(Status::CALC, 3, "calcPerform".into());
            }
        }
    }

    /// Sets OVAL to the result of CALC or of OCAL, as DOPT selects.
    fn evaluate_output(&mut self) {
        if self.output_source == 0 {
            self.output_value = self.value;
        } else {
            let before = self.output_value;
            match self.output_program.as_ref().and_then(|program| program.run(&mut self.args, before)) {
                Some(value) => {
                    self.output_value = value;
                    self.common.undefined = u8::from(value.is_nan());
                }
                None => {
                    self.common.raise_saying(Status::CALC, 3, "OCAL calcPerform".into());
                }
            }
        }
        if self.common.undefined != 0 {
            self.common.raise(Status::UDF, self.common.undefined_severity);
        }
    }

    /// Whether OOPT requests an output for this processing.
    fn is_output_wanted(&mut self) -> bool {
        let (now, before) = (self.value, std::mem::replace(&mut self.previous_value, self.value));
        match self.output_option {
            0 => true,
            // NaN always counts as a change.
            1 => (before - now).abs().partial_cmp(&self.monitor_deadband).is_none_or(Ordering::is_gt),
            2 => now == 0.0,
            3 => now != 0.0,
            4 => before != 0.0 && now == 0.0,
            5 => before == 0.0 && now != 0.0,
            _ => false,
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
        if self.old_output_value != self.output_value {
            posts.post(self, OVAL, mask | CHANGED);
            self.old_output_value = self.output_value;
        }
    }
}
