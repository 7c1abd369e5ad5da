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
        Ask::AwaitFresh { patience_ms } => watcher.await_fresh(Duration::from_millis(patience_ms)),
        Ask::Connect { n_channels, n_pvs } => match watcher.connect(n_channels, n_pvs) {
            Ok(n_channels) => Answer::Connected { n_channels, usage: Usage::of_this_process() },
            Err(why) => Answer::Failed { why },
        },
        other @ Ask::Produce { .. } => Answer::Failed { why: format!("a client cannot {other:?}") },
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
    fresh: Arc<Mutex<Fresh>>,
    channels: Vec<Channel>,
    n_received_before: u64,
    n_merged_before: u64,
}

/// Which subscriptions have had an update since counting started, and when the first and last had.
#[derive(Debug, Default)]
struct Fresh {
    has_update: Vec<bool>,
    n_fresh: usize,
    first_unix_ns: u64,
    last_unix_ns: u64,
}

impl Fresh {
    fn note(&mut self, subscription: usize) {
        if let Some(has_update @ false) = self.has_update.get_mut(subscription) {
            *has_update = true;
            self.n_fresh += 1;
            self.last_unix_ns = unix_ns();
            if self.n_fresh == 1 {
                self.first_unix_ns = self.last_unix_ns;
            }
        }
    }

    fn forget(&mut self) {
        self.has_update.fill(false);
        self.n_fresh = 0;
    }
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
            fresh: Arc::default(),
            channels: Vec::new(),
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
        let (subscription, fresh) = (self.tallies.len(), self.fresh.clone());
        fresh.lock().unwrap_or_else(PoisonError::into_inner).has_update.push(false);
        let monitor = channel.monitor_with(MonitorOptions::default(), move |event| {
            let MonitorEvent::Update(reading) = event else { return };
            fresh.lock().unwrap_or_else(PoisonError::into_inner).note(subscription);
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
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).forget();
        (self.n_received_before, self.n_merged_before) = self.counts();
    }

    fn await_fresh(&self, patience: Duration) -> Answer {
        let deadline = Instant::now() + patience;
        loop {
            let fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
            let (n_fresh, n_wanted) = (fresh.n_fresh, fresh.has_update.len());
            if n_fresh == n_wanted {
                return Answer::Fresh { first_unix_ns: fresh.first_unix_ns, all_unix_ns: fresh.last_unix_ns };
            }
            drop(fresh);
            if Instant::now() > deadline {
                return Answer::Failed { why: format!("{n_fresh} of {n_wanted} subscriptions came back") };
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn connect(&mut self, n_channels: u32, n_pvs: u32) -> Result<u64, String> {
        for index in 0..n_channels {
            let name = format!("load:{:06}", index % n_pvs.max(1));
            self.channels.push(self.context.channel(&name).map_err(|error| error.to_string())?);
        }
        for channel in &self.channels {
            channel.connect(FIRST_UPDATES_MAX).map_err(|error| error.to_string())?;
        }
        Ok(self.channels.len() as u64)
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

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// From a moment of this host's wall clock until now; zero when it lies ahead.
fn since(then: TimeStamp) -> Duration {
    let now = TimeStamp::from(SystemTime::now());
    let nanos = (i128::from(now.unix_s) - i128::from(then.unix_s)) * 1_000_000_000 + i128::from(now.nanos)
        - i128::from(then.nanos);
    u64::try_from(nanos).map_or(Duration::ZERO, Duration::from_nanos)
}
