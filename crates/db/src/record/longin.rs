//! longin: a whole number read.

use fodo_data::{EventMask, Meta};

use crate::common::{Common, row};
use crate::field::{Dbf, record_fields};
use crate::link::Target;
use crate::menu;
use crate::post::Posts;
use crate::record::levels::{self, Filter, leveled, moved_whole};
use crate::record::simulation::{self, Source, constant, simulated, source, time_source};
use crate::record::{Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// A whole number read.
    LongIn
    fields {
        "VAL" value: Long, ASL0 PP;
        "INP" input: InLink;
        "EGU" units: String(16), PROP;
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
        "AFTC" alarm_filter_time: Double;
        "AFVL" alarm_filter_value: Double, NOMOD;
        "ADEL" archive_deadband: Long;
        "MDEL" monitor_deadband: Long;
        "LALM" last_alarmed: Long, NOMOD;
        "ALST" last_archived: Long, NOMOD;
        "MLST" last_monitored: Long, NOMOD;
        "SIOL" simulation_value_link: InLink;
        "SVAL" simulation_value: Long;
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::YES_NO), SPECIAL;
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "OLDSIMM" old_simulation_mode: Menu(menu::SIMM), NOMOD;
        "SSCN" simulation_scan: Menu(menu::SCAN) = 65535;
        "SDLY" simulation_delay: Double = -1.0;
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(LongIn, "longin", ["Soft Channel"]);
leveled!(LongIn, i32);
simulated!(LongIn, has_raw: false);

const VAL: u16 = LongIn::at("VAL");

impl Record for LongIn {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant(&self.simulation_value_link) {
            self.simulation_value = value;
        }
        if let Some(value) = constant(&self.input) {
            self.value = value;
            self.common.undefined = 0;
        }
        self.last_monitored = self.value;
        self.last_archived = self.value;
        self.last_alarmed = self.value;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(LongIn::ROWS, field)?;
        levels::meta(self, row, Dbf::Long, None, meta);
        None
    }

    fn after_put(&mut self, _field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
        simulation::swap_scan(self);
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let before = step.lock().common.time;
        let is_read = match source(step) {
            Source::Device => read(step),
            Source::Simulation(value, _) => {
                let mut longin = step.lock();
                longin.simulation_value = value.unwrap_or(longin.simulation_value);
                longin.value = longin.simulation_value;
                true
            }
            Source::Failed => false,
            Source::Waiting(delay_s) => return step.complete_after(delay_s),
        };
        let simulated = time_source(step);
        step.stamp(simulated);
        let elapsed_s = step.elapsed_s(before);
        step.post(|longin, posts| {
            if is_read {
                longin.common.undefined = 0;
            }
            let mut state = longin.alarm_filter_value;
            let time_s = longin.alarm_filter_time;
            levels::check(longin, Some(Filter { time_s, state: &mut state, elapsed_s }));
            longin.alarm_filter_value = state;
            longin.monitor(posts);
        });
        Outcome::done(is_read)
    }
}

fn read(step: &mut Step<'_, '_, LongIn>) -> bool {
    match step.fetch("INP", |longin| &longin.input) {
        Ok(None) => true,
        Ok(Some(value)) => {
            step.lock().value = value;
            step.stamp_from(|longin| &longin.input);
            true
        }
        Err(Broken) => false,
    }
}

impl LongIn {
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
