//! A fan-out whose rate is doubled until no more updates are delivered than before.

use super::{FanOut, LoadOutcome};
use crate::driver::DriverFailure;
use crate::placement::{CpuChoice, Placement};

/// A load and its outcome.
pub type LadderStep = (FanOut, LoadOutcome);

/// Maximum number of steps: from 10 Hz the last one would be 5 kHz for every PV.
const STEPS_MAX: usize = 10;
/// A step that delivers less than this share of the best step has collapsed; one that adds less than a twentieth has
/// reached the plateau.
const COLLAPSED_BELOW: f64 = 0.8;
const PLATEAU_BELOW: f64 = 1.05;

/// Measures all steps, starting with `first`.
pub fn run_ladder(first: FanOut, placement: Placement, cpus: &CpuChoice) -> Result<Vec<LadderStep>, DriverFailure> {
    let mut steps: Vec<LadderStep> = Vec::new();
    let mut next = first;
    while steps.len() < STEPS_MAX && !has_plateaued(&steps) {
        steps.push((next, next.run(placement, cpus)?));
        next.rate_hz *= 2.0;
    }
    Ok(steps)
}

/// The most updates delivered per second.
pub fn most_hz(steps: &[LadderStep]) -> f64 {
    steps.iter().map(|(_, outcome)| outcome.delivered_hz).fold(0.0, f64::max)
}

/// How the ladder ended.
pub fn end(steps: &[LadderStep]) -> &'static str {
    let last = steps.last().map_or(0.0, |(_, outcome)| outcome.delivered_hz);
    match (last < most_hz(steps) * COLLAPSED_BELOW, has_plateaued(steps)) {
        (true, _) => "more load collapses delivery",
        (false, true) => "more load does not increase delivery",
        (false, false) => "the maximum was not reached",
    }
}

/// Whether the last step delivered no more than the one before.
fn has_plateaued(steps: &[LadderStep]) -> bool {
    match steps {
        [.., (_, before), (_, last)] => last.delivered_hz < before.delivered_hz * PLATEAU_BELOW,
        _ => false,
    }
}
