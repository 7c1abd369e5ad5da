//! PVs that hold their value.

use std::sync::Arc;

use fodo_lock::Mutex;
use fodo_net::{
    Alarm, EventMask, Meta, NodeKind, NodeValue, NormativeLayout, Post, Pv, Reading, Role, Scalar, SharedPv,
    SharedStructure, Structure, StructureType, StructuredPv, Value, normative_type,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::ownership::Owned;
use crate::reading;
use crate::structure::PyStructure;

/// A PV while it is open.
pub struct OpenPv {
    pub value: HeldValue,
    pub accepts_puts: bool,
    pub accepts_calls: bool,
}

/// The value of a PV, and who serves it.
pub enum HeldValue {
    /// A scalar, an array or an enum, over both protocols.
    Flat(Box<FlatValue>),
    /// Any structure, over pvAccess.
    Structured(SharedStructure, Arc<dyn StructuredPv>),
}

/// A scalar, an array or an enum of the normative types.
pub struct FlatValue {
    pub layout: NormativeLayout,
    pub pv: Arc<dyn Pv>,
    shared: SharedPv,
    meta: Mutex<Arc<Meta>>,
    max_length: usize,
}

/// Where an open PV is; the servers that have it share it.
pub type PvSlot = Arc<Mutex<Option<Arc<OpenPv>>>>;

/// A PV that holds its value. Clients see it while it is open.
#[pyclass(frozen, name = "SharedPv", module = "fodo._native")]
pub struct PySharedPv(Owned<PvSlot>);

impl PySharedPv {
    pub fn slot(&self, py: Python<'_>) -> PyResult<&PvSlot> {
        self.0.get(py)
    }

    fn open_pv(&self, py: Python<'_>) -> PyResult<Arc<OpenPv>> {
        let found = self.slot(py)?.lock().clone();
        found.ok_or_else(|| PyValueError::new_err("the PV is closed: open it with a value first"))
    }
}

#[pymethods]
impl PySharedPv {
    #[new]
    fn create() -> PySharedPv {
        PySharedPv(Owned::new(PvSlot::default()))
    }

    /// Sets the type and the first value. `max_length`: also over Channel Access, for a scalar, an array of at most this many
    /// elements (0: as many as now), or an enum, of the normative type; `None`: over pvAccess only.
    #[pyo3(signature = (initial, *, puts, calls, max_length=None))]
    fn open(
        &self,
        py: Python<'_>,
        initial: &Bound<'_, PyStructure>,
        puts: bool,
        calls: bool,
        max_length: Option<usize>,
    ) -> PyResult<()> {
        let initial = super::marked_whole(initial.get())?;
        let value = match max_length {
            Some(max_length) => HeldValue::Flat(Box::new(FlatValue::new(&initial, max_length).map_err(invalid)?)),
            None => {
                let shared = SharedStructure::new(initial);
                HeldValue::Structured(shared.clone(), shared.into())
            }
        };
        let open = Arc::new(OpenPv { value, accepts_puts: puts, accepts_calls: calls });
        let mut slot = self.slot(py)?.lock();
        if slot.is_some() {
            return Err(invalid("the PV is open already: close it first".to_owned()));
        }
        *slot = Some(open);
        Ok(())
    }

    /// Clients do not find it any more. Returns false if it was closed.
    fn close(&self) -> bool {
        let closed = self.0.here().and_then(|slot| slot.lock().take());
        closed.is_some()
    }

    #[getter]
    fn is_open(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.slot(py)?.lock().is_some())
    }

    /// Sets the changed fields of `change` and sends them to all subscribers. The time stamp is the current time unless it is
    /// among them.
    fn post(&self, py: Python<'_>, change: &Bound<'_, PyStructure>) -> PyResult<()> {
        // The interpreter is not released: posts of several threads stay in order.
        let change =
            change.get().whole().ok_or_else(|| invalid("a part of a structure cannot be posted".to_owned()))?;
        match &self.open_pv(py)?.value {
            HeldValue::Flat(flat) => flat.post(change).map_err(invalid),
            HeldValue::Structured(shared, _) => shared.post(change).map_err(|error| invalid(error.to_string())),
        }
    }

    /// The current value, with all fields marked.
    fn current<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let whole = match &self.open_pv(py)?.value {
            HeldValue::Flat(flat) => Arc::new(flat.structure().map_err(invalid)?),
            HeldValue::Structured(shared, _) => shared.value(),
        };
        reading::nested(py, PyStructure::new(whole, 0, None))
    }
}

fn invalid(reason: String) -> PyErr {
    PyValueError::new_err(reason)
}

const EVERYTHING: EventMask = EventMask(15);

impl FlatValue {
    fn new(initial: &Structure, max_length: usize) -> Result<FlatValue, String> {
        let kind = initial.kind();
        let layout =
            NormativeLayout::of(kind.clone()).ok_or("the structure has no scalar, array or enum named value")?;
        let (element, is_array) = match &kind.nodes()[layout.value_bit()].kind {
            NodeKind::Array { kind, .. } => (*kind, true),
            _ if layout.role(layout.value_bit()) == Role::Index => (fodo_net::Kind::Enum, false),
            NodeKind::Scalar(kind) => (*kind, false),
            _ => return Err("the value is not a scalar, an array or an enum".into()),
        };
        if **kind != normative_type(element, is_array) {
            return Err("the type is not the normative type that Channel Access can serve".into());
        }
        let reading = flat_reading(&layout, initial);
        // An array of one element would be a scalar to clients.
        let max_length = if is_array { max_length.max(reading.value.len()).max(2) } else { 1 };
        let count_max = u32::try_from(max_length).map_err(|_| "max_length is out of the range of 32 bits")?;
        let shared = SharedPv::builder(reading.value.clone()).count_max(count_max).build();
        shared.post_reading(reading);
        let meta = Mutex::new(Arc::new(layout.meta(initial)));
        Ok(FlatValue { layout, pv: shared.clone().into(), shared, meta, max_length })
    }

    pub fn meta(&self) -> Arc<Meta> {
        self.meta.lock().clone()
    }

    fn structure(&self) -> Result<Structure, String> {
        let reading = Reading { meta: Some(self.meta()), ..self.shared.reading() };
        let mut structure = Structure::new(self.layout.kind().clone());
        self.layout.write(&reading, EVERYTHING, &mut structure).map_err(|error| error.to_string())?;
        structure.mark_only([0].into_iter().collect());
        Ok(structure)
    }

    fn post(&self, change: &Structure) -> Result<(), String> {
        let kind = self.layout.kind();
        let leaves = kind.leaves(change.changed());
        let is_unserved = |bit: &usize| self.layout.role(*bit) == Role::Other && !is_initial(kind, change, *bit);
        if let Some(bit) = leaves.iter().find(is_unserved) {
            return Err(format!("the field {} cannot be served over Channel Access: use a Type", kind.path(bit)));
        }
        if let Some(value) = change.value(self.layout.value_bit()).filter(|value| value.len() > self.max_length) {
            return Err(format!("the array has {} elements: max_length is {}", value.len(), self.max_length));
        }
        let mut current = self.structure()?;
        current.apply(change).map_err(|error| error.to_string())?;
        let mut reading = flat_reading(&self.layout, &current);
        if !leaves.iter().any(|bit| matches!(self.layout.role(bit), Role::Seconds | Role::Nanoseconds)) {
            reading.time = std::time::SystemTime::now().into();
        }
        if self.layout.has_meta(change.changed()) {
            *self.meta.lock() = Arc::new(self.layout.meta(&current));
            self.shared.post_reading(reading.clone());
            self.pv.posts().post(Post { mask: EventMask::PROPERTY, reading });
            return Ok(());
        }
        self.shared.post_reading(reading);
        Ok(())
    }
}

/// The reading in a structure; the index of an enum as such.
fn flat_reading(layout: &NormativeLayout, structure: &Structure) -> Reading {
    let mut reading = layout.reading(structure);
    if layout.role(layout.value_bit()) == Role::Index {
        let index = reading.value.to_f64().unwrap_or_default() as u16;
        reading.value = Value::Scalar(Scalar::Enum(index));
    }
    if reading.message.is_none() && reading.alarm.severity == fodo_net::Severity::None {
        reading.alarm = Alarm::default();
    }
    reading
}

/// Whether a node has the value of a new structure.
fn is_initial(kind: &Arc<StructureType>, structure: &Structure, bit: usize) -> bool {
    let initial: Option<NodeValue> = Structure::new(kind.clone()).node(bit).cloned();
    structure.node(bit) == initial.as_ref()
}
