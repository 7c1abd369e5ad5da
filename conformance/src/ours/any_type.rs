//! Our client's requests of PVs of any type, and their types and values as JSON.

use fodo_data::{Kind, NodeKind, NodeValue, Structure, StructureBuilder, StructureType, UnionValue};
use fodo_net::{Channel, PvRequest};
use serde_json::{Map, Value as Json, json};

use super::{json_of, pva_kind_name, value_of};
use crate::TestFailure;
use crate::client::{AnyTypeRequest, OPERATION_DURATION_MAX};

/// Performs a request; the result is `null` if there is none.
pub fn perform(channel: &Channel, request: AnyTypeRequest) -> Result<Json, TestFailure> {
    let failure = |error: fodo_net::Error| error.to_string();
    match request {
        AnyTypeRequest::Describe => {
            let kind = channel.describe_timeout(OPERATION_DURATION_MAX).map_err(failure)?;
            Ok(json!({ "id": kind.id().to_str(), "members": members(&kind, 0) }))
        }
        AnyTypeRequest::Get => {
            let read = channel.get_structure_timeout(&PvRequest::default(), OPERATION_DURATION_MAX);
            read.map(|structure| shown(&structure)).map_err(failure)
        }
        AnyTypeRequest::Put(fields) => {
            let fields = fields.as_object().into_iter().flatten();
            let fields = fields.map(|(path, value)| Ok((path.clone(), NodeValue::Value(value_of(value)?))));
            put(channel, "record[block=true]", fields.collect::<Result<_, TestFailure>>()?)
        }
        AnyTypeRequest::PutUnion(member, value) => {
            let kind = channel.describe_timeout(OPERATION_DURATION_MAX).map_err(failure)?;
            let union = union_value(&kind, member, value)?;
            put(channel, "record[block=true]", vec![("value".into(), NodeValue::Union(Some(Box::new(union))))])
        }
        AnyTypeRequest::Call(query) => {
            let argument = uri(channel.name(), query)?;
            channel.call_timeout(argument, OPERATION_DURATION_MAX).map(|result| shown(&result)).map_err(failure)
        }
        AnyTypeRequest::Process => {
            channel.process_timeout(OPERATION_DURATION_MAX).map(|()| Json::Null).map_err(failure)
        }
    }
}

/// Writes fields with the options of `request`.
pub fn put(channel: &Channel, request: &str, fields: Vec<(String, NodeValue)>) -> Result<Json, TestFailure> {
    let request = PvRequest::parse(request).map_err(|error| error.to_string())?;
    let written = channel.put_structure_timeout(&request, fields, OPERATION_DURATION_MAX);
    written.map(|()| Json::Null).map_err(|error| error.to_string())
}

/// A structure as JSON; a union or a variant is the value that it contains.
pub fn shown(structure: &Structure) -> Json {
    shown_at(structure, 0)
}

fn shown_at(structure: &Structure, bit: usize) -> Json {
    let kind = structure.kind();
    match structure.node(bit) {
        Some(NodeValue::Structure) => {
            let members = kind.members(bit).map(|at| (kind.nodes()[at].name.to_string(), shown_at(structure, at)));
            Json::Object(members.collect())
        }
        Some(NodeValue::Value(value)) => json_of(value),
        Some(NodeValue::Union(Some(union))) => shown(&union.value),
        Some(NodeValue::Any(Some(value))) => shown(value),
        Some(NodeValue::Union(None) | NodeValue::Any(None)) => Json::Null,
        other => json!(format!("{other:?}")),
    }
}

fn members(kind: &StructureType, bit: usize) -> Map<String, Json> {
    kind.members(bit).map(|at| (kind.nodes()[at].name.to_string(), described(kind, at))).collect()
}

/// A type as JSON: a name, or the members of a structure or union.
fn described(kind: &StructureType, bit: usize) -> Json {
    match &kind.nodes()[bit].kind {
        NodeKind::Structure { .. } => Json::Object(members(kind, bit)),
        NodeKind::Scalar(kind) => json!(pva_kind_name(*kind)),
        NodeKind::Array { kind, .. } => json!(format!("{}[]", pva_kind_name(*kind))),
        NodeKind::Union(union) => {
            let members = union.members.iter().map(|member| (member.name.to_string(), described(&member.kind, 0)));
            json!({ "union": members.collect::<Map<_, _>>() })
        }
        NodeKind::Any => json!("any"),
        other => json!(format!("{other:?}")),
    }
}

/// A member of the union at the path `value`, with this value.
fn union_value(kind: &StructureType, member: &str, value: &Json) -> Result<UnionValue, TestFailure> {
    let node = kind.node("value").and_then(|bit| kind.nodes().get(bit));
    let Some(NodeKind::Union(union)) = node.map(|node| &node.kind) else {
        return Err(format!("{kind} has no union"));
    };
    let selector = union.members.iter().position(|known| known.name.to_string() == member);
    let selector = selector.ok_or_else(|| format!("{union} has no member {member}"))?;
    let mut content = Structure::new(union.members[selector].kind.clone());
    content.set("", value_of(value)?).map_err(|error| error.to_string())?;
    Ok(UnionValue { selector: selector as u32, value: content })
}

/// An NTURI with a query of numbers.
fn uri(path: &str, query: &Json) -> Result<Structure, TestFailure> {
    let query: Vec<(&String, f64)> =
        query.as_object().into_iter().flatten().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect();
    let mut kind = StructureBuilder::new("epics:nt/NTURI:1.0");
    kind.scalar("scheme", Kind::Text).scalar("path", Kind::Text).open("query", "");
    for (name, _) in &query {
        kind.scalar(name, Kind::F64);
    }
    let mut uri = Structure::new(kind.close().finish().into());
    uri.set("scheme", "pva").map_err(|error| error.to_string())?;
    uri.set("path", path).map_err(|error| error.to_string())?;
    for (name, value) in query {
        uri.set(&format!("query.{name}"), value).map_err(|error| error.to_string())?;
    }
    Ok(uri)
}
