//! Random faults for a given time, on request only.

use std::path::Path;
use std::process::Command;

/// Runs the soak tests for `minutes` minutes against the release build.
pub fn run(root: &Path, minutes: &str) -> Result<(), String> {
    let _: u64 = minutes.parse().map_err(|_| format!("soak {minutes}: expected a number of minutes"))?;
    cargo(root, minutes, &["build", "--release", "-p", "fodo-cli"])?;
    // One test at a time, because each measures response times.
    let all = ["--include-ignored", "--nocapture", "--test-threads=1"];
    cargo(root, minutes, &[["test", "-p", "fodo-conformance", "--test", "soak", "--"].as_slice(), &all].concat())
}

fn cargo(root: &Path, minutes: &str, arguments: &[&str]) -> Result<(), String> {
    let program = root.join("target").join("release").join("fodo");
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root).env("FODO_SOAK_MINUTES", minutes).env("FODO_BIN", program);
    let status = command.status().map_err(|error| error.to_string())?;
    status.success().then_some(()).ok_or_else(|| format!("cargo {}: {status}", arguments.join(" ")))
}
