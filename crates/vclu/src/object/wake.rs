//! How other threads reach an object: they wake it, and the thread of the CLU then polls it.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::task::{Wake, Waker};

use fodo_lock::Mutex;

/// The objects that were woken since they were last polled. At most one entry for each object.
pub(crate) struct WokenObjects {
    indices: Mutex<BTreeSet<usize>>,
    /// Wakes the thread that drives the engine.
    turn_waker: Waker,
}

/// Wakes one object.
struct ObjectWaker {
    woken: Arc<WokenObjects>,
    index: usize,
}

impl WokenObjects {
    pub fn new(turn_waker: Waker) -> Arc<WokenObjects> {
        Arc::new(WokenObjects { indices: Mutex::default(), turn_waker })
    }

    /// A waker of the object with this index. After a reset it has no effect on the new objects.
    pub fn waker(self: &Arc<Self>, index: usize) -> Waker {
        Waker::from(Arc::new(ObjectWaker { woken: Arc::clone(self), index }))
    }

    pub fn is_empty(&self) -> bool {
        self.indices.lock().is_empty()
    }

    pub fn take(&self) -> BTreeSet<usize> {
        mem::take(&mut self.indices.lock())
    }
}

impl Wake for ObjectWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_first = self.woken.indices.lock().insert(self.index);
        if is_first {
            self.woken.turn_waker.wake_by_ref();
        }
    }
}
