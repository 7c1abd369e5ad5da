//! Values as Python objects, and what they were received with.

use fodo_net::{
    Array, Kind, Limits, Meta, NodeValue, Reading, Scalar, Severity, Status, Structure, Text, TimeStamp, Value,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyString, PyType};

use crate::array::PyArray;
use crate::structure::PyStructure;

/// The module of the classes that users see.
const VALUES: &str = "fodo._values";

/// What the value of a PV was received with.
#[pyclass(frozen, name = "Reading", module = "fodo._native")]
pub struct PyReading {
    pub name: Py<PyString>,
    /// For a structure, the value is empty.
    pub reading: Reading,
}

impl PyReading {
    fn meta(&self) -> Option<&Meta> {
        self.reading.meta.as_deref()
    }

    fn limits(&self, of: impl Fn(&Meta) -> Limits) -> Option<(f64, f64)> {
        self.meta().map(of).map(|limits| (limits.low, limits.high))
    }
}

#[pymethods]
impl PyReading {
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyString> {
        self.name.clone_ref(py)
    }

    #[getter]
    fn severity(&self) -> u16 {
        self.reading.alarm.severity.code()
    }

    #[getter]
    fn status(&self) -> String {
        self.reading.alarm.status.to_string()
    }

    /// The text of the alarm where the server has sent one; otherwise empty without an alarm, or the status.
    #[getter]
    fn message(&self) -> String {
        match &self.reading.message {
            Some(message) => message.to_string(),
            None if self.reading.alarm.severity == Severity::None => String::new(),
            None => self.status(),
        }
    }

    /// Nanoseconds since 1970; `None` if the server has sent no time stamp.
    #[getter]
    fn time_ns(&self) -> Option<i128> {
        let time = self.reading.time;
        (time != TimeStamp::NEVER).then(|| i128::from(time.unix_s) * 1_000_000_000 + i128::from(time.nanos))
    }

    #[getter]
    fn user_tag(&self) -> i32 {
        self.reading.user_tag
    }

    #[getter]
    fn units(&self) -> Option<String> {
        self.meta().map(|meta| meta.units.to_string())
    }

    #[getter]
    fn precision(&self) -> Option<i16> {
        self.meta().map(|meta| meta.precision)
    }

    #[getter]
    fn description(&self) -> Option<String> {
        self.meta().map(|meta| meta.description.to_string())
    }

    #[getter]
    fn display_limits(&self) -> Option<(f64, f64)> {
        self.limits(|meta| meta.display)
    }

    #[getter]
    fn control_limits(&self) -> Option<(f64, f64)> {
        self.limits(|meta| meta.control)
    }

    #[getter]
    fn warning_limits(&self) -> Option<(f64, f64)> {
        self.limits(|meta| meta.warning)
    }

    #[getter]
    fn alarm_limits(&self) -> Option<(f64, f64)> {
        self.limits(|meta| meta.alarm)
    }

    /// The names of the states of an enum.
    #[getter]
    fn labels(&self) -> Option<Vec<String>> {
        self.meta().map(|meta| meta.labels.iter().map(Text::to_string).collect())
    }
}

/// A value of a PV: an object of `fodo._values` that acts as a number, a text or an array, and has the attributes of a
/// reading.
pub fn value<'py>(py: Python<'py>, name: &Py<PyString>, reading: Reading) -> PyResult<Bound<'py, PyAny>> {
    static FLOAT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static INT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static TEXT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static ENUM: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static ARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let plain = match &reading.value {
        Value::Scalar(element) => Some((element.kind(), scalar(py, element)?)),
        Value::Array(_) => None,
    };
    let reading = Py::new(py, PyReading { name: name.clone_ref(py), reading })?;
    let (class, plain) = match plain {
        Some((Kind::F32 | Kind::F64, number)) => (FLOAT.import(py, VALUES, "FloatValue")?, number),
        Some((Kind::Text, text)) => (TEXT.import(py, VALUES, "TextValue")?, text),
        Some((Kind::Enum, index)) => (ENUM.import(py, VALUES, "EnumValue")?, index),
        Some((_, number)) => (INT.import(py, VALUES, "IntValue")?, number),
        None => return ARRAY.import(py, VALUES, "ArrayValue")?.call1((reading,)),
    };
    // The classes have no `__new__` of their own, which would take longer than all else.
    let value = class.call1((plain,))?;
    value.setattr(intern!(py, "_reading"), reading)?;
    Ok(value)
}

/// The value of a PV that is a structure.
pub fn structure_value<'py>(py: Python<'py>, name: &Py<PyString>, structure: Structure) -> PyResult<Bound<'py, PyAny>> {
    static STRUCTURE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let integer = |path| structure.get(path).and_then(|value: &Value| value.to_f64().ok()).map(|number| number as i64);
    let text = |path| match structure.get(path) {
        Some(Value::Scalar(Scalar::Text(text))) => Some(text.clone()),
        _ => None,
    };
    let mut reading = Reading::bare(Value::Array(Array::empty(Kind::U8)));
    reading.alarm.severity = Severity::from_code(integer("alarm.severity").unwrap_or(0) as u16);
    reading.message = text("alarm.message").filter(|text| !text.is_empty()).map(Into::into);
    // The text of the alarm is the name of the status where the server has one.
    let is_status = |name: &&str| reading.message.as_ref().is_some_and(|text| text.as_bytes() == name.as_bytes());
    reading.alarm.status = Status(Status::NAMES.iter().position(is_status).unwrap_or(0) as u16);
    if let (Some(unix_s), Some(nanos)) = (integer("timeStamp.secondsPastEpoch"), integer("timeStamp.nanoseconds")) {
        reading.time = TimeStamp { unix_s, nanos: nanos as u32 };
    }
    reading.user_tag = integer("timeStamp.userTag").unwrap_or(0) as i32;
    let reading = Py::new(py, PyReading { name: name.clone_ref(py), reading })?;
    let structure = Py::new(py, PyStructure::new(structure.into(), 0, Some(reading)))?;
    STRUCTURE.import(py, VALUES, "StructureValue")?.call1((structure,))
}

/// A field of a structure: a plain number, text or array, or a structure.
pub fn field<'py>(py: Python<'py>, node: &NodeValue) -> PyResult<Bound<'py, PyAny>> {
    let list = |elements: &[Option<Structure>]| {
        let elements: Vec<_> = elements.iter().map(|element| part(py, element.as_ref())).collect::<PyResult<_>>()?;
        elements.into_pyobject(py)
    };
    match node {
        // Its caller has handled it.
        NodeValue::Structure => Ok(py.None().into_bound(py)),
        NodeValue::Value(Value::Scalar(element)) => scalar(py, element),
        NodeValue::Value(Value::Array(elements)) => array(py, elements.clone()),
        NodeValue::Structures(elements) | NodeValue::Anys(elements) => list(elements),
        NodeValue::Union(union) => part(py, union.as_ref().map(|union| &union.value)),
        NodeValue::Unions(elements) => {
            list(&elements.iter().map(|union| union.as_ref().map(|union| union.value.clone())).collect::<Vec<_>>())
        }
        NodeValue::Any(contents) => part(py, contents.as_deref()),
    }
}

/// An element of an array of structures, or the contents of a union.
fn part<'py>(py: Python<'py>, structure: Option<&Structure>) -> PyResult<Bound<'py, PyAny>> {
    match structure {
        None => Ok(py.None().into_bound(py)),
        Some(structure) if structure.kind().is_structure() => {
            nested(py, PyStructure::new(structure.clone().into(), 0, None))
        }
        Some(single) => single.node(0).map_or_else(|| Ok(py.None().into_bound(py)), |node| field(py, node)),
    }
}

/// A structure inside another one.
pub fn nested(py: Python<'_>, structure: PyStructure) -> PyResult<Bound<'_, PyAny>> {
    static STRUCTURE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    STRUCTURE.import(py, VALUES, "Structure")?.call1((Py::new(py, structure)?,))
}

/// An array that is a part of a structure.
pub fn array(py: Python<'_>, array: Array) -> PyResult<Bound<'_, PyAny>> {
    static ARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    ARRAY.import(py, VALUES, "Array")?.call1((Py::new(py, PyArray::new(array, None))?,))
}

/// One element as a plain object.
pub fn scalar<'py>(py: Python<'py>, element: &Scalar) -> PyResult<Bound<'py, PyAny>> {
    Ok(match element {
        Scalar::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        Scalar::I8(number) => number.into_pyobject(py)?.into_any(),
        Scalar::U8(number) => number.into_pyobject(py)?.into_any(),
        Scalar::I16(number) => number.into_pyobject(py)?.into_any(),
        Scalar::U16(number) | Scalar::Enum(number) => number.into_pyobject(py)?.into_any(),
        Scalar::I32(number) => number.into_pyobject(py)?.into_any(),
        Scalar::U32(number) => number.into_pyobject(py)?.into_any(),
        Scalar::I64(number) => number.into_pyobject(py)?.into_any(),
        Scalar::U64(number) => number.into_pyobject(py)?.into_any(),
        Scalar::F32(number) => number.into_pyobject(py)?.into_any(),
        Scalar::F64(number) => number.into_pyobject(py)?.into_any(),
        Scalar::Text(text) => PyString::new(py, &text.to_str()).into_any(),
    })
}

/// The kinds of elements, and their names.
const KINDS: [(Kind, &str); 13] = [
    (Kind::Bool, "bool"),
    (Kind::I8, "i8"),
    (Kind::U8, "u8"),
    (Kind::I16, "i16"),
    (Kind::U16, "u16"),
    (Kind::I32, "i32"),
    (Kind::U32, "u32"),
    (Kind::I64, "i64"),
    (Kind::U64, "u64"),
    (Kind::F32, "f32"),
    (Kind::F64, "f64"),
    (Kind::Enum, "enum"),
    (Kind::Text, "text"),
];

pub fn kind_name(kind: Kind) -> &'static str {
    KINDS.iter().find(|(known, _)| *known == kind).map_or("", |(_, name)| name)
}

/// The kind with this name.
pub fn kind_named(name: &str) -> Option<Kind> {
    KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
}
