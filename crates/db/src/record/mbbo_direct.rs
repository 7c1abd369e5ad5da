//! mbboDirect: an output word, with its bits as writable fields.

use fodo_data::{Status, Value};

use crate::common::Common;
use crate::field::record_fields;
use crate::link::{Link, Target};
use crate::menu;
use crate::post::Posts;
use crate::record::device::Device;
use crate::record::output::{self, Driven, Output};
use crate::record::simulation::{self, constant, simulated, time_source};
use crate::record::states::{bit, mask_of_bits, shifted_left};
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// An output word, with its bits.
    MbboDirect
    fields {
        "VAL" value: Long, ASL0 PP;
        "OMSL" output_mode: Menu(menu::OMSL), PP;
        "NOBT" bit_count: Short, NOMOD PROP;
        "DOL" desired_output: InLink;
        "OUT" output: OutLink;
        "RVAL" raw_value: ULong, NOMOD PP;
        "ORAW" old_raw: ULong, NOMOD;
        "RBV" readback: ULong, NOMOD;
        "ORBV" old_readback: ULong, NOMOD;
        "MASK" mask: ULong, NOMOD;
        "MLST" last_monitored: Long, NOMOD;
        "OBIT" old_bits: Long, NOMOD;
        "SHFT" shift: UShort;
        "SIOL" simulation_value_link: OutLink;
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::SIMM), SPECIAL;
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "OLDSIMM" old_simulation_mode: Menu(menu::SIMM), NOMOD;
        "SSCN" simulation_scan: Menu(menu::SCAN) = 65535;
        "SDLY" simulation_delay: Double = -1.0;
        "IVOA" invalid_action: Menu(menu::IVOA);
        "IVOV" invalid_value: Long;
    }
    arrays {
        bits: [UChar(); 32] [ASL0 SPECIAL PP] {
            "B0" 0, "B1" 1, "B2" 2, "B3" 3, "B4" 4, "B5" 5, "B6" 6, "B7" 7, "B8" 8, "B9" 9, "BA" 10, "BB" 11, "BC" 12, "BD" 13, "BE" 14, "BF" 15, "B10" 16, "B11" 17, "B12" 18, "B13" 19, "B14" 20, "B15" 21, "B16" 22, "B17" 23, "B18" 24, "B19" 25, "B1A" 26, "B1B" 27, "B1C" 28, "B1D" 29, "B1E" 30, "B1F" 31
        }
    }
    private {
        common: Common;
    }
}

record_type!(MbboDirect, "mbboDirect", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel"]);
simulated!(MbboDirect, has_raw: true);

const VAL: u16 = MbboDirect::at("VAL");
const RVAL: u16 = MbboDirect::at("RVAL");
const RBV: u16 = MbboDirect::at("RBV");
const SIMM: u16 = MbboDirect::at("SIMM");
const CLOSED_LOOP: u16 = 1;
const B0: u16 = MbboDirect::at("B0");

impl Record for MbboDirect {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant::<u32>(&self.desired_output) {
            self.value = value.cast_signed();
            self.common.undefined = 0;
        }
        if self.mask == 0 {
            self.mask = mask_of_bits(self.bit_count.cast_unsigned()).unwrap_or(0);
        }
        if Device::of(self) == Device::Raw {
            if self.mask == 0 {
                self.mask = u32::MAX;
            }
            self.mask = shifted_left(self.mask, self.shift);
        }
        if self.common.undefined != 0 {
            let set = (0..32).filter(|index| self.bits[*index] != 0).fold(0_u32, |word, index| word | 1 << index);
            if set != 0 {
                self.value = set.cast_signed();
                self.common.undefined = 0;
            }
        } else {
            for (index, place) in self.bits.iter_mut().enumerate() {
                *place = bit(self.value, index);
            }
        }
        // RVAL and OBIT are set only when the record is first processed, as in Base.
        self.last_monitored = self.value;
        self.old_raw = self.raw_value;
        self.old_readback = self.readback;
    }

    fn after_put(&mut self, field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
        if field == SIMM {
            simulation::swap_scan(self);
            return Ok(());
        }
        let index = usize::from(field - B0);
        if self.output_mode == CLOSED_LOOP {
            if let Some(place) = self.bits.get_mut(index) {
                *place = bit(self.value, index);
            }
            return Err("bits are not writable while OMSL is closed_loop");
        }
        let set = 1_u32.checked_shl(index as u32).unwrap_or(0).cast_signed();
        if self.bits.get(index).is_some_and(|put| *put != 0) {
            self.value |= set;
            self.old_bits |= set;
        } else {
            self.value &= !set;
            self.old_bits &= !set;
        }
        self.common.undefined = 0;
        self.convert();
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let mut is_well = true;
        let stamp = |step: &mut Step<'_, '_, MbboDirect>| {
            let simulated = time_source(step).map(|_| Target::Constant);
            step.stamp(simulated);
        };
        // Without a value to drive, the time stamp is not updated, as in Base.
        if !step.is_completion && desired(step) {
            let direct = step.lock();
            direct.common.undefined = 0;
            direct.convert();
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
        step.post(MbboDirect::monitor);
        Outcome::done(is_well)
    }
}

/// Reads DOL in closed loop mode. Returns whether there is a value to convert.
fn desired(step: &mut Step<'_, '_, MbboDirect>) -> bool {
    {
        let direct = step.lock();
        if direct.output_mode != CLOSED_LOOP || direct.desired_output.is_constant() {
            if direct.common.undefined != 0 {
                let severity = direct.common.undefined_severity;
                direct.common.raise_saying(Status::UDF, severity, "UDFS".into());
                return false;
            }
            return true;
        }
    }
    match step.fetch::<u32>("DOL", |direct| &direct.desired_output) {
        Ok(value) => {
            let direct = step.lock();
            direct.value = value.map_or(direct.value, u32::cast_signed);
            true
        }
        Err(Broken) => false,
    }
}

impl Output for MbboDirect {
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
        // VAL is signed, but written as unsigned, as in Base.
        let is_raw = Device::of(self) == Device::Raw;
        Some(if is_raw { self.raw_value & self.mask } else { self.value.cast_unsigned() }.into())
    }
}

impl MbboDirect {
    fn convert(&mut self) {
        self.raw_value = shifted_left(self.value.cast_unsigned(), self.shift);
    }

    fn monitor(&mut self, posts: &mut Posts) {
        let alarms = posts.alarms(self);
        let changed = alarms | CHANGED;
        let mut mask = alarms;
        if self.last_monitored != self.value {
            mask = changed;
            self.last_monitored = self.value;
        }
        if !mask.is_empty() {
            posts.post(self, VAL, mask);
        }
        for index in 0..self.bits.len() {
            let now = bit(self.value, index);
            self.bits[index] = now;
            if bit(self.old_bits, index) != now {
                posts.post(self, B0 + index as u16, changed);
            }
        }
        self.old_bits = self.value;
        if self.old_raw != self.raw_value {
            posts.post(self, RVAL, changed);
            self.old_raw = self.raw_value;
        }
        if self.old_readback != self.readback {
            posts.post(self, RBV, changed);
            self.old_readback = self.readback;
        }
    }
}
