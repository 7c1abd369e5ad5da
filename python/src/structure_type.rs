//! Types of structures as Python objects, and structures built from them.

use std::sync::Arc;

use fodo_net::{
    AcceptedValues, ArraySize, Kind, NodeKind, NodeValue, NormativeType, PvRequest, Structure, StructureBuilder,
    StructureType, UnionMember, UnionType, UnionValue, Value, normative_type,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::structure::PyStructure;
use crate::{assign, limit, reading};

/// The codes of the kinds of elements. Choices of an enum are numbers.
const CODES: [(&str, Kind); 13] = [
    ("?", Kind::Bool),
    ("s", Kind::Text),
    ("b", Kind::I8),
    ("B", Kind::U8),
    ("h", Kind::I16),
    ("H", Kind::U16),
    ("i", Kind::I32),
    ("I", Kind::U32),
    ("l", Kind::I64),
    ("L", Kind::U64),
    ("f", Kind::F32),
    ("d", Kind::F64),
    ("H", Kind::Enum),
];

/// The type of a structure, or of a part of one.
#[pyclass(frozen, name = "Type", module = "fodo._native")]
pub struct PyStructureType(pub Arc<StructureType>);

#[pymethods]
impl PyStructureType {
    /// `spec`: a code, such as `d` or `as`, or a tuple of `S`, `U`, `aS` or `aU`, an id and a list of names with their specs.
    #[new]
    fn create(spec: &Bound<'_, PyAny>) -> PyResult<PyStructureType> {
        let mut build = StructureBuilder::empty();
        add(&mut build, "", spec, 0)?;
        Ok(PyStructureType(Arc::new(build.finish())))
    }

    /// The type that records with such values have over pvAccess: NTScalar, NTScalarArray or, for the code `enum`, NTEnum.
    #[staticmethod]
    fn of_records(code: &str) -> PyResult<PyStructureType> {
        let (kind, is_array) = match code {
            "enum" => (Kind::Enum, false),
            code => match leaf_kind(code)? {
                NodeKind::Scalar(kind) => (kind, false),
                NodeKind::Array { kind, .. } => (kind, true),
                _ => return Err(invalid(&format!("no record has a value of the type {code:?}"))),
            },
        };
        Ok(PyStructureType(Arc::new(normative_type(kind, is_array))))
    }

    /// A normative type, such as `NTTable`, with these optional fields. `given`: the specs of fields whose types the
    /// specification leaves open.
    #[staticmethod]
    fn normative(name: &str, optional: Vec<String>, given: &Bound<'_, PyAny>) -> PyResult<PyStructureType> {
        let known = NormativeType::from_id(&format!("epics:nt/{name}:1.0"));
        let mut build = known.ok_or_else(|| invalid(&format!("{name} is not a normative type")))?.builder();
        for field in &optional {
            build = build.with(field);
        }
        for field in given.try_iter()? {
            let (field, spec): (String, Bound<'_, PyAny>) = field?.extract()?;
            let mut kind = StructureBuilder::empty();
            add(&mut kind, "", &spec, 0)?;
            build = build.field(&field, kind.finish());
        }
        let kind = build.finish().map_err(|error| invalid(&error.to_string()))?;
        Ok(PyStructureType(Arc::new(kind)))
    }

    /// The type as it is given to the constructor. The limits of texts and arrays are left out.
    fn spec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        spec(py, &self.0, 0)
    }

    /// The type of an element of a structure array or a union array, or of a member of a union.
    fn part(&self, bit: usize, selector: u32) -> PyResult<PyStructureType> {
        let found = match self.0.nodes().get(bit).map(|node| &node.kind) {
            Some(NodeKind::StructureArray(kind)) => Some(kind.clone()),
            Some(NodeKind::Union(kind) | NodeKind::UnionArray(kind)) => kind.member(selector).cloned(),
            _ => None,
        };
        let invalid = || PyValueError::new_err(format!("node {bit} has no part {selector}"));
        found.map(PyStructureType).ok_or_else(invalid)
    }

    /// A structure of this type. `leaves`: the values of some nodes, in the forms of `Structure._leaf`. `bits`: the nodes that
    /// are marked as changed. `is_checked`: fails if a field would make another value of one.
    #[pyo3(signature = (leaves, bits, is_checked=false))]
    fn structure(&self, leaves: &Bound<'_, PyDict>, bits: Vec<usize>, is_checked: bool) -> PyResult<PyStructure> {
        changed(Structure::new(self.0.clone()), leaves, bits, is_checked)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __eq__(&self, other: &PyStructureType) -> bool {
        self.0 == other.0
    }
}

/// A structure with other values of these nodes, of which `bits` are marked as changed. `is_checked`: fails if a field would
/// make another value of one.
pub fn changed(
    mut structure: Structure,
    leaves: &Bound<'_, PyDict>,
    bits: Vec<usize>,
    is_checked: bool,
) -> PyResult<PyStructure> {
    let of = structure.kind().clone();
    for (bit, object) in leaves.iter() {
        let bit: usize = bit.extract()?;
        let kind = of.nodes().get(bit).map(|node| &node.kind).ok_or_else(|| invalid(&format!("no node {bit}")))?;
        let failed = |reason: String| PyValueError::new_err(format!("{}: {reason}", of.path(bit)));
        let mut value = node_value(kind, &object).map_err(failed)?;
        if is_checked && let NodeValue::Value(given) = value {
            value = NodeValue::Value(match AcceptedValues::of_field(kind) {
                Some(accepted) => accepted.accept(given).map_err(failed)?,
                None => given,
            });
        }
        structure.set_node(bit, value).map_err(|error| failed(error.to_string()))?;
    }
    structure.mark_only(bits.into_iter().collect());
    Ok(PyStructure::new(structure.into(), 0, None))
}

fn invalid(reason: &str) -> PyErr {
    PyValueError::new_err(reason.to_owned())
}

/// Adds a node and its descendants.
fn add(build: &mut StructureBuilder, name: &str, spec: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
    if depth >= limit::TYPE_DEPTH_MAX {
        return Err(invalid(&format!("types are nested at most {} levels deep", limit::TYPE_DEPTH_MAX)));
    }
    if let Ok(code) = spec.cast::<PyString>() {
        build.leaf(name, leaf_kind(&code.to_cow()?)?);
        return Ok(());
    }
    let (shape, id, members): (String, Option<String>, Bound<'_, PyAny>) = spec.extract().map_err(|_| {
        invalid(&format!("the type of {name:?} is invalid: expected a code, or (code, id, [(name, type), ...])"))
    })?;
    let id = id.unwrap_or_default();
    match shape.as_str() {
        "S" => {
            build.open(name, id);
            add_members(build, &members, depth)?;
            build.close();
        }
        "aS" => {
            let mut element = StructureBuilder::new(id);
            add_members(&mut element, &members, depth)?;
            build.leaf(name, NodeKind::StructureArray(Arc::new(element.close().finish())));
        }
        "U" => drop(build.leaf(name, NodeKind::Union(union_type(id, &members, depth)?))),
        "aU" => drop(build.leaf(name, NodeKind::UnionArray(union_type(id, &members, depth)?))),
        other => return Err(invalid(&format!("unknown type code {other:?}: expected S, U, aS or aU"))),
    }
    Ok(())
}

fn add_members(build: &mut StructureBuilder, members: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
    for member in members.try_iter()? {
        let (name, spec): (String, Bound<'_, PyAny>) = member?.extract()?;
        add(build, &name, &spec, depth + 1)?;
    }
    Ok(())
}

fn union_type(id: String, members: &Bound<'_, PyAny>, depth: usize) -> PyResult<Arc<UnionType>> {
    let mut found = Vec::new();
    for member in members.try_iter()? {
        let (name, spec): (String, Bound<'_, PyAny>) = member?.extract()?;
        let mut build = StructureBuilder::empty();
        add(&mut build, "", &spec, depth + 1)?;
        found.push(UnionMember { name: name.into(), kind: Arc::new(build.finish()) });
    }
    Ok(Arc::new(UnionType { id: id.into(), members: found }))
}

/// The kind of a node without members.
fn leaf_kind(code: &str) -> PyResult<NodeKind> {
    if let Some((code, limit)) = code.split_once(['(', '[']) {
        return limited_kind(code, limit);
    }
    let (element, is_array) = match code.strip_prefix('a') {
        Some(element) => (element, true),
        None => (code, false),
    };
    let kind = CODES.iter().find(|(known, _)| *known == element).map(|(_, kind)| *kind);
    Ok(match (element, kind) {
        ("v", _) if is_array => NodeKind::AnyArray,
        ("v", _) => NodeKind::Any,
        (_, Some(kind)) if is_array => NodeKind::Array { kind, size: ArraySize::Variable },
        (_, Some(kind)) => NodeKind::Scalar(kind),
        _ => {
            return Err(invalid(&format!(
                "unknown type code {code:?}: expected one of ?sbBhHiIlLfdv, or a and one of these"
            )));
        }
    })
}

/// The kind of a text or an array with a maximum size, such as `s(40)` or `ad(8)`, or of an array with a fixed one: `ad[3]`.
fn limited_kind(code: &str, limit: &str) -> PyResult<NodeKind> {
    let is_fixed = limit.ends_with(']');
    let size = limit.trim_end_matches([')', ']']).parse();
    let size =
        size.map_err(|_| invalid(&format!("the size in {code:?} ... {limit:?} is invalid: expected a number")))?;
    match leaf_kind(code)? {
        NodeKind::Scalar(Kind::Text) if !is_fixed => Ok(NodeKind::BoundedText(size)),
        NodeKind::Array { kind, .. } if is_fixed => Ok(NodeKind::Array { kind, size: ArraySize::Fixed(size) }),
        NodeKind::Array { kind, .. } => Ok(NodeKind::Array { kind, size: ArraySize::Max(size) }),
        _ => Err(invalid(&format!("{code:?} has no size: expected a text or an array"))),
    }
}

/// The spec of a node with its descendants.
fn spec<'py>(py: Python<'py>, kind: &StructureType, bit: usize) -> PyResult<Bound<'py, PyAny>> {
    let code = |kind: Kind| CODES.iter().find(|(_, known)| *known == kind).map_or("", |(code, _)| *code);
    let text = |text: String| Ok(PyString::new(py, &text).into_any());
    match &kind.nodes()[bit].kind {
        NodeKind::Structure { id } => {
            let members =
                kind.members(bit).map(|member| Ok((kind.nodes()[member].name.to_string(), spec(py, kind, member)?)));
            shaped(py, "S", &id.to_string(), members)
        }
        NodeKind::StructureArray(element) => {
            let id = element.id().to_string();
            let members = element
                .members(0)
                .map(|member| Ok((element.nodes()[member].name.to_string(), spec(py, element, member)?)));
            shaped(py, "aS", &id, members)
        }
        NodeKind::Union(union) => union_spec(py, "U", union),
        NodeKind::UnionArray(union) => union_spec(py, "aU", union),
        NodeKind::Scalar(kind) => text(code(*kind).to_owned()),
        NodeKind::BoundedText(_) => text("s".to_owned()),
        NodeKind::Array { kind, .. } => text(format!("a{}", code(*kind))),
        NodeKind::Any => text("v".to_owned()),
        NodeKind::AnyArray => text("av".to_owned()),
    }
}

fn union_spec<'py>(py: Python<'py>, shape: &str, union: &UnionType) -> PyResult<Bound<'py, PyAny>> {
    let members = union.members.iter().map(|member| Ok((member.name.to_string(), spec(py, &member.kind, 0)?)));
    shaped(py, shape, &union.id.to_string(), members)
}

fn shaped<'py>(
    py: Python<'py>,
    shape: &str,
    id: &str,
    members: impl Iterator<Item = PyResult<(String, Bound<'py, PyAny>)>>,
) -> PyResult<Bound<'py, PyAny>> {
    let members: Vec<_> = members.collect::<PyResult<_>>()?;
    Ok((shape, id, members).into_pyobject(py)?.into_any())
}

/// The value of a node without members: a scalar; an array; a list of structures; the index of a union's member and a
/// structure of its type; a structure of any type; lists of these. `None` where an element or a value is missing.
pub fn leaf<'py>(py: Python<'py>, node: &NodeValue) -> PyResult<Bound<'py, PyAny>> {
    let structure = |structure: &Structure| Py::new(py, PyStructure::new(structure.clone().into(), 0, None));
    let selected = |union: &UnionValue| PyResult::Ok((union.selector, structure(&union.value)?));
    Ok(match node {
        NodeValue::Structure => py.None().into_bound(py),
        NodeValue::Value(Value::Scalar(element)) => reading::scalar(py, element)?,
        NodeValue::Value(Value::Array(elements)) => reading::array(py, elements.clone())?,
        NodeValue::Structures(elements) | NodeValue::Anys(elements) => {
            let elements = elements.iter().map(|element| element.as_ref().map(structure).transpose());
            PyList::new(py, elements.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        NodeValue::Union(union) => union.as_deref().map(selected).transpose()?.into_pyobject(py)?.into_any(),
        NodeValue::Unions(elements) => {
            let elements = elements.iter().map(|element| element.as_ref().map(selected).transpose());
            PyList::new(py, elements.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        NodeValue::Any(contents) => contents.as_deref().map(structure).transpose()?.into_pyobject(py)?.into_any(),
    })
}

/// The reverse of [`leaf`].
fn node_value(kind: &NodeKind, object: &Bound<'_, PyAny>) -> Result<NodeValue, String> {
    Ok(match kind {
        NodeKind::Structure { .. } => return Err("a structure has no value of its own".into()),
        NodeKind::Scalar(_) | NodeKind::BoundedText(_) | NodeKind::Array { .. } => {
            NodeValue::Value(assign::value(object)?)
        }
        NodeKind::StructureArray(_) => NodeValue::Structures(Arc::new(elements(object, structure)?)),
        NodeKind::AnyArray => NodeValue::Anys(Arc::new(elements(object, structure)?)),
        NodeKind::Union(_) => NodeValue::Union(optional(object, union)?.map(Box::new)),
        NodeKind::UnionArray(_) => NodeValue::Unions(Arc::new(elements(object, union)?)),
        NodeKind::Any => NodeValue::Any(optional(object, structure)?.map(Box::new)),
    })
}

fn optional<T>(
    object: &Bound<'_, PyAny>,
    convert: fn(&Bound<'_, PyAny>) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if object.is_none() { Ok(None) } else { convert(object).map(Some) }
}

fn elements<T>(
    object: &Bound<'_, PyAny>,
    convert: fn(&Bound<'_, PyAny>) -> Result<T, String>,
) -> Result<Vec<Option<T>>, String> {
    let list = object.cast::<PyList>().map_err(|_| "expected a list".to_owned())?;
    list.iter().map(|element| optional(&element, convert)).collect()
}

fn structure(object: &Bound<'_, PyAny>) -> Result<Structure, String> {
    let structure = object.cast::<PyStructure>().map_err(|_| "expected a structure".to_owned())?;
    structure.get().whole().ok_or_else(|| "expected a whole structure".to_owned()).map(|whole| (**whole).clone())
}

fn union(object: &Bound<'_, PyAny>) -> Result<UnionValue, String> {
    let pair = object.cast::<PyTuple>().ok().and_then(|pair| Some((pair.get_item(0).ok()?, pair.get_item(1).ok()?)));
    let (selector, value) = pair.ok_or_else(|| "expected the index of a member and its value".to_owned())?;
    Ok(UnionValue {
        selector: selector.extract().map_err(|error: PyErr| error.to_string())?,
        value: structure(&value)?,
    })
}

/// The structure that is sent for a pvRequest.
#[pyfunction]
pub fn request_structure(text: &str) -> PyResult<PyStructure> {
    let request = PvRequest::parse(text).map_err(|error| invalid(&format!("the pvRequest is invalid: {error}")))?;
    Ok(PyStructure::new(request.to_structure().into(), 0, None))
}

/// The text of the pvRequest in a structure.
#[pyfunction]
pub fn request_text(request: &Bound<'_, PyStructure>) -> PyResult<String> {
    let whole = request.get().whole().ok_or_else(|| invalid("a pvRequest is a whole structure"))?;
    Ok(PvRequest::from_structure(whole).to_string())
}
