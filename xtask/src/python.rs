//! The Python package: installs it in an environment of its own, and checks its types and its behaviour there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::again::{alone_if_permitted, run_again};
use crate::step::{FailedTest, Outcome, TestReport, log_of, output_of};
use crate::{environment, peers};

/// Builds and installs the package, and runs its tests.
pub fn check(root: &Path) -> Result<Outcome, String> {
    let python = own_python(root)?;
    install(root, &python)?;

    // From here, Python finds the installed package, and not its sources.
    let tests = root.join("python").join("tests");
    let settings = root.join("python").join("pyproject.toml");
    for what in [["-p", "fodo"].as_slice(), &["."]] {
        let mut mypy = Command::new(&python);
        mypy.args(["-m", "mypy", "--strict", "--config-file"]).arg(&settings).args(what).current_dir(&tests);
        output_of(root, &mut mypy)?;
    }
    let stubtest = ["-m", "mypy.stubtest", "fodo", "--allowlist", "stubtest.txt", "--ignore-unused-allowlist"];
    output_of(root, Command::new(&python).args(stubtest).current_dir(&tests))?;

    let (alone, word) = alone_if_permitted(root);
    let run = |names: &[String]| {
        let mut pytest = Command::new(&alone);
        pytest.arg(folder(root).join("bin").join("pytest")).args(["--quiet", "--durations=20"]).current_dir(&tests);
        // It remembers the failed tests itself; a name would not select one with parameters that contain spaces.
        pytest.args(if names.is_empty() { None } else { Some("--last-failed") });
        // Without the peers, the tests that need p4p are skipped.
        pytest.env("FODO_PEERS", peers::folder(root));
        output_of(root, &mut pytest)
    };
    let (failed, summary, durations) = match run(&[]) {
        Ok(printed) => (Vec::new(), summary_line(&printed).to_string(), durations(&printed)),
        Err(why) => (failed_tests_of(why)?, String::from("some tests failed at first"), Vec::new()),
    };
    let first = TestReport { summary: format!("{summary}{word}"), failed, durations, ..TestReport::default() };
    let report = run_again(first, |names| match run(names) {
        Ok(_) => Ok(Vec::new()),
        Err(why) => failed_tests_of(why),
    })?;
    Ok(Outcome::Tested(report))
}

/// The last line of pytest, `5 passed in 1.20s`.
fn summary_line(printed: &str) -> &str {
    printed.lines().last().unwrap_or_default().trim_matches(['=', ' '])
}

/// The slowest tests, from lines such as `1.20s call     test_get.py::test_many[pva]`.
fn durations(printed: &str) -> Vec<(Duration, String)> {
    let duration = |line: &str| {
        let (seconds, name) = line.split_once("s call ")?;
        let seconds: f64 = seconds.trim().parse().ok()?;
        Some((Duration::try_from_secs_f64(seconds).ok()?, format!("python {}", name.trim())))
    };
    printed.lines().filter_map(duration).collect()
}

/// The failed tests of a run; an error if it failed for another reason.
fn failed_tests_of(why: String) -> Result<Vec<FailedTest>, String> {
    match failed_tests(&log_of(&why)) {
        failed if failed.is_empty() => Err(why),
        failed => Ok(failed),
    }
}

/// The tests that failed, from the summary at the end of pytest's output. Empty if pytest crashed.
fn failed_tests(printed: &str) -> Vec<FailedTest> {
    let summary = printed.rsplit_once("short test summary info").map_or("", |(_, summary)| summary);
    let failed = |line: &str| {
        let line = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "))?;
        let (name, message) = line.split_once(" - ").unwrap_or((line, ""));
        Some(FailedTest { name: name.to_string(), message: message.to_string() })
    };
    summary.lines().filter_map(failed).collect()
}

/// Installs the package into this environment as `pip install ./python` does, but from a debug build: it takes the crates from
/// the other steps, and checks the order of locks.
pub fn install(root: &Path, python: &Path) -> Result<(), String> {
    let wheel = wheel(root)?;
    let mut pip = pip(python, "install");
    output_of(root, pip.arg("--force-reinstall").arg(wheel)).map(|_| ())
}

/// Builds the wheel, always with the same environment: with another one, cargo would compile again.
fn wheel(root: &Path) -> Result<PathBuf, String> {
    let python = own_python(root)?;
    let folder = root.join("target").join("wheels");
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", folder.display()));
        }
        _ => {}
    }
    let mut pip = pip(&python, "wheel");
    pip.arg("--no-build-isolation").arg("--wheel-dir").arg(&folder).arg(root.join("python"));
    // The environment has maturin.
    let mut path = python.parent().unwrap_or(root).as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    pip.env("PATH", path).env("MATURIN_PEP517_ARGS", "--profile dev --locked");
    output_of(root, &mut pip)?;
    let mut built = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let wheel = built.next().ok_or_else(|| format!("pip built no wheel in {}", folder.display()))?;
    wheel.map(|entry| entry.path()).map_err(|error| error.to_string())
}

/// A command of pip that downloads nothing.
fn pip(python: &Path, what: &str) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", what, "--disable-pip-version-check", "--no-input", "--no-deps", "--no-index"]);
    pip
}

/// The environment that builds and tests the package. Returns its Python.
fn own_python(root: &Path) -> Result<PathBuf, String> {
    environment::prepare(root, &folder(root), "python/requirements.txt")
}

fn folder(root: &Path) -> PathBuf {
    root.join("target").join("python")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failed_tests_are_those_of_the_summary() {
        let printed = "E   FAILED x\n==== short test summary info ====\nSKIPPED [1] a.py:1: no peers\n\
                       FAILED test_a.py::test_b[ca] - assert 1 == 2\nERROR test_c.py::test_d - OSError\n1 failed\n";

        let failed = failed_tests(printed);

        let names: Vec<&str> = failed.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["test_a.py::test_b[ca]", "test_c.py::test_d"]);
        assert_eq!(failed[0].message, "assert 1 == 2");
        assert_eq!(failed_tests("Fatal Python error: Segmentation fault\n"), []);
    }

    #[test]
    fn the_slowest_tests_are_those_that_pytest_lists() {
        let printed =
            "==== slowest 20 durations ====\n12.50s call     test_a.py::test_b[ca]\n0.02s setup    test_c.py::d\n";

        assert_eq!(durations(printed), [(Duration::from_millis(12_500), "python test_a.py::test_b[ca]".to_string())]);
    }
}
