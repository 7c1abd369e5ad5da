//! mbbi: an input of one of sixteen states.

use fodo_data::{Meta, Status};

use crate::common::Common;
use crate::field::record_fields;
use crate::link::{Link, Target};
use crate::menu;
use crate::post::Posts;
use crate::record::device::{self, Device, Fetched, Input, Read};
use crate::record::levels::{Filter, filtered};
use crate::record::simulation::{self, Source, constant, simulated, source, time_source};
use crate::record::states::{are_defined, labels, mask_of_bits, severity, shifted_left, shifted_right};
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// An input of one of sixteen states.
    Mbbi
    fields {
        "VAL" value: Enum, ASL0 PP;
        "NOBT" bits: UShort, NOMOD;
        "INP" input: InLink;
        "AFTC" alarm_filter_time: Double;
        "AFVL" alarm_filter_value: Double, NOMOD;
        "UNSV" unknown_severity: Menu(menu::ALARM_SEVR), PP;
        "COSV" change_severity: Menu(menu::ALARM_SEVR), PP;
        "RVAL" raw_value: ULong, PP;
        "ORAW" old_raw: ULong, NOMOD;
        "MASK" mask: ULong, NOMOD;
        "MLST" last_monitored: UShort, NOMOD;
        "LALM" last_alarmed: UShort, NOMOD;
        "SDEF" states_defined: Short, NOMOD;
        "SHFT" shift: UShort;
        "SIOL" simulation_value_link: InLink;
        "SVAL" simulation_value: ULong;
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::SIMM), SPECIAL;
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "OLDSIMM" old_simulation_mode: Menu(menu::SIMM), NOMOD;
        "SSCN" simulation_scan: Menu(menu::SCAN) = 65535;
        "SDLY" simulation_delay: Double = -1.0;
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

record_type!(Mbbi, "mbbi", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel"]);
simulated!(Mbbi, has_raw: true);

const VAL: u16 = Mbbi::at("VAL");
const RVAL: u16 = Mbbi::at("RVAL");
const SIMM: u16 = Mbbi::at("SIMM");
const FIRST_NAME: u16 = Mbbi::at("ZRST");
const LAST_NAME: u16 = Mbbi::at("FFST");
const UNKNOWN: u16 = u16::MAX;

impl Record for Mbbi {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant::<u16>(&self.simulation_value_link) {
            self.simulation_value = value.into();
        }
        if self.mask == 0 {
            self.mask = mask_of_bits(self.bits).unwrap_or(0);
        }
        if Device::of(self) == Device::Raw {
            self.raw_value = constant(&self.input).unwrap_or(self.raw_value);
            if self.mask == 0 {
                self.mask = u32::MAX;
            }
            self.mask = shifted_left(self.mask, self.shift);
        } else if let Some(value) = constant(&self.input) {
            self.value = value;
            self.common.undefined = 0;
        }
        self.define();
        self.last_monitored = self.value;
        self.last_alarmed = self.value;
        self.old_raw = self.raw_value;
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

    fn after_put(&mut self, field: u16, posts: &mut Posts) -> Result<(), &'static str> {
        if field == SIMM {
            simulation::swap_scan(self);
            return Ok(());
        }
        self.define();
        if (FIRST_NAME..=LAST_NAME).contains(&field) && self.value == field - FIRST_NAME {
            posts.post(self, VAL, CHANGED);
        }
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let before = step.lock().common.time;
        let read = match source(step) {
            Source::Device => read(step),
            Source::Simulation(value, is_raw) => {
                step.lock().simulate(value, is_raw);
                Read::simulated(is_raw)
            }
            Source::Failed => Read::Failed,
            Source::Waiting(delay_s) => return step.complete_after(delay_s),
        };
        if read == Read::Waiting {
            return Outcome::Waiting;
        }
        let simulated = time_source(step);
        step.stamp(simulated);
        let elapsed_s = step.elapsed_s(before);
        step.post(|mbbi, posts| {
            if read == Read::Raw {
                mbbi.convert();
            }
            mbbi.check(elapsed_s);
            mbbi.monitor(posts);
        });
        Outcome::done(read != Read::Failed)
    }
}

impl Input for Mbbi {
    fn input(&self) -> &Link {
        &self.input
    }
}

fn read(step: &mut Step<'_, '_, Mbbi>) -> Read {
    if Device::of(step.lock()) == Device::Raw {
        return match step.fetch("INP", Mbbi::input) {
            Ok(raw) => {
                let mbbi = step.lock();
                mbbi.raw_value = raw.unwrap_or(mbbi.raw_value);
                mbbi.raw_value &= mbbi.mask;
                Read::Raw
            }
            Err(Broken) => Read::Failed,
        };
    }
    let value = match device::fetch(step) {
        Fetched::Nothing => None,
        Fetched::Value(value) => Some(value),
        Fetched::Failed => return Read::Failed,
        Fetched::Waiting => return Read::Waiting,
    };
    let mbbi = step.lock();
    mbbi.value = value.unwrap_or(mbbi.value);
    // Also cleared when the link has no value to read, as in Base.
    mbbi.common.undefined = 0;
    Read::Value
}

impl Mbbi {
    fn define(&mut self) {
        self.states_defined = i16::from(are_defined(&self.state_values, &self.state_names));
    }

    fn simulate(&mut self, value: Option<u32>, is_raw: bool) {
        self.simulation_value = value.unwrap_or(self.simulation_value);
        if is_raw {
            self.raw_value = self.simulation_value;
        } else {
            self.value = self.simulation_value as u16;
        }
        self.common.undefined = 0;
    }

    fn convert(&mut self) {
        self.common.undefined = 0;
        let raw = shifted_right(self.raw_value, self.shift);
        self.value = if self.states_defined == 0 {
            raw as u16
        } else {
            self.state_values.iter().position(|value| *value == raw).map_or(UNKNOWN, |state| state as u16)
        };
    }

    fn check(&mut self, elapsed_s: f64) {
        if self.common.undefined != 0 {
            self.common.raise(Status::UDF, self.common.undefined_severity);
            self.alarm_filter_value = 0.0;
            return;
        }
        let mut severity = severity(&self.state_severities, self.unknown_severity, self.value);
        let filter = Filter { time_s: self.alarm_filter_time, state: &mut self.alarm_filter_value, elapsed_s };
        if let Some(filtered) = filtered(severity as u8, filter) {
            severity = filtered.into();
        }
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
    }
}
