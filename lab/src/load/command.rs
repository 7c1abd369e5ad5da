//! `fodo lab load`: the loads of a run, of any size.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::driver::ClientUnderTest;
use crate::load::Producer;
use crate::load::double::Misbehavior;
use crate::load::suite::{Load, LoadKind, Offered, RunConditions, StreamSize};
use crate::machine::Machine;
use crate::placement::{CpuChoice, Placement};
use crate::protocol::LabProtocol;
use crate::result::{ResultFile, RowVerdict};
use crate::server::ServerKind;
use crate::tables;

/// Arguments of `fodo lab load`.
#[derive(Debug, clap::Subcommand)]
pub enum LoadVerb {
    /// Many PVs and subscriptions at a given rate: throughput, latency, and what became of missing updates.
    #[command(after_help = HELP)]
    FanOut(LoadArguments),
    /// A fan-out whose rate is doubled until no more updates are delivered than before.
    #[command(after_help = HELP)]
    Ladder(LoadArguments),
    /// The highest rate at which all updates arrive in time and none is merged.
    #[command(after_help = HELP)]
    Sustained {
        /// Maximum p99 latency in milliseconds.
        #[arg(long, value_name = "MS", default_value_t = 10.0)]
        p99_ms: f64,
        #[command(flatten)]
        load: LoadArguments,
    },
    /// A fan-out without and with a second client that has stopped reading.
    #[cfg(unix)]
    Stalled(LoadArguments),
    /// A server that is killed and started again: time until every subscription is restored.
    Reconnect {
        /// Number of PVs, each with one subscription.
        #[arg(long, value_name = "N", default_value_t = 1000)]
        pvs: u32,
        /// How long the server is down.
        #[arg(long, value_name = "TIME", default_value_t = 0.5)]
        down_seconds: f64,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// One large array that changes as fast as the server sends it, beside a raw stream.
    Stream {
        /// Elements of the array, doubles.
        #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(2..))]
        elements: u32,
        /// Duration of the stream.
        #[arg(long, value_name = "TIME", default_value_t = 5.0)]
        seconds: f64,
        /// Client that subscribes: fodo, repics or, over pvAccess, pvxs, spvirit, p4p or core-pva.
        #[arg(long, value_name = "CLIENT", default_value = "fodo")]
        client: ClientUnderTest,
        /// Makes the client misbehave in one way, to test that this is detected.
        #[arg(long, hide = true)]
        double: Option<Misbehavior>,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Memory of idle channels and subscriptions.
    Idle {
        /// Number of channels, and of subscriptions.
        #[arg(long, value_name = "N", default_value_t = 50_000)]
        channels: u32,
        /// Number of PVs they connect to, in turn.
        #[arg(long, value_name = "N", default_value_t = 1000)]
        pvs: u32,
        /// Client with the channels: fodo or fodo-java, of which the memory outside the heap is measured.
        #[arg(long, value_name = "CLIENT", default_value = "fodo")]
        client: ClientUnderTest,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Search traffic for names that no server has.
    Absent {
        /// Number of names.
        #[arg(long, value_name = "N", default_value_t = 1000)]
        names: u32,
        /// How long searches run before they are counted.
        #[arg(long, value_name = "TIME", default_value_t = 15.0)]
        after_seconds: f64,
        /// How long searches are counted per repetition; the intervals are consecutive.
        #[arg(long, value_name = "TIME", default_value_t = 10.0)]
        for_seconds: f64,
        /// Client that searches.
        #[arg(long, value_name = "CLIENT", default_value = "fodo")]
        client: ClientUnderTest,
        #[command(flatten)]
        common: CommonArguments,
    },
}

/// Arguments of every load.
#[derive(Debug, clap::Args)]
pub struct CommonArguments {
    /// Number of repetitions.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// The protocol of the subscriptions.
    #[arg(long, value_name = "PROTOCOL", default_value = "ca")]
    protocol: LabProtocol,
    /// Server and client on one core; on two without it.
    #[arg(long)]
    one_core: bool,
    /// Server and client on two hosts: network namespaces on this machine.
    #[arg(long, conflicts_with = "one_core")]
    two_hosts: bool,
    /// Also write the rows to this file; "-" for standard output in place of the tables.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Size of a load, and its two ends.
#[derive(Debug, clap::Args)]
pub struct LoadArguments {
    /// Number of PVs that change.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pvs: u32,
    /// Subscriptions per PV.
    #[arg(long, value_name = "N", default_value_t = 10)]
    subscriptions: u32,
    /// Changes of each PV per second: the first rate of a ladder, the highest rate that `sustained` tries.
    #[arg(long, value_name = "RATE", default_value_t = 10.0)]
    hz: f64,
    /// Duration of the load.
    #[arg(long, value_name = "TIME", default_value_t = 5.0)]
    seconds: f64,
    /// Client that subscribes.
    #[arg(long, value_name = "CLIENT", default_value = "fodo")]
    client: ClientUnderTest,
    /// Server of the PVs.
    #[arg(long, value_name = "SERVER", default_value = "fodo")]
    server: ServerKind,
    /// How values change; default: on schedule by our server, by Python in its own server, otherwise by the records
    /// themselves at a rate that SCAN supports, otherwise by puts.
    #[arg(long, value_name = "HOW")]
    producer: Option<Producer>,
    /// Makes the client misbehave in one way, to test that this is detected.
    #[arg(long, hide = true)]
    double: Option<Misbehavior>,
    #[command(flatten)]
    common: CommonArguments,
}

const HELP: &str = "\
Values change on schedule, whether or not the client keeps up, and latency counts from the moment at which a
value was scheduled to change. Every update is accounted for:

  produced = delivered + merged by the server + merged by the client + unattributed + unexplained

Merged updates were replaced by later ones of the same subscription before they were sent or delivered. Updates that
another implementation lost or merged cannot be told apart: they are unattributed.

Examples:
  fodo lab load fan-out                                    100 PVs x 10 subscriptions x 10 Hz
  fodo lab load fan-out --pvs 1000 --subscriptions 1000    offers 10 million updates per second
  fodo lab load fan-out --protocol pva --client p4p        the same over pvAccess, p4p with our server
  fodo lab load ladder                                     finds the rate at which delivery stops growing
  fodo lab load sustained --hz 1000 --seconds 1            finds the rate without loss, merge or delay
  fodo lab load stream --protocol pva                      arrays of 8 MB, beside a raw stream

Exit status: 0 when every update is accounted for and right, 1 otherwise, 2 when the arguments are invalid.";

/// Runs a load and prints its result.
pub fn load(verb: &LoadVerb) -> ExitCode {
    let Some((load, common)) = load_of_arguments(verb) else {
        eprintln!("fodo lab load: PVs, subscriptions, rates and times must be greater than zero");
        return ExitCode::from(2);
    };
    let cpus = CpuChoice::find();
    let placement = match (common.one_core, common.two_hosts) {
        (true, _) => Placement::OneCore,
        (_, true) => Placement::TwoHosts,
        _ => cpus.apart(),
    };
    let conditions = RunConditions { placement, cpus: &cpus, deadline: Instant::now() + LOAD_MAX };
    let machine = Machine::describe();
    let mut result = ResultFile::new("load", &machine.date);
    if let Ok(serde_json::Value::Object(words)) = serde_json::to_value(machine) {
        result.machine = words;
    }
    result.settings.insert("repetitions".into(), common.repetitions.into());
    let start = Instant::now();
    let clients = [&ClientUnderTest::ALL[..], &ClientUnderTest::OF_LOADS, &ClientUnderTest::JAVA_VARIANTS].concat();
    result.rows = load.rows(&clients, &conditions, &mut |_| {});
    result.duration_s = start.elapsed().as_secs_f64();
    print_result(&result, common.json.as_deref())
}

/// Time limit of a load: a day, as no schedule waits for it.
const LOAD_MAX: Duration = Duration::from_secs(24 * 3600);

/// The load that the arguments describe; `None` when a number is invalid.
fn load_of_arguments(verb: &LoadVerb) -> Option<(Load, &CommonArguments)> {
    let are_positive = |numbers: &[f64]| numbers.iter().all(|number| number.is_finite() && *number > 0.0);
    let fodo = (ClientUnderTest::Fodo, ServerKind::Fodo);
    let (question, kind, pair, common) = match verb {
        LoadVerb::FanOut(words) => ("L1", LoadKind::FanOut(words.offered()?), words.pair(), &words.common),
        LoadVerb::Ladder(words) => ("L2", LoadKind::Ladder(words.offered()?), words.pair(), &words.common),
        #[cfg(unix)]
        LoadVerb::Stalled(words) => ("L7", LoadKind::Stalled(words.offered()?), words.pair(), &words.common),
        LoadVerb::Sustained { p99_ms, load } => {
            let offered = load.offered().filter(|_| are_positive(&[*p99_ms]))?;
            ("L6", LoadKind::Sustained { offered, p99_ms_max: *p99_ms }, load.pair(), &load.common)
        }
        LoadVerb::Reconnect { pvs, down_seconds, common } => {
            let kind = LoadKind::Reconnect { points: vec![*pvs], down_seconds: *down_seconds };
            are_positive(&[f64::from(*pvs), *down_seconds]).then_some(("L3", kind, fodo, common))?
        }
        LoadVerb::Stream { elements, seconds, client, double, common } => {
            let size = StreamSize { n_elements: *elements, seconds: *seconds, double: *double };
            let pair = (*client, ServerKind::Fodo);
            are_positive(&[*seconds]).then_some(("L8", LoadKind::Stream(size), pair, common))?
        }
        LoadVerb::Idle { channels, pvs, client, common } => {
            let kind = LoadKind::Idle { n: *channels, n_pvs: *pvs };
            let pair = (*client, ServerKind::Fodo);
            are_positive(&[f64::from(*channels), f64::from(*pvs)]).then_some(("L4", kind, pair, common))?
        }
        LoadVerb::Absent { names, after_seconds, for_seconds, client, common } => {
            let kind = LoadKind::Absent { n_names: *names, after_seconds: *after_seconds, for_seconds: *for_seconds };
            let pair = (*client, ServerKind::Fodo);
            are_positive(&[f64::from(*names), *after_seconds, *for_seconds]).then_some(("L5", kind, pair, common))?
        }
    };
    Load::with_arguments(question, kind, (pair, common.protocol), common.repetitions as usize)
        .map(|load| (load, common))
}

impl LoadArguments {
    /// `None` when a number is invalid.
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

    fn pair(&self) -> (ClientUnderTest, ServerKind) {
        (self.client, self.server)
    }
}

fn print_result(result: &ResultFile, json: Option<&Path>) -> ExitCode {
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
    let is_right = !result.rows.is_empty() && result.rows.iter().all(|row| row.verdict == RowVerdict::Measured);
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
