//! busy, of synApps: a bo whose put completes only when its value is set back to 0.

use fodo_data::{Meta, Status, Value};

use crate::common::{Common, row};
use crate::field::record_fields;
use crate::link::Target;
use crate::menu;
use crate::post::Posts;
use crate::record::device::Device;
use crate::record::simulation::constant;
use crate::record::states::{UNNAMED, binary_labels};
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// A binary output that is done when its value is 0.
    Busy
    fields {
        "VAL" value: Enum, ASL0 PP;
        "OMSL" output_mode: Menu(menu::OMSL);
        "DOL" desired_output: InLink;
        "OUT" output: OutLink;
        "HIGH" high: Double;
        "ZNAM" zero_name: String(26) = "Done".into(), PP;
        "ONAM" one_name: String(26) = "Busy".into(), PP;
        "RVAL" raw_value: ULong, PP;
        "ORAW" old_raw: ULong, NOMOD;
        "MASK" mask: ULong, NOMOD;
        "ZSV" zero_severity: Menu(menu::ALARM_SEVR), PP;
        "OSV" one_severity: Menu(menu::ALARM_SEVR), PP;
        "COSV" change_severity: Menu(menu::ALARM_SEVR), PP;
        "RBV" readback: ULong, NOMOD;
        "ORBV" old_readback: ULong, NOMOD;
        "MLST" last_monitored: UShort, NOMOD;
        "LALM" last_alarmed: UShort, NOMOD;
        "SIOL" simulation_value_link: OutLink;
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::YES_NO);
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "IVOA" invalid_action: Menu(menu::IVOA);
        "IVOV" invalid_value: UShort;
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(Busy, "busy", ["Soft Channel", "Raw Soft Channel"]);

const VAL: u16 = Busy::at("VAL");
const RVAL: u16 = Busy::at("RVAL");
const RBV: u16 = Busy::at("RBV");

impl Record for Busy {
    fn init(&mut self) {
        if let Some(mode) = constant(&self.simulation_mode_link) {
            self.simulation_mode = mode;
        }
        if let Some(value) = constant::<u16>(&self.desired_output) {
            self.value = u16::from(value != 0);
            self.common.undefined = 0;
        }
        self.convert();
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Busy::ROWS, field)?;
        match row.name {
            "VAL" => {
                meta.labels = binary_labels(&self.zero_name, &self.one_name);
                meta.label_for_unlabelled = Some(UNNAMED.into());
            }
            "HIGH" => meta.precision = 2,
            _ => {}
        }
        None
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let is_read = fetch(step);
        step.lock().convert();
        step.lock().check();
        let is_well = if step.lock().may_drive() { write(step) } else { is_read };
        step.stamp(None);
        let high_s = {
            let busy = step.lock();
            if busy.value == 1 { busy.high } else { 0.0 }
        };
        if high_s > 0.0 {
            step.release_after(high_s);
        }
        step.post(Busy::monitor);
        if step.lock().value != 0 { Outcome::Held } else { Outcome::done(is_well) }
    }
}

/// Reads DOL into the value in closed loop mode. Returns whether that succeeded.
fn fetch(step: &mut Step<'_, '_, Busy>) -> bool {
    let is_closed_loop = {
        let busy = step.lock();
        busy.output_mode == 1 && !busy.desired_output.is_constant()
    };
    if !is_closed_loop {
        return true;
    }
    match step.fetch("DOL", |busy| &busy.desired_output) {
        Ok(value) => {
            let busy = step.lock();
            busy.value = value.unwrap_or(busy.value);
            busy.common.undefined = 0;
            true
        }
        Err(Broken) => false,
    }
}

/// Writes to OUT, or to SIOL in simulation mode. Returns whether that succeeded.
fn write(step: &mut Step<'_, '_, Busy>) -> bool {
    match step.fetch("SIML", |busy| &busy.simulation_mode_link) {
        Ok(Some(mode)) => step.lock().simulation_mode = mode,
        Ok(None) => {}
        Err(Broken) => return false,
    }
    let (mode, value, raw_value) = {
        let busy = step.lock();
        let is_raw = Device::of(&mut *busy) == Device::Raw;
        (busy.simulation_mode, busy.value, is_raw.then_some(busy.raw_value))
    };
    match mode {
        0 => step.drive("OUT", |busy| &busy.output, raw_value.map_or(Value::from(value), Value::from)).is_ok(),
        1 => {
            let driven = step.drive("SIOL", |busy| &busy.simulation_value_link, value);
            let busy = step.lock();
            let severity = busy.simulation_severity;
            busy.common.raise(Status::SIMM, severity);
            driven.is_ok()
        }
        _ => {
            step.lock().common.raise(Status::SOFT, 3);
            false
        }
    }
}

impl Busy {
    fn convert(&mut self) {
        self.raw_value = match (self.mask, self.value) {
            (0, value) => value.into(),
            (_, 0) => 0,
            (mask, _) => mask,
        };
    }

    fn check(&mut self) {
        if self.common.undefined != 0 {
            self.common.raise(Status::UDF, self.common.undefined_severity);
        }
        let severity = if self.value == 0 { self.zero_severity } else { self.one_severity };
        self.common.raise(Status::STATE, severity);
        if self.value != self.last_alarmed {
            self.common.raise(Status::COS, self.change_severity);
            self.last_alarmed = self.value;
        }
    }

    /// Whether IVOA allows the output; sets the value to IVOV if IVOA requests that.
    fn may_drive(&mut self) -> bool {
        if self.common.new_severity < 3 {
            return true;
        }
        match self.invalid_action {
            0 => true,
            2 => {
                self.value = self.invalid_value;
                self.convert();
                true
            }
            _ => false,
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
        if self.old_readback != self.readback {
            posts.post(self, RBV, mask | CHANGED);
            self.old_readback = self.readback;
        }
    }
}
