//! Resolves the channels of groups and builds their types, once at `iocInit`.

use std::collections::HashSet;
use std::sync::Arc;

use fodo_data::{
    ArraySize, BitSet, Kind, Meta, NodeKind, NormativeLayout, Structure, StructureBuilder, StructureType, Value,
    normative_type,
};
use fodo_db::{
    ChannelError, ChannelField, Database, FilterChain, GroupDefinition, GroupDefinitions, LoadError, MemberDefinition,
    MemberMapping, MemberPath, Presentation,
};
use fodo_lock::{Mutex, Rank};

use super::member::{MemberContent, MemberParts, MemberSource, NodePlace, ResolvedMember};
use super::tree::{Members, TypeTree};
use crate::names::field_of;

/// A group whose channels are resolved and whose type is built.
#[derive(Debug)]
pub struct GroupLayout {
    pub name: String,
    /// Whether all members are read and written in one step unless the client requests something else.
    pub is_atomic: bool,
    pub kind: Arc<StructureType>,
    /// In the order in which puts write them.
    pub members: Vec<ResolvedMember>,
    /// The value with everything that never changes.
    pub initial: Structure,
    /// What a complete read contains.
    pub whole: BitSet,
    /// The node `record._options.queueSize`.
    pub queue_size: usize,
    /// The node `record._options.atomic`.
    pub atomic: usize,
}

/// The groups that can be served, and the mistakes in the others.
#[derive(Debug, Default)]
pub struct ResolvedGroups {
    pub groups: Vec<GroupLayout>,
    pub errors: Vec<LoadError>,
}

/// Resolves groups. `missing`: records that are not loaded because of errors; groups with them are left out without
/// another error.
pub fn resolve(database: &Database, definitions: GroupDefinitions, missing: &HashSet<String>) -> ResolvedGroups {
    let GroupDefinitions { groups, errors } = definitions;
    let names: HashSet<String> = groups.iter().map(|group| group.name.clone()).collect();
    let mut resolved = ResolvedGroups { groups: Vec::new(), errors };
    for group in groups {
        if group.members.iter().any(|member| missing.contains(&record_of(&member.channel))) {
            continue;
        }
        match (GroupResolver { database, names: &names }).group(group) {
            Ok(group) => resolved.groups.push(group),
            Err(errors) => resolved.errors.extend(errors),
        }
    }
    resolved
}

struct GroupResolver<'a> {
    database: &'a Database,
    /// The names of all groups.
    names: &'a HashSet<String>,
}

/// A member and its part of the type.
struct TypedMember {
    definition: MemberDefinition,
    channel: Option<TypedChannel>,
}

struct TypedChannel {
    source: MemberSource,
    shown: Presentation,
    /// The kind and number of the elements, before a text is made of characters.
    raw: (Kind, bool),
}

impl GroupResolver<'_> {
    fn group(&self, group: GroupDefinition) -> Result<GroupLayout, Vec<LoadError>> {
        let GroupDefinition { name, id, is_atomic, members, at } = group;
        if self.database.has_channel(&name) {
            let message = format!("group \"{name}\": a record already has this name");
            return Err(vec![LoadError { message, ..at }]);
        }
        let mut errors = Vec::new();
        let mut tree = Members::new(id);
        // The first member of every group cannot differ from another one.
        let _ = tree.add(&[], options_tree());
        let mut typed = Vec::new();
        for definition in members {
            let wrong = |what: String| {
                let path = shown_path(&definition.path);
                LoadError { message: format!("group \"{name}\", member {path}: {what}"), ..definition.at.clone() }
            };
            let channel = match self.channel(&definition.channel) {
                Ok(channel) => channel,
                Err(what) => {
                    errors.push(wrong(what));
                    continue;
                }
            };
            let added = part_of(&definition, channel.as_ref()).map(|part| tree.add(&definition.path.0, part));
            if let Some(Err(what)) = added {
                errors.push(wrong(what));
            }
            typed.push(TypedMember { definition, channel });
        }
        if errors.is_empty() { Ok(layout(name, is_atomic, tree, typed)) } else { Err(errors) }
    }

    /// The channel of a member; `None` if it has none.
    fn channel(&self, name: &str) -> Result<Option<TypedChannel>, String> {
        if name.is_empty() {
            return Ok(None);
        }
        let ChannelField { field, filters } = self.database.channel(name).map_err(|error| match error {
            ChannelError::Filter(error) => format!("the channel \"{name}\": {error}"),
            ChannelError::Unknown if self.names_group(name) && self.database.field(&record_of(name)).is_none() => {
                format!("the channel \"{name}\" is a group; a group contains fields of records only")
            }
            ChannelError::Unknown => field_of(self.database, name).err().unwrap_or_default(),
        })?;
        let mut facts = self.database.facts(field);
        let chain = (!filters.is_empty()).then(|| FilterChain::new(filters, &mut facts));
        let shown = self.database.presentation(field, &facts);
        let is_characters = facts.kind == Kind::U8 && shown.kind != Kind::U8;
        let raw_kind = match facts.kind {
            Kind::Enum => Kind::U16,
            // A long string is an array of DBF_CHAR.
            Kind::U8 if is_characters => Kind::I8,
            kind => kind,
        };
        let filters = chain.map(|chain| Mutex::ranked(Rank::FilterChain, chain));
        let source = MemberSource { field, filters };
        Ok(Some(TypedChannel { source, shown, raw: (raw_kind, facts.count_max != 1) }))
    }

    fn names_group(&self, name: &str) -> bool {
        self.names.contains(name) || name.rsplit_once('.').is_some_and(|(name, _)| self.names.contains(name))
    }
}

/// The path of a member; `""` for the group itself.
pub fn shown_path(path: &MemberPath) -> String {
    if path.0.is_empty() { "\"\"".to_owned() } else { path.to_string() }
}

/// `record._options`, which every group has.
fn options_tree() -> TypeTree {
    let mut build = StructureBuilder::new("");
    build.open("record", "").open("_options", "");
    let kind = build.scalar("queueSize", Kind::I32).scalar("atomic", Kind::Bool).finish();
    TypeTree::of(&kind, 0)
}

/// The record in the name of a channel.
fn record_of(channel: &str) -> String {
    channel.split('.').next().unwrap_or_default().to_owned()
}

/// What a member adds to the type at its path; `None` for nothing.
fn part_of(definition: &MemberDefinition, channel: Option<&TypedChannel>) -> Option<TypeTree> {
    let is_element = definition.path.0.last().is_some_and(|step| step.index.is_some());
    let single = |value: &Value| match value {
        Value::Scalar(scalar) => NodeKind::Scalar(scalar.kind()),
        Value::Array(array) => NodeKind::Array { kind: array.kind(), size: ArraySize::Variable },
    };
    match (&definition.mapping, channel) {
        (MemberMapping::Scalar, Some(TypedChannel { shown, .. })) => {
            Some(TypeTree::of(&normative_type(shown.kind, shown.is_array), 0))
        }
        (MemberMapping::Plain, Some(TypedChannel { shown, .. })) => {
            let kind = if shown.kind == Kind::Enum { Kind::U16 } else { shown.kind };
            let array = NodeKind::Array { kind, size: ArraySize::Variable };
            Some(TypeTree::Leaf(if shown.is_array { array } else { NodeKind::Scalar(kind) }))
        }
        (MemberMapping::Any, Some(_)) => Some(TypeTree::Leaf(NodeKind::Any)),
        (MemberMapping::Meta, Some(_)) => {
            let TypeTree::Structure(members) = TypeTree::of(&meta_type(), 0) else { return None };
            Some(TypeTree::container(is_element, members))
        }
        (MemberMapping::Structure, _) => {
            let members = Members::new(definition.id.as_str());
            Some(TypeTree::container(is_element, members))
        }
        (MemberMapping::Const(value), _) => Some(TypeTree::Leaf(single(value))),
        (MemberMapping::Proc, _) | (_, None) => None,
    }
}

/// The structures `alarm` and `timeStamp`.
fn meta_type() -> StructureType {
    let whole = normative_type(Kind::F64, false);
    let mut build = StructureBuilder::new("");
    for name in ["alarm", "timeStamp"] {
        if let Some(bit) = whole.node(name) {
            build.member(name, &whole.subtree(bit));
        }
    }
    build.finish()
}

/// Finds the nodes of all members in the finished type.
fn layout(name: String, is_atomic: bool, tree: Members, typed: Vec<TypedMember>) -> GroupLayout {
    let kind = Arc::new(tree.finish());
    let mut initial = Structure::new(kind.clone());
    let (queue_size, atomic) = (
        kind.node("record._options.queueSize").unwrap_or_default(),
        kind.node("record._options.atomic").unwrap_or_default(),
    );
    let mut whole: BitSet = [atomic].into_iter().collect();
    let mut members = Vec::new();
    for TypedMember { definition, channel } in typed {
        let is_nothing = matches!(definition.mapping, MemberMapping::Proc | MemberMapping::Structure);
        let found = if is_nothing { None } else { NodePlace::find(&kind, &definition.path.0) };
        let (place, inner) = found.unwrap_or_else(|| (NodePlace::default(), kind.clone()));
        place.create(&mut initial);
        let content = content(&definition, channel.as_ref(), &place, &inner);
        if let (MemberMapping::Const(value), Some(to)) = (&definition.mapping, place.structure(&mut initial)) {
            // The node was created for this value.
            let _ = to.set_value(place.bit, value.clone());
            whole.insert(place.mark(place.bit));
        }
        if let (MemberContent::Parts(parts), Some(channel), Some(to)) =
            (&content, &channel, place.structure(&mut initial))
        {
            parts.store_form(Meta { form: channel.shown.form, ..Meta::default() }, to);
        }
        let member = ResolvedMember { definition, source: channel.map(|channel| channel.source), place, content };
        member.mark_all(&mut whole);
        members.push(member);
    }
    initial.unmark_all();
    GroupLayout { name, is_atomic, kind, members, initial, whole, queue_size, atomic }
}

fn content(
    definition: &MemberDefinition,
    channel: Option<&TypedChannel>,
    place: &NodePlace,
    kind: &StructureType,
) -> MemberContent {
    let Some(TypedChannel { shown, raw, .. }) = channel else { return MemberContent::Nothing };
    let (own, parts, has_value) = match definition.mapping {
        MemberMapping::Plain => return MemberContent::Value,
        MemberMapping::Any => return MemberContent::Any { kind: raw.0, is_array: raw.1 },
        MemberMapping::Scalar => (normative_type(shown.kind, shown.is_array), Some(shown.parts), true),
        MemberMapping::Meta => (normative_type(Kind::F64, false), None, false),
        MemberMapping::Structure | MemberMapping::Proc | MemberMapping::Const(_) => return MemberContent::Nothing,
    };
    let Some(layout) = NormativeLayout::with_parts(Arc::new(own), parts) else { return MemberContent::Nothing };
    let layout = layout.with_tag_bits(shown.tag_bits);
    MemberContent::Parts(Box::new(MemberParts::new(layout, kind, place.bit, has_value)))
}

#[cfg(test)]
mod tests {
    use fodo_db::Loader;

    use super::*;

    const RECORDS: &str = r#"
        record(ai, "r") { field(PREC, 2) }
        record(mbbo, "e") { field(ZRST, "off") }
        record(waveform, "w") { field(FTVL, SHORT) field(NELM, 5) }
        record(waveform, "t") { field(FTVL, CHAR) field(NELM, 5) info(Q:form, String) }
    "#;

    fn resolved(json: &str) -> ResolvedGroups {
        let mut loader = Loader::default();
        loader.load("a.db", "", &mut |_| Ok(RECORDS.into())).unwrap();
        loader.load_groups("a.json", "", &mut |_| Ok(json.into())).unwrap();
        let definitions = loader.take_groups();
        resolve(&loader.finish().unwrap(), definitions, &HashSet::new())
    }

    fn kind(json: &str) -> String {
        let ResolvedGroups { groups, errors } = resolved(json);
        assert_eq!(errors, []);
        groups[0].kind.to_string()
    }

    const OPTIONS: &str = "{{I32 queueSize, Bool atomic} _options} record";
    const META: &str = "alarm_t {I32 severity, I32 status, Text message} alarm, \
                        time_t {I64 secondsPastEpoch, I32 nanoseconds, I32 userTag} timeStamp";

    #[test]
    fn a_plain_member_has_the_type_of_its_value() {
        let json = r#"{"g": {
            "a": {"+type": "plain", "+channel": "r"}, "b": {"+type": "plain", "+channel": "e"},
            "c": {"+type": "plain", "+channel": "w.VAL"}, "d": {"+type": "plain", "+channel": "t"},
            "e": {"+type": "any", "+channel": "t"}, "f": {"+type": "plain", "+channel": "w.[0:0]"},
            "g": {"+type": "const", "+const": true}
        }}"#;

        assert_eq!(kind(json), format!("{{{OPTIONS}, F64 a, U16 b, I16[] c, Text d, any e, I16 f, Bool g}}"));
    }

    #[test]
    fn metadata_and_type_names_are_added_to_structures_and_elements() {
        let json = r#"{"g": {"+id": "g_t",
            "": {"+type": "meta", "+channel": "r"},
            "s": {"+type": "structure", "+id": "s_t"}, "s.x": {"+type": "plain", "+channel": "r"},
            "e[0]": {"+type": "structure", "+id": "e_t"}, "e[1]": {"+type": "meta", "+channel": "r"},
            "p": {"+type": "proc", "+channel": "r"}
        }}"#;

        assert_eq!(kind(json), format!("g_t {{{OPTIONS}, {META}, e_t {{{META}}}[] e, s_t {{F64 x}} s}}"));
    }

    #[test]
    fn a_scalar_member_can_be_extended_by_another_member() {
        let json = r#"{"g": {
            "a": {"+channel": "e"}, "a.extra": {"+type": "plain", "+channel": "r"}
        }}"#;

        assert!(kind(json).ends_with("{Text description} display, F64 extra} a}"), "{}", kind(json));
    }

    #[test]
    fn a_complete_read_contains_the_nodes_that_the_channels_have() {
        let json = r#"{"g": {"a": {"+channel": "r"}, "b": {"+type": "const", "+const": 1}}}"#;
        let ResolvedGroups { groups, .. } = resolved(json);

        let marked: Vec<String> = groups[0].whole.iter().map(|bit| groups[0].kind.path(bit)).collect();

        assert_eq!(marked.len(), 1 + 1 + 3 + 3 + 7 + 2 + 4 + 1, "{marked:?}");
        assert_eq!((marked[0].as_str(), marked[1].as_str()), ("record._options.atomic", "a.value"));
        assert_eq!(groups[0].initial.get("b"), Some(&1_i64.into()));
        assert!(groups[0].initial.get("a.display.form.choices").is_some_and(|choices| choices.len() == 7));
    }

    #[test]
    fn a_channel_that_does_not_exist_is_reported_with_the_place_and_path_of_its_member() {
        for (json, expected) in [
            (r#"{"g": {"a": {"+channel": "rr"}}}"#, r#"a.json:1:8: group "g", member a: there is no record "rr""#),
            (
                r#"{"g": {"a": {"+channel": "r.VLA"}}}"#,
                r#"group "g", member a: record "r" has no field "VLA"; did you mean "VAL"?"#,
            ),
            (
                r#"{"g": {"a": {"+channel": "g"}}}"#,
                r#"the channel "g" is a group; a group contains fields of records only"#,
            ),
            (r#"{"g": {"a": {"+channel": "h.VAL"}}, "h": {}}"#, r#"the channel "h.VAL" is a group"#),
            (r#"{"g": {"a": {"+channel": "r.{nope:{}}"}}}"#, "nope"),
            (r#"{"r": {}}"#, r#"a.json:1:2: group "r": a record already has this name"#),
            (
                r#"{"g": {"a": {"+channel": "r"}, "a.value.x": {"+channel": "r"}}}"#,
                r#"1:32: group "g", member a.value.x: "value" is a structure here, and a value in another member"#,
            ),
        ] {
            let ResolvedGroups { groups, errors } = resolved(json);

            assert!(groups.iter().all(|group| group.name == "h"), "{json}");
            let shown = errors.iter().map(LoadError::to_string).collect::<String>();
            assert!(shown.contains(expected), "{json}: {shown}");
        }
    }

    #[test]
    fn a_group_with_a_record_that_is_not_loaded_is_left_out_without_another_error() {
        let mut loader = Loader::default();
        let json = r#"{"g": {"a": {"+channel": "absent.VAL"}}}"#;
        loader.load_groups("a.json", "", &mut |_| Ok(json.into())).unwrap();
        let definitions = loader.take_groups();

        let missing = HashSet::from(["absent".to_owned()]);
        let ResolvedGroups { groups, errors } = resolve(&loader.finish().unwrap(), definitions, &missing);

        assert_eq!((groups.len(), errors), (0, Vec::new()));
    }
}
