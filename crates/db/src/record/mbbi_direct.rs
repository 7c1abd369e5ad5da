//! mbbiDirect: an input word, with its bits as fields.

use fodo_data::TimeStamp;

use crate::common::Common;
use crate::field::record_fields;
use crate::process::post::RecordPosts;
use crate::process::step::{LinkError, ProcessOutcome, Step};
use crate::record::device::{self, DeviceSupport, InputFields, InputRecord, ReadResult, input_fields};
use crate::record::simulation::{self, set_constant, simulated};
use crate::record::states::{bit, initial_mask, shifted_right};
use crate::record::{CHANGED, Record, changes, is_changed, raise_undefined, record_type};

record_fields! {
    /// An input word, with its bits.
    MbbiDirect
    fields {
        "VAL" value: Long, ASL0 PP INTEREST0;
        "NOBT" bit_count: Short, NOMOD PROP;
        "INP" input: InLink, DEVICE;
        "RVAL" raw_value: ULong, PP INTEREST0;
        "ORAW" old_raw: ULong, NOMOD INTEREST3;
        "MASK" mask: ULong, NOMOD;
        "MLST" last_monitored: Long, NOMOD INTEREST3;
        "SHFT" shift: UShort;
        ..simulation(InLink, SIMM);
        "SVAL" simulation_value: Long, INTEREST0;
    }
    arrays {
        bits: [UChar(); 32] [PP] "B" BITS;
    }
    private {
        common: Common;
    }
}

record_type!(
    MbbiDirect, "mbbiDirect", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel", "Program"],
    VAL RVAL B0
);
simulated!(MbbiDirect, has_raw: true);
input_fields!(MbbiDirect, u32, simulated: u32);

impl Record for MbbiDirect {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = simulation::constant::<u32>(&self.simulation_value_link) {
            self.simulation_value = value.cast_signed();
        }
        let is_raw = DeviceSupport::of(self) == DeviceSupport::Raw;
        if is_raw {
            set_constant(&mut self.raw_value, &self.input);
        } else if let Some(value) = simulation::constant::<u32>(&self.input) {
            self.value = value.cast_signed();
            self.common.undefined = 0;
        }
        let bits = self.bit_count.cast_unsigned();
        self.mask = initial_mask(self.mask, bits, is_raw.then_some(self.shift));
        self.bits = std::array::from_fn(|index| bit(self.value, index));
        self.last_monitored = self.value;
        self.old_raw = self.raw_value;
    }

    fn after_put(&mut self, _field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
        simulation::mode_was_put(self)
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        device::process(step)
    }
}

impl InputRecord for MbbiDirect {
    fn store(&mut self, value: Option<u32>, _device: DeviceSupport) {
        self.value = value.map_or(self.value, u32::cast_signed);
        // Also cleared when the link has no value to read, as in Base.
        self.common.undefined = 0;
    }

    fn simulate(&mut self, value: Option<u32>, is_raw: bool) {
        self.simulation_value = value.map_or(self.simulation_value, u32::cast_signed);
        if is_raw {
            self.raw_value = self.simulation_value.cast_unsigned();
        } else {
            self.value = self.simulation_value;
        }
    }

    fn read_raw(step: &mut Step<'_, '_, Self>) -> Result<(), LinkError> {
        let raw = step.read_link("INP", Self::input)?;
        let direct = step.lock();
        direct.raw_value = raw.unwrap_or(direct.raw_value) & direct.mask;
        Ok(())
    }

    fn finish(step: &mut Step<'_, '_, Self>, read: ReadResult, _before: TimeStamp) {
        step.post(|direct, posts| {
            if read == ReadResult::Raw {
                direct.value = shifted_right(direct.raw_value, direct.shift).cast_signed();
                direct.common.undefined = 0;
            }
            raise_undefined(&mut direct.common);
            direct.monitor(posts);
        });
    }
}

impl MbbiDirect {
    fn monitor(&mut self, posts: &mut RecordPosts) {
        let alarms = posts.alarms(self);
        let mask = alarms | changes(&mut self.last_monitored, &self.value);
        for index in 0..self.bits.len() {
            let mask = alarms | changes(&mut self.bits[index], &bit(self.value, index));
            if !mask.is_empty() {
                posts.post(self, B0 + index as u16, mask);
            }
        }
        if !mask.is_empty() {
            posts.post(self, VAL, mask);
        }
        if is_changed(&mut self.old_raw, &self.raw_value) {
            posts.post(self, RVAL, alarms | CHANGED);
        }
    }
}
