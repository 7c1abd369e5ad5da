//! Routines: what sub records call by name.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::calc::N_ARGS;

/// What a routine is given.
#[derive(Debug)]
pub struct Call<'a> {
    /// The inputs A to U; a change stays, and is told.
    pub args: &'a mut [f64; N_ARGS],
    /// VAL: what it was, and what it becomes.
    pub value: &'a mut f64,
}

/// A routine could not do its work: the record goes into SOFT alarm of BRSV's severity. So it does when one panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutineFailed;

/// Runs inside the processing of its record, so it must not wait for anything.
pub type Routine = Arc<dyn Fn(Call<'_>) -> Result<(), RoutineFailed> + Send + Sync>;

/// Calls a routine. One that panics has failed: its record goes into alarm, and all records go on.
pub(crate) fn call(routine: &Routine, call: Call<'_>) -> Result<(), RoutineFailed> {
    // What it leaves half done are numbers, and any number is one.
    catch_unwind(AssertUnwindSafe(|| routine(call))).unwrap_or(Err(RoutineFailed))
}

/// The routines that records may name.
#[derive(Clone, Default)]
pub(crate) struct Routines(HashMap<String, Routine>);

impl Routines {
    pub(crate) fn add(&mut self, name: &str, routine: Routine) {
        self.0.insert(name.to_owned(), routine);
    }

    pub(crate) fn find(&self, name: &str) -> Option<Routine> {
        self.0.get(name).cloned()
    }
}

impl fmt::Debug for Routines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
