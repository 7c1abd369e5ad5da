//! aai: an input array. It differs from waveform in EPICS Base only in that device support may own its memory.

use fodo_data::{Limits, Meta};

use crate::common::{Common, row};
use crate::field::record_fields;
use crate::link::Target;
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::array::{self, ArrayRecord, array_record, zeros};
use crate::record::simulation::{self, simulated};
use crate::record::{Record, record_type};
use crate::reference::KindAndCount;

record_fields! {
    /// An input array.
    Aai
    fields {
        ..array(PROP);
        "INP" input: InLink, DEVICE;
        ..simulation(InLink, YES_NO);
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(Aai, "aai", ["Soft Channel", "Program"]);
simulated!(Aai, has_raw: false);
array_record!(Aai);

impl Record for Aai {
    fn init(&mut self) {
        simulation::init(self);
        array::init(self, |aai| Some(&aai.input));
        if self.capacity == 1 && self.value.is_empty() {
            // A single element is 0 from the start.
            self.value = zeros(self.array_meta().kind, 1);
            self.length = 1;
        }
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Aai::ROWS, field)?;
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
        array::process_input(step, |aai| &aai.input, false)
    }
}
