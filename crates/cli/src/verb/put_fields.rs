//! `fodo put` of fields of a structure of pvAccess.

use std::sync::Arc;
use std::time::Instant;

use fodo_net::{
    Array, Channel, Error, Kind, NodeKind, NodeValue, PvRequest, Scalar, Structure, StructureType, UnionType,
    UnionValue, Value,
};
use serde_json::Value as Json;

use super::Readout;
use super::put::PutOutcome;
use crate::client::{Deadline, kind_name};
use crate::epics::pva::assign::{NotANumber, assign_json, changed_fields, parsed};

/// What the command line gives for the fields.
pub enum FieldValues<'a> {
    /// Words such as `display.units=mm`.
    Words(&'a [String]),
    /// A JSON object.
    Json(&'a str),
}

/// Writes fields of a PV of this type; returns it before and after, unless `is_quiet`, and the duration in seconds.
pub fn write(
    channel: &Channel,
    kind: Arc<StructureType>,
    values: &FieldValues<'_>,
    request: &PvRequest,
    is_quiet: bool,
    deadline: &Deadline,
) -> Result<PutOutcome, Error> {
    // A PV that may be written but not read is still written.
    let read = || deadline.wait(channel.start_get_structure(PvRequest::default())).ok();
    let misuse = |reason: String| Error::misuse(channel.name(), reason, "");
    let old = read();
    let fields = changed_fields(&assigned(kind, values, old.as_ref()).map_err(misuse)?);
    let start = Instant::now();
    deadline.wait(channel.start_put_structure(request.clone(), fields))?;
    let seconds = start.elapsed().as_secs_f64();
    if is_quiet {
        return Ok((None, None, seconds));
    }
    let readout = |structure: Option<Structure>| structure.map(|structure| Readout::Structure(Box::new(structure)));
    Ok((readout(old), readout(read()), seconds))
}

/// A structure in which these fields are set.
fn assigned(kind: Arc<StructureType>, values: &FieldValues<'_>, old: Option<&Structure>) -> Result<Structure, String> {
    let mut structure = Structure::new(kind);
    match values {
        FieldValues::Json(text) => {
            let json = serde_json::from_str(text).map_err(|error| format!("{text} is not valid JSON: {error}"))?;
            set_json(&mut structure, 0, &json)?;
        }
        FieldValues::Words(words) => {
            for word in *words {
                let (path, text) = word.split_once('=').ok_or_else(|| {
                    format!(
                        "the PV is a structure; write FIELD=VALUE instead of \"{word}\" (fodo info shows the fields)"
                    )
                })?;
                set_text(&mut structure, old, path, text)?;
            }
        }
    }
    Ok(structure)
}

fn set_text(structure: &mut Structure, old: Option<&Structure>, path: &str, text: &str) -> Result<(), String> {
    let kind = structure.kind().clone();
    let bit = kind.node(path).filter(|&bit| bit > 0);
    let bit = bit.ok_or_else(|| format!("the PV has no field \"{path}\" (fodo info shows the fields)"))?;
    let json: Result<Json, _> = serde_json::from_str(text);
    match (&kind.nodes()[bit].kind, json) {
        (NodeKind::Scalar(scalar), _) => {
            let element = parsed(*scalar, text).map_err(|error| invalid(path, text, *scalar, error))?;
            structure.set_value(bit, Value::Scalar(element)).map_err(|error| error.to_string())
        }
        (NodeKind::BoundedText(_), _) => structure.set_value(bit, text.into()).map_err(|error| error.to_string()),
        (NodeKind::Structure { id }, json) if id.as_bytes() == b"enum_t" && !matches!(json, Ok(Json::Object(_))) => {
            set_enum(structure, old, bit, text).map_err(|reason| format!("\"{text}\" is invalid for {path}: {reason}"))
        }
        (NodeKind::Any, Err(_)) => set_json(structure, bit, &Json::String(text.to_owned())),
        (_, Ok(json)) => set_json(structure, bit, &json),
        (_, Err(error)) => {
            let example =
                if matches!(kind.nodes()[bit].kind, NodeKind::Array { .. }) { "[1, 2]" } else { "{\"x\": 1}" };
            Err(format!("the value of {path} must be JSON, such as {example}: {error}"))
        }
    }
}

fn invalid(path: &str, text: &str, kind: Kind, error: NotANumber) -> String {
    let (what, kind) = (if error == NotANumber::TooLarge { "out of range" } else { "invalid" }, kind_name(kind));
    format!("\"{text}\" is {what} for {path}, which is of type {kind}")
}

/// Sets an enum by its label or its index.
fn set_enum(structure: &mut Structure, old: Option<&Structure>, bit: usize, text: &str) -> Result<(), String> {
    let kind = structure.kind().clone();
    let index_bit = kind.member(bit, b"index").ok_or("the enum has no index")?;
    let choices = kind.member(bit, b"choices").and_then(|choices| old?.value(choices));
    let choices = match choices {
        Some(Value::Array(Array::Text(choices))) => choices.as_slice(),
        _ => &[],
    };
    let index = match choices.iter().position(|choice| choice.as_bytes() == text.as_bytes()) {
        Some(index) => index,
        None => text.parse().map_err(|_| {
            let labels: Vec<String> = choices.iter().map(|label| format!("\"{label}\"")).collect();
            format!("the states are {}", labels.join(", "))
        })?,
    };
    let index = i32::try_from(index).map_err(|_| "the index is out of range")?;
    structure.set_value(index_bit, Value::Scalar(Scalar::I32(index))).map_err(|error| error.to_string())
}

/// Sets a node, also a union. The object of a structure sets the members that it names.
fn set_json(structure: &mut Structure, bit: usize, json: &Json) -> Result<(), String> {
    let kind = structure.kind().clone();
    match (&kind.nodes()[bit].kind, json) {
        (NodeKind::Structure { .. }, Json::Object(members)) => members.iter().try_for_each(|(name, json)| {
            let member = kind.member(bit, name.as_bytes()).ok_or_else(|| format!("the PV has no field \"{name}\""))?;
            set_json(structure, member, json)
        }),
        (NodeKind::Union(union), json) => {
            let value = union_value(union, json).map_err(|reason| format!("{}: {reason}", kind.path(bit)))?;
            let value = NodeValue::Union(Some(Box::new(value)));
            structure.set_node(bit, value).map_err(|error| error.to_string())
        }
        (_, json) => assign_json(structure, bit, json),
    }
}

/// The selected member of a union and its value, of an object such as `{"text": "two"}`.
fn union_value(union: &UnionType, json: &Json) -> Result<UnionValue, String> {
    let one = json.as_object().filter(|members| members.len() == 1).and_then(|members| members.iter().next());
    let names = || union.members.iter().map(|member| format!("\"{}\"", member.name)).collect::<Vec<_>>().join(", ");
    let (name, json) =
        one.ok_or_else(|| format!("write {{MEMBER: VALUE}} for a union; its members are {}", names()))?;
    let selector = union.members.iter().position(|member| member.name.as_bytes() == name.as_bytes());
    let selector =
        selector.ok_or_else(|| format!("the union has no member \"{name}\"; its members are {}", names()))?;
    let mut content = Structure::new(union.members[selector].kind.clone());
    set_json(&mut content, 0, json)?;
    let selector = u32::try_from(selector).map_err(|_| "the union has too many members")?;
    Ok(UnionValue { selector, value: content })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_net::{StructureBuilder, Text, UnionMember};

    fn kind() -> Arc<StructureType> {
        let member = |name: &str, kind| UnionMember {
            name: name.into(),
            kind: Arc::new(StructureType::single(NodeKind::Scalar(kind))),
        };
        let union = UnionType { id: "".into(), members: vec![member("number", Kind::F64), member("text", Kind::Text)] };
        let mut build = StructureBuilder::new("scan_t");
        build.scalar("n", Kind::I16).scalar("name", Kind::Text).open("b", "").array("points", Kind::F64).close();
        build.open("mode", "enum_t").scalar("index", Kind::I32).array("choices", Kind::Text).close();
        build.leaf("choice", NodeKind::Union(Arc::new(union))).leaf("any", NodeKind::Any);
        build.finish().into()
    }

    fn set(words: &[&str]) -> Result<Vec<(String, NodeValue)>, String> {
        let mut old = Structure::new(kind());
        old.set("mode.choices", Value::from(["Slow", "Fast"].map(Text::from).to_vec())).unwrap();
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        assigned(kind(), &FieldValues::Words(&words), Some(&old)).map(|structure| changed_fields(&structure))
    }

    fn value(path: &str, value: impl Into<Value>) -> (String, NodeValue) {
        (path.to_owned(), NodeValue::Value(value.into()))
    }

    #[test]
    fn words_set_the_fields_that_they_name_and_no_others() {
        let fields = set(&["n=-3", "name=a=b", "b.points=[1, 2.5]", "mode=Fast"]).unwrap();

        let points = value("b.points", vec![1.0, 2.5]);
        assert_eq!(
            fields,
            [value("n", Value::Scalar(Scalar::I16(-3))), value("name", "a=b"), points, value("mode.index", 1)]
        );
    }

    #[test]
    fn json_sets_members_unions_and_variants() {
        let json = r#"{"b": {"points": [3]}, "choice": {"text": "two"}, "any": 1.5}"#;

        let set = assigned(kind(), &FieldValues::Json(json), None).unwrap();

        let fields = changed_fields(&set);
        let [points, (_, NodeValue::Union(Some(choice))), (_, NodeValue::Any(Some(any)))] = fields.as_slice() else {
            panic!("{fields:?}")
        };
        assert_eq!((points, any.get("")), (&value("b.points", vec![3.0]), Some(&1.5.into())));
        assert_eq!((choice.selector, choice.value.get("")), (1, Some(&"two".into())));
    }

    #[test]
    fn a_word_for_a_variant_is_json_or_else_a_text() {
        for (word, value) in
            [("any=2", Value::from(2_i64)), ("any=\"2\"", "2".into()), ("any=two words", "two words".into())]
        {
            let Ok([(_, NodeValue::Any(Some(any)))]) = set(&[word]).map(|fields| <[_; 1]>::try_from(fields).unwrap())
            else {
                panic!("{word}")
            };
            assert_eq!(any.get(""), Some(&value));
        }
    }

    #[test]
    fn an_invalid_field_or_value_is_rejected_with_a_reason() {
        let reason = |word: &str| set(&[word]).unwrap_err();

        assert!(reason("3").contains("write FIELD=VALUE instead of \"3\""));
        assert!(reason("nothing=3").contains("no field \"nothing\""));
        assert_eq!(reason("n=70000"), "\"70000\" is out of range for n, which is of type short");
        assert!(reason("n=much").contains("is invalid for n"));
        assert!(reason("b.points=1 2").contains("must be JSON, such as [1, 2]"));
        assert!(reason("mode=Ajar").contains("the states are \"Slow\", \"Fast\""));
        assert!(reason("choice={\"flag\": 1}").contains("its members are \"number\", \"text\""));
        assert!(reason("choice=3").contains("write {MEMBER: VALUE} for a union"));
    }
}
