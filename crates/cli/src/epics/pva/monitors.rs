//! Subscriptions to several structured PVs, whose events arrive in one stream.

use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use fodo_net::{Context, Error, Monitor, MonitorEvent, MonitorOptions, PvRequest, Structure};

use crate::limit;

/// Monitored PVs. An index is queued for each subscription that may have an event, and one for a stop: the queue never
/// contains more.
pub struct StructureMonitors {
    monitors: Vec<Monitor<Structure>>,
    sender: Sender<Option<usize>>,
    receiver: Receiver<Option<usize>>,
}

/// An event of the stream.
pub enum StreamEvent {
    /// An event of a PV, with its index in the list.
    Event(usize, MonitorEvent<Structure>),
    /// The program must stop.
    Stop,
}

impl StructureMonitors {
    /// Subscribes to PVs of pvAccess, given with their scheme.
    pub fn start(context: &Context, names: &[String], request: &PvRequest) -> Result<StructureMonitors, Error> {
        let (sender, receiver) = channel();
        let options = MonitorOptions { queue_max: limit::CAMONITOR_QUEUE, ..MonitorOptions::default() };
        let mut monitors = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            monitors.push(context.channel(name)?.monitor_structure(request.clone(), options));
            // The receiver exists.
            let _ = sender.send(Some(index));
        }
        Ok(StructureMonitors { monitors, sender, receiver })
    }

    /// A function that stops the stream.
    pub fn stopper(&self) -> impl Fn() + Send + 'static {
        let sender = self.sender.clone();
        move || {
            // Without a receiver the stream has ended already.
            let _ = sender.send(None);
        }
    }

    /// The next event; `None` if there is none within `timeout`.
    pub fn next(&self, timeout: Duration) -> Option<StreamEvent> {
        let deadline = std::time::Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let Some(index) = self.receiver.recv_timeout(left).ok()? else { return Some(StreamEvent::Stop) };
            let Some(monitor) = self.monitors.get(index) else { continue };
            let waker = Waker::from(Arc::new(IndexWaker { index, sender: self.sender.clone() }));
            let event = pin!(monitor.next_event()).poll(&mut TaskContext::from_waker(&waker));
            if let Poll::Ready(Some(event)) = event {
                // There may be more, after the events of the others.
                waker.wake();
                return Some(StreamEvent::Event(index, event));
            }
        }
    }
}

/// Queues the index of a subscription that has an event.
struct IndexWaker {
    index: usize,
    sender: Sender<Option<usize>>,
}

impl Wake for IndexWaker {
    fn wake(self: Arc<Self>) {
        // Without a receiver the program is about to end.
        let _ = self.sender.send(Some(self.index));
    }
}
