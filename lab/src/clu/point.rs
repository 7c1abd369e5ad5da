//! What a row of a result contains for the tables of study 004.

use serde::{Deserialize, Serialize};

pub use super::tally::RequestAccount;

/// The requests or the subscriptions of a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CluPoint {
    /// Duration of one repetition, in seconds.
    pub seconds: f64,
    /// How the requests of all repetitions ended; `None` for subscriptions, which have a ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<RequestAccount>,
    /// What was sent without the four ends; must be 0.
    pub unexplained: i64,
    /// CPU time of each end per request, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<EndNumbers>,
    /// CPU time of each end per second.
    pub cores: EndNumbers,
    /// Requests per second of the schedule of an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_hz: Option<f64>,
    /// Requests per second that were answered in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_hz: Option<f64>,
    /// Maximum delay of a request of an open loop after its scheduled time, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_max_ms: Option<f64>,
}

/// A number of each end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndNumbers {
    /// Of the server's process.
    pub server: f64,
    /// Of the client's process.
    pub client: f64,
}
