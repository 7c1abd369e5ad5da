//! ai: an analog input: converts, smooths and checks alarm limits.

use std::sync::Arc;

use fodo_data::{EventMask, Meta};

use crate::breaktable::{BreakTable, SelectedTable};
use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::{Link, Target};
use crate::menu;
use crate::post::Posts;
use crate::record::device::{self, Device, Fetched, Input, Read};
use crate::record::levels::{self, Filter, leveled, moved};
use crate::record::simulation::{self, Source, constant, simulated, source, time_source};
use crate::record::{Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// An analog input.
    Ai
    fields {
        "VAL" value: Double, ASL0 PP;
        "INP" input: InLink;
        "PREC" precision: Short, PROP;
        "LINR" conversion: Menu(menu::CONVERT), PP SPECIAL;
        "EGUF" units_full: Double, PP SPECIAL;
        "EGUL" units_low: Double, PP SPECIAL;
        "EGU" units: String(16), PROP;
        "HOPR" display_high: Double, PROP;
        "LOPR" display_low: Double, PROP;
        "AOFF" adjust_offset: Double, PP;
        "ASLO" adjust_slope: Double = 1.0, PP;
        "SMOO" smoothing: Double;
        "HIHI" hihi: Double, PP PROP;
        "LOLO" lolo: Double, PP PROP;
        "HIGH" high: Double, PP PROP;
        "LOW" low: Double, PP PROP;
        "HHSV" hihi_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "LLSV" lolo_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "HSV" high_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "LSV" low_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "HYST" hysteresis: Double;
        "AFTC" alarm_filter_time: Double;
        "ADEL" archive_deadband: Double;
        "MDEL" monitor_deadband: Double;
        "LALM" last_alarmed: Double, NOMOD;
        "AFVL" alarm_filter_value: Double, NOMOD;
        "ALST" last_archived: Double, NOMOD;
        "MLST" last_monitored: Double, NOMOD;
        "ESLO" unit_slope: Double = 1.0, PP;
        "EOFF" unit_offset: Double, PP;
        "ROFF" raw_offset: ULong, PP;
        "INIT" is_initial: Short, NOMOD;
        "LBRK" last_break: Short, NOMOD;
        "RVAL" raw_value: Long, PP;
        "ORAW" old_raw: Long, NOMOD;
        "SIOL" simulation_value_link: InLink;
        "SVAL" simulation_value: Double;
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::SIMM), SPECIAL;
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "OLDSIMM" old_simulation_mode: Menu(menu::SIMM), NOMOD;
        "SSCN" simulation_scan: Menu(menu::SCAN) = 65535;
        "SDLY" simulation_delay: Double = -1.0;
    }
    arrays {
    }
    private {
        common: Common;
        table: SelectedTable;
        has_read: bool;
    }
}

record_type!(Ai, "ai", ["Soft Channel", "Raw Soft Channel", "Async Soft Channel", "Soft Timestamp", "General Time"]);
leveled!(Ai, f64);
simulated!(Ai, has_raw: true);

const VAL: u16 = Ai::at("VAL");
const RVAL: u16 = Ai::at("RVAL");
const SIMM: u16 = Ai::at("SIMM");
const LINEAR: u16 = 2;

impl Record for Ai {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant(&self.simulation_value_link) {
            self.simulation_value = value;
        }
        self.is_initial = 1;
        if self.unit_slope == 1.0 && self.unit_offset == 0.0 && self.conversion != 1 {
            self.unit_offset = self.units_low;
        }
        if Device::of(self) == Device::Raw {
            self.raw_value = constant(&self.input).unwrap_or(self.raw_value);
        } else if let Some(value) = constant(&self.input) {
            self.value = value;
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
        let before = step.lock().common.time;
        let read = match source(step) {
            Source::Device => read(step),
            Source::Simulation(value, is_raw) => step.lock().simulate(value, is_raw),
            Source::Failed => Read::Failed,
            Source::Waiting(delay_s) => return step.complete_after(delay_s),
        };
        if read == Read::Waiting {
            return Outcome::Waiting;
        }
        let simulated = time_source(step);
        step.stamp(simulated);
        let elapsed_s = step.elapsed_s(before);
        let conversion = step.lock().conversion;
        let table = step.break_table(conversion);
        step.post(|ai, posts| {
            if read == Read::Raw {
                ai.convert(table.as_ref());
            }
            if read != Read::Failed {
                ai.common.undefined = u8::from(ai.value.is_nan());
            }
            let mut state = ai.alarm_filter_value;
            let time_s = ai.alarm_filter_time;
            levels::check(ai, Some(Filter { time_s, state: &mut state, elapsed_s }));
            ai.alarm_filter_value = state;
            ai.monitor(posts);
            ai.is_initial = 0;
        });
        Outcome::done(read != Read::Failed)
    }
}

impl Input for Ai {
    fn input(&self) -> &Link {
        &self.input
    }
}

fn read(step: &mut Step<'_, '_, Ai>) -> Read {
    let device = Device::of(step.lock());
    if device == Device::Raw {
        return match step.fetch("INP", Ai::input) {
            Ok(raw) => {
                let ai = step.lock();
                ai.raw_value = raw.unwrap_or(ai.raw_value);
                Read::Raw
            }
            Err(Broken) => Read::Failed,
        };
    }
    match device::fetch(step) {
        Fetched::Nothing => Read::Value,
        Fetched::Value(value) => {
            let ai = step.lock();
            if device == Device::Soft || device == Device::Async {
                ai.take(value);
            } else {
                ai.value = value;
            }
            Read::Value
        }
        Fetched::Failed => {
            step.lock().has_read = false;
            Read::Failed
        }
        Fetched::Waiting => Read::Waiting,
    }
}

impl Ai {
    /// Takes a value in engineering units, smoothed with the previous one.
    fn take(&mut self, value: f64) {
        let is_smoothed = self.smoothing != 0.0 && self.has_read && self.value.is_finite();
        self.value = if is_smoothed { value * (1.0 - self.smoothing) + self.value * self.smoothing } else { value };
        self.has_read = true;
        self.common.undefined = 0;
    }

    fn simulate(&mut self, value: Option<f64>, is_raw: bool) -> Read {
        self.simulation_value = value.unwrap_or(self.simulation_value);
        if is_raw {
            self.raw_value = self.simulation_value.floor() as i32;
            return Read::Raw;
        }
        self.value = self.simulation_value;
        Read::Value
    }

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
            0 => {}
            1 | LINEAR => value = value * self.unit_slope + self.unit_offset,
            _ => {
                let table = self.table.renew(found, self.is_initial != 0, &mut self.last_break);
                let converted = table.map(|table| table.to_units(value, &mut self.last_break));
                value = converted.map_or(value, |converted| converted.value);
                if !converted.is_some_and(|converted| converted.is_inside) {
                    self.common.raise(fodo_data::Status::SOFT, 2);
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

    fn monitor(&mut self, posts: &mut Posts) {
        let mut mask = posts.alarms(self);
        if moved(&mut self.last_monitored, self.value, self.monitor_deadband) {
            mask |= EventMask::VALUE;
        }
        if moved(&mut self.last_archived, self.value, self.archive_deadband) {
            mask |= EventMask::LOG;
        }
        if mask.is_empty() {
            return;
        }
        posts.post(self, VAL, mask);
        if self.old_raw != self.raw_value {
            posts.post(self, RVAL, mask);
            self.old_raw = self.raw_value;
        }
    }
}
