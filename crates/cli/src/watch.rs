//! Monitors several PVs and merges their events into one stream.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use fodo_lock::Mutex;
use fodo_net::{
    Channel, ChannelFacts, Error, Kind, Monitor, MonitorCounts, MonitorEvent, MonitorOptions, Operation, PvRequest,
    Structure, WrongReply,
};

use crate::limit;

/// An event of the stream.
pub enum WatchEvent {
    /// An event of a PV, with its index in the list.
    Event(usize, MonitorEvent),
    /// A monitor cannot start, because the system cannot create a thread.
    Failed(Error),
    /// An event of a PV of pvAccess that is neither a scalar nor an array nor an enum.
    Structured(usize, MonitorEvent<Structure>),
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
type ToLookAt = Arc<Mutex<VecDeque<usize>>>;

/// Makes the channel of a name.
type ChannelOpener<'a> = dyn Fn(&str) -> Result<Channel, Error> + 'a;

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
    /// Instead of the other one, for a PV that is a structure.
    structured: Option<Monitor<Structure>>,
    /// The connection of `structured` is the one that `monitor` has reported.
    repeats_connection: bool,
    kind: Option<Kind>,
    /// Counts of subscriptions that have ended.
    past: MonitorCounts,
}

impl<'a> PvMonitors<'a> {
    /// Searches for all PVs.
    pub fn start(
        open: &ChannelOpener<'_>,
        names: &[String],
        options_for: impl Fn(&ChannelFacts) -> MonitorOptions + 'a,
    ) -> Result<PvMonitors<'a>, Error> {
        let mut watch = PvMonitors::new(open, names, options_for)?;
        for watched in &mut watch.pvs {
            watched.connecting = Some(watched.channel.start_connect());
        }
        for pv in 0..watch.pvs.len() {
            watch.look(pv);
        }
        Ok(watch)
    }

    /// The same with a pvRequest, for PVs of pvAccess. Their updates are structures, whatever their type is.
    pub fn start_requested(
        open: &ChannelOpener<'_>,
        names: &[String],
        request: &PvRequest,
        options: MonitorOptions,
    ) -> Result<PvMonitors<'a>, Error> {
        let mut watch = PvMonitors::new(open, names, move |_| options)?;
        for watched in &mut watch.pvs {
            watched.structured = Some(watched.channel.monitor_structure(request.clone(), options));
        }
        watch.to_look_at.lock().extend(0..names.len());
        Ok(watch)
    }

    fn new(
        open: &ChannelOpener<'_>,
        names: &[String],
        options_for: impl Fn(&ChannelFacts) -> MonitorOptions + 'a,
    ) -> Result<PvMonitors<'a>, Error> {
        let (sender, receiver) = sync_channel(limit::HAPPENINGS);
        let mut pvs = Vec::with_capacity(names.len());
        for name in names {
            pvs.push(MonitoredPv {
                channel: open(name)?,
                connecting: None,
                monitor: None,
                structured: None,
                repeats_connection: false,
                kind: None,
                past: MonitorCounts::default(),
            });
        }
        Ok(PvMonitors {
            options_for: Box::new(options_for),
            pvs,
            to_look_at: ToLookAt::default(),
            failure: None,
            is_stopping: Arc::default(),
            sender,
            receiver,
        })
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
            let mut next_to_look_at = self.to_look_at.lock().pop_front();
            while let Some(pv) = next_to_look_at {
                self.look(pv);
                if let Some(event) = self.structured_event(pv) {
                    return Some(WatchEvent::Structured(pv, event));
                }
                next_to_look_at = self.to_look_at.lock().pop_front();
            }
            if let Some(error) = self.failure.take() {
                return Some(WatchEvent::Failed(error));
            }
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            match self.receiver.recv_timeout(left).ok()? {
                StreamMessage::Look => {}
                StreamMessage::Happened(WatchEvent::Event(
                    pv,
                    MonitorEvent::WrongReply(WrongReply::Structure { .. }),
                )) => self.monitor_structure(pv),
                StreamMessage::Happened(happening) => {
                    if let WatchEvent::Event(pv, MonitorEvent::Connected(facts)) = &happening {
                        self.subscribe_if_changed(*pv, facts.clone());
                    }
                    return Some(happening);
                }
            }
        }
    }

    /// Monitors a PV as a structure instead.
    pub fn monitor_structure(&mut self, pv: usize) {
        let Some(watched) = self.pvs.get_mut(pv).filter(|watched| watched.structured.is_none()) else { return };
        let options = match &watched.monitor {
            Some(_) => MonitorOptions { queue_max: limit::CAMONITOR_QUEUE, ..MonitorOptions::default() },
            None => return,
        };
        watched.structured = Some(watched.channel.monitor_structure(PvRequest::default(), options));
        watched.repeats_connection = true;
        watched.monitor = None;
        self.to_look_at.lock().push_back(pv);
    }

    /// The next event of a PV that is a structure; the stream looks at the PV again when there may be more.
    fn structured_event(&mut self, pv: usize) -> Option<MonitorEvent<Structure>> {
        let waker = self.waker(pv);
        let watched = self.pvs.get_mut(pv)?;
        let monitor = watched.structured.as_ref()?;
        loop {
            let polled = std::pin::pin!(monitor.next_event()).poll(&mut TaskContext::from_waker(&waker));
            let Poll::Ready(Some(event)) = polled else { return None };
            let is_connection = matches!(event, MonitorEvent::Connected(_));
            if is_connection && std::mem::take(&mut watched.repeats_connection) {
                continue;
            }
            waker.wake();
            return Some(event);
        }
    }

    fn waker(&self, pv: usize) -> Waker {
        Waker::from(Arc::new(CheckWaker { pv, list: self.to_look_at.clone(), sender: self.sender.clone() }))
    }

    /// The update counts of a PV.
    pub fn counts(&self, pv: usize) -> MonitorCounts {
        self.pvs.get(pv).map_or_else(MonitorCounts::default, |watched| {
            let of_structures = watched.structured.as_ref().map(Monitor::counts);
            let running = watched.monitor.as_ref().map(Monitor::counts).or(of_structures).unwrap_or_default();
            sum(watched.past, running)
        })
    }

    /// Checks whether a PV has connected, and subscribes if so.
    fn look(&mut self, pv: usize) {
        let waker = self.waker(pv);
        let Some(watched) = self.pvs.get_mut(pv) else { return };
        let Some(connecting) = &mut watched.connecting else { return };
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
        self.list.lock().push_back(self.pv);
        // If the stream is full, its reader is awake and sees the list anyway.
        drop(self.sender.try_send(StreamMessage::Look));
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_net::{PvTable, Server, ServerConfig, SharedStructure, StructureBuilder};

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn the_connection_of_a_structure_is_reported_once_and_its_first_update_follows() {
        let mut build = StructureBuilder::new("scan_t");
        build.scalar("position", Kind::F64);
        let pv = SharedStructure::builder(Structure::new(build.finish().into())).build();
        let server = Server::start(ServerConfig::isolated(), Arc::new(PvTable::from([("s", pv)]))).unwrap();
        let context = fodo_net::Context::new(server.client_config());
        let mut watch =
            PvMonitors::start(&|pv| context.channel(pv), &["pva://s".to_owned()], |_| MonitorOptions::default())
                .unwrap();

        let mut events = Vec::new();
        while !events.contains(&"update") {
            events.push(match watch.next(PATIENCE).expect("an event arrives in time") {
                WatchEvent::Event(0, MonitorEvent::Connected(_)) => "connected",
                WatchEvent::Structured(0, MonitorEvent::Connected(_)) => "connected again",
                WatchEvent::Structured(0, MonitorEvent::Update(_)) => "update",
                _ => "another",
            });
        }

        assert_eq!(events, ["connected", "update"]);
    }

    #[test]
    fn subscription_counts_are_summed_and_the_longest_gap_is_kept() {
        let gap = Duration::from_secs;
        let one =
            MonitorCounts { received: 1, merged: 2, overrun: 5, delivered: 3, longest_gap: gap(9), n_disconnected: 4 };
        let other = MonitorCounts {
            received: 10,
            merged: 20,
            overrun: 50,
            delivered: 30,
            longest_gap: gap(5),
            n_disconnected: 40,
        };

        let both = MonitorCounts {
            received: 11,
            merged: 22,
            overrun: 55,
            delivered: 33,
            longest_gap: gap(9),
            n_disconnected: 44,
        };
        assert_eq!(sum(one, other), both);
    }
}
