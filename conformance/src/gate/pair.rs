//! softIoc and `fodo ioc`, with the same database file.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::differences::IntendedDifferences;
use super::side::{FENCE_DATABASE, ServerSide, Stage};
use super::step::GateStep;
use super::{Case, Difference, GateFinding};
use crate::server::{ServerProgram, TestServer};
use crate::{TestFailure, place};

/// Time for both to report the same after a step, if the difference is intended or a smaller case is searched for: CA
/// links work asynchronously.
const SETTLE_DURATION: Duration = Duration::from_millis(400);

/// Maximum time for both to report the same after a step: threads of a busy machine are late. Only a finding takes so
/// long.
const SETTLE_DURATION_MAX: Duration = Duration::from_secs(10);

/// Time for CP links to follow a step of a burst. The burst is compared as a whole, so nothing depends on it.
const BURST_SETTLE_DURATION: Duration = Duration::from_millis(30);

/// Maximum duration of the steps before a `wait idle`: less than the shortest delay of a record.
const BURST_DURATION_MAX: Duration = Duration::from_millis(240);

/// Maximum time until no record is active.
const IDLE_DURATION_MAX: Duration = Duration::from_secs(60);

/// How often in succession no record must be active: one that is processed once more is inactive for a moment.
const IDLE_READS: usize = 3;

/// After which steps both servers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// After every step.
    Each,
    /// After the last step only: ten times as fast, for a case known to show a difference.
    Last,
}

/// Both servers, and the cases that they serve.
pub struct ServerPair {
    theirs: ServerSide,
    ours: ServerSide,
    file: PathBuf,
}

impl Drop for ServerPair {
    fn drop(&mut self) {
        // A file that remains in the temporary directory does no harm.
        let _ = std::fs::remove_file(&self.file);
    }
}

impl ServerPair {
    /// Starts both with the databases of all cases; the record names of each case start with its number.
    pub fn start(cases: &[Case]) -> Result<ServerPair, TestFailure> {
        let mut text = FENCE_DATABASE.to_string();
        for (number, case) in cases.iter().enumerate() {
            text += &case.database.replace("$(P)", &prefix(number));
        }
        let file = std::env::temp_dir().join(format!("{}gate.db", place::prefix().replace(':', "-")));
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        let theirs = ServerSide::new(TestServer::start_on(ServerProgram::SoftIoc, &file)?)?;
        let ours = ServerSide::new(TestServer::start_on(ServerProgram::Fodo, &file)?)?;
        Ok(ServerPair { theirs, ours, file })
    }

    /// Does the steps of one case, up to the first one that shows an unintended difference.
    pub fn run(
        &mut self,
        number: usize,
        case: &Case,
        compare: Compare,
        meant: &mut IntendedDifferences,
    ) -> Result<Option<GateFinding>, TestFailure> {
        let prefix = prefix(number);
        let mut stages = (self.theirs.stage(case, &prefix)?, self.ours.stage(case, &prefix)?);
        let steps = std::iter::once(None).chain(case.steps.iter().map(Some));
        let has_bursts = case.steps.contains(&GateStep::WaitIdle);
        let (mut burst_start, mut is_late) = (None, false);
        for (n_steps, step) in steps.enumerate() {
            if burst_start.is_none() {
                stages.0.begin();
                stages.1.begin();
            }
            let is_in_burst = has_bursts && matches!(step, Some(GateStep::Write(_)));
            let start = *burst_start.get_or_insert_with(Instant::now);
            let results = match step {
                Some(GateStep::WaitIdle) => {
                    self.wait_idle(&stages)?;
                    (String::new(), String::new())
                }
                Some(step) => self.step(&mut stages, step)?,
                None => (String::new(), String::new()),
            };
            if is_in_burst {
                self.settle_within(BURST_SETTLE_DURATION, case, &mut stages)?;
                is_late |= start.elapsed() > BURST_DURATION_MAX;
            } else {
                burst_start = None;
            }
            let is_silent = is_in_burst || matches!(step, Some(GateStep::Get(_) | GateStep::Request { .. }));
            let is_compared = compare == Compare::Each && !is_silent || n_steps == case.steps.len();
            let mut differences = match is_compared {
                true => self.settle(case, &mut stages, compare, meant)?,
                false => Vec::new(),
            };
            if results.0 != results.1 {
                let detail = format!("softIoc returns \"{}\", fodo \"{}\"", results.0, results.1);
                differences.push(Difference { what: "answer".into(), detail });
            }
            differences.retain(|difference| !meant.allow(&case.name, &difference.what));
            if !differences.is_empty() {
                return Ok(Some(GateFinding { n_steps, differences, is_late }));
            }
        }
        Ok(None)
    }

    /// Does one step on both, waits only once, and returns both results.
    fn step(&mut self, stages: &mut (Stage, Stage), step: &GateStep) -> Result<(String, String), TestFailure> {
        if let GateStep::Wait(_) = step {
            let results = self.theirs.run(&mut stages.0, step)?;
            return Ok((results.clone(), results));
        }
        if let GateStep::Acknowledge(..) | GateStep::Write(_) | GateStep::Request { .. } = step {
            // It uses a separate circuit, and must not overtake earlier requests.
            self.theirs.fence()?;
            self.ours.fence()?;
        }
        Ok((self.theirs.run(&mut stages.0, step)?, self.ours.run(&mut stages.1, step)?))
    }

    /// Waits until no record of the case is active on either server.
    fn wait_idle(&mut self, stages: &(Stage, Stage)) -> Result<(), TestFailure> {
        let start = Instant::now();
        let mut n_idle = 0;
        while n_idle < IDLE_READS {
            self.theirs.fence()?;
            self.ours.fence()?;
            let is_idle = self.theirs.is_idle(&stages.0)? && self.ours.is_idle(&stages.1)?;
            n_idle = if is_idle { n_idle + 1 } else { 0 };
            if start.elapsed() > IDLE_DURATION_MAX {
                return Err("some records are always active".into());
            }
        }
        Ok(())
    }

    /// Waits until both report the same, but not longer than `limit`.
    fn settle_within(&mut self, limit: Duration, case: &Case, stages: &mut (Stage, Stage)) -> Result<(), TestFailure> {
        let start = Instant::now();
        while start.elapsed() < limit {
            self.theirs.fence()?;
            self.ours.fence()?;
            if self.compare(case, stages)?.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// The differences that remain after both had time to settle.
    fn settle(
        &mut self,
        case: &Case,
        stages: &mut (Stage, Stage),
        compare: Compare,
        meant: &mut IntendedDifferences,
    ) -> Result<Vec<Difference>, TestFailure> {
        let start = Instant::now();
        loop {
            self.theirs.fence()?;
            self.ours.fence()?;
            let differences = self.compare(case, stages)?;
            let mut may_remain =
                || compare == Compare::Last || differences.iter().all(|one| meant.allow(&case.name, &one.what));
            let elapsed = start.elapsed();
            if differences.is_empty() || elapsed > SETTLE_DURATION_MAX || elapsed > SETTLE_DURATION && may_remain() {
                return Ok(differences);
            }
        }
    }

    fn compare(&self, case: &Case, stages: &mut (Stage, Stage)) -> Result<Vec<Difference>, TestFailure> {
        let (theirs, ours) = (self.theirs.read(&stages.0)?, self.ours.read(&stages.1)?);
        let mut differences = Vec::new();
        for ((name, expected), found) in stages.0.names().zip(&theirs).zip(&ours) {
            if expected != found {
                let detail = format!("{name}: softIoc {expected}, fodo {found}");
                differences.push(Difference { what: typed(case, name), detail });
            }
        }
        let (theirs, ours) = (stages.0.events().clone(), stages.1.events());
        let mut names: Vec<&String> = theirs.keys().chain(ours.keys()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let (expected, found) = (theirs.get(name), ours.get(name));
            if expected.map(|events| newest(events)) != found.map(|events| newest(events)) {
                let joined = |events: Option<&Vec<String>>| events.map_or(String::new(), |events| events.join("; "));
                let detail = format!("events of {name}: softIoc [{}], fodo [{}]", joined(expected), joined(found));
                let field = name.split(' ').next().unwrap_or_default();
                differences.push(Difference { what: format!("{} events", typed(case, field)), detail });
            }
        }
        Ok(differences)
    }
}

/// The newest events: as many as `fodo ioc` keeps for a client that reads none of them meanwhile.
fn newest(events: &[String]) -> &[String] {
    const EVENTS_KEPT: usize = 8;
    &events[events.len().saturating_sub(EVENTS_KEPT)..]
}

/// The prefix of the record names of a case.
fn prefix(number: usize) -> String {
    format!("g{number}:")
}

/// The name of a field as `TYPE.FIELD`.
fn typed(case: &Case, name: &str) -> String {
    let (record, field) = name.split_once('.').unwrap_or((name, "VAL"));
    let listed = case.records.iter().find(|other| other.name == record);
    format!("{}.{field}", listed.map_or(record, |listed| listed.record_type.as_str()))
}

/// A case and its finding, for whoever repairs it.
pub fn report(case: &Case, finding: &GateFinding) -> String {
    let mut text = format!("{}\n{}---\n", case.name, case.database);
    for step in case.steps.iter().take(finding.n_steps) {
        // Writing to a String never fails.
        let _ = writeln!(text, "{}", step.text());
    }
    for difference in &finding.differences {
        let _ = writeln!(text, "  {} ({})", difference.detail, difference.what);
    }
    text
}
