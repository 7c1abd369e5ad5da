//! A member of a group: where its values are in the structure, and how a reading is stored there.

use std::sync::Arc;

use fodo_data::{
    Array, BitSet, EventMask, Kind, Limits, Meta, NodeKind, NodeValue, NormativeLayout, Part, Reading, Role, Scalar,
    Structure, StructureType, Text, Value,
};
use fodo_db::{FieldRef, FilterChain, MemberDefinition, PathStep};
use fodo_lock::Mutex;

use crate::driver::DatabaseDriver;

/// A member whose channel is resolved.
#[derive(Debug)]
pub struct ResolvedMember {
    pub definition: MemberDefinition,
    /// `None` if the mapping has no channel.
    pub source: Option<MemberSource>,
    pub place: NodePlace,
    pub content: MemberContent,
}

/// The channel of a member.
#[derive(Debug)]
pub struct MemberSource {
    pub field: FieldRef,
    pub filters: Option<Mutex<FilterChain>>,
}

/// A node of the group, possibly within elements of structure arrays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePlace {
    /// The arrays on the way, from the outermost: the node of each in its structure, and the index of the element.
    elements: Vec<(usize, usize)>,
    /// The node in the innermost structure.
    pub bit: usize,
}

/// What a member stores in the structure.
#[derive(Debug)]
pub enum MemberContent {
    /// Parts of a reading, as in the normative types.
    Parts(Box<MemberParts>),
    /// The value alone.
    Value,
    /// The value in a variant union.
    Any { kind: Kind, is_array: bool },
    /// Nothing that changes.
    Nothing,
}

/// The nodes of the parts of a reading, each with what changes it.
#[derive(Debug)]
pub struct MemberParts {
    /// Converts the parts; its own nodes are not used.
    layout: Arc<NormativeLayout>,
    value: Vec<PartNode>,
    alarm: Vec<PartNode>,
    time: Vec<PartNode>,
    property: Vec<PartNode>,
    /// Those that never change.
    form: Vec<PartNode>,
}

/// A part and its node.
#[derive(Clone, Copy, Debug)]
struct PartNode {
    role: Role,
    bit: usize,
}

impl NodePlace {
    /// The place of a member, and the type of the innermost structure.
    pub fn find(kind: &Arc<StructureType>, path: &[PathStep]) -> Option<(NodePlace, Arc<StructureType>)> {
        let (mut place, mut kind) = (NodePlace::default(), kind.clone());
        for PathStep { name, index } in path {
            place.bit = kind.member(place.bit, name.as_bytes())?;
            let Some(index) = index else { continue };
            let NodeKind::StructureArray(element) = &kind.nodes()[place.bit].kind else { return None };
            let element = element.clone();
            place.elements.push((place.bit, *index));
            (place.bit, kind) = (0, element);
        }
        Some((place, kind))
    }

    /// The innermost structure, to change it.
    pub fn structure<'s>(&self, value: &'s mut Structure) -> Option<&'s mut Structure> {
        self.elements.iter().try_fold(value, |value, &(bit, index)| value.element_mut(bit, index))
    }

    /// The innermost structure.
    pub fn structure_of<'s>(&self, value: &'s Structure) -> Option<&'s Structure> {
        self.elements.iter().try_fold(value, |value, &(bit, index)| match value.node(bit) {
            Some(NodeValue::Structures(elements)) => elements.get(index)?.as_ref(),
            _ => None,
        })
    }

    /// Creates the elements of structure arrays that this place needs.
    pub fn create(&self, value: &mut Structure) {
        let mut value = Some(value);
        for &(bit, index) in &self.elements {
            let Some(outer) = value.take() else { return };
            let (Some(NodeValue::Structures(elements)), Some(NodeKind::StructureArray(kind))) =
                (outer.node(bit), outer.kind().nodes().get(bit).map(|node| &node.kind))
            else {
                return;
            };
            let (mut elements, kind) = (elements.to_vec(), kind.clone());
            if elements.len() <= index {
                elements.resize(index + 1, None);
            }
            elements[index].get_or_insert_with(|| Structure::new(kind));
            // The element has the type of the array.
            let _ = outer.set_node(bit, NodeValue::Structures(Arc::new(elements)));
            value = outer.element_mut(bit, index);
        }
    }

    /// The bit that marks a node of the innermost structure.
    pub fn mark(&self, bit: usize) -> usize {
        self.elements.first().map_or(bit, |(outer, _)| *outer)
    }
}

impl MemberParts {
    /// The parts of a normative type that is at the node `bit` of `kind`, or, if `has_value` is not set, only its alarm
    /// and time stamp.
    pub fn new(layout: NormativeLayout, kind: &StructureType, bit: usize, has_value: bool) -> MemberParts {
        let mut parts = MemberParts {
            value: Vec::new(),
            alarm: Vec::new(),
            time: Vec::new(),
            property: Vec::new(),
            form: Vec::new(),
            layout: Arc::new(layout),
        };
        let layout = parts.layout.clone();
        let own = layout.kind();
        for source in layout.whole(EventMask(15)).iter() {
            let role = layout.role(source);
            let into = match role {
                Role::Seconds | Role::Nanoseconds | Role::UserTag => &mut parts.time,
                Role::Severity | Role::Status | Role::Message => &mut parts.alarm,
                _ if !has_value => continue,
                Role::Value | Role::Index => &mut parts.value,
                Role::Form | Role::FormChoices => &mut parts.form,
                _ => &mut parts.property,
            };
            let path = own.path(source);
            let found = path.split('.').try_fold(bit, |bit, name| kind.member(bit, name.as_bytes()));
            into.extend(found.map(|bit| PartNode { role, bit }));
        }
        parts
    }

    /// The nodes that a change of these kinds sets. The time stamp is part of each value and of each alarm.
    fn of(&self, mask: EventMask) -> impl Iterator<Item = &PartNode> {
        let both = EventMask::VALUE | EventMask::ALARM;
        let parts = [
            (EventMask::PROPERTY, &self.property),
            (EventMask::ALARM, &self.alarm),
            (both, &self.time),
            (EventMask::VALUE, &self.value),
        ];
        parts.into_iter().filter(move |(kinds, _)| mask.meets(*kinds)).flat_map(|(_, nodes)| nodes)
    }

    /// Stores the parts that never change.
    pub fn store_form(&self, meta: Meta, to: &mut Structure) {
        let reading = Reading { meta: Some(Arc::new(meta)), ..Reading::bare(0.into()) };
        for node in &self.form {
            if let Some(part) = self.layout.part(node.role, &reading) {
                store(part, node.bit, to);
            }
        }
    }

    /// Where the value is: the scalar, array or index.
    pub fn value_bit(&self) -> Option<usize> {
        self.value.first().map(|node| node.bit)
    }
}

impl ResolvedMember {
    /// The channel's present reading; with metadata if `mask` needs it. `None` if the member has no channel.
    fn read(&self, driver: &DatabaseDriver, mask: EventMask) -> Option<Reading> {
        let MemberSource { field, filters } = self.source.as_ref()?;
        let has_meta = matches!(&self.content, MemberContent::Parts(parts) if !parts.property.is_empty());
        let reading = match has_meta && mask.meets(EventMask::PROPERTY) {
            true => driver.database().read_with_meta(*field),
            false => driver.database().read(*field),
        };
        Some(match filters {
            Some(filters) => filters.lock().read(reading, &driver.filter_context(*field)),
            None => reading,
        })
    }

    /// Reads the channel, and stores what a change of these kinds sets. Metadata that is stored already is skipped, as it
    /// rarely changes; `stored`: the metadata in the structure. False: the member has no channel.
    pub fn update(
        &self,
        driver: &DatabaseDriver,
        mask: EventMask,
        stored: &mut Option<Arc<Meta>>,
        to: &mut Structure,
    ) -> bool {
        let Some(reading) = self.read(driver, mask) else { return false };
        let is_stored = match (&reading.meta, &*stored) {
            (Some(meta), Some(stored)) => is_same(meta, stored),
            _ => false,
        };
        let mask = if is_stored { EventMask(mask.0 & !EventMask::PROPERTY.0) } else { mask };
        self.store(&reading, mask, to);
        if !is_stored && reading.meta.is_some() {
            *stored = reading.meta;
        }
        true
    }

    /// Stores what a change of these kinds sets.
    fn store(&self, reading: &Reading, mask: EventMask, to: &mut Structure) {
        let Some(to) = self.place.structure(to) else { return };
        match &self.content {
            MemberContent::Parts(parts) => {
                for node in parts.of(mask) {
                    if let Some(part) = parts.layout.part(node.role, reading) {
                        store(part, node.bit, to);
                    }
                }
            }
            MemberContent::Value if mask.meets(EventMask::VALUE) => store_value(&reading.value, self.place.bit, to),
            MemberContent::Any { kind, is_array } if mask.meets(EventMask::VALUE) => {
                let contents = Structure::single(of_kind(&reading.value, *kind, *is_array));
                // The node is a variant union.
                let _ = to.set_node(self.place.bit, NodeValue::Any(Some(Box::new(contents))));
            }
            MemberContent::Value | MemberContent::Any { .. } | MemberContent::Nothing => {}
        }
    }

    /// Marks what a change of these kinds sets.
    pub fn mark(&self, mask: EventMask, marks: &mut BitSet) {
        match &self.content {
            MemberContent::Parts(parts) => {
                parts.of(mask).for_each(|node| marks.insert(self.place.mark(node.bit)));
            }
            MemberContent::Value | MemberContent::Any { .. } if mask.meets(EventMask::VALUE) => {
                marks.insert(self.place.mark(self.place.bit));
            }
            MemberContent::Value | MemberContent::Any { .. } | MemberContent::Nothing => {}
        }
    }

    /// Marks what a complete read contains.
    pub fn mark_all(&self, marks: &mut BitSet) {
        self.mark(EventMask(15), marks);
        if let MemberContent::Parts(parts) = &self.content {
            parts.form.iter().for_each(|node| marks.insert(self.place.mark(node.bit)));
        }
    }

    /// The value that a put sets, as a value for the record; `None` if the put does not set it.
    pub fn put_value(&self, value: &Structure, changed: &BitSet) -> Option<Value> {
        let bit = match &self.content {
            MemberContent::Parts(parts) => parts.value_bit()?,
            MemberContent::Value | MemberContent::Any { .. } => self.place.bit,
            MemberContent::Nothing => return None,
        };
        if !changed.contains(self.place.mark(bit)) {
            return None;
        }
        let structure = self.place.structure_of(value)?;
        match (&self.content, structure.node(bit)?) {
            (MemberContent::Any { .. }, NodeValue::Any(contents)) => contents.as_ref()?.value(0).cloned(),
            (MemberContent::Parts(parts), NodeValue::Value(value))
                if parts.value.first().is_some_and(|node| node.role == Role::Index) =>
            {
                // An invalid number becomes one that the record refuses, as for a single PV.
                let number = value.to_f64().ok().filter(|number| (0.0..f64::from(u16::MAX)).contains(number));
                let index = number.map_or(u16::MAX, |number| number as u16);
                Some(Value::Scalar(Scalar::Enum(index)))
            }
            (_, NodeValue::Value(value)) => Some(value.clone()),
            _ => None,
        }
    }
}

/// Whether the metadata that members show is the same. Limits that are not set are NaN.
fn is_same(left: &Meta, right: &Meta) -> bool {
    let limits = |meta: &Meta| {
        let all = [meta.display, meta.control, meta.alarm, meta.warning];
        all.map(|Limits { low, high }| [low.to_bits(), high.to_bits()])
    };
    limits(left) == limits(right)
        && left.precision == right.precision
        && left.units == right.units
        && left.description == right.description
        && left.labels == right.labels
}

/// Stores one part. A text that is already there is not copied again.
fn store(part: Part<'_>, bit: usize, to: &mut Structure) {
    let value = match part {
        Part::Value(value) => return store_value(value, bit, to),
        Part::Text(text) => match to.value(bit) {
            Some(Value::Scalar(Scalar::Text(own))) if own.as_bytes() == text => return,
            _ => Value::Scalar(Scalar::Text(Text::from_bytes(text))),
        },
        Part::Texts(texts) => match to.value(bit) {
            Some(Value::Array(Array::Text(own))) if own[..] == *texts => return,
            _ => texts.to_vec().into(),
        },
        Part::Forms(names) => names.iter().map(|&name| name.into()).collect::<Vec<Text>>().into(),
        number => match to.kind().nodes().get(bit).map(|node| &node.kind) {
            Some(NodeKind::Scalar(kind)) => number.number(*kind).map_or(0.into(), Value::Scalar),
            _ => return,
        },
    };
    // The node has the kind of this part.
    let _ = to.set_value(bit, value);
}

/// Stores a value in the node of a scalar or an array. An empty array in a scalar is 0 or an empty text.
fn store_value(value: &Value, bit: usize, to: &mut Structure) {
    let value = match to.kind().nodes().get(bit).map(|node| &node.kind) {
        Some(NodeKind::Scalar(kind)) => of_kind(value, *kind, false),
        Some(NodeKind::Array { kind, .. }) => of_kind(value, *kind, true),
        _ => return,
    };
    // It has the kind of the node.
    let _ = to.set_value(bit, value);
}

/// A value as a scalar or an array of this kind.
fn of_kind(value: &Value, kind: Kind, is_array: bool) -> Value {
    if is_array {
        return match value {
            Value::Array(array) if array.kind() == kind => value.clone(),
            value => {
                Value::Array(value.clone().into_array().to_kind(kind, None).unwrap_or_else(|_| Array::empty(kind)))
            }
        };
    }
    if let (Kind::Text, Value::Array(_)) = (kind, value)
        && let Some(text) = value.long_text()
    {
        return Value::Scalar(Scalar::Text(text));
    }
    match value {
        Value::Scalar(scalar) if scalar.kind() == kind => value.clone(),
        value => {
            let converted = value.first().and_then(|scalar| scalar.to_kind(kind, None).ok());
            Value::Scalar(converted.unwrap_or_else(|| Scalar::initial(kind)))
        }
    }
}
