//! What Java receives.

use std::sync::Arc;

use fodo_net::{
    Array, ChannelFacts, Limits, Meta, NodeKind, NodeValue, Protocol, Reading, Scalar, Structure, StructureType, Text,
    TimeStamp, UnionType, UnionValue, Value,
};

use super::{BLOCK_BYTES_MIN, EventTag, ReplyTag, for_packed_kinds, kind_code, tag};
use crate::error::JavaFailure;
use crate::handle::{self, HandleObject};

/// The bytes of a reply.
#[derive(Default)]
pub struct ReplyWriter {
    bytes: Vec<u8>,
}

impl ReplyWriter {
    /// Most replies have no more bytes than this.
    pub fn new() -> ReplyWriter {
        ReplyWriter { bytes: Vec::with_capacity(128) }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Removes everything after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    pub fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    fn f64(&mut self, value: f64) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    pub fn text(&mut self, text: &str) {
        self.u32(text.len() as u32);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn text_of(&mut self, text: &Text) {
        self.text(&text.to_str());
    }

    /// Appends what another one has written.
    pub fn append(&mut self, other: &ReplyWriter) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    pub fn reply(&mut self, tag: ReplyTag) {
        self.u8(tag as u8);
    }

    pub fn event(&mut self, tag: EventTag) {
        self.u8(tag as u8);
    }

    /// Writes a number that is known after the contents, such as their number of bytes. Returns the position for
    /// [`ReplyWriter::set_u32`].
    pub fn reserve_u32(&mut self) -> usize {
        self.u32(0);
        self.len() - 4
    }

    pub fn set_u32(&mut self, position: usize, value: usize) {
        if let Some(bytes) = self.bytes.get_mut(position..position + 4) {
            bytes.copy_from_slice(&(value as u32).to_ne_bytes());
        }
    }

    /// Writes something with its number of bytes before it.
    pub fn sized(&mut self, write: impl FnOnce(&mut ReplyWriter)) {
        let position = self.reserve_u32();
        write(self);
        self.set_u32(position, self.len() - position - 4);
    }

    pub fn handle(&mut self, handle: i64) {
        self.reply(ReplyTag::Handle);
        self.i64(handle);
    }

    pub fn failure(&mut self, failure: &JavaFailure) {
        self.reply(ReplyTag::Error);
        self.failure_body(failure);
    }

    pub fn failure_body(&mut self, failure: &JavaFailure) {
        self.u8(failure.class as u8);
        self.text(&failure.pv);
        self.text(&failure.reason);
        self.text(&failure.server);
        self.text(failure.advice);
    }

    pub fn info_body(&mut self, protocol: Protocol, facts: &ChannelFacts) {
        self.text(&protocol.to_string());
        self.text(&facts.server.to_string());
        self.u8(kind_code(facts.kind));
        self.u32(facts.count_max);
        self.u8(facts.may_read.into());
        self.u8(facts.may_write.into());
        self.text(&facts.tls.as_ref().map(|peer| peer.to_string()).unwrap_or_default());
    }

    pub fn reading(&mut self, reading: &Reading) {
        self.reply(ReplyTag::Reading);
        self.u8(reading.alarm.severity.code() as u8);
        self.u16(reading.alarm.status.0);
        self.i64(if reading.time == TimeStamp::NEVER { i64::MIN } else { reading.time.unix_s });
        self.u32(reading.time.nanos);
        self.u32(reading.user_tag.cast_unsigned());
        match &reading.message {
            Some(message) => self.text_of(message),
            None => self.text(""),
        }
        self.value(&reading.value);
        match &reading.meta {
            Some(meta) => {
                self.u8(1);
                self.meta(meta);
            }
            None => self.u8(0),
        }
    }

    fn meta(&mut self, meta: &Meta) {
        self.u16(0);
        self.text_of(&meta.units);
        self.u16(meta.precision.cast_unsigned());
        for Limits { low, high } in [meta.display, meta.alarm, meta.warning, meta.control] {
            self.f64(low);
            self.f64(high);
        }
        self.text_of(&meta.description);
        self.u8(meta.form.code() as u8);
        self.texts(&meta.labels);
    }

    fn texts(&mut self, texts: &[Text]) {
        self.u32(texts.len() as u32);
        texts.iter().for_each(|text| self.text_of(text));
    }

    pub fn value(&mut self, value: &Value) {
        match value {
            Value::Scalar(scalar) => self.scalar(scalar),
            Value::Array(array) => self.array(array),
        }
    }

    fn scalar(&mut self, scalar: &Scalar) {
        self.u8(tag::SCALAR);
        self.u8(kind_code(scalar.kind()));
        macro_rules! payload {
            ($($kind:ident $rust:ty),*) => {
                match scalar {
                    Scalar::Bool(flag) => self.u8((*flag).into()),
                    Scalar::Text(text) => self.text_of(text),
                    $(Scalar::$kind(number) => self.bytes.extend_from_slice(&number.to_ne_bytes()),)*
                }
            };
        }
        for_packed_kinds!(payload);
    }

    fn array(&mut self, array: &Array) {
        macro_rules! packed {
            ($($kind:ident $rust:ty),*) => {
                match array {
                    Array::Text(texts) => {
                        self.array_start(array, tag::ARRAY);
                        self.texts(texts);
                    }
                    Array::Bool(flags) => {
                        self.array_start(array, tag::ARRAY);
                        self.u32(flags.len() as u32);
                        self.bytes.extend(flags.iter().map(|flag| u8::from(*flag)));
                    }
                    $(Array::$kind(elements) if size_of_val(elements.as_slice()) >= BLOCK_BYTES_MIN => {
                        self.array_start(array, tag::BLOCK_ARRAY);
                        self.i64(elements.len() as i64);
                        self.i64(elements.as_ptr().expose_provenance() as i64);
                        self.i64(handle::create(HandleObject::Elements(array.clone())));
                    })*
                    $(Array::$kind(elements) => {
                        self.array_start(array, tag::ARRAY);
                        self.u32(elements.len() as u32);
                        elements.iter().for_each(|element| self.bytes.extend_from_slice(&element.to_ne_bytes()));
                    })*
                }
            };
        }
        for_packed_kinds!(packed);
    }

    fn array_start(&mut self, array: &Array, tag: u8) {
        self.u8(tag);
        self.u8(kind_code(array.kind()));
    }

    pub fn structure(&mut self, structure: &Structure) {
        self.reply(ReplyTag::Structure);
        self.members(structure, 0);
    }

    /// The structure that is a node of another one.
    fn members(&mut self, structure: &Structure, bit: usize) {
        let kind = structure.kind();
        let Some(NodeKind::Structure { id }) = kind.nodes().get(bit).map(|node| &node.kind) else {
            return self.node(structure, bit);
        };
        self.u8(tag::STRUCTURE);
        self.text_of(id);
        let members: Vec<usize> = kind.members(bit).collect();
        self.u32(members.len() as u32);
        for member in members {
            self.text_of(&kind.nodes()[member].name);
            self.u8(is_changed(structure, member).into());
            self.node(structure, member);
        }
    }

    fn node(&mut self, structure: &Structure, bit: usize) {
        let kind = &structure.kind().nodes()[bit].kind;
        match (kind, structure.node(bit)) {
            (NodeKind::Structure { .. }, _) => self.members(structure, bit),
            (_, Some(NodeValue::Value(value))) => self.value(value),
            (NodeKind::StructureArray(element), Some(NodeValue::Structures(elements))) => {
                self.u8(tag::STRUCTURE_ARRAY);
                self.text_of(element.id());
                self.elements(elements);
            }
            (NodeKind::Union(union), Some(NodeValue::Union(selected))) => self.union(union, selected.as_deref()),
            (NodeKind::UnionArray(union), Some(NodeValue::Unions(elements))) => {
                self.u8(tag::UNION_ARRAY);
                self.u32(elements.len() as u32);
                elements.iter().for_each(|element| self.union(union, element.as_ref()));
            }
            (_, Some(NodeValue::Any(contents))) => {
                self.u8(tag::ANY);
                self.part(contents.as_deref());
            }
            (_, Some(NodeValue::Anys(elements))) => {
                self.u8(tag::ANY_ARRAY);
                self.elements(elements);
            }
            _ => self.u8(tag::EMPTY),
        }
    }

    fn elements(&mut self, elements: &[Option<Structure>]) {
        self.u32(elements.len() as u32);
        elements.iter().for_each(|element| self.part(element.as_ref()));
    }

    fn part(&mut self, structure: Option<&Structure>) {
        match structure {
            Some(structure) => self.members(structure, 0),
            None => self.u8(tag::EMPTY),
        }
    }

    fn union(&mut self, kind: &Arc<UnionType>, selected: Option<&UnionValue>) {
        self.u8(tag::UNION);
        let member = selected.and_then(|selected| kind.members.get(selected.selector as usize));
        match (selected, member) {
            (Some(selected), Some(member)) => {
                self.u32(selected.selector);
                self.text_of(&member.name);
                self.members(&selected.value, 0);
            }
            _ => {
                self.u32(u32::MAX);
                self.text("");
                self.u8(tag::EMPTY);
            }
        }
    }

    pub fn structure_type(&mut self, kind: &StructureType) {
        self.reply(ReplyTag::Text);
        self.text(&kind.to_string());
    }
}

/// Whether a node, one of its members or a structure around it is marked.
fn is_changed(structure: &Structure, bit: usize) -> bool {
    let kind = structure.kind();
    kind.covered(structure.changed()).any(|range| {
        let end = kind.nodes()[bit].end as usize;
        range.start < end && bit < range.end
    })
}
