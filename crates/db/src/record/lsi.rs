//! lsi: a long string input.

use fodo_data::{EventMask, Text};

use crate::common::Common;
use crate::field::record_fields;
use crate::link::Link;
use crate::menu;
use crate::post::Posts;
use crate::record::device::{Device, Input, check_environment};
use crate::record::long_text::{SIZE_MIN, constant, fetch, fitting, length};
use crate::record::simulation::{self, Plan, Simulated, plan, simulated, time_source};
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// A long string input.
    Lsi
    fields {
        "VAL" value: String(0), ASL0 PP SPECIAL;
        "OVAL" old_value: String(0), NOMOD;
        "SIZV" size: UShort = 41, NOMOD;
        "LEN" length: ULong, NOMOD;
        "OLEN" old_length: ULong, NOMOD;
        "INP" input: InLink;
        "MPST" post_value: Menu(menu::POST);
        "APST" post_archive: Menu(menu::POST);
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::YES_NO), SPECIAL;
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "SIOL" simulation_value_link: InLink;
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

record_type!(Lsi, "lsi", ["Soft Channel", "getenv"]);
simulated!(Lsi, has_raw: false);

const VAL: u16 = Lsi::at("VAL");
const LEN: u16 = Lsi::at("LEN");

impl Record for Lsi {
    fn init(&mut self) {
        self.size = self.size.max(SIZE_MIN);
        simulation::init(self);
        if let Some(text) = constant(&self.input) {
            self.take(&text);
            self.common.undefined = 0;
            self.old_value = self.value.clone();
            self.old_length = self.length;
        }
    }

    fn text_size(&self) -> u16 {
        self.size
    }

    fn after_put(&mut self, field: u16, posts: &mut Posts) -> Result<(), &'static str> {
        if field == VAL {
            self.length = length(&self.value);
            posts.post(self, LEN, CHANGED);
        } else {
            simulation::swap_scan(self);
        }
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let is_environment = Device::of(step.lock()) == Device::Environment;
        let plan = plan(step);
        // Soft Channel does not clear UDF, as in Base.
        let is_defined = is_environment || plan != Plan::Device;
        let fetched = match plan {
            Plan::Device if is_environment => {
                let name = step.lock().input.address();
                Ok(Some(step.site().variable(&name.to_str()).unwrap_or(Text::EMPTY)))
            }
            Plan::Device => fetch(step, "INP", Lsi::input),
            Plan::Simulate { .. } => fetch(step, "SIOL", Lsi::value_link),
            Plan::Failed => Err(Broken),
            Plan::Waiting(delay_s) => return step.complete_after(delay_s),
        };
        if plan == Plan::Device && matches!(fetched, Ok(Some(_))) {
            step.stamp_from(Lsi::input);
        }
        if let Ok(text) = &fetched {
            let lsi = step.lock();
            if let Some(text) = text {
                lsi.take(text);
            }
            if is_defined {
                lsi.common.undefined = 0;
            }
        }
        check_environment(step);
        let simulated = time_source(step);
        step.stamp(simulated);
        step.post(Lsi::monitor);
        Outcome::done(fetched.is_ok())
    }
}

impl Input for Lsi {
    fn input(&self) -> &Link {
        &self.input
    }
}

impl Lsi {
    fn take(&mut self, text: &Text) {
        self.value = fitting(text, self.size.into());
        self.length = length(&self.value);
    }

    fn monitor(&mut self, posts: &mut Posts) {
        let mut mask = posts.alarms(self);
        if self.value != self.old_value || self.length != self.old_length {
            mask |= CHANGED;
            self.old_value = self.value.clone();
        }
        if self.length != self.old_length {
            self.old_length = self.length;
            posts.post(self, LEN, CHANGED);
        }
        if self.post_value == 1 {
            mask |= EventMask::VALUE;
        }
        if self.post_archive == 1 {
            mask |= EventMask::LOG;
        }
        if !mask.is_empty() {
            posts.post(self, VAL, mask);
        }
    }
}
