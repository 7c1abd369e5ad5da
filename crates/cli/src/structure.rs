//! Structured values of pvAccess: as a tree for people, and as JSON.

use std::fmt::{self, Display, Write as _};
use std::sync::Arc;

use fodo_net::{
    Alarm, Array, BitSet, Kind, NodeKind, NodeValue, Reading, Scalar, Severity, Status, Structure, StructureBuilder,
    StructureType, TimeStamp, UnionValue, Value,
};
use serde_json::Value as Json;

use crate::json::scalar;
use crate::normative::{self, FieldText, NormativeTexts};
use crate::show::{DisplayOptions, escape_control};

/// Writes into a text, which cannot fail.
macro_rules! put {
    ($out:expr, $($argument:tt)*) => {{
        let _ = write!($out, $($argument)*);
    }};
}

/// A structure as a tree: one line for each field, its members below it. Times, alarms and enums have one line.
pub fn tree(structure: &Structure, look: &DisplayOptions) -> String {
    let mut out = String::new();
    match structure.kind().is_structure() {
        true => members(structure, 0, 1, look, &mut out),
        false => node(structure, 0, 1, look, &mut out),
    }
    out
}

/// The name of a structure's type for people.
pub fn type_name(kind: &StructureType) -> String {
    let id = kind.id();
    if id.is_empty() { "structure".to_owned() } else { escape_control(&id.to_str()) }
}

fn members(structure: &Structure, bit: usize, depth: usize, look: &DisplayOptions, out: &mut String) {
    let kind = structure.kind();
    let name_of = |bit: usize| escape_control(&kind.nodes()[bit].name.to_str());
    // Only a whole structure is of a normative type; the members of others are shown one by one.
    let texts = if bit == 0 { normative::texts(structure, look) } else { NormativeTexts::default() };
    let is_shown = |member: &usize| !matches!(texts.of(*member), Some(FieldText::Hidden));
    let width = kind.members(bit).filter(is_shown).map(|member| name_of(member).chars().count()).max().unwrap_or(0);
    for member in kind.members(bit).filter(is_shown) {
        put!(out, "{:1$}{name:<width$}", "", depth * 4, name = name_of(member));
        match texts.of(member) {
            Some(FieldText::Line(text)) => put!(out, "  {text}\n"),
            Some(FieldText::Table(text, rows)) => {
                put!(out, "  {text}\n");
                rows.write(depth + 1, look, out);
            }
            _ => node(structure, member, depth + 1, look, out),
        }
    }
    if let Some(fault) = &texts.fault {
        put!(out, "{:1$}--- {fault}\n", "", depth * 4, fault = escape_control(fault));
    }
}

/// The value of a node, after its name: on the same line if it fits there, otherwise below.
fn node(structure: &Structure, bit: usize, depth: usize, look: &DisplayOptions, out: &mut String) {
    let contents = |contents: Option<&Structure>, member: &str, out: &mut String| match contents {
        None => put!(out, "  none\n"),
        Some(contents) => {
            put!(out, "{}{member}", if member.is_empty() { "" } else { "  " });
            match contents.kind().is_structure() {
                true => {
                    out.push('\n');
                    members(contents, 0, depth, look, out);
                }
                false => node(contents, 0, depth, look, out),
            }
        }
    };
    let elements = |all: Vec<(Option<&Structure>, String)>, out: &mut String| {
        put!(out, "  {} elements\n", all.len());
        for (index, (element, member)) in all.iter().enumerate() {
            put!(out, "{:1$}[{index}]", "", depth * 4);
            match element.filter(|element| element.kind().is_structure()) {
                Some(element) => {
                    put!(out, "{}{member}\n", if member.is_empty() { "" } else { "  " });
                    members(element, 0, depth + 1, look, out);
                }
                None => contents(*element, member, out),
            }
        }
    };
    match structure.node(bit) {
        Some(NodeValue::Structure) => match summary(structure, bit, look) {
            Some(text) => put!(out, "  {text}\n"),
            None => {
                out.push('\n');
                members(structure, bit, depth, look, out);
            }
        },
        Some(NodeValue::Value(value)) => {
            let reading = Reading::bare(value.clone());
            put!(out, "  {}\n", look.value(&reading));
        }
        Some(NodeValue::Union(value)) => {
            let member = value.as_ref().map_or(String::new(), |value| shown_member(structure.kind(), bit, value));
            contents(value.as_ref().map(|value| &value.value), &member, out);
        }
        Some(NodeValue::Any(value)) => {
            let id = value.as_ref().map_or(String::new(), |value| escape_control(&value.kind().id().to_str()));
            contents(value.as_deref(), &id, out);
        }
        Some(NodeValue::Structures(all)) => {
            elements(all.iter().map(|element| (element.as_ref(), String::new())).collect(), out);
        }
        Some(NodeValue::Unions(all)) => {
            let member = |element: &UnionValue| shown_member(structure.kind(), bit, element);
            let all = all.iter().map(|element| {
                (element.as_ref().map(|element| &element.value), element.as_ref().map(member).unwrap_or_default())
            });
            elements(all.collect(), out);
        }
        Some(NodeValue::Anys(all)) => {
            let id = |element: &Structure| escape_control(&element.kind().id().to_str());
            let all = all.iter().map(|element| (element.as_ref(), element.as_ref().map(id).unwrap_or_default()));
            elements(all.collect(), out);
        }
        None => out.push('\n'),
    }
}

fn member_name(kind: &StructureType, bit: usize, value: &UnionValue) -> String {
    let (NodeKind::Union(union) | NodeKind::UnionArray(union)) = &kind.nodes()[bit].kind else { return String::new() };
    union.members.get(value.selector as usize).map_or_else(String::new, |member| member.name.to_string())
}

fn shown_member(kind: &StructureType, bit: usize, value: &UnionValue) -> String {
    escape_control(&member_name(kind, bit, value))
}

/// The time, alarm or state that a structure of a known type contains.
fn summary(structure: &Structure, bit: usize, look: &DisplayOptions) -> Option<String> {
    let kind = structure.kind();
    let NodeKind::Structure { id } = &kind.nodes()[bit].kind else { return None };
    let part = |name: &str| structure.value(kind.member(bit, name.as_bytes())?);
    let number = |name: &str| match part(name)?.first()?.to_kind(Kind::I64, None) {
        Ok(Scalar::I64(number)) => Some(number),
        _ => None,
    };
    match id.to_str().as_ref() {
        "time_t" => {
            let nanos = u32::try_from(number("nanoseconds")?).ok()?;
            let time = match (number("secondsPastEpoch")?, nanos) {
                (0, 0) => TimeStamp::NEVER,
                (unix_s, nanos) => TimeStamp { unix_s, nanos },
            };
            let text = look.time(&Reading { time, ..Reading::bare(0.into()) });
            Some(match number("userTag") {
                None | Some(0) => text,
                Some(tag) => format!("{text}  user tag {tag}"),
            })
        }
        "alarm_t" => {
            let severity = match number("severity")? {
                0 => return Some("none".to_owned()),
                1 => Severity::Minor,
                2 => Severity::Major,
                _ => Severity::Invalid,
            };
            let message = part("message")?.first()?.to_text(None);
            let alarm = Alarm { severity, status: Status::NO_ALARM };
            let coloured = look.alarm(&Reading { alarm, ..Reading::bare(0.into()) });
            // The status is a class of pvAccess; the message says more.
            let text = coloured.replacen(&format!(" {}", Status::NO_ALARM), "", 1);
            Some(format!("{text} {}", escape_control(&message.to_str())).trim_end().to_owned())
        }
        "enum_t" => {
            let index = number("index")?;
            let Value::Array(Array::Text(choices)) = part("choices")? else { return None };
            let label = usize::try_from(index).ok().and_then(|index| choices.get(index));
            Some(match label.filter(|_| !look.numeric) {
                Some(label) => escape_control(&label.to_str()),
                None => index.to_string(),
            })
        }
        _ => None,
    }
}

/// The part of a structure that these nodes cover, as a structure without the other members.
pub fn part(structure: &Structure, nodes: &BitSet) -> Structure {
    let kind = structure.kind();
    let leaves = kind.leaves(nodes);
    let mut build = StructureBuilder::new(kind.id().clone());
    copy_members(kind, 0, &leaves, &mut build);
    let mut part = Structure::new(Arc::new(build.finish()));
    let own_leaves = part.kind().leaves(&[0].into_iter().collect());
    for (bit, from) in own_leaves.iter().zip(leaves.iter()) {
        if let Some(value) = structure.node(from) {
            // The kind of the node is the same, so that it accepts the value.
            let _ = part.set_node(bit, value.clone());
        }
    }
    part
}

/// Adds the members of a node that have one of these leaves.
fn copy_members(kind: &StructureType, bit: usize, leaves: &BitSet, build: &mut StructureBuilder) {
    for member in kind.members(bit) {
        let mut own_leaves = kind.leaves(&[member].into_iter().collect());
        own_leaves.intersect_with(leaves);
        let node = &kind.nodes()[member];
        match &node.kind {
            _ if own_leaves.is_empty() => {}
            NodeKind::Structure { id } => {
                build.open(node.name.clone(), id.clone());
                copy_members(kind, member, leaves, build);
                build.close();
            }
            leaf => {
                build.leaf(node.name.clone(), leaf.clone());
            }
        }
    }
}

/// A structure as a JSON object; a union as an object with the name of its selected member; NaN and infinities as the
/// strings "nan", "inf" and "-inf".
///
/// It is written element by element, because the text of an image needs several times the memory of its values.
pub fn json(structure: &Structure) -> impl Display + '_ {
    fmt::from_fn(move |f| write_json(structure, 0, f))
}

fn write_json(structure: &Structure, bit: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let kind = structure.kind();
    let contents = |contents: Option<&Structure>, f: &mut fmt::Formatter<'_>| match contents {
        Some(contents) => write_json(contents, 0, f),
        None => f.write_str("null"),
    };
    let union = |value: Option<&UnionValue>, f: &mut fmt::Formatter<'_>| {
        let Some(value) = value else { return f.write_str("null") };
        write!(f, "{{{}:{}}}", Json::from(member_name(kind, bit, value)), json(&value.value))
    };
    match structure.node(bit) {
        Some(NodeValue::Structure) => {
            f.write_str("{")?;
            separated(kind.members(bit), f, |member, f| {
                write!(f, "{}:", Json::from(kind.nodes()[member].name.to_str()))?;
                write_json(structure, member, f)
            })?;
            f.write_str("}")
        }
        Some(NodeValue::Value(Value::Scalar(element))) => write!(f, "{}", scalar(element)),
        Some(NodeValue::Value(Value::Array(elements))) => {
            let elements = (0..elements.len()).filter_map(|index| elements.scalar(index));
            list(elements, f, |element, f| write!(f, "{}", scalar(&element)))
        }
        Some(NodeValue::Union(value)) => union(value.as_deref(), f),
        Some(NodeValue::Unions(elements)) => list(elements.iter(), f, |element, f| union(element.as_ref(), f)),
        Some(NodeValue::Any(value)) => contents(value.as_deref(), f),
        Some(NodeValue::Structures(elements) | NodeValue::Anys(elements)) => {
            list(elements.iter(), f, |element, f| contents(element.as_ref(), f))
        }
        None => f.write_str("null"),
    }
}

fn list<T>(
    elements: impl Iterator<Item = T>,
    f: &mut fmt::Formatter<'_>,
    write_one: impl Fn(T, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    f.write_str("[")?;
    separated(elements, f, write_one)?;
    f.write_str("]")
}

fn separated<T>(
    elements: impl Iterator<Item = T>,
    f: &mut fmt::Formatter<'_>,
    write_one: impl Fn(T, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    for (index, element) in elements.enumerate() {
        f.write_str(if index == 0 { "" } else { "," })?;
        write_one(element, f)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_the_members_that_the_nodes_cover_with_their_values() {
        let mut build = StructureBuilder::new("scan_t");
        build.scalar("n", Kind::I32).open("alarm", "alarm_t").scalar("severity", Kind::I32);
        build.scalar("message", Kind::Text).close().leaf("any", NodeKind::Any);
        let mut whole = Structure::new(Arc::new(build.finish()));
        whole.set("n", 7).unwrap();
        whole.set("alarm.message", "hot").unwrap();
        whole.set_node(5, NodeValue::Any(Some(Box::new(Structure::single(2.5.into()))))).unwrap();
        let shown = |bits: &[usize]| {
            let part = part(&whole, &bits.iter().copied().collect());
            (part.kind().to_string(), json(&part).to_string())
        };
        let expected = |kind: &str, json: &str| (kind.to_owned(), json.to_owned());

        let message = expected("scan_t {alarm_t {Text message} alarm}", "{\"alarm\":{\"message\":\"hot\"}}");
        assert_eq!(shown(&[4]), message);
        assert_eq!(shown(&[1, 5]), expected("scan_t {I32 n, any any}", "{\"n\":7,\"any\":2.5}"));
        assert_eq!(shown(&[0]).1, json(&whole).to_string());
        assert_eq!(shown(&[]), expected("scan_t {}", "{}"));
    }
    use crate::local_time::Clock;
    use fodo_net::{StructureBuilder, UnionMember, UnionType};
    use std::sync::Arc;

    fn structure() -> Structure {
        let member = |name: &str, kind| UnionMember {
            name: name.into(),
            kind: Arc::new(StructureType::single(NodeKind::Scalar(kind))),
        };
        let union = UnionType { id: "".into(), members: vec![member("number", Kind::F64), member("text", Kind::Text)] };
        let mut build = StructureBuilder::new("scan_t");
        build.scalar("position", Kind::F64).array("names", Kind::Text);
        build.open("alarm", "alarm_t").scalar("severity", Kind::I32).scalar("message", Kind::Text).close();
        build.open("mode", "enum_t").scalar("index", Kind::I32).array("choices", Kind::Text).close();
        build.leaf("choice", NodeKind::Union(Arc::new(union))).leaf("any", NodeKind::Any);
        let mut structure = Structure::new(build.finish().into());
        let texts =
            |texts: &[&str]| Value::Array(Array::Text(Arc::new(texts.iter().map(|&text| text.into()).collect())));
        structure.set("position", f64::NAN).unwrap();
        structure.set("names", texts(&["a", "b c"])).unwrap();
        structure.set("alarm.severity", 2).unwrap();
        structure.set("alarm.message", "HIHI").unwrap();
        structure.set("mode.index", 1).unwrap();
        structure.set("mode.choices", texts(&["Slow", "Fast"])).unwrap();
        let choice = UnionValue { selector: 1, value: Structure::single("hi".into()) };
        let bit = structure.kind().node("choice").unwrap();
        structure.set_node(bit, NodeValue::Union(Some(Box::new(choice)))).unwrap();
        structure
    }

    #[test]
    fn a_structure_is_a_tree_with_one_line_for_times_alarms_and_enums() {
        let look = DisplayOptions::plain(Clock::utc());

        assert_eq!(
            tree(&structure(), &look),
            "    position  nan\n    names     [\"a\", \"b c\"]\n    alarm     MAJOR HIHI\n    mode      Fast\n    \
             choice    text  hi\n    any       none\n"
        );
    }

    #[test]
    fn a_structure_is_a_json_object_with_all_fields() {
        assert_eq!(
            json(&structure()).to_string(),
            "{\"position\":\"nan\",\"names\":[\"a\",\"b c\"],\"alarm\":{\"severity\":2,\"message\":\"HIHI\"},\
             \"mode\":{\"index\":1,\"choices\":[\"Slow\",\"Fast\"]},\"choice\":{\"text\":\"hi\"},\"any\":null}"
        );
    }

    /// Arrays of structures, unions and values of any type, each with an element and a missing one.
    fn nested() -> Structure {
        let mut point = StructureBuilder::new("");
        let point = Arc::new(point.scalar("x", Kind::F64).finish());
        let member =
            UnionMember { name: "number".into(), kind: Arc::new(StructureType::single(NodeKind::Scalar(Kind::F64))) };
        let named = UnionMember { name: "point".into(), kind: point.clone() };
        let union = Arc::new(UnionType { id: "".into(), members: vec![member, named] });
        let mut build = StructureBuilder::new("");
        build.leaf("points", NodeKind::StructureArray(point.clone())).leaf("unions", NodeKind::UnionArray(union));
        build.leaf("anys", NodeKind::AnyArray).leaf("any", NodeKind::Any);
        let mut nested = Structure::new(build.finish().into());
        let mut one = Structure::new(point);
        one.set("x", 1.5).unwrap();
        let unions = [(0, Structure::single(2.5.into())), (1, one.clone())]
            .map(|(selector, value)| Some(UnionValue { selector, value }));
        let mut set = |name: &str, value| {
            let bit = nested.kind().node(name).unwrap();
            nested.set_node(bit, value).unwrap();
        };
        set("points", NodeValue::Structures(Arc::new(vec![Some(one.clone()), None])));
        set("unions", NodeValue::Unions(Arc::new(unions.into_iter().chain([None]).collect())));
        set("anys", NodeValue::Anys(Arc::new(vec![Some(Structure::single("t".into())), None])));
        set("any", NodeValue::Any(Some(Box::new(one))));
        nested
    }

    #[test]
    fn the_elements_of_nested_arrays_have_numbers_and_missing_ones_are_none() {
        let lines = [
            "    points  2 elements",
            "        [0]",
            "            x  1.5",
            "        [1]  none",
            "    unions  3 elements",
            "        [0]  number  2.5",
            "        [1]  point",
            "            x  1.5",
            "        [2]  none",
            "    anys    2 elements",
            "        [0]  t",
            "        [1]  none",
            "    any   ",
            "        x  1.5",
        ];

        assert_eq!(tree(&nested(), &DisplayOptions::plain(Clock::utc())), lines.join("\n") + "\n");
        assert_eq!(
            json(&nested()).to_string(),
            "{\"points\":[{\"x\":1.5},null],\"unions\":[{\"number\":2.5},{\"point\":{\"x\":1.5}},null],\
             \"anys\":[\"t\",null],\"any\":{\"x\":1.5}}"
        );
    }

    #[test]
    fn a_single_value_is_a_tree_of_one_line() {
        assert_eq!(tree(&Structure::single(1.5.into()), &DisplayOptions::plain(Clock::utc())), "  1.5\n");
        assert_eq!(type_name(structure().kind()), "scan_t");
        assert_eq!(type_name(nested().kind()), "structure");
    }

    #[test]
    fn json_has_every_kind_of_number() {
        let shown = |value: Scalar| json(&Structure::single(Value::Scalar(value))).to_string();

        assert_eq!([shown(Scalar::F64(f64::INFINITY)), shown(Scalar::F64(f64::NEG_INFINITY))], ["\"inf\"", "\"-inf\""]);
        assert_eq!([shown(Scalar::F32(0.1)), shown(Scalar::F64(-0.5))], ["0.1", "-0.5"]);
        assert_eq!([shown(Scalar::U64(u64::MAX)), shown(Scalar::I8(-3))], ["18446744073709551615", "-3"]);
        assert_eq!([shown(Scalar::Bool(true)), shown(Scalar::U16(65535))], ["true", "65535"]);
    }

    #[test]
    fn times_alarms_and_enums_are_summarized_by_what_they_contain() {
        let mut build = StructureBuilder::new("");
        build.open("t", "time_t").scalar("secondsPastEpoch", Kind::I64).scalar("nanoseconds", Kind::I32);
        build.scalar("userTag", Kind::I32).close();
        build.open("alarm", "alarm_t").scalar("severity", Kind::I32).scalar("message", Kind::Text).close();
        build.open("mode", "enum_t").scalar("index", Kind::I32).array("choices", Kind::Text).close();
        build.open("other", "alarm_t").scalar("message", Kind::Text).close();
        let mut structure = Structure::new(build.finish().into());
        let plain = DisplayOptions::plain(Clock::utc());
        let line = |structure: &Structure, look: &DisplayOptions, name: &str| {
            let shown = tree(structure, look);
            shown.lines().find_map(|line| line.trim_start().strip_prefix(name)).unwrap().trim_start().to_owned()
        };

        assert_eq!(
            ["t", "alarm", "mode", "other"].map(|name| line(&structure, &plain, name)),
            ["never", "none", "0", ""]
        );
        structure.set("t.nanoseconds", 5_000_000).unwrap();
        assert!(line(&structure, &plain, "t").starts_with("1970-01-01 00:00:00.005"));
        structure.set("t.secondsPastEpoch", 60).unwrap();
        structure.set("t.userTag", 7).unwrap();
        assert!(line(&structure, &plain, "t").ends_with("user tag 7"));
        for (severity, word) in [(1, "MINOR"), (2, "MAJOR"), (3, "INVALID"), (9, "INVALID")] {
            structure.set("alarm.severity", severity).unwrap();
            assert_eq!(line(&structure, &plain, "alarm"), word);
        }
        structure.set("mode.choices", Value::Array(Array::Text(Arc::new(vec!["Slow".into()])))).unwrap();
        assert_eq!(line(&structure, &plain, "mode"), "Slow");
        assert_eq!(line(&structure, &DisplayOptions { numeric: true, ..plain.clone() }, "mode"), "0");
        structure.set("mode.index", 1).unwrap();
        assert_eq!(line(&structure, &plain, "mode"), "1");
    }
}
