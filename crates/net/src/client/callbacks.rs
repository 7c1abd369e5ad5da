//! The threads on which the callbacks of a context's monitors run.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use fodo_lock::{Condvar, Mutex};

use super::monitor::MonitorCore;
use crate::limit;

/// Where monitor callbacks run.
///
/// With every variant a monitor's events are delivered in order, and its callback never runs on two threads at once.
/// Monitors without a callback ([`super::Monitor::next_timeout`]) do not use it.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use std::sync::Arc;
///
/// use fodo_net::{CallbackJob, ClientConfig, Context, Executor};
///
/// // All callbacks run on the thread of the program's own event loop.
/// let (sender, jobs) = mpsc::channel::<CallbackJob>();
/// let executor = Executor::Custom(Arc::new(move |job| {
///     // Fails when the event loop has ended; then no callback needs to run.
///     let _ = sender.send(job);
/// }));
/// let context = Context::with_executor(ClientConfig::default(), executor);
/// // In the event loop:
/// for job in jobs.try_iter() {
///     job.run();
/// }
/// ```
#[derive(Clone, Default)]
pub enum Executor {
    /// On one thread of the context, started with the first callback: a slow callback delays all others.
    #[default]
    OneThread,
    /// On this many threads of the context: a slow callback delays others only when all threads are busy.
    Threads(NonZeroUsize),
    /// Wherever the caller runs the job: a thread pool, the event loop of a graphical interface. The function is called
    /// on the thread that reads the circuit, with no lock held, so it must neither run the job there nor block. If it
    /// panics, the next event of the monitor calls it again.
    Custom(Arc<dyn Fn(CallbackJob) + Send + Sync>),
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Executor::OneThread => write!(f, "OneThread"),
            Executor::Threads(n) => write!(f, "Threads({n})"),
            Executor::Custom(_) => write!(f, "Custom"),
        }
    }
}

/// Queued events of one monitor, to be passed to its callback.
/// See the example of [`Executor`].
pub struct CallbackJob(Weak<MonitorCore>);

impl CallbackJob {
    /// Calls the callback with each queued event, on this thread.
    /// See the example of [`Executor`].
    pub fn run(self) {
        if let Some(monitor) = self.0.upgrade() {
            monitor.deliver();
        }
    }
}

/// Runs callbacks according to an [`Executor`].
#[derive(Debug)]
pub(super) struct Callbacks {
    executor: Executor,
    line: Mutex<WaitingMonitors>,
    changed: Condvar,
    is_ended: AtomicBool,
}

/// The monitors that wait for a thread, and the number of idle threads.
#[derive(Debug, Default)]
struct WaitingMonitors {
    /// Monitors with events for their callbacks, in the order of arrival. Bounded by the number of monitors: each is
    /// listed at most once, and not again until its callback has returned.
    monitors: VecDeque<Arc<MonitorCore>>,
    n_asleep: usize,
}

impl Callbacks {
    /// Starts the threads; they end with [`Callbacks::end`].
    pub(super) fn start(executor: Executor) -> io::Result<Arc<Callbacks>> {
        let n_threads = match &executor {
            Executor::OneThread => 1,
            Executor::Threads(n) => n.get().min(limit::CALLBACK_THREADS_MAX),
            Executor::Custom(_) => 0,
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

    /// Schedules the callbacks of these monitors and empties `monitors`. Waking a thread costs a system call, so it is
    /// woken once for all monitors that arrive together, and not again until it has taken them.
    pub(super) fn call(&self, monitors: &mut Vec<Arc<MonitorCore>>) {
        if let Executor::Custom(run) = &self.executor {
            for monitor in monitors.drain(..) {
                let job = CallbackJob(Arc::downgrade(&monitor));
                // The panic hook has already reported the panic; the thread that reads the circuit continues.
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(job))).is_err() {
                    monitor.not_called();
                }
            }
            return;
        }
        let mut line = self.line.lock();
        let is_awaited = line.monitors.is_empty() && line.n_asleep > 0;
        line.monitors.extend(monitors.drain(..));
        drop(line);
        match self.executor {
            _ if !is_awaited => {}
            Executor::Threads(_) => self.changed.notify_all(),
            Executor::OneThread | Executor::Custom(_) => self.changed.notify_one(),
        }
    }

    /// Whether callbacks run on threads of the context, not wherever the user runs them.
    pub(super) fn has_threads(&self) -> bool {
        !matches!(self.executor, Executor::Custom(_))
    }

    /// Ends the threads after the callbacks that run now.
    pub(super) fn end(&self) {
        let line = self.line.lock();
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
            let mut line = self.line.lock();
            while line.monitors.is_empty() && !self.is_ended() {
                line.n_asleep += 1;
                self.changed.wait(&mut line);
                line.n_asleep -= 1;
            }
            match self.executor {
                // Leave some for the other threads.
                Executor::Threads(_) => batch.extend(line.monitors.pop_front()),
                Executor::OneThread | Executor::Custom(_) => std::mem::swap(&mut batch, &mut line.monitors),
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
    use std::time::{Duration, Instant};

    use super::*;

    /// Waits until a condition is true.
    fn await_that(is_true: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_true() {
            assert!(start.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
    }

    #[test]
    fn idle_threads_sleep_until_they_are_ended() {
        for (executor, n_threads) in
            [(Executor::OneThread, 1), (Executor::Threads(NonZeroUsize::MIN.saturating_add(2)), 3)]
        {
            let callbacks = Callbacks::start(executor).unwrap();
            await_that(|| callbacks.line.lock().n_asleep == n_threads);

            callbacks.end();

            await_that(|| Arc::strong_count(&callbacks) == 1);
            assert_eq!(callbacks.line.lock().n_asleep, 0);
        }
    }

    #[test]
    fn debug_output_of_an_executor_names_its_variant() {
        let executors = [Executor::OneThread, Executor::Threads(NonZeroUsize::MIN), Executor::Custom(Arc::new(|_| {}))];

        assert_eq!(executors.map(|executor| format!("{executor:?}")), ["OneThread", "Threads(1)", "Custom"]);
    }
}
