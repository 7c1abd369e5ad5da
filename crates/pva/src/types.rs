//! Type descriptions, and the numbers that replace them once they are known to both ends.

use std::collections::HashMap;
use std::sync::Arc;

use fodo_data::{ArraySize, Kind, Node, NodeKind, StructureBuilder, StructureType, Text, UnionMember, UnionType};

use crate::cursor::{ByteReader, ByteWriter};
use crate::limit;

const NULL: u8 = 0xff;
const ONLY_ID: u8 = 0xfe;
const ID_AND_TYPE: u8 = 0xfd;

const TEXT: u8 = 0x60;
const STRUCTURE: u8 = 0x80;
const UNION: u8 = 0x81;
const ANY: u8 = 0x82;
const BOUNDED_TEXT: u8 = 0x83;
const STRUCTURES: u8 = 0x88;
const UNIONS: u8 = 0x89;
const ANYS: u8 = 0x8a;

/// Bits of a code that make it an array.
const ARRAY_BITS: u8 = 0x18;
const ARRAY_VARIABLE: u8 = 0x08;
const ARRAY_BOUNDED: u8 = 0x10;
const ARRAY_FIXED: u8 = 0x18;

/// The code of each kind of element. States have no type of their own: their indices are unsigned numbers.
const fn code_of(kind: Kind) -> u8 {
    match kind {
        Kind::Bool => 0x00,
        Kind::I8 => 0x20,
        Kind::I16 => 0x21,
        Kind::I32 => 0x22,
        Kind::I64 => 0x23,
        Kind::U8 => 0x24,
        Kind::U16 | Kind::Enum => 0x25,
        Kind::U32 => 0x26,
        Kind::U64 => 0x27,
        Kind::F32 => 0x42,
        Kind::F64 => 0x43,
        Kind::Text => TEXT,
    }
}

const fn kind_of(code: u8) -> Option<Kind> {
    Some(match code {
        0x00 => Kind::Bool,
        0x20 => Kind::I8,
        0x21 => Kind::I16,
        0x22 => Kind::I32,
        0x23 => Kind::I64,
        0x24 => Kind::U8,
        0x25 => Kind::U16,
        0x26 => Kind::U32,
        0x27 => Kind::U64,
        0x42 => Kind::F32,
        0x43 => Kind::F64,
        TEXT => Kind::Text,
        _ => return None,
    })
}

/// The types that the peer sent with an id, one table per circuit. Limited in nodes and in bytes.
#[derive(Debug, Default)]
pub struct TypeCache {
    types: HashMap<u16, StoredType>,
    n_nodes: usize,
    name_bytes: usize,
    /// How many descriptions were decoded.
    n_decoded: u64,
    was_read: bool,
}

#[derive(Debug)]
struct StoredType {
    kind: Arc<StructureType>,
    /// How many levels it has.
    depth: u32,
    /// Which description it is part of.
    number: u64,
}

impl TypeCache {
    /// Creates an empty table.
    pub fn new() -> TypeCache {
        TypeCache::default()
    }

    /// The number of stored types.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether no type is stored.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// Whether the peer has referred by its id alone to a type of an earlier description.
    pub fn was_read(&self) -> bool {
        self.was_read
    }

    /// The memory of the stored types.
    pub fn held_bytes(&self) -> usize {
        self.n_nodes * size_of::<Node>() + self.name_bytes
    }

    /// Stores a type, perhaps in place of another; `false` if there is no memory for it.
    fn insert(&mut self, id: u16, kind: Arc<StructureType>) -> bool {
        let size = size_of_type(&kind);
        let replaced = self.types.get(&id).map_or((0, 0), |stored| size_of_type(&stored.kind));
        let n_nodes = self.n_nodes - replaced.0 + size.0;
        let name_bytes = self.name_bytes - replaced.1 + size.1;
        if n_nodes > limit::CACHED_NODES_MAX || name_bytes > limit::CACHED_NAME_BYTES_MAX {
            return false;
        }
        (self.n_nodes, self.name_bytes) = (n_nodes, name_bytes);
        let depth = depth_of_type(&kind);
        self.types.insert(id, StoredType { kind, depth, number: self.n_decoded });
        true
    }
}

/// The nodes of a type and the bytes of its names, with those of its unions and structure arrays.
pub(crate) fn size_of_type(kind: &StructureType) -> (usize, usize) {
    let (mut n_nodes, mut name_bytes) = (0, 0);
    let mut add = |(n, bytes): (usize, usize)| {
        n_nodes += n;
        name_bytes += bytes;
    };
    for node in kind.nodes() {
        add((1, node.name.len()));
        match &node.kind {
            NodeKind::Structure { id } => add((0, id.len())),
            NodeKind::StructureArray(kind) => add(size_of_type(kind)),
            NodeKind::Union(kind) | NodeKind::UnionArray(kind) => {
                add((1, kind.id.len()));
                for member in &kind.members {
                    add((0, member.name.len()));
                    add(size_of_type(&member.kind));
                }
            }
            _ => {}
        }
    }
    (n_nodes, name_bytes)
}

/// Whether a type has a variant, whose value brings a type of its own.
pub(crate) fn has_variant(kind: &StructureType) -> bool {
    kind.nodes().iter().any(|node| match &node.kind {
        NodeKind::Any | NodeKind::AnyArray => true,
        NodeKind::StructureArray(kind) => has_variant(kind),
        NodeKind::Union(kind) | NodeKind::UnionArray(kind) => {
            kind.members.iter().any(|member| has_variant(&member.kind))
        }
        _ => false,
    })
}

/// The number of levels of a type: 1 for a single node.
fn depth_of_type(kind: &StructureType) -> u32 {
    let (mut open, mut deepest) = (Vec::new(), 0);
    for (bit, node) in kind.nodes().iter().enumerate() {
        open.retain(|end| bit < *end);
        let below = match &node.kind {
            NodeKind::StructureArray(kind) => depth_of_type(kind),
            NodeKind::Union(kind) | NodeKind::UnionArray(kind) => {
                kind.members.iter().map(|member| depth_of_type(&member.kind)).max().unwrap_or(0)
            }
            _ => 0,
        };
        deepest = deepest.max(open.len() as u32 + 1 + below);
        open.push(node.end as usize);
    }
    deepest
}

/// Decodes a type description; `None` if there is none (null), or after a fault. Stores types that come with an id.
pub fn decode(reader: &mut ByteReader, cache: &mut TypeCache) -> Option<Arc<StructureType>> {
    let offset = reader.offset();
    let mut build = StructureBuilder::empty();
    cache.n_decoded += 1;
    match reader.u8() {
        NULL => return None,
        // A stored type need not be copied.
        ONLY_ID => return stored(reader, cache, offset),
        code => node(reader, cache, &mut build, Text::EMPTY, code, offset),
    }
    if reader.has_failed() {
        return None;
    }
    Some(Arc::new(build.finish()))
}

/// The stored type with the id that follows.
fn stored(reader: &mut ByteReader, cache: &mut TypeCache, offset: usize) -> Option<Arc<StructureType>> {
    let id = reader.u16();
    let Some(stored) = cache.types.get(&id) else {
        reader.fail_at(offset, "the id of a type that was sent before");
        return None;
    };
    if reader.depth + stored.depth > limit::DEPTH_MAX {
        reader.fail_at(offset, "types that are nested less deeply");
        return None;
    }
    cache.was_read |= stored.number < cache.n_decoded;
    Some(stored.kind.clone())
}

/// Counts the nodes of a type; `false` and a fault if there are too many.
fn allow_nodes(reader: &mut ByteReader, n_nodes: usize) -> bool {
    match reader.type_nodes_left.checked_sub(n_nodes) {
        Some(left) => {
            reader.type_nodes_left = left;
            true
        }
        None => {
            reader.fail("a type with fewer nodes");
            false
        }
    }
}

/// Decodes what follows a code into a node with its descendants.
fn node(
    reader: &mut ByteReader,
    cache: &mut TypeCache,
    build: &mut StructureBuilder,
    name: Text,
    mut code: u8,
    offset: usize,
) {
    let mut id = None;
    if code == ID_AND_TYPE {
        id = Some(reader.u16());
        code = reader.u8();
        if code >= ID_AND_TYPE {
            return reader.fail_at(offset, "a type after its id");
        }
    }
    if reader.depth >= limit::DEPTH_MAX {
        return reader.fail_at(offset, "types that are nested less deeply");
    }
    if !allow_nodes(reader, 1) {
        return;
    }
    let start = build.n_nodes();
    if code == ONLY_ID {
        if let Some(kind) = stored(reader, cache, offset)
            && allow_nodes(reader, kind.nodes().len())
        {
            build.member(name, &kind);
        }
        return;
    }
    reader.depth += 1;
    match code {
        STRUCTURE => {
            build.open(name, reader.text());
            members(reader, |reader, name| {
                let offset = reader.offset();
                let code = reader.u8();
                node(reader, cache, build, name, code, offset);
            });
            build.close();
        }
        code => {
            if let Some(kind) = leaf(reader, cache, code, offset) {
                build.leaf(name, kind);
            }
        }
    }
    reader.depth -= 1;
    if let Some(id) = id
        && !reader.has_failed()
        && let Some(kind) = build.from_node(start)
        && !cache.insert(id, Arc::new(kind))
    {
        reader.fail_at(offset, "fewer or smaller types with ids");
    }
}

/// Decodes a count and the name of each member; `member` decodes its type.
fn members(reader: &mut ByteReader, mut member: impl FnMut(&mut ByteReader, Text)) {
    // A member takes at least the size of its name and a code.
    for _ in 0..reader.count(2) {
        let name = reader.text();
        member(reader, name);
        if reader.has_failed() {
            return;
        }
    }
}

fn leaf(reader: &mut ByteReader, cache: &mut TypeCache, code: u8, offset: usize) -> Option<NodeKind> {
    let kind = match code {
        UNION => NodeKind::Union(union(reader, cache)),
        ANY => NodeKind::Any,
        BOUNDED_TEXT => NodeKind::BoundedText(bound(reader, u32::MAX)),
        ANYS => NodeKind::AnyArray,
        STRUCTURES => NodeKind::StructureArray(element(reader, cache, |kind| kind.is_structure())?),
        UNIONS => {
            let kind = element(reader, cache, |kind| matches!(kind.nodes()[0].kind, NodeKind::Union(_)))?;
            match &kind.nodes()[0].kind {
                NodeKind::Union(kind) => NodeKind::UnionArray(kind.clone()),
                _ => return None,
            }
        }
        code => match (kind_of(code & !ARRAY_BITS), code & ARRAY_BITS) {
            (Some(kind), 0) => NodeKind::Scalar(kind),
            (Some(kind), bits) => {
                let size = match bits {
                    ARRAY_BOUNDED => ArraySize::Max(bound(reader, u32::MAX)),
                    ARRAY_FIXED => ArraySize::Fixed(bound(reader, limit::FIXED_ELEMENTS_MAX)),
                    _ => ArraySize::Variable,
                };
                NodeKind::Array { kind, size }
            }
            (None, _) => {
                reader.fail_at(offset, "a type code");
                return None;
            }
        },
    };
    (!reader.has_failed()).then_some(kind)
}

/// The maximum or fixed size of an array or text.
fn bound(reader: &mut ByteReader, max: u32) -> u32 {
    let offset = reader.offset();
    match reader.size().and_then(|size| u32::try_from(size).ok()).filter(|size| *size <= max) {
        Some(size) => size,
        None => {
            reader.fail_at(offset, "a smaller size");
            0
        }
    }
}

/// The type of the elements of an array: a complete description.
fn element(
    reader: &mut ByteReader,
    cache: &mut TypeCache,
    is_it: impl Fn(&StructureType) -> bool,
) -> Option<Arc<StructureType>> {
    let offset = reader.offset();
    let kind = decode(reader, cache).filter(|kind| is_it(kind));
    if kind.is_none() {
        reader.fail_at(offset, "the type of the elements");
    }
    kind
}

fn union(reader: &mut ByteReader, cache: &mut TypeCache) -> Arc<UnionType> {
    let mut kind = UnionType { id: reader.text(), members: Vec::new() };
    members(reader, |reader, name| {
        let offset = reader.offset();
        match decode(reader, cache) {
            Some(member) => kind.members.push(UnionMember { name, kind: member }),
            None => reader.fail_at(offset, "the type of a member"),
        }
    });
    Arc::new(kind)
}

/// The types that were sent to one peer with an id, one table per circuit.
#[derive(Debug)]
pub struct TypeIds {
    ids: HashMap<Arc<StructureType>, u16>,
    /// The type that was sent last, with its id: most channels of a circuit have one of a few types, and the hash of a type
    /// visits all of its nodes.
    last: Option<(Arc<StructureType>, u16)>,
    n_max: u16,
}

impl TypeIds {
    /// Creates a table for a peer that stores `registry_size` ids, as it declared when it connected.
    pub fn new(registry_size: u16) -> TypeIds {
        TypeIds { ids: HashMap::new(), last: None, n_max: registry_size.min(limit::SENT_IDS_MAX) }
    }

    /// Changes the number of ids that the peer stores.
    pub fn set_registry_size(&mut self, registry_size: u16) {
        self.n_max = registry_size.min(limit::SENT_IDS_MAX);
    }

    /// Appends the type in full with a new id the first time, and only its id from then on.
    pub fn encode(&mut self, kind: &Arc<StructureType>, to: &mut ByteWriter) {
        let last = self.last.as_ref().filter(|(last, _)| Arc::ptr_eq(last, kind)).map(|(_, id)| *id);
        if let Some(id) = last.or_else(|| self.ids.get(kind).copied()) {
            if last.is_none() {
                self.last = Some((kind.clone(), id));
            }
            to.u8(ONLY_ID);
            return to.u16(id);
        }
        // Other implementations start with 1.
        let id = self.ids.len() as u16 + 1;
        if id <= self.n_max {
            self.ids.insert(kind.clone(), id);
            to.u8(ID_AND_TYPE);
            to.u16(id);
        }
        encode(kind, to);
    }
}

/// Appends a type in full, without an id.
pub fn encode(kind: &StructureType, to: &mut ByteWriter) {
    encode_node(kind, 0, to);
}

/// Appends the description of nothing.
pub fn encode_null(to: &mut ByteWriter) {
    to.u8(NULL);
}

fn encode_node(kind: &StructureType, bit: usize, to: &mut ByteWriter) {
    match &kind.nodes()[bit].kind {
        NodeKind::Structure { id } => {
            to.u8(STRUCTURE);
            to.text(id.as_bytes());
            to.size(kind.members(bit).count());
            for member in kind.members(bit) {
                let Node { name, .. } = &kind.nodes()[member];
                to.text(name.as_bytes());
                encode_node(kind, member, to);
            }
        }
        NodeKind::Scalar(kind) => to.u8(code_of(*kind)),
        NodeKind::BoundedText(max) => {
            to.u8(BOUNDED_TEXT);
            to.size(*max as usize);
        }
        NodeKind::Array { kind, size } => match size {
            ArraySize::Variable => to.u8(code_of(*kind) + ARRAY_VARIABLE),
            ArraySize::Max(max) => {
                to.u8(code_of(*kind) + ARRAY_BOUNDED);
                to.size(*max as usize);
            }
            ArraySize::Fixed(n) => {
                to.u8(code_of(*kind) + ARRAY_FIXED);
                to.size(*n as usize);
            }
        },
        NodeKind::StructureArray(kind) => {
            to.u8(STRUCTURES);
            encode(kind, to);
        }
        NodeKind::Union(kind) => encode_union(kind, to),
        NodeKind::UnionArray(kind) => {
            to.u8(UNIONS);
            encode_union(kind, to);
        }
        NodeKind::Any => to.u8(ANY),
        NodeKind::AnyArray => to.u8(ANYS),
    }
}

fn encode_union(kind: &UnionType, to: &mut ByteWriter) {
    to.u8(UNION);
    to.text(kind.id.as_bytes());
    to.size(kind.members.len());
    for member in &kind.members {
        to.text(member.name.as_bytes());
        encode(&member.kind, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::{ByteOrder, Malformed};

    fn decoded(bytes: &[u8], cache: &mut TypeCache) -> Result<Option<String>, Malformed> {
        let mut reader = ByteReader::new(bytes, ByteOrder::Little);
        let kind = decode(&mut reader, cache);
        reader.finish().map(|()| kind.map(|kind| kind.to_string()))
    }

    fn encoded(write: impl FnOnce(&mut ByteWriter)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut ByteWriter::new(&mut out, ByteOrder::Little));
        out
    }

    #[test]
    fn every_code_decodes_and_encodes_to_the_same_bytes() {
        for (bytes, expected) in [
            (b"\x43".to_vec(), "F64"),
            (b"\x00".to_vec(), "Bool"),
            (b"\x2f".to_vec(), "U64[]"),
            (b"\x70\x05".to_vec(), "Text[..5]"),
            (b"\x3a\xfe\x00\x01\x00\x00".to_vec(), "I32[256]"),
            (b"\x83\x10".to_vec(), "Text(16)"),
            (b"\x82".to_vec(), "any"),
            (b"\x8a".to_vec(), "any[]"),
            (b"\x80\x00\x00".to_vec(), "{}"),
            (b"\x80\x02id\x01\x01a\x80\x00\x01\x01b\x43".to_vec(), "id {{F64 b} a}"),
            (b"\x88\x80\x00\x01\x01b\x43".to_vec(), "{F64 b}[]"),
            (b"\x81\x01u\x02\x01a\x20\x01b\x80\x00\x00".to_vec(), "union u {I8 a, {} b}"),
            (b"\x89\x81\x00\x01\x01a\x4a".to_vec(), "union {F32[] a}[]"),
        ] {
            let kind = decode(&mut ByteReader::new(&bytes, ByteOrder::Little), &mut TypeCache::new()).unwrap();

            assert_eq!(kind.to_string(), expected);
            assert_eq!(encoded(|to| encode(&kind, to)), bytes, "{expected}");
        }
        assert_eq!(decoded(b"\xff", &mut TypeCache::new()), Ok(None));
    }

    #[test]
    fn a_type_with_an_id_is_known_from_then_on_also_within_other_types() {
        let mut cache = TypeCache::new();
        assert!(cache.is_empty());

        let whole = b"\xfd\x01\x00\x80\x00\x02\x01a\x43\x01b\xfd\x02\x00\x80\x01t\x01\x01c\x60";
        assert_eq!(decoded(whole, &mut cache), Ok(Some("{F64 a, t {Text c} b}".into())));
        assert_eq!((cache.len(), cache.is_empty()), (2, false));

        assert_eq!(decoded(b"\xfe\x01\x00", &mut cache), Ok(Some("{F64 a, t {Text c} b}".into())));
        assert_eq!(decoded(b"\xfe\x02\x00", &mut cache), Ok(Some("t {Text c}".into())));
        let within = b"\x80\x00\x02\x01x\xfe\x02\x00\x01y\x88\xfe\x02\x00";
        assert_eq!(decoded(within, &mut cache), Ok(Some("{t {Text c} x, t {Text c}[] y}".into())));
        let unknown = Malformed { offset: 0, expected: "the id of a type that was sent before" };
        assert_eq!(decoded(b"\xfe\x03\x00", &mut cache), Err(unknown));
    }

    #[test]
    fn a_sent_type_takes_three_bytes_the_second_time() {
        let number = Arc::new(StructureType::single(NodeKind::Scalar(Kind::F64)));
        let text = Arc::new(StructureType::single(NodeKind::Scalar(Kind::Text)));
        let mut ids = TypeIds::new(1);

        assert_eq!(encoded(|to| ids.encode(&number, to)), b"\xfd\x01\x00\x43");
        assert_eq!(encoded(|to| ids.encode(&number, to)), b"\xfe\x01\x00");
        assert_eq!(encoded(|to| ids.encode(&text, to)), b"\x60", "the peer stores only one");
        assert_eq!(encoded(|to| TypeIds::new(0).encode(&number, to)), b"\x43");
    }

    #[test]
    fn types_that_are_too_deep_or_too_large_are_rejected() {
        let nested = |depth: usize| [b"\x80\x00\x01\x01a".repeat(depth), b"\x43".to_vec()].concat();
        assert!(decoded(&nested(19), &mut TypeCache::new()).is_ok());
        assert!(decoded(&nested(20), &mut TypeCache::new()).is_err());
        let arrays = b"\x88\x80\x00\x01\x01a".repeat(1000);
        assert!(decoded(&arrays, &mut TypeCache::new()).is_err());
        let ids = b"\xfd\x01\x00".repeat(100_000);
        assert!(decoded(&ids, &mut TypeCache::new()).is_err());
        let with_ids = [b"\xfd\x01\x00\x80\x00\x01\x01a".repeat(19), b"\x43".to_vec()].concat();
        assert!(decoded(&with_ids, &mut TypeCache::new()).is_ok(), "ids are no levels");
        assert!(decoded(b"\x38\xfe\xff\xff\xff\x7f", &mut TypeCache::new()).is_err(), "a fixed array of 2 GB");

        // Each type consists of 16 of the previous one.
        let mut cache = TypeCache::new();
        let mut level = b"\xfd\x00\x00\x80\x00\x10".to_vec();
        level.extend(b"\x01a\x43".repeat(16));
        assert!(decoded(&level, &mut cache).is_ok());
        let mut results = Vec::new();
        for id in 1..8_u8 {
            let mut level = [0xfd, id, 0, 0x80, 0, 16].to_vec();
            (0..16).for_each(|_| level.extend([1, b'a', 0xfe, id - 1, 0]));
            results.push(decoded(&level, &mut cache).is_ok());
        }
        assert_eq!(results, [true, true, false, false, false, false, false]);
    }

    #[test]
    fn stored_types_cannot_be_nested_more_deeply_than_others() {
        let mut cache = TypeCache::new();
        assert!(decoded(b"\xfd\x00\x00\x80\x00\x01\x01a\x43", &mut cache).is_ok());

        // Each type is an array of the previous one in a structure: two more levels.
        let n_nested = (1..100_u8)
            .take_while(|id| {
                let outer = [0xfd, *id, 0, 0x80, 0, 1, 1, b'a', 0x88, 0xfe, id - 1, 0];
                decoded(&outer, &mut cache).is_ok()
            })
            .count();

        assert_eq!(n_nested, 9);
        assert!(decoded(b"\xfd\xc8\x00\x80\x00\x02\x01a\x43\x01b\x43", &mut cache).is_ok());
        let within = |depth: usize| [b"\x80\x00\x01\x01a".repeat(depth), b"\xfe\xc8\x00".to_vec()].concat();
        assert!(decoded(&within(18), &mut cache).is_ok(), "members side by side are one level");
        assert!(decoded(&within(19), &mut cache).is_err());
    }

    #[test]
    fn stored_types_are_limited_in_nodes() {
        let mut cache = TypeCache::new();
        let mut wide = b"\x80\x00\xfe\x10\x27\x00\x00".to_vec();
        wide.extend(b"\x01a\x43".repeat(10_000));
        let stored = |cache: &mut TypeCache, id: u8| decoded(&[&[0xfd, id, 0][..], &wide].concat(), cache).is_ok();

        let n_stored = (0..100).filter(|id| stored(&mut cache, *id)).count();

        assert_eq!(n_stored, limit::CACHED_NODES_MAX / 10_001);
        assert!(stored(&mut cache, 0), "a type may replace another");
        assert_eq!(cache.len(), n_stored);

        let mut cache = TypeCache::new();
        for prefix in [b"\x81\x00\x01\x01u".as_slice(), b"\x89\x81\x00\x01\x01u"] {
            let within = [prefix, &wide].concat();
            let n_stored =
                (0..100_u8).filter(|id| decoded(&[&[0xfd, *id, 0][..], &within].concat(), &mut cache).is_ok());
            assert!(n_stored.count() < 30, "also as members of unions");
            cache = TypeCache::new();
        }
    }

    #[test]
    fn the_size_and_the_depth_of_a_type_include_its_unions_and_arrays() {
        for (bytes, size, depth) in [
            (&b"\x43"[..], (1, 0), 1),
            (b"\x80\x02id\x01\x03abc\x43", (2, 5), 2),
            (b"\x80\x00\x02\x01a\x80\x00\x01\x01b\x43\x01c\x43", (4, 3), 3),
            (b"\x88\x80\x01s\x01\x02ab\x43", (3, 3), 3),
            (b"\x81\x01u\x02\x03one\x43\x02ab\x80\x00\x01\x01c\x43", (5, 7), 3),
            (b"\x89\x81\x01u\x01\x03one\x43", (3, 4), 2),
            (b"\x81\x00\x00", (2, 0), 1),
            (b"\x8a", (1, 0), 1),
        ] {
            let kind = decode(&mut ByteReader::new(bytes, ByteOrder::Little), &mut TypeCache::new()).unwrap();

            assert_eq!((size_of_type(&kind), depth_of_type(&kind)), (size, depth), "{kind}");
            let mut cache = TypeCache::new();
            assert!(cache.insert(1, kind.clone()) && cache.insert(2, kind.clone()) && cache.insert(1, kind));
            assert_eq!(cache.held_bytes(), 2 * (size.0 * size_of::<Node>() + size.1));
        }
    }

    #[test]
    fn the_largest_types_fit_and_one_more_node_or_letter_does_not() {
        /// A structure with members of this number, without names.
        fn wide(n_members: usize) -> Vec<u8> {
            let count = u32::try_from(n_members).unwrap().to_le_bytes();
            [&b"\x80\x00\xfe"[..], &count, &b"\x00\x43".repeat(n_members)].concat()
        }
        /// A structure with one member with a name of this length.
        fn long(n_letters: usize) -> Vec<u8> {
            let count = u32::try_from(n_letters).unwrap().to_le_bytes();
            [&b"\x80\x00\x01\xfe"[..], &count, &vec![b'x'; n_letters], b"\x43"].concat()
        }
        let with_id = |id: u8, kind: &[u8]| [&[0xfd, id, 0][..], kind].concat();
        let (largest, longest) = (wide(limit::TYPE_NODES_MAX - 1), long(limit::CACHED_NAME_BYTES_MAX / 4));
        assert!(decoded(&wide(limit::TYPE_NODES_MAX), &mut TypeCache::new()).is_err());

        for (kind, another) in [(largest, b"\x43".to_vec()), (longest, long(1))] {
            let mut cache = TypeCache::new();
            let mut is_stored = |id, kind: &[u8]| decoded(&with_id(id, kind), &mut cache).is_ok();
            assert!((0..4).all(|id| is_stored(id, &kind)));
            assert!(!is_stored(4, &another), "the table is full");
            assert!(is_stored(3, &kind) && !is_stored(4, &another), "a type may replace an equal one");
            assert!(is_stored(3, &another) && is_stored(4, &another) && !is_stored(5, &kind));
        }
        assert!(decoded(b"\x38\xfe\x00\x00\x01\x00", &mut TypeCache::new()).is_ok(), "a fixed array of 65536");
        assert!(decoded(b"\x38\xfe\x01\x00\x01\x00", &mut TypeCache::new()).is_err());
        let two_ids = Malformed { offset: 0, expected: "a type after its id" };
        assert_eq!(decoded(b"\xfd\x01\x00\xfd\x02\x00\x43", &mut TypeCache::new()), Err(two_ids));
    }

    // Row 39 of docs/reference/faults.md.
    #[test]
    fn stored_types_are_limited_in_the_size_of_their_names() {
        let mut cache = TypeCache::new();
        let name = [b"\xfe\x40\x42\x0f\x00".as_slice(), &[b'x'; 1_000_000]].concat();
        let member = [b"\x80\x00\x01".as_slice(), &name, b"\x43"].concat();
        let id = [b"\x80".as_slice(), &name, b"\x00"].concat();
        let stored = |cache: &mut TypeCache, number: u8, kind: &[u8]| {
            decoded(&[&[0xfd, number, 0][..], kind].concat(), cache).is_ok()
        };

        let results: Vec<bool> =
            (0..6_u8).map(|number| stored(&mut cache, number, if number % 2 == 0 { &member } else { &id })).collect();

        assert_eq!(results, [true, true, true, true, false, false]);
        assert!(cache.held_bytes() < limit::CACHED_NAME_BYTES_MAX + 1000);
        assert!(decoded(&member, &mut cache).is_ok(), "a type without an id is not stored");
    }

    // Row 39 of docs/reference/faults.md.
    #[test]
    fn of_two_members_with_the_same_name_the_first_is_found_and_both_are_decoded() {
        let mut reader = ByteReader::new(b"\x80\x00\x02\x01a\x43\x01a\x60", ByteOrder::Little);

        let kind = decode(&mut reader, &mut TypeCache::new()).unwrap();

        assert_eq!(kind.nodes().len(), 3);
        assert_eq!(kind.node("a"), Some(1));
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        for bytes in [
            &b""[..],
            b"\x01",
            b"\x44",
            b"\xfc\x00\x00\x43",
            b"\x90",
            b"\x88\x43",
            b"\x89\x43",
            b"\x88\xff",
            b"\x81\x00\x01\x01a\xff",
            b"\x80\x00\x01\x01a",
            b"\x80\x00\xfe\xff\xff\xff\x00",
            b"\x80\x00\x01\x01a\xff",
        ] {
            assert!(decoded(bytes, &mut TypeCache::new()).is_err(), "{bytes:x?}");
        }
    }
}
