//! A type as pvData prints it.

use std::fmt::Write as _;

use fodo_net::{ArraySize, NodeKind, StructureType, UnionType};

use super::pvdata::put;

/// The name of a node's type, such as `double[]` or `point_t`.
pub fn type_name(kind: &StructureType, bit: usize) -> String {
    let or = |id: &str, otherwise: &str| if id.is_empty() { otherwise.to_owned() } else { id.to_owned() };
    match &kind.nodes()[bit].kind {
        NodeKind::Structure { id } => or(&id.to_str(), "structure"),
        NodeKind::Scalar(kind) => kind.pva_name().to_owned(),
        NodeKind::BoundedText(max) => format!("string({max})"),
        NodeKind::Array { kind, size: ArraySize::Variable } => format!("{}[]", kind.pva_name()),
        NodeKind::Array { kind, size: ArraySize::Max(max) } => format!("{}<{max}>", kind.pva_name()),
        NodeKind::Array { kind, size: ArraySize::Fixed(n) } => format!("{}[{n}]", kind.pva_name()),
        NodeKind::StructureArray(kind) => format!("{}[]", or(&kind.id().to_str(), "structure")),
        NodeKind::Union(kind) => or(&kind.id.to_str(), "union"),
        NodeKind::UnionArray(kind) => format!("{}[]", or(&kind.id.to_str(), "union")),
        NodeKind::Any => "any".to_owned(),
        NodeKind::AnyArray => "any[]".to_owned(),
    }
}

/// A type with its members, one on each line, indented by `depth`.
pub fn type_text(kind: &StructureType, depth: usize) -> String {
    let mut out = String::new();
    put!(out, "{:1$}{name}\n", "", depth * 4, name = type_name(kind, 0));
    type_members(kind, 0, depth + 1, &mut out);
    out
}

fn type_members(kind: &StructureType, bit: usize, depth: usize, out: &mut String) {
    for member in kind.members(bit) {
        type_node(kind, member, depth, out);
    }
}

fn type_node(kind: &StructureType, bit: usize, depth: usize, out: &mut String) {
    let node = &kind.nodes()[bit];
    put!(out, "{:1$}{id} {name}\n", "", depth * 4, id = type_name(kind, bit), name = node.name);
    contents_type(kind, bit, depth + 1, out);
}

/// The members of a type's node, and the types of the elements of its arrays.
fn contents_type(kind: &StructureType, bit: usize, depth: usize, out: &mut String) {
    match &kind.nodes()[bit].kind {
        NodeKind::Structure { .. } => type_members(kind, bit, depth, out),
        NodeKind::StructureArray(element) => out.push_str(&type_text(element, depth)),
        NodeKind::Union(union) => union_members(union, depth, out),
        NodeKind::UnionArray(union) => {
            let id = union.id.to_str();
            put!(out, "{:1$}{id}\n", "", depth * 4, id = if id.is_empty() { "union" } else { &id });
            union_members(union, depth + 1, out);
        }
        NodeKind::AnyArray => put!(out, "{:1$}any\n", "", depth * 4),
        NodeKind::Scalar(_) | NodeKind::BoundedText(_) | NodeKind::Array { .. } | NodeKind::Any => {}
    }
}

fn union_members(union: &UnionType, depth: usize, out: &mut String) {
    for member in &union.members {
        put!(out, "{:1$}{id} {name}\n", "", depth * 4, id = type_name(&member.kind, 0), name = member.name);
        contents_type(&member.kind, 0, depth + 1, out);
    }
}
