//! The native module of the Python package `fodo`: contexts, operations, monitors and values of `fodo-net`, and the
//! program.
//!
//! It contains what needs Rust; the package around it has the shape that users see. No thread of Rust runs code of Python:
//! results and events wait in queues, from which threads of Python take them. The exception are routines of sub and aSub
//! records, which are part of their processing.

mod array;
mod assign;
mod context;
mod delivery;
mod error;
mod gets;
mod group;
mod ioc;
mod limit;
mod monitor;
mod operation;
mod ownership;
mod queue;
mod reading;
mod server;
mod structure;
mod structure_type;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use pyo3::prelude::*;

/// Runs the program `fodo` with these arguments, the name of the program first. `program` is the path of an executable that
/// does the same. Returns the exit code.
#[pyfunction]
fn run(py: Python<'_>, program: PathBuf, arguments: Vec<OsString>) -> u8 {
    py.detach(|| {
        let end = fodo_cli::run_inside(program, arguments);
        // Rust flushes it at the end of its own programs only. There is no other place to report that it failed.
        let _ = std::io::stdout().flush();
        (0..=u8::MAX).find(|&code| ExitCode::from(code) == end).unwrap_or(1)
    })
}

// Threads of Python without its lock could drain a queue while another adds to it.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<array::PyArray>()?;
    module.add_class::<context::PyContext>()?;
    module.add_class::<context::PyChannel>()?;
    module.add_class::<context::PyChannels>()?;
    module.add_class::<group::PyGroup>()?;
    module.add_class::<group::PyRows>()?;
    module.add_class::<ioc::PyIocBuilder>()?;
    module.add_class::<ioc::PyRunningIoc>()?;
    module.add_class::<ioc::output::PyInbox>()?;
    module.add_class::<ioc::output::PyOutputRequest>()?;
    module.add_class::<ioc::record::PyRecord>()?;
    module.add_class::<monitor::PyMonitor>()?;
    module.add_class::<operation::PyOperation>()?;
    module.add_class::<queue::CompletionQueue>()?;
    module.add_class::<reading::PyReading>()?;
    module.add_class::<server::PyServer>()?;
    module.add_class::<server::PyServerOperation>()?;
    module.add_class::<server::PySharedPv>()?;
    module.add_class::<structure::PyStructure>()?;
    module.add_class::<structure_type::PyStructureType>()?;
    module.add_function(wrap_pyfunction!(structure_type::request_structure, module)?)?;
    module.add_function(wrap_pyfunction!(structure_type::request_text, module)?)?;
    module.add_function(wrap_pyfunction!(delivery::deliver, module)?)?;
    module.add_function(wrap_pyfunction!(operation::wait, module)?)?;
    module.add_function(wrap_pyfunction!(context::known_settings, module)?)?;
    module.add_function(wrap_pyfunction!(run, module)?)
}
