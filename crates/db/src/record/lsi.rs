//! lsi: a long string input.

use fodo_data::Text;

use crate::common::Common;
use crate::field::record_fields;
use crate::link::Link;
use crate::process::post::RecordPosts;
use crate::process::step::{LinkError, ProcessOutcome, Step};
use crate::record::device::{DeviceSupport, check_environment};
use crate::record::long_text::{self, SIZE_MIN, fetch, long_text_record};
use crate::record::simulation::{self, Simulated, SimulationMode, simulated, simulation_mode};
use crate::record::{Record, program, record_type};

record_fields! {
    /// A long string input.
    Lsi
    fields {
        ..long_text(INTEREST0);
        "INP" input: InLink, DEVICE;
        ..simulation(InLink, YES_NO);
    }
    arrays {
    }
    private {
        common: Common;
    }
}

record_type!(Lsi, "lsi", ["Soft Channel", "getenv", "Program"], VAL);
simulated!(Lsi, has_raw: false);
long_text_record!(Lsi);

impl Record for Lsi {
    fn init(&mut self) {
        self.size = self.size.max(SIZE_MIN);
        simulation::init(self);
        let constant = long_text::constant(&self.input);
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
        let device = DeviceSupport::of(step.lock());
        let is_environment = device == DeviceSupport::Environment;
        let mode = simulation_mode(step);
        // Soft Channel does not clear UDF, as in Base.
        let is_defined = is_environment || device == DeviceSupport::Program || mode != SimulationMode::Device;
        let fetched = match mode {
            SimulationMode::Device if is_environment => {
                let name = step.lock().input.address();
                Ok(Some(step.site().variable(&name.to_str()).unwrap_or(Text::EMPTY)))
            }
            SimulationMode::Device if device == DeviceSupport::Program => program::read_text(step),
            SimulationMode::Device => fetch(step, "INP", Lsi::input),
            SimulationMode::Simulated { .. } => fetch(step, "SIOL", Lsi::value_link),
            SimulationMode::Invalid => Err(LinkError),
            SimulationMode::Waiting(delay_s) => return step.complete_after(delay_s),
        };
        if mode == SimulationMode::Device && device == DeviceSupport::Soft && matches!(fetched, Ok(Some(_))) {
            step.stamp_from(Lsi::input);
        }
        if let Ok(text) = &fetched {
            let lsi = step.lock();
            if let Some(text) = text {
                long_text::store(lsi, text);
            }
            if is_defined {
                lsi.common.undefined = 0;
            }
        }
        check_environment(step, Lsi::input);
        simulation::stamp(step);
        if mode == SimulationMode::Device {
            program::stamp_input(step);
        }
        step.post(long_text::monitor);
        ProcessOutcome::done(fetched.is_ok())
    }
}

impl Lsi {
    fn input(&self) -> &Link {
        &self.input
    }
}
