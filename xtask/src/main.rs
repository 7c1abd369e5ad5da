//! The project's tasks: `cargo xtask test [quick]`, `tidy`, `peers`, `count`, `python`, `java`, `suites`, `docs`,
//! `fuzz SECONDS`, `soak MINUTES`.
#![forbid(unsafe_code)]

mod again;
mod count;
mod docs;
mod environment;
mod fuzz;
mod java;
mod nextest;
mod peers;
mod programs;
mod python;
mod soak;
mod step;
mod suites;
mod test;
mod tidy;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::step::Outcome;

const USAGE: &str = "usage: cargo xtask TASK

  test          runs every check required before a change is merged
  test quick    runs the checks for use while working: format, lints, unit tests, tidy
  test only STEP ..  runs these steps of `test`, and those that they need
  test list     lists the steps
  tidy          checks the project's rules
  tidy tighten  lowers the numbers in xtask/tidy-giants.txt and xtask/tidy-phrases.txt to the current ones
  tidy table    regenerates the table of dependencies in ARCHITECTURE.md
  peers         installs the peers, a Python environment with libraries in Java, unless they are present
  count         counts the instructions of the hot paths with callgrind and compares them with lab/counts.txt
  count --record  counts them and writes them to lab/counts.txt
  python        builds and installs the Python package, and runs its tests
  java          builds the Java library with its native part, and runs its tests on JDK 17, and on JDK 25 if there is one
  java package  builds its jar from a release build, without tests
  java soak SECONDS  opens many contexts and receives updates with a small heap; checks that nothing grows
  suites [NAME ..]  runs tests of other projects on Fodo, and compares docs/reference/compatibility.md with the results
  docs          runs the shell blocks of README.md and docs/
  fuzz SECONDS  fuzzes; needs a nightly toolchain and cargo-fuzz
  soak MINUTES  injects random faults into `fodo ioc`; checks that nothing grows and other clients are unaffected";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();

    let root = workspace_root();
    let result = match arguments.as_slice() {
        ["test"] => test::everything(&root),
        ["test", "quick"] => test::quick(&root),
        ["test", "only", names @ ..] if !names.is_empty() => test::only(&root, names),
        ["test", "list"] => {
            print!("{}", test::list());
            Ok(())
        }
        ["tidy"] => tidy::report(&root),
        ["tidy", "tighten"] => tidy::tighten(&root),
        ["tidy", "table"] => tidy::write_table(&root),
        ["peers"] => peers(&root),
        ["count"] => count::check(&root).map(print_outcome),
        ["count", "--record"] => count::record(&root),
        ["python"] => python::check(&root).map(print_outcome),
        ["java"] => test::only(&root, &["java-25"]),
        ["java", "package"] => java::package(&root),
        ["java", "soak", seconds] => java::soak(&root, seconds),
        ["suites", names @ ..] => suites::check(&root, names).map(print_outcome),
        ["docs"] => docs::run_shell_blocks(&root).map(print_outcome),
        ["fuzz", seconds] => fuzz::run(&root, seconds),
        ["soak", minutes] => soak::run(&root, minutes),
        _ => Err(USAGE.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the outcome of a task that is also a step of `test`.
fn print_outcome(outcome: Outcome) {
    match outcome {
        Outcome::Passed(summary) => println!("{summary}"),
        Outcome::Tested(report) => {
            println!("{}", report.summary);
            report.unstable.iter().for_each(|test| println!("unstable: {}\n{}", test.name, test.message));
        }
        Outcome::Skipped(why) => println!("skipped: {why}"),
    }
}

/// Prints the path of the peers' Python; prints to standard error what is not available.
fn peers(root: &Path) -> Result<(), String> {
    let python = peers::prepare(root)?;
    if let Outcome::Skipped(why) = peers::prepare_java(root)? {
        eprintln!("{why}");
    }
    println!("{}", python.display());
    Ok(())
}

/// The folder of the workspace's `Cargo.toml`.
fn workspace_root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}
