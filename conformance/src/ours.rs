//! Our client, in the process of the test.

mod any_type;
pub mod server;

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fodo_data::{Array, Kind, NodeValue, Reading, Scalar, Structure, Text, Value};
use fodo_net::{
    Channel, ClientConfig, Context, Detail, Host, Monitor, MonitorEvent, MonitorOptions, Protocol, PvRequest,
    PvaClientConfig, Request,
};
use serde_json::{Value as Json, json};

use crate::client::{
    AnyTypeRequest, ChannelProperties, Client, MonitorForm, NameSearch, OPERATION_DURATION_MAX, Sample, ValueForm,
    pattern,
};
use crate::server::TestServer;
use crate::{TestFailure, place};

/// Longer values are compared with the pattern.
const SHOWN_MAX: usize = 1000;

/// The Rust API as a client of the scenarios.
pub struct FodoClient {
    context: Context,
    protocol: Protocol,
    channels: HashMap<String, Channel>,
    monitors: Vec<Option<OurMonitor>>,
}

/// A subscription, by what an update is.
enum OurMonitor {
    Readings(Monitor),
    Structures(Monitor<Structure>),
}

impl FodoClient {
    /// A client that finds only this server of Channel Access, by `way`.
    pub fn new(server: SocketAddr, way: NameSearch) -> FodoClient {
        FodoClient::with_config(ca_config(server, way))
    }

    /// A client that finds only this server of pvAccess, by `way`.
    pub fn new_pva(server: &TestServer, way: NameSearch) -> FodoClient {
        let config = ClientConfig { pva: pva_config(server, way), ..ClientConfig::with_addresses(Vec::new()) };
        FodoClient::with_config(ClientConfig { default_protocol: Protocol::Pva, ..config })
    }

    fn with_config(config: ClientConfig) -> FodoClient {
        let config = ClientConfig { payload_bytes_max: 64 << 20, ..config };
        let protocol = config.default_protocol;
        FodoClient { context: Context::new(config), protocol, channels: HashMap::new(), monitors: Vec::new() }
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

fn ca_config(server: SocketAddr, way: NameSearch) -> ClientConfig {
    match way {
        NameSearch::Unicast => ClientConfig::with_addresses(vec![server]),
        NameSearch::Broadcast => ClientConfig::with_addresses(vec![(place::LOOPBACK_BROADCAST, server.port()).into()]),
        NameSearch::NameServer => ClientConfig {
            name_servers: vec![Host { name: server.ip().to_string(), port: server.port() }],
            ..ClientConfig::with_addresses(Vec::new())
        },
    }
}

fn pva_config(server: &TestServer, way: NameSearch) -> PvaClientConfig {
    let (search, tcp) = (server.pva_search_addresses(), server.pva_tcp_address());
    match way {
        NameSearch::Unicast => PvaClientConfig::with_addresses(search),
        NameSearch::Broadcast => {
            PvaClientConfig::with_addresses(vec![(place::LOOPBACK_BROADCAST, server.pva.search).into()])
        }
        NameSearch::NameServer => PvaClientConfig {
            name_servers: vec![Host { name: tcp.ip().to_string(), port: tcp.port() }],
            ..PvaClientConfig::with_addresses(Vec::new())
        },
    }
}

impl Client for FodoClient {
    fn connect(&mut self, pv: &str) -> Result<ChannelProperties, TestFailure> {
        let facts = self.channel(pv)?.connect_timeout(OPERATION_DURATION_MAX).map_err(|error| error.to_string())?;
        Ok(ChannelProperties {
            kind: kind_name(facts.kind, self.protocol).into(),
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

    fn process(&mut self, pv: &str, value: &Json) -> Result<(), TestFailure> {
        let field = ("value".into(), NodeValue::Value(value_of(value)?));
        any_type::put(&self.channel(pv)?, "record[process=true]", vec![field]).map(|_| ())
    }

    fn request(&mut self, pv: &str, request: AnyTypeRequest) -> Result<Json, TestFailure> {
        any_type::perform(&self.channel(pv)?, request)
    }

    fn subscribe(&mut self, pv: &str, form: MonitorForm) -> Result<usize, TestFailure> {
        let options = MonitorOptions { mask: form.mask, window: form.window, ..MonitorOptions::default() };
        let channel = self.channel(pv)?;
        self.monitors.push(Some(match form.is_structure {
            true => OurMonitor::Structures(channel.monitor_structure(PvRequest::default(), options)),
            false => OurMonitor::Readings(channel.monitor(options)),
        }));
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
            let left = deadline.saturating_duration_since(Instant::now());
            let next = match monitor {
                OurMonitor::Readings(monitor) => {
                    monitor.next_timeout(left).map(|event| taken(event, |reading| sample(reading, ValueForm::Value)))
                }
                OurMonitor::Structures(monitor) => monitor
                    .next_timeout(left)
                    .map(|event| taken(event, |value| Sample { value: any_type::shown(value), ..Sample::default() })),
            };
            match next {
                Some(update) => samples.extend(update?),
                None => break,
            }
        }
        Ok(samples)
    }
}

/// What an event of a monitor is for a scenario.
fn taken<T: Debug>(event: MonitorEvent<T>, sample: impl Fn(&T) -> Sample) -> Result<Option<Sample>, TestFailure> {
    match event {
        MonitorEvent::Update(value) => Ok(Some(sample(&value))),
        // Other clients do not report these in their stream of updates.
        MonitorEvent::Connected(_) | MonitorEvent::Disconnected => Ok(None),
        other => Err(format!("{other:?}")),
    }
}

fn kind_name(kind: Kind, protocol: Protocol) -> &'static str {
    match (kind, protocol) {
        (_, Protocol::Pva) => pva_kind_name(kind),
        (Kind::Text, _) => "STRING",
        (Kind::Bool | Kind::I8 | Kind::U8, _) => "CHAR",
        (Kind::I16 | Kind::U16, _) => "INT",
        (Kind::I32 | Kind::U32, _) => "LONG",
        (Kind::F32, _) => "FLOAT",
        (Kind::F64 | Kind::I64 | Kind::U64, _) => "DOUBLE",
        (Kind::Enum, _) => "ENUM",
    }
}

fn pva_kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "string",
        Kind::Bool => "boolean",
        Kind::I8 => "byte",
        Kind::U8 => "ubyte",
        Kind::I16 => "short",
        Kind::U16 => "ushort",
        Kind::I32 => "int",
        Kind::U32 => "uint",
        Kind::I64 => "long",
        Kind::U64 => "ulong",
        Kind::F32 => "float",
        Kind::F64 => "double",
        Kind::Enum => "enum",
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
        Scalar::Bool(n) => json!(u8::from(*n)),
        Scalar::I8(n) => json!(n),
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
