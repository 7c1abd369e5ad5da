//! `fodo clu`: controls Grenton CLUs, and runs a virtual one. One file per command.

mod alive;
mod call;
mod discover;
mod download;
mod exec;
mod files;
mod get;
mod interface;
mod interfaces;
mod item;
mod keys;
mod outcome;
mod progress;
mod reset;
mod serve;
mod set;
mod target;
mod upload;
mod watch;

use std::io;

use crate::epics::OutputStreams;
use crate::exit::Exit;

/// Control Grenton CLUs, and run a virtual CLU
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: CluCommand,
}

#[derive(Debug, clap::Subcommand)]
enum CluCommand {
    Discover(discover::Arguments),
    Alive(alive::Arguments),
    Exec(exec::Arguments),
    Get(get::Arguments),
    Set(set::Arguments),
    Call(call::Arguments),
    Watch(watch::Arguments),
    Upload(upload::Arguments),
    Download(download::Arguments),
    Reset(reset::Arguments),
    Serve(serve::Arguments),
    Keys(keys::Arguments),
    Interfaces(interfaces::Arguments),
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo clu serve house                           run a virtual CLU with the scripts of a folder
  fodo clu discover -i eth0 --project house.omp  find the CLUs of a network
  fodo clu alive 10.0.0.2                        check that a CLU answers
  fodo clu exec 10.0.0.2 'CLU0001:get(0)'        evaluate an expression of Lua
  fodo clu get --clu house.toml house THE0001    read the features of an object
  fodo clu watch --clu house.toml house THE0001  print changes of its features

A CLU is the controller of a Grenton installation. It runs scripts in Lua and answers encrypted
datagrams. The virtual CLU runs the same scripts on this host.";

/// The section of every help on the CLU's name and its key.
const CLUS: &str = "\
CLUs:
  ADDRESS[:PORT]  with the key in --keys, by default keys.json, or in --project; the port is 1234 by
                  default
  NAME            of a CLU in the file --clu, by default FODO_CLU_FILE; with --project also the name
                  of a CLU in the project";

/// The section of the helps on objects and features.
const ITEMS: &str = "\
Items:
  OBJECT FEATURE...  features of an object: THE0001 14, or THE0001 CurrentTemp TargetTemp
  OBJECT/FEATURE     the same in one word: THE0001/CurrentTemp
  OBJECT             all features of an object that can be read
  VARIABLE           a variable of the user
An object has its name in Lua, such as THE0001, or the name that it has in Object Manager. Names of
features, and an object without features, require that --clu or --project names the objects of the
CLU; without it, an object has its name in Lua, and a feature its index.";

/// The section of every help on exit codes: those of the other commands, in the terms of CLUs.
const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  an error on this host: a file, a key, a port
  2  invalid command line
  3  not found: the value is nil, or no CLU answered the discovery
  4  no reply: the CLU was silent, or sent an invalid reply
  5  refused by the CLU, or its scripts do not run (emergency mode)
  6  a value that cannot be converted or sent
  7  several items failed, for different reasons";

/// Adds examples and exit codes to the help of each command.
pub fn with_helps(command: clap::Command) -> clap::Command {
    let helps = [
        ("discover", discover::HELP.to_owned()),
        ("alive", format!("{}\n\n{CLUS}", alive::HELP)),
        ("exec", format!("{}\n\n{CLUS}", exec::HELP)),
        ("get", format!("{}\n\n{ITEMS}\n\n{CLUS}", get::HELP)),
        ("set", format!("{}\n\n{ITEMS}\n\n{CLUS}", set::HELP)),
        ("call", format!("{}\n\n{CLUS}", call::HELP)),
        ("watch", format!("{}\n\n{ITEMS}\n\n{CLUS}", watch::HELP)),
        ("upload", format!("{}\n\n{CLUS}", upload::HELP)),
        ("download", format!("{}\n\n{CLUS}", download::HELP)),
        ("reset", format!("{}\n\n{CLUS}", reset::HELP)),
        ("serve", serve::HELP.to_owned()),
        ("keys", keys::HELP.to_owned()),
        ("interfaces", interfaces::HELP.to_owned()),
    ];
    let command = command.after_help(format!("{HELP}\n\n{EXIT_CODES}"));
    helps.into_iter().fold(command, |command, (name, help)| {
        command.mut_subcommand(name, |command| command.after_help(format!("{help}\n\n{EXIT_CODES}")))
    })
}

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    match &arguments.command {
        CluCommand::Discover(arguments) => discover::run(arguments, outlet),
        CluCommand::Alive(arguments) => alive::run(arguments, outlet),
        CluCommand::Exec(arguments) => exec::run(arguments, outlet),
        CluCommand::Get(arguments) => get::run(arguments, outlet),
        CluCommand::Set(arguments) => set::run(arguments, outlet),
        CluCommand::Call(arguments) => call::run(arguments, outlet),
        CluCommand::Watch(arguments) => watch::run(arguments, outlet),
        CluCommand::Upload(arguments) => upload::run(arguments, outlet),
        CluCommand::Download(arguments) => download::run(arguments, outlet),
        CluCommand::Reset(arguments) => reset::run(arguments, outlet),
        CluCommand::Serve(arguments) => serve::run(arguments, outlet),
        CluCommand::Keys(arguments) => keys::run(arguments, outlet),
        CluCommand::Interfaces(arguments) => interfaces::run(arguments, outlet),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args as _;

    #[test]
    fn every_command_has_examples_json_keys_and_the_exit_codes_of_all_commands() {
        let mut command = with_helps(Arguments::augment_args(clap::Command::new("clu")));
        command.clone().debug_assert();

        let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
        assert_eq!(names.len(), 13);
        for name in names {
            let help = command.find_subcommand_mut(&name).unwrap().render_long_help().to_string();
            for part in ["Examples:", "JSON keys", "Exit codes:"] {
                assert!(help.contains(part), "{name}: {part}");
            }
        }
        for line in crate::exit::EXIT_CODES.lines().skip(1) {
            assert!(EXIT_CODES.contains(&line[..5]), "{line}");
        }
    }
}
