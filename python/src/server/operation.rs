//! Puts and calls of clients, which a handler ends.

use std::sync::Arc;

use fodo_lock::Mutex;
use fodo_net::{Call, Completion, Peer, PutRefusal, Structure};
use pyo3::prelude::*;

use crate::ownership::Owned;
use crate::reading;
use crate::structure::PyStructure;

/// A put of a client.
pub struct ReceivedPut {
    /// The fields that are put are marked.
    pub value: Structure,
    /// The pvRequest; `None` over Channel Access, and if the client has sent none.
    pub request: Option<Arc<Structure>>,
    pub by: Peer,
    /// `None`: the client does not want to know its end.
    pub completion: Option<Completion>,
}

/// How a request ends.
enum Ending {
    Put(Option<Completion>),
    Call(Box<Call>),
}

/// A put or a call of a client. Dropped without an end, it is refused; only the process that received it ends it.
#[pyclass(frozen, name = "ServerOperation", module = "fodo._native")]
pub struct PyServerOperation {
    #[pyo3(get)]
    name: String,
    #[pyo3(get)]
    is_call: bool,
    value: Arc<Structure>,
    request: Option<Arc<Structure>>,
    by: Peer,
    /// `None` after its end.
    ending: Owned<Mutex<Option<Ending>>>,
}

impl PyServerOperation {
    pub fn of_put(name: String, put: ReceivedPut) -> PyServerOperation {
        let ReceivedPut { value, request, by, completion } = put;
        let ending = Owned::new(Mutex::new(Some(Ending::Put(completion))));
        PyServerOperation { name, is_call: false, value: Arc::new(value), request, by, ending }
    }

    pub fn of_call(name: String, call: Call) -> PyServerOperation {
        let (value, by) = (Arc::new(call.argument.clone()), call.by.clone());
        let ending = Owned::new(Mutex::new(Some(Ending::Call(Box::new(call)))));
        PyServerOperation { name, is_call: true, value, request: None, by, ending }
    }

    fn take(&self, py: Python<'_>) -> PyResult<Option<Ending>> {
        Ok(self.ending.get(py)?.lock().take())
    }
}

#[pymethods]
impl PyServerOperation {
    /// What was put, with the fields of the put marked as changed; or the argument of a call.
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        reading::nested(py, PyStructure::new(self.value.clone(), 0, None))
    }

    /// The pvRequest of a put; `None` if it has none.
    fn request<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let request = self.request.as_ref();
        request.map(|request| reading::nested(py, PyStructure::new(request.clone(), 0, None))).transpose()
    }

    #[getter]
    fn user(&self) -> &str {
        &self.by.user
    }

    #[getter]
    fn host(&self) -> &str {
        &self.by.host
    }

    /// The address of the client and its port.
    #[getter]
    fn address(&self) -> String {
        self.by.address.to_string()
    }

    #[getter]
    fn is_open(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.ending.get(py)?.lock().is_some())
    }

    /// Confirms a put, or ends a call with its result, if it has one. Returns false if it had ended.
    #[pyo3(signature = (result=None))]
    fn complete(&self, py: Python<'_>, result: Option<&Bound<'_, PyStructure>>) -> PyResult<bool> {
        let result = result.map(|result| super::marked_whole(result.get())).transpose()?;
        match self.take(py)? {
            None => return Ok(false),
            Some(Ending::Put(completion)) => completion.into_iter().for_each(Completion::complete),
            Some(Ending::Call(call)) => match result {
                Some(result) => call.complete(result),
                None => call.complete_without_result(),
            },
        }
        Ok(true)
    }

    /// Refuses it with this text. Returns false if it had ended.
    fn refuse(&self, py: Python<'_>, reason: String) -> PyResult<bool> {
        match self.take(py)? {
            None => return Ok(false),
            Some(Ending::Put(completion)) => {
                completion.into_iter().for_each(|put| put.refuse(PutRefusal::Rejected(reason.clone())));
            }
            Some(Ending::Call(call)) => call.refuse(reason),
        }
        Ok(true)
    }
}
