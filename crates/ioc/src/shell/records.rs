//! Commands for records.

use std::collections::BTreeMap;
use std::collections::HashMap;

use fodo_data::{Kind, Meta, Scalar, Text, Value};
use fodo_db::{Database, ExternalLinkStatus, FieldRef, LinkTarget, closest_match, record_types};
use fodo_net::{ClientStatus, Protocol};

use super::script::{CommandResult, Flow};
use super::show::level;
use super::{CommandError, CommandLine, IocStage, Shell};
use crate::limit::ELEMENTS_SHOWN_MAX;
use crate::link_client::{LinkLosses, RequestTarget};
use crate::names::{field_of, suggestion_text};

/// Maximum difference between a scan period and the one requested by `scanppl`, in seconds, as in Base.
const PERIOD_TOLERANCE_S: f64 = 0.05;

/// Whether a name matches a pattern; `*` matches any characters, `?` exactly one.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut place) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, place));
                at += 1;
            }
            Some(&byte) if byte == b'?' || Some(&byte) == name.get(place) => {
                at += 1;
                place += 1;
            }
            _ => match star {
                // The last star matches one more byte.
                Some((after, taken)) => {
                    star = Some((after, taken + 1));
                    (at, place) = (after, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern.get(at..).is_none_or(|rest| rest.iter().all(|byte| *byte == b'*'))
}

/// A value as text: state labels, numbers with all digits, the first elements of an array.
pub(super) fn shown(database: &Database, field: FieldRef) -> String {
    let value = database.read(field).value;
    let meta = database.meta(field);
    let one = |scalar: Scalar| scalar_text(&scalar, &meta);
    if let Value::Array(array) = &value {
        if matches!(array.kind(), Kind::I8 | Kind::U8) {
            return value.long_text().unwrap_or_default().to_string();
        }
        let elements = (0..array.len().min(ELEMENTS_SHOWN_MAX)).filter_map(|index| array.scalar(index));
        let texts: Vec<String> = elements.map(one).collect();
        let more = if array.len() > ELEMENTS_SHOWN_MAX { ", ..." } else { "" };
        return format!("[{}{more}]", texts.join(", "));
    }
    value.first().map_or(String::new(), one)
}

/// A scalar as text: the state label, or a number with all digits.
pub(super) fn scalar_text(scalar: &Scalar, meta: &Meta) -> String {
    match scalar {
        Scalar::F64(number) if is_long(*number) => format!("{number:e}"),
        Scalar::F64(number) => format!("{number}"),
        Scalar::F32(number) if is_long(f64::from(*number)) => format!("{number:e}"),
        Scalar::F32(number) => format!("{number}"),
        scalar => scalar.to_text(Some(meta)).to_string(),
    }
}

/// Whether a number would need many zeros without an exponent.
fn is_long(number: f64) -> bool {
    number != 0.0 && number.is_finite() && !(1e-5..1e15).contains(&number.abs())
}

pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "DBF_STRING",
        Kind::I8 => "DBF_CHAR",
        Kind::Bool | Kind::U8 => "DBF_UCHAR",
        Kind::I16 => "DBF_SHORT",
        Kind::U16 => "DBF_USHORT",
        Kind::I32 => "DBF_LONG",
        Kind::U32 => "DBF_ULONG",
        Kind::I64 => "DBF_INT64",
        Kind::U64 => "DBF_UINT64",
        Kind::F32 => "DBF_FLOAT",
        Kind::F64 => "DBF_DOUBLE",
        Kind::Enum => "DBF_ENUM",
    }
}

/// `dbgf record.field`
pub(super) fn show_field(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let name = call.needed(1, "the name of a field")?;
    let database = shell.database()?;
    let field = field_of(database, name).map_err(|message| CommandError::Word(1, message))?;
    let line = field_line(database, field);
    if !shell.is_check() {
        shell.say(&line);
    }
    Ok(Flow::Next)
}

/// Type and value in the format of Base: states as strings, strings quoted, integers also in hexadecimal.
fn field_line(database: &Database, field: FieldRef) -> String {
    let value = database.read(field).value;
    let (kind, text) = (value.kind(), shown(database, field));
    let label = match &value {
        Value::Array(array) => format!("{}[{}]:", kind_name(kind), array.len()),
        Value::Scalar(_) if kind == Kind::Enum => "DBF_STRING:".to_owned(),
        Value::Scalar(_) => format!("{}:", kind_name(kind)),
    };
    let text = match &value {
        Value::Array(array) if array.is_empty() => "(empty)".to_owned(),
        Value::Array(_) if matches!(kind, Kind::I8 | Kind::U8) => quoted(&text),
        Value::Array(_) => text,
        Value::Scalar(scalar) => match scalar {
            Scalar::Enum(_) | Scalar::Text(_) => quoted(&text),
            Scalar::I8(number) => format!("{number} = {:#x}", i32::from(*number)),
            Scalar::U8(number) => format!("{number} = {number:#x}"),
            Scalar::I16(number) => format!("{number} = {:#x}", i32::from(*number)),
            Scalar::U16(number) => format!("{number} = {number:#x}"),
            Scalar::I32(number) => format!("{number} = {number:#x}"),
            Scalar::U32(number) => format!("{number} = {number:#x}"),
            Scalar::I64(number) => format!("{number} = {number:#x}"),
            Scalar::U64(number) => format!("{number} = {number:#x}"),
            Scalar::Bool(_) | Scalar::F32(_) | Scalar::F64(_) => text,
        },
    };
    format!("{label:<19} {text}\n")
}

/// Quotes a text; escapes quotes, backslashes and control characters.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control.is_control() => out.extend(control.escape_default()),
            other => out.push(other),
        }
    }
    out + "\""
}

/// `dbpf("record.field", "value")`
pub(super) fn put_field(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let name = call.needed(1, "the name of a field")?;
    let Some(text) = call.argument(2) else { return Err(call.needed(2, "a value").err().unwrap_or(no_value())) };
    let database = shell.database()?;
    let field = field_of(database, name).map_err(|message| CommandError::Word(1, message))?;
    let value = value_of(database, field, text).map_err(|message| CommandError::Word(2, message))?;
    let facts = database.facts(field);
    if facts.is_read_only {
        return Err(CommandError::Word(1, format!("\"{name}\" cannot be written")));
    }
    if shell.is_check() {
        let meta = database.meta(field);
        let converted = value.to_kind(facts.kind, Some(&meta));
        let refused = |error| CommandError::Word(2, format!("{error}{}", choices(facts.kind, &meta, text)));
        return converted.map(|_| Flow::Next).map_err(refused);
    }
    if let Err(message) = put(shell, field, value) {
        let hint = choices(facts.kind, &database.meta(field), text);
        return Err(CommandError::Word(2, format!("\"{name}\": {message}{hint}")));
    }
    show_field(shell, call)
}

/// A suggestion for a text that is not a state of a field.
fn choices(kind: Kind, meta: &Meta, text: &str) -> String {
    if kind != Kind::Enum || meta.labels.is_empty() {
        return String::new();
    }
    let labels: Vec<String> = meta.labels.iter().map(Text::to_string).collect();
    match closest_match(text, labels.iter().map(String::as_str)) {
        Some(label) => suggestion_text(Some(label)),
        None => format!("; valid choices are \"{}\"", labels.join("\", \"")),
    }
}

fn no_value() -> CommandError {
    CommandError::Word(0, "a value is missing".into())
}

pub(super) fn put(shell: &Shell, field: FieldRef, value: Value) -> Result<(), String> {
    match &shell.stage {
        IocStage::Running(driver) => {
            let result = driver.put(field, value, None, None);
            // What records print appears before the output of the command.
            driver.flush_printed();
            result.map_err(|error| error.to_string())
        }
        _ => Ok(()),
    }
}

/// Converts a text to a value for a field: characters for a character array, `[1, 2]` for an array of numbers.
fn value_of(database: &Database, field: FieldRef, text: &str) -> Result<Value, String> {
    let facts = database.facts(field);
    if facts.count_max > 1 && matches!(facts.kind, Kind::I8 | Kind::U8) && !text.starts_with('[') {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        return Ok(Value::from(bytes));
    }
    let Some(inside) = text.trim().strip_prefix('[').filter(|_| facts.count_max > 1) else {
        return Ok(Value::from(text));
    };
    let Some(inside) = inside.strip_suffix(']') else {
        return Err("the closing ']' is missing; put a value with commas in quotes, \"[1,2,3]\"".into());
    };
    let elements = inside.split(',').map(str::trim).filter(|element| !element.is_empty());
    if facts.kind == Kind::Text {
        let texts: Vec<Text> = elements.map(|element| element.trim_matches('"').into()).collect();
        return Ok(Value::from(texts));
    }
    let numbers: Result<Vec<f64>, String> =
        elements.map(|element| element.parse().map_err(|_| format!("\"{element}\" is not a number"))).collect();
    numbers.map(Value::from)
}

/// `dbl [type] ["FIELD FIELD"]`: records, each followed by its aliases.
pub(super) fn list(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let record_type = call.argument(1).filter(|name| !name.is_empty() && *name != "*");
    let fields = requested_fields(call);
    let database = shell.database()?;
    let mut aliases: HashMap<String, Vec<String>> = HashMap::new();
    for (alias, record) in database.aliases() {
        aliases.entry(record.to_string()).or_default().push(alias.to_string());
    }
    let mut text = String::new();
    for record in database.record_names() {
        let kind = database.field(record).map(|field| database.facts(field).record_type);
        if record_type.is_some() && kind != record_type {
            continue;
        }
        let own = aliases.get(record).into_iter().flatten().map(String::as_str);
        std::iter::once(record).chain(own).for_each(|name| text += &listed(database, name, &fields));
    }
    let is_unknown = |name: &&str| text.is_empty() && !record_types().any(|known| known == *name);
    if let Some(name) = record_type.filter(is_unknown) {
        let hint = suggestion_text(closest_match(name, record_types()));
        return Err(CommandError::Word(1, format!("there is no record type \"{name}\"{hint}")));
    }
    shell.say(&text);
    Ok(Flow::Next)
}

/// A name followed by the values of the given fields, for `dbl` and `dbgrep`.
fn listed(database: &Database, name: &str, fields: &[&str]) -> String {
    let values = fields.iter().map(|field| {
        let field = database.field(&format!("{name}.{field}"));
        format!(", {}", quoted(&field.map_or(String::new(), |field| shown(database, field))))
    });
    format!("{name}{}\n", values.collect::<String>())
}

/// `dbgrep pattern ["FIELD FIELD"]`
pub(super) fn grep(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let pattern = call.needed(1, "a pattern")?;
    let fields = requested_fields(call);
    let database = shell.database()?;
    let names = database.record_names().filter(|name| matches(pattern, name));
    let text: String = names.map(|name| listed(database, name, &fields)).collect();
    shell.say(&text);
    Ok(Flow::Next)
}

/// The names in the second argument.
fn requested_fields<'a>(call: &CommandLine<'a>) -> Vec<&'a str> {
    call.argument(2).map_or(Vec::new(), |names| names.split_whitespace().collect())
}

/// `dbla [pattern]`
pub(super) fn aliases(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let pattern = call.argument(1).unwrap_or("*");
    let aliases = shell.database()?.aliases();
    let selected = aliases.iter().filter(|(alias, _)| matches(pattern, &alias.to_str()));
    let text: String = selected.map(|(alias, record)| format!("{alias} -> {record}\n")).collect();
    shell.say(&text);
    Ok(Flow::Next)
}

/// `dbli [pattern]`
pub(super) fn infos(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let pattern = call.argument(1).unwrap_or("*");
    let database = shell.database()?;
    let mut text = String::new();
    for record in database.record_names() {
        for (name, value) in database.info_items(record).filter(|(name, _)| matches(pattern, &name.to_str())) {
            text += &format!("{record} info({name}, \"{value}\")\n");
        }
    }
    shell.say(&text);
    Ok(Flow::Next)
}

/// `dbstat`
pub(super) fn count(shell: &mut Shell, _: &CommandLine<'_>) -> CommandResult {
    let database = shell.database()?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for field in database.record_names().filter_map(|name| database.field(name)) {
        *counts.entry(database.facts(field).record_type).or_default() += 1;
    }
    let total: usize = counts.values().sum();
    let mut text: String = counts.iter().map(|(kind, n)| format!("{n:>8} {kind}\n")).collect();
    text += &format!("{total:>8} records, {} aliases\n", database.aliases().len());
    shell.say(&text);
    Ok(Flow::Next)
}

/// `dbcar [record] [level]`: links to other IOCs. Level 1 lists those that do not work, level 2 all with their servers.
pub(super) fn outside_links(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    show_links(shell, call, false)
}

/// `dbpvxr [record] [level]`: the same for links over pvAccess, also those to this IOC.
pub(super) fn pva_links(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    show_links(shell, call, true)
}

fn show_links(shell: &mut Shell, call: &CommandLine<'_>, is_pva: bool) -> CommandResult {
    let requested = call.argument(1).filter(|name| !name.is_empty() && *name != "*");
    let level = level(call, 2)?;
    let database = shell.database()?;
    let (mut text, mut totals) = (String::new(), LinkTotals::default());
    for record in database.record_names().filter(|name| requested.is_none_or(|requested| requested == *name)) {
        for link in database.links(record) {
            let (report, is_working) = match &link.target {
                LinkTarget::Record(_) => continue,
                LinkTarget::External(status) if status.is_pva != is_pva => continue,
                LinkTarget::Missing if is_pva => continue,
                LinkTarget::Missing => ("target is not a field".to_owned(), false),
                LinkTarget::External(status) => totals.add(shell, status),
            };
            totals.n_links += 1;
            if level > u8::from(is_working) {
                text += &format!("{record}.{} \"{}\": {report}\n", link.field, link.text);
            }
        }
    }
    let LinkTotals { n_links, n_connected, n_failing, n_lost, losses } = totals;
    let subject = if is_pva { "links use pvAccess" } else { "links lead to other IOCs" };
    text += &format!("{n_links} {subject}, {n_connected} are connected; ");
    text += &format!("lost {n_lost} times, {}", shown_losses(losses));
    text += &if n_failing > 0 { format!("; {n_failing} connected but failing\n") } else { "\n".to_owned() };
    shell.say(&text);
    Ok(Flow::Next)
}

/// Totals for all links to other IOCs.
#[derive(Default)]
struct LinkTotals {
    n_links: u64,
    n_connected: u64,
    /// Connected links that do not work, for instance because the server refuses to send values.
    n_failing: u64,
    n_lost: u64,
    losses: LinkLosses,
}

impl LinkTotals {
    /// Adds a link to the totals; describes its state, and returns whether it works.
    fn add(&mut self, shell: &Shell, status: &ExternalLinkStatus) -> (String, bool) {
        let (losses, server, reason) = match &shell.stage {
            IocStage::Running(driver) => {
                let (link_requests, target) = (driver.link_requests(), RequestTarget::Link(status.link));
                let states = link_requests.states();
                (link_requests.losses(status.link), states.server(&target), states.reason(&target))
            }
            _ => (LinkLosses::default(), None, None),
        };
        let is_connected = status.facts.is_some();
        self.n_connected += u64::from(is_connected);
        self.n_failing += u64::from(is_connected && reason.is_some());
        self.n_lost += status.n_lost;
        self.losses.merged_updates += losses.merged_updates;
        self.losses.merged_puts += losses.merged_puts;
        self.losses.refused_puts += losses.refused_puts;
        let state = match status.facts {
            None => server.map_or("not connected".to_owned(), |address| format!("not connected, last to {address}")),
            Some(facts) => {
                let denied = match (facts.may_read, facts.may_write) {
                    (true, true) => "",
                    (true, false) => ", no write access",
                    (false, true) => ", no read access",
                    (false, false) => ", no read or write access",
                };
                let server = server.map_or(String::new(), |address| format!(" to {address}"));
                format!("connected{server}{denied}")
            }
        };
        let is_working = is_connected && reason.is_none();
        let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
        let text = format!("{state}, lost {} times, {}{reason}", status.n_lost, shown_losses(losses));
        (text, is_working)
    }
}

/// The lost values of links; refused puts only if there are some.
fn shown_losses(LinkLosses { merged_updates, merged_puts, refused_puts }: LinkLosses) -> String {
    let refused = if refused_puts > 0 { format!(", {refused_puts} puts refused") } else { String::new() };
    format!("{merged_updates} updates and {merged_puts} puts merged{refused}")
}

/// `dblsr [record]`: sets of records joined by links; single records are left out.
pub(super) fn joined(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let requested = call.argument(1).filter(|name| !name.is_empty() && *name != "*");
    let database = shell.database()?;
    let mut text = String::new();
    for set in sets(database).iter().filter(|set| set.len() > 1) {
        if requested.is_none_or(|requested| set.contains(&requested)) {
            text += &format!("{} records:\n", set.len());
            set.iter().for_each(|name| text += &format!("  {name}\n"));
        }
    }
    shell.say(&text);
    Ok(Flow::Next)
}

/// Sets of records without links between them, in load order.
fn sets(database: &Database) -> Vec<Vec<&str>> {
    let names: Vec<&str> = database.record_names().collect();
    let numbers: HashMap<&str, usize> = names.iter().enumerate().map(|(number, name)| (*name, number)).collect();
    let mut parents: Vec<usize> = (0..names.len()).collect();
    let root = |parents: &mut Vec<usize>, mut number: usize| {
        while parents[number] != number {
            parents[number] = parents[parents[number]];
            number = parents[number];
        }
        number
    };
    for (number, name) in names.iter().enumerate() {
        for link in database.links(name) {
            if let LinkTarget::Record(there) = &link.target
                && let Some(&there) = numbers.get(&*there.to_str())
            {
                let (one, other) = (root(&mut parents, number), root(&mut parents, there));
                parents[one.max(other)] = one.min(other);
            }
        }
    }
    let mut sets: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (number, name) in names.iter().enumerate() {
        sets.entry(root(&mut parents, number)).or_default().push(name);
    }
    sets.into_values().collect()
}

/// `scanppl [rate]`
pub(super) fn scanned(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let requested_s = call.argument(1).and_then(|text| text.parse::<f64>().ok()).filter(|period_s| *period_s > 0.0);
    let database = shell.database()?;
    let mut lists: HashMap<String, Vec<&str>> = HashMap::new();
    for name in database.record_names() {
        let Some(field) = database.field(&format!("{name}.SCAN")) else { continue };
        lists.entry(shown(database, field)).or_default().push(name);
    }
    let mut text = String::new();
    for scan in database.scan_counts() {
        let period_s = scan.period.as_secs_f64();
        let is_selected = requested_s.is_none_or(|requested_s| (requested_s - period_s).abs() <= PERIOD_TOLERANCE_S);
        let Some(names) = lists.get(&scan.choice).filter(|_| is_selected) else { continue };
        text += &format!("every {period_s} s: {} records, {} periods skipped\n", names.len(), scan.skipped);
        names.iter().for_each(|name| text += &format!("  {name}\n"));
    }
    shell.say(&text);
    Ok(Flow::Next)
}

/// `casr [level]`
pub(super) fn clients(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let is_long = call.argument(1).is_some_and(|level| level != "0");
    let mut text = String::new();
    match &*shell.place.lock() {
        None => return Err(CommandError::too_early()),
        Some(running) => {
            let (ca, pva): (Vec<_>, Vec<_>) =
                running.clients().into_iter().partition(|client| client.protocol == Protocol::Ca);
            let (tcp, udp) = (running.tcp_port(), running.udp_port());
            text += &format!("Channel Access on TCP {tcp}, searches on UDP {udp}: {} clients\n", ca.len());
            ca.iter().for_each(|client| text += &client_lines(client, is_long));
            if let Some(port) = running.pva_tcp_port() {
                text += &format!("pvAccess on TCP {port}: {} clients\n", pva.len());
                pva.iter().for_each(|client| text += &client_lines(client, is_long));
            }
        }
    }
    shell.say(&text);
    Ok(Flow::Next)
}

pub(super) fn client_lines(client: &ClientStatus, is_long: bool) -> String {
    let ClientStatus { address, n_channels, n_subscriptions, queued_bytes, updates, .. } = client;
    let (user, host) = (client.user.escape_debug(), client.host.escape_debug());
    let mut text = format!("  {address} {user}@{host}: {n_channels} channels, {n_subscriptions} subscriptions\n");
    if is_long {
        text += &format!("    {queued_bytes} bytes queued; {} updates sent, {} merged\n", updates.sent, updates.merged);
    }
    text
}

#[cfg(test)]
mod tests {
    use fodo_data::{Text, Value};

    use super::{ExternalLinkStatus, LinkTotals, Shell, matches, value_of};

    #[test]
    fn name_patterns_support_star_and_question_mark_wildcards() {
        assert!(matches("*", "") && matches("a*c", "abbc") && matches("a?c", "abc") && matches("*b*", "abc"));
        assert!(!matches("a?c", "ac") && !matches("a", "ab") && !matches("*b", "abc") && !matches("", "a"));
    }

    #[test]
    fn a_text_becomes_characters_or_elements_as_its_field_can_hold_them() {
        let mut loader = fodo_db::Loader::default();
        let records = br#"
            record(ao, "one") {}
            record(waveform, "letter") { field(FTVL, CHAR) field(NELM, 1) }
            record(waveform, "letters") { field(FTVL, UCHAR) field(NELM, 9) }
            record(waveform, "numbers") { field(FTVL, LONG) field(NELM, 9) }
            record(waveform, "texts") { field(FTVL, STRING) field(NELM, 9) }
        "#;
        loader.load("a.db", "", &mut |_| Ok(records.to_vec())).unwrap();
        let database = loader.finish().unwrap();
        let texts = |texts: [&str; 2]| Value::from(texts.map(Text::from).to_vec());
        for (field, text, expected) in [
            ("one", "[1]", Ok("[1]".into())),
            ("letter", "abc", Ok("abc".into())),
            ("letters", "abc", Ok(Value::characters("abc"))),
            ("letters", "[1,2]", Ok(vec![1.0, 2.0].into())),
            ("numbers", "7", Ok("7".into())),
            ("numbers", " [ 1 , 2.5 , ] ", Ok(vec![1.0, 2.5].into())),
            ("numbers", "[]", Ok(Vec::<f64>::new().into())),
            ("numbers", "[1,x]", Err("\"x\" is not a number")),
            ("numbers", "[1", Err("the closing ']' is missing; put a value with commas in quotes, \"[1,2,3]\"")),
            ("texts", "[\"a b\",c]", Ok(texts(["a b", "c"]))),
            ("texts", "a,b", Ok("a,b".into())),
        ] {
            let found = value_of(&database, database.field(field).unwrap(), text);

            assert_eq!(found, expected.map_err(String::from), "{field} {text}");
        }
    }

    #[test]
    fn links_to_other_iocs_are_described_and_added_up() {
        let mut loader = fodo_db::Loader::default();
        loader.load("a.db", "", &mut |_| Ok(br#"record(ao, "a") { field(OUT, "far") }"#.to_vec())).unwrap();
        let (mut events, wall) = (Vec::new(), fodo_data::TimeStamp::NEVER);
        let now = fodo_data::Now { monotonic: std::time::Instant::now(), wall };
        loader.finish().unwrap().handle(fodo_db::Input::Start, now, &mut events).unwrap();
        let added = |event: &fodo_db::Event| match event {
            fodo_db::Event::ExternalLinkAdded { link, .. } => Some(*link),
            _ => None,
        };
        let link = events.iter().find_map(added).unwrap();
        let (out, err) = (Box::new(std::io::sink()), Box::new(std::io::sink()));
        let shell = Shell::new(crate::shell::Purpose::Check, ".".as_ref(), std::iter::empty(), out, err);
        let facts = |may_read, may_write| {
            let kind = fodo_data::Kind::F64;
            Some(fodo_db::ExternalPvFacts { kind, count_max: 1, may_read, may_write })
        };
        let mut totals = LinkTotals::default();
        let mut add = |facts, n_lost| totals.add(&shell, &ExternalLinkStatus { link, facts, is_pva: false, n_lost });
        let shown = |state: &str, n_lost| format!("{state}, lost {n_lost} times, 0 updates and 0 puts merged");

        assert_eq!(add(None, 2), (shown("not connected", 2), false));
        assert_eq!(add(facts(true, true), 3), (shown("connected", 3), true));
        assert_eq!(add(facts(true, false), 0), (shown("connected, no write access", 0), true));
        assert_eq!(add(facts(false, true), 0), (shown("connected, no read access", 0), true));
        assert_eq!(add(facts(false, false), 0), (shown("connected, no read or write access", 0), true));
        assert_eq!((totals.n_connected, totals.n_failing, totals.n_lost), (4, 0, 5));
    }
}
