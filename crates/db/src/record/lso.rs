//! lso: a long string output.

use fodo_data::{Kind, Status, Value};

use crate::common::Common;
use crate::field::record_fields;
use crate::menu::{self, CLOSED_LOOP, INVALID};
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::device::DeviceSupport;
use crate::record::long_text::{self, SIZE_MIN, fetch, long_text_record};
use crate::record::output::{self, OutputRecord, output_fields};
use crate::record::simulation::{self, simulated};
use crate::record::{Record, record_type};

record_fields! {
    /// A long string output.
    Lso
    fields {
        ..long_text(INTEREST3);
        "DOL" desired_output: InLink;
        "IVOA" invalid_action: Menu(menu::IVOA), INTEREST2;
        "IVOV" invalid_value: String(40), INTEREST2;
        "OMSL" output_mode: Menu(menu::OMSL);
        "OUT" output: OutLink, DEVICE;
        ..simulation(OutLink, YES_NO);
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(Lso, "lso", ["Soft Channel", "Async Soft Channel", "stdio", "Program"], VAL);
simulated!(Lso, has_raw: false);
output_fields!(Lso);
long_text_record!(Lso);

impl Record for Lso {
    fn init(&mut self) {
        self.size = self.size.max(SIZE_MIN);
        simulation::init(self);
        let constant = long_text::constant(&self.desired_output);
        long_text::init(self, constant.as_ref());
    }

    fn text_size(&self) -> u16 {
        self.size
    }

    fn after_put(&mut self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str> {
        if field != VAL {
            return simulation::mode_was_put(self);
        }
        long_text::value_was_put(self, posts);
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        output::process(step)
    }
}

impl OutputRecord for Lso {
    fn use_invalid_value(&mut self) {
        let text = self.invalid_value.clone();
        long_text::store(self, &text);
    }

    /// A text that was never set is written without a NUL.
    fn value(&self) -> Value {
        if self.length == 0 { Value::from(Vec::<u8>::new()) } else { self.value.clone().into() }
    }

    fn value_to_write(&mut self) -> Option<Value> {
        let is_of_program = DeviceSupport::of(self) == DeviceSupport::Program;
        Some(if is_of_program { self.value.clone().into() } else { self.value() })
    }

    fn to_target_kind(value: Value, to: Option<Kind>) -> Option<Value> {
        long_text::to_target_kind(value, to)
    }

    fn prepare(step: &mut Step<'_, '_, Self>) -> bool {
        if step.lock().output_mode != CLOSED_LOOP {
            return true;
        }
        let Ok(text) = fetch(step, "DOL", |lso| &lso.desired_output) else { return false };
        let lso = step.lock();
        if let Some(text) = &text {
            long_text::store(lso, text);
        }
        lso.common.undefined = 0;
        true
    }

    fn check(&mut self) {
        // EPICS Base ignores UDFS here.
        if self.common.undefined != 0 {
            self.common.raise(Status::UDF, INVALID);
        }
    }

    fn stamp_completion(_step: &mut Step<'_, '_, Self>) {}

    /// The time is that after the output.
    fn finish(step: &mut Step<'_, '_, Self>) {
        output::stamp(step);
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        long_text::monitor(self, posts);
    }
}
