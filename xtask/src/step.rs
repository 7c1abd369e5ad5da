//! Runs the steps of a task one after another and reports the result of each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The maximum number of lines shown of a failed command's output.
const SHOWN_LINES_MAX: usize = 150;

/// The maximum number of characters shown of each of them.
const SHOWN_CHARACTERS_MAX: usize = 400;

/// The first words of cargo's lines about its progress, which explain no failure.
const PROGRESS: [&str; 5] = ["Compiling ", "Checking ", "Downloading ", "Downloaded ", "Finished "];

/// The number of lines that explain a failure at the end if no test names a reason.
const REASON_LINES: usize = 5;

/// The maximum number of lines that explain a failure at the end.
const REASON_LINES_MAX: usize = 20;

/// The maximum number of characters of each of them.
const REASON_CHARACTERS: usize = 300;

/// The maximum duration of a command, so that a hanging step does not block everything.
const COMMAND_DURATION_MAX: Duration = Duration::from_secs(20 * 60);

/// The pause before the second try of a command that needs the network.
const NETWORK_PAUSE: Duration = Duration::from_secs(10);

/// Numbers the log files of this process.
static N_LOGS: AtomicUsize = AtomicUsize::new(0);

/// The number of the slowest tests that are listed at the end.
const SLOWEST_LISTED: usize = 20;

/// If more tests of a run than these failed and passed only when they ran again, the run fails.
const UNSTABLE_MAX: usize = 3;

/// A check, or the preparation of others.
pub struct TestStep {
    /// Its name for `cargo xtask test only`.
    pub name: &'static str,
    /// What it does.
    pub title: &'static str,
    /// The steps that must have passed before it.
    pub needs: &'static [&'static str],
    /// Does it, in the workspace at this path.
    pub run: fn(&Path) -> Result<Outcome, String>,
}

/// The outcome of a step that did not fail.
pub enum Outcome {
    /// The check passed; contains a message that may be empty.
    Passed(String),
    /// Tests ran; the check passed if none failed each time.
    Tested(TestReport),
    /// The check could not run here; contains the reason.
    Skipped(String),
}

/// The results of tests.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct TestReport {
    /// The number of tests.
    pub summary: String,
    /// The tests that failed, and failed when they ran again, with their first messages.
    pub failed: Vec<FailedTest>,
    /// The tests that passed only when they ran again, alone.
    pub unstable: Vec<FailedTest>,
    /// How long each test took, if its runner says so.
    pub durations: Vec<(Duration, String)>,
}

/// A test that failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FailedTest {
    /// The name by which its runner selects it.
    pub name: String,
    /// Why it failed, as far as its output says so.
    pub message: String,
}

impl FailedTest {
    /// The lines that tell of it.
    fn reported_as(&self, verb: &str) -> Vec<String> {
        let message = self.message.lines().map(|line| format!("    {line}"));
        std::iter::once(format!("{} {verb}:", self.name)).chain(message).collect()
    }
}

impl Outcome {
    /// The word and the message for the report.
    fn words(&self) -> (&'static str, String) {
        match self {
            Outcome::Passed(summary) => ("ok", summary.clone()),
            Outcome::Tested(report) => {
                let word = if report.failed.is_empty() { "ok" } else { "FAILED" };
                let failed = report.failed.iter().map(|test| test.reported_as("failed").join("\n"));
                let unstable = report.unstable.iter().map(|test| test.reported_as("is unstable").join("\n"));
                (
                    word,
                    std::iter::once(report.summary.clone())
                        .chain(failed)
                        .chain(unstable)
                        .collect::<Vec<_>>()
                        .join("\n"),
                )
            }
            Outcome::Skipped(why) => ("SKIPPED", why.clone()),
        }
    }
}

/// The end of a step; an error explains its failure.
type StepResult = Result<Outcome, String>;

/// Runs a step; returns its result and its duration in seconds.
fn timed(run: impl FnOnce() -> StepResult) -> (StepResult, f64) {
    let started = Instant::now();
    let result = run();
    (result, started.elapsed().as_secs_f64())
}

/// The results of the steps so far.
pub struct Steps<'a> {
    root: &'a Path,
    steps: &'a [TestStep],
    started: Instant,
    /// The steps that run in the background.
    background: BTreeMap<&'static str, JoinHandle<(StepResult, f64)>>,
    /// The steps that have run, and whether others can build on them.
    ended: BTreeMap<&'static str, bool>,
    n_passed: usize,
    n_skipped: usize,
    failed: Vec<FailedStep>,
    unstable: Vec<FailedTest>,
    durations: Vec<(Duration, String)>,
}

/// A step that failed.
struct FailedStep {
    name: &'static str,
    title: &'static str,
    /// Where its tests failed and why; the end of its output if none of them says so.
    reasons: Vec<String>,
}

impl<'a> Steps<'a> {
    /// Starts without any steps that have run. `steps` contains all that can.
    pub fn new(root: &'a Path, steps: &'a [TestStep]) -> Steps<'a> {
        Steps {
            root,
            steps,
            started: Instant::now(),
            background: BTreeMap::new(),
            ended: BTreeMap::new(),
            n_passed: 0,
            n_skipped: 0,
            failed: Vec::new(),
            unstable: Vec::new(),
            durations: Vec::new(),
        }
    }

    /// Starts a step in the background if those that it needs have passed; [`Steps::run`] waits for its end.
    pub fn start(&mut self, name: &str) -> Result<(), String> {
        let (step, root) = (self.named(name)?, self.root.to_path_buf());
        let can_run = step.needs.iter().all(|needed| self.ended.get(needed) == Some(&true));
        if can_run && !self.ended.contains_key(step.name) {
            let run = step.run;
            self.background.insert(step.name, std::thread::spawn(move || timed(|| run(&root))));
        }
        Ok(())
    }

    /// Runs a step, after those that it needs, unless it has run. A failure is printed and recorded.
    ///
    /// Fails if there is no such step.
    pub fn run(&mut self, name: &str) -> Result<(), String> {
        let step = self.named(name)?;
        if self.ended.contains_key(step.name) {
            return Ok(());
        }
        for needed in step.needs {
            self.run(needed)?;
        }
        let missing = step.needs.iter().find(|needed| self.ended.get(**needed) != Some(&true));

        println!("---- {}: {}", step.name, step.title);
        let (result, seconds) = match (missing, self.background.remove(step.name)) {
            (Some(missing), _) => (Err(format!("not run, because \"{missing}\" did not pass")), 0.0),
            (None, Some(thread)) => thread.join().unwrap_or_else(|_| (Err("the step panicked".to_string()), 0.0)),
            (None, None) => timed(|| (step.run)(self.root)),
        };
        let (word, message) = match &result {
            Ok(outcome) => outcome.words(),
            Err(why) => ("FAILED", why.clone()),
        };
        let message = message.trim_end();
        let gap = if message.contains('\n') { "\n" } else { "  " };
        println!("     {word} {seconds:.1} s{}{message}", if message.is_empty() { "" } else { gap });
        let mut failed: Option<Vec<String>> = None;
        match result {
            Ok(Outcome::Passed(_)) => self.n_passed += 1,
            Ok(Outcome::Tested(report)) => {
                self.unstable.extend(report.unstable);
                self.durations.extend(report.durations);
                if report.failed.is_empty() {
                    self.n_passed += 1;
                } else {
                    failed = Some(report.failed.iter().flat_map(|test| test.reported_as("failed")).collect());
                }
            }
            Ok(Outcome::Skipped(_)) => self.n_skipped += 1,
            Err(why) => failed = Some(reasons_in(&why)),
        }
        // A step that was skipped leaves out what it would have prepared, and the tests leave out what needs that.
        self.ended.insert(step.name, failed.is_none());
        if let Some(reasons) = failed {
            self.failed.push(FailedStep { name: step.name, title: step.title, reasons });
        }
        Ok(())
    }

    fn named(&self, name: &str) -> Result<&'a TestStep, String> {
        self.steps.iter().find(|step| step.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.steps.iter().map(|step| step.name).collect();
            format!("there is no step \"{name}\"; the steps are {}", names.join(", "))
        })
    }

    /// Prints the summary; fails if a step failed, or if too many tests are unstable.
    pub fn finish(mut self) -> Result<(), String> {
        println!("{}", self.slowest());
        for test in &self.unstable {
            test.reported_as("is unstable: it passed only when it ran again, alone; at first")
                .iter()
                .for_each(|line| println!("{line}"));
        }
        for FailedStep { name, title, reasons } in &self.failed {
            println!("failed: {name}: {title}");
            reasons.iter().for_each(|reason| println!("    {reason}"));
        }
        println!("{:.0} s", self.started.elapsed().as_secs_f64());
        let total = format!("{} passed, {} failed", self.n_passed, self.failed.len());
        let total = if self.n_skipped == 0 { total } else { format!("{total}, {} skipped", self.n_skipped) };
        match self.unstable.len() {
            n if n > UNSTABLE_MAX => Err(format!("{n} unstable tests, {UNSTABLE_MAX} are permitted\n{total}")),
            _ if self.failed.is_empty() => {
                println!("{total}");
                Ok(())
            }
            _ => Err(total),
        }
    }

    /// The lines with the slowest tests; empty if no runner said how long its tests took.
    fn slowest(&mut self) -> String {
        let mut lines = String::new();
        self.durations.sort_by(|one, other| other.cmp(one));
        for (index, (duration, name)) in self.durations.iter().take(SLOWEST_LISTED).enumerate() {
            let heading = if index == 0 { "\nslowest tests:\n" } else { "" };
            let _ = writeln!(lines, "{heading}{:8.1} s  {name}", duration.as_secs_f64());
        }
        lines
    }
}

/// Runs a command until it ends. `Ok` contains its output, `Err` the relevant lines of it.
pub fn output_of(root: &Path, command: &mut Command) -> Result<String, String> {
    let log_path = log_path(root)?;
    let log = File::create(&log_path).map_err(|error| format!("{}: {error}", log_path.display()))?;
    let log_too = log.try_clone().map_err(|error| error.to_string())?;

    let shown = format!("{command:?}");
    let child = command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(log_too)
        .process_group(0)
        .spawn()
        .map_err(|error| format!("{shown}: {error}"))?;
    let status = wait(child);
    let printed = std::fs::read(&log_path).map_err(|error| error.to_string())?;
    let printed = String::from_utf8_lossy(&printed).into_owned();

    let why = match status {
        Ok(status) if status.success() => {
            let _ = std::fs::remove_file(&log_path); // The output is returned.
            return Ok(printed);
        }
        Ok(status) => status.to_string(),
        Err(why) => why,
    };
    Err(format!("{shown}: {why}\n{}\nfull output: {}", summary_of(&printed), log_path.display()))
}

/// As [`output_of`], for a command that needs the network: it gets a second try after a pause.
pub fn downloaded_by(root: &Path, command: &mut Command) -> Result<String, String> {
    output_of(root, command).or_else(|why| {
        eprintln!("{why}\nonce more in {} s", NETWORK_PAUSE.as_secs());
        std::thread::sleep(NETWORK_PAUSE);
        output_of(root, command)
    })
}

/// The whole output of a command that failed with this error; empty if there is none.
pub fn log_of(why: &str) -> String {
    let path = why.rsplit_once("full output: ").map_or("", |(_, path)| path);
    std::fs::read(path).map(|printed| String::from_utf8_lossy(&printed).into_owned()).unwrap_or_default()
}

fn log_path(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target").join("xtask");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let number = N_LOGS.fetch_add(1, Ordering::Relaxed);
    Ok(folder.join(format!("{}-{number}.log", std::process::id())))
}

/// Waits for a child that leads a process group; kills the whole group on timeout, and what the child leaves behind.
fn wait(mut child: Child) -> Result<ExitStatus, String> {
    let deadline = Instant::now() + COMMAND_DURATION_MAX;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                end_group(&child);
                return Ok(status);
            }
            Ok(None) if Instant::now() >= deadline => {
                end_group(&child);
                let _ = child.wait(); // It was killed, so its exit status is irrelevant.
                return Err(format!("not finished after {} s", COMMAND_DURATION_MAX.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn end_group(child: &Child) {
    let group = format!("-{}", child.id());
    // Fails if the group has already ended, which is fine.
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
}

/// The lines that explain a failure: the output of failed tests, otherwise the last lines.
fn summary_of(printed: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut is_failures = false;
    for line in printed.lines() {
        is_failures = is_failures || line == "failures:";
        if is_failures {
            lines.push(line);
        }
        is_failures = is_failures && !line.starts_with("test result: ");
    }
    if lines.is_empty() {
        lines =
            printed.lines().filter(|line| !PROGRESS.iter().any(|word| line.trim_start().starts_with(word))).collect();
        lines.drain(..lines.len().saturating_sub(SHOWN_LINES_MAX));
    }
    lines.truncate(SHOWN_LINES_MAX);
    lines.iter().map(|line| shortened(line)).collect::<Vec<String>>().join("\n")
}

/// A line without its middle if it is long, such as the command of a linker.
fn shortened(line: &str) -> String {
    let n_characters = line.chars().count();
    if n_characters <= SHOWN_CHARACTERS_MAX {
        return line.to_string();
    }
    let start: String = line.chars().take(SHOWN_CHARACTERS_MAX / 2).collect();
    let end: String = line.chars().skip(n_characters - SHOWN_CHARACTERS_MAX / 2).collect();
    format!("{start} .. {end}")
}

/// The places and messages of the panics in an output; its last lines if there are none.
pub fn reasons_in(output: &str) -> Vec<String> {
    let lines: Vec<&str> = output.lines().filter(|line| !line.is_empty()).collect();
    let mut reasons: Vec<&str> = Vec::new();
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| line.contains(" panicked at ")) {
        reasons.push(line);
        reasons.extend(lines.get(index + 1));
        let values = lines[index + 1..].iter().skip(1).take(2);
        reasons
            .extend(values.filter(|line| ["left:", "right:"].iter().any(|side| line.trim_start().starts_with(side))));
    }
    if reasons.is_empty() {
        reasons = lines[lines.len().saturating_sub(REASON_LINES)..].to_vec();
    }
    let shortened = |line: &&str| line.chars().take(REASON_CHARACTERS).collect();
    reasons.iter().take(REASON_LINES_MAX).map(shortened).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        crate::workspace_root()
    }

    #[test]
    fn a_failed_command_is_reported_with_its_output() {
        let error = output_of(&root(), Command::new("sh").args(["-c", "echo before; exit 3"])).unwrap_err();

        assert!(error.contains("before") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_missing_program_is_named_in_the_error() {
        let error = output_of(&root(), &mut Command::new("no-such-program-anywhere")).unwrap_err();

        assert!(error.contains("no-such-program-anywhere"), "{error}");
    }

    #[test]
    fn only_the_failure_output_of_failed_tests_is_shown() {
        let printed = "Compiling\ntest a ... FAILED\nfailures:\n---- a ----\nwhy\ntest result: FAILED\ntest b ... ok\n";

        assert_eq!(summary_of(printed), "failures:\n---- a ----\nwhy\ntest result: FAILED");
        assert_eq!(summary_of("one\ntwo\n"), "one\ntwo");
        assert_eq!(summary_of("   Compiling libc v0.2\nerror: linking\n"), "error: linking");
        let long = summary_of(&format!("error: {}full disk", "x".repeat(1000)));
        assert!(long.starts_with("error: x") && long.ends_with("full disk") && long.len() < 500, "{long}");
    }

    #[test]
    fn the_reasons_of_a_failed_step_are_its_panics_or_its_last_lines() {
        let output = "failures:\n\nthread 'a' (1) panicked at a.rs:1:2:\nwhy\nnote: run\n\nfailures:\n    a\n";
        let assertion = "thread 'a' (1) panicked at a.rs:1:2:\n`left == right`\n  left: 1\n right: 2\nnote: run\n";

        assert_eq!(reasons_in(output), ["thread 'a' (1) panicked at a.rs:1:2:", "why"]);
        assert_eq!(reasons_in(assertion)[1..], ["`left == right`", "  left: 1", " right: 2"]);
        assert_eq!(reasons_in("1\n2\n3\n4\n5\n6\n"), ["2", "3", "4", "5", "6"]);
        assert_eq!(reasons_in(&"x".repeat(1000))[0].len(), REASON_CHARACTERS);
    }

    fn ended(names: &[&str]) -> Result<(), String> {
        const STEPS: [TestStep; 6] = [
            TestStep { name: "good", title: "", needs: &[], run: |_| Ok(Outcome::Passed(String::new())) },
            TestStep { name: "bad", title: "", needs: &["good"], run: |_| Err("no".into()) },
            TestStep { name: "absent", title: "", needs: &[], run: |_| Ok(Outcome::Skipped("not here".into())) },
            TestStep { name: "later", title: "", needs: &["good", "bad"], run: |_| panic!("what it needs failed") },
            TestStep { name: "tested", title: "", needs: &[], run: |_| Ok(Outcome::Tested(with_a_failure())) },
            TestStep { name: "shaky", title: "", needs: &[], run: |_| Ok(Outcome::Tested(shaky(UNSTABLE_MAX))) },
        ];
        let root = root();
        let mut steps = Steps::new(&root, &STEPS);
        for name in names {
            steps.run(name)?;
        }
        steps.finish()
    }

    fn shaky(n: usize) -> TestReport {
        let unstable = (0..n).map(|index| FailedTest { name: format!("t{index}"), message: "why".into() }).collect();
        TestReport { unstable, ..TestReport::default() }
    }

    fn with_a_failure() -> TestReport {
        TestReport { failed: shaky(1).unstable, ..shaky(1) }
    }

    #[test]
    fn a_step_whose_tests_fail_names_each_with_its_message_and_the_unstable_ones() {
        let (word, message) = Outcome::Tested(with_a_failure()).words();

        assert_eq!((word, message.as_str()), ("FAILED", "\nt0 failed:\n    why\nt0 is unstable:\n    why"));
        assert_eq!(ended(&["tested"]), Err("0 passed, 1 failed".to_string()));
    }

    #[test]
    fn one_failed_step_fails_the_whole_run() {
        assert_eq!(ended(&["good", "bad", "absent"]), Err("1 passed, 1 failed, 1 skipped".to_string()));
        assert_eq!(ended(&["good", "good"]), Ok(()));
    }

    #[test]
    fn a_step_runs_what_it_needs_and_fails_if_that_failed() {
        assert_eq!(ended(&["bad"]), Err("1 passed, 1 failed".to_string()));
        assert_eq!(ended(&["later"]), Err("1 passed, 2 failed".to_string()));
        assert!(ended(&["good", "wrong"]).unwrap_err().contains("the steps are good, bad"));
    }

    #[test]
    fn a_step_in_the_background_counts_once_when_it_is_its_turn() {
        const STEPS: [TestStep; 2] = [
            TestStep { name: "slow", title: "", needs: &[], run: |_| Err("too slow".into()) },
            TestStep { name: "next", title: "", needs: &["slow"], run: |_| panic!("what it needs failed") },
        ];
        let root = root();
        let mut steps = Steps::new(&root, &STEPS);

        steps.start("next").unwrap();
        steps.start("slow").unwrap();
        steps.run("slow").unwrap();
        steps.start("slow").unwrap();
        steps.start("next").unwrap();
        steps.run("next").unwrap();

        assert_eq!(steps.finish(), Err("0 passed, 2 failed".to_string()));
    }

    #[test]
    fn a_few_unstable_tests_are_permitted() {
        assert_eq!(ended(&["shaky"]), Ok(()));

        let root = root();
        let mut steps = Steps::new(&root, &[]);
        steps.unstable = shaky(UNSTABLE_MAX + 1).unstable;
        assert!(steps.finish().unwrap_err().starts_with("4 unstable tests, 3 are permitted"));
    }

    #[test]
    fn the_slowest_tests_come_first() {
        let root = root();
        let mut steps = Steps::new(&root, &[]);
        steps.durations = (0..30).map(|index| (Duration::from_secs(index), format!("t{index}"))).collect();

        let lines = steps.slowest();
        assert!(lines.starts_with("\nslowest tests:\n    29.0 s  t29\n    28.0 s  t28\n"), "{lines}");
        assert_eq!(lines.lines().count(), SLOWEST_LISTED + 2);
    }
}
