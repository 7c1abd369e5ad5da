//! `fodo clu reset`: starts the scripts of a CLU again.

use std::io;

use fodo_clu::client::CluRequest;

use super::alive::{AliveState, emergency};
use super::outcome::CluFailure;
use super::target::{CluFlags, ConnectedClu};
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::show::escape_control;

/// Start the scripts of a CLU again
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The CLU: an address, or a name
    #[arg(value_name = "CLU")]
    clu: String,
    #[command(flatten)]
    flags: CluFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo clu reset 10.0.0.2
  fodo clu reset -w 30 --clu house.toml house

All objects stop, and the scripts start again. The command then checks that the CLU answers; if its
scripts failed (emergency mode), the code is 5.

JSON keys: clu, outcome (reset, emergency, or as for exec), answer (of checkAlive); after a failure
also error (code, class, message).";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let as_json = arguments.flags.json;
    let result = ConnectedClu::open(&arguments.flags, &arguments.clu).and_then(|clu| Ok((reset(&clu)?, clu)));
    match result {
        Ok((answer, clu)) if as_json => {
            let mut object = clu.target.json();
            object.insert("outcome".into(), "reset".into());
            object.insert("answer".into(), answer.into());
            outlet.out.write_all(json::line(object).as_bytes())?;
            Ok(Exit::Done)
        }
        Ok((answer, clu)) => {
            writeln!(outlet.out, "{}: reset, alive: {}", clu.target, escape_control(&answer))?;
            Ok(Exit::Done)
        }
        Err(failure) => {
            let object = serde_json::Map::from_iter([("clu".to_owned(), arguments.clu.as_str().into())]);
            failure.report(as_json.then_some(object), "reset", outlet)
        }
    }
}

/// Resets a CLU and returns its answer to checkAlive. Fails if its scripts do not run afterwards.
pub fn reset(clu: &ConnectedClu) -> Result<String, CluFailure> {
    clu.request("reset", CluRequest::Reset, true)?;
    let outcome = clu.connection.request(CluRequest::CheckAlive);
    let outcome = outcome.map_err(|error| CluFailure::not_sent(&clu.target, "checkAlive", error))?;
    match AliveState::of(clu, outcome)? {
        AliveState::Alive(answer) => Ok(answer),
        AliveState::Emergency => Err(emergency(clu)),
    }
}
