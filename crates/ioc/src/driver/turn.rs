//! The turn to process, and the functions of the program that are called after it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

use fodo_lock::MutexGuard;

use super::{DriverState, ProgramPut, ProgramPutError};

/// The lock of the driver. When it is dropped, it calls the functions of puts that have ended meanwhile, without the lock.
pub(super) struct Turn<'a> {
    // Dropped in this order.
    guard: MutexGuard<'a, DriverState>,
    ended: EndedPuts,
}

impl<'a> Turn<'a> {
    pub fn new(guard: MutexGuard<'a, DriverState>) -> Turn<'a> {
        Turn { guard, ended: EndedPuts::default() }
    }

    /// The lock, to wait for a change before anything is processed.
    pub fn guard(&mut self) -> &mut MutexGuard<'a, DriverState> {
        &mut self.guard
    }
}

impl Deref for Turn<'_> {
    type Target = DriverState;

    fn deref(&self) -> &DriverState {
        &self.guard
    }
}

impl DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut DriverState {
        &mut self.guard
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.ended = std::mem::take(&mut self.guard.ended);
    }
}

/// The end of a put, for the program.
type EndedPut = (ProgramPut, Result<(), ProgramPutError>);

/// Puts of the program that have ended. Dropping them calls their functions.
#[derive(Default)]
pub struct EndedPuts(Vec<EndedPut>);

impl fmt::Debug for EndedPuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EndedPuts").field(&self.0.len()).finish()
    }
}

impl EndedPuts {
    pub fn push(&mut self, ended: ProgramPut, result: Result<(), ProgramPutError>) {
        self.0.push((ended, result));
    }
}

thread_local! {
    /// The puts whose functions this thread has to call; `None` unless it is calling one.
    static CALLS: RefCell<Option<VecDeque<EndedPut>>> = const { RefCell::new(None) };
}

impl Drop for EndedPuts {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        let is_calling = CALLS.with_borrow_mut(|calls| {
            let is_calling = calls.is_some();
            calls.get_or_insert_default().extend(self.0.drain(..));
            is_calling
        });
        if is_calling {
            // A function has put again: it is called after that one returns, so that a chain of puts needs no more stack.
            return;
        }
        while let Some((ended, result)) = CALLS.with_borrow_mut(|calls| calls.as_mut()?.pop_front()) {
            // The panic is already on stderr.
            let _ = catch_unwind(AssertUnwindSafe(|| ended(result)));
        }
        CALLS.set(None);
    }
}
