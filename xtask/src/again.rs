//! Second chances, alone, for the few tests that failed while others ran.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{FailedTest, output_of};

/// If no more tests than these failed, they run again.
const RUN_AGAIN_MAX: usize = 3;

/// How often a failed test runs again.
const TURNS: usize = 2;

/// Runs tests that have failed again, one after another, at most twice. `run` gets their names and returns those that
/// failed.
///
/// The peers have races of their own, which appear on a busy machine, and tests with sockets have deadlines that a busy
/// machine can miss. Returns the tests with their first messages; fails if a test fails each time, or if there are more
/// than [`RUN_AGAIN_MAX`].
pub fn run_again(
    failed: Vec<FailedTest>,
    run: impl Fn(&[String]) -> Result<Vec<FailedTest>, String>,
) -> Result<Vec<FailedTest>, String> {
    if failed.len() > RUN_AGAIN_MAX {
        return Err(listed(&failed, "failed"));
    }
    let mut still = failed.clone();
    for _ in 0..TURNS {
        if still.is_empty() {
            break;
        }
        let names: Vec<String> = still.into_iter().map(|test| test.name).collect();
        still = run(&names)?;
    }
    if still.is_empty() {
        return Ok(failed);
    }
    let always = |test: &&FailedTest| still.iter().any(|other| other.name == test.name);
    let first: Vec<FailedTest> = failed.iter().filter(always).cloned().collect();
    Err(format!("{}\n{}", listed(&still, "failed each time, at last"), listed(&first, "failed at first")))
}

/// The tests with their messages.
fn listed(tests: &[FailedTest], verb: &str) -> String {
    let lines = tests.iter().map(|FailedTest { name, message }| format!("{name} {verb}:\n{message}"));
    lines.collect::<Vec<String>>().join("\n")
}

/// The program that runs a command in its own network, and a remark for the report where that is not permitted.
pub fn alone_if_permitted(root: &Path) -> (PathBuf, &'static str) {
    let alone = root.join("conformance").join("alone.sh");
    match output_of(root, Command::new(&alone).arg("true")) {
        Ok(_) => (alone, ""),
        Err(_) => (PathBuf::from("env"), ", without namespaces: not permitted here"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn failed(names: &[&str]) -> Vec<FailedTest> {
        names.iter().map(|name| FailedTest { name: name.to_string(), message: format!("why {name}") }).collect()
    }

    /// The result, and the names with which tests ran. Test `tN` passes when it runs again for the Nth time.
    fn end(names: &[&str]) -> (Result<Vec<FailedTest>, String>, Vec<Vec<String>>) {
        let runs = RefCell::new(Vec::new());
        let run = |names: &[String]| {
            runs.borrow_mut().push(names.to_vec());
            let turn = runs.borrow().len().to_string();
            let fails = names.iter().filter(|name| name.trim_start_matches('t') > turn.as_str());
            Ok(failed(&fails.map(String::as_str).collect::<Vec<&str>>()))
        };
        let end = run_again(failed(names), run);
        (end, runs.into_inner())
    }

    #[test]
    fn a_few_failed_tests_run_again_and_keep_their_first_messages() {
        assert_eq!(
            end(&["t1", "t2"]),
            (Ok(failed(&["t1", "t2"])), vec![vec!["t1".into(), "t2".into()], vec!["t2".into()]])
        );
        assert_eq!(end(&[]), (Ok(vec![]), vec![]));
    }

    #[test]
    fn many_failures_and_tests_that_fail_each_time_are_failures() {
        let (result, runs) = end(&["t1", "t1", "t1", "t1"]);
        assert!(runs.is_empty() && result.unwrap_err().starts_with("t1 failed:\nwhy t1"));

        let (result, runs) = end(&["t1", "t3"]);
        assert_eq!(result.unwrap_err(), "t3 failed each time, at last:\nwhy t3\nt3 failed at first:\nwhy t3");
        assert_eq!(runs.len(), TURNS);
    }
}
