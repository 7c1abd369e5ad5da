//! acalcout, of synApps calc: a calcout whose inputs and results are both numbers and arrays.
//!
//! Source: synApps calc, the documentation of the aCalcout record, aCalcoutRecord and devaCalcoutSoft.

use std::sync::Arc;

use fodo_data::{Array, EventMask, Kind, Meta, Status, Text, Value};

use crate::calc::{ArrayInputs, CalcError, CompiledExpression};
use crate::common::{Common, row};
use crate::field::{Dbf, names, record_fields};
use crate::limit::CALC_ELEMENTS_MAX;
use crate::link::Target;
use crate::menu::{self, INVALID, NO, USE_OCAL};
use crate::process::post::RecordPosts;
use crate::process::put::fitting;
use crate::process::scan::event_name;
use crate::process::step::{LinkError, ProcessOutcome, Step};
use crate::record::expression::{self, ExpressionOutput, compile_optional, expression_output, is_output_due};
use crate::record::inputs::{self, inputs};
use crate::record::levels::{self, alarm_limits};
use crate::record::links::state_of;
use crate::record::{CHANGED, Record, index_in, is_changed, record_type};
use crate::reference::KindAndCount;

record_fields! {
    /// An expression of numbers and arrays, with an output.
    ACalcOut
    fields {
        "VERS" version: Double = 1.4, NOMOD INTEREST0;
        ..expression_output(80, "", SYNAPPS_OOPT);
        "AVAL" array_value: Array = Array::empty(Kind::F64), ASL0 PP INTEREST0;
        "OAV" output_array: Array = Array::empty(Kind::F64), ASL0 PP INTEREST0;
        "NELM" capacity: ULong = 1, NOMOD;
        "NUSE" n_used: ULong, PP SPECIAL;
        "SIZE" reported_size: Menu(menu::ACALCOUT_SIZE);
        "WAIT" waits: Menu(menu::SCALCOUT_WAIT);
        "OEVT" output_event: UShort, ASL0 INTEREST0;
        "PREC" precision: Short;
        ..limits(Double;;);
        "NEWM" new_arrays: ULong, ASL0 NOMOD INTEREST0;
        "CACT" is_calculating: UChar, NOMOD;
        "CSTAT" calculation_status: Long, NOMOD;
        "AMASK" assigned_arrays: ULong, NOMOD;
        "AMEM" array_memory: Long, NOMOD;
        "PMEM" old_array_memory: Long, NOMOD;
    }
    arrays {
        inputs: [InLink(); 12] [SPECIAL] "INP" A_TO_L;
        array_inputs: [InLink(); 12] [SPECIAL] "IN" AA_TO_LL;
        input_states: [Menu(menu::CALCOUT_INAV); 12] [NOMOD] "IN" A_TO_L "V";
        array_input_states: [Menu(menu::CALCOUT_INAV); 12] [NOMOD] "I" AA_TO_LL "V";
        args: [Double(); 12] [PP INTEREST0] "" A_TO_L;
        arrays: [Array(); 12] [ASL0 PP INTEREST0] "" AA_TO_LL = Array::empty(Kind::F64);
        last_args: [Double(); 12] [NOMOD INTEREST3] "P" A_TO_L;
    }
    private {
        common: Common;
        program: Option<CompiledExpression>;
        output_program: Option<CompiledExpression>;
        /// AVAL and OAV as last posted.
        old_array_value: PostedElements;
        old_output_array: PostedElements;
    }
}

record_type!(ACalcOut, "acalcout", ["Soft Channel"], CALC OCAL AVAL NUSE OVAL OAV AA INAA IAAV);
alarm_limits!(ACalcOut, f64);
inputs!(ACalcOut, "PA");
expression_output!(ACalcOut);

/// The elements of an array as last posted.
type PostedElements = Arc<Vec<f64>>;

const N_ARRAYS: usize = 12;
/// SIZE: report arrays of NUSE elements to clients.
const SIZE_NUSE: u16 = 1;

/// The names of the array links, for messages.
const ARRAY_INPUTS: [&str; N_ARRAYS] = names(ACalcOut::ROWS, "INAA");

impl Record for ACalcOut {
    fn init(&mut self) {
        self.capacity = self.capacity.clamp(1, CALC_ELEMENTS_MAX);
        self.n_used = self.n_used.min(self.capacity);
        self.fit_arrays();
        for index in 0..N_ARRAYS {
            self.array_input_states[index] = state_of(&self.array_inputs[index]);
        }
        expression::init(self);
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(ACalcOut::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        inputs::meta_from_record(self, field, meta);
        if row.dbf == Dbf::Array {
            meta.units = self.units.clone();
            meta.precision = self.precision;
        }
        None
    }

    fn own_kind_and_count(&self, field: u16) -> Option<KindAndCount> {
        let is_array = [AVAL, OAV].contains(&field) || index_in(field, AA, N_ARRAYS).is_some();
        let n = if self.reported_size == SIZE_NUSE { self.n_elements() as u32 } else { self.capacity };
        is_array.then_some(KindAndCount { kind: Kind::F64, count_max: n })
    }

    fn after_put(&mut self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str> {
        match field {
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
            field if index_in(field, AA, N_ARRAYS).is_some() => self.fit_arrays(),
            field => self.link_state_changed(field, posts),
        }
        Ok(())
    }

    fn compile(&mut self, field: u16, text: &Text) -> Result<(), CalcError> {
        match field {
            CALC => compile_optional(&mut self.program, text, CompiledExpression::compile_array),
            OCAL => compile_optional(&mut self.output_program, text, CompiledExpression::compile_array),
            _ => Ok(()),
        }
    }

    fn link_state_changed(&mut self, field: u16, posts: &mut RecordPosts) {
        if let Some(index) = index_in(field, INAA, N_ARRAYS) {
            self.array_input_states[index] = state_of(&self.array_inputs[index]);
            posts.post(self, IAAV + index as u16, EventMask::VALUE);
        } else {
            expression::field_was_put(self, field, posts);
        }
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        let mut is_read = true;
        if !step.is_completion {
            let acalcout = step.lock();
            acalcout.last_args = acalcout.args;
            is_read = fetch(step).is_ok();
            if is_read {
                step.post(ACalcOut::calculate);
                levels::check(step.lock());
            }
        }
        if is_read && let Some(waiting) = expression::write(step) {
            return waiting;
        }
        step.stamp(None);
        step.post(ACalcOut::monitor);
        ProcessOutcome::Done
    }
}

/// Fetches all inputs, and stops at the first that cannot be read.
fn fetch(step: &mut Step<'_, '_, ACalcOut>) -> Result<(), LinkError> {
    for index in 0..N_ARRAYS {
        inputs::fetch(step, index)?;
    }
    for (index, name) in ARRAY_INPUTS.iter().enumerate() {
        let n = step.lock().n_elements();
        let Some(value) = step.read_link_array(name, |acalcout| &acalcout.array_inputs[index], Kind::F64)? else {
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

impl ExpressionOutput for ACalcOut {
    const MAY_BE_EMPTY: bool = true;

    fn is_output_due(&mut self) -> bool {
        let before = std::mem::replace(&mut self.previous_value, self.value);
        let is_changed = (before - self.value).abs() > self.monitor_deadband;
        is_output_due(self.output_option, self.value, before, is_changed)
    }

    /// A target of one element receives the number, not the array.
    fn value_to_write(step: &mut Step<'_, '_, Self>) -> Value {
        let n_there = step.size_at(|acalcout| &acalcout.output).map_or(1, |count_max| count_max as usize);
        let acalcout = step.lock();
        match n_there.min(acalcout.n_elements()) {
            1 => Value::from(acalcout.output_value),
            n => Value::Array(acalcout.output_array.truncated(n)),
        }
    }

    fn waits(&mut self) -> bool {
        self.waits != NO
    }

    fn event(&self) -> Option<Text> {
        event_name(&self.output_event.to_string().into())
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

    /// Evaluates both expressions, and posts the arrays that they assign.
    fn calculate(&mut self, posts: &mut RecordPosts) {
        let program = self.program.take();
        let before = (self.value, self.array_value.clone());
        let mut is_ok = true;
        self.assigned_arrays = 0;
        ((self.value, self.array_value), is_ok) = self.results(program.as_ref(), before, is_ok);
        self.program = program;
        if self.output_source == USE_OCAL {
            let program = self.output_program.take();
            let before = (self.output_value, self.output_array.clone());
            ((self.output_value, self.output_array), is_ok) = self.results(program.as_ref(), before, is_ok);
            self.output_program = program;
        } else {
            (self.output_value, self.output_array) = (self.value, self.array_value.clone());
        }
        self.calculation_status = if is_ok { 0 } else { -1 };
        if is_ok {
            self.common.undefined = 0;
        } else {
            self.common.raise(Status::CALC, INVALID);
        }
        let assigned = self.assigned_arrays;
        for index in (0..N_ARRAYS).filter(|index| assigned >> index & 1 != 0) {
            posts.post(self, AA + index as u16, CHANGED);
        }
    }

    /// Evaluates an expression. Returns the results, which remain `before` when it cannot be evaluated, and whether
    /// this and all previous evaluations succeeded.
    fn results(
        &mut self,
        program: Option<&CompiledExpression>,
        before: (f64, Array),
        is_ok: bool,
    ) -> ((f64, Array), bool) {
        let n = self.n_elements();
        let shared = |array: &Array| if let Array::F64(elements) = array { elements.clone() } else { Arc::default() };
        let mut arrays: Vec<Arc<Vec<f64>>> = self.arrays.iter().map(shared).collect();
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
            self.arrays[index] = Array::F64(array);
        }
        self.assigned_arrays |= assigned;
        match result.map(|result| result.results(n)) {
            Some((value, array)) => ((value, Array::F64(Arc::new(array))), is_ok && value.is_finite()),
            None => (before, false),
        }
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let mask = levels::monitor(self, posts);
        self.post_array(AVAL, mask, posts);
        self.post_array(OAV, mask, posts);
        inputs::post(self, posts, mask, mask.meets(EventMask::ALARM));
        let new_arrays = std::mem::take(&mut self.new_arrays);
        for index in (0..N_ARRAYS).filter(|index| new_arrays >> index & 1 != 0) {
            posts.post(self, AA + index as u16, mask | CHANGED);
        }
        if is_changed(&mut self.old_output_value, &self.output_value) {
            posts.post(self, OVAL, mask | CHANGED);
        }
    }

    /// Posts AVAL or OAV if an element has changed by more than a deadband.
    fn post_array(&mut self, field: u16, mask: EventMask, posts: &mut RecordPosts) {
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
