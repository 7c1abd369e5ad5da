//! `fodo clu get`: reads features of objects, and variables.

use std::io;

use fodo_clu::client::{Answer, CluRequest, RequestOutcome};
use fodo_net::Scalar;
use fodo_net::clu::CluOperation;

use super::item::{NamedItem, items};
use super::outcome::CluFailure;
use super::target::{CluFlags, ConnectedClu};
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::show::{Columns, TableCell, escape_control};

/// Read features of objects, and variables
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The CLU: an address, or a name
    #[arg(value_name = "CLU")]
    clu: String,
    /// Objects, features and variables
    #[arg(required = true, value_name = "ITEM")]
    items: Vec<String>,
    /// Print numbers that have a name as numbers
    #[arg(short = 'n', long)]
    numeric: bool,
    #[command(flatten)]
    flags: CluFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo clu get 10.0.0.2 THE0001 14
  fodo clu get --clu house.toml house THE0001 CurrentTemp TargetTemp
  fodo clu get --clu house.toml house THE0001
  fodo clu get --json 10.0.0.2 greeting TIM0001/0

Each value is one request, sent again while there is no reply. An item that fails is reported on
stderr; the others are still printed.

JSON keys: clu, object, feature (its name, or null), index; of a variable instead variable; value (a
number, bool or string; null for nil), label (the name of a number), units (or null); after a
failure outcome (nil, refused, wrong, timeout, not_sent) and error (code, class, message).";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let as_json = arguments.flags.json;
    let opened = ConnectedClu::open(&arguments.flags, &arguments.clu)
        .and_then(|clu| Ok((items(&clu.target, &arguments.items)?, clu)));
    let (items, clu) = match opened {
        Ok(opened) => opened,
        Err(failure) => {
            let object = serde_json::Map::from_iter([("clu".to_owned(), arguments.clu.as_str().into())]);
            return failure.report(as_json.then_some(object), "get", outlet);
        }
    };
    let started: Vec<_> = items.iter().map(|item| start_get(&clu, item)).collect();
    let mut exit = Exit::Done;
    let mut rows: Vec<Vec<TableCell<'_>>> = Vec::new();
    for (item, started) in items.iter().zip(started) {
        let read = started.and_then(|operation| value_of(&clu, item, operation.wait()));
        let mut object = clu.target.json();
        item.insert_into(&mut object);
        match read {
            Ok(value) if as_json => {
                item.insert_value(Some(&value), &mut object);
                outlet.out.write_all(json::line(object).as_bytes())?;
            }
            Ok(value) => {
                let shown = item.shown(Some(&value), arguments.numeric);
                rows.push(vec![Box::new(escape_control(&item.text)), Box::new(shown)]);
            }
            Err(failure) => {
                item.insert_value(None, &mut object);
                if failure.outcome == "nil" && !as_json {
                    rows.push(vec![Box::new(escape_control(&item.text)), Box::new("nil")]);
                }
                exit = exit.and(failure.report(as_json.then_some(object), "get", outlet)?);
            }
        }
    }
    let columns = Columns::of(&rows);
    rows.iter().try_for_each(|row| columns.write(row, outlet.out))?;
    Ok(exit)
}

fn start_get(clu: &ConnectedClu, item: &NamedItem) -> Result<CluOperation, CluFailure> {
    let started = clu.connection.start(CluRequest::Get(&item.item));
    started.map_err(|error| CluFailure::not_sent(&clu.target, &item.text, error))
}

/// The value in the outcome of a get.
pub fn value_of(clu: &ConnectedClu, item: &NamedItem, outcome: RequestOutcome) -> Result<Scalar, CluFailure> {
    let outcome = clu.checked(&item.text, outcome, false).map_err(|mut failure| {
        let is_variable = item.item.index().is_none();
        if failure.outcome == "nil" && is_variable && clu.target.site.is_none() {
            failure.message += "; names of features require a file with the objects of the CLU (--clu)";
        }
        failure
    });
    match outcome? {
        RequestOutcome::Answered(Answer::Text(text)) => {
            item.value(&text).ok_or_else(|| CluFailure::invalid_reply(&clu.target, &item.text))
        }
        _ => Err(CluFailure::invalid_reply(&clu.target, &item.text)),
    }
}

/// Reads one item again.
pub fn get(clu: &ConnectedClu, item: &NamedItem) -> Result<Scalar, CluFailure> {
    start_get(clu, item).and_then(|operation| value_of(clu, item, operation.wait()))
}
