use crate::{Array, Kind, NodeKind, NodeValue, Scalar, Structure, StructureType, Text, Value};

/// The columns of an NTTable.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_data::{Array, Kind, NormativeType, Structure, TableContent, TableColumn, Text};
///
/// let kind = NormativeType::Table.builder().column("x", Kind::F64).finish()?;
/// let mut orbit = Structure::new(Arc::new(kind));
/// orbit.set("labels", vec![Text::from("horizontal")])?;
/// orbit.set("value.x", vec![0.5, -0.25])?;
///
/// let table = TableContent::of(&orbit).expect("it has columns");
/// let elements = &Array::F64(Arc::new(vec![0.5, -0.25]));
/// assert_eq!(table.columns, [TableColumn { name: "x".into(), label: "horizontal".into(), elements }]);
/// assert_eq!((table.n_rows(), table.has_labels), (2, true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TableContent<'a> {
    /// The columns in their order.
    pub columns: Vec<TableColumn<'a>>,
    /// Whether there is one label for each column.
    pub has_labels: bool,
}

/// A column of a table. [`TableContent`] has an example.
#[derive(Clone, Debug, PartialEq)]
pub struct TableColumn<'a> {
    /// The name of its field.
    pub name: Text,
    /// Its label, or the name of its field if there is not one label for each column.
    pub label: Text,
    /// Its elements.
    pub elements: &'a Array,
}

/// Values of several PVs.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_data::{Kind, NormativeContent, NormativeReader, NormativeType, Structure, Text};
///
/// let kind = NormativeType::ScalarMultiChannel.builder().array("value", Kind::F64).finish()?;
/// let mut gaps = Structure::new(Arc::new(kind));
/// gaps.set("value", vec![4.5])?;
/// gaps.set("channelName", vec![Text::from("u46:gap")])?;
///
/// let content = NormativeReader::new(&gaps)?.content()?;
/// let NormativeContent::Channels(channels) = content else { panic!("it has the values of several PVs") };
/// assert_eq!(channels.names[0], "u46:gap".into());
/// assert_eq!(channels.values, [Some(Structure::single(4.5.into()))]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelsContent<'a> {
    /// The names of the PVs.
    pub names: &'a [Text],
    /// The values; `None` where one is missing.
    pub values: Vec<Option<Structure>>,
}

/// What an NTNDArray holds: an image, or another array of any number of dimensions.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_data::{
///     ImageContent, ImageDimension, NodeKind, NodeValue, NormativeType, Structure, UnionValue, Value,
/// };
///
/// let kind = NormativeType::NdArray.builder().finish()?;
/// let mut camera = Structure::new(Arc::new(kind));
/// assert_eq!(ImageContent::of(&camera).and_then(|image| image.elements.cloned()), None);
///
/// // Three columns and two rows of bytes; ubyteValue is the sixth member of the union.
/// let pixels = Value::from(vec![0_u8, 1, 2, 3, 4, 255]);
/// let union = UnionValue { selector: 5, value: Structure::single(pixels.clone()) };
/// camera.set_node(1, NodeValue::Union(Some(Box::new(union))))?;
/// let bit = camera.kind().node("dimension").expect("it has dimensions");
/// let NodeKind::StructureArray(dimension) = camera.kind().nodes()[bit].kind.clone() else { panic!("structures") };
/// let mut dimensions = [3, 2].map(|_| Structure::new(dimension.clone()));
/// dimensions[0].set("size", 3)?;
/// dimensions[1].set("size", 2)?;
/// camera.set_node(bit, NodeValue::Structures(Arc::new(dimensions.map(Some).to_vec())))?;
///
/// let image = ImageContent::of(&camera).expect("it has a value");
/// assert_eq!(image.elements.cloned().map(Value::Array), Some(pixels));
/// assert!(image.sizes().eq([3, 2]) && image.codec.is_empty() && image.attributes.is_empty());
/// assert_eq!(image.dimensions[0], ImageDimension { size: 3, ..ImageDimension::default() });
/// assert!(!image.dimensions[0].is_whole(), "its full size is 0");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ImageContent<'a> {
    /// The elements, those of the first dimension next to each other; `None` if there is no image.
    pub elements: Option<&'a Array>,
    /// How the elements are compressed; empty if they are not.
    pub codec: Text,
    /// The dimensions, that of adjacent elements first: the width, then the height.
    pub dimensions: Vec<ImageDimension>,
    /// What describes the image.
    pub attributes: Vec<ImageAttribute<'a>>,
}

/// A dimension of an image. [`ImageContent`] has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageDimension {
    /// The number of elements.
    pub size: i32,
    /// The first element, in elements of the detector.
    pub offset: i32,
    /// The number of elements of the detector.
    pub full_size: i32,
    /// How many elements of the detector are one element.
    pub binning: i32,
    /// Whether the elements are in the opposite order.
    pub is_reversed: bool,
}

/// An attribute of an image: the members of [`ImageContent::attributes`].
#[derive(Clone, Debug, PartialEq)]
pub struct ImageAttribute<'a> {
    /// Its name.
    pub name: Text,
    /// Its value; `None` if there is none.
    pub value: Option<&'a Structure>,
    /// What it means.
    pub descriptor: Text,
    /// Where it was read.
    pub source: Text,
}

impl<'a> TableContent<'a> {
    /// Reads an NTTable; `None` if it has no structure `value` of which all members are arrays. The labels may be missing,
    /// and the columns may have different lengths.
    pub fn of(structure: &'a Structure) -> Option<TableContent<'a>> {
        let kind: &'a StructureType = structure.kind();
        let value = kind.node("value")?;
        if !matches!(kind.nodes()[value].kind, NodeKind::Structure { .. }) {
            return None;
        }
        let mut columns = Vec::new();
        for bit in kind.members(value) {
            let Some(Value::Array(elements)) = structure.value(bit) else { return None };
            let name = kind.nodes()[bit].name.clone();
            columns.push(TableColumn { label: name.clone(), name, elements });
        }
        let labels: &[Text] = match structure.get("labels") {
            Some(Value::Array(Array::Text(labels))) => labels,
            _ => &[],
        };
        let has_labels = labels.len() == columns.len();
        if has_labels {
            columns.iter_mut().zip(labels).for_each(|(column, label)| column.label = label.clone());
        }
        Some(TableContent { columns, has_labels })
    }

    /// The number of elements of the longest column.
    pub fn n_rows(&self) -> usize {
        self.columns.iter().map(|column| column.elements.len()).max().unwrap_or(0)
    }
}

impl<'a> ImageContent<'a> {
    /// Reads an NTNDArray; `None` if its value is neither a union nor an array. What else is missing is empty.
    pub fn of(structure: &'a Structure) -> Option<ImageContent<'a>> {
        let elements = match structure.node(structure.kind().node("value")?)? {
            NodeValue::Value(Value::Array(array)) => Some(array),
            NodeValue::Union(value) => value.as_ref().and_then(|value| elements_of(&value.value)),
            NodeValue::Any(value) => value.as_deref().and_then(elements_of),
            _ => return None,
        };
        let parts = |name: &str| match structure.node(structure.kind().node(name)?)? {
            NodeValue::Structures(parts) => Some(parts.iter().flatten()),
            _ => None,
        };
        Some(ImageContent {
            elements,
            codec: text(structure, "codec.name").unwrap_or_default(),
            dimensions: parts("dimension").into_iter().flatten().map(dimension).collect(),
            attributes: parts("attribute").into_iter().flatten().map(attribute).collect(),
        })
    }

    /// The number of elements in each dimension.
    pub fn sizes(&self) -> impl Iterator<Item = i32> + '_ {
        self.dimensions.iter().map(|dimension| dimension.size)
    }
}

impl ImageDimension {
    /// Whether it is that of the detector: complete, without binning and in the same order. [`ImageContent`] has an
    /// example.
    pub fn is_whole(&self) -> bool {
        let whole = ImageDimension { offset: 0, binning: 1, full_size: self.size, is_reversed: false, ..*self };
        *self == whole
    }
}

fn elements_of(value: &Structure) -> Option<&Array> {
    match value.value(0)? {
        Value::Array(array) => Some(array),
        Value::Scalar(_) => None,
    }
}

fn dimension(of: &Structure) -> ImageDimension {
    let number = |name: &str| match of.get(name).and_then(|value| value.to_kind(Kind::I32, None).ok()) {
        Some(Value::Scalar(Scalar::I32(number))) => number,
        _ => 0,
    };
    ImageDimension {
        size: number("size"),
        offset: number("offset"),
        full_size: number("fullSize"),
        binning: number("binning"),
        is_reversed: number("reverse") != 0,
    }
}

fn attribute(of: &Structure) -> ImageAttribute<'_> {
    let text = |name: &str| text(of, name).unwrap_or_default();
    ImageAttribute {
        name: text("name"),
        value: contents(of, "value").flatten(),
        descriptor: text("descriptor"),
        source: text("source"),
    }
}

/// The text of a field; `None` if it has another type or is missing.
pub(super) fn text(structure: &Structure, path: &str) -> Option<Text> {
    match structure.get(path) {
        Some(Value::Scalar(Scalar::Text(text))) => Some(text.clone()),
        _ => None,
    }
}

/// The contents of a variant union; `None` if the field is missing or is not one.
pub(super) fn contents<'a>(structure: &'a Structure, path: &str) -> Option<Option<&'a Structure>> {
    match structure.node(structure.kind().node(path)?)? {
        NodeValue::Any(value) => Some(value.as_deref()),
        _ => None,
    }
}

/// The name of a union's member; empty if there is no such member.
pub(super) fn member_name(kind: &StructureType, path: &str, selector: u32) -> Text {
    match kind.node(path).map(|bit| &kind.nodes()[bit].kind) {
        Some(NodeKind::Union(union)) => {
            union.members.get(selector as usize).map(|member| member.name.clone()).unwrap_or_default()
        }
        _ => Text::EMPTY,
    }
}
