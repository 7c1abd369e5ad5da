//! The program `fodo`: serve, get, put, monitor, inspect, measure.
//!
//! One file per verb in `verb`; `epics` holds the four tools whose text scripts of the field know.
#![forbid(unsafe_code)]

pub mod client;
pub mod epics;
pub mod exit;
pub mod json;
mod limit;
pub mod local_time;
mod log;
pub mod mask;
mod notices;
mod put_log;
pub mod show;
mod sort;
mod stop;
mod terminal;
pub mod verb;
mod watch;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::epics::Outlet;
use crate::exit::{EXIT_CODES, Exit, client_environment};
use crate::verb::{check, completion, config, expand, get, info, ioc, lab, monitor, put, repeater, search, top, why};

/// One program for process variables: serve, get, put, monitor, inspect
#[derive(Parser)]
#[command(name = "fodo", version, after_help = AFTER_HELP, arg_required_else_help = true)]
struct Program {
    #[command(subcommand)]
    verb: Verb,
}

const AFTER_HELP: &str = "\
Examples:
  fodo ioc plant.db                 serve the records of a file
  fodo check st.cmd                 what is wrong with files, without starting anything
  fodo expand motors.substitutions  the database that a file with macros means
  fodo get x:motor.RBV              read
  fodo put x:motor 12.5             write, and wait until it is done
  fodo monitor x:motor.RBV          watch
  fodo why x:motor                  which step towards a PV fails, and what to do
  fodo search --watch               who asks for what, and what nobody answers
  fodo top x:ioc                    the clients of a server, the slow ones first
  fodo config                       which environment variables count, and what is wrong with them
  fodo lab run quick                measure this machine
  fodo caget -a x:motor.RBV         the field's own tools, with their flags and their text

Called by the name caget, caput, camonitor or cainfo (a link is enough), it is that tool.
Every verb tells its flags, examples and exit codes with --help.";

#[derive(Subcommand)]
enum Verb {
    Get(get::Arguments),
    Put(put::Arguments),
    Monitor(monitor::Arguments),
    Info(info::Arguments),
    Why(why::Arguments),
    Search(search::Arguments),
    Top(top::Arguments),
    Config(config::Arguments),
    Ioc(ioc::Arguments),
    Check(check::Arguments),
    Expand(expand::Arguments),
    Repeater(repeater::Arguments),
    /// Measure this machine, and compare with other implementations
    #[command(disable_help_flag = true)]
    Lab(Words),
    Completion(completion::Arguments),
    /// Read PVs, as the tool of that name does
    #[command(disable_help_flag = true)]
    Caget(Words),
    /// Write a PV, as the tool of that name does
    #[command(disable_help_flag = true)]
    Caput(Words),
    /// Watch PVs, as the tool of that name does
    #[command(disable_help_flag = true)]
    Camonitor(Words),
    /// Show what servers say of PVs, as the tool of that name does
    #[command(disable_help_flag = true)]
    Cainfo(Words),
}

/// Words that the verb itself understands.
#[derive(clap::Args)]
struct Words {
    /// That tool's flags and arguments; -h lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    words: Vec<String>,
}

/// Runs the program. `arguments` begins with the name it was called by.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    if let Some(words) = lab::words(&arguments) {
        return lab::run(words);
    }
    match dispatch(arguments) {
        Ok(code) => ExitCode::from(code),
        // Whoever read our output has had enough, as `head` has.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do when stderr fails as well.
            let _ = writeln!(io::stderr(), "fodo: {error}");
            Exit::Other.into()
        }
    }
}

fn dispatch(arguments: Vec<OsString>) -> io::Result<u8> {
    if let Some((tool, words)) = epics_tool(&arguments) {
        return epics::run(tool, &words);
    }
    let arguments = as_repeater(arguments);
    let mut program = command();
    let matches = match program.try_get_matches_from_mut(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            // Help goes to stdout with code 0, a complaint to stderr with code 2.
            error.print()?;
            return Ok(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let parsed = match Program::from_arg_matches(&matches) {
        Ok(parsed) => parsed,
        Err(error) => {
            error.print()?;
            return Ok(2);
        }
    };
    // Neither is kept locked: threads of an IOC tell their troubles on stderr as well.
    let (mut out, mut err) = (io::BufWriter::new(io::stdout()), io::LineWriter::new(io::stderr()));
    let mut outlet = Outlet { out: &mut out, err: &mut err };
    let code = match &parsed.verb {
        Verb::Ioc(arguments) => {
            let of_verb = matches.subcommand_matches("ioc").unwrap_or(&matches);
            ioc::run(arguments, of_verb, &mut outlet)?
        }
        verb => run_verb(verb, &mut program, &mut outlet)?.code(),
    };
    out.flush()?;
    Ok(code)
}

fn run_verb(verb: &Verb, program: &mut clap::Command, outlet: &mut Outlet<'_>) -> io::Result<Exit> {
    match verb {
        Verb::Get(arguments) => get::run(arguments, outlet),
        Verb::Put(arguments) => put::run(arguments, outlet),
        Verb::Monitor(arguments) => monitor::run(arguments, outlet),
        Verb::Info(arguments) => info::run(arguments, outlet),
        Verb::Why(arguments) => why::run(arguments, outlet),
        Verb::Search(arguments) => search::run(arguments, outlet),
        Verb::Top(arguments) => top::run(arguments, outlet),
        Verb::Config(arguments) => config::run(arguments, outlet),
        Verb::Check(arguments) => check::run(arguments, outlet),
        Verb::Expand(arguments) => expand::run(arguments, outlet),
        Verb::Repeater(arguments) => repeater::run(arguments, outlet),
        Verb::Completion(arguments) => completion::run(arguments, program, outlet),
        // Who calls this does the first himself, since it chooses its code. The others are recognised before clap is
        // asked, as clap knows no flag `-0x` with a value.
        Verb::Ioc(_) | Verb::Lab(_) | Verb::Caget(_) | Verb::Caput(_) | Verb::Camonitor(_) | Verb::Cainfo(_) => {
            Ok(Exit::Other)
        }
    }
}

/// The command line as clap knows it, every verb's help with its examples and exit codes.
fn command() -> clap::Command {
    let mut command = Program::command();
    let client_environment = client_environment();
    let helps = [
        ("get", format!("{}\n\n{}\n\n{client_environment}", get::HELP, json::KEYS)),
        ("put", format!("{}\n\n{client_environment}", put::HELP)),
        ("monitor", format!("{}\n\n{}\n\n{client_environment}", monitor::HELP, json::KEYS)),
        ("info", format!("{}\n\n{client_environment}", info::HELP)),
        ("why", format!("{}\n\n{client_environment}", why::HELP)),
        ("search", format!("{}\n\n{client_environment}", search::HELP)),
        ("top", format!("{}\n\n{client_environment}", top::HELP)),
        ("config", config::help()),
        ("ioc", format!("{}\n\n{}", ioc::HELP, ioc::environment())),
        ("check", check::HELP.to_owned()),
        ("expand", expand::HELP.to_owned()),
        ("repeater", repeater::HELP.to_owned()),
        ("completion", completion::HELP.to_owned()),
    ];
    for (verb, help) in helps {
        command = command.mut_subcommand(verb, |verb| verb.after_help(format!("{help}\n\n{EXIT_CODES}")));
    }
    command
}

/// Called by the name caRepeater, as libca starts it without arguments, it is `fodo repeater`.
fn as_repeater(arguments: Vec<OsString>) -> Vec<OsString> {
    match arguments.as_slice() {
        [name] if Path::new(name).file_stem().is_some_and(|stem| stem == "caRepeater") => {
            ["fodo", "repeater", "--quiet"].map(OsString::from).to_vec()
        }
        _ => arguments,
    }
}

/// The field's tool that is wanted, by the program's own name or as the verb, and its arguments.
fn epics_tool(arguments: &[OsString]) -> Option<(&'static str, Vec<String>)> {
    let known = |name: &OsString| {
        let stem = Path::new(name).file_stem()?.to_str()?;
        epics::NAMES.into_iter().find(|&tool| tool == stem)
    };
    let words = |words: &[OsString]| words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match arguments {
        [name, rest @ ..] if known(name).is_some() => Some((known(name)?, words(rest))),
        [_, verb, rest @ ..] => {
            let tool = epics::NAMES.into_iter().find(|&tool| verb == tool)?;
            Some((tool, words(rest)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(line: &str) -> Option<(&'static str, Vec<String>)> {
        epics_tool(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_program_is_a_tool_of_the_field_by_name_or_by_verb() {
        let words = vec!["-0x".to_owned(), "pv".to_owned()];

        assert_eq!(tool("/usr/bin/caget -0x pv"), Some(("caget", words.clone())));
        assert_eq!(tool("fodo caget -0x pv"), Some(("caget", words)));
        assert_eq!(tool("fodo get pv"), None);
        assert_eq!(tool("fodo"), None);
    }

    #[test]
    fn the_command_line_is_well_formed_and_every_verb_teaches() {
        let mut command = command();
        command.clone().debug_assert();

        for verb in [
            "get",
            "put",
            "monitor",
            "info",
            "why",
            "search",
            "top",
            "config",
            "ioc",
            "expand",
            "repeater",
            "completion",
        ] {
            let help = command.find_subcommand_mut(verb).unwrap().render_long_help().to_string();
            assert!(help.contains("Examples:"), "{verb}");
            assert!(help.contains("Exit codes:"), "{verb}");
        }
    }

    #[test]
    fn a_link_named_ca_repeater_is_the_repeater() {
        let called = |line: &str| as_repeater(line.split(' ').map(OsString::from).collect());

        assert_eq!(called("/usr/bin/caRepeater"), ["fodo", "repeater", "--quiet"]);
        assert_eq!(called("fodo get"), ["fodo", "get"]);
    }

    #[test]
    fn a_negative_number_is_a_value_and_not_a_flag() {
        assert!(command().try_get_matches_from(["fodo", "put", "pv", "-5"]).is_ok());
        assert!(command().try_get_matches_from(["fodo", "put", "pv", "--", "-inf"]).is_ok());
        assert!(command().try_get_matches_from(["fodo", "put", "pv"]).is_err());
    }
}
