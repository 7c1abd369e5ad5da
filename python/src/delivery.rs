//! Passing events of monitors to functions of Python.
//!
//! A thread of Python calls all functions whose monitors have events, with one call of Rust: with thousands of PVs that change
//! at the same time, code of Python for each of them would take longer than the function itself.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use crate::limit;
use crate::monitor::{AnyEvent, OpenMonitor, PyMonitor};

/// A function that receives the values of a monitor.
struct ValueCallback<'py> {
    /// The monitor as Python has it, which handles all but values and functions that return nothing.
    owner: Bound<'py, PyAny>,
    monitor: Bound<'py, PyMonitor>,
    function: Bound<'py, PyAny>,
}

/// Whether a callback receives the next event now.
#[derive(PartialEq, Eq)]
enum CallbackPace {
    Continues,
    /// The owner has a call to wait for, and delivers again afterwards.
    Waits,
}

impl CallbackPace {
    /// From what a method of the owner returns.
    fn of(waits: &Bound<'_, PyAny>) -> PyResult<CallbackPace> {
        Ok(if waits.is_truthy()? { CallbackPace::Waits } else { CallbackPace::Continues })
    }
}

/// Passes what the monitors with these numbers have queued to their callbacks, each up to a limit, so that others have their
/// turn.
///
/// `callbacks`: by number, the owner, the native monitor and the function. `others`: is called with each number that is not
/// among them. An exception that ends the program leaves the later monitors listed.
#[pyfunction]
pub fn deliver(
    py: Python<'_>,
    numbers: &Bound<'_, PyList>,
    callbacks: &Bound<'_, PyDict>,
    others: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    // A function may close monitors and create them, which changes `callbacks`.
    let mut called = Vec::with_capacity(numbers.len());
    let mut interruption = None;
    for number in numbers {
        match (callbacks.get_item(&number)?, others) {
            (Some(callback), _) => called.push(ValueCallback::of(&callback)?),
            (None, Some(others)) => {
                if let Err(error) = others.call1((number,)) {
                    interruption.get_or_insert(error);
                }
            }
            // It was closed.
            (None, None) => {}
        }
    }
    if let Some(error) = interruption {
        called.iter().for_each(ValueCallback::list_again);
        return Err(error);
    }
    let mut called = called.into_iter();
    while let Some(callback) = called.next() {
        let Some(monitor) = callback.monitor.get().here() else { return Ok(()) };
        if let Err(error) = callback.deliver(py, monitor) {
            let left = std::iter::once(callback).chain(called);
            left.for_each(|callback| callback.list_again());
            return Err(error);
        }
    }
    Ok(())
}

impl<'py> ValueCallback<'py> {
    fn of(entry: &Bound<'py, PyAny>) -> PyResult<ValueCallback<'py>> {
        let entry = entry.cast::<PyTuple>()?;
        let monitor = entry.get_item(1)?.cast_into::<PyMonitor>()?;
        Ok(ValueCallback { owner: entry.get_item(0)?, monitor, function: entry.get_item(2)? })
    }

    fn deliver(&self, py: Python<'py>, monitor: &OpenMonitor) -> PyResult<()> {
        let waker = monitor.armed();
        for _ in 0..limit::TURN {
            let Some(event) = monitor.queued(&waker) else { return Ok(()) };
            if self.pass(py, monitor, event)? == CallbackPace::Waits {
                return Ok(());
            }
        }
        monitor.wake();
        Ok(())
    }

    /// Passes one event: a value to the function, any other to the owner.
    fn pass(&self, py: Python<'py>, monitor: &OpenMonitor, event: AnyEvent) -> PyResult<CallbackPace> {
        static EVENT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let events = EVENT.import(py, "fodo._monitors", "Event")?;
        let result = match monitor.object(py, event) {
            Ok(event) if event.get_type().is(events) => {
                let waits = self.owner.call_method1(intern!(py, "_pass_event"), (event,))?;
                return CallbackPace::of(&waits);
            }
            Ok(value) => self.function.call1((value,)),
            Err(error) => Err(error),
        };
        let waits = match result {
            Ok(result) if result.is_none() => return Ok(CallbackPace::Continues),
            Ok(result) => self.owner.call_method1(intern!(py, "_returned"), (result,))?,
            Err(error) => self.owner.call_method1(intern!(py, "_raised"), (error.into_value(py),))?,
        };
        CallbackPace::of(&waits)
    }

    /// Has the queue report the monitor again, whose events were not taken.
    fn list_again(&self) {
        if let Some(monitor) = self.monitor.get().here() {
            drop(monitor.armed());
            monitor.wake();
        }
    }
}
