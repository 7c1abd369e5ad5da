//! ao: an analog output: limits, ramps, converts and drives.

use std::sync::Arc;

use fodo_data::{Limits, Meta, Value};

use crate::breaktable::{BreakTable, Converted, SelectedTable};
use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu::{self, LINEAR, MAJOR, NO_CONVERSION, SLOPE};
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::levels::{self, HasAlarmLimits, alarm_limits, has_display_limits};
use crate::record::output::{self, OutputFields, OutputRecord, output_fields};
use crate::record::simulation::{self, constant, simulated};
use crate::record::{CHANGED, Record, is_changed, record_type};

record_fields! {
    /// An analog output.
    Ao
    fields {
        "VAL" value: Double, ASL0 PP INTEREST0;
        "OVAL" output_value: Double, INTEREST0;
        "OUT" output: OutLink, DEVICE;
        "OROC" output_rate: Double;
        "DOL" desired_output: InLink;
        "OMSL" output_mode: Menu(menu::OMSL);
        "OIF" incremental: Menu(menu::AO_OIF);
        "PREC" precision: Short, PROP;
        ..conversion(0.0);
        "DRVH" drive_high: Double, PP PROP;
        "DRVL" drive_low: Double, PP PROP;
        ..limits(Double; PROP; PROP);
        "RVAL" raw_value: Long, PP INTEREST0;
        "ORAW" old_raw: Long, NOMOD INTEREST3;
        ..readback(Long);
        "PVAL" previous_value: Double, NOMOD INTEREST3;
        ..simulation(OutLink, SIMM);
        "IVOA" invalid_action: Menu(menu::IVOA), INTEREST2;
        "IVOV" invalid_value: Double, INTEREST2;
        "OMOD" output_modified: UChar, NOMOD INTEREST0;
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

record_type!(Ao, "ao", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel", "Program"], OVAL RVAL RBV SIMM);
alarm_limits!(Ao, f64);
simulated!(Ao, has_raw: true);
output_fields!(Ao);

impl Record for Ao {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant::<f64>(&self.desired_output) {
            self.value = value;
            self.common.undefined = u8::from(value.is_nan());
        }
        self.is_initial = 1;
        if self.unit_slope == 1.0 && self.unit_offset == 0.0 && self.conversion != SLOPE {
            self.unit_offset = self.units_low;
        }
        self.output_value = self.value;
        self.previous_value = self.value;
        self.forget_changes();
        self.old_raw = self.raw_value;
        self.old_readback = self.readback;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Ao::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        let display = Limits { low: self.display_low, high: self.display_high };
        let is_output = ["OVAL", "PVAL"].contains(&row.name);
        if has_display_limits(row) || is_output {
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

    fn after_put(&mut self, field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
        if field == SIMM {
            return simulation::mode_was_put(self);
        }
        // Soft device support does not calculate EOFF and ESLO from EGUL and EGUF.
        self.is_initial = 1;
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        output::process(step)
    }
}

impl OutputRecord for Ao {
    fn use_invalid_value(&mut self) {
        self.convert(self.invalid_value);
    }

    fn value(&self) -> Value {
        self.output_value.into()
    }

    fn raw_value(&self) -> Value {
        self.raw_value.into()
    }

    fn prepare(step: &mut Step<'_, '_, Self>) -> bool {
        const INCREMENTAL: u16 = 1;
        let conversion = step.lock().conversion;
        let table = step.break_table(conversion);
        let ao = step.lock();
        ao.found = table;
        let is_closed_loop = output::is_closed_loop(ao.desired());
        if is_closed_loop {
            // In closed loop mode, values put by clients are ignored.
            ao.value = ao.previous_value;
        }
        let fetched = output::fetch_desired(step);
        let ao = step.lock();
        let base = if ao.incremental == INCREMENTAL { ao.value } else { 0.0 };
        let value = match fetched {
            Ok(_) if !is_closed_loop => Some(ao.value),
            fetched => fetched.ok().flatten().map(|value: f64| value + base),
        };
        if let Some(value) = value {
            ao.convert(value);
        }
        ao.common.undefined = u8::from(ao.value.is_nan());
        output::stamp(step);
        value.is_some()
    }

    fn check(&mut self) {
        levels::check(self);
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        self.is_initial = 0;
        let mut mask = levels::monitor(self, posts);
        if self.output_modified != 0 {
            mask |= CHANGED;
        }
        if mask.is_empty() {
            return;
        }
        self.output_modified = 0;
        posts.post(self, OVAL, mask);
        if is_changed(&mut self.old_raw, &self.raw_value) {
            posts.post(self, RVAL, mask | CHANGED);
        }
        if is_changed(&mut self.old_readback, &self.readback) {
            posts.post(self, RBV, mask | CHANGED);
        }
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
            } else if self.output_rate < step {
                value = self.output_value + self.output_rate;
            }
        }
        self.output_modified = u8::from(self.output_value != value);
        self.output_value = value;
        match self.conversion {
            NO_CONVERSION => {}
            SLOPE | LINEAR if self.unit_slope == 0.0 => value = 0.0,
            SLOPE | LINEAR => value = (value - self.unit_offset) / self.unit_slope,
            _ => {
                let table = self.table.renew(self.found.as_ref(), self.is_initial != 0, &mut self.last_break);
                let converted = table.map(|table| table.to_raw(value, &mut self.last_break));
                match converted {
                    Some(Converted { value: raw, is_inside: true }) => value = raw,
                    _ => {
                        self.common.raise(fodo_data::Status::SOFT, MAJOR);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ao_record_uses_less_than_a_kilobyte() {
        assert!(size_of::<fodo_lock::Mutex<Ao>>() <= 800, "{}", size_of::<fodo_lock::Mutex<Ao>>());
    }

    #[test]
    fn raw_values_are_rounded_half_away_from_zero_and_saturate() {
        let mut ao = Ao { adjust_offset: 1.0, raw_offset: 3, ..Ao::default() };
        let mut raw = |value| {
            ao.convert(value);
            ao.raw_value
        };

        assert_eq!([raw(6.5), raw(1.5), raw(1e30), raw(-1e30)], [3, -3, i32::MAX, i32::MIN]);
    }

    // As in Base, which does not check the sign of OROC.
    #[test]
    fn a_rate_limits_each_step_and_a_negative_one_moves_the_output_away() {
        let output = |rate, value| {
            let mut ao = Ao { output_rate: rate, output_value: 10.0, ..Ao::default() };
            ao.convert(value);
            ao.output_value
        };

        assert_eq!([12.0, 8.0, 11.5, 8.5, 10.0].map(|value| output(2.0, value)), [12.0, 8.0, 11.5, 8.5, 10.0]);
        assert_eq!([15.0, 5.0].map(|value| output(2.0, value)), [12.0, 8.0]);
        assert_eq!([12.0, 8.0, 10.0].map(|value| output(-1.0, value)), [9.0, 11.0, 9.0]);
    }
}
