//! Commands that print a value, as a user at a terminal runs them: each is a process, timed from its start to its end.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::batch::ns;
use super::{Batch, Failure, Timed};

/// This program, as a command to add arguments to.
pub fn this_program() -> Result<Command, Failure> {
    std::env::current_exe().map(Command::new).map_err(|why| failed(why.to_string()))
}

/// Runs `command` for each name, one after the other. The first number in each output must be the PV's value.
pub fn time(batch: &Batch, command: impl Fn(&str) -> Result<Command, Failure>) -> Result<Timed, Failure> {
    let mut took = Duration::ZERO;
    for (index, name) in batch.names().iter().enumerate() {
        let mut command = command(name)?;
        command.stdin(Stdio::null());
        let start = Instant::now();
        let output = command.output().map_err(|why| failed(why.to_string()))?;
        took += start.elapsed();
        if !output.status.success() {
            return Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())));
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        let value = printed.split_whitespace().find_map(|word| word.parse().ok());
        batch.check(index, value.ok_or_else(|| failed(format!("the output contains no number: {printed:?}")))?)?;
    }
    Ok(Timed { ns: ns(took), n: batch.n, ..Timed::default() })
}

fn failed(why: String) -> Failure {
    Failure::Operation { what: "a command that prints a value".into(), why }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::driver::Variant;

    fn printing(words: &'static str) -> Result<Timed, Failure> {
        let batch = Batch { pattern: "lab:{:06}".into(), n: 3, variant: Variant::Distinct };
        time(&batch, |name| {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", words, "sh", name.trim_start_matches("lab:").trim_start_matches("00000")]);
            Ok(shell)
        })
    }

    #[test]
    fn commands_count_when_each_has_printed_the_value_of_its_pv() {
        assert_eq!(printing("echo name $1 never").map(|timed| timed.n), Ok(3));
    }

    #[test]
    fn a_wrong_value_or_none_or_an_exit_code_fails() {
        assert!(matches!(printing("echo 7"), Err(Failure::WrongValue { .. })));
        assert!(matches!(printing("echo name none"), Err(Failure::Operation { .. })));
        assert!(matches!(printing("echo $1; exit 3"), Err(Failure::Operation { .. })));
    }
}
