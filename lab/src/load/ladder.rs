//! A fan-out at twice the rate again and again, until no more is delivered than before.

use super::{FanOut, Outcome};
use crate::driver::Failure;
use crate::placement::{Placement, Seats};

/// A load and how it went.
pub type Step = (FanOut, Outcome);

/// Steps at most: from 10 Hz on the last would be 5 kHz for every PV.
const STEPS_MAX: usize = 10;
/// A step that delivers less than this part of the best before has collapsed; one that adds less than a
/// twentieth has reached the plateau.
const COLLAPSED_BELOW: f64 = 0.8;
const PLATEAU_BELOW: f64 = 1.05;

/// Every step from `first` on.
pub fn climb(first: FanOut, placement: Placement, seats: &Seats) -> Result<Vec<Step>, Failure> {
    let mut steps: Vec<Step> = Vec::new();
    let mut next = first;
    while steps.len() < STEPS_MAX && !has_plateaued(&steps) {
        steps.push((next, next.run(placement, seats)?));
        next.rate_hz *= 2.0;
    }
    Ok(steps)
}

/// The most that was delivered in a second.
pub fn most_hz(steps: &[Step]) -> f64 {
    steps.iter().map(|(_, outcome)| outcome.delivered_hz).fold(0.0, f64::max)
}

/// What happened at the end.
pub fn end(steps: &[Step]) -> &'static str {
    let last = steps.last().map_or(0.0, |(_, outcome)| outcome.delivered_hz);
    match (last < most_hz(steps) * COLLAPSED_BELOW, has_plateaued(steps)) {
        (true, _) => "with more load it collapses",
        (false, true) => "with more load it stays there",
        (false, false) => "it had not ended",
    }
}

/// Whether the last step brought no more than the one before.
fn has_plateaued(steps: &[Step]) -> bool {
    match steps {
        [.., (_, before), (_, last)] => last.delivered_hz < before.delivered_hz * PLATEAU_BELOW,
        _ => false,
    }
}
