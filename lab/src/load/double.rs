//! Doubles: a client that does one thing wrong. The laboratory must find each of them out, or
//! what it says of others is worth nothing.

use std::time::Duration;

use clap::ValueEnum;

/// What the double does to one update in a thousand, or to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Double {
    /// Loses one update in a thousand.
    Drop,
    /// Delivers every update 5 ms late.
    Delay,
    /// Delivers one in a thousand behind the next.
    Reorder,
    /// Delivers one in a thousand twice.
    Duplicate,
    /// Delivers one in a thousand with another value.
    Lie,
}

/// An update on its way to the tally.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// The value.
    pub value: f64,
    /// From the moment at which it was to be sent to now.
    pub latency: Duration,
}

/// A double at work on one subscription.
#[derive(Debug)]
pub struct Meddler {
    double: Option<Double>,
    n_updates: u64,
    held: Option<Update>,
}

/// One in so many.
const EVERY: u64 = 1000;

impl Meddler {
    /// `None` does nothing.
    pub fn new(double: Option<Double>, subscription: u64) -> Meddler {
        // Subscriptions do not all go wrong at the same update.
        Meddler { double, n_updates: subscription * 7919 % EVERY, held: None }
    }

    /// What becomes of an update.
    pub fn pass(&mut self, update: Update, deliver: &mut dyn FnMut(Update)) {
        self.n_updates += 1;
        let is_chosen = self.n_updates.is_multiple_of(EVERY);
        match (self.double, is_chosen) {
            (Some(Double::Drop), true) => {}
            (Some(Double::Delay), _) => {
                deliver(Update { latency: update.latency + Duration::from_millis(5), ..update })
            }
            (Some(Double::Reorder), true) => self.held = Some(update),
            (Some(Double::Duplicate), true) => {
                deliver(update);
                deliver(update);
            }
            (Some(Double::Lie), true) => deliver(Update { value: update.value + 1.0, ..update }),
            _ => {
                deliver(update);
                self.held.take().into_iter().for_each(deliver);
            }
        }
    }
}
