//! System programs that some tests need: installed in CI, only suggested elsewhere.

use std::path::Path;
use std::process::Command;

use crate::step::{Outcome, downloaded_by};

/// A program, the flag that prints its version, and the Debian package that contains it.
const NEEDED: [(&str, &str, &str); 8] = [
    ("chromium", "--version", "chromium"),
    ("java", "--version", "openjdk-17-jdk-headless"),
    ("javac", "--version", "openjdk-17-jdk-headless"),
    ("mvn", "--version", "maven"),
    ("ip", "-V", "iproute2"),
    ("valgrind", "--version", "valgrind"),
    ("mosquitto", "-h", "mosquitto"),
    ("mosquitto_sub", "--version", "mosquitto-clients"),
];

/// Checks that the programs are installed. Installs missing ones only in CI, never on a developer's machine.
pub fn prepare(root: &Path) -> Result<Outcome, String> {
    // A program that starts is installed: those of mosquitto end with an error after they have printed their version.
    let missing = missing(|program, flag| Command::new(program).arg(flag).output().is_ok());
    if missing.is_empty() {
        return Ok(Outcome::Passed(String::new()));
    }
    if std::env::var_os("CI").is_none() {
        return Ok(Outcome::Skipped(format!("run `apt-get install {}` to enable more tests", missing.join(" "))));
    }
    let apt = |words: &[&str]| {
        downloaded_by(root, Command::new("apt-get").args(words).env("DEBIAN_FRONTEND", "noninteractive")).map(|_| ())
    };
    apt(&["update"])?;
    apt(&[&["install", "--yes", "--no-install-recommends"], missing.as_slice()].concat())?;
    Ok(Outcome::Passed(format!("installed {}", missing.join(" "))))
}

/// The packages of missing programs, without duplicates.
fn missing(is_there: impl Fn(&str, &str) -> bool) -> Vec<&'static str> {
    let mut packages = Vec::new();
    for (program, flag, package) in NEEDED {
        if !is_there(program, flag) && !packages.contains(&package) {
            packages.push(package);
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_with_two_missing_programs_is_installed_once() {
        assert_eq!(
            missing(|program, _| program == "mvn"),
            ["chromium", "openjdk-17-jdk-headless", "iproute2", "valgrind", "mosquitto", "mosquitto-clients"]
        );
        assert_eq!(missing(|_, _| true), [""; 0]);
    }
}
