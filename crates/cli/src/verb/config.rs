//! `fodo config`: shows the environment variables and their values in effect.

use std::io;

use fodo_net::config::{self, Origin, Setting};
use serde_json::{Map, Value as Json};

use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;

/// Show every environment variable of Channel Access and pvAccess, its value in effect, and the origin of the value
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// The end of the help.
pub fn help() -> String {
    let variables = config::help(|_| true);
    format!("{HELP}\n\n{VARIABLES}\n{variables}")
}

const HELP: &str = "\
Examples:
  fodo config
  EPICS_CA_CONN_TMO=5 fodo config --json

One line for each variable: its name, the value in effect, the origin of the value (the environment,
another variable, or the default), and remarks. For an invalid value the expected form is shown,
and the exit code is 1, because no command starts with it. Environment variables with similar names
that neither Channel Access nor pvAccess has follow at the end.

JSON keys: variable, value (null if it is invalid), origin (environment, variable, default, or
unknown for a similar name that is not a variable), from (the other variable, or null), remark,
error (null if there is none).";

const VARIABLES: &str = "Variables, with their defaults in parentheses:";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let settings = config::settings();
    let unknown = config::unknown_variables();
    let text = match arguments.json {
        true => settings
            .iter()
            .map(object)
            .chain(unknown.iter().map(|name| unknown_variable(name)))
            .map(json::line)
            .collect(),
        false => lines(&settings, &unknown),
    };
    outlet.out.write_all(text.as_bytes())?;
    let is_understood = settings.iter().all(|setting| setting.value.is_ok());
    Ok(if is_understood { Exit::Done } else { Exit::Other })
}

fn lines(settings: &[Setting], unknown: &[String]) -> String {
    let shown = |setting: &Setting| match &setting.value {
        Ok(value) if value.is_empty() => "-".to_owned(),
        Ok(value) => value.clone(),
        Err(error) => format!("\"{}\"", error.text),
    };
    let width = settings.iter().map(|setting| shown(setting).chars().count()).max().unwrap_or(0).min(WIDTH_MAX);
    let mut text = String::new();
    for setting in settings {
        let remark = match (&setting.value, &setting.remark) {
            (Err(error), _) => format!("; INVALID: expected {}", error.expected),
            (Ok(_), Some(remark)) => format!("; {remark}"),
            (Ok(_), None) => String::new(),
        };
        let (name, value, origin) = (setting.variable.name, shown(setting), origin(setting.origin));
        text += &format!("{name:<32}  {value:<width$}  {origin}{remark}\n");
    }
    for name in unknown {
        text += &format!("{name:<32}  {:<width$}  environment; {STRANGER}\n", "-");
    }
    text
}

/// A longer value does not widen the column.
const WIDTH_MAX: usize = 40;

const STRANGER: &str = "not a variable of Channel Access or pvAccess; check the spelling";

fn origin(origin: Origin) -> String {
    match origin {
        Origin::Environment => "environment".to_owned(),
        Origin::Variable(other) => format!("from {other}"),
        Origin::Default => "default".to_owned(),
    }
}

fn object(setting: &Setting) -> Map<String, Json> {
    let (origin, from) = match setting.origin {
        Origin::Environment => ("environment", None),
        Origin::Variable(other) => ("variable", Some(other)),
        Origin::Default => ("default", None),
    };
    let mut object = Map::new();
    object.insert("variable".into(), setting.variable.name.into());
    object.insert("value".into(), setting.value.as_ref().ok().cloned().into());
    object.insert("origin".into(), origin.into());
    object.insert("from".into(), from.into());
    object.insert("remark".into(), setting.remark.clone().into());
    object.insert("error".into(), setting.value.as_ref().err().map(ToString::to_string).into());
    object
}

fn unknown_variable(name: &str) -> Map<String, Json> {
    let mut object = Map::new();
    object.insert("variable".into(), name.into());
    object.insert("value".into(), Json::Null);
    object.insert("origin".into(), "unknown".into());
    object.insert("from".into(), Json::Null);
    object.insert("remark".into(), STRANGER.into());
    object.insert("error".into(), Json::Null);
    object
}
