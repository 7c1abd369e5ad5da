//! Scenarios: what is asked of a driver, and why. One file each.
//!
//! The questions keep the names of the published Channel Access studies they come from.

pub mod array_get;
pub mod scalar_get;

use serde::Serialize;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Scenario {
    /// What a blocking get of one double costs.
    #[serde(rename = "Q17")]
    ScalarGet,
    /// How fast large arrays come.
    #[serde(rename = "Q21")]
    ArrayGet,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Scenario; 2] = [Scenario::ScalarGet, Scenario::ArrayGet];

    /// Its name in the studies.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::ScalarGet => "Q17",
            Scenario::ArrayGet => "Q21",
        }
    }

    /// What it asks, and how the answer is got.
    pub fn teaches(self) -> &'static str {
        match self {
            Scenario::ScalarGet => scalar_get::TEACHES,
            Scenario::ArrayGet => array_get::TEACHES,
        }
    }
}
