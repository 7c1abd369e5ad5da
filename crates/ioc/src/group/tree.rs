//! The type of a group, built from the types of its members.

use fodo_data::{NodeKind, StructureBuilder, StructureType, Text};
use fodo_db::PathStep;

/// A type that can be extended.
#[derive(Clone, Debug, PartialEq)]
pub enum TypeTree {
    Leaf(NodeKind),
    Structure(Members),
    /// A structure array; the members are those of its elements.
    Elements(Members),
}

/// The members of a structure, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members {
    id: Text,
    members: Vec<(Text, TypeTree)>,
}

impl TypeTree {
    /// The type of one node with its descendants.
    pub fn of(kind: &StructureType, bit: usize) -> TypeTree {
        match &kind.nodes()[bit].kind {
            NodeKind::Structure { id } => {
                let members = kind.members(bit).map(|bit| (kind.nodes()[bit].name.clone(), TypeTree::of(kind, bit)));
                TypeTree::Structure(Members { id: id.clone(), members: members.collect() })
            }
            other => TypeTree::Leaf(other.clone()),
        }
    }

    /// A structure, or an array of them, with this name of its type.
    pub fn container(is_array: bool, members: Members) -> TypeTree {
        if is_array { TypeTree::Elements(members) } else { TypeTree::Structure(members) }
    }

    fn what(&self) -> &'static str {
        match self {
            TypeTree::Leaf(_) => "a value",
            TypeTree::Structure(_) => "a structure",
            TypeTree::Elements(_) => "a structure array",
        }
    }

    /// Extends this type, which is called `name`, by another one. The error says how they differ.
    fn merge(&mut self, name: &Text, other: TypeTree) -> Result<(), String> {
        match (self, other) {
            (TypeTree::Structure(own), TypeTree::Structure(more))
            | (TypeTree::Elements(own), TypeTree::Elements(more)) => own.extend(more),
            (TypeTree::Leaf(own), TypeTree::Leaf(other)) if *own == other => Ok(()),
            (TypeTree::Leaf(_), TypeTree::Leaf(_)) => Err(format!("\"{name}\" has another type in another member")),
            (own, other) => Err(format!("\"{name}\" is {} here, and {} in another member", other.what(), own.what())),
        }
    }
}

impl Members {
    /// A structure without members, with this name of its type.
    pub fn new(id: impl Into<Text>) -> Members {
        Members { id: id.into(), members: Vec::new() }
    }

    /// Adds a tree at a path. The structures on the way are created if they do not exist.
    pub fn add(&mut self, path: &[PathStep], leaf: TypeTree) -> Result<(), String> {
        let Some((last, before)) = path.split_last() else {
            return match leaf {
                TypeTree::Structure(members) => self.extend(members),
                other => Err(format!("is {}, which the group itself cannot be", other.what())),
            };
        };
        let mut name: Text = last.name.as_str().into();
        let mut node = leaf;
        for PathStep { name: outer, index } in before.iter().rev() {
            let members = Members { id: Text::EMPTY, members: vec![(name, node)] };
            node = TypeTree::container(index.is_some(), members);
            name = outer.as_str().into();
        }
        self.put(name, node)
    }

    fn extend(&mut self, more: Members) -> Result<(), String> {
        if !more.id.is_empty() {
            self.id = more.id;
        }
        more.members.into_iter().try_for_each(|(name, node)| self.put(name, node))
    }

    fn put(&mut self, name: Text, node: TypeTree) -> Result<(), String> {
        match self.members.iter_mut().find(|(own, _)| *own == name) {
            Some((_, own)) => own.merge(&name, node),
            None => {
                self.members.push((name, node));
                Ok(())
            }
        }
    }

    /// The finished type.
    pub fn finish(&self) -> StructureType {
        let mut build = StructureBuilder::new(self.id.clone());
        self.add_to(&mut build);
        build.finish()
    }

    fn add_to(&self, build: &mut StructureBuilder) {
        for (name, node) in &self.members {
            match node {
                TypeTree::Leaf(kind) => {
                    build.leaf(name.clone(), kind.clone());
                }
                TypeTree::Structure(members) => {
                    build.open(name.clone(), members.id.clone());
                    members.add_to(build);
                    build.close();
                }
                TypeTree::Elements(members) => {
                    build.leaf(name.clone(), NodeKind::StructureArray(members.finish().into()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fodo_data::Kind;

    use super::*;

    fn path(text: &str) -> Vec<PathStep> {
        let step = |step: &str| match step.split_once('[') {
            Some((name, index)) => PathStep { name: name.into(), index: index.trim_end_matches(']').parse().ok() },
            None => PathStep { name: step.into(), index: None },
        };
        text.split('.').filter(|text| !text.is_empty()).map(step).collect()
    }

    fn number() -> TypeTree {
        TypeTree::Leaf(NodeKind::Scalar(Kind::F64))
    }

    #[test]
    fn members_of_one_structure_come_together_in_the_order_of_their_definition() {
        let mut group = Members::new("group_t");

        for (text, node) in [
            ("b.x", number()),
            ("a", number()),
            ("b", TypeTree::Structure(Members::new("b_t"))),
            ("b.y", number()),
            ("c[1].z", number()),
            ("c[0]", TypeTree::Elements(Members::new("c_t"))),
        ] {
            group.add(&path(text), node).unwrap();
        }

        assert_eq!(group.finish().to_string(), "group_t {b_t {F64 x, F64 y} b, F64 a, c_t {F64 z}[] c}");
    }

    #[test]
    fn members_that_exclude_each_other_are_refused() {
        for (first, second, node, expected) in [
            ("a", "a.b", number(), "\"a\" is a structure here, and a value in another member"),
            ("a.b", "a", number(), "\"a\" is a value here, and a structure in another member"),
            ("a[0].b", "a.c", number(), "\"a\" is a structure here, and a structure array in another member"),
            ("a.b", "a.b", TypeTree::Leaf(NodeKind::Any), "\"b\" has another type in another member"),
        ] {
            let mut group = Members::default();
            group.add(&path(first), number()).unwrap();

            assert_eq!(group.add(&path(second), node), Err(expected.to_owned()));
        }
    }
}
