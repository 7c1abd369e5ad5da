//! On which threads the callbacks of a context's monitors run.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use super::monitor::MonitorCore;
use crate::limit;
use crate::sync::lock;

/// Where callbacks of monitors run. Whichever it is, the events of a monitor come in their order, and its callback never
/// runs on two threads at once. Monitors whose events are taken ([`super::Monitor::next`]) need none.
#[derive(Clone, Default)]
pub enum Executor {
    /// On one thread of the context, which starts with the first callback: a slow callback holds up all others.
    #[default]
    One,
    /// On so many threads of the context: a slow callback holds up others only when all threads are busy.
    Many(NonZeroUsize),
    /// Wherever the caller runs what it is given: a thread pool, the loop of a graphical interface. It is called on the
    /// thread that reads the circuit, so it must not run the job there, nor wait.
    Caller(Arc<dyn Fn(Job) + Send + Sync>),
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Executor::One => write!(f, "One"),
            Executor::Many(n) => write!(f, "Many({n})"),
            Executor::Caller(_) => write!(f, "Caller"),
        }
    }
}

/// The events of one monitor that wait for its callback.
pub struct Job(Weak<MonitorCore>);

impl Job {
    /// Runs the callback with each of them, on this thread.
    pub fn run(self) {
        if let Some(monitor) = self.0.upgrade() {
            monitor.deliver();
        }
    }
}

/// Runs callbacks as an [`Executor`] says.
#[derive(Debug)]
pub(super) struct Callbacks {
    executor: Executor,
    line: Mutex<Line>,
    changed: Condvar,
    is_ended: AtomicBool,
}

/// What waits for the threads, and how many of these wait.
#[derive(Debug, Default)]
struct Line {
    /// Monitors with events for their callbacks, in the order in which they got them. Bounded by the number of monitors:
    /// each stands here at most once, and not before its callback has returned.
    monitors: VecDeque<Arc<MonitorCore>>,
    n_asleep: usize,
}

impl Callbacks {
    /// Starts the threads; they end with [`Callbacks::end`].
    pub(super) fn start(executor: Executor) -> io::Result<Arc<Callbacks>> {
        let n_threads = match &executor {
            Executor::One => 1,
            Executor::Many(n) => n.get().min(limit::CALLBACK_THREADS_MAX),
            Executor::Caller(_) => 0,
        };
        let callbacks = Arc::new(Callbacks {
            executor,
            line: Mutex::default(),
            changed: Condvar::new(),
            is_ended: AtomicBool::new(false),
        });
        for _ in 0..n_threads {
            let running = callbacks.clone();
            let started = std::thread::Builder::new().name("fodo-callbacks".into()).spawn(move || running.run());
            if let Err(error) = started {
                callbacks.end();
                return Err(error);
            }
        }
        Ok(callbacks)
    }

    /// These monitors have events for their callbacks; leaves none of them in `monitors`. Waking a thread costs a system
    /// call, so it is told of all that came together at once, and not again before it has taken them.
    pub(super) fn call(&self, monitors: &mut Vec<Arc<MonitorCore>>) {
        if let Executor::Caller(run) = &self.executor {
            return monitors.drain(..).for_each(|monitor| run(Job(Arc::downgrade(&monitor))));
        }
        let mut line = lock(&self.line);
        let is_awaited = line.monitors.is_empty() && line.n_asleep > 0;
        line.monitors.extend(monitors.drain(..));
        drop(line);
        match self.executor {
            _ if !is_awaited => {}
            Executor::Many(_) => self.changed.notify_all(),
            Executor::One | Executor::Caller(_) => self.changed.notify_one(),
        }
    }

    /// The threads end after the callbacks that run now.
    pub(super) fn end(&self) {
        let line = lock(&self.line);
        self.is_ended.store(true, Ordering::Release);
        drop(line);
        self.changed.notify_all();
    }

    fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    fn run(&self) {
        let mut batch = VecDeque::new();
        loop {
            let mut line = lock(&self.line);
            while line.monitors.is_empty() && !self.is_ended() {
                line.n_asleep += 1;
                line = self.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
                line.n_asleep -= 1;
            }
            match self.executor {
                // The others are to have some too.
                Executor::Many(_) => batch.extend(line.monitors.pop_front()),
                Executor::One | Executor::Caller(_) => std::mem::swap(&mut batch, &mut line.monitors),
            }
            drop(line);
            for monitor in batch.drain(..) {
                if self.is_ended() {
                    return;
                }
                monitor.deliver();
            }
            if self.is_ended() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executor_is_shown_as_what_it_is() {
        let executors = [Executor::One, Executor::Many(NonZeroUsize::MIN), Executor::Caller(Arc::new(|_| {}))];

        assert_eq!(executors.map(|executor| format!("{executor:?}")), ["One", "Many(1)", "Caller"]);
    }
}
