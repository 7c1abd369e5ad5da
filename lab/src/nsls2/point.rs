//! What a row of a result contains for the tables of study 003.

use serde::{Deserialize, Serialize};

/// The point of study 003 at which a row was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CasePoint {
    /// How long both ends wait for more before they send, in milliseconds.
    pub delay_ms: u32,
    /// Operations per second for which the link between client and server carries the answers; `None` on one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_hz: Option<f64>,
}
