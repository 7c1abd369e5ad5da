//! `fodo clu alive`: checks that CLUs answer.

use std::io;
use std::time::{Duration, Instant};

use fodo_clu::client::{Answer, CluRequest, RequestOutcome};
use fodo_net::clu::CluOperation;

use super::outcome::CluFailure;
use super::target::{CluFlags, ConnectedClu};
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::show::{Columns, TableCell, escape_control};

/// Check that CLUs answer
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The CLUs: addresses, or names; default: all of the file with CLUs
    #[arg(value_name = "CLU")]
    clus: Vec<String>,
    #[command(flatten)]
    flags: CluFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo clu alive 10.0.0.2
  fodo clu alive --project house.omp House
  fodo clu alive --clu house.toml

A CLU answers with its serial number, or with true. A CLU in emergency mode answers, but the scripts
of its project do not run: code 5.

JSON keys: clu, address, state (alive, emergency), answer, seconds (the round trip); after a failure
clu, outcome (nil, refused, wrong, timeout), error (code, class, message).";

/// The answer of a CLU in emergency mode.
const EMERGENCY: &str = "emergency";

/// Whether the scripts of a CLU run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AliveState {
    /// They run; the answer.
    Alive(String),
    /// They failed.
    Emergency,
}

impl AliveState {
    /// The state in the outcome of checkAlive.
    pub fn of(clu: &ConnectedClu, outcome: RequestOutcome) -> Result<AliveState, CluFailure> {
        match clu.checked("checkAlive", outcome, false) {
            Ok(RequestOutcome::Answered(Answer::Text(text))) if text.to_str() == EMERGENCY => Ok(AliveState::Emergency),
            Ok(RequestOutcome::Answered(Answer::Text(text))) => Ok(AliveState::Alive(text.to_str().into_owned())),
            // The scripts that define checkAlive do not run.
            Err(failure) if failure.outcome == "nil" => Ok(AliveState::Emergency),
            Err(failure) => Err(failure),
            Ok(_) => Err(CluFailure::invalid_reply(&clu.target, "checkAlive")),
        }
    }

    /// The name in JSON output.
    pub const fn name(&self) -> &'static str {
        match self {
            AliveState::Alive(_) => "alive",
            AliveState::Emergency => EMERGENCY,
        }
    }
}

/// The failure of a CLU in emergency mode.
pub fn emergency(clu: &ConnectedClu) -> CluFailure {
    let message = format!(
        "{}: emergency mode: the scripts of its project failed or are missing; the log of the CLU has the reason",
        clu.target
    );
    CluFailure { exit: Exit::Refused, outcome: EMERGENCY, message }
}

/// A request that has started.
struct StartedCheck {
    clu: ConnectedClu,
    operation: CluOperation,
    started: Instant,
}

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let names = match arguments.clus.is_empty() {
        false => Ok(arguments.clus.clone()),
        true => arguments.flags.all_names(),
    };
    let names = match names {
        Ok(names) => names,
        Err(failure) => return failure.report(None, "alive", outlet),
    };
    let started: Vec<Result<StartedCheck, CluFailure>> =
        names.iter().map(|name| start(&arguments.flags, name)).collect();
    let mut exit = Exit::Done;
    let mut rows: Vec<Vec<TableCell<'_>>> = Vec::new();
    for (name, started) in names.iter().zip(started) {
        let failed = match started.and_then(wait) {
            Ok((clu, state, round_trip)) => {
                if arguments.flags.json {
                    let mut object = clu.target.json();
                    object.insert("address".into(), clu.target.address.to_string().into());
                    object.insert("state".into(), state.name().into());
                    let answer = match &state {
                        AliveState::Alive(answer) => Some(answer.as_str()),
                        AliveState::Emergency => None,
                    };
                    object.insert("answer".into(), answer.into());
                    object.insert("seconds".into(), round_trip.as_secs_f64().into());
                    outlet.out.write_all(json::line(object).as_bytes())?;
                } else {
                    let answer = match &state {
                        AliveState::Alive(answer) => escape_control(answer),
                        AliveState::Emergency => String::new(),
                    };
                    let time = format!("{:.3} ms", round_trip.as_secs_f64() * 1e3);
                    let title = clu.target.to_string();
                    rows.push(vec![Box::new(title), Box::new(state.name()), Box::new(time), Box::new(answer)]);
                }
                if state == AliveState::Emergency {
                    let failure = emergency(&clu);
                    writeln!(outlet.err, "fodo clu alive: {}", failure.message)?;
                    exit = exit.and(failure.exit);
                }
                continue;
            }
            Err(failure) => failure,
        };
        let object =
            arguments.flags.json.then(|| serde_json::Map::from_iter([("clu".to_owned(), name.as_str().into())]));
        exit = exit.and(failed.report(object, "alive", outlet)?);
    }
    let columns = Columns::of(&rows);
    rows.iter().try_for_each(|row| columns.write(row, outlet.out))?;
    Ok(exit)
}

fn start(flags: &CluFlags, name: &str) -> Result<StartedCheck, CluFailure> {
    let clu = ConnectedClu::open(flags, name)?;
    let started = Instant::now();
    let operation = clu.connection.start(CluRequest::CheckAlive);
    let operation = operation.map_err(|error| CluFailure::not_sent(&clu.target, "checkAlive", error))?;
    Ok(StartedCheck { clu, operation, started })
}

fn wait(check: StartedCheck) -> Result<(ConnectedClu, AliveState, Duration), CluFailure> {
    let outcome = check.operation.wait();
    let round_trip = check.started.elapsed();
    let state = AliveState::of(&check.clu, outcome)?;
    Ok((check.clu, state, round_trip))
}
