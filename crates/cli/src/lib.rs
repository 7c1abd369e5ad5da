//! The program `fodo`: serves, gets, puts, monitors, inspects and measures PVs.
//!
//! `verb` contains one file per command; `epics` contains the tools that are compatible with EPICS.
#![forbid(unsafe_code)]

pub mod client;
mod clu;
mod clu_log;
mod clu_pvs;
pub mod epics;
pub mod exit;
pub mod json;
mod limit;
pub mod local_time;
mod log;
pub mod mask;
mod normative;
mod notices;
mod put_log;
pub mod show;
mod sort;
mod stop;
pub mod structure;
mod terminal;
pub mod verb;
mod watch;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
#[cfg(feature = "lab")]
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::client::{PV_NAMES, PV_REQUESTS};
use crate::epics::OutputStreams;
use crate::exit::{EXIT_CODES, Exit, client_environment};
#[cfg(feature = "lab")]
use crate::verb::lab;
use crate::verb::{
    call, check, completion, config, expand, get, info, ioc, list, monitor, put, repeater, search, top, why,
};

/// One program for process variables: serve, get, put, monitor, inspect
#[derive(Parser)]
#[command(name = "fodo", version, after_help = after_help(), arg_required_else_help = true)]
struct Program {
    #[command(subcommand)]
    verb: Verb,
}

const AFTER_HELP: &str = "\
Examples:
  fodo ioc plant.db                 serve the records of a file
  fodo check st.cmd                 check files without starting anything
  fodo expand motors.substitutions  expand templates and macros to a database
  fodo get x:motor.RBV              read a PV
  fodo get pva://x:motor            read a PV over pvAccess
  fodo put x:motor 12.5             write a PV and wait for completion
  fodo monitor x:motor.RBV          print updates of a PV
  fodo list                         list the servers of pvAccess
  fodo call pva://x:add a=1 b=2     call a procedure over pvAccess
  fodo why x:motor                  find out why a PV does not connect
  fodo search --watch               show searches on the network and names without a server
  fodo clu serve house              run a virtual CLU of Grenton with the scripts of a folder
  fodo top x:ioc                    show the clients of a server, the slowest first
  fodo config                       show and check the environment variables
  fodo lab run quick                measure the performance of this machine
  fodo caget -a x:motor.RBV         the EPICS tools, with their flags and output

When called as caget, caput, camonitor or cainfo, for example by a link, it behaves as that tool; so
it does as pvget, pvput, pvmonitor, pvinfo, pvlist, pvcall, and as pvxget and its companions.
Every command describes its flags, examples and exit codes with --help.";

/// The examples of the commands that this program was built with.
fn after_help() -> String {
    let lines = AFTER_HELP.lines().filter(|line| cfg!(feature = "lab") || !line.contains("fodo lab"));
    lines.collect::<Vec<_>>().join("\n")
}

#[derive(Subcommand)]
enum Verb {
    Get(get::Arguments),
    Put(put::Arguments),
    Monitor(monitor::Arguments),
    Info(info::Arguments),
    List(list::Arguments),
    Call(call::Arguments),
    Why(why::Arguments),
    Search(search::Arguments),
    Top(top::Arguments),
    Config(config::Arguments),
    Ioc(ioc::Arguments),
    Check(check::Arguments),
    Expand(expand::Arguments),
    Repeater(repeater::Arguments),
    Clu(clu::Arguments),
    /// Measure performance, and compare with other implementations
    #[cfg(feature = "lab")]
    #[command(disable_help_flag = true)]
    Lab(Words),
    Completion(completion::Arguments),
    /// Read PVs, compatible with EPICS caget
    #[command(disable_help_flag = true)]
    Caget(Words),
    /// Write a PV, compatible with EPICS caput
    #[command(disable_help_flag = true)]
    Caput(Words),
    /// Monitor PVs, compatible with EPICS camonitor
    #[command(disable_help_flag = true)]
    Camonitor(Words),
    /// Show properties of PVs, compatible with EPICS cainfo
    #[command(disable_help_flag = true)]
    Cainfo(Words),
    /// Read PVs over pvAccess, compatible with EPICS pvget
    #[command(disable_help_flag = true)]
    Pvget(Words),
    /// Write a PV over pvAccess, compatible with EPICS pvput
    #[command(disable_help_flag = true)]
    Pvput(Words),
    /// Monitor PVs over pvAccess, compatible with EPICS pvmonitor
    #[command(disable_help_flag = true)]
    Pvmonitor(Words),
    /// Show the types of PVs over pvAccess, compatible with EPICS pvinfo
    #[command(disable_help_flag = true)]
    Pvinfo(Words),
    /// List servers of pvAccess and their PVs, compatible with EPICS pvlist
    #[command(disable_help_flag = true)]
    Pvlist(Words),
    /// Call a procedure over pvAccess, compatible with EPICS pvcall
    #[command(disable_help_flag = true)]
    Pvcall(Words),
    /// Read PVs over pvAccess, compatible with pvxget
    #[command(disable_help_flag = true)]
    Pvxget(Words),
    /// Write a PV over pvAccess, compatible with pvxput
    #[command(disable_help_flag = true)]
    Pvxput(Words),
    /// Monitor PVs over pvAccess, compatible with pvxmonitor
    #[command(disable_help_flag = true)]
    Pvxmonitor(Words),
    /// Show the types of PVs over pvAccess, compatible with pvxinfo
    #[command(disable_help_flag = true)]
    Pvxinfo(Words),
    /// List servers of pvAccess and their PVs, compatible with pvxlist
    #[command(disable_help_flag = true)]
    Pvxlist(Words),
    /// Call a procedure over pvAccess, compatible with pvxcall
    #[command(disable_help_flag = true)]
    Pvxcall(Words),
}

/// Arguments that the command parses itself.
#[derive(clap::Args)]
struct Words {
    /// The flags and arguments of that tool; -h lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    words: Vec<String>,
}

/// Like [`run`], in a process that is another program, such as Python. `program`: the path of an executable that does the
/// same, which the laboratory starts for the processes under test.
#[cfg(feature = "lab")]
pub fn run_inside(program: PathBuf, arguments: Vec<OsString>) -> ExitCode {
    fodo_lab::set_program(program);
    run(arguments)
}

/// Runs the program. The first of `arguments` is the program name.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    #[cfg(feature = "lab")]
    if let Some(words) = lab::words(&arguments) {
        return lab::run(words);
    }
    match dispatch(arguments) {
        Ok(code) => ExitCode::from(code),
        // The reader of the output, for example `head`, has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // There is no other place to report that stderr failed.
            let _ = writeln!(io::stderr(), "fodo: {error}");
            ExitCode::from(Exit::Other.code())
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
            // Clap prints help to stdout with code 0, and errors to stderr with code 2.
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
    // Neither is kept locked, because threads of an IOC also write to stderr.
    let (mut out, mut err) = (io::BufWriter::new(io::stdout()), io::LineWriter::new(io::stderr()));
    let mut outlet = OutputStreams { out: &mut out, err: &mut err };
    match &parsed.verb {
        Verb::Ioc(arguments) => {
            let of_verb = matches.subcommand_matches("ioc").unwrap_or(&matches);
            // Not flushed at the end: records may have filled a pipe that is not read.
            ioc::run(arguments, of_verb, &mut outlet)
        }
        verb => {
            let code = run_verb(verb, &mut program, &mut outlet)?.code();
            out.flush()?;
            Ok(code)
        }
    }
}

fn run_verb(verb: &Verb, program: &mut clap::Command, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    match verb {
        Verb::Get(arguments) => get::run(arguments, outlet),
        Verb::Put(arguments) => put::run(arguments, outlet),
        Verb::Monitor(arguments) => monitor::run(arguments, outlet),
        Verb::Info(arguments) => info::run(arguments, outlet),
        Verb::List(arguments) => list::run(arguments, outlet),
        Verb::Call(arguments) => call::run(arguments, outlet),
        Verb::Why(arguments) => why::run(arguments, outlet),
        Verb::Search(arguments) => search::run(arguments, outlet),
        Verb::Top(arguments) => top::run(arguments, outlet),
        Verb::Config(arguments) => config::run(arguments, outlet),
        Verb::Check(arguments) => check::run(arguments, outlet),
        Verb::Expand(arguments) => expand::run(arguments, outlet),
        Verb::Repeater(arguments) => repeater::run(arguments, outlet),
        Verb::Clu(arguments) => clu::run(arguments, outlet),
        Verb::Completion(arguments) => completion::run(arguments, program, outlet),
        // The caller handles `ioc`, which returns its own code. The others are recognised before clap parses the
        // arguments, because clap does not support a flag `-0x` with a value.
        #[cfg(feature = "lab")]
        Verb::Lab(_) => Ok(Exit::Other),
        _ => Ok(Exit::Other),
    }
}

/// The clap command, with examples and exit codes added to the help of every command.
fn command() -> clap::Command {
    let mut command = Program::command();
    let client_environment = client_environment();
    let helps = [
        ("get", format!("{}\n\n{PV_NAMES}\n\n{PV_REQUESTS}\n\n{}\n\n{client_environment}", get::HELP, json::KEYS)),
        ("put", format!("{}\n\n{PV_NAMES}\n\n{PV_REQUESTS}\n\n{client_environment}", put::HELP)),
        (
            "monitor",
            format!("{}\n\n{PV_NAMES}\n\n{PV_REQUESTS}\n\n{}\n\n{client_environment}", monitor::HELP, json::KEYS),
        ),
        ("info", format!("{}\n\n{PV_NAMES}\n\n{client_environment}", info::HELP)),
        ("list", format!("{}\n\n{client_environment}", list::HELP)),
        ("call", format!("{}\n\n{client_environment}", call::HELP)),
        ("why", format!("{}\n\n{PV_NAMES}\n\n{client_environment}", why::HELP)),
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
    command.mut_subcommand("clu", clu::with_helps)
}

/// Replaces the arguments by `fodo repeater` if the program was called as caRepeater without arguments, as by libca.
fn as_repeater(arguments: Vec<OsString>) -> Vec<OsString> {
    match arguments.as_slice() {
        [name] if Path::new(name).file_stem().is_some_and(|stem| stem == "caRepeater") => {
            ["fodo", "repeater", "--quiet"].map(OsString::from).to_vec()
        }
        _ => arguments,
    }
}

/// The EPICS tool selected by the program name or the command, and its arguments.
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
    fn the_program_acts_as_an_epics_tool_by_program_name_or_verb() {
        let words = vec!["-0x".to_owned(), "pv".to_owned()];

        assert_eq!(tool("/usr/bin/caget -0x pv"), Some(("caget", words.clone())));
        assert_eq!(tool("fodo caget -0x pv"), Some(("caget", words)));
        assert_eq!(tool("fodo get pv"), None);
        assert_eq!(tool("fodo"), None);
    }

    #[test]
    fn the_command_line_is_valid_and_every_verb_has_examples() {
        let mut command = command();
        command.clone().debug_assert();

        for verb in [
            "get",
            "put",
            "monitor",
            "info",
            "list",
            "call",
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
    fn the_program_has_every_command_of_its_examples() {
        let examples = after_help();
        let verbs: Vec<&str> =
            examples.lines().filter_map(|line| line.strip_prefix("  fodo ")?.split(' ').next()).collect();

        assert!(verbs.iter().all(|verb| command().find_subcommand(verb).is_some()), "{verbs:?}");
        assert_eq!((verbs.contains(&"ioc"), verbs.contains(&"lab")), (true, cfg!(feature = "lab")));
    }

    #[test]
    fn a_symlink_named_ca_repeater_runs_the_repeater() {
        let called = |line: &str| as_repeater(line.split(' ').map(OsString::from).collect());

        assert_eq!(called("/usr/bin/caRepeater"), ["fodo", "repeater", "--quiet"]);
        assert_eq!(called("fodo get"), ["fodo", "get"]);
    }

    #[test]
    fn a_negative_number_is_parsed_as_a_value() {
        assert!(command().try_get_matches_from(["fodo", "put", "pv", "-5"]).is_ok());
        assert!(command().try_get_matches_from(["fodo", "put", "pv", "--", "-inf"]).is_ok());
        assert!(command().try_get_matches_from(["fodo", "put", "pv"]).is_err());
    }
}
