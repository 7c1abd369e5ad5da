//! The two processes of a load. Each exchanges one JSON object per line with the laboratory.
//!
//! | to | request | answer |
//! |---|---|---|
//! | server | `{"produce":{"period_ns":100000000,"n_rounds":50}}` | `{"produced":{"n_posts":..,"late_max_ns":..}}` |
//! | server of a stream | `{"stream":{"duration_ms":5000}}` | as for `produce` |
//! | both | `{"count":{}}` | server `{"counts":{"sent":..,"merged":..,"usage":{..}}}`, client `{"tallied":{..}}` |
//! | client | `{"watch":{"n_pvs":100,"n_subscriptions":10}}` | `{"watching":{"n_subscriptions":1000}}`, once each has its first update |
//! | client | `{"restart":{}}` | `{"restarted":{}}`: counting starts here |
//! | client | `{"await_fresh":{"patience_ms":10000}}` | `{"fresh":{"first_unix_ns":..,"all_unix_ns":..}}`, once each has an update since `restart` |
//! | client | `{"connect":{"n_channels":10000,"n_pvs":1000}}` | `{"connected":{"n_channels":10000}}`, channels without subscriptions |
//!
//! For a server that cannot take these requests a generator replaces it: a client of Fodo that puts the values, or that
//! switches on records which count by themselves, and reads the final values.
//!
//! A server in Python prints [`READY`] and answers `produce` and `count`, without `usage`.
//!
//! A client in another language prints [`READY`] and answers `watch`, `restart` and `count`; Fodo in Java also `connect`. Its argument says whether
//! values are `plain` numbers or `checked`, see [`encode`](super::tally::encode); an array encodes a value by its ends, see
//! [`value_of_ends`](super::tally::value_of_ends). It counts like [`DeliveryTally`](super::tally::DeliveryTally), and omits
//! `usage`. `latencies` may be in buckets, by their upper bound.

use std::io::{BufRead, Write, stdin, stdout};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use fodo_net::{PvTable, PvaServerConfig, Server, ServerConfig};
use serde::{Deserialize, Serialize};

use super::source::LoadPvs;
use super::stream::StreamSource;
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
    /// Change an array as fast as it is sent.
    Stream {
        /// For how long.
        duration_ms: u64,
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
        /// Resource usage of the process with them; the laboratory measures it for a client in another language.
        #[serde(default)]
        usage: Usage,
    },
    /// What the server did with its posts.
    Counts {
        /// Updates handed to circuits.
        sent: u64,
        /// Updates replaced by later ones before they were sent.
        merged: u64,
        /// Resource usage; the laboratory measures it for a server in another language.
        #[serde(default)]
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
pub fn serve(n_pvs: u32, at: ServedAt) -> std::io::Result<()> {
    let counters = LoadPvs::new(n_pvs);
    let server = start(counters.table(), at)?;
    converse(|request| match request {
        LoadRequest::Produce { period_ns, n_rounds } => {
            let kept = counters.produce(Duration::from_nanos(period_ns), n_rounds);
            LoadReply::Produced { n_posts: kept.n_posts, late_max_ns: kept.late_max.as_nanos() as u64 }
        }
        other => counted(&server, &other),
    })
}

/// Serves an array until the end of its input, which changes as fast as it is sent.
pub fn serve_stream(n_elements: usize, at: ServedAt) -> std::io::Result<()> {
    let mut array = StreamSource::new(n_elements);
    let server = start(array.table(), at)?;
    converse(|request| match request {
        LoadRequest::Stream { duration_ms } => {
            let n_taken = || {
                let counts = server.update_counts();
                counts.sent + counts.merged
            };
            let n_posts = array.produce(Duration::from_millis(duration_ms), n_taken);
            LoadReply::Produced { n_posts, late_max_ns: 0 }
        }
        other => counted(&server, &other),
    })
}

/// Where a server of a load serves.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct ServedAt {
    /// Address of the interface.
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST)]
    host: Ipv4Addr,
    /// Port for searches and circuits.
    #[arg(long)]
    port: u16,
    /// The same for pvAccess.
    #[arg(long)]
    pva_port: u16,
}

fn start(pvs: Arc<PvTable>, at: ServedAt) -> std::io::Result<Server> {
    let ServedAt { host, port, pva_port } = at;
    let interfaces = vec![host];
    let pva = PvaServerConfig {
        port: pva_port,
        search_port: pva_port,
        interfaces: vec![host.into()],
        ..PvaServerConfig::isolated()
    };
    let config = ServerConfig { port, pva: Some(pva), interfaces, ..ServerConfig::isolated() };
    Server::start(config, pvs).map_err(std::io::Error::other)
}

/// The reply to a request that is the same for every load.
fn counted(server: &Server, request: &LoadRequest) -> LoadReply {
    if *request != (LoadRequest::Count {}) {
        return LoadReply::Failed { why: format!("a server does not support {request:?}") };
    }
    let counts = server.update_counts();
    LoadReply::Counts { sent: counts.sent, merged: counts.merged, usage: Usage::of_this_process() }
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
