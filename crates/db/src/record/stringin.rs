//! stringin: a text input.

use fodo_data::{Text, TimeStamp};

use crate::common::Common;
use crate::field::record_fields;
use crate::menu;
use crate::process::post::RecordPosts;
use crate::process::step::{ProcessOutcome, Step};
use crate::record::device::{self, DeviceSupport, InputRecord, ReadResult, input_fields};
use crate::record::long_text::{cut, post_mask};
use crate::record::simulation::{self, set_constant, simulated};
use crate::record::{Record, changes, post_value, record_type};

record_fields! {
    /// A text input.
    StringIn
    fields {
        "VAL" value: String(40), ASL0 PP INTEREST0;
        "OVAL" output_value: String(40), NOMOD INTEREST3;
        "INP" input: InLink, DEVICE;
        "MPST" post_value: Menu(menu::STRING_POST);
        "APST" post_archive: Menu(menu::STRING_POST);
        ..simulation(InLink, YES_NO);
        "SVAL" simulation_value: String(40), PP INTEREST0;
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(
    StringIn,
    "stringin",
    ["Soft Channel", "Async Soft Channel", "Soft Timestamp", "General Time", "getenv", "Program"]
);
simulated!(StringIn, has_raw: false);
input_fields!(StringIn, Text, simulated: Text);

impl Record for StringIn {
    fn init(&mut self) {
        simulation::init(self);
        set_constant(&mut self.simulation_value, &self.simulation_value_link);
        if set_constant(&mut self.value, &self.input) {
            self.common.undefined = 0;
        }
        self.output_value = self.value.clone();
    }

    fn after_put(&mut self, _field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
        simulation::mode_was_put(self)
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        device::process(step)
    }
}

impl InputRecord for StringIn {
    fn store(&mut self, value: Option<Text>, _device: DeviceSupport) {
        let Some(value) = value else { return };
        self.value = cut(value);
        self.common.undefined = 0;
    }

    fn simulate(&mut self, value: Option<Text>, _is_raw: bool) {
        self.simulation_value = value.map_or_else(|| self.simulation_value.clone(), cut);
        self.value = cut(self.simulation_value.clone());
    }

    fn finish(step: &mut Step<'_, '_, Self>, _read: ReadResult, _before: TimeStamp) {
        step.post(|stringin, posts| {
            let changes = changes(&mut stringin.output_value, &stringin.value);
            post_value(stringin, changes | post_mask(stringin.post_value, stringin.post_archive), posts);
        });
    }
}
