//! aao: an output array. It differs from waveform in EPICS Base in its direction, and in that device support may own
//! its memory.

use fodo_data::{Limits, Meta, Value};

use crate::common::{Common, row};
use crate::field::record_fields;
use crate::link::Target;
use crate::menu::{self, CLOSED_LOOP};
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::array::{self, ArrayRecord, array_record};
use crate::record::output::{self, OutputRecord, output_fields};
use crate::record::simulation::{self, simulated};
use crate::record::{Record, record_type};
use crate::reference::KindAndCount;

record_fields! {
    /// An output array.
    Aao
    fields {
        ..array(PROP);
        "OUT" output: OutLink, DEVICE;
        "DOL" desired_output: InLink;
        "OMSL" output_mode: Menu(menu::OMSL);
        ..simulation(OutLink, YES_NO);
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(Aao, "aao", ["Soft Channel", "Program"]);
simulated!(Aao, has_raw: false);
output_fields!(Aao, |_aao| 0);
array_record!(Aao);

impl Record for Aao {
    fn init(&mut self) {
        simulation::init(self);
        array::init(self, |aao| (aao.output_mode == CLOSED_LOOP).then_some(&aao.desired_output));
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Aao::ROWS, field)?;
        let span = (row.name == "NORD").then(|| Limits { low: 0.0, high: self.capacity.into() });
        array::meta(row, &self.array_meta(), span, meta);
        None
    }

    fn value_kind_and_count(&self) -> Option<KindAndCount> {
        Some(KindAndCount { kind: self.array_meta().kind, count_max: self.capacity })
    }

    fn after_put(&mut self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str> {
        array::field_was_put(self, field, posts)
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        output::process(step)
    }
}

impl OutputRecord for Aao {
    const REPORTS_WRITE_FAILURE: bool = false;
    // In Base, the device support writes SIOL like OUT.
    const REPORTS_SIMULATION_FAILURE: bool = false;
    const REPORTS_READ_FAILURE: bool = true;
    fn use_invalid_value(&mut self) {}

    fn value(&self) -> Value {
        Value::Array(self.value.clone())
    }

    fn prepare(step: &mut Step<'_, '_, Self>) -> bool {
        let mut is_read = true;
        step.lock().common.undefined = 0;
        if step.lock().output_mode == CLOSED_LOOP {
            let kind = step.lock().array_meta().kind;
            let fetched = step.read_link_array("DOL", |aao| &aao.desired_output, kind);
            is_read = fetched.is_ok();
            if let Ok(Some(value)) = fetched {
                step.post(|aao, posts| array::store(aao, value, posts));
            }
        }
        output::stamp(step);
        is_read
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        array::monitor(self, posts);
    }
}
