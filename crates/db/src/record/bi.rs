//! bi: a binary input.

use fodo_data::{Meta, Status};

use crate::common::Common;
use crate::field::record_fields;
use crate::link::{Link, Target};
use crate::menu;
use crate::post::Posts;
use crate::record::device::{self, Device, Fetched, Input, Read};
use crate::record::simulation::{self, Source, constant, simulated, source, time_source};
use crate::record::states::{UNNAMED, binary_labels};
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// A binary input.
    Bi
    fields {
        "INP" input: InLink;
        "VAL" value: Enum, ASL0 PP;
        "ZSV" zero_severity: Menu(menu::ALARM_SEVR), PP;
        "OSV" one_severity: Menu(menu::ALARM_SEVR), PP;
        "COSV" change_severity: Menu(menu::ALARM_SEVR), PP;
        "ZNAM" zero_name: String(26), PP PROP;
        "ONAM" one_name: String(26), PP PROP;
        "RVAL" raw_value: ULong, PP;
        "ORAW" old_raw: ULong, NOMOD;
        "MASK" mask: ULong, NOMOD;
        "LALM" last_alarmed: UShort, NOMOD;
        "MLST" last_monitored: UShort, NOMOD;
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
    }
    private {
        common: Common;
    }
}

record_type!(Bi, "bi", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel", "Db State"]);
simulated!(Bi, has_raw: true);

const VAL: u16 = Bi::at("VAL");
const RVAL: u16 = Bi::at("RVAL");

impl Record for Bi {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant::<u16>(&self.simulation_value_link) {
            self.simulation_value = value.into();
        }
        if Device::of(self) == Device::Raw {
            self.raw_value = constant(&self.input).unwrap_or(self.raw_value);
        } else if let Some(value) = constant(&self.input) {
            self.value = value;
            self.common.undefined = 0;
        }
        self.last_monitored = self.value;
        self.last_alarmed = self.value;
        self.old_raw = self.raw_value;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        if field == VAL {
            meta.labels = binary_labels(&self.zero_name, &self.one_name);
            meta.label_for_unlabelled = Some(UNNAMED.into());
        }
        None
    }

    fn after_put(&mut self, _field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
        simulation::swap_scan(self);
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
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
        step.post(|bi, posts| {
            if read == Read::Raw {
                bi.value = u16::from(bi.raw_value != 0);
                bi.common.undefined = 0;
            }
            bi.check();
            bi.monitor(posts);
        });
        Outcome::done(read != Read::Failed)
    }
}

impl Input for Bi {
    fn input(&self) -> &Link {
        &self.input
    }
}

fn read(step: &mut Step<'_, '_, Bi>) -> Read {
    if Device::of(step.lock()) == Device::Raw {
        return match step.fetch("INP", Bi::input) {
            Ok(raw) => {
                let bi = step.lock();
                bi.raw_value = raw.unwrap_or(bi.raw_value);
                if bi.mask != 0 {
                    bi.raw_value &= bi.mask;
                }
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
    let bi = step.lock();
    bi.value = value.unwrap_or(bi.value);
    // Also cleared when the link has no value to read, as in Base.
    bi.common.undefined = 0;
    Read::Value
}

impl Bi {
    fn simulate(&mut self, value: Option<u32>, is_raw: bool) {
        self.simulation_value = value.unwrap_or(self.simulation_value);
        if is_raw {
            self.raw_value = self.simulation_value & 0xffff;
        } else {
            self.value = self.simulation_value as u16;
        }
        self.common.undefined = 0;
    }

    fn check(&mut self) {
        if self.common.undefined != 0 {
            self.common.raise(Status::UDF, self.common.undefined_severity);
            return;
        }
        if self.value > 1 {
            return;
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
    }
}
