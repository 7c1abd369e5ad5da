//! acalcout, of synApps calc: a calcout whose inputs and results are both numbers and arrays.
//!
//! Source: synApps calc, the documentation of the aCalcout record, aCalcoutRecord and devaCalcoutSoft.

use std::sync::Arc;

use fodo_data::{Array, EventMask, Kind, Meta, Status, Text, Value};

use crate::calc::{ArrayInputs, Program};
use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::limit::CALC_ELEMENTS_MAX;
use crate::link::Target;
use crate::menu;
use crate::post::Posts;
use crate::put::fitting;
use crate::record::inputs::{self, inputs};
use crate::record::levels::{self, Leveled, leveled, moved};
use crate::record::links::state_of;
use crate::record::{CHANGED, Record, record_type};
use crate::scan::event_name;
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// An expression of numbers and arrays, with an output.
    ACalcOut
    fields {
        "VERS" version: Double = 1.4, NOMOD;
        "VAL" value: Double, ASL0;
        "AVAL" array_value: Array = Array::empty(Kind::F64), ASL0 PP;
        "NELM" capacity: ULong = 1, NOMOD;
        "NUSE" n_used: ULong, PP SPECIAL;
        "PVAL" previous_value: Double;
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
        "NEWM" new_arrays: ULong, ASL0 NOMOD;
        "OVAL" output_value: Double, ASL0;
        "OAV" output_array: Array = Array::empty(Kind::F64), ASL0 PP;
        "POVL" old_output_value: Double, ASL0;
        "LALM" last_alarmed: Double, NOMOD;
        "ALST" last_archived: Double, NOMOD;
        "MLST" last_monitored: Double, NOMOD;
        "CACT" is_calculating: UChar, NOMOD;
        "CSTAT" calculation_status: Long, NOMOD;
        "AMASK" assigned_arrays: ULong, NOMOD;
        "SIZE" reported_size: Menu(menu::ACALCOUT_SIZE);
        "AMEM" array_memory: Long, NOMOD;
        "PMEM" old_array_memory: Long, NOMOD;
    }
    arrays {
        inputs: [InLink(); 12] [SPECIAL] {
            "INPA" 0, "INPB" 1, "INPC" 2, "INPD" 3, "INPE" 4, "INPF" 5, "INPG" 6, "INPH" 7, "INPI" 8, "INPJ" 9, "INPK" 10, "INPL" 11
        }
        array_inputs: [InLink(); 12] [SPECIAL] {
            "INAA" 0, "INBB" 1, "INCC" 2, "INDD" 3, "INEE" 4, "INFF" 5, "INGG" 6, "INHH" 7, "INII" 8, "INJJ" 9, "INKK" 10, "INLL" 11
        }
        input_states: [Menu(menu::CALCOUT_INAV); 12] [NOMOD] {
            "INAV" 0, "INBV" 1, "INCV" 2, "INDV" 3, "INEV" 4, "INFV" 5, "INGV" 6, "INHV" 7, "INIV" 8, "INJV" 9, "INKV" 10, "INLV" 11
        }
        array_input_states: [Menu(menu::CALCOUT_INAV); 12] [NOMOD] {
            "IAAV" 0, "IBBV" 1, "ICCV" 2, "IDDV" 3, "IEEV" 4, "IFFV" 5, "IGGV" 6, "IHHV" 7, "IIIV" 8, "IJJV" 9, "IKKV" 10, "ILLV" 11
        }
        args: [Double(); 12] [PP] {
            "A" 0, "B" 1, "C" 2, "D" 3, "E" 4, "F" 5, "G" 6, "H" 7, "I" 8, "J" 9, "K" 10, "L" 11
        }
        arrays: [Array(); 12] [ASL0 PP] {
            "AA" 0, "BB" 1, "CC" 2, "DD" 3, "EE" 4, "FF" 5, "GG" 6, "HH" 7, "II" 8, "JJ" 9, "KK" 10, "LL" 11
        } = Array::empty(Kind::F64);
        last_args: [Double(); 12] [NOMOD] {
            "PA" 0, "PB" 1, "PC" 2, "PD" 3, "PE" 4, "PF" 5, "PG" 6, "PH" 7, "PI" 8, "PJ" 9, "PK" 10, "PL" 11
        }
    }
    private {
        common: Common;
        program: Option<Program>;
        output_program: Option<Program>;
        /// AVAL and OAV as last posted.
        old_array_value: Posted;
        old_output_array: Posted;
    }
}

record_type!(ACalcOut, "acalcout", ["Soft Channel"]);
leveled!(ACalcOut, f64);
inputs!(ACalcOut, "PA");

/// The elements of an array as last posted.
type Posted = Arc<Vec<f64>>;

const N_ARRAYS: usize = 12;
const VAL: u16 = ACalcOut::at("VAL");
const AVAL: u16 = ACalcOut::at("AVAL");
const NUSE: u16 = ACalcOut::at("NUSE");
const OVAL: u16 = ACalcOut::at("OVAL");
const OAV: u16 = ACalcOut::at("OAV");
const CALC: u16 = ACalcOut::at("CALC");
const CLCV: u16 = ACalcOut::at("CLCV");
const OCAL: u16 = ACalcOut::at("OCAL");
const OCLV: u16 = ACalcOut::at("OCLV");
const DLYA: u16 = ACalcOut::at("DLYA");
const A: u16 = ACalcOut::at("A");
const PA: u16 = ACalcOut::at("PA");
const AA: u16 = ACalcOut::at("AA");
const INPA: u16 = ACalcOut::at("INPA");
const INAA: u16 = ACalcOut::at("INAA");
const INAV: u16 = ACalcOut::at("INAV");
const IAAV: u16 = ACalcOut::at("IAAV");
const OUT: u16 = ACalcOut::at("OUT");
const OUTV: u16 = ACalcOut::at("OUTV");

/// DOPT: write the result of OCAL.
const USE_OCAL: u16 = 1;
/// SIZE: report arrays of NUSE elements to clients.
const SIZE_NUSE: u16 = 1;

/// The names of the array links, for messages.
const ARRAY_INPUTS: [&str; N_ARRAYS] =
    ["INAA", "INBB", "INCC", "INDD", "INEE", "INFF", "INGG", "INHH", "INII", "INJJ", "INKK", "INLL"];

impl Record for ACalcOut {
    fn init(&mut self) {
        self.capacity = self.capacity.clamp(1, CALC_ELEMENTS_MAX);
        self.n_used = self.n_used.min(self.capacity);
        self.fit_arrays();
        inputs::init(self);
        for index in 0..N_ARRAYS {
            self.input_states[index] = state_of(&self.inputs[index]);
            self.array_input_states[index] = state_of(&self.array_inputs[index]);
        }
        self.output_link_state = state_of(&self.output);
        (self.program, self.expression_state) = compiled(&self.expression);
        (self.output_program, self.output_expression_state) = compiled(&self.output_expression);
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(ACalcOut::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        let is_input = [A, PA].iter().any(|first| (*first..first + N_ARRAYS as u16).contains(&field));
        if is_input {
            meta.display = self.levels().display;
            meta.control = meta.display;
        }
        if row.dbf == Dbf::Array {
            meta.units = self.units.clone();
            meta.precision = self.precision;
        }
        None
    }

    fn own_facts(&self, field: u16) -> Option<(Kind, u32)> {
        let is_array = [AVAL, OAV].contains(&field) || (AA..AA + N_ARRAYS as u16).contains(&field);
        let n = if self.reported_size == SIZE_NUSE { self.n_elements() as u32 } else { self.capacity };
        is_array.then_some((Kind::F64, n))
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
            NUSE => {
                let is_too_much = self.n_used > self.capacity;
                self.n_used = self.n_used.min(self.capacity);
                self.fit_arrays();
                if is_too_much {
                    posts.post(self, NUSE, EventMask::VALUE);
                    return Err("NUSE must not be greater than NELM");
                }
            }
            AVAL | OAV => self.fit_arrays(),
            field if (AA..AA + N_ARRAYS as u16).contains(&field) => self.fit_arrays(),
            field => self.link_was_put(field, posts),
        }
        Ok(())
    }

    fn link_joined(&mut self, field: u16, posts: &mut Posts) {
        // Only NUSE is ever rejected, never a link.
        let _ = self.after_put(field, posts);
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        if step.is_completion {
            let is_delayed = std::mem::take(&mut step.lock().is_delayed) != 0;
            if is_delayed {
                step.post(|acalcout, posts| posts.post(acalcout, DLYA, EventMask::VALUE));
                if execute(step) {
                    return Outcome::Waiting;
                }
            }
        } else {
            let acalcout = step.lock();
            acalcout.last_args = acalcout.args;
            if fetch(step).is_ok() {
                step.post(ACalcOut::calculate);
                levels::check(step.lock(), None);
                let delay_s = step.lock().output_delay;
                if step.lock().is_output_wanted() {
                    if delay_s > 0.0 {
                        step.lock().is_delayed = 1;
                        step.post(|acalcout, posts| posts.post(acalcout, DLYA, EventMask::VALUE));
                        return step.complete_after(delay_s);
                    }
                    if execute(step) {
                        return Outcome::Waiting;
                    }
                }
            }
        }
        step.stamp(None);
        step.post(ACalcOut::monitor);
        Outcome::Done
    }
}

/// Fetches all inputs, and stops at the first that cannot be read.
fn fetch(step: &mut Step<'_, '_, ACalcOut>) -> Result<(), Broken> {
    for index in 0..N_ARRAYS {
        inputs::fetch(step, index)?;
    }
    for (index, name) in ARRAY_INPUTS.iter().enumerate() {
        let n = step.lock().n_elements();
        let Some(value) = step.fetch_array(name, |acalcout| &acalcout.array_inputs[index], Kind::F64)? else {
            continue;
        };
        let Ok(array) = fitting(value, Kind::F64, n as u32) else { continue };
        let acalcout = step.lock();
        let array = sized(&array, n);
        if acalcout.arrays[index] != array {
            acalcout.new_arrays |= 1 << index;
            acalcout.arrays[index] = array;
        }
    }
    Ok(())
}

/// Drives OUT and posts the event OEVT, unless the alarm and IVOA forbid it. Returns whether the record has to wait for
/// the write to complete, which WAIT can request of a channel.
fn execute(step: &mut Step<'_, '_, ACalcOut>) -> bool {
    {
        let acalcout = step.lock();
        if acalcout.common.new_severity >= 3 {
            match acalcout.invalid_action {
                0 => {}
                2 => acalcout.output_value = acalcout.invalid_value,
                _ => return false,
            }
        }
    }
    // A target of one element receives the number, not the array.
    let n_there = step.target_facts(|acalcout| &acalcout.output).map_or(1, |(_, count_max)| count_max as usize);
    let value = {
        let acalcout = step.lock();
        match n_there.min(acalcout.n_elements()) {
            1 => Value::from(acalcout.output_value),
            n => Value::Array(acalcout.output_array.truncated(n)),
        }
    };
    let waits = step.lock().waits != 0;
    let is_waiting = waits && step.drive_notifying(|acalcout| &acalcout.output, value.clone(), 0);
    if !is_waiting {
        // A broken link has already raised its alarm; the event is posted nevertheless.
        let _ = step.drive("OUT", |acalcout| &acalcout.output, value);
    }
    let event = event_name(&step.lock().output_event.to_string().into());
    if let Some(event) = event {
        step.post_event(event);
    }
    is_waiting
}

/// Compiles an expression, and returns it with the value for CLCV or OCLV: 0, or -1 when it cannot be compiled. An
/// empty expression is valid and has no result.
fn compiled(expression: &Text) -> (Option<Program>, i32) {
    match Program::compile_array(&expression.to_str()) {
        Ok(program) => (Some(program), 0),
        Err(_) => (None, if expression.is_empty() { 0 } else { -1 }),
    }
}

/// The array, truncated or filled with zeros to `n` elements.
fn sized(array: &Array, n: usize) -> Array {
    match array {
        Array::F64(elements) if elements.len() == n => array.clone(),
        array => {
            let mut elements = numbers(array).to_vec();
            elements.resize(n, 0.0);
            Array::F64(Arc::new(elements))
        }
    }
}

fn numbers(array: &Array) -> &[f64] {
    if let Array::F64(elements) = array { elements } else { &[] }
}

impl ACalcOut {
    /// The number of used elements of each array.
    fn n_elements(&self) -> usize {
        (if self.n_used == 0 { self.capacity } else { self.n_used }) as usize
    }

    /// Resizes all arrays to the number of used elements.
    fn fit_arrays(&mut self) {
        let n = self.n_elements();
        let arrays = self.arrays.iter_mut().chain([&mut self.array_value, &mut self.output_array]);
        arrays.for_each(|array| *array = sized(array, n));
    }

    /// Called after a put to an input link: a constant becomes the value of its input, and the state of the link
    /// changes.
    fn link_was_put(&mut self, field: u16, posts: &mut Posts) {
        let index = |first: u16| field.checked_sub(first).map(usize::from).filter(|index| *index < N_ARRAYS);
        if let Some(index) = index(INPA) {
            self.input_states[index] = state_of(&self.inputs[index]);
            if inputs::init_one(self, index) {
                posts.post(self, A + index as u16, EventMask::VALUE);
            }
            posts.post(self, INAV + index as u16, EventMask::VALUE);
        } else if let Some(index) = index(INAA) {
            self.array_input_states[index] = state_of(&self.array_inputs[index]);
            posts.post(self, IAAV + index as u16, EventMask::VALUE);
        }
    }

    /// Evaluates both expressions, and posts the arrays that they assign.
    fn calculate(&mut self, posts: &mut Posts) {
        let program = self.program.take();
        let before = (self.value, self.array_value.clone());
        let mut is_well = true;
        self.assigned_arrays = 0;
        ((self.value, self.array_value), is_well) = self.results(program.as_ref(), before, is_well);
        self.program = program;
        if self.output_source == USE_OCAL {
            let program = self.output_program.take();
            let before = (self.output_value, self.output_array.clone());
            ((self.output_value, self.output_array), is_well) = self.results(program.as_ref(), before, is_well);
            self.output_program = program;
        } else {
            (self.output_value, self.output_array) = (self.value, self.array_value.clone());
        }
        self.calculation_status = if is_well { 0 } else { -1 };
        if is_well {
            self.common.undefined = 0;
        } else {
            self.common.raise(Status::CALC, 3);
        }
        let assigned = self.assigned_arrays;
        for index in (0..N_ARRAYS).filter(|index| assigned >> index & 1 != 0) {
            posts.post(self, AA + index as u16, CHANGED);
        }
    }

    /// Evaluates an expression. Returns the results, which remain `before` when it cannot be evaluated, and whether
    /// this and all previous evaluations succeeded.
    fn results(&mut self, program: Option<&Program>, before: (f64, Array), is_well: bool) -> ((f64, Array), bool) {
        let n = self.n_elements();
        let mut arrays: Vec<Vec<f64>> = self.arrays.iter().map(|array| numbers(array).to_vec()).collect();
        let mut inputs = ArrayInputs {
            args: &mut self.args,
            arrays: &mut arrays,
            assigned: 0,
            value: before.0,
            array: numbers(&before.1),
            n,
        };
        let result = program.and_then(|program| program.run_array(&mut inputs));
        let assigned = inputs.assigned;
        for (index, array) in arrays.into_iter().enumerate().filter(|(index, _)| assigned >> index & 1 != 0) {
            self.arrays[index] = Array::F64(Arc::new(array));
        }
        self.assigned_arrays |= assigned;
        match result.map(|result| result.results(n)) {
            Some((value, array)) => ((value, Array::F64(Arc::new(array))), is_well && value.is_finite()),
            None => (before, false),
        }
    }

    /// Whether OOPT requests an output for this processing.
    fn is_output_wanted(&mut self) -> bool {
        let (now, before) = (self.value, std::mem::replace(&mut self.previous_value, self.value));
        match self.output_option {
            0 => true,
            1 => (before - now).abs() > self.monitor_deadband,
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
        self.post_array(AVAL, mask, posts);
        self.post_array(OAV, mask, posts);
        inputs::post(self, posts, mask, mask.meets(EventMask::ALARM));
        let new_arrays = std::mem::take(&mut self.new_arrays);
        for index in (0..N_ARRAYS).filter(|index| new_arrays >> index & 1 != 0) {
            posts.post(self, AA + index as u16, mask | CHANGED);
        }
        if self.old_output_value != self.output_value {
            posts.post(self, OVAL, mask | CHANGED);
            self.old_output_value = self.output_value;
        }
    }

    /// Posts AVAL or OAV if an element has changed by more than a deadband.
    fn post_array(&mut self, field: u16, mask: EventMask, posts: &mut Posts) {
        let (array, old) = match field {
            AVAL => (&self.array_value, &mut self.old_array_value),
            _ => (&self.output_array, &mut self.old_output_array),
        };
        let Array::F64(elements) = array else { return };
        let before = old.iter().copied().chain(std::iter::repeat(0.0));
        let distance = elements.iter().zip(before).map(|(now, before)| (now - before).abs()).fold(0.0, f64::max);
        let mut own = EventMask::NONE;
        if distance > self.monitor_deadband {
            own |= EventMask::VALUE;
        }
        if distance > self.archive_deadband {
            own |= EventMask::LOG;
        }
        if !own.is_empty() {
            *old = Arc::clone(elements);
            posts.post(self, field, mask | own);
        }
    }
}
