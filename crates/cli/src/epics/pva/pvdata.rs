//! Values as pvData prints them: its NT, raw and JSON formats.
//!
//! Behaviour: the output of pvget 7.1.7 in `tests/golden`, and pvData's `printer.cpp` and `jprint.cpp`.

use std::fmt::Write as _;

use fodo_net::{Array, BitSet, Kind, NodeValue, Scalar, Structure, StructureType, TimeStamp, Value};

use super::type_text::type_name;
use crate::epics::printf::{self, Notation};
use crate::local_time::Clock;

/// Writes into a text, which cannot fail.
macro_rules! put {
    ($out:expr, $($argument:tt)*) => {{
        let _ = write!($out, $($argument)*);
    }};
}
pub(super) use put;

/// How a value is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputMode {
    /// One line for values with a normative type, a table for tables; otherwise as `Raw`.
    Nt,
    /// All fields, one on each line.
    Raw,
    /// JSON5 on one line.
    Json,
}

/// Which fields are printed, and how.
pub struct PrintOptions<'a> {
    /// The format.
    pub mode: OutputMode,
    /// The fields that are printed.
    pub shown: &'a BitSet,
    /// The fields that are printed in bold at a terminal.
    pub highlighted: Option<&'a BitSet>,
    /// The clock for time stamps.
    pub clock: &'a Clock,
}

/// The text of a value, with an end of line unless no field is shown.
pub fn text(structure: &Structure, options: &PrintOptions<'_>) -> String {
    let mut out = String::new();
    let is_printed = match options.mode {
        OutputMode::Json => {
            let shown = with_relatives(structure.kind(), options.shown);
            if shown.contains(0) {
                json_members(structure, 0, Some(&shown), &mut out);
            }
            out.push('\n');
            true
        }
        OutputMode::Nt => normative(structure, options.clock, &mut out),
        OutputMode::Raw => false,
    };
    if !is_printed {
        let shown = with_relatives(structure.kind(), options.shown);
        let highlighted: BitSet = options.highlighted.map_or_else(BitSet::new, |bits| {
            structure.kind().covered(bits).flatten().filter(|&bit| shown.contains(bit)).collect()
        });
        if shown.contains(0) {
            let raw = RawPrinter { structure, shown: &shown, highlighted: &highlighted, clock: options.clock };
            raw.node(0, 0, &mut out);
        }
    }
    out
}

/// The set with the members and the parents of its nodes.
fn with_relatives(kind: &StructureType, bits: &BitSet) -> BitSet {
    let mut all: BitSet = kind.covered(bits).flatten().collect();
    // Parents precede their members.
    for bit in (0..kind.nodes().len()).rev() {
        if kind.members(bit).any(|member| all.contains(member)) {
            all.insert(bit);
        }
    }
    all
}

/// Prints a value with a normative type; returns whether it has one.
fn normative(structure: &Structure, clock: &Clock, out: &mut String) -> bool {
    let kind = structure.kind();
    let id = kind.id().to_str();
    if id.split('.').next() == Some("epics:nt/NTTable:1") {
        return table(structure, clock, out);
    }
    let Some(bit) = kind.member(0, b"value") else { return false };
    match structure.node(bit) {
        Some(NodeValue::Value(value)) => {
            if let Some(bit) = kind.member(0, b"timeStamp") {
                time(structure, bit, clock, out);
            }
            match value {
                Value::Scalar(element) => {
                    put!(out, "{} ", scalar(element));
                    top_alarm(structure, out);
                }
                Value::Array(elements) => {
                    top_alarm(structure, out);
                    out.push_str(&array(elements));
                }
            }
            out.push('\n');
            true
        }
        Some(NodeValue::Structure) if enum_parts(structure, bit).is_some() => {
            if let Some(bit) = kind.member(0, b"timeStamp") {
                time(structure, bit, clock, out);
            }
            top_alarm(structure, out);
            enumeration(structure, bit, out);
            out.push('\n');
            true
        }
        _ => false,
    }
}

fn top_alarm(structure: &Structure, out: &mut String) {
    if let Some(bit) = structure.kind().member(0, b"alarm") {
        alarm(structure, bit, out);
    }
}

/// Prints a table; returns whether all of its columns are arrays.
fn table(structure: &Structure, clock: &Clock, out: &mut String) -> bool {
    let kind = structure.kind();
    let Some(value) = kind.member(0, b"value") else { return false };
    let columns: Vec<(usize, &Array)> = kind
        .members(value)
        .filter_map(|bit| match structure.value(bit) {
            Some(Value::Array(array)) => Some((bit, array)),
            _ => None,
        })
        .collect();
    if columns.is_empty() || columns.len() != kind.members(value).count() {
        return false;
    }
    let (stamp, alarmed) = (kind.member(0, b"timeStamp"), kind.member(0, b"alarm"));
    if let Some(bit) = stamp {
        time(structure, bit, clock, out);
        out.push(' ');
    }
    if let Some(bit) = alarmed {
        alarm(structure, bit, out);
        out.push(' ');
    }
    out.push('\n');
    let labels = match structure.get("labels") {
        Some(Value::Array(Array::Text(labels))) => labels.iter().map(|label| csv(&label.to_str())).collect(),
        _ => Vec::new(),
    };
    let n_rows = columns.iter().map(|(_, array)| array.len()).min().unwrap_or(0);
    let label_of = |index: usize, bit: usize| -> String {
        labels.get(index).cloned().unwrap_or_else(|| kind.nodes()[bit].name.to_string())
    };
    let cells: Vec<Vec<String>> = columns
        .iter()
        .enumerate()
        .map(|(index, &(bit, array))| {
            let elements = (0..array.len()).filter_map(|row| array.scalar(row));
            std::iter::once(label_of(index, bit)).chain(elements.map(|element| csv(&plain(&element)))).collect()
        })
        .collect();
    let widths: Vec<usize> = cells.iter().map(|column| column.iter().map(String::len).max().unwrap_or(0)).collect();
    for row in 0..=n_rows {
        for (index, (column, width)) in cells.iter().zip(&widths).enumerate() {
            let text = column.get(row).map_or("", String::as_str);
            let pad = width.saturating_sub(text.len());
            put!(out, "{}{:pad$}{text}", if index > 0 { " " } else { "" }, "");
        }
        out.push('\n');
    }
    true
}

/// A cell of a table: escaped, and quoted if it contains a separator.
fn csv(text: &str) -> String {
    let escaped = escaped(text.as_bytes(), EscapeStyle::PvDataCsv);
    if text.contains(['"', ' ', ',', '\\']) { format!("\"{escaped}\"") } else { escaped }
}

/// Prints fields one on each line.
struct RawPrinter<'a> {
    structure: &'a Structure,
    shown: &'a BitSet,
    highlighted: &'a BitSet,
    clock: &'a Clock,
}

impl RawPrinter<'_> {
    fn node(&self, bit: usize, depth: usize, out: &mut String) {
        let kind = self.structure.kind();
        let node = &kind.nodes()[bit];
        let is_bold = self.highlighted.contains(bit);
        if is_bold {
            out.push_str("\x1b[1m");
        }
        match self.structure.node(bit) {
            Some(NodeValue::Structure) => {
                let id = type_name(kind, bit);
                put!(out, "{:1$}{id} {name}", "", depth * 4, name = node.name);
                match id.as_str() {
                    "alarm_t" => {
                        out.push(' ');
                        alarm(self.structure, bit, out);
                    }
                    "time_t" => {
                        out.push(' ');
                        time(self.structure, bit, self.clock, out);
                    }
                    "enum_t" => {
                        out.push(' ');
                        enumeration(self.structure, bit, out);
                    }
                    _ => {}
                }
                out.push('\n');
            }
            Some(value) => node_lines(kind, bit, value, depth, out),
            None => {}
        }
        if is_bold {
            out.push_str("\x1b[0m");
        }
        for member in kind.members(bit).filter(|&member| self.shown.contains(member)) {
            self.node(member, depth + 1, out);
        }
    }
}

/// All lines of a structure within a union or an array.
fn structure_lines(structure: &Structure, bit: usize, depth: usize, out: &mut String) {
    let kind = structure.kind();
    match structure.node(bit) {
        Some(NodeValue::Structure) => {
            put!(out, "{:1$}{id} {name}\n", "", depth * 4, id = type_name(kind, bit), name = kind.nodes()[bit].name);
            for member in kind.members(bit) {
                structure_lines(structure, member, depth + 1, out);
            }
        }
        Some(value) => node_lines(kind, bit, value, depth, out),
        None => {}
    }
}

/// The lines of a node that is not a structure.
fn node_lines(kind: &StructureType, bit: usize, value: &NodeValue, depth: usize, out: &mut String) {
    put!(out, "{:1$}{id} {name}", "", depth * 4, id = type_name(kind, bit), name = kind.nodes()[bit].name);
    if let NodeValue::Value(value) = value {
        put!(out, " {}\n", value_text(value));
        return;
    }
    out.push('\n');
    let inner = depth + 1;
    let none = |out: &mut String| put!(out, "{:1$}(none)\n", "", inner * 4);
    let one = |contents: Option<&Structure>, out: &mut String| match contents {
        Some(contents) => structure_lines(contents, 0, inner, out),
        None => none(out),
    };
    // An element of an array of unions has a line for its union, and one for its contents.
    let element = |contents: Option<&Structure>, name: &str, out: &mut String| match contents {
        Some(contents) => {
            put!(out, "{:1$}{name} \n", "", inner * 4);
            structure_lines(contents, 0, inner + 1, out);
        }
        None => none(out),
    };
    match value {
        NodeValue::Structures(elements) => elements.iter().for_each(|element| one(element.as_ref(), out)),
        NodeValue::Union(contents) => one(contents.as_ref().map(|contents| &contents.value), out),
        NodeValue::Any(contents) => one(contents.as_deref(), out),
        NodeValue::Unions(elements) => {
            let name = type_name(kind, bit);
            let name = name.trim_end_matches("[]");
            elements.iter().for_each(|contents| element(contents.as_ref().map(|contents| &contents.value), name, out));
        }
        NodeValue::Anys(elements) => elements.iter().for_each(|contents| element(contents.as_ref(), "any", out)),
        NodeValue::Structure | NodeValue::Value(_) => {}
    }
}

/// The severity, class and message of an alarm, each with a blank after it; nothing without an alarm.
fn alarm(structure: &Structure, bit: usize, out: &mut String) {
    match integer(structure, bit, "severity") {
        0 => return,
        1 => out.push_str("MINOR "),
        2 => out.push_str("MAJOR "),
        3 => out.push_str("INVALID "),
        4 => out.push_str("UNDEFINED "),
        other => put!(out, "{other} "),
    }
    match integer(structure, bit, "status") {
        0 => {}
        1 => out.push_str("DEVICE "),
        2 => out.push_str("DRIVER "),
        3 => out.push_str("RECORD "),
        4 => out.push_str("DB "),
        5 => out.push_str("CONF "),
        6 => out.push_str("UNDEFINED "),
        7 => out.push_str("CLIENT "),
        other => put!(out, "{other} "),
    }
    if let Some(Value::Scalar(Scalar::Text(message))) = member_value(structure, bit, "message")
        && !message.is_empty()
    {
        put!(out, "{message} ");
    }
}

/// The time in 24 columns, and the user tag if it is not 0.
fn time(structure: &Structure, bit: usize, clock: &Clock, out: &mut String) {
    let seconds = integer(structure, bit, "secondsPastEpoch").max(TimeStamp::NEVER.unix_s);
    let nanos = u32::try_from(integer(structure, bit, "nanoseconds")).unwrap_or(0);
    put!(out, "{:<24} ", clock.for_pvget(TimeStamp { unix_s: seconds, nanos }));
    match integer(structure, bit, "userTag") {
        0 => {}
        tag => put!(out, "{tag} "),
    }
}

/// The index and the state names of an enum.
fn enum_parts(structure: &Structure, bit: usize) -> Option<(i64, Vec<String>)> {
    member_value(structure, bit, "index")?;
    match member_value(structure, bit, "choices")? {
        Value::Array(Array::Text(choices)) => {
            let names = choices.iter().map(|choice| choice.to_str().into_owned()).collect();
            Some((integer(structure, bit, "index"), names))
        }
        _ => None,
    }
}

fn enumeration(structure: &Structure, bit: usize, out: &mut String) {
    let Some((index, choices)) = enum_parts(structure, bit) else { return };
    match usize::try_from(index).ok().and_then(|index| choices.get(index)) {
        Some(choice) => put!(out, "({index}) {}", maybe_quoted(choice.as_bytes())),
        None => put!(out, "({}) <undefined>", index as u32),
    }
}

fn member_value<'a>(structure: &'a Structure, bit: usize, name: &str) -> Option<&'a Value> {
    structure.value(structure.kind().member(bit, name.as_bytes())?)
}

fn integer(structure: &Structure, bit: usize, name: &str) -> i64 {
    let scalar = member_value(structure, bit, name).and_then(Value::first);
    match scalar.map(|scalar| scalar.to_kind(Kind::I64, None)) {
        Some(Ok(Scalar::I64(number))) => number,
        _ => 0,
    }
}

/// A scalar, or an array in brackets.
fn value_text(value: &Value) -> String {
    match value {
        Value::Scalar(element) => scalar(element),
        Value::Array(elements) => array(elements),
    }
}

fn array(elements: &Array) -> String {
    let separator = if elements.kind() == Kind::Text { ", " } else { "," };
    let mut out = String::from("[");
    for (index, element) in (0..elements.len()).filter_map(|index| elements.scalar(index)).enumerate() {
        put!(out, "{}{}", if index > 0 { separator } else { "" }, scalar(&element));
    }
    out.push(']');
    out
}

/// One element; a text in quotes if it contains blanks or unprintable characters.
fn scalar(element: &Scalar) -> String {
    match element {
        Scalar::Text(text) => maybe_quoted(text.as_bytes()),
        other => plain(other),
    }
}

/// One element without quotes.
fn plain(element: &Scalar) -> String {
    match element {
        Scalar::F64(number) => printf::short(*number),
        Scalar::F32(number) => printf::short(f64::from(*number)),
        Scalar::Bool(is_true) => is_true.to_string(),
        other => other.to_text(None).to_str().into_owned(),
    }
}

fn maybe_quoted(bytes: &[u8]) -> String {
    let needs_quotes = |&byte: &u8| !byte.is_ascii_graphic() || matches!(byte, b'\\' | b'\'' | b'"');
    let escaped = escaped(bytes, EscapeStyle::PvData);
    if bytes.iter().any(needs_quotes) { format!("\"{escaped}\"") } else { escaped }
}

/// How unprintable characters and quotes are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EscapeStyle {
    /// With hexadecimal digits in upper case.
    PvData,
    /// The same, with doubled quotes.
    PvDataCsv,
    /// With hexadecimal digits in lower case.
    Pvxs,
}

/// Escapes quotes, backslashes and everything except printable ASCII.
pub(super) fn escaped(bytes: &[u8], style: EscapeStyle) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            0x07 => out.push_str("\\a"),
            0x08 => out.push_str("\\b"),
            0x0b => out.push_str("\\v"),
            0x0c => out.push_str("\\f"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'"' if style == EscapeStyle::PvDataCsv => out.push_str("\"\""),
            b'\\' | b'\'' | b'"' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            _ if style == EscapeStyle::Pvxs => put!(out, "\\x{byte:02x}"),
            _ => put!(out, "\\x{byte:02X}"),
        }
    }
    out
}

/// Whether a node is printed; `None`: all are.
type Shown<'a> = Option<&'a BitSet>;

fn json_members(structure: &Structure, bit: usize, shown: Shown<'_>, out: &mut String) {
    let kind = structure.kind();
    let is_shown = |&member: &usize| shown.is_none_or(|shown| shown.contains(member));
    out.push('{');
    for (index, member) in kind.members(bit).filter(is_shown).enumerate() {
        if index > 0 {
            out.push(',');
        }
        let name = kind.nodes()[member].name.to_str();
        let is_identifier = name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '$'))
            && name.starts_with(|letter: char| !letter.is_ascii_digit());
        if is_identifier {
            out.push_str(&name)
        } else {
            json_text(&name, out)
        }
        out.push(':');
        json_node(structure, member, shown, out);
    }
    out.push('}');
}

fn json_node(structure: &Structure, bit: usize, shown: Shown<'_>, out: &mut String) {
    let contents = |contents: Option<&Structure>, out: &mut String| match contents {
        Some(contents) => json_node(contents, 0, None, out),
        None => out.push_str("null"),
    };
    match structure.node(bit) {
        Some(NodeValue::Structure) => json_members(structure, bit, shown, out),
        Some(NodeValue::Value(Value::Scalar(element))) => json_scalar(element, out),
        Some(NodeValue::Value(Value::Array(elements))) => {
            let elements = (0..elements.len()).filter_map(|index| elements.scalar(index));
            json_list(elements, |element, out| json_scalar(&element, out), out);
        }
        Some(NodeValue::Structures(elements)) => {
            json_list(elements.iter(), |element, out| contents(element.as_ref(), out), out);
        }
        Some(NodeValue::Union(value)) => contents(value.as_ref().map(|value| &value.value), out),
        Some(NodeValue::Any(value)) => contents(value.as_deref(), out),
        Some(NodeValue::Unions(elements)) => {
            let inner = |element: &Option<fodo_net::UnionValue>, out: &mut String| {
                contents(element.as_ref().map(|element| &element.value), out);
            };
            json_list(elements.iter(), inner, out);
        }
        Some(NodeValue::Anys(elements)) => {
            json_list(elements.iter(), |element, out| contents(element.as_ref(), out), out);
        }
        None => out.push_str("null"),
    }
}

fn json_list<T>(elements: impl Iterator<Item = T>, one: impl Fn(T, &mut String), out: &mut String) {
    out.push('[');
    for (index, element) in elements.enumerate() {
        if index > 0 {
            out.push(',');
        }
        one(element, out);
    }
    out.push(']');
}

fn json_scalar(element: &Scalar, out: &mut String) {
    let number = match element {
        Scalar::F64(number) => *number,
        Scalar::F32(number) => f64::from(*number),
        Scalar::Text(text) => return json_text(&text.to_str(), out),
        other => return out.push_str(&plain(other)),
    };
    if number.is_nan() {
        return out.push_str("NaN");
    }
    if number.is_infinite() {
        return out.push_str(if number < 0.0 { "-Infinity" } else { "Infinity" });
    }
    let text = printf::number(number, Notation::General(17));
    let is_integer = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    put!(out, "{text}{}", if is_integer { ".0" } else { "" });
}

fn json_text(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if control < ' ' => put!(out, "\\u{:04X}", u32::from(control)),
            other => out.push(other),
        }
    }
    out.push('"');
}
