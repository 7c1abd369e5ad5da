//! Doubles: a client that misbehaves in one way. The laboratory must detect each of them; otherwise its results for
//! other clients are worthless.

use std::time::Duration;

use clap::ValueEnum;

/// What the double does to one update in a thousand, or to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Misbehavior {
    /// Loses one update in a thousand.
    Drop,
    /// Delivers every update 5 ms late.
    Delay,
    /// Delivers one update in a thousand after the next one.
    Reorder,
    /// Delivers one update in a thousand twice.
    Duplicate,
    /// Delivers one update in a thousand with a wrong value.
    Lie,
}

/// An update before it is counted in the tally.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// The value.
    pub value: f64,
    /// Time since the moment at which it was scheduled to be sent.
    pub latency: Duration,
}

/// A double applied to one subscription.
#[derive(Debug)]
pub struct UpdateFault {
    double: Option<Misbehavior>,
    n_updates: u64,
    held: Option<Update>,
}

/// The double alters one update of this many.
const EVERY: u64 = 1000;

impl UpdateFault {
    /// With `None` all updates pass unchanged.
    pub fn new(double: Option<Misbehavior>, subscription: u64) -> UpdateFault {
        // Different offsets, so that the subscriptions do not all go wrong at the same update.
        UpdateFault { double, n_updates: subscription * 7919 % EVERY, held: None }
    }

    /// Delivers, alters or drops an update.
    pub fn pass(&mut self, update: Update, deliver: &mut dyn FnMut(Update)) {
        self.n_updates += 1;
        let is_chosen = self.n_updates.is_multiple_of(EVERY);
        match (self.double, is_chosen) {
            (Some(Misbehavior::Drop), true) => {}
            (Some(Misbehavior::Delay), _) => {
                deliver(Update { latency: update.latency + Duration::from_millis(5), ..update })
            }
            (Some(Misbehavior::Reorder), true) => self.held = Some(update),
            (Some(Misbehavior::Duplicate), true) => {
                deliver(update);
                deliver(update);
            }
            (Some(Misbehavior::Lie), true) => deliver(Update { value: update.value + 1.0, ..update }),
            _ => {
                deliver(update);
                self.held.take().into_iter().for_each(deliver);
            }
        }
    }
}
