//! The project's chores: `cargo xtask test [quick]`, `tidy`, `peers`, `count`, `fuzz SECONDS`, `mutants N`,
//! `soak MINUTES`.
#![forbid(unsafe_code)]

mod count;
mod docs;
mod fuzz;
mod mutants;
mod peers;
mod programs;
mod soak;
mod step;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::step::Outcome;

const USAGE: &str = "usage: cargo xtask CHORE

  test          everything: what must hold before a change is merged
  test quick    the round while working: format, lints, unit tests, tidy
  tidy          the rules of the house
  tidy tighten  lowers the lengths in xtask/tidy-giants.txt to what they are now
  tidy table    writes the table of dependencies in ARCHITECTURE.md anew
  peers         fetches the peers: a Python environment and PSI's ca, unless they are there already
  count         counts instructions of the hot paths by callgrind, and compares with lab/counts.txt
  count --record  writes what it counts there
  docs          runs the shell blocks of README.md and docs/
  fuzz SECONDS  fuzzes; needs a nightly toolchain and cargo-fuzz
  mutants N [SEED]  tries N mutants of the crates against their own tests, and lists those that survive;
                needs cargo-mutants
  soak MINUTES  runs faults at random against `fodo ioc`, and sees that nothing grows and nobody else is harmed";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();

    let root = workspace_root();
    let result = match arguments.as_slice() {
        ["test"] => test::everything(&root),
        ["test", "quick"] => test::quick(&root),
        ["tidy"] => tidy::report(&root),
        ["tidy", "tighten"] => tidy::tighten(&root),
        ["tidy", "table"] => tidy::write_table(&root),
        ["peers"] => peers(&root),
        ["count"] => count::check(&root).map(tell),
        ["count", "--record"] => count::record(&root),
        ["docs"] => docs::run_shell_blocks(&root).map(|said| println!("{said}")),
        ["fuzz", seconds] => fuzz::run(&root, seconds),
        ["mutants", sample_size] => mutants::run(&root, sample_size, None),
        ["mutants", sample_size, seed] => mutants::run(&root, sample_size, Some(seed)),
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

/// How a chore went that is a step of `test` as well.
fn tell(outcome: Outcome) {
    match outcome {
        Outcome::Passed(said) => println!("{said}"),
        Outcome::Skipped(why) => println!("skipped: {why}"),
    }
}

/// Says where their Python is, and on standard error what cannot be had.
fn peers(root: &Path) -> Result<(), String> {
    let python = peers::prepare(root)?;
    if let Outcome::Skipped(why) = peers::prepare_java(root)? {
        eprintln!("{why}");
    }
    println!("{}", python.display());
    Ok(())
}

/// The folder that holds the workspace's `Cargo.toml`.
fn workspace_root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}
