//! `fodo lab load`: a fan-out, or a ladder of them, with its ledger.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::driver::{Client, Failure};
use crate::load::double::Double;
#[cfg(unix)]
use crate::load::stalled::Stalled;
use crate::load::{FanOut, Outcome, Producer, idle, reconnect};
use crate::placement::{Placement, Seats};
use crate::result::ResultFile;
use crate::server::ServerKind;

/// The words after `fodo lab load`.
#[derive(Debug, clap::Subcommand)]
pub enum LoadVerb {
    /// Many PVs, many subscriptions, a given rate: what arrives, how late, what became of the rest.
    #[command(after_help = HELP)]
    FanOut(LoadArguments),
    /// A fan-out at twice the rate again and again, until no more arrives than before.
    #[command(after_help = HELP)]
    Ladder(LoadArguments),
    /// A fan-out without and with a client beside it that has stopped reading.
    #[cfg(unix)]
    Stalled(LoadArguments),
    /// A server that is killed and started again: how soon is every subscription back?
    Reconnect {
        /// PVs, each with one subscription.
        #[arg(long, value_name = "N", default_value_t = 1000)]
        pvs: u32,
        /// How long the server is gone.
        #[arg(long, value_name = "TIME", default_value_t = 0.5)]
        down_seconds: f64,
        /// How often.
        #[arg(long, value_name = "N", default_value_t = 5)]
        repetitions: u32,
    },
    /// What channels and subscriptions take that do nothing.
    Idle {
        /// How many of each.
        #[arg(long, value_name = "N", default_value_t = 50_000)]
        channels: u32,
        /// To how many PVs, in turn.
        #[arg(long, value_name = "N", default_value_t = 1000)]
        pvs: u32,
    },
}

/// How large a load is.
#[derive(Debug, clap::Args)]
pub struct LoadArguments {
    /// How many PVs change.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pvs: u32,
    /// Subscriptions to each of them.
    #[arg(long, value_name = "N", default_value_t = 10)]
    subscriptions: u32,
    /// Changes of each PV in a second.
    #[arg(long, value_name = "RATE", default_value_t = 10.0)]
    hz: f64,
    /// How long they change.
    #[arg(long, value_name = "TIME", default_value_t = 5.0)]
    seconds: f64,
    /// Server and client on one core; on two without it.
    #[arg(long)]
    one_core: bool,
    /// Who watches.
    #[arg(long, value_name = "CLIENT", default_value = "fodo")]
    client: Client,
    /// Who serves.
    #[arg(long, value_name = "SERVER", default_value = "fodo")]
    server: ServerKind,
    /// How values come to change; left out: on schedule by our server, else by the records themselves at a rate
    /// that SCAN offers, else by puts.
    #[arg(long, value_name = "HOW")]
    producer: Option<Producer>,
    /// Also write the rows to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Let the client do one thing wrong, to see that it is found out.
    #[arg(long, hide = true)]
    double: Option<Double>,
}

const HELP: &str = "\
Values change on schedule, whether or not anybody keeps up, and latency counts from the moment at which a
value was to change. Every update is accounted for:

  produced = delivered + merged by the server + merged by the client + unattributed + unexplained

Merged updates were replaced by later ones of the same subscription before they were sent or delivered. Of a client
or server that is not ours nobody knows whether it lost or merged what did not come: that is unattributed.

Examples:
  fodo lab load fan-out                                    100 PVs x 10 subscriptions x 10 Hz
  fodo lab load fan-out --pvs 1000 --subscriptions 1000    10 million updates a second are offered
  fodo lab load ladder                                     where does it stop to grow?

Exit status: 0 when every update is accounted for and right, 1 when not, 2 when the command was wrong.";

/// Steps of a ladder at most: from 10 Hz on the last would be 5 kHz for every PV.
const STEPS_MAX: usize = 10;
/// A step that delivers less than this part of the best before has collapsed; one that adds less than a
/// twentieth has reached the plateau.
const COLLAPSED_BELOW: f64 = 0.8;
const PLATEAU_BELOW: f64 = 1.05;

/// Does it.
pub fn load(verb: &LoadVerb) -> ExitCode {
    let seats = Seats::find();
    let two_cores = seats.placements().last().copied().unwrap_or(Placement::Unpinned);
    match verb {
        LoadVerb::FanOut(arguments) => fan_out(arguments, false, &seats),
        LoadVerb::Ladder(arguments) => fan_out(arguments, true, &seats),
        #[cfg(unix)]
        LoadVerb::Stalled(arguments) => beside_stalled(arguments, &seats),
        LoadVerb::Reconnect { pvs, down_seconds, repetitions } => {
            let down = Duration::try_from_secs_f64(*down_seconds).unwrap_or_default();
            come_back((*pvs).max(1), down, (*repetitions).max(1), two_cores, &seats)
        }
        LoadVerb::Idle { channels, pvs } => do_nothing((*channels).max(1), (*pvs).max(1), two_cores, &seats),
    }
}

fn placement_of(arguments: &LoadArguments, seats: &Seats) -> Placement {
    match (arguments.one_core, seats.placements().last()) {
        (true, _) => Placement::OneCore,
        (false, last) => last.copied().unwrap_or(Placement::Unpinned),
    }
}

/// `None`, with a word on stderr, when the numbers cannot be.
fn checked(arguments: &LoadArguments) -> Option<FanOut> {
    let is_load = arguments.pvs > 0 && arguments.subscriptions > 0;
    if !is_load || !is_positive(arguments.hz) || !is_positive(arguments.seconds) {
        eprintln!("fodo lab load: PVs, subscriptions, rate and time must be above zero");
        return None;
    }
    Some(FanOut {
        n_pvs: arguments.pvs,
        n_subscriptions: arguments.subscriptions,
        rate_hz: arguments.hz,
        duration: Duration::from_secs_f64(arguments.seconds),
        double: arguments.double,
        client: arguments.client,
        server: arguments.server,
        producer: arguments.producer,
    })
}

fn fan_out(arguments: &LoadArguments, is_ladder: bool, seats: &Seats) -> ExitCode {
    let Some(first) = checked(arguments) else { return ExitCode::from(2) };
    let placement = placement_of(arguments, seats);
    let (steps, failure) = climb(first, is_ladder, placement, seats);
    println!("{}", table(&steps, placement));
    if is_ladder {
        println!("{}", verdict(&steps));
    }
    if let Some(why) = &failure {
        eprintln!("fodo lab load: {why}");
    }
    if let Some(Err(why)) = arguments.json.as_ref().map(|path| write(path, &steps, placement)) {
        eprintln!("fodo lab load: {why}");
        return ExitCode::FAILURE;
    }
    let is_right = failure.is_none() && steps.iter().all(|(_, outcome)| outcome.failure().is_none());
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(unix)]
fn beside_stalled(arguments: &LoadArguments, seats: &Seats) -> ExitCode {
    let Some(load) = checked(arguments) else { return ExitCode::from(2) };
    let placement = placement_of(arguments, seats);
    let stalled = match Stalled::run(&load, placement, seats) {
        Ok(stalled) => stalled,
        Err(why) => return told(&why),
    };
    let failure = stalled.failure();
    // The ledgers of both cannot be joined with a server that also counts for the stalled client.
    println!("{}", table(&[(load, stalled.alone.clone())], placement));
    let beside = &stalled.beside;
    let at = |per_cent: f64| beside.percentiles.iter().find(|(at, _)| *at == per_cent).map_or(0.0, |(_, ns)| ns / 1e3);
    println!(
        "beside a client that has stopped reading: {} of {} delivered, p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us",
        beside.ledger.delivered,
        beside.ledger.produced,
        at(50.0),
        at(99.0),
        at(99.9)
    );
    println!("p99 beside it is {:.2} times p99 alone", stalled.ratio_of_p99());
    match failure {
        None => ExitCode::SUCCESS,
        Some(why) => {
            eprintln!("fodo lab load: {why}");
            ExitCode::FAILURE
        }
    }
}

fn come_back(n_pvs: u32, down: Duration, n_repetitions: u32, placement: Placement, seats: &Seats) -> ExitCode {
    let mut rows = vec![["PVs", "down s", "first ms", "all ms"].map(str::to_owned).to_vec()];
    for _ in 0..n_repetitions {
        let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
        match reconnect::run(n_pvs, down, placement, seats) {
            Ok(back) => {
                let down_s = format!("{:.1}", down.as_secs_f64());
                rows.push(vec![n_pvs.to_string(), down_s, ms(back.first), ms(back.all)]);
            }
            Err(why) => return told(&why),
        }
    }
    println!("L3  first updates after a restart of the server, fodo to fodo, {}\n{}", placement.text(), aligned(&rows));
    println!("Counted from the moment at which the server takes requests again.");
    ExitCode::SUCCESS
}

fn do_nothing(n: u32, n_pvs: u32, placement: Placement, seats: &Seats) -> ExitCode {
    match idle::run(n, n_pvs, placement, seats) {
        Ok(found) => {
            let row = |name: &str, client: f64, server: f64| {
                vec![name.to_owned(), n.to_string(), format!("{client:.0}"), format!("{server:.0}")]
            };
            let rows = [
                ["", "n", "client bytes", "server bytes"].map(str::to_owned).to_vec(),
                row("channel", found.client_channel, found.server_channel),
                row("subscription", found.client_subscription, found.server_subscription),
            ];
            println!("L4  resident memory of each that does nothing, fodo to fodo\n{}", aligned(&rows));
            ExitCode::SUCCESS
        }
        Err(why) => told(&why),
    }
}

fn told(why: &Failure) -> ExitCode {
    eprintln!("fodo lab load: {why}");
    ExitCode::FAILURE
}

fn is_positive(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

/// A load and how it went.
pub(super) type Step = (FanOut, Outcome);

/// One step, or as many as the ladder has.
pub(super) fn climb(
    first: FanOut,
    is_ladder: bool,
    placement: Placement,
    seats: &Seats,
) -> (Vec<Step>, Option<Failure>) {
    let mut steps: Vec<Step> = Vec::new();
    let mut next = first;
    loop {
        match next.run(placement, seats) {
            Ok(outcome) => steps.push((next, outcome)),
            Err(why) => return (steps, Some(why)),
        }
        if !is_ladder || steps.len() >= STEPS_MAX || has_plateaued(&steps) {
            return (steps, None);
        }
        next.rate_hz *= 2.0;
    }
}

/// Whether the last step brought no more than the one before.
pub(super) fn has_plateaued(steps: &[Step]) -> bool {
    match steps {
        [.., (_, before), (_, last)] => last.delivered_hz < before.delivered_hz * PLATEAU_BELOW,
        _ => false,
    }
}

/// What the ladder shows: the most that was delivered, and whether more load made it less.
fn verdict(steps: &[Step]) -> String {
    let best = steps.iter().map(|(_, outcome)| outcome.delivered_hz).fold(0.0, f64::max);
    let last = steps.last().map_or(0.0, |(_, outcome)| outcome.delivered_hz);
    let word = match (last < best * COLLAPSED_BELOW, has_plateaued(steps)) {
        (true, _) => "then it collapses",
        (false, true) => "then it stays there",
        (false, false) => "and it had not ended",
    };
    format!("at most {best:.0} updates a second were delivered; {word}")
}

fn table(steps: &[Step], placement: Placement) -> String {
    let headings = [
        "PVs",
        "subscr.",
        "Hz",
        "offered/s",
        "delivered/s",
        "merged srv",
        "merged cli",
        "unexplained",
        "unattributed",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "gap ms",
        "srv s/M",
        "cli s/M",
    ];
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    for (fan_out, outcome) in steps {
        let ledger = &outcome.ledger;
        let per_million = |cpu_s: f64| cpu_s / ledger.delivered.max(1) as f64 * 1e6;
        let at = |per_cent: f64| -> String {
            let found = outcome.percentiles.iter().find(|(at, _)| *at == per_cent);
            found.map_or_else(String::new, |(_, ns)| format!("{:.0}", ns / 1e3))
        };
        let offered = f64::from(fan_out.n_pvs) * f64::from(fan_out.n_subscriptions) * fan_out.rate_hz;
        rows.push(vec![
            fan_out.n_pvs.to_string(),
            fan_out.n_subscriptions.to_string(),
            format!("{}", fan_out.rate_hz),
            format!("{offered:.0}"),
            format!("{:.0}", outcome.delivered_hz),
            ledger.merged_server.to_string(),
            ledger.merged_client.to_string(),
            ledger.unexplained.to_string(),
            ledger.unattributed.to_string(),
            at(50.0),
            at(99.0),
            at(99.9),
            format!("{:.0}", ledger.longest_gap_ms),
            format!("{:.2}", per_million(outcome.server.cpu_s)),
            format!("{:.2}", per_million(outcome.client.cpu_s)),
        ]);
    }
    let (server, client) = steps.first().map_or(("", ""), |(load, _)| (load.server.text(), load.client.text()));
    let mut text = format!("L1  fan-out, {server} to {client}, {}\n{}", placement.text(), aligned(&rows));
    for (fan_out, outcome) in steps {
        if let Some(fault) = outcome.failure() {
            text.push_str(&format!("FAILED at {} Hz: {fault}\n", fan_out.rate_hz));
        }
        if !outcome.kept_schedule() {
            let late_ms = outcome.late_max.as_millis();
            text.push_str(&format!(
                "at {} Hz the generator was up to {late_ms} ms behind its schedule: less was offered than the table says\n",
                fan_out.rate_hz
            ));
        }
    }
    let latency = steps.first().map_or("", |(load, _)| load.producer().latency_text());
    text.push_str(&format!("Latency {latency}. srv and cli: processor seconds per million delivered."));
    text
}

fn write(path: &std::path::Path, steps: &[Step], placement: Placement) -> std::io::Result<()> {
    let mut file = ResultFile::new("load", "");
    file.rows = steps.iter().map(|(fan_out, outcome)| fan_out.row(placement, outcome)).collect();
    file.write(path)
}

/// Cells under each other, right-aligned, a line per row.
fn aligned(rows: &[Vec<String>]) -> String {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    let line = |row: &Vec<String>| -> String {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}", width = *width));
        cells.collect::<Vec<_>>().join("  ") + "\n"
    };
    rows.iter().map(line).collect()
}
