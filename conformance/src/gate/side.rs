//! One of the two servers, with our client.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fodo_ca::dbr::{self, DbrType};
use fodo_data::{EventMask, Kind, Meta, Reading, Scalar, Value};
use fodo_net::{
    Channel, ClientConfig, Context, Error, ErrorKind, Monitor, MonitorEvent, MonitorOptions, Request, many,
};

use super::step::{AcknowledgeStep, Argument, GateStep, value_of};
use super::{Case, fields_of, raw};
use crate::TestFailure;
use crate::client::OPERATION_DURATION_MAX;
use crate::server::TestServer;

/// Maximum number of events kept per subscription.
const EVENTS_MAX: usize = 1024;

/// The event masks, each with its own subscription.
const MASKS: [(&str, EventMask); 4] = [
    ("VALUE", EventMask::VALUE),
    ("LOG", EventMask::LOG),
    ("ALARM", EventMask::ALARM),
    ("PROPERTY", EventMask::PROPERTY),
];

/// A counter incremented after each step; after its event all events of the step have been received.
const FENCE: &str = "gate:fence";

/// The database of the fence.
pub const FENCE_DATABASE: &str = "record(longout, \"gate:fence\") {}\n";

/// A server and its client.
pub struct ServerSide {
    server: TestServer,
    context: Context,
    fence: Channel,
    fence_events: Monitor,
    n_fences: i32,
}

/// The channels and events of one case on one server.
pub struct Stage {
    prefix: String,
    fields: Vec<(String, Channel)>,
    watched: Vec<Watched>,
    /// Events since the last step, by subscription.
    events: BTreeMap<String, Vec<String>>,
}

/// One subscription.
struct Watched {
    name: String,
    monitor: Monitor,
    /// Whether softIoc copies the value only when it sends it: VAL of an array, including one of a single element, and of
    /// an mbbo.
    is_copied_late: bool,
}

impl ServerSide {
    /// Connects to a running server.
    pub fn new(server: TestServer) -> Result<ServerSide, TestFailure> {
        let context = Context::new(ClientConfig::with_addresses(vec![server.address()]));
        let fence = context.channel(FENCE).map_err(|error| error.to_string())?;
        fence.connect_timeout(OPERATION_DURATION_MAX).map_err(|error| server.failure(&error.to_string()))?;
        let fence_events = fence.monitor(MonitorOptions::default());
        Ok(ServerSide { server, context, fence, fence_events, n_fences: 0 })
    }

    /// Connects to every field of every record of the case.
    pub fn stage(&self, case: &Case, prefix: &str) -> Result<Stage, TestFailure> {
        let mut names = Vec::new();
        for record in &case.records {
            names.extend(fields_of(&record.record_type).iter().map(|field| format!("{}.{field}", record.name)));
        }
        let pvs: Vec<String> = names.iter().map(|name| format!("{prefix}{name}")).collect();
        let channels = many::connect_timeout(&self.context, &pvs, OPERATION_DURATION_MAX);
        let channels: Result<Vec<Channel>, Error> = channels.into_iter().collect();
        let channels = channels.map_err(|error| self.server.failure(&error.to_string()))?;
        let fields = names.into_iter().zip(channels).collect();
        Ok(Stage { prefix: prefix.to_string(), fields, watched: Vec::new(), events: BTreeMap::new() })
    }

    /// Waits until all events of previous steps are received, as far as the server keeps their order.
    pub fn fence(&mut self) -> Result<(), TestFailure> {
        self.n_fences += 1;
        let put = self.fence.put_timeout(self.n_fences, OPERATION_DURATION_MAX);
        put.map_err(|error| self.server.failure(&error.to_string()))?;
        let deadline = Instant::now() + OPERATION_DURATION_MAX;
        let expected = Value::from(self.n_fences);
        while let Some(event) = self.fence_events.next_timeout(deadline.saturating_duration_since(Instant::now())) {
            if matches!(event, MonitorEvent::Update(Reading { value, .. }) if value == expected) {
                return Ok(());
            }
        }
        Err(self.server.failure("sends no updates"))
    }

    /// Does one step, and returns the result that the client sees.
    pub fn run(&self, stage: &mut Stage, step: &GateStep) -> Result<String, TestFailure> {
        let channel = |pv: &str| {
            let channel = self.context.channel(&format!("{}{pv}", stage.prefix));
            channel.map_err(|error| error.to_string())
        };
        match step {
            GateStep::Watch(pv) => {
                let channel = channel(pv)?;
                let record = pv.split('.').next().unwrap_or_default();
                let sizes = ["NELM", "NSAM"].map(|size| format!("{record}.{size}"));
                let has_field = |field: &str| stage.names().any(|name| name == field);
                let is_array = sizes.iter().any(|size| has_field(size));
                // No other type has both fields.
                let is_mbbo = ["ZRST", "OUT"].iter().all(|field| has_field(&format!("{record}.{field}")));
                let is_copied_late = (is_array || is_mbbo) && (pv == record || *pv == format!("{record}.VAL"));
                for (word, mask) in MASKS {
                    let options = MonitorOptions { mask, queue_max: EVENTS_MAX, ..MonitorOptions::default() };
                    let monitor = channel.monitor(options);
                    first_update(&monitor).ok_or_else(|| self.server.failure(&format!("sends no update of {pv}")))?;
                    stage.watched.push(Watched { name: format!("{pv} {word}"), monitor, is_copied_late });
                }
                Ok(String::new())
            }
            GateStep::Put(Argument { pv, kind, text }) => {
                let value = value_of(*kind, &text.replace("$(P)", &stage.prefix))?;
                Ok(outcome(channel(pv)?.put_timeout(value, OPERATION_DURATION_MAX)))
            }
            GateStep::Write(Argument { pv, kind, text }) => {
                let value = value_of(*kind, &text.replace("$(P)", &stage.prefix))?;
                raw::write(self.server.address(), &format!("{}{pv}", stage.prefix), dbr::put_type(&value), value)
            }
            GateStep::Get(Argument { pv, kind, text }) => {
                let count = text.parse().unwrap_or_default();
                let request = Request { kind: Some(*kind), count, ..Request::default() };
                match channel(pv)?.get_with_timeout(request, OPERATION_DURATION_MAX) {
                    Ok(reading) => Ok(stage.value_and_alarm(&reading)),
                    Err(error) => Ok(outcome(Err(error))),
                }
            }
            GateStep::Request { pv, way, dbr, count } => {
                let show = |reading: &Reading| value_alarm_and_properties(reading, &stage.prefix);
                raw::read(self.server.address(), &format!("{}{pv}", stage.prefix), *way, *dbr, *count, &show)
            }
            GateStep::Acknowledge(pv, which, number) => {
                let dbr = match which {
                    AcknowledgeStep::Transient => DbrType::PUT_ACKT,
                    AcknowledgeStep::Severity => DbrType::PUT_ACKS,
                };
                // Without completion, which would wait for an active record.
                let value = Value::Scalar(Scalar::Enum(*number));
                raw::write(self.server.address(), &format!("{}{pv}", stage.prefix), dbr, value)
            }
            GateStep::WaitIdle => Ok(String::new()),
            GateStep::Wait(seconds) => {
                // The step is about elapsed time.
                std::thread::sleep(Duration::from_secs_f64(*seconds));
                Ok(String::new())
            }
        }
    }

    /// Whether no record of the case is active.
    pub fn is_idle(&self, stage: &Stage) -> Result<bool, TestFailure> {
        let active = stage.fields.iter().filter(|(name, _)| name.ends_with(".PACT"));
        let channels: Vec<Channel> = active.map(|(_, channel)| channel.clone()).collect();
        let readings = many::get_timeout(&channels, Request::default(), OPERATION_DURATION_MAX);
        let readings: Result<Vec<Reading>, Error> = readings.into_iter().collect();
        let readings = readings.map_err(|error| self.server.failure(&error.to_string()))?;
        Ok(readings.iter().all(|reading| reading.value.to_f64() == Ok(0.0)))
    }

    /// The value of every field, in the order of the case's records and their fields.
    pub fn read(&self, stage: &Stage) -> Result<Vec<String>, TestFailure> {
        let channels: Vec<Channel> = stage.fields.iter().map(|(_, channel)| channel.clone()).collect();
        let readings = many::get_timeout(&channels, Request::default(), OPERATION_DURATION_MAX);
        let readings: Result<Vec<Reading>, Error> = readings.into_iter().collect();
        let readings = readings.map_err(|error| self.server.failure(&error.to_string()))?;
        // The alarm is that of the record; STAT and SEVR contain it.
        Ok(readings.iter().map(|reading| shown(&reading.value, &stage.prefix)).collect())
    }
}

impl Stage {
    /// The names of the fields, in the order of [`ServerSide::read`].
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| name.as_str())
    }

    /// Drops the events of the previous step.
    pub fn begin(&mut self) {
        self.events.clear();
    }

    /// The events of each subscription since the step began; more may follow.
    pub fn events(&mut self) -> &BTreeMap<String, Vec<String>> {
        for Watched { name, monitor, is_copied_late } in &self.watched {
            while let Some(event) = monitor.next_timeout(Duration::ZERO) {
                let events = self.events.entry(name.clone()).or_default();
                match event {
                    MonitorEvent::Update(reading) => {
                        if reading.value.kind() == Kind::Text || *is_copied_late {
                            // softIoc copies these when it sends them, and omits intermediate alarms and values; the
                            // final ones are compared through their fields.
                            *events = vec!["some".into()];
                        } else {
                            events.push(value_and_alarm(&reading, &self.prefix));
                        }
                    }
                    MonitorEvent::Connected(_) => {}
                    other => events.push(format!("{other:?}")),
                }
            }
        }
        &self.events
    }

    fn value_and_alarm(&self, reading: &Reading) -> String {
        value_and_alarm(reading, &self.prefix)
    }
}

/// The initial update of a subscription.
fn first_update(monitor: &Monitor) -> Option<Reading> {
    let deadline = Instant::now() + OPERATION_DURATION_MAX;
    loop {
        match monitor.next_timeout(deadline.saturating_duration_since(Instant::now()))? {
            MonitorEvent::Update(reading) => return Some(reading),
            MonitorEvent::Connected(_) => {}
            _ => return None,
        }
    }
}

/// The result of a put as text; empty on success.
fn outcome(result: Result<(), Error>) -> String {
    match result {
        Ok(()) => String::new(),
        Err(error) => match error.kind() {
            ErrorKind::Refused { refusal, .. } => format!("refused: {refusal}"),
            ErrorKind::NoReply { .. } => "no reply".into(),
            _ => error.to_string(),
        },
    }
}

/// Value and alarm.
fn value_and_alarm(reading: &Reading, prefix: &str) -> String {
    format!("{} {}/{}", shown(&reading.value, prefix), reading.alarm.status, reading.alarm.severity)
}

/// Value, alarm and properties.
fn value_alarm_and_properties(reading: &Reading, prefix: &str) -> String {
    let mut text = value_and_alarm(reading, prefix);
    if let Some(meta) = &reading.meta {
        let Meta { units, precision, display, alarm, warning, control, labels, acknowledge, .. } = &**meta;
        let limits = [display, alarm, warning, control].map(|limits| format!("{}..{}", limits.low, limits.high));
        text += &format!(" {units:?} {precision} {limits:?} {labels:?} {acknowledge:?}");
    }
    text
}

/// A value without the prefix of names.
fn shown(value: &Value, prefix: &str) -> String {
    let text = match value {
        Value::Scalar(scalar) => element(scalar),
        Value::Array(array) => {
            let elements = (0..array.len()).filter_map(|index| array.scalar(index));
            format!("[{}]", elements.map(|scalar| element(&scalar)).collect::<Vec<_>>().join(", "))
        }
    };
    text.replace(prefix, "")
}

fn element(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Bool(number) => number.to_string(),
        Scalar::I8(number) => number.to_string(),
        Scalar::U8(number) => number.to_string(),
        Scalar::I16(number) => number.to_string(),
        Scalar::U16(number) => number.to_string(),
        Scalar::Enum(number) => format!("#{number}"),
        Scalar::I32(number) => number.to_string(),
        Scalar::U32(number) => number.to_string(),
        Scalar::I64(number) => number.to_string(),
        Scalar::U64(number) => number.to_string(),
        Scalar::F32(number) => format!("{number:?}"),
        Scalar::F64(number) => format!("{number:?}"),
        // The sign of NaN depends on how it was computed.
        Scalar::Text(text) => format!("{:?}", text.to_str().replace("-nan", "nan")),
    }
}
