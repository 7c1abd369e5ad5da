use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{BitSet, Kind, Text};

/// The type of a structure: its nodes in depth-first order, so that the index of a node is its bit.
///
/// Node 0 is the whole structure. The types of union members and of variant unions may also be a single node that is
/// not a structure.
///
/// ```
/// use fodo_data::{Kind, NodeKind, StructureBuilder, StructureType};
///
/// let mut build = StructureBuilder::new("motor_t");
/// build.scalar("position", Kind::F64).open("alarm", "alarm_t").scalar("severity", Kind::I32).close();
/// let motor = build.finish();
///
/// assert_eq!(motor.to_string(), "motor_t {F64 position, alarm_t {I32 severity} alarm}");
/// assert_eq!(motor.node("alarm.severity"), Some(3));
/// assert_eq!(motor.path(3), "alarm.severity");
/// assert_eq!((motor.id().to_str().as_ref(), motor.nodes().len()), ("motor_t", 4));
/// assert!(motor.members(0).eq([1, 2]));
/// assert_eq!(motor.member(2, b"severity"), Some(3));
///
/// // The bit of a structure covers its members.
/// let alarm = [2].into_iter().collect();
/// assert!(motor.covered(&alarm).eq([2..4]));
/// assert!(motor.leaves(&alarm).iter().eq([3]));
/// assert_eq!(motor.subtree(2).to_string(), "alarm_t {I32 severity}");
///
/// let number = StructureType::single(NodeKind::Scalar(Kind::F64));
/// assert!(motor.is_structure() && !number.is_structure());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StructureType {
    nodes: Vec<Node>,
}

/// One node of a type. [`StructureType`] has an example.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The name within its structure; empty for node 0.
    pub name: Text,
    /// What the node holds.
    pub kind: NodeKind,
    /// The index after its last descendant.
    pub end: u32,
}

/// What a node holds. [`StructureType::single`] makes a type of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// Members, which are the nodes up to its end.
    Structure {
        /// The name of the structure's type; often empty.
        id: Text,
    },
    /// One element.
    Scalar(Kind),
    /// A text with a maximum length in bytes.
    BoundedText(u32),
    /// Elements of one kind.
    Array {
        /// The kind of every element.
        kind: Kind,
        /// How many elements there may be.
        size: ArraySize,
    },
    /// Structures of one type; each of them may be missing.
    StructureArray(Arc<StructureType>),
    /// One of several members, or none.
    Union(Arc<UnionType>),
    /// Unions of one type; each of them may be missing.
    UnionArray(Arc<UnionType>),
    /// A value of any type, which comes with the value, or none.
    Any,
    /// Values of any type.
    AnyArray,
}

/// How many elements an array may have.
///
/// ```
/// use fodo_data::{ArraySize, Kind, NodeKind, StructureType};
///
/// let corners = StructureType::single(NodeKind::Array { kind: Kind::F64, size: ArraySize::Fixed(4) });
/// assert_eq!(corners.to_string(), "F64[4]");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArraySize {
    /// Any number.
    Variable,
    /// At most this number.
    Max(u32),
    /// Exactly this number.
    Fixed(u32),
}

/// The type of a union.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_data::{Kind, NodeKind, StructureType, UnionMember, UnionType};
///
/// let member = |name: &str, kind| UnionMember {
///     name: name.into(),
///     kind: Arc::new(StructureType::single(NodeKind::Scalar(kind))),
/// };
/// let kind = UnionType { id: "".into(), members: vec![member("number", Kind::F64), member("text", Kind::Text)] };
/// assert_eq!(kind.to_string(), "union {F64 number, Text text}");
/// assert_eq!(kind.member(1).map(|member| member.to_string()), Some("Text".into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnionType {
    /// The name of the type; often empty.
    pub id: Text,
    /// The members, selected by their index.
    pub members: Vec<UnionMember>,
}

/// A member of a union. [`UnionType`] has an example.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnionMember {
    /// Its name.
    pub name: Text,
    /// Its type; node 0 may be of any kind.
    pub kind: Arc<StructureType>,
}

impl StructureType {
    /// A type of a single node that is not a structure, or an empty structure.
    pub fn single(kind: NodeKind) -> StructureType {
        StructureType { nodes: vec![Node { name: Text::EMPTY, kind, end: 1 }] }
    }

    /// The nodes; at least one.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The name of the type; empty if node 0 is not a structure.
    pub fn id(&self) -> &Text {
        match &self.nodes[0].kind {
            NodeKind::Structure { id } => id,
            _ => &Text::EMPTY,
        }
    }

    /// Whether node 0 is a structure.
    pub fn is_structure(&self) -> bool {
        matches!(self.nodes[0].kind, NodeKind::Structure { .. })
    }

    /// The bit of a node by its path, such as `alarm.severity`; the empty path is the whole structure.
    pub fn node(&self, path: &str) -> Option<usize> {
        if path.is_empty() {
            return Some(0);
        }
        let member = |bit, name: &str| self.member(bit, name.as_bytes());
        path.split('.').try_fold(0, member)
    }

    /// The bit of a member of the node `bit`.
    pub fn member(&self, bit: usize, name: &[u8]) -> Option<usize> {
        self.members(bit).find(|&member| self.nodes[member].name.as_bytes() == name)
    }

    /// The bits of the members of the node `bit`.
    pub fn members(&self, bit: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.end(bit);
        let mut next = bit + 1;
        std::iter::from_fn(move || {
            let member = (next < end).then_some(next)?;
            next = self.end(member);
            Some(member)
        })
    }

    /// The path of a node, for messages.
    pub fn path(&self, bit: usize) -> String {
        let (mut at, mut path) = (0, String::new());
        while let Some(next) = self.members(at).find(|&member| (member..self.end(member)).contains(&bit)) {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&self.nodes[next].name.to_str());
            at = next;
        }
        path
    }

    /// The nodes that a set of bits covers, as ranges in ascending order: a node's bit covers its descendants too.
    pub fn covered<'a>(&'a self, bits: &'a BitSet) -> impl Iterator<Item = Range<usize>> + 'a {
        let mut next = 0;
        std::iter::from_fn(move || {
            let bit = bits.next_from(next).filter(|&bit| bit < self.nodes.len())?;
            next = self.end(bit);
            Some(bit..next)
        })
    }

    /// The nodes below `bits` that have a value of their own, and not only members.
    pub fn leaves(&self, bits: &BitSet) -> BitSet {
        let is_leaf = |bit: &usize| !matches!(self.nodes[*bit].kind, NodeKind::Structure { .. });
        self.covered(bits).flatten().filter(is_leaf).collect()
    }

    /// The type of one node with its descendants.
    pub fn subtree(&self, bit: usize) -> StructureType {
        let mut nodes: Vec<Node> = self.nodes[bit..self.end(bit)].to_vec();
        nodes.iter_mut().for_each(|node| node.end -= bit as u32);
        nodes[0].name = Text::EMPTY;
        StructureType { nodes }
    }

    fn end(&self, bit: usize) -> usize {
        self.nodes[bit].end as usize
    }
}

impl UnionType {
    /// The type of a member by its index.
    pub fn member(&self, selector: u32) -> Option<&Arc<StructureType>> {
        self.members.get(selector as usize).map(|member| &member.kind)
    }
}

impl fmt::Display for StructureType {
    /// The type on one line, for example `epics:nt/NTScalar:1.0 {F64 value, alarm_t {..} alarm}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_node(0, f)
    }
}

impl StructureType {
    fn fmt_node(&self, bit: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = &self.nodes[bit];
        match &node.kind {
            NodeKind::Structure { id } => {
                write!(f, "{id}{}{{", if id.is_empty() { "" } else { " " })?;
                for (index, member) in self.members(bit).enumerate() {
                    f.write_str(if index == 0 { "" } else { ", " })?;
                    self.fmt_node(member, f)?;
                }
                f.write_str("}")?;
            }
            NodeKind::Scalar(kind) => write!(f, "{kind:?}")?,
            NodeKind::BoundedText(max) => write!(f, "Text({max})")?,
            NodeKind::Array { kind, size: ArraySize::Variable } => write!(f, "{kind:?}[]")?,
            NodeKind::Array { kind, size: ArraySize::Max(max) } => write!(f, "{kind:?}[..{max}]")?,
            NodeKind::Array { kind, size: ArraySize::Fixed(n) } => write!(f, "{kind:?}[{n}]")?,
            NodeKind::StructureArray(kind) => write!(f, "{kind}[]")?,
            NodeKind::Union(kind) => write!(f, "{kind}")?,
            NodeKind::UnionArray(kind) => write!(f, "{kind}[]")?,
            NodeKind::Any => f.write_str("any")?,
            NodeKind::AnyArray => f.write_str("any[]")?,
        }
        if node.name.is_empty() { Ok(()) } else { write!(f, " {}", node.name) }
    }
}

impl fmt::Display for UnionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "union {}{}{{", self.id, if self.id.is_empty() { "" } else { " " })?;
        for (index, member) in self.members.iter().enumerate() {
            write!(f, "{}{} {}", if index == 0 { "" } else { ", " }, member.kind, member.name)?;
        }
        f.write_str("}")
    }
}

/// Builds a type node by node.
///
/// ```
/// use fodo_data::{Kind, NodeKind, StructureBuilder};
///
/// let mut build = StructureBuilder::new("table_t");
/// build.array("labels", Kind::Text).leaf("extra", NodeKind::Any);
/// build.open("size", "").scalar("rows", Kind::I32).close();
/// let size = build.from_node(3).expect("the node exists");
/// assert_eq!((build.n_nodes(), size.to_string()), (5, "{I32 rows}".to_string()));
/// assert_eq!(build.finish().to_string(), "table_t {Text[] labels, any extra, {I32 rows} size}");
///
/// let mut build = StructureBuilder::empty();
/// build.open("", "pair_t").member("first", &size).member("second", &size);
/// assert_eq!(build.finish().to_string(), "pair_t {{I32 rows} first, {I32 rows} second}");
/// ```
#[derive(Debug)]
pub struct StructureBuilder {
    nodes: Vec<Node>,
    /// The structures that are not complete, the innermost last.
    open: Vec<usize>,
}

impl StructureBuilder {
    /// Starts a structure with this type name.
    pub fn new(id: impl Into<Text>) -> StructureBuilder {
        let mut builder = StructureBuilder::empty();
        builder.open(Text::EMPTY, id);
        builder
    }

    /// Starts a type without any node; the first node that is added is node 0.
    pub fn empty() -> StructureBuilder {
        StructureBuilder { nodes: Vec::new(), open: Vec::new() }
    }

    /// The number of nodes so far.
    pub fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a node without members.
    pub fn leaf(&mut self, name: impl Into<Text>, kind: NodeKind) -> &mut StructureBuilder {
        let end = self.nodes.len() as u32 + 1;
        self.nodes.push(Node { name: name.into(), kind, end });
        self
    }

    /// Adds one element.
    pub fn scalar(&mut self, name: &str, kind: Kind) -> &mut StructureBuilder {
        self.leaf(name, NodeKind::Scalar(kind))
    }

    /// Adds an array of any size.
    pub fn array(&mut self, name: &str, kind: Kind) -> &mut StructureBuilder {
        self.leaf(name, NodeKind::Array { kind, size: ArraySize::Variable })
    }

    /// Starts a member that is a structure; what follows are its members, until [`StructureBuilder::close`].
    pub fn open(&mut self, name: impl Into<Text>, id: impl Into<Text>) -> &mut StructureBuilder {
        self.open.push(self.nodes.len());
        self.leaf(name, NodeKind::Structure { id: id.into() })
    }

    /// Ends the innermost structure.
    pub fn close(&mut self) -> &mut StructureBuilder {
        if let Some(start) = self.open.pop() {
            self.nodes[start].end = self.nodes.len() as u32;
        }
        self
    }

    /// Adds a member of an existing type.
    pub fn member(&mut self, name: impl Into<Text>, kind: &StructureType) -> &mut StructureBuilder {
        let start = self.nodes.len();
        self.nodes.extend(kind.nodes.iter().map(|node| Node { end: node.end + start as u32, ..node.clone() }));
        self.nodes[start].name = name.into();
        self
    }

    /// The type of the node `start` and everything added after it, which must be complete.
    pub fn from_node(&self, start: usize) -> Option<StructureType> {
        let mut nodes = self.nodes.get(start..)?.to_vec();
        nodes.iter_mut().for_each(|node| node.end -= start as u32);
        nodes.first_mut()?.name = Text::EMPTY;
        Some(StructureType { nodes })
    }

    /// Ends every structure; an empty structure if no node was added.
    pub fn finish(&mut self) -> StructureType {
        while !self.open.is_empty() {
            self.close();
        }
        let nodes = std::mem::take(&mut self.nodes);
        if nodes.is_empty() {
            StructureType::single(NodeKind::Structure { id: Text::EMPTY })
        } else {
            StructureType { nodes }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarmed() -> StructureType {
        let mut build = StructureBuilder::new("top_t");
        build.scalar("value", Kind::F64).open("alarm", "alarm_t");
        build.scalar("severity", Kind::I32).scalar("message", Kind::Text).close();
        build.array("rest", Kind::U8);
        build.finish()
    }

    #[test]
    fn a_node_is_found_by_its_path_and_has_its_bit_in_depth_first_order() {
        let kind = alarmed();

        let paths = ["", "value", "alarm", "alarm.severity", "alarm.message", "rest"];
        for (bit, path) in paths.iter().enumerate() {
            assert_eq!(kind.node(path), Some(bit), "{path}");
            assert_eq!(kind.path(bit), *path);
        }
        for missing in ["alarm.", "value.severity", "severity", ".", "alarm.severity.x"] {
            assert_eq!(kind.node(missing), None, "{missing}");
        }
        assert!(kind.members(0).eq([1, 2, 5]));
    }

    #[test]
    fn the_bit_of_a_structure_covers_its_members() {
        let kind = alarmed();
        let bits: BitSet = [2, 3, 5, 99].into_iter().collect();

        assert!(kind.covered(&bits).eq([2..5, 5..6]));
        assert!(kind.leaves(&bits).iter().eq([3, 4, 5]));
    }

    #[test]
    fn a_part_of_a_type_can_be_a_type_and_a_member_again() {
        let kind = alarmed();

        let alarm = kind.subtree(2);
        assert_eq!(alarm.to_string(), "alarm_t {I32 severity, Text message}");
        let mut build = StructureBuilder::new("");
        build.member("first", &alarm).member("second", &alarm);
        assert_eq!((build.n_nodes(), build.from_node(4)), (7, Some(alarm.clone())));
        let twice = build.finish();

        assert_eq!(twice.node("second.message"), Some(6));
        assert_eq!(twice.subtree(4), alarm);
        assert_eq!(kind.to_string(), "top_t {F64 value, alarm_t {I32 severity, Text message} alarm, U8[] rest}");
    }
}
