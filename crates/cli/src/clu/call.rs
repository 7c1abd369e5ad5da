//! `fodo clu call`: calls a method of an object.

use std::io;

use fodo_clu::client::{Answer, CluRequest, RequestOutcome};
use fodo_clu::interface::{InterfaceKind, MethodInterface};
use fodo_clu::value::parse_value;
use fodo_net::{Scalar, Text};
use serde_json::Value as Json;

use super::item::{method, typed_value};
use super::outcome::{CluFailure, printable_text};
use super::target::{CluFlags, ConnectedClu};
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;

/// Call a method of an object
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The CLU: an address, or a name
    #[arg(value_name = "CLU")]
    clu: String,
    /// The object
    #[arg(value_name = "OBJECT")]
    object: String,
    /// The method: its index or its name
    #[arg(value_name = "METHOD")]
    method: String,
    /// Arguments: numbers, true, false, or texts
    #[arg(value_name = "ARGUMENT", allow_negative_numbers = true)]
    arguments: Vec<String>,
    /// Send all arguments as texts, even if they look like numbers
    #[arg(short = 's', long)]
    string: bool,
    #[command(flatten)]
    flags: CluFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo clu call 10.0.0.2 TIM0001 0
  fodo clu call --clu house.toml house TIM0001 Start
  fodo clu call --clu house.toml house THE0001 HeatUp 2 30

The request is sent once. Most methods return nothing. A CLU answers nil for nothing, and also if
the method failed or does not exist: both have code 0 here. Read a feature to see the effect. Names
of methods require that --clu or --project names the objects of the CLU.

JSON keys: clu, object, method (its index), outcome (value, nil, or as for exec), value, text; after
a failure also error (code, class, message).";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let as_json = arguments.flags.json;
    let mut object = serde_json::Map::new();
    object.insert("clu".into(), arguments.clu.as_str().into());
    object.insert("object".into(), arguments.object.as_str().into());
    match call(arguments) {
        Ok((index, value)) if as_json => {
            object.insert("method".into(), index.into());
            object.insert("outcome".into(), if value.is_some() { "value" } else { "nil" }.into());
            let scalar = value.as_ref().and_then(|text| parse_value(text.as_bytes()));
            object.insert("value".into(), scalar.as_ref().map_or(Json::Null, json::scalar));
            object.insert("text".into(), value.as_ref().map_or("nil".into(), |text| text.to_str().into()));
            outlet.out.write_all(json::line(object).as_bytes())?;
            Ok(Exit::Done)
        }
        Ok((_, value)) => {
            let text = value.as_ref().map_or("nil".into(), |text| printable_text(&text.to_str()));
            writeln!(outlet.out, "{text}")?;
            Ok(Exit::Done)
        }
        Err(failure) => failure.report(as_json.then_some(object), "call", outlet),
    }
}

/// The index of the method, and what it returned; `None` for nil.
fn call(arguments: &Arguments) -> Result<(u32, Option<Text>), CluFailure> {
    let clu = ConnectedClu::open(&arguments.flags, &arguments.clu)?;
    let (object, index, known) = method(&clu.target, &arguments.object, &arguments.method)?;
    let values: Vec<Scalar> = arguments
        .arguments
        .iter()
        .enumerate()
        .map(|(at, word)| match arguments.string || is_text(known.as_ref(), at) {
            true => Scalar::Text(word.as_str().into()),
            false => typed_value(word),
        })
        .collect();
    let what = format!("{} method {}", arguments.object, arguments.method);
    let request = CluRequest::Call { object: &object, method: index, arguments: &values };
    let outcome = clu.connection.request(request);
    match outcome.map_err(|error| CluFailure::not_sent(&clu.target, &what, error))? {
        RequestOutcome::Nil => Ok((index, None)),
        outcome => match clu.checked(&what, outcome, true)? {
            RequestOutcome::Answered(Answer::Text(text)) => Ok((index, Some(text))),
            _ => Err(CluFailure::invalid_reply(&clu.target, &what)),
        },
    }
}

/// Whether an argument is a text according to the class of the object.
fn is_text(method: Option<&MethodInterface>, at: usize) -> bool {
    let parameter = method.and_then(|method| method.parameters.get(at));
    parameter.is_some_and(|parameter| parameter.kind == InterfaceKind::Text)
}
