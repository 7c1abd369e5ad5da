//! `fodo clu set`: changes a feature of an object, or a variable.

use std::io;

use fodo_clu::client::{Answer, CluRequest, RequestOutcome};
use fodo_net::Scalar;

use super::get::get;
use super::item::{NamedItem, items};
use super::outcome::CluFailure;
use super::target::{CluFlags, ConnectedClu};
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::show::escape_control;

/// Change a feature of an object, or a variable
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The CLU: an address, or a name
    #[arg(value_name = "CLU")]
    clu: String,
    /// An object and a feature, or a variable
    #[arg(required = true, num_args = 2..=3, value_names = ["ITEM", "VALUE"], allow_negative_numbers = true)]
    words: Vec<String>,
    /// Send the value as a text, even if it looks like a number
    #[arg(short = 's', long)]
    string: bool,
    /// Do not read the value back
    #[arg(long)]
    no_verify: bool,
    /// Print numbers that have a name as numbers
    #[arg(short = 'n', long)]
    numeric: bool,
    #[command(flatten)]
    flags: CluFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo clu set 10.0.0.2 THE0001 3 21.5
  fodo clu set --clu house.toml house THE0001 PointValue 21.5
  fodo clu set --clu house.toml house THE0001/State On
  fodo clu set 10.0.0.2 greeting 'Good morning'

A value is a number, true, false, a name of the feature's values, or otherwise a text. The request
is sent once. Then the value is read back and printed; if it differs, the CLU has refused or limited
it, and the code is 5. With --no-verify nothing is read, as for features that cannot be read. A
variable that contains an object or a function is not replaced.

JSON keys: clu, object, feature, index (or variable), requested, value (read back), label, units,
outcome (set, differs, sent, or as for get); after a failure also error (code, class, message).";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let as_json = arguments.flags.json;
    let prepared = ConnectedClu::open(&arguments.flags, &arguments.clu).and_then(|clu| {
        let (item, value) = item_and_value(&clu, arguments)?;
        Ok((clu, item, value))
    });
    let (clu, item, value) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => {
            let object = serde_json::Map::from_iter([("clu".to_owned(), arguments.clu.as_str().into())]);
            return failure.report(as_json.then_some(object), "set", outlet);
        }
    };
    let mut object = clu.target.json();
    item.insert_into(&mut object);
    object.insert("requested".into(), json::scalar(&value));
    let read_back = match set(&clu, &item, &value, arguments.no_verify) {
        Ok(read_back) => read_back,
        Err(failure) => return failure.report(as_json.then_some(object), "set", outlet),
    };
    let shown = |value: &Scalar| item.shown(Some(value), arguments.numeric);
    if let Some(read_back) = read_back.as_ref().filter(|read_back| !is_same(&value, read_back)) {
        item.insert_value(Some(read_back), &mut object);
        let message = format!(
            "{}: {} has the value {} instead of {}: the CLU has refused, limited or changed it",
            clu.target,
            item.text,
            shown(read_back),
            shown(&value)
        );
        let failure = CluFailure { exit: Exit::Refused, outcome: "differs", message };
        return failure.report(as_json.then_some(object), "set", outlet);
    }
    if as_json {
        if let Some(read_back) = &read_back {
            item.insert_value(Some(read_back), &mut object);
        }
        object.insert("outcome".into(), if read_back.is_some() { "set" } else { "sent" }.into());
        outlet.out.write_all(json::line(object).as_bytes())?;
    } else if let Some(read_back) = &read_back {
        writeln!(outlet.out, "{}  {}", escape_control(&item.text), shown(read_back))?;
    }
    Ok(Exit::Done)
}

fn item_and_value(clu: &ConnectedClu, arguments: &Arguments) -> Result<(NamedItem, Scalar), CluFailure> {
    let (word, item) = arguments.words.split_last().unwrap_or((&arguments.clu, &[]));
    match items(&clu.target, item)?.as_slice() {
        [item] => Ok((item.clone(), item.typed_value(word, arguments.string))),
        _ => {
            let message = format!("{}: \"{}\" is not one feature or variable", clu.target, item.join(" "));
            Err(CluFailure { exit: Exit::BadValue, outcome: "not_sent", message })
        }
    }
}

/// Changes the value and reads it back; `None` if it was not read.
fn set(clu: &ConnectedClu, item: &NamedItem, value: &Scalar, no_verify: bool) -> Result<Option<Scalar>, CluFailure> {
    if item.item.index().is_none() {
        check_variable(clu, item)?;
    }
    let outcome = clu.connection.request(CluRequest::Set(&item.item, value));
    match outcome.map_err(|error| CluFailure::not_sent(&clu.target, &item.text, error))? {
        // Usually a set returns nothing.
        RequestOutcome::Nil => {}
        outcome => drop(clu.checked(&item.text, outcome, true)?),
    }
    if no_verify {
        return Ok(None);
    }
    get(clu, item).map(Some)
}

/// Fails if the name is that of an object or a function, which would be lost: usually the feature was forgotten.
fn check_variable(clu: &ConnectedClu, item: &NamedItem) -> Result<(), CluFailure> {
    let script = format!("type(getVar(\"{}\"))", item.item.name());
    let outcome = clu.connection.request(CluRequest::ExecuteRepeatedly(&script));
    let outcome = outcome.map_err(|error| CluFailure::not_sent(&clu.target, &item.text, error))?;
    if let RequestOutcome::Answered(Answer::Text(kind)) = &outcome
        && !["number", "string", "boolean"].contains(&&*kind.to_str())
    {
        let message = format!(
            "{}: {} is not a variable but a {}: name a feature of an object before the value",
            clu.target,
            item.text,
            kind.to_str()
        );
        return Err(CluFailure { exit: Exit::BadValue, outcome: "not_sent", message });
    }
    match outcome {
        // A variable without a value, or a CLU without this function.
        RequestOutcome::Nil => Ok(()),
        outcome => clu.checked(&item.text, outcome, false).map(|_| ()),
    }
}

/// Whether a value that was read is the one that was set; some CLUs compute with 32 bits.
fn is_same(set: &Scalar, read: &Scalar) -> bool {
    let number = |scalar: &Scalar| match scalar {
        Scalar::F64(number) => Some(*number),
        Scalar::Bool(is_true) => Some(f64::from(u8::from(*is_true))),
        _ => None,
    };
    match (number(set), number(read)) {
        (Some(set), Some(read)) => (set - read).abs() <= 1e-6 * set.abs().max(1.0),
        _ => set == read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_the_same_after_a_conversion_to_32_bits_and_for_both_forms_of_a_boolean() {
        assert!(is_same(&Scalar::F64(21.7), &Scalar::F64(f64::from(21.7_f32))));
        assert!(is_same(&Scalar::Bool(true), &Scalar::F64(1.0)));
        assert!(!is_same(&Scalar::F64(21.7), &Scalar::F64(21.8)));
        assert!(!is_same(&Scalar::Text("1".into()), &Scalar::F64(1.0)));
    }
}
