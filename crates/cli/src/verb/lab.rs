//! `fodo lab`: runs the performance laboratory, which parses its own arguments.

use std::ffi::OsString;
use std::process::ExitCode;

/// The arguments after `fodo lab`, if that is the command.
///
/// It is called before clap, because the laboratory starts this program for every process under test, and a timed
/// client should not first build the command line of all commands.
pub fn words(arguments: &[OsString]) -> Option<&[OsString]> {
    match arguments {
        [_, verb, words @ ..] if verb == "lab" => Some(words),
        _ => None,
    }
}

/// Runs the command.
pub fn run(words: &[OsString]) -> ExitCode {
    fodo_lab::run(words.iter().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lab_arguments_follow_the_lab_verb() {
        let lab_arguments = |line: &str| {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            words(&arguments).map(<[OsString]>::to_vec)
        };

        assert_eq!(lab_arguments("fodo lab run --json -"), Some(vec!["run".into(), "--json".into(), "-".into()]));
        assert_eq!(lab_arguments("fodo get lab"), None);
    }
}
