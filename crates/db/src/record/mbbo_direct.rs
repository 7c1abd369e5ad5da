//! mbboDirect: an output word, with its bits as writable fields.

use fodo_data::Value;

use crate::common::Common;
use crate::field::record_fields;
use crate::menu::{self, CLOSED_LOOP};
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::device::DeviceSupport;
use crate::record::output::{self, OutputRecord, output_fields};
use crate::record::simulation::{self, constant, simulated};
use crate::record::states::{bit, initial_mask, shifted_left};
use crate::record::{CHANGED, Record, changes, is_changed, post_value, record_type};

record_fields! {
    /// An output word, with its bits.
    MbboDirect
    fields {
        "VAL" value: Long, ASL0 PP INTEREST0;
        "OMSL" output_mode: Menu(menu::OMSL), PP;
        "NOBT" bit_count: Short, NOMOD PROP;
        "DOL" desired_output: InLink;
        "OUT" output: OutLink, DEVICE;
        "RVAL" raw_value: ULong, NOMOD PP INTEREST0;
        "ORAW" old_raw: ULong, NOMOD INTEREST3;
        ..readback(ULong);
        "MASK" mask: ULong, NOMOD;
        "MLST" last_monitored: Long, NOMOD INTEREST3;
        "OBIT" old_bits: Long, NOMOD INTEREST3;
        "SHFT" shift: UShort;
        ..simulation(OutLink, SIMM);
        "IVOA" invalid_action: Menu(menu::IVOA), INTEREST2;
        "IVOV" invalid_value: Long, INTEREST2;
    }
    arrays {
        bits: [UChar(); 32] [ASL0 SPECIAL PP] "B" BITS;
    }
    private {
        common: Common;
    }
}

record_type!(
    MbboDirect, "mbboDirect", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel", "Program"],
    RVAL RBV SIMM B0
);
simulated!(MbboDirect, has_raw: true);
output_fields!(MbboDirect);

impl Record for MbboDirect {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant::<u32>(&self.desired_output) {
            self.value = value.cast_signed();
            self.common.undefined = 0;
        }
        let is_raw = DeviceSupport::of(self) == DeviceSupport::Raw;
        let bits = self.bit_count.cast_unsigned();
        self.mask = initial_mask(self.mask, bits, is_raw.then_some(self.shift));
        if self.common.undefined != 0 {
            let set = (0..32).filter(|index| self.bits[*index] != 0).fold(0_u32, |word, index| word | 1 << index);
            if set != 0 {
                self.value = set.cast_signed();
                self.common.undefined = 0;
            }
        } else {
            self.bits = std::array::from_fn(|index| bit(self.value, index));
        }
        // RVAL and OBIT are set only when the record is first processed, as in Base.
        self.last_monitored = self.value;
        self.old_raw = self.raw_value;
        self.old_readback = self.readback;
    }

    fn after_put(&mut self, field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
        if field == SIMM {
            return simulation::mode_was_put(self);
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

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        output::process(step)
    }
}

impl OutputRecord for MbboDirect {
    const REPORTS_WRITE_FAILURE: bool = false;
    fn use_invalid_value(&mut self) {
        self.value = self.invalid_value;
        self.convert();
    }

    fn value(&self) -> Value {
        self.value.into()
    }

    fn raw_value(&self) -> Value {
        self.raw_value.into()
    }

    fn value_to_write(&mut self) -> Option<Value> {
        // VAL is signed, but written as unsigned, as in Base.
        let is_raw = DeviceSupport::of(self) == DeviceSupport::Raw;
        Some(if is_raw { self.raw_value & self.mask } else { self.value.cast_unsigned() }.into())
    }

    fn prepare(step: &mut Step<'_, '_, Self>) -> bool {
        // Without a value to drive, the time stamp is not updated, as in Base.
        let desired = output::fetch_defined(step, "UDFS");
        let Some(value) = desired else { return true };
        let direct = step.lock();
        direct.value = value.map_or(direct.value, u32::cast_signed);
        direct.convert();
        output::stamp(step);
        true
    }

    fn stamp_completion(step: &mut Step<'_, '_, Self>) {
        output::stamp(step);
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let changes = changes(&mut self.last_monitored, &self.value);
        let changed = post_value(self, changes, posts) | CHANGED;
        for index in 0..self.bits.len() {
            let now = bit(self.value, index);
            self.bits[index] = now;
            if bit(self.old_bits, index) != now {
                posts.post(self, B0 + index as u16, changed);
            }
        }
        self.old_bits = self.value;
        if is_changed(&mut self.old_raw, &self.raw_value) {
            posts.post(self, RVAL, changed);
        }
        if is_changed(&mut self.old_readback, &self.readback) {
            posts.post(self, RBV, changed);
        }
    }
}

impl MbboDirect {
    fn convert(&mut self) {
        self.raw_value = shifted_left(self.value.cast_unsigned(), self.shift);
    }
}
