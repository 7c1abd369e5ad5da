//! stringin: a text input.

use fodo_data::EventMask;

use crate::common::Common;
use crate::field::record_fields;
use crate::link::Link;
use crate::menu;
use crate::post::Posts;
use crate::record::device::{self, Fetched, Input};
use crate::record::simulation::{self, Source, constant, simulated, source, time_source};
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Outcome, Step};

record_fields! {
    /// A text input.
    StringIn
    fields {
        "VAL" value: String(40), ASL0 PP;
        "OVAL" output_value: String(40), NOMOD;
        "INP" input: InLink;
        "MPST" post_value: Menu(menu::STRING_POST);
        "APST" post_archive: Menu(menu::STRING_POST);
        "SIOL" simulation_value_link: InLink;
        "SVAL" simulation_value: String(40), PP;
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

record_type!(StringIn, "stringin", ["Soft Channel", "Async Soft Channel", "Soft Timestamp", "General Time", "getenv"]);
simulated!(StringIn, has_raw: false);

const VAL: u16 = StringIn::at("VAL");

impl Record for StringIn {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant(&self.simulation_value_link) {
            self.simulation_value = value;
        }
        if let Some(value) = constant(&self.input) {
            self.value = value;
            self.common.undefined = 0;
        }
        self.output_value = self.value.clone();
    }

    fn after_put(&mut self, _field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
        simulation::swap_scan(self);
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let mut is_read = true;
        match source(step) {
            Source::Device => match device::fetch(step) {
                Fetched::Nothing => {}
                Fetched::Value(value) => {
                    step.lock().take(value);
                    device::check_environment(step);
                }
                Fetched::Failed => is_read = false,
                Fetched::Waiting => return Outcome::Waiting,
            },
            Source::Simulation(value, _) => {
                let stringin = step.lock();
                if let Some(value) = value {
                    stringin.simulation_value = cut(value);
                }
                let value = stringin.simulation_value.clone();
                stringin.take(value);
            }
            Source::Failed => is_read = false,
            Source::Waiting(delay_s) => return step.complete_after(delay_s),
        }
        let simulated = time_source(step);
        step.stamp(simulated);
        step.post(StringIn::monitor);
        Outcome::done(is_read)
    }
}

impl Input for StringIn {
    fn input(&self) -> &Link {
        &self.input
    }
}

/// The text, truncated to the 39 bytes that VAL can hold.
pub(super) fn cut(text: fodo_data::Text) -> fodo_data::Text {
    const BYTES_MAX: usize = 39;
    match text.as_bytes().get(..BYTES_MAX) {
        Some(start) if text.len() > BYTES_MAX => fodo_data::Text::from_bytes(start),
        _ => text,
    }
}

impl StringIn {
    fn take(&mut self, value: fodo_data::Text) {
        self.value = cut(value);
        self.common.undefined = 0;
    }

    fn monitor(&mut self, posts: &mut Posts) {
        let mut mask = posts.alarms(self);
        if self.output_value != self.value {
            mask |= CHANGED;
            self.output_value = self.value.clone();
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
