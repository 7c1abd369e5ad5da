//! aSub: calls a routine of the program by name, with up to 21 input arrays and 21 output arrays.

use std::sync::Arc;

use fodo_data::{Array, Kind, Limits, Meta, Status, Text, Value};

use crate::common::{Common, row};
use crate::field::record_fields;
use crate::link::Target;
use crate::menu;
use crate::post::Posts;
use crate::put::fitting;
use crate::record::array::{capacity_of, constants, kind_of, zeros};
use crate::record::simulation::constant;
use crate::record::{CHANGED, Record, inputs, record_type};
use crate::routine::{ASubCall, ArrayRoutine, N_ARRAYS, Routines};
use crate::step::{Broken, Outcome, Step};

/// DOUBLE among the choices of FTA and FTVA.
const DOUBLE: u16 = 10;

record_fields! {
    /// A record that calls a routine with arrays.
    ASub
    fields {
        "VAL" value: Long, ASL0;
        "OVAL" old_value: Long, NOMOD;
        "INAM" init_routine_name: String(41), NOMOD;
        "LFLG" name_source: Menu(menu::ASUB_LFLG);
        "SUBL" name_link: InLink, NOMOD;
        "SNAM" routine_name: String(41), SPECIAL;
        "ONAM" old_routine_name: String(41), NOMOD;
        "BRSV" bad_severity: Menu(menu::ALARM_SEVR), PP;
        "PREC" precision: Short, PROP;
        "EFLG" posting: Menu(menu::ASUB_EFLG) = ON_CHANGE;
    }
    arrays {
        inputs: [InLink(); 21] [] {
            "INPA" 0, "INPB" 1, "INPC" 2, "INPD" 3, "INPE" 4, "INPF" 5, "INPG" 6, "INPH" 7, "INPI" 8, "INPJ" 9, "INPK" 10, "INPL" 11, "INPM" 12, "INPN" 13, "INPO" 14, "INPP" 15, "INPQ" 16, "INPR" 17, "INPS" 18, "INPT" 19, "INPU" 20
        }
        args: [Array(); 21] [ASL0] {
            "A" 0, "B" 1, "C" 2, "D" 3, "E" 4, "F" 5, "G" 6, "H" 7, "I" 8, "J" 9, "K" 10, "L" 11, "M" 12, "N" 13, "O" 14, "P" 15, "Q" 16, "R" 17, "S" 18, "T" 19, "U" 20
        } = Array::empty(Kind::F64);
        arg_types: [Menu(menu::FTYPE); 21] [NOMOD] {
            "FTA" 0, "FTB" 1, "FTC" 2, "FTD" 3, "FTE" 4, "FTF" 5, "FTG" 6, "FTH" 7, "FTI" 8, "FTJ" 9, "FTK" 10, "FTL" 11, "FTM" 12, "FTN" 13, "FTO" 14, "FTP" 15, "FTQ" 16, "FTR" 17, "FTS" 18, "FTT" 19, "FTU" 20
        } = DOUBLE;
        arg_capacities: [ULong(); 21] [NOMOD] {
            "NOA" 0, "NOB" 1, "NOC" 2, "NOD" 3, "NOE" 4, "NOF" 5, "NOG" 6, "NOH" 7, "NOI" 8, "NOJ" 9, "NOK" 10, "NOL" 11, "NOM" 12, "NON" 13, "NOO" 14, "NOP" 15, "NOQ" 16, "NOR" 17, "NOS" 18, "NOT" 19, "NOU" 20
        } = 1;
        arg_lengths: [ULong(); 21] [NOMOD] {
            "NEA" 0, "NEB" 1, "NEC" 2, "NED" 3, "NEE" 4, "NEF" 5, "NEG" 6, "NEH" 7, "NEI" 8, "NEJ" 9, "NEK" 10, "NEL" 11, "NEM" 12, "NEN" 13, "NEO" 14, "NEP" 15, "NEQ" 16, "NER" 17, "NES" 18, "NET" 19, "NEU" 20
        } = 1;
        outputs: [OutLink(); 21] [] {
            "OUTA" 0, "OUTB" 1, "OUTC" 2, "OUTD" 3, "OUTE" 4, "OUTF" 5, "OUTG" 6, "OUTH" 7, "OUTI" 8, "OUTJ" 9, "OUTK" 10, "OUTL" 11, "OUTM" 12, "OUTN" 13, "OUTO" 14, "OUTP" 15, "OUTQ" 16, "OUTR" 17, "OUTS" 18, "OUTT" 19, "OUTU" 20
        }
        values: [Array(); 21] [ASL0] {
            "VALA" 0, "VALB" 1, "VALC" 2, "VALD" 3, "VALE" 4, "VALF" 5, "VALG" 6, "VALH" 7, "VALI" 8, "VALJ" 9, "VALK" 10, "VALL" 11, "VALM" 12, "VALN" 13, "VALO" 14, "VALP" 15, "VALQ" 16, "VALR" 17, "VALS" 18, "VALT" 19, "VALU" 20
        } = Array::empty(Kind::F64);
        value_types: [Menu(menu::FTYPE); 21] [NOMOD] {
            "FTVA" 0, "FTVB" 1, "FTVC" 2, "FTVD" 3, "FTVE" 4, "FTVF" 5, "FTVG" 6, "FTVH" 7, "FTVI" 8, "FTVJ" 9, "FTVK" 10, "FTVL" 11, "FTVM" 12, "FTVN" 13, "FTVO" 14, "FTVP" 15, "FTVQ" 16, "FTVR" 17, "FTVS" 18, "FTVT" 19, "FTVU" 20
        } = DOUBLE;
        value_capacities: [ULong(); 21] [NOMOD] {
            "NOVA" 0, "NOVB" 1, "NOVC" 2, "NOVD" 3, "NOVE" 4, "NOVF" 5, "NOVG" 6, "NOVH" 7, "NOVI" 8, "NOVJ" 9, "NOVK" 10, "NOVL" 11, "NOVM" 12, "NOVN" 13, "NOVO" 14, "NOVP" 15, "NOVQ" 16, "NOVR" 17, "NOVS" 18, "NOVT" 19, "NOVU" 20
        } = 1;
        value_lengths: [ULong(); 21] [NOMOD] {
            "NEVA" 0, "NEVB" 1, "NEVC" 2, "NEVD" 3, "NEVE" 4, "NEVF" 5, "NEVG" 6, "NEVH" 7, "NEVI" 8, "NEVJ" 9, "NEVK" 10, "NEVL" 11, "NEVM" 12, "NEVN" 13, "NEVO" 14, "NEVP" 15, "NEVQ" 16, "NEVR" 17, "NEVS" 18, "NEVT" 19, "NEVU" 20
        } = 1;
        old_lengths: [ULong(); 21] [NOMOD] {
            "ONVA" 0, "ONVB" 1, "ONVC" 2, "ONVD" 3, "ONVE" 4, "ONVF" 5, "ONVG" 6, "ONVH" 7, "ONVI" 8, "ONVJ" 9, "ONVK" 10, "ONVL" 11, "ONVM" 12, "ONVN" 13, "ONVO" 14, "ONVP" 15, "ONVQ" 16, "ONVR" 17, "ONVS" 18, "ONVT" 19, "ONVU" 20
        } = 1;
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

record_type!(ASub, "aSub", []);

const VAL: u16 = ASub::at("VAL");
const A: u16 = ASub::at("A");
const VALA: u16 = ASub::at("VALA");
const NEVA: u16 = ASub::at("NEVA");

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
const OUTPUTS: [&str; N_ARRAYS] = [
    "OUTA", "OUTB", "OUTC", "OUTD", "OUTE", "OUTF", "OUTG", "OUTH", "OUTI", "OUTJ", "OUTK", "OUTL", "OUTM", "OUTN",
    "OUTO", "OUTP", "OUTQ", "OUTR", "OUTS", "OUTT", "OUTU",
];

impl Record for ASub {
    fn learn(&mut self, routines: &Arc<Routines>) {
        self.routines = Arc::clone(routines);
    }

    fn init(&mut self) {
        for index in 0..N_ARRAYS {
            let (kind, capacity) = (kind_of(self.arg_types[index]), capacity_of(self.arg_capacities[index]));
            self.arg_capacities[index] = capacity;
            let constants = constants(&self.inputs[index], kind, capacity).filter(|constants| !constants.is_empty());
            self.args[index] = constants.unwrap_or_else(|| zeros(kind, capacity));
            self.arg_lengths[index] = self.args[index].len() as u32;

            let (kind, capacity) = (kind_of(self.value_types[index]), capacity_of(self.value_capacities[index]));
            self.value_capacities[index] = capacity;
            self.values[index] = zeros(kind, capacity);
            self.value_lengths[index] = capacity;
            self.old_lengths[index] = capacity;
        }
        self.old_values = self.values.to_vec();
        if let Some(name) = constant::<Text>(&self.name_link) {
            self.routine_name = name;
        }
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
            Side::In(index) => self.inputs.get(index)?,
            Side::Out(index) => self.outputs.get(index)?,
        };
        inputs::meta_of_link(link, self.precision, meta)
    }

    fn own_facts(&self, field: u16) -> Option<(Kind, u32)> {
        let (kind, capacity) = match array_of(field)? {
            Side::In(index) => (self.arg_types.get(index)?, self.arg_capacities.get(index)?),
            Side::Out(index) => (self.value_types.get(index)?, self.value_capacities.get(index)?),
        };
        Some((kind_of(*kind), *capacity))
    }

    fn after_put(&mut self, field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
        match array_of(field) {
            Some(Side::In(index)) => self.arg_lengths[index] = self.args[index].len() as u32,
            Some(Side::Out(index)) => self.value_lengths[index] = self.values[index].len() as u32,
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

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        if fetch(step) {
            let code = step.lock().run();
            step.lock().value = code;
            if code == 0 {
                for (index, name) in OUTPUTS.iter().enumerate() {
                    let value = Value::Array(step.lock().values[index].clone());
                    // A link that cannot be written raises its own alarm; the other links are still written, as in
                    // Base.
                    let _ = step.drive(name, |sub| &sub.outputs[index], value);
                }
            }
        }
        step.stamp(None);
        step.post(ASub::monitor);
        Outcome::Done
    }
}

/// An input or output array, by its index from A or VALA.
#[derive(Clone, Copy)]
enum Side {
    In(usize),
    Out(usize),
}

/// The array that a field number stands for.
fn array_of(field: u16) -> Option<Side> {
    let index = |first: u16| field.checked_sub(first).map(usize::from).filter(|index| *index < N_ARRAYS);
    index(A).map(Side::In).or_else(|| index(VALA).map(Side::Out))
}

/// Reads the name of the routine and the inputs. Returns whether the routine can be called.
fn fetch(step: &mut Step<'_, '_, ASub>) -> bool {
    if step.lock().name_source == READ {
        match step.fetch::<Text>("SUBL", |sub| &sub.name_link) {
            Ok(Some(name)) => step.lock().routine_name = name,
            Ok(None) => {}
            Err(Broken) => return false,
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
        let fetched = step.fetch_array(name, |sub| &sub.inputs[index], kind);
        match fetched.map(|value| value.and_then(|value| fitting(value, kind, capacity).ok())) {
            Ok(Some(array)) if !array.is_empty() => {
                let sub = step.lock();
                sub.arg_lengths[index] = array.len() as u32;
                sub.args[index] = array;
            }
            Ok(_) => {}
            Err(Broken) => return false,
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
            self.common.raise(Status::BAD_SUB, 3);
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

    fn monitor(&mut self, posts: &mut Posts) {
        let mask = posts.alarms(self) | CHANGED;
        if self.value != self.old_value {
            posts.post(self, VAL, mask);
            self.old_value = self.value;
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
