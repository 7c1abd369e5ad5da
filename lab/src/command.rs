//! The words after `fodo lab`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Parser, Subcommand, ValueEnum};

use crate::driver::Client;
use crate::limit::{ELEMENTS_MAX, REPETITIONS_DEFAULT, REPETITIONS_MAX, REPETITIONS_MIN};
use crate::load::command::{LoadVerb, load};
use crate::peers::{self, PEERS_VARIABLE, Peers};
use crate::runner::{self, Settings};
use crate::scenario::Scenario;
use crate::server::ServerKind;
use crate::worker::Worker;
use crate::{report, statistics};

const ABOUT: &str = "\
The performance laboratory: what Fodo and its peers take for the same work, side by side.

Everything runs on loopback with free ports of its own; no control network is touched. Clients and servers
are processes pinned to CPUs, and both placements are shown, because they differ more than programs do:
\"one core\" has client and server on one CPU, \"two cores\" one on each. Next to each number stands the
floor, a raw socket that moves as many bytes. A number is only printed when every value was checked.";

const AFTER_HELP: &str = "\
Examples:
  fodo lab run quick                     the tables, within a minute
  fodo lab run quick --json today.json   and every repetition, for programs
  fodo lab list                          what is measured, and what there is to compare with

The first run fetches the peers (EPICS Base out of the Python wheel epicscorelibs), once. Set
FODO_PEERS to a Python environment of your own that has them.

Exit status: 0 when every number was taken, 1 when one FAILED, 2 when the command was wrong.";

#[derive(Debug, Parser)]
#[command(name = "fodo lab", bin_name = "fodo lab", about = ABOUT, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure.
    Run(RunArguments),
    /// Loads: what arrives of many updates, how late, and what became of the rest.
    #[command(subcommand)]
    Load(LoadVerb),
    /// What is measured, and what there is to compare with.
    List,
    /// What is done with results.
    #[command(flatten)]
    Results(report::verb::Verb),
    /// What the laboratory starts itself as.
    #[command(hide = true, subcommand)]
    Worker(Worker),
}

#[derive(Debug, clap::Args)]
struct RunArguments {
    /// What to measure.
    suite: Suite,
    /// Also write the run to this file, with every repetition; "-" for standard output in place of the tables.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How often each number is taken, at least five.
    #[arg(long, value_name = "N", default_value_t = REPETITIONS_DEFAULT, value_parser = repetitions)]
    repetitions: usize,
    /// Measure only this client; may be repeated.
    #[arg(long, value_name = "NAME")]
    client: Vec<Client>,
    /// Measure only this server; may be repeated.
    #[arg(long, value_name = "NAME")]
    server: Vec<ServerKind>,
    /// Leave out arrays of more elements.
    #[arg(long, value_name = "N", default_value_t = ELEMENTS_MAX)]
    elements_max: usize,
    /// What decides the random order; a new one each time when it is not given.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Fail when a peer is missing; without it, its rows say so.
    #[arg(long)]
    require_peers: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Suite {
    /// Q17, blocking gets of a scalar, and Q21, large arrays: two cores, one minute.
    Quick,
}

fn repetitions(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (REPETITIONS_MIN..=REPETITIONS_MAX).contains(&n) => Ok(n),
        _ => Err(format!("expected {REPETITIONS_MIN} to {REPETITIONS_MAX}: fewer have no spread worth printing")),
    }
}

/// Does what the words after `fodo lab` say, and returns the program's exit status.
///
/// `args`: the words after `fodo lab`, without the program's name. The program must come back here when it
/// is started as `fodo lab worker ...`: that is how the laboratory starts drivers, and it starts
/// `fodo ioc ...` as the server under test.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let words = std::iter::once(OsString::from("fodo lab")).chain(args);
    match Arguments::try_parse_from(words) {
        Ok(Arguments { verb: Verb::Run(arguments) }) => measure(arguments),
        Ok(Arguments { verb: Verb::Load(verb) }) => load(&verb),
        Ok(Arguments { verb: Verb::List }) => list(),
        Ok(Arguments { verb: Verb::Results(verb) }) => verb.run(),
        Ok(Arguments { verb: Verb::Worker(worker) }) => worker.run(),
        Err(help_or_misuse) => {
            // Whoever closed the stream does not want to read it.
            let _ = help_or_misuse.print();
            ExitCode::from(help_or_misuse.exit_code() as u8)
        }
    }
}

fn measure(arguments: RunArguments) -> ExitCode {
    let Suite::Quick = arguments.suite;
    let settings = Settings {
        repetitions: arguments.repetitions,
        seed: arguments.seed.unwrap_or_else(new_seed),
        elements_max: arguments.elements_max,
        clients: or_all(arguments.client, &[Client::Fodo, Client::Libca]),
        servers: or_all(arguments.server, &[ServerKind::Fodo, ServerKind::SoftIoc]),
    };
    let needs_epics =
        settings.clients.iter().any(|client| client.needs_python()) || settings.servers.contains(&ServerKind::SoftIoc);
    let peers = if needs_epics { peers::environment() } else { peers::present() };
    let run = match runner::run(settings, &peers) {
        Ok(run) => run,
        Err(why) => return complain(&format!("the run could not be made: {why}")),
    };
    let json_only = arguments.json.as_deref() == Some(Path::new("-"));
    if !json_only {
        print(&report::tables(&run));
    }
    if let Some(path) = &arguments.json {
        let text = format!("{:#}\n", report::json(&run, &peers));
        if json_only {
            print(&text);
        } else if let Err(why) = std::fs::write(path, text) {
            return complain(&format!("{} cannot be written: {why}", path.display()));
        }
    }
    if run.has_failed() || (arguments.require_peers && run.is_incomplete()) {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn list() -> ExitCode {
    let mut text = String::from("What `fodo lab run quick` measures:\n");
    for scenario in Scenario::ALL {
        text += &format!("\n{}  {}\n", scenario.name(), scenario.teaches().replace('\n', "\n     "));
    }
    text += &peers_text(&peers::present());
    print(&text);
    ExitCode::SUCCESS
}

fn peers_text(peers: &Peers) -> String {
    let place = peers.directory.display();
    match &peers.epics {
        Ok(epics) => format!(
            "\nTo compare with: libca and softIoc of EPICS Base {} in {place}\n  (another place: {PEERS_VARIABLE})\n",
            epics.version
        ),
        Err(why) => format!(
            "\nTo compare with: nothing yet; the first run fetches EPICS Base into {place}\n  (another place: \
             {PEERS_VARIABLE}). {why}\n"
        ),
    }
}

fn print(text: &str) {
    // Whoever closed standard output does not want to read it; the exit status still tells.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn complain(text: &str) -> ExitCode {
    eprintln!("fodo lab: {text}");
    ExitCode::FAILURE
}

fn or_all<T: Clone>(chosen: Vec<T>, all: &[T]) -> Vec<T> {
    if chosen.is_empty() { all.to_vec() } else { chosen }
}

fn new_seed() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Few enough digits to be typed again.
    statistics::Random::new(since_1970.as_nanos() as u64).bits() % 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_description_of_the_command_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn fewer_than_five_repetitions_are_refused_with_the_reason() {
        let refused = repetitions("4").unwrap_err();

        assert!(refused.contains("spread"), "{refused}");
        assert_eq!(repetitions("5"), Ok(5));
    }

    #[test]
    fn workers_are_hidden_from_the_help() {
        let help = Arguments::command().render_long_help().to_string();

        assert!(help.contains("run") && !help.contains("worker"), "{help}");
    }
}
