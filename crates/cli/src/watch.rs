//! Monitors several PVs and merges their events into one stream.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use fodo_lock::Mutex;
use fodo_net::{
    Channel, ChannelFacts, Context, Error, Kind, Monitor, MonitorCounts, MonitorEvent, MonitorOptions, Notice,
    Operation,
};

use crate::limit;

/// An event of the stream.
pub enum WatchEvent {
    /// An event of a PV, with its index in the list.
    Event(usize, MonitorEvent),
    /// A monitor cannot start, because the system cannot create a thread.
    Failed(Error),
    /// The program must stop.
    Stop,
}

/// A message in the stream.
enum StreamMessage {
    /// There may be PVs to check, or it is time to stop.
    Look,
    Happened(WatchEvent),
}

/// PVs whose connection may have progressed. It is separate from the stream, because a waker must never wait for space
/// in the stream.
type ToLookAt = Arc<Mutex<Vec<usize>>>;

/// Monitored PVs. The request depends on the kind of a PV, so a subscription starts when its channel is active, and is
/// replaced when the PV reconnects with another kind.
pub struct PvMonitors<'a> {
    options_for: Box<dyn Fn(&ChannelFacts) -> MonitorOptions + 'a>,
    pvs: Vec<MonitoredPv>,
    to_look_at: ToLookAt,
    failure: Option<Error>,
    is_stopping: Arc<AtomicBool>,
    sender: SyncSender<StreamMessage>,
    receiver: Receiver<StreamMessage>,
}

struct MonitoredPv {
    channel: Channel,
    connecting: Option<Operation<ChannelFacts>>,
    monitor: Option<Monitor>,
    kind: Option<Kind>,
    /// Counts of subscriptions that have ended.
    past: MonitorCounts,
}

impl<'a> PvMonitors<'a> {
    /// Searches for all PVs. Notices are printed on stderr, formatted by `text`.
    pub fn start(
        names: &[String],
        text: impl Fn(&Notice) -> Option<String> + Send + 'static,
        options_for: impl Fn(&ChannelFacts) -> MonitorOptions + 'a,
    ) -> Result<PvMonitors<'a>, String> {
        let context = Context::from_env().map_err(|error| error.to_string())?;
        crate::notices::print(&context, text).map_err(|error| error.to_string())?;
        let (sender, receiver) = sync_channel(limit::HAPPENINGS);
        let mut watch = PvMonitors {
            options_for: Box::new(options_for),
            pvs: Vec::with_capacity(names.len()),
            to_look_at: ToLookAt::default(),
            failure: None,
            is_stopping: Arc::default(),
            sender,
            receiver,
        };
        for name in names {
            let channel = context.channel(name).map_err(|error| crate::exit::explain(&error))?;
            let connecting = Some(channel.start_connect());
            watch.pvs.push(MonitoredPv {
                channel,
                connecting,
                monitor: None,
                kind: None,
                past: MonitorCounts::default(),
            });
        }
        for pv in 0..watch.pvs.len() {
            watch.look(pv);
        }
        Ok(watch)
    }

    /// A function that stops the stream; [`WatchEvent::Stop`] follows soon.
    pub fn stopper(&self) -> impl Fn() + Send + 'static {
        let (sender, is_stopping) = (self.sender.clone(), self.is_stopping.clone());
        move || {
            is_stopping.store(true, Ordering::Release);
            // If the stream is full, its reader is awake and sees the flag anyway.
            drop(sender.try_send(StreamMessage::Look));
        }
    }

    /// Why a PV is not connected after this time; `None` if it is connected.
    pub fn why_inactive(&self, pv: usize, waited: Duration) -> Option<Error> {
        self.channel(pv)?.why_inactive(waited)
    }

    /// The channel of a PV.
    pub fn channel(&self, pv: usize) -> Option<&Channel> {
        self.pvs.get(pv).map(|watched| &watched.channel)
    }

    /// The next event; `None` if there is none within `timeout`.
    pub fn next(&mut self, timeout: Duration) -> Option<WatchEvent> {
        let deadline = std::time::Instant::now() + timeout;
        loop {
            if self.is_stopping.load(Ordering::Acquire) {
                return Some(WatchEvent::Stop);
            }
            let to_look_at = std::mem::take(&mut *self.to_look_at.lock());
            for pv in to_look_at {
                self.look(pv);
            }
            if let Some(error) = self.failure.take() {
                return Some(WatchEvent::Failed(error));
            }
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            match self.receiver.recv_timeout(left).ok()? {
                StreamMessage::Look => {}
                StreamMessage::Happened(happening) => {
                    if let WatchEvent::Event(pv, MonitorEvent::Connected(facts)) = &happening {
                        self.subscribe_if_changed(*pv, facts.clone());
                    }
                    return Some(happening);
                }
            }
        }
    }

    /// The update counts of a PV.
    pub fn counts(&self, pv: usize) -> MonitorCounts {
        self.pvs.get(pv).map_or_else(MonitorCounts::default, |watched| {
            let running = watched.monitor.as_ref().map_or_else(MonitorCounts::default, Monitor::counts);
            sum(watched.past, running)
        })
    }

    /// Checks whether a PV has connected, and subscribes if so.
    fn look(&mut self, pv: usize) {
        let Some(watched) = self.pvs.get_mut(pv) else { return };
        let Some(connecting) = &mut watched.connecting else { return };
        let waker =
            Waker::from(Arc::new(CheckWaker { pv, list: self.to_look_at.clone(), sender: self.sender.clone() }));
        let connected: Poll<Result<ChannelFacts, Error>> =
            Pin::new(connecting).poll(&mut TaskContext::from_waker(&waker));
        match connected {
            Poll::Pending => {}
            Poll::Ready(Ok(facts)) => {
                watched.connecting = None;
                self.subscribe(pv, &facts);
            }
            // A failed search or circuit is retried while the PV is monitored.
            Poll::Ready(Err(_)) => {
                watched.connecting = Some(watched.channel.start_connect());
                waker.wake();
            }
        }
    }

    fn subscribe(&mut self, pv: usize, facts: &ChannelFacts) {
        let options = (self.options_for)(facts);
        let sender = self.sender.clone();
        let Some(watched) = self.pvs.get_mut(pv) else { return };
        if let Some(monitor) = watched.monitor.take() {
            watched.past = sum(watched.past, monitor.counts());
        }
        watched.kind = Some(facts.kind);
        // Blocking here while the terminal is slow makes the monitor's queue merge and count updates.
        let monitor = watched.channel.monitor_with(options, move |event| {
            drop(sender.send(StreamMessage::Happened(WatchEvent::Event(pv, event))));
        });
        match monitor {
            Ok(monitor) => watched.monitor = Some(monitor),
            Err(error) => self.failure = Some(error),
        }
    }

    /// Subscribes again if a PV has reconnected with another kind.
    fn subscribe_if_changed(&mut self, pv: usize, facts: ChannelFacts) {
        let has_changed = self.pvs.get(pv).is_some_and(|watched| watched.kind.is_some_and(|kind| kind != facts.kind));
        if has_changed {
            self.subscribe(pv, &facts);
        }
    }
}

struct CheckWaker {
    pv: usize,
    list: ToLookAt,
    sender: SyncSender<StreamMessage>,
}

impl Wake for CheckWaker {
    fn wake(self: Arc<Self>) {
        self.list.lock().push(self.pv);
        // If the stream is full, its reader is awake and sees the list anyway.
        drop(self.sender.try_send(StreamMessage::Look));
    }
}

fn sum(one: MonitorCounts, other: MonitorCounts) -> MonitorCounts {
    MonitorCounts {
        received: one.received + other.received,
        merged: one.merged + other.merged,
        delivered: one.delivered + other.delivered,
        longest_gap: one.longest_gap.max(other.longest_gap),
        n_disconnected: one.n_disconnected + other.n_disconnected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscription_counts_are_summed_and_the_longest_gap_is_kept() {
        let gap = Duration::from_secs;
        let one = MonitorCounts { received: 1, merged: 2, delivered: 3, longest_gap: gap(9), n_disconnected: 4 };
        let other = MonitorCounts { received: 10, merged: 20, delivered: 30, longest_gap: gap(5), n_disconnected: 40 };

        let both = MonitorCounts { received: 11, merged: 22, delivered: 33, longest_gap: gap(9), n_disconnected: 44 };
        assert_eq!(sum(one, other), both);
    }
}
