//! lso: a long string output.

use fodo_data::{EventMask, Kind, Status, Text, Value};

use crate::common::Common;
use crate::field::record_fields;
use crate::link::{Link, Target};
use crate::menu;
use crate::post::Posts;
use crate::record::long_text::{self, SIZE_MIN, constant, fetch, fitting, length};
use crate::record::output::{self, Driven, Output};
use crate::record::simulation::{self, simulated, time_source};
use crate::record::{CHANGED, Record, record_type};
use crate::step::{Outcome, Step};

record_fields! {
    /// A long string output.
    Lso
    fields {
        "VAL" value: String(0), ASL0 PP SPECIAL;
        "OVAL" old_value: String(0), NOMOD;
        "SIZV" size: UShort = 41, NOMOD;
        "LEN" length: ULong, NOMOD;
        "OLEN" old_length: ULong, NOMOD;
        "DOL" desired_output: InLink;
        "IVOA" invalid_action: Menu(menu::IVOA);
        "IVOV" invalid_value: String(40);
        "OMSL" output_mode: Menu(menu::OMSL);
        "OUT" output: OutLink;
        "MPST" post_value: Menu(menu::POST);
        "APST" post_archive: Menu(menu::POST);
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::YES_NO), SPECIAL;
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "SIOL" simulation_value_link: OutLink;
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

record_type!(Lso, "lso", ["Soft Channel", "Async Soft Channel", "stdio"]);
simulated!(Lso, has_raw: false);

const VAL: u16 = Lso::at("VAL");
const LEN: u16 = Lso::at("LEN");

impl Record for Lso {
    fn init(&mut self) {
        self.size = self.size.max(SIZE_MIN);
        simulation::init(self);
        if let Some(text) = constant(&self.desired_output) {
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
        let mut is_well = true;
        if !step.is_completion && step.lock().output_mode == 1 {
            let fetched = fetch(step, "DOL", |lso| &lso.desired_output);
            is_well = fetched.is_ok();
            let lso = step.lock();
            if let Ok(Some(text)) = &fetched {
                lso.take(text);
            }
            if is_well {
                lso.common.undefined = 0;
            }
        }
        {
            let lso = step.lock();
            if lso.common.undefined != 0 {
                let severity = lso.common.undefined_severity;
                lso.common.raise(Status::UDF, severity);
            }
        }
        match output::drive(step) {
            Driven::Not => {}
            Driven::Done(is_written) => is_well = is_written,
            Driven::Waiting(outcome) => return outcome,
        }
        let simulated = time_source(step).map(|_| Target::Constant);
        step.stamp(simulated);
        step.post(Lso::monitor);
        Outcome::done(is_well)
    }
}

impl Output for Lso {
    fn output(&self) -> &Link {
        &self.output
    }

    fn invalid_action(&self) -> u16 {
        self.invalid_action
    }

    fn use_invalid_value(&mut self) {
        let text = self.invalid_value.clone();
        self.take(&text);
    }

    fn simulated_value(&self) -> Value {
        self.text()
    }

    fn value_to_write(&mut self) -> Option<Value> {
        Some(self.text())
    }

    fn suited(value: Value, to: Option<Kind>) -> Option<Value> {
        long_text::suited(value, to)
    }
}

impl Lso {
    /// The value to write; a text that was never set is written without a NUL.
    fn text(&self) -> Value {
        if self.length == 0 { Value::from(Vec::<u8>::new()) } else { self.value.clone().into() }
    }

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
