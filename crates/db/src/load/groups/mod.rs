//! Groups of PVs: their definitions in info items (`Q:group`) and in JSON files.
//!
//! Source: pvxs 1.5.3, `documentation/qgroup.rst` and `ioc/groupconfigprocessor.cpp`.

mod parse;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use fodo_data::{Text, Value};

use self::parse::{PartialGroup, PartialMember};
pub(crate) use self::parse::{PlaceOf, flawed, parse};
use crate::limit::LOAD_ERRORS_MAX;
use crate::load::error::{column, shown_line, suggestion};
use crate::load::macros::LineSource;
use crate::load::{FileLoad, LoadError, Loader, Macros, OpenFile};

/// The name of the info item that defines groups.
pub(crate) const GROUP_INFO: &str = "Q:group";

/// A group of PVs: a structure whose members are values of records. The definitions of a group may be in many records and
/// files; [`Loader::take_groups`] joins them and has an example.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupDefinition {
    /// The name of the PV.
    pub name: String,
    /// The name of its type (`+id`); may be empty.
    pub id: String,
    /// Whether all members are read and written in one step (`+atomic`).
    pub is_atomic: bool,
    /// In the order of the type: by put order, then by path.
    pub members: Vec<MemberDefinition>,
    /// The place of its first definition; the message is empty.
    pub at: LoadError,
}

/// A member of a group. [`Loader::take_groups`] has an example.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberDefinition {
    /// Where the member is in the structure; empty for the structure itself.
    pub path: MemberPath,
    /// What the member contains.
    pub mapping: MemberMapping,
    /// The channel: a record with a field; empty if the mapping has none.
    pub channel: String,
    /// The name of the type of a [`MemberMapping::Structure`].
    pub id: String,
    /// When a put writes this member (`+putorder`), in ascending order; `None`: never.
    pub put_order: Option<i64>,
    /// The members that an update of this one posts, by index.
    pub triggers: Vec<usize>,
    /// The place of the definition; the message is empty.
    pub at: LoadError,
}

/// What a member of a group contains (`+type`).
///
/// ```
/// use fodo_db::MemberMapping;
///
/// assert_eq!(MemberMapping::Plain.name(), "plain");
/// assert_eq!(MemberMapping::Const(14_i64.into()).name(), "const");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum MemberMapping {
    /// NTScalar, NTScalarArray or NTEnum.
    Scalar,
    /// The value alone.
    Plain,
    /// The value alone, in a variant union.
    Any,
    /// Alarm and time stamp, next to the other members of the structure.
    Meta,
    /// Only the name of the type of a structure, whose members are other members of the group.
    Structure,
    /// Nothing: the record is processed by every put to the group.
    Proc,
    /// A value of the definition itself.
    Const(Value),
}

/// The path of a member, such as `value.A` or `attribute[0].value`. [`Loader::take_groups`] has an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberPath(pub Vec<PathStep>);

/// One name of a [`MemberPath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// The name of the member.
    pub name: String,
    /// The index of an element of a structure array.
    pub index: Option<usize>,
}

/// The groups of a loader. [`Loader::take_groups`] has an example.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupDefinitions {
    /// The groups without mistakes, by name.
    pub groups: Vec<GroupDefinition>,
    /// Mistakes that need all definitions of a group to be found; a group with one is not among the groups.
    pub errors: Vec<LoadError>,
}

impl MemberMapping {
    /// Its name in a definition.
    pub fn name(&self) -> &'static str {
        match self {
            MemberMapping::Scalar => "scalar",
            MemberMapping::Plain => "plain",
            MemberMapping::Any => "any",
            MemberMapping::Meta => "meta",
            MemberMapping::Structure => "structure",
            MemberMapping::Proc => "proc",
            MemberMapping::Const(_) => "const",
        }
    }

    /// Whether a definition must name a channel.
    fn needs_channel(&self) -> bool {
        !matches!(self, MemberMapping::Structure | MemberMapping::Const(_))
    }
}

impl fmt::Display for MemberPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, PathStep { name, index }) in self.0.iter().enumerate() {
            write!(f, "{}{name}", if number > 0 { "." } else { "" })?;
            index.map_or(Ok(()), |index| write!(f, "[{index}]"))?;
        }
        Ok(())
    }
}

/// The definitions so far. The latest info item of a record replaces its earlier ones, as in Base.
#[derive(Debug, Default)]
pub(crate) struct GroupParts {
    of_records: BTreeMap<u32, Vec<PartialGroup>>,
    of_files: Vec<GroupFile>,
    /// Groups that must not be served.
    flawed: Vec<PartialGroup>,
}

/// The groups of a JSON file.
#[derive(Debug)]
struct GroupFile {
    name: String,
    macros: String,
    groups: Vec<PartialGroup>,
}

impl GroupParts {
    pub(crate) fn add(&mut self, record: u32, groups: Vec<PartialGroup>) {
        self.of_records.insert(record, groups);
    }

    /// Adds groups that must not be served.
    pub(crate) fn add_flawed(&mut self, groups: Vec<PartialGroup>) {
        self.flawed.extend(groups);
    }

    pub(crate) fn extend(&mut self, more: GroupParts) {
        self.of_records.extend(more.of_records);
        self.of_files.extend(more.of_files);
        self.flawed.extend(more.flawed);
    }
}

impl FileLoad<'_> {
    /// Adds the groups of an info item. `at`: the place of a byte of the text. Returns the mistakes.
    pub(crate) fn groups(&mut self, record: u32, text: &str, at: &PlaceOf) -> Vec<LoadError> {
        let name = self.name_of(record).to_str().into_owned();
        let (mut groups, errors) = parse(text, Some(&name), at);
        let places = self.instance.iter().chain(&self.loader.include_trace);
        groups.iter_mut().for_each(|group| group.add_places(places.clone()));
        self.changes.groups.add(record, groups);
        errors
    }

    /// Leaves out the groups to which a record belongs that is not loaded.
    pub(crate) fn omit_groups(&mut self, text: &str, at: &PlaceOf) {
        self.changes.groups.add_flawed(flawed(text, at));
    }
}

impl Loader {
    /// Loads a JSON file with groups, like `dbLoadGroup`; their channels are full names of records and fields. Groups with
    /// mistakes are left out. Returns the mistakes. A file that is loaded with the same macros once more replaces itself.
    ///
    /// ```
    /// use fodo_db::Loader;
    ///
    /// let mut loader = Loader::default();
    /// let json = r#"{ "$(P)beam": { "x": { "+channel": "$(P)x.VAL", "+tpye": "plain" } } }"#;
    /// let errors = loader.load_groups("beam.json", "P=X:", &mut |_| Ok(json.into())).unwrap_err();
    /// assert!(errors[0].to_string().starts_with(
    ///     "beam.json:1:49: group \"X:beam\", member x: there is no option \"+tpye\"; did you mean \"+type\"?"
    /// ));
    /// ```
    pub fn load_groups(&mut self, file: &str, macros: &str, open: &mut OpenFile) -> Result<(), Vec<LoadError>> {
        let macro_text = macros;
        let macros = Macros::parse(macros).map_err(|message| vec![LoadError::of_file(file, message)])?;
        let bytes = open(file).map_err(|error| vec![LoadError::of_file(file, format!("cannot be read: {error}"))])?;
        let source = Text::from_bytes(&bytes);
        if source.len() != bytes.len() {
            let message = format!("byte {} is a NUL: not a text file", source.len() + 1);
            return Err(vec![LoadError::of_file(file, message)]);
        }
        let source = source.to_str();
        let text = ExpandedFile::new(file, source.strip_prefix('\u{feff}').unwrap_or(&source), &macros);
        if !text.errors.is_empty() {
            self.omitted.n_others += text.errors.len();
            return Err(self.included(text.errors));
        }
        let (mut groups, errors) = parse(&text.text, None, &|offset| text.at(offset));
        groups.iter_mut().for_each(|group| group.add_places(self.include_trace.iter()));
        self.unload_groups(file, macro_text);
        self.groups.of_files.push(GroupFile { name: file.to_owned(), macros: macro_text.to_owned(), groups });
        self.omitted.n_others += errors.len();
        if errors.is_empty() { Ok(()) } else { Err(self.included(errors)) }
    }

    /// Removes the groups that a file has defined when it was loaded with the same macros; `*` removes those of all files.
    /// Returns whether there was such a file.
    ///
    /// ```
    /// use fodo_db::Loader;
    ///
    /// let mut loader = Loader::default();
    /// let json = r#"{ "$(P)beam": { "x": { "+channel": "$(P)x.VAL" } } }"#;
    /// loader.load_groups("beam.json", "P=X:", &mut |_| Ok(json.into()))?;
    /// loader.load_groups("beam.json", "P=Y:", &mut |_| Ok(json.into()))?;
    ///
    /// assert!(loader.unload_groups("beam.json", "P=X:"));
    /// assert!(!loader.unload_groups("beam.json", ""));
    /// assert_eq!(loader.take_groups().groups[0].name, "Y:beam");
    /// # Ok::<(), Vec<fodo_db::LoadError>>(())
    /// ```
    pub fn unload_groups(&mut self, file: &str, macros: &str) -> bool {
        let n_before = self.groups.of_files.len();
        self.groups.of_files.retain(|known| file != "*" && (known.name != file || known.macros != macros));
        self.groups.of_files.len() < n_before
    }

    /// Adds the places that load the current file to errors.
    fn included(&self, mut errors: Vec<LoadError>) -> Vec<LoadError> {
        errors.iter_mut().for_each(|error| error.from.extend_from_slice(&self.include_trace));
        errors.truncate(LOAD_ERRORS_MAX);
        errors
    }

    /// Removes and returns the groups that info items (`Q:group`) and files have defined; call it before
    /// [`Loader::finish`].
    ///
    /// ```
    /// use fodo_db::{Loader, MemberMapping};
    ///
    /// let mut loader = Loader::default();
    /// let text = r#"
    ///     record(ai, "X:x") { info(Q:group, {"X:beam": {+id: "beam_t", "x": {+channel: "VAL", +putorder: 2}}}) }
    ///     record(ai, "X:y") { info(Q:group, {"X:beam": {"y": {+type: "plain", +channel: "VAL", +trigger: "*"}}}) }
    /// "#;
    /// loader.load("beam.db", "", &mut |_| Ok(text.into()))?;
    ///
    /// let definitions = loader.take_groups();
    /// let beam = &definitions.groups[0];
    /// assert_eq!((beam.name.as_str(), beam.id.as_str(), beam.is_atomic), ("X:beam", "beam_t", true));
    /// let [y, x] = &beam.members[..] else { panic!("two members") };
    /// assert_eq!((y.path.to_string(), &y.mapping), ("y".to_owned(), &MemberMapping::Plain));
    /// assert_eq!((x.channel.as_str(), x.put_order), ("X:x.VAL", Some(2)));
    /// assert_eq!((&y.triggers[..], &x.triggers[..]), (&[0, 1][..], &[][..]));
    /// # Ok::<(), Vec<fodo_db::LoadError>>(())
    /// ```
    pub fn take_groups(&mut self) -> GroupDefinitions {
        let GroupParts { of_records, of_files, flawed } = std::mem::take(&mut self.groups);
        let of_records = of_records.into_iter().filter(|(record, _)| !self.deleted.contains(record));
        let mut by_name: BTreeMap<String, Vec<PartialGroup>> = BTreeMap::new();
        let of_files = of_files.into_iter().flat_map(|file| file.groups);
        for part in of_records.flat_map(|(_, groups)| groups).chain(of_files).chain(flawed) {
            by_name.entry(part.name.clone()).or_default().push(part);
        }
        let mut definitions = GroupDefinitions::default();
        for (name, parts) in by_name {
            match joined(name, parts) {
                Ok(group) => definitions.groups.extend(group),
                Err(errors) => definitions.errors.extend(errors),
            }
        }
        self.omitted.n_others += definitions.errors.len();
        definitions
    }
}

/// Pairs of positions in an expanded line and in its source.
type ExpansionSteps = Vec<(usize, usize)>;

/// A JSON file with its macros expanded.
struct ExpandedFile<'a> {
    file: &'a str,
    /// The lines: where each starts in `text`, its source, and the origin of its parts.
    lines: Vec<(usize, &'a str, ExpansionSteps)>,
    text: String,
    errors: Vec<LoadError>,
}

impl<'a> ExpandedFile<'a> {
    fn new(file: &'a str, source: &'a str, macros: &Macros) -> ExpandedFile<'a> {
        let mut expanded = ExpandedFile { file, lines: Vec::new(), text: String::new(), errors: Vec::new() };
        for (number, line) in source.lines().enumerate() {
            let found = macros.expand(line, LineSource::Shell);
            let error = |position, message| LoadError { message, ..place(file, number, line, position) };
            expanded.errors.extend(found.errors.into_iter().map(|fault| error(fault.position, fault.message)));
            expanded.lines.push((expanded.text.len(), line, found.steps));
            expanded.text += &found.text;
            expanded.text.push('\n');
        }
        expanded
    }

    /// The place of a byte of the text.
    fn at(&self, offset: usize) -> LoadError {
        let number = self.lines.partition_point(|(start, ..)| *start <= offset).saturating_sub(1);
        let Some((start, line, steps)) = self.lines.get(number) else {
            return LoadError::of_file(self.file, String::new());
        };
        let within = offset - start;
        let step = steps.iter().rev().find(|(expanded, _)| *expanded <= within);
        let byte = step.map_or(0, |(expanded, original)| original + (within - expanded));
        place(self.file, number, line, byte.min(line.len()))
    }
}

fn place(file: &str, line_index: usize, line: &str, byte: usize) -> LoadError {
    LoadError {
        file: file.to_owned(),
        line: line_index + 1,
        column: column(line, byte),
        source: shown_line(line),
        ..LoadError::default()
    }
}

/// Joins the parts of a group; `None`: a mistake in one of them has been reported.
fn joined(name: String, parts: Vec<PartialGroup>) -> Result<Option<GroupDefinition>, Vec<LoadError>> {
    if parts.iter().any(|part| part.is_flawed) {
        return Ok(None);
    }
    let mut errors = Vec::new();
    let mut report = |at: &LoadError, message: String| {
        errors.push(LoadError { message: format!("group \"{name}\"{message}"), ..at.clone() });
    };
    let at = parts.first().map(|part| part.at.clone()).unwrap_or_default();
    let (mut id, mut is_atomic) = (None::<String>, None::<bool>);
    let mut members: Vec<PartialMember> = Vec::new();
    let mut places: HashMap<String, String> = HashMap::new();
    for part in parts {
        let other_id = id.as_ref().filter(|id| part.id.as_ref().is_some_and(|own| own != *id));
        if let Some(other) = other_id {
            report(&part.at, format!(": +id is \"{other}\" in another definition"));
        }
        if is_atomic.is_some_and(|other| part.is_atomic.is_some_and(|own| own != other)) {
            report(&part.at, ": +atomic is different in another definition".into());
        }
        (id, is_atomic) = (id.or(part.id), is_atomic.or(part.is_atomic));
        for partial in part.members {
            let (path, at) = (partial.member.path.to_string(), &partial.member.at);
            if let Some(first) = places.get(&path) {
                report(at, format!(", member {path}: it is also defined by {first}"));
            }
            places.insert(path, if at.line > 0 { at.place() } else { partial.member.channel.clone() });
            members.push(partial);
        }
    }
    let order =
        |partial: &PartialMember| (partial.member.put_order.unwrap_or(i64::MIN), partial.member.path.to_string());
    members.sort_by_cached_key(order);
    let triggers = triggers_of(&members, &mut report);
    if !errors.is_empty() {
        return Err(errors);
    }
    let members = members.into_iter().zip(triggers);
    let members = members.map(|(partial, triggers)| MemberDefinition { triggers, ..partial.member }).collect();
    Ok(Some(GroupDefinition { name, id: id.unwrap_or_default(), is_atomic: is_atomic.unwrap_or(true), members, at }))
}

/// The members that each member posts, by index. Without any `+trigger` in the group, each posts itself.
fn triggers_of(members: &[PartialMember], report: &mut dyn FnMut(&LoadError, String)) -> Vec<Vec<usize>> {
    let has_channel = |index: &usize| members.get(*index).is_some_and(|partial| !partial.member.channel.is_empty());
    let paths: Vec<String> = members.iter().map(|partial| partial.member.path.to_string()).collect();
    let index_of: HashMap<&str, usize> = (0..).zip(&paths).map(|(index, path)| (path.as_str(), index)).collect();
    if members.iter().all(|partial| partial.trigger_names.is_empty()) {
        return (0..members.len()).map(|index| Some(index).filter(has_channel).into_iter().collect()).collect();
    }
    let mut resolved = |partial: &PartialMember| -> Vec<usize> {
        let mut found = Vec::new();
        for name in &partial.trigger_names {
            match index_of.get(name.as_str()) {
                _ if name == "*" => found.extend((0..members.len()).filter(has_channel)),
                Some(index) => found.extend(Some(*index).filter(has_channel)),
                None => {
                    let guess = suggestion(name, paths.iter().map(String::as_str));
                    let path = &partial.member.path;
                    let message = format!(", member {path}: +trigger names {name}, which is not a member{guess}");
                    report(&partial.member.at, message);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    };
    members.iter().map(&mut resolved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The groups of a database and of a JSON file, and all mistakes.
    fn loaded(database: &str, json: &str) -> (Vec<GroupDefinition>, Vec<String>) {
        let mut loader = Loader::default();
        let mut errors = loader.load("a.db", "P=X:", &mut |_| Ok(database.into())).err().unwrap_or_default();
        if !json.is_empty() {
            errors.extend(loader.load_groups("a.json", "P=X:", &mut |_| Ok(json.into())).err().unwrap_or_default());
        }
        let definitions = loader.take_groups();
        errors.extend(definitions.errors);
        let shown = |error: &LoadError| format!("{} {}", error.place(), error.message);
        (definitions.groups, errors.iter().map(shown).collect())
    }

    fn paths(group: &GroupDefinition) -> Vec<String> {
        group.members.iter().map(|member| member.path.to_string()).collect()
    }

    #[test]
    fn members_are_ordered_by_put_order_and_then_by_path() {
        let database = r#"record(ai, r) { info(Q:group, {
            "g": {
                "b": {+channel: "VAL", +putorder: -1}, # a comment
                "a": {+channel: "VAL", +putorder: 1},
                "d": {+channel: "VAL"},
                "": {+type: "meta", +channel: "VAL"},
                "c[1].x": {+type: "plain", +channel: "VAL"}
            }
        }) }"#;

        let (groups, errors) = loaded(database, "");

        assert_eq!(errors, [""; 0]);
        assert_eq!(paths(&groups[0]), ["", "c[1].x", "d", "b", "a"]);
        assert!(groups[0].members.iter().all(|member| member.channel == "r.VAL"));
        let places: Vec<String> = groups[0].members.iter().map(|member| member.at.place()).collect();
        assert_eq!(places, ["a.db:6:17", "a.db:7:17", "a.db:5:17", "a.db:3:17", "a.db:4:17"]);
    }

    #[test]
    fn definitions_in_records_and_files_make_one_group() {
        let database = r#"
            record(ai, "$(P)x") { info(Q:group, {"$(P)g": {+id: "g_t", +atomic: false, x: {+channel: VAL}}}) }
            record(ai, "$(P)y") { info(Q:group, "{\"$(P)g\": {\"+id\": \"g_t\", \"y\": {\"+channel\": \"A\"}}}") }
        "#;
        let json = r#"{ /* full names */ "$(P)g": { "z": { "+channel": "$(P)z.VAL", "+trigger": "x, y" }, }, }"#;

        let (groups, errors) = loaded(&database.replace("VAL}", "\"VAL\"}"), json);

        assert_eq!(errors, [""; 0]);
        let [group] = &groups[..] else { panic!("{groups:?}") };
        assert_eq!((group.name.as_str(), group.id.as_str(), group.is_atomic), ("X:g", "g_t", false));
        let channels: Vec<&str> = group.members.iter().map(|member| member.channel.as_str()).collect();
        assert_eq!(channels, ["X:x.VAL", "X:y.A", "X:z.VAL"]);
        assert_eq!(
            group.members.iter().map(|member| member.triggers.clone()).collect::<Vec<_>>(),
            [vec![], vec![], vec![0, 1]]
        );
    }

    #[test]
    fn without_triggers_each_member_with_a_channel_posts_itself() {
        let json = r#"{"g": {
            "a": {"+channel": "r"}, "c": {"+type": "const", "+const": 1.5}, "s": {"+type": "structure", "+id": "s_t"}
        }}"#;

        let (groups, errors) = loaded("", json);

        assert_eq!(errors, [""; 0]);
        let triggers: Vec<Vec<usize>> = groups[0].members.iter().map(|member| member.triggers.clone()).collect();
        assert_eq!(triggers, [vec![0], vec![], vec![]]);
        assert_eq!(groups[0].members[1].mapping, MemberMapping::Const(1.5.into()));
    }

    #[test]
    fn a_mistake_is_reported_at_its_place_in_the_json_and_its_group_is_left_out() {
        for (json, expected) in [
            (
                r#"{"g": {"a": {"+channel": "r", "+typ": "plain"}}}"#,
                r#"1:31 group "g", member a: there is no option "+typ"; did you mean "+type"?"#,
            ),
            (
                r#"{"g": {"a": {"+type": "plain"}}}"#,
                r#"1:8 group "g", member a: +channel is missing, which +type plain needs"#,
            ),
            (
                r#"{"g": {"a": {"+type": "plan", "+channel": "r"}}}"#,
                r#"1:14 group "g", member a: +type cannot be "plan"; did you mean "plain"?"#,
            ),
            (r#"{"g": {"a": {"+channel": 5}}}"#, r#"1:14 group "g", member a: +channel must be a text"#),
            (
                r#"{"g": {"a": {"+channel": "r", "+putorder": "x"}}}"#,
                r#"1:31 group "g", member a: +putorder must be an integer"#,
            ),
            (
                r#"{"g": {"a": {"+channel": "r", "+channel": "s"}}}"#,
                r#"1:31 group "g", member a: +channel is set twice"#,
            ),
            (r#"{"g": {"a": {"+type": "const"}}}"#, r#"1:14 group "g", member a: +type const needs +const"#),
            (
                r#"{"g": {"a": {"+type": "const", "+const": null}}}"#,
                r#"1:32 group "g", member a: +const must be a number, a text, true or false"#,
            ),
            (
                r#"{"g": {"a": {"+channel": "r", "+const": 1}}}"#,
                r#"1:31 group "g", member a: +const needs +type const, not scalar"#,
            ),
            (
                r#"{"g": {"": {"+channel": "r"}}}"#,
                r#"1:8 group "g", member "": the structure itself can only have +type meta, not scalar"#,
            ),
            (
                r#"{"g": {"a[0]": {"+channel": "r"}}}"#,
                r#"1:8 group "g", member a[0]: an element of a structure array cannot have +type scalar; name a member of it"#,
            ),
            (
                r#"{"g": {"a[9999].b": {"+channel": "r"}}}"#,
                r#"1:8 group "g", member a[9999].b: the index [9999] must be an integer between 0 and 1023"#,
            ),
            (
                r#"{"g": {"a.": {"+channel": "r"}}}"#,
                r#"1:8 group "g", member a.: "" cannot be the name of a member: use letters, digits and _"#,
            ),
            (r#"{"g": {"a": 5}}"#, r#"1:8 group "g", member a: expected its options in braces"#),
            (r#"{"g": {"+idd": "x"}}"#, r#"1:8 group "g": there is no option "+idd" of a group; did you mean "+id"?"#),
            (r#"{"g": {"+atomic": []}}"#, r#"1:8 group "g": +atomic must be true or false"#),
            (r#"{"g": 5}"#, r#"1:2 group "g": expected its members in braces"#),
            (r#"{"": {}}"#, "1:2 a group needs a name"),
            (r#"[]"#, r#"1:1 groups need braces around them: {"name": {...}}"#),
            (
                r#"{"g": {"a": {"+channel": "r"}, "b": {"+channel": "r", "+trigger": "aa,c"}}}"#,
                r#"1:32 group "g", member b: +trigger names aa, which is not a member; did you mean "a"?"#,
            ),
            (
                r#"{"g": {"a": {"+channel": "r"}, "a": {"+channel": "s"}}}"#,
                r#"1:32 group "g", member a: it is also defined by a.json:1:8"#,
            ),
            (r#"{"g": {"a" {}}}"#, "1:12 invalid JSON: expected ':'"),
        ] {
            let (groups, errors) = loaded("", json);

            assert_eq!(groups, [], "{json}");
            assert_eq!(errors.first().map(String::as_str), Some(format!("a.json:{expected}").as_str()), "{json}");
        }
    }

    #[test]
    fn a_mistake_in_one_definition_leaves_out_the_whole_group_and_no_other() {
        let database = r#"
            record(ai, a) { info(Q:group, {"g": {"a": {+channel: "VAL"}}, "h": {"a": {+channel: "VAL"}}}) }
            record(ai, b) { info(Q:group, {"g": {"b": {+channle: "VAL"}}}) }
            record(ai, c) { info(Q:group, {"i": {"c": {+channel: "VAL"}}}) }
            record(ai, d) { info(Q:group, {"i": {"d": +channel: "VAL"}}) }
        "#;

        let (groups, errors) = loaded(database, "");

        assert_eq!(groups.iter().map(|group| group.name.as_str()).collect::<Vec<_>>(), ["h"]);
        assert_eq!(errors.len(), 2, "{errors:?}");
    }

    #[test]
    fn a_group_is_left_out_if_one_of_its_records_is_not_loaded() {
        let database = r#"
            record(ai, a) { info(Q:group, {"g": {"a": {+channel: "VAL"}}}) }
            record(aii, b) { info(Q:group, {"g": {"b": {+channel: "VAL"}}}) }
        "#;

        let (groups, errors) = loaded(database, "");

        assert_eq!((groups, errors.len()), (Vec::new(), 1));
    }

    #[test]
    fn definitions_that_contradict_each_other_are_reported() {
        let database = r#"
            record(ai, a) { info(Q:group, {"g": {+id: "x", +atomic: true, "a": {+channel: "VAL"}}}) }
            record(ai, b) { info(Q:group, {"g": {+id: "y", +atomic: false, "a": {+channel: "VAL"}}}) }
        "#;

        let (groups, errors) = loaded(database, "");

        assert_eq!(groups, []);
        assert_eq!(
            errors,
            [
                r#"a.db:3:44 group "g": +id is "x" in another definition"#,
                r#"a.db:3:44 group "g": +atomic is different in another definition"#,
                r#"a.db:3:76 group "g", member a: it is also defined by a.db:2:75"#,
            ]
        );
    }

    #[test]
    fn a_file_is_removed_with_the_macros_with_which_it_was_loaded_and_replaces_itself() {
        let mut loader = Loader::default();
        let names = |loader: &Loader| -> Vec<String> {
            let groups = loader.groups.of_files.iter().flat_map(|file| &file.groups);
            groups.map(|group| group.name.clone()).collect()
        };
        for (file, macros) in [("a.json", "P=X:"), ("a.json", "P=Y:"), ("b.json", "P=Z:"), ("a.json", "P=X:")] {
            let json = r#"{"$(P)g": {"a": {"+channel": "r"}}}"#;
            loader.load_groups(file, macros, &mut |_| Ok(json.into())).unwrap();
        }
        assert_eq!(names(&loader), ["Y:g", "Z:g", "X:g"]);

        let removed = [("a.json", "P=Y:"), ("a.json", "P=Z:"), ("a.json", "")].map(|(file, macros)| {
            let removed = loader.unload_groups(file, macros);
            (removed, names(&loader).len())
        });

        assert_eq!(removed, [(true, 2), (false, 2), (false, 2)]);
        assert!(loader.unload_groups("*", "") && !loader.unload_groups("*", ""));
        assert_eq!(loader.take_groups(), GroupDefinitions::default());
    }

    #[test]
    fn a_place_is_that_before_macro_expansion() {
        let json = "{\n  \"$(P)group\": {\"a$(P=)\": {\"+channel\": 1}}}";

        let (_, errors) = loaded("", json);

        assert_eq!(errors.len(), 1);
        assert!(errors[0].starts_with("a.json:2:28 "), "{errors:?}");
    }

    #[test]
    fn the_last_info_item_of_a_record_counts_and_a_deleted_record_has_none() {
        let database = r##"
            record(ai, a) { info(Q:group, {"g": {"a": {+channel: "VAL"}}}) }
            record("*", a) { info(Q:group, {"h": {"a": {+channel: "VAL"}}}) }
            record(ai, b) { info(Q:group, {"i": {"a": {+channel: "VAL"}}}) }
            record("#", b) {}
        "##;

        let (groups, errors) = loaded(database, "");

        assert_eq!(errors, [""; 0]);
        assert_eq!(groups.iter().map(|group| group.name.as_str()).collect::<Vec<_>>(), ["h"]);
    }
}
