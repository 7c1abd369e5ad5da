//! event: posts an event by name, which processes the records whose SCAN is Event and whose EVNT is that name.

use fodo_data::{EventMask, Text};

use crate::common::Common;
use crate::field::record_fields;
use crate::menu;
use crate::post::Posts;
use crate::record::simulation::{self, Source, constant, simulated, source, time_source};
use crate::record::stringin::cut;
use crate::record::{Record, record_type};
use crate::scan::event_name;
use crate::step::{Broken, Outcome, Step};

record_fields! {
    /// A record that posts an event.
    Event
    fields {
        "VAL" value: String(40), ASL0 SPECIAL;
        "INP" input: InLink;
        "SIOL" simulation_value_link: InLink;
        "SVAL" simulation_value: String(40);
        "SIML" simulation_mode_link: InLink;
        "SIMM" simulation_mode: Menu(menu::YES_NO), SPECIAL;
        "SIMS" simulation_severity: Menu(menu::ALARM_SEVR);
        "OLDSIMM" old_simulation_mode: Menu(menu::SIMM), NOMOD;
        "SSCN" simulation_scan: Menu(menu::SCAN) = 65535;
        "SDLY" simulation_delay: Double = -1.0;
    }
    arrays {
    }
    private {
        common: Common;
        event: Option<Text>;
    }
}

record_type!(Event, "event", ["Soft Channel"]);
simulated!(Event, has_raw: false);

const VAL: u16 = Event::at("VAL");

impl Record for Event {
    fn init(&mut self) {
        simulation::init(self);
        if let Some(value) = constant(&self.simulation_value_link) {
            self.simulation_value = value;
        }
        if let Some(value) = constant(&self.input) {
            self.value = value;
            self.common.undefined = 0;
        }
        self.event = event_name(&self.value);
    }

    fn after_put(&mut self, field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
        if field == VAL {
            self.event = event_name(&self.value);
        } else {
            simulation::swap_scan(self);
        }
        Ok(())
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        let mut is_read = true;
        match source(step) {
            Source::Device => match step.fetch::<Text>("INP", |event| &event.input) {
                // UDF stays set if the link has no value to read, as in Base.
                Ok(None) => {}
                Ok(Some(value)) => step.lock().take(value),
                Err(Broken) => is_read = false,
            },
            Source::Simulation(value, _) => {
                let event = step.lock();
                if let Some(value) = value {
                    event.simulation_value = cut(value);
                }
                let value = event.simulation_value.clone();
                event.take(value);
            }
            Source::Failed => is_read = false,
            Source::Waiting(delay_s) => return step.complete_after(delay_s),
        }
        let event = step.lock().event.clone();
        if let Some(event) = event {
            step.post_event(event);
        }
        let simulated = time_source(step);
        step.stamp(simulated);
        step.post(|event, posts| {
            let mask = posts.alarms(event);
            posts.post(event, VAL, mask | EventMask::VALUE);
        });
        Outcome::done(is_read)
    }
}

impl Event {
    fn take(&mut self, value: Text) {
        self.value = cut(value);
        self.event = event_name(&self.value);
        self.common.undefined = 0;
    }
}
