//! The IOC is part of the program `fodo`, for which the laboratory takes the calling program.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// The program `fodo` of the same build.
pub fn fodo() -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    let profile = this.ancestors().nth(2).expect("it is two levels below the profile's directory");
    profile.join(format!("fodo{}", std::env::consts::EXE_SUFFIX))
}

/// Whether tests can use it. In CI they fail without it.
pub fn has_fodo() -> bool {
    let has_fodo = fodo().is_file() || std::env::var_os("CI").is_some();
    if !has_fodo {
        println!("not tested: {} is missing; build it with `cargo build`", fodo().display());
    }
    has_fodo
}

#[cfg(unix)]
pub fn become_fodo(words: &[OsString]) -> ExitCode {
    use std::os::unix::process::CommandExt;
    eprintln!("{}", std::process::Command::new(fodo()).args(words).exec());
    ExitCode::FAILURE
}

#[cfg(not(unix))]
pub fn become_fodo(_words: &[OsString]) -> ExitCode {
    ExitCode::FAILURE
}
