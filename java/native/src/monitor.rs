//! Monitors, whose events a thread of Java takes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use fodo_lock::Mutex;
use fodo_net::{
    EventMask, Monitor, MonitorCounts, MonitorEvent, MonitorOptions, MonitorValue, PvRequest, Reading, Refusal,
    Structure, WhenFull, WrongReply,
};

use crate::codec::{EventTag, InputReader, InvalidInput, ReplyTag, ReplyWriter};
use crate::context::JavaChannel;
use crate::error::{ErrorClass, JavaFailure};
use crate::limit;
use crate::operation::{pv_request, request};
use crate::queue::{EventQueue, Ready, entry};

/// How the events of a monitor are taken. The numbers are those of `Native.java`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As entries of the queue.
    Events = 0,
    /// The queue reports that there are some.
    Readiness = 1,
    /// By a thread that waits for them.
    Wait = 2,
}

/// A subscription of either kind.
enum AnyMonitor {
    Values(Monitor<Reading>),
    Structures(Monitor<Structure>),
}

/// An event of either kind.
enum AnyEvent {
    Value(MonitorEvent<Reading>),
    Structure(MonitorEvent<Structure>),
}

/// A subscription and its channel, which a closed monitor must not keep open.
struct SubscribedChannel {
    monitor: AnyMonitor,
    target: Arc<JavaChannel>,
}

/// A monitor that has not been closed, or whose counts are still known.
pub struct JavaMonitor {
    options: MonitorOptions,
    mode: Mode,
    token: i64,
    /// `None` after it was closed.
    subscription: Mutex<Option<Arc<SubscribedChannel>>>,
    waker: Arc<MonitorWaker>,
    /// Of the subscriptions that were replaced or closed.
    counts: Mutex<MonitorCounts>,
}

/// Lists a monitor in its queue.
struct MonitorWaker {
    queue: Option<Arc<EventQueue>>,
    monitor: Weak<JavaMonitor>,
    is_listed: AtomicBool,
}

impl Wake for MonitorWaker {
    fn wake(self: Arc<Self>) {
        let Some(queue) = &self.queue else { return };
        if !self.is_listed.swap(true, Ordering::AcqRel)
            && let Some(monitor) = self.monitor.upgrade()
        {
            queue.push(Ready::Monitor(monitor));
        }
    }
}

/// What the input of a monitor says.
struct RequestedMonitor {
    options: MonitorOptions,
    request: Option<PvRequest>,
}

fn subscription(input: &mut InputReader<'_>) -> Result<RequestedMonitor, JavaFailure> {
    let request = request(input)?;
    let mask = EventMask(input.u8()?);
    let queue_max = input.u32()? as usize;
    let when_full = match input.u8()? {
        0 => WhenFull::ReplaceLast,
        1 => WhenFull::DropOldest,
        _ => return Err(InvalidInput::new("the monitor has an unknown policy for a full queue").into()),
    };
    let window = u32::try_from(input.i32()?).ok();
    let text = input.text()?;
    let pv_request = (!text.is_empty()).then(|| pv_request(&text)).transpose()?;
    Ok(RequestedMonitor {
        options: MonitorOptions { request, mask, queue_max, when_full, window },
        request: pv_request,
    })
}

impl JavaMonitor {
    pub fn start(
        target: Arc<JavaChannel>,
        queue: Option<Arc<EventQueue>>,
        token: i64,
        mode: i32,
        input: &mut InputReader<'_>,
    ) -> Result<Arc<JavaMonitor>, JavaFailure> {
        let mode = match mode {
            0 => Mode::Events,
            1 => Mode::Readiness,
            _ => Mode::Wait,
        };
        let RequestedMonitor { options, request } =
            subscription(input).map_err(|failure| failure.about(target.channel.name()))?;
        let is_structure = target.is_structure.load(Ordering::Relaxed);
        let monitor = match request.or_else(|| is_structure.then(PvRequest::default)) {
            Some(request) => AnyMonitor::Structures(target.channel.monitor_structure(request, options)),
            None => AnyMonitor::Values(target.channel.monitor(options)),
        };
        let subscription = SubscribedChannel { monitor, target };
        let monitor = Arc::new_cyclic(|monitor: &Weak<JavaMonitor>| JavaMonitor {
            options,
            mode,
            token,
            subscription: Mutex::new(Some(Arc::new(subscription))),
            waker: Arc::new(MonitorWaker { queue, monitor: monitor.clone(), is_listed: AtomicBool::new(false) }),
            counts: Mutex::default(),
        });
        if mode != Mode::Wait {
            // The thread of the queue polls it for the first time, which registers the waker.
            monitor.waker.clone().wake();
        }
        Ok(monitor)
    }

    fn current(&self) -> Option<Arc<SubscribedChannel>> {
        self.subscription.lock().clone()
    }

    /// Replaces the subscription; the counts of the one before are kept. Without a lock held, since it takes those of the
    /// client.
    fn replace(&self, subscription: Option<Arc<SubscribedChannel>>) -> Option<Arc<SubscribedChannel>> {
        let before = std::mem::replace(&mut *self.subscription.lock(), subscription);
        if let Some(before) = &before {
            let ended = before.monitor.counts();
            let mut counts = self.counts.lock();
            *counts = sum(*counts, ended);
        }
        before
    }

    pub fn close(&self) {
        let closed = self.replace(None);
        drop(closed);
    }

    pub fn write_counts(&self, out: &mut ReplyWriter) {
        let current = self.current().map(|current| current.monitor.counts()).unwrap_or_default();
        let counts = sum(*self.counts.lock(), current);
        out.reply(ReplyTag::Counts);
        for count in [counts.received, counts.merged, counts.overrun, counts.delivered, counts.n_disconnected] {
            out.u64(count);
        }
        out.u64(u64::try_from(counts.longest_gap.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The next event that is queued; otherwise the waker lists the monitor at the next one.
    fn queued(&self) -> Option<(AnyEvent, Arc<SubscribedChannel>)> {
        self.waker.is_listed.store(false, Ordering::Release);
        let waker = Waker::from(self.waker.clone());
        loop {
            let current = self.current()?;
            let event = current.monitor.poll(&waker)?;
            if let Some(event) = self.followed(&current.target, Some(event)) {
                return Some((event, current));
            }
        }
    }

    /// Writes entries with the events that are queued, or that there are some; returns their number. If events are left, the
    /// monitor is listed again.
    pub fn write_ready(&self, out: &mut ReplyWriter, len_max: usize) -> usize {
        if self.mode == Mode::Readiness {
            entry(out, self.token, |out| out.reply(ReplyTag::Ready));
            return 1;
        }
        let mut n = 0;
        while n < limit::EVENTS_IN_TURN && out.len() < len_max {
            let Some((event, of)) = self.queued() else { return n };
            n += 1;
            entry(out, self.token, |out| write_event(out, &of.target, event));
        }
        self.waker.clone().wake();
        n
    }

    /// Takes at most so many events. With fewer, the queue reports the monitor again at the next one.
    pub fn write_taken(&self, events_max: usize, out: &mut ReplyWriter) {
        out.reply(ReplyTag::List);
        let count = out.reserve_u32();
        let mut n = 0;
        while n < events_max {
            let Some((event, of)) = self.queued() else { break };
            n += 1;
            out.sized(|out| write_event(out, &of.target, event));
        }
        out.set_u32(count, n);
    }

    /// Waits for the next event, for at most `pause`.
    pub fn write_next(&self, pause: Duration, out: &mut ReplyWriter) -> Result<(), JavaFailure> {
        let current = self.current().ok_or_else(|| JavaFailure::closed("", "the monitor is closed"))?;
        match self.followed(&current.target, current.monitor.next_timeout(pause)) {
            Some(event) => write_event(out, &current.target, event),
            None => out.reply(ReplyTag::Nothing),
        }
        Ok(())
    }

    /// The event, unless another subscription follows: a PV that turns out to be a structure is monitored as such.
    fn followed(&self, target: &Arc<JavaChannel>, event: Option<AnyEvent>) -> Option<AnyEvent> {
        match event {
            Some(AnyEvent::Value(MonitorEvent::WrongReply(WrongReply::Structure { .. }))) => {
                target.is_structure.store(true, Ordering::Relaxed);
                let monitor = target.channel.monitor_structure(PvRequest::default(), self.options);
                let monitor = AnyMonitor::Structures(monitor);
                if self.replace(Some(Arc::new(SubscribedChannel { monitor, target: target.clone() }))).is_none() {
                    // It was closed meanwhile.
                    self.close();
                }
                None
            }
            event => event,
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

fn write_event(out: &mut ReplyWriter, target: &JavaChannel, event: AnyEvent) {
    match event {
        AnyEvent::Value(MonitorEvent::Update(reading)) => {
            out.event(EventTag::Update);
            out.reading(&reading);
        }
        AnyEvent::Structure(MonitorEvent::Update(structure)) => {
            out.event(EventTag::Update);
            out.structure(&structure);
        }
        AnyEvent::Value(event) => write_change(out, target, &event),
        AnyEvent::Structure(event) => write_change(out, target, &event),
    }
}

/// Writes an event that is not an update.
pub fn write_change<T>(out: &mut ReplyWriter, target: &JavaChannel, event: &MonitorEvent<T>) {
    let server = || target.channel.facts().map(|facts| facts.server.to_string()).unwrap_or_default();
    let failure = |class, reason: String, advice| {
        let name = target.channel.name();
        JavaFailure { server: server(), advice, ..JavaFailure::new(class, name, reason) }
    };
    match event {
        MonitorEvent::Connected(facts) => {
            out.event(EventTag::Connected);
            out.info_body(target.protocol, facts);
        }
        MonitorEvent::Rights(facts) => {
            out.event(EventTag::Rights);
            out.info_body(target.protocol, facts);
        }
        MonitorEvent::Merged(n) => {
            out.event(EventTag::Merged);
            out.u64(*n);
        }
        MonitorEvent::Unresponsive => out.event(EventTag::Unresponsive),
        MonitorEvent::Responsive => out.event(EventTag::Responsive),
        MonitorEvent::Disconnected => out.event(EventTag::Disconnected),
        MonitorEvent::Refused(refusal) => {
            let reason = match refusal {
                Refusal::FurtherUpdates => format!("the server has ended the subscription: it refused {refusal}"),
                refusal => format!("the server refused {refusal}"),
            };
            out.event(EventTag::Refused);
            out.failure_body(&failure(ErrorClass::Refused, reason, refusal.advice().unwrap_or_default()));
        }
        MonitorEvent::WrongReply(reply) => {
            out.event(EventTag::WrongReply);
            out.failure_body(&failure(ErrorClass::WrongReply, format!("the server sent {reply}"), reply.advice()));
        }
        // Whatever a later version adds is no update, and no other change that Java knows.
        _ => out.event(EventTag::Closed),
    }
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
