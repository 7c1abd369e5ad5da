//! `fodo put`: writes a PV and waits until its record has been processed.

use std::io;
use std::time::Instant;

use fodo_net::{
    Array, Channel, ChannelFacts, Error, ErrorKind, Kind, Meta, NodeValue, Protocol, PvRequest, Reading, Scalar, Text,
    Value,
};
use serde_json::Value as Json;

use super::put_fields::{self, FieldValues};
use super::{Readout, context_with_clus, fail, is_flat};
use crate::client::{
    CA_LABELS_MAX, ClientFlags, CluFileFlag, Deadline, META, ProtocolFlag, RequestFlag, ValueFlags, kind_name, meta_of,
    with_label,
};
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::show::{Columns, DisplayOptions, TableCell, is_long_string};
use crate::structure;

/// Write a PV
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The name, such as `x:motor`, `x:motor.DESC` or `pva://x:motor`
    #[arg(value_name = "PV")]
    pv: String,
    /// The value; several values make an array. An enum accepts a label or a number. FIELD=VALUE for a structure
    #[arg(required_unless_present = "from_json", value_name = "VALUE", allow_negative_numbers = true)]
    values: Vec<String>,
    /// The value as JSON: 1.5, "text", [1, 2, "nan"], or {"field": 1} for a structure
    #[arg(long, value_name = "JSON", conflicts_with = "values")]
    from_json: Option<String>,
    /// Do not wait for the end of processing; a refusal is not reported
    #[arg(long, conflicts_with = "request")]
    no_wait: bool,
    /// Print nothing; the exit code reports the result
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    request: RequestFlag,
    #[command(flatten)]
    protocol: ProtocolFlag,
    #[command(flatten)]
    client: ClientFlags,
    #[command(flatten)]
    clu: CluFileFlag,
    #[command(flatten)]
    value: ValueFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo put x:motor 12.5
  fodo put x:valve Open
  fodo put pva://x:motor 12.5
  fodo put --request 'record[process=true,block=true]' pva://x:scan 1
  fodo put x:wave 1 2 3
  fodo put x:wave --from-json '[1, 2, \"nan\"]'
  fodo put -S x:text.VAL$ 'a text longer than 39 bytes, as an array of char'
  fodo put x:offset -- -inf
  fodo put pva://x:table 'value.position=[1.5, 2]' descriptor='after the scan'
  fodo put pva://x:union 'value={\"text\": \"two\"}'

It waits until the record and all records it triggers have been processed, then prints the value
before and after. Numbers may be hexadecimal (0x1f). A value that is invalid or out of range is
rejected before anything is sent. With --request it waits only if the pvRequest contains block=true.

FIELD=VALUE writes a field of a structure of pvAccess, and no other field; fodo info shows the
fields. The value of an array, a structure or a union is JSON; that of a union names the member.

JSON keys: pv, old, new (each as for get), seconds (how long the put took).";

/// The PV before and after a put, unless `--quiet`, and the duration of the put in seconds.
pub type PutOutcome = (Option<Readout>, Option<Readout>, f64);

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let (pvs, timeout) = (std::slice::from_ref(&arguments.pv), arguments.client.timeout);
    let client = match context_with_clus(arguments.protocol, pvs, &arguments.clu, timeout, outlet)? {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    let protocol = client.protocol(&arguments.pv);
    let written = match client.channel(&arguments.pv) {
        Ok(channel) => write(arguments, protocol, &channel),
        Err(error) => Err(error),
    };
    let (old, new, seconds) = match written {
        Ok(written) => written,
        Err(error) => return fail(&arguments.pv, &error, arguments.client.json, outlet),
    };
    if arguments.quiet {
        return Ok(Exit::Done);
    }
    let look = arguments.value.look();
    if arguments.client.json {
        let mut object = json::Object::of(&arguments.pv);
        for (key, readout) in [("old", &old), ("new", &new)] {
            match readout {
                Some(Readout::Reading(reading)) => {
                    object.insert_object(key, json::reading(&arguments.pv, reading, &look));
                }
                Some(Readout::Structure(structure)) => {
                    object.insert_object(key, json::structure(&arguments.pv, structure));
                }
                None => object.insert(key, Json::Null),
            }
        }
        object.insert("seconds", seconds);
        writeln!(outlet.out, "{object}")?;
    } else {
        write_lines(&arguments.pv, old.as_ref(), new.as_ref(), &look, outlet.out)?;
    }
    Ok(Exit::Done)
}

/// Writes the value.
fn write(arguments: &Arguments, protocol: Protocol, channel: &Channel) -> Result<PutOutcome, Error> {
    let deadline = Deadline::after(arguments.client.timeout);
    let read = |meta: &Option<std::sync::Arc<Meta>>| -> Option<Readout> {
        // A PV that may be written but not read is still written.
        let reading = deadline.wait(channel.start_get(arguments.value.request())).ok()?;
        let reading = Reading { meta: meta.clone(), ..reading };
        Some(Readout::Reading(with_label(reading, &arguments.value, channel, &deadline)))
    };
    let connecting = channel.start_connect();
    let getting_meta = channel.start_get(META);
    let facts = deadline.wait(connecting)?;
    let meta = deadline.wait(getting_meta);
    let misuse = |reason: String| Error::misuse(arguments.pv.as_str(), reason, "");
    if let (Protocol::Pva, Err(error)) = (protocol, &meta)
        && matches!(error.kind(), ErrorKind::WrongReply { .. } | ErrorKind::Misuse { .. })
    {
        let kind = deadline.wait(channel.start_describe(""))?;
        if !is_flat(&kind) {
            let values = match &arguments.from_json {
                Some(text) => FieldValues::Json(text),
                None => FieldValues::Words(&arguments.values),
            };
            return put_fields::write(channel, kind, &values, &field_request(arguments), arguments.quiet, &deadline);
        }
    }
    let meta = meta_of(meta);
    let value = value(arguments, protocol, &facts, meta.as_deref()).map_err(misuse)?;
    let old = if arguments.quiet { None } else { read(&meta) };
    let start = Instant::now();
    match &arguments.request.request {
        Some(request) => {
            let fields = vec![("value".to_owned(), NodeValue::Value(value))];
            deadline.wait(channel.start_put_structure(request.clone(), fields))?;
        }
        None if arguments.no_wait => channel.put_unconfirmed_timeout(value, deadline.left())?,
        None => deadline.wait(channel.start_put(value))?,
    }
    let seconds = start.elapsed().as_secs_f64();
    let new = if arguments.quiet { None } else { read(&meta) };
    Ok((old, new, seconds))
}

/// The pvRequest of a put of fields.
fn field_request(arguments: &Arguments) -> PvRequest {
    arguments.request.request.clone().unwrap_or_else(|| {
        let mut request = PvRequest::default();
        if !arguments.no_wait {
            request.set_option("block", "true");
        }
        request
    })
}

fn write_lines(
    pv: &str,
    old: Option<&Readout>,
    new: Option<&Readout>,
    look: &DisplayOptions,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut rows = Vec::new();
    for (name, readout) in [("old", old), ("new", new)] {
        let mut row: Vec<TableCell<'_>> = vec![Box::new(name), Box::new(pv)];
        match readout {
            Some(Readout::Structure(structure)) => {
                writeln!(out, "{name}  {pv}  {}", structure::type_name(structure.kind()))?;
                out.write_all(structure::tree(structure, look).as_bytes())?;
                continue;
            }
            Some(Readout::Reading(reading)) => {
                row.push(Box::new(look.of(pv).value(reading)));
                row.push(Box::new(look.time(reading)));
                row.push(Box::new(look.alarm(reading)));
            }
            None => row.push(Box::new("(cannot be read)")),
        }
        rows.push(row);
    }
    let columns = Columns::of(&rows);
    rows.iter().try_for_each(|row| columns.write(row, out))
}

/// Converts the arguments to the native type of the PV.
fn value(
    arguments: &Arguments,
    protocol: Protocol,
    facts: &ChannelFacts,
    meta: Option<&Meta>,
) -> Result<Value, String> {
    if !facts.may_write {
        // The server refuses the put, so that the exit code is that of a refusal.
        return Ok(Value::from(""));
    }
    let is_text =
        (arguments.value.string || is_long_string(&arguments.pv)) && matches!(facts.kind, Kind::U8 | Kind::I8);
    let given: Vec<Scalar> = match &arguments.from_json {
        Some(text) => from_json(text)?,
        None => arguments.values.iter().map(|word| Scalar::Text(word.as_str().into())).collect(),
    };
    // pvAccess does not report the maximum length of an array.
    let n_max = if facts.count_max == 0 { usize::MAX } else { facts.count_max as usize };
    if is_text {
        let texts: Vec<String> = given.iter().map(|scalar| scalar.to_text(None).to_str().into_owned()).collect();
        let mut bytes = texts.join(" ").into_bytes();
        bytes.push(0);
        check_length(bytes.len(), n_max, "bytes including the terminating zero")?;
        return Ok(match facts.kind {
            Kind::I8 => Value::Array(Array::I8(std::sync::Arc::new(bytes.into_iter().map(u8::cast_signed).collect()))),
            _ => bytes.into(),
        });
    }
    check_length(given.len(), n_max, "elements")?;
    let mut kind = arguments.value.kind.map_or(facts.kind, crate::client::RequestedType::kind);
    let is_unknown = |scalar: &Scalar| scalar.to_kind(Kind::Enum, meta).is_err();
    if kind == Kind::Enum
        && protocol == Protocol::Ca
        && meta.is_some_and(|meta| meta.labels.len() == CA_LABELS_MAX)
        && given.iter().any(is_unknown)
    {
        // The server may have more states, whose labels Channel Access does not transmit.
        kind = Kind::Text;
    }
    let mut scalars = Vec::with_capacity(given.len());
    for scalar in &given {
        scalars.push(convert(scalar, kind, protocol, meta)?);
    }
    match (scalars.as_slice(), facts.count_max) {
        ([scalar], 1) => Ok(Value::Scalar(scalar.clone())),
        _ => Ok(Value::Array(array(scalars, kind))),
    }
}

fn check_length(n: usize, n_max: usize, what: &str) -> Result<(), String> {
    if n <= n_max { Ok(()) } else { Err(format!("the value has {n} {what}, but the PV holds at most {n_max}")) }
}

fn convert(scalar: &Scalar, kind: Kind, protocol: Protocol, meta: Option<&Meta>) -> Result<Scalar, String> {
    if let (Scalar::Text(text), false) = (scalar, kind == Kind::Text)
        && text.to_str().trim().is_empty()
    {
        return Err(format!("\"{text}\" is not a valid {}", kind_name(kind)));
    }
    if let Scalar::Text(text) = scalar
        && !is_whole_number_text(&text.to_str(), kind)
    {
        let hint = if text.to_str().starts_with('[') {
            "; write the elements as separate words, 1 2 3, or use --from-json"
        } else if text.to_str().contains('=') {
            "; FIELD=VALUE is only for structures of pvAccess, and this PV is not one"
        } else {
            ""
        };
        return Err(format!("\"{text}\" is not a number; the PV is of type {}{hint}", kind_name(kind)));
    }
    let converted = scalar.to_kind(kind, meta).map_err(|error| match (kind, meta) {
        (Kind::Enum, Some(meta)) if !meta.labels.is_empty() => {
            let labels: Vec<String> = meta.labels.iter().map(|label| format!("\"{label}\"")).collect();
            format!("{error}; the states are {}", labels.join(", "))
        }
        _ => format!("{error}; the PV is of type {}", kind_name(kind)),
    })?;
    match &converted {
        Scalar::Text(text) if protocol == Protocol::Ca && text.len() > fodo_data::STRING_BYTES_MAX => Err(format!(
            "a string holds at most {} bytes, this one has {}: append $ to the name of the field and use \
             --string",
            fodo_data::STRING_BYTES_MAX,
            text.len()
        )),
        _ => Ok(converted),
    }
}

/// Whether a whole text is a number of this kind; always true for strings and enums.
///
/// Servers parse only the start of a text, so it is checked here.
fn is_whole_number_text(text: &str, kind: Kind) -> bool {
    let text = text.trim();
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let hexadecimal = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"));
    match kind {
        Kind::Text | Kind::Enum => true,
        Kind::F32 | Kind::F64 => hexadecimal.is_some() || text.parse::<f64>().is_ok(),
        _ => {
            hexadecimal.unwrap_or(unsigned).bytes().all(|byte| byte.is_ascii_hexdigit()) && {
                hexadecimal.is_some() || unsigned.bytes().all(|byte| byte.is_ascii_digit())
            }
        }
    }
}

fn array(scalars: Vec<Scalar>, kind: Kind) -> Array {
    macro_rules! collect {
        ($variant:ident) => {{
            let elements = scalars.into_iter().filter_map(|scalar| match scalar {
                Scalar::$variant(element) => Some(element),
                _ => None,
            });
            Array::$variant(std::sync::Arc::new(elements.collect()))
        }};
    }
    match kind {
        Kind::Bool => collect!(Bool),
        Kind::I8 => collect!(I8),
        Kind::U8 => collect!(U8),
        Kind::I16 => collect!(I16),
        Kind::U16 => collect!(U16),
        Kind::I32 => collect!(I32),
        Kind::U32 => collect!(U32),
        Kind::I64 => collect!(I64),
        Kind::U64 => collect!(U64),
        Kind::F32 => collect!(F32),
        Kind::F64 => collect!(F64),
        Kind::Enum => collect!(Enum),
        Kind::Text => collect!(Text),
    }
}

/// The elements of a JSON value: a number, a string, true or false, or an array of those.
fn from_json(text: &str) -> Result<Vec<Scalar>, String> {
    let json: Json = serde_json::from_str(text).map_err(|error| format!("{text} is not valid JSON: {error}"))?;
    let elements = match json {
        Json::Array(elements) => elements,
        element => vec![element],
    };
    let element = |json: Json| match json {
        Json::String(text) => Ok(Scalar::Text(Text::from(text))),
        // Converted through its text, so that it passes the same checks as an argument.
        Json::Number(number) => Ok(Scalar::Text(Text::from(number.to_string()))),
        Json::Bool(is_true) => Ok(Scalar::Text(if is_true { "1" } else { "0" }.into())),
        other => Err(format!("{other} is not a PV value")),
    };
    elements.into_iter().map(element).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use fodo_net::{Context, PvTable, Server, ServerConfig, SharedStructure, Structure, StructureBuilder};
    use std::net::SocketAddr;
    use std::sync::Arc;

    #[derive(Parser)]
    struct ValueProgram {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn put(line: &[&str], kind: Kind, count_max: u32) -> Result<Value, String> {
        put_over(Protocol::Ca, line, kind, count_max)
    }

    fn put_over(protocol: Protocol, line: &[&str], kind: Kind, count_max: u32) -> Result<Value, String> {
        let arguments = ValueProgram::try_parse_from(["put", "pv"].iter().chain(line)).unwrap().arguments;
        let server = SocketAddr::from(([127, 0, 0, 1], 5064));
        let facts = ChannelFacts { server, kind, count_max, may_read: true, may_write: true, tls: None };
        let labels = vec!["Off".into(), "On".into()];
        let meta = Meta { labels: if kind == Kind::Enum { labels } else { Vec::new() }, ..Meta::default() };
        value(&arguments, protocol, &facts, Some(&meta))
    }

    #[test]
    fn put_converts_arguments_to_the_pv_type() {
        assert_eq!(put(&["-1.5"], Kind::F64, 1), Ok((-1.5).into()));
        assert_eq!(put(&["0x1f"], Kind::I32, 1), Ok(31.into()));
        assert_eq!(put(&["On"], Kind::Enum, 1), Ok(Value::Scalar(Scalar::Enum(1))));
        assert_eq!(put(&["1", "2"], Kind::F64, 5), Ok(vec![1.0, 2.0].into()));
        assert_eq!(put(&["1"], Kind::F64, 5), Ok(vec![1.0].into()));
        assert_eq!(put(&["nan"], Kind::F64, 1).map(|value| value.len()), Ok(1));
        assert_eq!(put(&["-S", "two", "words"], Kind::U8, 20), Ok(b"two words\0".to_vec().into()));
    }

    #[test]
    fn a_put_over_pvaccess_has_no_length_limit() {
        let put = |line: &[&str], kind| put_over(Protocol::Pva, line, kind, 0);

        assert_eq!(put(&["1"], Kind::F64), Ok(vec![1.0].into()));
        assert_eq!(put(&["1", "2", "3"], Kind::I8), Ok(Value::Array(Array::I8(vec![1, 2, 3].into()))));
        assert_eq!(put(&["-S", "a"], Kind::I8), Ok(Value::Array(Array::I8(vec![97, 0].into()))));
        assert!(put_over(Protocol::Pva, &[&"x".repeat(40)], Kind::Text, 1).is_ok());
    }

    #[test]
    fn put_converts_json_to_the_pv_type() {
        assert_eq!(put(&["--from-json", "[1, 2.0]"], Kind::F32, 5), Ok(vec![1.0_f32, 2.0].into()));
        assert_eq!(put(&["--from-json", "\"On\""], Kind::Enum, 1), Ok(Value::Scalar(Scalar::Enum(1))));
        assert_eq!(put(&["--from-json", "[]"], Kind::I32, 5), Ok(Vec::<i32>::new().into()));
        assert!(put(&["--from-json", "[1"], Kind::F64, 5).unwrap_err().contains("not valid JSON"));
        assert!(put(&["--from-json", "{}"], Kind::F64, 5).unwrap_err().contains("not a PV value"));
    }

    #[test]
    fn put_rejects_invalid_values_with_a_reason() {
        assert!(put(&["1.5"], Kind::I32, 1).unwrap_err().contains("the PV is of type long"));
        assert!(put(&["70000"], Kind::I16, 1).unwrap_err().contains("is out of range"));
        assert!(put(&["Ajar"], Kind::Enum, 1).unwrap_err().contains("the states are \"Off\", \"On\""));
        assert!(put(&["1", "2"], Kind::F64, 1).unwrap_err().contains("the PV holds at most 1"));
        assert!(put(&[""], Kind::F64, 1).is_err());
        assert!(put(&[&"x".repeat(40)], Kind::Text, 1).unwrap_err().contains("39 bytes"));
        assert!(put(&["value=1"], Kind::F64, 1).unwrap_err().contains("only for structures of pvAccess"));
    }

    #[test]
    fn a_put_writes_the_named_fields_of_a_structure() {
        let mut build = StructureBuilder::new("scan_t");
        build.scalar("n", Kind::I32).array("points", Kind::F64);
        let pv = SharedStructure::builder(Structure::new(build.finish().into())).on_put(|put, _| Ok(put)).build();
        let server = Server::start(ServerConfig::isolated(), Arc::new(PvTable::from([("s", pv.clone())]))).unwrap();
        let channel = Context::new(server.client_config()).channel("pva://s").unwrap();
        let put = |words: &[&str]| {
            let line = ["put", "pva://s"].iter().chain(words);
            write(&ValueProgram::try_parse_from(line).unwrap().arguments, Protocol::Pva, &channel)
        };

        let (old, new, _) = put(&["points=[1, 2.5]"]).unwrap();
        put(&["n=7", "--no-wait", "--quiet"]).unwrap();
        let error = put(&["3"]).unwrap_err();

        let points = |readout| match readout {
            Some(Readout::Structure(structure)) => structure.get("points").cloned(),
            _ => None,
        };
        assert_eq!((points(old), points(new)), (Some(Vec::<f64>::new().into()), Some(vec![1.0, 2.5].into())));
        let written = channel.get_structure(&PvRequest::default()).unwrap();
        assert_eq!((written.get("n"), written.get("points")), (Some(&7.into()), Some(&vec![1.0, 2.5].into())));
        assert!(matches!(error.kind(), ErrorKind::Misuse { reason, .. } if reason.contains("FIELD=VALUE")), "{error}");
    }
}
