//! `caput`: writes a PV and prints its value before and after.

use std::io;

use fodo_net::{Array, ChannelFacts, Detail, Error, ErrorKind, Kind, Reading, Refusal, Scalar, Text, Value};

use super::OutputStreams;
use super::dbr::Dbr;
use super::escape;
use super::format;
use super::getopt::{self, Flag};
use super::options::{CommonOptions, handle_common, leading_f64};
use super::plant::{ToolClient, connect_all};
use super::status;
use crate::limit;
use crate::local_time::Clock;

pub(super) const FLAGS: &str = "cnlhatsVS#:w:p:F:";

/// The text of `-h`.
pub(super) const HELP: &str = "
caput [flags] PV VALUE...: write a PV and print it before and after, with the output of EPICS caput
caput -a [flags] PV N VALUE...: the same for an array; N is ignored

  -h          this help                -V          version
  -w SECONDS  timeout (1; 0: none)     -p NUMBER   priority of the circuit (0 to 99)
  -c          wait until the record's processing is complete
  -t          print only the new value -l          name, time, value, status, severity
  -n          enums are numbers        -s          enums are strings
  -a          write an array           -S          write a string as an array of char
  -F CHAR     field separator          -# COUNT    ignored

As EPICS caput, it knows the first 16 states of a PV only, and sends the number at the start of any other
text: \".1 second\" to a SCAN with more rates is 0, Passive. fodo put sends the text.

Environment: EPICS_CA_ADDR_LIST and related variables, EPICS_CLI_TIMEOUT (see fodo get --help)
Exit codes: 0 written, 1 not found, not written or invalid flags

Example: caput my:channel 1.2
";

/// The output format of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CaputLayout {
    Plain,
    Terse,
    Long,
}

/// How enum values are interpreted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EnumInput {
    Either,
    Numbers,
    Labels,
}

struct CaputOptions {
    common: CommonOptions,
    layout: CaputLayout,
    states: EnumInput,
    is_array: bool,
    waits: bool,
}

/// Runs the tool; returns its exit code.
pub fn run(
    arguments: &[String],
    plant: &mut dyn ToolClient,
    clock: &Clock,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<u8> {
    // A value may begin with a dash, so the first argument that is not a flag ends the flags.
    let (flags, words) = getopt::parse(arguments, FLAGS, true);
    let options = match options(&flags, clock, outlet)? {
        Ok(options) => options,
        Err(code) => return Ok(code),
    };
    let (name, words) = match words.split_first() {
        None => {
            writeln!(outlet.err, "No pv name specified. ('caput -h' for help.)")?;
            return Ok(1);
        }
        Some((_, [])) => {
            writeln!(outlet.err, "No value specified. ('caput -h' for help.)")?;
            return Ok(1);
        }
        Some((name, words)) => (name, words),
    };
    let names = std::slice::from_ref(name);
    let connected = connect_all(plant, names, &options.common, outlet.err)?;
    let Some([facts]) = connected.as_deref() else { return Ok(1) };
    let Some(value) = value(words, facts, &options, plant, outlet)? else { return Ok(1) };
    write(name, value, facts, &options, plant, outlet)
}

fn write(
    name: &str,
    value: Value,
    facts: &ChannelFacts,
    options: &CaputOptions,
    plant: &mut dyn ToolClient,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<u8> {
    if options.layout != CaputLayout::Terse {
        outlet.out.write_all(b"Old : ")?;
        print(name, facts, options, plant, outlet)?;
        outlet.out.flush()?;
    }
    // The tools check both before they send a request.
    let fault = match () {
        () if !facts.may_write => Some("Write access denied"),
        () if value.is_empty() || value.len() > facts.count_max as usize => Some("Invalid element count requested"),
        () => None,
    };
    if let Some(fault) = fault {
        writeln!(outlet.err, "{} from put operation: {fault}", error_mark())?;
        return Ok(1);
    }
    match plant.write(0, value, options.waits, options.common.timeout()) {
        Ok(()) => {}
        Err(error) if is_timeout(&error) && options.waits => {
            writeln!(outlet.err, "Write callback operation timed out")?
        }
        Err(error) if is_timeout(&error) => {
            writeln!(outlet.err, "Write operation timed out: Data was not written.")?;
            return Ok(1);
        }
        Err(error) => {
            writeln!(outlet.err, "{} occured writing data: {}", error_mark(), reason(&error))?;
            return Ok(1);
        }
    }
    if options.layout != CaputLayout::Terse {
        outlet.out.write_all(b"New : ")?;
    }
    print(name, facts, options, plant, outlet)?;
    Ok(0)
}

/// The tools colour this word even if the output is not a terminal.
fn error_mark() -> &'static str {
    "\x1b[31;1mERROR\x1b[0m"
}

/// Whether a server that has the PV did not reply in time.
fn is_timeout(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoReply { .. })
}

fn reason(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Refused { refusal: Refusal::Status { status, .. }, .. } => status::message(*status),
        ErrorKind::Refused { refusal: Refusal::WriteAccess, .. } => "Write access denied".to_owned(),
        ErrorKind::Misuse { reason, .. } => reason.clone(),
        _ => "Virtual circuit disconnect".to_owned(),
    }
}

fn print(
    name: &str,
    facts: &ChannelFacts,
    options: &CaputOptions,
    plant: &mut dyn ToolClient,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<()> {
    let style = &options.common.style;
    let request = style.request_type(facts.kind, false).request(facts.count_max);
    let reading = plant.read(&[(0, request)], options.common.timeout()).pop();
    let (head, complaint) = match (&reading, options.layout) {
        (Some(Ok(reading)), CaputLayout::Long) => {
            let stamp = style.clock.for_epics(reading.time);
            let head = style.name(name, reading.value.len());
            return writeln!(outlet.out, "{head}{}", style.wide(&stamp, reading));
        }
        (Some(Ok(reading)), layout) => {
            let head = head(name, options, layout, reading);
            return writeln!(outlet.out, "{head}{}", style.counted_value(&reading.value));
        }
        (Some(Err(error)), layout) => {
            if is_timeout(error) {
                writeln!(outlet.err, "Read operation timed out: PV data was not read.")?;
            }
            let head =
                if layout == CaputLayout::Terse { String::new() } else { style.name(name, facts.count_max as usize) };
            (head, format::error_text(error))
        }
        (None, _) => (String::new(), String::new()),
    };
    writeln!(outlet.out, "{head}{complaint}")
}

fn head(name: &str, options: &CaputOptions, layout: CaputLayout, reading: &Reading) -> String {
    if layout == CaputLayout::Terse { String::new() } else { options.common.style.name(name, reading.value.len()) }
}

/// The value to write; `None` after an error has been printed.
fn value(
    words: &[String],
    facts: &ChannelFacts,
    options: &CaputOptions,
    plant: &mut dyn ToolClient,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Option<Value>> {
    let words: Vec<String> = if options.is_array { words[1..].to_vec() } else { vec![words.join(" ")] };
    if facts.kind == Kind::Enum {
        return enum_value(&words, options, plant, outlet);
    }
    if options.common.style.chars_as_text {
        let mut bytes = escape::raw(&words.concat(), limit::LONG_STRING_BYTES);
        bytes.push(0);
        return Ok(Some(bytes.into()));
    }
    Ok(Some(texts(&words)))
}

fn texts(words: &[String]) -> Value {
    let texts: Vec<Text> =
        words.iter().map(|word| Text::from_bytes(&escape::raw(word, fodo_data::STRING_BYTES_MAX))).collect();
    match texts.as_slice() {
        [text] => Value::Scalar(Scalar::Text(text.clone())),
        _ => Value::Array(Array::Text(texts.into())),
    }
}

/// Interprets words as labels or numbers, according to the flags and the states of the enum.
fn enum_value(
    words: &[String],
    options: &CaputOptions,
    plant: &mut dyn ToolClient,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Option<Value>> {
    let request = Dbr::of(Kind::Enum, Detail::Graphic).request(1);
    let Some(Ok(reading)) = plant.read(&[(0, request)], options.common.timeout()).pop() else {
        writeln!(outlet.err, "Read operation timed out: ENUM data was not read.")?;
        return Ok(None);
    };
    let labels = reading.meta.map(|meta| meta.labels.clone()).unwrap_or_default();
    let mut are_numbers = false;
    let mut numbers = Vec::with_capacity(words.len());
    for word in words {
        let label = Text::from_bytes(&escape::raw(word, fodo_data::STRING_BYTES_MAX));
        are_numbers = options.states == EnumInput::Numbers || !labels.contains(&label);
        if !are_numbers {
            numbers.push(0.0);
            continue;
        }
        let number = match (options.states, leading_f64(word)) {
            (EnumInput::Numbers, None) => {
                writeln!(outlet.err, "Enum index value '{word}' is not a number.")?;
                return Ok(None);
            }
            (EnumInput::Labels, _) | (EnumInput::Either, None) => {
                writeln!(outlet.err, "Enum string value '{label}' invalid.")?;
                return Ok(None);
            }
            (_, Some(number)) => number,
        };
        if number >= labels.len() as f64 {
            writeln!(outlet.err, "Warning: enum index value '{word}' may be too large.")?;
        }
        numbers.push(number);
    }
    Ok(Some(match numbers.as_slice() {
        [number] if are_numbers => Value::from(*number),
        _ if are_numbers => numbers.into(),
        _ => texts(words),
    }))
}

/// Parses the flags; the inner `Err` is the exit code to end with immediately.
fn options(flags: &[Flag], clock: &Clock, outlet: &mut OutputStreams<'_>) -> io::Result<Result<CaputOptions, u8>> {
    let common = CommonOptions::new("caput", clock, outlet.err)?;
    let mut options =
        CaputOptions { common, layout: CaputLayout::Plain, states: EnumInput::Either, is_array: false, waits: false };
    for flag in flags {
        let (letter, value) = match handle_common(flag, "caput", HELP, outlet)? {
            Ok(own) => own,
            Err(code) => return Ok(Err(code)),
        };
        match letter {
            't' => options.layout = CaputLayout::Terse,
            'l' => options.layout = CaputLayout::Long,
            'c' => options.waits = true,
            's' => options.states = EnumInput::Labels,
            'n' => options.states = EnumInput::Numbers,
            'S' => options.is_array = false,
            'a' => options.is_array = true,
            _ => {}
        }
        match letter {
            // A valid count is ignored, because the number of values determines the count.
            '#' if super::options::leading_integer(value).is_some() => {}
            'n' | 's' => options.common.style.enums_as_numbers = letter == 'n',
            'S' | 'a' => options.common.style.chars_as_text = letter == 'S',
            't' | 'l' | 'c' => {}
            letter => options.common.take(letter, value, outlet.err)?,
        }
    }
    Ok(Ok(options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_ca::eca::Eca;

    #[test]
    fn the_reason_of_a_failed_write_is_that_of_the_tools() {
        let server = "127.0.0.1:5064".parse().unwrap();
        let shown = |kind| reason(&Error::new("x", kind));
        let refused = |refusal| ErrorKind::Refused { server, refusal };

        assert_eq!(
            shown(refused(Refusal::Status { status: Eca::PUTFAIL, text: String::new() })),
            "Channel write request failed"
        );
        assert_eq!(shown(refused(Refusal::WriteAccess)), "Write access denied");
        assert_eq!(shown(ErrorKind::Misuse { reason: "an empty name".into(), advice: "" }), "an empty name");
        assert_eq!(shown(ErrorKind::Disconnected { server }), "Virtual circuit disconnect");
    }
}
