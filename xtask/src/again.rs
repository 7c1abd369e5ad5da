//! Second chances, alone, for the few tests that failed while others ran.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{FailedTest, TestReport, output_of};

/// If no more tests than these failed, they run again.
const RUN_AGAIN_MAX: usize = 3;

/// How often a failed test runs again.
const TURNS: usize = 2;

/// Runs the failed tests of this report again, one after another, at most twice. `run` gets their names and returns those
/// that failed. Those that pass in the end are unstable.
///
/// The peers have races of their own, which appear on a busy machine, and tests with sockets have deadlines that a busy
/// machine can miss. If more than [`RUN_AGAIN_MAX`] failed, none runs again. Fails if they cannot be run.
pub fn run_again(
    first: TestReport,
    run: impl Fn(&[String]) -> Result<Vec<FailedTest>, String>,
) -> Result<TestReport, String> {
    if first.failed.len() > RUN_AGAIN_MAX {
        return Ok(first);
    }
    let mut still = first.failed.clone();
    for _ in 0..TURNS {
        if still.is_empty() {
            break;
        }
        let names: Vec<String> = still.into_iter().map(|test| test.name).collect();
        still = run(&names)?;
    }
    let fails_always = |test: &FailedTest| still.iter().any(|other| other.name == test.name);
    let (failed, unstable) = first.failed.into_iter().partition(fails_always);
    Ok(TestReport { failed, unstable, ..first })
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

    /// The names of those that failed and of the unstable ones, and the names with which tests ran. Test `tN` passes when
    /// it runs again for the Nth time.
    fn end(names: &[&str]) -> (Vec<FailedTest>, Vec<FailedTest>, Vec<Vec<String>>) {
        let runs = RefCell::new(Vec::new());
        let run = |names: &[String]| {
            runs.borrow_mut().push(names.to_vec());
            let turn = runs.borrow().len().to_string();
            let fails = names.iter().filter(|name| name.trim_start_matches('t') > turn.as_str());
            let message = |name: &String| FailedTest { name: name.clone(), message: format!("why at turn {turn}") };
            Ok(fails.map(message).collect())
        };
        let end = run_again(TestReport { failed: failed(names), ..TestReport::default() }, run).unwrap();
        (end.failed, end.unstable, runs.into_inner())
    }

    #[test]
    fn a_few_failed_tests_run_again_and_keep_their_first_messages() {
        let runs = vec![vec!["t1".to_string(), "t2".into()], vec!["t2".into()]];
        assert_eq!(end(&["t1", "t2"]), (vec![], failed(&["t1", "t2"]), runs));
        assert_eq!(end(&[]), (vec![], vec![], vec![]));
    }

    #[test]
    fn many_failures_and_tests_that_fail_each_time_are_failures() {
        let many = ["t1", "t1", "t1", "t1"];
        assert_eq!(end(&many), (failed(&many), vec![], vec![]));

        let (fails, unstable, runs) = end(&["t1", "t3"]);
        assert_eq!((fails, unstable, runs.len()), (failed(&["t3"]), failed(&["t1"]), TURNS));
    }
}
