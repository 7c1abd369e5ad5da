//! Functions of Python that `sub` and `aSub` records call.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fodo_net::log::Level;
use fodo_net::{Array, Value};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyString, PyTuple};

use super::IocState;
use super::output::InboxItem;
use crate::{assign, error, reading};

/// The letters of the inputs and outputs.
pub const LETTERS: std::ops::RangeInclusive<char> = 'A'..='U';

thread_local! {
    /// Whether this thread runs a routine, with the database locked.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Fails inside a routine: the database is locked there, so that any use of it would wait for ever.
pub fn refuse_inside(py: Python<'_>) -> PyResult<()> {
    match is_inside() {
        true => Err(error::misuse(py, "", "a routine cannot use records: it is part of their processing")),
        false => Ok(()),
    }
}

/// Whether this thread runs a routine.
pub fn is_inside() -> bool {
    IS_INSIDE.get()
}

/// A function of Python with its name.
pub struct PyRoutine {
    name: String,
    function: Py<PyAny>,
    state: Arc<IocState>,
}

impl PyRoutine {
    pub fn new(name: &str, function: Py<PyAny>, state: Arc<IocState>) -> PyRoutine {
        PyRoutine { name: name.to_owned(), function, state }
    }

    /// Calls the function with the inputs A to U; it returns VAL.
    pub fn value(&self, arguments: &[f64]) -> Option<f64> {
        self.attached(|py| {
            let arguments = arguments.iter().map(|argument| PyFloat::new(py, *argument));
            let arguments = PyTuple::new(py, arguments)?;
            self.function.bind(py).call1(arguments)?.extract::<f64>()
        })
    }

    /// Calls the function with a dict of the inputs; it returns a dict of the outputs.
    pub fn arrays(&self, inputs: &[(char, Array)]) -> Option<Vec<(char, Array)>> {
        self.attached(|py| {
            let arguments = PyDict::new(py);
            for (letter, array) in inputs {
                arguments.set_item(letter.to_string(), reading::array(py, array.clone())?)?;
            }
            let returned = self.function.bind(py).call1((arguments,))?;
            let mut outputs = Vec::new();
            for (name, value) in returned.cast::<PyDict>()?.iter() {
                let name: String = name.extract()?;
                let mut letters = name.chars();
                let letter = letters.next().filter(|letter| letters.next().is_none() && LETTERS.contains(letter));
                let letter = letter.ok_or_else(|| error::misuse(py, "", &format!("there is no output \"{name}\"")))?;
                let value = assign::value(&value).map_err(|reason| error::misuse(py, "", &reason))?;
                outputs.push((letter, Value::into_array(value)));
            }
            Ok(outputs)
        })
    }

    /// Calls with the lock of the interpreter; `None` if the function failed, which is reported and counted.
    fn attached<T>(&self, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Option<T> {
        Python::try_attach(|py| {
            IS_INSIDE.set(true);
            let result = call(py);
            IS_INSIDE.set(false);
            result.map_err(|error| self.report(&error.value(py).repr().map_or_else(unnamed, shown))).ok()
        })
        .flatten()
    }

    pub fn report(&self, reason: &str) {
        self.state.n_routine_errors.fetch_add(1, Ordering::Relaxed);
        let line = format!("the routine \"{}\" failed: {reason}", self.name);
        self.state.inbox.push(InboxItem::Line(Level::Error, line));
    }
}

fn unnamed(_: PyErr) -> String {
    "an exception".to_owned()
}

fn shown(text: Bound<'_, PyString>) -> String {
    text.to_string_lossy().into_owned()
}
