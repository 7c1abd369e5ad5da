//! stringout: a text output.

use fodo_data::{Status, Value};

use crate::common::Common;
use crate::field::record_fields;
use crate::menu;
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::long_text::{cut, post_mask};
use crate::record::output::{self, OutputRecord, output_fields};
use crate::record::simulation::{self, constant, simulated};
use crate::record::{Record, changes, post_value, record_type};

record_fields! {
    /// A text output.
    StringOut
    fields {
        "VAL" value: String(40), ASL0 PP INTEREST0;
        "OVAL" output_value: String(40), NOMOD INTEREST3;
        "DOL" desired_output: InLink;
        "OMSL" output_mode: Menu(menu::OMSL);
        "OUT" output: OutLink, DEVICE;
        "MPST" post_value: Menu(menu::STRING_POST);
        "APST" post_archive: Menu(menu::STRING_POST);
        ..simulation(OutLink, YES_NO);
        "IVOA" invalid_action: Menu(menu::IVOA), INTEREST2;
        "IVOV" invalid_value: String(40), INTEREST2;
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(StringOut, "stringout", ["Soft Channel", "Async Soft Channel", "stdio", "Program"]);
simulated!(StringOut, has_raw: false);
output_fields!(StringOut);

impl Record for StringOut {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant(&self.desired_output) {
            self.value = cut(value);
            self.common.undefined = 0;
        }
        self.output_value = self.value.clone();
    }

    fn after_put(&mut self, _field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
        simulation::mode_was_put(self)
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        output::process(step)
    }
}

impl OutputRecord for StringOut {
    fn use_invalid_value(&mut self) {
        self.value = self.invalid_value.clone();
    }

    fn value(&self) -> Value {
        self.value.clone().into()
    }

    fn prepare(step: &mut Step<'_, '_, Self>) -> bool {
        let fetched = output::fetch_desired(step);
        let is_read = fetched.is_ok();
        let stringout = step.lock();
        if let Ok(Some(value)) = fetched {
            stringout.value = cut(value);
            stringout.common.undefined = 0;
        }
        // A time stamp that cannot be read raises its alarm after this one.
        stringout.check();
        output::stamp(step);
        is_read
    }

    fn check(&mut self) {
        if self.common.undefined == 1 {
            self.common.raise(Status::UDF, self.common.undefined_severity);
        }
    }

    fn stamp_completion(step: &mut Step<'_, '_, Self>) {
        output::stamp(step);
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        let changes = changes(&mut self.output_value, &self.value);
        post_value(self, changes | post_mask(self.post_value, self.post_archive), posts);
    }
}
