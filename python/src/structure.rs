//! Structures of pvAccess as mappings.

use std::sync::Arc;

use fodo_net::{NodeKind, NodeValue, Structure};
use pyo3::exceptions::{PyAttributeError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::reading::{self, PyReading};
use crate::structure_type::{self, PyStructureType};

/// A structure that a server has sent, or a structure inside it.
#[pyclass(frozen, subclass, name = "Structure", module = "fodo._native")]
pub struct PyStructure {
    whole: Arc<Structure>,
    /// The node of `whole` that this is.
    bit: usize,
    /// What a structure as the value of a PV was received with.
    reading: Option<Py<PyReading>>,
}

impl PyStructure {
    pub fn new(whole: Arc<Structure>, bit: usize, reading: Option<Py<PyReading>>) -> PyStructure {
        PyStructure { whole, bit, reading }
    }

    /// The structure, unless this is a part of one.
    pub fn whole(&self) -> Option<&Arc<Structure>> {
        (self.bit == 0).then_some(&self.whole)
    }

    /// The fields that have changed, each with its path.
    pub fn changed_fields(&self) -> Vec<(String, NodeValue)> {
        let kind = self.whole.kind();
        let leaves = kind.leaves(self.whole.changed());
        leaves.iter().filter_map(|bit| Some((kind.path(bit), self.whole.node(bit)?.clone()))).collect()
    }

    /// The node at a path below this one.
    fn node(&self, path: &str) -> PyResult<usize> {
        let kind = self.whole.kind();
        let mut names = path.split('.');
        let found = names.try_fold(self.bit, |bit, name| kind.member(bit, name.as_bytes()));
        found.ok_or_else(|| PyKeyError::new_err(path.to_owned()))
    }
}

#[pymethods]
impl PyStructure {
    /// The same structure as `source`.
    #[new]
    fn of(py: Python<'_>, source: &Bound<'_, PyStructure>) -> PyStructure {
        let source = source.get();
        let reading = source.reading.as_ref().map(|reading| reading.clone_ref(py));
        PyStructure::new(source.whole.clone(), source.bit, reading)
    }

    #[getter]
    fn _reading(&self, py: Python<'_>) -> PyResult<Py<PyReading>> {
        let reading = self.reading.as_ref().map(|reading| reading.clone_ref(py));
        reading.ok_or_else(|| PyAttributeError::new_err("the structure is a part of another one"))
    }

    /// The name of the type; may be empty.
    #[getter]
    fn id(&self) -> String {
        match self.whole.kind().nodes().get(self.bit).map(|node| &node.kind) {
            Some(NodeKind::Structure { id }) => id.to_string(),
            _ => String::new(),
        }
    }

    /// The type with all fields, on one line.
    #[getter]
    fn r#type(&self) -> String {
        self.whole.kind().subtree(self.bit).to_string()
    }

    fn _names(&self) -> Vec<String> {
        let kind = self.whole.kind();
        kind.members(self.bit).map(|member| kind.nodes()[member].name.to_string()).collect()
    }

    /// The field at a path such as `alarm.severity`.
    fn _field<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyAny>> {
        let bit = self.node(path)?;
        match self.whole.node(bit) {
            None | Some(NodeValue::Structure) => reading::nested(py, PyStructure::new(self.whole.clone(), bit, None)),
            Some(node) => reading::field(py, node),
        }
    }

    /// The name of the selected member of the union at a path; `None` if none is selected.
    fn selected(&self, path: &str) -> PyResult<Option<String>> {
        let bit = self.node(path)?;
        match (&self.whole.kind().nodes()[bit].kind, self.whole.node(bit)) {
            (NodeKind::Union(kind), Some(NodeValue::Union(Some(union)))) => {
                Ok(kind.members.get(union.selector as usize).map(|member| member.name.to_string()))
            }
            (NodeKind::Union(_), _) => Ok(None),
            _ => Err(PyKeyError::new_err(format!("{path} is not a union"))),
        }
    }

    /// The paths of the fields that were received, or that have changed since the update before.
    #[getter]
    fn changed(&self) -> Vec<String> {
        let kind = self.whole.kind();
        kind.leaves(self.whole.changed()).iter().map(|bit| kind.path(bit)).collect()
    }

    /// The type of the whole structure.
    #[getter]
    fn _kind(&self) -> PyStructureType {
        PyStructureType(self.whole.kind().clone())
    }

    /// Whether this is the type of the whole structure: the same object, as the structures of one channel have.
    fn _is_of(&self, kind: &PyStructureType) -> bool {
        Arc::ptr_eq(self.whole.kind(), &kind.0)
    }

    /// The value of a node of the whole structure.
    fn _leaf<'py>(&self, py: Python<'py>, bit: usize) -> PyResult<Bound<'py, PyAny>> {
        let node = self.whole.node(bit).ok_or_else(|| PyKeyError::new_err(bit))?;
        structure_type::leaf(py, node)
    }

    /// The nodes that were received, or that have changed; the bit of a structure stands for all of its members.
    fn _bits(&self) -> Vec<usize> {
        self.whole.changed().iter().collect()
    }

    /// The whole structure with other values of some nodes, in the forms of `_leaf`. `bits`: the nodes that are marked as
    /// changed.
    fn _with(&self, leaves: &Bound<'_, PyDict>, bits: Vec<usize>) -> PyResult<PyStructure> {
        structure_type::changed((*self.whole).clone(), leaves, bits, false)
    }

    fn _equals(&self, other: &PyStructure) -> bool {
        let part = |structure: &PyStructure| (structure.whole.kind().subtree(structure.bit), structure.bit);
        let ((own, start), (theirs, other_start)) = (part(self), part(other));
        let nodes = 0..own.nodes().len();
        own == theirs && nodes.into_iter().all(|n| self.whole.node(start + n) == other.whole.node(other_start + n))
    }
}
