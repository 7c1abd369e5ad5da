//! `cainfo`: prints the server, type and access rights of channels.

use std::io;

use fodo_net::{ChannelFacts, Detail};

use super::OutputStreams;
use super::dbr::{self, Dbr};
use super::getopt;
use super::options::{CommonOptions, handle_common, leading_integer};
use super::plant::{ToolClient, connect_all};
use crate::local_time::Clock;

pub(super) const FLAGS: &str = "hVw:s:p:";

/// The text of `-h`.
pub(super) const HELP: &str = "
cainfo [flags] PV...: print server, type and access rights of PVs, with the output of EPICS cainfo

  -h          this help                -V          version
  -w SECONDS  timeout (1; 0: none)     -p NUMBER   priority of the circuit (0 to 99)
  -s LEVEL    not supported: it prints internals of libca, which is not used here

Environment: EPICS_CA_ADDR_LIST and related variables, EPICS_CLI_TIMEOUT (see fodo get --help)
Exit codes: 0 printed, 1 not found or invalid flags

Example: cainfo my:channel another:channel
";

/// Runs the tool; returns its exit code.
pub fn run(arguments: &[String], plant: &mut dyn ToolClient, outlet: &mut OutputStreams<'_>) -> io::Result<u8> {
    let (flags, names) = getopt::parse(arguments, FLAGS, false);
    let mut common = CommonOptions::new("cainfo", &Clock::utc(), outlet.err)?;
    for flag in &flags {
        let (letter, value) = match handle_common(flag, "cainfo", HELP, outlet)? {
            Ok(own) => own,
            Err(code) => return Ok(code),
        };
        match letter {
            's' => match leading_integer(value) {
                Some(0) => {}
                Some(_) => {
                    writeln!(outlet.err, "cainfo: -s is not supported, because it prints internals of libca")?;
                    return Ok(1);
                }
                None => {
                    writeln!(outlet.err, "'{value}' is not a valid interest level - ignored. ('cainfo -h' for help.)")?;
                }
            },
            letter => common.take(letter, value, outlet.err)?,
        }
    }
    if names.is_empty() {
        writeln!(outlet.err, "No pv name specified. ('cainfo -h' for help.)")?;
        return Ok(1);
    }
    let Some(facts) = connect_all(plant, &names, &common, outlet.err)? else { return Ok(1) };
    for (name, facts) in names.iter().zip(&facts) {
        outlet.out.write_all(block(name, facts).as_bytes())?;
    }
    Ok(0)
}

fn block(name: &str, facts: &ChannelFacts) -> String {
    let right = |is_given: bool| if is_given { "" } else { "no " };
    format!(
        "{name}\n    State:            connected\n    Host:             {}\n    Access:           {}read, {}write\n    \
         Native data type: {}\n    Request type:     {}\n    Element count:    {}\n",
        facts.server,
        right(facts.may_read),
        right(facts.may_write),
        dbr::native_name(facts.kind),
        Dbr::of(facts.kind, Detail::Value).name(),
        facts.count_max
    )
}
