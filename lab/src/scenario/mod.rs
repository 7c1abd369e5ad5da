//! Scenarios: the questions for drivers, and their reasons. They are data, one file each in `scenarios`.
//!
//! The questions keep the names of the published Channel Access studies they are from; P1 and so on are ours.

mod measure;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::driver::{ClientUnderTest, CloseBy, ConnectedChannels, DriverFailure, DriverRequest, Variant};
use crate::limit::{
    DESCRIPTORS_PER_CONTEXT, DESCRIPTORS_RESERVED, WARM_UP_CHANNELS, WARM_UP_ELEMENTS, WARM_UP_ONE_BY_ONE,
};
use crate::placement::{HostLink, Placement};
use crate::protocol::LabProtocol;
pub use measure::{DriverTaskRunner, TaskTimes};

/// The shared PV of all channels: a counter that increments ten times a second.
const COUNTER_PV: &str = "ca:test:counter01";

/// PVs whose value is their number.
const NUMBERED_PV: &str = "lab:{:06}";

/// Similar PVs for puts, so that an interrupted put does not change the numbers of the others.
const PUT_PV: &str = "put:{:06}";

/// The scenario files, in the order of the tables.
const FILES: [&str; 22] = [
    include_str!("../../scenarios/q1.toml"),
    include_str!("../../scenarios/q2.toml"),
    include_str!("../../scenarios/q4.toml"),
    include_str!("../../scenarios/q11.toml"),
    include_str!("../../scenarios/q14.toml"),
    include_str!("../../scenarios/q15.toml"),
    include_str!("../../scenarios/q16.toml"),
    include_str!("../../scenarios/q17.toml"),
    include_str!("../../scenarios/q18.toml"),
    include_str!("../../scenarios/q19.toml"),
    include_str!("../../scenarios/q20.toml"),
    include_str!("../../scenarios/q21.toml"),
    include_str!("../../scenarios/q31.toml"),
    include_str!("../../scenarios/put_at_once.toml"),
    include_str!("../../scenarios/put_unconfirmed_at_once.toml"),
    include_str!("../../scenarios/get_in_flight.toml"),
    include_str!("../../scenarios/contexts_at_work.toml"),
    include_str!("../../scenarios/commands.toml"),
    include_str!("../../scenarios/first_get.toml"),
    include_str!("../../scenarios/first_get_at_once.toml"),
    include_str!("../../scenarios/first_monitor_at_once.toml"),
    include_str!("../../scenarios/get_whole_at_once.toml"),
];

/// The extent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suite {
    /// Every question at one or two points: less than two minutes.
    Quick,
    /// Every question at the points of the studies: at most an hour.
    Full,
    /// The cost of records and clients in a soft IOC: loads only, no question of the studies.
    Ioc,
    /// The questions and loads over pvAccess, by its clients and servers.
    Pva,
    /// The questions of studies 000 and 001 and the loads in Java, by Fodo in Rust and in Java and by PSI's `ca`.
    Java,
}

impl Suite {
    /// All suites.
    pub const ALL: [Suite; 5] = [Suite::Quick, Suite::Full, Suite::Ioc, Suite::Pva, Suite::Java];

    /// The suite's name.
    pub fn text(self) -> &'static str {
        match self {
            Suite::Quick => "quick",
            Suite::Full => "full",
            Suite::Ioc => "ioc",
            Suite::Pva => "pva",
            Suite::Java => "java",
        }
    }

    /// The protocols that it measures.
    pub fn protocols(self) -> &'static [LabProtocol] {
        match self {
            Suite::Quick => &[LabProtocol::Ca, LabProtocol::Pva],
            Suite::Full | Suite::Ioc | Suite::Java => &[LabProtocol::Ca],
            Suite::Pva => &[LabProtocol::Pva],
        }
    }
}

/// A question.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The question's id; that of the studies where the question is theirs.
    pub question: String,
    /// The question.
    pub title: String,
    /// The quantity that points count.
    pub points_are: String,
    /// The request to the driver.
    pub request: MeasuredRequest,
    /// How a context is closed, for questions about that.
    pub how: Option<CloseBy>,
    /// The part of the time that is the result.
    #[serde(default)]
    pub part: TimedPart,
    /// Whether each repetition is the first work of a fresh process, without a warm-up.
    #[serde(default)]
    cold: bool,
    /// The question that the largest point answers with "at least".
    pub at_least: Option<String>,
    /// The question whether objects are shared, which every row answers by counting distinct ones.
    pub distinct: Option<String>,
    /// What is done and timed.
    pub method: String,
    /// What holds before the measurement.
    pub preconditions: String,
    /// How it is verified that the work was done.
    pub verification: String,
    /// Which PVs it uses.
    pub variants: Vec<Variant>,
    /// The suites that also ask it between two hosts.
    #[serde(default)]
    hosts: Vec<Suite>,
    /// Points over Channel Access.
    quick: Option<Points>,
    full: Option<Points>,
    java: Option<Points>,
    /// Points over pvAccess, in a quick run and in one of pvAccess.
    quick_pva: Option<Points>,
    pva: Option<Points>,
}

/// A request to a driver; see the table in [`crate::driver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasuredRequest {
    ContextClose,
    CreateContexts,
    CreateChannels,
    ConnectOneByOne,
    ConnectAtOnce,
    GetScalars,
    GetAtOnce,
    GetWholeAtOnce,
    MonitorAtOnce,
    PutAtOnce,
    PutUnconfirmedAtOnce,
    GetInFlight,
    ContextsAtWork,
    Commands,
    MoveArray,
}

/// The part of the time that is the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimedPart {
    /// The total time.
    #[default]
    Total,
    /// The time to create the objects.
    Created,
}

/// The points at which a question is measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Points {
    /// The points, ascending.
    points: Vec<usize>,
    /// The points with distinct PVs, if they differ.
    distinct: Option<Vec<usize>>,
    /// The points for external clients, by variant; all points if missing. Such a client takes a second to start and
    /// half a second to prepare for each question, whatever the point.
    external: Option<HashMap<Variant, Vec<usize>>>,
    /// External clients that are left out, because they take a second to prepare.
    #[serde(default)]
    without: Vec<ClientUnderTest>,
    /// The points that are also measured between two hosts with a delay, for every variant that has them.
    #[serde(default)]
    delayed: Vec<usize>,
    /// The points that are also measured with the client on all CPUs, for every variant that has them.
    #[serde(default)]
    not_pinned: Vec<usize>,
    /// Maximum time of a driver for one point, including untimed work.
    cap_s: f64,
}

impl Points {
    /// The points of a variant.
    pub fn of(&self, variant: Variant) -> &[usize] {
        match (&self.distinct, variant) {
            (Some(distinct), Variant::Distinct) => distinct,
            _ => &self.points,
        }
    }

    /// Whether external clients are measured at this point.
    fn is_for_external(&self, variant: Variant, point: usize) -> bool {
        let has_point =
            |of: &HashMap<Variant, Vec<usize>>| of.get(&variant).is_some_and(|points| points.contains(&point));
        self.external.as_ref().is_none_or(has_point)
    }
}

impl Scenario {
    /// All scenarios, in the order of the tables.
    pub fn all() -> Result<Vec<Scenario>, toml::de::Error> {
        FILES.iter().map(|text| toml::from_str(text)).collect()
    }

    /// The points of a suite over a protocol, if the suite asks the question over it.
    pub fn points(&self, suite: Suite, protocol: LabProtocol) -> Option<&Points> {
        match (suite, protocol) {
            (Suite::Quick, LabProtocol::Ca) => self.quick.as_ref(),
            (Suite::Full, LabProtocol::Ca) => self.full.as_ref(),
            (Suite::Java, LabProtocol::Ca) => self.java.as_ref(),
            (Suite::Quick, LabProtocol::Pva) => self.quick_pva.as_ref(),
            (Suite::Pva, LabProtocol::Pva) => self.pva.as_ref(),
            _ => None,
        }
    }
}

/// See [`LabTask::kind`].
pub type TaskKind = (LabProtocol, MeasuredRequest, Option<CloseBy>, Variant, bool);

/// One piece of work for a driver; it may answer several questions.
#[derive(Clone, Debug, PartialEq)]
pub struct LabTask {
    /// The protocol.
    pub protocol: LabProtocol,
    /// The request to the driver.
    pub request: MeasuredRequest,
    /// How a context is closed.
    pub how: Option<CloseBy>,
    /// Which PVs it uses.
    pub variant: Variant,
    /// Whether it is the first work of a fresh process.
    pub is_cold: bool,
    /// The point.
    pub point: usize,
    /// Maximum time, in seconds.
    pub cap_s: f64,
    /// Whether external clients are measured as well.
    pub is_for_external: bool,
    /// External clients that are left out.
    pub without: Vec<ClientUnderTest>,
    /// Whether it is also measured between two hosts.
    pub is_for_hosts: bool,
    /// Whether it is also measured there with a delay.
    pub is_for_delay: bool,
    /// Whether it is also measured with the client on all CPUs.
    pub is_for_not_pinned: bool,
    /// The questions it answers, as indices of the scenarios.
    pub scenarios: Vec<usize>,
}

impl LabTask {
    /// Whether it is measured at this placement.
    pub fn is_for(&self, placement: Placement) -> bool {
        match placement.link() {
            HostLink::Loopback => placement != Placement::ClientNotPinned || self.is_for_not_pinned,
            HostLink::Cards => self.is_for_hosts,
            HostLink::Delayed => self.is_for_delay,
        }
    }

    /// Fails if a server of this user cannot have a circuit for each context.
    pub fn enough_descriptors(&self, n_descriptors_max: Option<usize>) -> Result<(), DriverFailure> {
        let n_needed = self.point * DESCRIPTORS_PER_CONTEXT + DESCRIPTORS_RESERVED;
        match n_descriptors_max {
            Some(most) if self.request == MeasuredRequest::ContextsAtWork && most < n_needed => {
                let why = format!("{} contexts need {n_needed} descriptors, `ulimit -Hn` is {most}", self.point);
                Err(DriverFailure::Operation { what: "contexts_at_work".into(), why })
            }
            _ => Ok(()),
        }
    }

    /// What it has in common with the same work at other points.
    pub fn kind(&self) -> TaskKind {
        (self.protocol, self.request, self.how, self.variant, self.is_cold)
    }

    /// The work that a client repeats to warm up for this task; `None` for a cold task, and where every operation is a
    /// separate process or is not timed.
    fn warm_up_round(&self) -> Option<LabTask> {
        let point = match self.request {
            _ if self.is_cold => return None,
            MeasuredRequest::Commands | MeasuredRequest::ContextClose => return None,
            MeasuredRequest::GetScalars => 1,
            MeasuredRequest::CreateContexts | MeasuredRequest::ContextsAtWork | MeasuredRequest::ConnectOneByOne => {
                WARM_UP_ONE_BY_ONE
            }
            MeasuredRequest::MoveArray => WARM_UP_ELEMENTS,
            _ => WARM_UP_CHANNELS,
        };
        Some(LabTask { point, ..self.clone() })
    }

    /// Whether `other` differs only in its point.
    pub fn is_like(&self, other: &LabTask) -> bool {
        self.kind() == other.kind()
    }

    /// Its name in a journal.
    pub fn name(&self) -> String {
        let cold = if self.is_cold { " cold" } else { "" };
        let protocol = self.protocol.suffix();
        format!("{:?} {:?} {:?} {}{cold}{protocol}", self.request, self.how, self.variant, self.point)
    }

    /// The request to the driver; `None` for work that takes more than one request.
    fn driver_request(&self) -> Option<DriverRequest> {
        let pattern = match (self.request, self.variant) {
            (MeasuredRequest::PutAtOnce | MeasuredRequest::PutUnconfirmedAtOnce, _) => PUT_PV,
            (_, Variant::Distinct) => NUMBERED_PV,
            _ => COUNTER_PV,
        };
        let batch = ConnectedChannels { pattern: pattern.into(), n: self.point, variant: self.variant };
        Some(match self.request {
            MeasuredRequest::ContextClose => {
                DriverRequest::ContextClose { pv: COUNTER_PV.into(), how: self.how.unwrap_or(CloseBy::Explicit) }
            }
            MeasuredRequest::CreateContexts => DriverRequest::CreateContexts { n: self.point, pv: COUNTER_PV.into() },
            MeasuredRequest::CreateChannels => DriverRequest::CreateChannels(batch),
            MeasuredRequest::ConnectOneByOne => DriverRequest::ConnectOneByOne(batch),
            MeasuredRequest::ConnectAtOnce => DriverRequest::ConnectAtOnce(batch),
            MeasuredRequest::GetAtOnce => DriverRequest::GetAtOnce(batch),
            MeasuredRequest::GetWholeAtOnce => DriverRequest::GetWholeAtOnce(batch),
            MeasuredRequest::MonitorAtOnce => DriverRequest::MonitorAtOnce(batch),
            MeasuredRequest::PutAtOnce => DriverRequest::PutAtOnce(batch),
            MeasuredRequest::PutUnconfirmedAtOnce => DriverRequest::PutUnconfirmedAtOnce(batch),
            MeasuredRequest::GetInFlight => DriverRequest::GetInFlight(batch),
            MeasuredRequest::ContextsAtWork => DriverRequest::ContextsAtWork(batch),
            MeasuredRequest::Commands => DriverRequest::Commands(batch),
            MeasuredRequest::GetScalars | MeasuredRequest::MoveArray => return None,
        })
    }
}

/// How many descriptors a process of this user may open; `None` without a limit.
pub fn n_descriptors_max() -> Option<usize> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.map(|most| most as usize);
    #[cfg(not(unix))]
    return None;
}

/// The tasks of a suite, without duplicates, small points first. Arrays have at most `elements_max` elements.
pub fn tasks(scenarios: &[Scenario], suite: Suite, elements_max: usize) -> Vec<LabTask> {
    let mut tasks: Vec<LabTask> = Vec::new();
    let over = |&protocol| scenarios.iter().enumerate().map(move |(index, scenario)| (protocol, index, scenario));
    for (protocol, index, scenario) in suite.protocols().iter().flat_map(over) {
        let Some(points) = scenario.points(suite, protocol) else { continue };
        for &variant in &scenario.variants {
            for &point in points.of(variant) {
                if scenario.request == MeasuredRequest::MoveArray && point > elements_max {
                    continue;
                }
                let (request, how, cap_s) = (scenario.request, scenario.how, points.cap_s);
                let is_for_external = points.is_for_external(variant, point);
                let is_for_hosts = protocol == LabProtocol::Ca && scenario.hosts.contains(&suite);
                let task = LabTask {
                    protocol,
                    request,
                    how,
                    variant,
                    is_cold: scenario.cold,
                    point,
                    cap_s,
                    is_for_external,
                    without: points.without.clone(),
                    is_for_hosts,
                    is_for_delay: points.delayed.contains(&point),
                    is_for_not_pinned: points.not_pinned.contains(&point),
                    scenarios: vec![index],
                };
                match tasks.iter_mut().find(|known| known.is_like(&task) && known.point == point) {
                    Some(known) => {
                        known.scenarios.push(index);
                        known.is_for_external |= is_for_external;
                        known.without.retain(|client| points.without.contains(client));
                        known.is_for_hosts |= is_for_hosts;
                        known.is_for_delay |= task.is_for_delay;
                        known.is_for_not_pinned |= task.is_for_not_pinned;
                    }
                    None => tasks.push(task),
                }
            }
        }
    }
    tasks
}

/// Number of numbered PVs that a suite needs, including its warm-ups.
pub fn n_numbered(tasks: &[LabTask]) -> usize {
    let of_task = |task: &LabTask| task.point.max(task.warm_up_round().map_or(0, |round| round.point));
    tasks.iter().filter(|task| task.variant == Variant::Distinct).map(of_task).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_study_question_has_a_scenario() {
        let scenarios = Scenario::all().unwrap();

        let mut answered: Vec<&str> = Vec::new();
        for scenario in &scenarios {
            answered.push(&scenario.question);
            answered.extend(scenario.at_least.as_deref());
            answered.extend(scenario.distinct.as_deref());
        }
        for n in [1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 31] {
            assert!(answered.contains(&format!("Q{n}").as_str()), "Q{n}");
        }
    }

    #[test]
    fn every_file_among_the_scenarios_is_listed() {
        let mut files: Vec<String> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios"))
            .unwrap()
            .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
            .collect();
        files.sort();
        let mut listed = FILES.to_vec();
        listed.sort();

        assert_eq!(files, listed);
    }

    #[test]
    fn every_scenario_has_points_and_a_verification() {
        for scenario in Scenario::all().unwrap() {
            let over = |suite: Suite| suite.protocols().iter().map(move |protocol| (suite, *protocol));
            let points = || Suite::ALL.into_iter().flat_map(over).filter_map(|(suite, of)| scenario.points(suite, of));
            assert!(points().count() > 0, "{}", scenario.question);
            for points in points() {
                assert!(!points.points.is_empty() && points.cap_s > 0.0, "{}", scenario.question);
                let known = |variant: &Variant, n: usize| points.of(*variant).contains(&n);
                let external = points.external.iter().flatten();
                let mut external = external.flat_map(|(variant, points)| points.iter().map(move |&n| (variant, n)));
                assert!(external.all(|(variant, n)| known(variant, n)), "{}", scenario.question);
                let is_measured = |n: &usize| scenario.variants.iter().any(|variant| known(variant, *n));
                assert!(points.delayed.iter().chain(&points.not_pinned).all(is_measured), "{}", scenario.question);
                assert!(points.points.is_sorted(), "{}", scenario.question);
            }
            assert!(!scenario.verification.is_empty() && !scenario.variants.is_empty(), "{}", scenario.question);
        }
    }

    #[test]
    fn a_run_over_pvaccess_asks_q14_to_q21_and_p1_to_p5_and_a_quick_run_two_questions() {
        let scenarios = Scenario::all().unwrap();
        let questions = |suite| -> Vec<&str> {
            let is_chosen = |scenario: &&Scenario| scenario.points(suite, LabProtocol::Pva).is_some();
            scenarios.iter().filter(is_chosen).map(|scenario| scenario.question.as_str()).collect()
        };

        let of_studies = ["Q14", "Q15", "Q16", "Q17", "Q18", "Q19", "Q20", "Q21"];
        let ours = ["P1", "P2", "P3", "P4", "P5"];
        assert!(of_studies.iter().chain(&ours).all(|question| questions(Suite::Pva).contains(question)));
        assert_eq!(questions(Suite::Quick).len(), 2);
    }

    #[test]
    fn a_task_that_answers_two_questions_runs_once() {
        let scenarios = Scenario::all().unwrap();

        let tasks = tasks(&scenarios, Suite::Full, usize::MAX);

        let connect = tasks.iter().find(|task| task.request == MeasuredRequest::ConnectAtOnce).unwrap();
        let questions: Vec<&str> = connect.scenarios.iter().map(|index| scenarios[*index].question.as_str()).collect();
        assert_eq!(questions, ["Q15", "Q16"]);
        assert_eq!(n_numbered(&tasks), 100_000);
    }

    #[test]
    fn every_task_is_warmed_up_except_cold_rows_and_separate_processes() {
        let tasks = tasks(&Scenario::all().unwrap(), Suite::Full, usize::MAX);

        for task in &tasks {
            let is_process = matches!(task.request, MeasuredRequest::Commands | MeasuredRequest::ContextClose);
            let round = task.warm_up_round();
            assert_eq!(round.is_none(), task.is_cold || is_process, "{task:?}");
            assert!(round.is_none_or(|round| round.kind() == task.kind() && round.point > 0), "{task:?}");
        }
        let cold: Vec<MeasuredRequest> = tasks.iter().filter(|task| task.is_cold).map(|task| task.request).collect();
        assert_eq!(cold, [MeasuredRequest::GetScalars, MeasuredRequest::GetAtOnce, MeasuredRequest::MonitorAtOnce]);
    }

    #[test]
    fn contexts_beyond_the_descriptors_of_a_server_are_not_run_and_the_reason_has_the_limit() {
        let tasks = tasks(&Scenario::all().unwrap(), Suite::Java, usize::MAX);
        let is_it = |task: &&LabTask| task.request == MeasuredRequest::ContextsAtWork && task.point == 10_000;
        let task = tasks.iter().find(is_it).unwrap();

        assert!(task.enough_descriptors(None).is_ok() && task.enough_descriptors(Some(20_600)).is_ok());
        let why = task.enough_descriptors(Some(20_599)).unwrap_err().to_string();
        assert!(why.contains("10000 contexts need 20600 descriptors, `ulimit -Hn` is 20599"), "{why}");
    }

    #[test]
    fn a_suite_has_enough_numbered_pvs_for_its_warm_ups() {
        let mut scenarios = Scenario::all().unwrap();
        scenarios.retain(|scenario| scenario.question == "Q14");

        assert_eq!(n_numbered(&tasks(&scenarios, Suite::Quick, usize::MAX)), WARM_UP_ONE_BY_ONE);
    }
}
