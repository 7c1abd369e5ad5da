//! Study 004 in the laboratory: requests of a CLU in a closed loop, as published, and what the study lacks.
//!
//! The study counts the requests of 64 threads that were answered. The suite does the same beside two echoes, one of which
//! decrypts and encrypts, with latencies, CPU time and an account of every request; and it asks five more questions, among
//! them an open loop and subscriptions.

mod closed;
mod connection;
pub mod echo;
mod open_loop;
mod opengr8ton;
pub mod point;
mod rows;
mod script;
mod server;
mod sockets;
pub mod study;
mod subscribe;
mod tally;
mod wire;
pub mod worker;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::driver::DriverFailure;
use crate::limit::{
    CLU_ANSWER_MAX, CLU_FIRST_UPDATE_MAX, CLU_LAST_UPDATE_MAX, CLU_TIMEOUT, CLU_WARM_UP, CLU_WARM_UP_JAVA,
};
use crate::load::usage::Usage;
use crate::machine::Machine;
use crate::placement::{CpuChoice, Placement};
use crate::process::{ChildProcess, Launch, Ports};
use crate::result::{PeerInfo, ResultFile, ResultRow};
use crate::runner;

use self::point::CluPoint;
use self::rows::{MeasuredRepetition, RowRepetitions, SampleKind};
use self::server::{CluServerKind, CluServerProcess};
use self::worker::{CluWorkReply, CluWorkRequest, RequestClient};

/// Name of the suite in results and on the command line.
pub const SUITE: &str = "clu";

/// Duration of a repetition of the study's question, in seconds; other durations are shares of it.
pub const SECONDS: f64 = 60.0;
/// The same in the short form.
pub const SECONDS_SHORT: f64 = 6.0;

/// Repetitions of a question, as in the study.
const REPETITIONS: usize = 10;
const REPETITIONS_SHORT: usize = 3;

/// The same of an open loop at each rate.
const REPETITIONS_OPEN: usize = 3;

/// Share of the duration for an echo beside the study's question: its rate hardly varies.
const ECHO_SHARE: f64 = 1.0 / 6.0;

/// The rates of an open loop, in per cent of what was reached.
const OPEN_PER_CENT: [u64; 4] = [10, 50, 80, 120];

/// Subscriptions, and how often their features change, for each second of the duration.
const N_SUBSCRIPTIONS: usize = 1000;
const CHANGES_PER_SECOND: f64 = 0.8;
const CHANGES_MAX: u64 = 20;
const CHANGE_PERIOD: Duration = Duration::from_secs(1);

/// Time for a request of the laboratory beyond that of its work.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// What a question does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlannedWork {
    /// Requests one after another in each place of a window.
    Closed { n_threads: usize, n_in_flight: usize },
    /// Requests on schedule.
    Open,
    /// Subscriptions.
    Subscribe,
}

/// A question.
#[derive(Clone, Copy, Debug)]
pub struct QuestionPlan {
    /// Its name in results.
    pub question: &'static str,
    /// The question.
    pub title: &'static str,
    /// How it is measured, for the list of questions.
    pub method: &'static str,
    work: PlannedWork,
    sample: SampleKind,
    /// Duration of a repetition, as a share of that of the study's question.
    share: f64,
}

/// All questions.
pub const QUESTIONS: [QuestionPlan; 6] = [
    QuestionPlan {
        question: "C1",
        title: "64 threads with a client each, checkAlive() in a closed loop",
        method: "Each thread sends its next request after the answer to the one before. Study 004 counts the answers of 60 s.",
        work: PlannedWork::Closed { n_threads: 64, n_in_flight: 1 },
        sample: SampleKind::Rate,
        share: 1.0,
    },
    QuestionPlan {
        question: "C2",
        title: "One thread with 64 requests in flight",
        method: "One client of one thread; a request follows each answer.",
        work: PlannedWork::Closed { n_threads: 1, n_in_flight: 64 },
        sample: SampleKind::Rate,
        share: 1.0 / 12.0,
    },
    QuestionPlan {
        question: "C3",
        title: "One client, one request after another",
        method: "The time of one request, beside that of a UDP ping-pong of as many bytes.",
        work: PlannedWork::Closed { n_threads: 1, n_in_flight: 1 },
        sample: SampleKind::MedianTime,
        share: 1.0 / 20.0,
    },
    QuestionPlan {
        question: "C4",
        title: "A server under a generator of prepared requests, 64 in flight",
        method: "The generator encrypts nothing and compares bytes, so the server is measured.",
        work: PlannedWork::Closed { n_threads: 1, n_in_flight: 64 },
        sample: SampleKind::Rate,
        share: 1.0 / 12.0,
    },
    QuestionPlan {
        question: "C5",
        title: "Requests on schedule, at shares of the rate of C2",
        method: "One thread starts requests whether or not earlier ones were answered, and reads the replies; latency counts from the scheduled time.",
        work: PlannedWork::Open,
        sample: SampleKind::P99,
        share: 1.0 / 6.0,
    },
    QuestionPlan {
        question: "C6",
        title: "1000 subscriptions of 16 features that change once a second",
        method: "Each change sets all features to its number; each subscription must receive each number once.",
        work: PlannedWork::Subscribe,
        sample: SampleKind::MedianTime,
        share: 1.0,
    },
];

/// The question with this name.
pub fn plan_of(question: &str) -> Option<QuestionPlan> {
    QUESTIONS.into_iter().find(|plan| plan.question == question)
}

/// A client with its server.
type RequestPair = (RequestClient, CluServerKind);

const FODO: RequestPair = (RequestClient::Fodo, CluServerKind::Fodo);

impl QuestionPlan {
    /// The clients and servers, in the order of the tables.
    fn pairs(&self, has_opengr8ton: bool) -> Vec<RequestPair> {
        use RequestClient::{Aes, Generator, Raw};
        let other = |client| has_opengr8ton.then_some((client, CluServerKind::OpenGr8ton));
        match (self.question, self.work) {
            ("C4", _) => [CluServerKind::Raw, CluServerKind::Aes, CluServerKind::Fodo]
                .map(|server| (Generator, server))
                .into_iter()
                .chain(other(Generator))
                .collect(),
            (_, PlannedWork::Closed { .. }) => [(Raw, CluServerKind::Raw), (Aes, CluServerKind::Aes), FODO]
                .into_iter()
                .chain(other(RequestClient::Fodo))
                .collect(),
            (_, PlannedWork::Open | PlannedWork::Subscribe) => vec![FODO],
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct CluRun {
    /// Three repetitions instead of ten.
    pub is_short: bool,
    /// Duration of a repetition of the study's question.
    pub duration: Duration,
    /// Only these questions, unless empty.
    pub questions: Vec<String>,
    /// The folder with the jars of OpenGr8ton.
    pub opengr8ton: Option<PathBuf>,
    /// Written after each question, so that an interrupted run keeps what it has measured.
    pub json: Option<PathBuf>,
}

impl CluRun {
    /// Measures all questions. Rows fail individually.
    pub fn run(&self) -> std::io::Result<ResultFile> {
        let start = Instant::now();
        let machine = Machine::describe();
        let cpus = CpuChoice::find();
        let mut result = ResultFile::new(SUITE, &machine.date);
        result.machine = runner::machine_words(&machine, &cpus, None)?;
        result.settings.insert("repetitions".into(), self.n_repetitions().into());
        result.settings.insert("is_short".into(), self.is_short.into());
        result.settings.insert("seconds_per_point".into(), self.duration.as_secs_f64().into());
        let missing = opengr8ton::java(self.opengr8ton.as_deref()).err();
        let plans: Vec<QuestionPlan> = QUESTIONS.into_iter().filter(|plan| self.is_selected(plan)).collect();
        let mut bench = CluBench {
            run: self,
            placement: cpus.apart(),
            cpus,
            has_opengr8ton: missing.is_none(),
            servers: Vec::new(),
            drivers: Vec::new(),
            progress: runner::progress(plans.len() * self.n_repetitions()),
        };
        result.peers.push(PeerInfo { name: CluServerKind::OpenGr8ton.text().into(), missing, ..PeerInfo::default() });
        for plan in plans {
            let rows = bench.measure(&plan, &result.rows);
            result.rows.extend(rows);
            rows::add_floors(&mut result.rows);
            result.duration_s = start.elapsed().as_secs_f64();
            if let Some(path) = &self.json {
                result.write(path)?;
            }
        }
        bench.progress.finish_and_clear();
        Ok(result)
    }

    fn is_selected(&self, plan: &QuestionPlan) -> bool {
        self.questions.is_empty() || self.questions.iter().any(|question| question == plan.question)
    }

    fn n_repetitions(&self) -> usize {
        if self.is_short { REPETITIONS_SHORT } else { REPETITIONS }
    }

    /// Duration of a repetition.
    fn duration_of(&self, plan: &QuestionPlan, server: CluServerKind) -> Duration {
        let is_echo = matches!(server, CluServerKind::Raw | CluServerKind::Aes);
        let share = if is_echo && plan.question == "C1" { ECHO_SHARE } else { plan.share };
        self.duration.mul_f64(share)
    }

    fn n_changes(&self) -> u64 {
        ((self.duration.as_secs_f64() * CHANGES_PER_SECOND).round() as u64).clamp(1, CHANGES_MAX)
    }
}

/// The running processes.
struct CluBench<'a> {
    run: &'a CluRun,
    placement: Placement,
    cpus: CpuChoice,
    has_opengr8ton: bool,
    servers: Vec<(CluServerKind, Result<CluServerProcess, DriverFailure>)>,
    /// The process of each client that has sent requests.
    drivers: Vec<(RequestPair, ChildProcess)>,
    progress: ProgressBar,
}

impl CluBench<'_> {
    fn measure(&mut self, plan: &QuestionPlan, before: &[ResultRow]) -> Vec<ResultRow> {
        match plan.work {
            PlannedWork::Closed { n_threads, n_in_flight } => self.closed(plan, n_threads, n_in_flight),
            PlannedWork::Open => self.open(plan, before),
            PlannedWork::Subscribe => vec![self.subscribe(plan)],
        }
    }

    /// Each repetition measures all clients, so that drift of the machine affects them alike.
    fn closed(&mut self, plan: &QuestionPlan, n_threads: usize, n_in_flight: usize) -> Vec<ResultRow> {
        let pairs = plan.pairs(self.has_opengr8ton);
        let prepared = |pair: &RequestPair| {
            let warm_up = if pair.1 == CluServerKind::OpenGr8ton { CLU_WARM_UP_JAVA } else { CLU_WARM_UP };
            let seconds = self.run.duration_of(plan, pair.1).as_secs_f64();
            RowRepetitions { seconds, warm_up_s: warm_up.as_secs_f64(), ..RowRepetitions::default() }
        };
        let mut measured: Vec<RowRepetitions> = pairs.iter().map(prepared).collect();
        for _ in 0..self.run.n_repetitions() {
            for (pair, measured) in pairs.iter().zip(&mut measured).filter(|(_, measured)| measured.failure.is_none()) {
                self.progress.set_message(format!("{}: {} with {}", plan.question, pair.0.text(), pair.1.text()));
                let request = CluWorkRequest::Closed {
                    n_threads,
                    n_in_flight,
                    warm_up_ms: (measured.warm_up_s * 1e3) as u64,
                    duration_ms: (measured.seconds * 1e3) as u64,
                };
                match self.requests(*pair, &request, Duration::from_secs_f64(measured.seconds)) {
                    Ok(repetition) => measured.repetitions.push(repetition),
                    Err(failure) => measured.failure = Some(failure),
                }
            }
            self.progress.inc(1);
        }
        let point = (n_threads * n_in_flight) as u64;
        let rows = pairs.iter().zip(&measured);
        rows.map(|(pair, measured)| rows::of_requests(&self.place(plan, *pair, point), plan, measured)).collect()
    }

    fn open(&mut self, plan: &QuestionPlan, before: &[ResultRow]) -> Vec<ResultRow> {
        let reached_hz = self.reached_hz(before);
        let duration = self.run.duration_of(plan, FODO.1);
        let n_repetitions = if self.run.is_short { 1 } else { REPETITIONS_OPEN };
        let mut rows = Vec::new();
        for per_cent in OPEN_PER_CENT {
            self.progress.set_message(format!("{}: at {per_cent} %", plan.question));
            let mut place = self.place(plan, FODO, per_cent);
            let reached_hz = match &reached_hz {
                Ok(reached_hz) => *reached_hz,
                Err(failure) => {
                    rows.push(rows::without_number(&place, failure));
                    continue;
                }
            };
            let rate_hz = reached_hz * per_cent as f64 / 100.0;
            place.clu = Some(CluPoint { offered_hz: Some(rate_hz), ..CluPoint::default() });
            let mut measured = RowRepetitions { seconds: duration.as_secs_f64(), ..RowRepetitions::default() };
            for _ in 0..n_repetitions {
                let request = CluWorkRequest::Open { rate_hz, duration_ms: duration.as_millis() as u64 };
                match self.requests(FODO, &request, duration) {
                    Ok(repetition) => measured.repetitions.push(repetition),
                    Err(failure) => measured.failure = Some(failure),
                }
            }
            rows.push(rows::of_requests(&place, plan, &measured));
        }
        self.progress.inc(self.run.n_repetitions() as u64);
        rows
    }

    /// Requests per second of C2, which is measured once if the run does not contain it.
    fn reached_hz(&mut self, before: &[ResultRow]) -> Result<f64, DriverFailure> {
        let is_it = |row: &&ResultRow| {
            (row.question.as_str(), row.client.as_str(), row.server.as_str()) == ("C2", "fodo", "fodo")
        };
        if let Some(row) = before.iter().find(is_it) {
            let why = || row.why.clone().unwrap_or_default();
            let median = row.median.filter(|_| row.is_measured());
            return median.ok_or_else(|| DriverFailure::Operation { what: "C2".into(), why: why() });
        }
        let duration = self.run.duration.mul_f64(ECHO_SHARE);
        let duration_ms = duration.as_millis() as u64;
        let request =
            CluWorkRequest::Closed { n_threads: 1, n_in_flight: 64, warm_up_ms: duration_ms / 5, duration_ms };
        let repetition = self.requests(FODO, &request, duration)?;
        Ok(repetition.sums.in_time as f64 / duration.as_secs_f64())
    }

    fn subscribe(&mut self, plan: &QuestionPlan) -> ResultRow {
        self.progress.set_message(plan.question);
        let place = self.place(plan, FODO, N_SUBSCRIPTIONS as u64);
        let n_changes = self.run.n_changes();
        let period_ms = CHANGE_PERIOD.as_millis() as u64;
        let request = CluWorkRequest::Subscribe { n_subscriptions: N_SUBSCRIPTIONS, n_changes, period_ms };
        let changes = CHANGE_PERIOD * u32::try_from(n_changes).unwrap_or(u32::MAX);
        let answer = self.work(FODO, &request, changes + CLU_FIRST_UPDATE_MAX + CLU_LAST_UPDATE_MAX);
        self.progress.inc(self.run.n_repetitions() as u64);
        match answer {
            Ok((CluWorkReply::Subscribed(sums), server)) => rows::of_subscriptions(&place, &sums, server),
            Ok((other, _)) => rows::without_number(&place, &unexpected(&other)),
            Err(failure) => rows::without_number(&place, &failure),
        }
    }

    fn requests(
        &mut self,
        pair: RequestPair,
        request: &CluWorkRequest,
        duration: Duration,
    ) -> Result<MeasuredRepetition, DriverFailure> {
        match self.work(pair, request, duration + CLU_WARM_UP_JAVA + 2 * CLU_TIMEOUT)? {
            (CluWorkReply::Requests(sums), server) => Ok(MeasuredRepetition { sums, server }),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// The answer of the client's process, and what the server used meanwhile. Starts both processes if they do not run.
    fn work(
        &mut self,
        pair: RequestPair,
        request: &CluWorkRequest,
        duration: Duration,
    ) -> Result<(CluWorkReply, Usage), DriverFailure> {
        let server = self.server(pair.1)?;
        let number = server.process_number();
        let mut driver = match self.drivers.iter().position(|(known, _)| *known == pair) {
            Some(index) => self.drivers.swap_remove(index).1,
            None => self.start(pair)?,
        };
        let before = Usage::of_process(&number);
        let answer = exchange(&mut driver, request, duration + ANSWER_MAX);
        let used = Usage::of_process(&number).since(before);
        // A process that timed out may still be busy, and one that has ended cannot be used again.
        if !matches!(answer, Err(DriverFailure::Silent { .. } | DriverFailure::Ended { .. })) {
            self.drivers.push((pair, driver));
        }
        Ok((answer?, used))
    }

    fn server(&mut self, kind: CluServerKind) -> Result<&CluServerProcess, DriverFailure> {
        let known = self.servers.iter().position(|(known, _)| *known == kind);
        let index = known.unwrap_or_else(|| {
            let jars = self.run.opengr8ton.as_deref();
            self.servers.push((kind, CluServerProcess::start(kind, self.cpus.server_cpu, jars)));
            self.servers.len() - 1
        });
        self.servers[index].1.as_ref().map_err(Clone::clone)
    }

    /// Starts the client's process, and waits until the server answers.
    fn start(&mut self, (client, kind): RequestPair) -> Result<ChildProcess, DriverFailure> {
        let cpu = self.cpus.client_cpu(self.placement);
        let server = self.server(kind)?;
        let timeout_ms = CLU_TIMEOUT.as_millis().to_string();
        let address = server.address.to_string();
        let mut words = vec!["lab", "worker", "drive-clu", "--server", &address, "--client", client.text()];
        words.extend(["--reply", kind.reply().text(), "--timeout-ms", &timeout_ms]);
        words.extend((kind == CluServerKind::OpenGr8ton).then_some("--from-any-port"));
        let mut driver = launch(client.text(), &words, cpu, server.ports)?;
        driver.wait_for(ANSWER_MAX, |line| (line == worker::READY).then_some(()))?;
        let patience_ms = CLU_ANSWER_MAX.as_millis() as u64;
        exchange(&mut driver, &CluWorkRequest::AwaitAnswer { patience_ms }, CLU_ANSWER_MAX + ANSWER_MAX)?;
        Ok(driver)
    }

    /// A row with everything that identifies it.
    fn place(&self, plan: &QuestionPlan, (client, server): RequestPair, point: u64) -> ResultRow {
        ResultRow {
            question: plan.question.into(),
            title: plan.title.into(),
            series: self.placement.text().into(),
            variant: "none".into(),
            point,
            client: client.text().into(),
            server: server.text().into(),
            clu: Some(CluPoint::default()),
            ..ResultRow::default()
        }
    }
}

fn launch(who: &str, words: &[&str], cpu: Option<usize>, ports: Ports) -> Result<ChildProcess, DriverFailure> {
    let unavailable = |why: std::io::Error| DriverFailure::Unavailable { who: who.into(), why: why.to_string() };
    let program = crate::program::path().map_err(unavailable)?;
    let args = words.iter().map(Into::into).collect();
    ChildProcess::start(&Launch { who: who.into(), program, args, cpu, ports, variables: Vec::new() })
}

fn exchange(
    process: &mut ChildProcess,
    request: &CluWorkRequest,
    patience: Duration,
) -> Result<CluWorkReply, DriverFailure> {
    let line = serde_json::to_string(request).map_err(|why| DriverFailure::Protocol { line: why.to_string() })?;
    process.write_line(&line)?;
    match process.wait_for(patience, |line| serde_json::from_str(line).ok())? {
        CluWorkReply::Failed { why } => Err(DriverFailure::Operation { what: line, why }),
        reply => Ok(reply),
    }
}

fn unexpected(reply: &CluWorkReply) -> DriverFailure {
    DriverFailure::Protocol { line: format!("{reply:?}") }
}

#[cfg(test)]
mod tests {
    use fodo_clu::limit::IN_FLIGHT_MAX;

    use super::*;

    fn run(is_short: bool) -> CluRun {
        let duration = Duration::from_secs_f64(if is_short { SECONDS_SHORT } else { SECONDS });
        CluRun { is_short, duration, questions: Vec::new(), opengr8ton: None, json: None }
    }

    #[test]
    fn the_short_form_has_six_seconds_three_times_and_takes_less_than_a_minute() {
        let run = run(true);
        let mut total = Duration::ZERO;
        for plan in QUESTIONS {
            total += match plan.work {
                PlannedWork::Closed { .. } => {
                    let of_pair = |pair: &RequestPair| CLU_WARM_UP + run.duration_of(&plan, pair.1);
                    plan.pairs(false).iter().map(of_pair).sum::<Duration>() * run.n_repetitions() as u32
                }
                PlannedWork::Open => run.duration_of(&plan, FODO.1) * OPEN_PER_CENT.len() as u32,
                PlannedWork::Subscribe => CHANGE_PERIOD * (run.n_changes() as u32 + 1),
            };
        }

        assert_eq!(run.duration_of(&QUESTIONS[0], CluServerKind::Fodo), Duration::from_secs(6));
        assert_eq!(run.n_repetitions(), 3);
        // The rest of the minute is for starts, and for requests that time out.
        assert!(total < Duration::from_secs(52), "{total:?}");
    }

    #[test]
    fn the_study_is_repeated_as_published() {
        let (run, study) = (run(false), study::PublishedRequests::load().unwrap());

        let PlannedWork::Closed { n_threads, n_in_flight } = QUESTIONS[0].work else { panic!("a closed loop") };

        assert_eq!((n_threads, n_in_flight), (study.n_threads, 1));
        assert_eq!(run.duration_of(&QUESTIONS[0], CluServerKind::Fodo).as_secs(), u64::from(study.seconds));
        assert!(study.machines.iter().all(|machine| machine.requests.len() == run.n_repetitions()));
    }

    #[test]
    fn each_question_has_its_clients_and_opengr8ton_takes_part_where_it_is_available() {
        let texts = |question: &str, has_opengr8ton| {
            let pairs = plan_of(question).unwrap().pairs(has_opengr8ton);
            pairs.iter().map(|(client, server)| format!("{} {}", client.text(), server.text())).collect::<Vec<_>>()
        };

        assert_eq!(texts("C1", false), ["raw raw", "aes aes", "fodo fodo"]);
        assert_eq!(texts("C3", true), ["raw raw", "aes aes", "fodo fodo", "fodo opengr8ton"]);
        assert_eq!(texts("C4", true), ["generator raw", "generator aes", "generator fodo", "generator opengr8ton"]);
        assert_eq!(texts("C5", true), ["fodo fodo"]);
        assert!(plan_of("C7").is_none());
        assert!(QUESTIONS.iter().all(|plan| match plan.work {
            PlannedWork::Closed { n_in_flight, .. } => n_in_flight <= IN_FLIGHT_MAX,
            _ => true,
        }));
    }
}
