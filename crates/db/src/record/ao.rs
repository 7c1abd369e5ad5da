//! ao: an analog output: limits, ramps, converts and drives.

use std::sync::Arc;

use fodo_data::{EventMask, Limits, Meta, Value};

use crate::breaktable::{BreakTable, Converted, SelectedTable};
use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::{Link, Target};
use crate::menu;
use crate::post::Posts;
use crate::record::device::Device;
use crate::record::levels::{self, is_spanned, leveled, moved};
use crate::record::output::{self, Driven, Output};
use crate::record::simulation::{self, constant, simulated, time_source};
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// An analog output.
    Ao
    fields {
        "VAL" value: Double, ASL0 PP;
        "OVAL" output_value: Double;
        "OUT" output: OutLink;
        "OROC" output_rate: Double;
        "DOL" desired_output: InLink;
        "OMSL" output_mode: Menu(menu::OMSL);
        "OIF" incremental: Menu(menu::AO_OIF);
        "PREC" precision: Short, PROP;
        "LINR" conversion: Menu(menu::CONVERT), PP SPECIAL;
        "EGUF" units_full: Double, PP SPECIAL;
        "EGUL" units_low: Double, PP SPECIAL;
        "EGU" units: String(16), PROP;
        "ROFF" raw_offset: ULong, PP;
        "EOFF" unit_offset: Double, PP;
        "ESLO" unit_slope: Double = 1.0, PP;
        "DRVH" drive_high: Double, PP PROP;
        "DRVL" drive_low: Double, PP PROP;
        "HOPR" display_high: Double, PROP;
        "LOPR" display_low: Double, PROP;
        "AOFF" adjust_offset: Double, PP;
        "ASLO" adjust_slope: Double, PP;
        "HIHI" hihi: Double, PP PROP;
        "LOLO" lolo: Double, PP PROP;
        "HIGH" high: Double, PP PROP;
        "LOW" low: Double, PP PROP;
        "HHSV" hihi_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "LLSV" lolo_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "HSV" high_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "LSV" low_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "HYST" hysteresis: Double;
        "ADEL" archive_deadband: Double;
        "MDEL" monitor_deadband: Double;
        "RVAL" raw_value: Long, PP;
        "ORAW" old_raw: Long, NOMOD;
        "RBV" readback: Long, NOMOD;
        "ORBV" old_readback: Long, NOMOD;
        "PVAL" previous_value: Double, NOMOD;
        "LALM" last_alarmed: Double, NOMOD;
        "ALST" last_archived: Double, NOMOD;
        "MLST" last_monitored: Double, NOMOD;
        "INIT" is_initial: Short, NOMOD;
        "LBRK" last_break: Short, NOMOD;
        "SIOL" simulation_value_link: OutLink;
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::SIMM), SPECIAL;
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "OLDSIMM" old_simulation_mode: Menu(menu::SIMM), NOMOD;
        "SSCN" simulation_scan: Menu(menu::SCAN) = 65535;
        "SDLY" simulation_delay: Double = -1.0;
        "IVOA" invalid_action: Menu(menu::IVOA);
        "IVOV" invalid_value: Double;
        "OMOD" output_modified: UChar, NOMOD;
    }
    arrays {
    }
    private {
        common: Common;
        /// The break table that LINR currently selects.
        found: Option<Arc<BreakTable>>;
        table: SelectedTable;
    }
}

record_type!(Ao, "ao", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel"]);
leveled!(Ao, f64);
simulated!(Ao, has_raw: true);

const VAL: u16 = Ao::at("VAL");
const OVAL: u16 = Ao::at("OVAL");
const RVAL: u16 = Ao::at("RVAL");
const RBV: u16 = Ao::at("RBV");
const SIMM: u16 = Ao::at("SIMM");
const LINEAR: u16 = 2;

impl Record for Ao {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant::<f64>(&self.desired_output) {
            self.value = value;
            self.common.undefined = u8::from(value.is_nan());
        }
        self.is_initial = 1;
        if self.unit_slope == 1.0 && self.unit_offset == 0.0 && self.conversion != 1 {
            self.unit_offset = self.units_low;
        }
        self.output_value = self.value;
        self.previous_value = self.value;
        self.last_monitored = self.value;
        self.last_archived = self.value;
        self.last_alarmed = self.value;
        self.old_raw = self.raw_value;
        self.old_readback = self.readback;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Ao::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        let display = Limits { low: self.display_low, high: self.display_high };
        let is_output = ["OVAL", "PVAL"].contains(&row.name);
        if is_spanned(row) || is_output {
            meta.control = Limits { low: self.drive_low, high: self.drive_high };
        }
        if is_output {
            meta.display = display;
            meta.precision = self.precision;
        }
        match row.name {
            "IVOV" => meta.display = display,
            "ASLO" | "AOFF" => meta.units = Default::default(),
            _ => {}
        }
        None
    }

    fn after_put(&mut self, field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
        if field == SIMM {
            simulation::swap_scan(self);
            return Ok(());
        }
        // Soft device support does not calculate EOFF and ESLO from EGUL and EGUF.
        self.is_initial = 1;
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let mut is_well = true;
        if !step.is_completion {
            let conversion = step.lock().conversion;
            let table = step.break_table(conversion);
            step.lock().found = table;
            let value = desired(step);
            is_well = value.is_some();
            {
                let ao = step.lock();
                if let Some(value) = value {
                    ao.convert(value);
                }
                ao.common.undefined = u8::from(ao.value.is_nan());
            }
            let simulated = time_source(step).map(|_| Target::Constant);
            step.stamp(simulated);
        }
        levels::check(step.lock(), None);
        match output::drive(step) {
            Driven::Not => {}
            Driven::Done(is_written) => is_well = is_written,
            Driven::Waiting(outcome) => return outcome,
        }
        if step.is_completion {
            step.stamp(Some(Target::Constant));
        }
        step.post(|ao, posts| {
            ao.monitor(posts);
            ao.is_initial = 0;
        });
        Outcome::done(is_well)
    }
}

/// The value to drive: that of DOL in closed loop mode, else VAL. `None` if DOL cannot be read.
fn desired(step: &mut Step<'_, '_, Ao>) -> Option<f64> {
    {
        let ao = step.lock();
        if ao.output_mode == 0 || ao.desired_output.is_constant() {
            return Some(ao.value);
        }
        // In closed loop mode, values put by clients are ignored.
        ao.value = ao.previous_value;
    }
    let fetched = step.fetch::<f64>("DOL", |ao| &ao.desired_output);
    let ao = step.lock();
    match fetched {
        Ok(value) => {
            let base = if ao.incremental == 1 { ao.value } else { 0.0 };
            Some(value? + base)
        }
        Err(Broken) => {
            ao.common.raise(fodo_data::Status::LINK, 3);
            None
        }
    }
}

impl Output for Ao {
    fn output(&self) -> &Link {
        &self.output
    }

    fn invalid_action(&self) -> u16 {
        self.invalid_action
    }

    fn use_invalid_value(&mut self) {
        self.convert(self.invalid_value);
    }

    fn simulated_value(&self) -> Value {
        if self.simulation_mode == simulation::RAW { self.raw_value.into() } else { self.output_value.into() }
    }

    fn value_to_write(&mut self) -> Option<Value> {
        Some(if Device::of(self) == Device::Raw { self.raw_value.into() } else { self.output_value.into() })
    }
}

impl Ao {
    /// Limits the value, ramps it and converts it to raw counts.
    ///
    /// Source: EPICS record reference, ao, "Units Conversion".
    fn convert(&mut self, value: f64) {
        let mut value = value;
        if self.drive_high > self.drive_low {
            if value > self.drive_high {
                value = self.drive_high;
            } else if value < self.drive_low {
                value = self.drive_low;
            }
        }
        self.value = value;
        self.previous_value = value;
        if self.output_rate != 0.0 {
            let step = value - self.output_value;
            if step < 0.0 && self.output_rate < -step {
                value = self.output_value - self.output_rate;
            } else if step >= 0.0 && self.output_rate < step {
                value = self.output_value + self.output_rate;
            }
        }
        self.output_modified = u8::from(self.output_value != value);
        self.output_value = value;
        match self.conversion {
            0 => {}
            1 | LINEAR if self.unit_slope == 0.0 => value = 0.0,
            1 | LINEAR => value = (value - self.unit_offset) / self.unit_slope,
            _ => {
                let table = self.table.renew(self.found.as_ref(), self.is_initial != 0, &mut self.last_break);
                let converted = table.map(|table| table.to_raw(value, &mut self.last_break));
                match converted {
                    Some(Converted { value: raw, is_inside: true }) => value = raw,
                    _ => {
                        self.common.raise(fodo_data::Status::SOFT, 2);
                        return;
                    }
                }
            }
        }
        value -= self.adjust_offset;
        if self.adjust_slope != 0.0 {
            value /= self.adjust_slope;
        }
        value -= f64::from(self.raw_offset);
        // Rounds half away from zero and saturates; NaN becomes the minimum, as in Base.
        self.raw_value = if value.is_nan() { i32::MIN } else { value.round() as i32 };
    }

    fn monitor(&mut self, posts: &mut Posts) {
        let mut mask = posts.alarms(self);
        if moved(&mut self.last_monitored, self.value, self.monitor_deadband) {
            mask |= EventMask::VALUE;
        }
        if moved(&mut self.last_archived, self.value, self.archive_deadband) {
            mask |= EventMask::LOG;
        }
        if !mask.is_empty() {
            posts.post(self, VAL, mask);
        }
        if self.output_modified != 0 {
            mask |= CHANGED;
        }
        if mask.is_empty() {
            return;
        }
        self.output_modified = 0;
        posts.post(self, OVAL, mask);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ao_costs_less_than_a_kilobyte() {
        assert!(size_of::<std::sync::Mutex<Ao>>() <= 800, "{}", size_of::<std::sync::Mutex<Ao>>());
    }

    #[test]
    fn raw_counts_are_rounded_away_from_zero_and_saturate() {
        let mut ao = Ao { adjust_offset: 1.0, raw_offset: 3, ..Ao::default() };
        let mut raw = |value| {
            ao.convert(value);
            ao.raw_value
        };

        assert_eq!([raw(6.5), raw(1.5), raw(1e30), raw(-1e30)], [3, -3, i32::MAX, i32::MIN]);
    }
}
