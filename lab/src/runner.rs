//! A run: starts servers, does the work in random order, and collects rows.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Instant, UNIX_EPOCH};

use fastrand::Rng;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::driver::{ClientUnderTest, DriverFailure, DriverProcess, Hello};
use crate::hosts::TwoHosts;
use crate::journal::{Journal, TaskOutcome};
use crate::limit::{
    FULL_MAX, FULL_QUESTIONS_MAX, HOSTS_REPETITIONS_MAX, JAVA_MAX, JAVA_QUESTIONS_MAX, QUICK_MAX, QUICK_QUESTIONS_MAX,
    WARM_UP, WARM_UP_QUICK,
};
use crate::lines::RowsInProgress;
use crate::load::suite::{Load, RunConditions};
use crate::machine::Machine;
use crate::pair::ClientServerPair;
use crate::peers::Peers;
use crate::placement::{CpuChoice, HostLink, Placement};
use crate::protocol::LabProtocol;
use crate::result::{PeerInfo, ResultFile, ResultRow};
use crate::scenario::{self, DriverTaskRunner, LabTask, Scenario, Suite};
use crate::server::{DatabaseFile, ServerKind, ServerUnderTest};

/// The settings of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunSettings {
    /// The suite.
    pub suite: Suite,
    /// Number of repetitions.
    pub repetitions: usize,
    /// Seed of the order of work and of the bootstrap.
    pub seed: u64,
    /// Elements of the largest array.
    pub elements_max: usize,
    /// The clients to compare; the floor is always measured.
    pub clients: Vec<ClientUnderTest>,
    /// The servers to compare.
    pub servers: Vec<ServerKind>,
    /// The questions to measure; all if empty.
    pub questions: Vec<String>,
    /// Slows our client down, to test whether this is detected.
    pub slower_per_cent: u32,
}

/// The journal of a run.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// The path of the journal.
    pub path: PathBuf,
    /// Whether the run continues from it.
    pub is_resumed: bool,
}

/// One run of a driver process, which receives every request once.
#[derive(Clone, Copy, Debug)]
pub struct DriverRun {
    /// The client and the server.
    pub pair: ClientServerPair,
    /// The placement.
    pub placement: Placement,
    /// Number of previous repetitions.
    pub repetition: usize,
}

impl DriverRun {
    /// Whether `other` has the same client, server and placement.
    fn is_beside(self, other: DriverRun) -> bool {
        (self.pair, self.placement) == (other.pair, other.placement)
    }
}

/// The servers of a run, by kind and by link to their clients.
type Servers = HashMap<(ServerKind, HostLink), ServerUnderTest>;

/// The constant state of a run.
struct RunContext<'a> {
    settings: &'a RunSettings,
    peers: &'a Peers,
    cpus: CpuChoice,
    tasks: Vec<LabTask>,
    servers: Servers,
    /// Time after which no further question starts.
    questions_until: Instant,
    /// Time after which no further work starts.
    deadline: Instant,
}

/// Runs all questions and loads. Rows fail individually; only an error that affects all rows fails the run.
pub fn run(settings: &RunSettings, peers: &Peers, keeping: Option<&JournalOptions>) -> std::io::Result<ResultFile> {
    let start = Instant::now();
    let machine = Machine::describe();
    let cpus = CpuChoice::find();
    let mut scenarios = Scenario::all().map_err(std::io::Error::other)?;
    scenarios.retain(|scenario| settings.questions.is_empty() || settings.questions.contains(&scenario.question));
    let tasks = scenario::tasks(&scenarios, settings.suite, settings.elements_max);
    let mut loads = Load::all().map_err(std::io::Error::other)?;
    let is_selected = |load: &Load| settings.questions.is_empty() || settings.questions.contains(&load.question);
    loads.retain(|load| load.belongs_to(settings.suite) && is_selected(load));
    let header = header(settings, &machine, peers)?;
    let mut journal = keeping.map(|keep| Journal::open(&keep.path, &header, keep.is_resumed)).transpose()?;
    let pairs = ClientServerPair::selected(settings);
    let missing = missing(&pairs, peers);
    let mut lines = RowsInProgress::new(&scenarios, &tasks, &places(&pairs, &cpus, settings.suite), &missing);
    let (questions_max, most) = match settings.suite {
        Suite::Quick => (QUICK_QUESTIONS_MAX, QUICK_MAX),
        Suite::Full | Suite::Ioc | Suite::Pva => (FULL_QUESTIONS_MAX, FULL_MAX),
        Suite::Java => (JAVA_QUESTIONS_MAX, JAVA_MAX),
    };
    let hosts = lines.need_hosts().then(TwoHosts::make);
    if let Some(Err(why)) = &hosts {
        lines.skip_hosts(why);
    }
    let joined = hosts.as_ref().and_then(|hosts| hosts.as_ref().ok());
    let links = links(&tasks, joined);
    let servers = start_servers(&pairs, scenario::n_numbered(&tasks), &cpus, &links, peers, &mut lines)?;
    let (questions_until, deadline) = (start + questions_max, start + most);
    let context = RunContext { settings, peers, cpus, tasks, servers, questions_until, deadline };
    let driver_runs = driver_runs(&pairs, &context.cpus, settings);
    let n_of_loads: usize = loads.iter().map(|load| load.n_repetitions(&settings.clients)).sum();
    let progress = progress(driver_runs.len() + n_of_loads);
    let mut hellos: HashMap<ClientUnderTest, Hello> = HashMap::new();
    let mut runner: Option<(DriverRun, DriverTaskRunner)> = None;
    for client in &settings.clients {
        let hello = journal.as_ref().and_then(|journal| journal.hello(client.text())).cloned();
        hellos.extend(hello.map(|hello| (*client, hello)));
    }
    for driver_run in driver_runs {
        progress.set_message(format!("{} with {}", driver_run.pair.client.text(), driver_run.pair.server.text()));
        let kept = runner.take().filter(|(last, _)| last.is_beside(driver_run) && driver_run.pair.stays());
        let mut current = kept.map(|(_, runner)| runner);
        context.run_driver(driver_run, &mut current, &mut lines, &mut hellos, &mut journal)?;
        runner = current.map(|current| (driver_run, current));
        progress.inc(1);
    }
    drop(runner);
    let mut rows = context.load_rows(&loads, &progress, &mut journal)?;
    progress.finish_and_clear();
    let mut result = ResultFile::new(settings.suite.text(), &machine.date);
    result.duration_s = start.elapsed().as_secs_f64();
    result.machine = machine_words(&machine, &context.cpus, hosts.as_ref())?;
    result.settings = map(settings)?;
    result.settings.insert("resumed".into(), keeping.is_some_and(|keep| keep.is_resumed).into());
    result.peers = peers_of(settings, peers, &hellos, &missing);
    lines.finish(&scenarios, settings.seed, &mut result);
    result.rows.append(&mut rows);
    Ok(result)
}

/// The header of a journal: only a run with the same arguments, build and peers may continue it.
fn header(settings: &RunSettings, machine: &Machine, peers: &Peers) -> std::io::Result<String> {
    let mut header = map(settings)?;
    let built = crate::program::path().and_then(|this| this.metadata()?.modified());
    let built = built.ok().and_then(|at| Some(at.duration_since(UNIX_EPOCH).ok()?.as_secs()));
    header.insert("fodo_version".into(), machine.fodo_version.clone().into());
    header.insert("fodo_built_unix_s".into(), built.into());
    header.insert("epics_version".into(), peers.epics.as_ref().ok().map(|epics| epics.version.clone()).into());
    Ok(Value::Object(header).to_string())
}

fn map(serialized: &impl Serialize) -> std::io::Result<Map<String, Value>> {
    match serde_json::to_value(serialized)? {
        Value::Object(map) => Ok(map),
        _ => Ok(Map::new()),
    }
}

fn missing(pairs: &[ClientServerPair], peers: &Peers) -> HashMap<ClientServerPair, String> {
    let mut of_clients: HashMap<ClientUnderTest, Option<String>> = HashMap::new();
    let mut missing = HashMap::new();
    for &pair in pairs {
        let of_client = of_clients.entry(pair.client).or_insert_with(|| pair.client.missing(peers)).clone();
        if let Some(why) = of_client.or_else(|| pair.server.missing(peers)) {
            missing.insert(pair, why);
        }
    }
    missing
}

fn peers_of(
    settings: &RunSettings,
    peers: &Peers,
    hellos: &HashMap<ClientUnderTest, Hello>,
    missing: &HashMap<ClientServerPair, String>,
) -> Vec<PeerInfo> {
    let mut known = Vec::new();
    for client in &settings.clients {
        let hello = hellos.get(client).cloned().unwrap_or_default();
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        let why = missing.iter().find(|(pair, _)| pair.client == *client && hello.version.is_empty());
        known.push(PeerInfo {
            name: client.text().into(),
            version: some(hello.version),
            runtime: some(hello.runtime),
            missing: why.map(|(_, why)| why.clone()),
        });
    }
    for server in settings.servers.iter().filter(|server| server.is_peer()) {
        let version = server.version(peers);
        known.push(PeerInfo { name: server.text().into(), version, runtime: None, missing: server.missing(peers) });
    }
    known
}

fn places(pairs: &[ClientServerPair], cpus: &CpuChoice, suite: Suite) -> Vec<(ClientServerPair, Placement)> {
    let mut places = Vec::new();
    // A virtual machine needs a core of its own, and the studies had one for each end; a quick run has no time for more.
    let is_apart_only = matches!(suite, Suite::Java | Suite::Quick);
    let is_selected = |placement: &Placement| !is_apart_only || *placement == cpus.apart();
    for placement in cpus.placements().into_iter().filter(is_selected) {
        places.extend(pairs.iter().filter(|pair| pair.is_measured(placement)).map(|pair| (*pair, placement)));
    }
    if cfg!(target_os = "linux") && !is_apart_only {
        // Only pairs that are compared with the floor; the others would be as slow as on one host.
        let is_there = |pair: &&ClientServerPair| {
            pair.protocol == LabProtocol::Ca
                && pair.client.external().is_none()
                && pair.server != ServerKind::Caproto
                && **pair != ClientServerPair::SPINNING
        };
        for placement in Placement::APART {
            places.extend(pairs.iter().filter(is_there).map(|pair| (*pair, placement)));
        }
    }
    places
}

/// The links that the tasks use, each with its hosts.
fn links<'a>(tasks: &[LabTask], hosts: Option<&'a TwoHosts>) -> Vec<(HostLink, Option<&'a TwoHosts>)> {
    let apart = Placement::APART.into_iter().filter(|placement| tasks.iter().any(|task| task.is_for(*placement)));
    let apart = apart.filter_map(|placement| Some((placement.link(), Some(hosts?))));
    std::iter::once((HostLink::Loopback, None)).chain(apart).collect()
}

fn start_servers(
    pairs: &[ClientServerPair],
    n_numbered: usize,
    cpus: &CpuChoice,
    links: &[(HostLink, Option<&TwoHosts>)],
    peers: &Peers,
    lines: &mut RowsInProgress,
) -> std::io::Result<Servers> {
    // Removed at the end of this function: every server has read it, and an interrupted run leaves no file behind.
    let database = DatabaseFile::write(n_numbered)?;
    let mut servers = HashMap::new();
    let kinds = [
        ServerKind::Raw,
        ServerKind::Fodo,
        ServerKind::FodoSpin,
        ServerKind::SoftIoc,
        ServerKind::Caproto,
        ServerKind::Qsrv2,
        ServerKind::Qsrv1,
    ];
    for kind in kinds {
        if kind.missing(peers).is_some() || !pairs.iter().any(|pair| pair.server == kind) {
            continue;
        }
        for &(link, hosts) in
            links.iter().filter(|(link, _)| *link == HostLink::Loopback || kind.is_measured_between_hosts())
        {
            let hosts = hosts.map(|hosts| (hosts, link));
            match ServerUnderTest::start(kind, &database.path(), cpus.server_cpu, hosts, peers) {
                Ok(server) => {
                    servers.insert((kind, link), server);
                }
                Err(failure) => lines.fail_server(kind, link, &failure),
            }
        }
    }
    Ok(servers)
}

/// Repetition by repetition, each in random order, so that drift of the machine affects all equally. A pair whose
/// process does all repetitions has them together, at a random position.
fn driver_runs(pairs: &[ClientServerPair], cpus: &CpuChoice, settings: &RunSettings) -> Vec<DriverRun> {
    let mut random = Rng::with_seed(settings.seed);
    let of = |(pair, placement): &(ClientServerPair, Placement), repetition| DriverRun {
        pair: *pair,
        placement: *placement,
        repetition,
    };
    let (staying, coming): (Vec<_>, Vec<_>) =
        places(pairs, cpus, settings.suite).into_iter().partition(|(pair, _)| pair.stays());
    let mut blocks: Vec<Vec<Vec<DriverRun>>> = (0..settings.repetitions)
        .map(|repetition| {
            let is_selected = |place: &&(ClientServerPair, Placement)| {
                place.1.link() == HostLink::Loopback || repetition < HOSTS_REPETITIONS_MAX
            };
            coming.iter().filter(is_selected).map(|place| vec![of(place, repetition)]).collect()
        })
        .collect();
    let n_blocks = blocks.len().max(1);
    for (index, place) in staying.iter().enumerate() {
        let all = (0..settings.repetitions).map(|repetition| of(place, repetition)).collect();
        blocks.get_mut(index % n_blocks).into_iter().for_each(|block| block.push(Vec::clone(&all)));
    }
    for block in &mut blocks {
        random.shuffle(block);
    }
    blocks.concat().concat()
}

/// The progress bar of a run with `n` pieces of work.
pub fn progress(n: usize) -> ProgressBar {
    let progress = ProgressBar::new(n as u64);
    match ProgressStyle::with_template("{wide_bar} {pos}/{len}, {eta} left: {msg}") {
        Ok(style) => progress.with_style(style),
        Err(_) => progress,
    }
}

/// Kinds of work in random order, but small points before large ones, which may then be skipped.
fn order(tasks: &[LabTask], seed: u64) -> Vec<usize> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, task) in tasks.iter().enumerate() {
        let group = groups
            .iter_mut()
            .find(|group| group.first().and_then(|first| tasks.get(*first)).is_some_and(|first| first.is_like(task)));
        match group {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    Rng::with_seed(seed).shuffle(&mut groups);
    groups.concat()
}

/// The machine of the results.
pub fn machine_words(
    machine: &Machine,
    cpus: &CpuChoice,
    hosts: Option<&Result<TwoHosts, String>>,
) -> std::io::Result<Map<String, Value>> {
    let mut words = map(machine)?;
    words.insert("server_cpu".into(), serde_json::to_value(cpus.server_cpu)?);
    words.insert("other_cpu".into(), serde_json::to_value(cpus.other_cpu)?);
    words.insert("cpus_are_siblings".into(), cpus.are_siblings.into());
    if let Some(hosts) = hosts {
        let link = hosts.as_ref().map_or_else(Clone::clone, |hosts| hosts.link.clone());
        words.insert("two_hosts".into(), link.into());
    }
    Ok(words)
}

impl RunContext<'_> {
    /// The rows of each load, measured now or before an interruption.
    fn load_rows(
        &self,
        loads: &[Load],
        progress: &ProgressBar,
        journal: &mut Option<Journal>,
    ) -> std::io::Result<Vec<ResultRow>> {
        let placement = self.cpus.apart();
        let conditions = RunConditions { placement, cpus: &self.cpus, deadline: self.deadline };
        let mut rows = Vec::new();
        for (index, load) in loads.iter().enumerate() {
            let key = format!("{index} {}", load.question);
            let mut show = |who: &str| progress.set_message(who.to_owned());
            match journal.as_ref().and_then(|journal| journal.load(&key)).cloned() {
                Some(known) => rows.extend(known),
                None => {
                    let rows_of_load = load.rows(&self.settings.clients, &conditions, &mut show);
                    if let Some(journal) = journal {
                        journal.keep_load(&key, &rows_of_load)?;
                    }
                    rows.extend(rows_of_load);
                }
            }
            progress.inc(load.n_repetitions(&self.settings.clients) as u64);
        }
        Ok(rows)
    }

    fn run_driver(
        &self,
        driver_run: DriverRun,
        runner: &mut Option<DriverTaskRunner>,
        lines: &mut RowsInProgress,
        hellos: &mut HashMap<ClientUnderTest, Hello>,
        journal: &mut Option<Journal>,
    ) -> std::io::Result<()> {
        let Some(server) = self.servers.get(&(driver_run.pair.server, driver_run.placement.link())) else {
            return Ok(());
        };
        let seed = self.settings.seed.wrapping_mul(31).wrapping_add(driver_run.repetition as u64);
        for task_index in order(&self.tasks, seed) {
            let Some(task) = self.tasks.get(task_index).filter(|task| driver_run.pair.answers(task)) else {
                continue;
            };
            if !lines.is_worth_measuring(driver_run, task_index) {
                continue;
            }
            let key = key(driver_run, task);
            if let Some(outcome) = journal.as_ref().and_then(|journal| journal.done(&key)) {
                lines.record(driver_run, task_index, &self.tasks, outcome);
                continue;
            }
            if Instant::now() > self.questions_until {
                return Ok(());
            }
            let outcome = match self.perform(driver_run, task, server, runner, hellos) {
                Ok(measured) => TaskOutcome::Measured(measured),
                Err(failure) => TaskOutcome::Failed(failure),
            };
            lines.record(driver_run, task_index, &self.tasks, &outcome);
            if let Some(journal) = journal {
                journal.keep(&key, &outcome)?;
                let (client, name) = (driver_run.pair.client, driver_run.pair.client.text());
                if let Some(hello) = hellos.get(&client).filter(|_| journal.hello(name).is_none()) {
                    journal.keep_hello(name, hello)?;
                }
            }
        }
        Ok(())
    }

    /// Starts a process of the client.
    fn begin(
        &self,
        driver_run: DriverRun,
        server: &ServerUnderTest,
        hellos: &mut HashMap<ClientUnderTest, Hello>,
    ) -> Result<DriverTaskRunner, DriverFailure> {
        let cpu = self.cpus.client_cpu(driver_run.placement);
        let slower_per_cent = self.settings.slower_per_cent;
        let ClientServerPair { client, protocol, .. } = driver_run.pair;
        let conversation = DriverProcess::start((client, protocol), server, cpu, slower_per_cent, self.peers)?;
        hellos.entry(driver_run.pair.client).or_insert_with(|| conversation.hello().clone());
        let bounds = if self.settings.suite == Suite::Quick { WARM_UP_QUICK } else { WARM_UP };
        Ok(DriverTaskRunner::new(conversation, bounds))
    }

    fn perform(
        &self,
        driver_run: DriverRun,
        task: &LabTask,
        server: &ServerUnderTest,
        runner: &mut Option<DriverTaskRunner>,
        hellos: &mut HashMap<ClientUnderTest, Hello>,
    ) -> Result<scenario::TaskTimes, DriverFailure> {
        if driver_run.pair.server != ServerKind::Raw {
            task.enough_descriptors(scenario::n_descriptors_max())?;
        }
        let salt = (driver_run.repetition as u32).wrapping_mul(0x0100_0193).wrapping_add(task.point as u32);
        if task.is_cold {
            return self.begin(driver_run, server, hellos)?.measure(task, salt);
        }
        let mut current = match runner.take() {
            Some(runner) => runner,
            None => self.begin(driver_run, server, hellos)?,
        };
        let measured = current.measure(task, salt);
        // A driver that timed out may still be busy, and one that has ended cannot be used again.
        if !matches!(measured, Err(DriverFailure::Silent { .. } | DriverFailure::Ended { .. })) {
            *runner = Some(current);
        }
        measured
    }
}

fn key(driver_run: DriverRun, task: &LabTask) -> String {
    let (client, server) = (driver_run.pair.client.text(), driver_run.pair.server.text());
    format!("{} {client} {server} {} {}", driver_run.repetition, driver_run.placement.text(), task.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::ClientUnderTest;
    use crate::pair::tests::settings;
    use crate::scenario::MeasuredRequest;

    fn cpus() -> CpuChoice {
        CpuChoice { server_cpu: Some(0), other_cpu: Some(1), are_siblings: false }
    }

    #[test]
    fn every_repetition_visits_every_placement_once_in_its_own_order() {
        let settings = RunSettings { clients: vec![ClientUnderTest::Libca], ..settings(Suite::Full) };
        let pairs = ClientServerPair::selected(&settings);
        let places = places(&pairs, &cpus(), Suite::Full);

        let driver_runs = driver_runs(&pairs, &cpus(), &settings);

        let blocks: Vec<&[DriverRun]> = driver_runs.chunk_by(|one, next| one.repetition == next.repetition).collect();
        assert_eq!(blocks.len(), 5);
        for (repetition, block) in blocks.iter().enumerate() {
            assert!(block.iter().all(|driver_run| driver_run.repetition == repetition));
            for place in &places {
                let n_expected =
                    usize::from(place.1.link() == HostLink::Loopback || repetition < HOSTS_REPETITIONS_MAX);
                let n = block.iter().filter(|driver_run| (driver_run.pair, driver_run.placement) == *place).count();
                assert_eq!(n, n_expected, "{place:?}");
            }
        }
        let order = |block: &[DriverRun]| {
            block.iter().map(|driver_run| (driver_run.pair, driver_run.placement)).collect::<Vec<_>>()
        };
        assert_ne!(order(blocks[0]), order(blocks[1]));
    }

    #[test]
    fn slow_clients_are_measured_with_both_servers_on_two_cores_and_unpinned() {
        let settings = settings(Suite::Full);

        let places = places(&ClientServerPair::selected(&settings), &cpus(), Suite::Full);

        for server in [ServerKind::Fodo, ServerKind::SoftIoc] {
            let pair = ClientServerPair { client: ClientUnderTest::Aioca, server, protocol: LabProtocol::Ca };
            let of_aioca: Vec<Placement> =
                places.iter().filter(|(known, _)| *known == pair).map(|(_, placement)| *placement).collect();
            assert_eq!(of_aioca, [Placement::TwoCores, Placement::ClientNotPinned]);
            let driver_runs = driver_runs(&ClientServerPair::selected(&settings), &cpus(), &settings);
            let is_there =
                |driver_run: &DriverRun| (driver_run.pair, driver_run.placement) == (pair, Placement::TwoCores);
            let of_aioca: Vec<usize> = (0..driver_runs.len()).filter(|&index| is_there(&driver_runs[index])).collect();
            assert_eq!((of_aioca.len(), of_aioca[4] - of_aioca[0]), (5, 4));
        }
        // Two servers each on one core, on two, not pinned, and between two hosts without and with a delay.
        assert_eq!(places.iter().filter(|(pair, _)| pair.client == ClientUnderTest::Libca).count(), 10);
    }

    #[test]
    fn the_suite_java_is_measured_on_two_cores_and_a_million_monitors_with_fodo_at_both_ends() {
        let clients = vec![ClientUnderTest::Fodo, ClientUnderTest::FodoJava, ClientUnderTest::PsiCa];
        let settings = RunSettings { clients, ..settings(Suite::Java) };

        let places = places(&ClientServerPair::selected(&settings), &cpus(), Suite::Java);

        assert!(places.iter().all(|(_, placement)| *placement == Placement::TwoCores));
        let tasks = scenario::tasks(&Scenario::all().unwrap(), Suite::Java, usize::MAX);
        let is_it = |task: &&LabTask| task.request == MeasuredRequest::MonitorAtOnce && task.point == 1_000_000;
        let million = tasks.iter().find(is_it).unwrap();
        let answering = places.iter().map(|(pair, _)| pair).filter(|pair| pair.answers(million));
        let names: Vec<(&str, &str)> = answering.map(|pair| (pair.client.text(), pair.server.text())).collect();
        assert_eq!(names, [("raw", "raw"), ("fodo", "fodo"), ("fodo-java", "fodo")]);
    }

    #[test]
    fn tasks_of_one_kind_run_in_order_of_increasing_point() {
        let tasks = scenario::tasks(&Scenario::all().unwrap(), Suite::Full, usize::MAX);

        for seed in 0..5 {
            let order = order(&tasks, seed);
            assert_eq!(order.len(), tasks.len());
            for pair in order.windows(2) {
                let (before, after) = (&tasks[pair[0]], &tasks[pair[1]]);
                assert!(!before.is_like(after) || before.point < after.point);
            }
        }
    }
}
