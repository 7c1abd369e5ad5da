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

    /// Hands the value to the device; whether that went well.
    fn write(step: &mut Step<'_, '_, Self>) -> bool
    where
        Self: Sized;
}

/// What became of an output.
pub(crate) enum Driven {
    /// Alarm and IVOA forbade it.
    Not,
    /// It was written; whether that went well.
    Done(bool),
    /// The record waits.
    Waiting(Outcome),
}

/// Drives the output unless the alarm and IVOA forbid it.
pub(crate) fn drive<R: Output>(step: &mut Step<'_, '_, R>) -> Driven {
    let is_completion = step.is_completion;
    {
        let mut record = step.lock();
        if record.common().new_severity >= 3 {
            match record.invalid_action() {
                0 => {}
                2 if !is_completion => record.use_invalid_value(),
                2 => {}
                _ => return Driven::Not,
            }
        }
    }
    match sink(step, R::simulated_value) {
        Sink::Device => Driven::Done(R::write(step)),
        Sink::Done(is_well) => Driven::Done(is_well),
        Sink::Waiting(delay_s) => Driven::Waiting(step.complete_after(delay_s)),
    }
}
