//! Arrays as read-only buffers over the received memory.

use std::ffi::{CStr, c_int};

use fodo_net::{Array, Value};
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyIndexError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::reading::{self, PyReading};

/// An array that a server has sent. The buffer protocol gives access to its elements without copying them.
#[pyclass(frozen, subclass, name = "Array", module = "fodo._native")]
pub struct PyArray {
    array: Array,
    /// The number of elements and their distance in bytes: a buffer refers to them here.
    shape: [ffi::Py_ssize_t; 1],
    strides: [ffi::Py_ssize_t; 1],
    /// What an array as the value of a PV was received with.
    reading: Option<Py<PyReading>>,
}

/// The memory of the elements of an array.
struct ElementMemory {
    start: *const u8,
    element_bytes: usize,
    /// As in the module `struct` of Python.
    format: &'static CStr,
}

impl PyArray {
    pub fn new(array: Array, reading: Option<Py<PyReading>>) -> PyArray {
        let element_bytes = elements(&array).map_or(0, |elements| elements.element_bytes);
        // Lengths and sizes of vectors are at most `isize::MAX`.
        let (n, stride) = (array.len() as ffi::Py_ssize_t, element_bytes as ffi::Py_ssize_t);
        PyArray { array, shape: [n], strides: [stride], reading }
    }

    pub fn array(&self) -> &Array {
        &self.array
    }
}

#[pymethods]
impl PyArray {
    /// `source`: a reading of an array, or another array, with which it shares the elements.
    #[new]
    fn of(source: &Bound<'_, PyAny>) -> PyResult<PyArray> {
        if let Ok(array) = source.cast::<PyArray>() {
            let array = array.get();
            let reading = array.reading.as_ref().map(|reading| reading.clone_ref(source.py()));
            return Ok(PyArray::new(array.array.clone(), reading));
        }
        let reading = source.cast::<PyReading>()?;
        match &reading.get().reading.value {
            Value::Array(array) => Ok(PyArray::new(array.clone(), Some(reading.clone().unbind()))),
            Value::Scalar(_) => Err(PyTypeError::new_err("the value is not an array")),
        }
    }

    #[getter]
    fn _reading(&self, py: Python<'_>) -> PyResult<Py<PyReading>> {
        let reading = self.reading.as_ref().map(|reading| reading.clone_ref(py));
        reading.ok_or_else(|| PyAttributeError::new_err("the array is a part of a structure"))
    }

    /// The kind of the elements, such as `f64`.
    #[getter]
    fn element_kind(&self) -> &'static str {
        reading::kind_name(self.array.kind())
    }

    fn __len__(&self) -> usize {
        self.array.len()
    }

    fn _item<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let from_end = if index < 0 { self.array.len() as isize } else { 0 };
        let element = usize::try_from(index + from_end).ok().and_then(|index| self.array.scalar(index));
        reading::scalar(py, &element.ok_or_else(|| PyIndexError::new_err("the index is out of range"))?)
    }

    /// The elements as a list.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let elements = (0..self.array.len()).filter_map(|index| self.array.scalar(index));
        let elements: Vec<_> = elements.map(|element| reading::scalar(py, &element)).collect::<PyResult<_>>()?;
        PyList::new(py, elements)
    }

    /// Whether both have the same elements of the same kind.
    fn _equals(&self, other: &PyArray) -> bool {
        self.array == other.array
    }

    /// # Safety
    ///
    /// Called by Python with a `view` that it has allocated for this call.
    unsafe fn __getbuffer__(slf: Bound<'_, PyArray>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("the view is missing"));
        }
        let this = slf.get();
        let elements = match elements(&this.array) {
            Some(elements) if flags & ffi::PyBUF_WRITABLE == 0 => Ok(elements),
            Some(_) => Err("the elements are read-only"),
            None => Err("an array of strings has no buffer; use tolist()"),
        };
        let if_requested = |flag: c_int, pointer: *const ffi::Py_ssize_t| match flags & flag == flag {
            true => pointer.cast_mut(),
            false => std::ptr::null_mut(),
        };
        // SAFETY: `view` is not null, and Python has allocated it. The elements are in a vector that `this` shares and that
        // nothing changes while it does: `Array` never gives out a mutable reference to shared elements, and the view is
        // read-only. `shape` and `strides` are fields of the frozen `this`. The view keeps `this` alive by its reference
        // `obj`, which Python releases with the view.
        unsafe {
            (*view).obj = std::ptr::null_mut();
            let elements = elements.map_err(PyBufferError::new_err)?;
            (*view).buf = elements.start.cast_mut().cast();
            (*view).len = this.shape[0] * this.strides[0];
            (*view).itemsize = this.strides[0];
            (*view).readonly = 1;
            (*view).ndim = 1;
            (*view).format = match flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT {
                true => elements.format.as_ptr().cast_mut(),
                false => std::ptr::null_mut(),
            };
            (*view).shape = if_requested(ffi::PyBUF_ND, this.shape.as_ptr());
            (*view).strides = if_requested(ffi::PyBUF_STRIDES, this.strides.as_ptr());
            (*view).suboffsets = std::ptr::null_mut();
            (*view).internal = std::ptr::null_mut();
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }
}

/// The memory of the elements; `None` for strings.
fn elements(array: &Array) -> Option<ElementMemory> {
    fn of<T>(elements: &[T], format: &'static CStr) -> Option<ElementMemory> {
        Some(ElementMemory { start: elements.as_ptr().cast(), element_bytes: size_of::<T>(), format })
    }
    match array {
        Array::Bool(elements) => of(elements, c"?"),
        Array::I8(elements) => of(elements, c"b"),
        Array::U8(elements) => of(elements, c"B"),
        Array::I16(elements) => of(elements, c"h"),
        Array::U16(elements) | Array::Enum(elements) => of(elements, c"H"),
        Array::I32(elements) => of(elements, c"i"),
        Array::U32(elements) => of(elements, c"I"),
        Array::I64(elements) => of(elements, c"q"),
        Array::U64(elements) => of(elements, c"Q"),
        Array::F32(elements) => of(elements, c"f"),
        Array::F64(elements) => of(elements, c"d"),
        Array::Text(_) => None,
    }
}
