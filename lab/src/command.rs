//! The commands of `fodo lab`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::agent::{self, AgentVerb};
use crate::clu::{self, CluRun};
use crate::diamond::{self, DiamondRun};
use crate::driver::ClientUnderTest;
use crate::limit::{ELEMENTS_MAX, REPETITIONS_DEFAULT, REPETITIONS_MAX, REPETITIONS_MIN};
use crate::load::command::{LoadVerb, load};
use crate::load::suite::Load;
use crate::nsls2::{self, Nsls2Run};
use crate::peers::{self, PEERS_VARIABLE, Peers};
use crate::plant::{self, command::PlantArguments};
use crate::protocol::LabProtocol;
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
  fodo lab run quick                          every question, Fodo beside five peers on one page: two minutes or less
  fodo lab run quick --all                    every table instead of one page
  fodo lab run quick --json today.json        also every repetition, for programs
  fodo lab run quick --question Q16 --client fodo    one question, one client
  fodo lab run full --json full.json          the points of the studies, within 75 minutes
  fodo lab run full --json full.json --resume continues an interrupted run
  fodo lab run ioc                            cost of records and idle clients in fodo ioc and softIoc
  fodo lab run pva                            questions and loads over pvAccess, with pvxs, spvirit, p4p, repics, core-pva
  fodo lab run java                           studies 000 and 001: Fodo in Java beside PSI's ca, within 25 minutes
  fodo lab run diamond --short                eight rows of study 002, with clients and servers in Python
  fodo lab run nsls2                          study 003: processGet and events over both protocols
  fodo lab run clu --short                    study 004: requests of a Grenton CLU, beside raw UDP, in a minute
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
    Run(Box<RunArguments>),
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
    /// Print every table, with what was published and why numbers are missing, instead of one page.
    #[arg(long)]
    all: bool,
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
    /// With the suite diamond: only eight of its rows, each measured for two seconds, in less than five minutes. With the suite
    /// clu: three repetitions of six seconds, in less than a minute.
    #[arg(long)]
    short: bool,
    /// With the suite clu: measure OpenGr8ton's virtual CLU too, whose jars are in this folder; it needs Java 25.
    #[arg(long, value_name = "DIR")]
    opengr8ton: Option<PathBuf>,
    /// Seed of the random order; default: a new seed for each run.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Measure only this question, such as Q16, or this table of a study, such as N2; may be repeated.
    #[arg(long, value_name = "NAME")]
    question: Vec<String>,
    /// Continue an interrupted run that had the same arguments and --json FILE: its progress is in FILE.journal, with the suite
    /// diamond in FILE itself.
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
    /// Every question at one or two points on two cores, by Fodo, libca, PSI's ca, aioca, repics and p4p: two minutes or less.
    Quick,
    /// Every question at the points of the studies and all loads, by every client from every server: at most 75 minutes.
    Full,
    /// Cost of records and idle clients in `fodo ioc` and softIoc: two minutes.
    Ioc,
    /// Questions and loads over pvAccess, by its clients from its servers: at most 75 minutes.
    Pva,
    /// Questions of studies 000 and 001 and loads, by Fodo, Fodo in Java in each way of delivery, and PSI's ca: at most 25
    /// minutes.
    Java,
    /// The 80 rows of study 002, clients and servers in Python beside Fodo: about three hours, with --short five minutes.
    Diamond,
    /// The three tables of study 003, processGet of arrays (N1) and counters (N2) and events with every update counted (N3), at
    /// three places and with the study's delays; gets one by one of a group (N4) and of an array (N5), plain and by TLS: at most
    /// twelve minutes.
    Nsls2,
    /// Study 004, requests of a Grenton CLU by 64 threads, beside raw UDP, and five questions that it lacks: 22 minutes, with
    /// --short less than one.
    Clu,
}

impl SuiteName {
    /// `None` for studies 002 to 004, whose rows are not questions of scenarios.
    fn suite(self) -> Option<Suite> {
        match self {
            SuiteName::Quick => Some(Suite::Quick),
            SuiteName::Full => Some(Suite::Full),
            SuiteName::Ioc => Some(Suite::Ioc),
            SuiteName::Pva => Some(Suite::Pva),
            SuiteName::Java => Some(Suite::Java),
            SuiteName::Diamond | SuiteName::Nsls2 | SuiteName::Clu => None,
        }
    }
}

/// The clients and servers of a suite, unless others are selected.
fn defaults(suite: Suite) -> (Vec<ClientUnderTest>, &'static [ServerKind]) {
    match suite {
        Suite::Pva => {
            (ClientUnderTest::of(LabProtocol::Pva), &[ServerKind::Fodo, ServerKind::Qsrv2, ServerKind::Qsrv1])
        }
        Suite::Java => (
            vec![ClientUnderTest::Fodo, ClientUnderTest::FodoJava, ClientUnderTest::PsiCa],
            &[ServerKind::Fodo, ServerKind::SoftIoc],
        ),
        // As many as fit into two minutes.
        Suite::Quick => (
            vec![
                ClientUnderTest::Fodo,
                ClientUnderTest::Libca,
                ClientUnderTest::PsiCa,
                ClientUnderTest::Aioca,
                ClientUnderTest::Repics,
                ClientUnderTest::P4p,
            ],
            &[ServerKind::Fodo, ServerKind::SoftIoc],
        ),
        Suite::Full | Suite::Ioc => (ClientUnderTest::of(LabProtocol::Ca), &[ServerKind::Fodo, ServerKind::SoftIoc]),
    }
}

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
        Ok(Arguments { verb: LabCommand::Run(arguments) }) => measure(*arguments),
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
    if arguments.opengr8ton.is_some() && chosen != SuiteName::Clu {
        return misuse("--opengr8ton is for the suite clu");
    }
    let Some(suite) = chosen.suite() else {
        return match chosen {
            SuiteName::Nsls2 => measure_nsls2(&arguments),
            SuiteName::Clu => measure_clu(&arguments),
            _ => measure_diamond(&arguments),
        };
    };
    if arguments.short || arguments.plant.seconds.is_some() {
        return misuse("--short is for the suites diamond and clu, --seconds for these and nsls2");
    }
    let json_only = arguments.json.as_deref() == Some(Path::new("-"));
    let journal = arguments.json.as_ref().filter(|_| !json_only).map(|path| {
        let mut name = path.clone().into_os_string();
        name.push(".journal");
        PathBuf::from(name)
    });
    let (clients, servers) = defaults(suite);
    let settings = RunSettings {
        suite,
        repetitions: arguments.repetitions,
        seed: match arguments.seed {
            Some(seed) => seed,
            None if arguments.resume => journal.as_deref().and_then(seed_of).unwrap_or_default(),
            None => new_seed(),
        },
        elements_max: arguments.elements_max,
        clients: or_all(arguments.client.clone(), &clients),
        servers: or_all(arguments.server.clone(), servers),
        questions: arguments.question.clone(),
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
    if let Err(failed) = show(&result, &arguments) {
        return failed;
    }
    if let Some(journal) = journal {
        // A journal that cannot be removed does no harm: its run is complete.
        let _ = std::fs::remove_file(journal);
    }
    status(&result, arguments.require_peers)
}

/// Prints and writes a result as the arguments say.
fn show(result: &ResultFile, arguments: &RunArguments) -> Result<(), ExitCode> {
    let json_only = arguments.json.as_deref() == Some(Path::new("-"));
    if !json_only {
        let is_whole = arguments.all || result.rows.iter().any(ResultRow::is_of_study);
        print(&if is_whole { tables::tables(result) } else { tables::one_page(result) });
        let directory = arguments.report.clone().unwrap_or_else(|| std::env::temp_dir().join("fodo-lab-report"));
        match report::verb::pages(result, &result.suite, &directory) {
            Ok(pages) => print(&format!("\nReport, for a browser:\n{pages}")),
            Err(why) => return Err(report_error(&format!("the report cannot be written: {why}"))),
        }
    }
    let written = match &arguments.json {
        None => Ok(()),
        Some(_) if json_only => result.text().map(|text| print(&text)).map_err(std::io::Error::from),
        Some(path) => result.write(path),
    };
    written.map_err(|why| report_error(&format!("the result cannot be written: {why}")))
}

fn measure_diamond(arguments: &RunArguments) -> ExitCode {
    let json = arguments.json.clone().filter(|path| path != Path::new("-"));
    let before = match &json {
        Some(path) if arguments.resume => match ResultFile::read(path) {
            Ok(before) => Some(before),
            Err(why) => return report_error(&format!("there is no run to resume: {why}")),
        },
        _ => None,
    };
    let tables = (1..=7).map(diamond::question_of).collect::<Vec<_>>();
    if let Some(unknown) = arguments.question.iter().find(|name| !tables.contains(name)) {
        return misuse(&format!("the suite diamond has no question {unknown}; its tables are D1 to D7"));
    }
    let default_s = if arguments.short { diamond::SECONDS_SHORT } else { diamond::SECONDS };
    let run = DiamondRun {
        is_short: arguments.short,
        duration: Duration::from_secs_f64(arguments.plant.seconds.unwrap_or(default_s)),
        clients: arguments.client.clone(),
        servers: arguments.server.clone(),
        tables: arguments.question.clone(),
        json,
        before,
    };
    let result = match run.run(&peers::environment()) {
        Ok(result) => result,
        Err(why) => return report_error(&format!("the run failed: {why}")),
    };
    shown_study(&result, arguments)
}

/// Shows the result of a study's suite; returns the exit status.
fn shown_study(result: &ResultFile, arguments: &RunArguments) -> ExitCode {
    if let Err(failed) = show(result, arguments) {
        return failed;
    }
    // The rows of other implementations fail where the study shows what they cannot do.
    let is_ours = |row: &&ResultRow| match row.clu {
        Some(_) => row.server != "opengr8ton",
        None => row.client.starts_with("fodo") && row.server.starts_with("fodo"),
    };
    let has_failed = result.rows.iter().filter(is_ours).any(|row| row.verdict == RowVerdict::Failed);
    let is_incomplete = result.peers.iter().any(|peer| peer.missing.is_some());
    if has_failed || (arguments.require_peers && is_incomplete) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn measure_nsls2(arguments: &RunArguments) -> ExitCode {
    if arguments.resume || arguments.short {
        return misuse("the suite nsls2 has neither --resume nor --short; --question selects N1 to N5");
    }
    if let Some(unknown) = arguments.question.iter().find(|name| !nsls2::QUESTIONS.contains(&name.as_str())) {
        return misuse(&format!("the suite nsls2 has no question {unknown}; its tables are N1 to N5"));
    }
    let run = Nsls2Run {
        duration: Duration::from_secs_f64(arguments.plant.seconds.unwrap_or(nsls2::SECONDS)),
        clients: arguments.client.clone(),
        servers: arguments.server.clone(),
        questions: arguments.question.clone(),
        elements_max: arguments.elements_max as u64,
        json: arguments.json.clone().filter(|path| path != Path::new("-")),
    };
    match run.run(&peers::environment()) {
        Ok(result) => shown_study(&result, arguments),
        Err(why) => report_error(&format!("the run failed: {why}")),
    }
}

fn measure_clu(arguments: &RunArguments) -> ExitCode {
    if arguments.resume || !arguments.client.is_empty() || !arguments.server.is_empty() {
        return misuse("the suite clu has neither --resume nor --client nor --server; --question selects C1 to C6");
    }
    if let Some(unknown) = arguments.question.iter().find(|name| clu::plan_of(name).is_none()) {
        return misuse(&format!("the suite clu has no question {unknown}; its questions are C1 to C6"));
    }
    let default_s = if arguments.short { clu::SECONDS_SHORT } else { clu::SECONDS };
    let run = CluRun {
        is_short: arguments.short,
        duration: Duration::from_secs_f64(arguments.plant.seconds.unwrap_or(default_s)),
        questions: arguments.question.clone(),
        opengr8ton: arguments.opengr8ton.clone(),
        json: arguments.json.clone().filter(|path| path != Path::new("-")),
    };
    match run.run() {
        Ok(result) => shown_study(&result, arguments),
        Err(why) => report_error(&format!("the run failed: {why}")),
    }
}

fn misuse(text: &str) -> ExitCode {
    eprintln!("fodo lab: {text}");
    ExitCode::from(2)
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
    let of_peer = |client: &&ClientUnderTest| client.external().is_some() && !client.is_fodo();
    let of_peers: Vec<&str> =
        ClientUnderTest::value_variants().iter().filter(of_peer).map(|client| client.text()).collect();
    let is_ours = |row: &&ResultRow| !of_peers.contains(&row.client.as_str());
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
        let over = |suite: Suite| suite.protocols().iter().map(move |protocol| (suite, *protocol));
        for (suite, protocol) in Suite::ALL.into_iter().flat_map(over) {
            let Some(points) = scenario.points(suite, protocol) else { continue };
            let of: Vec<String> = scenario
                .variants
                .iter()
                .map(|variant| format!("{} {:?}", variant.text(), points.of(*variant)))
                .collect();
            let (suite, protocol) = (suite.text(), protocol.suffix());
            text += &format!("     {suite}{protocol}, {}: {}\n", scenario.points_are, of.join("; "));
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
    text += "\nQuestions of study 004 (`fodo lab run clu`):\n";
    for plan in clu::QUESTIONS {
        text += &format!("\n{}  {}\n     {}\n", plan.question, plan.title, plan.method);
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
