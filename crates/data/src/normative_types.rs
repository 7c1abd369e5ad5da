//! The types of the Normative Types specification: the table of their fields, and what builds, checks and reads them.

mod build;
mod check;
mod content;
mod read;
mod record;

use std::fmt;

pub use build::NormativeBuilder;
pub use check::NormativeError;
pub use content::{ChannelsContent, ImageAttribute, ImageContent, ImageDimension, TableColumn, TableContent};
pub use read::{NormativeContent, NormativeReader};
pub use record::normative_type;

use crate::Kind;

/// A field of a normative type: a row of the table. [`NormativeType`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormativeField {
    /// The name within its structure.
    pub name: &'static str,
    /// Whether a structure may lack the field.
    pub is_optional: bool,
    /// What it holds.
    pub kind: FieldType,
}

/// What a field of a normative type holds. [`NormativeType`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// One element of this kind.
    Scalar(Kind),
    /// Any number of elements of this kind.
    Array(Kind),
    /// One element of any kind.
    AnyScalar,
    /// One number of any kind.
    AnyNumber,
    /// Elements of any one kind.
    AnyArray,
    /// Signed integers of 16, 32 or 64 bits.
    IntegerArray,
    /// A structure with these fields.
    Structure(&'static FieldStructure),
    /// An array of structures with these fields.
    StructureArray(&'static FieldStructure),
    /// A structure of arrays with any names.
    Columns,
    /// A structure with any members.
    Members,
    /// A variant union.
    Any,
    /// A union or a variant union.
    AnyUnion,
    /// An array of unions or of variant unions.
    AnyUnionArray,
    /// A union of the arrays of an image.
    ImageUnion,
}

/// A structure within normative types, such as `alarm_t`. [`NormativeType`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldStructure {
    /// The name of the type. Programs omit it or have others, so that it is not checked.
    pub id: &'static str,
    /// The fields.
    pub fields: &'static [NormativeField],
}

/// The members of the union of an NTNDArray.
const IMAGE_MEMBERS: [(&str, Kind); 11] = [
    ("booleanValue", Kind::Bool),
    ("byteValue", Kind::I8),
    ("shortValue", Kind::I16),
    ("intValue", Kind::I32),
    ("longValue", Kind::I64),
    ("ubyteValue", Kind::U8),
    ("ushortValue", Kind::U16),
    ("uintValue", Kind::U32),
    ("ulongValue", Kind::U64),
    ("floatValue", Kind::F32),
    ("doubleValue", Kind::F64),
];

use FieldType::{
    Any, AnyArray, AnyNumber, AnyScalar, AnyUnion, AnyUnionArray, Array, Columns, ImageUnion, IntegerArray, Members,
    Scalar, Structure, StructureArray,
};

const fn field(name: &'static str, kind: FieldType) -> NormativeField {
    NormativeField { name, is_optional: false, kind }
}

const fn optional(name: &'static str, kind: FieldType) -> NormativeField {
    NormativeField { name, is_optional: true, kind }
}

const TEXT: FieldType = Scalar(Kind::Text);
const TEXTS: FieldType = Array(Kind::Text);
const INT: FieldType = Scalar(Kind::I32);
const INTS: FieldType = Array(Kind::I32);
const LONG: FieldType = Scalar(Kind::I64);
const DOUBLE: FieldType = Scalar(Kind::F64);
const DOUBLES: FieldType = Array(Kind::F64);

const ENUM_T: FieldStructure = FieldStructure { id: "enum_t", fields: &[field("index", INT), field("choices", TEXTS)] };
const ALARM_T: FieldStructure =
    FieldStructure { id: "alarm_t", fields: &[field("severity", INT), field("status", INT), field("message", TEXT)] };
const TIME_T: FieldStructure = FieldStructure {
    id: "time_t",
    fields: &[field("secondsPastEpoch", LONG), field("nanoseconds", INT), field("userTag", INT)],
};
/// Of a text there are only the description and the units. The older metadata has a format instead of the precision.
const DISPLAY_T: FieldStructure = FieldStructure {
    id: "display_t",
    fields: &[
        optional("limitLow", AnyNumber),
        optional("limitHigh", AnyNumber),
        field("description", TEXT),
        optional("units", TEXT),
        optional("precision", INT),
        optional("form", Structure(&ENUM_T)),
        optional("format", TEXT),
    ],
};
const CONTROL_T: FieldStructure = FieldStructure {
    id: "control_t",
    fields: &[field("limitLow", AnyNumber), field("limitHigh", AnyNumber), optional("minStep", AnyNumber)],
};
const VALUE_ALARM_T: FieldStructure = FieldStructure {
    id: "valueAlarm_t",
    fields: &[
        field("active", Scalar(Kind::Bool)),
        field("lowAlarmLimit", AnyNumber),
        field("lowWarningLimit", AnyNumber),
        field("highWarningLimit", AnyNumber),
        field("highAlarmLimit", AnyNumber),
        field("lowAlarmSeverity", INT),
        field("lowWarningSeverity", INT),
        field("highWarningSeverity", INT),
        field("highAlarmSeverity", INT),
        field("hysteresis", AnyNumber),
    ],
};
const CODEC_T: FieldStructure =
    FieldStructure { id: "codec_t", fields: &[field("name", TEXT), field("parameters", Any)] };
const DIMENSION_T: FieldStructure = FieldStructure {
    id: "dimension_t",
    fields: &[
        field("size", INT),
        field("offset", INT),
        field("fullSize", INT),
        field("binning", INT),
        field("reverse", Scalar(Kind::Bool)),
    ],
};
/// An NTAttribute with two more fields, in which the descriptor is not optional.
const IMAGE_ATTRIBUTE: FieldStructure = FieldStructure {
    id: "epics:nt/NTAttribute:1.0",
    fields: &[
        field("name", TEXT),
        field("value", Any),
        optional("tags", TEXTS),
        field("descriptor", TEXT),
        ALARM,
        TIME,
        field("sourceType", INT),
        field("source", TEXT),
    ],
};

const DESCRIPTOR: NormativeField = optional("descriptor", TEXT);
const ALARM: NormativeField = optional("alarm", Structure(&ALARM_T));
const TIME: NormativeField = optional("timeStamp", Structure(&TIME_T));
const DISPLAY: NormativeField = optional("display", Structure(&DISPLAY_T));
const CONTROL: NormativeField = optional("control", Structure(&CONTROL_T));
const VALUE_ALARM: NormativeField = optional("valueAlarm", Structure(&VALUE_ALARM_T));

/// A row of the table.
struct TypeRow {
    name: &'static str,
    what: &'static str,
    fields: &'static [NormativeField],
}

macro_rules! normative_types {
    ($(#[doc = $what:literal] $variant:ident $name:literal [$($field:expr),* $(,)?];)*) => {
        /// A type of the Normative Types specification.
        ///
        /// A structure declares its normative type by its id. The version counts as far as the point, and further fields
        /// are permitted.
        ///
        /// Source: Normative Types Specification, in the EPICS documentation. `valueAlarm` and `isConnected` are not in
        /// it, but in the types that pvxs, p4p and normativeTypesCPP build.
        ///
        /// ```
        /// use fodo_data::{FieldType, Kind, NormativeType};
        ///
        /// let table = NormativeType::from_id("epics:nt/NTTable:1.2").expect("a minor version may be newer");
        /// assert_eq!((table, table.name()), (NormativeType::Table, "NTTable"));
        /// assert_eq!(table.id(), "epics:nt/NTTable:1.0");
        /// assert_eq!(NormativeType::from_id("epics:nt/NTTable:2.0"), None);
        ///
        /// let [labels, value, descriptor, ..] = table.fields() else { panic!("it has five fields") };
        /// assert_eq!((labels.name, labels.kind.to_string()), ("labels", "string[]".to_owned()));
        /// assert_eq!(value.kind, FieldType::Columns);
        /// assert!(descriptor.is_optional && descriptor.kind == FieldType::Scalar(Kind::Text));
        ///
        /// let alarm = NormativeType::Enum.field("alarm").expect("it may have an alarm");
        /// assert!(matches!(alarm.kind, FieldType::Structure(alarm) if alarm.id == "alarm_t" && alarm.fields.len() == 3));
        /// assert!(NormativeType::ALL.iter().all(|kind| kind.what().ends_with('.')));
        /// assert!(table.holds_more_than_a_reading() && !NormativeType::Enum.holds_more_than_a_reading());
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum NormativeType {
            $(#[doc = $what] $variant,)*
        }

        impl NormativeType {
            /// All of them, in the order of the table.
            pub const ALL: &'static [NormativeType] = &[$(NormativeType::$variant),*];
        }

        /// By [`NormativeType`].
        const TYPES: &[TypeRow] = &[$(TypeRow { name: $name, what: $what, fields: &[$($field),*] }),*];
    };
}

normative_types! {
    /// One element with its metadata.
    Scalar "NTScalar" [field("value", AnyScalar), DESCRIPTOR, ALARM, TIME, DISPLAY, CONTROL, VALUE_ALARM];
    /// An array with its metadata.
    ScalarArray "NTScalarArray" [field("value", AnyArray), DESCRIPTOR, ALARM, TIME, DISPLAY, CONTROL, VALUE_ALARM];
    /// One of several states.
    Enum "NTEnum" [field("value", Structure(&ENUM_T)), DESCRIPTOR, ALARM, TIME, DISPLAY];
    /// A matrix or a vector of numbers, row by row.
    Matrix "NTMatrix" [field("value", DOUBLES), optional("dim", INTS), DESCRIPTOR, ALARM, TIME, DISPLAY];
    /// The request of a procedure.
    Uri "NTURI" [
        field("scheme", TEXT),
        optional("authority", TEXT),
        field("path", TEXT),
        optional("query", Members),
    ];
    /// Values with their names.
    NameValue "NTNameValue" [field("name", TEXTS), field("value", AnyArray), DESCRIPTOR, ALARM, TIME];
    /// A table: columns of the same length.
    Table "NTTable" [field("labels", TEXTS), field("value", Columns), DESCRIPTOR, ALARM, TIME];
    /// A named value of any type.
    Attribute "NTAttribute" [
        field("name", TEXT),
        field("value", Any),
        optional("tags", TEXTS),
        DESCRIPTOR,
        ALARM,
        TIME,
    ];
    /// Values of several PVs, of different types.
    MultiChannel "NTMultiChannel" [
        field("value", AnyUnionArray),
        field("channelName", TEXTS),
        DESCRIPTOR,
        ALARM,
        TIME,
        optional("severity", INTS),
        optional("status", INTS),
        optional("message", TEXTS),
        optional("secondsPastEpoch", Array(Kind::I64)),
        optional("nanoseconds", INTS),
        optional("userTag", INTS),
        optional("isConnected", Array(Kind::Bool)),
    ];
    /// Values of several PVs, of the same type.
    ScalarMultiChannel "NTScalarMultiChannel" [
        field("value", AnyArray),
        field("channelName", TEXTS),
        DESCRIPTOR,
        ALARM,
        TIME,
        optional("severity", INTS),
        optional("status", INTS),
        optional("message", TEXTS),
        optional("secondsPastEpoch", Array(Kind::I64)),
        optional("nanoseconds", INTS),
        optional("userTag", INTS),
        optional("isConnected", Array(Kind::Bool)),
    ];
    /// An image, or another array of any number of dimensions.
    NdArray "NTNDArray" [
        field("value", ImageUnion),
        field("codec", Structure(&CODEC_T)),
        field("compressedSize", LONG),
        field("uncompressedSize", LONG),
        field("dimension", StructureArray(&DIMENSION_T)),
        field("uniqueId", INT),
        field("dataTimeStamp", Structure(&TIME_T)),
        field("attribute", StructureArray(&IMAGE_ATTRIBUTE)),
        DESCRIPTOR,
        ALARM,
        TIME,
        DISPLAY,
    ];
    /// A sequence of points in time or frequency; each has one or more values.
    Continuum "NTContinuum" [
        field("base", DOUBLES),
        field("value", DOUBLES),
        field("units", TEXTS),
        DESCRIPTOR,
        ALARM,
        TIME,
    ];
    /// The counts of a histogram with the limits of its bins.
    Histogram "NTHistogram" [field("ranges", DOUBLES), field("value", IntegerArray), DESCRIPTOR, ALARM, TIME];
    /// The mean of several values, with their statistics.
    Aggregate "NTAggregate" [
        field("value", DOUBLE),
        field("N", LONG),
        optional("dispersion", DOUBLE),
        optional("first", DOUBLE),
        optional("firstTimeStamp", Structure(&TIME_T)),
        optional("last", DOUBLE),
        optional("lastTimeStamp", Structure(&TIME_T)),
        optional("max", DOUBLE),
        optional("min", DOUBLE),
        DESCRIPTOR,
        ALARM,
        TIME,
    ];
    /// A value of one of several types, or of any type.
    Union "NTUnion" [field("value", AnyUnion), DESCRIPTOR, ALARM, TIME];
}

impl NormativeType {
    fn row(self) -> &'static TypeRow {
        &TYPES[self as usize]
    }

    /// The type that an id such as `epics:nt/NTTable:1.0` names; `None` if it is not a normative type, or if its major
    /// version is not 1.
    pub fn from_id(id: &str) -> Option<NormativeType> {
        let (name, version) = id.strip_prefix("epics:nt/")?.split_once(':')?;
        let is_version_1 = version.split('.').next() == Some("1");
        NormativeType::ALL.iter().copied().find(|kind| is_version_1 && kind.row().name == name)
    }

    /// The name in the specification, such as `NTTable`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// What a structure of this type holds, in one sentence.
    pub fn what(self) -> &'static str {
        self.row().what.trim_start()
    }

    /// The id of a structure of this type.
    pub fn id(self) -> String {
        format!("epics:nt/{}:1.0", self.name())
    }

    /// The fields in their order.
    pub fn fields(self) -> &'static [NormativeField] {
        self.row().fields
    }

    /// A field by its name.
    pub fn field(self, name: &str) -> Option<&'static NormativeField> {
        self.fields().iter().find(|field| field.name == name)
    }

    /// Whether a [`Reading`](crate::Reading) cannot hold all of it: it is neither a scalar nor an array nor an enum with
    /// metadata.
    pub fn holds_more_than_a_reading(self) -> bool {
        !matches!(self, NormativeType::Scalar | NormativeType::ScalarArray | NormativeType::Enum)
    }
}

impl fmt::Display for FieldType {
    /// The type in words of the specification, for example `string[]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar(kind) => f.write_str(kind.pva_name()),
            Array(kind) => write!(f, "{}[]", kind.pva_name()),
            AnyScalar => f.write_str("a scalar"),
            AnyNumber => f.write_str("a number"),
            AnyArray => f.write_str("an array of scalars"),
            IntegerArray => f.write_str("short[], int[] or long[]"),
            Structure(structure) => write!(f, "the structure {}", structure.id),
            StructureArray(structure) => write!(f, "an array of the structure {}", structure.id),
            Columns => f.write_str("a structure of arrays of scalars"),
            Members => f.write_str("a structure"),
            Any => f.write_str("a variant union"),
            AnyUnion => f.write_str("a union or a variant union"),
            AnyUnionArray => f.write_str("an array of unions or of variant unions"),
            ImageUnion => {
                f.write_str("a union with ")?;
                for (index, (name, kind)) in IMAGE_MEMBERS.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}{}[] {name}", kind.pva_name())?;
                }
                Ok(())
            }
        }
    }
}
