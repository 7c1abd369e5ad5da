//! Parses the JSON of groups.

use std::collections::HashMap;

use fodo_data::{Scalar, Value};

use super::{MemberDefinition, MemberMapping, MemberPath, PathStep};
use crate::json::{Json, JsonError, JsonMember, JsonScanner, read_database};
use crate::limit::{GROUP_DEPTH_MAX, GROUP_INDEX_MAX, JSON_DEPTH_MAX};
use crate::load::LoadError;
use crate::load::error::suggestion;

/// What one info item or file defines of a group.
#[derive(Clone, Debug)]
pub(crate) struct PartialGroup {
    pub(super) name: String,
    pub(super) at: LoadError,
    pub(super) id: Option<String>,
    pub(super) is_atomic: Option<bool>,
    pub(super) members: Vec<PartialMember>,
    /// Whether a mistake in this part has been reported.
    pub(super) is_flawed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct PartialMember {
    pub(super) member: MemberDefinition,
    /// The names in `+trigger`, or `*`.
    pub(super) trigger_names: Vec<String>,
}

/// The place of a byte of a JSON text, without a message.
pub(crate) type PlaceOf<'a> = dyn Fn(usize) -> LoadError + 'a;

/// Parses the groups in a JSON text. `record`: the record whose fields are the channels; `None`: channels have full
/// names. A group with a mistake is flawed; so are all groups in a text that is not JSON.
pub(crate) fn parse(text: &str, record: Option<&str>, at: &PlaceOf) -> (Vec<PartialGroup>, Vec<LoadError>) {
    let mut parser = GroupParser { record, at, errors: Vec::new() };
    let groups = match read_database(text) {
        Ok(Json::Map(groups)) => groups.into_iter().map(|group| parser.group(group)).collect(),
        Ok(_) => {
            parser.report(0, "groups need braces around them: {\"name\": {...}}".into());
            Vec::new()
        }
        Err(JsonError { at: offset, what }) => {
            parser.report(offset, format!("invalid JSON: {what}"));
            flawed(text, at)
        }
    };
    (groups, parser.errors)
}

/// The groups in a text, all of them flawed: the text is not valid, or belongs to a record that is not loaded.
pub(crate) fn flawed(text: &str, at: &PlaceOf) -> Vec<PartialGroup> {
    let mut found = Vec::new();
    let (mut scanner, mut start) = (JsonScanner::default(), 0);
    for (position, character) in text.char_indices() {
        if character == ':' && !scanner.is_in_text() && scanner.depth() == 1 {
            let name = text.get(start..position).unwrap_or_default().trim();
            let name = name.trim_matches(['"', '\'']).to_owned();
            found.push(PartialGroup { is_flawed: true, ..PartialGroup::new(name, at(start)) });
        }
        // The mistake is reported already, if it is one.
        let _ = scanner.take(character);
        if !scanner.is_in_text() && scanner.depth() == 1 && matches!(character, '{' | '}' | ',') {
            start = position + 1;
        }
        if scanner.depth() > JSON_DEPTH_MAX {
            break;
        }
    }
    found
}

impl PartialGroup {
    fn new(name: String, at: LoadError) -> PartialGroup {
        PartialGroup { name, at, id: None, is_atomic: None, members: Vec::new(), is_flawed: false }
    }

    /// Adds the places that load the file of the definition, innermost first.
    pub(crate) fn add_places<'p>(&mut self, places: impl Iterator<Item = &'p String> + Clone) {
        let members = self.members.iter_mut().map(|partial| &mut partial.member.at);
        members.chain([&mut self.at]).for_each(|at| at.from.extend(places.clone().cloned()));
    }
}

struct GroupParser<'a> {
    record: Option<&'a str>,
    at: &'a PlaceOf<'a>,
    errors: Vec<LoadError>,
}

/// The options of a group, and of a member.
const GROUP_OPTIONS: [&str; 2] = ["+id", "+atomic"];
const MEMBER_OPTIONS: [&str; 6] = ["+type", "+channel", "+id", "+trigger", "+putorder", "+const"];
const MAPPINGS: [&str; 7] = ["scalar", "plain", "any", "meta", "structure", "proc", "const"];

impl GroupParser<'_> {
    fn report(&mut self, offset: usize, message: String) {
        self.errors.push(LoadError { message, ..(self.at)(offset) });
    }

    fn group(&mut self, JsonMember { name, at, value }: JsonMember) -> PartialGroup {
        let n_before = self.errors.len();
        let mut group = PartialGroup::new(name, (self.at)(at));
        if group.name.is_empty() {
            self.report(at, "a group needs a name".into());
        }
        match value {
            Json::Map(members) => {
                for member in members {
                    if let Err(Mistake { at, what }) = self.add(&mut group, member) {
                        self.report(at, format!("group \"{}\"{what}", group.name));
                    }
                }
            }
            _ => self.report(at, format!("group \"{}\": expected its members in braces", group.name)),
        }
        group.is_flawed = self.errors.len() > n_before;
        group
    }

    /// Adds an option or a member to a group. The text of a mistake begins with the member's path.
    fn add(&self, group: &mut PartialGroup, JsonMember { name, at, value }: JsonMember) -> Result<(), Mistake> {
        let wrong = |what: String| Err(Mistake { at, what });
        match (name.as_str(), value) {
            ("+id", _) if group.id.is_some() => wrong(": +id is set twice".into()),
            ("+atomic", _) if group.is_atomic.is_some() => wrong(": +atomic is set twice".into()),
            ("+id", value) => {
                group.id = text_of(&value);
                if group.id.is_none() { wrong(": +id must be a text".into()) } else { Ok(()) }
            }
            ("+atomic", value) => {
                group.is_atomic = boolean_of(&value);
                if group.is_atomic.is_none() { wrong(": +atomic must be true or false".into()) } else { Ok(()) }
            }
            (name, _) if name.starts_with('+') => {
                let guess = suggestion(name, GROUP_OPTIONS.into_iter());
                wrong(format!(": there is no option \"{name}\" of a group{guess}"))
            }
            (path, Json::Map(options)) => {
                let shown = if path.is_empty() { "\"\"" } else { path };
                let named = |Mistake { at, what }| Mistake { at, what: format!(", member {shown}: {what}") };
                group.members.push(self.member(path, at, options).map_err(named)?);
                Ok(())
            }
            (path, _) => wrong(format!(", member {path}: expected its options in braces")),
        }
    }

    fn member(&self, path: &str, at: usize, options: Vec<JsonMember>) -> Result<PartialMember, Mistake> {
        let mut options = MemberOptions::new(at, options)?;
        let kind = options.text("+type")?.unwrap_or_else(|| "scalar".to_owned());
        let (channel, id, trigger) = (options.text("+channel")?, options.text("+id")?, options.text("+trigger")?);
        let put_order = match options.values.remove("+putorder") {
            Some(value) => Some(integer_of(&value).ok_or_else(|| options.wrong("+putorder", "must be an integer"))?),
            None => None,
        };
        let mapping = mapping_of(&kind, &mut options)?;
        let channel = match channel.filter(|channel| !channel.is_empty()) {
            None if mapping.needs_channel() => {
                return Err(Mistake { at, what: format!("+channel is missing, which +type {kind} needs") });
            }
            Some(_) if !mapping.needs_channel() => {
                return Err(options.wrong("+channel", &format!("has no meaning for +type {kind}")));
            }
            None => String::new(),
            Some(channel) => match self.record {
                Some(record) => format!("{record}.{channel}"),
                None => channel,
            },
        };
        let path = path_of(path).map_err(|what| Mistake { at, what })?;
        check_path(&path, &mapping).map_err(|what| Mistake { at, what })?;
        let trigger = trigger.unwrap_or_default();
        let names = trigger.split(',').map(str::trim).filter(|name| !name.is_empty());
        let trigger_names = names.map(str::to_owned).collect();
        let (id, at) = (id.unwrap_or_default(), (self.at)(at));
        let member = MemberDefinition { path, mapping, channel, id, put_order, triggers: Vec::new(), at };
        Ok(PartialMember { member, trigger_names })
    }
}

/// A mistake in a definition, and its byte in the JSON.
struct Mistake {
    at: usize,
    what: String,
}

/// The options of a member, each at most once.
struct MemberOptions {
    /// The byte of the member.
    at: usize,
    places: HashMap<String, usize>,
    values: HashMap<String, Json>,
}

impl MemberOptions {
    fn new(at: usize, options: Vec<JsonMember>) -> Result<MemberOptions, Mistake> {
        let mut found = MemberOptions { at, places: HashMap::new(), values: HashMap::new() };
        for JsonMember { name, at, value } in options {
            if !MEMBER_OPTIONS.contains(&name.as_str()) {
                let guess = suggestion(&name, MEMBER_OPTIONS.into_iter());
                return Err(Mistake { at, what: format!("there is no option \"{name}\"{guess}") });
            }
            if found.places.insert(name.clone(), at).is_some() {
                return Err(Mistake { at, what: format!("{name} is set twice") });
            }
            found.values.insert(name, value);
        }
        Ok(found)
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, Mistake> {
        match self.values.remove(name) {
            Some(value) => text_of(&value).map(Some).ok_or_else(|| self.wrong(name, "must be a text")),
            None => Ok(None),
        }
    }

    /// A mistake in one of the options.
    fn wrong(&self, name: &str, what: &str) -> Mistake {
        Mistake { at: self.places.get(name).copied().unwrap_or(self.at), what: format!("{name} {what}") }
    }
}

fn mapping_of(kind: &str, options: &mut MemberOptions) -> Result<MemberMapping, Mistake> {
    let constant = options.values.remove("+const");
    Ok(match (kind, constant) {
        ("const", Some(Json::Whole(number))) => MemberMapping::Const(number.into()),
        ("const", Some(Json::Real(number))) => MemberMapping::Const(number.into()),
        ("const", Some(Json::Text(text))) => MemberMapping::Const(text.as_str().into()),
        ("const", Some(Json::Bool(flag))) => MemberMapping::Const(Value::Scalar(Scalar::Bool(flag))),
        ("const", Some(_)) => return Err(options.wrong("+const", "must be a number, a text, true or false")),
        ("const", None) => return Err(options.wrong("+type", "const needs +const")),
        (_, Some(_)) => return Err(options.wrong("+const", &format!("needs +type const, not {kind}"))),
        ("scalar", None) => MemberMapping::Scalar,
        ("plain", None) => MemberMapping::Plain,
        ("any", None) => MemberMapping::Any,
        ("meta", None) => MemberMapping::Meta,
        ("structure", None) => MemberMapping::Structure,
        ("proc", None) => MemberMapping::Proc,
        (_, None) => {
            let guess = suggestion(kind, MAPPINGS.into_iter());
            let guess = if guess.is_empty() { format!("; there are {}", MAPPINGS.join(", ")) } else { guess };
            return Err(options.wrong("+type", &format!("cannot be \"{kind}\"{guess}")));
        }
    })
}

fn path_of(text: &str) -> Result<MemberPath, String> {
    if text.is_empty() {
        return Ok(MemberPath::default());
    }
    let steps: Vec<PathStep> = text.split('.').map(|step| step_of(step, text)).collect::<Result<_, String>>()?;
    if steps.len() > GROUP_DEPTH_MAX {
        return Err(format!("the path has {} levels; the maximum is {GROUP_DEPTH_MAX}", steps.len()));
    }
    Ok(MemberPath(steps))
}

fn step_of(step: &str, path: &str) -> Result<PathStep, String> {
    let (name, index) = match step.strip_suffix(']').map(|step| step.rsplit_once('[')) {
        None => (step, None),
        Some(Some((name, index))) => (name, Some(index)),
        Some(None) => return Err(format!("the path \"{path}\" has a ']' without '['")),
    };
    let index = match index {
        None => None,
        Some(digits) => {
            let index = digits.parse::<usize>().ok().filter(|index| *index <= GROUP_INDEX_MAX);
            let expected = || format!("the index [{digits}] must be an integer between 0 and {GROUP_INDEX_MAX}");
            Some(index.ok_or_else(expected)?)
        }
    };
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) || !name.chars().all(is_part) {
        return Err(format!("\"{name}\" cannot be the name of a member: use letters, digits and _"));
    }
    Ok(PathStep { name: name.to_owned(), index })
}

/// Checks that a member of this kind can be at this path.
fn check_path(path: &MemberPath, mapping: &MemberMapping) -> Result<(), String> {
    let Some(last) = path.0.last() else {
        return match mapping {
            MemberMapping::Meta => Ok(()),
            other => Err(format!("the structure itself can only have +type meta, not {}", other.name())),
        };
    };
    match mapping {
        MemberMapping::Meta | MemberMapping::Structure | MemberMapping::Proc => Ok(()),
        other if last.index.is_some() => {
            Err(format!("an element of a structure array cannot have +type {}; name a member of it", other.name()))
        }
        _ => Ok(()),
    }
}

fn text_of(value: &Json) -> Option<String> {
    match value {
        Json::Text(text) => Some(text.clone()),
        _ => None,
    }
}

fn boolean_of(value: &Json) -> Option<bool> {
    match value {
        Json::Bool(flag) => Some(*flag),
        Json::Whole(number) => Some(*number != 0),
        Json::Text(text) => text.parse().ok(),
        _ => None,
    }
}

fn integer_of(value: &Json) -> Option<i64> {
    match value {
        Json::Whole(number) => Some(*number),
        Json::Text(text) => text.parse().ok(),
        _ => None,
    }
}
