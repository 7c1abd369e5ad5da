//! transform, of synApps calc: sixteen values, each from an input, an expression or a put, and each with an output.

use fodo_data::{Meta, Status, Text};

use crate::calc::{Program, TextInputs};
use crate::common::{Common, row};
use crate::field::record_fields;
use crate::link::Target;
use crate::menu;
use crate::post::Posts;
use crate::record::inputs::{self, inputs};
use crate::record::links::state_of;
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Outcome, Step};

record_fields! {
    /// Sixteen values with expressions.
    Transform
    fields {
        "VERS" version: Float = 5.8, NOMOD;
        "IVLA" invalid_action: Menu(menu::TRANSFORM_IVLA);
        "COPT" calculation_option: Menu(menu::TRANSFORM_COPT);
        "VAL" value: Double;
        "EGU" units: String(16);
        "PREC" precision: Short;
        "MAP" put_bits: Short;
    }
    arrays {
        expressions: [String(80); 16] [SPECIAL] {
            "CLCA" 0, "CLCB" 1, "CLCC" 2, "CLCD" 3, "CLCE" 4, "CLCF" 5, "CLCG" 6, "CLCH" 7, "CLCI" 8, "CLCJ" 9, "CLCK" 10, "CLCL" 11, "CLCM" 12, "CLCN" 13, "CLCO" 14, "CLCP" 15
        }
        expression_states: [Long(); 16] [] {
            "CAV" 0, "CBV" 1, "CCV" 2, "CDV" 3, "CEV" 4, "CFV" 5, "CGV" 6, "CHV" 7, "CIV" 8, "CJV" 9, "CKV" 10, "CLV" 11, "CMV" 12, "CNV" 13, "COV" 14, "CPV" 15
        }
        inputs: [InLink(); 16] [SPECIAL] {
            "INPA" 0, "INPB" 1, "INPC" 2, "INPD" 3, "INPE" 4, "INPF" 5, "INPG" 6, "INPH" 7, "INPI" 8, "INPJ" 9, "INPK" 10, "INPL" 11, "INPM" 12, "INPN" 13, "INPO" 14, "INPP" 15
        }
        outputs: [OutLink(); 16] [SPECIAL] {
            "OUTA" 0, "OUTB" 1, "OUTC" 2, "OUTD" 3, "OUTE" 4, "OUTF" 5, "OUTG" 6, "OUTH" 7, "OUTI" 8, "OUTJ" 9, "OUTK" 10, "OUTL" 11, "OUTM" 12, "OUTN" 13, "OUTO" 14, "OUTP" 15
        }
        args: [Double(); 16] [PP SPECIAL] {
            "A" 0, "B" 1, "C" 2, "D" 3, "E" 4, "F" 5, "G" 6, "H" 7, "I" 8, "J" 9, "K" 10, "L" 11, "M" 12, "N" 13, "O" 14, "P" 15
        }
        last_args: [Double(); 16] [NOMOD] {
            "LA" 0, "LB" 1, "LC" 2, "LD" 3, "LE" 4, "LF" 5, "LG" 6, "LH" 7, "LI" 8, "LJ" 9, "LK" 10, "LL" 11, "LM" 12, "LN" 13, "LO" 14, "LP" 15
        }
        comments: [String(39); 16] [] {
            "CMTA" 0, "CMTB" 1, "CMTC" 2, "CMTD" 3, "CMTE" 4, "CMTF" 5, "CMTG" 6, "CMTH" 7, "CMTI" 8, "CMTJ" 9, "CMTK" 10, "CMTL" 11, "CMTM" 12, "CMTN" 13, "CMTO" 14, "CMTP" 15
        }
        input_states: [Menu(menu::CALCOUT_INAV); 16] [NOMOD] {
            "IAV" 0, "IBV" 1, "ICV" 2, "IDV" 3, "IEV" 4, "IFV" 5, "IGV" 6, "IHV" 7, "IIV" 8, "IJV" 9, "IKV" 10, "ILV" 11, "IMV" 12, "INV" 13, "IOV" 14, "IPV" 15
        }
        output_states: [Menu(menu::CALCOUT_INAV); 16] [NOMOD] {
            "OAV" 0, "OBV" 1, "OCV" 2, "ODV" 3, "OEV" 4, "OFV" 5, "OGV" 6, "OHV" 7, "OIV" 8, "OJV" 9, "OKV" 10, "OLV" 11, "OMV" 12, "ONV" 13, "OOV" 14, "OPV" 15
        }
    }
    private {
        common: Common;
        programs: Programs;
        is_posted: bool;
    }
}

record_type!(Transform, "transform", []);
inputs!(Transform);

const N_VALUES: usize = 16;
/// The compiled expressions.
type Programs = [Option<Program>; N_VALUES];

const CLCA: u16 = Transform::at("CLCA");
const CAV: u16 = Transform::at("CAV");
const INPA: u16 = Transform::at("INPA");
const OUTA: u16 = Transform::at("OUTA");
const A: u16 = Transform::at("A");
const IAV: u16 = Transform::at("IAV");
const OAV: u16 = Transform::at("OAV");

/// The names of the links, for messages.
const OUTPUTS: [&str; N_VALUES] = [
    "OUTA", "OUTB", "OUTC", "OUTD", "OUTE", "OUTF", "OUTG", "OUTH", "OUTI", "OUTJ", "OUTK", "OUTL", "OUTM", "OUTN",
    "OUTO", "OUTP",
];

impl Record for Transform {
    fn init(&mut self) {
        self.value = 0.0;
        self.put_bits = 0;
        inputs::init(self);
        for index in 0..N_VALUES {
            self.input_states[index] = state_of(&self.inputs[index]);
            self.output_states[index] = state_of(&self.outputs[index]);
            self.compile(index);
        }
        self.last_args = self.args;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Transform::ROWS, field)?;
        meta.precision = if row.name == "VERS" { 2 } else { crate::meta::precision(row, self.precision) };
        None
    }

    fn after_put(&mut self, field: u16, posts: &mut Posts) -> Result<(), &'static str> {
        let index = |first: u16| field.checked_sub(first).map(usize::from).filter(|index| *index < N_VALUES);
        if let Some(index) = index(CLCA) {
            let before = self.expression_states[index];
            self.compile(index);
            if self.expression_states[index] != before {
                posts.post(self, CAV + index as u16, CHANGED);
            }
        } else if let Some(index) = index(A) {
            if !self.inputs[index].is_constant() {
                self.args[index] = self.last_args[index];
                return Err("this value is set only by its input link");
            }
            if self.common.is_active == 0 {
                self.put_bits |= 1 << index;
            }
        } else if let Some(index) = index(INPA) {
            self.input_states[index] = state_of(&self.inputs[index]);
            inputs::init_one(self, index);
            if self.inputs[index].is_constant() {
                posts.post(self, A + index as u16, CHANGED);
            }
            posts.post(self, IAV + index as u16, CHANGED);
        } else if let Some(index) = index(OUTA) {
            self.output_states[index] = state_of(&self.outputs[index]);
            posts.post(self, OAV + index as u16, CHANGED);
        }
        Ok(())
    }

    fn link_joined(&mut self, field: u16, posts: &mut Posts) {
        // A put to a link is never rejected.
        let _ = self.after_put(field, posts);
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        step.lock().common.undefined = 0;
        for index in 0..N_VALUES {
            if inputs::fetch(step, index).is_err() {
                step.lock().args[index] = 0.0;
            }
        }
        let (is_invalid, does_nothing) = {
            let transform = step.lock();
            (transform.common.new_severity >= 3, transform.invalid_action == 1)
        };
        if is_invalid && does_nothing {
            step.stamp(None);
            step.post(|transform, posts| posts.alarms(transform));
            return Outcome::Alone;
        }
        step.lock().calculate();
        for (index, name) in OUTPUTS.iter().enumerate() {
            let value = step.lock().args[index];
            // A broken link has already raised its alarm; the other links are still written.
            let _ = step.drive(name, |transform| &transform.outputs[index], value);
        }
        step.stamp(None);
        step.post(Transform::monitor);
        Outcome::Done
    }
}

impl Transform {
    /// Compiles an expression; an empty one is valid and gives no program.
    fn compile(&mut self, index: usize) {
        let text = self.expressions[index].to_str();
        let program = (!text.is_empty()).then(|| Program::compile_text(&text));
        self.expression_states[index] = if matches!(program, Some(Err(_))) { -1 } else { 0 };
        self.programs[index] = program.and_then(Result::ok);
    }

    /// Evaluates the expressions, one after another, of values that have no input and were not put.
    fn calculate(&mut self) {
        const ALWAYS: u16 = 1;
        let put_bits = std::mem::take(&mut self.put_bits);
        for index in 0..N_VALUES {
            let (now, before) = (self.args[index], self.last_args[index]);
            let is_same = now == 0.0 && before == 0.0 || now.to_bits() == before.to_bits();
            let is_new = !is_same || put_bits >> index & 1 != 0;
            let is_wanted = self.inputs[index].is_constant() && !is_new || self.calculation_option == ALWAYS;
            let Some(program) = self.programs[index].as_ref().filter(|_| is_wanted) else { continue };
            let mut inputs = TextInputs { args: &mut self.args, texts: &mut [], value: now, text: &Text::EMPTY };
            let result = program.run_text(&mut inputs).map(|result| result.number());
            if let Some(number) = result {
                self.args[index] = number;
            }
            if !result.is_some_and(f64::is_finite) {
                self.common.raise(Status::CALC, 3);
                self.common.undefined = 1;
            }
        }
    }

    fn monitor(&mut self, posts: &mut Posts) {
        posts.alarms(self);
        let is_first = !std::mem::replace(&mut self.is_posted, true);
        inputs::post(self, posts, CHANGED, is_first);
    }
}
