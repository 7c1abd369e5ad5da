//! Lists and runs the tests of a program whose `main` is also the laboratory, with the arguments of other test programs:
//! `--list`, `--ignored`, `--exact` and parts of names.
//!
//! The library libtest-mimic would switch on features of clap, so that the tests would use another `fodo` than users.

use std::panic::catch_unwind;
use std::process::ExitCode;

/// Does what the arguments of the process say. Unless `should_run`, the tests are ignored.
pub fn run<F>(tests: impl IntoIterator<Item = (&'static str, F)>, should_run: bool) -> ExitCode
where
    F: FnOnce() + std::panic::UnwindSafe,
{
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(option) = arguments.iter().position(|argument| argument == "--format") {
        // The list has one format.
        arguments.drain(option..arguments.len().min(option + 2));
    }
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let names: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_selected = |name: &str| {
        let matches = |part: &&String| if has("--exact") { *part == name } else { name.contains(part.as_str()) };
        names.is_empty() || names.iter().any(matches)
    };

    let [mut n_passed, mut n_failed, mut n_ignored] = [0; 3];
    for (name, test) in tests.into_iter().filter(|(name, _)| is_selected(name)) {
        if has("--list") {
            if !has("--ignored") || !should_run {
                println!("{name}: test");
            }
        } else if !should_run && !has("--ignored") {
            n_ignored += 1;
            println!("test {name} ... ignored");
        } else if catch_unwind(test).is_ok() {
            n_passed += 1;
            println!("test {name} ... ok");
        } else {
            n_failed += 1;
            println!("test {name} ... FAILED");
        }
    }
    if !has("--list") {
        let word = if n_failed == 0 { "ok" } else { "FAILED" };
        println!("test result: {word}. {n_passed} passed; {n_failed} failed; {n_ignored} ignored");
    }
    if n_failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
