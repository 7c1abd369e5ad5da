//! The checks required before a change is merged.

use std::path::Path;
use std::process::Command;

use crate::again::alone_if_permitted;
use crate::step::{Outcome, Steps, TestReport, TestStep, output_of};
use crate::{count, docs, java, nextest, peers, programs, python, suites, tidy, tools};

/// The steps of `cargo xtask test quick`.
const QUICK: [&str; 5] = ["format", "tidy", "lints", "lints-of-tests", "tests"];

/// All steps, in the order in which they run.
const STEPS: [TestStep; 24] = [
    TestStep { name: "programs", title: "system programs that tests need", needs: &[], run: programs::prepare },
    TestStep { name: "peers", title: "other implementations, in Python and C++", needs: &[], run: peers_in_python },
    TestStep {
        name: "java-peers",
        title: "other implementations, in Java",
        needs: &["programs", "peers"],
        run: peers::prepare_java,
    },
    TestStep { name: "format", title: "cargo fmt", needs: &[], run: |root| cargo(root, &["fmt", "--all", "--check"]) },
    TestStep { name: "tidy", title: "the project's rules", needs: &[], run: rules },
    TestStep { name: "lints", title: "clippy", needs: &[], run: lints },
    TestStep { name: "lints-of-tests", title: "clippy with tests and examples", needs: &[], run: lints_of_tests },
    TestStep { name: "test-programs", title: "compiles the tests of all crates", needs: &[], run: test_programs },
    TestStep { name: "tests", title: "tests of the crates", needs: &["test-programs"], run: tests },
    TestStep {
        name: "laboratory-tests",
        title: "tests of the laboratory, with peers",
        needs: &["programs", "peers", "test-programs"],
        run: laboratory_tests,
    },
    TestStep {
        name: "minimum-rust",
        title: "the version declared in Cargo.toml builds everything",
        needs: &[],
        run: minimum_rust,
    },
    TestStep { name: "doc-tests", title: "examples in documentation comments", needs: &[], run: doc_tests },
    TestStep { name: "python", title: "the Python package", needs: &["peers"], run: python::check },
    TestStep { name: "java-17", title: "the Java library on JDK 17", needs: &["java-peers"], run: java::check_oldest },
    TestStep { name: "java-25", title: "the Java library on JDK 25", needs: &["java-17"], run: java::check_newest },
    TestStep {
        name: "suites",
        title: "tests of other projects",
        needs: &["peers"],
        run: |root| suites::check(root, &[]),
    },
    TestStep { name: "deny", title: "cargo deny", needs: &[], run: cargo_deny },
    TestStep { name: "release", title: "release build", needs: &[], run: release_build },
    TestStep {
        name: "conformance",
        title: "Channel Access, records and files, with other programs",
        needs: &["peers", "java-peers", "test-programs", "release"],
        run: |root| conformance(root, &format!("{IS_CONFORMANCE} - {IS_PVA} - {IS_CLU}")),
    },
    TestStep {
        name: "conformance-pva",
        title: "pvAccess, with other programs",
        needs: &["peers", "java-peers", "test-programs", "release"],
        run: |root| conformance(root, &format!("{IS_CONFORMANCE} & {IS_PVA}")),
    },
    TestStep {
        name: "conformance-clu",
        title: "CLU, with a second implementation",
        needs: &["peers", "test-programs", "release"],
        run: |root| conformance(root, &format!("{IS_CONFORMANCE} & {IS_CLU}")),
    },
    TestStep { name: "counts", title: "instructions of the hot paths", needs: &["release"], run: count::check },
    TestStep { name: "documents", title: "shell blocks", needs: &["release"], run: docs::run_shell_blocks },
    TestStep { name: "laboratory", title: "lab run quick", needs: &["peers", "release"], run: laboratory },
];

/// Steps in the background, each with the step during which it runs: one that mostly waits, so that processors are idle.
const BESIDE: [(&str, &str); 2] = [("python", "release"), ("python", "java-17")];

/// The tests of conformance, which need the peers and the release build.
const IS_CONFORMANCE: &str = "(package(fodo-conformance) & kind(test) - binary(corpus))";

/// The tests of the laboratory that measure.
const IS_LABORATORY: &str = "(package(fodo-lab) & kind(test))";

/// Of the tests of conformance, those of pvAccess.
const IS_PVA: &str = "binary(/^(pva|pva_.*|groups|tls|one_port|normative_types|ipv6)$/)";

/// Of the tests of conformance, those of CLUs.
const IS_CLU: &str = "binary(/^clu/)";

/// The checks for use while working.
pub fn quick(root: &Path) -> Result<(), String> {
    only(root, &QUICK)
}

/// All checks; CI runs only this. Some run beside others.
pub fn everything(root: &Path) -> Result<(), String> {
    let mut steps = Steps::new(root, &STEPS);
    for step in &STEPS {
        for (_, other) in BESIDE.iter().filter(|(during, _)| *during == step.name) {
            steps.start(other)?;
        }
        steps.run(step.name)?;
    }
    steps.finish()
}

/// These steps, and those that they need.
pub fn only(root: &Path, names: &[&str]) -> Result<(), String> {
    let mut steps = Steps::new(root, &STEPS);
    for name in names {
        steps.run(name)?;
    }
    steps.finish()
}

/// The names and titles of all steps, a line each.
pub fn list() -> String {
    STEPS.iter().map(|step| format!("{:18}{}\n", step.name, step.title)).collect()
}

fn peers_in_python(root: &Path) -> Result<Outcome, String> {
    peers::prepare(root).map(|_| Outcome::Passed(String::new()))
}

fn rules(root: &Path) -> Result<Outcome, String> {
    tidy::report(root).map(|()| Outcome::Passed(String::new()))
}

fn lints(root: &Path) -> Result<Outcome, String> {
    cargo(root, &["clippy", "--workspace", "--", "-D", "warnings"])
}

fn lints_of_tests(root: &Path) -> Result<Outcome, String> {
    let lints = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    // In a test, a panic is as good as an assertion.
    let lenient = ["-A", "clippy::unwrap_used", "-A", "clippy::panic"];
    cargo(root, &[lints.as_slice(), &lenient].concat())
}

fn test_programs(root: &Path) -> Result<Outcome, String> {
    nextest::compile(root).map(|()| Outcome::Passed(String::new()))
}

/// The tests of all crates but those that need the peers.
fn tests(root: &Path) -> Result<Outcome, String> {
    nextest::run(root, &format!("all() - {IS_CONFORMANCE} - {IS_LABORATORY}"), |command| command).map(Outcome::Tested)
}

fn laboratory_tests(root: &Path) -> Result<Outcome, String> {
    nextest::run(root, IS_LABORATORY, |command| command).map(Outcome::Tested)
}

fn doc_tests(root: &Path) -> Result<Outcome, String> {
    cargo(root, &["test", "--workspace", "--doc"])
}

/// Builds at a low priority, because tests run beside it.
fn release_build(root: &Path) -> Result<Outcome, String> {
    let mut nice = Command::new("nice");
    nice.args(["cargo", "build", "--release", "-p", "fodo-cli"]).current_dir(root);
    output_of(root, &mut nice).map(|_| Outcome::Passed(String::new()))
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
fn conformance(root: &Path, filter: &str) -> Result<Outcome, String> {
    let (alone, word) = alone_if_permitted(root);
    let report = nextest::run(root, filter, |nextest| {
        let mut command = Command::new(&alone);
        command.arg(nextest.get_program()).args(nextest.get_args()).env("CARGO_NET_OFFLINE", "true");
        command.env("FODO_BIN", root.join("target").join("release").join("fodo"));
        command
    })?;
    Ok(Outcome::Tested(TestReport { summary: format!("{}{word}", report.summary), ..report }))
}

fn laboratory(root: &Path) -> Result<Outcome, String> {
    // The command in the README, except that it leaves the report of the user's last run in place.
    let words = ["run", "--quiet", "--release", "--", "lab", "run", "quick", "--report", "target/laboratory"];
    let printed = cargo_output(root, &words)?;
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

/// Checks licences, duplicates and sources.
fn cargo_deny(root: &Path) -> Result<Outcome, String> {
    let mut command = tools::deny(root)?;
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
    fn steps_need_only_steps_that_stand_before_them() {
        for (index, step) in STEPS.iter().enumerate() {
            let is_before = |name: &&str| STEPS[..index].iter().any(|before| before.name == *name);
            assert!(step.needs.iter().all(is_before), "{}", step.name);
        }
        let place = |name: &str| STEPS.iter().position(|step| step.name == name);
        assert!(BESIDE.iter().all(|(during, other)| place(during).is_some() && place(during) < place(other)));
        assert!(QUICK.iter().all(|name| STEPS.iter().any(|step| step.name == *name)));
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
