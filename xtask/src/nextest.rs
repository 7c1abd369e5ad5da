//! Runs tests in Rust with cargo-nextest: each in a process of its own that is ended with its children when it takes too
//! long. `.config/nextest.toml` has the limits and says which tests run without others beside them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::again::run_again;
use crate::step::{FailedTest, TestReport, output_of, reasons_in};
use crate::tools;

/// The report that nextest writes, from the workspace's root.
const RESULTS: &str = "target/nextest/default/results.xml";

/// The features and packages of every run. They are always the same, so that nothing is compiled twice.
const ALL: [&str; 3] = ["run", "--workspace", "--all-targets"];

/// Compiles the tests of all crates.
pub fn compile(root: &Path) -> Result<(), String> {
    output_of(root, tools::nextest(root)?.args(ALL).arg("--no-run").current_dir(root)).map(|_| ())
}

/// Runs the tests that `filter` selects, in the language of nextest. `prepare` completes the command, for example with
/// variables.
pub fn run(root: &Path, filter: &str, prepare: impl Fn(Command) -> Command) -> Result<TestReport, String> {
    let turn = |filter: &str, options: &[&str]| -> Result<NextestReport, String> {
        let results = root.join(RESULTS);
        match std::fs::remove_file(&results) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {error}", results.display()));
            }
            _ => {}
        }
        let mut command = prepare(tools::nextest(root)?);
        command.args(ALL).args(["--no-fail-fast", "--hide-progress-bar", "-E", filter]).args(options);
        // Without a backtrace, a report shows the message of a failed test.
        command.current_dir(root).env("RUST_BACKTRACE", "0").env("NO_COLOR", "1");
        let printed = output_of(root, &mut command);
        let results = std::fs::read_to_string(&results).ok().map(|text| NextestReport::parse(&text)).transpose()?;
        match (printed, results) {
            // Tests may have failed.
            (_, Some(results)) if !results.durations.is_empty() => Ok(results),
            (Err(why), _) => Err(why),
            (Ok(_), _) => Err(format!("no test is selected by {filter}")),
        }
    };

    let first = turn(filter, &[])?;
    let alone = |names: &[String]| {
        let each: Vec<String> = names.iter().map(|name| selects(name)).collect();
        turn(&each.join(" | "), &["--test-threads", "1"]).map(|results| results.failed)
    };
    let summary = format!("{} tests", first.durations.len());
    let NextestReport { failed, durations } = first;
    run_again(TestReport { summary, failed, durations, ..TestReport::default() }, alone)
}

/// The filter that selects the test with this name, the program and the test in it.
fn selects(name: &str) -> String {
    let (program, test) = name.split_once(' ').unwrap_or(("", name));
    format!("(binary_id(={program}) & test(={test}))")
}

/// What the report of a run says.
#[derive(Debug, Default, Eq, PartialEq)]
struct NextestReport {
    failed: Vec<FailedTest>,
    durations: Vec<(Duration, String)>,
}

impl NextestReport {
    /// Reads a report in the format of JUnit.
    fn parse(text: &str) -> Result<NextestReport, String> {
        let document = roxmltree::Document::parse(text).map_err(|error| format!("{RESULTS}: {error}"))?;
        let mut results = NextestReport::default();
        for case in document.descendants().filter(|node| node.has_tag_name("testcase")) {
            let attribute = |name: &str| case.attribute(name).unwrap_or_default();
            let name = format!("{} {}", attribute("classname"), attribute("name"));
            let seconds: f64 = attribute("time").parse().unwrap_or_default();
            results.durations.push((Duration::from_secs_f64(seconds.max(0.0)), name.clone()));
            let failure = case.children().find(|node| node.has_tag_name("failure") || node.has_tag_name("error"));
            if let Some(failure) = failure {
                let kind = failure.attribute("type").or(failure.attribute("message")).unwrap_or_default();
                let text_of = |tag: &str| {
                    let node = case.children().find(|node| node.has_tag_name(tag));
                    node.and_then(|node| node.text()).unwrap_or_default()
                };
                // What a test and its children print.
                let output = [text_of("system-out"), text_of("system-err")].join("\n");
                let message = format!("{kind} after {seconds:.1} s\n{}", reasons_in(&output).join("\n"));
                results.failed.push(FailedTest { name, message });
            }
        }
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_lists_failed_tests_with_the_reason_and_all_durations() {
        let report = r#"<?xml version="1.0" encoding="UTF-8"?>
            <testsuites name="nextest-run" tests="2" failures="1">
              <testsuite name="fodo-ca::wire" tests="2">
                <testcase name="reads" classname="fodo-ca::wire" time="0.250"></testcase>
                <testcase name="writes" classname="fodo-ca::wire" time="1.500">
                  <failure message="thread 'writes' panicked at a.rs:1:2" type="test failure with exit code 101"></failure>
                  <system-err>thread 'writes' (7) panicked at a.rs:1:2:&#10;left != right&#10;note: run</system-err>
                </testcase>
              </testsuite>
            </testsuites>"#;

        let results = NextestReport::parse(report).unwrap();

        let message = "test failure with exit code 101 after 1.5 s\n\
                       thread 'writes' (7) panicked at a.rs:1:2:\nleft != right";
        assert_eq!(results.failed, [FailedTest { name: "fodo-ca::wire writes".into(), message: message.into() }]);
        assert_eq!(results.durations[0], (Duration::from_millis(250), "fodo-ca::wire reads".to_string()));
        assert_eq!(results.durations.len(), 2);
    }

    #[test]
    fn a_test_is_selected_by_its_program_and_its_name() {
        assert_eq!(selects("fodo-ca::wire a::b"), "(binary_id(=fodo-ca::wire) & test(=a::b))");
    }
}
