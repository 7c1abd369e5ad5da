//! bi: a binary input.

use fodo_data::{Meta, TimeStamp};

use crate::common::Common;
use crate::field::record_fields;
use crate::link::Target;
use crate::process::post::RecordPosts;
use crate::process::step::{LinkError, ProcessOutcome, Step};
use crate::record::device::{self, DeviceSupport, InputFields, InputRecord, ReadResult, input_fields};
use crate::record::simulation::{self, set_constant, simulated};
use crate::record::states::{binary_labels, raise_binary};
use crate::record::{CHANGED, Record, changes, is_changed, post_value, raise_undefined, record_type};

record_fields! {
    /// A binary input.
    Bi
    fields {
        ..two_states("", "", PROP);
        "INP" input: InLink, DEVICE;
        ..simulation(InLink, SIMM);
        "SVAL" simulation_value: ULong, INTEREST0;
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(Bi, "bi", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel", "Db State", "Program"], VAL RVAL);
simulated!(Bi, has_raw: true);
input_fields!(Bi, u16, simulated: u32);

impl Record for Bi {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = simulation::constant::<u16>(&self.simulation_value_link) {
            self.simulation_value = value.into();
        }
        if DeviceSupport::of(self) == DeviceSupport::Raw {
            set_constant(&mut self.raw_value, &self.input);
        } else if set_constant(&mut self.value, &self.input) {
            self.common.undefined = 0;
        }
        self.last_monitored = self.value;
        self.last_alarmed = self.value;
        self.old_raw = self.raw_value;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        if field == VAL {
            binary_labels(&self.zero_name, &self.one_name, meta);
        }
        None
    }

    fn after_put(&mut self, _field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
        simulation::mode_was_put(self)
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        device::process(step)
    }
}

impl InputRecord for Bi {
    fn store(&mut self, value: Option<u16>, _device: DeviceSupport) {
        self.value = value.unwrap_or(self.value);
        // Also cleared when the link has no value to read, as in Base.
        self.common.undefined = 0;
    }

    fn simulate(&mut self, value: Option<u32>, is_raw: bool) {
        self.simulation_value = value.unwrap_or(self.simulation_value);
        if is_raw {
            self.raw_value = self.simulation_value & 0xffff;
        } else {
            self.value = self.simulation_value as u16;
        }
    }

    fn read_raw(step: &mut Step<'_, '_, Self>) -> Result<(), LinkError> {
        let raw = step.read_link("INP", Self::input)?;
        let bi = step.lock();
        let raw = raw.unwrap_or(bi.raw_value);
        bi.raw_value = if bi.mask == 0 { raw } else { raw & bi.mask };
        Ok(())
    }

    fn finish(step: &mut Step<'_, '_, Self>, read: ReadResult, _before: TimeStamp) {
        step.post(|bi, posts| {
            if read == ReadResult::Raw {
                bi.value = u16::from(bi.raw_value != 0);
                bi.common.undefined = 0;
            }
            bi.check();
            bi.monitor(posts);
        });
    }
}

impl Bi {
    fn check(&mut self) {
        if !raise_undefined(&mut self.common) && self.value <= 1 {
            let severities = [self.zero_severity, self.one_severity];
            raise_binary(&mut self.common, self.value, severities, self.change_severity, &mut self.last_alarmed);
        }
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let changes = changes(&mut self.last_monitored, &self.value);
        let mask = post_value(self, changes, posts);
        if is_changed(&mut self.old_raw, &self.raw_value) {
            posts.post(self, RVAL, mask | CHANGED);
        }
    }
}
