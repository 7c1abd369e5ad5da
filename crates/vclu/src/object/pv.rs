//! Pv: a process variable of EPICS, by Channel Access or pvAccess.
//!
//! A method starts an operation and returns at once. The thread of the CLU polls the operation and the monitor when the
//! client has something for them. Updates wait in the queue of the monitor, and the object takes one in each turn of the
//! engine, so that the handlers of `OnChange` find the value of their own update.

mod client;
mod convert;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use fodo_net::{
    Channel, ChannelState, Error, EventMask, Monitor, MonitorEvent, MonitorOptions, Operation, Output, Reading,
    Severity,
};

pub(crate) use self::client::PvClient;
use self::convert::{PvReading, is_text, put_value, pv_request};
use super::{
    CluObject, Feature, FeatureAccess, ObjectClass, ObjectContext, ObjectError, ObjectEvent, ObjectMethod, Parameter,
    ValueKind,
};
use crate::limit::{PV_EVENTS_PER_TURN, PV_PUTS_MAX, PV_TIMEOUT, PV_UPDATES_MAX};
use crate::log::{LogSeverity, count};
use crate::value::LuaValue;

pub(crate) static CLASS: ObjectClass = ObjectClass {
    number: 998,
    name: "Pv",
    version: 1,
    features: &[
        Feature::text(0, "Name").settable(),
        Feature::new(1, "Value", ValueKind::Any, FeatureAccess::GetSet),
        Feature::number(2, "Severity").choices(&[(0.0, "NO_ALARM"), (1.0, "MINOR"), (2.0, "MAJOR"), (3.0, "INVALID")]),
        Feature::number(3, "Timestamp").unit("s"),
        Feature::number(4, "Connected").choices(&[(0.0, "Disconnected"), (1.0, "Connected")]),
        Feature::text(5, "Label"),
        Feature::text(6, "Units"),
        Feature::text(7, "AlarmMessage"),
        Feature::text(8, "Error"),
        Feature::number(9, "Merged"),
        Feature::number(10, "Timeout").unit("ms").range(100.0, 3_600_000.0).settable(),
    ],
    methods: &[
        ObjectMethod::with(0, "Put", &[Parameter::new("Value", ValueKind::Any, "")]),
        ObjectMethod::new(1, "Get"),
        ObjectMethod::new(2, "Monitor"),
        ObjectMethod::new(3, "Cancel"),
    ],
    events: &[
        ObjectEvent::new(0, "OnInit"),
        ObjectEvent::new(1, "OnChange"),
        ObjectEvent::new(2, "OnConnect"),
        ObjectEvent::new(3, "OnDisconnect"),
        ObjectEvent::new(4, "OnPut"),
        ObjectEvent::new(5, "OnError"),
    ],
    create: |context| Box::new(PvObject::new(context)),
};

const ON_INIT: u16 = 0;
const ON_CHANGE: u16 = 1;
const ON_CONNECT: u16 = 2;
const ON_DISCONNECT: u16 = 3;
const ON_PUT: u16 = 4;
const ON_ERROR: u16 = 5;

struct PvObject {
    name: String,
    link: Option<PvLink>,
    reading: Option<PvReading>,
    is_connected: bool,
    /// Why the last operation failed; empty when an operation starts.
    error: String,
    /// Updates that later ones have replaced before the object took them.
    n_merged: u64,
    timeout: Duration,
    waker: Waker,
}

/// What a Pv with a name has.
struct PvLink {
    channel: Channel,
    /// Follows the connection; with updates after the method `Monitor`.
    monitor: Monitor,
    get: Option<PendingOperation<Reading>>,
    /// In the order in which they were started.
    puts: VecDeque<PendingOperation<()>>,
    opened: Instant,
}

/// An operation, and when it ends at the latest.
struct PendingOperation<T> {
    operation: Operation<T>,
    started: Instant,
    due: Instant,
}

impl<T: Output> PendingOperation<T> {
    fn new(operation: Operation<T>, now: Instant, timeout: Duration) -> PendingOperation<T> {
        PendingOperation { operation, started: now, due: now + timeout }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<T, Error>> {
        Pin::new(&mut self.operation).poll(&mut Context::from_waker(waker))
    }
}

impl PvObject {
    fn new(context: &mut ObjectContext<'_>) -> PvObject {
        PvObject {
            name: String::new(),
            link: None,
            reading: None,
            is_connected: false,
            error: String::new(),
            n_merged: 0,
            timeout: PV_TIMEOUT,
            waker: context.waker(),
        }
    }

    /// Follows the PV with this name from now on, and forgets everything about the one before.
    fn rename(&mut self, name: String, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        self.link = None;
        self.set_connected(false, context);
        *self = PvObject { name, timeout: self.timeout, ..PvObject::new(context) };
        if self.name.is_empty() {
            return Ok(());
        }
        match context.world.pv_client.channel(&self.name) {
            Ok(channel) => {
                let monitor = channel.monitor(monitor_options(EventMask::NONE));
                let opened = context.now().monotonic;
                self.link = Some(PvLink { channel, monitor, get: None, puts: VecDeque::new(), opened });
                self.waker.wake_by_ref();
                Ok(())
            }
            Err(reason) => {
                self.error.clone_from(&reason);
                Err(ObjectError::Failed { reason })
            }
        }
    }

    fn set_connected(&mut self, is_connected: bool, context: &mut ObjectContext<'_>) {
        if self.is_connected != is_connected {
            self.is_connected = is_connected;
            context.fire(if is_connected { ON_CONNECT } else { ON_DISCONNECT });
        }
    }

    /// An operation has ended, and the monitor may report the connection a little later. It may also have ended already.
    fn confirm_connection(&mut self, context: &mut ObjectContext<'_>) {
        if self.link.as_ref().is_some_and(|link| link.channel.state() == ChannelState::Active) {
            self.set_connected(true, context);
        }
    }

    fn put(&mut self, value: &LuaValue, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        let link = self.link.as_mut().ok_or_else(no_name)?;
        if link.puts.len() == PV_PUTS_MAX {
            return Err(failed(format!("{PV_PUTS_MAX} puts already wait")));
        }
        let value = put_value(value, is_text(&self.name, &link.channel))?;
        let operation = link.channel.start_put(value);
        link.puts.push_back(PendingOperation::new(operation, context.now().monotonic, self.timeout));
        self.error.clear();
        self.waker.wake_by_ref();
        Ok(())
    }

    /// Starts a get, unless one is in progress.
    fn get(&mut self, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        let link = self.link.as_mut().ok_or_else(no_name)?;
        if link.get.is_none() {
            let operation = link.channel.start_get(pv_request());
            link.get = Some(PendingOperation::new(operation, context.now().monotonic, self.timeout));
            self.error.clear();
            self.waker.wake_by_ref();
        }
        Ok(())
    }

    /// Starts the updates, or ends them: then the monitor follows the connection only.
    fn monitor(&mut self, mask: EventMask) -> Result<(), ObjectError> {
        let link = self.link.as_mut().ok_or_else(no_name)?;
        link.monitor = link.channel.monitor(monitor_options(mask));
        self.error.clear();
        self.waker.wake_by_ref();
        Ok(())
    }

    /// Takes the events of the monitor up to the next update.
    fn take_events(&mut self, context: &mut ObjectContext<'_>) {
        for _ in 0..PV_EVENTS_PER_TURN {
            let Some(link) = &self.link else { return };
            let next = pin!(link.monitor.next_event()).poll(&mut Context::from_waker(&self.waker));
            let Poll::Ready(Some(event)) = next else { return };
            match event {
                MonitorEvent::Connected(_) | MonitorEvent::Responsive => self.set_connected(true, context),
                MonitorEvent::Disconnected | MonitorEvent::Unresponsive | MonitorEvent::Closed => {
                    self.set_connected(false, context);
                }
                MonitorEvent::Merged(n_merged) => {
                    self.n_merged += n_merged;
                    context
                        .world
                        .log
                        .counters
                        .pv_updates_merged
                        .fetch_add(n_merged, std::sync::atomic::Ordering::Relaxed);
                }
                MonitorEvent::Update(reading) => {
                    count(&context.world.log.counters.pv_updates);
                    self.store(&reading, context);
                    // The next update waits until the handlers of this one have run.
                    break;
                }
                MonitorEvent::Refused(refusal) => self.fail(&format!("the server refused {refusal}"), context),
                MonitorEvent::WrongReply(reply) => self.fail(&format!("the server sent {reply}"), context),
                _ => {}
            }
        }
        self.waker.wake_by_ref();
    }

    fn store(&mut self, reading: &Reading, context: &mut ObjectContext<'_>) {
        match PvReading::new(&self.name, reading) {
            Ok(reading) => {
                self.reading = Some(reading);
                context.fire(ON_CHANGE);
            }
            Err(reason) => self.fail(&reason, context),
        }
    }

    fn fail(&mut self, reason: &str, context: &mut ObjectContext<'_>) {
        count(&context.world.log.counters.pv_errors);
        context.log(LogSeverity::Warning, reason);
        self.error = reason.to_string();
        context.fire(ON_ERROR);
    }

    fn end_get(&mut self, result: Result<Reading, Error>, context: &mut ObjectContext<'_>) {
        match result {
            Ok(reading) => {
                self.confirm_connection(context);
                self.store(&reading, context);
            }
            Err(error) => self.fail(&format!("get: {error}"), context),
        }
    }

    fn end_put(&mut self, result: Result<(), Error>, context: &mut ObjectContext<'_>) {
        match result {
            Ok(()) => {
                self.confirm_connection(context);
                context.fire(ON_PUT);
            }
            Err(error) => self.fail(&format!("put: {error}"), context),
        }
    }

    /// Ends the operations that have a result, and those whose time is over.
    fn end_operations(&mut self, context: &mut ObjectContext<'_>) {
        let now = context.now().monotonic;
        let Some(link) = &mut self.link else { return };
        let get = end_if_ready(&mut link.get, &self.waker, now);
        let (mut put_results, mut in_progress) = (Vec::new(), VecDeque::new());
        for put in link.puts.drain(..) {
            let mut put = Some(put);
            put_results.extend(end_if_ready(&mut put, &self.waker, now));
            in_progress.extend(put);
        }
        link.puts = in_progress;
        if let Some(result) = get {
            self.end_get(result, context);
        }
        for result in put_results {
            self.end_put(result, context);
        }
    }

    /// The reason for missing values.
    fn error_text(&self, now: Instant) -> String {
        match &self.link {
            Some(link) if self.error.is_empty() && !self.is_connected => {
                let waited = now.saturating_duration_since(link.opened);
                link.channel.why_inactive(waited).map(|error| error.to_string()).unwrap_or_default()
            }
            _ => self.error.clone(),
        }
    }
}

impl CluObject for PvObject {
    fn get(&self, index: u16, context: &mut ObjectContext<'_>) -> LuaValue {
        let reading = self.reading.as_ref();
        match index {
            0 => self.name.as_str().into(),
            1 => reading.map(|reading| reading.value.clone()).unwrap_or_default(),
            2 => {
                let severity =
                    reading.filter(|_| self.is_connected).map_or(Severity::Invalid, |reading| reading.severity);
                LuaValue::Number(severity.code().into())
            }
            3 => reading.and_then(|reading| reading.unix_s).map_or(LuaValue::Nil, LuaValue::Number),
            4 => super::flag(self.is_connected),
            5 => reading.map(|reading| reading.label.as_str()).unwrap_or_default().into(),
            6 => reading.map(|reading| reading.units.as_str()).unwrap_or_default().into(),
            7 if !self.is_connected => "disconnected".into(),
            7 => reading.map_or("no value was received", |reading| &reading.alarm_message).into(),
            8 => self.error_text(context.now().monotonic).into(),
            9 => LuaValue::Number(self.n_merged as f64),
            _ => LuaValue::Number(self.timeout.as_millis() as f64),
        }
    }

    fn set(&mut self, index: u16, value: LuaValue, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        match (index, value) {
            (0, LuaValue::Text(name)) if name == self.name => Ok(()),
            (0, LuaValue::Text(name)) => self.rename(name, context),
            (1, value) => self.put(&value, context),
            (_, value) => {
                self.timeout = Duration::from_millis(value.as_number().unwrap_or_default() as u64);
                Ok(())
            }
        }
    }

    fn call(
        &mut self,
        index: u16,
        arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        match index {
            0 => self.put(arguments.first().unwrap_or(&LuaValue::Nil), context),
            1 => self.get(context),
            2 => self.monitor(EventMask::VALUE | EventMask::ALARM),
            _ => {
                self.monitor(EventMask::NONE)?;
                // Puts that were sent are carried out; nothing waits for them any more.
                if let Some(link) = &mut self.link {
                    link.get = None;
                    link.puts.clear();
                }
                Ok(())
            }
        }?;
        Ok(LuaValue::Nil)
    }

    fn init(&mut self, context: &mut ObjectContext<'_>) {
        context.fire(ON_INIT);
    }

    fn deadline(&self) -> Option<Instant> {
        let link = self.link.as_ref()?;
        let get = link.get.iter().map(|get| get.due);
        get.chain(link.puts.iter().map(|put| put.due)).min()
    }

    fn tick(&mut self, context: &mut ObjectContext<'_>) {
        self.end_operations(context);
    }

    fn woken(&mut self, context: &mut ObjectContext<'_>) {
        self.take_events(context);
        self.end_operations(context);
        context.world.pv_client.clone().log_notices(context.world);
    }
}

fn monitor_options(mask: EventMask) -> MonitorOptions {
    MonitorOptions { request: pv_request(), mask, queue_max: PV_UPDATES_MAX, ..MonitorOptions::default() }
}

/// Takes an operation that has ended or whose time is over, and returns its result.
fn end_if_ready<T: Output>(
    pending: &mut Option<PendingOperation<T>>,
    waker: &Waker,
    now: Instant,
) -> Option<Result<T, Error>> {
    let result = pending.as_mut()?.poll(waker);
    match result {
        Poll::Ready(result) => {
            *pending = None;
            Some(result)
        }
        Poll::Pending => {
            let late = pending.take_if(|pending| pending.due <= now)?;
            let waited = now.saturating_duration_since(late.started);
            Some(late.operation.finish(waited))
        }
    }
}

fn no_name() -> ObjectError {
    failed("set Name first".into())
}

fn failed(reason: String) -> ObjectError {
    ObjectError::Failed { reason }
}
