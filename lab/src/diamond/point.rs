//! What a row of a result contains for the tables of study 002.

use serde::{Deserialize, Serialize};

use crate::load::tally::UpdateRecording;

/// The point of study 002 at which a row was measured, and what the study's columns need.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StudyPoint {
    /// The study's table, from 1.
    pub table: usize,
    /// The row of that table, from 1.
    pub row: usize,
    /// Number of PVs that change.
    pub n_pvs: u32,
    /// Changes of each PV per second.
    pub hz: f64,
    /// Number of PVs to which the client subscribes.
    pub n_watched: u32,
    /// Subscriptions to each of them; each is a subscription of its own on the wire.
    pub n_monitors: u32,
    /// Whether values are requested with time stamps.
    pub format: UpdateRecording,
    /// How long values changed, in seconds; the rest of the point is about this time.
    pub seconds: f64,
    /// Updates delivered per second, until the last one was delivered: a client that is behind continues when values no longer
    /// change.
    #[serde(default)]
    pub delivered_hz: f64,
    /// The server's side.
    pub server: EndUsage,
    /// The client's side.
    pub client: EndUsage,
    /// Numbers after the last one that a subscription received: lost, since the last number of a PV is never merged.
    pub lost_at_end: u64,
}

/// One side of a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndUsage {
    /// CPU time, in per cent of one CPU.
    pub cpu_per_cent: f64,
    /// Bytes sent in a second, divided by 1000; between two hosts with the headers of frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_kb_s: Option<f64>,
    /// The same, received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_kb_s: Option<f64>,
    /// Packets sent in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_packets_s: Option<f64>,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Number of threads.
    pub threads: u64,
}
