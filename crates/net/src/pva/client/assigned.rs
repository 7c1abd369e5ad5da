//! The fields of a put as the type of the PV has them: values are converted, members of unions selected, and the elements of
//! arrays of structures filled field by field.

use std::sync::Arc;

use fodo_data::{Array, NodeKind, NodeValue, Structure, StructureType, UnionType, UnionValue, Value};

use crate::AcceptedValues;

/// Why a field cannot be set: its path and what was expected.
type FieldReason = String;

/// The structure that a put sends: only the fields that the caller sets are marked.
pub(super) fn structure(kind: &Arc<StructureType>, fields: &[(String, NodeValue)]) -> Result<Structure, FieldReason> {
    let mut structure = Structure::new(kind.clone());
    fields.iter().try_for_each(|(path, value)| set(&mut structure, path, "", value.clone()))?;
    Ok(structure)
}

/// Checks that the field at `path` can be set to a value, and sets it. A field that cannot be set does not affect the others.
pub(crate) fn check(structure: &mut Structure, path: &str, value: &NodeValue) -> Result<(), FieldReason> {
    set(structure, path, "", value.clone())
}

/// Sets the field at `path` below `above`, which is the path of the structure itself. A path may lead through a union to one
/// of its members, which is then the selected one.
fn set(structure: &mut Structure, path: &str, above: &str, value: NodeValue) -> Result<(), FieldReason> {
    let kind = structure.kind().clone();
    if let Some(bit) = kind.node(path) {
        return set_node(structure, bit, &joined(above, path), value);
    }
    for (at, _) in path.match_indices('.') {
        let Some(bit) = kind.node(&path[..at]) else { break };
        if let NodeKind::Union(union) = &kind.nodes()[bit].kind {
            let before = match structure.node(bit) {
                Some(NodeValue::Union(Some(before))) => Some(&**before),
                _ => None,
            };
            let selected = selected_at(union, before, &path[at + 1..], &joined(above, &path[..at]), value)?;
            let value = NodeValue::Union(Some(Box::new(selected)));
            return structure.set_node(bit, value).map_err(|error| error.to_string());
        }
    }
    Err(format!("the PV has no field \"{}\": expected one of {kind}", joined(above, path)))
}

/// Sets a node. A single value for an enum is its index.
fn set_node(structure: &mut Structure, bit: usize, path: &str, value: NodeValue) -> Result<(), FieldReason> {
    let kind = structure.kind().clone();
    let other = |what: &str| format!("the field \"{path}\" is {}: expected {what}", kind.subtree(bit));
    let value = match (&kind.nodes()[bit].kind, value) {
        (NodeKind::Any, NodeValue::Value(value)) => NodeValue::Any(Some(Box::new(Structure::single(value)))),
        (NodeKind::Structure { id }, NodeValue::Value(value)) if id.as_bytes() == b"enum_t" => {
            let index = kind.member(bit, b"index").unwrap_or(bit);
            let checked = accepted(&kind.nodes()[index].kind, &value);
            structure.set_value(index, value).map_err(|error| format!("{}, {error}", other("an index")))?;
            return checked.map(drop).map_err(|reason| format!("the field \"{path}\": {reason}"));
        }
        (NodeKind::Structure { .. }, _) => return Err(other("a value for each field")),
        (NodeKind::Union(_), NodeValue::Any(None)) => NodeValue::Union(None),
        (NodeKind::Union(union), NodeValue::Value(value)) => {
            NodeValue::Union(Some(Box::new(selected(union, value, path)?)))
        }
        (NodeKind::StructureArray(element), NodeValue::Anys(elements)) => {
            let filled = elements.iter().enumerate().map(|(index, given)| {
                let path = format!("{path}[{index}]");
                given.as_ref().map(|given| filled(element, given, &path)).transpose()
            });
            NodeValue::Structures(Arc::new(filled.collect::<Result<_, _>>()?))
        }
        (NodeKind::StructureArray(_), NodeValue::Value(Value::Array(none))) if none.is_empty() => {
            NodeValue::Structures(Arc::default())
        }
        (NodeKind::StructureArray(_), NodeValue::Value(_)) => return Err(other("a structure for each element")),
        (NodeKind::UnionArray(union), value) => union_array(union, value, path)?,
        (NodeKind::AnyArray, NodeValue::Value(value)) => NodeValue::Anys(Arc::new(singles(&value.into_array()))),
        (_, value) => value,
    };
    let checked = match &value {
        NodeValue::Value(given) => accepted(&kind.nodes()[bit].kind, given),
        _ => Ok(None),
    };
    let value = match &checked {
        Ok(Some(sent)) => NodeValue::Value(sent.clone()),
        _ => value,
    };
    structure.set_node(bit, value).map_err(|error| format!("{}, {error}", other("a value of this type")))?;
    checked.map(drop).map_err(|reason| format!("the field \"{path}\": {reason}"))
}

/// The value to send for a scalar or an array of scalars, or why the field would make another value of it; `None` for other
/// fields.
fn accepted(field: &NodeKind, value: &Value) -> Result<Option<Value>, FieldReason> {
    AcceptedValues::of_field(field).map(|accepted| accepted.accept(value.clone())).transpose()
}

/// A structure of this type with the fields of another one.
fn filled(kind: &Arc<StructureType>, given: &Structure, path: &str) -> Result<Structure, FieldReason> {
    if kind == given.kind() {
        return Ok(given.clone());
    }
    if !given.kind().is_structure() {
        return Err(format!("the element \"{path}\" is {}: expected {kind}", given.kind()));
    }
    let mut structure = Structure::new(kind.clone());
    leaves(given).try_for_each(|(given_path, value)| set(&mut structure, &given_path, path, value.clone()))?;
    Ok(structure)
}

/// The values of a structure with their paths.
fn leaves(structure: &Structure) -> impl Iterator<Item = (String, &NodeValue)> {
    let nodes = (0..structure.kind().nodes().len()).filter_map(|bit| Some((bit, structure.node(bit)?)));
    let values = nodes.filter(|(_, value)| !matches!(value, NodeValue::Structure));
    values.map(|(bit, value)| (structure.kind().path(bit), value))
}

fn union_array(union: &Arc<UnionType>, value: NodeValue, path: &str) -> Result<NodeValue, FieldReason> {
    let elements = match value {
        NodeValue::Value(value) => singles(&value.into_array()),
        NodeValue::Anys(elements) => elements.to_vec(),
        value => return Ok(value),
    };
    let element = |(index, given): (usize, &Option<Structure>)| {
        let path = format!("{path}[{index}]");
        let Some(given) = given else { return Ok(None) };
        if let Some(NodeValue::Value(value)) = given.node(0) {
            return selected(union, value.clone(), &path).map(Some);
        }
        // A structure with one field selects the member with its name.
        let mut chosen: Option<UnionValue> = None;
        for (given_path, value) in leaves(given) {
            let next = selected_at(union, chosen.as_ref(), &given_path, &path, value.clone())?;
            if chosen.replace(next.clone()).is_some_and(|before| before.selector != next.selector) {
                chosen = None;
                break;
            }
        }
        let expected =
            || format!("the element \"{path}\" is {}: expected one field, of {}", given.kind(), names(union));
        chosen.ok_or_else(expected).map(Some)
    };
    let unions = elements.iter().enumerate().map(element).collect::<Result<_, FieldReason>>()?;
    Ok(NodeValue::Unions(Arc::new(unions)))
}

/// The member of a union at a path, which begins with its name, with this value. `before`: the selected member.
fn selected_at(
    union: &UnionType,
    before: Option<&UnionValue>,
    path: &str,
    above: &str,
    value: NodeValue,
) -> Result<UnionValue, FieldReason> {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let selector = member_named(union, name, above)?;
    let new = || Structure::new(union.members[selector as usize].kind.clone());
    let before = before.filter(|before| before.selector == selector);
    let mut member = before.map_or_else(new, |before| before.value.clone());
    match rest {
        "" => set_node(&mut member, 0, &joined(above, name), value)?,
        rest => set(&mut member, rest, &joined(above, name), value)?,
    }
    Ok(UnionValue { selector, value: member })
}

/// The value as a member of a union: the first one of exactly its kind, or else the first one that accepts it.
fn selected(union: &UnionType, value: Value, path: &str) -> Result<UnionValue, FieldReason> {
    let is_exact = |kind: &StructureType| match (&kind.nodes()[0].kind, &value) {
        (NodeKind::Scalar(kind), Value::Scalar(scalar)) => *kind == scalar.kind(),
        (NodeKind::Array { kind, .. }, Value::Array(array)) => *kind == array.kind(),
        _ => false,
    };
    let is_similar = |kind: &StructureType| {
        matches!(
            (&kind.nodes()[0].kind, &value),
            (NodeKind::Scalar(_) | NodeKind::BoundedText(_), Value::Scalar(_))
                | (NodeKind::Array { .. }, Value::Array(_))
        )
    };
    let exact = union.members.iter().position(|member| is_exact(&member.kind));
    let candidates = exact.into_iter().chain((0..union.members.len()).filter(|&n| is_similar(&union.members[n].kind)));
    for selector in candidates {
        let mut member = Structure::new(union.members[selector].kind.clone());
        if member.set_value(0, value.clone()).is_ok() {
            return Ok(UnionValue { selector: selector as u32, value: member });
        }
    }
    let given = Structure::single(value);
    Err(format!("no member of the union \"{path}\" accepts {}: expected one of {}", given.kind(), names(union)))
}

fn member_named(union: &UnionType, name: &str, path: &str) -> Result<u32, FieldReason> {
    let position = union.members.iter().position(|member| member.name.as_bytes() == name.as_bytes());
    let found = position.and_then(|position| u32::try_from(position).ok());
    found.ok_or_else(|| format!("the union \"{path}\" has no member \"{name}\": expected one of {}", names(union)))
}

/// The members of a union, for messages.
fn names(union: &UnionType) -> String {
    let names: Vec<String> = union.members.iter().map(|member| member.name.to_string()).collect();
    names.join(", ")
}

/// The elements of an array as single values.
fn singles(array: &Array) -> Vec<Option<Structure>> {
    (0..array.len()).map(|index| array.scalar(index).map(|scalar| Structure::single(Value::Scalar(scalar)))).collect()
}

fn joined(above: &str, path: &str) -> String {
    match (above, path) {
        ("", path) => path.to_owned(),
        (above, "") => above.to_owned(),
        (above, path) => format!("{above}.{path}"),
    }
}

#[cfg(test)]
mod tests {
    use fodo_data::{Kind, StructureBuilder, UnionMember};

    use super::*;

    fn with_union() -> Arc<StructureType> {
        let member = |name: &str, kind| UnionMember {
            name: name.into(),
            kind: Arc::new(StructureType::single(NodeKind::Scalar(kind))),
        };
        let union = UnionType { id: "".into(), members: vec![member("text", Kind::Text), member("count", Kind::I32)] };
        let mut build = StructureBuilder::new("choice_t");
        build.leaf("choice", NodeKind::Union(Arc::new(union)));
        Arc::new(build.finish())
    }

    fn chosen(fields: &[(&str, NodeValue)]) -> Result<Option<(u32, Value)>, FieldReason> {
        let fields: Vec<_> = fields.iter().map(|(path, value)| ((*path).to_owned(), value.clone())).collect();
        let structure = structure(&with_union(), &fields)?;
        match structure.node(1) {
            Some(NodeValue::Union(Some(union))) => match union.value.node(0) {
                Some(NodeValue::Value(value)) => Ok(Some((union.selector, value.clone()))),
                _ => Err("the member has no value".into()),
            },
            _ => Ok(None),
        }
    }

    #[test]
    fn a_value_or_a_path_selects_the_member_of_a_union_and_nothing_selects_none() {
        let value = |value: Value| NodeValue::Value(value);

        assert_eq!(chosen(&[("choice", value(5.into()))]), Ok(Some((1, 5.into()))));
        assert_eq!(chosen(&[("choice", value("a".into()))]), Ok(Some((0, "a".into()))));
        assert_eq!(chosen(&[("choice.text", value(5.into()))]), Ok(Some((0, "5".into()))));
        assert_eq!(chosen(&[("choice", value(5.into())), ("choice", NodeValue::Any(None))]), Ok(None));
        assert!(chosen(&[("choice.word", value(5.into()))]).is_err_and(|reason| reason.contains("text, count")));
    }
}
