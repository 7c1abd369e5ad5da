//! scalcout, of synApps calc: a calcout whose inputs and results are both numbers and texts.

use std::cmp::Ordering;

use fodo_data::{EventMask, Kind, Meta, Status, Text, Value};

use crate::calc::{Program, TextInputs, unescaped};
use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu;
use crate::post::Posts;
use crate::record::inputs::{self, inputs};
use crate::record::levels::{self, Leveled, leveled, moved};
use crate::record::links::state_of;
use crate::record::stringin::cut;
use crate::record::{CHANGED, Record, record_type};
use crate::scan::event_name;
use crate::step::{Outcome, Step};

record_fields! {
    /// An expression of numbers and texts, with an output.
    SCalcOut
    fields {
        "VERS" version: Double = 1.0, NOMOD;
        "VAL" value: Double, ASL0;
        "SVAL" text_value: String(40), ASL0;
        "PVAL" previous_value: Double;
        "PSVL" previous_text: String(40), NOMOD;
        "CALC" expression: String(80), PP SPECIAL;
        "CLCV" expression_state: Long;
        "OUT" output: OutLink, SPECIAL;
        "OUTV" output_link_state: Menu(menu::CALCOUT_INAV), NOMOD;
        "OOPT" output_option: Menu(menu::SYNAPPS_OOPT);
        "ODLY" output_delay: Double, ASL0;
        "WAIT" waits: Menu(menu::SCALCOUT_WAIT);
        "DLYA" is_delayed: UShort, ASL0 NOMOD;
        "DOPT" output_source: Menu(menu::CALCOUT_DOPT);
        "OCAL" output_expression: String(80), PP SPECIAL;
        "OCLV" output_expression_state: Long;
        "OEVT" output_event: UShort, ASL0;
        "IVOA" invalid_action: Menu(menu::IVOA);
        "IVOV" invalid_value: Double;
        "EGU" units: String(16);
        "PREC" precision: Short;
        "HOPR" display_high: Double;
        "LOPR" display_low: Double;
        "HIHI" hihi: Double, PP;
        "LOLO" lolo: Double, PP;
        "HIGH" high: Double, PP;
        "LOW" low: Double, PP;
        "HHSV" hihi_severity: Menu(menu::ALARM_SEVR), PP;
        "LLSV" lolo_severity: Menu(menu::ALARM_SEVR), PP;
        "HSV" high_severity: Menu(menu::ALARM_SEVR), PP;
        "LSV" low_severity: Menu(menu::ALARM_SEVR), PP;
        "HYST" hysteresis: Double;
        "ADEL" archive_deadband: Double;
        "MDEL" monitor_deadband: Double;
        "OVAL" output_value: Double, ASL0;
        "OSV" output_text: String(40), ASL0;
        "POSV" old_output_text: String(40), NOMOD;
        "POVL" old_output_value: Double, ASL0;
        "LALM" last_alarmed: Double, NOMOD;
        "ALST" last_archived: Double, NOMOD;
        "MLST" last_monitored: Double, NOMOD;
    }
    arrays {
        inputs: [InLink(); 12] [SPECIAL] {
            "INPA" 0, "INPB" 1, "INPC" 2, "INPD" 3, "INPE" 4, "INPF" 5, "INPG" 6, "INPH" 7, "INPI" 8, "INPJ" 9, "INPK" 10, "INPL" 11
        }
        text_inputs: [InLink(); 12] [SPECIAL] {
            "INAA" 0, "INBB" 1, "INCC" 2, "INDD" 3, "INEE" 4, "INFF" 5, "INGG" 6, "INHH" 7, "INII" 8, "INJJ" 9, "INKK" 10, "INLL" 11
        }
        input_states: [Menu(menu::CALCOUT_INAV); 12] [NOMOD] {
            "INAV" 0, "INBV" 1, "INCV" 2, "INDV" 3, "INEV" 4, "INFV" 5, "INGV" 6, "INHV" 7, "INIV" 8, "INJV" 9, "INKV" 10, "INLV" 11
        }
        text_input_states: [Menu(menu::CALCOUT_INAV); 12] [NOMOD] {
            "IAAV" 0, "IBBV" 1, "ICCV" 2, "IDDV" 3, "IEEV" 4, "IFFV" 5, "IGGV" 6, "IHHV" 7, "IIIV" 8, "IJJV" 9, "IKKV" 10, "ILLV" 11
        }
        args: [Double(); 12] [PP] {
            "A" 0, "B" 1, "C" 2, "D" 3, "E" 4, "F" 5, "G" 6, "H" 7, "I" 8, "J" 9, "K" 10, "L" 11
        }
        texts: [String(40); 12] [PP] {
            "AA" 0, "BB" 1, "CC" 2, "DD" 3, "EE" 4, "FF" 5, "GG" 6, "HH" 7, "II" 8, "JJ" 9, "KK" 10, "LL" 11
        }
        last_args: [Double(); 12] [NOMOD] {
            "PA" 0, "PB" 1, "PC" 2, "PD" 3, "PE" 4, "PF" 5, "PG" 6, "PH" 7, "PI" 8, "PJ" 9, "PK" 10, "PL" 11
        }
        last_texts: [String(40); 12] [NOMOD] {
            "PAA" 0, "PBB" 1, "PCC" 2, "PDD" 3, "PEE" 4, "PFF" 5, "PGG" 6, "PHH" 7, "PII" 8, "PJJ" 9, "PKK" 10, "PLL" 11
        }
    }
    private {
        common: Common;
        program: Option<Program>;
        output_program: Option<Program>;
    }
}

record_type!(SCalcOut, "scalcout", ["Soft Channel"]);
leveled!(SCalcOut, f64);
inputs!(SCalcOut, "PA");

const N_TEXTS: usize = 12;
const VAL: u16 = SCalcOut::at("VAL");
const SVAL: u16 = SCalcOut::at("SVAL");
const OVAL: u16 = SCalcOut::at("OVAL");
const OSV: u16 = SCalcOut::at("OSV");
const CALC: u16 = SCalcOut::at("CALC");
const CLCV: u16 = SCalcOut::at("CLCV");
const OCAL: u16 = SCalcOut::at("OCAL");
const OCLV: u16 = SCalcOut::at("OCLV");
const DLYA: u16 = SCalcOut::at("DLYA");
const A: u16 = SCalcOut::at("A");
const PA: u16 = SCalcOut::at("PA");
const AA: u16 = SCalcOut::at("AA");
const INPA: u16 = SCalcOut::at("INPA");
const INAA: u16 = SCalcOut::at("INAA");
const INAV: u16 = SCalcOut::at("INAV");
const IAAV: u16 = SCalcOut::at("IAAV");
const OUT: u16 = SCalcOut::at("OUT");
const OUTV: u16 = SCalcOut::at("OUTV");

/// The names of the text links, for messages.
const TEXT_INPUTS: [&str; N_TEXTS] =
    ["INAA", "INBB", "INCC", "INDD", "INEE", "INFF", "INGG", "INHH", "INII", "INJJ", "INKK", "INLL"];

impl Record for SCalcOut {
    fn init(&mut self) {
        inputs::init(self);
        for index in 0..N_TEXTS {
            self.input_states[index] = state_of(&self.inputs[index]);
            self.text_input_states[index] = state_of(&self.text_inputs[index]);
            self.init_text(index);
        }
        self.output_link_state = state_of(&self.output);
        (self.program, self.expression_state) = compiled(&self.expression);
        (self.output_program, self.output_expression_state) = compiled(&self.output_expression);
        self.previous_value = self.value;
        self.last_monitored = self.value;
        self.last_archived = self.value;
        self.last_alarmed = self.value;
        self.old_output_value = self.output_value;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(SCalcOut::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        let is_input = [A, PA].iter().any(|first| (*first..first + N_TEXTS as u16).contains(&field));
        if is_input {
            meta.display = self.levels().display;
            meta.control = meta.display;
        }
        None
    }

    fn after_put(&mut self, field: u16, posts: &mut Posts) -> Result<(), &'static str> {
        match field {
            CALC => {
                (self.program, self.expression_state) = compiled(&self.expression);
                posts.post(self, CLCV, EventMask::VALUE);
            }
            OCAL => {
                (self.output_program, self.output_expression_state) = compiled(&self.output_expression);
                posts.post(self, OCLV, EventMask::VALUE);
            }
            OUT => {
                self.output_link_state = state_of(&self.output);
                posts.post(self, OUTV, EventMask::VALUE);
            }
            field => self.link_was_put(field, posts),
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
            if is_delayed {
                step.post(|scalcout, posts| posts.post(scalcout, DLYA, EventMask::VALUE));
                if execute(step) {
                    return Outcome::Waiting;
                }
            }
        } else {
            if fetch(step) {
                step.lock().evaluate();
            }
            let delay_s = step.lock().output_delay;
            if step.lock().is_output_wanted() {
                if delay_s > 0.0 {
                    step.lock().is_delayed = 1;
                    step.post(|scalcout, posts| posts.post(scalcout, DLYA, EventMask::VALUE));
                    return step.complete_after(delay_s);
                }
                if execute(step) {
                    return Outcome::Waiting;
                }
            }
        }
        levels::check(step.lock(), None);
        step.stamp(None);
        step.post(SCalcOut::monitor);
        Outcome::Done
    }
}

/// Fetches all inputs. A text that cannot be read becomes "Huh?". Returns whether all numbers could be read.
fn fetch(step: &mut Step<'_, '_, SCalcOut>) -> bool {
    for index in 0..N_TEXTS {
        if inputs::fetch(step, index).is_err() {
            return false;
        }
    }
    for (index, name) in TEXT_INPUTS.iter().enumerate() {
        let text = match step.fetch_text(name, |scalcout| &scalcout.text_inputs[index]) {
            Ok(Some(text)) => cut(text),
            Ok(None) => continue,
            Err(_) => "Huh?".into(),
        };
        step.lock().texts[index] = text;
    }
    true
}

/// Drives OUT and posts the event OEVT, unless the alarm and IVOA forbid it. Returns whether the record has to wait for
/// the write to complete, which WAIT can request of a channel.
fn execute(step: &mut Step<'_, '_, SCalcOut>) -> bool {
    {
        let scalcout = step.lock();
        scalcout.evaluate_output();
        if scalcout.common.new_severity >= 3 {
            match scalcout.invalid_action {
                0 => {}
                2 => scalcout.output_value = scalcout.invalid_value,
                _ => return false,
            }
        }
    }
    // A text or menu field receives the text, an array of characters its bytes, anything else the number.
    let target = step.target_facts(|scalcout| &scalcout.output);
    let value = {
        let scalcout = step.lock();
        match target {
            Some((Kind::Text | Kind::Enum, _)) => Value::from(scalcout.output_text.clone()),
            Some((Kind::I8 | Kind::U8, 2..)) => Value::from(unescaped(scalcout.output_text.as_bytes())),
            _ => Value::from(scalcout.output_value),
        }
    };
    let waits = step.lock().waits != 0;
    let is_waiting = waits && step.drive_notifying(|scalcout| &scalcout.output, value.clone(), 0);
    if !is_waiting {
        // A broken link has already raised its alarm; the event is posted nevertheless.
        let _ = step.drive("OUT", |scalcout| &scalcout.output, value);
    }
    let event = event_name(&step.lock().output_event.to_string().into());
    if let Some(event) = event {
        step.post_event(event);
    }
    is_waiting
}

/// Compiles an expression, and returns it with the value for CLCV or OCLV: 0, or -1 when it cannot be compiled.
fn compiled(expression: &Text) -> (Option<Program>, i32) {
    match Program::compile_text(&expression.to_str()) {
        Ok(program) => (Some(program), 0),
        Err(_) => (None, -1),
    }
}

impl SCalcOut {
    fn init_text(&mut self, index: usize) {
        if let Some(text) = crate::record::simulation::constant(&self.text_inputs[index]) {
            self.texts[index] = cut(text);
        }
    }

    /// Called after a put to an input link: a constant becomes the value of its input, and the state of the link
    /// changes.
    fn link_was_put(&mut self, field: u16, posts: &mut Posts) {
        let index = |first: u16| field.checked_sub(first).map(usize::from).filter(|index| *index < N_TEXTS);
        if let Some(index) = index(INPA) {
            self.input_states[index] = state_of(&self.inputs[index]);
            if inputs::init_one(self, index) {
                posts.post(self, A + index as u16, EventMask::VALUE);
            }
            posts.post(self, INAV + index as u16, EventMask::VALUE);
        } else if let Some(index) = index(INAA) {
            self.text_input_states[index] = state_of(&self.text_inputs[index]);
            posts.post(self, IAAV + index as u16, EventMask::VALUE);
        }
    }

    /// The results of an expression, as a number and as a text. A non-finite number raises the alarm CALC.
    fn results(&mut self, program: Option<&Program>, value: f64, text: &Text) -> Option<(f64, Text)> {
        let digits = if program.is_some_and(Program::is_textual) { 8 } else { self.precision };
        let mut inputs = TextInputs { args: &mut self.args, texts: &mut self.texts, value, text };
        let result = program.and_then(|program| program.run_text(&mut inputs));
        let results = result.map(|result| (result.number(), cut(Text::from_bytes(&result.text(digits)))));
        if !results.as_ref().is_some_and(|(number, _)| number.is_finite()) {
            self.common.raise(Status::CALC, 3);
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

    /// Sets OVAL and OSV to the results of CALC or of OCAL, as DOPT selects.
    fn evaluate_output(&mut self) {
        if self.output_source == 0 {
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

    /// Whether OOPT requests an output for this processing.
    fn is_output_wanted(&mut self) -> bool {
        let (now, before) = (self.value, std::mem::replace(&mut self.previous_value, self.value));
        match self.output_option {
            0 => true,
            1 => {
                let is_moved = (before - now).abs().partial_cmp(&self.monitor_deadband) == Some(Ordering::Greater);
                is_moved || self.text_value != self.previous_text
            }
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
        if self.previous_text != self.text_value {
            posts.post(self, SVAL, mask | CHANGED);
            self.previous_text = self.text_value.clone();
        }
        if self.old_output_text != self.output_text {
            posts.post(self, OSV, mask | CHANGED);
            self.old_output_text = self.output_text.clone();
        }
        inputs::post(self, posts, mask, mask.meets(EventMask::ALARM));
        for index in 0..N_TEXTS {
            if self.texts[index] != self.last_texts[index] {
                posts.post(self, AA + index as u16, mask | CHANGED);
                self.last_texts[index] = self.texts[index].clone();
            }
        }
        if self.old_output_value != self.output_value {
            posts.post(self, OVAL, mask | CHANGED);
            self.old_output_value = self.output_value;
        }
    }
}
