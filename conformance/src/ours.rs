//! Our client, in the process of the test.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fodo_data::{Array, EventMask, Kind, Reading, Scalar, Text, Value};
use fodo_net::{Channel, ClientConfig, Context, Detail, Host, Monitor, MonitorEvent, MonitorOptions, Request};
use serde_json::{Value as Json, json};

use crate::client::{ChannelProperties, Client, NameSearch, OPERATION_DURATION_MAX, Sample, ValueForm, pattern};
use crate::{TestFailure, place};

/// Longer values are compared with the pattern.
const SHOWN_MAX: usize = 1000;

/// The Rust API as a client of the scenarios.
pub struct FodoClient {
    context: Context,
    channels: HashMap<String, Channel>,
    monitors: Vec<Option<Monitor>>,
}

impl FodoClient {
    /// A client that finds only this server, by `way`.
    pub fn new(server: SocketAddr, way: NameSearch) -> FodoClient {
        let config = match way {
            NameSearch::Unicast => ClientConfig::with_addresses(vec![server]),
            NameSearch::Broadcast => {
                ClientConfig::with_addresses(vec![(place::LOOPBACK_BROADCAST, server.port()).into()])
            }
            NameSearch::NameServer => ClientConfig {
                name_servers: vec![Host { name: server.ip().to_string(), port: server.port() }],
                ..ClientConfig::with_addresses(Vec::new())
            },
        };
        let config = ClientConfig { payload_bytes_max: 64 << 20, ..config };
        FodoClient { context: Context::new(config), channels: HashMap::new(), monitors: Vec::new() }
    }

    fn channel(&mut self, pv: &str) -> Result<Channel, TestFailure> {
        if let Some(channel) = self.channels.get(pv) {
            return Ok(channel.clone());
        }
        let channel = self.context.channel(pv).map_err(|error| error.to_string())?;
        self.channels.insert(pv.to_string(), channel.clone());
        Ok(channel)
    }

    fn put_value(&mut self, pv: &str, value: Value) -> Result<(), TestFailure> {
        self.channel(pv)?.put_timeout(value, OPERATION_DURATION_MAX).map_err(|error| error.to_string())
    }
}

impl Client for FodoClient {
    fn connect(&mut self, pv: &str) -> Result<ChannelProperties, TestFailure> {
        let facts = self.channel(pv)?.connect_timeout(OPERATION_DURATION_MAX).map_err(|error| error.to_string())?;
        Ok(ChannelProperties {
            kind: kind_name(facts.kind).into(),
            count: facts.count_max.into(),
            may_write: facts.may_write,
        })
    }

    fn get(&mut self, pv: &str, shape: ValueForm) -> Result<Sample, TestFailure> {
        let request = match shape {
            ValueForm::Value | ValueForm::LongText => Request::default(),
            ValueForm::Text => Request { kind: Some(Kind::Text), ..Request::default() },
            ValueForm::Control => Request { detail: Detail::Control, ..Request::default() },
        };
        let channel = self.channel(pv)?;
        let reading =
            channel.start_get(request).wait_timeout(OPERATION_DURATION_MAX).map_err(|error| error.to_string())?;
        Ok(sample(&reading, shape))
    }

    fn put(&mut self, pv: &str, value: &Json, wait: bool) -> Result<(), TestFailure> {
        let value = value_of(value)?;
        if wait {
            return self.put_value(pv, value);
        }
        self.channel(pv)?.put_unconfirmed_timeout(value, OPERATION_DURATION_MAX).map_err(|error| error.to_string())
    }

    fn put_pattern(&mut self, pv: &str, first: i32, count: usize) -> Result<(), TestFailure> {
        let elements: Vec<i32> = (0..count).map(|index| pattern(first, index)).collect();
        self.put_value(pv, elements.into())
    }

    fn monitor_masked(&mut self, pv: &str, mask: EventMask) -> Result<usize, TestFailure> {
        let monitor = self.channel(pv)?.monitor(MonitorOptions { mask, ..MonitorOptions::default() });
        self.monitors.push(Some(monitor));
        Ok(self.monitors.len() - 1)
    }

    fn end_monitors(&mut self) -> Result<(), TestFailure> {
        self.monitors.iter_mut().for_each(|monitor| *monitor = None);
        Ok(())
    }

    fn take(&mut self, monitor: usize, count: usize, timeout: Duration) -> Result<Vec<Sample>, TestFailure> {
        let monitor = self.monitors.get(monitor).and_then(Option::as_ref).ok_or("unknown monitor")?;
        let deadline = Instant::now() + timeout;
        let mut samples = Vec::new();
        while samples.len() < count {
            match monitor.next_timeout(deadline.saturating_duration_since(Instant::now())) {
                Some(MonitorEvent::Update(reading)) => samples.push(sample(&reading, ValueForm::Value)),
                // Other clients do not report these in their stream of updates.
                Some(MonitorEvent::Connected(_) | MonitorEvent::Disconnected) => {}
                Some(other) => return Err(format!("{other:?}")),
                None => break,
            }
        }
        Ok(samples)
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "STRING",
        Kind::I8 | Kind::U8 => "CHAR",
        Kind::I16 | Kind::U16 => "INT",
        Kind::I32 | Kind::U32 => "LONG",
        Kind::F32 => "FLOAT",
        Kind::F64 | Kind::I64 | Kind::U64 => "DOUBLE",
        Kind::Enum => "ENUM",
    }
}

fn sample(reading: &Reading, shape: ValueForm) -> Sample {
    let has_time = shape != ValueForm::Control;
    let time_ns = i128::from(reading.time.unix_s) * 1_000_000_000 + i128::from(reading.time.nanos);
    let mut sample = Sample {
        value: json_of(&reading.value),
        severity: Some(reading.alarm.severity.code().into()),
        time_ns: has_time.then_some(time_ns),
        ..Sample::default()
    };
    if shape == ValueForm::LongText {
        sample.value = json!(long_text(&sample.value));
    }
    if let Some(meta) = reading.meta.as_ref().filter(|_| shape == ValueForm::Control) {
        if reading.value.kind() == Kind::Enum {
            sample.labels = Some(meta.labels.iter().map(ToString::to_string).collect());
            return sample;
        }
        let pairs = [meta.display, meta.alarm, meta.warning, meta.control];
        sample.units = Some(meta.units.to_string());
        sample.precision = Some(meta.precision.into());
        sample.limits = Some(pairs.iter().map(|pair| json!([pair.low, pair.high])).collect());
    }
    sample
}

fn json_of(value: &Value) -> Json {
    match value {
        Value::Scalar(scalar) => json_of_scalar(scalar),
        Value::Array(array) if array.len() > SHOWN_MAX => describe(array),
        Value::Array(array) => (0..array.len()).filter_map(|at| array.scalar(at)).map(|s| json_of_scalar(&s)).collect(),
    }
}

/// The characters up to the first zero.
fn long_text(characters: &Json) -> String {
    let characters = characters.as_array().into_iter().flatten().filter_map(Json::as_u64);
    characters.take_while(|code| *code != 0).filter_map(|code| char::from_u32(code as u32)).collect()
}

fn describe(array: &Array) -> Json {
    let Array::I32(elements) = array else { return json!({ "count": array.len(), "kind": "not LONG" }) };
    let first = elements.first().copied().unwrap_or_default();
    let n_wrong = elements.iter().enumerate().filter(|(index, element)| **element != pattern(first, *index)).count();
    json!({ "count": elements.len(), "first": first, "n_wrong": n_wrong })
}

fn json_of_scalar(scalar: &Scalar) -> Json {
    match scalar {
        Scalar::I8(n) => json!(*n as u8),
        Scalar::U8(n) => json!(n),
        Scalar::I16(n) => json!(n),
        Scalar::U16(n) | Scalar::Enum(n) => json!(n),
        Scalar::I32(n) => json!(n),
        Scalar::U32(n) => json!(n),
        Scalar::I64(n) => json!(n),
        Scalar::U64(n) => json!(n),
        Scalar::F32(n) => json!(n),
        Scalar::F64(n) => json!(n),
        Scalar::Text(text) => json!(text.to_str()),
    }
}

/// The value that a user would pass: integers as integers, other numbers as doubles.
fn value_of(json: &Json) -> Result<Value, TestFailure> {
    let unknown = || format!("unsupported value {json}");
    match json {
        Json::String(text) => Ok(text.as_str().into()),
        Json::Number(number) => match number.as_i64().and_then(|n| i32::try_from(n).ok()) {
            Some(whole) => Ok(whole.into()),
            None => Ok(number.as_f64().ok_or_else(unknown)?.into()),
        },
        Json::Array(elements) => {
            if let Some(texts) = elements.iter().map(Json::as_str).collect::<Option<Vec<&str>>>() {
                return Ok(texts.into_iter().map(Text::from).collect::<Vec<Text>>().into());
            }
            let whole = elements.iter().map(|n| n.as_i64().and_then(|n| i32::try_from(n).ok()));
            if let Some(whole) = whole.collect::<Option<Vec<i32>>>() {
                return Ok(whole.into());
            }
            let numbers = elements.iter().map(Json::as_f64).collect::<Option<Vec<f64>>>();
            Ok(numbers.ok_or_else(unknown)?.into())
        }
        _ => Err(unknown()),
    }
}
