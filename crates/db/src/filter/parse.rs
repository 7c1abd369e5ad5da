//! Parses filters after a channel name: `[s:i:e]` and `{"dbnd":{"abs":1.5}}`.

use super::{Filter, FilterError, FilterFault, SyncMode, TimeFormat};
use crate::json::{self, Json, JsonMember};
use crate::limit::FILTER_BYTES_MAX;
use crate::state::States;

/// The known filters.
pub(super) const NAMES: [&str; 6] = ["arr", "dbnd", "ts", "sync", "dec", "utag"];

const WHOLE: &str = "a whole number of 32 bits";
const NUMBER: &str = "a number";
const STATE: &str = "the name of a state";

/// Parses the filters of `name`, which start at byte `at`: a range, a map of filters, or both in this order.
pub(crate) fn filters(name: &str, at: usize, states: &States) -> Result<Vec<Filter>, FilterError> {
    let text = name.get(at..).unwrap_or_default();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    if name.len() > FILTER_BYTES_MAX {
        return Err(FilterError { at, fault: FilterFault::TooLong });
    }
    let mut filters = Vec::new();
    let (range, braces) = match text.strip_prefix('[') {
        Some(inside) => {
            let n_bytes = inside.find(']').ok_or_else(|| syntax(at, "this range is not closed"))?;
            (inside.get(..n_bytes), inside.get(n_bytes + 1..).unwrap_or_default())
        }
        None => (None, text),
    };
    if let Some(range) = range {
        filters.push(slice(range).ok_or_else(|| syntax(at, "expected [index], [start:end] or [start:step:end]"))?);
    }
    let at = name.len() - braces.len();
    if braces.is_empty() {
        return Ok(filters);
    }
    if !braces.starts_with('{') {
        return Err(syntax(at, "expected '$', a range, or filters in braces after the field"));
    }
    let map = json::read(braces).map_err(|error| syntax(at + error.at, error.what))?;
    let Json::Map(entries) = map else { return Err(syntax(at, "expected a map of filters")) };
    for entry in entries {
        filters.push(filter(&entry, states).map_err(|(inside, fault)| FilterError { at: at + inside, fault })?);
    }
    Ok(filters)
}

fn syntax(at: usize, what: &'static str) -> FilterError {
    FilterError { at, fault: FilterFault::Syntax(what) }
}

/// Parses the inside of the brackets of a range.
fn slice(range: &str) -> Option<Filter> {
    let parts: Vec<&str> = range.split(':').collect();
    let or = |part: &str, default: i32| if part.is_empty() { Some(default) } else { c_number(part) };
    let (start, step, end) = match parts[..] {
        [index] => {
            let index = c_number(index)?;
            (index, 1, index)
        }
        [start, end] => (or(start, 0)?, 1, or(end, -1)?),
        [start, step, end] => (or(start, 0)?, or(step, 1)?, or(end, -1)?),
        _ => return None,
    };
    Some(Filter::Slice { start, step: step.max(1), end })
}

/// Parses a text that contains only an integer, by the rules of [`fodo_data::integer_at_start`].
fn c_number(text: &str) -> Option<i32> {
    let (number, end) = fodo_data::integer_at_start(text).ok()?;
    i32::try_from(number).ok().filter(|_| end == text.len())
}

/// A fault and its position in the JSON.
type Fault = (usize, FilterFault);

fn filter(entry: &JsonMember, states: &States) -> Result<Filter, Fault> {
    let Some(name) = NAMES.iter().find(|known| **known == entry.name) else {
        return Err((entry.at, FilterFault::UnknownFilter(cut(&entry.name))));
    };
    let Json::Map(arguments) = &entry.value else {
        return Err((entry.at, FilterFault::InvalidValue { argument: name, expected: "a map of arguments in braces" }));
    };
    match *name {
        "arr" => array(arguments),
        "dbnd" => deadband(arguments),
        "ts" => time(arguments),
        "sync" => sync(entry.at, arguments, states),
        "dec" => decimate(entry.at, arguments),
        _ => tag(arguments),
    }
}

fn array(arguments: &[JsonMember]) -> Result<Filter, Fault> {
    let (mut start, mut step, mut end) = (0, 1, -1);
    for argument in arguments {
        match known("arr", argument, &["s", "i", "e"])? {
            "s" => start = whole(argument, "s")?,
            "i" => step = whole(argument, "i")?,
            _ => end = whole(argument, "e")?,
        }
    }
    Ok(Filter::Slice { start, step: step.max(1), end })
}

fn deadband(arguments: &[JsonMember]) -> Result<Filter, Fault> {
    const MODES: [(&str, bool); 2] = [("abs", false), ("rel", true)];
    let (mut by, mut is_relative) = (0.0, false);
    for argument in arguments {
        match known("dbnd", argument, &["d", "m", "abs", "rel"])? {
            "m" => is_relative = choice(argument, "m", &MODES, "\"abs\" or \"rel\"")?,
            "d" => by = real(argument, "d")?,
            "abs" => (by, is_relative) = (real(argument, "abs")?, false),
            _ => (by, is_relative) = (real(argument, "rel")?, true),
        }
    }
    Ok(Filter::Deadband { by, is_relative })
}

fn time(arguments: &[JsonMember]) -> Result<Filter, Fault> {
    const NUMBERS: [(&str, TimeFormat); 4] = [
        ("dbl", TimeFormat::Double),
        ("sec", TimeFormat::Seconds),
        ("nsec", TimeFormat::Nanos),
        ("ts", TimeFormat::Both),
    ];
    const TEXTS: [(&str, TimeFormat); 2] = [("epics", TimeFormat::EpicsText), ("iso", TimeFormat::IsoText)];
    let (mut number, mut text, mut is_unix) = (None, None, false);
    for argument in arguments {
        match known("ts", argument, &["num", "epoch", "str"])? {
            "num" => number = Some(word(argument, "num", &NUMBERS, "\"dbl\", \"sec\", \"nsec\" or \"ts\"")?),
            "epoch" => {
                is_unix = word(argument, "epoch", &[("epics", false), ("unix", true)], "\"epics\" or \"unix\"")?;
            }
            _ => text = Some(word(argument, "str", &TEXTS, "\"epics\" or \"iso\"")?),
        }
    }
    // With both `str` and `num`, the text is used.
    Ok(text.or(number).map_or(Filter::Stamp, |form| Filter::Time { form, is_unix }))
}

fn sync(at: usize, arguments: &[JsonMember], states: &States) -> Result<Filter, Fault> {
    const MODES: [(&str, SyncMode); 6] = [
        ("before", SyncMode::Before),
        ("first", SyncMode::First),
        ("last", SyncMode::Last),
        ("after", SyncMode::After),
        ("while", SyncMode::While),
        ("unless", SyncMode::Unless),
    ];
    const EXPECTED: &str = "\"before\", \"first\", \"last\", \"after\", \"while\" or \"unless\"";
    let (mut mode, mut state) = (None, None);
    for argument in arguments {
        match known("sync", argument, &["m", "s", "before", "first", "last", "after", "while", "unless"])? {
            "m" => mode = Some(choice(argument, "m", &MODES, EXPECTED)?),
            "s" => state = Some((argument, "s")),
            short => {
                mode = MODES.iter().find(|(name, _)| *name == short).map(|(_, mode)| *mode);
                state = Some((argument, short));
            }
        }
    }
    let missing = |argument| (at, FilterFault::Missing { filter: "sync", argument });
    let mode = mode.ok_or_else(|| missing("m"))?;
    let (argument, called) = state.ok_or_else(|| missing("s"))?;
    let Json::Text(name) = &argument.value else { return Err(bad(argument, called, STATE)) };
    let state = states.find(name).ok_or_else(|| (argument.at, FilterFault::UnknownState(cut(name))))?;
    Ok(Filter::Sync { mode, state })
}

fn decimate(at: usize, arguments: &[JsonMember]) -> Result<Filter, Fault> {
    let mut n = None;
    for argument in arguments {
        known("dec", argument, &["n"])?;
        n = Some(match argument.value {
            Json::Whole(number) => i32::try_from(number).ok().filter(|n| *n >= 1),
            _ => None,
        });
    }
    match n {
        Some(Some(n)) => Ok(Filter::Decimate { n }),
        Some(None) => Err((at, FilterFault::InvalidValue { argument: "n", expected: "a whole number, at least 1" })),
        None => Err((at, FilterFault::Missing { filter: "dec", argument: "n" })),
    }
}

fn tag(arguments: &[JsonMember]) -> Result<Filter, Fault> {
    let (mut mask, mut value) = (-1, 0);
    for argument in arguments {
        match known("utag", argument, &["M", "V"])? {
            "M" => mask = whole(argument, "M")?,
            _ => value = whole(argument, "V")?,
        }
    }
    Ok(Filter::Tag { mask, value })
}

/// Finds the argument. As in Base, the start of its name is enough.
fn known(filter: &'static str, argument: &JsonMember, names: &[&'static str]) -> Result<&'static str, Fault> {
    let found = names.iter().find(|name| name.starts_with(&*argument.name));
    let unknown = || FilterFault::UnknownArgument { filter, argument: cut(&argument.name) };
    found.copied().filter(|_| !argument.name.is_empty()).ok_or_else(|| (argument.at, unknown()))
}

fn bad(argument: &JsonMember, name: &'static str, expected: &'static str) -> Fault {
    (argument.at, FilterFault::InvalidValue { argument: name, expected })
}

fn whole(argument: &JsonMember, name: &'static str) -> Result<i32, Fault> {
    let number = match &argument.value {
        Json::Whole(number) => i32::try_from(*number).ok(),
        Json::Real(real) if (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(real) => Some(*real as i32),
        Json::Bool(is_set) => Some(i32::from(*is_set)),
        Json::Text(text) => c_number(text.trim()),
        _ => None,
    };
    number.ok_or_else(|| bad(argument, name, WHOLE))
}

fn real(argument: &JsonMember, name: &'static str) -> Result<f64, Fault> {
    let number = match &argument.value {
        Json::Whole(number) => Some(*number as f64),
        Json::Real(real) => Some(*real),
        Json::Bool(is_set) => Some(f64::from(u8::from(*is_set))),
        Json::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| bad(argument, name, NUMBER))
}

/// Parses a choice by its word. As in Base, the start of the word is enough.
fn word<T: Copy>(
    argument: &JsonMember,
    name: &'static str,
    words: &[(&str, T)],
    expected: &'static str,
) -> Result<T, Fault> {
    let meant = match &argument.value {
        Json::Text(text) if !text.is_empty() => words.iter().find(|(word, _)| word.starts_with(&**text)),
        _ => None,
    };
    meant.map(|(_, value)| *value).ok_or_else(|| bad(argument, name, expected))
}

/// Parses a choice by its word or its number.
fn choice<T: Copy>(
    argument: &JsonMember,
    name: &'static str,
    words: &[(&str, T)],
    expected: &'static str,
) -> Result<T, Fault> {
    match argument.value {
        Json::Whole(number) => {
            let meant = usize::try_from(number).ok().and_then(|index| words.get(index));
            meant.map(|(_, value)| *value).ok_or_else(|| bad(argument, name, expected))
        }
        _ => word(argument, name, words, expected),
    }
}

/// Truncates a word of a client for an error message.
fn cut(word: &str) -> String {
    const CHARACTERS: usize = 40;
    word.chars().take(CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Filter>, FilterError> {
        let states = States::default();
        states.create("red");
        filters(&format!("rec.{text}"), 4, &states)
    }

    fn one(text: &str) -> Filter {
        let mut filters = read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(filters.len(), 1, "{text}");
        filters.remove(0)
    }

    #[test]
    fn array_ranges_are_parsed_with_c_number_syntax() {
        let slice = |start, step, end| Filter::Slice { start, step, end };

        assert_eq!(one("[3]"), slice(3, 1, 3));
        assert_eq!(one("[:]"), slice(0, 1, -1));
        assert_eq!(one("[2:]"), slice(2, 1, -1));
        assert_eq!(one("[-4:-2]"), slice(-4, 1, -2));
        assert_eq!(one("[0x10:2:010]"), slice(16, 2, 8));
        assert_eq!(one("[::3]"), slice(0, 1, 3));
        assert_eq!(one("[1:-5:9]"), slice(1, 1, 9));
        for wrong in ["[]", "[1", "[1:2:3:4]", "[a]", "[1.5]", "[99999999999]", "[1]x", "[1][2]", "{}[1]", "x", "$"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn filters_accept_long_and_short_argument_names() {
        let deadband = |by, is_relative| Filter::Deadband { by, is_relative };

        assert_eq!(one(r#"{"arr":{"s":1,"i":0,"e":-2}}"#), Filter::Slice { start: 1, step: 1, end: -2 });
        assert_eq!(one(r#"{"dbnd":{"abs":1.5}}"#), deadband(1.5, false));
        assert_eq!(one(r#"{"dbnd":{"d":"10","m":"rel"}}"#), deadband(10.0, true));
        assert_eq!(one("{dbnd:{m:1,d:3}}"), deadband(3.0, true));
        assert_eq!(one("{dbnd:{}}"), deadband(0.0, false));
        assert_eq!(one("{ts:{}}"), Filter::Stamp);
        assert_eq!(one("{ts:{num:'ts',epoch:'unix'}}"), Filter::Time { form: TimeFormat::Both, is_unix: true });
        assert_eq!(one("{ts:{num:'sec',str:'iso'}}"), Filter::Time { form: TimeFormat::IsoText, is_unix: false });
        assert_eq!(one("{dec:{n:3}}"), Filter::Decimate { n: 3 });
        assert_eq!(one("{utag:{M:0xff,V:4}}"), Filter::Tag { mask: 255, value: 4 });
        assert!(matches!(one("{sync:{m:'while',s:'red'}}"), Filter::Sync { mode: SyncMode::While, .. }));
        assert!(matches!(one("{sync:{last:'red'}}"), Filter::Sync { mode: SyncMode::Last, .. }));
        assert_eq!(read("[1:2]{dec:{n:2},ts:{}}").map(|filters| filters.len()), Ok(3));
        assert_eq!(read("{}"), Ok(Vec::new()));
    }

    #[test]
    fn an_invalid_filter_is_reported_with_its_position_in_the_name() {
        let said = |text: &str| read(text).unwrap_err().to_string();

        assert_eq!(said("{dbnd:{abs:1}"), "expected ',' or '}', at character 18 of the name");
        assert_eq!(
            said("{nope:{}}"),
            "unknown filter \"nope\"; known are arr, dbnd, ts, sync, dec, utag, at character 6 of the name"
        );
        assert_eq!(said("{dbnd:{x:1}}"), "the filter dbnd has no argument \"x\", at character 12 of the name");
        assert_eq!(said("{dec:{n:0}}"), "n must be a whole number, at least 1, at character 6 of the name");
        assert_eq!(said("{dec:{}}"), "the filter dec needs n, at character 6 of the name");
        assert_eq!(said("{sync:{while:'blue'}}"), "there is no state \"blue\", at character 12 of the name");
        assert_eq!(said("{dbnd:1}"), "dbnd must be a map of arguments in braces, at character 6 of the name");
    }

    #[test]
    fn an_overlong_filter_is_rejected_before_parsing() {
        let name_of = |n_bytes: usize| {
            let blanks = " ".repeat(n_bytes - "rec.{dec:{n:2}}".len());
            read(&format!("{{dec:{{n:2{blanks}}}}}"))
        };

        assert!(name_of(FILTER_BYTES_MAX).is_ok());
        assert_eq!(name_of(FILTER_BYTES_MAX + 1).unwrap_err().fault, FilterFault::TooLong);
    }

    #[test]
    fn an_argument_of_a_filter_may_be_a_number_a_bool_or_a_text() {
        let start = |value: &str| match one(&format!("{{arr:{{s:{value}}}}}")) {
            Filter::Slice { start, .. } => start,
            other => panic!("{other:?}"),
        };
        let by = |value: &str| match one(&format!("{{dbnd:{{d:{value}}}}}")) {
            Filter::Deadband { by, .. } => by,
            other => panic!("{other:?}"),
        };

        assert_eq!([start("2"), start("2.9"), start("true"), start("false"), start("' 0x10 '")], [2, 2, 1, 0, 16]);
        assert_eq!([by("2"), by("2.5"), by("true"), by("false"), by("' 1.5 '")], [2.0, 2.5, 1.0, 0.0, 1.5]);
        for wrong in
            ["{arr:{s:3e9}}", "{arr:{s:-3e9}}", "{arr:{s:null}}", "{arr:{s:'x'}}", "{dbnd:{d:null}}", "{dbnd:{d:'x'}}"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_utag_filter_without_arguments_compares_all_bits_with_zero() {
        assert_eq!(one("{utag:{}}"), Filter::Tag { mask: -1, value: 0 });
        assert_eq!(one("{utag:{V:2}}"), Filter::Tag { mask: -1, value: 2 });
        assert_eq!(one("{utag:{M:3}}"), Filter::Tag { mask: 3, value: 0 });
    }
}
