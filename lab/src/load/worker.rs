//! The two processes of a load, each in conversation with the laboratory: one JSON object per line.
//!
//! | to | request | answer |
//! |---|---|---|
//! | server | `{"produce":{"period_ns":100000000,"n_rounds":50}}` | `{"produced":{"n_posts":..,"late_max_ns":..}}` |
//! | both | `{"count":{}}` | server `{"counts":{"sent":..,"merged":..,"usage":{..}}}`, client `{"tallied":{..}}` |
//! | client | `{"watch":{"n_pvs":100,"n_subscriptions":10}}` | `{"watching":{"n_subscriptions":1000}}`, once each has its first update |
//! | client | `{"restart":{}}` | `{"restarted":{}}`: counting starts here |

use std::io::{BufRead, Write, stdin, stdout};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fodo_net::{Channel, Context, Monitor, MonitorEvent, MonitorOptions, Server, ServerConfig, TimeStamp};
use serde::{Deserialize, Serialize};

use super::double::{Double, Meddler, Update};
use super::source::Counters;
use super::tally::{self, Latencies, Sums, Tally};
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
        /// Latencies from the intended moment: per cent and nanoseconds.
        percentiles: Vec<(f64, f64)>,
        /// What it took.
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

/// Subscribes and counts until its input ends.
pub fn watch(double: Option<Double>) -> std::io::Result<()> {
    let context = Context::from_env().map_err(std::io::Error::other)?;
    let mut watcher = Watcher::new(context, double);
    converse(|ask| match ask {
        Ask::Watch { n_pvs, n_subscriptions } => match watcher.watch(n_pvs, n_subscriptions) {
            Ok(n_subscriptions) => Answer::Watching { n_subscriptions },
            Err(why) => Answer::Failed { why },
        },
        Ask::Restart {} => {
            watcher.restart();
            Answer::Restarted {}
        }
        Ask::Count {} => watcher.tallied(),
        other => Answer::Failed { why: format!("a client cannot {other:?}") },
    })
}

fn converse(mut answer: impl FnMut(Ask) -> Answer) -> std::io::Result<()> {
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

/// What both say once they take requests.
pub const READY: &str = "load worker ready";

/// How long all first updates may take.
const FIRST_UPDATES_MAX: Duration = Duration::from_secs(30);

struct Watcher {
    context: Context,
    double: Option<Double>,
    start: Instant,
    monitors: Vec<Monitor>,
    tallies: Vec<Arc<Mutex<Tally>>>,
    latencies: Arc<Mutex<Latencies>>,
    n_begun: Arc<AtomicU64>,
    n_received_before: u64,
    n_merged_before: u64,
}

impl Watcher {
    fn new(context: Context, double: Option<Double>) -> Watcher {
        Watcher {
            context,
            double,
            start: Instant::now(),
            monitors: Vec::new(),
            tallies: Vec::new(),
            latencies: Arc::default(),
            n_begun: Arc::default(),
            n_received_before: 0,
            n_merged_before: 0,
        }
    }

    fn watch(&mut self, n_pvs: u32, n_subscriptions: u32) -> Result<u64, String> {
        for pv in 0..n_pvs {
            let channel = self.context.channel(&format!("load:{pv:06}")).map_err(|error| error.to_string())?;
            for _ in 0..n_subscriptions {
                self.subscribe(&channel, pv)?;
            }
        }
        let wanted = self.monitors.len() as u64;
        let deadline = Instant::now() + FIRST_UPDATES_MAX;
        while self.n_begun.load(Ordering::Acquire) < wanted {
            if Instant::now() > deadline {
                return Err(format!("{} of {wanted} first updates came", self.n_begun.load(Ordering::Acquire)));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(wanted)
    }

    fn subscribe(&mut self, channel: &Channel, pv: u32) -> Result<(), String> {
        let tally = Arc::new(Mutex::new(Tally::default()));
        let mut meddler = Meddler::new(self.double, self.tallies.len() as u64);
        let (kept, latencies, n_begun) = (tally.clone(), self.latencies.clone(), self.n_begun.clone());
        let start = self.start;
        let monitor = channel.monitor_with(MonitorOptions::default(), move |event| {
            let MonitorEvent::Update(reading) = event else { return };
            let value = reading.value.first().and_then(|value| value.to_f64().ok()).unwrap_or(f64::NAN);
            let latency = since(reading.time);
            meddler.pass(Update { value, latency }, &mut |update| {
                let mut tally = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if tally.has_begun() {
                    latencies.lock().unwrap_or_else(PoisonError::into_inner).add(update.latency);
                } else {
                    n_begun.fetch_add(1, Ordering::AcqRel);
                }
                tally.add(tally::decode(pv, update.value), start.elapsed());
            });
        });
        self.monitors.push(monitor.map_err(|error| error.to_string())?);
        self.tallies.push(tally);
        Ok(())
    }

    /// What has come so far is forgotten, but for where each counter stands.
    fn restart(&mut self) {
        *self.latencies.lock().unwrap_or_else(PoisonError::into_inner) = Latencies::default();
        for tally in &self.tallies {
            tally.lock().unwrap_or_else(PoisonError::into_inner).restart();
        }
        (self.n_received_before, self.n_merged_before) = self.counts();
    }

    fn counts(&self) -> (u64, u64) {
        let counts = self.monitors.iter().map(Monitor::counts);
        counts.fold((0, 0), |(received, merged), one| (received + one.received, merged + one.merged))
    }

    fn tallied(&self) -> Answer {
        let mut sums = Sums::default();
        for tally in &self.tallies {
            sums.add(tally.lock().unwrap_or_else(PoisonError::into_inner).sums());
        }
        let (received, merged) = self.counts();
        Answer::Tallied {
            sums,
            merged: merged - self.n_merged_before,
            received: received - self.n_received_before,
            percentiles: self.latencies.lock().unwrap_or_else(PoisonError::into_inner).percentiles(),
            usage: Usage::of_this_process(),
        }
    }
}

/// From a moment of this host's wall clock until now; zero when it lies ahead.
fn since(then: TimeStamp) -> Duration {
    let now = TimeStamp::from(SystemTime::now());
    let nanos = (i128::from(now.unix_s) - i128::from(then.unix_s)) * 1_000_000_000 + i128::from(now.nanos)
        - i128::from(then.nanos);
    u64::try_from(nanos).map_or(Duration::ZERO, Duration::from_nanos)
}
