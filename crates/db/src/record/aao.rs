//! aao: an output array. It differs from waveform in EPICS Base in its direction, and in that device support may own
//! its memory.

use fodo_data::{Array, Kind, Limits, Meta, Value};

use crate::common::{Common, row};
use crate::field::record_fields;
use crate::link::{Link, Target};
use crate::menu;
use crate::post::Posts;
use crate::record::array::{self, ArrayMeta, array_record, capacity_of, kind_of};
use crate::record::output::{self, Driven, Output};
use crate::record::simulation::{self, simulated, time_source};
use crate::record::{Record, record_type};
use crate::step::{Outcome, Step};

record_fields! {
    /// An output array.
    Aao
    fields {
        "VAL" value: Array = Array::empty(Kind::F64), ASL0 PP SPECIAL;
        "PREC" precision: Short, PROP;
        "OUT" output: OutLink;
        "DOL" desired_output: InLink;
        "OMSL" output_mode: Menu(menu::OMSL);
        "EGU" units: String(16), PROP;
        "HOPR" display_high: Double, PROP;
        "LOPR" display_low: Double, PROP;
        "NELM" capacity: ULong = 1, NOMOD PROP;
        "FTVL" element_type: Menu(menu::FTYPE), NOMOD;
        "NORD" length: ULong, NOMOD;
        "SIOL" simulation_value_link: OutLink;
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

record_type!(Aao, "aao", ["Soft Channel"]);
simulated!(Aao, has_raw: false);
array_record!(Aao);

const VAL: u16 = Aao::at("VAL");
const SIMM: u16 = Aao::at("SIMM");

impl Record for Aao {
    fn init(&mut self) {
        simulation::init(self);
        self.capacity = capacity_of(self.capacity);
        self.value = Array::empty(self.kind());
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Aao::ROWS, field)?;
        let span = match row.name {
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
        let mut is_well = true;
        if !step.is_completion && step.lock().output_mode == 1 {
            let kind = step.lock().kind();
            let fetched = step.fetch_array("DOL", |aao| &aao.desired_output, kind);
            is_well = fetched.is_ok();
            if let Ok(Some(value)) = fetched {
                step.post(|aao, posts| array::take(aao, value, posts));
            }
        }
        if !step.is_completion {
            let simulated = time_source(step).map(|_| Target::Constant);
            step.stamp(simulated);
        }
        match output::drive(step) {
            Driven::Not => {}
            Driven::Done(is_written) => is_well &= is_written,
            Driven::Waiting(outcome) => return outcome,
        }
        step.lock().common.undefined = 0;
        if step.is_completion {
            step.stamp(Some(Target::Constant));
        }
        step.post(array::monitor);
        Outcome::done(is_well)
    }
}

impl Output for Aao {
    const TELLS_FAILURE: bool = false;

    fn output(&self) -> &Link {
        &self.output
    }

    fn invalid_action(&self) -> u16 {
        0
    }

    fn use_invalid_value(&mut self) {}

    fn simulated_value(&self) -> Value {
        Value::Array(self.value.clone())
    }

    fn value_to_write(&mut self) -> Option<Value> {
        Some(self.simulated_value())
    }
}

impl Aao {
    fn kind(&self) -> Kind {
        kind_of(self.element_type)
    }
}
