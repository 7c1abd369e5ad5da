//! mbbo: an output of one of sixteen states.

use fodo_data::{Kind, Meta, Status, Value};

use crate::common::Common;
use crate::field::record_fields;
use crate::link::{Link, Target};
use crate::menu;
use crate::post::Posts;
use crate::record::device::Device;
use crate::record::output::{self, Driven, Output};
use crate::record::simulation::{self, constant, simulated, time_source};
use crate::record::states::{are_defined, labels, mask_of_bits, severity, shifted_left};
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// An output of one of sixteen states.
    Mbbo
    fields {
        "VAL" value: Enum, ASL0 PP SPECIAL;
        "DOL" desired_output: InLink;
        "OMSL" output_mode: Menu(menu::OMSL);
        "NOBT" bits: UShort, NOMOD;
        "OUT" output: OutLink;
        "UNSV" unknown_severity: Menu(menu::ALARM_SEVR), PP;
        "COSV" change_severity: Menu(menu::ALARM_SEVR), PP;
        "RVAL" raw_value: ULong, PP;
        "ORAW" old_raw: ULong, NOMOD;
        "RBV" readback: ULong, NOMOD;
        "ORBV" old_readback: ULong, NOMOD;
        "MASK" mask: ULong, NOMOD;
        "MLST" last_monitored: UShort, NOMOD;
        "LALM" last_alarmed: UShort, NOMOD;
        "SDEF" states_defined: Short, NOMOD;
        "SHFT" shift: UShort;
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
        state_values: [ULong(); 16] [PP SPECIAL HEX] {
            "ZRVL" 0, "ONVL" 1, "TWVL" 2, "THVL" 3, "FRVL" 4, "FVVL" 5, "SXVL" 6, "SVVL" 7, "EIVL" 8, "NIVL" 9, "TEVL" 10, "ELVL" 11, "TVVL" 12, "TTVL" 13, "FTVL" 14, "FFVL" 15
        }
        state_names: [String(26); 16] [PP PROP SPECIAL] {
            "ZRST" 0, "ONST" 1, "TWST" 2, "THST" 3, "FRST" 4, "FVST" 5, "SXST" 6, "SVST" 7, "EIST" 8, "NIST" 9, "TEST" 10, "ELST" 11, "TVST" 12, "TTST" 13, "FTST" 14, "FFST" 15
        }
        state_severities: [Menu(menu::ALARM_SEVR); 16] [PP] {
            "ZRSV" 0, "ONSV" 1, "TWSV" 2, "THSV" 3, "FRSV" 4, "FVSV" 5, "SXSV" 6, "SVSV" 7, "EISV" 8, "NISV" 9, "TESV" 10, "ELSV" 11, "TVSV" 12, "TTSV" 13, "FTSV" 14, "FFSV" 15
        }
    }
    private {
        common: Common;
    }
}

record_type!(Mbbo, "mbbo", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel"]);
simulated!(Mbbo, has_raw: true);

const VAL: u16 = Mbbo::at("VAL");
const RVAL: u16 = Mbbo::at("RVAL");
const RBV: u16 = Mbbo::at("RBV");
const FIRST_NAME: u16 = Mbbo::at("ZRST");
const LAST_NAME: u16 = Mbbo::at("FFST");
const FIRST_VALUE: u16 = Mbbo::at("ZRVL");
const LAST_VALUE: u16 = Mbbo::at("FFVL");
const SIMM: u16 = Mbbo::at("SIMM");

impl Record for Mbbo {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant(&self.desired_output) {
            self.value = value;
            self.common.undefined = 0;
        }
        if self.mask == 0 {
            self.mask = mask_of_bits(self.bits).unwrap_or(0);
        }
        if Device::of(self) == Device::Raw {
            if self.mask == 0 {
                self.mask = u32::MAX;
            }
            self.mask = shifted_left(self.mask, self.shift);
        }
        self.define();
        self.convert();
        self.last_monitored = self.value;
        self.last_alarmed = self.value;
        self.old_raw = self.raw_value;
        self.old_readback = self.readback;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        if field == VAL {
            meta.labels = labels(&self.state_names);
            // As in Base, this depends on the current value.
            meta.label_for_unlabelled =
                Some(if self.value > 15 { "Illegal Value".into() } else { fodo_data::Text::EMPTY });
        }
        None
    }

    /// Without defined states, VAL is a plain number, as in Base.
    fn value_facts(&self) -> Option<(Kind, u32)> {
        Some((if self.states_defined == 0 { Kind::U16 } else { Kind::Enum }, 1))
    }

    fn after_put(&mut self, field: u16, posts: &mut Posts) -> Result<(), &'static str> {
        if field == SIMM {
            simulation::swap_scan(self);
        } else if (FIRST_NAME..=LAST_NAME).contains(&field) {
            self.define();
            if self.value == field - FIRST_NAME {
                posts.post(self, VAL, CHANGED);
            }
        } else if (FIRST_VALUE..=LAST_VALUE).contains(&field) {
            self.define();
        }
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let mut is_well = true;
        let stamp = |step: &mut Step<'_, '_, Mbbo>| {
            let simulated = time_source(step).map(|_| Target::Constant);
            step.stamp(simulated);
        };
        // Without a value to drive, the time stamp is not updated, as in Base.
        if !step.is_completion && desired(step) {
            {
                let mbbo = step.lock();
                mbbo.common.undefined = 0;
                mbbo.convert();
            }
            stamp(step);
        }
        step.lock().check();
        match output::drive(step) {
            Driven::Not => {}
            Driven::Done(is_written) => is_well = is_written,
            Driven::Waiting(outcome) => return outcome,
        }
        if step.is_completion {
            stamp(step);
        }
        step.post(Mbbo::monitor);
        Outcome::done(is_well)
    }
}

/// Reads DOL in closed loop mode. Returns whether there is a value to convert.
fn desired(step: &mut Step<'_, '_, Mbbo>) -> bool {
    {
        let mbbo = step.lock();
        if mbbo.output_mode == 0 || mbbo.desired_output.is_constant() {
            if mbbo.common.undefined != 0 {
                let severity = mbbo.common.undefined_severity;
                mbbo.common.raise(Status::UDF, severity);
                return false;
            }
            return true;
        }
    }
    let fetched = step.fetch("DOL", |mbbo| &mbbo.desired_output);
    let mbbo = step.lock();
    match fetched {
        Ok(value) => {
            mbbo.value = value.unwrap_or(mbbo.value);
            true
        }
        Err(Broken) => false,
    }
}

impl Output for Mbbo {
    const TELLS_FAILURE: bool = false;

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

    fn simulated_value(&self) -> Value {
        if self.simulation_mode == simulation::RAW { self.raw_value.into() } else { self.value.into() }
    }

    fn value_to_write(&mut self) -> Option<Value> {
        Some(if Device::of(self) == Device::Raw { (self.raw_value & self.mask).into() } else { self.value.into() })
    }
}

impl Mbbo {
    fn define(&mut self) {
        self.states_defined = i16::from(are_defined(&self.state_values, &self.state_names));
    }

    fn convert(&mut self) {
        let raw = if self.states_defined == 0 {
            self.value.into()
        } else {
            match self.state_values.get(usize::from(self.value)) {
                Some(value) => *value,
                None => {
                    self.common.raise(Status::SOFT, 3);
                    return;
                }
            }
        };
        self.raw_value = shifted_left(raw, self.shift);
    }

    fn check(&mut self) {
        let severity = severity(&self.state_severities, self.unknown_severity, self.value);
        self.common.raise(Status::STATE, severity);
        if self.value != self.last_alarmed && !self.common.raise(Status::COS, self.change_severity) {
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
