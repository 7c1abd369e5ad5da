//! longout: a whole number driven.

use fodo_data::{EventMask, Limits, Meta, Value};

use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu;
use crate::post::Posts;
use crate::record::levels::{self, is_spanned, leveled, moved_whole};
use crate::record::output::{self, Driven, Output};
use crate::record::simulation::{self, constant, simulated, time_source};
use crate::record::{Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// A whole number driven.
    LongOut
    fields {
        "VAL" value: Long, ASL0 PP;
        "OUT" output: OutLink, SPECIAL;
        "DOL" desired_output: InLink;
        "OMSL" output_mode: Menu(menu::OMSL);
        "EGU" units: String(16), PROP;
        "DRVH" drive_high: Long, PP PROP;
        "DRVL" drive_low: Long, PP PROP;
        "HOPR" display_high: Long, PROP;
        "LOPR" display_low: Long, PROP;
        "HIHI" hihi: Long, PP PROP;
        "LOLO" lolo: Long, PP PROP;
        "HIGH" high: Long, PP PROP;
        "LOW" low: Long, PP PROP;
        "HHSV" hihi_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "LLSV" lolo_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "HSV" high_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "LSV" low_severity: Menu(menu::ALARM_SEVR), PP PROP;
        "HYST" hysteresis: Long;
        "ADEL" archive_deadband: Long;
        "MDEL" monitor_deadband: Long;
        "LALM" last_alarmed: Long, NOMOD;
        "ALST" last_archived: Long, NOMOD;
        "MLST" last_monitored: Long, NOMOD;
        "SIOL" simulation_value_link: OutLink;
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::YES_NO), SPECIAL;
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "OLDSIMM" old_simulation_mode: Menu(menu::SIMM), NOMOD;
        "SSCN" simulation_scan: Menu(menu::SCAN) = 65535;
        "SDLY" simulation_delay: Double = -1.0;
        "IVOA" invalid_action: Menu(menu::IVOA);
        "IVOV" invalid_value: Long;
        "PVAL" previous_value: Long;
        "OOCH" output_on_change: Menu(menu::YES_NO) = 1;
        "OOPT" output_option: Menu(menu::OOPT) = 0;
    }
    arrays {
    }
    private {
        common: Common;
        must_write: bool;
    }
}

record_type!(LongOut, "longout", ["Soft Channel"]);
leveled!(LongOut, i32);
simulated!(LongOut, has_raw: false);

const VAL: u16 = LongOut::at("VAL");
const OUT: u16 = LongOut::at("OUT");

impl Record for LongOut {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant(&self.desired_output) {
            self.value = value;
            self.common.undefined = 0;
        }
        self.last_monitored = self.value;
        self.last_archived = self.value;
        self.last_alarmed = self.value;
        self.previous_value = self.value;
        self.must_write = true;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(LongOut::ROWS, field)?;
        levels::meta(self, row, Dbf::Long, None, meta);
        if is_spanned(row) && self.drive_high > self.drive_low {
            meta.control = Limits { low: self.drive_low.into(), high: self.drive_high.into() };
        }
        None
    }

    fn after_put(&mut self, field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
        if field == OUT {
            self.must_write |= self.output_on_change == 1;
        } else {
            simulation::swap_scan(self);
        }
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let mut is_well = true;
        if !step.is_completion {
            let value = desired(step);
            is_well = value.is_some();
            if let Some(value) = value {
                step.lock().limit(value);
            }
            let simulated = time_source(step).map(|_| Target::Constant);
            step.stamp(simulated);
        }
        levels::check(&mut *step.lock(), None);
        match output::drive(step) {
            Driven::Not => {}
            Driven::Done(is_written) => is_well = is_written,
            Driven::Waiting(outcome) => return outcome,
        }
        if step.is_completion {
            step.stamp(Some(Target::Constant));
        }
        step.post(LongOut::monitor);
        Outcome::done(is_well)
    }
}

/// The value to drive: DOL's in closed loop, else VAL. `None`: DOL cannot be read.
fn desired(step: &mut Step<'_, '_, LongOut>) -> Option<i32> {
    {
        let longout = step.lock();
        if longout.output_mode == 0 || longout.desired_output.is_constant() {
            return Some(longout.value);
        }
    }
    match step.fetch("DOL", |longout| &longout.desired_output) {
        Ok(value) => {
            step.lock().common.undefined = 0;
            value
        }
        Err(Broken) => None,
    }
}

impl Output for LongOut {
    fn invalid_action(&self) -> u16 {
        self.invalid_action
    }

    fn use_invalid_value(&mut self) {
        self.value = self.invalid_value;
    }

    fn simulated_value(&self) -> Value {
        self.value.into()
    }

    fn write(step: &mut Step<'_, '_, Self>) -> bool {
        let value = {
            let mut longout = step.lock();
            let is_wanted = longout.is_output_wanted();
            longout.previous_value = longout.value;
            longout.must_write = false;
            is_wanted.then_some(longout.value)
        };
        if let Some(value) = value {
            // A broken link has raised its alarm; Base's record support for longout tells nobody else.
            let _ = step.drive("OUT", |longout| &longout.output, value);
        }
        true
    }
}

impl LongOut {
    fn limit(&mut self, value: i32) {
        self.value = value;
        if self.drive_high > self.drive_low {
            self.value = value.clamp(self.drive_low, self.drive_high);
        }
    }

    /// What OOPT says of this round.
    fn is_output_wanted(&self) -> bool {
        let (now, before) = (self.value, self.previous_value);
        match self.output_option {
            0 => true,
            1 => self.must_write || now != before,
            2 => now == 0,
            3 => now != 0,
            4 => now == 0 && before != 0,
            5 => now != 0 && before == 0,
            _ => false,
        }
    }

    fn monitor(&mut self, posts: &mut Posts) {
        let mut mask = posts.alarms(self);
        if moved_whole(&mut self.last_monitored, self.value, self.monitor_deadband) {
            mask |= EventMask::VALUE;
        }
        if moved_whole(&mut self.last_archived, self.value, self.archive_deadband) {
            mask |= EventMask::LOG;
        }
        if !mask.is_empty() {
            posts.post(self, VAL, mask);
        }
    }
}
