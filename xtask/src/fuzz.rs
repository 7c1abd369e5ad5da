//! Fuzzing with cargo-fuzz, on request only, because it needs a nightly toolchain and takes unlimited time.

use std::path::Path;
use std::process::{Command, Stdio};

/// Fuzzes every target for `seconds` seconds.
pub fn run(root: &Path, seconds: &str) -> Result<(), String> {
    let seconds: u32 = seconds.parse().map_err(|_| format!("fuzz {seconds}: expected a number of seconds"))?;
    if !is_installed() {
        return Err("cargo-fuzz is not installed; install it with `cargo install cargo-fuzz`".into());
    }

    for target in targets(root)? {
        println!("fuzzing {target} for {seconds} s");
        // New inputs go into the first folder; the corpus in the second is maintained by hand.
        let found = format!("fuzz/found/{target}");
        std::fs::create_dir_all(root.join(&found)).map_err(|error| format!("{found}: {error}"))?;
        let corpus = format!("fuzz/corpus/{target}");
        let status = Command::new("cargo")
            .args(["+nightly", "fuzz", "run", &target, &found, &corpus])
            .args(["--", &format!("-max_total_time={seconds}")])
            .current_dir(root)
            .status()
            .map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("{target}: {status}; the input is in fuzz/artifacts/{target}"));
        }
    }
    Ok(())
}

fn is_installed() -> bool {
    let mut command = Command::new("cargo");
    command.args(["fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The names of the files in `fuzz/fuzz_targets`.
fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz").join("fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.path().file_stem().map(|stem| stem.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Ok(names)
}
