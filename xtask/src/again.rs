//! A second chance, alone, for the few tests that failed while others ran.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::output_of;

/// If no more tests than these failed, they run once more, alone.
const RUN_AGAIN_MAX: usize = 3;

/// Runs all tests with `run(&[])`. If few failed, `run` gets their names, which `failed` finds in the whole output; it
/// finds none if something else failed.
///
/// The peers have races of their own, which appear on a busy machine, and tests with sockets have deadlines that a busy
/// machine can miss. Returns the output of the first run if all
/// passed, and otherwise the names of those that passed only alone.
pub fn run_twice(
    run: impl Fn(&[String]) -> Result<String, String>,
    failed: impl Fn(&str) -> Vec<String>,
) -> Result<TestRun, String> {
    let why = match run(&[]) {
        Ok(printed) => return Ok(TestRun::Passed(printed)),
        Err(why) => why,
    };
    let log = why.rsplit_once("full output: ").map(|(_, path)| std::fs::read_to_string(path).unwrap_or_default());
    let names = failed(&log.unwrap_or_default());
    if names.is_empty() || names.len() > RUN_AGAIN_MAX || run(&names).is_err() {
        return Err(why);
    }
    Ok(TestRun::PassedAlone { names, why })
}

/// The end of a test run in which each test passed.
pub enum TestRun {
    /// All passed at once; contains the output.
    Passed(String),
    /// These passed only in the second run.
    PassedAlone {
        names: Vec<String>,
        /// The failure of the first run.
        why: String,
    },
}

impl TestRun {
    /// The line for the report: the total, or the tests that passed only alone and why they failed before.
    pub fn report(&self, total: impl Fn(&str) -> String) -> String {
        match self {
            TestRun::Passed(printed) => total(printed),
            TestRun::PassedAlone { names, why } => {
                format!("passed only when they ran alone: {}\n{why}", names.join(" "))
            }
        }
    }
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

    /// The end of a run of `n_failed` failing tests, and the names with which tests ran.
    fn end(n_failed: usize, passes_alone: bool) -> (Result<TestRun, String>, Vec<Vec<String>>) {
        let runs = RefCell::new(Vec::new());
        let run = |names: &[String]| {
            runs.borrow_mut().push(names.to_vec());
            let passes = if names.is_empty() { n_failed == 0 } else { passes_alone };
            if passes { Ok("output".to_string()) } else { Err("why".to_string()) }
        };
        let end = run_twice(run, |_| (0..n_failed).map(|index| format!("t{index}")).collect());
        (end, runs.into_inner())
    }

    #[test]
    fn a_few_failed_tests_run_again_and_are_named() {
        let (end, runs) = end(2, true);

        assert_eq!(end.unwrap().report(str::to_string), "passed only when they ran alone: t0 t1\nwhy");
        assert_eq!(runs, [vec![], vec!["t0".to_string(), "t1".to_string()]]);
    }

    #[test]
    fn passed_tests_many_failures_and_those_that_fail_again_do_not() {
        assert!(matches!(end(0, true), (Ok(TestRun::Passed(text)), _) if text == "output"));
        assert!(matches!(end(RUN_AGAIN_MAX + 1, true), (Err(_), runs) if runs.len() == 1));
        assert!(matches!(end(1, false), (Err(why), runs) if why == "why" && runs.len() == 2));
    }
}
