//! mbbiDirect: an input word, with its bits as fields.

use fodo_data::Status;

use crate::common::Common;
use crate::field::record_fields;
use crate::link::Link;
use crate::menu;
use crate::post::Posts;
use crate::record::device::{self, Device, Fetched, Input, Read};
use crate::record::simulation::{self, Source, constant, simulated, source, time_source};
use crate::record::states::{bit, mask_of_bits, shifted_left, shifted_right};
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// An input word, with its bits.
    MbbiDirect
    fields {
        "VAL" value: Long, ASL0 PP;
        "NOBT" bit_count: Short, NOMOD PROP;
        "INP" input: InLink;
        "RVAL" raw_value: ULong, PP;
        "ORAW" old_raw: ULong, NOMOD;
        "MASK" mask: ULong, NOMOD;
        "MLST" last_monitored: Long, NOMOD;
        "SHFT" shift: UShort;
        "SIOL" simulation_value_link: InLink;
        "SVAL" simulation_value: Long;
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::SIMM), SPECIAL;
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "OLDSIMM" old_simulation_mode: Menu(menu::SIMM), NOMOD;
        "SSCN" simulation_scan: Menu(menu::SCAN) = 65535;
        "SDLY" simulation_delay: Double = -1.0;
    }
    arrays {
        bits: [UChar(); 32] [PP] {
            "B0" 0, "B1" 1, "B2" 2, "B3" 3, "B4" 4, "B5" 5, "B6" 6, "B7" 7, "B8" 8, "B9" 9, "BA" 10, "BB" 11, "BC" 12, "BD" 13, "BE" 14, "BF" 15, "B10" 16, "B11" 17, "B12" 18, "B13" 19, "B14" 20, "B15" 21, "B16" 22, "B17" 23, "B18" 24, "B19" 25, "B1A" 26, "B1B" 27, "B1C" 28, "B1D" 29, "B1E" 30, "B1F" 31
        }
    }
    private {
        common: Common;
    }
}

record_type!(MbbiDirect, "mbbiDirect", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel"]);
simulated!(MbbiDirect, has_raw: true);

const VAL: u16 = MbbiDirect::at("VAL");
const RVAL: u16 = MbbiDirect::at("RVAL");
const B0: u16 = MbbiDirect::at("B0");

impl Record for MbbiDirect {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant(&self.simulation_value_link) {
            self.simulation_value = value;
        }
        if self.mask == 0 {
            self.mask = mask_of_bits(self.bit_count.cast_unsigned()).unwrap_or(0);
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
        for (index, place) in self.bits.iter_mut().enumerate() {
            *place = bit(self.value, index);
        }
        self.last_monitored = self.value;
        self.old_raw = self.raw_value;
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
        step.post(|direct, posts| {
            if read == Read::Raw {
                direct.value = shifted_right(direct.raw_value, direct.shift).cast_signed();
                direct.common.undefined = 0;
            }
            if direct.common.undefined != 0 {
                let severity = direct.common.undefined_severity;
                direct.common.raise(Status::UDF, severity);
            }
            direct.monitor(posts);
        });
        Outcome::done(read != Read::Failed)
    }
}

impl Input for MbbiDirect {
    fn input(&self) -> &Link {
        &self.input
    }
}

fn read(step: &mut Step<'_, '_, MbbiDirect>) -> Read {
    if Device::of(step.lock()) == Device::Raw {
        return match step.fetch("INP", MbbiDirect::input) {
            Ok(raw) => {
                let direct = step.lock();
                direct.raw_value = raw.unwrap_or(direct.raw_value) & direct.mask;
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
    let direct = step.lock();
    direct.value = value.map_or(direct.value, u32::cast_signed);
    // Also cleared when the link has no value to read, as in Base.
    direct.common.undefined = 0;
    Read::Value
}

impl MbbiDirect {
    fn simulate(&mut self, value: Option<u32>, is_raw: bool) {
        self.simulation_value = value.map_or(self.simulation_value, u32::cast_signed);
        if is_raw {
            self.raw_value = self.simulation_value.cast_unsigned();
        } else {
            self.value = self.simulation_value;
        }
        self.common.undefined = 0;
    }

    fn monitor(&mut self, posts: &mut Posts) {
        let alarms = posts.alarms(self);
        let changed = alarms | CHANGED;
        let mut mask = alarms;
        if self.last_monitored != self.value {
            mask = changed;
            self.last_monitored = self.value;
        }
        for index in 0..self.bits.len() {
            let now = bit(self.value, index);
            let is_changed = std::mem::replace(&mut self.bits[index], now) != now;
            let mask = if is_changed { changed } else { alarms };
            if !mask.is_empty() {
                posts.post(self, B0 + index as u16, mask);
            }
        }
        if !mask.is_empty() {
            posts.post(self, VAL, mask);
        }
        if self.old_raw != self.raw_value {
            posts.post(self, RVAL, changed);
            self.old_raw = self.raw_value;
        }
    }
}
