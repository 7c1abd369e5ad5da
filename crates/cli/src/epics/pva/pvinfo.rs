//! `pvinfo`: prints the servers and types of PVs of pvAccess.

use std::io;

use super::client::{StructureClient, is_timeout, message};
use super::options::PvOptions;
use super::type_text;
use crate::epics::{OutputStreams, getopt};

pub(super) const FLAGS: &str = "hVw:p:dc";

/// The text of `-h`; the flags are those of pvinfo.
pub(super) const HELP: &str = "
pvinfo [flags] PV...: print the servers and types of PVs of pvAccess, as pvinfo of EPICS Base

  -h          this help                -V          version
  -w SECONDS  timeout for all PVs (5; 0: none)
  -p PROVIDER only pva                 -d -c       accepted without effect

Environment: EPICS_PVA_ADDR_LIST and related variables (see fodo get --help)
Exit codes: 0 printed, 1 timeout, refused by the server, or invalid flags

Example: pvinfo my:pv
";

/// Runs the tool; returns its exit code.
pub fn run(arguments: &[String], client: &mut dyn StructureClient, outlet: &mut OutputStreams<'_>) -> io::Result<u8> {
    let (flags, names) = getopt::parse(arguments, FLAGS, false);
    let mut options = PvOptions::new("pvinfo", 5);
    for flag in &flags {
        if let Err(code) = options.take(flag, HELP, outlet)? {
            return Ok(code);
        }
    }
    if names.is_empty() {
        writeln!(outlet.err, "No pv name(s) specified. ('pvinfo -h' for help.)")?;
        return Ok(1);
    }
    if options.pv_request(outlet)?.is_none() {
        return Ok(1);
    }
    let (mut code, mut has_timed_out) = (0, false);
    for (name, result) in names.iter().zip(client.describe(&names, options.timeout)) {
        match result {
            Ok((server, kind)) => {
                let text = type_text::type_text(&kind, 1);
                writeln!(outlet.out, "{name}\nServer: {server}\nType:\n{text}")?;
            }
            Err(error) => {
                has_timed_out |= is_timeout(&error);
                code = 1;
                writeln!(outlet.err, "{name} Error: {}", message(&error))?;
            }
        }
    }
    if has_timed_out {
        writeln!(outlet.err, "Timeout")?;
    }
    Ok(code)
}
