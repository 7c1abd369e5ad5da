//! waveform: an array.

use fodo_data::{Array, Kind, Limits, Meta, Value};

use crate::common::{Common, row};
use crate::field::record_fields;
use crate::link::Target;
use crate::menu;
use crate::post::Posts;
use crate::record::array::{self, ArrayMeta, array_record, capacity_of, constants, kind_of};
use crate::record::simulation::{self, Plan, Simulated, plan, simulated, time_source};
use crate::record::{Record, record_type};
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// An array.
    Waveform
    fields {
        "VAL" value: Array = Array::empty(Kind::F64), ASL0 PP SPECIAL;
        "RARM" rearm: Short, PP;
        "PREC" precision: Short, PROP;
        "INP" input: InLink;
        "EGU" units: String(16), PROP;
        "HOPR" display_high: Double, PROP;
        "LOPR" display_low: Double, PROP;
        "NELM" capacity: ULong = 1, NOMOD;
        "FTVL" element_type: Menu(menu::FTYPE), NOMOD;
        "BUSY" busy: Short, NOMOD;
        "NORD" length: ULong, NOMOD;
        "SIOL" simulation_value_link: InLink;
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::YES_NO), SPECIAL;
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "OLDSIMM" old_simulation_mode: Menu(menu::SIMM), NOMOD;
        "SSCN" simulation_scan: Menu(menu::SCAN) = 65535;
        "SDLY" simulation_delay: Double = -1.0;
        "MPST" post_value: Menu(menu::ARRAY_POST);
        "APST" post_archive: Menu(menu::ARRAY_POST);
        "HASH" hash: ULong;
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(Waveform, "waveform", ["Soft Channel"]);
simulated!(Waveform, has_raw: false);
array_record!(Waveform);

const VAL: u16 = Waveform::at("VAL");
const SIMM: u16 = Waveform::at("SIMM");

impl Record for Waveform {
    fn init(&mut self) {
        simulation::init(self);
        self.capacity = capacity_of(self.capacity);
        self.value = match constants(&self.input, self.kind(), self.capacity) {
            Some(array) => {
                self.common.undefined = 0;
                array
            }
            None => Array::empty(self.kind()),
        };
        self.length = self.value.len() as u32;
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Waveform::ROWS, field)?;
        let span = match row.name {
            "BUSY" => Some(Limits { low: 0.0, high: 1.0 }),
            "NORD" => Some(Limits { low: 0.0, high: self.capacity.into() }),
            _ => None,
        };
        let display = Limits { low: self.display_low, high: self.display_high };
        let about = ArrayMeta { kind: self.kind(), units: &self.units, precision: self.precision, display };
        array::meta(row, &about, span, meta);
        None
    }

    fn value_facts(&self) -> Option<(Kind, u32)> {
        Some((self.kind(), self.capacity))
    }

    fn after_put(&mut self, field: u16, posts: &mut Posts) -> Result<(), &'static str> {
        match field {
            VAL => array::count(self, posts),
            SIMM => {
                simulation::swap_scan(self);
            }
            _ => {}
        }
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let kind = step.lock().kind();
        let mut is_read = true;
        match plan(step) {
            Plan::Device => match step.fetch_array("INP", |waveform| &waveform.input, kind) {
                Ok(None) => {}
                Ok(Some(value)) => {
                    step.post(|waveform, posts| array::take(waveform, value, posts));
                    step.stamp_from(|waveform| &waveform.input);
                }
                Err(Broken) => is_read = false,
            },
            Plan::Simulate { .. } => match step.fetch_array("SIOL", Waveform::value_link, kind) {
                // A constant has no elements to read.
                Ok(None) => step.post(|waveform, posts| array::take(waveform, Value::Array(Array::empty(kind)), posts)),
                Ok(Some(value)) => step.post(|waveform, posts| array::take(waveform, value, posts)),
                Err(Broken) => is_read = false,
            },
            Plan::Failed => is_read = false,
            Plan::Waiting(delay_s) => return step.complete_after(delay_s),
        }
        step.lock().common.undefined = 0;
        let simulated = time_source(step);
        step.stamp(simulated);
        step.post(array::monitor);
        Outcome::done(is_read)
    }
}

impl Waveform {
    fn kind(&self) -> Kind {
        kind_of(self.element_type)
    }
}
