//! busy, of synApps: a bo whose put completes only when its value is set back to 0.

use fodo_data::{Meta, Status, Value};

use crate::common::{Common, row};
use crate::field::record_fields;
use crate::link::Target;
use crate::menu::{self, INVALID, NO, YES};
use crate::process::post::RecordPosts;
use crate::process::step::{LinkError, ProcessOutcome, Step};
use crate::record::device::DeviceSupport;
use crate::record::output::{OutputFields, fetch_desired, is_closed_loop, may_write, output_fields};
use crate::record::simulation::{constant, set_constant};
use crate::record::states::{binary_labels, raise_binary, raw_binary};
use crate::record::{CHANGED, Record, changes, is_changed, post_value, raise_undefined, record_type};

record_fields! {
    /// A binary output that is done when its value is 0.
    Busy
    fields {
        ..two_states("Done", "Busy");
        "OMSL" output_mode: Menu(menu::OMSL);
        "DOL" desired_output: InLink;
        "OUT" output: OutLink, DEVICE;
        "HIGH" high: Double, DELAY;
        ..readback(ULong);
        "SIOL" simulation_value_link: OutLink;
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::YES_NO);
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR), INTEREST2;
        "IVOA" invalid_action: Menu(menu::IVOA), INTEREST2;
        "IVOV" invalid_value: UShort, INTEREST2;
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(Busy, "busy", ["Soft Channel", "Raw Soft Channel"], RVAL RBV);
output_fields!(Busy);

impl Record for Busy {
    fn init(&mut self) {
        set_constant(&mut self.simulation_mode, &self.simulation_mode_link);
        if let Some(value) = constant::<u16>(&self.desired_output) {
            self.value = u16::from(value != 0);
            self.common.undefined = 0;
        }
        self.raw_value = raw_binary(self.mask, self.value);
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        match row(Busy::ROWS, field)?.name {
            "VAL" => binary_labels(&self.zero_name, &self.one_name, meta),
            "HIGH" => meta.precision = 2,
            _ => {}
        }
        None
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        let is_read = fetch(step);
        let is_ok = if step.lock().prepare() { write(step) } else { is_read };
        step.stamp(None);
        let busy = step.lock();
        let high_s = if busy.value == 1 { busy.high } else { 0.0 };
        if high_s > 0.0 {
            step.release_after(high_s);
        }
        step.post(Busy::monitor);
        if step.lock().value != 0 { ProcessOutcome::Busy } else { ProcessOutcome::done(is_ok) }
    }
}

/// Reads DOL into the value in closed loop mode. Returns whether that succeeded.
fn fetch(step: &mut Step<'_, '_, Busy>) -> bool {
    let Ok(value) = fetch_desired(step) else { return false };
    let busy = step.lock();
    if is_closed_loop(busy.desired()) {
        busy.value = value.unwrap_or(busy.value);
        busy.common.undefined = 0;
    }
    true
}

/// Writes to OUT, or to SIOL in simulation mode. Returns whether that succeeded.
fn write(step: &mut Step<'_, '_, Busy>) -> bool {
    match step.read_link("SIML", |busy| &busy.simulation_mode_link) {
        Ok(Some(mode)) => step.lock().simulation_mode = mode,
        Ok(None) => {}
        Err(LinkError) => return false,
    }
    let busy = step.lock();
    let (mode, value, raw_value) = (busy.simulation_mode, busy.value, busy.raw_value);
    let is_raw = DeviceSupport::of(busy) == DeviceSupport::Raw;
    match mode {
        NO => {
            let value = if is_raw { Value::from(raw_value) } else { Value::from(value) };
            step.write_link("OUT", Busy::output, value).is_ok()
        }
        YES => {
            let driven = step.write_link("SIOL", |busy| &busy.simulation_value_link, value);
            let busy = step.lock();
            busy.common.raise(Status::SIMM, busy.simulation_severity);
            driven.is_ok()
        }
        _ => {
            step.lock().common.raise(Status::SOFT, INVALID);
            false
        }
    }
}

impl Busy {
    /// Converts the value and raises its alarms. Returns whether the alarm and IVOA allow the output.
    fn prepare(&mut self) -> bool {
        self.raw_value = raw_binary(self.mask, self.value);
        raise_undefined(&mut self.common);
        let severities = [self.zero_severity, self.one_severity];
        raise_binary(&mut self.common, self.value, severities, self.change_severity, &mut self.last_alarmed);
        let invalid_action = self.invalid_action;
        may_write(self, invalid_action, |busy| {
            busy.value = busy.invalid_value;
            busy.raw_value = raw_binary(busy.mask, busy.value);
        })
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
