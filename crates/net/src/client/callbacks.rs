//! The one thread on which a context's monitor callbacks run.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use super::monitor::MonitorCore;
use crate::sync::lock;

/// Monitors with events for their callbacks, in the order in which they got them.
///
/// Bounded by the number of monitors: each stands in the queue at most once.
#[derive(Debug, Default)]
pub(super) struct Callbacks {
    queue: Mutex<VecDeque<Weak<MonitorCore>>>,
    changed: Condvar,
    is_ended: AtomicBool,
}

impl Callbacks {
    /// Starts the thread; it ends with [`Callbacks::end`].
    pub(super) fn start() -> io::Result<Arc<Callbacks>> {
        let callbacks = Arc::new(Callbacks::default());
        let running = callbacks.clone();
        std::thread::Builder::new().name("fodo-callbacks".into()).spawn(move || running.run())?;
        Ok(callbacks)
    }

    /// These monitors have events for their callbacks. Waking the thread costs a system call, so it is told of all that
    /// came together at once.
    pub(super) fn call(&self, monitors: impl Iterator<Item = Weak<MonitorCore>>) {
        lock(&self.queue).extend(monitors);
        self.changed.notify_one();
    }

    /// The thread ends after the callback that runs now.
    pub(super) fn end(&self) {
        let queue = lock(&self.queue);
        self.is_ended.store(true, Ordering::Release);
        drop(queue);
        self.changed.notify_all();
    }

    fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    fn run(&self) {
        let mut batch = VecDeque::new();
        loop {
            let mut queue = lock(&self.queue);
            while queue.is_empty() && !self.is_ended() {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut batch, &mut *queue);
            drop(queue);
            for monitor in batch.drain(..) {
                if self.is_ended() {
                    return;
                }
                if let Some(monitor) = monitor.upgrade() {
                    monitor.deliver();
                }
            }
            if self.is_ended() {
                return;
            }
        }
    }
}
