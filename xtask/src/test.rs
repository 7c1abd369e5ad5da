//! The checks required before a change is merged.

use std::path::Path;
use std::process::Command;

use crate::again::{alone_if_permitted, run_twice};
use crate::step::{Outcome, Steps, output_of};
use crate::{count, docs, java, peers, programs, python, suites, tidy};

/// Number of conformance tests that run in parallel. They mostly wait: for Python to start, and for ten seconds of
/// updates.
const TEST_THREADS: &str = "6";

/// The version of cargo-deny that CI installs.
const CARGO_DENY_VERSION: &str = "0.18.9";

/// The checks for use while working.
pub fn quick(root: &Path) -> Result<(), String> {
    let mut steps = Steps::new();
    quick_steps(root, &mut steps);
    steps.finish()
}

/// All checks; CI runs only this.
pub fn everything(root: &Path) -> Result<(), String> {
    let mut steps = Steps::new();
    steps.run("programs", || programs::prepare(root));
    // Runs early, because the laboratory's own tests measure the peers if they are installed.
    let has_peers = steps.run("peers", || peers::prepare(root).map(|_| Outcome::Passed(String::new())));
    steps.run("peers in Java", || peers::prepare_java(root));
    quick_steps(root, &mut steps);
    steps.run("minimum Rust: the version declared in Cargo.toml builds everything", || minimum_rust(root));
    steps.run("doc tests", || cargo(root, &["test", "--workspace", "--doc"]));
    steps.run("python: the package", || python::check(root));
    steps.run("java: the library", || java::check(root));
    steps.run("suites: tests of other projects", || suites::check(root, &[]));
    steps.run("fuzz corpus", || cargo(root, &["test", "-p", "fodo-conformance", "--test", "corpus"]));
    steps.run("cargo deny", || cargo_deny(root));

    let is_built = steps.run("release build", || cargo(root, &["build", "--release", "-p", "fodo-cli"]));
    if is_built {
        if has_peers {
            steps.run("conformance", || conformance(root));
        }
        steps.run("instructions of the hot paths", || count::check(root));
        steps.run("documents: shell blocks", || docs::run_shell_blocks(root).map(Outcome::Passed));
        steps.run("laboratory: lab run quick", || laboratory(root));
    }
    steps.finish()
}

fn quick_steps(root: &Path, steps: &mut Steps) {
    steps.run("format", || cargo(root, &["fmt", "--all", "--check"]));
    steps.run("tidy", || tidy::report(root).map(|()| Outcome::Passed(String::new())));
    steps.run("lints", || cargo(root, &["clippy", "--workspace", "--", "-D", "warnings"]));
    steps.run("lints of tests", || {
        // In a test, a panic is as good as an assertion.
        let lenient = ["-A", "clippy::unwrap_used", "-A", "clippy::panic"];
        cargo(root, &[["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"].as_slice(), &lenient].concat())
    });
    steps.run("tests", || workspace_tests(root));
}

/// The tests of all crates but conformance, whose tests need the peers and the release build and run later.
fn workspace_tests(root: &Path) -> Result<Outcome, String> {
    let arguments = ["test", "--workspace", "--exclude", "fodo-conformance", "--all-targets", "--no-fail-fast"];
    let run = |names: &[String]| {
        let alone: &[&str] = if names.is_empty() { &[] } else { &["--", "--test-threads=1", "--exact"] };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        cargo_output(root, &[arguments.as_slice(), alone, &names].concat())
    };
    let tests = run_twice(run, failed_tests)?;
    let harness = cargo_output(root, &["test", "-p", "fodo-conformance", "--lib"])?;
    Ok(Outcome::Passed(tests.report(|printed| totals(&format!("{printed}{harness}")))))
}

/// Runs one cargo command as a step; the message contains the number of tests, if any.
fn cargo(root: &Path, arguments: &[&str]) -> Result<Outcome, String> {
    cargo_output(root, arguments).map(|printed| Outcome::Passed(totals(&printed)))
}

fn cargo_output(root: &Path, arguments: &[&str]) -> Result<String, String> {
    // Without a backtrace, a report shows the message of a failed test.
    output_of(root, Command::new("cargo").args(arguments).current_dir(root).env("RUST_BACKTRACE", "0"))
}

/// If namespaces are permitted, the tests run in their own network, and no process outlives them. Otherwise only their
/// settings keep them on loopback.
fn conformance(root: &Path) -> Result<Outcome, String> {
    let tests = ["test", "-p", "fodo-conformance", "--test", "*", "--no-fail-fast"];
    cargo_output(root, &[tests.as_slice(), &["--no-run"]].concat())?;

    let (alone, word) = alone_if_permitted(root);
    let run = |names: &[String]| {
        let threads = if names.is_empty() { TEST_THREADS } else { "1" };
        let mut command = Command::new(&alone);
        command.arg("cargo").args(tests).args(["--offline", "--", "--test-threads", threads]).current_dir(root);
        command.args(if names.is_empty() { None } else { Some("--exact") }).args(names);
        command.env("RUST_BACKTRACE", "0").env("FODO_BIN", root.join("target").join("release").join("fodo"));
        output_of(root, &mut command)
    };
    let report = run_twice(run, failed_tests)?.report(|printed| format!("{}{word}", totals(printed)));
    Ok(Outcome::Passed(report))
}

/// The names of the failed tests. Empty if a test program ended in another way, such as a crash.
fn failed_tests(printed: &str) -> Vec<String> {
    let n_programs = printed.matches("error: test failed, to rerun pass").count();
    if n_programs != printed.matches("test result: FAILED").count() {
        return Vec::new();
    }
    let is_failed = |line: &str| line.strip_prefix("test ")?.strip_suffix(" ... FAILED").map(str::to_string);
    printed.lines().filter_map(is_failed).collect()
}

fn laboratory(root: &Path) -> Result<Outcome, String> {
    // Exactly the command in the README.
    let printed = cargo_output(root, &["run", "--quiet", "--release", "--", "lab", "run", "quick"])?;
    Ok(Outcome::Passed(printed))
}

/// Checks that the declared minimum Rust version builds the workspace. If the current compiler is that version, the
/// other steps have shown it; otherwise that toolchain must be installed.
fn minimum_rust(root: &Path) -> Result<Outcome, String> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).map_err(|error| error.to_string())?;
    let declared = declared_rust(&manifest).ok_or("Cargo.toml declares no rust-version")?;
    let running = output_of(root, Command::new("rustc").arg("--version").current_dir(root))?;
    if is_version(&running, &declared) {
        return Ok(Outcome::Passed(format!("{} compiles all other steps", running.trim())));
    }

    let toolchain = format!("{declared}.0");
    let installed = output_of(root, Command::new("rustup").args(["toolchain", "list"])).unwrap_or_default();
    if !installed.lines().any(|line| line.starts_with(&toolchain)) {
        return Ok(Outcome::Skipped(format!("run `rustup toolchain install {toolchain}` to enable this")));
    }
    let toolchain = format!("+{toolchain}");
    let target = root.join("target").join("minimum-rust");
    let mut command = Command::new("cargo");
    command.args([&toolchain, "check", "--workspace", "--all-targets", "--locked"]).current_dir(root);
    output_of(root, command.env("CARGO_TARGET_DIR", target))?;
    Ok(Outcome::Passed(String::new()))
}

/// `1.95` from `rust-version = "1.95"`.
fn declared_rust(manifest: &str) -> Option<String> {
    let line = manifest.lines().find(|line| line.starts_with("rust-version"))?;
    line.split('"').nth(1).map(str::to_string)
}

/// Whether the output `rustc 1.95.0 (..)` is of version `1.95`.
fn is_version(printed: &str, declared: &str) -> bool {
    printed.split_whitespace().nth(1).is_some_and(|version| version.starts_with(&format!("{declared}.")))
}

/// Checks licences, duplicates and sources with cargo-deny, which CI compiles first if it is not installed.
fn cargo_deny(root: &Path) -> Result<Outcome, String> {
    let tools = root.join("target").join("tools");
    let own = tools.join("bin").join("cargo-deny");
    let is_installed = output_of(root, Command::new("cargo").args(["deny", "--version"])).is_ok();
    if !is_installed && !own.exists() {
        if std::env::var_os("CI").is_none() {
            return Ok(Outcome::Skipped("run `cargo install cargo-deny --locked` to enable this".into()));
        }
        let version = ["install", "--quiet", "--locked", "cargo-deny", "--version", CARGO_DENY_VERSION];
        output_of(root, Command::new("cargo").args(version).arg("--root").arg(&tools))?;
    }
    let mut command = Command::new(if is_installed { Path::new("cargo-deny") } else { own.as_path() });
    command.args(["--offline", "check", "bans", "licenses", "sources"]).current_dir(root);
    output_of(root, &mut command).map(|_| Outcome::Passed(String::new()))
}

/// The sum of the lines `test result: ok. 3 passed; 0 failed; 1 ignored; ..`.
fn totals(printed: &str) -> String {
    let mut n_passed = 0;
    let mut n_ignored = 0;
    for line in printed.lines().filter(|line| line.starts_with("test result: ")) {
        let number_before = |word: &str| -> usize {
            let words: Vec<&str> = line.split_whitespace().collect();
            let place = words.iter().position(|w| w.trim_end_matches(';') == word);
            place.and_then(|place| words.get(place.wrapping_sub(1))).and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        n_passed += number_before("passed");
        n_ignored += number_before("ignored");
    }
    match (n_passed, n_ignored) {
        (0, 0) => String::new(),
        (_, 0) => format!("{n_passed} tests"),
        _ => format!("{n_passed} tests, {n_ignored} ignored"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_all_test_programs_are_summed() {
        let printed = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.0s\n\
                       noise\ntest result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";

        assert_eq!(totals(printed), "7 tests, 1 ignored");
        assert_eq!(totals("Compiling"), "");
    }

    #[test]
    fn the_failed_tests_are_named_unless_a_program_crashed() {
        let failed = "test a ... ok\ntest b::c ... FAILED\ntest result: FAILED. 1 passed\n\
                      error: test failed, to rerun pass `--test x`\n";
        let crashed = "test d ... error: test failed, to rerun pass `--test y`\n";

        assert_eq!(failed_tests(failed), ["b::c"]);
        assert_eq!(failed_tests(&format!("{failed}{crashed}")), [""; 0]);
        assert_eq!(failed_tests("error: could not compile\n"), [""; 0]);
    }

    #[test]
    fn only_the_exact_minor_version_matches_the_minimum_compiler() {
        assert!(is_version("rustc 1.95.0 (59807616e 2026-04-14)", "1.95"));
        assert!(!is_version("rustc 1.96.1 (0 2026-06-01)", "1.95"));
        assert!(!is_version("rustc 1.950.0 (0 2026-06-01)", "1.95"));
    }

    #[test]
    fn the_declared_version_is_read_from_the_manifest() {
        assert_eq!(declared_rust("[workspace.package]\nrust-version = \"1.95\"\n"), Some("1.95".to_string()));
        assert_eq!(declared_rust("[workspace.package]\n"), None);
    }
}
