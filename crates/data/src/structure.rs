use std::fmt;
use std::sync::{Arc, LazyLock};

use crate::{Array, ArraySize, BitSet, ConvertError, Kind, NodeKind, Scalar, StructureType, Text, Value};

/// A value of a structured type: a value for every node, and the set of nodes that changed.
///
/// The contents of a union or of a variant union may also be a single value, whose type has only one node.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_data::{Kind, NodeValue, Structure, StructureBuilder, StructureError, Value};
///
/// let mut build = StructureBuilder::new("motor_t");
/// build.scalar("position", Kind::F64).scalar("steps", Kind::I32);
/// let mut motor = Structure::new(Arc::new(build.finish()));
///
/// motor.set("steps", 12.7)?;
/// assert_eq!(motor.get("steps"), Some(&Value::from(12)));
/// assert!(motor.changed().iter().eq([2]));
///
/// let mut cached = Structure::new(motor.kind().clone());
/// cached.apply(&motor)?;
/// assert_eq!(cached.get("steps"), motor.get("steps"));
///
/// cached.unmark_all();
/// cached.mark(1);
/// cached.unmark(1);
/// cached.mark_only([0].into_iter().collect());
/// assert!(cached.changed().contains(0));
///
/// motor.set_node(1, NodeValue::Value(0.5.into()))?;
/// assert_eq!(motor.node(1), Some(&NodeValue::Value(0.5.into())));
/// assert_eq!(Structure::single(0.5.into()).get(""), motor.get("position"));
/// # Ok::<(), StructureError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Structure {
    kind: Arc<StructureType>,
    /// The values of the first nodes; each one after these is 0, empty or missing. Most types begin with the value, its alarm
    /// and its time stamp, and most structures have nothing else.
    slots: Vec<NodeValue>,
    changed: BitSet,
}

impl PartialEq for Structure {
    fn eq(&self, other: &Structure) -> bool {
        let n_stored = self.slots.len().max(other.slots.len());
        self.kind == other.kind
            && self.changed == other.changed
            && (0..n_stored).all(|bit| self.node(bit) == other.node(bit))
    }
}

/// The value of one node.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_data::{NodeKind, NodeValue, Structure, StructureType};
///
/// let mut any = Structure::new(Arc::new(StructureType::single(NodeKind::Any)));
/// assert_eq!(any.node(0), Some(&NodeValue::Any(None)));
/// let contents = NodeValue::Any(Some(Box::new(Structure::single(1.5.into()))));
/// assert_eq!(any.set_node(0, contents), Ok(()));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum NodeValue {
    /// The node is a structure; its members have the values.
    Structure,
    /// A scalar or an array of scalars.
    Value(Value),
    /// The elements of a structure array; `None` where one is missing.
    Structures(Arc<Vec<Option<Structure>>>),
    /// The selected member of a union; `None` if no member is selected.
    Union(Option<Box<UnionValue>>),
    /// The elements of a union array; `None` where one is missing.
    Unions(Arc<Vec<Option<UnionValue>>>),
    /// The contents of a variant union; `None` if it is empty.
    Any(Option<Box<Structure>>),
    /// The elements of an array of variant unions; `None` where one is empty.
    Anys(Arc<Vec<Option<Structure>>>),
}

/// A selected member of a union with its value, for [`NodeValue::Union`].
#[derive(Clone, Debug, PartialEq)]
pub struct UnionValue {
    /// The index of the member.
    pub selector: u32,
    /// Its value, of the member's type.
    pub value: Structure,
}

/// Why a structure does not accept a value.
///
/// ```
/// use fodo_data::{Structure, StructureError};
///
/// let mut single = Structure::single(1.5.into());
/// let error = single.set("alarm", 1).unwrap_err();
/// assert_eq!(error, StructureError::NoSuchNode("alarm".into()));
/// assert_eq!(error.to_string(), "there is no field alarm");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StructureError {
    /// The structure has no node with this path.
    NoSuchNode(Text),
    /// The node at this path holds something else, such as members.
    OtherKind(Text),
    /// The text or array at this path may have at most, or must have exactly, `max` bytes or elements.
    Size {
        /// The path of the node.
        path: Text,
        /// The limit of its type.
        max: u32,
    },
    /// The value cannot be converted to the node's kind.
    Convert(ConvertError),
    /// The two structures have different types.
    OtherType,
}

impl fmt::Display for StructureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StructureError::NoSuchNode(path) => write!(f, "there is no field {path}"),
            StructureError::OtherKind(path) => write!(f, "the field {path} does not hold such a value"),
            StructureError::Size { path, max } => write!(f, "the size of the field {path} is limited to {max}"),
            StructureError::Convert(error) => error.fmt(f),
            StructureError::OtherType => write!(f, "the structures have different types"),
        }
    }
}

impl std::error::Error for StructureError {}

impl From<ConvertError> for StructureError {
    fn from(error: ConvertError) -> StructureError {
        StructureError::Convert(error)
    }
}

impl NodeValue {
    /// Memory of what the value refers to, in bytes.
    fn contents_bytes(&self) -> usize {
        fn elements<T>(elements: &[Option<T>], bytes: impl Fn(&T) -> usize) -> usize {
            size_of_val(elements) + elements.iter().flatten().map(bytes).sum::<usize>()
        }
        let union = |value: &UnionValue| size_of::<UnionValue>() + value.value.n_bytes();
        let structure = |value: &Structure| size_of::<Structure>() + value.n_bytes();
        match self {
            NodeValue::Structure => 0,
            NodeValue::Value(value) => value.n_bytes(),
            NodeValue::Structures(values) | NodeValue::Anys(values) => elements(values, structure),
            NodeValue::Union(value) => value.as_deref().map_or(0, union),
            NodeValue::Unions(values) => elements(values, union),
            NodeValue::Any(value) => value.as_deref().map_or(0, structure),
        }
    }

    /// The value of a new node: 0, empty or missing. A fixed array is empty until it is set.
    fn initial(kind: &NodeKind) -> &'static NodeValue {
        fn of_all(initial: impl Fn(Kind) -> Value) -> Vec<NodeValue> {
            Kind::ALL.iter().map(|kind| NodeValue::Value(initial(*kind))).collect()
        }
        static STRUCTURE: NodeValue = NodeValue::Structure;
        static UNION: NodeValue = NodeValue::Union(None);
        static ANY: NodeValue = NodeValue::Any(None);
        static EMPTY: LazyLock<[NodeValue; 3]> = LazyLock::new(|| {
            [NodeValue::Structures(Arc::default()), NodeValue::Unions(Arc::default()), NodeValue::Anys(Arc::default())]
        });
        static SCALARS: LazyLock<Vec<NodeValue>> =
            LazyLock::new(|| of_all(|kind| Value::Scalar(Scalar::initial(kind))));
        static ARRAYS: LazyLock<Vec<NodeValue>> = LazyLock::new(|| of_all(|kind| Value::Array(Array::empty(kind))));
        match kind {
            NodeKind::Structure { .. } => &STRUCTURE,
            NodeKind::Scalar(kind) => &SCALARS[*kind as usize],
            NodeKind::BoundedText(_) => &SCALARS[Kind::Text as usize],
            NodeKind::Array { kind, .. } => &ARRAYS[*kind as usize],
            NodeKind::Union(_) => &UNION,
            NodeKind::Any => &ANY,
            NodeKind::StructureArray(_) => &EMPTY[0],
            NodeKind::UnionArray(_) => &EMPTY[1],
            NodeKind::AnyArray => &EMPTY[2],
        }
    }
}

impl Structure {
    /// Creates a structure in which every value is 0, empty or missing, and nothing is marked as changed.
    pub fn new(kind: Arc<StructureType>) -> Structure {
        Structure { kind, slots: Vec::new(), changed: BitSet::new() }
    }

    /// A single value, for a union or a variant union.
    pub fn single(value: Value) -> Structure {
        let kind = match &value {
            Value::Scalar(scalar) => NodeKind::Scalar(scalar.kind()),
            Value::Array(array) => NodeKind::Array { kind: array.kind(), size: ArraySize::Variable },
        };
        let kind = Arc::new(StructureType::single(kind));
        Structure { kind, slots: vec![NodeValue::Value(value)], changed: BitSet::new() }
    }

    /// The type.
    pub fn kind(&self) -> &Arc<StructureType> {
        &self.kind
    }

    /// Memory of the value in bytes, without its type.
    ///
    /// ```
    /// use fodo_data::{NodeValue, Structure};
    ///
    /// assert_eq!(Structure::single(vec![0.5; 100].into()).n_bytes(), size_of::<NodeValue>() + 800);
    /// ```
    pub fn n_bytes(&self) -> usize {
        let contents: usize = self.slots.iter().map(NodeValue::contents_bytes).sum();
        self.kind.nodes().len() * size_of::<NodeValue>() + contents
    }

    /// Allocates the memory for values of the first `n_nodes` nodes, which are set next.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use fodo_data::{Kind, Structure, normative_type};
    ///
    /// let mut scalar = Structure::new(Arc::new(normative_type(Kind::F64, false)));
    /// scalar.reserve(2);
    /// assert_eq!(scalar.set_value(1, 2.5.into()), Ok(()));
    /// assert_eq!(scalar.get("value"), Some(&2.5.into()));
    /// ```
    pub fn reserve(&mut self, n_nodes: usize) {
        let n_nodes = n_nodes.min(self.kind.nodes().len());
        self.slots.reserve_exact(n_nodes.saturating_sub(self.slots.len()));
    }

    /// The scalar or array at a path such as `alarm.severity`; `None` if there is none.
    pub fn get(&self, path: &str) -> Option<&Value> {
        self.value(self.kind.node(path)?)
    }

    /// The scalar or array of the node `bit`; `None` if the node does not exist or holds something else.
    #[inline]
    pub fn value(&self, bit: usize) -> Option<&Value> {
        match self.node(bit) {
            Some(NodeValue::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// The value of the node `bit`; `None` if there is no such node.
    #[inline]
    pub fn node(&self, bit: usize) -> Option<&NodeValue> {
        let initial = || self.kind.nodes().get(bit).map(|node| NodeValue::initial(&node.kind));
        self.slots.get(bit).or_else(initial)
    }

    /// Stores the value of a node that exists.
    #[inline]
    fn store(&mut self, bit: usize, value: NodeValue) {
        if bit > self.slots.len() {
            self.fill_up_to(bit);
        }
        match self.slots.get_mut(bit) {
            Some(slot) => *slot = value,
            None => self.slots.push(value),
        }
    }

    /// Stores initial values in the nodes before `end`; usually one structure, whose first member is set.
    fn fill_up_to(&mut self, end: usize) {
        let nodes = self.kind.nodes().get(self.slots.len()..end).unwrap_or_default();
        self.slots.extend(nodes.iter().map(|node| match &node.kind {
            NodeKind::Structure { .. } => NodeValue::Structure,
            kind => NodeValue::initial(kind).clone(),
        }));
    }

    /// Sets the scalar or array at a path and marks it as changed. Converts the value to the node's kind.
    pub fn set(&mut self, path: &str, value: impl Into<Value>) -> Result<(), StructureError> {
        let bit = self.kind.node(path).ok_or_else(|| StructureError::NoSuchNode(path.into()))?;
        self.set_value(bit, value.into())
    }

    /// The same as [`Structure::set`] for the node `bit`.
    pub fn set_value(&mut self, bit: usize, value: Value) -> Result<(), StructureError> {
        let value = self.converted(bit, value)?;
        self.store(bit, NodeValue::Value(value));
        self.changed.insert(bit);
        Ok(())
    }

    fn converted(&self, bit: usize, value: Value) -> Result<Value, StructureError> {
        let Some(node) = self.kind.nodes().get(bit) else {
            return Err(StructureError::NoSuchNode(bit.to_string().into()));
        };
        let too_large = |max| StructureError::Size { path: self.kind.path(bit).into(), max };
        match (&node.kind, value) {
            (NodeKind::Scalar(kind), Value::Scalar(scalar)) if scalar.kind() == *kind => Ok(Value::Scalar(scalar)),
            (NodeKind::Scalar(kind), value) => {
                let first = value.first().ok_or(ConvertError::Empty)?;
                Ok(Value::Scalar(first.to_kind(*kind, None)?))
            }
            (NodeKind::BoundedText(max), value) => match value.first().ok_or(ConvertError::Empty)?.to_text(None) {
                text if text.len() <= *max as usize => Ok(Value::Scalar(Scalar::Text(text))),
                _ => Err(too_large(*max)),
            },
            (NodeKind::Array { kind, size }, value) => {
                let array = value.into_array().to_kind(*kind, None)?;
                match size {
                    ArraySize::Max(max) if array.len() > *max as usize => Err(too_large(*max)),
                    ArraySize::Fixed(n) if array.len() != *n as usize => Err(too_large(*n)),
                    _ => Ok(Value::Array(array)),
                }
            }
            _ => Err(StructureError::OtherKind(self.kind.path(bit).into())),
        }
    }

    /// Sets the value of any node but a structure, and marks it as changed. The value must match the node's type.
    #[inline]
    pub fn set_node(&mut self, bit: usize, value: NodeValue) -> Result<(), StructureError> {
        match (self.kind.nodes().get(bit).map(|node| &node.kind), &value) {
            // Most nodes; nothing is converted.
            (Some(NodeKind::Scalar(kind)), NodeValue::Value(Value::Scalar(scalar))) if scalar.kind() == *kind => {
                self.store(bit, value);
                self.changed.insert(bit);
                Ok(())
            }
            _ => self.set_other_node(bit, value),
        }
    }

    fn set_other_node(&mut self, bit: usize, value: NodeValue) -> Result<(), StructureError> {
        let kind = self.kind.nodes().get(bit).map(|node| &node.kind);
        let is_of = |kind: &Arc<StructureType>, of: &Structure| Arc::ptr_eq(kind, &of.kind) || *kind == of.kind;
        let is_match = match (kind, &value) {
            (_, NodeValue::Value(_)) => {
                let NodeValue::Value(value) = value else { unreachable!("matched above") };
                return self.set_value(bit, value);
            }
            (Some(NodeKind::StructureArray(kind)), NodeValue::Structures(elements)) => {
                elements.iter().flatten().all(|element| is_of(kind, element))
            }
            (Some(NodeKind::Union(kind)), NodeValue::Union(value)) => {
                value.iter().all(|value| kind.member(value.selector).is_some_and(|kind| is_of(kind, &value.value)))
            }
            (Some(NodeKind::UnionArray(kind)), NodeValue::Unions(elements)) => {
                let is_member =
                    |value: &UnionValue| kind.member(value.selector).is_some_and(|kind| is_of(kind, &value.value));
                elements.iter().flatten().all(is_member)
            }
            (Some(NodeKind::Any), NodeValue::Any(_)) | (Some(NodeKind::AnyArray), NodeValue::Anys(_)) => true,
            _ => false,
        };
        if !is_match {
            return Err(StructureError::OtherKind(self.path(bit)));
        }
        self.store(bit, value);
        self.changed.insert(bit);
        Ok(())
    }

    /// An element of the structure array at the node `bit`, to change it; `None` if it is missing. Marks the array as
    /// changed. Elements that other structures share are copied.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use fodo_data::{Kind, NodeKind, NodeValue, Structure, StructureBuilder, StructureError};
    ///
    /// let size = Arc::new(StructureBuilder::new("size_t").scalar("size", Kind::I32).finish());
    /// let mut build = StructureBuilder::new("");
    /// let kind = build.leaf("dimension", NodeKind::StructureArray(size.clone())).finish();
    /// let mut image = Structure::new(Arc::new(kind));
    /// image.set_node(1, NodeValue::Structures(Arc::new(vec![Some(Structure::new(size)), None])))?;
    /// image.unmark_all();
    ///
    /// image.element_mut(1, 0).expect("it exists").set("size", 640)?;
    /// assert!(image.element_mut(1, 1).is_none() && image.changed().iter().eq([1]));
    /// # Ok::<(), StructureError>(())
    /// ```
    pub fn element_mut(&mut self, bit: usize, index: usize) -> Option<&mut Structure> {
        let Some(NodeValue::Structures(elements)) = self.slots.get_mut(bit) else { return None };
        if !matches!(elements.get(index), Some(Some(_))) {
            return None;
        }
        self.changed.insert(bit);
        Arc::make_mut(elements).get_mut(index)?.as_mut()
    }

    fn path(&self, bit: usize) -> Text {
        if bit < self.kind.nodes().len() { self.kind.path(bit).into() } else { bit.to_string().into() }
    }

    /// The nodes that changed; the bit of a structure stands for all of its members.
    pub fn changed(&self) -> &BitSet {
        &self.changed
    }

    /// Marks a node as changed; does nothing if there is no such node.
    pub fn mark(&mut self, bit: usize) {
        if bit < self.kind.nodes().len() {
            self.changed.insert(bit);
        }
    }

    /// Marks a node as not changed. A member of a structure that is marked as a whole remains changed.
    pub fn unmark(&mut self, bit: usize) {
        self.changed.remove(bit);
    }

    /// Marks nothing as changed.
    pub fn unmark_all(&mut self) {
        self.changed.clear();
    }

    /// Marks exactly these nodes as changed.
    pub fn mark_only(&mut self, mut bits: BitSet) {
        bits.truncate(self.kind.nodes().len());
        self.changed = bits;
    }

    /// Copies the changed nodes of another structure of the same type, and marks them as changed.
    pub fn apply(&mut self, delta: &Structure) -> Result<(), StructureError> {
        if !Arc::ptr_eq(&self.kind, &delta.kind) && self.kind != delta.kind {
            return Err(StructureError::OtherType);
        }
        for bits in delta.kind.covered(&delta.changed) {
            // After these, both have initial values.
            let n_stored = self.slots.len().max(delta.slots.len());
            for (bit, value) in bits.take_while(|bit| *bit < n_stored).filter_map(|bit| Some((bit, delta.node(bit)?))) {
                self.store(bit, value.clone());
            }
        }
        self.changed.union_with(&delta.changed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, StructureBuilder, UnionMember, UnionType};

    fn alarmed() -> Structure {
        let mut build = StructureBuilder::new("top_t");
        build.scalar("value", Kind::F64).open("alarm", "alarm_t");
        build.scalar("severity", Kind::I32).leaf("message", NodeKind::BoundedText(4)).close();
        build.leaf("pair", NodeKind::Array { kind: Kind::I16, size: ArraySize::Fixed(2) });
        Structure::new(Arc::new(build.finish()))
    }

    #[test]
    fn a_new_structure_holds_zeros_and_has_no_changes() {
        let new = alarmed();

        assert_eq!(new.get("value"), Some(&0.0.into()));
        assert_eq!(new.get("alarm.message"), Some(&"".into()));
        assert_eq!((new.get("alarm"), new.get("none")), (None, None));
        assert!(new.changed().is_empty());
    }

    #[test]
    fn a_value_is_converted_to_the_kind_of_its_node_and_marked() {
        let mut values = alarmed();

        assert_eq!(values.set("alarm.severity", "2"), Ok(()));
        assert_eq!(values.set("pair", vec![1.9, 2.9]), Ok(()));

        assert_eq!(values.get("alarm.severity"), Some(&2_i32.into()));
        assert_eq!(values.get("pair"), Some(&vec![1_i16, 2].into()));
        assert!(values.changed().iter().eq([3, 5]));
        values.unmark(3);
        assert!(values.changed().iter().eq([5]));
    }

    #[test]
    fn a_value_that_the_node_cannot_hold_is_rejected() {
        let mut values = alarmed();

        assert_eq!(values.set("alarm", 1.0), Err(StructureError::OtherKind("alarm".into())));
        assert_eq!(values.set("alarms", 1.0), Err(StructureError::NoSuchNode("alarms".into())));
        assert_eq!(values.set("value", "x"), Err(StructureError::Convert(ConvertError::NotANumber("x".into()))));
        let too_long = Err(StructureError::Size { path: "alarm.message".into(), max: 4 });
        assert_eq!(values.set("alarm.message", "12345"), too_long);
        assert_eq!(values.set("pair", vec![1_i16]), Err(StructureError::Size { path: "pair".into(), max: 2 }));
        assert_eq!(values.set_node(9, NodeValue::Any(None)), Err(StructureError::OtherKind("9".into())));
        assert!(values.changed().is_empty());
    }

    #[test]
    fn applying_a_delta_copies_only_the_changed_nodes() {
        let (mut cached, mut delta) = (alarmed(), alarmed());
        cached.set("value", 1.0).unwrap();
        cached.set("alarm.message", "HIGH").unwrap();
        cached.unmark_all();
        delta.set("alarm.severity", 1).unwrap();
        delta.unmark_all();
        delta.mark(2);

        assert_eq!(cached.apply(&delta), Ok(()));

        assert_eq!(cached.get("value"), Some(&1.0.into()));
        assert_eq!(cached.get("alarm.severity"), Some(&1_i32.into()));
        assert_eq!(cached.get("alarm.message"), Some(&"".into()), "the bit of a structure covers its members");
        assert!(cached.changed().iter().eq([2]));
        let other = Structure::single(1.0.into());
        assert_eq!(cached.apply(&other), Err(StructureError::OtherType));
    }

    #[test]
    fn a_union_accepts_only_values_of_its_members() {
        let number = Structure::single(1.5.into());
        let members = vec![UnionMember { name: "number".into(), kind: number.kind().clone() }];
        let kind = Arc::new(UnionType { id: Text::EMPTY, members });
        let mut build = StructureBuilder::new("");
        build.leaf("choice", NodeKind::Union(kind)).leaf("any", NodeKind::Any);
        let mut values = Structure::new(Arc::new(build.finish()));
        let selected = |selector, value: Structure| NodeValue::Union(Some(Box::new(UnionValue { selector, value })));

        assert_eq!(values.set_node(1, selected(0, number.clone())), Ok(()));
        let refused = Err(StructureError::OtherKind("choice".into()));
        assert_eq!(values.set_node(1, selected(1, number.clone())), refused);
        assert_eq!(values.set_node(1, selected(0, Structure::single("x".into()))), refused);
        assert_eq!(values.set_node(2, NodeValue::Any(Some(Box::new(number)))), Ok(()));
        assert!(values.changed().iter().eq([1, 2]));
    }

    #[test]
    fn structures_are_equal_whichever_of_their_nodes_were_stored() {
        let (mut first, mut last) = (alarmed(), alarmed());
        first.set("value", 0.0).unwrap();
        last.set("pair", vec![0_i16, 0]).unwrap();
        let differ = first == last;
        last.set_node(5, NodeValue::Value(Vec::<i16>::new().into())).unwrap_err();
        first.set("pair", vec![0_i16, 0]).unwrap();

        [&mut first, &mut last].into_iter().for_each(Structure::unmark_all);
        let are_equal = first == last;
        first.set("alarm.message", "LOW").unwrap();
        first.unmark_all();

        assert_eq!((differ, are_equal, first == last), (false, true, false));
        assert_eq!((last.node(0), last.node(6)), (Some(&NodeValue::Structure), None));
        assert_eq!(last.value(1), Some(&0.0.into()));
    }

    #[test]
    fn a_new_node_has_the_value_of_its_kind() {
        let choice = Arc::new(UnionType { id: Text::EMPTY, members: Vec::new() });
        let part = Arc::new(StructureBuilder::new("part_t").finish());
        for (kind, expected) in [
            (NodeKind::Scalar(Kind::I16), NodeValue::Value(0_i16.into())),
            (NodeKind::Scalar(Kind::Enum), NodeValue::Value(Value::Scalar(Scalar::Enum(0)))),
            (NodeKind::Scalar(Kind::Bool), NodeValue::Value(false.into())),
            (NodeKind::BoundedText(4), NodeValue::Value("".into())),
            (
                NodeKind::Array { kind: Kind::Text, size: ArraySize::Variable },
                NodeValue::Value(Vec::<Text>::new().into()),
            ),
            (NodeKind::StructureArray(part), NodeValue::Structures(Arc::default())),
            (NodeKind::Union(choice.clone()), NodeValue::Union(None)),
            (NodeKind::UnionArray(choice), NodeValue::Unions(Arc::default())),
            (NodeKind::Any, NodeValue::Any(None)),
            (NodeKind::AnyArray, NodeValue::Anys(Arc::default())),
        ] {
            let mut build = StructureBuilder::new("");
            build.leaf("first", kind.clone()).leaf("second", kind.clone()).scalar("last", Kind::F64);
            let mut structure = Structure::new(Arc::new(build.finish()));
            assert_eq!(structure.node(1), Some(&expected), "{kind:?}");

            structure.set("last", 1.0).unwrap();

            assert_eq!((structure.node(1), structure.node(2)), (Some(&expected), Some(&expected)), "{kind:?}");
        }
    }

    #[test]
    fn the_memory_of_a_structure_includes_what_its_nodes_refer_to() {
        let mut build = StructureBuilder::new("");
        build.array("list", Kind::F64).leaf("any", NodeKind::Any).scalar("text", Kind::Text);
        let mut structure = Structure::new(Arc::new(build.finish()));
        let empty = structure.n_bytes();
        assert_eq!(empty, 4 * size_of::<NodeValue>());

        structure.set("list", vec![1.5; 100]).unwrap();
        structure.set("text", "twelve bytes").unwrap();
        let with_values = structure.n_bytes();
        assert_eq!(with_values, empty + 800 + 12);

        let elements = StructureType::single(NodeKind::StructureArray(structure.kind().clone()));
        let mut many = Structure::new(Arc::new(elements));
        many.set_node(0, NodeValue::Structures(Arc::new(vec![Some(structure), None]))).unwrap();
        assert!(many.n_bytes() > with_values + 2 * size_of::<Structure>());
    }
}
