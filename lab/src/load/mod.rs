//! Loads: many PVs with many subscriptions at a given rate, and an account of every update.
//!
//! The load is open: values change on schedule, whether or not updates are delivered, and latency counts from the
//! moment at which a value was scheduled to change. So a stall of server or client counts in the latency of every
//! update that waited meanwhile. The account, the ledger, combines what the server did with its posts and what each
//! subscription received; with Fodo at both ends every update must be explained. Other clients and servers report less:
//! with them latency counts from the server's time stamp, and missing updates are unattributed.

mod absent;
pub mod book;
mod cast;
pub mod command;
pub mod double;
pub mod group;
pub mod idle;
pub mod ioc;
pub mod ladder;
pub mod produce;
pub mod reconnect;
pub mod source;
#[cfg(unix)]
pub mod stalled;
pub mod stream;
pub mod suite;
pub mod tally;
pub mod traffic;
pub mod usage;
pub mod watch;
pub mod worker;

use std::ffi::OsString;
use std::time::{Duration, Instant};

use crate::driver::external::WatchTask;
use crate::driver::{ClientUnderTest, DriverFailure, protocol_of_names};
use crate::histogram;
use crate::limit::{WARM_UP_LOAD, WARM_UP_LOAD_SHARE};
use crate::placement::{CpuChoice, Placement, pin};
use crate::process::{ChildProcess, Launch, Ports};
use crate::protocol::LabProtocol;
use crate::result::{Ledger, Resources, ResultRow, RowVerdict, SampleUnit};
use crate::server::ServerKind;
use crate::warm_up::{WarmUp, WarmUpBounds, warm_up};

use self::cast::LoadProcesses;
pub use self::cast::TemporaryDatabase;
use self::double::Misbehavior;
use self::tally::{Latencies, Sums, UpdateRecording};
use self::traffic::{CircuitTraffic, SentBytes, TrafficCounters};
use self::usage::Usage;
use self::worker::{LoadReply, LoadRequest, READY};

/// Parameters of a fan-out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FanOut {
    /// Number of PVs.
    pub n_pvs: u32,
    /// Subscriptions to each PV.
    pub n_subscriptions: u32,
    /// Changes of each PV per second.
    pub rate_hz: f64,
    /// Duration of the load.
    pub duration: Duration,
    /// Makes the client misbehave; with a client other than ours, the generator.
    pub double: Option<Misbehavior>,
    /// The protocol of the subscriptions.
    pub protocol: LabProtocol,
    /// The client that subscribes.
    pub client: ClientUnderTest,
    /// The server of the PVs.
    pub server: ServerKind,
    /// How values change; `None` for the default of server and rate.
    pub producer: Option<Producer>,
    /// Elements of the array of a stream, see [`Producer::Stream`]; `None` for numbers.
    pub n_elements: Option<u32>,
    /// Number of PVs to which the client subscribes, from the first; `None` for all.
    pub n_watched: Option<u32>,
    /// What a client in Python records of an update.
    pub recording: UpdateRecording,
    /// Maximum time of the warm-up.
    pub warm_up_max: Duration,
}

/// How values change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Producer {
    /// Fodo's server changes them itself; each time stamp is the moment at which the value was scheduled to change.
    Schedule,
    /// The records of an IOC count by themselves, at a rate that SCAN supports.
    Calc,
    /// A client of Fodo puts them on schedule, without waiting.
    Puts,
    /// A program in Python sets the values of its own server on schedule.
    Python,
    /// Fodo's server changes one array as fast as it sends it, see [`stream`].
    #[value(skip)]
    #[serde(skip)]
    Stream,
}

impl Producer {
    /// Distinguishes its rows from those of our own schedule.
    fn variant_text(self) -> &'static str {
        match self {
            Producer::Schedule | Producer::Stream => "",
            Producer::Calc => ", calc",
            Producer::Puts => ", puts",
            Producer::Python => ", Python",
        }
    }

    /// From which moment latency counts.
    pub fn latency_text(self) -> &'static str {
        match self {
            Producer::Schedule => "from the intended moment of each change",
            Producer::Stream => "from the moment of each change",
            Producer::Calc => "from the time stamp of the record, which counts by itself, not from the intended moment",
            Producer::Puts => "from the time stamp that the server gave to a put, not from the intended moment",
            Producer::Python => "from the time stamp of each value, not from the intended moment",
        }
    }
}

/// Outcome of a fan-out.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadOutcome {
    /// The account of every update.
    pub ledger: Ledger,
    /// Values that their PV never had.
    pub wrong: u64,
    /// Numbers that the subscriptions skipped.
    pub missing: u64,
    /// Latencies, see [`Producer::latency_text`]: pairs of per cent and nanoseconds.
    pub percentiles: Vec<(f64, f64)>,
    /// All latencies, see [`ResultRow::histogram`].
    pub histogram: Vec<(f64, u64)>,
    /// Maximum lag of the generator behind its schedule.
    pub late_max: Duration,
    /// Updates delivered per second.
    pub delivered_hz: f64,
    /// What both ends used and sent while values changed, without what followed.
    pub window: LoadWindow,
    /// Output of the server that reports a full queue.
    pub complaint: Option<String>,
    /// Resource usage of the server while values changed.
    pub server: Usage,
    /// Resource usage of the client while values changed.
    pub client: Usage,
    /// What both sent meanwhile; `None` where it cannot be measured.
    pub traffic: Option<CircuitTraffic>,
    /// How both were warmed up before the measurement.
    pub warm_up: Option<WarmUp>,
}

/// Usage of both ends while values changed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadWindow {
    /// Its duration in seconds.
    pub seconds: f64,
    /// Usage of the server.
    pub server: Usage,
    /// Usage of the client.
    pub client: Usage,
    /// What both sent; `None` where it cannot be measured.
    pub traffic: Option<CircuitTraffic>,
}

/// Polling interval until all updates have arrived: the error of the measured duration.
const POLL: Duration = Duration::from_millis(50);
/// Time without a further update after which a complete load counts as settled.
const QUIET: Duration = Duration::from_millis(300);
/// The same while the last numbers are missing: only a busy core keeps a compiled client silent for so long.
const QUIET_INCOMPLETE: Duration = Duration::from_secs(1);
/// The same for a client of another language: garbage collection may keep it silent for a second.
const QUIET_COLLECTING: Duration = Duration::from_secs(4);
/// Maximum time of one request, in addition to the time during which values change.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// What EPICS prints when a queue of callbacks is full: the values that follow are lost.
const FULL_QUEUE: &str = "ring buffer full";
/// A generator further behind than this did not offer the requested load.
const LATE_MAX: Duration = Duration::from_millis(20);

impl FanOut {
    /// Runs the load, each end in its own process.
    pub fn run(&self, placement: Placement, cpus: &CpuChoice) -> Result<LoadOutcome, DriverFailure> {
        if let Some(why) = self.misfit(placement) {
            return Err(DriverFailure::Operation { what: "the load".into(), why });
        }
        let mut cast = LoadProcesses::start(self, placement, cpus)?;
        self.converse(&mut cast.server, &mut cast.client, cast.traffic)
    }

    /// Time without a further update after which missing updates are given up.
    fn incomplete_after(&self) -> Duration {
        if self.client.external().is_some() { QUIET_COLLECTING } else { QUIET_INCOMPLETE }
    }

    /// `traffic`: counters of what both send.
    pub(super) fn converse(
        &self,
        server: &mut ChildProcess,
        client: &mut ChildProcess,
        traffic: TrafficCounters,
    ) -> Result<LoadOutcome, DriverFailure> {
        let watch = LoadRequest::Watch { n_pvs: self.n_watched(), n_subscriptions: self.n_subscriptions };
        exchange(client, &watch, ANSWER_MAX)?;
        let warm_up = self.warm_up(server, client)?;
        let counted = self.count(server, client, traffic)?;
        Ok(LoadOutcome { warm_up, complaint: server.printed(FULL_QUEUE), ..counted })
    }

    /// Number of PVs to which the client subscribes.
    pub fn n_watched(&self) -> u32 {
        self.n_watched.unwrap_or(self.n_pvs).min(self.n_pvs)
    }

    /// Runs rounds of the same load until latency is steady. A double is not warmed up, because every error that it
    /// makes must be counted.
    fn warm_up(&self, server: &mut ChildProcess, client: &mut ChildProcess) -> Result<Option<WarmUp>, DriverFailure> {
        if self.double.is_some() {
            return Ok(None);
        }
        let round = self.duration.mul_f64(WARM_UP_LOAD_SHARE);
        let mut produce = || {
            exchange(client, &LoadRequest::Restart {}, ANSWER_MAX)?;
            let produced = self.produce(server, round)?;
            let settled = settle(server, client, produced.n_updates, self.incomplete_after())?;
            Ok(settled.client.latencies.median().unwrap_or(0.0))
        };
        let bounds = WarmUpBounds { time_max: self.warm_up_max, ..WARM_UP_LOAD };
        warm_up(bounds, &mut produce).map(Some)
    }

    fn produce(&self, server: &mut ChildProcess, duration: Duration) -> Result<Produced, DriverFailure> {
        let produce = match self.producer() {
            Producer::Stream => LoadRequest::Stream { duration_ms: duration.as_millis() as u64 },
            Producer::Schedule | Producer::Calc | Producer::Puts | Producer::Python => {
                let period = Duration::from_secs_f64(1.0 / self.rate_hz);
                let n_rounds = (duration.as_secs_f64() * self.rate_hz).round().max(1.0) as u64;
                LoadRequest::Produce { period_ns: period.as_nanos() as u64, n_rounds }
            }
        };
        match exchange(server, &produce, duration * 10 + ANSWER_MAX)? {
            LoadReply::Produced { n_posts, late_max_ns } => {
                // Each PV has changed as often as every other, or once more.
                let n_posts = n_posts * u64::from(self.n_watched()) / u64::from(self.n_pvs.max(1));
                Ok(Produced { n_updates: n_posts * u64::from(self.n_subscriptions), late_max_ns })
            }
            other => Err(unexpected(&other)),
        }
    }

    fn count(
        &self,
        server: &mut ChildProcess,
        client: &mut ChildProcess,
        traffic: TrafficCounters,
    ) -> Result<LoadOutcome, DriverFailure> {
        exchange(client, &LoadRequest::Restart {}, ANSWER_MAX)?;
        let (before, server_before) = counts(server)?;
        let client_before = tallied(client)?.usage;
        let traffic_before = traffic.read();

        let start = Instant::now();
        let Produced { n_updates: produced, late_max_ns } = self.produce(server, self.duration)?;
        let traffic_since = || traffic_before.and_then(|before| Some(traffic.read()?.since(before)));
        let window = LoadWindow {
            seconds: start.elapsed().as_secs_f64(),
            client: Usage::of_process(&client.number()).since(client_before),
            traffic: traffic_since(),
            server: counts(server)?.1.since(server_before),
        };
        let settled = settle(server, client, produced, self.incomplete_after())?;
        let Settled { counts: after, server: server_after, client: client_after, quiet } = settled;
        // The quiet time at the end is not part of the measurement.
        let took = start.elapsed().saturating_sub(quiet);
        let traffic = traffic_since();
        let sums = &client_after.sums;
        let merged_server = after.1 - before.1;
        let explained = merged_server + client_after.merged + sums.received;
        let rest = produced as i64 - explained as i64;
        // A missing update may be lost or merged, if a peer does not report which; an extra update is neither.
        let unattributed = if self.reports_all_merges() { 0 } else { rest.max(0) as u64 };
        let ledger = Ledger {
            produced,
            merged_server,
            received: client_after.received,
            merged_client: client_after.merged,
            delivered: sums.received,
            in_flight: 0,
            unexplained: rest - unattributed as i64,
            duplicates: sums.duplicates,
            out_of_order: sums.out_of_order,
            longest_gap_ms: sums.longest_gap_ms,
            unattributed,
            late_max_ms: late_max_ns as f64 / 1e6,
        };
        Ok(LoadOutcome {
            wrong: sums.wrong,
            missing: sums.missing,
            delivered_hz: ledger.delivered as f64 / took.as_secs_f64(),
            ledger,
            percentiles: client_after.latencies.percentiles(),
            histogram: histogram::compact(client_after.latencies.counts().into_iter()),
            late_max: Duration::from_nanos(late_max_ns),
            server: server_after.since(server_before),
            client: client_after.usage.since(client_before),
            traffic,
            window,
            complaint: None,
            warm_up: None,
        })
    }

    /// Whether both ends count their merged updates, so that every update must be explained.
    pub fn reports_all_merges(&self) -> bool {
        self.server.counts_updates() && self.client.is_fodo()
    }

    /// The outcome as a row of a result file: the median latency of delivery.
    pub fn row(&self, placement: Placement, outcome: &LoadOutcome) -> ResultRow {
        let median = outcome.percentiles.iter().find(|(per_cent, _)| *per_cent == 50.0).map(|(_, ns)| *ns);
        let failure = outcome.failure();
        ResultRow {
            question: "L1".into(),
            protocol: self.protocol,
            title: format!(
                "fan-out of {} PVs x {} subscriptions x {} Hz: latency of delivery, {}{}",
                self.n_pvs,
                self.n_subscriptions,
                self.rate_hz,
                self.producer().latency_text(),
                if self.reports_all_merges() {
                    ""
                } else {
                    "; a peer does not report whether missing updates are lost or merged"
                }
            ),
            series: placement.text().into(),
            variant: format!("{} PVs, {} Hz{}", self.n_pvs, self.rate_hz, self.producer().variant_text()),
            point: u64::from(self.n_pvs) * u64::from(self.n_subscriptions),
            client: self.client.text().into(),
            server: self.server.text().into(),
            unit: "ns".into(),
            per: SampleUnit::Operation,
            samples: median.into_iter().collect(),
            n_operations: outcome.ledger.delivered,
            median,
            percentiles: outcome.percentiles.clone(),
            histogram: outcome.histogram.clone(),
            verdict: if failure.is_some() { RowVerdict::Failed } else { RowVerdict::Measured },
            why: failure.or_else(|| {
                let late_ms = outcome.late_max.as_millis();
                let is_late = !outcome.kept_schedule();
                let late =
                    format!("the generator was up to {late_ms} ms behind: it offered less than the nominal load");
                is_late.then_some(late).or(outcome.warm_up.and_then(WarmUp::note))
            }),
            warm_up: outcome.warm_up,
            ledger: Some(outcome.ledger.clone()),
            resources: outcome.resources(),
            ..ResultRow::default()
        }
    }
}

impl LoadOutcome {
    /// The faults, as text; `None` when every update is accounted for and right.
    pub fn failure(&self) -> Option<String> {
        self.failure_apart_from_end(true)
    }

    /// Updates that are neither delivered nor followed by a later number of their PV.
    pub fn n_missing_at_end(&self) -> u64 {
        let ledger = &self.ledger;
        (ledger.merged_server + ledger.merged_client + ledger.unattributed).saturating_sub(self.missing)
    }

    /// The faults, as text; unless `is_end_required`, those of missing numbers without a later one are left out.
    pub fn failure_apart_from_end(&self, is_end_required: bool) -> Option<String> {
        let ledger = &self.ledger;
        let mut faults = Vec::new();
        if ledger.unexplained != 0 {
            faults.push(format!("{} updates unexplained", ledger.unexplained));
        }
        // The last number of a PV is never merged, so a later number follows every missing one.
        let merged = ledger.merged_server + ledger.merged_client + ledger.unattributed;
        match merged.checked_sub(self.missing) {
            Some(0) => {}
            Some(_) if !is_end_required => {}
            Some(n_last) => faults.push(format!("{n_last} numbers are missing without a later number of their PV")),
            None => faults.push(format!("{} numbers skipped, but {merged} merged or unattributed", self.missing)),
        }
        for (n, what) in [
            (ledger.duplicates, "duplicates"),
            (ledger.out_of_order, "out of order"),
            (self.wrong, "values that their PV never had"),
        ] {
            if n > 0 {
                faults.push(format!("{n} {what}"));
            }
        }
        (!faults.is_empty()).then(|| faults.join(", "))
    }

    /// Resource usage of each end.
    fn resources(&self) -> Vec<Resources> {
        let of = |role: &str, usage: &Usage, sent: Option<SentBytes>| Resources {
            role: role.into(),
            cpu_s_per_million: Some(usage.cpu_s / self.ledger.delivered.max(1) as f64 * 1e6),
            rss_bytes: Some(usage.rss_bytes),
            threads: Some(usage.threads),
            ctx_switches: Some(usage.ctx_switches),
            packets_sent: sent.map(|sent| sent.packets),
            bytes_sent: sent.map(|sent| sent.bytes),
        };
        let sent = self.traffic;
        vec![
            of("server", &self.server, sent.map(|sent| sent.server)),
            of("client", &self.client, sent.map(|sent| sent.client)),
        ]
    }

    /// Whether the generator kept its schedule; if not, it offered less than the requested load.
    pub fn kept_schedule(&self) -> bool {
        self.late_max <= LATE_MAX
    }
}

/// What a generator produced.
struct Produced {
    /// Sum over all subscriptions.
    n_updates: u64,
    late_max_ns: u64,
}

/// State after the last update arrived.
struct Settled {
    /// Updates that the server sent, and updates that it merged.
    counts: (u64, u64),
    server: Usage,
    client: Tallied,
    /// Time since the last update.
    quiet: Duration,
}

/// A client's counts of its subscriptions.
struct Tallied {
    sums: Sums,
    merged: u64,
    received: u64,
    latencies: Latencies,
    usage: Usage,
}

/// Waits until all `n_numbers` are received or skipped and no further update arrives, or until the rest is given up.
fn settle(
    server: &mut ChildProcess,
    client: &mut ChildProcess,
    n_numbers: u64,
    incomplete_after: Duration,
) -> Result<Settled, DriverFailure> {
    let deadline = Instant::now() + ANSWER_MAX;
    let mut last = (counts(server)?, tallied(client)?);
    let mut changed = Instant::now();
    let mut poll = POLL;
    loop {
        std::thread::sleep(poll);
        let requested = Instant::now();
        let now = (counts(server)?, tallied(client)?);
        // A client that needs long to count must have time to receive.
        poll = POLL.max(requested.elapsed() * 3);
        let sums = &now.1.sums;
        if now.0.0 != last.0.0 || *sums != last.1.sums {
            changed = Instant::now();
        }
        let enough = if sums.received + sums.missing >= n_numbers { QUIET } else { incomplete_after };
        if changed.elapsed() >= enough || Instant::now() > deadline {
            let ((counts, server), client) = now;
            return Ok(Settled { counts, server, client, quiet: changed.elapsed() });
        }
        last = now;
    }
}

fn counts(server: &mut ChildProcess) -> Result<((u64, u64), Usage), DriverFailure> {
    match exchange(server, &LoadRequest::Count {}, ANSWER_MAX)? {
        LoadReply::Counts { sent, merged, usage } => {
            let usage = if usage == Usage::default() { Usage::of_process(&server.number()) } else { usage };
            Ok(((sent, merged), usage))
        }
        other => Err(unexpected(&other)),
    }
}

fn tallied(client: &mut ChildProcess) -> Result<Tallied, DriverFailure> {
    match exchange(client, &LoadRequest::Count {}, ANSWER_MAX)? {
        LoadReply::Tallied { sums, merged, received, latencies, usage } => {
            let usage = if usage == Usage::default() { Usage::of_process(&client.number()) } else { usage };
            Ok(Tallied { sums, merged, received, latencies: Latencies::of_counts(&latencies), usage })
        }
        other => Err(unexpected(&other)),
    }
}

fn start_server(n_pvs: u32, cpus: &CpuChoice, ports: Ports) -> Result<ChildProcess, DriverFailure> {
    start_own_server(["serve-load", "--pvs", &n_pvs.to_string()], cpus, ports)
}

fn start_own_server(words: [&str; 3], cpus: &CpuChoice, ports: Ports) -> Result<ChildProcess, DriverFailure> {
    let (host, port, pva_port) = (ports.host.to_string(), ports.server.to_string(), ports.pva.to_string());
    let at = ["--host", &host, "--port", &port, "--pva-port", &pva_port];
    let words = words.into_iter().chain(at).map(OsString::from).collect();
    // Only its clients have a protocol.
    start("the load's server", words, cpus.server_cpu, ports, LabProtocol::Ca)
}

fn start_client(
    double: Option<Misbehavior>,
    protocol: LabProtocol,
    placement: Placement,
    cpus: &CpuChoice,
    ports: Ports,
) -> Result<ChildProcess, DriverFailure> {
    cast::fodo(ClientUnderTest::Fodo, double, WatchTask::every(protocol), cpus.client_cpu(placement), ports)
}

fn start(
    who: &str,
    words: Vec<OsString>,
    cpu: Option<usize>,
    ports: Ports,
    protocol: LabProtocol,
) -> Result<ChildProcess, DriverFailure> {
    let program = crate::program::path().map_err(|why| unavailable(who, &why))?;
    let mut args: Vec<OsString> = vec!["lab".into(), "worker".into()];
    args.extend(words);
    let variables = vec![protocol_of_names(protocol)];
    let mut process = ChildProcess::start(&Launch { who: who.into(), program, args, cpu, ports, variables })?;
    process.wait_for(ANSWER_MAX, |line| (line == READY).then_some(()))?;
    Ok(process)
}

/// Does `work` on a thread on this CPU, or on any: threads that it starts stay there as well.
fn on_cpu<T: Send>(
    cpu: Option<usize>,
    work: impl FnOnce() -> Result<T, DriverFailure> + Send,
) -> Result<T, DriverFailure> {
    let pinned = || {
        cpu.map(pin).transpose().map_err(|why| unavailable("the client's processor", &why))?;
        work()
    };
    let ended = std::thread::scope(|scope| scope.spawn(pinned).join());
    ended.unwrap_or_else(|_| Err(DriverFailure::Protocol { line: "the client's thread panicked".into() }))
}

fn exchange(
    process: &mut ChildProcess,
    question: &LoadRequest,
    patience: Duration,
) -> Result<LoadReply, DriverFailure> {
    let line = serde_json::to_string(question).map_err(|error| DriverFailure::Protocol { line: error.to_string() })?;
    process.write_line(&line)?;
    match process.wait_for(patience, |line| serde_json::from_str(line).ok())? {
        LoadReply::Failed { why } => Err(DriverFailure::Operation { what: line, why }),
        answer => Ok(answer),
    }
}

fn unexpected(answer: &LoadReply) -> DriverFailure {
    DriverFailure::Protocol { line: format!("{answer:?}") }
}

fn unavailable(who: &str, why: &std::io::Error) -> DriverFailure {
    DriverFailure::Unavailable { who: who.into(), why: why.to_string() }
}
