//! Tests of other projects against Fodo: downloads their source archives, runs them, and compares the failures with those that
//! are expected. `docs/reference/compatibility.md` shows the result.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde_json::Value;

use crate::step::{Outcome, downloaded_by, output_of};
use crate::{environment, python};

/// The page with the results.
const PAGE: &str = "docs/reference/compatibility.md";

/// The number of suites that run in parallel. They mostly wait.
const PARALLEL: usize = 3;

/// The number of lines shown of the report of a failed test, from its end.
const SHOWN_LINES: usize = 25;

/// Ports above these are ephemeral on common systems.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A folder `python/suites/NAME` with `suite.json`.
struct ForeignSuite {
    name: String,
    title: String,
    /// The folder of the unpacked sources.
    archive: String,
    /// Arguments of pytest.
    tests: Vec<String>,
    /// A sentence about tests that do not run; may be empty.
    subset: String,
    limit_s: u64,
    expected: Vec<ExpectedFailure>,
}

/// A failure that is expected.
struct ExpectedFailure {
    /// The id of a test; with `*` at the end, the start of several.
    test: String,
    reason: String,
}

/// How a test has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TestEnd {
    Passed,
    Failed,
    Skipped,
    /// It was still running when the suite was stopped.
    Unfinished,
}

/// How the tests of a suite have ended, and the report of each failed one.
type TestEnds = BTreeMap<String, (TestEnd, String)>;

/// The figures of a suite.
#[derive(Debug, Default, Eq, PartialEq)]
struct SuiteTally {
    n_passed: usize,
    n_skipped: usize,
    /// The failures that are expected, passed or not, and the index of the entry of each in `expected`.
    listed: Vec<(String, usize)>,
    /// The tests that are expected to fail, but have passed.
    surprises: Vec<String>,
    /// The tests that have failed unexpectedly, with their reports.
    failures: Vec<(String, String)>,
}

impl ExpectedFailure {
    fn matches(&self, test: &str) -> bool {
        match self.test.strip_suffix('*') {
            Some(start) => test.starts_with(start),
            None => test == self.test,
        }
    }
}

/// Runs the suites with these names, or all, and compares the page with all. Fails if a test fails that is not expected to.
pub fn check(root: &Path, names: &[&str]) -> Result<Outcome, String> {
    let suites = read_all(root, names)?;
    let folder = root.join("target").join("suites");
    let python = environment::prepare(root, &folder, "python/suites/requirements.txt")?;
    let program = install(root, &python)?;
    let own = root.join("python").join("suites");
    let sources = folder.join("sources");
    downloaded_by(root, Command::new(&python).arg(own.join("fetch.py")).arg(own.join("archives.json")).arg(&sources))?;

    let runner = Runner { root, python: &python, program: &program, sources: &sources, is_alone: is_alone(root) };
    let tallies = runner.run_all(&suites)?;
    let mut problems = Vec::new();
    let mut shown = Vec::new();
    for (suite, tally) in suites.iter().zip(&tallies) {
        shown.push(line_of(suite, tally));
        for (test, report) in &tally.failures {
            problems.push(format!("{}: {test}\n{report}", suite.name));
        }
    }
    if names.is_empty() && problems.is_empty() {
        problems.extend(compare_page(root, &page_of(&suites, &tallies)).err());
    }
    match problems.is_empty() {
        true => Ok(Outcome::Passed(shown.join("\n"))),
        false => Err(format!("{}\n\n{}", problems.join("\n\n"), shown.join("\n"))),
    }
}

/// Installs the package into this environment, and builds the program. Returns its path.
fn install(root: &Path, python: &Path) -> Result<PathBuf, String> {
    python::install(root, python)?;
    let mut build = Command::new("cargo");
    build.args(["build", "--package", "fodo-cli", "--message-format", "json-render-diagnostics"]);
    let printed = output_of(root, build.current_dir(root))?;
    let messages = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut executables = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    executables.next_back().ok_or_else(|| "cargo built no program".into())
}

fn is_alone(root: &Path) -> bool {
    output_of(root, Command::new(root.join("conformance").join("alone.sh")).arg("true")).is_ok()
}

fn read_all(root: &Path, names: &[&str]) -> Result<Vec<ForeignSuite>, String> {
    let folder = root.join("python").join("suites");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.join("suite.json").exists() && (names.is_empty() || names.contains(&name.as_str())) {
            found.push(read(&path, name)?);
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    match names.iter().find(|name| !found.iter().any(|suite| suite.name == **name)) {
        Some(name) => Err(format!("there is no suite python/suites/{name}")),
        None => Ok(found),
    }
}

fn read(folder: &Path, name: String) -> Result<ForeignSuite, String> {
    let path = folder.join("suite.json");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let contents: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    suite_of(name, &contents).map_err(|what| format!("{}: {what}", path.display()))
}

fn suite_of(name: String, contents: &Value) -> Result<ForeignSuite, String> {
    let text = |of: &Value, key: &str| of[key].as_str().map(str::to_string).ok_or(format!("\"{key}\" must be a text"));
    let list = |key: &str| contents[key].as_array().cloned().ok_or(format!("\"{key}\" must be a list"));
    let mut expected = Vec::new();
    for entry in list("expected")? {
        expected.push(ExpectedFailure { test: text(&entry, "test")?, reason: text(&entry, "reason")? });
    }
    let tests = list("tests")?.iter().map(|test| test.as_str().unwrap_or_default().to_string()).collect();
    Ok(ForeignSuite {
        name,
        title: text(contents, "title")?,
        archive: text(contents, "archive")?,
        tests,
        subset: contents["subset"].as_str().unwrap_or_default().to_string(),
        limit_s: contents["limit_s"].as_u64().ok_or("\"limit_s\" must be a number")?,
        expected,
    })
}

/// What all suites run with.
struct Runner<'a> {
    root: &'a Path,
    python: &'a Path,
    program: &'a Path,
    sources: &'a Path,
    /// Whether network namespaces are permitted.
    is_alone: bool,
}

impl Runner<'_> {
    /// Runs the suites, several in parallel, the longest first.
    fn run_all(&self, suites: &[ForeignSuite]) -> Result<Vec<SuiteTally>, String> {
        let mut order: Vec<usize> = (0..suites.len()).collect();
        order.sort_by_key(|index| suites[*index].limit_s);
        let waiting = Mutex::new(order);
        let ended = Mutex::new(BTreeMap::new());
        let next = || waiting.lock().ok()?.pop();
        std::thread::scope(|scope| {
            for _ in 0..PARALLEL {
                scope.spawn(|| {
                    while let Some(index) = next() {
                        let tally = self.run(&suites[index]);
                        if let Ok(mut ended) = ended.lock() {
                            ended.insert(index, tally);
                        }
                    }
                });
            }
        });
        let ended = ended.into_inner().map_err(|error| error.to_string())?;
        ended.into_values().collect()
    }

    /// Runs a suite, and its unexpected failures once more.
    fn run(&self, suite: &ForeignSuite) -> Result<SuiteTally, String> {
        let mut ends = self.pytest(suite, &suite.tests, "first")?;
        let again: Vec<String> = tally(suite, &ends).failures.into_iter().map(|(test, _)| test).collect();
        if !again.is_empty() && ends.values().all(|(end, _)| *end != TestEnd::Unfinished) {
            let options = suite.tests.iter().filter(|argument| !self.is_path(suite, argument)).cloned();
            let arguments: Vec<String> = options.chain(again).collect();
            ends.extend(self.pytest(suite, &arguments, "again")?);
        }
        Ok(tally(suite, &ends))
    }

    /// Whether this argument selects tests.
    fn is_path(&self, suite: &ForeignSuite, argument: &str) -> bool {
        let file = argument.split("::").next().unwrap_or_default();
        self.sources.join(&suite.archive).join(file).exists()
    }

    /// Runs tests of a suite until the limit of the suite.
    fn pytest(&self, suite: &ForeignSuite, arguments: &[String], turn: &str) -> Result<TestEnds, String> {
        let suites = self.root.join("python").join("suites");
        let own = suites.join(&suite.name);
        let results = self.root.join("target").join("xtask").join(format!("suite-{}-{turn}.jsonl", suite.name));
        match std::fs::remove_file(&results) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {error}", results.display()));
            }
            _ => {}
        }
        let source = self.sources.join(&suite.archive);
        let mut command = Command::new("timeout");
        // Ends by a signal that cannot be ignored; the namespace ends with the command.
        command.args(["--signal", "KILL", &suite.limit_s.to_string()]);
        command.arg(if self.is_alone { self.root.join("conformance").join("alone.sh") } else { "env".into() });
        command.arg(self.python).args(["-m", "pytest", "-c", "/dev/null", "--rootdir=.", "-p", "no:cacheprovider"]);
        command.args(["-p", "fodo_suite"]);
        if own.join("plugin.py").exists() {
            command.args(["-p", "plugin"]);
        }
        command.args(arguments).current_dir(&source);
        command.env("PYTHONPATH", format!("{}:{}", own.display(), suites.display()));
        command.env("FODO", self.program).env("FODO_SUITE", &own).env("FODO_SUITE_RESULTS", &results);
        for (name, value) in network()? {
            command.env(name, value);
        }
        // pytest also fails where failures are expected: the file of results decides.
        let printed = output_of(self.root, &mut command);
        let ends = match std::fs::read_to_string(&results) {
            Ok(lines) => ends_in(&lines)?,
            Err(_) => TestEnds::new(),
        };
        match printed {
            Err(why) if ends.is_empty() => Err(format!("{}: no test ran\n{why}", suite.name)),
            _ if ends.is_empty() => Err(format!("{}: there are no tests", suite.name)),
            _ => Ok(ends),
        }
    }
}

/// The results in the lines that the plugin has written.
fn ends_in(lines: &str) -> Result<TestEnds, String> {
    let mut ends = TestEnds::new();
    for line in lines.lines() {
        let result: Value = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
        let part = |key: &str| result[key].as_str().unwrap_or_default().to_string();
        let end = match result["outcome"].as_str() {
            Some("passed") => TestEnd::Passed,
            Some("failed") => TestEnd::Failed,
            Some("skipped") => TestEnd::Skipped,
            _ => TestEnd::Unfinished,
        };
        ends.insert(part("test"), (end, part("text")));
    }
    Ok(ends)
}

/// Compares the results with the failures that are expected.
fn tally(suite: &ForeignSuite, ends: &TestEnds) -> SuiteTally {
    let mut tally = SuiteTally::default();
    for (test, (end, report)) in ends {
        let listed = suite.expected.iter().position(|expected| expected.matches(test));
        match (end, listed) {
            (TestEnd::Skipped, _) => tally.n_skipped += 1,
            (TestEnd::Passed, None) => tally.n_passed += 1,
            (_, Some(index)) => {
                tally.listed.push((test.clone(), index));
                if *end == TestEnd::Passed {
                    tally.surprises.push(test.clone());
                }
            }
            (TestEnd::Failed, None) => tally.failures.push((test.clone(), last_lines(report))),
            (TestEnd::Unfinished, None) => {
                let why = format!("was running when the suite reached its limit of {} s", suite.limit_s);
                tally.failures.push((test.clone(), why));
            }
        }
    }
    for (index, expected) in suite.expected.iter().enumerate() {
        if !tally.listed.iter().any(|(_, listed)| *listed == index) {
            tally.failures.push((expected.test.clone(), "is expected to fail, but there is no such test".into()));
        }
    }
    tally
}

fn last_lines(report: &str) -> String {
    let lines: Vec<&str> = report.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

/// The variables that keep the clients and servers of a suite on loopback, with ports of their own.
fn network() -> Result<Vec<(&'static str, String)>, String> {
    let mut variables = Vec::new();
    for name in [
        "EPICS_CA_ADDR_LIST",
        "EPICS_CAS_INTF_ADDR_LIST",
        "EPICS_CAS_BEACON_ADDR_LIST",
        "EPICS_PVA_ADDR_LIST",
        "EPICS_PVAS_INTF_ADDR_LIST",
        "EPICS_PVAS_BEACON_ADDR_LIST",
    ] {
        variables.push((name, "127.0.0.1".to_string()));
    }
    for name in [
        "EPICS_CA_AUTO_ADDR_LIST",
        "EPICS_CAS_AUTO_BEACON_ADDR_LIST",
        "EPICS_PVA_AUTO_ADDR_LIST",
        "EPICS_PVAS_AUTO_BEACON_ADDR_LIST",
    ] {
        variables.push((name, "NO".to_string()));
    }
    let ports = ["EPICS_CA_SERVER_PORT", "EPICS_CA_REPEATER_PORT", "EPICS_PVA_SERVER_PORT", "EPICS_PVA_BROADCAST_PORT"];
    let free = free_ports(ports.len())?;
    variables.extend(ports.into_iter().zip(free.iter().map(u16::to_string)));
    Ok(variables)
}

/// Ports at which nothing listens, which no other suite of this process has received.
fn free_ports(n: usize) -> Result<Vec<u16>, String> {
    static USED: Mutex<Option<u16>> = Mutex::new(None);
    let mut last = USED.lock().map_err(|error| error.to_string())?;
    let length = PORTS.end - PORTS.start;
    let mut port = last.unwrap_or(PORTS.start + (std::process::id() % u32::from(length)) as u16);
    let mut found = Vec::new();
    for _ in 0..length {
        port = if port + 1 < PORTS.end { port + 1 } else { PORTS.start };
        let address = ("127.0.0.1", port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            found.push(port);
        }
        if found.len() == n {
            *last = Some(port);
            return Ok(found);
        }
    }
    Err(format!("there are no {n} free ports from {} to {}", PORTS.start, PORTS.end))
}

fn line_of(suite: &ForeignSuite, tally: &SuiteTally) -> String {
    let n_failed = tally.failures.len() + tally.listed.len() - tally.surprises.len();
    let n_passed = tally.n_passed + tally.surprises.len();
    let mut line = format!("{}: {n_passed} passed, {n_failed} failed, {} skipped", suite.name, tally.n_skipped);
    for test in &tally.surprises {
        let _ = write!(line, "\n  {test} passes although it is expected to fail");
    }
    line
}

fn compare_page(root: &Path, page: &str) -> Result<(), String> {
    let path = root.join(PAGE);
    if std::env::var_os("FODO_WRITE_REFERENCE").is_some() {
        return std::fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()));
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    match written.lines().zip(page.lines()).find(|(old, new)| old != new) {
        None if written == page => Ok(()),
        differs => {
            Err(format!("{PAGE} differs from the results: {differs:?}; regenerate it with FODO_WRITE_REFERENCE=1"))
        }
    }
}

/// The page. A test that is expected to fail counts as failed, so that the page is the same after every run.
fn page_of(suites: &[ForeignSuite], tallies: &[SuiteTally]) -> String {
    let mut page = String::from(
        "# Compatibility\n\n\
         Tests of other projects, run on Fodo: their clients against `fodo ioc`, and programs written for their packages on the \
         modules of\n`fodo.compat`. `cargo xtask suites` takes the tests from the source archives of the projects, whose versions \
         are in\n`python/suites/archives.json`, and runs them; the packages around them are in `python/suites/requirements.txt`.\n\n\
         Generated by `cargo xtask suites`, which compares this page with the results; `FODO_WRITE_REFERENCE=1` regenerates it. \
         A failed test is\nrepeated once. Every test that fails is listed below the table with its reason.\n\n\
         | tests | passed | failed | skipped |\n|---|---|---|---|\n",
    );
    for (suite, tally) in suites.iter().zip(tallies) {
        let _ =
            writeln!(page, "| {} | {} | {} | {} |", suite.title, tally.n_passed, tally.listed.len(), tally.n_skipped);
    }
    for (suite, tally) in suites.iter().zip(tallies) {
        if suite.subset.is_empty() && tally.listed.is_empty() {
            continue;
        }
        let _ = writeln!(page, "\n## {}", suite.title);
        if !suite.subset.is_empty() {
            let _ = writeln!(page, "\n{}", suite.subset);
        }
        for (index, expected) in suite.expected.iter().enumerate() {
            let names: Vec<&str> =
                tally.listed.iter().filter(|(_, of)| *of == index).map(|(test, _)| short(test)).collect();
            let shown = match names.as_slice() {
                [name] => format!("`{name}`"),
                several => format!("`{}`, {} tests", short(&expected.test), several.len()),
            };
            let _ = writeln!(page, "{}- {shown}: {}", if index == 0 { "\n" } else { "" }, expected.reason);
        }
    }
    page
}

/// The id of a test without its file.
fn short(test: &str) -> &str {
    test.split_once("::").map_or(test, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite() -> ForeignSuite {
        let contents = serde_json::json!({
            "title": "tests of x", "archive": "x", "tests": ["tests"], "limit_s": 60,
            "expected": [{"test": "t.py::test_private*", "reason": "It reads a private name."}],
        });
        suite_of("x".into(), &contents).unwrap()
    }

    fn ends(lines: &[(&str, &str)]) -> TestEnds {
        let lines: Vec<String> = lines
            .iter()
            .map(|(test, outcome)| serde_json::json!({"test": test, "outcome": outcome, "text": "why"}).to_string())
            .collect();
        ends_in(&lines.join("\n")).unwrap()
    }

    #[test]
    fn a_failure_that_is_not_expected_is_reported_with_its_text() {
        let tally = tally(&suite(), &ends(&[("t.py::test_a", "failed"), ("t.py::test_private[1]", "failed")]));

        assert_eq!(tally.failures, [("t.py::test_a".to_string(), "why".to_string())]);
        assert_eq!(tally.listed, [("t.py::test_private[1]".to_string(), 0)]);
    }

    #[test]
    fn an_expected_failure_that_passes_is_reported_but_leaves_the_page_as_it_is() {
        let failing = tally(&suite(), &ends(&[("t.py::test_a", "passed"), ("t.py::test_private", "failed")]));
        let passing = tally(&suite(), &ends(&[("t.py::test_a", "passed"), ("t.py::test_private", "passed")]));

        assert_eq!(page_of(&[suite()], &[failing]), page_of(&[suite()], std::slice::from_ref(&passing)));
        assert!(
            line_of(&suite(), &passing).contains("test_private passes although"),
            "{}",
            line_of(&suite(), &passing)
        );
    }

    #[test]
    fn a_test_that_has_started_and_not_ended_has_failed() {
        let tally = tally(&suite(), &ends(&[("t.py::test_a", "started"), ("t.py::test_private", "failed")]));

        assert!(tally.failures[0].1.contains("limit of 60 s"), "{tally:?}");
    }

    #[test]
    fn an_expected_failure_of_an_unknown_test_is_a_failure() {
        let tally = tally(&suite(), &ends(&[("t.py::test_a", "passed")]));

        assert!(tally.failures[0].1.contains("no such test"), "{tally:?}");
    }

    #[test]
    fn the_second_result_of_a_test_replaces_the_first() {
        let mut both = ends(&[("t.py::test_a", "failed"), ("t.py::test_private", "failed")]);
        both.extend(ends(&[("t.py::test_a", "passed")]));

        assert_eq!(tally(&suite(), &both).n_passed, 1);
    }
}
