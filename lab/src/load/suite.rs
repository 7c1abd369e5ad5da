//! The loads of a run: `loads/loads.toml` lists them; this module turns each into rows.

use std::time::{Duration, Instant};

use serde::Deserialize;

use super::double::Misbehavior;
use super::stream::StreamRates;
use super::tally::UpdateRecording;
use super::{FanOut, LoadOutcome, Producer, absent, idle, ioc, ladder, reconnect};
use crate::driver::{ClientUnderTest, DriverFailure};
use crate::limit::WARM_UP_LOAD;
use crate::placement::{CpuChoice, Placement};
use crate::protocol::LabProtocol;
use crate::result::{ResultRow, RowVerdict, SampleUnit};
use crate::scenario::Suite;
use crate::server::ServerKind;

const FILE: &str = include_str!("../../loads/loads.toml");

/// One load of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The question's id: `L1` and so on.
    pub question: String,
    /// The question.
    pub title: String,
    /// What is done and measured.
    pub method: String,
    /// How it is verified that the work was done.
    pub verification: String,
    kind: LoadKind,
    /// The protocol; Channel Access by default.
    #[serde(default)]
    protocol: LabProtocol,
    /// Clients, each with its server.
    pairs: Vec<(ClientUnderTest, ServerKind)>,
    suites: Vec<Suite>,
    repetitions: usize,
    /// Whether the client is pinned to one CPU; yes by default.
    #[serde(default = "pinned")]
    is_client_pinned: bool,
}

fn pinned() -> bool {
    true
}

/// The kind of work.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LoadKind {
    /// See [`FanOut`].
    FanOut(Offered),
    /// See [`ladder`].
    Ladder(Offered),
    /// See [`super::stalled`].
    Stalled(Offered),
    /// See [`reconnect`].
    Reconnect { points: Vec<u32>, down_seconds: f64 },
    /// See [`StreamRates`].
    Stream(StreamSize),
    /// See [`idle`].
    Idle { n: u32, n_pvs: u32 },
    /// See [`absent`].
    Absent { n_names: u32, after_seconds: f64, for_seconds: f64 },
    /// See [`ioc::IocBenchmark::load`].
    Records { n: u32 },
    /// See [`ioc::IocBenchmark::idle_clients`].
    IdleClients { n: u32 },
    /// See [`ioc::IocBenchmark::scans`].
    Scans { n: u32, seconds: f64 },
    /// See [`ioc::IocBenchmark::chain`].
    Chain { n: u32, n_puts: u32 },
    /// See [`ioc::IocBenchmark::round_trips`].
    RoundTrips { n_puts: u32 },
    /// The highest rate, up to that of `offered`, without loss, merge or delay.
    Sustained { offered: Offered, p99_ms_max: f64 },
}

/// The offered load.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offered {
    /// As in [`FanOut`], and so are the rest.
    pub n_pvs: u32,
    /// Subscriptions to each PV.
    pub n_subscriptions: u32,
    /// Changes of each PV per second.
    pub hz: f64,
    /// Duration.
    pub seconds: f64,
    /// How values change.
    #[serde(default)]
    pub producer: Option<Producer>,
    /// Makes one end misbehave.
    #[serde(skip)]
    pub double: Option<Misbehavior>,
}

/// A stream of arrays.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSize {
    /// Doubles of each array.
    pub n_elements: u32,
    /// Duration.
    pub seconds: f64,
    /// Makes the client misbehave.
    #[serde(skip)]
    pub double: Option<Misbehavior>,
}

/// Where loads run, and until when.
#[derive(Clone, Copy, Debug)]
pub struct RunConditions<'a> {
    /// Where client and server run.
    pub placement: Placement,
    /// The CPUs.
    pub cpus: &'a CpuChoice,
    /// Time after which no further work starts.
    pub deadline: Instant,
}

#[derive(Deserialize)]
struct File {
    load: Vec<Load>,
}

impl Load {
    /// All loads of the file, in the order of the tables.
    pub fn all() -> Result<Vec<Load>, toml::de::Error> {
        toml::from_str::<File>(FILE).map(|file| file.load)
    }

    /// A load that is not in the file, with the texts of the first one that has the same question.
    pub fn with_arguments(
        question: &str,
        kind: LoadKind,
        (pair, protocol): ((ClientUnderTest, ServerKind), LabProtocol),
        repetitions: usize,
    ) -> Option<Load> {
        let known = Load::all().ok()?.into_iter().find(|load| load.question == question)?;
        Some(Load { kind, protocol, pairs: vec![pair], repetitions, ..known })
    }

    /// Whether it belongs to a suite.
    pub fn belongs_to(&self, suite: Suite) -> bool {
        self.suites.contains(&suite)
    }

    /// Its pairs whose client, or the client that it is a variant of, is in `clients`.
    fn pairs_of(&self, clients: &[ClientUnderTest]) -> impl Iterator<Item = &(ClientUnderTest, ServerKind)> {
        let is_selected = |client: &ClientUnderTest| clients.contains(client) || clients.contains(&client.variant_of());
        self.pairs.iter().filter(move |(client, _)| is_selected(client))
    }

    /// Number of repetitions of all its pairs whose client is in `clients`.
    pub fn n_repetitions(&self, clients: &[ClientUnderTest]) -> usize {
        self.pairs_of(clients).count() * self.repetitions
    }

    /// Runs the load; rows without a result state the reason. `report` receives the name of each pair before it runs.
    pub fn rows(
        &self,
        clients: &[ClientUnderTest],
        conditions: &RunConditions<'_>,
        report: &mut dyn FnMut(&str),
    ) -> Vec<ResultRow> {
        let mut rows = Vec::new();
        for &(client, server) in self.pairs_of(clients) {
            report(&format!("{}, {} with {}", self.question, client.text(), server.text()));
            let RunConditions { placement, cpus, deadline } = *conditions;
            let placement = match placement {
                Placement::TwoCores if !self.is_client_pinned => Placement::ClientNotPinned,
                placement => placement,
            };
            rows.extend(LoadRun { load: self, client, server, placement, cpus, deadline }.rows());
        }
        rows
    }
}

/// One load for one client and server.
struct LoadRun<'a> {
    load: &'a Load,
    client: ClientUnderTest,
    server: ServerKind,
    placement: Placement,
    cpus: &'a CpuChoice,
    deadline: Instant,
}

impl LoadRun<'_> {
    fn rows(&self) -> Vec<ResultRow> {
        match &self.load.kind {
            LoadKind::FanOut(offered) => vec![self.fan_out(offered)],
            LoadKind::Ladder(offered) => self.ladder(offered),
            LoadKind::Stalled(offered) => self.stalled(offered),
            LoadKind::Reconnect { points, down_seconds } => {
                points.iter().flat_map(|&n_pvs| self.reconnect(n_pvs, seconds(*down_seconds))).collect()
            }
            LoadKind::Stream(size) => self.stream(size),
            LoadKind::Idle { n, n_pvs } => self.idle(*n, *n_pvs),
            LoadKind::Absent { n_names, after_seconds, for_seconds } => {
                vec![self.absent(*n_names, seconds(*after_seconds), seconds(*for_seconds))]
            }
            LoadKind::Sustained { offered, p99_ms_max } => vec![self.sustained(offered, *p99_ms_max)],
            LoadKind::Records { n } => self.records(*n),
            LoadKind::IdleClients { n } => self.idle_clients(*n),
            LoadKind::Scans { n, seconds: counted } => {
                let row = self.row("processor time in each second", u64::from(*n), "ns");
                vec![self.ioc_loads(row, |benchmark| benchmark.scans(*n, seconds(*counted)).map(|cpu_s| cpu_s * 1e9))]
            }
            LoadKind::Chain { n, n_puts } => {
                let row = self.row("by FLNK", u64::from(*n), "records/s");
                vec![self.ioc_loads(row, |benchmark| benchmark.chain(*n, *n_puts))]
            }
            LoadKind::RoundTrips { n_puts } => self.round_trips(*n_puts),
        }
    }

    /// Repeats `work` as often as requested and as time permits; stops at the first failure.
    fn repeat<T>(&self, work: impl Fn() -> Result<T, DriverFailure>) -> (Vec<T>, Option<DriverFailure>) {
        let mut done = Vec::new();
        while done.len() < self.load.repetitions && Instant::now() < self.deadline {
            match work() {
                Ok(outcome) => done.push(outcome),
                Err(failure) => return (done, Some(failure)),
            }
        }
        (done, None)
    }

    fn offered(&self, offered: &Offered) -> FanOut {
        FanOut {
            protocol: self.load.protocol,
            n_pvs: offered.n_pvs,
            n_subscriptions: offered.n_subscriptions,
            rate_hz: offered.hz,
            duration: seconds(offered.seconds),
            double: offered.double,
            client: self.client,
            server: self.server,
            producer: offered.producer,
            n_elements: None,
            n_watched: None,
            recording: UpdateRecording::Every,
            warm_up_max: WARM_UP_LOAD.time_max,
        }
    }

    fn fan_out(&self, offered: &Offered) -> ResultRow {
        let load = self.offered(offered);
        let (outcomes, failure) = self.repeat(|| load.run(self.placement, self.cpus));
        self.joined(&load, &outcomes.iter().collect::<Vec<_>>(), failure)
    }

    /// The repetitions of one load as a row, with the ledger of the one that failed, or of the last.
    fn joined(&self, load: &FanOut, outcomes: &[&LoadOutcome], failure: Option<DriverFailure>) -> ResultRow {
        let rows: Vec<ResultRow> = outcomes.iter().map(|outcome| load.row(self.placement, outcome)).collect();
        let is_failed = |row: &&ResultRow| row.verdict == RowVerdict::Failed;
        let Some(shown) = rows.iter().find(is_failed).or(rows.last()) else {
            return self.without_number("", 0, failure);
        };
        let samples = rows.iter().flat_map(|row| row.samples.clone()).collect();
        let mut row = ResultRow { samples, question: self.load.question.clone(), ..shown.clone() };
        row.summarize(1);
        match failure {
            Some(failure) => ResultRow { verdict: RowVerdict::Failed, why: Some(failure.to_string()), ..row },
            None => row,
        }
    }

    /// A row for each step, with updates delivered per updates offered, and a row for the maximum.
    fn ladder(&self, offered: &Offered) -> Vec<ResultRow> {
        let first = self.offered(offered);
        let (climbs, failure) = self.repeat(|| ladder::run_ladder(first, self.placement, self.cpus));
        let highest = climbs.iter().max_by_key(|steps| steps.len()).cloned().unwrap_or_default();
        let mut rows = Vec::new();
        for (load, _) in &highest {
            let at_rate = climbs.iter().flatten().filter(|(step, _)| step.rate_hz == load.rate_hz);
            let outcomes: Vec<&LoadOutcome> = at_rate.map(|(_, outcome)| outcome).collect();
            let n_offered = f64::from(load.n_pvs) * f64::from(load.n_subscriptions) * load.rate_hz;
            let mut row = ResultRow {
                title: self.load.title.clone(),
                variant: "delivered of so many updates/s offered".into(),
                point: n_offered as u64,
                unit: "updates/s".into(),
                samples: outcomes.iter().map(|outcome| outcome.delivered_hz).collect(),
                // They are those of latencies, in another unit.
                percentiles: Vec::new(),
                histogram: Vec::new(),
                ..self.joined(load, &outcomes, None)
            };
            row.summarize(1);
            rows.push(row);
        }
        let fault = climbs.iter().flatten().find_map(|(_, outcome)| outcome.failure());
        let most = self.row("the most", u64::from(offered.n_pvs * offered.n_subscriptions), "updates/s");
        let samples = climbs.iter().map(|steps| ladder::most_hz(steps)).collect();
        let mut most = self.measured(most, samples, fault, failure);
        most.why = most.why.or_else(|| climbs.last().map(|steps| ladder::end(steps).to_owned()));
        rows.push(most);
        rows
    }

    /// The rate at which values are received, that of the raw stream, and their ratio in each repetition.
    fn stream(&self, size: &StreamSize) -> Vec<ResultRow> {
        let one = Offered {
            n_pvs: 1,
            n_subscriptions: 1,
            hz: 0.0,
            seconds: size.seconds,
            producer: None,
            double: size.double,
        };
        let load = FanOut { n_elements: Some(size.n_elements), ..self.offered(&one) };
        let (runs, failure) = self.repeat(|| StreamRates::run(&load, size.n_elements, self.placement, self.cpus));
        let outcomes: Vec<&LoadOutcome> = runs.iter().map(|run| &run.outcome).collect();
        let fault = outcomes.iter().find_map(|outcome| outcome.failure());
        let of = |variant: &str, unit: &str, number: fn(&StreamRates) -> f64| {
            let samples = runs.iter().map(number).collect();
            let row = self.row(variant, u64::from(size.n_elements), unit);
            self.measured(row, samples, fault.clone(), failure.clone())
        };
        let raw = of("raw stream beside it", "MB/s", |run| run.raw);
        let received = of("received", "MB/s", |run| run.received);
        let account = self.joined(&load, &outcomes, failure.clone());
        let received = ResultRow {
            floor: raw.median,
            ledger: account.ledger,
            resources: account.resources,
            warm_up: account.warm_up,
            why: received.why.clone().or(account.why),
            ..received
        };
        vec![received, raw, of("share of the raw stream", "x", |run| run.received / run.raw)]
    }

    fn reconnect(&self, n_pvs: u32, down: Duration) -> Vec<ResultRow> {
        let (backs, failure) =
            self.repeat(|| reconnect::run(self.load.protocol, n_pvs, down, self.placement, self.cpus));
        let of = |variant: &str, time: fn(&reconnect::RecoveryTimes) -> Duration| {
            let samples = backs.iter().map(|back| time(back).as_nanos() as f64).collect();
            self.measured(self.row(variant, u64::from(n_pvs), "ns"), samples, None, failure.clone())
        };
        vec![of("first update", |back| back.first), of("all updates", |back| back.all)]
    }

    fn idle(&self, n: u32, n_pvs: u32) -> Vec<ResultRow> {
        let client = (self.client, self.load.protocol);
        let (found, failure) = self.repeat(|| idle::run(client, n, n_pvs, self.placement, self.cpus));
        let outside = if self.client.external().is_some() { ", outside the heap" } else { "" };
        let of = |variant: &str, bytes: fn(&idle::IdleMemory) -> f64| {
            let samples = found.iter().map(bytes).collect();
            let of_client = if variant.ends_with("client") { outside } else { "" };
            let row = self.row(&format!("{variant}{of_client}"), u64::from(n), "bytes");
            self.measured(row, samples, None, failure.clone())
        };
        vec![
            of("channel, client", |idle| idle.client_channel),
            of("channel, server", |idle| idle.server_channel),
            of("subscription, client", |idle| idle.client_subscription),
            of("subscription, server", |idle| idle.server_subscription),
        ]
    }

    fn benchmark(&self) -> ioc::IocBenchmark<'_> {
        ioc::IocBenchmark { server: self.server, placement: self.placement, cpus: self.cpus }
    }

    fn ioc_loads(
        &self,
        row: ResultRow,
        work: impl Fn(&ioc::IocBenchmark<'_>) -> Result<f64, DriverFailure>,
    ) -> ResultRow {
        let (samples, failure) = self.repeat(|| work(&self.benchmark()));
        self.measured(row, samples, None, failure)
    }

    fn records(&self, n: u32) -> Vec<ResultRow> {
        let (found, failure) = self.repeat(|| self.benchmark().load(n));
        let of = |variant: &str, unit: &str, number: fn(&ioc::DatabaseCost) -> f64| {
            let samples = found.iter().map(number).collect();
            self.measured(self.row(variant, u64::from(n), unit), samples, None, failure.clone())
        };
        vec![
            of("memory of each ao", "bytes", |loaded| loaded.record_bytes),
            of("loading all", "ns", |loaded| loaded.time.as_nanos() as f64),
        ]
    }

    fn idle_clients(&self, n: u32) -> Vec<ResultRow> {
        let (found, failure) = self.repeat(|| self.benchmark().idle_clients(n));
        let of = |variant: &str, unit: &str, number: fn(&ioc::IdleClientCost) -> f64| {
            let samples = found.iter().map(number).collect();
            self.measured(self.row(variant, u64::from(n), unit), samples, None, failure.clone())
        };
        vec![
            of("memory for each", "bytes", |clients| clients.client_bytes),
            of("threads for each", "threads", |clients| clients.client_threads),
        ]
    }

    fn round_trips(&self, n_puts: u32) -> Vec<ResultRow> {
        let (found, failure) = self.repeat(|| self.benchmark().round_trips(n_puts));
        let of = |variant: &str, unit: &str, number: fn(&ioc::RoundTrips) -> f64| {
            let samples = found.iter().map(number).collect();
            self.measured(self.row(variant, u64::from(n_puts), unit), samples, None, failure.clone())
        };
        vec![
            of("each put", "ns", |trips| trips.put.as_nanos() as f64),
            of("floors", "x", |trips| trips.put.as_secs_f64() / trips.floor.as_secs_f64().max(f64::MIN_POSITIVE)),
        ]
    }

    /// One client searches; the counting intervals of the repetitions are consecutive.
    fn absent(&self, n_names: u32, after: Duration, counted: Duration) -> ResultRow {
        let times = absent::CountingIntervals { after, counted, n_counts: self.load.repetitions };
        let client = (self.client, self.load.protocol);
        let (found, failure) = if Instant::now() < self.deadline {
            match absent::run(client, n_names, times, self.placement, self.cpus) {
                Ok(found) => (found, None),
                Err(failure) => (Vec::new(), Some(failure)),
            }
        } else {
            (Vec::new(), None)
        };
        let variant = format!("after {:.0} s", after.as_secs_f64());
        let samples = found.iter().map(|absent| absent.datagrams_hz).collect();
        self.measured(self.row(&variant, u64::from(n_names), "datagrams each second"), samples, None, failure)
    }

    /// The highest rate without loss, merge or delay, to a twentieth: halved until the load is carried, then bisected.
    fn sustained(&self, highest: &Offered, p99_ms_max: f64) -> ResultRow {
        let is_well = |hz: f64| -> Result<bool, DriverFailure> {
            let load = self.offered(&Offered { hz, ..*highest });
            let outcome = load.run(self.placement, self.cpus)?;
            let ledger = &outcome.ledger;
            let n_merged = ledger.merged_server + ledger.merged_client + ledger.unattributed;
            let p99_ms = outcome.percentiles.iter().find(|(at, _)| *at == 99.0).map_or(f64::MAX, |(_, ns)| ns / 1e6);
            Ok(outcome.failure().is_none() && n_merged == 0 && outcome.kept_schedule() && p99_ms <= p99_ms_max)
        };
        let n = f64::from(highest.n_pvs) * f64::from(highest.n_subscriptions);
        // The next search starts near the last result.
        let start = std::cell::Cell::new(highest.hz);
        let (found, failure) = self.repeat(|| {
            let found = search(start.get(), highest.hz, is_well)?;
            start.set(found.map_or(highest.hz, |hz| (hz * NEAR).min(highest.hz)));
            Ok(found)
        });
        let row = self.row(&format!("p99 below {p99_ms_max} ms"), n as u64, "updates/s");
        let fault = found.contains(&None).then(|| "no rate down to a thousandth of the highest is carried".to_owned());
        self.measured(row, found.into_iter().flatten().map(|hz| hz * n).collect(), fault, failure)
    }

    /// Latencies without and with a client that has stopped reading, and the ratio of both p99.
    #[cfg(unix)]
    fn stalled(&self, offered: &Offered) -> Vec<ResultRow> {
        use super::stalled::Stalled;
        let load = self.offered(offered);
        let (runs, failure) = self.repeat(|| Stalled::run(&load, self.placement, self.cpus));
        let of = |variant: &str, outcome: fn(&Stalled) -> &LoadOutcome| {
            let outcomes: Vec<&LoadOutcome> = runs.iter().map(outcome).collect();
            ResultRow { variant: variant.into(), ..self.joined(&load, &outcomes, failure.clone()) }
        };
        let fault = runs.iter().find_map(|run| run.alone.failure().or(run.beside.failure()));
        let row = self.row("p99 beside to p99 alone", u64::from(offered.n_pvs * offered.n_subscriptions), "x");
        let ratios = runs.iter().map(Stalled::ratio_of_p99).collect();
        vec![
            of("alone", |run| &run.alone),
            of("beside a stalled client", |run| &run.beside),
            self.measured(row, ratios, fault, failure.clone()),
        ]
    }

    #[cfg(not(unix))]
    fn stalled(&self, _offered: &Offered) -> Vec<ResultRow> {
        let why = "pausing a client is supported on Unix only".to_owned();
        vec![Row { why: Some(why), ..self.row("p99 beside to p99 alone", 0, "x") }]
    }

    fn row(&self, variant: &str, point: u64, unit: &str) -> ResultRow {
        ResultRow {
            question: self.load.question.clone(),
            protocol: self.load.protocol,
            title: self.load.title.clone(),
            series: self.placement.text().into(),
            variant: if variant.is_empty() { "none".into() } else { variant.into() },
            point,
            client: self.client.text().into(),
            server: self.server.text().into(),
            unit: unit.into(),
            per: SampleUnit::Operation,
            n_operations: 1,
            ..ResultRow::default()
        }
    }

    fn measured(
        &self,
        row: ResultRow,
        samples: Vec<f64>,
        fault: Option<String>,
        failure: Option<DriverFailure>,
    ) -> ResultRow {
        if let Some(DriverFailure::Unavailable { who, why }) = failure {
            return ResultRow { why: Some(format!("{who}: {why}")), ..row };
        }
        let why = fault.or(failure.map(|failure| failure.to_string()));
        let mut row = ResultRow { samples, ..row };
        row.summarize(1);
        match why {
            Some(why) => ResultRow { verdict: RowVerdict::Failed, why: Some(why), samples: Vec::new(), ..row },
            None if row.samples.is_empty() => {
                ResultRow { why: Some("the time limit of the run was reached before this load".into()), ..row }
            }
            None => ResultRow { verdict: RowVerdict::Measured, ..row },
        }
    }

    fn without_number(&self, variant: &str, point: u64, failure: Option<DriverFailure>) -> ResultRow {
        self.measured(self.row(variant, point, "ns"), Vec::new(), None, failure)
    }
}

/// Ratio of both ends of the interval at which a search ends.
const CLOSE: f64 = 1.05;
/// The next search starts at the last rate found times this factor.
const NEAR: f64 = 1.3;
/// Maximum number of halvings: a rate below a thousandth of the first counts as none.
const HALVINGS_MAX: usize = 10;

/// The highest rate up to `highest` for which `is_well` holds, to a twentieth, searching from `start`; `None` when
/// there is none.
fn search(
    start: f64,
    highest: f64,
    is_well: impl Fn(f64) -> Result<bool, DriverFailure>,
) -> Result<Option<f64>, DriverFailure> {
    let (mut good, mut bad) = (start, f64::INFINITY);
    let mut n_halvings = 0;
    while !is_well(good)? {
        if n_halvings == HALVINGS_MAX {
            return Ok(None);
        }
        n_halvings += 1;
        bad = good;
        good /= 2.0;
    }
    while bad.is_infinite() && good < highest {
        let next = (good * 2.0).min(highest);
        if is_well(next)? {
            good = next;
        } else {
            bad = next;
        }
    }
    while bad.is_finite() && bad / good > CLOSE {
        let between = (good * bad).sqrt();
        if is_well(between)? {
            good = between;
        } else {
            bad = between;
        }
    }
    Ok(Some(good))
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_is_parsed_and_each_suite_has_loads() {
        let loads = Load::all().unwrap();

        for suite in Suite::ALL {
            assert!(loads.iter().any(|load| load.belongs_to(suite)), "{suite:?}");
        }
        assert!(loads.iter().all(|load| load.repetitions > 0 && !load.pairs.is_empty()));
    }

    #[test]
    fn a_full_run_loads_every_client_for_ten_seconds_with_both_servers() {
        let loads: Vec<Load> = Load::all().unwrap().into_iter().filter(|load| load.belongs_to(Suite::Full)).collect();
        let fan_outs: Vec<&Load> = loads.iter().filter(|load| matches!(load.kind, LoadKind::FanOut(_))).collect();

        for load in &fan_outs {
            assert!(matches!(load.kind, LoadKind::FanOut(offered) if offered.seconds >= 10.0), "{load:?}");
        }
        for client in ClientUnderTest::of(LabProtocol::Ca) {
            for server in [ServerKind::Fodo, ServerKind::SoftIoc] {
                assert!(fan_outs.iter().any(|load| load.pairs.contains(&(client, server))), "{client:?} {server:?}");
            }
        }
        let not_pinned = (ClientUnderTest::PsiCa, ServerKind::SoftIoc);
        assert!(fan_outs.iter().any(|load| !load.is_client_pinned && load.pairs.contains(&not_pinned)));
    }

    #[test]
    fn the_suite_java_has_the_highest_rate_of_rows_beside_that_of_a_group_in_rust() {
        let loads = Load::all().unwrap();

        let of_java = loads.iter().filter(|load| load.belongs_to(Suite::Java) && load.question == "L6");

        let clients = [ClientUnderTest::Fodo, ClientUnderTest::FodoJava];
        let measured: Vec<ClientUnderTest> =
            of_java.flat_map(|load| load.pairs_of(&clients)).map(|(client, _)| *client).collect();
        assert!(measured.contains(&ClientUnderTest::FodoGroup) && measured.contains(&ClientUnderTest::FodoJavaRows));
    }

    #[test]
    fn after_the_deadline_no_load_starts_and_every_row_says_so() {
        let cpus = CpuChoice { server_cpu: None, other_cpu: None, are_siblings: false };
        let conditions = RunConditions { placement: Placement::Unpinned, cpus: &cpus, deadline: Instant::now() };

        for load in Load::all().unwrap() {
            let rows = load.rows(&ClientUnderTest::ALL, &conditions, &mut |_| {});

            assert!(rows.len() >= load.pairs.len(), "{load:?}");
            for row in rows {
                assert_eq!(row.verdict, RowVerdict::NotRun, "{row:?}");
                assert!(row.why.as_ref().is_some_and(|why| why.contains("time limit of the run")), "{row:?}");
            }
        }
    }

    #[test]
    fn the_rate_search_ends_close_below_the_highest_sustainable_rate() {
        for (limit, start) in [(3.0, 1000.0), (77.0, 1000.0), (400.0, 90.0), (5000.0, 90.0), (5000.0, 1000.0)] {
            let found = search(start, 1000.0, |hz| Ok(hz <= limit)).unwrap().unwrap();

            let highest = f64::min(limit, 1000.0);
            assert!(found <= highest && found * CLOSE >= highest, "{found} of {highest}");
        }
        assert_eq!(search(1000.0, 1000.0, |_| Ok(false)).unwrap(), None);
    }
}
