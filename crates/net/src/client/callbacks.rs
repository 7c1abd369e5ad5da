//! The one thread on which a context's monitor callbacks run.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use super::monitor::MonitorCore;
use crate::sync::lock;

/// Monitors with events for their callbacks, in the order in which they got them.
///
/// Bounded by the number of monitors: each stands in the queue at most once.
#[derive(Debug, Default)]
pub(super) struct Callbacks {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    ready: VecDeque<Weak<MonitorCore>>,
    is_ended: bool,
}

impl Callbacks {
    /// Starts the thread; it ends with [`Callbacks::end`].
    pub(super) fn start() -> io::Result<Arc<Callbacks>> {
        let callbacks = Arc::new(Callbacks::default());
        let running = callbacks.clone();
        std::thread::Builder::new().name("fodo-callbacks".into()).spawn(move || running.run())?;
        Ok(callbacks)
    }

    /// The monitor has events for its callback.
    pub(super) fn call(&self, monitor: &Arc<MonitorCore>) {
        lock(&self.queue).ready.push_back(Arc::downgrade(monitor));
        self.changed.notify_one();
    }

    /// The thread ends after the callback that runs now.
    pub(super) fn end(&self) {
        lock(&self.queue).is_ended = true;
        self.changed.notify_all();
    }

    fn run(&self) {
        loop {
            let mut queue = lock(&self.queue);
            let monitor = loop {
                if queue.is_ended {
                    return;
                }
                match queue.ready.pop_front() {
                    Some(monitor) => break monitor,
                    None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            if let Some(monitor) = monitor.upgrade() {
                monitor.deliver();
            }
        }
    }
}
