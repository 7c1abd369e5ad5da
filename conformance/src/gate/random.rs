//! Random databases and steps; each seed gives one case.

use std::fmt::Write as _;

use fodo_ca::dbr::DbrType;
use fodo_data::Kind;

use super::busy;
use super::domain::{Domain, EVENTS, HUGE, N_WHOLE, NUMBERS, OUT, WILD, domain};
use super::raw::RequestMethod;
use super::step::{AcknowledgeStep, Argument, GateStep};
use super::{Case, RecordName, fields_of};

/// The record types of random databases.
const TYPES: [&str; 30] = [
    "ai",
    "ao",
    "bi",
    "bo",
    "calc",
    "longin",
    "longout",
    "mbbi",
    "mbbo",
    "stringin",
    "stringout",
    "waveform",
    "fanout",
    "dfanout",
    "calcout",
    "seq",
    "event",
    "sel",
    "sub",
    "int64in",
    "int64out",
    "mbbiDirect",
    "mbboDirect",
    "lsi",
    "lso",
    "aai",
    "aao",
    "subArray",
    "compress",
    "printf",
];

/// The record types of databases about events: types that post them, and types whose processing is easy to observe.
const TYPES_OF_EVENTS: [&str; 9] = ["event", "event", "calcout", "fanout", "fanout", "calc", "calc", "longin", "seq"];

/// The element types of random arrays.
const ELEMENTS: [&str; 12] =
    ["DOUBLE", "LONG", "SHORT", "CHAR", "STRING", "FLOAT", "UCHAR", "USHORT", "ULONG", "INT64", "UINT64", "ENUM"];

/// Large enough for chains and loops, small enough for a person to read.
const RECORDS: usize = 5;
const STEPS: usize = 24;

/// One field in this many is set.
const FIELDS_SET_EVERY: u64 = 7;

/// The case of a seed; kept apart from its text, so that parts of it can be removed.
#[derive(Clone, Debug)]
pub struct RandomCase {
    seed: u64,
    records: Vec<(RecordName, Vec<(String, String)>)>,
    steps: Vec<GateStep>,
}

impl RandomCase {
    /// The case of this seed.
    pub fn new(seed: u64) -> RandomCase {
        let mut dice = Dice(seed);
        let topic = dice.below(5);
        if topic == 1 {
            return RandomCase::with_busy_records(seed, dice);
        }
        let is_about_events = topic == 0;
        let types = if is_about_events { &TYPES_OF_EVENTS[..] } else { &TYPES };
        let records = (0..RECORDS).map(|number| {
            let record_type = dice.one_of(types).to_string();
            let mut fields = fields(&mut dice, &record_type);
            if is_about_events {
                add_events(&mut dice, &record_type, &mut fields);
            }
            (RecordName { name: format!("r{number}"), record_type }, fields)
        });
        let mut records: Vec<(RecordName, Vec<(String, String)>)> = records.collect();
        let types: Vec<String> = records.iter().map(|(record, _)| record.record_type.clone()).collect();
        for (record, fields) in &mut records {
            fields.retain(|(field, value)| !writes_differently(&types, &record.record_type, field, value));
        }
        let mut steps: Vec<GateStep> = records.iter().flat_map(|(record, _)| watches(record)).collect();
        for _ in 0..STEPS {
            let (record, _) = dice.one_of(&records);
            let step = step(&mut dice, record);
            let is_listed = match &step {
                GateStep::Write(put) => put
                    .pv
                    .split_once('.')
                    .is_some_and(|(_, field)| writes_differently(&types, &record.record_type, field, &put.text)),
                _ => false,
            };
            steps.extend((!is_listed).then_some(step));
        }
        RandomCase { seed, records, steps }
    }

    fn with_busy_records(seed: u64, mut dice: Dice) -> RandomCase {
        let records = busy::records(&mut dice, RECORDS);
        let mut steps: Vec<GateStep> = records.iter().map(|(record, _)| GateStep::Watch(record.name.clone())).collect();
        steps.extend(busy::steps(&mut dice, &records));
        RandomCase { seed, records, steps }
    }

    /// The case that both servers execute.
    pub fn case(&self) -> Case {
        let mut database = String::new();
        for (record, fields) in &self.records {
            // Writing to a String never fails.
            let _ = writeln!(database, "record({}, \"$(P){}\") {{", record.record_type, record.name);
            for (field, value) in fields {
                let quote = if value.starts_with('{') { "" } else { "\"" };
                let _ = writeln!(database, "    field({field}, {quote}{value}{quote})");
            }
            database += "}\n";
        }
        let records = self.records.iter().map(|(record, _)| record.clone()).collect();
        Case { name: format!("random {}", self.seed), database, records, steps: self.steps.clone() }
    }

    /// Removes the steps after the first `n_steps`.
    pub fn until(mut self, n_steps: usize) -> RandomCase {
        self.steps.truncate(n_steps);
        self
    }

    /// Smaller variants: without a record, without half of the steps or of a record's fields, or without one of them.
    pub fn smaller(&self) -> Vec<RandomCase> {
        let mut smaller = Vec::new();
        for (record, _) in &self.records {
            let mut without = self.clone();
            without.records.retain(|(other, _)| other != record);
            without.steps.retain(|step| !is_about(step, &record.name));
            smaller.push(without);
        }
        let half = self.steps.len() / 2;
        for range in [0..half, half..self.steps.len()].into_iter().chain((0..self.steps.len()).map(|at| at..at + 1)) {
            let mut without = self.clone();
            let mut index = 0;
            // Without its waits, a case with delays depends on how fast the steps are.
            without.steps.retain(|step| {
                index += 1;
                !range.contains(&(index - 1)) || *step == GateStep::WaitIdle
            });
            smaller.push(without);
        }
        for (at, (_, fields)) in self.records.iter().enumerate() {
            let half = fields.len() / 2;
            for range in [0..half, half..fields.len()].into_iter().chain((0..fields.len()).map(|at| at..at + 1)) {
                let mut without = self.clone();
                if let Some((_, fields)) = without.records.get_mut(at) {
                    fields.drain(range);
                }
                smaller.push(without);
            }
        }
        // Removing nothing is no progress.
        smaller.retain(|other| other.size() < self.size());
        smaller
    }
}

impl RandomCase {
    fn size(&self) -> usize {
        self.records.iter().map(|(_, fields)| 1 + fields.len()).sum::<usize>() + self.steps.len()
    }
}

/// Watches VAL, and the fields that count its elements.
fn watches(record: &RecordName) -> Vec<GateStep> {
    let counts: &[&str] = match &*record.record_type {
        "waveform" | "aai" | "aao" => &["NORD"],
        "subArray" => &["NORD", "INDX", "NELM"],
        "compress" => &["NUSE", "OFF"],
        "lsi" | "lso" | "printf" => &["LEN"],
        _ => &[],
    };
    let counts = counts.iter().map(|field| GateStep::Watch(format!("{}.{field}", record.name)));
    std::iter::once(GateStep::Watch(record.name.clone())).chain(counts).collect()
}

fn is_about(step: &GateStep, record: &str) -> bool {
    match step {
        GateStep::Watch(pv) => pv.split('.').next() == Some(record),
        GateStep::Put(argument) | GateStep::Write(argument) | GateStep::Get(argument) => {
            argument.pv.split('.').next() == Some(record)
        }
        GateStep::Request { pv, .. } => pv.split('.').next() == Some(record),
        GateStep::Acknowledge(pv, ..) => pv == record,
        GateStep::Wait(_) | GateStep::WaitIdle => false,
    }
}

fn fields(dice: &mut Dice, record_type: &str) -> Vec<(String, String)> {
    let mut set = Vec::new();
    // Fields that only a database file can set.
    let sizes: &[(&str, &[&str])] = match record_type {
        "waveform" | "aai" | "aao" => &[("FTVL", &ELEMENTS), ("NELM", &["1", "3", "5"])],
        "subArray" => &[("FTVL", &ELEMENTS), ("MALM", &["3", "5"]), ("NELM", &["1", "2", "4"])],
        "compress" => &[("NSAM", &["1", "3", "5"])],
        "lsi" | "lso" | "printf" => &[("SIZV", &["16", "41", "60"])],
        _ => &[],
    };
    set.extend(sizes.iter().map(|(field, choices)| (field.to_string(), dice.one_of(choices).to_string())));
    for field in fields_of(record_type) {
        let is_link = matches!(domain(record_type, &field), Domain::Link(_));
        if field == "VAL" || dice.below(if is_link { 3 } else { FIELDS_SET_EVERY }) != 0 {
            continue;
        }
        // The value is chosen in any case, so that the rest of the database stays the same.
        let chosen = value(dice, record_type, &field, SetBy::File);
        if let Some(value) = chosen.filter(|_| !disables_long_text(record_type, &field)) {
            set.push((field, value));
        }
    }
    set
}

/// Makes a record post events, or process on events. A record that processes on events gets no links, and one that
/// posts events is not scanned; otherwise an event would post itself endlessly.
fn add_events(dice: &mut Dice, record_type: &str, fields: &mut Vec<(String, String)>) {
    let is_scanned = matches!(record_type, "calc" | "longin");
    fields.retain(|(field, _)| !["SCAN", "VAL", "OEVT", "EVNT", "CALC"].contains(&field.as_str()));
    fields.retain(|(field, _)| !is_scanned || !is_link(field));
    let mut set = |field: &str, value: &str| fields.push((field.into(), value.into()));
    match record_type {
        "event" => set("VAL", dice.one_of::<&str>(EVENTS)),
        "calcout" => set("OEVT", dice.one_of::<&str>(EVENTS)),
        _ if is_scanned => {
            set("SCAN", "Event");
            set("EVNT", dice.one_of::<&str>(EVENTS));
        }
        _ => {}
    }
    if record_type == "calc" {
        set("CALC", "VAL+1");
    }
}

/// Where a field is set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SetBy {
    /// In the database file, which must load.
    File,
    /// In a put, which may be rejected.
    Put,
}

/// A value for this field; `None` if the field is not set.
fn value(dice: &mut Dice, record_type: &str, field: &str, place: SetBy) -> Option<String> {
    match domain(record_type, field) {
        Domain::None => None,
        _ if place == SetBy::Put && dice.below(8) == 0 => Some(dice.one_of(&WILD).to_string()),
        Domain::Number if place == SetBy::File => Some(dice.one_of(&NUMBERS[..N_WHOLE]).to_string()),
        Domain::OneOf(choices) => Some(dice.one_of(choices).to_string()),
        Domain::Link(modifiers) => Some(link(dice, modifiers, "$(P)nobody")),
        Domain::Number => Some(dice.one_of(&NUMBERS).to_string()),
    }
}

/// A random link. `unreached`: the name of a PV that does not exist.
fn link(dice: &mut Dice, modifiers: &[&str], unreached: &str) -> String {
    match dice.below(16) {
        0 | 1 => return dice.one_of(&[PLAIN_CONSTANTS, &["", unreached]].concat()).to_string(),
        2 => return json_link(dice, modifiers),
        _ => {}
    }
    let record = dice.below(RECORDS as u64);
    let field = dice.one_of(&["", "", "", "", ".SEVR", ".PROC", ".STAT", ".VAL", ".DESC", ".UDF"]);
    let modifiers = dice.one_of(modifiers);
    let alarms = dice.one_of(&["", " MS", " MSS", " MSI", " NMS"]);
    if modifiers.is_empty() { format!("$(P)r{record}") } else { format!("$(P)r{record}{field}{modifiers}{alarms}") }
}

/// Constants of links: one number in every notation.
const PLAIN_CONSTANTS: &[&str] = &[
    "1",
    "-2.5",
    "7",
    "010",
    "08",
    "1e3",
    "0x1F",
    "-0x10",
    "+5",
    ".5",
    "5.",
    "007.5",
    "-010",
    "3000000000",
    "4294967296",
    "9007199254740993",
    "nan",
    "-inf",
];

/// Whether a field with this name is a link, for any record type.
fn is_link(field: &str) -> bool {
    const NAMES: [&str; 8] = ["FLNK", "SDIS", "TSEL", "SIOL", "SIML", "SELL", "NVL", "SUBL"];
    let is_numbered = |prefix: &str| field.strip_prefix(prefix).is_some_and(|rest| rest.len() <= 1);
    // INAA to INUU are fields of aSub.
    let is_doubled =
        field.strip_prefix("IN").is_some_and(|rest| rest.len() == 2 && rest.as_bytes()[0] == rest.as_bytes()[1]);
    NAMES.contains(&field) || is_doubled || ["INP", "OUT", "DOL", "LNK"].into_iter().any(is_numbered)
}

/// A link to something other than a PV; empty for a link that only processes.
fn json_link(dice: &mut Dice, modifiers: &[&str]) -> String {
    const CONSTANTS: [&str; 10] = [
        "{const:5}",
        "{const:-2.5}",
        "{const:[1,2,3]}",
        "{const:\"a text\"}",
        "{const:[1,2.5]}",
        "{const:3000000000}",
        "{const:[9007199254740993]}",
        "{const:0x10}",
        "{const:true}",
        "{const:1e3}",
    ];
    const FORMULAS: [&str; 2] = ["7", "2*3.5"];
    let is_process_only = modifiers == [""];
    match dice.below(3) {
        _ if is_process_only => String::new(),
        // The other types are read-only.
        0 | 1 if modifiers == OUT => "{state:\"$(P)s\"}".into(),
        0 => dice.one_of(&CONSTANTS).to_string(),
        1 => format!("{{calc:{{expr:\"{}\"}}}}", dice.one_of(&FORMULAS)),
        _ => "{state:\"$(P)s\"}".into(),
    }
}

/// A request for VAL or another field as any DBR type.
fn request(dice: &mut Dice, record: &RecordName) -> GateStep {
    let field = dice.one_of(&fields_of(&record.record_type)).clone();
    let is_value = dice.below(2) == 0;
    let pv = if is_value { record.name.clone() } else { format!("{}.{field}", record.name) };
    let way = if dice.below(3) == 0 { RequestMethod::Subscribe } else { RequestMethod::Read };
    let dbr = match dice.below(39) as u16 {
        // softIoc does not return a link as a number: see the page on differences.
        dbr if is_link(&field) && !is_value && dbr < 35 => dbr / 7 * 7,
        dbr => dbr,
    };
    let count = *dice.one_of(&[0, 1, 1, 2, 5]);
    // softIoc returns several elements of a text as characters or states: see the page on differences.
    let dbr = if count > 1 && [3, 4].contains(&(dbr % 7)) && dbr < 35 { dbr / 7 * 7 + 6 } else { dbr };
    // softIoc writes the state of a record when it returns another text of the record as a state: see the same page.
    let has_states = STATES.contains(&record.record_type.as_str());
    let is_state_read = has_states && !is_value && is_text(&field) && dbr < 35 && dbr % 7 == 3;
    let dbr = if is_state_read { dbr / 7 * 7 } else { dbr };
    // softIoc sends no element of a long text without text, and several class names: see the same page.
    let is_long_text =
        LONG_TEXTS.contains(&record.record_type.as_str()) && (is_value || ["VAL", "OVAL"].contains(&&*field));
    let count = if count == 0 && (is_long_text || dbr == DbrType::CLASS_NAME.0) { 1 } else { count };
    GateStep::Request { pv, way, dbr: DbrType(dbr), count }
}

/// A put that may be rejected is written without completion: softIoc processes a record even when it rejects a put with
/// completion, and both servers would differ from then on.
fn step(dice: &mut Dice, record: &RecordName) -> GateStep {
    let name = &record.name;
    let kinds = [Kind::Text, Kind::Text, Kind::F64, Kind::I32, Kind::I16, Kind::Enum, Kind::F32];
    match dice.below(15) {
        11.. => request(dice, record),
        0 => {
            let which = *dice.one_of(&[AcknowledgeStep::Transient, AcknowledgeStep::Severity]);
            // Other values of ACKT are on the page on differences.
            let n_numbers = if which == AcknowledgeStep::Transient { 2 } else { 4 };
            GateStep::Acknowledge(name.clone(), which, dice.below(n_numbers) as u16)
        }
        1..4 => {
            let argument = Argument { pv: format!("{name}.PROC"), kind: Kind::Text, text: "1".into() };
            if dice.below(2) == 0 { GateStep::Write(argument) } else { GateStep::Put(argument) }
        }
        // A put to VAL of a compress is stored where softIoc's ring happens to start, next to old memory contents.
        4..7 if record.record_type != "compress" => {
            let kind = *dice.one_of(&kinds);
            let text = match (record.record_type.as_str(), kind) {
                // softIoc treats an empty text as a state without a name: see the page on differences. The same applies
                // to a text that starts with a number, for an mbbo.
                ("mbbo", Kind::Text) => dice.one_of(&["0", "1", "2", "5", "-1", "abc", "YES", "300"]).to_string(),
                ("bi" | "bo" | "mbbi", Kind::Text) => dice.one_of(&WILD[1..]).to_string(),
                (_, Kind::Text) => dice.one_of(&WILD).to_string(),
                ("waveform" | "aai" | "aao" | "subArray", _) => {
                    let n_elements = dice.below(8);
                    (0..n_elements).map(|_| number(dice)).collect::<Vec<_>>().join(" ")
                }
                _ => number(dice).to_string(),
            };
            GateStep::Write(Argument { pv: name.clone(), kind, text })
        }
        _ => {
            let fields = fields_of(&record.record_type);
            loop {
                let field = dice.one_of(&fields).clone();
                if is_on_the_page_on_differences(&record.record_type, &field) {
                    continue;
                }
                if let Some(text) = value(dice, &record.record_type, &field, SetBy::Put) {
                    return GateStep::Write(Argument { pv: format!("{name}.{field}"), kind: Kind::Text, text });
                }
            }
        }
    }
}

/// The record types whose VAL is a state.
const STATES: [&str; 4] = ["bi", "bo", "mbbi", "mbbo"];

/// The record types whose VAL is a long text.
const LONG_TEXTS: [&str; 3] = ["lsi", "lso", "printf"];

/// Whether both servers treat a put to this field differently: a link or constant for an input or output of a calcout,
/// and the disabling of a record with a long text.
fn is_on_the_page_on_differences(record_type: &str, field: &str) -> bool {
    let is_link_of_calcout = record_type == "calcout" && (field.starts_with("INP") || field == "OUT");
    is_link_of_calcout || disables_long_text(record_type, field)
}

/// Whether both servers treat what a link writes differently: a text, which may be empty, written to a record with states,
/// and any value written to a compress. See the page on differences.
fn writes_differently(types: &[String], record_type: &str, field: &str, link: &str) -> bool {
    let is_output = matches!(domain(record_type, field), Domain::Link(modifiers) if modifiers == OUT);
    let target = link.strip_prefix("$(P)r").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let record = target.strip_suffix(".VAL").unwrap_or(target);
    let target_type = record.parse().ok().and_then(|number: usize| types.get(number)).map_or("", String::as_str);
    let is_text = ["stringout", "lso", "printf"].contains(&record_type);
    is_output && (target_type == "compress" || is_text && STATES.contains(&target_type))
}

/// Whether the field can disable a record with a long text.
fn disables_long_text(record_type: &str, field: &str) -> bool {
    LONG_TEXTS.contains(&record_type) && ["SDIS", "DISA", "DISV"].contains(&field)
}

/// Whether a field of a record with states is a text, other than a link.
fn is_text(field: &str) -> bool {
    const NAMES: [&str; 9] = ["NAME", "DESC", "ASG", "EVNT", "AMSG", "NAMSG", "ZNAM", "ONAM", "RTYP"];
    // ZRST to FFST; MLST is a number.
    NAMES.contains(&field) || field.len() == 4 && field.ends_with("ST") && field != "MLST"
}

/// A number; one in eight exceeds the range of some kinds.
fn number(dice: &mut Dice) -> &'static str {
    let choices = if dice.below(8) == 0 { &HUGE[..] } else { &NUMBERS };
    dice.one_of::<&str>(choices)
}

/// splitmix64: the same seed gives the same sequence.
pub(super) struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub(super) fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let at = self.below(choices.len() as u64) as usize;
        &choices[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_generates_the_same_case() {
        let (one, again, other) = (RandomCase::new(1).case(), RandomCase::new(1).case(), RandomCase::new(2).case());

        assert_eq!((&one.database, &one.steps), (&again.database, &again.steps));
        assert_ne!(one.database, other.database);
        assert_eq!(one.records.len(), RECORDS);
    }
}
