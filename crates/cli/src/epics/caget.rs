//! `caget`: reads PVs and prints their values.

use std::io;

use fodo_net::{ChannelFacts, Error, ErrorKind, Reading};

use super::OutputStreams;
use super::dbr::Dbr;
use super::format::{self, Style};
use super::getopt::{self, Flag};
use super::options::{CommonOptions, handle_common};
use super::plant::{ToolClient, connect_all};
use crate::local_time::Clock;

pub(super) const FLAGS: &str = "tacnhsSVe:f:g:l:#:d:0:w:p:F:";

/// The text of `-h`; the flags are those of EPICS caget.
pub(super) const HELP: &str = "
caget [flags] PV...: read PVs and print their values, with the output of EPICS caget

  -h          this help                -V          version
  -w SECONDS  timeout (1; 0: none)     -p NUMBER   priority of the circuit (0 to 99)
  -c          request the current number of elements
  -t          values only              -a          name, time, value, status, severity
  -d TYPE     request a DBR type by name or number and print all its fields
  -n          enums as numbers         -s          floating point numbers as strings from the server
  -# COUNT    elements to request      -S          arrays of char as a string
  -eN -fN -gN floating point as %e %f %g with N digits
  -lx -lo -lb floating point rounded, hexadecimal, octal, binary
  -0x -0o -0b integers hexadecimal, octal, binary
  -F CHAR     field separator

Environment: EPICS_CA_ADDR_LIST and related variables, EPICS_CLI_TIMEOUT (see fodo get --help)
Exit codes: 0 read, 1 not found or invalid flags

Example: caget -a -f8 my:channel another:channel
";

/// The output format for each PV.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CagetLayout {
    Plain,
    Terse,
    Wide,
    Specified(Dbr),
}

/// The parsed flags.
struct CagetOptions {
    common: CommonOptions,
    layout: CagetLayout,
    floats_as_text: bool,
    counts_as_there_are: bool,
}

/// Runs the tool; returns its exit code.
pub fn run(
    arguments: &[String],
    plant: &mut dyn ToolClient,
    clock: &Clock,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<u8> {
    let (flags, names) = getopt::parse(arguments, FLAGS, false);
    let mut options = match options(&flags, clock, outlet)? {
        Ok(options) => options,
        Err(code) => return Ok(code),
    };
    if names.is_empty() {
        writeln!(outlet.err, "No pv name specified. ('caget -h' for help.)")?;
        return Ok(1);
    }
    let timeout = options.common.timeout();
    let Some(facts) = connect_all(plant, &names, &options.common, outlet.err)? else { return Ok(1) };

    let style = &mut options.common.style;
    let formats: Vec<(usize, Dbr, u32)> = facts
        .iter()
        .enumerate()
        .map(|(pv, facts)| {
            let dbr = match options.layout {
                CagetLayout::Specified(dbr) => dbr,
                _ => style.request_type(facts.kind, options.floats_as_text),
            };
            (pv, dbr, count(style.count_requested, facts, options.counts_as_there_are))
        })
        .collect();
    let requests: Vec<_> = formats.iter().map(|&(pv, dbr, count)| (pv, dbr.request(count))).collect();
    let readings = plant.read(&requests, timeout);
    let is_timeout = |error: &Error| matches!(error.kind(), ErrorKind::NoReply { .. });
    if readings.iter().any(|reading| reading.as_ref().is_err_and(is_timeout)) {
        writeln!(outlet.err, "Read operation timed out: some PV data was not read.")?;
    }
    for (((name, facts), (_, dbr, count)), reading) in names.iter().zip(&facts).zip(&formats).zip(&readings) {
        print(name, facts, (*dbr, *count), reading, style, options.layout, outlet.out)?;
    }
    Ok(0)
}

/// How many elements to request; 0 for the current number.
pub fn count(requested: u32, facts: &ChannelFacts, as_there_are: bool) -> u32 {
    match (requested, as_there_are) {
        (0, true) => 0,
        (0, false) => facts.count_max,
        (requested, _) => requested.min(facts.count_max),
    }
}

fn print(
    name: &str,
    facts: &ChannelFacts,
    (dbr, count): (Dbr, u32),
    reading: &Result<Reading, Error>,
    style: &Style,
    layout: CagetLayout,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    // Without a response the tools use the requested count.
    let n_elements = reading.as_ref().map_or(count as usize, |reading| reading.value.len());
    match (layout, reading) {
        (CagetLayout::Plain | CagetLayout::Terse, reading) => {
            let head = if layout == CagetLayout::Plain { style.name(name, n_elements) } else { String::new() };
            match reading {
                Ok(reading) => writeln!(out, "{head}{}", style.counted_value(&reading.value)),
                Err(error) => writeln!(out, "{head}{}", format::error_text(error)),
            }
        }
        (CagetLayout::Wide, Ok(reading)) => {
            let stamp = style.clock.for_epics(reading.time);
            writeln!(out, "{}{}", style.name(name, n_elements), style.wide(&stamp, reading))
        }
        (CagetLayout::Wide, Err(error)) => {
            let now = style.clock.for_epics(std::time::SystemTime::now().into());
            writeln!(out, "{}{now} {}", style.name(name, n_elements), format::error_text(error))
        }
        (CagetLayout::Specified(_), Ok(reading)) => write!(out, "{name}\n{}", style.block(dbr, facts.kind, reading)),
        (CagetLayout::Specified(_), Err(error)) => writeln!(out, "{name}\n    {}", format::error_text(error)),
    }
}

/// Parses the flags; the inner `Err` is the exit code to end with immediately.
fn options(flags: &[Flag], clock: &Clock, outlet: &mut OutputStreams<'_>) -> io::Result<Result<CagetOptions, u8>> {
    let common = CommonOptions::new("caget", clock, outlet.err)?;
    let mut options =
        CagetOptions { common, layout: CagetLayout::Plain, floats_as_text: false, counts_as_there_are: false };
    for flag in flags {
        let (letter, value) = match handle_common(flag, "caget", HELP, outlet)? {
            Ok(own) => own,
            Err(code) => return Ok(Err(code)),
        };
        match letter {
            't' => options.switch(CagetLayout::Terse, outlet)?,
            'a' => options.switch(CagetLayout::Wide, outlet)?,
            'c' => options.counts_as_there_are = true,
            's' => options.floats_as_text = true,
            'd' => match Dbr::parse(value) {
                Some(dbr) => options.switch(CagetLayout::Specified(dbr), outlet)?,
                None => {
                    options.switch(CagetLayout::Plain, outlet)?;
                    writeln!(
                        outlet.err,
                        "Requested dbr type out of range or invalid - ignored. ('caget -h' for help.)"
                    )?;
                }
            },
            letter => {
                let base_given = std::mem::take(&mut options.common.integer_base_given);
                options.common.take(letter, value, outlet.err)?;
                // With `-d` before it, an integer base changes the requested type to LONG.
                if options.common.integer_base_given && matches!(options.layout, CagetLayout::Specified(_)) {
                    options.layout = CagetLayout::Specified(Dbr::LONG);
                }
                options.common.integer_base_given |= base_given;
            }
        }
    }
    Ok(Ok(options))
}

impl CagetOptions {
    fn switch(&mut self, layout: CagetLayout, outlet: &mut OutputStreams<'_>) -> io::Result<()> {
        if self.layout != CagetLayout::Plain {
            writeln!(outlet.err, "Options t,d,a are mutually exclusive. ('caget -h' for help.)")?;
        }
        self.layout = layout;
        Ok(())
    }
}
