//! bo: a binary output, momentary if HIGH is set.

use fodo_data::{Limits, Meta, Status, Value};

use crate::common::Common;
use crate::field::record_fields;
use crate::link::{Link, Target};
use crate::menu;
use crate::post::Posts;
use crate::record::device::Device;
use crate::record::output::{self, Driven, Output};
use crate::record::simulation::{self, constant, simulated, time_source};
use crate::record::states::{UNNAMED, binary_labels};
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Outcome, Step};

record_fields! {
    /// A binary output.
    Bo
    fields {
        "VAL" value: Enum, ASL0 PP;
        "OMSL" output_mode: Menu(menu::OMSL);
        "DOL" desired_output: InLink;
        "OUT" output: OutLink;
        "HIGH" high: Double;
        "ZNAM" zero_name: String(26), PP PROP;
        "ONAM" one_name: String(26), PP PROP;
        "RVAL" raw_value: ULong, PP;
        "ORAW" old_raw: ULong, NOMOD;
        "MASK" mask: ULong, NOMOD;
        "ZSV" zero_severity: Menu(menu::ALARM_SEVR), PP;
        "OSV" one_severity: Menu(menu::ALARM_SEVR), PP;
        "COSV" change_severity: Menu(menu::ALARM_SEVR), PP;
        "RBV" readback: ULong, NOMOD;
        "ORBV" old_readback: ULong, NOMOD;
        "MLST" last_monitored: UShort, NOMOD;
        "LALM" last_alarmed: UShort, NOMOD;
        "SIOL" simulation_value_link: OutLink;
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::SIMM), SPECIAL;
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "OLDSIMM" old_simulation_mode: Menu(menu::SIMM), NOMOD;
        "SSCN" simulation_scan: Menu(menu::SCAN) = 65535;
        "SDLY" simulation_delay: Double = -1.0;
        "IVOA" invalid_action: Menu(menu::IVOA);
        "IVOV" invalid_value: UShort;
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(Bo, "bo", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel", "General Time", "Db State"]);
simulated!(Bo, has_raw: true);

const VAL: u16 = Bo::at("VAL");
const RVAL: u16 = Bo::at("RVAL");
const RBV: u16 = Bo::at("RBV");
const HIGH: u16 = Bo::at("HIGH");

impl Record for Bo {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant::<u16>(&self.desired_output) {
            self.value = u16::from(value != 0);
            self.common.undefined = 0;
        }
        self.convert();
        self.last_monitored = self.value;
        self.last_alarmed = self.value;
        self.old_raw = self.raw_value;
        self.old_readback = self.readback;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        match field {
            VAL => {
                meta.labels = binary_labels(&self.zero_name, &self.one_name);
                meta.label_for_unlabelled = Some(UNNAMED.into());
            }
            HIGH => {
                meta.units = "s".into();
                meta.precision = 2;
                meta.control = Limits { low: 0.0, high: 100_000.0 };
            }
            field => {
                if let Some(row) = crate::common::row(Bo::ROWS, field) {
                    let display = meta.display;
                    crate::meta::ranges(row, meta);
                    meta.display = display;
                }
            }
        }
        None
    }

    fn after_put(&mut self, _field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
        simulation::swap_scan(self);
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let mut is_well = true;
        if !step.is_completion {
            let is_closed_loop = {
                let bo = step.lock();
                bo.output_mode == 1 && !bo.desired_output.is_constant()
            };
            if is_closed_loop {
                let fetched = step.fetch("DOL", |bo| &bo.desired_output);
                is_well = fetched.is_ok();
                if let Ok(Some(value)) = fetched {
                    let bo = step.lock();
                    bo.value = value;
                    bo.common.undefined = 0;
                }
            }
            step.lock().convert();
            let simulated = time_source(step).map(|_| Target::Constant);
            step.stamp(simulated);
        }
        step.lock().check();
        match output::drive(step) {
            Driven::Not => {}
            Driven::Done(is_written) => is_well = is_written,
            Driven::Waiting(outcome) => return outcome,
        }
        if step.is_completion {
            step.stamp(Some(Target::Constant));
        }
        let high_s = {
            let bo = step.lock();
            if bo.value == 1 { bo.high } else { 0.0 }
        };
        if high_s > 0.0 {
            step.release_after(high_s);
        }
        step.post(Bo::monitor);
        Outcome::done(is_well)
    }
}

impl Output for Bo {
    fn output(&self) -> &Link {
        &self.output
    }

    fn invalid_action(&self) -> u16 {
        self.invalid_action
    }

    fn use_invalid_value(&mut self) {
        self.value = self.invalid_value;
        self.convert();
    }

    fn write(step: &mut Step<'_, '_, Self>) -> Driven {
        let device = Device::of(step.lock());
        match device {
            Device::State => {
                let (name, is_on) = {
                    let bo = step.lock();
                    (bo.output.address(), bo.value != 0)
                };
                step.set_state(&name, is_on);
                Driven::Done(true)
            }
            // This implementation has no errors of time providers to reset.
            Device::GeneralTime => Driven::Done(true),
            _ => output::write_link(step),
        }
    }

    fn simulated_value(&self) -> Value {
        if self.simulation_mode == simulation::RAW { self.raw_value.into() } else { self.value.into() }
    }

    fn value_to_write(&mut self) -> Option<Value> {
        Some(if Device::of(self) == Device::Raw { self.raw_value.into() } else { self.value.into() })
    }
}

impl Bo {
    fn convert(&mut self) {
        self.raw_value = match (self.mask, self.value) {
            (0, value) => value.into(),
            (_, 0) => 0,
            (mask, _) => mask,
        };
    }

    fn check(&mut self) {
        // Base compares UDF with TRUE, but a client may have put 2.
        if self.common.undefined == 1 {
            self.common.raise(Status::UDF, self.common.undefined_severity);
        }
        let severity = if self.value == 0 { self.zero_severity } else { self.one_severity };
        self.common.raise(Status::STATE, severity);
        if self.value != self.last_alarmed {
            self.common.raise(Status::COS, self.change_severity);
            self.last_alarmed = self.value;
        }
    }

    fn monitor(&mut self, posts: &mut Posts) {
        let mut mask = posts.alarms(self);
        if self.last_monitored != self.value {
            mask |= CHANGED;
            self.last_monitored = self.value;
        }
        if !mask.is_empty() {
            posts.post(self, VAL, mask);
        }
        if self.old_raw != self.raw_value {
            posts.post(self, RVAL, mask | CHANGED);
            self.old_raw = self.raw_value;
        }
        if self.old_readback != self.readback {
            posts.post(self, RBV, mask | CHANGED);
            self.old_readback = self.readback;
        }
    }
}
