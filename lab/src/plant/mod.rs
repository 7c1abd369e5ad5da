//! Measures existing PVs of a real server without harm: no server is started, and puts require permission.
//!
//! A worker process makes the timed calls, on this host or on the host of an [`crate::agent`]. It reads one JSON object
//! per line and writes one per answer. It rejects its only request that puts, unless it was started with
//! `--allow-puts`. Its client has a single search address, the [`gate`] in the same process. The gate forwards only
//! searches for the given names, within the rate limit, and returns only replies of permitted servers.

pub mod command;
mod gate;
mod limiter;
pub mod link;
mod rows;
mod text;
pub mod worker;

use std::net::SocketAddr;

use fodo_net::ClientConfig;
use serde::{Deserialize, Serialize};

/// Limits of a run against a plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub struct RunLimits {
    /// Allow addresses other than loopback, including broadcasts.
    #[arg(long)]
    pub allow_net: bool,
    /// Put each PV's current value back, with completion: this processes its record.
    #[arg(long)]
    #[serde(default)]
    pub allow_puts: bool,
    /// Maximum number of searches, channels, gets, puts and subscriptions together, per second.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_ops_per_second: u32,
    /// Maximum number of PVs.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_channels: u32,
}

impl RunLimits {
    /// The stricter of both limits, in every respect.
    pub fn within(self, other: RunLimits) -> RunLimits {
        RunLimits {
            allow_net: self.allow_net && other.allow_net,
            allow_puts: self.allow_puts && other.allow_puts,
            max_ops_per_second: self.max_ops_per_second.min(other.max_ops_per_second),
            max_channels: self.max_channels.min(other.max_channels),
        }
    }
}

/// The search addresses of this process's EPICS_CA_* variables; an error if `caps` do not allow them.
pub fn search_addresses(caps: RunLimits) -> Result<Vec<SocketAddr>, String> {
    let addresses = ClientConfig::from_env().map_err(|why| why.to_string())?.search_addresses;
    let outside: Vec<String> =
        addresses.iter().filter(|address| !address.ip().is_loopback()).map(ToString::to_string).collect();
    if caps.allow_net || outside.is_empty() {
        return Ok(addresses);
    }
    Err(format!(
        "searches would leave this host, to {}; nothing was sent. Use --allow-net to permit that, or set \
         EPICS_CA_ADDR_LIST=127.0.0.1 and EPICS_CA_AUTO_ADDR_LIST=NO to stay here",
        outside.join(", ")
    ))
}

/// A request to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlantRequest {
    /// Return the current time.
    Clock {},
    /// Connect to each PV, one after another, and keep the channels.
    Connect {
        /// The names.
        pvs: Vec<String>,
    },
    /// Connect to as many PVs concurrently as the operations of one second allow, in new channels.
    ConnectAtOnce {},
    /// Get one PV repeatedly, blocking.
    Get {
        /// The PV's name.
        pv: String,
        /// Number of gets.
        n: usize,
    },
    /// Repeatedly get one PV and put the value back with completion; the puts are timed.
    PutBack {
        /// The PV's name.
        pv: String,
        /// Number of puts.
        n: usize,
    },
    /// Get as many PVs concurrently as the operations of one second allow.
    GetAtOnce {},
    /// Subscribe to each PV, one after another.
    Subscribe {},
    /// Count the updates of the subscriptions.
    Watch {
        /// Start, by the clock of the worker's host.
        start_unix_ns: u64,
        /// Duration.
        seconds: f64,
    },
}

/// An answer of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlantReply {
    /// The wall clock.
    Clock {
        /// Nanoseconds since 1970.
        unix_ns: u64,
    },
    /// One entry per PV, in the order of the request.
    Connected(Vec<ConnectedPv>),
    /// A concurrent operation is done.
    AtOnce {
        /// From the first start to the last reply.
        ns: u64,
        /// Number of connected channels or received values.
        n: u64,
        /// Number of PVs requested.
        n_requested: u64,
    },
    /// The gets of one PV.
    Got {
        /// The time of each get.
        latencies_ns: Vec<u64>,
        /// Elements of the last value.
        n_elements: u64,
        /// Bytes of these elements.
        bytes: u64,
    },
    /// The puts of one PV.
    PutBack {
        /// The time of each put.
        latencies_ns: Vec<u64>,
    },
    /// One entry per connected PV.
    Subscribed(Vec<FirstUpdate>),
    /// One entry per subscription.
    Watched {
        /// When counting started, by the clock of the worker's host.
        started_unix_ns: u64,
        /// The counts.
        seen: Vec<SubscriptionCounts>,
    },
    /// The request failed.
    Failed {
        /// The reason.
        why: String,
    },
}

/// The result of connecting to a PV.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConnectedPv {
    /// The PV's name.
    pub pv: String,
    /// From the search to the confirmed channel.
    pub ns: u64,
    /// The address of its server.
    pub server: String,
    /// The kind of its elements, as the server reports it.
    pub kind: String,
    /// Maximum number of elements, as the server reports it.
    pub count_max: u32,
    /// Why it is not connected, if so.
    pub failed: Option<String>,
}

/// The first update of a subscription.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FirstUpdate {
    /// The PV's name.
    pub pv: String,
    /// From the subscription to the update.
    pub ns: u64,
    /// Why there is no update, if so.
    pub failed: Option<String>,
}

/// The updates of a subscription.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionCounts {
    /// The PV's name.
    pub pv: String,
    /// Duration of counting.
    pub ns: u64,
    /// Updates received from the server.
    pub received: u64,
    /// Updates delivered to the program.
    pub delivered: u64,
    /// Updates replaced by newer ones in our client's queue.
    pub merged: u64,
    /// Updates with an earlier time stamp than the previous update.
    pub out_of_order: u64,
    /// The longest time without an update, including the start and the end of the period.
    pub longest_gap_ns: u64,
    /// How often the channel was lost.
    pub n_lost: u64,
}
