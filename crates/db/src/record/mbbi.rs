//! mbbi: an input of one of sixteen states.

use fodo_data::{Meta, TimeStamp};

use crate::common::Common;
use crate::field::record_fields;
use crate::link::Target;
use crate::menu;
use crate::process::post::RecordPosts;
use crate::process::step::{LinkError, ProcessOutcome, Step};
use crate::record::device::{self, DeviceSupport, InputFields, InputRecord, ReadResult, input_fields};
use crate::record::levels::{AlarmFilter, filtered};
use crate::record::simulation::{self, set_constant, simulated};
use crate::record::states::{are_defined, initial_mask, labels, raise_state, severity, shifted_right};
use crate::record::{CHANGED, Record, changes, is_changed, post_value, raise_undefined, record_type};

record_fields! {
    /// An input of one of sixteen states.
    Mbbi
    fields {
        "VAL" value: Enum, ASL0 PP INTEREST0;
        "INP" input: InLink, DEVICE;
        ..alarm_filter();
        ..sixteen_states();
        ..simulation(InLink, SIMM);
        "SVAL" simulation_value: ULong, INTEREST0;
    }
    arrays {
        state_values: [ULong(); 16] [PP SPECIAL HEX] "" STATES "VL";
        state_names: [String(26); 16] [PP PROP SPECIAL] "" STATES "ST";
        state_severities: [Menu(menu::ALARM_SEVR); 16] [PP] "" STATES "SV";
    }
    private {
        common: Common;
    }
}

record_type!(
    Mbbi, "mbbi", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel", "Program"],
    VAL RVAL SIMM ZRST FFST
);
simulated!(Mbbi, has_raw: true);
input_fields!(Mbbi, u16, simulated: u32);

/// The value of a raw value without a state.
const UNKNOWN: u16 = u16::MAX;

impl Record for Mbbi {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = simulation::constant::<u16>(&self.simulation_value_link) {
            self.simulation_value = value.into();
        }
        let is_raw = DeviceSupport::of(self) == DeviceSupport::Raw;
        if is_raw {
            set_constant(&mut self.raw_value, &self.input);
        } else if set_constant(&mut self.value, &self.input) {
            self.common.undefined = 0;
        }
        self.mask = initial_mask(self.mask, self.bits, is_raw.then_some(self.shift));
        self.define();
        self.last_monitored = self.value;
        self.last_alarmed = self.value;
        self.old_raw = self.raw_value;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        if field == VAL {
            labels(&self.state_names, self.value, meta);
        }
        None
    }

    fn after_put(&mut self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str> {
        if field == SIMM {
            return simulation::mode_was_put(self);
        }
        self.define();
        if (ZRST..=FFST).contains(&field) && self.value == field - ZRST {
            posts.post(self, VAL, CHANGED);
        }
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        device::process(step)
    }
}

impl InputRecord for Mbbi {
    fn store(&mut self, value: Option<u16>, _device: DeviceSupport) {
        self.value = value.unwrap_or(self.value);
        // Also cleared when the link has no value to read, as in Base.
        self.common.undefined = 0;
    }

    fn simulate(&mut self, value: Option<u32>, is_raw: bool) {
        self.simulation_value = value.unwrap_or(self.simulation_value);
        if is_raw {
            self.raw_value = self.simulation_value;
        } else {
            self.value = self.simulation_value as u16;
        }
    }

    fn read_raw(step: &mut Step<'_, '_, Self>) -> Result<(), LinkError> {
        let raw = step.read_link("INP", Self::input)?;
        let mbbi = step.lock();
        mbbi.raw_value = raw.unwrap_or(mbbi.raw_value) & mbbi.mask;
        Ok(())
    }

    fn finish(step: &mut Step<'_, '_, Self>, read: ReadResult, before: TimeStamp) {
        let elapsed_s = step.elapsed_s(before);
        step.post(|mbbi, posts| {
            if read == ReadResult::Raw {
                mbbi.convert();
            }
            mbbi.check(elapsed_s);
            mbbi.monitor(posts);
        });
    }
}

impl Mbbi {
    fn define(&mut self) {
        self.states_defined = are_defined(&self.state_values, &self.state_names);
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
        if raise_undefined(&mut self.common) {
            self.alarm_filter_value = 0.0;
            return;
        }
        let severity = severity(&self.state_severities, self.unknown_severity, self.value);
        let state = &mut self.alarm_filter_value;
        let filter = AlarmFilter { time_s: self.alarm_filter_time, state, elapsed_s };
        let severity = filtered(severity as u8, filter).map_or(severity, u16::from);
        raise_state(&mut self.common, self.value, severity, self.change_severity, &mut self.last_alarmed);
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let changes = changes(&mut self.last_monitored, &self.value);
        let mask = post_value(self, changes, posts);
        if is_changed(&mut self.old_raw, &self.raw_value) {
            posts.post(self, RVAL, mask | CHANGED);
        }
    }
}
