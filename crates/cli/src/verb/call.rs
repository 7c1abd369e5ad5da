//! `fodo call`: calls a procedure over pvAccess.

use std::io;

use fodo_net::{Protocol, Structure};
use serde_json::Value as Json;

use super::{context, fail};
use crate::client::{ClientFlags, Deadline, ProtocolFlag, pva_name};
use crate::epics::OutputStreams;
use crate::epics::pva::assign::structure_of_json;
use crate::epics::pva::pvcall::{self, argument, is_nothing};
use crate::exit::Exit;
use crate::json;
use crate::show::DisplayOptions;
use crate::structure;

/// Call a procedure over pvAccess
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The name, such as `pva://x:add`; the scheme may be left out
    #[arg(value_name = "PV", value_parser = pva_name)]
    pv: String,
    /// Arguments: a text, an array of numbers or texts `[..]`, or a JSON object `{..}`
    #[arg(value_name = "NAME=VALUE")]
    arguments: Vec<String>,
    #[command(flatten)]
    client: ClientFlags,
    /// Print all elements of an array, also at a terminal
    #[arg(long)]
    full: bool,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo call pva://x:add lhs=1 rhs=2
  fodo call pva://x:names pattern='x:*' --json | jq .structure.value
  fodo call pva://x:load 'points=[1, 2, 3]' 'options={\"fast\": true}'

The argument of the call is an NTURI: a structure whose member `query` contains the named values.
Every value is sent as text unless it is an array or a JSON object; the server converts it. An array
of which all elements are numbers is sent as numbers: integers of 64 bits, or double. The result is
printed as a tree. Procedures exist only with pvAccess; fodo list shows the PVs of a
server.

JSON keys: pv, id (the name of the result's type), structure (the result; null if the procedure
returns nothing); error as for get.";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let argument = match argument(Protocol::split(&arguments.pv).1, &arguments.arguments, value) {
        Ok(argument) => argument,
        Err(word) => {
            writeln!(outlet.err, "fodo: \"{word}\" is not a valid argument: write NAME=VALUE")?;
            return Ok(Exit::BadValue);
        }
    };
    let client = match context(ProtocolFlag::default(), outlet)? {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    let deadline = Deadline::after(arguments.client.timeout);
    let called = client.context.channel(&arguments.pv).and_then(|channel| deadline.wait(channel.start_call(argument)));
    let result = match called {
        Ok(result) => result,
        Err(error) => return fail(&arguments.pv, &error, arguments.client.json, outlet),
    };
    if arguments.client.json {
        let mut object = json::Object::of(&arguments.pv);
        object.insert("id", result.kind().id().to_str());
        match is_nothing(&result) {
            true => object.insert("structure", Json::Null),
            false => object.insert_structure("structure", &result),
        }
        writeln!(outlet.out, "{object}")?;
    } else if !is_nothing(&result) {
        let look = DisplayOptions { full: arguments.full, ..DisplayOptions::of_stdout() };
        writeln!(outlet.out, "{}", structure::type_name(result.kind()))?;
        outlet.out.write_all(structure::tree(&result, &look).as_bytes())?;
    }
    Ok(Exit::Done)
}

/// The value of an argument, with arrays of numbers.
fn value(text: &str) -> Option<Structure> {
    match serde_json::from_str(text) {
        Ok(Json::Array(elements)) if !elements.is_empty() && elements.iter().all(Json::is_number) => {
            structure_of_json(&Json::Array(elements))
        }
        _ => pvcall::value(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_net::{Text, Value};

    #[test]
    fn an_array_of_numbers_is_sent_as_numbers_and_any_other_as_texts() {
        let pairs = ["a=[1, 2, 3]", "b=[1, 2.5]", "c=[1, \"x\"]", "d=[x, y]", "e=1"].map(str::to_owned);

        let argument = argument("x:load", &pairs, value).unwrap();

        let texts = |texts: [&str; 2]| Value::from(texts.map(Text::from).to_vec());
        assert_eq!(argument.get("query.a"), Some(&vec![1_i64, 2, 3].into()));
        assert_eq!(argument.get("query.b"), Some(&vec![1.0, 2.5].into()));
        assert_eq!(argument.get("query.c"), Some(&texts(["1", "x"])));
        assert_eq!(argument.get("query.d"), Some(&texts(["x", "y"])));
        assert_eq!(argument.get("query.e"), Some(&"1".into()));
    }
}
