//! caget, caput, camonitor and cainfo, compatible with EPICS for existing scripts: the same flags, output and exit
//! codes. Tests compare them with captured output of the originals in `tests/golden`. `pva` contains the tools of pvAccess.

pub mod caget;
pub mod cainfo;
pub mod camonitor;
pub mod caput;
mod dbr;
mod escape;
pub mod format;
mod getopt;
#[cfg(test)]
mod golden;
mod network;
mod options;
mod plant;
mod printf;
pub mod pva;
mod stamps;
mod status;

use std::io::{self, Write};

use crate::local_time::Clock;

/// The program names or commands that select an EPICS tool.
pub const NAMES: [&str; 16] = [
    "caget",
    "caput",
    "camonitor",
    "cainfo",
    "pvget",
    "pvput",
    "pvmonitor",
    "pvinfo",
    "pvlist",
    "pvcall",
    "pvxget",
    "pvxput",
    "pvxmonitor",
    "pvxinfo",
    "pvxlist",
    "pvxcall",
];

/// Output streams.
pub struct OutputStreams<'a> {
    /// Results.
    pub out: &'a mut dyn Write,
    /// Errors and warnings.
    pub err: &'a mut dyn Write,
}

/// Runs the tool `name` of [`NAMES`] with its arguments; returns its exit code.
pub fn run(name: &str, arguments: &[String]) -> io::Result<u8> {
    let (mut out, mut err) = (io::BufWriter::new(io::stdout()), io::LineWriter::new(io::stderr()));
    let mut outlet = OutputStreams { out: &mut out, err: &mut err };
    let code = match name {
        "caget" => caget::run(arguments, &mut network::Network::default(), &Clock::local(), &mut outlet),
        "caput" => caput::run(arguments, &mut network::Network::default(), &Clock::local(), &mut outlet),
        "cainfo" => cainfo::run(arguments, &mut network::Network::default(), &mut outlet),
        "camonitor" => camonitor::run(arguments, &Clock::local(), &mut outlet),
        name => pva::run(name, arguments, &mut outlet),
    }?;
    out.flush()?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_is_in_the_help() {
        let tools = [
            (caget::FLAGS, caget::HELP),
            (caput::FLAGS, caput::HELP),
            (camonitor::FLAGS, camonitor::HELP),
            (cainfo::FLAGS, cainfo::HELP),
        ];
        for (flags, help) in tools {
            for letter in flags.chars().filter(|&letter| letter != ':') {
                assert!(help.contains(&format!(" -{letter}")), "-{letter} in {help}");
            }
            assert!(help.contains("Exit codes:") && help.contains("Example:") && help.contains("Environment:"));
        }
    }
}
