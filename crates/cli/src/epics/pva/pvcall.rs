//! `pvcall`: calls a procedure of pvAccess.

use std::io;

use fodo_net::{Array, Kind, NodeKind, Structure, StructureBuilder, Value};

use super::assign::{copy, list_elements, structure_of_json};
use super::client::{StructureClient, message};
use super::options::PvOptions;
use super::pvdata::{self, PrintOptions};
use super::pvget::all;
use crate::epics::{OutputStreams, getopt};
use crate::local_time::Clock;

pub(super) const FLAGS: &str = "hvVM:r:w:p:ds:a:";

/// The text of `-h`; the flags are those of pvcall.
pub(super) const HELP: &str = "
pvcall [flags] PV NAME=VALUE...: call a procedure of pvAccess, as pvcall of EPICS Base

The argument is an NTURI whose query has the named values: texts, [..] an array of texts, {..} a
JSON object.

  -h          this help                -V          version
  -w SECONDS  timeout (5; 0: none)     -v          also print the argument
  -M MODE     nt (values of known types on one line), raw (all fields), json (JSON5, one line)
  -s PV       older form of the name   -a NAME=VALUE  older form of an argument
  -p PROVIDER only pva                 -r REQUEST, -d: accepted without effect

Environment: EPICS_PVA_ADDR_LIST and related variables (see fodo get --help)
Exit codes: 0 called, 1 timeout, refused by the server, or invalid flags

Example: pvcall my:add lhs=1 rhs=2
";

/// Runs the tool; returns its exit code.
pub fn run(
    arguments: &[String],
    client: &mut dyn StructureClient,
    clock: &Clock,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<u8> {
    let (flags, mut words) = getopt::parse(arguments, FLAGS, false);
    let mut options = PvOptions::new("pvcall", 5);
    let (mut name, mut pairs) = (None, Vec::new());
    for flag in &flags {
        match options.take(flag, HELP, outlet)? {
            Ok(Some(('s', text))) => name = Some(text.to_owned()),
            Ok(Some(('a', pair))) => pairs.push(pair.to_owned()),
            Ok(_) => {}
            Err(code) => return Ok(code),
        }
    }
    if name.is_none() && !words.is_empty() {
        name = Some(words.remove(0));
    }
    let Some(name) = name else {
        // As the original prints it.
        writeln!(outlet.err, "No pv name specified. ('pvput -h' for help.)")?;
        return Ok(1);
    };
    pairs.append(&mut words);
    if options.pv_request(outlet)?.is_none() {
        return Ok(1);
    }
    let argument = match argument(&name, &pairs, value) {
        Ok(argument) => argument,
        Err(pair) => {
            writeln!(outlet.err, "Error parsing argument '{pair}'")?;
            return Ok(1);
        }
    };
    let shown = all();
    let print = PrintOptions { mode: options.mode, shown: &shown, highlighted: None, clock };
    if options.verbosity > 0 {
        write!(outlet.out, "# Argument\n{}", pvdata::text(&argument, &print))?;
    }
    match client.call(&name, argument, options.timeout) {
        Ok(result) => {
            if options.verbosity > 0 {
                writeln!(outlet.out, "# Result")?;
            }
            if !is_nothing(&result) {
                outlet.out.write_all(pvdata::text(&result, &print).as_bytes())?;
            }
            Ok(0)
        }
        Err(error) => {
            let is_timeout = super::client::is_timeout(&error);
            writeln!(outlet.err, "{}{}", if is_timeout { "" } else { "Error: " }, message(&error))?;
            Ok(1)
        }
    }
}

/// Whether a procedure has returned nothing.
pub fn is_nothing(result: &Structure) -> bool {
    result.kind().nodes().len() == 1 && result.kind().id().is_empty() && result.kind().is_structure()
}

/// The argument of a call, whose texts `value_of` converts. The error is the word that is not a valid argument.
pub fn argument(
    name: &str,
    pairs: &[String],
    value_of: impl Fn(&str) -> Option<Structure>,
) -> Result<Structure, String> {
    let mut values: Vec<(&str, Structure)> = Vec::new();
    for pair in pairs {
        let (key, text) = pair.split_once('=').ok_or(pair)?;
        let value = value_of(text).ok_or(pair)?;
        match values.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => values.push((key, value)),
        }
    }
    let mut build = StructureBuilder::new("epics:nt/NTURI:1.0");
    build.scalar("scheme", Kind::Text).scalar("authority", Kind::Text).scalar("path", Kind::Text).open("query", "");
    for (key, value) in &values {
        build.member(*key, value.kind());
    }
    let mut argument = Structure::new(build.finish().into());
    let kind = argument.kind().clone();
    let query = kind.member(0, b"query").into_iter().flat_map(|query| kind.members(query).collect::<Vec<_>>());
    for (bit, (_, value)) in query.zip(&values) {
        copy(&mut argument, bit, value);
    }
    for (path, text) in [("scheme", "pva"), ("path", name)] {
        // Both exist and are texts.
        let _ = argument.set(path, text);
    }
    Ok(argument)
}

/// The value of an argument: a text, an array of texts, or a structure. The original has no arrays of numbers.
pub fn value(text: &str) -> Option<Structure> {
    if text.len() >= 2 && text.starts_with('[') && text.ends_with(']') {
        let elements = list_elements(text)?.into_iter().map(|element| element.as_str().into()).collect::<Vec<_>>();
        return Some(Structure::single(Value::Array(Array::Text(elements.into()))));
    }
    if text.len() >= 2 && text.starts_with('{') && text.ends_with('}') {
        let structure = structure_of_json(&serde_json::from_str(text).ok()?)?;
        return matches!(structure.kind().nodes()[0].kind, NodeKind::Structure { .. }).then_some(structure);
    }
    Some(Structure::single(text.into()))
}
