//! The two processes of a load. Each exchanges one JSON object per line with the laboratory.
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
//! For a server that cannot take these requests a generator replaces it: a client of Fodo that puts the values, or that
//! switches on records which count by themselves, and reads the final values.
//!
//! A client in another language prints [`READY`] and answers `watch`, `restart` and `count`. Its argument says whether
//! values are `plain` numbers or `checked`, see [`encode`](super::tally::encode). It counts like
//! [`Tally`](super::tally::Tally), and omits `usage`. `latencies` may be in buckets, by their upper bound.

use std::io::{BufRead, Write, stdin, stdout};
use std::time::Duration;

use fodo_net::{Server, ServerConfig};
use serde::{Deserialize, Serialize};

use super::source::LoadPvs;
use super::tally::Sums;
use super::usage::Usage;

/// A request of the laboratory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadRequest {
    /// Change every PV on schedule.
    Produce {
        /// Time between two changes of a PV.
        period_ns: u64,
        /// Number of changes of each PV.
        n_rounds: u64,
    },
    /// Subscribe.
    Watch {
        /// Number of PVs, from the first.
        n_pvs: u32,
        /// Subscriptions to each PV.
        n_subscriptions: u32,
    },
    /// Reset the counts.
    Restart {},
    /// Wait until every subscription has received an update since `restart`.
    AwaitFresh {
        /// Maximum time to wait.
        patience_ms: u64,
    },
    /// Connect channels without subscriptions.
    Connect {
        /// Number of channels.
        n_channels: u32,
        /// Number of PVs, in turn.
        n_pvs: u32,
    },
    /// Report the counts.
    Count {},
}

/// An answer of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadReply {
    /// The schedule is done.
    Produced {
        /// Changes of all PVs together.
        n_posts: u64,
        /// Maximum delay of a change after its scheduled moment.
        late_max_ns: u64,
    },
    /// Every subscription has received its first update.
    Watching {
        /// Number of subscriptions.
        n_subscriptions: u64,
    },
    /// Counting starts.
    Restarted {},
    /// Every subscription has received an update.
    Fresh {
        /// When the first subscription received it, by this host's wall clock.
        first_unix_ns: u64,
        /// When the last subscription received it.
        all_unix_ns: u64,
    },
    /// The channels are connected.
    Connected {
        /// Number of channels.
        n_channels: u64,
        /// Resource usage of the process with them.
        usage: Usage,
    },
    /// What the server did with its posts.
    Counts {
        /// Updates handed to circuits.
        sent: u64,
        /// Updates replaced by later ones before they were sent.
        merged: u64,
        /// Resource usage.
        usage: Usage,
    },
    /// What the subscriptions received.
    Tallied {
        /// Sums over all subscriptions.
        sums: Sums,
        /// Updates that the client replaced by later ones before they were delivered.
        merged: u64,
        /// Updates received from its circuit, including first ones.
        received: u64,
        /// Latencies from the time stamp: pairs of nanoseconds and the number of latencies with that value.
        latencies: Vec<(u64, u64)>,
        /// Resource usage; the laboratory measures it for a client in another language.
        #[serde(default)]
        usage: Usage,
    },
    /// The request failed.
    Failed {
        /// The reason.
        why: String,
    },
}

/// Serves counters until the end of its input.
pub fn serve(n_pvs: u32, port: u16) -> std::io::Result<()> {
    let counters = LoadPvs::new(n_pvs);
    let server = Server::start(ServerConfig { port, ..ServerConfig::isolated() }, counters.table())
        .map_err(std::io::Error::other)?;
    converse(|request| match request {
        LoadRequest::Produce { period_ns, n_rounds } => {
            let kept = counters.produce(Duration::from_nanos(period_ns), n_rounds);
            LoadReply::Produced { n_posts: kept.n_posts, late_max_ns: kept.late_max.as_nanos() as u64 }
        }
        LoadRequest::Count {} => {
            let counts = server.update_counts();
            LoadReply::Counts { sent: counts.sent, merged: counts.merged, usage: Usage::of_this_process() }
        }
        other => LoadReply::Failed { why: format!("a server does not support {other:?}") },
    })
}

/// Answers requests until the end of the input.
pub(super) fn converse(mut answer: impl FnMut(LoadRequest) -> LoadReply) -> std::io::Result<()> {
    println!("{READY}");
    for line in stdin().lock().lines() {
        let line = line?;
        let reply = match serde_json::from_str(&line) {
            Ok(request) => answer(request),
            Err(error) => LoadReply::Failed { why: format!("invalid request: {error}") },
        };
        let mut out = stdout().lock();
        serde_json::to_writer(&mut out, &reply)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

/// The name of a PV of a load.
pub fn name_of(pv: u32) -> String {
    format!("load:{pv:06}")
}

/// The line that both processes print when they are ready for requests.
pub const READY: &str = "load worker ready";
