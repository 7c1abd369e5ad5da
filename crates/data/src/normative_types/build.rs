use super::{FieldType, IMAGE_MEMBERS, NormativeError, NormativeField, NormativeType};
use crate::{ArraySize, Kind, NodeKind, StructureBuilder, StructureType, Text, UnionMember, UnionType};

/// Builds the type of a normative structure: its required fields, the optional ones that are requested, and further ones.
///
/// ```
/// use fodo_data::{Kind, NodeKind, NormativeType, StructureType};
///
/// let table = NormativeType::Table.builder().column("position", Kind::F64).column("name", Kind::Text).with("alarm");
/// assert_eq!(
///     table.finish()?.to_string(),
///     "epics:nt/NTTable:1.0 {Text[] labels, {F64[] position, Text[] name} value, \
///      alarm_t {I32 severity, I32 status, Text message} alarm}"
/// );
///
/// let image = NormativeType::NdArray.builder().scalar("exposure", Kind::F64).finish()?;
/// assert_eq!(image.node("exposure"), Some(image.nodes().len() - 1));
///
/// let histogram = NormativeType::Histogram.builder().array("value", Kind::I64).finish()?;
/// assert_eq!(histogram.to_string(), "epics:nt/NTHistogram:1.0 {F64[] ranges, I64[] value}");
///
/// let union = NormativeType::Union.builder().field("value", StructureType::single(NodeKind::Any)).finish()?;
/// assert_eq!(union.to_string(), "epics:nt/NTUnion:1.0 {any value}");
///
/// // A type that the table leaves open must be given.
/// let error = NormativeType::Scalar.builder().finish().unwrap_err();
/// assert_eq!(error.to_string(), "NTScalar: the field value is missing: expected a scalar");
/// # Ok::<(), fodo_data::NormativeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct NormativeBuilder {
    of: NormativeType,
    optional: Vec<Text>,
    given: Vec<(Text, StructureType)>,
}

impl NormativeType {
    /// Builds a type that conforms to this one. [`NormativeBuilder`] has examples.
    pub fn builder(self) -> NormativeBuilder {
        NormativeBuilder { of: self, optional: Vec::new(), given: Vec::new() }
    }
}

impl NormativeBuilder {
    /// Adds an optional field with the type that the specification has for it. Limits have the kind of the value.
    pub fn with(mut self, field: &str) -> NormativeBuilder {
        self.optional.push(field.into());
        self
    }

    /// Sets the type of a field: one whose type the table leaves open, or a further one.
    pub fn field(mut self, name: &str, kind: StructureType) -> NormativeBuilder {
        self.given.push((name.into(), kind));
        self
    }

    /// The same with one element.
    pub fn scalar(self, name: &str, kind: Kind) -> NormativeBuilder {
        self.field(name, StructureType::single(NodeKind::Scalar(kind)))
    }

    /// The same with an array.
    pub fn array(self, name: &str, kind: Kind) -> NormativeBuilder {
        self.field(name, array(kind))
    }

    /// Adds a column to the field `value` of a table.
    pub fn column(mut self, name: &str, kind: Kind) -> NormativeBuilder {
        let index = self.given.iter().position(|(field, _)| field.as_bytes() == b"value");
        let mut build = StructureBuilder::new("");
        if let Some((_, before)) = index.map(|index| self.given.remove(index)) {
            before.members(0).for_each(|bit| {
                build.member(before.nodes()[bit].name.clone(), &before.subtree(bit));
            });
        }
        let columns = build.array(name, kind).finish();
        self.field("value", columns)
    }

    /// The type. Fails if a field is missing or has a type that the specification does not permit.
    pub fn finish(mut self) -> Result<StructureType, NormativeError> {
        let mut build = StructureBuilder::new(self.of.id());
        // A state has no limits either.
        let usual = if self.of == NormativeType::Enum { Kind::Text } else { Kind::F64 };
        let value = self.given.iter().find(|(name, _)| name.as_bytes() == b"value");
        let value_kind = value.map_or(usual, |(_, kind)| match &kind.nodes()[0].kind {
            NodeKind::Scalar(kind) | NodeKind::Array { kind, .. } => *kind,
            _ => Kind::Text,
        });
        for field in self.of.fields() {
            let is_it = |name: &Text| name.as_bytes() == field.name.as_bytes();
            let is_requested = self.optional.iter().any(is_it);
            self.optional.retain(|name| !is_it(name));
            match self.given.iter().position(|(name, _)| is_it(name)).map(|index| self.given.remove(index)) {
                Some((name, kind)) => {
                    build.member(name, &kind);
                }
                None if is_requested || !field.is_optional => {
                    add(&mut build, field, value_kind);
                }
                None => {}
            }
        }
        if let Some(unknown) = self.optional.first() {
            let optional: Vec<&str> =
                self.of.fields().iter().filter(|field| field.is_optional).map(|field| field.name).collect();
            return Err(NormativeError::Field {
                of: self.of,
                field: unknown.to_string(),
                found: "is not an optional field".to_owned(),
                expected: format!("one of {}", optional.join(", ")),
            });
        }
        for (name, kind) in self.given {
            build.member(name, &kind);
        }
        let kind = build.finish();
        NormativeType::of(&kind).map(|_| kind)
    }
}

fn array(kind: Kind) -> StructureType {
    StructureType::single(NodeKind::Array { kind, size: ArraySize::Variable })
}

/// Adds a field with the type of the specification; nothing if that leaves the type open.
///
/// `value`: the kind of the field `value`, which its limits have too.
fn add(build: &mut StructureBuilder, field: &NormativeField, value: Kind) {
    let name = field.name;
    match field.kind {
        FieldType::Scalar(kind) => {
            build.scalar(name, kind);
        }
        FieldType::Array(kind) => {
            build.array(name, kind);
        }
        FieldType::AnyNumber => {
            build.scalar(name, value);
        }
        FieldType::Structure(inner) => {
            build.open(name, inner.id);
            add_all(build, inner.fields, value);
            build.close();
        }
        FieldType::StructureArray(inner) => {
            let mut element = StructureBuilder::new(inner.id);
            add_all(&mut element, inner.fields, value);
            build.leaf(name, NodeKind::StructureArray(element.finish().into()));
        }
        FieldType::Columns | FieldType::Members => {
            build.open(name, "").close();
        }
        FieldType::Any => {
            build.leaf(name, NodeKind::Any);
        }
        FieldType::AnyUnionArray => {
            build.leaf(name, NodeKind::AnyArray);
        }
        FieldType::ImageUnion => {
            let members = IMAGE_MEMBERS
                .iter()
                .map(|(name, kind)| UnionMember { name: (*name).into(), kind: array(*kind).into() });
            let union = UnionType { id: Text::EMPTY, members: members.collect() };
            build.leaf(name, NodeKind::Union(union.into()));
        }
        FieldType::AnyScalar | FieldType::AnyArray | FieldType::IntegerArray | FieldType::AnyUnion => {}
    }
}

/// Adds the fields of a structure. Of the metadata, a text and a bool have no limits and no format.
fn add_all(build: &mut StructureBuilder, fields: &[NormativeField], value: Kind) {
    let is_number = !matches!(value, Kind::Text | Kind::Bool);
    for field in fields {
        let is_of_numbers = field.kind == FieldType::AnyNumber || matches!(field.name, "precision" | "form");
        // The precision replaced it.
        let is_old = field.name == "format";
        if (is_number || !is_of_numbers) && !is_old {
            add(build, field, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normative_type;

    #[test]
    fn the_types_of_qsrv2_conform() {
        for kind in [Kind::Bool, Kind::I8, Kind::U64, Kind::F32, Kind::F64, Kind::Text, Kind::Enum] {
            for is_array in [false, true] {
                let kind = normative_type(kind, is_array);

                assert_eq!(NormativeType::of(&kind).unwrap().id(), kind.id().to_string());
            }
        }
    }

    #[test]
    fn limits_have_the_kind_of_the_value_and_a_text_has_none() {
        let display = |kind| {
            let built = NormativeType::Scalar.builder().scalar("value", kind).with("display").finish().unwrap();
            built.subtree(built.node("display").unwrap()).to_string()
        };

        let form = "I32 precision, enum_t {I32 index, Text[] choices} form";
        let limits = "display_t {I16 limitLow, I16 limitHigh, Text description, Text units";
        assert_eq!(display(Kind::I16), format!("{limits}, {form}}}"));
        assert_eq!(display(Kind::Text), "display_t {Text description, Text units}");
    }

    #[test]
    fn a_type_that_does_not_conform_is_not_built() {
        let fault = |built: NormativeBuilder| built.finish().unwrap_err().to_string();

        assert_eq!(
            fault(NormativeType::Histogram.builder().array("value", Kind::F64)),
            "NTHistogram: the field value is double[]: expected short[], int[] or long[]"
        );
        assert_eq!(
            fault(NormativeType::Scalar.builder().column("x", Kind::F64)),
            "NTScalar: the field value is a structure: expected a scalar"
        );
        assert_eq!(
            fault(NormativeType::Uri.builder().with("alarm")),
            "NTURI: the field alarm is not an optional field: expected one of authority, query"
        );
    }
}
