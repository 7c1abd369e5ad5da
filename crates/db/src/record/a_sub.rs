//! aSub: calls a routine of the program by name, with up to 21 input arrays and 21 output arrays.

use std::sync::Arc;

use fodo_data::{Array, Kind, Limits, Meta, Status, Text, Value};

use crate::common::{Common, row};
use crate::field::{names, record_fields};
use crate::link::Target;
use crate::menu::{self, INVALID};
use crate::process::post::RecordPosts;
use crate::process::put::fitting;
use crate::process::step::{LinkError, ProcessOutcome, Step};
use crate::record::array::{capacity_of, constants, kind_of, zeros};
use crate::record::simulation::set_constant;
use crate::record::{CHANGED, Record, index_in, inputs, is_changed, record_type};
use crate::reference::KindAndCount;
use crate::routine::{ASubCall, ArrayRoutine, N_ARRAYS, Routines};

/// DOUBLE among the choices of FTA and FTVA.
const DOUBLE: u16 = 10;

record_fields! {
    /// A record that calls a routine with arrays.
    ASub
    fields {
        "VAL" value: Long, ASL0 INTEREST0;
        "OVAL" old_value: Long, NOMOD INTEREST3;
        "INAM" init_routine_name: String(41), NOMOD;
        "LFLG" name_source: Menu(menu::ASUB_LFLG);
        "SUBL" name_link: InLink, NOMOD;
        "SNAM" routine_name: String(41), SPECIAL;
        "ONAM" old_routine_name: String(41), NOMOD INTEREST3;
        "BRSV" bad_severity: Menu(menu::ALARM_SEVR), PP;
        "PREC" precision: Short, PROP;
        "EFLG" posting: Menu(menu::ASUB_EFLG) = ON_CHANGE;
    }
    arrays {
        inputs: [InLink(); 21] [] "INP" A_TO_U;
        args: [Array(); 21] [ASL0 INTEREST2] "" A_TO_U = Array::empty(Kind::F64);
        arg_types: [Menu(menu::FTYPE); 21] [NOMOD] "FT" A_TO_U = DOUBLE;
        arg_capacities: [ULong(); 21] [NOMOD] "NO" A_TO_U = 1;
        arg_lengths: [ULong(); 21] [NOMOD INTEREST3] "NE" A_TO_U = 1;
        outputs: [OutLink(); 21] [] "OUT" A_TO_U;
        values: [Array(); 21] [ASL0 INTEREST2] "VAL" A_TO_U = Array::empty(Kind::F64);
        value_types: [Menu(menu::FTYPE); 21] [NOMOD] "FTV" A_TO_U = DOUBLE;
        value_capacities: [ULong(); 21] [NOMOD] "NOV" A_TO_U = 1;
        value_lengths: [ULong(); 21] [NOMOD INTEREST3] "NEV" A_TO_U = 1;
        old_lengths: [ULong(); 21] [NOMOD INTEREST4] "ONV" A_TO_U = 1;
    }
    private {
        common: Common;
        /// VALA to VALU as last posted.
        old_values: Vec<Array>;
        routines: Arc<Routines>;
        /// The routine that SNAM names.
        routine: Option<ArrayRoutine>;
    }
}

record_type!(ASub, "aSub", [], VAL A VALA NEVA);

/// LFLG: read the name of the routine through SUBL.
const READ: u16 = 1;
/// The choices of EFLG.
const ON_CHANGE: u16 = 1;
const ALWAYS: u16 = 2;
/// The value of VAL when no routine has the name in SNAM.
///
/// Source: EPICS Base 7.0, S_db_BadSub.
const NO_ROUTINE: i32 = 511 << 16 | 35;

/// The names of the output links, for messages.
const OUTPUTS: [&str; N_ARRAYS] = names(ASub::ROWS, "OUTA");

impl Record for ASub {
    fn set_routines(&mut self, routines: &Arc<Routines>) {
        self.routines = Arc::clone(routines);
    }

    fn init(&mut self) {
        for index in 0..N_ARRAYS {
            let (kind, capacity) = (kind_of(self.arg_types[index]), capacity_of(self.arg_capacities[index]));
            self.arg_capacities[index] = capacity;
            let constants = constants(&self.inputs[index], kind, capacity).unwrap_or_default();
            self.args[index] = constants.filter(|array| !array.is_empty()).unwrap_or_else(|| zeros(kind, capacity));
            self.arg_lengths[index] = self.args[index].len() as u32;

            let (kind, capacity) = (kind_of(self.value_types[index]), capacity_of(self.value_capacities[index]));
            self.value_capacities[index] = capacity;
            self.values[index] = zeros(kind, capacity);
            self.value_lengths[index] = capacity;
            self.old_lengths[index] = capacity;
        }
        self.old_values = self.values.to_vec();
        set_constant(&mut self.routine_name, &self.name_link);
        if !self.init_routine_name.is_empty() {
            let Some(routine) = self.find(&self.init_routine_name) else { return };
            // Base ignores the result, too.
            let _ = self.call(&routine);
        }
        if self.name_source != READ && !self.routine_name.is_empty() {
            self.routine = self.find(&self.routine_name);
            if self.routine.is_none() {
                return;
            }
        }
        self.old_routine_name = self.routine_name.clone();
        self.old_value = self.value;
        self.old_values = self.values.to_vec();
        self.old_lengths = self.value_lengths;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(ASub::ROWS, field)?;
        crate::meta::ranges(row, meta);
        meta.display = Limits::default();
        meta.precision = crate::meta::precision(row, self.precision);
        let link = match array_of(field)? {
            ArrayField::Input(index) => self.inputs.get(index)?,
            ArrayField::Output(index) => self.outputs.get(index)?,
        };
        inputs::meta_of_link(link, self.precision, meta)
    }

    fn own_kind_and_count(&self, field: u16) -> Option<KindAndCount> {
        let (kind, capacity) = match array_of(field)? {
            ArrayField::Input(index) => (self.arg_types.get(index)?, self.arg_capacities.get(index)?),
            ArrayField::Output(index) => (self.value_types.get(index)?, self.value_capacities.get(index)?),
        };
        Some(KindAndCount { kind: kind_of(*kind), count_max: *capacity })
    }

    fn after_put(&mut self, field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
        match array_of(field) {
            Some(ArrayField::Input(index)) => self.arg_lengths[index] = self.args[index].len() as u32,
            Some(ArrayField::Output(index)) => self.value_lengths[index] = self.values[index].len() as u32,
            None if self.name_source == READ => {}
            None => {
                self.routine = self.find(&self.routine_name);
                if self.routine.is_none() && !self.routine_name.is_empty() {
                    return Err("no routine has this name");
                }
            }
        }
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        if fetch(step) {
            let code = step.lock().run();
            step.lock().value = code;
            if code == 0 {
                for (index, name) in OUTPUTS.iter().enumerate() {
                    let value = Value::Array(step.lock().values[index].clone());
                    // A link that cannot be written raises its own alarm; the other links are still written, as in
                    // Base.
                    let _ = step.write_link(name, |sub| &sub.outputs[index], value);
                }
            }
        }
        step.stamp(None);
        step.post(ASub::monitor);
        ProcessOutcome::Done
    }
}

/// An input or output array, by its index from A or VALA.
#[derive(Clone, Copy)]
enum ArrayField {
    Input(usize),
    Output(usize),
}

/// The array that a field number stands for.
fn array_of(field: u16) -> Option<ArrayField> {
    let input = index_in(field, A, N_ARRAYS).map(ArrayField::Input);
    input.or_else(|| index_in(field, VALA, N_ARRAYS).map(ArrayField::Output))
}

/// Reads the name of the routine and the inputs. Returns whether the routine can be called.
fn fetch(step: &mut Step<'_, '_, ASub>) -> bool {
    if step.lock().name_source == READ {
        match step.read_link::<Text>("SUBL", |sub| &sub.name_link) {
            Ok(Some(name)) => step.lock().routine_name = name,
            Ok(None) => {}
            Err(LinkError) => return false,
        }
        let sub = step.lock();
        if !sub.routine_name.is_empty() && sub.routine_name != sub.old_routine_name {
            let Some(routine) = sub.find(&sub.routine_name) else { return false };
            sub.routine = Some(routine);
            sub.old_routine_name = sub.routine_name.clone();
        }
    }
    for (index, name) in inputs::NAMES.iter().enumerate() {
        let sub = step.lock();
        if sub.inputs[index].is_constant() {
            continue;
        }
        let (kind, capacity) = (kind_of(sub.arg_types[index]), sub.arg_capacities[index]);
        let fetched = step.read_link_array(name, |sub| &sub.inputs[index], kind);
        match fetched.map(|value| value.and_then(|value| fitting(value, kind, capacity).ok())) {
            Ok(Some(array)) if !array.is_empty() => {
                let sub = step.lock();
                sub.arg_lengths[index] = array.len() as u32;
                sub.args[index] = array;
            }
            Ok(_) => {}
            Err(LinkError) => return false,
        }
    }
    true
}

impl ASub {
    fn find(&self, name: &Text) -> Option<ArrayRoutine> {
        self.routines.find_array(&name.to_str())
    }

    /// Calls the routine that SNAM names, and returns the new VAL.
    fn run(&mut self) -> i32 {
        if self.routine_name.is_empty() {
            return 0;
        }
        let Some(routine) = self.routine.clone() else {
            self.common.raise(Status::BAD_SUB, INVALID);
            return NO_ROUTINE;
        };
        let code = self.call(&routine);
        if code < 0 {
            self.common.raise(Status::SOFT, self.bad_severity);
        } else {
            self.common.undefined = 0;
        }
        code
    }

    fn call(&mut self, routine: &ArrayRoutine) -> i32 {
        let mut call =
            ASubCall { inputs: &self.args, outputs: &mut self.values, output_capacities: &self.value_capacities };
        let code = routine.call(&mut call);
        for (length, value) in self.value_lengths.iter_mut().zip(&self.values) {
            *length = value.len() as u32;
        }
        code
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let mask = posts.alarms(self) | CHANGED;
        if is_changed(&mut self.old_value, &self.value) {
            posts.post(self, VAL, mask);
        }
        for index in 0..N_ARRAYS {
            let is_length_changed = self.value_lengths[index] != self.old_lengths[index];
            let is_changed = || is_length_changed || !is_same(&self.values[index], &self.old_values[index]);
            let (posts_value, posts_length) = match self.posting {
                ALWAYS => (true, true),
                ON_CHANGE => (is_changed(), is_length_changed),
                _ => continue,
            };
            if posts_value {
                posts.post(self, VALA + index as u16, mask);
            }
            if posts_length {
                posts.post(self, NEVA + index as u16, mask);
            }
            if self.posting == ON_CHANGE {
                self.old_values[index] = self.values[index].clone();
                self.old_lengths[index] = self.value_lengths[index];
            }
        }
    }
}

/// Whether two arrays are bitwise equal.
fn is_same(left: &Array, right: &Array) -> bool {
    match (left, right) {
        (Array::F64(left), Array::F64(right)) => {
            left.iter().map(|number| number.to_bits()).eq(right.iter().map(|number| number.to_bits()))
        }
        (Array::F32(left), Array::F32(right)) => {
            left.iter().map(|number| number.to_bits()).eq(right.iter().map(|number| number.to_bits()))
        }
        (left, right) => left == right,
    }
}
