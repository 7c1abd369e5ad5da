//! Objects that only the process that created them may use.

use fodo_net::process;
use pyo3::prelude::*;

use crate::error;

/// Something that has threads or sockets. The child of a fork has neither: there it cannot be used, and dropping it does
/// nothing, since a lock inside may be held for ever.
pub struct Owned<T> {
    value: Option<T>,
    n_forks: usize,
}

impl<T> Owned<T> {
    pub fn new(value: T) -> Owned<T> {
        Owned { value: Some(value), n_forks: process::n_forks() }
    }

    /// The object, or the exception `Forked`.
    pub fn get(&self, py: Python<'_>) -> PyResult<&T> {
        self.here().ok_or_else(|| error::forked(py))
    }

    /// The object; `None` in the child of a fork.
    pub fn here(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_here())
    }

    /// The object, out of its owner.
    pub fn into_value(mut self, py: Python<'_>) -> PyResult<T> {
        if self.is_here() { self.value.take().ok_or_else(|| error::forked(py)) } else { Err(error::forked(py)) }
    }

    fn is_here(&self) -> bool {
        self.n_forks == process::n_forks()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            std::mem::forget(self.value.take());
        }
    }
}
