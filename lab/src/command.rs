//! The commands of `fodo lab`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::agent::{self, AgentVerb};
use crate::driver::ClientUnderTest;
use crate::limit::{ELEMENTS_MAX, REPETITIONS_DEFAULT, REPETITIONS_MAX, REPETITIONS_MIN};
use crate::load::command::{LoadVerb, load};
use crate::load::suite::Load;
use crate::peers::{self, PEERS_VARIABLE, Peers};
use crate::plant::{self, command::PlantArguments};
use crate::result::{ResultFile, ResultRow, RowVerdict};
use crate::runner::JournalOptions;
use crate::runner::{self, RunSettings};
use crate::scenario::{Scenario, Suite};
use crate::server::ServerKind;
use crate::worker::WorkerCommand;
use crate::{report, tables};

const ABOUT: &str = "\
The performance laboratory: compares Fodo and its peers doing the same work.

Everything runs on loopback with free ports; no control network is accessed without --against and
--allow-net. Clients and servers
are processes pinned to CPUs, and both placements are shown, because they differ more than the programs:
\"one core\" has client and server on one CPU, \"two cores\" one on each. Each result has a floor
next to it: a raw socket that moves as many bytes. A result is printed only if every value is correct.";

const AFTER_HELP: &str = "\
Examples:
  fodo lab run quick                          every question of the studies, all clients: two minutes or less
  fodo lab run quick --json today.json        also every repetition, for programs
  fodo lab run quick --question Q16 --client fodo    one question, one client
  fodo lab run full --json full.json          the points of the studies, within 70 minutes
  fodo lab run full --json full.json --resume continues an interrupted run
  fodo lab run ioc                            cost of records and idle clients in fodo ioc and softIoc
  fodo lab run --against PV PV --seconds 10   existing PVs of a plant, read-only
  fodo lab list                               questions, loads and available peers

The first run downloads the peers (EPICS Base from the Python wheel epicscorelibs, and clients in Python)
once. To use your own Python environment with these packages, set FODO_PEERS to its directory.

Rows without a result state the reason: \"not run\" means that a peer is missing or does not support it, \"capped\" that
it exceeded its time limit, \"FAILED\" that a check failed.

Exit status: 0 when all is measured, 1 when Fodo, libca or a raw socket FAILED (with
--require-peers: any client), 2 when the arguments are invalid or not permitted
without --allow-net, 130 when a run against a plant is interrupted.";

#[derive(Debug, Parser)]
#[command(name = "fodo lab", bin_name = "fodo lab", about = ABOUT, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    verb: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Measure clients and servers.
    Run(RunArguments),
    /// Run loads: throughput, latency and an account of every update.
    #[command(subcommand)]
    Load(LoadVerb),
    /// Serve a laboratory on another host: measure plants for it from this host.
    Agent(AgentVerb),
    /// List questions, loads and available peers.
    List,
    /// Commands that read results.
    #[command(flatten)]
    Results(report::verb::ReportCommand),
    /// The laboratory's own worker processes.
    #[command(hide = true, subcommand)]
    Worker(WorkerCommand),
}

#[derive(Debug, clap::Args)]
struct RunArguments {
    /// The suite to measure.
    #[arg(required_unless_present = "against")]
    suite: Option<SuiteName>,
    /// Also write the run to this file, with every repetition; "-" writes to standard output instead of the tables.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report, a page of HTML with Markdown and CSV, to this directory instead of a temporary one.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Number of repetitions, at least five.
    #[arg(long, value_name = "N", default_value_t = REPETITIONS_DEFAULT, value_parser = repetitions)]
    repetitions: usize,
    /// Measure only this client; may be repeated.
    #[arg(long, value_name = "NAME")]
    client: Vec<ClientUnderTest>,
    /// Measure only this server; may be repeated.
    #[arg(long, value_name = "NAME")]
    server: Vec<ServerKind>,
    /// Omit arrays with more elements.
    #[arg(long, value_name = "N", default_value_t = ELEMENTS_MAX)]
    elements_max: usize,
    /// Seed of the random order; default: a new seed for each run.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Measure only this question, such as Q16; may be repeated.
    #[arg(long, value_name = "NAME")]
    question: Vec<String>,
    /// Continue an interrupted run that had the same arguments and --json FILE: its progress is in FILE.journal.
    #[arg(long, requires = "json")]
    resume: bool,
    /// Fail when a peer is missing; by default its rows report it.
    #[arg(long)]
    require_peers: bool,
    /// Slow down every get of our client, to test whether `compare` detects it.
    #[arg(long, hide = true, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..1000))]
    slower_per_cent: u32,
    #[command(flatten)]
    plant: PlantArguments,
}

/// The suites by the names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SuiteName {
    /// Every question at one or two points, by every client: two minutes or less.
    Quick,
    /// Every question at the points of the studies and all loads, by every client from every server: at most 70 minutes.
    Full,
    /// Cost of records and idle clients in `fodo ioc` and softIoc: two minutes.
    Ioc,
}

impl SuiteName {
    fn suite(self) -> Suite {
        match self {
            SuiteName::Quick => Suite::Quick,
            SuiteName::Full => Suite::Full,
            SuiteName::Ioc => Suite::Ioc,
        }
    }
}

/// Default servers.
const SERVERS: [ServerKind; 2] = [ServerKind::Fodo, ServerKind::SoftIoc];

fn repetitions(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (REPETITIONS_MIN..=REPETITIONS_MAX).contains(&n) => Ok(n),
        _ => Err(format!("must be between {REPETITIONS_MIN} and {REPETITIONS_MAX}: fewer have no meaningful spread")),
    }
}

/// Runs `fodo lab` with these arguments, and returns the program's exit status.
///
/// `args`: the arguments after `fodo lab`, without the program's name. The program must call this function when it is
/// started as `fodo lab worker ...`: the laboratory starts its drivers that way. It starts `fodo ioc ...` as the server
/// under test.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let words = std::iter::once(OsString::from("fodo lab")).chain(args);
    match Arguments::try_parse_from(words) {
        Ok(Arguments { verb: LabCommand::Run(arguments) }) => measure(arguments),
        Ok(Arguments { verb: LabCommand::Load(verb) }) => load(&verb),
        Ok(Arguments { verb: LabCommand::Agent(verb) }) => agent::serve(&verb),
        Ok(Arguments { verb: LabCommand::List }) => list(),
        Ok(Arguments { verb: LabCommand::Results(verb) }) => verb.run(),
        Ok(Arguments { verb: LabCommand::Worker(worker) }) => worker.run(),
        Err(help_or_misuse) => {
            // A closed stream is no error.
            let _ = help_or_misuse.print();
            ExitCode::from(help_or_misuse.exit_code() as u8)
        }
    }
}

fn measure(arguments: RunArguments) -> ExitCode {
    let Some(chosen) = arguments.suite else { return measure_plant(&arguments) };
    let json_only = arguments.json.as_deref() == Some(Path::new("-"));
    let journal = arguments.json.as_ref().filter(|_| !json_only).map(|path| {
        let mut name = path.clone().into_os_string();
        name.push(".journal");
        PathBuf::from(name)
    });
    let settings = RunSettings {
        suite: chosen.suite(),
        repetitions: arguments.repetitions,
        seed: match arguments.seed {
            Some(seed) => seed,
            None if arguments.resume => journal.as_deref().and_then(seed_of).unwrap_or_default(),
            None => new_seed(),
        },
        elements_max: arguments.elements_max,
        clients: or_all(arguments.client, &ClientUnderTest::ALL),
        servers: or_all(arguments.server, &SERVERS),
        questions: arguments.question,
        slower_per_cent: arguments.slower_per_cent,
    };
    if let Some(unknown) = unknown_question(&settings.questions) {
        eprintln!("fodo lab: unknown question {unknown}; `fodo lab list` lists all questions");
        return ExitCode::from(2);
    }
    let needs_python = settings.clients.iter().any(|client| client.needs_python())
        || settings.servers.iter().any(|server| server.is_peer());
    let peers = if needs_python { peers::environment() } else { peers::present() };
    let keeping = journal.clone().map(|path| JournalOptions { path, is_resumed: arguments.resume });
    let result = match runner::run(&settings, &peers, keeping.as_ref()) {
        Ok(result) => result,
        Err(why) => return report_error(&format!("the run failed: {why}")),
    };
    if !json_only {
        print(&tables::tables(&result));
        let directory = arguments.report.clone().unwrap_or_else(|| std::env::temp_dir().join("fodo-lab-report"));
        match report::verb::pages(&result, settings.suite.text(), &directory) {
            Ok(pages) => print(&format!("\nReport, for a browser:\n{pages}")),
            Err(why) => return report_error(&format!("the report cannot be written: {why}")),
        }
    }
    if let Some(path) = &arguments.json {
        let written = if json_only {
            result.text().map(|text| print(&text)).map_err(std::io::Error::from)
        } else {
            result.write(path)
        };
        if let Err(why) = written {
            return report_error(&format!("{} cannot be written: {why}", path.display()));
        }
    }
    if let Some(journal) = journal {
        // A journal that cannot be removed does no harm: its run is complete.
        let _ = std::fs::remove_file(journal);
    }
    status(&result, arguments.require_peers)
}

fn measure_plant(arguments: &RunArguments) -> ExitCode {
    plant::command::measure(&arguments.plant, arguments.repetitions, |result, table| {
        let json_only = arguments.json.as_deref() == Some(Path::new("-"));
        if !json_only {
            print(table);
        }
        let written = match &arguments.json {
            None => Ok(()),
            Some(_) if json_only => result.text().map(|text| print(&text)).map_err(std::io::Error::from),
            Some(path) => result.write(path),
        };
        match written {
            Ok(()) => status(result, false),
            Err(why) => report_error(&format!("the result cannot be written: {why}")),
        }
    })
}

fn status(result: &ResultFile, requires_peers: bool) -> ExitCode {
    // A failure of a client of another language is reported in its row only; the run itself succeeded.
    let externals = ClientUnderTest::ALL.map(|client| (client.text(), client.external().is_some()));
    let is_ours = |row: &&ResultRow| !externals.contains(&(row.client.as_str(), true));
    let has_failed = result.rows.iter().filter(is_ours).any(|row| row.verdict == RowVerdict::Failed);
    let is_incomplete = result.peers.iter().any(|peer| peer.missing.is_some())
        || result.rows.iter().any(|row| row.verdict == RowVerdict::Failed);
    if has_failed || (requires_peers && is_incomplete) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn unknown_question(questions: &[String]) -> Option<&String> {
    let mut known: Vec<String> =
        Scenario::all().unwrap_or_default().into_iter().map(|scenario| scenario.question).collect();
    known.extend(Load::all().unwrap_or_default().into_iter().map(|load| load.question));
    questions.iter().find(|question| !known.contains(question))
}

/// The seed in a journal's header.
fn seed_of(journal: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(journal).ok()?;
    let header: serde_json::Value = serde_json::from_str(text.lines().next()?).ok()?;
    header.get("seed")?.as_u64()
}

fn list() -> ExitCode {
    let scenarios = match Scenario::all() {
        Ok(scenarios) => scenarios,
        Err(why) => return report_error(&format!("invalid scenario: {why}")),
    };
    let mut text = String::from("What `fodo lab run quick` and, at more points, `fodo lab run full` measure:\n");
    for scenario in scenarios {
        let also: Vec<&str> =
            [&scenario.at_least, &scenario.distinct].into_iter().filter_map(|question| question.as_deref()).collect();
        let also = if also.is_empty() { String::new() } else { format!(" (also answers {})", also.join(", ")) };
        text += &format!("\n{}  {}{also}\n", scenario.question, scenario.title);
        text += &format!("     {}\n", scenario.method.trim_end().replace('\n', "\n     "));
        text += &format!("     Before: {}\n     Proof: {}\n", scenario.preconditions, scenario.verification);
        for suite in Suite::ALL {
            let Some(points) = scenario.points(suite) else { continue };
            let of: Vec<String> = scenario
                .variants
                .iter()
                .map(|variant| format!("{} {:?}", variant.text(), points.of(*variant)))
                .collect();
            text += &format!("     {}, {}: {}\n", suite.text(), scenario.points_are, of.join("; "));
        }
    }
    let loads = match Load::all() {
        Ok(loads) => loads,
        Err(why) => return report_error(&format!("invalid load: {why}")),
    };
    text += "\nLoads of the same runs (`fodo lab load` runs them in any size):\n";
    for load in loads {
        let suites: Vec<&str> =
            Suite::ALL.into_iter().filter(|suite| load.belongs_to(*suite)).map(Suite::text).collect();
        text += &format!("\n{}  {} ({})\n", load.question, load.title, suites.join(", "));
        text += &format!("     {}\n     Proof: {}\n", load.method, load.verification);
    }
    text += &peers_text(&peers::present());
    print(&text);
    ExitCode::SUCCESS
}

fn peers_text(peers: &Peers) -> String {
    let place = peers.directory.display();
    match &peers.epics {
        Ok(epics) => format!(
            "\nPeers: libca and softIoc of EPICS Base {} in {place}\n  (set {PEERS_VARIABLE} for another directory)\n",
            epics.version
        ),
        Err(why) => format!(
            "\nPeers: none yet; the first run downloads EPICS Base into {place}\n  (for another directory set \
             {PEERS_VARIABLE}). {why}\n"
        ),
    }
}

fn print(text: &str) {
    // A closed standard output is no error; the exit status is still valid.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn report_error(text: &str) -> ExitCode {
    eprintln!("fodo lab: {text}");
    ExitCode::FAILURE
}

fn or_all<T: Clone>(chosen: Vec<T>, all: &[T]) -> Vec<T> {
    if chosen.is_empty() { all.to_vec() } else { chosen }
}

fn new_seed() -> u64 {
    // Short enough to be typed again.
    fastrand::u64(..1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_lab_command_line_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn fewer_than_five_repetitions_are_rejected_with_a_reason() {
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
