//! The rows of a run in progress, and the rows and answers of its result.

use std::collections::HashMap;

use crate::driver::{ClientUnderTest, DriverFailure, YesNoAnswer};
use crate::histogram;
use crate::journal::TaskOutcome;
use crate::pair::ClientServerPair;
use crate::placement::{HostLink, Placement};
use crate::result::{QuestionAnswer, ResultFile, ResultRow, RowVerdict, SampleUnit};
use crate::runner::DriverRun;
use crate::scenario::{LabTask, MeasuredRequest, Scenario, TaskTimes, TimedPart};
use crate::server::ServerKind;
use crate::statistics::quantile_ns;
use crate::warm_up::WarmUp;

/// The reported percentiles, and the minimum number of individual times for each to be meaningful.
const PERCENTILES: [(f64, usize); 4] = [(50.0, 10), (99.0, 1000), (99.9, 10_000), (99.99, 100_000)];

/// One row in progress.
#[derive(Debug)]
struct RowInProgress {
    task: usize,
    scenario: usize,
    part: TimedPart,
    pair: ClientServerPair,
    placement: Placement,
    row: ResultRow,
    latencies_ns: Vec<u64>,
    answered: Option<YesNoAnswer>,
    /// Repetitions that exceeded the time limit, or were skipped because a smaller point did.
    n_lost: usize,
    /// The last such repetition.
    skipped_in: Option<usize>,
    state: RowState,
}

/// State of a row in progress.
#[derive(Clone, Debug, PartialEq)]
enum RowState {
    /// Every repetition so far was measured, and all checks passed.
    Open,
    /// A check failed, so the row has no result.
    Failed(DriverFailure),
    /// The time limit was exceeded.
    Capped(String),
    /// A peer is missing, or does not support the request.
    NotRun(String),
}

/// All rows of a run in progress.
#[derive(Debug)]
pub struct RowsInProgress(Vec<RowInProgress>);

impl RowsInProgress {
    /// Empty rows for every task at every placement; rows of a missing peer contain the reason.
    pub fn new(
        scenarios: &[Scenario],
        tasks: &[LabTask],
        places: &[(ClientServerPair, Placement)],
        missing: &HashMap<ClientServerPair, String>,
    ) -> RowsInProgress {
        let mut lines = Vec::new();
        for (index, scenario) in scenarios.iter().enumerate() {
            let of_scenario = tasks.iter().enumerate().filter(|(_, task)| task.scenarios.contains(&index));
            for (task_index, task) in of_scenario {
                // Creating objects moves no bytes: only the total time has a floor.
                let answers = |pair: ClientServerPair| {
                    pair.answers(task) && (pair.client != ClientUnderTest::Raw || scenario.part == TimedPart::Total)
                };
                let requested = places.iter().filter(|(pair, placement)| answers(*pair) && task.is_for(*placement));
                for &(pair, placement) in requested {
                    let state = missing.get(&pair).map_or(RowState::Open, |why| RowState::NotRun(why.clone()));
                    lines.push(RowInProgress {
                        task: task_index,
                        scenario: index,
                        part: scenario.part,
                        pair,
                        placement,
                        row: row(scenario, task, pair, placement),
                        latencies_ns: Vec::new(),
                        answered: None,
                        n_lost: 0,
                        skipped_in: None,
                        state,
                    });
                }
            }
        }
        RowsInProgress(lines)
    }

    /// Whether any row requires two hosts.
    pub fn need_hosts(&self) -> bool {
        self.0.iter().any(|line| line.placement.link() != HostLink::Loopback && line.state == RowState::Open)
    }

    /// Fails all open rows of a server that does not start.
    pub fn fail_server(&mut self, server: ServerKind, link: HostLink, failure: &DriverFailure) {
        let is_its = |line: &&mut RowInProgress| line.pair.server == server && line.placement.link() == link;
        for line in self.0.iter_mut().filter(is_its).filter(|line| line.state == RowState::Open) {
            line.state = RowState::Failed(failure.clone());
        }
    }

    /// Marks all open rows between two hosts as not run.
    pub fn skip_hosts(&mut self, why: &str) {
        let is_apart = |line: &&mut RowInProgress| line.placement.link() != HostLink::Loopback;
        for line in self.0.iter_mut().filter(is_apart).filter(|line| line.state == RowState::Open) {
            line.state = RowState::NotRun(why.to_owned());
        }
    }

    /// Whether a task is worth another attempt: a task that failed would only cost further timeouts.
    pub fn is_worth_measuring(&self, driver_run: DriverRun, task: usize) -> bool {
        // A yes-or-no question is asked once: it has no spread.
        let is_open = |line: &RowInProgress| {
            line.state == RowState::Open && line.answered.is_none() && line.skipped_in != Some(driver_run.repetition)
        };
        self.0.iter().any(|line| line.is_of(driver_run) && line.task == task && is_open(line))
    }

    /// Adds the outcome of one task in one repetition.
    pub fn record(&mut self, driver_run: DriverRun, task_index: usize, tasks: &[LabTask], outcome: &TaskOutcome) {
        let Some(task) = tasks.get(task_index) else { return };
        for line in self.0.iter_mut().filter(|line| line.is_of(driver_run) && line.state == RowState::Open) {
            let Some(own) = tasks.get(line.task) else { continue };
            match outcome {
                TaskOutcome::Measured(measured) if line.task == task_index => line.add(measured),
                // Earlier measurements are kept, and a single timeout is no reason to give up, unless each attempt
                // costs the start of a slow process.
                TaskOutcome::Failed(DriverFailure::Silent { .. })
                    if line.has_another_try() && is_skipped_after(own, task) =>
                {
                    line.n_lost += 1;
                    line.skipped_in = Some(driver_run.repetition);
                }
                TaskOutcome::Failed(DriverFailure::Silent { after_s, .. }) if is_skipped_after(own, task) => {
                    let why = format!("not completed within {:.0} s at {}", after_s.max(task.cap_s), task.point);
                    line.state = RowState::Capped(why);
                }
                TaskOutcome::Failed(failure) if line.task == task_index => {
                    line.state = of_failure(failure, task.request, driver_run.pair.client);
                }
                _ => {}
            }
        }
    }

    /// Adds the rows with their statistics to `result`, and the answers that follow from them.
    pub fn finish(self, scenarios: &[Scenario], seed: u64, result: &mut ResultFile) {
        for line in self.0 {
            let scenario = line.scenario;
            let (row, answer) = line.finish(seed);
            if let Some(answer) = answer {
                // The question is asked on one core and on two; the answer is listed twice only if they differ.
                if !result.answers.contains(&answer) {
                    result.answers.push(answer);
                }
                continue;
            }
            if let Some(scenario) = scenarios.get(scenario) {
                derived_answers(scenario, &row, &mut result.answers);
            }
            result.rows.push(row);
        }
        let floors: Vec<ResultRow> = result
            .rows
            .iter()
            .filter(|row| row.client == ClientUnderTest::Raw.text() && row.is_measured())
            .cloned()
            .collect();
        for row in result.rows.iter_mut().filter(|row| !row.is_floor()) {
            let key = |row: &ResultRow| {
                (row.question.clone(), row.protocol, row.series.clone(), row.variant.clone(), row.point)
            };
            let same = |floor: &&ResultRow| key(floor) == key(row);
            row.floor = floors.iter().find(same).and_then(|floor| floor.median);
        }
    }
}

/// Whether `own` would exceed its time limit as well, after `task` did.
fn is_skipped_after(own: &LabTask, task: &LabTask) -> bool {
    own.is_like(task) && own.point >= task.point
}

impl RowInProgress {
    fn is_of(&self, driver_run: DriverRun) -> bool {
        self.pair == driver_run.pair && self.placement == driver_run.placement
    }

    /// Whether a repetition that exceeded its time limit may be repeated.
    fn has_another_try(&self) -> bool {
        let is_first = self.n_lost == 0 && !self.pair.client.starts_slowly();
        !self.row.samples.is_empty() || is_first
    }

    fn add(&mut self, measured: &TaskTimes) {
        self.row.n_operations = measured.n_operations as u64;
        if measured.answered.is_some() {
            self.answered.clone_from(&measured.answered);
            return;
        }
        match (self.part, measured.created_ns) {
            (TimedPart::Total, _) => self.row.samples.push(measured.ns),
            (TimedPart::Created, Some(created_ns)) => self.row.samples.push(created_ns),
            (TimedPart::Created, None) => {
                self.state = RowState::NotRun("its driver does not measure this part separately".into())
            }
        }
        self.latencies_ns.extend(&measured.latencies_ns);
        self.row.warm_up = match (self.row.warm_up, measured.warm_up) {
            (Some(before), Some(now)) => Some(before.join(now)),
            (before, now) => before.or(now),
        };
    }

    fn finish(mut self, seed: u64) -> (ResultRow, Option<QuestionAnswer>) {
        let row = &mut self.row;
        if let (RowState::Open, Some(answered)) = (&self.state, self.answered) {
            let answer = QuestionAnswer {
                question: row.question.clone(),
                client: row.client.clone(),
                server: row.server.clone(),
                yes: answered.yes,
                words: answered.words.unwrap_or_default(),
            };
            return (self.row, Some(answer));
        }
        (row.verdict, row.why) = match self.state {
            RowState::Open if row.samples.is_empty() => {
                (RowVerdict::NotRun, Some("the time limit of the run was reached before this task".into()))
            }
            RowState::Open if self.n_lost > 0 => {
                (RowVerdict::Measured, Some(format!("{} repetitions exceeded the time limit", self.n_lost)))
            }
            RowState::Open => (RowVerdict::Measured, row.warm_up.and_then(WarmUp::note)),
            RowState::Failed(failure) => (RowVerdict::Failed, Some(failure.to_string())),
            RowState::Capped(why) => (RowVerdict::Capped, Some(why)),
            RowState::NotRun(why) => (RowVerdict::NotRun, Some(why)),
        };
        if row.verdict != RowVerdict::Measured {
            row.samples.clear();
            return (self.row, None);
        }
        row.summarize(seed);
        row.histogram = histogram::compact(self.latencies_ns.iter().map(|ns| (*ns, 1)));
        for (per_cent, n_min) in PERCENTILES {
            if self.latencies_ns.len() >= n_min {
                row.percentiles.extend(quantile_ns(&self.latencies_ns, per_cent / 100.0).map(|ns| (per_cent, ns)));
            }
        }
        (self.row, None)
    }
}

fn row(scenario: &Scenario, task: &LabTask, pair: ClientServerPair, placement: Placement) -> ResultRow {
    ResultRow {
        question: scenario.question.clone(),
        protocol: pair.protocol,
        title: scenario.title.clone(),
        series: placement.text().into(),
        variant: task.variant.text().into(),
        point: task.point as u64,
        client: pair.client.text().into(),
        server: pair.server.text().into(),
        unit: "ns".into(),
        per: SampleUnit::Operation,
        bytes: (task.request == MeasuredRequest::MoveArray).then_some(4 * task.point as u64),
        ..ResultRow::default()
    }
}

/// A driver that does not support a request reports the request itself as the failed operation. External drivers
/// describe in their own words what they do not support; for an unexpected error they report the complete request line
/// as the failed operation.
fn of_failure(failure: &DriverFailure, request: MeasuredRequest, client: ClientUnderTest) -> RowState {
    let name = serde_json::to_value(request).unwrap_or_default();
    match failure {
        DriverFailure::Operation { what, .. } if client.external().is_some() && !what.starts_with('{') => {
            RowState::NotRun(failure.to_string())
        }
        DriverFailure::Operation { what, why } if name == what.as_str() => RowState::NotRun(format!("{what}: {why}")),
        _ => RowState::Failed(failure.clone()),
    }
}

/// Adds the further answers that follow from a row; a larger point replaces a smaller one.
fn derived_answers(scenario: &Scenario, row: &ResultRow, answers: &mut Vec<QuestionAnswer>) {
    if !row.is_measured() || row.is_floor() {
        return;
    }
    let at_least = scenario.at_least.as_ref().map(|question| (question, true, format!("at least {}", row.point)));
    let words = format!("{} {} at the same time, all distinct", row.point, scenario.points_are);
    let shared = scenario.distinct.as_ref().map(|question| (question, false, words));
    for (question, yes, words) in at_least.into_iter().chain(shared) {
        let answer = QuestionAnswer {
            question: question.clone(),
            client: row.client.clone(),
            server: row.server.clone(),
            yes,
            words,
        };
        let same = |known: &&mut QuestionAnswer| {
            (&known.question, &known.client, &known.server) == (&answer.question, &answer.client, &answer.server)
        };
        match answers.iter_mut().find(same) {
            Some(known) if n_of(&known.words) < row.point => *known = answer,
            Some(_) => {}
            None => answers.push(answer),
        }
    }
}

fn n_of(words: &str) -> u64 {
    words.split(' ').find_map(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::LabProtocol;
    use crate::scenario::{self, Suite};

    const PAIR: ClientServerPair =
        ClientServerPair { client: ClientUnderTest::Fodo, server: ServerKind::Fodo, protocol: LabProtocol::Ca };
    const PLACE: (ClientServerPair, Placement) = (PAIR, Placement::TwoCores);

    fn lines() -> (Vec<Scenario>, Vec<LabTask>, RowsInProgress) {
        let scenarios = Scenario::all().unwrap();
        let mut tasks = scenario::tasks(&scenarios, Suite::Quick, usize::MAX);
        tasks.retain(|task| task.protocol == LabProtocol::Ca);
        let lines =
            RowsInProgress::new(&scenarios, &tasks, &[(ClientServerPair::FLOOR, PLACE.1), PLACE], &HashMap::new());
        (scenarios, tasks, lines)
    }

    fn driver_run(pair: ClientServerPair) -> DriverRun {
        DriverRun { pair, placement: PLACE.1, repetition: 0 }
    }

    fn task(tasks: &[LabTask], request: MeasuredRequest) -> usize {
        tasks.iter().position(|task| task.request == request).unwrap()
    }

    fn finish(scenarios: &[Scenario], lines: RowsInProgress) -> ResultFile {
        let mut result = ResultFile::new("quick", "");
        lines.finish(scenarios, 1, &mut result);
        result
    }

    fn measured(ns: f64) -> TaskOutcome {
        TaskOutcome::Measured(TaskTimes { ns, created_ns: Some(ns / 2.0), n_operations: 1, ..TaskTimes::default() })
    }

    #[test]
    fn a_result_is_paired_with_its_floor_and_one_task_can_answer_two_questions() {
        let (scenarios, tasks, mut lines) = lines();
        lines.record(
            driver_run(ClientServerPair::FLOOR),
            task(&tasks, MeasuredRequest::GetScalars),
            &tasks,
            &measured(10.0),
        );
        lines.record(driver_run(PAIR), task(&tasks, MeasuredRequest::GetScalars), &tasks, &measured(25.0));
        lines.record(driver_run(PAIR), task(&tasks, MeasuredRequest::ConnectAtOnce), &tasks, &measured(100.0));
        lines.record(
            driver_run(ClientServerPair::FLOOR),
            task(&tasks, MeasuredRequest::ConnectAtOnce),
            &tasks,
            &measured(50.0),
        );

        let result = finish(&scenarios, lines);

        let of = |question: &str| {
            result.rows.iter().find(|row| row.question == question && row.client == "fodo" && row.is_measured())
        };
        assert_eq!(of("Q17").and_then(ResultRow::to_floor), Some(2.5));
        assert_eq!(
            (of("Q15").and_then(ResultRow::to_floor), of("Q16").and_then(ResultRow::to_floor)),
            (None, Some(2.0))
        );
        assert_eq!((of("Q15").unwrap().median, of("Q16").unwrap().median), (Some(50.0), Some(100.0)));
    }

    #[test]
    fn a_task_that_times_out_skips_larger_points_but_not_other_questions() {
        let (scenarios, tasks, mut lines) = lines();
        let silent = TaskOutcome::Failed(DriverFailure::Silent { who: "x".into(), after_s: 1.0 });
        let first = task(&tasks, MeasuredRequest::CreateContexts);
        let again = DriverRun { repetition: 1, ..driver_run(PAIR) };

        lines.record(driver_run(PAIR), first, &tasks, &silent);
        let runnable: Vec<[bool; 2]> = (0..tasks.len())
            .map(|index| [lines.is_worth_measuring(driver_run(PAIR), index), lines.is_worth_measuring(again, index)])
            .collect();
        lines.record(again, first, &tasks, &silent);

        for (task, runnable) in tasks.iter().zip(runnable) {
            assert_eq!(runnable, [task.request != MeasuredRequest::CreateContexts, true], "{task:?}");
        }
        let result = finish(&scenarios, lines);
        let mut of_contexts = result.rows.iter().filter(|row| row.question == "Q4" && row.client == "fodo");
        assert!(of_contexts.all(|row| row.verdict == RowVerdict::Capped));
    }

    #[test]
    fn measured_samples_are_kept_if_a_later_repetition_times_out() {
        let (scenarios, tasks, mut lines) = lines();
        let get = task(&tasks, MeasuredRequest::GetScalars);
        lines.record(driver_run(PAIR), get, &tasks, &measured(5.0));
        let silent = TaskOutcome::Failed(DriverFailure::Silent { who: "x".into(), after_s: 1.0 });
        lines.record(driver_run(PAIR), get, &tasks, &silent);

        let result = finish(&scenarios, lines);

        let row = result.rows.iter().find(|row| row.question == "Q17" && row.client == "fodo").unwrap();
        assert_eq!((row.verdict, row.samples.as_slice()), (RowVerdict::Measured, [5.0].as_slice()));
        assert!(row.why.as_ref().is_some_and(|why| why.starts_with("1 repetitions")), "{row:?}");
    }

    #[test]
    fn a_failed_row_drops_its_samples_and_an_unsupported_row_is_not_run() {
        let (scenarios, tasks, mut lines) = lines();
        let (get, context) = (task(&tasks, MeasuredRequest::GetScalars), task(&tasks, MeasuredRequest::ContextClose));
        lines.record(driver_run(PAIR), get, &tasks, &measured(5.0));
        let wrong = DriverFailure::WrongCount { n: 9, expected: 10 };
        lines.record(driver_run(PAIR), get, &tasks, &TaskOutcome::Failed(wrong));
        lines.record(driver_run(PAIR), context, &tasks, &TaskOutcome::Failed(DriverFailure::cannot("context_close")));

        let result = finish(&scenarios, lines);

        let of = |question: &str| result.rows.iter().find(|row| row.question == question && row.client == "fodo");
        let (failed, cannot) = (of("Q17").unwrap(), of("Q1").unwrap());
        assert_eq!((failed.verdict, failed.samples.len()), (RowVerdict::Failed, 0));
        assert_eq!(cannot.verdict, RowVerdict::NotRun);
    }

    #[test]
    fn capacity_questions_are_answered_by_the_largest_measured_point() {
        let (scenarios, tasks, mut lines) = lines();
        for (index, _) in tasks.iter().enumerate().filter(|(_, task)| task.request == MeasuredRequest::CreateContexts) {
            lines.record(driver_run(PAIR), index, &tasks, &measured(5.0));
        }

        let result = finish(&scenarios, lines);

        let answer = |question: &str| result.answers.iter().find(|answer| answer.question == question).unwrap();
        assert_eq!(answer("Q3").words, "at least 5");
        assert!(!answer("Q5").yes);
    }
}
