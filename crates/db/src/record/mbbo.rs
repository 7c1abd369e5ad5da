//! mbbo: an output of one of sixteen states.

use fodo_data::{Kind, Meta, Status, Value};

use crate::common::Common;
use crate::field::record_fields;
use crate::link::Target;
use crate::menu::{self, INVALID};
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::device::DeviceSupport;
use crate::record::output::{self, OutputRecord, output_fields};
use crate::record::simulation::{self, set_constant, simulated};
use crate::record::states::{are_defined, initial_mask, labels, raise_state, severity, shifted_left};
use crate::record::{CHANGED, Record, changes, is_changed, post_value, record_type};
use crate::reference::KindAndCount;

record_fields! {
    /// An output of one of sixteen states.
    Mbbo
    fields {
        "VAL" value: Enum, ASL0 PP SPECIAL NUMBERED INTEREST0;
        "DOL" desired_output: InLink;
        "OMSL" output_mode: Menu(menu::OMSL);
        "OUT" output: OutLink, DEVICE;
        ..sixteen_states();
        ..readback(ULong);
        ..simulation(OutLink, SIMM);
        "IVOA" invalid_action: Menu(menu::IVOA), INTEREST2;
        "IVOV" invalid_value: UShort, INTEREST2;
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
    Mbbo, "mbbo", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel", "Program"],
    VAL RVAL RBV SIMM ZRVL FFVL ZRST FFST
);
simulated!(Mbbo, has_raw: true);
output_fields!(Mbbo);

impl Record for Mbbo {
    fn init(&mut self) {
        simulation::init(self);
        if set_constant(&mut self.value, &self.desired_output) {
            self.common.undefined = 0;
        }
        let is_raw = DeviceSupport::of(self) == DeviceSupport::Raw;
        self.mask = initial_mask(self.mask, self.bits, is_raw.then_some(self.shift));
        self.define();
        self.convert();
        self.last_monitored = self.value;
        self.last_alarmed = self.value;
        self.old_raw = self.raw_value;
        self.old_readback = self.readback;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        if field == VAL {
            labels(&self.state_names, self.value, meta);
        }
        None
    }

    /// Without defined states, VAL is a plain number, as in Base.
    fn value_kind_and_count(&self) -> Option<KindAndCount> {
        let kind = if self.states_defined == 0 { Kind::U16 } else { Kind::Enum };
        Some(KindAndCount { kind, count_max: 1 })
    }

    fn after_put(&mut self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str> {
        match field {
            SIMM => return simulation::mode_was_put(self),
            ZRST..=FFST => {
                self.define();
                if self.value == field - ZRST {
                    posts.post(self, VAL, CHANGED);
                }
            }
            ZRVL..=FFVL => self.define(),
            _ => {}
        }
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        output::process(step)
    }
}

impl OutputRecord for Mbbo {
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
        let is_raw = DeviceSupport::of(self) == DeviceSupport::Raw;
        Some(if is_raw { (self.raw_value & self.mask).into() } else { self.value.into() })
    }

    fn prepare(step: &mut Step<'_, '_, Self>) -> bool {
        // Without a value to drive, the time stamp is not updated, as in Base.
        let desired = output::fetch_defined(step, "");
        let Some(value) = desired else { return true };
        let mbbo = step.lock();
        mbbo.value = value.unwrap_or(mbbo.value);
        mbbo.convert();
        output::stamp(step);
        true
    }

    fn check(&mut self) {
        let severity = severity(&self.state_severities, self.unknown_severity, self.value);
        raise_state(&mut self.common, self.value, severity, self.change_severity, &mut self.last_alarmed);
    }

    fn stamp_completion(step: &mut Step<'_, '_, Self>) {
        output::stamp(step);
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let changes = changes(&mut self.last_monitored, &self.value);
        let mask = post_value(self, changes, posts) | CHANGED;
        if is_changed(&mut self.old_raw, &self.raw_value) {
            posts.post(self, RVAL, mask);
        }
        if is_changed(&mut self.old_readback, &self.readback) {
            posts.post(self, RBV, mask);
        }
    }
}

impl Mbbo {
    fn define(&mut self) {
        self.states_defined = are_defined(&self.state_values, &self.state_names);
    }

    fn convert(&mut self) {
        let raw = match self.state_values.get(usize::from(self.value)) {
            _ if self.states_defined == 0 => self.value.into(),
            Some(value) => *value,
            None => {
                self.common.raise(Status::SOFT, INVALID);
                return;
            }
        };
        self.raw_value = shifted_left(raw, self.shift);
    }
}
