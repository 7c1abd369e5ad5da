//! ai: an analog input: converts, smooths and checks alarm limits.

use std::sync::Arc;

use fodo_data::{Meta, TimeStamp};

use crate::breaktable::{BreakTable, SelectedTable};
use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu::{LINEAR, MAJOR, NO_CONVERSION, SLOPE};
use crate::process::post::RecordPosts;
use crate::process::step::{LinkError, ProcessOutcome, Step};
use crate::record::device::{self, DeviceSupport, InputFields, InputRecord, ReadResult, input_fields};
use crate::record::levels::{self, alarm_limits};
use crate::record::simulation::{self, set_constant, simulated};
use crate::record::{Record, is_changed, record_type};

record_fields! {
    /// An analog input.
    Ai
    fields {
        "VAL" value: Double, ASL0 PP INTEREST0;
        "INP" input: InLink, DEVICE;
        "PREC" precision: Short, PROP;
        ..conversion(1.0);
        "SMOO" smoothing: Double;
        ..limits(Double; PROP; PROP);
        ..alarm_filter();
        "RVAL" raw_value: Long, PP INTEREST0;
        "ORAW" old_raw: Long, NOMOD INTEREST3;
        ..simulation(InLink, SIMM);
        "SVAL" simulation_value: Double, INTEREST0;
    }
    arrays {
    }
    private {
        common: Common;
        table: SelectedTable;
        has_read: bool;
    }
}

record_type!(
    Ai, "ai", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel", "Soft Timestamp", "General Time", "Program"],
    RVAL SIMM
);
alarm_limits!(Ai, f64, filtered);
simulated!(Ai, has_raw: true);
input_fields!(Ai, f64, simulated: f64);

impl Record for Ai {
    fn init(&mut self) {
        simulation::init(self);
        set_constant(&mut self.simulation_value, &self.simulation_value_link);
        self.is_initial = 1;
        if self.unit_slope == 1.0 && self.unit_offset == 0.0 && self.conversion != SLOPE {
            self.unit_offset = self.units_low;
        }
        if DeviceSupport::of(self) == DeviceSupport::Raw {
            set_constant(&mut self.raw_value, &self.input);
        } else if set_constant(&mut self.value, &self.input) {
            self.common.undefined = 0;
        }
        // MLST, ALST and LALM stay 0, as in Base: a value set by init is posted when the record is first processed.
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Ai::ROWS, field)?;
        levels::meta(self, row, Dbf::Double, Some(self.precision), meta);
        if ["ASLO", "AOFF", "SMOO"].contains(&row.name) {
            meta.units = Default::default();
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
        device::process(step)
    }
}

impl InputRecord for Ai {
    /// Takes a value in engineering units. One that is read through a link is smoothed with the previous one.
    fn store(&mut self, value: Option<f64>, device: DeviceSupport) {
        let Some(value) = value else { return };
        if device != DeviceSupport::Soft && device != DeviceSupport::Async {
            self.value = value;
            return;
        }
        let is_smoothed = self.smoothing != 0.0 && self.has_read && self.value.is_finite();
        self.value = if is_smoothed { value * (1.0 - self.smoothing) + self.value * self.smoothing } else { value };
        self.has_read = true;
        self.common.undefined = 0;
    }

    fn simulate(&mut self, value: Option<f64>, is_raw: bool) {
        self.simulation_value = value.unwrap_or(self.simulation_value);
        if is_raw {
            // As in Base on machines with 64 bits, the low half of a whole number that is too large.
            self.raw_value = self.simulation_value.floor() as i64 as i32;
        } else {
            self.value = self.simulation_value;
        }
    }

    fn read_raw(step: &mut Step<'_, '_, Self>) -> Result<(), LinkError> {
        let raw = step.read_link("INP", Self::input)?;
        let ai = step.lock();
        ai.raw_value = raw.unwrap_or(ai.raw_value);
        Ok(())
    }

    fn read_failed(&mut self) {
        self.has_read = false;
    }

    fn finish(step: &mut Step<'_, '_, Self>, read: ReadResult, before: TimeStamp) {
        let elapsed_s = step.elapsed_s(before);
        let conversion = step.lock().conversion;
        let table = step.break_table(conversion);
        step.post(|ai, posts| {
            if read == ReadResult::Raw {
                ai.convert(table.as_ref());
            }
            if read != ReadResult::Failed {
                ai.common.undefined = u8::from(ai.value.is_nan());
            }
            levels::check_filtered(ai, elapsed_s);
            ai.monitor(posts);
            ai.is_initial = 0;
        });
    }
}

impl Ai {
    /// Converts raw counts to engineering units.
    ///
    /// Source: EPICS record reference, ai, "Units Conversion".
    fn convert(&mut self, found: Option<&Arc<BreakTable>>) {
        let mut value = f64::from(self.raw_value) + f64::from(self.raw_offset);
        if self.adjust_slope != 0.0 {
            value *= self.adjust_slope;
        }
        value += self.adjust_offset;
        match self.conversion {
            NO_CONVERSION => {}
            SLOPE | LINEAR => value = value * self.unit_slope + self.unit_offset,
            _ => {
                let table = self.table.renew(found, self.is_initial != 0, &mut self.last_break);
                let converted = table.map(|table| table.to_units(value, &mut self.last_break));
                value = converted.map_or(value, |converted| converted.value);
                if !converted.is_some_and(|converted| converted.is_inside) {
                    self.common.raise(fodo_data::Status::SOFT, MAJOR);
                }
            }
        }
        if self.smoothing != 0.0 && self.value.is_finite() {
            if self.is_initial != 0 {
                self.value = value;
            }
            self.value = value * (1.0 - self.smoothing) + self.value * self.smoothing;
        } else {
            self.value = value;
        }
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let mask = levels::monitor(self, posts);
        if !mask.is_empty() && is_changed(&mut self.old_raw, &self.raw_value) {
            posts.post(self, RVAL, mask);
        }
    }
}
