//! Values and types as pvxs prints them: its formats "delta" and "tree".
//!
//! Behaviour: the output of pvxget with libpvxs 1.5.3 in `tests/golden`, and pvxs' `datafmt.cpp`.

use std::fmt::Write as _;

use fodo_net::{Array, Kind, NodeKind, NodeValue, Scalar, Structure, StructureType, UnionType, UnionValue, Value};

use super::pvdata::{EscapeStyle, escaped};
use crate::epics::printf;

/// Writes into a text, which cannot fail.
macro_rules! put {
    ($out:expr, $($argument:tt)*) => {{
        let _ = write!($out, $($argument)*);
    }};
}

/// The number of blanks of one level.
const INDENT: usize = 4;

/// The changed fields of a value, one on each line, indented by `depth`. `limit`: the maximum number of elements of an
/// array that are printed; 0 for all.
pub fn delta(structure: &Structure, depth: usize, limit: usize) -> String {
    let mut printer = DeltaPrinter { depth, limit, out: String::new() };
    printer.top("", structure, true);
    printer.out
}

struct DeltaPrinter {
    depth: usize,
    limit: usize,
    out: String,
}

impl DeltaPrinter {
    /// A value with its marked members. In unions and arrays, all members are.
    fn top(&mut self, prefix: &str, structure: &Structure, is_root: bool) {
        let kind = structure.kind();
        if !is_root || structure.changed().contains(0) {
            self.node(prefix, structure, 0, is_root);
        }
        if !kind.is_structure() {
            return;
        }
        let is_marked = |bit: &usize| match is_root {
            true => kind.covered(structure.changed()).any(|bits| bits.contains(bit)),
            false => true,
        };
        let is_leaf = |bit: &usize| !matches!(kind.nodes()[*bit].kind, NodeKind::Structure { .. });
        for bit in (1..kind.nodes().len()).filter(is_leaf).filter(is_marked) {
            let separator = if is_root { "" } else { "." };
            self.node(&format!("{prefix}{separator}{}", kind.path(bit)), structure, bit, false);
        }
    }

    fn contents(&mut self, prefix: &str, contents: Option<&Structure>) {
        match contents {
            Some(contents) => self.top(prefix, contents, false),
            None => put!(self.out, "{:1$}{prefix} null\n", "", self.depth * INDENT),
        }
    }

    fn node(&mut self, prefix: &str, structure: &Structure, bit: usize, is_root: bool) {
        let kind = structure.kind();
        put!(
            self.out,
            "{:1$}{prefix}{separator}{name}",
            "",
            self.depth * INDENT,
            separator = if is_root { "" } else { " " },
            name = type_word(kind, bit)
        );
        if let NodeKind::Structure { id } = &kind.nodes()[bit].kind
            && !id.is_empty()
        {
            put!(self.out, " \"{}\"", escaped(id.as_bytes(), EscapeStyle::Pvxs));
        }
        if let Some(value) = structure.value(bit) {
            put!(self.out, " = {}", value_text(value, self.limit));
        }
        self.out.push('\n');
        match structure.node(bit) {
            Some(NodeValue::Union(value)) => {
                let name = value.as_ref().and_then(|value| member_name(kind, bit, value)).unwrap_or_default();
                self.contents(&format!("{prefix}->{name}"), value.as_ref().map(|value| &value.value));
            }
            Some(NodeValue::Any(value)) => self.contents(&format!("{prefix}->"), value.as_deref()),
            Some(NodeValue::Structures(elements)) => self.elements(prefix, elements.iter().map(Option::as_ref)),
            Some(NodeValue::Unions(elements)) => {
                self.elements(prefix, elements.iter().map(|element| element.as_ref().map(|element| &element.value)));
            }
            Some(NodeValue::Anys(elements)) => self.elements(prefix, elements.iter().map(Option::as_ref)),
            _ => {}
        }
    }

    fn elements<'a>(&mut self, prefix: &str, elements: impl Iterator<Item = Option<&'a Structure>>) {
        for (index, element) in elements.enumerate() {
            self.contents(&format!("{prefix}[{index}]"), element);
        }
    }
}

/// The name of the selected member of a union.
fn member_name(kind: &StructureType, bit: usize, value: &UnionValue) -> Option<String> {
    match &kind.nodes()[bit].kind {
        NodeKind::Union(union) => Some(union.members.get(value.selector as usize)?.name.to_string()),
        _ => None,
    }
}

/// All fields of a value as a tree, indented by `depth`.
pub fn tree(structure: &Structure, depth: usize, limit: usize) -> String {
    let mut printer = TreePrinter { depth, limit, out: String::new() };
    printer.indent();
    printer.node(structure, 0, "");
    printer.out
}

struct TreePrinter {
    depth: usize,
    limit: usize,
    out: String,
}

impl TreePrinter {
    fn indent(&mut self) {
        put!(self.out, "{:1$}", "", self.depth * INDENT);
    }

    fn contents(&mut self, contents: Option<&Structure>) {
        match contents {
            Some(contents) => self.node(contents, 0, ""),
            None => self.out.push_str("null\n"),
        }
    }

    fn node(&mut self, structure: &Structure, bit: usize, name: &str) {
        let kind = structure.kind();
        let node = &kind.nodes()[bit];
        put!(self.out, "{}{}", type_word(kind, bit), quoted_id(&node.kind));
        let named = if name.is_empty() { String::new() } else { format!(" {name}") };
        match structure.node(bit) {
            Some(NodeValue::Value(value)) => put!(self.out, "{named} = {}\n", value_text(value, self.limit)),
            Some(NodeValue::Union(value)) => {
                self.out.push_str(&named);
                if let Some(member) = value.as_ref().and_then(|value| member_name(kind, bit, value)) {
                    put!(self.out, ".{member}");
                }
                self.out.push(' ');
                self.contents(value.as_ref().map(|value| &value.value));
            }
            Some(NodeValue::Any(value)) => {
                put!(self.out, "{named} ");
                self.contents(value.as_deref());
            }
            Some(NodeValue::Structure) => {
                self.out.push_str(" {");
                for (index, member) in kind.members(bit).enumerate() {
                    if index == 0 {
                        self.out.push('\n');
                    }
                    self.depth += 1;
                    self.indent();
                    self.node(structure, member, &kind.nodes()[member].name.to_str());
                    self.depth -= 1;
                }
                if kind.members(bit).next().is_some() {
                    self.indent();
                }
                put!(self.out, "}}{named}\n");
            }
            Some(NodeValue::Structures(elements)) => {
                self.elements(&named, elements.len(), elements.iter().map(Option::as_ref));
            }
            Some(NodeValue::Unions(elements)) => {
                let values = elements.iter().map(|element| element.as_ref().map(|element| &element.value));
                self.elements(&named, elements.len(), values);
            }
            Some(NodeValue::Anys(elements)) => {
                self.elements(&named, elements.len(), elements.iter().map(Option::as_ref));
            }
            None => self.out.push('\n'),
        }
    }

    fn elements<'a>(&mut self, named: &str, n: usize, elements: impl Iterator<Item = Option<&'a Structure>>) {
        put!(self.out, "{named} = {{{n}}}[");
        if n > 0 {
            self.out.push('\n');
        }
        for (index, element) in elements.enumerate() {
            self.depth += 1;
            self.indent();
            let is_past_limit = self.limit != 0 && index >= self.limit;
            if is_past_limit {
                self.out.push_str("...\n")
            } else {
                self.contents(element)
            }
            self.depth -= 1;
            if is_past_limit {
                break;
            }
        }
        if n > 0 {
            self.indent();
        }
        self.out.push_str("]\n");
    }
}

/// A type as a tree.
pub fn type_tree(kind: &StructureType) -> String {
    let mut out = String::new();
    type_node(kind, 0, "", 0, &mut out);
    out
}

fn type_node(kind: &StructureType, bit: usize, name: &str, depth: usize, out: &mut String) {
    let node = &kind.nodes()[bit];
    let named = if name.is_empty() { String::new() } else { format!(" {name}") };
    put!(out, "{}{}", type_word(kind, bit), quoted_id(&node.kind));
    let members: Vec<(&StructureType, usize, String)> = match &node.kind {
        NodeKind::Structure { .. } => {
            kind.members(bit).map(|member| (kind, member, kind.nodes()[member].name.to_string())).collect()
        }
        NodeKind::StructureArray(element) => {
            let member = |member: usize| (&**element, member, element.nodes()[member].name.to_string());
            element.members(0).map(member).collect()
        }
        NodeKind::Union(union) | NodeKind::UnionArray(union) => union_members(union),
        _ => {
            put!(out, "{named}\n");
            return;
        }
    };
    out.push_str(" {");
    for (index, (kind, bit, name)) in members.iter().enumerate() {
        put!(out, "{}{:2$}", if index == 0 { "\n" } else { "" }, "", (depth + 1) * INDENT);
        type_node(kind, *bit, name, depth + 1, out);
    }
    if !members.is_empty() {
        put!(out, "{:1$}", "", depth * INDENT);
    }
    put!(out, "}}{named}\n");
}

fn union_members(union: &UnionType) -> Vec<(&StructureType, usize, String)> {
    union.members.iter().map(|member| (&*member.kind, 0, member.name.to_string())).collect()
}

/// The name of a type's own, in quotes; those of the elements of arrays are not printed.
fn quoted_id(kind: &NodeKind) -> String {
    let id = match kind {
        NodeKind::Structure { id } => id.to_str().into_owned(),
        NodeKind::Union(union) => union.id.to_str().into_owned(),
        _ => String::new(),
    };
    if id.is_empty() { id } else { format!(" \"{id}\"") }
}

/// The name of a node's kind, such as `int32_t[]` or `struct`.
pub fn type_word(kind: &StructureType, bit: usize) -> String {
    match &kind.nodes()[bit].kind {
        NodeKind::Structure { .. } => "struct".to_owned(),
        NodeKind::Scalar(kind) => scalar_word(*kind).to_owned(),
        NodeKind::BoundedText(_) => "string".to_owned(),
        NodeKind::Array { kind, .. } => format!("{}[]", scalar_word(*kind)),
        NodeKind::StructureArray(_) => "struct[]".to_owned(),
        NodeKind::Union(_) => "union".to_owned(),
        NodeKind::UnionArray(_) => "union[]".to_owned(),
        NodeKind::Any => "any".to_owned(),
        NodeKind::AnyArray => "any[]".to_owned(),
    }
}

const fn scalar_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "bool",
        Kind::I8 => "int8_t",
        Kind::I16 => "int16_t",
        Kind::I32 => "int32_t",
        Kind::I64 => "int64_t",
        Kind::U8 => "uint8_t",
        Kind::U16 | Kind::Enum => "uint16_t",
        Kind::U32 => "uint32_t",
        Kind::U64 => "uint64_t",
        Kind::F32 => "float",
        Kind::F64 => "double",
        Kind::Text => "string",
    }
}

fn value_text(value: &Value, limit: usize) -> String {
    match value {
        Value::Scalar(Scalar::Bool(is_true)) => is_true.to_string(),
        Value::Scalar(element) => scalar(element),
        Value::Array(elements) => array(elements, limit),
    }
}

fn scalar(element: &Scalar) -> String {
    match element {
        Scalar::Text(text) => format!("\"{}\"", escaped(text.as_bytes(), EscapeStyle::Pvxs)),
        Scalar::F64(number) => printf::short(*number),
        Scalar::F32(number) => printf::short(f64::from(*number)),
        Scalar::Bool(is_true) => u8::from(*is_true).to_string(),
        other => other.to_text(None).to_str().into_owned(),
    }
}

fn array(elements: &Array, limit: usize) -> String {
    let n = elements.len();
    let n_shown = if limit == 0 { n } else { n.min(limit) };
    let mut shown: Vec<String> =
        (0..n_shown).filter_map(|index| elements.scalar(index)).map(|element| scalar(&element)).collect();
    if n_shown < n {
        shown.push("...".to_owned());
    }
    format!("{{{n}}}[{}]", shown.join(", "))
}
