//! `fodo lab load`: the loads of a run, of any size.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::driver::Client;
use crate::load::Producer;
use crate::load::double::Double;
use crate::load::suite::{Kind, Load, Manner, Offered};
use crate::machine::Machine;
use crate::placement::{Placement, Seats};
use crate::result::{ResultFile, Verdict};
use crate::server::ServerKind;
use crate::tables;

/// The words after `fodo lab load`.
#[derive(Debug, clap::Subcommand)]
pub enum LoadVerb {
    /// Many PVs, many subscriptions, a given rate: what arrives, how late, what became of the rest.
    #[command(after_help = HELP)]
    FanOut(LoadArguments),
    /// A fan-out at twice the rate again and again, until no more arrives than before.
    #[command(after_help = HELP)]
    Ladder(LoadArguments),
    /// The highest rate at which everything arrives in time and nothing is merged.
    #[command(after_help = HELP)]
    Sustained {
        /// What p99 may be at most, in milliseconds.
        #[arg(long, value_name = "MS", default_value_t = 10.0)]
        p99_ms: f64,
        #[command(flatten)]
        load: LoadArguments,
    },
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
        #[command(flatten)]
        common: Common,
    },
    /// What channels and subscriptions take that do nothing.
    Idle {
        /// How many of each.
        #[arg(long, value_name = "N", default_value_t = 50_000)]
        channels: u32,
        /// To how many PVs, in turn.
        #[arg(long, value_name = "N", default_value_t = 1000)]
        pvs: u32,
        #[command(flatten)]
        common: Common,
    },
    /// What names cost that nobody serves.
    Absent {
        /// How many.
        #[arg(long, value_name = "N", default_value_t = 1000)]
        names: u32,
        /// How long searches go on before they are counted.
        #[arg(long, value_name = "TIME", default_value_t = 15.0)]
        after_seconds: f64,
        /// How long they are counted, for each repetition, one after the other.
        #[arg(long, value_name = "TIME", default_value_t = 10.0)]
        for_seconds: f64,
        /// Who searches.
        #[arg(long, value_name = "CLIENT", default_value = "fodo")]
        client: Client,
        #[command(flatten)]
        common: Common,
    },
}

/// What every load is told.
#[derive(Debug, clap::Args)]
pub struct Common {
    /// How often.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Server and client on one core; on two without it.
    #[arg(long)]
    one_core: bool,
    /// Also write the rows to this file; "-" for standard output in place of the tables.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// How large a load is, and between whom.
#[derive(Debug, clap::Args)]
pub struct LoadArguments {
    /// How many PVs change.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pvs: u32,
    /// Subscriptions to each of them.
    #[arg(long, value_name = "N", default_value_t = 10)]
    subscriptions: u32,
    /// Changes of each PV in a second: the first of a ladder, the highest that is tried where the best is looked for.
    #[arg(long, value_name = "RATE", default_value_t = 10.0)]
    hz: f64,
    /// How long they change.
    #[arg(long, value_name = "TIME", default_value_t = 5.0)]
    seconds: f64,
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
    /// Let the client do one thing wrong, to see that it is found out.
    #[arg(long, hide = true)]
    double: Option<Double>,
    #[command(flatten)]
    common: Common,
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
  fodo lab load sustained --hz 1000 --seconds 1            what is carried without loss, merge or delay?

Exit status: 0 when every update is accounted for and right, 1 when not, 2 when the command was wrong.";

/// Does it.
pub fn load(verb: &LoadVerb) -> ExitCode {
    let Some((load, common)) = asked(verb) else {
        eprintln!("fodo lab load: PVs, subscriptions, rates and times must be above zero");
        return ExitCode::from(2);
    };
    let seats = Seats::find();
    let placement = if common.one_core { Placement::OneCore } else { seats.apart() };
    let manner = Manner { placement, seats: &seats, deadline: Instant::now() + LOAD_MAX };
    let machine = Machine::look();
    let mut result = ResultFile::new("load", &machine.date);
    if let Ok(serde_json::Value::Object(words)) = serde_json::to_value(machine) {
        result.machine = words;
    }
    result.settings.insert("repetitions".into(), common.repetitions.into());
    let start = Instant::now();
    result.rows = load.rows(&Client::ALL, &manner, &mut |_| {});
    result.duration_s = start.elapsed().as_secs_f64();
    told(&result, common.json.as_deref())
}

/// A load that nobody waits for any longer.
const LOAD_MAX: Duration = Duration::from_secs(24 * 3600);

/// What a verb asks for; `None` when a number cannot be.
fn asked(verb: &LoadVerb) -> Option<(Load, &Common)> {
    let are_positive = |numbers: &[f64]| numbers.iter().all(|number| number.is_finite() && *number > 0.0);
    let fodo = (Client::Fodo, ServerKind::Fodo);
    let (question, kind, pair, common) = match verb {
        LoadVerb::FanOut(words) => ("L1", Kind::FanOut(words.offered()?), words.pair(), &words.common),
        LoadVerb::Ladder(words) => ("L2", Kind::Ladder(words.offered()?), words.pair(), &words.common),
        #[cfg(unix)]
        LoadVerb::Stalled(words) => ("L7", Kind::Stalled(words.offered()?), words.pair(), &words.common),
        LoadVerb::Sustained { p99_ms, load } => {
            let offered = load.offered().filter(|_| are_positive(&[*p99_ms]))?;
            ("L6", Kind::Sustained { offered, p99_ms_max: *p99_ms }, load.pair(), &load.common)
        }
        LoadVerb::Reconnect { pvs, down_seconds, common } => {
            let kind = Kind::Reconnect { points: vec![*pvs], down_seconds: *down_seconds };
            are_positive(&[f64::from(*pvs), *down_seconds]).then_some(("L3", kind, fodo, common))?
        }
        LoadVerb::Idle { channels, pvs, common } => {
            let kind = Kind::Idle { n: *channels, n_pvs: *pvs };
            are_positive(&[f64::from(*channels), f64::from(*pvs)]).then_some(("L4", kind, fodo, common))?
        }
        LoadVerb::Absent { names, after_seconds, for_seconds, client, common } => {
            let kind = Kind::Absent { n_names: *names, after_seconds: *after_seconds, for_seconds: *for_seconds };
            let pair = (*client, ServerKind::Fodo);
            are_positive(&[f64::from(*names), *after_seconds, *for_seconds]).then_some(("L5", kind, pair, common))?
        }
    };
    Load::asked(question, kind, pair, common.repetitions as usize).map(|load| (load, common))
}

impl LoadArguments {
    /// `None` when the numbers cannot be.
    fn offered(&self) -> Option<Offered> {
        let is_time = |number: f64| number.is_finite() && number > 0.0;
        let is_load = self.pvs > 0 && self.subscriptions > 0 && is_time(self.hz) && is_time(self.seconds);
        is_load.then_some(Offered {
            n_pvs: self.pvs,
            n_subscriptions: self.subscriptions,
            hz: self.hz,
            seconds: self.seconds,
            producer: self.producer,
            double: self.double,
        })
    }

    fn pair(&self) -> (Client, ServerKind) {
        (self.client, self.server)
    }
}

fn told(result: &ResultFile, json: Option<&Path>) -> ExitCode {
    let written = match json {
        Some(path) if path == Path::new("-") => {
            result.text().map(|text| print!("{text}")).map_err(std::io::Error::from)
        }
        Some(path) => result.write(path),
        None => Ok(()),
    };
    if json != Some(Path::new("-")) {
        print!("{}", tables::tables(result));
    }
    if let Err(why) = written {
        eprintln!("fodo lab load: {why}");
        return ExitCode::FAILURE;
    }
    let is_right = !result.rows.is_empty() && result.rows.iter().all(|row| row.verdict == Verdict::Measured);
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
