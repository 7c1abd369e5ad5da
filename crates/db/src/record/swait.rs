//! swait, of synApps calc: evaluates an expression of inputs given by name, writes the result if OOPT requests it, and
//! waits until that write has completed.

use fodo_data::{EventMask, Limits, Meta, Status, Text};

use crate::calc::{CalcError, CompiledExpression, N_ARGS};
use crate::common::{Common, row};
use crate::field::{names, record_fields};
use crate::link::external::ExternalPv;
use crate::link::{Link, Target};
use crate::menu::{self, INVALID, NO};
use crate::process::post::RecordPosts;
use crate::process::scan::event_name;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::expression::{compile_optional, is_output_due, state_of_program};
use crate::record::levels::deadbands;
use crate::record::simulation::set_constant;
use crate::record::{Record, is_changed, post_value, record_type};

record_fields! {
    /// An expression of named inputs.
    SWait
    fields {
        "VERS" version: Float = 1.0, NOMOD;
        "HOPR" display_high: Float, ASL0;
        "LOPR" display_low: Float, ASL0;
        "INIT" is_initial: Short = 1, NOMOD INTEREST3;
        "DOLN" desired: InLink, ASL0 SPECIAL PLAIN;
        "OUTN" output: OutLink, ASL0 SPECIAL PLAIN;
        "DOLV" desired_state: Menu(menu::SWAIT_INAV), NOMOD;
        "OUTV" output_state: Menu(menu::SWAIT_INAV), NOMOD;
        "CALC" expression: String(36), ASL0 SPECIAL EXPRESSION INTEREST0;
        "CLCV" expression_state: Long;
        "VAL" value: Double, INTEREST0;
        "OVAL" old_value: Double, INTEREST0;
        "PREC" precision: Short;
        "OOPT" output_option: Menu(menu::SYNAPPS_OOPT);
        "ODLY" output_delay: Float, ASL0;
        "DOPT" output_source: Menu(menu::SWAIT_DOPT);
        "DOLD" desired_value: Double, ASL0;
        "OEVT" output_event: UShort, ASL0 INTEREST0;
        "ADEL" archive_deadband: Double;
        "MDEL" monitor_deadband: Double;
        "ALST" last_archived: Double, NOMOD INTEREST3;
        "MLST" last_monitored: Double, NOMOD INTEREST3;
        "SIOL" simulation_value_link: InLink;
        "SVAL" simulation_value: Double, INTEREST0;
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::YES_NO);
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR), INTEREST2;
    }
    arrays {
        inputs: [InLink(); 12] [ASL0 SPECIAL PLAIN] "IN" A_TO_L "N";
        input_states: [Menu(menu::SWAIT_INAV); 12] [NOMOD] "IN" A_TO_L "V";
        args: [Double(); 12] [PP INTEREST0] "" A_TO_L;
        last_args: [Double(); 12] [INTEREST3] "L" A_TO_L;
        interrupts: [Menu(menu::SWAIT_INAP); 12] [] "IN" A_TO_L "P" = menu::YES;
    }
    private {
        common: Common;
        program: Option<CompiledExpression>;
        progress: OutputState;
    }
}

record_type!(SWait, "swait", [], VAL CALC CLCV DOLD DOLN DOLV OUTN OUTV INAN INAV A LA);

/// The state of an output; the comment says what it waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OutputState {
    /// For the record to be processed.
    #[default]
    Idle,
    /// For ODLY to pass.
    Delayed,
    /// For the write to complete; meanwhile the record may process.
    Driven,
    /// For nothing: the write has completed, and the record is about to finish.
    Written,
}

const N_INPUTS: usize = 12;

/// The names of the input fields, for messages.
const NAMES: [&str; N_INPUTS] = names(SWait::ROWS, "INAN");

/// The choices of INAV, DOLV and OUTV.
const OK: u16 = 0;
const BAD: u16 = 1;
const NONE: u16 = 2;
/// A choice of DOPT: the value of DOLD is written.
const USE_DOL: u16 = 1;

impl Record for SWait {
    fn init(&mut self) {
        set_constant(&mut self.simulation_mode, &self.simulation_mode_link);
        set_constant(&mut self.simulation_value, &self.simulation_value_link);
        for (state, link) in self.input_states.iter_mut().zip(&self.inputs) {
            *state = state_of(link);
        }
        self.desired_state = state_of(&self.desired);
        self.output_state = state_of(&self.output);
        self.expression_state = state_of_program(self.program.is_some());
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(SWait::ROWS, field)?;
        crate::meta::ranges(row, meta);
        meta.precision = match row.name {
            "ODLY" => 3,
            _ => crate::meta::precision(row, self.precision),
        };
        if field == VAL {
            meta.display = Limits { low: self.display_low.into(), high: self.display_high.into() };
        }
        None
    }

    fn after_put(&mut self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str> {
        let (state, place) = match field {
            CALC => {
                let expression = self.expression.clone();
                // CLCV reports the error.
                let _ = self.compile(field, &expression);
                self.expression_state = state_of_program(self.program.is_some());
                posts.post(self, CLCV, EventMask::VALUE);
                return Ok(());
            }
            DOLN => (state_of(&self.desired), DOLV),
            OUTN => (state_of(&self.output), OUTV),
            field => {
                let index = field - INAN;
                let Some(link) = self.inputs.get(usize::from(index)) else { return Ok(()) };
                (state_of(link), INAV + index)
            }
        };
        let before = match place {
            DOLV => &mut self.desired_state,
            OUTV => &mut self.output_state,
            place => &mut self.input_states[usize::from(place - INAV)],
        };
        if is_changed(before, &state) {
            posts.post(self, place, EventMask::VALUE);
        }
        Ok(())
    }

    fn compile(&mut self, field: u16, text: &Text) -> Result<(), CalcError> {
        if field == CALC { compile_optional(&mut self.program, text, CompiledExpression::compile) } else { Ok(()) }
    }

    fn is_interrupted_by(&self, field: u16) -> bool {
        let index = field.checked_sub(INAN).map(usize::from);
        index.and_then(|index| self.interrupts.get(index)).is_some_and(|interrupts| *interrupts != 0)
    }

    fn writes_completed(&mut self, _number: u8, _posts: &mut RecordPosts) -> bool {
        let is_driven = self.progress == OutputState::Driven;
        if is_driven {
            self.progress = OutputState::Written;
        }
        is_driven
    }

    fn link_state_changed(&mut self, field: u16, posts: &mut RecordPosts) {
        // A put to a link is never rejected.
        let _ = self.after_put(field, posts);
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        let progress = step.lock().progress;
        match progress {
            OutputState::Written if step.is_completion => {
                step.lock().progress = OutputState::Idle;
                return ProcessOutcome::Done;
            }
            OutputState::Delayed if step.is_completion => {
                step.lock().progress = OutputState::Idle;
                return execute(step);
            }
            _ => {}
        }
        evaluate(step);
        let delay_s = f64::from(step.lock().output_delay);
        let is_due = step.lock().is_output_due();
        let outcome = if is_due && delay_s > 0.0 {
            step.lock().progress = OutputState::Delayed;
            step.complete_after(delay_s)
        } else if is_due {
            execute(step)
        } else {
            ProcessOutcome::Done
        };
        step.stamp(None);
        step.post(SWait::monitor);
        outcome
    }
}

/// Sets the value to the result of the expression, or to the value from SIOL.
fn evaluate(step: &mut Step<'_, '_, SWait>) {
    if let Ok(Some(mode)) = step.read_link("SIML", |swait| &swait.simulation_mode_link) {
        step.lock().simulation_mode = mode;
    }
    if step.lock().simulation_mode == NO {
        let are_read = fetch(step);
        step.lock().calculate(are_read);
        return;
    }
    let fetched = step.read_link("SIOL", |swait| &swait.simulation_value_link);
    let swait = step.lock();
    if let Ok(value) = fetched {
        swait.simulation_value = value.unwrap_or(swait.simulation_value);
        swait.value = swait.simulation_value;
        swait.common.undefined = 0;
    }
    let severity = swait.simulation_severity;
    swait.common.raise(Status::SIMM, severity);
}

/// Fetches the inputs that have names, and stops at the first one without a target. Returns whether all could be read.
fn fetch(step: &mut Step<'_, '_, SWait>) -> bool {
    for (index, name) in NAMES.iter().enumerate() {
        let state = step.lock().input_states[index];
        match state {
            NONE => continue,
            BAD => return false,
            _ => {}
        }
        match step.read_link(name, |swait| &swait.inputs[index]) {
            Ok(Some(value)) => step.lock().args[index] = value,
            Ok(None) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Drives OUTN through a channel and posts the event OEVT. The record finishes when everything that it started has.
fn execute(step: &mut Step<'_, '_, SWait>) -> ProcessOutcome {
    let swait = step.lock();
    let (output_state, has_desired) = (swait.output_state, swait.output_source == USE_DOL);
    let mut outcome = ProcessOutcome::Done;
    if output_state == OK {
        let value = if has_desired { desired(step) } else { step.lock().value };
        if step.write_link_with_completion(|swait| &swait.output, value, 0) {
            step.lock().progress = OutputState::Driven;
            outcome = ProcessOutcome::Busy;
        }
    }
    let event = event_name(&step.lock().output_event.to_string().into());
    if let Some(event) = event {
        step.post_event(event);
    }
    outcome
}

/// The value of DOLD, fetched from DOLN if that has a target.
fn desired(step: &mut Step<'_, '_, SWait>) -> f64 {
    if step.lock().desired_state == OK
        && let Ok(Some(value)) = step.read_link("DOLN", |swait| &swait.desired)
    {
        step.post(|swait, posts| {
            if is_changed(&mut swait.desired_value, &value) {
                posts.post(swait, DOLD, EventMask::VALUE);
            }
        });
    }
    step.lock().desired_value
}

fn state_of(link: &Link) -> u16 {
    match link.target() {
        Target::Constant => NONE,
        Target::External { .. } if link.external().is_some_and(ExternalPv::is_connected) => OK,
        Target::External { .. } | Target::Missing => BAD,
        Target::Field { .. } => OK,
    }
}

impl SWait {
    fn calculate(&mut self, are_read: bool) {
        if !are_read {
            self.common.raise(Status::READ, INVALID);
            return;
        }
        let mut args = [0.0; N_ARGS];
        args[..N_INPUTS].copy_from_slice(&self.args);
        match self.program.as_ref().and_then(|program| program.run(&mut args, self.value)) {
            Some(value) => {
                self.value = value;
                self.args.copy_from_slice(&args[..N_INPUTS]);
                self.common.undefined = 0;
            }
            None => {
                self.common.raise(Status::CALC, INVALID);
            }
        }
    }

    /// Whether OOPT requests an output for this processing.
    fn is_output_due(&mut self) -> bool {
        let before = std::mem::replace(&mut self.old_value, self.value);
        let is_changed = (before - self.value).abs() > self.monitor_deadband;
        is_output_due(self.output_option, self.value, before, is_changed)
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let left = deadbands!(self).left();
        let mask = post_value(self, left, posts) | EventMask::VALUE;
        for index in 0..N_INPUTS {
            if is_changed(&mut self.last_args[index], &self.args[index]) {
                posts.post(self, A + index as u16, mask);
                posts.post(self, LA + index as u16, mask);
            }
        }
    }
}
