//! What Java sends.

use std::sync::Arc;

use fodo_net::{
    Array, ArraySize, Kind, NodeKind, NodeValue, Scalar, Structure, StructureBuilder, Text, UnionMember, UnionType,
    UnionValue, Value,
};

use super::{KINDS, for_packed_kinds, tag};
use crate::error::JavaFailure;
use crate::handle::{self, MemoryBlock};
use crate::limit;

/// The input of a call is invalid, and why.
#[derive(Debug)]
pub struct InvalidInput(String);

impl InvalidInput {
    pub fn new(reason: &str) -> InvalidInput {
        InvalidInput(reason.to_owned())
    }
}

impl From<InvalidInput> for JavaFailure {
    fn from(InvalidInput(reason): InvalidInput) -> JavaFailure {
        JavaFailure::misuse("", reason)
    }
}

/// The input of a call that has not been read.
pub struct InputReader<'a> {
    bytes: &'a [u8],
}

/// A value with its type, which a structure around it needs.
struct TypedNode {
    kind: NodeKind,
    value: NodeValue,
}

impl<'a> InputReader<'a> {
    pub fn new(bytes: &'a [u8]) -> InputReader<'a> {
        InputReader { bytes }
    }

    fn part<const N: usize>(&mut self) -> Result<[u8; N], InvalidInput> {
        let (part, rest) =
            self.bytes.split_first_chunk().ok_or_else(|| InvalidInput::new("the input of the call is too short"))?;
        self.bytes = rest;
        Ok(*part)
    }

    fn slice(&mut self, n: usize) -> Result<&'a [u8], InvalidInput> {
        let (part, rest) =
            self.bytes.split_at_checked(n).ok_or_else(|| InvalidInput::new("the input of the call is too short"))?;
        self.bytes = rest;
        Ok(part)
    }

    pub fn u8(&mut self) -> Result<u8, InvalidInput> {
        self.part().map(u8::from_ne_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, InvalidInput> {
        self.part().map(u16::from_ne_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, InvalidInput> {
        self.part().map(u32::from_ne_bytes)
    }

    pub fn i32(&mut self) -> Result<i32, InvalidInput> {
        self.part().map(i32::from_ne_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, InvalidInput> {
        self.part().map(i64::from_ne_bytes)
    }

    pub fn f64(&mut self) -> Result<f64, InvalidInput> {
        self.part().map(f64::from_ne_bytes)
    }

    /// A number of items that have at least this many bytes each.
    pub fn count(&mut self, bytes_min: usize) -> Result<usize, InvalidInput> {
        let count = self.u32()? as usize;
        match count.checked_mul(bytes_min).is_some_and(|n_bytes| n_bytes <= self.bytes.len()) {
            true => Ok(count),
            false => Err(InvalidInput::new("the input of the call has fewer items than it says")),
        }
    }

    pub fn text(&mut self) -> Result<String, InvalidInput> {
        let n = self.count(1)?;
        let text = std::str::from_utf8(self.slice(n)?).map_err(|_| InvalidInput::new("a text is not UTF-8"))?;
        match text.contains('\0') {
            true => Err(InvalidInput::new("a text cannot contain NUL")),
            false => Ok(text.to_owned()),
        }
    }

    /// A kind, or `None` for the PV's own.
    pub fn kind_or_native(&mut self) -> Result<Option<Kind>, InvalidInput> {
        match self.u8()? {
            255 => Ok(None),
            code => kind_of(code).map(Some),
        }
    }

    /// A scalar or an array.
    pub fn value(&mut self) -> Result<Value, InvalidInput> {
        match self.node()? {
            NodeValue::Value(value) => Ok(value),
            _ => Err(InvalidInput::new("the value must be a number, a text, or an array of these")),
        }
    }

    /// A value that is not empty.
    pub fn node(&mut self) -> Result<NodeValue, InvalidInput> {
        Ok(self.optional_node()?.unwrap_or(NodeValue::Any(None)))
    }

    /// A value; `None` if it is empty.
    pub fn optional_node(&mut self) -> Result<Option<NodeValue>, InvalidInput> {
        Ok(self.typed(0)?.map(|TypedNode { kind, value }| match (kind, value) {
            // Without a type to follow, a structure is contents of any type, which the client converts to what the PV has.
            (_, NodeValue::Any(Some(contents))) if !contents.kind().is_structure() => {
                contents.node(0).cloned().unwrap_or(NodeValue::Any(None))
            }
            (_, value) => value,
        }))
    }

    /// A structure.
    pub fn structure(&mut self) -> Result<Structure, InvalidInput> {
        match self.typed(0)? {
            Some(TypedNode { kind: NodeKind::Structure { .. }, value: NodeValue::Any(Some(structure)) }) => {
                Ok(*structure)
            }
            _ => Err(InvalidInput::new("the argument must be a structure")),
        }
    }

    /// A value with its type. A structure is the contents of a variant union here.
    fn typed(&mut self, depth: usize) -> Result<Option<TypedNode>, InvalidInput> {
        if depth > limit::VALUE_DEPTH_MAX {
            return Err(InvalidInput::new("the value has too many structures within each other"));
        }
        let leaf = |kind, value| Ok(Some(TypedNode { kind, value }));
        match self.u8()? {
            tag::EMPTY => Ok(None),
            tag::SCALAR => {
                let scalar = self.scalar()?;
                leaf(NodeKind::Scalar(scalar.kind()), NodeValue::Value(Value::Scalar(scalar)))
            }
            tag::ARRAY => self.array().map(array_node),
            tag::BLOCK_ARRAY => self.block_array().map(array_node),
            tag::STRUCTURE => {
                let structure = self.members(depth)?;
                let kind = NodeKind::Structure { id: structure.kind().id().clone() };
                leaf(kind, NodeValue::Any(Some(Box::new(structure))))
            }
            tag::STRUCTURE_ARRAY => {
                self.text()?;
                let elements = self.parts(depth)?;
                let kind = elements.iter().flatten().next().map(|first| first.kind().clone());
                let Some(kind) = kind else { return leaf(NodeKind::AnyArray, NodeValue::Anys(Arc::new(elements))) };
                if elements.iter().flatten().any(|element| *element.kind() != kind) {
                    return leaf(NodeKind::AnyArray, NodeValue::Anys(Arc::new(elements)));
                }
                leaf(NodeKind::StructureArray(kind), NodeValue::Structures(Arc::new(elements)))
            }
            tag::UNION => match self.union(depth)? {
                Some((kind, value)) => leaf(NodeKind::Union(kind), NodeValue::Union(Some(Box::new(value)))),
                None => leaf(NodeKind::Any, NodeValue::Any(None)),
            },
            tag::UNION_ARRAY => {
                let n = self.count(10)?;
                let mut elements = Vec::with_capacity(n);
                for _ in 0..n {
                    self.u8()?;
                    elements.push(self.union(depth)?.map(|(_, union)| union.value));
                }
                leaf(NodeKind::AnyArray, NodeValue::Anys(Arc::new(elements)))
            }
            tag::ANY => {
                let contents = self.typed(depth + 1)?.map(single).transpose()?;
                leaf(NodeKind::Any, NodeValue::Any(contents.map(Box::new)))
            }
            tag::ANY_ARRAY => {
                let elements = self.parts(depth)?;
                leaf(NodeKind::AnyArray, NodeValue::Anys(Arc::new(elements)))
            }
            other => Err(InvalidInput(format!("the input of the call has the tag {other} instead of a value"))),
        }
    }

    /// Elements of any type.
    fn parts(&mut self, depth: usize) -> Result<Vec<Option<Structure>>, InvalidInput> {
        let n = self.count(1)?;
        (0..n).map(|_| self.typed(depth + 1)?.map(single).transpose()).collect()
    }

    /// The selected member of a union, of which only that member is known.
    fn union(&mut self, depth: usize) -> Result<Option<(Arc<UnionType>, UnionValue)>, InvalidInput> {
        let selector = self.i32()?;
        let name = self.text()?;
        let value = self.typed(depth + 1)?.map(single).transpose()?;
        let (Some(value), true) = (value, selector >= 0) else { return Ok(None) };
        let member = UnionMember { name: name.into(), kind: value.kind().clone() };
        Ok(Some((Arc::new(UnionType { id: Text::EMPTY, members: vec![member] }), UnionValue { selector: 0, value })))
    }

    /// The body of a structure; the marked members are marked as changed.
    fn members(&mut self, depth: usize) -> Result<Structure, InvalidInput> {
        let mut build = StructureBuilder::new(self.text()?);
        let n = self.count(6)?;
        let mut leaves = Vec::with_capacity(n);
        for _ in 0..n {
            let name = self.text()?;
            self.u8()?;
            let start = build.n_nodes();
            match self.typed(depth + 1)? {
                None => drop(build.leaf(name, NodeKind::Any)),
                Some(TypedNode { kind: NodeKind::Structure { .. }, value: NodeValue::Any(Some(inner)) }) => {
                    build.member(name, inner.kind());
                    for bit in 0..inner.kind().nodes().len() {
                        match inner.node(bit) {
                            None | Some(NodeValue::Structure) => {}
                            Some(value) => leaves.push((start + bit, value.clone())),
                        }
                    }
                }
                Some(TypedNode { kind, value }) => {
                    build.leaf(name, kind);
                    leaves.push((start, value));
                }
            }
        }
        let mut structure = Structure::new(Arc::new(build.close().finish()));
        for (bit, value) in leaves {
            structure.set_node(bit, value).map_err(|error| InvalidInput(error.to_string()))?;
            structure.mark(bit);
        }
        Ok(structure)
    }

    fn scalar(&mut self) -> Result<Scalar, InvalidInput> {
        let kind = kind_of(self.u8()?)?;
        macro_rules! payload {
            ($($name:ident $rust:ty),*) => {
                match kind {
                    Kind::Bool => Scalar::Bool(self.u8()? != 0),
                    Kind::Text => Scalar::Text(self.text()?.into()),
                    $(Kind::$name => Scalar::$name(self.part().map(<$rust>::from_ne_bytes)?),)*
                }
            };
        }
        Ok(for_packed_kinds!(payload))
    }

    fn array(&mut self) -> Result<Array, InvalidInput> {
        let kind = kind_of(self.u8()?)?;
        let n = self.count(kind.n_bytes().unwrap_or(4))?;
        match kind {
            Kind::Text => {
                let texts: Vec<Text> = (0..n).map(|_| Ok(self.text()?.into())).collect::<Result<_, InvalidInput>>()?;
                Ok(Array::Text(Arc::new(texts)))
            }
            kind => Ok(elements(kind, self.slice(n * kind.n_bytes().unwrap_or(1))?)),
        }
    }

    /// An array in a block, which is freed.
    fn block_array(&mut self) -> Result<Array, InvalidInput> {
        let kind = kind_of(self.u8()?)?;
        let (count, _, owner) = (self.i64()?, self.i64()?, self.i64()?);
        let block: Arc<MemoryBlock> = handle::take_block(owner).map_err(|failure| InvalidInput(failure.reason))?;
        let n_bytes = usize::try_from(count).ok().zip(kind.n_bytes()).and_then(|(n, size)| n.checked_mul(size));
        match n_bytes {
            Some(n_bytes) if n_bytes <= block.len() => Ok(block_elements(kind, block, n_bytes)),
            _ => Err(InvalidInput::new("an array does not fit into its block of memory")),
        }
    }
}

fn kind_of(code: u8) -> Result<Kind, InvalidInput> {
    KINDS.get(usize::from(code)).copied().ok_or_else(|| InvalidInput(format!("there is no kind {code}")))
}

fn array_node(array: Array) -> Option<TypedNode> {
    let kind = NodeKind::Array { kind: array.kind(), size: ArraySize::Variable };
    Some(TypedNode { kind, value: NodeValue::Value(Value::Array(array)) })
}

/// A value as contents of a variant union.
fn single(node: TypedNode) -> Result<Structure, InvalidInput> {
    match node.value {
        NodeValue::Any(Some(contents)) => Ok(*contents),
        NodeValue::Value(value) => Ok(Structure::single(value)),
        value => {
            let mut structure = Structure::new(Arc::new(fodo_net::StructureType::single(node.kind)));
            structure.set_node(0, value).map_err(|error| InvalidInput(error.to_string()))?;
            Ok(structure)
        }
    }
}

/// Packed elements.
fn elements(kind: Kind, bytes: &[u8]) -> Array {
    macro_rules! packed {
        ($($name:ident $rust:ty),*) => {
            match kind {
                Kind::Bool => Array::Bool(Arc::new(bytes.iter().map(|byte| *byte != 0).collect())),
                Kind::Text => Array::empty(Kind::Text),
                $(Kind::$name => {
                    let (chunks, _) = bytes.as_chunks();
                    Array::$name(Arc::new(chunks.iter().map(|chunk| <$rust>::from_ne_bytes(*chunk)).collect()))
                })*
            }
        };
    }
    for_packed_kinds!(packed)
}

/// Packed elements in a block. Numbers of 64 bits keep its memory.
fn block_elements(kind: Kind, block: Arc<MemoryBlock>, n_bytes: usize) -> Array {
    let words = |block| MemoryBlock::into_words(block, n_bytes);
    match kind {
        Kind::F64 => Array::F64(Arc::new(words(block).into_iter().map(f64::from_bits).collect())),
        Kind::I64 => Array::I64(Arc::new(words(block).into_iter().map(u64::cast_signed).collect())),
        Kind::U64 => Array::U64(Arc::new(words(block))),
        kind => elements(kind, block.bytes(n_bytes)),
    }
}
