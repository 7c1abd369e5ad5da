//! Simulation mode: SIMM, SIML, SIOL, SIMS, SSCN and SDLY, which are the same in every record with a device.

use fodo_data::{Status, Value};

use crate::link::{Link, Target};
use crate::menu::{INVALID, NO, NO_ALARM, NO_SCAN, RAW, YES};
use crate::process::step::{Element, LinkError, Step};
use crate::record::Record;

/// The fields of the simulation mode, borrowed from a record by [`simulated!`].
pub(crate) struct Simulation<'a> {
    pub(crate) mode: &'a mut u16,
    pub(crate) old_mode: &'a mut u16,
    pub(crate) mode_link: &'a Link,
    pub(crate) scan: &'a mut u16,
    pub(crate) severity: u16,
    pub(crate) delay_s: f64,
}

/// A record that can be simulated.
pub(crate) trait Simulated: Record {
    /// Whether SIMM has RAW.
    const HAS_RAW: bool;

    fn simulation(&mut self) -> Simulation<'_>;

    fn mode_link(&self) -> &Link;

    fn value_link(&self) -> &Link;
}

macro_rules! simulated {
    ($record:ident, has_raw: $has_raw:literal) => {
        impl $crate::record::simulation::Simulated for $record {
            const HAS_RAW: bool = $has_raw;

            fn simulation(&mut self) -> $crate::record::simulation::Simulation<'_> {
                $crate::record::simulation::Simulation {
                    mode: &mut self.simulation_mode,
                    old_mode: &mut self.old_simulation_mode,
                    mode_link: &self.simulation_mode_link,
                    scan: &mut self.simulation_scan,
                    severity: self.simulation_severity,
                    delay_s: self.simulation_delay,
                }
            }

            fn mode_link(&self) -> &$crate::link::Link {
                &self.simulation_mode_link
            }

            fn value_link(&self) -> &$crate::link::Link {
                &self.simulation_value_link
            }
        }
    };
}

pub(crate) use simulated;

/// Where an input's value comes from during this processing.
#[derive(Debug, PartialEq)]
pub(crate) enum InputSource<T> {
    /// The device.
    Device,
    /// SIOL; without a value if SIOL is constant and SVAL is the value. `is_raw`: SIMM is RAW.
    Simulation { value: Option<T>, is_raw: bool },
    /// SIOL cannot be read, or SIMM is invalid.
    Failed,
    /// The record waits for SDLY.
    Waiting(f64),
}

/// What happened to an output during this processing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OutputTarget {
    /// The value has to be written to the device.
    Device,
    /// The value was written to SIOL, or there was nothing to write.
    Simulated { is_ok: bool },
    /// SIMM is invalid; the alarm is raised.
    Invalid,
    /// The record waits for SDLY.
    Waiting(f64),
}

/// Sets SIMM from a constant SIML, and swaps the scan accordingly.
pub(crate) fn init<R: Simulated>(record: &mut R) {
    let simulation = record.simulation();
    if !simulation.mode_link.is_constant() {
        return;
    }
    if *simulation.scan != NO_SCAN {
        *simulation.old_mode = *simulation.mode;
    }
    if let Some(mode) = constant::<u16>(simulation.mode_link) {
        *simulation.mode = mode;
    }
    swap_scan(record);
}

/// Swaps SCAN and SSCN if SSCN is set and SIMM has changed. Returns whether it did.
pub(crate) fn swap_scan<R: Simulated>(record: &mut R) -> bool {
    let simulation = record.simulation();
    let is_changed = *simulation.scan != NO_SCAN && simulation.mode != simulation.old_mode;
    if is_changed {
        let scan = *simulation.scan;
        let before = std::mem::replace(&mut record.common().scan, scan);
        *record.simulation().scan = before;
    }
    is_changed
}

/// Called after a put to SIMM.
pub(crate) fn mode_was_put<R: Simulated>(record: &mut R) -> Result<(), &'static str> {
    swap_scan(record);
    Ok(())
}

/// Reads SIML, and the value from SIOL in simulation mode.
pub(crate) fn input_source<R: Simulated, T: Element>(step: &mut Step<'_, '_, R>) -> InputSource<T> {
    match simulation_mode(step) {
        SimulationMode::Device => InputSource::Device,
        SimulationMode::Simulated { is_raw } => match step.read_link("SIOL", R::value_link) {
            Ok(value) => InputSource::Simulation { value, is_raw },
            Err(LinkError) => InputSource::Failed,
        },
        SimulationMode::Invalid => InputSource::Failed,
        SimulationMode::Waiting(delay_s) => InputSource::Waiting(delay_s),
    }
}

/// What SIMM requests, before SIOL is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SimulationMode {
    /// Off: the value comes from the device.
    Device,
    /// On: the value, or the raw value, comes from SIOL.
    Simulated { is_raw: bool },
    /// SIMM is invalid; the alarm is raised.
    Invalid,
    /// The record waits for SDLY.
    Waiting(f64),
}

/// Reads SIML, and decides where the value comes from.
pub(crate) fn simulation_mode<R: Simulated>(step: &mut Step<'_, '_, R>) -> SimulationMode {
    match mode(step) {
        NO => SimulationMode::Device,
        mode if mode == YES || R::HAS_RAW && mode == RAW => match raise_and_delay(step) {
            Some(delay_s) => SimulationMode::Waiting(delay_s),
            None => SimulationMode::Simulated { is_raw: mode == RAW },
        },
        _ => {
            step.lock().common().raise(Status::SOFT, INVALID);
            SimulationMode::Invalid
        }
    }
}

/// Reads SIML, and writes the value to SIOL in simulation mode; if `value` returns `None`, it writes nothing.
pub(crate) fn output_target<R: Simulated>(
    step: &mut Step<'_, '_, R>,
    value: impl Fn(&mut R) -> Option<Value>,
) -> OutputTarget {
    match mode(step) {
        NO => OutputTarget::Device,
        mode if mode == YES || R::HAS_RAW && mode == RAW => {
            if let Some(delay_s) = raise_and_delay(step) {
                return OutputTarget::Waiting(delay_s);
            }
            let Some(value) = value(step.lock()) else { return OutputTarget::Simulated { is_ok: true } };
            OutputTarget::Simulated { is_ok: step.write_link("SIOL", R::value_link, value).is_ok() }
        }
        _ => {
            step.lock().common().raise(Status::SOFT, INVALID);
            OutputTarget::Invalid
        }
    }
}

/// The target of SIOL for the time stamp; `None` outside of simulation mode.
pub(crate) fn time_source<R: Simulated>(step: &mut Step<'_, '_, R>) -> Option<Target> {
    let record = step.lock();
    let is_on = *record.simulation().mode != NO;
    is_on.then(|| record.value_link().target())
}

/// Sets the time stamp of an input; in simulation mode it can be that of the source.
pub(crate) fn stamp<R: Simulated>(step: &mut Step<'_, '_, R>) {
    let simulated = time_source(step);
    step.stamp(simulated);
}

fn mode<R: Simulated>(step: &mut Step<'_, '_, R>) -> u16 {
    if !step.is_completion {
        let simulation = step.lock().simulation();
        if *simulation.scan != NO_SCAN {
            *simulation.old_mode = *simulation.mode;
        }
        match step.read_link_quietly::<u16>(R::mode_link) {
            Ok(Some(mode)) => *step.lock().simulation().mode = mode,
            Ok(None) => {}
            Err(LinkError) => {
                let common = step.lock().common();
                if common.new_severity == NO_ALARM {
                    common.new_status = Status::LINK.0;
                }
            }
        }
        let record = step.lock();
        let before = record.common().scan;
        if swap_scan(record) {
            step.rescan(before);
        }
    }
    *step.lock().simulation().mode
}

/// Raises the alarm SIMM. Returns how long to wait first, if there is a delay that has not passed yet.
fn raise_and_delay<R: Simulated>(step: &mut Step<'_, '_, R>) -> Option<f64> {
    let is_completion = step.is_completion;
    let record = step.lock();
    let simulation = record.simulation();
    let (severity, delay_s) = (simulation.severity, simulation.delay_s);
    record.common().raise(Status::SIMM, severity);
    (!is_completion && delay_s >= 0.0).then_some(delay_s)
}

/// The value of a constant link.
pub(crate) fn constant<T: Element>(link: &Link) -> Option<T> {
    link.constant()?.first(T::KIND).and_then(T::of)
}

/// Sets a value to that of a constant link. Returns whether the link is one.
pub(crate) fn set_constant<T: Element>(value: &mut T, link: &Link) -> bool {
    let constant = constant(link);
    let is_constant = constant.is_some();
    if let Some(constant) = constant {
        *value = constant;
    }
    is_constant
}
