//! Errors of the client as exceptions of `fodo._errors`.

use std::net::SocketAddr;

use fodo_net::{Error, ErrorKind};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// The exception for an error of an operation on this PV, with the name as the user wrote it.
pub fn exception<'py>(py: Python<'py>, pv: &Py<PyString>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let (class, server) = match error.kind() {
        ErrorKind::NotFound { .. } => ("NotFound", None),
        ErrorKind::NoReply { server, .. } | ErrorKind::ConnectionClosed { server } => ("NoReply", Some(server)),
        ErrorKind::Refused { server, .. } | ErrorKind::Handshake { server, .. } => ("Refused", Some(server)),
        ErrorKind::WrongReply { server, .. } => ("WrongReply", Some(server)),
        ErrorKind::Disconnected { server } => ("Disconnected", Some(server)),
        ErrorKind::ContextClosed => ("Closed", None),
        ErrorKind::Misuse { .. } => ("Misuse", None),
        _ => ("Error", None),
    };
    instance(py, class, pv.bind(py), &error.reason(), server, error.advice())
}

/// An exception of this class. `advice`: what to do, unless the reason says it.
pub fn instance<'py>(
    py: Python<'py>,
    class: &str,
    pv: &Bound<'py, PyString>,
    reason: &str,
    server: Option<&SocketAddr>,
    advice: Option<&str>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("fodo._errors")?.getattr(class)?.call1((pv, reason, server.map(SocketAddr::to_string), advice))
}

/// The same, to be raised.
pub fn raised(py: Python<'_>, pv: &Py<PyString>, error: &Error) -> PyErr {
    exception(py, pv, error).map_or_else(|failure| failure, PyErr::from_value)
}

/// The call is invalid, and why.
pub fn misuse(py: Python<'_>, pv: &str, reason: &str) -> PyErr {
    instance(py, "Misuse", &PyString::new(py, pv), reason, None, None).map_or_else(|failure| failure, PyErr::from_value)
}

/// The exception for a result or an update that was received but could not be made an object of Python, with what was raised
/// as its cause. An interrupt is raised again as soon as Python runs: what else was received must not be lost with it.
pub fn not_converted<'py>(py: Python<'py>, pv: &Py<PyString>, failure: &PyErr) -> PyResult<Bound<'py, PyAny>> {
    if failure.is_instance_of::<PyKeyboardInterrupt>(py) {
        py.import("_thread")?.call_method0("interrupt_main")?;
    }
    let reason = format!("what was received cannot be converted: {failure}");
    let exception = instance(py, "Error", pv.bind(py), &reason, None, None)?;
    exception.setattr("__cause__", failure.value(py))?;
    Ok(exception)
}

/// The object belongs to the parent of this process.
pub fn forked(py: Python<'_>) -> PyErr {
    let reason = "this process was forked from the one that created the context";
    let forked = instance(py, "Forked", &PyString::new(py, ""), reason, None, Some("create a new context here"));
    forked.map_or_else(|failure| failure, PyErr::from_value)
}
