//! Applies one mutant after another to a copy of the sources, and runs the tests of its crate.
//!
//! The tests are built and run one target at a time, fastest first, until one fails: most mutants are killed before the
//! large targets are linked, which costs more than running them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::step::output_of;

/// The maximum duration of one test target, in seconds. Long enough for a machine that is busy with other work.
const TEST_DURATION_MAX_S: &str = "300";

/// The maximum processor time of one process of a test, in seconds: ends endless loops however busy the machine is.
const TEST_PROCESSOR_TIME_MAX: &str = "--cpu=100";

/// The maximum address space of one process of a test: an endless loop that allocates must not exhaust the machine.
const TEST_MEMORY_MAX: &str = "--as=8000000000";

/// How `timeout` reports that it ended a test.
const TIMEOUT_STATUS: &str = "exit status: 124";

/// A change of the sources, as cargo-mutants lists it.
pub struct Mutant {
    /// The name that cargo-mutants displays: `FILE:LINE:COLUMN: WHAT`.
    pub name: String,
    /// The package whose tests should detect it.
    pub package: String,
    file: String,
    /// The replaced text: line and column of its start and its end, counted from 1, in characters.
    span: [(usize, usize); 2],
    replacement: String,
    is_list_item: bool,
}

/// The result of testing one mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutantOutcome {
    /// It does not compile.
    Unviable,
    /// A test failed twice.
    Killed,
    /// A test target did not end, twice.
    TimedOut,
    /// All tests passed.
    Survived,
}

/// A copy of the sources, with a build folder of its own.
pub struct SourceCopy {
    folder: PathBuf,
    build_folder: PathBuf,
    /// The id of the commit that is tested.
    pub commit: String,
}

/// The arguments of `cargo test` that select one target of tests, for example `--test wire`.
pub type TestTarget = Vec<String>;

impl Mutant {
    /// Parses an element of the list of cargo-mutants.
    pub fn parse(listed: &Value) -> Result<Mutant, String> {
        let text = |key: &str| {
            listed[key].as_str().map(str::to_string).ok_or_else(|| format!("cargo mutants: a mutant has no {key:?}"))
        };
        let position = |end: &str| {
            let number = |key: &str| listed["span"][end][key].as_u64().map(|number| number as usize);
            number("line").zip(number("column")).ok_or_else(|| format!("cargo mutants: a mutant has no {end:?}"))
        };
        Ok(Mutant {
            name: text("name")?,
            package: text("package")?,
            file: text("file")?,
            span: [position("start")?, position("end")?],
            replacement: text("replacement")?,
            is_list_item: text("genre")? == "StructField",
        })
    }

    /// `source` with the change.
    fn apply(&self, source: &str) -> Result<String, String> {
        let [start, end] = self.span.map(|position| byte_index(source, position));
        let (start, end) = start.zip(end).ok_or_else(|| format!("{}: outside of its file", self.name))?;
        let mut rest = &source[end..];
        if self.is_list_item {
            rest = rest.trim_start().strip_prefix(',').unwrap_or(rest);
        }
        Ok([&source[..start], &self.replacement, rest].concat())
    }
}

fn byte_index(source: &str, (line, column): (usize, usize)) -> Option<usize> {
    let lines_before: usize = source.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let (index, _) = source[lines_before..].char_indices().nth(column - 1)?;
    Some(lines_before + index)
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

    /// The test targets of a package, fastest first. Fails if a test fails without a mutant.
    pub fn targets(&self, package: &str) -> Result<Vec<TestTarget>, String> {
        let mut command = Command::new("cargo");
        command.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(&self.folder);
        let mut timed: Vec<(Duration, TestTarget)> = Vec::new();
        for target in targets_of(&json(&output_of(&self.folder, &mut command)?)?, package) {
            let program = self.build(package, &target)?;
            let start = Instant::now();
            self.run_twice(package, &program).map_err(|error| format!("without a mutant: {error}"))?;
            timed.push((start.elapsed(), target));
        }
        timed.sort();
        Ok(timed.into_iter().map(|(_, target)| target).collect())
    }

    /// Tests one mutant; the second value says which test detected it.
    pub fn test(&self, mutant: &Mutant, targets: &[TestTarget]) -> Result<(MutantOutcome, String), String> {
        let path = self.folder.join(&mutant.file);
        let source = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let write = |text: &str| std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()));

        write(&mutant.apply(&source)?)?;
        let outcome = self.outcome(&mutant.package, targets);
        write(&source)?;
        Ok(outcome)
    }

    fn outcome(&self, package: &str, targets: &[TestTarget]) -> (MutantOutcome, String) {
        for target in targets {
            let Ok(program) = self.build(package, target) else { return (MutantOutcome::Unviable, String::new()) };
            if let Err(error) = self.run_twice(package, &program) {
                let outcome =
                    if error.contains(TIMEOUT_STATUS) { MutantOutcome::TimedOut } else { MutantOutcome::Killed };
                return (outcome, format!("{}: {}", target.join(" "), failed_tests(&error).join(", ")));
            }
        }
        (MutantOutcome::Survived, String::new())
    }

    /// Builds one target; returns the path of the program.
    fn build(&self, package: &str, target: &TestTarget) -> Result<String, String> {
        let mut command = Command::new("cargo");
        command.args(["test", "--quiet", "--profile", "mutants", "--no-run", "--message-format", "json"]);
        command.args(["--package", package]).args(target);
        command.current_dir(&self.folder).env("CARGO_TARGET_DIR", &self.build_folder);
        let messages = output_of(&self.folder, &mut command)?;
        let mut programs = messages.lines().filter_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            let is_test = message["profile"]["test"].as_bool()?;
            is_test.then(|| message["executable"].as_str().map(str::to_string))?
        });
        programs.next().ok_or_else(|| format!("{package}: no program of {}", target.join(" ")))
    }

    /// Runs all tests of a program, and the failed ones again: a busy machine makes some fail that test durations.
    fn run_twice(&self, package: &str, program: &str) -> Result<(), String> {
        self.run(package, program, &[]).or_else(|error| self.run(package, program, &failed_tests(&error)))
    }

    /// Runs the given tests of a program; without names, all.
    fn run(&self, package: &str, program: &str, tests: &[&str]) -> Result<(), String> {
        let folder = self.folder.join("crates").join(package.trim_start_matches("fodo-"));
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", TEST_DURATION_MAX_S, "prlimit", TEST_PROCESSOR_TIME_MAX, TEST_MEMORY_MAX]);
        command.args([program, "--exact"]).args(tests).current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder);
        output_of(&self.folder, &mut command).map(|_| ())
    }
}

fn json(text: &str) -> Result<Value, String> {
    let start = text.find(['{', '[']).unwrap_or(0); // Warnings may come first.
    serde_json::from_str(&text[start..]).map_err(|error| format!("expected JSON: {error}"))
}

/// The test targets of a package in the output of `cargo metadata`.
fn targets_of(metadata: &Value, package: &str) -> Vec<TestTarget> {
    let all = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let of_package = all(&metadata["packages"]).into_iter().find(|listed| listed["name"] == package);
    let targets = of_package.map(|listed| all(&listed["targets"])).unwrap_or_default();
    targets
        .iter()
        .filter_map(|target| {
            let name = target["name"].as_str()?.to_string();
            match target["kind"][0].as_str()? {
                "lib" => Some(vec!["--lib".to_string()]),
                "bin" => Some(vec!["--bin".to_string(), name]),
                "test" => Some(vec!["--test".to_string(), name]),
                _ => None,
            }
        })
        .collect()
}

/// The names of the tests that failed; none if the program was ended.
fn failed_tests(error: &str) -> Vec<&str> {
    error.lines().filter_map(|line| line.strip_prefix("---- ")?.strip_suffix(" stdout ----")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(span: [(usize, usize); 2], replacement: &str, is_list_item: bool) -> Mutant {
        let text = String::new;
        Mutant { name: text(), package: text(), file: text(), span, replacement: replacement.into(), is_list_item }
    }

    #[test]
    fn a_mutant_replaces_the_characters_of_its_span() {
        let source = "fn f() {\n    'é' + 1\n}\n";

        assert_eq!(mutant([(2, 9), (2, 10)], "-", false).apply(source).unwrap(), "fn f() {\n    'é' - 1\n}\n");
        assert_eq!(mutant([(2, 5), (3, 1)], "", false).apply(source).unwrap(), "fn f() {\n    }\n");
        assert!(mutant([(9, 1), (9, 2)], "-", false).apply(source).is_err());
    }

    #[test]
    fn a_mutant_that_deletes_a_field_deletes_its_comma_too() {
        assert_eq!(mutant([(1, 5), (1, 9)], "", true).apply("S { a: 1, ..old }").unwrap(), "S {  ..old }");
    }

    #[test]
    fn the_test_targets_of_a_package_exclude_its_examples() {
        let metadata = serde_json::json!({"packages": [
            {"name": "p", "targets": [
                {"name": "p", "kind": ["lib"]},
                {"name": "wire", "kind": ["test"]},
                {"name": "demo", "kind": ["example"]},
            ]},
            {"name": "q", "targets": [{"name": "q", "kind": ["bin"]}]},
        ]});

        assert_eq!(targets_of(&metadata, "p"), [vec!["--lib"], vec!["--test", "wire"]]);
        assert_eq!(targets_of(&metadata, "q"), [["--bin", "q"]]);
    }

    #[test]
    fn the_tests_that_detected_a_mutant_are_named() {
        let error = "failures:\n\n---- a::b stdout ----\nwhy\n---- c stdout ----\n\nfailures:\n    a::b\n    c\n";

        assert_eq!(failed_tests(error), ["a::b", "c"]);
    }
}
