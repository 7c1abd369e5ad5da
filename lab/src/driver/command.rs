//! Commands that print a value, as a user at a terminal runs them: each is a process, timed from its start to its end.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::batch::ns;
use super::{ConnectedChannels, DriverFailure, Timed};

/// This program, as a command to add arguments to.
pub fn this_program() -> Result<Command, DriverFailure> {
    crate::program::path().map(Command::new).map_err(|why| failed(why.to_string()))
}

/// Runs `command` for each name, one after the other. The first number in each output must be the PV's value.
pub fn time(
    batch: &ConnectedChannels,
    command: impl Fn(&str) -> Result<Command, DriverFailure>,
) -> Result<Timed, DriverFailure> {
    let mut elapsed = Duration::ZERO;
    for (index, name) in batch.names().iter().enumerate() {
        let mut command = command(name)?;
        command.stdin(Stdio::null());
        let start = Instant::now();
        let output = command.output().map_err(|why| failed(why.to_string()))?;
        elapsed += start.elapsed();
        if !output.status.success() {
            return Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())));
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        let value = printed.split_whitespace().find_map(|word| word.parse().ok());
        batch.check(index, value.ok_or_else(|| failed(format!("the output contains no number: {printed:?}")))?)?;
    }
    Ok(Timed { ns: ns(elapsed), n: batch.n, ..Timed::default() })
}

fn failed(why: String) -> DriverFailure {
    DriverFailure::Operation { what: "a command that prints a value".into(), why }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::driver::Variant;

    fn printing(words: &'static str) -> Result<Timed, DriverFailure> {
        let batch = ConnectedChannels { pattern: "lab:{:06}".into(), n: 3, variant: Variant::Distinct };
        time(&batch, |name| {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", words, "sh", name.trim_start_matches("lab:").trim_start_matches("00000")]);
            Ok(shell)
        })
    }

    #[test]
    fn commands_count_if_each_prints_the_value_of_its_pv() {
        assert_eq!(printing("echo name $1 never").map(|timed| timed.n), Ok(3));
    }

    #[test]
    fn a_wrong_or_missing_value_or_a_failure_exit_code_fails() {
        assert!(matches!(printing("echo 7"), Err(DriverFailure::WrongValue { .. })));
        assert!(matches!(printing("echo name none"), Err(DriverFailure::Operation { .. })));
        assert!(matches!(printing("echo $1; exit 3"), Err(DriverFailure::Operation { .. })));
    }
}
