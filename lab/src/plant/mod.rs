//! Existing PVs of a real server, measured without harm: nothing is started, and nothing is put unless that is allowed.
//!
//! A worker process does the timed calls, here or on the host of an [`crate::agent`]. It reads one JSON
//! object per line and writes one per answer. Its one request that puts is refused unless the worker itself was started
//! with the word for it. Its client knows one search
//! address, the [`gate`] in the same process, which sends on only searches for the names that were given,
//! within the cap, and lets back only servers that may be reached.

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

/// How much a plant may be asked, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub struct Caps {
    /// Allow addresses other than loopback, broadcasts among them.
    #[arg(long)]
    pub allow_net: bool,
    /// Put each PV's own value back, with completion: its record is processed.
    #[arg(long)]
    #[serde(default)]
    pub allow_puts: bool,
    /// Searches, channels, gets, puts and subscriptions together, per second at most.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_ops_per_second: u32,
    /// PVs at most.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_channels: u32,
}

impl Caps {
    /// The narrower of both, in every respect.
    pub fn within(self, other: Caps) -> Caps {
        Caps {
            allow_net: self.allow_net && other.allow_net,
            allow_puts: self.allow_puts && other.allow_puts,
            max_ops_per_second: self.max_ops_per_second.min(other.max_ops_per_second),
            max_channels: self.max_channels.min(other.max_channels),
        }
    }
}

/// Where searches go by this process's EPICS_CA_* variables; refused, in words, when `caps` do not allow it.
pub fn search_addresses(caps: Caps) -> Result<Vec<SocketAddr>, String> {
    let addresses = ClientConfig::from_env().map_err(|why| why.to_string())?.search_addresses;
    let outside: Vec<String> =
        addresses.iter().filter(|address| !address.ip().is_loopback()).map(ToString::to_string).collect();
    if caps.allow_net || outside.is_empty() {
        return Ok(addresses);
    }
    Err(format!(
        "searches would leave this host, to {}: nothing was sent. Give --allow-net if that is what you want, or set \
         EPICS_CA_ADDR_LIST=127.0.0.1 and EPICS_CA_AUTO_ADDR_LIST=NO to stay here",
        outside.join(", ")
    ))
}

/// What a worker is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// What time is it?
    Clock {},
    /// Connect to each PV, one after another, and keep the channels.
    Connect {
        /// The names.
        pvs: Vec<String>,
    },
    /// Connect to as many of them at once as one second's operations allow, in new channels.
    ConnectAtOnce {},
    /// Get one PV, blocking, again and again.
    Get {
        /// Its name.
        pv: String,
        /// How often.
        n: usize,
    },
    /// Get one PV and put that value back with completion, again and again; the puts are timed.
    PutBack {
        /// Its name.
        pv: String,
        /// How often.
        n: usize,
    },
    /// Get as many at once as one second's operations allow.
    GetAtOnce {},
    /// Subscribe to each, one after another.
    Subscribe {},
    /// Count what the subscriptions bring.
    Watch {
        /// From this moment on, by the clock of the worker's host.
        start_unix_ns: u64,
        /// For so long.
        seconds: f64,
    },
}

/// What a worker answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The wall clock.
    Clock {
        /// Since 1970.
        unix_ns: u64,
    },
    /// One for each PV, in their order.
    Connected(Vec<Found>),
    /// Done at once.
    AtOnce {
        /// From the first start to the last answer.
        ns: u64,
        /// Connected channels or values that came.
        n: u64,
        /// How many were asked.
        n_asked: u64,
    },
    /// The gets of one PV.
    Got {
        /// Each.
        latencies_ns: Vec<u64>,
        /// Elements of the last one.
        n_elements: u64,
        /// Bytes of its elements.
        bytes: u64,
    },
    /// The puts of one PV.
    PutBack {
        /// Each.
        latencies_ns: Vec<u64>,
    },
    /// One for each connected PV.
    Subscribed(Vec<First>),
    /// One for each subscription.
    Watched {
        /// When counting began, by the clock of this host.
        started_unix_ns: u64,
        /// What came.
        seen: Vec<Seen>,
    },
    /// Cannot.
    Failed {
        /// Why.
        why: String,
    },
}

/// A PV that was looked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Its name.
    pub pv: String,
    /// From the search to the confirmed channel.
    pub ns: u64,
    /// Who serves it.
    pub server: String,
    /// The kind of its elements, as announced.
    pub kind: String,
    /// How many elements it can hold, as announced.
    pub count_max: u32,
    /// Why it is not connected.
    pub failed: Option<String>,
}

/// The first update of a subscription.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct First {
    /// Of which PV.
    pub pv: String,
    /// From the subscription to the update.
    pub ns: u64,
    /// Why there is none.
    pub failed: Option<String>,
}

/// What a subscription brought.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Of which PV.
    pub pv: String,
    /// How long it was looked at.
    pub ns: u64,
    /// Updates that came from the server.
    pub received: u64,
    /// Updates that were handed over.
    pub delivered: u64,
    /// Updates replaced by newer ones in our client's queue.
    pub merged: u64,
    /// Updates with an earlier time stamp than the one before.
    pub out_of_order: u64,
    /// The longest time without an update, start and end of the period included.
    pub longest_gap_ns: u64,
    /// How often the channel was lost.
    pub n_lost: u64,
}
