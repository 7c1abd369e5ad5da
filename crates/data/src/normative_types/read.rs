use super::content::{contents, member_name, text};
use super::{ChannelsContent, ImageContent, NormativeError, NormativeType, TableContent};
use crate::normative::store_part;
use crate::{Alarm, Array, Kind, NodeValue, Reading, Role, Scalar, Structure, StructureType, Text, TimeStamp, Value};

/// Reads a structure by its normative type. It accepts structures of other programs: the kinds of numbers may differ, and
/// fields that are not read may be missing.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_data::{Kind, NormativeContent, NormativeReader, NormativeType, Structure, Text, Value};
///
/// let kind = NormativeType::NameValue.builder().array("value", Kind::F64).with("descriptor").with("timeStamp").finish()?;
/// let mut marks = Structure::new(Arc::new(kind));
/// marks.set("name", vec![Text::from("optics"), "vacuum".into()])?;
/// marks.set("value", vec![1.5, 2.5])?;
/// marks.set("descriptor", "term 1")?;
/// marks.set("timeStamp.secondsPastEpoch", 1_800_000_000)?;
///
/// let reader = NormativeReader::new(&marks)?;
/// assert_eq!(reader.of(), NormativeType::NameValue);
/// assert_eq!(reader.descriptor(), Some("term 1".into()));
/// assert_eq!(reader.time("timeStamp").map(|(time, tag)| (time.unix_s, tag)), Some((1_800_000_000, 0)));
/// assert_eq!(reader.alarm(), None);
/// let NormativeContent::NameValue { names, values } = reader.content()? else { panic!("it is an NTNameValue") };
/// assert_eq!((names.len(), Value::Array(values.clone())), (2, vec![1.5, 2.5].into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NormativeReader<'a> {
    of: NormativeType,
    structure: &'a Structure,
}

/// What a structure holds, by its normative type. [`NormativeReader`] has an example.
#[derive(Clone, Debug, PartialEq)]
pub enum NormativeContent<'a> {
    /// Of an NTScalar.
    Scalar(&'a Scalar),
    /// Of an NTScalarArray.
    ScalarArray(&'a Array),
    /// Of an NTEnum.
    Enum {
        /// The state.
        index: i64,
        /// The names of all states.
        choices: &'a [Text],
    },
    /// Of an NTMatrix. Without `dim` it is a vector with one column.
    Matrix {
        /// The number of rows.
        n_rows: usize,
        /// The number of columns.
        n_columns: usize,
        /// The elements, row by row.
        elements: &'a Array,
    },
    /// Of an NTURI.
    Uri {
        /// How the path is meant, such as `pva`.
        scheme: Text,
        /// The server; empty if it is not given.
        authority: Text,
        /// The name of the PV.
        path: Text,
        /// The names of the arguments with their values.
        query: Vec<(Text, &'a NodeValue)>,
    },
    /// Of an NTNameValue.
    NameValue {
        /// The names.
        names: &'a [Text],
        /// As many values.
        values: &'a Array,
    },
    /// Of an NTTable.
    Table(TableContent<'a>),
    /// Of an NTAttribute.
    Attribute {
        /// The name.
        name: Text,
        /// The value; `None` if the variant union is empty.
        value: Option<&'a Structure>,
        /// The tags; none if they are not given.
        tags: &'a [Text],
    },
    /// Of an NTMultiChannel or an NTScalarMultiChannel.
    Channels(ChannelsContent<'a>),
    /// Of an NTNDArray.
    NdArray(ImageContent<'a>),
    /// Of an NTContinuum: `base` has a value for each point, and `values` has the values of the first point, then those
    /// of the second one.
    Continuum {
        /// The times or frequencies.
        base: &'a Array,
        /// The values of the points.
        values: &'a Array,
        /// The units of the base, then of each value of a point.
        units: &'a [Text],
    },
    /// Of an NTHistogram.
    Histogram {
        /// The lower limit of each bin, then the upper limit of the last one.
        ranges: &'a Array,
        /// The count of each bin.
        counts: &'a Array,
    },
    /// Of an NTAggregate. What is missing is NaN.
    Aggregate {
        /// The mean, or another value that represents all.
        value: f64,
        /// The number of observations.
        n: i64,
        /// The standard deviation, or another dispersion.
        dispersion: f64,
        /// The first and the last observation.
        ends: [f64; 2],
        /// The lowest and the highest observation.
        range: [f64; 2],
    },
    /// Of an NTUnion: the name of the selected member, which is empty for a variant union, and its value; `None` if
    /// nothing is selected.
    Union(Option<(Text, &'a Structure)>),
}

impl<'a> NormativeReader<'a> {
    /// Reads a structure whose id names a normative type.
    pub fn new(structure: &'a Structure) -> Result<NormativeReader<'a>, NormativeError> {
        let id = structure.kind().id();
        match NormativeType::from_id(&id.to_str()) {
            Some(of) => Ok(NormativeReader { of, structure }),
            None => Err(NormativeError::Id(id.clone())),
        }
    }

    /// The type that the id names.
    pub fn of(&self) -> NormativeType {
        self.of
    }

    /// The description; `None` if the type has none.
    pub fn descriptor(&self) -> Option<Text> {
        text(self.structure, "descriptor")
    }

    /// The alarm; `None` if the type has none.
    pub fn alarm(&self) -> Option<Alarm> {
        self.structure.get("alarm.severity")?;
        let parts = [(Role::Severity, "severity"), (Role::Status, "status"), (Role::Message, "message")];
        Some(self.reading("alarm", &parts).alarm)
    }

    /// A time stamp and its user tag; `None` if the type has no such field.
    pub fn time(&self, field: &str) -> Option<(TimeStamp, i32)> {
        self.structure.get(&format!("{field}.secondsPastEpoch"))?;
        let parts =
            [(Role::Seconds, "secondsPastEpoch"), (Role::Nanoseconds, "nanoseconds"), (Role::UserTag, "userTag")];
        let reading = self.reading(field, &parts);
        Some((reading.time, reading.user_tag))
    }

    /// A reading with these parts of a field.
    fn reading(&self, field: &str, parts: &[(Role, &str)]) -> Reading {
        let mut reading = Reading::bare(Value::from(0));
        for (role, name) in parts {
            if let Some(value) = self.structure.get(&format!("{field}.{name}")) {
                store_part(*role, value.clone(), &mut reading);
            }
        }
        reading
    }

    /// What the structure holds. Fails if a field that it needs is missing or has another type.
    pub fn content(&self) -> Result<NormativeContent<'a>, NormativeError> {
        use NormativeType as Type;

        Ok(match self.of {
            Type::Scalar => match self.structure.get("value") {
                Some(Value::Scalar(scalar)) => NormativeContent::Scalar(scalar),
                _ => return Err(self.fault("value")),
            },
            Type::ScalarArray => NormativeContent::ScalarArray(self.array("value")?),
            Type::Enum => NormativeContent::Enum {
                index: self.number("value.index")? as i64,
                choices: self.texts("value.choices")?,
            },
            Type::Matrix => self.matrix()?,
            Type::Uri => NormativeContent::Uri {
                scheme: self.text("scheme")?,
                authority: text(self.structure, "authority").unwrap_or_default(),
                path: self.text("path")?,
                query: self.query(),
            },
            Type::NameValue => NormativeContent::NameValue { names: self.texts("name")?, values: self.array("value")? },
            Type::Table => {
                NormativeContent::Table(TableContent::of(self.structure).ok_or_else(|| self.fault("value"))?)
            }
            Type::Attribute => NormativeContent::Attribute {
                name: self.text("name")?,
                value: contents(self.structure, "value").ok_or_else(|| self.fault("value"))?,
                tags: self.texts("tags").unwrap_or_default(),
            },
            Type::MultiChannel | Type::ScalarMultiChannel => NormativeContent::Channels(self.channels()?),
            Type::NdArray => {
                NormativeContent::NdArray(ImageContent::of(self.structure).ok_or_else(|| self.fault("value"))?)
            }
            Type::Continuum => NormativeContent::Continuum {
                base: self.array("base")?,
                values: self.array("value")?,
                units: self.texts("units")?,
            },
            Type::Histogram => {
                NormativeContent::Histogram { ranges: self.array("ranges")?, counts: self.array("value")? }
            }
            Type::Aggregate => {
                let number = |field: &str| self.number(field).unwrap_or(f64::NAN);
                NormativeContent::Aggregate {
                    value: self.number("value")?,
                    n: self.number("N")? as i64,
                    dispersion: number("dispersion"),
                    ends: [number("first"), number("last")],
                    range: [number("min"), number("max")],
                }
            }
            Type::Union => NormativeContent::Union(self.union()?),
        })
    }

    /// The error for a field that does not match.
    fn fault(&self, path: &str) -> NormativeError {
        match NormativeType::of(self.structure.kind()) {
            Err(error) => error,
            // The type is right, so that only the length of a fixed array remains.
            Ok(of) => NormativeError::Field {
                of,
                field: path.to_owned(),
                found: "cannot be read".to_owned(),
                expected: of.field(path).map_or_else(String::new, |field| field.kind.to_string()),
            },
        }
    }

    fn array(&self, path: &str) -> Result<&'a Array, NormativeError> {
        match self.structure.get(path) {
            Some(Value::Array(array)) => Ok(array),
            _ => Err(self.fault(path)),
        }
    }

    fn texts(&self, path: &str) -> Result<&'a [Text], NormativeError> {
        match self.array(path)? {
            Array::Text(texts) => Ok(texts),
            _ => Err(self.fault(path)),
        }
    }

    fn text(&self, path: &str) -> Result<Text, NormativeError> {
        text(self.structure, path).ok_or_else(|| self.fault(path))
    }

    fn number(&self, path: &str) -> Result<f64, NormativeError> {
        let number = self.structure.get(path).filter(|value| value.kind() != Kind::Text);
        number.and_then(|value| value.to_f64().ok()).ok_or_else(|| self.fault(path))
    }

    fn matrix(&self) -> Result<NormativeContent<'a>, NormativeError> {
        let elements = self.array("value")?;
        let sizes: Vec<usize> = match self.structure.get("dim") {
            Some(Value::Array(Array::I32(sizes))) => {
                sizes.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect()
            }
            _ => Vec::new(),
        };
        let (n_rows, n_columns) = match sizes[..] {
            [n_rows, n_columns] => (n_rows, n_columns),
            _ => (elements.len(), 1),
        };
        Ok(NormativeContent::Matrix { n_rows, n_columns, elements })
    }

    fn query(&self) -> Vec<(Text, &'a NodeValue)> {
        let kind: &'a StructureType = self.structure.kind();
        let Some(query) = kind.node("query") else { return Vec::new() };
        let argument = |bit: usize| Some((kind.nodes()[bit].name.clone(), self.structure.node(bit)?));
        kind.members(query).filter_map(argument).collect()
    }

    fn channels(&self) -> Result<ChannelsContent<'a>, NormativeError> {
        let values = match self.node("value") {
            Some(NodeValue::Anys(values)) => values.to_vec(),
            Some(NodeValue::Unions(values)) => {
                values.iter().map(|value| value.as_ref().map(|value| value.value.clone())).collect()
            }
            Some(NodeValue::Value(Value::Array(values))) => (0..values.len())
                .map(|index| values.scalar(index).map(|value| Structure::single(Value::Scalar(value))))
                .collect(),
            _ => return Err(self.fault("value")),
        };
        Ok(ChannelsContent { names: self.texts("channelName")?, values })
    }

    fn union(&self) -> Result<Option<(Text, &'a Structure)>, NormativeError> {
        match self.node("value") {
            Some(NodeValue::Union(value)) => {
                let member = |selector| member_name(self.structure.kind(), "value", selector);
                Ok(value.as_ref().map(|value| (member(value.selector), &value.value)))
            }
            Some(NodeValue::Any(value)) => Ok(value.as_deref().map(|value| (Text::EMPTY, value))),
            _ => Err(self.fault("value")),
        }
    }

    fn node(&self, path: &str) -> Option<&'a NodeValue> {
        self.structure.node(self.structure.kind().node(path)?)
    }
}
