//! Study 003 in the laboratory: its three measurements over both protocols, each update of an event counted.
//!
//! The study's cases are pairs of machines between which it measured one client and one server for each protocol. Here the
//! columns are pairs of programs, at three places: one host, two hosts with a link of one gigabit per second, and the same
//! two milliseconds apart.

pub mod database;
mod gets;
pub mod point;
mod rows;
pub mod study;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::driver::rounds::{EventRounds, ProcessGets, ProcessWay, RoundSpans, RoundTimes};
use crate::driver::{
    ClientUnderTest, ConnectedChannels, DriverFailure, DriverProcess, DriverReply, DriverRequest, Hello, Variant,
};
use crate::hosts::TwoHosts;
use crate::limit::{NSLS2_MAX, NSLS2_POINT_MAX};
use crate::load::TemporaryDatabase;
use crate::machine::Machine;
use crate::peers::Peers;
use crate::placement::{CpuChoice, HostLink, Placement};
use crate::protocol::LabProtocol;
use crate::result::{PeerInfo, ResultFile, ResultRow};
use crate::runner;
use crate::server::{ServerExtras, ServerKind, ServerUnderTest};

use self::study::PublishedCases;

/// Name of the suite in results and on the command line.
pub const SUITE: &str = "nsls2";

/// Duration of a point, in seconds.
pub const SECONDS: f64 = 0.3;

/// Share of a point's duration for which its rounds are repeated before; a virtual machine compiles meanwhile.
const WARM_UP_SHARE: f64 = 0.3;
const WARM_UP_SHARE_JAVA: f64 = 1.0;

/// The delays of the study, in milliseconds. Only Fodo has one.
const DELAYS_MS: [u32; 4] = [0, 1, 5, 10];

/// The environment variable of Fodo's delay, for both ends.
const DELAY_VARIABLE: &str = "FODO_FLUSH_DELAY_US";

/// The names of the tables in results: three of the study, and two of gets one by one.
pub const QUESTIONS: [&str; 5] = ["N1", "N2", "N3", "N4", "N5"];

/// What to measure.
#[derive(Clone, Debug)]
pub struct Nsls2Run {
    /// Duration of a point.
    pub duration: Duration,
    /// Only these clients, unless empty.
    pub clients: Vec<ClientUnderTest>,
    /// Only these servers, unless empty.
    pub servers: Vec<ServerKind>,
    /// Only these tables, unless empty.
    pub questions: Vec<String>,
    /// Elements of the largest array.
    pub elements_max: u64,
    /// Written after each client, so that an interrupted run keeps what it has measured.
    pub json: Option<PathBuf>,
}

/// A client and a server, at a place and with a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StudyCase {
    protocol: LabProtocol,
    client: ClientUnderTest,
    server: ServerKind,
    placement: Placement,
    delay_ms: u32,
}

/// A point of a table.
type CasePlan = (&'static str, u64);

/// The clients and servers of a protocol, Fodo first.
fn ends(protocol: LabProtocol) -> (&'static [ClientUnderTest], &'static [ServerKind]) {
    match protocol {
        LabProtocol::Ca => (&[ClientUnderTest::Fodo, ClientUnderTest::Libca], &[ServerKind::Fodo, ServerKind::SoftIoc]),
        LabProtocol::Pva => (
            &[ClientUnderTest::Fodo, ClientUnderTest::Pvxs, ClientUnderTest::CorePva],
            &[ServerKind::Fodo, ServerKind::Qsrv2, ServerKind::Qsrv1],
        ),
    }
}

impl StudyCase {
    /// Whether both ends are Fodo, which counts what it merges and has a delay.
    fn is_fodo(self) -> bool {
        (self.client, self.server) == (ClientUnderTest::Fodo, ServerKind::Fodo)
    }

    /// Whether it needs the same server as `other`.
    fn is_beside(&self, other: &StudyCase) -> bool {
        (self.server, self.placement, self.delay_ms) == (other.server, other.placement, other.delay_ms)
    }

    /// QSRV processes no record for a get, and core-pva sends no options with one.
    fn way(self) -> ProcessWay {
        let has_option = self.server == ServerKind::Fodo && self.client != ClientUnderTest::CorePva;
        match self.protocol {
            LabProtocol::Pva if has_option => ProcessWay::OneOperation,
            _ => ProcessWay::PutThenGet,
        }
    }

    fn variables(self) -> Vec<(&'static str, OsString)> {
        let delay_us = u64::from(self.delay_ms) * 1000;
        if self.delay_ms == 0 { Vec::new() } else { vec![(DELAY_VARIABLE, delay_us.to_string().into())] }
    }
}

impl Nsls2Run {
    /// Measures all tables. Rows fail individually.
    pub fn run(&self, peers: &Peers) -> std::io::Result<ResultFile> {
        let start = Instant::now();
        let study = PublishedCases::load().map_err(std::io::Error::other)?;
        let plans = self.plans(&study);
        let machine = Machine::describe();
        let cpus = CpuChoice::find();
        let hosts = TwoHosts::make();
        let mut result = ResultFile::new(SUITE, &machine.date);
        result.machine = runner::machine_words(&machine, &cpus, Some(&hosts))?;
        result.settings.insert("repetitions".into(), crate::limit::ROUND_SAMPLES_MAX.into());
        result.settings.insert("seconds_per_point".into(), self.duration.as_secs_f64().into());
        let cases = self.cases(cpus.apart());
        let sizes: Vec<u64> = plans.iter().filter(|plan| plan.0 == "N1").map(|plan| plan.1).collect();
        let file = TemporaryDatabase::write(&database::records(&sizes))?;
        let bench = CaseBench {
            run: self,
            peers,
            cpus,
            hosts: hosts.as_ref().map_err(String::as_str),
            database: file.path(),
            plans: &plans,
            study: &study,
            deadline: start + NSLS2_MAX,
            progress: runner::progress(cases.len()),
        };
        result.peers = bench.peers_of(&cases);
        let mut take = |rows: Vec<ResultRow>, hello: Option<&Hello>| {
            result.rows.extend(rows);
            note(&mut result.peers, hello);
            result.duration_s = start.elapsed().as_secs_f64();
            self.json.as_ref().map_or(Ok(()), |path| result.write(path))
        };
        bench.measure_gets(&self.get_plans(), &mut take)?;
        for beside in cases.chunk_by(StudyCase::is_beside) {
            bench.measure(beside, &mut take)?;
        }
        bench.progress.finish_and_clear();
        rows::add_floors(&mut result.rows);
        result.duration_s = start.elapsed().as_secs_f64();
        Ok(result)
    }

    /// The points of the selected tables.
    fn plans(&self, study: &PublishedCases) -> Vec<CasePlan> {
        let is_selected =
            |question: &&&str| self.questions.is_empty() || self.questions.iter().any(|it| it == **question);
        let of = |question: &&'static str| {
            let points = study.table(question).map_or_else(Vec::new, |table| table.points());
            let question = *question;
            points.into_iter().map(move |point| (question, point))
        };
        let is_small = |plan: &CasePlan| plan.0 != "N1" || plan.1 <= self.elements_max;
        QUESTIONS.iter().filter(is_selected).flat_map(of).filter(is_small).collect()
    }

    /// The points of gets one by one of the selected tables.
    fn get_plans(&self) -> Vec<CasePlan> {
        let is_selected = |plan: &CasePlan| {
            (self.questions.is_empty() || self.questions.iter().any(|it| it == plan.0)) && plan.1 <= self.elements_max
        };
        gets::PLANS.into_iter().filter(is_selected).collect()
    }

    /// All cases in the order in which they are measured, those with one server together: first without a delay at each
    /// place, then with each delay.
    fn cases(&self, one_host: Placement) -> Vec<StudyCase> {
        let places = [one_host, Placement::TwoHosts, Placement::TwoHostsDelayed];
        let servers = [ServerKind::Raw, ServerKind::Fodo, ServerKind::SoftIoc, ServerKind::Qsrv2, ServerKind::Qsrv1];
        let mut cases = Vec::new();
        for delay_ms in DELAYS_MS {
            for placement in places {
                for server in servers {
                    for protocol in [LabProtocol::Ca, LabProtocol::Pva] {
                        let case = |client| StudyCase { protocol, client, server, placement, delay_ms };
                        cases.extend(self.clients_of(server, protocol).into_iter().map(case));
                    }
                }
            }
        }
        // The study measured delays over pvAccess only.
        cases.retain(|case| case.delay_ms == 0 || (case.is_fodo() && case.protocol == LabProtocol::Pva));
        cases
    }

    fn clients_of(&self, server: ServerKind, protocol: LabProtocol) -> Vec<ClientUnderTest> {
        let (clients, servers) = ends(protocol);
        if server == ServerKind::Raw {
            return vec![ClientUnderTest::RawReused];
        }
        let is_server = servers.contains(&server) && (self.servers.is_empty() || self.servers.contains(&server));
        let is_client = |client: &&ClientUnderTest| self.clients.is_empty() || self.clients.contains(client);
        clients.iter().filter(|_| is_server).filter(is_client).copied().collect()
    }
}

/// Records the version that a driver reports.
fn note(peers: &mut [PeerInfo], hello: Option<&Hello>) {
    let Some(hello) = hello else { return };
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    if let Some(peer) = peers.iter_mut().find(|peer| peer.name == hello.client) {
        (peer.version, peer.runtime) = (some(&hello.version), some(&hello.runtime));
    }
}

/// The constant state of a run.
struct CaseBench<'a> {
    run: &'a Nsls2Run,
    peers: &'a Peers,
    cpus: CpuChoice,
    hosts: Result<&'a TwoHosts, &'a str>,
    database: &'a Path,
    plans: &'a [CasePlan],
    study: &'a PublishedCases,
    deadline: Instant,
    progress: ProgressBar,
}

/// Takes the rows of a case, and what its driver has reported.
type TakeRows<'a> = dyn FnMut(Vec<ResultRow>, Option<&Hello>) -> std::io::Result<()> + 'a;

impl CaseBench<'_> {
    /// Measures the cases of one server.
    fn measure(&self, cases: &[StudyCase], take: &mut TakeRows<'_>) -> std::io::Result<()> {
        let Some(first) = cases.first() else { return Ok(()) };
        let server = self.start(*first);
        for case in cases {
            let (client, server_text) = (case.client.text(), case.server.text());
            self.progress.set_message(format!("{}: {client} with {server_text}", case.placement.text()));
            let (rows, hello) = match &server {
                Ok(server) => self.rows_of(*case, server),
                Err(failure) => (self.plans_of(*case).map(|plan| self.failed(*case, plan, failure)).collect(), None),
            };
            take(rows, hello.as_ref())?;
            self.progress.inc(1);
        }
        Ok(())
    }

    /// The points of a case; a raw socket has no events.
    fn plans_of(&self, case: StudyCase) -> impl Iterator<Item = CasePlan> {
        let is_measured = move |plan: &CasePlan| case.server != ServerKind::Raw || plan.0 != "N3";
        self.plans.iter().copied().filter(is_measured)
    }

    /// Starts the server of a case and fills its ramps.
    fn start(&self, case: StudyCase) -> Result<ServerUnderTest, DriverFailure> {
        let unavailable = |who: &str, why: String| DriverFailure::Unavailable { who: who.into(), why };
        if Instant::now() > self.deadline {
            return Err(unavailable("a further server", "the time of the suite was over".into()));
        }
        if let Some(why) = case.server.missing(self.peers) {
            return Err(unavailable(case.server.text(), why));
        }
        let link = match (case.placement.link(), self.hosts) {
            (HostLink::Loopback, _) => None,
            (_, Err(why)) => return Err(unavailable("two hosts", why.into())),
            (link, Ok(hosts)) => Some((hosts, link)),
        };
        let protocols = [LabProtocol::Ca, LabProtocol::Pva];
        let delayed = match case.server {
            ServerKind::Raw => vec![LabProtocol::Ca],
            server => protocols.into_iter().filter(|protocol| server.is_measured_over(*protocol)).collect(),
        };
        let extras = ServerExtras { variables: case.variables(), delayed, has_metrics: false };
        let cpu = self.cpus.server_cpu;
        let server = ServerUnderTest::start_with(case.server, self.database, cpu, link, self.peers, extras)?;
        if case.server != ServerKind::Raw {
            self.put_ramps(case, &server)?;
        }
        Ok(server)
    }

    /// Puts the ramps, by Fodo's client from the clients' host.
    fn put_ramps(&self, case: StudyCase, server: &ServerUnderTest) -> Result<(), DriverFailure> {
        let sizes = self.plans.iter().filter(|plan| plan.0 == "N1").map(|plan| plan.1);
        let client = (ClientUnderTest::Fodo, case.protocol);
        let mut driver = DriverProcess::start(client, server, None, 0, self.peers)?;
        for (pv, n_elements) in sizes.map(database::ramp) {
            driver.request(&DriverRequest::PutRamp { pv, n_elements }, NSLS2_POINT_MAX)?;
        }
        Ok(())
    }

    /// Measures one client at all points.
    fn rows_of(&self, case: StudyCase, server: &ServerUnderTest) -> (Vec<ResultRow>, Option<Hello>) {
        let mut driver: Option<DriverProcess> = None;
        let mut hello = None;
        let mut rows = Vec::new();
        let missing = case.client.missing(self.peers);
        for plan in self.plans_of(case) {
            let measured = match &missing {
                Some(why) => Err(DriverFailure::Unavailable { who: case.client.text().into(), why: why.clone() }),
                None => self.point(case, plan, server, &mut driver),
            };
            hello = hello.or_else(|| driver.as_ref().map(|driver| driver.hello().clone()));
            rows.push(match measured {
                Ok(times) => rows::measured(&self.place(case, plan), &times, case.is_fodo()),
                Err(failure) => self.failed(case, plan, &failure),
            });
        }
        (rows, hello)
    }

    fn point(
        &self,
        case: StudyCase,
        plan: CasePlan,
        server: &ServerUnderTest,
        driver: &mut Option<DriverProcess>,
    ) -> Result<RoundTimes, DriverFailure> {
        if Instant::now() > self.deadline {
            let why = "the time of the suite was over".into();
            return Err(DriverFailure::Unavailable { who: "a further point".into(), why });
        }
        let mut current = match driver.take() {
            Some(current) => current,
            None => {
                let cpu = self.cpus.client_cpu(case.placement);
                DriverProcess::start_with((case.client, case.protocol), server, cpu, self.peers, case.variables())?
            }
        };
        let request = self.request(case, plan);
        let answer = current.request(&request, NSLS2_POINT_MAX + self.run.duration);
        // A driver that timed out may still be busy, and one that has ended cannot be used again.
        if !matches!(answer, Err(DriverFailure::Silent { .. } | DriverFailure::Ended { .. })) {
            *driver = Some(current);
        }
        match answer? {
            DriverReply::Rounds(times) => Ok(times),
            other => Err(DriverFailure::Protocol { line: format!("{other:?}") }),
        }
    }

    fn request(&self, case: StudyCase, (question, point): CasePlan) -> DriverRequest {
        let share = if case.client == ClientUnderTest::CorePva { WARM_UP_SHARE_JAVA } else { WARM_UP_SHARE };
        let spans = RoundSpans {
            warm_up_ms: self.run.duration.mul_f64(share).as_millis() as u64,
            duration_ms: self.run.duration.as_millis() as u64,
        };
        let records = |pattern: &str, n| ConnectedChannels { pattern: pattern.into(), n, variant: Variant::Distinct };
        let way = case.way();
        match question {
            "N1" => {
                let records = records(&database::array_pattern(point), database::N_ARRAYS);
                DriverRequest::ProcessGets(ProcessGets { records, n_elements: point as usize, way, spans })
            }
            "N2" => {
                let records = records(database::PASSIVE, point as usize);
                DriverRequest::ProcessGets(ProcessGets { records, n_elements: 0, way, spans })
            }
            _ => {
                let records = records(database::SCANNED, point as usize);
                DriverRequest::EventRounds(EventRounds { records, event: database::EVENT_PV.into(), spans })
            }
        }
    }

    fn failed(&self, case: StudyCase, plan: CasePlan, failure: &DriverFailure) -> ResultRow {
        rows::without_number(&self.place(case, plan), failure)
    }

    /// A row with everything that identifies it.
    fn place(&self, case: StudyCase, (question, point): CasePlan) -> ResultRow {
        let table = self.study.table(question);
        let is_apart = case.placement.link() != HostLink::Loopback;
        let wire_hz = table.filter(|_| is_apart).map(|table| table.lab_wire_hz(case.protocol, point));
        ResultRow {
            question: question.into(),
            protocol: case.protocol,
            title: table.map_or(String::new(), |table| table.title.clone()),
            series: case.placement.text().into(),
            variant: rows::delay_text(case.delay_ms),
            point,
            client: if case.client == ClientUnderTest::RawReused { "raw".into() } else { case.client.text().into() },
            server: case.server.text().into(),
            unit: table.map_or(String::new(), |table| table.unit.clone()),
            bytes: (question == "N1").then_some(8 * point),
            case: Some(point::CasePoint { delay_ms: case.delay_ms, wire_hz }),
            ..ResultRow::default()
        }
    }

    /// The clients and servers of these cases that are other implementations, with their versions or why they are missing.
    fn peers_of(&self, cases: &[StudyCase]) -> Vec<PeerInfo> {
        let mut known: Vec<PeerInfo> = Vec::new();
        for case in cases.iter().filter(|case| case.server != ServerKind::Raw) {
            if known.iter().all(|peer| peer.name != case.client.text()) {
                let missing = case.client.missing(self.peers);
                known.push(PeerInfo { name: case.client.text().into(), missing, ..PeerInfo::default() });
            }
            if case.server.is_peer() && known.iter().all(|peer| peer.name != case.server.text()) {
                let (version, missing) = (case.server.version(self.peers), case.server.missing(self.peers));
                known.push(PeerInfo { name: case.server.text().into(), version, missing, ..PeerInfo::default() });
            }
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Nsls2Run {
        Nsls2Run {
            duration: Duration::from_secs_f64(SECONDS),
            clients: Vec::new(),
            servers: Vec::new(),
            questions: Vec::new(),
            elements_max: u64::MAX,
            json: None,
        }
    }

    #[test]
    fn every_client_is_measured_with_every_server_of_its_protocol_at_three_places() {
        let cases = run().cases(Placement::TwoCores);

        let of = |protocol, delay_ms| {
            let is_it = |case: &&StudyCase| {
                case.protocol == protocol && case.delay_ms == delay_ms && case.server != ServerKind::Raw
            };
            cases.iter().filter(is_it).count()
        };
        assert_eq!((of(LabProtocol::Ca, 0), of(LabProtocol::Pva, 0)), (3 * 4, 3 * 9));
        assert_eq!((of(LabProtocol::Ca, 1), of(LabProtocol::Pva, 1), of(LabProtocol::Pva, 10)), (0, 3, 3));
        for case in &cases {
            let is_possible =
                case.client.is_measured_over(case.protocol) && case.server.is_measured_over(case.protocol);
            assert!(is_possible && (case.delay_ms == 0 || case.is_fodo()), "{case:?}");
        }
        // No server is started twice for one place and delay.
        let n_servers = cases.chunk_by(StudyCase::is_beside).count();
        assert_eq!(n_servers, 3 * 5 + 3 * 3);
    }

    #[test]
    fn selected_ends_tables_and_sizes_restrict_what_is_measured() {
        let study = PublishedCases::load().unwrap();
        let selected = Nsls2Run {
            clients: vec![ClientUnderTest::Fodo],
            servers: vec![ServerKind::Fodo],
            questions: vec!["N1".into()],
            elements_max: 100,
            ..run()
        };

        assert_eq!(selected.plans(&study), [("N1", 10), ("N1", 100)]);
        assert_eq!((selected.get_plans().len(), run().get_plans().len()), (0, 3));
        assert_eq!(run().plans(&study).len(), 14);
        let cases = selected.cases(Placement::TwoCores);
        assert!(cases.iter().all(|case| case.server == ServerKind::Raw || case.is_fodo()));
        assert_eq!(cases.iter().filter(|case| case.is_fodo() && case.delay_ms == 0).count(), 2 * 3);
    }

    #[test]
    fn a_get_processes_only_where_both_ends_can() {
        let case = |protocol, client, server| {
            StudyCase { protocol, client, server, placement: Placement::TwoCores, delay_ms: 0 }.way()
        };
        use LabProtocol::{Ca, Pva};

        assert_eq!(case(Pva, ClientUnderTest::Fodo, ServerKind::Fodo), ProcessWay::OneOperation);
        assert_eq!(case(Pva, ClientUnderTest::Pvxs, ServerKind::Fodo), ProcessWay::OneOperation);
        assert_eq!(case(Pva, ClientUnderTest::CorePva, ServerKind::Fodo), ProcessWay::PutThenGet);
        assert_eq!(case(Pva, ClientUnderTest::Fodo, ServerKind::Qsrv2), ProcessWay::PutThenGet);
        assert_eq!(case(Ca, ClientUnderTest::Fodo, ServerKind::Fodo), ProcessWay::PutThenGet);
    }

    #[test]
    fn a_delay_is_set_for_both_ends_in_microseconds() {
        let case = StudyCase {
            protocol: LabProtocol::Pva,
            client: ClientUnderTest::Fodo,
            server: ServerKind::Fodo,
            placement: Placement::TwoCores,
            delay_ms: 5,
        };

        assert_eq!(case.variables(), [("FODO_FLUSH_DELAY_US", OsString::from("5000"))]);
        assert!(StudyCase { delay_ms: 0, ..case }.variables().is_empty());
    }
}
