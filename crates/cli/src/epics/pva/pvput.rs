//! `pvput`: writes a PV of pvAccess and prints it before and after.

use std::io;

use fodo_net::{NodeKind, Structure, Value};

use super::assign::{assign_json, at_index, changed_fields, list_elements, parsed, parsed_array};
use super::client::{StructureClient, message};
use super::options::PvOptions;
use super::pvdata::{self, OutputMode, PrintOptions};
use super::pvget::all;
use crate::epics::{OutputStreams, getopt};
use crate::local_time::Clock;

pub(super) const FLAGS: &str = "hvVM:r:w:tp:qdF:f:ns";

/// The text of `-h`; the flags are those of pvput.
pub(super) const HELP: &str = "
pvput [flags] PV VALUE:                 write the field value, and print it before and after
pvput [flags] PV IGNORED VALUE VALUE...: write an array; the first word is ignored
pvput [flags] PV '[VALUE, ...]':        write an array
pvput [flags] PV FIELD=VALUE...:        write these fields; a value may be [..] or JSON {..}
pvput [flags] PV '{\"FIELD\": VALUE}':    write the fields that a JSON object names

  -h          this help                -V          version
  -r REQUEST  pvRequest, such as 'record[process=true]'
  -w SECONDS  timeout of each step (5; 0: none)
  -M MODE     nt (values of known types on one line), raw (all fields), json (JSON5, one line)
  -v          all fields, as -M raw    -q          print only the value after the put
  -p PROVIDER only pva
  -n -s -t -d, -F CHAR                 accepted without effect: an enum accepts a label or a number
  -f FILE     refused, as by the original

Environment: EPICS_PVA_ADDR_LIST and related variables (see fodo get --help)
Exit codes: 0 written, 1 timeout, invalid value, refused by the server, or invalid flags

Example: pvput my:pv 1.5
";

/// Runs the tool; returns its exit code.
pub fn run(
    arguments: &[String],
    client: &mut dyn StructureClient,
    clock: &Clock,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<u8> {
    let (flags, words) = getopt::parse(arguments, FLAGS, true);
    let mut options = PvOptions::new("pvput", 5);
    for flag in &flags {
        if let Err(code) = options.take(flag, HELP, outlet)? {
            return Ok(code);
        }
    }
    if options.verbosity > 0 {
        options.mode = OutputMode::Raw;
    }
    let Some((name, values)) = words.split_first() else {
        writeln!(outlet.err, "No pv name specified. ('pvput -h' for help.)")?;
        return Ok(1);
    };
    if values.is_empty() {
        writeln!(outlet.err, "No value(s) specified. ('pvput -h' for help.)")?;
        return Ok(1);
    }
    let Some(request) = options.pv_request(outlet)? else { return Ok(1) };
    let print = |label: &str, structure: &Structure, outlet: &mut OutputStreams<'_>| {
        let shown = all();
        let print = PrintOptions { mode: options.mode, shown: &shown, highlighted: None, clock };
        write!(outlet.out, "{label}{}", pvdata::text(structure, &print))
    };
    let get = |client: &mut dyn StructureClient| {
        client
            .get(std::slice::from_ref(name), &request, options.timeout)
            .pop()
            .unwrap_or_else(|| Err(fodo_net::Error::misuse(name.as_str(), "no result", "")))
    };
    let old = match get(client) {
        Ok(old) => old,
        Err(error) => {
            if !options.is_quiet {
                write!(outlet.out, "Old : ")?;
            }
            writeln!(outlet.err, "Error: {}", message(&error))?;
            return Ok(1);
        }
    };
    if !options.is_quiet {
        print("Old : ", &old, outlet)?;
    }
    let mut assigned = Structure::new(old.kind().clone());
    let written = match assign(&mut assigned, values, &old, outlet)? {
        Ok(()) => {
            client.put(name, &request, changed_fields(&assigned), options.timeout).map_err(|error| message(&error))
        }
        Err(reason) => Err(reason),
    };
    if let Err(reason) = &written {
        writeln!(outlet.err, "Error: {reason}")?;
    }
    match get(client) {
        Ok(new) => print(if options.is_quiet { "" } else { "New : " }, &new, outlet)?,
        Err(error) => {
            writeln!(outlet.err, "Error: {}", message(&error))?;
            return Ok(1);
        }
    }
    Ok(u8::from(written.is_err()))
}

/// Assigns the words of the command line. The inner `Err` is what is wrong with them; a field that cannot be assigned
/// is reported and left out.
fn assign(
    into: &mut Structure,
    words: &[String],
    old: &Structure,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Result<(), String>> {
    let is_pair = |word: &String| word.contains('=');
    if let [json] = words
        && json.starts_with('{')
    {
        return Ok(parse_json(json).and_then(|json| assign_json(into, 0, &json)));
    }
    if let [list] = words
        && list.starts_with('[')
    {
        return assign_pairs(into, &[("value", list)], outlet);
    }
    if words.iter().all(is_pair) {
        let pairs: Vec<(&str, &str)> = words.iter().filter_map(|word| word.split_once('=')).collect();
        return assign_pairs(into, &pairs, outlet);
    }
    if words.iter().any(is_pair) {
        return Ok(Err("Can't mix bare values and field=value pairs".to_owned()));
    }
    Ok(assign_bare(into, words, old))
}

fn parse_json(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text).map_err(|error| format!("invalid JSON: {error}"))
}

/// Assigns words to the field `value`.
fn assign_bare(into: &mut Structure, words: &[String], old: &Structure) -> Result<(), String> {
    let kind = into.kind().clone();
    let bit = kind.member(0, b"value").ok_or("Structure has no .value")?;
    let failed = |error: super::assign::NotANumber| format!("parseToPOD: {}", error.words());
    let set = |into: &mut Structure, bit, value| into.set_value(bit, value).map_err(|error| error.to_string());
    match (&kind.nodes()[bit].kind, words) {
        (NodeKind::Scalar(scalar), [word]) => {
            let element = parsed(*scalar, word).map_err(failed)?;
            set(into, bit, Value::Scalar(element))
        }
        (NodeKind::Scalar(_), _) => Err("Can't assign multiple values to scalar".to_owned()),
        (NodeKind::Array { kind: element, .. }, words) => {
            let elements = words.get(1..).unwrap_or_default();
            let value = parsed_array(*element, elements).map_err(|(index, error)| at_index(index, error))?;
            set(into, bit, value)
        }
        (NodeKind::Structure { id }, words) if id.as_bytes() == b"enum_t" => {
            let [word] = words else { return Err("Can't assign multiple values to enum".to_owned()) };
            let index_bit = kind.member(bit, b"index").ok_or("the enum has no index")?;
            let choices = match old.get("value.choices") {
                Some(Value::Array(fodo_net::Array::Text(choices))) => choices.clone(),
                _ => Default::default(),
            };
            let of_label = choices.iter().position(|choice| choice.as_bytes() == word.as_bytes());
            let value = match of_label.and_then(|index| i32::try_from(index).ok()) {
                Some(index) => index.into(),
                None => Value::Scalar(parsed(fodo_net::Kind::I32, word).map_err(failed)?),
            };
            set(into, index_bit, value)
        }
        _ => Err("Don't know how to set field .value".to_owned()),
    }
}

fn assign_pairs(
    into: &mut Structure,
    pairs: &[(&str, &str)],
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Result<(), String>> {
    let kind = into.kind().clone();
    let mut n_fields = 0;
    for (path, text) in pairs {
        let Some(bit) = kind.node(path).filter(|_| !path.is_empty()) else {
            writeln!(outlet.err, "{path} : Warning: no such field. Ignoring it.")?;
            continue;
        };
        n_fields += 1;
        let assigned = match &kind.nodes()[bit].kind {
            NodeKind::Array { kind: element, .. } if text.starts_with('[') => {
                let Some(elements) = list_elements(text) else {
                    writeln!(outlet.err, "Unexpected end of input: ")?;
                    return Ok(Err("Unexpected end of input".to_owned()));
                };
                parsed_array(*element, &elements)
                    .map_err(|(index, error)| at_index(index, error))
                    .and_then(|value| into.set_value(bit, value).map_err(|error| error.to_string()))
            }
            NodeKind::Scalar(scalar) => parsed(*scalar, text)
                .map_err(|error| format!("parseToPOD: {}", error.words()))
                .and_then(|element| into.set_value(bit, Value::Scalar(element)).map_err(|error| error.to_string())),
            _ if text.starts_with(['{', '[']) => parse_json(text).and_then(|json| assign_json(into, bit, &json)),
            _ => {
                writeln!(outlet.err, "{path} : Error: need a scalar field")?;
                continue;
            }
        };
        if let Err(reason) = assigned {
            return Ok(Err(reason));
        }
    }
    Ok(if n_fields == 0 { Err("No valid value(s) specified".to_owned()) } else { Ok(()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_net::NodeValue;

    #[test]
    fn an_enum_is_assigned_by_its_label_or_number() {
        let mut build = fodo_net::StructureBuilder::new("epics:nt/NTEnum:1.0");
        build.open("value", "enum_t").scalar("index", fodo_net::Kind::I32).array("choices", fodo_net::Kind::Text);
        let mut old = Structure::new(build.finish().into());
        let choices = ["Off", "On"].map(fodo_net::Text::from).to_vec();
        old.set("value.choices", Value::Array(fodo_net::Array::Text(choices.into()))).unwrap();

        for (word, index) in [("On", 1), ("0", 0)] {
            let mut into = Structure::new(old.kind().clone());
            assign_bare(&mut into, &[word.to_owned()], &old).unwrap();
            assert_eq!(changed_fields(&into), [("value.index".to_owned(), NodeValue::Value(index.into()))], "{word}");
        }
    }

    #[test]
    fn a_put_reports_what_its_words_cannot_be_assigned_to() {
        let mut build = fodo_net::StructureBuilder::new("");
        build.scalar("value", fodo_net::Kind::I32).array("list", fodo_net::Kind::F64).open("sub", "").close();
        let old = Structure::new(build.finish().into());
        let assigned = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            let (mut out, mut err, mut into) = (Vec::new(), Vec::new(), old.clone());
            let mut outlet = OutputStreams { out: &mut out, err: &mut err };
            let result = assign(&mut into, &words, &old, &mut outlet).unwrap();
            (result.map(|()| changed_fields(&into).len()), String::from_utf8(err).unwrap())
        };
        let failed = |reason: &str, err: &str| (Err(reason.to_owned()), err.to_owned());

        assert_eq!(assigned(&["5"]), (Ok(1), String::new()));
        assert_eq!(assigned(&["value=5", "list=[1, 2]"]), (Ok(2), String::new()));
        assert_eq!(assigned(&["{\"value\":1}"]), (Ok(1), String::new()));
        assert_eq!(assigned(&["5", "6"]), failed("Can't assign multiple values to scalar", ""));
        assert_eq!(assigned(&["value=5", "6"]), failed("Can't mix bare values and field=value pairs", ""));
        let unknown = " : Warning: no such field. Ignoring it.\n";
        assert_eq!(assigned(&["other=5"]), failed("No valid value(s) specified", &format!("other{unknown}")));
        assert_eq!(assigned(&["=5"]), failed("No valid value(s) specified", unknown));
        assert_eq!(assigned(&["other=5", "value=1"]), (Ok(1), format!("other{unknown}")));
        assert_eq!(assigned(&["sub=5"]), (Ok(0), "sub : Error: need a scalar field\n".to_owned()));
        assert_eq!(assigned(&["list=[1"]), failed("Unexpected end of input", "Unexpected end of input: \n"));
        assert_eq!(assigned(&["value=x"]), failed("parseToPOD: No digits to convert", ""));
        assert!(assigned(&["{"]).0.unwrap_err().starts_with("invalid JSON: "));
    }
}
