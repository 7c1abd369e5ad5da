//! waveform: an array.

use fodo_data::{Limits, Meta};

use crate::common::{Common, row};
use crate::field::record_fields;
use crate::link::Target;
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::array::{self, ArrayRecord, array_record};
use crate::record::device::DeviceSupport;
use crate::record::simulation::{self, simulated};
use crate::record::{Record, program, record_type};
use crate::reference::KindAndCount;

record_fields! {
    /// An array.
    Waveform
    fields {
        ..array();
        "RARM" rearm: Short, PP;
        "INP" input: InLink, DEVICE;
        "BUSY" busy: Short, NOMOD INTEREST0;
        ..simulation(InLink, YES_NO);
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(Waveform, "waveform", ["Soft Channel", "Program", "Program Output"]);
simulated!(Waveform, has_raw: false);
array_record!(Waveform);

impl Record for Waveform {
    fn init(&mut self) {
        simulation::init(self);
        array::init(self, |waveform| Some(&waveform.input));
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(Waveform::ROWS, field)?;
        let span = match row.name {
            "BUSY" => Some(Limits { low: 0.0, high: 1.0 }),
            "NORD" => Some(Limits { low: 0.0, high: self.capacity.into() }),
            _ => None,
        };
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
        if DeviceSupport::of(step.lock()) == DeviceSupport::ProgramOutput {
            return program::process_array(step);
        }
        array::process_input(step, |waveform| &waveform.input, true)
    }
}
