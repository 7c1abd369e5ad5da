//! stringout: a text output.

use fodo_data::{EventMask, Status, Value};

use crate::common::Common;
use crate::field::record_fields;
use crate::link::{Link, Target};
use crate::menu;
use crate::post::Posts;
use crate::record::output::{self, Driven, Output};
use crate::record::simulation::{self, constant, simulated, time_source};
use crate::record::stringin::cut;
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Outcome, Step};

record_fields! {
    /// A text output.
    StringOut
    fields {
        "VAL" value: String(40), ASL0 PP;
        "OVAL" output_value: String(40), NOMOD;
        "DOL" desired_output: InLink;
        "OMSL" output_mode: Menu(menu::OMSL);
        "OUT" output: OutLink;
        "MPST" post_value: Menu(menu::STRING_POST);
        "APST" post_archive: Menu(menu::STRING_POST);
        "SIOL" simulation_value_link: OutLink;
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::YES_NO), SPECIAL;
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "OLDSIMM" old_simulation_mode: Menu(menu::SIMM), NOMOD;
        "SSCN" simulation_scan: Menu(menu::SCAN) = 65535;
        "SDLY" simulation_delay: Double = -1.0;
        "IVOA" invalid_action: Menu(menu::IVOA);
        "IVOV" invalid_value: String(40);
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(StringOut, "stringout", ["Soft Channel", "Async Soft Channel", "stdio"]);
simulated!(StringOut, has_raw: false);

const VAL: u16 = StringOut::at("VAL");

impl Record for StringOut {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant(&self.desired_output) {
            self.value = cut(value);
            self.common.undefined = 0;
        }
        self.output_value = self.value.clone();
    }

    fn after_put(&mut self, _field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
        simulation::swap_scan(self);
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let mut is_well = true;
        if !step.is_completion {
            let is_closed_loop = {
                let stringout = step.lock();
                stringout.output_mode == 1 && !stringout.desired_output.is_constant()
            };
            if is_closed_loop {
                let fetched = step.fetch("DOL", |stringout| &stringout.desired_output);
                is_well = fetched.is_ok();
                if let Ok(Some(value)) = fetched {
                    let stringout = step.lock();
                    stringout.value = cut(value);
                    stringout.common.undefined = 0;
                }
            }
        }
        {
            let stringout = step.lock();
            if stringout.common.undefined == 1 {
                let severity = stringout.common.undefined_severity;
                stringout.common.raise(Status::UDF, severity);
            }
        }
        if !step.is_completion {
            stamp(step);
        }
        match output::drive(step) {
            Driven::Not => {}
            Driven::Done(is_written) => is_well = is_written,
            Driven::Waiting(outcome) => return outcome,
        }
        if step.is_completion {
            stamp(step);
        }
        step.post(StringOut::monitor);
        Outcome::done(is_well)
    }
}

fn stamp(step: &mut Step<'_, '_, StringOut>) {
    let simulated = time_source(step).map(|_| Target::Constant);
    step.stamp(simulated);
}

impl Output for StringOut {
    fn output(&self) -> &Link {
        &self.output
    }

    fn invalid_action(&self) -> u16 {
        self.invalid_action
    }

    fn use_invalid_value(&mut self) {
        self.value = self.invalid_value.clone();
    }

    fn simulated_value(&self) -> Value {
        self.value.clone().into()
    }

    fn value_to_write(&mut self) -> Option<Value> {
        Some(self.value.clone().into())
    }
}

impl StringOut {
    fn monitor(&mut self, posts: &mut Posts) {
        let mut mask = posts.alarms(self);
        if self.output_value != self.value {
            mask |= CHANGED;
            self.output_value = self.value.clone();
        }
        if self.post_value == 1 {
            mask |= EventMask::VALUE;
        }
        if self.post_archive == 1 {
            mask |= EventMask::LOG;
        }
        if !mask.is_empty() {
            posts.post(self, VAL, mask);
        }
    }
}
