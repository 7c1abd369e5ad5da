//! Builds the tests of the crates with all mutants as branches, and runs them for one mutant after another.
//!
//! The programs of a crate run fastest first, until one fails. A mutant that cannot be a branch is built by itself, one
//! program at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::branches::{Branches, package_folder};
use super::mutant::Mutant;
use super::rewrite::VARIABLE;
use crate::step::output_of;

/// How many programs run at the same time. Tests use their own ports, but many wait, and fail if they wait too long.
const N_WORKERS: usize = 2;

/// The maximum duration of a test program that has not been measured. Long enough for a machine that is busy.
const TEST_DURATION_MAX: Duration = Duration::from_secs(600);

/// A test program with a mutant is ended after this many times its duration without a mutant.
const TEST_DURATION_FACTOR: u32 = 5;

/// The maximum duration of a build, in seconds: a mutant can make the compiler evaluate a constant for ever.
const BUILD_SECONDS_MAX: &str = "900";

/// Added to the maximum duration of a measured test program, because a fast one waits for others.
const TEST_DURATION_EXTRA: Duration = Duration::from_secs(20);

/// The maximum processor time of one process of a test, in seconds: ends endless loops however busy the machine is.
const TEST_PROCESSOR_TIME_MAX: &str = "--cpu=100";

/// The maximum address space of one process of a test: an endless loop that allocates must not exhaust the machine.
const TEST_MEMORY_MAX: &str = "--as=8000000000";

/// How `timeout` reports that it ended a test.
const TIMEOUT_STATUS: &str = "exit status: 124";

/// The result of testing one mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutantOutcome {
    /// It does not compile.
    Unviable,
    /// A test failed twice.
    Killed,
    /// A test program did not end, twice.
    TimedOut,
    /// All tests passed.
    Survived,
}

/// A copy of the sources, with a build folder of its own.
pub struct SourceCopy {
    /// The root of the copy.
    pub folder: PathBuf,
    build_folder: PathBuf,
    /// The id of the commit that is tested.
    pub commit: String,
}

/// A built program with tests of a package.
pub struct TestProgram {
    package: String,
    /// The arguments of `cargo test` that select it, for example `--test wire`.
    target: Vec<String>,
    path: String,
    /// The duration without a mutant.
    duration: Duration,
    duration_max: Duration,
    /// Held while the program runs: two runs at the same time would use the same temporary files.
    turn: Mutex<()>,
}

/// What a run of cargo printed.
struct CargoOutput {
    is_success: bool,
    messages: Vec<Value>,
    errors: String,
}

impl TestProgram {
    /// The test program that a message of cargo is about.
    fn parse(message: &Value) -> Option<TestProgram> {
        let path = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
        let name = message["target"]["name"].as_str()?;
        let target: &[&str] = match message["target"]["kind"][0].as_str()? {
            "lib" => &["--lib"],
            "bin" => &["--bin", name],
            "test" => &["--test", name],
            _ => return None,
        };
        Some(TestProgram {
            package: String::new(),
            target: target.iter().map(|argument| argument.to_string()).collect(),
            path: path.to_string(),
            duration: Duration::ZERO,
            duration_max: TEST_DURATION_MAX,
            turn: Mutex::new(()),
        })
    }
}

impl SourceCopy {
    /// Updates the copy in `folder` to the last commit of `root`; uncommitted changes are not tested.
    pub fn update(root: &Path, folder: &Path) -> Result<SourceCopy, String> {
        let copy =
            SourceCopy { folder: folder.join("source"), build_folder: folder.join("build"), commit: String::new() };
        std::fs::create_dir_all(&copy.folder).map_err(|error| format!("{}: {error}", copy.folder.display()))?;
        copy.git(&["init", "--quiet"])?;
        copy.git(&["fetch", "--quiet", &root.to_string_lossy(), "HEAD"])?;
        // Files that do not change keep their time stamps, so that cargo does not compile them again.
        copy.git(&["checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"])?;
        let commit = copy.git(&["rev-parse", "--short", "HEAD"])?.trim().to_string();
        Ok(SourceCopy { commit, ..copy })
    }

    fn git(&self, arguments: &[&str]) -> Result<String, String> {
        output_of(&self.folder, Command::new("git").args(arguments).current_dir(&self.folder))
    }

    /// All mutants of the packages.
    pub fn list(&self, packages: &[&str]) -> Result<Vec<Mutant>, String> {
        let mut command = Command::new("cargo");
        command.args(["mutants", "--list", "--json"]).current_dir(&self.folder);
        command.args(packages.iter().flat_map(|package| ["--package", package]));
        let listed = json(&output_of(&self.folder, &mut command)?)?;
        listed.as_array().ok_or("cargo mutants --list: expected an array")?.iter().map(Mutant::parse).collect()
    }

    /// Builds all test programs of a package. Removes branches until they compile.
    pub fn build_all(&self, package: &str, branches: &mut Branches) -> Result<Vec<TestProgram>, String> {
        loop {
            println!("building the tests of {package}");
            let output = self.cargo(package, &["build", "--tests", "--keep-going"])?;
            if output.is_success {
                let programs = output.messages.iter().filter_map(TestProgram::parse);
                return Ok(programs.map(|program| TestProgram { package: package.to_string(), ..program }).collect());
            }
            let of_compiler = output.messages.iter().map(|message| &message["message"]);
            let errors: Vec<Value> = of_compiler.filter(|message| message["level"] == "error").cloned().collect();
            let removed = branches.remove_culprits(&errors).map_err(|error| format!("{error}\n{}", output.errors))?;
            removed.iter().for_each(|name| println!("no branch for {name}"));
        }
    }

    /// Runs cargo with a command, for one package. Lints are off, since a mutant may do what they deny.
    fn cargo(&self, package: &str, arguments: &[&str]) -> Result<CargoOutput, String> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", BUILD_SECONDS_MAX, "cargo"]).args(arguments);
        command.args(["--quiet", "--profile", "mutants", "--message-format", "json"]);
        command.args(["--package", package]).current_dir(&self.folder);
        command.env("CARGO_TARGET_DIR", &self.build_folder).env("RUSTFLAGS", "--cap-lints allow");
        let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
        let lines = String::from_utf8_lossy(&output.stdout);
        Ok(CargoOutput {
            is_success: output.status.success(),
            messages: lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs the programs without a mutant, and returns those that pass, fastest first.
    pub fn measured(&self, programs: Vec<TestProgram>) -> Result<Vec<TestProgram>, String> {
        let durations = in_parallel(&programs, |program| {
            let start = Instant::now();
            let result = self.run_twice(program, None);
            if let Err(error) = &result {
                println!("without a mutant, {} {} fails:\n{error}", program.package, program.target.join(" "));
            }
            Ok((program.path.clone(), result.ok().map(|()| start.elapsed())))
        })?;
        let durations: BTreeMap<String, Option<Duration>> = durations.into_iter().collect();
        let mut measured: Vec<TestProgram> = programs
            .into_iter()
            .filter_map(|program| {
                let duration = (*durations.get(&program.path)?)?;
                let duration_max = duration * TEST_DURATION_FACTOR + TEST_DURATION_EXTRA;
                Some(TestProgram { duration, duration_max, ..program })
            })
            .collect();
        measured.sort_by_key(|program| program.duration);
        Ok(measured)
    }

    /// Tests a mutant whose branch is in the programs; the second value says which test detected it.
    pub fn test(&self, number: usize, mutant: &Mutant, programs: &[TestProgram]) -> (MutantOutcome, String) {
        let mut of_package = programs.iter().filter(|program| program.package == mutant.package);
        let detected = of_package.find_map(|program| self.detected(program, Some(number)));
        detected.unwrap_or((MutantOutcome::Survived, String::new()))
    }

    /// Tests a mutant that replaces the text in its file.
    pub fn test_single(&self, mutant: &Mutant, programs: &[TestProgram]) -> (MutantOutcome, String) {
        for program in programs.iter().filter(|program| program.package == mutant.package) {
            let mut arguments = vec!["test", "--no-run"];
            arguments.extend(program.target.iter().map(String::as_str));
            if !self.cargo(&program.package, &arguments).is_ok_and(|output| output.is_success) {
                return (MutantOutcome::Unviable, String::new());
            }
            if let Some(detected) = self.detected(program, None) {
                return detected;
            }
        }
        (MutantOutcome::Survived, String::new())
    }

    /// How a program detects the mutant that it contains, if it does, and which of its tests.
    fn detected(&self, program: &TestProgram, number: Option<usize>) -> Option<(MutantOutcome, String)> {
        let error = self.run_twice(program, number).err()?;
        let outcome = if error.contains(TIMEOUT_STATUS) { MutantOutcome::TimedOut } else { MutantOutcome::Killed };
        Some((outcome, format!("{}: {}", program.target.join(" "), failed_tests(&error).join(", "))))
    }

    /// Runs all tests of a program, and the failed ones again: a busy machine makes some fail that test durations.
    fn run_twice(&self, program: &TestProgram, number: Option<usize>) -> Result<(), String> {
        let _turn = program.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.run(program, number, &[]).or_else(|error| self.run(program, number, &failed_tests(&error)))
    }

    /// Runs the given tests of a program; without names, all.
    fn run(&self, program: &TestProgram, number: Option<usize>, tests: &[&str]) -> Result<(), String> {
        let folder = self.folder.join(package_folder(&program.package));
        let duration_max = program.duration_max.as_secs().to_string();
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &duration_max, "prlimit", TEST_PROCESSOR_TIME_MAX, TEST_MEMORY_MAX]);
        command.args([&program.path, "--exact"]).args(tests).current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder);
        match number {
            Some(number) => command.env(VARIABLE, number.to_string()),
            None => command.env_remove(VARIABLE),
        };
        output_of(&self.folder, &mut command).map(|_| ())
    }
}

/// Does the work for each item, several at the same time. The results have no order.
pub fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    let n_started = AtomicUsize::new(0);
    let next = || items.get(n_started.fetch_add(1, Ordering::Relaxed));
    let worker = || std::iter::from_fn(next).map(&work).collect::<Result<Vec<R>, String>>();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..N_WORKERS).map(|_| scope.spawn(worker)).collect();
        let results = workers.into_iter().map(|worker| worker.join().map_err(|_| "a worker panicked".to_string())?);
        Ok(results.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    })
}

fn json(text: &str) -> Result<Value, String> {
    let start = text.find(['{', '[']).unwrap_or(0); // Warnings may come first.
    serde_json::from_str(&text[start..]).map_err(|error| format!("expected JSON: {error}"))
}

/// The names of the tests that failed; none if the program was ended.
fn failed_tests(error: &str) -> Vec<&str> {
    error.lines().filter_map(|line| line.strip_prefix("---- ")?.strip_suffix(" stdout ----")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_programs_of_a_build_are_libraries_programs_and_tests() {
        let message = |kind: &str, is_test: bool, executable: Option<&str>| {
            serde_json::json!({
                "target": {"name": "wire", "kind": [kind]}, "profile": {"test": is_test}, "executable": executable
            })
        };
        let target = |message: Value| TestProgram::parse(&message).map(|program| program.target.join(" "));

        assert_eq!(target(message("lib", true, Some("a"))).as_deref(), Some("--lib"));
        assert_eq!(target(message("bin", true, Some("a"))).as_deref(), Some("--bin wire"));
        assert_eq!(target(message("test", true, Some("a"))).as_deref(), Some("--test wire"));
        assert_eq!(target(message("example", true, Some("a"))), None);
        assert_eq!(target(message("bin", false, Some("a"))), None);
        assert_eq!(target(message("lib", false, None)), None);
    }

    #[test]
    fn work_in_parallel_is_done_once_for_each_item() {
        let mut results = in_parallel(&[1, 2, 3, 4, 5], |item| Ok(item * 10)).unwrap();

        results.sort();
        assert_eq!(results, [10, 20, 30, 40, 50]);
        let failed = in_parallel(&[1, 2], |item| if *item == 2 { Err("two".to_string()) } else { Ok(()) });
        assert_eq!(failed, Err("two".to_string()));
    }

    #[test]
    fn the_tests_that_detected_a_mutant_are_named() {
        let error = "failures:\n\n---- a::b stdout ----\nwhy\n---- c stdout ----\n\nfailures:\n    a::b\n    c\n";

        assert_eq!(failed_tests(error), ["a::b", "c"]);
    }
}
