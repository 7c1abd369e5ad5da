//! The two processes of a load, each in conversation with the laboratory: one JSON object per line.
//!
//! | to | request | answer |
//! |---|---|---|
//! | server | `{"produce":{"period_ns":100000000,"n_rounds":50}}` | `{"produced":{"n_posts":..,"late_max_ns":..}}` |
//! | both | `{"count":{}}` | server `{"counts":{"sent":..,"merged":..,"usage":{..}}}`, client `{"tallied":{..}}` |
//! | client | `{"watch":{"n_pvs":100,"n_subscriptions":10}}` | `{"watching":{"n_subscriptions":1000}}`, once each has its first update |
//! | client | `{"restart":{}}` | `{"restarted":{}}`: counting starts here |
//! | client | `{"await_fresh":{"patience_ms":10000}}` | `{"fresh":{"first_unix_ns":..,"all_unix_ns":..}}`, once each has an update since `restart` |
//! | client | `{"connect":{"n_channels":10000,"n_pvs":1000}}` | `{"connected":{"n_channels":10000}}`, channels without subscriptions |
//!
//! Beside a server that takes no requests a generator plays its part: a client of Fodo that puts the values, or
//! that switches records on which count by themselves, and reads at the end what they hold.
//!
//! A client in another language says [`READY`] and answers `watch`, `restart` and `count`; it is told at its start
//! whether values are `plain` numbers or `checked`, see [`encode`](super::tally::encode). It counts as
//! [`Tally`](super::tally::Tally) does, and leaves `usage` out. `latencies` may be in buckets, by their upper bound.

use std::io::{BufRead, Write, stdin, stdout};
use std::net::Ipv4Addr;
use std::time::Duration;

use fodo_net::{Server, ServerConfig};
use serde::{Deserialize, Serialize};

use super::source::Counters;
use super::tally::Sums;
use super::usage::Usage;

/// What the laboratory asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Change every PV on schedule.
    Produce {
        /// Between two changes of a PV.
        period_ns: u64,
        /// How many changes of each PV.
        n_rounds: u64,
    },
    /// Subscribe.
    Watch {
        /// PVs, from the first.
        n_pvs: u32,
        /// Subscriptions to each of them.
        n_subscriptions: u32,
    },
    /// Forget what was counted.
    Restart {},
    /// Wait until every subscription has an update since then.
    AwaitFresh {
        /// How long at most.
        patience_ms: u64,
    },
    /// Connect channels without subscriptions.
    Connect {
        /// How many.
        n_channels: u32,
        /// To how many PVs, in turn.
        n_pvs: u32,
    },
    /// Say what was counted.
    Count {},
}

/// What the processes answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The schedule is done.
    Produced {
        /// Changes of all PVs together.
        n_posts: u64,
        /// The longest that a change came after its moment.
        late_max_ns: u64,
    },
    /// Every subscription has its first update.
    Watching {
        /// How many.
        n_subscriptions: u64,
    },
    /// Counting starts.
    Restarted {},
    /// Every subscription has an update.
    Fresh {
        /// When the first had it, by the wall clock of this host.
        first_unix_ns: u64,
        /// When the last had it.
        all_unix_ns: u64,
    },
    /// The channels are connected.
    Connected {
        /// How many.
        n_channels: u64,
        /// What the process takes with them.
        usage: Usage,
    },
    /// What the server did with its posts.
    Counts {
        /// Updates handed to circuits.
        sent: u64,
        /// Updates replaced by later ones before.
        merged: u64,
        /// What it took.
        usage: Usage,
    },
    /// What the subscriptions got.
    Tallied {
        /// Over all of them.
        sums: Sums,
        /// Updates that the client replaced by later ones before they were delivered.
        merged: u64,
        /// Updates that its circuit brought, first ones included.
        received: u64,
        /// Latencies from the time stamp: pairs of nanoseconds and how often that was.
        latencies: Vec<(u64, u64)>,
        /// What it took; a client in another language leaves that to the laboratory.
        #[serde(default)]
        usage: Usage,
    },
    /// Cannot.
    Failed {
        /// Why.
        why: String,
    },
}

/// Serves counters until its input ends.
pub fn serve(n_pvs: u32, port: u16) -> std::io::Result<()> {
    let counters = Counters::new(n_pvs);
    let config = ServerConfig {
        interfaces: vec![Ipv4Addr::LOCALHOST],
        port,
        beacon_addresses: Vec::new(),
        beacons_to_interfaces: false,
        ..ServerConfig::default()
    };
    let server = Server::start(config, counters.clone()).map_err(std::io::Error::other)?;
    converse(|ask| match ask {
        Ask::Produce { period_ns, n_rounds } => {
            let kept = counters.produce(Duration::from_nanos(period_ns), n_rounds);
            Answer::Produced { n_posts: kept.n_posts, late_max_ns: kept.late_max.as_nanos() as u64 }
        }
        Ask::Count {} => {
            let counts = server.update_counts();
            Answer::Counts { sent: counts.sent, merged: counts.merged, usage: Usage::of_this_process() }
        }
        other => Answer::Failed { why: format!("a server cannot {other:?}") },
    })
}

/// Answers requests until there are none.
pub(super) fn converse(mut answer: impl FnMut(Ask) -> Answer) -> std::io::Result<()> {
    println!("{READY}");
    for line in stdin().lock().lines() {
        let line = line?;
        let said = match serde_json::from_str(&line) {
            Ok(ask) => answer(ask),
            Err(error) => Answer::Failed { why: format!("not understood: {error}") },
        };
        let mut out = stdout().lock();
        serde_json::to_writer(&mut out, &said)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

/// A PV of a load.
pub fn name_of(pv: u32) -> String {
    format!("load:{pv:06}")
}

/// What both say once they take requests.
pub const READY: &str = "load worker ready";
