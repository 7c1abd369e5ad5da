//! What output records share: IVOA, and the way to the device or the simulation.

use fodo_data::Value;

use crate::record::simulation::{Simulated, Sink, sink};
use crate::step::{Outcome, Step};

/// A record that drives something.
pub(crate) trait Output: Simulated {
    /// IVOA.
    fn invalid_action(&self) -> u16;

    /// IVOV becomes the value, converted.
    fn use_invalid_value(&mut self);

    /// What SIOL is given.
    fn simulated_value(&self) -> Value;

    /// Hands the value to the device.
    fn write(step: &mut Step<'_, '_, Self>)
    where
        Self: Sized;
}

/// Drives the output unless the alarm and IVOA forbid it. `Some`: the record waits.
pub(crate) fn drive<R: Output>(step: &mut Step<'_, '_, R>) -> Option<Outcome> {
    let is_completion = step.is_completion;
    {
        let mut record = step.lock();
        if record.common().new_severity >= 3 {
            match record.invalid_action() {
                0 => {}
                2 if !is_completion => record.use_invalid_value(),
                2 => {}
                _ => return None,
            }
        }
    }
    match sink(step, R::simulated_value) {
        Sink::Device => R::write(step),
        Sink::Done => {}
        Sink::Waiting(delay_s) => return Some(step.complete_after(delay_s)),
    }
    None
}
