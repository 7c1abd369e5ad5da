//! cargo-nextest and cargo-deny, which take minutes to compile: installed as finished programs, once for each list.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::environment;
use crate::step::output_of;

/// The programs and their versions.
const LIST: &str = "xtask/tools.txt";

/// A command that starts with `cargo nextest`.
pub fn nextest(root: &Path) -> Result<Command, String> {
    program(root, "cargo-nextest").map(|path| {
        let mut command = Command::new(path);
        command.arg("nextest");
        command
    })
}

/// A command that starts with `cargo deny`.
pub fn deny(root: &Path) -> Result<Command, String> {
    program(root, "cargo-deny").map(Command::new)
}

/// The path of a program of the list; of the one that is installed if the package index does not have the list.
fn program(root: &Path, name: &str) -> Result<PathBuf, String> {
    let why = match environment::prepare(root, &folder(root)?, LIST) {
        Ok(python) => return Ok(python.with_file_name(name)),
        Err(why) => why,
    };
    match output_of(root, Command::new(name).arg("--version")) {
        Ok(_) => Ok(PathBuf::from(name)),
        Err(_) => Err(format!("{why}\n\nwithout {LIST}, install it: cargo install --locked {name}")),
    }
}

/// The folder of these versions, outside the workspace, so that other clones and later runs find them.
fn folder(root: &Path) -> Result<PathBuf, String> {
    let list = std::fs::read_to_string(root.join(LIST)).map_err(|error| format!("{LIST}: {error}"))?;
    let mut hasher = DefaultHasher::new();
    list.hash(&mut hasher);
    let cache = match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) if !cache.is_empty() => PathBuf::from(cache),
        _ => PathBuf::from(std::env::var_os("HOME").ok_or("HOME is not set")?).join(".cache"),
    };
    Ok(cache.join("fodo").join(format!("tools-{:016x}", hasher.finish())))
}
