//! `fodo clu exec`: evaluates an expression of Lua in a CLU.

use std::io;

use fodo_clu::client::{Answer, CluRequest, RequestOutcome};
use fodo_clu::value::{parse_value, write_lua_text};
use fodo_net::Text;

use super::outcome::{CluFailure, printable_text};
use super::target::{CluFlags, ConnectedClu};
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;

/// Evaluate an expression of Lua
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The CLU: an address, or a name
    #[arg(value_name = "CLU")]
    clu: String,
    /// The expression, such as `CLU0001:get(0)`
    #[arg(value_name = "EXPRESSION", allow_hyphen_values = true)]
    expression: String,
    /// Report why the expression failed, instead of nil; for CLUs with load and pcall
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    flags: CluFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo clu exec 10.0.0.2 'CLU0001:get(0)'
  fodo clu exec 10.0.0.2 '{TIM0001:get(0), getVar(\"greeting\")}'
  fodo clu exec --explain 10.0.0.2 'nothing.field'

The value is printed as the CLU sends it. These ends differ in text and exit code:
  value    the value; code 0
  nil      `nil`, and a message; code 3. A CLU also answers nil if the expression failed
  error    the CLU refused the request, or with --explain the message of Lua; code 5
  timeout  a message; code 4. The expression may have been evaluated; it is sent only once

With --explain the expression is evaluated inside pcall, so that its failure has a message and nil
is a value with code 0. Statements are accepted as well.

JSON keys: clu, expression, outcome (value, nil, error, refused, wrong, timeout, not_sent), value (a
number, bool or string; null for nil), text (as sent by the CLU); after a failure also error (code,
class, message).";

/// Marks a message of Lua in the reply to an expression inside pcall.
const FAILED: &str = "\u{1}failed:";

/// Marks a nil.
const NOTHING: &str = "\u{1}nil";

/// The expression inside pcall.
fn explained(expression: &str) -> String {
    let mut text = Vec::new();
    write_lua_text(expression.as_bytes(), &mut text);
    let text = String::from_utf8_lossy(&text);
    format!(
        "(function(e) local f, m = load(\"return \"..e) if not f then f, m = load(e) end if not f then return \
         \"\\1failed:\"..m end local ok, v = pcall(f) if not ok then return \"\\1failed:\"..tostring(v) end if v == nil \
         then return \"\\1nil\" end return v end)({text})"
    )
}

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let as_json = arguments.flags.json;
    let start = || {
        let mut object = serde_json::Map::new();
        object.insert("clu".into(), arguments.clu.as_str().into());
        object.insert("expression".into(), arguments.expression.as_str().into());
        object
    };
    match evaluate(arguments) {
        Ok(value) => {
            if as_json {
                let mut object = start();
                object.insert("outcome".into(), if value.is_some() { "value" } else { "nil" }.into());
                let scalar = value.as_ref().and_then(|text| parse_value(text.as_bytes()));
                object.insert("value".into(), scalar.as_ref().map_or(serde_json::Value::Null, json::scalar));
                object.insert("text".into(), value.as_ref().map_or("nil".into(), |text| text.to_str().into()));
                outlet.out.write_all(json::line(object).as_bytes())?;
            } else {
                let text = value.as_ref().map_or("nil".into(), |text| printable_text(&text.to_str()));
                writeln!(outlet.out, "{text}")?;
            }
            Ok(Exit::Done)
        }
        Err(failure) if failure.outcome == "nil" => {
            let object = as_json.then(|| {
                let mut object = start();
                object.insert("value".into(), serde_json::Value::Null);
                object.insert("text".into(), "nil".into());
                object
            });
            if !as_json {
                writeln!(outlet.out, "nil")?;
                outlet.out.flush()?;
            }
            failure.report(object, "exec", outlet)
        }
        Err(failure) => failure.report(as_json.then(start), "exec", outlet),
    }
}

/// The text of the value. `None` is a nil that is certain, because the expression did not fail.
fn evaluate(arguments: &Arguments) -> Result<Option<Text>, CluFailure> {
    let clu = ConnectedClu::open(&arguments.flags, &arguments.clu)?;
    let script = match arguments.explain {
        true => explained(&arguments.expression),
        false => arguments.expression.clone(),
    };
    let outcome = clu.request("the expression", CluRequest::Execute(&script), true).map_err(|mut failure| {
        if failure.outcome == "nil" {
            failure.message += match arguments.explain {
                true => "; with --explain it exceeded a limit, or the CLU has no load and pcall",
                false => "; --explain reports failures",
            };
        }
        failure
    });
    match outcome? {
        RequestOutcome::Answered(Answer::Text(text)) if arguments.explain => {
            let answered = text.to_str();
            if let Some(message) = answered.strip_prefix(FAILED) {
                let message = format!("{}: the expression failed: {}", clu.target, printable_text(message));
                return Err(CluFailure { exit: Exit::Refused, outcome: "error", message });
            }
            Ok((answered != NOTHING).then(|| text.clone()))
        }
        RequestOutcome::Answered(Answer::Text(text)) => Ok(Some(text)),
        _ => Err(CluFailure::invalid_reply(&clu.target, "the expression")),
    }
}
