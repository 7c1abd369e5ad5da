//! `fodo config`: the environment as Fodo understands it.

use std::io;

use fodo_net::config::{self, Origin, Setting};
use serde_json::{Map, Value as Json};

use crate::epics::Outlet;
use crate::exit::Exit;
use crate::json;

/// Show every environment variable of Channel Access, what counts, and where it comes from
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// One JSON object per line, for programs
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

A line for each variable: its name, the value that counts, where that comes from (the environment,
another variable, or the default), and whatever is not as one would expect. A variable that cannot
be understood is told with what is expected, and the exit code is 1, as then nothing starts. Names
that are set and look like these, but are none of them, follow at the end.

JSON keys: variable, value (null when it cannot be understood), origin (environment, variable,
default, unknown for what looks like a variable and is none), from (the other variable, or null),
remark, error (null when there is none).";

const VARIABLES: &str = "Variables, and in brackets what holds without them:";

/// Does it.
pub fn run(arguments: &Arguments, outlet: &mut Outlet<'_>) -> io::Result<Exit> {
    let settings = config::settings();
    let strangers = config::strangers();
    let text = match arguments.json {
        true => {
            settings.iter().map(object).chain(strangers.iter().map(|name| stranger(name))).map(json::line).collect()
        }
        false => lines(&settings, &strangers),
    };
    outlet.out.write_all(text.as_bytes())?;
    let is_understood = settings.iter().all(|setting| setting.value.is_ok());
    Ok(if is_understood { Exit::Done } else { Exit::Other })
}

fn lines(settings: &[Setting], strangers: &[String]) -> String {
    let shown = |setting: &Setting| match &setting.value {
        Ok(value) if value.is_empty() => "-".to_owned(),
        Ok(value) => value.clone(),
        Err(error) => format!("\"{}\"", error.text),
    };
    let width = settings.iter().map(|setting| shown(setting).chars().count()).max().unwrap_or(0).min(WIDTH_MAX);
    let mut text = String::new();
    for setting in settings {
        let remark = match (&setting.value, &setting.remark) {
            (Err(error), _) => format!("; WRONG: expected {}", error.expected),
            (Ok(_), Some(remark)) => format!("; {remark}"),
            (Ok(_), None) => String::new(),
        };
        let (name, value, origin) = (setting.variable.name, shown(setting), origin(setting.origin));
        text += &format!("{name:<31}  {value:<width$}  {origin}{remark}\n");
    }
    for name in strangers {
        text += &format!("{name:<31}  {:<width$}  environment; {STRANGER}\n", "-");
    }
    text
}

/// Longer values do not push the others' origins to the right.
const WIDTH_MAX: usize = 40;

const STRANGER: &str = "no variable of Channel Access: is its name misspelt?";

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

fn stranger(name: &str) -> Map<String, Json> {
    let mut object = Map::new();
    object.insert("variable".into(), name.into());
    object.insert("value".into(), Json::Null);
    object.insert("origin".into(), "unknown".into());
    object.insert("from".into(), Json::Null);
    object.insert("remark".into(), STRANGER.into());
    object.insert("error".into(), Json::Null);
    object
}
