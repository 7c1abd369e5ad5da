//! Monitors, whose events a thread of Python takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use fodo_lock::Mutex;
use fodo_net::{
    Error, Monitor, MonitorCounts, MonitorEvent, MonitorOptions, MonitorValue, PvRequest, Reading, Refusal, Structure,
};
use pyo3::prelude::*;

use crate::operation::{self, NamedChannel};
use crate::ownership::Owned;
use crate::queue::MonitorWaker;
use crate::{error, limit, reading};

/// A subscription of either kind.
enum AnyMonitor {
    Values(Monitor<Reading>),
    Structures(Monitor<Structure>),
}

/// An event of either kind.
pub enum AnyEvent {
    Value(MonitorEvent<Reading>),
    Structure(MonitorEvent<Structure>),
}

/// A monitor that has not been closed, or whose last events wait.
pub struct OpenMonitor {
    target: NamedChannel,
    options: MonitorOptions,
    /// `None` after it was closed.
    subscription: Mutex<Option<Arc<AnyMonitor>>>,
    /// The number in the queue of its consumer, if it has one.
    consumer: Option<(u64, MonitorWaker)>,
    /// Of the subscriptions that were replaced or closed.
    counts: Mutex<MonitorCounts>,
    /// Updates and events that could not be made objects of Python.
    n_not_converted: AtomicU64,
}

/// A subscription to a PV.
#[pyclass(frozen, name = "Monitor", module = "fodo._native")]
pub struct PyMonitor(Owned<OpenMonitor>);

impl PyMonitor {
    /// `request`: what a monitor of structures selects; without one the PV's own type decides.
    pub fn start(
        target: NamedChannel,
        options: MonitorOptions,
        request: Option<PvRequest>,
        consumer: Option<(u64, MonitorWaker)>,
    ) -> PyMonitor {
        let request = request.or_else(|| target.is_structure.load(Ordering::Relaxed).then(PvRequest::default));
        let subscription = match request {
            Some(request) => AnyMonitor::Structures(target.channel.monitor_structure(request, options)),
            None => AnyMonitor::Values(target.channel.monitor(options)),
        };
        let subscription = Mutex::new(Some(Arc::new(subscription)));
        let (counts, n_not_converted) = (Mutex::default(), AtomicU64::new(0));
        PyMonitor(Owned::new(OpenMonitor { target, options, subscription, consumer, counts, n_not_converted }))
    }

    /// The monitor; `None` in the child of a fork.
    pub fn here(&self) -> Option<&OpenMonitor> {
        self.0.here()
    }
}

#[pymethods]
impl PyMonitor {
    /// The number by which the queue reports it; `None` without a queue.
    #[getter]
    fn number(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(self.0.get(py)?.consumer.as_ref().map(|(number, _)| *number))
    }

    #[getter]
    fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.0.get(py)?.subscription.lock().is_none())
    }

    /// Lets the queue report the monitor now: for the first time, or because events were left.
    fn wake(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get(py)?.wake();
        Ok(())
    }

    /// The next event or value; `None` if none is queued. Then the queue reports the next one.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let watch = self.0.get(py)?;
        match watch.queued(&watch.armed()) {
            Some(event) => watch.object(py, event).map(Some),
            None => Ok(None),
        }
    }

    /// Waits for the next event or value, for at most `timeout` seconds. `None`: none was received in time, or the monitor was
    /// closed.
    #[pyo3(signature = (timeout=None))]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let watch = self.0.get(py)?;
        let deadline = operation::duration(timeout)?.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let pause = left.unwrap_or(Duration::MAX).min(limit::SIGNAL_PERIOD);
            let Some(subscription) = watch.current() else { return Ok(None) };
            let event = py.detach(|| watch.followed(subscription.next_timeout(pause)));
            if let Some(event) = event {
                return watch.object(py, event).map(Some);
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            py.check_signals()?;
        }
    }

    /// How many updates were received, merged in the queue, reported as overrun by the server, and taken; how often the
    /// connection was lost.
    fn counts(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64, u64)> {
        let counts = self.0.get(py)?.counts();
        Ok((counts.received, counts.merged, counts.overrun, counts.delivered, counts.n_disconnected))
    }

    /// The longest time in seconds between two consecutive updates of one connection.
    #[getter]
    fn longest_gap(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.0.get(py)?.counts().longest_gap.as_secs_f64())
    }

    /// How many updates and events were taken that could not be made objects of Python.
    #[getter]
    fn n_not_converted(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.get(py)?.n_not_converted.load(Ordering::Relaxed))
    }

    /// Why the channel is not connected after this time in seconds, as an exception; `None` if it is.
    fn why_inactive<'py>(&self, py: Python<'py>, waited: f64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let target = &self.0.get(py)?.target;
        let why = target.channel.why_inactive(operation::duration(Some(waited))?.unwrap_or_default());
        why.map(|error: Error| error::exception(py, &target.name, &error)).transpose()
    }

    /// Ends the subscription; queued events are dropped.
    fn close(&self) {
        if let Some(watch) = self.0.here() {
            let closed = watch.replace(None);
            drop(closed);
        }
    }
}

impl AnyMonitor {
    fn next_timeout(&self, timeout: Duration) -> Option<AnyEvent> {
        match self {
            AnyMonitor::Values(monitor) => monitor.next_timeout(timeout).map(AnyEvent::Value),
            AnyMonitor::Structures(monitor) => monitor.next_timeout(timeout).map(AnyEvent::Structure),
        }
    }

    /// The next event, if one is queued; otherwise the waker is called for the next one.
    fn poll(&self, waker: &Waker) -> Option<AnyEvent> {
        fn polled<T: MonitorValue>(monitor: &Monitor<T>, waker: &Waker) -> Option<MonitorEvent<T>> {
            match std::pin::pin!(monitor.next_event()).poll(&mut Context::from_waker(waker)) {
                Poll::Ready(event) => event,
                Poll::Pending => None,
            }
        }
        match self {
            AnyMonitor::Values(monitor) => polled(monitor, waker).map(AnyEvent::Value),
            AnyMonitor::Structures(monitor) => polled(monitor, waker).map(AnyEvent::Structure),
        }
    }

    fn counts(&self) -> MonitorCounts {
        match self {
            AnyMonitor::Values(monitor) => monitor.counts(),
            AnyMonitor::Structures(monitor) => monitor.counts(),
        }
    }
}

impl OpenMonitor {
    fn current(&self) -> Option<Arc<AnyMonitor>> {
        self.subscription.lock().clone()
    }

    /// Replaces the subscription; the counts of the one before are kept. Without a lock held, since it takes those of the
    /// client.
    fn replace(&self, subscription: Option<Arc<AnyMonitor>>) -> Option<Arc<AnyMonitor>> {
        let before = std::mem::replace(&mut *self.subscription.lock(), subscription);
        if let Some(before) = &before {
            let ended = before.counts();
            let mut counts = self.counts.lock();
            *counts = sum(*counts, ended);
        }
        before
    }

    fn counts(&self) -> MonitorCounts {
        let current = self.current().map(|subscription| subscription.counts()).unwrap_or_default();
        sum(*self.counts.lock(), current)
    }

    /// The next event that is queued; otherwise the waker is called for the next one.
    pub fn queued(&self, waker: &Waker) -> Option<AnyEvent> {
        loop {
            let event = self.current()?.poll(waker)?;
            if let Some(event) = self.followed(Some(event)) {
                return Some(event);
            }
        }
    }

    /// Lists the monitor in the queue of its consumer now.
    pub fn wake(&self) {
        if let Some((_, waker)) = &self.consumer {
            waker.wake();
        }
    }

    /// The waker of the consumer, which lists the monitor at its next call.
    pub fn armed(&self) -> Waker {
        match &self.consumer {
            Some((_, waker)) => {
                waker.rearm();
                waker.waker()
            }
            None => Waker::noop().clone(),
        }
    }

    /// The event, unless another subscription follows: a PV that turns out to be a structure is monitored as such.
    fn followed(&self, event: Option<AnyEvent>) -> Option<AnyEvent> {
        match event {
            Some(AnyEvent::Value(MonitorEvent::WrongReply(reply))) if operation::is_of_a_structure(&reply) => {
                self.target.is_structure.store(true, Ordering::Relaxed);
                let monitor = self.target.channel.monitor_structure(PvRequest::default(), self.options);
                let replaced = self.replace(Some(Arc::new(AnyMonitor::Structures(monitor))));
                if replaced.is_none() {
                    // It was closed meanwhile.
                    drop(self.replace(None));
                }
                None
            }
            event => event,
        }
    }

    /// The event as Python has it, a value or `fodo._monitors.Event`; in place of one that cannot be converted, an event with the error.
    pub fn object<'py>(&self, py: Python<'py>, event: AnyEvent) -> PyResult<Bound<'py, PyAny>> {
        self.converted(py, event).or_else(|failure| {
            self.n_not_converted.fetch_add(1, Ordering::Relaxed);
            let error = error::not_converted(py, &self.target.name, &failure)?;
            py.import("fodo._monitors")?.getattr("Event")?.call1((&self.target.name, "not_converted", error))
        })
    }

    fn converted<'py>(&self, py: Python<'py>, event: AnyEvent) -> PyResult<Bound<'py, PyAny>> {
        match event {
            AnyEvent::Value(MonitorEvent::Update(reading)) => reading::value(py, &self.target.name, reading),
            AnyEvent::Structure(MonitorEvent::Update(structure)) => {
                reading::structure_value(py, &self.target.name, structure)
            }
            AnyEvent::Value(event) => self.event(py, event),
            AnyEvent::Structure(event) => self.event(py, event),
        }
    }

    /// An event that is not an update, as `fodo._monitors.Event`.
    fn event<'py, T>(&self, py: Python<'py>, event: MonitorEvent<T>) -> PyResult<Bound<'py, PyAny>> {
        let (kind, detail) = event_parts(py, &self.target, event)?;
        py.import("fodo._monitors")?.getattr("Event")?.call1((&self.target.name, kind, detail))
    }
}

/// The kind and the detail of an event that is not an update.
pub fn event_parts<'py, T>(
    py: Python<'py>,
    target: &NamedChannel,
    event: MonitorEvent<T>,
) -> PyResult<(&'static str, Bound<'py, PyAny>)> {
    let none = || py.None().into_bound(py);
    let failure = |class, reason: String, advice| {
        let server = target.channel.facts().map(|facts| facts.server);
        error::instance(py, class, target.name.bind(py), &reason, server.as_ref(), advice)
    };
    let refused = |refusal: &Refusal| failure("Refused", format!("the server refused {refusal}"), refusal.advice());
    Ok(match event {
        MonitorEvent::Connected(facts) => ("connected", operation::connection(py, target, &facts)?),
        MonitorEvent::Rights(facts) => ("rights", operation::connection(py, target, &facts)?),
        MonitorEvent::Merged(n) => ("merged", n.into_pyobject(py)?.into_any()),
        MonitorEvent::Unresponsive => ("unresponsive", none()),
        MonitorEvent::Responsive => ("responsive", none()),
        MonitorEvent::Disconnected => ("disconnected", none()),
        MonitorEvent::Refused(refusal @ Refusal::FurtherUpdates) => ("ended", refused(&refusal)?),
        MonitorEvent::Refused(refusal) => ("refused", refused(&refusal)?),
        MonitorEvent::WrongReply(reply) => {
            ("wrong_reply", failure("WrongReply", format!("the server sent {reply}"), Some(reply.advice()))?)
        }
        MonitorEvent::Closed => ("closed", none()),
        // Whatever a later version adds.
        _ => ("other", none()),
    })
}

/// The counts of two subscriptions that followed each other.
fn sum(one: MonitorCounts, other: MonitorCounts) -> MonitorCounts {
    MonitorCounts {
        received: one.received + other.received,
        merged: one.merged + other.merged,
        overrun: one.overrun + other.overrun,
        delivered: one.delivered + other.delivered,
        longest_gap: one.longest_gap.max(other.longest_gap),
        n_disconnected: one.n_disconnected + other.n_disconnected,
    }
}
