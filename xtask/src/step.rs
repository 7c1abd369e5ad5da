//! Runs the steps of a task one after another and reports the result of each.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Numbers the log files of this process.
static N_LOGS: AtomicUsize = AtomicUsize::new(0);

/// The outcome of a step that did not fail, with a message that may be empty.
pub enum Outcome {
    /// The check passed.
    Passed(String),
    /// The check could not run here; contains the reason.
    Skipped(String),
}

/// The results of the steps so far.
pub struct Steps {
    started: Instant,
    n_passed: usize,
    n_skipped: usize,
    failed: Vec<FailedStep>,
}

/// A step that failed.
struct FailedStep {
    step: String,
    /// Where its tests failed and why; the end of its output if none of them says so.
    reasons: Vec<String>,
}

impl Steps {
    /// Starts without any steps.
    pub fn new() -> Steps {
        Steps { started: Instant::now(), n_passed: 0, n_skipped: 0, failed: Vec::new() }
    }

    /// Runs one step. A failure is printed and recorded; the next steps run anyway.
    pub fn run(&mut self, name: &str, step: impl FnOnce() -> Result<Outcome, String>) -> bool {
        println!("---- {name}");
        let started = Instant::now();
        let result = step();
        let seconds = started.elapsed().as_secs_f64();

        let (word, summary) = match &result {
            Ok(Outcome::Passed(summary)) => ("ok", summary),
            Ok(Outcome::Skipped(why)) => ("SKIPPED", why),
            Err(why) => ("FAILED", why),
        };
        let line = summary.trim_end();
        let gap = if line.contains('\n') { "\n" } else { "  " };
        println!("     {word} {seconds:.1} s{}{line}", if line.is_empty() { "" } else { gap });
        match result {
            Ok(Outcome::Passed(_)) => self.n_passed += 1,
            Ok(Outcome::Skipped(_)) => self.n_skipped += 1,
            Err(why) => self.failed.push(FailedStep { step: name.to_string(), reasons: reasons_in(&why) }),
        }
        self.failed.last().is_none_or(|failed| failed.step != name)
    }

    /// Prints the summary; fails if a step failed.
    pub fn finish(self) -> Result<(), String> {
        let seconds = self.started.elapsed().as_secs_f64();
        println!();
        for FailedStep { step, reasons } in &self.failed {
            println!("failed: {step}");
            reasons.iter().for_each(|reason| println!("    {reason}"));
        }
        println!("{seconds:.0} s");
        let total = format!("{} passed, {} failed", self.n_passed, self.failed.len());
        let total = if self.n_skipped == 0 { total } else { format!("{total}, {} skipped", self.n_skipped) };
        if self.failed.is_empty() {
            println!("{total}");
            return Ok(());
        }
        Err(total)
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

/// The places and messages of the panics in a failed step's output; its last lines if there are none.
fn reasons_in(output: &str) -> Vec<String> {
    let lines: Vec<&str> = output.lines().filter(|line| !line.is_empty()).collect();
    let mut reasons: Vec<&str> = Vec::new();
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| line.contains(" panicked at ")) {
        reasons.push(line);
        reasons.extend(lines.get(index + 1));
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

        assert_eq!(reasons_in(output), ["thread 'a' (1) panicked at a.rs:1:2:", "why"]);
        assert_eq!(reasons_in("1\n2\n3\n4\n5\n6\n"), ["2", "3", "4", "5", "6"]);
        assert_eq!(reasons_in(&"x".repeat(1000))[0].len(), REASON_CHARACTERS);
    }

    #[test]
    fn one_failed_step_fails_the_whole_run() {
        let mut steps = Steps::new();
        assert!(steps.run("good", || Ok(Outcome::Passed(String::new()))));
        assert!(!steps.run("bad", || Err("no".into())));
        assert!(steps.run("absent", || Ok(Outcome::Skipped("not here".into()))));

        assert_eq!(steps.finish(), Err("1 passed, 1 failed, 1 skipped".to_string()));
    }
}
