//! lsi: a long string read.

use fodo_data::{EventMask, Text};

use crate::common::Common;
use crate::field::record_fields;
use crate::menu;
use crate::post::Posts;
use crate::record::long_text::{SIZE_MIN, constant, fetch, fitting, length};
use crate::record::simulation::{self, Plan, Simulated, plan, simulated, time_source};
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// A long string read.
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

record_type!(Lsi, "lsi", ["Soft Channel"]);
simulated!(Lsi, has_raw: false);

const VAL: u16 = Lsi::at("VAL");
const LEN: u16 = Lsi::at("LEN");

impl Record for Lsi {
    fn init(&mut self) {
        self.size = self.size.max(SIZE_MIN);
        simulation::init(self);
        if let Some(text) = constant(&self.input) {
            self.take(&text);
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
        let fetched = match plan(step) {
            Plan::Device => {
                let fetched = fetch(step, "INP", |lsi| &lsi.input);
                if let Ok(Some(_)) = fetched {
                    step.stamp_from(|lsi| &lsi.input);
                }
                fetched
            }
            Plan::Simulate { .. } => fetch(step, "SIOL", Lsi::value_link),
            Plan::Failed => Err(Broken),
            Plan::Waiting(delay_s) => return step.complete_after(delay_s),
        };
        match &fetched {
            Ok(Some(text)) => step.lock().take(text),
            // Also where there is nothing to read, as in Base.
            Ok(None) => step.lock().common.undefined = 0,
            Err(Broken) => {}
        }
        let simulated = time_source(step);
        step.stamp(simulated);
        step.post(Lsi::monitor);
        Outcome::done(fetched.is_ok())
    }
}

impl Lsi {
    fn take(&mut self, text: &Text) {
        self.value = fitting(text, self.size.into());
        self.length = length(&self.value);
        self.common.undefined = 0;
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
