//! event: posts an event by name, which processes the records whose SCAN is Event and whose EVNT is that name.

use fodo_data::{EventMask, Text};

use crate::common::Common;
use crate::field::record_fields;
use crate::process::post::RecordPosts;
use crate::process::scan::event_name;
use crate::process::step::{LinkError, ProcessOutcome, Step};
use crate::record::device::DeviceSupport;
use crate::record::long_text::cut;
use crate::record::simulation::{self, InputSource, input_source, set_constant, simulated};
use crate::record::{Record, program, record_type};

record_fields! {
    /// A record that posts an event.
    Event
    fields {
        "VAL" value: String(40), ASL0 SPECIAL INTEREST0;
        "INP" input: InLink, DEVICE;
        ..simulation(InLink, YES_NO);
        "SVAL" simulation_value: String(40), INTEREST0;
    }
    arrays {
    }
    private {
        common: Common;
        event: Option<Text>;
    }
}

record_type!(Event, "event", ["Soft Channel", "Program"], VAL);
simulated!(Event, has_raw: false);

impl Record for Event {
    fn init(&mut self) {
        simulation::init(self);
        set_constant(&mut self.simulation_value, &self.simulation_value_link);
        if set_constant(&mut self.value, &self.input) {
            self.common.undefined = 0;
        }
        self.event = event_name(&self.value);
    }

    fn after_put(&mut self, field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
        if field != VAL {
            return simulation::mode_was_put(self);
        }
        self.event = event_name(&self.value);
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        let mut is_read = true;
        let source = input_source(step);
        let is_of_device = matches!(source, InputSource::Device);
        match source {
            InputSource::Device => match read(step) {
                // UDF stays set if the link has no value to read, as in Base.
                Ok(None) => {}
                Ok(Some(value)) => step.lock().store(value),
                Err(LinkError) => is_read = false,
            },
            InputSource::Simulation { value, .. } => {
                let event = step.lock();
                if let Some(value) = value {
                    event.simulation_value = cut(value);
                }
                let value = event.simulation_value.clone();
                event.store(value);
            }
            InputSource::Failed => is_read = false,
            InputSource::Waiting(delay_s) => return step.complete_after(delay_s),
        }
        let event = step.lock().event.clone();
        if let Some(event) = event {
            step.post_event(event);
        }
        simulation::stamp(step);
        if is_of_device {
            program::stamp_input(step);
        }
        step.post(|event, posts| {
            let mask = posts.alarms(event);
            posts.post(event, VAL, mask | EventMask::VALUE);
        });
        ProcessOutcome::done(is_read)
    }
}

/// Reads INP, or the text that the program set.
fn read(step: &mut Step<'_, '_, Event>) -> Result<Option<Text>, LinkError> {
    match DeviceSupport::of(step.lock()) {
        DeviceSupport::Program => program::read_text(step),
        _ => step.read_link("INP", |event| &event.input),
    }
}

impl Event {
    fn store(&mut self, value: Text) {
        self.value = cut(value);
        self.event = event_name(&self.value);
        self.common.undefined = 0;
    }
}
