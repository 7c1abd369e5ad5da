use std::fmt;

use super::{FieldType, IMAGE_MEMBERS, NormativeField, NormativeType};
use crate::{Array, Kind, NodeKind, NodeValue, Structure, StructureType, Text, Value};

/// Why a structure is not of its normative type.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_data::{Kind, NormativeError, NormativeType, Structure, StructureBuilder};
///
/// let mut build = StructureBuilder::new("epics:nt/NTNameValue:1.0");
/// let kind = build.array("name", Kind::Text).scalar("value", Kind::F64).finish();
/// let error = NormativeType::of(&kind).unwrap_err();
/// assert_eq!(error.to_string(), "NTNameValue: the field value is double: expected an array of scalars");
/// assert!(matches!(error, NormativeError::Field { of: NormativeType::NameValue, .. }));
///
/// let mut build = StructureBuilder::new("epics:nt/NTNameValue:1.0");
/// let kind = build.array("name", Kind::Text).array("value", Kind::F64).finish();
/// assert_eq!(NormativeType::of(&kind), Ok(NormativeType::NameValue));
/// let mut pair = Structure::new(Arc::new(kind));
/// pair.set("value", vec![1.5, 2.5]).expect("the field exists");
/// let error = NormativeType::NameValue.check_values(&pair).unwrap_err();
/// assert_eq!(error.to_string(), "NTNameValue: the field name has length 0: expected 2, the length of value");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NormativeError {
    /// The id of the structure names no normative type, or a version other than 1.
    Id(Text),
    /// A field does not match.
    Field {
        /// The type that the id names.
        of: NormativeType,
        /// The path of the field, in which `[]` is an element of an array.
        field: String,
        /// What it is or has, with the verb.
        found: String,
        /// What it must be or have.
        expected: String,
    },
}

impl fmt::Display for NormativeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NormativeError::Id(id) => {
                write!(f, "the type \"{id}\" is not normative: expected an id such as \"epics:nt/NTTable:1.0\"")
            }
            NormativeError::Field { of, field, found, expected } => {
                write!(f, "{}: the field {field} {found}: expected {expected}", of.name())
            }
        }
    }
}

impl std::error::Error for NormativeError {}

impl NormativeType {
    /// The normative type to which a type conforms: its id names one, and it has the fields of that one with their types.
    /// Further fields, the order of the fields, and the ids of the structures inside are not checked.
    /// [`NormativeError`] has an example.
    pub fn of(kind: &StructureType) -> Result<NormativeType, NormativeError> {
        let of = NormativeType::from_id(&kind.id().to_str()).ok_or_else(|| NormativeError::Id(kind.id().clone()))?;
        check_fields(of, of.fields(), kind, 0, "")?;
        Ok(of)
    }

    /// Checks what the specification demands of the values, such as columns of the same length. A field that is missing
    /// or has another type is not checked. [`NormativeError`] has an example.
    pub fn check_values(self, structure: &Structure) -> Result<(), NormativeError> {
        let values = Values { of: self, structure };
        match self {
            NormativeType::Matrix => values.check_matrix()?,
            NormativeType::NameValue => values.check_lengths(&["value", "name"])?,
            NormativeType::Table => values.check_table()?,
            NormativeType::MultiChannel | NormativeType::ScalarMultiChannel => values.check_channels()?,
            NormativeType::NdArray => values.check_image()?,
            NormativeType::Continuum => values.check_continuum()?,
            NormativeType::Histogram => values.check_histogram()?,
            NormativeType::Aggregate => values.check_range("N", 0, i64::MAX)?,
            _ => {}
        }
        values.check_range("alarm.severity", 0, 4)?;
        values.check_range("alarm.status", 0, 7)
    }
}

fn check_fields(
    of: NormativeType,
    fields: &[NormativeField],
    kind: &StructureType,
    at: usize,
    parent: &str,
) -> Result<(), NormativeError> {
    for field in fields {
        let path = if parent.is_empty() { field.name.to_owned() } else { format!("{parent}.{}", field.name) };
        let fault = |found: String| {
            let expected = field.kind.to_string();
            Err(NormativeError::Field { of, field: path.clone(), found, expected })
        };
        let Some(bit) = kind.member(at, field.name.as_bytes()) else {
            if field.is_optional {
                continue;
            }
            return fault("is missing".to_owned());
        };
        match (&field.kind, &kind.nodes()[bit].kind) {
            (FieldType::Structure(inner), NodeKind::Structure { .. }) => {
                check_fields(of, inner.fields, kind, bit, &path)?;
            }
            (FieldType::StructureArray(inner), NodeKind::StructureArray(element)) => {
                check_fields(of, inner.fields, element, 0, &format!("{path}[]"))?;
            }
            (FieldType::Columns, NodeKind::Structure { .. }) => {
                let is_array = |&column: &usize| matches!(kind.nodes()[column].kind, NodeKind::Array { .. });
                if let Some(column) = kind.members(bit).find(|column| !is_array(column)) {
                    let field = format!("{path}.{}", kind.nodes()[column].name);
                    let found = found_type(&kind.nodes()[column].kind);
                    return Err(NormativeError::Field { of, field, found, expected: FieldType::AnyArray.to_string() });
                }
            }
            (expected, found) if is_of(*expected, found) => {}
            (_, found) => return fault(found_type(found)),
        }
    }
    Ok(())
}

/// Whether a node without members is of a type.
fn is_of(expected: FieldType, found: &NodeKind) -> bool {
    match (expected, found) {
        (FieldType::Scalar(expected), NodeKind::Scalar(kind))
        | (FieldType::Array(expected), NodeKind::Array { kind, .. }) => *kind == expected,
        (FieldType::Scalar(Kind::Text) | FieldType::AnyScalar, NodeKind::BoundedText(_)) => true,
        (FieldType::AnyScalar, NodeKind::Scalar(_)) | (FieldType::AnyArray, NodeKind::Array { .. }) => true,
        (FieldType::AnyNumber, NodeKind::Scalar(kind)) => !matches!(kind, Kind::Text | Kind::Bool),
        (FieldType::IntegerArray, NodeKind::Array { kind, .. }) => matches!(kind, Kind::I16 | Kind::I32 | Kind::I64),
        (FieldType::Members, NodeKind::Structure { .. }) => true,
        (FieldType::Any | FieldType::AnyUnion, NodeKind::Any) => true,
        (FieldType::AnyUnion, NodeKind::Union(_)) => true,
        (FieldType::AnyUnionArray, NodeKind::AnyArray | NodeKind::UnionArray(_)) => true,
        (FieldType::ImageUnion, NodeKind::Union(union)) => IMAGE_MEMBERS.iter().all(|(name, expected)| {
            let member = union.members.iter().find(|member| member.name.as_bytes() == name.as_bytes());
            member.is_some_and(|member| is_of(FieldType::Array(*expected), &member.kind.nodes()[0].kind))
        }),
        _ => false,
    }
}

fn found_type(kind: &NodeKind) -> String {
    match kind {
        NodeKind::Structure { .. } => "is a structure".to_owned(),
        NodeKind::Scalar(kind) => format!("is {}", kind.pva_name()),
        NodeKind::BoundedText(_) => "is string".to_owned(),
        NodeKind::Array { kind, .. } => format!("is {}[]", kind.pva_name()),
        NodeKind::StructureArray(_) => "is an array of structures".to_owned(),
        NodeKind::Union(union) => format!("is {union}"),
        NodeKind::UnionArray(union) => format!("is an array of {union}"),
        NodeKind::Any => "is a variant union".to_owned(),
        NodeKind::AnyArray => "is an array of variant unions".to_owned(),
    }
}

/// The values of a structure, for their checks.
struct Values<'a> {
    of: NormativeType,
    structure: &'a Structure,
}

impl Values<'_> {
    fn fault(&self, field: &str, found: String, expected: String) -> Result<(), NormativeError> {
        Err(NormativeError::Field { of: self.of, field: field.to_owned(), found, expected })
    }

    /// The number of elements of an array; `None` if there is no array with this path.
    fn length(&self, path: &str) -> Option<usize> {
        match self.structure.node(self.structure.kind().node(path)?)? {
            NodeValue::Value(Value::Array(array)) => Some(array.len()),
            NodeValue::Unions(elements) => Some(elements.len()),
            NodeValue::Anys(elements) | NodeValue::Structures(elements) => Some(elements.len()),
            _ => None,
        }
    }

    fn expect_length(&self, path: &str, expected: usize, why: &str) -> Result<(), NormativeError> {
        match self.length(path) {
            Some(found) if found != expected => {
                self.fault(path, format!("has length {found}"), format!("{expected}, {why}"))
            }
            _ => Ok(()),
        }
    }

    /// The first array determines the length of the others.
    fn check_lengths(&self, paths: &[&str]) -> Result<(), NormativeError> {
        let Some((first, length)) = paths.iter().find_map(|path| Some((path, self.length(path)?))) else {
            return Ok(());
        };
        paths.iter().try_for_each(|path| self.expect_length(path, length, &format!("the length of {first}")))
    }

    fn check_range(&self, path: &str, low: i64, high: i64) -> Result<(), NormativeError> {
        match self.structure.get(path).and_then(|value| value.to_f64().ok()) {
            Some(number) if number < low as f64 || number > high as f64 => {
                let expected = if high == i64::MAX { format!("at least {low}") } else { format!("{low} to {high}") };
                self.fault(path, format!("is {number}"), expected)
            }
            _ => Ok(()),
        }
    }

    fn check_matrix(&self) -> Result<(), NormativeError> {
        let Some(Value::Array(Array::I32(sizes))) = self.structure.get("dim") else { return Ok(()) };
        if !(1..=2).contains(&sizes.len()) {
            return self.fault("dim", format!("has length {}", sizes.len()), "1 or 2".to_owned());
        }
        if let Some(size) = sizes.iter().find(|size| **size <= 0) {
            return self.fault("dim", format!("contains {size}"), "sizes of at least 1".to_owned());
        }
        self.expect_length("value", product(sizes.iter().copied()), "the product of dim")
    }

    fn check_table(&self) -> Result<(), NormativeError> {
        let kind = self.structure.kind();
        let Some(value) = kind.node("value") else { return Ok(()) };
        let columns: Vec<String> = kind.members(value).map(|column| kind.path(column)).collect();
        self.check_lengths(&columns.iter().map(String::as_str).collect::<Vec<_>>())?;
        self.expect_length("labels", columns.len(), "one for each column")
    }

    fn check_channels(&self) -> Result<(), NormativeError> {
        self.check_lengths(&["value", "channelName"])?;
        let per_channel =
            ["severity", "status", "message", "secondsPastEpoch", "nanoseconds", "userTag", "isConnected"];
        let Some(length) = self.length("value") else { return Ok(()) };
        // Programs leave the fields empty that they do not set.
        let is_set = |path: &&&str| self.length(path).is_some_and(|length| length > 0);
        per_channel.iter().filter(is_set).try_for_each(|path| self.expect_length(path, length, "the length of value"))
    }

    fn check_image(&self) -> Result<(), NormativeError> {
        let Some(image) = super::ImageContent::of(self.structure) else { return Ok(()) };
        let has_dimensions = self.structure.kind().node("dimension").is_some();
        let is_plain = has_dimensions && image.codec.is_empty();
        let Some(elements) = image.elements.filter(|_| is_plain) else { return Ok(()) };
        let expected = if image.dimensions.is_empty() { 0 } else { product(image.sizes()) };
        if elements.len() < expected {
            let found = format!("has length {}", elements.len());
            return self.fault("value", found, format!("at least {expected}, the product of the dimensions"));
        }
        let element_bytes = elements.kind().n_bytes().unwrap_or(0);
        for (path, n_elements, why) in [
            ("compressedSize", elements.len(), "the bytes of value"),
            ("uncompressedSize", expected, "the bytes of all dimensions"),
        ] {
            let expected = (n_elements * element_bytes) as f64;
            match self.structure.get(path).and_then(|value| value.to_f64().ok()) {
                Some(found) if found != expected => {
                    return self.fault(path, format!("is {found}"), format!("{expected}, {why}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_continuum(&self) -> Result<(), NormativeError> {
        let (Some(base), Some(value)) = (self.length("base"), self.length("value")) else { return Ok(()) };
        if base == 0 {
            return self.expect_length("value", 0, "the length of base");
        }
        if value % base != 0 {
            return self.fault(
                "value",
                format!("has length {value}"),
                format!("a multiple of {base}, the length of base"),
            );
        }
        self.expect_length("units", value / base + 1, "one for base and one for each value of a point")
    }

    fn check_histogram(&self) -> Result<(), NormativeError> {
        let Some(value) = self.length("value") else { return Ok(()) };
        self.expect_length("ranges", value + 1, "one more than value")
    }
}

/// The number of elements of an array with these dimensions.
fn product(sizes: impl Iterator<Item = i32>) -> usize {
    sizes.fold(1, |product: usize, size| product.saturating_mul(usize::try_from(size).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::StructureBuilder;

    /// A type with every optional field; a table with two columns.
    fn complete_type(of: NormativeType) -> StructureType {
        let optional = of.fields().iter().filter(|field| field.is_optional);
        let builder = optional.fold(of.builder(), |builder, field| builder.with(field.name));
        let built = match of {
            NormativeType::Scalar => builder.scalar("value", Kind::F64),
            NormativeType::Histogram => builder.array("value", Kind::I32),
            NormativeType::ScalarArray | NormativeType::NameValue | NormativeType::ScalarMultiChannel => {
                builder.array("value", Kind::F64)
            }
            NormativeType::Table => builder.column("a", Kind::F64).column("b", Kind::Text),
            NormativeType::Union => builder.field("value", StructureType::single(NodeKind::Any)),
            _ => builder,
        };
        built.finish().unwrap()
    }

    /// A structure with every optional field.
    fn complete(of: NormativeType) -> Structure {
        Structure::new(Arc::new(complete_type(of)))
    }

    /// What is wrong with these values.
    fn fault(of: NormativeType, values: &[(&str, Value)]) -> String {
        let mut structure = complete(of);
        for (path, value) in values {
            structure.set(path, value.clone()).unwrap();
        }
        of.check_values(&structure).map_or_else(|error| error.to_string(), |()| String::new())
    }

    fn texts(n: usize) -> Value {
        vec![Text::EMPTY; n].into()
    }

    #[test]
    fn every_field_that_is_missing_or_has_another_type_is_named_with_what_was_expected() {
        for &of in NormativeType::ALL {
            let whole = complete_type(of);
            assert_eq!(NormativeType::of(&whole), Ok(of));
            for field in of.fields() {
                let [mut without, mut with_other] = [0; 2].map(|_| StructureBuilder::new(of.id()));
                for bit in whole.members(0) {
                    let name = whole.nodes()[bit].name.clone();
                    if name.as_bytes() == field.name.as_bytes() {
                        with_other.leaf(name, NodeKind::StructureArray(Arc::new(StructureBuilder::new("").finish())));
                        continue;
                    }
                    without.member(name.clone(), &whole.subtree(bit));
                    with_other.member(name, &whole.subtree(bit));
                }

                let expected = field.kind.to_string();
                let error = |found: &str| NormativeError::Field {
                    of,
                    field: field.name.to_owned(),
                    found: found.to_owned(),
                    expected: expected.clone(),
                };

                let missing = if field.is_optional { Ok(of) } else { Err(error("is missing")) };
                assert_eq!(NormativeType::of(&without.finish()), missing);
                if !matches!(field.kind, FieldType::StructureArray(_)) {
                    let other = Err(error("is an array of structures"));
                    assert_eq!(NormativeType::of(&with_other.finish()), other);
                }
            }
        }
    }

    #[test]
    fn a_field_within_a_structure_is_named_by_its_path() {
        let mut build = StructureBuilder::new("epics:nt/NTScalar:1.0");
        build.scalar("value", Kind::F64).open("alarm", "").scalar("severity", Kind::I32).scalar("status", Kind::Text);
        let alarm = NormativeType::of(&build.finish()).unwrap_err();
        let mut build = StructureBuilder::new("epics:nt/NTTable:1.0");
        build.array("labels", Kind::Text).open("value", "").array("a", Kind::I8).scalar("b", Kind::I8);
        let table = NormativeType::of(&build.finish()).unwrap_err();

        assert_eq!(alarm.to_string(), "NTScalar: the field alarm.status is string: expected int");
        assert_eq!(table.to_string(), "NTTable: the field value.b is byte: expected an array of scalars");
    }

    #[test]
    fn an_element_of_a_structure_array_is_checked() {
        let whole = complete_type(NormativeType::NdArray);
        let mut build = StructureBuilder::new("epics:nt/NTNDArray:1.0");
        let mut element = StructureBuilder::new("dimension_t");
        let element = Arc::new(element.scalar("size", Kind::I64).finish());
        for bit in whole.members(0) {
            match whole.nodes()[bit].name.to_str().as_ref() {
                "dimension" => build.leaf("dimension", NodeKind::StructureArray(element.clone())),
                name => build.member(name, &whole.subtree(bit)),
            };
        }

        let error = NormativeType::of(&build.finish()).unwrap_err();

        assert_eq!(error.to_string(), "NTNDArray: the field dimension[].size is long: expected int");
    }

    #[test]
    fn an_id_names_a_type_by_its_name_and_major_version() {
        for (id, expected) in [
            ("epics:nt/NTScalar:1.0", Some(NormativeType::Scalar)),
            ("epics:nt/NTScalar:1", Some(NormativeType::Scalar)),
            ("epics:nt/NTScalar:1.7.2", Some(NormativeType::Scalar)),
            ("epics:nt/NTScalar:10.0", None),
            ("epics:nt/NTScalar", None),
            ("epics:nt/ntscalar:1.0", None),
            ("NTScalar:1.0", None),
            ("", None),
        ] {
            assert_eq!(NormativeType::from_id(id), expected, "{id}");
        }
        let error = NormativeType::of(&StructureBuilder::new("scan_t").finish()).unwrap_err();
        let text = "the type \"scan_t\" is not normative: expected an id such as \"epics:nt/NTTable:1.0\"";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn values_that_the_specification_forbids_are_named_with_what_was_expected() {
        use NormativeType as T;

        let doubles = |n: usize| Value::from(vec![0.0; n]);
        let ints = |numbers: &[i32]| Value::from(numbers.to_vec());
        for (of, values, expected) in [
            (T::Matrix, vec![("dim", ints(&[2, 3])), ("value", doubles(6))], ""),
            (
                T::Matrix,
                vec![("dim", ints(&[2, 3])), ("value", doubles(5))],
                "value has length 5: expected 6, the product of dim",
            ),
            (T::Matrix, vec![("dim", ints(&[])), ("value", doubles(1))], "dim has length 0: expected 1 or 2"),
            (T::Matrix, vec![("dim", ints(&[0]))], "dim contains 0: expected sizes of at least 1"),
            (T::NameValue, vec![("name", texts(1)), ("value", doubles(1))], ""),
            (T::NameValue, vec![("name", texts(1))], "name has length 1: expected 0, the length of value"),
            (T::Table, vec![("labels", texts(2))], ""),
            (T::Table, vec![("labels", texts(1))], "labels has length 1: expected 2, one for each column"),
            (
                T::Table,
                vec![("value.b", texts(3)), ("labels", texts(2))],
                "value.b has length 3: expected 0, the length of value.a",
            ),
            (T::ScalarMultiChannel, vec![("channelName", texts(2)), ("value", doubles(2))], ""),
            (
                T::ScalarMultiChannel,
                vec![("channelName", texts(2)), ("value", doubles(2)), ("status", ints(&[1]))],
                "status has length 1: expected 2, the length of value",
            ),
            (
                T::MultiChannel,
                vec![("channelName", texts(2))],
                "channelName has length 2: expected 0, the length of value",
            ),
            (T::Continuum, vec![("base", doubles(2)), ("value", doubles(6)), ("units", texts(4))], ""),
            (
                T::Continuum,
                vec![("base", doubles(2)), ("value", doubles(5))],
                "value has length 5: expected a multiple of 2, the length of base",
            ),
            (
                T::Continuum,
                vec![("base", doubles(2)), ("value", doubles(2))],
                "units has length 0: expected 2, one for base and one for each value of a point",
            ),
            (T::Continuum, vec![("value", doubles(2))], "value has length 2: expected 0, the length of base"),
            (T::Histogram, vec![("ranges", doubles(3)), ("value", ints(&[5, 6]))], ""),
            (T::Histogram, vec![("value", ints(&[5, 6]))], "ranges has length 0: expected 3, one more than value"),
            (T::Aggregate, vec![("N", Value::from(-1))], "N is -1: expected at least 0"),
            (T::Enum, vec![("alarm.severity", Value::from(5))], "alarm.severity is 5: expected 0 to 4"),
            (T::Enum, vec![("alarm.status", Value::from(-1))], "alarm.status is -1: expected 0 to 7"),
        ] {
            let expected = match expected {
                "" => String::new(),
                fault => format!("{}: the field {fault}", of.name()),
            };
            assert_eq!(fault(of, &values), expected);
        }
    }
}
