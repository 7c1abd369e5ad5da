//! The tools of pvAccessCPP (`pvget` and its companions) and of pvxs (`pvxget` and its companions), compatible for
//! existing scripts: the same flags, output and exit codes. Tests compare them with captured output of the originals in
//! `tests/golden`.

pub mod assign;
pub mod client;
#[cfg(test)]
mod golden;
mod monitors;
mod options;
pub mod pvcall;
pub mod pvdata;
pub mod pvget;
pub mod pvinfo;
pub mod pvlist;
pub mod pvput;
pub mod pvx;
pub mod pvxs;
pub mod type_text;

use std::io;

use self::client::PvaNetwork;
use super::OutputStreams;
use crate::local_time::Clock;

/// Runs the tool with its arguments; returns its exit code.
pub fn run(name: &str, arguments: &[String], outlet: &mut OutputStreams<'_>) -> io::Result<u8> {
    let (network, clock) = (&mut PvaNetwork::default(), Clock::local());
    match name {
        "pvget" => pvget::run(arguments, network, &clock, outlet),
        "pvmonitor" => pvget::monitor(arguments, network, &clock, outlet),
        "pvput" => pvput::run(arguments, network, &clock, outlet),
        "pvinfo" => pvinfo::run(arguments, network, outlet),
        "pvcall" => pvcall::run(arguments, network, &clock, outlet),
        "pvlist" => pvlist::run(arguments, &clock, outlet),
        "pvxget" => pvx::get(arguments, network, outlet),
        "pvxmonitor" => pvx::monitor(arguments, outlet),
        "pvxput" => pvx::put(arguments, network, outlet),
        "pvxinfo" => pvx::info(arguments, network, outlet),
        "pvxcall" => pvx::call(arguments, network, outlet),
        _ => pvx::list(arguments, outlet),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_is_in_the_help() {
        let tools = [
            (pvget::FLAGS, pvget::HELP),
            (pvget::FLAGS, pvget::MONITOR_HELP),
            (pvput::FLAGS, pvput::HELP),
            (pvinfo::FLAGS, pvinfo::HELP),
            (pvcall::FLAGS, pvcall::HELP),
            (pvlist::FLAGS, pvlist::HELP),
            (pvx::GET_FLAGS, pvx::GET_HELP),
            (pvx::MONITOR_FLAGS, pvx::MONITOR_HELP),
            (pvx::PUT_FLAGS, pvx::PUT_HELP),
            (pvx::INFO_FLAGS, pvx::INFO_HELP),
            (pvx::CALL_FLAGS, pvx::CALL_HELP),
            (pvx::LIST_FLAGS, pvx::LIST_HELP),
        ];
        for (flags, help) in tools {
            for letter in flags.chars().filter(|&letter| letter != ':') {
                assert!(help.contains(&format!(" -{letter}")), "-{letter} in {help}");
            }
            assert!(help.contains("Exit codes:") && help.contains("Example:") && help.contains("Environment:"));
            assert!(help.lines().all(|line| line.len() < 100), "{help}");
        }
    }
}
